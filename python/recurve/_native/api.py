"""Structs, enumerations and prototypes of recurve.h. Names are those of the header without `rcv_`."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from recurve._native import errors

# ---- enumerations

FLOAT32, FLOAT64, FLOAT16, BFLOAT16, INT64, INT32, UINT8, BOOL, TFLOAT32 = range(9)
DTYPES = {"float32": FLOAT32, "float64": FLOAT64, "float16": FLOAT16, "bfloat16": BFLOAT16, "tfloat32": TFLOAT32}
EFFORTS = {"measure": 0, "estimate": 1, "exhaustive": 2, "background": 3}
OUTPUTS = {"default": 0, "logits": 1, "probabilities": 2, "log_probabilities": 3}
KINDS = ("stream", "lines", "classes", "values", "step-classes", "step-values")
LEVELS = ("word", "byte", "character", "piece")
FORMATS = ("auto", "text", "csv", "tsv", "jsonl", "numbers", "npy", "npz", "safetensors")
MISSING = ("error", "previous", "mean", "zero")
SETTING_FLAG, SETTING_INTEGER, SETTING_REAL, SETTING_TEXT, SETTING_CHOICE, SETTING_OUTPUT = range(6)
DESCRIBE_BACKWARD, DESCRIBE_JSON = 1, 2
EMPTY = -1  # a batch of no sequences

# ---- callbacks

GoOn = CFUNCTYPE(c_bool, c_void_p)
Emit = CFUNCTYPE(c_bool, c_void_p, c_void_p, c_size_t)
Log = CFUNCTYPE(None, c_void_p, c_char_p)

# ---- structs


class Struct(ctypes.Structure):
    """A struct whose member `size` is set, as RCV_INIT does."""

    def __init__(self, **members: Any) -> None:
        super().__init__(size=ctypes.sizeof(type(self)), **members)


class Size(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_int64)]


class NetOptions(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("input", c_int64),
        ("hidden", c_int64),
        ("layers", c_int64),
        ("bidirectional", c_bool),
        ("no_bias", c_bool),
        ("dropout", c_double),
        ("variational", c_bool),
        ("zoneout", c_double),
        ("rank", c_int64),
        ("sizes", POINTER(Size)),
        ("size_count", c_size_t),
        ("reverse", c_bool),
    ]


class Parameter(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dims", c_int), ("shape", c_int64 * 3), ("offset", c_int64), ("count", c_int64)]


class State(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("size", c_int64), ("total", c_int64)]


class PlanOptions(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("steps", c_int64),
        ("batch", c_int64),
        ("dtype", c_int),
        ("training", c_bool),
        ("lengths", c_bool),
        ("resets", c_bool),
        ("reserve", c_bool),
        ("signals", c_bool),
        ("schedule", c_char_p),
        ("effort", c_int),
        ("threads", c_int64),
        ("memory", c_size_t),
        ("device", c_char_p),
        ("go_on", GoOn),
        ("user", c_void_p),
        ("data", c_int),
        ("states", c_int),
        ("batch_major", c_bool),
        ("separate_parameters", c_bool),
        ("replaced", c_void_p),
        ("search_memory", c_size_t),
        ("parameters", c_int),
        ("gradients", c_int),
        ("device_lengths", c_bool),
        ("small_batch", c_int64),
        ("small_schedule", c_char_p),
        ("no_vendor", c_bool),
    ]


class Candidate(ctypes.Structure):
    _fields_ = [
        ("schedule", c_char_p),
        ("status", c_int),
        ("reason", c_char_p),
        ("estimate", c_double),
        ("seconds", c_double),
        ("bytes", c_size_t),
        ("chosen", c_bool),
    ]


class Forward(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("parameters", c_void_p),
        ("x", c_void_p),
        ("lengths", c_void_p),
        ("resets", c_void_p),
        ("initial", POINTER(c_void_p)),
        ("restart", POINTER(c_void_p)),
        ("y", c_void_p),
        ("final", POINTER(c_void_p)),
        ("seed", c_uint64),
        ("same_parameters", c_bool),
        ("reserve", c_void_p),
        ("steps", c_int64),
        ("batch", c_int64),
        ("tensors", POINTER(c_void_p)),
        ("version", c_int64),
        ("seed_at", c_void_p),
    ]


class Backward(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("dy", c_void_p),
        ("dfinal", POINTER(c_void_p)),
        ("dx", c_void_p),
        ("dinitial", POINTER(c_void_p)),
        ("drestart", POINTER(c_void_p)),
        ("dparameters", c_void_p),
        ("accumulate", c_bool),
        ("forward", POINTER(Forward)),
        ("dtensors", POINTER(c_void_p)),
    ]


class ScanOptions(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("steps", c_int64),
        ("channels", c_int64),
        ("batch", c_int64),
        ("dtype", c_int),
        ("reverse", c_bool),
        ("lengths", c_bool),
        ("resets", c_bool),
        ("form", c_char_p),
        ("threads", c_int64),
        ("device", c_char_p),
    ]


class ScanData(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("a", c_void_p),
        ("b", c_void_p),
        ("initial", c_void_p),
        ("lengths", c_void_p),
        ("resets", c_void_p),
        ("h", c_void_p),
        ("final", c_void_p),
    ]


class ScanGradients(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("dh", c_void_p),
        ("dfinal", c_void_p),
        ("da", c_void_p),
        ("db", c_void_p),
        ("dinitial", c_void_p),
    ]


class ModelOptions(Struct):
    _fields_ = [("size", c_size_t), ("dtype", c_int), ("cell", c_char_p), ("prefix", c_char_p)]


class StreamOptions(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("batch", c_int64),
        ("most", c_int64),
        ("device", c_char_p),
        ("dtype", c_int),
        ("threads", c_int64),
        ("schedule", c_char_p),
        ("effort", c_int),
        ("on_device", c_bool),
        ("cuda_stream", c_void_p),
        ("output", c_int),
    ]


class DataOptions(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("level", c_int),
        ("kind", c_int),
        ("vocabulary", c_void_p),
        ("classes", POINTER(c_char_p)),
        ("class_count", c_size_t),
        ("like", c_void_p),
        ("cache", c_char_p),
        ("format", c_int),
        ("features", c_char_p),
        ("target", c_char_p),
        ("sequence", c_char_p),
        ("time", c_char_p),
        ("horizon", c_int64),
        ("piece", c_int64),
        ("missing", c_int),
        ("unlabelled", c_bool),
    ]


class Guess(Struct):
    _fields_ = [("size", c_size_t), ("format", c_int), ("kind", c_int), ("level", c_int)]


class PartOptions(Struct):
    _fields_ = [("size", c_size_t), ("begin", c_double), ("end", c_double), ("by", c_int), ("seed", c_uint64)]


class TrainingFiles(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("paths", c_char_p * 3),
        ("elsewhere", c_bool * 3),
        ("vocabulary", c_void_p),
        ("without_test", c_bool),
    ]


class Setting(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("group", c_char_p),
        ("kind", c_int),
        ("default_value", c_char_p),
        ("minimum", c_double),
        ("maximum", c_double),
        ("choices", POINTER(c_char_p)),
        ("value", c_char_p),
        ("help", c_char_p),
    ]


class EvaluationOptions(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("batch", c_int64),
        ("threads", c_int64),
        ("go_on", GoOn),
        ("user", c_void_p),
        ("confusion", c_void_p),
    ]


class Evaluation(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("loss", c_double),
        ("counted", c_int64),
        ("accuracy", c_double),
        ("precision", c_double),
        ("recall", c_double),
        ("f1", c_double),
        ("auc", c_double),
        ("mae", c_double),
        ("rmse", c_double),
        ("r2", c_double),
        ("naive_mae", c_double),
        ("naive_rmse", c_double),
    ]


class Generation(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("prompt", c_char_p),
        ("prompt_bytes", c_size_t),
        ("count", c_int64),
        ("temperature", c_double),
        ("top_k", c_int64),
        ("top_p", c_double),
        ("seed", c_uint64),
        ("threads", c_int64),
    ]


class Prediction(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("steps", c_int64),
        ("batch", c_int64),
        ("x", c_void_p),
        ("features", c_int64),
        ("tokens", c_void_p),
        ("lengths", c_void_p),
        ("output", c_int),
        ("last", c_bool),
        ("out", c_void_p),
        ("threads", c_int64),
        ("go_on", GoOn),
        ("user", c_void_p),
    ]


class Progress(ctypes.Structure):
    _fields_ = [
        ("step", c_int64),
        ("steps", c_int64),
        ("epoch", c_int64),
        ("epochs", c_double),
        ("loss", c_double),
        ("rate", c_double),
        ("norm", c_double),
        ("tokens_per_second", c_double),
        ("seconds", c_double),
        ("left", c_double),
        ("validation", c_double),
        ("best", c_double),
        ("written", c_int64),
        ("metric", c_double),
    ]


OnProgress = CFUNCTYPE(c_bool, c_void_p, POINTER(Progress))


class TrainerOptions(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("output", c_char_p),
        ("overwrite", c_bool),
        ("progress", OnProgress),
        ("log", Log),
        ("user", c_void_p),
        ("validating", c_void_p),
    ]


# ---- functions


class _Status:
    """The result of a function that can fail: an exception, or None."""


_P = c_void_p  # an object, an array, or where a result goes
_OBJECT = POINTER(c_void_p)

# name: result and arguments
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "version": (c_char_p,),
    "message": (c_char_p,),
    "context_new": (_Status, _P, _OBJECT),
    "context_free": (None, _P),
    "context_threads": (c_int64, _P),
    "context_kernels": (c_char_p, _P),
    "text_free": (None, _P, _P),
    "device_describe": (_Status, _P, c_char_p, _OBJECT),
    "libraries_set_folders": (_Status, c_char_p),
    "memory_new": (_Status, _P, c_char_p, c_size_t, _OBJECT),
    "memory_free": (None, _P, c_char_p, _P),
    "memory_write": (_Status, c_char_p, _P, _P, c_size_t),
    "memory_read": (_Status, c_char_p, _P, _P, c_size_t),
    "cell_parse": (_Status, _P, c_char_p, c_size_t, c_char_p, _OBJECT),
    "cell_open": (_Status, _P, c_char_p, _OBJECT),
    "cell_free": (None, _P),
    "builtin_count": (c_size_t,),
    "builtin_name": (c_char_p, c_size_t),
    "builtin_summary": (c_char_p, c_size_t),
    "cell_name": (c_char_p, _P),
    "cell_source": (c_char_p, _P),
    "cell_print": (_Status, _P, _OBJECT),
    "cell_describe": (_Status, _P, c_uint, _OBJECT),
    "net_new": (_Status, _P, POINTER(NetOptions), _OBJECT),
    "net_free": (None, _P),
    "net_get_options": (POINTER(NetOptions), _P),
    "net_cell": (_P, _P),
    "net_output": (c_int64, _P),
    "net_parameter_count": (c_size_t, _P),
    "net_parameter": (POINTER(Parameter), _P, c_size_t),
    "net_parameter_elements": (c_int64, _P),
    "net_state_count": (c_size_t, _P),
    "net_state": (POINTER(State), _P, c_size_t),
    "net_state_size": (c_int64, _P, c_size_t, c_int64, c_bool),
    "plan_new": (_Status, _P, POINTER(PlanOptions), _OBJECT),
    "plan_free": (None, _P),
    "plan_string": (c_char_p, _P),
    "plan_bytes": (c_size_t, _P),
    "plan_wait": (_Status, _P),
    "plan_candidate_count": (c_size_t, _P),
    "plan_candidate": (POINTER(Candidate), _P, c_size_t),
    "plan_seconds": (c_double, _P),
    "plan_from_wisdom": (c_bool, _P),
    "wisdom_load": (_Status, _P, c_char_p),
    "wisdom_save": (_Status, _P, c_char_p),
    "run_new": (_Status, _P, _OBJECT),
    "run_free": (None, _P),
    "run_wait": (_Status, _P),
    "run_forward": (_Status, _P, POINTER(Forward)),
    "run_backward": (_Status, _P, POINTER(Backward)),
    "scan_new": (_Status, _P, POINTER(ScanOptions), _OBJECT),
    "scan_free": (None, _P),
    "scan_forward": (_Status, _P, POINTER(ScanData)),
    "scan_backward": (_Status, _P, POINTER(ScanData), POINTER(ScanGradients)),
    "model_new": (_Status, _P, c_int, c_uint64, _OBJECT),
    "model_load": (_Status, _P, c_char_p, POINTER(ModelOptions), _OBJECT),
    "model_save": (_Status, _P, c_char_p),
    "model_low_rank": (_Status, _P, c_int64, _OBJECT),
    "model_free": (None, _P),
    "model_net": (_P, _P),
    "model_dtype": (c_int, _P),
    "model_parameters": (_P, _P),
    "stream_new_model": (_Status, _P, POINTER(StreamOptions), _OBJECT),
    "stream_new_learner": (_Status, _P, POINTER(StreamOptions), _OBJECT),
    "stream_free": (None, _P),
    "stream_step": (_Status, _P, _P, c_int64, _P),
    "stream_reset": (_Status, _P, _P),
    "stream_state_elements": (c_int64, _P),
    "stream_get_states": (_Status, _P, c_int64, _P),
    "stream_set_states": (_Status, _P, c_int64, _P),
    "stream_reload": (_Status, _P),
    "stream_plan": (_P, _P),
    "vocabulary_free": (None, _P),
    "vocabulary_level": (c_int, _P),
    "vocabulary_size": (c_int64, _P),
    "vocabulary_token": (_P, _P, c_int64, POINTER(c_size_t)),
    "vocabulary_find": (c_int64, _P, c_char_p, c_size_t),
    "vocabulary_line_end": (c_int64, _P),
    "vocabulary_encode": (_Status, _P, c_char_p, c_size_t, _P, c_size_t, POINTER(c_size_t)),
    "data_free": (None, _P),
    "data_get_kind": (c_int, _P),
    "data_level": (c_int, _P),
    "data_description": (c_char_p, _P),
    "data_sequences": (c_int64, _P),
    "data_read": (_Status, _P, c_int64, c_int64, _P, _P, _P, c_int64),
    "data_example_name": (_Status, _P, c_int64, _P, c_size_t),
    "training_data_open": (_Status, _P, _P, POINTER(TrainingFiles), _OBJECT, _OBJECT),
    "setting_count": (c_size_t,),
    "setting_at": (POINTER(Setting), c_size_t),
    "settings_new": (_Status, _P, _OBJECT),
    "settings_free": (None, _P),
    "settings_set": (_Status, _P, c_char_p, c_char_p),
    "settings_preset": (_Status, _P, c_char_p),
    "preset_count": (c_size_t,),
    "preset_name": (c_char_p, c_size_t),
    "preset_summary": (c_char_p, c_size_t),
    "settings_load": (_Status, _P, c_char_p),
    "settings_print": (_Status, _P, _OBJECT),
    "settings_check": (_Status, _P),
    "settings_get": (c_char_p, _P, c_char_p),
    "learner_load": (_Status, _P, c_char_p, c_char_p, c_int, _OBJECT),
    "learner_save": (_Status, _P, c_char_p),
    "learner_free": (None, _P),
    "learner_net": (_P, _P),
    "learner_kind": (c_int, _P),
    "learner_vocabulary": (_P, _P),
    "learner_device": (c_char_p, _P),
    "learner_classes": (POINTER(c_char_p), _P, POINTER(c_size_t)),
    "learner_parameter_elements": (c_int64, _P),
    "learner_dtype": (c_int, _P),
    "learner_features": (c_int64, _P),
    "learner_outputs": (c_int64, _P),
    "learner_predicts_steps": (c_bool, _P),
    "learner_feature_names": (c_char_p, _P),
    "learner_target_names": (c_char_p, _P),
    "learner_open_data": (_Status, _P, c_char_p, POINTER(DataOptions), _OBJECT),
    "learner_evaluate": (_Status, _P, _P, POINTER(EvaluationOptions), POINTER(Evaluation)),
    "evaluation_print": (_Status, _P, _P, POINTER(Evaluation), POINTER(c_int64), _OBJECT),
    "learner_generate": (_Status, _P, POINTER(Generation), Emit, _P),
    "learner_predict": (_Status, _P, POINTER(Prediction)),
    "trainer_new": (_Status, _P, _P, _P, _P, _OBJECT),
    "trainer_resume": (_Status, _P, c_char_p),
    "trainer_free": (None, _P),
    "trainer_run": (_Status, _P, POINTER(TrainerOptions)),
    "trainer_progress": (POINTER(Progress), _P),
    "trainer_best_model": (_Status, _P, c_char_p, _OBJECT),
    "trainer_check_output": (_Status, _P, _P, c_char_p, c_char_p, c_bool),
    "checkpoint_settings": (_Status, _P, c_char_p, _OBJECT),
    "checkpoint_vocabulary": (_Status, _P, c_char_p, _OBJECT),
}


def declare(library: ctypes.CDLL) -> None:
    """Gives the functions of a library their prototypes."""
    message = library.rcv_message
    message.restype = c_char_p

    def check(status: int, function: Any, arguments: Any) -> None:
        if status != errors.OK:
            raise errors.exception(status, message().decode("utf-8", "replace"))

    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, f"rcv_{name}")
        function.argtypes = arguments
        function.restype = c_int if result is _Status else result
        if result is _Status:
            function.errcheck = check
