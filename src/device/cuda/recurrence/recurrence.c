/* Recurrences on a GPU: which instructions are computed before the state is known and which after it, how the loop is divided, and its
 * launches. */
#include "device/cuda/recurrence/recurrence.h"
#include "device/cuda/codegen/jit.h"
#include "device/cuda/engine/worker.h"
#include "device/cuda/recurrence/tuning.h"

#include <string.h>

enum { WORD_BYTES = 4, MOST_GRID = 65535 /* blocks along y */ };

/* ---- before and after the state is known ---- */

static bool is_next_state(const rcvi_cuda_recurrence *c, int k) {
    return c->r->state != RCVI_NONE && k == c->r->carried[c->r->state].source;
}

static void read_view(rcvi_cuda_recurrence *c, int v, bool early) {
    if (c->readings[v] == RCVI_READ_CARRIED || c->readings[v] == RCVI_READ_ONCE) return;
    if (c->r->is_constant[v])
        c->readings[v] = RCVI_READ_ONCE;
    else if (early)
        c->readings[v] = RCVI_READ_EARLY;
    else if (c->readings[v] != RCVI_READ_EARLY)
        c->readings[v] = RCVI_READ_LATE;
}

/* A value that is computed early and needed late is computed again. */
static void compute_again(rcvi_cuda_recurrence *c, int k) {
    if (c->again[k]) return;
    c->again[k] = true;
    const rcvi_instruction *instruction = &c->r->map.instructions[k];
    for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
        int source = instruction->source[a];
        if (instruction->from[a] == RCVI_FROM_REGISTER) compute_again(c, source);
        if (instruction->from[a] == RCVI_FROM_VIEW) c->read_again[source] = c->readings[source] == RCVI_READ_EARLY;
    }
}

/* Marks instruction k and all that it needs. */
static void need(rcvi_cuda_recurrence *c, int k, bool early) {
    bool *needed = early ? c->early : c->late;
    if (!early && c->early[k]) {
        compute_again(c, k);
        return;
    }
    bool scanned = c->cut.form != RCVI_SCAN_CHANNELS;
    if (needed[k] || (!early && scanned && is_next_state(c, k))) return;
    needed[k] = true;
    const rcvi_instruction *instruction = &c->r->map.instructions[k];
    for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
        int source = instruction->source[a];
        if (instruction->from[a] == RCVI_FROM_REGISTER) need(c, source, early);
        if (instruction->from[a] != RCVI_FROM_VIEW) continue;
        read_view(c, source, early);
        if (!early) c->read_again[source] = c->readings[source] == RCVI_READ_EARLY;
    }
}

static void clear_needs(rcvi_cuda_recurrence *c) {
    const rcvi_recurrence *r = c->r;
    size_t operands = (size_t)r->map.operand_count, instructions = (size_t)r->map.instruction_count;
    memset(c->readings, 0, operands * sizeof *c->readings);
    memset(c->read_again, 0, operands * sizeof *c->read_again);
    memset(c->early, 0, instructions * sizeof *c->early);
    memset(c->late, 0, instructions * sizeof *c->late);
    memset(c->again, 0, instructions * sizeof *c->again);
    for (int i = 0; i < r->carried_count; i++) c->readings[r->carried[i].read] = RCVI_READ_CARRIED;
}

/* A loop: all is computed late, and all that is read is loaded early. */
static void find_loop_needs(rcvi_cuda_recurrence *c) {
    const rcvi_recurrence *r = c->r;
    clear_needs(c);
    for (int i = 0; i < r->map.store_count; i++) need(c, r->map.stores[i].source, false);
    for (int i = 0; i < r->carried_count; i++) need(c, r->carried[i].source, false);
    for (int v = 0; v < r->map.operand_count; v++) {
        if (c->readings[v] == RCVI_READ_LATE) c->readings[v] = RCVI_READ_EARLY;
    }
}

