/* What stands around a network while it learns, on a GPU: the cases of every device in five types, many classes, arrays that begin
 * anywhere, what is sent through a small memory, and steps that are recorded and repeated. */
#include "base/random.h"
#include "gpu.h"
#include "learn/learn_fixture.h"
#include "plan/run.h"

#include <math.h>

static const rcv_dtype dtypes[] = {RCV_FLOAT64, RCV_FLOAT32, RCV_TFLOAT32, RCV_BFLOAT16, RCV_FLOAT16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static test_allocator counter;

static learn_subject subject_of(rcv_dtype dtype) {
    return (learn_subject){test_context(&counter), &rcvi_device_cuda, 0, dtype, 0, false, 0};
}

static void end_subject(learn_subject *subject) { test_context_end(&counter, subject->context); }

static void test_cases(void **state) {
    (void)state;
    for (int i = 0; i < DTYPES; i++) {
        learn_subject subject = subject_of(dtypes[i]);
        learn_cases_run(&subject);
        end_subject(&subject);
    }
}

/* ---- many classes ---- */

/* Sixteenths from -1 to 1: the same number in every type, so that logits are exact but for their sums. */
static double *draw_sixteenths(learn_fixture *fixture, int64_t count) {
    double *made = host_new(count);
    for (int64_t i = 0; i < count; i++) made[i] = (random_below(&fixture->random, 33) - 16) / 16.0;
    return made;
}

typedef struct {
    learn_fixture fixture;
    int64_t rows, features, classes;
    double *y, *w, *b, *g; /* on the host; g: [rows, classes] */
    int32_t *targets;
    double weight, loss;
    rcvi_head head;
    void *control, *outcome;
} large;

static void open_large(large *l, const learn_subject *subject, int64_t rows, int64_t features, int64_t classes) {
    *l = (large){.rows = rows, .features = features, .classes = classes, .weight = 32};
    fixture_open(&l->fixture, subject, rows, features, classes, 0, 1000);
    l->y = draw_sixteenths(&l->fixture, rows * features);
    l->w = draw_sixteenths(&l->fixture, classes * features);
    l->b = draw_sixteenths(&l->fixture, classes);
    l->targets = malloc((size_t)rows * sizeof *l->targets);
    assert_non_null(l->targets);
    for (int64_t r = 0; r < rows; r++) l->targets[r] = r % 7 == 3 ? -1 : random_below(&l->fixture.random, (int)classes);
    l->targets[0] = (int32_t)classes - 1; /* the last column, and the first */
    l->targets[1] = 0;
    l->head = (rcvi_head){.rows = rows,
                          .y = fixture_put(&l->fixture, l->y, rows * features),
                          .weight = fixture_put(&l->fixture, l->w, classes * features),
                          .bias = fixture_put(&l->fixture, l->b, classes),
                          .targets = fixture_put_ids(&l->fixture, l->targets, rows),
                          .dy = fixture_poison(&l->fixture, rows * features),
                          .dweight = fixture_poison(&l->fixture, classes * features),
                          .dbias = fixture_poison(&l->fixture, classes)};
    l->control = fixture_control(&l->fixture, &(rcvi_control){.weight = l->weight, .scale = 1});
    l->outcome = fixture_outcome(&l->fixture, NAN, NAN);
}

static void close_large(large *l) {
    free(l->y), free(l->w), free(l->b), free(l->g), free(l->targets);
    fixture_close(&l->fixture);
}

static void loop_large(large *l) {
    l->g = host_new(l->rows * l->classes);
    for (int64_t r = 0; r < l->rows; r++) {
        double *g = l->g + r * l->classes, sum = 0;
        if (l->targets[r] < 0) continue;
        for (int64_t c = 0; c < l->classes; c++) {
            g[c] = l->b[c];
            for (int64_t f = 0; f < l->features; f++) g[c] += l->y[r * l->features + f] * l->w[c * l->features + f];
        }
        double wanted = g[l->targets[r]];
        for (int64_t c = 0; c < l->classes; c++) sum += g[c] = exp(g[c]);
        l->loss += log(sum) - wanted;
        for (int64_t c = 0; c < l->classes; c++) g[c] = l->weight * (g[c] / sum - (c == l->targets[r]));
    }
}

/* One element of a gradient: a sum over n, `operand` of whose terms a rounded gradient may be off. */
static void check_sum(const large *l, const char *what, double got, int64_t n, const double *g, int64_t step,
                      const double *other, int64_t other_step) {
    precision p = fixture_precision(&l->fixture);
    double want = 0, all = 0, sizes = 0;
    for (int64_t i = 0; i < n; i++) {
        double times = other ? other[i * other_step] : 1;
        want += g[i * step] * times;
        all += fabs(g[i * step] * times);
        sizes += fabs(times);
    }
    /* those of the device, and of the loop here, which sums them one after the other */
    double exponentials = 64 * p.unit * (double)l->features + 4 * roundings(l->classes) * 0x1p-53;
    double bound = ((other ? 2 * p.operand : 0) + exponentials + roundings(n) * p.unit) * all;
    if (other) bound += p.tiny * sizes;
    check_near(what, 1, &got, &want, &bound);
}

static void check_large(large *l) {
    int64_t features = l->features, classes = l->classes;
    double *dy = fixture_get(&l->fixture, l->head.dy, l->rows * features),
           *dw = fixture_get(&l->fixture, l->head.dweight, classes * features),
           *db = fixture_get(&l->fixture, l->head.dbias, classes);
    double loss = fixture_get_outcome(&l->fixture, l->outcome).loss;
    double bound =
        (32 * fixture_precision(&l->fixture).unit * (double)features + roundings(classes) * 0x1p-53) * l->loss;
    check_near("loss", 1, &loss, &l->loss, &bound);
    for (int64_t i = 0; i < l->rows * features; i++)
        check_sum(l, "dy", dy[i], classes, l->g + i / features * classes, 1, l->w + i % features, features);
    for (int64_t i = 0; i < classes * features; i++)
        check_sum(l, "dweight", dw[i], l->rows, l->g + i / features, classes, l->y + i % features, features);
    for (int64_t c = 0; c < classes; c++) check_sum(l, "dbias", db[c], l->rows, l->g + c, classes, NULL, 0);
    free(dy), free(dw), free(db);
}

static void test_many_classes(void **state) {
    (void)state;
    /* the first in one chunk, the others in four, the last of them shorter; features in whole pieces of 16 bytes and not */
    static const int64_t shapes[][3] = {{9, 24, 10000}, {900, 20, 10000}, {270, 22, 33278}};
    for (int i = 0; i < DTYPES * 3; i++) {
        const int64_t *s = shapes[i % 3];
        learn_subject subject = subject_of(dtypes[i / 3]);
        large l;
        open_large(&l, &subject, s[0], s[1], s[2]);
        size_t bytes = l.fixture.calls->head_bytes(l.fixture.learn),
               all = (size_t)(s[0] * s[2]) * fixture_real(&l.fixture);
        assert_true(i % 3 == 0 || bytes < all / 2);
        check_ok(l.fixture.calls->head(l.fixture.learn, &l.head, l.control, l.outcome));
        loop_large(&l);
        check_large(&l);
        close_large(&l);
        end_subject(&subject);
    }
}

/* A text of 33,278 words: the logits' memory is less than a quarter of logits and gradients of all rows. */
static void test_memory_for_logits(void **state) {
    (void)state;
    const int64_t rows = 700, classes = 33278;
    for (int i = 0; i < DTYPES; i++) {
        learn_subject subject = subject_of(dtypes[i]);
        rcvi_learn_shape shape = {
            .dtype = dtypes[i], .rows = rows, .features = 650, .classes = classes, .training = true};
        rcvi_learn *learn = NULL;
        check_ok(rcvi_device_cuda.learn->open(subject.context, 0, &shape, &learn));
        size_t all = 2 * (size_t)(rows * classes) * (dtypes[i] == RCV_FLOAT64 ? sizeof(double) : sizeof(float));
        assert_true(rcvi_device_cuda.learn->head_bytes(learn) < all / 4);
        rcvi_device_cuda.learn->close(learn);
        end_subject(&subject);
    }
}

/* ---- arrays that begin anywhere ---- */

/* An array of so many reals that begins `off` reals after a multiple of 256 bytes. */
static void *put_off(learn_fixture *fixture, const double *values, int64_t count, int off) {
    double *moved = host_new(count + off);
    memcpy(moved + off, values, (size_t)count * sizeof *moved);
    char *made = fixture_put(fixture, moved, count + off);
    free(moved);
    return made + (size_t)off * fixture_real(fixture);
}

enum { ODD = 1003, ARRAYS = 5 };

/* The parameters, moments and average after one adamw update; array k begins offs[k] elements after a multiple of 256 bytes. */
static void *update_off(const learn_subject *subject, const int offs[ARRAYS], double *norm) {
    learn_fixture fixture;
    void *arrays[ARRAYS];
    fixture_open(&fixture, subject, 1, 1, 1, 0, 7);
    for (int k = 0; k < ARRAYS; k++) {
        double *values = host_draw(&fixture, ODD, k == 3 ? 0 : -1, 1);
        arrays[k] = put_off(&fixture, values, ODD, offs[k]);
        free(values);
    }
    rcvi_update_part part = {ODD, arrays[0], arrays[1], arrays[2], arrays[3], arrays[4]};
    rcvi_control control = {.scale = 1,
                            .rate = 0.1,
                            .decay = 0.1,
                            .beta1 = 0.9,
                            .beta2 = 0.99,
                            .epsilon = 1e-8,
                            .correction1 = 0.5,
                            .correction2 = 0.25,
                            .average = 0.5};
    void *outcome = fixture_outcome(&fixture, 0, 0);
    rcvi_update update = {.kind = RCVI_ADAMW, .parts = &part, .part_count = 1};
    check_ok(fixture.calls->update(fixture.learn, &update, fixture_control(&fixture, &control), outcome));
    *norm = fixture_get_outcome(&fixture, outcome).norm;
    size_t bytes = ODD * fixture_real(&fixture);
    char *all = malloc(ARRAYS * bytes);
    assert_non_null(all);
    for (int k = 0; k < ARRAYS; k++)
        check_ok(fixture.calls->fetch(fixture.learn, all + (size_t)k * bytes, arrays[k], bytes));
    fixture_close(&fixture);
    return all;
}

static void test_parts_anywhere(void **state) {
    (void)state;
    static const int offs[][ARRAYS] = {{1, 1, 1, 1, 1}, {3, 3, 3, 3, 3}, {2, 1, 0, 3, 1}, {0, 0, 0, 0, 1}};
    for (int i = 0; i < 2; i++) { /* double and float */
        learn_subject subject = subject_of(dtypes[i]);
        double norm = 0, other = 0;
        void *want = update_off(&subject, (const int[ARRAYS]){0}, &norm);
        for (size_t k = 0; k < sizeof offs / sizeof *offs; k++) {
            void *got = update_off(&subject, offs[k], &other);
            assert_memory_equal(got, want, ODD * ARRAYS * (i ? sizeof(float) : sizeof(double)));
            assert_true(fabs(norm - other) <= 1e-12 * norm);
            free(got);
        }
        free(want);
        end_subject(&subject);
    }
}

/* gather, mask and scatter, whose rows begin `off` elements off. */
static void *rows_off(const learn_subject *subject, int64_t columns, int off) {
    enum { ROWS = 6 };
    static const int32_t ids[ROWS] = {2, -1, 0, 2, 1, 2}, count = 3, known[] = {2, 0, 1}, starts[] = {0, 3, 4, 5},
                         order[ROWS] = {0, 3, 5, 2, 4};
    learn_fixture fixture;
    fixture_open(&fixture, subject, ROWS, 1, 1, 0, 9);
    double *values = host_draw(&fixture, ROWS * columns, -1, 1);
    void *table = put_off(&fixture, values, 3 * columns, off), *x = put_off(&fixture, values, ROWS * columns, off),
         *out = put_off(&fixture, values, ROWS * columns, off);
    void *there = fixture_put_ids(&fixture, ids, ROWS);
    rcvi_groups groups = {fixture_put_ids(&fixture, &count, 1), fixture_put_ids(&fixture, known, 3),
                          fixture_put_ids(&fixture, starts, 4), fixture_put_ids(&fixture, order, ROWS)};
    rcvi_mask mask = {.kind = RCVI_MASK_OVER_TIME, .probability = 0.25, .salt = 3, .period = 4};
    void *control = fixture_control(&fixture, &(rcvi_control){.seed = 77});
    check_ok(fixture.calls->gather(fixture.learn, ROWS, columns, there, table, x));
    check_ok(fixture.calls->mask(fixture.learn, ROWS, columns, &mask, control, x, x));
    check_ok(fixture.calls->scatter(fixture.learn, ROWS, columns, &groups, true, x, out));
    void *bits = fixture_get_bits(&fixture, out, ROWS * columns);
    free(values);
    fixture_close(&fixture);
    return bits;
}

static void test_rows_anywhere(void **state) {
    (void)state;
    static const int64_t columns[] = {1, 6, 20, 1500};
    for (int i = 0; i < 2 * 4; i++) {
        learn_subject subject = subject_of(dtypes[i % 2]);
        size_t bytes = (size_t)(6 * columns[i / 2]) * (i % 2 ? sizeof(float) : sizeof(double));
        void *want = rows_off(&subject, columns[i / 2], 0);
        for (int off = 1; off < 4; off++) {
            void *got = rows_off(&subject, columns[i / 2], off);
            assert_memory_equal(got, want, bytes);
            free(got);
        }
        free(want);
        end_subject(&subject);
    }
}

/* ---- what is sent ---- */

/* Much more than is kept on its way, in pieces of many sizes, from memory that is used again at once. */
static void test_sending(void **state) {
    (void)state;
    enum { BYTES = 20 << 20, PIECE = 3 << 20 };
    learn_subject subject = subject_of(RCV_FLOAT32);
    learn_fixture fixture;
    fixture_open(&fixture, &subject, 1, 1, 1, 0, 11);
    unsigned char *piece = malloc(PIECE), *all = calloc(BYTES, 1), *got = malloc(BYTES);
    assert_true(piece && all && got);
    char *there = fixture_put_bytes(&fixture, all, BYTES);
    for (size_t at = 0; at < BYTES;) {
        size_t bytes = 1 + (size_t)random_below(&fixture.random, random_below(&fixture.random, 20) ? 70000 : PIECE);
        if (bytes > BYTES - at) bytes = BYTES - at;
        for (size_t i = 0; i < bytes; i++) all[at + i] = piece[i] = (unsigned char)random_below(&fixture.random, 256);
        check_ok(fixture.calls->send(fixture.learn, there + at, piece, bytes));
        memset(piece, 0xa5, bytes);
        at += bytes;
    }
    check_ok(fixture.calls->fetch(fixture.learn, got, there, BYTES));
    assert_memory_equal(got, all, BYTES);
    free(piece), free(all), free(got);
    fixture_close(&fixture);
    end_subject(&subject);
}

/* ---- steps that repeat ---- */

enum { STEPS = 7, BATCH = 6, ROWS = STEPS * BATCH, INPUT = 24, HIDDEN = 40, WORDS = 300, UPDATES = 6, KEY = 41 };

/* A language model: a table, a network with masks in it and around it, an output layer. */
typedef struct {
    learn_fixture fixture;
    rcv_cell *cell;
    rcv_net *net;
    rcv_plan *plan;
    rcv_run *run;
    bool ragged;
    bool beside;            /* what of the output layer may go beside loops does */
    int64_t lengths[BATCH]; /* of the update, where ragged */
    bool looped;            /* there were loops to go beside */
    int64_t elements;
    void *table, *parameters, *weight, *bias;
    void *x, *y, *z, *dz, *dy, *dx, *dparameters, *dweight, *dbias, *rows;
    void *ids, *targets, *control, *outcome;
    int32_t *count, *known, *starts, *order;
} model;

static void *put_small(learn_fixture *fixture, int64_t count) {
    double *values = host_draw(fixture, count, -0.3, 0.3);
    void *made = fixture_put(fixture, values, count);
    free(values);
    return made;
}

static void open_net(model *m, const learn_subject *subject, const char *schedule) {
    rcv_net_options net = RCV_INIT(rcv_net_options, .input = INPUT, .hidden = HIDDEN, .layers = 2, .dropout = 0.25);
    rcv_plan_options options =
        RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .dtype = subject->dtype, .training = true,
                 .lengths = m->ragged, .schedule = schedule, .device = subject->device->name);
    check_ok(rcv_cell_open(subject->context, "lstm", &m->cell));
    check_ok(rcv_net_new(m->cell, &net, &m->net));
    check_ok(rcv_plan_new(m->net, &options, &m->plan));
    check_ok(rcv_run_new(m->plan, &m->run));
    m->elements = rcv_net_parameter_elements(m->net);
}

