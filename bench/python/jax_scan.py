#!/usr/bin/env python3
"""Measures recurve.jax.Network against the same network by jax.lax.scan, in turns in one process.

    bench/python/jax_scan.py [--device cpu|cuda] [--steps T] [--batch B] [--hidden H] [--cells lstm,gru] [--types TYPE,...] [--unroll N]
                             [--calls N] [--rounds N] [--seconds S] [--json FILE]

Both are compiled by jax.jit: the forward call, and the gradient of the sum of y by all parameters and x. The reference computes the input products
of all steps as one product before the loop, as the fastest hand-written ones do. A type is that of arrays and products; float32 is exact on a GPU,
too, and tfloat32 stands for arrays of float32. A turn is so many calls in a row, of which the last is waited for. Numbers are medians of turns, by
the call; FILE is one for scripts/results.py.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import recurve
import recurve.jax
from recurve._native import api
from recurve._native.loader import context, native
from recurve.jax import _calls

TYPES = ("float32", "tfloat32", "bfloat16", "float16", "float64")
PRECISION = {"float32": "highest", "tfloat32": "tensorfloat32"}  # of JAX's products of float32


def lstm_step(p: Any, states: Any, x: Any) -> Any:
    h, c = states
    i, f, g, o = jnp.split(x + h @ p["weight_hh_l0"].T + p["bias_hh_l0"], 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def gru_step(p: Any, states: Any, x: Any) -> Any:
    (h,) = states
    (xr, xz, xn), (hr, hz, hn) = (jnp.split(v, 3, axis=-1) for v in (x, h @ p["weight_hh_l0"].T + p["bias_hh_l0"]))
    z = jax.nn.sigmoid(xz + hz)
    h = (1 - z) * jnp.tanh(xn + jax.nn.sigmoid(xr + hr) * hn) + z * h
    return (h,), h


CELLS = {"lstm": (lstm_step, 2), "gru": (gru_step, 1)}  # a step, and how many states it has


def reference(cell: str, p: Any, x: Any, unroll: int) -> Any:
    step, count = CELLS[cell]
    inputs = x @ p["weight_ih_l0"].T + p["bias_ih_l0"]
    zeros = jnp.zeros((x.shape[1], p["weight_hh_l0"].shape[1]), x.dtype)
    return jax.lax.scan(lambda states, v: step(p, states, v), (zeros,) * count, inputs, unroll=unroll)[1]


def time_calls(calls: dict[str, Any], arguments: tuple[Any, ...], options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of each call, in turns; every other round in the reverse order."""
    in_a_row = options.calls or (1 if options.device == "cpu" else 20)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(5):
            jax.block_until_ready(call(*arguments))
    end = time.perf_counter() + options.seconds
    for number in range(options.rounds):
        for name in list(calls)[:: -1 if number % 2 else 1]:
            begin = time.perf_counter()
            for _ in range(in_a_row):
                result = calls[name](*arguments)
            jax.block_until_ready(result)
            times[name].append((time.perf_counter() - begin) / in_a_row)
        if number >= 4 and time.perf_counter() > end:
            break
    return times


def measure(cell: str, products: str, training: bool, options: argparse.Namespace) -> dict[str, Any]:
    steps, batch, hidden = options.steps, options.batch, options.hidden
    net = recurve.jax.Network(cell, hidden, hidden)
    dtype = "float32" if products == "tfloat32" else products
    jax.config.update("jax_default_matmul_precision", PRECISION.get(products))
    arguments = net.init(jax.random.key(0), dtype), jax.random.normal(jax.random.key(1), (steps, batch, hidden), dtype)
    functions = {
        "recurve": lambda p, x: net(p, x, dtype=products)[0],
        "jax.lax.scan": lambda p, x: reference(cell, p, x, options.unroll),
    }
    both = [jax.jit(function)(*arguments).astype("float32") for function in functions.values()]
    difference = float(abs(both[0] - both[1]).max())
    if training:
        functions = {name: jax.grad(lambda p, x, f=f: f(p, x).sum(), (0, 1)) for name, f in functions.items()}
    times = time_calls({name: jax.jit(f) for name, f in functions.items()}, arguments, options)
    data = api.DTYPES[dtype]
    flags = api.DTYPES[products] | data << _calls.DATA_SHIFT | data << _calls.PARAMETERS_SHIFT
    flags |= (_calls.TRAINING if training else 0) | (0 if options.device == "cpu" else _calls.CUDA)
    return {
        "problem": {
            "cell": cell,
            "steps": steps,
            "batch": batch,
            "input": hidden,
            "hidden": hidden,
            "layers": 1,
            "dtype": products,
            "pass": "train" if training else "forward",
        },
        "plan": _calls.find_plan(net._net, flags, None, "measure", steps, batch)[0],
        "difference": difference,
        "rounds": len(times["recurve"]),
        "median": {name: statistics.median(t) for name, t in times.items()},
        "minimum": {name: min(t) for name, t in times.items()},
    }


def describe_cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def describe_machine() -> dict[str, Any]:
    device = jax.config.jax_default_device
    gpu = None if device.platform == "cpu" else device.device_kind
    return {
        "device": gpu,
        "cpu": describe_cpu(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "threads": native().rcv_context_threads(context()),
        "kernels": native().rcv_context_kernels(context()).decode(),
    }


def find_commit() -> str:
    folder = Path(__file__).resolve().parent
    found = subprocess.run(
        ["git", "rev-parse", "--short=7", "HEAD"], cwd=folder, capture_output=True, text=True, check=False
    )
    return os.environ.get("RECURVE_COMMIT") or found.stdout.strip() or "unknown"


def write(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    data = {
        "command": " ".join(
            ["bench/python/jax_scan.py", *(a for a in sys.argv[1:] if a != "--json" and a != str(options.json))]
        ),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "version": recurve.__version__,
        "commit": find_commit(),
        "jax": jax.__version__,
        "machine": describe_machine(),
        "rows": rows,
    }
    if options.json:
        options.json.write_text(json.dumps(data, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: JAX's")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--cells", default="lstm,gru")
    parser.add_argument("--types", default="float32", help=f"of {', '.join(TYPES)}")
    parser.add_argument("--unroll", type=int, default=1, help="of jax.lax.scan")
    parser.add_argument("--calls", type=int, help="in a row; default: 1 on the CPU, 20 on a GPU")
    parser.add_argument("--rounds", type=int, default=50, help="at most, of each pass")
    parser.add_argument("--seconds", type=float, default=20, help="for each pass, after five rounds")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cells, types = options.cells.split(","), options.types.split(",")
    for names, known in ((cells, CELLS), (types, TYPES)):
        if unknown := [name for name in names if name not in known]:
            sys.exit(f"jax_scan.py: there is no '{unknown[0]}' here; there are {', '.join(known)}")
    options.device = options.device or ("cpu" if jax.default_backend() == "cpu" else "cuda")
    jax.config.update("jax_default_device", jax.devices(options.device)[0])
    rows = []
    for cell, products, training in itertools.product(cells, types, (False, True)):
        row = measure(cell, products, training, options)
        rows.append(row)
        mine, theirs = row["median"]["recurve"], row["median"]["jax.lax.scan"]
        print(
            f"{cell} {products} {row['problem']['pass']}: recurve {1e3 * mine:.3f} ms, jax.lax.scan {1e3 * theirs:.3f} ms "
            f"({theirs / mine:.2f}x), difference {row['difference']:.1e}, {row['plan']}",
            flush=True,
        )
        write(options, rows)


if __name__ == "__main__":
    main()
