/* The time of cells over the number of steps, forward and training step; each cell is timed in turns with the LSTM of the same size. */
#include "bench/experiments.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Cells whose recurrences are scans, then those with element-wise recurrences. */
static const char *const default_cells[] = {"sru",     "qrnn_fo", "gilr_lstm", "mingru",
                                            "minlstm", "indrnn",  "sru2",      "gru_diagonal"};
static const int64_t default_steps[] = {1024, 4096, 16384, 65536, 262144, 1048576};

enum {
    PLANNED_STEPS = 16384
}; /* planning may run the whole problem: longer problems use the plan for this many steps */
static const double MEMORY_SHARE = 0.75; /* of the machine's memory, the limit of a shape where none is given */

/* ---- lists of options ---- */

/* list = number { "," number } (increasing) | "auto". False if it is not. */
static bool read_steps(const char *list, int64_t *steps, size_t *count) {
    *count = 0;
    if (strcmp(list, "auto") == 0) {
        memcpy(steps, default_steps, sizeof default_steps);
        *count = COUNT(default_steps);
        return true;
    }
    int64_t before = 0;
    for (const char *at = list;; at++) {
        char *end;
        const long long number = strtoll(at, &end, 10);
        if (*at < '0' || *at > '9' || number <= before || number > 1 << 24 || (*end != ',' && *end != '\0') ||
            *count == MAXIMUM_LENGTHS) {
            return false;
        }
        steps[(*count)++] = before = number;
        if (*end == '\0') {
            return true;
        }
        at = end;
    }
}

static bool is_built_in(const char *name) {
    for (size_t i = 0; i < rcv_builtin_count(); i++) {
        if (strcmp(rcv_builtin_name(i), name) == 0) {
            return true;
        }
    }
    return false;
}

/* list = name { "," name }. False if a name is empty or repeated, or if there are too many. The names are for free(). */
static bool read_cells(const char *list, char **cells, size_t *count) {
    *count = 0;
    for (const char *at = list;; at++) {
        const size_t length = strcspn(at, ",");
        char *name = text_of("%.*s", (int)length, at);
        bool good = length > 0 && *count < MAXIMUM_CELLS;
        for (size_t i = 0; i < *count && good; i++) {
            good = strcmp(cells[i], name) != 0;
        }
        if (!good) {
            free(name);
            return false;
        }
        cells[(*count)++] = name;
        at += length;
        if (*at == '\0') {
            return true;
        }
    }
}

bool lengths_are_valid(const bench *bench) {
    int64_t steps[MAXIMUM_LENGTHS];
    char *cells[MAXIMUM_CELLS];
    size_t count;
    if (!read_steps(bench->lengths, steps, &count)) {
        say("--lengths must be up to %d increasing whole numbers of at least 1, such as 1024,65536, or auto; not "
            "'%.60s'",
            MAXIMUM_LENGTHS, bench->lengths);
        return false;
    }
    const bool good = bench->cells == NULL || read_cells(bench->cells, cells, &count);
    if (!good) {
        say("--cells must be up to %d different cells, such as sru,mingru; not '%.60s'", MAXIMUM_CELLS, bench->cells);
    }
    for (size_t i = 0; i < count && bench->cells != NULL; i++) {
        free(cells[i]);
    }
    return good;
}

/* Lists the default cells that are built in; `left_out` names the others. */
static void list_default_cells(lengths *lengths) {
    for (size_t i = 0; i < COUNT(default_cells); i++) {
        if (is_built_in(default_cells[i])) {
            lengths->cells[lengths->cell_count++] = text_of("%s", default_cells[i]);
        } else {
            char *before = lengths->left_out;
            lengths->left_out =
                text_of("%s%s%s", before != NULL ? before : "", before != NULL ? ", " : "", default_cells[i]);
            free(before);
        }
    }
}

/* ---- a cell ---- */

/* A chosen plan, and the number of steps for which it was chosen. */
typedef struct {
    char *plan;
    int64_t steps;
} chosen_plan;

typedef struct {
    const char *name;
    const rcv_net *net;
    const char *pinned; /* a plan string; NULL: the planner chooses */
    void *parameters;
    chosen_plan choices[PASSES];
    rcv_cell *own_cell; /* NULL: the runner uses those of the problem */
    rcv_net *own_net;
} runner;

static rcv_status runner_fill(runner *runner, const bench *bench) {
    const rcv_dtype storage = problem_storage(&bench->problem);
    runner->parameters = need((size_t)rcv_net_parameter_elements(runner->net), rcv_dtype_bytes(storage));
    return rcv_net_initialize(runner->net, bench->seed, storage, runner->parameters);
}

