"""Networks and trained models step by step."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np

from recurve import _arrays
from recurve._arrays import Array, Dimension
from recurve._native.loader import Handle, native
from recurve._states import States

#: name, size and type of the last axis; no name: there is none
Axis = tuple[str, int, "np.dtype[Any]"]


class Stream:
    """A batch of sequences whose time steps arrive call by call, with the states of each row.

    States begin at zero. T calls of one step give the bits of one call of T steps, and rows do not affect each other.
    `Model.stream` and `Predictor.stream` make it. It may be used as a context manager, which frees it at the end.
    """

    def __init__(self, handle: Handle, states: States, batch: int, most: int, frame: Axis, output: Axis) -> None:
        self._handle: Handle | None = handle
        self._states = states
        self._frame, self._output = frame, output
        self._lock = threading.Lock()
        self.batch = batch  #: rows
        self.most = most  #: steps of a call, at most
        self._elements: int = native().rcv_stream_state_elements(handle)

    def _open(self) -> Handle:
        if self._handle is None:
            raise ValueError("the stream is closed")
        return self._handle

    def step(self, x: Any, out: Array | None = None) -> Array:
        """Reads one frame, or up to `most`, and returns the outputs.

        x is [batch, input], or [steps, batch, input] for several frames; the result is alike. Where a model reads
        tokens, x is [batch] or [steps, batch]. `out` is an array for the result: nothing is allocated then.
        """
        name, size, dtype = self._frame
        last: list[Dimension] = [(name, size)] if name else []
        frames = _arrays.convert(x, dtype, "x")
        is_one = frames.ndim == 1 + len(last)
        _arrays.check_shape(
            frames, [("batch", self.batch), *last] if is_one else [("steps", None), ("batch", self.batch), *last], "x"
        )
        steps = 1 if is_one else frames.shape[0]
        shape = (self.batch, self._output[1]) if is_one else (steps, self.batch, self._output[1])
        y = np.empty(shape, self._output[2]) if out is None else _arrays.take_output(out, self._output[2], shape, "out")
        with self._lock:
            native().rcv_stream_step(self._open(), frames.ctypes.data, steps, y.ctypes.data)
        return y

    def reset(self, rows: Any = None) -> None:
        """Sets states to zero: of the rows where `rows`, [batch] of bool, is true; without it of all rows."""
        mask = None if rows is None else _arrays.take_resets(rows, [("batch", self.batch)])
        with self._lock:
            native().rcv_stream_reset(self._open(), _arrays.address(mask))

    def _read_rows(self) -> Array:
        rows = np.empty((self.batch, self._elements), self._states.dtype)
        native().rcv_stream_get_states(self._open(), -1, rows.ctypes.data)
        return rows

    def get_states(self) -> dict[str, Array]:
        """The states of all rows, in the form of `Model.run`."""
        with self._lock:
            return self._states.rows_to_arrays(self._read_rows())

    def set_states(self, states: Mapping[str, Any]) -> None:
        """Sets the states that are given, in the form of `Model.run`, of all rows."""
        with self._lock:
            rows = self._read_rows()
            self._states.arrays_to_rows(states, rows)
            native().rcv_stream_set_states(self._open(), -1, rows.ctypes.data)

    def reload(self) -> None:
        """Uses the parameters that the model has now. States stay."""
        with self._lock:
            native().rcv_stream_reload(self._open())

    @property
    def schedule(self) -> str:
        """The plan string."""
        plan = ctypes.c_void_p(native().rcv_stream_plan(self._open()))
        return str(native().rcv_plan_string(plan).decode())

    def close(self) -> None:
        """Frees the stream."""
        with self._lock:
            if self._handle is not None:
                self._handle.close()
                self._handle = None

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
