/* One computation cut in several ways gives the same bits: over calls, over sequences, over documents.
 *
 * Cutting over calls is for one direction only: the reverse direction of a first call would need the second's steps. */
#include "probe.h"
#include "sample.h"

#include <math.h>

enum { MAX_STATES = 16, INPUT = 3, HIDDEN = 4, LAYERS = 2 };

typedef struct {
    rcv_context *context;
    test_allocator allocator;
    rcv_cell *cell;
    rcv_net *net;
    rcv_dtype dtype;
    size_t item, states, output;
    void *parameters;
    random_source source;
    const char *schedule;
    size_t turn; /* changes from cell to cell */
} fixture;

static void *array(const fixture *self, size_t count) {
    void *bytes = malloc((count + 1) * self->item);
    assert_non_null(bytes);
    memset(bytes, 0xff, (count + 1) * self->item); /* NaN in both types */
    return bytes;
}

static void set(const fixture *self, void *values, size_t index, double value) {
    if (self->dtype == RCV_FLOAT64)
        ((double *)values)[index] = value;
    else
        ((float *)values)[index] = (float)value;
}

static double get(const fixture *self, const void *values, size_t index) {
    return self->dtype == RCV_FLOAT64 ? ((const double *)values)[index] : (double)((const float *)values)[index];
}

static void *drawn(fixture *self, size_t count, double from, double to) {
    void *values = array(self, count);
    for (size_t i = 0; i < count; i++) set(self, values, i, random_between(&self->source, from, to));
    return values;
}

static const char *at(const fixture *self, const void *values, size_t index) {
    return (const char *)values + index * self->item;
}

static bool same(const fixture *self, const void *a, size_t a_index, const void *b, size_t b_index, size_t count) {
    return memcmp(at(self, a, a_index), at(self, b, b_index), count * self->item) == 0;
}

static void copy(const fixture *self, void *to, size_t to_index, const void *from, size_t from_index, size_t count) {
    memcpy((char *)to + to_index * self->item, at(self, from, from_index), count * self->item);
}

/* An assertion that names the cell. */
#define must(self, condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            fail_msg("%s in %s by %s: not %s", rcv_cell_name((self)->cell), rcv_dtype_name((self)->dtype),             \
                     (self)->schedule, #condition);                                                                    \
    } while (0)

/* What no built-in cell has: an output that is computed after the time loop and kept for the derivative, and one that is
 * a product of blocks while the layer above reads its input element by element. */
static const char *const own_cells[] = {
    "cell readout(x) {\n    state h\n    matrix V\n    h' = tanh(W x + U h + b)\n    return tanh(V h')\n}\n",
    "cell headed(x) {\n    size heads = 2\n    state h\n    matrix R blocks heads\n"
    "    h' = tanh(W x + U h + b) + 0.1 * shortcut(x)\n    return R h'\n}\n",
};
enum { OWN_CELLS = sizeof own_cells / sizeof *own_cells };

static void set_up(fixture *self, size_t cell, rcv_dtype dtype, bool bidirectional) {
    memset(self, 0, sizeof *self);
    self->context = test_context(&self->allocator);
    self->dtype = dtype;
    self->item = dtype == RCV_FLOAT64 ? sizeof(double) : sizeof(float); /* of what the caller gives */
    if (cell < rcv_builtin_count()) {
        check_ok(rcv_cell_open(self->context, rcv_builtin_name(cell), &self->cell));
    } else {
        const char *text = own_cells[cell - rcv_builtin_count()];
        check_ok(rcv_cell_parse(self->context, text, strlen(text), "own.cell", &self->cell));
    }
    self->source.state = random_seed_of(rcv_cell_name(self->cell));
    rcv_net_options options =
        RCV_INIT(rcv_net_options, .input = INPUT, .hidden = HIDDEN, .layers = LAYERS, .bidirectional = bidirectional);
    check_ok(rcv_net_new(self->cell, &options, &self->net));
    self->states = rcv_net_state_count(self->net);
    assert_true(self->states <= MAX_STATES);
    self->output = (size_t)rcv_net_output(self->net);
    self->parameters = drawn(self, (size_t)rcv_net_parameter_elements(self->net), -0.8, 0.8);
}

