/* src/base: messages, memory, text, names, arithmetic, files, random numbers. */
#define _XOPEN_SOURCE 700

#include "sample.h"
#include "scratch.h"
#include "test.h"

#include "base/base.h"
#include "base/random.h"

#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

static void messages(void **state) {
    (void)state;
    assert_int_equal(rcvi_fail(RCV_FORMAT, "number %d", 7), RCV_FORMAT);
    assert_string_equal(rcv_message(), "number 7");
    /* A message may quote the one before. */
    rcvi_fail(RCV_IO, "file: %s", rcv_message());
    assert_string_equal(rcv_message(), "file: number 7");
    char *longest = malloc(100001);
    memset(longest, 'a', 100000);
    longest[100000] = '\0';
    rcvi_fail(RCV_IO, "%s", longest);
    assert_true(strlen(rcv_message()) > 100 && strlen(rcv_message()) < 100000);
    free(longest);
    assert_string_equal(rcv_status_name(RCV_STOPPED), "stopped");
    assert_string_equal(rcv_status_name((rcv_status)99), "unknown status");
    assert_string_equal(rcv_dtype_name(RCV_BFLOAT16), "bfloat16");
    rcv_dtype found = RCV_BOOL;
    for (rcv_dtype d = RCV_FLOAT32; d <= RCV_TFLOAT32; d++)
        assert_true(rcv_dtype_find(rcv_dtype_name(d), &found) && found == d);
    assert_false(rcv_dtype_find("float", &found) || rcv_dtype_find("unknown dtype", &found) ||
                 rcv_dtype_find(NULL, &found));
    assert_true(found == RCV_TFLOAT32);
    assert_int_equal(rcv_dtype_bytes(RCV_INT64), 8);
    assert_int_equal(rcv_dtype_bytes((rcv_dtype)99), 0);
    assert_true(strlen(rcv_version()) >= 5);
}

static void contexts(void **state) {
    (void)state;
    rcv_context *context = (rcv_context *)&context;
    rcv_allocator half = {.allocate = test_allocate};
    rcv_context_options options = RCV_INIT(rcv_context_options, .allocator = &half);
    check_fails(rcv_context_new(&options, &context), RCV_INVALID, "allocate and release");
    assert_null(context);
    check_ok(rcv_context_new(NULL, &context));
    rcv_context_free(context);
    rcv_context_free(NULL);
    test_allocator counting;
    test_allocator_init(&counting);
    counting.fail_at = 1;
    options.allocator = &counting.allocator;
    check_fails(rcv_context_new(&options, &context), RCV_NO_MEMORY, "no memory");
    assert_int_equal(counting.failed, 1);
}

static void memory(void **state) {
    (void)state;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    assert_null(rcvi_new(context, SIZE_MAX / 2, 4));
    assert_non_null(strstr(rcv_message(), "no memory"));
    void *nothing = rcvi_new(context, 0, 8);
    assert_non_null(nothing);
    rcvi_free(context, nothing);
    rcvi_free(context, NULL);
    int *array = NULL;
    size_t capacity = 0;
    for (size_t i = 0; i < 1000; i++) {
        assert_true(rcvi_grow(context, &array, &capacity, i + 1, sizeof *array));
        assert_int_equal(array[i], 0);
        array[i] = (int)i;
    }
    for (int i = 0; i < 1000; i++) assert_int_equal(array[i], i);
    /* rcvi_grow() that fails changes nothing. */
    int *before = array;
    size_t capacity_before = capacity;
    counting.fail_at = 1;
    assert_false(rcvi_grow(context, &array, &capacity, capacity + 1, sizeof *array));
    assert_false(rcvi_grow(context, &array, &capacity, SIZE_MAX, sizeof *array));
    assert_int_equal(counting.failed, 1);
    assert_ptr_equal(array, before);
    assert_int_equal(capacity, capacity_before);
    rcvi_free(context, array);
    test_context_end(&counting, context);
}

