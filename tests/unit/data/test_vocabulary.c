/* Vocabularies of characters, texts that are read by them, and tokens of texts in memory. */
#define _XOPEN_SOURCE 700

#include "test.h"

#include "data/data.h"
#include "memory_faults.h"
#include "scratch.h"

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
}

static void write_bytes(const fixture *f, const void *bytes, size_t length) {
    FILE *file = fopen(f->path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static void write_text(const fixture *f, const char *text) { write_bytes(f, text, strlen(text)); }

static rcv_data *open_data(const fixture *f, rcv_data_kind kind, const rcv_vocabulary *vocabulary) {
    rcv_data *data = NULL;
    check_ok(rcv_data_open(
        f->context, f->path,
        &RCV_INIT(rcv_data_options, .level = RCV_LEVEL_CHARACTER, .kind = kind, .vocabulary = vocabulary), &data));
    return data;
}

/* The tokens' bytes; an unknown character as "?". */
static void check_text(const rcv_data *data, const char *expected) {
    const int64_t count = rcv_data_tokens(data);
    int32_t *tokens = calloc((size_t)count, sizeof *tokens);
    char *text = calloc((size_t)count + 1, 8);
    assert_true(tokens && text);
    check_ok(rcvi_data_read_tokens(data, 0, count, tokens));
    for (int64_t i = 0; i < count; i++) {
        size_t length;
        const char *bytes = rcv_vocabulary_token(rcv_data_vocabulary(data), tokens[i], &length);
        assert_non_null(bytes);
        strncat(text, length > 4 ? "?" : bytes, length);
    }
    assert_string_equal(text, expected);
    free(tokens);
    free(text);
}

static void check_vocabulary(rcv_context *context, const rcv_vocabulary *vocabulary, const char *expected) {
    char *text = NULL;
    check_ok(rcv_vocabulary_print(vocabulary, &text));
    assert_string_equal(text, expected);
    rcv_vocabulary *again = NULL;
    check_ok(rcv_vocabulary_parse(context, text, strlen(text), "again", &again));
    assert_int_equal(rcv_vocabulary_level(again), RCV_LEVEL_CHARACTER);
    assert_int_equal(rcv_vocabulary_size(again), rcv_vocabulary_size(vocabulary));
    for (int64_t i = 0; i < rcv_vocabulary_size(vocabulary); i++) {
        size_t length, own;
        const char *bytes = rcv_vocabulary_token(vocabulary, i, &length), *same = rcv_vocabulary_token(again, i, &own);
        assert_int_equal(length, own);
        assert_memory_equal(bytes, same, length);
    }
    rcv_vocabulary_free(again);
    rcv_text_free(context, text);
}

/* ---- files ---- */

static void test_stream(void **unused) {
    (void)unused;
    static const struct {
        const char *text, *vocabulary;
    } cases[] = {
        {"b\xc3\xa9 b\n", "recurve characters\nb\n\\n\n\\u{20}\n\xc3\xa9\n<unk>\n"},
        {"aa", "recurve characters\na\n\\n\n<unk>\n"}, /* the newline is always there */
        {"\\\t\r\xc2\x85\xe3\x80\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80",
         "recurve characters\n\xf0\x9f\x98\x80\n\\t\n\\r\n\\\\\n\\u{85}\n\\u{3000}\n\\n\n<unk>\n"},
    };
    fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(&f, cases[i].text);
        for (int time = 0; time < 2; time++) { /* from the text, then from the token cache */
            rcv_data *data = open_data(&f, RCV_DATA_STREAM, NULL);
            check_text(data, cases[i].text);
            check_vocabulary(f.context, rcv_data_vocabulary(data), cases[i].vocabulary);
            assert_int_equal(rcv_data_level(data), RCV_LEVEL_CHARACTER);
            assert_int_equal(rcv_data_outputs(data), rcv_vocabulary_size(rcv_data_vocabulary(data)));
            rcv_data_free(data);
        }
    }
    write_bytes(&f, "a\0b", 3); /* NUL is a character, too */
    rcv_data *data = open_data(&f, RCV_DATA_STREAM, NULL);
    check_vocabulary(f.context, rcv_data_vocabulary(data), "recurve characters\n\\u{0}\na\nb\n\\n\n<unk>\n");
    assert_int_equal(rcv_data_tokens(data), 3);
    rcv_data_free(data);
    close_fixture(&f);
}

static void test_lines(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    write_text(&f, "\n\xc3\xa9\xc3\xa9x\n \n\n\xe6\x97\xa5");
    int64_t counts[5];
    for (int time = 0; time < 2; time++) {
        rcv_data *data = open_data(&f, RCV_DATA_LINES, NULL);
        assert_int_equal(rcv_data_sequences(data), 3);
        assert_int_equal(rcv_data_tokens(data), 4 + 2 + 2);
        assert_int_equal(rcv_data_longest(data), 4);
        check_ok(rcv_data_lengths(data, counts));
        assert_memory_equal(counts, ((int64_t[]){0, 0, 2, 0, 1}), sizeof counts);
        check_text(data, "\xc3\xa9\xc3\xa9x\n \n\xe6\x97\xa5\n");
        rcv_data_free(data);
    }
    close_fixture(&f);
}

static void test_examples(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    write_text(&f, "{\"text\": \"\xc3\xa9z\\n\", \"y\": \"p\"}\n{\"text\": \"z\", \"y\": \"q\"}\n");
    for (int time = 0; time < 2; time++) {
        rcv_data *data = open_data(&f, RCV_DATA_CLASSES, NULL);
        assert_int_equal(rcv_data_sequences(data), 2);
        assert_int_equal(rcv_data_outputs(data), 2);
        check_text(data, "\xc3\xa9z\nz");
        check_vocabulary(f.context, rcv_data_vocabulary(data), "recurve characters\nz\n\\n\n\xc3\xa9\n<unk>\n");
        rcv_data_free(data);
    }
    write_text(&f, "{\"text\": \"a\", \"y\": 1}\n{\"text\": \"\", \"y\": 1}\n");
    rcv_data *data;
    check_fails(rcv_data_open(f.context, f.path,
                              &RCV_INIT(rcv_data_options, .level = RCV_LEVEL_CHARACTER, .kind = RCV_DATA_CLASSES),
                              &data),
                RCV_FORMAT, "line 2 has a text without tokens");
    close_fixture(&f);
}

static void test_unknown(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    write_text(&f, "ab\n");
    rcv_data *data = open_data(&f, RCV_DATA_STREAM, NULL);
    write_text(&f, "b\xc3\xa9"
                   "a\xf0\x9f\x98\x80\n");
    rcv_data *other = open_data(&f, RCV_DATA_STREAM, rcv_data_vocabulary(data));
    check_text(other, "b?a?\n");
    rcv_data_free(other);
    check_fails(
        rcv_data_open(f.context, f.path, &RCV_INIT(rcv_data_options, .vocabulary = rcv_data_vocabulary(data)), &other),
        RCV_INVALID, "a vocabulary of characters cannot be used for a text at word level");
    check_fails(rcv_data_open(f.context, f.path, &RCV_INIT(rcv_data_options, .level = RCV_LEVEL_PIECE), &other),
                RCV_INVALID, "needs a tokenizer.json");
    rcv_data_free(data);
    close_fixture(&f);
}

static void test_wrong_text(void **unused) {
    (void)unused;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"ab\xff"
         "c",
         "is not UTF-8 at byte 2; read it at byte level"},
        {"\xc3\xa9\xc3", "is not UTF-8 at byte 2"},
        {"a\xed\xa0\x80", "is not UTF-8 at byte 1"}, /* a surrogate */
        {"a\xc0\xaf", "is not UTF-8 at byte 1"},     /* overlong */
    };
    fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        write_text(&f, cases[i / 2].text);
        rcv_data *data;
        const rcv_data_options options =
            RCV_INIT(rcv_data_options, .level = RCV_LEVEL_CHARACTER, .kind = i % 2 ? RCV_DATA_LINES : RCV_DATA_STREAM);
        check_fails(rcv_data_open(f.context, f.path, &options, &data), RCV_FORMAT, cases[i / 2].message);
    }
    close_fixture(&f);
}

