/* Rows of tables and masks; the list of all cases. */
#include "base/random.h"
#include "learn/learn_fixture.h"

#include <math.h>

/* ---- memory ---- */

static void check_memory(const learn_subject *subject) {
    learn_fixture fixture;
    fixture_open(&fixture, subject, 1, 1, 1, 0, 1);
    unsigned char from[1000], to[1000];
    for (size_t i = 0; i < sizeof from; i++) from[i] = (unsigned char)(i * 7);
    char *a = fixture_put_bytes(&fixture, from, sizeof from), *b = fixture_put_bytes(&fixture, from, sizeof from);
    check_ok(fixture.calls->clear(fixture.learn, b, sizeof from));
    check_ok(fixture.calls->copy(fixture.learn, b + 16, a + 1, 100));
    check_ok(fixture.calls->fetch(fixture.learn, to, b, sizeof to));
    for (size_t i = 0; i < sizeof to; i++) assert_int_equal(to[i], i >= 16 && i < 116 ? from[i - 15] : 0);
    fixture_close(&fixture);
}

/* ---- tables ---- */

static const int64_t row_shapes[][2] = {{1, 1}, {1, 200}, {33, 7}, {257, 64}, {400, 203}};
enum { ROW_SHAPES = sizeof row_shapes / sizeof *row_shapes, TABLE = 29 };

static int32_t *draw_ids(learn_fixture *self, int64_t count, int least) {
    int32_t *ids = malloc((size_t)count * sizeof *ids);
    assert_non_null(ids);
    for (int64_t i = 0; i < count; i++) ids[i] = least + random_below(&self->random, TABLE - least);
    return ids;
}

static void check_gather(const learn_subject *subject) {
    for (int s = 0; s < ROW_SHAPES; s++) {
        int64_t rows = row_shapes[s][0], columns = row_shapes[s][1];
        learn_fixture fixture;
        fixture_open(&fixture, subject, rows, columns, 1, 0, 2);
        int32_t *ids = draw_ids(&fixture, rows, -2);
        double *table = host_draw(&fixture, TABLE * columns, -1, 1), *zeros = host_new(rows * columns),
               *want = host_new(rows * columns);
        void *there = fixture_put(&fixture, table, TABLE * columns), *out = fixture_poison(&fixture, rows * columns);
        check_ok(fixture.calls->gather(fixture.learn, rows, columns, fixture_put_ids(&fixture, ids, rows), there, out));
        for (int64_t i = 0; i < rows * columns; i++)
            want[i] = ids[i / columns] < 0 ? 0 : table[ids[i / columns] * columns + i % columns];
        double *got = fixture_get(&fixture, out, rows * columns);
        check_near("gathered", rows * columns, got, want, zeros);
        free(got), free(want), free(zeros), free(table), free(ids);
        fixture_close(&fixture);
    }
}

/* Groups of the ids that are not negative, on the device; `host` keeps what the host knows of them. */
typedef struct {
    int32_t count, ids[TABLE], starts[TABLE + 1];
    int32_t *order;
} host_groups;

static rcvi_groups put_groups(learn_fixture *fixture, int64_t rows, const int32_t *ids, host_groups *host) {
    int32_t used = 0;
    *host = (host_groups){.order = calloc((size_t)rows, sizeof(int32_t))};
    assert_non_null(host->order);
    for (int32_t id = TABLE - 1; id >= 0; id--) { /* no order of ids is promised */
        int32_t before = used;
        for (int64_t r = 0; r < rows; r++)
            if (ids[r] == id) host->order[used++] = (int32_t)r;
        if (used == before) continue;
        host->ids[host->count++] = id;
        host->starts[host->count] = used;
    }
    return (rcvi_groups){fixture_put_ids(fixture, &host->count, 1), fixture_put_ids(fixture, host->ids, TABLE),
                         fixture_put_ids(fixture, host->starts, TABLE + 1),
                         fixture_put_ids(fixture, host->order, rows)};
}

