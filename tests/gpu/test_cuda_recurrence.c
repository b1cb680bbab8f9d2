/* Cells whose loops are recurrences of elements, on a GPU, against the naive schedule in double on the CPU: as scans and as loops of a
 * thread, with all that may stand around them. The work is shared out to processes: most of it is the compiling of kernels. */
#include "generator.h"
#include "planned.h"
#include "scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77, MOST_PARTS = 16, MOST_LINES = 20 };

static int part, parts = 1, turns, failed, run;

static const char *const plans[] = {
    "combine(steps=all)+fuse+pack+scan",
    "combine(steps=all)+fuse+scan+graph",
    "combine(steps=100)+fuse+pack+scan+graph",
    "combine(steps=40)+fuse+pack+scan+recompute(every=40)",
    "combine(steps=all)+fuse+pack+scan(newton)+streams(4)",
    "combine(steps=all)+fuse+pack+scan(newton)+graph",
    "combine(steps=150)+fuse+pack+scan(newton)",
};
enum { PLANS = sizeof plans / sizeof *plans };

static const char *const cells[] = {"gilr_lstm",
                                    "sru",
                                    "qrnn_fo",
                                    "qrnn_ifo_w2",
                                    "mingru",
                                    "minlstm",
                                    "qrnn_f",
                                    "indrnn",
                                    "sru2",
                                    "gru_diagonal",
                                    "lstm",
                                    RCV_SOURCE_DIR "/tests/support/cells/mixed.cell",
                                    RCV_SOURCE_DIR "/tests/support/cells/lru.cell",
                                    RCV_SOURCE_DIR "/tests/support/cells/constants.cell"};
enum { CELLS = sizeof cells / sizeof *cells };
static const rcv_dtype dtypes[] = {RCV_FLOAT32, RCV_BFLOAT16, RCV_FLOAT64, RCV_FLOAT32, RCV_FLOAT16};

static bool is_mine(void) { return turns++ % parts == part; }

static void report(const config *c, const char *plan, rcv_dtype dtype, const char *sentence) {
    failed++;
    if (failed > MOST_LINES) return;
    print_error("FAILED: %s, %lld steps, %lld sequences, hidden %lld, lengths %d, resets %d, %s, %s: %s\n", c->cell,
                (long long)c->steps, (long long)c->batch, (long long)c->net.hidden, c->lengths, c->resets, plan,
                rcv_dtype_name(dtype), sentence);
}

/* Twice: the values, and the same bits. */
static void check_plan(const problem *p, const char *schedule, rcv_dtype dtype, bool training, const results *want) {
    rcv_plan_options options = options_of(p, dtype, training, schedule);
    rcv_plan *plan = NULL;
    char sentence[512];
    double worst = 0;
    if (rcv_plan_new(p->net, &options, &plan)) {
        report(&p->c, schedule, dtype, rcv_message());
        return;
    }
    results first, second;
    run_plan(p, plan, dtype, training, &first);
    run_plan(p, plan, dtype, training, &second);
    run++;
    if (!is_near(p, dtype, schedule, &first, want, &worst, sentence, sizeof sentence) ||
        !has_same_bits(schedule, &first, &second, sentence, sizeof sentence))
        report(&p->c, schedule, dtype, sentence);
    drop(&first);
    drop(&second);
    rcv_plan_free(plan);
}

/* One plan, and another one unless it is NULL, against the same oracle. */
static void check_pair(const config *c, bool training, const char *one, rcv_dtype first, const char *other,
                       rcv_dtype second) {
    problem p;
    results want;
    open_problem(&p, c, 1);
    run_oracle(&p, training, &want);
    p.device = "cuda";
    check_plan(&p, one, first, training, &want);
    if (other) check_plan(&p, other, second, training, &want);
    p.device = NULL;
    drop(&want);
    close_problem(&p);
}

static void check_config(const config *c, int number) {
    bool training = number % 4 != 3;
    const char *schedule = plans[number % PLANS];
    if (!training && strstr(schedule, "recompute")) schedule = plans[0];
    check_pair(c, training, schedule, dtypes[number % 5], schedule, dtypes[(number + 1) % 2]);
}

