/* Models and learners on a device whose memory is not the host's, without a GPU: the CPU's engine under another name, with memory of its own. Every
 * array that it is given must lie in that memory, and every array that is copied on the right side. Results have the bits of the CPU. */
#define _XOPEN_SOURCE 700

#include "scratch.h"
#include "train_fixture.h"

#include "device/learn.h"

#include <math.h>

/* ---- the device's memory ---- */

enum { BLOCKS = 512, ENTRIES = 256, POISON = 0xcb };

static struct {
    char *begin;
    size_t bytes;
} blocks[BLOCKS];

static bool is_far(const void *address) {
    for (size_t i = 0; i < BLOCKS; i++) {
        const char *at = address;
        if (blocks[i].begin && at >= blocks[i].begin && at < blocks[i].begin + blocks[i].bytes + 1) return true;
    }
    return false;
}

static size_t far_blocks(void) {
    size_t count = 0;
    for (size_t i = 0; i < BLOCKS; i++) count += blocks[i].begin != NULL;
    return count;
}

static rcv_status far_allocate(int ordinal, size_t bytes, void **memory) {
    (void)ordinal;
    size_t i = 0;
    while (i < BLOCKS && blocks[i].begin) i++;
    assert_true(i < BLOCKS);
    blocks[i].bytes = bytes;
    blocks[i].begin = *memory = aligned_alloc(256, (bytes + 511) / 256 * 256);
    assert_non_null(*memory);
    memset(*memory, POISON, bytes);
    return RCV_OK;
}

static void far_release(int ordinal, void *memory) {
    (void)ordinal;
    for (size_t i = 0; i < BLOCKS; i++) {
        if (blocks[i].begin != memory) continue;
        blocks[i].begin = NULL;
        free(memory);
        return;
    }
    fail_msg("memory is released that is not the device's");
}

static rcv_status far_write(int ordinal, void *to, const void *from, size_t bytes) {
    (void)ordinal;
    if (!is_far(to) || is_far(from)) fail_msg("%zu bytes are written, not from the host to the device", bytes);
    memcpy(to, from, bytes);
    return RCV_OK;
}

static rcv_status far_read(int ordinal, void *to, const void *from, size_t bytes) {
    (void)ordinal;
    if (is_far(to) || !is_far(from)) fail_msg("%zu bytes are read, not from the device to the host", bytes);
    memcpy(to, from, bytes);
    return RCV_OK;
}

static const rcvi_memory far_memory = {
    .allocate = far_allocate, .release = far_release, .write = far_write, .read = far_read};

/* ---- programs ---- */

static struct {
    const void *key; /* an engine or a worker */
    const rcvi_program *program;
} programs[ENTRIES];

static void remember(const void *key, const rcvi_program *program) {
    size_t i = 0;
    while (i < ENTRIES && programs[i].key && programs[i].key != key) i++;
    assert_true(i < ENTRIES);
    programs[i].key = key;
    programs[i].program = program;
}

static const rcvi_program *program_of(const void *key) {
    for (size_t i = 0; i < ENTRIES; i++)
        if (programs[i].key == key) return programs[i].program;
    fail_msg("an engine that was not prepared");
    return NULL;
}

static rcv_status far_prepare(const rcvi_program *program, rcvi_engine **engine) {
    rcv_status status = rcvi_device_cpu.prepare(program, engine);
    if (!status) remember(*engine, program);
    return status;
}

static rcv_status far_open(const rcvi_engine *engine, rcvi_worker **worker) {
    rcv_status status = rcvi_device_cpu.open(engine, worker);
    if (!status) remember(*worker, program_of(engine));
    return status;
}

