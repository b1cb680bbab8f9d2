/* The reader of tables in CSV and TSV files. A record is a time step of a sequence, or a whole sequence ("wide"): see docs/DATA.md. Each sequence, or each
 * piece of one, becomes an example, which examples.c counts or writes. */
#include "data/table/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* What a column is for. */
typedef struct {
    int32_t feature, target; /* its place among them; -1: it is none. With a horizon it may be both */
    bool sequence, time;
} column;

typedef struct {
    rcvi_import *import;
    const rcvi_schema *schema;
    rcvi_examples examples;
    rcvi_csv csv;
    bool comma; /* numbers may have a decimal comma */
    /* the header */
    char **names; /* [column_count] */
    column *columns;
    size_t column_count, name_capacity;
    int64_t features;         /* of a time step */
    int32_t *feature_columns; /* [schema->feature_count] */
    int32_t *other_columns;   /* [other_count] those of targets and of the time */
    size_t other_count;
    int32_t id_column; /* -1: there is none */
    /* the sequence so far; its rows since the last piece are examples.example.x, [rows, features] */
    bool begun;
    char *id; /* with a NUL */
    size_t id_length, id_capacity;
    int64_t rows;
    bool continues; /* a piece of it was added before */
    float *values;  /* of steps: [rows, targets] */
    size_t value_capacity;
    char *classes; /* of steps: [rows] names, each with its NUL; empty: missing */
    size_t class_bytes, class_capacity;
    char *last_time; /* of the row before, with a NUL; NULL: there is none */
    size_t last_time_capacity;
    uint64_t *ids; /* hashes of the sequences so far, a hash table; 0: a free place */
    size_t id_count, id_slots;
} table;

#define WRONG(t, format, ...)                                                                                          \
    rcvi_fail(RCV_FORMAT, "%s: line %lld" format, (t)->csv.path, (long long)(t)->csv.line, __VA_ARGS__)

static bool has_steps(const table *t) { return rcvi_kind_has_steps(t->import->kind); }
static bool has_classes(const table *t) { return rcvi_kind_has_classes(t->import->kind); }
static int shown(size_t length) { return length < 40 ? (int)length : 40; }

/* ---- the header ---- */

static rcv_status add_name(table *t, rcvi_field field) {
    rcv_context *context = t->import->context;
    field = rcvi_field_trim(field);
    if (!rcvi_grow(context, &t->names, &t->name_capacity, t->column_count + 1, sizeof *t->names)) return RCV_NO_MEMORY;
    char *name = rcvi_copy_text(context, field.bytes, field.length);
    if (!name) return RCV_NO_MEMORY;
    t->names[t->column_count++] = name;
    return RCV_OK;
}

