#!/usr/bin/env python3
"""Kills a training run at its writes, goes on from what it left, and compares the end with a run that was never killed.

  kills.py [--count N] [--jobs N]
  kills.py --repeat FAULT

In the environment: RECURVE, the tool; FAULTS, the library of fault_inject.c. A kill comes before, after or in the middle of a call
that changes a file: write, fsync, rename, link, ftruncate, open for writing. The calls are those of checkpoints, their rotation,
the best model, the log, the cache of tokens and wisdom; the kills are spread over all of them. Parameters, moments, carried
states and where the run stands must have the same bits; only the seconds that it took may differ."""
import argparse
import collections
import concurrent.futures
import os
import shutil
import signal
import sys
import tempfile

from fault_files import make_inputs, normal
from faults import Runner

RUN = ["text", "--level", "word", "--hidden", "16", "--layers", "2", "--batch", "3", "--length", "8", "--dropout", "0.2",
       "--dropout-input", "0.1", "--optimiser", "adam", "--valid", "valid", "--validate-every", "3", "--checkpoint-every",
       "2", "--keep", "3", "--threads", "1", "--effort", "estimate", "--log-every", "1"]
STEPS = ["--steps", "10", "--wisdom", "wisdom"]
MODEL = "model.safetensors"
COMPARED = [MODEL, "model.best.safetensors"]
ACTIONS = {"write": ["kill-before", "kill-within", "kill-after"]}
KINDS = ["open", "write", "sync", "rename", "link", "truncate"]


class Kills(Runner):
    def prepare(self):
        os.mkdir(self.base)
        make_inputs(self.base)

    def train(self, folder, fault=None, log=None):
        there = os.path.exists(os.path.join(folder, MODEL))
        # What was killed before its first checkpoint may have left a log, which is not replaced unasked.
        arguments = ["--resume", MODEL] if there else [*RUN, "--output", MODEL, "--overwrite"]
        return self.start(["train", *arguments, *STEPS], folder, fault, log)

    def fresh(self):
        folder = os.path.join(tempfile.mkdtemp(dir=self.folder), "in")
        shutil.copytree(self.base, folder)
        return folder

    def learn(self):
        """The run that is not killed, and the calls of it: {kind: number}."""
        folder = self.fresh()
        status, _, err = self.train(folder)
        if status != 0:
            sys.exit("training fails: " + err)
        files = self.files(folder)
        self.whole = {path: normal(path, files[path]) for path in COMPARED}
        folder = self.fresh()
        log = os.path.join(folder, "..", "log")
        status, _, err = self.train(folder, "count", log)
        calls = collections.Counter()
        for line in open(log):
            kind, _, count = line.split()
            calls[kind] += int(count)
        return calls

    def check_fault(self, fault):
        """(killed, whether there was a checkpoint, complaint or None)"""
        folder = self.fresh()
        log = os.path.join(folder, "..", "log")
        status, _, err = self.train(folder, fault, log)
        if status != -signal.SIGKILL:
            return False, False, "is not killed, but ends with %s: %s" % (status, err.strip()[-200:])
        had = os.path.exists(os.path.join(folder, MODEL))
        status, _, err = self.train(folder)
        files = self.files(folder)
        complaint = None
        if status != 0:
            complaint = "does not go on: %s" % err.strip()[-200:]
        for path in COMPARED:
            if not complaint and (path not in files or normal(path, files[path]) != self.whole[path]):
                complaint = "ends with another %s" % path
        shutil.rmtree(os.path.dirname(folder))
        return True, had, complaint


def spread(calls, count):
    """`count` kills over all calls, and of each kind at least some."""
    kinds = [kind for kind in KINDS if calls[kind]]
    all_kills = [["%s:%d:%s" % (kind, number, action)
                  for number in range(1, calls[kind] + 1)
                  for action in ACTIONS.get(kind, ["kill-before", "kill-after"])] for kind in kinds]
    left, chosen = count, []
    for i, kills in enumerate(sorted(all_kills, key=len)):  # a fair part; what a kind lacks goes to the next
        part = min(len(kills), left // (len(all_kills) - i))
        chosen += [kills[j * len(kills) // part] for j in range(part)]
        left -= part
    return chosen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeat")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runner = Kills(folder)
        runner.prepare()
        calls = runner.learn()
        faults = [options.repeat] if options.repeat else spread(calls, options.count)
        print("calls: " + ", ".join("%s %d" % (kind, calls[kind]) for kind in KINDS))
        killed = resumed = equal = 0
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for fault, (hit, had, complaint) in zip(faults, pool.map(runner.check_fault, faults)):
                killed += hit
                resumed += hit and had
                equal += hit and complaint is None
                if complaint:
                    print("FAILED: kills.py --repeat %s: %s" % (fault, complaint), flush=True)
        print("kills %d, resumed from a checkpoint %d, begun again %d, equal %d" % (killed, resumed, killed - resumed, equal))
        return 0 if equal == len(faults) and resumed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
