#!/usr/bin/env python3
"""Checks a wheel of the package: its tag, its files, the libraries that it needs, its size. Prints one line, or says what is wrong.

scripts/check_wheel.py WHEEL
"""

import os
import re
import struct
import sys
import zipfile

# What every Linux has; jansson where auditwheel has copied it.
SYSTEM = r"lib(c|m|dl|rt|pthread)\.so\.\d|ld-linux.*\.so\.\d|recurve\.libs/libjansson.*|libjansson-[0-9a-f]+\.so.*|librecurve\.so"
FILES = (
    r"recurve/.*\.(py|pyi)|recurve/py\.typed|recurve/lib/librecurve(_bindings)?\.so|recurve/bin/recurve"
    r"|recurve\.libs/libjansson[^/]*|recurve-[^/]*\.dist-info/.*"
)
MEGABYTES = {False: 4, True: 12}  # without CUDA, with it
MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of ELF files


def needed(elf):
    """The names of the shared libraries that a 64-bit little-endian ELF file needs (DT_NEEDED)."""
    assert elf[:6] == b"\x7fELF\x02\x01", "no 64-bit ELF file"
    (sections,) = struct.unpack_from("<Q", elf, 0x28)
    size, count = struct.unpack_from("<HH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, sections + i * size) for i in range(count)]
    names = []
    for _, kind, _, _, offset, length, link, _, _, _ in headers:
        if kind != 6:  # SHT_DYNAMIC
            continue
        texts = headers[link][4]
        for at in range(offset, offset + length, 16):
            tag, value = struct.unpack_from("<qQ", elf, at)
            if tag == 1:  # DT_NEEDED
                names.append(elf[texts + value : elf.index(b"\0", texts + value)].decode())
    return names


def complaints(path):
    name = path.rsplit("/", 1)[-1]
    if not re.fullmatch(r"recurve-[\d.]+-py3-none-manylinux[\w.]+\.whl", name):
        yield f"its name is {name}, not recurve-VERSION-py3-none-manylinux..."
    with zipfile.ZipFile(path) as wheel:
        files = {f.filename: wheel.read(f) for f in wheel.infolist() if not f.is_dir()}
    for wanted in "recurve/lib/librecurve.so", "recurve/lib/librecurve_bindings.so", "recurve/bin/recurve", "recurve/__main__.py":
        if wanted not in files:
            yield f"{wanted} is missing"
    for file, content in files.items():
        if not re.fullmatch(FILES, file):
            yield f"{file} does not belong into it"
        if content[:4] == b"\x7fELF":
            (number,) = struct.unpack_from("<H", content, 0x12)
            machine = MACHINES.get(number, f"the ELF machine {number}")
            if not name.endswith(f"_{machine}.whl"):
                yield f"{file} is for {machine}, and the wheel is named {name}"
            yield from (f"{file} needs {library}" for library in needed(content) if not re.fullmatch(SYSTEM, library))
    has_cuda = b"cudaGetDevice" in files.get("recurve/lib/librecurve.so", b"")
    size = os.path.getsize(path)
    if size > MEGABYTES[has_cuda] << 20:
        yield f"it has {size} bytes, more than {MEGABYTES[has_cuda]} MiB"
    print(f"{path}: {size / (1 << 20):.2f} MiB, {'with' if has_cuda else 'without'} CUDA")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_wheel.py WHEEL")
    wrong = list(complaints(sys.argv[1]))
    for sentence in wrong:
        print(f"check_wheel: {sys.argv[1]}: {sentence}", file=sys.stderr)
    sys.exit(len(wrong) > 0)


if __name__ == "__main__":
    main()
