/* Calls of other sizes than the plan's: numbers of loops that are one kernel, or a few, and algorithms of products.
 *
 * The engine finds how the numbers of a loop follow from the sizes, as program/sizes.h does for those of a program: from the loop at a few
 * sizes. Every run has copies of its loops, whose numbers it sets to the sizes of a call. */
#include "device/cuda/engine/worker.h"
#include "device/cuda/persistent/persistent.h"
#include "device/cuda/recurrence/recurrence.h"

#include <string.h>

typedef void (*visitor)(void *user, int64_t *at);

/* ---- numbers of a loop ---- */

/* A loop in either form; `count`: of recurrences. */
typedef struct {
    rcvi_persistent *persistent;
    rcvi_recurrence *recurrences;
    int count;
} sized_loop;

static void visit_recurrence(rcvi_recurrence *r, visitor number, void *user) {
    int64_t *const all[] = {&r->rows, &r->count, &r->time.base, &r->time.inner, &r->time.outer};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) number(user, all[i]);
    for (int v = 0; v < r->map.operand_count; v++) {
        rcvi_view *view = &r->map.operands[v];
        int64_t *const of_view[] = {&view->offset, &view->stride, &view->outer, &view->slot};
        for (size_t i = 0; i < sizeof of_view / sizeof *of_view; i++) number(user, of_view[i]);
    }
}

static void visit_loop(sized_loop loop, visitor number, void *user) {
    if (loop.persistent) rcvi_persistent_numbers(loop.persistent, number, user);
    for (int i = 0; i < loop.count; i++) visit_recurrence(&loop.recurrences[i], number, user);
}

static size_t count_numbers(sized_loop loop) {
    rcvi_numbers numbers = {.values = NULL};
    visit_loop(loop, rcvi_collect_number, &numbers);
    return numbers.count;
}

/* ---- the engine: how numbers follow from sizes ---- */

/* Copies of a loop's recurrences whose numbers can be changed. */
static rcvi_recurrence *copy_recurrences(rcvi_pool *pool, const rcvi_cuda_recurrences *list) {
    rcvi_recurrence *copies = rcvi_pool_new(pool, (size_t)list->count, sizeof *copies);
    for (int i = 0; copies && i < list->count; i++) {
        const rcvi_recurrence *from = list->all[i].r;
        size_t count = (size_t)from->map.operand_count;
        copies[i] = *from;
        copies[i].map.operands = rcvi_pool_new(pool, count, sizeof *from->map.operands);
        if (!copies[i].map.operands) return NULL;
        memcpy(copies[i].map.operands, from->map.operands, count * sizeof *from->map.operands);
    }
    return copies;
}

/* The engine's loop as copies in the pool. */
static rcv_status copy_loop(rcvi_pool *pool, const rcvi_engine *e, size_t loop, sized_loop *out) {
    *out = (sized_loop){.persistent = NULL};
    if (e->persistent[loop]) out->persistent = rcvi_persistent_copy(pool, e->persistent[loop]);
    if (e->recurrences[loop]) {
        out->recurrences = copy_recurrences(pool, e->recurrences[loop]);
        out->count = e->recurrences[loop]->count;
    }
    return pool->failed ? RCV_NO_MEMORY : RCV_OK;
}

/* Collects the numbers of a loop at the sizes of this program. */
static rcv_status sample_loop(const rcvi_engine *e, const rcvi_program *program, size_t loop, size_t total,
                              int64_t *values) {
    rcvi_engine sample = *e;
    sized_loop made = {.persistent = NULL};
    sample.program = program;
    rcvi_pool_init(&sample.pool, e->context);
    rcv_status status = RCV_OK;
    if (e->persistent[loop])
        status = rcvi_persistent_sample(&sample, e->persistent[loop], &made.persistent);
    else
        status = rcvi_recurrences_find(&sample.pool, program, loop, &made.recurrences, &made.count);
    if (!status && count_numbers(made) != total)
        status = rcvi_fail(RCV_UNSUPPORTED, "a loop of this plan has other values at other sizes");
    rcvi_numbers numbers = {.values = values};
    if (!status) visit_loop(made, rcvi_collect_number, &numbers);
    rcvi_persistent_free(e->context, made.persistent);
    rcvi_pool_free(&sample.pool);
    return status;
}

