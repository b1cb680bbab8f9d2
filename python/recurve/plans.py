"""Plans: the ways to run a network that the planner considered."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

from recurve._native import api, errors
from recurve._native.loader import Handle, make, native


@dataclass(frozen=True)
class Candidate:
    """A plan that the planner considered."""

    schedule: str  #: the plan string: with it as `schedule` the same plan is made again
    seconds: float | None  #: measured, of a forward call, in training with its backward call; None: not timed
    estimate: float  #: the same by the cost model
    bytes: int  #: memory of a run
    reason: str | None  #: why it cannot be used; None: it can
    chosen: bool


class Plans(Sequence[Candidate]):
    """The candidates for a problem, the fastest first. `str(plans)` is a table."""

    def __init__(self, candidates: Sequence[Candidate], seconds: float, from_wisdom: bool) -> None:
        self._candidates = tuple(sorted(candidates, key=_order))
        self.seconds = seconds  #: that planning took
        self.from_wisdom = from_wisdom  #: chosen from what an earlier search measured

    @property
    def chosen(self) -> Candidate:
        """The plan that was chosen."""
        return next(candidate for candidate in self if candidate.chosen)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Candidate]: ...

    def __getitem__(self, index: int | slice) -> Candidate | Sequence[Candidate]:
        return self._candidates[index]

    def __len__(self) -> int:
        return len(self._candidates)

    def __str__(self) -> str:
        lines = [f"  {'measured ms':>11}{'model ms':>11}{'memory MB':>11}  plan"]
        for candidate in self:
            if candidate.reason is None:
                mark = "*" if candidate.chosen else " "
                times = f"{_milliseconds(candidate.seconds):>11}{_milliseconds(candidate.estimate):>11}"
                lines.append(f"{mark} {times}{candidate.bytes / 1e6:>11.3f}  {candidate.schedule}")
        refused = [f"  {candidate.schedule}: {candidate.reason}" for candidate in self if candidate.reason is not None]
        return "\n".join(lines + ["Not used:"] * bool(refused) + refused)

    def __repr__(self) -> str:
        return str(self)


def _milliseconds(seconds: float | None) -> str:
    return f"{seconds * 1e3:.3f}" if seconds else "-"


def _order(candidate: Candidate) -> tuple[bool, bool, float]:
    seconds = candidate.seconds
    return candidate.reason is not None, seconds is None, candidate.estimate if seconds is None else seconds


def make_plan(net: int, parent: Handle, effort: str, **options: Any) -> Handle:
    """A plan for a network. A Ctrl-C ends a search that the call waits for."""
    if effort not in api.EFFORTS:
        raise ValueError(f"there is no effort '{effort}'; there are {', '.join(api.EFFORTS)}")
    callbacks = errors.Callbacks()
    struct = api.PlanOptions(effort=api.EFFORTS[effort], **options)
    if effort != "background":  # its thread would call Python at any time
        struct.go_on = api.GoOn(callbacks.go_on)

    def create() -> Handle:
        return make("rcv_plan_new", net, ctypes.byref(struct), free="rcv_plan_free", parents=(parent,))

    return callbacks.run(create)


def _candidate(plan: Handle, index: int) -> Candidate:
    entry = native().rcv_plan_candidate(plan, index).contents
    reason = None
    if entry.status != errors.OK:
        reason = entry.reason.decode("utf-8", "replace") if entry.reason else "no reason given"
    return Candidate(entry.schedule.decode(), entry.seconds or None, entry.estimate, entry.bytes, reason, entry.chosen)


def read_plan(plan: Handle) -> Plans:
    """The candidates of a plan."""
    library = native()
    candidates = [_candidate(plan, i) for i in range(library.rcv_plan_candidate_count(plan))]
    return Plans(candidates, library.rcv_plan_seconds(plan), library.rcv_plan_from_wisdom(plan))
