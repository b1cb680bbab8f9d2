/* Tables, arrays and parts: what is read from files of every format, what is recognised, and what is refused with which sentence. */
#define _XOPEN_SOURCE 700

#include "test.h"

#include "data/internal.h"
#include "scratch.h"

#include <math.h>
#include <unistd.h>

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    char path[512], cache[560];
} fixture;

static void name_file(fixture *f, const char *name) {
    snprintf(f->path, sizeof f->path, "%s", path_in(name));
    snprintf(f->cache, sizeof f->cache, "%s.recurve-tokens", f->path);
}

static void open_fixture(fixture *f) {
    f->context = test_context(&f->allocator);
    name_file(f, "data.csv");
}

static void remove_files(const fixture *f) {
    unlink(f->path);
    unlink(f->cache);
}

static void close_fixture(fixture *f) {
    remove_files(f);
    test_context_end(&f->allocator, f->context);
    assert_int_equal(entries(scratch()), 0); /* no temporary file remains */
}

static void write_file(const fixture *f, const void *bytes, size_t length) {
    FILE *file = fopen(f->path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static void write_text(const fixture *f, const char *text) { write_file(f, text, strlen(text)); }

/* ---- data as text ---- */

typedef struct {
    char text[4096];
    size_t used;
} output;

static void put(output *out, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    out->used += (size_t)vsnprintf(out->text + out->used, sizeof out->text - out->used, format, arguments);
    va_end(arguments);
    assert_true(out->used < sizeof out->text);
}

static void put_values(output *out, const float *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (isnan(values[i]))
            put(out, "%s-", i ? " " : "");
        else
            put(out, "%s%g", i ? " " : "", (double)values[i]);
    }
}

static void put_class(output *out, const rcv_data *data, int32_t class) {
    put(out, "%s", class < 0 ? "-" : rcv_data_class_name(data, class, NULL));
}

static void put_labels(output *out, const rcv_data *data, int64_t index, rcvi_span span) {
    const int64_t outputs = data->totals.outputs;
    const bool steps = rcvi_kind_has_steps(data->kind), classes = rcvi_kind_has_classes(data->kind);
    const int64_t rows = steps ? span.length : 1;
    char *labels = calloc((size_t)(rows * (classes ? 1 : outputs)) + 1, sizeof(float));
    assert_non_null(labels);
    if (steps)
        check_ok(rcvi_data_read_labels(data, span, labels));
    else
        check_ok(rcvi_data_read_label(data, index, labels));
    for (int64_t t = 0; t < rows; t++) {
        put(out, t ? "|" : "");
        if (classes) {
            int32_t class;
            memcpy(&class, labels + t * (int64_t)sizeof class, sizeof class);
            put_class(out, data, class);
        } else {
            put_values(out, (const float *)(const void *)labels + t * outputs, outputs);
        }
    }
    free(labels);
}

/* "NAME: 1 2|3 4 -> a; ...": steps between bars, then the target or those of the steps. */
static char *print_data(const rcv_data *data, output *out) {
    *out = (output){0};
    for (int64_t i = 0; i < rcv_data_sequences(data); i++) {
        rcvi_span span;
        char name[64];
        check_ok(rcvi_data_read_spans(data, i, 1, &span));
        check_ok(rcv_data_example_name(data, i, name, sizeof name));
        put(out, "%s%s: ", i ? "; " : "", name);
        const int64_t features = rcv_data_features(data);
        float *x = calloc((size_t)(span.length * features) + 1, sizeof *x);
        assert_non_null(x);
        if (features > 0) check_ok(rcvi_data_read_numbers(data, span, x));
        for (int64_t t = 0; t < span.length && features > 0; t++) {
            put(out, t ? "|" : "");
            put_values(out, x + t * features, features);
        }
        if (features == 0) put(out, "%lld tokens", (long long)span.length);
        free(x);
        put(out, " -> ");
        put_labels(out, data, i, span);
    }
    return out->text;
}

/* Reads the file twice, the second time from its token cache, and compares both with `expected`. */
static void check_data(const fixture *f, const rcv_data_options *options, const char *expected) {
    for (int time = 0; time < 2; time++) {
        rcv_data *data = NULL;
        output out;
        check_ok(rcv_data_open(f->context, f->path, options, &data));
        assert_string_equal(print_data(data, &out), expected);
        rcv_data_free(data);
    }
}

/* ---- tables ---- */

#define OPTIONS(...) RCV_INIT(rcv_data_options, .level = RCV_LEVEL_BYTE, __VA_ARGS__)

static void test_table(void **unused) {
    (void)unused;
    static const struct {
        const char *text;
        rcv_data_options options;
        const char *expected;
    } cases[] = {
        /* a row is a sequence; the target by its name, or the last column */
        {"a,b,label\n1,2,x\n3,4.5,y\n", {.kind = RCV_DATA_CLASSES}, "0: 1|2 -> x; 1: 3|4.5 -> y"},
        {"label,a,b\nx,1,2\n", {.kind = RCV_DATA_CLASSES}, "0: 1|2 -> x"},
        {"a,b,c\n1,2,3\n", {.kind = RCV_DATA_VALUES}, "0: 1|2 -> 3"},
        {"a,b,c\n1,2,3\n", {.kind = RCV_DATA_VALUES, .target = "a,b"}, "0: 3 -> 1 2"},
        {"a,b,c\n1,2,3\n", {.kind = RCV_DATA_VALUES, .target = "a", .features = "c"}, "0: 3 -> 1"},
        /* fields that are missing at the end are no steps; rows without a target are left out */
        {"a,b,c,y\n1,2,,p\n1,,,q\n1,2,3,\n", {.kind = RCV_DATA_CLASSES}, "0: 1|2 -> p; 1: 1 -> q"},
        {"a,b,y\n,2,p\n", {.kind = RCV_DATA_CLASSES, .missing = RCV_MISSING_ZERO}, "0: -|2 -> p"},
        /* white space; no line feed at the end */
        {" a , b ,y\n 1 , -2e3 ,p \n", {.kind = RCV_DATA_CLASSES}, "0: 1|-2000 -> p"},
        /* semicolons with decimal commas, tabs, bars */
        {"a;b;y\n1,5;2;p\n", {.kind = RCV_DATA_CLASSES}, "0: 1.5|2 -> p"},
        {"a\tb\ty\n1\t2\tp\n", {.kind = RCV_DATA_CLASSES}, "0: 1|2 -> p"},
        {"a|b|y\n1|2|p\n", {.kind = RCV_DATA_CLASSES}, "0: 1|2 -> p"},
        /* whole numbers are written as such */
        {"a,y\n1,2.0\n2,10\n", {.kind = RCV_DATA_CLASSES}, "0: 1 -> 2; 1: 2 -> 10"},
        /* an id that no two rows share names them */
        {"id,a,y\nr1,1,p\nr2,2,q\n", {.kind = RCV_DATA_CLASSES}, "r1: 1 -> p; r2: 2 -> q"},
        /* rows are steps of sequences */
        {"id,t,a,b,y\ns,0,1,2,p\ns,1,3,4,p\nu,0,5,6,q\n", {.kind = RCV_DATA_CLASSES}, "s: 1 2|3 4 -> p; u: 5 6 -> q"},
        {"id,a,y\ns,1,p\ns,3,\nu,5,q\n", {.kind = RCV_DATA_CLASSES}, "s: 1|3 -> p; u: 5 -> q"},
        {"g,a,y\n1,1,p\n1,3,q\n2,5,\n2,6,p\n",
         {.kind = RCV_DATA_STEP_CLASSES, .sequence = "g"},
         "1: 1|3 -> p|q; 2: 5|6 -> -|p"},
        {"g,a,y,z\n1,1,.5,2\n1,3,,3\n",
         {.kind = RCV_DATA_STEP_VALUES, .sequence = "g", .target = "y,z"},
         "1: 1|3 -> 0.5 2|- -"},
        /* records of which the first pass needs the ends alone */
        {"a,b,c,d,e,f,g,h,y\n1,2,3,4,5,6,7,8,p\n1,2,3,,,,,,q\n\"1\",2,3,4,5,6,7,8,p\n",
         {.kind = RCV_DATA_CLASSES},
         "0: 1|2|3|4|5|6|7|8 -> p; 1: 1|2|3 -> q; 2: 1|2|3|4|5|6|7|8 -> p"},
        {"id,t,a,b,c,d,e,f,y\ns,1,1,2,3,4,5,6,p\ns,2,6,5,4,3,2,1,p\nu,1,0,0,0,0,0,9,q\n",
         {.kind = RCV_DATA_CLASSES},
         "s: 1 2 3 4 5 6|6 5 4 3 2 1 -> p; u: 0 0 0 0 0 9 -> q"},
        /* one series, cut into pieces; forecasts */
        {"a,y\n1,p\n2,q\n3,p\n", {.kind = RCV_DATA_STEP_CLASSES, .piece = 2}, "0: 1|2 -> p|q; 1: 3 -> p"},
        {"a,y\n1,10\n2,20\n3,30\n4,40\n5,50\n",
         {.kind = RCV_DATA_STEP_VALUES, .horizon = 1, .piece = 2},
         "0: 1 10|2 20 -> 20|30; 1: 3 30|4 40 -> 40|50"},
        {"a,y\n1,10\n2,20\n3,30\n", {.kind = RCV_DATA_STEP_VALUES, .horizon = 2}, "0: 1 10|2 20|3 30 -> 30|-|-"},
        {"s,y\nu,1\nu,2\nv,3\nv,4\n",
         {.kind = RCV_DATA_STEP_VALUES, .horizon = 1, .sequence = "s"},
         "u: 1|2 -> 2|-; v: 3|4 -> 4|-"},
        /* texts */
        {"text,label\nthe cat,p\n\"a, b\",q\n", {.kind = RCV_DATA_CLASSES}, "0: 7 tokens -> p; 1: 4 tokens -> q"},
    };
    fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rcv_data_options options = cases[i].options;
        options.size = sizeof options;
        options.level = RCV_LEVEL_BYTE;
        remove_files(&f);
        write_text(&f, cases[i].text);
        check_data(&f, &options, cases[i].expected);
    }
    close_fixture(&f);
}