/* Characters of three bytes across the ends of all parts in which a file is read. */
static void test_long_text(void **unused) {
    (void)unused;
    enum { CHARACTERS = 600000 };
    fixture f;
    open_fixture(&f);
    char *text = malloc(3 * CHARACTERS + 1);
    assert_non_null(text);
    for (int shift = 0; shift < 2; shift++) {
        size_t at = 0;
        for (; at < (size_t)shift; at++) text[at] = 'x';
        for (int i = 0; i < CHARACTERS; i++, at += 3) memcpy(text + at, i % 7 ? "\xe6\x97\xa5" : "\xe6\x9c\xac", 3);
        write_bytes(&f, text, at);
        rcv_data *data = open_data(&f, RCV_DATA_STREAM, NULL);
        assert_int_equal(rcv_data_tokens(data), CHARACTERS + shift);
        int32_t *tokens = calloc((size_t)CHARACTERS + 1, sizeof *tokens);
        check_ok(rcvi_data_read_tokens(data, 0, CHARACTERS + shift, tokens));
        for (int i = 0; i < CHARACTERS; i++) assert_int_equal(tokens[i + shift], i % 7 ? 0 : 1);
        free(tokens);
        rcv_data_free(data);
    }
    free(text);
    close_fixture(&f);
}

/* ---- vocabularies as text ---- */

