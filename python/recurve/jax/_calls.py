"""Forward and backward calls of a network, with its derivative.

A call is compiled with the string of its plan, and with the size of the plan's reserve: what the forward call keeps for the backward call is an
array of bytes. Both are found when the call is traced.
"""

# mypy: disable-error-code=no-untyped-call

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

from recurve._native.bindings import bindings, check
from recurve._native.loader import native
from recurve.jax import _ffi

EFFORTS = {"first": 4, "estimate": 1, "measure": 0, "exhaustive": 2}

# rcvb_jax_flags
DATA_SHIFT, PARAMETERS_SHIFT = 4, 8
TRAINING, BATCH_FIRST, LENGTHS, RESETS, CUDA = (1 << bit for bit in range(12, 17))


@dataclass(frozen=True)
class Call:
    """What is known of a call when it is traced, besides shapes."""

    net: str  # its description
    flags: int  # without TRAINING
    is_random: bool  # dropout or zoneout are applied
    schedule: str | None
    effort: str
    output: int
    states: tuple[tuple[int, ...], ...]  # the shape of each state, with 0 for the batch; of a flat one [-total]


class Operands(NamedTuple):
    """The arrays of a call. What is not given is None."""

    x: Any
    parameters: tuple[Any, ...]
    initial: tuple[Any, ...]  # of each state
    restart: tuple[Any, ...]
    lengths: Any
    resets: Any
    seed: Any

    def arrays(self) -> list[Any]:
        """In the order of the functions in C."""
        found = [self.x, *self.parameters, *self.initial, *self.restart, self.lengths, self.resets, self.seed]
        return [array for array in found if array is not None]

    def given(self) -> str:
        return _ffi.given(*self.initial, *self.restart, self.seed)


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class Wanted:
    """For which operands a gradient is wanted; constant for JAX."""

    operands: Operands  # of bool, or None

    def tree_flatten(self) -> tuple[tuple[()], Operands]:
        return (), self.operands

    @classmethod
    def tree_unflatten(cls, operands: Operands, children: Any) -> Wanted:
        return cls(operands)


@functools.cache
def find_plan(net: str, flags: int, schedule: str | None, effort: str, steps: int, batch: int) -> tuple[str, int]:
    """The plan string of calls of these sizes, and the bytes of its reserve."""
    library, text, plan = native(), net.encode(), ctypes.c_void_p()
    pinned = None if schedule is None else schedule.encode()
    check(bindings().rcvb_jax_plan(text, len(text), flags, pinned, EFFORTS[effort], steps, batch, ctypes.byref(plan)))
    try:
        size = library.rcv_plan_reserve_bytes
        size.argtypes, size.restype = [ctypes.c_void_p], ctypes.c_size_t
        return library.rcv_plan_string(plan).decode(), size(plan)
    finally:
        library.rcv_plan_free(plan)


def _sizes(call: Call, x: Array) -> tuple[int, int]:
    """Steps and batch."""
    return (x.shape[1], x.shape[0]) if call.flags & BATCH_FIRST else (x.shape[0], x.shape[1])


def _attributes(call: Call, x: Array, training: bool) -> tuple[dict[str, Any], int]:
    flags = call.flags | (TRAINING if training else 0)
    schedule, reserve = find_plan(call.net, flags, call.schedule, call.effort, *_sizes(call, x))
    return {"net": call.net, "plan": schedule, "flags": np.int64(flags)}, reserve


def _state_shapes(call: Call, batch: int) -> list[tuple[int, ...]]:
    return [(-s[0] * batch,) if len(s) == 1 else (s[0], batch, s[2]) for s in call.states]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _forward(call: Call, training: bool, operands: Operands) -> list[Array]:
    """y, the final states, and in training the reserve."""
    x = operands.x
    attributes, reserve = _attributes(call, x, training)
    shapes = [(*x.shape[:2], call.output), *_state_shapes(call, _sizes(call, x)[1])]
    results = [_ffi.shape_of(shape, x.dtype) for shape in shapes]
    if training:
        results.append(_ffi.shape_of((reserve,), np.uint8))
    return _ffi.call("forward", results, operands.arrays(), **attributes, given=operands.given())


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _backward(
    call: Call, wanted: Wanted, operands: Operands, gradients: tuple[Any, ...], reserve: Array
) -> list[Array]:
    """The gradients that are wanted, in the order of the operands. gradients: of y and of the final states, or None."""
    attributes, _ = _attributes(call, operands.x, True)
    wants = wanted.operands
    marks = [wants.x, *wants.parameters, *wants.initial, *wants.restart]
    arrays = [operands.x, *operands.parameters, *operands.initial, *operands.restart]
    results = [_ffi.shape_of(a.shape, a.dtype) for a, mark in zip(arrays, marks) if mark]
    arguments = [*operands.arrays(), *(g for g in gradients if g is not None), reserve]
    attributes["given"] = operands.given() + _ffi.given(*gradients)
    attributes["wanted"] = "".join("1" if mark else "0" for mark in marks)
    return _ffi.call("backward", results, arguments, **attributes)


