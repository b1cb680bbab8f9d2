"""What all modules share: calls of a network, packed weights, streams, plans."""

# mypy: disable-error-code=no-untyped-call

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.utils.rnn import PackedSequence

from recurve._native.loader import context
from recurve.nn import _operators
from recurve.nn._operators import (
    _dispatch_modes,
    _is_compiling,
    _is_function_mode_enabled,
    _is_grad_enabled,
    _is_profiled,
    _is_tracing,
    _transforms_active,
)
from recurve.nn._packed import Packing
from recurve.nn._sequences import read_lengths, read_resets
from recurve.nn._stream import Stream
from recurve.plans import Plans, make_plan, read_plan

if TYPE_CHECKING:
    from typing_extensions import Self

_is_any_autocast_enabled = torch._C._is_any_autocast_enabled
_allow_tf32 = torch._C._get_cudnn_allow_tf32
_is_deterministic = torch._C._get_deterministic_algorithms

# Constants of the quickest way, where a look-up in another module counts.
_infer_quickly = _operators.infer_quickly
_needs_grad, _products = _operators.needs_grad, _operators.products
_apply_quick_run, _QUICK_PLACE = _operators.apply_quick_run, _operators.QUICK_PLACE
_BATCH_FIRST, _ALLOW_TF32, _TRAINING = _operators.BATCH_FIRST, _operators.ALLOW_TF32, _operators.TRAINING
_IN_BACKGROUND = _operators.IN_BACKGROUND << _operators.EFFORT_SHIFT
_ESTIMATED = _operators.ESTIMATED << _operators.EFFORT_SHIFT


def wait_for_plans() -> None:
    """Waits until the searches for better plans that calls of modules have begun are done. The next calls use what they found.

    A search begins with the fourth call of a module with given sizes and types. Benchmarks wait; programs need not."""
    _operators.bindings().rcvb_wait_for_searches()