static void find_scan_needs(rcvi_cuda_recurrence *c) {
    const rcvi_recurrence *r = c->r;
    clear_needs(c);
    c->early_stores = c->cut.form == RCVI_SCAN_CHAINED; /* the form three computes all of it twice */
    need(c, r->scale, true);
    need(c, r->offset, true);
    compute_again(c, r->scale);
    compute_again(c, r->offset);
    for (int i = 0; i < r->map.store_count; i++) {
        const rcvi_map_store *store = &r->map.stores[i];
        bool summed = c->sum != RCVI_NONE && store->source == r->carried[c->sum].source;
        if (!summed && !(c->early_stores && c->early[store->source])) need(c, store->source, false);
    }
    if (c->sum != RCVI_NONE) need(c, r->carried[c->sum].term, false);
    for (int i = 0; i < r->map.store_count; i++) {
        const rcvi_map_store *store = &r->map.stores[i];
        if (c->early[store->source] && rcvi_recurrence_reads_late(c, store->out)) need(c, store->source, false);
    }
}

/* Marks what instruction k needs when the state is known; what was computed early is computed again. */
static void need_all(rcvi_cuda_recurrence *c, int k) {
    if (c->late[k]) return;
    c->late[k] = true;
    const rcvi_instruction *instruction = &c->r->map.instructions[k];
    for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
        int source = instruction->source[a];
        if (instruction->from[a] == RCVI_FROM_REGISTER) need_all(c, source);
        if (instruction->from[a] != RCVI_FROM_VIEW) continue;
        read_view(c, source, false);
        c->read_again[source] = c->readings[source] == RCVI_READ_EARLY;
    }
}

/* Newton: the next state and its derivative are computed in every round before the state is known. */
static void find_newton_needs(rcvi_cuda_recurrence *c) {
    const rcvi_recurrence *r = c->r;
    clear_needs(c);
    c->early_stores = false;
    need(c, r->carried[r->state].source, true);
    need(c, r->slope, true);
    need_all(c, r->carried[r->state].source);
    for (int i = 0; i < r->map.store_count; i++) {
        bool summed = c->sum != RCVI_NONE && r->map.stores[i].source == r->carried[c->sum].source;
        if (!summed) need_all(c, r->map.stores[i].source);
    }
    if (c->sum != RCVI_NONE) need_all(c, r->carried[c->sum].term);
}

/* ---- how a loop is divided ---- */

static int widest_vector(const rcvi_recurrence *r) {
    for (int vector = 4; vector > 1; vector /= 2) {
        bool good = r->columns % vector == 0;
        for (int v = 0; good && v < r->map.operand_count; v++)
            good = r->map.operands[v].column == 0 || rcvi_cuda_is_multiple(&r->map.operands[v], vector);
        if (good) return vector;
    }
    return 1;
}

static int bytes_of(const rcvi_cuda_recurrence *c, int v) { return (int)rcvi_cuda_bytes(c->types[v]); }

/* Finds the carried value that is a sum; false where tiles cannot add it up: it must be the only one, dense in memory, of reals. */
static bool find_sum(const rcvi_engine *e, rcvi_cuda_recurrence *c) {
    const rcvi_recurrence *r = c->r;
    c->sum = RCVI_NONE;
    for (int i = 0; i < r->carried_count; i++) {
        if (r->carried[i].term == RCVI_NONE) continue;
        int stores = 0, v = r->carried[i].read;
        for (int k = 0; k < r->map.store_count; k++) {
            if (r->map.stores[k].source == r->carried[i].source) stores += r->map.stores[k].out == v ? 1 : 2;
        }
        const rcvi_view *view = &r->map.operands[v];
        bool dense = view->row == r->columns && view->column == 1 && !view->wrap;
        if (c->sum != RCVI_NONE || stores != 1 || !dense || c->types[v] != e->real || c->has_rounded[v]) return false;
        c->sum = i;
    }
    return true;
}

