/* Steps of a time loop merged into fewer maps.
 *
 * Every step without products is assigned to a step with products: the one with which it exchanges most values. That decides the task that
 * computes it.
 *
 * Where sequences end, or are reset within a loop, the loop has selections: out[r] = mask[r] ? a[r] : b[r]. Each of these is a kernel launch
 * otherwise; here they become instructions of the map before them, and what one step gives to the next stays in registers. A step is merged
 * into the last map that has the same product step and the same time, unless a step in between conflicts with it, so the meaning of the
 * program is kept. A map with products takes the selections before it, if it alone reads their results, and not as operands of its products. Of several
 * values for one view the last one is stored.
 *
 * Steps that skip the rows that have ended (ragged.c) are merged with others: a view is then written either for the rows that have not
 * ended, or for all. In a row that has ended, values of such a step are undefined, and only selections, which take something else there, may
 * read them. */
#include "device/cuda/engine/ragged.h"
#include "device/cuda/persistent/internal.h"

#include <string.h>

static const rcvi_step *member_of(const rcvi_engine *e, const rcvi_kernel_step *s, int n) {
    return &e->program->steps[s->members[n]];
}

static bool has_products(const rcvi_step *step) { return step->kind == RCVI_STEP_MAP && step->map->product_count > 0; }
static bool has_sums(const rcvi_step *step) { return step->kind == RCVI_STEP_MAP && rcvi_map_has_sums(step->map); }

/* ---- product steps of steps without products ---- */

/* How strongly two accesses tie their steps together: most where both write the same elements, then where one reads what the other has
 * written in the same iteration, then in the next one. */
static int weigh_accesses(const rcvi_access *a, const rcvi_access *b, bool a_is_first) {
    enum { LATER = 2, SOON = 3, BOTH = 4 };
    const rcvi_view *x = a->view, *y = b->view;
    if (a->use != RCVI_USE_VALUE || b->use != RCVI_USE_VALUE || x->buffer != y->buffer) return 0;
    bool same = x->row > 0 && x->row == y->row && (x->offset - y->offset) % x->row == 0;
    if (a->written && b->written) return same ? BOTH : 0;
    return !a->written && !b->written ? 0 : a->written == a_is_first ? SOON : LATER;
}

/* Weight of all values that go from one step to the other, element by element. */
static int weigh_steps(const rcvi_step *x, const rcvi_step *y) {
    rcvi_access a[RCVI_MAX_ACCESSES], b[RCVI_MAX_ACCESSES];
    int m = rcvi_step_accesses(x, a), n = rcvi_step_accesses(y, b), shared = 0;
    for (int i = 0; i < m; i++) {
        for (int k = 0; k < n; k++) shared += weigh_accesses(&a[i], &b[k], x < y);
    }
    return shared;
}

static bool may_share_task(const rcvi_step *x, const rcvi_step *y) {
    return x->columns == y->columns && x->layer == y->layer && x->direction == y->direction;
}

/* For each of `count` steps, product_step[i] becomes the step with products that step i is assigned to. Steps are assigned one after the
 * other, the one with the largest weight first. */
static rcv_status find_product_steps(rcvi_engine *e, const rcvi_step *steps, int count, int *product_step) {
    int *shared = rcvi_pool_new(&e->pool, (size_t)count * (size_t)count, sizeof *shared);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        product_step[i] = has_products(&steps[i]) ? i : RCVI_NONE;
        for (int k = 0; k < count; k++) shared[i * count + k] = weigh_steps(&steps[i], &steps[k]);
    }
    while (true) {
        int best = RCVI_NONE, to = RCVI_NONE, most = -1, alone = RCVI_NONE;
        for (int i = 0; i < count; i++) {
            if (product_step[i] != RCVI_NONE) continue;
            alone = i;
            for (int c = 0; c < count; c++) {
                int sum = 0;
                for (int k = 0; k < count; k++) sum += product_step[k] == c ? shared[i * count + k] : 0;
                if (product_step[c] == c && may_share_task(&steps[i], &steps[c]) && sum > most)
                    most = sum, best = i, to = c;
            }
        }
        if (alone == RCVI_NONE) return RCV_OK;
        if (best == RCVI_NONE)
            return rcvi_fail(
                RCV_UNSUPPORTED,
                "a persistent kernel has no task for a map of %lld columns: no product of the loop has as many",
                (long long)steps[alone].columns);
        product_step[best] = to;
    }
}