static rcv_status far_run(rcvi_worker *worker, size_t first, size_t end, const rcvi_binding *binding, void *scratch) {
    const rcvi_program *program = program_of(worker);
    for (size_t i = 0; i < program->external_count; i++) {
        const rcvi_buffer *buffer = &program->buffers[program->externals[i]];
        const void *at = binding->buffers[program->externals[i]];
        if (at && is_far(at) == (buffer->role == RCVI_LENGTHS))
            fail_msg("%s is not where the device expects it", buffer->name);
    }
    return rcvi_device_cpu.run(worker, first, end, binding, scratch);
}

static rcv_status far_clear(rcvi_worker *worker, void *to, size_t bytes, void *scratch, void *stream) {
    if (!is_far(to)) fail_msg("%zu bytes are cleared that are not the device's", bytes);
    return rcvi_device_cpu.clear(worker, to, bytes, scratch, stream);
}

/* ---- learning ---- */

static rcv_status far_send(rcvi_learn *learn, void *to, const void *from, size_t bytes) {
    (void)learn;
    return far_write(0, to, from, bytes);
}

static rcv_status far_fetch(rcvi_learn *learn, void *to, const void *from, size_t bytes) {
    (void)learn;
    return far_read(0, to, from, bytes);
}

static rcv_status far_gather(rcvi_learn *learn, int64_t rows, int64_t columns, const int32_t *ids, const void *table,
                             void *out) {
    assert_true(is_far(ids) && is_far(table) && is_far(out));
    return rcvi_device_cpu.learn->gather(learn, rows, columns, ids, table, out);
}

static rcv_status far_logits(rcvi_learn *learn, const rcvi_head *head, void *out) {
    assert_true(is_far(head->y) && is_far(head->weight) && is_far(head->bias) && is_far(out));
    return rcvi_device_cpu.learn->logits(learn, head, out);
}

/* ---- instead of src/device/device.c ---- */

static rcvi_device far;
static rcvi_learn_table far_learn;
const rcvi_device *const rcvi_devices[] = {&rcvi_device_cpu, &far};
const size_t rcvi_device_count = 2;

rcv_status rcvi_device_find(const char *text, const rcvi_device **device, int *ordinal) {
    *ordinal = 0;
    *device = text && !strcmp(text, "far") ? &far : &rcvi_device_cpu;
    return RCV_OK;
}

static int set_up(void **state) {
    far_learn = *rcvi_device_cpu.learn;
    far_learn.send = far_send;
    far_learn.fetch = far_fetch;
    far_learn.gather = far_gather;
    far_learn.logits = far_logits;
    far = rcvi_device_cpu;
    far.name = "far";
    far.memory = &far_memory;
    far.learn = &far_learn;
    far.prepare = far_prepare;
    far.open = far_open;
    far.run = far_run;
    far.clear = far_clear;
    return scratch_set_up(state);
}

/* ---- models ---- */

enum { STEPS = 5, BATCH = 2, INPUT = 3, HIDDEN = 6 };

typedef struct {
    test_allocator counting;
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    rcv_model *model;
    float x[STEPS * BATCH * INPUT];
} subject;

static void open_subject(subject *self, bool bidirectional) {
    self->context = test_context(&self->counting);
    check_ok(rcv_cell_open(self->context, "lstm", &self->cell));
    check_ok(rcv_net_new(
        self->cell,
        &RCV_INIT(rcv_net_options, .input = INPUT, .hidden = HIDDEN, .layers = 2, .bidirectional = bidirectional),
        &self->net));
    check_ok(rcv_model_new(self->net, RCV_FLOAT32, 5, &self->model));
    for (int i = 0; i < STEPS * BATCH * INPUT; i++) self->x[i] = (float)sin(0.2 + 1.3 * i);
}

static void close_subject(subject *self) {
    rcv_model_free(self->model);
    rcv_net_free(self->net);
    rcv_cell_free(self->cell);
    test_context_end(&self->counting, self->context);
    assert_int_equal(far_blocks(), 0);
}

