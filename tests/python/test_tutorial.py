"""The blocks of the tutorial run, in order, and the examples run with small sizes."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="no checkout")
def test_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "TUTORIAL_PYTHON.md"
    text = page.read_text()
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert len(blocks) >= 10
    for block in blocks:
        lines_before = text[: block.start(1)].count("\n")
        code = compile("\n" * lines_before + block[1], str(page), "exec")  # a failure names the line of the page
        exec(code, names)


@pytest.mark.skipif(not (ROOT / "examples").exists(), reason="no checkout")
def test_timeseries(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "python" / "timeseries.py"), "--series", "150", "--steps", "150"]
    run = subprocess.run([*command, "--output", str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    accuracy = re.search(r"accuracy on new series: ([0-9.]+)", run.stdout)
    error = re.search(r"root mean square error ([0-9.]+)", run.stdout)
    assert accuracy is not None and float(accuracy[1]) > 0.8
    assert error is not None and float(error[1]) < 0.3
    assert (tmp_path / "shapes.best.safetensors").exists()
