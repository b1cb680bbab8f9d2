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


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="no checkout")
def test_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block of README.md runs, with a second of training, where PyTorch is installed; elsewhere its names are those of the package."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text()
    block = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    names = set(re.findall(r"recurve\.(?:nn\.)?(\w+)", block[1])) - {"nn"}
    assert {"train", "takeover", "LSTM", "Cell"} <= names
    sources = "".join((ROOT / "python" / "recurve" / path).read_text() for path in ("__init__.py", "nn/__init__.py"))
    assert [name for name in names if not re.search(rf"\b{name}\b", sources)] == []
    try:
        importlib.import_module("torch.nn")
        importlib.import_module("numpy")
    except ImportError:
        return
    cell = re.search(r"^cat >keeper.cell <<'END'\n(.*?)^END$", text, re.MULTILINE | re.DOTALL)
    assert cell is not None
    Path("keeper.cell").write_text(cell[1])
    Path("book.txt").write_text((ROOT / "LICENSE").read_text() * 20)
    assert "seconds=60" in block[1]
    exec(compile(block[1].replace("seconds=60", "seconds=1"), "README.md", "exec"), {})
