"""Packed sequences as padded tensors with lengths, and back."""

# mypy: disable-error-code=no-untyped-call

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from recurve._native.bindings import bindings


# What a call costs beside its rows, in rows, on two cores of x86-64: packing the weights, adding their gradients; and what does not depend on
# the network, which is rows of CALL_WORK parameters.
CALL_ROWS, CALL_WORK = 100, 4_000_000


def _pad(rows: Tensor, places: Tensor, count: int) -> Tensor:
    return rows.new_zeros((count, *rows.shape[1:])).index_copy_(0, places, rows)


class _Pad(torch.autograd.Function):
    """Copies row i of [rows, features] to row places[i] of a larger tensor of zeros."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(places)
        return _pad(rows, places, count)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (places,) = ctx.saved_tensors
        return _Pack.apply(grad, places), None, None


class _Pack(torch.autograd.Function):
    """The rows at these places."""

    @staticmethod
    def forward(ctx: Any, padded: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.count = padded.shape[0]
        return padded.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (places,) = ctx.saved_tensors
        return _Pad.apply(grad, places, ctx.count), None


class Packing:
    """Where the rows of a packed sequence lie in a padded tensor [steps, batch, features], and the lengths."""

    def __init__(self, batch_sizes: Tensor, device: torch.device) -> None:
        self.batch_sizes = batch_sizes
        self.steps, self.batch = len(batch_sizes), int(batch_sizes[0])
        size = self.steps * self.batch
        self.is_checked = False  # what the batch sizes are
        if torch.compiler.is_compiling() or type(batch_sizes) is not Tensor or batch_sizes.dtype != torch.int64:
            there = torch.arange(self.batch) < batch_sizes.unsqueeze(1)  # [steps, batch]
            self.lengths, self.places = there.sum(0), there.view(-1).nonzero().view(-1).to(device)
            self.source = torch.where(there.view(-1), there.view(-1).cumsum(0) - 1, 0).to(device)
            return
        numbers = torch.empty(2 * size + self.batch, dtype=torch.int64)
        batch_sizes, at = batch_sizes.contiguous(), numbers.data_ptr()
        rows: int = bindings().rcvb_unpack(self.steps, self.batch, batch_sizes.data_ptr(), at, at + 8 * size, at + 16 * size)
        if rows < 0:
            raise RuntimeError("the batch sizes of a packed sequence do not fall from step to step")
        self.is_checked = True
        self.lengths = numbers[2 * size :]
        there = numbers[: size + rows]
        there = there.to(device, non_blocking=True) if device.type != "cpu" else there
        self.source, self.places = there[:size], there[size:]

    def cut(self, parameters: int) -> list[Tensor]:
        """The batch sizes of calls, one after the other, which take less time on a CPU together than one call of all steps."""
        if not self.is_checked:
            return [self.batch_sizes]
        overhead = CALL_ROWS + CALL_WORK // max(1, parameters)
        sizes = self.batch_sizes.contiguous()
        ends = torch.empty(self.steps, dtype=torch.int64)
        count = bindings().rcvb_cut(self.steps, sizes.data_ptr(), overhead, ends.data_ptr())
        at = [0, *ends[:count].tolist()]
        return [sizes[begin:end] for begin, end in zip(at, at[1:])]

    def pad_rows(self, rows: Tensor) -> Tensor:
        """[steps, batch, features], without a derivative. Past the length of a sequence it has the packed sequence's first row."""
        return rows.index_select(0, self.source).view(self.steps, self.batch, -1)

    def pack_rows(self, padded: Tensor) -> Tensor:
        """[rows, features]."""
        return padded.view(self.steps * self.batch, -1).index_select(0, self.places)

    def pad(self, rows: Tensor) -> Tensor:
        padded: Tensor = _Pad.apply(rows, self.places, self.steps * self.batch)
        return padded.view(self.steps, self.batch, -1)

    def pack(self, padded: Tensor) -> Tensor:
        rows: Tensor = _Pack.apply(padded.reshape(self.steps * self.batch, -1), self.places)
        return rows
