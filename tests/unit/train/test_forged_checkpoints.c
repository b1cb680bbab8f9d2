/* Checkpoints that are damaged or forged. Of one with a checksum no changed bit is missed. Of one without, as older versions wrote them,
 * names, numbers, texts and tensors are changed: it is refused with a sentence, and the run that was to take it over is as it
 * was, or it is taken and the run goes on. RECURVE_FORGED is how many of each (150 else), RECURVE_SEED the seed. */
#include "scratch.h"
#include "train_fixture.h"

#include <unistd.h>

static const char small[] = "cell=gru hidden=2 batch=2 length=5 optimiser=adam steps=3 seed=9 keep=1";

enum { LARGEST = 1 << 16, LENGTH_BYTES = 8 };

typedef struct {
    char bytes[LARGEST];
    size_t length;
} image;

static uint64_t state;

static size_t below(size_t bound) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)((state >> 33) % bound);
}

static long count_of(void) {
    const char *count = getenv("RECURVE_FORGED"), *seed = getenv("RECURVE_SEED");
    state = seed ? strtoull(seed, NULL, 10) : 33;
    return count ? atol(count) : 150;
}

static void read_image(const char *path, image *to) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    to->length = fread(to->bytes, 1, sizeof to->bytes, file);
    fclose(file);
    assert_in_range(to->length, 1000, LARGEST - 1000);
}

static void write_image(const char *path, const image *from) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(from->bytes, 1, from->length, file), from->length);
    assert_int_equal(fclose(file), 0);
}

static size_t header_of(const image *file) {
    uint64_t length;
    memcpy(&length, file->bytes, sizeof length);
    return (size_t)length;
}

static char *find(image *file, const char *text) {
    const size_t length = strlen(text);
    for (size_t i = 0; i + length <= file->length; i++)
        if (memcmp(file->bytes + i, text, length) == 0) return file->bytes + i;
    return NULL;
}

/* ---- damage ---- */

static void test_damaged(void **unused) {
    (void)unused;
    const long count = count_of();
    static image good, damaged;
    train_fixture s;
    char path[512];
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *t = train_fixture_trainer(&s, small, "", data, NULL);
    recorder w = {0};
    snprintf(path, sizeof path, "%s", path_in("model"));
    check_ok(train_fixture_run(t, path, &w));
    read_image(path, &good);
    for (long n = 0; n < count; n++) {
        rcv_tensors *tensors;
        damaged = good;
        for (size_t flips = 1 + below(3); flips > 0; flips--)
            damaged.bytes[below(damaged.length)] ^= (char)(1 << below(8));
        if (memcmp(damaged.bytes, good.bytes, good.length) == 0) continue;
        check_fails(rcv_tensors_parse(s.context, damaged.bytes, damaged.length, "the file", &tensors), RCV_FORMAT,
                    "the file: ");
    }
    printf("%ld damaged checkpoints: all refused\n", count);
    rcv_trainer_free(t);
    train_fixture_remove("model");
    train_fixture_close(&s);
}

/* ---- forgery ---- */

/* As an older version wrote it: without a sum, in as many bytes. */
static void make_old(image *file) {
    char *format = find(file, "\"recurve.format\":\"2\""), *sum = find(file, ",\"recurve.checksum\":\"");
    assert_true(format && sum);
    format[strlen("\"recurve.format\":\"")] = '1';
    memset(sum, ' ', strlen(",\"recurve.checksum\":\"\"") + 16);
}

