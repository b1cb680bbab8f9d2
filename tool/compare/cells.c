/* The cells of a comparison: their names, and sizes of a given number of parameters. */
#include "compare/compare.h"
#include "tool.h"
#include "training/summary.h"

#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

/* The file's name without folder and ending. */
static char *base_name(const char *cell) {
    static const char ending[] = ".cell";
    const char *slash = strrchr(cell, '/'), *name = slash != NULL ? slash + 1 : cell;
    const size_t length = strlen(name), more = strlen(ending);
    const bool has_ending = length > more && strcmp(name + length - more, ending) == 0;
    return text_of("%.*s", (int)(has_ending ? length - more : length), name);
}

static bool is_taken(const cell_comparison *comparison, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(comparison->cells[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* my, my-2, ... */
static char *free_name(const cell_comparison *comparison, size_t count, const char *cell) {
    char *base = base_name(cell), *name = text_of("%s", base);
    for (int n = 2; is_taken(comparison, count, name); n++) {
        free(name);
        name = text_of("%s-%d", base, n);
    }
    free(base);
    return name;
}

static bool open_cell(cell_comparison *comparison, size_t index, const char *name) {
    rcv_cell *cell = NULL;
    char *equations = NULL;
    rcv_status status = rcv_cell_open(comparison->context, name, &cell);
    if (status == RCV_OK) {
        status = rcv_cell_print(cell, &equations);
    }
    if (status == RCV_OK) {
        comparison->cells[index] = (compared_cell){
            .cell = name, .name = free_name(comparison, index, name), .equations = text_of("%s", equations)};
        comparison->cell_count = index + 1;
    } else {
        fail(status);
    }
    rcv_text_free(comparison->context, equations);
    rcv_cell_free(cell);
    return status == RCV_OK;
}

bool cells_open(cell_comparison *comparison, const char *const *cells, size_t count) {
    bool good = true;
    comparison->cells = need(count, sizeof *comparison->cells);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (strcmp(cells[i], cells[j]) == 0) {
                say("the cell %s is given twice: several runs of a cell are --seeds N", cells[i]);
                return false;
            }
        }
    }
    for (size_t i = 0; i < count; i++) {
        good = open_cell(comparison, comparison->cell_count, cells[i]) && good;
    }
    return good;
}

/* ---- sizes ---- */

enum { LARGEST = 1 << 20 }; /* hidden size that is tried */

static rcv_status set_integer(rcv_settings *settings, const char *name, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return rcv_settings_set(settings, name, text);
}

/* A learner in the host's memory: parameters can be counted without the device. */
static rcv_status make_learner(const cell_comparison *comparison, const rcv_settings *settings, int64_t hidden,
                               rcv_learner **learner) {
    rcv_settings *copy = NULL;
    rcv_status status = rcv_settings_copy(settings, &copy);
    if (status == RCV_OK) {
        status = rcv_settings_set(copy, "device", "cpu");
    }
    if (status == RCV_OK) {
        status = rcv_settings_set(copy, "dtype", "float32");
    }
    if (status == RCV_OK && hidden > 0) {
        status = set_integer(copy, "hidden", hidden);
    }
    if (status == RCV_OK) {
        status = rcv_learner_new(comparison->context, copy, comparison->files.data[PART_TRAIN], learner);
    }
    rcv_settings_free(copy);
    return status;
}

static rcv_status count_parameters(const cell_comparison *comparison, const rcv_settings *settings, int64_t hidden,
                                   int64_t *count) {
    rcv_learner *learner = NULL;
    const rcv_status status = make_learner(comparison, settings, hidden, &learner);
    *count = status == RCV_OK ? rcv_learner_parameter_elements(learner) : 0;
    rcv_learner_free(learner);
    return status;
}

/* Some cells need a multiple of a number, such as their heads: the smallest power of two that they take. */
static rcv_status find_unit(const cell_comparison *comparison, const rcv_settings *settings, int64_t *unit) {
    enum { LARGEST_UNIT = 64 };
    rcv_status status = RCV_OK;
    int64_t count;
    for (*unit = 1; *unit <= LARGEST_UNIT; *unit *= 2) {
        status = count_parameters(comparison, settings, 3 * *unit, &count);
        if (status == RCV_OK) {
            break;
        }
    }
    return status;
}

/* The hidden size whose number of parameters is nearest to `wanted`. The number grows with the hidden size. */
static rcv_status find_hidden(const cell_comparison *comparison, const rcv_settings *settings, int64_t wanted,
                              int64_t *hidden) {
    int64_t unit, low = 0, high = 1, count = 0, below = 0, above = 0; /* low and high in units; low 0: not counted */
    rcv_status status = find_unit(comparison, settings, &unit);
    while (status == RCV_OK) {
        status = count_parameters(comparison, settings, high * unit, &count);
        if (status != RCV_OK || count >= wanted || high * unit >= LARGEST) {
            above = count;
            break;
        }
        low = high;
        below = count;
        high *= 2;
    }
    while (status == RCV_OK && high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        status = count_parameters(comparison, settings, middle * unit, &count);
        low = count < wanted ? middle : low;
        below = count < wanted ? count : below;
        high = count < wanted ? high : middle;
        above = count < wanted ? above : count;
    }
    *hidden = unit * (low > 0 && wanted - below <= above - wanted ? low : high);
    return status;
}

static rcv_status set_size(cell_comparison *comparison, compared_cell *cell, const rcv_settings *settings,
                           int64_t parameters) {
    rcv_learner *learner = NULL;
    int64_t hidden;
    rcv_status status = rcv_settings_copy(settings, &cell->settings);
    if (status == RCV_OK) {
        status = rcv_settings_set(cell->settings, "cell", cell->cell);
    }
    if (status == RCV_OK) {
        status = rcv_settings_check(cell->settings);
    }
    if (status == RCV_OK && parameters > 0) {
        status = find_hidden(comparison, cell->settings, parameters, &hidden);
        status = status == RCV_OK ? set_integer(cell->settings, "hidden", hidden) : status;
    }
    if (status == RCV_OK) {
        status = make_learner(comparison, cell->settings, 0, &learner);
    }
    if (status == RCV_OK) {
        cell->shape = shape_text(rcv_learner_net(learner));
        cell->parameters = rcv_learner_parameter_elements(learner);
    }
    rcv_learner_free(learner);
    return status;
}

rcv_status cells_set_sizes(cell_comparison *comparison, const rcv_settings *settings, int64_t parameters) {
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < comparison->cell_count && status == RCV_OK; i++) {
        status = set_size(comparison, &comparison->cells[i], settings, parameters);
    }
    return status;
}
