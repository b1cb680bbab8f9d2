/* recurve compare: trains several cells in the same way, one after the other in this process: the data is read once, one signal handler stops
 * the run that trains, and runs of a cell share the plans that were measured for it. */
#include "compare/compare.h"
#include "paths.h"
#include "report/report.h"
#include "settings_options.h"
#include "tool.h"
#include "training/summary.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    const char **operands; /* cells, and DATA at the end unless --data is given */
    size_t operand_count;
    const char *output;
    int64_t seeds, parameters;
    bool overwrite, json;
    settings_arguments settings;
} arguments;

/* ---- settings ---- */

/* Settings that a comparison chooses itself, or that make no sense in it. */
static bool check_given(const arguments *arguments) {
    static const struct {
        const char *name, *why;
    } refused[] = {
        {"cell", "the cells are operands: recurve compare CELL CELL ... DATA"},
        {"log", "each run has a log in the folder of --output"},
        {"test", "a comparison is by validation; test the model that you choose with recurve eval"},
        {"parallel", "a comparison runs in one process"},
    };
    for (size_t i = 0; i < COUNT(refused); i++) {
        if (rcv_settings_given(arguments->settings.given, refused[i].name)) {
            say("--%s is not for compare: %s", refused[i].name, refused[i].why);
            return false;
        }
    }
    if (arguments->parameters > 0 && rcv_settings_given(arguments->settings.given, "hidden")) {
        say("--hidden and --parameters exclude each other: --parameters chooses the hidden size of each cell");
        return false;
    }
    return true;
}

/* The settings of all runs, with DATA. */
static parsed collect_settings(arguments *arguments, rcv_context *context, rcv_settings **settings) {
    const bool has_data = rcv_settings_given(arguments->settings.given, "data");
    if (!check_given(arguments)) {
        return PARSED_WRONG;
    }
    const parsed next = settings_from_arguments(&arguments->settings, NULL, context, settings);
    if (next != PARSED_GO) {
        return next;
    }
    if (!has_data && arguments->operand_count < 2) {
        say("compare needs cells and DATA: recurve compare CELL CELL ... DATA");
        return PARSED_WRONG;
    }
    rcv_status status = RCV_OK;
    if (!has_data) {
        status = rcv_settings_set(*settings, "data", arguments->operands[--arguments->operand_count]);
    }
    if (status == RCV_OK && !rcv_settings_given(*settings, "keep")) {
        status = rcv_settings_set(*settings, "keep", "1");
    }
    if (status != RCV_OK) {
        say("%s", rcv_message());
    }
    return status == RCV_OK ? PARSED_GO : PARSED_WRONG;
}

/* A comparison is by validation: where there is no data for it, a share of the training data is taken. */
static bool find_files(cell_comparison *comparison, rcv_settings *settings) {
    data_files *files = &comparison->files;
    if (!data_files_find(files, settings)) {
        return false;
    }
    free(files->paths[PART_TEST]);
    files->paths[PART_TEST] = NULL;
    if (rcv_settings_get(settings, "valid")[0] == '\0' && files->paths[PART_VALID] == NULL &&
        rcv_settings_set(settings, "valid", "10%") != RCV_OK) {
        say("%s", rcv_message());
        return false;
    }
    return true;
}

/* Padded lengths that are chosen by a cell's speed would give cells different batches: here they depend on the data alone. */
static rcv_status fix_buckets(const rcv_data *data, rcv_settings *settings) {
    const char *given = rcv_settings_get(settings, "buckets");
    int64_t bounds[RCV_MOST_BUCKETS];
    size_t count, most = RCV_AUTO_BUCKETS;
    if (rcv_data_get_kind(data) == RCV_DATA_STREAM || strncmp(given, "auto", 4) != 0) {
        return RCV_OK;
    }
    if (given[4] == ':') {
        const long wanted = strtol(given + 5, NULL, 10);
        most = wanted > 0 && wanted < RCV_MOST_BUCKETS ? (size_t)wanted : RCV_MOST_BUCKETS;
    }
    rcv_status status = rcv_data_buckets(data, most, false, bounds, &count);
    char *text = text_of("%s", "");
    for (size_t i = 0; i < count && status == RCV_OK; i++) {
        char *longer = text_of("%s%s%lld", text, i > 0 ? "," : "", (long long)bounds[i]);
        free(text);
        text = longer;
    }
    status = status == RCV_OK ? rcv_settings_set(settings, "buckets", text) : status;
    free(text);
    return status;
}

/* ---- before the first run ---- */

