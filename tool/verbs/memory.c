/* recurve memory: a network learns to tell the first of n random signs at their end (the memory problem of Martin, Cundy
 * 2018), on any device. The network's parameters are few: the optimizer works on the host. */
#include "json.h"
#include "paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* It has learnt when this many minibatches in a row, with no fewer sequences than that, were all told right. By chance
 * alone that happens once in 2^40 times. */
enum { RIGHT_MINIBATCHES = 5, RIGHT_SEQUENCES = 40 };

enum { WARM_UP = 20 }; /* updates until the learning rate is what it shall be */

typedef struct {
    problem problem;
    double learning_rate, clip, seconds;
    int64_t iterations;
    uint64_t seed;
    int initial; /* place in initial_values */
    const char *json;
    char *command;
} arguments;

static const char *const initial_values[] = {"clocks", "chrono", "usual", NULL};
enum { CLOCKS, CHRONO, USUAL };

/* What an iteration gave. */
typedef struct outcome {
    double loss; /* nats a sequence */
    int64_t right;
    double seconds; /* all of it */
    double network; /* forward and backward pass alone */
} outcome;

/* Parameters are the network's, flat, and behind them the readout's weights [output] and its bias. */
typedef struct {
    const arguments *arguments;
    const problem *problem;
    rcv_dtype storage;
    size_t size; /* bytes of an element in storage */
    int64_t symbols, row,
        output; /* elements of x [steps, batch, 1], of a step of y [batch, output], and of one sequence's */
    int64_t network_count, count;
    double *parameters, *gradient, *mean, *square; /* [count], of the host; the last two are Adam's */
    void *x, *room; /* of the host, in storage: the next sequences; what is copied to the device or from it */
    bool *labels;   /* [batch] is the first symbol +1? */
    struct {
        void *parameters, *x, *y, *dy, *gradient;
    } there; /* of the device; dy is zero but for the last step */
    rcv_plan *plan;
    rcv_run *run;
    uint64_t random;
    outcome *outcomes;
    int64_t done, capacity, in_a_row;
    double began, seconds; /* when iterations began; what they took */
} task;

/* ---- random numbers ---- */

/* splitmix64 */
static uint64_t draw(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state, double low, double high) {
    return low + (high - low) * ((double)(draw(state) >> 11) * 0x1p-53);
}

/* 64 signs a draw */
static void draw_sequences(task *task) {
    for (int64_t i = 0; i < task->symbols; i += 64) {
        const uint64_t bits = draw(&task->random);
        const int64_t some = task->symbols - i < 64 ? task->symbols - i : 64;
        for (int64_t k = 0; k < some && task->storage == RCV_FLOAT64; k++) {
            ((double *)task->x)[i + k] = (bits >> k & 1) != 0 ? 1 : -1;
        }
        for (int64_t k = 0; k < some && task->storage != RCV_FLOAT64; k++) {
            ((float *)task->x)[i + k] = (bits >> k & 1) != 0 ? 1 : -1;
        }
    }
}

/* ---- elements of what is copied ---- */

static double at(const task *task, const void *values, int64_t index) {
    return task->storage == RCV_FLOAT64 ? ((const double *)values)[index] : (double)((const float *)values)[index];
}

static void put(const task *task, int64_t index, double value) {
    if (task->storage == RCV_FLOAT64) {
        ((double *)task->room)[index] = value;
    } else {
        ((float *)task->room)[index] = (float)value;
    }
}

/* ---- initial values ---- */

/* A cell whose state c' = forget c + input candidate is to last. Gates are blocks of `hidden` in bias_ih, by their number;
 * those with recurrent weights come last, so that in weight_hh they count from `recurrent` on. A clock is a feature that
 * rises from 0 to `level` while its gate `keep` forgets; `drive` is what it follows. */
typedef struct {
    const char *cell;
    int64_t keep, drive, input, forget, candidate, recurrent;
    bool own; /* clocks are features of a state of their own, not some of c's */
    double level;
} lasting;

