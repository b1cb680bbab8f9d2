#!/usr/bin/env bash
# Every verb has a section in docs/recurve.1, with the very options that its --help prints.
set -eu
page=$SOURCE_DIR/docs/recurve.1
status=0

# options: the long options named in a text, each once
options() { sed 's/\\-/-/g' | grep -oE -- '--[a-z][a-z-]*' | grep -vx -- '--help' | sort -u || true; }

# section VERB: the lines of the page from .SS VERB to the next section
section() { awk -v verb="$1" '/^\.S[SH]/ { inside = ($1 == ".SS" && $2 == verb) } inside' "$page"; }

verbs=$("$RECURVE" --help | sed -nE 's/^  ([a-z]+) .*$/\1/p')
[ -n "$verbs" ] || { echo "recurve --help names no verbs"; exit 1; }
for verb in $verbs; do
    if [ -z "$(section "$verb")" ]; then
        echo "docs/recurve.1 has no section .SS $verb"
        status=1
    elif ! diff <(section "$verb" | options) <("$RECURVE" "$verb" --help | options); then
        echo "recurve $verb: the manual page (<) and --help (>) name different options"
        status=1
    fi
done
for verb in $(sed -nE 's/^\.SS ([a-z]+)$/\1/p' "$page"); do
    case " $(echo $verbs) " in
        *" $verb "*) ;;
        *) echo "docs/recurve.1 describes $verb, which is no verb"; status=1 ;;
    esac
done
exit $status
