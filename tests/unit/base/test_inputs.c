/* Escaping of untrusted text, limits of files, and trust of cache files. */
#define _XOPEN_SOURCE 700

#include "test.h"

#include "base/base.h"
#include "scratch.h"

#include <sys/stat.h>
#include <unistd.h>

static void check_escaped(const char *bytes, size_t length, const char *keep, const char *expected) {
    char out[256];
    assert_int_equal(rcv_escape(bytes, length, keep, out, sizeof out), strlen(expected));
    assert_string_equal(out, expected);
}

static void test_escape(void **unused) {
    (void)unused;
    static const struct {
        const char *bytes, *expected;
    } cases[] = {
        {"plain \xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x98\x80", "plain \xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x98\x80"},
        {"\x1b]0;title\x07", "\\x1b]0;title\\x07"},        /* ASCII */
        {"a\x7f\r\n\t\x01", "a\\x7f\\x0d\\x0a\\x09\\x01"}, /* the same */
        {"\xc2\x9b"
         "31m",
         "\\u{9b}31m"}, /* CSI of Latin-1, in UTF-8 */
        {"\x9b"
         "31m",
         "\\x9b31m"}, /* and as a byte */
        {"\xe2\x80\xae"
         "abc\xe2\x81\xa6",
         "\\u{202e}abc\\u{2066}"}, /* direction overrides */
        {"\xef\xbb\xbf\xe2\x80\x8f\xe2\x80\xa8", "\\u{feff}\\u{200f}\\u{2028}"},
        {"\xe2\x80\x8c\xe2\x80\x8d", "\xe2\x80\x8c\xe2\x80\x8d"}, /* joiners are not escaped */
        {"\xc3", "\\xc3"},                                        /* cut off */
        {"\xc0\x9b\xed\xa0\x80", "\\xc0\\x9b\\xed\\xa0\\x80"},    /* overlong, a surrogate */
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_escaped(cases[i].bytes, strlen(cases[i].bytes), NULL, cases[i].expected);
    check_escaped("a\0b", 3, "", "a\\x00b");
    check_escaped("a\nb\t\x1b", 5, "\n\t", "a\nb\t\\x1b");
    char small[6];
    assert_int_equal(rcv_escape("ab\x1b", 3, NULL, small, sizeof small), 6);
    assert_string_equal(small, "ab"); /* truncated only between characters */
    assert_int_equal(rcv_escape("\x1b", 1, NULL, NULL, 0), 4);
}

/* For all sequences of three bytes, the escaped text has no byte that controls a terminal. */
static void test_every_sequence(void **unused) {
    (void)unused;
    size_t seen = 0;
    for (unsigned first = 0; first < 256; first++) {
        for (unsigned rest = 0; rest < 65536; rest += rest % 256 < 0xa0 ? 1 : 7) {
            const char bytes[3] = {(char)first, (char)(rest >> 8), (char)rest};
            char out[64];
            const size_t length = rcv_escape(bytes, 3, NULL, out, sizeof out);
            for (size_t i = 0; i < length; i++) {
                const unsigned char byte = (unsigned char)out[i], next = (unsigned char)out[i + 1];
                if (byte < 0x20 || byte == 0x7f || (byte == 0xc2 && next < 0xa0))
                    fail_msg("%02x %04x gives %02x %02x", first, rest, byte, next);
                seen++;
            }
        }
    }
    assert_true(seen > 10000000);
}

static void test_messages(void **unused) {
    (void)unused;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    rcv_tensors *tensors;
    check_fails(rcv_tensors_load(context, "no\x1b[31m\xc2\x9bsuch\n", &tensors), RCV_IO,
                "cannot open no\\x1b[31m\\u{9b}such\\x0a: No such file");
    rcv_cell *cell;
    check_fails(rcv_cell_parse(context, "cell a(x) {\n \x1b[31m\n}", 21, "b\xc2\x9b.cell", &cell), RCV_SYNTAX, "\n");
    assert_null(strchr(rcv_message(), '\x1b'));
    assert_null(strstr(rcv_message(), "\xc2\x9b"));
    test_context_end(&counting, context);
}

/* Endless files are read up to a limit; pipes and devices are refused as tensor files. */
static void test_endless(void **unused) {
    (void)unused;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    char *bytes;
    size_t length;
    rcv_tensors *tensors;
    rcv_cell *cell;
    rcv_vocabulary *words;
    rcv_data *data;
    check_fails(rcvi_read_file(context, "/dev/zero", 100000, &bytes, &length), RCV_FORMAT, "100000 bytes allowed");
    check_fails(rcv_tensors_load(context, "/dev/zero", &tensors), RCV_IO, "a pipe or a device");
    check_fails(rcv_cell_open(context, "/dev/zero", &cell), RCV_FORMAT, "1048576 bytes allowed");
    check_fails(rcv_vocabulary_load(context, "/dev/zero", &words), RCV_FORMAT, "268435456 bytes allowed");
    check_fails(rcv_wisdom_load(context, "/dev/zero"), RCV_FORMAT, "16777216 bytes allowed");
    check_fails(rcv_data_open(context, "/dev/zero", NULL, &data), RCV_IO, "a pipe or a device");
    char pipe[512];
    snprintf(pipe, sizeof pipe, "%s", path_in("pipe"));
    assert_int_equal(mkfifo(pipe, 0600), 0); /* it has no writer */
    check_fails(rcv_tensors_load(context, pipe, &tensors), RCV_IO, "a pipe or a device");
    check_fails(rcv_data_open(context, pipe, NULL, &data), RCV_IO, "a pipe or a device");
    unlink(pipe);
    /* A sparse file of a huge size costs neither memory nor time. */
    const char header[] =
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1125899906842624],\"data_offsets\":[0,1125899906842624]}}";
    FILE *file = fopen(path_in("sparse"), "wb");
    assert_non_null(file);
    const uint8_t size[8] = {sizeof header - 1};
    assert_int_equal(fwrite(size, 1, 8, file) + fwrite(header, 1, sizeof header - 1, file), sizeof header + 7);
    const int made = ftruncate(fileno(file), ((int64_t)1 << 50) + (int64_t)sizeof header + 7);
    fclose(file);
    if (made == 0)
        check_fails(rcv_tensors_load(context, path_in("sparse"), &tensors), RCV_NO_MEMORY, "this machine's memory");
    unlink(path_in("sparse"));
    test_context_end(&counting, context);
}

