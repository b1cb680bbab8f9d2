#include "json.h"

#include <stdlib.h>
#include <string.h>

json_t *problem_json(const problem *problem) {
    const rcv_net_options *net = rcv_net_get_options(problem->net);
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:s, s:s, s:s, s:o}", "cell",
                     rcv_cell_name(problem->cell), "steps", (json_int_t)problem->steps, "batch",
                     (json_int_t)problem->batch, "input", (json_int_t)net->input, "hidden", (json_int_t)net->hidden,
                     "layers", (json_int_t)net->layers, "rank", (json_int_t)net->rank, "bidirectional",
                     (int)net->bidirectional, "bias", !net->no_bias, "dtype", rcv_dtype_name(problem->dtype), "device",
                     problem->device, "pass", problem->training ? "train" : "forward", "operations",
                     number(problem_operations(problem, problem->net)));
}

json_t *machine_json(const machine *machine) {
    return json_pack("{s:o, s:s, s:s, s:I, s:I, s:s, s:o}", "device", text(machine->device), "cpu", machine->cpu,
                     "system", machine->system, "cores", (json_int_t)machine->cores, "threads",
                     (json_int_t)machine->threads, "kernels", machine->kernels, "barrier_seconds",
                     positive(machine->barrier));
}

bool save_json(const char *path, json_t *value) {
    char *text = value != NULL ? json_text(value, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    bool good = text != NULL;
    if (good) {
        char *line = text_of("%s\n", text);
        good = save_file(path, line, strlen(line));
        free(line);
    } else {
        say("no memory for the numbers as JSON: %s is as it was", path);
    }
    free(text);
    json_decref(value);
    return good;
}
