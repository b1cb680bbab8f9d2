/* The stepwise schedule's passes, layer by layer; in a wavefront, the loops of all layers at once (wavefront.c). */
#include "schedule/stepwise/stepwise.h"

static void write_forward_pass(rcvi_stepwise *w) {
    rcvi_frame *frame = &w->frame;
    int64_t layers = frame->net->options.layers, directions = frame->net->directions;
    rcvi_frame_write_masks(frame);
    rcvi_frame_write_input(frame);
    for (int64_t layer = 0; layer < layers && !frame->program->failed; layer++) {
        if (rcvi_frame_has_dropout(frame, layer))
            frame->inputs[layer] = rcvi_frame_write_dropout(frame, layer, frame->inputs[layer], frame->rows[layer],
                                                            "dropped", RCVI_ROUNDED);
        rcvi_frame_open_output(frame, layer);
        if (!w->pass.is_wavefront) rcvi_forward_write_set(w, &w->tracks[layer * directions], directions);
    }
    if (w->pass.is_wavefront) rcvi_wavefront_write_forward(w);
    rcvi_frame_write_output(frame);
}

static void write_backward_pass(rcvi_stepwise *w) {
    rcvi_frame *frame = &w->frame;
    int64_t directions = frame->net->directions;
    int dy = rcvi_frame_write_dy(frame);
    if (w->pass.is_wavefront) {
        rcvi_wavefront_write_backward(w, dy);
        return;
    }
    for (int64_t layer = frame->net->options.layers; layer-- > 0 && !frame->program->failed;) {
        rcvi_track *set = &w->tracks[layer * directions];
        for (int64_t d = 0; d < directions; d++) {
            set[d].delay = 0; /* also after a forward pass in a wavefront */
            rcvi_track_retime(w, &set[d]);
        }
        int dx = rcvi_backward_new_dx(w, layer);
        rcvi_backward_write_set(w, set, directions, (int[]){dy, dy}, (int[]){dx, dx});
        rcvi_backward_write_dx(w, layer, dx);
        dy = rcvi_frame_has_dropout(frame, layer)
                 ? rcvi_frame_write_dropout(frame, layer, dx, rcvi_frame_width(frame, layer), "ddropped", RCVI_EXACT)
                 : dx;
    }
    rcvi_frame_write_dx(frame, dy);
}

/* On a GPU: moves the steps of a pass that depend on the parameters only to its beginning, those of all layers together, so that few
 * launches compute them. They are outside of loops, and depend on nothing but each other. */
static void hoist_prepared(rcvi_program *program, size_t first, size_t end) {
    rcv_context *context = program->pool.context;
    rcvi_step *moved = rcvi_new(context, end - first, sizeof *moved);
    size_t count = 0;
    if (!moved) program->failed = true;
    for (int others = 0; others < 2 && moved; others++) {
        for (size_t i = first; i < end; i++) {
            bool prepared = program->steps[i].when == RCVI_WHEN_PARAMETERS_CHANGED;
            if (prepared != others) moved[count++] = program->steps[i];
        }
    }
    for (size_t i = 0; i < count; i++) program->steps[first + i] = moved[i];
    rcvi_free(context, moved);
}

static void choose_modes(rcvi_stepwise *w) {
    const rcvi_program *program = w->frame.program;
    const rcvi_rungs *rungs = &program->rungs;
    rcvi_stepwise_modes *modes = &w->modes;
    modes->recompute = rungs->recompute > 0;
    modes->distribute = rungs->scan;
    modes->defer_gradients = program->machine.gpu && rungs->combine && !modes->recompute;
    modes->retime = modes->defer_gradients && rungs->fuse && rungs->pack && !w->frame.resets && !modes->distribute;
}

static void write(rcvi_program *program) {
    const rcv_net *net = program->net;
    const rcvi_rungs *rungs = &program->rungs;
    rcv_context *context = program->pool.context;
    int64_t steps = program->options.steps, chunk = rcvi_chunk_of(rungs, steps);
    int64_t forward = rcvi_forward_chunk_of(rungs, steps);
    size_t count = (size_t)(net->options.layers * net->directions);
    rcvi_stepwise w = {.longest_chunk = chunk > forward ? chunk : forward,
                       .tracks = rcvi_new(context, count, sizeof *w.tracks)};
    bool ok = rcvi_frame_init(&w.frame, program) && w.tracks;
    w.frame.pads_rows = true;
    choose_modes(&w);
    for (size_t i = 0; ok && i < count; i++) {
        w.tracks[i].layer = (int64_t)i / net->directions;
        w.tracks[i].direction = (int64_t)i % net->directions;
        w.tracks[i].is_reversed = rcvi_net_is_reversed(net, w.tracks[i].direction);
        ok = rcvi_track_open(&w, &w.tracks[i]);
    }
    if (!ok) program->failed = true;
    rcvi_pass_begin(&w, forward, rungs->wavefront);
    if (ok) write_forward_pass(&w);
    program->forward_count = program->step_count;
    rcvi_pass_begin(&w, chunk, rungs->wavefront && !rungs->forward_wave);
    if (w.frame.training && !program->failed) write_backward_pass(&w);
    for (size_t i = 0; w.tracks && i < count; i++) rcvi_track_close(&w.tracks[i]);
    rcvi_free(context, w.tracks);
    rcvi_frame_free(&w.frame);
    if (!program->machine.gpu || program->failed) return;
    hoist_prepared(program, 0, program->forward_count);
    hoist_prepared(program, program->forward_count, program->step_count);
}

const rcvi_schedule rcvi_schedule_stepwise = {
    .name = "stepwise", .applies = rcvi_stepwise_applies, .write = write, .variants = rcvi_stepwise_variants};
