/* Tokens of a text, for callers. */
#include "data/data.h"

rcv_status rcv_data_read_tokens(const rcv_data *data, int64_t from, int64_t count, int64_t *tokens) {
    enum { PART = 1024 };
    int32_t part[PART];
    RCVI_NEED(data, "data");
    RCVI_NEED(tokens || count == 0, "tokens");
    if (!rcv_data_vocabulary(data))
        return rcvi_fail(RCV_INVALID, "this data has no tokens: its time steps are numbers");
    int64_t all = rcv_data_tokens(data);
    if (from < 0 || count < 0 || from > all || count > all - from)
        return rcvi_fail(RCV_INVALID, "there are %lld tokens; %lld from token %lld on are not among them",
                         (long long)all, (long long)count, (long long)from);
    for (int64_t at = 0, some; at < count; at += some) {
        some = count - at < PART ? count - at : PART;
        RCVI_TRY(rcvi_data_read_tokens(data, from + at, some, part));
        for (int64_t i = 0; i < some; i++) tokens[at + i] = part[i];
    }
    return RCV_OK;
}
