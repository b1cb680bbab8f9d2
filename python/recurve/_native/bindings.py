"""The adapters for frameworks: librecurve_bindings.so, and networks by their descriptions (bindings/call/call.h)."""

from __future__ import annotations

import atexit
import ctypes
import functools

from recurve._native import errors, loader


@functools.cache
def bindings() -> ctypes.CDLL:
    """The library of adapters."""
    loader.native()  # the core must be there first
    lib = ctypes.CDLL(loader.path(loader.BINDINGS), mode=ctypes.RTLD_LOCAL)
    lib.rcvb_message.restype = ctypes.c_char_p
    lib.rcvb_net.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)]
    lib.rcvb_forget.argtypes = [ctypes.c_uint64]
    lib.rcvb_forget.restype = None
    lib.rcvb_unpack.argtypes = [ctypes.c_int64, ctypes.c_int64] + [ctypes.c_void_p] * 4
    lib.rcvb_unpack.restype = ctypes.c_int64
    lib.rcvb_cut.argtypes = [ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    lib.rcvb_cut.restype = ctypes.c_int64
    lib.rcvb_wait_for_searches.argtypes = []
    lib.rcvb_wait_for_searches.restype = None
    lib.rcvb_stop_searches.argtypes = []
    lib.rcvb_stop_searches.restype = None
    atexit.register(lib.rcvb_stop_searches)  # their threads may not outlive what they call
    return lib


def message() -> str:
    """The sentence about the adapters' last failure on this thread."""
    text: bytes = bindings().rcvb_message()
    return text.decode("utf-8", "replace")


def check(status: int) -> None:
    """Raises the exception for a status of the adapters that is not OK."""
    if status != errors.OK:
        raise errors.exception(status, message())


def describe(cell: str, **options: object) -> str:
    """The description of a network: a line of options, and the cell. Options that are false or zero are left out."""
    words = []
    for name, value in options.items():
        if value:
            number = int(value) if isinstance(value, bool) else value
            words.append(f"{name}={number!r}")
    return " ".join(words) + "\n" + cell


def find_net(description: str) -> int:
    """The network of a description, which is valid for the life of the process."""
    text, pointer = description.encode(), ctypes.c_void_p()
    check(bindings().rcvb_net(text, len(text), ctypes.byref(pointer)))
    assert pointer.value is not None
    return pointer.value
