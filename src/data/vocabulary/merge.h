/* The tokens of one word: its symbols, with neighbours merged in the order of the merges' ranks. */
#ifndef RCVI_DATA_MERGE_H
#define RCVI_DATA_MERGE_H

#include "data/vocabulary/tokenizer.h"

typedef struct {
    int32_t token, next,
        before; /* index of the neighbours; -1: none. `token` is -1 where the symbol was merged into another */
} rcvi_piece;

typedef struct {
    int32_t rank, at, merged;
} rcvi_merge_candidate;

/* Memory that is used again for every word. */
typedef struct {
    rcv_context *context;
    const rcvi_tokenizer *tokenizer;
    const rcvi_words *words;
    const char *name; /* of the text, in messages */
    rcvi_piece *symbols;
    size_t symbol_capacity, symbol_count;
    rcvi_merge_candidate *heap;
    size_t heap_capacity, heap_count;
    int32_t *tokens; /* the result */
    size_t token_capacity, token_count;
    rcvi_text spelling; /* of a word as the vocabulary has it */
} rcvi_merger;

void rcvi_merger_init(rcvi_merger *merger, const rcv_vocabulary *vocabulary, const char *name);
void rcvi_merger_free(rcvi_merger *merger);
/* Sets tokens and token_count. */
rcv_status rcvi_merge_word(rcvi_merger *merger, const char *word, size_t length);

#endif
