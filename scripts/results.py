#!/usr/bin/env python3
"""Writes the pages of measurements, docs/results/*.md, the tables of docs/SPEED.md and the chart of README.md from the files of measurements,
bench/results/*.json.

    scripts/results.py [--check] [--root FOLDER]

There is one page a file, and an index. In docs/SPEED.md the lines between `<!-- NAME: ... -->` and `<!-- end of NAME -->` are written; the chart is
docs/speed-light.svg and docs/speed-dark.svg. With --check nothing is written: the exit status is 1 if a file differs from what would be written, is
missing, or has no file of measurements, and each such file is named. What is written depends on the JSON files and on this script alone.
"""
import argparse
import json
import math
import re
import statistics
import sys
from pathlib import Path

NONE = "-"


# ---- numbers and tables ----


def number(value, digits=3):
    """Rounded to `digits` significant digits, but never to fewer than all digits before the point; thousands are separated."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    after = max(0, digits - len(str(int(abs(value)))) if abs(value) >= 1 else digits - 1 - int(f"{value:e}".split("e")[1]))
    return f"{value:,.{after}f}"


def milliseconds(seconds):
    return number(None if seconds is None else 1e3 * seconds)


def percent(share):
    return NONE if share is None else f"{number(100 * share, 2)}%"


def times(ratio):
    return NONE if ratio is None else f"{number(ratio)}x"


def megabytes(count):
    return NONE if count is None else number(count / 1e6)


def thousands(value):
    """Tokens a second: rounded to thousands from 100,000 on, else to hundreds."""
    return NONE if value is None else f"{round(value, -3 if value >= 1e5 else -2):,.0f}"


def code(text):
    return f"`{text}`" if text else NONE


def table(header, rows):
    """A Markdown table; columns without any content are left out."""
    kept = [i for i, _ in enumerate(header) if any(row[i] not in ("", NONE) for row in rows)]
    lines = [[header[i] for i in kept], ["---"] * len(kept)] + [[str(row[i]) for i in kept] for row in rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def capitalise(text):
    return text[:1].upper() + text[1:]


def unique(values):
    return list(dict.fromkeys(v for v in values if v))


def natural(name):
    """A key that sorts numbers in a name by their value."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


# ---- what was measured where ----


def describe_machine(machine):
    if isinstance(machine, str):
        return machine
    device = machine.get("device")
    device = device.replace("-", " ") if device and device.startswith("NVIDIA-") else device
    cores = f"{machine['cores']} cores" if machine.get("cores") else None
    cpu = machine.get("cpu")
    if cpu and device and cpu.startswith(device):
        device = None  # a file that has the architecture as its device
    return "; ".join(unique([device, ", ".join(unique([cpu, cores])), machine.get("system"), machine.get("transport")]))


def short_machine(machine):
    """The GPU, else the CPU, without versions."""
    if isinstance(machine, str):
        return machine
    device, cpu = machine.get("device"), machine.get("cpu")
    if device and "NVIDIA" in device:
        return device.split(",")[0].replace("-", " ")
    return cpu if "cores" in cpu else f"{cpu}, {machine['cores']} cores"


def span(dates):
    days = sorted({date[:10] for date in dates if date})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}" if days else NONE


def facts(data, runs):
    """What stands at the top of a page: machines, versions, dates and commits of the runs, or of the file where runs have none."""
    runs = list(runs) or [data]
    machines = unique([describe_machine(run["machine"]) for run in runs if "machine" in run]) or [describe_machine(data["machine"])]
    machine = next((run["machine"] for run in runs if "machine" in run), data.get("machine"))
    dated = {}
    for run in runs:
        commit = run.get("commit", data.get("commit"))
        if commit:
            dated.setdefault(commit, set()).add(run.get("date", data.get("date") if commit == data.get("commit") else "") or "")
    commits = [f"`{commit}`" + (f" ({span(dates)})" if len(set(map(span, dated.values()))) > 1 and any(dates) else "") for commit, dates in dated.items()]
    versions = unique(["recurve " + run["version"].replace("recurve ", "") for run in runs + [data] if run.get("version")])
    return {"machine": machines, "short": short_machine(machine), "versions": versions,
            "date": span([run.get("date") for run in runs] + [data.get("date")]), "commits": commits}


def library_versions(runs):
    """Versions of the libraries that took part, as the runs name them."""
    found = []
    for run in runs:
        for entry in run.get("entries", []):
            text = f"{entry.get('note') or ''} {entry.get('reason') or ''}"
            found += [match.replace("torch", "PyTorch") for match in re.findall(r"\b(?:OpenBLAS|oneDNN|torch) \d[\w.+]*", text)]
        if "torch" in run:
            found.append(f"PyTorch {run['torch']}")
    return unique(found)


# ---- `recurve bench`: networks ----

# Rows in this order; each is the beginning of a name.
ROWS = ("headline", "medium", "large", "small", "one-layer", "single", "wide", "long", "big", "gru", "peephole", "layernorm")
ANCHORS = ("cuDNN", "oneDNN", "oneDNN float32", "OpenBLAS by hand", "PyTorch")


def row_key(name):
    return (next((i for i, row in enumerate(ROWS) if name.startswith(row)), len(ROWS)), natural(name))


def shape(problem):
    return ",".join(str(problem[k]) for k in ("steps", "batch", "input", "hidden", "layers"))


def ours(run):
    return next(entry for entry in run["entries"] if entry["name"] == "recurve")


def find_anchor(run, name):
    """The fastest entry of that name, or of that family (cuDNN has several algorithms)."""
    entries = [e for e in run["entries"] if name == (e.get("family") or e["name"]) and e["median"] is not None]
    return min(entries, key=lambda e: e["median"], default=None)


def network_row(name, run):
    mine = ours(run)
    cells = [code(name), run["problem"]["cell"], shape(run["problem"]), run["problem"]["dtype"], run["problem"]["pass"],
             f"**{milliseconds(mine['median'])}**", percent(mine["of_peak"]), megabytes(mine["bytes"])]
    for anchor in ANCHORS:
        entry = find_anchor(run, anchor)
        cells.append(f"{milliseconds(entry['median'])} ({times(entry['median'] / mine['median'])})" if entry else NONE)
    return cells + [code(mine["plan"]), code(run["commit"])]


