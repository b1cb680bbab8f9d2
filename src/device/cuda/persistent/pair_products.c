/* Paired products: two maps that only multiply, one after the other, become one kernel step. Pipe 0 has the products of the first, pipe 1
 * those of the second, and both use the same rows of weights of their MMA, so that the units of a block have the products of both. Values
 * such as W x and U h, which layer normalisation needs separately, then take the processors of one of them. */
#include "device/cuda/persistent/internal.h"

static const rcvi_step *first_of(const rcvi_engine *e, const rcvi_kernel_step *s) {
    return &e->program->steps[s->members[0]];
}

/* Is the step a map of products only, all of which are stored? */
static bool only_multiplies(const rcvi_engine *e, const rcvi_kernel_step *s) {
    const rcvi_step *step = first_of(e, s);
    return s->member_count == 1 && step->kind == RCVI_STEP_MAP && step->map->product_count > 0 &&
           !step->map->instruction_count;
}

static bool go_together(const rcvi_step *a, const rcvi_step *b) {
    return a->time.base == b->time.base && a->time.inner == b->time.inner && a->rows == b->rows &&
           a->columns == b->columns && a->layer == b->layer && a->direction == b->direction;
}

/* Do both have products with the same left operand? Then the operand would be needed in both pipes. */
static bool share_operands(const rcvi_map *m, const rcvi_map *n) {
    rcvi_pass a[RCVI_MAX_PASSES], b[RCVI_MAX_PASSES];
    const rcvi_view *x[RCVI_MAX_VIEWS], *y[RCVI_MAX_VIEWS];
    int first = rcvi_map_passes(m, a), second = rcvi_map_passes(n, b);
    if (first < 0 || second < 0 || first + second > RCVI_MAX_PASSES) return true;
    rcvi_map_views(m, x);
    rcvi_map_views(n, y);
    for (int q = 0; q < first; q++) {
        for (int r = 0; r < second; r++) {
            if (rcvi_view_equal(x[a[q].a], y[b[r].a])) return true;
        }
    }
    return false;
}

static bool may_pair(const rcvi_engine *e, const rcvi_kernel_step *a, const rcvi_kernel_step *b) {
    if (!only_multiplies(e, a) || !only_multiplies(e, b)) return false;
    const rcvi_step *x = first_of(e, a), *y = first_of(e, b);
    return go_together(x, y) && e->is_short[a->members[0]] == e->is_short[b->members[0]] &&
           x->map->product_count + y->map->product_count <= RCVI_MAX_PRODUCTS &&
           x->map->operand_count + y->map->operand_count <= RCVI_MAX_OPERANDS && !share_operands(x->map, y->map) &&
           !rcvi_steps_conflict(e->program, x, y);
}

void rcvi_persistent_pair_products(const rcvi_engine *e, rcvi_persistent *p) {
    bool sums = false;
    int count = 0;
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_step *step = first_of(e, &p->steps[i]);
        sums |= step->kind == RCVI_STEP_MAP && rcvi_map_has_sums(step->map);
    }
    for (int i = 0; i < p->step_count; i++) {
        rcvi_kernel_step *last = count > 0 ? &p->steps[count - 1] : NULL;
        if (sums && last && may_pair(e, last, &p->steps[i])) {
            last->second_product = first_of(e, last)->map->product_count;
            last->members[last->member_count++] = p->steps[i].members[0];
            p->paired = true;
        } else {
            p->steps[count++] = p->steps[i];
        }
    }
    p->step_count = count;
}
