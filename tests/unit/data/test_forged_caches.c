/* Forged token caches: fields of the header, words, classes, tokens, numbers, labels and spans are changed, and the hashes are recomputed, so that the
 * checks of the content are tested. An invalid file is refused, and the text is read again; a valid one (another word, token or number in its range) is
 * read to its end without a failure. RECURVE_FORGED: how many (default 400); RECURVE_SEED: the seed. */
#define _XOPEN_SOURCE 700

#include "test.h"

#include "base/random.h"
#include "data/batches/batcher.h"
#include "data/token_cache_file.h"
#include "scratch.h"

#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    rcv_data_options options;
    const char *text;
} subject;

static const char words[] = "the cat saw the dog\n\nthe dog ran\na cat and a dog and the end\n";
static subject subjects[] = {
    {{.kind = RCV_DATA_STREAM}, words},
    {{.kind = RCV_DATA_LINES}, words},
    {{.kind = RCV_DATA_LINES, .level = RCV_LEVEL_BYTE}, words},
    {{.kind = RCV_DATA_CLASSES}, "{\"text\": \"a b\", \"y\": \"cat\"}\n{\"text\": \"b b a\", \"y\": \"dog\"}\n"},
    {{.kind = RCV_DATA_CLASSES, .level = RCV_LEVEL_BYTE},
     "{\"text\": \"ab\", \"y\": 1}\n{\"text\": \"b\", \"y\": 2}\n"},
    {{.kind = RCV_DATA_CLASSES}, "1 2 3\n2 5\n1 7 8 9\n"},
    {{.kind = RCV_DATA_VALUES}, "{\"x\": [[1, 2], [3, 4]], \"y\": [5, 6]}\n{\"x\": [[1, 2]], \"y\": [7, 8]}\n"},
    {{.kind = RCV_DATA_STEP_CLASSES},
     "{\"x\": [1, 2, 3], \"y\": [\"a\", null, \"b\"]}\n{\"x\": [4], \"y\": [\"a\"]}\n"},
    {{.kind = RCV_DATA_STEP_VALUES, .missing = RCV_MISSING_MEAN},
     "{\"x\": [1, null, 3], \"y\": [[1, 2], [3, 4], null]}\n{\"x\": [4], \"y\": [[5, 6]]}\n"},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects, LARGEST = 1 << 16 };

typedef struct {
    char bytes[LARGEST];
    size_t length;
} image;

static uint64_t state;

static uint64_t below(uint64_t bound) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % bound;
}

static void read_image(const char *path, image *to) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    to->length = fread(to->bytes, 1, sizeof to->bytes, file);
    fclose(file);
    assert_in_range(to->length, sizeof(rcvi_token_cache_header), LARGEST - 1);
}

static void write_image(const char *path, const image *from) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(from->bytes, 1, from->length, file), from->length);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0600), 0);
}

static bool lies_in(const rcvi_section *s, const image *file) {
    const int64_t length = (int64_t)file->length;
    return s->offset >= 0 && s->bytes >= 0 && s->offset <= length && s->bytes <= length - s->offset;
}

/* The sums that the content has now, where sections still lie in the file. */
static void mend_sums(image *file) {
    rcvi_token_cache_header h;
    memcpy(&h, file->bytes, sizeof h);
    for (int i = 0; i < RCVI_SECTIONS; i++) {
        rcvi_section *s = &h.sections[i];
        if (!lies_in(s, file)) continue;
        s->hash = s->bytes ? rcvi_hash_chunk(0, file->bytes + s->offset, (size_t)s->bytes) : 0;
    }
    h.hash = rcvi_hash_chunk(0, &h, offsetof(rcvi_token_cache_header, hash));
    memcpy(file->bytes, &h, sizeof h);
}

static const int64_t odd_numbers[] = {
    0,        1,         -1,        2,       3,        255,       256,       65535,          65536,
    1 << 20,  INT32_MAX, INT32_MIN, 1 << 30, 1l << 40, INT64_MAX, INT64_MIN, INT64_MAX - 63, 1l << 59,
    1l << 60, 1l << 62};

static int64_t odd_number(int64_t was) {
    const uint64_t kind = below(3);
    if (kind == 0) return was + (int64_t)below(9) - 4;
    if (kind == 1) return was ^ (int64_t)(UINT64_C(1) << below(64));
    return odd_numbers[below(sizeof odd_numbers / sizeof *odd_numbers)];
}

