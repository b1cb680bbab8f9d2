"""Equations: how an argument is recognised, what is known of a cell, and how mistakes are shown."""

import copy
import pickle
import traceback
from pathlib import Path

import pytest
import recurve

TEXT = """cell leaky(x) {
    state h
    size wide = 4
    vector v
    h' = tanh(W x + U h + b) - v * h
    return h'
}
"""


def test_text_name_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = recurve.builtin_cells()["lstm"]
    assert "Long short-term memory" in text
    (tmp_path / "leaky.cell").write_text(TEXT)
    (tmp_path / "noext").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    cells = [TEXT, "leaky.cell", str(tmp_path / "leaky.cell"), "./noext", Path("noext"), Path("leaky.cell")]
    assert {str(recurve.compile(cell)) for cell in cells} == {str(recurve.compile(TEXT))}
    assert recurve.compile("lstm").name == "lstm"
    cell = recurve.compile(TEXT)
    assert recurve.compile(cell) is cell


def test_what_is_known_of_a_cell() -> None:
    cell = recurve.compile("lstm_proj")
    assert cell.states == {"h": "proj", "c": "hidden"}
    assert cell.sizes == {"proj": 64}
    assert cell.parameters["weight_ih"] == "[4*hidden, input]"
    assert cell.source.startswith("#")
    assert "stage" in cell.describe().lower()
    assert len(cell.describe(backward=True)) > len(cell.describe())
    assert "derivative" in cell.describe_json(backward=True)
    kinds = [stage.kind for stage in recurve.compile("sru").stages]
    assert "scan" in kinds and "dense" not in kinds
    assert "leaky" in repr(recurve.compile(TEXT)) and "<pre>" in recurve.compile(TEXT)._repr_html_()


def test_canonical_form_is_the_same_cell() -> None:
    for name in recurve.builtin_cells():
        cell = recurve.compile(name)
        again = recurve.compile(str(cell))
        assert again == cell and hash(again) == hash(cell) and again.describe_json() == cell.describe_json()
    assert recurve.compile("gru") != recurve.compile("lstm")


def test_copies() -> None:
    cell = recurve.compile(TEXT)
    assert pickle.loads(pickle.dumps(cell)) == cell and copy.deepcopy(cell) == cell


def test_wrong_equations_show_the_line() -> None:
    with pytest.raises(recurve.CellError) as caught:
        recurve.compile("cell a(x) {\n    state h\n    h' = tanh(W x + U hh)\n    return h'\n}")
    error = caught.value
    assert isinstance(error, SyntaxError) and isinstance(error, ValueError)
    assert (error.filename, error.lineno, error.offset) == ("cell", 3, 23)
    assert error.text is not None and error.text.strip() == "h' = tanh(W x + U hh)"
    assert error.msg == "the name 'hh' is not known; did you mean 'h'?"
    shown = "".join(traceback.format_exception_only(type(error), error)).splitlines()
    assert shown[1].strip() == "h' = tanh(W x + U hh)"
    assert shown[2].index("^") - shown[1].index("h'") == error.text.index("hh") - error.text.index("h'")


def test_wrong_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.cell"
    path.write_text("cell a(x) {\n    return y\n}\n")
    with pytest.raises(recurve.CellError) as caught:
        recurve.compile(path)
    assert caught.value.filename == str(path) and caught.value.lineno == 2


def test_caret_in_a_long_line() -> None:
    line = "    return " + "x + " * 60 + "nothing"
    with pytest.raises(recurve.CellError) as caught:
        recurve.compile("cell a(x) {\n" + line + "\n}")
    error = caught.value
    assert error.text is not None and error.offset is not None
    assert error.text[error.offset - 1 :].startswith("nothing")


@pytest.mark.parametrize("name, said", [("lstmm", "did you mean 'lstm'"), ("qwertz", "there are gilr_lstm, gru")])
def test_wrong_name(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        recurve.compile(name)


def test_other_mistakes() -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.cell"):
        recurve.compile("nothing.cell")
    with pytest.raises(TypeError, match="not int"):
        recurve.compile(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="NUL"):
        recurve.compile("a/\0b")
