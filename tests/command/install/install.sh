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

# what completes the command
for file in bash-completion/completions/recurve zsh/site-functions/_recurve fish/vendor_completions.d/recurve.fish; do
    [ -s "$inst/share/$file" ] || fail "share/$file is not installed"
done
"$inst/bin/recurve" completion bash | cmp -s - "$inst/share/bash-completion/completions/recurve" || fail "the completion is of another build"

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

# uninstall removes exactly what was written, and says so; below DESTDIR as well
uninstall() { make -s -C "$SOURCE_DIR" uninstall "$@"; }
uninstalled=$prefix/uninstalled
mkdir -p "$uninstalled/bin" "$uninstalled/include" "$uninstalled/share/doc/recurve"
echo own >"$uninstalled/bin/own"
echo own >"$uninstalled/include/recurve_own.h"
cmake --install "$BUILD_DIR" --prefix "$uninstalled" >/dev/null
(cd "$uninstalled" && find . ! -type d | sed 's#^\./##' | sort) >"$prefix/before"
echo own >"$uninstalled/share/doc/recurve/own"
uninstall PREFIX="$uninstalled" DESTDIR= >"$prefix/said" || { cat "$prefix/said"; fail "make uninstall fails"; }
(cd "$uninstalled" && find . ! -type d | sed 's#^\./##' | sort) >"$prefix/after"
printf 'bin/own\ninclude/recurve_own.h\nshare/doc/recurve/own\n' | diff - "$prefix/after" || fail "make uninstall leaves files (>) or removes others (<)"
sed -nE "s#^removed $uninstalled/(.*[^/])\$#\1#p" "$prefix/said" | sort | diff <(grep -v own "$prefix/before") - || fail "make uninstall does not say what it removes"
[ ! -d "$uninstalled/share/recurve" ] || fail "make uninstall leaves share/recurve"
uninstall PREFIX="$uninstalled" DESTDIR= >"$prefix/said" 2>&1 && fail "make uninstall succeeds where nothing is installed"
grep -q "installed-files" "$prefix/said" || fail "make uninstall does not say what is missing"
DESTDIR=$prefix/staged cmake --install "$BUILD_DIR" --prefix /opt/recurve-test >/dev/null
uninstall PREFIX=/opt/recurve-test DESTDIR="$prefix/staged" >/dev/null || fail "make uninstall fails below DESTDIR"
[ -z "$(find "$prefix/staged" ! -type d)" ] || fail "make uninstall leaves files below DESTDIR"
# a list that names a file elsewhere removes nothing
mkdir -p "$uninstalled/share/recurve"
printf 'bin/own\n../kept\n' >"$uninstalled/share/recurve/installed-files"
echo kept >"$prefix/kept"
uninstall PREFIX="$uninstalled" DESTDIR= >/dev/null 2>&1 && fail "a list with a file elsewhere is followed"
[ -e "$prefix/kept" ] && [ -e "$uninstalled/bin/own" ] || fail "make uninstall removes a file that a wrong list names"
