"""Training, trained models, their curves and files, Ctrl-C, and bad input."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recurve
from recurve._native import api
from recurve._progress import Metric, ProgressLine

TEXT = "the quick brown fox jumps over the lazy dog\n" * 60
TINY: "dict[str, Any]" = {
    "hidden": 24,
    "batch": 4,
    "length": 16,
    "learning_rate": 0.01,
    "effort": "estimate",
    "progress": False,
}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def examples(count: int = 120, seed: int = 0) -> "tuple[list[Any], list[str]]":
    """Sequences of two features; the class is the sign of the first one's sum."""
    generator = np.random.default_rng(seed)
    inputs = [generator.normal(size=(generator.integers(4, 10), 2)) for _ in range(count)]
    return inputs, ["up" if x[:, 0].sum() > 0 else "down" for x in inputs]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> recurve.TrainingResult:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "text.txt").write_text(TEXT)
    return recurve.train(folder / "text.txt", folder / "model.safetensors", steps=400, log_every=10, **TINY)


# ---- training


def test_text_is_learned(trained: recurve.TrainingResult) -> None:
    assert trained.step == 400 and not trained.stopped and trained.best_path is None
    curves = trained.curves
    assert list(curves.step) == list(range(10, 401, 10))
    assert curves.loss[0] > 4 and trained.loss < 0.5 and curves.loss[-1] < 0.5
    for column in (
        curves.epoch,
        curves.update_loss,
        curves.rate,
        curves.norm,
        curves.tokens_per_second,
        curves.seconds,
    ):
        assert column.shape == curves.step.shape and np.isfinite(column).all()
    assert trained.settings["hidden"] == 24 and trained.settings["learning_rate"] == 0.01


def test_log_is_the_file(trained: recurve.TrainingResult) -> None:
    assert trained.path is not None
    lines = [json.loads(line) for line in Path(trained.path.replace(".safetensors", ".jsonl")).read_text().splitlines()]
    assert lines == trained.log
    assert [line["event"] for line in lines if line["event"] != "checkpoint"] == ["start", *["progress"] * 40, "end"]


def test_log_beside_any_output(tmp_path: Path, text: Path) -> None:
    recurve.train(text, tmp_path / "a.model", steps=1, **TINY)
    recurve.train(text, tmp_path / "b", log=tmp_path / "own.jsonl", steps=1, **TINY)
    logs = {path.name for path in tmp_path.glob("*.jsonl")}
    assert logs == {"a.jsonl", "own.jsonl"}


