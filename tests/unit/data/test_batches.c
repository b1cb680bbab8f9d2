/* Batches: every token, line and example occurs once per epoch at its position; seeking gives the same batches. */
#include "test.h"

#include "base/random.h"
#include "data/data.h"
#include "scratch.h"

#include <math.h>
#include <unistd.h>

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    rcv_data *data;
} fixture;

static void open_fixture(fixture *f, const char *text, const rcv_data_options *options) {
    f->context = test_context(&f->allocator);
    FILE *file = fopen(path_in("text"), "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    check_ok(rcv_data_open(f->context, path_in("text"), options, &f->data));
}

static void close_fixture(fixture *f) {
    unlink(path_in("text"));
    unlink(path_in("text.recurve-tokens"));
    rcv_data_free(f->data);
    test_context_end(&f->allocator, f->context);
}

static rcvi_batcher *new_batcher(const fixture *f, const rcvi_batcher_options *options) {
    rcvi_batcher *batcher = NULL;
    check_ok(rcvi_batcher_new(f->data, options, &batcher));
    return batcher;
}

/* A text of so many bytes; the value of each byte is its offset. */
static const char *counted_text(int bytes) {
    static char text[256];
    assert_in_range(bytes, 2, 200);
    for (int i = 0; i < bytes; i++) text[i] = (char)(i + 1);
    text[bytes] = '\0';
    return text;
}

static const rcv_data_options BYTES = {.size = sizeof(rcv_data_options), .level = RCV_LEVEL_BYTE};

/* ---- columns ---- */

static void test_columns(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f, counted_text(101), &BYTES);
    /* 101 bytes are 3 columns of 33: 6 windows of 5, since 33 - 1 = 6 * 5 + 2. */
    rcvi_batcher *batcher = new_batcher(&f, &(rcvi_batcher_options){.how = RCVI_COLUMNS, .batch = 3, .steps = 5});
    int64_t steps, rows, batches;
    assert_true(rcvi_batcher_shape(batcher, 0, &steps, &rows, &batches));
    assert_false(rcvi_batcher_shape(batcher, 1, &steps, &rows, &batches));
    assert_true(steps == 5 && rows == 3 && batches == 6 && rcvi_batcher_count(batcher) == 6);
    for (int64_t i = 0; i < 13; i++) {
        const int64_t window = i % 6;
        rcvi_batch batch;
        assert_int_equal(rcvi_batcher_position(batcher).epoch, i / 6);
        assert_int_equal(rcvi_batcher_position(batcher).batch, window);
        check_ok(rcvi_batcher_next(batcher, &batch));
        assert_true(batch.steps == 5 && batch.batch == 3 && batch.bucket == 0 && batch.counted == 15);
        assert_true(batch.carries == (window > 0) && batch.ends == (window == 5));
        assert_true(!batch.x && !batch.values && !batch.lengths);
        for (int64_t t = 0; t < 5; t++) {
            for (int64_t b = 0; b < 3; b++) {
                assert_int_equal(batch.inputs[t * 3 + b], 1 + b * 33 + window * 5 + t);
                assert_int_equal(batch.targets[t * 3 + b], 2 + b * 33 + window * 5 + t);
            }
        }
    }
    rcvi_batcher_free(batcher);
    close_fixture(&f);
}