static void test_parse(void **unused) {
    (void)unused;
    static const struct {
        const char *text, *message; /* of a refusal; NULL: it is good */
    } cases[] = {
        {"recurve characters\na\n\\n\n<unk>\n", NULL},
        {"recurve characters\n\\u{1f600}\n\\n", NULL},
        {"recurve characters\na\n", "needs the newline"},
        {"recurve characters\nab\n", "line 2 is neither one character"},
        {"recurve characters\na\n\n", "line 3 is neither one character"},
        {"recurve characters\n\\x\n", "line 2 is neither one character"},
        {"recurve characters\n\\u{d800}\n", "line 2 is neither one character"},
        {"recurve characters\n\\u{110000}\n", "line 2 is neither one character"},
        {"recurve characters\n\\u{}\n", "line 2 is neither one character"},
        {"recurve characters\n\xff\n", "line 2 is neither one character"},
        {"recurve characters\na\n\\u{61}\n", "line 3 repeats the character of line 2"},
        {"recurve characters x\n", "line 1 has several words"},
        {"recurve\ncharacters\n", NULL}, /* words */
    };
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rcv_vocabulary *vocabulary = NULL;
        const rcv_status status =
            rcv_vocabulary_parse(context, cases[i].text, strlen(cases[i].text), "list", &vocabulary);
        if (cases[i].message)
            check_fails(status, RCV_FORMAT, cases[i].message);
        else
            check_ok(status);
        assert_true((vocabulary == NULL) == (cases[i].message != NULL));
        rcv_vocabulary_free(vocabulary);
    }
    test_context_end(&allocator, context);
}

/* ---- texts in memory ---- */

static void check_codec(const rcv_vocabulary *vocabulary, const char *text, const char *back, size_t expected) {
    int64_t tokens[64];
    size_t count = 0, at = 0;
    char decoded[256] = "";
    check_ok(rcv_vocabulary_encode(vocabulary, text, strlen(text), NULL, 0, &count));
    assert_int_equal(count, expected);
    tokens[2] = -7;
    check_ok(rcv_vocabulary_encode(vocabulary, text, strlen(text), tokens, 2, &count));
    assert_int_equal(count, expected);
    assert_int_equal(tokens[2], -7); /* there was room for two */
    check_ok(rcv_vocabulary_encode(vocabulary, text, strlen(text), tokens, 64, &count));
    for (size_t i = 0; i < count; i++) {
        size_t length, same;
        check_ok(rcv_vocabulary_decode(vocabulary, i > 0 ? tokens[i - 1] : -1, tokens[i], decoded + at,
                                       sizeof decoded - at, &length));
        check_ok(rcv_vocabulary_decode(vocabulary, i > 0 ? tokens[i - 1] : -1, tokens[i], NULL, 0, &same));
        assert_int_equal(length, same);
        at += length;
    }
    decoded[at] = '\0';
    assert_string_equal(decoded, back);
}

