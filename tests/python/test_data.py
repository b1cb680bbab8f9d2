"""Data as it comes: tables, arrays and examples in memory, what is recognised, parts, missing values."""

import csv
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import recurve
from recurve import _data, _examples

ROOT = Path(__file__).resolve().parents[2]
SMALL: "dict[str, Any]" = {"hidden": 16, "batch": 8, "learning_rate": 0.02, "effort": "estimate", "progress": False}


def rows_of_signs(count: int, seed: int = 0) -> "list[dict[str, Any]]":
    """Sequences of two features under an id; the class is the sign of the first one's sum. The second is large."""
    generator, rows = np.random.default_rng(seed), []
    for i in range(count):
        x = generator.normal(size=(generator.integers(4, 9), 2))
        for t, (a, b) in enumerate(x):
            name = "up" if x[:, 0].sum() > 0 else "down"
            rows.append({"series": f"s{i}", "step": t, "a": a, "b": 1000 + 100 * b, "label": name})
    return rows


def write_csv(path: Path, rows: "list[dict[str, Any]]") -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "signs.csv", rows_of_signs(160))


# ---- files


@pytest.mark.skipif(not (ROOT / "tool").exists(), reason="no checkout")
def test_names_in_a_folder_are_those_of_the_command() -> None:
    text = (ROOT / "tool" / "data_files.c").read_text()

    def table_of(name: str) -> "list[tuple[str, ...]]":
        """The texts of a table in C, those of each inner pair of braces."""
        found = re.search(rf"\b{name}(?:\[[^]]*\])+ = \{{(.*?)\}};", text, re.DOTALL)
        assert found is not None, f"tool/data_files.c has no table {name}"
        lists = re.findall(r"\{(.*?)\}", found[1], re.DOTALL) or [found[1]]
        return [tuple(re.findall(r'"([^"]*)"', entry)) for entry in lists]

    assert tuple(table_of("whole_names")) == _data.WHOLE_NAMES
    assert tuple(table_of("stems")) == _data.STEMS
    assert table_of("endings") == [_data.ENDINGS]


def test_parts_of_a_folder(tmp_path: Path) -> None:
    for name in ("train.csv", "val.csv", "test.csv", "train.npz", "dev.csv"):
        write_csv(tmp_path / name, rows_of_signs(20))
    found = _data.find_files(str(tmp_path), "", "")
    assert found == [str(tmp_path / name) for name in ("train.csv", "val.csv", "test.csv")]
    assert _data.find_files(str(tmp_path), "10%", "none") == [str(tmp_path / "train.csv"), None, None]
    result = recurve.train(tmp_path, sequence="series", time="step", epochs=1, **SMALL)
    assert result.validation is not None and result.test is not None and result.test.counted == 20


