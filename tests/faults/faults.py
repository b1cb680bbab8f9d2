#!/usr/bin/env python3
"""Fails one call of the tool at a time, at every place where it can fail, and looks at how the tool ends.

  faults.py [--verbs LIST] [--kinds LIST] [--sample N] [--seed N] [--jobs N]
  faults.py --repeat VERB FAULT

In the environment: RECURVE, the tool; FAULTS, the library of fault_inject.c. A place is a distinct stack of calls. A verb
survives a fault if it ends by itself, in time, and
  with status 0 and the results that it has without the fault; or
  with another status and a sentence on standard error, files that were there before as they were or completely new, and no
  temporary file left."""
import argparse
import collections
import concurrent.futures
import json
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

from fault_files import complete, make_inputs, normal

LIMIT = 30  # seconds of a run; the slowest takes less than one
ERRORS = {
    "alloc": ["ENOMEM"],
    "map": ["ENOMEM"],
    "mapfile": ["ENOMEM"],
    "open": ["EMFILE", "EACCES"],
    "write": ["ENOSPC", "EIO", "short"],
    "sync": ["EIO"],
    "rename": ["EIO"],
    "link": ["EPERM", "EIO"],
    "truncate": ["EIO"],
    "thread": ["EAGAIN"],
}
SMALL = ["--hidden", "8", "--threads", "1"]
TRAIN = [*SMALL, "--level", "word", "--batch", "2", "--length", "4", "--effort", "estimate", "--log-every", "1"]
PLAN = [*SMALL, "--steps", "4", "--batch", "2"]


class Verb:
    """A command line; `loose`: its output has times in it; `may_lack`: files that it may only say it could not write;
    `less`: it may go on with less (fewer candidates, another plan), which changes last bits."""

    def __init__(self, *arguments, loose=False, may_lack=(), less=False):
        self.arguments, self.loose, self.may_lack, self.less = list(arguments), loose, may_lack, less


VERBS = {
    "list": Verb("list"),
    "completion": Verb("completion", "bash"),
    "doctor": Verb("doctor", "--json", "--no-python", loose=True, less=True),
    "cell": Verb("cell", "own.cell", "--json", "--backward"),
    "init": Verb("init", "old.safetensors", "--overwrite", "--cell", "own.cell", "--hidden", "4", "--input", "3"),
    "run": Verb("run", "net.safetensors", "--input", "x.safetensors", "--output", "y.safetensors", "--grad"),
    "run-rank": Verb("run", "net.safetensors", "--input", "x.safetensors", "--output", "y.safetensors", "--rank", "2"),
    "train": Verb("train", "text", "--output", "new.safetensors", *TRAIN, "--steps", "6", "--checkpoint-every", "2",
                  "--valid", "valid", "--test", "valid", "--validate-every", "3", "--keep", "3",
                  "--wisdom", "wisdom", may_lack=("wisdom",)),
    "train-lines": Verb("train", "text", "--output", "new.safetensors", *TRAIN, "--kind", "lines", "--steps", "3",
                        "--optimiser", "momentum", "--dropout", "0.2", "--layers", "2", less=True),
    "train-classes": Verb("train", "examples", "--output", "new.safetensors", "--kind", "classes", "--steps", "3",
                          *SMALL, "--batch", "4", "--effort", "estimate", "--log-every", "1", less=True),
    "train-threads": Verb("train", "text", "--output", "new.safetensors", *TRAIN[:3], "2", *TRAIN[4:], "--steps", "2",
                          less=True),
    "resume": Verb("train", "--resume", "model.safetensors", "--steps", "8"),
    "eval": Verb("eval", "model.safetensors", "valid", "--threads", "1", loose=True),
    "eval-json": Verb("eval", "model.safetensors", "valid", "--threads", "1", "--json", "data.json", loose=True),
    "predict": Verb("predict", "model.safetensors", "valid", "--threads", "1", "--tokens", "--output", "new.jsonl", less=True),
    "predict-table": Verb("predict", "model.safetensors", "valid", "--threads", "1", less=True),
    "generate": Verb("generate", "model.safetensors", "--tokens", "20", "--prompt", "the cat", "--threads", "1"),
    "export": Verb("export", "model.safetensors", "old.safetensors", "--overwrite"),
    "report": Verb("report", "model.jsonl", "--output", "page.html"),
    "report-two": Verb("report", "model.jsonl", "other.jsonl", "--output", "page.html"),
    "report-json": Verb("report", "model.jsonl", "other.jsonl", "--output", "page.html", "--json", "runs.json"),
    "report-watch": Verb("report", "model.jsonl", "--output", "page.html", "--watch"),
    "data": Verb("data", "stats", "text", "--json", "data.json"),
    "data-classes": Verb("data", "stats", "examples", "--kind", "classes", "--json", "data.json"),
    "plan": Verb("plan", *PLAN, "--pass", "train", "--effort", "estimate", "--wisdom", "wisdom", loose=True, less=True,
                 may_lack=("wisdom",)),
    "plan-measure": Verb("plan", *PLAN[:3], "2", *PLAN[4:], "--wisdom", "wisdom", loose=True, less=True,
                         may_lack=("wisdom",)),
    "plan-parallel": Verb("plan", "--parallel", "data:2", "text", "--machine", "2,10,5", "--hidden", "8", "--level", "word", "--batch", "4",
                          "--length", "4", "--threads", "1", "--effort", "estimate", loose=True, less=True),
    "bench": Verb("bench", *PLAN, "--anchors", "--no-torch", "--seconds", "0.01", "--effort", "estimate", "--json",
                  "bench.json", "--report", "page.html", loose=True, less=True),
}


