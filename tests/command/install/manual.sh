#!/usr/bin/env bash
# Every verb has a section in docs/recurve.1, with the very options that its --help prints. What all verbs have, and other names of options, stand in
# the section COMMON OPTIONS.
set -eu
page=$SOURCE_DIR/docs/recurve.1
status=0

# options: the long options named in a text, each once
options() { sed 's/\\-/-/g' | grep -oE -- '--[a-z][a-z-]*' | sort -u || true; }

# section VERB: the lines of the page from .SS VERB to the next section
section() { awk -v verb="$1" '/^\.S[SH]/ { inside = ($1 == ".SS" && $2 == verb) } inside' "$page"; }

# own: the options that do not stand in COMMON OPTIONS
own() { options | comm -23 - <(echo "$common"); }

common_section=$(awk '/^\.SH/ { inside = ($0 == ".SH COMMON OPTIONS") } inside' "$page" | sed 's/\\-/-/g')
verbs=$("$RECURVE" --help | sed -nE 's/^  ([a-z]+) .*$/\1/p')
[ -n "$verbs" ] || { echo "recurve --help names no verbs"; exit 1; }
helps=$("$RECURVE" --help; for verb in $verbs; do "$RECURVE" "$verb" --help; done)

# the common options, the names that are another option's, and the options that have one (--hidden stands with its verbs, too)
tables=$(awk '/^[A-Z][a-z ]*:$/ { inside = ($0 == "Common options:" || $0 == "Options before the verb:") } !/^  / && !/^[A-Z]/ { inside = 0 } inside' <<<"$helps")
others=$(sed -nE 's/^  .*(--[a-z-]+), (--[a-z-]+) .*$/\2/p' <<<"$helps")
common=$({ grep -oE -- '^  (-[a-zA-Z], )?--[a-z]+' <<<"$tables" | grep -oE -- '--[a-z]+'; echo "$others"; } | sort -u)
[ "$(wc -l <<<"$common")" -ge 5 ] || { echo "--help shows no common options"; exit 1; }
for option in $common $(sed -nE 's/^  (-[a-zA-Z]), --.*$/\1/p' <<<"$helps" | sort -u); do
    grep -qE -- "(^|[^-a-z])$option([^-a-z]|\$)" <<<"$common_section" || { echo "docs/recurve.1 has no $option in COMMON OPTIONS"; status=1; }
done

for verb in $verbs; do
    if [ -z "$(section "$verb")" ]; then
        echo "docs/recurve.1 has no section .SS $verb"
        status=1
    elif ! diff <(section "$verb" | own) <("$RECURVE" "$verb" --help | own); then
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
