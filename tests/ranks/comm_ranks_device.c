/* A simulated device: its memory is the host's, its copies complete only after some tests, and its collectives use shared memory of the ranks, which
 * are on one machine. */
#include "comm_ranks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- staging ---- */

struct rcvi_staging {
    char *memory;
    void *to;
    const void *from;
    size_t bytes;
    int tests;
};

static rcv_status open_staging(rcv_context *owner, int ordinal, size_t bytes, rcvi_staging **staging) {
    *staging = rcvi_new(owner, 1, sizeof **staging);
    expect(*staging && ordinal == 3);
    (*staging)->memory = allocate((int64_t)bytes);
    return RCV_OK;
}

static void close_staging(rcvi_staging *s) {
    free(s->memory);
    rcvi_free(context, s);
}

static void *host_memory(const rcvi_staging *s) { return s->memory; }

static rcv_status copy(rcvi_staging *s, void *to, const void *from, size_t bytes) {
    expect(s->bytes == 0); /* one at a time */
    s->to = to;
    s->from = from;
    s->bytes = bytes;
    s->tests = 2;
    return RCV_OK;
}

static rcv_status copy_to_host(rcvi_staging *s, size_t offset, const void *from, size_t bytes) {
    return copy(s, s->memory + offset, from, bytes);
}

static rcv_status copy_to_device(rcvi_staging *s, void *to, size_t offset, size_t bytes) {
    return copy(s, to, s->memory + offset, bytes);
}

static rcv_status test_staging(rcvi_staging *s, bool *done) {
    *done = --s->tests < 0;
    if (*done) memcpy(s->to, s->from, s->bytes);
    if (*done) s->bytes = 0;
    return RCV_OK;
}

static rcv_status set_current(int ordinal) {
    expect(ordinal == 3);
    return RCV_OK;
}

static bool time_sliced, shared = true;

static rcv_status identify(int ordinal, char id[RCVI_DEVICE_ID]) {
    expect(ordinal == 3);
    snprintf(id, RCVI_DEVICE_ID, "host %d", shared ? rank / 2 : rank);
    return RCV_OK;
}

static bool is_time_sliced(int ordinal) { return ordinal == 3 && time_sliced; }

static const rcvi_staging_table staging_table = {open_staging, close_staging,  host_memory,
                                                 copy_to_host, copy_to_device, test_staging,
                                                 set_current,  identify,       is_time_sliced};

/* ---- collectives ---- */

enum { MOST_RANKS = 8, MOST_BYTES = 8 << 20 };

/* A file that all ranks map. One collective at a time: ranks copy their data in, wait for all, compute, and leave; the last one frees it. */
typedef struct {
    atomic_int opened, arrived, left;
    _Alignas(16) char data[MOST_RANKS][MOST_BYTES];
} shared_memory;

struct rcvi_collective_comm {
    shared_memory *memory;
    int rank, size;
    int number; /* of the next collective */
};

typedef struct {
    bool copied;
    int tests;
} collective_state;

static bool fails, expects_abort;
static int64_t collective_count;

static rcv_status check_available(void) { return RCV_OK; }
static const char *name(void) { return "simulated collectives"; }

static rcv_status make_id(char id[RCVI_COLLECTIVE_ID]) {
    snprintf(id, RCVI_COLLECTIVE_ID, "/tmp/comm_ranks-XXXXXX");
    int file = mkstemp(id);
    expect(file >= 0 && !ftruncate(file, sizeof(shared_memory)) && !close(file));
    return RCV_OK;
}

