/* Opens a learn (memory and team), divides calls among the members of the team, and implements the table of device/learn.h. */
#include "device/cpu/learn/learn.h"

#include "device/cpu/gemm/matmul.h"
#include "device/cpu/kernels/select.h"
#include "device/cpu/measure.h"

#include <math.h>
#include <string.h>

/* The numbers have no recorded measurement; `scripts/bench-cpu.sh` times training steps. */
enum {
    LINE = 128,                 /* bytes: alignment of arrays */
    MIN_CHUNK = 16,             /* rows of a chunk, at least, where the caller chooses none */
    CHUNK_PARTS = 4,            /* chunks, at least, where the logits of all rows exceed CHUNK_BYTES */
    CHUNK_BYTES = 16 << 20,     /* bytes of the logits of a chunk, at most */
    SERIAL_OPERATIONS = 1 << 15 /* operations: calls of fewer run on the caller alone */
};

/* ---- division among members ---- */

typedef struct {
    rcvi_learn *learn;
    rcvi_learn_work *work;
    const void *job;
    int members;
} call;

static void run_share(void *user, int member) {
    const call *self = user;
    const rcvi_kernels *kernels = self->learn->kernels;
    rcvi_learn_share share = {self->learn, member, self->members};
    if (kernels->begin) kernels->begin();
    self->work(&share, self->job);
    if (kernels->end) kernels->end();
}

rcv_status rcvi_learn_run(rcvi_learn *learn, double operations, rcvi_learn_work *work, const void *job) {
    call self = {learn, work, job, operations < SERIAL_OPERATIONS ? 1 : rcvi_team_threads(learn->team)};
    if (self.members > 1) return rcvi_team_call(learn->team, run_share, &self);
    run_share(&self, 0);
    return RCV_OK;
}

void rcvi_learn_barrier(const rcvi_learn_share *share) {
    if (share->members > 1) rcvi_team_barrier(share->learn->team, share->member);
}

void rcvi_learn_share_range(const rcvi_learn_share *share, int64_t extent, int64_t unit, int64_t *first, int64_t *end) {
    int64_t units = extent / unit + (extent % unit != 0), each = units / share->members, more = units % share->members;
    int64_t before = share->member * each + (share->member < more ? share->member : more);
    int64_t after = before + each + (share->member < more);
    *first = before * unit;
    *end = after == units ? extent : after * unit;
}

/* ---- opening ---- */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Checks that the sizes in bytes of all arrays, with the padding of products, do not overflow. */
static rcv_status check_shape(const rcvi_learn_shape *shape) {
    if (shape->rows < 1 || shape->features < 1 || shape->classes < 1 || shape->chunk < 0)
        return rcvi_fail(
            RCV_INVALID,
            "rows, features and classes must be at least 1, and a chunk 0 or more, not %lld, %lld, %lld, %lld",
            (long long)shape->rows, (long long)shape->features, (long long)shape->classes, (long long)shape->chunk);
    const int64_t slack = 4096, extents[][2] = {{shape->rows, shape->features},
                                                {shape->rows, shape->classes},
                                                {shape->classes, shape->features}};
    for (size_t i = 0; i < sizeof extents / sizeof *extents; i++) {
        int64_t rows, columns, elements;
        if (!rcvi_add(extents[i][0], slack, &rows) || !rcvi_add(extents[i][1], slack, &columns) ||
            !rcvi_multiply(rows, columns, &elements) || elements > INT64_MAX / RCVI_MAX_THREADS / 64)
            return rcvi_fail(RCV_INVALID,
                             "%lld rows, %lld features and %lld classes are too many to be counted in bytes",
                             (long long)shape->rows, (long long)shape->features, (long long)shape->classes);
    }
    return RCV_OK;
}

static int64_t chunk_of(const rcvi_learn *learn) {
    const rcvi_learn_shape *shape = &learn->shape;
    if (shape->chunk > 0) return smaller(shape->chunk, shape->rows);
    int64_t fit = CHUNK_BYTES / learn->size / shape->classes, part = (shape->rows + CHUNK_PARTS - 1) / CHUNK_PARTS;
    if (fit >= shape->rows) return shape->rows;
    return smaller(shape->rows, larger(MIN_CHUNK, smaller(part, fit)));
}

