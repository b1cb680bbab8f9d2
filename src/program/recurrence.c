/* Finds recurrences: joins a loop's steps to one map, then compares every view that is written with all others, to find which iterations
 * access the same elements. */
#include "program/recurrence_parts.h"

/* ---- an iteration as one map ---- */

typedef struct {
    rcvi_recurrence *r;
    int *defined; /* [operands] register that the view holds, or RCVI_NONE: what it held before the iteration */
} joiner;

static int find_operand(joiner *j, const rcvi_view *view) {
    rcvi_map *map = &j->r->map;
    int found = 0;
    while (found < map->operand_count && !rcvi_view_equal(&map->operands[found], view)) found++;
    if (found == map->operand_count) {
        map->operands[map->operand_count++] = *view;
        j->defined[found] = RCVI_NONE;
    }
    return found;
}

/* Makes the view's value argument `a`; zero where there is no view. */
static void read_view(joiner *j, rcvi_instruction *to, int a, const rcvi_view *view) {
    to->from[a] = RCVI_FROM_NUMBER;
    to->number[a] = 0;
    if (view->buffer == RCVI_NONE) return;
    int operand = find_operand(j, view);
    bool known = j->defined[operand] != RCVI_NONE;
    to->from[a] = known ? RCVI_FROM_REGISTER : RCVI_FROM_VIEW;
    to->source[a] = known ? j->defined[operand] : operand;
}

static int add_instruction(joiner *j, rcvi_instruction instruction) {
    instruction.out = RCVI_NONE;
    j->r->map.instructions[j->r->map.instruction_count] = instruction;
    return j->r->map.instruction_count++;
}

static void define(joiner *j, const rcvi_view *view, int source) { j->defined[find_operand(j, view)] = source; }

/* A map reads all of its views before it stores to any. */
static void join_map(joiner *j, const rcvi_map *part) {
    int base = j->r->map.instruction_count;
    for (int k = 0; k < part->instruction_count; k++) {
        rcvi_instruction to = part->instructions[k];
        for (int a = 0; a < rcvi_operations[to.operation].arguments; a++) {
            if (to.from[a] == RCVI_FROM_REGISTER) to.source[a] += base;
            if (to.from[a] == RCVI_FROM_VIEW) read_view(j, &to, a, &part->operands[part->instructions[k].source[a]]);
        }
        add_instruction(j, to);
    }
    for (int k = 0; k < part->instruction_count; k++) {
        if (part->instructions[k].out != RCVI_NONE) define(j, &part->operands[part->instructions[k].out], base + k);
    }
    for (int i = 0; i < part->store_count; i++)
        define(j, &part->operands[part->stores[i].out], base + part->stores[i].source);
}

/* A select step; a copy and a fill are selections with a constant mask. */
static void join_selection(joiner *j, const rcvi_step *step) {
    rcvi_instruction to = {.operation = RCVI_SELECT, .from = {RCVI_FROM_NUMBER, RCVI_FROM_NUMBER, RCVI_FROM_NUMBER}};
    to.number[0] = 1;
    if (step->kind == RCVI_STEP_SELECT) {
        rcvi_view mask = step->mask;
        mask.column = 0; /* a byte for the whole row */
        read_view(j, &to, 0, &mask);
        read_view(j, &to, 2, &step->b);
    }
    if (step->kind == RCVI_STEP_FILL)
        to.number[1] = step->fill.number;
    else
        read_view(j, &to, 1, &step->a);
    define(j, &step->out, add_instruction(j, to));
}

static rcv_status check_kind(const rcvi_step *step) {
    bool map = step->kind == RCVI_STEP_MAP && !step->map->product_count;
    bool moves = step->kind == RCVI_STEP_SELECT || step->kind == RCVI_STEP_COPY || step->kind == RCVI_STEP_FILL;
    for (int k = 0; map && k < step->map->instruction_count; k++)
        map = step->map->instructions[k].operation != RCVI_SUM;
    if ((!map && !moves) || step->when != RCVI_ALWAYS || step->accumulate)
        return rcvi_fail(RCV_UNSUPPORTED, "a loop with a %s is no recurrence of elements", rcvi_step_names[step->kind]);
    return RCV_OK;
}

static rcv_status check_step(const rcvi_step *first, const rcvi_step *step) {
    const rcvi_time *x = &first->time, *y = &step->time;
    if (step->rows != first->rows || step->columns != first->columns || x->timed != y->timed || x->base != y->base ||
        x->inner != y->inner || x->outer != y->outer || (y->timed && y->span > 1))
        return rcvi_fail(RCV_UNSUPPORTED, "the steps of a loop that differ in size or time are no recurrence");
    return RCV_OK;
}

