"""The blocks of the tutorial run, in order."""

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
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert len(blocks) >= 10
    for block in blocks:
        lines_before = text[: block.start(1)].count("\n")
        code = compile("\n" * lines_before + block[1], str(page), "exec")  # a failure names the line of the page
        exec(code, names)
