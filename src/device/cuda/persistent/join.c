/* Steps of a loop that pass values from element to element, as one map.
 *
 * Every step goes with one that has products, where most of its values come from or go to.
 *
 * Where sequences end, or begin anew within a loop, it has selections: out[r] = mask[r] ? a[r] : b[r]. Each of these is a launch
 * otherwise; here they are instructions of the map before them, and what one step gives to the next stays in registers. A step
 * joins the last map that goes with the same products and has its time, unless something between them stands against it, so what
 * the program says is kept; of several values for one view the last one is stored.
 *
 * Steps that leave out the rows that have ended (ragged.c) join others: a view is then written for the rows that go on alone, or
 * for all. In a row that has ended such a step's values are no numbers that mean anything, and only selections, which take
 * something else there, may read them. */
#include "device/cuda/engine/ragged.h"
#include "device/cuda/persistent/parts.h"

#include <string.h>

typedef rcvi_persistent_step hosted_step;

static const rcvi_step *part_of(const rcvi_engine *e, const hosted_step *s, int n) {
    return &e->program->steps[s->parts[n]];
}

static bool is_tiled(const rcvi_step *step) { return step->kind == RCVI_STEP_MAP && step->map->product_count > 0; }
static bool has_sums(const rcvi_step *step) { return step->kind == RCVI_STEP_MAP && rcvi_map_has_sums(step->map); }

/* ---- which goes with which ---- */

/* What the elements of two views have to do with each other: most where both steps write them, then where one reads what the other has
 * written in the same iteration. */
static int weigh(const rcvi_access *a, const rcvi_access *b, bool a_is_first) {
    enum { LATER = 2, SOON = 3, BOTH = 4 };
    const rcvi_view *x = a->view, *y = b->view;
    if (a->use != RCVI_USE_VALUE || b->use != RCVI_USE_VALUE || x->buffer != y->buffer) return 0;
    bool same = x->row > 0 && x->row == y->row && (x->offset - y->offset) % x->row == 0;
    if (a->written && b->written) return same ? BOTH : 0;
    return !a->written && !b->written ? 0 : a->written == a_is_first ? SOON : LATER;
}

/* Values that pass between the steps, element by element. */
static int count_shared(const rcvi_step *x, const rcvi_step *y) {
    rcvi_access a[RCVI_MAX_ACCESSES], b[RCVI_MAX_ACCESSES];
    int m = rcvi_step_accesses(x, a), n = rcvi_step_accesses(y, b), shared = 0;
    for (int i = 0; i < m; i++) {
        for (int k = 0; k < n; k++) shared += weigh(&a[i], &b[k], x < y);
    }
    return shared;
}

static bool are_near(const rcvi_step *x, const rcvi_step *y) {
    return x->columns == y->columns && x->layer == y->layer && x->direction == y->direction;
}

/* Of `count` steps, center[i] becomes the step with products that step i goes with: first those that share most with what is already
 * there. */
static rcv_status find_centers(rcvi_engine *e, const rcvi_step *steps, int count, int *center) {
    int *shared = rcvi_pool_new(&e->pool, (size_t)count * (size_t)count, sizeof *shared);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        center[i] = is_tiled(&steps[i]) ? i : RCVI_NONE;
        for (int k = 0; k < count; k++) shared[i * count + k] = count_shared(&steps[i], &steps[k]);
    }
    while (true) {
        int best = RCVI_NONE, to = RCVI_NONE, most = -1, alone = RCVI_NONE;
        for (int i = 0; i < count; i++) {
            if (center[i] != RCVI_NONE) continue;
            alone = i;
            for (int c = 0; c < count; c++) {
                int sum = 0;
                for (int k = 0; k < count; k++) sum += center[k] == c ? shared[i * count + k] : 0;
                if (center[c] == c && are_near(&steps[i], &steps[c]) && sum > most) most = sum, best = i, to = c;
            }
        }
        if (alone == RCVI_NONE) return RCV_OK;
        if (best == RCVI_NONE)
            return rcvi_fail(RCV_UNSUPPORTED,
                             "a persistent kernel has no place for a map of %lld columns: no product has as many",
                             (long long)steps[alone].columns);
        center[best] = to;
    }
}

