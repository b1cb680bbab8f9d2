#!/usr/bin/env bash
# Builds the library, the tool and the tests of the CPU device with clang, as released, and runs these tests; long sweeps are in part
# (tests/support/sample.h), part 0 of 30 unless RECURVE_TEST_PART says another. So a second compiler has to give the recorded bits. test_scan is
# left out: it takes 20 s, and test_bits has scans. Every other C file, with the optional dependencies that are there, is compiled without
# writing code. Warnings are errors. Where there is no clang it says so, and that is no failure.
#   scripts/check-clang.sh [JOBS]
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=${1:-2}
build=build/clang   # the library, the tool and some tests, without optional dependencies
all=build/clang-all # all files, with them: configured, not built
if ! command -v clang >/dev/null; then
    echo "check-clang: SKIPPED: no clang"
    exit 0
fi

# configure FOLDER CMAKE-OPTIONS...
configure() {
    local folder=$1
    shift
    cmake -G Ninja -S . -B "$folder" -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Release -DRCV_TESTS=ON -DRCV_BENCH=OFF \
        -DCMAKE_C_COMPILER_LAUNCHER= "$@" >"$folder.log" 2>&1 || { cat "$folder.log"; return 1; }
}

mkdir -p build
configure $build -DRCV_CUDA=OFF -DRCV_MPI=OFF -DRCV_ONEDNN=OFF && configure $all -DRCV_PYTHON=ON || exit 1
programs=()
for source in tests/unit/cpu/test_*.c tests/unit/plan/test_bits.c; do
    [ "$source" = tests/unit/cpu/test_scan.c ] || programs+=("$(basename "$source" .c)")
done
cmake --build $build -j "$jobs" --target tool "${programs[@]}" >$build.log || { cat $build.log; exit 1; }

# Lines of compile_commands.json, less "-c" and "-o FILE", one a line, as a shell reads them; without the files that were compiled above.
count=$(/usr/bin/python3 - $build $all <<'END'
import json, os, shlex, sys
build, everything = sys.argv[1:]
commands = lambda folder: json.load(open(folder + "/compile_commands.json"))
output = lambda words: words[words.index("-o") + 1]
compiled = {e["file"] for e in commands(build) if os.path.exists(os.path.join(e["directory"], output(shlex.split(e["command"]))))}
written = 0
with open(everything + "/commands", "w") as out:
    for entry in commands(everything):
        if not entry["file"].endswith(".c") or "/generated/" in entry["file"] or entry["file"] in compiled:
            continue
        words = shlex.split(entry["command"])
        at = words.index("-o")
        words = [word for word in words[:at] + words[at + 2:] if word != "-c"]
        out.write("cd %s && %s -fsyntax-only\0" % (shlex.quote(entry["directory"]), shlex.join(words)))
        written += 1
print(len(compiled), written)
END
) || exit 1
read -r compiled written <<<"$count"
if [ "$compiled" -lt 100 ] || [ "$written" -lt 50 ]; then
    echo "check-clang: only $compiled and $written files to compile: the build is not as expected"
    exit 1
fi
xargs -0 -n 1 -P "$jobs" bash -c <$all/commands || { echo "check-clang: FAILED"; exit 1; }

RECURVE_TEST_PART=${RECURVE_TEST_PART:-0/30} ctest --test-dir $build -j "$jobs" --output-on-failure --no-tests=error \
    -R "^($(IFS='|'; echo "${programs[*]}"))\$" >$build.tests || { cat $build.tests; echo "check-clang: FAILED"; exit 1; }
echo "check-clang: $compiled files built, $written more compile, $(grep -c ' Passed ' $build.tests) tests passed"
