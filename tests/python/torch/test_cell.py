"""recurve.nn.Cell: every built-in cell and cells of one's own against PyTorch's operations step by step."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")

import recurve  # noqa: E402
import recurve.nn  # noqa: E402

LEAKY = """
cell leaky(x) {
    state h
    vector gain = 1, rate as weight_rate
    matrix V as weight_lag
    z = tanh(gain * (W x + V x[t-1] + b) + U h)
    h' = h + sigmoid(rate) * (z - h)
    return h' * z[t-1] / (1 + abs(z[t-2]))
}
"""
SIZES = {"slstm": {"heads": 2}, "lstm_proj": {"proj": 3}}
OPTIONS = [
    {},
    {"layers": 2, "bidirectional": True},
    {"layers": 2, "batch_first": True, "bias": False},
    {"zoneout": 0.3},
]


@pytest.fixture(autouse=True)
def in_double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def listed(states):
    return [states] if isinstance(states, torch.Tensor) else list(states)


def compare(cell, x, **given):
    """Outputs, own final states and the gradients of all parameters."""
    reference = cell.as_torch()
    y, final = cell(x, **given)
    want, states = reference(x, **given)
    torch.testing.assert_close(y, want)
    own = [state for state, name in zip(listed(final), cell.state_names) if "[" not in name]
    for a, b in zip(own, listed(states)):
        torch.testing.assert_close(a, b)
    names = [name for name, _ in cell.named_parameters()]
    weight = torch.randn_like(y)
    gradients = torch.autograd.grad((y * weight).sum(), [getattr(cell, name) for name in names])
    expected = torch.autograd.grad((want * weight).sum(), [getattr(reference, name) for name in names], allow_unused=True)
    for a, b in zip(gradients, expected):
        torch.testing.assert_close(a, torch.zeros_like(a) if b is None else b)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", sorted(recurve.builtin_cells()))
def test_built_in_cells(name, options):
    cell = recurve.nn.Cell(name, 5, 6, sizes=SIZES.get(name), **options).eval()
    x = torch.randn(4, 3, 5)
    compare(cell, x)
    if not options.get("batch_first"):
        compare(cell, x, lengths=[4, 2, 1])


@pytest.mark.parametrize("layers", [1, 2])
def test_own_cell(layers):
    cell = recurve.nn.Cell(LEAKY, 6, 6, layers)
    compare(cell, torch.randn(7, 2, 6))
    y, final = cell(torch.randn(6, 6))  # without a batch
    assert y.shape == (6, 6) and len(final) == len(cell.state_names) > 1


def test_parameters():
    torch.manual_seed(3)
    cell = recurve.nn.Cell(LEAKY, 4, 6, 2)
    shapes = {name: tuple(p.shape) for name, p in cell.named_parameters()}
    assert shapes["weight_ih_l0"] == (6, 4) and shapes["weight_hh_l1"] == (6, 6) and shapes["weight_rate_l0"] == (6,)
    assert torch.equal(cell.gain_l0, torch.ones(6))  # as declared
    assert 0 < cell.weight_ih_l0.abs().max() <= 6**-0.5
    torch.manual_seed(3)
    again = recurve.nn.Cell(LEAKY, 4, 6, 2)
    assert all(torch.equal(a, b) for a, b in zip(cell.parameters(), again.parameters()))
    again.load_state_dict({name: value * 2 for name, value in cell.state_dict().items()})
    assert torch.equal(again.weight_hh_l0, 2 * cell.weight_hh_l0)
    with pytest.raises(RuntimeError, match="weight_ih_l0"):
        again.load_state_dict(recurve.nn.Cell(LEAKY, 5, 6, 2).state_dict())


def test_the_lstm_is_torchs():
    cell, theirs = recurve.nn.Cell("lstm", 5, 7, 2), torch.nn.LSTM(5, 7, 2)
    theirs.load_state_dict(cell.state_dict())
    x, hx = torch.randn(4, 3, 5), (torch.randn(2, 3, 7), torch.randn(2, 3, 7))
    (y, (h, c)), (want, (wh, wc)) = cell(x, hx), theirs(x, hx)
    for a, b in ((y, want), (h, wh), (c, wc)):
        torch.testing.assert_close(a, b)


def test_file_copies_and_pickles(tmp_path):
    path = tmp_path / "leaky.cell"
    path.write_text(LEAKY)
    cell = recurve.nn.Cell(path, 6, 6, dropout=0.0, zoneout=0.1).eval()
    x = torch.randn(3, 2, 6)
    for other in (copy.deepcopy(cell), pickle.loads(pickle.dumps(cell))):
        torch.testing.assert_close(other(x)[0], cell(x)[0], rtol=0, atol=0)
    assert "leaky, 6, 6" in repr(cell) and "zoneout=0.1" in repr(cell)


def test_stream_and_plan():
    cell = recurve.nn.Cell("slstm", 5, 6, 2)
    x = torch.randn(9, 3, 5)
    stream = cell.stream(3)
    y = torch.stack([stream.step(x[t]) for t in range(9)])
    want, final = cell(x)
    torch.testing.assert_close(y, want)
    for a, b in zip(stream.states, final):
        torch.testing.assert_close(a, b)
    stream.reset([True, False, False])
    assert stream.states[0][:, 0].abs().sum() == 0 and stream.states[0][:, 1].abs().sum() > 0
    plans = cell.plan(9, 3, effort="estimate")
    assert plans.chosen.reason is None and plans.chosen.bytes > 0
    with pytest.raises(RuntimeError, match=r"reads \[3, 5\]"):
        stream.step(torch.randn(2, 5))
    with pytest.raises(ValueError, match="bidirectional"):
        recurve.nn.Cell("gru", 5, 6, bidirectional=True).stream()


def test_second_derivatives_by_as_torch():
    cell = recurve.nn.Cell(LEAKY, 3, 3)
    x = torch.randn(3, 1, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="as_torch"):
        (g,) = torch.autograd.grad(cell(x)[0].pow(2).sum(), x, create_graph=True)
        g.sum().backward()
    assert torch.autograd.gradgradcheck(lambda x: cell.as_torch()(x)[0], (x,))


def test_wrong_equations_have_a_line_and_a_caret():
    with pytest.raises(recurve.CellError) as caught:
        recurve.nn.Cell("cell a(x) {\n    state h\n    h' = tanh(W x + Q h)\n    return h'\n}", 3, 4)
    assert caught.value.lineno == 3 and caught.value.text.strip() == "h' = tanh(W x + Q h)"
    assert caught.value.text[caught.value.offset - 1] in "Qh"
    with pytest.raises(SyntaxError, match="Q"):
        recurve.nn.Cell("cell a(x) {\n state h\n h' = Q h\n return h'\n}", 3, 4)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        (("lstm", 0, 4), {}, ValueError, "input"),
        (("lstm", 3, 4), {"layers": -1}, ValueError, "layers"),
        (("lstm", 3, 4), {"dropout": 1.5}, ValueError, "dropout"),
        (("lstm", 3, 4), {"sizes": {"nothing": 3}}, ValueError, "nothing"),
        (("slstm", 3, 4), {"sizes": {"heads": 3}}, ValueError, "heads"),
        (("lstmm", 3, 4), {}, ValueError, "lstm"),
    ],
)
def test_wrong_options(arguments, options, error, text):
    with pytest.raises(error, match=text):
        recurve.nn.Cell(*arguments, **options)


def test_wrong_calls():
    cell = recurve.nn.Cell("lstm", 3, 4)
    with pytest.raises(ValueError, match="2D or 3D"):
        cell(torch.randn(3))
    with pytest.raises(RuntimeError, match="Expected 3, got 4"):
        cell(torch.randn(2, 1, 4))
    with pytest.raises(ValueError, match="type"):
        cell(torch.randn(2, 1, 3).float())
    with pytest.raises(RuntimeError, match="the states h, c"):
        cell(torch.randn(2, 1, 3), torch.zeros(1, 1, 4))
    with pytest.raises(RuntimeError, match="Expected state c"):
        cell(torch.randn(2, 1, 3), (torch.zeros(1, 1, 4), torch.zeros(1, 1, 5)))
