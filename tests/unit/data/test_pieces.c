/* Byte-pair encoding. The tokens of tests/support/tokenizers are those that the package `tokenizers` gives (scripts/make_tokenizers.py). */
#define _XOPEN_SOURCE 700

#include "test.h"

#include "base/random.h"
#include "data/data.h"
#include "data/vocabulary/encoder.h"
#include "memory_faults.h"
#include "scratch.h"

#include <jansson.h>
#include <unistd.h>

#define FOLDER RCV_SOURCE_DIR "/tests/support/tokenizers/"

static rcv_vocabulary *load(rcv_context *context, const char *name) {
    char path[512];
    rcv_vocabulary *vocabulary = NULL;
    snprintf(path, sizeof path, FOLDER "%s.json", name);
    check_ok(rcv_vocabulary_load(context, path, &vocabulary));
    assert_int_equal(rcv_vocabulary_level(vocabulary), RCV_LEVEL_PIECE);
    return vocabulary;
}

/* Tokens that grow. */
typedef struct {
    int64_t *tokens;
    size_t count, room;
} list;

static rcv_status take(void *user, const int32_t *tokens, size_t count) {
    list *l = user;
    while (l->count + count > l->room) {
        l->room = l->room ? 2 * l->room : 64;
        l->tokens = realloc(l->tokens, l->room * sizeof *l->tokens);
        assert_non_null(l->tokens);
    }
    for (size_t i = 0; i < count; i++) l->tokens[l->count++] = tokens[i];
    return RCV_OK;
}

static list encode(const rcv_vocabulary *vocabulary, const char *text, size_t length) {
    list l = {0};
    check_ok(rcv_vocabulary_encode(vocabulary, text, length, NULL, 0, &l.count));
    l.tokens = calloc(l.count + 1, sizeof *l.tokens);
    assert_non_null(l.tokens);
    check_ok(rcv_vocabulary_encode(vocabulary, text, length, l.tokens, l.count, &l.count));
    return l;
}

static void check_tokens(const char *name, const char *text, const list *l, const json_t *expected) {
    bool same = l->count == json_array_size(expected);
    for (size_t i = 0; i < l->count && same; i++)
        same = l->tokens[i] == json_integer_value(json_array_get(expected, i));
    if (!same) fail_msg("%s: other tokens than expected for \"%s\"", name, text);
}

/* What the tokens are as text, one by one. */
static char *decode(const rcv_vocabulary *vocabulary, const list *l) {
    char *text = calloc(l->count + 1, 64);
    size_t at = 0, length;
    assert_non_null(text);
    for (size_t i = 0; i < l->count; i++, at += length)
        check_ok(
            rcv_vocabulary_decode(vocabulary, i > 0 ? l->tokens[i - 1] : -1, l->tokens[i], text + at, 64, &length));
    text[at] = '\0';
    return text;
}

/* ---- tokens of the package ---- */

static void test_cases(void **unused) {
    (void)unused;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    json_t *cases = json_load_file(FOLDER "cases.json", JSON_ALLOW_NUL, NULL), *texts = json_object_get(cases, "texts"),
           *expected;
    const char *name;
    size_t checked = 0;
    assert_true(json_array_size(texts) > 10 && json_object_size(cases) > 10);
    json_object_foreach(cases, name, expected) {
        if (expected == texts) continue;
        rcv_vocabulary *vocabulary = load(context, name);
        for (size_t i = 0; i < json_array_size(texts); i++) {
            const json_t *text = json_array_get(texts, i);
            list l = encode(vocabulary, json_string_value(text), json_string_length(text));
            check_tokens(name, json_string_value(text), &l, json_array_get(expected, i));
            checked += l.count;
            free(l.tokens);
        }
        rcv_vocabulary_free(vocabulary);
    }
    assert_true(checked > 3000);
    json_decref(cases);
    test_context_end(&allocator, context);
}