static rcv_status runner_open(runner *runner, const bench *bench, char **name) {
    const problem *problem = &bench->problem;
    rcv_status status = rcv_cell_open(problem->context, *name, &runner->own_cell);
    if (status == RCV_OK) {
        free(*name); /* replace the path of a file by the name of its cell */
        *name = text_of("%s", rcv_cell_name(runner->own_cell));
        status = rcv_net_new(runner->own_cell, &problem->network.net, &runner->own_net);
    }
    runner->name = *name;
    runner->net = runner->own_net;
    runner->pinned = problem->schedule;
    return status == RCV_OK ? runner_fill(runner, bench) : status;
}

static void runner_free(runner *runner) {
    for (size_t i = 0; i < PASSES; i++) {
        free(runner->choices[i].plan);
    }
    free(runner->parameters);
    rcv_net_free(runner->own_net);
    rcv_cell_free(runner->own_cell);
}

/* Finds errors that concern every length before the first one is measured. */
static rcv_status runner_check(const runner *runner, const problem *problem, int64_t steps) {
    rcv_plan_options options = problem_plan_options(problem, runner->pinned);
    options.steps = steps;
    options.memory = 0;
    options.effort = RCV_ESTIMATE;
    rcv_plan *plan = NULL;
    const rcv_status status = rcv_plan_new(runner->net, &options, &plan);
    rcv_plan_free(plan);
    return status;
}

/* ---- its plan ---- */

/* The plan string for the problem; NULL: rcv_message() says why there is none. */
static const char *choose(runner *runner, const problem *problem, length_pass *pass) {
    if (runner->pinned != NULL) {
        return runner->pinned;
    }
    chosen_plan *choice = &runner->choices[problem->training];
    const int64_t steps = problem->steps < PLANNED_STEPS ? problem->steps : PLANNED_STEPS;
    if (choice->steps != steps) {
        rcv_plan_options options = problem_plan_options(problem, NULL);
        rcv_plan *plan = NULL;
        options.steps = steps;
        if (rcv_plan_new(runner->net, &options, &plan) != RCV_OK) {
            return NULL;
        }
        free(choice->plan);
        *choice = (chosen_plan){text_of("%s", rcv_plan_string(plan)), steps};
        rcv_plan_free(plan);
    }
    pass->planned = steps;
    pass->estimated = problem->effort == (int)RCV_ESTIMATE;
    return choice->plan;
}

static void refuse(length_pass *pass, const char *sentence) {
    if (pass->refusal == NULL) {
        pass->refusal = text_of("%s", sentence);
    }
}

/* Adds an implementation; NULL: the pass has the reason. */
static implementation *open_plan(comparison *comparison, const runner *runner, const problem *problem,
                                 call_tensors *tensors, const char *plan, length_pass *pass) {
    implementation *added =
        comparison_add_plan(comparison, runner->name, problem, runner->net, tensors, runner->parameters, plan);
    if (added->measured.refusal != NULL) {
        refuse(pass, added->measured.refusal);
        comparison_remove_last(comparison);
        return NULL;
    }
    return added;
}

static const char *choose_and_report(runner *runner, const problem *problem, length_pass *pass) {
    show_progress("%s, %lld steps, %s: planning", runner->name, (long long)problem->steps,
                  length_passes[problem->training]);
    const char *plan = choose(runner, problem, pass);
    if (plan == NULL) {
        refuse(pass, rcv_message());
    }
    return plan;
}

/* A plan that was chosen for fewer steps may need too much memory. Then the planner's cost model chooses one for this number of steps. */
static implementation *add_cell(comparison *comparison, runner *runner, problem *problem, call_tensors *tensors,
                                length_pass *pass) {
    const char *plan = choose_and_report(runner, problem, pass);
    implementation *added = plan != NULL ? open_plan(comparison, runner, problem, tensors, plan, pass) : NULL;
    if (added == NULL && plan != NULL && pass->planned > 0 && pass->planned < problem->steps && stop_signal() == 0) {
        const int effort = problem->effort;
        free(pass->refusal);
        pass->refusal = NULL;
        pass->planned = problem->steps;
        pass->estimated = true;
        problem->effort = (int)RCV_ESTIMATE;
        added = open_plan(comparison, runner, problem, tensors, NULL, pass);
        problem->effort = effort;
    }
    return added;
}

/* Adds the LSTM with the plan that is chosen without regard to the cell. `taken`: bytes of the cell's run. NULL: no memory is left for it. */
static implementation *add_lstm(comparison *comparison, runner *runner, problem *problem, call_tensors *tensors,
                                double taken, length_pass *pass) {
    const char *plan = choose_and_report(runner, problem, pass);
    if (plan != NULL && problem->memory > 0) {
        problem->memory = fmax(problem->memory * 1048576 - taken, 1) / 1048576; /* 0 would mean no limit */
    }
    return plan != NULL ? open_plan(comparison, runner, problem, tensors, plan, pass) : NULL;
}

