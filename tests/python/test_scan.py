"""Linear recurrences against a loop in NumPy."""

from typing import Any

import numpy as np
import pytest
import recurve
import reference

T, B, C = 9, 3, 4


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def loop(a: Any, b: Any, initial: Any = None, lengths: Any = None, resets: Any = None, reverse: bool = False) -> Any:
    initial = np.zeros(a.shape[1:]) if initial is None else initial
    lengths = np.full(a.shape[1], len(a)) if lengths is None else np.asarray(lengths)
    h, state = np.zeros(a.shape), np.array(initial, float)
    for t in range(len(a))[:: -1 if reverse else 1]:
        if resets is not None:
            state = np.where(np.asarray(resets)[t][:, None], initial, state)
        active = (t < lengths)[:, None]
        state = np.where(active, a[t] * state + b[t], state)
        h[t] = np.where(active, state, 0)
    return h


CASES: "list[dict[str, Any]]" = [
    {},
    {"initial": random(B, C, seed=2)},
    {"lengths": [T, 4, 1]},
    {"resets": random(T, B, seed=3) > 0.5, "initial": random(B, C, seed=2)},
    {"reverse": True, "lengths": [T, 4, 1], "initial": random(B, C, seed=2)},
]


@pytest.mark.parametrize("given", CASES)
def test_scan_is_the_loop(given: "dict[str, Any]") -> None:
    a, b = random(T, B, C), random(T, B, C, seed=1)
    np.testing.assert_allclose(recurve.scan(a, b, **given), loop(a, b, **given), atol=1e-13)
    narrow = recurve.scan(a.astype(np.float32), b.astype(np.float32), **given)
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, loop(a, b, **given), atol=1e-4)


@pytest.mark.parametrize("given", CASES)
def test_gradients_are_difference_quotients(given: "dict[str, Any]") -> None:
    a, b, weights = random(T, B, C), random(T, B, C, seed=1), random(T, B, C, seed=4)
    given = {"initial": np.zeros((B, C)), **given}

    def loss() -> float:
        return float((weights * loop(a, b, **given)).sum())

    found = recurve.scan_gradients(a, recurve.scan(a, b, **given), weights, **given)
    for array, gradient in [(a, found.a), (b, found.b), (given["initial"], found.initial)]:
        assert gradient.shape == array.shape
        places = list(np.ndindex(*array.shape))
        expected = reference.numerical_gradient(loss, array, places)
        np.testing.assert_allclose(gradient.reshape(-1), expected, rtol=1e-6, atol=1e-8)


def test_without_a_batch() -> None:
    a, b = random(T, C), random(T, C, seed=1)
    np.testing.assert_allclose(recurve.scan(a, b), loop(a[:, None], b[:, None])[:, 0], atol=1e-13)
    resets = np.arange(T) == 4
    np.testing.assert_allclose(recurve.scan(a, b, resets=resets)[4:], recurve.scan(a[4:], b[4:]), atol=1e-13)
    np.testing.assert_array_equal(recurve.scan(a, b, lengths=5)[5:], 0)
    found = recurve.scan_gradients(a, recurve.scan(a, b), np.ones((T, C)))
    assert found.initial.shape == (C,) and found.a.shape == (T, C)


def test_types() -> None:
    ones = np.ones((T, C))
    assert recurve.scan(ones.astype(np.float16), ones.astype(np.float16)).dtype == np.float16
    assert recurve.scan(ones.astype(int), ones.astype(np.float32)).dtype == np.float64
    np.testing.assert_array_equal(recurve.scan(ones.tolist(), ones.tolist())[:, 0], np.arange(1, T + 1))


def test_empty_arrays() -> None:
    assert recurve.scan(np.zeros((T, 0, C)), np.zeros((T, 0, C))).shape == (T, 0, C)
    assert recurve.scan_gradients(*[np.zeros((T, 0))] * 3).initial.shape == (0,)


def test_many_shapes_are_not_kept() -> None:
    from recurve import scans

    for channels in range(1, 40):
        recurve.scan(np.ones((2, channels)), np.ones((2, channels)))
    assert len(scans._kept) <= scans._MOST_KEPT


A = np.ones((T, B, C))


@pytest.mark.parametrize(
    "error, said, arguments, given",
    [
        (
            ValueError,
            r"b has shape \[9, 3, 5\]; it must be \[steps 9, batch 3, channels 4\]",
            (A, np.ones((T, B, 5))),
            {},
        ),
        (ValueError, r"a has shape \[9\]", (A[:, 0, 0], A), {}),
        (ValueError, "no time steps", (A[:0], A[:0]), {}),
        (ValueError, "rows have different lengths", ([[1.0], [1.0, 2.0]], A), {}),
        (TypeError, "complex128", (A * 1j, A), {}),
        (TypeError, "float", (np.full(A.shape, "a"), A), {}),
        (ValueError, r"initial has shape \[3, 5\]", (A, A), {"initial": np.ones((B, 5))}),
        (ValueError, r"lengths\[1\] is 10", (A, A), {"lengths": [1, 10, 1]}),
        (TypeError, "whole numbers", (A, A), {"lengths": [1.0, 2.0, np.nan]}),
        (ValueError, "resets has shape", (A, A), {"resets": np.zeros((B, T), bool)}),
    ],
)
def test_bad_calls(error: "type[Exception]", said: str, arguments: Any, given: "dict[str, Any]") -> None:
    with pytest.raises(error, match=said):
        recurve.scan(*arguments, **given)


def test_bad_gradients() -> None:
    with pytest.raises(ValueError, match="h has shape"):
        recurve.scan_gradients(A, A[:, :, :2], A)
    with pytest.raises(ValueError, match="dh has shape"):
        recurve.scan_gradients(A, A, A[:, :, :2])


def test_tensors_go_to_the_torch_module(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    class Tensor:
        pass

    calls = []
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=Tensor))  # type: ignore[arg-type]
    fake = types.SimpleNamespace(scan=lambda *arguments: calls.append(arguments))
    monkeypatch.setitem(sys.modules, "recurve.nn", fake)  # type: ignore[arg-type]
    a, b = Tensor(), Tensor()
    recurve.scan(a, b, reverse=True)
    assert calls == [(a, b, None, None, None, True)]
