"""Models on NumPy arrays against networks written in NumPy, and bad input."""

import copy
import gc
import pickle
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recurve
import reference

T, B, I, H = 7, 3, 4, 5
PLAN = "combine+fuse+pack"


def make(cell: str = "lstm", **options: Any) -> recurve.Model:
    options = {"layers": 2, "dtype": "float64", "effort": "estimate", "seed": 1, **options}
    return recurve.Model(cell, I, H, **options)


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def initial_states(model: recurve.Model, seed: int = 0) -> dict[str, Any]:
    tracks = model.layers * (2 if model.bidirectional else 1)
    return {name: random(tracks, B, H, seed=seed + i) for i, name in enumerate(model.states)}


def sequences() -> "tuple[Any, Any]":
    resets = np.zeros((T, B), bool)
    resets[[2, 5], [0, 1]] = True
    return np.array([T, 4, 1]), resets


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("with_lengths", [False, True])
def test_forward_is_the_reference(cell: str, bidirectional: bool, with_lengths: bool) -> None:
    model = make(cell, bidirectional=bidirectional)
    x, states = random(T, B, I, seed=3), initial_states(model)
    lengths = sequences()[0] if with_lengths else None
    y, final = model.run(x, states, lengths)
    expected, expected_final = reference.run(cell, model.parameters, x, states, 2, bidirectional, lengths)
    assert y.shape == (T, B, model.output)
    np.testing.assert_allclose(y, expected, atol=1e-13)
    for name in model.states:
        np.testing.assert_allclose(final[name], expected_final[name], atol=1e-13)


def test_resets_and_restart() -> None:
    model = make("lstm")
    x, states, restart = random(T, B, I), initial_states(model), initial_states(model, 10)
    lengths, resets = sequences()
    for given in (None, restart):
        y, final = model.run(x, states, lengths, resets, given)
        arguments = model.parameters, x, states, 2, False, lengths, resets, given
        expected, expected_final = reference.run("lstm", *arguments)
        np.testing.assert_allclose(y, expected, atol=1e-13)
        np.testing.assert_allclose(final["c"], expected_final["c"], atol=1e-13)


def test_batch_first_and_other_inputs() -> None:
    model = make(schedule=PLAN)
    x, (lengths, resets) = random(T, B, I), sequences()
    y, final = model.run(x, lengths=lengths, resets=resets)
    turned, turned_final = model.run(x.swapaxes(0, 1), lengths=list(lengths), resets=resets.T, batch_first=True)
    np.testing.assert_array_equal(turned.swapaxes(0, 1), y)
    np.testing.assert_array_equal(turned_final["c"], final["c"])
    np.testing.assert_array_equal(model(x.tolist(), lengths=lengths, resets=resets.astype(int))[0], y)
    np.testing.assert_array_equal(model.run(np.asfortranarray(x), lengths=lengths, resets=resets)[0], y)


def test_partial_states_are_zero_where_not_given() -> None:
    model = make(schedule=PLAN)
    x, states = random(T, B, I), initial_states(model)
    some = model.run(x, {"h": states["h"]})[0]
    np.testing.assert_array_equal(some, model.run(x, {"h": states["h"], "c": np.zeros((2, B, H))})[0])
    assert np.abs(some - model.run(x)[0]).max() > 1e-3


def test_float32_is_near_float64() -> None:
    wide, narrow = make(), make(dtype="float32")
    narrow.assign(wide.parameters)
    x = random(T, B, I)
    y, states = narrow.run(x)
    assert y.dtype == np.float32 and states["h"].dtype == np.float32
    np.testing.assert_allclose(y, wide.run(x)[0], atol=1e-5)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_gradients_are_difference_quotients(cell: str, bidirectional: bool) -> None:
    model = make(cell, bidirectional=bidirectional)
    x, states, restart = random(T, B, I), initial_states(model), initial_states(model, 10)
    lengths, resets = sequences()
    given = {} if bidirectional else {"resets": resets, "restart": restart}
    weights = random(T, B, model.output, seed=5)
    state_weights = initial_states(model, 20)

    def loss() -> float:
        y, final = model.run(x, states, lengths, **given)
        return float((weights * y).sum() + sum((state_weights[n] * final[n]).sum() for n in final))

    found = model.gradients(x, weights, states, lengths, dstates=state_weights, **given)
    np.testing.assert_allclose(found.y, model.run(x, states, lengths, **given)[0], atol=1e-13)
    pairs = [(x, found.x), *((states[n], found.initial[n]) for n in states)]
    pairs += [(model.parameters[n], found.parameters[n]) for n in model.parameters]
    if not bidirectional:
        pairs += [(restart[n], found.restart[n]) for n in restart]
    assert set(found.parameters) == set(model.parameters)
    generator = np.random.default_rng(7)
    for array, gradient in pairs:
        assert gradient.shape == array.shape
        places = [tuple(generator.integers(size) for size in array.shape) for _ in range(4)]
        expected = reference.numerical_gradient(loss, array, places)
        np.testing.assert_allclose([gradient[p] for p in places], expected, rtol=1e-6, atol=1e-8)


