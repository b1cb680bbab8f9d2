/* The vendor schedule: the whole network by a library's recurrent primitives, oneDNN's on the CPU, cuDNN's on a GPU. It is a candidate,
 * and a reference for benchmarks.
 *
 * It applies to the cells, types and options that the library has. A pass is one step. The step reads and writes the caller's arrays,
 * including optional ones; its views name those that are always present. */
#include "schedule/schedule.h"

#include <string.h>

enum { ALGORITHMS = 4 }; /* of cuDNN */

static rcv_status refuse(const char *sentence) { return rcvi_fail(RCV_UNSUPPORTED, "%s", sentence); }

/* ---- does it apply? ---- */

/* The text of a cell after its name. */
static const char *equations_of(const char *text) {
    const char *parameters = strchr(text, '(');
    return parameters ? parameters : text;
}

static rcv_status is_builtin(const rcv_cell *cell, const char *name, bool *same) {
    char *ours = NULL, *theirs = NULL;
    rcv_cell *builtin = NULL;
    rcv_status status = rcv_cell_open(cell->context, name, &builtin);
    if (!status) status = rcv_cell_print(builtin, &theirs);
    if (!status) status = rcv_cell_print(cell, &ours);
    *same = !status && !strcmp(equations_of(ours), equations_of(theirs));
    rcvi_free(cell->context, ours);
    rcvi_free(cell->context, theirs);
    rcv_cell_free(builtin);
    return status;
}

static const char *library(const rcvi_machine *machine) { return machine->gpu ? "cuDNN" : "oneDNN"; }

static rcv_status cell_applies(const rcv_cell *cell, const rcvi_machine *machine) {
    static const char *const known[] = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        bool same = false;
        RCVI_TRY(is_builtin(cell, known[i], &same));
        if (same) return RCV_OK;
    }
    return rcvi_fail(RCV_UNSUPPORTED, "%s knows lstm, gru, rnn_tanh and rnn_relu; the equations of %s are others",
                     library(machine), rcv_cell_name(cell));
}

static rcv_status rungs_apply(const rcvi_rungs *rungs, const rcvi_machine *machine) {
    rcvi_rungs allowed = {.vendor = true, .algorithm = rungs->algorithm, .steps = 1, .threads = 1};
    char other[RCVI_RUNG_NAME];
    allowed.graph = machine->gpu;
    if (!machine->gpu) allowed.threads = rungs->threads;
    if (rcvi_rungs_exceed(rungs, &allowed, other)) {
        return rcvi_fail(RCV_UNSUPPORTED, "vendor is a whole plan: of the other rungs it takes %s, but not %s",
                         machine->gpu ? "graph" : "threads", other);
    }
    if (rungs->algorithm && !machine->gpu) return refuse("oneDNN has no algorithms to choose from: write vendor");
    return RCV_OK;
}

static rcv_status dtype_applies(rcv_dtype dtype, const rcvi_machine *machine) {
    if (dtype == RCV_FLOAT32 || dtype == RCV_BFLOAT16) return RCV_OK;
    if (machine->gpu && (dtype == RCV_TFLOAT32 || dtype == RCV_FLOAT16)) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED, "%s computes in %s, not in %s", library(machine),
                     machine->gpu ? "float32, tfloat32, bfloat16 and float16" : "float32 and bfloat16",
                     rcv_dtype_name(dtype));
}

static bool fits(int64_t a, int64_t b, int64_t c, int64_t limit) {
    int64_t product = 0;
    return rcvi_multiply(a, b, &product) && rcvi_multiply(product, c, &product) && product <= limit;
}

/* oneDNN multiplies sizes in 32 bits; of cuDNN it is known only that tensors have fewer than 2^31 elements, of which
 * the gates of a layer over all steps, the states of all layers and a layer's weights are the largest. */
static rcv_status sizes_apply(const rcv_net *net, const rcv_plan_options *options, const rcvi_machine *machine) {
    int64_t input = net->options.input, hidden = net->options.hidden, layers = net->options.layers;
    int64_t widest = input > hidden ? input : hidden;
    bool ok = fits(options->steps, options->batch, 1, INT32_MAX) && widest <= INT32_MAX / 8;
    if (ok && machine->gpu) {
        int64_t rows = options->steps * options->batch, features = 4 * widest * net->directions;
        ok = fits(rows, features, 1, INT32_MAX) && fits(features, hidden, 1, INT32_MAX) &&
             fits(layers * net->directions, options->batch, hidden, INT32_MAX);
    }
    if (ok) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED,
                     "%lld steps of %lld sequences with %lld features are more than %s counts in 32 bits",
                     (long long)options->steps, (long long)options->batch, (long long)widest, library(machine));
}

static rcv_status absent(const rcvi_machine *machine) {
    if (machine->no_vendor) return refuse(machine->no_vendor);
    return refuse(machine->gpu ? "cuDNN was not found: install version 9 of it"
                               : "this build has no oneDNN: install libdnnl-dev and configure again");
}

