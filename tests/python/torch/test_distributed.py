"""Modules of recurve.nn in several processes, and in files of several versions of PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Any

import pytest
import torch
from support import assert_close, flat, weighted_sum
from torch import Tensor, nn

import recurve.nn

RANKS = 2
EXACT = 1e-9


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = recurve.nn.LSTM(3, 4, 2, bidirectional=True)
        self.gru = recurve.nn.GRU(8, 4)
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(self.gru(self.lstm(x)[0])[0])
        return y


def build() -> tuple[Model, Tensor]:
    torch.manual_seed(0)
    return Model().double(), torch.randn(5, 2 * RANKS, 3, dtype=torch.float64)


def loss_of(y: Tensor) -> Tensor:
    return y.square().mean()


# ---- what each process does ----


def train_data_parallel(rank: int) -> dict[str, Tensor]:
    model, x = build()
    parallel = nn.parallel.DistributedDataParallel(model)
    for _ in range(2):  # the second backward pass uses the buckets of the first
        parallel.zero_grad()
        loss_of(parallel(x[:, 2 * rank : 2 * rank + 2])).backward()
    return {name: p.grad for name, p in model.named_parameters()}


def train_sharded(rank: int) -> dict[str, Tensor]:
    from torch.distributed.fsdp import fully_shard

    model, x = build()
    mesh = torch.distributed.init_device_mesh("cpu", (RANKS,))
    for module in (model.lstm, model.gru, model):
        fully_shard(module, mesh=mesh)
    for _ in range(2):
        model.zero_grad()
        loss_of(model(x[:, 2 * rank : 2 * rank + 2])).backward()
    found = {name: p.grad.full_tensor() for name, p in model.named_parameters()}
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    found["after a step"] = model(x)
    return found


WORK = {"DistributedDataParallel": train_data_parallel, "fully_shard": train_sharded}


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS)
    for name, train in WORK.items():
        try:
            result: Any = train(rank)
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        torch.save(result, f"{folder}/{name}.{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def folder() -> Any:
    with tempfile.TemporaryDirectory() as path:
        torch.multiprocessing.start_processes(work, args=(path,), nprocs=RANKS, start_method="spawn")
        yield path


@pytest.mark.slow
@pytest.mark.parametrize("name", WORK)
def test_gradients_are_those_of_one_process(folder: str, name: str) -> None:
    model, x = build()
    loss_of(model(x)).backward()
    wanted = {key: p.grad for key, p in model.named_parameters()}
    if name == "fully_shard":
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        wanted["after a step"] = model(x)
    for rank in range(RANKS):
        found = torch.load(f"{folder}/{name}.{rank}.pt")
        assert not isinstance(found, str), found
        assert_close(found, wanted, EXACT, f"rank {rank}")


# ---- files ----

WRITE = """
import sys, torch, recurve.nn
torch.manual_seed(0)
lstm = recurve.nn.LSTM(3, 4, 2, proj_size=2, zoneout=0.1)
gru, rnn = recurve.nn.GRU(3, 4, bidirectional=True), recurve.nn.RNN(3, 4, nonlinearity="relu")
modules = [m.eval() for m in (lstm, gru, rnn)]
x = torch.randn(5, 2, 3)
with torch.no_grad():
    results = [m(x)[0] for m in modules]
states = [{key: p.clone() for key, p in m.state_dict().items()} for m in modules]
torch.save((modules, states, x, results), sys.argv[1])
"""
READ = """
import sys, torch, recurve.nn
modules, states, x, results = torch.load(sys.argv[1], weights_only=False)
for module, state, wanted in zip(modules, states, results):
    with torch.no_grad():
        assert torch.allclose(module(x)[0], wanted, atol=1e-6), type(module)
    module.reset_parameters()
    module.load_state_dict(state)
    with torch.no_grad():
        assert torch.allclose(module(x)[0], wanted, atol=1e-6), type(module)
    module.train()(x)[0].sum().backward()
    assert module.weight_hh_l0.grad is not None and module.zoneout in (0, 0.1)
"""


def run_in(python: str, script: str, path: str) -> None:
    done = subprocess.run([python, "-c", script, path], capture_output=True, text=True, timeout=200, env=dict(os.environ))
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("writes", ["this", "the other"])
def test_files_of_another_version(writes: str, tmp_path: Any) -> None:
    other = os.environ.get("RECURVE_OTHER_PYTHON")
    if not other:
        pytest.skip("RECURVE_OTHER_PYTHON is not set to the interpreter of an environment with another PyTorch")
    path = str(tmp_path / "modules.pt")
    first, second = (sys.executable, other) if writes == "this" else (other, sys.executable)
    run_in(first, WRITE, path)
    run_in(second, READ, path)


def test_a_weights_only_file_of_a_state_dict(name: str, tmp_path: Any) -> None:
    module = getattr(recurve.nn, name)(3, 4, 2)
    torch.save(module.state_dict(), tmp_path / "state.pt")
    theirs = getattr(torch.nn, name)(3, 4, 2)
    theirs.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    x = torch.randn(5, 2, 3)
    assert_close(flat(module(x)), flat(theirs(x)), 1e-5)
    weighted_sum(module(x)).backward()
