/* The options of a problem, and the objects made of them. */
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const passes[] = {"forward", "train", NULL};
static const char *const efforts[] = {"measure", "estimate", "exhaustive", NULL}; /* in the order of rcv_effort */

void problem_groups(problem *problem, option_group *shape, option_group *planning) {
    memset(problem, 0, sizeof *problem);
    *shape = network_group(&problem->network, false);
    problem->network.net.hidden = 512;
    problem->steps = 100;
    problem->batch = 64;
    problem->device = "cpu";
    const double most = 1 << 24;
    const option options[PROBLEM_OPTIONS] = {
        {"steps", OPTION_INTEGER, &problem->steps, 1, most, .value = "N", .help = "time steps of a sequence"},
        {"batch", OPTION_INTEGER, &problem->batch, 1, most, .value = "N", .help = "sequences of a batch"},
        {"input", OPTION_INTEGER, &problem->input, 0, most, .value = "N",
         .help = "features of the input; 0: as hidden"},
        {"bidirectional", OPTION_FLAG, &problem->network.net.bidirectional,
         .help = "one direction each way through time"},
        {"dtype", OPTION_PRODUCT, &problem->dtype, .value = "TYPE",
         .help = "float32, float64, bfloat16; GPU: tfloat32, float16"},
        {"pass", OPTION_CHOICE, &problem->training, .value = "PASS", .help = "forward, or train: forward and backward",
         .choices = passes},
        {"device", OPTION_TEXT, &problem->device, .value = "NAME", .help = "cpu, cuda, cuda:1, ..."},
        {"threads", OPTION_INTEGER, &problem->threads, 0, 1024, .value = "N", .help = "at most; 0: one for each core"},
        {"kernels", OPTION_TEXT, &problem->kernels, .value = "NAME", .help = "use a lower set of CPU kernels"},
        {"schedule", OPTION_TEXT, &problem->schedule, .value = "PLAN", .help = "use this plan string"},
        {"effort", OPTION_CHOICE, &problem->effort, .value = "HOW", .help = "estimate, measure or exhaustive",
         .choices = efforts},
        {"memory", OPTION_REAL, &problem->memory, 0, 1e9, .value = "MIB", .help = "limit of a run; 0: none"},
        {"wisdom", OPTION_TEXT, &problem->wisdom, .value = "FILE", .help = "measured plans: read and written"},
    };
    memcpy(problem->options, options, sizeof options);
    *planning = (option_group){"Problem and planning", problem->options, PROBLEM_OPTIONS};
}

static const char *kernels_at(const void *list, size_t index) {
    (void)list;
    return rcv_kernels_name(index);
}

/* device = ( "cpu" | "cuda" ) [ ":" number ] */
static bool is_device(const char *name) {
    const size_t length = strcspn(name, ":");
    const char *number = name[length] == ':' ? name + length + 1 : "0";
    const bool known = (length == 3 && strncmp(name, "cpu", 3) == 0) || (length == 4 && strncmp(name, "cuda", 4) == 0);
    return known && number[0] != '\0' && strspn(number, "0123456789") == strlen(number);
}

int problem_check(const problem *problem) {
    if (!is_device(problem->device)) {
        say("--device must be cpu or a GPU, which is cuda, cuda:1, and so on; not '%.60s'", problem->device);
        return EXIT_USAGE;
    }
    if (problem->kernels != NULL) {
        bool known = false;
        for (size_t i = 0; i < rcv_kernels_count() && !known; i++) {
            known = strcmp(rcv_kernels_name(i), problem->kernels) == 0;
        }
        if (!known) {
            const char *near = nearest_name(problem->kernels, rcv_kernels_count(), kernels_at, NULL);
            char list[200] = "";
            for (size_t i = 0; i < rcv_kernels_count(); i++) {
                const size_t length = strlen(list);
                snprintf(list + length, sizeof list - length, "%s%s", i > 0 ? ", " : "", rcv_kernels_name(i));
            }
            say("this CPU has no kernels '%.60s'; it has %s%s%s%s", problem->kernels, list,
                near != NULL ? ": did you mean " : "", near != NULL ? near : "", near != NULL ? "?" : "");
            return EXIT_USAGE;
        }
    }
    return problem->wisdom == NULL || output_is_writable(problem->wisdom) ? EXIT_DONE : EXIT_FAILED;
}