static void add(rcv_tensors *tensors, const char *name, rcv_dtype dtype, int dims, int64_t a, int64_t b, int64_t c,
                const void *data) {
    rcv_tensor tensor = {.name = name, .dtype = dtype, .dims = dims, .shape = {a, b, c}, .data = data};
    tensor.bytes = rcv_dtype_bytes(dtype) * (size_t)(a * (dims > 1 ? b : 1) * (dims > 2 ? c : 1));
    check_ok(rcv_tensors_add(tensors, &tensor));
}

/* Every tensor of rcv_model_run, gradients included. */
static void tensors(void **state) {
    (void)state;
    subject s;
    rcv_tensors *in, *here, *there;
    float values[STEPS * BATCH * 2 * HIDDEN];
    const int64_t lengths[BATCH] = {5, 3};
    const uint8_t resets[STEPS * BATCH] = {0, 0, 1, 0, 0, 1};
    open_subject(&s, true);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) values[i] = (float)cos(0.7 * (double)i);
    check_ok(rcv_tensors_new(s.context, &in));
    add(in, "x", RCV_FLOAT32, 3, STEPS, BATCH, INPUT, s.x);
    add(in, "lengths", RCV_INT64, 1, BATCH, 0, 0, lengths);
    add(in, "resets", RCV_UINT8, 2, STEPS, BATCH, 0, resets);
    add(in, "h", RCV_FLOAT32, 3, 4, BATCH, HIDDEN, values);
    add(in, "c.restart", RCV_FLOAT32, 3, 4, BATCH, HIDDEN, values + 7);
    add(in, "dy", RCV_FLOAT32, 3, STEPS, BATCH, 2 * HIDDEN, values);
    add(in, "c.final.grad", RCV_FLOAT32, 3, 4, BATCH, HIDDEN, values + 3);
    for (int gradients = 0; gradients < 2; gradients++) {
        rcv_model_run_options options = RCV_INIT(rcv_model_run_options, .gradients = gradients == 1, .threads = 1);
        check_ok(rcv_model_run(s.model, in, &options, &here));
        options.device = "far";
        check_ok(rcv_model_run(s.model, in, &options, &there));
        assert_int_equal(rcv_tensors_count(here), rcv_tensors_count(there));
        for (size_t i = 0; i < rcv_tensors_count(here); i++) {
            const rcv_tensor *a = rcv_tensors_at(here, i), *b = rcv_tensors_at(there, i);
            if (strcmp(a->name, b->name) || a->bytes != b->bytes || memcmp(a->data, b->data, a->bytes))
                fail_msg("%s differs", a->name);
        }
        rcv_tensors_free(there);
        rcv_tensors_free(here);
        assert_int_equal(far_blocks(), 0);
    }
    rcv_tensors_free(in);
    close_subject(&s);
}

/* Steps, a reset of a row, states out and in, and changed parameters: y and states of it all. */
static void use_stream(subject *s, rcv_stream *stream, float *y, float *states) {
    enum { FRAME = BATCH * INPUT, OUT = BATCH * HIDDEN };
    int64_t count = rcv_stream_state_elements(stream);
    float *parameters = rcv_model_parameters(s->model);
    check_ok(rcv_stream_step(stream, s->x, 1, y));
    check_ok(rcv_stream_step(stream, s->x + FRAME, 2, NULL));
    check_ok(rcv_stream_get_states(stream, -1, states));
    check_ok(rcv_stream_reset(stream, (const uint8_t[BATCH]){1, 0}));
    check_ok(rcv_stream_step(stream, s->x + 3 * FRAME, 2, y + OUT));
    check_ok(rcv_stream_get_states(stream, 1, states + BATCH * count));
    check_ok(rcv_stream_set_states(stream, 0, states + count));
    check_ok(rcv_stream_step(stream, s->x, 1, y + 3 * OUT));
    parameters[3] += 0.5f;
    check_ok(rcv_stream_reload(stream));
    check_ok(rcv_stream_step(stream, s->x, 1, y + 4 * OUT));
    check_ok(rcv_stream_set_states(stream, -1, states));
    check_ok(rcv_stream_step(stream, s->x, 1, y + 5 * OUT));
    check_ok(rcv_stream_reset(stream, NULL));
    check_ok(rcv_stream_step(stream, s->x, 1, y + 6 * OUT));
    parameters[3] -= 0.5f;
}

