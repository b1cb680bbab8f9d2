/* Reading of texts and examples, the token cache, and when a cache is not trusted. */
#define _XOPEN_SOURCE 700

#include "test.h"

#include "base/random.h"
#include "data/data.h"
#include "scratch.h"

#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    char path[512], cache[540];
} fixture;

static void open_fixture(fixture *f) {
    f->context = test_context(&f->allocator);
    snprintf(f->path, sizeof f->path, "%s", path_in("text"));
    snprintf(f->cache, sizeof f->cache, "%s.recurve-tokens", f->path);
}

static void close_fixture(fixture *f) {
    unlink(f->path);
    unlink(f->cache);
    test_context_end(&f->allocator, f->context);
    assert_int_equal(entries(scratch()), 0); /* no temporary file remains either */
}

static void write_bytes(const char *path, const void *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static void write_text(const fixture *f, const char *text) { write_bytes(f->path, text, strlen(text)); }

static rcv_data *open_data(const fixture *f, const rcv_data_options *options) {
    rcv_data *data = NULL;
    check_ok(rcv_data_open(f->context, f->path, options, &data));
    return data;
}

/* The tokens' words with spaces between them. */
static char *words_of(const rcv_data *data) {
    const int64_t count = rcv_data_tokens(data);
    int32_t *tokens = calloc((size_t)count, sizeof *tokens);
    char *text = calloc((size_t)count, 32), *end = text;
    assert_true(tokens && text);
    check_ok(rcvi_data_read_tokens(data, 0, count, tokens));
    for (int64_t i = 0; i < count; i++) {
        size_t length;
        const char *word = rcv_vocabulary_token(rcv_data_vocabulary(data), tokens[i], &length);
        assert_non_null(word);
        assert_in_range(length, 1, 30);
        end += sprintf(end, "%s%.*s", i > 0 ? " " : "", (int)length, word);
    }
    free(tokens);
    return text;
}

static void check_words(const rcv_data *data, const char *expected) {
    char *words = words_of(data);
    assert_string_equal(words, expected);
    free(words);
}

static void check_vocabulary(rcv_context *context, const rcv_vocabulary *vocabulary, const char *expected) {
    char *text = NULL;
    check_ok(rcv_vocabulary_print(vocabulary, &text));
    assert_string_equal(text, expected);
    rcv_text_free(context, text);
}

/* ---- texts ---- */

static void test_words(void **unused) {
    (void)unused;
    static const struct {
        const char *text, *words, *vocabulary;
    } cases[] = {
        {"b a\nb\n", "b a <eos> b <eos>", "<eos>\nb\na\n<unk>\n"},
        {"b a\nb", "b a <eos> b <eos>", "<eos>\nb\na\n<unk>\n"},
        {"\n\na  \t b\r\n\n", "<eos> <eos> a b <eos> <eos>", "<eos>\na\nb\n<unk>\n"},
        {"a <unk> a\n ", "a <unk> a <eos> <eos>", "<eos>\na\n<unk>\n"},
        {"<eos> \xc3\xa9t\xc3\xa9\v\xf0\x9f\x98\x80", "<eos> \xc3\xa9t\xc3\xa9 \xf0\x9f\x98\x80 <eos>",
         "<eos>\n\xc3\xa9t\xc3\xa9\n\xf0\x9f\x98\x80\n<unk>\n"},
    };
    fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(&f, cases[i].text);
        for (int time = 0; time < 2; time++) { /* from the text, then from the token cache */
            rcv_data *data = open_data(&f, NULL);
            check_words(data, cases[i].words);
            check_vocabulary(f.context, rcv_data_vocabulary(data), cases[i].vocabulary);
            assert_int_equal(rcv_data_sequences(data), 1);
            assert_int_equal(rcv_data_outputs(data), rcv_vocabulary_size(rcv_data_vocabulary(data)));
            assert_int_equal(rcv_data_features(data), 0);
            rcv_data_free(data);
        }
    }
    close_fixture(&f);
}

