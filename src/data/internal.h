/* Shared declarations of this folder: tables of words, text files read in chunks, and the token cache.
 *
 *   text -> first pass (counts) -> second pass (writes the sections of the token cache) -> batches read parts of the cache
 *
 * Each kind of data has a reader with two passes over the text. The first pass computes the totals, which determine all sizes in the token
 * cache; the second pass writes it. Memory holds words, classes and buffers, but never a whole text. */
#ifndef RCVI_DATA_STORE_H
#define RCVI_DATA_STORE_H

#include "data/data.h"
#include "data/schema.h"

#include <sys/stat.h>

#define RCVI_EOS "<eos>"
#define RCVI_UNK "<unk>"

/* ---- a table of words: number to word and word to number ---- */

/* Word w is bytes[starts[w] .. starts[w + 1]), the last of these a terminating NUL. A slot of the hash table is 0, or has 32 bits of a word's hash in the upper half and its number + 1 in
 * the lower. */
typedef struct {
    rcv_context *context;
    int64_t size;
    char *bytes;
    size_t bytes_capacity;
    uint64_t *starts; /* [size + 1]; NULL if there are no words */
    size_t start_capacity;
    int64_t *counts; /* [size] */
    size_t count_capacity;
    uint64_t *slots;
    size_t slot_count; /* a power of two, more than size */
} rcvi_words;

void rcvi_words_init(rcvi_words *words, rcv_context *context);
void rcvi_words_free(rcvi_words *words);
const char *rcvi_words_at(const rcvi_words *words, int64_t number, size_t *length);
int64_t rcvi_words_find(const rcvi_words *words, const char *word, size_t length); /* -1: absent */
/* Finds or adds a word, and adds `count` to its count. A word may contain any bytes. */
rcv_status rcvi_words_count(rcvi_words *words, const char *word, size_t length, int64_t count, int64_t *number);
/* Copies the words of `from` with their counts to `to`, sorted by `before`. */
typedef bool rcvi_word_order(const rcvi_words *words, int64_t a, int64_t b);
rcv_status rcvi_words_sort(const rcvi_words *from, rcvi_word_order *before, rcvi_words *to);
int rcvi_words_compare(const rcvi_words *words, int64_t a,
                       int64_t b); /* as memcmp; of two with a common prefix the shorter is first */

typedef struct rcvi_tokenizer rcvi_tokenizer; /* vocabulary/tokenizer.h */

struct rcv_vocabulary {
    rcv_context *context;
    rcv_level level;
    rcvi_words words;
    int64_t eos, unk;          /* token numbers; -1: none. At the levels byte and character eos is the newline */
    rcvi_tokenizer *tokenizer; /* of pieces; shared between copies. Otherwise NULL */
};

/* Makes a vocabulary of counted words or characters, ordered as data.h says. */
rcv_status rcvi_vocabulary_rank(const rcvi_words *counted, rcv_level level, rcv_vocabulary **vocabulary);
/* Whether a vocabulary of this level can be made from a text. */
bool rcvi_level_is_counted(rcv_level level);
uint64_t rcvi_vocabulary_hash(const rcv_vocabulary *vocabulary);

/* ---- text files ---- */

/* Size and modification time of a file, to detect changes. */
typedef struct {
    int64_t bytes, seconds, nanoseconds;
} rcvi_stamp;

rcv_status rcvi_stamp_file(int file, const char *path, rcvi_stamp *stamp);
rcv_status rcvi_check_stamp(int file, const char *path, const rcvi_stamp *then); /* RCV_IO if it changed */

typedef struct {
    rcv_context *context;
    const char *path;
    int file;
    int64_t bytes;
    rcvi_stamp stamp; /* when it was opened */
    char *buffer;     /* holds `filled` bytes of the text from `offset` */
    size_t capacity, filled;
    int64_t offset;
} rcvi_text_file;

rcv_status rcvi_text_file_open(rcv_context *context, const char *path, rcvi_text_file *source);
void rcvi_text_file_close(rcvi_text_file *source);
rcv_status rcvi_text_file_hash(rcvi_text_file *source, uint64_t *hash);
rcv_status rcvi_text_file_check(const rcvi_text_file *source); /* RCV_IO if it changed since it was opened */

