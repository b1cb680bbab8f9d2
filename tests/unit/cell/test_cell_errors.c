/* Invalid cells: each gives a syntax error with its position, and no memory leaks. */
#include "probe.h"

#include <ctype.h>

typedef struct {
    const char *text;     /* '@' stands before the place that the message must name, and is left out */
    const char *fragment; /* of the message */
} bad_text;

#define CELL(lines) "cell c(x) {\n" lines "}\n"

static const bad_text bad_texts[] = {
    /* names */
    {CELL("    state h\n    gate = sigmoid(W x + b)\n    h' = @gats * h\n    return h'\n"), "'gate'"},
    {CELL("    state h\n    h' = @sigmod(W x + b)\n    return h'\n"), "'sigmoid'"},
    {CELL("    state hidden_state\n    hidden_state' = W x\n    return @hiden_state'\n"), "'hidden_state'"},
    {CELL("    state h\n    h' = W x + U h + @qqqqqqqq\n    return h'\n"), "'qqqqqqqq'"},
    {CELL("    size proj = 3\n    state h[@prj]\n    h' = W x\n    return h'\n"), "'proj'"},
    {CELL("    state h\n    matrix R blocks @heads\n    h' = W x + R h\n    return h'\n"), "'heads'"},
    {CELL("    state h\n    m[@proj] = W x\n    h' = U m\n    return h'\n"), "'proj'"},
    {CELL("    state h\n    h' = W x + @V h\n    return h'\n"),
     "the matrix 'V' is not known; declare it with 'matrix V'"},
    {CELL("    state h\n    matrix attention\n    h' = attention x + @atention h\n    return h'\n"),
     "did you mean 'attention', or declare it with 'matrix atention'?"},
    /* a name that is known is explained, and not proposed for itself */
    {CELL("    state h\n    k = W x\n    h' = @k'\n    return h'\n"), "'k' is no state"},
    {CELL("    state h\n    h' = W x + @x'\n    return h'\n"), "'x' is the input"},
    {CELL("    state h\n    vector v\n    h' = v * W x + @v'\n    return h'\n"), "'v' is a learned vector"},
    {CELL("    state h\n    h' = W x + @W'\n    return h'\n"), "'W' is a matrix"},
    {CELL("    state h\n    h' = W x + @tanh\n    return h'\n"), "'tanh' is a function"},
    {CELL("    state h\n    h' = W x + @mean\n    return h'\n"), "'mean' is a function"},
    {CELL("    size proj = 3\n    state h\n    h' = W x + @proj\n    return h'\n"), "'proj' is a size"},
    {CELL("    size proj = 3\n    state h\n    h' = @proj x\n    return h'\n"), "'proj' is a size"},
    {CELL("    size proj = 3\n    state h\n    h' = W x + @proj[t-1]\n    return h'\n"), "'proj' is a size"},
    {CELL("    state h\n    h' = W x + @q'\n    return h'\n"), "declare it with 'state q'"},
    {CELL("    state h, @h\n    h' = W x\n    return h'\n"), "'h'"},
    {CELL("    state h\n    vector @tanh\n    h' = tanh * W x\n    return h'\n"), "'tanh'"},
    {CELL("    state @return\n    return x\n"), "'return'"},
    {CELL("    state h\n    matrix P as weight, @Q as weight\n    h' = P x + Q h\n    return h'\n"), "'weight'"},
    {CELL("    state h\n    @x = W h\n    h' = W x\n    return h'\n"), "'x'"},
    {CELL("    state h\n    @W = tanh(h)\n    h' = W x\n    return h'\n"), "'W'"},
    /* equations */
    {CELL("    state h, @c\n    h' = W x\n    return h'\n"), "'c' is never updated"},
    {CELL("    state h\n    @h = W x\n    return h\n"), "h'"},
    {CELL("    state h\n    h' = W x\n    @g' = W x\n    return h' + g'\n"), "'g'"},
    {CELL("    state h\n    z = W x\n    h' = z\n    @z = U h\n    return h'\n"), "'z'"},
    {CELL("    state h\n    h' = W x\n    @h' = U h\n    return h'\n"), "h'"},
    {CELL("    state h\n    h' = W x + U h\n    @z = W x\n    return h'\n"), "'z'"},
    {CELL("    state h\n    h' = W x\n@"), "return"},
    {CELL("    state h\n    h' = W x\n    return h'\n    @return h\n"), "return"},
    /* applications and calls */
    {CELL("    state h\n    h' = @tanh(W x, b)\n    return h'\n"), "1 argument"},
    {CELL("    state h\n    h' = @max(W x)\n    return h'\n"), "2 arguments"},
    {CELL("    state h\n    h' = @min(W x, b, h)\n    return h'\n"), "2 arguments"},
    {CELL("    state h\n    h' = @W + b\n    return h'\n"), "'W'"},
    {CELL("    state h\n    h' = @b x\n    return h'\n"), "'b'"},
    {CELL("    state h\n    h' = @h x\n    return h'\n"), "'h'"},
    /* lags and numbers */
    {CELL("    state h\n    h' = W x[t-@65]\n    return h'\n"), "64"},
    {CELL("    state h\n    h' = W x[t-@0]\n    return h'\n"), "lag"},
    {CELL("    state h\n    h' = W x[t-@1.5]\n    return h'\n"), "lag"},
    {CELL("    state h\n    h' = W x[t-@1e300]\n    return h'\n"), "lag"},
    {CELL("    state h\n    h' = W x + @h[t-1]\n    return h'\n"), "'h'"},
    {CELL("    state h\n    h' = W x + @q[t-1]\n    return h'\n"), "'q'"},
    {CELL("    state h\n    h' = W x + @1e999\n    return h'\n"), "1e999"},
    {CELL("    state h\n    h' = W x + @1.2.3\n    return h'\n"), "1.2.3"},
    {CELL("    size p = @0\n    state h[p]\n    h' = W x\n    return h'\n"), "whole number"},
    {CELL("    size p = @1.5\n    state h[p]\n    h' = W x\n    return h'\n"), "whole number"},
    {CELL("    size p = @1e30\n    state h[p]\n    h' = W x\n    return h'\n"), "whole number"},
    {CELL("    size @hidden = 3\n    state h\n    h' = W x\n    return h'\n"), "'hidden'"},
    /* form */
    {"@", NULL},
    {"@sell c(x) { }", "'cell'"},
    {"cell @(x) { }", "name"},
    {"cell c@(x", "')' is expected before the end of the text"},
    {"cell c@(x {\n}\n", "')' is expected before '{' in column 10"},
    {"cell c(x) {\n    state h\n    h' = tanh@(W x", "')' is expected before the end of the text"},
    {"cell c(x) {\n    state h\n    h' =\n@}", NULL},
    {"cell c(x) {\n    state h\n    h' = W x +\n@}", NULL},
    {CELL("    state h\n    h' = (W x) @y = W x\n    return h'\n"), "line"},
    {CELL("    state h\n    h' = @(W x + b\n    return h'\n"), "')' is expected before line 4"},
    {"cell c(x) {\n    state h\n    h' = tanh@(W x +\n}\n", "')' is expected before line 4"},
    {"cell c(x) {\n    state h\n    h' = tanh@(", "')' is expected before the end of the text"},
    {CELL("    state h\n    h' = tanh@(W x + U h\n    return h'\n"), "')' is expected before line 4"},
    {CELL("    state h\n    a = tanh@(W x\n    h' = a\n    return h'\n"), "')' is expected before line 4"},
    {CELL("    state h\n    h' = tanh@(W x + (U h)\n    return h'\n"), "')' is expected before line 4"},
    {CELL("    state h\n    h' = tanh(W x + @(U h\n    return h'\n"), "this '(' is not closed"},
    {CELL("    state h\n    h' = max(W x, sum@(h]\n    return h'\n"), "')' is expected before ']' in column 24"},
    {CELL("    state h\n    h' = tanh(W x\n        + U h)@)\n    return h'\n"), "this ')' has no '('"},
    {CELL("    state h\n    h' = W x @$ b\n    return h'\n"), "'$'"},
    {CELL("    state h\n    h' = W x @\x80 b\n    return h'\n"), "0x80"},
    {CELL("    state h\n    @_h = W x\n    return h'\n"), "letter"},
    {CELL("    state h\n    h' = W x\n    return h'\n") "@more", "end"},
};

