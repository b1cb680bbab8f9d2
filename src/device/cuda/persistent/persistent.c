/* A time loop as tasks: which steps belong to which task, and the order in which the other files work on them. See persistent.h. */
#include "device/cuda/persistent/internal.h"

/* ---- steps ---- */

/* Type of the operands: 16 bits or tfloat32 as they are; a float32 as several bfloat16 (parts), or, with parts=1, by FMA. */
static rcv_status find_operands(const rcvi_engine *e, rcvi_persistent *p) {
    bool exact = e->narrow == e->real && !e->tensor;
    int parts = (int)e->program->rungs.parts;
    if (e->real == RCVI_F64)
        return rcvi_persistent_refuse(
            "a persistent kernel multiplies bfloat16, float16, tfloat32 or float32, not float64");
    if (parts && !exact) return rcvi_persistent_refuse("parts of persistent are those of a float32");
    p->parts = !exact ? 1 : parts ? parts : RCVI_USUAL_PARTS;
    p->operand = p->parts > 1 ? RCVI_BF16 : e->narrow;
    p->exact = exact && p->parts == 1;
    if (e->major != 9)
        return rcvi_fail(RCV_UNSUPPORTED, "a persistent kernel needs compute capability 9.0; this GPU has %d.%d",
                         e->major, e->minor);
    return RCV_OK;
}

static rcv_status check_step(const rcvi_engine *e, const rcvi_step *step) {
    bool map = step->kind == RCVI_STEP_MAP;
    if (!map && step->kind != RCVI_STEP_SELECT)
        return rcvi_fail(RCV_UNSUPPORTED,
                         "a persistent kernel takes maps and selections, but this plan's time loop has a %s",
                         rcvi_step_names[step->kind]);
    bool timed = step->time.timed && step->time.span == 1 && step->time.inner;
    if (!timed || step->time.outer || step->rows != e->program->sizes.batch)
        return rcvi_persistent_refuse(
            "a persistent kernel goes through time step by step: give combine steps=1 or all steps");
    for (int p = 0; map && p < step->map->product_count; p++) {
        for (int t = 0; t < step->map->products[p].term_count; t++) {
            if (step->map->products[p].terms[t].plain)
                return rcvi_persistent_refuse("a persistent kernel keeps packed weights: add pack");
        }
    }
    return RCV_OK;
}

/* Iterations at which 0 <= time < steps. */
static void find_due(const rcvi_engine *e, const rcvi_step *step, int64_t iterations, rcvi_kernel_step *s) {
    int64_t steps = e->program->sizes.steps, base = step->time.base, inner = step->time.inner;
    int64_t first = inner > 0 ? -base : base - steps + 1, each = inner > 0 ? inner : -inner;
    s->low = first > 0 ? (first + each - 1) / each : 0;
    s->high = first + steps > 0 ? (first + steps + each - 1) / each : 0;
    if (s->high > iterations) s->high = iterations;
    if (s->low > s->high) s->low = s->high;
}

static rcv_status open_step(rcvi_engine *e, const rcvi_persistent *p, rcvi_kernel_step *s) {
    const rcvi_step *step = s->step;
    rcvi_cuda_ready ready = {.kernel = RCVI_NONE};
    RCVI_TRY(rcvi_cuda_shape_map(e, step, p->merged, (size_t)p->step_count, &ready, &s->shape));
    s->task = RCVI_NONE;
    s->views = ready.views;
    s->view_count = ready.view_count;
    s->passes = ready.passes;
    s->pass_count = ready.pass_count;
    for (int v = 0; v < step->map->operand_count; v++) {
        s->rounded_count += s->shape.has_rounded[v];
        s->has_row_order |= s->is_in_caller_order[v];
        s->has_row_arguments |= s->is_short[v] || s->is_in_caller_order[v];
    }
    s->is_remote = rcvi_pool_new(&e->pool, (size_t)s->view_count, sizeof *s->is_remote);
    s->is_exported = rcvi_pool_new(&e->pool, (size_t)s->view_count, sizeof *s->is_exported);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (int q = 0; q < s->pass_count; q++) s->operand_ports[q] = RCVI_NONE;
    find_due(e, step, p->iterations, s);
    return RCV_OK;
}

