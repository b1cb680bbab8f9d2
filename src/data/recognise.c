/* Recognition of formats, and of the content of files that are no tables: see recognise.h. */
#include "data/recognise.h"

#include "base/json.h"
#include "data/table/arrays.h"
#include "data/table/csv.h"

#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { SAMPLE = 1 << 20 };

/* ---- the beginning of a file ---- */

rcv_status rcvi_recognise_begin(rcv_context *context, int file, int64_t bytes, const char *path,
                                const rcv_data_options *options, int kind, rcvi_recognised *r) {
    *r = (rcvi_recognised){.context = context,
                           .path = path,
                           .file = file,
                           .bytes = bytes,
                           .options = options,
                           .format = options->format,
                           .kind = kind};
    rcvi_schema_init(&r->schema, context);
    rcvi_text_init(&r->sentence, context);
    r->length = bytes < SAMPLE ? (size_t)bytes : SAMPLE;
    r->text = rcvi_new(context, r->length + 1, 1);
    if (!r->text) return RCV_NO_MEMORY;
    RCVI_TRY(rcvi_read_at(file, path, 0, r->text, r->length));
    if (r->length == (size_t)bytes) return RCV_OK;
    size_t end = r->length;
    while (end > 0 && r->text[end - 1] != '\n') end--;
    if (end > 0) r->text[r->length = end] = '\0';
    return RCV_OK;
}

void rcvi_recognise_end(rcvi_recognised *r) {
    if (!r->context) return;
    rcvi_free(r->context, r->text);
    rcvi_schema_free(&r->schema);
    rcvi_text_drop(&r->sentence);
    *r = (rcvi_recognised){0};
}

/* ---- format ---- */

static bool begins(const rcvi_recognised *r, const char *with, size_t length) {
    return r->length >= length && memcmp(r->text, with, length) == 0;
}

static bool has_ending(const rcvi_recognised *r, const char *ending) {
    const size_t length = strlen(r->path), part = strlen(ending);
    return length > part && strcasecmp(r->path + length - part, ending) == 0;
}