def network_table(runs):
    header = ["row", "cell", "T,B,I,H,L", "type", "pass", "recurve, ms", "of peak", "memory, MB"]
    return table(header + [f"{a}, ms (x)" for a in ANCHORS] + ["plan", "commit"], [network_row(n, r) for n, r in runs])


def refusals(runs):
    """Why a library has no time, for each row where none of its algorithms has one."""
    found = {}
    for name, run in runs:
        for entry in run["entries"]:
            library = entry.get("family") or entry["name"]
            if entry["reason"] and not find_anchor(run, library):
                found.setdefault((library, entry["reason"]), {})[code(name)] = True
    return [f"- {anchor} has no time in {', '.join(names)}: {reason}." for (anchor, reason), names in found.items()]


def ladder_section(name, run):
    rows = [[entry["group"], entry["name"], code(entry["plan"]), milliseconds(entry["median"]), times(entry["speedup"]), percent(entry["of_peak"])]
            for entry in run["ladder"]]
    rows += [["library", e["name"], code(e["plan"]), milliseconds(e["median"]), times(run["ladder"][0]["median"] / e["median"]),
              percent(e["of_peak"])] for e in run["entries"] if e["name"] != "recurve" and e["median"] is not None]
    return (f"### `{name}`\n\n{run['title']}. Commit `{run['commit']}`, {run['date']}.\n\n"
            + table(["group", "rung", "plan", "ms", "of naive", "of peak"], rows))


def batches_section(name, run):
    rows = [[b["batch"], milliseconds(b["seconds"]), number(b["speed"] / 1e12), number(b["cudnn_speed"] and b["cudnn_speed"] / 1e12),
             times(b["cudnn_speed"] and b["speed"] / b["cudnn_speed"]), code(b["plan"])] for b in run["batches"]]
    return (f"### `{name}`\n\n{run['title']}, by batch size. Commit `{run['commit']}`, {run['date']}.\n\n"
            + table(["batch", "recurve, ms", "recurve, TFLOP/s", "cuDNN, TFLOP/s", "speed-up", "plan"], rows))


def ranks_section(runs):
    rows = [[code(name), r["rank"] or "full", number(r["parameters"]), milliseconds(r["seconds"]), times(r["speedup"]),
             number(r["error_fresh"], 2), number(r["error_decaying"], 2), code(r["plan"])] for name, run in runs for r in run["ranks"]]
    return table(["row", "rank", "parameters", "ms", "of full rank", "error, random weights", "error, decaying singular values", "plan"], rows)


def streaming_section(runs):
    us = lambda seconds: number(None if seconds is None else 1e6 * seconds)
    rows = []
    for name, run in runs:
        s = run["streaming"]
        rows.append([code(name), s["chunk"], us(s["step"]), us(s["p50"]), us(s["p99"]), us(s["worst"]), us(s["whole_step"]), code(s["plan"])])
    return table(["row", "steps a call", "mean, us", "median, us", "99th percentile, us", "worst, us", "a step of the whole sequence, us", "plan"], rows)


def planner_section(runs):
    rows = [[code(name), p["effort"], p["candidates"], number(p["choosing_seconds"]), milliseconds(p["seconds"]), number(p["ratio"]), code(p["plan"])]
            for name, run in runs for p in run["planner"]]
    return table(["row", "effort", "candidates", "choosing, s", "plan, ms", "of the plan of `exhaustive`", "plan"], rows)


def bench_page(data):
    runs = sorted(data.items(), key=lambda item: row_key(item[0]))
    special = ("ladder", "batches", "ranks", "streaming", "planner", "scan", "lengths")
    having = lambda key: [(name, run) for name, run in runs if key in run]
    plain = [(name, run) for name, run in runs if not any(key in run for key in special)]
    text = ["## Networks\n",
            "T,B,I,H,L are steps, batch, input, hidden, layers. `forward` is one forward pass, `train` a forward and a backward pass with all gradients. "
            "Times are medians of calls; all implementations of a row were timed in turns in one run. In brackets: the time of the library "
            "divided by recurve's; above 1 recurve is faster. cuDNN is its fastest algorithm. *Of peak* is the share of the measured peak of "
            "multiply-adds of that type; on a GPU float32 can exceed it, since plans with `persistent` multiply float32 as parts in bfloat16.\n"]
    counts = unique(run["machine"]["threads"] for _, run in plain if not run["machine"].get("device"))
    for threads in sorted(counts):
        text += [f"### {threads} thread{'s' if threads > 1 else ''}\n",
                 network_table([(n, r) for n, r in plain if r["machine"]["threads"] == threads])]
    if not counts:
        text.append(network_table(plain))
    if missing := refusals(plain):
        text += ["### Libraries without a time\n", "\n".join(missing) + "\n"]
    if found := having("ladder"):
        text += ["## Ladder\n", "Rungs alone, each added to `naive`, and one after the other. *Of naive* is the speed-up over the plan `naive`.\n"]
        text += [ladder_section(name, run) for name, run in found]
    if found := having("batches"):
        text += ["## Batch sizes\n"] + [batches_section(name, run) for name, run in found]
    if found := having("ranks"):
        text += ["## Low-rank matrices\n",
                 "Matrices as products of two factors. Errors are those of the output, relative, against the full matrices.\n", ranks_section(found)]
    if found := having("streaming"):
        text += ["## Streaming\n", "One call a time step, against a call for the whole sequence.\n", streaming_section(found)]
    if found := having("planner"):
        text += ["## Planner\n", "What each effort of the planner takes, and the time of the plan that it chooses.\n", planner_section(found)]
    for name, run in having("scan"):
        text += [f"## Linear recurrences, `{name}`\n", scan_section(run)]
    return "\n".join(text), [run for _, run in runs]


# ---- `recurve bench --scan`, `--lengths` ----


