"""Examples in memory: sequences with their targets, arrays and tables, which are written into temporary files."""

from __future__ import annotations

import csv
import importlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from recurve._arrays import Array, read

# ---- what data is


def is_examples(data: Any) -> bool:
    """Whether data is a pair of inputs and targets."""
    return isinstance(data, tuple) and len(data) == 2


def is_table(data: Any) -> bool:
    """Whether data is a table with names of columns, such as a DataFrame of pandas or polars or a Table of pyarrow."""
    return not isinstance(data, type) and any(hasattr(data, name) for name in _WRITERS)


def is_array(data: Any) -> bool:
    """Whether data is one array of numbers, of which a forecast is made."""
    return hasattr(data, "__array__") and not is_table(data)


def is_in_memory(data: Any) -> bool:
    return is_examples(data) or is_table(data) or is_array(data)


# ---- kinds


def _length(value: Any) -> int | None:
    """Of a list or an array; None for a text and for what has no length."""
    try:
        return None if isinstance(value, (str, bytes)) else len(value)
    except TypeError:
        return None


def _has_steps(sequence: Any, target: Any) -> bool:
    """Whether a target is a list with an element for each time step of its sequence."""
    return _length(target) is not None and _length(target) == _length(sequence)


def _is_class(target: Any) -> bool:
    """Whether the elements of a target are whole numbers or texts."""
    array = np.asarray(target)
    if array.dtype.kind == "O":
        return all(element is None or isinstance(element, (str, int)) for element in array.flat)
    return array.dtype.kind in "biuU"


def kind_of_examples(inputs: Any, targets: Any) -> str:
    """What is predicted. A target as long as its sequence has an element for each time step, as in files; whole numbers
    and texts are classes, other numbers values."""
    if not hasattr(inputs, "__len__") or not hasattr(targets, "__len__") or len(targets) == 0:
        return "classes"  # what is wrong is said when they are written
    try:
        has_steps = all(_has_steps(sequence, target) for sequence, target in zip(inputs, targets))
        are_classes = all(_is_class(target) and (not has_steps or np.ndim(target) == 1) for target in targets)
    except ValueError:  # lists of different lengths inside of a target
        return "values"
    return ("step-" if has_steps else "") + ("classes" if are_classes else "values")


# ---- sequences and their targets, as lines of JSON


def _with_null(array: Array) -> Any:
    """The array as lists, with None for NaN."""
    if array.dtype.kind == "f" and np.isnan(array).any():
        missing, array = np.isnan(array), array.astype(object)
        array[missing] = None
    return array.tolist()


def _wrong_target(target: Any, kind: str, index: int) -> TypeError:
    wanted = "a whole number or a text" if kind.endswith("classes") else "a number or a list of numbers"
    if kind.startswith("step-"):
        wanted = f"for each time step {wanted}"
    return TypeError(f"target {index} is {target!r:.80}; it must be {wanted}")


def _one_class(target: Any, may_miss: bool) -> Any:
    """A class as JSON has it; None where it is missing. TypeError: it is no class."""
    if isinstance(target, str) or (target is None and may_miss):
        return target
    number = np.asarray(target)
    if number.ndim != 0 or number.dtype.kind not in "biuf":
        raise TypeError
    if number.dtype.kind != "f":
        return int(number)
    if np.isnan(number) and may_miss:
        return None
    if not np.isfinite(number):
        raise ValueError
    if number != np.floor(number):
        raise TypeError
    return int(number)


def _numbers(value: Any, may_miss: bool) -> Array:
    """An array of numbers, with NaN for None. TypeError: it is none."""
    try:
        array = np.asarray(value)
        if array.dtype.kind == "O" and may_miss:
            array = array.astype(float)
    except ValueError:
        raise TypeError from None
    if array.dtype.kind not in "biuf":
        raise TypeError
    return array


def _values(target: Any, most_dims: int, may_miss: bool) -> Any:
    array = _numbers(target, may_miss)
    if array.ndim > most_dims:
        raise TypeError
    if not (np.isfinite(array) | (may_miss & np.isnan(array))).all():
        raise ValueError
    return _with_null(array.astype(float))


def _target(sequence: Any, target: Any, kind: str, may_miss: bool, index: int) -> Any:
    has_steps = kind.startswith("step-")
    if has_steps and not _has_steps(sequence, target):
        if _length(target) is None:
            raise _wrong_target(target, kind, index)
        raise ValueError(f"target {index} has {len(target)} time steps, and its sequence has {len(sequence)}")
    try:
        if kind.endswith("values"):
            return _values(target, 2 if has_steps else 1, may_miss or has_steps)
        return [_one_class(step, True) for step in target] if has_steps else _one_class(target, may_miss)
    except TypeError:
        raise _wrong_target(target, kind, index) from None
    except ValueError:
        hint = "" if may_miss else "; with missing= sequences whose target is NaN are left out"
        raise ValueError(f"target {index} is not finite{hint}") from None


def _input(sequence: Any, may_miss: bool, index: int) -> dict[str, Any]:
    if isinstance(sequence, str):
        return {"text": sequence}
    array = read(sequence, f"input {index}")
    try:
        array = _numbers(array, may_miss)
    except TypeError:
        raise TypeError(f"input {index} is an array of {array.dtype}; it must be a text or numbers") from None
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(f"input {index} has shape {list(array.shape)}; it must be [steps, features] or [steps]")
    array = array.astype(float)
    if not (np.isfinite(array) | (may_miss & np.isnan(array))).all():
        hint = "; missing= says what becomes of NaN" if np.isnan(array).any() and not may_miss else ""
        raise ValueError(f"input {index} has a number that is not finite{hint}")
    return {"x": _with_null(array)}


