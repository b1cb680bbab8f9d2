/* PyTorch as an implementation: a child process that runs during the whole comparison, so that it is timed in turns with the others. */
#include "bench/comparison.h"
#include "child_process.h"
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const char torch_script[]; /* tool/bench/anchor_torch.py */

enum { START_SECONDS = 180, RUN_SECONDS = 3600 };

typedef struct {
    child child;
    call_tensors *tensors;
    char in[64], out[64]; /* paths of the files with inputs and results */
} state;

static const struct {
    const char *cell, *module, *nonlinearity;
} known[] = {{"lstm", "LSTM", NULL}, {"gru", "GRU", NULL}, {"rnn_tanh", "RNN", "tanh"}, {"rnn_relu", "RNN", "relu"}};

static double run(implementation *self, int64_t repeats) {
    state *state = self->state;
    char line[256];
    if (!child_write(&state->child, "run %lld\n", (long long)repeats) ||
        !child_read(&state->child, line, sizeof line, RUN_SECONDS)) {
        if (stop_signal() == 0) {
            implementation_refuse(self, "the python3 process with PyTorch has ended");
        }
        return -1;
    }
    return strtod(line, NULL);
}

/* Reads the results: y, and in training the gradients in the order of the parameters. */
static bool fetch(implementation *self) {
    state *state = self->state;
    call_tensors *tensors = state->tensors;
    const size_t size = rcv_dtype_bytes(tensors->storage);
    char line[256];
    if (!child_write(&state->child, "output\n") || !child_read(&state->child, line, sizeof line, RUN_SECONDS)) {
        return false;
    }
    FILE *file = fopen(state->out, "rb");
    if (file == NULL) {
        return false;
    }
    bool whole = fread(tensors->y, size, (size_t)tensors->y_count, file) == (size_t)tensors->y_count;
    if (whole && tensors->training) {
        whole = fread(tensors->dparameters, size, (size_t)tensors->parameter_count, file) ==
                (size_t)tensors->parameter_count;
    }
    fclose(file);
    return whole;
}

static void close_torch(implementation *self) {
    state *state = self->state;
    child_end(&state->child);
    unlink(state->in);
    unlink(state->out);
    free(state);
}

/* Writes the inputs to a new file in $TMPDIR. */
static bool write_inputs(state *state) {
    const call_tensors *tensors = state->tensors;
    const char *folder = getenv("TMPDIR");
    const size_t size = rcv_dtype_bytes(tensors->storage);
    if (folder == NULL || strlen(folder) > 32) {
        folder = "/tmp";
    }
    snprintf(state->in, sizeof state->in, "%s/recurve-in-XXXXXX", folder);
    snprintf(state->out, sizeof state->out, "%s/recurve-out-XXXXXX", folder);
    const int in = mkstemp(state->in), out = mkstemp(state->out);
    FILE *file = in >= 0 && out >= 0 ? fdopen(in, "wb") : NULL;
    if (out >= 0) {
        close(out);
    }
    if (file == NULL) {
        return false;
    }
    const bool whole =
        fwrite(tensors->parameters, size, (size_t)tensors->parameter_count, file) == (size_t)tensors->parameter_count &&
        fwrite(tensors->x, size, (size_t)tensors->x_count, file) == (size_t)tensors->x_count &&
        fwrite(tensors->dy, size, (size_t)tensors->y_count, file) == (size_t)tensors->y_count;
    return fclose(file) == 0 && whole;
}

/* The request to the script as JSON; for free(). */
static char *request(const problem *problem, const state *state, size_t place) {
    const rcv_net_options *net = rcv_net_get_options(problem->net);
    json_t *extra = json_object();
    if (known[place].nonlinearity != NULL) {
        json_object_set_new(extra, "nonlinearity", json_string(known[place].nonlinearity));
    }
    json_t *asked =
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:s, s:s, s:o}", "module",
                  known[place].module, "dtype", rcv_dtype_name(problem->dtype), "device", problem->device, "input",
                  (json_int_t)net->input, "hidden", (json_int_t)net->hidden, "layers", (json_int_t)net->layers, "steps",
                  (json_int_t)problem->steps, "batch", (json_int_t)problem->batch, "threads",
                  (json_int_t)problem_threads(problem), "parameters", (json_int_t)state->tensors->parameter_count,
                  "bias", !net->no_bias, "bidirectional", (int)net->bidirectional, "training", problem->training, "in",
                  state->in, "out", state->out, "extra", extra);
    char *text = json_text(asked, JSON_COMPACT);
    json_decref(asked);
    return text;
}

/* Starts the first python3 that has torch. False: `sentence` says why the last one cannot be used. */
static bool start(state *state, const char *asked, char *sentence, size_t room, char version[64]) {
    const char *const pythons[] = {"python3", "/usr/bin/python3"};
    snprintf(sentence, room, "there is no python3");
    for (size_t i = 0; i < COUNT(pythons) && stop_signal() == 0; i++) {
        const char *const arguments[] = {pythons[i], "-c", torch_script, asked, NULL};
        char line[512];
        if (!child_start(&state->child, arguments)) {
            continue;
        }
        if (child_read(&state->child, line, sizeof line, START_SECONDS)) {
            if (strncmp(line, "ready ", 6) == 0) {
                snprintf(version, 64, "%.60s", line + 6);
                return true;
            }
            snprintf(sentence, room, "%s", strncmp(line, "no ", 3) == 0 ? line + 3 : line);
        } else {
            snprintf(sentence, room, "%s ended without an answer", pythons[i]);
        }
        child_end(&state->child);
    }
    return false;
}

static const char *reason_against(const problem *problem, bool is_known) {
    const rcv_net_options *net = &problem->network.net;
    return !is_known       ? "torch.nn has LSTM, GRU and RNN only"
           : net->rank > 0 ? "torch.nn has full matrices only"
           : problem->training && net->dropout > 0 && net->layers > 1
               ? "its dropout draws other random numbers, so results cannot be compared"
               : NULL;
}

implementation *comparison_add_torch(comparison *comparison, const problem *problem, call_tensors *tensors) {
    implementation *added = comparison_add(comparison, "PyTorch");
    size_t place = 0;
    while (place < COUNT(known) && strcmp(known[place].cell, rcv_cell_name(problem->cell)) != 0) {
        place++;
    }
    const char *reason = reason_against(problem, place < COUNT(known));
    if (reason != NULL) {
        implementation_refuse(added, "%s", reason);
        return added;
    }
    state *state = need(1, sizeof *state);
    state->tensors = tensors;
    added->state = state;
    added->close = close_torch;
    added->run = run;
    added->fetch = fetch;
    added->keeps_threads_busy = true;
    added->is_asynchronous = tensors->has_device_memory;
    added->gradients_compare = true;
    added->measured.operations = problem_operations(problem, problem->net);
    if (!write_inputs(state)) {
        implementation_refuse(added, "its inputs cannot be written to a temporary file");
        return added;
    }
    char *asked = request(problem, state, place), sentence[600], version[64];
    show_progress("starting PyTorch");
    if (asked != NULL && start(state, asked, sentence, sizeof sentence, version)) {
        added->measured.note = text_of("torch %s", version);
    } else {
        implementation_refuse(added, "%s", sentence);
    }
    free(asked);
    return added;
}