static void check_scatter_of(const learn_subject *subject, int64_t rows, int64_t columns, bool by_id) {
    learn_fixture fixture;
    fixture_open(&fixture, subject, rows, columns, 1, 0, 3);
    int32_t *ids = draw_ids(&fixture, rows, -1);
    host_groups host;
    rcvi_groups groups = put_groups(&fixture, rows, ids, &host);
    int64_t count = TABLE * columns;
    double *from = host_draw(&fixture, rows * columns, -1, 1), *want = host_draw(&fixture, count, -1, 1),
           *bounds = host_new(count);
    void *there = fixture_put(&fixture, from, rows * columns), *out = fixture_put(&fixture, want, count);
    for (int32_t g = 0; g < host.count; g++) {
        for (int64_t c = 0; c < columns; c++) {
            int64_t to = (by_id ? host.ids[g] : g) * columns + c;
            if (!by_id) want[to] = 0;
            double all = fabs(want[to]);
            for (int32_t i = host.starts[g]; i < host.starts[g + 1]; i++) {
                want[to] += from[host.order[i] * columns + c];
                all += fabs(from[host.order[i] * columns + c]);
            }
            bounds[to] = fixture_precision(&fixture).unit * roundings(rows) * all;
        }
    }
    check_ok(fixture.calls->scatter(fixture.learn, rows, columns, &groups, by_id, there, out));
    double *got = fixture_get(&fixture, out, count);
    check_near("scattered", count, got, want, bounds); /* rows of no group are as they were */
    free(got), free(bounds), free(want), free(from), free(ids), free(host.order);
    fixture_close(&fixture);
}

static void check_scatter(const learn_subject *subject) {
    for (int s = 0; s < 2 * ROW_SHAPES; s++)
        check_scatter_of(subject, row_shapes[s / 2][0], row_shapes[s / 2][1], s % 2);
}

/* ---- masks ---- */

static uint64_t mask_index(const rcvi_mask *mask, const int32_t *ids, int64_t row, int64_t column, int64_t columns) {
    switch (mask->kind) {
    case RCVI_MASK_ELEMENTS: return (uint64_t)(row * columns + column);
    case RCVI_MASK_OVER_TIME: return (uint64_t)(row % mask->period * columns + column);
    default: return (uint64_t)ids[row];
    }
}

static void check_mask_of(const learn_subject *subject, int64_t rows, int64_t columns, rcvi_mask mask, bool in_place) {
    learn_fixture fixture;
    fixture_open(&fixture, subject, rows, columns, 1, 0, 4);
    const uint64_t seed = UINT64_C(0xdeadbeefcafe1234), step = UINT64_C(0x9e3779b97f4a7c15);
    int32_t *ids = draw_ids(&fixture, rows, 0);
    int64_t count = rows * columns;
    double *from = host_draw(&fixture, count, 1, 2), *want = host_new(count), *bounds = host_new(count);
    void *there = fixture_put(&fixture, from, count), *out = in_place ? there : fixture_poison(&fixture, count);
    mask.ids = fixture_put_ids(&fixture, ids, rows);
    for (int64_t i = 0; i < count; i++) {
        uint64_t index = mask_index(&mask, ids, i / columns, i % columns, columns);
        bool kept = rcvi_hash_uniform(seed + mask.salt * step, index) < 1 - mask.probability;
        want[i] = kept ? from[i] / (1 - mask.probability) : 0;
        bounds[i] = 4 * fixture_precision(&fixture).unit * want[i]; /* what is dropped is exactly 0 */
    }
    check_ok(fixture.calls->mask(fixture.learn, rows, columns, &mask,
                                 fixture_control(&fixture, &(rcvi_control){.seed = seed}), there, out));
    double *got = fixture_get(&fixture, out, count);
    check_near("masked", count, got, want, bounds);
    free(got), free(bounds), free(want), free(from), free(ids);
    fixture_close(&fixture);
}

static void check_masks(const learn_subject *subject) {
    static const double probabilities[] = {0, 0.1, 0.5, 0.9};
    for (int s = 0; s < ROW_SHAPES; s++) {
        for (int i = 0; i < 3 * 4; i++) {
            rcvi_mask mask = {.kind = (rcvi_mask_kind)(i % 3),
                              .probability = probabilities[i / 3],
                              .salt = (uint64_t)i * 3 + 1,
                              .period = 1 + row_shapes[s][0] / 4};
            check_mask_of(subject, row_shapes[s][0], row_shapes[s][1], mask, i & 1);
        }
    }
}

/* ---- all of them ---- */

static void check_same_bits(const learn_subject *subject) {
    uint64_t first = learn_digest(subject);
    for (int i = 0; i < 3; i++) assert_true(learn_digest(subject) == first);
}

const learn_case learn_cases[] = {
    {"memory", check_memory},
    {"gather", check_gather},
    {"scatter", check_scatter},
    {"masks", check_masks},
    {"softmax", check_head_softmax},
    {"squares", check_head_squares},
    {"differences", check_head_differences},
    {"NaN in a head", check_head_nan},
    {"logits", check_logits},
    {"updates", check_updates},
    {"a sparse part", check_update_sparse},
    {"a norm that is no number", check_update_not_finite},
    {"the same bits", check_same_bits},
};
const size_t learn_case_count = sizeof learn_cases / sizeof *learn_cases;

