"""A program that uses recurve.jax. It is not run: test_typing.py checks it with mypy --strict, which finds these types and no others."""

import jax
import recurve
from jax import Array
from typing_extensions import assert_type

net = recurve.jax.Network("lstm", 8, 16, layers=2)
params = net.init(jax.random.key(0))
assert_type(params, dict[str, Array])
assert_type(net(params, jax.numpy.zeros((5, 2, 8))), tuple[Array, dict[str, Array]])
recurve.jax.Network("lstm", "8", 16)  # type: ignore[arg-type]
