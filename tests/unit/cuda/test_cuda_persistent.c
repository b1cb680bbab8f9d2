/* Time loops as persistent kernels, without a GPU: blocks wait for what the program says they read and for nothing that
 * never comes, nothing is overwritten too early, and all of it has room on the chip.
 *
 * What is checked against is the program itself, gone through step by step. Checkers answer how many faults they have
 * found, so that a test can spoil a loop and see that they find it. */
#include "persistent_subject.h"
#include "sample.h"

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

/* What a slot of a channel holds: who wrote it, and which element of memory its first one is. */
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

/* A memory tells of the elements of every view's first row who wrote them last. That row is of a sequence of `length` steps, and the
 * longest one of its tile. */
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
    int *signalers;     /* [counters] who signals it */
    size_t *first_slot; /* [channels] of their slots from `base` on */
    content *slots;
    int faults; /* steps not due as the program says; counters and slots with a second writer, or of no channel */
} replay;

static void *new_table(size_t count, size_t size) {
    void *table = calloc(count + 1, size);
    assert_non_null(table);
    return table;
}

static const rcvi_step *part_of(const replay *r, int step, int n) {
    return &r->e->program->steps[r->p->steps[step].members[n]];
}
static int writer_of(const replay *r, execution x) { return 1 + (int)x.iteration * r->p->step_count + x.step; }
/* Who has the same elements from step to step: a task by columns, or by rows. */
static int owner_of_step(const rcvi_kernel_step *s) { return s->task * 2 + s->by_rows; }
static int owner_of(const replay *r, int writer) {
    return writer > 0 ? owner_of_step(&r->p->steps[(writer - 1) % r->p->step_count]) : RCVI_NONE;
}
static reading *readings_of(const replay *r, execution x) {
    return r->readings + (size_t)writer_of(r, x) * MOST_READINGS;
}

static int64_t time_of(const replay *r, execution x) {
    const rcvi_time *time = &part_of(r, x.step, 0)->time;
    return time->base + x.iteration * time->inner;
}

static int64_t element_of(const replay *r, execution x, const rcvi_view *view) {
    return rcvi_view_start(view, x.iteration, 0, time_of(r, x));
}

/* Does the sequence have the step of the caller's that is computed? */
static bool is_active(const replay *r, execution x) {
    int64_t time = time_of(r, x);
    return (part_of(r, x.step, 0)->direction ? r->e->program->options.steps - 1 - time : time) < r->length;
}

/* Is the part left out? */
static bool is_left_out(const replay *r, execution x, int n) {
    return r->e->is_short[r->p->steps[x.step].members[n]] && !is_active(r, x);
}

/* Does the execution neither wait nor multiply? */
static bool rests(const replay *r, execution x) { return r->p->steps[x.step].skips_ended && !is_active(r, x); }

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

static void write_part(const replay *r, execution x, int n, const writer_memory *memory) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int count = is_left_out(r, x, n) ? 0 : rcvi_step_accesses(part_of(r, x.step, n), accesses);
    for (int a = 0; a < count; a++) {
        if (accesses[a].written && accesses[a].view->buffer != RCVI_NONE)
            touch(r, x, &accesses[a], memory, writer_of(r, x));
    }
}

/* A selection takes its second operand where the sequence has ended. */
static void read_part(replay *r, execution x, int n, const writer_memory *memory) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    const rcvi_step *part = part_of(r, x.step, n);
    int count = is_left_out(r, x, n) ? 0 : rcvi_step_accesses(part, accesses);
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
        int count = rcvi_step_accesses(part_of(r, n, part), accesses);
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
            r->faults += due != rcvi_step_is_due(r->e->program, part_of(r, x.step, n), x.iteration, 0, &time, &span);
            if (due) read_part(r, x, n, &memory);
            if (due) write_part(r, x, n, &memory);
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

/* The counters that an execution signals; answers how many. Values with flag_words count as if they had one. */
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

/* A reader waits for the tag of the writer; the one before, or what was before the loop, has the other one. */
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

/* No counter is signaled by two executions, no slot written by two. */
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

/* ---- what is read ---- */

/* The number, of those that a step has, that it stores in an element of a buffer; RCVI_NONE: in no such one. */
static int value_at(const replay *r, int writer, int buffer, int64_t element) {
    execution x = {(writer - 1) % r->p->step_count, (writer - 1) / r->p->step_count};
    const rcvi_kernel_step *s = &r->p->steps[x.step];
    const rcvi_map *map = s->shape.map;
    for (int v = 0; v < map->operand_count; v++) {
        if (s->views[v]->buffer != buffer || element_of(r, x, s->views[v]) != element) continue;
        for (int q = 0; q < map->product_count; q++)
            if (map->products[q].out == v) return q;
        for (int k = 0; k < map->instruction_count; k++)
            if (map->instructions[k].out == v) return map->product_count + k;
        for (int i = 0; i < map->store_count; i++) {
            if (map->stores[i].out == v)
                return map->stores[i].source + (map->stores[i].product ? 0 : map->product_count);
        }
    }
    return RCVI_NONE;
}