static const lasting lasting_cells[] = {
    {"gilr_lstm", .keep = 0, .drive = 1, .input = 2, .forget = 3, .candidate = 4, .recurrent = 2, .own = true,
     .level = 0.96},
    {"lstm", .keep = 1, .drive = 2, .input = 0, .forget = 1, .candidate = 2, .recurrent = 0, .own = false,
     .level = 0.37},
};

static const double clock_drive = 2; /* tanh of it is 0.96; of that, behind tanh and a gate half open, 0.37 is left */

/* A layer's parameter, or NULL where it has none of that name. */
static double *find(const task *task, const char *name, int64_t layer) {
    char full[64];
    snprintf(full, sizeof full, "%s_l%lld", name, (long long)layer);
    for (size_t i = 0; i < rcv_net_parameter_count(task->problem->net); i++) {
        const rcv_parameter *parameter = rcv_net_parameter(task->problem->net, i);
        if (strcmp(parameter->name, full) == 0) {
            return task->parameters + parameter->offset;
        }
    }
    return NULL;
}

/* A layer's parameters. Gates are found by their number. */
typedef struct {
    double *weight_ih, *weight_hh, *bias_ih,
        *bias_hh;           /* [gates * hidden, input], [.., hidden], [gates * hidden]; or NULL */
    int64_t hidden, clocks; /* the first features are clocks */
    bool first;
} layer;

/* A feature of c keeps what it is told: it forgets 1/u a step, u = exp(span). Its input gate is a half while the clocks
 * stand at 0 and about 1/u when they have risen, by its weights on them; and what it is told is the input, no constant: that
 * would add up over time. */
static void make_memory(const layer *layer, const lasting *cell, int64_t feature, double span) {
    const int64_t hidden = layer->hidden, clocks = layer->clocks;
    const int64_t input = cell->input * hidden + feature, candidate = cell->candidate * hidden + feature;
    double *input_weights = layer->weight_hh + (input - cell->recurrent * hidden) * hidden;
    double *candidate_weights = layer->weight_hh + (candidate - cell->recurrent * hidden) * hidden;
    layer->bias_ih[cell->forget * hidden + feature] = span;
    layer->bias_ih[input] = clocks > 0 ? 0 : -span;
    layer->bias_ih[candidate] = 0;
    for (int64_t i = 0; i < clocks; i++) {
        input_weights[i] -= span / (cell->level * (double)clocks);
        candidate_weights[i] = 0;
    }
    if (layer->first) { /* of one symbol, not of as many as there are features */
        layer->weight_ih[candidate] *= sqrt((double)hidden);
    }
}

/* A clock rises with the time constant exp(span). */
static void make_clock(const layer *layer, const lasting *cell, int64_t feature, double span) {
    layer->bias_ih[cell->keep * layer->hidden + feature] = span;
    layer->bias_ih[cell->drive * layer->hidden + feature] = clock_drive;
    if (!cell->own) {
        layer->bias_ih[cell->input * layer->hidden + feature] = -span;
    }
}

/* Memory that lasts n steps. As Tallec and Ollivier (2018) propose, forget gates have time constants that are drawn evenly
 * from 1..n. With input gates that are as small throughout, n signs would add up, and the first one's share of their
 * deviation is 1/sqrt(n): too little to learn from. Hence clocks, whose time constants are spread over
 * the orders of magnitude in 1..n, the lower ones more often: input gates close along with them, to about
 * u^-sqrt(log t / log n) at step t. */
static void make_lasting(task *task, const lasting *cell, int64_t index) {
    const int64_t hidden = task->problem->network.net.hidden;
    const double length = (double)task->problem->steps;
    const layer layer = {.weight_ih = find(task, "weight_ih", index),
                         .weight_hh = find(task, "weight_hh", index),
                         .bias_ih = find(task, "bias_ih", index),
                         .bias_hh = find(task, "bias_hh", index),
                         .hidden = hidden,
                         .clocks = task->arguments->initial == CLOCKS ? hidden / 2 : 0,
                         .first = index == 0};
    if (layer.bias_ih == NULL || layer.weight_ih == NULL || layer.weight_hh == NULL) {
        return;
    }
    for (int64_t k = 0; k < hidden; k++) {
        const int64_t gates[] = {cell->input, cell->forget, cell->candidate};
        const double even = log(uniform(&task->random, 1, fmax(length - 1, 1)));
        const double share = uniform(&task->random, 0, 1), spread = share * share * log(length);
        for (size_t i = 0; i < COUNT(gates) && layer.bias_hh != NULL; i++) {
            layer.bias_hh[gates[i] * hidden + k] = 0;
        }
        if (cell->own || k >= layer.clocks) {
            make_memory(&layer, cell, k, even);
        }
        if (k < layer.clocks) {
            make_clock(&layer, cell, k, spread);
        }
    }
}

