"""Networks step by step, with their states kept between calls."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from recurve.nn import _operators

if TYPE_CHECKING:
    from recurve.nn._network import Network


class Stream:
    """A batch of sequences (rows) whose time steps arrive call by call. The states begin at zero and are on the module's device.

    Weights are packed once: reload() after the module's parameters changed. No gradients.

    >>> stream = module.stream(batch=4)
    >>> y = stream.step(x)  # x: [4, input], y: [4, output]
    """

    def __init__(self, module: Network, batch: int = 1) -> None:
        if batch < 1:
            raise ValueError(f"batch should be at least 1, got {batch}")
        self.batch = batch
        self._module = module
        self._frozen = 0
        self.reload()

    def reload(self) -> None:
        """Uses the parameters that the module has now; states stay as they are, on the module's device."""
        self.close()
        self._net = self._module._net
        known = _operators.shapes(self._net)
        self._weights = [w.detach() for w in self._module._weights()]
        self._input = self._module._input_size()
        self._like = self._weights[0] if self._weights else torch.empty(0)
        self._flags = _operators.products(self._like.dtype, self._like.is_cuda) | _operators.effort()
        self._frozen = secrets.randbits(62) + 1
        before = getattr(self, "_states", None)
        if before is None:
            self._states = [self._like.new_zeros(known.state_shape(i, self.batch)) for i in range(len(known.states))]
        else:
            self._states = [s.to(self._like) for s in before]

    def close(self) -> None:
        """Frees the packed weights."""
        if self._frozen:
            _operators.bindings().rcvb_forget(self._frozen)
            self._frozen = 0

    def __del__(self) -> None:
        if getattr(self, "_frozen", 0):
            self.close()

    def step(self, x: Tensor) -> Tensor:
        """Reads a time step of all rows, [batch, input], or several, [steps, batch, input]: the outputs, alike."""
        single = x.dim() == 2
        if x.shape[-2:] != (self.batch, self._input) or x.dim() not in (2, 3):
            raise RuntimeError(
                f"a stream of {self.batch} rows reads [{self.batch}, {self._input}] or [steps, {self.batch}, {self._input}], "
                f"got {list(x.shape)}"
            )
        if x.dtype != self._like.dtype or x.device != self._like.device:
            raise ValueError(f"input must be {self._like.dtype} on {self._like.device}, got {x.dtype} on {x.device}")
        with torch.no_grad(), _operators._below_autograd():
            y: Tensor
            y, *self._states = _operators._forward(
                self._net, x.unsqueeze(0) if single else x, self._weights, self._states, [], [], [], [], self._flags, self._frozen
            )
        return y.squeeze(0) if single else y

    def reset(self, rows: Any = None) -> None:
        """Sets the states of these rows (a mask or indices) to zero; None: of all."""
        for i, state in enumerate(self._states):
            if rows is None:
                self._states[i] = torch.zeros_like(state)
            elif state.dim() != 3:
                raise NotImplementedError("rows of a state whose size differs between layers cannot be reset alone")
            else:
                self._states[i] = state.clone()
                self._states[i][:, torch.as_tensor(rows, device=state.device)] = 0

    @property
    def states(self) -> Any:
        """The states, as the module returns them."""
        return self._module._give(self._states)

    @states.setter
    def states(self, hx: Any) -> None:
        given = self._module._list(hx)
        self._module._check_states(self._like.new_empty((1, self.batch, 0)), given, torch.tensor([self.batch]))
        self._states = [s.detach().to(self._like) for s in given]
