"""Statuses as exceptions, exceptions of callbacks, Ctrl-C in calls, and objects that are freed in order."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import recurve
from recurve._native import errors, loader


@pytest.mark.parametrize(
    "status, kind",
    [
        (errors.INVALID, ValueError),
        (errors.SYNTAX, recurve.CellError),
        (errors.FORMAT, ValueError),
        (errors.IO, OSError),
        (errors.NO_MEMORY, MemoryError),
        (errors.UNSUPPORTED, NotImplementedError),
        (errors.STOPPED, recurve.Stopped),
        (errors.PEER, RuntimeError),
    ],
)
def test_statuses(status: int, kind: "type[Exception]") -> None:
    error = errors.exception(status, "a sentence")
    assert type(error) is kind and "a sentence" in str(error)


def test_statuses_are_numbered_as_in_the_library() -> None:
    names = ["ok", "invalid", "syntax", "format", "io", "no memory", "unsupported", "stopped"]
    name_of = loader.native().rcv_status_name
    name_of.restype, name_of.argtypes = loader.ctypes.c_char_p, [loader.ctypes.c_int]
    assert [name_of(status).decode() for status in range(len(names))] == names


def test_file_errors_are_of_their_kind() -> None:
    for code, kind in ((2, FileNotFoundError), (13, PermissionError), (21, IsADirectoryError)):
        assert type(errors.exception(errors.IO, f"cannot open x: {os.strerror(code)}")) is kind


def test_not_enough_memory_is_a_memory_error() -> None:
    with pytest.raises((MemoryError, ValueError), match="memory|large|elements"):
        recurve.Model("lstm", 1 << 30, 1 << 30)


def test_first_exception_of_a_callback_is_kept() -> None:
    callbacks = errors.Callbacks()
    calls: list[int] = []

    def fail(number: int) -> None:
        calls.append(number)
        raise KeyError(number)

    callback = callbacks.wrap(fail)

    def library_call() -> str:
        assert not callback(1) and not callback(2)
        raise recurve.Stopped("stopped")

    with pytest.raises(KeyError, match="1") as caught:
        callbacks.run(library_call)
    assert calls == [1] and caught.value.__cause__ is None


def test_result_of_a_callback() -> None:
    callbacks = errors.Callbacks()
    assert callbacks.wrap(lambda: None)() and callbacks.wrap(lambda: True)() and not callbacks.wrap(lambda: False)()
    with pytest.raises(recurve.Stopped):
        callbacks.run(lambda: (_ for _ in ()).throw(recurve.Stopped("asked")))
    assert callbacks.run(lambda: 3) == 3


def test_ctrl_c_ends_a_search() -> None:
    model = recurve.Model("lstm", 512, 512, 4)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        model.plan(200, 64, training=True, effort="exhaustive")
    assert time.monotonic() - begin < 60
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_own_signal_handler_is_called() -> None:
    called: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: called.append(number))
    try:
        errors.Callbacks().run(os.kill, os.getpid(), signal.SIGINT)
        assert called == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_calls_in_other_threads_leave_signals_alone() -> None:
    found: list[object] = []
    thread = threading.Thread(
        target=lambda: found.append(errors.Callbacks().run(lambda: signal.getsignal(signal.SIGINT)))
    )
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]


def test_garbage_is_freed_after_what_was_made_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[str] = []
    real = loader._free

    def free(function: object, pointer: object, parents: object) -> None:
        freed.append(getattr(function, "__name__", ""))
        real(function, pointer, parents)  # type: ignore[arg-type]

    monkeypatch.setattr(loader, "_free", free)
    model = recurve.Model("lstm", 3, 4, schedule="naive")
    model.run(np.zeros((2, 1, 3)))
    model.cycle = model  # type: ignore[attr-defined]
    del model
    gc.collect()
    order = [name for name in freed if name.startswith("rcv_")]
    assert order[-5:] == ["rcv_run_free", "rcv_plan_free", "rcv_model_free", "rcv_net_free", "rcv_cell_free"]


def test_exit_with_a_search_in_the_background() -> None:
    code = (
        "import numpy, recurve\n"
        "m = recurve.Model('lstm', 256, 256, 2)\n"
        "m.run(numpy.zeros((50, 16, 256)))\n"
        "s = m.stream()\n"
        "print('done')\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (found.returncode, found.stdout, found.stderr) == (0, "done\n", "")


def test_child_of_fork_may_use_a_model() -> None:
    model = recurve.Model("lstm", 3, 4, schedule="combine+fuse+pack")
    x = np.ones((5, 2, 3))
    expected = model.run(x)[0]
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(model.run(x)[0], expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
