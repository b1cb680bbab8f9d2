"""States of a network as arrays by name."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recurve import _arrays
from recurve._arrays import Array
from recurve._native.loader import native


@dataclass(frozen=True)
class State:
    """A state over the layers and directions of a network."""

    name: str
    sizes: tuple[int, ...]  # of each layer and direction in turn
    keys: tuple[str, ...]  # NAME, or NAME.l0, NAME.l0_reverse, ... where the sizes differ

    @functools.cached_property
    def total(self) -> int:
        return sum(self.sizes)

    def shapes(self, batch: int) -> list[tuple[int, ...]]:
        """Of the arrays of the keys."""
        if len(self.keys) == 1:
            return [(len(self.sizes), batch, self.sizes[0])]
        return [(batch, size) for size in self.sizes]

    def split(self, flat: Array, batch: int) -> dict[str, Array]:
        """The state tensor of a call, blocks [batch, size], as arrays by key, without a copy."""
        if len(self.keys) == 1:
            return {self.name: flat.reshape(len(self.sizes), batch, self.sizes[0])}
        parts: dict[str, Array] = {}
        at = 0
        for key, size in zip(self.keys, self.sizes):
            parts[key] = flat[at * batch : (at + size) * batch].reshape(batch, size)
            at += size
        return parts


class States:
    """The states of a network."""

    def __init__(self, net: int, dtype: npt.DTypeLike) -> None:
        library = native()
        options = library.rcv_net_get_options(net).contents
        self.dtype = np.dtype(dtype)
        self.layers: int = max(options.layers, 1)
        self.directions = 2 if options.bidirectional else 1
        self.states = tuple(self._state(net, i) for i in range(library.rcv_net_state_count(net)))
        self.keys = tuple(key for state in self.states for key in state.keys)

    def _state(self, net: int, index: int) -> State:
        library = native()
        name = library.rcv_net_state(net, index).contents.name.decode()
        tracks = [(layer, reverse) for layer in range(self.layers) for reverse in range(self.directions)]
        sizes = tuple(library.rcv_net_state_size(net, index, layer, bool(reverse)) for layer, reverse in tracks)
        if len(set(sizes)) == 1:
            return State(name, sizes, (name,))
        return State(name, sizes, tuple(f"{name}.l{layer}{'_reverse' if reverse else ''}" for layer, reverse in tracks))

    def describe(self) -> str:
        return ", ".join(self.keys) or "none"

    def take(self, given: Mapping[str, object] | None, batch: int, name: str) -> list[Array | None]:
        """One flat array per state, or None where nothing is given. Missing keys of a state are zero."""
        if given is None:
            return [None] * len(self.states)
        if not isinstance(given, Mapping):
            what = type(given).__name__
            raise TypeError(f"{name} must map names of states ({self.describe()}) to arrays, and is a {what}")
        unknown = [key for key in given if key not in self.keys]
        if unknown:
            raise ValueError(
                f"{name} has '{unknown[0]}', which is no state of the cell: its states are {self.describe()}"
            )
        return [self._take_state(state, given, batch, name) for state in self.states]

    def _take_state(self, state: State, given: Mapping[str, object], batch: int, name: str) -> Array | None:
        if not any(key in given for key in state.keys):
            return None
        parts = []
        for key, shape in zip(state.keys, state.shapes(batch)):
            names = ["layers", "batch", "size"][-len(shape) :]
            value = given.get(key)
            parts.append(
                np.zeros(shape, self.dtype)
                if value is None
                else _arrays.take(value, self.dtype, list(zip(names, shape)), f"{name}['{key}']")
            )
        return parts[0].reshape(-1) if len(parts) == 1 else np.concatenate([part.reshape(-1) for part in parts])

    def empty(self, batch: int) -> list[Array]:
        """Flat arrays for all states."""
        return [np.empty(state.total * batch, self.dtype) for state in self.states]

    def split(self, flat: list[Array], batch: int) -> dict[str, Array]:
        """Flat arrays as arrays by key."""
        parts: dict[str, Array] = {}
        for state, array in zip(self.states, flat):
            parts.update(state.split(array, batch))
        return parts

    def rows_to_arrays(self, rows: Array) -> dict[str, Array]:
        """States of a stream, [batch, elements of a row], as arrays by key."""
        batch, at = rows.shape[0], 0
        flat = []
        for state in self.states:
            blocks = []
            for size in state.sizes:
                blocks.append(np.ascontiguousarray(rows[:, at : at + size]).reshape(-1))
                at += size
            flat.append(np.concatenate(blocks))
        return self.split(flat, batch)

    def arrays_to_rows(self, given: Mapping[str, object], rows: Array) -> None:
        """Writes the states that are given into the states of a stream, [batch, elements of a row]."""
        batch, at = rows.shape[0], 0
        for state, array in zip(self.states, self.take(given, batch, "states")):
            for i, size in enumerate(state.sizes):
                if array is not None:
                    begin = batch * sum(state.sizes[:i])
                    rows[:, at : at + size] = array[begin : begin + batch * size].reshape(batch, size)
                at += size