static void copy_times(const comparison *comparison, const measurement *item, length_pass *pass) {
    free(pass->plan);
    pass->plan = text_of("%s", item->plan);
    pass->bytes = item->bytes;
    pass->seconds = item->median;
    pass->minimum = item->minimum;
    pass->rounds = comparison->rounds;
    if (item->refusal != NULL) {
        refuse(pass, item->refusal);
    }
}

/* ---- a length ---- */

/* The memory limit of a shape in bytes; 0: none. */
static double memory_limit(const problem *problem) {
    const double pages = (double)sysconf(_SC_PHYS_PAGES), page = (double)sysconf(_SC_PAGE_SIZE);
    return problem->memory > 0       ? problem->memory * 1048576
           : problem_is_gpu(problem) ? 0
           : pages > 0 && page > 0   ? MEMORY_SHARE * pages * page
                                     : 0;
}

/* Bytes of x, y, dy and, in training, dx. */
static double tensor_bytes(const problem *problem, const rcv_net *net) {
    const double input = (double)rcv_net_get_options(net)->input, output = (double)rcv_net_output(net);
    const double rows = (double)problem->steps * (double)problem->batch;
    return rows * ((problem->training ? 2 : 1) * input + 2 * output) *
           (double)rcv_dtype_bytes(problem_storage(problem));
}

/* The longest measured sequence that is shorter, or NULL. */
static const length_point *shorter(const length_point *points, size_t at, size_t pass) {
    for (size_t i = at; i-- > 0;) {
        if (points[i].passes[pass].minimum > 0) {
            return &points[i];
        }
    }
    return NULL;
}

/* Expected seconds of a call, scaled from that sequence: the median, or with `least` the minimum; 0: not known. */
static double expected(const length_point *points, size_t at, size_t pass, bool least) {
    const length_point *from = shorter(points, at, pass);
    if (from == NULL) {
        return 0;
    }
    const length_pass *known = &from->passes[pass];
    return (least ? known->minimum : known->seconds) * (double)points[at].steps / (double)from->steps;
}

static size_t least_rounds(double seconds) { return seconds > 1 ? 1 : seconds > 0.1 ? 3 : 5; }

/* A cell and the LSTM. The LSTM is left out if its calls are too long, or if there is no memory for both. */
typedef struct {
    const bench *bench;
    lengths *lengths;
    runner *cell, *lstm;
    size_t row, at, pass; /* points[row][at].passes[pass] */
    problem problem;
    call_tensors *tensors;
} pairing;

static void measure_pair(pairing *pairing) {
    lengths *lengths = pairing->lengths;
    problem *problem = &pairing->problem;
    const size_t at = pairing->at, pass = pairing->pass;
    length_pass *found = &lengths->points[pairing->row][at].passes[pass], *reference = &lengths->lstm[at].passes[pass];
    const double lstm_seconds = expected(lengths->lstm, at, pass, true); /* other load only adds time */
    comparison comparison = {.count = 0};
    const implementation *cell = add_cell(&comparison, pairing->cell, problem, pairing->tensors, found), *lstm = NULL;
    if (cell != NULL && lstm_seconds <= pairing->bench->longest && stop_signal() == 0) {
        lstm = add_lstm(&comparison, pairing->lstm, problem, pairing->tensors, cell->measured.bytes, reference);
    }
    if (cell != NULL && stop_signal() == 0) {
        const double seconds = pairing->bench->seconds / (double)(lengths->count * lengths->cell_count * PASSES);
        const double round =
            expected(lengths->points[pairing->row], at, pass, true) + (lstm != NULL ? lstm_seconds : 0);
        char title[128];
        snprintf(title, sizeof title, "%.60s, %lld steps, %s", cell->measured.name, (long long)problem->steps,
                 length_passes[pass]);
        comparison_measure(&comparison, problem, NULL, NULL, title, seconds, least_rounds(round));
        copy_times(&comparison, &cell->measured, found);
        if (lstm != NULL) {
            const double least = reference->minimum;
            copy_times(&comparison, &lstm->measured, reference);
            reference->minimum = least > 0 ? fmin(least, lstm->measured.minimum) : lstm->measured.minimum;
            found->lstm = lstm->measured.median;
        }
    }
    comparison_free(&comparison);
}

/* The network with the most outputs: its tensors are large enough for all. */
static const rcv_net *widest_network(const runner *cells, size_t count, const runner *lstm) {
    const rcv_net *net = lstm->net;
    for (size_t i = 0; i < count; i++) {
        net = rcv_net_output(cells[i].net) > rcv_net_output(net) ? cells[i].net : net;
    }
    return net;
}

