"""A user's own equations as a module."""

# mypy: disable-error-code=no-untyped-call

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor, nn

from recurve import compile as compile_cell
from recurve._native.bindings import describe
from recurve.nn import _operators
from recurve.nn._network import Network
from recurve.nn._reference import Reference

if TYPE_CHECKING:
    from torch.nn.utils.rnn import PackedSequence


class Cell(Network):
    """A network of one's own cell.

    Parameters have the names that `recurve cell` prints, such as weight_ih_l0, and the values that the equations declare, or uniform ones in
    +-1/sqrt(hidden). A dot in a name becomes an underscore.

    cell: the equations, the path of a .cell file, or the name of a built-in cell.
    input: features of the input.
    hidden: features of a state, unless the cell declares another size.
    layers: how many of them, each on the output of the one before.
    bias: False leaves out every vector stored as bias_*.
    dropout: probability between layers, in training; variational: with one mask for all steps of a sequence.
    zoneout: probability that an element of a state keeps its value, in training.
    rank: each larger matrix is a product of two matrices of this rank.
    sizes: other values of the sizes that the cell declares.

    >>> cell = recurve.nn.Cell("cell leaky(x) { state h  h' = 0.9 * h + 0.1 * tanh(W x + U h + b)  return h' }", 3, 8)
    >>> y, h = cell(torch.randn(5, 2, 3))
    """

    def __init__(
        self,
        cell: str | os.PathLike[str],
        input: int,
        hidden: int,
        layers: int = 1,
        *,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        zoneout: float = 0.0,
        variational: bool = False,
        rank: int = 0,
        sizes: dict[str, int] | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        compiled = compile_cell(cell)
        self.name = compiled.name
        self.source = compiled.source
        self.input, self.hidden, self.layers = input, hidden, layers
        self.bias, self.batch_first, self.bidirectional = bias, batch_first, bidirectional
        self.dropout, self.zoneout, self.variational, self.rank = float(dropout), float(zoneout), bool(variational), rank
        self.sizes = dict(sizes or {})
        self._frozen = 0
        self._describe()
        known = _operators.shapes(self._net)
        self._names = tuple(name.replace(".", "_") for name, _, _ in known.parameters)
        for name, (_, shape, _) in zip(self._names, known.parameters):
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def _describe(self) -> None:
        common: dict[str, object] = {
            "input": self.input,
            "hidden": self.hidden,
            "layers": self.layers,
            "bidirectional": self.bidirectional,
            "no_bias": not self.bias,
            "rank": self.rank,
        }
        for name, value in self.sizes.items():
            common[f"size.{name}"] = value
        random = {"dropout": self.dropout, "zoneout": self.zoneout}
        self._random = self.zoneout > 0 or (self.dropout > 0 and self.layers > 1)
        self._net = describe(self.source, **common, zoneout=self.zoneout, expected_zoneout=self.zoneout > 0)
        self._training_net = describe(self.source, **common, **random, variational=self.variational)
        known = _operators.shapes(self._training_net)  # a wrong option is refused here
        self._address = _operators.shapes(self._net).pointer
        self.state_names: list[str] = [name for name, _, _ in known.states]
        self.output = known.output

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("dropout", "zoneout", "variational") and "_net" in self.__dict__:
            self._describe()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_frozen": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._describe()

    def _json(self) -> dict[str, Any]:
        found: dict[str, Any] = compile_cell(self.source).describe_json()
        return found

    def reset_parameters(self) -> None:
        """Initial values: those that the cell declares, otherwise uniform in +-1/sqrt(hidden)."""
        declared = {p["name"]: p["initial"] for p in self._json()["parameters"] if "initial" in p}
        bound = 1 / math.sqrt(self.hidden)
        for name, (own, _, _) in zip(self._names, _operators.shapes(self._net).parameters):
            parameter = getattr(self, name)
            stem = own.rsplit("_l", 1)[0]
            if stem in declared:
                nn.init.constant_(parameter, declared[stem])
            else:
                nn.init.uniform_(parameter, -bound, bound)

    def _input_size(self) -> int:
        return self.input

    def _give(self, states: list[Tensor]) -> Any:
        return states[0] if len(states) == 1 else tuple(states)

    # ---- calls ----

    def _list(self, hx: Any) -> list[Tensor]:
        if hx is None:
            return []
        states = [hx] if isinstance(hx, Tensor) else list(hx)
        if len(states) != len(self.state_names):
            raise RuntimeError(f"{self.name} has the states {', '.join(self.state_names)}, but hx has {len(states)} tensors")
        return states

    def _check_dims(self, input: Tensor, hx: Any) -> None:
        if input.dim() not in (2, 3):
            raise ValueError(f"{self.name}: Expected input to be 2D or 3D, got {input.dim()}D instead")

    def _check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        if input.shape[-1] != self.input:
            raise RuntimeError(f"input.size(-1) must be equal to input. Expected {self.input}, got {input.shape[-1]}")
        weight = getattr(self, self._names[0]) if self._names else input
        if input.dtype != weight.dtype and not torch._C._is_any_autocast_enabled():
            raise ValueError(f"input must have the type {weight.dtype}, got type {input.dtype}")

    def _check_states(self, input: Tensor, states: list[Tensor], batch_sizes: Tensor | None) -> None:
        batch = int(batch_sizes[0]) if batch_sizes is not None else input.shape[0 if self.batch_first else 1]
        known = _operators.shapes(self._net)
        for i, (name, state) in enumerate(zip(self.state_names, states)):
            expected = known.state_shape(i, batch)
            if tuple(state.shape) != expected:
                raise RuntimeError(f"Expected state {name} of size {expected}, got {list(state.shape)}")

    def forward(
        self, input: Any, hx: Any = None, *, lengths: Any = None, resets: Any = None, restart: Any = None
    ) -> tuple[Any, Any]:
        """Runs the network: the output, and the final states.

        input: [steps, batch, input], with batch_first [batch, steps, input]; without a batch [steps, input]; or a PackedSequence.
        hx: the states before the first step, zeros by default: a tensor [layers * directions, batch, size], or a tuple of one for each of
            `state_names` where there are several. A state whose size differs between layers is flat.
        lengths, resets, restart: as for recurve.nn.LSTM.
        """
        if lengths is None and resets is None and restart is None:
            found = self._call_quickly(input, self._list(hx))
            if found is not None:
                return found[0], self._give(list(found[1:]))
        y, final = self._forward(input, hx, lengths, resets, restart)
        return y, self._give(final)

    if TYPE_CHECKING:

        @overload
        def __call__(
            self, input: Tensor, hx: Any = None, *, lengths: Any = None, resets: Any = None, restart: Any = None
        ) -> tuple[Tensor, Any]: ...

        @overload
        def __call__(self, input: PackedSequence, hx: Any = None) -> tuple[PackedSequence, Any]: ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def as_torch(self) -> nn.Module:
        """A module of PyTorch's own operations, step by step, with the same parameters: for second derivatives, and to compare with."""
        if self.rank:
            raise NotImplementedError("a network of low rank has no module of PyTorch's own operations: make it with rank 0")
        stored = {own: name for name, (own, _, _) in zip(self._names, _operators.shapes(self._net).parameters)}
        description = self._json()
        sizes = {"input": self.input, "hidden": self.hidden, "1": 1, **description["sizes"], **self.sizes}
        made = Reference(
            description,
            {name: getattr(self, name) for name in self._names},
            stored,
            sizes,
            self.layers,
            self.bidirectional,
            self.batch_first,
            self.dropout,
            self.variational,
            self.zoneout,
        )
        return made.train(self.training)

    def extra_repr(self) -> str:
        words = [f"{self.name}, {self.input}, {self.hidden}"]
        defaults: dict[str, object] = {"layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        defaults |= {"zoneout": 0.0, "variational": False, "rank": 0, "sizes": {}}
        words += [f"{name}={getattr(self, name)!r}" for name, value in defaults.items() if getattr(self, name) != value]
        return ", ".join(words)