static void open_model(model *m, const learn_subject *subject, const char *schedule, bool ragged, int64_t chunk) {
    static const int32_t nothing[ROWS + 1] = {0};
    learn_fixture *fixture = &m->fixture;
    *m = (model){.ragged = ragged};
    fixture_open(fixture, subject, ROWS, HIDDEN, WORDS, chunk, 21);
    open_net(m, subject, schedule);
    m->table = put_small(fixture, WORDS * INPUT);
    m->parameters = put_small(fixture, m->elements);
    m->weight = put_small(fixture, WORDS * HIDDEN);
    m->bias = put_small(fixture, WORDS);
    void **arrays[] = {&m->y, &m->z, &m->dz, &m->dy};
    for (int i = 0; i < 4; i++) *arrays[i] = fixture_poison(fixture, ROWS * HIDDEN);
    m->x = fixture_poison(fixture, ROWS * INPUT);
    m->dx = fixture_poison(fixture, ROWS * INPUT);
    m->rows = fixture_poison(fixture, ROWS * INPUT);
    m->dparameters = fixture_poison(fixture, m->elements);
    m->dweight = fixture_poison(fixture, WORDS * HIDDEN);
    m->dbias = fixture_poison(fixture, WORDS);
    int32_t **lists[] = {&m->count, &m->known, &m->starts, &m->order};
    for (int i = 0; i < 4; i++) *lists[i] = fixture_put_ids(fixture, nothing, ROWS + 1);
    m->ids = fixture_put_ids(fixture, nothing, ROWS);
    m->targets = fixture_put_ids(fixture, nothing, ROWS);
    m->control = fixture_control(fixture, &(rcvi_control){0});
    m->outcome = fixture_outcome(fixture, 0, 0);
    void *stream = fixture->calls->stream(fixture->learn);
    if (stream) check_ok(rcv_run_set_stream(m->run, stream));
    rcvi_run_set_seed_at(m->run, m->control); /* which begins with it */
}

