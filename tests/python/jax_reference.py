"""Networks written with jax.lax.scan, as references: jax.grad of them is the reference of gradients."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

Array = Any


def lstm_step(p: Mapping[str, Array], end: str, x: Array, states: Mapping[str, Array]) -> dict[str, Array]:
    z = x @ p[f"weight_ih{end}"].T + states["h"] @ p[f"weight_hh{end}"].T
    if f"bias_ih{end}" in p:
        z = z + p[f"bias_ih{end}"] + p[f"bias_hh{end}"]
    i, f, g, o = jnp.split(z, 4, axis=1)
    c = jax.nn.sigmoid(f) * states["c"] + jax.nn.sigmoid(i) * jnp.tanh(g)
    return {"h": jax.nn.sigmoid(o) * jnp.tanh(c), "c": c}


def gru_step(p: Mapping[str, Array], end: str, x: Array, states: Mapping[str, Array]) -> dict[str, Array]:
    left = x @ p[f"weight_ih{end}"].T + p[f"bias_ih{end}"]
    right = states["h"] @ p[f"weight_hh{end}"].T + p[f"bias_hh{end}"]
    (xr, xz, xn), (hr, hz, hn) = jnp.split(left, 3, axis=1), jnp.split(right, 3, axis=1)
    r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
    return {"h": (1 - z) * jnp.tanh(xn + r * hn) + z * states["h"]}


LEAKY = """
cell leaky(x) {
    state h
    state s
    a = sigmoid(W x + b)
    s' = a * s + (1 - a) * tanh(W x)
    h' = tanh(U h + s' + b)
    return h' * s'
}
"""


def leaky_step(p: Mapping[str, Array], end: str, x: Array, states: Mapping[str, Array]) -> dict[str, Array]:
    wa, ws = jnp.split(p[f"weight_ih{end}"], 2, axis=0)
    ba, bh = jnp.split(p[f"bias_ih{end}"], 2)
    a = jax.nn.sigmoid(x @ wa.T + ba)
    s = a * states["s"] + (1 - a) * jnp.tanh(x @ ws.T)
    return {"h": jnp.tanh(states["h"] @ p[f"weight_hh{end}"].T + s + bh), "s": s}


STEPS: dict[str, Callable[..., dict[str, Array]]] = {"lstm": lstm_step, "gru": gru_step, "leaky": leaky_step}
OUTPUTS: dict[str, Callable[[dict[str, Array]], Array]] = {"leaky": lambda s: s["h"] * s["s"]}


def _run_track(
    cell: str,
    p: Mapping[str, Array],
    end: str,
    x: Array,
    initial: Any,
    restart: Any,
    valid: Array,
    begins: Array,
    zoneout: float,
) -> tuple[Array, Any]:
    step, output = STEPS[cell], OUTPUTS.get(cell, lambda s: s["h"])

    def body(states: Any, inputs: Any) -> Any:
        x_t, valid_t, begins_t = inputs
        states = {k: jnp.where(begins_t, restart[k], v) for k, v in states.items()}
        after = step(p, end, x_t, states)
        after = {k: zoneout * states[k] + (1 - zoneout) * v for k, v in after.items()}
        states = {k: jnp.where(valid_t, after[k], v) for k, v in states.items()}
        return states, jnp.where(valid_t, output(states), 0)

    final, y = jax.lax.scan(body, initial, (x, valid, begins), reverse=end.endswith("_reverse"))
    return y, final


def run(
    cell: str,
    p: Mapping[str, Array],
    x: Array,
    initial: Mapping[str, Array],
    layers: int = 1,
    bidirectional: bool = False,
    lengths: Array = None,
    resets: Array = None,
    restart: "Mapping[str, Array] | None" = None,
    zoneout: float = 0.0,
) -> "tuple[Array, dict[str, Array]]":
    """x: [steps, batch, input]; initial: [layers * directions, batch, hidden] by state. zoneout takes its expected value."""
    steps, batch = x.shape[:2]
    lengths = jnp.full(batch, steps) if lengths is None else jnp.asarray(lengths)
    valid = (jnp.arange(steps)[:, None] < lengths)[..., None]
    begins = jnp.zeros((steps, batch, 1), bool) if resets is None else jnp.asarray(resets)[..., None] & valid
    backwards = jnp.concatenate(
        [begins[1:], jnp.zeros((1, batch, 1), bool)]
    )  # an episode ends before the next one begins
    restart = initial if restart is None else restart
    finals: dict[str, list[Array]] = {name: [] for name in initial}
    ends = ("", "_reverse") if bidirectional else ("",)
    for layer in range(layers):
        outputs = []
        for direction, end in enumerate(ends):
            track = layer * len(ends) + direction
            y, final = _run_track(
                cell,
                p,
                f"_l{layer}{end}",
                x,
                {k: v[track] for k, v in initial.items()},
                {k: v[track] for k, v in restart.items()},
                valid,
                backwards if direction else begins,
                zoneout,
            )
            outputs.append(y)
            for name, value in final.items():
                finals[name].append(value)
        x = jnp.concatenate(outputs, axis=2)
    return x, {name: jnp.stack(values) for name, values in finals.items()}
