"""Packed sequences as padded tensors with lengths, and back."""

# mypy: disable-error-code=no-untyped-call

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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
        self.steps, self.batch = len(batch_sizes), int(batch_sizes[0])
        there = torch.arange(self.batch) < batch_sizes.unsqueeze(1)  # [steps, batch]
        self.lengths = there.sum(0)
        places = there.view(-1).nonzero().view(-1)
        self.places = places.to(device, non_blocking=True) if device.type != "cpu" else places

    def pad_rows(self, rows: Tensor) -> Tensor:
        """[steps, batch, features], without a derivative."""
        return _pad(rows, self.places, self.steps * self.batch).view(self.steps, self.batch, -1)

    def pack_rows(self, padded: Tensor) -> Tensor:
        """[rows, features]."""
        return padded.reshape(self.steps * self.batch, -1).index_select(0, self.places)

    def pad(self, rows: Tensor) -> Tensor:
        padded: Tensor = _Pad.apply(rows, self.places, self.steps * self.batch)
        return padded.view(self.steps, self.batch, -1)

    def pack(self, padded: Tensor) -> Tensor:
        rows: Tensor = _Pack.apply(padded.reshape(self.steps * self.batch, -1), self.places)
        return rows
