"""Modules of recurve.nn in torch.compile and torch.export. Few programs: each takes seconds to compile."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from support import assert_close, flat, pair, states_for, weighted_sum
from torch import Tensor, nn

import recurve.nn

CLOSE = 1e-5

# The three modules have one way through torch.compile: where it does not say otherwise, a test compiles one of them.
one_module = pytest.mark.parametrize("name", ["LSTM"])


class Model(nn.Module):
    """Layers around a network, as programs have them."""

    def __init__(self, name: str = "LSTM", **options: Any) -> None:
        super().__init__()
        self.first = nn.Linear(5, 6)
        self.rnn = getattr(recurve.nn, name)(6, 8, 2, **options)
        self.last = nn.Linear(8 * (2 if self.rnn.bidirectional else 1), 3)

    def forward(self, x: Tensor, hx: Any = None, **options: Any) -> tuple[Tensor, Any]:
        y, final = self.rnn(torch.tanh(self.first(x)), hx, **options)
        return self.last(y), final


class Plain(Model):
    """Without optional arguments."""

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:  # type: ignore[override]
        return super().forward(x)


@pytest.fixture(autouse=True)
def clean() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Counting:
    """A backend that counts its compilations."""

    def __init__(self, backend: str) -> None:
        self.count, self.backend = 0, torch._dynamo.lookup_backend(backend)

    def __call__(self, graph: Any, inputs: Any, **options: Any) -> Any:
        self.count += 1
        return self.backend(graph, inputs, **options)


def compare(model: Any, compiled: Any, *args: Any, training: bool = True, tolerance: float = CLOSE, **options: Any) -> None:
    """Results, and gradients of the parameters in training."""
    found = []
    for call in (compiled, model):
        model.zero_grad()
        torch.manual_seed(4)
        with torch.set_grad_enabled(training):
            out = call(*args, **options)
        grads = []
        if training:
            weighted_sum(out).backward()
            grads = [p.grad for p in model.parameters()]
        found.append([*(t.detach() for t in flat(out)), *grads])
    assert [t.dtype for t in found[0]] == [t.dtype for t in found[1]]
    assert_close(found[0], found[1], tolerance)


SIZES = [(7, 4), (9, 4), (9, 6), (4, 3), (12, 5)]  # steps, batch


@pytest.mark.slow
def test_inductor_trains_and_evaluates() -> None:
    model = Model()
    backend = Counting("inductor")
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    for steps, batch in SIZES:
        compare(model, compiled, torch.randn(steps, batch, 5))
    assert backend.count == 1
    model.eval()
    for steps, batch in SIZES[:2]:
        compare(model, compiled, torch.randn(steps, batch, 5), training=False)
    assert backend.count == 2


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_one_graph_for_all_sizes(name: str, training: bool) -> None:
    model = Model(name).train(training)
    backend = Counting("aot_eager")
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    for steps, batch in SIZES:
        compare(model, compiled, torch.randn(steps, batch, 5), training=training)
    assert backend.count == 1
    for steps, batch in SIZES:
        compare(model, compiled, torch.randn(steps, batch, 5), states_for(model.rnn, batch), training=training)
    assert backend.count == 2


@one_module
def test_sizes_that_become_dynamic(name: str) -> None:
    model = Model(name, batch_first=True, bidirectional=True)
    backend = Counting("aot_eager")
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for steps, batch in SIZES:
        compare(model, compiled, torch.randn(batch, steps, 5))
    assert backend.count <= 3  # the first sizes, other steps, another batch


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_lengths_and_resets(name: str) -> None:
    model = Model(name)
    backend = Counting("aot_eager")
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    for steps, batch in SIZES[:3]:
        x = torch.randn(steps, batch, 5)
        compare(model, compiled, x, lengths=torch.randint(1, steps + 1, (batch,)))
    assert backend.count == 1
    for steps, batch in SIZES[:3]:
        x = torch.randn(steps, batch, 5)
        hx, restart = states_for(model.rnn, batch), states_for(model.rnn, batch)
        compare(model, compiled, x, hx, resets=torch.rand(steps, batch) < 0.3, restart=restart)
    assert backend.count == 2


@one_module
def test_dropout_and_zoneout(name: str) -> None:
    model = Model(name, dropout=0.5, zoneout=0.1)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    x = torch.randn(7, 4, 5)
    compare(model, compiled, x)
    torch.manual_seed(1)
    first = compiled(x)[0]
    assert not torch.equal(compiled(x)[0], first)
    torch.manual_seed(1)
    assert torch.equal(compiled(x)[0], first)
    compare(model.eval(), compiled, x, training=False)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_autocast(backend: str) -> None:
    model = Model("GRU")
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    with torch.autocast("cpu", torch.bfloat16):
        for steps, batch in SIZES[:2]:
            compare(model, compiled, torch.randn(steps, batch, 5), tolerance=0.03)


@pytest.mark.slow
def test_reduced_overhead() -> None:
    model = Model("GRU")
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    for _ in range(3):
        compare(model, compiled, torch.randn(7, 4, 5))


@one_module
def test_a_training_step_is_that_of_eager_mode(name: str) -> None:
    found = []
    for compile in (False, True):
        torch.manual_seed(0)
        model = Model(name)
        call = torch.compile(model, backend="aot_eager", fullgraph=True) if compile else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(7, 4, 5)
        for _ in range(4):
            optimizer.zero_grad()
            weighted_sum(call(x)).backward()
            optimizer.step()
        found.append([p.detach() for p in model.parameters()])
    assert_close(found[1], found[0], CLOSE)


@one_module
def test_parameters_that_change_and_are_replaced(name: str) -> None:
    model = Model(name).eval()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x = torch.randn(7, 4, 5)
    compare(model, compiled, x, training=False)
    with torch.no_grad():
        model.rnn.weight_hh_l0.mul_(2)
    compare(model, compiled, x, training=False)
    model.rnn.weight_hh_l0 = nn.Parameter(torch.randn_like(model.rnn.weight_hh_l0))
    compare(model, compiled, x, training=False)
    model.rnn.freeze()
    compare(model, compiled, x, training=False)
    model.rnn.unfreeze()
    model.load_state_dict({key: 0.5 * p for key, p in model.state_dict().items()})
    compare(model, compiled, x, training=False)


@one_module
def test_unbatched_inputs_and_batches_of_one(name: str) -> None:
    model = Model(name)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    compare(model, compiled, torch.randn(7, 5))
    compare(model, compiled, torch.randn(7, 1, 5))
    compare(model, compiled, torch.randn(1, 1, 5))


@one_module
def test_errors_are_those_of_eager_mode(name: str) -> None:
    model = Model(name)
    compiled = torch.compile(model.rnn, backend="aot_eager", dynamic=True)
    compiled(torch.randn(7, 4, 6))
    with pytest.raises(Exception, match=r"input.size\(-1\) must be equal to input_size"):
        compiled(torch.randn(7, 4, 5))


@one_module
def test_packed_sequences_in_a_program_that_is_compiled(name: str) -> None:
    """Packing breaks the graph, as it does with torch's modules, and the results are right."""
    ours, theirs = pair(name, 5, 6)
    x = torch.randn(7, 3, 5)

    def call(module: Any) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, [7, 5, 2])
        y: Tensor = module(packed)[0].data  # PyTorch 2.10 cannot compile pad_packed_sequence
        return y

    assert_close(torch.compile(call, backend="aot_eager")(ours), call(theirs), CLOSE)


