/* One call of a map with products, as map.c and map_product.c see it. */
#ifndef RCVI_MAP_H
#define RCVI_MAP_H

#include "device/cpu/engine/engine.h"

static inline int64_t rcvi_smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t rcvi_larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Of an element; of one of a packed matrix. */
static inline int64_t rcvi_engine_element_bytes(const rcvi_engine *engine) {
    return engine->type == RCVI_KERNEL_DOUBLE ? 8 : 4;
}
static inline int64_t rcvi_packed_bytes(const rcvi_engine *engine) {
    return engine->type == RCVI_KERNEL_BFLOAT16 ? 2 : rcvi_engine_element_bytes(engine);
}

/* Are its products taken with the weights as they lie in memory? All of a map are, or none. */
static inline bool rcvi_map_is_plain(const rcvi_map *map) {
    return map->product_count > 0 && map->products[0].terms[0].plain;
}

typedef struct {
    const rcvi_call *call;
    const rcvi_map *map;
    const rcvi_compiled *compiled;
    const rcvi_product_kernels *kernels;
    char *slots, *tiles, *turned, *operands; /* areas of the scratch */
    int64_t tile_bytes;
    int64_t size;  /* bytes of an element, but for activations in bfloat16 */
    bool far;      /* between two steps its matrices push all else out of the cache */
    int64_t after; /* first column of the block that follows */
    char *views[RCVI_MAX_OPERANDS];
    char *starts[RCVI_MAX_PRODUCTS];
    const char *left[RCVI_MAX_PRODUCTS * RCVI_MAX_TERMS]; /* a of terms */
    int64_t left_row[RCVI_MAX_PRODUCTS * RCVI_MAX_TERMS];
    const char *packed[RCVI_MAX_PRODUCTS * RCVI_MAX_TERMS];
} rcvi_map_call;

static inline char *rcvi_map_at(const rcvi_map_call *m, char *base, const rcvi_view *view, int64_t row,
                                int64_t column) {
    return base + (row * view->row + column * view->column) * m->size;
}

/* Rows of a view, or its repeated row or column, side by side. */
void rcvi_map_gather(const rcvi_map_call *m, const rcvi_view *view, char *base, int64_t row, int64_t rows,
                     int64_t column, int64_t columns, char *to, int64_t to_row);

/* Makes the left operands of rows row .. row + rows - 1 ready for products over these rows. */
void rcvi_map_find_operands(rcvi_map_call *m, int64_t row, int64_t rows);
/* Product p over a block: into `to`, whose rows are `to_row` elements apart. */
void rcvi_map_multiply(const rcvi_map_call *m, int p, int64_t row, int64_t rows, int64_t column, int64_t columns,
                       char *to, int64_t to_row);

#endif