static void test_given_vocabulary(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    write_text(&f, "a b c\nb");
    static const char words[] = "<unk>\nb\n<eos>";
    rcv_vocabulary *vocabulary = NULL;
    check_ok(rcv_vocabulary_parse(f.context, words, strlen(words), "words", &vocabulary));
    assert_int_equal(rcv_vocabulary_find(vocabulary, "b", 1), 1);
    assert_int_equal(rcv_vocabulary_find(vocabulary, "a", 1), -1);
    assert_null(rcv_vocabulary_token(vocabulary, 3, NULL));
    rcv_data *data = open_data(&f, &RCV_INIT(rcv_data_options, .vocabulary = vocabulary));
    rcv_vocabulary_free(vocabulary); /* it was copied */
    check_words(data, "<unk> b <unk> <eos> b <eos>");
    int32_t tokens[2];
    check_ok(rcvi_data_read_tokens(data, 3, 2, tokens));
    assert_int_equal(tokens[0], 2);
    assert_int_equal(tokens[1], 1);
    rcv_data *same = open_data(&f, &RCV_INIT(rcv_data_options, .like = data));
    check_words(same, "<unk> b <unk> <eos> b <eos>");
    rcv_data_free(same);
    rcv_data_free(data);
    check_ok(rcv_vocabulary_parse(f.context, "b\n<eos>\n", 8, "words", &vocabulary));
    check_fails(rcv_data_open(f.context, f.path, &RCV_INIT(rcv_data_options, .vocabulary = vocabulary), &data),
                RCV_FORMAT, "'a' at byte 0 is not in the vocabulary");
    check_fails(rcv_data_open(f.context, f.path,
                              &RCV_INIT(rcv_data_options, .vocabulary = vocabulary, .level = RCV_LEVEL_BYTE), &data),
                RCV_INVALID, "byte level");
    rcv_vocabulary_free(vocabulary);
    check_ok(rcv_vocabulary_parse(f.context, "b\n<unk>\n", 8, "words", &vocabulary));
    check_fails(rcv_data_open(f.context, f.path, &RCV_INIT(rcv_data_options, .vocabulary = vocabulary), &data),
                RCV_INVALID, "no <eos>");
    rcv_vocabulary_free(vocabulary);
    close_fixture(&f);
}

static void test_wrong_vocabulary(void **unused) {
    (void)unused;
    static const struct {
        const char *text, *fragment;
    } cases[] = {
        {"a\nb\na\n", "line 3 repeats the word 'a' of line 1"},
        {"a\n\nb\n", "line 2 has no word"},
        {"a\nb c\n", "line 2 has several words"},
        {"", "holds no words"},
        {"a\n\xff\n", "not UTF-8 at byte 2"},
    };
    fixture f;
    open_fixture(&f);
    rcv_vocabulary *vocabulary = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(&f, cases[i].text);
        check_fails(rcv_vocabulary_load(f.context, f.path, &vocabulary), RCV_FORMAT, cases[i].fragment);
        assert_null(vocabulary);
    }
    check_ok(rcv_vocabulary_bytes(f.context, &vocabulary));
    assert_int_equal(rcv_vocabulary_size(vocabulary), 256);
    assert_int_equal(rcv_vocabulary_find(vocabulary, "\xfe", 1), 254);
    char *text;
    check_fails(rcv_vocabulary_print(vocabulary, &text), RCV_INVALID, "bytes");
    rcv_vocabulary_free(vocabulary);
    close_fixture(&f);
}

static void test_utf8(void **unused) {
    (void)unused;
    static const struct {
        const char *text;
        const char *fragment;
    } cases[] = {
        {"ab \xc3\xa9 x\xff", "byte 7"},    /* no lead */
        {"\xc3", "byte 0"},                 /* cut off */
        {"a \xe2\x82 b", "byte 2"},         /* cut off by a space */
        {"\xc0\x80", "byte 0"},             /* overlong */
        {"\xe0\x9f\xbf", "byte 0"},         /* overlong */
        {"\xed\xa0\x80", "byte 0"},         /* surrogate */
        {"\xf4\x90\x80\x80", "byte 0"},     /* past U+10FFFF */
        {"\xf0\x9f\x98\x80\x80", "byte 4"}, /* one too many */
    };
    fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rcv_data *data = NULL;
        write_text(&f, cases[i].text);
        check_fails(rcv_data_open(f.context, f.path, NULL, &data), RCV_FORMAT, cases[i].fragment);
        assert_null(data);
        if (strlen(cases[i].text) < 2) continue;
        data = open_data(&f, &RCV_INIT(rcv_data_options, .level = RCV_LEVEL_BYTE));
        assert_int_equal(rcv_data_tokens(data), strlen(cases[i].text));
        int32_t first;
        check_ok(rcvi_data_read_tokens(data, 0, 1, &first));
        assert_int_equal(first, (unsigned char)cases[i].text[0]);
        rcv_data_free(data);
    }
    assert_int_not_equal(access(f.cache, F_OK), 0); /* a stream of bytes is the text itself */
    close_fixture(&f);
}

