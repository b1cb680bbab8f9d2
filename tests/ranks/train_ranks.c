/* Trains many models, one after the other, in one process or in the ranks that mpirun started together: parallel.sh compares the results.
 *   train_ranks FILE
 * A line of FILE is one run: NAME DATA OPTIONS..., with the settings of `recurve train` as options. Without mpirun a run has one process; with it, all
 * ranks of the world. It writes NAME.safetensors and the log NAME.jsonl. Status 1 where a run failed; the others then do not follow. */
#include <recurve_distributed.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rcv_context *context;
static rcv_world *world; /* NULL: one process */

/* ---- options ---- */

static bool is_flag(const char *name) {
    for (size_t i = 0; i < rcv_setting_count(); i++) {
        if (!strcmp(rcv_setting_at(i)->name, name)) return rcv_setting_at(i)->kind == RCV_SETTING_FLAG;
    }
    return false;
}

/* OPTIONS = { "--" NAME VALUE | "--" FLAG }: the rest of a line, in strtok's state `rest`. */
static rcv_status read_options(rcv_settings *settings, char *rest) {
    rcv_status status = RCV_OK;
    for (char *state = NULL, *word = strtok_r(rest, " \n", &state); word && !status;
         word = strtok_r(NULL, " \n", &state)) {
        const char *name = word + 2, *value = is_flag(name) ? "true" : strtok_r(NULL, " \n", &state);
        status = rcv_settings_set(settings, name, value ? value : "");
    }
    return status;
}

/* ---- data ---- */

static rcv_status open_data(const rcv_settings *settings, const char *path, const rcv_data *like, rcv_data **data) {
    static const char *const kinds[] = {"stream", "lines", "classes", "values", "step-classes", "step-values"};
    const char *kind = rcv_settings_get(settings, "kind");
    bool bytes = !strcmp(rcv_settings_get(settings, "level"), "byte");
    rcv_data_options options =
        RCV_INIT(rcv_data_options, .level = bytes ? RCV_LEVEL_BYTE : RCV_LEVEL_WORD, .like = like);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!strcmp(kind, kinds[i])) options.kind = (rcv_data_kind)i;
    }
    return rcv_data_open(context, path, &options, data);
}

/* ---- a run ---- */

static void write_log(void *user, const char *line) {
    if (user) fprintf(user, "%s\n", line);
}

static rcv_status train(const rcv_settings *settings, const char *name, const rcv_data *data, const rcv_data *valid) {
    char output[256], path[256];
    bool leads = !world || rcv_world_rank(world) == 0;
    snprintf(output, sizeof output, "%s.safetensors", name);
    snprintf(path, sizeof path, "%s.jsonl", name);
    FILE *log = leads ? fopen(path, "w") : NULL;
    rcv_trainer_options options =
        RCV_INIT(rcv_trainer_options, .output = output, .overwrite = true, .log = write_log, .user = log);
    rcv_trainer *trainer = NULL;
    rcv_status status = rcv_trainer_join(context, settings, data, valid, world, &trainer);
    if (!status) status = rcv_trainer_run(trainer, &options);
    rcv_trainer_free(trainer);
    if (log) fclose(log);
    return status;
}

static rcv_status run_line(char *line) {
    char *rest = NULL, *name = strtok_r(line, " \n", &rest), *path = strtok_r(NULL, " \n", &rest);
    rcv_settings *settings = NULL;
    rcv_data *data = NULL, *valid = NULL;
    rcv_status status = rcv_settings_new(context, &settings);
    if (!status) status = read_options(settings, rest);
    if (!status) status = rcv_settings_set(settings, "data", path);
    if (!status) status = open_data(settings, path, NULL, &data);
    const char *other = status ? "none" : rcv_settings_get(settings, "valid");
    if (!status && strcmp(other, "none")) status = open_data(settings, other, data, &valid);
    if (world) status = rcv_world_agree(world, status);
    if (!status) status = train(settings, name, data, valid);
    if (status && status != RCV_PEER) fprintf(stderr, "train_ranks: %s: %s\n", name, rcv_message());
    rcv_data_free(valid);
    rcv_data_free(data);
    rcv_settings_free(settings);
    return status;
}

static rcv_status run_file(FILE *file) {
    char line[1024];
    rcv_status status = RCV_OK;
    while (!status && fgets(line, sizeof line, file)) status = run_line(line);
    return status;
}

int main(int count, char **arguments) {
    int rank;
    FILE *file = count == 2 ? fopen(arguments[1], "r") : NULL;
    rcv_world_options options = RCV_INIT(rcv_world_options, .timeout = 120);
    if (!file || rcv_context_new(NULL, &context)) return 2;
    rcv_status status = rcv_world_started(&rank) > 1 ? rcv_world_open(context, &options, &world) : RCV_OK;
    if (status) {
        fprintf(stderr, "train_ranks: %s\n", rcv_message());
    } else {
        status = run_file(file);
        if (status && world) rcv_world_fail(world, rcv_message());
        rcv_world_close(world);
    }
    rcv_context_free(context);
    fclose(file);
    return status != RCV_OK;
}