/* Does the slot load_registers what its writer stored in this element, or in another one the same number? */
static bool holds(const replay *r, const content *slot, const rcvi_channel *channel, int buffer, int64_t element) {
    if (buffer == channel->buffer) return slot->element == element;
    int value = value_at(r, slot->writer, buffer, element);
    return value != RCVI_NONE && value == value_at(r, slot->writer, channel->buffer, slot->element);
}

/* What `writer` wrote comes by this channel, behind a counter that it signals. What was there before the loop is not
 * waited for, nobody writes its slot, and an operand is brought from where it lies: slots are steps of [batch, row],
 * and a ring has two. */
static bool is_linked(const replay *r, const rcvi_port *port, int64_t i, int writer, int buffer, int64_t element) {
    if (port->channel == RCVI_NONE) return false;
    const rcvi_channel *channel = &r->p->channels[port->channel];
    const content *slot = slot_of(r, port, i);
    int64_t counter = counter_of(r->p, port, i), at = slot_at(port, i);
    if (writer)
        return is_awaited(port, i) && counter != RCVI_NONE && r->signalers[counter] == writer && slot &&
               slot->writer == writer && holds(r, slot, channel, buffer, element);
    int64_t from =
        channel->view->wrap ? at % 2 * channel->view->slot : at * r->e->program->options.batch * channel->view->row;
    if (is_awaited(port, i) || counter != RCVI_NONE) return false;
    return !channel->operand || (slot && !slot->writer && channel->column + from == element);
}

/* Operands come by channels; of values, those that another task writes. */
static bool is_reading_linked(const replay *r, execution x, const reading *reading) {
    const rcvi_kernel_step *s = &r->p->steps[x.step];
    const rcvi_view *view = reading->access.view;
    int64_t element = element_of(r, x, view);
    int n = 0, remote = 0, writer = reading->writer;
    if (reading->access.use == RCVI_USE_OPERAND) {
        while (n < s->pass_count && !rcvi_view_equal(s->views[s->passes[n].a], view)) n++;
        return n < s->pass_count && s->operand_ports[n] != RCVI_NONE && s->passes[n].depth == reading->access.columns &&
               is_linked(r, &s->ports[s->operand_ports[n]], x.iteration, writer, view->buffer, element) &&
               r->p->channels[s->ports[s->operand_ports[n]].channel].operand;
    }
    for (; n < s->view_count && !rcvi_view_equal(s->views[n], view); n++) remote += s->is_remote[n];
    if (n < s->view_count && s->is_remote[n] && s->ports[s->waits[remote]].channel != RCVI_NONE) {
        const rcvi_port *port = &s->ports[s->waits[remote]];
        if (is_flagged(r->p, port) &&
            (!s->is_flagged[n] || (writer && !are_flags_right(r, x, s->waits[remote], writer))))
            return false;
        return is_linked(r, port, x.iteration, writer, view->buffer, element);
    }
    return writer == 0 || owner_of(r, writer) == owner_of_step(s);
}

/* Does some step store the buffer with flag_words alone? */
static bool is_flagged_only(const rcvi_persistent *p, int buffer) {
    bool flagged_only = false;
    for (int n = 0; n < p->step_count; n++) {
        const rcvi_kernel_step *s = &p->steps[n];
        for (int v = 0; v < s->shape.map->operand_count; v++)
            flagged_only |= s->is_flagged_only[v] && s->views[v]->buffer == buffer;
    }
    return flagged_only;
}

/* What lies only in words with flag_words is read nowhere else. */
static int count_flagged_only_faults(const replay *r) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int faults = 0;
    for (size_t i = 0; i < r->e->program->step_count; i++) {
        int count = rcvi_step_accesses(&r->e->program->steps[i], accesses), n = 0;
        while (n < r->p->step_count && !rcvi_kernel_step_contains(&r->p->steps[n], (int)i)) n++;
        for (int a = 0; a < count; a++) {
            if (!accesses[a].read || accesses[a].view->buffer == RCVI_NONE) continue;
            if (!is_flagged_only(r->p, accesses[a].view->buffer)) continue;
            int v = 0, remote = 0;
            for (; n < r->p->step_count && v < r->p->steps[n].view_count; v++) {
                if (rcvi_view_equal(r->p->steps[n].views[v], accesses[a].view)) break;
                remote += r->p->steps[n].is_remote[v];
            }
            const rcvi_kernel_step *s = n < r->p->step_count ? &r->p->steps[n] : NULL;
            const rcvi_port *port = s && s->is_flagged[v] ? &s->ports[s->waits[remote]] : NULL;
            faults += !port || !is_flagged(r->p, port) || port->low != s->low || port->high != s->high;
        }
    }
    return faults;
}

/* So every wait is for a counter that one step signals, of the task whose blocks are waited for, and that step has
 * written what is read. */
static int count_link_faults(const replay *r) {
    int faults = r->faults + count_flagged_only_faults(r);
    for (int k = 0; k < r->due_count; k++) {
        const reading *readings = readings_of(r, r->due[k]);
        for (int a = 0; a < r->reading_count[writer_of(r, r->due[k])]; a++)
            faults += readings[a].writer == SEVERAL || !is_reading_linked(r, r->due[k], &readings[a]);
    }
    return faults;
}

/* ---- progress ---- */

enum { FOLLOWED = 2, MEMORIES = FOLLOWED * FOLLOWED, MOST_BLOCKS = 64 };

