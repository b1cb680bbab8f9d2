"""Structs of the package have the layout of the header, and functions its number of arguments."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from recurve._native import api

HEADER = Path(__file__).resolve().parents[2] / "include" / "recurve.h"

STRUCTS = {
    "size": api.Size,
    "net_options": api.NetOptions,
    "parameter": api.Parameter,
    "state": api.State,
    "plan_options": api.PlanOptions,
    "candidate": api.Candidate,
    "forward": api.Forward,
    "backward": api.Backward,
    "scan_options": api.ScanOptions,
    "scan_data": api.ScanData,
    "scan_gradients": api.ScanGradients,
    "model_options": api.ModelOptions,
    "stream_options": api.StreamOptions,
    "data_options": api.DataOptions,
    "guess": api.Guess,
    "part_options": api.PartOptions,
    "training_files": api.TrainingFiles,
    "setting": api.Setting,
    "evaluation_options": api.EvaluationOptions,
    "evaluation": api.Evaluation,
    "generation": api.Generation,
    "prediction": api.Prediction,
    "progress": api.Progress,
    "trainer_options": api.TrainerOptions,
}
CONSTANTS = {
    "RCV_FLOAT64": api.FLOAT64,
    "RCV_BFLOAT16": api.BFLOAT16,
    "RCV_TFLOAT32": api.TFLOAT32,
    "RCV_EXHAUSTIVE": api.EFFORTS["exhaustive"],
    "RCV_BACKGROUND": api.EFFORTS["background"],
    "RCV_OUTPUT_LOG_PROBABILITIES": api.OUTPUTS["log_probabilities"],
    "RCV_DATA_STEP_VALUES": api.KINDS.index("step-values"),
    "RCV_LEVEL_PIECE": api.LEVELS.index("piece"),
    "RCV_FORMAT_SAFETENSORS": api.FORMATS.index("safetensors"),
    "RCV_MISSING_ZERO": api.MISSING.index("zero"),
    "RCV_SETTING_OUTPUT": api.SETTING_OUTPUT,
    "RCV_DESCRIBE_JSON": api.DESCRIBE_JSON,
    "RCV_EMPTY": api.EMPTY,
}

needs_header = pytest.mark.skipif(not HEADER.exists(), reason="no checkout")


def test_every_struct_is_compared() -> None:
    declared = {
        value
        for value in vars(api).values()
        if isinstance(value, type) and issubclass(value, ctypes.Structure) and hasattr(value, "_fields_")
    }
    assert declared == set(STRUCTS.values())


@needs_header
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_layout_is_that_of_the_header(tmp_path: Path) -> None:
    expected, lines = [], []
    for name, struct in STRUCTS.items():
        expected.append(f"{name} {ctypes.sizeof(struct)}")
        lines.append(f'printf("{name} %zu\\n", sizeof(rcv_{name}));')
        for member in struct._fields_:
            field = getattr(struct, member[0])
            expected.append(f"{name}.{member[0]} {field.offset} {field.size}")
            place = f"offsetof(rcv_{name}, {member[0]}), sizeof((rcv_{name} *)0)->{member[0]}"
            lines.append(f'printf("{name}.{member[0]} %zu %zu\\n", {place});')
    for name, value in CONSTANTS.items():
        expected.append(f"{name} {value}")
        lines.append(f'printf("{name} %d\\n", (int){name});')
    source = tmp_path / "layout.c"
    source.write_text("#include <recurve.h>\n#include <stdio.h>\nint main(void) {\n" + "\n".join(lines) + "\n}\n")
    program = tmp_path / "layout"
    subprocess.run(["cc", "-std=c11", f"-I{HEADER.parent}", source, "-o", program], check=True)
    assert subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines() == expected


@needs_header
def test_functions_have_the_arguments_of_the_header() -> None:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    declared = dict(re.findall(r"RCV_API [^;(]*?\brcv_(\w+)\((.*?)\);", text, flags=re.DOTALL))
    for name, (_, *arguments) in api._FUNCTIONS.items():
        parameters = re.sub(r"\([^()]*\)(?=\()|\([^()]*\)", "", declared[name])  # a function as an argument is one
        count = 0 if parameters.strip() == "void" else parameters.count(",") + 1
        assert count == len(arguments), name
