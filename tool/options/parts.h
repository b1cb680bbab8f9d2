/* What the files of this folder share: looking options up, their values, the help. */
#ifndef TOOL_OPTIONS_PARTS_H
#define TOOL_OPTIONS_PARTS_H

#include "options.h"

enum { LONGEST_NAME = 63 };

/* The options that every verb has: --help, --quiet, --color, and --verbose where the command says what it does. */
option_group common_group(const command *command);
bool is_help(const option *option);

/* Stores the value of an option. `text` is NULL for flags and for boolean settings. False after saying what is wrong. */
bool set_option_value(option *option, char *text);

/* "recurve train", or "recurve" for what precedes the verb; for free(). */
char *called_as(const command *command);
void print_help(const command *command);

#endif
