/* A loop of a persistent kernel, executed in the order of the program: who wrote what every step reads, which counters are incremented, and
 * what is in the slots of channels. */
#ifndef PERSISTENT_REPLAY_H
#define PERSISTENT_REPLAY_H

#include "persistent_subject.h"

enum { SEVERAL = -1, MOST_READINGS = 256, WRITERS = 1 << 20 };

/* ---- a loop gone through in the order of the program ---- */

typedef struct {
    int step;
    int64_t iteration;
} execution;

/* Writers are executions: step n at iteration i is 1 + i * steps + n; 0 is all that was before the loop. */
typedef struct {
    rcvi_access access;
    int writer; /* of what the program reads there; SEVERAL: of parts of it */
} reading;

/* What is in a slot of a channel: who wrote it, and which element of memory its first one is. */
typedef struct {
    int writer;
    int64_t element;
} content;

/* The last writer of every element. Runs share the elements: a value of an earlier run counts as not written, so that a large memory is not
 * cleared for every run. */
typedef struct {
    int *elements; /* run * WRITERS + writer */
    int run;
} writer_memory;

/* The replay follows the first row of every view. It belongs to a sequence of `length` steps, the longest one of its tile. */
typedef struct {
    const rcvi_engine *e;
    const rcvi_persistent *p;
    int64_t length;
    execution *due; /* in the order of the program */
    int due_count;
    size_t *offset;     /* [buffers] in a memory; 0: the loop does not write it */
    size_t elements;    /* of a memory */
    reading *readings;  /* [1 + executions, MOST_READINGS] */
    int *reading_count; /* [1 + executions] */
    int *signalers;     /* [counters] the execution that increments it */
    size_t *first_slot; /* [channels] of their slots from `base` on */
    content *slots;
    int faults; /* steps not due as the program says; counters and slots with a second writer, or of no channel */
} replay;

static void *new_table(size_t count, size_t size) {
    void *table = calloc(count + 1, size);
    assert_non_null(table);
    return table;
}

static const rcvi_step *member_of(const replay *r, int step, int n) {
    return &r->e->program->steps[r->p->steps[step].members[n]];
}
static int writer_of(const replay *r, execution x) { return 1 + (int)x.iteration * r->p->step_count + x.step; }
/* Who owns the same elements in all steps: a task by columns, or by rows. */
static int owner_of_step(const rcvi_kernel_step *s) { return s->task * 2 + s->by_rows; }
static int owner_of(const replay *r, int writer) {
    return writer > 0 ? owner_of_step(&r->p->steps[(writer - 1) % r->p->step_count]) : RCVI_NONE;
}
static reading *readings_of(const replay *r, execution x) {
    return r->readings + (size_t)writer_of(r, x) * MOST_READINGS;
}

static int64_t time_of(const replay *r, execution x) {
    const rcvi_time *time = &member_of(r, x.step, 0)->time;
    return time->base + x.iteration * time->inner;
}

static int64_t element_of(const replay *r, execution x, const rcvi_view *view) {
    return rcvi_view_start(view, x.iteration, 0, time_of(r, x));
}

/* Is the sequence active at the time step of the caller that is computed? */
static bool is_active(const replay *r, execution x) {
    int64_t time = time_of(r, x);
    return (member_of(r, x.step, 0)->direction ? r->e->program->sizes.steps - 1 - time : time) < r->length;
}

/* Does this member skip the row? */
static bool is_skipped(const replay *r, execution x, int n) {
    return r->e->is_short[r->p->steps[x.step].members[n]] && !is_active(r, x);
}

/* Does the execution skip the tile, that is, neither wait nor multiply? */
static bool skips(const replay *r, execution x) { return r->p->steps[x.step].skips_ended && !is_active(r, x); }

static int read_element(const writer_memory *memory, int64_t element) {
    int value = memory->elements[element];
    return value / WRITERS == memory->run ? value % WRITERS : 0;
}

/* Who wrote what an access touches, or SEVERAL; `writer`, if not 0, then has. */
static int touch(const replay *r, execution x, const rcvi_access *access, const writer_memory *memory, int writer) {
    if (!r->offset[access->view->buffer]) return 0;
    int64_t row = (int64_t)r->offset[access->view->buffer] + element_of(r, x, access->view);
    int before = read_element(memory, row);
    for (int64_t c = 0; c < (access->view->column ? access->columns : 1); c++) {
        int64_t element = row + c * access->view->column;
        if (read_element(memory, element) != before) before = SEVERAL;
        if (writer) memory->elements[element] = memory->run * WRITERS + writer;
    }
    return before;
}