/* Longer than any buffer, words and white space of all lengths across its pieces, more words than 16 bits can number. */
static void test_long_text(void **unused) {
    (void)unused;
    enum { WORDS = 200000, DIFFERENT = 70000 };
    fixture f;
    open_fixture(&f);
    char *text = malloc(WORDS * 16), *end = text;
    int *expected = malloc(WORDS * 2 * sizeof *expected); /* number of the word, or -1 */
    assert_true(text && expected);
    int64_t count = 0;
    for (int i = 0; i < WORDS; i++) {
        const uint64_t at = (uint64_t)i;
        const int word = i < DIFFERENT ? i : (int)(DIFFERENT * rcvi_hash_uniform(1, at));
        expected[count++] = word;
        end += sprintf(end, "w%d%s", word, rcvi_hash_uniform(2, at) < 0.2 ? "   " : " ");
        if (rcvi_hash_uniform(3, at) < 0.1) {
            *end++ = '\n';
            expected[count++] = -1;
        }
    }
    if (end[-1] != '\n') expected[count++] = -1;
    write_bytes(f.path, text, (size_t)(end - text));
    for (int time = 0; time < 2; time++) {
        rcv_data *data = open_data(&f, NULL);
        const rcv_vocabulary *vocabulary = rcv_data_vocabulary(data);
        assert_int_equal(rcv_data_tokens(data), count);
        assert_int_equal(rcv_vocabulary_size(vocabulary), DIFFERENT + 2);
        for (int64_t i = 0; i < count; i += 500) {
            int32_t tokens[500];
            const int64_t part = count - i < 500 ? count - i : 500;
            check_ok(rcvi_data_read_tokens(data, i, part, tokens));
            for (int64_t k = 0; k < part; k++) {
                char word[16];
                snprintf(word, sizeof word, expected[i + k] < 0 ? "<eos>" : "w%d", expected[i + k]);
                assert_int_equal(rcv_vocabulary_find(vocabulary, word, strlen(word)), tokens[k]);
            }
        }
        rcv_data_free(data);
    }
    memset(text, 'x', 2 << 20);
    write_bytes(f.path, text, 2 << 20);
    rcv_data *data;
    check_fails(rcv_data_open(f.context, f.path, NULL, &data), RCV_FORMAT, "word of more than");
    write_bytes(f.path, "the c\0t sat", 11);
    check_fails(rcv_data_open(f.context, f.path, NULL, &data), RCV_FORMAT, "has a NUL at byte 5");
    free(text);
    free(expected);
    close_fixture(&f);
}

static void test_lines(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    write_text(&f, "\na b\n \nc\n\nd e f");
    int64_t counts[5];
    for (int time = 0; time < 2; time++) {
        rcv_data *data = open_data(&f, &RCV_INIT(rcv_data_options, .kind = RCV_DATA_LINES));
        assert_int_equal(rcv_data_sequences(data), 3);
        assert_int_equal(rcv_data_tokens(data), 3 + 2 + 4);
        assert_int_equal(rcv_data_longest(data), 4);
        check_ok(rcv_data_lengths(data, counts));
        assert_memory_equal(counts, ((int64_t[]){0, 0, 1, 1, 1}), sizeof counts);
        rcv_data_free(data);
    }
    for (int time = 0; time < 2; time++) { /* the blank of the third line is a byte */
        rcv_data *data = open_data(&f, &RCV_INIT(rcv_data_options, .kind = RCV_DATA_LINES, .level = RCV_LEVEL_BYTE));
        assert_int_equal(rcv_data_sequences(data), 4);
        assert_int_equal(rcv_data_tokens(data), 4 + 2 + 2 + 6);
        assert_int_equal(rcv_data_longest(data), 6);
        assert_int_equal(rcv_data_outputs(data), 256);
        int64_t bounds[2];
        size_t count;
        double ratio;
        check_ok(rcv_data_buckets(data, 2, false, bounds, &count));
        assert_int_equal(count, 2);
        assert_memory_equal(bounds, ((int64_t[]){2, 6}), sizeof bounds);
        check_ok(rcv_data_padding(data, bounds, 2, &ratio));
        assert_true(ratio == 16.0 / 14);
        check_fails(rcv_data_padding(data, bounds, 1, &ratio), RCV_INVALID, "6 steps");
        rcv_data_free(data);
    }
    close_fixture(&f);
}