def test_validation_test_and_best(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for part, lines in {"train": 60, "valid": 20, "test": 10}.items():
        (folder / f"{part}.txt").write_text("the quick brown fox jumps over the lazy dog\n" * lines)
    result = recurve.train(folder, tmp_path / "m.safetensors", steps=60, validate_every=20, eval_batch=2, **TINY)
    assert list(result.curves.validation_step) == [20, 40, 60]
    losses = result.curves.validation_loss
    assert result.validation == pytest.approx(losses[-1]) and result.best == pytest.approx(losses.min())
    assert result.best_path == str(tmp_path / "m.best.safetensors") == result.model.path
    assert result.test is not None and result.log[-1]["event"] == "test"
    assert result.model.evaluate(folder).loss == pytest.approx(result.test.loss)
    none = recurve.train(folder, valid="none", test="none", steps=3, **TINY)
    assert none.validation is None and none.test is None


def test_words(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("a b c d\n" * 100)
    result = recurve.train(path, level="word", steps=120, **TINY)
    model = result.model
    assert model.level == "word" and model.vocabulary is not None
    assert set(model.vocabulary) == {"a", "b", "c", "d", "<eos>", "<unk>"}
    assert model.generate("a b", tokens=4, temperature=0) == " c d\na"
    tokens = model.encode("a b\nc")
    assert [model.vocabulary[i] for i in tokens] == ["<eos>", "a", "b", "<eos>", "c"]
    assert model.vocabulary[int(model.predict("a b", last=True).argmax())] == "c"
    assert model.vocabulary[model.encode("a z")[-1]] == "<unk>"
    words = tmp_path / "words"
    words.write_text("<eos>\na\nb\nc\nd\n")
    without = recurve.train(path, level="word", vocabulary=words, steps=2, **TINY).model
    with pytest.raises(ValueError, match="the word 'z' is not in the vocabulary"):
        without.encode("a z")


def test_classes_in_memory() -> None:
    inputs, targets = examples()
    result = recurve.train(
        (inputs, targets), valid=examples(30, 1), test=examples(30, 2), epochs=12, log_every=5, **TINY
    )
    assert result.settings["kind"] == "classes" and result.path is None
    assert result.curves.loss[0] > 0.5 and result.loss < 0.3
    model = result.model
    assert model.classes == ("down", "up") and model.vocabulary is None and model.level is None
    assert result.test is not None and result.test.accuracy is not None and result.test.accuracy > 0.8
    assert model.evaluate(examples(30, 2)).accuracy == result.test.accuracy
    probabilities = model.predict(inputs)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    names = model.classify(inputs)
    assert names == [model.classes[i] for i in probabilities.argmax(axis=1)]
    assert np.mean([a == b for a, b in zip(names, targets)]) > 0.8
    assert model.settings["kind"] == "classes"  # though its file is gone


def test_values_in_memory() -> None:
    inputs, _ = examples()
    targets = [[float(x[:, 0].mean()), float(x[-1, 1])] for x in inputs]
    result = recurve.train((inputs, targets), epochs=20, log_every=5, **TINY)
    assert result.model.kind == "values" and result.model.outputs == 2
    assert result.loss < result.curves.loss[0] / 3
    found = result.model.predict(inputs)
    assert found.shape == (120, 2) and np.square(found - targets).mean() < 0.2
    series = np.linspace(0, 1, 30).reshape(6, 5)
    model = recurve.train((series, np.arange(6) / 2), steps=2, **TINY).model
    assert model.features == 1
    for same in (series[:, :, None], list(series)):  # one array has the layout of the training data
        np.testing.assert_allclose(model.predict(same), model.predict(series), atol=1e-6)
    padded = model.predict(series, lengths=[3] * 6)
    np.testing.assert_allclose(padded, model.predict(series[:, :3]), atol=1e-6)


def test_texts_in_memory() -> None:
    texts = ["good film", "bad film"] * 20, [1, 0] * 20
    result = recurve.train(texts, valid=texts, epochs=15, **TINY)
    assert result.metrics["accuracy"] == 1
    assert result.model.classify(["good film", "bad film"]) == ["1", "0"]
    assert result.model.classify("good film") == ["1"]


@pytest.mark.parametrize("level", ["word", "byte"])
def test_texts_are_read_as_in_training(tmp_path: Path, level: str) -> None:
    """The losses of predictions are those of an evaluation, which reads the same texts from a file."""
    texts, classes = ["good film", "bad film", "film\nfilm", "good\n"], ["a", "b", "a", "b"]
    model = recurve.train((texts * 5, classes * 5), level=level, steps=10, **TINY).model
    assert model.classes is not None
    numbers = [model.classes.index(name) for name in classes]
    losses = -model.predict(texts, output="log_probabilities")[range(4), numbers]
    assert model.evaluate((texts, classes)).loss == pytest.approx(losses.mean(), abs=1e-5)

    path = tmp_path / "lines.txt"
    lines = ["good film", "bad film", "film film bad"]
    path.write_text("\n".join(lines * 5) + "\n")
    model = recurve.train(path, level=level, kind="lines", steps=10, **TINY).model
    total, count = 0.0, 0
    for line in lines:
        tokens = model.encode(line)
        scores = model.predict(line, output="log_probabilities")[0]
        targets = [*tokens[1:], tokens[0]]  # the end of the line is the last one
        total -= float(scores[range(len(targets)), targets].sum())
        count += len(targets)
    assert model.evaluate(path).loss == pytest.approx(total / count, abs=1e-5)


def test_equations_as_text(tmp_path: Path, text: Path) -> None:
    cell = "cell own(x) {\n    state h\n    h' = tanh(W x + U h + b)\n    return h'\n}\n"
    output = tmp_path / "own.safetensors"
    result = recurve.train(text, output, cell=cell, steps=5, **TINY)
    assert (tmp_path / "own.cell").read_text() == cell and result.settings["cell"] == str(tmp_path / "own.cell")
    assert recurve.train(resume=output, steps=8, progress=False).step == 8
    with pytest.raises(FileExistsError, match="other equations"):
        recurve.train(text, output, cell=cell.replace("tanh", "sigmoid"), steps=5, **TINY)
    assert recurve.train(text, cell=recurve.compile(cell), steps=2, **TINY).step == 2


def test_resume_has_the_bits_of_one_run(tmp_path: Path, text: Path) -> None:
    schedule = {"schedule": "combine+fuse+pack"}
    whole = recurve.train(text, tmp_path / "whole.safetensors", steps=40, **TINY, **schedule)
    part = tmp_path / "part.safetensors"
    recurve.train(text, part, steps=25, **TINY, **schedule)
    rest = recurve.train(resume=part, steps=40, progress=False)
    assert rest.step == 40 and rest.path == str(part)
    x = "the quick"
    np.testing.assert_array_equal(rest.model.predict(x), whole.model.predict(x))
    events = [json.loads(line)["event"] for line in (tmp_path / "part.jsonl").read_text().splitlines()]
    assert events.count("start") == 1 and events.count("resume") == 1


def test_presets_and_settings(tmp_path: Path, text: Path) -> None:
    assert "char-lstm" in recurve.presets()
    table = {setting.name: setting for setting in recurve.settings()}
    assert table["learning_rate"].default == "0.003" and table["optimiser"].choices[0] == "sgd"
    config = tmp_path / "config.json"
    config.write_text('{"hidden": 8, "layers": 2}')
    result = recurve.train(
        text, preset="char-lstm", config=config, layers=1, steps=2, batch=4, length=8, progress=False
    )
    kept = {name: result.settings[name] for name in ("hidden", "layers", "embedding", "dropout")}
    assert kept == {"hidden": 8, "layers": 1, "embedding": 128, "dropout": 0.2}
    sizes = recurve.train(text, cell="lstm_proj", sizes={"proj": 5}, buckets=[8, 16], steps=1, **TINY).settings
    assert sizes["sizes"] == "proj=5" and sizes["buckets"] == "8,16"


def test_progress_is_plain_lines_where_there_is_no_terminal(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recurve.train(text, steps=10, **{**TINY, "progress": True})
    said = capsys.readouterr()
    assert said.out == "" and "\r" not in said.err and "\033" not in said.err
    assert re.fullmatch(
        rf"{re.escape(str(text))} is read as one text [^\n]*\n"
        r"100%  10/10  epoch [0-9.]+  loss [0-9.]+  bits/byte [0-9.]+  [0-9.]+[kM]? bytes/s  in 0:0[0-9]\n", said.err
    )


class Terminal(io.StringIO):
    """A terminal whose width is that of COLUMNS."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def _lines_of(metric: Metric, columns: int, monkeypatch: pytest.MonkeyPatch, encoding: str = "utf-8") -> "list[str]":
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    file.encoding = encoding
    line = ProgressLine(metric, 0.0, file)
    report = api.Progress(
        step=1234, steps=5000, loss=1.5, tokens_per_second=412345, left=90, validation=1.25, best=1.25, metric=0.931
    )
    line.update(report)
    report.step, report.seconds = 5000, 62
    line.end(report, "wrote")
    return file.getvalue().replace("\033[K", "").replace("\r", "\n").split("\n")


@pytest.mark.parametrize("columns", [20, 26, 40, 60, 80, 200])
def test_progress_line_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = _lines_of(Metric("bits/byte", "bytes"), columns, monkeypatch)
    assert all(len(line) < columns for line in lines) and lines[-2] == "wrote"
    assert any(" 24%" in line for line in lines)
    shown = " ".join(lines)
    for part, least in {"loss 1.5": 40, "1:30 left": 40, "█": 40, "bits/byte 2.16": 60, "412k bytes/s": 80}.items():
        assert part in shown or columns < least, part
    assert columns < 200 or "epoch" in next(line for line in lines if "left" in line)
    assert any("validation" in line and line.endswith("best") for line in lines)
    assert columns < 40 or any("100%" in line and line.endswith("in 1:02") for line in lines)


def test_progress_line_of_other_data(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = " ".join(_lines_of(Metric.of(2, 0), 120, monkeypatch, "ascii"))
    assert "accuracy 93.1%" in classes and "412k sequences/s" in classes and "[##" in classes and classes.isascii()
    assert "perplexity 4.48" in " ".join(_lines_of(Metric.of(0, 0), 120, monkeypatch))
    assert "RMSE 0.9310" in " ".join(_lines_of(Metric.of(5, 0), 120, monkeypatch))


def test_validations_do_not_fill_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Terminal()
    monkeypatch.setattr(file, "isatty", lambda: False)
    line = ProgressLine(Metric("perplexity", "words"), 0.0, file)
    for step in range(1, 101):
        line.update(api.Progress(step=step, loss=2.0, validation=2 - step / 100, best=2 - step / 100))
    line.end(api.Progress(step=101, loss=2.0, validation=0.99, best=0.99), "")
    said = file.getvalue().splitlines()
    assert [text.split("  ")[1] for text in said if text.startswith("validation")] == ["update 1", "update 101"]
    assert len(said) == 3 and said[-1].startswith("update 101")


# ---- callbacks and Ctrl-C


def test_callback_sees_progress_and_stops(tmp_path: Path, text: Path) -> None:
    seen: list[recurve.Progress] = []

    def callback(progress: recurve.Progress) -> bool:
        seen.append(progress)
        return progress.step < 7

    result = recurve.train(text, tmp_path / "m.safetensors", steps=50, callback=callback, **TINY)
    assert result.stopped and result.step == seen[-1].step >= 7
    assert seen[0].steps == 50 and seen[-1].loss < seen[0].loss + 1 and seen[0].validation is None
    assert recurve.train(resume=result.path, steps=50, progress=False).step == 50


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_exception_of_the_callback_is_raised_after_the_checkpoint(
    tmp_path: Path, text: Path, error: "type[BaseException]"
) -> None:
    def callback(progress: recurve.Progress) -> None:
        if progress.step >= 5:
            raise error("here")

    output = tmp_path / "m.safetensors"
    with pytest.raises(error, match="here"):
        recurve.train(text, output, steps=50, callback=callback, **TINY)
    assert output.exists()
    assert recurve.train(resume=output, steps=20, progress=False).step == 20


def test_keyboard_interrupt_leaves_a_checkpoint(tmp_path: Path, text: Path) -> None:
    def callback(progress: recurve.Progress) -> None:
        if progress.step >= 5:
            raise KeyboardInterrupt

    result = recurve.train(text, tmp_path / "m.safetensors", steps=50, callback=callback, **TINY)
    assert result.stopped and result.step < 50 and result.model.generate("a", 2)
    assert recurve.train(resume=result.path, steps=20, progress=False).step == 20


def test_signal_stops_and_the_handler_comes_back(text: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    result = recurve.train(text, seconds=60, **TINY)
    assert result.stopped and result.step > 0 and time.monotonic() - begin < 30
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_of_a_process(tmp_path: Path, text: Path) -> None:
    output = tmp_path / "m.safetensors"
    code = (
        "import recurve\n"
        f"r = recurve.train({str(text)!r}, {str(output)!r}, seconds=60, hidden=24, effort='estimate', progress=False,\n"
        "    callback=lambda p: print(p.step, flush=True))\n"
        "print('stopped', r.stopped)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and out.endswith("stopped True\n") and err == ""
    assert recurve.load(output)


# ---- trained models


def test_generate(trained: recurve.TrainingResult) -> None:
    model = trained.model
    text = model.generate("the quick", tokens=34, temperature=0)
    assert text == " brown fox jumps over the lazy dog"
    assert "".join(model.generate("the quick", tokens=34, temperature=0, stream=True)) == text
    one, again, two = (model.generate("the", tokens=40, temperature=2, seed=seed) for seed in (1, 1, 2))
    assert one == again != two
    assert model.generate("the", tokens=20, temperature=2, top_k=1) == model.generate("the", tokens=20, temperature=0)
    assert model.generate(tokens=0) == ""
    pieces = model.generate("the", tokens=10000, stream=True)
    assert len(next(pieces)) == 1
    pieces.close()  # type: ignore[attr-defined]
    assert model.generate("the quick", tokens=6, temperature=0) == " brown"


def test_predictions_are_those_of_streams(trained: recurve.TrainingResult) -> None:
    model = trained.model
    whole = model.predict("the quick", output="logits")
    tokens = model.encode("the quick")
    assert whole.shape == (1, 9, 256) and tokens.tolist() == list(b"the quick")
    with model.stream(output="logits") as stream:
        for t, token in enumerate(tokens):
            np.testing.assert_allclose(stream.step([token])[0], whole[0, t], atol=1e-5)
    np.testing.assert_allclose(model.predict("the quick", last=True), whole[:, -1], atol=1e-5)
    np.testing.assert_allclose(np.exp(model.predict(tokens[None], output="log_probabilities")).sum(-1), 1, atol=1e-5)


def test_sequences_of_different_lengths(trained: recurve.TrainingResult) -> None:
    model = trained.model
    together = model.predict(["the", "the quick", np.array([97, 98])])
    assert together.shape == (3, 9, 256) and not together[0, 3:].any()
    np.testing.assert_allclose(together[:1, :3], model.predict("the"), atol=1e-5)
    array = np.full((2, 9), -1)
    array[0, :3], array[1] = model.encode("the"), model.encode("the quick")
    np.testing.assert_allclose(model.predict(array, lengths=[3, 9]), together[:2], atol=1e-5)
    assert len(model.predict([])) == 0


def test_evaluate(trained: recurve.TrainingResult, text: Path) -> None:
    found = trained.model.evaluate(text)
    assert found.counted == len(TEXT) - 1 and found.loss < 0.6 and found.accuracy is None
    assert found.perplexity == pytest.approx(np.exp(found.loss)) and found.bits == pytest.approx(found.loss / np.log(2))


def test_load_and_save(trained: recurve.TrainingResult, tmp_path: Path) -> None:
    assert trained.path is not None
    model = recurve.load(trained.path)
    assert isinstance(model, recurve.Predictor)
    assert (model.kind, model.level, model.outputs, model.features, model.device) == ("stream", "byte", 256, 0, "cpu")
    assert model.settings == trained.settings and "256 tokens" in repr(model)
    model.save(tmp_path / "alone.safetensors")
    alone = recurve.Predictor.load(tmp_path / "alone.safetensors", dtype="float64")
    np.testing.assert_allclose(alone.predict("the"), model.predict("the"), atol=1e-4)
    assert alone.predict("the").dtype == np.float64
    with pytest.raises(ValueError, match="no settings of a training run"):
        alone.settings


# ---- bad input


def test_wrong_files(tmp_path: Path, trained: recurve.TrainingResult) -> None:
    import pickle

    pickled, text, cut = tmp_path / "a.pt", tmp_path / "a.txt", tmp_path / "cut.safetensors"
    pickled.write_bytes(pickle.dumps({"a": 1}))
    text.write_text("no model")
    assert trained.path is not None
    cut.write_bytes(Path(trained.path).read_bytes()[:-100])
    for path in (pickled, text, cut):
        with pytest.raises(ValueError, match=path.name) as caught:
            recurve.load(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError, match=r"nothing\.safetensors"):
        recurve.load(tmp_path / "nothing.safetensors")
    with pytest.raises(OSError, match=str(tmp_path)):
        recurve.load(tmp_path)
    with pytest.raises(ValueError, match="dtype 'int8'"):
        recurve.load(trained.path, dtype="int8")
    with pytest.raises(ValueError, match="tpu"):
        recurve.load(trained.path, device="tpu")


@pytest.mark.parametrize(
    "error, said, given",
    [
        (TypeError, "no setting 'hiden'; did you mean 'hidden'", {"hiden": 3}),
        (TypeError, r"no setting 'xyzzy'; recurve\.settings\(\)", {"xyzzy": 3}),
        (TypeError, "hidden is <object", {"hidden": object()}),
        (ValueError, "hidden", {"hidden": 0}),
        (ValueError, "hidden", {"hidden": "many"}),
        (ValueError, "optimiser", {"optimiser": "best"}),
        (ValueError, "learning-rate|learning_rate", {"learning_rate": float("nan")}),
        (ValueError, "preset", {"preset": "none-such"}),
        (ValueError, "lstmm", {"cell": "lstmm"}),
        (recurve.CellError, "not known", {"cell": "cell a(x) {\n return y\n}"}),
        (ValueError, "tpu", {"device": "tpu"}),
        (NotImplementedError, "one process", {"parallel": "data"}),
        (FileNotFoundError, "nothing", {"valid": "nothing.txt"}),
        (FileNotFoundError, "nothing", {"resume": "nothing.safetensors"}),
        (FileNotFoundError, "nothing", {"config": "nothing.json"}),
    ],
)
def test_wrong_settings_write_nothing(
    error: "type[Exception]",
    said: str,
    given: "dict[str, Any]",
    tmp_path: Path,
    text: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=said):
        recurve.train(text, "m.safetensors", **{**TINY, "steps": 3, **given})
    assert {path.name for path in tmp_path.iterdir()} <= {"text.txt", "text.txt.recurve-tokens"}


def test_wrong_data(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no training data"):
        recurve.train(progress=False)
    with pytest.raises(FileNotFoundError, match="nothing"):
        recurve.train("nothing.txt", **TINY)
    with pytest.raises(ValueError, match="without a training file"):
        recurve.train(tmp_path, **TINY)
    with pytest.raises(TypeError, match="data must be a path"):
        recurve.train(3, **TINY)
    wrong: "list[tuple[type[Exception], str, Any]]" = [
        (TypeError, "inputs must be a list", ("train.txt", "valid.txt")),
        (TypeError, "targets must be a list", ([[1.0]], 1)),
        (ValueError, "2 inputs and 1 targets", ([[1.0], [2.0]], [1])),
        (ValueError, "input 1 has a number that is not finite", ([[1.0], [np.nan]], [1, 2])),
        (ValueError, "target 1 is not finite", ([[1.0], [2.0]], [0.5, np.inf])),
        (ValueError, "input 0 has shape", (np.zeros((2, 3, 4, 5)), [1, 2])),
        (TypeError, "input 0 is an array of object", ([[None]], [1])),
        (TypeError, "target 0 is None", ([[1.0]], [None])),
        (ValueError, "features", ([[[1.0, 2.0]], [[1.0]]], [1, 2])),
    ]
    for error, said, data in wrong:
        with pytest.raises(error, match=said):
            recurve.train(data, steps=1, **TINY)


def test_files_of_others_are_not_replaced(tmp_path: Path, text: Path) -> None:
    output = tmp_path / "m.safetensors"
    recurve.train(text, output, steps=2, **TINY)
    before = output.read_bytes()
    with pytest.raises(OSError, match=r"m\.safetensors"):
        recurve.train(text, output, steps=2, seed=1, **TINY)
    assert output.read_bytes() == before
    output.unlink()
    with pytest.raises(FileExistsError, match="the log"):
        recurve.train(text, output, steps=2, **TINY)
    for given in ({"output": text}, {"log": text}, {"output": output, "log": output}):
        with pytest.raises((ValueError, OSError)):
            recurve.train(text, **{**TINY, **given}, steps=2, overwrite=True)
    assert text.read_text() == TEXT
    assert recurve.train(text, output, steps=2, overwrite=True, **TINY).step == 2


def test_model_of_a_resumed_run_cannot_change(tmp_path: Path, text: Path) -> None:
    output = tmp_path / "m.safetensors"
    recurve.train(text, output, steps=2, **TINY)
    with pytest.raises(ValueError, match="hidden cannot be changed"):
        recurve.train(resume=output, hidden=7, progress=False)


def test_wrong_predictions(trained: recurve.TrainingResult) -> None:
    model = trained.model
    wrong: "list[tuple[type[Exception], str, Any]]" = [
        (ValueError, r"x\[0, 1\] is 256; a token is in 0..255", np.array([[1, 256]])),
        (ValueError, r"sequence 1\[0\] is -1", [[1], [-1]]),
        (ValueError, "sequence 1 is empty", [[1], []]),
        (TypeError, "float64", np.zeros((2, 2)) + 0.5),
        (ValueError, r"x has shape \[2\]", np.array([1, 2])),
        (ValueError, "no time steps", np.zeros((2, 0), int)),
    ]
    for error, said, inputs in wrong:
        with pytest.raises(error, match=said):
            model.predict(inputs)
    with pytest.raises(ValueError, match=r"lengths\[0\] is 3"):
        model.predict(np.array([[1, 2]]), lengths=[3])
    with pytest.raises(TypeError, match="one array alone"):
        model.predict([[1]], lengths=[1])
    with pytest.raises(ValueError, match="output 'best'"):
        model.predict("a", output="best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not of classes"):
        model.classify("a")
    with pytest.raises(ValueError, match="temperature"):
        model.generate("a", temperature=-1)
    with pytest.raises(TypeError, match="tokens is 1.5"):
        model.generate("a", tokens=1.5)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="temperature"):
        next(model.generate("a", temperature=-1, stream=True))
    with pytest.raises(FileNotFoundError):
        model.evaluate("nothing.txt")
