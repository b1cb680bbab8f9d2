/* Mutated tokenizer.json files and lists of characters. What is accepted has tokens in range for every text, gives them back as text, and is the same vocabulary after it was printed. */
#include "fuzz.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const pieces[] = {"{\"type\": \"ByteLevel\"}",
                                     "{\"type\": \"Sequence\", \"pretokenizers\": [",
                                     "{\"type\": \"WhitespaceSplit\"}",
                                     "{\"type\": \"Whitespace\"}",
                                     "{\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\"}",
                                     "{\"type\": \"Digits\", \"individual_digits\": true}",
                                     "\"normalizer\": {\"type\": \"NFC\"}",
                                     "\"decoder\": null",
                                     "\"decoder\": {\"type\": \"BPEDecoder\", \"suffix\": \"</w>\"}",
                                     "\"unk_token\": \"a\"",
                                     "\"end_of_word_suffix\": \"b\"",
                                     "\"byte_fallback\": true",
                                     "\"ignore_merges\": true",
                                     "\"fuse_unk\": true",
                                     "{\"id\": 4, \"content\": \"</s>\", \"lstrip\": true, \"rstrip\": true}",
                                     "\"normalized\": true",
                                     "\"<0x61>\": 9",
                                     "\"\xc4\xa0\"",
                                     "\"\xe2\x96\x81\"",
                                     "[\"a\", \"b\"]",
                                     "\"a b\"",
                                     "null",
                                     "[]",
                                     "{}",
                                     ",",
                                     "-1",
                                     "1e99",
                                     "9223372036854775807",
                                     "\\u0000",
                                     "\xff",
                                     "recurve characters\n",
                                     "\\u{61}\n",
                                     "\\n\n",
                                     "<unk>\n",
                                     NULL};

static bool seed(size_t index, fuzz_input *input) {
    static const char *const texts[] = {
        "{\"added_tokens\": [{\"id\": 4, \"content\": \"<e>\", \"special\": true}], \"normalizer\": null, "
        "\"pre_tokenizer\": "
        "{\"type\": \"WhitespaceSplit\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, "
        "\"\\n\": 3}, "
        "\"merges\": [\"a b\"], \"unk_token\": \"b\"}}",
        "{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, {\"type\": "
        "\"ByteLevel\", "
        "\"add_prefix_space\": true}]}, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", "
        "\"vocab\": {\"a\": "
        "0, \"b\": 1, \"\xc4\xa0\": 2, \"\xc4\xa0\x61\": 3, \"\xc4\x8a\": 4}, \"merges\": [[\"\xc4\xa0\", \"a\"]], "
        "\"unk_token\": \"b\"}}",
        "{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", \"prepend_scheme\": "
        "\"first\"}, "
        "\"decoder\": {\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\"}, \"model\": {\"type\": \"BPE\", "
        "\"vocab\": "
        "{\"a\": 0, \"b\": 1, \"\xe2\x96\x81\": 2, \"<0x61>\": 3}, \"merges\": [], \"unk_token\": \"a\", "
        "\"byte_fallback\": true, \"end_of_word_suffix\": \"b\"}}",
        "recurve characters\na\nb\n\\u{20}\n\\n\n<unk>\n"};
    return index < sizeof texts / sizeof *texts && fuzz_text(texts[index], input);
}

/* ---- a member, at any depth, goes or becomes another ---- */

static json_t *any_value(uint64_t *random) {
    static const char *const texts[] = {
        "null",
        "true",
        "false",
        "-1",
        "0",
        "1",
        "2",
        "5",
        "9223372036854775807",
        "0.5",
        "\"\"",
        "[]",
        "{}",
        "\"a\"",
        "\"ab\"",
        "\"NFC\"",
        "\"ByteLevel\"",
        "\"Whitespace\"",
        "\"Digits\"",
        "\"first\"",
        "\"never\"",
        "\"\\u2581\"",
        "\"a b\"",
        "[\"a\", \"b\"]",
        "{\"type\": \"Metaspace\", \"replacement\": \"\\u2581\"}",
        "{\"id\": 5, \"content\": \"a \"}",
        "{\"id\": 6, \"content\": \"b\\u00e9\", \"normalized\": true, \"lstrip\": true, \"rstrip\": true}"};
    return json_loads(texts[fuzz_below(random, sizeof texts / sizeof *texts)], JSON_DECODE_ANY, NULL);
}

