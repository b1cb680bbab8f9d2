"""Recurrent networks as modules of PyTorch."""

from recurve.nn._cell import Cell
from recurve.nn._rnn import GRU, LSTM, RNN
from recurve.nn._takeover import takeover

__all__ = ["GRU", "LSTM", "RNN", "Cell", "takeover"]
