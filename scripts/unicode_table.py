#!/usr/bin/env python3
"""Writes src/data/vocabulary/unicode_table.c from Python's unicodedata.

    scripts/unicode_table.py > src/data/vocabulary/unicode_table.c

Every range of characters with the same properties is a row. Characters without any of them have none.
"""

import itertools
import sys
import unicodedata

SPACES = [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
# Other_Alphabetic outside of the marks, and Join_Control: \w of regular expressions has them, too.
OTHER_WORD = {
    *range(0x24B6, 0x24EA),
    *range(0x1F130, 0x1F14A),
    *range(0x1F150, 0x1F16A),
    *range(0x1F170, 0x1F18A),
    0x200C,
    0x200D,
}
LETTER, NUMBER, SPACE, WORD, MAY_CHANGE = (1 << bit for bit in range(5))

HEADER = """\
/* Properties of characters, written by scripts/unicode_table.py from Unicode {version}. Do not edit. */
#include "data/vocabulary/unicode.h"

/* clang-format off */
const rcvi_unicode_range rcvi_unicode_table[] = {{
"""
FOOTER = """\
};
/* clang-format on */
const size_t rcvi_unicode_table_size = sizeof rcvi_unicode_table / sizeof *rcvi_unicode_table;
"""
PER_LINE = 4


def composed_later() -> set[int]:
    """Characters that may form another one with a character before them: NFC_Quick_Check=Maybe."""
    found = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}
    for code in range(sys.maxunicode + 1):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<") and unicodedata.is_normalized("NFC", chr(code)):
            found.add(int(parts[1], 16))
    return found


def properties(code: int, maybe: set[int]) -> tuple[int, int]:
    character = chr(code)
    category = unicodedata.category(character)
    if category == "Cs":
        return 0, 0
    bits = 0
    if category[0] == "L":
        bits |= LETTER
    if category[0] == "N":
        bits |= NUMBER
    if code in SPACES:
        bits |= SPACE
    if category[0] in "LM" or category in ("Nd", "Nl", "Pc") or code in OTHER_WORD:
        bits |= WORD
    if code in maybe or not unicodedata.is_normalized("NFC", character):
        bits |= MAY_CHANGE
    return bits, unicodedata.combining(character)


def main() -> None:
    maybe = composed_later()
    codes = ((code, properties(code, maybe)) for code in range(sys.maxunicode + 1))
    rows = []
    for found, group in itertools.groupby(codes, key=lambda pair: pair[1]):
        members = [code for code, _ in group]
        if found != (0, 0):
            rows.append("{0x%x, 0x%x, %d, %d}," % (members[0], members[-1], *found))
    print(HEADER.format(version=unicodedata.unidata_version), end="")
    for first in range(0, len(rows), PER_LINE):
        print("    " + " ".join(rows[first : first + PER_LINE]))
    print(FOOTER, end="")


main()