/* A field over two lines is one field, and so is its name. */
static void test_quotes(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    write_text(&f, "\xef\xbb\xbf\"a\",\"b,\"\"c\",\"y\"\r\n\"1\",2,\"p\"\"q\"\r\n3,4,\"p\"\r\n");
    check_data(&f, &OPTIONS(.kind = RCV_DATA_CLASSES, .features = "a"), "0: 1 -> p\"q; 1: 3 -> p");
    write_text(&f, "text,y\n\"one\ntwo\",p\n\"three\r\n\n\",q\n");
    rcv_data *data = NULL;
    check_ok(rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_CLASSES), &data));
    int64_t lengths[2], tokens[64];
    check_ok(rcv_data_read(data, 0, 2, lengths, NULL, tokens, 64));
    assert_int_equal(lengths[0], 7);
    assert_int_equal(lengths[1], 8);
    assert_int_equal(tokens[2 * 3], '\n');
    assert_int_equal(tokens[2 * 5 + 1], '\r');
    rcv_data_free(data);
    close_fixture(&f);
}

/* What a model's data has is read in the same way, whatever the order of the columns; without targets they may be missing. */
static void test_schema(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    write_text(&f, "a,b,label\n1,2,x\n3,4,y\n");
    rcv_data *train = NULL, *data = NULL;
    output out;
    check_ok(rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_CLASSES), &train));
    write_text(&f, "label,other,b,a\ny,q,5,6\n");
    check_ok(rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_CLASSES, .like = train), &data));
    assert_string_equal(print_data(data, &out), "0: 6|5 -> y");
    rcv_data_free(data);
    write_text(&f, "b,a\n5,6\n7,8\n");
    check_ok(
        rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_CLASSES, .like = train, .unlabelled = true), &data));
    assert_string_equal(print_data(data, &out), "0: 6|5 -> -; 1: 8|7 -> -");
    rcv_data_free(data);
    write_text(&f, "label,B,a\nz,5,6\n");
    check_fails(rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_CLASSES, .like = train), &data), RCV_FORMAT,
                "has no column 'b'; there is 'B'");
    write_text(&f, "label,b,a\nz,5,6\n");
    check_fails(rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_CLASSES, .like = train), &data), RCV_FORMAT,
                "line 2 has the class 'z', which is not one of the 2 given classes");
    rcv_data_free(train);
    close_fixture(&f);
}