def _lines(inputs: Any, targets: Any, kind: str, may_miss: bool) -> Iterator[str]:
    for name, value in {"inputs": inputs, "targets": targets}.items():
        if isinstance(value, (str, bytes, os.PathLike)) or not hasattr(value, "__len__"):
            raise TypeError(f"{name} must be a list or an array, not {type(value).__name__}")
    if len(inputs) != len(targets):
        raise ValueError(f"there are {len(inputs)} inputs and {len(targets)} targets")
    for i, (sequence, target) in enumerate(zip(inputs, targets)):
        line = _input(sequence, may_miss, i)
        yield json.dumps({**line, "y": _target(sequence, target, kind, may_miss, i)}) + "\n"


def _arrays_of(inputs: Any, targets: Any, kind: str, may_miss: bool) -> tuple[Array, Array] | None:
    """Sequences of one length as arrays, which are written and read much faster than lines of JSON. None where they are
    none, or where something is wrong with them, which is said when they are written as lines."""
    if not hasattr(inputs, "__array__") or not hasattr(targets, "__array__"):
        return None
    x, y = np.asarray(inputs), np.asarray(targets)
    has_steps, has_classes = kind.startswith("step-"), kind.endswith("classes")
    dims = 1 + has_steps
    if (
        x.dtype.kind not in "biuf"
        or x.ndim not in (2, 3)
        or x.size == 0
        or y.ndim not in (dims, dims + 1 - has_classes)
    ):
        return None
    if y.shape[:dims] != x.shape[:dims] or y.dtype.kind not in ("biuU" if has_classes else "biuf"):
        return None
    with np.errstate(over="ignore"):
        x = x.astype(np.float32)
        y = y.astype(np.float32) if not has_classes else y if y.dtype.kind == "U" else y.astype(np.int64)
    is_right = (np.isfinite(x) | (may_miss & np.isnan(x))).all()
    if not has_classes:
        is_right &= (np.isfinite(y) | ((may_miss or has_steps) & np.isnan(y))).all()
    return (x, y) if is_right else None


def write_examples(stem: str, data: tuple[Any, Any], kind: str, may_miss: bool) -> str:
    """Writes inputs and targets as arrays or as lines of JSON, and returns the path. `may_miss`: NaN is a missing
    number."""
    arrays = _arrays_of(*data, kind, may_miss)
    if arrays is not None:
        np.savez(f"{stem}.npz", x=arrays[0], y=arrays[1])
        return f"{stem}.npz"
    with open(f"{stem}.jsonl", "w", encoding="ascii") as file:
        file.writelines(_lines(*data, kind, may_miss))
    return f"{stem}.jsonl"


# ---- tables


def _write_pandas(stem: str, table: Any, names: set[str]) -> str:
    """The index becomes columns where settings name it."""
    index = getattr(getattr(table, "index", None), "names", [])
    table.to_csv(f"{stem}.csv", index=any(name in names for name in index if name is not None))
    return f"{stem}.csv"


def _write_polars(stem: str, table: Any, names: set[str]) -> str:
    table.write_csv(f"{stem}.csv")
    return f"{stem}.csv"


def _write_pyarrow(stem: str, table: Any, names: set[str]) -> str:
    """As lines of JSON where a column has lists, which a CSV file has not."""
    columns = list(table.schema.names)
    has_lists = any(hasattr(column.type, "value_field") for column in table.schema)
    path = f"{stem}.jsonl" if has_lists else f"{stem}.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        write = csv.writer(file).writerow
        if not has_lists:
            write(columns)
        for batch in table.to_batches():
            found = batch.to_pydict()
            for row in zip(*(found[name] for name in columns)):
                if has_lists:
                    file.write(json.dumps(dict(zip(columns, row))) + "\n")
                else:
                    write(row)
    return path


#: a method that tables of a library have, and the function that writes them
_WRITERS: dict[str, Callable[[str, Any, set[str]], str]] = {
    "to_csv": _write_pandas,
    "write_csv": _write_polars,
    "to_batches": _write_pyarrow,
}


def write_table(stem: str, table: Any, names: set[str]) -> str:
    """Writes a table, and returns the path. `names`: columns that settings name."""
    write = next(write for method, write in _WRITERS.items() if hasattr(table, method))
    return write(stem, table, names)


COLUMNAR = (".parquet", ".arrow", ".feather")  # files that pyarrow reads


def read_columnar(path: str) -> Any:
    """A Parquet or Arrow file as a Table of pyarrow, which is imported now."""
    module = "pyarrow.parquet" if path.lower().endswith(".parquet") else "pyarrow.feather"
    try:
        read_table = importlib.import_module(module).read_table
    except ImportError as error:
        raise ValueError(f"{path} is read by pyarrow, which is not installed: pip install pyarrow") from error
    return read_table(path)


# ---- all


def write_data(folder: str, name: str, data: Any, kind: str, may_miss: bool, names: set[str]) -> str:
    """Writes data of memory into a file of the folder, and returns its path."""
    path = os.path.join(folder, name)
    if is_examples(data):
        return write_examples(path, data, kind, may_miss)
    if is_table(data):
        return write_table(path, data, names)
    array = np.asarray(data)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} is an array of {array.dtype}; it must be of numbers")
    if array.ndim not in (1, 2, 3) or array.size == 0:
        raise ValueError(
            f"{name} has shape {list(array.shape)}; it must be a series [steps] or [steps, features], or several "
            "[sequences, steps, features]"
        )
    np.save(f"{path}.npy", array.astype(np.float32))
    return f"{path}.npy"
