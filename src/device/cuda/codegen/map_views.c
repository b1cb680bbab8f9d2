/* What a map consists of, as its kernel has it: views, passes, argument words, sizes of a launch. */
#include "device/cuda/codegen/source.h"
#include "device/cuda/engine/tuning.h"

#include <string.h>

enum {
    CHUNK_BYTES = 128, /* of a row in a stage, and below: as tile_pipeline.cuh has it */
    BARRIER_BYTES = 16 /* of a stage */
};

int rcvi_map_views(const rcvi_map *map, const rcvi_view **views) {
    int count = 0;
    for (int v = 0; v < map->operand_count; v++) views[count++] = &map->operands[v];
    for (int p = 0; p < map->product_count; p++) {
        const rcvi_product *product = &map->products[p];
        views[count++] = &product->start;
        for (int t = 0; t < product->term_count; t++) {
            views[count++] = &product->terms[t].a;
            views[count++] = &product->terms[t].b;
        }
    }
    return count;
}

int rcvi_map_start_view(const rcvi_map *map, int p) {
    int view = map->operand_count;
    for (int i = 0; i < p; i++) view += 1 + 2 * map->products[i].term_count;
    return view;
}

bool rcvi_map_has_sums(const rcvi_map *map) {
    for (int i = 0; i < map->instruction_count; i++) {
        if (map->instructions[i].operation == RCVI_SUM) return true;
    }
    return false;
}

static const rcvi_view *pass_operand(const rcvi_map *map, const rcvi_pass *pass) {
    const rcvi_view *views[RCVI_MAX_VIEWS];
    rcvi_map_views(map, views);
    return views[pass->a];
}

/* The pass that term t of a product joins: one of the passes first .. count - 1 along the same operand, or `count`. */
static int join_pass(const rcvi_map *map, const rcvi_product *product, int t, const rcvi_pass *passes, int first,
                     int count) {
    for (int i = first; i < count; i++) {
        if (passes[i].depth == product->terms[t].depth &&
            rcvi_view_equal(pass_operand(map, &passes[i]), &product->terms[t].a))
            return i;
    }
    return count;
}

int rcvi_map_passes(const rcvi_map *map, rcvi_pass *passes) {
    int count = 0;
    for (int p = 0; p < map->product_count; p++) {
        const rcvi_product *product = &map->products[p];
        int view = rcvi_map_start_view(map, p) + 1;
        for (int t = 0, first = 0; t < product->term_count; t++, view += 2) {
            int pass = join_pass(map, product, t, passes, first, count);
            if (pass == RCVI_MAX_PASSES) return -1;
            if (pass == count) { /* inserted at `first`, so that the terms after it may still join later passes */
                pass = first;
                memmove(&passes[pass + 1], &passes[pass], (size_t)(count - pass) * sizeof *passes);
                passes[pass] = (rcvi_pass){.a = view, .depth = product->terms[t].depth};
                for (int i = 0; i < RCVI_MAX_PRODUCTS; i++) passes[pass].b[i] = RCVI_NONE;
                count++;
            }
            passes[pass].b[p] = view + 1;
            first = pass + 1; /* terms are summed in their order */
        }
    }
    return count;
}

int rcvi_map_count_rounded(const rcvi_map_shape *shape, int before) {
    int count = 0;
    for (int v = 0; v < before; v++) count += shape->has_rounded[v];
    return count;
}

int rcvi_map_words(const rcvi_map_shape *shape) {
    const rcvi_view *views[RCVI_MAX_VIEWS];
    rcvi_pass passes[RCVI_MAX_PASSES];
    int view_count = rcvi_map_views(shape->map, views), pass_count = rcvi_map_passes(shape->map, passes);
    int rounded = rcvi_map_count_rounded(shape, shape->map->operand_count);
    return 1 + view_count + (pass_count > 0 ? pass_count : 0) + shape->members * (1 + view_count + rounded);
}

size_t rcvi_tile_shared(const rcvi_map_shape *shape) {
    int rows = shape->tile_rows + shape->map->product_count * shape->tile_units;
    return (size_t)shape->stages * ((size_t)rows * CHUNK_BYTES + BARRIER_BYTES);
}

int rcvi_tile_threads(const rcvi_map_shape *shape) {
    (void)shape; /* the same for all shapes */
    return (RCVI_TUNED_CONSUMERS + RCVI_TUNED_PRODUCERS) * 32;
}