/* For all shapes, every token but the first is a target exactly once, and its input is the token before it. */
static void test_all(void **unused) {
    (void)unused;
    for (int bytes = 2; bytes < 60; bytes += 3) {
        fixture f;
        open_fixture(&f, counted_text(bytes), &BYTES);
        for (int64_t rows = 1; rows < 9; rows += 2) {
            for (int64_t steps = 1; steps < 12; steps += 5) {
                rcvi_batcher *batcher =
                    new_batcher(&f, &(rcvi_batcher_options){.how = RCVI_ALL, .batch = rows, .steps = steps});
                int seen[256] = {0}, last[16] = {0};
                rcvi_batch batch = {0};
                int64_t counted = 0;
                for (bool first = true; !batch.ends; first = false) {
                    check_ok(rcvi_batcher_next(batcher, &batch));
                    assert_true(batch.steps == steps && batch.batch == rows && batch.carries == !first);
                    counted += batch.counted;
                    for (int64_t i = 0; i < steps * rows; i++) {
                        if (batch.targets[i] < 0) continue;
                        assert_int_equal(batch.targets[i], batch.inputs[i] + 1);
                        assert_true(last[i % rows] == 0 || batch.inputs[i] == last[i % rows] + 1); /* state goes on */
                        last[i % rows] = batch.inputs[i];
                        seen[batch.targets[i]]++;
                    }
                }
                assert_int_equal(counted, bytes - 1);
                for (int i = 2; i <= bytes; i++) assert_int_equal(seen[i], 1);
                rcvi_batcher_free(batcher);
            }
        }
        close_fixture(&f);
    }
}

/* ---- sequences ---- */

enum { LINES = 60, BUCKETS = 4 };

/* Line i is the word "w" and its number, then as many words "x" as some number says: less than 20. */
static int extra(int line) { return (int)(20 * rcvi_hash_uniform(5, (uint64_t)line)); }

static const char *lines_text(void) {
    static char text[LINES * 64];
    char *end = text;
    for (int i = 0; i < LINES; i++) {
        end += sprintf(end, "w%d", i);
        for (int k = 0; k < extra(i); k++) end += sprintf(end, " x");
        end += sprintf(end, "\n");
    }
    return text;
}

static int line_of(const rcv_data *data, int32_t token) {
    size_t length;
    const char *word = rcv_vocabulary_token(rcv_data_vocabulary(data), token, &length);
    assert_non_null(word);
    assert_int_equal(word[0], 'w');
    return atoi(word + 1);
}

/* One row of a batch of lines: the line's number, or -1 for an empty row. */
static int check_row(const rcv_data *data, const rcvi_batch *batch, int64_t row) {
    const rcv_vocabulary *vocabulary = rcv_data_vocabulary(data);
    const int32_t eos = (int32_t)rcv_vocabulary_find(vocabulary, "<eos>", 5);
    const int32_t x = (int32_t)rcv_vocabulary_find(vocabulary, "x", 1);
    const bool empty = batch->targets[row] < 0;
    const int line = empty ? -1 : line_of(data, batch->targets[row]);
    const int64_t length = empty ? 0 : extra(line) + 2;
    assert_int_equal(batch->lengths[row], empty ? 1 : length);
    for (int64_t t = 0; t < batch->steps; t++) {
        const int32_t input = batch->inputs[t * batch->batch + row], target = batch->targets[t * batch->batch + row];
        if (t >= length)
            assert_true(input == 0 && target == -1);
        else if (t == 0)
            assert_int_equal(input, eos);
        else
            assert_int_equal(input, batch->targets[(t - 1) * batch->batch + row]);
        if (t < length && t > 0) assert_int_equal(target, t == length - 1 ? eos : x);
    }
    return line;
}

/* An epoch of lines: each once, in the narrowest bucket, but for less than a batch a bucket, which fill up the last of its own. Rows are
 * empty in the shortest bucket alone, less than a batch of them. `order` is that of the lines. */
