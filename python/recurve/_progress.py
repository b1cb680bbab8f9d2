"""The progress of a training run on stderr: one line that is rewritten, or plain lines where it is no terminal."""

from __future__ import annotations

import math
import shutil
import sys
import time
from typing import TextIO

from recurve._native import api

_SECONDS_ON_TERMINAL, _SECONDS_ELSEWHERE = 0.1, 5.0


def describe_loss(loss: float, is_text: bool, is_bytes: bool) -> str:
    """'loss 1.05  bits/byte 1.52', with a perplexity for words, or the loss alone."""
    if not math.isfinite(loss):
        return "the loss is not a number"
    if not is_text or loss > 700:
        return f"loss {loss:.5g}"
    return f"loss {loss:.4f}  " + (
        f"bits/byte {loss / math.log(2):.4f}" if is_bytes else f"perplexity {math.exp(loss):.4g}"
    )


def _describe_left(seconds: float) -> str:
    if seconds < 0 or not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class ProgressLine:
    """Shows progress while a run trains."""

    def __init__(self, is_text: bool, is_bytes: bool, file: TextIO | None = None) -> None:
        self._file = file or sys.stderr
        self._is_terminal = self._file is not None and self._file.isatty()
        self._is_text, self._is_bytes = is_text, is_bytes
        self._unit = "examples" if not is_text else "bytes" if is_bytes else "tokens"
        self._shown = time.monotonic()
        self._validation = 0.0

    def _write(self, line: str, stays: bool) -> None:
        if self._file is None:
            return
        if not self._is_terminal:
            self._file.write(line + "\n")
        else:
            width = shutil.get_terminal_size().columns - 1
            self._file.write("\r" + line[:width].ljust(width) + ("\n" if stays else ""))
        self._file.flush()

    def _describe(self, progress: api.Progress, left: float) -> str:
        loss = describe_loss(progress.loss, self._is_text, self._is_bytes)
        total = f"/{progress.steps}" if progress.steps else ""
        return (
            f"epoch {progress.epochs:.2f}  step {progress.step}{total}  {loss}  rate {progress.rate:.4g}  "
            f"{progress.tokens_per_second:.0f} {self._unit}/s  {_describe_left(left)} left"
        )

    def update(self, progress: api.Progress) -> None:
        """Shows a validation when there is a new one, and the rest from time to time."""
        if progress.validation != self._validation:
            self._validation = progress.validation
            loss = describe_loss(progress.validation, self._is_text, self._is_bytes)
            best = "  (best)" if progress.validation <= progress.best else ""
            self._write(f"validation at epoch {progress.epochs:.2f}  step {progress.step}  {loss}{best}", True)
        now = time.monotonic()
        if progress.step > 0 and now - self._shown >= (
            _SECONDS_ON_TERMINAL if self._is_terminal else _SECONDS_ELSEWHERE
        ):
            self._shown = now
            self._write(self._describe(progress, progress.left), False)

    def end(self, progress: api.Progress, note: str) -> None:
        """Shows the last update, and what was written."""
        if progress.step > 0:
            self._write(self._describe(progress, 0), True)
        if note:
            self._write(note, True)