/* ---- which join ---- */

/* Slots of a ring that are not the same lie apart; else as the program's steps see it. */
static bool may_meet(const rcvi_program *program, const rcvi_access *a, const rcvi_access *b) {
    rcvi_view x = *a->view, y = *b->view;
    bool other = x.wrap > 1 && (x.phase - y.phase) % x.wrap;
    x.phase = y.phase;
    if (other && rcvi_view_equal(&x, &y) && a->rows * x.row <= x.slot) return false;
    return rcvi_accesses_conflict(program, a, b);
}

static bool conflict(const rcvi_program *program, const rcvi_step *x, const rcvi_step *y) {
    rcvi_access a[RCVI_MAX_ACCESSES], b[RCVI_MAX_ACCESSES];
    int m = rcvi_step_accesses(x, a), n = rcvi_step_accesses(y, b);
    for (int i = 0; i < m; i++) {
        for (int k = 0; k < n; k++) {
            if (may_meet(program, &a[i], &b[k])) return true;
        }
    }
    return false;
}

/* May `step` stand behind `part` in one map? Where both touch an element, it is the same one for both. */
static bool may_follow(const rcvi_engine *e, const rcvi_step *part, const rcvi_step *step) {
    rcvi_access a[RCVI_MAX_ACCESSES], b[RCVI_MAX_ACCESSES];
    int m = rcvi_step_accesses(part, a), n = rcvi_step_accesses(step, b);
    bool before = e->is_short[part - e->program->steps], now = e->is_short[step - e->program->steps];
    for (int i = 0; i < m; i++) {
        for (int k = 0; k < n; k++) {
            if (!may_meet(e->program, &a[i], &b[k])) continue;
            bool values = a[i].use == RCVI_USE_VALUE && b[k].use == RCVI_USE_VALUE;
            if (!values || !rcvi_view_equal(a[i].view, b[k].view)) return false;
            bool selected = step->kind == RCVI_STEP_SELECT && b[k].view == &step->a;
            if (a[i].written && b[k].written && now && !before) return false; /* it does not replace all rows */
            if (a[i].written && b[k].read && before && !now && !selected) return false;
        }
    }
    return true;
}

static int operands_of(const rcvi_step *step) { return step->kind == RCVI_STEP_MAP ? step->map->operand_count : 4; }
static int instructions_of(const rcvi_step *step) {
    return step->kind == RCVI_STEP_MAP ? step->map->instruction_count : 1;
}

static bool may_join(const rcvi_engine *e, const hosted_step *s, const rcvi_step *step) {
    const rcvi_step *first = part_of(e, s, 0);
    const rcvi_time *x = &first->time, *y = &step->time;
    int operands = operands_of(step), instructions = instructions_of(step);
    if (x->base != y->base || x->inner != y->inner || s->part_count == RCVI_MAX_PARTS) return false;
    for (int n = 0; n < s->part_count; n++) {
        const rcvi_step *part = part_of(e, s, n);
        operands += operands_of(part);
        instructions += instructions_of(part);
        if (has_sums(part) || !may_follow(e, part, step)) return false;
    }
    return operands <= RCVI_MAX_OPERANDS && instructions <= RCVI_MAX_LONG_INSTRUCTIONS;
}

/* Does the step have to do with values that one by rows writes? Then its elements are that one's. */
static bool goes_by_rows(const rcvi_engine *e, const rcvi_persistent *p, const rcvi_step *step) {
    rcvi_access a[RCVI_MAX_ACCESSES], b[RCVI_MAX_ACCESSES];
    int m = rcvi_step_accesses(step, a);
    bool found = false;
    for (int i = 0; i < p->step_count && !found; i++) {
        for (int n = 0; n < p->steps[i].part_count && p->steps[i].by_rows; n++) {
            int count = rcvi_step_accesses(part_of(e, &p->steps[i], n), b);
            for (int k = 0; k < m * count; k++) {
                const rcvi_access *x = &a[k / count], *y = &b[k % count];
                found |= x->use == RCVI_USE_VALUE && y->written && x->view->buffer == y->view->buffer;
            }
        }
    }
    return found;
}