/* Called for every chunk, word or line; `offset` is where it begins in the text. */
typedef rcv_status rcvi_visit(void *user, const char *bytes, size_t length, int64_t offset);
rcv_status rcvi_text_file_chunks(rcvi_text_file *source, rcvi_visit *visit, void *user);
/* Visits the file in parts, each with what the visit before did not use at its beginning. `ends`: the last part, which must be used whole. */
typedef rcv_status rcvi_visit_part(void *user, const char *bytes, size_t length, bool ends, int64_t offset,
                                   size_t *used);
rcv_status rcvi_text_file_parts(rcvi_text_file *source, rcvi_visit_part *visit, void *user);
/* Visits words, and NULL at the end of every line. */
rcv_status rcvi_text_file_words(rcvi_text_file *source, rcvi_visit *visit, void *user);
/* Visits the words of a text in memory in the same way; `name` is used in messages. */
rcv_status rcvi_text_words(const char *bytes, size_t length, const char *name, rcvi_visit *visit, void *user);
/* Visits lines without their newline; fails if one has more than `longest` bytes. */
rcv_status rcvi_text_file_lines(rcvi_text_file *source, size_t longest, rcvi_visit *visit, void *user);
/* Offset of the first byte that is not UTF-8, or `length`. */
size_t rcvi_utf8_prefix(const char *bytes, size_t length);

/* ---- the token cache ---- */

enum {
    RCVI_WORDS,   /* the vocabulary as rcv_vocabulary_print gives it, if it was made from this text */
    RCVI_CLASSES, /* NUL-terminated class names, if they were found in this text */
    RCVI_TOKENS,  /* uint8, uint16 or int32 */
    RCVI_NUMBERS, /* float [steps, features] */
    RCVI_LABELS, /* of every example, or of every time step: int32 class, -1: missing; or float [outputs], NaN in the first: missing */
    RCVI_SPANS,  /* rcvi_span of every sequence */
    RCVI_GROUPS, /* rcvi_group of every whole sequence, where sequences are pieces of these, or they have names */
    RCVI_NAMES,  /* NUL-terminated names of whole sequences */
    RCVI_SECTIONS
};

typedef struct {
    int64_t start,
        length; /* in tokens or time steps. A line of n tokens has length n + 1, but only n tokens lie there */
} rcvi_span;

/* A whole sequence: its first piece among the sequences, and the offset of its name. */
typedef struct {
    int64_t first, name;
} rcvi_group;

/* Results of the first pass. */
typedef struct {
    int64_t tokens, sequences, longest, features, outputs;
    int64_t token_bytes;          /* 1, 2 or 4; 0: there are no tokens in the file */
    int64_t groups;               /* 0: each sequence is whole and has no name */
    int64_t left_out;             /* sequences without a target */
    int64_t bytes[RCVI_SECTIONS]; /* of each section */
} rcvi_totals;

typedef struct {
    int file;
    int64_t at, end; /* in the file */
    char *buffer;
    size_t used;
    uint64_t hash;
} rcvi_writer;

typedef struct rcvi_import rcvi_import;

typedef struct {
    rcv_status (*count)(rcvi_import *import);
    rcv_status (*write)(rcvi_import *import);
} rcvi_data_reader;

/* State of reading a text into its token cache. */
struct rcvi_import {
    rcv_context *context;
    rcvi_text_file source;
    rcv_level level;
    rcv_data_kind kind;
    rcv_file_format format;
    char separator;     /* of a table */
    rcvi_schema schema; /* with RCV_MISSING_ERROR no feature is missing, else those are NaN */
    bool unlabelled;
    const char *folder; /* of the cache, from the options; NULL or "": see rcv_data_options */
    const rcvi_data_reader *reader;
    int64_t text_bytes;
    uint64_t text_hash, names_hash; /* of the text; of the given vocabulary and classes */
    rcv_vocabulary *vocabulary;     /* given, or made by the first pass */
    rcvi_words classes;             /* given, or found by the first pass */
    bool given_vocabulary, given_classes;
    rcvi_totals totals;
    rcvi_words counted;    /* words or characters counted by the first pass */
    char *vocabulary_text; /* of RCVI_WORDS; NULL: none */
    rcvi_writer writers[RCVI_SECTIONS];
    bool cannot_write; /* the failure is that the cache cannot be written there; the text is good */
};

extern const rcvi_data_reader rcvi_word_reader, rcvi_byte_line_reader, rcvi_token_reader, rcvi_example_reader;

/* Reads texts of examples at the levels character and piece: counts, or writes, their tokens. */
typedef struct {
    rcvi_import *import;
    bool writes;
    int64_t tokens; /* of the text that was read last */
    struct rcvi_encoder *encoder;
} rcvi_text_reader;