/* FILE:LINE:COLUMN: a sentence, then the line itself, then a caret below the column. */
static void check_message(const char *text, size_t length, int line, int column) {
    const char *message = rcv_message();
    char place[64];
    snprintf(place, sizeof place, "t.cell:%d:%d: ", line, column);
    if (strncmp(message, place, strlen(place)) != 0) fail_msg("expected %s, got: %s", place, message);
    const char *shown = strchr(message, '\n');
    assert_non_null(shown);
    assert_true(strncmp(shown, "\n  ", 3) == 0);
    const char *caret = strchr(shown + 1, '\n');
    assert_non_null(caret);
    assert_int_equal(strspn(caret + 1, " "), 2 + column - 1);
    assert_string_equal(caret + 1 + strspn(caret + 1, " "), "^");
    const char *start = text, *end = text + length;
    for (int i = 1; i < line; i++) start = (const char *)memchr(start, '\n', (size_t)(end - start)) + 1;
    for (size_t i = 0; start + i < end && start[i] != '\n'; i++) {
        if (isprint((unsigned char)start[i])) assert_int_equal(start[i], shown[3 + i]);
    }
}

static void test_places(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (size_t i = 0; i < sizeof bad_texts / sizeof *bad_texts; i++) {
        char text[512];
        const char *mark = strchr(bad_texts[i].text, '@');
        assert_non_null(mark);
        size_t before = (size_t)(mark - bad_texts[i].text);
        snprintf(text, sizeof text, "%.*s%s", (int)before, bad_texts[i].text, mark + 1);
        int line = 1, column = 1;
        for (size_t k = 0; k < before; k++) {
            column = text[k] == '\n' ? 1 : column + 1;
            line += text[k] == '\n';
        }
        rcv_cell *cell = (rcv_cell *)&allocator; /* must become NULL */
        size_t live = allocator.live;
        rcv_status status = rcv_cell_parse(context, text, strlen(text), "t.cell", &cell);
        if (status != RCV_SYNTAX) fail_msg("text %zu gave %s:\n%s", i, rcv_status_name(status), text);
        assert_null(cell);
        assert_int_equal(allocator.live, live);
        check_message(text, strlen(text), line, column);
        if (bad_texts[i].fragment && !strstr(rcv_message(), bad_texts[i].fragment)) {
            fail_msg("no \"%s\" in: %s", bad_texts[i].fragment, rcv_message());
        }
    }
    test_context_end(&allocator, context);
}