def test_what_is_recognised_is_said_once(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {**SMALL, "steps": 2, "sequence": "series", "time": "step"}
    result = recurve.train(table, **{**given, "progress": True})
    said = capsys.readouterr().err
    assert result.recognised is not None and said.count(result.recognised) == 1
    assert said.startswith(f"{table} is read as ") and "label" in result.recognised
    assert "target=" in result.recognised and "--" not in result.recognised
    assert result.settings["kind"] == "classes"
    assert recurve.train(table, kind="classes", **given).recognised is None
    assert capsys.readouterr().err == ""


def test_columns_by_name(table: Path) -> None:
    given = {**SMALL, "epochs": 8, "sequence": "series", "time": "step", "valid": "20%", "test": "10%"}
    result = recurve.train(table, target="label", features=["a", "b"], normalise=True, **given)
    assert result.settings["features"] == "a,b" and result.settings["normalise"] is True
    assert result.test is not None and result.test.counted == 16 and result.test.accuracy is not None
    assert result.test.accuracy > 0.8
    assert result.model.features == 2 and result.model.feature_names == ("a", "b")
    assert result.model.target_names == ("label",) and result.model.classes == ("down", "up")
    alone = recurve.train(table, features="b", **{**given, "epochs": 1})
    assert alone.model.feature_names == ("b",)


def test_weights_of_classes(tmp_path: Path) -> None:
    """Of two classes that cannot be told apart the one that weighs more is predicted."""
    rows = [{"x": 1.0, "label": "rare" if i % 4 == 0 else "usual"} for i in range(80)]
    path = write_csv(tmp_path / "same.csv", rows)

    def predicts(**given: Any) -> str:
        model = recurve.train(path, epochs=15, **SMALL, **given).model
        return str(model.classify([[1.0]])[0])

    assert predicts() == "usual"
    assert predicts(class_weights={"rare": 20, "usual": 1}) == "rare"
    balanced = recurve.train(path, epochs=15, class_weights="balanced", **SMALL).model
    assert abs(balanced.predict(np.ones((1, 1, 1)))[0, 0] - 0.5) < 0.1


def test_a_forecast_of_a_table(tmp_path: Path) -> None:
    time = np.arange(600)
    rows = [{"day": int(t), "price": 50 + 10 * np.sin(0.3 * t)} for t in time]
    path = write_csv(tmp_path / "prices.csv", rows)
    given = {**SMALL, "length": 50, "time": "day", "target": "price", "normalise": True}
    result = recurve.train(path, horizon=5, valid="10%", test="10%", epochs=40, **given)
    model, test = result.model, result.test
    assert model.kind == "step-values" and model.predicts_steps and model.target_names == ("price",)
    assert test is not None and test.rmse is not None and test.naive_rmse is not None
    assert test.rmse < test.naive_rmse / 3
    prices = np.array([row["price"] for row in rows])
    found = model.predict([prices[:500, None]], last=True)[0, 0]
    assert abs(found - prices[504]) < 2
    everywhere = model.predict_file(path)
    assert len(everywhere.values) == 1 and everywhere.values[0].shape == (600, 1)
    np.testing.assert_allclose(everywhere.values[0][499], found, atol=0.05)


def test_a_forecast_of_an_array() -> None:
    series = np.sin(0.4 * np.arange(400))
    result = recurve.train(series, horizon=3, valid="20%", length=40, epochs=40, **SMALL)
    assert result.model.features == 1 and result.metrics["rmse"] < 0.3
    assert result.model.evaluate(series).rmse == pytest.approx(result.metrics["rmse"], abs=0.1)
    found = result.model.predict_file(series).values[0]
    np.testing.assert_allclose(found, result.model.predict(series[None, :, None])[0], atol=1e-4)
    many = np.stack([series[:50], series[50:100]])[:, :, None]
    assert recurve.train(many, horizon=3, epochs=1, **SMALL).model.kind == "step-values"
    with pytest.raises(ValueError, match=r"data has shape \[1, 1, 1, 1\]"):
        recurve.train(np.zeros((1, 1, 1, 1)), horizon=3, **SMALL)
    with pytest.raises(TypeError, match="data is an array of <U1"):
        recurve.train(np.array(["a"]), horizon=3, **SMALL)
    with pytest.raises(ValueError, match=r"data\.npy.*horizon"):
        recurve.train(series, **SMALL)


def test_messages_are_in_words_of_python(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [{"a": 1, "y": 2}, {"a": "", "y": 2}])
    with pytest.raises(ValueError, match=r"a\.csv") as caught:
        recurve.train(path, **SMALL)
    assert "--" not in str(caught.value)
    said = "use --class-weights or --format text, --horizon N (--kind step-values?)"
    assert _data.reword(said, "/x") == 'use class_weights= or format="text", horizon=N (kind="step-values"?)'
    with pytest.raises(ValueError) as caught:
        recurve.train(FakeFrame([{"a": 1, "y": 2}, {"a": "", "y": 2}]), **SMALL)
    assert str(caught.value).startswith("data.csv")


def test_shares_of_a_text(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("she sells sea shells\n" * 100)
    result = recurve.train(path, valid="10%", test="5%", steps=4, validate_every=2, length=16, **SMALL)
    assert result.validation is not None and result.test is not None
    assert abs(result.test.counted - 105) <= 2 and result.test.metrics == {} and result.metrics == {}
    with pytest.raises(ValueError, match="120%"):
        recurve.train(path, valid="120%", steps=3, **SMALL)


# ---- examples in memory


def test_kinds_of_examples() -> None:
    x = np.zeros((2, 3, 4))
    kinds = [
        ("classes", [1, 2]),
        ("classes", ["a", "b"]),
        ("classes", np.array([True, False])),
        ("values", [0.5, 1.0]),
        ("values", [[0.5, 1.0], [0.5, 1.0]]),
        ("step-values", np.zeros((2, 3))),
        ("step-values", np.zeros((2, 3, 5))),
        ("step-values", np.zeros((2, 3, 5), int)),
        ("step-classes", np.zeros((2, 3), int)),
        ("step-classes", [["a", "b", None], ["a", "b", "b"]]),
        ("values", [[0.5, 1.0, 2.0], [0.5, 1.0]]),
    ]
    for kind, targets in kinds:
        assert _examples.kind_of_examples(x, targets) == kind, targets
    assert _examples.kind_of_examples(["abc", "abd"], [1, 2]) == "classes"


def signs(count: int, seed: int = 0) -> "tuple[list[Any], list[Any]]":
    """Series, and at every step the sign of the sum so far."""
    generator = np.random.default_rng(seed)
    series = [generator.normal(size=(generator.integers(5, 12), 1)) for _ in range(count)]
    return series, [np.where(x[:, 0].cumsum() > 0, "plus", "minus").tolist() for x in series]


def test_classes_of_steps() -> None:
    result = recurve.train(signs(200), valid=signs(30, 1), test=signs(40, 2), epochs=12, **SMALL)
    model, test = result.model, result.test
    assert model.kind == "step-classes" and model.classes == ("minus", "plus") and model.predicts_steps
    series, names = signs(10, 3)
    found = model.predict(series)
    assert isinstance(found, list) and [part.shape for part in found] == [(len(x), 2) for x in series]
    np.testing.assert_allclose(found[0].sum(axis=1), 1, atol=1e-6)
    labels = model.classify(series)
    assert [len(part) for part in labels] == [len(x) for x in series]
    assert np.mean([a == b for part, rest in zip(labels, names) for a, b in zip(part, rest)]) > 0.85
    np.testing.assert_allclose(model.predict(series, last=True), [part[-1] for part in found], atol=1e-6)
    assert model.classify(series, last=True) == [part[-1] for part in labels]
    array = np.zeros((2, 12, 1), np.float32)
    array[0, : len(series[0])], array[1, : len(series[1])] = series[0], series[1]
    lengths = [len(series[0]), len(series[1])]
    padded = model.predict(array, lengths=lengths)
    assert padded.shape == (2, 12, 2) and not padded[0, lengths[0] :].any()
    np.testing.assert_allclose(padded[1, : lengths[1]], found[1], atol=1e-6)
    assert model.classify(array, lengths=lengths) == labels[:2]
    assert test is not None and test.confusion is not None
    assert test.counted == sum(len(x) for x in signs(40, 2)[0]) == test.confusion.sum()


def test_values_of_steps_and_what_is_missing() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(80, 10, 2))
    targets = np.stack([x[:, :, 0].cumsum(axis=1), x[:, :, 1]], axis=2)
    targets[:, 3] = np.nan  # a step without a target does not count
    model = recurve.train((x, targets), epochs=30, **SMALL).model
    assert model.kind == "step-values" and model.outputs == 2
    found = model.evaluate((x, targets))
    assert found.counted == 80 * 9 and found.rmse is not None and found.rmse < 1
    expected = np.delete(model.predict(x) - targets, 3, axis=1)
    assert found.rmse == pytest.approx(np.sqrt(np.square(expected).mean()), rel=1e-3)
    assert found.mae == pytest.approx(np.abs(expected).mean(), rel=1e-3)


def test_missing_features() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 6, 2))
    y = x[:, :, 0].sum(axis=1)
    x[::3, 2, 1] = np.nan
    with pytest.raises(ValueError, match="input 0 has a number that is not finite; missing= says"):
        recurve.train((x, y), steps=1, **SMALL)
    model = recurve.train((x, y), missing="zero", steps=20, **SMALL).model
    np.testing.assert_allclose(model.predict(x), model.predict(np.nan_to_num(x)), atol=1e-6)
    mean = recurve.train((x, y), missing="mean", normalise=True, steps=20, **SMALL).model
    filled = np.where(np.isnan(x), np.nanmean(x, axis=(0, 1)), x)
    np.testing.assert_allclose(mean.predict(x), mean.predict(filled), atol=1e-4)