static void texts(void **state) {
    (void)state;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    rcvi_text text;
    char *taken;
    rcvi_text_init(&text, context);
    check_ok(rcvi_text_take(&text, &taken));
    assert_string_equal(taken, "");
    rcv_text_free(context, taken);
    for (int i = 0; i < 100; i++) rcvi_text_add(&text, "%d,", i);
    rcvi_text_add_bytes(&text, "endless", 3);
    check_ok(rcvi_text_take(&text, &taken));
    assert_int_equal(strlen(taken), 10 * 2 + 90 * 3 + 3);
    assert_string_equal(taken + 287, "99,end");
    rcv_text_free(context, taken);
    /* An earlier failure is reported at the end. */
    counting.fail_at = 2;
    for (int i = 0; i < 100; i++) rcvi_text_add(&text, "%d,", i);
    check_fails(rcvi_text_take(&text, &taken), RCV_NO_MEMORY, "no memory");
    assert_null(taken);
    assert_int_equal(counting.failed, 1);
    test_context_end(&counting, context);
}

static void nearest(void **state) {
    (void)state;
    static const char *const names[] = {"sigmoid", "tanh", "relu", "h", "c"};
    assert_string_equal(rcvi_nearest_name("sigmiod", names, 5), "sigmoid");
    assert_string_equal(rcvi_nearest_name("tan", names, 5), "tanh");
    assert_string_equal(rcvi_nearest_name("Relu", names, 5), "relu");
    assert_null(rcvi_nearest_name("softplus", names, 5));
    assert_null(rcvi_nearest_name("z", names, 5));
    assert_null(rcvi_nearest_name("anything", names, 0));
}

static void arithmetic(void **state) {
    (void)state;
    int64_t out = 5;
    assert_true(rcvi_multiply(3037000499, 3037000499, &out));
    assert_int_equal(out, INT64_C(9223372030926249001));
    assert_false(rcvi_multiply(INT64_C(4611686018427387904), 2, &out));
    assert_false(rcvi_multiply(-1, 2, &out));
    assert_false(rcvi_multiply(2, -1, &out));
    assert_true(rcvi_multiply(INT64_MAX, 0, &out));
    assert_int_equal(out, 0);
    assert_true(rcvi_add(INT64_MAX, 0, &out));
    assert_false(rcvi_add(INT64_MAX, 1, &out));
    assert_false(rcvi_add(-1, 1, &out));
}

static void files(void **state) {
    (void)state;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    char *bytes, *big = malloc(300000);
    size_t length;
    for (int i = 0; i < 300000; i++) big[i] = (char)(i * 7);
    rcvi_bytes pieces[] = {{"head", 4}, {big, 300000}, {NULL, 0}};
    const char *path = path_in("file");
    int before = entries(scratch());
    check_ok(rcvi_write_file(context, path, pieces, 3));
    check_ok(rcvi_read_file(context, path, 1000000, &bytes, &length));
    assert_int_equal(length, 300004);
    assert_memory_equal(bytes, "head", 4);
    assert_memory_equal(bytes + 4, big, 300000);
    assert_int_equal(bytes[length], 0);
    rcvi_free(context, bytes);
    check_fails(rcvi_read_file(context, path, 300003, &bytes, &length), RCV_FORMAT, "300004 bytes");
    assert_null(bytes);
    check_ok(rcvi_read_file(context, path, 300004, &bytes, &length));
    rcvi_free(context, bytes);
    /* A shorter file replaces all of it. */
    check_ok(rcvi_write_file(context, path, pieces, 1));
    check_ok(rcvi_read_file(context, path, 100, &bytes, &length));
    assert_int_equal(length, 4);
    rcvi_free(context, bytes);
    assert_int_equal(entries(scratch()), before + 1);
    unlink(path);
    free(big);
    test_context_end(&counting, context);
}

