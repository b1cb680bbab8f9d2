"""NumPy arrays as the library takes them: checked, contiguous, of one type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: a dimension of a wanted shape: its name, and its size or None where any will do
Dimension = tuple[str, "int | None"]


def describe(shape: Sequence[Dimension]) -> str:
    return "[" + ", ".join(name if size is None else f"{name} {size}" for name, size in shape) + "]"


def read(value: Any, name: str) -> Array:
    """`value` as an array of whatever type."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} is not an array: its rows have different lengths") from error
    return array


def convert(value: Any, dtype: npt.DTypeLike, name: str) -> Array:
    """A C-contiguous array of `dtype`. Real numbers are converted; complex numbers and other objects are refused."""
    array = read(value, name)
    wanted = np.dtype(dtype)
    if array.size and not np.can_cast(array.dtype, wanted, "same_kind"):
        raise TypeError(f"{name} is an array of {array.dtype}; it must be of {wanted} or convertible to it")
    return np.ascontiguousarray(array, dtype=wanted).reshape(array.shape)


def check_shape(array: Array, shape: Sequence[Dimension], name: str) -> Array:
    """The array, if its shape is the wanted one."""
    if array.ndim != len(shape) or any(size not in (None, got) for (_, size), got in zip(shape, array.shape)):
        raise ValueError(f"{name} has shape {list(array.shape)}; it must be {describe(shape)}")
    return array


def take(value: Any, dtype: npt.DTypeLike, shape: Sequence[Dimension], name: str) -> Array:
    """`value` as a contiguous array of this type and shape."""
    return check_shape(convert(value, dtype, name), shape, name)


def take_lengths(value: Any, batch: int, steps: int) -> Array:
    """Lengths of sequences as int64 [batch], each in 1..steps."""
    array = read(value, "lengths")
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"lengths is an array of {array.dtype}; it must be of whole numbers")
    check_shape(array, [("batch", batch)], "lengths")
    wrong = np.flatnonzero((array < 1) | (array > steps))
    if wrong.size:
        raise ValueError(f"lengths[{wrong[0]}] is {array[wrong[0]]}; it must be in 1..{steps}")
    return np.ascontiguousarray(array, dtype=np.int64)


def take_resets(value: Any, shape: Sequence[Dimension]) -> Array:
    """A mask of resets as uint8."""
    array = read(value, "resets")
    if array.size and array.dtype.kind not in "biu":
        raise TypeError(f"resets is an array of {array.dtype}; it must be of bool or whole numbers")
    check_shape(array, shape, "resets")
    return np.ascontiguousarray(array != 0).view(np.uint8)


def take_output(value: Any, dtype: npt.DTypeLike, shape: tuple[int, ...], name: str) -> Array:
    """An array of the caller that is written: it is not copied, so it must fit as it is."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} must be a NumPy array, not {type(value).__name__}")
    if (
        value.dtype != np.dtype(dtype)
        or value.shape != shape
        or not value.flags.c_contiguous
        or not value.flags.writeable
    ):
        raise ValueError(
            f"{name} must be a writable, C-contiguous array of {np.dtype(dtype)} of shape {list(shape)}; it is one of "
            f"{value.dtype} of shape {list(value.shape)}"
        )
    return value


def address(array: Array | None) -> int | None:
    """Where the elements of an array begin; NULL for None."""
    return None if array is None else array.__array_interface__["data"][0]
