"""Classification and forecasting of time series with NumPy alone.

    python timeseries.py [--series N] [--steps N] [--output FOLDER]

The first part trains a model that tells three kinds of noisy oscillations apart, from series of different lengths. The
second part trains one that forecasts the value 20 steps ahead, and runs it step by step, as values arrive.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import recurve

Array = Any
SHAPES = {
    "sine": np.sin,
    "square": lambda angle: np.sign(np.sin(angle)),
    "saw": lambda angle: angle / np.pi % 2 - 1,
}


def make_series(count: int, generator: np.random.Generator) -> tuple[list[Array], list[str]]:
    """Series [steps, 1] of 30 to 60 steps, and the names of their shapes."""
    series, names = [], []
    for i in range(count):
        name = list(SHAPES)[i % len(SHAPES)]
        steps = np.arange(generator.integers(30, 61))
        angle = generator.uniform(0.2, 0.5) * steps + generator.uniform(0, 2 * np.pi)
        noise = 0.1 * generator.normal(size=steps.shape)
        series.append((SHAPES[name](angle) + noise)[:, None])
        names.append(name)
    return series, names


def classify(count: int, steps: int, output: Path) -> float:
    """Trains a classifier, and returns its accuracy on new series."""
    generator = np.random.default_rng(0)
    result = recurve.train(
        make_series(count, generator),
        output / "shapes.safetensors",
        valid=make_series(count // 5, generator),
        cell="gru",
        hidden=32,
        steps=steps,
        batch=32,
        learning_rate=0.01,
        clip=1,
        overwrite=True,
        log_every=max(steps // 10, 1),
    )
    for step, loss in zip(result.curves.step, result.curves.loss):
        print(f"  update {step}: loss {loss:.3f}")
    series, names = make_series(100, generator)
    found = result.model.classify(series)
    return float(np.mean([a == b for a, b in zip(found, names)]))


def forecast(count: int, steps: int, ahead: int = 20) -> tuple[Array, Array]:
    """Trains a forecaster of a sum of two sines, and returns what it forecasts of the last values, and these."""
    time = np.arange(count + 200)
    values = 0.6 * np.sin(0.3 * time) + 0.4 * np.sin(0.11 * time)
    known, rest = values[:-ahead], values[-ahead:]
    result = recurve.train(
        known, horizon=ahead, hidden=32, length=64, steps=steps, batch=4, learning_rate=0.01, progress=False
    )
    guesses = []
    with result.model.stream() as stream:
        for value in known:
            guesses.append(stream.step([[value]])[0, 0])  # of the value `ahead` steps after the one that arrives
    return np.array(guesses[-ahead:]), rest


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--series", type=int, default=600, help="series to train on")
    parser.add_argument("--steps", type=int, default=400, help="updates of each model")
    parser.add_argument("--output", type=Path, default=Path("."), help="folder for the classifier")
    arguments = parser.parse_args()
    print(f"accuracy on new series: {classify(arguments.series, arguments.steps, arguments.output):.2f}")
    found, expected = forecast(arguments.series, arguments.steps)
    print(f"20 steps ahead: root mean square error {np.sqrt(np.square(found - expected).mean()):.3f}")


if __name__ == "__main__":
    main()
