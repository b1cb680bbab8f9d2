"""Networks as functions of JAX."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from recurve import compile as compile_cell
from recurve._native import api
from recurve._native.bindings import describe, find_net
from recurve._native.loader import native
from recurve._states import State, States
from recurve.cells import Equations, builtin_cells
from recurve.jax import _calls, _ffi
from recurve.jax._calls import Call, Operands


class _Facts:
    """What a description says about parameters and states."""

    def __init__(self, description: str) -> None:
        library, net = native(), find_net(description)
        parameters = [library.rcv_net_parameter(net, i).contents for i in range(library.rcv_net_parameter_count(net))]
        self.net = net
        self.output: int = library.rcv_net_output(net)
        self.shapes = {p.name.decode(): tuple(p.shape[: p.dims]) for p in parameters}
        self.elements: int = library.rcv_net_parameter_elements(net)
        self.states = States(net, np.float32)

    @functools.cached_property
    def constants(self) -> dict[str, float]:
        """Parameters whose initial value the cell declares: those that do not depend on the seed."""
        initialize = native().rcv_net_initialize
        initialize.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p]
        flat = np.zeros((2, self.elements))
        for seed in range(2):
            initialize(self.net, seed, api.FLOAT64, flat[seed].ctypes.data)
        found, at = {}, 0
        for name, shape in self.shapes.items():
            count = int(np.prod(shape))
            part = flat[:, at : at + count]
            at += count
            if count and np.all(part == part[0, 0]):
                found[name] = float(part[0, 0])
        return found


@functools.cache
def _facts(description: str) -> _Facts:
    return _Facts(description)


def _source(cell: str | os.PathLike[str] | Equations) -> str:
    """The name of a built-in cell, or a text: a description does not depend on a file that may change."""
    return cell if isinstance(cell, str) and cell in builtin_cells() else compile_cell(cell).source


def _check_key(key: Any) -> Array:
    """A typed key of jax.random.key, or one of jax.random.PRNGKey."""
    dtype: Any = getattr(key, "dtype", None)
    shape: Any = getattr(key, "shape", None)
    is_typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    if (is_typed and shape == ()) or (dtype == jnp.uint32 and shape is not None and len(shape) == 1):
        found: Array = key
        return found
    what = type(key).__name__ if dtype is None else f"an array of {dtype} of shape {list(shape)}"
    raise TypeError(f"key is {what}; it must be one key of jax.random.key or jax.random.PRNGKey")


@jax.tree_util.register_static
class Network:
    """Layers of a cell, as a pure function of parameters and sequences.

        net = recurve.jax.Network("lstm", 64, 128, layers=2, dropout=0.1)
        params = net.init(jax.random.key(0))
        y, states = net(params, x)                                     # x: [steps, batch, 64]
        y, states = net(params, x, training=True, key=jax.random.key(1))

    cell           the name of a built-in cell, equations, the path of a file, or what `recurve.compile` returns
    input, hidden  features of x and of a state
    sizes          other sizes that the cell declares
    batch_first    x and y are [batch, steps, features], resets [batch, steps]; states stay as they are
    dropout        between layers, in calls with training=True; `variational`: one mask for all time steps
    zoneout        probability that an element of a state keeps its value, in calls with training=True
    device         "cpu" or "cuda"; None: where x is, in traced functions JAX's default device
    effort         how much time the planner spends on each shape when it is traced: "first" none, "estimate" a model of costs,
                   "measure" times candidates once for each machine, "exhaustive" all of them
    schedule       a plan string to use instead

    It is immutable and holds no arrays. Networks with the same options are equal.
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
        *,
        reverse: bool = False,
        batch_first: bool = False,
        device: str | None = None,
        effort: str = "measure",
        schedule: str | None = None,
    ) -> None:
        if effort not in _calls.EFFORTS:
            raise ValueError(f"there is no effort '{effort}'; there are {', '.join(_calls.EFFORTS)}")
        if device not in (None, "cpu", "cuda"):
            raise ValueError(f"there is no device '{device}'; there are cpu and cuda")
        common: dict[str, object] = {
            "input": input,
            "hidden": hidden,
            "layers": layers,
            "bidirectional": bidirectional,
            "no_bias": not bias,
            "rank": rank,
            "reverse": reverse,
            **{f"size.{name}": size for name, size in (sizes or {}).items()},
        }
        source = _source(cell)
        random = {"dropout": dropout if layers != 1 else 0.0, "zoneout": zoneout}
        self._net = describe(source, **common, zoneout=zoneout, expected_zoneout=zoneout > 0)
        self._training_net = describe(source, **common, **random, variational=variational)
        self._is_random = any(random.values())
        self._batch_first = batch_first
        self._device, self._effort, self._schedule = device, effort, schedule
        self.input, self.hidden = input, hidden
        find_net(describe(source, **common, dropout=dropout, zoneout=zoneout))  # refuses options that are wrong
        self.output = self._facts.output  #: features of y

    @property
    def _facts(self) -> _Facts:
        return _facts(self._net)

    @property
    def _options(self) -> tuple[object, ...]:
        return self._net, self._training_net, self._batch_first, self._device, self._effort, self._schedule

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Network) and self._options == other._options

    def __hash__(self) -> int:
        return hash(self._options)

    def __repr__(self) -> str:
        options, cell = self._net.split("\n", 1)
        return f"Network({cell.split('{')[0].strip()!r}, {options.replace(' ', ', ')})"

    # ---- parameters and states ----

    @property
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter, by PyTorch's names."""
        return dict(self._facts.shapes)

    @property
    def state_names(self) -> tuple[str, ...]:
        return self._facts.states.keys

    def init(self, key: Any, dtype: Any = jnp.float32) -> dict[str, Array]:
        """Parameters: uniform in +-1/sqrt(hidden), or the constant that the cell declares."""
        facts, bound = self._facts, self.hidden**-0.5
        keys = jax.random.split(_check_key(key), max(len(facts.shapes), 1))
        return {
            name: jnp.full(shape, facts.constants[name], dtype)
            if name in facts.constants
            else jax.random.uniform(k, shape, dtype, -bound, bound)
            for k, (name, shape) in zip(keys, facts.shapes.items())
        }

    def zeros(self, batch: int, dtype: Any = jnp.float32) -> dict[str, Array]:
        """States that are zero, as a call without states begins."""
        return {
            name: jnp.zeros(shape, dtype)
            for state in self._facts.states.states
            for name, shape in zip(state.keys, state.shapes(batch))
        }

    def _take_parameters(self, params: Any) -> tuple[Array, ...]:
        shapes = self._facts.shapes
        if not isinstance(params, Mapping):
            raise TypeError(f"params must map names of parameters to arrays, and is a {type(params).__name__}")
        for name in params:
            if name not in shapes:
                raise ValueError(f"params has '{name}', which is no parameter of the network")
        found = []
        for name, shape in shapes.items():
            if name not in params:
                raise ValueError(f"params has no '{name}', a parameter of shape {list(shape)}")
            found.append(_ffi.check_shape(_take_floats(params[name], name), shape, f"params['{name}']"))
            if found[-1].dtype != found[0].dtype:
                raise TypeError(
                    f"params['{name}'] is an array of {found[-1].dtype}, and those before it are of {found[0].dtype}"
                )
        return tuple(found)

    def _take_states(self, given: Any, batch: int, dtype: Any, name: str) -> tuple[Any, ...]:
        """An array for each state, or None."""
        states = self._facts.states
        if given is None:
            return (None,) * len(states.states)
        if not isinstance(given, Mapping):
            raise TypeError(
                f"{name} must map names of states ({states.describe()}) to arrays, and is a {type(given).__name__}"
            )
        for key in given:
            if key not in states.keys:
                raise ValueError(
                    f"{name} has '{key}', which is no state of the cell: its states are {states.describe()}"
                )
        return tuple(_take_state(state, given, batch, dtype, name) for state in states.states)

    # ---- calls ----

    def __call__(
        self,
        params: Mapping[str, Any],
        x: Any,
        states: Mapping[str, Any] | None = None,
        lengths: Any = None,
        resets: Any = None,
        restart: Mapping[str, Any] | None = None,
        training: bool = False,
        key: Any = None,
        dtype: Any = None,
    ) -> tuple[Array, dict[str, Array]]:
        """Runs the network: y [steps, batch, output] and the final states, by name.

        params    parameters by name, as `init` returns them
        x         [steps, batch, input] of float32, bfloat16, float16 or float64; y and the states have its type
        states    before the first step, by name: [layers * directions, batch, size]; those that are missing are zero
        lengths   [batch] whole numbers, each in 1..steps; y is zero past a sequence's length
        resets    [steps, batch] of bool: before such a step the states are `restart` again
        restart   states after a reset, by name; None: `states`
        training  apply dropout and zoneout, with random numbers of `key`
        dtype     in which products are computed; None: the type of x. "tfloat32" on a GPU with float32
        """
        x = _take_floats(x, "x")
        if x.ndim != 3 or x.shape[2] != self.input:
            order = "batch, steps" if self._batch_first else "steps, batch"
            raise ValueError(f"x has shape {list(x.shape)}; it must be [{order}, {self.input}]")
        steps, batch = (x.shape[1], x.shape[0]) if self._batch_first else x.shape[:2]
        if steps == 0:
            raise ValueError("x has no time steps; there must be at least one")
        if restart is not None and resets is None:
            raise ValueError("restart states are given, but no resets: they say where restart states are used")
        is_random = training and self._is_random
        if is_random and key is None:
            raise ValueError("a call with training=True and dropout or zoneout needs a key: key=jax.random.key(0)")
        operands = Operands(
            x,
            self._take_parameters(params),
            self._take_states(states, batch, x.dtype, "states"),
            self._take_states(restart, batch, x.dtype, "restart"),
            None if lengths is None else _ffi.take_lengths(lengths, batch, steps),
            None if resets is None else _ffi.take_resets(resets, x.shape[:2]),
            jax.random.bits(_check_key(key), (2,), jnp.uint32) if is_random else None,
        )
        if batch == 0:
            return jnp.zeros((*x.shape[:2], self.output), x.dtype), self.zeros(0, x.dtype)
        call = self._call(operands, is_random, dtype)
        y, final = _calls.run(call, operands)
        return y, {
            k: v for state, f in zip(self._facts.states.states, final) for k, v in _split(state, f, batch).items()
        }

    def _call(self, operands: Operands, is_random: bool, dtype: Any) -> Call:
        device = _ffi.platform_of(operands.arrays(), self._device)
        data = _ffi.float_type(operands.x.dtype)
        parameters = _ffi.float_type(operands.parameters[0].dtype) if operands.parameters else data
        flags = _products(operands.x.dtype, dtype, device) | data << _calls.DATA_SHIFT
        flags |= parameters << _calls.PARAMETERS_SHIFT
        flags |= _calls.BATCH_FIRST if self._batch_first else 0
        flags |= _calls.LENGTHS if operands.lengths is not None else 0
        flags |= _calls.RESETS if operands.resets is not None else 0
        flags |= _calls.CUDA if device == "cuda" else 0
        shapes = tuple(_pattern(state) for state in self._facts.states.states)
        net = self._training_net if is_random else self._net
        return Call(net, flags, is_random, self._schedule, self._effort, self.output, shapes)


