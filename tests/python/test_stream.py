"""Streams: step by step the bits of one call, states of rows, and bad input."""

import gc
import threading
from typing import Any

import numpy as np
import pytest
import recurve

T, B, I, H = 12, 3, 4, 5
PLAN = "combine+fuse+pack"


def make(cell: str = "lstm", dtype: str = "float64") -> recurve.Model:
    return recurve.Model(cell, I, H, 2, dtype=dtype, seed=1, schedule=PLAN)


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("cell", ["lstm", "gru", "qrnn_fo_w2", "sru"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_have_the_bits_of_a_run(cell: str, dtype: str) -> None:
    model = make(cell, dtype)
    x = random(T, B, I).astype(dtype)
    y, final = model.run(x)
    with model.stream(B) as stream:
        assert stream.schedule == PLAN
        steps = np.stack([stream.step(frame) for frame in x])
        np.testing.assert_array_equal(steps, y)
        assert steps.dtype == np.dtype(dtype)
        states = stream.get_states()
    assert states.keys() == final.keys()
    for name in final:
        np.testing.assert_array_equal(states[name], final[name])


def test_chunks_have_the_bits_of_steps() -> None:
    model = make()
    x = random(T, B, I)
    y = model.run(x)[0]
    stream = model.stream(B, most=5)
    found = [stream.step(x[begin : begin + count]) for begin, count in [(0, 5), (5, 1), (6, 4), (10, 2)]]
    np.testing.assert_array_equal(np.concatenate(found), y)


def test_output_in_an_array_of_the_caller() -> None:
    model = make()
    x, out = random(B, I), np.empty((B, H))
    stream = model.stream(B)
    assert stream.step(x, out) is out
    np.testing.assert_array_equal(out, make().stream(B).step(x))
    for wrong in (np.empty((B, H + 1)), np.empty((B, H), np.float32), np.empty((H, B)).T):
        with pytest.raises(ValueError, match="out must be a writable"):
            stream.step(x, wrong)
    with pytest.raises(TypeError, match="not list"):
        stream.step(x, [1.0])  # type: ignore[arg-type]


def test_reset_of_rows() -> None:
    model = make()
    x = random(T, B, I)
    stream = model.stream(B)
    for frame in x[:6]:
        stream.step(frame)
    stream.reset([False, True, False])
    found = np.stack([stream.step(frame) for frame in x[6:]])
    np.testing.assert_array_equal(found[:, ::2], model.run(x)[0][6:, ::2])
    np.testing.assert_array_equal(found[:, 1], model.run(x[6:])[0][:, 1])
    stream.reset()
    np.testing.assert_array_equal(stream.step(x[0]), model.run(x[:1])[0][0])


@pytest.mark.parametrize("cell", ["lstm", "qrnn_fo_w2"])
def test_states_go_from_run_to_stream(cell: str) -> None:
    model = make(cell)
    x = random(T, B, I)
    y, _ = model.run(x)
    _, middle = model.run(x[:6])
    stream = model.stream(B, most=T)
    stream.set_states(middle)
    np.testing.assert_array_equal(stream.step(x[6:]), y[6:])
    stream.reset()
    stream.set_states({"c": middle["c"]})  # others stay
    found = stream.get_states()
    np.testing.assert_array_equal(found["c"], middle["c"])
    assert not any(value.any() for name, value in found.items() if name != "c")


def test_reload_takes_changed_parameters() -> None:
    model = make()
    x = random(B, I)
    stream = model.stream(B)
    before = stream.step(x)
    model.flat_parameters[:] = 0
    stream.reload()
    stream.reset()
    assert before.any() and not stream.step(x).any()


def test_bad_calls_change_nothing() -> None:
    stream = make().stream(B, most=2)
    x = random(T, B, I)
    stream.step(x[0])
    states = stream.get_states()
    wrong: "list[tuple[type[Exception], str, Any]]" = [
        (ValueError, r"x has shape \[2, 4\]; it must be \[batch 3, input 4\]", x[0, :2]),
        (ValueError, r"x has shape \[12\]", x[:, 0, 0]),
        (TypeError, "complex128", x[0] * 1j),
        (ValueError, "3|most", x[:3]),
        (ValueError, "0|step", x[:0]),
    ]
    for error, said, frames in wrong:
        with pytest.raises(error, match=said):
            stream.step(frames)
    with pytest.raises(ValueError, match=r"rows|resets has shape \[2\]"):
        stream.reset([True, False])
    with pytest.raises(ValueError, match="no state"):
        stream.set_states({"k": x})
    with pytest.raises(ValueError, match=r"states\['h'\] has shape"):
        stream.set_states({"h": x})
    for name, value in stream.get_states().items():
        np.testing.assert_array_equal(value, states[name])


def test_closed_stream() -> None:
    stream = make().stream(B)
    stream.close()
    stream.close()
    for call in (lambda: stream.step(random(B, I)), stream.reset, stream.get_states, lambda: stream.schedule):
        with pytest.raises(ValueError, match="the stream is closed"):
            call()


def test_bidirectional_networks_have_no_stream() -> None:
    with pytest.raises(NotImplementedError, match="reverse direction"):
        recurve.Model("lstm", I, H, bidirectional=True).stream()


def test_stream_outlives_its_model() -> None:
    stream = make().stream(B)
    gc.collect()
    assert stream.step(random(B, I)).shape == (B, H)


def test_threads_take_turns() -> None:
    model, rows = make(), 200
    stream = model.stream(1)
    x = random(1, I)
    counted: list[int] = []

    def work() -> None:
        for _ in range(rows):
            stream.step(x)
            counted.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    y = model.run(np.repeat(x[None], 4 * rows, axis=0))[0]
    assert len(counted) == 4 * rows
    np.testing.assert_array_equal(stream.get_states()["h"][1], y[-1])
