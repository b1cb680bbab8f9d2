"""Trained models: an embedding, a network and an output layer."""

from __future__ import annotations

import ctypes
import functools
import os
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from recurve import _arrays, _data, _examples, _files
from recurve._arrays import Array, Dimension
from recurve._generation import generate_pieces
from recurve._native import api, errors
from recurve._native.loader import Handle, context, encode_path, make, native, text_of
from recurve._settings import checkpoint_settings
from recurve._states import States
from recurve.evaluation import MOST_CLASSES, Evaluation, take_evaluation
from recurve.model import Model, check_count
from recurve.stream import Stream

Output = Literal["default", "logits", "probabilities", "log_probabilities"]


@dataclass(frozen=True)
class Predictions:
    """What a model predicts of a file."""

    names: tuple[str, ...]  #: of the sequences: those that the file has for them, or their numbers
    values: Any  #: [sequences, outputs]; where every time step has a prediction a list with [steps, outputs] for each
    classes: tuple[str, ...] | None  #: names of the classes, in the order of the outputs

    @property
    def labels(self) -> list[Any]:
        """Names of the likeliest classes of the sequences, or lists with those of their time steps."""
        if self.classes is None:
            raise ValueError("the model predicts values, not classes")
        return _name_classes(self.values, self.classes)