static void close_model(model *m) {
    check_ok(m->fixture.calls->wait(m->fixture.learn));
    fixture_close(&m->fixture); /* before the run, which must not need its stream any more */
    rcv_run_free(m->run);
    rcv_plan_free(m->plan);
    rcv_net_free(m->net);
    rcv_cell_free(m->cell);
}

/* What differs from update to update. */
static void send_update(model *m, int n) {
    int32_t ids[ROWS], targets[ROWS], known[ROWS] = {0}, starts[ROWS + 1] = {0}, order[ROWS] = {0}, count = 0, used = 0;
    learn_fixture *fixture = &m->fixture;
    random_source source = {500 + (uint64_t)n};
    for (int r = 0; r < ROWS; r++) {
        ids[r] = random_below(&source, 20);
        targets[r] = random_below(&source, WORDS + 20) - 20;
        if (targets[r] < 0) targets[r] = -1;
    }
    for (int32_t id = 0; id < 20; id++) {
        int32_t before = used;
        for (int r = 0; r < ROWS; r++)
            if (ids[r] == id) order[used++] = r;
        if (used == before) continue;
        known[count++] = id;
        starts[count] = used;
    }
    rcvi_control control = {.seed = 900 + (uint64_t)n, .weight = 1.0 / ROWS, .scale = 1, .clip = 0.05, .rate = 0.5 + n};
    struct {
        void *to;
        const void *from;
        size_t bytes;
    } sent[] = {{m->ids, ids, sizeof ids},
                {m->targets, targets, sizeof targets},
                {m->count, &count, sizeof count},
                {m->known, known, sizeof known},
                {m->starts, starts, sizeof starts},
                {m->order, order, sizeof order},
                {m->control, &control, sizeof control}};
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++)
        check_ok(fixture->calls->send(fixture->learn, sent[i].to, sent[i].from, sent[i].bytes));
}