/* ---- sizes and cycles: the line is checked, the column is not ----------------------------------------- */

static const struct {
    const char *text;
    int line;
    const char *fragments[2];
} bad_lines[] = {
    {CELL("    size p = 3\n    state h[p], c\n    c' = c + h\n    h' = W x\n    return h'\n"), 4, {"p", "hidden"}},
    {CELL("    size p = 3\n    state h[p], c\n    h' = W x\n    c' = h'\n    return c'\n"), 5, {"p", "hidden"}},
    {CELL("    state h\n    h' = x + h\n    return h'\n"), 3, {"input", "hidden"}},
    {CELL("    size p = 3\n    state h\n    m[p] = tanh(h)\n    h' = U m\n    return h'\n"), 4, {"p", "hidden"}},
    {CELL("    size p = 3\n    state h[p], c\n    h' = W x\n    c' = max(c, h)\n    return c'\n"), 5, {"p", "hidden"}},
    {CELL("    state h\n    a = tanh(q)\n    q = r + W x\n    r = U a\n    h' = a\n    return a\n"), 0, {"a", "self"}},
    {CELL("    state h\n    a = a + W x\n    h' = a\n    return h'\n"), 3, {"a", "itself"}},
    {CELL("    state h, c\n    h' = U c'\n    c' = U h'\n    return h'\n"), 0, {"c'", "itself"}},
};