static void check_epoch(const rcv_data *data, rcvi_batcher *batcher, const int64_t *bounds, int *order) {
    int seen[LINES] = {0}, count = 0;
    int64_t counted = 0, empty = 0, guests[BUCKETS] = {0}, batches = 0;
    size_t shortest = 0;
    rcvi_batch batch = {0};
    while (rcvi_batcher_shape(batcher, shortest, NULL, NULL, &batches) && batches == 0) shortest++;
    while (!batch.ends) {
        check_ok(rcvi_batcher_next(batcher, &batch));
        assert_false(batch.carries);
        assert_int_equal(batch.steps, bounds[batch.bucket]);
        counted += batch.counted;
        for (int64_t row = 0; row < batch.batch; row++) {
            const int line = check_row(data, &batch, row);
            if (line < 0) {
                assert_int_equal(batch.bucket, shortest);
                assert_true(++empty < batch.batch);
                continue;
            }
            seen[line]++;
            order[count++] = line;
            assert_true(batch.lengths[row] <= bounds[batch.bucket]);
            bool guest = batch.bucket > 0 && batch.lengths[row] <= bounds[batch.bucket - 1];
            if (guest) assert_true(++guests[batch.bucket] < batch.batch);
        }
    }
    assert_int_equal(counted, rcv_data_tokens(data));
    for (int i = 0; i < LINES; i++) assert_int_equal(seen[i], 1);
}

/* Lines that are longer than this, in so many batches. */
static int64_t batches_above(int64_t length, int64_t batch) {
    int64_t count = 0;
    for (int i = 0; i < LINES; i++) count += extra(i) + 2 > length;
    return (count + batch - 1) / batch;
}

static void test_lines(void **unused) {
    (void)unused;
    static const int64_t bounds[] = {1, 6, 12, 30}; /* the first is empty */
    fixture f;
    open_fixture(&f, lines_text(), &RCV_INIT(rcv_data_options, .kind = RCV_DATA_LINES));
    rcvi_batcher_options options = {.how = RCVI_SEQUENCES, .batch = 7, .bounds = bounds, .bound_count = 4, .seed = 3};
    int order[4][LINES];
    rcvi_batcher *batcher = new_batcher(&f, &options);
    int64_t batches, steps, rows, total = 0;
    for (size_t i = 0; rcvi_batcher_shape(batcher, i, &steps, &rows, &batches); i++) {
        assert_true(steps == bounds[i] && rows == 7);
        assert_int_equal(batches, batches_above(i ? bounds[i - 1] : 0, 7) - batches_above(bounds[i], 7));
        assert_true(i > 0 || batches == 0);
        total += batches;
    }
    assert_int_equal(total, rcvi_batcher_count(batcher));
    assert_int_equal(total, (LINES + 6) / 7);
    check_epoch(f.data, batcher, bounds, order[0]);
    check_epoch(f.data, batcher, bounds, order[1]);
    for (int i = 0, k = 0; k < 3; k++) { /* bucket after bucket, each in the order of the file */
        for (int line = 0; line < LINES; line++) {
            const int64_t length = extra(line) + 2;
            if (length > bounds[k] && length <= bounds[k + 1]) assert_int_equal(order[0][i++], line);
        }
    }
    assert_memory_equal(order[0], order[1], sizeof *order);
    rcvi_batcher_free(batcher);

    options.shuffle = true;
    batcher = new_batcher(&f, &options);
    for (int i = 0; i < 3; i++) check_epoch(f.data, batcher, bounds, order[i]);
    rcvi_batcher_free(batcher);
    options.seed = 4;
    batcher = new_batcher(&f, &options);
    check_epoch(f.data, batcher, bounds, order[3]);
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < i; k++) assert_memory_not_equal(order[i], order[k], sizeof *order);
    }
    rcvi_batcher_free(batcher);
    close_fixture(&f);
}

static double odd_cost(void *user, int64_t steps, int64_t batch) {
    (void)user;
    return 5 + (double)(steps * batch);
}