static void links_and_devices(void **state) {
    (void)state;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    rcvi_bytes piece = {"text", 4};
    struct stat info;
    char target[512];
    snprintf(target, sizeof target, "%s", path_in("target"));
    const char *path = path_in("link");
    check_ok(rcvi_write_file(context, target, &piece, 0));
    assert_int_equal(chmod(target, 0640), 0);
    assert_int_equal(symlink("target", path), 0);
    check_ok(rcvi_write_file(context, path, &piece, 1));
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat(target, &info), 0);
    assert_int_equal(info.st_size, 4);
    assert_int_equal(info.st_mode & 0777, 0640);
    unlink(path);
    unlink(target);
    check_ok(rcvi_write_file(context, "/dev/null", &piece, 1));
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    test_context_end(&counting, context);
}

static void bad_files(void **state) {
    (void)state;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    rcvi_bytes piece = {"text", 4};
    char *bytes;
    size_t length;
    int before = entries(scratch());
    check_fails(rcvi_read_file(context, path_in("none"), 10, &bytes, &length), RCV_IO, "none: No such file");
    check_fails(rcvi_read_file(context, scratch(), 10, &bytes, &length), RCV_IO, "is a directory");
    check_fails(rcvi_write_file(context, scratch(), &piece, 1), RCV_IO, "is a directory");
    check_fails(rcvi_write_file(context, path_in("none/file"), &piece, 1), RCV_IO, "none/file: No such file");
    check_fails(rcvi_write_file(context, "", &piece, 1), RCV_IO, "empty path");
    check_fails(rcvi_write_file(context, "/proc/recurve-cannot-write-here", &piece, 1), RCV_IO, "cannot write /proc");
    check_fails(rcvi_write_file(context, "/dev/full", &piece, 1), RCV_IO, "cannot write /dev/full");
    assert_int_equal(entries(scratch()), before);
    test_context_end(&counting, context);
}

static void random_numbers(void **state) {
    (void)state;
    rcvi_twister twister;
    rcvi_twister_seed(&twister, 5489);
    assert_int_equal(rcvi_twister_next(&twister), 3499211612u);
    for (int i = 0; i < 9998; i++) rcvi_twister_next(&twister);
    /* The ten thousandth number that the C++ standard gives for mt19937. */
    assert_int_equal(rcvi_twister_next(&twister), 4123659995u);
    /* torch.manual_seed(SEED); torch.empty(n, dtype=...).uniform_(-1 / 7 ** 0.5, 1 / 7 ** 0.5) */
    const double bound = 0.3779644730092272;
    static const float floats[] = {-0x1.6c9a860000000p-2f, -0x1.2fc0000000000p-4f, -0x1.73cba00000000p-3f,
                                   -0x1.9cea9a0000000p-4f, -0x1.55e81e0000000p-2f, 0x1.36a06a0000000p-3f,
                                   -0x1.5af0d40000000p-2f, -0x1.8a999e0000000p-6f, 0x1.0d13a00000000p-3f,
                                   -0x1.04ebc00000000p-3f, 0x1.b738700000000p-3f,  0x1.8685f60000000p-5f};
    static const double doubles[] = {0x1.b7b80bc3f8d08p-4,  -0x1.73edd1759a968p-3, -0x1.aeead765f84b1p-4,
                                     -0x1.1e3378d954608p-3, -0x1.6a15809311aaap-3, 0x1.1007e5ab8d2c2p-2,
                                     0x1.eb0e7ed8e6374p-5,  0x1.54a9b98261ca5p-3};
    rcvi_twister_seed(&twister, 1234);
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        float value = rcvi_uniform_float(&twister, -bound, bound);
        assert_memory_equal(&value, &floats[i], sizeof value);
    }
    rcvi_twister_seed(&twister, UINT64_C(4294967301));
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
        double value = rcvi_uniform_double(&twister, -bound, bound);
        assert_memory_equal(&value, &doubles[i], sizeof value);
    }
}

static void hashed_numbers(void **state) {
    (void)state;
    int bins[10] = {0};
    double sum = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double value = rcvi_hash_uniform(3, i);
        assert_true(value >= 0 && value < 1);
        assert_true(value == rcvi_hash_uniform(3, i));
        bins[(int)(value * 10)]++;
        sum += value * rcvi_hash_uniform(4, i);
    }
    for (int i = 0; i < 10; i++) assert_in_range(bins[i], 9500, 10500);
    /* Two seeds are independent: the mean of the product is 1/4. */
    assert_true(sum > 24500 && sum < 25500);
}

