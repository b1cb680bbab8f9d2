/* Pinned plans against recorded bits. Every built-in cell runs by every plan of a list, in every type, in inference and in training, by
 * every set of kernels that the machine has. The hash of all results is compared with the one in tests/unit/plan/bits/ARCHITECTURE-SET.txt.
 *
 *   RECURVE_RECORD=1 build/NAME/tests/test_bits     rewrites the records of all sets of kernels of this machine
 *   RECURVE_BITS=all build/NAME/tests/test_bits     compares every line; otherwise the best set runs whole, the others in part
 *
 * A record changes where a sum gets another order or a function another formula. A change that is to leave the bits alone leaves the
 * records alone. Inputs are whole numbers times a power of two, of the generator in base/random.h: no library computes them.
 *
 * What the bits depend on: the architecture, the set of kernels, and that the compiler contracts products and sums in the kernels as
 * -ffp-contract=fast says; gcc 12 and clang 14 give the same bits, with -O3 and under the sanitizers. naive, and float64 by any plan, also
 * call exp, tanh and log1p of the C library: a record says of which, and with another one those results are not compared. */
#include "sample.h"
#include "test.h"

#include <errno.h>
#include <math.h>
#include <time.h>
#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

#include "base/random.h"

/* ---- cases ---- */

/* EVERY_SET: run by every set of kernels, not by the best alone. These plans have all products and maps. */
typedef enum { BEST_SET, EVERY_SET } reach;

typedef struct {
    const char *schedule;
    const char *problems; /* letters of those that it runs; some are refused */
    reach reach;
} pinned;

static const pinned plans[] = {
    {"naive", "abcde", BEST_SET},
    {"naive+threads(2)", "b", BEST_SET},
    {"kernels", "abcde", EVERY_SET},
    {"combine", "ac", BEST_SET},
    {"combine(steps=3)", "be", BEST_SET},
    {"combine(steps=all)", "cd", BEST_SET},
    {"combine(steps=3,forward=2)", "b", BEST_SET},
    {"fuse", "ac", BEST_SET},
    {"pack", "bc", BEST_SET},
    {"transpose", "bc", BEST_SET},
    {"wavefront", "ac", BEST_SET},
    {"pack+wavefront(forward)", "c", BEST_SET},
    {"scan", "bc", BEST_SET},
    {"recompute(every=3)", "bc", BEST_SET},
    {"fuse+pack", "ab", BEST_SET},
    {"combine(steps=all)+pack", "ae", BEST_SET},
    {"combine+fuse+pack", "bd", BEST_SET},
    {"combine(steps=3)+fuse+pack", "abcde", EVERY_SET},
    {"combine(steps=all)+fuse+pack", "bcd", BEST_SET},
    {"combine(steps=3)+fuse+transpose", "bcde", EVERY_SET},
    {"combine(steps=2)+fuse+pack+wavefront", "bc", BEST_SET},
    {"combine(steps=3)+fuse+pack+scan", "bc", BEST_SET},
    {"combine(steps=all)+fuse+transpose+scan", "ad", BEST_SET},
    {"combine(steps=3)+fuse+pack+recompute(every=3)", "bc", BEST_SET},
    {"pack+threads(2)", "c", BEST_SET},
    {"combine+fuse+pack+threads(2)", "bd", BEST_SET},
    {"combine(steps=all)+fuse+pack+threads(2,split=rows)", "ae", EVERY_SET},
    {"combine(steps=all,forward=2)+fuse+pack+threads(2)", "c", BEST_SET},
    {"combine(steps=2)+fuse+transpose+wavefront+threads(2)", "c", BEST_SET},
    {"combine(steps=4,forward=2)+fuse+pack+wavefront(forward)+threads(2)", "c", BEST_SET},
    {"combine(steps=all)+fuse+pack+scan+threads(2)", "b", BEST_SET},
    {"combine(steps=2)+fuse+transpose+recompute(every=2)+threads(2)", "a", BEST_SET},
    {"combine(steps=2)+fuse+pack+wavefront+recompute(every=2)+threads(2,split=rows)", "c", BEST_SET},
    {"combine(steps=3)+fuse+pack+scan+recompute(every=3)+threads(2,split=rows)", "c", BEST_SET},
};

