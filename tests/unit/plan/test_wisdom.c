/* Wisdom files: what is saved is loaded again; what is damaged is refused whole, and nothing in memory changes. */
#include "plan/wisdom.h"
#include "probe.h"
#include "scratch.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SMALL = 3 };

static const char *const keys[SMALL] = {"cell=gru:0123456789abcdef input=3 threads=1",
                                        "cell=lstm:00000000000000ff input=512 hidden=512 threads=2",
                                        "cell=lstm:00000000000000ff input=512 hidden=513 threads=2"};
static const char *const plans[SMALL] = {"naive", "combine(steps=all)+fuse+pack+threads(2,split=rows)",
                                         "fuse+pack+wavefront+threads(2)"};
static const double seconds[SMALL] = {1.5e-06, 0.3333333333333333, 2};

static rcvi_lesson lesson_of(const char *plan, double time, bool exhaustive) {
    rcvi_lesson lesson = {.seconds = time, .exhaustive = exhaustive};
    check_ok(rcvi_rungs_read(plan, &lesson.rungs));
    return lesson;
}

static void learn(rcv_context *context, const char *key, const char *plan, double time, bool exhaustive) {
    rcvi_lesson lesson = lesson_of(plan, time, exhaustive);
    check_ok(rcvi_wisdom_remember(context, key, &lesson));
}

static void check_known(rcv_context *context, const char *key, const char *plan, double time, bool exhaustive) {
    rcvi_lesson lesson;
    assert_true(rcvi_wisdom_find(context, key, false, &lesson));
    assert_true(lesson.seconds == time);
    assert_int_equal(lesson.exhaustive, exhaustive);
    assert_int_equal(rcvi_wisdom_find(context, key, true, &lesson), exhaustive);
    rcvi_text text;
    rcvi_text_init(&text, context);
    rcvi_rungs_print(&lesson.rungs, &text);
    assert_string_equal(text.bytes, plan);
    rcvi_text_drop(&text);
}

static void learn_small(rcv_context *context) {
    for (int i = SMALL - 1; i >= 0; i--) learn(context, keys[i], plans[i], seconds[i], i == 1);
}

static void check_small(rcv_context *context) {
    assert_int_equal(rcv_wisdom_count(context), SMALL);
    for (int i = 0; i < SMALL; i++) check_known(context, keys[i], plans[i], seconds[i], i == 1);
}

static char *read_whole(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *bytes = malloc(1 << 16);
    assert_non_null(bytes);
    *length = fread(bytes, 1, 1 << 16, file);
    fclose(file);
    return bytes;
}

static void write_whole(const char *path, const char *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

/* The bytes with the checksum that belongs to them. */
static void write_signed(const char *path, const char *body, size_t length) {
    char *all = malloc(length + 64);
    assert_non_null(all);
    memcpy(all, body, length);
    int more = snprintf(all + length, 64, "checksum %016llx\n", (unsigned long long)rcvi_hash_bytes(body, length));
    write_whole(path, all, length + (size_t)more);
    free(all);
}

/* ---- the table ---- */

static void test_table(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcvi_lesson lesson;
    assert_int_equal(rcv_wisdom_count(context), 0);
    assert_false(rcvi_wisdom_find(context, "cell=a", false, &lesson));
    random_source source = {7};
    char name[40];
    for (int i = 0; i < 500; i++) { /* about 200 different ones, in any order */
        snprintf(name, sizeof name, "cell=%d", random_below(&source, 200));
        learn(context, name, "fuse", 1 + i, false);
        check_known(context, name, "fuse", 1 + i, false);
    }
    size_t known = 0;
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "cell=%d", i);
        known += rcvi_wisdom_find(context, name, false, &lesson);
    }
    assert_true(known > 150);
    assert_int_equal(rcv_wisdom_count(context), known);
    assert_false(rcvi_wisdom_find(context, "cell=", false, &lesson));
    assert_false(rcvi_wisdom_find(context, "cell=1999", false, &lesson));
    test_context_end(&allocator, context);
}