rcv_status rcvi_text_reader_read(rcvi_text_reader *reader, const char *text, size_t length);
void rcvi_text_reader_end(rcvi_text_reader *reader);

/* The token of a word; <unk> if the vocabulary does not have it; <eos> for NULL. `offset`: of the word in the text, for messages. */
rcv_status rcvi_find_token(const rcvi_import *import, const char *word, size_t length, int64_t offset, int64_t *token);
int64_t rcvi_token_bytes(const rcvi_import *import); /* bytes per token that the size of the vocabulary needs */
rcv_status rcvi_write_section(rcvi_import *import, int section, const void *bytes, size_t length);
rcv_status rcvi_write_token(rcvi_import *import, int64_t token);
rcv_status rcvi_write_span(rcvi_import *import, int64_t start, int64_t length);

/* An open file that several threads can read in parts. */
typedef struct rcvi_data_file rcvi_data_file;

/* Duplicates `file`, which the caller closes. `stamp`: its stamp when it was opened; NULL: taken now. */
rcv_status rcvi_data_file_new(rcv_context *context, int file, const char *path, const rcvi_stamp *stamp,
                              rcvi_data_file **out);
void rcvi_data_file_free(rcvi_data_file *file);
rcv_status rcvi_data_file_read(const rcvi_data_file *file, int64_t from, void *to, size_t bytes);
rcv_status rcvi_data_file_check(const rcvi_data_file *file); /* RCV_IO if it changed since it was opened */
rcv_status
rcvi_data_file_fail_changed(const rcvi_data_file *file); /* returns the failure for content that shows a change */

/* The same file, opened once more. */
rcv_status rcvi_data_file_copy(const rcvi_data_file *file, rcvi_data_file **copy);

/* Finds a valid token cache, or writes one. `offsets` receives the offset of each section. */
rcv_status rcvi_token_cache_open(rcvi_import *import, rcvi_data_file **out, int64_t offsets[RCVI_SECTIONS]);

struct rcv_data {
    rcv_context *context;
    rcv_level level;
    rcv_data_kind kind;
    rcv_vocabulary *vocabulary; /* NULL: examples are numbers */
    rcvi_words classes;
    rcvi_totals totals;
    uint64_t hash;
    rcvi_data_file *text, *cache;   /* either may be NULL */
    const rcvi_data_file *tokens;   /* `text` or `cache`, whichever holds the tokens */
    int64_t token_at;               /* offset of the tokens in that file */
    int64_t offsets[RCVI_SECTIONS]; /* of the sections of `cache` */
    int64_t text_bytes;
    bool has_spans; /* a stream has none */
    rcv_file_format format;
    rcvi_schema schema;
    char *description, *feature_names, *target_names;
    /* Of a part: its sequences among those of the file, rising; or of a stream its first token. */
    uint32_t *subset;    /* [totals.sequences]; NULL: all */
    int64_t file_tokens; /* of the whole file, as totals.tokens */
    int64_t first_token;
};

/* The number in the file of a sequence of the data. */
static inline int64_t rcvi_data_sequence(const rcv_data *data, int64_t sequence) {
    return data->subset ? (int64_t)data->subset[sequence] : sequence;
}
rcv_status rcvi_data_describe(rcv_data *data); /* sets its description and names */
/* Whole sequence `index`, of totals.groups. */
rcv_status rcvi_data_read_group(const rcv_data *data, int64_t index, rcvi_group *group);

/* Read the spans of `count` sequences, the numbers of one sequence, and its label (int32 class, or floats) or those of its steps. Each is checked
 * against the totals. */
rcv_status rcvi_data_read_spans(const rcv_data *data, int64_t first, int64_t count, rcvi_span *spans);
rcv_status rcvi_data_read_numbers(const rcv_data *data, rcvi_span span, float *numbers);
rcv_status rcvi_data_read_label(const rcv_data *data, int64_t sequence, void *label);
rcv_status rcvi_data_read_labels(const rcv_data *data, rcvi_span span, void *labels); /* of kinds with steps */
/* Visits every span in order. */
typedef void rcvi_visit_span(void *user, int64_t sequence, rcvi_span span);
rcv_status rcvi_data_each_span(const rcv_data *data, rcvi_visit_span *visit, void *user);
/* RCV_IO if the text or the cache changed since it was opened. */
rcv_status rcvi_data_check(const rcv_data *data);

#endif
