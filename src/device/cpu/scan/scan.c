/* Linear recurrences on the CPU: the choice of a form, its scratch, and the forms that divide columns among threads. */
#include "device/cpu/scan/scan.h"

#include "device/cpu/kernels/select.h"
#include "device/cpu/measure.h"
#include "device/cpu/scan/tuning.h"

#include <string.h>

/* ---- forms ---- */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Every member computes all steps of its columns, which are whole cache lines. */
static void scan_columns(rcvi_scan *scan, int member) {
    int64_t column, column_end;
    if (!rcvi_scan_member_columns(scan, member, scan->members, &column, &column_end)) return;
    int64_t at = column * scan->carry;
    size_t bytes = (size_t)((column_end - column) * scan->carry);
    memcpy(scan->state + at, rcvi_scan_initial_carry(scan) + at, bytes);
    memset(scan->sum + at, 0, bytes);
    rcvi_scan_sweep_args args = {.carry = scan->state, .sum = scan->sum, .member = member};
    rcvi_scan_sweep(scan, 0, scan->options.steps, column, column_end, &args);
    char *last = scan->gradients ? scan->gradients->dinitial : scan->data->final;
    if (!last) return;
    memcpy(last + at, scan->state + at, bytes);
    if (!scan->gradients || !scan->data->resets) return;
    for (int64_t i = column; i < column_end; i++) rcvi_scan_add_carry(scan, last, scan->sum, i);
}

static const struct {
    const char *name;
    void (*run)(rcvi_scan *scan, int member);
    bool cuts_time, streams;
    enum {
        NOTHING,
        OF_MEMBERS,
        OF_CHUNKS
    } kept; /* compositions in scratch: none, one for each member, or one for each chunk */
} forms[] = {
    {"serial", scan_columns, false, false, NOTHING},     /* the reference */
    {"channels", scan_columns, false, true, NOTHING},    /* columns divided among threads */
    {"guessed", rcvi_scan_guessed, true, true, NOTHING}, /* parts of time in parallel, from guessed carries */
    {"chained", rcvi_scan_chained, true, true,
     OF_MEMBERS}, /* chunks of time, composed, carries from thread to thread */
    {"three", rcvi_scan_three_passes, true, true, OF_CHUNKS}, /* the same in three passes with barriers */
};
enum { FORMS = sizeof forms / sizeof *forms, SERIAL = 0, CHANNELS, GUESSED, CHAINED };

int64_t rcvi_scan_column_threads(const rcvi_scan *scan) {
    int64_t lines = (scan->columns + scan->line - 1) / scan->line;
    return scan->large ? (lines * LINE_BYTES + SHARE_BYTES - 1) / SHARE_BYTES : lines;
}

/* Where the caller names no form: time is divided if dividing columns would leave threads idle; chunks are composed if there are
 * enough threads to make up for the additional work. */
static rcv_status choose_form(const rcvi_scan *scan, int64_t threads, size_t *form) {
    const char *name = scan->options.form;
    bool cut = rcvi_scan_column_threads(scan) < threads && scan->chunks >= 2 * threads;
    bool guess = cut && threads < COMPOSE_THREADS && scan->options.steps * scan->columns >= THREAD_ELEMENTS;
    *form = guess ? GUESSED : cut && threads >= COMPOSE_THREADS ? CHAINED : CHANNELS;
    if (!name) return RCV_OK;
    for (*form = 0; *form < FORMS; ++*form) {
        if (!strcmp(name, forms[*form].name)) return RCV_OK;
    }
    return rcvi_fail(RCV_INVALID,
                     "there is no form '%.32s' of a scan; there are serial, channels, guessed, chained and three",
                     name);
}

/* ---- one shape ---- */

static void release(rcvi_scan *scan) {
    if (!scan) return;
    rcvi_team_free(scan->team);
    rcvi_free(scan->context, scan->memory);
    rcvi_free(scan->context, scan->compositions);
    rcvi_free(scan->context, scan);
}

static void cut_time(rcvi_scan *scan, int64_t chunk) {
    scan->chunk = larger(chunk, MIN_CHUNK);
    scan->chunks = (scan->options.steps + scan->chunk - 1) / scan->chunk;
}

