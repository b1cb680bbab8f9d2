#!/usr/bin/env bash
# bench_calls: every part on small networks, a number or a verdict in each row, the page of its file, parts that fail, wrong options, and Ctrl-C.
set -u
calls=$BUILD_DIR/bench/bench_calls
[ -x "$calls" ] || exit 77
command -v python3 >/dev/null || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export TMPDIR=$folder
failures=0
complain() {
    echo "FAILED: $*"
    sed 's/^/    stderr: /' err | tail -8
    failures=$((failures + 1))
}
# bad STATUS FRAGMENT ARGUMENTS...: that status and one sentence with the fragment
bad() {
    local wanted=$1 fragment=$2
    shift 2
    "$calls" "$@" >out 2>err </dev/null
    local status=$?
    [ $status = "$wanted" ] || complain "bench_calls $* gave $status, not $wanted"
    [ "$(wc -l <err)" = 1 ] || complain "bench_calls $* does not say one line"
    grep -qF -- "$fragment" err || complain "bench_calls $* does not say '$fragment'"
}

# 300 sentences of 2 to 82 steps
mkdir data results
awk 'BEGIN { for (i = 0; i < 300; i++) { for (w = 0; w <= i * 37 % 81; w++) printf "word "; print "" } }' >data/ptb.train.txt

"$calls" --tiny --seconds 200 --data data --json results >out 2>err </dev/null || complain "bench_calls --tiny gave $?"
[ "$(wc -l <out)" -gt 50 ] || complain "bench_calls prints no table"
[ -z "$(find . -name 'bench-calls-*')" ] || complain "caches are left"
file=$(echo results/calls-*.json)
python3 - "$file" <<'PYTHON' || failures=$((failures + 1))
import json, sys
data = json.load(open(sys.argv[1]))
rows = {row["id"]: row for row in data["rows"]}
changes = ["hidden", "layers", "both", "gru", "smaller"]
wanted = [f"{job}.{kind}.device" for job in ("first", "again", "next") for kind in ("float32", "bfloat16", "own")] + ["measure.float32.device", "measure.bfloat16.device"]
for kind in ("float32", "bfloat16", "own"):
    wanted += [f"first.{kind}.{name}" for name in ("step", "tuned", "slowed", "tuned_step")] + [f"again.{kind}.step"]
    wanted += [f"next.{kind}.{change}" for change in changes if kind != "own" or change != "gru"]
for kind in ("float32", "bfloat16"):
    wanted += [f"measure.{kind}.{name}" for name in ("plan", "step")]
wanted += [f"new.{cell}.{size}.{way}" for cell in ("lstm", "gru", "sru", "own") for size in ("small", "headline") for way in ("inference", "training")]
size_calls = ("forward", "training.forward", "training.backward", "training.both")
wanted += [f"sizes.{call}.{sizes}.{until}" for call in size_calls for sizes in ("new", "seen_but_not_last") for until in ("host", "done")]
wanted += ["types.data", "types.parameters", "backward.twice", "backward.reserve", "backward.measured.twice", "backward.measured.reserve", "sentences.epoch", "sentences.ratio", "sentences.without_small", "stream.step"]
wrong = []
# A search may end before a second step. One that could time one candidate alone, on a busy machine, has nothing for a cache.
may_be_missing = lambda name: name.endswith((".slowed", ".without_small")) or name.startswith("again.") and rows[name].get("missed")
for name in wanted:
    row = rows.get(name)
    if row is None:
        wrong.append(f"no row {name}")
    elif name.startswith("backward."):
        if row.get("verdict") != "equal":
            wrong.append(f"{name} is not equal: {row}")
    elif row["failed"] or not (isinstance(row["measured"], (int, float)) or may_be_missing(name) and row["reason"]):
        wrong.append(f"no number: {row}")
wrong += [f"unknown row {name}" for name in rows if name not in wanted]
wrong += [f"{name} has no {key}" for name, row in rows.items() for key in ("part", "what", "unit", "target", "measured", "failed", "details") if key not in row]
wrong += [f"no {key}" for key in ("command", "date", "version", "commit", "seconds", "stopped", "complete", "tiny") if key not in data]
wrong += [f"machine has no {key}" for key in ("device", "cpu", "system", "cores", "threads", "kernels") if key not in data["machine"]]
for name in ("first.float32.step", "again.float32.step", "new.own.small.training"):
    wrong += [f"{name} has no {key}" for key in ("net_ms", "plan_ms", "run_ms", "step_ms", "plan") if key not in rows.get(name, {}).get("details", {})]
again = [rows[f"again.{kind}.step"] for kind in ("float32", "bfloat16", "own")]
wrong += [f"a number of a plan that is not from wisdom: {row}" for row in again if (row["details"]["from_wisdom"] == "yes") != (row["measured"] is not None)]
if all(row["measured"] is None for row in again):
    wrong.append("no second process has the plan from the cache")
if not data["complete"]:
    wrong.append("the file is not complete")