static rcv_status take_forward(model *m) {
    rcvi_learn *learn = m->fixture.learn;
    const rcvi_learn_table *calls = m->fixture.calls;
    rcvi_mask input = {.kind = RCVI_MASK_IDS, .probability = 0.1, .salt = 5, .ids = m->ids};
    rcvi_mask output = {.kind = RCVI_MASK_OVER_TIME, .probability = 0.3, .salt = 6, .period = BATCH};
    rcv_forward forward = RCV_INIT(rcv_forward, .parameters = m->parameters, .x = m->x, .y = m->y, .seed = 12345);
    if (m->ragged) forward.lengths = m->lengths;
    RCVI_TRY(calls->gather(learn, ROWS, INPUT, m->ids, m->table, m->x));
    RCVI_TRY(calls->mask(learn, ROWS, INPUT, &input, m->control, m->x, m->x));
    RCVI_TRY(rcv_run_forward(m->run, &forward));
    const rcvi_head head = {.weight = m->weight};
    if (m->beside) RCVI_TRY(calls->prepare_head(learn, &head, rcvi_run_loop_event(m->run, true)));
    return calls->mask(learn, ROWS, HIDDEN, &output, m->control, m->y, m->z);
}

static rcv_status take_backward(model *m) {
    rcvi_learn *learn = m->fixture.learn;
    const rcvi_learn_table *calls = m->fixture.calls;
    rcvi_mask input = {.kind = RCVI_MASK_IDS, .probability = 0.1, .salt = 5, .ids = m->ids};
    rcvi_mask output = {.kind = RCVI_MASK_OVER_TIME, .probability = 0.3, .salt = 6, .period = BATCH};
    rcvi_head head = {.rows = ROWS,
                      .y = m->z,
                      .weight = m->weight,
                      .bias = m->bias,
                      .targets = m->targets,
                      .dy = m->dz,
                      .dweight = m->dweight,
                      .dbias = m->dbias,
                      .rounded = m->beside,
                      .later = m->beside};
    rcv_backward backward = RCV_INIT(rcv_backward, .dy = m->dy, .dx = m->dx, .dparameters = m->dparameters);
    rcvi_groups groups = {m->count, m->known, m->starts, m->order};
    RCVI_TRY(calls->head(learn, &head, m->control, m->outcome));
    RCVI_TRY(calls->mask(learn, ROWS, HIDDEN, &output, m->control, m->dz, m->dy));
    RCVI_TRY(rcv_run_backward(m->run, &backward));
    m->looped |= rcvi_run_loop_event(m->run, false) != NULL;
    if (m->beside) RCVI_TRY(calls->head_gradients(learn, &head, rcvi_run_loop_event(m->run, false)));
    RCVI_TRY(calls->mask(learn, ROWS, INPUT, &input, m->control, m->dx, m->dx));
    return calls->scatter(learn, ROWS, INPUT, &groups, false, m->dx, m->rows);
}