/* Two blocks of every task, one ahead of the other as far as counters let it. A memory is of one block's rows and one
 * block's columns: a step by columns has those of all rows, one by rows those of all columns. */
typedef struct {
    const replay *r;
    int blocks, faults;
    int next[MOST_BLOCKS]; /* [blocks] of what is due */
    int *signaled;         /* [counters] */
    writer_memory memory[MEMORIES];
    int *words[MEMORIES]; /* [channels] who wrote the flagged words */
} race;

static bool has_memory(const race *t, execution x, int number, int m) {
    return (t->r->p->steps[x.step].by_rows ? m / FOLLOWED : m % FOLLOWED) == number;
}

static void go_on(race *t, int block) {
    do t->next[block]++;
    while (t->next[block] < t->r->due_count && t->r->p->steps[t->r->due[t->next[block]].step].task != block / FOLLOWED);
}

/* Have all counters come that its next step waits for? */
static bool may_go(const race *t, int block) {
    if (t->next[block] == t->r->due_count) return false;
    execution x = t->r->due[t->next[block]];
    const rcvi_kernel_step *s = &t->r->p->steps[x.step];
    for (int n = 0; n < s->pass_count + s->wait_count && !rests(t->r, x); n++) {
        int port = n < s->pass_count ? s->operand_ports[n] : s->waits[n - s->pass_count];
        if (port == RCVI_NONE || !is_awaited(&s->ports[port], x.iteration)) continue;
        int64_t counter = counter_of(t->r->p, &s->ports[port], x.iteration);
        if (counter == RCVI_NONE || t->signaled[counter] < FOLLOWED) return false;
    }
    return true;
}

/* What is read where it lies must be there, and single_step be there, in all rows and columns; of what its owner wrote a block
 * needs only its own part. */
static void read_values(race *t, execution x, int number) {
    const replay *r = t->r;
    int owner = owner_of_step(&r->p->steps[x.step]);
    for (int a = 0; a < r->reading_count[writer_of(r, x)]; a++) {
        const reading *reading = &readings_of(r, x)[a];
        if (reading->writer == writer_of(r, x)) continue; /* another part of it */
        t->faults += reading->access.use == RCVI_USE_OPERAND && rests(r, x);
        for (int m = 0; reading->access.use != RCVI_USE_OPERAND && m < MEMORIES; m++) {
            int there = touch(r, x, &reading->access, &t->memory[m], 0);
            bool own = owner_of(r, reading->writer) == owner || owner_of(r, there) == owner;
            t->faults += there != reading->writer && (has_memory(t, x, number, m) || !own);
        }
    }
}

/* Words with flag_words are those of the step that is waited for, not of one behind it. */
static void read_words(race *t, execution x, int number) {
    const rcvi_kernel_step *s = &t->r->p->steps[x.step];
    for (int n = 0; n < s->wait_count; n++) {
        const rcvi_port *port = &s->ports[s->waits[n]];
        int64_t counter = counter_of(t->r->p, port, x.iteration);
        if (!is_flagged(t->r->p, port) || !is_awaited(port, x.iteration)) continue;
        for (int m = 0; m < MEMORIES && counter != RCVI_NONE; m++)
            t->faults += has_memory(t, x, number, m) && t->words[m][port->channel] != t->r->signalers[counter];
    }
}

static void write_words(race *t, execution x, int number) {
    const rcvi_kernel_step *s = &t->r->p->steps[x.step];
    for (int n = 0; n < s->write_count; n++) {
        const rcvi_port *port = &s->ports[s->writes[n]];
        for (int m = 0; m < MEMORIES && is_flagged(t->r->p, port); m++) {
            if (has_memory(t, x, number, m)) t->words[m][port->channel] = writer_of(t->r, x);
        }
    }
}

static void take_step(race *t, int block) {
    execution x = t->r->due[t->next[block]];
    int64_t counters[RCVI_MAX_PORTS];
    int count = find_signals(t->r, x, counters);
    read_values(t, x, block % FOLLOWED);
    read_words(t, x, block % FOLLOWED);
    write_words(t, x, block % FOLLOWED);
    for (int m = 0; m < MEMORIES; m++) {
        for (int n = 0; n < t->r->p->steps[x.step].member_count && has_memory(t, x, block % FOLLOWED, m); n++)
            write_part(t->r, x, n, &t->memory[m]);
    }
    for (int n = 0; n < count; n++) {
        if (counters[n] != RCVI_NONE) t->signaled[counters[n]]++;
    }
    go_on(t, block);
}

/* All others take all steps they can, the last task first; only then the slow one takes a step. */
static bool take_round(race *t, int slow) {
    bool moved = false;
    for (int b = t->blocks - 1; b >= 0; b--) {
        for (; b != slow && may_go(t, b); moved = true) take_step(t, b);
    }
    if (moved || !may_go(t, slow)) return moved;
    take_step(t, slow);
    return true;
}