enum { DERIVED = 8, SPARE = 16 }; /* at most so many derived instructions for each one of the loop, and others */

static rcv_status open_map(rcvi_pool *pool, rcvi_recurrence *r, joiner *j) {
    size_t operands = 0, instructions = 0;
    for (int s = 0; s < r->step_count; s++) {
        RCVI_TRY(check_step(r->steps[0], r->steps[s]));
        bool map = r->steps[s]->kind == RCVI_STEP_MAP;
        operands += map ? (size_t)r->steps[s]->map->operand_count : 4;
        instructions += map ? (size_t)r->steps[s]->map->instruction_count : 1;
    }
    r->map.operands = rcvi_pool_new(pool, operands, sizeof *r->map.operands);
    r->map.instructions = rcvi_pool_new(pool, instructions * DERIVED + SPARE, sizeof *r->map.instructions);
    r->map.stores = rcvi_pool_new(pool, operands, sizeof *r->map.stores);
    r->depends = rcvi_pool_new(pool, instructions * DERIVED + SPARE, sizeof *r->depends);
    r->last = rcvi_pool_new(pool, operands, sizeof *r->last);
    r->is_constant = rcvi_pool_new(pool, operands, sizeof *r->is_constant);
    j->defined = rcvi_pool_new(pool, operands, sizeof *j->defined);
    return pool->failed ? RCV_NO_MEMORY : RCV_OK;
}

static rcv_status join(rcvi_pool *pool, rcvi_recurrence *r) {
    joiner j = {.r = r};
    RCVI_TRY(open_map(pool, r, &j));
    for (int s = 0; s < r->step_count; s++) {
        if (r->steps[s]->kind == RCVI_STEP_MAP)
            join_map(&j, r->steps[s]->map);
        else
            join_selection(&j, r->steps[s]);
    }
    if (r->map.operand_count > RCVI_MAX_OPERANDS)
        return rcvi_fail(RCV_UNSUPPORTED, "a recurrence has at most %d places, not %d", RCVI_MAX_OPERANDS,
                         r->map.operand_count);
    for (int v = 0; v < r->map.operand_count; v++) {
        if (j.defined[v] == RCVI_NONE) continue;
        r->map.stores[r->map.store_count++] = (rcvi_map_store){.source = j.defined[v], .out = v};
    }
    return RCV_OK;
}

/* ---- addresses over iterations ---- */

/* How the elements that view w writes relate to those of view v. */
typedef enum {
    DISJOINT, /* never the same elements */
    SAME,     /* the same elements in the same iteration, else disjoint */
    NEXT,     /* v has them one iteration later, else disjoint */
    PAST,     /* v had them one iteration before */
    STAYS,    /* both are the same elements in all iterations */
    OTHER     /* anything else */
} relation;

static int64_t modulo(int64_t a, int64_t b) { return (a % b + b) % b; }

static int64_t extent(const rcvi_recurrence *r, const rcvi_view *v) {
    return (r->rows - 1) * v->row + (r->columns - 1) * v->column + 1;
}

/* The range of a view's elements over all iterations of the loop. */
static void find_range(const rcvi_recurrence *r, const rcvi_view *v, int64_t *low, int64_t *high) {
    int64_t far = (r->count - 1) * v->stride, slots = v->wrap ? (v->wrap - 1) * v->slot : 0;
    *low = v->offset + (far < 0 ? far : 0);
    *high = v->offset + (far > 0 ? far : 0) + slots + extent(r, v);
}

/* Are they disjoint columns of rows of one length, in all iterations? */
static bool have_other_columns(const rcvi_recurrence *r, const rcvi_view *w, const rcvi_view *v) {
    if (w->row <= 0 || w->row != v->row || w->column != 1 || v->column != 1) return false;
    if (w->stride % w->row || v->stride % w->row || w->outer % w->row || v->outer % w->row || w->wrap || v->wrap)
        return false;
    int64_t distance = modulo(v->offset - w->offset, w->row);
    return distance >= r->columns && distance + r->columns <= w->row;
}

