/* The text of the public headers, for tests that compare the headers with the code. */
#ifndef RECURVE_PUBLIC_HEADERS_H
#define RECURVE_PUBLIC_HEADERS_H

#include "test.h"

static const char *const public_headers[] = {"recurve.h", "recurve_bench.h", "recurve_distributed.h"};
enum { PUBLIC_HEADERS = sizeof public_headers / sizeof *public_headers };

/* For free(). */
static inline char *read_public_header(const char *name) {
    enum { MOST = 1 << 20 };
    char path[500], *text = calloc(1, MOST);
    snprintf(path, sizeof path, "%s/include/%s", RCV_SOURCE_DIR, name);
    FILE *file = fopen(path, "rb");
    assert_true(text && file);
    size_t length = fread(text, 1, MOST - 1, file);
    fclose(file);
    assert_true(length > 1000 && length < MOST - 1);
    return text;
}

#endif
