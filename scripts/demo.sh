#!/usr/bin/env bash
# Trains a byte-level LSTM on the source files of this project: data statistics, training with validation, resuming from a checkpoint, the
# report page, and text generated before and after training.
#   scripts/demo.sh BUILD-DIRECTORY      SECONDS_TO_TRAIN=45
set -eu
cd "$(dirname "$0")/.."
recurve=${1:-build/release}/recurve
seconds=${SECONDS_TO_TRAIN:-45}
out=build/demo
rm -rf "$out"
mkdir -p "$out/data"

# Every tenth file is kept for validation.
find src include tool cells docs -type f \( -name '*.[ch]' -o -name '*.cell' -o -name '*.md' \) | LC_ALL=C sort >"$out/files"
awk 'NR % 10 != 0' "$out/files" | xargs cat >"$out/data/train.txt"
awk 'NR % 10 == 0' "$out/files" | xargs cat >"$out/data/valid.txt"
prompt='static rcv_status '

write_some() {
    printf '%s' "$prompt"
    "$recurve" generate "$1" --prompt "$prompt" --tokens 400 --temperature 0.7 --seed 1 | LC_ALL=C tr -c '\n -~' '?'
    printf '\n'
}
quietly() { # prints the output of a command only if it fails
    local said
    said=$("$@" 2>&1) || { echo "$said"; exit 1; }
}

printf '\n== the cell, as written in cells/lstm.cell\n\n'
cat cells/lstm.cell
printf '\n== the training data\n\n'
"$recurve" data stats "$out/data/train.txt" --kind lines --level byte --buckets auto:6 | head -n 30

model="--cell lstm --hidden 128 --embedding 64 --batch 16 --length 64 --learning-rate 0.003 --clip 1 --seed 1"
printf '\n== text of the untrained model\n\n'
quietly "$recurve" train "$out/data" --output "$out/before.safetensors" $model --steps 0
write_some "$out/before.safetensors"

# A short run finds how many updates fit into the time: the cosine schedule needs the number.
quietly "$recurve" train "$out/data/train.txt" --output "$out/trial.safetensors" $model --seconds 4
steps=$(awk -v seconds="$seconds" -F'[:,}]' '/"event":"end"/ { for (i = 1; i < NF; i++) { if ($i == "\"step\"") step = $(i + 1) } print int(step / 4 * seconds * 0.85 / 20) * 20 + 20 }' "$out/trial.jsonl")
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
write_some "$out/model.best.safetensors"

bits() { "$recurve" eval "$1" "$out/data/valid.txt" --batch 64 | awk '/^bits/ { printf "%.2f", $2 }'; }
cat <<END

== done
Validation loss: $(bits "$out/before.safetensors") bits a byte before training, $(bits "$out/model.best.safetensors") after.
The trained model is $out/model.best.safetensors, the page with its curves $out/report.html. Next:
    $recurve generate $out/model.best.safetensors --prompt '#include ' --tokens 300
    $recurve train --resume $out/model.safetensors --steps $((steps * 2))
    $recurve export $out/model.best.safetensors $out/exported.safetensors
END
