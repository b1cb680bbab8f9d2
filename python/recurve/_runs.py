"""Plans and runs of a network, kept from call to call."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from recurve import _arrays
from recurve._arrays import Array
from recurve._native.loader import Handle, context, make, native
from recurve.plans import make_plan

Pointers = ctypes.Array[ctypes.c_void_p]


class Kind(NamedTuple):
    """What a plan is made for, besides sizes."""

    training: bool
    lengths: bool
    resets: bool
    batch_first: bool


class Memory:
    """Arrays of one run where its device reads and writes them: on the CPU those of the caller, on a GPU copies."""

    def __init__(self, device: bytes) -> None:
        self.device = device
        self.is_host = device == b"cpu"
        self._blocks: dict[str, tuple[int, ctypes.c_void_p]] = {}
        weakref.finalize(self, _free_blocks, self._blocks, device, context())

    def room(self, name: str, array: Array | None) -> int | None:
        """Where an array is written."""
        if array is None or self.is_host:
            return _arrays.address(array)
        size, block = self._blocks.get(name, (0, ctypes.c_void_p()))
        if size < array.nbytes:
            if size:
                native().rcv_memory_free(context(), self.device, self._blocks.pop(name)[1])
            block = ctypes.c_void_p()
            native().rcv_memory_new(context(), self.device, array.nbytes, ctypes.byref(block))
            self._blocks[name] = (array.nbytes, block)
        return block.value

    def put(self, name: str, array: Array | None) -> int | None:
        """Where an array is read."""
        at = self.room(name, array)
        if array is not None and array.nbytes and not self.is_host:
            native().rcv_memory_write(self.device, at, _arrays.address(array), array.nbytes)
        return at

    def get(self, name: str, array: Array | None) -> None:
        """Copies what was written into the caller's array."""
        if array is not None and array.nbytes and not self.is_host:
            native().rcv_memory_read(self.device, _arrays.address(array), self._blocks[name][1], array.nbytes)

    def put_all(self, name: str, arrays: Sequence[Array | None]) -> Pointers | None:
        """An array of pointers to arrays that are read; NULL where none is given."""
        return _pointers([self.put(f"{name}{i}", array) for i, array in enumerate(arrays)])

    def room_all(self, name: str, arrays: Sequence[Array]) -> Pointers | None:
        """An array of pointers to arrays that are written; NULL where there are none."""
        return _pointers([self.room(f"{name}{i}", array) for i, array in enumerate(arrays)])

    def get_all(self, name: str, arrays: Sequence[Array]) -> None:
        """Copies what was written into the caller's arrays."""
        for i, array in enumerate(arrays):
            self.get(f"{name}{i}", array)


def _pointers(addresses: list[int | None]) -> Pointers | None:
    for address in addresses:
        if address is not None:
            return (ctypes.c_void_p * len(addresses))(*addresses)
    return None


def _free_blocks(blocks: dict[str, tuple[int, ctypes.c_void_p]], device: bytes, owner: Handle) -> None:
    for _, block in blocks.values():
        native().rcv_memory_free(owner, device, block)


class Run:
    """A run of a plan, used by one call at a time."""

    def __init__(self, plan: Handle, device: bytes) -> None:
        self.plan = plan
        self.memory = Memory(device)
        self.handle = make("rcv_run_new", plan, free="rcv_run_free", parents=(plan,))
        self.weights = 0  # the number of the frozen parameters that it has packed; 0: none


@dataclass
class _Pool:
    """A plan with the runs that no call uses now."""

    plan: Handle
    steps: int
    batch: int
    idle: list[Run] = field(default_factory=list)


def _grow(old: int, wanted: int) -> int:
    """A power of two where an old plan is too small, so that few plans are made for growing sizes."""
    return old if wanted <= old else 1 << (wanted - 1).bit_length()


class Runs:
    """The plans of a network: one for each kind of call, for all sizes up to its own. Thread-safe."""

    def __init__(self, net: int, parent: Handle, effort: str, device: bytes, options: dict[str, Any]) -> None:
        self._net, self._parent, self._effort, self._device, self._options = net, parent, effort, device, options
        self._pools: dict[Kind, _Pool] = {}
        self._lock = threading.Lock()

    def plan(
        self, kind: Kind, steps: int, batch: int, effort: str | None = None, schedule: str | None = None
    ) -> Handle:
        """A plan for these sizes."""
        options = dict(self._options)
        if schedule is not None:
            options["schedule"] = schedule.encode()
        return make_plan(
            self._net,
            self._parent,
            effort or self._effort,
            steps=steps,
            batch=batch,
            device=self._device,
            training=kind.training,
            lengths=kind.lengths,
            resets=kind.resets,
            batch_major=kind.batch_first,
            **options,
        )

    def _pool(self, kind: Kind, steps: int, batch: int) -> _Pool:
        pool = self._pools.get(kind)
        if pool is None or steps > pool.steps or batch > pool.batch:
            if pool is not None:
                steps, batch = _grow(pool.steps, steps), _grow(pool.batch, batch)
                del self._pools[kind], pool  # its memory is free before the larger plan is made
            pool = self._pools[kind] = _Pool(self.plan(kind, steps, batch), steps, batch)
        return pool

    @contextlib.contextmanager
    def borrow(self, kind: Kind, steps: int, batch: int) -> Iterator[Run]:
        """A run for a call of these sizes."""
        with self._lock:
            pool = self._pool(kind, steps, max(batch, 1))
            run = pool.idle.pop() if pool.idle else Run(pool.plan, self._device)
        yield run  # after a failure the run is freed
        with self._lock:
            if self._pools.get(kind) is pool:
                pool.idle.append(run)