static int64_t lines(int64_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

/* One allocation for all arrays. */
static rcv_status allocate(rcvi_learn *learn) {
    const rcvi_learn_shape *shape = &learn->shape;
    learn->scratch_bytes = lines(rcvi_learn_head_scratch(learn));
    int64_t logits = lines(shape->chunk * shape->classes * learn->size);
    int64_t losses = lines(shape->rows * (int64_t)sizeof(double)),
            packed_for_logits = lines(rcvi_learn_logits_packed_bytes(learn));
    int64_t packed_for_dy = lines(rcvi_learn_dy_packed_bytes(learn));
    int64_t squares = (RCVI_MAX_UPDATE_PARTS + 1) * RCVI_LEARN_SLOTS * (int64_t)sizeof(double), scratch = 0,
            bytes = LINE;
    const int64_t *parts[] = {&logits, &losses, &packed_for_logits, &packed_for_dy, &squares, &scratch};
    bool fits = rcvi_multiply(learn->scratch_bytes, shape->threads, &scratch);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) fits = fits && rcvi_add(bytes, *parts[i], &bytes);
    if (!fits)
        return rcvi_fail(RCV_INVALID, "a head of %lld classes by %lld threads takes more bytes than can be counted",
                         (long long)shape->classes, (long long)shape->threads);
    learn->memory = rcvi_new(learn->context, (size_t)bytes, 1);
    if (!learn->memory) return RCV_NO_MEMORY;
    char *at = (char *)learn->memory + (-(uintptr_t)learn->memory & (LINE - 1));
    learn->logits = at;
    learn->losses = (void *)(at += logits);
    learn->packed_for_logits = at += losses;
    learn->packed_for_dy = at += packed_for_logits;
    learn->squares = (void *)(at += packed_for_dy);
    learn->scratch = at + squares;
    learn->head_bytes = (size_t)(shape->chunk * shape->classes * learn->size);
    learn->bytes = (size_t)bytes + sizeof *learn + rcvi_team_bytes((int)shape->threads);
    return RCV_OK;
}

static void close_learn(rcvi_learn *learn) {
    if (!learn) return;
    rcvi_team_free(learn->team);
    rcvi_free(learn->context, learn->memory);
    rcvi_free(learn->context, learn);
}