class Network(nn.Module):
    """A module whose forward pass is one call of a network. A class that derives from it sets _net and _training_net, the descriptions for
    evaluation and for training, _address _random, whether training draws random numbers, and _names."""

    _net: str
    _address: int  # of the network of _net
    _training_net: str
    _random: bool
    _names: tuple[str, ...]  # attributes with the parameters, in the library's order
    _frozen: int
    batch_first: bool
    bidirectional: bool

    def _weights(self) -> list[Tensor]:
        names = self._names
        if torch.compiler.is_compiling():
            return [getattr(self, name) for name in names]
        own = self._parameters
        try:
            return list(map(own.__getitem__, names))  # type: ignore[arg-type]
        except KeyError:  # parametrised, as by weight_norm
            return [getattr(self, name) for name in names]

    # ---- inference with packed weights ----

    def freeze(self) -> Self:
        """Keeps packed weights from call to call, in evaluation mode without gradients. Call it again after the parameters changed."""
        self.unfreeze()
        self._frozen = secrets.randbits(62) + 1
        return self

    def unfreeze(self) -> Self:
        """Packs the weights in every call again."""
        if self.__dict__.get("_frozen"):
            _operators.bindings().rcvb_forget(self._frozen)
        self._frozen = 0
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        if self._frozen:
            self.freeze()

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        if self.__dict__.get("_frozen"):
            self.unfreeze()
        super()._apply(fn, recurse)
        return self

    def train(self, mode: bool = True) -> Self:
        """Sets training or evaluation mode. Training unfreezes."""
        if mode and self.__dict__.get("_frozen"):
            self.unfreeze()
        return super().train(mode)

    # ---- calls ----

    def _call_quickly(self, input: Any, states: list[Tensor] | tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        """A call without lengths and random numbers, past the dispatcher: y and the final states; None: it does not apply."""
        if (
            _is_compiling()
            or forward_ad._current_level >= 0
            or (self.training and self._random)
            or _is_any_autocast_enabled()
            or _dispatch_modes()
            or _is_function_mode_enabled()
            or _transforms_active()
            or _is_tracing()
            or _is_profiled()
            or _infer_quickly is None
        ):
            return None
        flags = _ESTIMATED if _is_deterministic() else _IN_BACKGROUND
        if self.batch_first:
            flags |= _BATCH_FIRST
        if _allow_tf32():
            flags |= _ALLOW_TF32
        if _is_grad_enabled():
            return self._train_quickly(input, states, flags)
        frozen = 0 if self.training else self._frozen
        found: tuple[Tensor, ...] | None = _infer_quickly(self._address, flags, frozen, input, self._parameters, self._names, states)
        return found

    def _train_quickly(self, input: Any, states: list[Tensor] | tuple[Tensor, ...], flags: int) -> tuple[Tensor, ...] | None:
        """The same where derivatives may be wanted."""
        if type(input) is not Tensor:
            return None
        own = self._parameters
        try:
            tensors = (*map(own.get, self._names), *states)
            if not _needs_grad(input, tensors):
                return None
        except (AttributeError, TypeError):  # something is no tensor: a parameter that is computed, or a mistake
            return None
        found: tuple[Tensor, ...] | None = _infer_quickly(self._address, flags | _TRAINING, 0, input, own, self._names, states)
        if found is None:
            return None
        flags = flags & ~_ALLOW_TF32 | _TRAINING | _products(input.dtype, input.is_cuda)
        call = self._address, flags, len(self._names), len(states), len(tensors), 0, 0, _QUICK_PLACE
        derived: tuple[Tensor, ...] = _apply_quick_run(self._net, call, found, (), input, *tensors)
        return derived

    def _call(
        self,
        input: Tensor,
        hx: list[Tensor],
        lengths: Any = None,
        resets: Any = None,
        restart: list[Tensor] | None = None,
        batch_first: bool = False,
        packing: Packing | None = None,
    ) -> list[Tensor]:
        """y and the final states, for input [steps, batch, features] or with batch_first [batch, steps, features]; with `packing` for rows."""
        device = input.device
        dtype = input.dtype
        if torch._C._is_any_autocast_enabled() and torch.is_autocast_enabled(device.type) and dtype != torch.float64:
            dtype = torch.get_autocast_dtype(device.type)
            input = input.to(dtype)
            hx = [h.to(dtype) for h in hx]
            restart = [r.to(dtype) for r in restart or []]
        flags = _operators.products(dtype, input.is_cuda) | _operators.effort()
        if batch_first:
            flags |= _operators.BATCH_FIRST
        net, frozen = self._net, self._frozen
        seed: list[Tensor] = []
        if self.training:
            frozen = 0
            if self._random:
                net = self._training_net
                flags |= _operators.TRAINING
                seed = [torch.randint(0, 2**63 - 1, (1,), device=device)]
        length_list: list[Tensor] = []
        reset_list: list[Tensor] = []
        if lengths is not None or resets is not None:
            steps, batch = (input.shape[1], input.shape[0]) if batch_first else (input.shape[0], input.shape[1])
            if lengths is not None:
                length_list = [read_lengths(lengths, steps, batch, device)]
            if resets is not None:
                reset_list = [read_resets(resets, steps, batch, batch_first, device)]
                if hx and not restart:
                    restart = [torch.zeros_like(h) for h in hx]
        if packing is not None:
            return _operators.run_packed(net, packing, input, self._weights(), hx, seed, flags, frozen)
        return _operators.run(net, input, self._weights(), hx, restart or [], length_list, reset_list, seed, flags, frozen)

    # ---- step by step, and plans ----

    def _input_size(self) -> int:
        raise NotImplementedError

    def stream(self, batch: int = 1) -> Stream:
        """Runs the network step by step: a batch of sequences with their states."""
        if self.bidirectional:
            raise ValueError("a bidirectional network reads a sequence from both ends: it has no stream")
        return Stream(self, batch)

    def plan(
        self, steps: int, batch: int, *, training: bool = False, lengths: bool = False, resets: bool = False, effort: str = "measure"
    ) -> Plans:
        """The plans for calls of these sizes with the module's dtype and device: their times, their memory, and why others cannot be used.

        training: forward and backward. effort: "estimate" runs nothing, "measure" times the promising ones, "exhaustive" all of them.
        str() of the result is a table. What is measured here is used by later calls of the module.
        """
        like = next(iter(self.parameters()), torch.empty(0))
        kind = _operators.array_type(like.dtype)
        options = {"data": kind, "states": kind, "parameters": kind, "gradients": kind, "separate_parameters": True}
        options |= {"training": training, "reserve": training, "lengths": lengths, "resets": resets}
        options |= {"batch_major": self.batch_first, "dtype": _operators.products(like.dtype, like.is_cuda)}
        device = "cpu" if like.device.type == "cpu" else f"cuda:{like.device.index or 0}"
        net = _operators.shapes(self._training_net if training else self._net).pointer
        plan = make_plan(
            net, context(), effort, no_vendor=True, steps=steps, batch=batch, device=device.encode(), threads=torch.get_num_threads(), **options
        )
        return read_plan(plan)

    # ---- what users give and get ----

    def _give(self, states: list[Tensor]) -> Any:
        """States as users get them."""
        return states[0]

    def _list(self, hx: Any) -> list[Tensor]:
        """The states as the library orders them."""
        return [] if hx is None else [hx]

    def _check_dims(self, input: Tensor, hx: Any) -> None:
        raise NotImplementedError

    def _check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        raise NotImplementedError

    def _check_states(self, input: Tensor, states: list[Tensor], batch_sizes: Tensor | None) -> None:
        raise NotImplementedError

    def _forward(
        self, input: Any, hx: Any, lengths: Any, resets: Any, restart: Any
    ) -> tuple[Any, list[Tensor]]:
        """The output as torch.nn gives it, and the final states."""
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx, lengths, resets, restart)
        self._check_dims(input, hx)
        if restart is not None and resets is None:
            raise ValueError("restart is the state after a reset: give resets, too")
        batched = input.dim() == 3
        batch_dim = 0 if self.batch_first else 1
        states, restarts = self._list(hx), self._list(restart)
        if not batched:
            input = input.unsqueeze(batch_dim)
            states, restarts = [h.unsqueeze(1) for h in states], [h.unsqueeze(1) for h in restarts]
            if resets is not None:
                resets = torch.as_tensor(resets).unsqueeze(batch_dim)
            if lengths is not None:
                lengths = torch.as_tensor(lengths).reshape(1)
        self._check_input(input, None)
        if states:
            self._check_states(input, states, None)
        if restarts:
            self._check_states(input, restarts, None)
        y, *final = self._call(input, states, lengths, resets, restarts, self.batch_first)
        if not batched:
            return y.squeeze(batch_dim), [h.squeeze(1) for h in final]
        return y, final

    def _forward_packed(
        self, packed: PackedSequence, hx: Any, lengths: Any, resets: Any, restart: Any
    ) -> tuple[PackedSequence, list[Tensor]]:
        if lengths is not None or resets is not None or restart is not None:
            raise ValueError("a PackedSequence has its own lengths, and takes no lengths, resets and restart: give a padded tensor")
        data, batch_sizes, sorted_indices, unsorted_indices = packed
        self._check_input(data, batch_sizes)
        states = self._list(hx)
        if states:
            if sorted_indices is not None:
                states = [h.index_select(1, sorted_indices) for h in states]
            self._check_states(data, states, batch_sizes)
        packing = Packing(batch_sizes, data.device)
        rows, *final = self._call(data, states, packing=packing)
        if unsorted_indices is not None:
            final = [h.index_select(1, unsorted_indices) for h in final]
        return PackedSequence(rows, batch_sizes, sorted_indices, unsorted_indices), final
