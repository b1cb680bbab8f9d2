"""The package passes mypy --strict, and so does a program that uses it."""

import subprocess
import sys
from pathlib import Path

import pytest
import recurve

pytest.importorskip("mypy")
pytest.importorskip("numpy")

PROGRAM = """
from __future__ import annotations
import numpy as np
import recurve

model = recurve.Model("lstm", 4, 5)
y, states = model.run(np.zeros((3, 2, 4), np.float32))
reveal_type(y.shape)
reveal_type(states["h"].dtype.name)
with model.stream() as stream:
    reveal_type(stream.step(np.zeros((1, 4))).ndim)
result = recurve.train("text.txt", hidden=3)
reveal_type(result.model.generate("a"))
reveal_type(result.curves.loss.size)
reveal_type(recurve.compile("gru").stages[0].kind)
loaded = recurve.load("model.safetensors")
if isinstance(loaded, recurve.Predictor):
    for piece in loaded.generate("a", stream=True):
        reveal_type(piece)
recurve.Model(3, 4, 5)  # an error
"""


def run_mypy(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={folder / 'cache'}", *arguments]
    return subprocess.run(command, cwd=Path(recurve.__file__).parents[1], capture_output=True, text=True, timeout=600)


def test_package_is_typed(tmp_path: Path) -> None:
    package = Path(recurve.__file__).parent
    files = [str(path) for path in sorted([*package.glob("*.py"), *(package / "_native").glob("*.py")])]
    found = run_mypy(tmp_path, "--follow-imports=silent", *files)
    assert found.returncode == 0, found.stdout


def test_program_is_checked(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    lines = run_mypy(tmp_path, str(program)).stdout.splitlines()
    types = [line.split('"')[1].removeprefix("builtins.") for line in lines if "Revealed type" in line]
    assert types[1:] == ["str", "int", "str", "int", "str", "str"]
    errors = [line for line in lines if ": error:" in line]
    assert len(errors) == 1 and "Argument 1" in errors[0]
    assert Path(recurve.__file__).with_name("py.typed").exists()