/* ---- trust of cache files ---- */

static bool is_trusted(rcv_context *context, const char *path) {
    int file;
    const rcv_status status = rcvi_open_trusted(context, path, &file);
    assert_true((status == RCV_OK) == (file >= 0));
    if (file >= 0) close(file);
    return file >= 0;
}

static void test_trust(void **unused) {
    (void)unused;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    char path[512], link[512];
    int none;
    snprintf(path, sizeof path, "%s", path_in("cache"));
    snprintf(link, sizeof link, "%s", path_in("link"));
    check_ok(rcvi_open_trusted(context, path, &none));
    assert_int_equal(none, -1);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(chmod(path, 0644), 0);
    assert_true(is_trusted(context, path));
    static const mode_t modes[] = {0664, 0646, 0666, 0602};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_false(is_trusted(context, path));
        assert_non_null(strstr(rcv_message(), "others than its owner can write it"));
    }
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(symlink(path, link), 0);
    int opened;
    check_ok(rcvi_open_trusted(context, link, &opened)); /* a link is ignored, as if there were no file */
    assert_int_equal(opened, -1);
    unlink(link);
    assert_int_equal(mkfifo(link, 0600), 0);
    assert_false(is_trusted(context, link));
    unlink(link);
    /* A file of another user, in a folder that only that user can write, and in other folders. */
    if (geteuid() == 0) {
        char folder[512], inside[600];
        snprintf(folder, sizeof folder, "%s", path_in("folder"));
        snprintf(inside, sizeof inside, "%s/cache", folder);
        assert_int_equal(mkdir(folder, 0700) | rename(path, inside), 0);
        assert_int_equal(chown(inside, 12345, 12345), 0);
        assert_false(is_trusted(context, inside)); /* the folder has another owner */
        assert_non_null(strstr(rcv_message(), "another user (12345)"));
        assert_int_equal(chown(folder, 12345, 12345), 0);
        assert_true(is_trusted(context, inside));
        static const mode_t open_modes[] = {01777, 0775, 0757};
        for (size_t i = 0; i < sizeof open_modes / sizeof *open_modes; i++) {
            assert_int_equal(chmod(folder, open_modes[i]), 0);
            assert_false(is_trusted(context, inside));
        }
        assert_int_equal(rename(inside, path) | rmdir(folder), 0);
    }
    unlink(path);
    test_context_end(&counting, context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_escape),  cmocka_unit_test(test_every_sequence), cmocka_unit_test(test_messages),
        cmocka_unit_test(test_endless), cmocka_unit_test(test_trust),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
