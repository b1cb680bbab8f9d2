/* Arrays of one call: an output that overlaps another array, wholly or by an element, is refused with both names and changes nothing; inputs
 * may overlap each other; a backward call does not read the forward call's outputs, in any plan. */
#include "probe.h"
#include "recurve_bench.h"

enum { STEPS = 4, BATCH = 3, SIZE = 6, LAYERS = 2, STATES = 2 };
enum { ROWS = STEPS * BATCH * SIZE, STATE = LAYERS * BATCH * SIZE };

/* Arrays in one block of memory, with gaps: an array moved onto another does not overlap a third. */
typedef struct {
    int64_t elements; /* of parameters */
    float *block;
    float *parameters, *x, *y, *dy, *dx, *dparameters;
    float *initial[STATES], *restart[STATES], *final[STATES];
    float *dfinal[STATES], *dinitial[STATES], *drestart[STATES];
    int64_t *lengths;
    uint8_t *resets;
} arrays;

typedef struct {
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    rcv_plan *plan;
    rcv_run *run;
    arrays a;
} subject;

static size_t block_floats(int64_t elements) { return (size_t)(2 * elements) * (8 + 6 * STATES + 1); }

static void place_arrays(arrays *a, int64_t elements) {
    random_source source = {5};
    size_t total = block_floats(elements);
    a->elements = elements;
    float *next = a->block = calloc(total, sizeof(float));
    assert_non_null(next);
    for (size_t i = 0; i < total; i++) a->block[i] = (float)random_between(&source, -1, 1);
    float **places[] = {&a->parameters, &a->dparameters, &a->x, &a->y, &a->dy, &a->dx};
    float **states[] = {a->initial, a->restart, a->final, a->dfinal, a->dinitial, a->drestart};
    for (int i = 0; i < 6; i++) *places[i] = next += 2 * elements;
    for (int i = 0; i < 6; i++) {
        for (int s = 0; s < STATES; s++) states[i][s] = next += 2 * elements;
    }
    a->lengths = (void *)(next += 2 * elements);
    a->resets = (void *)(next += 2 * elements);
    memset(a->resets, 0, STEPS * BATCH);
    for (int i = 0; i < BATCH; i++) a->lengths[i] = STEPS - i;
    a->resets[BATCH + 1] = 1;
}

static rcv_plan_options options_of(const char *schedule) {
    return RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .training = true, .lengths = true, .resets = true,
                    .schedule = schedule);
}

static void open_subject(subject *s) {
    *s = (subject){0};
    check_ok(rcv_context_new(NULL, &s->context));
    check_ok(rcv_cell_open(s->context, "lstm", &s->cell));
    check_ok(
        rcv_net_new(s->cell, &RCV_INIT(rcv_net_options, .input = SIZE, .hidden = SIZE, .layers = LAYERS), &s->net));
    rcv_plan_options options = options_of("naive");
    check_ok(rcv_plan_new(s->net, &options, &s->plan));
    check_ok(rcv_run_new(s->plan, &s->run));
    place_arrays(&s->a, rcv_net_parameter_elements(s->net));
}

static void close_subject(subject *s) {
    free(s->a.block);
    rcv_run_free(s->run);
    rcv_plan_free(s->plan);
    rcv_net_free(s->net);
    rcv_cell_free(s->cell);
    rcv_context_free(s->context);
}

static rcv_status forward(rcv_run *run, const arrays *a) {
    const rcv_forward data =
        RCV_INIT(rcv_forward, .parameters = a->parameters, .x = a->x, .lengths = a->lengths, .resets = a->resets,
                 .initial = (const void *const *)a->initial, .restart = (const void *const *)a->restart, .y = a->y,
                 .final = (void *const *)a->final);
    return rcv_run_forward(run, &data);
}

static rcv_status backward(rcv_run *run, const arrays *a) {
    const rcv_backward data = RCV_INIT(rcv_backward, .dy = a->dy, .dfinal = (const void *const *)a->dfinal, .dx = a->dx,
                                       .dinitial = (void *const *)a->dinitial, .drestart = (void *const *)a->drestart,
                                       .dparameters = a->dparameters);
    return rcv_run_backward(run, &data);
}

/* An array of a call by name: where its pointer is, and how many bytes it has. */
typedef struct {
    const char *name;
    size_t place, bytes; /* of the pointer within `arrays`; 0: the parameters' */
    bool written;
} field;

#define FIELD(name, member, bytes, written)                                                                            \
    { name, offsetof(arrays, member), bytes, written }
