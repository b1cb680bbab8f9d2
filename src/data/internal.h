/* What the files of this room share: words by number, a text read in pieces, and the one file that keeps what was read.
 *
 *   text -> survey (counts everything) -> write (sections of one file) -> read in parts
 *
 * A kind of data is a reader: the survey goes through the text once and leaves totals, from which all sizes in the file follow; the
 * second pass writes. So memory holds words, classes and buffers, never a text. */
#ifndef RCVI_DATA_STORE_H
#define RCVI_DATA_STORE_H

#include "data/data.h"

#include <sys/stat.h>

#define RCVI_EOS "<eos>"
#define RCVI_UNK "<unk>"

/* ---- words by number, numbers by word ---- */

/* Word w is bytes[starts[w] .. starts[w + 1]), the last of them a NUL that is not part of it. A slot holds 32 bits of a word's hash above its number + 1, or 0. */
typedef struct {
    rcv_context *context;
    int64_t size;
    char *bytes;
    size_t bytes_capacity;
    uint64_t *starts; /* [size + 1] once there is a word */
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
/* Finds or adds, and counts. A word may hold any bytes. */
rcv_status rcvi_words_count(rcvi_words *words, const char *word, size_t length, int64_t count, int64_t *number);
/* The words of `from` in the order that `before` says, each with its count. */
typedef bool rcvi_word_order(const rcvi_words *words, int64_t a, int64_t b);
rcv_status rcvi_words_sort(const rcvi_words *from, rcvi_word_order *before, rcvi_words *to);
int rcvi_words_compare(const rcvi_words *words, int64_t a, int64_t b); /* as memcmp, the shorter first */

struct rcv_vocabulary {
    rcv_context *context;
    rcv_level level;
    rcvi_words words;
    int64_t eos, unk; /* -1: none. A newline at byte level */
};

/* Words as they were counted become a vocabulary, as data.h says. */
rcv_status rcvi_vocabulary_rank(const rcvi_words *counted, rcv_vocabulary **vocabulary);
uint64_t rcvi_vocabulary_hash(const rcv_vocabulary *vocabulary);

/* ---- a text ---- */

/* How a file was: another size or time of change is another file. */
typedef struct {
    int64_t bytes, seconds, nanoseconds;
} rcvi_stamp;

rcv_status rcvi_stamp_file(int file, const char *path, rcvi_stamp *stamp);
rcv_status rcvi_check_stamp(int file, const char *path, const rcvi_stamp *then); /* RCV_IO where it changed */

typedef struct {
    rcv_context *context;
    const char *path;
    int file;
    int64_t bytes;
    rcvi_stamp stamp; /* when it was opened */
    char *buffer;     /* `filled` bytes of it are the text's from `offset` on */
    size_t capacity, filled;
    int64_t offset;
} rcvi_text_file;

rcv_status rcvi_text_file_open(rcv_context *context, const char *path, rcvi_text_file *source);
void rcvi_text_file_close(rcvi_text_file *source);
rcv_status rcvi_text_file_hash(rcvi_text_file *source, uint64_t *hash);
rcv_status rcvi_text_file_check(const rcvi_text_file *source); /* RCV_IO where it is not as it was when it was opened */

/* Called for every piece, word or line; `place` is its first byte's in the text. */
typedef rcv_status rcvi_visit(void *user, const char *bytes, size_t length, int64_t place);
rcv_status rcvi_text_file_chunks(rcvi_text_file *source, rcvi_visit *visit, void *user);
/* Words, and NULL at the end of every line. */
rcv_status rcvi_text_file_words(rcvi_text_file *source, rcvi_visit *visit, void *user);
/* The same of a text in memory; `name` is used in messages. */
rcv_status rcvi_text_words(const char *bytes, size_t length, const char *name, rcvi_visit *visit, void *user);
/* Lines without their newline, at most `longest` bytes each. */
rcv_status rcvi_text_file_lines(rcvi_text_file *source, size_t longest, rcvi_visit *visit, void *user);
/* Offset of the first byte that is not UTF-8, or `length`. */
size_t rcvi_utf8_prefix(const char *bytes, size_t length);

/* ---- what is kept ---- */

enum {
    RCVI_WORDS,   /* the vocabulary, one word a line, where it was made from this text */
    RCVI_CLASSES, /* names, each with a NUL behind it, where they were found in this text */
    RCVI_TOKENS,  /* uint8, uint16 or int32 */
    RCVI_NUMBERS, /* float [steps, features] */
    RCVI_LABELS,  /* int32 a class, or float [outputs], of every example */
    RCVI_SPANS,   /* rcvi_span of every sequence */
    RCVI_SECTIONS
};

typedef struct {
    int64_t start,
        length; /* in tokens or time steps. A line of n tokens has length n + 1, but only n tokens lie there */
} rcvi_span;

/* What the survey finds out. */
typedef struct {
    int64_t tokens, sequences, longest, features, outputs;
    int64_t token_bytes;          /* 1, 2 or 4; 0: there are no tokens in the file */
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

/* A text on its way into the file. */
struct rcvi_import {
    rcv_context *context;
    rcvi_text_file source;
    rcv_level level;
    rcv_data_kind kind;
    const char *folder; /* of the options */
    const rcvi_data_reader *reader;
    int64_t text_bytes;
    uint64_t text_hash, names_hash; /* of the text; of the vocabulary and the classes that were given */
    rcv_vocabulary *vocabulary;     /* given, or made by the survey */
    rcvi_words classes;             /* the same */
    bool given_vocabulary, given_classes;
    rcvi_totals totals;
    rcvi_words counted; /* of the survey */
    rcvi_writer writers[RCVI_SECTIONS];
    bool cannot_write; /* the failure is of the place, not of the text */
};

extern const rcvi_data_reader rcvi_word_reader, rcvi_byte_line_reader, rcvi_example_reader;

/* The number of a word, of an unknown one, or of <eos> for NULL; the word stands at `place`. */
rcv_status rcvi_find_token(const rcvi_import *import, const char *word, size_t length, int64_t place, int64_t *token);
int64_t rcvi_token_bytes(const rcvi_import *import); /* that hold all numbers of the vocabulary */
rcv_status rcvi_write_section(rcvi_import *import, int section, const void *bytes, size_t length);
rcv_status rcvi_write_token(rcvi_import *import, int64_t token);
rcv_status rcvi_write_span(rcvi_import *import, int64_t start, int64_t length);

/* A file that stays open, to be read in parts from several threads. */
typedef struct rcvi_data_file rcvi_data_file;

/* `file` may be closed afterwards; `stamp` is how it was when it was opened, NULL: now. */
rcv_status rcvi_data_file_new(rcv_context *context, int file, const char *path, const rcvi_stamp *stamp,
                              rcvi_data_file **kept);
void rcvi_data_file_free(rcvi_data_file *kept);
rcv_status rcvi_data_file_read(const rcvi_data_file *kept, int64_t from, void *to, size_t bytes);
rcv_status rcvi_data_file_check(const rcvi_data_file *kept);        /* RCV_IO where it is not as it was */
rcv_status rcvi_data_file_fail_changed(const rcvi_data_file *kept); /* the failure where what was read shows it */

/* Finds the file of this import, or makes it. `offsets` are where each section begins. */
rcv_status rcvi_token_cache_open(rcvi_import *import, rcvi_data_file **kept, int64_t offsets[RCVI_SECTIONS]);

struct rcv_data {
    rcv_context *context;
    rcv_level level;
    rcv_data_kind kind;
    rcv_vocabulary *vocabulary; /* NULL: examples are numbers */
    rcvi_words classes;
    rcvi_totals totals;
    uint64_t hash;
    rcvi_data_file *text, *cache;   /* either may be NULL */
    const rcvi_data_file *tokens;   /* the one of them with the tokens */
    int64_t token_at;               /* where they begin */
    int64_t offsets[RCVI_SECTIONS]; /* of the store */
    int64_t text_bytes;
    bool has_spans; /* a stream has none */
};

/* Spans of `count` sequences, numbers of one, and its label (int32 a class, or floats), each checked against the totals. */
rcv_status rcvi_data_read_spans(const rcv_data *data, int64_t first, int64_t count, rcvi_span *spans);
rcv_status rcvi_data_read_numbers(const rcv_data *data, rcvi_span span, float *numbers);
rcv_status rcvi_data_read_label(const rcv_data *data, int64_t sequence, void *label);
/* Every span in order. */
typedef void rcvi_visit_span(void *user, int64_t sequence, rcvi_span span);
rcv_status rcvi_data_each_span(const rcv_data *data, rcvi_visit_span *visit, void *user);
/* RCV_IO where a file that the data is read from is not as it was. */
rcv_status rcvi_data_check(const rcv_data *data);

#endif
