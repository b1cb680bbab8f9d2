"""A program that uses recurve.nn. It is not run: test_typing.py checks it with mypy --strict, which finds these types and no others."""

import recurve
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from typing_extensions import assert_type

x = torch.randn(5, 2, 8)
packed = pack_sequence([torch.randn(3, 8), torch.randn(2, 8)])

lstm = recurve.nn.LSTM(8, 16, 2, batch_first=True, dropout=0.1, proj_size=4, zoneout=0.1, variational=True, dtype=torch.float64)
y, (h, c) = lstm(x)
assert_type(lstm(x), tuple[Tensor, tuple[Tensor, Tensor]])
assert_type(lstm(x, (h, c), lengths=[5, 3], resets=torch.zeros(5, 2, dtype=torch.bool)), tuple[Tensor, tuple[Tensor, Tensor]])
assert_type(lstm(packed), tuple[PackedSequence, tuple[Tensor, Tensor]])
assert_type(lstm.freeze(), recurve.nn.LSTM)
assert_type(lstm.to("cpu").eval(), recurve.nn.LSTM)
assert_type(lstm.as_torch(), nn.RNNBase)

gru = recurve.nn.GRU(8, 16, bidirectional=True)
assert_type(gru(x), tuple[Tensor, Tensor])
assert_type(gru(packed, gru(x)[1]), tuple[PackedSequence, Tensor])
assert_type(recurve.nn.RNN(8, 16, nonlinearity="relu")(x, restart=None), tuple[Tensor, Tensor])

cell = recurve.nn.Cell("cell leaky(x) { state h  h' = 0.9 * h + 0.1 * tanh(W x)  return h' }", 8, 16, sizes={})
assert_type(cell(x)[0], Tensor)
assert_type(cell.state_names, list[str])
assert_type(cell.as_torch(), nn.Module)

stream = gru.stream(batch=2)
assert_type(stream, recurve.nn.Stream)
assert_type(stream.step(x[0]), Tensor)
assert_type(gru.plan(5, 2).chosen.schedule, str)
with recurve.takeover() as taken:
    assert_type(taken, recurve.Takeover)

recurve.nn.LSTM("8", 16)  # type: ignore[arg-type]
recurve.nn.GRU(8, 16, proj_size=4)  # type: ignore[call-arg]
gru(x, (h, c))  # type: ignore[call-overload]
lstm(packed, lengths=[3, 2])  # type: ignore[call-overload]
gru.streams()  # type: ignore[operator]
recurve.modle  # type: ignore[attr-defined]