/* Faults are blocks that never come to their end, and values that are not there yet, or no longer. */
static int run_race(const replay *r, int slow, int *const *elements) {
    race t = {.r = r, .blocks = r->p->task_count * FOLLOWED};
    assert_true(t.blocks <= MOST_BLOCKS);
    t.signaled = new_table((size_t)r->p->counters, sizeof *t.signaled);
    for (int m = 0; m < MEMORIES; m++) {
        t.memory[m] = (writer_memory){elements[m], slow + 1};
        t.words[m] = new_table((size_t)r->p->channel_count, sizeof **t.words);
    }
    for (int b = 0; b < t.blocks; b++) {
        t.next[b] = -1;
        go_on(&t, b);
    }
    while (take_round(&t, slow)) continue;
    for (int b = 0; b < t.blocks; b++) t.faults += t.next[b] < r->due_count;
    for (int m = 0; m < MEMORIES; m++) {
        free(t.words[m]);
    }
    free(t.signaled);
    return t.faults;
}

static int count_progress_faults(const replay *r) {
    int faults = 0, *elements[MEMORIES];
    for (int m = 0; m < MEMORIES; m++) elements[m] = new_table(r->elements, sizeof *elements[m]);
    for (int slow = 0; slow < r->p->task_count * FOLLOWED; slow++) faults += run_race(r, slow, elements);
    for (int m = 0; m < MEMORIES; m++) free(elements[m]);
    return faults;
}

/* ---- residency ---- */

/* Chunks of so many columns: those of bfloat16 have 64 of them, of all parts. */
static int64_t chunks_of(const rcvi_persistent *p, int64_t columns) {
    int64_t each = (p->operand == RCVI_F32 ? 32 : 64) * p->depth_splits;
    return (columns + each - 1) / each * p->parts;
}

/* Where products are of one pipe each, those of pipe 0 come first, and no pass is of both. */
static int count_apart_faults(const rcvi_persistent *p, const rcvi_task *task) {
    const rcvi_kernel_step *s = &p->steps[task->product_step];
    int products = s->shape.map->product_count, faults = 0;
    if (!s->second_product) return task->products != products;
    for (int pipe = 0; pipe < RCVI_PIPES; pipe++) {
        for (int g = 0; g < task->group_count[pipe]; g++) {
            for (int i = 0; i < products; i++)
                faults += (i >= s->second_product) != pipe && s->passes[task->groups[pipe][g].pass].b[i] != RCVI_NONE;
        }
    }
    return faults + (task->products < s->second_product || task->products < products - s->second_product);
}

/* A task takes steps in the order of the program; groups of both its pipes bring every chunk of every pass once, with
 * all parts of a number. */
static int count_task_faults(const replay *r, const rcvi_task *task) {
    enum { MOST = RCVI_MAX_GROUPS * 4 };
    const rcvi_persistent *p = r->p;
    int faults = count_apart_faults(p, task), brought[RCVI_MAX_PASSES][MOST] = {{0}},
        all = task->chunks[0] + task->chunks[1];
    for (int k = 1; k < task->step_count; k++) faults += task->steps[k] <= task->steps[k - 1];
    for (int pipe = 0; pipe < RCVI_PIPES; pipe++) {
        int chunks = 0, groups = task->group_count[pipe], ring = task->ring[pipe];
        for (int g = 0; g < groups; g++) {
            const rcvi_chunk_group *group = &task->groups[pipe][g];
            chunks += group->count;
            faults += group->count < 1 || group->count > p->group;
            faults += group->first % p->parts != 0 || group->count % p->parts != 0;
            faults += group->first < 0 || group->first + group->count > MOST;
            for (int c = group->first; c < group->first + group->count; c++) {
                if (c >= 0 && c < MOST) brought[group->pass][c]++;
            }
        }
        faults += chunks != task->chunks[pipe] || task->in_registers[pipe] < 0 || task->in_shared[pipe] < 0 ||
                  task->in_registers[pipe] + task->in_shared[pipe] > chunks;
        faults += ring < 1 || (groups % ring != 0 && (ring != 2 * groups || p->tiles < 2));
        int chunk = p->tile * p->depth_splits * CHUNK_BYTES + (p->streamed_chunks ? WEIGHT_ROWS * CHUNK_BYTES : 0);
        faults += groups && (size_t)(ring * p->group * chunk) > p->pipe_bytes;
    }
    for (int q = 0; q < p->steps[task->product_step].pass_count; q++) {
        int64_t count = chunks_of(p, p->steps[task->product_step].passes[q].depth);
        for (int64_t c = 0; c < count; c++, all--) faults += brought[q][c] != 1;
    }
    return faults + (all != 0);
}

/* Every operand has memory of its own, for all parts of all numbers of all slots. */
static int count_memory_faults(const rcvi_persistent *p) {
    size_t end = 0;
    int faults = 0;
    for (int c = 0; c < p->channel_count; c++) {
        const rcvi_channel *channel = &p->channels[c];
        if (!channel->operand || channel->base > channel->top) continue;
        int64_t rows = (int64_t)p->slices * p->tiles * p->tile * p->depth_splits;
        int64_t bytes = rows * chunks_of(p, channel->columns) * CHUNK_BYTES;
        faults += channel->chunks != chunks_of(p, channel->columns) || channel->offset < end;
        end = channel->offset + (size_t)((channel->top - channel->base + 1) * bytes);
    }
    return faults + (end > p->streamed_offset);
}

