"""The package passes mypy --strict, and so do programs that use it."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import recurve

pytest.importorskip("mypy")
pytest.importorskip("numpy")

PACKAGE = Path(recurve.__file__).parent
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


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def run_mypy(cache: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={cache}", *arguments]
    return subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, timeout=600)


def test_package_is_typed(cache: Path) -> None:
    found = run_mypy(cache, "--follow-imports=silent", *(str(path) for path in find_files()))
    assert found.returncode == 0, found.stdout


def find_files() -> "list[Path]":
    """The files of the package whose framework is there."""
    missing = []
    for folder, framework in (("nn", "torch.nn"), ("jax", "jax.numpy")):
        try:
            importlib.import_module(framework)
        except ImportError:
            missing.append(folder)
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] not in missing]


def test_program_is_checked(tmp_path: Path, cache: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    lines = run_mypy(cache, str(program)).stdout.splitlines()
    types = [line.split('"')[1].removeprefix("builtins.") for line in lines if "Revealed type" in line]
    assert types[1:] == ["str", "int", "str", "int", "str", "str"]
    errors = [line for line in lines if ": error:" in line]
    assert len(errors) == 1 and "Argument 1" in errors[0]
    assert Path(recurve.__file__).with_name("py.typed").exists()


@pytest.mark.parametrize(("framework", "program"), [("torch.nn", "typed_torch.py"), ("jax", "typed_jax.py")])
def test_use_is_typed(framework: str, program: str, cache: Path) -> None:
    pytest.importorskip(framework)
    found = run_mypy(cache, str(Path(__file__).with_name(program)))
    assert found.returncode == 0, found.stdout
