#!/usr/bin/env bash
# recurve predict: classes, values, forecasts and log-probabilities; files and standard input; what is refused.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
export XDG_CACHE_HOME=$folder/home TMPDIR=$folder/temporary
mkdir home temporary

. "$SOURCE_DIR/tests/support/leaks.bash"

complain() {
    echo "FAILED: $*"
    sed 's/^/    stdout: /' out | head -5
    sed 's/^/    stderr: /' err | head -5
    failures=$((failures + 1))
}

# good ARGUMENTS...: exit status 0
good() {
    "$RECURVE" "$@" >out 2>err </dev/null
    local status=$?
    [ $status = 0 ] || complain "recurve $* gave $status"
}

# predict ARGUMENTS...: exit status 0, and nothing on stderr
predict() {
    "$RECURVE" predict "$@" >out 2>err </dev/null && [ ! -s err ] || complain "recurve predict $*"
}

# piped FILE ARGUMENTS...: the same with FILE on standard input
piped() {
    local file=$1
    shift
    "$RECURVE" predict "$@" - <"$file" >out 2>err && [ ! -s err ] || complain "recurve predict $* - <$file"
}

# bad STATUS FRAGMENT ARGUMENTS...: that exit status, one sentence with the fragment, nothing on stdout, no file "new"
bad() {
    local wanted=$1 fragment=$2
    shift 2
    rm -f new new.csv
    "$RECURVE" predict "$@" >out 2>err </dev/null
    local status=$?
    [ $status = "$wanted" ] || complain "recurve predict $* gave $status, not $wanted"
    [ "$(wc -l <err)" = 1 ] && grep -qF -- "$fragment" err || complain "recurve predict $* does not say '$fragment'"
    [ ! -s out ] || complain "recurve predict $* writes to stdout"
    [ ! -e new ] && [ ! -e new.csv ] || complain "recurve predict $* leaves a file"
}

same() { cmp -s "$1" "$2" || complain "$1 and $2 differ: $(diff "$1" "$2" | head -3)"; }

# ---- data: three kinds of waves, with noise ----
python3 - <<'END' || exit 1
import json, math, random
random.seed(5)

def wave(kind, steps):
    phase = random.random()
    return [round(math.sin(t * (kind + 1) * 0.5 + phase) + random.gauss(0, 0.15), 4) for t in range(steps)]

names = ["slow", 'mid, "and" more', "fast"]
with open("wide.csv", "w") as file, open("wide_new.csv", "w") as new, open("truth", "w") as truth:
    print("label," + ",".join(f"t{t}" for t in range(24)), file=file)
    print("note," + ",".join(f"t{t}" for t in range(24)), file=new)
    for i in range(240):
        kind = i % 3
        print('"' + names[kind].replace('"', '""') + '",' + ",".join(map(str, wave(kind, 24))), file=file)
    for i in range(60):
        kind = random.randrange(3)
        print(f"n{i}," + ",".join(map(str, wave(kind, 24))), file=new)
        print(names[kind], file=truth)
with open("long.csv", "w") as file, open("long_new.csv", "w") as new:
    print("series,time,a,b,kind", file=file)
    print("b,series,time,a", file=new)  # other places, no target
    for i in range(40):
        for t, a in enumerate(wave(i % 2, 10 + i % 5)):
            print(f"s{i},{t},{a},{round(random.random(), 3)},{'xy'[i % 2]}", file=file)
    for i in range(9):
        for t, a in enumerate(wave(i % 2, 8 + i % 7)):
            print(f'{round(random.random(), 3)},"n ""{i}""",{t},{a}', file=new)
with open("sales.csv", "w") as file:
    print("date,temp,sales", file=file)
    for t in range(200):
        print(f"{2020 + t // 336}-{1 + t // 28 % 12:02}-{1 + t % 28:02},{10 + 5 * math.sin(t / 7):.2f},{100 + 20 * math.sin(t / 7):.2f}", file=file)
with open("sums.jsonl", "w") as file:
    for i in range(120):
        x = [[random.random(), random.random()] for t in range(random.randint(2, 9))]
        print(json.dumps({"x": x, "y": [sum(a for a, b in x), 2.5]}), file=file)