static void every_cell(void) {
    for (int i = 0; i < CELLS * 8; i++) {
        if (!is_mine()) continue;
        int options = i % 8, number = i / 8 + 3 * options;
        config c = {.cell = cells[i / 8],
                    .net = {.input = options % 3 ? 24 : 7,
                            .hidden = options % 3 == 2 ? 7 : 24,
                            .layers = 1 + options % 2,
                            .bidirectional = options == 5,
                            .zoneout = options == 6 ? 0.3 : 0},
                    .steps = options & 1 ? 301 : 150,
                    .batch = 1 + number % 3,
                    .lengths = options & 2,
                    .resets = options & 4,
                    .initial = options != 1};
        check_config(&c, number);
    }
}

/* So many tiles that blocks look far back; so many channels that they need not, or that a thread each is enough. */
static void large(void) {
    static const struct {
        const char *cell;
        int64_t steps, batch, hidden;
    } shapes[] = {{"sru", 20000, 1, 8}, {"gilr_lstm", 3000, 2, 64}, {"qrnn_fo", 600, 40, 512}, {"sru", 40, 3000, 256}};
    for (int i = 0; i < 4; i++) {
        if (!is_mine()) continue;
        config c = {.cell = shapes[i].cell,
                    .net = {.input = 8, .hidden = shapes[i].hidden, .layers = 1},
                    .steps = shapes[i].steps,
                    .batch = shapes[i].batch,
                    .lengths = i % 2,
                    .resets = i == 0,
                    .initial = true};
        check_config(&c, 0);
    }
}

static void random_cells(void) {
    for (uint64_t seed = 0; seed < 24; seed++) {
        if (!is_mine()) continue;
        char path[512], name[64];
        snprintf(name, sizeof name, "random%d.cell", part);
        snprintf(path, sizeof path, "%s", path_in(name));
        generate_cell_file(seed, path);
        config c = {.cell = path,
                    .net = {.input = 6, .hidden = 8, .layers = 1},
                    .steps = 60,
                    .batch = 2,
                    .lengths = seed % 5 == 0,
                    .resets = seed % 4 == 0,
                    .initial = true};
        check_pair(&c, true, plans[seed % 3], RCV_FLOAT64, NULL, RCV_FLOAT64);
        remove(path);
    }
}

/* A dense recurrence as a persistent kernel, the others as scans, in one program. */
static void mixed(void) {
    static const char *const schedules[] = {"combine(steps=all)+fuse+pack+scan+persistent+graph",
                                            "combine(steps=all)+fuse+pack+scan(newton)+persistent"};
    for (int i = 0; i < 4; i++) {
        if (!is_mine()) continue;
        config c = {.cell = RCV_SOURCE_DIR "/tests/support/cells/mixed.cell",
                    .net = {.input = 24, .hidden = 24, .layers = 2},
                    .steps = 90,
                    .batch = 3,
                    .lengths = i & 1,
                    .resets = i & 2,
                    .initial = true};
        check_pair(&c, true, schedules[i / 2], RCV_FLOAT32, schedules[i % 2], RCV_BFLOAT16);
    }
}

static int run_part(void) {
    every_cell();
    mixed();
    large();
    random_cells();
    printf("part %d of %d: %d plans, %d failed\n", part + 1, parts, run, failed);
    fflush(stdout);
    return failed > 0;
}

static int ask(void) {
    rcv_context *context = NULL;
    check_ok(rcv_context_new(NULL, &context));
    return rcv_device_describe(context, "cuda", NULL) == RCV_OK ? 0 : SKIPPED;
}

/* CUDA does not survive a fork, so the parent never uses it. */
static pid_t start(int number, int (*what)(void)) {
    pid_t child = fork();
    if (child) return child;
    part = number;
    _exit(what());
}

static int status_of(pid_t child) {
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(void) {
    if (status_of(start(0, ask)) == SKIPPED) {
        printf("skipped: no GPU\n");
        return SKIPPED;
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    pid_t children[MOST_PARTS];
    int status = !scratch_begin();
    parts = cores < 2 ? 1 : cores > MOST_PARTS ? MOST_PARTS : (int)cores;
    for (int i = 0; i < parts; i++) children[i] = start(i, run_part);
    for (int i = 0; i < parts; i++) status |= status_of(children[i]);
    return !scratch_end() || status;
}