/* ---- tasks ---- */

static bool same_weights(const rcvi_kernel_step *a, const rcvi_kernel_step *b) {
    int products = a->shape.map->product_count;
    if (products != b->shape.map->product_count || a->pass_count != b->pass_count ||
        a->second_product != b->second_product)
        return false;
    for (int q = 0; q < a->pass_count; q++) {
        if (a->passes[q].depth != b->passes[q].depth) return false;
        for (int p = 0; p < products; p++) {
            int x = a->passes[q].b[p], y = b->passes[q].b[p];
            if ((x == RCVI_NONE) != (y == RCVI_NONE)) return false;
            if (x != RCVI_NONE && !rcvi_view_equal(a->views[x], b->views[y])) return false;
        }
    }
    return true;
}

static rcv_status add_to_task(rcvi_persistent *p, int step, int task) {
    rcvi_task *s = &p->tasks[task];
    if (s->step_count == RCVI_MAX_TASK_STEPS)
        return rcvi_fail(RCV_UNSUPPORTED, "a persistent kernel takes %d steps of one layer at most",
                         RCVI_MAX_TASK_STEPS);
    s->steps[s->step_count++] = step;
    p->steps[step].task = task;
    return RCV_OK;
}

static rcv_status make_tasks(rcvi_persistent *p) {
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_step *step = p->steps[i].step;
        int products = step->map->product_count, second_product = p->steps[i].second_product;
        if (!products) continue;
        int task = 0;
        while (task < p->task_count && !(same_weights(&p->steps[p->tasks[task].product_step], &p->steps[i]) &&
                                         p->tasks[task].columns == step->columns))
            task++;
        if (task == p->task_count) {
            p->tasks[p->task_count++] = (rcvi_task){
                .product_step = i,
                .layer = step->layer,
                .direction = step->direction,
                .columns = step->columns,
                .products = products - second_product > second_product ? products - second_product : second_product};
        }
        RCVI_TRY(add_to_task(p, i, task));
    }
    return RCV_OK;
}

/* A map without products belongs to the task of the step with products that merge_steps.c found for it. */
static rcv_status add_maps_to_tasks(rcvi_persistent *p) {
    for (int i = 0; i < p->step_count; i++) {
        if (p->steps[i].task == RCVI_NONE) RCVI_TRY(add_to_task(p, i, p->steps[p->steps[i].product_step].task));
    }
    return RCV_OK;
}

static bool write_alike(const rcvi_step *x, const rcvi_step *y) {
    rcvi_access a[RCVI_MAX_ACCESSES], b[RCVI_MAX_ACCESSES];
    int m = rcvi_step_accesses(x, a), n = rcvi_step_accesses(y, b);
    bool found = false;
    for (int i = 0; i < m; i++) {
        for (int k = 0; k < n; k++) found |= a[i].written && b[k].written && a[i].view->buffer == b[k].view->buffer;
    }
    return found;
}

/* Does the step write a buffer that a step with products of its task writes, too? Then it stays by columns. */
static bool stays_with_columns(const rcvi_persistent *p, const rcvi_task *task, const rcvi_kernel_step *step) {
    bool found = false;
    for (int k = 0; k < task->step_count && !step->by_rows; k++) {
        const rcvi_kernel_step *other = &p->steps[task->steps[k]];
        found |= other->pass_count && write_alike(step->step, other->step);
    }
    return found;
}

/* Where a map of a task sums over features, the task's maps without products are computed by rows, so that values between them stay in one
 * thread. */
static void find_rows(rcvi_persistent *p) {
    for (int s = 0; s < p->task_count; s++) {
        const rcvi_task *task = &p->tasks[s];
        bool sums = false;
        for (int k = 0; k < task->step_count; k++) sums |= rcvi_map_has_sums(p->steps[task->steps[k]].shape.map);
        for (int k = 0; k < task->step_count; k++) {
            rcvi_kernel_step *step = &p->steps[task->steps[k]];
            step->by_rows = sums && !step->pass_count && !stays_with_columns(p, task, step);
        }
        p->by_rows |= sums;
    }
}