/* What was learnt with more effort is kept. */
static void test_effort(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    learn(context, "cell=a", "naive", 3, false);
    learn(context, "cell=a", "fuse", 2, false);
    check_known(context, "cell=a", "fuse", 2, false);
    learn(context, "cell=a", "pack", 1, true);
    check_known(context, "cell=a", "pack", 1, true);
    learn(context, "cell=a", "naive", 9, false);
    check_known(context, "cell=a", "pack", 1, true);
    learn(context, "cell=a", "blas", 4, true);
    check_known(context, "cell=a", "blas", 4, true);
    test_context_end(&allocator, context);
}

/* ---- files ---- */

static void test_round_trip(void **state) {
    (void)state;
    test_allocator first, second;
    rcv_context *from = test_context(&first), *to = test_context(&second);
    char path[256], again[256];
    snprintf(path, sizeof path, "%s", path_in("wisdom"));
    snprintf(again, sizeof again, "%s", path_in("again"));
    check_ok(rcv_wisdom_save(from, path)); /* nothing learnt: a file all the same */
    check_ok(rcv_wisdom_load(to, path));
    assert_int_equal(rcv_wisdom_count(to), 0);
    learn_small(from);
    check_ok(rcv_wisdom_save(from, path));
    check_ok(rcv_wisdom_load(to, path));
    check_small(to);
    check_ok(rcv_wisdom_load(to, path)); /* twice is once */
    check_small(to);
    check_ok(rcv_wisdom_save(to, again));
    size_t length, length_again;
    char *bytes = read_whole(path, &length), *bytes_again = read_whole(again, &length_again);
    assert_int_equal(length, length_again);
    assert_memory_equal(bytes, bytes_again, length);
    free(bytes);
    free(bytes_again);

    /* Two files are put together; where both know a problem, the one loaded last says, unless it made less effort. */
    learn(from, keys[0], "fuse", 5, false);
    learn(from, "cell=other", "pack", 6, false);
    check_ok(rcv_wisdom_save(from, path));
    learn(to, keys[2], "naive", 7, true);
    learn(to, "cell=new", "blas", 8, false);
    check_ok(rcv_wisdom_load(to, path));
    assert_int_equal(rcv_wisdom_count(to), SMALL + 2);
    check_known(to, keys[0], "fuse", 5, false);
    check_known(to, keys[1], plans[1], seconds[1], true);
    check_known(to, keys[2], "naive", 7, true);
    check_known(to, "cell=other", "pack", 6, false);
    check_known(to, "cell=new", "blas", 8, false);
    unlink(path);
    unlink(again);
    test_context_end(&first, from);
    test_context_end(&second, to);
}

static void test_no_file(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    check_fails(rcv_wisdom_load(context, path_in("absent")), RCV_IO, "cannot open");
    check_fails(rcv_wisdom_load(context, scratch()), RCV_IO, scratch());
    check_fails(rcv_wisdom_save(context, scratch()), RCV_IO, "directory");
    check_fails(rcv_wisdom_save(context, ""), RCV_IO, "empty path");
    check_fails(rcv_wisdom_load(NULL, "x"), RCV_INVALID, "context");
    check_fails(rcv_wisdom_load(context, NULL), RCV_INVALID, "path");
    check_fails(rcv_wisdom_save(NULL, "x"), RCV_INVALID, "context");
    check_fails(rcv_wisdom_save(context, NULL), RCV_INVALID, "path");
    assert_int_equal(rcv_wisdom_count(NULL), 0);
    test_context_end(&allocator, context);
}

/* Reads a copy of exactly this size, so that a read past its end is detected. */
static void check_refused(rcv_context *context, const char *bytes, size_t length) {
    char *copy = malloc(length + !length);
    assert_non_null(copy);
    memcpy(copy, bytes, length);
    check_fails(rcvi_wisdom_read(context, copy, length, "damaged"), RCV_FORMAT, "damaged");
    free(copy);
}