/* All has room: columns in blocks, blocks on the chip, rows in tiles, weights, copies and sums in shared memory. */
static int count_room_faults(const replay *r) {
    const rcvi_persistent *p = r->p;
    int64_t batch = r->e->program->options.batch;
    int faults = 0, block = 0, steps = 0, parts = 0;
    for (int s = 0; s < p->task_count; s++) {
        const rcvi_task *task = &p->tasks[s];
        faults += task->units * task->products * p->depth_splits > WEIGHT_ROWS || task->units < 1 ||
                  task->units % p->vector != 0;
        faults += (int64_t)task->blocks * task->units < task->columns;
        faults += (int64_t)(task->blocks - 1) * task->units >= task->columns;
        faults += task->first_block != block || task->variant < 0 || task->variant >= p->variant_count;
        int in_shared = task->in_shared[0] + task->in_shared[1];
        faults += in_shared > p->shared_weight_chunks;
        faults += task->chunks[0] + task->chunks[1] - task->in_registers[0] - task->in_registers[1] - in_shared >
                  p->streamed_chunks;
        faults += count_task_faults(r, task);
        block += task->blocks * p->slices;
        steps += task->step_count;
    }
    for (int n = 0; n < p->step_count; n++) {
        parts += p->steps[n].member_count;
        faults += rcvi_map_has_sums(p->steps[n].shape.map) && !p->steps[n].by_rows;
    }
    faults += parts != r->e->program->steps[p->loop].loop.body;
    faults += p->blocks != block || p->blocks > PROCESSORS || steps != p->step_count;
    faults += (int64_t)p->slices * p->slice < batch || (int64_t)(p->slices - 1) * p->slice >= batch;
    faults += p->tiles * p->tile < p->slice || p->tile % 8 != 0 || p->tile < 8;
    faults += p->exact && p->tile != 8;
    faults += count_memory_faults(p);
    size_t least = RCVI_PIPES * p->pipe_bytes + (size_t)(p->shared_weight_chunks * WEIGHT_ROWS * CHUNK_BYTES);
    return faults + (p->shared_bytes > SHARED ||
                     p->shared_bytes < least + (size_t)(p->tile * p->depth_splits * WEIGHT_ROWS) * sizeof(float));
}

enum { LINKS, PROGRESS, ROOM, CHECKERS };
static int (*const checkers[])(const replay *r) = {count_link_faults, count_progress_faults, count_room_faults};

/* Adds the faults that every checker of the set `which` (bits) finds. Where sequences end, PROGRESS is also checked for tiles that end early. */
static void add_faults(const rcvi_engine *e, const rcvi_persistent *p, unsigned which, int *faults) {
    int64_t steps = e->program->options.steps;
    for (int64_t length = steps; length > 0; length = length > 2 ? length / 2 : length - 1) {
        replay r;
        unsigned now = length < steps ? which & 1u << PROGRESS : which;
        if (!now || (length < steps && !e->sorts)) break;
        open_replay(&r, e, p, length);
        for (int k = 0; k < CHECKERS; k++) {
            if (now >> k & 1) faults[k] += checkers[k](&r);
        }
        close_replay(&r);
    }
}

static int count_faults(const rcvi_engine *e, const rcvi_persistent *p, int checker) {
    int faults[CHECKERS] = {0};
    add_faults(e, p, 1u << checker, faults);
    return faults[checker];
}

/* ---- every loop ---- */

enum {
    TAKEN,
    FOLDED,
    TILED,
    RINGED,
    SHARING,
    STREAMING,
    WAITING,
    STILL,
    PARTED,
    EXACT,
    BY_ROWS,
    PAIRED,
    FLAGGED,
    FLAGGED_ONLY,
    KINDS
};
static int seen[KINDS]; /* loops */

static void remember(const rcvi_persistent *p) {
    bool kinds[KINDS] = {[TAKEN] = true,
                         [FOLDED] = p->depth_splits > 1,
                         [TILED] = p->tiles > 1,
                         [SHARING] = p->shared_weight_chunks > 0,
                         [STREAMING] = p->streamed_chunks > 0,
                         [PARTED] = p->parts > 1,
                         [EXACT] = p->exact,
                         [BY_ROWS] = p->by_rows,
                         [PAIRED] = p->paired};
    for (int s = 0; s < p->task_count; s++) kinds[RINGED] |= p->tasks[s].group_count[0] > p->tasks[s].ring[0];
    for (int n = 0; n < p->step_count; n++) kinds[WAITING] |= p->steps[n].wait_count > 0;
    for (int c = 0; c < p->channel_count; c++) {
        kinds[STILL] |= p->channels[c].single_step;
        kinds[FLAGGED] |= p->channels[c].flagged && !p->channels[c].single_step;
        kinds[FLAGGED_ONLY] |= is_flagged_only(p, p->channels[c].buffer);
    }
    for (int k = 0; k < KINDS; k++) seen[k] += kinds[k];
}

static void check_faultless(const subject *s, const config *c, const rcvi_persistent *p) {
    const rcv_plan_options *o = &s->program.options;
    int faults[CHECKERS] = {0};
    add_faults(&s->engine, p, (1u << CHECKERS) - 1, faults);
    for (int k = 0; k < CHECKERS; k++) {
        if (faults[k])
            fail_msg("%s, hidden %d, layers %d, type %d, training %d, %s, step %d: %d faults found by checker %d",
                     c->cell, (int)c->net.hidden, (int)c->net.layers, (int)o->dtype, o->training, o->schedule, p->loop,
                     faults[k], k);
    }
}