static void test_lines(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (size_t i = 0; i < sizeof bad_lines / sizeof *bad_lines; i++) {
        rcv_cell *cell = NULL;
        const char *text = bad_lines[i].text;
        rcv_status status = rcv_cell_parse(context, text, strlen(text), "t.cell", &cell);
        if (status != RCV_SYNTAX) fail_msg("this gave %s:\n%s", rcv_status_name(status), text);
        int line = 0, column = 0;
        assert_int_equal(sscanf(rcv_message(), "t.cell:%d:%d: ", &line, &column), 2);
        if (bad_lines[i].line) assert_int_equal(line, bad_lines[i].line);
        check_message(text, strlen(text), line, column);
        for (int k = 0; k < 2; k++) {
            if (!strstr(rcv_message(), bad_lines[i].fragments[k])) {
                fail_msg("no \"%s\" in: %s", bad_lines[i].fragments[k], rcv_message());
            }
        }
    }
    /* The message lists the whole cycle. */
    rcv_cell *cell = NULL;
    const char *text = bad_lines[5].text;
    assert_int_equal(rcv_cell_parse(context, text, strlen(text), "t.cell", &cell), RCV_SYNTAX);
    const char *const turns[] = {"a -> q -> r -> a", "q -> r -> a -> q", "r -> a -> q -> r"};
    assert_true(strstr(rcv_message(), turns[0]) || strstr(rcv_message(), turns[1]) || strstr(rcv_message(), turns[2]));
    test_context_end(&allocator, context);
}

/* ---- size of the text -------------------------------------------------------------------------------------------- */

static char *repeated(const char *before, const char *piece, size_t times, const char *after, size_t *length) {
    size_t size = strlen(piece);
    *length = strlen(before) + size * times + strlen(after);
    char *text = malloc(*length + 1);
    assert_non_null(text);
    char *out = text + sprintf(text, "%s", before);
    for (size_t i = 0; i < times; i++, out += size) memcpy(out, piece, size);
    strcpy(out, after);
    return text;
}

static void check_refused(const char *before, const char *piece, size_t times, const char *after,
                          const char *fragment) {
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_cell *cell = NULL;
    size_t length;
    char *text = repeated(before, piece, times, after, &length);
    rcv_status status = rcv_cell_parse(context, text, length, "t.cell", &cell);
    if (status != RCV_SYNTAX) fail_msg("%zu times '%s' gave %s", times, piece, rcv_status_name(status));
    int line = 0, column = 0;
    assert_int_equal(sscanf(rcv_message(), "t.cell:%d:%d: ", &line, &column), 2);
    assert_true(line >= 1 && column >= 1);
    assert_true(strlen(rcv_message()) < 1000);
    if (!strstr(rcv_message(), fragment)) fail_msg("no \"%s\" in: %s", fragment, rcv_message());
    free(text);
    test_context_end(&allocator, context);
}

#define BEFORE "cell c(x) {\n    state h\n    h' = "
#define AFTER "\n    return h'\n}\n"

static void test_large(void **state) {
    (void)state;
    check_refused("", " ", 10 << 20, "", "bytes");
    check_refused("", "# comment\n", 1 << 20, CELL("    return W x\n"), "bytes");
    check_refused("cell ", "a", 10 << 20, "(x) {", "bytes");
    check_refused("cell ", "a", 65, "(x) {", "64");
    check_refused(BEFORE, "(", 10000, "W x", "deep");
    check_refused(BEFORE, "-", 10000, "h" AFTER, "deep");
    check_refused(BEFORE, "tanh(", 10000, "h", "deep");
    check_refused(BEFORE, "max(h, ", 10000, "h", "deep");
    check_refused(BEFORE, "W ", 10000, "x" AFTER, "deep");
    check_refused(BEFORE, "h * (", 10000, "h", "deep");
    check_refused(BEFORE, "1", 100, AFTER, "digits");
    check_refused("cell c(x) {\n    state h\n", "    h' = x\n", 5000, AFTER, "1024");
}

/* Long and deep texts within the limits are accepted or refused, without a crash. */
static void test_long(void **state) {
    (void)state;
    static const char *const pieces[] = {"h + ", "h * ", "W x - ", "max(h, b) + "};
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        for (size_t times = 100; times <= 50000; times *= 500) {
            rcv_cell *cell = NULL;
            size_t length;
            char *text = repeated(BEFORE, pieces[i], times, "h" AFTER, &length);
            rcv_status status = rcv_cell_parse(context, text, length, "t.cell", &cell);
            assert_true(status == RCV_OK || (status == RCV_SYNTAX && times > 100));
            rcv_cell_free(cell);
            free(text);
        }
    }
    test_context_end(&allocator, context);
}