static void test_refused_tables(void **unused) {
    (void)unused;
    static const struct {
        const char *text;
        rcv_data_options options;
        rcv_status status;
        const char *sentence;
    } cases[] = {
        {"a,b,y\n1,2\n",
         {.kind = RCV_DATA_CLASSES},
         RCV_FORMAT,
         "data.csv: line 2 has 2 fields where the header has 3"},
        {"a,b,y\n1,2,p\n1,2,p,3\n",
         {.kind = RCV_DATA_CLASSES},
         RCV_FORMAT,
         "line 3 has 4 fields where the header has 3"},
        {"a,b,c,d,e,f,g,h,y\n1,2,3,4,5,6,7,8\n",
         {.kind = RCV_DATA_CLASSES},
         RCV_FORMAT,
         "line 2 has 8 fields where the header has 9"},
        {"a,b,y\n1,two,p\n",
         {.kind = RCV_DATA_CLASSES, .features = "a,b"},
         RCV_FORMAT,
         "line 2, column 'b' has 'two' where a number is meant"},
        {"a,b,y\n1,2,p\n1,inf,p\n",
         {.kind = RCV_DATA_CLASSES},
         RCV_FORMAT,
         "line 3, column 'b' has 'inf', which is no number that a float holds"},
        {"a,b,y\n1,1e39,p\n", {.kind = RCV_DATA_CLASSES}, RCV_FORMAT, "line 2, column 'b' has '1e39'"},
        {"a,b,y\n1,0x10,p\n",
         {.kind = RCV_DATA_CLASSES, .features = "a,b"},
         RCV_FORMAT,
         "has '0x10' where a number is meant"},
        {"a,b,y\n,2,p\n", {.kind = RCV_DATA_CLASSES}, RCV_FORMAT, "line 2, column 'a' has no value; --missing"},
        {"a,b,y\nnan,2,p\n", {.kind = RCV_DATA_CLASSES}, RCV_FORMAT, "column 'a' has no value"},
        {"a,b,y\n1,2,p\n",
         {.kind = RCV_DATA_VALUES},
         RCV_FORMAT,
         "column 'y' has the target 'p', which is not a number"},
        {"a,b,y\n1,2,p\n", {.kind = RCV_DATA_CLASSES, .target = "z"}, RCV_INVALID, "has no column 'z' (--target)"},
        {"height,b,y\n1,2,p\n", {.kind = RCV_DATA_CLASSES, .features = "heigth"}, RCV_INVALID, "there is 'height'"},
        {"a,b,y\n1,2,p\n", {.kind = RCV_DATA_CLASSES, .features = "a,,b"}, RCV_INVALID, "has an empty name"},
        {"a,b,y\n1,2,p\n", {.kind = RCV_DATA_CLASSES, .features = "a,a"}, RCV_INVALID, "has the name 'a' twice"},
        {"a,a,y\n1,2,p\n",
         {.kind = RCV_DATA_CLASSES, .features = "a"},
         RCV_FORMAT,
         "has two columns with the name 'a'"},
        {"id,a,y\ns,1,p\nu,2,p\ns,3,p\n",
         {.kind = RCV_DATA_CLASSES, .sequence = "id"},
         RCV_FORMAT,
         "line 4: the sequence 's' begins again; sort the file by 'id'"},
        {"id,a,y\ns,1,p\ns,2,q\n",
         {.kind = RCV_DATA_CLASSES},
         RCV_FORMAT,
         "line 3, column 'y' has 'q' where the sequence has 'p'"},
        {"id,t,a,y\ns,2,1,p\ns,1,2,p\n",
         {.kind = RCV_DATA_CLASSES},
         RCV_FORMAT,
         "line 3, column 't' goes back from '2' to '1'"},
        {"id,date,a,y\ns,2024-01-02,1,p\ns,2024-01-01,2,p\n",
         {.kind = RCV_DATA_CLASSES},
         RCV_FORMAT,
         "goes back from '2024-01-02' to '2024-01-01'"},
        {"a,y\n1,\"p\n", {.kind = RCV_DATA_CLASSES}, RCV_FORMAT, "line 2 has a quote that is not closed"},
        {"a,y\n1,\"p\"q\n", {.kind = RCV_DATA_CLASSES}, RCV_FORMAT, "line 2 has 'q' after a closing quote in column 2"},
        {"a,y\n", {.kind = RCV_DATA_CLASSES}, RCV_FORMAT, "holds no examples"},
        {"", {.kind = RCV_DATA_CLASSES}, RCV_FORMAT, "holds no examples"},
        {"a\n1\n", {.kind = RCV_DATA_CLASSES}, RCV_FORMAT, "has no two columns"},
        {"a,b,y\n1,2,\n3,4,NA\n", {.kind = RCV_DATA_CLASSES}, RCV_FORMAT, "holds no"},
        {"a,b,y\n1,2,p\n",
         {.kind = RCV_DATA_CLASSES, .horizon = 1},
         RCV_INVALID,
         "a horizon is for the kinds step-values"},
        {"a,b,y\n1,2,p\n", {.kind = RCV_DATA_STREAM, .format = RCV_FORMAT_CSV}, RCV_INVALID, "a text is read as it is"},
    };
    fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rcv_data_options options = cases[i].options;
        rcv_data *data = NULL;
        options.size = sizeof options;
        options.level = RCV_LEVEL_BYTE;
        remove_files(&f);
        write_text(&f, cases[i].text);
        check_fails(rcv_data_open(f.context, f.path, &options, &data), cases[i].status, cases[i].sentence);
        assert_null(data);
    }
    close_fixture(&f);
}

