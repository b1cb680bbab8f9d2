/* The whole network by a library's recurrent primitives, oneDNN's on the CPU: a candidate, and an anchor. A pass is one
 * step. It reads and writes what the caller binds, optional arrays included, of which its views name the ones that are
 * always there. */
#include "schedule/schedule.h"

#include <string.h>

static rcv_status refuse(const char *sentence) { return rcvi_fail(RCV_UNSUPPORTED, "%s", sentence); }

/* ---- does it apply? ---- */

/* The equations behind the cell's name. */
static const char *behind_name(const char *text) {
    const char *parameters = strchr(text, '(');
    return parameters ? parameters : text;
}

static rcv_status is_builtin(const rcv_cell *cell, const char *name, bool *same) {
    char *ours = NULL, *theirs = NULL;
    rcv_cell *builtin = NULL;
    rcv_status status = rcv_cell_open(cell->context, name, &builtin);
    if (!status) status = rcv_cell_print(builtin, &theirs);
    if (!status) status = rcv_cell_print(cell, &ours);
    *same = !status && !strcmp(behind_name(ours), behind_name(theirs));
    rcvi_free(cell->context, ours);
    rcvi_free(cell->context, theirs);
    rcv_cell_free(builtin);
    return status;
}

static rcv_status cell_applies(const rcv_cell *cell) {
    static const char *const known[] = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        bool same = false;
        RCVI_TRY(is_builtin(cell, known[i], &same));
        if (same) return RCV_OK;
    }
    return rcvi_fail(RCV_UNSUPPORTED, "oneDNN knows lstm, gru, rnn_tanh and rnn_relu; the equations of %s are others",
                     rcv_cell_name(cell));
}

static rcv_status rungs_apply(const rcvi_rungs *rungs) {
    const struct {
        const char *name;
        bool on;
    } others[] = {{"combine", rungs->combine},      {"fuse", rungs->fuse}, {"pack", rungs->pack},
                  {"wavefront", rungs->wavefront},  {"blas", rungs->blas}, {"recompute", rungs->recompute != 0},
                  {"split=rows", rungs->split_rows}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (others[i].on) {
            return rcvi_fail(RCV_UNSUPPORTED, "vendor is a whole plan: of the other rungs it takes threads, but not %s",
                             others[i].name);
        }
    }
    return RCV_OK;
}

/* The library multiplies sizes in 32 bits. */
static rcv_status sizes_apply(const rcv_net *net, const rcv_plan_options *options) {
    int64_t widest = net->options.input > net->options.hidden ? net->options.input : net->options.hidden;
    int64_t rows = 0;
    if (!rcvi_multiply(options->steps, options->batch, &rows) || rows > INT32_MAX || widest > INT32_MAX / 8) {
        return rcvi_fail(RCV_UNSUPPORTED,
                         "%lld steps of %lld sequences with %lld features are more than oneDNN counts in 32 bits",
                         (long long)options->steps, (long long)options->batch, (long long)widest);
    }
    return RCV_OK;
}

static rcv_status applies(const rcv_net *net, const rcv_plan_options *options, const rcvi_rungs *rungs,
                          const rcvi_machine *machine) {
    if (!machine->vendor) return refuse("this build has no oneDNN: install libdnnl-dev and configure again");
    RCVI_TRY(rungs_apply(rungs));
    if (options->dtype != RCV_FLOAT32 && options->dtype != RCV_BFLOAT16) {
        return rcvi_fail(RCV_UNSUPPORTED, "oneDNN computes in float32 and bfloat16, not in %s",
                         rcv_dtype_name(options->dtype));
    }
    if (options->lengths) return refuse("oneDNN runs sequences of one length only");
    if (options->resets) return refuse("oneDNN has no resets within a sequence");
    if (net->options.rank) return refuse("oneDNN has no low-rank weights");
    if (options->training && net->options.dropout > 0 && net->options.layers > 1)
        return refuse("oneDNN has no dropout between layers");
    RCVI_TRY(sizes_apply(net, options));
    return cell_applies(net->cell);
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

static void write(rcvi_program *program) {
    rcvi_step step = {.kind = RCVI_STEP_VENDOR,
                      .rows = 1,
                      .columns = 1,
                      .out = whole(program, RCVI_Y),
                      .a = whole(program, RCVI_X),
                      .b = whole(program, RCVI_PARAMETERS),
                      .mask = rcvi_no_view()};
    name_states(program, RCVI_INITIAL);
    name_states(program, RCVI_FINAL);
    rcvi_program_step(program, &step);
    program->forward_count = program->step_count;
    if (!program->options.training) return;
    step.vendor.backward = true;
    step.out = rcvi_no_view(); /* all that it writes is optional */
    rcvi_program_external(program, RCVI_DY, 0);
    rcvi_program_external(program, RCVI_DX, 0);
    rcvi_program_external(program, RCVI_DPARAMETERS, 0);
    name_states(program, RCVI_DFINAL);
    name_states(program, RCVI_DINITIAL);
    rcvi_program_step(program, &step);
}

static void variants(const rcv_net *net, const rcv_plan_options *options, const rcvi_machine *machine,
                     void (*offer)(void *user, const rcvi_rungs *rungs), void *user) {
    (void)net;
    (void)options;
    offer(user, &(rcvi_rungs){.vendor = true, .steps = 1, .threads = machine->threads});
}

const rcvi_schedule rcvi_schedule_vendor = {.name = "vendor", .applies = applies, .write = write, .variants = variants};