/* A column's hash is of all problems that the plan and the cell have, in this order. */
typedef struct {
    char letter;
    const char *cells; /* " lstm gru ": of these alone; NULL: of all */
    int64_t steps, batch;
    rcv_net_options net;
    bool lengths, resets, initial, restart;
} problem;

static const problem problems[] = {
    {'a', NULL, 6, 5, {.input = 7, .hidden = 9, .layers = 1}, .initial = true},
    {'b',
     NULL,
     5,
     3,
     {.input = 5, .hidden = 9, .layers = 2, .bidirectional = true, .dropout = 0.25},
     .lengths = true,
     .resets = true,
     .initial = true},
    {'c', NULL, 7, 4, {.input = 9, .hidden = 15, .layers = 2, .zoneout = 0.125}, .resets = true, .restart = true},
    /* so many rows that a sum over them is cut into blocks, and several panels of columns */
    {'d', " lstm gru qrnn_fo ", 47, 13, {.input = 11, .hidden = 33, .layers = 1}, .initial = true},
    {'e',
     " lstm gru lstm_proj ",
     5,
     3,
     {.input = 8, .hidden = 9, .layers = 2, .no_bias = true, .dropout = 0.5, .variational = true, .rank = 3},
     .lengths = true,
     .initial = true},
};

typedef struct {
    rcv_dtype dtype;
    bool training;
} column;

static const column columns[] = {{RCV_FLOAT32, false}, {RCV_FLOAT32, true},   {RCV_FLOAT64, false},
                                 {RCV_FLOAT64, true},  {RCV_BFLOAT16, false}, {RCV_BFLOAT16, true}};

enum {
    PLANS = sizeof plans / sizeof *plans,
    PROBLEMS = sizeof problems / sizeof *problems,
    COLUMNS = sizeof columns / sizeof *columns,
    CELL_BYTES = 64,
    PLAN_BYTES = 128,
    RESULT_BYTES = 32, /* of a column's text */
    MOST_STATES = 32,
    MOST_SIZES = 4,
    MOST_BATCH = 16,
    MOST_MESSAGES = 300 /* lines of differences; the rest is counted */
};

static const char *mode_of(const column *c) { return c->training ? "training" : "inference"; }

/* ---- data ---- */

/* `count` elements in the plan's type; whole numbers from `from` to `to` times 2^-12. */
static void *draw(rcvi_twister *twister, rcv_dtype dtype, int64_t count, int from, int to) {
    void *values = malloc((size_t)count * sizeof(double) + 1);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) {
        int whole = from + (int)(rcvi_twister_next(twister) % (uint32_t)(to - from + 1));
        if (dtype == RCV_FLOAT64)
            ((double *)values)[i] = whole * 0x1p-12;
        else
            ((float *)values)[i] = (float)whole * 0x1p-12f;
    }
    return values;
}

