/* What the files that write a map as CUDA source share.
 *
 * Names in the text: v<view> a value that is read, p<product> a product, s<product> what its sum starts from, r<instruction> its
 * result, o<instruction> the same as an array where it is stored, at<view> and rounded<view> addresses. Each is an array of VECTOR
 * elements, SPAN where a step goes by rows; i counts these. */
#ifndef RCVI_CUDA_MAP_WRITER_H
#define RCVI_CUDA_MAP_WRITER_H

#include "device/cuda/codegen/source.h"

typedef struct {
    const rcvi_map_shape *shape;
    const rcvi_map *map;
    rcvi_text text;
    rcvi_pass passes[RCVI_MAX_PASSES];
    int pass_count;
    const rcvi_map_links *links;           /* of a step of a persistent kernel, else NULL */
    bool read[RCVI_MAX_OPERANDS];          /* views that instructions read */
    bool kept[RCVI_MAX_LONG_INSTRUCTIONS]; /* instructions whose results are stored */
    /* Of maps with sums over features: map_rows.c. */
    bool done[RCVI_MAX_LONG_INSTRUCTIONS]; /* instructions that are written */
    bool same[RCVI_MAX_LONG_INSTRUCTIONS]; /* whose result is one number for the whole row */
    int turn;                              /* number of sums so far: two buffers of shared memory alternate */
    bool stored[RCVI_MAX_OPERANDS];        /* views that are stored already */
    int need[RCVI_MAX_OPERANDS];           /* views: how many sums, one after the other, are known at the first read */
} rcvi_map_writer;

/* In a persistent kernel every value that is read before the products are known has: a member of Values, a name in `apply`, and a load
 * (early, when it has come from other blocks, or when its tag has come). */
typedef enum { DECLARED, NAMED, LOADED, LOADED_REMOTE, LOADED_FLAGGED } rcvi_map_loading;

/* ---- map_apply.c ---- */

/* Whether it is a step of a persistent kernel in which a thread has several vectors of a row: SPAN elements. */
bool rcvi_writer_is_by_rows(const rcvi_map_writer *w);
const char *rcvi_writer_width(const rcvi_map_writer *w); /* the name of the number of elements of a thread */
/* Fills read and kept. */
void rcvi_writer_find_uses(rcvi_map_writer *w);
/* The element of a view, counted from its address. */
void rcvi_writer_add_element(rcvi_map_writer *w, const rcvi_view *view, int index);
/* Declares NAME<number> and loads a view into it. */
void rcvi_writer_add_load(rcvi_map_writer *w, const rcvi_view *view, int index, const char *name, int number);

/* Stores of one view; `view` may be RCVI_NONE, then none. NAME<number> is what is stored. */
typedef void rcvi_writer_store(rcvi_map_writer *w, int view, const char *name, int number);
rcvi_writer_store rcvi_writer_add_store;
/* Declares the addresses of what is stored: in persistent kernels before the first store. */
rcvi_writer_store rcvi_writer_add_address;
/* Calls `add` for every store of the map. */
void rcvi_writer_add_all_stores(rcvi_map_writer *w, rcvi_writer_store *add);

/* Whether the product's sum starts from a view that is added here. */
bool rcvi_writer_is_started(const rcvi_map_writer *w, int product);
void rcvi_writer_add_product(rcvi_map_writer *w, int product);
/* Operand a of an instruction, of element i. */
void rcvi_writer_add_operand(void *self, const rcvi_instruction *instruction, int a);
/* Whether operand a is one number for the whole row. */
bool rcvi_writer_is_same(const rcvi_map_writer *w, const rcvi_instruction *instruction, int a);
/* The operation of an instruction on element i, and the end of the statement. */
void rcvi_writer_add_operation(rcvi_map_writer *w, const rcvi_instruction *instruction);
/* All instructions, then all stores. */
void rcvi_writer_add_body(rcvi_map_writer *w);

/* ---- map_rows.c ---- */

void rcvi_writer_add_row_instructions(rcvi_map_writer *w);

/* ---- map_step.c ---- */

/* Stores to other blocks; stores that these read, before they are signalled; all other stores. */
rcvi_writer_store rcvi_writer_add_link, rcvi_writer_add_exported_store, rcvi_writer_add_other_store;
/* Whether the view is loaded ahead. A view that all rows share is loaded when it is needed, from a near cache. */
bool rcvi_writer_is_fetched(const rcvi_view *view);
/* A value of a step by rows. */
void rcvi_writer_add_row_value(rcvi_map_writer *w, const rcvi_view *view, int index, int number, rcvi_map_loading how);

#endif
