/* What is the same for all verbs: the common options, short names, and names that other programs use. */
#include "options/parts.h"

#include "tool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- common options ---- */

typedef enum { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER } color_mode;

static const char *const color_modes[] = {"auto", "always", "never", NULL}; /* as color_mode */

static bool help, quiet, verbose;
static int color = COLOR_AUTO;

static option common[] = {
    {"help", OPTION_FLAG, &help, .help = "print this help, and end"},
    {"quiet", OPTION_FLAG, &quiet, .help = "print only results and errors"},
    {"color", OPTION_CHOICE, &color, .value = "WHEN", .help = "auto (on a terminal), always or never",
     .choices = color_modes},
    {"verbose", OPTION_FLAG, &verbose, .help = NULL}, /* the last one: not every verb has it */
};

option_group common_group(const command *command) {
    common[COUNT(common) - 1].help = command->verbose;
    return (option_group){"Common options", common, COUNT(common) - (command->verbose == NULL)};
}

bool is_help(const option *option) { return option->destination == &help; }

bool is_quiet(void) { return quiet; }

bool is_verbose(void) { return verbose && !quiet; }

bool use_color(FILE *stream) {
    if (color != COLOR_AUTO) {
        return color == COLOR_ALWAYS;
    }
    const char *off = getenv("NO_COLOR"), *terminal = getenv("TERM");
    const bool is_wanted = off == NULL || off[0] == '\0';
    return is_wanted && terminal != NULL && strcmp(terminal, "dumb") != 0 && isatty(fileno(stream)) == 1;
}

/* ---- other names ---- */

/* By the name of an option, whichever verb has it. */
static const struct {
    const char *name;
    char letter;       /* 0: none */
    const char *alias; /* NULL: none */
} others[] = {
    {"help", 'h', NULL},          {"version", 'V', NULL},        {"quiet", 'q', NULL},
    {"verbose", 'v', NULL},       {"output", 'o', NULL},         {"threads", 'j', NULL},
    {"color", 0, "colour"},       {"learning-rate", 0, "lr"},    {"batch", 0, "batch-size"},
    {"hidden", 0, "hidden-size"}, {"optimiser", 0, "optimizer"}, {"normalise", 0, "normalize"},
};

char option_letter(const option *option) {
    for (size_t i = 0; i < COUNT(others); i++) {
        if (strcmp(others[i].name, option->name) == 0) {
            return others[i].letter;
        }
    }
    return 0;
}

const char *option_alias(const option *option) {
    for (size_t i = 0; i < COUNT(others); i++) {
        if (strcmp(others[i].name, option->name) == 0) {
            return others[i].alias;
        }
    }
    return NULL;
}