static relation relate_rings(const rcvi_recurrence *r, const rcvi_view *w, const rcvi_view *v) {
    rcvi_view aligned = *v;
    aligned.phase = w->phase;
    if (!rcvi_view_equal(w, &aligned) || w->stride || w->slot < extent(r, w)) return OTHER;
    if (w->phase == v->phase) return w->wrap > 1 ? SAME : STAYS;
    if (modulo(v->phase - w->phase + r->time.inner, w->wrap) == 0) return NEXT;
    return modulo(w->phase - v->phase + r->time.inner, w->wrap) == 0 ? PAST : OTHER;
}

static relation relate(const rcvi_recurrence *r, const rcvi_view *w, const rcvi_view *v) {
    if (w->buffer != v->buffer || have_other_columns(r, w, v)) return DISJOINT;
    int64_t low[2], high[2];
    find_range(r, w, &low[0], &high[0]);
    find_range(r, v, &low[1], &high[1]);
    if (w->outer == v->outer && (high[0] <= low[1] || high[1] <= low[0])) return DISJOINT;
    if (w->wrap || v->wrap) return w->wrap && v->wrap ? relate_rings(r, w, v) : OTHER;
    if (w->stride != v->stride || w->outer != v->outer || w->row != v->row || w->column != v->column) return OTHER;
    int64_t distance = v->offset - w->offset, size = extent(r, w), stride = w->stride < 0 ? -w->stride : w->stride;
    if (!stride) return distance ? OTHER : STAYS;
    if (size > stride) return OTHER;
    if (!distance) return SAME;
    if (distance == -w->stride) return NEXT;
    if (distance == w->stride) return PAST;
    int64_t inside = modulo(distance, stride);
    return inside >= size && inside + size <= stride ? DISJOINT : OTHER;
}

static int register_of(const rcvi_recurrence *r, int operand) {
    for (int i = 0; i < r->map.store_count; i++) {
        if (r->map.stores[i].out == operand) return r->map.stores[i].source;
    }
    return RCVI_NONE;
}

static int count_reads(const rcvi_recurrence *r, int operand) {
    int count = 0;
    for (int k = 0; k < r->map.instruction_count; k++) {
        const rcvi_instruction *instruction = &r->map.instructions[k];
        for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++)
            count += instruction->from[a] == RCVI_FROM_VIEW && instruction->source[a] == operand;
    }
    return count;
}

static bool is_read(const rcvi_recurrence *r, int operand) { return count_reads(r, operand) > 0; }

static rcv_status add_carried(rcvi_recurrence *r, int read, int written) {
    for (int c = 0; c < r->carried_count; c++) {
        if (r->carried[c].read == read)
            return rcvi_fail(RCV_UNSUPPORTED, "a loop whose iterations find a value at two places is no recurrence");
    }
    if (r->carried_count == RCVI_MAX_CARRIED)
        return rcvi_fail(RCV_UNSUPPORTED, "a recurrence carries at most %d values", RCVI_MAX_CARRIED);
    r->carried[r->carried_count++] = (rcvi_carried){.read = read, .source = register_of(r, written), .term = RCVI_NONE};
    return RCV_OK;
}

/* Finds how operand `w`, which is written, relates to `v`, and what is carried between them. */
static rcv_status find_relation(const rcvi_program *program, rcvi_recurrence *r, int w, int v) {
    const rcvi_view *view = &r->map.operands[w];
    relation relation = relate(r, view, &r->map.operands[v]);
    bool reads = is_read(r, v), writes = register_of(r, v) != RCVI_NONE;
    if (relation == STAYS || (relation == NEXT && writes)) r->last[w] = 1; /* the next iteration overwrites it */
    if (view->wrap && writes && v != w && relation != DISJOINT) r->last[w] = 1;
    if (relation == OTHER || (relation == PAST && reads))
        return rcvi_fail(RCV_UNSUPPORTED, "iterations of a loop share elements of %s other than one after the other",
                         program->buffers[view->buffer].name);
    if (reads && (relation == NEXT || relation == STAYS)) return add_carried(r, v, w);
    return RCV_OK;
}

static rcv_status find_carried(const rcvi_program *program, rcvi_recurrence *r) {
    for (int w = 0; w < r->map.operand_count; w++) {
        const rcvi_view *view = &r->map.operands[w];
        if (register_of(r, w) == RCVI_NONE) {
            r->is_constant[w] = !view->stride && !view->wrap;
            continue;
        }
        if (view->column != 1 || (r->rows > 1 && view->row < r->columns))
            return rcvi_fail(RCV_UNSUPPORTED, "a recurrence stores an element for every row and column");
        r->last[w] = view->wrap;
        for (int v = 0; v < r->map.operand_count; v++) RCVI_TRY(find_relation(program, r, w, v));
    }
    for (int v = 0; v < r->map.operand_count; v++) {
        bool carried = false;
        for (int c = 0; c < r->carried_count; c++) carried |= r->carried[c].read == v;
        if (r->map.operands[v].wrap && is_read(r, v) && !carried)
            return rcvi_fail(RCV_UNSUPPORTED, "a loop that reads a ring which it does not write is no recurrence");
    }
    return RCV_OK;
}

