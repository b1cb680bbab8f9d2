/* Where libraries that are opened at run time are looked for: first those that are loaded, then the given folders, then the loader's. */
#define _GNU_SOURCE /* dlinfo */
#include "scratch.h"
#include "test.h"

#include "base/library.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const symbols[] = {"cos", "sin"};
static char reason[512];
static void *functions[2];

static bool open_one(const char *first, const char *second) {
    const char *names[] = {first, second, NULL};
    memset(functions, 0, sizeof functions);
    return rcvi_library_open(names, symbols, functions, 2, reason, sizeof reason) && functions[0] && functions[1];
}

/* A list of folders that ends in the scratch folder. */
static void set_folders(const char *before) {
    char list[1000];
    snprintf(list, sizeof list, "%s%s", before, scratch());
    check_ok(rcv_libraries_set_folders(list));
}

static void write_broken(const char *name) {
    FILE *file = fopen(path_in(name), "w");
    assert_non_null(file);
    fputs("no library", file);
    fclose(file);
}

static void test_folders(void **state) {
    (void)state;
    struct link_map *map = NULL;
    void *math = dlopen("libm.so.6", RTLD_NOW);
    if (!math || dlinfo(math, RTLD_DI_LINKMAP, &map) || !map) skip(); /* another C library */
    assert_int_equal(symlink(map->l_name, path_in("librecurve-test.so.1")), 0);
    assert_false(open_one("librecurve-test.so.1", NULL));
    assert_non_null(strstr(reason, "librecurve-test.so.1 was not found"));
    assert_true(rcvi_library_is_absent(reason));
    set_folders("/recurve-has-no-such-folder::");
    assert_true(open_one("librecurve-test.so.1", NULL));
    assert_true(open_one("librecurve-has-no-such.so.1", "librecurve-test.so.1"));
    check_ok(rcv_libraries_set_folders(NULL));
    assert_false(open_one("librecurve-test.so.1", NULL));
    assert_int_equal(unlink(path_in("librecurve-test.so.1")), 0);
}

/* A file that cannot be loaded is the reason, and does not keep the loader from finding another. */
static void test_broken(void **state) {
    (void)state;
    write_broken("librecurve-test.so.2");
    set_folders("");
    assert_false(open_one("librecurve-has-no-such.so.1", "librecurve-test.so.2"));
    assert_non_null(strstr(reason, "librecurve-test.so.2 cannot be loaded"));
    assert_false(rcvi_library_is_absent(reason));
    const char *const alone[] = {path_in("librecurve-test.so.2"), "librecurve-has-no-such.so.1", NULL};
    check_ok(rcv_libraries_set_folders(NULL));
    assert_false(rcvi_library_open(alone, symbols, functions, 2, reason, sizeof reason)); /* by the loader */
    assert_non_null(strstr(reason, "librecurve-test.so.2 cannot be loaded"));
    assert_false(rcvi_library_is_absent(reason));
    set_folders("");
    assert_true(open_one("librecurve-test.so.2", "libm.so.6"));
    assert_int_equal(unlink(path_in("librecurve-test.so.2")), 0);
    check_ok(rcv_libraries_set_folders(NULL));
}

/* One that is loaded comes before one of a folder, also where its name is later in the list. */
static void test_loaded(void **state) {
    (void)state;
    assert_non_null(dlopen("libm.so.6", RTLD_NOW));
    write_broken("libm.so.6");
    write_broken("librecurve-test.so.3");
    set_folders("");
    assert_true(open_one("libm.so.6", NULL));
    assert_true(open_one("librecurve-test.so.3", "libm.so.6"));
    assert_string_equal(reason, "");
    assert_int_equal(unlink(path_in("libm.so.6")), 0);
    assert_int_equal(unlink(path_in("librecurve-test.so.3")), 0);
    check_ok(rcv_libraries_set_folders(NULL));
}

static void test_symbols(void **state) {
    (void)state;
    const char *const names[] = {"librecurve-has-no-such.so.1", "libm.so.6", NULL};
    const char *const unknown[] = {"cos", "recurve_has_no_such"};
    assert_false(rcvi_library_open(names, unknown, functions, 2, reason, sizeof reason));
    assert_non_null(strstr(reason, "libm.so.6 has no recurve_has_no_such"));
    assert_true(!functions[0] && !functions[1]);
}

static void test_long_list(void **state) {
    (void)state;
    enum { LENGTH = 16384 };
    char *list = calloc(LENGTH + 1, 1);
    memset(list, ':', LENGTH);
    check_fails(rcv_libraries_set_folders(list), RCV_INVALID, "16384 characters, at most 16383");
    list[LENGTH - 1] = '\0';
    check_ok(rcv_libraries_set_folders(list));
    assert_false(open_one("librecurve-has-no-such.so.1", NULL));
    check_ok(rcv_libraries_set_folders(NULL));
    free(list);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_folders), cmocka_unit_test(test_broken),
                                       cmocka_unit_test(test_loaded), cmocka_unit_test(test_symbols),
                                       cmocka_unit_test(test_long_list)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
