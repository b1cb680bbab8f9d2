/* Byte-pair encoding as a tokenizer.json of Hugging Face describes it. What is not supported and would change tokens is refused when the file is read.
 *
 *   text -> added tokens cut out -> pre-tokens (stages) -> characters or bytes as symbols -> merges -> tokens */
#ifndef RCVI_DATA_TOKENIZER_H
#define RCVI_DATA_TOKENIZER_H

#include "base/json.h"
#include "data/internal.h"
#include "data/vocabulary/pretokens.h"

#include <stdatomic.h>

enum { RCVI_MOST_STAGES = 8 };

typedef enum { RCVI_PREFIX_NEVER, RCVI_PREFIX_FIRST, RCVI_PREFIX_ALWAYS } rcvi_prefix;

typedef struct {
    rcvi_text_split split;
    rcvi_prefix prefix; /* a space before parts of a text that begin with none: the first one, or all */
} rcvi_pretokenizer;

/* Two neighbours and what they become. */
typedef struct {
    uint64_t pair; /* left << 32 | right; EMPTY_PAIR: the slot is free */
    int32_t rank, merged;
} rcvi_merge;

enum { RCVI_ADDED_RAW, RCVI_ADDED_NORMALISED, RCVI_ADDED_PASSES };

typedef struct {
    int32_t token;
    char *content;
    size_t length;
    int pass;         /* RCVI_ADDED_RAW are found first, the others in what is left */
    bool left, right; /* white space on this side belongs to the token */
} rcvi_added;

/* How tokens become text again. */
typedef struct {
    bool byte_level, byte_fallback;
    bool metaspace;    /* U+2581 is a space */
    bool strips_first; /* the first space of a text is left out */
    bool joins;        /* a space between tokens: there is no decoder */
    char *suffix;      /* at the end of a word; NULL: none */
} rcvi_decoder;

struct rcvi_tokenizer {
    rcv_context *context;
    atomic_int references;
    char *json;     /* without white space */
    uint8_t *kinds; /* [size] bits RCVI_IN_MODEL, RCVI_IS_ADDED */
    rcvi_merge *merges;
    size_t merge_slots;        /* a power of two; 0: there are no merges */
    int32_t byte_tokens[256];  /* of a byte; -1: none */
    int32_t unk, eos, newline; /* -1: none */
    bool byte_level, byte_fallback, fuse_unk, ignore_merges, metaspace, normal_form;
    char *suffix; /* end_of_word_suffix; NULL: none */
    rcvi_pretokenizer stages[RCVI_MOST_STAGES];
    size_t stage_count;
    rcvi_added *added; /* longer ones first */
    size_t added_count, longest_added;
    uint8_t first_bytes[256]; /* bit p: an added token of pass p begins with this byte */
    bool has_left;            /* an added token has `left` */
    rcvi_decoder decoder;
};

enum { RCVI_IN_MODEL = 1, RCVI_IS_ADDED = 2 };

/* Whether a text looks like JSON and not like a list of words: an opening brace and a quotation mark. */
bool rcvi_tokenizer_is_json(const char *text, size_t length);
/* Fills `words` with the tokens' names by number. `*is_json`: the text is an object in JSON; otherwise it may be a list of words. */
rcv_status rcvi_tokenizer_parse(rcv_context *context, const char *text, size_t length, const char *name,
                                rcvi_words *words, bool *is_json, rcvi_tokenizer **tokenizer);
rcvi_tokenizer *rcvi_tokenizer_share(rcvi_tokenizer *tokenizer); /* one more owner; NULL for NULL */
void rcvi_tokenizer_free(rcvi_tokenizer *tokenizer);             /* one owner less; NULL does nothing */

/* Parts of the file: normalizer, pre_tokenizer and decoder. */
rcv_status rcvi_tokenizer_read_pipeline(rcvi_tokenizer *tokenizer, const json_t *file, const char *name);

/* The character that stands for a byte at byte level, and the byte of a character; -1: none. */
uint32_t rcvi_byte_character(int byte);
int rcvi_character_byte(uint32_t code);
/* The merge of two tokens, or NULL. */
const rcvi_merge *rcvi_tokenizer_merge(const rcvi_tokenizer *tokenizer, int32_t left, int32_t right);
/* The number of a token that the model has (not one that was added); -1: none. */
int32_t rcvi_tokenizer_find(const rcvi_tokenizer *tokenizer, const rcvi_words *words, const char *name, size_t length);
/* Appends the text of a token that follows `before` (-1: a text begins). */
void rcvi_tokenizer_decode(const rcvi_tokenizer *tokenizer, const rcvi_words *words, int64_t before, int64_t token,
                           rcvi_text *out);

#endif
