# Sourced by scripts of tests/command. Sanitizer builds: no process searches for leaks from here on, but those after `leakless`.
#   leakless COMMAND...
# On 64-bit ARM a search takes 4 seconds a process (tests/CMakeLists.txt turns it off there). Then RECURVE_TEST_PART=K/N (sample.h) selects one
# of N such commands, and the others run without the search; the N parts together are all of them.
leak_options=${ASAN_OPTIONS:-}
leak_part=${RECURVE_TEST_PART:-0/1}
leak_index=0
case $leak_options in *detect_leaks=0*) ;; *) leak_part=0/1 ;; esac
export ASAN_OPTIONS=$leak_options:detect_leaks=0
leakless() {
    leak_index=$((leak_index + 1))
    if [ $((leak_index % ${leak_part#*/})) = "${leak_part%/*}" ]; then
        ASAN_OPTIONS=$leak_options:detect_leaks=1 "$@"
    else
        "$@"
    fi
}