details = {"first.float32.tuned": ["search_ended_s", "version", "first_plan", "tuned_plan"], "next.float32.hidden": ["earlier_searches_running", "from_wisdom"],
           "sizes.training.both.new.done": ["seen_but_not_last_us", "second_call_us", "seen_among_8_us"], "stream.step": ["stream_plan", "by_hand_plan"],
           "sentences.epoch": ["small_batch", "small_plan"], "sentences.ratio": ["first_epoch_s", "exact_plans_s", "second_epoch_ratio", "repeated_sizes_ratio", "samples"]}
wrong += [f"{name} has no {key}" for name, keys in details.items() for key in keys if key not in rows[name]["details"]]
if not {"replaced", "replaced_s"} & set(rows["first.float32.tuned"]["details"]):
    wrong.append("first.float32.tuned does not say whether the plan was replaced")
epoch = rows["sentences.epoch"]["details"]
if epoch["batches"] != epoch["batches_of_the_epoch"] or sum(batch for _, batch in epoch["sizes"]) != 300 or max(steps for steps, _ in epoch["sizes"]) != 82:
    wrong.append("the batches do not have every sentence once")
for line in wrong:
    print("FAILED:", line)
sys.exit(len(wrong) > 0)
PYTHON

# the page of such a file; one of small networks is refused
tree=$folder/tree
mkdir -p "$tree/bench" "$tree/docs"
cp -r "$SOURCE_DIR/bench/results" "$tree/bench/"
cp -r "$SOURCE_DIR/docs/results" "$tree/docs/"
cp "$SOURCE_DIR/docs/SPEED.md" "$tree/docs/"
chmod -R u+w "$tree"
cp "$file" "$tree/bench/results/calls-test.json"
python3 "$SOURCE_DIR/scripts/results.py" --root "$tree" >out 2>err && complain "a file of bench_calls --tiny has a page"
sed 's/"tiny": true/"tiny": false/' "$file" >"$tree/bench/results/calls-test.json"
python3 "$SOURCE_DIR/scripts/results.py" --root "$tree" >out 2>err || complain "there is no page"
for what in 'first step, no caches' 'second backward call' 'not seen before' 'dy in bfloat16' 'first epoch of sentences by one plan, of the same batches' 'bench --streaming'; do
    grep -q "$what" "$tree/docs/results/calls-test.md" || complain "the page does not have '$what'"
done

# what happened in another way than a row asks for is no number, and misses the target
sed -E 's/"tiny": true/"tiny": false/; s/("id": "again.own.step".*"target": )[^,]*(, "measured": )[^,]*,/\1150\2null, "reason": "not from wisdom", "missed": true,/' \
    "$file" >"$tree/bench/results/calls-test.json"
python3 "$SOURCE_DIR/scripts/results.py" --root "$tree" >out 2>err || complain "there is no page of a file with a row that is missed"
grep -q 'at most 150 ms | not measured: not from wisdom | no |' "$tree/docs/results/calls-test.md" || complain "a row that is missed is not on the page"

# too little time: rows without numbers, and the reason
"$calls" --seconds 1 --parts types --json short.json >out 2>err </dev/null || complain "a part without time gave $?"
python3 -c 'import json; assert all(row["measured"] is None and "time" in row["reason"] for row in json.load(open("short.json"))["rows"])' ||
    complain "a part without time has numbers"

# a part that fails
"$calls" --tiny --seconds 30 --parts sentences --data nowhere --json failed.json >out 2>err </dev/null
[ $? = 1 ] || complain "a part that fails gives $?, not 1"
grep -q '"failed": true' failed.json || complain "a part that fails is not in the file"
"$calls" --tiny --seconds 30 --parts backward --json nowhere/file.json >out 2>err </dev/null && complain "a file that cannot be written gives 0"

bad 2 "unknown option '--part'" --part first
bad 2 "'second'" --parts first,second
bad 2 "--seconds is 'soon'" --seconds soon
bad 2 "--json needs a value" --json
bad 1 "quantum" --device quantum --seconds 5
"$calls" --help >out 2>err || complain "--help gave $?"
[ "$(grep -c '^  --' out)" = 8 ] || complain "--help does not list the options"

# Ctrl-C: the rows so far are in the file
"$calls" --seconds 60 --parts first --json stopped.json >out 2>err </dev/null &
process=$!
for _ in $(seq 600); do
    grep -q '"id"' stopped.json 2>/dev/null && break
    sleep 0.1
done
kill -INT $process # a shell's child in the background ignores it by default, but the program asks for it
wait $process
status=$?
[ $status = 130 ] || complain "SIGINT gives $status, not 130"
python3 -c 'import json; data = json.load(open("stopped.json")); assert data["stopped"] and data["rows"]' || complain "SIGINT leaves no results"
[ -z "$(find . -name 'bench-calls-*')" ] || complain "SIGINT leaves caches"

[ $failures = 0 ] && echo "ok"
exit $((failures > 0))
