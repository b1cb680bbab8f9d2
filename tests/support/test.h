/* What the tests share: checks that print the library's own sentence, and an allocator that counts and can fail. */
#ifndef RECURVE_TEST_H
#define RECURVE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "recurve.h"

/* The call must return RCV_OK. */
#define check_ok(call)                                                                                                 \
    do {                                                                                                               \
        rcv_status check_status_ = (call);                                                                             \
        if (check_status_ != RCV_OK) fail_msg("%s gave %s: %s", #call, rcv_status_name(check_status_), rcv_message()); \
    } while (0)

/* The call must return this status, with a message that contains the fragment. */
#define check_fails(call, expected, fragment)                                                                          \
    do {                                                                                                               \
        rcv_status check_status_ = (call);                                                                             \
        if (check_status_ != (expected))                                                                               \
            fail_msg("%s gave %s, not %s: %s", #call, rcv_status_name(check_status_), rcv_status_name(expected),       \
                     check_status_ == RCV_OK ? "" : rcv_message());                                                    \
        if (!strstr(rcv_message(), (fragment)))                                                                        \
            fail_msg("%s said \"%s\", which has no \"%s\"", #call, rcv_message(), (fragment));                         \
    } while (0)

/* An allocator that counts live blocks and fails the nth allocation (1 is the next one; 0 never). `failed` counts the
 * failures that were really injected, so that a test can prove that they fired. */
typedef struct test_allocator {
    rcv_allocator allocator;
    _Atomic size_t live; /* threads of the library allocate, too */
    _Atomic size_t calls;
    _Atomic size_t fail_at;
    _Atomic size_t failed;
    bool (*fails)(struct test_allocator *self); /* NULL, or asked at every allocation (memory_faults.h) */
    size_t points, forked;                      /* of memory_faults.h: how often it was asked, and its children */
    bool
        sparse; /* of memory_faults.h: so many allocations that a part of the sweep is still too long under the sanitizers */
    bool in_child;
} test_allocator;

enum { TEST_FILL = 0xff }; /* every byte of new memory: not a number, in every type */

/* A block's size before it, and bytes behind it that must not change; under the address sanitizer its own are there. */
#ifdef __SANITIZE_ADDRESS__
enum { TEST_HEADER = 16, TEST_GUARD = 0, TEST_GUARD_BYTE = 0xa5 };
#else
enum { TEST_HEADER = 16, TEST_GUARD = 64, TEST_GUARD_BYTE = 0xa5 };
#endif

static inline void *test_allocate(void *user, size_t bytes) {
    test_allocator *self = user;
    self->calls++;
    if ((self->fail_at != 0 && --self->fail_at == 0) || (self->fails && self->fails(self))) {
        self->failed++;
        return NULL;
    }
    char *memory = bytes < SIZE_MAX - TEST_HEADER - TEST_GUARD ? malloc(TEST_HEADER + bytes + TEST_GUARD) : NULL;
    if (!memory) return NULL;
    self->live++;
    memcpy(memory, &bytes, sizeof bytes);
    memset(memory + TEST_HEADER, TEST_FILL, bytes);
    memset(memory + TEST_HEADER + bytes, TEST_GUARD_BYTE, TEST_GUARD);
    return memory + TEST_HEADER;
}

static inline void test_release(void *user, void *memory) {
    test_allocator *self = user;
    assert_non_null(memory);
    assert_true(self->live > 0);
    self->live--;
    size_t bytes = 0;
    const unsigned char *block = memory;
    memcpy(&bytes, block - TEST_HEADER, sizeof bytes);
    for (const unsigned char *behind = block + bytes; behind < block + bytes + TEST_GUARD; behind++) {
        if (*behind != TEST_GUARD_BYTE) fail_msg("something was written behind a block of %zu bytes", bytes);
    }
#ifndef __SANITIZE_ADDRESS__
    /* free() would write to memory that the child shares, and the system would copy it. `live` counts a block that is released twice. */
    if (self->in_child) return;
#endif
    free((char *)memory - TEST_HEADER);
}

static inline void test_allocator_init(test_allocator *self) {
    memset(self, 0, sizeof *self);
    self->allocator.allocate = test_allocate;
    self->allocator.release = test_release;
    self->allocator.user = self;
}

/* A context on the counting allocator. */
static inline rcv_context *test_context(test_allocator *self) {
    test_allocator_init(self);
    rcv_context_options options = RCV_INIT(rcv_context_options, .allocator = &self->allocator);
    rcv_context *context = NULL;
    check_ok(rcv_context_new(&options, &context));
    return context;
}

/* Frees the context and checks that nothing else is left. */
static inline void test_context_end(test_allocator *self, rcv_context *context) {
    rcv_context_free(context);
    assert_int_equal(self->live, 0);
}

#endif