/* Every loop of the program becomes one kernel, without a fault; or, if they may be refused, is not passed on. */
static void check_loops(const config *c, rcv_dtype dtype, bool training, const char *plan, bool refused,
                        void (*remember)(const rcvi_persistent *p)) {
    subject s;
    size_t loop = 0;
    open_subject(&s, c, dtype, training, plan);
    for (assert_true(next_loop(&s, &loop)); next_loop(&s, &loop); loop++) {
        rcvi_persistent *p;
        rcv_status status = rcvi_persistent_new(&s.engine, loop, &p);
        if (refused) check_fails(status, RCV_UNSUPPORTED, "cannot pass on a value that");
        if (refused) continue;
        if (status) fail_msg("%s, training %d, %s, step %zu: %s", c->cell, training, plan, loop, rcv_message());
        check_faultless(&s, c, p);
        remember(p);
        rcvi_persistent_free(s.context, p);
    }
    close_subject(&s);
}

static void test_loops(void **state) {
    (void)state;
    static const char *const plans[] = {by_step, at_once, by_wave, by_two, forward_wave, exactly, mixed};
    static const char *const cells[] = {"lstm",
                                        "gru",
                                        "gru_original",
                                        "lstm_proj",
                                        "lstm_peephole",
                                        "lstm_cifg",
                                        "rnn_tanh",
                                        "rnn_relu",
                                        RCV_SOURCE_DIR "/tests/support/cells/quotient.cell",
                                        "lstm_layernorm",
                                        RCV_SOURCE_DIR "/tests/support/cells/normal.cell"};
    static const rcv_dtype dtypes[] = {RCV_FLOAT32, RCV_BFLOAT16, RCV_TFLOAT32, RCV_FLOAT16};
    const config shapes[] = {
        deep,
        {NULL, {.input = 19, .hidden = 45, .layers = 2}, 7, 20, false, false, true},
        {NULL, {.input = 32, .hidden = 64, .layers = 1}, 5, 70, false, false, true},
        {NULL, {.input = 24, .hidden = 24, .layers = 2, .bidirectional = true}, 6, 3, false, false, true},
        {NULL, {.input = 40, .hidden = 40, .layers = 2, .no_bias = true}, 1, 1, false, false, true},
        {NULL, {.input = 100, .hidden = 256, .layers = 3}, 5, 300, false, false, true},
        {NULL, {.input = 512, .hidden = 512, .layers = 4}, 4, 64, false, false, true},
    };
    size_t index = 0;
    enum { PLANS = 7, CELLS = sizeof cells / sizeof *cells, DTYPES = 4, SHAPES = sizeof shapes / sizeof *shapes };
    for (int i = 0; i < CELLS * SHAPES * PLANS * DTYPES * 2; i++) {
        config c = shapes[i / (PLANS * DTYPES * 2) % SHAPES];
        const char *plan = plans[i / (DTYPES * 2) % PLANS];
        c.cell = cells[i / (SHAPES * PLANS * DTYPES * 2)];
        rcv_dtype dtype = dtypes[i / 2 % DTYPES];
        bool waves = plan == by_wave || plan == by_two || plan == forward_wave,
             parts = plan == by_two || plan == exactly;
        if (waves && (c.net.bidirectional || c.net.layers == 1 || c.steps == 1)) continue;
        if ((plan == forward_wave || plan == mixed) && i % 2 == 0) continue; /* for training */
        if (parts && dtype != RCV_FLOAT32) continue;
        if (sample_takes(index++)) check_loops(&c, dtype, i % 2, plan, false, remember);
    }
    print_message("%d loops are one kernel; %d with depth folded, %d with weights copied every time\n", seen[TAKEN],
                  seen[FOLDED], seen[STREAMING]);
    assert_true(sample_is_partial() || seen[TAKEN] > 2000);
    for (int k = 0; k < KINDS; k++) assert_true(sample_is_partial() || seen[k] > 0);
}

/* ---- sequences that end, and begin anew ---- */

enum { JOINED, LEAVING, ORDERED, WAITING_ALONE, RAGGED_KINDS };
static int seen_ragged[RAGGED_KINDS]; /* steps */

static void remember_ragged(const rcvi_persistent *p) {
    for (int n = 0; n < p->step_count; n++) {
        const rcvi_kernel_step *s = &p->steps[n];
        bool kinds[RAGGED_KINDS] = {s->member_count > 1, s->skips_ended, s->has_row_order,
                                    !s->pass_count && s->wait_count};
        for (int k = 0; k < RAGGED_KINDS; k++) seen_ragged[k] += kinds[k];
    }
}