def scan_section(run):
    scan = run["scan"]
    rows = []
    for p in scan["points"]:
        cells = [f"[{p['steps']}, {p['batch']} x {p['channels']}]" if p["batch"] > 1 else f"[{p['steps']}, {p['channels']}]", p["form"]]
        for way in ("forward", "backward"):
            t = p[way]
            cells += [milliseconds(t["median"]), percent(t["of_copy"]), times(t["speedup"])]
        rows.append(cells)
    best = max((p["copy"] for p in scan["points"] if p["copy"]), default=0)
    text = [f"{capitalise(run['title'])}. Commit `{run['commit']}`, {run['date']}: `{run['command'].split(' --json')[0]}`.\n",
            f"*Of a copy*: bytes of the arrays (3 forward, 5 backward) a second, as a share of the bandwidth of a copy that reads "
            f"{'two arrays' if scan['copy_reads'] == 2 else 'one array'} and writes one, measured in the same run (at most {best / 1e9:,.0f} GB/s). "
            "*Of serial*: speed-up over one step after the other.\n",
            table(["[steps, channels]", "form", "forward, ms", "of a copy", "of serial", "backward, ms", "of a copy", "of serial"], rows)]
    if targets := scan.get("targets"):
        rows = [[f"[{t['steps']}, {t['batch']} x {t['channels']}]" if t["batch"] > 1 else f"[{t['steps']}, {t['channels']}]", t["what"],
                 f"{t['relation']} {number(t['target'])} {t['unit']}", f"{number(t['measured'])} {t['unit']}", "yes" if t["met"] else "no",
                 t["source"] or ""] for t in targets]
        text += ["Targets:\n", table(["[steps, channels]", "what", "target", "measured", "reached", "source of the target"], rows)]
    return "\n".join(text)


def scan_page(data):
    return "## Linear recurrences\n\n" + scan_section(data), [data]


def lengths_page(data):
    of = data["lengths"]
    rows = []
    for p in of["lstm"] + of["points"]:
        cells = [p["cell"], f"{p['steps']:,}"]
        for way in ("forward", "train"):
            mark = " (extrapolated)" if p["cell"] == "lstm" and p[way]["extrapolated"] else ""
            cells += [milliseconds(p[way]["median"]) + mark, times(p[way]["speedup"]), code(p[way]["plan"])]
        rows.append(cells)
    return (f"## Time over the number of steps\n\n{capitalise(data['title'])}. The speed-up is over the LSTM of the same size by its fastest plan, timed in the "
            "same run. The LSTM's time is extrapolated from fewer steps where a call would take too long or is refused.\n\n"
            + table(["cell", "steps", "forward, ms", "of the LSTM", "plan, forward", "training step, ms", "of the LSTM", "plan, training"], rows)), [data]


# ---- layers, memory problem, core ----


def layers_page(data):
    rows = [[c["cell"], c["bytes_an_element"], milliseconds(c["products"]), milliseconds(c["bytes"]), milliseconds(c["count"]),
             f"**{milliseconds(c['step'])}**", number(c["of_the_count"]), code(ours(c["runs"]["whole"])["plan"])] for c in data["layers"]]
    runs = [run for c in data["layers"] for run in c["runs"].values()]
    return (f"## Training steps of layers whose recurrences are scans\n\n{runs[0]['title'].split(', ', 1)[1]}. The lower bound is the time of the "
            "layer's matrix products alone (cuBLASLt, measured) plus the bytes that everything else must move, at the bandwidth of a copy "
            f"({data['copy'] / 1e12:.2f} TB/s). [SCAN](../SCAN.md) counts the bytes.\n\n"
            + table(["cell", "bytes an element", "products, ms", "bytes, ms", "lower bound, ms", "recurve, ms", "of the bound", "plan"], rows)), runs


def memory_page(data):
    runs = [run for _, run in sorted(data.items(), key=lambda item: natural(item[0]))]
    rows = [[r["problem"]["cell"], f"{r['problem']['steps']:,}", r["problem"]["batch"], milliseconds(r["iteration_seconds"]),
             milliseconds(r["network_seconds"]), megabytes(r["bytes"]), r["iterations"] if r["learnt"] else f"not in {r['iterations']}",
             number(r["seconds"]), number(r["planning_seconds"]), code(r["plan"])] for r in runs]
    p = runs[0]["problem"]
    return ("## The memory problem\n\nThe network reads random signs and must print the first one at the end (`examples/memory`). "
            f"{p['layers']} layers of {p['hidden']}, {p['dtype']}. *Network* is the time of the network's passes in an iteration.\n\n"
            + table(["cell", "steps", "batch", "iteration, ms", "network, ms", "memory, MB", "iterations until learnt", "training, s", "planning, s",
                     "plan"], rows)), runs


def core_page(data):
    m = data["measured"]
    cells = [[c["cell"], number(1e3 * c["parse_ms"]), number(1e3 * c["all_ms"])] for c in m["cells"]]
    plans = [[p["cell"], f"{p['steps']},{p['batch']},{p['hidden']},{p['layers']}", "train" if p["training"] else "forward", f"{p['plan_bytes']:,}",
              f"{p['allocated']:,}", "yes" if p["plan_bytes"] == p["allocated"] else "no"] for p in m["plans"]]
    return ("## Cells\n\nTime to parse a cell, and to parse, differentiate and analyse it.\n\n" + table(["cell", "parse, us", "all, us"], cells)
            + "\n## Predicted memory\n\nBytes that a plan predicts, and bytes that a run of it allocates (T,B,H,L are steps, batch, hidden, layers).\n\n"
            + table(["cell", "T,B,H,L", "pass", "predicted, bytes", "allocated, bytes", "equal"], plans)), [{"version": m["version"], **data}]


# ---- comparisons of builds ----


def compare_page(data):
    rows = []
    for name, r in data["rows"].items():
        before, after = (statistics.median(r[k]) for k in ("before_ms", "after_ms"))
        ratio = statistics.median(b / a for a, b in zip(r["before_ms"], r["after_ms"]))
        spread = lambda values: f"{number(min(values))} to {number(max(values))}"
        rows.append([code(name), len(r["before_ms"]), number(before), spread(r["before_ms"]), number(after), spread(r["after_ms"]), f"{ratio:.3f}", code(r["plan"])])
    return (f"## Two builds of recurve\n\nBefore: {data['before']}. After: {data['after']}. Both run the same plan, in turns. Times are "
            "medians over rounds of the medians of calls. The ratio is the median over rounds of after / before; below 1 the later build is faster. The shapes of the rows are in `bench/compare.py`.\n\n"
            + table(["row", "rounds", "before, ms", "range", "after, ms", "range", "after / before", "plan"], rows)), [
                {"machine": data["machine"], "date": data["date"], "version": data["before"].split()[0], "commit": data["before"].split()[1]},
                {"date": data["date"], "version": data["after"].split()[0], "commit": data["after"].split()[1]}]


# ---- several ranks ----

