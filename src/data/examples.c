/* Examples with classes or values, one of them or one for every time step: counted, then written. And their reader from lines, which parses every line in both
 * passes. */
#include "data/example.h"

#include <math.h>
#include <string.h>

/* ---- first pass ---- */

#define WRONG(p, format, ...)                                                                                          \
    rcvi_fail(RCV_FORMAT, "%s: %s %lld " format, (p)->import->source.path, (p)->example.unit,                          \
              (long long)(p)->example.line, __VA_ARGS__)

/* All examples must have the kind, features and outputs of the first. */
static rcv_status check_like_first(rcvi_examples *p) {
    const rcvi_example *e = &p->example;
    int64_t features = e->text ? 0 : e->features;
    if (p->sequences == 0) {
        p->features = features;
        p->outputs = e->outputs;
    }
    if ((features == 0) != (p->features == 0))
        return WRONG(p, "is %s, unlike the examples before", e->text ? "a text" : "numbers");
    if (features != p->features)
        return WRONG(p, "has %lld features where the examples before have %lld", (long long)features,
                     (long long)p->features);
    const bool unknown = e->unlabelled || (rcvi_kind_has_steps(e->kind) && (e->outputs == 0 || p->outputs == 0));
    if (p->outputs == 0) p->outputs = e->outputs;
    if (e->outputs != p->outputs && !unknown)
        return WRONG(p, "has %lld values where the examples before have %lld", (long long)e->outputs,
                     (long long)p->outputs);
    return RCV_OK;
}

static rcv_status count_class(rcvi_examples *p, const char *name, size_t length) {
    rcvi_words *classes = &p->import->classes;
    if (!p->import->given_classes) return rcvi_words_count(classes, name, length, 1, NULL);
    if (rcvi_words_find(classes, name, length) >= 0) return RCV_OK;
    return WRONG(p, "has the class '%.60s', which is not one of the %lld given classes", name,
                 (long long)classes->size);
}

/* Visits the names of classes of all time steps; a name that is missing is empty. */
static rcv_status each_name(rcvi_examples *p, rcv_status (*visit)(rcvi_examples *p, const char *name, size_t length)) {
    const rcvi_example *e = &p->example;
    for (size_t at = 0; at < e->names_bytes;) {
        size_t length = strlen(e->names + at);
        RCVI_TRY(visit(p, e->names + at, length));
        at += length + 1;
    }
    return RCV_OK;
}

static rcv_status count_step_class(rcvi_examples *p, const char *name, size_t length) {
    return length ? count_class(p, name, length) : RCV_OK;
}

static rcv_status count_classes(rcvi_examples *p) {
    const rcvi_example *e = &p->example;
    if (!rcvi_kind_has_classes(e->kind) || e->unlabelled) return RCV_OK;
    return rcvi_kind_has_steps(e->kind) ? each_name(p, count_step_class) : count_class(p, e->label, e->label_length);
}

/* ---- both passes ---- */

static rcv_status process_word(void *user, const char *word, size_t length, int64_t offset) {
    rcvi_examples *p = user;
    rcvi_import *import = p->import;
    p->own_steps++;
    if (!p->writes)
        return import->given_vocabulary ? RCV_OK
                                        : rcvi_words_count(&import->counted, word ? word : RCVI_EOS,
                                                           word ? length : strlen(RCVI_EOS), 1, NULL);
    int64_t token;
    RCVI_TRY(rcvi_find_token(import, word, length, offset, &token));
    return rcvi_write_token(import, token);
}

/* Characters or pieces. */
static rcv_status process_tokens(rcvi_examples *p) {
    const rcvi_example *e = &p->example;
    p->texts.import = p->import;
    p->texts.writes = p->writes;
    RCVI_TRY(rcvi_text_reader_read(&p->texts, e->text, e->text_length));
    p->own_steps = p->texts.tokens;
    return p->own_steps > 0 ? RCV_OK : WRONG(p, "has %s", "a text without tokens");
}

/* An empty text is one <eos> at word level, and an error at other levels. */
static rcv_status process_text(rcvi_examples *p) {
    const rcvi_example *e = &p->example;
    p->own_steps = 0;
    if (p->import->level == RCV_LEVEL_WORD && e->text_length == 0) return process_word(p, NULL, 0, 0);
    if (p->import->level == RCV_LEVEL_WORD)
        return rcvi_text_words(e->text, e->text_length, p->import->source.path, process_word, p);
    if (p->import->level != RCV_LEVEL_BYTE) return process_tokens(p);
    p->own_steps = (int64_t)e->text_length;
    if (e->text_length == 0) return WRONG(p, "has %s", "an empty text");
    return p->writes ? rcvi_write_section(p->import, RCVI_TOKENS, e->text, e->text_length) : RCV_OK;
}