/* Numbers have a point, also in a program whose locale has a comma (where one is installed). */
static void numbers(void **state) {
    (void)state;
    static const char *const locales[] = {"C", "de_DE.UTF-8", "fr_FR.UTF-8", "nl_NL.UTF-8"};
    static const double values[] = {0, 0.5, 1e-5, 0.1, 1.0 / 3, 123456789, 1e300, 5e-324};
    static const char *const wrong[] = {"", "x", "1,5", "1.5.2", "1e", "0.5x"};
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    for (size_t l = 0; l < sizeof locales / sizeof *locales; l++) {
        if (!setlocale(LC_NUMERIC, locales[l])) continue;
        double read;
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            rcvi_text text;
            char *digits = NULL;
            rcvi_text_init(&text, context);
            rcvi_text_add_number(&text, values[i]);
            check_ok(rcvi_text_take(&text, &digits));
            assert_null(strchr(digits, ','));
            assert_true(rcvi_read_number(digits, &read) && read == values[i]);
            rcvi_free(context, digits);
        }
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_false(rcvi_read_number(wrong[i], &read));
    }
    setlocale(LC_NUMERIC, "C");
    test_context_end(&counting, context);
}

static void *read_signals(void *blocked) {
    pthread_sigmask(SIG_SETMASK, NULL, blocked);
    return blocked;
}

/* A thread of the library handles no signal, and the thread that starts it handles those that it did before. */
static void threads(void **state) {
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM, SIGALRM, SIGUSR1};
    sigset_t before, blocked, after;
    pthread_t thread;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    sigemptyset(&blocked);
    assert_int_equal(rcvi_thread_start(&thread, read_signals, &blocked), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        assert_true(sigismember(&blocked, numbers[i]));
        assert_int_equal(sigismember(&after, numbers[i]), sigismember(&before, numbers[i]));
    }
}

/* tests/support/sample.h: N parts are the whole, each block of N has one of each, and an inner axis is not tied to a part. */
static void parts_of_sweeps(void **state) {
    (void)state;
    enum { CASES = 2520 };
    for (size_t parts = 1; parts <= 9; parts++) {
        size_t taken[CASES] = {0};
        for (size_t part = 0; part < parts; part++) {
            size_t in_block = 0;
            for (size_t i = 0; i < CASES; i++) {
                if (i % parts == 0) in_block = 0;
                if (!sample_part_takes((sample_part){part, parts}, i)) continue;
                taken[i]++;
                in_block++;
                assert_int_equal(in_block, 1);
            }
            for (size_t axis = 2; axis <= 8; axis++) { /* every value of an axis of this length occurs in every part */
                bool seen[8] = {0};
                for (size_t i = 0; i < CASES; i++)
                    if (sample_part_takes((sample_part){part, parts}, i)) seen[i % axis] = true;
                for (size_t value = 0; value < axis; value++) assert_true(seen[value]);
            }
        }
        for (size_t i = 0; i < CASES; i++) assert_int_equal(taken[i], 1);
    }
    sample_part part = sample_parse("2/5");
    assert_int_equal(part.part, 2);
    assert_int_equal(part.parts, 5);
    part = sample_parse(NULL);
    assert_int_equal(part.part, 0);
    assert_int_equal(part.parts, 1);
}

int main(void) {
    if (!scratch_begin()) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages),        cmocka_unit_test(contexts),          cmocka_unit_test(memory),
        cmocka_unit_test(texts),           cmocka_unit_test(nearest),           cmocka_unit_test(arithmetic),
        cmocka_unit_test(files),           cmocka_unit_test(links_and_devices), cmocka_unit_test(bad_files),
        cmocka_unit_test(random_numbers),  cmocka_unit_test(hashed_numbers),    cmocka_unit_test(numbers),
        cmocka_unit_test(parts_of_sweeps), cmocka_unit_test(threads),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return !scratch_end() || failed != 0;
}