/* Batches of every size, up to one that holds all lines: a bucket may give all it has. They cost what buckets are chosen by. */
static void test_filling(void **unused) {
    (void)unused;
    static const int64_t bounds[] = {5, 6, 13, 30};
    fixture f;
    open_fixture(&f, lines_text(), &RCV_INIT(rcv_data_options, .kind = RCV_DATA_LINES));
    rcvi_histogram histogram;
    check_ok(rcvi_histogram_new(f.data, &histogram));
    for (int64_t size = 1; size <= LINES + 3; size++) {
        int order[LINES];
        double cost = 0;
        const rcvi_bucket_options priced = {.most = BUCKETS, .batch = size, .cost = odd_cost};
        rcvi_batcher *batcher = new_batcher(&f, &(rcvi_batcher_options){.how = RCVI_SEQUENCES,
                                                                        .batch = size,
                                                                        .bounds = bounds,
                                                                        .bound_count = BUCKETS,
                                                                        .shuffle = size % 2 == 0});
        for (size_t i = 0; i < BUCKETS; i++) {
            int64_t batches;
            assert_true(rcvi_batcher_shape(batcher, i, NULL, NULL, &batches));
            assert_int_equal(batches, batches_above(i ? bounds[i - 1] : 0, size) - batches_above(bounds[i], size));
            cost += (double)batches * odd_cost(NULL, bounds[i], size);
        }
        assert_true(cost == rcvi_buckets_cost(&histogram, &priced, bounds, BUCKETS));
        assert_int_equal(rcvi_batcher_count(batcher), (LINES + size - 1) / size);
        for (int i = 0; i < 2; i++) check_epoch(f.data, batcher, bounds, order);
        rcvi_batcher_free(batcher);
    }
    rcvi_histogram_free(f.context, &histogram);
    close_fixture(&f);
}

/* Shuffled sequences that fill up longer buckets are others in every epoch: in the end all have done so. */
static void test_guests_change(void **unused) {
    (void)unused;
    static const int64_t bounds[] = {12, 30};
    bool was[LINES] = {false};
    int lines = 0, guests = 0;
    fixture f;
    open_fixture(&f, lines_text(), &RCV_INIT(rcv_data_options, .kind = RCV_DATA_LINES));
    rcvi_batcher *batcher =
        new_batcher(&f, &(rcvi_batcher_options){
                            .how = RCVI_SEQUENCES, .batch = 16, .bounds = bounds, .bound_count = 2, .shuffle = true});
    for (int64_t i = 0; i < 100 * rcvi_batcher_count(batcher); i++) {
        rcvi_batch batch;
        check_ok(rcvi_batcher_next(batcher, &batch));
        for (int64_t row = 0; row < batch.batch; row++) {
            const int line = check_row(f.data, &batch, row);
            if (line >= 0 && batch.bucket == 1 && batch.lengths[row] <= bounds[0]) was[line] = true;
        }
    }
    for (int i = 0; i < LINES; i++) {
        lines += extra(i) + 2 <= bounds[0];
        guests += was[i];
    }
    assert_int_equal(guests, lines);
    rcvi_batcher_free(batcher);
    close_fixture(&f);
}

/* Not only within batches, and not only batches: where the first lines go. */
static void test_shuffling_is_even(void **unused) {
    (void)unused;
    enum { EPOCHS = 600 };
    fixture f;
    open_fixture(&f, "a\nb\nc\nd\ne\nf\n", &RCV_INIT(rcv_data_options, .kind = RCV_DATA_LINES));
    rcvi_batcher *batcher =
        new_batcher(&f, &(rcvi_batcher_options){.how = RCVI_SEQUENCES, .batch = 2, .shuffle = true, .seed = 1});
    int counts[6][6] = {{0}};
    for (int i = 0; i < EPOCHS; i++) {
        for (int k = 0; k < 3; k++) {
            rcvi_batch batch;
            check_ok(rcvi_batcher_next(batcher, &batch));
            for (int row = 0; row < 2; row++) {
                const char *word = rcv_vocabulary_token(rcv_data_vocabulary(f.data), batch.targets[row], NULL);
                counts[word[0] - 'a'][2 * k + row]++;
            }
        }
    }
    for (int i = 0; i < 36; i++) assert_in_range(counts[i / 6][i % 6], EPOCHS / 6 - 40, EPOCHS / 6 + 40);
    rcvi_batcher_free(batcher);
    close_fixture(&f);
}

