/* recurve plan --parallel: the time of an update of training over many devices, and how the work is distributed. */
#include "verbs/plan_ranks.h"
#include "data_files.h"
#include "paths.h"
#include "problem.h"
#include "ranks.h"
#include "recurve_distributed.h"
#include "tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *data, *machine;
    settings_arguments settings;
} arguments;

typedef struct {
    rcv_context *context;
    ranks ranks;
    rcv_settings *settings;
    rcv_trainer *trainer;
    data_files files;
    rcv_forecast_options machine;
    char *parallel;
} job;

bool plan_is_parallel(int argc, char **argv) {
    bool found = false;
    for (int i = 1; i < argc; i++) {
        found |= strcmp(argv[i], "--parallel") == 0 || strncmp(argv[i], "--parallel=", 11) == 0;
    }
    return found;
}

/* DEVICES,GB/S,MICROSECONDS */
static bool read_machine(const char *text, rcv_forecast_options *machine) {
    int used = 0;
    double bandwidth = 0, latency = -1;
    const bool good = sscanf(text, "%d,%lf,%lf%n", &machine->devices, &bandwidth, &latency, &used) == 3 &&
                      text[used] == '\0' && machine->devices > 0 && bandwidth > 0 && latency >= 0;
    if (!good) {
        say("--machine '%.60s' is not DEVICES,GB/S,MICROSECONDS, such as 64,50,5", text);
    }
    machine->bandwidth = bandwidth * 1e9;
    machine->latency = latency * 1e-6;
    return good;
}

/* ---- output ---- */

static void print_forecast(const job *job, const rcv_forecast *f) {
    char room[32];
    const bool here = job->machine.devices == 0;
    printf("%d device%s: %d replica%s of %d stage%s%s%s\n", f->replicas * f->stages,
           f->replicas * f->stages > 1 ? "s" : "", f->replicas, f->replicas > 1 ? "s" : "", f->stages,
           f->stages > 1 ? "s" : "", f->stages > 1 ? ", layers " : "", f->stages > 1 ? f->split : "");
    if (f->stages > 1) {
        printf("Units:     %lld micro-batch%s of %lld chunk%s of time\n", (long long)f->micro_batches,
               f->micro_batches > 1 ? "es" : "", (long long)f->time_chunks, f->time_chunks > 1 ? "s" : "");
    }
    printf("Links:     %.3g GB/s, %.3g us, %s\n", f->bandwidth / 1e9, f->latency * 1e6,
           here ? "measured between these ranks" : "given");
    printf("Update:    %.3f ms, %.0f tokens/s with padding\n", f->seconds * 1e3, f->tokens_per_second);
    printf("Computing: %.1f%% of all devices' time\n", f->busy * 1e2);
    printf("Bubble:    %.1f%%\n", f->bubble * 1e2);
    printf("Exchange:  %.1f%%: %.3f of %.3f ms are not hidden\n", f->exposed / f->seconds * 1e2, f->exposed * 1e3,
           f->exchange * 1e3);
    printf("Sent:      %s an update by the device that sends most\n", human_bytes(f->sent, room));
}

/* ---- the work ---- */

static rcv_status open_trainer(job *job) {
    rcv_status status = data_files_open(&job->files, job->context, job->settings, NULL);
    if (job->ranks.world != NULL) {
        status = rcv_world_agree(job->ranks.world, status);
    }
    if (status != RCV_OK) {
        return status;
    }
    return rcv_trainer_join(job->context, job->settings, job->files.data[PART_TRAIN], NULL, job->ranks.world,
                            &job->trainer);
}

static int forecast(job *job) {
    rcv_forecast forecast = RCV_INIT(rcv_forecast);
    rcv_status status = open_trainer(job);
    if (status == RCV_OK) {
        status = rcv_trainer_forecast(job->trainer, &job->machine, &forecast);
    }
    if (status != RCV_OK) {
        return ranks_fail(&job->ranks, status);
    }
    if (job->ranks.leads) {
        print_forecast(job, &forecast);
    }
    return EXIT_DONE;
}

