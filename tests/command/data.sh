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
good() { "$RECURVE" data "$@" --quiet >out 2>err && [ ! -s err ] || complain "recurve data $*"; }

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
good stats text --level word --kind stream
has '^tokens +15$'
has '^vocabulary +5$'
has '^sequences +1$'
[ -e text.recurve-tokens ] || complain "nothing is kept beside the text"
good stats text --level word --kind lines --json json
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
good stats text --level word --kind lines --buckets 4,9
has '^given +1\.2143  4,9$'
good stats text --level word --kind lines --buckets auto:2
has '^best +1\.1429  4,8$'
good stats text --kind lines --level byte --buckets none --cache elsewhere
has '^vocabulary +256$'
has '^tokens +22$'
[ -n "$(ls elsewhere)" ] || complain "nothing is kept in the folder that was named"
for lengths in $(seq 40); do printf 'a%.0s ' $(seq "$lengths"); echo; done >many
good stats many --level word --kind lines --json json
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

# ---- columns and classes ----
cat >table.csv <<'END'
series,time,a,b,kind
one,1,1.5,10,up
one,2,,20,up
one,3,3.5,30,up
two,1,-2,40,down
two,2,0,NA,down
six,1,0,NA,down
END
"$RECURVE" data stats table.csv --json json >out 2>err || complain "stats of a table"
grep -q "table.csv is read as a table.*'series'.*a, b.*kind, a class" err || complain "what was recognised is not said"
has '^steps +6$'
has '^sequences +3$'
has '^longest +3$'
has '^a +-2 +0\.6 +3\.5 +1$'
has '^b +10 +25 +40 +2$'
has '^down +2 +66\.7%$'
has '^up +1 +33\.3%$'
python3 - <<'END' || complain "the JSON of a table is wrong"
import json
all = json.load(open("json"))
assert all["kind"] == "classes" and all["class_counts"] == {"down": 2, "up": 1}, all
assert [(c["name"], c["missing"], c["least"], c["most"]) for c in all["columns"]] == [("a", 1, -2, 3.5), ("b", 2, 10, 40)], all
assert all["lengths"] == {"1": 1, "2": 1, "3": 1}, all
END
good stats table.csv --target a --kind step-values
has '^values +1$'
good stats table.csv --features b --target a --horizon 1
has '^features +1$'
bad 1 "line 3" stats table.csv --missing error
bad 1 "'nothing'" stats table.csv --target nothing
printf 'x,y\n1,2\n3,4,5\n' >ragged.csv
bad 1 "line 3" stats ragged.csv

# ---- folders, and parts of a file ----
mkdir parts && cp table.csv parts/train.csv && cp table.csv parts/val.csv && cp table.csv parts/test.csv
small=(--hidden 2 --batch 2 --steps 1 --validate-every 1 --schedule naive --missing mean)
"$RECURVE" train parts --output folder.model "${small[@]}" >out 2>err || complain "a folder with tables"
python3 -c '
import json
events = {line["event"] for line in map(json.loads, open("folder.jsonl"))}
assert {"validation", "test"} <= events, events' || complain "validation and test of the folder are not read"
for i in $(seq 40); do echo "{\"x\": [$i, $((i % 2))], \"y\": \"$((i % 2))\"}"; done >forty.jsonl
"$RECURVE" train forty.jsonl --kind classes --valid 25% --test 10% --output shares.model "${small[@]}" >out 2>err || complain "shares of a file"
python3 -c '
import json
test = [line for line in map(json.loads, open("shares.jsonl")) if line["event"] == "test"]
assert len(test) == 1 and test[0]["counted"] == 4, test' || complain "the test is not 10% of the data"

bad 2 "use data stats FILE" other text
bad 2 "--buckets must be" stats text --kind lines --buckets 4,4
bad 2 "--buckets must be" stats text --kind lines --buckets auto:65
bad 1 "does not fit" stats text --level word --kind lines --buckets 4
bad 1 "cannot open nothing" stats nothing
: >empty
bad 1 "holds no examples" stats empty --kind classes
exit $((failures > 0))
