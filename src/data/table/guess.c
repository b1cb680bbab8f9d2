/* What the columns of a table are for, by their names and by the beginning of the file: see docs/DATA.md. */
#include "data/recognise.h"
#include "data/table/csv.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* What was seen of a column. */
typedef struct {
    char *name;
    int64_t numbers, missing, texts; /* fields of each kind */
    int64_t bytes;                   /* of all texts */
    int64_t repeats;                 /* rows with the value of the row above */
    char *last;                      /* of the row above */
    size_t last_capacity;
    bool changes_within; /* in a row of the same sequence as the row above */
    rcvi_values_seen values;
} column_seen;

typedef struct {
    rcvi_recognised *r;
    column_seen *columns;
    size_t count;
    int64_t rows;
    column_seen *target; /* the first target */
    column_seen *sequence, *time;
} guess;

/* ---- the sample ---- */

static rcv_status begin_columns(guess *g, const rcvi_csv *csv) {
    g->columns = rcvi_new(g->r->context, csv->count, sizeof *g->columns);
    if (!g->columns) return RCV_NO_MEMORY;
    for (size_t i = 0; i < csv->count; i++) {
        const rcvi_field field = rcvi_field_trim(csv->fields[i]);
        g->columns[i].values.context = g->r->context;
        g->columns[i].values.comma = csv->separator == ';';
        g->columns[i].name = rcvi_copy_text(g->r->context, field.bytes, field.length);
        if (!g->columns[i].name) return RCV_NO_MEMORY;
        g->count++;
    }
    return RCV_OK;
}

/* Notes whether the field is that of the row above, and keeps it for the row below. */
static rcv_status compare_last(guess *g, column_seen *c, rcvi_field field, bool *same) {
    *same = g->rows > 0 && strlen(c->last) == field.length && !memcmp(c->last, field.bytes, field.length);
    if (*same) return RCV_OK;
    if (!rcvi_grow(g->r->context, &c->last, &c->last_capacity, field.length + 1, 1)) return RCV_NO_MEMORY;
    memcpy(c->last, field.bytes, field.length);
    c->last[field.length] = '\0';
    return RCV_OK;
}

static rcv_status see_record(guess *g, const rcvi_csv *csv) {
    const bool comma = csv->separator == ';';
    bool same, same_sequence = false;
    if (csv->count != g->count) return RCV_OK; /* the reader says what is wrong */
    if (g->sequence) {
        RCVI_TRY(compare_last(g, g->sequence, rcvi_field_trim(csv->fields[g->sequence - g->columns]), &same_sequence));
        g->sequence->repeats += same_sequence;
    }
    for (size_t i = 0; i < g->count; i++) {
        column_seen *c = &g->columns[i];
        double number;
        const rcvi_field field = rcvi_field_trim(csv->fields[i]);
        const rcvi_field_kind kind = rcvi_field_read(field, comma, &number);
        c->numbers += kind == RCVI_FIELD_NUMBER;
        c->missing += kind == RCVI_FIELD_MISSING;
        c->texts += kind == RCVI_FIELD_TEXT;
        c->bytes += kind == RCVI_FIELD_TEXT ? (int64_t)field.length : 0;
        if (c == g->sequence) continue;
        if (c == g->target) {
            RCVI_TRY(rcvi_values_see(&c->values, field.bytes, field.length));
            RCVI_TRY(compare_last(g, c, field, &same));
            c->changes_within |= same_sequence && !same && kind != RCVI_FIELD_MISSING;
        }
    }
    g->rows++;
    return RCV_OK;
}

/* Calls see_record for the rows of the sample; with `header` only the first line is read. */
static rcv_status read_sample(guess *g, bool header) {
    enum { ROWS = 5000 };
    rcvi_recognised *r = g->r;
    rcvi_csv csv;
    rcv_status status = RCV_OK;
    const char *at = r->text, *end = r->text + r->length;
    if (r->length >= 3 && !memcmp(at, "\xef\xbb\xbf", 3)) at += 3;
    rcvi_csv_begin(&csv, r->context, r->path, r->separator);
    bool is_header = true;
    for (int64_t rows = 0; at < end && rows < ROWS && !status;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const size_t length = newline ? (size_t)(newline - at) : (size_t)(end - at);
        bool complete;
        status = rcvi_csv_line(&csv, at, length, &complete);
        at += length + 1;
        if (status || !complete) continue;
        if (is_header) {
            if (header) status = begin_columns(g, &csv);
            is_header = false;
            if (header) break;
            continue;
        }
        status = see_record(g, &csv);
        rows++;
    }
    rcvi_csv_free(&csv);
    return status;
}