static const field forward_fields[] = {
    FIELD("y", y, ROWS * sizeof(float), true),
    FIELD("final.h", final[0], STATE * sizeof(float), true),
    FIELD("final.c", final[1], STATE * sizeof(float), true),
    FIELD("parameters", parameters, 0, false),
    FIELD("x", x, ROWS * sizeof(float), false),
    FIELD("lengths", lengths, BATCH * sizeof(int64_t), false),
    FIELD("resets", resets, STEPS *BATCH, false),
    FIELD("initial.h", initial[0], STATE * sizeof(float), false),
    FIELD("initial.c", initial[1], STATE * sizeof(float), false),
    FIELD("restart.h", restart[0], STATE * sizeof(float), false),
    FIELD("restart.c", restart[1], STATE * sizeof(float), false),
};
/* Arrays of the forward call that the backward call reads; they must not change. */
static const field backward_fields[] = {
    FIELD("dx", dx, ROWS * sizeof(float), true),
    FIELD("dparameters", dparameters, 0, true),
    FIELD("dinitial.h", dinitial[0], STATE * sizeof(float), true),
    FIELD("dinitial.c", dinitial[1], STATE * sizeof(float), true),
    FIELD("drestart.h", drestart[0], STATE * sizeof(float), true),
    FIELD("drestart.c", drestart[1], STATE * sizeof(float), true),
    FIELD("dy", dy, ROWS * sizeof(float), false),
    FIELD("dfinal.h", dfinal[0], STATE * sizeof(float), false),
    FIELD("dfinal.c", dfinal[1], STATE * sizeof(float), false),
    FIELD("parameters", parameters, 0, false),
    FIELD("x", x, ROWS * sizeof(float), false),
    FIELD("lengths", lengths, BATCH * sizeof(int64_t), false),
    FIELD("resets", resets, STEPS *BATCH, false),
    FIELD("initial.h", initial[0], STATE * sizeof(float), false),
    FIELD("initial.c", initial[1], STATE * sizeof(float), false),
    FIELD("restart.h", restart[0], STATE * sizeof(float), false),
    FIELD("restart.c", restart[1], STATE * sizeof(float), false),
};

static size_t bytes_of(const arrays *a, const field *f) {
    return f->bytes ? f->bytes : (size_t)a->elements * sizeof(float);
}

static char *get(const arrays *a, const field *f) {
    char *pointer;
    memcpy(&pointer, (const char *)a + f->place, sizeof pointer);
    return pointer;
}

static void set(arrays *a, const field *f, char *pointer) { memcpy((char *)a + f->place, &pointer, sizeof pointer); }

/* `out` at the place of `other`: the very same, its last element on the other's first, and its first on the other's last. Each is refused
 * again when it is repeated. */
static void check_pair(rcv_run *run, rcv_status (*call)(rcv_run *, const arrays *), const arrays *a, const field *out,
                       const field *other, const char *function) {
    char *begin = get(a, other), first[160], second[160];
    size_t own = bytes_of(a, out), theirs = bytes_of(a, other);
    char *const places[] = {begin, begin - own + sizeof(float), begin + theirs - 1};
    snprintf(first, sizeof first, "%s: %s overlaps %s; give", function, out->name, other->name);
    snprintf(second, sizeof second, "%s: %s overlaps %s; give", function, other->name, out->name);
    for (int i = 0; i < 6; i++) {
        arrays moved = *a;
        set(&moved, out, places[i / 2]);
        rcv_status status = call(run, &moved);
        bool named = strstr(rcv_message(), first) || (other->written && strstr(rcv_message(), second));
        if (status != RCV_INVALID || !named)
            fail_msg("%s over %s (%d) gave %s: %s", out->name, other->name, i, rcv_status_name(status),
                     status ? rcv_message() : "");
    }
}

static int check_all(rcv_run *run, rcv_status (*call)(rcv_run *, const arrays *), const arrays *a, const field *fields,
                     size_t count, const char *function) {
    int pairs = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; fields[i].written && j < count; j++) {
            if (j == i) continue;
            check_pair(run, call, a, &fields[i], &fields[j], function);
            pairs++;
        }
    }
    return pairs;
}

static void test_pairs(void **state) {
    (void)state;
    subject s;
    open_subject(&s);
    size_t bytes = block_floats(s.a.elements) * sizeof(float);
    float *before = malloc(bytes);
    assert_non_null(before);
    check_ok(forward(s.run, &s.a));
    memcpy(before, s.a.block, bytes);
    int pairs = check_all(s.run, forward, &s.a, forward_fields, sizeof forward_fields / sizeof *forward_fields,
                          "rcv_run_forward");
    pairs += check_all(s.run, backward, &s.a, backward_fields, sizeof backward_fields / sizeof *backward_fields,
                       "rcv_run_backward");
    printf("%d pairs\n", pairs);
    assert_memory_equal(s.a.block, before, bytes);
    /* Refused calls changed nothing: the backward call of the last forward call still works. */
    check_ok(backward(s.run, &s.a));
    free(before);
    close_subject(&s);
}