/* A text in parts of all sizes has the tokens of the whole text. */
static void test_parts(void **unused) {
    (void)unused;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    json_t *cases = json_load_file(FOLDER "cases.json", JSON_ALLOW_NUL, NULL), *texts = json_object_get(cases, "texts"),
           *expected;
    const char *name;
    json_object_foreach(cases, name, expected) {
        if (expected == texts) continue;
        rcv_vocabulary *vocabulary = load(context, name);
        for (size_t i = 0; i < json_array_size(texts); i++) {
            const char *text = json_string_value(json_array_get(texts, i));
            const size_t length = json_string_length(json_array_get(texts, i));
            for (size_t step = 1; step < 12; step++) {
                list l = {0};
                rcvi_encoder *encoder;
                check_ok(rcvi_encoder_new(vocabulary, "parts", step % 2, take, &l, &encoder));
                for (size_t from = 0, to = 0, used; to < length || from == 0; from += used) {
                    const bool ends = to + step >= length;
                    to = ends ? length : to + step;
                    char *part = malloc(to - from + 1); /* so that a sanitizer sees what is read behind it */
                    assert_non_null(part);
                    memcpy(part, text + from, to - from);
                    check_ok(rcvi_encoder_part(encoder, part, to - from, ends, (int64_t)from, &used));
                    free(part);
                    assert_true(used <= to - from && (!ends || used == to - from));
                    if (ends) break;
                }
                check_tokens(name, text, &l, json_array_get(expected, i));
                rcvi_encoder_free(encoder);
                free(l.tokens);
            }
        }
        rcv_vocabulary_free(vocabulary);
    }
    json_decref(cases);
    test_context_end(&allocator, context);
}

/* ---- text of tokens ---- */

static void test_decode(void **unused) {
    (void)unused;
    static const struct {
        const char *name, *text, *back;
    } cases[] = {
        {"gpt2", "  H\xc3\xa4user,\n\n\xf0\x9f\x98\x80 x<|endoftext|>",
         "  H\xc3\xa4user,\n\n\xf0\x9f\x98\x80 x<|endoftext|>"},
        {"prefix", "The cat", " The cat"},
        {"llama3", "I'VE 1234  x\r\n", "I'VE 1234  x\r\n"},
        {"metaspace", "the  cat \xe6\x97\xa5 x", "the  cat \xe6\x97\xa5 x"},
        {"always", "the cat", "the cat"},
        {"suffix", "the  cat sat", "the cat sat"},
        {"unknown", "the cat", NULL}, /* there is no decoder: a space between tokens */
    };
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rcv_vocabulary *vocabulary = load(context, cases[i].name);
        list l = encode(vocabulary, cases[i].text, strlen(cases[i].text));
        char *text = decode(vocabulary, &l);
        if (cases[i].back) assert_string_equal(text, cases[i].back);
        for (size_t k = 0; !cases[i].back && k < l.count; k++) {
            size_t length;
            const char *piece = rcv_vocabulary_token(vocabulary, l.tokens[k], &length), *at = text + (k > 0);
            assert_memory_equal(at, piece, length);
            memmove(text, at + length, strlen(at + length) + 1);
        }
        free(text);
        free(l.tokens);
        rcv_vocabulary_free(vocabulary);
    }
    test_context_end(&allocator, context);
}

/* ---- files ---- */

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    rcv_vocabulary *vocabulary;
    char path[512], cache[540];
} fixture;

static void open_fixture(fixture *f, const char *name) {
    f->context = test_context(&f->allocator);
    f->vocabulary = load(f->context, name);
    snprintf(f->path, sizeof f->path, "%s", path_in("text"));
    snprintf(f->cache, sizeof f->cache, "%s.recurve-tokens", f->path);
}

static void close_fixture(fixture *f) {
    unlink(f->path);
    unlink(f->cache);
    rcv_vocabulary_free(f->vocabulary);
    test_context_end(&f->allocator, f->context);
}