# ---- torch.jit.trace ----


@pytest.mark.parametrize("training", [True, False], ids=["grad", "no grad"])
def test_a_traced_model(name: str, training: bool, tmp_path: Any) -> None:
    model = Plain(name, bidirectional=True)
    with torch.set_grad_enabled(training):
        traced = torch.jit.trace(model, (torch.randn(7, 4, 5),))
    traced.save(tmp_path / "model.pt")
    loaded = torch.jit.load(tmp_path / "model.pt")
    for steps, batch in SIZES[:3]:
        x = torch.randn(steps, batch, 5)
        with torch.no_grad():
            assert_close(flat(traced(x)), flat(model(x)), CLOSE)
            assert_close(flat(loaded(x)), flat(model(x)), CLOSE)
    if training:
        compare(model, traced, torch.randn(7, 4, 5))


# ---- export ----

DYNAMIC = {"x": {0: torch.export.Dim("steps", min=2, max=1000), 1: torch.export.Dim("batch", min=2, max=1000)}}


@one_module
@pytest.mark.parametrize("strict", [False, True], ids=["not strict", "strict"])
def test_export_with_dynamic_sizes(name: str, strict: bool) -> None:
    model = Plain(name, bidirectional=True).eval()
    program = torch.export.export(model, (torch.randn(7, 4, 5),), dynamic_shapes=DYNAMIC, strict=strict)
    assert any("recurve.network" in str(node.target) for node in program.graph.nodes)
    module = program.module()
    for steps, batch in SIZES:
        x = torch.randn(steps, batch, 5)
        with torch.no_grad():
            assert_close(flat(module(x)), flat(model(x)), CLOSE)


@pytest.mark.slow
def test_an_exported_program_in_another_process(tmp_path: Any) -> None:
    model = Plain("LSTM").eval()
    x = torch.randn(11, 3, 5)
    program = torch.export.export(model, (torch.randn(7, 4, 5),), dynamic_shapes=DYNAMIC)
    torch.export.save(program, tmp_path / "model.pt2")
    with torch.no_grad():
        torch.save((x, model(x)[0]), tmp_path / "data.pt")
    script = (
        "import torch, recurve.nn\n"
        "x, y = torch.load('data.pt')\n"
        "found = torch.export.load('model.pt2').module()(x)[0]\n"
        "assert torch.allclose(found, y, atol=1e-5), (found - y).abs().max()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=200, env=dict(os.environ))
    assert done.returncode == 0, done.stderr[-3000:]
