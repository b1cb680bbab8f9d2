#!/usr/bin/env python3
"""What the command takes for a user's files: reading a large CSV, predicting from many sequences, a report of many logs.

    bench/tool.py build/release/recurve [--megabytes 1000] [--turns 3] [--json FILE]

Prints a line for each number with its target. Files are made in a temporary folder (TMPDIR), which needs twice the size of the CSV. bench/predict.sh and
bench/report_speed.py measure two of them; each can also be run alone."""
import argparse
import datetime
import json
import math
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


# ---- a large table ----


def write_wide(path, size):
    """A row is a sequence of 50 steps with a class."""
    rng = random.Random(1)
    rows = [",".join(f"{math.sin(rng.random() * 6 + t / 5) + rng.gauss(0, 0.2):.4f}" for t in range(50)) + f",class{rng.randrange(5)}\n" for _ in range(2000)]
    block = "".join(rows).encode()
    with open(path, "wb") as file:
        file.write((",".join(f"t{i}" for i in range(50)) + ",label\n").encode())
        while file.tell() < size:
            file.write(block)
    return ["--kind", "classes"]


def write_long(path, size):
    """A row is a time step: an id, a time, 8 features and a value."""
    rng = random.Random(2)
    rows = [",".join(f"{rng.gauss(0, 1):.5f}" for _ in range(9)) + "\n" for _ in range(5000)]
    with open(path, "wb") as file:
        file.write(b"id,time," + b",".join(b"f%d" % i for i in range(8)) + b",y\n")
        sequence = 0
        while file.tell() < size:
            part = "".join(f"s{sequence + i // 100},{i % 100}," + row for i, row in enumerate(rows))
            sequence += len(rows) // 100
            file.write(part.encode())
    return ["--kind", "step-values", "--sequence", "id", "--target", "y"]


def measure(command):
    """Seconds that pass, seconds of CPU, and the largest memory of a child process, in bytes."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.monotonic() - begin
    if status:
        sys.exit(f"tool.py: {' '.join(command)} ended with {status}")
    return elapsed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def reading_rows(recurve, folder, megabytes, turns):
    for name, write in {"a row a sequence, 51 columns": write_wide, "a row a time step, 11 columns": write_long}.items():
        path = os.path.join(folder, "table.csv")
        options = write(path, megabytes * 1e6)
        size = os.path.getsize(path)
        command = [recurve, "train", path, *options, "--steps", "0", "--hidden", "8", "--effort", "estimate", "--quiet", "--overwrite", "--output", os.path.join(folder, "model.safetensors")]
        found = []
        for _ in range(turns):
            if os.path.exists(path + ".recurve-tokens"):
                os.unlink(path + ".recurve-tokens")
            found.append(measure(command))
        elapsed, cpu, memory = (statistics.median(one[i] for one in found) for i in range(3))
        cached = measure(command)[0]
        yield {"part": "reading", "what": f"CSV of {size / 1e6:.0f} MB, {name}", "value": size / 1e6 / cpu, "unit": "MB a second of CPU", "target": {"least": 200},
               "details": {"seconds": elapsed, "CPU seconds": cpu, "seconds with the token cache": cached}}
        yield {"part": "reading", "what": f"its memory, {name}", "value": memory / 1e6, "unit": "MB", "target": {"most": 300}, "details": {}}
        os.unlink(path)
        os.unlink(path + ".recurve-tokens")


# ---- predictions, reports ----


def prediction_rows(recurve, turns):
    text = subprocess.run(["bash", os.path.join(HERE, "predict.sh"), recurve], env={**os.environ, "TURNS": str(turns)}, check=True, capture_output=True, text=True).stdout
    for features, predict, forward, ratio in re.findall(r"^ +(\d+) +([\d.]+) +([\d.]+) +([\d.]+)$", text, re.M):
        yield {"part": "predictions", "what": f"predict of 100,000 sequences of 50 steps, {features} features, LSTM 128, two threads, against the forward passes by bench",
               "value": float(ratio), "unit": "times", "target": {"most": 1.1}, "details": {"predict, s": float(predict), "forward passes, s": float(forward)}}


def report_rows(recurve):
    done = subprocess.run([sys.executable, os.path.join(HERE, "report_speed.py"), recurve], capture_output=True, text=True)
    seconds, cat, size = map(float, re.search(r"report ([\d.]+) s, cat ([\d.]+) s; page ([\d.]+) MB", done.stdout).groups())
    yield {"part": "report", "what": "report of 20 logs of 100,000 lines", "value": seconds, "unit": "s", "target": {"most": 1}, "details": {"cat of the logs, s": cat}}
    yield {"part": "report", "what": "its page", "value": size, "unit": "MB", "target": {"most": 2}, "details": {}}


# ---- all ----


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, cwd=HERE).stdout.strip()


def cpu_name():
    found = re.search(r"^Model name: *(.*)$", subprocess.run(["lscpu"], env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True).stdout, re.M)
    return found[1] if found else platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recurve")
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    recurve = os.path.abspath(arguments.recurve)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for found in (reading_rows(recurve, folder, arguments.megabytes, arguments.turns), prediction_rows(recurve, arguments.turns), report_rows(recurve)):
            for row in found:
                rows.append(row)
                target = ", ".join(f"at {word} {number}" for word, number in row["target"].items())
                print(f"{row['what']}: {row['value']:.4g} {row['unit']} ({target})", flush=True)
    if arguments.json:
        changed = " and changes" if output_of("git", "status", "--porcelain", "--untracked-files=no") else ""
        system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()) if hasattr(platform, "freedesktop_os_release") else platform.system()
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"benchmark": "tool", "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(), "commit": output_of("git", "rev-parse", "--short", "HEAD") + changed,
                       "version": output_of(recurve, "--version"), "compiler": output_of("cc", "--version").split("\n")[0],
                       "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "architecture": platform.machine(), "system": system},
                       "command": "bench/tool.py build/release/recurve", "rows": rows}, file, indent=2)
            file.write("\n")


main()
