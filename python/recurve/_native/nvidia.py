"""Where the nvidia-* packages have their libraries: cuBLASLt, NVRTC, cuDNN and NCCL, which the library opens when a GPU is used."""

from __future__ import annotations

import importlib.util
import os


def folders() -> list[str]:
    """Folders with shared libraries of the packages that can be imported, in the order of the import path."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):  # something else that has the name
        return []
    found = []
    for package in (spec.submodule_search_locations if spec else None) or ():
        try:
            names = sorted(os.listdir(package))
        except OSError:
            continue
        paths = [os.path.join(package, name, "lib") for name in names]
        found += [path for path in paths if os.path.isdir(path) and ":" not in path]
    return found