def _refuse_second_derivative(*arguments: Any) -> Any:
    raise NotImplementedError(_ffi.SECOND_DERIVATIVE.format("network"))


_forward.defjvp(_refuse_second_derivative)
_backward.defjvp(_refuse_second_derivative)


# ---- jax.vmap of calls for inference ----


def _merge(array: Any, is_mapped: Any, size: int, axis: int) -> Any:
    """A mapped array as one with more sequences: its first axis becomes a part of the axis of the batch."""
    if array is None:
        return None
    mapped = array if is_mapped else jnp.broadcast_to(array, (size, *array.shape))
    moved = jnp.moveaxis(mapped, 0, axis)
    return moved.reshape(*moved.shape[:axis], -1, *moved.shape[axis + 2 :])


def _divide(array: Array, size: int, axis: int) -> Array:
    """The inverse of _merge."""
    return jnp.moveaxis(array.reshape(*array.shape[:axis], size, -1, *array.shape[axis + 1 :]), axis, 0)


def _run_merged(call: Call, size: int, mapped: Operands, operands: Operands) -> list[Array]:
    axis = 0 if call.flags & BATCH_FIRST else 1

    def merge_states(states: tuple[Any, ...], marks: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(_merge(state, mark, size, 1) for state, mark in zip(states, marks))

    y, *final = _forward(
        call,
        False,
        Operands(
            _merge(operands.x, mapped.x, size, axis),
            operands.parameters,
            merge_states(operands.initial, mapped.initial),
            merge_states(operands.restart, mapped.restart),
            _merge(operands.lengths, mapped.lengths, size, 0),
            _merge(operands.resets, mapped.resets, size, axis),
            None,
        ),
    )
    return [_divide(y, size, axis), *(_divide(state, size, 1) for state in final)]


@functools.cache
def _inference(call: Call) -> Any:
    """A call without derivatives. Under jax.vmap, sequences that share parameters are one batch."""
    infer = custom_vmap(functools.partial(_forward, call, False))

    @infer.def_vmap
    def map_call(size: int, mapped: list[Operands], operands: Operands) -> Any:
        marks = mapped[0]
        can_merge = not any(marks.parameters) and all(len(shape) == 3 for shape in call.states)
        if can_merge:
            found = _run_merged(call, size, marks, operands)
        else:
            axes = jax.tree.map(lambda mark: 0 if mark else None, marks)
            found = jax.vmap(functools.partial(_forward, call, False), (axes,))(operands)
        return found, [True] * len(found)

    return infer


# ---- the function and its derivative ----


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def run(call: Call, operands: Operands) -> tuple[Array, list[Array]]:
    """y and the final states."""
    if call.is_random:
        y, *states, _ = _forward(call, True, operands)
    else:
        y, *states = _inference(call)(operands)
    return y, states


def _keep(call: Call, primals: Any) -> Any:
    is_primal = lambda p: hasattr(p, "perturbed")  # noqa: E731
    operands = jax.tree.map(lambda p: p.value, primals, is_leaf=is_primal)
    wanted = Wanted(jax.tree.map(lambda p: bool(p.perturbed), primals, is_leaf=is_primal))
    y, *states, reserve = _forward(call, True, operands)
    return (y, states), (operands, reserve, wanted)


def _derive(call: Call, residuals: Any, cotangents: Any) -> tuple[Operands]:
    operands, reserve, wanted = residuals
    dy, dstates = cotangents
    gradients = tuple(None if isinstance(g, SymbolicZero) else g for g in (dy, *dstates))
    found = iter(_backward(call, wanted, operands, gradients, reserve))
    wants = wanted.operands

    def take(marks: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(next(found) if mark else None for mark in marks)

    (dx,) = take((wants.x,))
    return (Operands(dx, take(wants.parameters), take(wants.initial), take(wants.restart), None, None, None),)


run.defvjp(_keep, _derive, symbolic_zeros=True)

__all__ = [
    "BATCH_FIRST",
    "CUDA",
    "DATA_SHIFT",
    "EFFORTS",
    "LENGTHS",
    "PARAMETERS_SHIFT",
    "RESETS",
    "TRAINING",
    "Call",
    "Operands",
    "find_plan",
    "run",
]