/* Cells, data and sizes. RCV_OK; or a status, after which *said tells whether the message is printed. */
static rcv_status open_all(cell_comparison *comparison, const arguments *arguments, rcv_settings *settings) {
    rcv_status status = rcv_device_describe(comparison->context, rcv_settings_get(settings, "device"), NULL);
    const char *wisdom = rcv_settings_get(settings, "wisdom");
    if (status == RCV_OK && wisdom[0] != '\0' && access(wisdom, F_OK) == 0) {
        status = rcv_wisdom_load(comparison->context, wisdom);
    }
    if (status == RCV_OK) {
        status = data_files_open(&comparison->files, comparison->context, settings, NULL);
    }
    if (status == RCV_OK) {
        status = fix_buckets(comparison->files.data[PART_TRAIN], settings);
    }
    if (status == RCV_OK) {
        comparison->metric = metric_of_data(comparison->files.data[PART_TRAIN]);
        status = cells_set_sizes(comparison, settings, arguments->parameters);
    }
    return status == RCV_OK ? runs_make(comparison, arguments->seeds) : status;
}

/* Makes the folder. `made`: it was not there. */
static bool make_folder(const char *folder, bool *made) {
    struct stat info;
    *made = mkdir(folder, 0777) == 0;
    if (*made || (errno == EEXIST && stat(folder, &info) == 0 && S_ISDIR(info.st_mode))) {
        return true;
    }
    say("cannot make the folder %s: %s", folder, errno == EEXIST ? "there is a file of this name" : strerror(errno));
    return false;
}

static void summarise(const cell_comparison *comparison, const rcv_settings *settings) {
    size_t kept = 0;
    summarise_data(&comparison->files, settings);
    for (size_t i = 0; i < comparison->cell_count; i++) {
        const compared_cell *cell = &comparison->cells[i];
        put_entry(i == 0 ? "cells" : "", "%s: %s, %s parameters", cell->cell, cell->shape,
                  count_text(cell->parameters).text);
    }
    for (size_t i = 0; i < comparison->run_count; i++) {
        kept += comparison->runs[i].state == RUN_FINISHED;
    }
    char *limits = limits_text(settings, 0);
    char *done = kept > 0 ? text_of("; %zu finished before", kept) : text_of("%s", "");
    put_entry("runs", "%zu, each of %s%s", comparison->run_count, limits, done);
    put_entry("output", "%s/", comparison->folder);
    free(done);
    free(limits);
}

/* ---- the runs ---- */

/* Is the failure that of one cell, so that the others can go on? */
static bool is_of_cell(rcv_status status) {
    return status == RCV_INVALID || status == RCV_UNSUPPORTED || status == RCV_NO_MEMORY || status == RCV_SYNTAX;
}

static int train_all(cell_comparison *comparison) {
    int result = EXIT_DONE;
    for (size_t i = 0; i < comparison->run_count; i++) {
        if (comparison->runs[i].state == RUN_FINISHED) {
            continue;
        }
        const rcv_status status = stop_signal() == 0 ? train_run(comparison, i) : RCV_STOPPED;
        const bool is_failure = status != RCV_OK && status != RCV_STOPPED;
        if (is_failure) {
            fail(status);
            result = EXIT_FAILED;
        }
        if (!record_write(comparison)) {
            return EXIT_FAILED;
        }
        if (status == RCV_STOPPED || stop_signal() != 0) {
            note("stopped: the same command continues the comparison in %s", comparison->folder);
            return stop_status();
        }
        if (is_failure && !is_of_cell(status)) {
            return EXIT_FAILED;
        }
    }
    return result;
}

static bool write_page(const cell_comparison *comparison, rcv_settings *settings) {
    const char **logs = need(comparison->run_count, sizeof *logs);
    size_t count = 0;
    for (size_t i = 0; i < comparison->run_count; i++) {
        if (comparison->runs[i].state == RUN_FINISHED) {
            logs[count++] = comparison->runs[i].log;
        }
    }
    const bool good = count == 0 || write_comparison_page(logs, count, NAN, comparison->page, settings);
    free(logs);
    return good;
}

