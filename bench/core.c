/* The time to parse, differentiate and analyse a cell, and a check that the bytes that a plan predicts are those that a run allocates.
 * `bench_core` prints tables; `bench_core --json` prints one JSON object. */
#include <recurve.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEATS = 51, TARGET_MS = 5 };

typedef struct {
    size_t live, block; /* bytes allocated now, and bytes of the latest allocation */
} counter;

/* Each block is preceded by its size, in a max_align_t so that the block stays aligned. */
static void *count_allocate(void *user, size_t bytes) {
    counter *c = user;
    max_align_t *block = malloc(sizeof(max_align_t) + bytes);
    if (!block) return NULL;
    memcpy(block, &bytes, sizeof bytes);
    c->live += bytes;
    c->block = bytes;
    return block + 1;
}

static void count_release(void *user, void *memory) {
    counter *c = user;
    max_align_t *block = (max_align_t *)memory - 1;
    size_t bytes;
    memcpy(&bytes, block, sizeof bytes);
    c->live -= bytes;
    free(block);
}

static void check(rcv_status status) {
    if (!status) return;
    fprintf(stderr, "bench_core: %s\n", rcv_message());
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Milliseconds of parsing, and of parsing, differentiation, analysis and printing. */
static void time_cell(rcv_context *context, const char *name, double *parse, double *all) {
    rcv_cell *cell = NULL;
    check(rcv_cell_open(context, name, &cell));
    char *text = strdup(rcv_cell_source(cell));
    rcv_cell_free(cell);
    double parses[REPEATS], totals[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        double start = now();
        check(rcv_cell_parse(context, text, strlen(text), name, &cell));
        parses[i] = now() - start;
        char *description = NULL;
        check(rcv_cell_describe(cell, RCV_DESCRIBE_BACKWARD, &description));
        rcv_text_free(context, description);
        rcv_cell_free(cell);
        totals[i] = now() - start;
    }
    free(text);
    qsort(parses, REPEATS, sizeof *parses, ascending);
    qsort(totals, REPEATS, sizeof *totals, ascending);
    *parse = parses[REPEATS / 2];
    *all = totals[REPEATS / 2];
}

typedef struct {
    const char *cell;
    int64_t steps, batch, hidden, layers;
    bool training;
} problem;

static const problem problems[] = {
    {"lstm", 100, 64, 512, 4, false}, {"lstm", 100, 64, 512, 4, true},  {"gru", 35, 20, 650, 2, true},
    {"sru", 1024, 8, 256, 2, true},   {"slstm", 100, 16, 256, 1, true},
};

/* Bytes that the plan predicts, that the run reports, and that the allocator counted. */
static void count_bytes(rcv_context *context, const counter *c, const problem *p, size_t bytes[3]) {
    rcv_cell *cell = NULL;
    rcv_net *net = NULL;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    check(rcv_cell_open(context, p->cell, &cell));
    check(rcv_net_new(cell, &RCV_INIT(rcv_net_options, .input = p->hidden, .hidden = p->hidden, .layers = p->layers),
                      &net));
    check(rcv_plan_new(net, &RCV_INIT(rcv_plan_options, .steps = p->steps, .batch = p->batch, .training = p->training),
                       &plan));
    bytes[0] = rcv_plan_bytes(plan);
    size_t before = c->live;
    check(rcv_run_new(plan, &run));
    bytes[1] = rcv_run_bytes(run);
    bytes[2] = c->live - before;
    rcv_run_free(run);
    rcv_plan_free(plan);
    rcv_net_free(net);
    rcv_cell_free(cell);
}

int main(int argc, char **argv) {
    bool json = argc > 1 && !strcmp(argv[1], "--json");
    counter c = {0};
    rcv_allocator allocator = {count_allocate, count_release, &c};
    rcv_context *context = NULL;
    check(rcv_context_new(&RCV_INIT(rcv_context_options, .allocator = &allocator), &context));
    if (json)
        printf("{\n  \"version\": \"%s\",\n  \"cells\": [\n", rcv_version());
    else
        printf("cell              parse ms   + differentiate, analyse, print ms   (target %d)\n", TARGET_MS);
    double worst = 0;
    for (size_t i = 0; i < rcv_builtin_count(); i++) {
        double parse = 0, all = 0;
        time_cell(context, rcv_builtin_name(i), &parse, &all);
        if (all > worst) worst = all;
        if (json)
            printf("    {\"cell\": \"%s\", \"parse_ms\": %.4f, \"all_ms\": %.4f}%s\n", rcv_builtin_name(i), parse, all,
                   i + 1 < rcv_builtin_count() ? "," : "");
        else
            printf("%-16s %9.4f   %9.4f\n", rcv_builtin_name(i), parse, all);
    }
    if (json)
        printf("  ],\n  \"worst_ms\": %.4f,\n  \"plans\": [\n", worst);
    else
        printf("worst %.4f ms\n\nplan                                    predicted    reported   allocated\n", worst);
    size_t count = sizeof problems / sizeof *problems;
    bool match = true;
    for (size_t i = 0; i < count; i++) {
        const problem *p = &problems[i];
        size_t bytes[3];
        count_bytes(context, &c, p, bytes);
        match &= bytes[0] == bytes[1] && bytes[1] == bytes[2];
        if (json) {
            printf("    {\"cell\": \"%s\", \"steps\": %lld, \"batch\": %lld, \"hidden\": %lld, \"layers\": %lld, "
                   "\"training\": %s, "
                   "\"plan_bytes\": %zu, \"run_bytes\": %zu, \"allocated\": %zu}%s\n",
                   p->cell, (long long)p->steps, (long long)p->batch, (long long)p->hidden, (long long)p->layers,
                   p->training ? "true" : "false", bytes[0], bytes[1], bytes[2], i + 1 < count ? "," : "");
        } else {
            printf("%-6s T%-5lld B%-3lld H%-4lld L%lld %-9s %12zu %11zu %11zu\n", p->cell, (long long)p->steps,
                   (long long)p->batch, (long long)p->hidden, (long long)p->layers,
                   p->training ? "training" : "inference", bytes[0], bytes[1], bytes[2]);
        }
    }
    if (json) printf("  ]\n}\n");
    rcv_context_free(context);
    return match ? 0 : 1;
}
