/* The results of every kind of transfer: the right numbers, and the same bits on all ranks. */
#include "comm_ranks.h"

#include <math.h>

enum { MOST_RANKS = 64, PERIOD = 100003 };

/* The data of a rank: numbers of (rank, element) that differ from those of nearby elements and of other ranks. Computed once a rank. */
static double number(int of, int64_t i) {
    static double *numbers[MOST_RANKS]; /* [PERIOD] */
    if (!numbers[of]) {
        numbers[of] = allocate(PERIOD * (int64_t)sizeof(double));
        for (int64_t j = 0; j < PERIOD; j++) numbers[of][j] = sin(1 + 7.3 * of + 0.37 * (double)j);
    }
    return numbers[of][i % PERIOD];
}

static float rounded(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &bits, 4);
    return x;
}

void *allocate(int64_t bytes) {
    void *memory = malloc((size_t)bytes + 1);
    expect(memory);
    return memory;
}

static void fill(void *data, rcvi_transfer_type type, int64_t count, int of) {
    for (int64_t i = 0; i < count; i++) {
        if (type == RCVI_TRANSFER_BYTES) ((char *)data)[i] = (char)(of * 31 + i * 7);
        if (type == RCVI_TRANSFER_FLOAT) ((float *)data)[i] = (float)number(of, i);
        if (type == RCVI_TRANSFER_DOUBLE) ((double *)data)[i] = number(of, i);
    }
}

static double value(const void *data, rcvi_transfer_type type, int64_t i) {
    return type == RCVI_TRANSFER_FLOAT ? ((const float *)data)[i] : ((const double *)data)[i];
}

/* ---- the same bits on all ranks ---- */

static uint64_t hash(const void *data, size_t bytes) {
    const unsigned char *at = data;
    uint64_t h = 1469598103934665603u, word;
    for (; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
        memcpy(&word, at, sizeof word);
        h = (h ^ word) * 1099511628211u;
        h ^= h >> 32;
    }
    for (; bytes; at++, bytes--) h = (h ^ *at) * 1099511628211u;
    return h;
}

void expect_same(rcvi_comm *comm, const void *data, size_t bytes) {
    int of = rcvi_comm_size(comm);
    uint64_t hashes[64] = {0};
    int64_t starts[65] = {0};
    for (int i = 0; i <= of; i++) starts[i] = i * 8;
    hashes[rcvi_comm_rank(comm)] = hash(data, bytes);
    rcvi_transfer_options gather = {.kind = RCVI_ALL_GATHER, .data = hashes, .count = starts[of], .starts = starts};
    expect_ok(rcvi_transfer_run(comm, &gather));
    for (int i = 1; i < of; i++) expect(hashes[i] == hashes[0]);
}

/* ---- every kind ---- */

static const int64_t counts[] = {0, 1, 2, 3, 7, 64, 65, 1000, 65536, 65537, 300001, 1000000};
enum { COUNTS = sizeof counts / sizeof *counts };

/* Shares of different sizes, one of them empty from three ranks on. */
static void make_shares(int64_t *starts, int64_t count) {
    starts[0] = 0;
    for (int i = 1; i < size; i++) starts[i] = i == 1 ? count / 3 : starts[i - 1] + (i == 2 ? 0 : count / 7);
    starts[size] = count;
}

static double tolerance(rcvi_transfer_type type, bool as_bfloat16) {
    return as_bfloat16 ? 0.004 * size * size : type == RCVI_TRANSFER_FLOAT ? 1e-6 * size : 1e-14 * size;
}

static void expect_sums(const void *data, const rcvi_transfer_options *o, int64_t first, int64_t end) {
    for (int64_t i = first; i < end; i++) {
        double sum = 0, most = -2;
        for (int r = 0; r < size; r++) {
            double x = number(r, i);
            sum += x;
            most = fmax(most, o->type == RCVI_TRANSFER_FLOAT ? (float)x : x);
        }
        double wanted = o->kind == RCVI_ALL_REDUCE_MAX ? most : sum;
        double error = fabs(value(data, o->type, i) - wanted);
        expect(error <= (o->kind == RCVI_ALL_REDUCE_MAX && !o->as_bfloat16 ? 0 : tolerance(o->type, o->as_bfloat16)));
        if (o->as_bfloat16) expect(rounded(((const float *)data)[i]) == ((const float *)data)[i]);
    }
}

