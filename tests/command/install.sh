#!/usr/bin/env bash
# The installed library is enough: header, both libraries, pkg-config, the CMake package, the tool, the manual page.
set -eu
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
inst=$prefix/inst
cmake --install "$BUILD_DIR" --prefix "$inst" >/dev/null
lib=$(dirname "$(find "$inst" -name librecurve.a)")

fail() {
    echo "install: $1"
    exit 1
}

# what was installed
for file in include/recurve.h include/recurve_bench.h include/recurve_distributed.h share/man/man1/recurve.1 bin/recurve; do
    [ -s "$inst/$file" ] || fail "$file is not installed"
done
[ "$(find "$inst/include" -type f | wc -l)" = 3 ] || fail "more than the public headers is installed"
readelf -d "$lib/librecurve.so" | grep -q 'SONAME.*\[librecurve\.so\.0\.1\]' || fail "the soname is not librecurve.so.0.1"
[ "$(readlink -f "$lib/librecurve.so.0.1")" = "$(readlink -f "$lib/librecurve.so")" ] || fail "librecurve.so.0.1 is missing"
nm -D --defined-only "$lib/librecurve.so" | awk '{ print $3 }' | sort >"$prefix/exported"
grep -q '^rcv_run_forward$' "$prefix/exported" || fail "rcv_run_forward is not exported"
if grep -vE '^(rcv_[a-z0-9_]+|__(asan|odr_asan|ubsan|lsan)[a-z0-9_.]*)$' "$prefix/exported"; then
    fail "names other than rcv_* are exported"
fi
# every function that the headers declare, and nothing else
grep -ohE '^RCV_API [^(]*' "$inst"/include/*.h | grep -oE 'rcv_[a-z0-9_]+$' | sort >"$prefix/declared"
diff "$prefix/declared" <(grep '^rcv_' "$prefix/exported") || fail "the headers and the library disagree (< headers, > library)"

# the tool finds its library without LD_LIBRARY_PATH, also after a move
mv "$inst" "$prefix/moved"
inst=$prefix/moved
lib=${lib/\/inst\///moved/}
env -u LD_LIBRARY_PATH "$inst/bin/recurve" list | grep -q lstm || fail "the installed tool does not run"

# with pkg-config flags alone
export PKG_CONFIG_PATH=$lib/pkgconfig
source=$SOURCE_DIR/examples/minimal.c
[ "$(pkg-config --modversion recurve)" = "$("$inst/bin/recurve" --version | awk '{ print $2 }')" ] || fail "versions differ"
$CC -std=c11 -Wall -Wextra -Werror $CFLAGS "$source" $(pkg-config --cflags --libs recurve) $LDFLAGS \
    -o "$prefix/shared"
LD_LIBRARY_PATH=$lib "$prefix/shared"
$CC -std=c11 $CFLAGS "$source" $(pkg-config --cflags recurve) \
    $(pkg-config --static --libs recurve | sed 's/-lrecurve/-l:librecurve.a/') $LDFLAGS -o "$prefix/static"
"$prefix/static"
if readelf -d "$prefix/static" | grep -q 'NEEDED.*librecurve'; then fail "the static program needs the shared library"; fi

# through find_package
cmake -G Ninja -S "$SOURCE_DIR/examples" -B "$prefix/build" -DCMAKE_PREFIX_PATH="$inst" >"$prefix/log" 2>&1 &&
    cmake --build "$prefix/build" >>"$prefix/log" 2>&1 || { cat "$prefix/log"; fail "find_package does not serve"; }
"$prefix/build/minimal"
"$prefix/build/minimal_static"
"$prefix/build/stream"
"$prefix/build/batches"
"$prefix/build/memory_task" --length 2 --hidden 8 --layers 1 --learning-rate 0.03 >/dev/null 2>&1 || fail "memory_task does not learn"

# the header is C++ too, where there is a compiler for it
if command -v c++ >/dev/null; then
    echo '#include <recurve.h>' | c++ -x c++ -Wall -Wextra -Werror -fsyntax-only -I "$inst/include" - || fail "not C++"
fi