/* A header of ten million columns is refused before it takes memory in proportion. */
static void test_many_columns(void **unused) {
    (void)unused;
    enum { COLUMNS = 10000000 };
    fixture f;
    open_fixture(&f);
    char *text = malloc(2 * COLUMNS + 2);
    assert_non_null(text);
    for (size_t i = 0; i < COLUMNS; i++) memcpy(text + 2 * i, "a,", 2);
    memcpy(text + 2 * COLUMNS, "y\n", 2);
    write_file(&f, text, 2 * COLUMNS + 2);
    free(text);
    rcv_data *data = NULL;
    check_fails(rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_CLASSES), &data), RCV_FORMAT,
                "line 1 has more than the 65536 columns");
    close_fixture(&f);
}

/* ---- recognition ---- */

static void test_recognised(void **unused) {
    (void)unused;
    static const struct {
        const char *name, *text;
        rcv_data_options options;
        rcv_file_format format;
        rcv_data_kind kind;
        const char *sentence;
    } cases[] = {
        {"d.csv",
         "a,b,label\n1,2,x\n3,4,y\n",
         {0},
         RCV_FORMAT_CSV,
         RCV_DATA_CLASSES,
         "each row is a sequence of up to 2 steps (a, b); predicted is label, a class"},
        {"d.csv", "a,b,y\n1,2,0.5\n", {0}, RCV_FORMAT_CSV, RCV_DATA_VALUES, "a value"},
        {"d.csv",
         "id,a,b,y\n1,1,2,0\n1,1,2,0\n2,1,2,1\n",
         {0},
         RCV_FORMAT_CSV,
         RCV_DATA_CLASSES,
         "rows are the steps of sequences (by 'id') of 2 features"},
        {"d.csv", "id,a,y\n1,1,0\n1,2,1\n", {0}, RCV_FORMAT_CSV, RCV_DATA_STEP_CLASSES, "a class at every time step"},
        {"d.csv",
         "date,a,y\n1,1,0\n2,2,1\n",
         {.horizon = 3},
         RCV_FORMAT_CSV,
         RCV_DATA_STEP_VALUES,
         "one sequence of 2 features (a, y); predicted is y, a value at every time step, 3 steps ahead"},
        {"d.csv", "a;y\n1;0,5\n2;1,5\n", {0}, RCV_FORMAT_CSV, RCV_DATA_VALUES, "predicted is y, a value"},
        {"d.csv",
         "a,colour,y\n1,red,0\n2,blue,1\n",
         {0},
         RCV_FORMAT_CSV,
         RCV_DATA_CLASSES,
         "left out, since they are no numbers: 'colour'"},
        {"d.csv",
         "review,stars\nfine,5\nbad,1\n",
         {0},
         RCV_FORMAT_CSV,
         RCV_DATA_CLASSES,
         "each row is a text ('review'); predicted is stars"},
        {"d.tsv", "a\tb\ty\n1\t2\tx\n", {0}, RCV_FORMAT_TSV, RCV_DATA_CLASSES, "a table"},
        {"d.txt", "a,b,y\n1,2,x\n", {0}, RCV_FORMAT_TEXT, RCV_DATA_STREAM, "one text"},
        {"d.txt", "a,b,y\n1,2,x\n", {.target = "y"}, RCV_FORMAT_CSV, RCV_DATA_CLASSES, "predicted is y"},
        {"d.tsv",
         "1\t0.5\t0.25\n2\t1\t2\n",
         {0},
         RCV_FORMAT_NUMBERS,
         RCV_DATA_CLASSES,
         "lines of numbers: first the class"},
        {"d",
         "{\"x\": [1, 2], \"y\": 3}\n{\"x\": [1, 2], \"y\": 4}\n",
         {0},
         RCV_FORMAT_JSON_LINES,
         RCV_DATA_CLASSES,
         "JSON lines"},
        {"d",
         "{\"x\": [1, 2], \"y\": [3.5, 1]}\n",
         {0},
         RCV_FORMAT_JSON_LINES,
         RCV_DATA_STEP_VALUES,
         "a value at every time step"},
        {"d.jsonl",
         "{\"t\": \"hello\", \"c\": \"p\"}\n",
         {.features = "t", .target = "c"},
         RCV_FORMAT_JSON_LINES,
         RCV_DATA_CLASSES,
         "'t' is a text, 'c' is predicted, a class"},
        {"d.c", "{ int x; }\n", {0}, RCV_FORMAT_TEXT, RCV_DATA_STREAM, "one text"},
    };
    fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rcv_data_options options = cases[i].options;
        rcv_guess guess = RCV_INIT(rcv_guess);
        char *sentence = NULL;
        options.size = sizeof options;
        remove_files(&f);
        name_file(&f, cases[i].name);
        write_text(&f, cases[i].text);
        check_ok(rcv_data_recognise(f.context, f.path, &options, &guess, &sentence));
        assert_int_equal(guess.format, cases[i].format);
        assert_int_equal(guess.kind, cases[i].kind);
        if (!strstr(sentence, cases[i].sentence)) fail_msg("case %zu: %s", i, sentence);
        rcv_text_free(f.context, sentence);
    }
    static const struct {
        const char *name, *text, *sentence;
    } refused[] = {
        {"d.json", "[{\"x\": [1]}]", "is JSON, but not an object on each line"},
        {"d.jsonl", "{\"a\": 1, \"b\": 2}\n", "the first object has no x or text; its keys are a, b"},
        {"d.parquet", "PAR1....", "is a Parquet file"},
        {"d.csv.gz", "\x1f\x8b..", "is compressed by gzip"},
        {"d.xlsx", "PK\3\4....", "is a ZIP archive"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        rcv_guess guess = RCV_INIT(rcv_guess);
        remove_files(&f);
        name_file(&f, refused[i].name);
        write_text(&f, refused[i].text);
        check_fails(rcv_data_recognise(f.context, f.path, NULL, &guess, NULL), RCV_FORMAT, refused[i].sentence);
    }
    close_fixture(&f);
}

