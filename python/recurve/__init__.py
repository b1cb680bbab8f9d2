"""Recurrent networks from a cell's equations, on CPUs and GPUs.

    model = recurve.Model("lstm", input=8, hidden=32)      # a network on NumPy arrays
    y, states = model.run(x)                               # x: [steps, batch, input]
    cell = recurve.compile("cell rnn(x) { ... }")          # equations of your own
    result = recurve.train("book.txt", hidden=256)         # trains on a text or on sequences
    print(result.model.generate("It was "))

`recurve.nn` has modules for PyTorch, `recurve.jax` functions for JAX. Nothing of these is imported before it is used.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # type checkers take it as true; importing typing takes most of the time of the import
if TYPE_CHECKING:
    from recurve import jax as jax, nn as nn
    from recurve._native.errors import CellError, Stopped
    from recurve.cells import Equations, Stage, builtin_cells, compile
    from recurve.evaluation import Evaluation
    from recurve.model import Gradients, Model
    from recurve.nn import Takeover, takeover
    from recurve.plans import Candidate, Plans
    from recurve.predictor import Predictions, Predictor, load
    from recurve.scans import ScanGradients, scan, scan_gradients
    from recurve.stream import Stream
    from recurve.training import Curves, Progress, TrainingResult, presets, settings, train

__version__ = "0.1.0"

# The module that has a name. It is imported when the name is first used.
_MODULE_OF = {
    "CellError": "_native.errors",
    "Stopped": "_native.errors",
    "Equations": "cells",
    "Stage": "cells",
    "builtin_cells": "cells",
    "compile": "cells",
    "Gradients": "model",
    "Model": "model",
    "Candidate": "plans",
    "Plans": "plans",
    "Evaluation": "evaluation",
    "Predictions": "predictor",
    "Predictor": "predictor",
    "load": "predictor",
    "ScanGradients": "scans",
    "scan": "scans",
    "scan_gradients": "scans",
    "Stream": "stream",
    "Curves": "training",
    "Progress": "training",
    "TrainingResult": "training",
    "presets": "training",
    "settings": "training",
    "train": "training",
    "Takeover": "nn",
    "takeover": "nn",
}
_SUBMODULES = ("jax", "nn")  # each imports its framework

__all__ = [
    "Candidate",
    "CellError",
    "Curves",
    "Equations",
    "Evaluation",
    "Gradients",
    "Model",
    "Plans",
    "Predictions",
    "Predictor",
    "Progress",
    "ScanGradients",
    "Stage",
    "Stopped",
    "Stream",
    "Takeover",
    "TrainingResult",
    "__version__",
    "builtin_cells",
    "compile",
    "load",
    "presets",
    "scan",
    "scan_gradients",
    "settings",
    "takeover",
    "train",
]


if not TYPE_CHECKING:  # a type checker refuses names that are not there

    def __getattr__(name: str) -> object:
        if name in _MODULE_OF:
            value: object = getattr(importlib.import_module(f"recurve.{_MODULE_OF[name]}"), name)
            globals()[name] = value
            return value
        if name in _SUBMODULES:
            return importlib.import_module(f"recurve.{name}")
        raise AttributeError(f"module 'recurve' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
