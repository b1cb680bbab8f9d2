"""Linear recurrences without a cell, with their derivative."""

# mypy: disable-error-code=no-untyped-call

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from recurve.jax import _ffi

REVERSE, LENGTHS, RESETS = 16, 32, 64  # rcvb_jax_scan_flags; below: the type


class _Operands(NamedTuple):
    """Arrays of a call. a, b: [steps, batch, channels]. What is not given is None."""

    a: Any
    b: Any
    initial: Any  # [batch, channels], float64 with a of float64, otherwise float32
    lengths: Any
    resets: Any

    def others(self) -> list[Any]:
        return [array for array in (self.initial, self.lengths, self.resets) if array is not None]


def _attributes(flags: int, operands: _Operands) -> dict[str, Any]:
    return {"flags": np.int64(flags), "given": _ffi.given(operands.initial)}


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _forward(flags: int, operands: _Operands) -> Array:
    a = operands.a
    arguments = [a, operands.b, *operands.others()]
    results = [_ffi.shape_of(a.shape, a.dtype)]
    return _ffi.call("scan", results, arguments, **_attributes(flags, operands))[0]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _backward(flags: int, wanted: str, operands: _Operands, h: Array, dh: Array) -> list[Array]:
    arguments = [operands.a, h, *operands.others(), dh]
    likes = [operands.a, operands.a, operands.initial]
    results = [_ffi.shape_of(like.shape, like.dtype) for like, mark in zip(likes, wanted) if mark == "1"]
    return _ffi.call("scan_backward", results, arguments, **_attributes(flags, operands), wanted=wanted)


def _refuse_second_derivative(*arguments: Any) -> Any:
    raise NotImplementedError(_ffi.SECOND_DERIVATIVE.format("scan"))


_forward.defjvp(_refuse_second_derivative)
_backward.defjvp(_refuse_second_derivative)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(flags: int, operands: _Operands) -> Array:
    return _forward(flags, operands)


def _keep(flags: int, operands: _Operands) -> Any:
    h = _forward(flags, operands)
    return h, (operands, h)


def _derive(flags: int, residuals: Any, dh: Array) -> tuple[_Operands]:
    operands, h = residuals
    wanted = "111" if operands.initial is not None else "110"
    found = _backward(flags, wanted, operands._replace(b=None), h, dh)
    return (_Operands(found[0], found[1], found[2] if len(found) > 2 else None, None, None),)


_run.defvjp(_keep, _derive)


def _mask(a: Array, b: Array, lengths: Array) -> tuple[Array, Array, Array]:
    """Values past a sequence's length keep the state; and where they are not."""
    valid = (jnp.arange(a.shape[0])[:, None] < lengths[:, 0])[..., None]
    return jnp.where(valid, a, 1), jnp.where(valid, b, 0), valid


def _take(a: Any, b: Any) -> tuple[Array, Array]:
    a, b = jnp.asarray(a), jnp.asarray(b)
    dtype = jnp.result_type(a, b)
    if jnp.issubdtype(dtype, jnp.integer) or dtype == jnp.bool_:
        dtype = jnp.dtype(jnp.float32)
    if dtype.name not in _ffi.FLOATS:
        raise TypeError(f"a and b are arrays of {a.dtype} and {b.dtype}; they must be of float numbers")
    if a.ndim not in (2, 3):
        raise ValueError(f"a has shape {list(a.shape)}; it must be [steps, channels] or [steps, batch, channels]")
    _ffi.check_shape(b, a.shape, "b")
    if a.shape[0] == 0:
        raise ValueError("a has no time steps; there must be at least one")
    return a.astype(dtype), b.astype(dtype)


def scan(
    a: Any,
    b: Any,
    initial: Any = None,
    lengths: Any = None,
    resets: Any = None,
    reverse: bool = False,
) -> Array:
    """Computes h[t] = a[t] * h[t-1] + b[t] for every channel, in parallel over time.

    a, b     [steps, batch, channels] or [steps, channels] of float32, float64, float16 or bfloat16
    initial  h before the first step, [batch, channels] or [channels]; zeros where it is not given
    lengths  [batch] whole numbers, each in 1..steps; h is zero past a sequence's length
    resets   [steps, batch] or [steps] of bool: an episode begins at this step, from the initial state; in reverse one that ends before it does
    reverse  h[t] = a[t] * h[t+1] + b[t], from the last step (of each sequence) to the first

    Returns h in the shape of a. It can be differentiated once.
    """
    a, b = _take(a, b)
    shape = a.shape
    steps, batch, channels = (shape[0], 1, shape[1]) if a.ndim == 2 else shape
    if a.size == 0:
        return jnp.zeros(shape, a.dtype)
    real = a.dtype if a.dtype == jnp.float64 else jnp.float32
    if initial is not None:
        initial = _ffi.check_shape(jnp.asarray(initial), shape[1:], "initial").astype(real).reshape(batch, channels)
    if resets is not None:
        resets = _ffi.take_resets(resets, shape[:-1]).reshape(steps, batch)
    if lengths is not None:
        lengths = _ffi.take_lengths(lengths, batch, steps)
    flags = _ffi.float_type(a.dtype) | (REVERSE if reverse else 0) | (RESETS if resets is not None else 0)
    a, b = a.reshape(steps, batch, channels), b.reshape(steps, batch, channels)
    valid = None
    given = [array for array in (a, b, initial, lengths, resets) if array is not None]
    if lengths is not None and _ffi.platform_of(given, None) == "cuda":  # the library takes lengths from the host
        a, b, valid = _mask(a, b, lengths)
        resets, lengths = None if resets is None else resets & valid[..., 0], None
    elif lengths is not None:
        flags |= LENGTHS
    h = _run(flags, _Operands(a, b, initial, lengths, resets))
    return (h if valid is None else jnp.where(valid, h, 0)).reshape(shape)