static void test_wrong_texts(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    rcv_data *data = NULL;
    check_fails(rcv_data_open(f.context, f.path, NULL, &data), RCV_IO, "cannot open");
    check_fails(rcv_data_open(f.context, scratch(), NULL, &data), RCV_IO, "is a directory, not a file");
    check_fails(rcv_data_open(f.context, "/dev/null", NULL, &data), RCV_IO, "device");
    for (int level = 0; level < 2; level++) {
        for (int kind = 0; kind < 4; kind++) {
            const rcv_data_options options =
                RCV_INIT(rcv_data_options, .level = (rcv_level)level, .kind = (rcv_data_kind)kind);
            const char *fragment = kind < 2 ? "holds no tokens" : "holds no examples";
            write_text(&f, "");
            check_fails(rcv_data_open(f.context, f.path, &options, &data), RCV_FORMAT, fragment);
            write_text(&f, "\n");
            check_fails(rcv_data_open(f.context, f.path, &options, &data), RCV_FORMAT,
                        kind == 0 ? "one token" : fragment);
        }
    }
    check_fails(rcv_data_open(f.context, f.path, &RCV_INIT(rcv_data_options, .kind = 9), &data), RCV_INVALID, "kind 9");
    write_text(&f, "a b\n");
    data = open_data(&f, NULL);
    int64_t bound, counts[4];
    size_t count;
    check_fails(rcv_data_lengths(data, counts), RCV_INVALID, "one sequence");
    check_fails(rcv_data_buckets(data, 1, true, &bound, &count), RCV_INVALID, "one sequence");
    rcv_data_free(data);
    close_fixture(&f);
}

/* ---- examples ---- */

static void check_classes(const rcv_data *data, const char *const *names, int64_t count) {
    assert_int_equal(rcv_data_outputs(data), count);
    for (int64_t i = 0; i < count; i++) assert_string_equal(rcv_data_class_name(data, i, NULL), names[i]);
    assert_null(rcv_data_class_name(data, count, NULL));
}

static void test_classes(void **unused) {
    (void)unused;
    static const struct {
        const char *text;
        int64_t features, longest, tokens, count;
        const char *names[4];
    } cases[] = {
        {"10 1 2 3\n\n9,4 , 5\n-1\t6\n", 1, 3, 6, 3, {"-1", "9", "10"}},
        {"1.0000e+00  1 2\n  2.0e0 1\n", 1, 2, 3, 2, {"1", "2"}},
        {"{\"x\": [[1, 2], [3, 4]], \"y\": \"b\"}\n{\"y\": \"B\", \"x\": [[5, 6]], \"id\": 3}", 2, 2, 3, 2, {"B", "b"}},
        {"{\"x\": [1, 2.5], \"y\": \"a\"}\n{\"x\": [1], \"y\": 10}\n{\"x\": [1], \"y\": \"9\"}\n",
         1,
         2,
         4,
         3,
         {"9", "10", "a"}},
        {"{\"text\": \"b a\\nb\", \"y\": 1}\n{\"text\": \"\", \"y\": 0}\n", 0, 5, 6, 2, {"0", "1"}},
    };
    fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(&f, cases[i].text);
        for (int time = 0; time < 2; time++) {
            rcv_data *data = open_data(&f, &RCV_INIT(rcv_data_options, .kind = RCV_DATA_CLASSES));
            assert_int_equal(rcv_data_features(data), cases[i].features);
            assert_int_equal(rcv_data_longest(data), cases[i].longest);
            assert_int_equal(rcv_data_tokens(data), cases[i].tokens);
            check_classes(data, cases[i].names, cases[i].count);
            if (cases[i].features > 0)
                assert_null(rcv_data_vocabulary(data));
            else
                check_words(data, "b a <eos> b <eos> <eos>");
            rcv_data_free(data);
        }
    }
    close_fixture(&f);
}

