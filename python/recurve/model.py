"""Networks on NumPy arrays."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from recurve import _arrays
from recurve._arrays import Array, Dimension
from recurve._native import api
from recurve._native.loader import Handle, context, encode_path, make, native
from recurve._runs import Kind, Run, Runs
from recurve._states import States
from recurve.cells import Equations, compile, make_net
from recurve.plans import Plans, read_plan
from recurve.stream import Stream

#: states by name, see Model.run
StateMapping = Mapping[str, Any]


@dataclass(frozen=True)
class Gradients:
    """Results of a forward and a backward pass. Gradients have the shapes of what they belong to."""

    y: Array  #: [steps, batch, output]
    states: dict[str, Array]  #: after each sequence's last step
    x: Array  #: gradient of the input
    parameters: dict[str, Array]  #: gradients by parameter
    initial: dict[str, Array]  #: gradients of the initial states
    restart: dict[str, Array]  #: gradients of the states after a reset, where those were given


@dataclass
class _Call:
    """Arrays of one call, checked."""

    kind: Kind
    steps: int
    batch: int
    x: Array
    lengths: Array | None
    resets: Array | None
    initial: list[Array | None]
    restart: list[Array | None]
    y: Array
    final: list[Array]
    seed: int


class Model:
    """A recurrent network with its parameters.

    `cell` is what `recurve.compile` takes. `input` and `hidden` are the features of x and of a state; other sizes that
    the cell declares are given in `sizes`. Dropout is between layers, and `variational` uses one mask for all steps;
    both, and zoneout, apply in `gradients` alone. `rank` makes every larger matrix a product of this rank.

    `dtype` is float32, float64, or, with float32 parameters, the type of the products: bfloat16, and on a GPU float16
    and tfloat32. `device` is "cpu", "cuda" or "cuda:1"; arrays stay NumPy's and are copied.

    Plans are made when they are needed and kept. `effort` is how: "background" answers at once and searches a faster
    plan beside the caller, "measure" searches first, "exhaustive" longer, "estimate" uses the cost model alone. Results
    of two plans differ by rounding; a plan string as `schedule` gives the same bits every time.

    Methods may be called by several threads at once while no thread writes parameters.
    """

    def __init__(
        self,
        cell: str | os.PathLike[str] | Equations,
        input: int,
        hidden: int,
        layers: int = 1,
        bidirectional: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        variational: bool = False,
        zoneout: float = 0.0,
        rank: int = 0,
        sizes: Mapping[str, int] | None = None,
        dtype: str = "float32",
        seed: int = 0,
        *,
        reverse: bool = False,
        device: str = "cpu",
        effort: str = "background",
        schedule: str | None = None,
        threads: int = 0,
    ) -> None:
        equations = compile(cell)
        for name, value in {
            "input": input,
            "hidden": hidden,
            "layers": layers,
            "rank": rank,
            "threads": threads,
            "seed": seed,
        }.items():
            check_count(name, value)
        net = make_net(
            equations,
            sizes or {},
            input=input,
            hidden=hidden,
            layers=layers,
            bidirectional=bidirectional,
            no_bias=not bias,
            dropout=dropout,
            variational=variational,
            zoneout=zoneout,
            rank=rank,
            reverse=reverse,
        )
        handle = make("rcv_model_new", net, _parameter_type(dtype), seed, free="rcv_model_free", parents=(net,))
        self._begin(handle, dtype, device, effort, schedule, threads)

    def _begin(self, handle: Handle, dtype: str, device: str, effort: str, schedule: str | None, threads: int) -> None:
        library = native()
        library.rcv_device_describe(context(), device.encode(), None)
        self._handle = handle
        self._net: int = library.rcv_model_net(handle)
        self.dtype = dtype
        self.device = device
        self._real = np.dtype(np.float64 if library.rcv_model_dtype(handle) == api.FLOAT64 else np.float32)
        self._states = States(self._net, self._real)
        self._options = library.rcv_net_get_options(self._net).contents
        self._output: int = library.rcv_net_output(self._net)
        self._flat = _view(handle, library.rcv_net_parameter_elements(self._net), self._real)
        self._parameters = MappingProxyType(_split(self._net, self._flat))
        self._weights = 0  # the number of the frozen parameters; 0: not frozen
        self._frozen_times = 0
        options = {"dtype": api.DTYPES[dtype], "threads": threads, "schedule": schedule.encode() if schedule else None}
        self._runs = Runs(self._net, handle, effort, device.encode(), options)
        self._effort = effort
        self._schedule = schedule
        self._threads = threads

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        cell: str | os.PathLike[str] | Equations | None = None,
        prefix: str | None = None,
        dtype: str = "float32",
        device: str = "cpu",
        effort: str = "background",
        schedule: str | None = None,
        threads: int = 0,
    ) -> Model:
        """A network from a safetensors file that `save` or `recurve init` wrote.

        With `cell`, the name of a built-in cell or the path of a .cell file, the file is a PyTorch state dict of this
        cell; `prefix` is what stands before the parameters' names, and is found where it is not given.
        """
        name = None if cell is None else _cell_name(cell)
        options = api.ModelOptions(
            dtype=_parameter_type(dtype), cell=name, prefix=prefix.encode() if prefix is not None else None
        )
        arguments = context(), encode_path(path), ctypes.byref(options)
        model = cls.__new__(cls)
        handle = make("rcv_model_load", *arguments, free="rcv_model_free", parents=(context(),))
        model._begin(handle, dtype, device, effort, schedule, threads)
        return model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the network and its parameters as safetensors, the whole file or nothing."""
        native().rcv_model_save(self._handle, encode_path(path))

    def low_rank(self, rank: int) -> Model:
        """The same network with every matrix replaced by its best approximation of this rank."""
        check_count("rank", rank)
        model = Model.__new__(Model)
        handle = make("rcv_model_low_rank", self._handle, rank, free="rcv_model_free", parents=(context(),))
        model._begin(handle, self.dtype, self.device, self._effort, None, self._threads)
        return model

    # ---- what it is

    @property
    def cell(self) -> Equations:
        """The cell's equations."""
        return compile(native().rcv_cell_source(native().rcv_net_cell(self._net)).decode())

    @property
    def input(self) -> int:
        """Features of x."""
        return int(self._options.input)

    @property
    def hidden(self) -> int:
        """Features of a state, unless the cell says otherwise."""
        return int(self._options.hidden)

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self._states.layers

    @property
    def bidirectional(self) -> bool:
        """Whether there is a second direction."""
        return self._states.directions == 2

    @property
    def output(self) -> int:
        """Features of y, both directions together."""
        return self._output

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that the cell declares, with their values."""
        entries = self._options.sizes[: self._options.size_count]
        return {entry.name.decode(): entry.value for entry in entries}

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the arrays of states that `run` takes and gives."""
        return self._states.keys

    @property
    def parameters(self) -> Mapping[str, Array]:
        """Parameters by PyTorch's names, as writable views: `model.parameters["weight_ih_l0"][...] = w`."""
        return self._parameters

    @property
    def flat_parameters(self) -> Array:
        """All parameters as one writable array, [elements], in the order of `parameters`."""
        return self._flat

    def assign(self, parameters: Mapping[str, Any]) -> None:
        """Copies arrays into the parameters. All names must be there, or nothing is changed."""
        missing = [name for name in self._parameters if name not in parameters]
        unknown = [name for name in parameters if name not in self._parameters]
        if missing or unknown:
            what = f"no '{missing[0]}'" if missing else f"'{unknown[0]}', which is no parameter"
            raise ValueError(f"parameters has {what}; the parameters are {', '.join(self._parameters)}")
        if self._weights:
            raise ValueError("the parameters are frozen; call freeze(False) before they are written")
        arrays = {
            name: _arrays.take(
                parameters[name], self._real, [("size", size) for size in array.shape], f"parameters['{name}']"
            )
            for name, array in self._parameters.items()
        }
        for name, array in arrays.items():
            self._parameters[name][...] = array

    def freeze(self, frozen: bool = True) -> Model:
        """Promises that parameters stay as they are: later calls of `run` use the packed weights of earlier ones.

        The arrays of `parameters` are read-only until `freeze(False)`. Views that were made from them before are not.
        """
        for array in (self._flat, *self._parameters.values()):
            array.flags.writeable = not frozen
        self._frozen_times += 1
        self._weights = self._frozen_times if frozen else 0
        return self

    def __repr__(self) -> str:
        name = native().rcv_cell_name(native().rcv_net_cell(self._net)).decode()
        both = ", bidirectional" if self.bidirectional else ""
        return (
            f"<recurve.Model {name}: input {self.input}, hidden {self.hidden}, layers {self.layers}{both}, "
            f"{self.dtype} on {self.device}, {self._flat.size} parameters>"
        )

    # ---- running it

    def run(
        self,
        x: Any,
        states: StateMapping | None = None,
        lengths: Any = None,
        resets: Any = None,
        restart: StateMapping | None = None,
        *,
        batch_first: bool = False,
    ) -> tuple[Array, dict[str, Array]]:
        """Runs sequences through the network, and returns y and the states after each sequence's last step.

        x        [steps, batch, input]; with `batch_first` [batch, steps, input], and y and resets alike
        states   before the first step, by name: [layers * directions, batch, size]; missing ones are zero. A
                 state whose size differs between layers has an array [batch, size] for each: NAME.l0, NAME.l0_reverse,
                 ...
        lengths  [batch], each in 1..steps; y is zero past a sequence's length
        resets   [steps, batch] of bool: a new episode begins at this step
        restart  states after a reset; those of `states` where it is not given
        """
        call = self._call(False, x, states, lengths, resets, restart, batch_first, 0)
        with self._runs.borrow(call.kind, call.steps, call.batch) as run:
            self._forward(run, call)
        return call.y, self._states.split(call.final, call.batch)

    __call__ = run

    def gradients(
        self,
        x: Any,
        dy: Any,
        states: StateMapping | None = None,
        lengths: Any = None,
        resets: Any = None,
        restart: StateMapping | None = None,
        *,
        dstates: StateMapping | None = None,
        batch_first: bool = False,
        seed: int = 0,
    ) -> Gradients:
        """Runs sequences forwards, with dropout and zoneout, and the gradients of a loss backwards.

        `dy` is the loss's gradient of y, or a function that computes it: `dy(y)`. `dstates` are its gradients of the
        final states, and `seed` is that of dropout and zoneout. Everything else is as in `run`.
        """
        check_count("seed", seed)
        call = self._call(True, x, states, lengths, resets, restart, batch_first, seed)
        shape: list[Dimension] = [(name, size) for name, size in zip(_axes(batch_first, "output"), call.y.shape)]
        given = None if callable(dy) else _arrays.take(dy, self._real, shape, "dy")
        dfinal = self._states.take(dstates, call.batch, "dstates")
        with self._runs.borrow(call.kind, call.steps, call.batch) as run:
            self._forward(run, call)
            if given is None:
                given = _arrays.take(dy(call.y), self._real, shape, "dy")
            return self._backward(run, call, given, dfinal)

    def _call(
        self,
        training: bool,
        x: Any,
        states: StateMapping | None,
        lengths: Any,
        resets: Any,
        restart: StateMapping | None,
        batch_first: bool,
        seed: int,
    ) -> _Call:
        axes = _axes(batch_first, "input")
        array = _arrays.take(x, self._real, list(zip(axes, (None, None, self.input))), "x")
        batch, steps = array.shape[:2] if batch_first else array.shape[1::-1]
        if steps == 0:
            raise ValueError("x has no time steps; there must be at least one")
        kind = Kind(training, lengths is not None, resets is not None, batch_first)
        return _Call(
            kind,
            steps,
            batch,
            array,
            None if lengths is None else _arrays.take_lengths(lengths, batch, steps),
            None if resets is None else _arrays.take_resets(resets, list(zip(axes, array.shape[:2]))),
            self._states.take(states, batch, "states"),
            self._states.take(restart, batch, "restart"),
            np.empty((*array.shape[:2], self._output), self._real),
            self._states.empty(batch),
            seed,
        )

    def _forward(self, run: Run, call: _Call) -> None:
        memory = run.memory
        packed = self._weights != 0 and run.weights == self._weights
        data = api.Forward(
            parameters=memory.room("parameters", self._flat) if packed else memory.put("parameters", self._flat),
            x=memory.put("x", call.x),
            lengths=_arrays.address(call.lengths),
            resets=memory.put("resets", call.resets),
            initial=memory.put_all("initial", call.initial),
            restart=memory.put_all("restart", call.restart),
            y=memory.room("y", call.y),
            final=memory.room_all("final", call.final),
            seed=call.seed,
            same_parameters=packed,
            steps=call.steps,
            batch=call.batch or api.EMPTY,
        )
        native().rcv_run_forward(run.handle, ctypes.byref(data))
        if not memory.is_host:
            native().rcv_run_wait(run.handle)
            memory.get("y", call.y)
            memory.get_all("final", call.final)
        run.weights = self._weights

    def _backward(self, run: Run, call: _Call, dy: Array, dfinal: list[Array | None]) -> Gradients:
        memory = run.memory
        dx, dparameters = np.empty_like(call.x), np.empty_like(self._flat)
        dinitial = self._states.empty(call.batch)
        has_restart = any(array is not None for array in call.restart)
        drestart = self._states.empty(call.batch) if has_restart else []
        data = api.Backward(
            dy=memory.put("dy", dy),
            dfinal=memory.put_all("dfinal", dfinal),
            dx=memory.room("dx", dx),
            dinitial=memory.room_all("dinitial", dinitial),
            drestart=memory.room_all("drestart", drestart),
            dparameters=memory.room("dparameters", dparameters),
        )
        native().rcv_run_backward(run.handle, ctypes.byref(data))
        if not memory.is_host:
            native().rcv_run_wait(run.handle)
            memory.get("dx", dx)
            memory.get("dparameters", dparameters)
            memory.get_all("dinitial", dinitial)
            memory.get_all("drestart", drestart)
        split = self._states.split
        return Gradients(
            call.y,
            split(call.final, call.batch),
            dx,
            _split(self._net, dparameters),
            split(dinitial, call.batch),
            split(drestart, call.batch) if has_restart else {},
        )

    def plan(
        self,
        steps: int,
        batch: int,
        *,
        training: bool = False,
        lengths: bool = False,
        resets: bool = False,
        batch_first: bool = False,
        effort: str = "measure",
        schedule: str | None = None,
    ) -> Plans:
        """The plans that the planner considers for these sizes, the fastest first. Printed, they are a table.

        `lengths` and `resets` say that calls give them. With `schedule` there is this one.
        """
        kind = Kind(training, lengths, resets, batch_first)
        return read_plan(self._runs.plan(kind, steps, batch, effort, schedule))

    def stream(self, batch: int = 1, most: int = 1) -> Stream:
        """The network step by step: `batch` sequences, whose states are kept between calls of at most `most` steps.

        A stream uses the parameters that the model has now; after they were changed call `Stream.reload`.
        """
        options = api.StreamOptions(
            batch=batch,
            most=most,
            device=self.device.encode(),
            dtype=0 if self.dtype in ("float32", "float64") else api.DTYPES[self.dtype],
            threads=self._threads,
            schedule=self._schedule.encode() if self._schedule else None,
            effort=api.EFFORTS["measure" if self._effort == "background" else self._effort],
        )
        return Stream(
            make(
                "rcv_stream_new_model",
                self._handle,
                ctypes.byref(options),
                free="rcv_stream_free",
                parents=(self._handle,),
            ),
            self._states,
            batch,
            most,
            ("input", self.input, self._real),
            ("output", self._output, self._real),
        )


