"""recurve.scan on tensors of PyTorch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import recurve  # noqa: E402
import recurve.nn  # noqa: E402


def by_hand(a, b, initial=None, lengths=None, resets=None, reverse=False):
    """h[t] = a[t] h[t-1] + b[t], step by step."""
    steps, batch, channels = a.shape
    first = torch.zeros(batch, channels, dtype=a.dtype) if initial is None else initial
    lengths = torch.full((batch,), steps) if lengths is None else torch.as_tensor(lengths)
    h, out = first, [None] * steps
    for t in reversed(range(steps)) if reverse else range(steps):
        before = h if resets is None else torch.where(resets[t].unsqueeze(-1), first, h)
        there = (t < lengths).unsqueeze(-1)
        value = a[t] * before + b[t]
        h = torch.where(there, value, h)
        out[t] = torch.where(there, value, torch.zeros_like(value))
    return torch.stack(out)


CASES = [
    {},
    {"initial": True},
    {"reverse": True},
    {"lengths": [5, 9, 1]},
    {"resets": True, "initial": True},
    {"lengths": [9, 2, 4], "initial": True, "reverse": True},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_a_loop(case):
    torch.manual_seed(1)
    a, b = (torch.rand(9, 3, 4, dtype=torch.float64).requires_grad_() for _ in range(2))
    given = {"reverse": case.get("reverse", False), "lengths": case.get("lengths")}
    tensors = [a, b]
    if "initial" in case:
        given["initial"] = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
        tensors.append(given["initial"])
    if "resets" in case:
        given["resets"] = torch.rand(9, 3) < 0.3
    ours, theirs = recurve.scan(a, b, **given), by_hand(a, b, **given)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(ours)
    for p, q in zip(torch.autograd.grad((ours * weight).sum(), tensors), torch.autograd.grad((theirs * weight).sum(), tensors)):
        torch.testing.assert_close(p, q, rtol=1e-11, atol=1e-11)


def test_gradcheck_and_opcheck():
    a, b = (torch.rand(6, 2, 3, dtype=torch.float64).requires_grad_() for _ in range(2))
    initial = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(recurve.nn.scan, (a, b, initial))
    torch.library.opcheck(torch.ops.recurve.scan.default, (a, b, [initial], [], [], False))
    with pytest.raises(RuntimeError, match="second derivatives"):
        (g,) = torch.autograd.grad(recurve.scan(a, b).sum(), a, create_graph=True)
        g.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtypes_without_a_batch(dtype):
    a, b = torch.rand(50, 8).to(dtype), torch.rand(50, 8).to(dtype)
    h = recurve.scan(a, b, initial=torch.ones(8))
    assert h.dtype == dtype and h.shape == (50, 8)
    want = by_hand(a.double().unsqueeze(1), b.double().unsqueeze(1), torch.ones(1, 8, dtype=torch.float64)).squeeze(1)
    torch.testing.assert_close(h.double(), want, rtol=1e-2 if dtype != torch.float32 else 1e-5, atol=1e-2)


def test_compiled():
    def f(a, b):
        return recurve.nn.scan(torch.sigmoid(a), b).tanh()

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=True)
    for steps in (5, 7):
        a = torch.randn(steps, 2, 3, requires_grad=True)
        b = torch.randn(steps, 2, 3)
        ours, plain = compiled(a, b), f(a, b)
        torch.testing.assert_close(ours, plain)
        torch.testing.assert_close(torch.autograd.grad(ours.sum(), a), torch.autograd.grad(plain.sum(), a))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((torch.rand(3, 2), torch.rand(3, 3)), RuntimeError, "one shape"),
        ((torch.rand(3), torch.rand(3)), RuntimeError, "got 1 dimensions"),
        ((torch.rand(3, 2), torch.rand(3, 2).double()), RuntimeError, "one dtype"),
        ((torch.ones(3, 2, dtype=torch.int64), torch.ones(3, 2, dtype=torch.int64)), RuntimeError, "floats"),
        ((torch.rand(3, 2, 4), torch.rand(3, 2, 4), torch.rand(4)), RuntimeError, r"shape \[2, 4\]"),
        ((torch.rand(3, 2, 4), torch.rand(3, 2, 4), None, [4, 1]), RuntimeError, "not in 1 to 3"),
        ((torch.rand(3, 2, 4), torch.rand(3, 2, 4), None, [1.5, 1.0]), TypeError, "integers"),
    ],
)
def test_bad_input(arguments, error, text):
    with pytest.raises(error, match=text):
        recurve.nn.scan(*arguments)