/* tokens / length sequences a batch, at most `batch`, at least one. */
static void test_token_batches(void **unused) {
    (void)unused;
    static const int64_t bounds[] = {6, 12, 30}, expected[] = {4, 2, 1};
    fixture f;
    open_fixture(&f, lines_text(), &RCV_INIT(rcv_data_options, .kind = RCV_DATA_LINES));
    int order[LINES];
    for (int64_t most = 0; most < 5; most += 3) {
        rcvi_batcher *batcher = new_batcher(&f, &(rcvi_batcher_options){.how = RCVI_SEQUENCES,
                                                                        .batch = most,
                                                                        .tokens = 29,
                                                                        .bounds = bounds,
                                                                        .bound_count = 3,
                                                                        .shuffle = true});
        for (size_t i = 0; i < 3; i++) {
            int64_t rows;
            assert_true(rcvi_batcher_shape(batcher, i, NULL, &rows, NULL));
            assert_int_equal(rows, most && most < expected[i] ? most : expected[i]);
        }
        check_epoch(f.data, batcher, bounds, order);
        rcvi_batcher_free(batcher);
    }
    close_fixture(&f);
}

/* After a seek the batcher returns the same batches as one that read up to that position. */
static void test_seeking(void **unused) {
    (void)unused;
    static const int64_t bounds[] = {5, 9, 21};
    for (int columns = 0; columns < 2; columns++) {
        fixture f;
        open_fixture(&f, lines_text(), &RCV_INIT(rcv_data_options, .kind = columns ? RCV_DATA_STREAM : RCV_DATA_LINES));
        const rcvi_batcher_options options = {.how = columns ? RCVI_COLUMNS : RCVI_SEQUENCES,
                                              .batch = 4,
                                              .steps = 7,
                                              .bounds = bounds,
                                              .bound_count = 3,
                                              .shuffle = true,
                                              .seed = 9};
        rcvi_batcher *along = new_batcher(&f, &options), *sent = new_batcher(&f, &options);
        const int64_t count = rcvi_batcher_count(along);
        for (int64_t i = 0; i < 3 * count; i++) {
            const rcvi_position place = rcvi_batcher_position(along);
            /* Away, and back: from the end of the epoch before, the same place. */
            check_ok(rcvi_batcher_seek(sent, (rcvi_position){(i * 7) % 5, (i * 5) % count}));
            rcvi_batch a, b;
            check_ok(rcvi_batcher_next(sent, &b));
            const bool from_end = place.batch == 0 && place.epoch > 0;
            check_ok(rcvi_batcher_seek(sent, from_end ? (rcvi_position){place.epoch - 1, count} : place));
            assert_int_equal(rcvi_batcher_position(sent).epoch, place.epoch);
            check_ok(rcvi_batcher_next(along, &a));
            check_ok(rcvi_batcher_next(sent, &b));
            assert_true(a.steps == b.steps && a.batch == b.batch && a.bucket == b.bucket && a.ends == b.ends &&
                        a.carries == b.carries && a.counted == b.counted);
            assert_memory_equal(a.inputs, b.inputs, (size_t)(a.steps * a.batch) * sizeof *a.inputs);
            assert_memory_equal(a.targets, b.targets, (size_t)(a.steps * a.batch) * sizeof *a.targets);
            if (a.lengths) assert_memory_equal(a.lengths, b.lengths, (size_t)a.batch * sizeof *a.lengths);
        }
        check_fails(rcvi_batcher_seek(sent, (rcvi_position){0, count + 1}), RCV_INVALID, "does not exist");
        check_fails(rcvi_batcher_seek(sent, (rcvi_position){-1, 0}), RCV_INVALID, "does not exist");
        rcvi_batcher_free(along);
        rcvi_batcher_free(sent);
        close_fixture(&f);
    }
}