static rcv_status take_step(model *m) {
    const rcvi_update_part parts[] = {{m->elements, m->parameters, m->dparameters, NULL, NULL, NULL},
                                      {WORDS * HIDDEN, m->weight, m->dweight, NULL, NULL, NULL},
                                      {WORDS, m->bias, m->dbias, NULL, NULL, NULL}};
    rcvi_update update = {.kind = RCVI_SGD,
                          .parts = parts,
                          .part_count = 3,
                          .sparse = {.groups = {m->count, m->known, m->starts, m->order},
                                     .rows = ROWS,
                                     .columns = INPUT,
                                     .table = m->table,
                                     .gradient = m->rows}};
    RCVI_TRY(take_forward(m));
    RCVI_TRY(take_backward(m));
    return m->fixture.calls->update(m->fixture.learn, &update, m->control, m->outcome);
}

/* All that an update leaves. */
static uint64_t hash_model(model *m, uint64_t hash) {
    const void *arrays[] = {m->table, m->parameters, m->weight, m->bias, m->y, m->dx};
    const int64_t counts[] = {WORDS * INPUT, m->elements, WORDS * HIDDEN, WORDS, ROWS * HIDDEN, ROWS * INPUT};
    rcvi_outcome outcome = fixture_get_outcome(&m->fixture, m->outcome);
    assert_true(isfinite(outcome.loss) && isfinite(outcome.norm) && outcome.norm > 0.05);
    uint64_t words[2];
    memcpy(words, &outcome, sizeof words);
    hash = ((hash ^ words[0]) * UINT64_C(0x100000001b3) ^ words[1]) * UINT64_C(0x100000001b3);
    for (int i = 0; i < 6; i++) {
        unsigned char *bits = fixture_get_bits(&m->fixture, arrays[i], counts[i]);
        for (size_t k = 0; k < (size_t)counts[i] * fixture_real(&m->fixture); k++)
            hash = (hash ^ bits[k]) * UINT64_C(0x100000001b3);
        free(bits);
    }
    return hash;
}

