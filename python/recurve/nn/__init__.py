"""Recurrent networks as modules of PyTorch."""

from recurve.nn._cell import Cell
from recurve.nn._network import wait_for_plans
from recurve.nn._rnn import GRU, LSTM, RNN
from recurve.nn._scan import scan
from recurve.nn._stream import Stream
from recurve.nn._takeover import Takeover, takeover

__all__ = ["GRU", "LSTM", "RNN", "Cell", "Stream", "Takeover", "scan", "takeover", "wait_for_plans"]
