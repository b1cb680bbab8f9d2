"""Calls past PyTorch's dispatcher (bindings/torch/quick.h): they give what the operators give, and leave to these whatever is not simple."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from support import copied, flat, gradients, states_for, weighted_sum
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import recurve.nn
from recurve.nn import _network, _operators

pytestmark = pytest.mark.skipif(_operators.infer_quickly is None, reason="this PyTorch has no DLPack exchange table")

PLACES = {"infer": (_network, "_infer_quickly"), "forward": (_operators, "_forward_quickly"), "backward": (_operators, "_backward_quickly")}


@pytest.fixture(autouse=True)
def one_plan() -> Iterator[None]:
    """The same plan for every call of a kind and of its sizes, so that results can be compared bit for bit."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def calls(monkeypatch: Any) -> list[str]:
    """The quick functions that were called and applied."""
    made: list[str] = []

    def watch(name: str, function: Any) -> Any:
        def call(*args: Any) -> Any:
            found = function(*args)
            if found is not None:
                made.append(name)
            return found

        return call

    for name, (module, attribute) in PLACES.items():
        monkeypatch.setattr(module, attribute, watch(name, getattr(module, attribute)))
    return made


def by_operators(call: Callable[[], Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for module, attribute in PLACES.values():
            patch.setattr(module, attribute, None)
        return call()


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and a.is_contiguous() == b.is_contiguous() and torch.equal(a, b)


def check(module: Any, x: Tensor, hx: Any = None, **given: Any) -> None:
    """Results and gradients are those of the operators, bit for bit."""

    def call() -> Any:
        own, states = x.detach().requires_grad_(x.requires_grad), copied(hx)
        torch.manual_seed(5)
        return gradients(module, lambda m: m(own, states, **given), own, states)

    found, expected = call(), by_operators(call)
    assert equal(found, expected)
    assert found[1] and all(g is not None and g.abs().sum() > 0 for g in found[1].values())


OPTIONS: dict[str, dict[str, Any]] = {
    "two layers": {},
    "both directions": {"bidirectional": True, "batch_first": True},
    "no bias": {"bias": False},
    "dropout": {"dropout": 0.5},
    "zoneout": {"zoneout": 0.2},
    "double": {"dtype": torch.float64},
    "bfloat16": {"dtype": torch.bfloat16},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
@pytest.mark.parametrize("given", [False, True], ids=["zeros", "hx"])
def test_the_bits_of_the_operators(name: str, options: dict[str, Any], given: bool, calls: list[str]) -> None:
    module = getattr(recurve.nn, name)(3, 4, 2, **options)
    dtype = options.get("dtype", torch.float32)
    x = torch.randn(5, 5, 3, dtype=dtype, requires_grad=given)
    check(module, x, states_for(module, 5, True) if given else None)
    random = "dropout" in options or "zoneout" in options
    assert calls == ["forward" if random else "infer", "backward"]


def test_lengths_and_resets(name: str, calls: list[str]) -> None:
    module, x = getattr(recurve.nn, name)(3, 4), torch.randn(6, 3, 3, requires_grad=True)
    hx = states_for(module, 3, True)
    check(module, x, hx, lengths=torch.tensor([6, 2, 4]))
    check(module, x, hx, resets=torch.rand(6, 3) < 0.3)
    check(module, x, hx, resets=torch.rand(6, 3) < 0.3, restart=states_for(module, 3))
    assert calls == ["forward", "backward"] * 3


def test_gradients_of_restart(name: str, calls: list[str]) -> None:
    module, x = getattr(recurve.nn, name)(3, 4), torch.randn(6, 3, 3)
    hx, restart, resets = states_for(module, 3), states_for(module, 3, True), torch.rand(6, 3) < 0.5

    def call() -> Any:
        return torch.autograd.grad(weighted_sum(module(x, hx, resets=resets, restart=restart)), flat(restart))

    assert equal(call(), by_operators(call))
    assert calls == ["forward", "backward"]


def test_packed_sequences(name: str, calls: list[str]) -> None:
    module, data = getattr(recurve.nn, name)(3, 4), torch.randn(6, 3, 3)

    def call() -> Any:
        packed = torch.nn.utils.rnn.pack_padded_sequence(data, torch.tensor([6, 4, 1]))
        return gradients(module, lambda m: [m(packed)[0].data])

    assert equal(call(), by_operators(call))
    assert calls == ["forward", "backward"]


def test_a_part_of_the_gradients(calls: list[str]) -> None:
    module, x = recurve.nn.LSTM(3, 4, 2), torch.randn(5, 2, 3, requires_grad=True)
    module.weight_ih_l0.requires_grad_(False)
    module.bias_hh_l1.requires_grad_(False)
    wanted = [x, module.weight_hh_l0, module.weight_ih_l1]

    def call(pick: Callable[[Any], Tensor]) -> Any:
        return torch.autograd.grad(pick(module(x)), wanted)

    for pick in (lambda out: out[0].square().sum(), lambda out: out[1][0].square().sum(), lambda out: out[1][1].square().sum()):
        assert equal(call(pick), by_operators(lambda: call(pick)))
    assert calls == ["infer", "backward"] * 3


# ---- what is left to the operators ----


def transposed(*shape: int) -> Tensor:
    return torch.randn(shape[1], shape[0], *shape[2:]).transpose(0, 1)


def test_tensors_that_are_not_contiguous(name: str, calls: list[str]) -> None:
    module, x = getattr(recurve.nn, name)(3, 4), transposed(5, 2, 3)
    expanded = torch.randn(()).expand(5, 2, 4)
    for dy in (transposed(5, 2, 4), expanded, torch.randn(5, 2, 8)[..., ::2]):

        def call() -> Any:
            return torch.autograd.grad(module(x)[0], list(module.parameters()), dy)

        calls.clear()
        assert equal(call(), by_operators(call))
        assert calls == ["forward", "backward"]


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("kind", ["negative", "imaginary", "zeros"])
def test_tensors_whose_memory_is_not_their_values(kind: str, training: bool) -> None:
    module = recurve.nn.LSTM(1, 4)
    x = {
        "negative": torch._neg_view(torch.randn(5, 2, 1)),
        "imaginary": torch.randn(1, 1, 1, dtype=torch.complex64).conj().imag,
        "zeros": torch._efficientzerotensor((5, 2, 1)),
    }[kind]
    assert x.is_contiguous() and (x.is_neg() or x._is_zerotensor())
    with torch.set_grad_enabled(training):
        y, plain = module(x)[0], module(x + torch.zeros(x.shape))[0]
    assert torch.equal(y, plain)
    if training:
        dy = torch.randn(y.shape)
        other = torch._neg_view(-dy)
        found, expected = (torch.autograd.grad(out, list(module.parameters()), g) for out, g in ((y, other), (plain, dy)))
        assert equal(found, expected)


class Own(torch.Tensor):
    """A subclass that sees what is called with it."""

    seen: list[str] = []

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(str(function))
        return super().__torch_function__(function, types, args, kwargs or {})


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_a_subclass_of_tensor(training: bool, calls: list[str]) -> None:
    module, x = recurve.nn.LSTM(3, 4), torch.randn(5, 2, 3)
    with torch.set_grad_enabled(training):
        y = module(x.as_subclass(Own))[0]
        assert not calls
        plain = module(x)[0]
    assert type(y) is not Own or torch.equal(y.as_subclass(Tensor), plain)
    assert torch.equal(torch.Tensor(y.detach().as_subclass(Tensor)), plain)


class Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(function))
        return function(*args, **kwargs or {})


def test_a_mode_sees_the_operators(calls: list[str]) -> None:
    module, x = recurve.nn.LSTM(3, 4), torch.randn(5, 2, 3)
    with Watch() as mode:
        module(x)[0].sum().backward()
    assert "recurve.forward.default" in mode.seen and "recurve.backward.default" in mode.seen
    y = module(x)[0]
    with Watch() as mode:
        y.sum().backward()
    assert "recurve.backward.default" in mode.seen
    assert calls == ["infer"]


def test_a_profiler_sees_the_operators(calls: list[str]) -> None:
    module, x = recurve.nn.LSTM(3, 4), torch.randn(5, 2, 3)
    with torch.autograd.profiler.profile() as profile:
        module(x)[0].sum().backward()
    names = [event.name for event in profile.function_events]
    assert not calls and "recurve::forward" in names and "recurve::backward" in names


def test_what_is_wrong_is_refused_by_the_operators(calls: list[str]) -> None:
    module, y = recurve.nn.LSTM(3, 4), recurve.nn.LSTM(3, 4)(torch.randn(5, 2, 3))[0]
    for x in (torch.randn(5, 2, 4), torch.randn(0, 2, 3), torch.randn(5, 2, 3, dtype=torch.float64), torch.randn(5, 2, 3, device="meta")):
        with pytest.raises((RuntimeError, ValueError)):
            module(x)
    for shape in ((1, 3, 4), (2, 1, 4)):  # the second has the right number of elements
        with pytest.raises(RuntimeError, match="Expected hidden"):
            module(torch.randn(5, 2, 3), (torch.randn(shape), torch.randn(shape)))
    for training in (False, True):  # a tensor that has two states as its rows
        with torch.set_grad_enabled(training), pytest.raises(TypeError, match="tuple of two tensors"):
            module(torch.randn(5, 2, 3), torch.randn(2, 1, 2, 4))
    module.weight_ih_l0 = torch.nn.Parameter(torch.randn(16, 4))
    with pytest.raises(RuntimeError, match="weight_ih_l0|parameter"):
        module(torch.randn(5, 2, 3))
    assert calls == ["infer"] and y.requires_grad


def test_an_empty_batch(name: str, calls: list[str]) -> None:
    module = getattr(recurve.nn, name)(3, 4)
    y = module(torch.randn(5, 0, 3))[0]
    y.sum().backward()
    assert y.shape == (5, 0, 4) and not calls
    assert all(not p.grad.any() for p in module.parameters())


# ---- the reserve ----


def wide(t: Tensor) -> Tensor:
    """The same values at the begin of larger memory."""
    room = t.new_zeros(t.numel() + 5000)
    room[: t.numel()] = t.reshape(-1)
    return room[: t.numel()].view(t.shape)


def whole(t: Tensor) -> Tensor:
    """A copy with a copy of the whole memory."""
    return torch.empty(0, dtype=t.dtype).set_(t.untyped_storage().clone(), t.storage_offset(), t.shape, t.stride())


@pytest.mark.parametrize("unpack", [Tensor.clone, wide, whole], ids=["copy", "larger memory", "whole memory"])
@pytest.mark.parametrize("later", [False, True], ids=["default hooks", "hooks of the saved tensors"])
def test_another_reserve(name: str, unpack: Any, later: bool, calls: list[str]) -> None:
    module, x = getattr(recurve.nn, name)(3, 6, 2, dropout=0.5), torch.randn(5, 2, 3)

    def call(replaced: bool) -> Any:
        torch.manual_seed(3)
        if replaced and not later:
            with torch.autograd.graph.saved_tensors_hooks(unpack, unpack):
                y = module(x)[0]
        else:
            y = module(x)[0]
        if replaced and later:
            for saved in y.grad_fn._raw_saved_tensors:
                saved.register_hooks(unpack, lambda t: t)
        return torch.autograd.grad(y.square().sum(), list(module.parameters()))

    assert equal(call(True), call(False))
    assert calls == ["forward", "backward"] * 2


def test_a_short_copy_of_the_reserve(calls: list[str]) -> None:
    """A copy of less memory is no reserve, even if it looks like one where the tensor lies: the size of its own memory says so."""
    module, x = recurve.nn.LSTM(3, 4), torch.randn(5, 2, 3)
    expected = torch.autograd.grad(module(x)[0].square().sum(), list(module.parameters()))

    def unpack(t: Tensor) -> Tensor:
        if t.dtype != torch.uint8:
            return t
        room = torch.zeros(300, dtype=torch.uint8)
        room[1] = -(room.data_ptr() + 1) % 256  # where a reserve in this memory begins
        return room[:1]

    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        y = module(x)[0]
    found = torch.autograd.grad(y.square().sum(), list(module.parameters()))
    assert equal(found, expected) and calls == ["infer", "backward"] * 2


def test_backward_twice_and_with_a_graph(name: str, calls: list[str]) -> None:
    module, x = getattr(recurve.nn, name)(3, 4), torch.randn(5, 2, 3)
    loss = module(x)[0].square().sum()
    first = torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)
    assert calls == ["infer", "backward"]
    again = torch.autograd.grad(loss, list(module.parameters()), create_graph=True)
    assert equal(first, [g.detach() for g in again]) and all(g.requires_grad for g in again)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        again[0].sum().backward()


def test_memory_of_a_call_is_released() -> None:
    """The reserve goes with the graph's saved tensors, also while the results are kept."""
    module, x = recurve.nn.LSTM(3, 4), torch.randn(5, 2, 3)
    y = module(x)[0]
    y.sum().backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        _ = y.grad_fn.saved_tensors