/* Inputs may be one array; an output may begin where another ends. */
static void test_allowed(void **state) {
    (void)state;
    subject s;
    open_subject(&s);
    arrays a = s.a;
    for (int i = 0; i < STATES; i++) a.restart[i] = a.initial[i] = s.a.initial[0];
    check_ok(forward(s.run, &a));
    a.dx = a.y; /* not read any more */
    a.dinitial[0] = a.final[0];
    for (int i = 0; i < STATES; i++) a.dfinal[i] = s.a.dfinal[0];
    check_ok(backward(s.run, &a));
    close_subject(&s);
}

/* Every candidate: the same gradients where y and final are overwritten before the backward call. */
static void test_outputs_are_not_read(void **state) {
    (void)state;
    subject s;
    open_subject(&s);
    rcv_plan *search = NULL;
    rcv_plan_options options = options_of(NULL);
    options.effort = RCV_ESTIMATE;
    options.threads = 2;
    check_ok(rcv_plan_new(s.net, &options, &search));
    size_t bytes = (size_t)s.a.elements * sizeof(float), rows = ROWS * sizeof(float);
    float *gradient = malloc(bytes), *dx = malloc(rows);
    assert_non_null(gradient);
    assert_non_null(dx);
    size_t checked = 0;
    for (size_t i = 0; i < rcv_plan_candidate_count(search); i++) {
        const rcv_candidate *candidate = rcv_plan_candidate(search, i);
        if (candidate->status) continue;
        rcv_plan *plan = NULL;
        rcv_run *run = NULL;
        rcv_plan_options pinned = options_of(candidate->schedule);
        check_ok(rcv_plan_new(s.net, &pinned, &plan));
        check_ok(rcv_run_new(plan, &run));
        for (int round = 0; round < 2; round++) {
            check_ok(forward(run, &s.a));
            if (round == 1) {
                memset(s.a.y, 0xff, rows);
                for (int k = 0; k < STATES; k++) memset(s.a.final[k], 0xff, STATE * sizeof(float));
            }
            check_ok(backward(run, &s.a));
            if (round == 0) {
                memcpy(gradient, s.a.dparameters, bytes);
                memcpy(dx, s.a.dx, rows);
            } else if (memcmp(gradient, s.a.dparameters, bytes) || memcmp(dx, s.a.dx, rows)) {
                fail_msg("%s reads y or final in its backward call", candidate->schedule);
            }
        }
        rcv_run_free(run);
        rcv_plan_free(plan);
        checked++;
    }
    printf("%zu plans\n", checked);
    assert_true(checked > 5);
    free(gradient);
    free(dx);
    rcv_plan_free(search);
    close_subject(&s);
}

/* ---- scans, products, tensors ---- */