/* Changes a number of the header after the key. */
static void forge_header(image *file) {
    const size_t first = offsetof(rcvi_token_cache_header, totals),
                 count = (offsetof(rcvi_token_cache_header, hash) - first) / 8;
    const size_t at = first + 8 * below(count);
    int64_t number;
    memcpy(&number, file->bytes + at, sizeof number);
    number = odd_number(number);
    memcpy(file->bytes + at, &number, sizeof number);
}

/* Totals and the sizes of sections that fit each other, so that only the content is wrong. */
static void forge_sizes(image *file) {
    rcvi_token_cache_header h;
    memcpy(&h, file->bytes, sizeof h);
    const int section = (int)below(RCVI_SECTIONS);
    const int64_t more = 16 * (int64_t)below(9) - 64;
    int64_t *totals[] = {&h.totals.tokens, &h.totals.sequences, &h.totals.longest, &h.totals.features,
                         &h.totals.outputs};
    int64_t *total = totals[below(5)];
    if (below(2)) {
        h.sections[section].bytes += more;
        h.totals.bytes[section] += more;
    }
    *total = below(2) ? odd_number(*total) : *total + more / 16;
    if (below(2)) h.totals.longest = h.totals.tokens;
    memcpy(file->bytes, &h, sizeof h);
}

/* A byte, a number of 4 or one of 8 bytes of a section that has any. */
static void forge_content(image *file) {
    rcvi_token_cache_header h;
    memcpy(&h, file->bytes, sizeof h);
    int section = (int)below(RCVI_SECTIONS);
    for (int i = 0; i < RCVI_SECTIONS && h.sections[section].bytes == 0; i++) section = (section + 1) % RCVI_SECTIONS;
    const rcvi_section *s = &h.sections[section];
    if (s->bytes == 0 || !lies_in(s, file)) return;
    const size_t width = s->bytes < 8                          ? 1
                         : section >= RCVI_SPANS && below(4)   ? 8
                         : section >= RCVI_NUMBERS && below(4) ? 4
                                                               : 1;
    char *at = file->bytes + s->offset + (int64_t)width * (int64_t)below((uint64_t)s->bytes / width);
    int64_t number = 0;
    memcpy(&number, at, width);
    number = odd_number(number);
    memcpy(at, &number, width);
}

/* The file cut or made longer, with and without its header knowing. */
static void forge_length(image *file) {
    if (file->length + 256 > LARGEST) return;
    const size_t length =
        below(2) ? sizeof(rcvi_token_cache_header) + below(file->length - sizeof(rcvi_token_cache_header) + 1)
                 : file->length + 1 + below(256);
    if (length > file->length) memset(file->bytes + file->length, (int)below(256), length - file->length);
    file->length = length;
    int64_t bytes = (int64_t)length;
    if (below(2)) memcpy(file->bytes + offsetof(rcvi_token_cache_header, bytes), &bytes, sizeof bytes);
}

static void forge(image *file) {
    static void (*const kinds[])(image *) = {forge_header, forge_sizes, forge_content, forge_content, forge_length};
    for (uint64_t n = 1 + below(3); n > 0; n--) kinds[below(5)](file);
    mend_sums(file);
}

/* ---- what was read ---- */

typedef struct {
    char names[4096], batches[1 << 16];
    int64_t totals[6];
} content;

static size_t put(char *to, size_t room, size_t at, const void *bytes, size_t length) {
    assert_true(at + length <= room);
    memcpy(to + at, bytes, length);
    return at + length;
}

static void read_names(const rcv_data *data, content *c) {
    size_t at = 0;
    const rcv_vocabulary *vocabulary = rcv_data_vocabulary(data);
    for (int64_t i = 0; vocabulary && i < rcv_vocabulary_size(vocabulary); i++) {
        size_t length;
        const char *word = rcv_vocabulary_token(vocabulary, i, &length);
        at = put(c->names, sizeof c->names, at, word, length + 1);
    }
    size_t length;
    for (int64_t i = 0; rcv_data_class_name(data, i, &length); i++)
        at = put(c->names, sizeof c->names, at, rcv_data_class_name(data, i, &length), length + 1);
}

