/* What an option's value or an operand may be, by the table and by the placeholder that the help shows. */
#include "completion/completion.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *placeholder, *pattern;
} patterns[] = {
    {"MODEL", "*.safetensors"},
    {"LOG", "*.jsonl"},
    {"PAGE", "*.html"},
    {"NAME|FILE", "*.cell"},
    {"FILE", "*"},
    {"PATH", "*"},
    {"DATA", "*"},
    {"FOLDER", "/"},
};

static const char *pattern_of(const char *placeholder) {
    for (size_t i = 0; i < COUNT(patterns); i++) {
        if (strcmp(patterns[i].placeholder, placeholder) == 0) {
            return patterns[i].pattern;
        }
    }
    return NULL;
}

/* The words of a list that the library has; for free(). */
static char *words_of(size_t count, const char *(*name_at)(size_t)) {
    char *words = text_of("%s", "");
    for (size_t i = 0; i < count; i++) {
        char *longer = text_of("%s%s%s", words, i > 0 ? " " : "", name_at(i));
        free(words);
        words = longer;
    }
    return words;
}

candidates option_candidates(const option *option) {
    candidates found = {.words = option_words(option), .pattern = pattern_of(option->value)};
    if (found.words == NULL && strcmp(option->value, "NAME|FILE") == 0) {
        found.words = words_of(rcv_builtin_count(), rcv_builtin_name);
    } else if (found.words == NULL && strcmp(option->name, "preset") == 0) {
        found.words = words_of(rcv_preset_count(), rcv_preset_name);
    } else if (found.words == NULL && strcmp(option->name, "device") == 0) {
        found.words = text_of("cpu cuda");
    }
    return found;
}

candidates operand_candidates(const command *command, size_t index) {
    const operand *operand = &command->operands[index];
    candidates found = {.pattern = pattern_of(operand->name)};
    if (index == 0 && command->choices != NULL) {
        const option as_choice = {.type = OPTION_CHOICE, .choices = command->choices};
        found.words = option_words(&as_choice);
    } else if (strcmp(operand->name, "NAME|FILE") == 0) {
        found.words = words_of(rcv_builtin_count(), rcv_builtin_name);
    } else if (islower((unsigned char)operand->name[0])) {
        found.words = text_of("%s", operand->name); /* a word that is typed as it is */
    }
    return found;
}

char *escaped(const char *text, const char *which, const char *before) {
    char *out = need(strlen(text) * (strlen(before) + 1) + 1, 1), *end = out;
    for (; *text != '\0'; text++) {
        if (strchr(which, *text) != NULL) {
            strcpy(end, before);
            end += strlen(before);
        }
        *end++ = *text;
    }
    return out;
}