class Runner:
    def __init__(self, folder):
        self.folder, self.serial = folder, 0
        self.base = os.path.join(folder, "base")
        self.tool, self.injector = os.environ["RECURVE"], os.environ["FAULTS"]
        self.references, self.foreign = {}, 0

    def start(self, arguments, folder, fault=None, log=None):
        """(status, stdout, stderr) of the tool; the status is None where it did not end in time."""
        environment = dict(os.environ, RECURVE_CACHE=os.path.join(folder, "cache"), OPENBLAS_NUM_THREADS="1",
                           OMP_NUM_THREADS="1")
        # `bench` executes itself again for a better core type of OpenBLAS; the filter of system calls would stay, its handler would not
        if platform.machine() == "x86_64":
            environment["OPENBLAS_CORETYPE"] = "PRESCOTT"
        environment.pop("RECURVE_WISDOM", None)  # the disk fails under the cache of wisdom as well
        if fault:
            environment.update(LD_PRELOAD=self.injector, RECURVE_FAULT=fault, RECURVE_FAULT_LOG=log)
        process = subprocess.Popen([self.tool, *arguments], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=LIMIT)
            return process.returncode, out, err.decode(errors="replace")
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return None, b"", ""

    def run(self, verb, fault=None):
        """Of a fresh copy of the inputs: (status, out, err, files, log)"""
        folder = tempfile.mkdtemp(dir=self.folder)
        inner = os.path.join(folder, "in")
        shutil.copytree(self.base, inner)
        log = os.path.join(folder, "log")
        status, out, err = self.start(verb.arguments, inner, fault, log)
        lines = open(log).read().splitlines() if os.path.exists(log) else []
        return status, out, err, inner, lines

    def files(self, folder):
        found = {}
        for where, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(where, name)
                with open(path, "rb") as file:
                    found[os.path.relpath(path, folder)] = file.read()
        return found

    def prepare(self):
        os.mkdir(self.base)
        make_inputs(self.base)
        model = ["--output", "model.safetensors", *TRAIN, "--steps", "4", "--checkpoint-every", "2", "--valid", "valid"]
        for arguments in (["init", "net.safetensors", "--cell", "own.cell", "--hidden", "4", "--input", "3"],
                          ["init", "old.safetensors", "--cell", "gru", "--hidden", "3", "--input", "2"],
                          ["train", "text", *model]):
            status, _, err = self.start(arguments, self.base)
            if status != 0:
                sys.exit("cannot prepare: recurve %s: %s" % (" ".join(arguments), err))
        shutil.copy(os.path.join(self.base, "model.jsonl"), os.path.join(self.base, "other.jsonl"))
        for name in os.listdir(self.base):  # caches are the verbs' business
            if ".recurve" in name or ".lock" in name or name == "cache":
                path = os.path.join(self.base, name)
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        self.before = self.files(self.base)

    def reference(self, name):
        """What the verb does without a fault."""
        if name not in self.references:
            verb = VERBS[name]
            status, out, err, folder, _ = self.run(verb)
            if status != 0:
                sys.exit("%s fails without a fault: %s" % (name, err))
            self.references[name] = (out, err, self.files(folder))
            shutil.rmtree(os.path.dirname(folder))
        return self.references[name]

    def census(self, name):
        """{kind: [(place, count)]}"""
        status, _, err, folder, lines = self.run(VERBS[name], "count")
        if status != 0:
            sys.exit("%s fails where calls are counted: %s" % (name, err))
        found = collections.defaultdict(list)
        for line in lines:
            kind, place, count = line.split()
            if kind == "foreign":
                self.foreign += int(count)
                continue
            found[kind].append((place, int(count)))
        shutil.rmtree(os.path.dirname(folder))
        return {kind: sorted(places) for kind, places in found.items()}

    def check_fault(self, name, fault):
        """(fired, complaint or None, status)"""
        verb = VERBS[name]
        reference_out, reference_err, reference_files = self.reference(name)
        status, out, err, folder, lines = self.run(verb, fault)
        fired = any(line.startswith("fired") for line in lines)
        files = self.files(folder)
        complaint = None
        if status is None:
            complaint = "does not end within %d s" % LIMIT
        elif status < 0:
            complaint = "dies of signal %d: %s" % (-status, err.strip()[-200:])
        elif any(".tmp-" in path or ".new." in path for path in files):
            complaint = "leaves %s" % [path for path in files if ".tmp-" in path or ".new." in path]
        elif status == 0:
            complaint = self.compare(verb, out, err, files, reference_out, reference_err, reference_files)
        else:
            complaint = self.look(verb, err, files, reference_err, reference_files)
        shutil.rmtree(os.path.dirname(folder))
        return fired, complaint, status

    def compare(self, verb, out, err, files, reference_out, reference_err, reference_files):
        """What ended well has the results."""
        for path, content in reference_files.items():
            if self.kept_otherwise(path, files.get(path), err):
                continue
            if path not in files:
                if "cache" in path or ".recurve" in path or (path in verb.may_lack and len(err) > len(reference_err)):
                    continue
                return "says 0, and there is no %s" % path
            if verb.less and path not in self.before:
                if not complete(path, files[path]):
                    return "says 0, and %s is not complete" % path
            elif path.endswith(".jsonl") and complete(path, files[path]) and self.lost(files[path], err, reference_err):
                continue
            elif normal(path, files[path]) != normal(path, content):
                return "says 0, and %s is another" % path
        extra = [path for path in files if path not in reference_files]
        if extra:
            return "says 0, and there are %s" % extra
        if not verb.loose and out != reference_out:
            return "says 0, and the output is another"
        return None

    def kept_otherwise(self, path, content, err):
        """Whether the tool says that an earlier checkpoint could not be kept: training goes on, and what has its name is whole."""
        stem = re.sub(r"\.\d+\.safetensors$", "", path)
        said = any(line.startswith("recurve: checkpoint: cannot copy") and stem in line for line in err.splitlines())
        return stem != path and said and (content is None or complete(path, content))

    def lost(self, log, err, reference_err):
        """Whether a log without some of its lines says so, where memory lacked, or the tool does, where writing failed."""
        said = set(err.splitlines()) - set(reference_err.splitlines())
        return b'"event":"warning"' in log or any(line.startswith("recurve: ") and "jsonl" in line for line in said)

    def look(self, verb, err, files, reference_err, reference_files):
        """What failed said so, and lost nothing."""
        said = err.strip().splitlines()
        if not said or not ("recurve: " in said[-1] and len(said[-1]) > 20):
            return "fails without a sentence: %r" % err[-200:]
        if "Aborted" in err or "terminate called" in err:
            return "is aborted: %r" % err[-200:]
        for path, content in self.before.items():
            if path not in files:
                return "fails, and %s is gone" % path
            if files[path] != content and reference_files.get(path) == content:
                return "fails, and %s is another" % path
        for path, content in files.items():
            if content == self.before.get(path) or path.endswith(".lock"):  # the lock itself ends with the process
                continue
            if path not in reference_files:
                return "fails, and leaves %s" % path
            if normal(path, content) != normal(path, reference_files[path]) and not complete(path, content):
                return "fails, and %s is not complete" % path
        return None