/* Bytes: a newline before and after each line, also after a last line that has none. */
static void test_byte_lines(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f, "ab\n\nc", &RCV_INIT(rcv_data_options, .kind = RCV_DATA_LINES, .level = RCV_LEVEL_BYTE));
    rcvi_batcher *batcher = new_batcher(&f, &(rcvi_batcher_options){.how = RCVI_SEQUENCES, .batch = 2});
    rcvi_batch batch;
    check_ok(rcvi_batcher_next(batcher, &batch));
    assert_true(batch.ends && batch.steps == 3 && batch.counted == 5);
    assert_memory_equal(batch.inputs, ((int32_t[]){'\n', '\n', 'a', 'c', 'b', 0}), 6 * sizeof(int32_t));
    assert_memory_equal(batch.targets, ((int32_t[]){'a', 'c', 'b', '\n', '\n', -1}), 6 * sizeof(int32_t));
    assert_memory_equal(batch.lengths, ((int64_t[]){3, 2}), 2 * sizeof(int64_t));
    rcvi_batcher_free(batcher);
    close_fixture(&f);
}

/* ---- examples ---- */

static void test_values(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f, "{\"x\": [[1, 2], [3, 4]], \"y\": [5, 6]}\n{\"x\": [[7, 8]], \"y\": [9, 0.5]}\n",
                 &RCV_INIT(rcv_data_options, .kind = RCV_DATA_VALUES));
    assert_true(rcv_data_features(f.data) == 2 && rcv_data_outputs(f.data) == 2 && !rcv_data_vocabulary(f.data));
    rcvi_batcher *batcher = new_batcher(&f, &(rcvi_batcher_options){.how = RCVI_SEQUENCES, .batch = 3});
    for (int time = 0; time < 2; time++) {
        rcvi_batch batch;
        check_ok(rcvi_batcher_next(batcher, &batch));
        assert_true(batch.ends && batch.steps == 2 && batch.batch == 3 && batch.counted == 2);
        assert_true(!batch.inputs && !batch.targets);
        assert_memory_equal(batch.x, ((float[]){1, 2, 7, 8, 0, 0, 3, 4, 0, 0, 0, 0}), 12 * sizeof(float));
        assert_memory_equal(batch.values, ((float[]){5, 6, 9, 0.5f}), 4 * sizeof(float));
        assert_true(isnan(batch.values[4]) && isnan(batch.values[5]));
        assert_memory_equal(batch.lengths, ((int64_t[]){2, 1, 1}), 3 * sizeof(int64_t));
    }
    rcvi_batcher_free(batcher);
    /* A short sequence in a row that held a long one. */
    batcher = new_batcher(&f, &(rcvi_batcher_options){.how = RCVI_SEQUENCES, .batch = 1});
    rcvi_batch batch;
    check_ok(rcvi_batcher_next(batcher, &batch));
    assert_memory_equal(batch.x, ((float[]){1, 2, 3, 4}), 4 * sizeof(float));
    check_ok(rcvi_batcher_next(batcher, &batch));
    assert_memory_equal(batch.x, ((float[]){7, 8, 0, 0}), 4 * sizeof(float));
    rcvi_batcher_free(batcher);
    close_fixture(&f);
}

static void test_classes(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f, "{\"text\": \"ab\", \"y\": \"q\"}\n{\"text\": \"c\", \"y\": \"p\"}\n",
                 &RCV_INIT(rcv_data_options, .kind = RCV_DATA_CLASSES, .level = RCV_LEVEL_BYTE));
    rcvi_batcher *batcher = new_batcher(&f, &(rcvi_batcher_options){.how = RCVI_SEQUENCES, .batch = 3});
    rcvi_batch batch;
    check_ok(rcvi_batcher_next(batcher, &batch));
    assert_true(batch.steps == 2 && batch.counted == 2 && !batch.x && !batch.values);
    assert_memory_equal(batch.inputs, ((int32_t[]){'a', 'c', 0, 'b', 0, 0}), 6 * sizeof(int32_t));
    assert_memory_equal(batch.targets, ((int32_t[]){1, 0, -1}), 3 * sizeof(int32_t));
    assert_memory_equal(batch.lengths, ((int64_t[]){2, 1, 1}), 3 * sizeof(int64_t));
    rcvi_batcher_free(batcher);
    close_fixture(&f);
}