/* ---- which steps are merged ---- */

/* As rcvi_accesses_meet, but different slots of a ring do not overlap. */
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

/* May `step` come after `member` in one map? Where both touch an element, it must be the same element of both. */
static bool may_follow(const rcvi_engine *e, const rcvi_step *member, const rcvi_step *step) {
    rcvi_access a[RCVI_MAX_ACCESSES], b[RCVI_MAX_ACCESSES];
    int m = rcvi_step_accesses(member, a), n = rcvi_step_accesses(step, b);
    bool before = e->is_short[member - e->program->steps], now = e->is_short[step - e->program->steps];
    for (int i = 0; i < m; i++) {
        for (int k = 0; k < n; k++) {
            if (!may_meet(e->program, &a[i], &b[k])) continue;
            bool values = a[i].use == RCVI_USE_VALUE && b[k].use == RCVI_USE_VALUE;
            if (!values || !rcvi_view_equal(a[i].view, b[k].view)) return false;
            bool selected = step->kind == RCVI_STEP_SELECT && b[k].view == &step->a;
            if (a[i].written && b[k].written && now && !before) return false; /* it would not replace all rows */
            if (a[i].written && b[k].read && before && !now && !selected) return false;
        }
    }
    return true;
}

static int operands_of(const rcvi_step *step) { return step->kind == RCVI_STEP_MAP ? step->map->operand_count : 4; }
static int instructions_of(const rcvi_step *step) {
    return step->kind == RCVI_STEP_MAP ? step->map->instruction_count : 1;
}

static bool may_merge(const rcvi_engine *e, const rcvi_kernel_step *s, const rcvi_step *step) {
    const rcvi_step *first = member_of(e, s, 0);
    const rcvi_time *x = &first->time, *y = &step->time;
    int operands = operands_of(step), instructions = instructions_of(step);
    if (x->base != y->base || x->inner != y->inner || s->member_count == RCVI_MAX_STEP_MEMBERS) return false;
    for (int n = 0; n < s->member_count; n++) {
        const rcvi_step *member = member_of(e, s, n);
        operands += operands_of(member);
        instructions += instructions_of(member);
        if (has_sums(member) || !may_follow(e, member, step)) return false;
    }
    return operands <= RCVI_MAX_OPERANDS && instructions <= RCVI_MAX_LONG_INSTRUCTIONS;
}

/* Does the step read or write values that a step by rows writes? Then it goes by rows, too. */
static bool goes_by_rows(const rcvi_engine *e, const rcvi_persistent *p, const rcvi_step *step) {
    rcvi_access a[RCVI_MAX_ACCESSES], b[RCVI_MAX_ACCESSES];
    int m = rcvi_step_accesses(step, a);
    bool found = false;
    for (int i = 0; i < p->step_count && !found; i++) {
        for (int n = 0; n < p->steps[i].member_count && p->steps[i].by_rows; n++) {
            int count = rcvi_step_accesses(member_of(e, &p->steps[i], n), b);
            for (int k = 0; k < m * count; k++) {
                const rcvi_access *x = &a[k / count], *y = &b[k % count];
                found |= x->use == RCVI_USE_VALUE && y->written && x->view->buffer == y->view->buffer;
            }
        }
    }
    return found;
}

/* Is what the selection writes read by this step alone? */
static bool selects_for(const rcvi_engine *e, const rcvi_persistent *p, const rcvi_step *selection,
                        const rcvi_step *step) {
    const rcvi_step *loop = &e->program->steps[p->loop];
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    if (selection->kind != RCVI_STEP_SELECT) return false;
    for (int i = 1; i <= loop->loop.body; i++) {
        int count = loop + i == selection || loop + i == step ? 0 : rcvi_step_accesses(&loop[i], accesses);
        for (int k = 0; k < count; k++) {
            if (accesses[k].view->buffer == selection->out.buffer) return false;
        }
    }
    return true;
}