/* hashes: [UPDATES] one after each update. */
static void learn(const learn_subject *subject, const char *schedule, bool ragged, bool repeats, bool beside,
                  uint64_t *hashes) {
    model m;
    int repeated = 0;
    open_model(&m, subject, schedule, ragged, strstr(schedule, "persistent") ? 0 : 13);
    m.beside = beside;
    for (int n = 0; n < UPDATES; n++) {
        bool done = false;
        send_update(&m, n);
        for (int b = 0; b < BATCH; b++) m.lengths[b] = 1 + (n * 5 + b * 3) % STEPS;
        if (repeats && ragged) check_ok(rcvi_run_set_lengths(m.run, m.lengths));
        if (repeats) check_ok(m.fixture.calls->replay(m.fixture.learn, KEY, &done));
        if (!done) check_ok(take_step(&m));
        if (repeats && !done) check_ok(m.fixture.calls->end_recording(m.fixture.learn, KEY));
        repeated += done;
        hashes[n] = hash_model(&m, 0);
    }
    assert_int_equal(repeated, repeats ? UPDATES - 2 : 0);
    if (strstr(schedule, "persistent") && repeats) assert_true(m.looped);
    close_model(&m);
}

static const char *const schedules[] = {"combine+fuse+pack+merge+graph", "combine(steps=all)+fuse+pack+merge",
                                        "combine+fuse+streams(4)", "naive+graph",
                                        "combine(steps=all)+fuse+interpret+graph"};