static rcv_status initialize(task *task) {
    const problem *problem = task->problem;
    const rcv_status status = rcv_net_initialize(problem->net, task->arguments->seed, task->storage, task->room);
    for (int64_t i = 0; i < task->network_count && status == RCV_OK; i++) {
        task->parameters[i] = at(task, task->room, i);
    }
    const double scale = 1 / sqrt((double)task->output);
    for (int64_t i = 0; i < task->output; i++) {
        task->parameters[task->network_count + i] = uniform(&task->random, -scale, scale);
    }
    const bool lasts = task->arguments->initial != USUAL && problem->network.net.rank == 0;
    for (size_t i = 0; i < COUNT(lasting_cells) && lasts; i++) {
        for (int64_t layer = 0; layer < problem->network.net.layers; layer++) {
            if (strcmp(rcv_cell_name(problem->cell), lasting_cells[i].cell) == 0) {
                make_lasting(task, &lasting_cells[i], layer);
            }
        }
    }
    return status;
}

/* ---- an iteration ---- */

static rcv_status send_parameters(task *task) {
    for (int64_t i = 0; i < task->network_count; i++) {
        put(task, i, task->parameters[i]);
    }
    return rcv_memory_write(task->problem->device, task->there.parameters, task->room,
                            (size_t)task->network_count * task->size);
}

static rcv_status send_sequences(task *task) {
    for (int64_t i = 0; i < task->problem->batch; i++) {
        task->labels[i] = at(task, task->x, i) > 0;
    }
    return rcv_memory_write(task->problem->device, task->there.x, task->x, (size_t)task->symbols * task->size);
}

/* The logit of "+1" is w y + b, of a sequence's last y. Leaves the readout's gradient, and that of y in `room`. */
static void read_out(task *task, outcome *outcome) {
    const double *w = task->parameters + task->network_count, *b = w + task->output;
    double *dw = task->gradient + task->network_count, *db = dw + task->output;
    const double share = 1 / (double)task->problem->batch;
    memset(dw, 0, (size_t)(task->output + 1) * sizeof *dw);
    for (int64_t i = 0; i < task->problem->batch; i++) {
        const int64_t first = i * task->output;
        double logit = *b;
        for (int64_t k = 0; k < task->output; k++) {
            logit += w[k] * at(task, task->room, first + k);
        }
        const double sign = task->labels[i] ? 1 : -1, margin = sign * logit;
        outcome->loss += share * (margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin);
        outcome->right += margin > 0;
        const double dlogit = -share * sign / (1 + exp(margin));
        *db += dlogit;
        for (int64_t k = 0; k < task->output; k++) {
            dw[k] += dlogit * at(task, task->room, first + k);
            put(task, first + k, dlogit * w[k]);
        }
    }
}

/* Adam, of the gradient shortened to `clip`. Its first steps are as long whatever the gradients say, and a few of them could
 * undo what the initial values remember: so the rate grows over the first updates. */
static void update(task *task) {
    const arguments *arguments = task->arguments;
    const double decay_mean = 0.9, decay_square = 0.99, updates = (double)(task->done + 1);
    double norm = 0;
    for (int64_t i = 0; i < task->count; i++) {
        norm += task->gradient[i] * task->gradient[i];
    }
    norm = sqrt(norm);
    const double scale = arguments->clip > 0 && norm > arguments->clip ? arguments->clip / norm : 1;
    const double warm = fmin(1, updates / WARM_UP);
    const double rate = warm * arguments->learning_rate / (1 - pow(decay_mean, updates));
    const double correction = 1 / (1 - pow(decay_square, updates));
    for (int64_t i = 0; i < task->count; i++) {
        const double gradient = scale * task->gradient[i];
        task->mean[i] += (1 - decay_mean) * (gradient - task->mean[i]);
        task->square[i] += (1 - decay_square) * (gradient * gradient - task->square[i]);
        task->parameters[i] -= rate * task->mean[i] / (sqrt(task->square[i] * correction) + 1e-8);
    }
}