static rcv_status write_numbers(rcvi_examples *p) {
    const rcvi_example *e = &p->example;
    return rcvi_write_section(p->import, RCVI_NUMBERS, e->x, (size_t)(e->steps * e->features) * sizeof *e->x);
}

static rcv_status write_class(rcvi_examples *p, const char *name, size_t length) {
    int32_t label = length ? (int32_t)rcvi_words_find(&p->import->classes, name, length) : -1;
    return rcvi_write_section(p->import, RCVI_LABELS, &label, sizeof label);
}

/* Labels that are missing, of `rows` sequences or steps. */
static rcv_status write_missing(rcvi_examples *p, int64_t rows) {
    const float nan = NAN;
    const int32_t none = -1;
    const bool classes = rcvi_kind_has_classes(p->import->kind);
    for (int64_t i = 0; i < rows * (classes ? 1 : p->import->totals.outputs); i++)
        RCVI_TRY(rcvi_write_section(p->import, RCVI_LABELS, classes ? (const void *)&none : &nan, sizeof nan));
    return RCV_OK;
}

static rcv_status write_labels(rcvi_examples *p, int64_t steps) {
    const rcvi_example *e = &p->example;
    const bool stepwise = rcvi_kind_has_steps(e->kind);
    const int64_t rows = stepwise ? steps : 1;
    if (e->unlabelled) return write_missing(p, rows);
    if (rcvi_kind_has_classes(e->kind))
        return stepwise ? each_name(p, write_class) : write_class(p, e->label, e->label_length);
    if (e->outputs == 0) return write_missing(p, rows);
    return rcvi_write_section(p->import, RCVI_LABELS, e->values, (size_t)(rows * e->outputs) * sizeof *e->values);
}

/* A sequence of its own, or the first piece of one. */
static rcv_status add_group(rcvi_examples *p) {
    const rcvi_example *e = &p->example;
    const rcvi_group group = {p->sequences, p->name_bytes};
    if (e->continues) return RCV_OK;
    p->groups++;
    if (p->writes && p->import->totals.groups > 0)
        RCVI_TRY(rcvi_write_section(p->import, RCVI_GROUPS, &group, sizeof group));
    if (!e->name) return RCV_OK;
    p->name_bytes += (int64_t)e->name_length + 1;
    if (!p->writes) return RCV_OK;
    RCVI_TRY(rcvi_write_section(p->import, RCVI_NAMES, e->name, e->name_length));
    return rcvi_write_section(p->import, RCVI_NAMES, "", 1);
}

rcv_status rcvi_examples_add(rcvi_examples *p) {
    const rcvi_example *e = &p->example;
    RCVI_TRY(check_like_first(p));
    if (!p->writes) RCVI_TRY(count_classes(p));
    if (e->text) RCVI_TRY(process_text(p));
    if (p->writes && !e->text) RCVI_TRY(write_numbers(p));
    int64_t steps = e->text ? p->own_steps : e->steps;
    if (p->writes) RCVI_TRY(write_labels(p, steps));
    if (p->writes) RCVI_TRY(rcvi_write_span(p->import, p->steps, steps));
    RCVI_TRY(add_group(p));
    p->steps += steps;
    p->sequences++;
    if (steps > p->longest) p->longest = steps;
    return RCV_OK;
}

void rcvi_examples_begin(rcvi_examples *p, rcvi_import *import, bool writes) {
    const rcvi_schema *schema = &import->schema;
    const bool keys = import->format == RCV_FORMAT_JSON_LINES;
    *p = (rcvi_examples){.import = import,
                         .writes = writes,
                         .example = {.context = import->context,
                                     .path = import->source.path,
                                     .kind = import->kind,
                                     .missing = schema->missing,
                                     .unlabelled = import->unlabelled,
                                     .feature_key = keys && schema->feature_count ? schema->features[0] : NULL,
                                     .target_key = keys && schema->target_count ? schema->targets[0] : NULL,
                                     .unit = "line"}};
}

void rcvi_examples_end(rcvi_examples *p) {
    rcvi_example_free(&p->example);
    rcvi_text_reader_end(&p->texts);
}

/* ---- the reader ---- */