static char first_character(const rcvi_recognised *r) {
    size_t at = begins(r, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (at < r->length && strchr(" \t\r\n", r->text[at])) at++;
    return at < r->length ? r->text[at] : '\0';
}

/* What only a table has. */
static bool wants_table(const rcv_data_options *o) { return rcvi_names_columns(o) || o->horizon > 0; }

/* A first line of at least three numbers between white space or commas. */
static bool is_numbers(const rcvi_recognised *r) {
    size_t at = 0, numbers = 0;
    const size_t end = strcspn(r->text, "\n");
    while (at < end) {
        const size_t length = strcspn(r->text + at, " \t\r\n,");
        double number;
        if (length > 0 && rcvi_field_read((rcvi_field){r->text + at, length}, false, &number) != RCVI_FIELD_NUMBER)
            return false;
        numbers += length > 0;
        at += length + 1;
    }
    return numbers >= 3;
}

/* A safetensors file begins with the length of its header, an object. */
static bool is_safetensors(const rcvi_recognised *r) {
    uint64_t header = 0;
    if (r->length < 9 || r->text[8] != '{') return false;
    memcpy(&header, r->text, sizeof header);
    return header >= 2 && header <= (uint64_t)r->bytes - 8;
}

/* Files that are no data as they are: what they are, and what to do. */
static rcv_status refuse_others(const rcvi_recognised *r) {
    static const struct {
        const char *begin;
        size_t length;
        const char *what;
    } others[] = {
        {"PAR1", 4,
         "is a Parquet file; convert it, such as by pandas.read_parquet(path).to_csv('data.csv', index=False)"},
        {"ARROW1", 6,
         "is an Arrow file; convert it, such as by pandas.read_feather(path).to_csv('data.csv', index=False)"},
        {"\x1f\x8b", 2, "is compressed by gzip; uncompress it with gunzip"},
        {"BZh", 3, "is compressed by bzip2; uncompress it with bunzip2"},
        {"\xfd"
         "7zXZ",
         5, "is compressed by xz; uncompress it with unxz"},
        {"\x28\xb5\x2f\xfd", 4, "is compressed by zstd; uncompress it with unzstd"},
        {"\x89HDF", 4, "is an HDF5 file; write its arrays x and y with numpy.savez"},
        {"\xff\xfe", 2, "is a text in UTF-16; store it in UTF-8"},
        {"\xfe\xff", 2, "is a text in UTF-16; store it in UTF-8"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (begins(r, others[i].begin, others[i].length))
            return rcvi_fail(RCV_FORMAT, "%s %s; to train on its bytes use --format text", r->path, others[i].what);
    if (begins(r, "PK\3\4", 4) && !has_ending(r, ".npz"))
        return rcvi_fail(RCV_FORMAT,
                         "%s is a ZIP archive, such as a spreadsheet; save the data as CSV; to train on its bytes use "
                         "--format text",
                         r->path);
    return RCV_OK;
}

static bool is_json_object(const rcvi_recognised *r) {
    const size_t mark = begins(r, "\xef\xbb\xbf", 3) ? 3 : 0, length = strcspn(r->text + mark, "\n");
    json_t *value = rcvi_json_read(r->text + mark, length, 0, NULL);
    const bool good = json_is_object(value);
    json_decref(value);
    return good;
}

/* JSON that is no object a line. */
static rcv_status refuse_document(const rcvi_recognised *r) {
    return rcvi_fail(RCV_FORMAT,
                     "%s is JSON, but not an object on each line; write one with jq -c '.[]', or train on it as a text "
                     "with --format text",
                     r->path);
}

rcv_status rcvi_recognise_format(rcvi_recognised *r) {
    const rcv_data_options *o = r->options;
    const char first = first_character(r);
    if (r->format != RCV_FORMAT_AUTO) return RCV_OK;
    const bool text_kind = r->kind == RCV_DATA_STREAM || r->kind == RCV_DATA_LINES;
    r->format = RCV_FORMAT_TEXT;
    if (text_kind && !wants_table(o)) return RCV_OK;
    if (begins(r, "\x93NUMPY", 6)) r->format = RCV_FORMAT_NPY;
    if (begins(r, "PK\3\4", 4) && has_ending(r, ".npz")) r->format = RCV_FORMAT_NPZ;
    if (is_safetensors(r)) r->format = RCV_FORMAT_SAFETENSORS;
    if (r->format != RCV_FORMAT_TEXT) return RCV_OK;
    RCVI_TRY(refuse_others(r));
    const bool json_name = has_ending(r, ".json") || has_ending(r, ".jsonl") || has_ending(r, ".ndjson");
    if (first == '{' || json_name) {
        /* With a kind that is known the reader says which line is wrong. */
        if (r->kind < 0 && !is_json_object(r)) return json_name ? refuse_document(r) : RCV_OK;
        r->format = RCV_FORMAT_JSON_LINES;
        return RCV_OK;
    }
    const bool tabs = has_ending(r, ".tsv") || has_ending(r, ".tab");
    if (is_numbers(r) && !wants_table(o))
        r->format = RCV_FORMAT_NUMBERS;
    else if (has_ending(r, ".csv") || tabs || wants_table(o))
        r->format = tabs ? RCV_FORMAT_TSV : RCV_FORMAT_CSV;
    else if (r->kind >= 0 && !text_kind)
        r->format = RCV_FORMAT_NUMBERS; /* as lines of examples always were */
    return RCV_OK;
}

/* ---- values ---- */

rcv_status rcvi_values_see(rcvi_values_seen *seen, const char *bytes, size_t length) {
    double number;
    const rcvi_field field = rcvi_field_trim((rcvi_field){bytes, length});
    const rcvi_field_kind kind = rcvi_field_read(field, seen->comma, &number);
    if (kind == RCVI_FIELD_MISSING || seen->count > RCVI_MOST_CLASSES) return RCV_OK;
    seen->text |= kind == RCVI_FIELD_TEXT;
    seen->fraction |= kind == RCVI_FIELD_NUMBER && floor(number) != number;
    for (size_t i = 0; i < seen->count; i++)
        if (strlen(seen->names[i]) == field.length && !memcmp(seen->names[i], field.bytes, field.length)) return RCV_OK;
    char *name = rcvi_copy_text(seen->context, field.bytes, field.length);
    if (!name) return RCV_NO_MEMORY;
    seen->names[seen->count++] = name;
    return RCV_OK;
}

bool rcvi_values_are_classes(const rcvi_values_seen *seen) {
    return seen->text || (!seen->fraction && seen->count <= RCVI_MOST_CLASSES);
}

void rcvi_values_free(rcvi_values_seen *seen) {
    for (size_t i = 0; i < seen->count; i++) rcvi_free(seen->context, seen->names[i]);
    seen->count = 0;
}

/* ---- lines of numbers ---- */

rcv_status rcvi_recognise_numbers(rcvi_recognised *r) {
    rcvi_values_seen seen = {.context = r->context};
    rcv_status status = RCV_OK;
    for (const char *line = r->text; *line && !status;) {
        line += strspn(line, " \t\r\n,");
        status = rcvi_values_see(&seen, line, strcspn(line, " \t\r\n,"));
        line += strcspn(line, "\n");
    }
    if (r->kind < 0) r->kind = (int)rcvi_kind_of(rcvi_values_are_classes(&seen), false);
    rcvi_values_free(&seen);
    rcvi_text_add(&r->sentence, "lines of numbers: first the %s, then the time steps of one feature",
                  r->kind == RCV_DATA_CLASSES ? "class" : "value");
    return status;
}

/* ---- JSON lines ---- */

static const char *find_key(const json_t *object, const char *given, const char *usual, const char *other) {
    if (rcvi_is_given(given)) return given;
    if (json_object_get(object, usual)) return usual;
    return other && json_object_get(object, other) ? other : NULL;
}

static rcv_status list_keys(const rcvi_recognised *r, json_t *object, const char *what, const char *option) {
    char names[400] = "";
    const char *key;
    json_t *value;
    size_t used = 0;
    json_object_foreach(object, key, value) {
        if (used < sizeof names - 60)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%.40s", used ? ", " : "", key);
    }
    return rcvi_fail(RCV_FORMAT, "%s: the first object has no %s; its keys are %s: give one with %s", r->path, what,
                     names, option);
}

/* The kind by targets of the first lines. */
static rcv_status see_targets(rcvi_recognised *r, const char *target, rcvi_values_seen *seen, bool *lists) {
    for (const char *line = r->text; *line;) {
        const size_t length = strcspn(line, "\n");
        json_t *object = rcvi_json_read(line, length, 0, NULL), *y = json_object_get(object, target);
        rcv_status status = RCV_OK;
        *lists |= json_is_array(y);
        for (size_t i = 0; i < (json_is_array(y) ? json_array_size(y) : 1) && !status; i++) {
            const json_t *one = json_is_array(y) ? json_array_get(y, i) : y;
            if (json_is_string(one) && !status)
                status = rcvi_values_see(seen, json_string_value(one), json_string_length(one));
            if (json_is_string(one)) seen->text = true;
            if (!json_is_number(one)) continue;
            char digits[64];
            const double number = json_number_value(one);
            seen->fraction |= json_is_real(one) && floor(number) != number;
            const int count = snprintf(digits, sizeof digits, "%.0f", number);
            if (!seen->fraction) status = rcvi_values_see(seen, digits, (size_t)count);
        }
        json_decref(object);
        RCVI_TRY(status);
        line += length + (line[length] == '\n');
    }
    return RCV_OK;
}

/* Keys that are not the usual ones are names of the schema. */
static rcv_status keep_key(rcvi_recognised *r, const char *given, bool is_target) {
    return given && *given ? rcvi_schema_add(&r->schema, given, strlen(given), is_target) : RCV_OK;
}

static rcv_status read_keys(rcvi_recognised *r, json_t *first) {
    const rcv_data_options *o = r->options;
    const char *feature = find_key(first, o->features, "x", "text"), *target = find_key(first, o->target, "y", NULL);
    if (!feature || !json_object_get(first, feature)) return list_keys(r, first, "x or text", "--features");
    if ((!target || !json_object_get(first, target)) && !o->unlabelled) return list_keys(r, first, "y", "--target");
    r->schema.is_text = json_is_string(json_object_get(first, feature));
    RCVI_TRY(keep_key(r, o->features, false));
    RCVI_TRY(keep_key(r, o->target, true));
    if (!target) return RCV_OK;
    rcvi_values_seen seen = {.context = r->context};
    bool lists = false;
    rcv_status status = see_targets(r, target, &seen, &lists);
    const json_t *x = json_object_get(first, feature), *y = json_object_get(first, target);
    const bool steps = lists && json_is_array(x) && json_array_size(x) == json_array_size(y);
    if (r->kind < 0) r->kind = (int)rcvi_kind_of(rcvi_values_are_classes(&seen) && (!lists || steps), steps);
    rcvi_values_free(&seen);
    rcvi_text_add(&r->sentence, "JSON lines: '%s' is %s, '%s' is predicted, %s", feature,
                  r->schema.is_text ? "a text" : "a sequence", target,
                  rcvi_kind_has_classes((rcv_data_kind)r->kind) ? "a class" : "a value");
    if (rcvi_kind_has_steps((rcv_data_kind)r->kind)) rcvi_text_add(&r->sentence, " at every time step");
    return status;
}

rcv_status rcvi_recognise_json(rcvi_recognised *r) {
    const size_t mark = begins(r, "\xef\xbb\xbf", 3) ? 3 : 0;
    json_t *first = rcvi_json_read(r->text + mark, strcspn(r->text + mark, "\n"), 0, NULL);
    rcv_status status = json_is_object(first) ? read_keys(r, first) : refuse_document(r);
    json_decref(first);
    return status;
}

/* ---- arrays ---- */

/* `y`: NULL where x itself is predicted. */
static void describe_arrays(rcvi_recognised *r, const rcvi_array *x, const rcvi_array *y) {
    const bool horizon = r->options->horizon > 0;
    const bool steps = horizon || (y && (y->dims == 3 || (y->dims == 2 && x->dims > 1 && y->shape[1] == x->shape[1])));
    const bool classes =
        y && (y->type == RCVI_ARRAY_TEXT || y->type == RCVI_ARRAY_SIGNED || y->type == RCVI_ARRAY_UNSIGNED);
    const char *content = x->dims == 3 ? "sequences of several features" : horizon ? "one series" : "sequences";
    if (r->kind < 0) r->kind = (int)rcvi_kind_of(classes, steps);
    rcvi_text_add(&r->sentence, "arrays: x is %s, ", content);
    if (!y) {
        rcvi_text_add(&r->sentence, "its values are predicted");
        return;
    }
    rcvi_text_add(&r->sentence, "y is predicted, a %s%s",
                  rcvi_kind_has_classes((rcv_data_kind)r->kind) ? "class" : "value",
                  rcvi_kind_has_steps((rcv_data_kind)r->kind) ? " at every time step" : "");
}

rcv_status rcvi_recognise_arrays(rcvi_recognised *r) {
    rcvi_arrays arrays;
    RCVI_TRY(rcvi_arrays_open(r->context, r->file, r->bytes, r->path, r->format, &arrays));
    const rcvi_array *x = rcvi_arrays_find(&arrays, "x"), *y = rcvi_arrays_find(&arrays, "y");
    rcv_status status = RCV_OK;
    if (!x)
        status = rcvi_fail(RCV_FORMAT, "%s has no array x; data are arrays x, y and lengths", r->path);
    else if (!y && !r->options->horizon && !r->options->unlabelled)
        status = rcvi_fail(
            RCV_FORMAT, "%s has no array y with what is predicted; a forecast of x itself needs --horizon N", r->path);
    else
        describe_arrays(r, x, y);
    rcvi_arrays_close(&arrays);
    return status;
}

/* ---- all ---- */

static rcv_status recognise_text(rcvi_recognised *r) {
    if (r->kind < 0) r->kind = RCV_DATA_STREAM;
    if (r->kind > RCV_DATA_LINES)
        return rcvi_fail(RCV_INVALID, "%s: a text (--format text) is of the kind stream or lines", r->path);
    rcvi_text_add(&r->sentence, "%s", r->kind == RCV_DATA_STREAM ? "one text" : "a text, each line a sequence");
    return RCV_OK;
}

rcv_status rcvi_recognise_content(rcvi_recognised *r) {
    rcv_status (*const readers[])(rcvi_recognised *) = {[RCV_FORMAT_AUTO] = recognise_text,
                                                        [RCV_FORMAT_TEXT] = recognise_text,
                                                        [RCV_FORMAT_CSV] = rcvi_recognise_table,
                                                        [RCV_FORMAT_TSV] = rcvi_recognise_table,
                                                        [RCV_FORMAT_JSON_LINES] = rcvi_recognise_json,
                                                        [RCV_FORMAT_NUMBERS] = rcvi_recognise_numbers,
                                                        [RCV_FORMAT_NPY] = rcvi_recognise_arrays,
                                                        [RCV_FORMAT_NPZ] = rcvi_recognise_arrays,
                                                        [RCV_FORMAT_SAFETENSORS] = rcvi_recognise_arrays};
    const rcv_data_options *o = r->options;
    r->schema.horizon = o->horizon;
    r->schema.piece = o->piece;
    r->schema.missing = o->missing;
    if (r->format > RCV_FORMAT_TEXT && r->kind >= 0 && rcvi_kind_is_text((rcv_data_kind)r->kind))
        return rcvi_fail(RCV_INVALID, "%s is read as a table or arrays, which are not of the kind stream or lines",
                         r->path);
    if (o->horizon > 0 && (r->format == RCV_FORMAT_JSON_LINES || r->format == RCV_FORMAT_NUMBERS))
        return rcvi_fail(RCV_INVALID, "%s: a horizon is for tables and arrays", r->path);
    if (o->horizon > 0 && r->kind >= 0 && !rcvi_kind_has_steps((rcv_data_kind)r->kind))
        return rcvi_fail(RCV_INVALID,
                         "a horizon is for the kinds step-values and step-classes: a forecast at every time step");
    RCVI_TRY(readers[r->format](r));
    return r->sentence.failed ? rcvi_no_memory(r->sentence.length) : RCV_OK;
}

rcv_status rcv_data_recognise(rcv_context *context, const char *path, const rcv_data_options *options, rcv_guess *guess,
                              char **sentence) {
    if (sentence) *sentence = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(path, "path");
    RCVI_NEED(guess, "guess");
    RCVI_READ(rcv_data_options, options, "options");
    RCVI_TRY(rcvi_struct_check(__func__, "guess", "rcv_guess", guess));
    int file;
    int64_t bytes;
    rcvi_recognised r = {0};
    RCVI_TRY(rcvi_open_regular(path, &file, &bytes));
    rcv_status status = rcvi_recognise_begin(context, file, bytes, path, options, RCVI_KIND_OPEN, &r);
    if (!status) status = rcvi_recognise_format(&r);
    if (!status) status = rcvi_recognise_content(&r);
    const rcv_guess found = {.size = sizeof found,
                             .format = r.format,
                             .kind = (rcv_data_kind)(r.kind < 0 ? 0 : r.kind),
                             .level = RCV_LEVEL_BYTE};
    if (!status && sentence) status = rcvi_text_take(&r.sentence, sentence);
    if (!status) rcvi_struct_write(guess, &found, sizeof found);
    rcvi_recognise_end(&r);
    close(file);
    return status;
}