/* With --machine one process simulates all devices, and has no ranks itself. */
static int prepare(const arguments *arguments, job *job) {
    if (settings_from_arguments(&arguments->settings, NULL, job->context, &job->settings) != PARSED_GO) {
        return EXIT_USAGE;
    }
    rcv_status status = arguments->data != NULL ? rcv_settings_set(job->settings, "data", arguments->data) : RCV_OK;
    if (status == RCV_OK) {
        status = rcv_settings_set(job->settings, "valid", "none");
    }
    job->parallel = text_of("%s", rcv_settings_get(job->settings, "parallel"));
    job->machine.parallel = job->parallel;
    if (status == RCV_OK && job->machine.devices > 0) {
        status = rcv_settings_set(job->settings, "parallel", "");
    }
    if (status != RCV_OK) {
        return fail(status);
    }
    paths paths = {0};
    if (!data_files_find(&job->files, job->settings)) {
        return EXIT_FAILED;
    }
    paths_add(&paths, PATH_READ, "--config", arguments->settings.config);
    paths_add_data_files(&paths, &job->files, job->settings);
    return paths_are_apart(&paths) ? EXIT_DONE : EXIT_FAILED;
}

static int work(const arguments *arguments, rcv_context *context) {
    job job = {.context = context, .ranks = {.leads = true}, .machine = {.size = sizeof(rcv_forecast_options)}};
    if (arguments->machine != NULL && !read_machine(arguments->machine, &job.machine)) {
        return EXIT_USAGE;
    }
    int result = job.machine.devices > 0 ? EXIT_DONE : ranks_open(&job.ranks, context, &arguments->settings, "plan");
    if (result == EXIT_DONE) {
        result = ranks_agree(&job.ranks, prepare(arguments, &job));
    }
    if (result == EXIT_DONE) {
        result = forecast(&job);
    }
    rcv_trainer_free(job.trainer);
    data_files_close(&job.files);
    rcv_settings_free(job.settings);
    free(job.parallel);
    ranks_close(&job.ranks);
    return result;
}

static parsed parse(arguments *arguments, int argc, char **argv) {
    option options[] = {
        {"machine", OPTION_TEXT, &arguments->machine, .value = "N,GB,US",
         .help = "N devices like this one, and links: GB/s, microseconds"},
    };
    const operand operands[] = {{"DATA", "the training data; as --data", &arguments->data}};
    option_group groups[1 + SETTINGS_GROUPS] = {{"Machine", options, COUNT(options)}};
    memcpy(groups + 1, arguments->settings.groups, arguments->settings.group_count * sizeof *groups);
    const command command = {
        .verb = "plan --parallel",
        .summary = "Forecasts the time of an update of training over many devices",
        .details = "Under mpirun every rank measures its own part at the same time. With --machine one process\n"
                   "measures the parts one after the other, and simulates an update over the devices. The\n"
                   "layers of stages and the units of a batch are chosen where the settings do not set them,\n"
                   "as recurve train does.",
        .operands = operands,
        .operand_count = COUNT(operands),
        .optional_count = 1,
        .groups = groups,
        .group_count = 1 + arguments->settings.group_count};
    return command_parse(&command, argc, argv);
}

int plan_ranks(int argc, char **argv) {
    rcv_context *context = NULL;
    arguments arguments = {0};
    rcv_status status = rcv_context_new(NULL, &context);
    if (status == RCV_OK) {
        status = settings_begin(&arguments.settings, context);
    }
    int result = status == RCV_OK ? EXIT_USAGE : fail(status);
    if (status == RCV_OK) {
        const parsed next = parse(&arguments, argc, argv);
        result = next == PARSED_HELP ? EXIT_DONE : next == PARSED_WRONG ? EXIT_USAGE : work(&arguments, context);
    }
    settings_end(&arguments.settings);
    rcv_context_free(context);
    return result;
}