/* y of the last step to the host, what follows from it, and its gradient to the device. */
static rcv_status judge(task *task, outcome *outcome) {
    const char *device = task->problem->device;
    const size_t bytes = (size_t)task->row * task->size, before = (size_t)(task->problem->steps - 1) * bytes;
    const rcv_status status = rcv_memory_read(device, task->room, (const char *)task->there.y + before, bytes);
    if (status != RCV_OK) {
        return status;
    }
    read_out(task, outcome);
    return rcv_memory_write(device, (char *)task->there.dy + before, task->room, bytes);
}

/* The next sequences are drawn while a device that only enqueues is at the backward pass. */
static rcv_status learn(task *task, outcome *outcome) {
    const rcv_forward forward = {.parameters = task->there.parameters, .x = task->there.x, .y = task->there.y};
    const rcv_backward backward = {.dy = task->there.dy, .dparameters = task->there.gradient};
    const double start = now();
    rcv_status status = rcv_run_forward(task->run, &forward);
    if (status == RCV_OK) {
        status = rcv_run_wait(task->run);
    }
    if (status == RCV_OK) {
        status = judge(task, outcome);
    }
    if (status == RCV_OK) {
        status = rcv_run_backward(task->run, &backward);
    }
    const double enqueued = now();
    draw_sequences(task);
    const double drawn = now();
    if (status == RCV_OK) {
        status = rcv_run_wait(task->run);
    }
    outcome->network = now() - start - (problem_is_gpu(task->problem) ? 0 : drawn - enqueued);
    if (status == RCV_OK) {
        status = rcv_memory_read(task->problem->device, task->room, task->there.gradient,
                                 (size_t)task->network_count * task->size);
    }
    for (int64_t i = 0; i < task->network_count && status == RCV_OK; i++) {
        task->gradient[i] = at(task, task->room, i);
    }
    return status;
}

static rcv_status iterate(task *task) {
    outcome outcome = {0};
    const double start = now();
    rcv_status status = send_parameters(task);
    if (status == RCV_OK) {
        status = send_sequences(task);
    }
    if (status == RCV_OK) {
        status = learn(task, &outcome);
    }
    if (status != RCV_OK) {
        return status;
    }
    update(task);
    outcome.seconds = now() - start;
    if (task->done == task->capacity) {
        struct outcome *longer = need((size_t)(task->capacity * 2 + 64), sizeof outcome);
        if (task->done > 0) {
            memcpy(longer, task->outcomes, (size_t)task->done * sizeof outcome);
        }
        free(task->outcomes);
        task->outcomes = longer;
        task->capacity = task->capacity * 2 + 64;
    }
    task->outcomes[task->done++] = outcome;
    task->in_a_row = outcome.right == task->problem->batch ? task->in_a_row + 1 : 0;
    return RCV_OK;
}

static bool has_learnt(const task *task) {
    return task->in_a_row >= RIGHT_MINIBATCHES && task->in_a_row * task->problem->batch >= RIGHT_SEQUENCES;
}

/* ---- all of it ---- */

/* Zeros of dy, a piece of `room` at a time. */
static rcv_status clear_dy(const task *task, int64_t elements, int64_t room) {
    rcv_status status = RCV_OK;
    for (int64_t i = 0; i < elements && status == RCV_OK; i += room) {
        const int64_t some = elements - i < room ? elements - i : room;
        status = rcv_memory_write(task->problem->device, (char *)task->there.dy + (size_t)i * task->size, task->room,
                                  (size_t)some * task->size);
    }
    return status;
}