with open("text", "w") as file:
    for i in range(150):
        print(f"the cat sat on a mat and saw {i % 7} dogs" + " again" * (i % 4), file=file)
END
small=(--threads 1 --effort estimate --quiet)
good train wide.csv --hidden 24 --epochs 12 --batch 8 --output wide.model "${small[@]}"
good train long.csv --hidden 8 --steps 60 --output long.model "${small[@]}"
good train sales.csv --horizon 5 --normalise --hidden 8 --steps 60 --length 20 --output sales.model "${small[@]}"
good train sums.jsonl --kind values --hidden 8 --steps 20 --output vector.model "${small[@]}"
good train text --level byte --kind stream --hidden 8 --steps 30 --output bytes.model "${small[@]}"
good train text --level word --kind lines --hidden 8 --steps 30 --output words.model "${small[@]}"

# ---- classes ----
leakless predict wide.model wide_new.csv
cp out wide.out
[ "$(head -1 out)" = sequence,class,probability ] || complain "the header of classes"
[ "$(wc -l <out)" = 61 ] || complain "not a row for each sequence"
python3 - <<'END' || complain "the classes are not those of the waves"
import csv
rows, truth = list(csv.DictReader(open("wide.out"))), open("truth").read().splitlines()
right = sum(row["class"] == name for row, name in zip(rows, truth))
assert [row["sequence"] for row in rows] == [str(i) for i in range(60)], rows[:2]
assert right >= 57, right  # 95 %
assert all(1 / 3 < float(row["probability"]) <= 1 for row in rows)
END
predict wide.model wide_new.csv --probabilities --output probabilities.csv
predict wide.model wide_new.csv --probabilities --output p.jsonl
predict wide.model wide_new.csv --output p.npy
predict wide.model wide_new.csv --format npy
same p.npy out
python3 - <<'END' || complain "tables, JSON lines and arrays do not say the same"
import ast, csv, json, struct
raw = open("p.npy", "rb").read()
length = struct.unpack("<H", raw[8:10])[0]
header = ast.literal_eval(raw[10 : 10 + length].decode())
assert header == {"descr": "<f4", "fortran_order": False, "shape": (60, 3)} and (10 + length) % 64 == 0, header
array = struct.unpack("<180f", raw[10 + length :])
table, lines = list(csv.DictReader(open("probabilities.csv"))), [json.loads(line) for line in open("p.jsonl")]
single = lambda text: struct.unpack("f", struct.pack("f", float(text)))[0]
for i, (row, line) in enumerate(zip(table, lines, strict=True)):
    names = list(line["probabilities"])
    values = [single(line["probabilities"][name]) for name in names]
    assert tuple(values) == array[3 * i : 3 * i + 3], (i, values)
    assert [single(row["p_" + name]) for name in names] == values and abs(sum(values) - 1) < 1e-5
    assert row["class"] == line["class"] == names[values.index(max(values))] and line["sequence"] == i
END
predict wide.model wide_new.csv --output p.npy       # its own kinds are replaced,
predict wide.model wide_new.csv --output p.jsonl
predict wide.model wide_new.csv --output probabilities.csv
cp wide.csv mine.csv
bad 1 "mine.csv exists" wide.model wide_new.csv --output mine.csv # and no others,
same mine.csv wide.csv
predict wide.model wide_new.csv --output mine.csv --overwrite # unless that is said
same mine.csv wide.out
predict wide.model wide_new.csv --batch 7
cut -d, -f1,2 out >batch.classes
same batch.classes <(cut -d, -f1,2 wide.out)

# ---- a table whose rows are time steps: columns by name, sequences by theirs ----
predict long.model long_new.csv
cp out long.out
[ "$(sed -n 2p out | cut -d, -f1)" = '"n ""0"""' ] || complain "the name of a sequence"
[ "$(wc -l <out)" = 10 ] || complain "not a row for each sequence of several rows"
piped long_new.csv long.model
same out long.out
cut -d, -f2- long_new.csv >less.csv
bad 1 "'b'" long.model less.csv
sed 's/^b,/bb,/' long_new.csv >misspelt.csv
bad 1 "'b'" long.model misspelt.csv

