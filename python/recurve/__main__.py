"""The command `recurve`, which the package brings as a program beside its library."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import recurve
from recurve._native import nvidia


def main() -> NoReturn:
    given, folders = os.environ.get("LD_LIBRARY_PATH"), nvidia.folders()
    if folders:  # after those that are given
        os.environ["LD_LIBRARY_PATH"] = ":".join(([given] if given else []) + folders)
    programs = [Path(folder, "bin", "recurve") for folder in recurve.__path__]  # two in an editable installation
    program = next(filter(Path.exists, programs), programs[-1])
    try:
        os.execv(program, ["recurve", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"recurve: {program} cannot be started: {error.strerror}; reinstall the package")


if __name__ == "__main__":
    main()
