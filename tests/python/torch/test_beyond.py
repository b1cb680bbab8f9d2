"""What modules of recurve.nn have besides: lengths, resets, zoneout, variational dropout, frozen weights; threads and processes."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from typing import Any

import pytest
import torch
from support import as_torch, assert_close, copied, flat, gradients, pair, states_for, threads, weighted_sum
from torch import Tensor

import recurve.nn

EXACT = 1e-9
CELLS = {"LSTM": torch.nn.LSTMCell, "GRU": torch.nn.GRUCell, "RNN": torch.nn.RNNCell}


def build(name: str, *args: Any, **options: Any) -> Any:
    return getattr(recurve.nn, name)(*args, **options, dtype=torch.float64)


def random_input(*sizes: int) -> Tensor:
    return torch.randn(*sizes, dtype=torch.float64, requires_grad=True)


# ---- the reference: a loop over steps with torch's cells ----


def cell_of(module: Any, layer: int, end: str) -> Any:
    """torch's cell, on the module's own parameters."""
    size = module.input_size if layer == 0 else module.hidden_size * (2 if module.bidirectional else 1)
    cell = CELLS[type(module).__name__](size, module.hidden_size, dtype=torch.float64)
    for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        del cell._parameters[kind]
        setattr(cell, kind, getattr(module, f"{kind}_l{layer}{end}"))
    return cell


def loop(
    module: Any,
    x: Tensor,
    hx: Any = None,
    lengths: Any = None,
    resets: Tensor | None = None,
    restart: Any = None,
    zoneout: float = 0.0,
) -> tuple[Tensor, Any]:
    """x: [steps, batch, features]. zoneout: its expectation, z * old + (1 - z) * new."""
    steps, batch, _ = x.shape
    lstm = module.mode == "LSTM"
    lengths = torch.full((batch,), steps) if lengths is None else torch.as_tensor(lengths)
    directions = 2 if module.bidirectional else 1
    zeros = torch.zeros(module.num_layers * directions, batch, module.hidden_size, dtype=torch.float64)
    initial = [zeros] * (2 if lstm else 1) if hx is None else flat(hx)
    again = [zeros] * len(initial) if restart is None else flat(restart)
    finals: list[list[Tensor]] = []
    for layer in range(module.num_layers):
        outputs = []
        for direction in range(directions):
            track = layer * directions + direction
            cell = cell_of(module, layer, "_reverse" * direction)
            states = [s[track] for s in initial]
            y: list[Any] = [None] * steps
            for t in reversed(range(steps)) if direction else range(steps):
                boundary = t + direction  # between this step and the one before it in time
                if resets is not None and boundary < steps:
                    begins = (resets[boundary].bool() & (boundary < lengths)).unsqueeze(1)
                    states = [torch.where(begins, r[track], s) for r, s in zip(again, states)]
                after = flat(cell(x[t], tuple(states) if lstm else states[0]))
                after = [zoneout * s + (1 - zoneout) * a for s, a in zip(states, after)]
                active = (t < lengths).unsqueeze(1)
                states = [torch.where(active, a, s) for a, s in zip(after, states)]
                y[t] = torch.where(active, states[0], torch.zeros_like(states[0]))
            outputs.append(torch.stack(y))
            finals.append(states)
        x = torch.cat(outputs, 2)
    final = tuple(torch.stack([f[i] for f in finals]) for i in range(len(initial)))
    return x, final if lstm else final[0]


def compare_with_loop(module: Any, x: Tensor, hx: Any = None, restart: Any = None, zoneout: float = 0.0, **options: Any) -> None:
    x2, hx2, restart2 = x.detach().clone().requires_grad_(), copied(hx), copied(restart)
    call = {**options, **({} if restart is None else {"restart": restart})}
    out, found = gradients(module, lambda m: m(x, hx, **call), x, hx, restart)
    expected, wanted = gradients(module, lambda m: loop(m, x2, hx2, restart=restart2, zoneout=zoneout, **options), x2, hx2, restart2)
    assert_close(out, expected, EXACT, "result")
    assert_close(found, wanted, EXACT, "gradient of")


def test_the_reference_is_torchs(name: str) -> None:
    module = build(name, 3, 4, 2, bidirectional=True)
    x, hx = random_input(6, 3, 3), states_for(module, 3)
    assert_close(flat(loop(module, x, hx)), flat(as_torch(module)(x, hx)), EXACT)


# ---- lengths ----


@pytest.mark.parametrize("bidirectional", [False, True])
def test_lengths(name: str, bidirectional: bool) -> None:
    module = build(name, 3, 4, 2, bidirectional=bidirectional)
    for lengths in ([6, 1, 4, 6], [3, 3, 3, 3], [1, 1, 1, 1], [6, 6, 6, 6]):
        compare_with_loop(module, random_input(6, 4, 3), states_for(module, 4, True), lengths=lengths)
    compare_with_loop(module, random_input(6, 4, 3), lengths=[2, 6, 5, 4])


def test_forms_of_lengths(name: str) -> None:
    module = build(name, 3, 4, 2, batch_first=True)
    x = random_input(3, 6, 3)
    expected = flat(module(x, lengths=torch.tensor([6, 2, 4])))
    for lengths in (
        [6, 2, 4],
        (6, 2, 4),
        torch.tensor([6, 2, 4], dtype=torch.int32),
        torch.tensor([6, 2, 4], dtype=torch.uint8),
        torch.tensor([[6, 0], [2, 0], [4, 0]])[:, 0],
    ):
        assert_close(flat(module(x, lengths=lengths)), expected, EXACT)
    alone = module(x[1], lengths=2)
    assert_close([alone[0], flat(alone[1])[0]], [expected[0][1], expected[1][:, 1]], EXACT)


def test_values_past_a_length_do_not_matter(name: str) -> None:
    module = build(name, 3, 4, 2, bidirectional=True)
    x = random_input(6, 2, 3).detach()
    other = x.clone()
    other[4:, 0] = float("nan")
    other = other.requires_grad_()
    y, final = module(other, lengths=[4, 6])
    expected, wanted = module(x, lengths=[4, 6])
    assert_close(flat([y, final]), flat([expected, wanted]), EXACT)
    assert torch.equal(y[4:, 0], torch.zeros(2, 8, dtype=torch.float64))
    weighted_sum([y, final]).backward()
    assert torch.equal(other.grad[4:, 0], torch.zeros(2, 3, dtype=torch.float64))
    assert not other.grad.isnan().any()


def test_lengths_are_those_of_a_packed_sequence(name: str) -> None:
    module = build(name, 3, 4, 2, bidirectional=True)
    x = random_input(6, 3, 3).detach()
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, [2, 6, 3], enforce_sorted=False)
    y, final = module(x, lengths=[2, 6, 3])
    z, wanted = module(packed)
    assert_close(flat([y, final]), flat([torch.nn.utils.rnn.pad_packed_sequence(z)[0], wanted]), EXACT)


BAD_LENGTHS: dict[str, tuple[Any, str]] = {
    "0": ([0, 2], "length"),
    "-1": ([-1, 2], "length"),
    "more than the steps": ([6, 7], "length"),
    "too few": ([6], "shape"),
    "too many": ([6, 6, 6], "shape"),
    "2 dimensions": ([[6, 6]], "shape"),
    "floats": ([6.0, 2.0], "integers"),
    "a tensor of floats": (torch.tensor([6.0, 2.0]), "integers"),
    "not numbers": ([float("nan"), 2], "integers"),
    "bools": (torch.tensor([True, True]), "integers"),
    "strings": (["6", "2"], ""),
    "on meta": (torch.tensor([6, 2], device="meta"), "meta"),
}


@pytest.mark.parametrize("case", BAD_LENGTHS)
def test_lengths_that_are_refused(name: str, case: str) -> None:
    module = build(name, 3, 4)
    lengths, text = BAD_LENGTHS[case]
    x = random_input(6, 2, 3)
    expected = flat(module(x))
    for training in (True, False):
        with pytest.raises((RuntimeError, TypeError, ValueError), match=text), torch.set_grad_enabled(training):
            module(x, lengths=lengths)
    assert_close(flat(module(x)), expected, 0.0)


# ---- resets ----


def test_resets(name: str) -> None:
    module = build(name, 3, 4, 2)
    resets = torch.rand(8, 4) < 0.3
    resets[0, 0] = True
    hx, restart = states_for(module, 4, True), states_for(module, 4, True)
    compare_with_loop(module, random_input(8, 4, 3), resets=resets)
    compare_with_loop(module, random_input(8, 4, 3), hx, resets=resets)
    compare_with_loop(module, random_input(8, 4, 3), copied(hx), restart, resets=resets)
    compare_with_loop(module, random_input(8, 4, 3), None, copied(restart), resets=resets)
    compare_with_loop(module, random_input(8, 4, 3), copied(hx), copied(restart), resets=resets, lengths=[8, 3, 5, 1])


def test_resets_of_a_bidirectional_network_are_boundaries(name: str) -> None:
    module = build(name, 3, 4, 2, bidirectional=True)
    hx, restart = states_for(module, 4, True), states_for(module, 4, True)
    compare_with_loop(module, random_input(8, 4, 3), hx, restart, resets=torch.rand(8, 4) < 0.3)
    compare_with_loop(module, random_input(8, 4, 3), copied(hx), copied(restart), resets=torch.rand(8, 4) < 0.3, lengths=[8, 3, 5, 1])


def test_forms_of_resets(name: str) -> None:
    module = build(name, 3, 4, 2, batch_first=True)
    x = random_input(3, 6, 3)
    resets = torch.rand(3, 6) < 0.4
    expected = flat(module(x, resets=resets))
    for form in (resets.tolist(), resets.byte(), resets.t().contiguous().t()):
        assert_close(flat(module(x, resets=form)), expected, EXACT)
    alone = module(x[1], resets=resets[1])
    assert_close(alone[0], expected[0][1], EXACT)
    assert not torch.equal(expected[0], module(x)[0])


def test_resets_split_a_sequence_into_episodes(name: str) -> None:
    module = build(name, 3, 4, 2)
    x = random_input(7, 1, 3)
    resets = torch.tensor([0, 0, 0, 1, 0, 0, 0]).bool().unsqueeze(1)
    y, final = module(x, resets=resets)
    first, second = module(x[:3]), module(x[3:])
    assert_close(flat([y, final]), flat([torch.cat([first[0], second[0]]), second[1]]), EXACT)


BAD_RESETS: dict[str, tuple[Any, str]] = {
    "too few steps": (torch.zeros(5, 2, dtype=torch.bool), "shape"),
    "batch first": (torch.zeros(2, 6, dtype=torch.bool), "shape"),
    "integers": (torch.zeros(6, 2, dtype=torch.int64), "bool"),
    "floats": (torch.zeros(6, 2), "bool"),
    "on meta": (torch.zeros(6, 2, dtype=torch.bool, device="meta"), "meta"),
}


@pytest.mark.parametrize("case", BAD_RESETS)
def test_resets_that_are_refused(name: str, case: str) -> None:
    resets, text = BAD_RESETS[case]
    with pytest.raises((RuntimeError, TypeError), match=text):
        build(name, 3, 4)(random_input(6, 2, 3), resets=resets)


def test_what_does_not_go_together(name: str) -> None:
    module = build(name, 3, 4)
    packed = torch.nn.utils.rnn.pack_sequence([random_input(3, 3)])
    for options in ({"lengths": [3]}, {"resets": torch.zeros(3, 1, dtype=torch.bool)}):
        with pytest.raises(ValueError, match="a PackedSequence has its own lengths"):
            module(packed, **options)
    with pytest.raises(ValueError, match="restart is the state after a reset: give resets, too"):
        module(random_input(6, 2, 3), restart=states_for(module, 2))
    with pytest.raises(RuntimeError, match="Expected hidden"):
        module(random_input(6, 2, 3), resets=torch.zeros(6, 2, dtype=torch.bool), restart=states_for(module, 3))
    with pytest.raises((RuntimeError, TypeError)):
        module(random_input(6, 2, 3), resets=torch.zeros(6, 2, dtype=torch.bool), restart=states_for(module, 2, dtype=torch.float32))


# ---- states that are carried ----


def test_calls_with_a_carried_state_are_one_call(name: str) -> None:
    module = build(name, 3, 4, 2)
    x = random_input(12, 3, 3)
    whole, final = module(x)
    parts, hx = [], None
    for part in x.split([1, 4, 2, 5]):
        y, hx = module(part, hx)
        parts.append(y)
    assert_close(flat([torch.cat(parts), hx]), flat([whole, final]), EXACT)
    found = torch.autograd.grad(weighted_sum([torch.cat(parts), hx]), [x, *module.parameters()])
    assert_close(found, torch.autograd.grad(weighted_sum([whole, final]), [x, *module.parameters()]), EXACT)
    with torch.no_grad():
        hx = None
        for t in range(12):
            y, hx = module(x[t : t + 1], hx)
            assert_close(y[0], whole[t], EXACT)


# ---- zoneout and variational dropout ----


def test_zoneout_in_evaluation_is_its_expectation(name: str) -> None:
    module = build(name, 3, 4, 2, bidirectional=True, zoneout=0.3).eval()
    compare_with_loop(module, random_input(6, 3, 3), states_for(module, 3, True), zoneout=0.3)
    compare_with_loop(module, random_input(6, 3, 3), zoneout=0.3, lengths=[6, 2, 3])
    module.zoneout = 0.1
    compare_with_loop(module, random_input(6, 3, 3), zoneout=0.1)


def test_zoneout_in_training_keeps_elements(name: str) -> None:
    module = build(name, 3, 200, zoneout=0.25)
    with torch.no_grad():
        y, _ = module(random_input(20, 4, 3))
    kept = (y[1:] == y[:-1]).double().mean().item()
    assert abs(kept - 0.25) < 0.015  # 15,200 elements: 4.3 standard deviations
    torch.manual_seed(1)
    x = random_input(20, 4, 3)
    torch.manual_seed(2)
    first = flat(module(x))
    torch.manual_seed(2)
    assert_close(flat(module(x)), first, 0.0)
    assert not torch.equal(module(x)[0], first[0])


@pytest.mark.parametrize("options", [{"zoneout": 0.3}, {"dropout": 0.4, "variational": True}, {"zoneout": 0.2, "dropout": 0.3}], ids=str)
def test_gradients_with_random_masks(name: str, options: dict[str, Any]) -> None:
    module = build(name, 3, 4, 2, **options)
    x = random_input(6, 3, 3)

    def loss(x: Tensor) -> Tensor:
        torch.manual_seed(9)
        return weighted_sum(module(x))

    (dx,) = torch.autograd.grad(loss(x), x)
    direction = torch.randn_like(x)
    with torch.no_grad():
        slope = (loss(x + 1e-6 * direction) - loss(x - 1e-6 * direction)) / 2e-6
    assert_close((dx * direction).sum(), slope, 1e-7)


def test_variational_dropout_has_one_mask_for_all_steps() -> None:
    for variational in (True, False):
        module = recurve.nn.RNN(1, 50, 2, nonlinearity="relu", bias=False, dropout=0.4, variational=variational)
        with torch.no_grad():
            module.weight_ih_l0.fill_(1)
            module.weight_ih_l1.copy_(torch.eye(50))
            module.weight_hh_l0.zero_()
            module.weight_hh_l1.zero_()
            y, _ = module(torch.ones(9, 40, 1))
        kept = y != 0
        assert torch.equal(kept.all(0), kept.any(0)) == variational
        assert abs(kept.double().mean().item() - 0.6) < 0.05
        assert (kept.any(1) & ~kept.all(1)).any()  # other masks for other sequences


@pytest.mark.parametrize("zoneout", [-0.1, 1.0, 1.5, True, float("nan")], ids=str)
def test_zoneout_that_is_refused(name: str, zoneout: Any) -> None:
    with pytest.raises(ValueError, match=r"zoneout should be a number in range \[0, 1\)"):
        build(name, 3, 4, zoneout=zoneout)


def test_repr_has_what_is_not_torchs(name: str) -> None:
    module = build(name, 3, 4, 2, zoneout=0.1, dropout=0.5, variational=True)
    assert repr(module) == f"{name}(3, 4, num_layers=2, dropout=0.5, zoneout=0.1, variational=True)"


# ---- frozen weights ----


def test_frozen_weights_are_kept_until_they_are_frozen_again(name: str) -> None:
    module = build(name, 3, 40, 2).eval()
    assert module.freeze() is module
    x = random_input(6, 3, 3)
    with torch.no_grad():
        before = flat(module(x))
        assert_close(flat(module(x)), before, 0.0)
        module.freeze()
        for p in module.parameters():
            p.mul_(0.5)
        module.freeze()
        after = flat(module(x))
        assert_close(after, flat(as_torch(module)(x)), EXACT)
        for p in module.parameters():
            p.mul_(3)
        assert module.unfreeze() is module
        assert_close(flat(module(x)), flat(as_torch(module)(x)), EXACT)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.load_state_dict({key: 2 * p for key, p in m.state_dict().items()}),
        lambda m: m.float().double(),
        lambda m: m.train().eval(),
        lambda m: m.to(torch.float32).to(torch.float64),
    ],
    ids=["load_state_dict", "float", "train", "to"],
)
def test_what_ends_a_freeze(name: str, change: Any) -> None:
    module = build(name, 3, 40).eval().freeze()
    x = random_input(6, 3, 3)
    with torch.no_grad():
        module(x)
        module(x)
        for p in module.parameters():
            p.data.mul_(0.5)
        change(module)
        assert_close(flat(module(x)), flat(as_torch(module)(x)), EXACT)


def test_frozen_modules_still_train_and_copy(name: str) -> None:
    import copy
    import pickle

    module = build(name, 3, 40).eval().freeze()
    x = random_input(6, 3, 3)
    with torch.no_grad():
        expected = flat(module(x))
    _, found = gradients(module, lambda m: m(x))
    _, wanted = gradients(as_torch(module), lambda m: m(x))
    assert_close(found, wanted, EXACT)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), copy.copy(module)):
        with torch.no_grad():
            assert_close(flat(other(x)), expected, EXACT)
            other.train()  # also ends the freeze of a copy only
            for p in other.parameters():
                p.mul_(2)
            other.eval()
            assert_close(flat(other(x)), flat(as_torch(other)(x)), EXACT)
            for p in other.parameters():
                p.mul_(0.5)
    with torch.no_grad():
        assert_close(flat(module(x)), expected, EXACT)


def test_two_frozen_modules_do_not_share_weights(name: str) -> None:
    first, second = (build(name, 3, 40).eval().freeze() for _ in range(2))
    x = random_input(6, 3, 3)
    with torch.no_grad():
        for _ in range(3):
            for module in (first, second):
                assert_close(flat(module(x)), flat(as_torch(module)(x)), EXACT)


# ---- threads ----


def test_threads_of_the_caller(name: str) -> None:
    module = build(name, 8, 16, 2)
    inputs = [random_input(5 + i % 3, 3, 8) for i in range(8)]
    expected = []
    for x in inputs:
        out = module(x)
        expected.append([*flat(out), *torch.autograd.grad(weighted_sum(out), [x, *module.parameters()])])
    errors: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for turn in range(12):
                i = (first + turn) % len(inputs)
                out = module(inputs[i])
                found = torch.autograd.grad(weighted_sum(out), [inputs[i], *module.parameters()])
                assert_close([t.detach() for t in [*flat(out), *found]], [t.detach() for t in expected[i]], EXACT)
                with torch.no_grad():
                    assert_close(flat(module(inputs[i])), [t.detach() for t in expected[i][: len(flat(out))]], EXACT)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(2 * i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors, errors[0]


def test_the_number_of_threads(name: str) -> None:
    module = build(name, 16, 64)
    x = random_input(10, 4, 16)
    out = module(x)
    found = [*flat(out), *torch.autograd.grad(weighted_sum(out), [x, *module.parameters()])]
    for count in (1, 2, 1, 3):
        with threads(count):
            out = module(x)
            again = [*flat(out), *torch.autograd.grad(weighted_sum(out), [x, *module.parameters()])]
        assert_close([t.detach() for t in again], [t.detach() for t in found], EXACT)
    with threads(2):
        loss = weighted_sum(module(x))
    with threads(1):  # between a forward and its backward call
        again = torch.autograd.grad(loss, [x, *module.parameters()])
    assert_close(again, [t.detach() for t in found[-len(again) :]], EXACT)


# ---- processes ----


class Encoded(torch.utils.data.Dataset):
    """Items that a module computes, as a feature extractor does in a worker."""

    def __init__(self, module: Any, x: Tensor) -> None:
        self.module, self.x = module, x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Tensor:
        with torch.no_grad():
            y: Tensor = self.module(self.x[index])[0]
        return y


@pytest.mark.parametrize(("method", "used"), [("fork", True), ("fork", False), pytest.param("spawn", True, marks=pytest.mark.slow)])
def test_workers_of_a_data_loader(method: str, used: bool) -> None:
    module = build("LSTM", 3, 40 + used, 2)  # other sizes: a fork without a plan that was used
    x = torch.randn(4, 6, 3, dtype=torch.float64)
    if used:
        flat(module(x[0]))
        weighted_sum(module(x[0])).backward()
    loader = torch.utils.data.DataLoader(Encoded(module, x), batch_size=2, num_workers=1, multiprocessing_context=method, timeout=100)
    found = torch.cat(list(loader))
    theirs = as_torch(module)
    with torch.no_grad():
        assert_close(found, torch.stack([theirs(item)[0] for item in x]), EXACT)
        assert_close(module(x[0])[0], theirs(x[0])[0], EXACT)


def train_in_child(module: Any, x: Tensor, queue: Any) -> None:
    loss = weighted_sum(module(x))
    queue.put([g.numpy() for g in torch.autograd.grad(loss, list(module.parameters()))])


def test_training_in_a_forked_child() -> None:
    with threads(1):  # torch's own threads do not survive a fork
        module = build("GRU", 3, 40, 2)
        x = random_input(6, 2, 3)
        wanted = torch.autograd.grad(weighted_sum(module(x)), list(module.parameters()))
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=train_in_child, args=(module.requires_grad_(), x.detach(), queue))
        child.start()
        try:
            found = queue.get(timeout=100)
        finally:
            child.join(5)
            child.kill()
    assert_close([torch.from_numpy(g) for g in found], list(wanted), EXACT)


# ---- memory ----


def test_calls_leave_no_references(name: str) -> None:
    module = build(name, 3, 4, 2)
    x, hx = random_input(6, 3, 3), states_for(module, 3, True)

    def call() -> None:
        with torch.no_grad():
            module(x, hx)
            module(x)
        weighted_sum(module(x, hx, lengths=[6, 2, 3])).backward()

    def count() -> list[int]:
        return [sys.getrefcount(t) for t in [x, hx, *flat(hx), *module.parameters(), module._parameters]]

    call()
    before = count()
    for _ in range(20):
        call()
    assert count() == before


def test_calls_leave_no_memory() -> None:
    module = recurve.nn.LSTM(32, 64, 2)
    x = torch.randn(50, 8, 32)

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def call(times: int) -> None:
        for _ in range(times):
            weighted_sum(module(x)).backward()
            with torch.no_grad():
                module(x)

    call(80)  # a plan may be replaced by a better one, and the first is kept for some calls
    before = resident()
    call(100)
    grown = resident() - before
    assert grown < 20e6, f"{grown / 1e6:.0f} MB in 100 calls; a reserve has some 1.5 MB"
