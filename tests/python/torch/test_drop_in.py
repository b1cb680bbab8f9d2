"""Modules of recurve.nn in the place of torch.nn's: the same parameters, results and gradients."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest
import torch
from support import (
    as_torch,
    assert_close,
    copied,
    flat,
    gradients,
    pair,
    random_options,
    states_for,
    weighted_sum,
)
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import recurve.nn

EXACT = 1e-9  # float64


def compare(ours: Any, theirs: Any, x: torch.Tensor, hx: Any, tolerance: float) -> None:
    """Results and all gradients."""
    x2, hx2 = x.detach().clone().requires_grad_(x.requires_grad), copied(hx)
    out, found = gradients(ours, lambda m: m(x, hx), x, hx)
    expected, wanted = gradients(theirs, lambda m: m(x2, hx2), x2, hx2)
    assert [t.dtype for t in out] == [t.dtype for t in expected]
    assert_close(out, expected, tolerance, "result")
    assert_close(found, wanted, tolerance, "gradient of")


# ---- parameters ----


@pytest.mark.parametrize("case", range(12))
def test_parameters_have_torchs_names_order_shapes_and_values(name: str, case: int) -> None:
    options = random_options(random.Random(case), name)
    ours, theirs = pair(name, seed=case, **options)
    mine, wanted = dict(ours.named_parameters()), dict(theirs.named_parameters())
    assert list(mine) == list(wanted)
    for key in wanted:
        assert torch.equal(mine[key], wanted[key]), key
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    theirs.reset_parameters()
    assert ours.load_state_dict(theirs.state_dict()) == nn.modules.module._IncompatibleKeys([], [])
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters()))
    ours.reset_parameters()
    theirs.load_state_dict(ours.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters()))


def test_attributes_are_torchs(name: str) -> None:
    ours, theirs = pair(name, 3, 4, 2, bidirectional=True, batch_first=True)
    for attribute, value in theirs.__dict__.items():
        if isinstance(value, (int, float, str)):
            assert getattr(ours, attribute) == value, attribute
    assert ours._flat_weights_names == theirs._flat_weights_names
    assert [[p.shape for p in layer] for layer in ours.all_weights] == [[p.shape for p in layer] for layer in theirs.all_weights]
    assert all(a is b for a, b in zip(ours._flat_weights, ours.parameters()))
    assert ours.flatten_parameters() is None
    assert isinstance(ours, nn.RNNBase)


def test_factory_arguments(name: str) -> None:
    ours = getattr(recurve.nn, name)(3, 4, dtype=torch.float64, device="cpu")
    assert {p.dtype for p in ours.parameters()} == {torch.float64}
    empty = getattr(recurve.nn, name)(3, 4, device="meta")
    assert {p.device.type for p in empty.parameters()} == {"meta"}
    filled = empty.to_empty(device="cpu")
    filled.load_state_dict(ours.float().state_dict())
    x = torch.randn(5, 2, 3)
    assert_close(flat(filled(x)), flat(as_torch(ours)(x)), 1e-5)


# ---- results and gradients ----


@pytest.mark.parametrize("case", range(16))
def test_random_networks(name: str, case: int) -> None:
    chooser = random.Random(100 + case)
    options = random_options(chooser, name)
    ours, theirs = pair(name, seed=case, dtype=torch.float64, **options)
    steps, batch = chooser.randint(1, 12), chooser.choice((None, 1, 2, 5))
    shape = (steps,) if batch is None else (batch, steps) if options["batch_first"] else (steps, batch)
    x = torch.randn(*shape, options["input_size"], dtype=torch.float64, requires_grad=chooser.random() < 0.7)
    hx = states_for(ours, batch, chooser.random() < 0.5) if chooser.random() < 0.6 else None
    compare(ours, theirs, x, hx, EXACT)


# torch rounds to 16 bits after every operation of every step: what is compared is the distance from float64.
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float16, 5e-3), (torch.bfloat16, 4e-2)], ids=str)
def test_other_dtypes(name: str, dtype: torch.dtype, tolerance: float) -> None:
    ours, _ = pair(name, 6, 8, 2, bidirectional=True, dtype=dtype)
    exact = as_torch(ours).double()
    x = torch.randn(7, 4, 6).to(dtype).requires_grad_()
    hx = states_for(ours, 4, True)
    out, found = gradients(ours, lambda m: m(x, hx), x, hx)
    assert {t.dtype for t in out} == {dtype} == {g.dtype for g in found.values()}
    x2 = x.detach().double().requires_grad_()
    hx2 = tuple(h.detach().double().requires_grad_() for h in hx) if isinstance(hx, tuple) else hx.detach().double().requires_grad_()
    expected, wanted = gradients(exact, lambda m: m(x2, hx2), x2, hx2)
    assert_close(out, expected, tolerance, "result")
    assert_close(found, wanted, tolerance, "gradient of")


def test_evaluation_is_training_without_dropout(name: str) -> None:
    ours, theirs = pair(name, 3, 4, 2, dropout=0.5, dtype=torch.float64)
    compare(ours.eval(), theirs.eval(), torch.randn(6, 3, 3, dtype=torch.float64), None, EXACT)


@pytest.mark.parametrize("batch_first", [False, True])
def test_an_empty_batch(name: str, batch_first: bool) -> None:
    ours, theirs = pair(name, 3, 4, 2, bidirectional=True, batch_first=batch_first, dtype=torch.float64)
    shape = (0, 5, 3) if batch_first else (5, 0, 3)
    compare(ours, theirs, torch.randn(shape, dtype=torch.float64, requires_grad=True), states_for(ours, 0, True), EXACT)


def test_more_steps_than_65535(name: str) -> None:
    ours, theirs = pair(name, 1, 2, dtype=torch.float64)
    x = torch.randn(70000, 1, 1, dtype=torch.float64)
    with torch.no_grad():
        whole, final = ours(x)
        _, middle = theirs(x[:69990])
        expected, wanted = theirs(x[69990:], middle)
    assert_close(flat([whole[69990:], final]), flat([expected, wanted]), EXACT)


def test_gradients_of_more_steps_than_65535(name: str) -> None:
    ours, _ = pair(name, 1, 2, dtype=torch.float64)
    x = torch.randn(70000, 1, 1, dtype=torch.float64)
    _, whole = gradients(ours, lambda m: m(x)[0])

    def in_parts(module: Any) -> torch.Tensor:
        first, middle = module(x[:35000])
        return torch.cat([first, module(x[35000:], middle)[0]])

    _, parts = gradients(ours, in_parts)
    assert_close(whole, parts, EXACT, "gradient of")


# ---- forms of tensors ----


def test_inputs_that_are_not_contiguous(name: str) -> None:
    ours, theirs = pair(name, 3, 4, 2, dtype=torch.float64)
    base = torch.randn(3, 6, 10, dtype=torch.float64)
    hx = states_for(ours, 5)
    views = [base.permute(1, 2, 0)[:, ::2], base.flip(0).permute(2, 1, 0)[:, :5], base[:1].expand(3, 6, 10).permute(2, 1, 0)[:, 1:]]
    for x in views:
        assert not x.is_contiguous()
        compare(ours, theirs, x.requires_grad_(False), copied(hx), EXACT)
    wide = tuple(torch.cat([h, h], 2)[:, :, ::2] for h in flat(hx))
    wide = wide if name == "LSTM" else wide[0]
    compare(ours, theirs, views[0], wide, EXACT)


def test_a_gradient_that_is_expanded_or_has_other_strides(name: str) -> None:
    ours, theirs = pair(name, 3, 4, dtype=torch.float64)
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    found = []
    for module in (ours, theirs):
        y, _ = module(x)
        y.sum().backward(retain_graph=True)  # an expanded scalar
        y.backward(torch.arange(48.0, dtype=torch.float64).view(4, 2, 6).permute(2, 1, 0))
        found.append([p.grad for p in module.parameters()])
    assert_close(found[0], found[1], EXACT)


def test_states_that_are_expanded(name: str) -> None:
    ours, theirs = pair(name, 3, 4, 2, dtype=torch.float64)
    found = []
    for module in (ours, theirs):
        torch.manual_seed(3)
        learned = states_for(module, 1, True)
        hx = tuple(h.expand(-1, 5, -1) for h in learned) if name == "LSTM" else learned.expand(-1, 5, -1)
        weighted_sum(module(torch.randn(6, 5, 3, dtype=torch.float64), hx)).backward()
        found.append([t.grad for t in flat(learned)])
    assert_close(found[0], found[1], EXACT)


def test_only_some_results_are_used(name: str) -> None:
    ours, theirs = pair(name, 3, 4, 2, dtype=torch.float64)
    x = torch.randn(6, 5, 3, dtype=torch.float64)
    count = 3 if name == "LSTM" else 2
    for used in range(count):
        found = []
        for module in (ours, theirs):
            module.zero_grad()
            flat(module(x))[used].sum().backward()
            found.append([p.grad for p in module.parameters()])
        assert_close(found[0], found[1], EXACT)


def test_a_result_may_be_changed_in_place(name: str) -> None:
    ours, _ = pair(name, 3, 4, dtype=torch.float64)
    x = torch.randn(6, 5, 3, dtype=torch.float64)
    (2 * ours(x)[0]).sum().backward()
    expected = [p.grad.clone() for p in ours.parameters()]
    ours.zero_grad()
    y = ours(x)[0]
    y.mul_(2)
    y.sum().backward()
    assert_close([p.grad for p in ours.parameters()], expected, EXACT)


# ---- dropout ----


def test_dropout_drops_the_given_part_between_layers() -> None:
    # The second layer has the identity as weights from its input, and none from its state: y is the dropped output of the first.
    ours = recurve.nn.RNN(1, 64, 2, nonlinearity="relu", bias=False, dropout=0.3)
    with torch.no_grad():
        ours.weight_ih_l0.fill_(1)
        ours.weight_ih_l1.copy_(torch.eye(64))
        ours.weight_hh_l0.zero_()
        ours.weight_hh_l1.zero_()
        y, _ = ours(torch.ones(50, 20, 1))
    kept = y != 0
    assert torch.allclose(y[kept], torch.tensor(1 / 0.7))
    assert abs(kept.double().mean().item() - 0.7) < 0.008  # 64,000 elements: 4.4 standard deviations
    for dim in (0, 1, 2):  # not the same for all steps, sequences or units
        assert (kept.any(dim) & ~kept.all(dim)).any()
    ours.eval()
    with torch.no_grad():
        assert torch.equal(ours(torch.ones(50, 20, 1))[0], torch.ones(50, 20, 64))


def test_dropout_is_repeated_by_manual_seed(name: str) -> None:
    ours, _ = pair(name, 3, 4, 2, dropout=0.5)
    x = torch.randn(6, 5, 3)

    def call(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        out, found = gradients(ours, lambda m: m(x))
        return [*out, *found.values()]

    first, again, other = call(1), call(1), call(2)
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(ours(x)[0], ours(x)[0])  # the next call has other masks


def test_gradients_with_dropout_are_those_of_the_masks(name: str) -> None:
    ours, _ = pair(name, 3, 4, 3, dropout=0.4, dtype=torch.float64)
    x = torch.randn(6, 5, 3, dtype=torch.float64, requires_grad=True)

    def loss(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(9)
        return weighted_sum(ours(x))

    (dx,) = torch.autograd.grad(loss(x), x)
    direction = torch.randn_like(x)
    with torch.no_grad():
        slope = (loss(x + 1e-6 * direction) - loss(x - 1e-6 * direction)) / 2e-6
    assert_close((dx * direction).sum(), slope, 1e-7)


def test_dropout_of_1_and_of_one_layer(name: str) -> None:
    ours, theirs = pair(name, 3, 4, 2, dropout=1.0, dtype=torch.float64)
    compare(ours, theirs, torch.randn(6, 5, 3, dtype=torch.float64), None, EXACT)
    with pytest.warns(UserWarning, match="non-zero dropout expects num_layers greater than 1"):
        one = getattr(recurve.nn, name)(3, 4, dropout=0.5, dtype=torch.float64)
    compare(one, as_torch_quietly(one), torch.randn(6, 5, 3, dtype=torch.float64), None, EXACT)


def as_torch_quietly(module: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return as_torch(module)


def test_no_random_number_is_taken_without_dropout(name: str) -> None:
    ours, _ = pair(name, 3, 4, 2, dropout=0.5)
    plain, _ = pair(name, 3, 4, 2)
    before = torch.get_rng_state()
    ours.eval()(torch.randn(2, 1, 3, generator=torch.Generator()))
    plain(torch.randn(2, 1, 3, generator=torch.Generator()))
    assert torch.equal(torch.get_rng_state(), before)


# ---- packed sequences ----


def packed_input(enforce_sorted: bool, batch_first: bool = False) -> PackedSequence:
    lengths = [7, 5, 5, 2, 1] if enforce_sorted else [2, 7, 1, 5, 5]
    x = torch.randn(5, 7, 3, dtype=torch.float64)
    x = x if batch_first else x.transpose(0, 1)
    return pack_padded_sequence(x, torch.tensor(lengths), batch_first=batch_first, enforce_sorted=enforce_sorted)


@pytest.mark.parametrize("given", [False, True], ids=["zeros", "hx"])
@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences(name: str, bidirectional: bool, enforce_sorted: bool, given: bool) -> None:
    for batch_first in (False, True):
        options: dict[str, Any] = {"proj_size": 2} if name == "LSTM" else {}
        ours, theirs = pair(name, 3, 4, 2, bidirectional=bidirectional, batch_first=batch_first, dtype=torch.float64, **options)
        packed = packed_input(enforce_sorted, batch_first)
        hx = states_for(ours, 5, True) if given else None
        results = []
        for module in (ours, theirs):
            states = copied(hx)
            data = packed.data.detach().clone().requires_grad_()
            y, final = module(PackedSequence(data, *packed[1:]), states)
            assert isinstance(y, PackedSequence)
            weighted_sum([y.data, final]).backward()
            parts = [y.data, final, pad_packed_sequence(y, batch_first)[0], data.grad, [p.grad for p in module.parameters()]]
            results.append([t.detach() for t in flat([*parts, [t.grad for t in flat(states)] if given else []])])
            assert torch.equal(y.batch_sizes, packed.batch_sizes)
            for mine, wanted in ((y.sorted_indices, packed.sorted_indices), (y.unsorted_indices, packed.unsorted_indices)):
                assert (mine is None) == (wanted is None)
                assert mine is None or torch.equal(mine, wanted)
        assert_close(results[0], results[1], EXACT)


def test_a_packed_sequence_of_one_and_of_equal_lengths(name: str) -> None:
    ours, theirs = pair(name, 3, 4, dtype=torch.float64)
    for lengths in ([1], [4, 4], [1, 1, 1]):
        packed = pack_sequence([torch.randn(n, 3, dtype=torch.float64) for n in lengths])
        assert_close(flat([ours(packed)[0].data, ours(packed)[1]]), flat([theirs(packed)[0].data, theirs(packed)[1]]), EXACT)


# ---- what programs do with modules ----


def test_weight_norm_and_parametrize(name: str) -> None:
    for add in (
        lambda m: nn.utils.parametrizations.weight_norm(m, "weight_hh_l0"),
        lambda m: nn.utils.parametrizations.orthogonal(m, "weight_ih_l0") if m.weight_ih_l0.shape[0] >= 3 else m,
        lambda m: parametrize.register_parametrization(m, "bias_ih_l1", nn.Softplus(), unsafe=True),
    ):
        ours, theirs = pair(name, 3, 4, 2, dtype=torch.float64)
        torch.manual_seed(1)
        ours = add(ours)
        torch.manual_seed(1)
        theirs = add(theirs)
        x = torch.randn(6, 5, 3, dtype=torch.float64, requires_grad=True)
        compare(ours, theirs, x, None, EXACT)
        with torch.no_grad():
            for module in (ours, theirs):
                for p in module.parameters():
                    p.mul_(1.5)
        x.grad = None
        compare(ours, theirs, x, None, EXACT)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
def test_the_older_weight_norm(name: str) -> None:
    ours, theirs = (nn.utils.weight_norm(m, "weight_hh_l0") for m in pair(name, 3, 4, 2, dtype=torch.float64))
    x = torch.randn(6, 5, 3, dtype=torch.float64)
    compare(ours, theirs, x, None, EXACT)
    with torch.no_grad():
        for module in (ours, theirs):
            module.weight_hh_l0_g.mul_(2)
    compare(ours, theirs, x, None, EXACT)
    for module in (ours, theirs):
        nn.utils.remove_weight_norm(module, "weight_hh_l0")
    assert list(dict(ours.named_parameters())) == list(dict(theirs.named_parameters()))
    compare(ours, theirs, x, None, EXACT)


def test_a_weight_that_is_a_plain_tensor(name: str) -> None:
    """As in weight dropout: the parameter is kept under another name, and each call sets the weight."""
    results = []
    for module in pair(name, 3, 4, dtype=torch.float64):
        raw = module.weight_hh_l0
        del module._parameters["weight_hh_l0"]
        module.register_parameter("raw", nn.Parameter(raw.data))
        module.weight_hh_l0 = module.raw * 0.5
        torch.manual_seed(2)
        weighted_sum(module(torch.randn(6, 5, 3, dtype=torch.float64))).backward()
        results.append(module.raw.grad)
    assert_close(results[0], results[1], EXACT)


def test_functional_call(name: str) -> None:
    ours, theirs = pair(name, 3, 4, 2, dtype=torch.float64)
    x = torch.randn(6, 5, 3, dtype=torch.float64)
    other = {key: torch.randn_like(p, requires_grad=True) for key, p in theirs.named_parameters()}
    out = [torch.func.functional_call(m, other, (x,)) for m in (ours, theirs)]
    assert_close(flat(out[0]), flat(out[1]), EXACT)
    found = [torch.autograd.grad(weighted_sum(o), list(other.values())) for o in out]
    assert_close(found[0], found[1], EXACT)
    some = {"weight_hh_l1": other["weight_hh_l1"]}
    assert_close(flat(torch.func.functional_call(ours, some, (x,))), flat(torch.func.functional_call(theirs, some, (x,))), EXACT)


def test_func_grad_and_vjp(name: str) -> None:
    ours, theirs = pair(name, 3, 4, 2, dtype=torch.float64)
    x = torch.randn(6, 5, 3, dtype=torch.float64)
    found = []
    for module in (ours, theirs):
        parameters = {key: p.detach() for key, p in module.named_parameters()}
        found.append(torch.func.grad(lambda p, m=module: weighted_sum(torch.func.functional_call(m, p, (x,))))(parameters))
        y, pull = torch.func.vjp(lambda x, m=module: m(x)[0], x)
        found[-1]["x"] = pull(torch.ones_like(y))[0]
    assert_close(found[0], found[1], EXACT)


def test_parameters_that_two_modules_share(name: str) -> None:
    results = []
    for first, second in zip(pair(name, 4, 4, dtype=torch.float64), pair(name, 4, 4, dtype=torch.float64, seed=1)):
        second.weight_hh_l0 = first.weight_hh_l0
        torch.manual_seed(2)
        y, _ = first(torch.randn(6, 5, 4, dtype=torch.float64))
        weighted_sum(second(y)).backward()
        results.append([p.grad for p in [*first.parameters(), *second.parameters()]])
        assert second._flat_weights[1] is first.weight_hh_l0
    assert_close(results[0], results[1], EXACT)


def test_some_parameters_require_no_gradient(name: str) -> None:
    ours, theirs = pair(name, 3, 4, 2, dtype=torch.float64)
    for module in (ours, theirs):
        module.weight_ih_l0.requires_grad_(False)
        module.bias_hh_l1.requires_grad_(False)
    compare(ours, theirs, torch.randn(6, 5, 3, dtype=torch.float64), states_for(ours, 5, True), EXACT)
    for module in (ours, theirs):
        module.requires_grad_(False)
    compare(ours, theirs, torch.randn(6, 5, 3, dtype=torch.float64, requires_grad=True), None, EXACT)
    assert not ours(torch.randn(6, 5, 3, dtype=torch.float64))[0].requires_grad


def test_a_state_of_two_requires_a_gradient() -> None:
    ours, theirs = pair("LSTM", 3, 4, dtype=torch.float64)
    for which in (0, 1):
        hx = tuple(h.requires_grad_(i == which) for i, h in enumerate(states_for(ours, 5)))
        compare(ours.requires_grad_(False), theirs.requires_grad_(False), torch.randn(6, 5, 3, dtype=torch.float64), hx, EXACT)


@pytest.mark.parametrize("what", ["a parameter", "the input", "a state"])
def test_a_change_in_place_before_backward_raises_as_in_torch(name: str, what: str) -> None:
    ours, theirs = pair(name, 3, 4, dtype=torch.float64)
    messages = []
    for module in (ours, theirs):
        x = torch.randn(6, 5, 3, dtype=torch.float64)
        hx = states_for(module, 5)
        loss = weighted_sum(module(x, hx))
        with torch.no_grad():
            {"a parameter": module.weight_hh_l0, "the input": x, "a state": flat(hx)[0]}[what].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as error:
            loss.backward()
        messages.append(str(error.value).split("[", 1)[0])
    assert messages[0] == messages[1]


def test_optimizers_and_clipping(name: str) -> None:
    ours, theirs = pair(name, 3, 4, 2, dtype=torch.float64)
    x = torch.randn(6, 5, 3, dtype=torch.float64)
    for module in (ours, theirs):
        optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
        for _ in range(5):
            optimizer.zero_grad()
            weighted_sum(module(x)).backward()
            nn.utils.clip_grad_norm_(module.parameters(), 0.5)
            optimizer.step()
    assert_close(list(ours.parameters()), list(theirs.parameters()), 1e-8)


def test_parameters_may_be_views_of_one_array(name: str) -> None:
    ours, theirs = pair(name, 3, 4, dtype=torch.float64)
    array = nn.utils.parameters_to_vector(ours.parameters())
    nn.utils.vector_to_parameters(array, ours.parameters())
    compare(ours, theirs, torch.randn(6, 5, 3, dtype=torch.float64), None, EXACT)


def test_hooks_and_sequential(name: str) -> None:
    ours, theirs = pair(name, 3, 4, dtype=torch.float64)
    seen = []
    ours.register_forward_hook(lambda m, args, out: seen.append(out[0].shape))
    ours.register_full_backward_hook(lambda m, before, after: seen.append(before[0].shape))
    x = torch.randn(6, 5, 3, dtype=torch.float64, requires_grad=True)
    compare(ours, theirs, x, None, EXACT)
    assert seen == [torch.Size((6, 5, 4)), torch.Size((6, 5, 3))]


def test_gradients_accumulate(name: str) -> None:
    ours, theirs = pair(name, 3, 4, dtype=torch.float64)
    x = torch.randn(6, 5, 3, dtype=torch.float64)
    for module in (ours, theirs):
        for _ in range(3):
            weighted_sum(module(x)).backward()
    assert_close([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()], EXACT)


# ---- calls without gradients, which have a way of their own ----


def test_calls_without_gradients(name: str) -> None:
    for case in range(12):
        chooser = random.Random(200 + case)
        options = random_options(chooser, name)
        ours, theirs = pair(name, seed=case, dtype=torch.float64, **options)
        batch = chooser.randint(1, 5)
        shape = (batch, 7) if options["batch_first"] else (7, batch)
        x, hx = torch.randn(*shape, options["input_size"], dtype=torch.float64), states_for(ours, batch)
        with torch.no_grad():
            for _ in range(3):
                assert_close(flat(ours(x, hx)), flat(theirs(x, hx)), EXACT)
                assert_close(flat(ours(x)), flat(theirs(x)), EXACT)
            with torch.nn.utils.parametrize.cached():
                nn.utils.parametrizations.weight_norm(ours, "weight_hh_l0")
                assert_close(flat(ours(x)), flat(theirs(x)), EXACT)


class Marked(torch.Tensor):
    """A tensor of a class of its own."""


def test_tensors_of_other_classes(name: str) -> None:
    ours, theirs = pair(name, 3, 4, 2)
    x = torch.randn(6, 5, 3).as_subclass(Marked)
    for training in (True, False):
        with torch.set_grad_enabled(training):
            assert_close(flat(ours(x)), flat(theirs(x)), 1e-5)
            assert type(ours(x)[0]) is type(theirs(x)[0]) is Marked
            wrapped = nn.Parameter(torch.randn(6, 5, 3))
            assert_close(flat(ours(wrapped)), flat(theirs(wrapped)), 1e-5)


def test_modes_see_a_call(name: str) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    ours, _ = pair(name, 3, 4, 2)
    seen: list[str] = []

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    x = torch.randn(6, 5, 3)
    for mode in (Dispatch(), Function()):
        for training in (True, False):
            seen.clear()
            with torch.set_grad_enabled(training), mode:
                ours(x)
            assert any("recurve" in name for name in seen), (mode, training, seen)
    with torch.no_grad(), torch.profiler.profile() as profile:
        ours(x)
    assert any(event.key == "recurve::forward" for event in profile.key_averages())
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        y, _ = ours(mode.from_tensor(x))
    assert type(y).__name__ == "FakeTensor" and y.shape == (6, 5, 4)