def test_dy_as_a_function_and_nested_calls() -> None:
    model = make(schedule=PLAN)
    x = random(T, B, I)

    def dy(y: Any) -> Any:
        model.gradients(random(T, B, I, seed=9), np.ones((T, B, H)))  # has a run of its own
        return 2 * y

    found = model.gradients(x, dy)
    expected = model.gradients(x, 2 * model.run(x)[0])
    np.testing.assert_allclose(found.parameters["weight_hh_l1"], expected.parameters["weight_hh_l1"], atol=1e-13)


def test_dropout_follows_its_seed() -> None:
    model = make(dropout=0.5, schedule=PLAN)
    x, dy = random(T, B, I), np.ones((T, B, H))
    one, again, two = (model.gradients(x, dy, seed=seed).y for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - two).max() > 1e-3
    np.testing.assert_array_equal(model.run(x)[0], make(schedule=PLAN).run(x)[0])  # no dropout


def test_sizes_of_calls_may_change() -> None:
    model = make(schedule=PLAN)
    x = random(20, 9, I)
    whole = model.run(x)[0]
    fresh = make(schedule=PLAN)
    for steps, batch in [(3, 2), (20, 1), (1, 9), (20, 9), (5, 5)]:
        np.testing.assert_array_equal(fresh.run(x[:steps, :batch])[0], whole[:steps, :batch])
        assert fresh.gradients(x[:steps, :batch], whole[:steps, :batch]).x.shape == (steps, batch, I)


def test_empty_batch() -> None:
    model = make()
    y, states = model.run(np.zeros((T, 0, I)))
    assert y.shape == (T, 0, H) and states["h"].shape == (2, 0, H)
    found = model.gradients(np.zeros((T, 0, I)), np.zeros((T, 0, H)))
    assert all(not gradient.any() for gradient in found.parameters.values())


def test_states_of_different_sizes() -> None:
    model = make("qrnn_fo_w2")
    assert model.states == ("c", "x[t-1].l0", "x[t-1].l1")
    x = random(T, B, I)
    y, _ = model.run(x)
    _, middle = model.run(x[:3])
    assert middle["x[t-1].l0"].shape == (B, I) and middle["x[t-1].l1"].shape == (B, H)
    np.testing.assert_array_equal(middle["x[t-1].l0"], x[2])
    np.testing.assert_allclose(model.run(x[3:], middle)[0], y[3:], atol=1e-13)
    without = {name: value for name, value in middle.items() if name != "x[t-1].l0"}
    zero = {**middle, "x[t-1].l0": np.zeros((B, I))}
    np.testing.assert_array_equal(model.run(x[3:], without)[0], model.run(x[3:], zero)[0])


def test_own_cell_and_sizes() -> None:
    cell = "cell a(x) {\n size wide = 4\n state s[wide]\n s' = tanh(W x + U s)\n return s'\n}"
    model = recurve.Model(cell, I, H, sizes={"wide": 6}, dtype="float64", effort="estimate")
    assert model.sizes == {"wide": 6} and model.output == 6 and model.cell == recurve.compile(cell)
    x, p = random(T, B, I), model.parameters
    s = np.zeros((B, 6))
    for t in range(T):
        s = np.tanh(x[t] @ p["weight_ih_l0"].T + s @ p["weight_hh_l0"].T)
    np.testing.assert_allclose(model.run(x)[0][-1], s, atol=1e-13)


def test_reverse_direction_alone() -> None:
    forward, reverse = make(), make(reverse=True)
    x, lengths = random(T, B, I), sequences()[0]
    y = reverse.run(x, lengths=lengths)[0]
    for row, length in enumerate(lengths):
        turned = forward.run(x[:length, row : row + 1][::-1])[0][::-1]
        np.testing.assert_allclose(y[:length, row : row + 1], turned, atol=1e-13)