/* The last of the joined steps that it may join, or their number. `center`: as above. A step by rows has no products. */
static int find_place(const rcvi_engine *e, const rcvi_persistent *p, const rcvi_step *step, const int *center,
                      bool by_rows) {
    const rcvi_step *first = &e->program->steps[p->loop + 1];
    for (int i = p->step_count - 1; i >= 0 && !is_tiled(step) && !has_sums(step); i--) {
        bool together = center[step - first] == center[part_of(e, &p->steps[i], 0) - first];
        bool apart = by_rows && is_tiled(part_of(e, &p->steps[i], 0));
        if (together && !apart && may_join(e, &p->steps[i], step)) return i;
        for (int n = 0; n < p->steps[i].part_count; n++) {
            if (conflict(e->program, part_of(e, &p->steps[i], n), step)) return p->step_count;
        }
    }
    return p->step_count;
}

/* ---- how ---- */

/* A value that is stored to a view. */
typedef struct {
    int view;
    bool product;
    int source;
} definition;

typedef struct {
    const rcvi_engine *e;
    hosted_step *s;
    rcvi_map *map;
    definition *defined; /* the last one of a view counts */
    int defined_count;
} joiner;

static int find_operand(joiner *j, const rcvi_view *view) {
    int found = 0;
    while (found < j->map->operand_count && !rcvi_view_equal(&j->map->operands[found], view)) found++;
    if (found == j->map->operand_count) j->map->operands[j->map->operand_count++] = *view;
    return found;
}

/* Lets argument `a` of an instruction be what the view holds. */
static void read_view(joiner *j, rcvi_instruction *to, int a, const rcvi_view *view, bool is_short) {
    to->from[a] = RCVI_FROM_NUMBER; /* 0 */
    if (view->buffer == RCVI_NONE) return;
    for (int d = j->defined_count - 1; d >= 0; d--) {
        if (!rcvi_view_equal(&j->map->operands[j->defined[d].view], view)) continue;
        to->from[a] = j->defined[d].product ? RCVI_FROM_PRODUCT : RCVI_FROM_REGISTER;
        to->source[a] = j->defined[d].source;
        return;
    }
    to->from[a] = RCVI_FROM_VIEW;
    to->source[a] = find_operand(j, view);
    if (!is_short) j->s->is_read_whole[to->source[a]] = true;
}

static bool is_view(const rcvi_map *map, int a, int b) {
    return a != RCVI_NONE && rcvi_view_equal(&map->operands[a], &map->operands[b]);
}

/* What was stored there before is not. */
static void replace(joiner *j, int view) {
    rcvi_map *map = j->map;
    int kept = 0;
    for (int p = 0; p < map->product_count; p++) {
        if (is_view(map, map->products[p].out, view)) map->products[p].out = RCVI_NONE;
    }
    for (int k = 0; k < map->instruction_count; k++) {
        if (is_view(map, map->instructions[k].out, view)) map->instructions[k].out = RCVI_NONE;
    }
    for (int i = 0; i < map->store_count; i++) {
        if (!is_view(map, map->stores[i].out, view)) map->stores[kept++] = map->stores[i];
    }
    map->store_count = kept;
}

static void define(joiner *j, int view, bool product, int source, bool is_short) {
    if (view == RCVI_NONE) return;
    j->defined[j->defined_count++] = (definition){view, product, source};
    j->s->is_short[view] = is_short;
}

/* The view of a part that is stored to, among those of the whole. */
static int written_view(joiner *j, const rcvi_map *part, int view, bool is_first) {
    if (view == RCVI_NONE || is_first) return view;
    int found = find_operand(j, &part->operands[view]);
    replace(j, found);
    return found;
}