static rcv_status open_comm(rcv_context *owner, int ordinal, const char id[RCVI_COLLECTIVE_ID], int own, int count,
                            rcvi_collective_comm **comm) {
    expect(ordinal == 3 && count <= MOST_RANKS);
    *comm = rcvi_new(owner, 1, sizeof **comm);
    int file = open(id, O_RDWR);
    expect(*comm && file >= 0);
    void *memory = mmap(NULL, sizeof(shared_memory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    expect(memory != MAP_FAILED && !close(file));
    **comm = (rcvi_collective_comm){memory, own, count, 0};
    if (atomic_fetch_add(&(*comm)->memory->opened, 1) == count - 1) unlink(id);
    return RCV_OK;
}

static rcv_status test_ready(rcvi_collective_comm *c, bool *ready) {
    *ready = atomic_load(&c->memory->opened) == c->size;
    return RCV_OK;
}

static void close_comm(rcvi_collective_comm *c, bool abort) {
    expect(abort == expects_abort);
    munmap(c->memory, sizeof(shared_memory));
    rcvi_free(context, c);
}

static void reduce(const rcvi_collective_comm *c, const rcvi_collective *o, int64_t first, int64_t end) {
    rcvi_transfer_kind kind = o->kind == RCVI_COLLECTIVE_MAX ? RCVI_ALL_REDUCE_MAX : RCVI_ALL_REDUCE_SUM;
    rcvi_transfer_type type = o->dtype == RCV_FLOAT64 ? RCVI_TRANSFER_DOUBLE : RCVI_TRANSFER_FLOAT;
    size_t element = rcv_dtype_bytes(o->dtype), at = (size_t)first * element;
    memcpy((char *)o->data + at, c->memory->data[0] + at, (size_t)(end - first) * element);
    for (int i = 1; i < c->size; i++)
        rcvi_transfer_reduce(kind, type, (char *)o->data + at, c->memory->data[i] + at, end - first);
}

static void gather(const rcvi_collective_comm *c, const rcvi_collective *o, int from, int64_t first, int64_t end) {
    size_t element = rcv_dtype_bytes(o->dtype), at = (size_t)first * element;
    memcpy((char *)o->data + at, c->memory->data[from] + at, (size_t)(end - first) * element);
}

static void compute(const rcvi_collective_comm *c, const rcvi_collective *o) {
    switch (o->kind) {
    case RCVI_COLLECTIVE_SUM:
    case RCVI_COLLECTIVE_MAX: reduce(c, o, 0, o->count); break;
    case RCVI_COLLECTIVE_REDUCE_SCATTER: reduce(c, o, o->starts[c->rank], o->starts[c->rank + 1]); break;
    case RCVI_COLLECTIVE_ALL_GATHER:
        for (int i = 0; i < c->size; i++) gather(c, o, i, o->starts[i], o->starts[i + 1]);
        break;
    case RCVI_COLLECTIVE_BROADCAST: gather(c, o, o->root, 0, o->count); break;
    }
}

/* `arrived` and `left` count ranks over all collectives, so that they need not be reset. */
static rcv_status advance(rcvi_collective_comm *c, const rcvi_collective *o, void *memory, bool *done) {
    collective_state *s = memory;
    size_t bytes = (size_t)o->count * rcv_dtype_bytes(o->dtype);
    expect(bytes <= MOST_BYTES);
    *done = false;
    if (fails) return rcvi_fail(RCV_UNSUPPORTED, "its collective failed");
    if (!s->copied && atomic_load(&c->memory->left) == c->size * c->number) {
        memcpy(c->memory->data[c->rank], o->data, bytes);
        atomic_fetch_add(&c->memory->arrived, 1);
        c->number++;
        s->copied = true;
    }
    if (!s->copied || atomic_load(&c->memory->arrived) < c->size * c->number) return RCV_OK;
    if (++s->tests < 2) return RCV_OK; /* late */
    compute(c, o);
    collective_count++;
    atomic_fetch_add(&c->memory->left, 1);
    *done = true;
    return RCV_OK;
}

static const rcvi_collectives collectives = {.check_available = check_available,
                                             .name = name,
                                             .make_id = make_id,
                                             .open = open_comm,
                                             .test_ready = test_ready,
                                             .close = close_comm,
                                             .state_bytes = sizeof(collective_state),
                                             .advance = advance};

/* ---- checks ---- */

static const rcvi_device device = {.name = "simulated", .staging = &staging_table, .collectives = &collectives};

static void expect_path(const char *path) {
    expect_ok(rcvi_comm_set_device(world, &device, 3));
    const char *found = strstr(rcvi_comm_name(world), "; GPU memory");
    expect(found && !strncmp(found, path, strlen(path)));
}

static void use_collectives(void) {
    shared = false;
    expect_path("; GPU memory by simulated collectives");
    expect(!rcvi_comm_shares_device(world));
}

void fail_collective(int failing) {
    static float data[100];
    char reason[64];
    rcvi_transfer_options o = {
        .kind = RCVI_ALL_REDUCE_SUM, .type = RCVI_TRANSFER_FLOAT, .data = data, .count = 100, .on_device = true};
    snprintf(reason, sizeof reason, "rank %d: its collective failed", failing);
    use_collectives();
    expect_ok(rcvi_transfer_run(world, &o));
    fails = rank == failing;
    expects_abort = true;
    expect(rcvi_transfer_run(world, &o) == RCV_PEER);
    expect(!strcmp(rcv_message(), reason));
    expect(rcvi_comm_reports_failure(world) == fails);
    if (fails) fprintf(stderr, "comm_ranks: %s\n", reason);
}

void check_device(void) {
    expect(!rcvi_comm_shares_device(world));
    time_sliced = true;
    expect_path("; GPU memory through the host: ranks share a GPU in time slices, since CUDA's MPS does not run");
    time_sliced = false;
    expect_path("; GPU memory through the host: ranks share a GPU, by CUDA's MPS");
    expect(rcvi_comm_shares_device(world));
    check_kinds(true);
    expect(collective_count == 0);
    use_collectives();
    check_kinds(true);
    expect(collective_count > 0);
}