/* A target at every step: missing ones, and steps past the end of a sequence, do not count. */
static void test_step_classes(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f, "{\"x\": [1, 2], \"y\": [\"q\", null]}\n{\"x\": [3, 4, 5], \"y\": [\"p\", 7, \"q\"]}\n",
                 &RCV_INIT(rcv_data_options, .kind = RCV_DATA_STEP_CLASSES));
    assert_true(rcv_data_features(f.data) == 1 && rcv_data_outputs(f.data) == 3 && rcv_data_tokens(f.data) == 5);
    assert_string_equal(rcv_data_class_name(f.data, 0, NULL), "7");
    rcvi_batcher *batcher = new_batcher(&f, &(rcvi_batcher_options){.how = RCVI_SEQUENCES, .batch = 3});
    rcvi_batch batch;
    check_ok(rcvi_batcher_next(batcher, &batch));
    assert_true(batch.steps == 3 && batch.batch == 3 && batch.counted == 4 && !batch.values && !batch.inputs);
    assert_memory_equal(batch.x, ((float[]){1, 3, 0, 2, 4, 0, 0, 5, 0}), 9 * sizeof(float));
    assert_memory_equal(batch.targets, ((int32_t[]){2, 1, -1, -1, 0, -1, -1, 2, -1}), 9 * sizeof(int32_t));
    assert_memory_equal(batch.lengths, ((int64_t[]){2, 3, 1}), 3 * sizeof(int64_t));
    rcvi_batcher_free(batcher);
    /* In buckets of their lengths. */
    const int64_t bounds[] = {2, 3};
    batcher =
        new_batcher(&f, &(rcvi_batcher_options){.how = RCVI_SEQUENCES, .batch = 1, .bounds = bounds, .bound_count = 2});
    check_ok(rcvi_batcher_next(batcher, &batch));
    assert_true(batch.steps == 2 && batch.counted == 1);
    assert_memory_equal(batch.targets, ((int32_t[]){2, -1}), 2 * sizeof(int32_t));
    check_ok(rcvi_batcher_next(batcher, &batch));
    assert_true(batch.steps == 3 && batch.counted == 3);
    rcvi_batcher_free(batcher);
    close_fixture(&f);
}

static void check_values(const float *values, const float *expected, size_t count) {
    for (size_t i = 0; i < count; i++) assert_true(isnan(expected[i]) ? isnan(values[i]) : values[i] == expected[i]);
}

/* A step whose values are missing in part is missing; outputs are known from a later line than the first. */
static void test_step_values(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f, "{\"x\": [1], \"y\": [null]}\n{\"x\": [2, 3, 4], \"y\": [null, [5, 6], [7, null]]}\n",
                 &RCV_INIT(rcv_data_options, .kind = RCV_DATA_STEP_VALUES));
    assert_true(rcv_data_outputs(f.data) == 2);
    rcvi_batcher *batcher = new_batcher(&f, &(rcvi_batcher_options){.how = RCVI_SEQUENCES, .batch = 2});
    for (int time = 0; time < 2; time++) {
        rcvi_batch batch;
        check_ok(rcvi_batcher_next(batcher, &batch));
        assert_true(batch.steps == 3 && batch.batch == 2 && batch.counted == 1 && !batch.targets);
        check_values(batch.values, (float[]){NAN, NAN, NAN, NAN, NAN, NAN, 5, 6, NAN, NAN, NAN, NAN}, 12);
    }
    rcvi_batcher_free(batcher);
    close_fixture(&f);
}

/* ---- failure ---- */