static void test_scan(void **state) {
    (void)state;
    enum { N = 8, C = 4, ALL = N * C };
    rcv_context *context = NULL;
    rcv_scan *scan = NULL;
    float m[10 * ALL] = {0};
    int64_t length = N;
    uint8_t reset[N] = {0};
    check_ok(rcv_context_new(NULL, &context));
    const rcv_scan_options options =
        RCV_INIT(rcv_scan_options, .steps = N, .channels = C, .lengths = true, .resets = true);
    check_ok(rcv_scan_new(context, &options, &scan));
    const rcv_scan_data good = RCV_INIT(rcv_scan_data, .a = m, .b = m + ALL, .initial = m + 2 * ALL, .lengths = &length,
                                        .resets = reset, .h = m + 3 * ALL, .final = m + 4 * ALL);
    const rcv_scan_gradients gradients = RCV_INIT(rcv_scan_gradients, .dh = m + 5 * ALL, .dfinal = m + 6 * ALL,
                                                  .da = m + 7 * ALL, .db = m + 8 * ALL, .dinitial = m + 9 * ALL);
    const struct {
        const char *sentence;
        rcv_scan_data data;
    } forwards[] = {
        {"h overlaps a;", {.a = m, .b = m + ALL, .h = m + 1}},
        {"h overlaps b;", {.a = m, .b = m + 2 * ALL, .h = m + 3 * ALL - 1}},
        {"h overlaps final;", {.a = m, .b = m + ALL, .h = m + 3 * ALL, .final = m + 3 * ALL}},
        {"h overlaps initial;", {.a = m, .b = m + ALL, .h = m + 3 * ALL, .initial = m + 4 * ALL - 1}},
        {"final overlaps initial;",
         {.a = m, .b = m + ALL, .h = m + 3 * ALL, .initial = m + 5 * ALL, .final = m + 5 * ALL}},
        {"final overlaps a;", {.a = m, .b = m + ALL, .h = m + 3 * ALL, .final = m + ALL - 1}},
    };
    check_ok(rcv_scan_forward(scan, &good));
    for (size_t i = 0; i < sizeof forwards / sizeof *forwards; i++) {
        rcv_scan_data data = forwards[i].data;
        data.size = sizeof data;
        data.lengths = &length;
        data.resets = reset;
        check_fails(rcv_scan_forward(scan, &data), RCV_INVALID, forwards[i].sentence);
    }
    const struct {
        const char *sentence;
        rcv_scan_gradients gradients;
    } backwards[] = {
        {"da overlaps a;", {.da = m}},
        {"da overlaps h;", {.da = m + 3 * ALL + 1}},
        {"da overlaps db;", {.da = m + 7 * ALL, .db = m + 7 * ALL}},
        {"da overlaps dh;", {.da = m + 5 * ALL, .dh = m + 5 * ALL}},
        {"db overlaps dh;", {.db = m + 5 * ALL, .dh = m + 5 * ALL}},
        {"db overlaps dfinal;", {.db = m + 5 * ALL, .dfinal = m + 6 * ALL - 1}},
        {"dinitial overlaps dfinal;", {.dinitial = m + 6 * ALL, .dfinal = m + 6 * ALL}},
        {"dinitial overlaps initial;", {.dinitial = m + 2 * ALL}},
    };
    for (size_t i = 0; i < sizeof backwards / sizeof *backwards; i++) {
        rcv_scan_gradients wrong = backwards[i].gradients;
        wrong.size = sizeof wrong;
        check_fails(rcv_scan_backward(scan, &good, &wrong), RCV_INVALID, backwards[i].sentence);
    }
    check_ok(rcv_scan_backward(scan, &good, &gradients));
    check_ok(
        rcv_scan_backward(scan, &good, &RCV_INIT(rcv_scan_gradients, .dh = m + 5 * ALL, .db = m + ALL))); /* over b */
    rcv_scan_free(scan);
    rcv_context_free(context);
}

static void test_gemm(void **state) {
    (void)state;
    enum { N = 4, WIDE = 3 * N };
    rcv_context *context = NULL;
    rcv_gemm *gemm = NULL, *wide = NULL;
    float m[N * WIDE] = {0};
    check_ok(rcv_context_new(NULL, &context));
    check_ok(rcv_gemm_new(context, &RCV_INIT(rcv_gemm_options, .m = N, .n = N, .k = N), &gemm));
    check_ok(rcv_gemm_run(gemm, m, m, m + N * N));
    check_fails(rcv_gemm_run(gemm, m, m + N * N, m), RCV_INVALID, "c overlaps a;");
    check_fails(rcv_gemm_run(gemm, m, m + N * N, m + N * N - 1), RCV_INVALID, "c overlaps a;");
    check_fails(rcv_gemm_run(gemm, m, m + N * N, m + 2 * N * N - 1), RCV_INVALID, "c overlaps b;");
    const rcv_gemm_options beside =
        RCV_INIT(rcv_gemm_options, .m = N, .n = N, .k = N, .lda = WIDE, .ldb = WIDE, .ldc = WIDE);
    check_ok(rcv_gemm_new(context, &beside, &wide));
    check_ok(rcv_gemm_run(wide, m, m + N, m + 2 * N)); /* side by side in the rows of one matrix */
    check_ok(rcv_gemm_run(wide, m + N, m + 2 * N, m));
    check_fails(rcv_gemm_run(wide, m, m + N, m + 2 * N - 1), RCV_INVALID, "c overlaps b;");
    check_fails(rcv_gemm_run(wide, m + 1, m + 2 * N, m), RCV_INVALID, "c overlaps a;");
    rcv_gemm_free(wide);
    rcv_gemm_free(gemm);
    rcv_context_free(context);
}

static void test_convert(void **state) {
    (void)state;
    float values[8] = {1, 2, 3, 4};
    const rcv_tensor tensor = {.name = "w", .dims = 1, .shape = {4}, .data = values, .bytes = 4 * sizeof(float)};
    check_fails(rcv_tensor_convert(&tensor, RCV_FLOAT64, 4, values), RCV_INVALID, "out overlaps tensor->data;");
    check_fails(rcv_tensor_convert(&tensor, RCV_FLOAT32, 4, values + 3), RCV_INVALID, "out overlaps tensor->data;");
    check_ok(rcv_tensor_convert(&tensor, RCV_FLOAT32, 4, values + 4));
    assert_memory_equal(values, values + 4, 4 * sizeof(float));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs), cmocka_unit_test(test_allowed), cmocka_unit_test(test_outputs_are_not_read),
        cmocka_unit_test(test_scan),  cmocka_unit_test(test_gemm),    cmocka_unit_test(test_convert)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
