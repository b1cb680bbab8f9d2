#!/usr/bin/env bash
# docs/tutorial: the commands of every chapter run as they are written, in order and in one folder; the models that they train are as good as the
# chapters say; each chapter is short, is in the index and leads to the next one.
set -u
. "$SOURCE_DIR/tests/command/pages/pages.bash"
folder=$SOURCE_DIR/docs/tutorial
status=0
complain() {
    echo "FAILED: $*"
    status=1
}

begin_pages
# An installed library, as the reader has it, and a compiler with the flags of this build.
cmake --install "$BUILD_DIR" --prefix "$pages_folder/installed" >/dev/null || complain "cmake --install"
PKG_CONFIG_PATH=$(dirname "$(find "$pages_folder/installed" -name recurve.pc)")
export PKG_CONFIG_PATH
printf 'exec %s -std=c11 -Wall -Wextra -Werror %s "$@" %s\n' "$CC" "$CFLAGS" "$LDFLAGS" | write_wrapper cc
# The reader's own: a byte-pair encoding of all bytes and a few pieces.
python3 - >tokenizer.json <<'PYTHON'
import json
shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
letters = {byte: chr(byte) for byte in shown} | {byte: chr(256 + i) for i, byte in enumerate(b for b in range(256) if b not in shown)}
merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("e", "r"), ("o", "n"), ("Ġ", "a"), ("r", "e")]
tokens = [*letters.values(), *("".join(pair) for pair in merges)]
print(json.dumps({"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
                  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                  "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                  "model": {"type": "BPE", "dropout": None, "unk_token": None, "vocab": {token: i for i, token in enumerate(tokens)},
                            "merges": [" ".join(pair) for pair in merges]}}))
PYTHON

# metric NAME MODEL DATA: as eval prints it, without a percent sign
metric() { recurve eval "$2" "$3" 2>/dev/null | awk -v name="$1" '$1 == name { sub(/%/, "", $2); print $2; exit }'; }

for chapter in "$folder"/[1-9]-*.md; do
    name=$(basename "$chapter")
    run_page "$chapter" || status=1
    [ "$(wc -l <"$chapter")" -le 120 ] || complain "$name has more than 120 lines"
    grep -qF "($name)" "$folder/README.md" || complain "the index does not name $name"
    next=$(compgen -G "$folder/$((${name%%-*} + 1))-*.md") && { grep -qF "($(basename "$next"))" "$chapter" || complain "$name does not lead to ${next##*/}"; }
done

if [ $status = 0 ]; then
    [ "$(grep -cE 'sine|square|saw' predictions.csv)" -ge 5 ] || complain "predictions.csv: $(cat predictions.csv)"
    [ "$(wc -l <forecast.csv)" -gt 2900 ] || complain "forecast.csv has $(wc -l <forecast.csv) lines"
    [ -s tokens.csv ] && [ -s waves.html ] || complain "no tokens.csv, or no waves.html"
    if [ -z "$PAGES_SLOW" ]; then
        awk -v x="$(metric accuracy waves.best.safetensors waves.csv)" 'BEGIN { exit !(x > 0.95) }' || complain "the accuracy of chapter 1"
        awk -v x="$(metric accuracy rows.best.safetensors rows.csv)" 'BEGIN { exit !(x > 0.9) }' || complain "the accuracy of rows.csv in chapter 2"
        recurve eval power.best.safetensors power.csv >said 2>&1
        awk 'tolower($0) ~ /naive/ && /[Rr][Mm][Ss][Ee]/ { naive = $NF } /^[Rr][Mm][Ss][Ee]/ { own = $2 } END { exit !(own > 0 && naive > own) }' said ||
            complain "the forecast is not better than the naive one: $(cat said)"
    fi
fi
exit $status
