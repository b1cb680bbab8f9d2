"""The tests run against an installed package, or against a checkout with RECURVE_LIBRARY_FOLDER and PYTHONPATH."""

import os
import tempfile

# Plans of these tests are not kept: the variable is read when the library is first used.
_cache = tempfile.TemporaryDirectory(prefix="recurve-tests-")
os.environ["RECURVE_CACHE"] = _cache.name
