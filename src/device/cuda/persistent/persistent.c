/* A loop cut into seats; see persistent.h. */
#include "device/cuda/persistent/parts.h"

typedef rcvi_persistent_step hosted_step;

/* ---- steps ---- */

/* What is multiplied: 16 bits or tfloat32 as they are, float32 in parts. */
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
    if (!timed || step->time.outer || step->rows != e->program->options.batch)
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
static void find_due(const rcvi_engine *e, const rcvi_step *step, int64_t iterations, hosted_step *s) {
    int64_t steps = e->program->options.steps, base = step->time.base, inner = step->time.inner;
    int64_t first = inner > 0 ? -base : base - steps + 1, each = inner > 0 ? inner : -inner;
    s->low = first > 0 ? (first + each - 1) / each : 0;
    s->high = first + steps > 0 ? (first + steps + each - 1) / each : 0;
    if (s->high > iterations) s->high = iterations;
    if (s->low > s->high) s->low = s->high;
}

static rcv_status open_step(rcvi_engine *e, const rcvi_persistent *p, hosted_step *s) {
    const rcvi_step *step = s->step;
    rcvi_cuda_ready ready = {.kernel = RCVI_NONE};
    RCVI_TRY(rcvi_cuda_shape_map(e, step, p->joined, (size_t)p->step_count, &ready, &s->shape));
    s->seat = RCVI_NONE;
    s->views = ready.views;
    s->view_count = ready.view_count;
    s->passes = ready.passes;
    s->pass_count = ready.pass_count;
    for (int v = 0; v < step->map->operand_count; v++) {
        s->twin_count += s->shape.has_rounded[v];
        s->orders |= s->is_ordered[v];
        s->has_rows |= s->is_short[v] || s->is_ordered[v];
    }
    s->is_late = rcvi_pool_new(&e->pool, (size_t)s->view_count, sizeof *s->is_late);
    s->is_early = rcvi_pool_new(&e->pool, (size_t)s->view_count, sizeof *s->is_early);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (int q = 0; q < s->pass_count; q++) s->read_of[q] = RCVI_NONE;
    find_due(e, step, p->iterations, s);
    return RCV_OK;
}

/* ---- seats ---- */

static bool same_weights(const hosted_step *a, const hosted_step *b) {
    int products = a->shape.map->product_count;
    if (products != b->shape.map->product_count || a->pass_count != b->pass_count || a->apart != b->apart) return false;
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

static rcv_status sit(rcvi_persistent *p, int step, int seat) {
    rcvi_seat *s = &p->seats[seat];
    if (s->hosted_count == RCVI_MAX_HOSTED)
        return rcvi_fail(RCV_UNSUPPORTED, "a persistent kernel takes %d steps of one layer at most", RCVI_MAX_HOSTED);
    s->hosted[s->hosted_count++] = step;
    p->steps[step].seat = seat;
    return RCV_OK;
}

static rcv_status seat_products(rcvi_persistent *p) {
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_step *step = p->steps[i].step;
        int products = step->map->product_count, apart = p->steps[i].apart;
        if (!products) continue;
        int seat = 0;
        while (seat < p->seat_count && !(same_weights(&p->steps[p->seats[seat].tiled], &p->steps[i]) &&
                                         p->seats[seat].columns == step->columns))
            seat++;
        if (seat == p->seat_count) {
            p->seats[p->seat_count++] = (rcvi_seat){.tiled = i,
                                                    .layer = step->layer,
                                                    .direction = step->direction,
                                                    .columns = step->columns,
                                                    .products = products - apart > apart ? products - apart : apart};
        }
        RCVI_TRY(sit(p, i, seat));
    }
    return RCV_OK;
}

