#!/usr/bin/env bash
# Trains a byte-level LSTM on the sentences of this project's pages and comments: data statistics, training with validation, resuming from a
# checkpoint, the report page, and text generated before and after training.
#   scripts/demo.sh BUILD-DIRECTORY      SECONDS_TO_TRAIN=60
set -eu
cd "$(dirname "$0")/.."
recurve=${1:-build/release}/recurve
seconds=${SECONDS_TO_TRAIN:-60}
out=build/demo
rm -rf "$out"
mkdir -p "$out/data"

# Plain sentences, one a line: no code, no tables, no names of functions.
sentences='
    /^```/ { code = !code; next }
    code || /^[#|<]/ || /^    / { next }
    $0 == "" { text = ""; next }
    {
        gsub(/\[|\]\([^)]*\)|\*\*|`/, "")
        sub(/^ *([-*]|[0-9]+\.) /, "")
        text = text " " $0
        while (match(text, /[.?!] +[A-Z]/)) {
            sentence = substr(text, 1, RSTART)
            text = substr(text, RSTART + 1)
            gsub(/  +/, " ", sentence)
            sub(/^ /, "", sentence)
            if (sentence ~ /^[A-Z][A-Za-z0-9 ,.;:()?!-]*$/ && length(sentence) > 30) print sentence
        }
    }'
# The text of comments of C.
comments='/\/\*/ { inside = 1 } inside { line = $0; sub(/.*\/\*/, "", line); sub(/^ *\*+ /, "", line); sub(/\*\/.*/, "", line); print line } /\*\// { inside = 0; print "" }'
{
    find README.md CONTRIBUTING.md docs -name '*.md' | LC_ALL=C sort | xargs cat | awk "$sentences"
    find include src tool -name '*.[ch]' | LC_ALL=C sort | xargs cat | awk "$comments" | awk "$sentences"
} | awk -v out="$out/data" '{ print >(out (NR % 20 ? "/train.txt" : "/valid.txt")) }' # every twentieth is for validation

write_some() { # of 80 columns
    {
        printf '%s' "$2"
        "$recurve" generate "$1" --prompt "$2" --tokens 600 --temperature 0.5 --seed "$3"
    } | LC_ALL=C tr -c '\n -~' '?' | fold -s -w 80 | head -n 9
    printf '\n'
}
quietly() { # prints the output of a command only if it fails
    local said
    said=$("$@" 2>&1) || { echo "$said"; exit 1; }
}

printf '\n== the cell, as written in cells/lstm.cell\n\n'
cat cells/lstm.cell
printf '\n== the training data: sentences of the pages in docs/ and of comments\n\n'
head -n 5 "$out/data/train.txt" | fold -s -w 80
"$recurve" data stats "$out/data/train.txt" --kind lines --level byte --buckets auto:6 | head -n 30

model="--cell lstm --hidden 192 --embedding 32 --batch 16 --length 64 --learning-rate 0.008 --clip 1 --seed 1"
printf '\n== text of the untrained model\n\n'
quietly "$recurve" train "$out/data" --output "$out/before.safetensors" $model --steps 0
write_some "$out/before.safetensors" 'The planner ' 1 | head -n 3

# A short run finds how many updates fit into the time: the cosine schedule needs the number.
quietly "$recurve" train "$out/data/train.txt" --output "$out/trial.safetensors" $model --seconds 5
steps=$(awk -v seconds="$seconds" -F'[:,}]' '/"event":"end"/ { for (i = 1; i < NF; i++) { if ($i == "\"step\"") step = $(i + 1) } print int(step / 5 * seconds * 0.9 / 20) * 20 + 20 }' "$out/trial.jsonl")
rm -f "$out"/trial.*

each=$((steps / 6 + 1))
printf '\n== training: %s updates; stopped half way, and resumed from its checkpoint\n\n' "$steps"
"$recurve" train "$out/data" --output "$out/model.safetensors" $model --decay cosine --steps "$steps" --validate-every "$each" \
    --eval-batch 64 &
trainer=$!
while kill -0 $trainer 2>/dev/null && ! grep -q "\"event\":\"checkpoint\",\"step\":$((each * 3))" "$out/model.jsonl" 2>/dev/null; do sleep 0.2; done
kill -TERM $trainer 2>/dev/null || true
wait $trainer || true
[ -e "$out/model.safetensors" ] || { echo "training failed"; exit 1; }
"$recurve" train --resume "$out/model.safetensors"
"$recurve" report "$out/model.jsonl" --output "$out/report.html"

printf '\n== text of the trained model\n\n'
write_some "$out/model.best.safetensors" 'The planner ' 1
write_some "$out/model.best.safetensors" 'A thread ' 2

bits() { "$recurve" eval "$1" "$out/data/valid.txt" --batch 64 | awk '/^bits/ { printf "%.2f", $2; exit }'; }
cat <<END
== done
Validation loss: $(bits "$out/before.safetensors") bits a byte before training, $(bits "$out/model.best.safetensors") after.
The trained model is $out/model.best.safetensors, the page with its curves $out/report.html. Next:
    $recurve generate $out/model.best.safetensors --prompt 'A buffer ' --tokens 300
    $recurve train --resume $out/model.safetensors --steps $((steps * 2))
    $recurve export $out/model.best.safetensors $out/exported.safetensors
END
