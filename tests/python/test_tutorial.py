"""The blocks of the tutorial run, in order; those marked `torch` where PyTorch is installed."""

import importlib
import re
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
    blocks = list(re.finditer(r"^```python( torch)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert len(blocks) == text.count("\n```python") >= 20
    try:
        importlib.import_module("torch.nn")
        has_torch = True
    except ImportError:
        has_torch = False
    for block in blocks:
        if block[1] and not has_torch:
            continue
        lines_before = text[: block.start(2)].count("\n")
        code = compile("\n" * lines_before + block[2], str(page), "exec")  # a failure names the line of the page
        exec(code, names)