/* ---- arrays ---- */

/* Writes a .npy header for a shape and the elements. */
static size_t put_npy(char *to, const char *type, const char *shape, const void *data, size_t bytes) {
    char text[128];
    const int length =
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", type, shape);
    memcpy(to, "\x93NUMPY\1\0", 8);
    to[8] = (char)length;
    to[9] = 0;
    memcpy(to + 10, text, (size_t)length);
    memcpy(to + 10 + length, data, bytes);
    return 10 + (size_t)length + bytes;
}

/* One member of an archive, stored. Returns the end. */
static size_t put_member(char *zip, size_t at, const char *name, const char *content, size_t length, char *directory,
                         size_t *directory_length) {
    char *local = zip + at, *entry = directory + *directory_length;
    const uint16_t name_length = (uint16_t)strlen(name);
    const uint32_t size = (uint32_t)length, offset = (uint32_t)at;
    memset(local, 0, 30);
    memcpy(local, "PK\3\4", 4);
    memcpy(local + 26, &name_length, 2);
    memcpy(local + 30, name, name_length);
    memcpy(local + 30 + name_length, content, length);
    memset(entry, 0, 46);
    memcpy(entry, "PK\1\2", 4);
    memcpy(entry + 20, &size, 4);
    memcpy(entry + 24, &size, 4);
    memcpy(entry + 28, &name_length, 2);
    memcpy(entry + 42, &offset, 4);
    memcpy(entry + 46, name, name_length);
    *directory_length += 46 + (size_t)name_length;
    return at + 30 + name_length + length;
}