/* Every truncation, every wrong byte, every byte too many: refused, and the wisdom in memory stays as it was. */
static void test_damage(void **state) {
    (void)state;
    rcv_context *context = NULL;
    check_ok(rcv_context_new(NULL, &context));
    char path[256];
    snprintf(path, sizeof path, "%s", path_in("damaged"));
    learn_small(context);
    check_ok(rcv_wisdom_save(context, path));
    size_t length;
    char *bytes = read_whole(path, &length), *changed = malloc(length + 1);
    assert_non_null(changed);
    for (size_t cut = 0; cut < length; cut++) check_refused(context, bytes, cut);
    for (size_t at = 0; at < length; at++) {
        for (int byte = 0; byte < 256; byte++) {
            if ((char)byte == bytes[at]) continue;
            memcpy(changed, bytes, length);
            changed[at] = (char)byte;
            check_refused(context, changed, length);
        }
    }
    for (size_t at = 0; at <= length; at++) {
        memcpy(changed, bytes, at);
        changed[at] = "\n 0\0"[at % 4];
        memcpy(changed + at + 1, bytes + at, length - at);
        check_refused(context, changed, length + 1);
    }
    check_small(context);
    for (size_t cut = 0; cut < length; cut += 37) {
        write_whole(path, bytes, cut);
        check_fails(rcv_wisdom_load(context, path), RCV_FORMAT, path);
    }
    check_small(context);
    check_ok(rcvi_wisdom_read(context, bytes, length, "whole"));
    check_small(context);
    unlink(path);
    free(bytes);
    free(changed);
    rcv_context_free(context);
}

/* Files with the right signature and checksum whose content is wrong. */
static void test_hostile(void **state) {
    (void)state;
#define HEAD "recurve-wisdom 1\n"
#define GOOD "cell=a : naive : 1 measured\n"
    static const struct {
        const char *body, *fragment;
    } files[] = {
        {"", "first line"},
        {"\n", "first line"},
        {"recurve-wisdom 2\n" GOOD, "recurve-wisdom 1"},
        {"fftw-3.3.8 fftw_wisdom #x3c273403\n", "first line"},
        {HEAD "\n", "line 2"},
        {HEAD GOOD "\n", "line 3"},
        {HEAD "cell=a\n", "line 2"},
        {HEAD "cell=a : naive\n", "line 2"},
        {HEAD "cell=a : naive : 1\n", "line 2"},
        {HEAD "sell=a : naive : 1 measured\n", "line 2"},
        {HEAD " : naive : 1 measured\n", "line 2"},
        {HEAD "cell=a : naive : 1 measured \n", "effort"},
        {HEAD "cell=a : naive : 1 guessed\n", "effort"},
        {HEAD "cell=a : naive : 0 measured\n", "seconds"},
        {HEAD "cell=a : naive : -1 measured\n", "seconds"},
        {HEAD "cell=a : naive : nan measured\n", "seconds"},
        {HEAD "cell=a : naive : inf measured\n", "seconds"},
        {HEAD "cell=a : naive : 1e999 measured\n", "seconds"},
        {HEAD "cell=a : naive : 0x10 measured\n", "seconds"},
        {HEAD "cell=a : naive : 1,5 measured\n", "seconds"},
        {HEAD "cell=a : naive :  1 measured\n", "seconds"},
        {HEAD "cell=a : fuze : 1 measured\n", "did you mean 'fuse'"},
        {HEAD "cell=a : threads(5000)+fuse : 1 measured\n", "1 to 1024"},
        {HEAD "cell=a : pack+fuse : 1 measured\n", "printed"},
        {HEAD "cell=a : naive : 1 measured : 2\n", "line 2"},
        {HEAD GOOD GOOD, "two lines"},
        {HEAD GOOD "cell=b : naive : 1 measured\ncell=a : fuse : 2 measured\n", "two lines"},
        {HEAD GOOD "checksum 0000000000000000\n", "line 3"},
    };
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    char path[256];
    snprintf(path, sizeof path, "%s", path_in("hostile"));
    learn_small(context);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_signed(path, files[i].body, strlen(files[i].body));
        check_fails(rcv_wisdom_load(context, path), RCV_FORMAT, files[i].fragment);
        assert_true(strlen(rcv_message()) < 600);
        check_small(context);
    }
    static const char nul[] = HEAD "cell=a\0b : naive : 1 measured\n";
    write_signed(path, nul, sizeof nul - 1);
    check_fails(rcv_wisdom_load(context, path), RCV_FORMAT, "not text");
    write_signed(path, HEAD GOOD, strlen(HEAD GOOD));
    check_ok(rcv_wisdom_load(context, path));
    assert_int_equal(rcv_wisdom_count(context), SMALL + 1);
    unlink(path);
    test_context_end(&allocator, context);
}