static rcv_status prepare(task *task) {
    const problem *problem = task->problem;
    task->storage = problem_storage(problem);
    task->size = rcv_dtype_bytes(task->storage);
    task->output = rcv_net_output(problem->net);
    task->row = problem->batch * task->output;
    task->symbols = problem->steps * problem->batch;
    task->network_count = rcv_net_parameter_elements(problem->net);
    task->count = task->network_count + task->output + 1;
    task->random = task->arguments->seed;
    const int64_t room = task->row > task->network_count ? task->row : task->network_count;
    double **const vectors[] = {&task->parameters, &task->gradient, &task->mean, &task->square};
    for (size_t i = 0; i < COUNT(vectors); i++) {
        *vectors[i] = need((size_t)task->count, sizeof(double));
    }
    task->x = need((size_t)task->symbols, task->size);
    task->room = need((size_t)room, task->size);
    task->labels = need((size_t)problem->batch, sizeof *task->labels);
    const struct {
        void **memory;
        int64_t elements;
    } blocks[] = {{&task->there.parameters, task->network_count},
                  {&task->there.gradient, task->network_count},
                  {&task->there.x, task->symbols},
                  {&task->there.y, task->symbols * task->output},
                  {&task->there.dy, task->symbols * task->output}};
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < COUNT(blocks) && status == RCV_OK; i++) {
        status = rcv_memory_new(problem->context, problem->device, (size_t)blocks[i].elements * task->size,
                                blocks[i].memory);
    }
    if (status == RCV_OK) {
        status = clear_dy(task, task->symbols * task->output, room);
    }
    return status == RCV_OK ? initialize(task) : status;
}

static void release(task *task) {
    const problem *problem = task->problem;
    void *const there[] = {task->there.parameters, task->there.gradient, task->there.x, task->there.y, task->there.dy};
    for (size_t i = 0; i < COUNT(there); i++) {
        rcv_memory_free(problem->context, problem->device, there[i]);
    }
    void *const here[] = {task->parameters, task->gradient, task->mean,   task->square,
                          task->x,          task->room,     task->labels, task->outcomes};
    for (size_t i = 0; i < COUNT(here); i++) {
        free(here[i]);
    }
    rcv_run_free(task->run);
    rcv_plan_free(task->plan);
}

static void show(const task *task, bool terminal, bool last) {
    const outcome *outcome = &task->outcomes[task->done - 1];
    fprintf(stderr, "%siteration %lld  loss %.4f nats  %lld of %lld right  %.1f ms  %.1f s%s", terminal ? "\r" : "",
            (long long)task->done, outcome->loss, (long long)outcome->right, (long long)task->problem->batch,
            outcome->seconds * 1e3, task->seconds,
            !terminal ? "\n"
            : last    ? "\033[K\n"
                      : "\033[K");
    fflush(stderr);
}

/* Until it has learnt, or a limit or a signal ends it. */
static rcv_status train(task *task) {
    const arguments *arguments = task->arguments;
    const bool terminal = isatty(STDERR_FILENO) == 1;
    double shown = 0;
    rcv_status status = RCV_OK;
    task->began = now();
    draw_sequences(task);
    while (status == RCV_OK && !has_learnt(task) && stop_signal() == 0 &&
           (arguments->iterations == 0 || task->done < arguments->iterations) &&
           (arguments->seconds <= 0 || now() - task->began < arguments->seconds)) {
        status = iterate(task);
        task->seconds = now() - task->began;
        if (status == RCV_OK && !isfinite(task->outcomes[task->done - 1].loss)) {
            break;
        }
        if (status == RCV_OK && (task->done == 1 || task->seconds - shown >= (terminal ? 0.1 : 5))) {
            show(task, terminal, false);
            shown = task->seconds;
        }
    }
    if (status == RCV_OK && task->done > 1 && task->seconds > shown) {
        show(task, terminal, true);
    }
    return status;
}

static double median_of(const task *task, bool network) {
    double *values = need((size_t)task->done, sizeof(double));
    for (int64_t i = 0; i < task->done; i++) {
        values[i] = network ? task->outcomes[i].network : task->outcomes[i].seconds;
    }
    const double middle = median(values, (size_t)task->done);
    free(values);
    return middle;
}

