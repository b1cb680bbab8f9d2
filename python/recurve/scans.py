"""Linear recurrences without a cell, parallel over time."""

from __future__ import annotations

import ctypes
import importlib
import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from recurve import _arrays
from recurve._arrays import Array, Dimension
from recurve._native import api
from recurve._native.loader import Handle, context, make, native

_TYPES = {np.dtype(np.float32): api.FLOAT32, np.dtype(np.float64): api.FLOAT64, np.dtype(np.float16): api.FLOAT16}
_MOST_KEPT = 16  # scans of other shapes are freed


@dataclass(frozen=True)
class ScanGradients:
    """Gradients of a loss for the inputs of a scan, in their shapes."""

    a: Array
    b: Array
    initial: Array  #: [batch, channels], or [channels] without a batch


class _Shape(NamedTuple):
    steps: int
    batch: int
    channels: int
    dtype: int
    reverse: bool
    lengths: bool
    resets: bool


@dataclass
class _Call:
    """Arrays of one call, checked, with the shape [steps, batch, channels]."""

    shape: _Shape
    a: Array
    b: Array | None
    initial: Array | None
    lengths: Array | None
    resets: Array | None

    def data(self, h: Array) -> api.ScanData:
        at = _arrays.address
        return api.ScanData(
            a=at(self.a),
            b=at(self.b),
            initial=at(self.initial),
            lengths=at(self.lengths),
            resets=at(self.resets),
            h=at(h),
        )


_kept: OrderedDict[_Shape, Handle] = OrderedDict()  # each is used by one call at a time, which takes it out
_lock = threading.Lock()


def _take_scan(shape: _Shape) -> Handle:
    with _lock:
        if shape in _kept:
            return _kept.pop(shape)
    options = api.ScanOptions(**shape._asdict())
    return make("rcv_scan_new", context(), ctypes.byref(options), free="rcv_scan_free", parents=(context(),))


def _keep_scan(shape: _Shape, scan: Handle) -> None:
    with _lock:
        _kept[shape] = scan
        while len(_kept) > _MOST_KEPT:
            _kept.popitem(last=False)


def _is_torch(*values: Any) -> bool:
    tensor: Any = getattr(sys.modules.get("torch"), "Tensor", ())
    return any(isinstance(value, tensor) for value in values)


def _call(a: Any, b: Any, b_name: str, initial: Any, lengths: Any, resets: Any, reverse: bool) -> _Call:
    left, right = _arrays.read(a, "a"), _arrays.read(b, b_name)
    try:
        dtype = np.result_type(left, right)
    except TypeError:  # of numbers and text
        dtype = np.dtype(object)
    if dtype.kind in "biu":
        dtype = np.result_type(dtype, np.float32)
    if dtype not in _TYPES:
        raise TypeError(f"a and {b_name} are arrays of {left.dtype} and {right.dtype}; they must be of float numbers")
    if left.ndim not in (2, 3):
        raise ValueError(f"a has shape {list(left.shape)}; it must be [steps, channels] or [steps, batch, channels]")
    is_batched = left.ndim == 3
    steps, channels, batch = left.shape[0], left.shape[-1], left.shape[1] if is_batched else 1
    if steps == 0:
        raise ValueError("a has no time steps; there must be at least one")
    rows: list[Dimension] = [("batch", batch)] if is_batched else []
    full: list[Dimension] = [("steps", steps), *rows, ("channels", channels)]
    real = np.float64 if dtype == np.float64 else np.float32
    return _Call(
        _Shape(steps, batch, channels, _TYPES[dtype], reverse, lengths is not None, resets is not None),
        _arrays.convert(left, dtype, "a"),
        _arrays.take(right, dtype, full, b_name),
        None if initial is None else _arrays.take(initial, real, [*rows, ("channels", channels)], "initial"),
        None
        if lengths is None
        else _arrays.take_lengths(np.atleast_1d(_arrays.read(lengths, "lengths")), batch, steps),
        None if resets is None else _arrays.take_resets(resets, [("steps", steps), *rows]),
    )


def scan(
    a: Any,
    b: Any,
    initial: Any = None,
    lengths: Any = None,
    resets: Any = None,
    reverse: bool = False,
) -> Any:
    """Computes h[t] = a[t] * h[t-1] + b[t] for every channel, in parallel over time.

    a, b     [steps, batch, channels] or [steps, channels], of float32, float64 or float16
    initial  h before the first step, [batch, channels] or [channels]; zeros where it is not given
    lengths  [batch], each in 1..steps; h is zero past a sequence's length
    resets   [steps, batch] or [steps] of bool: before this step h is the initial state again
    reverse  h[t] = a[t] * h[t+1] + b[t], from the last step (of each sequence) to the first

    Returns h in the shape of a. Tensors of PyTorch are given to `recurve.nn.scan`, which can be differentiated.
    """
    if _is_torch(a, b):
        nn: Any = importlib.import_module("recurve.nn")
        return nn.scan(a, b, initial, lengths, resets, reverse)
    call = _call(a, b, "b", initial, lengths, resets, reverse)
    h = np.empty_like(call.a)
    if h.size:
        used = _take_scan(call.shape)
        native().rcv_scan_forward(used, ctypes.byref(call.data(h)))
        _keep_scan(call.shape, used)
    return h


def scan_gradients(
    a: Any,
    h: Any,
    dh: Any,
    initial: Any = None,
    lengths: Any = None,
    resets: Any = None,
    reverse: bool = False,
) -> ScanGradients:
    """Gradients of a loss for the inputs of a scan. `h` is what it returned, `dh` the loss's gradient of it."""
    call = _call(a, h, "h", initial, lengths, resets, reverse)
    result, call.b = call.b, None
    assert result is not None
    shape: list[Dimension] = [("size", size) for size in result.shape]
    gradient = _arrays.take(dh, result.dtype, shape, "dh")
    da, db = np.empty_like(call.a), np.empty_like(call.a)
    real = np.float64 if result.dtype == np.float64 else np.float32
    dinitial = np.zeros(result.shape[1:], real)
    if result.size:
        at = _arrays.address
        gradients = api.ScanGradients(dh=at(gradient), da=at(da), db=at(db), dinitial=at(dinitial))
        used = _take_scan(call.shape)
        native().rcv_scan_backward(used, ctypes.byref(call.data(result)), ctypes.byref(gradients))
        _keep_scan(call.shape, used)
    return ScanGradients(da, db, dinitial)
