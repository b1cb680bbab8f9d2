#!/usr/bin/env bash
# recurve data stats: what it prints, as text and as JSON, is what the file holds; mistakes are one sentence.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0

complain() {
    echo "FAILED: $*"
    cat out err
    failures=$((failures + 1))
}

# good ARGUMENTS...: exit status 0 and silence on stderr
good() { "$RECURVE" data "$@" >out 2>err && [ ! -s err ] || complain "recurve data $*"; }

# bad STATUS FRAGMENT ARGUMENTS...: that status, and one sentence with the fragment
bad() {
    local wanted=$1 fragment=$2
    shift 2
    "$RECURVE" data "$@" >out 2>err
    [ $? = "$wanted" ] || complain "recurve data $* does not give $wanted"
    [ "$(wc -l <err)" = 1 ] && grep -qF -- "$fragment" err || complain "recurve data $* does not say '$fragment'"
    [ ! -s out ] || complain "recurve data $* writes to stdout"
}

has() { grep -qE -- "$1" out || complain "no '$1' in what came out"; }

printf 'a b c\n\nb\nc c c c c c c\n' >text
good stats text
has '^tokens +15$'
has '^vocabulary +5$'
has '^sequences +1$'
[ -e text.recurve-tokens ] || complain "nothing is kept beside the text"
good stats text --kind lines --json json
has '^tokens +14$'
has '^sequences +3$'
has '^longest +8$'
has '^ +4 \.\. +4 +1  #+$'
has '^none +1\.7143  8$'
has '^best +1\.0000  2,4,8$'
has '^greedy +1\.0000  2,4,8$'
python3 - <<'END' || complain "the JSON is wrong"
import json
all = json.load(open("json"))
assert all["tokens"] == 14 and all["kind"] == "lines" and all["lengths"] == {"2": 1, "4": 1, "8": 1}, all
ways = {way["name"]: way for way in all["buckets"]}
assert ways["best"]["lengths"] == [2, 4, 8] and abs(ways["none"]["padded_to_ideal"] - 24 / 14) < 1e-6, ways
END
good stats text --kind lines --buckets 4,9
has '^given +1\.2143  4,9$'
good stats text --kind lines --buckets auto:2
has '^best +1\.1429  4,8$'
good stats text --kind lines --level byte --buckets none --cache elsewhere
has '^vocabulary +256$'
has '^tokens +22$'
[ -n "$(ls elsewhere)" ] || complain "nothing is kept in the folder that was named"
for lengths in $(seq 40); do printf 'a%.0s ' $(seq "$lengths"); echo; done >many
good stats many --kind lines --json json
"$RECURVE" train many --kind lines --level word --hidden 2 --batch 2 --steps 1 --buckets auto --schedule naive --output model.safetensors >out 2>err ||
    complain "recurve train"
python3 - <<'END' || complain "auto is one thing to stats and another to train"
import json
ways = {way["name"]: way for way in json.load(open("json"))["buckets"]}
start = next(line for line in map(json.loads, open("model.jsonl")) if line["event"] == "start")
trained = sorted(shape["steps"] for shape in start["shapes"])
assert len(trained) == 32 and trained == ways["best"]["lengths"], (trained, ways)
END
printf '2 1 1 1\n7 1\n' >examples
good stats examples --kind classes
has '^steps +4$'
has '^features +1$'
has '^classes +2$'

bad 2 "use data stats FILE" other text
bad 2 "--buckets must be" stats text --kind lines --buckets 4,4
bad 2 "--buckets must be" stats text --kind lines --buckets auto:65
bad 1 "does not fit" stats text --kind lines --buckets 4
bad 1 "cannot open nothing" stats nothing
: >empty
bad 1 "holds no examples" stats empty --kind classes
exit $((failures > 0))