def test_none_is_missing_as_nan_is() -> None:
    x, y = [[[1.0, 2.0], [3.0, None]], [[1.0, None], [0.5, 1.0]]] * 8, [1.5, 2.5] * 8
    a = recurve.train((x, y), missing="zero", steps=3, **SMALL)
    b = recurve.train((np.array(x, float), y), missing="zero", steps=3, **SMALL)
    assert a.loss == b.loss
    with pytest.raises(ValueError, match="input 1 is not an array: its rows have different lengths"):
        recurve.train(([[[1.0], [2.0]], [[1.0], [1.0, 2.0]]], y[:2]), **SMALL)


@pytest.mark.parametrize("kind", ["classes", "names", "values", "step-classes", "step-values"])
def test_arrays_are_read_as_lists_are(kind: str, tmp_path: Path) -> None:
    """Arrays are written as arrays, lists as lines of JSON."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(20, 5, 2))
    y = {
        "classes": np.arange(20) % 3 == 1,
        "names": np.array(["b", "ä"] * 10),
        "values": generator.normal(size=(20, 3)),
        "step-classes": generator.integers(5, 8, size=(20, 5)),
        "step-values": np.where(x[:, :, 0] > 1, np.nan, x[:, :, 1]),
    }[kind]
    kind = "classes" if kind == "names" else kind
    x[3, 2, 1] = np.nan
    lists = list(x), y.tolist()
    assert _examples.write_data(str(tmp_path), "a", (x, y), kind, True, set()).endswith("a.npz")
    assert _examples.write_data(str(tmp_path), "a", lists, kind, True, set()).endswith("a.jsonl")
    results = [recurve.train(data, missing="mean", epochs=2, **SMALL) for data in ((x, y), lists)]
    assert results[0].settings["kind"] == results[1].settings["kind"] == kind
    assert results[0].loss == results[1].loss and results[0].model.classes == results[1].model.classes
    assert results[0].model.evaluate(lists) == results[1].model.evaluate((x, y))
    assert recurve.train((x, y), valid=lists, missing="mean", epochs=1, **SMALL).validation is not None


def test_settings_of_a_checkpoint_hold_for_examples(tmp_path: Path) -> None:
    """The kind and what becomes of NaN are those of the run that goes on."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(16, 3, 2)), generator.normal(size=(16, 3))
    x[0, 0, 0] = np.nan
    output = tmp_path / "m.safetensors"
    recurve.train((x, y), output, kind="values", missing="mean", steps=2, **SMALL)
    result = recurve.train((x, y), resume=output, steps=4, progress=False)
    assert result.step == 4 and result.model.kind == "values" and result.model.outputs == 3


