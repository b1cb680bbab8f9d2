/* Mutated wisdom files, half of them with a checksum that fits: each is taken whole or refused whole. */
#include "plan/wisdom.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT = 4096, FOOTER = 26 };

typedef struct {
    char bytes[LIMIT];
    size_t length; /* without the checksum line */
} body;

static const char seed_text[] =
    "recurve-wisdom 1\n"
    "cell=gru:0123456789abcdef input=3 hidden=4 layers=1 steps=5 batch=1 dtype=float32 threads=1 : naive : 1.5e-06 "
    "measured\n"
    "cell=lstm:00000000000000ff input=512 hidden=512 layers=4 steps=100 batch=64 dtype=float32 training threads=2 : "
    "combine(steps=all)+fuse+pack+threads(2,split=rows) : 0.3333333333333333 exhaustive\n"
    "cell=lstm:00000000000000ff input=512 hidden=513 threads=2 : fuse+pack+wavefront+recompute(every=10)+threads(2) : "
    "2 "
    "measured\n";

static uint64_t next(uint64_t *random) {
    uint64_t z = *random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static size_t below(uint64_t *random, size_t bound) { return bound ? (size_t)(next(random) % bound) : 0; }

static void splice(body *to, size_t at, size_t removed, const char *piece, size_t length) {
    if (to->length - removed + length > LIMIT) return;
    memmove(to->bytes + at + length, to->bytes + at + removed, to->length - at - removed);
    memcpy(to->bytes + at, piece, length);
    to->length += length - removed;
}

static void insert_piece(body *to, uint64_t *random) {
    static const char *const pieces[] = {" : ",      "\n",
                                         "cell=",    "naive",
                                         "+",        "fuse",
                                         "checksum", " measured",
                                         "1e-3",     "-1",
                                         "nan",      "(",
                                         ")",        "threads(",
                                         "steps=0)", "exhaustive",
                                         "vendor",   "\xff",
                                         "\t",       " ",
                                         "\r\n",     "9999999999999999999999",
                                         "%s%n"};
    const char *piece = pieces[below(random, sizeof pieces / sizeof *pieces)];
    splice(to, below(random, to->length + 1), 0, piece, strlen(piece));
}

static void mutate(body *to, uint64_t *random) {
    for (size_t n = 1 + below(random, 3); n > 0 && to->length > 0; n--) {
        size_t at = below(random, to->length), count = 1 + below(random, 40);
        if (count > to->length - at) count = to->length - at;
        char copy[64];
        switch (below(random, 6)) {
        case 0: to->bytes[at] = (char)next(random); break;
        case 1: to->bytes[at] = "0123456789.+-():= en"[below(random, 20)]; break;
        case 2: splice(to, at, count, "", 0); break;
        case 3: to->length = at; break;
        case 4:
            memcpy(copy, to->bytes + at, count);
            splice(to, below(random, to->length + 1), 0, copy, count);
            break;
        default: insert_piece(to, random);
        }
    }
}

/* The bytes of a file in a block of exactly their size, so that a step past its end is seen. */
static char *file_of(const body *b, bool fitting, uint64_t *random) {
    uint64_t hash = fitting ? rcvi_hash_bytes(b->bytes, b->length) : next(random);
    char footer[FOOTER + 1], *bytes = malloc(b->length + FOOTER);
    snprintf(footer, sizeof footer, "checksum %016" PRIx64 "\n", hash);
    if (!bytes) exit(1);
    memcpy(bytes, b->bytes, b->length);
    memcpy(bytes + b->length, footer, FOOTER);
    return bytes;
}

/* What was taken can be saved, and what was saved taken again. */
static bool survives_saving(rcv_context *context, const char *path) {
    size_t known = rcv_wisdom_count(context);
    return rcv_wisdom_save(context, path) == RCV_OK && rcv_wisdom_load(context, path) == RCV_OK &&
           rcv_wisdom_count(context) == known;
}

int main(int argc, char **argv) {
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000, accepted = 0, refused = 0, learnt = 0;
    uint64_t random = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    char path[] = "/tmp/recurve-fuzz-wisdom-XXXXXX";
    int made = mkstemp(path);
    if (made < 0) return 1;
    close(made);
    for (uint64_t i = 0; i < count; i++) {
        rcv_context *context;
        if (rcv_context_new(NULL, &context) != RCV_OK) return 1;
        body mutated = {.length = sizeof seed_text - 1};
        memcpy(mutated.bytes, seed_text, mutated.length);
        bool fitting = below(&random, 4) > 0;
        mutate(&mutated, &random);
        char *bytes = file_of(&mutated, fitting, &random);
        rcv_status status = rcvi_wisdom_read(context, bytes, mutated.length + FOOTER, "mutated");
        free(bytes);
        size_t known = rcv_wisdom_count(context);
        bool right = status == RCV_OK ? fitting : status == RCV_FORMAT && !known && strstr(rcv_message(), "mutated");
        if (status == RCV_OK && accepted % 64 == 0) right &= survives_saving(context, path);
        if (!right) {
            fprintf(stderr, "file %" PRIu64 ": status %s: %s\n", i, rcv_status_name(status), rcv_message());
            return 1;
        }
        accepted += status == RCV_OK;
        refused += status != RCV_OK;
        learnt += known;
        rcv_context_free(context);
    }
    unlink(path);
    printf("%" PRIu64 " files: %" PRIu64 " accepted, %" PRIu64 " refused, %" PRIu64 " lines learnt\n", count, accepted,
           refused, learnt);
    return accepted == 0 || refused == 0;
}
