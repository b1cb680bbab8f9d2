/* The reader of arrays: x [sequences, steps, features] or [sequences, steps], y, and lengths [sequences]. Each sequence, or each piece of one, becomes
 * an example, which examples.c counts or writes. */
#include "data/table/array_reader.h"

#include "data/example.h"
#include "data/table/arrays.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    rcvi_import *import;
    const rcvi_schema *schema;
    rcvi_examples examples;
    rcvi_arrays arrays;
    const rcvi_array *x, *y, *lengths; /* y, lengths: NULL where there are none */
    int64_t sequences, steps, features;
    int64_t outputs; /* values of a target; of classes 1 */
    char *buffer;
    double *numbers;
    size_t buffer_capacity, number_capacity;
} reader;

static bool has_steps(const reader *r) { return rcvi_kind_has_steps(r->import->kind); }
static bool has_classes(const reader *r) { return rcvi_kind_has_classes(r->import->kind); }
static const char *path_of(const reader *r) { return r->import->source.path; }

#define WRONG(r, format, ...) rcvi_fail(RCV_FORMAT, "%s: " format, path_of(r), __VA_ARGS__)

/* ---- shapes ---- */

static const char *shape_text(const rcvi_array *a, char text[128]) {
    size_t used = (size_t)snprintf(text, 128, "[");
    for (int d = 0; d < a->dims && used < 100; d++)
        used += (size_t)snprintf(text + used, 128 - used, "%s%lld", d ? ", " : "", (long long)a->shape[d]);
    snprintf(text + used, 128 - used, "]");
    return text;
}

/* Two dimensions are one series [steps, features] for a forecast or a model of several features, else sequences of one feature. */
static rcv_status set_shape(reader *r) {
    const rcvi_array *x = r->x;
    char text[128];
    const bool series = x->dims == 2 && (r->schema->horizon > 0 || r->schema->inputs > 1);
    if (x->type == RCVI_ARRAY_TEXT) return WRONG(r, "%s has texts, where numbers are meant", x->name);
    if (x->dims < 1 || x->dims > 3 || (x->dims == 1 && !r->schema->horizon))
        return WRONG(r, "%s has the shape %s; it must be [sequences, steps, features] or [sequences, steps]", x->name,
                     shape_text(x, text));
    r->sequences = series || x->dims == 1 ? 1 : x->shape[0];
    r->steps = series || x->dims == 1 ? x->shape[0] : x->shape[1];
    r->features = x->dims == 3 ? x->shape[2] : series ? x->shape[1] : 1;
    if (r->sequences < 1 || r->steps < 1 || r->features < 1)
        return WRONG(r, "%s has the shape %s, and so no elements", x->name, shape_text(x, text));
    return RCV_OK;
}

static rcv_status check_targets(reader *r) {
    const rcvi_array *y = r->y;
    char text[128];
    const int first = has_steps(r) ? 2 : 1;
    bool good = y->dims >= first && y->dims <= first + (has_classes(r) ? 0 : 1) && y->shape[0] == r->sequences &&
                (first == 1 || y->shape[1] == r->steps);
    if (!good)
        return WRONG(r, "y has the shape %s, which does not fit %lld sequences%s", shape_text(y, text),
                     (long long)r->sequences, has_steps(r) ? " with a target at every time step" : "");
    if (y->type == RCVI_ARRAY_TEXT && !has_classes(r))
        return WRONG(r, "%s", "y has texts, which are classes: use --kind classes or step-classes");
    r->outputs = y->dims > first ? y->shape[first] : 1;
    return r->outputs > 0 ? RCV_OK : WRONG(r, "%s", "y has no values");
}

static rcv_status find_arrays(reader *r) {
    r->x = rcvi_arrays_find(&r->arrays, "x");
    r->lengths = rcvi_arrays_find(&r->arrays, "lengths");
    if (!r->x) return WRONG(r, "it has no array %s; data are arrays x, y and lengths", "x");
    RCVI_TRY(set_shape(r));
    if (r->lengths &&
        (r->lengths->dims != 1 || r->lengths->shape[0] != r->sequences || r->lengths->type == RCVI_ARRAY_TEXT))
        return WRONG(r, "lengths must be whole numbers, one for each of the %lld sequences", (long long)r->sequences);
    if (r->import->unlabelled) return RCV_OK;
    r->y = rcvi_arrays_find(&r->arrays, "y");
    if (r->y) return check_targets(r);
    r->outputs = r->features;
    if (r->schema->horizon > 0 && !has_classes(r)) return RCV_OK; /* x itself is predicted */
    return WRONG(r, "it has no array %s with what is predicted", "y");
}