static void write_bytes(const fixture *f, const void *bytes, size_t length) {
    FILE *file = fopen(f->path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static rcv_status open_data(const fixture *f, rcv_data_kind kind, rcv_data **data) {
    return rcv_data_open(
        f->context, f->path,
        &RCV_INIT(rcv_data_options, .level = RCV_LEVEL_PIECE, .kind = kind, .vocabulary = f->vocabulary), data);
}

static void check_data(const rcv_data *data, const list *expected) {
    int32_t *tokens = calloc(expected->count + 1, sizeof *tokens);
    assert_non_null(tokens);
    assert_int_equal(rcv_data_tokens(data), expected->count);
    check_ok(rcvi_data_read_tokens(data, 0, (int64_t)expected->count, tokens));
    for (size_t i = 0; i < expected->count; i++) assert_int_equal(tokens[i], expected->tokens[i]);
    free(tokens);
}

/* Words, spaces and added tokens at random: some lie across the ends of the parts that are read. */
static void test_stream(void **unused) {
    (void)unused;
    static const char *const parts[] = {
        " the",          "cat",       "  ",   "\n\n", "\xc3\xa9", "\xf0\x9f\x98\x80", "'s", " 1234",
        "<|endoftext|>", "   <mask>", "<s> ", "!?",   "\t"};
    enum { BYTES = 1200000 };
    for (int i = 0; i < 2; i++) {
        fixture f;
        open_fixture(&f, i ? "llama3" : "added");
        char *text = malloc(BYTES + 16);
        assert_non_null(text);
        uint64_t random = 5;
        size_t length = 0;
        while (length < BYTES) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407U;
            const char *part = parts[(random >> 33) % (sizeof parts / sizeof *parts)];
            memcpy(text + length, part, strlen(part));
            length += strlen(part);
        }
        write_bytes(&f, text, length);
        list expected = encode(f.vocabulary, text, length);
        for (int time = 0; time < 2; time++) { /* from the text, then from the token cache */
            rcv_data *data = NULL;
            check_ok(open_data(&f, RCV_DATA_STREAM, &data));
            check_data(data, &expected);
            assert_int_equal(rcv_data_outputs(data), rcv_vocabulary_size(f.vocabulary));
            rcv_data_free(data);
        }
        free(expected.tokens);
        free(text);
        close_fixture(&f);
    }
}

static void test_lines(void **unused) {
    (void)unused;
    static const char *const lines[] = {"the cat", " sat", "\xc3\xa9"};
    fixture f;
    open_fixture(&f, "prefix");
    const char text[] = "the cat\n\n sat\n\xc3\xa9";
    write_bytes(&f, text, strlen(text));
    list expected = {0};
    const int32_t end = (int32_t)rcv_vocabulary_find(f.vocabulary, "<|endoftext|>", 13);
    assert_true(end >= 0);
    for (size_t i = 0; i < 3; i++) {
        list l = encode(f.vocabulary, lines[i], strlen(lines[i]));
        for (size_t k = 0; k < l.count; k++) take(&expected, &(int32_t){(int32_t)l.tokens[k]}, 1);
        take(&expected, &end, 1);
        free(l.tokens);
    }
    for (int time = 0; time < 2; time++) {
        rcv_data *data = NULL;
        check_ok(open_data(&f, RCV_DATA_LINES, &data));
        assert_int_equal(rcv_data_sequences(data), 3);
        check_data(data, &expected);
        rcv_data_free(data);
    }
    free(expected.tokens);
    close_fixture(&f);
}

static void test_examples(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f, "fused");
    const char text[] = "{\"text\": \"the cat\", \"y\": 1}\n{\"text\": \"sat\", \"y\": 2}\n",
               blank[] = "{\"text\": \"the\", \"y\": 1}\n{\"text\": \"  \", \"y\": 2}\n";
    write_bytes(&f, text, strlen(text));
    list first = encode(f.vocabulary, "the cat", 7), second = encode(f.vocabulary, "sat", 3);
    for (size_t k = 0; k < second.count; k++) take(&first, &(int32_t){(int32_t)second.tokens[k]}, 1);
    rcv_data *data = NULL;
    check_ok(open_data(&f, RCV_DATA_VALUES, &data));
    assert_int_equal(rcv_data_sequences(data), 2);
    check_data(data, &first);
    rcv_data_free(data);
    write_bytes(&f, blank, strlen(blank));
    check_fails(open_data(&f, RCV_DATA_VALUES, &data), RCV_FORMAT, "line 2 has a text without tokens");
    free(first.tokens);
    free(second.tokens);
    close_fixture(&f);
}

