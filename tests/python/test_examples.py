"""The examples run with small sizes, and do what they are for."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "python"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="no checkout")


def run_example(name: str, *arguments: object) -> str:
    """What it prints. One thread: other tests may run beside it."""
    command = [sys.executable, str(FOLDER / name), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    return run.stdout


def find_number(pattern: str, text: str) -> float:
    found = re.search(pattern.replace("NUMBER", r"([0-9.]+(?:e[-+][0-9]+)?)"), text)
    assert found is not None, text
    return float(found[1])


def test_timeseries(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    said = run_example("timeseries.py", "--series", 150, "--steps", 150, "--output", tmp_path)
    assert find_number("accuracy on new series: NUMBER", said) > 0.8
    assert find_number("root mean square error NUMBER", said) < 0.3
    assert (tmp_path / "shapes.best.safetensors").exists()


def test_language_model(tmp_path: Path) -> None:
    """A text of three sentences in a periodic order: who knows how often each letter comes needs some 4 bits per byte."""
    pytest.importorskip("torch.nn")
    words = ["she sells sea shells. ", "by the sea shore. ", "the shells she sells are sea shells. "]
    text = tmp_path / "text.txt"
    text.write_text("".join(words[i * i % 7 % 3] for i in range(800)))
    small = ["--hidden", 64, "--batch", 16, "--steps", 32, "--learning-rate", 0.01]
    said = run_example("language_model.py", text, *small, "--updates", 150, "--seconds", 300)
    assert find_number("validation: NUMBER bits", said) < 1
    assert len(said.split("bits per byte\n")[-1]) > 200  # the sample


def test_recurrent_ppo() -> None:
    pytest.importorskip("torch.nn")
    small = ["--environments", 32, "--steps", 32, "--hidden", 32, "--learning-rate", 0.01]
    said = run_example("recurrent_ppo.py", *small, "--return", 0.6, "--seconds", 60)
    assert find_number("after training: NUMBER", said) > 0.5  # chance: 0.25
    assert find_number("one call and a loop: NUMBER", said) < 1e-4
    assert find_number("with resets=: NUMBER ms", said) < find_number("over the steps: NUMBER ms", said)


def test_own_cell() -> None:
    pytest.importorskip("torch.nn")
    said = run_example("own_cell.py", "--length", 60, "--updates", 350)
    assert find_number("mean square error: NUMBER \\(", said) < 0.05  # a constant has 0.1667
    assert find_number("from as_torch\\(\\): NUMBER", said) < 1e-4
