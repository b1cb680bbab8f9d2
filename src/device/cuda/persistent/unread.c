/* What a loop would store and nobody reads. Blocks hand each other operands through channels, so what a layer gives need not lie in
 * memory besides where only products of the loop read it, nor its twin where no product outside of the loop does. Of a state that
 * only they read in the loop, or the thread that has it still, what is there behind the loop is enough. */
#include "device/cuda/persistent/parts.h"

/* Somebody reads what the loop leaves in the buffer: as its twin, where products do, or as it is. */
static void note_read(rcvi_persistent *p, const rcvi_access *access, bool inside) {
    int buffer = access->view->buffer;
    bool operand = access->use == RCVI_USE_OPERAND;
    if (!access->read || buffer == RCVI_NONE || (inside && operand)) return;
    p->unread[buffer] = false;
    if (inside) p->passing[buffer] = false;
    if (operand) p->untwinned[buffer] = false;
}

/* Of states that threads carry on, those that nobody else reads pass, too. */
static void note_carried(const rcvi_engine *e, rcvi_persistent *p, bool carried) {
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_persistent_step *s = &p->steps[i];
        for (int v = 0; v < s->view_count; v++) {
            if (s->views[v]->buffer == RCVI_NONE || !rcvi_persistent_is_value(s, v)) continue;
            if ((rcvi_persistent_carried(e, p, i, v) != RCVI_NONE) == carried)
                p->passing[s->views[v]->buffer] = carried;
        }
    }
}

rcv_status rcvi_persistent_find_unread(rcvi_engine *e, rcvi_persistent *p) {
    const rcvi_program *program = e->program;
    const size_t loop = (size_t)p->loop, end = loop + (size_t)program->steps[loop].loop.body;
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    p->unread = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *p->unread);
    p->untwinned = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *p->untwinned);
    p->passing = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *p->passing);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (size_t b = 0; b < program->buffer_count; b++) {
        p->unread[b] = program->buffers[b].role == RCVI_ARENA;
        p->untwinned[b] = p->passing[b] = true;
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