/* ---- elements ---- */

static rcv_status read_numbers(reader *r, const rcvi_array *a, int64_t first, int64_t count) {
    rcv_context *context = r->import->context;
    if (!rcvi_grow(context, &r->buffer, &r->buffer_capacity, (size_t)(count * a->item), 1) ||
        !rcvi_grow(context, &r->numbers, &r->number_capacity, (size_t)count, sizeof *r->numbers))
        return RCV_NO_MEMORY;
    return rcvi_array_read(&r->arrays, a, first, count, r->buffer, r->numbers);
}

static rcv_status read_length(reader *r, int64_t sequence, int64_t *length) {
    *length = r->steps;
    if (!r->lengths) return RCV_OK;
    RCVI_TRY(read_numbers(r, r->lengths, sequence, 1));
    const double number = r->numbers[0];
    if (!(number >= 1 && number <= (double)r->steps) || floor(number) != number)
        return WRONG(r, "the length of sequence %lld is %g; it must be 1 to %lld", (long long)sequence, number,
                     (long long)r->steps);
    *length = (int64_t)number;
    return RCV_OK;
}

static rcv_status read_features(reader *r, int64_t sequence, int64_t from, int64_t steps) {
    rcvi_example *e = &r->examples.example;
    const int64_t count = steps * r->features;
    e->steps = steps;
    e->features = r->features;
    if (!r->examples.writes) return RCV_OK;
    if (!rcvi_grow(r->import->context, &e->x, &e->x_capacity, (size_t)count, sizeof *e->x)) return RCV_NO_MEMORY;
    RCVI_TRY(read_numbers(r, r->x, (sequence * r->steps + from) * r->features, count));
    for (int64_t i = 0; i < count; i++) {
        e->x[i] = (float)r->numbers[i];
        if (isfinite(e->x[i]) || (isnan(e->x[i]) && r->schema->missing != RCV_MISSING_ERROR)) continue;
        return WRONG(r, "x has %g in sequence %lld at step %lld, feature %lld%s", r->numbers[i], (long long)sequence,
                     (long long)(from + i / r->features), (long long)(i % r->features),
                     isnan(e->x[i]) ? "; --missing says what becomes of values that are missing" : "");
    }
    return RCV_OK;
}

/* The name of class `index` of y; empty where it is missing. */
static rcv_status read_class(reader *r, int64_t index, char *name, size_t room) {
    if (r->y->type == RCVI_ARRAY_TEXT) return rcvi_array_read_text(&r->arrays, r->y, index, name, room);
    RCVI_TRY(read_numbers(r, r->y, index, 1));
    const double number = r->numbers[0];
    name[0] = '\0';
    if (isnan(number)) return RCV_OK;
    if (floor(number) != number || fabs(number) > 0x1p53)
        return WRONG(r, "y has the class %g; it must be a whole number or a text", number);
    snprintf(name, room, "%lld", (long long)number);
    return RCV_OK;
}

/* Values at `index`, `outputs` of them; NaN where one is missing. *any: they are there. */
static rcv_status read_values(reader *r, const rcvi_array *a, int64_t index, float *values, bool *any) {
    RCVI_TRY(read_numbers(r, a, index * r->outputs, r->outputs));
    bool all = true;
    for (int64_t i = 0; i < r->outputs; i++) {
        values[i] = (float)r->numbers[i];
        all &= !isnan(values[i]);
        if (isinf(values[i])) return WRONG(r, "%s has an infinite value at %lld", a->name, (long long)index);
    }
    for (int64_t i = 0; i < r->outputs && !all; i++) values[i] = NAN;
    *any |= all;
    return RCV_OK;
}

/* ---- targets ---- */

