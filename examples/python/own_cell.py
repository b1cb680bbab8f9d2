"""A cell of one's own in PyTorch, on the adding problem.

    python own_cell.py [--length 100] [--updates 500]

An input is a sequence of random numbers, two of which are marked; the target is the sum of these two. The cell adds what
a gate lets through, and forgets by another gate. Both gates read the input alone, so that the recurrence is element by
element, and recurve runs it in parallel over time. as_torch() gives the same network in PyTorch's own operations, step
by step, to compare with.
"""

from __future__ import annotations

import argparse
import statistics
import time

import recurve
import torch
from torch import Tensor, nn

ADDER = """
cell adder(x) {
    state h
    vector open = 6, closed = -3          # at first the cell forgets nothing, and writes little
    forget = sigmoid(W x + open)
    write = sigmoid(W x + closed)
    h' = forget * h + write * tanh(W x + b)
    return h'
}
"""


class Adder(nn.Module):
    """The sum of the marked numbers, after the last step."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.cell = recurve.nn.Cell(ADDER, input=2, hidden=hidden)
        self.output = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        _, h = self.cell(x)
        return self.output(h[-1]).squeeze(-1)


def make_batch(length: int, batch: int) -> tuple[Tensor, Tensor]:
    """Inputs [length, batch, 2]: numbers and marks; targets [batch]."""
    numbers, marks = torch.rand(length, batch), torch.zeros(length, batch)
    marks[torch.rand(length, batch).topk(2, 0).indices, torch.arange(batch)] = 1
    return torch.stack([numbers, marks], -1), (numbers * marks).sum(0)


def train(model: Adder, length: int, updates: int) -> float:
    """Returns the mean square error of new sequences."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for update in range(1, updates + 1):
        x, target = make_batch(length, 64)
        loss = (model(x) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if update % max(updates // 6, 1) == 0:
            print(f"  update {update}: mean square error {loss.item():.4f}", flush=True)
    with torch.no_grad():
        x, target = make_batch(length, 1000)
        return (model(x) - target).square().mean().item()


def time_pass(cell: nn.Module, x: Tensor) -> float:
    """The median time of a forward and a backward pass."""
    times = []
    for _ in range(8):
        begin = time.perf_counter()
        cell(x)[0].sum().backward()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--length", type=int, default=100)
    parser.add_argument("--updates", type=int, default=500)
    parser.add_argument("--hidden", type=int, default=64)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    model = Adder(arguments.hidden)
    for stage in recurve.compile(ADDER).stages:
        print(f"{stage.kind}: {', '.join(stage.values)}: {stage.reason}")
    error = train(model, arguments.length, arguments.updates)
    print(f"mean square error: {error:.4f} (always answering 1 has 0.1667)")

    x, _ = make_batch(arguments.length, 64)
    reference = model.cell.as_torch()
    with torch.no_grad():
        difference = (model.cell(x)[0] - reference(x)[0]).abs().max()
    print(f"largest difference from as_torch(): {difference:.1e}")
    ours, theirs = time_pass(model.cell, x), time_pass(reference, x)
    print(f"forward and backward: {1e3 * ours:.2f} ms, by as_torch() {1e3 * theirs:.2f} ms")


if __name__ == "__main__":
    main()
