"""Settings of a training run: the library's table, and Python values as its texts."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recurve._native import api
from recurve._native.loader import Handle, context, make, native, text_of

_KINDS = ("flag", "integer", "real", "text", "choice", "output")


@dataclass(frozen=True)
class Setting:
    """A setting of `recurve.train`."""

    name: str  #: as a keyword argument: learning_rate
    group: str
    kind: str  #: flag, integer, real, text, choice, or output: a path that a run writes
    default: str
    choices: tuple[str, ...]  #: of a choice
    minimum: float  #: of a number, as `maximum`
    maximum: float
    help: str


def settings() -> tuple[Setting, ...]:
    """All settings of `recurve.train`, as the command `recurve train` has them."""
    library = native()
    return tuple(_setting(library.rcv_setting_at(i).contents) for i in range(library.rcv_setting_count()))


def _setting(entry: api.Setting) -> Setting:
    choices: list[str] = []
    while entry.choices and entry.choices[len(choices)]:
        choices.append(entry.choices[len(choices)].decode())
    return Setting(
        entry.name.decode().replace("-", "_"),
        entry.group.decode(),
        _KINDS[entry.kind],
        entry.default_value.decode(),
        tuple(choices),
        entry.minimum,
        entry.maximum,
        entry.help.decode(),
    )


def presets() -> dict[str, str]:
    """Names of the presets of `recurve.train`, each with a line about it."""
    library = native()
    indices = range(library.rcv_preset_count())
    return {library.rcv_preset_name(i).decode(): library.rcv_preset_summary(i).decode() for i in indices}


def text_of_value(name: str, value: Any) -> str:
    """A Python value as the text of a setting."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, Mapping):
        return ",".join(f"{key}={entry}" for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(text_of_value(name, entry) for entry in value)
    if isinstance(value, (str, int, float)):
        return str(value)
    if hasattr(value, "item"):  # a number of NumPy
        return text_of_value(name, value.item())
    raise TypeError(f"{name} is {value!r}; it must be a number, a text, a path, or a list of these")


def check_names(given: Mapping[str, Any]) -> None:
    """Raises TypeError for a name that is no setting, as for an unknown keyword argument."""
    known = [setting.name for setting in settings()]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else "; recurve.settings() lists them"
            raise TypeError(f"train() has no setting '{name}'{hint}")


def check_fixed(given: Mapping[str, Any], path: str) -> None:
    """Raises ValueError for settings of the model, which a resumed run cannot change."""
    for setting in settings():
        if setting.group == "model" and setting.name in given:
            raise ValueError(f"{setting.name} cannot be changed with resume: the model in {path} has a fixed value")


class Settings:
    """Settings of one run."""

    def __init__(self, handle: Handle | None = None) -> None:
        self.handle = handle or make("rcv_settings_new", context(), free="rcv_settings_free", parents=(context(),))

    def __getitem__(self, name: str) -> str:
        value = native().rcv_settings_get(self.handle, name.replace("_", "-").encode())
        return "" if value is None else str(value.decode("utf-8", "replace"))

    def update(self, given: Mapping[str, Any]) -> None:
        for name, value in given.items():
            self.set(name, text_of_value(name, value))

    def set(self, name: str, value: str) -> None:
        native().rcv_settings_set(self.handle, name.replace("_", "-").encode(), os.fsencode(value))

    def use_preset(self, name: str) -> None:
        native().rcv_settings_preset(self.handle, name.encode())

    def load(self, path: bytes) -> None:
        native().rcv_settings_load(self.handle, path)

    def check(self) -> None:
        native().rcv_settings_check(self.handle)

    def as_dictionary(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(text_of("rcv_settings_print", self.handle))
        return {name.replace("-", "_"): value for name, value in values.items()}


def checkpoint_settings(path: bytes) -> Settings:
    """The settings of the run that wrote a checkpoint."""
    return Settings(make("rcv_checkpoint_settings", context(), path, free="rcv_settings_free", parents=(context(),)))
