#!/usr/bin/env bash
# Parquet, Arrow and Feather files are read as the tables that pyarrow makes of them; skipped where python3 has no pyarrow.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
export XDG_CACHE_HOME=$folder/home
mkdir home

complain() {
    echo "FAILED: $*"
    cat out err
    failures=$((failures + 1))
}
good() { "$RECURVE" "$@" >out 2>err </dev/null || complain "recurve $* gave $?"; }
bad() {
    local fragment=$1
    shift
    "$RECURVE" "$@" >out 2>err </dev/null
    [ $? = 1 ] && grep -qF -- "$fragment" err || complain "recurve $* does not say '$fragment'"
}

# ---- without pyarrow: one sentence says what to install ----
mkdir bin
printf '#!/bin/sh\necho missing\n' >bin/python3
chmod +x bin/python3
printf 'PAR1 and more' >table.parquet
PATH=$folder/bin:$PATH bad "pip install pyarrow" data stats table.parquet --quiet
[ "$(wc -l <err)" = 1 ] || complain "more than one line"

python3 -c 'import pyarrow' 2>/dev/null || { echo "python3 has no pyarrow"; [ $failures = 0 ] && exit 77 || exit 1; }

python3 - <<'END' || exit 1
import csv, random
import pyarrow as pa, pyarrow.feather, pyarrow.parquet
random.seed(2)
rows = {"id": [], "when": [], "a": [], "flag": [], "label": []}
for i in range(30):
    for t in range(5 + i % 3):
        rows["id"].append(f's "{i}", x')
        rows["when"].append(t)
        rows["a"].append(None if (i, t) == (3, 2) else random.gauss(i % 2 * 3, 1))
        rows["flag"].append(t % 2 == 0)
        rows["label"].append(["up", "down"][i % 2])
table = pa.table(rows)
pa.parquet.write_table(table, "table.parquet", row_group_size=40)
pa.feather.write_feather(table, "table.feather")
with pa.OSFile("table.arrow", "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
    writer.write_table(table)
with open("table.csv", "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(rows)
    for row in zip(*rows.values()):
        writer.writerow(["" if v is None else int(v) if isinstance(v, bool) else v for v in row])
pa.parquet.write_table(pa.table({"x": [[1.0, 2.0, 3.0], [4.0, 5.0]], "y": [0, 1]}), "lists.parquet")
pa.parquet.write_table(pa.table({"a": [1.0, 2.0], "inner": [{"p": 1}, {"p": 2}], "y": [0, 1]}), "nested.parquet")
END
stats() { "$RECURVE" data stats "$1" --sequence id --time when --target label --json "$2" --quiet >out 2>err || complain "data stats $1"; }
stats table.csv csv.json
for ending in parquet feather arrow; do
    stats table.$ending $ending.json
    cmp -s csv.json $ending.json || complain "table.$ending is another table: $(diff csv.json $ending.json | head -4)"
done
grep -q '"missing": 1' parquet.json || complain "a null is not missing"
before=$(ls home/recurve/tables)
stats table.parquet again.json
[ "$before" = "$(ls home/recurve/tables)" ] || complain "a file that did not change is converted again"
good data stats lists.parquet --quiet
grep -qE '^longest +3$' out && grep -qE '^classes +2$' out || complain "lists are not sequences"
bad "'inner'" data stats nested.parquet --quiet
[ "$(wc -l <err)" = 1 ] || complain "more than one line about a nested column"
head -c 300 table.parquet >cut.parquet
bad "cannot convert cut.parquet" data stats cut.parquet --quiet
good train table.parquet --sequence id --time when --target label --missing previous --hidden 4 --steps 5 --effort estimate --output m --quiet
good predict m table.parquet
[ "$(wc -l <out)" = 31 ] && [ "$(sed -n 2p out | cut -c1-11)" = '"s ""0"", x' ] || complain "predictions of Parquet"
good eval m table.arrow
exit $((failures > 0))
