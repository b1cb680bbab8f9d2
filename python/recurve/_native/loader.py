"""Finds and opens the shared libraries, and owns the context of the process."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import Any

import recurve
from recurve._native import api, errors, nvidia

CORE = "librecurve.so"
BINDINGS = "librecurve_bindings.so"  # adapters for torch and jax

_lock = threading.Lock()
_library: ctypes.CDLL | None = None
_context: Handle | None = None


def folders() -> list[str]:
    """Folders that may hold the libraries, in the order in which they are searched."""
    given = os.environ.get("RECURVE_LIBRARY_FOLDER")
    # An editable installation has two folders: one with the libraries, and the checkout with the Python files.
    return ([os.path.abspath(given)] if given else []) + [os.path.join(folder, "lib") for folder in recurve.__path__]


def path(name: str) -> str:
    """The path of a library of the package."""
    candidates = [os.path.join(folder, name) for folder in folders()]
    for candidate in candidates:
        if os.path.exists(candidate):
            return candidate
    raise ImportError(
        f"{name} is not in {' or '.join(map(os.path.dirname, candidates))}: reinstall the package with 'pip install "
        "--force-reinstall .' in a checkout, or set RECURVE_LIBRARY_FOLDER to the folder of a build"
    )


def _open() -> ctypes.CDLL:
    from recurve import __version__

    file = path(CORE)
    try:
        library = ctypes.CDLL(file, mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        raise ImportError(
            f"{file} cannot be loaded: {error}; reinstall the package, or the library that is missing"
        ) from error
    api.declare(library)
    version: bytes = library.rcv_version()
    if version.decode() != __version__:
        raise ImportError(
            f"{file} is version {version.decode()} and the Python package {__version__}: install both from one "
            "version, or set RECURVE_LIBRARY_FOLDER to the folder of a matching build"
        )
    library.rcv_libraries_set_folders(os.fsencode(":".join(nvidia.folders())))
    return library


def native() -> ctypes.CDLL:
    """The library, opened by the first call. Its functions raise an exception for a status that is not OK."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _open()
    return _library


class Handle:
    """An object of the library. It is freed when nothing refers to it, after the objects that were made from it."""

    __slots__ = ("__weakref__", "_finalizer", "pointer")

    def __init__(self, pointer: ctypes.c_void_p, free: str, *parents: Handle) -> None:
        self.pointer: ctypes.c_void_p | None = pointer
        # The finalizer refers to the parents, so that even the garbage collector frees them later.
        self._finalizer = weakref.finalize(self, _free, getattr(native(), free), pointer, parents)

    @property
    def _as_parameter_(self) -> ctypes.c_void_p | None:
        return self.pointer

    def close(self) -> None:
        """Frees the object now. Nothing may have been made from it that is still there."""
        self.pointer = None
        self._finalizer()

    def __reduce__(self) -> Any:
        raise TypeError("objects of the library cannot be pickled or copied: save the model to a file and load it")


def _free(free: Any, pointer: ctypes.c_void_p, parents: tuple[Handle, ...]) -> None:
    free(pointer)


def make(function: str, *arguments: Any, free: str, parents: tuple[Handle, ...] = ()) -> Handle:
    """Calls a function whose last argument receives a new object."""
    pointer = ctypes.c_void_p()
    getattr(native(), function)(*arguments, ctypes.byref(pointer))
    return Handle(pointer, free, *parents)


def context() -> Handle:
    """The context that all objects of the process share."""
    global _context
    library = native()
    if _context is None:
        with _lock:
            if _context is None:
                pointer = ctypes.c_void_p()
                library.rcv_context_new(None, ctypes.byref(pointer))
                _context = Handle(pointer, "rcv_context_free")
    return _context


def take_text(pointer: ctypes.c_void_p) -> str:
    """A text that the library returned through a `char **`, which is freed."""
    text = ctypes.cast(pointer, ctypes.c_char_p).value or b""
    native().rcv_text_free(context(), pointer)
    return text.decode("utf-8", "replace")


def text_of(function: str, *arguments: Any) -> str:
    """Calls a function whose last argument receives a text."""
    pointer = ctypes.c_void_p()
    getattr(native(), function)(*arguments, ctypes.byref(pointer))
    return take_text(pointer)


def encode_path(path: str | os.PathLike[str]) -> bytes:
    """A path as the library takes it."""
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("a path may not contain a NUL character")
    return name


__all__ = [
    "BINDINGS",
    "CORE",
    "Handle",
    "context",
    "encode_path",
    "errors",
    "folders",
    "make",
    "native",
    "path",
    "take_text",
    "text_of",
]
