"""Training on text, and on sequences with classes or values, of the whole sequence or of each time step."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recurve import _data, _examples
from recurve._arrays import Array
from recurve._log import RunLog
from recurve._native import api, errors
from recurve._native.loader import Handle, context, encode_path, make, native, take_text
from recurve._progress import Metric, ProgressLine
from recurve._settings import Setting, Settings, check_fixed, check_names, checkpoint_settings, presets, settings
from recurve.cells import Equations, compile
from recurve.evaluation import Evaluation
from recurve.predictor import Predictor


@dataclass(frozen=True)
class Progress:
    """Where a run is. A callback of `train` receives it."""

    step: int  #: updates done, of this run and of those that it resumed
    steps: int | None  #: updates in total; None: unknown
    epochs: float  #: passes over the data, with the fraction of the current one
    loss: float  #: mean over the last updates: nats for each token, or the loss of an example
    rate: float  #: learning rate of the last update
    norm: float  #: of its gradient, before clipping
    tokens_per_second: float  #: examples per second where there are no tokens
    seconds: float  #: of training
    left: float | None  #: estimated seconds to the nearest limit; None: unknown
    validation: float | None  #: loss of the last validation; None before the first
    best: float | None  #: loss of the best validation
    metric: float | None = None  #: of the last validation: accuracy of classes, root mean squared error of values


@dataclass(frozen=True)
class Curves:
    """What a run logged, as arrays with an element for each line of the log."""

    step: Array
    epoch: Array
    loss: Array  #: mean over the last updates
    update_loss: Array  #: of the last update alone
    rate: Array
    norm: Array
    tokens_per_second: Array
    seconds: Array
    validation_step: Array  #: with an element for each validation, as the next three
    validation_epoch: Array
    validation_loss: Array  #: NaN where it was not a number
    validation_metrics: dict[str, Array]  #: accuracy, f1, ... of classes; mae, rmse, ... of values; none of texts


@dataclass
class TrainingResult:
    """What `train` did."""

    path: str | None  #: of the last checkpoint; None where there was no `output`
    best_path: str | None  #: of the best model by validation; None where there is none
    stopped: bool  #: by Ctrl-C or by the callback, before a limit of the settings
    step: int  #: updates done
    epochs: float
    loss: float  #: mean over the last updates
    seconds: float
    validation: float | None  #: loss of the last validation
    best: float | None  #: loss of the best validation
    test: Evaluation | None  #: of the best model on the test data
    recognised: str | None  #: how the data is read, where that was recognised from the file
    settings: dict[str, Any] = field(repr=False)
    log: list[dict[str, Any]] = field(repr=False)  #: the lines of the log
    load: Callable[[], Predictor] = field(repr=False)

    @functools.cached_property
    def model(self) -> Predictor:
        """The best model by validation, or the last one where there is none."""
        return self.load()

    @property
    def curves(self) -> Curves:
        """Losses, rates and speed over the run."""
        progress = [line for line in self.log if line["event"] == "progress"]
        validations = self._validations
        names = ("step", "epoch", "loss", "update_loss", "rate", "norm", "tokens_per_second", "seconds")
        columns = {name: _column(progress, name) for name in names}
        columns.update({f"validation_{name}": _column(validations, name) for name in names[:3]})
        metrics = [line.get("metrics", {}) for line in validations]
        return Curves(**columns, validation_metrics={name: _column(metrics, name) for name in self.metrics})

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the last validation by name, NaN where one was not a number; empty where there is none."""
        found = self._validations[-1].get("metrics", {}) if self._validations else {}
        return {name: math.nan if value is None else value for name, value in found.items()}

    @property
    def _validations(self) -> list[dict[str, Any]]:
        return [line for line in self.log if line["event"] == "validation"]


def _column(lines: list[dict[str, Any]], name: str) -> Array:
    values = [math.nan if line.get(name) is None else line[name] for line in lines]
    return np.array(values, np.int64 if name == "step" else np.float64)


# ---- settings and files of a run


@dataclass
class _Run:
    """A run before it begins."""

    settings: Settings
    files: list[str | None]
    output: str
    resume: str | None
    overwrite: bool
    log: RunLog
    is_named_by_file: list[bool]  # the data is not the caller's choice, but the checkpoint's
    folder: str  # for temporary files
    data: list[Handle | None] = field(default_factory=lambda: [None, None, None])
    recognised: str | None = None

    @property
    def metric(self) -> Metric:
        train = self.data[_data.TRAIN]
        return Metric.of(native().rcv_data_get_kind(train), native().rcv_data_level(train))


def _stem(path: str) -> str:
    return os.path.splitext(path)[0]


