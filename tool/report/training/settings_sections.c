/* Tables of settings: those of one run, and those in which runs differ. */
#include "report/training/sections.h"

#include <stdlib.h>
#include <string.h>

bool is_file_setting(const char *setting) {
    static const char *const names[] = {"log", "output", "cache", "wisdom"};
    for (size_t i = 0; i < COUNT(names); i++) {
        if (strcmp(names[i], setting) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- one run ---- */

static void put_row(FILE *out, const char *name, const char *value, const char *usual) {
    fprintf(out, "<tr><td>");
    put_text(out, name);
    fprintf(out, "</td><td class=\"left\"><code>");
    put_text(out, value);
    fprintf(out, "</code></td><td class=\"left soft\">");
    put_text(out, usual);
    fprintf(out, "</td></tr>\n");
}

static void begin_table(FILE *out) {
    fprintf(out, "<div class=\"table\"><table><thead><tr><th>setting</th><th class=\"left\">value</th>"
                 "<th class=\"left\">default</th></tr></thead><tbody>\n");
}

/* A row, if the value is not the default. A setting that this version does not know or accept is shown unchanged. */
static void put_setting(FILE *out, rcv_settings *settings, const char *name, const json_t *value) {
    char *text = log_value_text(value);
    const rcv_status status = rcv_settings_set(settings, name, text);
    if (status == RCV_NO_MEMORY) {
        give_up(strlen(text));
    }
    const bool known = status == RCV_OK;
    const char *shown = known ? rcv_settings_get(settings, name) : text, *usual = default_setting(name);
    if (strcmp(shown, usual) != 0) {
        put_row(out, name, shown, usual);
    }
    free(text);
}

void put_settings(FILE *out, const training_log *log, rcv_settings *settings) {
    json_t *object = json_object_get(log->start, "settings");
    const char *name;
    json_t *value;
    if (!json_is_object(object)) {
        return;
    }
    put_section(out, "settings", "Settings", "Settings that differ from their defaults.");
    begin_table(out);
    json_object_foreach(object, name, value) { put_setting(out, settings, name, value); }
    fprintf(out, "</tbody></table></div></section>\n");
}

/* ---- several runs ---- */

static void put_cell(FILE *out, const run *run, const char *setting) {
    char *value = run_setting(run, setting);
    fprintf(out, "<td class=\"left\"><code>");
    put_text(out, value);
    fprintf(out, "</code></td>");
    free(value);
}

static void put_heading(FILE *out, const char *text) {
    fprintf(out, "<th class=\"left\">");
    put_text(out, text);
    fprintf(out, "</th>");
}

/* A row for each run, a column for each setting. */
static void put_by_run(FILE *out, const run *runs, size_t count, const setting_names *differing) {
    fprintf(out, "<tr><th>run</th>");
    for (size_t i = 0; i < differing->count; i++) {
        put_heading(out, differing->names[i]);
    }
    fprintf(out, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "<tr><td>");
        put_text(out, runs[i].name);
        fprintf(out, "</td>");
        for (size_t j = 0; j < differing->count; j++) {
            put_cell(out, &runs[i], differing->names[j]);
        }
        fprintf(out, "</tr>\n");
    }
}

/* A row for each setting, a column for each run. */
static void put_by_setting(FILE *out, const run *runs, size_t count, const setting_names *differing) {
    fprintf(out, "<tr><th>setting</th>");
    for (size_t i = 0; i < count; i++) {
        put_heading(out, runs[i].name);
    }
    fprintf(out, "</tr></thead><tbody>\n");
    for (size_t j = 0; j < differing->count; j++) {
        fprintf(out, "<tr><td>");
        put_text(out, differing->names[j]);
        fprintf(out, "</td>");
        for (size_t i = 0; i < count; i++) {
            put_cell(out, &runs[i], differing->names[j]);
        }
        fprintf(out, "</tr>\n");
    }
}

/* What all runs share and is not the default. */
static void put_shared(FILE *out, const run *run, const setting_names *shared) {
    bool any = false;
    for (size_t i = 0; i < shared->count; i++) {
        char *value = run_setting(run, shared->names[i]);
        const char *usual = default_setting(shared->names[i]);
        if (strcmp(value, usual) != 0) {
            if (!any) {
                fprintf(out,
                        "<details><summary>Settings that are the same in all runs, and not the default</summary>\n");
                begin_table(out);
            }
            any = true;
            put_row(out, shared->names[i], value, usual);
        }
        free(value);
    }
    fprintf(out, "%s", any ? "</tbody></table></div></details>\n" : "");
}

void put_setting_differences(FILE *out, const run *runs, size_t count) {
    setting_names all = settings_of_runs(runs, count);
    setting_names differing = {need(all.count, sizeof *all.names), 0}, shared = {need(all.count, sizeof *all.names), 0};
    for (size_t i = 0; i < all.count; i++) {
        if (is_file_setting(all.names[i])) {
            continue;
        }
        setting_names *list = runs_share(runs, count, all.names[i]) ? &shared : &differing;
        list->names[list->count++] = all.names[i];
    }
    put_section(out, "settings", "Settings",
                differing.count > 0 ? "Only the settings that differ between the runs."
                                    : "All runs have the same settings.");
    if (differing.count > 0) {
        fprintf(out, "<div class=\"table\"><table><thead>");
        (differing.count <= count ? put_by_run : put_by_setting)(out, runs, count, &differing);
        fprintf(out, "</tbody></table></div>\n");
    }
    if (count > 0 && shared.count > 0) {
        put_shared(out, &runs[0], &shared);
    }
    fprintf(out, "</section>\n");
    free(all.names);
    free(differing.names);
    free(shared.names);
}