static void test_wrong_texts(void **unused) {
    (void)unused;
    static const struct {
        const char *tokenizer, *text;
        rcv_status status;
        const char *message;
    } cases[] = {
        {"gpt2", "ab\xff", RCV_FORMAT, "is not UTF-8 at byte 2; read it at byte level"},
        {"qwen2", "abe\xcc\x81", RCV_UNSUPPORTED, "not in the normal form NFC, or may not be, at byte 3 (U+0301)"},
        {"qwen2", "a\xe2\x84\xab", RCV_UNSUPPORTED, "at byte 1 (U+212B)"},
        {"qwen2", "\xd7\x91\xd6\xbc\xd6\xb7", RCV_UNSUPPORTED, "at byte 4 (U+05B7)"}, /* marks in another order */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        open_fixture(&f, cases[i].tokenizer);
        write_bytes(&f, cases[i].text, strlen(cases[i].text));
        rcv_data *data;
        check_fails(open_data(&f, RCV_DATA_STREAM, &data), cases[i].status, cases[i].message);
        check_fails(open_data(&f, RCV_DATA_LINES, &data), cases[i].status, cases[i].message);
        close_fixture(&f);
    }
}

/* A word that does not fit into the buffer. */
static void test_long_word(void **unused) {
    (void)unused;
    enum { BYTES = 1 << 20 };
    fixture f;
    open_fixture(&f, "gpt2");
    char *text = malloc(BYTES);
    assert_non_null(text);
    for (size_t i = 0; i < BYTES; i++) text[i] = "the"[i % 3];
    write_bytes(&f, text, BYTES);
    rcv_data *data;
    check_fails(open_data(&f, RCV_DATA_STREAM, &data), RCV_FORMAT, "has a word of more than");
    list l = encode(f.vocabulary, text, BYTES); /* in memory there is no limit */
    assert_true(l.count > 0 && l.count < BYTES);
    free(l.tokens);
    free(text);
    close_fixture(&f);
}

/* ---- tokenizer.json ---- */

#define BPE "{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"\\n\": 3}, \"merges\": [\"a b\"]"
#define SPLIT "\"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}"