static void splice(image *file, size_t at, size_t removed, const char *added) {
    const size_t count = strlen(added), header = header_of(file) + count - removed;
    if (at + removed > file->length || file->length + count > LARGEST) return;
    memmove(file->bytes + at + count, file->bytes + at + removed, file->length - at - removed);
    memcpy(file->bytes + at, added, count);
    file->length += count - removed;
    memcpy(file->bytes, &(uint64_t){header}, 8);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* A number of the header, in the metadata mostly: steps, sizes, shapes, places. */
static void forge_number(image *file) {
    static const char *const numbers[] = {"0",
                                          "1",
                                          "2",
                                          "-1",
                                          "3",
                                          "1e300",
                                          "0.5",
                                          "2147483648",
                                          "4611686018427387904",
                                          "9223372036854775807",
                                          "null",
                                          "[]",
                                          "true",
                                          "\\\"x\\\"",
                                          "99999999999999999999"};
    size_t at = LENGTH_BYTES + below(header_of(file)), end = LENGTH_BYTES + header_of(file), length = 0;
    while (at < end && !is_digit(file->bytes[at])) at++;
    while (at > LENGTH_BYTES && is_digit(file->bytes[at - 1])) at--;
    while (at + length < end && is_digit(file->bytes[at + length])) length++;
    if (length > 0) splice(file, at, length, numbers[below(sizeof numbers / sizeof *numbers)]);
}

static void forge_byte(image *file) { file->bytes[LENGTH_BYTES + below(header_of(file))] ^= (char)(1 << below(8)); }

/* Elements that no training leaves behind, anywhere in the tensors: the vocabulary too. */
static void forge_data(image *file) {
    static const uint32_t words[] = {0x7fc00000, 0x7f800000, 0xff7fffff, 0, 1, 0xffffffff, 0x0a0a0a0a, 0x9b1b9b1b};
    const size_t first = LENGTH_BYTES + header_of(file);
    if (file->length < first + 4) return;
    memcpy(file->bytes + first + below(file->length - first - 3), &words[below(8)], 4);
}

static void forge_text(image *file) {
    static const char *const pieces[] = {"\\n", "\\u001b[31m", "", "\\\"", "{", "}", ",", "x'", "h", "\\u0000"};
    splice(file, LENGTH_BYTES + below(header_of(file)), below(3), pieces[below(sizeof pieces / sizeof *pieces)]);
}

static void forge(image *file) {
    static void (*const kinds[])(image *) = {forge_number, forge_number, forge_number,
                                             forge_byte,   forge_data,   forge_text};
    for (size_t n = 1 + below(2); n > 0; n--) kinds[below(6)](file);
}

/* A sentence without control characters. Only the mistake in a cell is shown in lines. */
static void check_sentence(rcv_status status, long n) {
    const char *message = rcv_message();
    if (status != RCV_FORMAT && status != RCV_SYNTAX && status != RCV_INVALID && status != RCV_UNSUPPORTED &&
        status != RCV_NO_MEMORY)
        fail_msg("file %ld: %s: %s", n, rcv_status_name(status), message);
    assert_true(strlen(message) > 10);
    for (; *message; message++)
        if ((unsigned char)*message < 32 && !(status == RCV_SYNTAX && *message == '\n')) fail_msg("file %ld", n);
}

static void test_forged(void **unused) {
    (void)unused;
    const long count = count_of();
    static image good, forged;
    long taken = 0, refused = 0;
    train_fixture s;
    char path[512];
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *first = train_fixture_trainer(&s, small, "seed=1", data, NULL);
    recorder w = {0};
    snprintf(path, sizeof path, "%s", path_in("model"));
    check_ok(train_fixture_run(first, path, &w));
    rcv_trainer_free(first);
    read_image(path, &good);
    make_old(&good);
    for (long n = -1; n < count; n++) {
        forged = good;
        if (n >= 0) forge(&forged);
        write_image(path, &forged);
        rcv_trainer *t = train_fixture_trainer(&s, small, "", data, NULL),
                    *same = train_fixture_trainer(&s, small, "", data, NULL);
        rcv_learner *learner;
        rcv_settings *settings;
        rcv_vocabulary *vocabulary;
        rcv_status status = rcv_learner_load(s.context, path, NULL, RCV_FLOAT32, &learner);
        if (status) check_sentence(status, n);
        rcv_learner_free(learner);
        status = rcv_checkpoint_settings(s.context, path, &settings);
        if (status) check_sentence(status, n);
        rcv_settings_free(settings);
        status = rcv_checkpoint_vocabulary(s.context, path, &vocabulary);
        if (status) check_sentence(status, n);
        rcv_vocabulary_free(vocabulary);
        status = rcv_trainer_resume(t, path);
        taken += status == RCV_OK;
        refused += status != RCV_OK;
        if (status) {
            check_sentence(status, n);
            assert_true(train_fixture_same(t, same)); /* nothing of it was taken over */
        } else if (t->state.step < 1000) {
            t->options.steps = t->state.step + 1;
            status = rcv_trainer_run(t, NULL); /* NaN may end it, with a sentence */
            if (status) check_sentence(status, n);
        }
        assert_true(n >= 0 || taken == 1);
        rcv_trainer_free(same);
        rcv_trainer_free(t);
    }
    printf("%ld forged checkpoints: %ld refused, %ld taken\n", count, refused, taken - 1);
    assert_true(refused > count / 3 && taken > count / 20);
    train_fixture_remove("model");
    train_fixture_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damaged), cmocka_unit_test(test_forged)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
