# Runs the commands of a page as they are written, in a folder of their own, with wrappers in front of some programs.
#   . "$SOURCE_DIR/tests/command/pages/pages.bash"
#   begin_pages                  makes the folder and goes there; it is removed at the end
#   run_page PAGE                runs every block ```sh of the page, in order, in one shell
#   run_commands NAME <commands  runs commands of another origin in the same way
#   fence LANGUAGE PAGE          prints the first block of that language
# What is not as a reader has it:
#   recurve   --seconds and --tokens are small, under sanitizers --epochs, too; train and compare estimate plans; --device cuda is left out where there is no GPU;
#             plan and bench estimate, and their networks are small unless --hidden is given;
#             `doctor` may report something that is missing (exit status 1)
#   make      make -n in the checkout: the target and its variables are there, nothing is built
#   pip       looks whether the folder that is named is a package
#   mpirun    as root, and with more processes than cores; where there is none, or the build has no MPI, the line is skipped and a message says so
# The folder has `examples` and `cells` of the checkout, and of `docs` some pages, so that the text of a training is short.

begin_pages() {
    pages_folder=$(mktemp -d) || exit 1
    trap 'rm -rf "$pages_folder"' EXIT
    mkdir -p "$pages_folder/bin" "$pages_folder/home" "$pages_folder/work"
    export HOME=$pages_folder/home PATH=$pages_folder/bin:$PATH
    PAGES_MAKE=$(command -v make) PAGES_MPIRUN=$(command -v mpirun)
    export PAGES_MAKE PAGES_MPIRUN PAGES_SLOW=
    case ${CFLAGS:-} in *-fsanitize=*) PAGES_SLOW=yes ;; esac
    write_wrapper recurve <<'WRAPPER'
arguments=()
verb=${1:-}
while [ $# -gt 0 ]; do
    case $1 in
        --seconds) arguments+=("$1" 2); shift ;;
        --tokens) arguments+=("$1"); [ "$verb" != generate ] || { arguments+=(40); shift; } ;;
        --epochs) arguments+=("$1" "$([ -n "$PAGES_SLOW" ] && echo 1 || echo "$2")"); shift ;;
        --device) "$RECURVE" init probe.safetensors --cell lstm --input 1 --hidden 1 >/dev/null 2>&1
                  case $2 in
                      cuda*) if "$RECURVE" plan --device "$2" --steps 2 --batch 1 --hidden 1 --effort estimate >/dev/null 2>&1; then
                                 arguments+=("$1" "$2")
                             else
                                 echo "pages: no $2 here: on the CPU"
                             fi ;;
                      *) arguments+=("$1" "$2") ;;
                  esac
                  rm -f probe.safetensors
                  shift ;;
        *) arguments+=("$1") ;;
    esac
    shift
done
case $verb in
    train | compare) case " ${arguments[*]} " in *" --effort "*) ;; *) arguments+=(--effort estimate) ;; esac ;;
    plan | bench) case " ${arguments[*]} " in *" --parallel "*) ;; *" --hidden "*) arguments+=(--effort estimate) ;; *) arguments+=(--effort estimate --hidden 16 --batch 4) ;; esac ;;
    doctor) "$RECURVE" "${arguments[@]}" || [ $? = 1 ]; exit ;;
esac
exec "$RECURVE" "${arguments[@]}"
WRAPPER
    write_wrapper make <<'WRAPPER'
exec "$PAGES_MAKE" -n -C "$SOURCE_DIR" "$@" >/dev/null
WRAPPER
    write_wrapper pip <<'WRAPPER'
[ "$1" = install ] && grep -q '^\[project\]' "$SOURCE_DIR/$2/pyproject.toml"
WRAPPER
    write_wrapper mpirun <<'WRAPPER'
if [ -z "$PAGES_MPIRUN" ] || [ ! -e "$BUILD_DIR/librecurve-mpi.so" ]; then
    echo "pages: skipped, no MPI here: mpirun $*" >&2
    exit 0
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
more=
"$PAGES_MPIRUN" --version 2>&1 | grep -q 'Open MPI' && more=--oversubscribe
exec "$PAGES_MPIRUN" $more "$@"
WRAPPER
    ln -s "$SOURCE_DIR/examples" "$SOURCE_DIR/cells" "$pages_folder/work/"
    mkdir "$pages_folder/work/docs"
    ln -s "$SOURCE_DIR"/docs/{CELLS,FILES,GLOSSARY,TRAINING}.md "$pages_folder/work/docs/"
    cd "$pages_folder/work" || exit 1
}

write_wrapper() {
    { echo '#!/usr/bin/env bash' && cat; } >"$pages_folder/bin/$1"
    chmod +x "$pages_folder/bin/$1"
}

fence() { awk -v open='```'"$1" 'inside && /^```$/ { exit } inside { print } $0 == open { inside = 1 }' "$2"; }

run_commands() { # what they print goes to NAME.out
    local name=$1 status=0
    bash -eu -o pipefail -c "$(cat)" "$name" >"$pages_folder/$name.out" 2>&1 </dev/null || status=$?
    [ "${PAGES_SHOW:-}" = "" ] || cat "$pages_folder/$name.out"
    grep '^pages: ' "$pages_folder/$name.out"
    [ $status = 0 ] && return
    echo "FAILED: $name: exit status $status; the last lines that it printed:"
    tail -n 15 "$pages_folder/$name.out"
    return 1
}

run_page() { # a command that fails is named by its line
    local page=$1
    awk '
        inside && /^```$/ { inside = 0 }
        inside { print }
        $0 == "```sh" { inside = 1; printf "trap '\''echo \"the block of line %d failed: $BASH_COMMAND\"'\'' ERR\n", NR }' "$page" |
        run_commands "$(basename "$page" .md)"
}