static void test_wrong(void **unused) {
    (void)unused;
    static const int64_t falling[] = {9, 8, 30}, low[] = {3, 20}, none[] = {0, 30};
    static const struct {
        rcvi_batcher_options options;
        const char *fragment;
    } streams[] = {{{.how = RCVI_COLUMNS, .batch = 0, .steps = 5}, "batch of 0"},
                   {{.how = RCVI_COLUMNS, .batch = 2, .steps = 0}, "0 steps"},
                   {{.how = RCVI_COLUMNS, .batch = 2, .steps = 10}, "needs one more"},
                   {{.how = RCVI_COLUMNS, .batch = 50, .steps = 1}, "needs one more"},
                   {{.how = RCVI_SEQUENCES, .batch = 2}, "is read in columns"}},
      lines[] = {{{.how = RCVI_ALL, .batch = 2, .steps = 3}, "cannot be read in columns"},
                 {{.how = RCVI_SEQUENCES}, "one of the two must be 1"},
                 {{.how = RCVI_SEQUENCES, .batch = 1, .bounds = falling, .bound_count = 3}, "8 is not"},
                 {{.how = RCVI_SEQUENCES, .batch = 1, .bounds = none, .bound_count = 2}, "0 is not"},
                 {{.how = RCVI_SEQUENCES, .batch = 1, .bounds = low, .bound_count = 2}, "does not fit"}};
    fixture f;
    rcvi_batcher *batcher = NULL;
    open_fixture(&f, counted_text(20), &BYTES);
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
        check_fails(rcvi_batcher_new(f.data, &streams[i].options, &batcher), RCV_INVALID, streams[i].fragment);
    check_fails(rcvi_batcher_new(f.data, &(rcvi_batcher_options){.how = RCVI_ALL, .batch = INT64_MAX / 2, .steps = 3},
                                 &batcher),
                RCV_NO_MEMORY, "does not fit into memory");
    close_fixture(&f);
    open_fixture(&f, lines_text(), &RCV_INIT(rcv_data_options, .kind = RCV_DATA_LINES));
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        check_fails(rcvi_batcher_new(f.data, &lines[i].options, &batcher), RCV_INVALID, lines[i].fragment);
    assert_null(batcher);
    close_fixture(&f);
}

static void test_no_memory(void **unused) {
    (void)unused;
    for (int columns = 0; columns < 2; columns++) {
        fixture f;
        open_fixture(&f, lines_text(), &RCV_INIT(rcv_data_options, .kind = columns ? RCV_DATA_STREAM : RCV_DATA_LINES));
        const rcvi_batcher_options options = {
            .how = columns ? RCVI_ALL : RCVI_SEQUENCES, .batch = 4, .steps = 7, .shuffle = true};
        size_t tried = 0;
        for (rcv_status status = RCV_NO_MEMORY; status != RCV_OK;) {
            const size_t live = f.allocator.live, failed = f.allocator.failed;
            rcvi_batcher *batcher = NULL;
            f.allocator.fail_at = ++tried;
            status = rcvi_batcher_new(f.data, &options, &batcher);
            f.allocator.fail_at = 0;
            assert_int_equal(status, f.allocator.failed > failed ? RCV_NO_MEMORY : RCV_OK);
            assert_true((status == RCV_OK) == (batcher != NULL));
            rcvi_batcher_free(batcher);
            assert_int_equal(f.allocator.live, live);
        }
        assert_true(tried > 5);
        close_fixture(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns),       cmocka_unit_test(test_all),
        cmocka_unit_test(test_lines),         cmocka_unit_test(test_filling),
        cmocka_unit_test(test_guests_change), cmocka_unit_test(test_shuffling_is_even),
        cmocka_unit_test(test_token_batches), cmocka_unit_test(test_seeking),
        cmocka_unit_test(test_byte_lines),    cmocka_unit_test(test_values),
        cmocka_unit_test(test_classes),       cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_step_classes),  cmocka_unit_test(test_step_values),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
