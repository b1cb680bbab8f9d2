"""Trains an LSTM in JAX to add numbers: of each sequence, the two that are marked.

    python jax_lstm.py [--steps N] [--length N] [--hidden N]

The network is recurve.jax.Network; loss, gradient and update are plain JAX, compiled as one function whose parameters are updated in place.
Sequences have different lengths.
"""

from __future__ import annotations

import argparse
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import recurve.jax

Array = jax.Array


def make_batch(key: Array, batch: int, length: int) -> tuple[Array, Array, Array]:
    """Sequences [length, batch, 2] of numbers and marks, the sums of the two marked numbers, and lengths."""
    numbers_key, marks_key, lengths_key = jax.random.split(key, 3)
    lengths = jax.random.randint(lengths_key, (batch,), length // 2, length + 1)
    numbers = jax.random.uniform(numbers_key, (length, batch))
    order = jax.random.uniform(marks_key, (length, batch)) - (jnp.arange(length)[:, None] >= lengths)
    marks = order >= jax.lax.top_k(order.T, 2)[0][:, 1]  # of the two largest values before the sequence's end
    return jnp.stack([numbers, marks], axis=-1), (numbers * marks).sum(axis=0), lengths


def make_step(net: recurve.jax.Network, batch: int, length: int, rate: float) -> Any:
    """A function that makes a batch and updates the parameters by gradient descent with momentum."""

    def compute_loss(params: dict[str, Any], key: Array) -> Array:
        x, sums, lengths = make_batch(key, batch, length)
        _, states = net(params["rnn"], x, lengths=lengths)
        found = states["h"][-1] @ params["weight"] + params["bias"]
        return ((found - sums) ** 2).mean()

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: dict[str, Any], momentum: dict[str, Any], key: Array) -> tuple[Any, Any, Array]:
        loss, gradient = jax.value_and_grad(compute_loss)(params, key)
        norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(gradient)))
        scale = rate / jnp.maximum(norm, 1)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + scale * g, momentum, gradient)
        return jax.tree.map(lambda p, m: p - m, params, momentum), momentum, loss

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=2000, help="updates")
    parser.add_argument("--length", type=int, default=30, help="of the longest sequences")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--rate", type=float, default=0.05)
    options = parser.parse_args()

    net = recurve.jax.Network("lstm", input=2, hidden=options.hidden)
    init_key, data_key = jax.random.split(jax.random.key(0))
    params = {"rnn": net.init(init_key), "weight": jnp.zeros(options.hidden), "bias": jnp.ones(())}
    momentum = jax.tree.map(jnp.zeros_like, params)
    step = make_step(net, options.batch, options.length, options.rate)

    losses, begin = [], time.perf_counter()
    for number in range(1, options.steps + 1):
        params, momentum, loss = step(params, momentum, jax.random.fold_in(data_key, number))
        losses.append(loss)
        if number % max(options.steps // 10, 1) == 0:
            recent = losses[-max(options.steps // 10, 1) :]
            print(f"step {number}: mean square error {float(sum(recent)) / len(recent):.4f}")
    print(
        f"{options.steps / (time.perf_counter() - begin):.0f} steps a second; a guess of the mean has an error of 0.1667"
    )


if __name__ == "__main__":
    main()