def test_parameters_are_views() -> None:
    model = make(schedule=PLAN)
    assert list(model.parameters)[:4] == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    assert sum(a.size for a in model.parameters.values()) == model.flat_parameters.size
    assert np.abs(model.flat_parameters).max() <= 1 / np.sqrt(H) and model.flat_parameters.std() > 0.1
    x = random(T, B, I)
    y = model.run(x)[0]
    model.parameters["weight_ih_l0"][...] = 0
    assert not model.flat_parameters[: 4 * H * I].any() and np.abs(model.run(x)[0] - y).max() > 1e-3
    with pytest.raises(TypeError):
        model.parameters["weight_ih_l0"] = 0  # type: ignore[index]


def test_parameters_outlive_the_model() -> None:
    model = make()
    array, values = model.parameters["weight_hh_l1"], model.parameters["weight_hh_l1"].copy()
    handle = weakref.ref(model._handle)
    del model
    gc.collect()
    assert handle() is not None
    np.testing.assert_array_equal(array, values)
    del array
    gc.collect()
    assert handle() is None


def test_assign_changes_all_or_nothing() -> None:
    model, other = make(seed=1), make(seed=2)
    before = model.flat_parameters.copy()
    good = dict(other.parameters)
    wrong: list[Any] = [
        {**good, "bias_hh_l1": np.zeros(3)},
        {name: good[name] for name in list(good)[1:]},
        {**good, "more": np.zeros(3)},
        {**good, "bias_hh_l1": np.array(["a"] * 4 * H)},
    ]
    for parameters in wrong:
        with pytest.raises((ValueError, TypeError), match="parameters"):
            model.assign(parameters)
        np.testing.assert_array_equal(model.flat_parameters, before)
    model.assign(good)
    np.testing.assert_array_equal(model.flat_parameters, other.flat_parameters)


def test_freeze() -> None:
    model = make(schedule=PLAN)
    x = random(T, B, I)
    y = model.run(x)[0]
    assert model.freeze() is model
    for _ in range(3):
        np.testing.assert_array_equal(model.run(x)[0], y)
    with pytest.raises(ValueError, match="read-only"):
        model.parameters["weight_ih_l0"][0, 0] = 1
    with pytest.raises(ValueError, match="frozen"):
        model.assign(dict(model.parameters))
    model.freeze(False)
    model.flat_parameters[:] *= 2
    changed = model.run(x)[0]
    assert np.abs(changed - y).max() > 1e-3
    model.freeze()
    np.testing.assert_array_equal(model.run(x)[0], changed)
    np.testing.assert_array_equal(model.run(x)[0], changed)
    model.freeze(False)
    model.flat_parameters[:] = 0
    model.freeze()
    assert not model.run(x)[0].any()


def test_save_and_load(tmp_path: Path) -> None:
    model = make(bidirectional=True, schedule=PLAN)
    path = tmp_path / "network.safetensors"
    model.save(path)
    x = random(T, B, I)
    for again in (recurve.Model.load(path, dtype="float64", schedule=PLAN), recurve.load(path, dtype="float64")):
        assert isinstance(again, recurve.Model)
        assert (again.input, again.hidden, again.layers, again.bidirectional) == (I, H, 2, True)
        np.testing.assert_array_equal(again.flat_parameters, model.flat_parameters)
        np.testing.assert_allclose(again.run(x)[0], model.run(x)[0], atol=1e-13)


def test_low_rank() -> None:
    model = make()
    small = model.low_rank(2)
    assert small.flat_parameters.size < model.flat_parameters.size
    assert small.run(random(T, B, I))[0].shape == (T, B, H)
    full = model.low_rank(4)  # of the smaller side of weight_ih_l0
    assert full.flat_parameters.size > small.flat_parameters.size


def test_threads_share_a_model() -> None:
    model = make(schedule=PLAN)
    inputs = [random(T, B, I, seed=seed) for seed in range(8)]
    expected = [model.run(x)[0] for x in inputs]
    found: list[Any] = [None] * 8

    def work(index: int) -> None:
        for _ in range(20):
            found[index] = model.run(inputs[index])[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for got, wanted in zip(found, expected):
        np.testing.assert_array_equal(got, wanted)


def test_plans() -> None:
    model = make(effort="measure")
    plans = model.plan(T, B, training=True)
    assert len(plans) > 3 and plans.chosen in list(plans) and plans.chosen.reason is None
    assert sum(candidate.chosen for candidate in plans) == 1
    timed = [c.seconds for c in plans if c.seconds is not None and c.reason is None]
    assert timed and timed == sorted(timed)
    table = str(plans).splitlines()
    assert "measured ms" in table[0] and any(line.startswith("* ") and plans.chosen.schedule in line for line in table)
    refused = [c for c in plans if c.reason is not None]
    assert all(c.reason in str(plans) for c in refused if c.reason)
    pinned = model.plan(T, B, schedule="naive")
    assert [c.schedule for c in pinned] == ["naive"]
    with pytest.raises(ValueError, match="effort 'much'"):
        model.plan(T, B, effort="much")
    with pytest.raises(ValueError, match="nonsense"):
        model.plan(T, B, schedule="nonsense")


def test_background_plan_is_right() -> None:
    model = make(effort="background")
    x = random(T, B, I)
    expected = reference.run("lstm", model.parameters, x, {n: np.zeros((2, B, H)) for n in "hc"}, 2)[0]
    for _ in range(30):
        np.testing.assert_allclose(model.run(x)[0], expected, atol=1e-12)


def test_repr_and_copies() -> None:
    model = make()
    assert "lstm" in repr(model) and "hidden 5" in repr(model)
    for copies in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="save the model"):
            copies(model)