/* Does the step, which has products, take the last kernel step, which is selections for it alone? */
static bool takes_selections(const rcvi_engine *e, const rcvi_persistent *p, const rcvi_step *step,
                             const int *product_step) {
    const rcvi_step *first = &e->program->steps[p->loop + 1];
    const rcvi_kernel_step *s = p->step_count ? &p->steps[p->step_count - 1] : NULL;
    if (!s || has_sums(step) || s->by_rows || product_step[member_of(e, s, 0) - first] != step - first) return false;
    for (int n = 0; n < s->member_count; n++) {
        if (!selects_for(e, p, member_of(e, s, n), step)) return false;
    }
    return may_merge(e, s, step);
}

/* Adds a step of the program to a kernel step; one with products as the first. */
static void add_member(const rcvi_engine *e, rcvi_kernel_step *s, int step) {
    bool leads = has_products(&e->program->steps[step]);
    for (int n = s->member_count; leads && n > 0; n--) s->members[n] = s->members[n - 1];
    if (leads) s->before = s->member_count;
    s->members[leads ? 0 : s->member_count] = step;
    s->member_count++;
}

/* The last kernel step that `step` may be merged into, or their number. `product_step`: as above. A step by rows has no products. */
static int find_merge_target(const rcvi_engine *e, const rcvi_persistent *p, const rcvi_step *step,
                             const int *product_step, bool by_rows) {
    const rcvi_step *first = &e->program->steps[p->loop + 1];
    if (has_products(step) && takes_selections(e, p, step, product_step)) return p->step_count - 1;
    for (int i = p->step_count - 1; i >= 0 && !has_products(step) && !has_sums(step); i--) {
        bool together = product_step[step - first] == product_step[member_of(e, &p->steps[i], 0) - first];
        bool differs = by_rows && has_products(member_of(e, &p->steps[i], 0));
        if (together && !differs && may_merge(e, &p->steps[i], step)) return i;
        for (int n = 0; n < p->steps[i].member_count; n++) {
            if (conflict(e->program, member_of(e, &p->steps[i], n), step)) return p->step_count;
        }
    }
    return p->step_count;
}

/* ---- merging ---- */

/* A value that a member stores to a view. */
typedef struct {
    int view;
    bool product;
    int source;
} definition;

typedef struct {
    const rcvi_engine *e;
    rcvi_kernel_step *s;
    rcvi_map *map;
    definition *defined; /* the last definition of a view counts */
    int defined_count;
} merger;

static int find_operand(merger *j, const rcvi_view *view) {
    int found = 0;
    while (found < j->map->operand_count && !rcvi_view_equal(&j->map->operands[found], view)) found++;
    if (found == j->map->operand_count) j->map->operands[j->map->operand_count++] = *view;
    return found;
}

/* Sets argument `a` of an instruction to the value of a view: a register or product of this map, or memory. */
static void read_view(merger *j, rcvi_instruction *to, int a, const rcvi_view *view, bool is_short) {
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
    if (!is_short) j->s->is_read_for_all_rows[to->source[a]] = true;
}

static bool is_view(const rcvi_map *map, int a, int b) {
    return a != RCVI_NONE && rcvi_view_equal(&map->operands[a], &map->operands[b]);
}

/* Removes earlier stores to the view. */
static void replace(merger *j, int view) {
    rcvi_map *map = j->map;
    int in_shared = 0;
    for (int p = 0; p < map->product_count; p++) {
        if (is_view(map, map->products[p].out, view)) map->products[p].out = RCVI_NONE;
    }
    for (int k = 0; k < map->instruction_count; k++) {
        if (is_view(map, map->instructions[k].out, view)) map->instructions[k].out = RCVI_NONE;
    }
    for (int i = 0; i < map->store_count; i++) {
        if (!is_view(map, map->stores[i].out, view)) map->stores[in_shared++] = map->stores[i];
    }
    map->store_count = in_shared;
}