static void print_result(const task *task) {
    char room[32];
    char *title = problem_describe(task->problem);
    printf("%s\n", title);
    free(title);
    printf("Plan:       %s\n", rcv_plan_string(task->plan));
    printf("Memory:     %s of the run\n", human_bytes((double)rcv_plan_bytes(task->plan), room));
    printf("Learnt:     %s\n", has_learnt(task) ? "yes" : "no");
    printf("Iterations: %lld\n", (long long)task->done);
    printf("Seconds:    %.3f\n", task->seconds);
    printf("Iteration:  %.3f ms, the median; of it the network %.3f ms\n", median_of(task, false) * 1e3,
           median_of(task, true) * 1e3);
}

static json_t *result_json(const task *task) {
    const arguments *arguments = task->arguments;
    machine machine = {0};
    machine_describe(&machine, task->problem);
    json_t *losses = json_array(), *right = json_array();
    for (int64_t i = 0; i < task->done; i++) {
        json_array_append_new(losses, number(task->outcomes[i].loss));
        json_array_append_new(right, json_integer(task->outcomes[i].right));
    }
    json_t *result = json_pack("{s:b, s:I, s:f, s:f, s:f, s:I, s:o, s:o}", "learnt", (int)has_learnt(task),
                               "iterations", (json_int_t)task->done, "seconds", task->seconds, "iteration_seconds",
                               median_of(task, false), "network_seconds", median_of(task, true), "bytes",
                               (json_int_t)rcv_plan_bytes(task->plan), "losses", losses, "right", right);
    json_t *all =
        json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:s, s:f, s:f, s:f, s:s, s:I}", "command", arguments->command, "date",
                  machine.date, "version", machine.version, "commit", machine.commit, "problem",
                  problem_json(task->problem), "machine", machine_json(&machine), "plan", rcv_plan_string(task->plan),
                  "planning_seconds", rcv_plan_seconds(task->plan), "learning_rate", arguments->learning_rate, "clip",
                  arguments->clip, "initial", initial_values[arguments->initial], "seed", (json_int_t)arguments->seed);
    if (json_object_update(all, result) != 0) {
        json_decref(all);
        all = NULL;
    }
    json_decref(result);
    machine_free(&machine);
    return all;
}

/* What is said at the end, and the exit status. */
static int conclude(const task *task) {
    const arguments *arguments = task->arguments;
    if (task->done > 0) {
        print_result(task);
        fflush(stdout);
        if (arguments->json != NULL && !save_json(arguments->json, result_json(task))) {
            return EXIT_FAILED;
        }
    }
    if (has_learnt(task)) {
        return EXIT_DONE;
    }
    if (stop_signal() != 0) {
        say("stopped after %lld iteration%s, before it had learnt", (long long)task->done, task->done == 1 ? "" : "s");
        return stop_status();
    }
    if (task->done > 0 && !isfinite(task->outcomes[task->done - 1].loss)) {
        say("the loss of iteration %lld is not a finite number; try a lower --learning-rate", (long long)task->done);
    } else {
        say("not learnt within %lld iteration%s and %.1f s: the last %d minibatches were not all told right",
            (long long)task->done, task->done == 1 ? "" : "s", task->seconds, RIGHT_MINIBATCHES);
    }
    return EXIT_FAILED;
}

static int work(arguments *arguments) {
    problem *problem = &arguments->problem;
    task task = {.arguments = arguments, .problem = problem};
    stop_on_signals();
    rcv_status status = problem_open(problem);
    if (status == RCV_OK) {
        const rcv_plan_options options = problem_plan_options(problem, problem->schedule);
        status = rcv_plan_new(problem->net, &options, &task.plan);
    }
    if (status == RCV_OK) {
        status = rcv_run_new(task.plan, &task.run);
    }
    if (status == RCV_OK) {
        status = prepare(&task);
    }
    if (status == RCV_OK) {
        status = train(&task);
    }
    if (status == RCV_OK) {
        status = problem_save_wisdom(problem);
    }
    const int result = status == RCV_OK ? conclude(&task) : fail(status);
    release(&task);
    problem_close(problem);
    return result;
}

