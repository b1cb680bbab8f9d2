"""The example of JAX learns, with small sizes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not (ROOT / "examples").exists(), reason="no checkout")
def test_jax_lstm() -> None:
    command = [
        sys.executable,
        str(ROOT / "examples" / "python" / "jax_lstm.py"),
        "--length",
        "8",
        "--hidden",
        "24",
        "--steps",
        "1500",
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    errors = [float(error) for error in re.findall(r"mean square error ([0-9.]+)", run.stdout)]
    assert len(errors) == 10 and errors[-1] < 0.02 < errors[0]