/* A line of a megabyte; a file past the limit; a file that claims to be long and is not there. */
static void test_huge(void **state) {
    (void)state;
    rcv_context *context = NULL;
    check_ok(rcv_context_new(NULL, &context));
    char path[256];
    snprintf(path, sizeof path, "%s", path_in("huge"));
    enum { LINE = 1 << 20 };
    char *body = malloc(LINE + 64);
    assert_non_null(body);
    int length = snprintf(body, 64, HEAD "cell=");
    memset(body + length, 'x', LINE);
    length += LINE;
    length += snprintf(body + length, 32, " : naive : 1 measured\n");
    write_signed(path, body, (size_t)length);
    check_fails(rcv_wisdom_load(context, path), RCV_FORMAT, "too long");
    free(body);
    int file = open(path, O_WRONLY);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, (off_t)1 << 40), 0);
    close(file);
    rcv_status status = rcv_wisdom_load(context, path); /* a terabyte of zeros that takes no space */
    assert_true(status == RCV_FORMAT || status == RCV_NO_MEMORY);
    assert_int_equal(rcv_wisdom_count(context), 0);
    unlink(path);
    rcv_context_free(context);
}

/* Every allocation fails once while a file is loaded and saved: nothing is lost or leaked. */
static void test_allocations(void **state) {
    (void)state;
    char path[256], out[256];
    snprintf(path, sizeof path, "%s", path_in("wisdom"));
    snprintf(out, sizeof out, "%s", path_in("out"));
    rcv_context *source = NULL;
    check_ok(rcv_context_new(NULL, &source));
    learn_small(source);
    check_ok(rcv_wisdom_save(source, path));
    rcv_context_free(source);
    size_t fired = 0;
    for (size_t nth = 1;; nth++) {
        test_allocator allocator;
        rcv_context *context = test_context(&allocator);
        learn(context, "cell=own", "fuse", 1, false);
        allocator.fail_at = nth;
        rcv_status status = rcv_wisdom_load(context, path);
        bool in_load = allocator.failed > 0;
        if (in_load) assert_int_equal(rcv_wisdom_count(context), 1);
        if (!status) status = rcv_wisdom_save(context, out);
        allocator.fail_at = 0;
        if (status) assert_int_equal(status, RCV_NO_MEMORY);
        assert_int_equal(status != RCV_OK, allocator.failed);
        check_known(context, "cell=own", "fuse", 1, false);
        fired += allocator.failed;
        bool last = allocator.failed == 0;
        test_context_end(&allocator, context);
        if (last) break;
    }
    assert_true(fired > 8);
    unlink(path);
    unlink(out);
}

/* ---- threads ---- */

typedef struct {
    rcv_context *context;
    int number;
    bool failed;
} worker;

static void *work(void *user) {
    worker *w = user;
    char key[64];
    for (int i = 0; i < 300 && !w->failed; i++) {
        rcvi_lesson lesson = {.rungs = {.fuse = true, .threads = 1}, .seconds = w->number + 1, .exhaustive = false};
        snprintf(key, sizeof key, "cell=%d.%d", w->number, i);
        w->failed |= rcvi_wisdom_remember(w->context, key, &lesson) != RCV_OK;
        w->failed |= !rcvi_wisdom_find(w->context, key, false, &lesson) || lesson.seconds != w->number + 1;
        snprintf(key, sizeof key, "cell=shared.%d", i);
        w->failed |= rcvi_wisdom_remember(w->context, key, &lesson) != RCV_OK;
        rcv_wisdom_count(w->context);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    enum { THREADS = 4 };
    rcv_context *context = NULL;
    check_ok(rcv_context_new(NULL, &context));
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.context = context, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_false(workers[i].failed);
    }
    assert_int_equal(rcv_wisdom_count(context), (THREADS + 1) * 300);
    rcv_context_free(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),   cmocka_unit_test(test_effort),      cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_no_file), cmocka_unit_test(test_damage),      cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_huge),    cmocka_unit_test(test_allocations), cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