static parsed parse(arguments *arguments, int argc, char **argv) {
    problem *problem = &arguments->problem;
    option_group shape, planning;
    problem_groups(problem, &shape, &planning); /* its table is not used: most of it is fixed here */
    problem->network.cell = "gilr_lstm";
    problem->network.net.hidden = 64;
    problem->network.net.layers = 2;
    problem->steps = 1024;
    problem->batch = 8;
    problem->input = 1;
    problem->training = 1;
    option options[] = {
        {"length", OPTION_INTEGER, &problem->steps, 2, 1 << 24, .value = "N", .help = "symbols of a sequence"},
        {"batch", OPTION_INTEGER, &problem->batch, 1, 1 << 24, .value = "N", .help = "sequences of a minibatch"},
        {"iterations", OPTION_INTEGER, &arguments->iterations, 0, 1e15, .value = "N", .help = "at most; 0: no limit"},
        {"seconds", OPTION_REAL, &arguments->seconds, 0, 1e9, .value = "X", .help = "at most; 0: no limit"},
        {"learning-rate", OPTION_REAL, &arguments->learning_rate, 1e-12, 1e6, .value = "X", .help = "of Adam"},
        {"clip", OPTION_REAL, &arguments->clip, 0, 1e30, .value = "X", .help = "largest norm of the gradient; 0: any"},
        {"seed", OPTION_SEED, &arguments->seed, .value = "N", .help = "of the initial values and the sequences"},
        {"initial", OPTION_CHOICE, &arguments->initial, .value = "HOW", .help = "values: clocks, chrono or usual",
         .choices = initial_values},
        {"dtype", OPTION_PRODUCT, &problem->dtype, .value = "TYPE",
         .help = "float32, float64, bfloat16; GPU: tfloat32, float16"},
        {"device", OPTION_TEXT, &problem->device, .value = "NAME", .help = "cpu, cuda, cuda:1, ..."},
        {"threads", OPTION_INTEGER, &problem->threads, 0, 1024, .value = "N", .help = "at most; 0: one a core"},
        {"schedule", OPTION_TEXT, &problem->schedule, .value = "PLAN", .help = "pin this plan string"},
        {"memory", OPTION_REAL, &problem->memory, 0, 1e9, .value = "MIB", .help = "that a run may take; 0: any"},
        {"wisdom", OPTION_TEXT, &problem->wisdom, .value = "FILE", .help = "what planning learnt: read, and written"},
        {"json", OPTION_TEXT, &arguments->json, .value = "FILE", .help = "write every number"},
    };
    const option_group groups[] = {{"Task", options, COUNT(options)}, shape};
    const command command = {
        .verb = "memory",
        .summary = "Trains a network to tell the first of many random signs at the end of the sequence",
        .details = "It has learnt when five minibatches in a row were all told right (more where they\n"
                   "have fewer than eight sequences: 40 sequences in a row). The output of the last step\n"
                   "alone is read, and Adam updates after every minibatch. In gilr_lstm and lstm initial\n"
                   "values make the state last: forget gates have time constants spread over 1 to the\n"
                   "length, with input gates that are as small (chrono; Tallec, Ollivier 2018), or that\n"
                   "close along with features that serve as clocks. Other cells begin as usual. Ctrl-C ends\n"
                   "it after the current iteration.",
        .groups = groups,
        .group_count = COUNT(groups)};
    return command_parse(&command, argc, argv);
}

static bool files_are_clear(const arguments *arguments) {
    paths paths = {0};
    paths_add_problem(&paths, &arguments->problem);
    paths_add(&paths, PATH_WRITTEN, "--json", arguments->json);
    return paths_are_apart(&paths) && (arguments->json == NULL || output_is_free(arguments->json, OUTPUT_JSON));
}

int verb_memory(int argc, char **argv) {
    arguments *arguments = need(1, sizeof *arguments);
    arguments->learning_rate = 0.005;
    arguments->clip = 1;
    arguments->iterations = 2000;
    arguments->command = command_line(argc, argv);
    const parsed next = parse(arguments, argc, argv);
    int result = next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    if (next == PARSED_GO) {
        result = problem_check(&arguments->problem);
        if (result == EXIT_DONE && !files_are_clear(arguments)) {
            result = EXIT_FAILED;
        }
        if (result == EXIT_DONE) {
            result = work(arguments);
        }
    }
    free(arguments->command);
    free(arguments);
    return result;
}