static void test_refusals(void **unused) {
    (void)unused;
    static const struct {
        const char *file, *message; /* NULL: it is good */
    } cases[] = {
        {"{" SPLIT ", \"model\": " BPE "}}", NULL},
        {"{" SPLIT ", \"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [[\"a\", \"b\"]]}}", NULL},
        {"{\"model\": " BPE "}}", "no pre_tokenizer that splits"},
        {"{\"a\": 1}", "JSON without a \"model\""},
        {"{" SPLIT ", \"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}}}",
         "the model WordPiece is not supported"},
        {"{" SPLIT ", \"model\": {\"type\": \"Unigram\", \"vocab\": []}}", "the model Unigram is not supported"},
        {"{" SPLIT ", \"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}}",
         "vocabulary of the model is empty"},
        {"{" SPLIT ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}", "no list of merges"},
        {"{" SPLIT ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}",
         "have the same number 0"},
        {"{" SPLIT ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}",
         "vocabulary of the model is empty"},
        {"{" SPLIT ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 99999999}, \"merges\": []}}",
         "has no number from 0"},
        {"{" SPLIT ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0.5}, \"merges\": []}}",
         "has no number from 0"},
        {"{" SPLIT ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 7}, \"merges\": []}}", NULL}, /* gaps */
        {"{" SPLIT ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]}}",
         "merge 0 of 'a' and 'a'"},
        {"{" SPLIT ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"aa\"]}}",
         "merge 0 is neither"},
        {"{" SPLIT ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]}}",
         "merge 0 is neither"},
        {"{" SPLIT ", \"model\": " BPE ", \"dropout\": 0.1}}", "dropout"},
        {"{" SPLIT ", \"model\": " BPE ", \"continuing_subword_prefix\": \"##\"}}", "continuing_subword_prefix"},
        {"{" SPLIT ", \"model\": " BPE ", \"continuing_subword_prefix\": \"\", \"dropout\": null}}", NULL},
        {"{" SPLIT ", \"model\": " BPE ", \"unk_token\": \"u\"}}", "the unk_token 'u' is not in the vocabulary"},
        {"{" SPLIT ", \"normalizer\": {\"type\": \"Lowercase\"}, \"model\": " BPE "}}", "the normalizer Lowercase"},
        {"{" SPLIT
         ", \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"NFKC\"}]}, "
         "\"model\": " BPE "}}",
         "the normalizer NFKC"},
        {"{" SPLIT ", \"normalizer\": 5, \"model\": " BPE "}}", "the normalizer without a type"},
        {"{\"pre_tokenizer\": {\"type\": \"Punctuation\"}, \"model\": " BPE "}}", "the pre_tokenizer Punctuation"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"x\"}, \"behavior\": \"Isolated\"}, "
         "\"model\": " BPE "}}",
         "a pattern that is none of"},
        {"{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\"}, \"model\": " BPE "}}",
         "another replacement"},
        {"{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", \"split\": false}, "
         "\"model\": " BPE "}}",
         "\"split\": false"},
        {"{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", \"prepend_scheme\": \"x\"}, "
         "\"model\": " BPE "}}",
         "prepend_scheme"},
        {"{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, {\"type\": "
         "\"Digits\"}]}, "
         "\"model\": " BPE "}}",
         "behind ByteLevel"},
        {"{" SPLIT ", \"decoder\": {\"type\": \"WordPiece\"}, \"model\": " BPE "}}", "the decoder WordPiece"},
        {"{" SPLIT ", \"truncation\": {\"max_length\": 5}, \"model\": " BPE "}}", "truncation is not supported"},
        {"{" SPLIT ", \"padding\": {}, \"model\": " BPE "}}", "padding is not supported"},
        {"{" SPLIT ", \"added_tokens\": [{\"id\": 9, \"content\": \"\"}], \"model\": " BPE "}}",
         "element 0 of added_tokens"},
        {"{" SPLIT ", \"added_tokens\": [{\"id\": 9, \"content\": \"a\"}], \"model\": " BPE "}}",
         "another number in the vocabulary"},
        {"{" SPLIT ", \"added_tokens\": [{\"id\": 1, \"content\": \"x\"}], \"model\": " BPE "}}",
         "have the same number 1"},
        {"{" SPLIT ", \"added_tokens\": [{\"id\": 4, \"content\": \"x\", \"single_word\": true}], \"model\": " BPE "}}",
         "single_word"},
        {"{" SPLIT
         ", \"added_tokens\": [{\"id\": 4, \"content\": \"x\"}, {\"id\": 5, \"content\": \"x\"}], \"model\": " BPE "}}",
         "has two numbers"},
        {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": " BPE ", \"byte_fallback\": true}}",
         "byte_fallback with"},
        {"{" SPLIT ", \"model\": " BPE "}", "line 1, column"}, /* not closed */
        {"{\n\"the\"\ncat\n", NULL},                           /* words after all */
    };
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rcv_vocabulary *vocabulary = NULL;
        const rcv_status status =
            rcv_vocabulary_parse(context, cases[i].file, strlen(cases[i].file), "a.json", &vocabulary);
        if (cases[i].message && (status == RCV_OK || !strstr(rcv_message(), cases[i].message)))
            fail_msg("case %zu: \"%s\" where it should say \"%s\"", i, status ? rcv_message() : "", cases[i].message);
        if (!cases[i].message) check_ok(status);
        assert_true((vocabulary == NULL) == (status != RCV_OK));
        if (status) assert_true(status == RCV_FORMAT || status == RCV_UNSUPPORTED);
        if (status) assert_non_null(strstr(rcv_message(), "a.json"));
        rcv_vocabulary_free(vocabulary);
    }
    test_context_end(&allocator, context);
}

/* What is printed, read and copied has the same tokens. */
static void test_print(void **unused) {
    (void)unused;
    static const char text[] = "the cat's  hat <|endoftext|> x";
    fixture f;
    open_fixture(&f, "added");
    char *first = NULL, *second = NULL;
    rcv_vocabulary *again = NULL, *copy = NULL;
    check_ok(rcv_vocabulary_print(f.vocabulary, &first));
    assert_null(strchr(first, '\n'));
    check_ok(rcv_vocabulary_parse(f.context, first, strlen(first), "printed", &again));
    check_ok(rcv_vocabulary_print(again, &second));
    assert_string_equal(first, second);
    check_ok(rcvi_vocabulary_copy(again, &copy));
    rcv_vocabulary_free(again);
    list a = encode(f.vocabulary, text, strlen(text)), b = encode(copy, text, strlen(text));
    assert_int_equal(a.count, b.count);
    assert_memory_equal(a.tokens, b.tokens, a.count * sizeof *a.tokens);
    free(a.tokens);
    free(b.tokens);
    rcv_vocabulary_free(copy);
    rcv_text_free(f.context, first);
    rcv_text_free(f.context, second);
    close_fixture(&f);
}