static void define(merger *j, int view, bool product, int source, bool is_short) {
    if (view == RCVI_NONE) return;
    j->defined[j->defined_count++] = (definition){view, product, source};
    j->s->is_short[view] = is_short;
}

/* The view among those of the merged map that a member stores to. */
static int written_view(merger *j, const rcvi_map *member, int view, bool is_first) {
    if (view == RCVI_NONE || is_first) return view;
    int found = find_operand(j, &member->operands[view]);
    replace(j, found);
    return found;
}

/* Adds a member that is a map. The views of the first member keep their numbers (begin_map). Only the first member has products, and the
 * second one of a pair. */
static void add_map(merger *j, const rcvi_map *member, bool is_first, bool is_short) {
    rcvi_map *map = j->map;
    int base = map->instruction_count, products = map->product_count;
    for (int p = 0; p < member->product_count; p++) {
        rcvi_product to = member->products[p];
        to.out = written_view(j, member, to.out, is_first);
        map->products[map->product_count] = to;
        define(j, to.out, true, map->product_count++, is_short);
    }
    for (int k = 0; k < member->instruction_count; k++) {
        const rcvi_instruction *from = &member->instructions[k];
        rcvi_instruction to = *from;
        for (int a = 0; a < rcvi_operations[from->operation].arguments; a++) {
            if (from->from[a] == RCVI_FROM_REGISTER) to.source[a] += base;
            if (from->from[a] == RCVI_FROM_PRODUCT) to.source[a] += products;
            if (from->from[a] == RCVI_FROM_VIEW) read_view(j, &to, a, &member->operands[from->source[a]], is_short);
        }
        to.out = written_view(j, member, from->out, is_first);
        map->instructions[map->instruction_count] = to;
        define(j, to.out, false, map->instruction_count++, is_short);
    }
    for (int i = 0; i < member->store_count; i++) {
        rcvi_map_store store = member->stores[i];
        store.out = written_view(j, member, store.out, is_first);
        store.source += store.product ? products : base;
        map->stores[map->store_count++] = store;
        define(j, store.out, store.product, store.source, is_short);
    }
}

static void begin_map(merger *j, const rcvi_step *first) {
    if (first->kind != RCVI_STEP_MAP) return;
    memcpy(j->map->operands, first->map->operands, (size_t)first->map->operand_count * sizeof *j->map->operands);
    j->map->operand_count = first->map->operand_count;
}

static void add_selection(merger *j, const rcvi_step *step, bool is_short) {
    rcvi_instruction to = {.operation = RCVI_SELECT};
    rcvi_view mask = step->mask;
    mask.column = 0; /* one byte for the whole row */
    read_view(j, &to, 0, &mask, is_short);
    read_view(j, &to, 1, &step->a, true); /* not read in rows that have ended */
    read_view(j, &to, 2, &step->b, is_short);
    to.out = find_operand(j, &step->out);
    replace(j, to.out);
    j->map->instructions[j->map->instruction_count] = to;
    define(j, to.out, false, j->map->instruction_count++, is_short);
}