def test_missing_targets_leave_sequences_out(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = np.random.default_rng(0).normal(size=(20, 4, 1)), np.arange(20) / 2
    y[[3, 5]] = np.nan
    with pytest.raises(ValueError, match="target 3 is not finite; with missing="):
        recurve.train((x, y), steps=1, **SMALL)
    model = recurve.train((x, y), missing="mean", steps=1, **{**SMALL, "progress": True}).model
    assert "left out" in capsys.readouterr().err
    assert model.evaluate((x, y)).counted == 18


def test_wrong_targets_of_steps() -> None:
    x = np.zeros((2, 3, 1))
    wrong: "list[tuple[type[Exception], str, Any, str]]" = [
        (ValueError, "target 1 has 2 time steps, and its sequence has 3", [[1, 2, 3], [1, 2]], "step-classes"),
        (TypeError, "target 0 is 1; it must be for each time step a whole number", [1, 2], "step-classes"),
        (TypeError, r"target 0 is \[0.5, 1, 2\]", [[0.5, 1, 2], [0, 1, 2]], "step-classes"),
        (ValueError, "target 1 is not finite", [[1.0, 2, 3], [1.0, np.inf, 3]], "step-values"),
        (TypeError, "target 0 is 'abc'", ["abc", "abd"], "step-values"),
        (TypeError, "target 0 is .*; it must be for each time step a number", [["a"] * 3] * 2, "step-values"),
        (TypeError, "target 1 is .*a number", [[[1.0, 2]] * 3, [[1.0, 2], [1.0], [2.0]]], "step-values"),
    ]
    for error, said, targets, kind in wrong:
        with pytest.raises(error, match=said):
            recurve.train((x, targets), kind=kind, steps=1, **SMALL)


# ---- tables of other libraries


class FakeFrame:
    """What of a DataFrame of pandas is used. `index`: names of columns that are its index."""

    def __init__(self, rows: "list[dict[str, Any]]", *index: str) -> None:
        self.rows = rows
        self.index = SimpleNamespace(names=list(index) or [None])

    def to_csv(self, path: str, index: bool) -> None:
        names = self.index.names
        rows = [{name: value for name, value in row.items() if index or name not in names} for row in self.rows]
        write_csv(Path(path), rows)


class FakeTable:
    """What of a Table of pyarrow is used: here it has a batch for each row."""

    def __init__(self, rows: "list[dict[str, Any]]") -> None:
        kinds = {name: SimpleNamespace(value_field=0) if isinstance(v, list) else None for name, v in rows[0].items()}
        self.schema = FakeSchema(SimpleNamespace(name=name, type=kind) for name, kind in kinds.items())
        self.rows = rows

    def to_batches(self) -> "list[Any]":
        columns = [{name: [value] for name, value in row.items()} for row in self.rows]
        return [SimpleNamespace(to_pydict=lambda found=found: found) for found in columns]


class FakeSchema(list):  # type: ignore[type-arg]
    @property
    def names(self) -> "list[str]":
        return [field.name for field in self]


def test_a_frame_is_a_table(table: Path) -> None:
    given = {**SMALL, "sequence": "series", "time": "step", "epochs": 3, "valid": "10%"}
    result = recurve.train(FakeFrame(rows_of_signs(160)), **given)
    assert result.recognised is not None and result.recognised.startswith("data.csv is read as")
    assert result.loss == recurve.train(table, **given).loss and result.validation is not None
    more = rows_of_signs(30, 1)
    model, path = result.model, write_csv(table.with_name("more.csv"), more)
    assert model.evaluate(FakeFrame(more)) == model.evaluate(path)
    np.testing.assert_array_equal(model.predict_file(FakeFrame(more)).values, model.predict_file(path).values)
    with pytest.raises(TypeError, match="a DataFrame, or an array to forecast, not dict"):
        recurve.train({"a": [1]}, **SMALL)


def test_index_and_batches_of_tables(table: Path) -> None:
    given = {**SMALL, "sequence": "series", "time": "step", "epochs": 2}
    expected, rows = recurve.train(table, **given).loss, rows_of_signs(160)
    assert recurve.train(FakeFrame(rows, "series", "step"), **given).loss == expected  # named by settings
    assert recurve.train(FakeFrame([{"row": i, **row} for i, row in enumerate(rows)], "row"), **given).loss == expected
    assert recurve.train(FakeTable(rows), **given).loss == expected
    lists = [{"x": [1.0, 2.0, 4.0], "y": "a"}, {"x": [3.0, None], "y": "b"}] * 8
    assert recurve.train(FakeTable(lists), missing="zero", steps=2, **SMALL).model.classes == ("a", "b")


def test_pandas(table: Path) -> None:
    pandas = pytest.importorskip("pandas")
    given = {**SMALL, "sequence": "series", "time": "step", "epochs": 2}
    frame = pandas.read_csv(table)
    expected = recurve.train(table, **given).loss
    assert recurve.train(frame, **given).loss == expected
    assert recurve.train(frame.set_index(["series", "step"]), **given).loss == expected  # named by settings
    frame.loc[3, "b"] = np.nan
    with pytest.raises(ValueError, match=r"data\.csv.*b"):
        recurve.train(frame, **given)
    assert recurve.train(frame, missing="previous", **given).step > 0


def test_pyarrow(table: Path, tmp_path: Path) -> None:
    pyarrow_csv = pytest.importorskip("pyarrow.csv")
    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet

    given = {**SMALL, "sequence": "series", "time": "step", "epochs": 2}
    found = pyarrow_csv.read_csv(table)
    expected = recurve.train(table, **given).loss
    assert recurve.train(found, **given).loss == expected
    pyarrow.parquet.write_table(found, tmp_path / "signs.parquet")
    pyarrow.feather.write_feather(found, tmp_path / "signs.feather")
    for name in ("signs.parquet", "signs.feather"):
        result = recurve.train(tmp_path / name, **given)
        assert result.loss == expected and result.settings["data"] == str(tmp_path / name)
    lists = pyarrow.table({"x": [[1.0, 2.0], [3.0, None, 5.0]] * 8, "y": ["a", "b"] * 8})
    assert recurve.train(lists, missing="zero", steps=2, **SMALL).model.classes == ("a", "b")


def test_a_parquet_file_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ImportError(name)

    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(_examples.importlib, "import_module", refuse)
    with pytest.raises(ValueError, match=r"a\.parquet is read by pyarrow, which is not installed"):
        recurve.train(tmp_path / "a.parquet", **SMALL)


# ---- a run goes on


def test_a_run_of_a_table_goes_on(table: Path, tmp_path: Path) -> None:
    given = {**SMALL, "sequence": "series", "time": "step", "valid": "10%", "normalise": True}
    whole = recurve.train(table, tmp_path / "whole.safetensors", steps=20, schedule="combine+fuse+pack", **given)
    part = tmp_path / "part.safetensors"
    recurve.train(table, part, steps=9, schedule="combine+fuse+pack", **given)
    rest = recurve.train(resume=part, steps=20, progress=False)
    assert rest.step == 20 and rest.recognised is None and rest.settings["kind"] == "classes"
    series = [np.ones((3, 2))]
    np.testing.assert_array_equal(rest.model.predict(series), whole.model.predict(series))
    log = [json.loads(line) for line in (tmp_path / "part.jsonl").read_text().splitlines()]
    assert [line["event"] for line in log].count("validation") >= 1
    shutil.copy(table, tmp_path / "moved.csv")
    assert recurve.train(tmp_path / "moved.csv", resume=part, steps=22, progress=False).step == 22