rcv_status problem_open(problem *problem) {
    const rcv_context_options options =
        RCV_INIT(rcv_context_options, .log = problem->log, .log_user = problem->log_user, .threads = problem->threads,
                 .kernels = problem->kernels, .replan = problem->replan);
    rcv_status status = rcv_context_new(&options, &problem->context);
    if (status == RCV_OK && problem_is_gpu(problem)) {
        status = rcv_device_describe(problem->context, problem->device, NULL);
    }
    if (status == RCV_OK && problem->wisdom != NULL && access(problem->wisdom, F_OK) == 0) {
        status = rcv_wisdom_load(problem->context, problem->wisdom);
    }
    if (status == RCV_OK) {
        status = network_open(&problem->network, problem->context, &problem->cell);
    }
    if (status == RCV_OK) {
        rcv_net_options *net = &problem->network.net;
        net->input = problem->input > 0 ? problem->input : net->hidden;
        status = rcv_net_new(problem->cell, net, &problem->net);
    }
    return status;
}

rcv_status problem_save_wisdom(const problem *problem) {
    return problem->wisdom == NULL ? RCV_OK : rcv_wisdom_save(problem->context, problem->wisdom);
}

void problem_close(problem *problem) {
    rcv_net_free(problem->net);
    rcv_cell_free(problem->cell);
    rcv_context_free(problem->context);
}

static bool is_not_stopped(void *user) {
    (void)user;
    return stop_signal() == 0;
}

rcv_plan_options problem_plan_options(const problem *problem, const char *schedule) {
    return RCV_INIT(rcv_plan_options, .steps = problem->steps, .batch = problem->batch, .dtype = problem->dtype,
                    .training = problem->training != 0, .schedule = schedule, .effort = (rcv_effort)problem->effort,
                    .threads = problem->threads, .memory = (size_t)(problem->memory * 1048576),
                    .device = problem->device, .go_on = is_not_stopped);
}

bool problem_is_gpu(const problem *problem) { return strncmp(problem->device, "cuda", 4) == 0; }

int64_t problem_threads(const problem *problem) {
    return problem->threads > 0 ? problem->threads : rcv_context_threads(problem->context);
}

rcv_dtype problem_storage(const problem *problem) { return problem->dtype == RCV_FLOAT64 ? RCV_FLOAT64 : RCV_FLOAT32; }

const char *problem_effort(const problem *problem) { return efforts[problem->effort]; }

char *problem_describe(const problem *problem) {
    const rcv_net_options *net = &problem->network.net;
    char rank[40] = "";
    if (net->rank > 0) {
        snprintf(rank, sizeof rank, " of rank %lld", (long long)net->rank);
    }
    const bool gpu = problem_is_gpu(problem);
    return text_of("%s%s%s, %lld layer%s, input %lld, hidden %lld, %lld steps, batch %lld, %s, %s%s%s",
                   rcv_cell_name(problem->cell), rank, net->bidirectional ? " in both directions" : "",
                   (long long)net->layers, net->layers == 1 ? "" : "s",
                   (long long)(problem->input > 0 ? problem->input : net->hidden), (long long)net->hidden,
                   (long long)problem->steps, (long long)problem->batch, rcv_dtype_name(problem->dtype),
                   problem->training ? "training step" : "forward", gpu ? ", on " : "", gpu ? problem->device : "");
}

double problem_operations(const problem *problem, const rcv_net *net) {
    double elements = 0;
    for (size_t i = 0; i < rcv_net_parameter_count(net); i++) {
        const rcv_parameter *parameter = rcv_net_parameter(net, i);
        elements += parameter->dims > 1 ? (double)parameter->count : 0;
    }
    return 2 * elements * (double)problem->steps * (double)problem->batch * (problem->training ? 3 : 1);
}

const char *human_bytes(double bytes, char room[32]) {
    const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    for (; bytes >= 1024 && unit + 1 < COUNT(units); unit++) {
        bytes /= 1024;
    }
    snprintf(room, 32, unit == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return room;
}
