/* Which test programs search for leaks when they end, where that search is slow.
 *
 * On 64-bit ARM, LeakSanitizer walks the whole address space that its allocator may use: 4 seconds a process, whatever the process did.
 * There a part of the programs does it (sample.h), chosen by their names, so that successive commits search all of them. On other machines
 * all programs do. Memory that the library allocates through a context is
 * counted by test_allocator (test.h) in every run of every test. */
#define _GNU_SOURCE
#include "sample.h"

#include <errno.h>

#if defined __SANITIZE_ADDRESS__ && defined __aarch64__
/* Asked by LeakSanitizer at the end of the process. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);

int __lsan_is_turned_off(void) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *c = program_invocation_short_name; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    return !sample_takes((size_t)(hash >> 16 & 0xffff));
}
#endif
