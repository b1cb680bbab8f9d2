"""Modules of recurve.nn under what autograd offers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support import as_torch, assert_close, copied, flat, gradients, pair, states_for, weighted_sum
from torch import Tensor

import recurve.nn

EXACT = 1e-9


def exact_pair(name: str) -> tuple[Any, Any, Tensor, Any]:
    """Modules of two layers in both directions, an input and states, all of which require a gradient."""
    ours, theirs = pair(name, 3, 4, 2, bidirectional=True, dtype=torch.float64)
    return ours, theirs, torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True), states_for(ours, 2, True)


def compare(ours: Any, theirs: Any, x: Tensor, hx: Any) -> None:
    x2, hx2 = x.detach().clone().requires_grad_(), copied(hx)
    x.grad = None
    for h in flat(hx):
        h.grad = None
    out, found = gradients(ours, lambda m: m(x, hx), x, hx)
    expected, wanted = gradients(theirs, lambda m: m(x2, hx2), x2, hx2)
    assert_close(out, expected, EXACT, "result")
    assert_close(found, wanted, EXACT, "gradient of")


# ---- gradients ----


@pytest.mark.parametrize("given", [False, True], ids=["zeros", "hx"])
def test_gradcheck(name: str, given: bool) -> None:
    ours, _ = pair(name, 2, 3, 2, bidirectional=True, dtype=torch.float64)
    x = torch.randn(4, 2, 2, dtype=torch.float64, requires_grad=True)
    states = flat(states_for(ours, 2, True)) if given else []

    def call(x: Tensor, *tensors: Tensor) -> list[Tensor]:
        hx = (tensors[:2] if name == "LSTM" else tensors[0]) if given else None
        parameters = dict(zip(dict(ours.named_parameters()), tensors[len(states) :]))
        return flat(torch.func.functional_call(ours, parameters, (x, hx)))

    assert torch.autograd.gradcheck(call, (x, *states, *ours.parameters()), fast_mode=True)
    assert torch.autograd.gradcheck(call, (x, *states))


def test_backward_twice(name: str) -> None:
    ours, _, x, hx = exact_pair(name)
    loss = weighted_sum(ours(x, hx))
    loss.backward(retain_graph=True)
    first = [p.grad.clone() for p in [x, *flat(hx), *ours.parameters()]]
    loss.backward()
    assert_close([p.grad for p in [x, *flat(hx), *ours.parameters()]], [2 * g for g in first], EXACT)
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        loss.backward()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_several_calls_before_their_backward_calls(name: str, order: tuple[int, ...]) -> None:
    ours, theirs, _, _ = exact_pair(name)
    inputs = [torch.randn(steps, batch, 3, dtype=torch.float64) for steps, batch in ((5, 2), (5, 2), (9, 4))]
    found = []
    for module in (ours, theirs):
        losses = [weighted_sum(module(x)) for x in inputs]
        found.append([torch.autograd.grad(losses[i], list(module.parameters())) for i in order])
    assert_close(found[0], found[1], EXACT)


def test_many_sizes_before_their_backward_calls() -> None:
    """More plans than are kept of a kind: a backward call whose plan is gone repeats its forward call."""
    ours, theirs, _, _ = exact_pair("LSTM")
    inputs = [torch.randn(1 + 11 * i, 1 + 3 * i, 3, dtype=torch.float64) for i in range(12)]
    found = []
    for module in (ours, theirs):
        losses = [weighted_sum(module(x)) for x in inputs]
        found.append([torch.autograd.grad(loss, list(module.parameters())) for loss in losses])
    assert_close(found[0], found[1], EXACT)


def test_a_call_whose_result_goes_into_itself(name: str) -> None:
    ours, theirs = pair(name, 4, 4, dtype=torch.float64)
    found = []
    for module in (ours, theirs):
        torch.manual_seed(3)
        y, hx = torch.randn(5, 2, 4, dtype=torch.float64), None
        for _ in range(3):
            y, hx = module(y, hx)
        found.append(torch.autograd.grad(weighted_sum([y, hx]), list(module.parameters())))
    assert_close(found[0], found[1], EXACT)


# ---- saved tensors ----


def test_saved_tensors_on_the_host(name: str) -> None:
    ours, theirs, x, hx = exact_pair(name)
    with torch.autograd.graph.save_on_cpu():
        compare(ours, theirs, x, hx)


@pytest.mark.parametrize(
    "unpack",
    [lambda t: t.clone(), lambda t: t.detach(), lambda t: torch.stack([t, t])[0]],
    ids=["copy", "alias", "part of an array"],
)
def test_saved_tensors_that_are_copies(name: str, unpack: Any) -> None:
    ours, theirs, x, hx = exact_pair(name)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t.clone(), unpack):
        compare(ours, theirs, x, hx)
    assert torch.Size((1,)) in packed  # the reserve


def test_saved_tensors_on_disk(name: str, tmp_path: Any) -> None:
    ours, theirs, x, hx = exact_pair(name)

    def write(t: Tensor) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.pt"
        torch.save(t, path)
        return str(path)

    with torch.autograd.graph.saved_tensors_hooks(write, torch.load):
        compare(ours, theirs, x, hx)


def test_a_copied_reserve_keeps_the_masks_of_dropout(name: str) -> None:
    ours, _ = pair(name, 3, 4, 2, dropout=0.5, dtype=torch.float64)
    x = torch.randn(5, 2, 3, dtype=torch.float64)

    def call() -> dict[str, Tensor | None]:
        torch.manual_seed(1)
        return gradients(ours, lambda m: m(x))[1]

    expected = call()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        torch.manual_seed(1)
        loss = weighted_sum(ours(x))
    torch.manual_seed(99)
    ours.zero_grad()
    loss.backward()
    assert_close({key: p.grad for key, p in ours.named_parameters()}, expected, EXACT)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(name: str, reentrant: bool) -> None:
    ours, theirs, x, hx = exact_pair(name)
    x2, hx2 = x.detach().clone().requires_grad_(), copied(hx)

    def checkpointed(module: Any) -> Any:  # the reentrant kind takes and gives tensors, not tuples of them
        return torch.utils.checkpoint.checkpoint(lambda x: tuple(flat(module(x, hx))), x, use_reentrant=reentrant)

    _, found = gradients(ours, checkpointed, x, hx)
    _, wanted = gradients(theirs, lambda m: m(x2, hx2), x2, hx2)
    assert_close(found, wanted, EXACT)


def test_checkpoint_keeps_the_masks_of_dropout(name: str) -> None:
    ours, _ = pair(name, 3, 4, 2, dropout=0.5, dtype=torch.float64)
    x = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    found = []
    for call in (ours, lambda x: torch.utils.checkpoint.checkpoint(ours, x, use_reentrant=False)):
        torch.manual_seed(1)
        found.append(torch.autograd.grad(weighted_sum(call(x)), [x, *ours.parameters()]))
    assert_close(found[0], found[1], EXACT)


# ---- what is refused ----

REFUSED = r"recurve has no second derivatives: .* call as_torch\(\)"


def test_second_derivatives_are_refused(name: str) -> None:
    ours, _, x, hx = exact_pair(name)
    for inputs in ([x], flat(hx), list(ours.parameters())):
        first = torch.autograd.grad(weighted_sum(ours(x, hx)), inputs, create_graph=True)
        with pytest.raises(RuntimeError, match=REFUSED):
            sum(g.square().sum() for g in first).backward()
    ours.requires_grad_(False)
    dy = torch.ones(5, 2, 8, dtype=torch.float64, requires_grad=True)
    (dx,) = torch.autograd.grad(ours(x)[0], x, dy, create_graph=True)
    with pytest.raises(RuntimeError, match=REFUSED):
        torch.autograd.grad(dx.sum(), dy)


def test_create_graph_without_a_second_derivative(name: str) -> None:
    ours, theirs, x, hx = exact_pair(name)
    loss = weighted_sum(ours(x, hx))
    found = torch.autograd.grad(loss, [x, *ours.parameters()], create_graph=True)
    x2, hx2 = x.detach().clone().requires_grad_(), copied(hx)
    wanted = torch.autograd.grad(weighted_sum(theirs(x2, hx2)), [x2, *theirs.parameters()])
    assert_close([g.detach() for g in found], wanted, EXACT)


def test_forward_mode_is_refused(name: str) -> None:
    ours, _, x, _ = exact_pair(name)
    for requires_grad in (True, False):
        ours.requires_grad_(requires_grad)
        with pytest.raises(RuntimeError, match="recurve has no derivatives in forward mode"):
            torch.func.jvp(lambda x: ours(x)[0], (x.detach(),), (x.detach(),))
        with torch.no_grad(), torch.autograd.forward_ad.dual_level():
            with pytest.raises(RuntimeError, match="recurve has no derivatives in forward mode"):
                ours(torch.autograd.forward_ad.make_dual(x.detach(), x.detach()))
            ours(x.detach())


def test_vmap_is_refused(name: str) -> None:
    ours, _, x, _ = exact_pair(name)
    for requires_grad in (True, False):
        ours.requires_grad_(requires_grad)
        with pytest.raises(RuntimeError, match="cannot be mapped by torch.vmap"):
            torch.vmap(lambda x: ours(x)[0])(torch.stack([x.detach(), x.detach()]))
        with pytest.raises(RuntimeError, match="cannot be mapped by torch.vmap"):
            torch.func.jacrev(lambda x: ours(x)[0])(x.detach())


# ---- modes ----


def test_anomaly_mode(name: str) -> None:
    ours, theirs, x, hx = exact_pair(name)
    with torch.autograd.detect_anomaly(check_nan=True):
        compare(ours, theirs, x, hx)
        with pytest.raises(RuntimeError, match="returned nan values"):
            weighted_sum(ours(x * float("nan"), hx)).backward()


def test_no_grad_and_inference_mode(name: str) -> None:
    ours, theirs, x, hx = exact_pair(name)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            out = flat(ours(x, hx))
            assert not any(t.requires_grad for t in out)
            assert all(t.is_inference() == (mode is torch.inference_mode) for t in out)
            assert_close(out, flat(theirs(x, hx)), EXACT)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        ours(out[0].detach()[:, :, :3])


def test_a_module_made_in_inference_mode(name: str) -> None:
    with torch.inference_mode():
        ours = getattr(recurve.nn, name)(3, 4)
        x = torch.randn(5, 2, 3)
        assert_close(flat(ours(x)), flat(as_torch(ours)(x)), 1e-5)


# The dtypes of torch's results under autocast depend on its version, on the states and on the processor: LSTMs of oneDNN give the
# lower one or raise, GRU and RNN give float32. Ours always give the lower one, as on a GPU.
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_autocast(name: str, training: bool, dtype: torch.dtype) -> None:
    ours, theirs = (m.train(training) for m in pair(name, 3, 4, 2))
    x, hx = torch.randn(5, 2, 3, requires_grad=training), states_for(ours, 2)
    for states in (None, hx):
        with torch.autocast("cpu", dtype), torch.set_grad_enabled(training):
            mine = flat(ours(x, states))
        x2 = x.detach().clone().requires_grad_(training)
        wanted = flat(theirs(x2, states))  # without autocast
        assert_close(mine, wanted, 0.02)
        assert {t.dtype for t in mine} == {dtype}
        if training:
            for module, out, input in ((ours, mine, x), (theirs, wanted, x2)):
                module.zero_grad()
                input.grad = None
                weighted_sum(out).backward()
            assert {p.grad.dtype for p in [x, *ours.parameters()]} == {torch.float32}
            assert_close([p.grad for p in [x, *ours.parameters()]], [p.grad for p in [x2, *theirs.parameters()]], 0.03)


def test_autocast_of_rounded_and_of_exact_inputs(name: str) -> None:
    ours, theirs = pair(name, 3, 4, 2)
    x = torch.randn(5, 2, 3)
    with torch.no_grad():
        wanted = flat(theirs(x))
        with torch.autocast("cpu", torch.bfloat16):
            rounded = flat(ours(x.bfloat16()))
            with torch.autocast("cpu", enabled=False):
                exact = flat(ours(x))
    assert {t.dtype for t in rounded} == {torch.bfloat16}
    assert_close(rounded, wanted, 0.02)
    assert_close(exact, wanted, 1e-5)


# ---- the operators ----


def operator_arguments(name: str, kind: str) -> tuple[Any, ...]:
    """Arguments of recurve::network, with TRAINING."""
    ours, _, x, hx = exact_pair(name)
    initial = flat(hx) if kind != "zeros" else []
    restart = [torch.randn_like(h, requires_grad=True) for h in initial] if kind == "all" else []
    lengths = [torch.tensor([5, 3])] if kind == "all" else []
    resets = [torch.rand(5, 2) < 0.3] if kind == "all" else []
    if kind == "all":  # resets go one way
        ours, _ = pair(name, 3, 4, 2, dtype=torch.float64)
        initial = flat(states_for(ours, 2, True))
        restart = flat(states_for(ours, 2, True))
    ours._describe()
    flags = recurve.nn._operators.FLOAT64 | recurve.nn._operators.TRAINING | 1 << recurve.nn._operators.EFFORT_SHIFT
    return ours._net, x, list(ours.parameters()), initial, restart, lengths, resets, [], flags, 0


@pytest.mark.parametrize("kind", ["zeros", "hx", "all"])
def test_opcheck_of_forward(name: str, kind: str) -> None:
    torch.library.opcheck(torch.ops.recurve.network.default, operator_arguments(name, kind))


@pytest.mark.parametrize("kind", ["zeros", "hx", "all"])
def test_opcheck_of_backward(name: str, kind: str) -> None:
    with torch.no_grad():
        net, x, parameters, initial, restart, lengths, resets, seed, flags, _ = operator_arguments(name, kind)
        y, *final, reserve = torch.ops.recurve.forward.default(net, x, parameters, initial, restart, lengths, resets, seed, flags, 0)
    wanted = "1" + "01"[bool(initial)] + "01"[bool(restart)] + "1" * len(parameters)
    tensors = [[t.detach() for t in part] for part in (parameters, initial, restart)]
    arguments = (net, [torch.randn_like(y)], [torch.randn_like(f) for f in final], x.detach(), *tensors, lengths, resets, seed)
    torch.library.opcheck(torch.ops.recurve.backward.default, (*arguments, reserve, flags, wanted))


def test_packed_sequences():
    """Padding and packing are part of one function: gradients, again and in double precision, and the refusal of second derivatives."""
    module = recurve.nn.GRU(3, 4, 2, bidirectional=True).double()
    lengths = torch.tensor([4, 1, 3])
    hx = torch.randn(4, 3, 4, dtype=torch.float64, requires_grad=True)

    def run(x, hx):
        y, h = module(torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False), hx)
        return y.data, h

    x = torch.randn(4, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, (x, hx))
    y, h = run(x, hx)
    once = torch.autograd.grad(y.pow(2).sum() + h.sum(), [x, *module.parameters()], retain_graph=True)
    twice = torch.autograd.grad(y.pow(2).sum() + h.sum(), [x, *module.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(once, twice))
    (only_h,) = torch.autograd.grad(run(x, hx)[1].sum(), hx)  # y has no gradient
    assert only_h.abs().sum() > 0
    with pytest.raises(RuntimeError, match="as_torch"):
        (g,) = torch.autograd.grad(run(x, hx)[0].pow(2).sum(), x, create_graph=True)
        g.pow(2).sum().backward()