def faults_of(census, kinds):
    """Every place, its first and last call (every one of kinds with few calls); once, and from there on."""
    for kind, places in census.items():
        if kinds and kind not in kinds:
            continue
        few = sum(count for _, count in places) <= 60
        for place, count in places:
            numbers = range(1, count + 1) if few else sorted({1, count})
            for error in ERRORS[kind]:
                for number in numbers:
                    yield kind, "%s@%s:%d:%s" % (kind, place, number, error)
                if error not in ("short",):
                    yield kind, "%s@%s:1:%s:all" % (kind, place, error)


def progress(done, count, name):
    """A line every ten seconds, over itself on a terminal."""
    now = time.monotonic()
    if now >= progress.next:
        progress.next = now + 10
        print("%d of %d, %s" % (done, count, name), end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)


progress.next = 0


def campaign(runner, options):
    rows, failures = [], []
    work = []
    for name in options.verbs or VERBS:
        runner.reference(name)
        census = runner.census(name)
        for kind, places in census.items():
            if not options.kinds or kind in options.kinds:
                rows.append((name, kind, len(places), sum(count for _, count in places)))
        work += [(name, kind, fault) for kind, fault in faults_of(census, options.kinds)]
    if options.sample:
        random.Random(options.seed).shuffle(work)
        # At least one of each verb and kind, then whatever comes.
        first = {}
        for case in work:
            first.setdefault(case[:2], case)
        chosen = list(first.values())
        work = (chosen + [case for case in work if first[case[:2]] is not case])[:options.sample]
    tally = collections.defaultdict(lambda: [0, 0, 0, 0])
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda case: runner.check_fault(case[0], case[2]), work)
        for done, ((name, kind, fault), (fired, complaint, status)) in enumerate(zip(work, results)):
            progress(done, len(work), name)
            row = tally[name, kind]
            row[0] += 1
            row[1] += fired
            row[2] += complaint is None
            row[3] += status != 0
            if complaint:
                failures.append((name, fault, complaint))
                print("FAILED: faults.py --repeat %s %s: %s" % (name, fault, complaint), flush=True)
    print("%-14s %-9s %7s %7s %9s %7s %9s %12s" % ("verb", "kind", "calls", "places", "injected", "fired", "survived", "status not 0"))
    total = [0] * 6
    for name, kind, places, calls in sorted(rows):
        row = [calls, places, *tally[name, kind]]
        total = [a + b for a, b in zip(total, row)]
        if row[2]:
            print("%-14s %-9s %7d %7d %9d %7d %9d %12d" % (name, kind, *row))
    print("%-14s %-9s %7d %7d %9d %7d %9d %12d" % ("all", "", *total))
    print("injected %d, fired %d, survived %d" % (total[2], total[3], total[4]))
    print("left alone: %d calls inside of oneDNN and OpenMP, which end the process by themselves" % runner.foreign)
    if not total[2] or total[3] < 0.98 * total[2]:
        print("FAILED: %d faults did not fire" % (total[2] - total[3]))
        return 1
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser()
    names = lambda text: text.split(",")
    parser.add_argument("--verbs", type=names)
    parser.add_argument("--kinds", type=names)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeat", nargs=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(folder)
        runner.prepare()
        if options.repeat:
            verb = VERBS[options.repeat[0]]
            status, out, err, inner, lines = runner.run(verb, options.repeat[1])
            print("status %s, %s\n%s" % (status, lines[:3], err))
            fired, complaint, _ = runner.check_fault(*options.repeat)
            print("fired %s, %s" % (fired, complaint or "survived"))
            return 1 if complaint or not fired else 0
        return campaign(runner, options)


if __name__ == "__main__":
    sys.exit(main())
