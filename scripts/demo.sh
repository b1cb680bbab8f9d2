#!/usr/bin/env bash
# Trains a byte-level LSTM on this project's own source files and shows what it writes before and after.
#   scripts/demo.sh BUILD-DIRECTORY      SECONDS_TO_TRAIN=60
set -eu
cd "$(dirname "$0")/.."
recurve=${1:-build/release}/recurve
seconds=${SECONDS_TO_TRAIN:-60}
out=build/demo
mkdir -p "$out"

find src include tool cells docs -type f \( -name '*.[ch]' -o -name '*.cell' -o -name '*.md' \) | LC_ALL=C sort |
    xargs cat >"$out/text"
bytes=$(wc -c <"$out/text")
prompt='static rcv_status '

write_some() {
    printf '%s' "$prompt"
    "$recurve" generate "$1" --prompt "$prompt" --tokens 400 --temperature 0.7 --seed 1 | LC_ALL=C tr -c '\n -~' '?'
    printf '\n'
}

printf '\n== the cell, as written in cells/lstm.cell\n\n'
cat cells/lstm.cell
model="--cell lstm --hidden 128 --layers 1 --embedding 64 --batch 16 --length 64 --learning-rate 0.003 --clip 1 --seed 1"

printf '\n== before training, it writes\n\n'
said=$("$recurve" train "$out/text" --output "$out/before.safetensors" $model --steps 0 2>&1) || {
    echo "$said"
    exit 1
}
write_some "$out/before.safetensors"

printf '\n== training for %s seconds on %s bytes of source text\n\n' "$seconds" "$bytes"
"$recurve" train "$out/text" --output "$out/model.safetensors" $model --seconds "$seconds"

printf '\n== after training, it writes\n\n'
write_some "$out/model.safetensors"

head -c 100000 "$out/text" >"$out/sample"
bits() { "$recurve" eval "$1" "$out/sample" | awk '/^bits/ { printf "%.2f", $2 }'; }

cat <<END

== done
A byte of the text costs $(bits "$out/before.safetensors") bits before training and $(bits "$out/model.safetensors") after.
The trained model is $out/model.safetensors, its text $out/text. Go on with it:
    $recurve generate $out/model.safetensors --prompt '#include ' --tokens 300
    $recurve cell lstm --backward
END