void learn_cases_run(const learn_subject *subject) {
    for (size_t i = 0; i < learn_case_count; i++) {
        print_message("  %s, %s, %lld threads: %s\n", subject->device->name, rcv_dtype_name(subject->dtype),
                      (long long)subject->threads, learn_cases[i].name);
        learn_cases[i].check(subject);
    }
}

/* ---- bits ---- */

static uint64_t hashed(learn_fixture *fixture, uint64_t hash, const void *from, int64_t count) {
    unsigned char *bits = fixture_get_bits(fixture, from, count);
    for (size_t i = 0; i < (size_t)count * fixture_real(fixture); i++)
        hash = (hash ^ bits[i]) * UINT64_C(0x100000001b3);
    free(bits);
    return hash;
}

static void *put_drawn(learn_fixture *fixture, int64_t count) {
    double *values = host_draw(fixture, count, -1, 1);
    void *made = fixture_put(fixture, values, count);
    free(values);
    return made;
}

uint64_t learn_digest(const learn_subject *subject) {
    enum { ROWS = 77, FEATURES = 60, CLASSES = 611 };
    learn_fixture fixture;
    fixture_open(&fixture, subject, ROWS, FEATURES, CLASSES, 20, 5);
    int32_t *ids = draw_ids(&fixture, ROWS, -1);
    host_groups host;
    rcvi_groups groups = put_groups(&fixture, ROWS, ids, &host);
    void *dweight = fixture_poison(&fixture, CLASSES * FEATURES), *dbias = fixture_poison(&fixture, CLASSES),
         *dy = fixture_poison(&fixture, ROWS * FEATURES), *sums = fixture_poison(&fixture, TABLE * FEATURES);
    rcvi_head head = {.rows = ROWS,
                      .y = put_drawn(&fixture, ROWS * FEATURES),
                      .weight = put_drawn(&fixture, CLASSES * FEATURES),
                      .bias = put_drawn(&fixture, CLASSES),
                      .targets = fixture_put_ids(&fixture, ids, ROWS),
                      .dy = dy,
                      .dweight = dweight,
                      .dbias = dbias};
    rcvi_control control = {.weight = 1.0 / ROWS,
                            .scale = 1,
                            .clip = 0.01,
                            .rate = 0.1,
                            .momentum = 0.9,
                            .beta1 = 0.9,
                            .beta2 = 0.99,
                            .epsilon = 1e-8,
                            .correction1 = 0.1,
                            .correction2 = 0.01,
                            .average = 0.5};
    void *numbers = fixture_control(&fixture, &control), *outcome = fixture_outcome(&fixture, NAN, NAN);
    check_ok(fixture.calls->head(fixture.learn, &head, numbers, outcome));
    check_ok(fixture.calls->scatter(fixture.learn, ROWS, FEATURES, &groups, false, dy, sums));
    rcvi_update_part part = {.count = CLASSES * FEATURES,
                             .parameters = put_drawn(&fixture, CLASSES * FEATURES),
                             .gradient = dweight,
                             .first = put_drawn(&fixture, CLASSES * FEATURES),
                             .average = put_drawn(&fixture, CLASSES * FEATURES)};
    double *second = host_draw(&fixture, part.count, 0, 1);
    part.second = fixture_put(&fixture, second, part.count);
    for (int kind = RCVI_SGD; kind <= RCVI_ADAMW; kind++) {
        rcvi_update update = {.kind = (rcvi_update_kind)kind, .parts = &part, .part_count = 1};
        check_ok(fixture.calls->update(fixture.learn, &update, numbers, outcome));
    }
    rcvi_outcome got = fixture_get_outcome(&fixture, outcome);
    uint64_t hash = UINT64_C(0xcbf29ce484222325), bits[2];
    memcpy(bits, &got, sizeof bits);
    hash = (hash ^ bits[0]) * UINT64_C(0x100000001b3);
    hash = (hash ^ bits[1]) * UINT64_C(0x100000001b3);
    hash = hashed(&fixture, hash, dy, ROWS * FEATURES);
    hash = hashed(&fixture, hash, dbias, CLASSES);
    hash = hashed(&fixture, hash, sums, host.count * FEATURES);
    void *const arrays[] = {dweight, part.parameters, part.first, part.second, part.average};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) hash = hashed(&fixture, hash, arrays[i], part.count);
    free(second), free(ids), free(host.order);
    fixture_close(&fixture);
    return hash;
}
