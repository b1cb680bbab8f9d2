#!/usr/bin/env bash
# recurve completion: what bash completes, by the script itself; zsh and fish where they are installed.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

. "$SOURCE_DIR/tests/support/leaks.bash"

for shell in bash zsh fish; do
    leakless "$RECURVE" completion $shell >$shell.script || complain "completion $shell fails"
done
mkdir folder
touch lm.safetensors my.cell notes.txt run.jsonl

# ---- bash ----
bash -n bash.script || complain "bash does not read the script"
. ./bash.script

# completes WORDS... WANTED: the words of a command line, the last one incomplete, give exactly these words in any order
completes() {
    local words=("${@:1:$#-1}") wanted=${*: -1}
    COMP_WORDS=(recurve "${words[@]}")
    COMP_CWORD=${#words[@]}
    _recurve
    local got
    got=$(printf '%s\n' "${COMPREPLY[@]}" | sort | xargs)
    wanted=$(tr ' ' '\n' <<<"$wanted" | sort | xargs)
    [ "$got" = "$wanted" ] || complain "'${words[*]}' completes to '$got', not '$wanted'"
}

verbs=$("$RECURVE" --help | sed -nE 's/^  ([a-z]+) .*$/\1/p')
cells=$("$RECURVE" list | awk '{ print $1 }')
completes "" "help $(echo $verbs)"
completes help "" "help $(echo $verbs)"
completes trai train
completes -q --color never trai train
completes --color "" "auto always never"
completes --vers --version
of_train=$("$RECURVE" train --help | grep -oE '^  (-[a-zA-Z], )?--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+')
for verb in $verbs; do
    long=$("$RECURVE" "$verb" --help | grep -oE '^  (-[a-zA-Z], )?--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+')
    [ -n "$long" ] || complain "the help of $verb shows no options"
    [ "$verb" = compare ] && long=$({ echo "$long"; echo "$of_train"; } | grep -vx -- --resume | sort -u) # whose help names the settings of train
    completes "$verb" -- "$(echo $long)"
done
completes train --learning- --learning-rate
completes train --level w word
completes train --level = w word
completes train --level = "$(sed -nE 's/.*\x27train --level\x27\) takes=1 words=\x27([^\x27]*)\x27.*/\1/p' bash.script)"
completes train --level=w --level=word
completes train --dtype "" "float32 float64 bfloat16 float16 tfloat32"
completes run --dtype "" "float32 float64"
completes train --cell m "$(echo $cells | tr ' ' '\n' | grep '^m' | xargs) my.cell"
completes train --preset zaremba-s zaremba-small
completes train --lr "" ""
completes train --cache "" folder
completes train -o "" "lm.safetensors folder"
completes train --output l lm.safetensors
completes train --config n notes.txt
completes generate "" "lm.safetensors folder"
completes eval lm.safetensors n notes.txt
completes eval -- lm.safetensors n notes.txt
completes cell l "$(echo $cells | tr ' ' '\n' | grep '^l' | xargs)"
completes report run.jsonl "" "run.jsonl folder"
completes completion "" "bash zsh fish"
completes completion bash "" ""
completes run nothing.s ""

# ---- zsh, fish ----
if command -v zsh >/dev/null; then
    zsh -n zsh.script || complain "zsh does not read the script"
    zsh -f -c 'autoload -Uz compinit && compinit -u -D && . ./zsh.script && [[ $_comps[recurve] == _recurve && -n $functions[_recurve_train] ]]' ||
        complain "zsh does not complete recurve by the script"
    # every word of each line of _arguments is a specification that zsh accepts
    cat >arguments.zsh <<'ZSH'
zmodload zsh/zutil
compdef() { : }
_files() { : }
_arguments() {
    local word
    for word in ${argv:#-[sSC]}; do
        [[ $word == (\([^\)]#\)|\*|)-##[a-zA-Z0-9-]##(=|+|)\[*\](:*|) || $word == [0-9\*]#::#[A-Za-z]*:* || $word == [0-9\*]:*:-\>* ||
            $word == '*:: :->rest' || $word == '1: :->verb' ]] || { print -u2 "not a specification: $word"; bad=1 }
    done
    return 0
}
setopt extendedglob
. ./zsh.script
for name in ${(k)functions[(I)_recurve_*]}; do
    [[ $name == _recurve_words_or_files ]] || $name
done
exit ${bad:-0}
ZSH
    zsh -f arguments.zsh || complain "zsh gets a wrong specification"
else
    echo "zsh is not installed: its script is not checked"
fi
if command -v fish >/dev/null; then
    fish -n fish.script || complain "fish does not read the script"
    # gives LINE WANTED: fish completes the line to exactly these words
    gives() {
        local got wanted
        got=$(HOME=$folder XDG_CONFIG_HOME=$folder fish -c 'source fish.script; complete -C $argv[1]' "$1" | cut -f 1 | sort | xargs)
        wanted=$(tr ' ' '\n' <<<"$2" | sort | xargs)
        [ "$got" = "$wanted" ] || complain "fish completes '$1' to '$got', not '$wanted'"
    }
    gives "recurve trai" train
    gives "recurve train --level w" word
    gives "recurve -q completion " "bash zsh fish"
    gives "recurve train --cell lstm_p" "lstm_peephole lstm_proj"
    gives "recurve list --verbos" ""
else
    echo "fish is not installed: its script is not checked"
fi

[ $failures = 0 ] || echo "$failures checks failed"
[ $failures = 0 ]
