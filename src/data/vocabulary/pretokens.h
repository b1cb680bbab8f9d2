/* Pre-tokens: the words of a text in which a byte-pair encoding merges characters. Each way to split a text is a scanner, which finds the end of the next pre-token. */
#ifndef RCVI_DATA_PRETOKENS_H
#define RCVI_DATA_PRETOKENS_H

#include "base/base.h"

typedef enum {
    RCVI_SPLIT_NONE,
    RCVI_SPLIT_GPT2,             /* GPT-2's regular expression */
    RCVI_SPLIT_CL100K,           /* GPT-4's and Llama 3's */
    RCVI_SPLIT_CL100K_ONE_DIGIT, /* the same with single digits: Qwen 2 */
    RCVI_SPLIT_WORDS,            /* runs of word characters or of others; white space is dropped */
    RCVI_SPLIT_WHITE_SPACE,      /* at white space, which is dropped */
    RCVI_SPLIT_METASPACE,        /* before every space or U+2581 */
    RCVI_SPLIT_NUMBERS,          /* runs of numbers or of others */
    RCVI_SPLIT_DIGITS,           /* single numbers, and runs of others */
    RCVI_SPLITS
} rcvi_text_split;

typedef struct {
    size_t bytes; /* 0: more of the text is needed */
    bool dropped; /* white space that is in no pre-token */
    bool
        ends; /* false: the pre-token may continue behind the text that is there. Of RCVI_SPLIT_NONE, _NUMBERS and _DIGITS */
} rcvi_pretoken;

/* The pre-token at the beginning of `length` > 0 bytes of UTF-8. `ends`: the text ends behind them. */
rcvi_pretoken rcvi_pretoken_next(rcvi_text_split split, const char *text, size_t length, bool ends);
/* Finds the regular expression of a `Split` by its text; RCVI_SPLIT_NONE where it is not known. */
rcvi_text_split rcvi_split_of_pattern(const char *pattern);

#define RCVI_METASPACE "\xe2\x96\x81" /* U+2581, which stands for a space */

#endif