static void write_member(const replay *r, execution x, int n, const writer_memory *memory) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int count = is_skipped(r, x, n) ? 0 : rcvi_step_accesses(member_of(r, x.step, n), accesses);
    for (int a = 0; a < count; a++) {
        if (accesses[a].written && accesses[a].view->buffer != RCVI_NONE)
            touch(r, x, &accesses[a], memory, writer_of(r, x));
    }
}

/* A selection reads its second operand where the sequence has ended. */
static void read_member(replay *r, execution x, int n, const writer_memory *memory) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    const rcvi_step *part = member_of(r, x.step, n);
    int count = is_skipped(r, x, n) ? 0 : rcvi_step_accesses(part, accesses);
    int *in_shared = &r->reading_count[writer_of(r, x)];
    for (int a = 0; a < count; a++) {
        bool selects = part->kind == RCVI_STEP_SELECT && accesses[a].view == &part->a;
        if (!accesses[a].read || accesses[a].view->buffer == RCVI_NONE || (selects && !is_active(r, x))) continue;
        assert_true(*in_shared < MOST_READINGS);
        readings_of(r, x)[(*in_shared)++] = (reading){accesses[a], touch(r, x, &accesses[a], memory, 0)};
    }
}

static void find_offsets(replay *r) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    r->elements = 1;
    for (int n = 0, part = 0; n < r->p->step_count; part = (part + 1) % r->p->steps[n].member_count, n += part == 0) {
        int count = rcvi_step_accesses(member_of(r, n, part), accesses);
        for (int a = 0; a < count; a++) {
            int buffer = accesses[a].view->buffer;
            if (!accesses[a].written || buffer == RCVI_NONE || r->offset[buffer]) continue;
            r->offset[buffer] = r->elements;
            r->elements += (size_t)r->e->program->buffers[buffer].count;
        }
    }
}

static void go_through(replay *r) {
    writer_memory memory = {.elements = new_table(r->elements, sizeof *memory.elements)};
    for (int64_t k = 0, time, span; k < r->p->iterations * r->p->step_count; k++) {
        execution x = {(int)(k % r->p->step_count), k / r->p->step_count};
        const rcvi_kernel_step *s = &r->p->steps[x.step];
        bool due = x.iteration >= s->low && x.iteration < s->high;
        if (due) r->due[r->due_count++] = x;
        for (int n = 0; n < s->member_count; n++) {
            r->faults += due != rcvi_step_is_due(r->e->program, member_of(r, x.step, n), x.iteration, 0, &time, &span);
            if (due) read_member(r, x, n, &memory);
            if (due) write_member(r, x, n, &memory);
        }
    }
    free(memory.elements);
}

/* ---- counters and slots ---- */

static int64_t slot_at(const rcvi_port *port, int64_t i) { return port->slot + i * port->step; }
static bool is_awaited(const rcvi_port *port, int64_t i) { return i >= port->low && i < port->high; }

/* The counter of the first tile, or RCVI_NONE where the channel has none for this slot. */
static int64_t counter_of(const rcvi_persistent *p, const rcvi_port *port, int64_t i) {
    if (port->channel == RCVI_NONE) return RCVI_NONE;
    const rcvi_channel *channel = &p->channels[port->channel];
    int64_t slot = slot_at(port, i), tiles = (int64_t)p->slices * p->tiles;
    if (!channel->written || slot < channel->first || slot > channel->last) return RCVI_NONE;
    int64_t counter = p->first_counter[channel->counter_set] + (slot - channel->first) * tiles;
    return counter + tiles <= p->counters ? counter : RCVI_NONE;
}

static content *slot_of(const replay *r, const rcvi_port *port, int64_t i) {
    const rcvi_channel *channel = &r->p->channels[port->channel];
    int64_t slot = slot_at(port, i);
    if (slot < channel->base || slot > channel->top) return NULL;
    return &r->slots[r->first_slot[port->channel] + (size_t)(slot - channel->base)];
}

static bool is_flagged(const rcvi_persistent *p, const rcvi_port *port) {
    return port->channel != RCVI_NONE && p->channels[port->channel].flagged;
}