static rcv_status applies(const rcv_net *net, const rcv_plan_options *options, const rcvi_rungs *rungs,
                          const rcvi_machine *machine) {
    const char *name = library(machine);
    if (options->no_vendor) return rcvi_fail(RCV_UNSUPPORTED, "the plan is to do without %s", name);
    if (!machine->vendor) return absent(machine);
    RCVI_TRY(rungs_apply(rungs, machine));
    RCVI_TRY(dtype_applies(options->dtype, machine));
    if (options->reserve)
        return rcvi_fail(RCV_UNSUPPORTED, "%s keeps what a backward pass needs in memory of its own", name);
    if (options->lengths) return rcvi_fail(RCV_UNSUPPORTED, "%s is used for sequences of one length only", name);
    if (options->resets) return rcvi_fail(RCV_UNSUPPORTED, "%s has no resets within a sequence", name);
    if (net->options.rank) return rcvi_fail(RCV_UNSUPPORTED, "%s has no low-rank weights", name);
    if (options->training && net->options.dropout > 0 && net->options.layers > 1) {
        return rcvi_fail(RCV_UNSUPPORTED, "%s has no dropout between layers%s", name,
                         machine->gpu ? " that draws the same numbers as other plans" : "");
    }
    if (!machine->gpu && (options->data > RCV_AS_FLOAT32 || options->states > RCV_AS_FLOAT32))
        return refuse("oneDNN is used with data and states in float32 only");
    if (options->parameters > RCV_AS_FLOAT32 || options->gradients > RCV_AS_FLOAT32)
        return rcvi_fail(RCV_UNSUPPORTED, "%s is used with parameters and gradients in float32 only", name);
    if (!machine->gpu && options->batch_major) return refuse("oneDNN is used with time-major data only");
    if (net->options.reverse && machine->gpu) return refuse("cuDNN has no reverse direction alone");
    if (net->options.zoneout > 0) return rcvi_fail(RCV_UNSUPPORTED, "%s does not zone out", name);
    RCVI_TRY(sizes_apply(net, options, machine));
    return cell_applies(net->cell, machine);
}

/* ---- the program ---- */

static rcvi_view whole(rcvi_program *program, rcvi_role role) {
    int buffer = rcvi_program_external(program, role, 0);
    if (buffer == RCVI_NONE) return rcvi_no_view();
    return (rcvi_view){.buffer = buffer, .row = program->buffers[buffer].count, .column = 1};
}

static void name_states(rcvi_program *program, rcvi_role role) {
    for (size_t s = 0; s < program->net->state_count; s++) rcvi_program_external(program, role, s);
}

static void name_tensors(rcvi_program *program, rcvi_role role) {
    size_t count = program->options.separate_parameters ? program->net->parameter_count : 1;
    for (size_t i = 0; i < count; i++) rcvi_program_external(program, role, i);
}

static void write(rcvi_program *program) {
    rcvi_step step = {.kind = RCVI_STEP_VENDOR,
                      .rows = 1,
                      .columns = 1,
                      .out = whole(program, RCVI_Y),
                      .a = whole(program, RCVI_X),
                      .b = whole(program, RCVI_PARAMETERS),
                      .mask = rcvi_no_view()};
    name_tensors(program, RCVI_PARAMETERS);
    name_states(program, RCVI_INITIAL);
    name_states(program, RCVI_FINAL);
    rcvi_program_step(program, &step);
    program->forward_count = program->step_count;
    if (!program->options.training) return;
    step.vendor.backward = true;
    step.out = rcvi_no_view(); /* all that it writes is optional */
    rcvi_program_external(program, RCVI_DY, 0);
    rcvi_program_external(program, RCVI_DX, 0);
    name_tensors(program, RCVI_DPARAMETERS);
    name_states(program, RCVI_DFINAL);
    name_states(program, RCVI_DINITIAL);
    rcvi_program_step(program, &step);
}

/* cuDNN's persistent algorithms take long to prepare. They are fast with few rows (the static one with very few) or, the small one, with few
 * units; else up to ten times slower than the standard one, as all are in bfloat16. */
static bool is_worth_trying(const rcv_net *net, const rcv_plan_options *options, int64_t algorithm) {
    enum { STANDARD, STATIC, DYNAMIC, SMALL };
    static const int64_t few_rows[] = {[STATIC] = 4, [DYNAMIC] = 16}, few_units = 384;
    if (algorithm == STANDARD || options->effort == RCV_EXHAUSTIVE) return true;
    if (options->dtype == RCV_BFLOAT16) return false;
    return algorithm == SMALL ? net->options.hidden <= few_units : options->batch <= few_rows[algorithm];
}

static void variants(const rcv_net *net, const rcv_plan_options *options, const rcvi_machine *machine,
                     void (*offer)(void *user, const rcvi_rungs *rungs), void *user) {
    rcvi_rungs rungs = {.vendor = true,
                        .steps = 1,
                        .graph = machine->gpu, /* without a graph it is never faster */
                        .threads = machine->gpu ? 1 : machine->threads};
    for (int64_t most = machine->gpu ? ALGORITHMS : 1; rungs.algorithm < most; rungs.algorithm++) {
        if (is_worth_trying(net, options, rungs.algorithm)) offer(user, &rungs);
    }
}

const rcvi_schedule rcvi_schedule_vendor = {.name = "vendor", .applies = applies, .write = write, .variants = variants};