/* ---- columns by name ---- */

static column_seen *find_column(const guess *g, const char *name, size_t length) {
    for (size_t i = 0; i < g->count; i++)
        if (strlen(g->columns[i].name) == length && !memcmp(g->columns[i].name, name, length)) return &g->columns[i];
    return NULL;
}

static column_seen *find_usual(const guess *g, const char *const *names) {
    for (; *names; names++)
        for (size_t i = 0; i < g->count; i++)
            if (strcasecmp(g->columns[i].name, *names) == 0) return &g->columns[i];
    return NULL;
}

static rcv_status find_given(const guess *g, const char *name, size_t length, const char *option, column_seen **out) {
    *out = find_column(g, name, length);
    if (*out) return RCV_OK;
    const char **names = rcvi_new(g->r->context, g->count, sizeof *names);
    char wanted[128], list[400] = "";
    size_t used = 0;
    if (!names) return RCV_NO_MEMORY;
    for (size_t i = 0; i < g->count; i++) {
        names[i] = g->columns[i].name;
        if (i < 12 && used < sizeof list - 64)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%.40s", i ? ", " : "", names[i]);
    }
    snprintf(wanted, sizeof wanted, "%.*s", (int)(length < 100 ? length : 100), name);
    const char *near = rcvi_nearest_name(wanted, names, g->count);
    const rcv_status status =
        near ? rcvi_fail(RCV_INVALID, "%s has no column '%s' (%s); there is '%.60s'", g->r->path, wanted, option, near)
             : rcvi_fail(RCV_INVALID, "%s has no column '%s' (%s); its columns are %s%s", g->r->path, wanted, option,
                         list, g->count > 12 ? ", ..." : "");
    rcvi_free(g->r->context, (void *)names);
    return status;
}

static rcv_status find_target(guess *g) {
    static const char *const usual[] = {"target", "label", "class", "y", NULL};
    rcvi_schema *s = &g->r->schema;
    const char *given = g->r->options->target;
    if (rcvi_is_given(given)) {
        RCVI_TRY(rcvi_schema_add_names(s, given, "the target", true));
        for (size_t i = 0; i < s->target_count; i++) {
            column_seen *found;
            RCVI_TRY(find_given(g, s->targets[i], strlen(s->targets[i]), "--target", &found));
            if (i == 0) g->target = found;
        }
        return RCV_OK;
    }
    g->target = find_usual(g, usual);
    if (!g->target && g->columns) g->target = &g->columns[g->count - 1];
    if (!g->target) return rcvi_fail(RCV_FORMAT, "%s has no columns", g->r->path);
    return rcvi_schema_add(s, g->target->name, strlen(g->target->name), true);
}

static rcv_status find_sequence_and_time(guess *g) {
    static const char *const sequences[] = {"sequence", "sequence_id", "series", "series_id", "id", NULL},
                             *const times[] = {"time", "timestamp", "t", "date", "datetime", NULL};
    const rcv_data_options *o = g->r->options;
    if (rcvi_is_given(o->sequence))
        RCVI_TRY(find_given(g, o->sequence, strlen(o->sequence), "--sequence", &g->sequence));
    else
        g->sequence = find_usual(g, sequences);
    if (rcvi_is_given(o->time))
        RCVI_TRY(find_given(g, o->time, strlen(o->time), "--time", &g->time));
    else
        g->time = find_usual(g, times);
    if (g->sequence == g->target && !rcvi_is_given(o->sequence)) g->sequence = NULL;
    if (g->time == g->target && !rcvi_is_given(o->time)) g->time = NULL;
    if ((g->sequence && g->sequence == g->target) || (g->time && (g->time == g->target || g->time == g->sequence)))
        return rcvi_fail(RCV_INVALID, "%s: a column is one of the target, the sequence and the time", g->r->path);
    return RCV_OK;
}

