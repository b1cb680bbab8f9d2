/* Two maps that only multiply, one after the other, as one step: products of the first are lane 0's, those of the second lane
 * 1's, and both have the same rows of weights in their lanes, so that the units of a block have the products of both. Values
 * such as W x and U h, which are needed apart, then take the processors of one of them. */
#include "device/cuda/persistent/parts.h"

typedef rcvi_persistent_step hosted_step;

static const rcvi_step *first_of(const rcvi_engine *e, const hosted_step *s) { return &e->program->steps[s->parts[0]]; }

/* A map of products alone, which all are stored. */
static bool only_multiplies(const rcvi_engine *e, const hosted_step *s) {
    const rcvi_step *step = first_of(e, s);
    return s->part_count == 1 && step->kind == RCVI_STEP_MAP && step->map->product_count > 0 &&
           !step->map->instruction_count;
}

static bool go_together(const rcvi_step *a, const rcvi_step *b) {
    return a->time.base == b->time.base && a->time.inner == b->time.inner && a->rows == b->rows &&
           a->columns == b->columns && a->layer == b->layer && a->direction == b->direction;
}

/* Do some of their products have one left operand? Then these are of both lanes. */
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

static bool may_pair(const rcvi_engine *e, const hosted_step *a, const hosted_step *b) {
    if (!only_multiplies(e, a) || !only_multiplies(e, b)) return false;
    const rcvi_step *x = first_of(e, a), *y = first_of(e, b);
    return go_together(x, y) && e->is_short[a->parts[0]] == e->is_short[b->parts[0]] &&
           x->map->product_count + y->map->product_count <= RCVI_MAX_PRODUCTS &&
           x->map->operand_count + y->map->operand_count <= RCVI_MAX_OPERANDS && !share_operands(x->map, y->map) &&
           !rcvi_steps_conflict(e->program, x, y);
}

void rcvi_persistent_pair(const rcvi_engine *e, rcvi_persistent *p) {
    bool sums = false;
    int count = 0;
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_step *step = first_of(e, &p->steps[i]);
        sums |= step->kind == RCVI_STEP_MAP && rcvi_map_has_sums(step->map);
    }
    for (int i = 0; i < p->step_count; i++) {
        hosted_step *last = count > 0 ? &p->steps[count - 1] : NULL;
        if (sums && last && may_pair(e, last, &p->steps[i])) {
            last->apart = first_of(e, last)->map->product_count;
            last->parts[last->part_count++] = p->steps[i].parts[0];
            p->paired = true;
        } else {
            p->steps[count++] = p->steps[i];
        }
    }
    p->step_count = count;
}
