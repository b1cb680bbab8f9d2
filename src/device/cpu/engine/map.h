/* State of one call of a map with products, shared by map.c (blocks and epilogue) and map_product.c (products). */
#ifndef RCVI_MAP_H
#define RCVI_MAP_H

#include "device/cpu/engine/engine.h"

static inline int64_t rcvi_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t rcvi_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* Bytes of an element outside of bfloat16 activations, and of an element of a packed matrix. */
static inline int64_t rcvi_engine_element_bytes(const rcvi_engine *engine) {
    return engine->type == RCVI_KERNEL_DOUBLE ? 8 : 4;
}
static inline int64_t rcvi_engine_packed_bytes(const rcvi_engine *engine) {
    return engine->type == RCVI_KERNEL_BFLOAT16 ? 2 : rcvi_engine_element_bytes(engine);
}

/* True if the products of the map read unpacked weights. This is the same for all products of a map. */
static inline bool rcvi_map_is_plain(const rcvi_map *map) {
    return map->product_count > 0 && map->products[0].terms[0].plain;
}

typedef struct {
    const rcvi_step_call *call;
    const rcvi_map *map;
    const rcvi_compiled_map *compiled;
    const rcvi_product_kernels *kernels;
    char *slots;      /* areas of the scratch: slots of instructions, */
    char *tiles;      /* results of products, [products][tile_bytes], */
    char *transposed; /* the transpose of one result, for unpacked weights, */
    char *operands;   /* left operands rounded or packed */
    int64_t tile_bytes;
    int64_t size;                    /* bytes of an element, except activations in bfloat16 */
    bool exceeds_cache;              /* the packed matrices of the call exceed half of a core's cache */
    int64_t next_column;             /* first column of the block that is computed next */
    char *views[RCVI_MAX_OPERANDS];  /* addresses of the map's views */
    char *starts[RCVI_MAX_PRODUCTS]; /* initial values of the sums; NULL: zeros */
    const char *left[RCVI_MAX_PRODUCTS * RCVI_MAX_TERMS];   /* left operand of each term */
    int64_t left_row[RCVI_MAX_PRODUCTS * RCVI_MAX_TERMS];   /* its leading dimension, or RCVI_PACKED_A */
    const char *packed[RCVI_MAX_PRODUCTS * RCVI_MAX_TERMS]; /* right operand: packed panels, or unpacked weights */
} rcvi_map_call;

/* Address of element (row, column) of a view that begins at `base`. */
static inline char *rcvi_map_address(const rcvi_map_call *m, char *base, const rcvi_view *view, int64_t row,
                                     int64_t column) {
    return base + (row * view->row + column * view->column) * m->size;
}

/* Copies a block of a view to `to`, whose rows are to_row elements apart. A view with row or column stride 0 is broadcast. */
void rcvi_map_gather(const rcvi_map_call *m, const rcvi_view *view, char *base, int64_t row, int64_t rows,
                     int64_t column, int64_t columns, char *to, int64_t to_row);

/* Rounds or packs the left operands of rows row .. row + rows - 1 as the kernels read them; sets left and left_row. */
void rcvi_map_prepare_operands(rcvi_map_call *m, int64_t row, int64_t rows);
/* Computes product p for a block of rows and columns into `to`, whose rows are to_row elements apart. */
void rcvi_map_multiply(const rcvi_map_call *m, int p, int64_t row, int64_t rows, int64_t column, int64_t columns,
                       char *to, int64_t to_row);

#endif
