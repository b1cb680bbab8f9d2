"""PyTorch's own checks of modules (module_checks.py), in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def test_torchs_checks() -> None:
    pytest.importorskip("expecttest", reason="torch.testing._internal needs it")
    folder = os.path.dirname(os.path.abspath(__file__))
    options = ["-q", "-p", "no:cacheprovider", "--no-header", "--tb=short"]
    command = [sys.executable, "-m", "pytest", *options, os.path.join(folder, "module_checks.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=folder)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout, done.stdout[-2000:]
