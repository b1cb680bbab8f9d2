"""What torch.nn refuses is refused by recurve.nn with the same exception and the same text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import outcome, pair
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import recurve.nn

CONSTRUCTORS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "no arguments": ((), {}),
    "no hidden size": ((3,), {}),
    "unknown": ((3, 4), {"unknown": 1}),
    "too many": ((3, 4, 1, "tanh", True, False, 0.0, False, 0, None, None, 1, 2), {}),
    "input 0": ((0, 4), {}),
    "input -1": ((-1, 4), {}),
    "hidden 0": ((3, 0), {}),
    "layers 0": ((3, 4, 0), {}),
    "input a float": ((3.0, 4), {}),
    "hidden a float": ((3, 4.0), {}),
    "hidden a string": ((3, "4"), {}),
    "layers a float": ((3, 4, 1.5), {}),
    "layers a string": ((3, 4, "1"), {}),
    "bias 1": ((3, 4), {"bias": 1}),
    "bias None": ((3, 4), {"bias": None}),
    "batch_first 1": ((3, 4), {"batch_first": 1}),
    "dropout -0.1": ((3, 4, 2), {"dropout": -0.1}),
    "dropout 1.1": ((3, 4, 2), {"dropout": 1.1}),
    "dropout True": ((3, 4, 2), {"dropout": True}),
    "dropout a string": ((3, 4, 2), {"dropout": "0.5"}),
    "dropout not a number": ((3, 4, 2), {"dropout": float("nan")}),
    "proj_size": ((3, 4), {"proj_size": 2}),
    "proj_size 0": ((3, 4), {"proj_size": 0}),
    "proj_size -1": ((3, 4), {"proj_size": -1}),
    "proj_size 4": ((3, 4), {"proj_size": 4}),
    "nonlinearity": ((3, 4), {"nonlinearity": "sigmoid"}),
    "nonlinearity as the fourth": ((3, 4, 1, "sigmoid"), {}),
    "nonlinearity None": ((3, 4), {"nonlinearity": None}),
    "dtype int": ((3, 4), {"dtype": torch.int64}),
    "device": ((3, 4), {"device": "nowhere"}),
}


@pytest.mark.parametrize("case", CONSTRUCTORS)
def test_constructor(name: str, case: str) -> None:
    arguments, options = CONSTRUCTORS[case]
    ours = outcome(lambda: getattr(recurve.nn, name)(*arguments, **options))
    theirs = outcome(lambda: getattr(torch.nn, name)(*arguments, **options))
    if case == "input 0" and theirs == ("no error", ""):  # PyTorch 2.10 makes a module that no call can use
        assert ours[0] == "ValueError"
        return
    assert ours == theirs


def states(module: Any, *sizes: int, **options: Any) -> Any:
    h = torch.zeros(sizes, **options)
    return (h, h.clone()) if module.mode == "LSTM" else h


def packed(*sizes: int) -> PackedSequence:
    return pack_padded_sequence(torch.randn(*sizes), torch.tensor([sizes[0]] * sizes[1]))


# Of modules with input_size 3, hidden_size 4, num_layers 2.
CALLS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda m: m(),
    "None": lambda m: m(None),
    "a list": lambda m: m([[1.0, 2.0, 3.0]]),
    "1 dimension": lambda m: m(torch.randn(3)),
    "4 dimensions": lambda m: m(torch.randn(2, 2, 2, 3)),
    "no dimension": lambda m: m(torch.tensor(1.0)),
    "input 4": lambda m: m(torch.randn(5, 2, 4)),
    "input 4, unbatched": lambda m: m(torch.randn(5, 4)),
    "no steps": lambda m: m(torch.randn(0, 2, 3)),
    "no steps and no sequences": lambda m: m(torch.randn(0, 0, 3)),
    "float64": lambda m: m(torch.randn(5, 2, 3, dtype=torch.float64)),
    "bfloat16": lambda m: m(torch.randn(5, 2, 3, dtype=torch.bfloat16)),
    "integers": lambda m: m(torch.ones(5, 2, 3, dtype=torch.int64)),
    "complex": lambda m: m(torch.ones(5, 2, 3, dtype=torch.complex64)),
    "hx: another batch": lambda m: m(torch.randn(5, 2, 3), states(m, 2, 3, 4)),
    "hx: another size": lambda m: m(torch.randn(5, 2, 3), states(m, 2, 2, 5)),
    "hx: other layers": lambda m: m(torch.randn(5, 2, 3), states(m, 1, 2, 4)),
    "hx: 2 dimensions": lambda m: m(torch.randn(5, 2, 3), states(m, 2, 4)),
    "hx: 4 dimensions": lambda m: m(torch.randn(5, 2, 3), states(m, 1, 2, 2, 4)),
    "hx: batched, input not": lambda m: m(torch.randn(5, 3), states(m, 2, 1, 4)),
    "hx: another size, unbatched": lambda m: m(torch.randn(5, 3), states(m, 2, 5)),
    "hx: float64": lambda m: m(torch.randn(5, 2, 3), states(m, 2, 2, 4, dtype=torch.float64)),
    "hx: integers": lambda m: m(torch.randn(5, 2, 3), states(m, 2, 2, 4, dtype=torch.int64)),
    "hx: a number": lambda m: m(torch.randn(5, 2, 3), 1.0),
    "hx: a tensor of both": lambda m: m(torch.randn(5, 2, 3), torch.zeros(2, 2, 2, 4)),
    "hx: a tuple of three": lambda m: m(torch.randn(5, 2, 3), (torch.zeros(2, 2, 4),) * 3),
    "hx: a tuple of one": lambda m: m(torch.randn(5, 2, 3), (torch.zeros(2, 2, 4),)),
    "hx: a list": lambda m: m(torch.randn(5, 2, 3), [torch.zeros(2, 2, 4)] * 2),
    "hx: Nones": lambda m: m(torch.randn(5, 2, 3), (None, None)),
    "hx: on meta": lambda m: m(torch.randn(5, 2, 3), states(m, 2, 2, 4, device="meta")),
    "three arguments": lambda m: m(torch.randn(5, 2, 3), None, None),
    "unknown": lambda m: m(torch.randn(5, 2, 3), unknown=1),
    "packed: input 4": lambda m: m(packed(5, 2, 4)),
    "packed: 3 dimensions": lambda m: m(packed(5, 2, 3, 1)),
    "packed: hx of another batch": lambda m: m(packed(5, 2, 3), states(m, 2, 3, 4)),
    "packed: hx of 2 dimensions": lambda m: m(packed(5, 2, 3), states(m, 2, 4)),
    "packed: hx of float64": lambda m: m(packed(5, 2, 3), states(m, 2, 2, 4, dtype=torch.float64)),
    "packed: float64": lambda m: m(PackedSequence(torch.randn(4, 3).double(), torch.tensor([2, 2]))),
}


# Where torch raises from inside of an operation, with a text that names its arguments, or computes something.
OWN_ERRORS = {
    "hx: float64": "RuntimeError: Input and hidden tensors are not the same dtype",
    "hx: integers": "RuntimeError: Input and hidden tensors are not the same dtype",
    "packed: hx of float64": "RuntimeError: Input and hidden tensors are not the same dtype",
    "hx: on meta": "RuntimeError: Input and hidden tensors are not at the same device, found input tensor at cpu and hidden tensor at meta",
    "hx: a tensor of both": "TypeError: the states of an LSTM should be a tuple of two tensors, (h_0, c_0), got one tensor",
    "packed: input 4": "RuntimeError: input.size(-1) must be equal to input_size. Expected 3, got 4",
    "packed: 3 dimensions": "RuntimeError: input must have 2 dimensions, got 3",
    "packed: hx of another batch": "RuntimeError: Expected hidden[0] size (2, 2, 4), got [2, 3, 4]",
    "packed: hx of 2 dimensions": "RuntimeError: Expected hidden[0] size (2, 2, 4), got [2, 4]",
    "packed: float64": "ValueError: ",
}
OF_LSTM = {"hx: a tensor of both"}  # other modules: as torch


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("case", CALLS)
def test_call(name: str, case: str, training: bool) -> None:
    ours, theirs = (m.train(training) for m in pair(name, 3, 4, 2))
    mine, wanted = outcome(lambda: CALLS[case](ours)), outcome(lambda: CALLS[case](theirs))
    if case in OWN_ERRORS and (name == "LSTM" or case not in OF_LSTM):
        own = OWN_ERRORS[case] if name == "LSTM" else OWN_ERRORS[case].replace("hidden[0]", "hidden")
        assert ": ".join(mine).startswith(own)
        wanted = mine
    assert (mine[0], mine[1].replace("_OneState.", f"{name}.")) == wanted
    with torch.no_grad():
        assert outcome(lambda: CALLS[case](ours)) == mine


@pytest.mark.parametrize("case", ["input 4", "hx: another batch", "hx: another size", "no steps", "1 dimension"])
def test_call_of_a_module_with_projections_and_batch_first(case: str) -> None:
    ours, theirs = pair("LSTM", 3, 4, 2, proj_size=2, batch_first=True)
    assert outcome(lambda: CALLS[case](ours)) == outcome(lambda: CALLS[case](theirs))


def test_a_module_on_meta_runs_nothing(name: str) -> None:
    ours, theirs = (m.to("meta") for m in pair(name, 3, 4, 2))
    x = torch.randn(5, 2, 3, device="meta")
    assert [t.shape for t in ours(x)[:1]] == [t.shape for t in theirs(x)[:1]]
    with pytest.raises(RuntimeError, match="found input tensor at cpu and parameter tensor at meta"):
        ours(torch.randn(5, 2, 3))


def test_parameters_of_several_dtypes(name: str) -> None:
    ours, theirs = pair(name, 3, 4, 2)
    for module in (ours, theirs):
        module.weight_hh_l1 = torch.nn.Parameter(module.weight_hh_l1.double())
    with pytest.raises(RuntimeError):
        theirs(torch.randn(5, 2, 3))
    with pytest.raises(RuntimeError, match="parameter weight_hh_l1 has another dtype than those before it"):
        ours(torch.randn(5, 2, 3))


def test_parameters_of_another_shape(name: str) -> None:
    for shape in ((7, 4), (4, 4, 4), (4, 16)):  # the last two have as many elements as the LSTM's
        ours, _ = pair(name, 3, 4, 2)
        ours.weight_ih_l1 = torch.nn.Parameter(torch.zeros(shape))
        for training in (True, False):
            with pytest.raises(RuntimeError, match="parameter weight_ih_l1 does not have the shape"), torch.set_grad_enabled(training):
                ours(torch.randn(5, 2, 3))


def test_a_state_dict_of_another_shape(name: str) -> None:
    ours, theirs = pair(name, 3, 4, 2)
    state = pair(name, 3, 5, 2)[1].state_dict()
    assert outcome(lambda: ours.load_state_dict(state)) == outcome(lambda: theirs.load_state_dict(state))
    del state["weight_hh_l1"]
    assert outcome(lambda: ours.load_state_dict(state)) == outcome(lambda: theirs.load_state_dict(state))


def test_packed_sequence_whose_sizes_rise() -> None:
    data, sizes = torch.randn(5, 3), torch.tensor([2, 3])
    with pytest.raises(RuntimeError, match="do not fall from step to step"):
        recurve.nn.GRU(3, 4)(torch.nn.utils.rnn.PackedSequence(data, sizes))
