#!/usr/bin/env python3
"""Compares the speed of two builds of the tool on some rows of the benchmark. The builds are timed in turns.

    bench/compare.py BEFORE AFTER [--device cpu|cuda] [--rounds N] [--seconds S] [--rows PATTERN] [--json FILE]

BEFORE and AFTER are build folders with `recurve`. BEFORE chooses the plan of a row, and both builds run it. Printed are medians over the
rounds, and the median over the rounds of the ratio after / before: the two runs of a round follow each other, so a slow minute of the
machine counts for both. Every other round begins with AFTER, so that neither build is always the second, on a warmer machine; an even
number of rounds is best. The JSON also has machine, versions, date and commits.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# name: steps, batch, input, hidden, layers, type, pass
ROWS = {
    "cpu": {
        "headline-forward": (100, 64, 512, 512, 4, "float32", "forward"),
        "headline-train": (100, 64, 512, 512, 4, "float32", "train"),
        "headline-bf16-forward": (100, 64, 512, 512, 4, "bfloat16", "forward"),
        "medium-train": (35, 20, 650, 650, 2, "float32", "train"),
        "small-forward": (100, 1, 256, 256, 1, "float32", "forward"),
        "small-train": (100, 1, 256, 256, 1, "float32", "train"),
        "tiny-forward": (4, 1, 32, 32, 1, "float32", "forward"),
    },
    "cuda": {
        "headline-bf16-forward": (100, 64, 512, 512, 4, "bfloat16", "forward"),
        "headline-bf16-train": (100, 64, 512, 512, 4, "bfloat16", "train"),
        "headline-fp32-train": (100, 64, 512, 512, 4, "float32", "train"),
        "medium-bf16-train": (35, 20, 650, 650, 2, "bfloat16", "train"),
        "single-bf16-forward": (100, 1, 512, 512, 1, "bfloat16", "forward"),
        "single-bf16-train": (100, 1, 512, 512, 1, "bfloat16", "train"),
        "wide-bf16-train": (512, 8, 1024, 1024, 1, "bfloat16", "train"),
    },
}


def run(build, row, device, seconds, plan):
    steps, batch, inputs, hidden, layers, dtype, how = row
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.json"
        command = [str(Path(build) / "recurve"), "bench", "--device", device, "--steps", steps, "--batch", batch, "--input", inputs,
                   "--hidden", hidden, "--layers", layers, "--dtype", dtype, "--pass", how, "--seconds", seconds, "--json", path]
        if plan:
            command += ["--schedule", plan]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"compare: {' '.join(map(str, command))} failed: {done.stderr.strip()}")
        return json.loads(path.read_text())


def ours(result):
    """The entry of the plan that was run; earlier builds name the list `contestants`."""
    return result.get("entries", result.get("contestants"))[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--device", default="cpu", choices=sorted(ROWS))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--rows", default=".")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows, about = {}, {}
    print(f"{'row':24}{'before ms':>12}{'after ms':>12}{'after/before':>14}  plan")
    for name, row in ROWS[options.device].items():
        if not re.search(options.rows, name):
            continue
        plan = ours(run(options.before, row, options.device, options.seconds, None))["plan"]
        times = {"before": [], "after": []}
        sides = [("before", options.before), ("after", options.after)]
        for _ in range(options.rounds):
            for side, build in sides:
                result = run(build, row, options.device, options.seconds, plan)
                about.setdefault("machine", result["machine"])
                about.setdefault("date", result["date"])
                about.setdefault(side, f"{result['version']} {result['commit']}")
                times[side].append(1e3 * ours(result)["median"])
            sides.reverse()
        before, after = (statistics.median(times[side]) for side in ("before", "after"))
        rows[name] = {"plan": plan, "before_ms": times["before"], "after_ms": times["after"]}
        ratio = statistics.median(b / a for a, b in zip(times["before"], times["after"]))
        print(f"{name:24}{before:12.4f}{after:12.4f}{ratio:14.3f}  {plan}", flush=True)
        if options.json:  # after each row, so that a run that is ended early leaves what it has
            Path(options.json).write_text(json.dumps({**about, "rounds": options.rounds, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