static void test_ragged(void **state) {
    (void)state;
    static const char *const plans[] = {by_step, at_once, by_wave, forward_wave};
    static const char *const cells[] = {"lstm",
                                        "gru",
                                        "gru_original",
                                        "lstm_proj",
                                        "lstm_peephole",
                                        "lstm_cifg",
                                        "rnn_tanh",
                                        "slstm",
                                        RCV_SOURCE_DIR "/tests/support/cells/quotient.cell",
                                        "lstm_layernorm",
                                        RCV_SOURCE_DIR "/tests/support/cells/normal.cell"};
    const config shapes[] = {
        {NULL, {.input = 40, .hidden = 40, .layers = 3}, 7, 20, false, false, true},
        {NULL, {.input = 24, .hidden = 24, .layers = 2, .bidirectional = true}, 6, 3, false, false, true},
        {NULL, {.input = 19, .hidden = 45, .layers = 2}, 4, 300, false, false, true},
    };
    size_t index = 0;
    enum { PLANS = 4, CELLS = sizeof cells / sizeof *cells, SHAPES = sizeof shapes / sizeof *shapes };
    for (int i = 0; i < CELLS * SHAPES * PLANS * 3 * 2; i++) {
        config c = shapes[i / (PLANS * 3 * 2) % SHAPES];
        const char *plan = plans[i / (3 * 2) % PLANS];
        c.cell = cells[i / (SHAPES * PLANS * 3 * 2)];
        c.lengths = i / 2 % 3 < 2;
        c.resets = i / 2 % 3 > 0;
        bool waves = plan == by_wave || plan == forward_wave;
        if ((waves && c.net.bidirectional) || (plan == forward_wave && i % 2 == 0)) continue;
        /* It returns what is behind its state, so nothing holds its products back, which give both; training keeps them. */
        bool ahead = strstr(c.cell, "normal") && i % 2 == 0 && c.lengths != c.resets;
        if (sample_takes(index++))
            check_loops(&c, i % 5 ? RCV_BFLOAT16 : RCV_TFLOAT32, i % 2, plan, ahead, remember_ragged);
    }
    print_message("of their steps %d are merged, %d leave rows out, %d write in the caller's order, %d wait without "
                  "products\n",
                  seen_ragged[JOINED], seen_ragged[LEAVING], seen_ragged[ORDERED], seen_ragged[WAITING_ALONE]);
    for (int k = 0; k < RAGGED_KINDS; k++) assert_true(sample_is_partial() || seen_ragged[k] > 0);
}

/* Some of the steps that might leave rows out take all, as they do where a cell divides: then others must not rest, or the loop is
 * refused. */
static void test_mixed(void **state) {
    (void)state;
    static const char *const plans[] = {by_step, at_once, by_wave};
    static const char *const cells[] = {"lstm", "gru", "gru_original", "lstm_proj", "slstm"};
    random_source random = {7};
    int taken = 0, refused = 0;
    for (int i = 0; i < 5 * 3 * 2 * 6; i++) {
        config c = {cells[i / 36], {.input = 24, .hidden = 24, .layers = 3}, 6, 9, true, i & 2, true};
        subject s;
        open_subject(&s, &c, RCV_BFLOAT16, i & 1, plans[i / 12 % 3]);
        for (size_t n = 0; n < s.program.step_count; n++) s.engine.is_short[n] &= random_below(&random, 3) > 0;
        for (size_t loop = 0; sample_takes((size_t)i) && next_loop(&s, &loop); loop++) {
            rcvi_persistent *p;
            if (rcvi_persistent_new(&s.engine, loop, &p)) {
                assert_non_null(strstr(rcv_message(), "may be overwritten before it is read"));
                refused++;
                continue;
            }
            check_faultless(&s, &c, p);
            taken++;
            rcvi_persistent_free(s.context, p);
        }
        close_subject(&s);
    }
    print_message("%d loops with some steps for all rows are one kernel, %d are refused\n", taken, refused);
    assert_true(sample_is_partial() || (taken > 100 && refused > 0));
}

/* ---- spoilt loops ---- */

/* Every way of spoiling a loop is seen by the checker that it answers. */
static void check_seen(subject *s, size_t loop, int ways, int (*spoil)(rcvi_persistent *p, int way)) {
    for (int way = 0; way < ways; way++) {
        rcvi_persistent *p;
        check_ok(rcvi_persistent_new(&s->engine, loop, &p));
        int checker = spoil(p, way);
        if (!count_faults(&s->engine, p, checker)) fail_msg("checker %d does not see spoilt loop %d", checker, way);
        rcvi_persistent_free(s->context, p);
    }
}

/* Spoils a loop in one of WAYS and answers which checker must see it. The loop goes backwards through the layers of a
 * wavefront; the operand of its first step comes from before the loop at the first iteration, and a value from another
 * layer. */
enum { WAYS = 18 };
static int spoil(rcvi_persistent *p, int way) {
    rcvi_kernel_step *s = &p->steps[0];
    rcvi_task *task = &p->tasks[s->task];
    rcvi_port *read = &s->ports[s->operand_ports[0]], *value = &s->ports[s->waits[0]], *write = &s->ports[s->writes[0]];
    assert_true(read->low > s->low && read->low < read->high && value->low < value->high);
    switch (way) {
    case 0: read->slot++; return LINKS;
    case 1: write->slot++; return LINKS;
    case 2: read->low++; return LINKS; /* it does not wait the first time */
    case 3: read->low--; return LINKS; /* it waits for what nobody writes */
    case 4: read->low--; return PROGRESS;
    case 5: value->high = value->low; return LINKS;
    case 6: s->is_signaled[s->writes[0]] = false; return LINKS;
    case 7: s->is_signaled[s->writes[0]] = false; return PROGRESS;
    case 8: p->channels[read->channel].first++; return LINKS;
    case 9: p->channels[read->channel].top--; return LINKS; /* nothing is brought */
    case 10: s->low++; return LINKS;
    case 11: task->step_count--; return ROOM;
    case 12: task->groups[1][0].count--; return ROOM;
    case 13: task->ring[0]++; return ROOM;
    case 14: task->blocks--; return ROOM;
    case 15: p->channels[read->channel].chunks--; return ROOM; /* of a part */
    case 16: p->channels[read->channel].offset += 128; return ROOM;
    default: /* a number's parts in two groups */
        assert_true(task->group_count[0] > 1);
        task->groups[0][0].count--;
        task->groups[0][1].count++;
        task->groups[0][1].first--;
        return ROOM;
    }
}

