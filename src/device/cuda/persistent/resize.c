/* Persistent kernels in calls of other sizes: the kernel and its layout are those of the largest call; numbers of its arguments follow from
 * the sizes (program/sizes.h). */
#include "device/cuda/persistent/internal.h"
#include "program/sizes.h"

#include <string.h>

void rcvi_persistent_numbers(rcvi_persistent *p, void (*number)(void *user, int64_t *at), void *user) {
    number(user, &p->iterations);
    for (int i = 0; i < p->step_count; i++) {
        rcvi_kernel_step *s = &p->steps[i];
        rcvi_step_numbers(&p->merged[i], number, user);
        number(user, &s->low);
        number(user, &s->high);
        for (int u = 0; u < s->port_count; u++) {
            int64_t *const all[] = {&s->ports[u].slot, &s->ports[u].step, &s->ports[u].low, &s->ports[u].high};
            for (size_t k = 0; k < sizeof all / sizeof *all; k++) number(user, all[k]);
        }
    }
    for (int c = 0; c < p->channel_count; c++) {
        rcvi_channel *channel = &p->channels[c];
        int64_t *const all[] = {&channel->first, &channel->last, &channel->written, &channel->base, &channel->top};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) number(user, all[k]);
    }
}

static void *copy_of(rcvi_pool *pool, const void *from, size_t count, size_t size) {
    void *to = rcvi_pool_new(pool, count, size);
    if (to && count) memcpy(to, from, count * size);
    return to;
}

/* A map whose views are its own. */
static rcvi_map *copy_map(rcvi_pool *pool, const rcvi_map *from) {
    rcvi_map *map = copy_of(pool, from, 1, sizeof *map);
    rcvi_product *products = copy_of(pool, from->products, (size_t)from->product_count, sizeof *products);
    rcvi_view *operands = copy_of(pool, from->operands, (size_t)from->operand_count, sizeof *operands);
    if (pool->failed) return NULL;
    map->products = products;
    map->operands = operands;
    return map;
}

/* The copy's view in the place of the original's `view`. */
static const rcvi_view *same_view(const rcvi_persistent *from, const rcvi_persistent *to, const rcvi_view *view) {
    for (int i = 0; i < from->step_count; i++) {
        for (int v = 0; v < from->steps[i].view_count; v++) {
            if (from->steps[i].views[v] == view) return to->steps[i].views[v];
        }
    }
    return view;
}

rcvi_persistent *rcvi_persistent_copy(rcvi_pool *pool, const rcvi_persistent *from) {
    rcvi_persistent *p = copy_of(pool, from, 1, sizeof *p);
    size_t steps = (size_t)from->step_count;
    rcvi_kernel_step *kernel_steps = copy_of(pool, from->steps, steps, sizeof *kernel_steps);
    rcvi_step *merged = copy_of(pool, from->merged, steps, sizeof *merged);
    rcvi_channel *channels = copy_of(pool, from->channels, (size_t)from->channel_count, sizeof *channels);
    if (pool->failed) return NULL;
    p->steps = kernel_steps;
    p->merged = merged;
    p->channels = channels;
    for (size_t i = 0; i < steps; i++) {
        rcvi_kernel_step *s = &kernel_steps[i];
        merged[i].map = copy_map(pool, from->merged[i].map);
        s->views = rcvi_pool_new(pool, (size_t)s->view_count, sizeof *s->views);
        if (pool->failed) return NULL;
        s->step = &merged[i];
        rcvi_map_views(merged[i].map, s->views);
    }
    for (int c = 0; c < p->channel_count; c++) channels[c].view = same_view(from, p, channels[c].view);
    return p;
}
