"""LSTM, GRU and RNN with the interface of torch.nn."""

# mypy: disable-error-code=no-untyped-call

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor, nn

from recurve._native.bindings import describe
from recurve.nn import _operators
from recurve.nn._network import Network
from recurve.nn._plain import make_plain

if TYPE_CHECKING:
    from torch.nn.utils.rnn import PackedSequence

_CELLS = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn_tanh", "RNN_RELU": "rnn_relu"}


class _Recurrent(Network, nn.RNNBase):
    """What the three share. Not derived from torch.nn.LSTM and its like, which torch.compile refuses."""

    zoneout: float
    variational: bool
    _NAME = ""  # in messages

    def __init__(
        self, mode: str, *args: Any, zoneout: float = 0.0, variational: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(mode, *args, **kwargs)
        if isinstance(zoneout, bool) or not 0 <= zoneout < 1:
            raise ValueError("zoneout should be a number in range [0, 1): the probability that an element of a state keeps its value")
        self.zoneout = float(zoneout)
        self.variational = bool(variational)
        self._frozen = 0
        self._describe()

    # ---- the network ----

    def _describe(self) -> None:
        common: dict[str, object] = {
            "input": self.input_size,
            "hidden": self.hidden_size,
            "layers": self.num_layers,
            "bidirectional": self.bidirectional,
            "no_bias": not self.bias,
        }
        cell = _CELLS[self.mode]
        if self.proj_size:
            cell = "lstm_proj"
            common["size.proj"] = self.proj_size
        self._net = describe(cell, **common, zoneout=self.zoneout, expected_zoneout=self.zoneout > 0)
        random = {"dropout": self.dropout if self.num_layers > 1 else 0.0, "zoneout": self.zoneout}
        self._random = any(random.values())
        self._names = tuple(self._flat_weights_names)
        self._address = _operators.shapes(self._net).pointer
        self._training_net = describe(cell, **common, **random, variational=self.variational)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("dropout", "zoneout", "variational") and "_net" in self.__dict__:
            self._describe()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._frozen = 0
        self._describe()

    def flatten_parameters(self) -> None:
        """Does nothing: parameters are read where they lie."""

    def _input_size(self) -> int:
        return self.input_size

    # ---- calls ----

    def _check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)

    def _check_states(self, input: Tensor, states: list[Tensor], batch_sizes: Tensor | None) -> None:
        self.check_hidden_size(states[0], self.get_expected_hidden_size(input, batch_sizes))

    def as_torch(self) -> nn.RNNBase:
        """torch.nn's module with the same parameters, run by PyTorch: for second derivatives, and to compare with."""
        if self.zoneout or self.variational:
            raise NotImplementedError("torch.nn has neither zoneout nor variational dropout: make the module without them")
        return make_plain(self)

    def extra_repr(self) -> str:
        text = super().extra_repr()
        if self.zoneout:
            text += f", zoneout={self.zoneout}"
        return text + (", variational=True" if self.variational else "")


