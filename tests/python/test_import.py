"""`import recurve` is small, and its names are there."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import recurve


def run_python(code: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )


def has_torch() -> bool:
    try:
        importlib.import_module("torch.nn")
    except ImportError:
        return False
    return True


def test_imports_no_framework() -> None:
    code = "import sys, recurve; print([n for n in ('torch', 'jax', 'numpy', 'typing', 'ctypes') if n in sys.modules])"
    assert run_python(code).stdout.strip() in ("[]", "['typing']")  # some Pythons import typing themselves


def test_import_is_fast() -> None:
    code = "import time; t = time.perf_counter(); import recurve; print(time.perf_counter() - t)"
    assert min(float(run_python(code).stdout) for _ in range(3)) < 0.06


def test_cells_need_no_numpy() -> None:
    code = "import sys, recurve; recurve.compile('gru').describe(); print('numpy' in sys.modules)"
    assert run_python(code).stdout.strip() == "False"


def test_every_name_is_there() -> None:
    for name in recurve.__all__:
        if recurve._MODULE_OF.get(name) == "nn" and not has_torch():
            continue
        assert getattr(recurve, name) is not None
    assert {"Model", "compile", "load", "nn", "scan", "train"} <= set(dir(recurve))
    with pytest.raises(AttributeError, match="no attribute 'modle'"):
        recurve.modle


def test_names_are_those_for_type_checkers() -> None:
    source = Path(recurve.__file__).read_text()
    typed = re.findall(r"^    from recurve\.\S+ import (.*)$", source, re.MULTILINE)
    names = {name.strip() for line in typed for name in line.split(",")}
    assert names | {"__version__"} == set(recurve.__all__)


def test_version_is_that_of_the_header() -> None:
    header = Path(__file__).resolve().parents[2] / "include" / "recurve.h"
    if not header.exists():
        pytest.skip("no checkout")
    assert f'#define RCV_VERSION "{recurve.__version__}"' in header.read_text()


@pytest.mark.parametrize("content", [None, b"no library"])
def test_missing_library_is_one_sentence(tmp_path: Path, content: "bytes | None") -> None:
    code = (
        "from recurve._native import loader\n"
        f"loader.folders = lambda: [{str(tmp_path)!r}]\n"
        "import recurve\n"
        "try: recurve.builtin_cells()\n"
        "except ImportError as error: print(error)\n"
    )
    if content is not None:
        (tmp_path / "librecurve.so").write_bytes(content)
    said = run_python(code).stdout
    assert said.count("\n") == 1 and str(tmp_path) in said and "reinstall" in said


def test_editable_installation(tmp_path: Path) -> None:
    """Libraries and the command in one folder of the package, Python files in another."""
    for name, content in ("lib/librecurve.so", ""), ("bin/recurve", "#!/bin/sh\necho command $1"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    code = (
        "import recurve, sys\n"
        f"recurve.__path__.insert(0, {str(tmp_path)!r})\n"
        "from recurve import __main__\n"
        "from recurve._native import loader\n"
        "print(loader.path(loader.CORE), flush=True)\n"
        "sys.argv[1:] = ['list']\n"
        "__main__.main()\n"
    )
    said = run_python(code, RECURVE_LIBRARY_FOLDER="")
    assert said.stdout.splitlines() == [f"{tmp_path}/lib/librecurve.so", "command list"], said.stderr


def test_other_version_is_refused() -> None:
    code = (
        "import recurve; recurve.__version__ = '9.9.9'\ntry: recurve.builtin_cells()\nexcept ImportError as e: print(e)"
    )
    assert "is version 0." in run_python(code).stdout
