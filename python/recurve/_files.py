"""Sequences of a file, as a model reads them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np

from recurve._arrays import Array, address
from recurve._native import api
from recurve._native.loader import Handle, encode_path, make, native

_MOST_SEQUENCES = 4096  # of a block
_MOST_NUMBERS = 1 << 22  # of a block, unless one sequence has more
_LONGEST_NAME = 1024  # bytes


def open_file(learner: Handle, path: str, unlabelled: bool) -> Handle:
    """The data of a file, read as that of the model's training. `unlabelled`: targets are not read."""
    options = api.DataOptions(unlabelled=unlabelled)
    arguments = learner, encode_path(path), ctypes.byref(options)
    return make("rcv_learner_open_data", *arguments, free="rcv_data_free", parents=(learner,))


def read_names(data: Handle) -> tuple[str, ...]:
    """Names of the sequences in the file, or their numbers."""
    text = ctypes.create_string_buffer(_LONGEST_NAME)
    names = []
    for i in range(native().rcv_data_sequences(data)):
        native().rcv_data_example_name(data, i, text, len(text))
        names.append(text.value.decode("utf-8", "replace"))
    return tuple(names)


def _read_lengths(data: Handle, begin: int, count: int) -> Array:
    lengths = np.zeros(count, np.int64)
    native().rcv_data_read(data, begin, count, address(lengths), None, None, 0)
    return lengths


def read_blocks(data: Handle, features: int) -> Iterator[tuple[Array, Array]]:
    """Blocks of sequences in the order of the file: numbers [steps, sequences, features] or tokens [steps, sequences],
    and their lengths."""
    total, at = native().rcv_data_sequences(data), 0
    while at < total:
        lengths = _read_lengths(data, at, min(total - at, _MOST_SEQUENCES))
        numbers = np.maximum.accumulate(lengths) * np.arange(1, len(lengths) + 1) * max(features, 1)
        lengths = lengths[: max(int((numbers <= _MOST_NUMBERS).sum()), 1)]
        shape = (int(lengths.max()), len(lengths), *([features] if features else []))
        block = np.zeros(shape, np.float32 if features else np.int64)
        places = (address(block), None) if features else (None, address(block))
        native().rcv_data_read(data, at, len(lengths), address(lengths), *places, block.size)
        yield block, lengths
        at += len(lengths)