static void write_npz(const fixture *f, const char *y_type, const char *y_shape, const void *y, size_t y_bytes,
                      const char *x_shape) {
    static const float x[] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const int64_t lengths[] = {1, 2};
    char zip[4096] = {0}, directory[1024] = {0}, member[1024];
    size_t used = 0, listed = 0, length = put_npy(member, "<f4", x_shape, x, sizeof x);
    uint16_t count = 3;
    used = put_member(zip, used, "x.npy", member, length, directory, &listed);
    length = put_npy(member, y_type, y_shape, y, y_bytes);
    used = put_member(zip, used, "y.npy", member, length, directory, &listed);
    length = put_npy(member, "<i8", "(2,)", lengths, sizeof lengths);
    used = put_member(zip, used, "lengths.npy", member, length, directory, &listed);
    memcpy(zip + used, directory, listed);
    char *end = zip + used + listed;
    const uint32_t begin = (uint32_t)used, bytes = (uint32_t)listed;
    memcpy(end, "PK\5\6", 4);
    memcpy(end + 8, &count, 2);
    memcpy(end + 10, &count, 2);
    memcpy(end + 12, &bytes, 4);
    memcpy(end + 16, &begin, 4);
    write_file(f, zip, used + listed + 22);
}

static void test_arrays(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    remove_files(&f);
    name_file(&f, "d.npz");
    const int32_t classes[] = {7, -1};
    write_npz(&f, "<i4", "(2,)", classes, sizeof classes, "(2, 2, 2)");
    check_data(&f, &OPTIONS(.kind = RCV_DATA_CLASSES), "0: 1 2 -> 7; 1: 5 6|7 8 -> -1");
    const float values[] = {0.5F, NAN, 2, 3};
    write_npz(&f, "<f4", "(2, 2)", values, sizeof values, "(2, 4)");
    check_data(&f, &OPTIONS(.kind = RCV_DATA_VALUES), "0: 5|6 -> 2 3");
    const uint32_t names[] = {'u', 0xe9, 'o', 'k'};
    write_npz(&f, "<U2", "(2,)", names, sizeof names, "(2, 4)");
    check_data(&f, &OPTIONS(.kind = RCV_DATA_CLASSES), "0: 1 -> u\xc3\xa9; 1: 5|6 -> ok");
    const double steps[] = {1, 2, 3, 4};
    write_npz(&f, "<f8", "(2, 2)", steps, sizeof steps, "(2, 2, 2)");
    check_data(&f, &OPTIONS(.kind = RCV_DATA_STEP_VALUES), "0: 1 2 -> 1; 1: 5 6|7 8 -> 3|4");
    rcv_data *data = NULL;
    check_fails(rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_CLASSES), &data), RCV_FORMAT,
                "y has the shape [2, 2]");
    write_npz(&f, "<f8", "(3,)", steps, 24, "(2, 2, 2)");
    check_fails(rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_VALUES), &data), RCV_FORMAT,
                "which does not fit 2 sequences");
    write_npz(&f, ">f8", "(2,)", steps, 16, "(2, 2, 2)");
    check_fails(rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_VALUES), &data), RCV_FORMAT, "big-endian");
    write_npz(&f, "<f8", "(2,)", steps, 16, "(2, 2, 3)");
    check_fails(rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_VALUES), &data), RCV_FORMAT,
                "more elements than the file has");

    remove_files(&f);
    name_file(&f, "d.npy");
    char npy[512];
    const float series[] = {1, 10, 2, 20, 3, 30};
    write_file(&f, npy, put_npy(npy, "<f4", "(3, 2)", series, sizeof series));
    check_data(&f, &OPTIONS(.kind = RCV_DATA_STEP_VALUES, .horizon = 1, .piece = 2), "0: 1 10|2 20 -> 2 20|3 30");
    check_fails(rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_VALUES), &data), RCV_FORMAT,
                "has no array y");
    check_data(&f, &OPTIONS(.kind = RCV_DATA_CLASSES, .unlabelled = true), "0: 1|10 -> -; 1: 2|20 -> -; 2: 3|30 -> -");
    const float infinite[] = {1, INFINITY};
    write_file(&f, npy, put_npy(npy, "<f4", "(1, 2)", infinite, sizeof infinite));
    check_fails(rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_CLASSES, .unlabelled = true), &data),
                RCV_FORMAT, "x has inf in sequence 0 at step 1, feature 0");

    remove_files(&f);
    name_file(&f, "d.safetensors");
    static const char header[] = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[0,12]},"
                                 "\"y\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[12,20]}}  ";
    char file[256];
    const uint64_t length = strlen(header);
    const int64_t label = 3;
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    memcpy(file + 8 + length, series, 12);
    memcpy(file + 20 + length, &label, 8);
    write_file(&f, file, 28 + length);
    check_data(&f, &OPTIONS(.kind = RCV_DATA_CLASSES), "0: 1|10|2 -> 3");
    write_file(&f, file, 27 + length);
    check_fails(rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_CLASSES), &data), RCV_FORMAT,
                "the array y is cut off");
    close_fixture(&f);
}