static rcv_status open_learn(rcv_context *context, int ordinal, const rcvi_learn_shape *shape, rcvi_learn **out) {
    (void)ordinal;
    *out = NULL;
    rcvi_kernel_type type;
    RCVI_TRY(rcvi_check_product_type(shape->dtype, &type));
    RCVI_TRY(check_shape(shape));
    if (shape->lean)
        return rcvi_fail(RCV_UNSUPPORTED, "the CPU stores the gradient of the output layer: lean learning is for GPUs");
    int64_t threads = shape->threads == 0 ? rcv_context_threads(context) : shape->threads;
    RCVI_TRY(rcvi_check_threads(threads));
    const rcvi_kernels *kernels = rcvi_context_kernels(context);
    if (!kernels) return RCV_INVALID;
    rcvi_learn *made = rcvi_new(context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->context = context;
    made->kernels = kernels;
    made->type = type;
    made->real = type == RCVI_KERNEL_DOUBLE ? &rcvi_learn_double : &rcvi_learn_float;
    made->size = type == RCVI_KERNEL_DOUBLE ? sizeof(double) : sizeof(float);
    made->shape = *shape;
    made->shape.threads = threads;
    made->shape.chunk = chunk_of(made);
    rcv_status status = allocate(made);
    if (!status) status = rcvi_team_new(context, (int)threads, &made->team);
    if (status) {
        close_learn(made);
        return status;
    }
    *out = made;
    return RCV_OK;
}

static size_t bytes_of(const rcvi_learn *learn) { return learn->bytes; }
static size_t head_bytes_of(const rcvi_learn *learn) { return learn->head_bytes; }

static void *stream_of(const rcvi_learn *learn) {
    (void)learn;
    return NULL;
}

/* ---- memory: the host's ---- */

static rcv_status copy(rcvi_learn *learn, void *to, const void *from, size_t bytes) {
    (void)learn;
    if (bytes > 0) memmove(to, from, bytes);
    return RCV_OK;
}

static rcv_status clear(rcvi_learn *learn, void *to, size_t bytes) {
    (void)learn;
    if (bytes > 0) memset(to, 0, bytes);
    return RCV_OK;
}

static rcv_status wait_for(rcvi_learn *learn) {
    (void)learn;
    return RCV_OK;
}

/* ---- rows ---- */

static rcv_status gather(rcvi_learn *learn, int64_t rows, int64_t columns, const int32_t *ids, const void *table,
                         void *out) {
    rcvi_learn_rows job = {.rows = rows, .columns = columns, .ids = ids, .from = table, .out = out};
    return rcvi_learn_run(learn, (double)rows * (double)columns, learn->real->gather, &job);
}

static rcv_status scatter(rcvi_learn *learn, int64_t rows, int64_t columns, const rcvi_groups *groups, bool by_id,
                          const void *from, void *out) {
    rcvi_learn_rows job = {
        .rows = rows, .columns = columns, .groups = groups, .by_id = by_id, .from = from, .out = out};
    return rcvi_learn_run(learn, (double)rows * (double)columns, learn->real->scatter, &job);
}

static rcv_status mask(rcvi_learn *learn, int64_t rows, int64_t columns, const rcvi_mask *mask,
                       const rcvi_control *control, const void *from, void *out) {
    enum { HASH = 8 }; /* cost of one random number, in operations */
    rcvi_learn_rows job = {.rows = rows,
                           .columns = columns,
                           .mask = mask,
                           .seed = control->seed + mask->salt * UINT64_C(0x9e3779b97f4a7c15),
                           .from = from,
                           .out = out};
    return rcvi_learn_run(learn, HASH * (double)rows * (double)columns, learn->real->mask, &job);
}

/* ---- the update ---- */

static double elements_of(const rcvi_update *update) {
    double sum = update->sparse.gradient ? (double)*update->sparse.groups.count * (double)update->sparse.columns : 0;
    for (int i = 0; i < update->part_count; i++) sum += (double)update->parts[i].count;
    return sum;
}

/* Adds the slots in order, so that the sum does not depend on the members that computed them. */
static double sum_of_slots(const rcvi_learn *learn, const rcvi_update *update) {
    int parts = update->part_count + (update->sparse.gradient != NULL);
    double sum = 0;
    for (int i = 0; i < parts * RCVI_LEARN_SLOTS; i++) sum += learn->squares[i];
    return sum;
}

static rcv_status check_update(const rcvi_update *update) {
    if (update->part_count < 0 || update->part_count > RCVI_MAX_UPDATE_PARTS)
        return rcvi_fail(RCV_INVALID, "an update has at most %d parts, not %d", RCVI_MAX_UPDATE_PARTS,
                         update->part_count);
    if (update->head)
        return rcvi_fail(RCV_INVALID, "an update changes a head itself only where learning was opened as lean");
    return RCV_OK;
}

static rcv_status squares(rcvi_learn *learn, const rcvi_update *update, const rcvi_control *control,
                          rcvi_outcome *outcome) {
    RCVI_TRY(check_update(update));
    rcvi_learn_update job = {update, control, outcome};
    RCVI_TRY(rcvi_learn_run(learn, elements_of(update), learn->real->norm, &job));
    outcome->norm = sum_of_slots(learn, update);
    return RCV_OK;
}

static rcv_status apply(rcvi_learn *learn, const rcvi_update *update, const rcvi_control *control,
                        rcvi_outcome *outcome) {
    RCVI_TRY(check_update(update));
    rcvi_learn_update job = {update, control, outcome};
    return isfinite(outcome->norm) ? rcvi_learn_run(learn, elements_of(update), learn->real->update, &job) : RCV_OK;
}

static rcv_status update(rcvi_learn *learn, const rcvi_update *update, const rcvi_control *control,
                         rcvi_outcome *outcome) {
    RCVI_TRY(squares(learn, update, control, outcome));
    outcome->norm = sqrt(outcome->norm);
    return apply(learn, update, control, outcome);
}

static rcv_status signal_done(rcvi_learn *learn, uint64_t *to, const uint64_t *value) {
    (void)learn;
    __atomic_store_n(to, *value, __ATOMIC_RELEASE);
    return RCV_OK;
}

const struct rcvi_learn_table rcvi_cpu_learn = {.open = open_learn,
                                                .close = close_learn,
                                                .bytes = bytes_of,
                                                .head_bytes = head_bytes_of,
                                                .stream = stream_of,
                                                .send = copy,
                                                .fetch = copy,
                                                .copy = copy,
                                                .clear = clear,
                                                .wait = wait_for,
                                                .gather = gather,
                                                .scatter = scatter,
                                                .mask = mask,
                                                .head = rcvi_learn_head,
                                                .logits = rcvi_learn_logits,
                                                .update = update,
                                                .sum_squares = squares,
                                                .apply = apply,
                                                .signal = signal_done};