static rcv_status open_merger(rcvi_engine *e, rcvi_kernel_step *s, merger *j) {
    size_t operands = 0, instructions = 0, stores = 0, products = 0;
    for (int n = 0; n < s->member_count; n++) {
        const rcvi_step *member = member_of(e, s, n);
        operands += (size_t)operands_of(member);
        instructions += (size_t)instructions_of(member);
        if (member->kind == RCVI_STEP_MAP) stores += (size_t)member->map->store_count;
        if (has_products(member)) products += (size_t)member->map->product_count;
    }
    *j = (merger){.e = e, .s = s, .map = rcvi_pool_new(&e->pool, 1, sizeof *j->map)};
    if (e->pool.failed) return RCV_NO_MEMORY;
    j->map->operands = rcvi_pool_new(&e->pool, operands, sizeof *j->map->operands);
    j->map->instructions = rcvi_pool_new(&e->pool, instructions, sizeof *j->map->instructions);
    j->map->stores = rcvi_pool_new(&e->pool, stores, sizeof *j->map->stores);
    j->map->products = rcvi_pool_new(&e->pool, products, sizeof *j->map->products);
    j->defined = rcvi_pool_new(&e->pool, instructions + stores + products, sizeof *j->defined);
    s->is_short = rcvi_pool_new(&e->pool, operands, sizeof *s->is_short);
    s->is_read_for_all_rows = rcvi_pool_new(&e->pool, operands, sizeof *s->is_read_for_all_rows);
    s->is_in_caller_order = rcvi_pool_new(&e->pool, operands, sizeof *s->is_in_caller_order);
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

/* Buffers of the caller: their rows are written in the caller's order where the run sorts sequences. */
static rcv_status find_caller_views(const rcvi_engine *e, rcvi_kernel_step *s, bool selects) {
    const rcvi_map *map = s->step->map;
    for (int v = 0; v < map->operand_count; v++) {
        const rcvi_buffer *buffer = &e->program->buffers[map->operands[v].buffer];
        s->is_in_caller_order[v] = e->sorts && rcvi_cuda_is_by_row(buffer);
        bool absent = selects && rcvi_roles[buffer->role].optional;
        if ((s->is_in_caller_order[v] || absent) && reads(map, v))
            return rcvi_persistent_refuse("a persistent kernel does not read the caller's rows in a selection");
    }
    return RCV_OK;
}

/* Makes one map of the members of a kernel step. */
static rcv_status merge_members(rcvi_engine *e, rcvi_kernel_step *s, rcvi_step *step) {
    bool selects = false;
    merger j;
    RCVI_TRY(open_merger(e, s, &j));
    begin_map(&j, member_of(e, s, 0));
    for (int i = 0; i < s->member_count; i++) {
        int n = i < s->before ? i + 1 : i == s->before ? 0 : i; /* in the program's order */
        const rcvi_step *member = member_of(e, s, n);
        bool is_short = e->is_short[s->members[n]];
        selects |= member->kind == RCVI_STEP_SELECT;
        if (member->kind == RCVI_STEP_SELECT)
            add_selection(&j, member, is_short);
        else
            add_map(&j, member->map, n == 0, is_short);
    }
    *step = *member_of(e, s, 0);
    step->kind = RCVI_STEP_MAP;
    step->map = j.map;
    s->step = step;
    return find_caller_views(e, s, selects);
}

/* Sets product_step of every kernel step. */
static void find_merged_product_steps(rcvi_persistent *p, const int *product_step) {
    for (int i = 0; i < p->step_count; i++) {
        int wanted = p->loop + 1 + product_step[p->steps[i].members[0] - p->loop - 1];
        while (!rcvi_kernel_step_contains(&p->steps[p->steps[i].product_step], wanted)) p->steps[i].product_step++;
    }
}

rcv_status rcvi_persistent_merge_steps(rcvi_engine *e, rcvi_persistent *p, bool pairs) {
    const rcvi_step *loop = &e->program->steps[p->loop];
    int count = loop->loop.body, *product_step = rcvi_pool_new(&e->pool, (size_t)count, sizeof *product_step);
    bool selects = false;
    if (e->pool.failed) return RCV_NO_MEMORY;
    RCVI_TRY(find_product_steps(e, loop + 1, count, product_step));
    for (int i = 0; i < count; i++) selects |= loop[1 + i].kind == RCVI_STEP_SELECT;
    for (int i = 0; i < count; i++) {
        const rcvi_step *step = &loop[1 + i];
        bool by_rows = has_sums(step) || (selects && !has_products(step) && goes_by_rows(e, p, step));
        int argument = selects ? find_merge_target(e, p, step, product_step, by_rows) : p->step_count;
        rcvi_kernel_step *s = &p->steps[argument];
        if (argument == p->step_count) p->step_count++;
        s->by_rows |= by_rows;
        add_member(e, s, p->loop + 1 + i);
    }
    if (pairs) rcvi_persistent_pair_products(e, p);
    find_merged_product_steps(p, product_step);
    p->merged = rcvi_pool_new(&e->pool, (size_t)p->step_count, sizeof *p->merged);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (int i = 0; i < p->step_count; i++) RCVI_TRY(merge_members(e, &p->steps[i], &p->merged[i]));
    return RCV_OK;
}
