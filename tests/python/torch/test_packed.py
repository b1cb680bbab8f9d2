"""Packed sequences on a CPU, which are run in calls of fewer and fewer sequences."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import recurve
import recurve.nn
from recurve.nn import _operators, _packed


@pytest.fixture
def cut_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_packed, "CALL_ROWS", 2)
    monkeypatch.setattr(_packed, "CALL_WORK", 0)


def rows_of(sizes: list[int], ends: list[int]) -> int:
    return sum((end - begin) * sizes[begin] for begin, end in zip([0, *ends], ends))


def least_cost(sizes: list[int], overhead: int) -> int:
    """Over all ways to cut."""
    steps = range(1, len(sizes))
    ways = itertools.chain.from_iterable(itertools.combinations(steps, n) for n in range(len(sizes)))
    return min(rows_of(sizes, [*way, len(sizes)]) + overhead * (len(way) + 1) for way in ways)


def test_cuts_cost_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_packed, "CALL_WORK", 0)
    torch.manual_seed(1)
    counts = set()
    for overhead in (0, 1, 3, 8, 1000):
        monkeypatch.setattr(_packed, "CALL_ROWS", overhead)
        for _ in range(20):
            sizes = torch.randint(1, 9, (9,)).sort(descending=True)[0]
            parts = _packed.Packing(sizes, torch.device("cpu")).cut(100)
            assert torch.equal(torch.cat(parts), sizes)
            ends = list(itertools.accumulate(len(part) for part in parts))
            assert rows_of(sizes.tolist(), ends) + overhead * len(parts) == least_cost(sizes.tolist(), overhead)
            counts.add(len(parts))
    assert 1 in counts and max(counts) > 3


def test_cost_of_a_call_depends_on_the_network() -> None:
    sizes = torch.arange(64, 0, -1)
    packing = _packed.Packing(sizes, torch.device("cpu"))
    assert len(packing.cut(100)) == 1
    assert 2 < len(packing.cut(1_000_000)) < 40


def packed_input(features: int, **options: Any) -> PackedSequence:
    lengths = torch.tensor([3, 9, 1, 6, 9, 2, 4])
    x = torch.randn(9, 7, features, dtype=torch.float64, requires_grad=True)
    return pack_padded_sequence(x, lengths, enforce_sorted=False, **options)


def results(module: Any, packed: PackedSequence, hx: Any) -> list[torch.Tensor]:
    """Outputs, final states and all gradients."""
    leaves = [packed.data.detach().requires_grad_(), *module.parameters()]
    states = [] if hx is None else [h.detach().requires_grad_() for h in (hx if isinstance(hx, tuple) else (hx,))]
    given = None if hx is None else tuple(states) if isinstance(hx, tuple) else states[0]
    y, final = module(packed._replace(data=leaves[0]), given)
    final = list(final) if isinstance(final, tuple) else [final]
    torch.manual_seed(3)
    total = sum((t * torch.randn_like(t)).sum() for t in (y.data, *final))
    return [y.data, *final, *torch.autograd.grad(total, [*leaves, *states])]


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize(("name", "options"), [("LSTM", {}), ("LSTM", {"proj_size": 3}), ("GRU", {"bias": False}), ("RNN", {})])
def test_parts_give_what_torch_gives(cut_often: None, monkeypatch: pytest.MonkeyPatch, name: str, options: Any, with_states: bool) -> None:
    calls: list[int] = []
    run_parts = _operators._run_parts
    monkeypatch.setattr(_operators, "_run_parts", lambda net, parts, *rest: (calls.append(len(parts)), run_parts(net, parts, *rest))[1])
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(4, 5, 2, **options).double()
    ours = getattr(recurve.nn, name)(4, 5, 2, **options).double()
    ours.load_state_dict(theirs.state_dict())
    packed = packed_input(4)
    sizes = [(2, 7, options.get("proj_size", 5))] + [(2, 7, 5)] * (name == "LSTM")
    states = [torch.randn(s, dtype=torch.float64) for s in sizes]
    hx = None if not with_states else tuple(states) if name == "LSTM" else states[0]
    for mine, wanted in zip(results(ours, packed, hx), results(theirs, packed, hx), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-9, atol=1e-10)
    with torch.no_grad():
        torch.testing.assert_close(ours(packed, hx)[0].data, theirs(packed, hx)[0].data, rtol=1e-9, atol=1e-10)
    with recurve.takeover():
        for mine, wanted in zip(results(theirs, packed, hx), results(ours, packed, hx), strict=True):
            torch.testing.assert_close(mine, wanted, rtol=1e-9, atol=1e-10)
    assert len(calls) == 4 and min(calls) > 2


def test_dropout_in_parts(cut_often: None) -> None:
    """The masks of parts differ, and the backward pass has those of the forward pass."""
    module = recurve.nn.GRU(4, 64, 2, dropout=0.5).double()
    packed = packed_input(4)

    def run(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return module(packed)[0].data

    assert torch.equal(run(5), run(5)) and not torch.equal(run(5), run(6))
    weight = module.weight_ih_l1
    (gradient,) = torch.autograd.grad(run(5).sum(), weight)
    step = 1e-5 * torch.randn_like(weight)
    with torch.no_grad():
        before = run(5).sum()
        weight += step
        change = run(5).sum() - before
    torch.testing.assert_close(change, (gradient * step).sum(), rtol=1e-2, atol=1e-9)


@pytest.mark.parametrize("options", [{"bidirectional": True}, {"num_layers": 2, "dropout": 0.5, "variational": True}])
def test_what_is_not_cut(cut_often: None, monkeypatch: pytest.MonkeyPatch, options: Any) -> None:
    monkeypatch.setattr(_operators, "_run_parts", None)
    packed = packed_input(4)
    y, _ = recurve.nn.LSTM(4, 5, **options).double()(packed)
    assert y.data.shape[0] == packed.data.shape[0]


def test_masks_of_parts_differ(cut_often: None) -> None:
    module = recurve.nn.RNN(64, 64, 2, nonlinearity="relu", bias=False, dropout=0.5)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            weight.copy_(torch.eye(64) if "ih" in name else torch.zeros(64, 64))
    packed = pack_padded_sequence(torch.ones(8, 2, 64), torch.tensor([8, 4]))
    assert [len(part) for part in _packed.Packing(packed.batch_sizes, torch.device("cpu")).cut(1)] == [4, 4]
    y = module(packed)[0].data
    assert set(y.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(y[0], y[8])  # the first rows of both parts
