"""The tests run against an installed package, or against a checkout with RECURVE_LIBRARY_FOLDER and PYTHONPATH."""

import importlib.util
import os
import signal
import sys
import tempfile

import pytest

# A shell starts programs in the background with Ctrl-C ignored, which tests send themselves.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Plans of these tests are not kept: the variable is read when the library is first used.
_cache = tempfile.TemporaryDirectory(prefix="recurve-tests-")
os.environ["RECURVE_CACHE"] = _cache.name

# Programs of these tests are small, and compiling them takes most of the time.
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 " + os.environ.get("XLA_FLAGS", "")

# On a GPU, JAX takes most of its memory when it starts: tests start other processes that need some.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# Where PyTorch is missing its name finds the folder of its tests, which is no package and has no file of its own.
_torch = importlib.util.find_spec("torch")
collect_ignore = [] if _torch and _torch.origin else ["torch"]


def pytest_generate_tests(metafunc):
    """Tests with the fixture `place` run on each kind of device that JAX has."""
    if "place" in metafunc.fixturenames:
        devices = sys.modules["jax"].devices()
        metafunc.parametrize("place", ["cpu", "cuda"] if devices[0].platform == "gpu" else ["cpu"], indirect=True)


@pytest.fixture
def place(request):
    """"cpu" or "cuda": JAX's default device while a test runs, in all threads."""
    jax = sys.modules["jax"]
    before = jax.config.jax_default_device
    jax.config.update("jax_default_device", jax.devices(request.param)[0])
    yield request.param
    jax.config.update("jax_default_device", before)
