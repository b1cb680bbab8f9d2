"""The tests run against an installed package, or against a checkout with RECURVE_LIBRARY_FOLDER and PYTHONPATH."""

import importlib.util
import os
import signal
import tempfile

# A shell starts programs in the background with Ctrl-C ignored, which tests send themselves.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Plans of these tests are not kept: the variable is read when the library is first used.
_cache = tempfile.TemporaryDirectory(prefix="recurve-tests-")
os.environ["RECURVE_CACHE"] = _cache.name

# Programs of these tests are small, and compiling them takes most of the time.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"

# Where PyTorch is missing its name finds the folder of its tests, which is no package and has no file of its own.
_torch = importlib.util.find_spec("torch")
collect_ignore = [] if _torch and _torch.origin else ["torch"]
