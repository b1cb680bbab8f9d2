/* From text to tokens, at the levels character and piece. A text is given in parts, which may end anywhere: what may depend on the next part is left for it. */
#ifndef RCVI_DATA_ENCODER_H
#define RCVI_DATA_ENCODER_H

#include "data/internal.h"

/* Gets the tokens in order. */
typedef rcv_status rcvi_take_tokens(void *user, const int32_t *tokens, size_t count);

typedef struct rcvi_encoder rcvi_encoder;

/* `name`: of the text, in messages. `is_long`: many words, so that those that come again are worth keeping. The vocabulary and the name must outlive the encoder. */
rcv_status rcvi_encoder_new(const rcv_vocabulary *vocabulary, const char *name, bool is_long, rcvi_take_tokens *take,
                            void *user, rcvi_encoder **encoder);
void rcvi_encoder_free(rcvi_encoder *encoder); /* NULL does nothing */
/* The next part begins a text. */
void rcvi_encoder_begin(rcvi_encoder *encoder);
/* Encodes the beginning of `bytes`, which lie at `offset` of the file; *used: how many of them. The others are given again, with what follows. `ends`: nothing follows, and all are used. */
rcv_status rcvi_encoder_part(rcvi_encoder *encoder, const char *bytes, size_t length, bool ends, int64_t offset,
                             size_t *used);

/* Counts the characters of a text that is known to be UTF-8. */
rcv_status rcvi_count_characters(rcvi_words *counted, const char *bytes, size_t length);
/* A vocabulary of characters that were counted, by decreasing count; the newline and <unk> are always in it. */
rcv_status rcvi_characters_rank(const rcvi_words *counted, rcvi_words *words);
/* Its text: a first line that says what it is, then a character a line. Control characters, white space and backslashes are escaped. */
void rcvi_characters_print(const rcvi_words *words, rcvi_text *out);
bool rcvi_characters_are(const char *text, size_t length); /* whether the first line says so */
rcv_status rcvi_characters_parse(const char *text, size_t length, const char *name, rcvi_words *words);

#endif