static void streams(void **state) {
    (void)state;
    subject s;
    rcv_stream *here, *there;
    float y[2][7 * BATCH * HIDDEN], states[2][3 * 4 * HIDDEN];
    open_subject(&s, false);
    rcv_stream_options options =
        RCV_INIT(rcv_stream_options, .batch = BATCH, .most = 2, .threads = 1, .schedule = "combine+fuse+pack");
    memset(y, 0, sizeof y);
    check_ok(rcv_stream_new_model(s.model, &options, &here));
    options.device = "far";
    check_ok(rcv_stream_new_model(s.model, &options, &there));
    use_stream(&s, here, y[0], states[0]);
    use_stream(&s, there, y[1], states[1]);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_equal(states[0], states[1], sizeof states[0]);
    rcv_stream_free(there);
    /* Frames and outputs in the device's memory. */
    void *x = NULL, *out = NULL;
    options.on_device = true;
    check_ok(rcv_memory_new(s.context, "far", sizeof s.x, &x));
    check_ok(rcv_memory_new(s.context, "far", sizeof y[0], &out));
    check_ok(rcv_memory_write("far", x, s.x, sizeof s.x));
    check_ok(rcv_stream_new_model(s.model, &options, &there));
    check_ok(rcv_stream_reload(here));
    check_ok(rcv_stream_reset(here, NULL));
    for (int t = 0; t < 2; t++) {
        check_ok(rcv_stream_step(here, s.x + t * BATCH * INPUT, 2, y[0]));
        check_ok(rcv_stream_step(there, (const float *)x + t * BATCH * INPUT, 2, out));
        check_ok(rcv_stream_wait(there));
        check_ok(rcv_memory_read("far", y[1], out, 2 * BATCH * HIDDEN * sizeof(float)));
        assert_memory_equal(y[0], y[1], 2 * BATCH * HIDDEN * sizeof(float));
    }
    rcv_stream_free(there);
    rcv_stream_free(here);
    rcv_memory_free(s.context, "far", x);
    rcv_memory_free(s.context, "far", out);
    close_subject(&s);
}

/* ---- learners ---- */

enum { SEQUENCES = 70, LENGTH = 140 };

static rcv_learner *learner_on(train_fixture *f, const char *device, const char *line, const rcv_data *data) {
    char all[256];
    rcv_learner *learner = NULL;
    snprintf(all, sizeof all, "device=%s hidden=5 init=0.5 %s", device, line);
    rcv_settings *settings = train_fixture_settings(f, all);
    check_ok(rcv_learner_new(f->context, settings, data, &learner));
    rcv_settings_free(settings);
    return learner;
}

