"""torch.nn.LSTM, GRU and RNN of unmodified programs, run by recurve: torch's own operators get other kernels."""

# mypy: disable-error-code=no-untyped-call

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from recurve._native.bindings import describe
from recurve.nn import _operators
from recurve.nn._packed import Packing

_KEYS = ("AutogradCPU", "AutogradCUDA", "CPU", "CUDA")
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_plain = threading.local()  # whether this thread asks for torch's own kernels


class plainly:
    """A context in which torch's own kernels run."""

    def __enter__(self) -> None:
        self.before = getattr(_plain, "on", False)
        _plain.on = True

    def __exit__(self, *error: object) -> None:
        _plain.on = self.before


@functools.cache
def _describe(
    cell: str, input: int, hidden: int, layers: int, bias: bool, bidirectional: bool, dropout: float, proj: int
) -> str:
    options: dict[str, object] = {"input": input, "hidden": hidden, "layers": layers, "no_bias": not bias}
    options["bidirectional"] = bidirectional
    options["dropout"] = dropout if layers > 1 else 0.0
    if proj:
        options["size.proj"] = proj
    return describe("lstm_proj" if proj else cell, **options)


def _fits(x: Tensor, states: list[Tensor], params: list[Tensor]) -> bool:
    """Whether recurve runs such tensors."""
    device, dtype = x.device, params[0].dtype
    if device.type not in ("cpu", "cuda") or dtype not in _DTYPES or x.layout != torch.strided or x.dtype not in _DTYPES:
        return False
    return all(t.device == device for t in (*states, *params)) and all(p.dtype == dtype for p in params)


def _run(
    cell: str,
    x: Tensor,
    packing: Packing | None,
    states: list[Tensor],
    params: list[Tensor],
    options: tuple[bool, int, float, bool, bool],
    batch_first: bool,
) -> list[Tensor]:
    has_biases, layers, dropout, train, bidirectional = options
    dtype = x.dtype
    if torch.is_autocast_enabled(x.device.type) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(x.device.type)
        x, states = x.to(dtype), [s.to(dtype) for s in states]
    hidden = states[-1].shape[2]
    proj = states[0].shape[2] if states[0].shape[2] != hidden else 0
    dropout = dropout if train else 0.0
    net = _describe(cell, x.shape[-1], hidden, layers, has_biases, bidirectional, dropout, proj)
    flags = _operators.products(dtype, x.is_cuda) | _operators.effort() | (_operators.BATCH_FIRST if batch_first else 0)
    seed: list[Tensor] = []
    if dropout and layers > 1:
        flags |= _operators.TRAINING
        seed = [torch.randint(0, 2**63 - 1, (1,), device=x.device)]
    if packing is not None:
        return _operators.run_packed(net, packing, x, list(params), list(states), seed, flags)
    return _operators.run(net, x, list(params), list(states), [], [], [], seed, flags)


def _kernel(cell: str, name: str) -> Callable[..., Any]:
    """The kernel of aten::NAME.input for padded sequences."""
    original = getattr(torch.ops.aten, name).input

    def run(x: Tensor, hx: Any, params: list[Tensor], *options: Any) -> Any:
        states = [hx] if isinstance(hx, Tensor) else list(hx)
        if getattr(_plain, "on", False) or x.dim() != 3 or not _fits(x, states, params):
            return _original(original, x, hx, params, *options)
        return tuple(_run(cell, x, None, states, params, options[:5], options[5]))

    return run


def _packed_kernel(cell: str, name: str) -> Callable[..., Any]:
    """The kernel of aten::NAME.data for packed sequences."""
    original = getattr(torch.ops.aten, name).data

    def run(data: Tensor, batch_sizes: Tensor, hx: Any, params: list[Tensor], *options: Any) -> Any:
        states = [hx] if isinstance(hx, Tensor) else list(hx)
        if getattr(_plain, "on", False) or not _fits(data, states, params):
            return _original(original, data, batch_sizes, hx, params, *options)
        packing = Packing(batch_sizes, data.device)
        return tuple(_run(cell, data, packing, states, params, options, False))

    return run


def _original(operator: Any, *arguments: Any) -> Any:
    with plainly():
        return operator._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *arguments)


class Takeover:
    """Ends the takeover with undo(), or at the end of a with statement."""

    def __init__(self) -> None:
        self._library: Any = torch.library.Library("aten", "IMPL")
        for name, cell in (("lstm", "lstm"), ("gru", "gru"), ("rnn_tanh", "rnn_tanh"), ("rnn_relu", "rnn_relu")):
            for key in _KEYS:
                self._library.impl(f"{name}.input", _kernel(cell, name), key)
                self._library.impl(f"{name}.data", _packed_kernel(cell, name), key)

    def undo(self) -> None:
        """torch's own kernels run again."""
        global _active
        if self._library is not None:
            self._library._destroy()
            self._library = None
        if _active is self:
            _active = None

    def __enter__(self) -> Takeover:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.undo()


_active: Takeover | None = None


def takeover() -> Takeover:
    """Runs torch.nn.LSTM, GRU and RNN of the whole process by recurve, also in TorchScript programs, until undo() of the result.

    What recurve does not run (other devices, quantised weights) goes to torch's own kernels. Second derivatives are refused while it lasts.

    >>> with recurve.takeover():
    ...     y, h = torch.nn.LSTM(3, 4)(x)
    """
    global _active
    if _active is None:
        _active = Takeover()
    return _active
