/* The pages of a block are shared out to a team's members: all of them, each to one, and nothing in them changes. */
#define _DEFAULT_SOURCE
#include "device/cpu/engine/pages.h"
#include "test.h"

#include <sys/mman.h>

enum { PAGE_BYTES = 4096, HUGE_BYTES = 2 << 20, PAGES = 5 * HUGE_BYTES / PAGE_BYTES };

static int count_present(char *memory, bool present[PAGES]) {
    unsigned char pages[PAGES];
    int count = 0;
    assert_int_equal(mincore(memory, (size_t)PAGES * PAGE_BYTES, pages), 0);
    for (int i = 0; i < PAGES; i++) count += present[i] = pages[i] & 1;
    return count;
}

/* A block that begins and ends anywhere. */
static void check(size_t offset, size_t bytes, int members) {
    size_t all = (size_t)PAGES * PAGE_BYTES;
    char *memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool present[PAGES];
    int before = 0;
    assert_true(memory != MAP_FAILED);
#ifdef MADV_NOHUGEPAGE
    madvise(memory, all, MADV_NOHUGEPAGE);
#endif
    for (int m = members; m-- > 0;) {
        size_t huge = 0;
        rcvi_touch_pages(memory + offset, bytes, m, members);
        int now = count_present(memory, present);
        for (size_t i = 0; i < 6; i++) huge += offset + bytes > i * HUGE_BYTES;
        assert_true(now - before <= (int)((huge / (size_t)members + 2) * (HUGE_BYTES / PAGE_BYTES)));
        before = now;
    }
    size_t first = offset / PAGE_BYTES, end = (offset + bytes + PAGE_BYTES - 1) / PAGE_BYTES;
    for (size_t i = 0; i < PAGES; i++) assert_int_equal(present[i], i >= first && i < end);
    munmap(memory, all);
}

static void test_shares(void **state) {
    (void)state;
    static const size_t offsets[] = {0, 64, PAGE_BYTES, HUGE_BYTES - 64, HUGE_BYTES + 3 * PAGE_BYTES + 8};
    static const size_t bytes[] = {1, 100, PAGE_BYTES, HUGE_BYTES, 2 * HUGE_BYTES + 5, 3 * HUGE_BYTES};
    for (size_t o = 0; o < sizeof offsets / sizeof *offsets; o++) {
        for (size_t b = 0; b < sizeof bytes / sizeof *bytes; b++) {
            for (int members = 1; members < 9; members += members) check(offsets[o], bytes[b], members);
        }
    }
}

static void test_contents(void **state) {
    (void)state;
    enum { BYTES = 3 * HUGE_BYTES };
    unsigned char *memory = malloc(BYTES);
    assert_non_null(memory);
    for (size_t i = 0; i < BYTES; i++) memory[i] = (unsigned char)(i * 7 + i / 4096);
    for (int m = 0; m < 3; m++) rcvi_touch_pages(memory, BYTES, m, 3);
    for (size_t i = 0; i < BYTES; i++) assert_true(memory[i] == (unsigned char)(i * 7 + i / 4096));
    free(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shares), cmocka_unit_test(test_contents)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
