"""Linear recurrences on tensors of PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from recurve.nn import _operators
from recurve.nn._sequences import read_lengths, read_resets


def _scan_shape(
    a: Tensor, b: Tensor, initial: list[Tensor], lengths: list[Tensor], resets: list[Tensor], reverse: bool
) -> Tensor:
    return torch.empty(a.shape, dtype=a.dtype, device=a.device)


def _gradient_shapes(
    dh: Tensor, a: Tensor, h: Tensor, initial: list[Tensor], lengths: list[Tensor], resets: list[Tensor], reverse: bool
) -> list[Tensor]:
    return [torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (a, a, *initial)]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, _, initial, lengths, resets, reverse = inputs
    ctx.counts = len(initial), len(lengths), reverse
    ctx.save_for_backward(a, output, *initial, *lengths, *resets)


def _derive(ctx: Any, dh: Tensor) -> tuple[Any, ...]:
    initials, length_count, reverse = ctx.counts
    a, h, *rest = ctx.saved_tensors
    initial, lengths, resets = rest[:initials], rest[initials : initials + length_count], rest[initials + length_count :]
    da, db, *dinitial = torch.ops.recurve.scan_backward.default(dh, a, h, initial, lengths, resets, reverse)
    return da, db, dinitial, [None] * length_count, [None] * len(resets), None


torch.library.register_fake("recurve::scan")(_scan_shape)
torch.library.register_fake("recurve::scan_backward")(_gradient_shapes)
torch.library.register_autograd("recurve::scan", _derive, setup_context=_setup)
torch.library.register_autograd("recurve::scan_backward", _operators.refuse_derivative)
torch.library.register_vmap("recurve::scan", _operators.refuse_vmap)
torch.library.register_vmap("recurve::scan_backward", _operators.refuse_vmap)


def scan(
    a: Tensor,
    b: Tensor,
    initial: Tensor | None = None,
    lengths: Any = None,
    resets: Tensor | None = None,
    reverse: bool = False,
) -> Tensor:
    """h[t] = a[t] * h[t-1] + b[t] for every channel, in parallel over time, with derivatives.

    a, b: [steps, batch, channels] or [steps, channels]; h is alike.
    initial: the state before the first step, [batch, channels] or [channels]; zeros by default.
    lengths: [batch] steps of each sequence, on the host; h is zero past them.
    resets: bool [steps, batch] or [steps]: the state before this step is the initial one again.
    reverse: from the last step to the first: h[t] = a[t] * h[t+1] + b[t].
    """
    if a.shape != b.shape:
        raise RuntimeError(f"a and b should have one shape, got {list(a.shape)} and {list(b.shape)}")
    if a.dim() not in (2, 3):
        raise RuntimeError(f"a and b should be [steps, batch, channels] or [steps, channels], got {a.dim()} dimensions")
    if a.dtype != b.dtype:
        raise RuntimeError(f"a and b should have one dtype, got {a.dtype} and {b.dtype}")
    single = a.dim() == 2
    if single:
        a, b = a.unsqueeze(1), b.unsqueeze(1)
    steps, batch, channels = a.shape
    initials = [] if initial is None else [_read_initial(initial, a, single)]
    length_list = [] if lengths is None else [read_lengths(lengths, steps, batch, torch.device("cpu"))]
    reset_list = []
    if resets is not None:
        reset_list = [read_resets(resets.unsqueeze(1) if single else resets, steps, batch, False, a.device)]
    h: Tensor = torch.ops.recurve.scan.default(a, b, initials, length_list, reset_list, reverse)
    return h.squeeze(1) if single else h


def _read_initial(initial: Tensor, a: Tensor, single: bool) -> Tensor:
    """[batch, channels] in the type of states: float32 for 16-bit tensors."""
    shape = a.shape[2:] if single else a.shape[1:]
    if initial.shape != shape:
        raise RuntimeError(f"initial should have the shape {list(shape)}, got {list(initial.shape)}")
    initial = initial.unsqueeze(0) if single else initial
    return initial.to(torch.float64 if a.dtype == torch.float64 else torch.float32)
