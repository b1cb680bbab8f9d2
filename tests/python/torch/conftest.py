"""Tests of recurve.nn: those marked slow take more than some seconds."""

import pytest

torch = pytest.importorskip("torch")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes more than some seconds")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(20)


@pytest.fixture(params=("LSTM", "GRU", "RNN"))
def name(request):
    return request.param