/* Takes 32 bits at a time: a step is one-to-one, so that one changed word changes the hash. */
static uint64_t hash_words(uint64_t hash, const uint32_t *words, size_t count) {
    for (size_t i = 0; i < count; i++) hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static size_t size_of(rcv_dtype dtype) { return dtype == RCV_FLOAT64 ? sizeof(double) : sizeof(float); }

/* A network of a cell with data in the type of a plan. */
typedef struct {
    const problem *problem;
    const rcv_net *net;
    const column *column;
    size_t states;
    int64_t x_count, y_count, parameter_count, state_counts[MOST_STATES];
    void *parameters, *x, *y, *dy, *dx, *dparameters;
    void *initial[MOST_STATES], *restart[MOST_STATES], *final[MOST_STATES];
    void *dfinal[MOST_STATES], *dinitial[MOST_STATES], *drestart[MOST_STATES];
    int64_t lengths[MOST_BATCH];
    uint8_t *resets;
} tensors;

static void *new_output(rcv_dtype dtype, int64_t count) {
    void *memory = malloc((size_t)count * size_of(dtype) + 1);
    assert_non_null(memory);
    return memory;
}

static void open_tensors(tensors *t, const problem *p, const rcv_net *net, const column *c) {
    enum { ONE = 1 << 12, HALF = 1 << 11, EIGHTH = 1 << 9 };
    rcv_dtype dtype = c->dtype;
    rcvi_twister twister;
    rcvi_twister_seed(&twister, (uint64_t)p->letter);
    *t = (tensors){.problem = p, .net = net, .column = c, .states = rcv_net_state_count(net)};
    assert_true(t->states <= MOST_STATES && p->batch <= MOST_BATCH);
    t->x_count = p->steps * p->batch * p->net.input;
    t->y_count = p->steps * p->batch * rcv_net_output(net);
    t->parameter_count = rcv_net_parameter_elements(net);
    t->x = draw(&twister, dtype, t->x_count, -ONE, ONE);
    t->dy = draw(&twister, dtype, t->y_count, -ONE, ONE);
    t->parameters = draw(&twister, dtype, t->parameter_count, -HALF, HALF);
    t->y = new_output(dtype, t->y_count);
    t->dx = new_output(dtype, t->x_count);
    t->dparameters = new_output(dtype, t->parameter_count);
    for (size_t s = 0; s < t->states; s++) {
        int64_t count = t->state_counts[s] = rcv_net_state(net, s)->total * p->batch;
        t->initial[s] = draw(&twister, dtype, count, EIGHTH, ONE); /* positive, as a normaliser must be */
        t->restart[s] = draw(&twister, dtype, count, EIGHTH, ONE);
        t->dfinal[s] = draw(&twister, dtype, count, -ONE, ONE);
        t->final[s] = new_output(dtype, count);
        t->dinitial[s] = new_output(dtype, count);
        t->drestart[s] = new_output(dtype, count);
    }
    for (int64_t b = 0; b < p->batch; b++)
        t->lengths[b] = b ? 1 + (int64_t)(rcvi_twister_next(&twister) % (uint32_t)p->steps) : p->steps;
    t->resets = malloc((size_t)(p->steps * p->batch));
    assert_non_null(t->resets);
    for (int64_t i = 0; i < p->steps * p->batch; i++) t->resets[i] = rcvi_twister_next(&twister) % 4 == 0;
}

static void close_tensors(tensors *t) {
    void *const whole[] = {t->parameters, t->x, t->y, t->dy, t->dx, t->dparameters, t->resets};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) free(whole[i]);
    for (size_t s = 0; s < t->states; s++) {
        void *const of_state[] = {t->initial[s], t->restart[s],  t->final[s],
                                  t->dfinal[s],  t->dinitial[s], t->drestart[s]};
        for (size_t i = 0; i < sizeof of_state / sizeof *of_state; i++) free(of_state[i]);
    }
}

/* ---- runs ---- */

typedef struct {
    const char *name;
    void *values;
    int64_t count;
} output;

/* Tensors that a call writes, in the order in which they are hashed. */
static int list_outputs(const tensors *t, output *outputs) {
    int count = 0;
    outputs[count++] = (output){"y", t->y, t->y_count};
    for (size_t s = 0; s < t->states; s++) outputs[count++] = (output){"final", t->final[s], t->state_counts[s]};
    if (!t->column->training) return count;
    outputs[count++] = (output){"dx", t->dx, t->x_count};
    outputs[count++] = (output){"dparameters", t->dparameters, t->parameter_count};
    for (size_t s = 0; s < t->states; s++) {
        outputs[count++] = (output){"dinitial", t->dinitial[s], t->state_counts[s]};
        if (t->problem->restart) outputs[count++] = (output){"drestart", t->drestart[s], t->state_counts[s]};
    }
    return count;
}

