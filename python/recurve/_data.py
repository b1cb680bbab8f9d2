"""Training data: files and folders as the command `recurve train` takes them, and examples in memory."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from recurve._native import api
from recurve._native.loader import Handle, context, encode_path, make

TRAIN, VALID, TEST = range(3)
#: file names of Penn Treebank, WikiText and others, as the command has them
_NAMES = (
    ("ptb.train.txt", "wiki.train.tokens", "train.txt", "train.jsonl", "train"),
    ("ptb.valid.txt", "wiki.valid.tokens", "valid.txt", "valid.jsonl", "valid"),
    ("ptb.test.txt", "wiki.test.tokens", "test.txt", "test.jsonl", "test"),
)


def find_part(folder: str, part: int) -> str | None:
    """The file of a part in a folder; None where there is none."""
    paths = (os.path.join(folder, name) for name in _NAMES[part])
    return next((path for path in paths if os.path.isfile(path)), None)


def find_files(data: str, valid: str, test: str) -> list[str | None]:
    """Paths of training, validation and test data, from the settings of these names."""
    files: list[str | None] = [data, None, None]
    if os.path.isdir(data):
        files = [find_part(data, part) for part in range(3)]
        if files[TRAIN] is None:
            raise ValueError(
                f"{data} is a directory without a training file: it contains none of {', '.join(_NAMES[TRAIN][:-1])} "
                f"and {_NAMES[TRAIN][-1]}"
            )
    for part, given in ((VALID, valid), (TEST, test)):
        if given:
            files[part] = None if given == "none" else given
    return files


def open_data(path: str, parents: Sequence[Handle] = (), **options: Any) -> Handle:
    """A tokenised file; `options` are members of rcv_data_options."""
    struct = api.DataOptions(**options)
    arguments = context(), encode_path(path), ctypes.byref(struct)
    return make("rcv_data_open", *arguments, free="rcv_data_free", parents=(context(), *parents))


# ---- examples in memory


def is_examples(data: Any) -> bool:
    """Whether data is a pair of inputs and targets, not a path."""
    return isinstance(data, tuple) and len(data) == 2


def kind_of_targets(targets: Any) -> str:
    """classes for whole numbers and texts, values for other numbers."""
    try:
        return "values" if np.asarray(targets).dtype.kind == "f" else "classes"
    except ValueError:  # lists of different lengths
        return "values"


def _target(target: Any, kind: str, index: int) -> Any:
    if isinstance(target, str):
        return target
    array = np.asarray(target)
    if array.dtype.kind not in "biuf" or (kind == "classes" and (array.ndim != 0 or array.dtype.kind == "f")):
        wanted = "a whole number or a text" if kind == "classes" else "a number or a list of numbers"
        raise TypeError(f"target {index} is {target!r}; it must be {wanted}")
    if not np.isfinite(array).all():
        raise ValueError(f"target {index} is not finite")
    return array.astype(int if array.dtype.kind == "b" else array.dtype).tolist()


def _input(sequence: Any, index: int) -> dict[str, Any]:
    if isinstance(sequence, str):
        return {"text": sequence}
    array = np.asarray(sequence)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"input {index} is an array of {array.dtype}; it must be a text or numbers")
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(f"input {index} has shape {list(array.shape)}; it must be [steps, features] or [steps]")
    if not np.isfinite(array).all():
        raise ValueError(f"input {index} has a number that is not finite")
    return {"x": array.astype(float).tolist()}


def _lines(inputs: Any, targets: Any, kind: str) -> Iterator[str]:
    for name, value in {"inputs": inputs, "targets": targets}.items():
        if isinstance(value, (str, bytes, os.PathLike)) or not hasattr(value, "__len__"):
            raise TypeError(f"{name} must be a list or an array, not {type(value).__name__}")
    if len(inputs) != len(targets):
        raise ValueError(f"there are {len(inputs)} inputs and {len(targets)} targets")
    for i, (sequence, target) in enumerate(zip(inputs, targets)):
        yield json.dumps({**_input(sequence, i), "y": _target(target, kind, i)}) + "\n"


def write_examples(path: str, data: tuple[Any, Any], kind: str) -> str:
    """Writes inputs and targets as lines of JSON, and returns the path."""
    with open(path, "w", encoding="ascii") as file:
        file.writelines(_lines(*data, kind))
    return path