PARALLEL_MODELS = {"equal": "bytes, 4 layers of 256, batch 32, length 64", "words": "8,000 words, 2 layers of 200, batch 20, length 20",
                   "lines": "lines of words, 4 layers of 128, batch 32"}


def parallel_page(data):
    if "models" in data:
        return parallel_gpu(data), [data]
    rows = []
    for r in data["runs"]:
        ranks = r.get("ranks", {})
        rows.append([PARALLEL_MODELS.get(r["model"], r["model"]), r["how"].replace("one", "one rank"), ranks.get("split") or "",
                     f"{ranks['micro_batches']} x {ranks['time_chunks']}" if ranks else "", f"**{number(r['step_ms'], 4)}**", times(r.get("speed_up")),
                     number(statistics.median(r["forecast_ms"]) if "forecast_ms" in r else None, 4), number(r.get("forecast_of_real")),
                     f"{r['bytes_sent']:,.0f}" if "bytes_sent" in r else ""])
    transports = unique(r["ranks"]["transport"] for r in data["runs"] if "ranks" in r)
    return (f"## Two ranks against one\n\nOne rank on one core, and two ranks on a core each; {data['turns']} turns, medians. Transport: "
            f"{', '.join(transports)}. The forecast is made by the run before its first update.\n\n"
            + table(["model", "arrangement", "layers of the stages", "micro-batches x time chunks", "update, ms", "speed-up", "forecast, ms",
                     "forecast / measured", "bytes sent an update"], rows)), [data]


def parallel_gpu(data):
    sharing = {"MPS": "Multi-Process Service", "turns": "time slices"}
    rows = [[r["model"], r["ranks"], r["parallel"], sharing.get(r["gpu_shared_by"], r["gpu_shared_by"]), r["split"],
             f"{r['micro_batches']} x {r['time_chunks']}" + (" (given)" if r["given"] else ""), f"**{number(r['step_ms'])}**", number(r["forecast_ms"]),
             number(r["forecast_of_real"])] for r in data["runs"]]
    models = "\n".join(f"- {name}: `{options}`" for name, options in data["models"].items())
    return ("## Ranks that share one GPU\n\nMessages and sums go by MPI through the host's memory. The forecast is `ranks.expected` of the log's first line; "
            f"the measured update is the mean of updates 60 to 160. Models:\n\n{models}\n\n"
            + table(["model", "ranks", "arrangement", "GPU shared by", "layers of the stages", "micro-batches x time chunks", "update, ms", "forecast, ms",
                     "forecast / measured"], rows))


def link_page(data):
    free = next(r["step_ms"] for r in data["runs"] if not r["mbit_per_second"])
    rows = [[f"{r['mbit_per_second']:,.0f}" if r["mbit_per_second"] else "no limit", f"**{number(r['step_ms'], 4)}**", number(r["step_ms"] / free),
             number(r["backward_ms"], 4), number(r["exchange_ms"]), number(r["wait_ms"], 2), percent(r["hidden"]), percent(r.get("hidden_by_step")),
             f"{r['bytes_sent']:,.0f}", f"{r['bytes_least']:,.0f}", f"{r['bytes_on_wire']:,.0f}" if "bytes_on_wire" in r else NONE] for r in data["runs"]]
    settings = ", ".join(f"{k} {v}" for k, v in data["settings"].items())
    return (f"## Two ranks over a link of a known bandwidth\n\nData parallel. {settings}; {data['parameters']:,} parameters. One rank alone takes "
            f"{number(data['one_rank']['step_ms'], 4)} ms an update. *Exchange*: time in which any all-reduce is in flight. *Wait*: time that a rank waits for "
            "all-reduces after its backward pass. *Hidden* is 1 - wait / exchange. *Hidden, by update* is 1 - (what an update takes longer than "
            "without a limit) / (bytes on the wire at the link's speed); it includes what packets cost the cores. *Least* is one gradient and 32 bytes "
            "of control flags.\n\n"
            + table(["Mbit/s", "update, ms", "of no limit", "backward, ms", "exchange, ms", "wait, ms", "hidden", "hidden, by update", "bytes sent", "least",
                     "bytes on the wire"], rows)), [data]


# ---- training ----

# Test perplexities of Zaremba, Sutskever and Vinyals, "Recurrent neural network regularization", 2014.
PAPER = {"ptb-small": 114.5, "ptb-medium": 82.7, "ptb-large": 78.4}


def tokens_per_second(run):
    return run.get("settled_tokens_per_second") or run["tokens_per_second"] if run else None


def compare_with_torch(runs, prefix, torch_prefix, types):
    """Rows: of every model and turn recurve, PyTorch in each type, and the ratio to the fastest of them."""
    found = {}
    for name in runs:
        if match := re.fullmatch(rf"(?:{prefix}|{torch_prefix})-(.+?)(?:-(?:{'|'.join(types)}))?-(\d+)", name):
            found.setdefault((match[1], int(match[2])), None)
    rows = []
    for model, turn in sorted(found):
        mine = runs.get(f"{prefix}-{model}-{turn}")
        torch = {t: runs.get(f"{torch_prefix}-{model}-{t}-{turn}") for t in types}
        best = max((r["tokens_per_second"] for r in torch.values() if r), default=None)
        memory = min((r["bytes"] for r in torch.values() if r and r.get("bytes")), default=None)
        rows.append([model, turn, f"**{thousands(tokens_per_second(mine))}**" if mine else NONE]
                    + [thousands(r and r["tokens_per_second"]) for r in torch.values()]
                    + [times(tokens_per_second(mine) / best if mine and best else None), megabytes(mine and mine.get("bytes")), megabytes(memory),
                       ", ".join(unique([code(r["commit"]) for r in [mine, *torch.values()] if r and r.get("commit")]))])
    return table(["model", "turn", "recurve, tokens/s"] + [f"PyTorch {t}" for t in types]
                 + ["of the fastest PyTorch", "memory, MB", "least of PyTorch, MB", "commit"], rows)