static void edit_json(json_t *parent, uint64_t *random) {
    static const char *const keys[] = {
        "normalizer",         "unk_token", "byte_fallback", "ignore_merges",  "fuse_unk",
        "end_of_word_suffix", "b",         "<0x62>",        "prepend_scheme", "use_regex"};
    const size_t count = json_is_object(parent) ? json_object_size(parent) : json_array_size(parent);
    if (json_is_object(parent) && (count == 0 || fuzz_below(random, 4) == 0)) {
        json_object_set_new(parent, keys[fuzz_below(random, sizeof keys / sizeof *keys)], any_value(random));
        return;
    }
    if (count == 0 || fuzz_below(random, 6) == 0) {
        json_array_append_new(parent, any_value(random));
        return;
    }
    size_t index = fuzz_below(random, count);
    void *at = json_object_iter(parent);
    for (size_t i = 0; at && i < index; i++) at = json_object_iter_next(parent, at);
    const char *key = at ? json_object_iter_key(at) : NULL;
    json_t *child = at ? json_object_iter_value(at) : json_array_get(parent, index);
    if ((json_is_object(child) || json_is_array(child)) && fuzz_below(random, 8))
        edit_json(child, random);
    else if (fuzz_below(random, 4) == 0)
        (void)(key ? json_object_del(parent, key) : json_array_remove(parent, index));
    else
        (void)(key ? json_object_set_new(parent, key, any_value(random))
                   : json_array_set_new(parent, index, any_value(random)));
}

static void edit(fuzz_input *input, uint64_t *random) {
    json_t *file = json_loadb((const char *)input->bytes, input->length, 0, NULL);
    if (json_is_object(file)) {
        edit_json(file, random);
        char *text = json_dumps(file, 0);
        if (!text) exit(1);
        fuzz_splice(input, 0, input->length, text, strlen(text));
        free(text);
    }
    json_decref(file);
}

/* ---- reading ---- */

enum { MOST_TOKENS = 512 };

static void check_text(const rcv_vocabulary *vocabulary, const char *text, size_t length) {
    int64_t tokens[MOST_TOKENS];
    size_t count = 0;
    rcv_status status = rcv_vocabulary_encode(vocabulary, text, length, tokens, MOST_TOKENS, &count);
    if (status) {
        fuzz_check_refusal(status, NULL);
        return;
    }
    fuzz_check(count <= MOST_TOKENS);
    for (size_t i = 0; i < count; i++) {
        char bytes[64];
        size_t own;
        fuzz_check(tokens[i] >= 0 && tokens[i] < rcv_vocabulary_size(vocabulary));
        fuzz_check(rcv_vocabulary_decode(vocabulary, i > 0 ? tokens[i - 1] : -1, tokens[i], bytes, sizeof bytes,
                                         &own) == RCV_OK);
    }
}

static void check_again(const rcv_vocabulary *vocabulary) {
    char *first = NULL, *second = NULL;
    rcv_vocabulary *again = NULL;
    fuzz_check(rcv_vocabulary_print(vocabulary, &first) == RCV_OK);
    fuzz_check(rcv_vocabulary_parse(fuzz_context(), first, strlen(first), "printed", &again) == RCV_OK);
    fuzz_check(rcv_vocabulary_level(again) == rcv_vocabulary_level(vocabulary));
    fuzz_check(rcv_vocabulary_print(again, &second) == RCV_OK);
    fuzz_check(strcmp(first, second) == 0);
    rcv_vocabulary_free(again);
    rcv_text_free(fuzz_context(), first);
    rcv_text_free(fuzz_context(), second);
}

static bool read_vocabulary(const uint8_t *bytes, size_t length) {
    static const char *const texts[] = {"",
                                        "ab a  b\n\nc1 22",
                                        "<e> a<e>\n </s> </s>b",
                                        "\xc3\xa9t\xc3\xa9 \xe2\x96\x81 \xf0\x9f\x98\x80 e\xcc\x81",
                                        "it's 'LL\r\n\t x",
                                        "a\xff"};
    rcv_vocabulary *vocabulary = NULL;
    rcv_status status = rcv_vocabulary_parse(fuzz_context(), (const char *)bytes, length, "mutated", &vocabulary);
    if (status) {
        fuzz_check_refusal(status, vocabulary);
        return false;
    }
    const bool pieces_or_characters = rcv_vocabulary_level(vocabulary) != RCV_LEVEL_WORD;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) check_text(vocabulary, texts[i], strlen(texts[i]));
    check_text(vocabulary, (const char *)bytes, length < 100 ? length : 100);
    if (pieces_or_characters) check_again(vocabulary);
    rcv_vocabulary_free(vocabulary);
    return pieces_or_characters;
}

static const fuzz_target target = {
    .name = "tokenizer", .count = 30000, .seed = seed, .pieces = pieces, .edit = edit, .read = read_vocabulary};
FUZZ_PROGRAM(target)