static void tear_down(fixture *self) {
    free(self->parameters);
    rcv_net_free(self->net);
    rcv_cell_free(self->cell);
    test_context_end(&self->allocator, self->context);
}

/* A tensor of each state. */
typedef struct {
    void *of[MAX_STATES];
} state_set;

static size_t state_count(const fixture *self, size_t s, size_t batch) {
    return (size_t)rcv_net_state(self->net, s)->total * batch;
}

static state_set new_states(const fixture *self, size_t batch) {
    state_set set = {{NULL}};
    for (size_t s = 0; s < self->states; s++) set.of[s] = array(self, state_count(self, s, batch));
    return set;
}

static state_set drawn_states(fixture *self, size_t batch) {
    state_set set = {{NULL}};
    for (size_t s = 0; s < self->states; s++) set.of[s] = drawn(self, state_count(self, s, batch), 0.1, 0.9);
    return set;
}

static void free_states(const fixture *self, state_set *set) {
    for (size_t s = 0; s < self->states; s++) free(set->of[s]);
}

/* What visits the blocks [batch, size] of a state tensor: its offset is `blocks before * batch`. */
typedef void visit_block(const fixture *self, size_t s, bool reverse, size_t before, size_t size, void *user);

static void each_block(const fixture *self, visit_block *visit, void *user) {
    bool both = rcv_net_get_options(self->net)->bidirectional;
    for (size_t s = 0; s < self->states; s++) {
        size_t before = 0;
        for (int layer = 0; layer < LAYERS; layer++) {
            for (int reverse = 0; reverse <= both; reverse++) {
                size_t size = (size_t)rcv_net_state_size(self->net, s, layer, reverse);
                visit(self, s, reverse, before, size, user);
                before += size;
            }
        }
    }
}

typedef struct {
    size_t steps, batch;
    const void *x;
    const int64_t *lengths;
    const uint8_t *resets;
    const state_set *initial, *restart;
    void *y;
    state_set *final;
    const void *dy; /* NULL: inference */
    const state_set *dfinal;
    void *dx;
    state_set *dinitial;
} call;