def _take_floats(value: Any, name: str) -> Array:
    array = jnp.asarray(value)
    if array.dtype.name not in _ffi.FLOATS:
        raise TypeError(
            f"{name} is an array of {array.dtype}; it must be of {', '.join(_ffi.FLOATS[:-1])} or {_ffi.FLOATS[-1]}"
        )
    return array


def _take_state(state: State, given: Mapping[str, Any], batch: int, dtype: Any, name: str) -> Any:
    if not any(key in given for key in state.keys):
        return None
    parts = []
    for key, shape in zip(state.keys, state.shapes(batch)):
        part = jnp.asarray(given[key]) if key in given else jnp.zeros(shape, dtype)
        if part.dtype != dtype:
            raise TypeError(f"{name}['{key}'] is an array of {part.dtype}; it must be of {dtype}, as x is")
        parts.append(_ffi.check_shape(part, shape, f"{name}['{key}']"))
    return parts[0] if len(parts) == 1 else jnp.concatenate([part.ravel() for part in parts])


def _pattern(state: State) -> tuple[int, ...]:
    """The shape of a state's array, as `Call` has it."""
    return (len(state.sizes), 0, state.sizes[0]) if len(state.keys) == 1 else (-state.total,)


def _split(state: State, array: Array, batch: int) -> dict[str, Array]:
    """A state's array by its keys."""
    if len(state.keys) == 1:
        return {state.keys[0]: array}
    ends = np.cumsum([size * batch for size in state.sizes])
    parts = jnp.split(array, ends[:-1])
    return {key: part.reshape(shape) for key, part, shape in zip(state.keys, parts, state.shapes(batch))}


def _products(data: Any, wanted: Any, device: str) -> int:
    """The library's number of the type in which products are computed."""
    if wanted is None:
        wanted = data if data != jnp.float16 or device == "cuda" else jnp.float32
    name = wanted if isinstance(wanted, str) else jnp.dtype(wanted).name
    if name not in api.DTYPES:
        raise TypeError(f"there are no products in {name}; there are {', '.join(api.DTYPES)}")
    return api.DTYPES[name]