static void test_codec(void **unused) {
    (void)unused;
    static const char words[] = "the\ncat\n<eos>\n<unk>\n",
                      characters[] = "recurve characters\na\n\\n\n\xc3\xa9\n<unk>\n", closed[] = "a\n";
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_vocabulary *vocabulary;
    check_ok(rcv_vocabulary_parse(context, words, strlen(words), "words", &vocabulary));
    check_codec(vocabulary, " the  cat\n\nthe dog", "the cat\n\nthe <unk>", 6);
    check_codec(vocabulary, "the cat\n", "the cat\n", 3);
    check_codec(vocabulary, "", "", 0);
    size_t length;
    check_fails(rcv_vocabulary_decode(vocabulary, -1, 4, NULL, 0, &length), RCV_INVALID, "token 4 is not in 0 to 3");
    check_fails(rcv_vocabulary_decode(vocabulary, 9, 1, NULL, 0, &length), RCV_INVALID, "token 9 is not in 0 to 3");
    rcv_vocabulary_free(vocabulary);
    check_ok(rcv_vocabulary_parse(context, characters, strlen(characters), "characters", &vocabulary));
    check_codec(vocabulary,
                "\xc3\xa9"
                "a\nz",
                "\xc3\xa9"
                "a\n<unk>",
                4);
    check_fails(rcv_vocabulary_encode(vocabulary, "a\xff", 2, NULL, 0, &length), RCV_FORMAT, "not UTF-8 at byte 1");
    rcv_vocabulary_free(vocabulary);
    check_ok(rcv_vocabulary_bytes(context, &vocabulary));
    check_codec(vocabulary, "\xff\n", "\xff\n", 2);
    rcv_vocabulary_free(vocabulary);
    check_ok(rcv_vocabulary_parse(context, closed, strlen(closed), "closed", &vocabulary));
    check_fails(rcv_vocabulary_encode(vocabulary, "a b", 3, NULL, 0, &length), RCV_FORMAT,
                "the word 'b' is not in the vocabulary");
    check_fails(rcv_vocabulary_encode(vocabulary, "a\n", 2, NULL, 0, &length), RCV_FORMAT, "the word '<eos>'");
    rcv_vocabulary_free(vocabulary);
    test_context_end(&allocator, context);
}

static void test_no_memory(void **unused) {
    (void)unused;
    static const char text[] = "recurve characters\na\n\\n\n\xc3\xa9\n<unk>\n";
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_vocabulary *vocabulary = NULL;
    int64_t tokens[8];
    size_t count = 0, length = 0;
    char *printed = NULL, decoded[8];
    memory_faults_begin(&allocator);
    rcv_status status = rcv_vocabulary_parse(context, text, strlen(text), "list", &vocabulary);
    if (!status) status = rcv_vocabulary_encode(vocabulary, "a\xc3\xa9z", 4, tokens, 8, &count);
    if (!status) status = rcv_vocabulary_decode(vocabulary, tokens[0], tokens[1], decoded, sizeof decoded, &length);
    if (!status) status = rcv_vocabulary_print(vocabulary, &printed);
    memory_faults_stop(&allocator);
    assert_int_equal(status, allocator.failed ? RCV_NO_MEMORY : RCV_OK);
    if (!status) assert_string_equal(printed, text);
    rcv_text_free(context, printed);
    rcv_vocabulary_free(vocabulary);
    test_context_end(&allocator, context);
    assert_true(memory_faults_end(&allocator) >= sample_least(8));
}

static void test_no_memory_for_data(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    write_text(&f, "b\xc3\xa9 b\nx\n");
    for (int i = 0; i < 4; i++) {
        rcv_status status = RCV_NO_MEMORY;
        size_t tried = 0;
        while (status != RCV_OK) {
            const size_t live = f.allocator.live, failed = f.allocator.failed;
            rcv_data *data = NULL;
            if (i % 2 == 0) unlink(f.cache);
            f.allocator.fail_at = ++tried;
            status = rcv_data_open(f.context, f.path,
                                   &RCV_INIT(rcv_data_options, .level = RCV_LEVEL_CHARACTER,
                                             .kind = i / 2 ? RCV_DATA_LINES : RCV_DATA_STREAM),
                                   &data);
            f.allocator.fail_at = 0;
            assert_int_equal(status, f.allocator.failed > failed ? RCV_NO_MEMORY : RCV_OK);
            rcv_data_free(data);
            assert_int_equal(f.allocator.live, live);
        }
        assert_true(tried > 4);
    }
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream),     cmocka_unit_test(test_lines),
        cmocka_unit_test(test_examples),   cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_wrong_text), cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_parse),      cmocka_unit_test(test_codec),
        cmocka_unit_test(test_no_memory),  cmocka_unit_test(test_no_memory_for_data),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