static void check_sums(rcvi_transfer_kind kind, rcvi_transfer_type type, bool as_bfloat16, bool on_device,
                       int64_t count) {
    size_t bytes = (size_t)count * rcvi_transfer_bytes(type);
    void *data = allocate((int64_t)bytes), *again = allocate((int64_t)bytes);
    fill(data, type, count, rank);
    memcpy(again, data, bytes);
    rcvi_transfer_options o = {
        .kind = kind, .type = type, .data = data, .count = count, .as_bfloat16 = as_bfloat16, .on_device = on_device};
    expect_ok(rcvi_transfer_run(world, &o));
    expect_sums(data, &o, 0, count);
    expect_same(world, data, bytes);
    o.data = again;
    expect_ok(rcvi_transfer_run(world, &o));
    expect(!memcmp(data, again, bytes));
    free(data);
    free(again);
}

/* A reduce-scatter, then an all-gather of the shares: together an all-reduce. */
static void check_shares(rcvi_transfer_type type, bool as_bfloat16, bool on_device, int64_t count) {
    size_t element = rcvi_transfer_bytes(type), bytes = (size_t)count * element;
    int64_t starts[65] = {0};
    void *data = allocate((int64_t)bytes);
    fill(data, type, count, rank);
    make_shares(starts, count);
    rcvi_transfer_options o = {.kind = RCVI_REDUCE_SCATTER,
                               .type = type,
                               .data = data,
                               .count = count,
                               .starts = starts,
                               .as_bfloat16 = as_bfloat16,
                               .on_device = on_device};
    expect_ok(rcvi_transfer_run(world, &o));
    expect_sums(data, &o, starts[rank], starts[rank + 1]);
    memset(data, 0x55, (size_t)starts[rank] * element); /* the all-gather does not read the rest */
    memset((char *)data + (size_t)starts[rank + 1] * element, 0x55, (size_t)(count - starts[rank + 1]) * element);
    o.kind = RCVI_ALL_GATHER;
    expect_ok(rcvi_transfer_run(world, &o));
    expect_sums(data, &o, 0, count);
    expect_same(world, data, bytes);
    free(data);
}

/* An all-gather of shares that were not rounded before. */
static void check_gather(rcvi_transfer_type type, bool as_bfloat16, bool on_device, int64_t count) {
    size_t bytes = (size_t)count * rcvi_transfer_bytes(type);
    int64_t starts[65] = {0};
    void *data = allocate((int64_t)bytes);
    fill(data, type, count, rank);
    make_shares(starts, count);
    rcvi_transfer_options o = {.kind = RCVI_ALL_GATHER,
                               .type = type,
                               .data = data,
                               .count = count,
                               .starts = starts,
                               .as_bfloat16 = as_bfloat16,
                               .on_device = on_device};
    expect_ok(rcvi_transfer_run(world, &o));
    for (int of = 0; of < size; of++) {
        for (int64_t i = starts[of]; i < starts[of + 1]; i++) {
            float x = (float)number(of, i);
            double wanted = as_bfloat16 ? rounded(x) : type == RCVI_TRANSFER_FLOAT ? x : number(of, i);
            expect(value(data, type, i) == wanted);
        }
    }
    free(data);
}

/* A broadcast from every rank: the same bits, or rounded to bfloat16, to nearest even. */
static void check_broadcast(rcvi_transfer_type type, bool as_bfloat16, bool on_device, int64_t count) {
    size_t bytes = (size_t)count * rcvi_transfer_bytes(type);
    void *data = allocate((int64_t)bytes), *wanted = allocate((int64_t)bytes);
    for (int root = 0; root < size; root++) {
        fill(data, type, count, rank);
        fill(wanted, type, count, root);
        if (as_bfloat16 && count > 1) {
            uint32_t tie = 0x3f808000, odd = 0x3f818000; /* 1 + 2^-8, 1 + 3 * 2^-8 */
            for (int i = 0; i < 2; i++) {
                if (rank == root) memcpy((float *)data + i, i ? &odd : &tie, 4);
                memcpy((float *)wanted + i, i ? &odd : &tie, 4);
            }
        }
        for (int64_t i = 0; as_bfloat16 && i < count; i++) ((float *)wanted)[i] = rounded(((float *)wanted)[i]);
        rcvi_transfer_options o = {.kind = RCVI_BROADCAST,
                                   .type = type,
                                   .data = data,
                                   .count = count,
                                   .peer = root,
                                   .as_bfloat16 = as_bfloat16,
                                   .on_device = on_device};
        expect_ok(rcvi_transfer_run(world, &o));
        expect(!memcmp(data, wanted, bytes));
    }
    free(data);
    free(wanted);
}

