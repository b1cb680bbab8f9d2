#!/usr/bin/env bash
# Settings as options of a verb: every one has its option and its place in the help; the command line goes over the file, the
# file over the preset, whatever stands first.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

cat >verb.c <<'C'
#include "settings_options.h"
#include "tool.h"

int main(int argc, char **argv) {
    rcv_context *context;
    settings_arguments arguments;
    if (rcv_context_new(NULL, &context) != RCV_OK || settings_begin(&arguments, context) != RCV_OK) return 9;
    const command command = {
        .verb = "try", .summary = "Tries", .groups = arguments.groups, .group_count = arguments.group_count};
    rcv_settings *settings = NULL;
    parsed next = command_parse(&command, argc, argv);
    if (next == PARSED_GO) next = settings_from_arguments(&arguments, NULL, context, &settings);
    if (next == PARSED_GO && settings == NULL) return 9;
    rcv_settings_free(settings);
    settings_end(&arguments);
    rcv_context_free(context);
    return next == PARSED_WRONG ? EXIT_USAGE : EXIT_DONE;
}
C
tool=$SOURCE_DIR/tool
# shellcheck disable=SC2086
$CC -std=c11 -D_POSIX_C_SOURCE=200809L $CFLAGS -I"$SOURCE_DIR/include" -I"$tool" verb.c "$tool"/settings_options.c "$tool"/options.c "$tool"/options/*.c \
    "$tool"/messages.c "$tool"/runtime.c -L"$BUILD_DIR" -Wl,-rpath,"$BUILD_DIR" -lrecurve -lm $LDFLAGS -o verb || exit 1

# fails SENTENCE ARGUMENTS...: exit status 2, and this is said
fails() {
    local sentence=$1 status=0
    shift
    ./verb "$@" >out 2>err || status=$?
    [ $status = 2 ] || complain "$*: exit status $status"
    grep -qF -- "$sentence" err || complain "$*: said '$(cat err)', not '$sentence'"
}
# value NAME: of what was printed last
value() { python3 -c 'import json, sys; print(json.dumps(json.load(open("out"))[sys.argv[1]]))' "$1"; }
expect() { [ "$(value "$1")" = "$2" ] || complain "$1 is $(value "$1"), not $2"; }

./verb --print-config >defaults.json || complain "--print-config: exit status $?"
./verb --help >help || complain "--help: exit status $?"
for name in $(python3 -c 'import json; print(*json.load(open("defaults.json")))') no-shuffle preset config print-config; do
    grep -qE -- "^  (-[a-zA-Z], )?--$name(,| |\$)" help || complain "--help does not name --$name"
done
[ "$(sed '/^Common options:/,$d' help | grep -cE '^  (-[a-zA-Z], )?--')" = $(($(grep -c '": ' defaults.json) + 4)) ] || complain "--help names more than there is"
for group in Data Model Regularisation Optimiser Schedule Run Machine; do
    [ "$(grep -c "^$group:$" help)" = 1 ] || complain "--help has no group $group"
done
grep -q -- '--hidden, --hidden-size N .*(default 128)' help || complain "--help does not say the default of --hidden"
grep -q -- '--preset NAME .*zaremba-medium' help || complain "--help does not name the presets"
[ "$(awk '{ print length }' help | sort -n | tail -1)" -le 120 ] || complain "--help has a line of more than 120 letters"

./verb && ./verb --tied --steps 3 || complain "a verb without --print-config: exit status $?"
echo '{"hidden": 300, "layers": 3, "preset": "char-lstm"}' >run.json
./verb --layers 4 --no-shuffle --tied --print-config --config run.json --preset zaremba-large >out || complain "all: status $?"
expect layers 4 # command line
expect hidden 300 # file
expect batch 64 # the file's preset over the command line's
expect init 0.04 # which stays where the other says nothing
expect shuffle false
expect tied true
expect seed 0
cp out all.json
./verb --config all.json --print-config >out
cmp -s out all.json || complain "what --print-config printed does not come back"
./verb --preset awd-lstm --variational=false --shuffle --print-config >out || complain "--variational=false: status $?"
expect variational false
expect shuffle true

fails "--hidden must be a whole number from 1 to 16777216, not '0'" --hidden 0
fails "--optimiser must be sgd, momentum, adam, adamw or asgd, not 'adm'" --optimiser=adm
fails "--tied must be true or false, not 'yes'" --tied=yes
fails "--no-shuffle takes no value" --no-shuffle=true
fails "did you mean --hidden?" --hiden 3
fails "--hidden is given twice" --hidden 3 --hidden 4
fails "--hidden needs a value" --hidden
fails "there is no preset 'zaremba'; those known are zaremba-small" --preset zaremba
echo '{"hiden": 1}' >run.json
fails "run.json: there is no setting 'hiden'; did you mean hidden?" --config run.json
fails "none.json" --config none.json
[ $failures = 0 ]
