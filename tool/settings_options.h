/* The settings of a training run as options of a verb. */
#ifndef TOOL_SETTINGS_OPTIONS_H
#define TOOL_SETTINGS_OPTIONS_H

#include "options.h"

enum { SETTINGS_GROUPS = 16 }; /* at most */

typedef struct {
    rcv_settings *given; /* the settings of the command line alone */
    const char *preset, *config;
    bool print;
    option sources[3]; /* the options --preset, --config and --print-config */
    char *preset_help; /* lists the presets */
    option *options;   /* one for each setting, and --no-NAME for flags that are true by default */
    char *names;       /* the texts of their names, and of the groups' titles */
    option_group groups[SETTINGS_GROUPS];
    size_t group_count;
} settings_arguments;

/* Fills in the groups, for a verb's table. */
rcv_status settings_begin(settings_arguments *arguments, rcv_context *context);
void settings_end(settings_arguments *arguments);

/* After parsing: the settings of the run. Later ones replace earlier ones: `base` (NULL: the defaults), the preset, the file of --config, the
 * command line. PARSED_HELP: --print-config has printed them, and the verb is done. PARSED_WRONG after saying what is wrong. */
parsed settings_from_arguments(const settings_arguments *arguments, const rcv_settings *base, rcv_context *context,
                               rcv_settings **settings);

#endif