static rcv_status read_target(reader *r, int64_t sequence, bool *any) {
    rcvi_example *e = &r->examples.example;
    if (has_classes(r)) {
        RCVI_TRY(read_class(r, sequence, e->label, sizeof e->label));
        e->label_length = strlen(e->label);
        *any = e->label_length > 0;
        return RCV_OK;
    }
    e->outputs = r->outputs;
    if (!rcvi_grow(r->import->context, &e->values, &e->value_capacity, (size_t)r->outputs, sizeof *e->values))
        return RCV_NO_MEMORY;
    return read_values(r, r->y, sequence, e->values, any);
}

/* Of steps from .. from + steps - 1: those of `horizon` steps later; past `length` they are missing. */
static rcv_status read_step_targets(reader *r, int64_t sequence, int64_t from, int64_t steps, int64_t length,
                                    bool *any) {
    rcvi_example *e = &r->examples.example;
    rcv_context *context = r->import->context;
    char name[256];
    e->names_bytes = 0;
    e->outputs = r->outputs;
    for (int64_t i = 0; i < steps; i++) {
        const int64_t time = from + i + r->schema->horizon, index = sequence * r->steps + time;
        const bool there = time < length;
        if (!has_classes(r)) {
            if (!rcvi_grow(context, &e->values, &e->value_capacity, (size_t)((i + 1) * r->outputs), sizeof *e->values))
                return RCV_NO_MEMORY;
            for (int64_t k = 0; k < r->outputs; k++) e->values[i * r->outputs + k] = NAN;
            if (there) RCVI_TRY(read_values(r, r->y ? r->y : r->x, index, e->values + i * r->outputs, any));
            continue;
        }
        name[0] = '\0';
        if (there) RCVI_TRY(read_class(r, index, name, sizeof name));
        const size_t bytes = strlen(name) + 1;
        if (!rcvi_grow(context, &e->names, &e->names_capacity, e->names_bytes + bytes, 1)) return RCV_NO_MEMORY;
        memcpy(e->names + e->names_bytes, name, bytes);
        e->names_bytes += bytes;
        *any |= bytes > 1;
    }
    return RCV_OK;
}

/* ---- sequences ---- */

static rcv_status add_piece(reader *r, int64_t sequence, int64_t from, int64_t steps, int64_t length) {
    rcvi_example *e = &r->examples.example;
    bool any = false;
    e->line = sequence + 1;
    e->continues = from > 0;
    RCVI_TRY(read_features(r, sequence, from, steps));
    if (!r->import->unlabelled)
        RCVI_TRY(has_steps(r) ? read_step_targets(r, sequence, from, steps, length, &any)
                              : read_target(r, sequence, &any));
    if (any || r->import->unlabelled) return rcvi_examples_add(&r->examples);
    r->examples.left_out++;
    return RCV_OK;
}

static rcv_status add_sequence(reader *r, int64_t sequence) {
    const bool cut =
        has_steps(r) && r->schema->piece > 0 && !r->import->unlabelled && (r->sequences == 1 || r->schema->horizon > 0);
    int64_t length;
    RCVI_TRY(read_length(r, sequence, &length));
    for (int64_t from = 0, steps; from < length; from += steps) {
        steps = cut && length - from > r->schema->piece ? r->schema->piece : length - from;
        RCVI_TRY(add_piece(r, sequence, from, steps, length));
    }
    return RCV_OK;
}

static rcv_status read_all(reader *r) {
    const rcvi_text_file *source = &r->import->source;
    RCVI_TRY(
        rcvi_arrays_open(r->import->context, source->file, source->bytes, source->path, r->import->format, &r->arrays));
    RCVI_TRY(find_arrays(r));
    for (int64_t i = 0; i < r->sequences; i++) RCVI_TRY(add_sequence(r, i));
    return rcvi_examples_finish(&r->examples);
}

static rcv_status read_file(rcvi_import *import, bool writes) {
    reader r = {.import = import, .schema = &import->schema};
    rcvi_examples_begin(&r.examples, import, writes);
    const rcv_status status = read_all(&r);
    rcvi_arrays_close(&r.arrays);
    rcvi_free(import->context, r.buffer);
    rcvi_free(import->context, r.numbers);
    rcvi_examples_end(&r.examples);
    return status;
}

static rcv_status count_arrays(rcvi_import *import) { return read_file(import, false); }
static rcv_status write_arrays(rcvi_import *import) { return read_file(import, true); }

const rcvi_data_reader rcvi_array_reader = {count_arrays, write_arrays};
