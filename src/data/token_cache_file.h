/* Layout of the token cache file. */
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

/* Checks all sections against the header and the import: the hashes, and every word, class, token, number, label and span. If the file is good, its
 * vocabulary and classes are moved into the import, unless they were given. */
rcv_status rcvi_token_cache_check(rcvi_import *import, int file, const rcvi_token_cache_header *h, bool *good);

#endif