static rcv_status compute(const tensors *t, const rcv_plan *plan) {
    const problem *p = t->problem;
    rcv_forward forward = RCV_INIT(
        rcv_forward, .parameters = t->parameters, .x = t->x, .lengths = p->lengths ? t->lengths : NULL,
        .resets = p->resets ? t->resets : NULL, .initial = p->initial ? (const void *const *)t->initial : NULL,
        .restart = p->restart ? (const void *const *)t->restart : NULL, .y = t->y, .final = t->final, .seed = 5);
    rcv_backward backward =
        RCV_INIT(rcv_backward, .dy = t->dy, .dfinal = (const void *const *)t->dfinal, .dx = t->dx,
                 .dinitial = t->dinitial, .drestart = p->restart ? t->drestart : NULL, .dparameters = t->dparameters);
    rcv_run *run = NULL;
    rcv_status status = rcv_run_new(plan, &run);
    if (!status) status = rcv_run_forward(run, &forward);
    if (!status && t->column->training) status = rcv_run_backward(run, &backward);
    rcv_run_free(run);
    return status;
}

/* What a column says: the hash of the problems that ran, and the letters of those for which the plan was refused. */
typedef struct {
    uint64_t hash;
    int ran;
    char refused[PROBLEMS + 1];
} outcome;

/* Outputs are NaN before the call, and must be finite behind it: the bits of a NaN are not defined. */
static void run_pinned(const tensors *t, const char *cell, const char *schedule, outcome *o) {
    const problem *p = t->problem;
    rcv_dtype dtype = t->column->dtype;
    rcv_plan_options options =
        RCV_INIT(rcv_plan_options, .steps = p->steps, .batch = p->batch, .dtype = dtype,
                 .training = t->column->training, .lengths = p->lengths, .resets = p->resets, .schedule = schedule);
    rcv_plan *plan = NULL;
    rcv_status status = rcv_plan_new(t->net, &options, &plan);
    if (status == RCV_UNSUPPORTED) {
        o->refused[strlen(o->refused)] = p->letter;
        return;
    }
    if (!status) assert_string_equal(rcv_plan_string(plan), schedule);
    output outputs[3 + 3 * MOST_STATES];
    int count = list_outputs(t, outputs);
    for (int i = 0; i < count; i++) memset(outputs[i].values, 0xff, (size_t)outputs[i].count * size_of(dtype));
    if (!status) status = compute(t, plan);
    if (status) fail_msg("%s %s %s %s: %s", cell, schedule, rcv_dtype_name(dtype), mode_of(t->column), rcv_message());
    for (int i = 0; i < count; i++) {
        for (int64_t k = 0; k < outputs[i].count; k++) {
            double value = dtype == RCV_FLOAT64 ? ((double *)outputs[i].values)[k] : ((float *)outputs[i].values)[k];
            if (!isfinite(value))
                fail_msg("%s %s %s %s: %s has an element that is not finite", cell, schedule, rcv_dtype_name(dtype),
                         mode_of(t->column), outputs[i].name);
        }
        o->hash = hash_words(o->hash, outputs[i].values, (size_t)outputs[i].count * size_of(dtype) / sizeof(uint32_t));
    }
    o->ran++;
    rcv_plan_free(plan);
}

/* "0123456789abcdef", "0123456789abcdef-b" where problem b was refused, "refused" where all were */
static void print_outcome(const outcome *o, char *text) {
    if (o->ran == 0)
        snprintf(text, RESULT_BYTES, "refused");
    else
        snprintf(text, RESULT_BYTES, "%016llx%s%s", (unsigned long long)o->hash, *o->refused ? "-" : "", o->refused);
}

/* ---- cells ---- */

static bool has_problem(const char *cell, const problem *p) {
    char name[CELL_BYTES];
    snprintf(name, sizeof name, " %s ", cell);
    return !p->cells || strstr(p->cells, name);
}

/* The network of a problem, with small values of the sizes that the cell declares: heads divides every problem's hidden size. */
static rcv_net *open_net(const rcv_cell *cell, const problem *p) {
    enum { HEADS = 3, OTHER = 5 };
    rcv_net *net = NULL;
    rcv_size sizes[MOST_SIZES];
    char names[MOST_SIZES][CELL_BYTES];
    check_ok(rcv_net_new(cell, &RCV_INIT(rcv_net_options, .input = 8, .hidden = 8), &net));
    const rcv_net_options *declared = rcv_net_get_options(net);
    size_t count = declared->size_count;
    assert_true(count <= MOST_SIZES);
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "%s", declared->sizes[i].name);
        sizes[i] = (rcv_size){names[i], strcmp(names[i], "heads") ? OTHER : HEADS};
    }
    rcv_net_free(net);
    rcv_net_options options = p->net;
    options.size = sizeof options;
    options.sizes = sizes;
    options.size_count = count;
    check_ok(rcv_net_new(cell, &options, &net));
    return net;
}