def training_page(data):
    runs = data["runs"]
    text = []
    if any(name.startswith("speed-") for name in runs):
        text += ["## Speed against PyTorch\n",
                 "Zaremba's models. Recurve multiplies in bfloat16; PyTorch in each of three types. Runs of one turn ran one after the other on one machine. "
                 "The ratio is to the fastest PyTorch run of the turn. PyTorch's speed depends on the host and its load, since it is bound by kernel launches.\n",
                 compare_with_torch(runs, "speed", "torch", ("tf32", "bf16", "fp32"))]
    if found := {name[8:]: run for name, run in runs.items() if name.startswith("quality-")}:
        rows = [[model, number(run["test_perplexity"], 4), PAPER.get(model, NONE), number(run["seconds"]), f"{run['epoch']:.0f}",
                 thousands(run["tokens_per_second"]), megabytes(run["bytes"]), code(run.get("commit"))] for model, run in sorted(found.items(), reverse=True)]
        text += ["## Complete training runs\n", "Test perplexity in bfloat16. Paper: Zaremba et al., 2014.\n",
                 table(["model", "test perplexity", "paper", "training, s", "epochs", "tokens/s", "memory, MB", "commit"], rows)]
    if found := [name[7:] for name in runs if name.startswith("beside-") and f"torch-{name}" in runs]:
        rows = [[model, number(runs[f"beside-{model}"]["validation_perplexities"][-1], 4),
                 number(runs[f"torch-beside-{model}"]["validation_perplexity"], 4), code(runs[f"beside-{model}"].get("commit"))] for model in found]
        text += ["## Validation perplexity after one epoch\n", table(["model", "recurve, bfloat16", "PyTorch, tf32", "commit"], rows)]
    if found := {name: run for name, run in runs.items() if name.startswith("buckets-")}:
        none = max((tokens_per_second(r) for n, r in found.items() if n.startswith("buckets-none")), default=None)
        rows = []
        for name, run in sorted(found.items(), key=lambda item: tokens_per_second(item[1])):
            padded = sum(s["steps"] * s["batch"] * s["batches"] for s in run["shapes"])
            rows.append([code(name[8:].rsplit("-", 1)[0]), len(run["shapes"]),
                         f"**{thousands(tokens_per_second(run))}**", times(none and tokens_per_second(run) / none), number(padded / run["tokens"], 4),
                         code(run.get("commit"))])
        s = next(iter(found.values()))["settings"]
        text += ["## Buckets\n", f"Sentences of Penn Treebank, {s['layers']} layers of {s['hidden']}, batches of {s['batch']}, {s['dtype']}.\n",
                 table(["`--buckets`", "buckets", "tokens/s", "of no buckets", "padded tokens / tokens", "commit"], rows)]
    if any(name.startswith("cpu-small-") for name in runs):
        rows = []
        for mine, theirs in (("float32", "fp32"), ("bfloat16", "bf16")):
            for turn in (1, 2):
                run, torch = runs.get(f"cpu-small-{mine}-{turn}"), runs.get(f"torch-cpu-small-{theirs}-{turn}")
                if run and torch:
                    rows.append([mine, turn, f"**{thousands(tokens_per_second(run))}**", thousands(torch["tokens_per_second"]),
                                 times(tokens_per_second(run) / torch["tokens_per_second"]), megabytes(run["bytes"]), code(run.get("commit", data["commit"]))])
        fastest = max(r["tokens_per_second"] for n, r in runs.items() if n.startswith("torch-cpu-small-"))
        text += ["## Zaremba's small model on two threads of a CPU\n",
                 f"The ratio is to PyTorch in the same type in the same turn. PyTorch's fastest run of any type: {thousands(fastest)} tokens/s.\n",
                 table(["type", "turn", "recurve, tokens/s", "PyTorch, tokens/s", "speed-up", "memory, MB", "commit"], rows)]
    return "\n".join(text), list(runs.values())


# ---- calls ----

CALLS_PARTS = {  # part: beginning of its jobs' names, title, what it measures
    "first": (("libraries", "first-", "again-", "next-", "planning-", "new-shapes"), "First calls and the search for a better plan",
              "A first step is the time of `rcv_net_new`, `rcv_plan_new` with `RCV_BACKGROUND`, `rcv_run_new` and a training step until it is done, after "
              "the device was used once. PyTorch: the first training step of a new `torch.nn.LSTM`, whose libraries `import torch` has loaded before, and the "
              "median of later ones."),
    "backward": (("backward",), "Repeated and postponed backward calls", "All gradients and outputs are compared bit by bit."),
    "sizes": (("sizes",), "Calls with other sizes than the call before",
              "One plan; medians over pairs of steps and sequences of a call's time beyond that of the same call again."),
    "types": (("types",), "Types of the caller's arrays", "Timed in turns; the ratio of medians. PyTorch: all in bfloat16, of float32 under autocast."),
    "sentences": (("sentences",), "Sentences of Penn Treebank",
                  "Zaremba's medium model: 2 layers of 650, bfloat16 with float32 parameters, batches of at most 64 sentences of similar length. Where a "
                  "small plan is named, batches of at most `small_batch` have that one. The exact plans are "
                  "of some of the sizes, timed in turns with the one plan; other sizes count by the nearest of these. PyTorch: the same batches padded, under "
                  "autocast."),
    "stream": (("stream",), "One sequence, step by step",
               "The median over 4,000 calls of `rcv_stream_step` of that of calls by hand, a few calls of each in turns: what "
               "`recurve bench --streaming --hidden 256 --layers 2 --steps 100 --batch 1 --threads 1` times, too."),
}


def calls_command(data, part):
    device = "cuda" if (data["machine"] or {}).get("device") else "cpu"
    return f"build/release/bench/bench_calls --device {device} --parts {part}" + (" --data DATA" if part == "sentences" else "")


def calls_measured(row):
    if row["measured"] is None:
        return row.get("verdict") or f"not measured: {row['reason']}"
    return f"**{number(row['measured'])}**" + (f" {row['unit']}" if row["unit"] else "")


def calls_reached(row):
    if row.get("missed"):
        return "no"
    return NONE if row["target"] is None or row["measured"] is None else "yes" if float(f"{row['measured']:.3g}") <= row["target"] else "no"


def calls_details(row):
    """Numbers and plans of a row; lists of sizes are left to the file."""
    show = lambda key, value: number(value) if not isinstance(value, str) else code(value) if "plan" in key else value
    return "; ".join(f"{key} {show(key, value)}" for key, value in row["details"].items() if not isinstance(value, list))


