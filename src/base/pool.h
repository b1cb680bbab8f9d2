/* A pool (arena): memory that is freed all at once, for the trees, names and tables of one object. */
#ifndef RCVI_POOL_H
#define RCVI_POOL_H

#include "base/base.h"

typedef struct rcvi_pool_chunk rcvi_pool_chunk;

typedef struct {
    rcv_context *context;
    rcvi_pool_chunk *chunks;
    bool failed; /* an allocation failed; stays true, so that a caller may check once after several allocations */
} rcvi_pool;

void rcvi_pool_init(rcvi_pool *pool, rcv_context *context);
void rcvi_pool_free(rcvi_pool *pool);
void *rcvi_pool_new(rcvi_pool *pool, size_t count, size_t size); /* zeroed; NULL on failure */
char *rcvi_pool_text(rcvi_pool *pool, const char *text, size_t length);
char *rcvi_pool_format(rcvi_pool *pool, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
