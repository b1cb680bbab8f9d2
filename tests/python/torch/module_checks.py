"""PyTorch's checks of modules, on its own samples of LSTM, GRU and RNN, with the classes of recurve.nn in their place.

test_modules.py runs this file in a process of its own: importing torch.testing._internal changes settings of the whole process.
PyTorch's wheel has the samples (common_modules.py) and not its test/test_modules.py, whose checks are stated here again. Not here:
memory formats (of images), in-place variants (there are none) and second derivatives (they are refused).
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import recurve.nn

NAMES = ("LSTM", "GRU", "RNN")

_theirs = {name: getattr(torch.nn, name) for name in NAMES}
for _name in NAMES:
    setattr(torch.nn, _name, getattr(recurve.nn, _name))
from torch.testing._internal import common_modules  # noqa: E402
from torch.testing._internal.common_utils import freeze_rng_state, gradcheck  # noqa: E402

for _name in NAMES:
    setattr(torch.nn, _name, _theirs[_name])

INFOS = [info for info in common_modules.module_db if info.module_cls in [getattr(recurve.nn, name) for name in NAMES]]
for _info in INFOS:
    _info.supports_gradgrad = False

CASES = [
    pytest.param(info, training, id=f"{info.module_cls.__name__}-{'train' if training else 'eval'}")
    for info in INFOS
    for training in (True, False)
]
DTYPES = (torch.float32, torch.float64)
every_case = pytest.mark.parametrize(("info", "training"), CASES)


def test_the_samples_are_of_our_classes() -> None:
    assert [info.module_cls for info in INFOS] == [recurve.nn.RNN, recurve.nn.GRU, recurve.nn.LSTM]


def samples(info: Any, training: bool, dtype: torch.dtype = torch.float64, requires_grad: bool = False) -> Iterator[tuple[Any, Any, Any]]:
    """A module of each sample, the arguments of its call, and the sample."""
    torch.manual_seed(0)
    inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=requires_grad, training=training)
    assert len(inputs) >= 16
    for sample in inputs:
        c = sample.constructor_input
        module = info.module_cls(*c.args, **c.kwargs, dtype=dtype, device="cpu").train(training)
        yield module, sample.forward_input, sample


def flat(out: Any) -> list[torch.Tensor]:
    if isinstance(out, torch.Tensor):
        return [out]
    return [t for part in out for t in flat(part)]


def same(mine: Any, wanted: Any) -> None:
    torch.testing.assert_close(flat(mine), flat(wanted))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@every_case
def test_forward(info: Any, training: bool, dtype: torch.dtype) -> None:
    for module, f, sample in samples(info, training, dtype):
        with freeze_rng_state():
            out = module(*f.args, **f.kwargs)
        same(out, sample.reference_fn(module, *f.args, **f.kwargs))
        theirs = _theirs[info.module_cls.__name__](*sample.constructor_input.args, **sample.constructor_input.kwargs, dtype=dtype)
        theirs.load_state_dict(module.state_dict())
        same(out, theirs(*f.args, **f.kwargs))


@every_case
def test_factory_kwargs(info: Any, training: bool) -> None:
    for _, _, sample in samples(info, training):
        c = sample.constructor_input
        for device in ("cpu", "meta"):
            for dtype in (torch.float32, torch.float64, torch.bfloat16):
                module = info.module_cls(*c.args, **c.kwargs, device=device, dtype=dtype)
                assert {(p.device.type, p.dtype) for p in module.parameters()} == {(device, dtype)}
        with torch.device("meta"):
            assert next(info.module_cls(*c.args, **c.kwargs).parameters()).is_meta


@every_case
def test_errors(info: Any, training: bool) -> None:
    for sample in info.module_error_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=training):
        error = sample.module_error_input
        c, f = error.constructor_input, error.forward_input
        if sample.error_on is common_modules.ModuleErrorEnum.CONSTRUCTION_ERROR:
            with pytest.raises(sample.error_type, match=sample.error_regex):
                info.module_cls(*c.args, **c.kwargs)
            continue
        module = info.module_cls(*c.args, **c.kwargs).train(training)
        with pytest.raises(sample.error_type, match=sample.error_regex):
            module(*f.args, **f.kwargs)


@every_case
def test_repr(info: Any, training: bool) -> None:
    for module, _, sample in samples(info, training):
        c = sample.constructor_input
        assert repr(module) == str(module) == repr(_theirs[info.module_cls.__name__](*c.args, **c.kwargs))


@every_case
def test_pickle_deepcopy_and_save(info: Any, training: bool) -> None:
    for module, f, _ in samples(info, training):
        out = module(*f.args, **f.kwargs)
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        copies = [pickle.loads(pickle.dumps(module)), copy.deepcopy(module), torch.load(file, weights_only=False)]
        for other in copies:
            assert other.training == training
            assert not {p.data_ptr() for p in other.parameters()} & {p.data_ptr() for p in module.parameters()}
            assert all(a is b for a, b in zip(other._flat_weights, other.parameters()))
            same(other(*f.args, **f.kwargs), out)
        state = io.BytesIO()
        torch.save(module.state_dict(), state)
        state.seek(0)
        fresh = copies[1]
        fresh.reset_parameters()
        fresh.load_state_dict(torch.load(state))
        same(fresh(*f.args, **f.kwargs), out)


def with_layout(value: Any) -> Any:
    """The same values, not contiguous."""
    if isinstance(value, torch.Tensor):
        if value.numel() < 2:
            return value
        spread = torch.repeat_interleave(value.detach(), 2, dim=-1)[..., ::2]
        assert not spread.is_contiguous()
        return spread.requires_grad_(value.requires_grad)
    return tuple(with_layout(v) for v in value)


def gradients_of(module: Any, out: Any, inputs: Any) -> list[Any]:
    tensors = [t for t in [*flat(inputs), *module.parameters()] if t.requires_grad]
    torch.manual_seed(1)
    used = [t for t in flat(out) if t.requires_grad]
    return list(torch.autograd.grad(used, tensors, [torch.randn_like(t) for t in used]))


@every_case
def test_non_contiguous(info: Any, training: bool) -> None:
    for module, f, _ in samples(info, training, requires_grad=True):
        out = module(*f.args)
        wanted = gradients_of(module, out, f.args)
        for change_inputs, change_parameters in ((True, False), (False, True), (True, True)):
            args = with_layout(f.args) if change_inputs else f.args
            other = copy.deepcopy(module)
            if change_parameters:
                for p in other.parameters():
                    p.data = with_layout(p.data)
            again = other(*args)
            same(again, out)
            same(gradients_of(other, again, args), wanted)


@every_case
def test_grad(info: Any, training: bool) -> None:
    for module, f, _ in samples(info, training, requires_grad=True):
        tensors = flat(f.args)

        def call(x: torch.Tensor, *states: torch.Tensor, module: Any = module, count: int = len(tensors)) -> Any:
            states, parameters = states[: count - 1], states[count - 1 :]
            hx = () if not states else (states[0],) if len(states) == 1 else (tuple(states),)
            named = dict(zip(dict(module.named_parameters()), parameters))
            with freeze_rng_state():
                return tuple(flat(torch.func.functional_call(module, named, (x, *hx))))

        inputs = (*tensors, *module.parameters())
        assert gradcheck(call, inputs, check_batched_grad=False, nondet_tol=info.gradcheck_nondet_tol, fast_mode=True)


@every_case
def test_to_other_dtypes(info: Any, training: bool) -> None:
    for module, f, _ in samples(info, training):
        out = module(*f.args)
        module.float()
        assert {p.dtype for p in module.parameters()} == {torch.float32}
        assert all(a is b for a, b in zip(module._flat_weights, module.parameters()))
        module.double()
        torch.testing.assert_close(flat(module(*f.args)), flat(out), rtol=1e-4, atol=1e-4)
        module.to("meta")
        assert {p.device.type for p in module.parameters()} == {"meta"}
        module.to_empty(device="cpu")
        assert {p.device.type for p in module.parameters()} == {"cpu"}


@pytest.mark.parametrize("info", [pytest.param(info, id=info.module_cls.__name__) for info in INFOS])
def test_train_and_eval_modes(info: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 2, 3)
    module = info.module_cls(3, 4, 2, dropout=0.5)
    torch.manual_seed(1)
    first, second = module(x)[0], module(x)[0]
    assert not torch.equal(first, second)
    module.eval()
    same(module(x), module(x))
    assert module.train().training


@pytest.mark.parametrize("info", [pytest.param(info, id=info.module_cls.__name__) for info in INFOS])
def test_share_memory_and_multiple_devices_of_parameters(info: Any) -> None:
    module = info.module_cls(3, 4, 2).share_memory()
    assert all(p.is_shared() for p in module.parameters())
    assert module(torch.randn(5, 2, 3))[0].shape == (5, 2, 4)
