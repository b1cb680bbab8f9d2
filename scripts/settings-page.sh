#!/usr/bin/env bash
# Writes docs/SETTINGS.md from the library's table of settings (src/train/config/settings_table.c) and of presets.
#   scripts/settings-page.sh [--check] [BUILD]     BUILD, build/release by default, has librecurve
# With --check nothing is written: the exit status is 1 if the page is not what would be written. CC, CFLAGS and LDFLAGS are used.
set -eu
cd "$(dirname "$0")/.."
check=
[ "${1:-}" != --check ] || { check=yes; shift; }
build=${1:-build/release}
page=docs/SETTINGS.md
[ -e "$build/librecurve.so" ] || { echo "settings-page: there is no $build/librecurve.so; make build makes it" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/page.c" <<'END'
#include <recurve.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A number without exponent where it is a whole one below 10^16, thousands separated. */
static void put_number(double value) {
    char digits[32];
    if (isinf(value) || value != floor(value) || value < 1000) {
        printf("%.9g", value);
        return;
    }
    snprintf(digits, sizeof digits, "%.0f", value);
    for (size_t i = 0, length = strlen(digits); i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) putchar(',');
        putchar(digits[i]);
    }
}

/* A text in a cell of a table. */
static void put_cell(const char *text) {
    for (; *text; text++) printf(*text == '|' ? "\\|" : "%c", *text);
}

static void put_values(const rcv_setting *s) {
    switch (s->kind) {
        case RCV_SETTING_FLAG: printf("true, false"); break;
        case RCV_SETTING_TEXT:
        case RCV_SETTING_OUTPUT:
            putchar('`');
            put_cell(s->value);
            putchar('`');
            break;
        case RCV_SETTING_CHOICE:
            for (size_t i = 0; s->choices[i]; i++) printf("%s`%s`", i ? ", " : "", s->choices[i]);
            break;
        case RCV_SETTING_INTEGER:
        case RCV_SETTING_REAL:
            printf(s->kind == RCV_SETTING_INTEGER ? "whole, " : "");
            if (isinf(s->maximum)) printf("from ");
            put_number(s->minimum);
            if (!isinf(s->maximum)) printf(" to "), put_number(s->maximum);
            break;
    }
}

int main(void) {
    const char *group = "";
    for (size_t i = 0; i < rcv_setting_count(); i++) {
        const rcv_setting *s = rcv_setting_at(i);
        if (strcmp(group, s->group) != 0) {
            group = s->group;
            printf("\n## %c%s\n\n| setting | values | default | meaning |\n| --- | --- | --- | --- |\n", toupper((unsigned char)*group), group + 1);
        }
        printf("| `%s` | ", s->name);
        put_values(s);
        printf(" | %s%s%s | ", *s->default_value ? "`" : "", s->default_value, *s->default_value ? "`" : "");
        put_cell(s->help);
        printf(" |\n");
    }
    printf("\n## Presets\n\n| preset | settings of |\n| --- | --- |\n");
    for (size_t i = 0; rcv_preset_name(i); i++) printf("| `%s` | %s |\n", rcv_preset_name(i), rcv_preset_summary(i));
    return 0;
}
END
# shellcheck disable=SC2086
${CC:-cc} -std=c11 -Wall ${CFLAGS:-} -I include "$folder/page.c" -L "$build" -lrecurve -lm ${LDFLAGS:-} -o "$folder/page"
{
    cat <<'END'
<!-- Written by scripts/settings-page.sh from the library's table of settings. Do not edit. -->
# Settings

Every setting of a training run, with its range and its default. A setting is given

- to `recurve train`, `compare` and others as an option: `--hidden 256`, `--tied`, `--no-shuffle`
- in a file for `--config` as JSON: `{"preset": "zaremba-small", "hidden": 256, "tied": true}`; `--print-config` prints such a file
- in Python as an argument, with underscores: `recurve.train("book.txt", hidden=256, learning_rate=0.01)`
- in C by `rcv_settings_set(settings, "hidden", "256")`

Options replace the values of a file, and these the values of a preset. A checkpoint has all of them; `--resume` takes them from it.
END
    LD_LIBRARY_PATH=$build "$folder/page"
} >"$folder/page.md"

if [ -z "$check" ]; then
    cp "$folder/page.md" "$page"
    echo "wrote $page"
elif ! diff "$page" "$folder/page.md"; then
    echo "settings-page: $page (<) differs from the library's table (>); run scripts/settings-page.sh" >&2
    exit 1
fi