def _check_cell(equations: Equations, path: str, overwrite: bool) -> None:
    """Equations are written to a file, which the settings of a run name: it must be new or the same."""
    if os.path.exists(path) and not overwrite:
        with open(path, encoding="utf-8", errors="replace") as file:
            if file.read() != equations.source:
                raise FileExistsError(
                    f"{path} has other equations: give another output, or replace it with overwrite=True"
                )


def _write_data(given: dict[str, Any], made: Settings, folder: str) -> None:
    """Writes data in memory into files. Of pairs the kind follows from their targets, if none is set."""
    columns = ",".join(made[name] for name in ("target", "features", "sequence", "time")).split(",")
    for name in _data.PARTS:
        value: Any = given.get(name)
        if value is None or isinstance(value, (str, os.PathLike)):
            continue
        if not _examples.is_in_memory(value):
            raise TypeError(
                f"{name} must be a path, a pair of inputs and targets, a DataFrame, or an array to forecast, not "
                f"{type(value).__name__}"
            )
        if _examples.is_examples(value) and made["kind"] == "auto":
            made.set("kind", _examples.kind_of_examples(*value))
        may_miss = made["missing"] != "error"
        given[name] = _examples.write_data(folder, name, value, made["kind"], may_miss, set(columns))


def _collect_settings(given: dict[str, Any], preset: str | None, config: Any, resume: str | None) -> Settings:
    if resume is None:
        made = Settings()
    else:
        made = checkpoint_settings(encode_path(resume))
        check_fixed(given, resume)
        if made["parallel"]:  # layers of stages belong to the arrangement of the ranks
            made.update({"parallel": "", "split": "", "micro_batches": 0, "time_chunks": 0})
    if preset is not None:
        made.use_preset(preset)
    if config is not None:
        made.load(encode_path(config))
    made.update({name: value for name, value in given.items() if name not in _data.PARTS})
    if made["parallel"]:
        raise NotImplementedError("train() runs in one process; for several use mpirun with the command recurve train")
    return made


def _check_apart(run: _Run, config: Any, cell: str | None) -> None:
    """A file that is written is no other file of the run."""
    read = [*run.files, run.settings["vocabulary"], None if config is None else os.fsdecode(config)]
    written = {"output": run.output, "log": run.log.path, "wisdom": run.settings["wisdom"], "the cell": cell}
    seen = {os.path.realpath(path): path for path in read if path}
    if run.resume is not None and os.path.realpath(run.resume) != os.path.realpath(run.output):
        seen[os.path.realpath(run.resume)] = run.resume
    for name, path in written.items():
        place = os.path.realpath(path) if path else None
        same = [other for known, other in seen.items() if place and (place == known or _is_same(path, other))]
        if same:
            raise ValueError(f"{name} is {path}, which is {same[0]}, another file of the run; give another path")
        if path and place:
            seen[place] = path


def _is_same(path: str | None, other: str) -> bool:
    return path is not None and os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other)


def _check_early(run: _Run) -> None:
    """Checks what does not depend on the data, before the data is read."""
    output, resume = encode_path(run.output), None if run.resume is None else encode_path(run.resume)
    native().rcv_trainer_check_output(context(), run.settings.handle, resume, output, run.overwrite)
    run.log.check(run.overwrite)
    run.settings.check()
    native().rcv_device_describe(context(), run.settings["device"].encode(), None)


# ---- data and trainer


def _open_vocabulary(run: _Run) -> Handle | None:
    """The words of the checkpoint; None where the run is new, or the data has no words."""
    if run.resume is None:
        return None
    arguments = context(), encode_path(run.resume)
    found = make("rcv_checkpoint_vocabulary", *arguments, free="rcv_vocabulary_free", parents=(context(),))
    return found if found.pointer else None


def _open_data(run: _Run) -> None:
    """Opens all data as the settings say. A kind that is recognised becomes a setting."""
    vocabulary = _open_vocabulary(run)
    paths = [path and _data.convert_file(path, run.folder, name) for path, name in zip(run.files, _data.PARTS)]
    files = api.TrainingFiles(
        paths=tuple(path and encode_path(path) for path in paths),
        elsewhere=tuple(run.is_named_by_file),
        vocabulary=vocabulary.pointer if vocabulary is not None else None,
    )
    parts, sentence = (ctypes.c_void_p * len(paths))(), ctypes.c_void_p()
    arguments = context(), run.settings.handle, ctypes.byref(files), parts, ctypes.byref(sentence)
    with _data.rewording(run.folder):
        native().rcv_training_data_open(*arguments)
    run.data = [Handle(ctypes.c_void_p(part), "rcv_data_free", context()) if part else None for part in parts]
    run.recognised = _data.reword(take_text(sentence), run.folder) if sentence else None