/* A chain of a thousand equations in reverse order: deep dependences in a text without nesting. */
static void test_chain(void **state) {
    (void)state;
    enum { EQUATIONS = 1000 };
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    char *text = malloc(EQUATIONS * 40), *out = text;
    assert_non_null(text);
    out += sprintf(out, "cell c(x) {\n    state h\n    h' = e%d\n", EQUATIONS);
    for (int i = EQUATIONS; i > 0; i--) out += sprintf(out, "    e%d = tanh(e%d)\n", i, i - 1);
    out += sprintf(out, "    e0 = U h + W x\n    return h'\n}\n");
    rcv_cell *cell = NULL;
    check_ok(rcv_cell_parse(context, text, strlen(text), "t.cell", &cell));
    char *description = NULL;
    check_ok(rcv_cell_describe(cell, RCV_DESCRIBE_BACKWARD, &description));
    rcv_text_free(context, description);
    rcv_cell_free(cell);
    free(text);
    test_context_end(&allocator, context);
}

/* Nested functions that use their argument several times: the description grows with the graph, not with the expanded expression. */
static void test_nested(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    char text[2000] = BEFORE;
    for (int i = 0; i < 60; i++) strcat(text, "layernorm(");
    strcat(text, "U h + W x");
    for (int i = 0; i < 60; i++) strcat(text, ")");
    strcat(text, AFTER);
    rcv_cell *cell = NULL;
    check_ok(rcv_cell_parse(context, text, strlen(text), "t.cell", &cell));
    for (unsigned flags = 0; flags < 4; flags++) {
        char *description = NULL;
        check_ok(rcv_cell_describe(cell, flags, &description));
        assert_true(strlen(description) < 1 << 20);
        rcv_text_free(context, description);
    }
    rcv_cell_free(cell);
    test_context_end(&allocator, context);
}

static void test_nul(void **state) {
    (void)state;
    static const char text[] = "cell c(x) {\n    state h\n    h' = W x + \0 b\n    return h'\n}\n";
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_cell *cell = NULL;
    assert_int_equal(rcv_cell_parse(context, text, sizeof text - 1, "t.cell", &cell), RCV_SYNTAX);
    check_message(text, sizeof text - 1, 3, 16);
    static const char commented[] = "# a \0 comment\ncell c(x) {\n    return W x\n}\n";
    rcv_status status = rcv_cell_parse(context, commented, sizeof commented - 1, "t.cell", &cell);
    assert_true(status == RCV_OK || status == RCV_SYNTAX);
    rcv_cell_free(cell);
    test_context_end(&allocator, context);
}

/* ---- random texts ------------------------------------------------------------------------------------------------ */

/* Every text is a cell, or a syntax error with a position; a cell can be described, and its printed text is a cell. True for a cell. */
static bool survives(rcv_context *context, test_allocator *allocator, const char *text, size_t length) {
    size_t live = allocator->live;
    rcv_cell *cell = NULL, *again = NULL;
    rcv_status status = rcv_cell_parse(context, text, length, "t.cell", &cell);
    if (status == RCV_OK) {
        char *printed = NULL, *description = NULL;
        check_ok(rcv_cell_print(cell, &printed));
        check_ok(rcv_cell_parse(context, printed, strlen(printed), "printed.cell", &again));
        check_ok(rcv_cell_describe(cell, RCV_DESCRIBE_BACKWARD | RCV_DESCRIBE_JSON, &description));
        rcv_text_free(context, printed);
        rcv_text_free(context, description);
    } else {
        assert_int_equal(status, RCV_SYNTAX);
        assert_null(cell);
        int line = 0, column = 0;
        assert_int_equal(sscanf(rcv_message(), "t.cell:%d:%d: ", &line, &column), 2);
    }
    rcv_cell_free(again);
    rcv_cell_free(cell);
    assert_int_equal(allocator->live, live);
    return status == RCV_OK;
}

static void test_random_bytes(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    random_source source = {71};
    for (int i = 0; i < 2000; i++) {
        char text[400];
        size_t length = (size_t)random_below(&source, sizeof text);
        for (size_t k = 0; k < length; k++) text[k] = (char)random_below(&source, 256);
        if (i % 2) { /* get past the first words */
            static const char head[] = "cell c(x) {\n";
            memcpy(text, head, sizeof head - 1);
            if (length < sizeof head - 1) length = sizeof head - 1;
        }
        survives(context, &allocator, text, length);
    }
    test_context_end(&allocator, context);
}

