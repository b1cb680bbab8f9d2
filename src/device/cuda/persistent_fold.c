/* Two maps that only multiply, one after the other, as one step: products of the first are lane 0's, those of the second lane
 * 1's, and both have the same rows of weights in their lanes, so that the units of a block have the products of both. Values
 * such as W x and U h, which are needed apart, then take the processors of one of them. */
#include "device/cuda/persistent_parts.h"

#include <string.h>

typedef rcvi_persistent_step hosted_step;

/* A map of products alone, which all are stored. */
static bool only_multiplies(const hosted_step *s) {
    return s->pass_count > 0 && !s->shape.map->instruction_count && s->count == 1;
}

static bool same_time(const rcvi_step *a, const rcvi_step *b) {
    return a->time.base == b->time.base && a->time.inner == b->time.inner && a->rows == b->rows &&
           a->columns == b->columns && a->layer == b->layer && a->direction == b->direction;
}

static bool may_fold(const rcvi_engine *e, const hosted_step *a, const hosted_step *b) {
    const rcvi_step *x = rcvi_persistent_step_of(e, a), *y = rcvi_persistent_step_of(e, b);
    const rcvi_map *m = a->shape.map, *n = b->shape.map;
    if (!only_multiplies(a) || !only_multiplies(b) || !same_time(x, y)) return false;
    if (m->product_count + n->product_count > RCVI_MAX_PRODUCTS || a->pass_count + b->pass_count > RCVI_MAX_PASSES ||
        m->operand_count + n->operand_count > RCVI_MAX_OPERANDS)
        return false;
    for (int q = 0; q < a->pass_count; q++) {
        for (int r = 0; r < b->pass_count; r++) {
            if (rcvi_view_equal(a->views[a->passes[q].a], b->views[b->passes[r].a])) return false;
        }
    }
    return !rcvi_steps_conflict(e->program, x, y);
}

/* Operands, products and stores of both; those of the second refer to what is theirs. */
static const rcvi_map *join_maps(rcvi_pool *pool, const rcvi_map *a, const rcvi_map *b) {
    int products = a->product_count + b->product_count, operands = a->operand_count + b->operand_count,
        stores = a->store_count + b->store_count;
    rcvi_map *map = rcvi_pool_new(pool, 1, sizeof *map);
    rcvi_product *product = rcvi_pool_new(pool, (size_t)products, sizeof *product);
    rcvi_view *operand = rcvi_pool_new(pool, (size_t)operands, sizeof *operand);
    rcvi_map_store *store = rcvi_pool_new(pool, (size_t)stores, sizeof *store);
    if (pool->failed) return NULL;
    for (int v = 0; v < operands; v++)
        operand[v] = v < a->operand_count ? a->operands[v] : b->operands[v - a->operand_count];
    for (int p = 0; p < products; p++) {
        bool second = p >= a->product_count;
        product[p] = second ? b->products[p - a->product_count] : a->products[p];
        if (second && product[p].out != RCVI_NONE) product[p].out += a->operand_count;
    }
    for (int i = 0; i < stores; i++) {
        bool second = i >= a->store_count;
        store[i] = second ? b->stores[i - a->store_count] : a->stores[i];
        if (second) store[i].source += a->product_count;
        if (second) store[i].out += a->operand_count;
    }
    *map = (rcvi_map){.products = product,
                      .product_count = products,
                      .stores = store,
                      .store_count = stores,
                      .operands = operand,
                      .operand_count = operands};
    return map;
}

/* Bytes of both tables: those of operands, then those of what products read. */
static void *join_tables(rcvi_pool *pool, const void *a, const void *b, const int counts[4], size_t size) {
    size_t n[4];
    for (int i = 0; i < 4; i++) n[i] = (size_t)counts[i] * size;
    char *to = rcvi_pool_new(pool, n[0] + n[1] + n[2] + n[3] + 1, 1), *at = to;
    if (!to) return NULL;
    memcpy(at, a, n[0]);
    memcpy(at += n[0], b, n[1]);
    memcpy(at += n[1], (const char *)a + n[0], n[2]);
    memcpy(at + n[2], (const char *)b + n[1], n[3]);
    return to;
}

static rcv_status fold(rcvi_engine *e, hosted_step *a, const hosted_step *b) {
    const rcvi_map *m = a->shape.map, *n = b->shape.map, *map = join_maps(&e->pool, m, n);
    rcvi_pass passes[RCVI_MAX_PASSES];
    int counts[] = {m->operand_count, n->operand_count, a->view_count - m->operand_count,
                    b->view_count - n->operand_count},
        operands[] = {m->operand_count, n->operand_count, 0, 0};
    if (!map) return RCV_NO_MEMORY;
    a->apart = m->product_count;
    a->count = 2;
    a->view_count += b->view_count;
    a->twin_count += b->twin_count;
    a->pass_count = rcvi_map_passes(map, passes);
    a->passes = rcvi_pool_new(&e->pool, (size_t)a->pass_count, sizeof *a->passes);
    a->views = rcvi_pool_new(&e->pool, (size_t)a->view_count, sizeof *a->views);
    a->is_late = rcvi_pool_new(&e->pool, (size_t)a->view_count, sizeof *a->is_late);
    a->is_early = rcvi_pool_new(&e->pool, (size_t)a->view_count, sizeof *a->is_early);
    a->shape.map = map;
    a->shape.types = join_tables(&e->pool, a->shape.types, b->shape.types, counts, sizeof *a->shape.types);
    a->shape.has_twin = join_tables(&e->pool, a->shape.has_twin, b->shape.has_twin, operands, sizeof(bool));
    a->shape.turned = join_tables(&e->pool, a->shape.turned, b->shape.turned, operands, sizeof(bool));
    if (b->shape.vector < a->shape.vector) a->shape.vector = b->shape.vector;
    if (b->shape.widest < a->shape.widest) a->shape.widest = b->shape.widest;
    if (e->pool.failed) return RCV_NO_MEMORY;
    rcvi_map_views(map, a->views);
    memcpy(a->passes, passes, (size_t)a->pass_count * sizeof *passes);
    for (int q = 0; q < a->pass_count; q++) a->read_of[q] = RCVI_NONE;
    return RCV_OK;
}

rcv_status rcvi_persistent_fold(rcvi_engine *e, rcvi_persistent *p) {
    bool sums = false;
    int count = 0;
    for (int i = 0; i < p->step_count; i++) sums |= rcvi_map_has_sums(p->steps[i].shape.map);
    for (int i = 0; i < p->step_count; i++) {
        hosted_step *last = count > 0 ? &p->steps[count - 1] : NULL;
        if (sums && last && may_fold(e, last, &p->steps[i])) {
            RCVI_TRY(fold(e, last, &p->steps[i]));
            p->folded = true;
        } else {
            p->steps[count++] = p->steps[i];
        }
    }
    p->step_count = count;
    return RCV_OK;
}