static void cut_loop(const rcvi_engine *e, rcvi_cuda_recurrence *c) {
    const rcvi_recurrence *r = c->r;
    int64_t channels = r->rows * r->columns;
    int vector = widest_vector(r), bytes = 0;
    while (vector > 1 && channels / vector < (int64_t)e->processors * RCVI_TUNED_LOOP_FULL) vector /= 2;
    c->cut =
        (rcvi_scan_cut){.form = RCVI_SCAN_CHANNELS, .vector = vector, .threads = RCVI_TUNED_LOOP_THREADS, .steps = 1};
    find_loop_needs(c);
    for (int v = 0; v < r->map.operand_count; v++) bytes += c->readings[v] == RCVI_READ_EARLY ? bytes_of(c, v) : 0;
    while (c->cut.steps < RCVI_TUNED_LOOP_STEPS &&
           2 * c->cut.steps * vector * bytes <= RCVI_TUNED_LOOP_WORDS * WORD_BYTES)
        c->cut.steps *= 2;
}

/* The largest divisor of a thread's positions whose bytes it may have in flight at once. */
static int at_once(const rcvi_cuda_recurrence *c, int bytes) {
    int count = c->cut.steps;
    while (count > 1 && count * c->cut.vector * bytes > RCVI_TUNED_RECURRENCE_WORDS * WORD_BYTES) count /= 2;
    return count;
}

static void find_batches(rcvi_cuda_recurrence *c) {
    int early = 0, late = 0;
    for (int v = 0; v < c->r->map.operand_count; v++) {
        early += c->readings[v] == RCVI_READ_EARLY ? bytes_of(c, v) : 0;
        late += c->readings[v] == RCVI_READ_LATE || c->read_again[v] ? bytes_of(c, v) : 0;
    }
    c->fetch = at_once(c, early);
    c->batch = at_once(c, late);
}

static int64_t tile_steps(const rcvi_scan_cut *cut) { return (int64_t)(cut->threads / cut->lanes) * cut->steps; }
static int64_t tiles_of(const rcvi_scan_cut *cut, int64_t steps) {
    return (steps + tile_steps(cut) - 1) / tile_steps(cut);
}

/* A scan, where the recurrence is affine: else c->cut.form becomes RCVI_SCAN_CHANNELS. */
static rcv_status cut_scan(const rcvi_engine *e, rcvi_cuda_recurrence *c) {
    const rcvi_recurrence *r = c->r;
    int64_t channels = r->rows * r->columns;
    c->cut.form = RCVI_SCAN_CHANNELS;
    if (r->scale == RCVI_NONE || !find_sum(e, c)) return RCV_OK;
    c->cut = rcvi_scan_find_cut(RCVI_SCAN_FORMS, e->real == RCVI_F64, r->count, channels, widest_vector(r), WORD_BYTES,
                                e->processors);
    if (c->cut.form == RCVI_SCAN_CHANNELS) return RCV_OK;
    find_scan_needs(c);
    find_batches(c);
    c->cut.tiles = tiles_of(&c->cut, r->count);
    if (c->cut.tiles > (INT32_MAX - 4096) / c->cut.chains) { /* more than one launch takes */
        c->cut.form = RCVI_SCAN_CHANNELS;
        return RCV_OK;
    }
    c->states = rcvi_scan_scratch(&c->cut, rcvi_cuda_bytes(e->real));
    if (c->sum != RCVI_NONE) c->sums = (size_t)(c->cut.tiles * channels) * rcvi_cuda_bytes(e->real);
    return RCV_OK;
}

/* Newton iterations. With few channels a block has few of them, and long tiles. */
static void cut_newton(const rcvi_engine *e, rcvi_cuda_recurrence *c) {
    const rcvi_recurrence *r = c->r;
    int64_t channels = r->rows * r->columns;
    if (!e->program->rungs.newton || r->slope == RCVI_NONE || !find_sum(e, c)) return;
    int vector = widest_vector(r), lanes = RCVI_TUNED_NEWTON_LANES;
    while (lanes > 1 && lanes * vector > RCVI_TUNED_NEWTON_CHANNELS &&
           channels / (lanes * vector) < (int64_t)e->processors * RCVI_TUNED_NEWTON_BLOCKS)
        lanes /= 2;
    c->cut = (rcvi_scan_cut){.form = RCVI_SCAN_NEWTON,
                             .vector = vector,
                             .lanes = lanes,
                             .steps = RCVI_TUNED_NEWTON_STEPS,
                             .threads = RCVI_TUNED_NEWTON_THREADS,
                             .blocks = 1,
                             .chains = (channels / vector + lanes - 1) / lanes};
    c->cut.tiles = tiles_of(&c->cut, r->count);
    find_newton_needs(c);
    find_batches(c);
    if (c->sum != RCVI_NONE) c->sums = (size_t)(c->cut.tiles * channels) * rcvi_cuda_bytes(e->real);
}

