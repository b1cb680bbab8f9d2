#!/usr/bin/env python3
"""The time and the size of a page of `recurve report` over many training logs.

    bench/report_speed.py build/release/recurve [--runs 20] [--lines 100000] [--most-seconds 1] [--most-megabytes 2] [--keep FOLDER]

Writes logs as `recurve train` writes them into a temporary folder, runs the report three times, and prints the least time, the time that
`cat` takes to read the same files, and the size of the page. The exit status is 1 if a limit is passed. --keep leaves the logs in a folder."""
import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time


def write_log(path, run, lines):
    """A run with a learning rate and a loss of its own, a progress line an update, and 100 validations."""
    rng = random.Random(run)
    rate, level = 10 ** rng.uniform(-4, -2), rng.uniform(1.0, 2.0)
    settings = {"cell": rng.choice(["lstm", "gru"]), "hidden": 64 * (1 + run % 4), "learning-rate": rate, "seed": run}
    start = {"event": "start", "version": "0.1.0", "date": "2026-11-19 20:00 UTC", "device": "cpu", "step": 0, "parameters": 100000 + run,
             "tokens": 1000000, "batches": 1000, "bytes": 1 << 24, "shapes": [{"steps": 32, "batch": 16, "batches": 1000}],
             "plans": ["combine(steps=8)+fuse+pack"], "settings": settings}
    with open(path, "w", encoding="ascii") as file:
        file.write(json.dumps(start, separators=(",", ":")) + "\n")
        for step in range(1, lines + 1):
            loss = level + 3 * math.exp(-step * 20 / lines) + 0.1 * rng.random()
            file.write('{"event":"progress","step":%d,"epoch":%.12g,"rate":%.12g,"norm":%.12g,"tokens_per_second":%.12g,"seconds":%.12g,'
                       '"update_loss":%.12g,"loss":%.12g,"perplexity":%.12g}\n'
                       % (step, step / 1000, rate, 1 + rng.random(), 400000 + 1000 * rng.random(), step / 80 + rng.random() / 100,
                          loss + 0.1, loss, math.exp(loss)))
            if step % max(1, lines // 100) == 0:
                file.write('{"event":"validation","step":%d,"epoch":%.12g,"best":true,"seconds":%.12g,"loss":%.12g,"perplexity":%.12g}\n'
                           % (step, step / 1000, step / 80, loss + 0.2, math.exp(loss + 0.2)))
        file.write(json.dumps({"event": "end", "reason": "steps", "step": lines, "seconds": lines / 80, "tokens_per_second": 400500.5}) + "\n")


def least_time(command, folder):
    times = []
    for _ in range(3):
        begin = time.monotonic()
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.monotonic() - begin)
    return min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recurve")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--lines", type=int, default=100000)
    parser.add_argument("--most-seconds", type=float, default=1)
    parser.add_argument("--most-megabytes", type=float, default=2)
    parser.add_argument("--keep")
    arguments = parser.parse_args()
    tool = os.path.abspath(arguments.recurve)
    with tempfile.TemporaryDirectory() as folder:
        logs = ["run-%02d.jsonl" % run for run in range(arguments.runs)]
        for run, log in enumerate(logs):
            write_log(os.path.join(folder, log), run, arguments.lines)
        size = sum(os.path.getsize(os.path.join(folder, log)) for log in logs)
        read = least_time(["cat"] + logs, folder)
        report = least_time([tool, "report"] + logs + ["--output", "page.html"], folder)
        page = os.path.getsize(os.path.join(folder, "page.html"))
        if arguments.keep:
            shutil.copytree(folder, arguments.keep)
    print("%d logs of %d lines, %.0f MB: report %.3f s, cat %.3f s; page %.2f MB" % (arguments.runs, arguments.lines, size / 1e6, report, read,
                                                                                     page / 1e6))
    sys.exit(report > arguments.most_seconds or page > arguments.most_megabytes * 1e6)


main()