/* ---- what rows are ---- */

/* Whether rows are the time steps of sequences. An id that no two rows share names sequences of one row. */
static bool has_rows_as_steps(const guess *g) {
    const rcvi_recognised *r = g->r;
    const bool steps = r->kind >= 0 && rcvi_kind_has_steps((rcv_data_kind)r->kind);
    if (r->options->horizon > 0 || steps || rcvi_is_given(r->options->sequence)) return true;
    return g->sequence && g->sequence->repeats > 0;
}

static void find_kind(guess *g, bool rows_are_steps) {
    rcvi_recognised *r = g->r;
    if (r->kind >= 0) return;
    const bool classes = r->schema.target_count == 1 && rcvi_values_are_classes(&g->target->values) &&
                         (r->options->horizon == 0 || g->target->values.text);
    const bool steps = r->options->horizon > 0 || (rows_are_steps && (!g->sequence || g->target->changes_within));
    r->kind = (int)rcvi_kind_of(classes, steps);
}

/* ---- features ---- */

static bool is_target(const guess *g, const column_seen *c) {
    const rcvi_schema *s = &g->r->schema;
    for (size_t i = 0; i < s->target_count; i++)
        if (strcmp(s->targets[i], c->name) == 0) return true;
    return false;
}

static bool may_be_feature(const guess *g, const column_seen *c) {
    if (c == g->sequence || c == g->time || c->name[0] == '\0') return false;
    return !is_target(g, c) || g->r->options->horizon > 0;
}

static rcv_status add_feature(guess *g, const column_seen *c) {
    return rcvi_schema_add(&g->r->schema, c->name, strlen(c->name), false);
}

/* All columns of numbers; where there is none, the one with the longest texts. */
static rcv_status find_features(guess *g, rcvi_text *left_out) {
    rcvi_schema *s = &g->r->schema;
    const column_seen *longest = NULL;
    size_t texts = 0;
    for (size_t i = 0; i < g->count; i++) {
        const column_seen *c = &g->columns[i];
        if (!may_be_feature(g, c)) continue;
        if (c->texts == 0) RCVI_TRY(add_feature(g, c));
        if (c->texts == 0) continue;
        if (texts < 6) rcvi_text_add(left_out, "%s'%.40s'", texts ? ", " : "", c->name);
        texts++;
        if (!longest || c->bytes > longest->bytes) longest = c;
    }
    if (s->feature_count == 0 && longest) {
        s->is_text = true;
        rcvi_text_drop(left_out);
        rcvi_text_init(left_out, g->r->context);
        return add_feature(g, longest);
    }
    if (s->feature_count > 0) return RCV_OK;
    return rcvi_fail(RCV_FORMAT, "%s has no column for the input beside %s", g->r->path,
                     s->targets ? s->targets[0] : "the target");
}

static rcv_status take_features(guess *g) {
    rcvi_schema *s = &g->r->schema;
    column_seen *found = NULL;
    RCVI_TRY(rcvi_schema_add_names(s, g->r->options->features, "the features", false));
    for (size_t i = 0; i < s->feature_count; i++)
        RCVI_TRY(find_given(g, s->features[i], strlen(s->features[i]), "--features", &found));
    s->is_text = s->feature_count == 1 && found->texts > 0;
    return RCV_OK;
}

/* ---- the sentence ---- */

static void add_names(rcvi_text *text, char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (count > 6 && i == 3) {
            rcvi_text_add(text, ", ..., %.40s", names[count - 1]);
            return;
        }
        rcvi_text_add(text, "%s%.40s", i ? ", " : "", names[i]);
    }
}