static void run_call(const fixture *self, const call *c) {
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    rcv_plan_options options =
        RCV_INIT(rcv_plan_options, .steps = (int64_t)c->steps, .batch = (int64_t)c->batch, .dtype = self->dtype,
                 .training = c->dy, .lengths = c->lengths, .resets = c->resets, .schedule = self->schedule);
    check_ok(rcv_plan_new(self->net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    rcv_forward data =
        RCV_INIT(rcv_forward, .parameters = self->parameters, .x = c->x, .lengths = c->lengths, .resets = c->resets,
                 .initial = c->initial ? (const void *const *)c->initial->of : NULL,
                 .restart = c->restart ? (const void *const *)c->restart->of : NULL, .y = c->y, .final = c->final->of);
    check_ok(rcv_run_forward(run, &data));
    rcv_backward back = RCV_INIT(rcv_backward, .dy = c->dy, .dx = c->dx);
    if (c->dfinal) back.dfinal = (const void *const *)c->dfinal->of;
    if (c->dinitial) back.dinitial = c->dinitial->of;
    if (c->dy) check_ok(rcv_run_backward(run, &back));
    rcv_run_free(run);
    rcv_plan_free(plan);
}

/* ---- over calls -------------------------------------------------------------------------------------------------- */

enum { STEPS = 7, CUT = 3, BATCH = 3 };

typedef struct {
    bool ragged, resets, restart, training;
} manner;

/* The results of the whole call, and of the two calls that it is split into. */
typedef struct {
    void *x, *dy, *y[2], *dx[2]; /* whole, parts */
    state_set initial, restart, middle, final[2], dfinal, dmiddle, dinitial[2];
} cut_data;

static cut_data new_cut(fixture *self) {
    size_t count = STEPS * BATCH * self->output;
    cut_data d = {.x = drawn(self, STEPS * BATCH * INPUT, -1, 1), .dy = drawn(self, count, -1, 1)};
    for (int i = 0; i < 2; i++) {
        d.y[i] = array(self, count);
        d.dx[i] = array(self, STEPS * BATCH * INPUT);
        d.final[i] = new_states(self, BATCH);
        d.dinitial[i] = new_states(self, BATCH);
    }
    d.initial = drawn_states(self, BATCH);
    d.restart = drawn_states(self, BATCH);
    d.dfinal = drawn_states(self, BATCH);
    d.middle = new_states(self, BATCH);
    d.dmiddle = new_states(self, BATCH);
    return d;
}

static void free_cut(fixture *self, cut_data *d) {
    for (int i = 0; i < 2; i++) {
        free(d->y[i]);
        free(d->dx[i]);
        free_states(self, &d->final[i]);
        free_states(self, &d->dinitial[i]);
    }
    state_set *sets[] = {&d->initial, &d->restart, &d->dfinal, &d->middle, &d->dmiddle};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) free_states(self, sets[i]);
    free(d->x);
    free(d->dy);
}

static void check_cut(fixture *self, manner how) {
    const int64_t lengths[BATCH] = {STEPS, CUT + 1, CUT + 2}, first_lengths[BATCH] = {CUT, CUT, CUT};
    const int64_t second_lengths[BATCH] = {STEPS - CUT, 1, 2};
    uint8_t mask[STEPS * BATCH];
    for (size_t i = 0; i < STEPS * BATCH; i++) mask[i] = random_below(&self->source, 4) == 0;
    mask[CUT * BATCH] = 1; /* a reset on the cut itself */

    cut_data d = new_cut(self);
    const call whole = {.steps = STEPS,
                        .batch = BATCH,
                        .x = d.x,
                        .lengths = how.ragged ? lengths : NULL,
                        .resets = how.resets ? mask : NULL,
                        .initial = &d.initial,
                        .restart = how.restart ? &d.restart : NULL,
                        .y = d.y[0],
                        .final = &d.final[0],
                        .dy = how.training ? d.dy : NULL,
                        .dfinal = &d.dfinal,
                        .dx = d.dx[0],
                        .dinitial = &d.dinitial[0]};
    run_call(self, &whole);
    call first = whole, second = whole;
    first.steps = CUT;
    first.lengths = how.ragged ? first_lengths : NULL;
    first.y = d.y[1];
    first.final = &d.middle;
    first.dfinal = &d.dmiddle;
    first.dx = d.dx[1];
    first.dinitial = &d.dinitial[1];
    second.steps = STEPS - CUT;
    second.x = at(self, d.x, CUT * BATCH * INPUT);
    second.lengths = how.ragged ? second_lengths : NULL;
    second.resets = how.resets ? mask + CUT * BATCH : NULL;
    second.initial = &d.middle;
    second.restart = how.restart ? &d.restart : &d.initial; /* a reset still returns to where the whole call began */
    second.y = (char *)d.y[1] + CUT * BATCH * self->output * self->item;
    second.final = &d.final[1];
    if (how.training) second.dy = at(self, d.dy, CUT * BATCH * self->output);
    second.dx = (char *)d.dx[1] + CUT * BATCH * INPUT * self->item;
    second.dinitial = &d.dmiddle;
    first.dfinal = &d.dfinal; /* the first time for its final states only */
    run_call(self, &first);
    run_call(self, &second);
    first.dfinal = &d.dmiddle;
    if (how.training) run_call(self, &first);

    assert_false(isnan(get(self, d.y[0], 0)));
    must(self, same(self, d.y[0], 0, d.y[1], 0, STEPS * BATCH * self->output));
    must(self, !how.training || same(self, d.dx[0], 0, d.dx[1], 0, STEPS * BATCH * INPUT));
    for (size_t s = 0; s < self->states; s++) {
        size_t count = state_count(self, s, BATCH);
        must(self, same(self, d.final[0].of[s], 0, d.final[1].of[s], 0, count));
        must(self, !how.training || same(self, d.dinitial[0].of[s], 0, d.dinitial[1].of[s], 0, count));
    }
    free_cut(self, &d);
}

static const char *const schedules[] = {"naive", "combine+fuse+pack", "combine(steps=3)+fuse+pack",
                                        "combine(steps=2)+fuse+pack+threads(2)"};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

/* Every cell with every schedule, and half of these with a type, in one direction or both: the other half in the next cell. */
static void each_cell(void (*check)(fixture *self), bool directions) {
    static const rcv_dtype dtypes[] = {RCV_FLOAT32, RCV_FLOAT64, RCV_BFLOAT16};
    size_t index = 0;
    for (size_t i = 0; i < (rcv_builtin_count() + OWN_CELLS) * SCHEDULES; i++) {
        for (int both = 0; both <= (directions ? 1 : 0); both++) {
            for (int type = 0; type < 3; type++) {
                fixture self;
                if (dtypes[type] == RCV_BFLOAT16 && i % SCHEDULES == 0) continue; /* naive has none */
                if (!sample_pairs(2, i / SCHEDULES + i % SCHEDULES, (size_t)(both + type))) continue;
                if (!sample_takes(index++)) continue;
                set_up(&self, i / SCHEDULES, dtypes[type], both);
                self.schedule = schedules[i % SCHEDULES];
                self.turn = i / SCHEDULES;
                check(&self);
                tear_down(&self);
            }
        }
    }
}

static void check_all_cuts(fixture *self) {
    for (int two = 0; two < 4; two++) { /* any two of the options have all their values */
        bool third = ((size_t)(two & 1) + (size_t)(two >> 1) + self->turn) % 2;
        check_cut(self, (manner){.ragged = two & 1, .resets = two & 2, .restart = third});
    }
}

/* Gradients too; those of restart states belong to one call each. */
static void check_training_cuts(fixture *self) {
    for (int both = 0; both < 2; both++)
        check_cut(self, (manner){.ragged = both, .resets = both, .restart = true, .training = true});
}

static void test_training_calls(void **state) {
    (void)state;
    each_cell(check_training_cuts, false);
}

static void test_calls(void **state) {
    (void)state;
    each_cell(check_all_cuts, false);
}

/* ---- over sequences ---------------------------------------------------------------------------------------------- */

typedef struct {
    size_t batch, b;
    void **packed; /* of all sequences */
    void **alone;  /* of sequence b */
    bool compare;  /* else copy from packed to alone */
} sequence_states;

static void visit_sequence(const fixture *self, size_t s, bool reverse, size_t before, size_t size, void *user) {
    (void)reverse;
    sequence_states *states = user;
    size_t offset = before * states->batch + states->b * size;
    if (!states->compare) {
        copy(self, states->alone[s], before, states->packed[s], offset, size);
        return;
    }
    must(self, same(self, states->packed[s], offset, states->alone[s], before, size));
}

enum { RAGGED_STEPS = 5, RAGGED = 3 };

/* Sequence b of `whole`, alone. */
static void check_alone(fixture *self, const call *whole, size_t b) {
    enum { T = RAGGED_STEPS, B = RAGGED };
    size_t length = (size_t)whole->lengths[b];
    void *x = array(self, T * INPUT), *y = array(self, T * self->output);
    void *dx = array(self, T * INPUT), *dy = array(self, T * self->output);
    state_set initial = new_states(self, 1), final = new_states(self, 1), dfinal = new_states(self, 1),
              dinitial = new_states(self, 1);
    uint8_t mask[T];
    for (size_t t = 0; t < length; t++) {
        copy(self, x, t * INPUT, whole->x, (t * B + b) * INPUT, INPUT);
        if (whole->dy) copy(self, dy, t * self->output, whole->dy, (t * B + b) * self->output, self->output);
        mask[t] = whole->resets[t * B + b];
    }
    const state_set *packed[] = {whole->initial, whole->dfinal, whole->final, whole->dinitial};
    state_set *alone[] = {&initial, &dfinal, &final, &dinitial};
    for (int i = 0; i < 4; i++) {
        if (i == 2)
            run_call(self, &(call){.steps = length,
                                   .batch = 1,
                                   .x = x,
                                   .resets = mask,
                                   .initial = &initial,
                                   .y = y,
                                   .final = &final,
                                   .dy = whole->dy ? dy : NULL,
                                   .dfinal = &dfinal,
                                   .dx = dx,
                                   .dinitial = &dinitial});
        if (i % 2 && !whole->dy) continue;
        sequence_states states = {
            .batch = B, .b = b, .packed = (void **)packed[i]->of, .alone = alone[i]->of, .compare = i >= 2};
        each_block(self, visit_sequence, &states);
    }
    for (size_t t = 0; t < T; t++) {
        size_t row = (t * B + b) * self->output, input = (t * B + b) * INPUT;
        if (t < length) {
            must(self, same(self, whole->y, row, y, t * self->output, self->output));
            must(self, !whole->dy || same(self, whole->dx, input, dx, t * INPUT, INPUT));
            continue;
        }
        for (size_t i = 0; i < self->output; i++) must(self, get(self, whole->y, row + i) == 0);
        for (size_t i = 0; i < INPUT; i++) must(self, !whole->dy || get(self, whole->dx, input + i) == 0);
    }
    for (int i = 0; i < 4; i++) free_states(self, alone[i]);
    free(x);
    free(y);
    free(dx);
    free(dy);
}

/* Each sequence of a ragged batch gives the bits of the sequence alone. Values of x past its end are NaN: they do not matter. */
static void check_ragged(fixture *self) {
    enum { T = RAGGED_STEPS, B = RAGGED };
    const int64_t lengths[B] = {2, T, 3};
    uint8_t mask[T * B];
    for (size_t i = 0; i < T * B; i++) mask[i] = random_below(&self->source, 4) == 0;
    void *x = drawn(self, T * B * INPUT, -1, 1), *y = array(self, T * B * self->output);
    void *dx = array(self, T * B * INPUT), *dy = drawn(self, T * B * self->output, -1, 1);
    state_set initial = drawn_states(self, B), final = new_states(self, B), dfinal = drawn_states(self, B),
              dinitial = new_states(self, B);
    for (size_t i = 0; i < T * B; i++) {
        if ((int64_t)(i / B) >= lengths[i % B]) memset((char *)x + i * INPUT * self->item, 0xff, INPUT * self->item);
    }
    for (int training = 0; training < 2; training++) {
        call whole = {.steps = T,
                      .batch = B,
                      .x = x,
                      .lengths = lengths,
                      .resets = mask,
                      .initial = &initial,
                      .y = y,
                      .final = &final,
                      .dy = training ? dy : NULL,
                      .dfinal = &dfinal,
                      .dx = dx,
                      .dinitial = &dinitial};
        run_call(self, &whole);
        for (size_t b = 0; b < B; b++) check_alone(self, &whole, b);
    }
    state_set *sets[] = {&initial, &final, &dfinal, &dinitial};
    for (int i = 0; i < 4; i++) free_states(self, sets[i]);
    free(x);
    free(y);
    free(dx);
    free(dy);
}

static void test_sequences(void **state) {
    (void)state;
    each_cell(check_ragged, true);
}

/* ---- over documents ---------------------------------------------------------------------------------------------- */

typedef struct {
    bool first, last;
    void **packed, **document;
} document_states;

/* Final states of a row of documents: forward those of the last, reverse those of the first. */
static void visit_document(const fixture *self, size_t s, bool reverse, size_t before, size_t size, void *user) {
    document_states *states = user;
    if (reverse ? !states->first : !states->last) return;
    must(self, same(self, states->packed[s], before, states->document[s], before, size));
}

/* Documents in a row, with a reset where one begins, as if each were alone: a reset at step t is a boundary between
 * t - 1 and t for both directions. */
static void check_documents(fixture *self) {
    enum { T = 9, DOCUMENTS = 3 };
    const size_t lengths[DOCUMENTS] = {3, 1, 5};
    uint8_t mask[T] = {0};
    void *x = drawn(self, T * INPUT, -1, 1);
    void *y = array(self, T * self->output), *y_alone = array(self, T * self->output);
    state_set initial = drawn_states(self, 1), final = new_states(self, 1), final_alone = new_states(self, 1);
    for (size_t d = 0, t = 0; d < DOCUMENTS; t += lengths[d++]) mask[t] = 1;
    call packed = {.steps = T, .batch = 1, .x = x, .resets = mask, .initial = &initial, .y = y, .final = &final};
    run_call(self, &packed);
    for (size_t d = 0, t = 0; d < DOCUMENTS; t += lengths[d++]) {
        run_call(self, &(call){.steps = lengths[d],
                               .batch = 1,
                               .x = at(self, x, t * INPUT),
                               .initial = &initial,
                               .y = y_alone,
                               .final = &final_alone});
        must(self, same(self, y, t * self->output, y_alone, 0, lengths[d] * self->output));
        document_states states = {
            .first = d == 0, .last = d == DOCUMENTS - 1, .packed = final.of, .document = final_alone.of};
        each_block(self, visit_document, &states);
    }
    free_states(self, &initial);
    free_states(self, &final);
    free_states(self, &final_alone);
    free(x);
    free(y);
    free(y_alone);
}

static void test_documents(void **state) {
    (void)state;
    each_cell(check_documents, true);
}

/* ---- over schedules ---------------------------------------------------------------------------------------------- */

/* However time is cut, weights are laid out and threads share the work, a sum runs in the same order. */
static void check_layouts(fixture *self) {
    enum { T = 7, B = 5 };
    static const char *const alike[] = {"combine+fuse+pack",
                                        "combine(steps=3)+fuse+pack+threads(2)",
                                        "combine(steps=all)+fuse+pack+threads(2,split=rows)",
                                        "combine(steps=3)+fuse+pack+recompute(every=3)",
                                        "combine+fuse+transpose",
                                        "combine(steps=2)+fuse+transpose+threads(3)"};
    bool bfloat16 = self->dtype == RCV_BFLOAT16;
    if (self->schedule != schedules[bfloat16]) return; /* once a cell is enough */
    size_t count = T * B * self->output, inputs = T * B * INPUT;
    void *x = drawn(self, inputs, -1, 1), *first = array(self, count), *y = array(self, count);
    void *dy = drawn(self, count, -1, 1), *first_dx = array(self, inputs), *dx = array(self, inputs);
    state_set initial = drawn_states(self, B), final = new_states(self, B);
    for (size_t i = 0; i < 2 * sizeof alike / sizeof *alike; i++) {
        bool training = i % 2;
        self->schedule = alike[i / 2];
        if ((bfloat16 && strstr(self->schedule, "transpose")) || (!training && strstr(self->schedule, "recompute")))
            continue;
        run_call(self, &(call){.steps = T,
                               .batch = B,
                               .x = x,
                               .initial = &initial,
                               .y = i ? y : first,
                               .final = &final,
                               .dy = training ? dy : NULL,
                               .dx = i == 1 ? first_dx : dx});
        if (i) must(self, same(self, first, 0, y, 0, count));
        if (training && i > 1) must(self, same(self, first_dx, 0, dx, 0, inputs));
    }
    free_states(self, &initial);
    free_states(self, &final);
    free(x);
    free(dy);
    free(first);
    free(first_dx);
    free(y);
    free(dx);
}

static void test_layouts(void **state) {
    (void)state;
    each_cell(check_layouts, true);
}

/* ---- over runs --------------------------------------------------------------------------------------------------- */

/* The same plan gives the same bits in one run after another and in another run; it needs the bytes it said, and a run
 * allocates nothing while it works. */
static void check_runs(fixture *self) {
    enum { T = 4, B = 2 };
    rcv_plan *plan = NULL;
    rcv_run *runs[2] = {NULL, NULL};
    rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = T, .batch = B, .dtype = self->dtype,
                                        .training = true, .schedule = self->schedule);
    check_ok(rcv_plan_new(self->net, &options, &plan));
    size_t parameters = (size_t)rcv_net_parameter_elements(self->net), count = T * B * self->output;
    void *x = drawn(self, T * B * INPUT, -1, 1), *dy = drawn(self, count, -1, 1);
    void *y[3], *dx[3], *dparameters[3];
    for (int i = 0; i < 2; i++) {
        check_ok(rcv_run_new(plan, &runs[i]));
        assert_true(rcv_plan_bytes(plan) > 0);
        assert_int_equal(rcv_plan_bytes(plan), rcv_run_bytes(runs[i]));
    }
    for (int i = 0; i < 3; i++) {
        y[i] = array(self, count);
        dx[i] = array(self, T * B * INPUT);
        dparameters[i] = array(self, parameters);
        size_t calls = self->allocator.calls;
        check_ok(
            rcv_run_forward(runs[i / 2], &RCV_INIT(rcv_forward, .parameters = self->parameters, .x = x, .y = y[i])));
        check_ok(rcv_run_backward(runs[i / 2],
                                  &RCV_INIT(rcv_backward, .dy = dy, .dx = dx[i], .dparameters = dparameters[i])));
        assert_int_equal(self->allocator.calls, calls);
        must(self, same(self, y[0], 0, y[i], 0, count));
        must(self, same(self, dx[0], 0, dx[i], 0, T * B * INPUT));
        must(self, same(self, dparameters[0], 0, dparameters[i], 0, parameters));
    }
    assert_false(isnan(get(self, y[0], 0)) || isnan(get(self, dx[0], 0)) || isnan(get(self, dparameters[0], 0)));
    for (int i = 0; i < 3; i++) {
        free(y[i]);
        free(dx[i]);
        free(dparameters[i]);
    }
    for (int i = 0; i < 2; i++) rcv_run_free(runs[i]);
    rcv_plan_free(plan);
    free(x);
    free(dy);
}

