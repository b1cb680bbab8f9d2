/* Dead-store elimination: what the loop would store and nothing reads.
 *
 * Blocks read operands through channels. So the output of a layer need not be in the program's memory if only products of the loop read it,
 * nor its rounded copy if no product outside of the loop reads that. A state that only products of the loop read, or the thread that
 * carries it, is stored only at the end of the loop. */
#include "device/cuda/persistent/internal.h"

/* Notes a read of what the loop stores in a buffer: products read the rounded copy, others the buffer itself. */
static void note_read(rcvi_persistent *p, const rcvi_access *access, bool inside) {
    int buffer = access->view->buffer;
    bool operand = access->use == RCVI_USE_OPERAND;
    if (!access->read || buffer == RCVI_NONE || (inside && operand)) return;
    p->unread[buffer] = false;
    if (inside) p->transient[buffer] = false;
    if (operand) p->rounded_unread[buffer] = false;
}

/* States that threads carry, and that nothing else reads, are transient, too. */
static void note_carried(const rcvi_engine *e, rcvi_persistent *p, bool carried) {
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_kernel_step *s = &p->steps[i];
        for (int v = 0; v < s->view_count; v++) {
            if (s->views[v]->buffer == RCVI_NONE || !rcvi_persistent_is_value(s, v)) continue;
            if ((rcvi_persistent_carried(e, p, i, v) != RCVI_NONE) == carried)
                p->transient[s->views[v]->buffer] = carried;
        }
    }
}

rcv_status rcvi_persistent_find_dead_stores(rcvi_engine *e, rcvi_persistent *p) {
    const rcvi_program *program = e->program;
    const size_t loop = (size_t)p->loop, end = loop + (size_t)program->steps[loop].loop.body;
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    p->unread = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *p->unread);
    p->rounded_unread = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *p->rounded_unread);
    p->transient = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *p->transient);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (size_t b = 0; b < program->buffer_count; b++) {
        p->unread[b] = program->buffers[b].role == RCVI_ARENA;
        p->rounded_unread[b] = p->transient[b] = true;
    }
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        int count = step->kind == RCVI_STEP_LOOP ? 0 : rcvi_step_accesses(step, accesses);
        for (int k = 0; k < count; k++) note_read(p, &accesses[k], i > loop && i <= end);
    }
    note_carried(e, p, true);
    note_carried(e, p, false);
    return RCV_OK;
}