/* ---- stores that are read after the last iteration only ---- */

/* May a step outside of this loop read what iterations before the last have stored? In a loop itself, it may. */
static bool may_read(const rcvi_recurrence *r, const rcvi_view *w, const rcvi_step *step, bool is_in_loop) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int64_t low, high, last = w->offset + (r->count - 1) * w->stride, end = last + extent(r, w);
    int count = step->kind == RCVI_STEP_LOOP ? 0 : rcvi_step_accesses(step, accesses);
    find_range(r, w, &low, &high);
    for (int k = 0; k < count; k++) {
        const rcvi_view *v = accesses[k].view;
        if (v->buffer != w->buffer || !accesses[k].read) continue;
        int64_t first = v->offset, past = first + (accesses[k].rows - 1) * v->row + accesses[k].columns;
        bool inside = first >= last && past <= end, distance = past <= low || first >= high;
        if (is_in_loop || v->wrap || (!inside && !distance)) return true;
    }
    return false;
}

/* Mostly adjoints of states: carried, and read after the loop ends. */
static void find_unread(const rcvi_program *program, rcvi_recurrence *r) {
    size_t end = r->loop + 1 + (size_t)program->steps[r->loop].loop.body;
    for (int i = 0; i < r->map.store_count; i++) {
        const rcvi_view *w = &r->map.operands[r->map.stores[i].out];
        bool read = r->last[r->map.stores[i].out] || w->outer || r->time.outer ||
                    program->buffers[w->buffer].role != RCVI_ARENA;
        size_t inside = 0; /* the first step after the current outermost loop */
        for (size_t k = 0; k < program->step_count && !read; k++) {
            const rcvi_step *step = &program->steps[k];
            if (step->kind == RCVI_STEP_LOOP && k >= inside) inside = k + 1 + (size_t)step->loop.body;
            bool own = k >= r->loop && k < end;
            read = own ? k == r->loop && inside > end : may_read(r, w, step, k < inside);
        }
        if (!read) r->last[r->map.stores[i].out] = 1;
    }
}

/* ---- states and sums ---- */

static bool is_used(const rcvi_recurrence *r, int number) {
    for (int k = 0; k < r->map.instruction_count; k++) {
        const rcvi_instruction *instruction = &r->map.instructions[k];
        for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
            if (instruction->from[a] == RCVI_FROM_REGISTER && instruction->source[a] == number) return true;
        }
    }
    return false;
}

/* A carried value that is only added to is a sum, if nothing else reads it. */
static void find_sum(const rcvi_recurrence *r, rcvi_carried *c) {
    const rcvi_instruction *last = &r->map.instructions[c->source];
    if (last->operation != RCVI_ADD || count_reads(r, c->read) != 1 || is_used(r, c->source)) return;
    for (int a = 0; a < 2; a++) {
        bool own = last->from[a] == RCVI_FROM_VIEW && last->source[a] == c->read;
        if (own && last->from[1 - a] == RCVI_FROM_REGISTER) c->term = last->source[1 - a];
    }
}

static void find_states(rcvi_recurrence *r) {
    int states = 0;
    r->state = RCVI_NONE;
    for (int c = 0; c < r->carried_count; c++) {
        find_sum(r, &r->carried[c]);
        if (r->carried[c].term != RCVI_NONE) continue;
        r->state = c;
        states++;
    }
    if (states != 1) r->state = RCVI_NONE;
}

bool rcvi_recurrence_carries(const rcvi_recurrence *r, int operand) {
    for (int c = 0; c < r->carried_count; c++) {
        if (r->carried[c].read == operand && r->carried[c].term == RCVI_NONE) return true;
    }
    return false;
}

void rcvi_recurrence_find_dependence(rcvi_recurrence *r, int k) {
    const rcvi_instruction *instruction = &r->map.instructions[k];
    r->depends[k] = false;
    for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
        if (instruction->from[a] == RCVI_FROM_REGISTER) r->depends[k] |= r->depends[instruction->source[a]];
        if (instruction->from[a] == RCVI_FROM_VIEW) r->depends[k] |= rcvi_recurrence_carries(r, instruction->source[a]);
    }
}