/* ---- preparing ---- */

/* The text has strides for one sequence: rows are sequences, and what moves in time moves by whole batches. */
static rcv_status check_sizes(const rcvi_engine *e, const rcvi_recurrence *r) {
    int64_t batch = e->program->sizes.batch;
    bool good = r->rows == batch;
    for (int v = 0; good && v < r->map.operand_count; v++)
        good = r->map.operands[v].stride % batch == 0 && r->map.operands[v].slot % batch == 0;
    return good ? RCV_OK : rcvi_fail(RCV_UNSUPPORTED, "a recurrence needs a row for every sequence");
}

static rcv_status make(rcvi_engine *e, const rcvi_recurrence *r, rcvi_cuda_recurrence *c) {
    size_t operands = (size_t)r->map.operand_count, instructions = (size_t)r->map.instruction_count;
    c->r = r;
    c->types = rcvi_pool_new(&e->pool, operands, sizeof *c->types);
    c->has_rounded = rcvi_pool_new(&e->pool, operands, sizeof *c->has_rounded);
    c->readings = rcvi_pool_new(&e->pool, operands, sizeof *c->readings);
    c->read_again = rcvi_pool_new(&e->pool, operands, sizeof *c->read_again);
    c->early = rcvi_pool_new(&e->pool, instructions, sizeof *c->early);
    c->late = rcvi_pool_new(&e->pool, instructions, sizeof *c->late);
    c->again = rcvi_pool_new(&e->pool, instructions, sizeof *c->again);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (int v = 0; v < r->map.operand_count; v++) {
        const rcvi_view *view = &r->map.operands[v];
        if (e->transposed[view->buffer]) return rcvi_fail(RCV_UNSUPPORTED, "a recurrence reads no transposed buffer");
        c->types[v] = rcvi_cuda_type_of(e, view);
        c->has_rounded[v] = rcvi_cuda_has_rounded(e, view->buffer);
    }
    RCVI_TRY(check_sizes(e, r));
    RCVI_TRY(cut_scan(e, c));
    if (c->cut.form == RCVI_SCAN_CHANNELS) cut_newton(e, c);
    if (c->cut.form == RCVI_SCAN_CHANNELS) {
        c->sum = RCVI_NONE;
        cut_loop(e, c);
    }
    return rcvi_recurrence_source(e->context, e, c);
}

rcv_status rcvi_cuda_recurrences_new(rcvi_engine *e, size_t loop, rcvi_cuda_recurrences **out) {
    rcvi_recurrence *all = NULL;
    int count = 0;
    *out = NULL;
    RCVI_TRY(rcvi_recurrences_find(&e->pool, e->program, loop, &all, &count));
    rcvi_cuda_recurrences *list = rcvi_pool_new(&e->pool, 1, sizeof *list);
    rcvi_cuda_recurrence *made = rcvi_pool_new(&e->pool, (size_t)count, sizeof *made);
    if (e->pool.failed) return RCV_NO_MEMORY;
    *list = (rcvi_cuda_recurrences){made, count};
    rcv_status status = RCV_OK;
    for (int i = 0; i < count && !status; i++) status = make(e, &all[i], &made[i]);
    if (status)
        rcvi_cuda_recurrences_free(e->context, list);
    else
        *out = list;
    return status;
}

void rcvi_cuda_recurrences_free(rcv_context *context, rcvi_cuda_recurrences *list) {
    for (int i = 0; list && i < list->count; i++) {
        if (list->all[i].code) cudaLibraryUnload(list->all[i].code);
        rcvi_free(context, list->all[i].source);
    }
}