static void test_random_words(void **state) {
    (void)state;
    static const char *const words[] = {
        "state", "h",    "c", "'",      "=",      "W",  "x",      "U",   "+", "-",         "*",       "/", "(",
        ")",     "tanh", "b", "return", "\n",     "\n", "1",      "0.5", ",", "max",       "sum",     "[", "t",
        "]",     "size", "p", "matrix", "vector", "as", "blocks", "{",   "}", "layernorm", "shortcut"};
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    random_source source = {72};
    for (int i = 0; i < 4000; i++) {
        char text[600] = "cell c(x) {\n    state h\n    h' = W x + ";
        for (int k = random_below(&source, 40); k > 0; k--) {
            strcat(text, words[random_below(&source, sizeof words / sizeof *words)]);
            strcat(text, " ");
        }
        if (i % 2) strcat(text, "\n    return h'\n}\n");
        survives(context, &allocator, text, strlen(text));
    }
    test_context_end(&allocator, context);
}

/* Deletes, doubles, swaps or changes a few bytes. */
static size_t mutate(random_source *source, char *text, size_t length) {
    static const char signs[] = "xhcWUb'=+-*/()[]{},.0123456789 \n#teas_";
    for (int count = 1 + random_below(source, 3); count > 0 && length > 1; count--) {
        size_t at = (size_t)random_below(source, (int)length);
        int kind = random_below(source, 4);
        if (kind == 0) {
            memmove(text + at, text + at + 1, --length - at);
        } else if (kind == 1) {
            memmove(text + at + 1, text + at, length++ - at);
        } else if (kind == 2) {
            text[at] = signs[random_below(source, sizeof signs - 1)];
        } else {
            text[at] = (char)random_below(source, 256);
        }
    }
    return length;
}

static void test_mutations(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    random_source source = {73};
    int cells = 0;
    for (int i = 0; i < 2000; i++) {
        rcv_cell *cell = NULL;
        check_ok(rcv_cell_open(context, rcv_builtin_name((size_t)i % rcv_builtin_count()), &cell));
        size_t length = strlen(rcv_cell_source(cell));
        char *text = malloc(length + 10);
        assert_non_null(text);
        memcpy(text, rcv_cell_source(cell), length);
        length = mutate(&source, text, length);
        cells += survives(context, &allocator, text, length);
        free(text);
        rcv_cell_free(cell);
    }
    assert_true(cells > 100 && cells < 1900); /* both valid and invalid texts occurred */
    test_context_end(&allocator, context);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void test_open(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_cell *cell = (rcv_cell *)&allocator;
    check_fails(rcv_cell_open(context, "lstn", &cell), RCV_INVALID, "lstm");
    assert_null(cell);
    check_fails(rcv_cell_open(context, "no/such.cell", &cell), RCV_IO, "no/such.cell");
    check_fails(rcv_cell_open(context, "/", &cell), RCV_IO, "/");
    check_fails(rcv_cell_open(context, NULL, &cell), RCV_INVALID, "");
    check_fails(rcv_cell_parse(context, NULL, 5, "t.cell", &cell), RCV_INVALID, "");
    assert_null(rcv_builtin_name(rcv_builtin_count()));
    for (size_t i = 0; i < rcv_builtin_count(); i++) {
        check_ok(rcv_cell_open(context, rcv_builtin_name(i), &cell));
        assert_string_equal(rcv_cell_name(cell), rcv_builtin_name(i));
        assert_true(strlen(rcv_builtin_summary(i)) > 10);
        if (i > 0) assert_true(strcmp(rcv_builtin_name(i - 1), rcv_builtin_name(i)) < 0);
        rcv_cell_free(cell);
    }
    rcv_cell_free(NULL);
    test_context_end(&allocator, context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),       cmocka_unit_test(test_lines),        cmocka_unit_test(test_large),
        cmocka_unit_test(test_long),         cmocka_unit_test(test_chain),        cmocka_unit_test(test_nul),
        cmocka_unit_test(test_random_bytes), cmocka_unit_test(test_random_words), cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_nested),       cmocka_unit_test(test_open)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
