/* Chunks of time, and the loops over chunks and over the steps of a chunk. Chunks come from combine(steps=N,forward=M) or from
 * recompute(every=N); one chunk of one step, and one of all steps, each need one loop only. */
#include "schedule/stepwise/stepwise.h"

static int64_t at_most(int64_t chunk, int64_t steps) { return chunk < steps ? chunk : steps; }

int64_t rcvi_chunk_of(const rcvi_rungs *rungs, int64_t steps) {
    if (rungs->recompute) return at_most(rungs->recompute, steps);
    if (!rungs->combine) return at_most(1, steps);
    return at_most(rungs->steps ? rungs->steps : steps, steps);
}

int64_t rcvi_forward_chunk_of(const rcvi_rungs *rungs, int64_t steps) {
    return rungs->combine && rungs->forward ? at_most(rungs->forward, steps) : rcvi_chunk_of(rungs, steps);
}

void rcvi_pass_begin(rcvi_stepwise *w, int64_t chunk, bool is_wavefront) {
    bool whole = chunk == w->frame.program->options.steps; /* then it is as long as the call's sequences */
    w->pass = (rcvi_time_chunks){.chunk = whole ? w->frame.steps : chunk,
                                 .chunks = whole ? 1 : (w->frame.steps + chunk - 1) / chunk,
                                 .is_wavefront = is_wavefront};
    rcvi_program *program = w->frame.program;
    program->chunks[program->forward_count > 0] = whole || chunk == 1 ? 0 : chunk;
}

static bool has_chunk_loop(const rcvi_stepwise *w) { return w->pass.chunks > 1 && w->pass.chunk > 1; }

void rcvi_open_chunks(rcvi_stepwise *w, int64_t delay) {
    if (has_chunk_loop(w)) rcvi_program_loop(w->frame.program, w->pass.chunks + delay);
}

void rcvi_close_chunks(rcvi_stepwise *w) {
    if (has_chunk_loop(w)) rcvi_program_end_loop(w->frame.program);
}

void rcvi_open_steps(rcvi_stepwise *w, int64_t delay) {
    rcvi_program_loop(w->frame.program, w->pass.chunk > 1 ? w->pass.chunk : w->frame.steps + delay);
}

void rcvi_close_steps(rcvi_stepwise *w) { rcvi_program_end_loop(w->frame.program); }