def calls_page(data):
    if data["tiny"]:
        raise KeyError("numbers of real networks: it is of bench_calls --tiny")
    anchors, text = data.get("anchors", {}), []
    for part, (jobs, title, note) in CALLS_PARTS.items():
        rows = []
        for r in (r for r in data["rows"] if r["part"].startswith(jobs) and not r["id"].endswith(".device")):
            rows.append([r["what"], f"at most {number(r['target'])} {r['unit']}" if r["target"] else NONE, calls_measured(r), calls_reached(r),
                         f"{number(anchors[r['id']])} {r['unit']}" if r["id"] in anchors else NONE, calls_details(r)])
        if rows:
            text += [f"## {title}\n", f"`{calls_command(data, part)}`\n", note + "\n",
                     table(["what", "target", "measured", "reached", "PyTorch", "details"], rows)]
    if about := data.get("anchors_about"):
        text += ["## PyTorch's numbers\n", "Measured after ours by the same command. By the beginnings of the rows' names in the file:\n",
                 "\n".join(f"- `{beginning}`: {how}." for beginning, how in about.items()) + "\n"]
    if failed := data.get("anchors_failed"):
        text += ["## PyTorch's parts without numbers\n", "\n".join(f"- `{name}`: {reason}." for name, reason in failed.items()) + "\n"]
    if not any(r["part"].startswith("stream") for r in data["rows"]):
        text += ["## One sequence, step by step\n", "An LSTM of 2 layers of 256, batch 1, one thread, a call a step: "
                 "`build/release/recurve bench --streaming --hidden 256 --layers 2 --steps 100 --batch 1 --threads 1`\n"]
    return "\n".join(text), [data]


def calls_commands(name, data):
    return [f"scripts/bench-calls.sh {'cuda' if (data['machine'] or {}).get('device') else 'cpu'} DATA"]


# ---- JAX ----


def jax_page(data):
    rows = []
    for row in data["rows"]:
        mine, theirs = (row["median"][name] for name in ("recurve", "jax.lax.scan"))
        rows.append([row["problem"]["cell"], shape(row["problem"]), row["problem"]["dtype"], PASSES[row["problem"]["pass"]], f"**{milliseconds(mine)}**",
                     milliseconds(theirs), times(theirs / mine), code(row["plan"])])
    return (f"## recurve.jax against jax.lax.scan\n\nBoth are compiled by jax.jit of jax {data['jax']} and timed in turns; medians. "
            "The loop of `jax.lax.scan` reads input products that were computed before it.\n\n"
            + table(["cell", "T,B,I,H,L", "type", "pass", "recurve, ms", "jax.lax.scan, ms", "speed-up", "plan"], rows)), [data]


# ---- modules for PyTorch ----

PYTHON_PARTS = {"overhead": "Calls", "headline": "An LSTM", "compiled": "In a compiled model", "ragged": "Sequences of different lengths", "own": "A cell of one's own",
                "ppo": "Resets", "import": "Imports"}


def python_target(row):
    target = row["target"] or {}
    if "most" in target:
        return f"at most {number(target['most'])} {row['unit']}"
    if "least_times" in target:
        return f"at least {number(target['least_times'])} times as fast"
    return f"at most {times(target['most_slower'])} the time" if target else NONE


def python_reached(row):
    target, value, anchor = row["target"] or {}, row["value"], row["anchor"]
    if "most" in target:
        return "yes" if value <= target["most"] else "no"
    if "least_times" in target:
        return "yes" if anchor / value >= target["least_times"] else "no"
    if "most_slower" in target:
        slower = anchor / value if row["id"].endswith(".bench") else value / anchor
        return ("yes" if slower <= target["most_slower"] else "no") + f" ({times(slower)})"
    return NONE


def python_details(row):
    return ", ".join(f"{name.replace('_', ' ')} {number(value) if isinstance(value, float) else value}" for name, value in row["details"].items() if name != "command")


def python_page(data):
    text = [f"`recurve.nn` and PyTorch {data['torch']} with Python {data['python']}, in turns in one run; medians of turns. Plans had been found before.\n"]
    for part, title in PYTHON_PARTS.items():
        rows = [[r["what"], f"**{number(r['value'])}** {r['unit']}", python_target(r), python_reached(r),
                 f"{r['anchor_name']}: {number(r['anchor'])} {r['unit']}" if r["anchor"] else NONE, times(r["anchor"] / r["value"]) if r["anchor"] else NONE, python_details(r)]
                for r in data["rows"] if r["part"] == part]
        if rows:
            text.append(f"## {title}\n\n" + table(["what", "measured", "target", "reached", "compared with", "which takes", "details"], rows))
    if data["failed"]:
        text.append("## Parts without numbers\n\n" + "\n".join(f"- {part}: {reason}" for part, reason in data["failed"].items()) + "\n")
    return "\n".join(text), [data]


# ---- the command on a user's files ----

TOOL_PARTS = {"reading": "Reading tables", "predictions": "Predictions", "report": "Reports"}


def tool_page(data):
    def bound(target):
        return ", ".join(f"at {word} {number(value)}" for word, value in target.items())

    def reached(row):
        most, least = row["target"].get("most", math.inf), row["target"].get("least", -math.inf)
        return "yes" if least <= row["value"] <= most else "no"

    text = ["Medians of turns. Reading is `recurve train --steps 0` of a file without a token cache: a hash of it, two passes over it, the cache written, and a plan that is estimated.\n"]
    for part, title in TOOL_PARTS.items():
        rows = [[r["what"], f"**{number(r['value'])}** {r['unit']}", bound(r["target"]), reached(r), ", ".join(f"{k} {number(v)}" for k, v in r["details"].items())]
                for r in data["rows"] if r["part"] == part]
        text.append(f"## {title}\n\n" + table(["what", "measured", "target", "reached", "details"], rows))
    return "\n".join(text), [data]


# ---- pages ----