static void describe(guess *g, const char *left_out) {
    rcvi_recognised *r = g->r;
    const rcvi_schema *s = &r->schema;
    rcvi_text *t = &r->sentence;
    const bool classes = rcvi_kind_has_classes((rcv_data_kind)r->kind),
               steps = rcvi_kind_has_steps((rcv_data_kind)r->kind);
    rcvi_text_add(t, "a table: ");
    if (s->is_text)
        rcvi_text_add(t, "each row is a text ('%s')", s->features[0]);
    else if (s->is_wide)
        rcvi_text_add(t, "each row is a sequence of up to %zu step%s (", s->feature_count,
                      s->feature_count == 1 ? "" : "s");
    else if (s->sequence)
        rcvi_text_add(t, "rows are the steps of sequences (by '%s') of %zu feature%s (", s->sequence, s->feature_count,
                      s->feature_count == 1 ? "" : "s");
    else
        rcvi_text_add(t, "rows are the steps of one sequence of %zu feature%s (", s->feature_count,
                      s->feature_count == 1 ? "" : "s");
    if (!s->is_text) {
        add_names(t, s->features, s->feature_count);
        rcvi_text_add(t, ")");
    }
    rcvi_text_add(t, "; predicted %s ", s->target_count == 1 ? "is" : "are");
    add_names(t, s->targets, s->target_count);
    rcvi_text_add(t, ", %s%s",
                  classes                ? "a class"
                  : s->target_count == 1 ? "a value"
                                         : "values",
                  steps ? " at every time step" : "");
    if (s->horizon) rcvi_text_add(t, ", %lld steps ahead", (long long)s->horizon);
    if (left_out[0]) rcvi_text_add(t, "; left out, since they are no numbers: %s", left_out);
}

/* ---- all ---- */

static rcv_status copy_name(const guess *g, const column_seen *c, char **to) {
    *to = c ? rcvi_copy_text(g->r->context, c->name, strlen(c->name)) : NULL;
    return c && !*to ? RCV_NO_MEMORY : RCV_OK;
}

static rcv_status fill_schema(guess *g, rcvi_text *left_out) {
    rcvi_schema *s = &g->r->schema;
    RCVI_TRY(find_target(g));
    RCVI_TRY(find_sequence_and_time(g));
    RCVI_TRY(read_sample(g, false));
    const bool rows_are_steps = has_rows_as_steps(g);
    find_kind(g, rows_are_steps);
    s->is_wide = !rows_are_steps;
    RCVI_TRY(copy_name(g, g->sequence, &s->sequence));
    RCVI_TRY(copy_name(g, g->time, &s->time));
    RCVI_TRY(rcvi_is_given(g->r->options->features) ? take_features(g) : find_features(g, left_out));
    if (s->is_text && rows_are_steps)
        return rcvi_fail(RCV_FORMAT, "%s: the column '%.60s' has texts, which cannot be the features of time steps",
                         g->r->path, s->features[0]);
    if (!s->is_wide && !s->sequence && !rcvi_kind_has_steps((rcv_data_kind)g->r->kind))
        return rcvi_fail(RCV_INVALID, "%s: rows are time steps, but no column says of which sequence; give --sequence",
                         g->r->path);
    return RCV_OK;
}

rcv_status rcvi_recognise_table(rcvi_recognised *r) {
    guess g = {.r = r};
    rcvi_text left_out;
    char *names = NULL;
    size_t begin = r->length >= 3 && !memcmp(r->text, "\xef\xbb\xbf", 3) ? 3 : 0;
    r->separator =
        r->format == RCV_FORMAT_TSV ? '\t' : rcvi_csv_separator(r->text + begin, strcspn(r->text + begin, "\n"));
    if (!r->separator) r->separator = ',';
    rcvi_text_init(&left_out, r->context);
    rcvi_text_add(&left_out, "%s", "");
    rcv_status status = read_sample(&g, true);
    if (!status && g.count < 2)
        status = rcvi_fail(RCV_FORMAT,
                           "%s has no two columns; a table has a header with names between commas, semicolons or tabs",
                           r->path);
    if (!status) status = fill_schema(&g, &left_out);
    if (!status) status = rcvi_text_take(&left_out, &names);
    if (!status) describe(&g, names);
    rcvi_text_drop(&left_out);
    rcvi_free(r->context, names);
    for (size_t i = 0; i < g.count; i++) {
        rcvi_values_free(&g.columns[i].values);
        rcvi_free(r->context, g.columns[i].name);
        rcvi_free(r->context, g.columns[i].last);
    }
    rcvi_free(r->context, g.columns);
    return status;
}
