"""Cells: the equations of one time step."""

from __future__ import annotations

import ctypes
import difflib
import html
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recurve._native import api
from recurve._native.loader import Handle, context, encode_path, make, native, text_of


@dataclass(frozen=True)
class Stage:
    """A part of a cell whose values depend on each other over time."""

    kind: str  #: constant, map, scan, diagonal or dense; see docs/CELLS.md
    values: tuple[str, ...]
    states: tuple[str, ...]
    reason: str  #: why it is of this kind


class Equations:
    """A cell: the equations of one time step, checked and differentiated. `recurve.compile` makes it.

    It is immutable. `str(cell)` gives the equations in canonical form.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._description: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name after `cell`."""
        return str(native().rcv_cell_name(self._handle).decode())

    @property
    def source(self) -> str:
        """The text that was compiled."""
        return str(native().rcv_cell_source(self._handle).decode("utf-8", "replace"))

    def describe(self, backward: bool = False) -> str:
        """Equations, parameters with shapes, and what can run in parallel over time, as text.

        With `backward` the adjoint recurrence as well.
        """
        return text_of("rcv_cell_describe", self._handle, api.DESCRIBE_BACKWARD if backward else 0)

    def describe_json(self, backward: bool = False) -> dict[str, Any]:
        """The same as an object of dictionaries, lists, texts and numbers."""
        flags = api.DESCRIBE_JSON | (api.DESCRIBE_BACKWARD if backward else 0)
        description: dict[str, Any] = json.loads(text_of("rcv_cell_describe", self._handle, flags))
        return description

    def _part(self, name: str) -> Any:
        if self._description is None:
            self._description = self.describe_json()
        return self._description[name]

    @property
    def parameters(self) -> dict[str, str]:
        """Stored names of the parameters and their shapes, such as `{"weight_ih": "[4*hidden, input]"}`."""
        return {entry["name"]: entry["shape"] for entry in self._part("parameters")}

    @property
    def states(self) -> dict[str, str]:
        """Names of the states and their sizes, such as `{"h": "hidden"}`."""
        return {entry["name"]: entry["size"] for entry in self._part("states")}

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that the cell declares and their default values."""
        return dict(self._part("sizes"))

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages in topological order."""
        return tuple(
            Stage(entry["class"], tuple(entry["values"]), tuple(entry["states"]), entry["reason"])
            for entry in self._part("stages")
        )

    def __str__(self) -> str:
        return text_of("rcv_cell_print", self._handle)

    def __repr__(self) -> str:
        return f"<recurve.Equations {self.name}: states {', '.join(self.states) or 'none'}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Equations) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return _parse, (self.source, None)


def _parse(text: str, file: str | None) -> Equations:
    encoded = text.encode()
    name = None if file is None else os.fsencode(file)
    handle = make("rcv_cell_parse", context(), encoded, len(encoded), name, free="rcv_cell_free", parents=(context(),))
    return Equations(handle)


def _open(name: bytes) -> Equations:
    return Equations(make("rcv_cell_open", context(), name, free="rcv_cell_free", parents=(context(),)))


def builtin_cells() -> dict[str, str]:
    """Names of the built-in cells, each with a line about it."""
    library = native()
    indices = range(library.rcv_builtin_count())
    return {library.rcv_builtin_name(i).decode(): library.rcv_builtin_summary(i).decode() for i in indices}


def _open_builtin(name: str) -> Equations:
    known = builtin_cells()
    if name in known:
        return _open(name.encode())
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
    raise ValueError(f"there is no built-in cell '{name}'; {hint} A path of a file ends in .cell or contains '/'")


def compile(source: str | os.PathLike[str] | Equations) -> Equations:
    """Reads a cell: equations, a file, or the name of a built-in cell.

    A text with `{` is equations, one that ends in `.cell` or contains `/` a path, as is a `pathlib.Path`. Everything
    else is a name of `builtin_cells()`.

    Raises `CellError`, a SyntaxError that shows the line, where the equations are wrong; ValueError where there is no
    such cell; OSError where the file cannot be read.
    """
    if isinstance(source, Equations):
        return source
    if isinstance(source, os.PathLike):
        path = os.fspath(source)
        return _open(encode_path(path if "/" in path or path.endswith(".cell") else f"./{path}"))
    if not isinstance(source, str):
        raise TypeError(f"a cell is a text, a path or recurve.Equations, not {type(source).__name__}")
    if "{" in source:
        return _parse(source, None)
    return _open(encode_path(source)) if "/" in source or source.endswith(".cell") else _open_builtin(source)


def make_net(cell: Equations, sizes: Mapping[str, int], **options: Any) -> Handle:
    """A network of layers of a cell; `options` are members of rcv_net_options."""
    entries = (api.Size * len(sizes))(*(api.Size(name.encode(), value) for name, value in sizes.items()))
    struct = api.NetOptions(sizes=entries, size_count=len(sizes), **options)
    handle = cell._handle
    return make("rcv_net_new", handle, ctypes.byref(struct), free="rcv_net_free", parents=(handle,))


__all__ = ["Equations", "Stage", "builtin_cells", "compile", "make_net"]