static void test_repeating(void **state) {
    (void)state;
    for (int i = 0; i < DTYPES * 5; i++) {
        learn_subject subject = subject_of(dtypes[i / 5]);
        uint64_t want[UPDATES], got[UPDATES];
        bool ragged = i % 5 == 4; /* with lengths, which differ from update to update: the first schedule */
        learn(&subject, schedules[i % 5 % 4], ragged, false, false, want);
        learn(&subject, schedules[i % 5 % 4], ragged, true, i % 2, got);
        for (int n = 0; n < UPDATES; n++) {
            assert_true(got[n] == want[n]);
            if (n) assert_true(want[n] != want[n - 1]);
        }
        end_subject(&subject);
    }
}

/* Weights rounded and gradients of the output layer beside the network's loops, and gradients of a layer beside the loop of another, give
 * the same bits as one after the other. */
static void test_beside(void **state) {
    (void)state;
    static const char *const plans[] = {"combine(steps=all)+fuse+pack+merge+persistent+streams(2)+graph",
                                        "combine(steps=all)+fuse+pack+merge+persistent+streams(4)",
                                        "combine(steps=all)+fuse+pack+persistent+streams(3)"};
    for (int i = 0; i < DTYPES * 3; i++) {
        learn_subject subject = subject_of(dtypes[i / 3]);
        uint64_t want[UPDATES], got[UPDATES], alone[UPDATES];
        char plain[80];
        const char *plan = plans[i % 3];
        size_t length = (size_t)(strstr(plan, "+streams") - plan);
        snprintf(plain, sizeof plain, "%.*s", (int)length, plan);
        if (subject.dtype != RCV_FLOAT64) {
            learn(&subject, plain, false, false, false, want);
            learn(&subject, plan, false, true, true, got);
            learn(&subject, plan, false, false, true, alone);
            for (int n = 0; n < UPDATES; n++) assert_true(got[n] == want[n] && alone[n] == want[n]);
        }
        end_subject(&subject);
    }
}

/* More keys than are kept: those that were not used for long are recorded again. */
static void test_many_keys(void **state) {
    (void)state;
    enum { KEYS = 100, COUNT = 5 };
    learn_subject subject = subject_of(RCV_FLOAT32);
    learn_fixture fixture;
    fixture_open(&fixture, &subject, 1, 1, 1, 0, 31);
    double zeros[COUNT] = {0}, ones[COUNT] = {1, 1, 1, 1, 1};
    void *table = fixture_put(&fixture, ones, COUNT), *out = fixture_put(&fixture, zeros, COUNT);
    const int32_t one = 1, none = 0, starts[] = {0, 1};
    rcvi_groups groups = {fixture_put_ids(&fixture, &one, 1), fixture_put_ids(&fixture, &none, 1),
                          fixture_put_ids(&fixture, starts, 2), fixture_put_ids(&fixture, &none, 1)};
    for (int k = 0; k < 3 * KEYS + 3; k++) { /* out += table, once a key and round, and key 7 three times more */
        uint64_t key = k < 3 * KEYS ? (uint64_t)(k % KEYS) : 7;
        bool done = false;
        check_ok(fixture.calls->replay(fixture.learn, key, &done));
        assert_int_equal(done, k == 3 * KEYS + 2);
        if (done) continue;
        check_ok(fixture.calls->scatter(fixture.learn, 1, COUNT, &groups, true, table, out));
        check_ok(fixture.calls->end_recording(fixture.learn, key));
    }
    double *got = fixture_get(&fixture, out, COUNT);
    for (int i = 0; i < COUNT; i++) assert_true(got[i] == 3 * KEYS + 3);
    free(got);
    fixture_close(&fixture);
    end_subject(&subject);
}

/* What cannot be recorded is refused with a sentence, and can still be done. */
static void test_abandoning(void **state) {
    (void)state;
    learn_subject subject = subject_of(RCV_FLOAT32);
    model m;
    bool done = false;
    float number = 1;
    open_model(&m, &subject, schedules[0], false, 13);
    const rcvi_learn_table *calls = m.fixture.calls;
    rcvi_learn *learn = m.fixture.learn;
    rcvi_run_set_seed_at(m.run, NULL);
    send_update(&m, 0);
    check_ok(calls->replay(learn, KEY, &done));
    check_ok(take_step(&m));
    check_ok(calls->end_recording(learn, KEY));
    uint64_t before = hash_model(&m, 0);
    check_ok(calls->replay(learn, KEY, &done));
    assert_false(done);
    check_fails(calls->send(learn, m.bias, &number, sizeof number), RCV_INVALID, "data cannot be sent");
    check_fails(calls->wait(learn), RCV_INVALID, "waited for");
    check_fails(take_step(&m), RCV_UNSUPPORTED, "give its seed in the GPU's memory");
    calls->cancel_recording(learn, KEY);
    assert_true(hash_model(&m, 0) != 0);
    for (int n = 0; n < 3; n++) { /* it is no longer recorded, but done */
        check_ok(calls->replay(learn, KEY, &done));
        assert_false(done);
        check_ok(take_step(&m));
        check_ok(calls->end_recording(learn, KEY));
        assert_true(hash_model(&m, 0) != before);
    }
    close_model(&m);
    end_subject(&subject);
}