typedef char cell_results[PLANS][COLUMNS][RESULT_BYTES];

/* Of plans that this reach has; texts of the others are empty. */
static void run_cell(rcv_context *context, const char *name, reach least, cell_results results) {
    static outcome outcomes[PLANS][COLUMNS];
    rcv_cell *cell = NULL;
    memset(outcomes, 0, sizeof outcomes);
    memset(results, 0, sizeof(cell_results));
    check_ok(rcv_cell_open(context, name, &cell));
    for (int i = 0; i < PROBLEMS; i++) {
        if (!has_problem(name, &problems[i])) continue;
        rcv_net *net = open_net(cell, &problems[i]);
        for (int c = 0; c < COLUMNS; c++) {
            tensors t;
            open_tensors(&t, &problems[i], net, &columns[c]);
            for (int k = 0; k < PLANS; k++) {
                if (plans[k].reach >= least && strchr(plans[k].problems, problems[i].letter))
                    run_pinned(&t, name, plans[k].schedule, &outcomes[k][c]);
            }
            close_tensors(&t);
        }
        rcv_net_free(net);
    }
    rcv_cell_free(cell);
    for (int k = 0; k < PLANS; k++) {
        for (int c = 0; c < COLUMNS && plans[k].reach >= least; c++) print_outcome(&outcomes[k][c], results[k][c]);
    }
}

/* ---- the C library's functions ---- */

/* Its version and a hash of what its functions give: on some architectures the processor chooses among versions of them. */
static void describe_libm(char *text, size_t room) {
    uint64_t hash = 0;
    for (int i = -2048; i < 2048; i++) {
        double x = i * 0x1p-8;
        float y = (float)x;
        struct {
            double wide[4];
            float narrow[4];
        } values = {{exp(x), tanh(x), log1p(exp(x)), log(x + 16.5)},
                    {expf(y), tanhf(y), log1pf(expf(y)), logf(y + 16.5f)}};
        uint32_t words[sizeof values / sizeof(uint32_t)];
        memcpy(words, &values, sizeof words);
        hash = hash_words(hash, words, sizeof words / sizeof *words);
    }
#if defined(__GLIBC__)
    snprintf(text, room, "glibc-%s-%016llx", gnu_get_libc_version(), (unsigned long long)hash);
#else
    snprintf(text, room, "unknown-%016llx", (unsigned long long)hash);
#endif
}

/* Do the bits of this result depend on them? Square roots are exact everywhere. */
static bool calls_libm(const char *source, const char *schedule, rcv_dtype dtype) {
    static const char *const functions[] = {"exp(", "log(", "sigmoid(", "softplus(", "tanh("};
    if (strncmp(schedule, "naive", 5) != 0 && dtype != RCV_FLOAT64) return false;
    size_t i = 0;
    while (i < sizeof functions / sizeof *functions && !strstr(source, functions[i])) i++;
    return i < sizeof functions / sizeof *functions;
}

/* ---- records ---- */

typedef struct {
    char cell[CELL_BYTES], plan[PLAN_BYTES], results[COLUMNS][RESULT_BYTES];
    bool known; /* there is such a cell and such a plan */
} line;

typedef struct {
    char path[512], libm[64];
    line *lines;
    size_t count;
} record;

static const char *architecture(void) {
#if defined(__aarch64__)
    return "aarch64";
#elif defined(__x86_64__)
    return "x86-64";
#else
    return "other";
#endif
}

static void name_record(record *r, const char *set) {
    memset(r, 0, sizeof *r);
    snprintf(r->path, sizeof r->path, "%s/tests/unit/plan/bits/%s-%s.txt", RCV_SOURCE_DIR, architecture(), set);
}

