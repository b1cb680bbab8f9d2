"""Trained models: an embedding, a network and an output layer."""

from __future__ import annotations

import codecs
import ctypes
import functools
import math
import os
import queue
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from recurve import _arrays, _data
from recurve._arrays import Array, Dimension
from recurve._native import api, errors
from recurve._native.loader import Handle, context, encode_path, make, native
from recurve._settings import checkpoint_settings
from recurve._states import States
from recurve.model import Model, check_count
from recurve.stream import Stream

Output = Literal["default", "logits", "probabilities", "log_probabilities"]


@dataclass(frozen=True)
class Evaluation:
    """The loss of a model on data."""

    loss: float  #: mean, in nats for each token or example; of values the squared error
    counted: int  #: tokens or examples
    accuracy: float | None  #: of classes: the correct part, 0 to 1

    @property
    def perplexity(self) -> float:
        """exp(loss)"""
        return math.exp(self.loss) if self.loss < 700 else math.inf

    @property
    def bits(self) -> float:
        """The loss in bits: of a text of bytes, bits per byte."""
        return self.loss / math.log(2)


class Predictor:
    """A model that `recurve.train` or the command `recurve train` wrote.

    It predicts the next token of a text (kind stream or lines), or the class or values of a sequence. Methods may be
    called by several threads; calls follow each other.
    """

    def __init__(self, handle: Handle, path: str) -> None:
        library = native()
        self._handle = handle
        self._lock = threading.Lock()
        self._net = library.rcv_learner_net(handle)
        self._real = np.dtype(np.float64 if library.rcv_learner_dtype(handle) == api.FLOAT64 else np.float32)
        self._words: tuple[str, ...] | None = None
        self.path = path  #: of the file
        self.kind: str = api.KINDS[library.rcv_learner_kind(handle)]  #: stream, lines, classes or values
        self.device: str = library.rcv_learner_device(handle).decode()
        self.features: int = library.rcv_learner_features(handle)  #: of a time step; 0 where inputs are tokens
        self.outputs: int = library.rcv_learner_outputs(handle)  #: tokens, classes or values
        self.parameters: int = library.rcv_learner_parameter_elements(handle)  #: their number

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str = "cpu", dtype: str = "float32") -> Predictor:
        """A trained model from its file; with averaged parameters if the run has them.

        `dtype` is the type of the products: float32, float64, bfloat16, and on a GPU float16 and tfloat32.
        """
        if dtype not in api.DTYPES:
            raise ValueError(f"there is no dtype '{dtype}'; there are {', '.join(api.DTYPES)}")
        arguments = context(), encode_path(path), device.encode(), api.DTYPES[dtype]
        handle = make("rcv_learner_load", *arguments, free="rcv_learner_free", parents=(context(),))
        return cls(handle, os.fsdecode(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model without its run: safetensors, the whole file or nothing."""
        with self._lock:
            native().rcv_learner_save(self._handle, encode_path(path))

    # ---- what it is

    @property
    def is_text(self) -> bool:
        """Whether it predicts the next token of a text."""
        return self.kind in ("stream", "lines")

    @property
    def level(self) -> str | None:
        """word, byte, character or piece; None where inputs are numbers."""
        pointer = native().rcv_learner_vocabulary(self._handle)
        return None if pointer is None else api.LEVELS[native().rcv_vocabulary_level(pointer)]

    @property
    def vocabulary(self) -> tuple[str, ...] | None:
        """The tokens by number: words, characters, pieces as the tokenizer.json names them, or the 256 bytes as characters
        of Latin-1; None where inputs are numbers."""
        pointer = native().rcv_learner_vocabulary(self._handle)
        if pointer is not None and self._words is None:
            encoding = "latin-1" if self.level == "byte" else "utf-8"
            size = native().rcv_vocabulary_size(pointer)
            self._words = tuple(_token(pointer, i).decode(encoding, "replace") for i in range(size))
        return self._words

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes by number; None where there are none."""
        count = ctypes.c_size_t()
        names = native().rcv_learner_classes(self._handle, ctypes.byref(count))
        return tuple(names[i].decode("utf-8", "replace") for i in range(count.value)) if names else None

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The settings of the run that wrote the file."""
        return checkpoint_settings(encode_path(self.path)).as_dictionary()

    def __repr__(self) -> str:
        what = f"{len(self.vocabulary)} tokens" if self.vocabulary else f"{self.features} features"
        return f"<recurve.Predictor of {self.kind}: {what} to {self.outputs} outputs, {self.parameters} parameters>"

    # ---- inputs

    def encode(self, text: str | bytes) -> Array:
        """The tokens of a text, int64, as the model has read them in training.

        A model of words reads <eos> for the end of a line. A language model of words or lines reads it before the text,
        too; every other model of words after the text. Of characters and pieces, a language model of lines reads the token
        that ends a line before the text.
        """
        level, pointer = self.level, native().rcv_learner_vocabulary(self._handle)
        if level is None:
            raise ValueError(f"{self.path} reads numbers, not text")
        data = text.encode() if isinstance(text, str) else text
        if level == "byte":
            begin = b"\n" if self.kind == "lines" or (self.is_text and not data) else b""
            return np.frombuffer(begin + data, np.uint8).astype(np.int64)
        if level != "word":
            return self._encode(pointer, data)
        lines = data.split(b"\n")
        if not self.is_text and (lines[-1] or len(lines) == 1):
            lines.append(b"")
        words = [word for line in lines for word in (b"<eos>", *line.split())][0 if self.is_text else 1 :]
        return np.array([self._find(pointer, word) for word in words], np.int64)

    def _encode(self, vocabulary: int, data: bytes) -> Array:
        end = int(native().rcv_vocabulary_line_end(vocabulary))
        begin = [end] if self.kind == "lines" else []
        if self.kind == "stream" and not data:
            data = b"\n"
        count = ctypes.c_size_t()
        native().rcv_vocabulary_encode(vocabulary, data, len(data), None, 0, ctypes.byref(count))
        tokens = np.empty(count.value, np.int64)
        room = tokens.ctypes.data if count.value else None
        native().rcv_vocabulary_encode(vocabulary, data, len(data), room, count.value, ctypes.byref(count))
        return np.concatenate([np.array(begin, np.int64), tokens])

    def _find(self, vocabulary: int, word: bytes) -> int:
        library = native()
        token = int(library.rcv_vocabulary_find(vocabulary, word, len(word)))
        if token < 0:
            token = int(library.rcv_vocabulary_find(vocabulary, b"<unk>", 5))
        if token < 0:
            raise ValueError(f"the word '{word.decode('utf-8', 'replace')}' is not in the vocabulary of {self.path}")
        return token

    def _read(self, inputs: Any, lengths: Any) -> tuple[Array, Array | None]:
        """Sequences as one array [steps, batch] of tokens or [steps, batch, features] of numbers, and their lengths."""
        if isinstance(inputs, (str, bytes)):
            inputs = [inputs]
        if not isinstance(inputs, (list, tuple)):
            return self._take(inputs, lengths)
        if lengths is not None:
            raise TypeError("lengths are given with one array alone: each sequence of a list has its own")
        return self._pad([self._sequence(sequence, i) for i, sequence in enumerate(inputs)])

    def _take(self, value: Any, lengths: Any) -> tuple[Array, Array | None]:
        """An array [batch, steps, ...], turned."""
        array = _arrays.convert(value, np.float32 if self.features else np.int64, "x")
        if array.ndim == 2 and self.features == 1:
            array = array[:, :, None]
        last: list[Dimension] = [("features", self.features)] if self.features else []
        _arrays.check_shape(array, [("batch", None), ("steps", None), *last], "x")
        batch, steps = array.shape[:2]
        if steps == 0:
            raise ValueError("x has no time steps; there must be at least one")
        taken = None if lengths is None else _arrays.take_lengths(lengths, batch, steps)
        if not self.features:  # padding may be any number
            is_read = True if taken is None else np.arange(steps) < taken[:, None]
            _check_tokens(np.where(is_read, array, 0), self._tokens, "x")
        return np.ascontiguousarray(array.swapaxes(0, 1)), taken

    @property
    def _tokens(self) -> int:
        return int(native().rcv_vocabulary_size(native().rcv_learner_vocabulary(self._handle)))

    def _sequence(self, sequence: Any, index: int) -> Array:
        name = f"sequence {index}"
        if isinstance(sequence, (str, bytes)):
            return self.encode(sequence)
        if not self.features:
            return _check_tokens(_arrays.take(sequence, np.int64, [("steps", None)], name), self._tokens, name)
        array = _arrays.convert(sequence, np.float32, name)
        if array.ndim == 1 and self.features == 1:
            array = array.reshape(-1, 1)
        return _arrays.check_shape(array, [("steps", None), ("features", self.features)], name)

    def _pad(self, sequences: list[Array]) -> tuple[Array, Array]:
        lengths = np.array([len(sequence) for sequence in sequences], np.int64)
        if (lengths == 0).any():
            raise ValueError(f"sequence {int(np.flatnonzero(lengths == 0)[0])} is empty")
        shape = (int(lengths.max(initial=1)), len(sequences), *([self.features] if self.features else []))
        padded = np.zeros(shape, np.float32 if self.features else np.int64)
        for i, sequence in enumerate(sequences):
            padded[: len(sequence), i] = sequence
        return padded, lengths

    # ---- what it computes

    def predict(
        self,
        inputs: Any,
        lengths: Any = None,
        output: Output = "default",
        *,
        last: bool = False,
        threads: int = 0,
    ) -> Array:
        """Predicts from sequences without targets.

        `inputs` is a list of sequences of any length, each a text, numbers [steps, features] or tokens [steps]; a text;
        or one array of numbers [batch, steps, features] or tokens [batch, steps], then with `lengths` [batch].

        `output` is probabilities, log_probabilities or logits; by default probabilities of classes, logits of tokens.
        The result is [batch, outputs]. Of a language model it is [batch, steps, outputs], zero past a sequence's
        length, or with `last` [batch, outputs] after the last step.
        """
        check_count("threads", threads)
        if output not in api.OUTPUTS:
            raise ValueError(f"there is no output '{output}'; there are {', '.join(api.OUTPUTS)}")
        x, own_lengths = self._read(inputs, lengths)
        steps, batch = x.shape[:2]
        shape = (batch, self.outputs) if last or not self.is_text else (steps, batch, self.outputs)
        out = np.zeros(shape, self._real)
        callbacks = errors.Callbacks()
        data = api.Prediction(
            steps=steps,
            batch=batch,
            lengths=_arrays.address(own_lengths),
            output=api.OUTPUTS[output],
            last=last,
            out=out.ctypes.data,
            threads=threads,
            go_on=api.GoOn(callbacks.go_on),
            **{"x" if self.features else "tokens": x.ctypes.data},
        )
        with self._lock:
            callbacks.run(native().rcv_learner_predict, self._handle, ctypes.byref(data))
        return out if out.ndim == 2 else out.swapaxes(0, 1)

    def classify(self, inputs: Any, lengths: Any = None) -> list[str]:
        """Names of the likeliest classes of sequences, which are given as in `predict`."""
        classes = self.classes
        if classes is None:
            raise ValueError(f"{self.path} is a model of {self.kind}, not of classes")
        return [classes[i] for i in self.predict(inputs, lengths, "logits").argmax(axis=1)]

    @overload
    def generate(
        self,
        prompt: str = ...,
        tokens: int = ...,
        temperature: float = ...,
        top_k: int = ...,
        top_p: float = ...,
        seed: int = ...,
        *,
        stream: Literal[False] = ...,
        threads: int = ...,
    ) -> str: ...

    @overload
    def generate(
        self,
        prompt: str = ...,
        tokens: int = ...,
        temperature: float = ...,
        top_k: int = ...,
        top_p: float = ...,
        seed: int = ...,
        *,
        stream: Literal[True],
        threads: int = ...,
    ) -> Iterator[str]: ...

    def generate(
        self,
        prompt: str = "",
        tokens: int = 500,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 0.0,
        seed: int = 0,
        *,
        stream: bool = False,
        threads: int = 0,
    ) -> str | Iterator[str]:
        """Continues a text, and returns what was generated, without the prompt.

        tokens       bytes, characters, words or pieces to generate
        temperature  0: always the likeliest token; 1: the model's distribution
        top_k        sample from the k likeliest; 0: from all
        top_p        sample from the likeliest that together have this probability; 0: from all
        stream       return an iterator over pieces of the text, which a thread generates
        """
        for name, value in {"tokens": tokens, "top_k": top_k, "seed": seed, "threads": threads}.items():
            check_count(name, value)
        text = prompt.encode()
        options = api.Generation(
            prompt=text,
            prompt_bytes=len(text),
            count=tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            threads=threads,
        )
        return self._pieces(options) if stream else self._generate(options)

    def _generate(self, options: api.Generation) -> str:
        pieces: list[bytes] = []
        callbacks = errors.Callbacks()
        emit = api.Emit(callbacks.wrap(lambda _, text, length: pieces.append(ctypes.string_at(text, length))))
        with self._lock:
            callbacks.run(native().rcv_learner_generate, self._handle, ctypes.byref(options), emit, None)
        return b"".join(pieces).decode("utf-8", "replace")

    def _pieces(self, options: api.Generation) -> Iterator[str]:
        # The queue has no limit: the thread always comes to an end, and other calls wait for it only until then.
        pieces: queue.SimpleQueue[bytes | BaseException | None] = queue.SimpleQueue()
        ended = threading.Event()

        def put(_: Any, text: int, length: int) -> bool:
            pieces.put(ctypes.string_at(text, length))
            return not ended.is_set()

        def work() -> None:
            try:
                with self._lock:
                    native().rcv_learner_generate(self._handle, ctypes.byref(options), api.Emit(put), None)
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

    def evaluate(self, data: Any, batch: int = 1, *, threads: int = 0) -> Evaluation:
        """The loss on a file, on the test file of a folder, or on a pair of inputs and targets as in `recurve.train`.

        A text is read in `batch` parallel parts, each of which begins without context.
        """
        check_count("batch", batch)
        check_count("threads", threads)
        with tempfile.TemporaryDirectory(prefix="recurve-") as folder:
            handle = self._open_data(data, folder)
            result = self.evaluate_data(handle, batch, threads)
            handle.close()
        return result

    def evaluate_data(self, data: Handle, batch: int = 1, threads: int = 0) -> Evaluation:
        """The loss on data of the library."""
        callbacks = errors.Callbacks()
        options = api.EvaluationOptions(batch=batch, threads=threads, go_on=api.GoOn(callbacks.go_on))
        result = api.Evaluation()
        arguments = self._handle, data, ctypes.byref(options), ctypes.byref(result)
        with self._lock:
            callbacks.run(native().rcv_learner_evaluate, *arguments)
        return Evaluation(result.loss, result.counted, result.accuracy if self.kind == "classes" else None)

    def _open_data(self, data: Any, folder: str) -> Handle:
        if _data.is_examples(data):
            path = _data.write_examples(os.path.join(folder, "examples.jsonl"), data, self.kind)
        else:
            path = os.fsdecode(data)
            path = _data.find_part(path, _data.TEST) or path if os.path.isdir(path) else path
        count = ctypes.c_size_t()
        classes = native().rcv_learner_classes(self._handle, ctypes.byref(count))
        return _data.open_data(
            path,
            (self._handle,),
            level=api.LEVELS.index(self.level or "byte"),
            kind=api.KINDS.index(self.kind),
            vocabulary=None if self.level in ("byte", None) else native().rcv_learner_vocabulary(self._handle),
            classes=classes,
            class_count=count.value,
        )

    def stream(self, batch: int = 1, most: int = 1, output: Output = "default", *, threads: int = 0) -> Stream:
        """The model step by step: at every step what it predicts of the frames so far; see `Stream`.

        Frames are tokens [batch] or numbers [batch, features].
        """
        if output not in api.OUTPUTS:
            raise ValueError(f"there is no output '{output}'; there are {', '.join(api.OUTPUTS)}")
        for name, value in {"batch": batch, "most": most, "threads": threads}.items():
            check_count(name, value)
        options = api.StreamOptions(batch=batch, most=most, threads=threads, output=api.OUTPUTS[output])
        arguments = self._handle, ctypes.byref(options)
        with self._lock:
            handle = make("rcv_stream_new_learner", *arguments, free="rcv_stream_free", parents=(self._handle,))
        frame: Dimension = ("features", self.features) if self.features else ("", 0)
        dtype = np.dtype(np.float32 if self.features else np.int64)
        return Stream(
            handle,
            States(self._net, self._real),
            max(batch, 1),
            max(most, 1),
            (frame[0], self.features, dtype),
            ("outputs", self.outputs, self._real),
        )


def _token(vocabulary: int, index: int) -> bytes:
    length = ctypes.c_size_t()
    return ctypes.string_at(native().rcv_vocabulary_token(vocabulary, index, ctypes.byref(length)), length.value)


def _check_tokens(array: Array, count: int, name: str) -> Array:
    wrong = np.argwhere((array < 0) | (array >= count))
    if wrong.size:
        place = ", ".join(map(str, wrong[0]))
        raise ValueError(f"{name}[{place}] is {array[tuple(wrong[0])]}; a token is in 0..{count - 1}")
    return array


def load(path: str | os.PathLike[str], device: str = "cpu", dtype: str = "float32") -> Predictor | Model:
    """A model from a safetensors file: a `Predictor` of what was trained, or a `Model` where it is a network alone.

    `Predictor.load` and `Model.load` take one of the two, and `Model.load` also state dicts of PyTorch.
    """
    try:
        return Predictor.load(path, device, dtype)
    except ValueError as error:
        if "have no recurve.learner" not in str(error):
            raise
    return Model.load(path, device=device, dtype=dtype)


__all__ = ["Evaluation", "Output", "Predictor", "load"]
