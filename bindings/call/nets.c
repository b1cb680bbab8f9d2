/* Networks by their descriptions. */
#include "call/shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading a description ---- */

enum { MOST_SIZES = 32, MOST_TOKEN = 96 };

/* A description as it is read. */
typedef struct {
    rcv_net_options options;
    rcv_size sizes[MOST_SIZES];
    char names[MOST_SIZES][MOST_TOKEN];
} description;

typedef enum { INTEGER, NUMBER, FLAG } kind;

static const struct {
    const char *name;
    kind kind;
    size_t offset;
} fields[] = {
    {"input", INTEGER, offsetof(rcv_net_options, input)},
    {"hidden", INTEGER, offsetof(rcv_net_options, hidden)},
    {"layers", INTEGER, offsetof(rcv_net_options, layers)},
    {"rank", INTEGER, offsetof(rcv_net_options, rank)},
    {"dropout", NUMBER, offsetof(rcv_net_options, dropout)},
    {"zoneout", NUMBER, offsetof(rcv_net_options, zoneout)},
    {"bidirectional", FLAG, offsetof(rcv_net_options, bidirectional)},
    {"no_bias", FLAG, offsetof(rcv_net_options, no_bias)},
    {"variational", FLAG, offsetof(rcv_net_options, variational)},
    {"expected_zoneout", FLAG, offsetof(rcv_net_options, expected_zoneout)},
    {"reverse", FLAG, offsetof(rcv_net_options, reverse)},
};

static rcv_status refuse(const char *token) {
    return rcvb_fail(RCV_INVALID, "'%s' is no option of a network's description", token);
}

/* A size that the cell declares: size.NAME=VALUE. */
static rcv_status read_cell_size(description *d, const char *token, const char *name, long long value) {
    if (d->options.size_count == MOST_SIZES)
        return rcvb_fail(RCV_INVALID, "a description has at most %d sizes", MOST_SIZES);
    size_t at = d->options.size_count++;
    snprintf(d->names[at], MOST_TOKEN, "%s", name + strlen("size."));
    d->sizes[at] = (rcv_size){.name = d->names[at], .value = value};
    return d->names[at][0] ? RCV_OK : refuse(token);
}

static rcv_status read_option(description *d, const char *token) {
    char name[MOST_TOKEN];
    const char *equals = strchr(token, '=');
    char *end = NULL;
    if (!equals) return refuse(token);
    snprintf(name, sizeof name, "%.*s", (int)(equals - token), token);
    double number = strtod(equals + 1, &end);
    if (end == equals + 1 || *end) return refuse(token);
    long long integer = strtoll(equals + 1, NULL, 10);
    if (!strncmp(name, "size.", 5)) return read_cell_size(d, token, name, integer);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char *at = (char *)&d->options + fields[i].offset;
        if (strcmp(name, fields[i].name)) continue;
        switch (fields[i].kind) {
        case INTEGER: *(int64_t *)(void *)at = integer; break;
        case NUMBER: *(double *)(void *)at = number; break;
        case FLAG: *(bool *)(void *)at = integer != 0; break;
        }
        return RCV_OK;
    }
    return refuse(token);
}

/* line := { NAME "=" VALUE " " } "\n" */
static rcv_status read_options(description *d, const char *line, const char *end) {
    memset(d, 0, sizeof *d);
    d->options.size = sizeof d->options;
    d->options.sizes = d->sizes;
    while (line < end) {
        char token[MOST_TOKEN];
        const char *space = memchr(line, ' ', (size_t)(end - line));
        const char *stop = space ? space : end;
        if (stop - line >= MOST_TOKEN) return rcvb_fail(RCV_INVALID, "an option of a description is too long");
        snprintf(token, sizeof token, "%.*s", (int)(stop - line), line);
        rcv_status status = *token ? read_option(d, token) : RCV_OK;
        if (status) return status;
        line = stop + 1;
    }
    return RCV_OK;
}

/* ---- the table ---- */

typedef struct entry {
    struct entry *next; /* of the same bucket */
    uint64_t hash;
    rcv_net *net;
    size_t length;
    char description[];
} entry;

enum { BUCKETS = 512 };
static entry *table[BUCKETS]; /* guarded by the lock; entries stay */

static uint64_t hash_of(const char *text, size_t length) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325), word;
    for (; length >= sizeof word; text += sizeof word, length -= sizeof word) {
        memcpy(&word, text, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    for (; length; text++, length--) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

static entry *find(const char *text, size_t length, uint64_t hash) {
    entry *e = table[hash % BUCKETS];
    while (e && (e->hash != hash || e->length != length || memcmp(e->description, text, length))) e = e->next;
    return e;
}

static rcv_status open_cell(rcv_context *context, const char *text, size_t length, rcv_cell **cell) {
    char name[MOST_TOKEN];
    bool is_text = memchr(text, '{', length) != NULL;
    if (!is_text && length >= sizeof name) return rcvb_fail(RCV_INVALID, "the name of a cell is too long");
    snprintf(name, sizeof name, "%.*s", is_text ? 0 : (int)length, text);
    return rcvb_pass(is_text ? rcv_cell_parse(context, text, length, NULL, cell) : rcv_cell_open(context, name, cell));
}

static rcv_status make_net(const char *text, size_t length, rcv_net **net) {
    rcv_context *context = NULL;
    rcv_cell *cell = NULL;
    description d;
    const char *line_end = memchr(text, '\n', length);
    if (!line_end) return rcvb_fail(RCV_INVALID, "a network's description is a line of options and a cell");
    const char *of_cell = line_end + 1;
    rcv_status status = read_options(&d, text, line_end);
    if (!status) status = rcvb_context(&context);
    if (!status) status = open_cell(context, of_cell, length - (size_t)(of_cell - text), &cell);
    if (!status) status = rcvb_pass(rcv_net_new(cell, &d.options, net));
    if (status) rcv_cell_free(cell); /* a network keeps its cell */
    return status;
}

/* Where another thread has added the same description meanwhile, that one's network is used, and this one stays unused. */
static rcv_status add(const char *text, size_t length, uint64_t hash, rcv_net *net, const rcv_net **used) {
    entry *made = malloc(sizeof *made + length);
    if (!made) return rcvb_fail(RCV_NO_MEMORY, "there is no memory for a network's description");
    *made = (entry){.hash = hash, .length = length, .net = net};
    memcpy(made->description, text, length);
    rcvb_lock();
    const entry *present = find(text, length, hash);
    if (!present) {
        made->next = table[hash % BUCKETS];
        table[hash % BUCKETS] = made;
    }
    *used = present ? present->net : net;
    rcvb_unlock();
    if (present) free(made);
    return RCV_OK;
}

rcv_status rcvb_net(const char *text, size_t length, const rcv_net **net) {
    static _Thread_local const entry *last; /* a program calls with few descriptions in turn */
    if (last && last->length == length && !memcmp(last->description, text, length)) {
        *net = last->net;
        return RCV_OK;
    }
    uint64_t hash = hash_of(text, length);
    rcvb_lock();
    last = find(text, length, hash);
    rcvb_unlock();
    if (last) {
        *net = last->net;
        return RCV_OK;
    }
    rcv_net *made = NULL;
    rcv_status status = make_net(text, length, &made);
    return status ? status : add(text, length, hash, made, net);
}