static void test_given_classes(void **unused) {
    (void)unused;
    static const char *const sorted[] = {"1", "2", "x"}, *const own[] = {"x", "7", "2"};
    fixture f;
    open_fixture(&f);
    write_text(&f, "{\"x\": [1], \"y\": \"x\"}\n{\"x\": [1], \"y\": 2}\n{\"x\": [1], \"y\": 1}\n");
    rcv_data *data = open_data(&f, &RCV_INIT(rcv_data_options, .kind = RCV_DATA_CLASSES));
    check_classes(data, sorted, 3);
    write_text(&f, "2 5 6\n");
    rcv_data *alone = open_data(&f, &RCV_INIT(rcv_data_options, .kind = RCV_DATA_CLASSES));
    check_classes(alone, sorted + 1, 1);
    rcv_data *same = open_data(&f, &RCV_INIT(rcv_data_options, .kind = RCV_DATA_CLASSES, .like = data));
    check_classes(same, sorted, 3);
    rcv_data *named =
        open_data(&f, &RCV_INIT(rcv_data_options, .kind = RCV_DATA_CLASSES, .classes = own, .class_count = 3));
    check_classes(named, own, 3);
    rcv_data_free(named);
    rcv_data_free(same);
    rcv_data_free(alone);
    rcv_data *wrong = NULL;
    write_text(&f, "2 5 6\n3 1\n");
    check_fails(
        rcv_data_open(f.context, f.path, &RCV_INIT(rcv_data_options, .kind = RCV_DATA_CLASSES, .like = data), &wrong),
        RCV_FORMAT, "line 2 has the class '3', which is not one of the 3");
    write_text(&f, "{\"x\": [[1, 2]], \"y\": 2}\n");
    check_fails(
        rcv_data_open(f.context, f.path, &RCV_INIT(rcv_data_options, .kind = RCV_DATA_CLASSES, .like = data), &wrong),
        RCV_FORMAT, "2 features");
    check_fails(rcv_data_open(f.context, f.path, &RCV_INIT(rcv_data_options, .like = data), &wrong), RCV_INVALID,
                "classes");
    rcv_data_free(data);
    close_fixture(&f);
}