static rcv_status fit_loop(rcvi_engine *e, size_t loop, rcvi_instance *const *samples, int count) {
    sized_loop planned;
    rcvi_pool pool;
    rcvi_pool_init(&pool, e->context);
    rcv_status status = copy_loop(&pool, e, loop, &planned);
    size_t total = status ? 0 : count_numbers(planned);
    int64_t *values[RCVI_MAX_SIZE_SAMPLES] = {NULL}, *own = rcvi_pool_new(&pool, total, sizeof *own);
    for (int s = 0; s < count; s++) values[s] = rcvi_pool_new(&pool, total, sizeof **values);
    if (pool.failed) status = RCV_NO_MEMORY;
    rcvi_numbers numbers = {.values = own};
    if (!status) visit_loop(planned, rcvi_collect_number, &numbers);
    for (int s = 0; s < count && !status; s++) status = sample_loop(e, &samples[s]->program, loop, total, values[s]);
    if (!status) status = rcvi_sizing_fit(&e->pool, e->program, total, values, own, &e->loop_sizings[loop]);
    rcvi_pool_free(&pool);
    return status;
}

rcv_status rcvi_cuda_fit_loops(rcvi_engine *e, const rcvi_sizing *sizing) {
    rcvi_sizes sizes[RCVI_MAX_SIZE_SAMPLES];
    rcvi_instance *samples[RCVI_MAX_SIZE_SAMPLES] = {NULL};
    int count = rcvi_size_samples(e->program, sizes);
    size_t bytes = rcvi_instance_bytes(e->program);
    rcvi_pool pool;
    rcvi_pool_init(&pool, e->context);
    e->loop_sizings = rcvi_pool_new(&e->pool, e->program->step_count, sizeof *e->loop_sizings);
    rcv_status status = e->loop_sizings ? RCV_OK : RCV_NO_MEMORY;
    for (int s = 0; s < count && !status; s++) {
        void *memory = rcvi_pool_new(&pool, bytes, 1);
        if (!memory) {
            status = RCV_NO_MEMORY;
            break;
        }
        samples[s] = rcvi_instance_make(e->program, memory);
        rcvi_instance_resize(samples[s], sizing, sizes[s]);
    }
    for (size_t i = 0; i < e->program->step_count && !status; i++) {
        if (e->persistent[i] || e->recurrences[i]) status = fit_loop(e, i, samples, count);
    }
    rcvi_pool_free(&pool);
    return status;
}

static bool has_such_loops(const rcvi_engine *e) {
    bool found = false;
    for (size_t i = 0; i < e->program->step_count; i++) found |= e->persistent[i] || e->recurrences[i];
    return found;
}

rcv_status rcvi_cuda_serve_sizes(rcvi_engine *e, const rcvi_sizing *sizing) {
    int before = 0;
    if (has_such_loops(e)) RCVI_TRY(rcvi_cuda_fit_loops(e, sizing));
    RCVI_TRY(rcvi_cuda_enter(e->ordinal, &before));
    rcv_status status = rcvi_cuda_prepare_short_gemms(e);
    rcvi_cuda_leave(before);
    return status;
}

/* ---- a run: its loops at the sizes of a call ---- */

rcv_status rcvi_cuda_open_loops(rcvi_worker *w) {
    const rcvi_engine *e = w->engine;
    size_t steps = e->program->step_count;
    w->persistent = rcvi_pool_new(&w->pool, steps, sizeof *w->persistent);
    w->recurrences = rcvi_pool_new(&w->pool, steps, sizeof *w->recurrences);
    w->loop_numbers = rcvi_pool_new(&w->pool, steps, sizeof *w->loop_numbers);
    if (w->pool.failed) return RCV_NO_MEMORY;
    w->loop_sizes = e->program->sizes;
    for (size_t i = 0; i < steps; i++) {
        sized_loop loop;
        if (!e->persistent[i] && !e->recurrences[i]) continue;
        RCVI_TRY(copy_loop(&w->pool, e, i, &loop));
        w->persistent[i] = loop.persistent;
        w->recurrences[i] = loop.recurrences;
        if (!e->loop_sizings) continue;
        rcvi_sized_places places = {.sizing = &e->loop_sizings[i]};
        places.at = w->loop_numbers[i] = rcvi_pool_new(&w->pool, places.sizing->count, sizeof *places.at);
        if (w->pool.failed) return RCV_NO_MEMORY;
        visit_loop(loop, rcvi_find_sized_number, &places);
    }
    return RCV_OK;
}

void rcvi_cuda_resize_loops(rcvi_worker *w, rcvi_sizes sizes) {
    const rcvi_engine *e = w->engine;
    if (w->loop_sizes.steps == sizes.steps && w->loop_sizes.batch == sizes.batch) return;
    w->loop_sizes = sizes;
    for (size_t i = 0; e->loop_sizings && i < e->program->step_count; i++) {
        if (w->loop_numbers[i]) rcvi_sizing_apply(&e->loop_sizings[i], sizes, w->loop_numbers[i]);
    }
}
