"""Statuses of the library as Python exceptions, and exceptions of callbacks."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

OK, INVALID, SYNTAX, FORMAT, IO, NO_MEMORY, UNSUPPORTED, STOPPED, PEER = range(9)

Result = TypeVar("Result")


class CellError(SyntaxError, ValueError):
    """The equations of a cell are wrong: `filename`, `lineno`, `offset` and `text` say where."""


class Stopped(Exception):
    """A callback asked to stop."""


_KINDS: dict[int, type[Exception]] = {
    INVALID: ValueError,
    FORMAT: ValueError,
    NO_MEMORY: MemoryError,
    UNSUPPORTED: NotImplementedError,
    STOPPED: Stopped,
    PEER: RuntimeError,
}
_FILE_ERRORS: dict[int, type[OSError]] = {
    errno.ENOENT: FileNotFoundError,
    errno.EACCES: PermissionError,
    errno.EISDIR: IsADirectoryError,
}
# FILE:LINE:COLUMN: message, then the line of the text and a caret below it
_SYNTAX = re.compile(
    r"(?P<file>.*?):(?P<line>\d+):(?P<column>\d+): (?P<message>[^\n]*)(?:\n {2}(?P<text>[^\n]*)\n {2}(?P<space> *)\^)?"
)


def _cell_error(message: str) -> CellError:
    found = _SYNTAX.match(message)
    if found is None:
        return CellError(message)
    # Of a long line only a part is shown: the offset is that of the caret below it.
    offset = len(found["space"]) + 1 if found["text"] is not None else int(found["column"])
    return CellError(found["message"], (found["file"], int(found["line"]), offset, found["text"]))


def _file_error(message: str) -> OSError:
    for code, kind in _FILE_ERRORS.items():
        if os.strerror(code) in message:
            return kind(message)
    return OSError(message)


def exception(status: int, message: str) -> Exception:
    """The exception for a status that is not OK, with the library's sentence."""
    if status == SYNTAX:
        return _cell_error(message)
    if status == IO:
        return _file_error(message)
    return _KINDS.get(status, RuntimeError)(message)


class Callbacks:
    """Runs Python functions as callbacks of one call, and keeps what they raise.

    No exception can pass through C: the first one asks the library to stop, and `run` raises it after the call. So does
    a Ctrl-C during the call.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def wrap(self, function: Callable[..., Any]) -> Callable[..., bool]:
        """`function` as a callback: False after an exception, or where it returned False."""

        def call(*arguments: Any) -> bool:
            if self.error is not None:
                return False
            try:
                return function(*arguments) is not False
            except BaseException as error:
                self.error = error
                return False

        return call

    def wrap_action(self, function: Callable[..., Any]) -> Callable[..., None]:
        """`function` as a callback without a result."""
        call = self.wrap(function)

        def act(*arguments: Any) -> None:
            call(*arguments)

        return act

    def go_on(self, *_: Any) -> bool:
        """A callback that stops after a Ctrl-C."""
        return self.error is None

    @contextlib.contextmanager
    def _keeping_signals(self) -> Iterator[None]:
        # A signal handler runs as soon as a callback begins, where its exception could not be caught.
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler) or threading.current_thread() is not threading.main_thread():
            yield
            return

        def keep(number: int, frame: FrameType | None) -> None:
            try:
                handler(number, frame)
            except BaseException as error:
                self.error = error

        signal.signal(signal.SIGINT, keep)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, handler)

    def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Calls `function`, and raises what a callback or a signal raised."""
        with self._keeping_signals():
            try:
                result = function(*arguments)
            except Stopped:
                if self.error is None:
                    raise
                raise self.error from None
        if self.error is not None:
            raise self.error
        return result