/* Order of classes: numbers first, by value; then texts, by bytes. */
static bool is_class_before(const rcvi_words *words, int64_t a, int64_t b) {
    size_t length;
    double x, y;
    bool x_is = rcvi_read_number(rcvi_words_at(words, a, &length), &x) && isfinite(x);
    bool y_is = rcvi_read_number(rcvi_words_at(words, b, &length), &y) && isfinite(y);
    if (x_is != y_is) return x_is;
    return x_is && x != y ? x < y : rcvi_words_compare(words, a, b) < 0;
}

static rcv_status sort_classes(rcvi_import *import) {
    rcvi_words sorted;
    rcvi_words_init(&sorted, import->context);
    rcv_status status = rcvi_words_sort(&import->classes, is_class_before, &sorted);
    rcvi_words_free(&import->classes);
    import->classes = sorted;
    return status;
}

static rcv_status finish_names(rcvi_import *import, const rcvi_examples *p) {
    if (rcvi_kind_has_classes(import->kind) && !import->given_classes) RCVI_TRY(sort_classes(import));
    if (import->vocabulary || p->features > 0) return RCV_OK;
    RCVI_TRY(rcvi_vocabulary_rank(&import->counted, import->level, &import->vocabulary));
    rcvi_words_free(&import->counted);
    return RCV_OK;
}

static void set_totals(const rcvi_examples *p) {
    rcvi_import *import = p->import;
    rcvi_totals *totals = &import->totals;
    const bool classes = rcvi_kind_has_classes(import->kind), grouped = p->groups < p->sequences || p->name_bytes > 0;
    if (p->features == 0) totals->token_bytes = rcvi_token_bytes(import);
    totals->tokens = p->steps;
    totals->sequences = p->sequences;
    totals->longest = p->longest;
    totals->features = p->features;
    totals->outputs = classes ? import->classes.size : import->unlabelled ? import->schema.outputs : p->outputs;
    totals->groups = grouped ? p->groups : 0;
    totals->left_out = p->left_out;
    int64_t labels = (classes ? 1 : totals->outputs) * (rcvi_kind_has_steps(import->kind) ? p->steps : p->sequences);
    totals->bytes[RCVI_TOKENS] = p->steps * totals->token_bytes;
    totals->bytes[RCVI_NUMBERS] = p->steps * p->features * (int64_t)sizeof(float);
    totals->bytes[RCVI_LABELS] = labels * (int64_t)sizeof(float);
    totals->bytes[RCVI_SPANS] = p->sequences * (int64_t)sizeof(rcvi_span);
    totals->bytes[RCVI_GROUPS] = totals->groups * (int64_t)sizeof(rcvi_group);
    totals->bytes[RCVI_NAMES] = p->name_bytes;
}

rcv_status rcvi_examples_finish(rcvi_examples *p) {
    if (p->writes) return RCV_OK;
    RCVI_TRY(finish_names(p->import, p));
    set_totals(p);
    return RCV_OK;
}

/* ---- the reader of lines ---- */

static bool is_blank(const char *line, size_t length) {
    while (length > 0 && (line[0] == ' ' || (line[0] >= '\t' && line[0] <= '\r'))) {
        line++;
        length--;
    }
    return length == 0;
}

static bool has_target(const rcvi_example *e) {
    return rcvi_kind_has_steps(e->kind) || (rcvi_kind_has_classes(e->kind) ? e->label_length > 0 : e->outputs > 0);
}

static rcv_status process_line(void *user, const char *line, size_t length, int64_t offset) {
    static const char mark[] = "\xef\xbb\xbf"; /* a byte order mark */
    rcvi_examples *p = user;
    p->example.line++;
    if (offset == 0 && length >= 3 && !memcmp(line, mark, 3)) {
        line += 3;
        length -= 3;
    }
    if (is_blank(line, length)) return RCV_OK;
    RCVI_TRY(rcvi_example_parse(&p->example, line, length));
    if (has_target(&p->example) || p->import->unlabelled) return rcvi_examples_add(p);
    p->left_out++;
    return RCV_OK;
}

static rcv_status process_lines(rcvi_import *import, bool writes) {
    rcvi_examples p;
    rcvi_examples_begin(&p, import, writes);
    rcv_status status = rcvi_text_file_lines(&import->source, RCVI_LIMIT_EXAMPLE, process_line, &p);
    if (!status) status = rcvi_examples_finish(&p);
    rcvi_examples_end(&p);
    return status;
}

static rcv_status count_examples(rcvi_import *import) { return process_lines(import, false); }
static rcv_status write_examples(rcvi_import *import) { return process_lines(import, true); }

const rcvi_data_reader rcvi_example_reader = {count_examples, write_examples};