static void test_wrong_examples(void **unused) {
    (void)unused;
    static const struct {
        rcv_data_kind kind;
        const char *text, *fragment;
    } cases[] = {
        {RCV_DATA_CLASSES, "1 2\n1 2 x\n", "line 2 has 'x', which is not a number"},
        {RCV_DATA_CLASSES, "1 2\n\n1.5 2\n", "line 3 has the class 1.5"},
        {RCV_DATA_CLASSES, "1 2 nan\n", "float cannot hold"},
        {RCV_DATA_VALUES, "1 1e39\n", "float cannot hold"},
        {RCV_DATA_CLASSES, "1\n", "only a label"},
        {RCV_DATA_CLASSES, "1,,2\n", "no number before the comma at its byte 3"},
        {RCV_DATA_CLASSES, "1 2\n{\"x\": [[1, 2]], \"y\": 1}",
         "line 2 has 2 features where the examples before have 1"},
        {RCV_DATA_CLASSES, "{\"x\": [[1, 2], [3]], \"y\": 1}", "1 features at time step 1"},
        {RCV_DATA_CLASSES, "{\"x\": [[1, 2], 3], \"y\": 1}", "both numbers and lists"},
        {RCV_DATA_CLASSES, "{\"x\": [[]], \"y\": 1}", "0 features"},
        {RCV_DATA_CLASSES, "{\"x\": [1, \"a\"], \"y\": 1}", "no number at time step 1"},
        {RCV_DATA_CLASSES, "{\"x\": [], \"y\": 1}", "no time steps"},
        {RCV_DATA_CLASSES, "{\"x\": 3, \"y\": 1}", "no time steps"},
        {RCV_DATA_CLASSES, "{\"y\": 1}", "needs one of"},
        {RCV_DATA_CLASSES, "{\"x\": [1], \"text\": \"a\", \"y\": 1}", "needs one of"},
        {RCV_DATA_CLASSES, "{\"x\": [1]}", "no \"y\" that is a whole number"},
        {RCV_DATA_CLASSES, "{\"x\": [1], \"y\": true}", "no \"y\" that is a whole number"},
        {RCV_DATA_CLASSES, "{\"x\": [1], \"y\": \"\"}", "name of 0 bytes"},
        {RCV_DATA_VALUES, "{\"x\": [1], \"y\": \"a\"}", "a number or a list of numbers"},
        {RCV_DATA_VALUES, "{\"x\": [1], \"y\": [1, \"a\"]}", "element 1 is not a number"},
        {RCV_DATA_VALUES, "1 2\n{\"x\": [1], \"y\": [1, 2]}", "line 2 has 2 values where the examples before have 1"},
        {RCV_DATA_CLASSES, "1 2\n{\"text\": \"a\", \"y\": 1}", "line 2 is a text, unlike"},
        {RCV_DATA_CLASSES, "{\"text\": 3, \"y\": 1}", "not a text"},
        {RCV_DATA_CLASSES, "{\"x\": [1], \"y\": 1", "line 1 is not a JSON object"},
        {RCV_DATA_CLASSES, "{\"text\": \"\xff\", \"y\": 1}", "line 1 is not a JSON object"},
        {RCV_DATA_STEP_CLASSES, "1 2 3\n", "line 1 is not a JSON object; with a target at every time step"},
        {RCV_DATA_STEP_CLASSES, "{\"text\": \"a\", \"y\": [1]}", "line 1 is a text"},
        {RCV_DATA_STEP_CLASSES, "{\"x\": [1, 2], \"y\": 1}", "a list with a target for every time step"},
        {RCV_DATA_STEP_CLASSES, "{\"x\": [1, 2]}", "a list with a target for every time step"},
        {RCV_DATA_STEP_CLASSES, "{\"x\": [1, 2], \"y\": [1]}", "has 1 targets in \"y\" for 2 time steps"},
        {RCV_DATA_STEP_CLASSES, "{\"x\": [1], \"y\": [true]}", "no whole number, text or null at time step 0"},
        {RCV_DATA_STEP_CLASSES, "{\"x\": [1], \"y\": [0.5]}", "has the class 0.5"},
        {RCV_DATA_STEP_CLASSES, "{\"x\": [1], \"y\": [\"\"]}", "name of 0 bytes"},
        {RCV_DATA_STEP_CLASSES, "{\"x\": [1, 2], \"y\": [null, null]}", "holds no targets"},
        {RCV_DATA_STEP_VALUES, "{\"x\": [1, 2], \"y\": [null, null]}", "holds no targets"},
        {RCV_DATA_STEP_VALUES, "{\"x\": [1, 2], \"y\": [[1, 2], [3]]}", "has 1 values at time step 1"},
        {RCV_DATA_STEP_VALUES, "{\"x\": [1, 2], \"y\": [[], 1]}", "an empty list at time step 0"},
        {RCV_DATA_STEP_VALUES, "{\"x\": [1, 2], \"y\": [1, \"a\"]}", "no number at time step 1 of \"y\""},
        {RCV_DATA_STEP_VALUES, "{\"x\": [1, 2], \"y\": [null, 1e39]}", "float cannot hold"},
        {RCV_DATA_STEP_VALUES, "{\"x\": [1], \"y\": [1]}\n{\"x\": [1], \"y\": [[1, 2]]}",
         "line 2 has 2 values where the examples before have 1"},
        {RCV_DATA_VALUES, "{\"x\": [1, null], \"y\": 1}", "a missing feature at time step 1"},
    };
    fixture f;
    open_fixture(&f);
    rcv_data *data = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(&f, cases[i].text);
        check_fails(rcv_data_open(f.context, f.path, &RCV_INIT(rcv_data_options, .kind = cases[i].kind), &data),
                    RCV_FORMAT, cases[i].fragment);
    }
    write_text(&f, "{\"text\": \"\", \"y\": 1}\n");
    check_fails(rcv_data_open(f.context, f.path,
                              &RCV_INIT(rcv_data_options, .kind = RCV_DATA_CLASSES, .level = RCV_LEVEL_BYTE), &data),
                RCV_FORMAT, "empty text");
    close_fixture(&f);
}