rcv_status rcvi_cuda_recurrence_load(rcvi_cuda_recurrence *c, const void *code) {
    static const char *const three[] = {"reduce_kernel", "carry_kernel", "expand_kernel"};
    bool is_three = c->cut.form == RCVI_SCAN_THREE;
    const char *name = is_three ? three[0] : c->cut.form == RCVI_SCAN_CHANNELS ? "loop_kernel" : "scan_kernel";
    RCVI_TRY(rcvi_jit_load(code, name, 0, &c->code, &c->kernels[0]));
    for (int k = 1; is_three && k < 3; k++)
        RCVI_CUDA_TRY(cudaLibraryGetKernel(&c->kernels[k], c->code, three[k]), "preparing a recurrence");
    if (c->sum == RCVI_NONE) return RCV_OK;
    return rcvi_cuda_check(cudaLibraryGetKernel(&c->kernels[RCVI_RECURRENCE_KERNELS - 1], c->code, "sum_kernel"),
                           "preparing a recurrence");
}

void rcvi_cuda_recurrences_tell(const rcvi_cuda_recurrences *list, rcvi_text *text) {
    for (int i = 0; i < list->count; i++) {
        const rcvi_cuda_recurrence *c = &list->all[i];
        long long channels = c->r->rows * c->r->columns, tiles = c->cut.tiles * c->cut.chains;
        const char *what = c->cut.form == RCVI_SCAN_CHAINED  ? "a scan in one pass"
                           : c->cut.form == RCVI_SCAN_THREE  ? "a scan in three kernels"
                           : c->cut.form == RCVI_SCAN_NEWTON ? "Newton iterations within tiles"
                           : c->r->carried_count             ? "one thread for every channel"
                                                             : "all steps at once";
        rcvi_text_add(text, "a loop of %lld steps of %lld channels: %s", (long long)c->r->count, channels, what);
        if (c->cut.form != RCVI_SCAN_CHANNELS)
            rcvi_text_add(text, ", %lld tiles of %lld steps and %d channels", tiles, (long long)tile_steps(&c->cut),
                          c->cut.vector * c->cut.lanes);
        rcvi_text_add(text, "\n");
    }
}

/* ---- launches ---- */

typedef struct {
    const rcvi_worker *worker;
    const rcvi_cuda_recurrence *c;
    const rcvi_recurrence *r; /* at the sizes of the call */
    char *scratch;
    cudaStream_t stream;
    int64_t first, count, outer;
} launch;

static rcv_status start(const launch *l, int kernel, dim3 grid, int threads, void **values) {
    dim3 block = {.x = (unsigned)threads, .y = 1, .z = 1};
    return rcvi_cuda_check(cudaLaunchKernel((const void *)l->c->kernels[kernel], grid, block, values, 0, l->stream),
                           "launching a recurrence");
}

static dim3 grid_of(int64_t blocks) { return (dim3){.x = (unsigned)blocks, .y = 1, .z = 1}; }
static int64_t divide_up(int64_t count, int64_t each) { return (count + each - 1) / each; }

/* As struct RecurrenceArgs of recurrence.cuh; the kernel finds the slots of rings. */
static void fill_words(const launch *l, uint64_t *words) {
    const rcvi_engine *e = l->worker->engine;
    const rcvi_recurrence *r = l->r;
    int views = r->map.operand_count;
    for (int v = 0; v < views; v++) {
        const rcvi_view *view = &r->map.operands[v];
        int64_t start = view->offset + l->first * view->stride + l->outer * view->outer;
        char *at = l->worker->buffers[view->buffer];
        words[v] = at ? (uint64_t)(uintptr_t)(at + start * (int64_t)rcvi_cuda_bytes(l->c->types[v])) : 0;
        words[views + v] = 0;
        if (at && l->c->has_rounded[v])
            words[views + v] = (uint64_t)(uintptr_t)(rcvi_cuda_rounded_copy(l->worker, l->scratch, view->buffer) +
                                                     start * (int64_t)rcvi_cuda_bytes(e->narrow));
    }
    words[2 * views] = (uint64_t)(r->time.base + l->first * r->time.inner + l->outer * r->time.outer);
    words[2 * views + 1] = (uint64_t)l->count;
    words[2 * views + 2] = (uint64_t)r->rows;
    words[2 * views + 3] = (uint64_t)(uintptr_t)(l->scratch + e->scan_sums);
}

