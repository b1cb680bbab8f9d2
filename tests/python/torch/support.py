"""Modules of recurve.nn and of torch.nn side by side."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import recurve.nn

NAMES = ("LSTM", "GRU", "RNN")


def pair(name: str, *args: Any, seed: int = 0, **options: Any) -> tuple[Any, Any]:
    """The same module twice: ours and torch's, with the same parameters."""
    torch.manual_seed(seed)
    ours = getattr(recurve.nn, name)(*args, **options)
    torch.manual_seed(seed)
    theirs = getattr(torch.nn, name)(*args, **options)
    return ours, theirs


def as_torch(module: Any) -> Any:
    """torch's module with the parameters of ours."""
    options = {
        name: getattr(module, name)
        for name in ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
    }
    name = type(module).__name__
    if module.proj_size:
        options["proj_size"] = module.proj_size
    if name == "RNN":
        options["nonlinearity"] = module.nonlinearity
    first = next(module.parameters())
    theirs = getattr(torch.nn, name)(**options, dtype=first.dtype)
    theirs.load_state_dict(module.state_dict())
    return theirs.train(module.training)


def flat(out: Any) -> list[Tensor]:
    """The tensors of a module's result."""
    if isinstance(out, Tensor):
        return [out]
    return [t for part in out for t in flat(part) if part is not None]


def states_for(module: Any, batch: int | None, requires_grad: bool = False, dtype: torch.dtype | None = None) -> Any:
    """Random initial states, as the module takes them. batch None: unbatched."""
    tracks = module.num_layers * (2 if module.bidirectional else 1)
    dtype = dtype or next(module.parameters()).dtype
    middle = () if batch is None else (batch,)
    h = torch.randn(tracks, *middle, module.proj_size or module.hidden_size).to(dtype).requires_grad_(requires_grad)
    if not module.mode == "LSTM":
        return h
    return h, torch.randn(tracks, *middle, module.hidden_size).to(dtype).requires_grad_(requires_grad)


def copied(hx: Any) -> Any:
    """The same states, for another module's gradients."""
    if hx is None:
        return None
    if isinstance(hx, tuple):
        return tuple(copied(h) for h in hx)
    return hx.detach().clone().requires_grad_(hx.requires_grad)


def weighted_sum(out: Any, seed: int = 7) -> Tensor:
    """A loss in which every element of the result has a weight of its own."""
    generator = torch.Generator().manual_seed(seed)
    terms = [(t.double() * torch.rand(t.shape, generator=generator, dtype=torch.float64)).sum() for t in flat(out)]
    return torch.stack(terms).sum()


def gradients(module: Any, call: Callable[[Any], Any], *inputs: Any) -> tuple[list[Tensor], dict[str, Tensor | None]]:
    """The result of a call, and the gradients of the parameters and of the inputs that require one."""
    module.zero_grad(set_to_none=True)
    out = call(module)
    weighted_sum(out).backward()
    found: dict[str, Tensor | None] = {name: p.grad for name, p in module.named_parameters()}
    for i, tensor in enumerate(flat([t for t in inputs if t is not None])):
        if tensor.requires_grad:
            found[f"input {i}"] = tensor.grad
    return [t.detach() for t in flat(out)], found


def assert_close(ours: Any, theirs: Any, tolerance: float, what: str = "") -> None:
    """The difference of each tensor is at most `tolerance`, relative to the largest element of torch's (or 1)."""
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for name in theirs:
            assert_close(ours[name], theirs[name], tolerance, f"{what} {name}")
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for i, (a, b) in enumerate(zip(ours, theirs)):
            assert_close(a, b, tolerance, f"{what} {i}")
    elif theirs is None or ours is None:
        assert ours is theirs, f"{what}: {ours} is not {theirs}"
    else:
        assert ours.shape == theirs.shape, f"{what}: {tuple(ours.shape)} is not {tuple(theirs.shape)}"
        if not theirs.numel():
            return
        ours, theirs = ours.double(), theirs.double()
        assert not ours.isnan().any(), f"{what}: not a number"
        difference = (ours - theirs).abs().max().item()
        scale = max(1.0, theirs.abs().max().item())
        assert difference <= tolerance * scale, f"{what}: differs by {difference:.3g} at a scale of {scale:.3g}"


def outcome(call: Callable[[], Any]) -> tuple[str, str]:
    """What a call raises: the type and the text."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return "no error", ""


def random_options(chooser: random.Random, name: str) -> dict[str, Any]:
    """Constructor arguments, apart from dropout and dtype."""
    hidden = chooser.randint(1, 9)
    options = {
        "input_size": chooser.randint(1, 9),
        "hidden_size": hidden,
        "num_layers": chooser.randint(1, 3),
        "bias": chooser.random() < 0.7,
        "batch_first": chooser.random() < 0.5,
        "bidirectional": chooser.random() < 0.5,
    }
    if name == "LSTM" and hidden > 1 and chooser.random() < 0.5:
        options["proj_size"] = chooser.randint(1, hidden - 1)
    if name == "RNN":
        options["nonlinearity"] = chooser.choice(("tanh", "relu"))
    return options


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