/* What was packed of the parameters is used again only where they are the same: in a first call there is nothing to use
 * again, and a backward call goes with the last parameters, however many forward calls came before it. */
static void check_parameters(fixture *self) {
    enum { T = 4, B = 2 };
    rcv_plan *plan = NULL;
    rcv_run *runs[2] = {NULL, NULL};
    rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = T, .batch = B, .dtype = self->dtype,
                                        .training = true, .schedule = self->schedule);
    check_ok(rcv_plan_new(self->net, &options, &plan));
    size_t parameters = (size_t)rcv_net_parameter_elements(self->net), count = T * B * self->output;
    void *x = drawn(self, T * B * INPUT, -1, 1), *dy = drawn(self, count, -1, 1);
    void *others = drawn(self, parameters, -0.8, 0.8), *y = array(self, count);
    void *dx[2] = {array(self, T * B * INPUT), array(self, T * B * INPUT)};
    for (int i = 0; i < 2; i++) check_ok(rcv_run_new(plan, &runs[i]));
    rcv_forward call = RCV_INIT(rcv_forward, .parameters = others, .x = x, .y = y, .same_parameters = true);
    check_ok(rcv_run_forward(runs[0], &call)); /* the first call */
    check_ok(rcv_run_backward(runs[0], &RCV_INIT(rcv_backward, .dy = dy, .dx = dx[0])));
    call = RCV_INIT(rcv_forward, .parameters = self->parameters, .x = x, .y = y);
    check_ok(rcv_run_forward(runs[0], &call));
    call.same_parameters = true;
    check_ok(rcv_run_forward(runs[0], &call));
    check_ok(rcv_run_backward(runs[0], &RCV_INIT(rcv_backward, .dy = dy, .dx = dx[0])));
    call.same_parameters = false;
    check_ok(rcv_run_forward(runs[1], &call));
    check_ok(rcv_run_backward(runs[1], &RCV_INIT(rcv_backward, .dy = dy, .dx = dx[1])));
    must(self, same(self, dx[0], 0, dx[1], 0, T * B * INPUT));
    void *fresh = array(self, count);
    call = RCV_INIT(rcv_forward, .parameters = self->parameters, .x = x, .y = fresh, .same_parameters = true);
    rcv_run_free(runs[1]);
    check_ok(rcv_run_new(plan, &runs[1]));
    check_ok(rcv_run_forward(runs[1], &call));
    must(self, same(self, y, 0, fresh, 0, count));
    for (int i = 0; i < 2; i++) {
        rcv_run_free(runs[i]);
        free(dx[i]);
    }
    rcv_plan_free(plan);
    free(x);
    free(dy);
    free(others);
    free(y);
    free(fresh);
}

static void test_parameters(void **state) {
    (void)state;
    each_cell(check_parameters, false);
}

static void test_runs(void **state) {
    (void)state;
    each_cell(check_runs, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls),     cmocka_unit_test(test_training_calls),
                                       cmocka_unit_test(test_sequences), cmocka_unit_test(test_documents),
                                       cmocka_unit_test(test_layouts),   cmocka_unit_test(test_parameters),
                                       cmocka_unit_test(test_runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
