"""The log of a run: a JSON object a line, as the command `recurve train` writes it."""

from __future__ import annotations

import json
import os
import warnings
from typing import Any, BinaryIO


class RunLog:
    """The lines of a run's log, kept, and written to a file from the first line on."""

    def __init__(self, path: str | None, resumes: bool) -> None:
        self.path, self._resumes = path, resumes
        self.lines: list[dict[str, Any]] = []
        self._file: BinaryIO | None = None

    def check(self, overwrite: bool) -> None:
        if self.path is None or self._resumes or overwrite:
            return
        if os.path.exists(self.path) and os.path.getsize(self.path) > 0:
            raise FileExistsError(
                f"the log {self.path} exists: resume the run, give another log, or replace it with overwrite=True"
            )

    def _open(self, path: str) -> BinaryIO:
        file = open(path, "r+b" if self._resumes and os.path.exists(path) else "wb")
        text = file.read() if file.readable() else b""
        file.seek(text.rfind(b"\n") + 1)
        file.truncate()  # an incomplete last line, which a killed run may have left
        return file

    def write(self, line: bytes) -> None:
        self.lines.append(json.loads(line))
        if self.path is None:
            return
        try:
            self._file = self._file or self._open(self.path)
            self._file.write(line + b"\n")
            self._file.flush()
        except OSError as error:
            warnings.warn(
                f"cannot write the log {self.path}: {error}; training continues", RuntimeWarning, stacklevel=2
            )
            self.path = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