/* The first part's views keep their numbers. It brings its products, and so does the second one of a pair. */
static void add_map(joiner *j, const rcvi_map *part, bool is_first, bool is_short) {
    rcvi_map *map = j->map;
    int base = map->instruction_count, products = map->product_count;
    if (is_first) {
        memcpy(map->operands, part->operands, (size_t)part->operand_count * sizeof *part->operands);
        map->operand_count = part->operand_count;
    }
    for (int p = 0; p < part->product_count; p++) {
        rcvi_product to = part->products[p];
        to.out = written_view(j, part, to.out, is_first);
        map->products[map->product_count] = to;
        define(j, to.out, true, map->product_count++, is_short);
    }
    for (int k = 0; k < part->instruction_count; k++) {
        const rcvi_instruction *from = &part->instructions[k];
        rcvi_instruction to = *from;
        for (int a = 0; a < rcvi_operations[from->operation].arguments; a++) {
            if (from->from[a] == RCVI_FROM_REGISTER) to.source[a] += base;
            if (from->from[a] == RCVI_FROM_PRODUCT) to.source[a] += products;
            if (from->from[a] == RCVI_FROM_VIEW) read_view(j, &to, a, &part->operands[from->source[a]], is_short);
        }
        to.out = written_view(j, part, from->out, is_first);
        map->instructions[map->instruction_count] = to;
        define(j, to.out, false, map->instruction_count++, is_short);
    }
    for (int i = 0; i < part->store_count; i++) {
        rcvi_map_store store = part->stores[i];
        store.out = written_view(j, part, store.out, is_first);
        store.source += store.product ? products : base;
        map->stores[map->store_count++] = store;
        define(j, store.out, store.product, store.source, is_short);
    }
}

static void add_selection(joiner *j, const rcvi_step *step, bool is_short) {
    rcvi_instruction to = {.operation = RCVI_SELECT};
    rcvi_view mask = step->mask;
    mask.column = 0; /* a byte for the whole row */
    read_view(j, &to, 0, &mask, is_short);
    read_view(j, &to, 1, &step->a, true); /* not in rows that have ended */
    read_view(j, &to, 2, &step->b, is_short);
    to.out = find_operand(j, &step->out);
    replace(j, to.out);
    j->map->instructions[j->map->instruction_count] = to;
    define(j, to.out, false, j->map->instruction_count++, is_short);
}

static rcv_status open_joiner(rcvi_engine *e, hosted_step *s, joiner *j) {
    size_t operands = 0, instructions = 0, stores = 0, products = 0;
    for (int n = 0; n < s->part_count; n++) {
        const rcvi_step *part = part_of(e, s, n);
        operands += (size_t)operands_of(part);
        instructions += (size_t)instructions_of(part);
        if (part->kind == RCVI_STEP_MAP) stores += (size_t)part->map->store_count;
        if (is_tiled(part)) products += (size_t)part->map->product_count;
    }
    *j = (joiner){.e = e, .s = s, .map = rcvi_pool_new(&e->pool, 1, sizeof *j->map)};
    if (e->pool.failed) return RCV_NO_MEMORY;
    j->map->operands = rcvi_pool_new(&e->pool, operands, sizeof *j->map->operands);
    j->map->instructions = rcvi_pool_new(&e->pool, instructions, sizeof *j->map->instructions);
    j->map->stores = rcvi_pool_new(&e->pool, stores, sizeof *j->map->stores);
    j->map->products = rcvi_pool_new(&e->pool, products, sizeof *j->map->products);
    j->defined = rcvi_pool_new(&e->pool, instructions + stores + products, sizeof *j->defined);
    s->is_short = rcvi_pool_new(&e->pool, operands, sizeof *s->is_short);
    s->is_read_whole = rcvi_pool_new(&e->pool, operands, sizeof *s->is_read_whole);
    s->is_ordered = rcvi_pool_new(&e->pool, operands, sizeof *s->is_ordered);
    return e->pool.failed ? RCV_NO_MEMORY : RCV_OK;
}