def _axes(batch_first: bool, last: str) -> tuple[str, str, str]:
    return ("batch", "steps", last) if batch_first else ("steps", "batch", last)


def check_count(name: str, value: Any) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; it must be a whole number")
    if not 0 <= value < 1 << 63:
        raise ValueError(f"{name} is {value}; it must be in 0..{(1 << 63) - 1}")


def _parameter_type(dtype: str) -> int:
    if dtype not in api.DTYPES:
        raise ValueError(f"there is no dtype '{dtype}'; there are {', '.join(api.DTYPES)}")
    return api.FLOAT64 if dtype == "float64" else api.FLOAT32


def _cell_name(cell: str | os.PathLike[str] | Equations) -> bytes:
    if isinstance(cell, Equations) or (isinstance(cell, str) and "{" in cell):
        raise TypeError(
            "cell must be the name of a built-in cell or the path of a .cell file here; write the equations to a file"
        )
    compile(cell)  # a wrong name is refused with a better sentence
    return encode_path(cell if isinstance(cell, str) or "/" in os.fspath(cell) else f"./{os.fspath(cell)}")


def _view(handle: Handle, elements: int, dtype: np.dtype[Any]) -> Array:
    """The parameters of a model, which stays alive as long as the array."""
    bytes_ = (ctypes.c_char * (elements * dtype.itemsize)).from_address(native().rcv_model_parameters(handle))
    bytes_.owner = handle  # type: ignore[attr-defined]
    flat: Array = np.frombuffer(bytes_, dtype)  # type: ignore[call-overload]
    return flat


def _split(net: int, flat: Array) -> dict[str, Array]:
    """A flat array over parameters as arrays by name."""
    library = native()
    arrays = {}
    for i in range(library.rcv_net_parameter_count(net)):
        entry = library.rcv_net_parameter(net, i).contents
        shape = tuple(entry.shape[: entry.dims])
        arrays[entry.name.decode()] = flat[entry.offset : entry.offset + math.prod(shape)].reshape(shape)
    return arrays