/* ---- parts ---- */

static rcv_data *part_of(const rcv_data *data, double begin, double end, rcv_part_by by) {
    rcv_data *part = NULL;
    check_ok(rcv_data_part(data, &RCV_INIT(rcv_part_options, .begin = begin, .end = end, .by = by, .seed = 3), &part));
    return part;
}

static void test_parts(void **unused) {
    (void)unused;
    enum { ROWS = 50 };
    fixture f;
    open_fixture(&f);
    output out = {0};
    put(&out, "a,y\n");
    for (int i = 0; i < ROWS; i++) put(&out, "%d,%s\n", i, i % 2 ? "p" : "q");
    write_text(&f, out.text);
    rcv_data *data = NULL;
    check_ok(rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_CLASSES), &data));
    bool seen[ROWS] = {false};
    int64_t last_rows = 0;
    const double ends[] = {0, 0.8, 0.9, 1};
    for (int p = 0; p < 3; p++) {
        rcv_data *part = part_of(data, ends[p], ends[p + 1], RCV_PART_SEQUENCES);
        assert_int_equal(rcv_data_sequences(part), p == 0 ? 40 : 5);
        assert_int_equal(rcv_data_tokens(part), rcv_data_sequences(part));
        for (int64_t i = 0; i < rcv_data_sequences(part); i++) {
            int64_t length;
            int32_t class;
            float x;
            check_ok(rcv_data_read(part, i, 1, &length, &x, NULL, 1));
            check_ok(rcvi_data_read_label(part, i, &class));
            assert_string_equal(rcv_data_class_name(part, class, NULL), (int)x % 2 ? "p" : "q");
            assert_false(seen[(int)x]);
            seen[(int)x] = true;
            last_rows += p > 0 && x > 40;
        }
        rcv_data_free(part);
    }
    for (int i = 0; i < ROWS; i++) assert_true(seen[i]);
    assert_in_range(last_rows, 0, 8); /* they are drawn, not the last ones */
    rcv_data *last = part_of(data, 0.9, 1, RCV_PART_TIME);
    assert_string_equal(print_data(last, &out), "45: 45 -> p; 46: 46 -> q; 47: 47 -> p; 48: 48 -> q; 49: 49 -> p");
    rcv_data_free(data); /* a part outlives it */
    assert_string_equal(print_data(last, &out), "45: 45 -> p; 46: 46 -> q; 47: 47 -> p; 48: 48 -> q; 49: 49 -> p");
    rcv_data *none = NULL;
    check_fails(rcv_data_part(last, &RCV_INIT(rcv_part_options, .begin = 0, .end = .5), &none), RCV_UNSUPPORTED,
                "cannot be divided again");
    rcv_data_free(last);
    close_fixture(&f);
}