def _open_trainer(run: _Run) -> Handle:
    wisdom = run.settings["wisdom"]
    if wisdom and os.path.exists(wisdom):
        native().rcv_wisdom_load(context(), os.fsencode(wisdom))
    _open_data(run)
    train, valid = run.data[: _data.TEST]
    parents = tuple(parent for parent in (train, valid) if parent is not None)
    arguments = context(), run.settings.handle, train, valid
    trainer = make("rcv_trainer_new", *arguments, free="rcv_trainer_free", parents=parents)
    if run.resume is not None:
        native().rcv_trainer_resume(trainer, encode_path(run.resume))
    return trainer


def _progress_of(report: api.Progress) -> Progress:
    return Progress(
        report.step,
        report.steps or None,
        report.epochs,
        report.loss,
        report.rate,
        report.norm,
        report.tokens_per_second,
        report.seconds,
        None if report.left < 0 else report.left,
        report.validation or None,
        report.best or None,
        None if not report.validation or math.isnan(report.metric) else report.metric,
    )


def _run_trainer(
    run: _Run, trainer: Handle, shown: ProgressLine | None, callback: Callable[[Progress], Any] | None
) -> bool:
    """Trains, and returns whether the run was stopped. What the callback raised is raised after the checkpoint."""
    callbacks = errors.Callbacks()

    def on_progress(_: Any, report: Any) -> bool:
        if shown is not None:
            shown.update(report.contents)
        if callback is None or report.contents.step == 0:
            return True
        return callback(_progress_of(report.contents)) is not False

    options = api.TrainerOptions(
        output=encode_path(run.output),
        overwrite=run.overwrite,
        progress=api.OnProgress(callbacks.wrap(on_progress)),
        log=api.Log(callbacks.wrap_action(lambda _, line: run.log.write(line))),
    )
    try:
        callbacks.run(native().rcv_trainer_run, trainer, ctypes.byref(options))
    except errors.Stopped:
        return True
    except KeyboardInterrupt:
        if native().rcv_trainer_progress(trainer).contents.written < 0:
            raise
        return True
    return False


# ---- the end


def _best_path(run: _Run, trainer: Handle) -> str | None:
    pointer = ctypes.c_void_p()
    native().rcv_trainer_best_model(trainer, encode_path(run.output), ctypes.byref(pointer))
    return take_text(pointer) if pointer else None


def _load_model(path: str, settings: dict[str, Any]) -> Predictor:
    model = Predictor.load(path, settings["device"], "float64" if settings["dtype"] == "float64" else "float32")
    model.settings = settings
    return model


def _test(run: _Run, path: str) -> Evaluation | None:
    """The model on the test data, also as a line of the log."""
    test = run.data[_data.TEST]
    if test is None:
        return None
    result, line = _load_model(path, run.settings.as_dictionary()).test_data(test)
    run.log.write(line)
    return result


def _finish(run: _Run, trainer: Handle, shown: ProgressLine | None, stopped: bool, is_kept: bool) -> TrainingResult:
    report = native().rcv_trainer_progress(trainer).contents
    is_written = report.written >= 0
    best = _best_path(run, trainer) if is_written else None
    load = functools.partial(_load_model, best or run.output, run.settings.as_dictionary())
    if shown is not None:
        note = f"{'stopped: ' if stopped else ''}wrote {run.output} after {report.written} updates"
        shown.end(report, note if is_kept and is_written else "")
    test = _test(run, best or run.output) if is_written and not stopped else None
    if shown is not None and test is not None:
        measured = next((value for value in (test.accuracy, test.rmse) if value is not None), math.nan)
        shown.say("test: " + ", ".join(run.metric.parts(test.loss, measured)))
    result = TrainingResult(
        path=run.output if is_kept and is_written else None,
        best_path=best if is_kept else None,
        stopped=stopped,
        step=report.step,
        epochs=report.epochs,
        loss=report.loss,
        seconds=report.seconds,
        validation=report.validation or None,
        best=report.best or None,
        test=test,
        recognised=run.recognised,
        settings=run.settings.as_dictionary(),
        log=run.log.lines,
        load=load,
    )
    if not is_kept and is_written:
        _ = result.model  # its file is removed
    return result