/* Predictions, steps of a stream, and of tokens: all outputs of one learner. */
static size_t use_learner(rcv_learner *l, char *out) {
    static int64_t tokens[LENGTH * SEQUENCES], lengths[SEQUENCES];
    static float x[LENGTH * SEQUENCES * 2];
    bool numbers = rcv_learner_features(l) > 0, each = rcvi_predicts_steps(l);
    size_t row = (size_t)rcv_learner_outputs(l) * rcv_dtype_bytes(rcv_learner_dtype(l)), used = 0;
    for (int i = 0; i < LENGTH * SEQUENCES; i++) {
        tokens[i] = i * 3 % 7;
        x[2 * i] = (float)sin(i);
        x[2 * i + 1] = (float)cos(i);
    }
    for (int i = 0; i < SEQUENCES; i++) lengths[i] = 1 + i * 17 % LENGTH;
    for (int last = 0; last < 2; last++) {
        check_ok(
            rcv_learner_predict(l, &RCV_INIT(rcv_prediction, .steps = LENGTH, .batch = SEQUENCES,
                                             .x = numbers ? x : NULL, .tokens = numbers ? NULL : tokens,
                                             .lengths = lengths, .last = last == 1, .out = out + used, .threads = 1)));
        used += row * SEQUENCES * (each && !last ? LENGTH : 1);
    }
    if (rcv_net_get_options(rcv_learner_net(l))->bidirectional) return used;
    rcv_stream *stream = NULL;
    check_ok(rcv_stream_new_learner(
        l, &RCV_INIT(rcv_stream_options, .batch = 2, .most = 3, .threads = 1, .effort = RCV_ESTIMATE), &stream));
    for (int t = 0; t < 4; t++) {
        int steps = t % 3 + 1;
        const char *frames = numbers ? (const char *)(x + 4 * t) : (const char *)(tokens + 2 * t);
        check_ok(rcv_stream_step(stream, frames, steps, t == 1 ? NULL : out + used));
        if (t != 1) used += row * 2 * (size_t)steps;
    }
    rcv_stream_free(stream);
    return used;
}

typedef struct {
    char text[256];
    size_t length;
} writing;

static bool collect(void *user, const char *text, size_t length) {
    writing *w = user;
    assert_true(w->length + length < sizeof w->text);
    memcpy(w->text + w->length, text, length);
    w->length += length;
    return true;
}

static void learners(void **state) {
    (void)state;
    static const struct {
        rcv_data_kind kind;
        const char *settings;
    } models[] = {{RCV_DATA_STREAM, "kind=stream cell=lstm layers=2"},
                  {RCV_DATA_LINES, "kind=lines cell=gru dtype=float64"},
                  {RCV_DATA_CLASSES, "kind=classes cell=lstm bidirectional=true"},
                  {RCV_DATA_VALUES, "kind=values cell=sru dtype=float64"},
                  {RCV_DATA_CLASSES, "kind=classes cell=lstm"},
                  {RCV_DATA_STEP_CLASSES, "kind=step-classes cell=lstm layers=2"},
                  {RCV_DATA_STEP_VALUES, "kind=step-values cell=gru bidirectional=true dtype=float64"}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        train_fixture f;
        train_fixture_open(&f);
        rcv_data_kind kind = models[i].kind;
        const rcv_data *data = train_fixture_data(&f, "train", kind, train_fixture_text(kind), NULL);
        rcv_learner *here = learner_on(&f, "cpu", models[i].settings, data),
                    *there = learner_on(&f, "far", models[i].settings, data);
        size_t room = (size_t)(rcv_learner_outputs(here) * 8 * (SEQUENCES + 20) * (LENGTH + 2));
        char *a = malloc(room), *b = malloc(room);
        size_t used = use_learner(here, a);
        assert_true(used <= room);
        assert_int_equal(use_learner(there, b), used);
        assert_memory_equal(a, b, used);
        if (kind == RCV_DATA_STREAM) {
            writing written[2] = {{"", 0}, {"", 0}};
            const rcv_generation options =
                RCV_INIT(rcv_generation, .prompt = "the cat", .prompt_bytes = 7, .count = 20, .temperature = 1);
            check_ok(rcv_learner_generate(here, &options, collect, &written[0]));
            check_ok(rcv_learner_generate(there, &options, collect, &written[1]));
            assert_true(written[0].length > 20);
            assert_memory_equal(written[0].text, written[1].text, sizeof written[0].text);
        }
        free(a);
        free(b);
        rcv_learner_free(there);
        rcv_learner_free(here);
        train_fixture_close(&f);
        assert_int_equal(far_blocks(), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors),
        cmocka_unit_test(streams),
        cmocka_unit_test(learners),
    };
    return cmocka_run_group_tests(tests, set_up, scratch_tear_down);
}
