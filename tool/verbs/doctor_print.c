/* What recurve doctor found, as text of 80 columns. */
#include "verbs/doctor.h"

#include "problem.h" /* human_bytes */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMN = 15 }; /* where the text beside a title begins */

static const char *get(const json_t *object, const char *key) {
    const char *value = json_string_value(json_object_get(object, key));
    return value != NULL ? value : "";
}

static double get_number(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

/* "TITLE        TEXT", wrapped; releases the text. */
static void print_line(const char *title, char *line) {
    int column = printf("%-*s", COLUMN - 1, title);
    column += printf(" ");
    print_wrapped(line, column, COLUMN);
    free(line);
}

static void print_title(const char *title) {
    const bool is_bold = use_color(stdout);
    printf("\n%s%s%s\n", is_bold ? "\033[1m" : "", title, is_bold ? "\033[0m" : "");
}

static void print_machine(const json_t *found) {
    const json_t *cpu = json_object_get(found, "cpu"), *memory = json_object_get(found, "memory");
    const json_t *available = json_object_get(cpu, "available"), *gpus = json_object_get(found, "gpus");
    char *sets = text_of("%s", ""), all[32], rest[32];
    for (size_t i = 0; i < json_array_size(available); i++) {
        char *longer = text_of("%s%s%s", sets, i > 0 ? ", " : "", json_string_value(json_array_get(available, i)));
        free(sets);
        sets = longer;
    }
    const char *commit = get(found, "commit"), *model = get(cpu, "model"), *kernels = get(cpu, "kernels");
    print_line("Recurve", text_of("%s%s%s", get(found, "version"), commit[0] != '\0' ? ", commit " : "", commit));
    print_line("CPU", text_of("%s%s%.0f cores, %.0f threads", model, model[0] != '\0' ? ", " : "",
                              get_number(cpu, "cores"), get_number(cpu, "threads")));
    print_line("Kernels", text_of("%s (available: %s)", kernels[0] != '\0' ? kernels : "none", sets));
    free(sets);
    print_line("Memory", text_of("%s, available %s", human_bytes(get_number(memory, "bytes"), all),
                                 human_bytes(get_number(memory, "available"), rest)));
    for (size_t i = 0; i < json_array_size(gpus); i++) {
        print_line("GPU", text_of("%s: %s", get(json_array_get(gpus, i), "name"),
                                  get(json_array_get(gpus, i), "description")));
    }
    if (json_array_size(gpus) == 0) {
        print_line("GPU", text_of("none: %s", get(found, "gpu_absence")));
    }
}

/* Libraries of a GPU are listed where there is one. */
static void print_libraries(const json_t *found) {
    const json_t *libraries = json_object_get(found, "libraries");
    const bool has_gpu = json_array_size(json_object_get(found, "gpus")) > 0;
    print_title("Libraries");
    for (size_t i = 0; i < json_array_size(libraries); i++) {
        const json_t *library = json_array_get(libraries, i);
        const char *state = get(library, "state");
        const bool is_found = strcmp(state, "found") == 0;
        if (has_gpu || is_found || !json_is_true(json_object_get(library, "gpu"))) {
            char *title = text_of("  %s", get(library, "name"));
            print_line(title, is_found ? text_of("%s (%s)", get(library, "version"), get(library, "use"))
                                       : text_of("%s (%s)", state, get(library, "use")));
            free(title);
        }
    }
}

static void print_python(const json_t *found) {
    const char *name;
    json_t *version;
    if (json_object_size(json_object_get(found, "python")) > 0) {
        print_title("Python packages");
    }
    json_object_foreach(json_object_get(found, "python"), name, version) {
        char *title = text_of("  %s", name);
        print_line(title, text_of("%s", json_is_string(version) ? json_string_value(version) : "missing"));
        free(title);
    }
}

static void print_cache(const json_t *found) {
    const json_t *cache = json_object_get(found, "cache");
    char now[32], most[32];
    print_title("Cache");
    if (get(cache, "folder")[0] == '\0') {
        print_line("  folder", text_of("none: plans and kernels are not kept (RECURVE_CACHE)"));
        return;
    }
    print_line("  folder", text_of("%s", get(cache, "folder")));
    print_line("  content", text_of("%.0f files, %s of at most %s", get_number(cache, "files"),
                                    human_bytes(get_number(cache, "bytes"), now),
                                    human_bytes(get_number(cache, "most_bytes"), most)));
    print_line("  state", text_of("%s, %s", get_number(cache, "untrusted") > 0 ? "not trusted" : "trusted",
                                  json_is_true(json_object_get(cache, "writable")) ? "writable" : "not writable"));
}

static void print_list(const char *title, const json_t *list) {
    if (json_array_size(list) > 0) {
        print_title(title);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        char *what = text_of("  %s", get(item, "what"));
        print_line(what, text_of("%s", get(item, "reason")));
        free(what);
        if (get(item, "command")[0] != '\0') {
            print_line("", text_of("=> %s", get(item, "command")));
        }
    }
}

void doctor_print(const json_t *found) {
    print_machine(found);
    print_libraries(found);
    print_python(found);
    print_cache(found);
    print_list("Missing, and what installs it (all of it is optional)", json_object_get(found, "missing"));
    print_list("Broken, and what mends it", json_object_get(found, "broken"));
    if (json_array_size(json_object_get(found, "broken")) == 0) {
        printf("\nNothing is broken.\n");
    }
}