# ---- bad input: a documented exception, one sentence, and nothing is changed

X = np.zeros((T, B, I))
BAD_CALLS: "list[tuple[type[Exception], str, dict[str, Any]]]" = [
    (ValueError, r"x has shape \[7, 4\]; it must be \[steps, batch, input 4\]", {"x": X[:, 0]}),
    (ValueError, r"x has shape \[7, 3, 5\]", {"x": np.zeros((T, B, 5))}),
    (ValueError, "no time steps", {"x": X[:0]}),
    (ValueError, "rows have different lengths", {"x": [[1.0], [1.0, 2.0]]}),
    (TypeError, "complex128", {"x": X * 1j}),
    (TypeError, "<U", {"x": np.full((T, B, I), "a")}),
    (TypeError, "object", {"x": np.full((T, B, I), None)}),
    (ValueError, r"lengths\[1\] is 0; it must be in 1..7", {"lengths": [1, 0, 2]}),
    (ValueError, r"lengths\[2\] is 8", {"lengths": [1, 1, 8]}),
    (ValueError, r"lengths\[0\] is -1", {"lengths": [-1, 1, 1]}),
    (TypeError, "whole numbers", {"lengths": [1.0, 2.0, float("nan")]}),
    (ValueError, r"lengths has shape \[2\]", {"lengths": [1, 2]}),
    (ValueError, r"resets has shape \[3, 7\]", {"resets": np.zeros((B, T), bool)}),
    (TypeError, "resets is an array of float64", {"resets": np.full((T, B), np.nan)}),
    (TypeError, "map names of states", {"states": (X, X)}),
    (ValueError, "'k', which is no state", {"states": {"k": X}}),
    (ValueError, r"states\['c'\] has shape", {"states": {"c": np.zeros((2, B, 4))}}),
    (ValueError, r"restart\['h'\] has shape", {"restart": {"h": np.zeros((1, B, H))}}),
]


@pytest.mark.parametrize("error, said, given", BAD_CALLS)
def test_bad_calls(error: "type[Exception]", said: str, given: "dict[str, Any]") -> None:
    model = make(schedule=PLAN)
    x = random(T, B, I)
    expected = model.run(x)[0]
    for call in (model.run, lambda x, **more: model.gradients(x, np.zeros((T, B, H)), **more)):
        with pytest.raises(error, match=said) as caught:
            call(**{"x": X, **given})
        assert "\n" not in str(caught.value)
    np.testing.assert_array_equal(model.run(x)[0], expected)


def test_restart_without_resets_is_refused_or_unused() -> None:
    model = make(schedule=PLAN)
    x = random(T, B, I)
    try:
        y = model.run(x, restart=initial_states(model))[0]
    except ValueError as error:
        assert "reset" in str(error)
    else:
        np.testing.assert_array_equal(y, model.run(x)[0])


@pytest.mark.parametrize(
    "error, said, options",
    [
        (ValueError, "hidden", {"hidden": 0}),
        (ValueError, "hidden is -1", {"hidden": -1}),
        (TypeError, "hidden is 2.5", {"hidden": 2.5}),
        (TypeError, "layers is True", {"layers": True}),
        (ValueError, "dtype 'float31'; there are float32", {"dtype": "float31"}),
        (ValueError, "dropout", {"dropout": 1.5}),
        (ValueError, "zoneout", {"zoneout": float("nan")}),
        (ValueError, "wide", {"sizes": {"wide": 3}}),
        (ValueError, "tpu", {"device": "tpu"}),
        (ValueError, "seed is -1", {"seed": -1}),
        (ValueError, "no built-in cell 'lstmm'", {"cell": "lstmm"}),
    ],
)
def test_bad_networks(error: "type[Exception]", said: str, options: "dict[str, Any]") -> None:
    with pytest.raises(error, match=said) as caught:
        recurve.Model(**{"cell": "lstm", "input": I, "hidden": H, **options})
    assert "\n" not in str(caught.value)