class Predictor:
    """A model that `recurve.train` or the command `recurve train` wrote.

    It predicts the next token of a text (kind stream or lines), or the class or values of a sequence, or of each of its
    time steps (step-classes and step-values). Methods may be called by several threads; calls follow each other.
    """

    def __init__(self, handle: Handle, path: str) -> None:
        library = native()
        self._handle = handle
        self._lock = threading.Lock()
        self._net = library.rcv_learner_net(handle)
        self._real = np.dtype(np.float64 if library.rcv_learner_dtype(handle) == api.FLOAT64 else np.float32)
        self._words: tuple[str, ...] | None = None
        self.path = path  #: of the file
        self.kind: str = api.KINDS[
            library.rcv_learner_kind(handle)
        ]  #: stream, lines, classes, values, step-classes, ...
        self.device: str = library.rcv_learner_device(handle).decode()
        self.features: int = library.rcv_learner_features(handle)  #: of a time step; 0 where inputs are tokens
        self.outputs: int = library.rcv_learner_outputs(handle)  #: tokens, classes or values
        self.parameters: int = library.rcv_learner_parameter_elements(handle)  #: their number
        self.predicts_steps: bool = library.rcv_learner_predicts_steps(
            handle
        )  #: at every time step, not once a sequence
        #: names of the columns that it was trained on, and of those that it predicts; empty where the data had none
        self.feature_names = _split_names(library.rcv_learner_feature_names(handle))
        self.target_names = _split_names(library.rcv_learner_target_names(handle))

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
        """The tokens by number: words, characters, names of pieces, or the 256 bytes as characters of Latin-1; None
        where inputs are numbers."""
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
        too; every other model of words after the text. Of characters and pieces, a language model of lines reads the
        token that ends a line before the text.
        """
        level, pointer = self.level, native().rcv_learner_vocabulary(self._handle)
        if level is None:
            raise ValueError(f"{self.path} reads numbers, not text")
        data = text.encode() if isinstance(text, str) else text
        is_words = level == "word"
        if self.kind == "stream" and not is_words and not data:
            data = b"\n"
        begins = self.kind == "lines" or (is_words and self.is_text)
        ends = is_words and not self.is_text and not data.endswith(b"\n")
        end = np.array([native().rcv_vocabulary_line_end(pointer)], np.int64)
        return np.concatenate([end] * begins + [_encode(pointer, data)] + [end] * ends)

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

    @overload
    def predict(
        self,
        inputs: list[Any] | tuple[Any, ...],
        lengths: Any = ...,
        output: Output = ...,
        *,
        last: bool = ...,
        threads: int = ...,
    ) -> Any: ...

    @overload
    def predict(
        self, inputs: Any, lengths: Any = ..., output: Output = ..., *, last: bool = ..., threads: int = ...
    ) -> Array: ...

    def predict(
        self,
        inputs: Any,
        lengths: Any = None,
        output: Output = "default",
        *,
        last: bool = False,
        threads: int = 0,
    ) -> Any:
        """Predicts from sequences without targets.

        `inputs` is a list of sequences of any length, each a text, numbers [steps, features] or tokens [steps]; a text;
        or one array of numbers [batch, steps, features] or tokens [batch, steps], then with `lengths` [batch].

        `output` is probabilities, log_probabilities or logits; by default probabilities of classes, logits of tokens.
        The result is [batch, outputs]. Where the model predicts at every time step it is [batch, steps, outputs], zero
        past a sequence's length (of a list of numbers: a list with [steps, outputs] for each), or with `last`
        [batch, outputs] after the last step.
        """
        x, own_lengths = self._read(inputs, lengths)
        out = self._compute(x, own_lengths, output, last, threads)
        if out.ndim == 2:
            return out
        if self.is_text or own_lengths is None or lengths is not None:
            return out.swapaxes(0, 1)
        return _cut(out, own_lengths)

    def _compute(self, x: Array, lengths: Array | None, output: Output, last: bool, threads: int) -> Array:
        """Predictions of [steps, batch, ...]: [batch, outputs], or of every time step [steps, batch, outputs]."""
        check_count("threads", threads)
        if output not in api.OUTPUTS:
            raise ValueError(f"there is no output '{output}'; there are {', '.join(api.OUTPUTS)}")
        steps, batch = x.shape[:2]
        shape = (steps, batch, self.outputs) if self.predicts_steps and not last else (batch, self.outputs)
        out = np.zeros(shape, self._real)
        callbacks = errors.Callbacks()
        data = api.Prediction(
            steps=steps,
            batch=batch,
            lengths=_arrays.address(lengths),
            output=api.OUTPUTS[output],
            last=last,
            out=out.ctypes.data,
            threads=threads,
            go_on=api.GoOn(callbacks.go_on),
            **{"x" if self.features else "tokens": x.ctypes.data},
        )
        with self._lock:
            callbacks.run(native().rcv_learner_predict, self._handle, ctypes.byref(data))
        return out

    def predict_file(
        self, data: Any, output: Output = "default", *, last: bool = False, threads: int = 0
    ) -> Predictions:
        """Predicts from a file, or a DataFrame, which is read as the training data was: columns by their names, missing
        values and normalisation as then. Targets are not needed, and not read. Not for language models.
        """
        if self.is_text:
            raise ValueError(f"{self.path} is a language model: give predict() the text itself, or use evaluate()")
        values: list[Array] = []
        with tempfile.TemporaryDirectory(prefix="recurve-") as folder:
            opened = self._open_data(data, folder, unlabelled=True)
            names = _files.read_names(opened)
            for x, lengths in _files.read_blocks(opened, self.features):
                out = self._compute(x, lengths, output, last, threads)
                values += [out] if out.ndim == 2 else _cut(out, lengths)
            opened.close()
        if self.predicts_steps and not last:
            return Predictions(names, values, self.classes)
        return Predictions(names, np.concatenate(values or [np.zeros((0, self.outputs), self._real)]), self.classes)

    def classify(self, inputs: Any, lengths: Any = None, *, last: bool = False) -> list[Any]:
        """Names of the likeliest classes of sequences, which are given as in `predict`; of a model of step-classes a
        list of names for each sequence, or with `last` that of its last time step."""
        classes = self.classes
        if classes is None:
            raise ValueError(f"{self.path} is a model of {self.kind}, not of classes")
        x, own_lengths = self._read(inputs, lengths)
        out = self._compute(x, own_lengths, "logits", last, 0)
        if out.ndim == 2:
            return _name_classes(out, classes)
        steps, batch = x.shape[:2]
        return _name_classes(_cut(out, np.full(batch, steps) if own_lengths is None else own_lengths), classes)

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
        return generate_pieces(self._handle, self._lock, options) if stream else self._generate(options)

    def _generate(self, options: api.Generation) -> str:
        pieces: list[bytes] = []
        callbacks = errors.Callbacks()
        emit = api.Emit(callbacks.wrap(lambda _, text, length: pieces.append(ctypes.string_at(text, length))))
        with self._lock:
            callbacks.run(native().rcv_learner_generate, self._handle, ctypes.byref(options), emit, None)
        return b"".join(pieces).decode("utf-8", "replace")

    def evaluate(self, data: Any, batch: int = 0, *, threads: int = 0) -> Evaluation:
        """Loss and metrics on a file, on the test file of a folder, on a DataFrame, or on a pair of inputs and targets
        as in `recurve.train`.

        A text is read in `batch` parallel parts, each of which begins without context; 0: one part.
        """
        check_count("batch", batch)
        check_count("threads", threads)
        with tempfile.TemporaryDirectory(prefix="recurve-") as folder:
            handle = self._open_data(data, folder, unlabelled=False)
            result = self.evaluate_data(handle, batch, threads)
            handle.close()
        return result

    def evaluate_data(self, data: Handle, batch: int = 0, threads: int = 0) -> Evaluation:
        """Loss and metrics on data of the library."""
        return self._evaluate(data, batch, threads)[0]

    def test_data(self, data: Handle) -> tuple[Evaluation, bytes]:
        """The same, and as a line of a log."""
        found, result = self._evaluate(data, 0, 0)
        confusion = None if found.confusion is None else found.confusion.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))
        arguments = context(), self._handle, ctypes.byref(result), confusion
        return found, text_of("rcv_evaluation_print", *arguments).encode()

    def _evaluate(self, data: Handle, batch: int, threads: int) -> tuple[Evaluation, api.Evaluation]:
        callbacks = errors.Callbacks()
        classes = self.classes
        count = len(classes) if classes else 0
        confusion = np.zeros((count, count), np.int64) if 0 < count <= MOST_CLASSES else None
        options = api.EvaluationOptions(
            batch=batch, threads=threads, go_on=api.GoOn(callbacks.go_on), confusion=_arrays.address(confusion)
        )
        result = api.Evaluation()
        arguments = self._handle, data, ctypes.byref(options), ctypes.byref(result)
        with self._lock:
            callbacks.run(native().rcv_learner_evaluate, *arguments)
        return take_evaluation(result, self.kind, classes, confusion), result

    def _open_data(self, data: Any, folder: str, unlabelled: bool) -> Handle:
        if _examples.is_in_memory(data):
            names = {*self.feature_names, *self.target_names}
            path = _examples.write_data(folder, "data", data, self.kind, True, names)
        else:
            path = os.fsdecode(data)
            path = _data.find_part(path, _data.TEST) or path if os.path.isdir(path) else path
            path = _data.convert_file(path, folder, "data")
        with _data.rewording(folder):
            return _files.open_file(self._handle, path, unlabelled)

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


def _encode(vocabulary: int, text: bytes) -> Array:
    """The tokens of a text as training reads them in a stream."""
    count = ctypes.c_size_t()
    tokens = np.zeros(len(text) + 1, np.int64)  # a token has at least one byte
    arguments = vocabulary, text, len(text), _arrays.address(tokens), len(tokens), ctypes.byref(count)
    native().rcv_vocabulary_encode(*arguments)
    if count.value > len(tokens):
        tokens = np.zeros(count.value, np.int64)
        native().rcv_vocabulary_encode(*arguments[:3], _arrays.address(tokens), len(tokens), ctypes.byref(count))
    return tokens[: count.value]


def _split_names(names: bytes | None) -> tuple[str, ...]:
    return tuple(names.decode("utf-8", "replace").split(",")) if names else ()


def _cut(values: Array, lengths: Array) -> list[Array]:
    """[steps, batch, outputs] as an array [steps, outputs] for each sequence."""
    return [np.ascontiguousarray(values[:length, i]) for i, length in enumerate(lengths)]


def _name_classes(values: Any, classes: tuple[str, ...]) -> list[Any]:
    if isinstance(values, list):
        return [_name_classes(steps, classes) for steps in values]
    return [classes[i] for i in values.argmax(axis=1)]


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


__all__ = ["Evaluation", "Output", "Predictions", "Predictor", "load"]