def train(
    data: Any = None,
    output: str | os.PathLike[str] | None = None,
    valid: Any = None,
    *,
    test: Any = None,
    preset: str | None = None,
    config: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: bool = True,
    log: str | os.PathLike[str] | None = None,
    callback: Callable[[Progress], Any] | None = None,
    **settings: Any,
) -> TrainingResult:
    """Trains a language model on text, or a model of classes or values of sequences or of each of their time steps.

    data       a text, a table (CSV, TSV, Parquet), JSON lines, arrays (npy, npz, safetensors), or a folder with train,
               valid and test. What a file holds is recognised; `kind`, `format`, `target`, `sequence`, ... change that.
               Or a pair (inputs, targets): a list of sequences, each numbers [steps, features] or [steps], or a text,
               and a class (whole number or text) or value (float, or list of floats) for each, or for each time step
               where a target is as long as its sequence; or a DataFrame; or, with `horizon`, an array of numbers
    output     the model to write, MODEL.safetensors, with its checkpoints and MODEL.best.safetensors; without it
               nothing stays but the result
    valid      data for validation, a part of `data` such as "10%", or "none"; `test`: for a test at the end
    preset     settings that belong together, see `recurve.presets`; `config`: a file of settings as JSON
    resume     continue from this checkpoint, bit for bit; `output` and `data` are those of the checkpoint by default.
               Examples in memory must be given again
    overwrite  replace models and logs of other runs
    progress   show on stderr how the data is read, and a line that changes
    log        the log, one JSON object per line; by default MODEL.jsonl where there is an output
    callback   called with `Progress` after updates; training stops when it returns False
    settings   those of the command `recurve train`, with underscores: hidden=256, learning_rate=0.001; see
               `recurve.settings`. Of data: target="price", features=["a", "b"], sequence="id", time="day", horizon=24,
               missing="previous", normalise=True, class_weights="balanced" or {"yes": 3, "no": 1}. `cell` may also be
               equations, which are written beside the output

    Ctrl-C stops after the current update: a checkpoint is written, and the result has `stopped`. (Before the first
    checkpoint KeyboardInterrupt is raised.) An exception of the callback is raised after the checkpoint was written.

    Raises TypeError for an unknown setting, ValueError for a wrong value or wrong data, OSError for files.
    """
    check_names(settings)
    given = {**settings, **{k: v for k, v in {"data": data, "valid": valid, "test": test}.items() if v is not None}}
    given = {name: value for name, value in given.items() if value is not None}
    with tempfile.TemporaryDirectory(prefix="recurve-") as folder, contextlib.ExitStack() as stack:
        run = _prepare(given, folder, output, preset, config, resume, overwrite, log)
        stack.callback(run.log.close)
        trainer = _open_trainer(run)
        shown = ProgressLine(run.metric, float(run.settings["seconds"])) if progress else None
        if shown is not None:
            shown.say(_describe_data(run))
        stopped = _run_trainer(run, trainer, shown, callback)
        if run.settings["wisdom"]:
            native().rcv_wisdom_save(context(), os.fsencode(run.settings["wisdom"]))
        return _finish(run, trainer, shown, stopped, not run.output.startswith(folder))


def _describe_data(run: _Run) -> str:
    """What was recognised, and which sequences are left out."""
    said = native().rcv_data_description(run.data[_data.TRAIN]).decode("utf-8", "replace")
    left_out = f"data: {said}" if "left out" in said else None
    return "\n".join(line for line in (run.recognised, left_out) if line)


def _prepare(
    given: dict[str, Any],
    folder: str,
    output: str | os.PathLike[str] | None,
    preset: str | None,
    config: str | os.PathLike[str] | None,
    resume: str | os.PathLike[str] | None,
    overwrite: bool,
    log: str | os.PathLike[str] | None,
) -> _Run:
    """The settings and files of a run, checked. Only `folder` and the file of equations are written."""
    base = None if resume is None else os.fsdecode(resume)
    path = os.fsdecode(output) if output is not None else base or os.path.join(folder, "model.safetensors")
    cell, equations = given.get("cell"), None
    if isinstance(cell, Equations) or (isinstance(cell, str) and "{" in cell):
        equations = compile(cell)
        given["cell"] = f"{_stem(path)}.cell"
    made = _collect_settings(given, preset, config, base)
    _write_data(given, made, folder)
    made.update({name: given[name] for name in _data.PARTS if name in given})
    if not made["data"]:
        raise ValueError("there is no training data: give a file, a folder, or a pair of inputs and targets as data")
    own_log = made["log"] or (None if path.startswith(folder) else f"{_stem(path)}.jsonl")
    run = _Run(
        made,
        _data.find_files(made["data"], made["valid"], made["test"]),
        path,
        base,
        overwrite,
        RunLog(os.fsdecode(log) if log is not None else own_log, base is not None),
        [base is not None and name not in given for name in _data.PARTS],
        folder,
    )
    _check_apart(run, config, given["cell"] if equations is not None else None)
    if equations is not None:
        _check_cell(equations, given["cell"], overwrite)
    _check_early(run)
    if equations is None:
        make("rcv_cell_open", context(), os.fsencode(made["cell"]), free="rcv_cell_free").close()
    else:
        with open(given["cell"], "w", encoding="utf-8") as file:
            file.write(equations.source)
    return run


__all__ = [
    "Curves",
    "Progress",
    "Setting",
    "TrainingResult",
    "presets",
    "settings",
    "train",
]
