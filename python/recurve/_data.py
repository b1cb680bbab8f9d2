"""Training data: files and folders as the command `recurve train` takes them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

from recurve import _examples
from recurve._native import api

TRAIN, VALID, TEST = range(3)
PARTS = ("data", "valid", "test")  # settings that name them
#: names of files in a folder, in the order in which they are looked for: those of Penn Treebank and WikiText, then
#: every stem with every ending; as tool/data_files.c has them
WHOLE_NAMES = (
    ("ptb.train.txt", "wiki.train.tokens"),
    ("ptb.valid.txt", "wiki.valid.tokens"),
    ("ptb.test.txt", "wiki.test.tokens"),
)
STEMS = (("train", "training"), ("valid", "validation", "val", "dev"), ("test",))
ENDINGS = (".txt", ".jsonl", "", ".csv", ".tsv", ".npz", ".npy", ".safetensors", ".parquet", ".arrow", ".feather")
#: values of settings in sentences of the library
_VALUES = "|".join(("N", *api.KINDS, *api.FORMATS, *api.MISSING, *api.LEVELS))


def find_part(folder: str, part: int) -> str | None:
    """The file of a part in a folder; None where there is none."""
    names = [*WHOLE_NAMES[part], *(stem + ending for stem in STEMS[part] for ending in ENDINGS)]
    paths = (os.path.join(folder, name) for name in names)
    return next((path for path in paths if os.path.isfile(path)), None)


def is_share(value: str) -> bool:
    """'10%': a share of the training data."""
    return re.fullmatch(r"[0-9.]+%", value) is not None


def find_files(data: str, valid: str, test: str) -> list[str | None]:
    """Paths of training, validation and test data, from the settings of these names; None where it is no file."""
    files: list[str | None] = [data, None, None]
    if os.path.isdir(data):
        files = [find_part(data, part) for part in range(3)]
        if files[TRAIN] is None:
            raise ValueError(
                f"{data} is a directory without a training file: it contains none of {', '.join(WHOLE_NAMES[TRAIN])} "
                f"and {STEMS[TRAIN][0]} with {', '.join(ending for ending in ENDINGS if ending)}"
            )
    for part, given in ((VALID, valid), (TEST, test)):
        if given:
            files[part] = None if given == "none" or is_share(given) else given
    return files


def convert_file(path: str, folder: str, name: str) -> str:
    """The path of a file as the library reads it: that of a Parquet or Arrow file is written into the folder."""
    if not path.lower().endswith(_examples.COLUMNAR) or not os.path.exists(path):
        return path
    return _examples.write_table(os.path.join(folder, name), _examples.read_columnar(path), set())


def reword(message: str, folder: str) -> str:
    """A sentence of the library: options as keyword arguments, files of the temporary folder by their names alone."""

    def name_argument(found: re.Match[str]) -> str:
        value = found[2] if found[2] in ("N", None) else f'"{found[2]}"'
        return f"{found[1].replace('-', '_')}={value or ''}"

    message = re.sub(rf"--([a-z]+(?:-[a-z]+)*)(?: ({_VALUES})\b)?", name_argument, message)
    return message.replace(os.path.join(folder, ""), "")


@contextlib.contextmanager
def rewording(folder: str) -> Iterator[None]:
    """What is wrong with data is said in the words of Python."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise type(error)(reword(str(error), folder)) from None