/* Sends and receives around a ring, in both directions at once; the order of the tags differs between sends and receives. */
static void check_point_to_point(rcvi_transfer_type type, bool as_bfloat16, bool on_device, int64_t count) {
    enum { MANY = 6 };
    size_t bytes = (size_t)count * rcvi_transfer_bytes(type);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    void *out = allocate((int64_t)bytes), *in[2][MANY], *wanted = allocate((int64_t)bytes);
    rcvi_transfer *sends[2][MANY], *receives[2][MANY];
    fill(out, type, count, rank);
    rcvi_transfer_options o = {.type = type, .count = count, .as_bfloat16 = as_bfloat16, .on_device = on_device};
    for (int way = 0; way < 2; way++) {
        for (int i = 0; i < MANY; i++) {
            o.kind = RCVI_RECEIVE;
            o.peer = way ? right : left;
            o.tag = way + 2 * (i / 2); /* two transfers of each tag */
            o.data = in[way][i] = allocate((int64_t)bytes);
            memset(o.data, 0, bytes);
            expect_ok(rcvi_transfer_start(world, &o, &receives[way][i]));
        }
    }
    for (int i = MANY - 1; i >= 0; i--) {
        for (int way = 1; way >= 0; way--) {
            o.kind = RCVI_SEND;
            o.peer = way ? left : right;
            o.tag = way + 2 * (i / 2);
            o.data = out;
            expect_ok(rcvi_transfer_start(world, &o, &sends[way][i]));
        }
    }
    for (int way = 0; way < 2; way++) {
        fill(wanted, type, count, way ? right : left);
        for (int64_t i = 0; as_bfloat16 && i < count; i++) ((float *)wanted)[i] = rounded(((float *)wanted)[i]);
        for (int i = 0; i < MANY; i++) {
            expect_ok(rcvi_transfer_wait(receives[way][i], NULL));
            expect_ok(rcvi_transfer_wait(sends[way][i], NULL));
            expect(!memcmp(in[way][i], wanted, bytes));
            free(in[way][i]);
        }
    }
    fill(wanted, type, count, rank);
    expect(!memcmp(out, wanted, bytes)); /* a send changes nothing */
    free(out);
    free(wanted);
}

void check_kinds(bool on_device) {
    for (int i = 0; i < COUNTS; i++) {
        for (int way = 0; way < 3; way++) { /* float, double, float as bfloat16 */
            rcvi_transfer_type type = way == 1 ? RCVI_TRANSFER_DOUBLE : RCVI_TRANSFER_FLOAT;
            if (on_device && i % 3) continue;
            check_sums(RCVI_ALL_REDUCE_SUM, type, way == 2, on_device, counts[i]);
            check_sums(RCVI_ALL_REDUCE_MAX, type, way == 2, on_device, counts[i]);
            check_shares(type, way == 2, on_device, counts[i]);
            check_gather(type, way == 2, on_device, counts[i]);
            check_broadcast(type, way == 2, on_device, counts[i]);
            check_point_to_point(type, way == 2, on_device, counts[i]);
        }
        check_broadcast(RCVI_TRANSFER_BYTES, false, on_device, counts[i]);
        check_point_to_point(RCVI_TRANSFER_BYTES, false, on_device, counts[i]);
    }
}

/* Transfers with the same peer and tag keep their order, also those of many messages. */
void check_order(void) {
    enum { MANY = 20, COUNT = 500000 };
    static float data[MANY][COUNT];
    rcvi_transfer *transfers[MANY];
    if (rank > 1) return;
    for (int i = 0; i < MANY; i++) {
        int64_t count = i % 2 ? COUNT : 5;
        for (int64_t j = 0; rank == 0 && j < count; j++) data[i][j] = (float)((i * 3 + j) % 128);
        rcvi_transfer_options o = {.kind = rank ? RCVI_RECEIVE : RCVI_SEND,
                                   .type = RCVI_TRANSFER_FLOAT,
                                   .data = data[i],
                                   .count = count,
                                   .peer = !rank,
                                   .tag = 1023,
                                   .as_bfloat16 = i % 4 == 1};
        expect_ok(rcvi_transfer_start(world, &o, &transfers[i]));
    }
    for (int i = 0; i < MANY; i++) {
        expect_ok(rcvi_transfer_wait(transfers[i], NULL));
        for (int64_t j = 0; j < (i % 2 ? COUNT : 5); j++) expect(data[i][j] == (float)((i * 3 + j) % 128));
    }
}
