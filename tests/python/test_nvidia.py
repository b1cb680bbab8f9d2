"""The folders of the nvidia-* packages are found without importing them."""

import os
import subprocess
import sys
from pathlib import Path

import recurve


def found_with(*folders: Path) -> "list[str]":
    code = "from recurve._native import nvidia; print(*nvidia.folders(), sep='\\n')"
    package = str(Path(recurve.__file__).parents[1])
    path = os.pathsep.join([*map(str, folders), package])
    said = subprocess.run(
        [sys.executable, "-S", "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    return said.stdout.split()


def test_folders(tmp_path: Path) -> None:
    for name in "a/nvidia/cu13/lib", "a/nvidia/cudnn/lib", "a/nvidia/cccl/include", "b/nvidia/nccl/lib":
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a/nvidia/README").write_text("no folder")
    a, b = tmp_path / "a", tmp_path / "b"
    assert found_with(a, b) == [str(a / "nvidia/cu13/lib"), str(a / "nvidia/cudnn/lib"), str(b / "nvidia/nccl/lib")]
    assert found_with(b, a)[0] == str(b / "nvidia/nccl/lib")
    assert found_with() == []


def test_another_package_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "nvidia.py").write_text("raise SystemExit(1)")
    assert found_with(tmp_path) == []
