"""A cell's canonical equations as Python objects, and their evaluation with PyTorch's operations."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_TOKEN = re.compile(r"\s*(?:(\d[\d.]*(?:[eE][-+]?\d+)?)|([A-Za-z_]\w*)|(.))")

_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "exp": torch.exp,
    "log": torch.log,
    "softplus": torch.nn.functional.softplus,
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "min": torch.minimum,
    "max": torch.maximum,
    "sum": lambda v: v.sum(-1, keepdim=True),
    "mean": lambda v: v.mean(-1, keepdim=True),
    "layernorm": lambda v: torch.nn.functional.layer_norm(v, v.shape[-1:]),
}

Node = tuple[Any, ...]


class _Parser:
    """sum := product { ("+" | "-") product }, and so on: the grammar of docs/CELLS.md. Nodes are tuples that begin with their kind."""

    def __init__(self, text: str, matrices: set[str]) -> None:
        self.tokens = [m.group(m.lastindex or 0) for m in _TOKEN.finditer(text) if m.group().strip()]
        self.at = 0
        self.matrices = matrices

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def binary(self, operators: str, operand: Callable[[], Node]) -> Node:
        left = operand()
        while self.peek() and self.peek() in operators:
            left = (self.take(), left, operand())
        return left

    def sum(self) -> Node:
        return self.binary("+-", self.product)

    def product(self) -> Node:
        return self.binary("*/", self.unary)

    def unary(self) -> Node:
        if self.peek() == "-":
            self.take()
            return ("negate", self.unary())
        return self.application()

    def application(self) -> Node:
        if self.peek() in self.matrices:
            return ("multiply", self.take(), self.application())
        return self.primary()

    def primary(self) -> Node:
        token = self.take()
        if token == "(":
            inner = self.sum()
            self.take()
            return inner
        if token[0].isdigit():
            return ("number", float(token))
        if self.peek() == "(":
            self.take()
            arguments = [self.sum()]
            while self.take() == ",":
                arguments.append(self.sum())
            return ("call", token, arguments)
        if self.peek() == "'":
            self.take()
            return ("next", token)
        if self.peek() == "[":
            for _ in range(3):  # [ t -
                self.take()
            lag = int(self.take())
            self.take()
            return ("lag", token, lag)
        return ("name", token)


class Equations:
    """A parsed cell. `description` is the cell's JSON description."""

    def __init__(self, description: dict[str, Any]) -> None:
        lines = [line.strip() for line in description["equations"].splitlines()]
        self.input = lines[0][lines[0].index("(") + 1 : lines[0].index(")")]
        self.parameters = description["parameters"]
        self.states = [s["name"] for s in description["states"] if "[" not in s["name"]]
        parts = [(part, p) for p in self.parameters for part in p["stacks"]]
        matrices = {part.split(".")[1] for part, p in parts if "columns" in p} - {"shortcut"}
        self.values: dict[str, Node] = {}
        self.result: Node = ()
        self.lags: dict[str, int] = {}
        for line in lines[1:]:
            if line.startswith("return "):
                self.result = _Parser(line[len("return ") :], matrices).sum()
            elif re.match(r"\w+('|\[\w+\])?\s*=", line) and not line.startswith(("size ", "vector ", "matrix ")):
                name, text = line.split("=", 1)
                self.values[re.sub(r"\[.*", "", name).strip()] = _Parser(text, matrices).sum()
        for node in (*self.values.values(), self.result):
            self._find_lags(node)

    def _find_lags(self, node: Any) -> None:
        if isinstance(node, list | tuple):
            if node and node[0] == "lag":
                self.lags[node[1]] = max(self.lags.get(node[1], 0), node[2])
            for part in node:
                self._find_lags(part)


class Step:
    """One time step: evaluates values when they are asked for, each once."""

    def __init__(
        self,
        equations: Equations,
        weights: dict[str, Tensor],
        x: Tensor,
        states: dict[str, Tensor],
        lags: dict[str, list[Tensor]],
    ) -> None:
        self.equations, self.weights, self.x, self.states, self.lags = equations, weights, x, states, lags
        self.known: dict[str, Tensor] = {}

    def value(self, name: str) -> Tensor:
        if name not in self.known:
            value = self.evaluate(self.equations.values[name], name.rstrip("'"))
            if name.endswith("'"):
                value = value.expand_as(self.states[name[:-1]])
            self.known[name] = value
        return self.known[name]

    def multiply(self, key: str, v: Tensor) -> Tensor:
        weight = self.weights[key]
        if v.dim() == 0:  # a lag before the first step
            v = v.expand(weight.shape[-1] * (weight.shape[0] if weight.dim() == 3 else 1))
        if weight.dim() == 2:
            return v @ weight.T
        blocks = v.view(*v.shape[:-1], weight.shape[0], weight.shape[2])
        return torch.einsum("...bi,boi->...bo", blocks, weight).flatten(-2)

    def evaluate(self, node: Node, equation: str) -> Any:
        kind, *rest = node
        if kind in "+-*/" and len(rest) == 2:
            a, b = (self.evaluate(part, equation) for part in rest)
            return a + b if kind == "+" else a - b if kind == "-" else a * b if kind == "*" else a / b
        if kind == "negate":
            return -self.evaluate(rest[0], equation)
        if kind == "number":
            return torch.tensor(rest[0], dtype=self.x.dtype, device=self.x.device)
        if kind == "multiply":
            return self.multiply(f"{equation}.{rest[0]}", self.evaluate(rest[1], equation))
        if kind == "call":
            arguments = [self.evaluate(part, equation) for part in rest[1]]
            if rest[0] == "shortcut":
                key = f"{equation}.shortcut"
                return self.multiply(key, arguments[0]) if key in self.weights else arguments[0]
            return _FUNCTIONS[rest[0]](*arguments)
        if kind == "next":
            return self.value(rest[0] + "'")
        if kind == "lag":
            return self.lags[rest[0]][rest[1] - 1]
        name = rest[0]
        if name == self.equations.input:
            return self.x
        if name in self.states:
            return self.states[name]
        if f"{equation}.{name}" in self.weights:
            return self.weights[f"{equation}.{name}"]
        return self.value(name)
