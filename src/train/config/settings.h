/* Settings of a training run: what the modules that train ask of them. Every one has its line in settings_table.c and is
 * asked for by its name; a name that is not there, or is of another kind, is a mistake in the program, not in its input. */
#ifndef RCVI_SETTINGS_H
#define RCVI_SETTINGS_H

#include "base/base.h"

bool rcvi_settings_flag(const rcv_settings *settings, const char *name);
int64_t rcvi_settings_integer(const rcv_settings *settings, const char *name);
double rcvi_settings_real(const rcv_settings *settings, const char *name);
const char *rcvi_settings_text(const rcv_settings *settings, const char *name); /* NULL where it is empty */
/* The place among the choices, which for level, kind and effort is that of the public enumeration. */
int rcvi_settings_choice(const rcv_settings *settings, const char *name);
bool rcvi_settings_is(const rcv_settings *settings, const char *name, const char *choice);
rcv_dtype rcvi_settings_dtype(const rcv_settings *settings);

/* The place of a setting in the table; rcv_setting_count() where there is none so named. */
size_t rcvi_setting_find(const char *name);
const char *rcvi_setting_nearest(const char *name); /* or NULL */

/* Paths of what a run writes get their defaults. */
void rcvi_settings_drop_outputs(rcv_settings *settings);

rcv_context *rcvi_settings_context(const rcv_settings *settings);
/* Exchanges all values: a change is made in a copy, and swapped in when it has succeeded. */
void rcvi_settings_swap(rcv_settings *a, rcv_settings *b);
/* RCV_INVALID, with the sentence of what the setting wants; `shown` is what it got, as the sentence is to show it. */
rcv_status rcvi_setting_wrong(const rcv_setting *setting, const char *shown);

#endif