static rcv_status launch_loop(const launch *l, void *words) {
    const rcvi_scan_cut *cut = &l->c->cut;
    int64_t across = divide_up(l->r->rows * l->r->columns / cut->vector, cut->threads);
    int64_t down = l->r->carried_count ? 1 : divide_up(l->count, RCVI_TUNED_LOOP_POSITIONS);
    dim3 grid = {.x = (unsigned)across, .y = (unsigned)(down < MOST_GRID ? down : MOST_GRID), .z = 1};
    return start(l, 0, grid, cut->threads, (void *[]){words});
}

/* Chains of tiles: blocks of channels. */
static int64_t chains_of(const launch *l) {
    const rcvi_scan_cut *cut = &l->c->cut;
    return divide_up(l->r->rows * l->r->columns / cut->vector, cut->lanes);
}

static rcv_status launch_three(const launch *l, void **values) {
    const rcvi_scan_cut *cut = &l->c->cut;
    int64_t tiles = *(int64_t *)values[3], chains = chains_of(l), threads = chains * cut->lanes;
    RCVI_TRY(start(l, 0, grid_of(chains * tiles), cut->threads, values));
    RCVI_TRY(start(l, 1, grid_of(divide_up(threads, cut->threads)), cut->threads, values));
    return start(l, 2, grid_of(chains * tiles), cut->threads, values);
}

static rcv_status launch_scan(const launch *l, void *words) {
    const rcvi_scan_cut *cut = &l->c->cut;
    int chains = (int)chains_of(l);
    int64_t steps = l->count, tiles = tiles_of(cut, l->count), all = chains * tiles;
    int64_t most = (int64_t)l->worker->engine->processors * cut->blocks;
    char *head = l->scratch + l->worker->engine->scans, *after = head + RCVI_SCAN_HEAD;
    if (cut->form == RCVI_SCAN_NEWTON)
        return start(l, 0, grid_of(chains), cut->threads, (void *[]){words, &steps, &chains, &tiles});
    if (cut->form == RCVI_SCAN_THREE) return launch_three(l, (void *[]){words, &steps, &chains, &tiles, &head});
    return start(l, 0, grid_of(cut->many && most < all ? most : all), cut->threads,
                 (void *[]){words, &steps, &chains, &tiles, &head, &after});
}

/* Adds the sums of tiles to what is there. */
static rcv_status launch_sum(const launch *l, const uint64_t *words) {
    const rcvi_recurrence *r = l->r;
    int views = r->map.operand_count;
    uint64_t sums = words[2 * views + 3], to = words[r->carried[l->c->sum].read];
    int64_t tiles = tiles_of(&l->c->cut, l->count), channels = r->rows * r->columns;
    return start(l, RCVI_RECURRENCE_KERNELS - 1, grid_of(divide_up(channels, RCVI_TUNED_SUM_THREADS)),
                 RCVI_TUNED_SUM_THREADS, (void *[]){&sums, &tiles, &channels, &to});
}

static rcv_status launch_one(launch *l) {
    uint64_t words[2 * RCVI_MAX_OPERANDS + 4];
    l->count = rcvi_recurrence_due(l->worker->program, l->r, l->outer, &l->first);
    if (!l->count) return RCV_OK;
    fill_words(l, words);
    if (l->c->cut.form == RCVI_SCAN_CHANNELS) return launch_loop(l, words);
    RCVI_TRY(launch_scan(l, words));
    return l->c->sum == RCVI_NONE ? RCV_OK : launch_sum(l, words);
}

rcv_status rcvi_cuda_recurrences_launch(const rcvi_worker *worker, const rcvi_cuda_recurrences *list,
                                        const rcvi_recurrence *sized, int64_t outer, char *scratch,
                                        cudaStream_t stream) {
    for (int i = 0; i < list->count; i++) {
        launch l = {
            .worker = worker, .c = &list->all[i], .r = &sized[i], .scratch = scratch, .stream = stream, .outer = outer};
        RCVI_TRY(launch_one(&l));
    }
    return RCV_OK;
}
