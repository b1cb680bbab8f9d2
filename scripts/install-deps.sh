#!/usr/bin/env bash
# Installs what is missing on Debian and Ubuntu; says what is missing elsewhere.
#   scripts/install-deps.sh build|check|lint
# Nothing is touched, and no root is needed, where all is there.
set -u

usage() {
    echo "usage: install-deps.sh build|check|lint" >&2
    exit 2
}
[ $# = 1 ] || usage
case $1 in
    build) stages="build" ;;
    check) stages="build check" ;;
    lint) stages="build check lint" ;; # clang-tidy reads the tests as well
    *) usage ;;
esac

# stage | Debian, Ubuntu | Fedora | Arch | Homebrew | how to see that it is there
# A stage with a question mark is optional: what needs it is left out of the build, or skipped by the tests.
table='
build  | gcc             | gcc             | gcc            | gcc         | has_tool cc
build  | libc6-dev       | glibc-devel     | glibc          | -           | has_header stdio.h
build  | cmake           | cmake           | cmake          | cmake       | has_tool cmake
build  | ninja-build     | ninja-build     | ninja          | ninja       | has_tool ninja
build  | pkg-config      | pkgconf         | pkgconf        | pkgconf     | has_tool pkg-config
build  | libjansson-dev  | jansson-devel   | jansson        | jansson     | has_library jansson
build? | libopenblas0    | openblas        | openblas       | openblas    | has_shared_library libopenblas.so.0
build? | libdnnl-dev     | onednn-devel    | onednn         | onednn      | has_header dnnl.h
build? | g++             | gcc-c++         | gcc            | gcc         | has_tool c++
build? | libopenmpi-dev  | openmpi-devel   | openmpi        | open-mpi    | has_tool mpicc
check  | libcmocka-dev   | libcmocka-devel | cmocka         | cmocka      | has_library cmocka
check  | python3         | python3         | python         | python      | has_tool /usr/bin/python3
check? | python3-venv    | python3         | python         | python      | has_module ensurepip
check? | python3-numpy   | python3-numpy   | python-numpy   | numpy       | has_module numpy
check? | python3-torch   | python3-torch   | python-pytorch | pytorch     | has_module torch
check? | openmpi-bin     | openmpi         | openmpi        | open-mpi    | has_tool mpirun
check? | mkdocs          | mkdocs          | mkdocs         | mkdocs      | has_tool mkdocs
check? | chromium        | chromium        | chromium       | -           | has_browser
lint   | clang-format    | clang-tools-extra | clang        | clang-format | has_tool clang-format
lint   | clang-tidy      | clang-tools-extra | clang        | llvm        | has_tool clang-tidy
lint   | cppcheck        | cppcheck        | cppcheck       | cppcheck    | has_tool cppcheck
'

has_tool() { command -v "$1" >/dev/null 2>&1; }
has_header() { has_tool cc && echo "#include <$1>" | cc -E -x c - >/dev/null 2>&1; }
has_library() { has_tool pkg-config && pkg-config --exists "$1"; }
# Opened at run time: no header is needed.
has_shared_library() { ldconfig -p 2>/dev/null | grep -qF "$1 " || /sbin/ldconfig -p 2>/dev/null | grep -qF "$1 "; }
has_browser() { has_tool chromium || has_tool chromium-browser || has_tool google-chrome; }
# The system's python3, as the tests use it: not one that a version manager put in front of it.
has_module() {
    /usr/bin/python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)' "$1" 2>/dev/null
}

# select_missing required|optional COLUMN: the missing packages of the wanted stages, by their name in that column
select_missing() {
    local want=$1 column=$2 row stage name probe fields
    while IFS= read -r row; do
        [ -n "$row" ] || continue
        IFS='|' read -r -a fields <<<"$row"
        stage=$(echo ${fields[0]}) name=$(echo ${fields[column]}) probe=${fields[5]}
        case $stage in
            *\?) [ "$want" = optional ] || continue ;;
            *) [ "$want" = required ] || continue ;;
        esac
        case " $stages " in *" ${stage%\?} "*) ;; *) continue ;; esac
        [ "$name" != - ] || continue
        $probe || echo "$name"
    done <<<"$table" | sort -u | tr '\n' ' '
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif ! has_tool sudo; then
        echo "install-deps: not root, and there is no sudo" >&2
        return 1
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" </dev/null
}

required=$(select_missing required 1)
optional=$(select_missing optional 1)
[ -n "$required$optional" ] || exit 0

if ! has_tool apt-get; then
    echo "install-deps: this is not a Debian or Ubuntu; please install what is missing:"
    echo "  Fedora    dnf install $(select_missing required 2)$(select_missing optional 2)"
    echo "  Arch      pacman -S $(select_missing required 3)$(select_missing optional 3)"
    echo "  Homebrew  brew install $(select_missing required 4)$(select_missing optional 4)"
    [ -z "$optional" ] || echo "  (optional, by their Debian names: $optional)"
    [ -z "$required" ] || exit 1
    exit 0
fi

echo "== installing: $required$optional"
if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q </dev/null; then
    echo "install-deps: the package lists could not be refreshed; going on with those at hand" >&2
fi
if [ -n "$required" ] && ! apt_install $required; then
    echo "install-deps: could not install; please run: apt-get install $required" >&2
    exit 1
fi
for package in $optional; do
    apt_install "$package" || echo "install-deps: no $package here; what needs it is left out or skipped" >&2
done

left=$(select_missing required 1)
if [ -n "$left" ]; then
    echo "install-deps: installed, but still not found: $left" >&2
    exit 1
fi
exit 0
