"""The progress of a training run on stderr, as the command `recurve train` shows it: on a terminal one line that fits
the width, elsewhere plain lines, which become rarer as the run goes on."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from dataclasses import dataclass
from typing import TextIO

from recurve._native import api

_GAP, _SHORTEST_BAR, _LONGEST_BAR = 2, 8, 32  # columns
_KINDS = ("stream", "lines", "classes", "values", "step-classes", "step-values")  # as rcv_data_kind
_LEVELS = ("words", "bytes", "characters", "pieces")  # as rcv_level


# ---- numbers


def short_number(value: float) -> str:
    """'0.52', '87', '412k', '1.23M'."""
    units = ["", "k", "M", "G", "T"]
    scaled, unit = abs(value), 0
    while scaled >= 999.5 and unit + 1 < len(units):
        scaled, unit = scaled / 1000, unit + 1
    decimals = 0 if scaled >= 99.95 or (unit == 0 and scaled >= 10) else 1 if scaled >= 9.995 else 2
    return f"{math.copysign(scaled, value):.{decimals}f}{units[unit]}"


def clock(seconds: float) -> str:
    """'1:02', '12:34:56', or '?' where it is not known."""
    if not 0 <= seconds <= 1e9:
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _decimals(value: float) -> str:
    return f"{value:.4f}" if value == 0 or 0.01 <= abs(value) < 1e4 else f"{value:.5g}"


# ---- the metric that fits the data


@dataclass(frozen=True)
class Metric:
    """What a loss is shown with, and what the data has many of."""

    name: str  #: perplexity, bits/byte, accuracy or RMSE
    unit: str  #: bytes, words, sequences, ...

    @staticmethod
    def of(kind: int, level: int) -> Metric:
        """That of data of this kind and level, as the library numbers them."""
        if _KINDS[kind] in ("stream", "lines"):
            return Metric("bits/byte" if _LEVELS[level] == "bytes" else "perplexity", _LEVELS[level])
        name = "accuracy" if _KINDS[kind].endswith("classes") else "RMSE"
        return Metric(name, "steps" if _KINDS[kind].startswith("step-") else "sequences")

    def value(self, loss: float, measured: float) -> float:
        """The metric of a loss in nats a token; of other data the measured one, NaN where there is none."""
        if self.name == "perplexity":
            return math.exp(min(loss, 700))
        return loss / math.log(2) if self.name == "bits/byte" else measured

    def parts(self, loss: float, measured: float) -> list[str]:
        """['loss 1.2345', 'bits/byte 1.7811'], or that the loss is not a number."""
        if not math.isfinite(loss):
            return ["the loss is not a number"]
        value, parts = self.value(loss, measured), [f"loss {_decimals(loss)}"]
        if math.isfinite(value):
            parts.append(f"{self.name} {self._text(value)}")
        return parts

    def _text(self, value: float) -> str:
        if self.name == "accuracy":
            return f"{100 * value:.1f}%"
        if self.name == "perplexity":
            return f"{value:.2f}" if value < 1e4 else f"{value:.0f}" if value < 1e7 else f"{value:.3g}"
        return _decimals(value)


# ---- a line of parts


def _bar(done: float, columns: int, is_unicode: bool) -> str:
    inside = columns if is_unicode else columns - 2
    eighths = int(min(max(done, 0), 1) * inside * 8)
    if not is_unicode:
        return "[" + ("#" * (eighths // 8)).ljust(inside, ".") + "]"
    rest = " ▏▎▍▌▋▊▉"[eighths % 8] if eighths < 8 * inside else ""
    return ("█" * (eighths // 8) + rest).ljust(inside)


@dataclass
class _Line:
    """Parts with their ranks; where the line is too long, parts of the highest rank are left out. A bar is None."""

    done: float = math.nan
    parts: list[tuple[int, str | None]] | None = None

    def add(self, rank: int, text: str | None) -> None:
        self.parts = [*(self.parts or []), (rank, text)]

    def text(self, columns: int, is_unicode: bool) -> str:
        parts = list(self.parts or [])

        def width() -> int:
            return sum(_SHORTEST_BAR if text is None else len(text) for _, text in parts) + _GAP * (len(parts) - 1)

        while width() > columns and any(rank > 0 for rank, _ in parts):
            parts.remove(max(parts, key=lambda part: part[0]))
        bar = min(_SHORTEST_BAR + max(columns - width(), 0), _LONGEST_BAR)
        texts = [_bar(self.done, bar, is_unicode) if text is None else text for _, text in parts]
        return (" " * _GAP).join(texts)[:columns]


# ---- the run


class ProgressLine:
    """Shows progress while a run trains. `limit`: the seconds that it may train, 0: no limit."""

    def __init__(self, metric: Metric, limit: float = 0.0, file: TextIO | None = None) -> None:
        self._file = file or sys.stderr
        is_terminal = self._file is not None and self._file.isatty()
        self._is_terminal = is_terminal and os.environ.get("TERM", "xterm") not in ("", "dumb")
        encoding = getattr(self._file, "encoding", None) or ""
        self._is_unicode = encoding.lower().replace("-", "") == "utf8"
        self._metric, self._limit = metric, limit
        self._begun = self._drawn = self._printed = 0.0  # clock readings; 0: not yet
        self._last_validation = -math.inf  # when one was printed
        self._validation = 0.0
        self._held: str | None = None  # a validation that was not printed, since the last one was just before

    # ---- writing

    def _columns(self) -> int:
        """Of the terminal, which knows its width also after a resize."""
        try:
            return os.get_terminal_size(self._file.fileno()).columns or 80
        except (OSError, ValueError, AttributeError):
            return shutil.get_terminal_size().columns

    def _print(self, text: str) -> None:
        """A line that stays."""
        if self._file is not None:
            self._file.write(("\r\033[K" if self._is_terminal else "") + text + "\n")
            self._file.flush()

    def _room(self) -> int:
        """Columns of a line. The last one stays free: a character there would move the cursor to the next line."""
        return max(self._columns(), 20) - 1 if self._is_terminal else sys.maxsize

    # ---- lines

    def _done(self, progress: api.Progress) -> float:
        by_updates = progress.step / progress.steps if progress.steps else math.nan
        by_time = (time.monotonic() - self._begun) / self._limit if self._limit > 0 and self._begun else math.nan
        known = [done for done in (by_updates, by_time) if not math.isnan(done)]
        return min(max(known), 1) if known else math.nan

    def _describe(self, progress: api.Progress, is_last: bool) -> str:
        line = _Line(self._done(progress))
        if math.isfinite(line.done):
            line.add(1, f"{int(100 * line.done):3}%")
            if self._is_terminal:
                line.add(4, None)
        if progress.steps:
            line.add(7, f"{progress.step:,}/{progress.steps:,}")
        else:
            line.add(7 if math.isfinite(line.done) else 1, f"update {progress.step:,}")
        line.add(8, f"epoch {progress.epochs:.2f}")
        measured = progress.metric if progress.validation else math.nan
        for rank, part in zip((2, 5), self._metric.parts(progress.loss, measured)):
            line.add(rank, part)
        line.add(6, f"{short_number(progress.tokens_per_second)} {self._metric.unit}/s")
        if is_last:
            line.add(3, f"in {clock(progress.seconds)}")
        elif progress.left >= 0:
            line.add(3, f"{clock(progress.left)} left")
        return line.text(self._room(), self._is_unicode) if self._is_terminal else line.text(sys.maxsize, False).strip()

    def _see_validation(self, progress: api.Progress) -> None:
        if progress.validation in (self._validation, 0):
            return
        self._validation = progress.validation
        line = _Line()
        line.add(0, "validation")
        line.add(4, f"update {progress.step:,}")
        line.add(5, f"epoch {progress.epochs:.2f}")
        for rank, part in zip((1, 3), self._metric.parts(progress.validation, progress.metric)):
            line.add(rank, part)
        if progress.validation <= progress.best:
            line.add(0, "best")
        self._held = line.text(self._room(), False)

    def _show_validation(self, is_last: bool) -> None:
        """Short validations one after the other do not fill the screen: the last one of them is shown later."""
        now = time.monotonic()
        gap = max(1.0, (now - self._begun) / 600)
        if self._held is not None and (is_last or now - self._last_validation >= gap):
            self._print(self._held)
            self._held, self._last_validation = None, now

    def update(self, progress: api.Progress) -> None:
        """Shows a validation when there is a new one, and the rest from time to time."""
        now = time.monotonic()
        if progress.step == 0:
            return
        if not self._begun:
            self._begun = self._printed = now
        self._see_validation(progress)
        self._show_validation(False)
        passed = now - self._begun
        if self._file is None or not math.isfinite(progress.loss):
            return
        if self._is_terminal and now - self._drawn >= 0.1:
            self._file.write("\r" + self._describe(progress, False) + "\033[K")
            self._file.flush()
            self._drawn = now
        elif not self._is_terminal and now - self._printed >= min(max(10.0, passed / 60), 600.0):
            self._print(self._describe(progress, False))
            self._printed = now

    def end(self, progress: api.Progress, note: str) -> None:
        """Shows the last validation, the last update, and what was written."""
        self._see_validation(progress)
        self._show_validation(True)
        if progress.step > 0:
            self._print(self._describe(progress, True))
        self.say(note)

    def say(self, note: str) -> None:
        """Shows a sentence, if there is one."""
        if note:
            self._print(note)