# Kind of a file, by the beginning of its name: page, title, what it measures, the command that measures it again.
KINDS = {
    "cpu": (bench_page, "Networks on a CPU", "forward passes and training steps against oneDNN, OpenBLAS and PyTorch; low rank; streaming",
            lambda name, data: ["scripts/bench-cpu.sh"]),
    "cuda": (bench_page, "Networks on a GPU", "forward passes and training steps against cuDNN and PyTorch; ladder; batch sizes; linear recurrences",
             lambda name, data: ["scripts/bench-cuda.sh"]),
    "scan": (scan_page, "Linear recurrences on a CPU", "linear recurrences against a copy and against one step after the other",
             lambda name, data: [data["command"] + f" --json bench/results/{name}.json"]),
    "lengths": (lengths_page, "Cells over the number of steps", "cells whose recurrences are elementwise against the LSTM",
                lambda name, data: [data["command"] + f" --json bench/results/{name}.json"]),
    "layers": (layers_page, "Layers against a lower bound", "training steps of scan layers against their products and bytes",
               lambda name, data: ["scripts/bench-layers.sh"]),
    "memory": (memory_page, "The memory problem", "training that must remember the first of many signs",
               lambda name, data: [run["command"].replace("recurve memory", "build/release/examples/memory_task") for run in data.values()]),
    "core": (core_page, "Analysis of cells, and predicted memory", "time to parse, differentiate and analyse cells; predicted and allocated bytes",
             lambda name, data: ["scripts/record-bench.sh core"]),
    "compare": (compare_page, "Comparison of two builds", "the same plans by an earlier and a later build",
                lambda name, data: [f"bench/compare.py BEFORE AFTER --device {'cuda' if data['machine']['device'] else 'cpu'} --rounds {data['rounds']} "
                                    f"--json bench/results/{name}.json"]),
    "parallel": (parallel_page, "Several ranks", "updates of several ranks against one, and against their forecast",
                 lambda name, data: [data["command"]] if "command" in data else ["bench/parallel.sh build/release"]),
    "link": (link_page, "All-reduce over a slow link", "which share of the all-reduce of gradients the backward pass hides",
             lambda name, data: ["bench/link.sh build/release"]),
    "calls": (calls_page, "Calls besides their computation", "first calls, the search beside the caller, other sizes, other types, sentences, streams", calls_commands),
    "jax": (jax_page, "Networks in JAX", "forward calls and gradients against jax.lax.scan",
            lambda name, data: [data["command"] + f" --json bench/results/{name}.json"]),
    "python": (python_page, "Modules for PyTorch", "calls of modules, training steps, sequences of different lengths, an own cell, resets, imports",
               lambda name, data: [data["command"] + " --json bench/results"]),
    "tool": (tool_page, "The command on a user's files", "reading tables, predictions from many sequences, reports of many logs",
             lambda name, data: [data["command"] + f" --json bench/results/{name}.json"]),
    "training": (training_page, "Training of language models", "tokens a second, memory and perplexity against PyTorch",
                 lambda name, data: ["bench/ptb.sh DATA" if any(n.startswith("speed-") for n in data["runs"]) else "bench/ptb.sh DATA build/release cpu"]),
}
WARNING = "<!-- Written by scripts/results.py from {}. Do not edit. -->\n"


def write_page(path):
    """The text of a page, and its row of the index."""
    name = path.stem
    kind = name.split("-")[0]
    if kind not in KINDS:
        sys.exit(f"results.py: {path}: a file of unknown kind '{kind}'; add it to KINDS in scripts/results.py")
    page, title, what, find_commands = KINDS[kind]
    data = json.loads(path.read_text())
    try:
        body, runs = page(data)
        about = facts(data, runs)
        commands = find_commands(name, data)
    except (KeyError, TypeError, StopIteration) as error:
        sys.exit(f"results.py: {path}: a file of kind '{kind}' without {error}")
    versions = about["versions"] + ([data["compiler"]] if "compiler" in data else []) + library_versions(runs)
    top = [["machine", "<br>".join(about["machine"])], ["versions", ", ".join(versions)], ["date", about["date"]],
           ["commit of recurve", ", ".join(about["commits"])], ["measured by", "<br>".join(code(c) for c in commands)],
           ["all numbers", f"[bench/results/{path.name}](../../bench/results/{path.name})"]]
    text = (WARNING.format(f"bench/results/{path.name}") + f"# {title}: {about['short']}\n\n" + table(["", ""], top).replace("|  |  |", "| | |") + "\n"
            + body.rstrip("\n") + "\n")
    return text, [f"[{name}]({name}.md)", what, about["short"], about["date"], ", ".join(c.split(" (")[0] for c in about["commits"]),
                  "<br>".join(code(c) for c in commands)]


# ---- docs/SPEED.md: the tables of the networks ----

SPEED_CPU = ("headline-forward-2", "headline-train-2", "headline-bf16-2", "headline-bf16-train-2", "medium-train-2", "single-forward-2", "single-train-2",
             "wide-bf16-2")
SPEED_GPU = ("headline-bf16", "headline-tf32", "headline-fp32", "medium-bf16", "large-bf16", "one-layer-bf16", "single-bf16", "single-fp32", "wide-bf16",
             "long-bf16", "big-bf16", "gru-bf16", "peephole-bf16", "layernorm-bf16")
PASSES = {"forward": "forward", "train": "training step"}


def brief(run):
    """The time of recurve, and of each library the time divided by it."""
    mine = ours(run)["median"]
    return f"**{milliseconds(mine)}**" + "".join(f"; {name} {times(seconds / mine)}" for name, seconds in others(run))


def others(run):
    """Each library that was timed, and its seconds; oneDNN in float32 only where it has no other time."""
    found = {name: entry for name in ANCHORS if (entry := find_anchor(run, name))}
    if "oneDNN" in found:
        found.pop("oneDNN float32", None)
    return [(name.replace(" by hand", ""), entry["median"]) for name, entry in found.items()]


def speed_cpu(files):
    arm, intel = files["cpu-aarch64"], files["cpu-x86_64"]
    rows = [[shape(arm[n]["problem"]), arm[n]["problem"]["dtype"], PASSES[arm[n]["problem"]["pass"]], brief(arm[n]), brief(intel[n])] for n in SPEED_CPU]
    return table(["T,B,I,H,L", "type", "pass", "2 ARM cores (Neoverse V1), ms", "2 x86-64 cores (Xeon with AMX), ms"], rows)


def speed_gpu(files):
    rows = []
    for name in SPEED_GPU:
        forward, train = (files["cuda-NVIDIA-H200"][f"{name}-{which}"] for which in ("forward", "train"))
        problem = forward["problem"]
        rows.append([problem["cell"], shape(problem), problem["dtype"], brief(forward), brief(train)])
    return table(["cell", "T,B,I,H,L", "type", "forward, ms", "training step, ms"], rows)


SPEED_PAGE = "docs/SPEED.md"
SPEED_TABLES = {"cpu": speed_cpu, "gpu": speed_gpu}


