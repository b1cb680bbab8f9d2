"""Networks written with NumPy alone, as references."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = Any


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def lstm_step(p: Mapping[str, Array], end: str, x: Array, states: dict[str, Array]) -> dict[str, Array]:
    z = x @ p[f"weight_ih{end}"].T + p[f"bias_ih{end}"] + states["h"] @ p[f"weight_hh{end}"].T + p[f"bias_hh{end}"]
    i, f, g, o = np.split(z, 4, axis=1)
    c = sigmoid(f) * states["c"] + sigmoid(i) * np.tanh(g)
    return {"h": sigmoid(o) * np.tanh(c), "c": c}


def gru_step(p: Mapping[str, Array], end: str, x: Array, states: dict[str, Array]) -> dict[str, Array]:
    left = x @ p[f"weight_ih{end}"].T + p[f"bias_ih{end}"]
    right = states["h"] @ p[f"weight_hh{end}"].T + p[f"bias_hh{end}"]
    (xr, xz, xn), (hr, hz, hn) = np.split(left, 3, axis=1), np.split(right, 3, axis=1)
    r, z = sigmoid(xr + hr), sigmoid(xz + hz)
    return {"h": (1 - z) * np.tanh(xn + r * hn) + z * states["h"]}


STEPS = {"lstm": lstm_step, "gru": gru_step}


def run(
    cell: str,
    parameters: Mapping[str, Array],
    x: Array,
    initial: Mapping[str, Array],
    layers: int,
    bidirectional: bool = False,
    lengths: Array = None,
    resets: Array = None,
    restart: "Mapping[str, Array] | None" = None,
) -> "tuple[Array, dict[str, Array]]":
    """x: [steps, batch, input]; initial: [layers * directions, batch, hidden] by state."""
    step: Callable[..., dict[str, Array]] = STEPS[cell]
    steps, batch = x.shape[:2]
    lengths = np.full(batch, steps) if lengths is None else np.asarray(lengths)
    final = {name: np.array(value) for name, value in initial.items()}
    restart = initial if restart is None else restart
    directions = 2 if bidirectional else 1
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            track, end = layer * directions + direction, f"_l{layer}" + "_reverse" * direction
            states = {name: value[track] for name, value in initial.items()}
            y = np.zeros((steps, batch, states["h"].shape[1]))
            for t in range(steps)[:: -1 if direction else 1]:
                active = (t < lengths)[:, None]
                if resets is not None and not direction:
                    begins = np.asarray(resets)[t].astype(bool)[:, None] & active
                    states = {name: np.where(begins, restart[name][track], value) for name, value in states.items()}
                after = step(parameters, end, x[t], states)
                states = {name: np.where(active, after[name], value) for name, value in states.items()}
                y[t] = np.where(active, states["h"], 0)
            outputs.append(y)
            for name, value in states.items():
                final[name][track] = value
        x = np.concatenate(outputs, axis=2)
    return x, final


def numerical_gradient(loss: Callable[[], float], array: Array, places: "list[tuple[int, ...]]") -> Array:
    """Central differences of a loss at some places of an array that it reads."""
    result, width = [], 1e-5
    for place in places:
        old = array[place]
        array[place] = old + width
        up = loss()
        array[place] = old - width
        down = loss()
        array[place] = old
        result.append((up - down) / (2 * width))
    return np.array(result)
