/* The reader of texts at the levels character and piece, as a stream or by lines. */
#include "data/vocabulary/encoder.h"
#include "data/vocabulary/unicode.h"

#include <string.h>

typedef struct {
    rcvi_import *import;
    bool writes;
    rcvi_encoder *encoder; /* NULL: characters are counted, the vocabulary is not known yet */
    int64_t on_line;       /* tokens of this line so far */
    int64_t tokens, sequences, longest;
} progress;

static rcv_status write_tokens(rcvi_import *import, const int32_t *tokens, size_t count) {
    for (size_t i = 0; i < count; i++) RCVI_TRY(rcvi_write_token(import, tokens[i]));
    return RCV_OK;
}

static rcv_status take(void *user, const int32_t *tokens, size_t count) {
    progress *p = user;
    p->on_line += (int64_t)count;
    return p->writes ? write_tokens(p->import, tokens, count) : RCV_OK;
}

/* How many characters a text has that is known to be UTF-8. */
static int64_t count_leads(const char *bytes, size_t length) {
    int64_t count = 0;
    for (size_t i = 0; i < length; i++) count += ((unsigned char)bytes[i] & 0xc0) != 0x80;
    return count;
}

static rcv_status read_part(void *user, const char *bytes, size_t length, bool ends, int64_t offset, size_t *used) {
    progress *p = user;
    rcvi_import *import = p->import;
    if (p->encoder) return rcvi_encoder_part(p->encoder, bytes, length, ends, offset, used);
    RCVI_TRY(rcvi_utf8_whole(bytes, length, ends, import->source.path, offset, used));
    p->on_line += count_leads(bytes, *used);
    return rcvi_count_characters(&import->counted, bytes, *used);
}

/* A line without tokens is not a sequence. */
static rcv_status end_line(progress *p) {
    rcvi_import *import = p->import;
    const int64_t length = p->on_line + 1;
    p->on_line = 0;
    if (length == 1) return RCV_OK;
    p->tokens += length;
    p->sequences++;
    if (length > p->longest) p->longest = length;
    if (!p->writes) return p->encoder ? RCV_OK : rcvi_words_count(&import->counted, "\n", 1, 1, NULL);
    RCVI_TRY(rcvi_write_token(import, import->vocabulary->eos));
    return rcvi_write_span(import, p->tokens - length, length);
}

static rcv_status read_line(void *user, const char *line, size_t length, int64_t offset) {
    progress *p = user;
    size_t used;
    if (p->encoder) rcvi_encoder_begin(p->encoder);
    RCVI_TRY(read_part(p, line, length, true, offset, &used));
    return end_line(p);
}

static rcv_status check_end_of_lines(const rcvi_import *import) {
    if (import->kind != RCV_DATA_LINES || !import->vocabulary || import->vocabulary->eos >= 0) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED,
                     "%s: the tokenizer has no token that ends a line: none such as <|endoftext|> or </s> among its "
                     "added_tokens, and none for a newline",
                     import->source.path);
}

static rcv_status read_text(rcvi_import *import, progress *p) {
    RCVI_TRY(check_end_of_lines(import));
    if (import->vocabulary)
        RCVI_TRY(rcvi_encoder_new(import->vocabulary, import->source.path, true, take, p, &p->encoder));
    rcv_status status = import->kind == RCV_DATA_LINES
                            ? rcvi_text_file_lines(&import->source, RCVI_LIMIT_EXAMPLE, read_line, p)
                            : rcvi_text_file_parts(&import->source, read_part, p);
    rcvi_encoder_free(p->encoder);
    p->encoder = NULL;
    return status;
}

static rcv_status count_text(rcvi_import *import) {
    progress p = {.import = import};
    const bool stream = import->kind == RCV_DATA_STREAM;
    RCVI_TRY(read_text(import, &p));
    if (!import->vocabulary) RCVI_TRY(rcvi_vocabulary_rank(&import->counted, import->level, &import->vocabulary));
    rcvi_words_free(&import->counted);
    rcvi_totals *totals = &import->totals;
    totals->token_bytes = rcvi_token_bytes(import);
    totals->tokens = stream ? p.on_line : p.tokens;
    totals->sequences = stream ? 1 : p.sequences;
    totals->longest = stream ? p.on_line : p.longest;
    totals->bytes[RCVI_TOKENS] = totals->tokens * totals->token_bytes;
    totals->bytes[RCVI_SPANS] = p.sequences * (int64_t)sizeof(rcvi_span);
    return RCV_OK;
}

static rcv_status write_text(rcvi_import *import) {
    progress p = {.import = import, .writes = true};
    return read_text(import, &p);
}

const rcvi_data_reader rcvi_token_reader = {count_text, write_text};

/* ---- texts of examples ---- */

static rcv_status take_of_example(void *user, const int32_t *tokens, size_t count) {
    rcvi_text_reader *reader = user;
    reader->tokens += (int64_t)count;
    return reader->writes ? write_tokens(reader->import, tokens, count) : RCV_OK;
}

rcv_status rcvi_text_reader_read(rcvi_text_reader *reader, const char *text, size_t length) {
    rcvi_import *import = reader->import;
    size_t used;
    reader->tokens = 0;
    if (!import->vocabulary) {
        RCVI_TRY(rcvi_utf8_whole(text, length, true, import->source.path, 0, &used));
        reader->tokens = count_leads(text, length);
        return rcvi_count_characters(&import->counted, text, length);
    }
    if (!reader->encoder)
        RCVI_TRY(
            rcvi_encoder_new(import->vocabulary, import->source.path, true, take_of_example, reader, &reader->encoder));
    rcvi_encoder_begin(reader->encoder);
    return rcvi_encoder_part(reader->encoder, text, length, true, 0, &used);
}

void rcvi_text_reader_end(rcvi_text_reader *reader) {
    rcvi_encoder_free(reader->encoder);
    reader->encoder = NULL;
}