/* Sorts a task's steps into the order of the program. */
static void sort_task_steps(rcvi_persistent *p) {
    for (int s = 0; s < p->task_count; s++) {
        int *h = p->tasks[s].steps;
        for (int i = 1; i < p->tasks[s].step_count; i++) {
            for (int k = i; k > 0 && h[k] < h[k - 1]; k--) {
                int step = h[k];
                h[k] = h[k - 1];
                h[k - 1] = step;
            }
        }
    }
}

/* ---- the whole ---- */

static rcv_status count_words(rcvi_persistent *p) {
    p->words = RCVI_HEADER_WORDS + (size_t)p->task_count * RCVI_TASK_WORDS;
    for (int i = 0; i < p->step_count; i++) {
        rcvi_kernel_step *s = &p->steps[i];
        s->words = p->words;
        p->words += RCVI_STEP_WORDS + RCVI_ARGUMENT_WORDS * (size_t)rcvi_kernel_step_arguments(s);
    }
    if (p->words > RCVI_MAX_PERSISTENT_WORDS)
        return rcvi_fail(RCV_UNSUPPORTED, "a persistent kernel of this loop has %zu arguments, more than %d", p->words,
                         RCVI_MAX_PERSISTENT_WORDS);
    return RCV_OK;
}

size_t rcvi_persistent_parameter_words(const rcvi_persistent *p) {
    enum { MULTIPLE = 1024 };
    size_t words = (p->words + MULTIPLE - 1) / MULTIPLE * MULTIPLE;
    return words < RCVI_MAX_PERSISTENT_WORDS ? words : RCVI_MAX_PERSISTENT_WORDS;
}

/* Whether products are paired, and whether blocks form clusters; whether only numbers are wanted, and no text. */
typedef struct {
    bool pairs, cluster, only_numbers;
} build_mode;

static rcv_status build(rcvi_engine *e, rcvi_persistent *p, build_mode how) {
    const rcvi_step *loop = &e->program->steps[p->loop];
    size_t count = (size_t)loop->loop.body;
    p->iterations = loop->loop.count;
    p->steps = rcvi_pool_new(&e->pool, count, sizeof *p->steps);
    p->tasks = rcvi_pool_new(&e->pool, count, sizeof *p->tasks);
    p->channels = rcvi_pool_new(&e->pool, count * (RCVI_MAX_PASSES + 16), sizeof *p->channels);
    if (e->pool.failed) return RCV_NO_MEMORY;
    RCVI_TRY(find_operands(e, p));
    if (p->iterations > INT32_MAX / 2)
        return rcvi_persistent_refuse("a persistent kernel takes a billion steps at most");
    for (size_t i = 0; i < count; i++) RCVI_TRY(check_step(e, &loop[1 + i]));
    RCVI_TRY(rcvi_persistent_merge_steps(e, p, how.pairs));
    for (int i = 0; i < p->step_count; i++) RCVI_TRY(open_step(e, p, &p->steps[i]));
    RCVI_TRY(make_tasks(p));
    RCVI_TRY(add_maps_to_tasks(p));
    sort_task_steps(p);
    find_rows(p);
    RCVI_TRY(rcvi_persistent_connect(e, p));
    rcvi_persistent_share_channels(p);
    RCVI_TRY(rcvi_persistent_unify_tasks(e, p));
    RCVI_TRY(rcvi_persistent_find_flagged(e, p));
    RCVI_TRY(how.cluster ? rcvi_cluster_choose_layout(e, p) : rcvi_persistent_choose_layout(e, p));
    rcvi_persistent_find_staging(e, p);
    RCVI_TRY(rcvi_persistent_find_dead_stores(e, p));
    if (p->cluster) rcvi_cluster_find_channels(p);
    RCVI_TRY(rcvi_persistent_lay_out_exchange(e, p));
    RCVI_TRY(count_words(p));
    p->pairs = how.pairs;
    return how.only_numbers ? RCV_OK : rcvi_persistent_source(e->context, e, p);
}

