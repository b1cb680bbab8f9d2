/* The file that keeps what was read of a text, as it lies on the disk. */
#ifndef RCVI_DATA_STORE_FILE_H
#define RCVI_DATA_STORE_FILE_H

#include "data/internal.h"

enum { RCVI_TOKEN_CACHE_ALIGNMENT = 64 };

typedef struct {
    int64_t offset, bytes;
    uint64_t hash;
} rcvi_section;

typedef struct {
    uint64_t signature;
    uint64_t text_hash, names_hash;
    int64_t text_bytes, level, kind;
    rcvi_totals totals;
    rcvi_section sections[RCVI_SECTIONS];
    int64_t bytes; /* of the whole file */
    uint64_t hash; /* of all above */
} rcvi_token_cache_header;

/* Whether the sections hold what the header and the reading say: their sums, and every word, class, token, number, label and span. Names
 * that the file has and the reading lacks are left in the import, of a good file. */
rcv_status rcvi_token_cache_check(rcvi_import *import, int file, const rcvi_token_cache_header *h, bool *good);

#endif
