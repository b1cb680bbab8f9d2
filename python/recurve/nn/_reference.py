"""Any network of a cell with PyTorch's own operations, step by step: slow, and differentiable as often as one likes."""

# mypy: disable-error-code=no-untyped-call

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from recurve.nn._equations import Equations, Step


class Reference(nn.Module):
    """A network of a cell. The parameters are those of the module it was made from, under the same names.

    Takes and returns what that module does: input [steps, batch, features] (or with batch_first [batch, steps, features]), states one
    tensor a state.
    """

    def __init__(
        self,
        description: dict[str, Any],
        parameters: dict[str, nn.Parameter],
        stored: dict[str, str],
        sizes: dict[str, int],
        layers: int,
        bidirectional: bool,
        batch_first: bool,
        dropout: float,
        variational: bool,
        zoneout: float,
    ) -> None:
        super().__init__()
        self.equations = Equations(description)
        self.state_sizes = {s["name"]: s["size"] for s in description["states"]}
        self.stored = stored
        self.sizes = sizes
        self.layers, self.directions = layers, 2 if bidirectional else 1
        self.batch_first = batch_first
        self.dropout, self.variational, self.zoneout = dropout, variational, zoneout
        for name, parameter in parameters.items():
            self.register_parameter(name, parameter)

    def _weights(self, layer: int, reverse: bool) -> dict[str, Tensor]:
        """By equation and symbol, such as i.W."""
        weights: dict[str, Tensor] = {}
        for p in self.equations.parameters:
            name = f"{p['name']}_l{layer}" + ("_reverse" if reverse else "")
            if name not in self.stored:
                if "columns" not in p:  # a bias that was left out; otherwise a shortcut where both sizes agree
                    weights.update((part, torch.zeros(())) for part in p["stacks"])
                continue
            whole: Tensor = getattr(self, self.stored[name])
            rows = [self.sizes[p["blocks"]]] * len(p["rows"]) if "blocks" in p else [self.sizes[r] for r in p["rows"]]
            weights.update(zip(p["stacks"], whole.split(rows), strict=True))
        return weights

    def _mix(self, before: Tensor, after: Tensor) -> Tensor:
        """Zoneout."""
        if not self.zoneout:
            return after
        if not self.training:
            return after + self.zoneout * (before - after)
        return torch.where(torch.rand_like(after) < self.zoneout, before, after)

    def _run_layer(
        self, x: Tensor, weights: dict[str, Tensor], first: dict[str, Tensor], lengths: Tensor | None, reverse: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        steps = x.shape[0]
        states = dict(first)
        outputs: list[Tensor] = [x] * steps
        past: list[dict[str, Tensor]] = []
        for t in reversed(range(steps)) if reverse else range(steps):
            there = None if lengths is None else (t < lengths).unsqueeze(-1)
            lags = {
                name: [self._lag(past, name, k, x, there) for k in range(1, most + 1)] for name, most in self.equations.lags.items()
            }
            step = Step(self.equations, weights, x[t], states, lags)
            after = {name: self._mix(states[name], step.value(name + "'")) for name in states}
            output = Step(self.equations, weights, x[t], states, lags)  # here a next value is that after zoneout
            output.known = {name + "'": value for name, value in after.items()}
            y = output.evaluate(self.equations.result, "return")
            kept = {name: x[t] if name == self.equations.input else step.value(name) for name in self.equations.lags}
            if there is not None:
                y = torch.where(there, y, torch.zeros_like(y))
                after = {name: torch.where(there, value, states[name]) for name, value in after.items()}
                kept = {name: torch.where(there, value, torch.zeros_like(value)) for name, value in kept.items()}
            past.append(kept)
            states = after
            outputs[t] = y
        return torch.stack(outputs), states

    def _lag(self, past: list[dict[str, Tensor]], name: str, k: int, x: Tensor, there: Tensor | None) -> Tensor:
        if len(past) >= k:
            return past[-k][name]
        if name == self.equations.input:
            return torch.zeros_like(x[0])
        return torch.zeros((), dtype=x.dtype, device=x.device)

    def forward(self, input: Tensor, hx: Any = None, *, lengths: Any = None) -> tuple[Tensor, Any]:
        """y and the final states of the cell's own states."""
        names = self.equations.states
        x = input.transpose(0, 1) if self.batch_first else input
        batch = x.shape[1]
        given = [hx] if isinstance(hx, Tensor) else hx
        lengths = None if lengths is None else torch.as_tensor(lengths, device=x.device)
        found: dict[str, list[Tensor]] = {name: [] for name in names}
        for layer in range(self.layers):
            if layer and self.dropout and self.training:
                mask_of = x[:1] if self.variational else x
                x = x * nn.functional.dropout(torch.ones_like(mask_of), self.dropout)
            ends = []
            for direction in range(self.directions):
                at = layer * self.directions + direction
                first = {}
                for s, name in enumerate(names):
                    zero = x.new_zeros(batch, self.sizes[self.state_sizes[name]])
                    first[name] = zero if given is None else given[s][at]
                y, states = self._run_layer(x, self._weights(layer, direction == 1), first, lengths, direction == 1)
                ends.append(y)
                for name in names:
                    found[name].append(states[name])
            x = torch.cat(ends, -1)
        final = tuple(torch.stack(found[name]) for name in names)
        y = x.transpose(0, 1) if self.batch_first else x
        return y, final[0] if len(final) == 1 else final