void rcvi_persistent_describe(const rcvi_engine *e, const rcvi_persistent *p, rcvi_text *text) {
    int in_registers = 0, each = RCVI_WEIGHT_ROWS * RCVI_DEPTH_CHUNK_BYTES / 1024;
    for (int s = 0; s < p->task_count; s++) {
        int own = p->tasks[s].in_registers[0] + p->tasks[s].in_registers[1];
        if (own > in_registers) in_registers = own;
    }
    rcvi_text_add(
        text,
        "persistent kernel of %lld steps on %d of %d processors: %d set%s of weights, each for %d slice%s of %d "
        "sequences; a processor keeps %d KB in registers and %d KB in shared memory, of which it uses %zu of %d "
        "KB, and copies %d KB every step; %.1f MB pass between processors\n",
        (long long)p->iterations, p->blocks, e->processors, p->task_count, p->task_count == 1 ? "" : "s", p->slices,
        p->slices == 1 ? "" : "s", p->slice, in_registers * each, p->shared_weight_chunks * each,
        p->shared_bytes / 1024, e->shared / 1024, p->streamed_chunks * each, (double)p->streamed_offset / 1e6);
    if (p->cluster)
        rcvi_text_add(
            text,
            "its processors form clusters of %d, one for every set of weights and slice, and each receives %.1f KB "
            "a step through shared memory\n",
            p->cluster, (double)(p->slice * rcvi_cluster_row_bytes(p, &p->tasks[0])) / 1024);
    if (p->parts > 1) rcvi_text_add(text, "products of float32 as %d numbers of bfloat16 each\n", p->parts);
}

static rcv_status try_build(rcvi_engine *e, size_t loop, build_mode how, rcvi_persistent **out) {
    rcvi_persistent *p = rcvi_new(e->context, 1, sizeof *p);
    *out = NULL;
    if (!p) return RCV_NO_MEMORY;
    p->loop = (int)loop;
    rcv_status status = build(e, p, how);
    if (status)
        rcvi_persistent_free(e->context, p);
    else
        *out = p;
    return status;
}

static bool has_sums(const rcvi_program *program, size_t loop) {
    bool sums = false;
    for (size_t i = loop + 1; i <= loop + (size_t)program->steps[loop].loop.body; i++)
        sums |= program->steps[i].kind == RCVI_STEP_MAP && rcvi_map_has_sums(program->steps[i].map);
    return sums;
}

/* With the rung `cluster` the loop is built with clusters first; if it cannot have them, e->not_clustered says why, and it is built without.
 *
 * Paired products take half the processors with twice the weights in each. If these weights do not fit on the chip, the loop is built again
 * without pairs. */
rcv_status rcvi_persistent_new(rcvi_engine *e, size_t loop, rcvi_persistent **out) {
    if (e->program->rungs.cluster) {
        rcv_status status = try_build(e, loop, (build_mode){.cluster = true}, out);
        if (status != RCV_UNSUPPORTED) return status;
        if (!e->not_clustered) e->not_clustered = rcvi_pool_format(&e->pool, "%s", rcv_message());
        if (e->pool.failed) return RCV_NO_MEMORY;
    }
    rcv_status status = try_build(e, loop, (build_mode){.pairs = true}, out);
    if ((status != RCV_OK && status != RCV_UNSUPPORTED) || !has_sums(e->program, loop)) return status;
    if (*out && (!(*out)->paired || !(*out)->streamed_chunks)) return RCV_OK;
    rcvi_persistent *unpaired;
    rcv_status other = try_build(e, loop, (build_mode){.pairs = false}, &unpaired);
    if (other != RCV_OK) return status == RCV_OK && other == RCV_UNSUPPORTED ? RCV_OK : other;
    rcvi_persistent_free(e->context, *out);
    *out = unpaired;
    return RCV_OK;
}

rcv_status rcvi_persistent_sample(rcvi_engine *e, const rcvi_persistent *like, rcvi_persistent **out) {
    build_mode how = {.pairs = like->pairs, .cluster = like->cluster > 0, .only_numbers = true};
    return try_build(e, (size_t)like->loop, how, out);
}

void rcvi_persistent_free(rcv_context *context, rcvi_persistent *p) {
    if (!p) return;
    if (p->code) cudaLibraryUnload(p->code);
    for (int s = 0; s < p->task_count; s++) rcvi_free(context, p->tasks[s].text);
    rcvi_free(context, p->source);
    rcvi_free(context, p);
}
