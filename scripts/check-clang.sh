#!/usr/bin/env bash
# Compiles every C file with clang, warnings as errors, without writing code: what only GCC accepts is found here, in seconds. The optional
# dependencies that are there are included, so that all files are read. Where there is no clang it says so, and that is no failure.
#   scripts/check-clang.sh [JOBS]
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=${1:-2}
build=build/clang
if ! command -v clang >/dev/null; then
    echo "check-clang: SKIPPED: no clang"
    exit 0
fi
mkdir -p build
cmake -G Ninja -S . -B $build -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Release -DRCV_TESTS=ON -DRCV_BENCH=OFF \
    -DCMAKE_C_COMPILER_LAUNCHER= >$build.log 2>&1 || { cat $build.log; exit 1; }
# Lines of compile_commands.json, less "-c" and "-o FILE", one a line, as a shell reads them.
count=$(/usr/bin/python3 - $build <<'END'
import json, shlex, sys
build = sys.argv[1]
written = 0
with open(build + "/commands", "w") as out:
    for entry in json.load(open(build + "/compile_commands.json")):
        if not entry["file"].endswith(".c") or "/generated/" in entry["file"]:
            continue
        words = shlex.split(entry["command"])
        at = words.index("-o")
        words = [word for word in words[:at] + words[at + 2:] if word != "-c"]
        out.write("cd %s && %s -fsyntax-only\0" % (shlex.quote(entry["directory"]), shlex.join(words)))
        written += 1
print(written)
END
) || exit 1
[ "$count" -gt 100 ] || { echo "check-clang: only $count files to compile: the build is not as expected"; exit 1; }
xargs -0 -n 1 -P "$jobs" bash -c <$build/commands || { echo "check-clang: FAILED"; exit 1; }
echo "check-clang: $count files compile"