/* The names of the columns for a message, at most some of them. */
static void list_names(const table *t, char *text, size_t room) {
    size_t used = 0, most = !t->names ? 0 : t->column_count < 12 ? t->column_count : 12;
    for (size_t i = 0; i < most && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%.40s", i ? ", " : "", t->names[i]);
    if (most < t->column_count && used < room) snprintf(text + used, room - used, ", ...");
}

static rcv_status find_column(const table *t, const char *name, column **out) {
    *out = NULL;
    for (size_t i = 0; t->names && i < t->column_count; i++) {
        if (strcmp(t->names[i], name) != 0) continue;
        if (*out) return rcvi_fail(RCV_FORMAT, "%s has two columns with the name '%.60s'", t->csv.path, name);
        *out = &t->columns[i];
    }
    if (*out) return RCV_OK;
    char list[600] = "";
    const char *near = rcvi_nearest_name(name, (const char *const *)t->names, t->column_count);
    for (size_t i = 0; t->names && i < t->column_count; i++)
        if (strcasecmp(t->names[i], name) == 0) near = t->names[i];
    list_names(t, list, sizeof list);
    if (near) return rcvi_fail(RCV_FORMAT, "%s has no column '%.60s'; there is '%.60s'", t->csv.path, name, near);
    return rcvi_fail(RCV_FORMAT, "%s has no column '%.60s'; its columns are %s", t->csv.path, name, list);
}

static rcv_status find_columns(table *t) {
    const rcvi_schema *s = t->schema;
    column *found = NULL; /* where find_column succeeds it is a column */
    for (size_t i = 0; i < s->feature_count; i++) {
        RCVI_TRY(find_column(t, s->features[i], &found));
        if (found) found->feature = (int32_t)i;
        t->feature_columns[i] = found ? (int32_t)(found - t->columns) : 0;
    }
    for (size_t i = 0; i < s->target_count && !t->import->unlabelled; i++) {
        RCVI_TRY(find_column(t, s->targets[i], &found));
        if (found) found->target = (int32_t)i;
    }
    if (s->sequence) {
        RCVI_TRY(find_column(t, s->sequence, &found));
        if (found) found->sequence = true;
    }
    if (s->time && !s->is_wide) {
        RCVI_TRY(find_column(t, s->time, &found));
        if (found) found->time = true;
    }
    return RCV_OK;
}

/* The first pass reads no features, but the last one of a row that is a sequence: it needs the fields at both ends of a record alone. */
static void skip_middle(table *t) {
    const rcvi_schema *s = t->schema;
    const size_t middle = t->column_count / 2;
    size_t head = 0, tail = 0;
    for (size_t i = 0; i < t->column_count; i++) {
        const column *c = &t->columns[i];
        const bool ends = s->is_wide && c->feature == (int32_t)s->feature_count - 1;
        if (!(c->target >= 0 || c->time || c->sequence || ends)) continue;
        if (i < middle) head = i + 1;
        if (i >= middle && tail == 0) tail = t->column_count - i;
    }
    if (s->is_text || head + tail == 0 || 2 * (head + tail) > t->column_count) return;
    t->csv.head = head;
    t->csv.tail = tail;
}

static rcv_status read_header(table *t) {
    for (size_t i = 0; i < t->csv.count; i++) RCVI_TRY(add_name(t, t->csv.fields[i]));
    t->columns = rcvi_new(t->import->context, t->column_count, sizeof *t->columns);
    t->feature_columns = rcvi_new(t->import->context, t->schema->feature_count, sizeof *t->feature_columns);
    t->other_columns = rcvi_new(t->import->context, t->column_count, sizeof *t->other_columns);
    if (!t->columns || !t->feature_columns || !t->other_columns) return RCV_NO_MEMORY;
    for (size_t i = 0; i < t->column_count; i++) t->columns[i] = (column){.feature = -1, .target = -1};
    t->features = t->schema->is_wide ? 1 : (int64_t)t->schema->feature_count;
    RCVI_TRY(find_columns(t));
    t->id_column = -1;
    for (size_t i = 0; i < t->column_count; i++) {
        if (t->columns[i].sequence) t->id_column = (int32_t)i;
        if (t->columns[i].target >= 0 || t->columns[i].time) t->other_columns[t->other_count++] = (int32_t)i;
    }
    if (!t->examples.writes) skip_middle(t);
    return RCV_OK;
}

/* ---- fields ---- */

static const char *name_of(const table *t, size_t index) { return t->names[index]; }

/* A feature: NaN where it is missing, and may be. */
static rcv_status read_feature(const table *t, size_t index, float *x) {
    double number = 0;
    const rcvi_field field = t->csv.fields[index];
    if (rcvi_field_read_decimal(field, &number)) {
        *x = (float)number; /* at most 15 digits: it is finite */
        return RCV_OK;
    }
    switch (rcvi_field_read(field, t->comma, &number)) {
    case RCVI_FIELD_TEXT:
        return WRONG(t, ", column '%.60s' has '%.*s' where a number is meant", name_of(t, index), shown(field.length),
                     field.bytes);
    case RCVI_FIELD_MISSING:
        if (t->schema->missing == RCV_MISSING_ERROR)
            return WRONG(t, ", column '%.60s' has no value; --missing says what becomes of values that are missing",
                         name_of(t, index));
        *x = NAN;
        return RCV_OK;
    case RCVI_FIELD_NUMBER: break;
    }
    *x = (float)number;
    return isfinite(*x) ? RCV_OK
                        : WRONG(t, ", column '%.60s' has '%.*s', which is no number that a float holds",
                                name_of(t, index), shown(field.length), field.bytes);
}

/* A value that is predicted; NaN: it is missing. */
static rcv_status read_value(const table *t, size_t index, float *value) {
    double number = NAN;
    const rcvi_field field = t->csv.fields[index];
    const rcvi_field_kind kind = rcvi_field_read(field, t->comma, &number);
    *value = kind == RCVI_FIELD_NUMBER ? (float)number : NAN;
    if (kind == RCVI_FIELD_MISSING || isfinite(*value)) return RCV_OK;
    return WRONG(t, ", column '%.60s' has the target '%.*s', which is not a number%s", name_of(t, index),
                 shown(field.length), field.bytes, kind == RCVI_FIELD_TEXT ? "; for classes use --kind classes" : "");
}

enum { NAME_BYTES = 256 };

/* The name of a class; whole numbers are written as such. Empty: it is missing. */
static rcv_status read_class(const table *t, size_t index, char name[NAME_BYTES], size_t *length) {
    double number;
    const rcvi_field field = rcvi_field_trim(t->csv.fields[index]);
    const rcvi_field_kind kind = rcvi_field_read(field, t->comma, &number);
    *length = 0;
    if (kind == RCVI_FIELD_MISSING) {
        name[0] = '\0';
    } else if (kind == RCVI_FIELD_NUMBER && floor(number) == number && fabs(number) <= 0x1p53) {
        *length = (size_t)snprintf(name, NAME_BYTES, "%lld", (long long)number);
    } else if (field.length >= NAME_BYTES || memchr(field.bytes, '\0', field.length) ||
               memchr(field.bytes, '\n', field.length)) {
        return WRONG(t, ", column '%.60s' has a class name of %zu bytes; it must be one line of at most %d",
                     name_of(t, index), field.length, NAME_BYTES - 1);
    } else {
        memcpy(name, field.bytes, *length = field.length);
        name[field.length] = '\0';
    }
    return RCV_OK;
}

/* ---- examples ---- */

/* Moves what belongs to rows `count` .. rows - 1 to the front. */
static void drop_rows(table *t, int64_t count) {
    rcvi_example *e = &t->examples.example;
    const int64_t left = t->rows - count, targets = (int64_t)t->schema->target_count;
    size_t at = 0;
    if (left > 0 && t->examples.writes)
        memmove(e->x, e->x + count * t->features, (size_t)(left * t->features) * sizeof *e->x);
    if (left > 0 && t->values)
        memmove(t->values, t->values + count * targets, (size_t)(left * targets) * sizeof *t->values);
    for (int64_t i = 0; i < count && at < t->class_bytes; i++) at += strlen(t->classes + at) + 1;
    if (t->class_bytes > at) memmove(t->classes, t->classes + at, t->class_bytes - at);
    t->class_bytes -= at;
    t->rows = left;
}

/* Gives `steps` targets to the example, those of `horizon` rows later; a row that is not there yet has none. *any: not all are missing. */
static rcv_status set_step_targets(table *t, int64_t steps, bool *any) {
    rcvi_example *e = &t->examples.example;
    const int64_t outputs = (int64_t)t->schema->target_count, horizon = t->schema->horizon;
    rcv_context *context = t->import->context;
    size_t at = 0;
    *any = false;
    e->names_bytes = 0;
    if (!has_classes(t)) {
        if (!rcvi_grow(context, &e->values, &e->value_capacity, (size_t)(steps * outputs), sizeof *e->values))
            return RCV_NO_MEMORY;
        for (int64_t i = 0; i < steps * outputs; i++) {
            e->values[i] = i / outputs + horizon < t->rows ? t->values[i + horizon * outputs] : NAN;
            *any |= !isnan(e->values[i]);
        }
        e->outputs = outputs;
        return RCV_OK;
    }
    for (int64_t i = 0; i < horizon && at < t->class_bytes; i++) at += strlen(t->classes + at) + 1;
    for (int64_t i = 0; i < steps; i++) {
        const char *name = at < t->class_bytes ? t->classes + at : "";
        const size_t bytes = strlen(name) + 1;
        if (!rcvi_grow(context, &e->names, &e->names_capacity, e->names_bytes + bytes, 1)) return RCV_NO_MEMORY;
        memcpy(e->names + e->names_bytes, name, bytes);
        e->names_bytes += bytes;
        at += bytes;
        *any |= bytes > 1;
    }
    return RCV_OK;
}

/* Adds the example of the first `steps` rows. One without any target is left out, unless there need be none. */
static rcv_status add_example(table *t, int64_t steps) {
    rcvi_example *e = &t->examples.example;
    bool any = has_classes(t) ? e->label_length > 0 : e->outputs > 0;
    e->line = t->csv.line;
    e->steps = steps;
    e->features = t->features;
    e->name = t->schema->sequence ? t->id : NULL;
    e->name_length = t->id_length;
    e->continues = t->continues;
    if (has_steps(t) && !t->import->unlabelled) RCVI_TRY(set_step_targets(t, steps, &any));
    t->continues = true;
    if (any || t->import->unlabelled) return rcvi_examples_add(&t->examples);
    t->examples.left_out++;
    return RCV_OK;
}

static bool is_cut(const table *t) { return has_steps(t) && t->schema->piece > 0 && !t->import->unlabelled; }

/* Values of a sequence of which one is missing are all missing. */
static void drop_partial_values(table *t) {
    rcvi_example *e = &t->examples.example;
    for (int64_t i = 0; i < e->outputs; i++)
        if (isnan(e->values[i])) e->outputs = 0;
}

/* The sequence has ended: what is left of it becomes examples. */
static rcv_status end_sequence(table *t) {
    if (!has_steps(t)) drop_partial_values(t);
    while (t->rows > 0) {
        const int64_t steps = is_cut(t) && t->rows > t->schema->piece ? t->schema->piece : t->rows;
        RCVI_TRY(add_example(t, steps));
        drop_rows(t, steps);
    }
    t->begun = t->continues = false;
    if (t->last_time) t->last_time[0] = '\0';
    return RCV_OK;
}

/* ---- sequences ---- */

/* Remembers a sequence. False: it was there before. */
static rcv_status remember_id(table *t, bool *is_new) {
    rcv_context *context = t->import->context;
    uint64_t hash = rcvi_hash_chunk(0, t->id, t->id_length) | 1;
    if (2 * (t->id_count + 1) > t->id_slots) {
        size_t slots = t->id_slots ? 2 * t->id_slots : 1024;
        uint64_t *larger = rcvi_new(context, slots, sizeof *larger);
        if (!larger) return RCV_NO_MEMORY;
        for (size_t i = 0; i < t->id_slots; i++) {
            size_t at = (t->ids[i] >> 7) & (slots - 1);
            while (t->ids[i] && larger[at]) at = (at + 1) & (slots - 1);
            if (t->ids[i]) larger[at] = t->ids[i];
        }
        rcvi_free(context, t->ids);
        t->ids = larger;
        t->id_slots = slots;
    }
    size_t at = (hash >> 7) & (t->id_slots - 1);
    while (t->ids[at] && t->ids[at] != hash) at = (at + 1) & (t->id_slots - 1);
    *is_new = !t->ids[at];
    if (*is_new) {
        t->ids[at] = hash;
        t->id_count++;
    }
    return RCV_OK;
}

/* The record belongs to the sequence `id`: ends the one before where it is another one. */
static rcv_status begin_sequence(table *t, rcvi_field id) {
    const bool same = t->begun && id.length == t->id_length && !memcmp(id.bytes, t->id, id.length);
    bool is_new = true;
    if (same && !t->schema->is_wide) return RCV_OK;
    RCVI_TRY(end_sequence(t));
    if (!rcvi_grow(t->import->context, &t->id, &t->id_capacity, id.length + 1, 1)) return RCV_NO_MEMORY;
    memcpy(t->id, id.bytes, id.length);
    t->id[t->id_length = id.length] = '\0';
    t->begun = true;
    rcvi_example *e = &t->examples.example;
    e->label_length = 0;
    e->outputs = 0;
    if (!t->schema->is_wide && t->schema->sequence && !t->examples.writes) RCVI_TRY(remember_id(t, &is_new));
    if (is_new) return RCV_OK;
    return WRONG(t, ": the sequence '%.*s' begins again; sort the file by '%.60s', so that its rows are together",
                 shown(id.length), id.bytes, t->schema->sequence);
}

/* Times that are numbers, or begin with a year, can be compared. */
static rcv_status check_time(table *t, size_t index) {
    const rcvi_field now = rcvi_field_trim(t->csv.fields[index]);
    double a, b;
    bool falls = false;
    if (t->last_time && t->last_time[0]) {
        const rcvi_field before = {t->last_time, strlen(t->last_time)};
        const bool numbers = rcvi_field_read(before, t->comma, &a) == RCVI_FIELD_NUMBER &&
                             rcvi_field_read(now, t->comma, &b) == RCVI_FIELD_NUMBER;
        const bool dates = !numbers && before.length == now.length && now.length >= 10 && now.bytes[4] == '-' &&
                           before.bytes[4] == '-';
        falls = numbers ? b < a : dates && memcmp(now.bytes, before.bytes, now.length) < 0;
    }
    if (falls)
        return WRONG(t, ", column '%.60s' goes back from '%.40s' to '%.*s'; sort the rows of each sequence by time",
                     name_of(t, index), t->last_time, shown(now.length), now.bytes);
    if (!rcvi_grow(t->import->context, &t->last_time, &t->last_time_capacity, now.length + 1, 1)) return RCV_NO_MEMORY;
    memcpy(t->last_time, now.bytes, now.length);
    t->last_time[now.length] = '\0';
    return RCV_OK;
}

/* ---- targets ---- */

/* A target of the time step. */
static rcv_status add_step_target(table *t, size_t index, int64_t row) {
    rcv_context *context = t->import->context;
    const int64_t outputs = (int64_t)t->schema->target_count;
    if (has_classes(t)) {
        char name[NAME_BYTES];
        size_t length;
        RCVI_TRY(read_class(t, index, name, &length));
        if (!rcvi_grow(context, &t->classes, &t->class_capacity, t->class_bytes + length + 1, 1)) return RCV_NO_MEMORY;
        memcpy(t->classes + t->class_bytes, name, length + 1);
        t->class_bytes += length + 1;
        return RCV_OK;
    }
    if (!rcvi_grow(context, &t->values, &t->value_capacity, (size_t)((row + 1) * outputs), sizeof *t->values))
        return RCV_NO_MEMORY;
    return read_value(t, index, &t->values[row * outputs + t->columns[index].target]);
}

/* The target of the whole sequence, which all its rows must have; rows without it do not matter. */
static rcv_status set_target(table *t, size_t index) {
    rcvi_example *e = &t->examples.example;
    const int64_t outputs = (int64_t)t->schema->target_count;
    if (has_classes(t)) {
        char name[NAME_BYTES];
        size_t length;
        RCVI_TRY(read_class(t, index, name, &length));
        if (length == 0) return RCV_OK;
        if (e->label_length && (e->label_length != length || memcmp(e->label, name, length) != 0))
            return WRONG(t,
                         ", column '%.60s' has '%s' where the sequence has '%s'; for a class a time step use --kind "
                         "step-classes",
                         name_of(t, index), name, e->label);
        memcpy(e->label, name, length + 1);
        e->label_length = length;
        return RCV_OK;
    }
    float value;
    RCVI_TRY(read_value(t, index, &value));
    if (isnan(value)) return RCV_OK;
    if (!rcvi_grow(t->import->context, &e->values, &e->value_capacity, (size_t)outputs, sizeof *e->values))
        return RCV_NO_MEMORY;
    for (int64_t i = 0; i < outputs && e->outputs == 0; i++) e->values[i] = NAN;
    e->outputs = outputs;
    float *place = &e->values[t->columns[index].target];
    if (!isnan(*place) && *place != value)
        return WRONG(t,
                     ", column '%.60s' has %g where the sequence has %g; for a value a time step use --kind "
                     "step-values",
                     name_of(t, index), (double)value, (double)*place);
    *place = value;
    return RCV_OK;
}

/* ---- records ---- */

static rcv_status add_row(table *t) {
    rcvi_example *e = &t->examples.example;
    const int64_t row = t->rows, outputs = (int64_t)t->schema->target_count;
    if (t->examples.writes &&
        !rcvi_grow(t->import->context, &e->x, &e->x_capacity, (size_t)((row + 1) * t->features), sizeof *e->x))
        return RCV_NO_MEMORY;
    for (int64_t k = 0; k < t->features && t->examples.writes; k++)
        RCVI_TRY(read_feature(t, (size_t)t->feature_columns[k], &e->x[row * t->features + k]));
    for (size_t k = 0; k < t->other_count; k++) {
        const size_t i = (size_t)t->other_columns[k];
        if (t->columns[i].target >= 0) RCVI_TRY(has_steps(t) ? add_step_target(t, i, row) : set_target(t, i));
        if (t->columns[i].time && !t->examples.writes) RCVI_TRY(check_time(t, i));
    }
    if (has_steps(t) && !has_classes(t) && !t->import->unlabelled) { /* of a row all are there, or none */
        float *values = t->values + row * outputs;
        bool all = true;
        for (int64_t i = 0; i < outputs; i++) all &= !isnan(values[i]);
        for (int64_t i = 0; i < outputs && !all; i++) values[i] = NAN;
    }
    t->rows++;
    if (!is_cut(t) || t->rows < t->schema->piece + t->schema->horizon) return RCV_OK;
    RCVI_TRY(add_example(t, t->schema->piece));
    drop_rows(t, t->schema->piece);
    return RCV_OK;
}

static bool is_missing(const table *t, size_t index) {
    double number;
    return rcvi_field_read(t->csv.fields[index], t->comma, &number) == RCVI_FIELD_MISSING;
}

/* Steps of a record: fields that are missing at its end are none. */
static int64_t count_steps(const table *t) {
    int64_t steps = (int64_t)t->schema->feature_count;
    while (steps > 0 && is_missing(t, (size_t)t->feature_columns[steps - 1])) steps--;
    return steps;
}

/* The record is a sequence: its features are the time steps. */
static rcv_status add_wide(table *t) {
    rcvi_example *e = &t->examples.example;
    if (is_missing(t, (size_t)t->feature_columns[t->schema->feature_count - 1])) RCVI_TRY(rcvi_csv_split_all(&t->csv));
    const int64_t steps = count_steps(t);
    for (size_t k = 0; k < t->other_count; k++)
        if (t->columns[t->other_columns[k]].target >= 0) RCVI_TRY(set_target(t, (size_t)t->other_columns[k]));
    if (steps == 0) return WRONG(t, "%s", " has no values of features");
    if (!rcvi_grow(t->import->context, &e->x, &e->x_capacity, (size_t)steps, sizeof *e->x)) return RCV_NO_MEMORY;
    for (int64_t k = 0; k < steps && t->examples.writes; k++)
        RCVI_TRY(read_feature(t, (size_t)t->feature_columns[k], &e->x[k]));
    drop_partial_values(t);
    return add_example(t, t->rows = steps);
}

/* The record is a text. */
static rcv_status add_text(table *t) {
    rcvi_example *e = &t->examples.example;
    for (size_t i = 0; i < t->column_count; i++) {
        if (t->columns[i].target >= 0) RCVI_TRY(set_target(t, i));
        if (t->columns[i].feature < 0) continue;
        e->text = t->csv.fields[i].bytes;
        e->text_length = t->csv.fields[i].length;
    }
    drop_partial_values(t);
    return add_example(t, 0);
}

static rcvi_field id_of(const table *t) {
    return t->id_column < 0 ? (rcvi_field){"", 0} : rcvi_field_trim(t->csv.fields[t->id_column]);
}

static rcv_status add_record(table *t) {
    if (t->csv.count == 1 && t->column_count > 1 && rcvi_field_trim(t->csv.fields[0]).length == 0) return RCV_OK;
    if (t->csv.count != t->column_count)
        return WRONG(t, " has %zu field%s where the header has %zu", t->csv.count, t->csv.count == 1 ? "" : "s",
                     t->column_count);
    RCVI_TRY(begin_sequence(t, id_of(t)));
    if (t->schema->is_text || t->schema->is_wide) {
        RCVI_TRY(t->schema->is_text ? add_text(t) : add_wide(t));
        t->rows = 0;
        t->begun = t->continues = false;
        return RCV_OK;
    }
    return add_row(t);
}

/* ---- the reader ---- */

static rcv_status read_line(void *user, const char *line, size_t length, int64_t offset) {
    static const char mark[] = "\xef\xbb\xbf";
    table *t = user;
    bool complete;
    if (offset == 0 && length >= 3 && !memcmp(line, mark, 3)) {
        line += 3;
        length -= 3;
    }
    RCVI_TRY(rcvi_csv_line(&t->csv, line, length, &complete));
    if (!complete) return RCV_OK;
    return t->names ? add_record(t) : read_header(t);
}

static void free_table(table *t) {
    rcv_context *context = t->import->context;
    for (size_t i = 0; i < t->column_count; i++) rcvi_free(context, t->names[i]);
    void *const blocks[] = {
        t->names, t->columns, t->feature_columns, t->other_columns, t->id, t->values, t->classes, t->last_time, t->ids};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) rcvi_free(context, blocks[i]);
    rcvi_csv_free(&t->csv);
    rcvi_examples_end(&t->examples);
}

static rcv_status read_table(rcvi_import *import, bool writes) {
    table t = {.import = import, .schema = &import->schema, .comma = import->separator == ';'};
    rcvi_examples_begin(&t.examples, import, writes);
    rcvi_csv_begin(&t.csv, import->context, import->source.path, import->separator);
    rcv_status status = rcvi_text_file_lines(&import->source, RCVI_LIMIT_EXAMPLE, read_line, &t);
    if (!status) status = rcvi_csv_end(&t.csv);
    if (!status && t.names) status = end_sequence(&t);
    if (!status) status = rcvi_examples_finish(&t.examples);
    free_table(&t);
    return status;
}

static rcv_status count_table(rcvi_import *import) { return read_table(import, false); }
static rcv_status write_table(rcvi_import *import) { return read_table(import, true); }

const rcvi_data_reader rcvi_table_reader = {count_table, write_table};