def test_bad_gradients() -> None:
    model = make(schedule=PLAN)
    x = random(T, B, I)
    with pytest.raises(ValueError, match=r"dy has shape \[7, 3, 4\]"):
        model.gradients(x, X)
    with pytest.raises(ValueError, match="dy has shape"):
        model.gradients(x, lambda y: y[0])
    with pytest.raises(ZeroDivisionError):
        model.gradients(x, lambda y: 1 // 0)
    with pytest.raises(ValueError, match="dstates"):
        model.gradients(x, np.zeros((T, B, H)), dstates={"g": X})
    model.gradients(x, np.zeros((T, B, H)))


def test_dtypes_of_a_gpu_are_refused_on_the_cpu() -> None:
    with pytest.raises((NotImplementedError, ValueError), match="GPU|CPU|cpu"):
        recurve.Model("lstm", I, H, dtype="tfloat32").run(X)


# ---- PyTorch, where it is installed


@pytest.mark.parametrize("cell, layer", [("lstm", "LSTM"), ("gru", "GRU")])
def test_torch_has_the_same_numbers(cell: str, layer: str, tmp_path: Path) -> None:
    pytest.importorskip("torch.nn")
    import torch

    torch.manual_seed(1)
    theirs = getattr(torch.nn, layer)(I, H, 2, bidirectional=True, dtype=torch.float64)
    ours = make(cell, bidirectional=True)
    for name, parameter in theirs.named_parameters():
        np.testing.assert_allclose(ours.parameters[name], parameter.detach().numpy(), atol=1e-7)  # of the same seed
    ours.assign({name: parameter.detach().numpy() for name, parameter in theirs.named_parameters()})
    x, weights = random(T, B, I), random(T, B, 2 * H, seed=2)
    input = torch.tensor(x, requires_grad=True)
    y, _ = theirs(input)
    (y * torch.tensor(weights)).sum().backward()
    found = ours.gradients(x, weights)
    np.testing.assert_allclose(found.y, y.detach().numpy(), atol=1e-13)
    np.testing.assert_allclose(found.x, input.grad.numpy(), atol=1e-12)
    for name, parameter in theirs.named_parameters():
        np.testing.assert_allclose(found.parameters[name], parameter.grad.numpy(), atol=1e-12)


# ---- devices


def compare_devices(one: recurve.Model, other: recurve.Model, tolerance: float) -> None:
    """Calls of several sizes, with everything that a call can give."""
    lengths, resets = sequences()
    states, restart = initial_states(one), initial_states(one, 10)
    for batch in (B, 1, B):
        rows = {name: value[:, :batch] for name, value in states.items()}
        again = {name: value[:, :batch] for name, value in restart.items()}
        x = random(T, batch, I, seed=batch)
        given = {"lengths": lengths[:batch], "resets": resets[:, :batch], "restart": again}
        found, expected = (model.run(x, rows, **given) for model in (one, other))
        np.testing.assert_allclose(found[0], expected[0], atol=tolerance)
        np.testing.assert_allclose(found[1]["c"], expected[1]["c"], atol=tolerance)
        left, right = (model.gradients(x, np.cos, rows, **given, dstates=again) for model in (one, other))
        np.testing.assert_allclose(left.x, right.x, atol=tolerance)
        for name in ("parameters", "initial", "restart"):
            for key, value in getattr(left, name).items():
                np.testing.assert_allclose(value, getattr(right, name)[key], atol=10 * tolerance)


def test_copies_for_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from recurve import _runs

    class Copies(_runs.Memory):
        """Copies as for a GPU, in memory that the library has allocated on the CPU."""

        def __init__(self, device: bytes) -> None:
            super().__init__(device)
            self.is_host = False

    expected = make(schedule=PLAN)
    monkeypatch.setattr(_runs, "Memory", Copies)
    model = make(schedule=PLAN)
    compare_devices(model, expected, 0)
    model.freeze()
    for _ in range(2):
        np.testing.assert_array_equal(model.run(X)[0], expected.run(X)[0])


def test_gpu() -> None:
    try:
        model = make(device="cuda", effort="measure")
    except (ValueError, NotImplementedError, OSError) as error:
        pytest.skip(str(error))
    compare_devices(model, make(), 1e-12)
    x = random(T, B, I)
    with model.stream(B) as stream:
        np.testing.assert_allclose(np.stack([stream.step(frame) for frame in x]), make().run(x)[0], atol=1e-12)
