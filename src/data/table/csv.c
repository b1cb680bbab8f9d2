/* Splitting of lines into records and fields: see csv.h. */
#include "data/table/csv.h"

#include <string.h>

void rcvi_csv_begin(rcvi_csv *csv, rcv_context *context, const char *path, char separator) {
    *csv = (rcvi_csv){.context = context, .path = path, .separator = separator, .next_line = 1};
}

void rcvi_csv_free(rcvi_csv *csv) {
    if (!csv->context) return;
    rcvi_free(csv->context, csv->fields);
    rcvi_free(csv->context, csv->unquoted);
    rcvi_free(csv->context, csv->open);
    *csv = (rcvi_csv){0};
}

static rcv_status grow_fields(rcvi_csv *csv) {
    if (csv->count >= RCVI_MOST_COLUMNS)
        return rcvi_fail(RCV_FORMAT, "%s: line %lld has more than the %d columns that a table may have", csv->path,
                         (long long)csv->line, RCVI_MOST_COLUMNS);
    const bool grown = rcvi_grow(csv->context, &csv->fields, &csv->capacity, csv->count + 1, sizeof *csv->fields);
    return grown ? RCV_OK : RCV_NO_MEMORY;
}

static inline rcv_status add_field(rcvi_csv *csv, const char *bytes, size_t length) {
    if (csv->count == csv->capacity) RCVI_TRY(grow_fields(csv));
    csv->fields[csv->count++] = (rcvi_field){bytes, length};
    return RCV_OK;
}

/* The bytes of a word that are the separator, each as its highest bit. */
static uint64_t find_separators(const char *bytes, uint64_t pattern) {
    const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    word ^= pattern;
    return ~(((word & low) + low) | word | low);
}

/* How many bytes of such a word are marked. */
static size_t count_bytes(uint64_t marked) { return (size_t)((marked >> 7) * UINT64_C(0x0101010101010101) >> 56); }

/* Without quotes: eight bytes at a time. */
static rcv_status split_plain(rcvi_csv *csv, const char *at, const char *end) {
    const uint64_t pattern = UINT64_C(0x0101010101010101) * (unsigned char)csv->separator;
    const char *from = at;
    for (; end - at >= 8; at += 8) {
        for (uint64_t found = find_separators(at, pattern); found; found &= found - 1) {
            const char *separator = at + __builtin_ctzll(found) / 8;
            RCVI_TRY(add_field(csv, from, (size_t)(separator - from)));
            from = separator + 1;
        }
    }
    for (; at < end; at++) {
        if (*at != csv->separator) continue;
        RCVI_TRY(add_field(csv, from, (size_t)(at - from)));
        from = at + 1;
    }
    return add_field(csv, from, (size_t)(end - from));
}

/* The first and the last fields of a record without quotes, and how many there are. */
static rcv_status split_ends(rcvi_csv *csv, const char *begin, const char *end) {
    const uint64_t pattern = UINT64_C(0x0101010101010101) * (unsigned char)csv->separator;
    const char *at = begin, *last = end;
    size_t count = 1;
    for (; end - at >= 8; at += 8) count += count_bytes(find_separators(at, pattern));
    for (; at < end; at++) count += *at == csv->separator;
    if (csv->head + csv->tail >= count) return split_plain(csv, begin, end);
    while (csv->capacity < count) {
        csv->count = csv->capacity;
        RCVI_TRY(grow_fields(csv));
    }
    memset(csv->fields, 0, count * sizeof *csv->fields);
    csv->count = count;
    at = begin;
    for (size_t i = 0; i < csv->head; i++) {
        const char *from = at;
        while (at < end && *at != csv->separator) at++;
        csv->fields[i] = (rcvi_field){from, (size_t)(at - from)};
        at++;
    }
    for (size_t i = 0; i < csv->tail; i++) {
        const char *from = last;
        while (from > begin && from[-1] != csv->separator) from--;
        csv->fields[count - 1 - i] = (rcvi_field){from, (size_t)(last - from)};
        last = from - 1;
    }
    csv->record = begin;
    csv->record_end = end;
    return RCV_OK;
}

rcv_status rcvi_csv_split_all(rcvi_csv *csv) {
    if (!csv->record) return RCV_OK;
    csv->count = 0;
    const char *record = csv->record;
    csv->record = NULL;
    return split_plain(csv, record, csv->record_end);
}