# ---- values, each with its name ----
predict vector.model sums.jsonl
[ "$(head -1 out)" = sequence,y0,y1 ] && [ "$(wc -l <out)" = 121 ] || complain "the table of values"
predict vector.model sums.jsonl --output new.csv
"$RECURVE" predict vector.model sums.jsonl --output new.csv >out 2>err # a table of values may be anything
[ $? = 1 ] && grep -q "new.csv exists" err || complain "a table that may be a user's is replaced"
rm -f new.csv

# ---- forecasts ----
predict sales.model sales.csv
cp out sales.out
[ "$(head -1 out)" = sequence,step,sales ] || complain "the header of forecasts"
[ "$(sed -n 2p out | cut -d, -f2)" = 5 ] && [ "$(tail -1 out | cut -d, -f2)" = 204 ] || complain "the steps of forecasts"
[ "$(wc -l <out)" = 201 ] || complain "not a forecast for each step"
piped sales.csv sales.model # a row in, a row out
python3 - <<'END' || complain "the forecasts of standard input differ"
import csv
a, b = (list(csv.DictReader(open(name))) for name in ("sales.out", "out"))
assert len(a) == len(b) == 200
assert all(x["step"] == y["step"] and abs(float(x["sales"]) - float(y["sales"])) < 1e-3 for x, y in zip(a, b))
assert all(60 < float(x["sales"]) < 140 for x in a), "not in the units of the data"
END
predict sales.model sales.csv --last
python3 - <<'END' || complain "--last is not the last"
last = open("out").read().splitlines()
whole = open("sales.out").read().splitlines()
assert len(last) == 2 and last[1].split(",")[:2] == whole[-1].split(",")[:2], last
assert abs(float(last[1].split(",")[2]) - float(whole[-1].split(",")[2])) < 1e-3
END

# ---- texts ----
predict bytes.model text
cp out text.out
good eval bytes.model text --json eval.json
python3 - <<'END' || complain "the text's log-probability is not that of eval"
import csv, json
(row,) = csv.DictReader(open("text.out"))
found = json.load(open("eval.json"))
assert int(row["tokens"]) == found["counted"], (row, found)
assert abs(float(row["mean_log_probability"]) + found["loss"]) < 1e-4 and abs(float(row["bits_per_byte"]) - found["bits_per_byte"]) < 1e-4
END
predict bytes.model text --tokens --format jsonl
python3 - <<'END' || complain "the tokens of a text"
import csv, json
rows = [json.loads(line) for line in open("out")]
text = open("text").read()
assert "".join({"\\n": "\n"}.get(r["token"], r["token"]).replace("\\x0a", "\n") for r in rows) == text, rows[:3]
assert rows[0]["log_probability"] is None and [r["position"] for r in rows] == list(range(len(text)))
(row,) = csv.DictReader(open("text.out"))
assert abs(sum(r["log_probability"] for r in rows[1:]) - float(row["log_probability"])) < 0.05
END
piped text bytes.model
same out text.out
predict words.model text
cp out words.out
good eval words.model text --json words.json
python3 - <<'END' || complain "the lines' log-probabilities are not those of eval"
import csv, json
rows, found = list(csv.DictReader(open("words.out"))), json.load(open("words.json"))
assert [int(row["line"]) for row in rows] == list(range(1, 151))
count = sum(int(row["tokens"]) for row in rows)
assert count == found["counted"], (count, found)
assert abs(sum(float(row["log_probability"]) for row in rows) / count + found["loss"]) < 1e-4
END
piped text words.model
same out words.out
predict words.model text --tokens
[ "$(sed -n 2p out | cut -d, -f1-3)" = 1,0,the ] || complain "the first word"