/* The end of a line: an added token, else the newline's, else none. */
static void test_end_of_lines(void **unused) {
    (void)unused;
    static const struct {
        const char *file;
        int64_t end;
    } cases[] = {
        {"{" SPLIT ", \"model\": " BPE "}}", 3},
        {"{" SPLIT ", \"added_tokens\": [{\"id\": 4, \"content\": \"</s>\"}], \"model\": " BPE "}}", 4},
        {"{" SPLIT ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"</s>\": 1}, \"merges\": []}}", -1},
    };
    fixture f;
    open_fixture(&f, "gpt2");
    write_bytes(&f, "a\na\n", 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rcv_data *data = NULL;
        rcv_vocabulary_free(f.vocabulary);
        check_ok(rcv_vocabulary_parse(f.context, cases[i].file, strlen(cases[i].file), "a.json", &f.vocabulary));
        assert_int_equal(rcv_vocabulary_line_end(f.vocabulary), cases[i].end);
        if (cases[i].end >= 0) {
            check_ok(open_data(&f, RCV_DATA_LINES, &data));
            check_data(data, &(list){(int64_t[]){0, cases[i].end, 0, cases[i].end}, 4, 4});
            rcv_data_free(data);
        } else {
            check_fails(open_data(&f, RCV_DATA_LINES, &data), RCV_UNSUPPORTED, "no token that ends a line");
            for (int time = 0; time < 2; time++) { /* a stream needs none */
                check_ok(open_data(&f, RCV_DATA_STREAM, &data));
                check_data(data, &(list){(int64_t[]){0, 0}, 2, 2});
                rcv_data_free(data);
            }
        }
    }
    int64_t none;
    size_t count;
    check_fails(rcv_vocabulary_encode(f.vocabulary, "ab", 2, &none, 1, &count), RCV_FORMAT,
                "'b', for which the tokenizer has no token, and it has no unk_token");
    close_fixture(&f);
}

/* ---- memory ---- */

static void test_no_memory(void **unused) {
    (void)unused;
    static const char file[] =
        "{\"added_tokens\": [{\"id\": 4, \"content\": \"</s>\"}], \"decoder\": {\"type\": \"BPEDecoder\", \"suffix\": "
        "\"b\"}, "
        "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, {\"type\": "
        "\"Metaspace\", "
        "\"replacement\": \"\xe2\x96\x81\"}]}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": "
        "2, "
        "\"\xe2\x96\x81\": 3}, \"merges\": [\"a b\"], \"unk_token\": \"a\", \"end_of_word_suffix\": \"b\"}}";
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_vocabulary *vocabulary = NULL;
    int64_t tokens[16];
    size_t count = 0, length = 0;
    char *printed = NULL, decoded[16];
    memory_faults_begin(&allocator);
    rcv_status status = rcv_vocabulary_parse(context, file, strlen(file), "file", &vocabulary);
    if (!status) status = rcv_vocabulary_encode(vocabulary, "aba a</s>1z", 11, tokens, 16, &count);
    if (!status) status = rcv_vocabulary_decode(vocabulary, tokens[0], tokens[1], decoded, sizeof decoded, &length);
    if (!status) status = rcv_vocabulary_print(vocabulary, &printed);
    memory_faults_stop(&allocator);
    assert_int_equal(status, allocator.failed ? RCV_NO_MEMORY : RCV_OK);
    if (!status) assert_true(count > 4);
    rcv_text_free(context, printed);
    rcv_vocabulary_free(vocabulary);
    test_context_end(&allocator, context);
    assert_true(memory_faults_end(&allocator) >= sample_least(20));
}

static void test_no_memory_for_data(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f, "prefix");
    write_bytes(&f, "the cat\nsat\n", 12);
    for (int i = 0; i < 4; i++) {
        rcv_status status = RCV_NO_MEMORY;
        size_t tried = 0;
        while (status != RCV_OK) {
            const size_t live = f.allocator.live, failed = f.allocator.failed;
            rcv_data *data = NULL;
            if (i % 2 == 0) unlink(f.cache);
            f.allocator.fail_at = ++tried;
            status = open_data(&f, i / 2 ? RCV_DATA_LINES : RCV_DATA_STREAM, &data);
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
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_wrong_texts),
        cmocka_unit_test(test_long_word),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_end_of_lines),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_no_memory_for_data),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