static rcv_status find_one(rcvi_pool *pool, const rcvi_program *program, rcvi_recurrence *r) {
    RCVI_TRY(join(pool, r));
    RCVI_TRY(find_carried(program, r));
    find_unread(program, r);
    find_states(r);
    for (int k = 0; k < r->map.instruction_count; k++) rcvi_recurrence_find_dependence(r, k);
    if (r->state != RCVI_NONE) rcvi_recurrence_derive(r);
    return RCV_OK;
}

/* ---- independent steps ---- */

static bool are_independent(const rcvi_recurrence *loop, const rcvi_step *x, const rcvi_step *y) {
    rcvi_access a[RCVI_MAX_ACCESSES], b[RCVI_MAX_ACCESSES];
    int m = rcvi_step_accesses(x, a), n = rcvi_step_accesses(y, b);
    rcvi_recurrence both = *loop;
    both.rows = x->rows > y->rows ? x->rows : y->rows;
    both.columns = x->columns > y->columns ? x->columns : y->columns;
    for (int i = 0; i < m; i++) {
        for (int k = 0; k < n; k++) {
            bool written = a[i].written || b[k].written;
            if (written && relate(&both, a[i].view, b[k].view) != DISJOINT) return false;
        }
    }
    return true;
}

/* group: [body] the first step of the connected component of dependent steps. */
static void find_groups(const rcvi_recurrence *loop, const rcvi_step *body, int count, int *group) {
    for (int s = 0; s < count; s++) {
        group[s] = s;
        for (int t = 0; t < s; t++) {
            int from = group[s], to = group[t];
            if (from == to || are_independent(loop, &body[t], &body[s])) continue;
            if (from < to) from = group[t], to = group[s];
            for (int u = 0; u <= s; u++) {
                if (group[u] == from) group[u] = to;
            }
        }
    }
}

rcv_status rcvi_recurrences_find(rcvi_pool *pool, const rcvi_program *program, size_t loop, rcvi_recurrence **out,
                                 int *count) {
    const rcvi_step *step = &program->steps[loop], *body = step + 1;
    int steps = step->loop.body, *group = rcvi_pool_new(pool, (size_t)steps, sizeof *group);
    *out = rcvi_pool_new(pool, (size_t)steps, sizeof **out);
    *count = 0;
    if (pool->failed) return RCV_NO_MEMORY;
    rcvi_recurrence whole = {.loop = loop,
                             .time = body->time,
                             .count = step->loop.count,
                             .scale = RCVI_NONE,
                             .offset = RCVI_NONE,
                             .slope = RCVI_NONE};
    for (int s = 0; s < steps; s++) RCVI_TRY(check_kind(&body[s]));
    find_groups(&whole, body, steps, group);
    for (int g = 0; g < steps; g++) {
        if (group[g] != g) continue;
        rcvi_recurrence *r = &(*out)[(*count)++];
        *r = whole;
        r->rows = body[g].rows;
        r->columns = body[g].columns;
        r->time = body[g].time;
        r->steps = rcvi_pool_new(pool, (size_t)steps, sizeof *r->steps);
        if (pool->failed) return RCV_NO_MEMORY;
        for (int s = g; s < steps; s++) {
            if (group[s] == g) r->steps[r->step_count++] = &body[s];
        }
        RCVI_TRY(find_one(pool, program, r));
    }
    return RCV_OK;
}

/* The smallest i with i * each >= distance; each > 0. */
static int64_t steps_to(int64_t distance, int64_t each) {
    return distance > 0 ? (distance - 1) / each + 1 : -(-distance / each);
}

int64_t rcvi_recurrence_due(const rcvi_program *program, const rcvi_recurrence *r, int64_t outer, int64_t *first) {
    int64_t steps = program->sizes.steps, start = r->time.base + outer * r->time.outer, inner = r->time.inner;
    int64_t low = 0, high = r->count;
    if (r->time.timed && inner == 0) high = start >= 0 && start < steps ? high : 0;
    if (r->time.timed && inner > 0) low = steps_to(-start, inner), high = steps_to(steps - start, inner);
    if (r->time.timed && inner < 0) low = steps_to(start - (steps - 1), -inner), high = steps_to(start + 1, -inner);
    *first = low > 0 ? low : 0;
    if (high > r->count) high = r->count;
    return high > *first ? high - *first : 0;
}