# ---- standard input: answers come as lines do ----
python3 - <<'END' || complain "an answer does not come before the next line"
import os, select, subprocess
tool = os.environ["RECURVE"]
for model, file, header in (("wide.model", "wide_new.csv", True), ("words.model", "text", False), ("sales.model", "sales.csv", True)):
    process = subprocess.Popen([tool, "predict", model, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    lines, answers = open(file, "rb").read().splitlines(True), b""
    if header:
        process.stdin.write(lines.pop(0))
    for i in range(4):
        process.stdin.write(lines[i])
        process.stdin.flush()
        while answers.count(b"\n") < i + 2:
            assert select.select([process.stdout], [], [], 60)[0], (model, i, answers)
            answers += os.read(process.stdout.fileno(), 65536)
    process.stdin.close()
    assert process.stdout.read() == b"" and process.wait() == 0, model
END
piped wide_new.csv wide.model
same <(cut -d, -f1,2 out) <(cut -d, -f1,2 wide.out)
sed -n 1,4p wide_new.csv >wrong.csv
sed -n 5p wide_new.csv | sed 's/^\(n[0-9]*\),[^,]*,/\1,oops,/' >>wrong.csv
sed -n 6,8p wide_new.csv >>wrong.csv
"$RECURVE" predict wide.model - <wrong.csv >out 2>err
[ $? = 1 ] && [ "$(wc -l <out)" = 4 ] && [ "$(wc -l <err)" = 1 ] || complain "a wrong line does not end the answers"
grep -q "standard input.*line 5.*'t0'.*oops" err || complain "the wrong line and column are not named"
"$RECURVE" predict wide.model - --keep-going <wrong.csv >out 2>err
[ $? = 1 ] && [ "$(wc -l <out)" = 8 ] && [ "$(wc -l <err)" = 1 ] || complain "--keep-going does not go on"
[ "$(sed -n 5p out)" = 3,, ] || complain "the row of a wrong line"
same <(sed -n '2,4p;6,8p' out | cut -d, -f1,2) <(sed -n '2,4p;6,8p' wide.out | cut -d, -f1,2)
"$RECURVE" predict wide.model - --keep-going --format jsonl <wrong.csv >out 2>err
sed -n 4p out | grep -q '"sequence":3,"error":".*oops' || complain "the error in JSON lines"
"$RECURVE" predict wide.model - --output new.csv <wrong.csv >out 2>err
[ $? = 1 ] && [ ! -e new.csv ] || complain "a file is left after a wrong line"
sed 's/^note,t0,/note,zero,/' wide_new.csv >renamed.csv
"$RECURVE" predict wide.model - --keep-going <renamed.csv >out 2>err
[ $? = 1 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -q "'t0'" err || complain "a header without a column goes on"
"$RECURVE" predict wide.model wide_new.csv --output piped.npy && "$RECURVE" predict wide.model - --output piped2.npy <wide_new.csv
cmp -s <(head -c 256 piped.npy) <(head -c 256 piped2.npy) || complain "the array from standard input has another shape"
bad 2 "give --output" wide.model - --format npy
[ -z "$(ls temporary)" ] || complain "temporary files stay: $(ls temporary)"

# ---- what is refused ----
bad 1 "empty" wide.model -
: >empty.csv
bad 1 "empty.csv" wide.model empty.csv
bad 1 "cannot open" wide.model nothing.csv
bad 1 "wide.model" wide.model wide.model
bad 1 "cannot open" nothing wide_new.csv
bad 2 "--tokens is for" wide.model wide_new.csv --tokens
bad 2 "--probabilities is for" vector.model sums.jsonl --probabilities
bad 2 "--last is for" wide.model wide_new.csv --last
bad 1 "which is read" wide.model wide_new.csv --output wide_new.csv
bad 1 "which is read" wide.model wide_new.csv --output wide.model --overwrite
printf 'note,%s\nn,1,nan,inf,%s\n' "$(seq -s, -f t%g 0 23)" "$(seq -s, 21)" >infinite.csv
bad 1 "line 2" wide.model infinite.csv
python3 -c 'print(",".join(f"c{i}" for i in range(1000000))); print(",".join("1" for i in range(1000000)))' >broad.csv
bad 1 "broad.csv" wide.model broad.csv
if [ -c /dev/full ]; then
    "$RECURVE" predict wide.model wide_new.csv >/dev/full 2>err
    [ $? = 1 ] && grep -q '^recurve: cannot write' err || complain "a full device is no failure"
fi
"$RECURVE" predict wide.model wide_new.csv 2>err | head -1 >out
[ "${PIPESTATUS[0]}" = 0 ] && [ ! -s err ] || complain "a reader that leaves is a failure"
exit $((failures > 0))
