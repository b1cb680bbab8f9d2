"""What the calls of XLA share: the registration of the functions in C (bindings/jax/handlers.h), types, and checks of arrays."""

# mypy: disable-error-code=no-untyped-call

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from recurve._native import api
from recurve._native.bindings import bindings

_TARGETS = ("forward", "backward", "scan", "scan_backward")
_PLATFORMS = {"cpu": "cpu", "CUDA": "cuda"}  # of XLA, and as the functions are named

FLOATS = ("float32", "float64", "float16", "bfloat16")
SECOND_DERIVATIVE = "recurve has no second derivatives: the gradient of a gradient of a {} was asked for"


def _register() -> None:
    ffi: Any = getattr(jax, "ffi", None)
    if ffi is None:
        raise ImportError(f"recurve.jax needs jax 0.5 or later, and this is jax {jax.__version__}")
    library = bindings()
    for target in _TARGETS:
        for platform, suffix in _PLATFORMS.items():
            function = getattr(library, f"rcvb_jax_{target}_{suffix}")
            ffi.register_ffi_target(f"recurve_{target}", ffi.pycapsule(function), platform=platform)
    library.rcvb_jax_plan.argtypes = [
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_int64,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.POINTER(ctypes.c_void_p),
    ]


_register()


def shape_of(shape: Sequence[int], dtype: Any) -> Any:
    """What is known of a result before the call."""
    make: Any = jax.ShapeDtypeStruct
    return make(tuple(shape), dtype)


def call(target: str, results: Sequence[Any], arguments: Sequence[Array], **attributes: Any) -> list[Array]:
    """One call of a function in C. Under jax.vmap it is made once for each element."""
    function = jax.ffi.ffi_call(f"recurve_{target}", tuple(results), vmap_method="sequential")
    return list(function(*arguments, **attributes))


def given(*arrays: Any) -> str:
    """A '1' for each array that is there."""
    return "".join("0" if array is None else "1" for array in arrays)


def float_type(dtype: Any) -> int:
    """The library's number of a type of arrays."""
    return api.DTYPES[jnp.dtype(dtype).name]


def is_host_array(value: Any) -> bool:
    """Are its values known to Python, without waiting for a device?"""
    return not isinstance(value, jax.Array)


def platform_of(arrays: Sequence[Any], wanted: str | None) -> str:
    """Where a call with these arrays runs: "cpu" or "cuda".

    That is the device to which one of them is committed, otherwise JAX's default device, wherever the others are. Where it is traced, the
    default device, too.
    """
    if wanted is not None:
        return wanted
    is_traced = any(isinstance(array, jax.core.Tracer) for array in arrays)
    committed = [] if is_traced else [array for array in arrays if getattr(array, "committed", False)]
    if committed:
        name = next(iter(committed[0].devices())).platform
    else:
        default: Any = getattr(jax.config, "jax_default_device", None)
        name = jax.default_backend() if default is None else getattr(default, "platform", default)
    found = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda"}.get(name)
    if found is None:
        raise NotImplementedError(f"recurve runs on the CPU and on CUDA devices, not on '{name}'")
    return found


def check_shape(array: Array, shape: Sequence[int], name: str) -> Array:
    if tuple(array.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {list(array.shape)}; it must be {list(shape)}")
    return array


def take_lengths(value: Any, batch: int, steps: int) -> Array:
    """Lengths as the functions in C take them: int32 [batch, 2], the halves of 64 bits. Those that Python knows are checked here."""
    lengths = jnp.asarray(value)
    if not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise TypeError(f"lengths is an array of {lengths.dtype}; it must be of whole numbers")
    check_shape(lengths, (batch,), "lengths")
    if is_host_array(value):
        known = np.asarray(value)
        wrong = np.flatnonzero((known < 1) | (known > steps))
        if wrong.size:
            raise ValueError(f"lengths[{wrong[0]}] is {known[wrong[0]]}; it must be in 1..{steps}")
    low = lengths.astype(jnp.int32)
    return jnp.stack([low, low >> 31], axis=-1)


def take_resets(value: Any, shape: Sequence[int]) -> Array:
    resets = jnp.asarray(value)
    if resets.dtype != jnp.bool_:
        raise TypeError(f"resets is an array of {resets.dtype}; it must be of bool")
    return check_shape(resets, shape, "resets")
