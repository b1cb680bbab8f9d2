/* Makes groups of a verb's option table from the library's table of settings. */
#include "settings_options.h"

#include "tool.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 64 };

/* ---- the groups ---- */

static char *preset_help(void) {
    char *help = text_of("known settings:");
    for (size_t i = 0; i < rcv_preset_count(); i++) {
        char *longer = text_of("%s%s %s", help, i > 0 ? "," : "", rcv_preset_name(i));
        free(help);
        help = longer;
    }
    return help;
}

static option_group source_group(settings_arguments *arguments) {
    const option sources[COUNT(arguments->sources)] = {
        {"preset", OPTION_TEXT, &arguments->preset, .value = "NAME", .help = arguments->preset_help},
        {"config", OPTION_TEXT, &arguments->config, .value = "FILE",
         .help = "settings as a JSON object; they replace the preset's"},
        {"print-config", OPTION_FLAG, &arguments->print, .help = "print all settings as a JSON object, and end"},
    };
    memcpy(arguments->sources, sources, sizeof sources);
    return (option_group){"Settings; options below replace those of preset and file", arguments->sources,
                          COUNT(sources)};
}

static bool is_on_by_default(const rcv_setting *setting) {
    return setting->kind == RCV_SETTING_FLAG && strcmp(setting->default_value, "true") == 0;
}

/* Writes the options of a setting to `at`, and returns how many. `room` holds name and help of the second one. */
static size_t add_options(rcv_settings *given, const rcv_setting *setting, option *at, char (*room)[NAME_BYTES]) {
    at[0] = (option){.name = setting->name,
                     .type = OPTION_SETTING,
                     .destination = given,
                     .value = setting->value,
                     .help = setting->help};
    if (!is_on_by_default(setting)) {
        return 1;
    }
    snprintf(room[0], NAME_BYTES, "no-%s", setting->name);
    snprintf(room[1], NAME_BYTES, "turns --%s off, which is on by default", setting->name);
    at[1] = (option){
        .name = room[0], .type = OPTION_SETTING, .destination = given, .help = room[1], .negated = setting->name};
    return 2;
}

static void add_groups(settings_arguments *arguments) {
    const size_t count = rcv_setting_count();
    char(*names)[NAME_BYTES] = need(2 * count + SETTINGS_GROUPS, sizeof *names);
    option *at = arguments->options = need(2 * count, sizeof *at);
    option_group *group = arguments->groups;
    arguments->names = *names;
    *group = source_group(arguments);
    const char *last = "";
    for (size_t i = 0; i < count; i++) {
        const rcv_setting *setting = rcv_setting_at(i);
        if (strcmp(setting->group, last) != 0 && group < arguments->groups + SETTINGS_GROUPS - 1) {
            char *title = names[2 * count + (size_t)(group - arguments->groups)];
            snprintf(title, NAME_BYTES, "%s", setting->group);
            title[0] = (char)toupper((unsigned char)title[0]);
            *++group = (option_group){.title = title, .options = at};
            last = setting->group;
        }
        const size_t more = add_options(arguments->given, setting, at, &names[2 * i]);
        group->count += more;
        at += more;
    }
    arguments->group_count = (size_t)(group - arguments->groups) + 1;
}

rcv_status settings_begin(settings_arguments *arguments, rcv_context *context) {
    *arguments = (settings_arguments){0};
    const rcv_status status = rcv_settings_new(context, &arguments->given);
    if (status == RCV_OK) {
        arguments->preset_help = preset_help();
        add_groups(arguments);
    }
    return status;
}

void settings_end(settings_arguments *arguments) {
    free(arguments->preset_help);
    free(arguments->options);
    free(arguments->names);
    rcv_settings_free(arguments->given);
    *arguments = (settings_arguments){0};
}

/* ---- the settings of a run ---- */

/* Sets everything that `over` sets. */
static rcv_status overlay(rcv_settings *settings, const rcv_settings *over) {
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < rcv_setting_count() && status == RCV_OK; i++) {
        const char *name = rcv_setting_at(i)->name;
        if (rcv_settings_given(over, name)) {
            status = rcv_settings_set(settings, name, rcv_settings_get(over, name));
        }
    }
    return status;
}

static rcv_status collect(const settings_arguments *arguments, rcv_settings *settings) {
    rcv_status status = RCV_OK;
    if (arguments->preset != NULL) {
        status = rcv_settings_preset(settings, arguments->preset);
    }
    if (status == RCV_OK && arguments->config != NULL) {
        status = rcv_settings_load(settings, arguments->config);
    }
    return status == RCV_OK ? overlay(settings, arguments->given) : status;
}

static rcv_status print_settings(rcv_context *context, const rcv_settings *settings) {
    char *json;
    const rcv_status status = rcv_settings_print(settings, &json);
    if (status == RCV_OK) {
        fputs(json, stdout);
        rcv_text_free(context, json);
    }
    return status;
}

parsed settings_from_arguments(const settings_arguments *arguments, const rcv_settings *base, rcv_context *context,
                               rcv_settings **settings) {
    *settings = NULL;
    rcv_settings *made = NULL;
    rcv_status status = base != NULL ? rcv_settings_copy(base, &made) : rcv_settings_new(context, &made);
    if (status == RCV_OK) {
        status = collect(arguments, made);
    }
    if (status == RCV_OK && arguments->print) {
        status = print_settings(context, made);
    }
    if (status == RCV_OK && !arguments->print) {
        *settings = made;
        return PARSED_GO;
    }
    rcv_settings_free(made);
    if (status != RCV_OK) {
        say("%s", rcv_message());
        return PARSED_WRONG;
    }
    return PARSED_HELP;
}
