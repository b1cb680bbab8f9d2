"""Lengths and resets, checked as torch checks such arguments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def read_lengths(lengths: Any, steps: int, batch: int, device: torch.device) -> Tensor:
    """[batch] integers of 64 bits, on the host or on this device."""
    if not isinstance(lengths, Tensor):
        values = torch.as_tensor(lengths)
        if values.is_floating_point():
            raise TypeError("lengths should be integers, not floats")
        lengths = values
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths should be integers, got {lengths.dtype}")
    if lengths.dim() != 1 or lengths.shape[0] != batch:
        raise RuntimeError(f"lengths should have the shape [{batch}] of one integer a sequence, got {list(lengths.shape)}")
    if lengths.device.type != "cpu" and lengths.device != device:
        raise RuntimeError(f"lengths should be on the host or on {device}, where the input is, got {lengths.device}")
    found: Tensor = lengths.to(torch.int64)
    return found


def read_resets(resets: Any, steps: int, batch: int, batch_first: bool, device: torch.device) -> Tensor:
    """A bool for each step of each sequence."""
    found: Tensor = resets if isinstance(resets, Tensor) else torch.as_tensor(resets, device=device)
    shape = (batch, steps) if batch_first else (steps, batch)
    if found.dtype not in (torch.bool, torch.uint8):
        raise TypeError(f"resets should be bool, got {found.dtype}")
    if tuple(found.shape) != shape:
        raise RuntimeError(f"resets should have the shape {list(shape)}, got {list(found.shape)}")
    if found.device != device:
        raise RuntimeError(f"resets should be on {device}, where the input is, got {found.device}")
    return found
