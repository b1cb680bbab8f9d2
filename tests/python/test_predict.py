"""Predictions from files, metrics, reports, and the metrics of validations."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recurve
from recurve.evaluation import Evaluation

SMALL: "dict[str, Any]" = {"hidden": 16, "batch": 8, "learning_rate": 0.02, "effort": "estimate", "progress": False}
CLASSES = ("flat", "rise", "fall")


def make_rows(count: int, seed: int, labelled: bool = True) -> "list[dict[str, Any]]":
    """Noisy series with a slope; the columns stand in another order where there are no labels."""
    generator, rows = np.random.default_rng(seed), []
    for i in range(count):
        slope, steps = (0, 0.5, -0.5)[i % 3], int(generator.integers(6, 10))
        for t in range(steps):
            row = {"id": f"n{i}", "height": slope * t + 0.1 * generator.normal(), "noise": generator.normal()}
            rows.append({**row, "trend": CLASSES[i % 3]} if labelled else dict(reversed(row.items())))
    return rows


def write_csv(path: Path, rows: "list[dict[str, Any]]") -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> recurve.TrainingResult:
    folder = tmp_path_factory.mktemp("trends")
    path = write_csv(folder / "trends.csv", make_rows(240, 0))
    given = {**SMALL, "epochs": 6, "normalise": True, "valid": "20%", "test": "10%"}
    return recurve.train(path, folder / "trends.safetensors", **given)


def sequences_of(rows: "list[dict[str, Any]]") -> "dict[str, Any]":
    found: "dict[str, list[list[float]]]" = {}
    for row in rows:
        found.setdefault(row["id"], []).append([row["height"], row["noise"]])
    return {name: np.array(steps, np.float32) for name, steps in found.items()}


# ---- files


def test_predictions_of_a_file(trained: recurve.TrainingResult, tmp_path: Path) -> None:
    """Columns are found by their names, wherever they stand, and targets are not needed."""
    rows, model = make_rows(30, 1, labelled=False), trained.model
    assert list(rows[0]) == ["noise", "height", "id"] and model.feature_names == ("height", "noise")
    found = model.predict_file(write_csv(tmp_path / "new.csv", rows))
    sequences = sequences_of(rows)
    assert found.names == tuple(sequences) and found.classes == model.classes == ("fall", "flat", "rise")
    np.testing.assert_allclose(found.values, model.predict(list(sequences.values())), atol=1e-5)
    assert np.mean([a == CLASSES[i % 3] for i, a in enumerate(found.labels)]) > 0.9
    assert found.labels == model.classify(list(sequences.values()))
    logits = model.predict_file(tmp_path / "new.csv", output="logits").values
    np.testing.assert_allclose(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), found.values, atol=1e-5)


def test_a_large_file_is_read_in_blocks(
    trained: recurve.TrainingResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, model = write_csv(tmp_path / "new.csv", make_rows(30, 1)), trained.model
    whole = model.predict_file(path)
    monkeypatch.setattr("recurve._files._MOST_NUMBERS", 60)
    sizes = []
    compute = model._compute
    monkeypatch.setattr(model, "_compute", lambda x, *rest: (sizes.append(x.size), compute(x, *rest))[1])
    np.testing.assert_allclose(model.predict_file(path).values, whole.values, atol=1e-6)
    assert len(sizes) > 5 and max(sizes) <= 60


def test_wrong_files(trained: recurve.TrainingResult, tmp_path: Path) -> None:
    model = trained.model
    rows = make_rows(6, 1)
    without = write_csv(tmp_path / "without.csv", [{k: v for k, v in row.items() if k != "noise"} for row in rows])
    with pytest.raises(ValueError, match=r"without\.csv.*noise"):
        model.predict_file(without)
    words = write_csv(tmp_path / "words.csv", [*rows[:4], {**rows[4], "noise": "loud"}])
    with pytest.raises(ValueError, match=r"words\.csv.*6.*noise|words\.csv.*loud"):
        model.predict_file(words)
    unknown = write_csv(tmp_path / "unknown.csv", [{**row, "trend": "wild"} for row in rows])
    assert len(model.predict_file(unknown).names) == 6  # targets are not read
    with pytest.raises(ValueError, match="wild"):
        model.evaluate(unknown)
    with pytest.raises(FileNotFoundError, match="nothing"):
        model.predict_file(tmp_path / "nothing.csv")


def test_values_have_no_labels_and_texts_no_files(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [{"a": i / 9, "b": i, "y": i / 7} for i in range(30)])
    model = recurve.train(path, steps=3, **SMALL).model
    found = model.predict_file(path)
    assert found.values.shape == (30, 1) and found.classes is None and found.names[:2] == ("0", "1")
    with pytest.raises(ValueError, match="values, not classes"):
        found.labels
    (tmp_path / "a.txt").write_text("she sells sea shells\n" * 20)
    text = recurve.train(tmp_path / "a.txt", steps=2, length=8, **SMALL).model
    with pytest.raises(ValueError, match="a language model: give predict"):
        text.predict_file(tmp_path / "a.txt")


# ---- metrics


def test_metrics_of_classes(trained: recurve.TrainingResult, tmp_path: Path) -> None:
    rows, model = make_rows(60, 2), trained.model
    found = model.evaluate(write_csv(tmp_path / "more.csv", rows))
    labels = model.classify(list(sequences_of(rows).values()))
    truth = [CLASSES[i % 3] for i in range(60)]
    assert model.classes is not None and found.confusion is not None and found.classes == model.classes
    expected = np.zeros((3, 3), int)
    for a, b in zip(truth, labels):
        expected[model.classes.index(a), model.classes.index(b)] += 1
    np.testing.assert_array_equal(found.confusion, expected)
    assert found.counted == 60 and found.accuracy == pytest.approx(expected.trace() / 60)
    recalls = expected.diagonal() / expected.sum(axis=1)
    precisions = expected.diagonal() / np.maximum(expected.sum(axis=0), 1)
    assert found.recall == pytest.approx(recalls.mean()) and found.precision == pytest.approx(precisions.mean())
    assert found.f1 is not None and found.auc is not None and 0.9 < found.auc <= 1
    assert (found.mae, found.rmse, found.r2, found.naive_mae) == (None, None, None, None)
    assert set(found.metrics) == {"accuracy", "precision", "recall", "f1", "auc"}


def test_metrics_of_values() -> None:
    x = np.random.default_rng(0).normal(size=(50, 5, 1))
    y = x.sum(axis=(1, 2))
    model = recurve.train((x, y), epochs=20, **SMALL).model
    found, errors = model.evaluate((x, y)), model.predict(x)[:, 0] - y
    assert found.mae == pytest.approx(np.abs(errors).mean(), rel=1e-3)
    assert found.rmse == pytest.approx(np.sqrt(np.square(errors).mean()), rel=1e-3)
    assert found.r2 == pytest.approx(1 - np.square(errors).sum() / np.square(y - y.mean()).sum(), rel=1e-3)
    assert found.accuracy is None and found.naive_mae is None and found.confusion is None
    assert set(found.metrics) == {"mae", "rmse", "r2"}


def test_report_of_classes() -> None:
    confusion = np.array([[8, 2, 0], [1, 9, 0], [0, 0, 0]])
    found = Evaluation(0.5, 20, accuracy=0.85, confusion=confusion, classes=("cat", "a dog with a long name", "fish"))
    first, _, head, *lines = found.report().splitlines()
    assert first == "loss 0.5000, accuracy 0.8500; counted: 20"
    assert head.split() == ["class", "precision", "recall", "F1", "count"]
    assert lines[0].split() == ["cat", "0.889", "0.800", "0.842", "10"]
    assert lines[1].split() == ["a", "dog", "with", "a", "long", "na", "0.818", "0.900", "0.857", "10"]
    assert lines[2].split() == ["fish", "-", "-", "-", "0"]
    assert len({len(line) for line in (head, *lines)}) == 1


def test_report_of_others() -> None:
    assert Evaluation(0.25, 1234, mae=0.5, rmse=0.75).report() == (
        "loss 0.2500, mae 0.5000, rmse 0.7500; counted: 1,234\n"
    )
    assert Evaluation(math.log(2), 7).report() == "loss 0.6931, bits 1.0000; counted: 7\n"


# ---- the log


def test_metrics_of_validations(trained: recurve.TrainingResult) -> None:
    curves = trained.curves
    names = {"accuracy", "precision", "recall", "f1", "auc"}
    assert set(curves.validation_metrics) == names == set(trained.metrics)
    accuracies = curves.validation_metrics["accuracy"]
    assert accuracies.shape == curves.validation_loss.shape and len(accuracies) == 6
    assert accuracies[-1] == trained.metrics["accuracy"] > 0.8
    lines = [line for line in trained.log if line["event"] == "validation"]
    assert [line["metrics"]["accuracy"] for line in lines] == list(accuracies)


def test_test_is_a_line_of_the_log(trained: recurve.TrainingResult) -> None:
    test, line = trained.test, trained.log[-1]
    assert trained.path is not None and test is not None and test.confusion is not None
    written = Path(trained.path).with_suffix(".jsonl").read_text().splitlines()[-1]
    assert json.loads(written) == line and line["event"] == "test" and line["counted"] == test.counted == 24
    assert line["loss"] == pytest.approx(test.loss) and line["metrics"]["accuracy"] == pytest.approx(test.accuracy)
    assert line["classes"] == list(test.classes or ()) and line["confusion"] == test.confusion.tolist()


def test_callback_sees_the_metric() -> None:
    x = np.random.default_rng(0).normal(size=(40, 5, 1))
    seen: "list[float | None]" = []
    data = x, (x.sum(axis=(1, 2)) > 0).astype(int)
    result = recurve.train(data, valid="25%", epochs=3, callback=lambda p: seen.append(p.metric), **SMALL)
    assert seen[0] is None and seen[-1] is not None and seen[-1] in result.curves.validation_metrics["accuracy"]


# ---- texts


@pytest.mark.parametrize("level", ["character", "word", "byte"])
@pytest.mark.parametrize("kind", ["lines", "stream"])
def test_texts_of_any_level_are_read_as_in_training(tmp_path: Path, level: str, kind: str) -> None:
    path = tmp_path / "text.txt"
    path.write_text("där är åtta sjöar\nen å\n" * 30, encoding="utf-8")
    model = recurve.train(path, level=level, kind=kind, steps=5, length=8, **SMALL).model
    tokens = model.encode("en å")
    assert model.level == level and model.vocabulary is not None
    shown = [model.vocabulary[i] for i in tokens]
    expected = {"character": list("en å"), "word": ["en", "å"], "byte": list("en å".encode().decode("latin-1"))}[level]
    if kind == "lines" or level == "word":
        expected = ["<eos>" if level == "word" else "\n", *expected]
    assert shown == expected
