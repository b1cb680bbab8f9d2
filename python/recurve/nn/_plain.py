"""torch.nn's own modules with the parameters of ours."""

from __future__ import annotations

from typing import Any

from torch import nn

from recurve.nn._takeover import plainly


class _Plain:
    """Runs by PyTorch's kernels, also during a takeover."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with plainly():
            return super().forward(*args, **kwargs)  # type: ignore[misc]


class PlainLSTM(_Plain, nn.LSTM):
    """torch.nn.LSTM."""


class PlainGRU(_Plain, nn.GRU):
    """torch.nn.GRU."""


class PlainRNN(_Plain, nn.RNN):
    """torch.nn.RNN."""


def make_plain(module: Any) -> nn.RNNBase:
    """The module of torch.nn with the same parameters."""
    options = {
        "num_layers": module.num_layers,
        "bias": module.bias,
        "batch_first": module.batch_first,
        "dropout": module.dropout,
        "bidirectional": module.bidirectional,
        "device": "meta",
    }
    made: nn.RNNBase
    if module.mode == "LSTM":
        made = PlainLSTM(module.input_size, module.hidden_size, proj_size=module.proj_size, **options)
    elif module.mode == "GRU":
        made = PlainGRU(module.input_size, module.hidden_size, **options)
    else:
        made = PlainRNN(module.input_size, module.hidden_size, nonlinearity=module.nonlinearity, **options)
    for name in module._flat_weights_names:
        setattr(made, name, getattr(module, name))
    made._init_flat_weights()
    return made.train(module.training)
