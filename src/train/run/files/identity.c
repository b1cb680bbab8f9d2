/* A hash of data: a position in it has no meaning in other data. The hash of a file of words also covers where its vocabulary came
 * from (the text or a checkpoint), so for words and characters the tokens themselves are hashed. */
#include "train/run/files/identity.h"

static uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * UINT64_C(0x100000001B3); }

rcv_status rcvi_data_identity(const rcv_data *data, uint64_t *identity) {
    enum { BLOCK = 4096 };
    int32_t tokens[BLOCK];
    const rcv_vocabulary *words = rcv_data_vocabulary(data);
    const rcv_level level = words ? rcv_vocabulary_level(words) : RCV_LEVEL_BYTE;
    if (level != RCV_LEVEL_WORD && level != RCV_LEVEL_CHARACTER) {
        *identity = rcvi_data_hash(data);
        return RCV_OK;
    }
    const int64_t counts[] = {rcv_data_get_kind(data), rcv_data_tokens(data), rcv_data_sequences(data),
                              rcv_data_longest(data), rcv_data_outputs(data)};
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) hash = mix(hash, (uint64_t)counts[i]);
    for (int64_t at = 0, count = 0; at < rcv_data_tokens(data); at += count) {
        count = rcv_data_tokens(data) - at < BLOCK ? rcv_data_tokens(data) - at : BLOCK;
        RCVI_TRY(rcvi_data_read_tokens(data, at, count, tokens));
        for (int64_t i = 0; i < count; i++) hash = mix(hash, (uint64_t)tokens[i]);
    }
    *identity = hash ^ hash >> 32;
    return RCV_OK;
}
