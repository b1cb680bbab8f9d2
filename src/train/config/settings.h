/* Settings of a training run, read by name. Every setting has its line in settings_table.c. A name that is not in the table, or a setting of
 * another kind, is an error of the program (an assertion), not of its input. */
#ifndef RCVI_SETTINGS_H
#define RCVI_SETTINGS_H

#include "base/base.h"

bool rcvi_settings_flag(const rcv_settings *settings, const char *name);
int64_t rcvi_settings_integer(const rcv_settings *settings, const char *name);
double rcvi_settings_real(const rcv_settings *settings, const char *name);
const char *rcvi_settings_text(const rcv_settings *settings, const char *name); /* NULL: it is empty */
/* Index among the choices; for level, kind and effort it is the value of the public enumeration. */
int rcvi_settings_choice(const rcv_settings *settings, const char *name);
bool rcvi_settings_is(const rcv_settings *settings, const char *name, const char *choice);
rcv_dtype rcvi_settings_dtype(const rcv_settings *settings);

/* Index of a setting in the table; rcv_setting_count(): there is none of this name. */
size_t rcvi_setting_find(const char *name);
const char *rcvi_setting_nearest(const char *name); /* a similar name; NULL: there is none */

/* Sets all paths that a run writes to their defaults. */
void rcvi_settings_drop_outputs(rcv_settings *settings);

rcv_context *rcvi_settings_context(const rcv_settings *settings);
/* Swaps all values. Changes are made in a copy, which is swapped in when all have succeeded. */
void rcvi_settings_swap(rcv_settings *a, rcv_settings *b);
/* RCV_INVALID with a message that says which values the setting accepts. `shown`: the value that was given. */
rcv_status rcvi_setting_wrong(const rcv_setting *setting, const char *shown);

#endif
