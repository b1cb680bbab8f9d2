"""The installed package: its files, its tag, its size, and that it works without PyTorch, NumPy and JAX."""

import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import recurve

FOLDER = Path(recurve.__file__).parent
ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(not (FOLDER / "lib").is_dir(), reason="recurve is not installed from a wheel")


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if name != "RECURVE_LIBRARY_FOLDER"}
    return subprocess.run(
        [sys.executable, *arguments], env={**kept, **environment}, capture_output=True, text=True, timeout=120
    )


@pytest.fixture
def wheel() -> Path:
    if "RECURVE_WHEEL" not in os.environ:
        pytest.skip("RECURVE_WHEEL does not name the wheel")
    return Path(os.environ["RECURVE_WHEEL"])


def check(path: Path) -> "subprocess.CompletedProcess[str]":
    return run(str(ROOT / "scripts" / "check_wheel.py"), str(path))


def test_metadata() -> None:
    metadata = importlib.metadata.metadata("recurve")
    assert f'#define RCV_VERSION "{metadata["Version"]}"' in (ROOT / "include" / "recurve.h").read_text()
    assert metadata["Requires-Python"] == ">=3.10"
    requirements = metadata.get_all("Requires-Dist") or []
    assert requirements and all("extra ==" in text for text in requirements)  # none without an extra
    assert set(metadata.get_all("Provides-Extra") or []) >= {"cuda", "torch", "jax", "numpy"}


def test_wheel_is_sound(wheel: Path) -> None:
    said = check(wheel)
    assert (said.returncode, said.stderr) == (0, "")
    assert re.search(r": \d+\.\d\d MiB, with(out)? CUDA$", said.stdout.strip())
    assert re.fullmatch(r"recurve-[\d.]+-py3-none-manylinux\w+\.whl", wheel.name)


@pytest.mark.parametrize(
    "name, content, complaint",
    [
        ("recurve/lib/libopenblas.so.0", b"", "recurve/lib/libopenblas.so.0 does not belong into it"),
        ("recurve/lib/librecurve.so", b"", None),
        ("recurve.libs/libgfortran-1.so", b"", "recurve.libs/libgfortran-1.so does not belong into it"),
        ("recurve/data", os.urandom(5 << 20), "bytes, more than"),
    ],
)
def test_unsound_wheel_is_refused(
    wheel: Path, tmp_path: Path, name: str, content: bytes, complaint: "str | None"
) -> None:
    """A copy with one more file; with complaint None, without this file."""
    copy = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED) as new:
        for file in old.infolist():
            if complaint or file.filename != name:
                new.writestr(file, old.read(file))
        if complaint:
            new.writestr(name, content * (3 if "cuda" in check(wheel).stdout.lower() else 1))
    said = check(copy)
    assert said.returncode == 1
    assert (complaint or f"{name} is missing") in said.stderr


def test_architecture_is_that_of_the_name(wheel: Path, tmp_path: Path) -> None:
    other = "x86_64" if "aarch64" in wheel.name else "aarch64"
    copy = tmp_path / re.sub("(x86_64|aarch64)", other, wheel.name)
    copy.write_bytes(wheel.read_bytes())
    said = check(copy)
    assert said.returncode == 1
    assert re.search(r"recurve/lib/librecurve\.so is for (x86_64|aarch64), and the wheel is named", said.stderr)


def test_needed_libraries_are_the_systems(wheel: Path, tmp_path: Path) -> None:
    """An executable that needs another library is refused: here libffi, which Python's _ctypes needs."""
    _ctypes = pytest.importorskip("_ctypes")
    elf = Path(getattr(_ctypes, "__file__", sys.executable))
    copy = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED) as new:
        for file in old.infolist():
            new.writestr(file, elf.read_bytes() if file.filename == "recurve/bin/recurve" else old.read(file))
    said = check(copy)
    assert said.returncode == 1
    assert re.search(r"recurve/bin/recurve needs lib(ffi|python)\S*", said.stderr)


def test_library_works_alone() -> None:
    """In a process without site-packages but this one, in which no framework can be imported."""
    code = (
        "import sys\n"
        "for name in 'torch', 'jax', 'numpy': sys.modules[name] = None\n"
        "import recurve\n"
        "from recurve._native import loader\n"
        "print(loader.native().rcv_version().decode())\n"
    )
    assert run("-c", code).stdout.strip() == importlib.metadata.version("recurve")


def test_library_loads_beside_torch() -> None:
    pytest.importorskip("torch.nn")
    for first, second in ("torch", "recurve"), ("recurve", "torch"):
        code = (
            f"import ctypes, {first}, {second}\n"
            "from recurve._native import loader\n"
            "ctypes.CDLL(loader.path(loader.BINDINGS))\n"
            "print(loader.native().rcv_kernels_count())\n"
        )
        said = run("-c", code)
        assert said.returncode == 0, said.stderr
        assert int(said.stdout) >= 1


def test_command() -> None:
    said = run("-m", "recurve", "--version")
    assert said.returncode == 0 and importlib.metadata.version("recurve") in said.stdout
    assert run("-m", "recurve", "no-such-verb").returncode == 2
    program = FOLDER / "bin" / "recurve"
    assert os.access(program, os.X_OK)