/* The counters that an execution increments; answers how many. Flagged values count as if they had one. */
static int find_signals(const replay *r, execution x, int64_t *counters) {
    const rcvi_kernel_step *s = &r->p->steps[x.step];
    int count = 0;
    for (int n = 0; n < s->signal_count; n++) {
        if (s->is_signaled[s->signals[n]]) counters[count++] = counter_of(r->p, &s->ports[s->signals[n]], x.iteration);
    }
    for (int n = 0; n < s->write_count; n++) {
        const rcvi_port *port = &s->ports[s->writes[n]];
        if (!is_flagged(r->p, port)) continue;
        int64_t counter = counter_of(r->p, port, x.iteration);
        bool first = s->write_flagged[n];
        for (int k = 0; k < count; k++) first &= counters[k] != counter;
        if (first) counters[count++] = counter;
    }
    return count;
}

static int flag_of(const replay *r, execution x, int port) {
    return (int)(time_of(r, x) + rcvi_persistent_flag_phase(r->p, &r->p->steps[x.step], port)) & 1;
}

/* A reader waits for the flag of the writer; the write before, or memory before the loop, has the other one. */
static bool are_flags_right(const replay *r, execution x, int port, int writer) {
    execution w = {(writer - 1) % r->p->step_count, (writer - 1) / r->p->step_count},
              before = {w.step, w.iteration - 1};
    const rcvi_kernel_step *s = &r->p->steps[w.step];
    for (int n = 0; n < s->write_count; n++) {
        if (s->ports[s->writes[n]].channel != r->p->steps[x.step].ports[port].channel) continue;
        int tag = flag_of(r, w, s->writes[n]), old = w.iteration > s->low ? flag_of(r, before, s->writes[n]) : 0;
        return tag == flag_of(r, x, port) && tag != old;
    }
    return false;
}

/* No counter is incremented by two executions, no slot is written by two. */
static void find_signalers(replay *r, execution x) {
    const rcvi_kernel_step *s = &r->p->steps[x.step];
    int64_t counters[RCVI_MAX_PORTS];
    int count = find_signals(r, x, counters);
    for (int n = 0; n < count; n++) {
        r->faults += counters[n] == RCVI_NONE || r->signalers[counters[n]];
        if (counters[n] != RCVI_NONE) r->signalers[counters[n]] = writer_of(r, x);
    }
    for (int w = 0; w < s->write_count; w++) {
        const rcvi_port *port = &s->ports[s->writes[w]];
        if (port->channel == RCVI_NONE) continue;
        content *slot = slot_of(r, port, x.iteration);
        r->faults += !slot || slot->writer || r->p->channels[port->channel].task != s->task;
        r->faults += is_flagged(r->p, port) != s->write_flagged[w];
        if (slot) *slot = (content){writer_of(r, x), element_of(r, x, s->views[s->write_views[w]])};
    }
}

static void open_replay(replay *r, const rcvi_engine *e, const rcvi_persistent *p, int64_t length) {
    size_t executions = (size_t)(p->iterations * p->step_count), slots = 0;
    assert_true(executions < WRITERS - 1);
    *r = (replay){.e = e, .p = p, .length = length};
    r->due = new_table(executions, sizeof *r->due);
    r->offset = new_table(e->program->buffer_count, sizeof *r->offset);
    r->readings = new_table((1 + executions) * MOST_READINGS, sizeof *r->readings);
    r->reading_count = new_table(1 + executions, sizeof *r->reading_count);
    r->signalers = new_table((size_t)p->counters, sizeof *r->signalers);
    r->first_slot = new_table((size_t)p->channel_count, sizeof *r->first_slot);
    for (int c = 0; c < p->channel_count; c++) {
        r->first_slot[c] = slots;
        if (p->channels[c].top >= p->channels[c].base) slots += (size_t)(p->channels[c].top - p->channels[c].base + 1);
    }
    r->slots = new_table(slots, sizeof *r->slots);
    find_offsets(r);
    go_through(r);
    for (int k = 0; k < r->due_count; k++) find_signalers(r, r->due[k]);
}

static void close_replay(replay *r) {
    void *tables[] = {r->due, r->offset, r->readings, r->reading_count, r->signalers, r->first_slot, r->slots};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) free(tables[i]);
}

#endif
