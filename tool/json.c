/* JSON files. */
#include "json.h"

#include "tool.h"

#include <stdlib.h>
#include <string.h>

bool save_json(const char *path, json_t *value) {
    char *text = value != NULL ? json_text(value, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    bool good = text != NULL;
    if (good) {
        char *line = text_of("%s\n", text);
        good = save_file(path, line, strlen(line));
        free(line);
    } else {
        say("no memory for the numbers as JSON: %s is unchanged", path);
    }
    free(text);
    json_decref(value);
    return good;
}