/* ---- the token cache ---- */

static ino_t number_of(const char *path) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_ino;
}

static void check_reads(const fixture *f, const rcv_data_options *options, const char *words) {
    rcv_data *data = open_data(f, options);
    check_words(data, words);
    rcv_data_free(data);
}

/* Whether opening used the existing cache: a new one has another inode. */
static bool is_believed(const fixture *f, const rcv_data_options *options, const char *words) {
    const ino_t before = number_of(f->cache);
    check_reads(f, options, words);
    return number_of(f->cache) == before;
}

static void test_damage(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    write_text(&f, "a b c\nb\n");
    const char *words = "a b c <eos> b <eos>";
    check_reads(&f, NULL, words);
    char good[4096], bad[4096];
    FILE *file = fopen(f.cache, "rb");
    assert_non_null(file);
    const size_t length = fread(good, 1, sizeof good, file);
    fclose(file);
    assert_in_range(length, 100, sizeof good - 1);
    assert_true(is_believed(&f, NULL, words));
    size_t harmless = 0;
    for (size_t i = 0; i < length; i += 5) { /* every field */
        memcpy(bad, good, length);
        bad[i] ^= 0x10;
        write_bytes(f.cache, bad, length);
        harmless += is_believed(&f, NULL, words);
    }
    assert_int_equal(harmless, 0);
    for (size_t i = 0; i < length; i += 41) {
        write_bytes(f.cache, good, i);
        assert_false(is_believed(&f, NULL, words));
    }
    memcpy(bad, good, length);
    bad[length] = 0;
    write_bytes(f.cache, bad, length + 1);
    assert_false(is_believed(&f, NULL, words));
    write_bytes(f.cache, good, length);
    assert_true(is_believed(&f, NULL, words));
    close_fixture(&f);
}

static void test_stale(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    write_text(&f, "a b\n");
    check_reads(&f, NULL, "a b <eos>");
    write_text(&f, "b a\n");
    assert_false(is_believed(&f, NULL, "b a <eos>"));
    assert_false(is_believed(&f, &RCV_INIT(rcv_data_options, .kind = RCV_DATA_LINES), "b a <eos>"));
    assert_true(is_believed(&f, &RCV_INIT(rcv_data_options, .kind = RCV_DATA_LINES), "b a <eos>"));
    rcv_vocabulary *first = NULL, *second = NULL;
    check_ok(rcv_vocabulary_parse(f.context, "<eos>\na\n<unk>\n", 14, "words", &first));
    check_ok(rcv_vocabulary_parse(f.context, "<eos>\nb\n<unk>\n", 14, "words", &second));
    assert_false(is_believed(&f, &RCV_INIT(rcv_data_options, .vocabulary = first), "<unk> a <eos>"));
    assert_true(is_believed(&f, &RCV_INIT(rcv_data_options, .vocabulary = first), "<unk> a <eos>"));
    assert_false(is_believed(&f, &RCV_INIT(rcv_data_options, .vocabulary = second), "b <unk> <eos>"));
    rcv_vocabulary_free(first);
    rcv_vocabulary_free(second);
    rcv_data *one = open_data(&f, NULL), *other = open_data(&f, &RCV_INIT(rcv_data_options, .kind = RCV_DATA_LINES));
    assert_true(rcvi_data_hash(one) != rcvi_data_hash(other));
    rcv_data_free(one);
    rcv_data_free(other);
    close_fixture(&f);
}

