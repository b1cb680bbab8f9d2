/* Maps as tables for the interpreter, where no source is compiled. */
#ifndef RCVI_CUDA_MAP_TABLE_H
#define RCVI_CUDA_MAP_TABLE_H

#include "device/cuda/codegen/source.h"
#include "device/cuda/kernels/interpret.h"

/* What a map without products is for the interpreter; of `shape`, tile shapes, members and row_threads are not read. */
typedef struct {
    rcvi_interpreted head; /* its `table` is NULL */
    bool has_sums;
    void *table; /* [bytes] in the host's memory, for rcvi_free */
    size_t bytes;
} rcvi_map_table;

rcv_status rcvi_map_table_new(rcv_context *context, const rcvi_map_shape *shape, rcvi_map_table *table);
/* Whether all that a kernel reads of both is the same. */
bool rcvi_map_tables_equal(const rcvi_map_table *a, const rcvi_map_table *b);

/* The launch of a table for a map of so many columns: threads of a block, threads of these along a row (all, with sums), and bytes of shared
 * memory. A table with sums has as many threads for every number of rows, since they fix the order of sums. `blocks`: that are
 * wanted, if blocks of a warp allow it. */
typedef struct {
    int threads, lanes, shared;
} rcvi_interpret_launch;
rcvi_interpret_launch rcvi_map_table_launch(const rcvi_map_table *table, int64_t columns, int64_t rows, int64_t blocks);

#endif