/* record = "#" ... "libm" text { cell plan result ... }; false where there is no such file */
static bool read_record(record *r) {
    enum { LINE_BYTES = 512 };
    char text[LINE_BYTES];
    FILE *file = fopen(r->path, "r");
    if (!file && errno == ENOENT) return false;
    assert_non_null(file);
    for (int number = 1; fgets(text, sizeof text, file); number++) {
        line l = {.known = false};
        if (text[0] == '#' || sscanf(text, "libm %63s", r->libm) == 1) continue;
        int read = sscanf(text, "%63s %127s %31s %31s %31s %31s %31s %31s", l.cell, l.plan, l.results[0], l.results[1],
                          l.results[2], l.results[3], l.results[4], l.results[5]);
        if (read != 2 + COLUMNS) fail_msg("%s:%d is not a cell, a plan and %d results", r->path, number, (int)COLUMNS);
        line *grown = realloc(r->lines, (r->count + 1) * sizeof *grown);
        assert_non_null(grown);
        r->lines = grown;
        r->lines[r->count++] = l;
    }
    assert_int_equal(fclose(file), 0);
    return true;
}

static line *find_line(const record *r, const char *cell, const char *plan) {
    for (size_t i = 0; i < r->count; i++) {
        if (!strcmp(r->lines[i].cell, cell) && !strcmp(r->lines[i].plan, plan)) return &r->lines[i];
    }
    return NULL;
}

static rcv_context *open_context(const char *set) {
    rcv_context *context = NULL;
    check_ok(rcv_context_new(&RCV_INIT(rcv_context_options, .threads = 2, .kernels = set), &context));
    return context;
}

static void write_record(const char *set) {
    static cell_results results;
    record r;
    name_record(&r, set);
    describe_libm(r.libm, sizeof r.libm);
    rcv_context *context = open_context(set);
    FILE *file = fopen(r.path, "w");
    assert_non_null(file);
    fprintf(file,
            "# Hashes of the results of pinned plans; rewrite with RECURVE_RECORD=1 build/NAME/tests/test_bits\n"
            "# cell, plan, then inference and training in float32, in float64, in bfloat16; -bc: refused for problems "
            "b and c\n"
            "libm %s\n",
            r.libm);
    for (size_t i = 0; i < rcv_builtin_count(); i++) {
        run_cell(context, rcv_builtin_name(i), BEST_SET, results);
        for (int k = 0; k < PLANS; k++) {
            fprintf(file, "%s %s", rcv_builtin_name(i), plans[k].schedule);
            for (int c = 0; c < COLUMNS; c++) fprintf(file, " %s", results[k][c]);
            fprintf(file, "\n");
        }
    }
    assert_int_equal(ferror(file), 0);
    assert_int_equal(fclose(file), 0);
    rcv_context_free(context);
    print_message("wrote %s\n", r.path);
}

/* ---- comparing ---- */

typedef struct {
    size_t compared, skipped; /* results */
    size_t wrong;             /* lines of a record */
} tally;

__attribute__((format(printf, 2, 3))) static void report(tally *sum, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (sum->wrong++ < MOST_MESSAGES) print_error("%s\n", text);
}

/* What a difference is, beside another hash. */
static const char *describe_change(const char *was, const char *is) {
    enum { DIGITS = 16 }; /* of a hash, in front of the letters */
    if (!strcmp(is, "refused")) return " (now refused)";
    if (!strcmp(was, "refused")) return " (was refused)";
    return strlen(was) < DIGITS || strcmp(was + DIGITS, is + DIGITS) != 0 ? " (refused for other problems)" : "";
}

