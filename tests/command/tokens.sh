#!/usr/bin/env bash
# Characters and pieces: a model has all that is needed to go on training, to evaluate and to generate.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for _ in {1..60}; do printf 'the cat, the dög and 愛 the hat\n'; done >text.txt
cp "$SOURCE_DIR/tests/support/tokenizers/gpt2.json" tokenizer.json
size=(--hidden 16 --batch 4 --length 16 --effort estimate)

fail() {
    echo "$1"
    exit 1
}

# value FILE NAME: the number in a line of `data stats`
value() { awk -v name="$2" '$1 == name { print $2 }' "$1"; }

"$RECURVE" data stats text.txt --level character >characters
"$RECURVE" data stats text.txt --vocabulary tokenizer.json >pieces
bytes=$(wc -c <text.txt)
[ "$(value characters tokens)" = $((bytes - 60 * 3)) ] || fail "ö has one byte too many, 愛 two: $(cat characters)"
[ "$(value pieces tokens)" -lt "$(value characters tokens)" ] || fail "pieces are no longer than characters: $(cat pieces)"

"$RECURVE" train text.txt --level character "${size[@]}" --steps 3 --output characters.safetensors >log 2>&1 || fail "$(cat log)"
"$RECURVE" train text.txt --vocabulary tokenizer.json "${size[@]}" --steps 3 --output pieces.safetensors >log 2>&1 ||
    fail "$(cat log)"
rm tokenizer.json
for model in characters pieces; do
    "$RECURVE" train --resume $model.safetensors --steps 5 >log 2>&1 || fail "$model are not resumed: $(cat log)"
    "$RECURVE" generate $model.safetensors --prompt 'dög €' --tokens 9 >generated 2>log || fail "$model: $(cat log)"
    [ -s generated ] || fail "$model: nothing is generated"
    "$RECURVE" eval $model.safetensors text.txt >loss 2>log || fail "$model: $(cat log)"
    grep -q perplexity loss || fail "$model have no perplexity: $(cat loss)"
    if grep -q bits loss; then fail "$model have bits a byte: $(cat loss)"; fi
done

# refused FRAGMENT OPTIONS: training ends with a sentence
refused() {
    local fragment=$1
    shift
    if "$RECURVE" train text.txt "$@" --output other.safetensors >log 2>&1; then fail "train $* is not refused"; fi
    grep -qF "$fragment" log || fail "train $* says: $(cat log)"
}
refused 'needs a tokenizer.json' --level piece
echo '{"model": {"type": "WordPiece"}}' >wrong.json
refused 'wrong.json: the model WordPiece is not supported' --vocabulary wrong.json
printf 'ab\xff' >text.txt
refused 'text.txt is not UTF-8 at byte 2; read it at byte level' --level character --kind stream