def write_speed_page(text, files):
    """The page with its tables as measured."""
    for name, write in SPEED_TABLES.items():
        begin, end = f"<!-- {name}: written by scripts/results.py -->\n", f"<!-- end of {name} -->\n"
        if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
            sys.exit(f"results.py: {SPEED_PAGE} does not have '{begin.strip()}' and after it '{end.strip()}' once")
        try:
            text = text[:text.index(begin)] + begin + "\n" + write(files) + "\n" + text[text.index(end):]
        except (KeyError, TypeError, StopIteration) as error:
            sys.exit(f"results.py: the table '{name}' of {SPEED_PAGE}: there is no {error} in bench/results")
    return text


# ---- the chart of README.md: a training step by each library, on three machines ----

# Groups of bars: title, file, row. Each group has a scale of its own.
CHART_GROUPS = (("GPU (NVIDIA H200), bfloat16", "cuda-NVIDIA-H200", "headline-bf16-train"),
                ("2 ARM cores (Neoverse V1), float32", "cpu-aarch64", "headline-train-2"),
                ("2 x86-64 cores (Xeon), float32", "cpu-x86_64", "headline-train-2"))
# File, and colours of text, of our bars and of the others.
CHARTS = {"docs/speed-light.svg": ("#1f2328", "#0969da", "#8c959f"), "docs/speed-dark.svg": ("#e6edf3", "#4493f8", "#7d8590")}
# A phone of 390 px shows the chart at three quarters of its size: letters of 16 are 12 px there.
CHART_WIDTH, CHART_LETTER, CHART_NAMES, CHART_VALUES, CHART_BAR = 480, 16, 92, 134, 24


def draw_chart(files, colours):
    """An SVG with a bar a library, as long as its time."""
    text_colour, own_colour, other_colour = colours
    most = CHART_WIDTH - CHART_NAMES - CHART_VALUES
    lines, y = [], CHART_LETTER + 4
    say = lambda x, text, extra="": lines.append(f'<text x="{x:g}" y="{y:g}"{extra}>{text}</text>')
    problem = files[CHART_GROUPS[0][1]][CHART_GROUPS[0][2]]["problem"]
    say(0, f"Training step of an LSTM: {problem['layers']} layers of {problem['hidden']} features,")
    y += 20
    say(0, f"{problem['steps']} time steps, {problem['batch']} sequences. Shorter is faster.")
    for title, file, row in CHART_GROUPS:
        run = files[file][row]
        if shape(run["problem"]) != shape(problem):
            raise KeyError(f"{row} of {file} with the sizes of the other rows")
        mine = ours(run)["median"]
        bars = [("Recurve", mine)] + others(run)
        longest = max(seconds for _, seconds in bars)
        y += 36
        say(0, title, ' font-weight="bold"')
        for name, seconds in bars:
            y += CHART_BAR
            width = most * seconds / longest
            say(0, name)
            lines.append(f'<rect x="{CHART_NAMES}" y="{y - 13:g}" width="{width:.1f}" height="16" rx="2" fill="{own_colour if name == "Recurve" else other_colour}"/>')
            say(round(CHART_NAMES + width + 6), f"{milliseconds(seconds)} ms" + ("" if name == "Recurve" else f", {times(seconds / mine)}"))
    height = y + 12
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{CHART_WIDTH}" height="{height:g}" viewBox="0 0 {CHART_WIDTH} {height:g}" role="img" '
            f'font-family="-apple-system, \'Segoe UI\', \'Noto Sans\', Helvetica, Arial, sans-serif" font-size="{CHART_LETTER}" fill="{text_colour}">\n'
            "<!-- Written by scripts/results.py. Do not edit. -->\n"
            "<title>Time of a training step of an LSTM by Recurve and by other libraries</title>\n" + "\n".join(lines) + "\n</svg>\n")


def draw_charts(files):
    """Path -> SVG, for light and for dark pages."""
    try:
        return {path: draw_chart(files, colours) for path, colours in CHARTS.items()}
    except (KeyError, TypeError, StopIteration) as error:
        sys.exit(f"results.py: the chart of README.md: there is no {error} in bench/results")


def write_pages(root):
    """All pages: file name -> text."""
    paths = sorted((root / "bench/results").glob("*.json"), key=lambda p: (list(KINDS).index(p.stem.split("-")[0]) if p.stem.split("-")[0] in KINDS else 99,
                                                                         p.stem))
    pages, rows = {}, []
    for path in paths:
        pages[path.stem + ".md"], row = write_page(path)
        rows.append(row)
    pages["README.md"] = (
        WARNING.format("bench/results/*.json") + "# Measurements\n\n"
        "Every page is made from one file in [bench/results](../../bench/results) by `scripts/results.py`. A command of the last column measures the "
        "numbers again and prints them; programs are those of `build/release`. Then `scripts/results.py` writes the pages; `scripts/results.py --check` "
        "fails where a page and its file differ. Experiments that were measured once, by hand, are in [EXPERIMENTS](../EXPERIMENTS.md).\n\n"
        + table(["page", "what it measures", "machine", "date", "commit", "command"], rows))
    return pages


def write_all(root):
    """Everything that is written: path below `root` -> text."""
    files = {p.stem: json.loads(p.read_text()) for p in (root / "bench/results").glob("*.json")}
    written = {f"docs/results/{name}": text for name, text in write_pages(root).items()}
    written[SPEED_PAGE] = write_speed_page((root / SPEED_PAGE).read_text(), files)
    return written | draw_charts(files)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is not up to date")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="another tree with bench/results and docs")
    options = parser.parse_args()
    written = write_all(options.root)
    stale = sorted(p.name for p in (options.root / "docs/results").glob("*.md") if f"docs/results/{p.name}" not in written)
    if not options.check:
        (options.root / "docs/results").mkdir(parents=True, exist_ok=True)
        for path, text in written.items():
            (options.root / path).write_text(text)
        for name in stale:
            (options.root / "docs/results" / name).unlink()
        print(f"wrote {len(written)} files below {options.root / 'docs'}")
        return 0
    wrong = [f"docs/results/{name} has no file in bench/results" for name in stale]
    for path, text in written.items():
        if not (options.root / path).exists():
            wrong.append(f"{path} is missing")
        elif (options.root / path).read_text() != text:
            wrong.append(f"{path} differs from bench/results")
    for line in wrong:
        print(f"{line}; run scripts/results.py", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
