"""Descriptions of networks, as the operators take them (bindings/call/call.h)."""

from __future__ import annotations


def describe(cell: str, **options: object) -> str:
    """A line of options and the cell. Options that are false or zero are left out."""
    words = []
    for name, value in options.items():
        if value:
            number = int(value) if isinstance(value, bool) else value
            words.append(f"{name}={number!r}")
    return " ".join(words) + "\n" + cell