/* ---- runs in the memory of others ---- */

enum { GUEST_STEPS = 4 };

/* A pass forwards and back through `run`; y and the gradient of the parameters are added to the hash. */
static uint64_t pass_through(model *m, rcv_run *run, int64_t steps, uint64_t hash) {
    rcv_forward forward = RCV_INIT(rcv_forward, .parameters = m->parameters, .x = m->x, .y = m->y, .seed = 5);
    rcv_backward backward = RCV_INIT(rcv_backward, .dy = m->dz, .dx = m->dx, .dparameters = m->dparameters);
    check_ok(rcv_run_forward(run, &forward));
    check_ok(rcv_run_backward(run, &backward));
    check_ok(rcv_run_wait(run));
    const void *arrays[] = {m->y, m->dparameters};
    const int64_t counts[] = {steps * BATCH * HIDDEN, m->elements};
    for (int i = 0; i < 2; i++) {
        unsigned char *bits = fixture_get_bits(&m->fixture, arrays[i], counts[i]);
        for (size_t k = 0; k < (size_t)counts[i] * fixture_real(&m->fixture); k++)
            hash = (hash ^ bits[k]) * UINT64_C(0x100000001b3);
        free(bits);
    }
    return hash;
}

/* Two runs alternate in one arena, each with its scratch reset before, and give the bits of separate runs. */
static void test_sharing(void **state) {
    (void)state;
    static const char *const plans[] = {"combine(steps=all)+fuse+pack+merge+persistent+graph",
                                        "combine+fuse+pack+merge+graph"};
    for (int i = 0; i < 4; i++) {
        learn_subject subject = subject_of(i < 2 ? RCV_BFLOAT16 : RCV_FLOAT32);
        model m;
        open_model(&m, &subject, plans[i % 2], false, 13);
        rcvi_run_set_seed_at(m.run, NULL);
        m.x = put_small(&m.fixture, ROWS * INPUT);
        m.dz = put_small(&m.fixture, ROWS * HIDDEN);
        check_ok(m.fixture.calls->wait(m.fixture.learn)); /* runs below are on another stream */
        rcv_plan_options options =
            RCV_INIT(rcv_plan_options, .steps = GUEST_STEPS, .batch = BATCH, .dtype = subject.dtype, .training = true,
                     .schedule = plans[i % 2], .device = subject.device->name);
        rcv_plan *plan;
        rcv_run *alone, *guest, *host;
        check_ok(rcv_plan_new(m.net, &options, &plan));
        check_ok(rcv_run_new(plan, &alone));
        check_ok(rcv_run_new(m.plan, &host));
        check_ok(rcvi_run_new_sharing_arena(plan, host, &guest));
        assert_true(rcv_run_bytes(guest) < rcv_run_bytes(alone));
        uint64_t whole = pass_through(&m, m.run, STEPS, 0), part = pass_through(&m, alone, GUEST_STEPS, 0);
        assert_true(whole != part);
        for (int n = 0; n < 3; n++) {
            check_ok(rcvi_run_reset(host));
            assert_true(pass_through(&m, host, STEPS, 0) == whole);
            check_ok(rcvi_run_reset(guest));
            assert_true(pass_through(&m, guest, GUEST_STEPS, 0) == part);
        }
        rcv_run_free(guest);
        rcv_run_free(host);
        rcv_run_free(alone);
        rcv_plan_free(plan);
        close_model(&m);
        end_subject(&subject);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_many_classes),
        cmocka_unit_test(test_memory_for_logits),
        cmocka_unit_test(test_parts_anywhere),
        cmocka_unit_test(test_rows_anywhere),
        cmocka_unit_test(test_sending),
        cmocka_unit_test(test_repeating),
        cmocka_unit_test(test_beside),
        cmocka_unit_test(test_many_keys),
        cmocka_unit_test(test_abandoning),
        cmocka_unit_test(test_sharing),
    };
    return has_gpu() ? cmocka_run_group_tests(tests, NULL, NULL) : SKIPPED;
}