static bool print_json(const cell_comparison *comparison) {
    json_t *object = record_object(comparison);
    if (object == NULL) {
        say("there is no memory for the results as JSON");
        return false;
    }
    char *text = json_text(object, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    printf("%s\n", text);
    free(text);
    json_decref(object);
    return true;
}

static int conclude(const cell_comparison *comparison, const arguments *arguments, rcv_settings *settings, int result) {
    const char *wisdom = rcv_settings_get(settings, "wisdom");
    rcv_settings *defaults = NULL;
    rcv_status status = rcv_settings_new(comparison->context, &defaults);
    if (status == RCV_OK && wisdom[0] != '\0') {
        status = rcv_wisdom_save(comparison->context, wisdom);
    }
    bool good = status == RCV_OK || fail(status) == EXIT_DONE;
    good = write_page(comparison, defaults) && good;
    rcv_settings_free(defaults);
    if (arguments->json) {
        good = print_json(comparison) && good;
    } else {
        print_table(comparison);
    }
    fflush(stdout);
    note("wrote %s", comparison->page);
    return good ? result : EXIT_FAILED;
}

static int compare(cell_comparison *comparison, arguments *arguments, rcv_settings *settings) {
    bool made = false;
    if (!cells_open(comparison, arguments->operands, arguments->operand_count) || !find_files(comparison, settings)) {
        return EXIT_FAILED;
    }
    const rcv_status status = open_all(comparison, arguments, settings);
    if (status != RCV_OK) {
        return fail(status);
    }
    comparison->record = text_of("%s/comparison.json", comparison->folder);
    comparison->page = text_of("%s/comparison.html", comparison->folder);
    if (!make_folder(comparison->folder, &made)) {
        return EXIT_FAILED;
    }
    if (!runs_check(comparison, arguments->settings.config) || !record_write(comparison)) {
        if (made) {
            rmdir(comparison->folder);
        }
        return EXIT_FAILED;
    }
    summarise(comparison, settings);
    stop_on_signals();
    const int result = train_all(comparison);
    return stop_signal() != 0 ? result : conclude(comparison, arguments, settings, result);
}

static int work(arguments *arguments, rcv_context *context) {
    cell_comparison comparison = {.context = context, .folder = arguments->output, .overwrite = arguments->overwrite};
    rcv_settings *settings = NULL;
    const parsed next = collect_settings(arguments, context, &settings);
    int result = next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    if (next == PARSED_GO && arguments->operand_count == 0) {
        say("compare needs a cell; recurve list shows the built-in ones");
    } else if (next == PARSED_GO) {
        result = compare(&comparison, arguments, settings);
    }
    cell_comparison_free(&comparison);
    rcv_settings_free(settings);
    return result;
}

/* ---- the verb ---- */

static void on_library_log(void *user, const char *line) {
    (void)user;
    if (is_verbose() && strncmp(line, "plan of ", 8) == 0) {
        note("%s", line);
    }
}

static const char details[] =
    "Each cell is trained with the same settings, batches and seeds, one after the other, for the same time,\n"
    "updates or passes over the data. FOLDER has the log and the model of every run, comparison.html and\n"
    "comparison.json. The table has the best cell first. Without validation data a tenth of DATA is kept for it.\n"
    "\n"
    "The same command continues a comparison that was interrupted: runs that have finished are kept, also\n"
    "where cells or seeds are added. A cell that cannot be read is reported before anything is trained.";

static parsed parse(arguments *arguments, int argc, char **argv) {
    option options[] = {
        {"output", OPTION_TEXT, &arguments->output, .value = "FOLDER", .help = "the folder to write"},
        {"seeds", OPTION_INTEGER, &arguments->seeds, 1, 1000, .value = "N",
         .help = "runs of each cell, with other seeds"},
        {"parameters", OPTION_INTEGER, &arguments->parameters, 0, 1e12, .value = "N",
         .help = "choose each cell's hidden size, so that it has about N parameters; 0: the same hidden size"},
        {"overwrite", OPTION_FLAG, &arguments->overwrite, .help = "replace runs with other settings in FOLDER"},
        {"json", OPTION_FLAG, &arguments->json, .help = "print JSON in place of the table"},
    };
    const operand operands[] = {{"CELL ... DATA",
                                 "cells, by name or file, and at the end the data: a file, or a folder with train and "
                                 "valid",
                                 arguments->operands}};
    option_group groups[1 + SETTINGS_GROUPS] = {{"Options", options, COUNT(options)}};
    memcpy(groups + 1, arguments->settings.groups, arguments->settings.group_count * sizeof *groups);
    const command command = {.verb = "compare",
                             .summary = "Trains several cells in the same way and compares them",
                             .details = details,
                             .verbose = "print more: the chosen plans",
                             .operands = operands,
                             .operand_count = COUNT(operands),
                             .last_count = &arguments->operand_count,
                             .groups = groups,
                             .group_count = 1 + arguments->settings.group_count,
                             .unlisted = arguments->settings.group_count,
                             .more = "All settings of recurve train may be given, too: see recurve train --help"};
    return command_parse(&command, argc, argv);
}

int verb_compare(int argc, char **argv) {
    rcv_context *context = NULL;
    const rcv_context_options options = RCV_INIT(rcv_context_options, .log = on_library_log);
    arguments arguments = {
        .operands = need((size_t)argc, sizeof *arguments.operands), .output = "comparison", .seeds = 1};
    rcv_status status = rcv_context_new(&options, &context);
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
    free(arguments.operands);
    return result;
}
