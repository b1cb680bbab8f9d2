"""How well a model predicts data: its loss, metrics, and a table of its classes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from recurve._arrays import Array
from recurve._native import api

MOST_CLASSES = 2048  # with more of them there is no confusion matrix
_OF_CLASSES = ("accuracy", "precision", "recall", "f1", "auc")
_OF_VALUES = ("mae", "rmse", "r2", "naive_mae", "naive_rmse")
_LONGEST_NAME = 20  # columns of a class's name in a report


@dataclass(frozen=True)
class Evaluation:
    """The loss and the metrics of a model on data. A metric that does not apply is None."""

    loss: float  #: mean, in nats for each token, example or time step; of values the squared error
    counted: int  #: tokens, examples or time steps
    accuracy: float | None = None  #: of classes: the correct part, 0 to 1
    precision: float | None = None  #: of classes, as the next two: mean over the classes that occur
    recall: float | None = None
    f1: float | None = None
    auc: float | None = (
        None  #: of classes: area under the ROC curve; of more than two, the mean of each against the rest
    )
    mae: float | None = None  #: of values: mean absolute error
    rmse: float | None = None  #: of values: root of the mean squared error
    r2: float | None = None  #: of values: the explained part of the variance
    naive_mae: float | None = None  #: of forecasts, as the next: the error where the last known value is the forecast
    naive_rmse: float | None = None
    #: [classes, classes]: examples, or time steps, of class `row` that were taken for class `column`
    confusion: Array | None = field(default=None, repr=False, compare=False)
    classes: tuple[str, ...] | None = field(default=None, repr=False)  #: their names

    @property
    def perplexity(self) -> float:
        """exp(loss)"""
        return math.exp(self.loss) if self.loss < 700 else math.inf

    @property
    def bits(self) -> float:
        """The loss in bits: of a text of bytes, bits per byte."""
        return self.loss / math.log(2)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics that apply, by name."""
        values = {name: getattr(self, name) for name in (*_OF_CLASSES, *_OF_VALUES)}
        return {name: value for name, value in values.items() if value is not None}

    def report(self) -> str:
        """A text for people: loss and metrics, and of classes a table with the precision, recall and F1 of each."""
        numbers = {"loss": self.loss, **self.metrics} if self.metrics else {"loss": self.loss, "bits": self.bits}
        lines = [f"{name.replace('_', ' ')} {value:.4f}" for name, value in numbers.items()]
        text = ", ".join(lines) + f"; counted: {self.counted:,}\n"
        return text if self.confusion is None else text + "\n" + self._table()

    def _table(self) -> str:
        confusion = np.asarray(self.confusion)
        names = self.classes or tuple(map(str, range(len(confusion))))
        width = max(len("class"), *(min(len(name), _LONGEST_NAME) for name in names))
        right, there, taken = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
        lines = [f"{'class':{width}}  precision    recall        F1     count"]
        for name, *counts in zip(names, right, there, taken):
            hits, count, guesses = map(int, counts)
            ratios = _ratio(hits, guesses) + _ratio(hits, count) + _ratio(2 * hits, count + guesses)
            lines.append(f"{name[:_LONGEST_NAME]:{width}} {ratios}{count:10,}")
        return "\n".join(lines) + "\n"


def _ratio(part: int, whole: int) -> str:
    """In ten columns; '-' where there is nothing to divide by."""
    return f"{part / whole:10.3f}" if whole else f"{'-':>10}"


def take_evaluation(
    result: api.Evaluation, kind: str, classes: tuple[str, ...] | None, confusion: Array | None
) -> Evaluation:
    """The library's struct as an `Evaluation` of a model of this kind."""
    names = _OF_CLASSES if kind.endswith("classes") else _OF_VALUES if kind.endswith("values") else ()
    values = {name: getattr(result, name) for name in names}
    return Evaluation(
        result.loss,
        result.counted,
        **{name: value for name, value in values.items() if not math.isnan(value)},
        confusion=confusion,
        classes=classes,
    )


__all__ = ["Evaluation"]
