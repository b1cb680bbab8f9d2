/* Memory that is used for the first time: see pages.h. */
#include "device/cpu/engine/pages.h"

#include <stdatomic.h>
#include <stdint.h>

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

void rcvi_touch_pages(void *block, size_t bytes, int member, int members) {
    uintptr_t begin = (uintptr_t)block, end = begin + bytes, first = begin / HUGE_PAGE;
    uintptr_t count = (end + HUGE_PAGE - 1) / HUGE_PAGE - first;
    uintptr_t from = (first + count * (uintptr_t)member / (uintptr_t)members) * HUGE_PAGE;
    uintptr_t to = (first + count * (uintptr_t)(member + 1) / (uintptr_t)members) * HUGE_PAGE;
    static volatile const unsigned char nothing = 0; /* a compiler that knows the number reads instead of writing */
    const unsigned char none = nothing;
    if (from < begin) from = begin;
    if (to > end) to = end;
    for (uintptr_t at = from; at < to; at = at / PAGE * PAGE + PAGE)
        atomic_fetch_or_explicit((volatile atomic_uchar *)at, none, memory_order_relaxed);
}