static void test_spoilt(void **state) {
    (void)state;
    const config c = {"lstm", {.input = 40, .hidden = 200, .layers = 3}, 7, 20, false, false, true};
    subject s;
    size_t backward = 0;
    open_subject(&s, &c, RCV_FLOAT32, true, by_wave);
    for (size_t loop = 0; next_loop(&s, &loop); loop++) backward = loop;
    check_seen(&s, backward, WAYS, spoil);
    close_subject(&s);
}

/* The same of a loop whose rows leave and whose states are taken back: GRUs backwards, where a map without products waits for the
 * layer above. */
enum { RAGGED_WAYS = 6 };
static int spoil_ragged(const rcvi_engine *e, rcvi_persistent *p, int way) {
    rcvi_kernel_step *s = &p->steps[0], *product_step = &p->steps[1], *above = &p->steps[3];
    rcvi_port *value = &s->ports[s->waits[0]];
    assert_true(!s->pass_count && s->skips_ended && product_step->pass_count && product_step->skips_ended &&
                value->low < value->high);
    switch (way) {
    case 0: e->is_short[product_step->members[0]] = false; return PROGRESS; /* it rests, but needs its products */
    case 1: /* or a value of the layer above, which comes */
        e->is_short[s->members[s->member_count - 1]] = e->is_short[above->members[0]] = above->skips_ended = false;
        return PROGRESS;
    case 2: value->high = value->low; return LINKS;
    case 3: value->high = value->low; return PROGRESS;
    case 4: s->is_signaled[s->writes[0]] = false; return PROGRESS;
    default: s->member_count--; return LINKS;
    }
}

static void test_spoilt_ragged(void **state) {
    (void)state;
    const config c = {"gru", {.input = 40, .hidden = 40, .layers = 3}, 7, 20, true, true, true};
    for (int way = 0; way < RAGGED_WAYS; way++) {
        subject s;
        size_t backward = 0;
        rcvi_persistent *p;
        open_subject(&s, &c, RCV_BFLOAT16, true, by_wave);
        for (size_t loop = 0; next_loop(&s, &loop); loop++) backward = loop;
        check_ok(rcvi_persistent_new(&s.engine, backward, &p));
        assert_int_equal(count_faults(&s.engine, p, PROGRESS), 0);
        int checker = spoil_ragged(&s.engine, p, way);
        if (!count_faults(&s.engine, p, checker)) fail_msg("checker %d does not see spoilt loop %d", checker, way);
        rcvi_persistent_free(s.context, p);
        close_subject(&s);
    }
}

/* The same of a loop that sums over features: a step of two that only multiply, and one by rows behind it, which reads its
 * values with flag_words. */
enum { ROW_WAYS = 11 };
static int spoil_rows(rcvi_persistent *p, int way) {
    rcvi_kernel_step *s = &p->steps[0], *rows = &p->steps[1];
    rcvi_port *value = &rows->ports[rows->waits[0]], *write = &s->ports[s->writes[0]];
    assert_true(s->second_product && s->member_count == 2 && rows->by_rows && p->channels[value->channel].flagged);
    switch (way) {
    case 0: value->high = value->low; return LINKS;
    case 1: value->slot++; return LINKS;
    case 2: write->slot++; return LINKS;
    case 3: rows->is_flagged[0] = false; return LINKS;                 /* nobody signals a counter */
    case 4: p->channels[value->channel].flagged = false; return LINKS; /* the same */
    case 5:
        for (int n = 0; n < rows->wait_count; n++) p->channels[rows->ports[rows->waits[n]].channel].flagged = false;
        return PROGRESS;
    case 6: rows->is_flagged_only[rows->write_views[0]] = true; return LINKS;
    case 7: s->write_flagged[0] = false; return LINKS;
    case 8: s->second_product--; return ROOM;
    case 9: s->member_count = 1; return ROOM;
    default: rows->by_rows = false; return ROOM;
    }
}

static void test_spoilt_rows(void **state) {
    (void)state;
    const config normal = {"lstm_layernorm", {.input = 40, .hidden = 40, .layers = 3}, 7, 20, false, false, true};
    subject s;
    size_t loop = 0;
    open_subject(&s, &normal, RCV_BFLOAT16, false, by_wave);
    assert_true(next_loop(&s, &loop));
    check_seen(&s, loop, ROW_WAYS, spoil_rows);
    close_subject(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loops),         cmocka_unit_test(test_ragged),
                                       cmocka_unit_test(test_mixed),         cmocka_unit_test(test_spoilt),
                                       cmocka_unit_test(test_spoilt_ragged), cmocka_unit_test(test_spoilt_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
