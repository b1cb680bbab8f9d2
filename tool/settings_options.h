/* Settings of a training run as options of a verb. */
#ifndef TOOL_SETTINGS_OPTIONS_H
#define TOOL_SETTINGS_OPTIONS_H

#include "options.h"

enum { SETTINGS_GROUPS = 16 }; /* at most */

typedef struct {
    rcv_settings *given; /* what the command line says, by itself */
    const char *preset, *config;
    bool print;
    option sources[3]; /* the options of the three above */
    char *preset_help; /* names the presets */
    option *options;   /* one a setting, and --no-NAME for flags that are true by default */
    char *names;       /* of those, and the groups' titles */
    option_group groups[SETTINGS_GROUPS];
    size_t group_count;
} settings_arguments;

/* Fills in the groups, to be made part of a verb's table. */
rcv_status settings_begin(settings_arguments *arguments, rcv_context *context);
void settings_end(settings_arguments *arguments);

/* After parsing: the settings of the run. They are those of `base` (NULL: the defaults), over them the preset, then the file,
 * then the command line. PARSED_HELP: --print-config has printed them, and that is all there is to do. PARSED_WRONG: said why. */
parsed settings_from_arguments(const settings_arguments *arguments, const rcv_settings *base, rcv_context *context,
                               rcv_settings **settings);

#endif