class _OneState(_Recurrent):
    """A network with the state h."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__(*args, **kwargs)

    def _check_dims(self, input: Tensor, hx: Any) -> None:
        if input.dim() not in (2, 3):
            tensor = " tensor" if self._NAME == "RNN" else ""
            raise ValueError(f"{self._NAME}: Expected input to be 2D or 3D, got {input.dim()}D{tensor} instead")
        if hx is not None and hx.dim() != input.dim():
            kind = "batched 3-D" if input.dim() == 3 else "unbatched 2-D"
            raise RuntimeError(f"For {kind} input, hx should also be {input.dim()}-D but got {hx.dim()}-D tensor")

    def forward(
        self,
        input: Any,
        hx: Tensor | None = None,
        *,
        lengths: Any = None,
        resets: Any = None,
        restart: Tensor | None = None,
    ) -> tuple[Any, Tensor]:
        """Runs the network; see torch.nn for input, hx and the results.

        lengths: [batch] steps of each sequence, on the host or the device; past them the output is zero, and the final states are
            those after each sequence's last step.
        resets: bool of the shape of input without its features; where it is true a new episode begins: the state before this step is
            `restart`.
        restart: of the shape of hx; zeros by default.
        """
        if lengths is None and resets is None and restart is None:
            found = self._call_quickly(input, () if hx is None else (hx,))
            if found is not None:
                return found[0], found[1]
        y, final = self._forward(input, hx, lengths, resets, restart)
        return y, final[0]

    if TYPE_CHECKING:

        @overload
        def __call__(
            self,
            input: Tensor,
            hx: Tensor | None = None,
            *,
            lengths: Any = None,
            resets: Any = None,
            restart: Tensor | None = None,
        ) -> tuple[Tensor, Tensor]: ...

        @overload
        def __call__(self, input: PackedSequence, hx: Tensor | None = None) -> tuple[PackedSequence, Tensor]: ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class RNN(_OneState):
    """torch.nn.RNN, and zoneout, variational dropout, lengths and resets.

    zoneout: probability that an element of a state keeps its value, in training; in evaluation it is mixed with that value.
    variational: dropout with one mask for all steps of a sequence.
    """

    _NAME = "RNN"

    if TYPE_CHECKING:

        def __init__(
            self,
            input_size: int,
            hidden_size: int,
            num_layers: int = 1,
            nonlinearity: str = "tanh",
            bias: bool = True,
            batch_first: bool = False,
            dropout: float = 0.0,
            bidirectional: bool = False,
            device: Any = None,
            dtype: torch.dtype | None = None,
            *,
            zoneout: float = 0.0,
            variational: bool = False,
        ) -> None: ...

    else:

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if len(args) > 3:
                nonlinearity = args[3]
                args = args[:3] + args[4:]
            else:
                nonlinearity = kwargs.pop("nonlinearity", "tanh")
            modes = {"tanh": "RNN_TANH", "relu": "RNN_RELU"}
            if nonlinearity not in modes:
                raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
            super().__init__(modes[nonlinearity], *args, **kwargs)
            self.nonlinearity = nonlinearity


class GRU(_OneState):
    """torch.nn.GRU, and zoneout, variational dropout, lengths and resets.

    zoneout: probability that an element of a state keeps its value, in training; in evaluation it is mixed with that value.
    variational: dropout with one mask for all steps of a sequence.
    """

    _NAME = "GRU"

    if TYPE_CHECKING:

        def __init__(
            self,
            input_size: int,
            hidden_size: int,
            num_layers: int = 1,
            bias: bool = True,
            batch_first: bool = False,
            dropout: float = 0.0,
            bidirectional: bool = False,
            device: Any = None,
            dtype: torch.dtype | None = None,
            *,
            zoneout: float = 0.0,
            variational: bool = False,
        ) -> None: ...

    else:

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__("GRU", *args, **kwargs)


class LSTM(_Recurrent):
    """torch.nn.LSTM, and zoneout, variational dropout, lengths and resets.

    zoneout: probability that an element of a state keeps its value, in training; in evaluation it is mixed with that value.
    variational: dropout with one mask for all steps of a sequence.
    """

    _NAME = "LSTM"

    if TYPE_CHECKING:

        def __init__(
            self,
            input_size: int,
            hidden_size: int,
            num_layers: int = 1,
            bias: bool = True,
            batch_first: bool = False,
            dropout: float = 0.0,
            bidirectional: bool = False,
            proj_size: int = 0,
            device: Any = None,
            dtype: torch.dtype | None = None,
            *,
            zoneout: float = 0.0,
            variational: bool = False,
        ) -> None: ...

    else:

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """[layers * directions, batch, hidden_size]."""
        layers, batch, _ = self.get_expected_hidden_size(input, batch_sizes)
        return layers, batch, self.hidden_size

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        self._check_states(input, list(hidden), batch_sizes)

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        return hx if permutation is None else tuple(h.index_select(1, permutation) for h in hx)

    def _list(self, hx: Any) -> list[Tensor]:
        if isinstance(hx, Tensor):
            raise TypeError("the states of an LSTM should be a tuple of two tensors, (h_0, c_0), got one tensor")
        if hx is not None and len(hx) != 2:
            raise RuntimeError("lstm expects two hidden states")
        return [] if hx is None else [hx[0], hx[1]]

    def _give(self, states: list[Tensor]) -> tuple[Tensor, Tensor]:
        return states[0], states[1]

    def _check_dims(self, input: Tensor, hx: Any) -> None:
        if input.dim() not in (2, 3):
            raise ValueError(f"LSTM: Expected input to be 2D or 3D, got {input.dim()}D instead")
        if hx is not None and (hx[0].dim() != input.dim() or hx[1].dim() != input.dim()):
            kind = "batched 3-D" if input.dim() == 3 else "unbatched 2-D"
            raise RuntimeError(
                f"For {kind} input, hx and cx should also be {input.dim()}-D but got ({hx[0].dim()}-D, {hx[1].dim()}-D) tensors"
            )

    def _check_states(self, input: Tensor, states: list[Tensor], batch_sizes: Tensor | None) -> None:
        expected = self.get_expected_hidden_size(input, batch_sizes)
        self.check_hidden_size(states[0], expected, "Expected hidden[0] size {}, got {}")
        expected = self.get_expected_cell_size(input, batch_sizes)
        self.check_hidden_size(states[1], expected, "Expected hidden[1] size {}, got {}")

    def forward(
        self,
        input: Any,
        hx: tuple[Tensor, Tensor] | None = None,
        *,
        lengths: Any = None,
        resets: Any = None,
        restart: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Any, tuple[Tensor, Tensor]]:
        """Runs the network; see torch.nn.LSTM for input, hx and the results.

        lengths: [batch] steps of each sequence, on the host or the device; past them the output is zero, and the final states are
            those after each sequence's last step.
        resets: bool of the shape of input without its features; where it is true a new episode begins: the states before this step
            are `restart`.
        restart: of the shapes of hx; zeros by default.
        """
        if lengths is None and resets is None and restart is None:
            found = self._call_quickly(input, () if hx is None else hx)
            if found is not None:
                return found[0], (found[1], found[2])
        y, final = self._forward(input, hx, lengths, resets, restart)
        return y, (final[0], final[1])

    if TYPE_CHECKING:

        @overload
        def __call__(
            self,
            input: Tensor,
            hx: tuple[Tensor, Tensor] | None = None,
            *,
            lengths: Any = None,
            resets: Any = None,
            restart: tuple[Tensor, Tensor] | None = None,
        ) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...

        @overload
        def __call__(self, input: PackedSequence, hx: tuple[Tensor, Tensor] | None = None) -> tuple[PackedSequence, tuple[Tensor, Tensor]]: ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