static void read_batches(const rcv_data *data, content *c) {
    const bool stream = rcv_data_get_kind(data) == RCV_DATA_STREAM;
    const bool has_values = rcvi_kind_has_values(rcv_data_get_kind(data));
    rcvi_scaling filled; /* missing features become 0 */
    check_ok(
        rcvi_scaling_new(data->context, rcv_data_features(data), has_values ? rcv_data_outputs(data) : 0, &filled));
    filled.missing = RCV_MISSING_ZERO;
    const rcvi_batcher_options options = {.how = stream ? RCVI_ALL : RCVI_SEQUENCES,
                                          .batch = 2,
                                          .steps = 3,
                                          .shuffle = true,
                                          .seed = 5,
                                          .scaling = stream ? NULL : &filled};
    rcvi_batcher *batcher;
    size_t at = 0;
    check_ok(rcvi_batcher_new(data, &options, &batcher));
    for (int64_t i = 0; i < rcvi_batcher_count(batcher); i++) {
        rcvi_batch b;
        check_ok(rcvi_batcher_next(batcher, &b));
        const size_t cells = (size_t)(b.steps * b.batch), rows = (size_t)b.batch;
        const size_t targets = rcvi_kind_has_steps(rcv_data_get_kind(data)) ? cells : rows;
        if (b.inputs) at = put(c->batches, sizeof c->batches, at, b.inputs, cells * 4);
        if (b.x) at = put(c->batches, sizeof c->batches, at, b.x, cells * (size_t)rcv_data_features(data) * 4);
        if (b.targets) at = put(c->batches, sizeof c->batches, at, b.targets, targets * 4);
        if (b.values)
            at = put(c->batches, sizeof c->batches, at, b.values, targets * (size_t)rcv_data_outputs(data) * 4);
    }
    rcvi_batcher_free(batcher);
    rcvi_scaling_free(&filled);
}

static void read_content(rcv_context *context, const char *path, const rcv_data_options *options, content *c) {
    rcv_data *data;
    memset(c, 0, sizeof *c);
    check_ok(rcv_data_open(context, path, options, &data));
    const int64_t totals[] = {rcv_data_tokens(data),   rcv_data_sequences(data), rcv_data_longest(data),
                              rcv_data_features(data), rcv_data_outputs(data),   (int64_t)rcvi_data_hash(data)};
    memcpy(c->totals, totals, sizeof totals);
    read_names(data, c);
    read_batches(data, c);
    rcv_data_free(data);
}

static ino_t number_of(const char *path) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_ino;
}

static const char *kept_of(const char *path) {
    static char kept[600];
    snprintf(kept, sizeof kept, "%.500s.recurve-tokens", path);
    return kept;
}

static void test_forged(void **unused) {
    (void)unused;
    const char *count_text = getenv("RECURVE_FORGED"), *seed = getenv("RECURVE_SEED");
    const long count = count_text ? atol(count_text) : 400;
    static image good[SUBJECTS], forged;
    static content expected[SUBJECTS], got;
    char paths[SUBJECTS][512];
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    long refused = 0, same = 0, believed = 0;
    state = seed ? strtoull(seed, NULL, 10) : 33;
    for (int i = 0; i < SUBJECTS; i++) {
        char name[32];
        snprintf(name, sizeof name, "text%d", i);
        snprintf(paths[i], sizeof paths[i], "%s", path_in(name));
        FILE *file = fopen(paths[i], "wb");
        assert_non_null(file);
        fputs(subjects[i].text, file);
        fclose(file);
        subjects[i].options.size = sizeof subjects[i].options;
        read_content(context, paths[i], &subjects[i].options, &expected[i]);
        read_image(kept_of(paths[i]), &good[i]);
        forged = good[i]; /* the sums of this test are those of the library, and such a file is accepted */
        mend_sums(&forged);
        assert_memory_equal(forged.bytes, good[i].bytes, good[i].length);
        const ino_t number = number_of(kept_of(paths[i]));
        read_content(context, paths[i], &subjects[i].options, &got);
        assert_int_equal(number_of(kept_of(paths[i])), number);
        assert_memory_equal(&got, &expected[i], sizeof got);
    }
    for (long n = 0; n < count; n++) {
        const int i = (int)(n % SUBJECTS);
        forged = good[i];
        forge(&forged);
        if (forged.length == good[i].length && memcmp(forged.bytes, good[i].bytes, forged.length) == 0) {
            same++;
            continue;
        }
        write_image(kept_of(paths[i]), &forged);
        const ino_t number = number_of(kept_of(paths[i]));
        read_content(context, paths[i], &subjects[i].options, &got);
        const bool taken = number_of(kept_of(paths[i])) == number;
        /* A forged file that is in order may be taken: another number where a number may be, another word, another class. */
        believed += taken;
        refused += !taken;
        if (!taken) assert_memory_equal(&got, &expected[i], sizeof got);
    }
    printf("%ld forged caches: %ld refused and made again, %ld in order and read, %ld unchanged\n", count, refused,
           believed, same);
    assert_true(refused * 3 > count * 2 && refused + believed + same == count);
    for (int i = 0; i < SUBJECTS; i++) {
        unlink(kept_of(paths[i]));
        unlink(paths[i]);
    }
    test_context_end(&counting, context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forged)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