/* All that differs in a line is one message. */
static void compare_line(const line *l, const char *set, const char *source, bool same_libm,
                         char results[COLUMNS][RESULT_BYTES], tally *sum) {
    char wrong[512] = "";
    for (int c = 0; c < COLUMNS; c++) {
        if (!same_libm && calls_libm(source, l->plan, columns[c].dtype)) {
            sum->skipped++;
            continue;
        }
        sum->compared++;
        if (!strcmp(l->results[c], results[c])) continue;
        size_t length = strlen(wrong);
        snprintf(wrong + length, sizeof wrong - length, "%s %s %s%s", length ? "," : "",
                 rcv_dtype_name(columns[c].dtype), mode_of(&columns[c]), describe_change(l->results[c], results[c]));
    }
    if (*wrong) report(sum, "%s: %s by %s has other bits:%s", set, l->cell, l->plan, wrong);
}

static const char *source_of(rcv_context *context, const char *name, rcv_cell **cell) {
    check_ok(rcv_cell_open(context, name, cell));
    return rcv_cell_source(*cell);
}

/* A record has every cell with every plan, and nothing else. */
static void check_lines(record *r, tally *sum) {
    for (size_t i = 0; i < rcv_builtin_count(); i++) {
        for (int k = 0; k < PLANS; k++) {
            line *l = find_line(r, rcv_builtin_name(i), plans[k].schedule);
            if (!l)
                report(sum, "%s has no line for %s %s", r->path, rcv_builtin_name(i), plans[k].schedule);
            else if (l->known)
                report(sum, "%s has two lines for %s %s", r->path, l->cell, l->plan);
            if (l) l->known = true;
        }
    }
    for (size_t i = 0; i < r->count; i++) {
        if (!r->lines[i].known)
            report(sum, "%s has a line for %s %s, which is not a case", r->path, r->lines[i].cell, r->lines[i].plan);
    }
}

/* The cells of every `stride`-th place. Nothing where there is no record. */
static void compare_set(const char *set, reach least, size_t stride, tally *sum) {
    static cell_results results;
    record r;
    name_record(&r, set);
    if (!read_record(&r)) {
        print_message("%s does not exist: these kernels are not compared; RECURVE_RECORD=1 writes it\n", r.path);
        return;
    }
    char libm[sizeof r.libm];
    describe_libm(libm, sizeof libm);
    bool same_libm = !strcmp(libm, r.libm);
    if (!same_libm)
        print_message("%s was recorded with %s, this is %s: results that depend on it are not compared\n", r.path,
                      r.libm, libm);
    check_lines(&r, sum);
    rcv_context *context = open_context(set);
    for (size_t i = 0; i < rcv_builtin_count(); i += stride) {
        rcv_cell *cell = NULL;
        const char *name = rcv_builtin_name(i), *source = source_of(context, name, &cell);
        run_cell(context, name, least, results);
        for (int k = 0; k < PLANS; k++) {
            const line *l = find_line(&r, name, plans[k].schedule);
            if (l && plans[k].reach >= least) compare_line(l, set, source, same_libm, results[k], sum);
        }
        rcv_cell_free(cell);
    }
    rcv_context_free(context);
    free(r.lines);
}

static tally total;

static void test_records(void **state) {
    (void)state;
    const char *asked = getenv("RECURVE_BITS");
    bool all = asked && !strcmp(asked, "all");
    size_t sets = rcv_kernels_count(), stride = 1;
    if (!all && sample_is_partial()) stride = 4;
    const char *record = getenv("RECURVE_RECORD");
    for (size_t set = 0; set < sets; set++) {
        const char *name = rcv_kernels_name(set);
        tally before = total;
        double begin = (double)clock();
        if (record && *record && strcmp(record, "0") != 0) write_record(name);
        compare_set(name, all || set + 1 == sets ? BEST_SET : EVERY_SET, stride, &total);
        print_message("%s-%s: %zu results compared, %zu skipped, %zu lines wrong, %.1f s of CPU time\n", architecture(),
                      name, total.compared - before.compared, total.skipped - before.skipped,
                      total.wrong - before.wrong, ((double)clock() - begin) / CLOCKS_PER_SEC);
    }
    if (total.wrong > 0)
        fail_msg("%zu lines differ from the records; if that is intended, RECURVE_RECORD=1 rewrites them", total.wrong);
}

int main(void) {
    enum { SKIPPED = 77 };
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_records)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed ? failed : total.compared == 0 ? SKIPPED : 0;
}