static bool reads(const rcvi_map *map, int view) {
    for (int k = 0; k < map->instruction_count; k++) {
        for (int a = 0; a < rcvi_operations[map->instructions[k].operation].arguments; a++) {
            if (map->instructions[k].from[a] == RCVI_FROM_VIEW && map->instructions[k].source[a] == view) return true;
        }
    }
    return false;
}

/* What is the caller's: rows are written through the order, where the run sorts them. */
static rcv_status find_callers(const rcvi_engine *e, hosted_step *s, bool selects) {
    const rcvi_map *map = s->step->map;
    for (int v = 0; v < map->operand_count; v++) {
        const rcvi_buffer *buffer = &e->program->buffers[map->operands[v].buffer];
        s->is_ordered[v] = e->sorts && rcvi_cuda_is_by_row(buffer);
        bool absent = selects && rcvi_roles[buffer->role].optional;
        if ((s->is_ordered[v] || absent) && reads(map, v))
            return rcvi_persistent_refuse("a persistent kernel does not read the caller's rows in a selection");
    }
    return RCV_OK;
}

/* The parts of a step as one map. */
static rcv_status join_parts(rcvi_engine *e, hosted_step *s, rcvi_step *step) {
    bool selects = false;
    joiner j;
    RCVI_TRY(open_joiner(e, s, &j));
    for (int n = 0; n < s->part_count; n++) {
        const rcvi_step *part = part_of(e, s, n);
        bool is_short = e->is_short[s->parts[n]];
        selects |= part->kind == RCVI_STEP_SELECT;
        if (part->kind == RCVI_STEP_SELECT)
            add_selection(&j, part, is_short);
        else
            add_map(&j, part->map, n == 0, is_short);
    }
    *step = *part_of(e, s, 0);
    step->kind = RCVI_STEP_MAP;
    step->map = j.map;
    s->step = step;
    return find_callers(e, s, selects);
}

/* Lets every joined step know the one with products, which it begins with. */
static void find_joined_centers(rcvi_persistent *p, const int *center) {
    for (int i = 0; i < p->step_count; i++) {
        int tiled = p->loop + 1 + center[p->steps[i].parts[0] - p->loop - 1];
        while (!rcvi_persistent_has_part(&p->steps[p->steps[i].center], tiled)) p->steps[i].center++;
    }
}

rcv_status rcvi_persistent_join(rcvi_engine *e, rcvi_persistent *p, bool pairs) {
    const rcvi_step *loop = &e->program->steps[p->loop];
    int count = loop->loop.body, *center = rcvi_pool_new(&e->pool, (size_t)count, sizeof *center);
    bool selects = false;
    if (e->pool.failed) return RCV_NO_MEMORY;
    RCVI_TRY(find_centers(e, loop + 1, count, center));
    for (int i = 0; i < count; i++) selects |= loop[1 + i].kind == RCVI_STEP_SELECT;
    for (int i = 0; i < count; i++) {
        const rcvi_step *step = &loop[1 + i];
        bool by_rows = has_sums(step) || (selects && !is_tiled(step) && goes_by_rows(e, p, step));
        int place = selects ? find_place(e, p, step, center, by_rows) : p->step_count;
        hosted_step *s = &p->steps[place];
        if (place == p->step_count) p->step_count++;
        s->by_rows |= by_rows;
        s->parts[s->part_count++] = p->loop + 1 + i;
    }
    if (pairs) rcvi_persistent_pair(e, p);
    find_joined_centers(p, center);
    p->joined = rcvi_pool_new(&e->pool, (size_t)p->step_count, sizeof *p->joined);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (int i = 0; i < p->step_count; i++) RCVI_TRY(join_parts(e, &p->steps[i], &p->joined[i]));
    return RCV_OK;
}