/* Measures every cell with this number of steps, all on the same inputs. */
static void bench_length(const bench *bench, lengths *lengths, runner *cells, runner *lstm, size_t at, size_t pass) {
    const rcv_net *net = widest_network(cells, lengths->cell_count, lstm);
    problem problem = bench->problem;
    problem.steps = lengths->steps[at];
    problem.training = (int)pass;
    const double limit = memory_limit(&problem), bytes = tensor_bytes(&problem, net);
    if (limit > 0 && bytes >= limit) {
        char needed[32], allowed[32];
        for (size_t row = 0; row < lengths->cell_count; row++) {
            lengths->points[row][at].passes[pass].refusal =
                text_of("input, output and their gradients need %s, but %s are allowed", human_bytes(bytes, needed),
                        human_bytes(limit, allowed));
        }
        return;
    }
    problem.memory = limit > 0 ? (limit - bytes) / 1048576 : 0;
    call_tensors tensors;
    show_progress("%lld steps, %s: inputs", (long long)problem.steps, length_passes[pass]);
    call_tensors_new(&tensors, &problem, net, bench->seed);
    for (size_t row = 0; row < lengths->cell_count && stop_signal() == 0; row++) {
        pairing pairing = {bench, lengths, &cells[row], lstm, row, at, pass, problem, &tensors};
        measure_pair(&pairing);
    }
    call_tensors_free(&tensors);
}

/* The time of the LSTM for a length: the median over its comparisons with the cells, or scaled from fewer steps. */
static void set_lstm_time(const bench *bench, lengths *lengths, size_t at, size_t pass) {
    length_pass *lstm = &lengths->lstm[at].passes[pass];
    double times[MAXIMUM_CELLS];
    size_t count = 0;
    for (size_t row = 0; row < lengths->cell_count; row++) {
        const double seconds = lengths->points[row][at].passes[pass].lstm;
        if (seconds > 0) {
            times[count++] = seconds;
        }
    }
    lstm->seconds = count > 0 ? median(times, count) : expected(lengths->lstm, at, pass, false);
    lstm->extrapolated = count == 0 && lstm->seconds > 0;
    if (count > 0) { /* it was measured with some cell: drop refusals of others */
        free(lstm->refusal);
        lstm->refusal = NULL;
    }
    const double least = expected(lengths->lstm, at, pass, true);
    if (lstm->extrapolated && lstm->refusal == NULL && least > bench->longest) {
        lstm->refusal =
            text_of("a call should take at least %.3g s, more than the %g s of --longest", least, bench->longest);
    }
    for (size_t row = 0; row < lengths->cell_count; row++) {
        length_pass *cell = &lengths->points[row][at].passes[pass];
        if (cell->seconds > 0 && cell->lstm <= 0) {
            cell->lstm = lstm->seconds;
            cell->extrapolated = lstm->extrapolated;
        }
    }
}

static void measure_all(const bench *bench, lengths *lengths, runner *cells, runner *lstm) {
    for (size_t i = 0; i < lengths->count * PASSES; i++) {
        const size_t at = i / PASSES, pass = i % PASSES;
        if (stop_signal() == 0) {
            bench_length(bench, lengths, cells, lstm, at, pass);
        }
        set_lstm_time(bench, lengths, at, pass);
    }
}

/* ---- all of it ---- */

rcv_status bench_lengths(const bench *bench, results *results) {
    const problem *problem = &bench->problem;
    lengths *lengths = &results->lengths;
    runner cells[MAXIMUM_CELLS] = {{.name = NULL}}, lstm = {.name = "lstm", .net = problem->net};
    read_steps(bench->lengths, lengths->steps, &lengths->count);
    if (bench->cells == NULL) {
        list_default_cells(lengths);
    } else {
        read_cells(bench->cells, lengths->cells, &lengths->cell_count);
    }
    for (size_t at = 0; at < lengths->count; at++) {
        lengths->lstm[at].steps = lengths->steps[at];
        for (size_t row = 0; row < lengths->cell_count; row++) {
            lengths->points[row][at].steps = lengths->steps[at];
        }
    }
    rcv_status status = runner_fill(&lstm, bench);
    if (status == RCV_OK) {
        status = runner_check(&lstm, problem, lengths->steps[0]);
    }
    for (size_t i = 0; i < lengths->cell_count && status == RCV_OK; i++) {
        status = runner_open(&cells[i], bench, &lengths->cells[i]);
        if (status == RCV_OK && problem->schedule != NULL) { /* a pinned plan may apply to some cells only */
            status = runner_check(&cells[i], problem, lengths->steps[0]);
            status = status == RCV_UNSUPPORTED ? RCV_OK : status;
        }
    }
    if (status == RCV_OK) {
        measure_all(bench, lengths, cells, &lstm);
    }
    hide_progress();
    for (size_t i = 0; i < lengths->cell_count; i++) {
        runner_free(&cells[i]);
    }
    runner_free(&lstm);
    lengths->done = status == RCV_OK;
    return status;
}
