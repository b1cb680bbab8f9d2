"""Text from a language model, piece by piece, from a thread of its own."""

from __future__ import annotations

import codecs
import ctypes
import queue
import threading
from collections.abc import Iterator
from typing import Any

from recurve._native import api
from recurve._native.loader import Handle, native


def generate_pieces(learner: Handle, lock: threading.Lock, options: api.Generation) -> Iterator[str]:
    """Pieces of the text as they are made. The thread ends when nobody reads them any more."""
    # The queue has no limit: the thread always comes to an end, and other calls wait for it only until then.
    pieces: queue.SimpleQueue[bytes | BaseException | None] = queue.SimpleQueue()
    ended = threading.Event()

    def put(_: Any, text: int, length: int) -> bool:
        pieces.put(ctypes.string_at(text, length))
        return not ended.is_set()

    def work() -> None:
        try:
            with lock:
                native().rcv_learner_generate(learner, ctypes.byref(options), api.Emit(put), None)
            pieces.put(None)
        except BaseException as error:
            pieces.put(error)

    thread = threading.Thread(target=work, name="recurve-generate")
    thread.start()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        while (piece := pieces.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            if text := decoder.decode(piece):
                yield text
        if text := decoder.decode(b"", True):
            yield text
    finally:
        ended.set()
        thread.join()