static void test_places(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    write_text(&f, "a b\n");
    char folder[512], caches[512], inside[600];
    snprintf(folder, sizeof folder, "%s", path_in("folder"));
    snprintf(caches, sizeof caches, "%s", path_in("caches"));
    snprintf(inside, sizeof inside, "%s/recurve", caches);
    /* A given folder, which is created. */
    for (int time = 0; time < 2; time++) {
        check_reads(&f, &RCV_INIT(rcv_data_options, .cache = folder), "a b <eos>");
        assert_int_equal(entries(folder), 1);
    }
    assert_int_equal(entries(scratch()), 2);
    char command[1200];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
    /* A path that cannot be a folder: the cache is an unnamed temporary file. */
    for (int time = 0; time < 2; time++) check_reads(&f, &RCV_INIT(rcv_data_options, .cache = f.path), "a b <eos>");
    assert_int_equal(entries(scratch()), 1);
    /* The path next to the text is blocked: the user's cache folder is used. */
    assert_int_equal(mkdir(f.cache, 0700), 0);
    assert_int_equal(setenv("XDG_CACHE_HOME", caches, 1), 0);
    for (int time = 0; time < 2; time++) {
        check_reads(&f, NULL, "a b <eos>");
        assert_int_equal(entries(inside), 1);
    }
    assert_int_equal(entries(scratch()), 3);
    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    snprintf(command, sizeof command, "rm -r '%s' '%s'", caches, f.cache);
    assert_int_equal(system(command), 0);
    close_fixture(&f);
}

/* ---- memory ---- */

/* Kilobytes of files mapped by this process; -1 if the system does not report it. */
static long held_of_files(void) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long held = -1, part;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "RssFile: %ld", &part) == 1 || sscanf(line, "RssShmem: %ld", &part) == 1)
            held = (held < 0 ? 0 : held) + part;
    }
    if (file) fclose(file);
    return held;
}

/* Memory does not grow with the length of a text. */
static void test_little_is_held(void **unused) {
    (void)unused;
    enum { BYTES = 160 << 20, PART = 1 << 20 };
    const long before = held_of_files();
    if (before < 0) skip();
    fixture f;
    open_fixture(&f);
    write_text(&f, "");
    assert_int_equal(truncate(f.path, BYTES), 0); /* a sparse file */
    rcv_data *data = open_data(&f, &RCV_INIT(rcv_data_options, .level = RCV_LEVEL_BYTE));
    int32_t *tokens = malloc(PART * sizeof *tokens);
    assert_non_null(tokens);
    long most = before;
    for (int64_t i = 0; i < BYTES; i += PART) {
        check_ok(rcvi_data_read_tokens(data, i, PART, tokens));
        const long held = held_of_files();
        most = held > most ? held : most;
    }
    assert_in_range(most - before, 0, 4 << 10);
    free(tokens);
    rcv_data_free(data);
    close_fixture(&f);
}

static void test_no_memory(void **unused) {
    (void)unused;
    static const struct {
        rcv_data_options options;
        const char *text;
    } cases[] = {
        {{.kind = RCV_DATA_STREAM}, "a b c\nb\n"},
        {{.kind = RCV_DATA_LINES, .level = RCV_LEVEL_BYTE}, "a b c\nb\n"},
        {{.kind = RCV_DATA_CLASSES}, "{\"text\": \"a b\", \"y\": \"c\"}\n"},
        {{.kind = RCV_DATA_VALUES}, "1 2 3\n4 5\n"},
    };
    fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        write_text(&f, cases[i / 2].text);
        const bool cached = i % 2 == 1;
        size_t tried = 0;
        rcv_status status = RCV_NO_MEMORY;
        while (status != RCV_OK) {
            const size_t live = f.allocator.live, failed = f.allocator.failed;
            rcv_data *data = NULL;
            if (!cached) unlink(f.cache);
            f.allocator.fail_at = ++tried;
            rcv_data_options options = cases[i / 2].options;
            options.size = sizeof options;
            status = rcv_data_open(f.context, f.path, &options, &data);
            f.allocator.fail_at = 0;
            assert_int_equal(status, f.allocator.failed > failed ? RCV_NO_MEMORY : RCV_OK);
            assert_true((status == RCV_OK) == (data != NULL));
            rcv_data_free(data);
            assert_int_equal(f.allocator.live, live);
        }
        assert_true(tried > 4);
    }
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_given_vocabulary),
        cmocka_unit_test(test_wrong_vocabulary),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_wrong_texts),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_given_classes),
        cmocka_unit_test(test_wrong_examples),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_stale),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_little_is_held),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