static void describe(rcvi_scan *scan) {
    const rcv_scan_options *options = &scan->options;
    rcv_dtype dtype = options->dtype;
    rcvi_scan_type type = dtype == RCV_FLOAT64    ? RCVI_SCAN_DOUBLE
                          : dtype == RCV_BFLOAT16 ? RCVI_SCAN_BFLOAT16
                          : dtype == RCV_FLOAT16  ? RCVI_SCAN_FLOAT16
                                                  : RCVI_SCAN_FLOAT;
    scan->scan_kernels = &scan->kernels->scans[type];
    scan->columns = options->batch * options->channels;
    scan->size = (int64_t)rcv_dtype_bytes(dtype);
    scan->carry = dtype == RCV_FLOAT64 ? 8 : 4;
    scan->line = LINE_BYTES / scan->size;
    scan->row = (scan->columns * scan->carry + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
    scan->tile = TILE_BYTES / scan->size / scan->columns;
    if (scan->tile < 1) scan->tile = 1;
    cut_time(scan, smaller(CHUNK_BYTES / (2 * scan->size) / scan->columns, MAX_CHUNK));
}

/* Allocates rows of scratch: three shared rows, a sink for each member, and what chunks of time need. */
static rcv_status allocate(rcvi_scan *scan, size_t form) {
    bool cuts = forms[form].cuts_time;
    int64_t batch = scan->options.batch, members = scan->members;
    int64_t kept = forms[form].kept == OF_CHUNKS ? scan->chunks : forms[form].kept == OF_MEMBERS ? members : 0;
    int64_t ends = form == GUESSED ? scan->chunks : 0;
    int64_t summed = cuts && scan->options.resets ? scan->chunks : 0;
    int64_t rows, bytes, flags;
    if (!rcvi_multiply(kept, 4, &rows) || !rcvi_add(rows, 3 + members + summed + ends, &rows) ||
        !rcvi_multiply(rows, scan->row, &bytes) || !rcvi_multiply(kept, batch, &flags) ||
        !rcvi_add(bytes, flags, &bytes) || !rcvi_add(bytes, ROW_ALIGN, &bytes))
        return rcvi_fail(RCV_INVALID,
                         "the scratch of a scan of %lld chunks of time is too large to be counted in bytes",
                         (long long)scan->chunks);
    scan->memory = rcvi_new(scan->context, (size_t)bytes, 1);
    if (!scan->memory) return RCV_NO_MEMORY;
    scan->compositions = rcvi_new(scan->context, (size_t)kept, sizeof *scan->compositions);
    if (!scan->compositions) return RCV_NO_MEMORY;
    char *next = scan->memory + (-(uintptr_t)scan->memory & (ROW_ALIGN - 1));
    scan->zeros = next;
    scan->state = next + scan->row;
    scan->sum = next + 2 * scan->row;
    scan->sink = next + 3 * scan->row;
    next = scan->sink + members * scan->row;
    if (summed) scan->sums = next;
    next += summed * scan->row;
    scan->chunk_carries = next;
    next += ends * scan->row;
    for (int64_t i = 0; i < kept; i++, next += 4 * scan->row) {
        scan->compositions[i] = (rcvi_scan_chunk){.product = next,
                                                  .carried = next + scan->row,
                                                  .largest = next + 2 * scan->row,
                                                  .incoming = next + 3 * scan->row};
    }
    for (int64_t i = 0; i < kept; i++) scan->compositions[i].reach = (uint8_t *)next + i * batch;
    return RCV_OK;
}

/* Creates a team of at most as many members as there is work for. */
static rcv_status make_team(rcvi_scan *scan, size_t form, int64_t threads) {
    int64_t most = smaller(forms[form].cuts_time ? scan->chunks : rcvi_scan_column_threads(scan),
                           1 + scan->columns * scan->options.steps / THREAD_ELEMENTS);
    scan->members = (int)smaller(threads, most);
    return rcvi_team_new(scan->context, scan->members, &scan->team);
}

static rcv_status prepare(rcv_context *context, int ordinal, const rcv_scan_options *options, rcvi_scan **out) {
    (void)ordinal;
    *out = NULL;
    int64_t threads = options->threads ? options->threads : rcv_context_threads(context);
    RCVI_TRY(rcvi_check_threads(threads));
    const rcvi_kernels *kernels = rcvi_context_kernels(context);
    if (!kernels) return RCV_INVALID;
    rcvi_machine machine;
    RCVI_TRY(rcvi_device_cpu.describe(context, 0, RCV_FLOAT32, threads, &machine));
    rcvi_scan *scan = rcvi_new(context, 1, sizeof *scan);
    if (!scan) return RCV_NO_MEMORY;
    scan->context = context;
    scan->options = *options;
    scan->kernels = kernels;
    describe(scan);
    scan->large = options->steps * scan->columns * scan->size > (machine.shared ? machine.shared : machine.cache);
    size_t form = 0;
    rcv_status status = choose_form(scan, threads, &form);
    if (form == GUESSED)
        cut_time(scan, larger((options->steps + GUESSED_CHUNKS - 1) / GUESSED_CHUNKS,
                              GUESSED_CHUNK_ELEMENTS / scan->columns));
    if (!status) status = make_team(scan, form, threads);
    if (!status) status = allocate(scan, form);
    if (status) {
        release(scan);
        return status;
    }
    scan->form = forms[form].name;
    if (form == SERIAL) scan->tile = 1;
    scan->streams = forms[form].streams && scan->large;
    *out = scan;
    return RCV_OK;
}

static const char *form_of(const rcvi_scan *scan) { return scan->form; }

/* ---- one call ---- */

static void run_form(void *user, int member) {
    rcvi_scan *scan = user;
    for (size_t i = 0; i < FORMS; i++) {
        if (forms[i].name == scan->form) forms[i].run(scan, member);
    }
}

static rcv_status call(rcvi_scan *scan, const rcv_scan_data *data, const rcv_scan_gradients *gradients) {
    scan->data = data;
    scan->gradients = gradients;
    scan->ascending = scan->options.reverse == (gradients != NULL);
    memcpy(scan->state, rcvi_scan_initial_carry(scan), (size_t)(scan->columns * scan->carry));
    atomic_store_explicit(&scan->carries_known, 0, memory_order_relaxed);
    return rcvi_team_call(scan->team, run_form, scan);
}

static rcv_status forward(rcvi_scan *scan, const rcv_scan_data *data, void *stream) {
    (void)stream;
    return call(scan, data, NULL);
}

static rcv_status backward(rcvi_scan *scan, const rcv_scan_data *data, const rcv_scan_gradients *gradients,
                           void *stream) {
    (void)stream;
    return call(scan, data, gradients);
}

const rcvi_scan_table rcvi_cpu_scan = {
    .prepare = prepare, .release = release, .form = form_of, .forward = forward, .backward = backward};
