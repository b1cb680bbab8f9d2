/* The reader of examples with classes or values, one of them or one for every time step. Both passes parse every line; the first counts, the second writes. */
#include "data/example.h"

#include <math.h>
#include <string.h>

typedef struct {
    rcvi_import *import;
    bool writes;
    rcvi_example example;
    int64_t steps, sequences, longest; /* of all examples so far */
    int64_t features, outputs;         /* of the first one */
    int64_t own_steps;                 /* of the current text */
} progress;

/* ---- first pass ---- */

#define WRONG(p, format, ...)                                                                                          \
    rcvi_fail(RCV_FORMAT, "%s: line %lld " format, (p)->import->source.path, (long long)(p)->example.line, __VA_ARGS__)

/* All examples must have the kind, features and outputs of the first. */
static rcv_status check_like_first(progress *p) {
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
    const bool unknown = rcvi_kind_has_steps(e->kind) && (e->outputs == 0 || p->outputs == 0);
    if (p->outputs == 0) p->outputs = e->outputs;
    if (e->outputs != p->outputs && !unknown)
        return WRONG(p, "has %lld values where the examples before have %lld", (long long)e->outputs,
                     (long long)p->outputs);
    return RCV_OK;
}

static rcv_status count_class(progress *p, const char *name, size_t length) {
    rcvi_words *classes = &p->import->classes;
    if (!p->import->given_classes) return rcvi_words_count(classes, name, length, 1, NULL);
    if (rcvi_words_find(classes, name, length) >= 0) return RCV_OK;
    return WRONG(p, "has the class '%.60s', which is not one of the %lld given classes", name,
                 (long long)classes->size);
}

/* Visits the names of classes of all time steps; a name that is missing is empty. */
static rcv_status each_name(progress *p, rcv_status (*visit)(progress *p, const char *name, size_t length)) {
    const rcvi_example *e = &p->example;
    for (size_t at = 0; at < e->names_bytes;) {
        size_t length = strlen(e->names + at);
        RCVI_TRY(visit(p, e->names + at, length));
        at += length + 1;
    }
    return RCV_OK;
}

static rcv_status count_step_class(progress *p, const char *name, size_t length) {
    return length ? count_class(p, name, length) : RCV_OK;
}

static rcv_status count_classes(progress *p) {
    const rcvi_example *e = &p->example;
    if (!rcvi_kind_has_classes(e->kind)) return RCV_OK;
    return rcvi_kind_has_steps(e->kind) ? each_name(p, count_step_class) : count_class(p, e->label, e->label_length);
}

/* ---- both passes ---- */