/* Copies a field with quotes to `to`, which has room for it. *at is its opening quote, and then the separator or the end. */
static rcv_status unquote(const rcvi_csv *csv, const char **at, const char *end, char *to, size_t *length) {
    const char *from = *at + 1;
    *length = 0;
    for (;;) {
        const char *quote = memchr(from, '"', (size_t)(end - from));
        if (!quote)
            return rcvi_fail(RCV_FORMAT, "%s: line %lld has a quote that is not closed", csv->path,
                             (long long)csv->line);
        memcpy(to + *length, from, (size_t)(quote - from));
        *length += (size_t)(quote - from);
        from = quote + 1;
        if (from == end || *from != '"') break;
        to[(*length)++] = '"';
        from++;
    }
    if (from < end && *from != csv->separator)
        return rcvi_fail(RCV_FORMAT,
                         "%s: line %lld has '%c' after a closing quote in column %zu; a field with quotes is "
                         "quoted whole",
                         csv->path, (long long)csv->line, *from, csv->count + 1);
    *at = from;
    return RCV_OK;
}

static rcv_status split_quoted(rcvi_csv *csv, const char *at, const char *end) {
    size_t used = 0;
    if (!rcvi_grow(csv->context, &csv->unquoted, &csv->unquoted_capacity, (size_t)(end - at), 1)) return RCV_NO_MEMORY;
    for (;;) {
        const char *from = at;
        if (at < end && *at == '"') {
            size_t length;
            RCVI_TRY(unquote(csv, &at, end, csv->unquoted + used, &length));
            RCVI_TRY(add_field(csv, csv->unquoted + used, length));
            used += length;
        } else {
            while (at < end && *at != csv->separator) at++;
            RCVI_TRY(add_field(csv, from, (size_t)(at - from)));
        }
        if (at == end) return RCV_OK;
        at++;
    }
}

/* Do the quotes of fields close in these bytes? A quote opens a field only at its beginning. */
static bool closes(const rcvi_csv *csv, const char *at, const char *end) {
    while (at < end) {
        if (*at != '"') {
            at = memchr(at, csv->separator, (size_t)(end - at));
            if (!at) return true;
        } else {
            for (at++;; at += 2) {
                at = memchr(at, '"', (size_t)(end - at));
                if (!at) return false;
                if (at + 1 == end || at[1] != '"') break;
                if (at + 2 > end) return false;
            }
            at++;
        }
        if (at < end && *at == csv->separator)
            at++;
        else if (at < end)
            return true; /* an error, which the split reports */
    }
    return true;
}

static rcv_status append_open(rcvi_csv *csv, const char *line, size_t length) {
    const size_t needed = csv->open_length + length + 1;
    if (needed > RCVI_LIMIT_EXAMPLE)
        return rcvi_fail(RCV_FORMAT, "%s: line %lld has a quote that is not closed within %d bytes", csv->path,
                         (long long)csv->line, RCVI_LIMIT_EXAMPLE);
    if (!rcvi_grow(csv->context, &csv->open, &csv->open_capacity, needed, 1)) return RCV_NO_MEMORY;
    memcpy(csv->open + csv->open_length, line, length);
    csv->open[csv->open_length + length] = '\n';
    csv->open_length = needed;
    return RCV_OK;
}

rcv_status rcvi_csv_line(rcvi_csv *csv, const char *line, size_t length, bool *complete) {
    const bool continues = csv->open_length > 0;
    const char *begin = line, *end = line + length;
    *complete = false;
    if (!continues) csv->line = csv->next_line;
    csv->next_line++;
    csv->count = 0;
    csv->record = NULL;
    const bool quotes = continues || memchr(line, '"', length);
    if (quotes) {
        const size_t part = length > 0 && line[length - 1] == '\r' ? length - 1 : length; /* unless it is in a field */
        if (continues) {
            RCVI_TRY(append_open(csv, line, part));
            begin = csv->open;
            end = csv->open + csv->open_length - 1;
        }
        if (!closes(csv, begin, end)) return continues ? RCV_OK : append_open(csv, line, length);
        csv->open_length = 0;
    }
    if (end > begin && end[-1] == '\r') end--;
    *complete = true;
    if (quotes) return split_quoted(csv, begin, end);
    return csv->head + csv->tail > 0 ? split_ends(csv, begin, end) : split_plain(csv, begin, end);
}

rcv_status rcvi_csv_end(const rcvi_csv *csv) {
    if (csv->open_length == 0) return RCV_OK;
    return rcvi_fail(RCV_FORMAT, "%s: line %lld has a quote that is not closed", csv->path, (long long)csv->line);
}

char rcvi_csv_separator(const char *line, size_t length) {
    static const char separators[] = {',', ';', '\t', '|'};
    char best = 0;
    size_t most = 0;
    for (size_t s = 0; s < sizeof separators; s++) {
        size_t count = 0;
        bool quoted = false;
        for (size_t i = 0; i < length; i++) {
            quoted ^= line[i] == '"';
            count += !quoted && line[i] == separators[s];
        }
        if (count > most) {
            most = count;
            best = separators[s];
        }
    }
    return best;
}