/* A map without products sits with the one with products that it goes with. */
static rcv_status seat_maps(rcvi_persistent *p) {
    for (int i = 0; i < p->step_count; i++) {
        if (p->steps[i].seat == RCVI_NONE) RCVI_TRY(sit(p, i, p->steps[p->steps[i].center].seat));
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

/* Does it write what a step with products of its seat writes, too, and nothing that is known to go by rows? */
static bool stays_with_columns(const rcvi_persistent *p, const rcvi_seat *seat, const hosted_step *step) {
    bool found = false;
    for (int k = 0; k < seat->hosted_count && !step->by_rows; k++) {
        const hosted_step *other = &p->steps[seat->hosted[k]];
        found |= other->pass_count && write_alike(step->step, other->step);
    }
    return found;
}

/* Maps without products go by rows where one of their seat sums over features: what passes from one of these to the other stays
 * with its thread. */
static void find_rows(rcvi_persistent *p) {
    for (int s = 0; s < p->seat_count; s++) {
        const rcvi_seat *seat = &p->seats[s];
        bool sums = false;
        for (int k = 0; k < seat->hosted_count; k++) sums |= rcvi_map_has_sums(p->steps[seat->hosted[k]].shape.map);
        for (int k = 0; k < seat->hosted_count; k++) {
            hosted_step *step = &p->steps[seat->hosted[k]];
            step->by_rows = sums && !step->pass_count && !stays_with_columns(p, seat, step);
        }
        p->by_rows |= sums;
    }
}

/* A seat's steps in the order of the program. */
static void sort_seats(rcvi_persistent *p) {
    for (int s = 0; s < p->seat_count; s++) {
        int *h = p->seats[s].hosted;
        for (int i = 1; i < p->seats[s].hosted_count; i++) {
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
    p->words = RCVI_HEADER_WORDS + (size_t)p->seat_count * RCVI_SEAT_WORDS;
    for (int i = 0; i < p->step_count; i++) {
        hosted_step *s = &p->steps[i];
        s->words = p->words;
        p->words += RCVI_STEP_WORDS + RCVI_PLACE_WORDS * (size_t)rcvi_persistent_places(s);
    }
    if (p->words > RCVI_MAX_PERSISTENT_WORDS)
        return rcvi_fail(RCV_UNSUPPORTED, "a persistent kernel of this loop has %zu arguments, more than %d", p->words,
                         RCVI_MAX_PERSISTENT_WORDS);
    return RCV_OK;
}

/* How a loop is built. */
typedef struct {
    bool pairs, cluster;
} manner;

static rcv_status build(rcvi_engine *e, rcvi_persistent *p, manner how) {
    const rcvi_step *loop = &e->program->steps[p->loop];
    size_t count = (size_t)loop->loop.body;
    p->iterations = loop->loop.count;
    p->steps = rcvi_pool_new(&e->pool, count, sizeof *p->steps);
    p->seats = rcvi_pool_new(&e->pool, count, sizeof *p->seats);
    p->channels = rcvi_pool_new(&e->pool, count * (RCVI_MAX_PASSES + 16), sizeof *p->channels);
    if (e->pool.failed) return RCV_NO_MEMORY;
    RCVI_TRY(find_operands(e, p));
    if (p->iterations > INT32_MAX / 2)
        return rcvi_persistent_refuse("a persistent kernel takes a billion steps at most");
    for (size_t i = 0; i < count; i++) RCVI_TRY(check_step(e, &loop[1 + i]));
    RCVI_TRY(rcvi_persistent_join(e, p, how.pairs));
    for (int i = 0; i < p->step_count; i++) RCVI_TRY(open_step(e, p, &p->steps[i]));
    RCVI_TRY(seat_products(p));
    RCVI_TRY(seat_maps(p));
    sort_seats(p);
    find_rows(p);
    RCVI_TRY(rcvi_persistent_link(e, p));
    rcvi_persistent_share(p);
    RCVI_TRY(rcvi_persistent_match(e, p));
    RCVI_TRY(rcvi_persistent_tag(e, p));
    RCVI_TRY(how.cluster ? rcvi_cluster_make_room(e, p) : rcvi_persistent_make_room(e, p));
    rcvi_persistent_find_stage(e, p);
    RCVI_TRY(rcvi_persistent_find_unread(e, p));
    if (p->cluster) rcvi_cluster_find_channels(p);
    RCVI_TRY(rcvi_persistent_lay_out(e, p));
    RCVI_TRY(count_words(p));
    return rcvi_persistent_source(e->context, e, p);
}

void rcvi_persistent_tell(const rcvi_engine *e, const rcvi_persistent *p, rcvi_text *text) {
    int held = 0, each = RCVI_WEIGHT_ROWS * RCVI_DEPTH_CHUNK_BYTES / 1024;
    for (int s = 0; s < p->seat_count; s++) {
        int own = p->seats[s].held[0] + p->seats[s].held[1];
        if (own > held) held = own;
    }
    rcvi_text_add(
        text,
        "persistent kernel of %lld steps on %d of %d processors: %d set%s of weights, each for %d slice%s of %d "
        "sequences; a processor keeps %d KB in registers and %d KB in shared memory, of which it uses %zu of %d "
        "KB, and copies %d KB every step; %.1f MB pass between processors\n",
        (long long)p->iterations, p->blocks, e->processors, p->seat_count, p->seat_count == 1 ? "" : "s", p->slices,
        p->slices == 1 ? "" : "s", p->slice, held * each, p->weight_chunks * each, p->shared / 1024, e->shared / 1024,
        p->stream_chunks * each, (double)p->streamed / 1e6);
    if (p->cluster)
        rcvi_text_add(
            text,
            "its processors meet in clusters of %d, one for every set of weights and slice, and each receives %.1f KB "
            "a step through shared memory\n",
            p->cluster, (double)(p->slice * rcvi_cluster_row_bytes(p, &p->seats[0])) / 1024);
    if (p->parts > 1) rcvi_text_add(text, "products of float32 as %d numbers of bfloat16 each\n", p->parts);
}

static rcv_status try_build(rcvi_engine *e, size_t loop, manner how, rcvi_persistent **out) {
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

/* Where blocks cannot meet in clusters, they pass what they compute through memory.
 *
 * Paired products take half the processors, and twice the weights in each: where these have no room on the chip, others may. */
rcv_status rcvi_persistent_new(rcvi_engine *e, size_t loop, rcvi_persistent **out) {
    if (e->program->rungs.cluster) {
        rcv_status status = try_build(e, loop, (manner){.cluster = true}, out);
        if (status != RCV_UNSUPPORTED) return status;
        if (!e->not_clustered) e->not_clustered = rcvi_pool_format(&e->pool, "%s", rcv_message());
        if (e->pool.failed) return RCV_NO_MEMORY;
    }
    rcv_status status = try_build(e, loop, (manner){.pairs = true}, out);
    if ((status != RCV_OK && status != RCV_UNSUPPORTED) || !has_sums(e->program, loop)) return status;
    if (*out && (!(*out)->paired || !(*out)->stream_chunks)) return RCV_OK;
    rcvi_persistent *apart;
    rcv_status other = try_build(e, loop, (manner){.pairs = false}, &apart);
    if (other != RCV_OK) return status == RCV_OK && other == RCV_UNSUPPORTED ? RCV_OK : other;
    rcvi_persistent_free(e->context, *out);
    *out = apart;
    return RCV_OK;
}

void rcvi_persistent_free(rcv_context *context, rcvi_persistent *p) {
    if (!p) return;
    if (p->code) cudaLibraryUnload(p->code);
    for (int s = 0; s < p->seat_count; s++) rcvi_free(context, p->seats[s].text);
    rcvi_free(context, p->source);
    rcvi_free(context, p);
}