/* By time each sequence is divided; drawn, its pieces stay together. */
static void test_parts_of_pieces(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    write_text(&f, "id,y\nu,1\nu,2\nu,3\nu,4\nu,5\nv,6\nv,7\nv,8\nv,9\nv,10\n");
    rcv_data *data = NULL;
    output out;
    check_ok(rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_STEP_VALUES, .horizon = 1, .piece = 2), &data));
    assert_string_equal(print_data(data, &out), "u: 1|2 -> 2|3; u: 3|4 -> 4|5; v: 6|7 -> 7|8; v: 8|9 -> 9|10");
    rcv_data *part = part_of(data, 0.5, 1, RCV_PART_TIME);
    assert_string_equal(print_data(part, &out), "u: 3|4 -> 4|5; v: 8|9 -> 9|10");
    rcv_data_free(part);
    part = part_of(data, 0, 0.5, RCV_PART_SEQUENCES);
    print_data(part, &out);
    assert_true(!strcmp(out.text, "u: 1|2 -> 2|3; u: 3|4 -> 4|5") ||
                !strcmp(out.text, "v: 6|7 -> 7|8; v: 8|9 -> 9|10"));
    rcv_data_free(part);
    rcv_data_free(data);
    write_text(&f, "abcdefghij");
    check_ok(rcv_data_open(f.context, f.path, &OPTIONS(.kind = RCV_DATA_STREAM), &data));
    part = part_of(data, 0.5, 0.8, RCV_PART_TIME);
    int32_t tokens[3];
    assert_int_equal(rcv_data_tokens(part), 3);
    check_ok(rcvi_data_read_tokens(part, 0, 3, tokens));
    assert_int_equal(tokens[0], 'f');
    assert_int_equal(tokens[2], 'h');
    rcv_data_free(part);
    check_fails(rcv_data_part(data, &RCV_INIT(rcv_part_options, .begin = 0, .end = .5), &part), RCV_INVALID,
                "is divided by time");
    check_fails(rcv_data_part(data, &RCV_INIT(rcv_part_options, .begin = .5, .end = .5, .by = RCV_PART_TIME), &part),
                RCV_INVALID, "is none of 0 to 1");
    rcv_data_free(data);
    close_fixture(&f);
}

/* ---- memory ---- */

static void test_no_memory(void **unused) {
    (void)unused;
    static const struct {
        const char *text;
        rcv_data_options options;
    } cases[] = {
        {"id,a,y\ns,1,p\ns,2,p\nu,3,\"q\"\n", {.kind = RCV_DATA_CLASSES}},
        {"a,b,y\n1,2,x\n3,4,y\n", {.kind = RCV_DATA_CLASSES}},
        {"t,y\n1,2\n2,3\n3,4\n", {.kind = RCV_DATA_STEP_VALUES, .horizon = 1, .piece = 1}},
    };
    fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(&f, cases[i].text);
        rcv_status status = RCV_NO_MEMORY;
        for (size_t tried = 1; status != RCV_OK; tried++) {
            const size_t live = f.allocator.live, failed = f.allocator.failed;
            rcv_data *data = NULL, *part = NULL;
            rcv_data_options options = cases[i].options;
            options.size = sizeof options;
            options.level = RCV_LEVEL_BYTE;
            unlink(f.cache);
            f.allocator.fail_at = tried;
            status = rcv_data_open(f.context, f.path, &options, &data);
            if (!status)
                status =
                    rcv_data_part(data, &RCV_INIT(rcv_part_options, .begin = 0, .end = 1, .by = RCV_PART_TIME), &part);
            f.allocator.fail_at = 0;
            assert_int_equal(status, f.allocator.failed > failed ? RCV_NO_MEMORY : RCV_OK);
            rcv_data_free(part);
            rcv_data_free(data);
            assert_int_equal(f.allocator.live, live);
        }
    }
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),           cmocka_unit_test(test_quotes),
        cmocka_unit_test(test_schema),          cmocka_unit_test(test_refused_tables),
        cmocka_unit_test(test_many_columns),    cmocka_unit_test(test_recognised),
        cmocka_unit_test(test_arrays),          cmocka_unit_test(test_parts),
        cmocka_unit_test(test_parts_of_pieces), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