static rcv_status process_word(void *user, const char *word, size_t length, int64_t offset) {
    progress *p = user;
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

/* An empty text is one <eos> at word level, and an error at byte level. */
static rcv_status process_text(progress *p) {
    const rcvi_example *e = &p->example;
    p->own_steps = 0;
    if (p->import->level == RCV_LEVEL_WORD && e->text_length == 0) return process_word(p, NULL, 0, 0);
    if (p->import->level == RCV_LEVEL_WORD)
        return rcvi_text_words(e->text, e->text_length, p->import->source.path, process_word, p);
    p->own_steps = (int64_t)e->text_length;
    if (e->text_length == 0) return WRONG(p, "has %s", "an empty text");
    return p->writes ? rcvi_write_section(p->import, RCVI_TOKENS, e->text, e->text_length) : RCV_OK;
}

static rcv_status write_numbers(progress *p) {
    const rcvi_example *e = &p->example;
    return rcvi_write_section(p->import, RCVI_NUMBERS, e->x, (size_t)(e->steps * e->features) * sizeof *e->x);
}

static rcv_status write_class(progress *p, const char *name, size_t length) {
    int32_t label = length ? (int32_t)rcvi_words_find(&p->import->classes, name, length) : -1;
    return rcvi_write_section(p->import, RCVI_LABELS, &label, sizeof label);
}

/* The values of an example; of one whose steps have none NaN. */
static rcv_status write_values(progress *p) {
    const rcvi_example *e = &p->example;
    const float nan = NAN;
    const int64_t rows = rcvi_kind_has_steps(e->kind) ? e->steps : 1;
    if (e->outputs)
        return rcvi_write_section(p->import, RCVI_LABELS, e->values, (size_t)(rows * e->outputs) * sizeof *e->values);
    for (int64_t i = 0; i < rows * p->import->totals.outputs; i++)
        RCVI_TRY(rcvi_write_section(p->import, RCVI_LABELS, &nan, sizeof nan));
    return RCV_OK;
}

static rcv_status write_labels(progress *p) {
    const rcvi_example *e = &p->example;
    if (rcvi_kind_has_values(e->kind)) return write_values(p);
    return rcvi_kind_has_steps(e->kind) ? each_name(p, write_class) : write_class(p, e->label, e->label_length);
}

static bool is_blank(const char *line, size_t length) {
    while (length > 0 && (line[0] == ' ' || (line[0] >= '\t' && line[0] <= '\r'))) {
        line++;
        length--;
    }
    return length == 0;
}

static rcv_status process_line(void *user, const char *line, size_t length, int64_t offset) {
    progress *p = user;
    rcvi_example *e = &p->example;
    (void)offset;
    e->line++;
    if (is_blank(line, length)) return RCV_OK;
    RCVI_TRY(rcvi_example_parse(e, line, length));
    RCVI_TRY(check_like_first(p));
    if (!p->writes) RCVI_TRY(count_classes(p));
    if (e->text) RCVI_TRY(process_text(p));
    if (p->writes && !e->text) RCVI_TRY(write_numbers(p));
    int64_t steps = e->text ? p->own_steps : e->steps;
    if (p->writes) RCVI_TRY(write_labels(p));
    if (p->writes) RCVI_TRY(rcvi_write_span(p->import, p->steps, steps));
    p->steps += steps;
    p->sequences++;
    if (steps > p->longest) p->longest = steps;
    return RCV_OK;
}

static rcv_status process_lines(rcvi_import *import, progress *p) {
    p->import = import;
    p->example = (rcvi_example){
        .context = import->context, .path = import->source.path, .kind = import->kind, .missing = import->missing};
    rcv_status status = rcvi_text_file_lines(&import->source, RCVI_LIMIT_EXAMPLE, process_line, p);
    rcvi_example_free(&p->example);
    return status;
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

static rcv_status finish_names(rcvi_import *import, const progress *p) {
    if (rcvi_kind_has_classes(import->kind) && !import->given_classes) RCVI_TRY(sort_classes(import));
    if (import->vocabulary || p->features > 0) return RCV_OK;
    RCVI_TRY(rcvi_vocabulary_rank(&import->counted, &import->vocabulary));
    rcvi_words_free(&import->counted);
    return RCV_OK;
}

static rcv_status count_examples(rcvi_import *import) {
    progress p = {0};
    RCVI_TRY(process_lines(import, &p));
    RCVI_TRY(finish_names(import, &p));
    rcvi_totals *totals = &import->totals;
    if (p.features == 0) totals->token_bytes = rcvi_token_bytes(import);
    totals->tokens = p.steps;
    totals->sequences = p.sequences;
    totals->longest = p.longest;
    totals->features = p.features;
    const bool classes = rcvi_kind_has_classes(import->kind);
    totals->outputs = classes ? import->classes.size : p.outputs;
    int64_t labels = (classes ? 1 : p.outputs) * (rcvi_kind_has_steps(import->kind) ? p.steps : p.sequences);
    totals->bytes[RCVI_TOKENS] = p.steps * totals->token_bytes;
    totals->bytes[RCVI_NUMBERS] = p.steps * p.features * (int64_t)sizeof(float);
    totals->bytes[RCVI_LABELS] = labels * (int64_t)sizeof(float);
    totals->bytes[RCVI_SPANS] = p.sequences * (int64_t)sizeof(rcvi_span);
    return RCV_OK;
}

static rcv_status write_examples(rcvi_import *import) {
    progress p = {.writes = true};
    return process_lines(import, &p);
}

const rcvi_data_reader rcvi_example_reader = {count_examples, write_examples};
