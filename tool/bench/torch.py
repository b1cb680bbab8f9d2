"""Runs and times the recurrent layers of torch.nn for recurve bench.

The argument is a JSON object. The first line of the output is `ready VERSION`, or `no REASON` if torch cannot be used. Then each line of the
input is a request: `run K` answers with the seconds of K calls, on a GPU until the last one is done; `output` writes the results to the
output file.
"""
import json
import os
import signal
import sys
import time

signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
answer = sys.stdout
sys.stdout = sys.stderr


def say(text):
    answer.write(text + "\n")
    answer.flush()


def limit_threads(threads):
    """Limits threads and cores. The threads of autograd ignore torch.set_num_threads, so the affinity is set too."""
    for library in "OMP", "OPENBLAS", "MKL":
        os.environ[library + "_NUM_THREADS"] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[:threads] if threads < len(cores) else cores)


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0]


def choose_device(torch, asked):
    """The device of the tensors, and a function that waits until it is idle."""
    if asked["device"].startswith("cpu"):
        torch.set_num_threads(asked["threads"])
        return "cpu", lambda: None
    if not torch.cuda.is_available():
        raise RuntimeError("it sees no GPU")
    place = "cuda:" + (asked["device"].split(":") + ["0"])[1]
    torch.cuda.set_device(place)
    torch.backends.cuda.matmul.allow_tf32 = asked["dtype"] == "tfloat32"
    torch.backends.cudnn.allow_tf32 = asked["dtype"] == "tfloat32"
    return place, torch.cuda.synchronize


def load(torch, asked, storage, place):
    """The module with the given parameters, x and dy, in the requested type."""
    dtype = torch.float32 if asked["dtype"] == "tfloat32" else getattr(torch, asked["dtype"])
    module = getattr(torch.nn, asked["module"])(
        asked["input"], asked["hidden"], asked["layers"], bias=asked["bias"],
        bidirectional=asked["bidirectional"], **asked["extra"]).to(storage)
    rows = asked["steps"] * asked["batch"]
    y_count = rows * asked["hidden"] * (2 if asked["bidirectional"] else 1)
    counts = [asked["parameters"], rows * asked["input"], y_count]
    flat = torch.from_file(asked["in"], size=sum(counts), dtype=storage)
    parameters, x, dy = [part.clone() for part in flat.split(counts)]
    with torch.no_grad():
        for own, given in zip(module.parameters(), parameters.split([p.numel() for p in module.parameters()])):
            own.copy_(given.view_as(own))
    module = module.to(device=place, dtype=dtype)
    module.train(asked["training"])
    x, dy = [part.view(asked["steps"], asked["batch"], -1).to(device=place, dtype=dtype) for part in (x, dy)]
    return module, x.requires_grad_(asked["training"]), dy


def main():
    asked = json.loads(sys.argv[1])
    if asked["device"].startswith("cpu"):
        limit_threads(asked["threads"])
    try:
        import torch
    except Exception as error:
        say("no this python3 has no torch: %s" % first_line(error))
        return
    storage = torch.float64 if asked["dtype"] == "float64" else torch.float32

    def call():
        if not asked["training"]:
            with torch.no_grad():
                return module(x)[0]
        x.grad = None
        for own in module.parameters():
            own.grad = None
        y = module(x)[0]
        y.backward(dy)
        return y

    try:
        place, wait = choose_device(torch, asked)
        module, x, dy = load(torch, asked, storage, place)
        y = call()
        wait()
    except Exception as error:
        say("no torch %s: %s" % (torch.__version__, first_line(error)))
        return
    say("ready %s" % torch.__version__)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "run":
            wait()
            start = time.perf_counter()
            for _ in range(int(words[1])):
                y = call()
            wait()
            say("%.9f" % (time.perf_counter() - start))
        elif words[0] == "output":
            results = [y.detach().reshape(-1)]
            if asked["training"]:
                results += [own.grad.reshape(-1) for own in module.parameters()]
            results = torch.cat([part.to(storage) for part in results]).cpu()
            torch.from_file(asked["out"], shared=True, size=results.numel(), dtype=storage).copy_(results)
            say("done")


main()
