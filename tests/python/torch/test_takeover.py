"""recurve.takeover(): unmodified modules of torch.nn run by recurve, and again by PyTorch afterwards."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import recurve  # noqa: E402
import recurve.nn  # noqa: E402
from recurve.nn import _takeover  # noqa: E402

MODULES = [
    (torch.nn.LSTM, {"proj_size": 3}),
    (torch.nn.LSTM, {"bias": False}),
    (torch.nn.GRU, {"batch_first": True}),
    (torch.nn.RNN, {"nonlinearity": "relu"}),
    (torch.nn.RNN, {}),
]


@pytest.fixture
def calls(monkeypatch):
    """How often recurve ran a network."""
    seen = []
    original = _takeover._run

    def counted(*arguments):
        seen.append(1)
        return original(*arguments)

    monkeypatch.setattr(_takeover, "_run", counted)
    return seen


@pytest.mark.parametrize(("kind", "options"), MODULES, ids=str)
def test_the_same_results(kind, options, calls):
    module = kind(5, 7, 2, bidirectional=True, **options).double()
    x = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    pieces = [torch.randn(n, 5, dtype=torch.float64) for n in (2, 5, 3)]
    packed = torch.nn.utils.rnn.pack_sequence(pieces, enforce_sorted=False)

    def results():
        y, _ = module(x)
        z, _ = module(packed)
        with torch.inference_mode():
            plain = module(x.detach())[0].clone()
        gradients = torch.autograd.grad(y.pow(2).sum() + z.data.pow(2).sum(), [x, *module.parameters()])
        return [y, z.data, plain, *gradients]

    want = results()
    assert not calls
    with recurve.takeover():
        found = results()
    assert len(calls) == 3
    for a, b in zip(found, want):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    module(x)
    assert len(calls) == 3  # it was taken back


def test_dropout_and_evaluation(calls):
    module = torch.nn.LSTM(4, 8, 2, dropout=0.5)
    x = torch.randn(6, 3, 4)
    with recurve.takeover():
        torch.manual_seed(1)
        a = module(x)[0]
        torch.manual_seed(1)
        b = module(x)[0]
        c = module(x)[0]
        assert torch.equal(a, b) and not torch.equal(a, c)
        module.eval()
        y = module(x)[0]
    torch.testing.assert_close(y, module(x)[0])


def test_scripts(calls):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = torch.nn.LSTM(3, 4)

        def forward(self, x):
            return self.network(x)[0]

    model = torch.jit.script(Model())
    x = torch.randn(2, 1, 3)
    want = model(x)
    with recurve.takeover():
        torch.testing.assert_close(model(x), want)
    assert len(calls) == 1


def test_what_recurve_does_not_run(calls):
    meta = torch.nn.LSTM(3, 4, device="meta")
    with recurve.takeover():
        assert meta(torch.randn(2, 1, 3, device="meta"))[0].shape == (2, 1, 4)
        with pytest.raises(RuntimeError):
            torch.nn.LSTM(3, 4)(torch.randn(2, 1, 5))
    assert not calls


def test_as_torch_stays_torchs(calls):
    module = recurve.nn.GRU(3, 4).double()
    plain = module.as_torch()
    x = torch.randn(2, 2, 3, dtype=torch.float64, requires_grad=True)
    with recurve.takeover():
        assert torch.autograd.gradgradcheck(lambda x: plain(x)[0], (x,))
    assert not calls
    assert plain.weight_ih_l0 is module.weight_ih_l0


def test_twice_is_once():
    first = recurve.takeover()
    assert recurve.takeover() is first
    first.undo()
    first.undo()
    assert recurve.takeover() is not first
    recurve.takeover().undo()
