/* Checkers of a loop of a persistent kernel: each counts faults.
 *   LINKS     everything that is read arrives through the right channel and slot, after the right counter
 *   PROGRESS  blocks that run ahead of others neither wait for ever nor read what is not there
 *   ROOM      blocks, tiles, chunks and bytes fit */
#ifndef PERSISTENT_CHECKS_H
#define PERSISTENT_CHECKS_H

#include "persistent_replay.h"

/* ---- what is read ---- */

/* The number, of those that a step computes, that it stores in an element of a buffer; RCVI_NONE: none. */
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

/* What `writer` wrote arrives through this channel, after a counter that it increments. What was there before the loop is not awaited, no
 * step writes its slot, and an operand is copied from memory: slots are time steps of [batch, row], and a ring has two. */
static bool is_linked(const replay *r, const rcvi_port *port, int64_t i, int writer, int buffer, int64_t element) {
    if (port->channel == RCVI_NONE) return false;
    const rcvi_channel *channel = &r->p->channels[port->channel];
    const content *slot = slot_of(r, port, i);
    int64_t counter = counter_of(r->p, port, i), at = slot_at(port, i);
    if (writer)
        return is_awaited(port, i) && counter != RCVI_NONE && r->signalers[counter] == writer && slot &&
               slot->writer == writer && holds(r, slot, channel, buffer, element);
    int64_t from =
        channel->view->wrap ? at % 2 * channel->view->slot : at * r->e->program->sizes.batch * channel->view->row;
    if (is_awaited(port, i) || counter != RCVI_NONE) return false;
    return !channel->operand || (slot && !slot->writer && channel->column + from == element);
}

/* Operands arrive through channels; values do if another task writes them. */
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

/* Does some step store the buffer only as flagged words? */
static bool is_flagged_only(const rcvi_persistent *p, int buffer) {
    bool flagged_only = false;
    for (int n = 0; n < p->step_count; n++) {
        const rcvi_kernel_step *s = &p->steps[n];
        for (int v = 0; v < s->shape.map->operand_count; v++)
            flagged_only |= s->is_flagged_only[v] && s->views[v]->buffer == buffer;
    }
    return flagged_only;
}

/* A buffer that is stored only as flagged words is read nowhere else. */
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

/* So every wait is for a counter that one step of the awaited task increments, and that step has written what is read. */
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

/* Two blocks of every task, one ahead of the other as far as counters let it. A memory belongs to one block's rows and one block's columns: a
 * step by columns has those of all rows, a step by rows those of all columns. */
typedef struct {
    const replay *r;
    int blocks, faults;
    int next[MOST_BLOCKS]; /* [blocks] index of the next execution in `due` */
    int *signaled;         /* [counters] */
    writer_memory memory[MEMORIES];
    int *words[MEMORIES]; /* [channels] who wrote the flagged words */
} block_run;

static bool has_memory(const block_run *t, execution x, int number, int m) {
    return (t->r->p->steps[x.step].by_rows ? m / FOLLOWED : m % FOLLOWED) == number;
}

static void advance(block_run *t, int block) {
    do t->next[block]++;
    while (t->next[block] < t->r->due_count && t->r->p->steps[t->r->due[t->next[block]].step].task != block / FOLLOWED);
}

/* Has every counter that its next step waits for been incremented? */
static bool can_run(const block_run *t, int block) {
    if (t->next[block] == t->r->due_count) return false;
    execution x = t->r->due[t->next[block]];
    const rcvi_kernel_step *s = &t->r->p->steps[x.step];
    for (int n = 0; n < s->pass_count + s->wait_count && !skips(t->r, x); n++) {
        int port = n < s->pass_count ? s->operand_ports[n] : s->waits[n - s->pass_count];
        if (port == RCVI_NONE || !is_awaited(&s->ports[port], x.iteration)) continue;
        int64_t counter = counter_of(t->r->p, &s->ports[port], x.iteration);
        if (counter == RCVI_NONE || t->signaled[counter] < FOLLOWED) return false;
    }
    return true;
}

/* What is read from memory must be there, and not overwritten yet, in all rows and columns; of what its own owner wrote a block needs only
 * its own part. */
static void read_values(block_run *t, execution x, int number) {
    const replay *r = t->r;
    int owner = owner_of_step(&r->p->steps[x.step]);
    for (int a = 0; a < r->reading_count[writer_of(r, x)]; a++) {
        const reading *reading = &readings_of(r, x)[a];
        if (reading->writer == writer_of(r, x)) continue; /* another member wrote it */
        t->faults += reading->access.use == RCVI_USE_OPERAND && skips(r, x);
        for (int m = 0; reading->access.use != RCVI_USE_OPERAND && m < MEMORIES; m++) {
            int there = touch(r, x, &reading->access, &t->memory[m], 0);
            bool own = owner_of(r, reading->writer) == owner || owner_of(r, there) == owner;
            t->faults += there != reading->writer && (has_memory(t, x, number, m) || !own);
        }
    }
}

/* Flagged words are those of the awaited step, not of a later one. */
static void read_words(block_run *t, execution x, int number) {
    const rcvi_kernel_step *s = &t->r->p->steps[x.step];
    for (int n = 0; n < s->wait_count; n++) {
        const rcvi_port *port = &s->ports[s->waits[n]];
        int64_t counter = counter_of(t->r->p, port, x.iteration);
        if (!is_flagged(t->r->p, port) || !is_awaited(port, x.iteration)) continue;
        for (int m = 0; m < MEMORIES && counter != RCVI_NONE; m++)
            t->faults += has_memory(t, x, number, m) && t->words[m][port->channel] != t->r->signalers[counter];
    }
}

static void write_words(block_run *t, execution x, int number) {
    const rcvi_kernel_step *s = &t->r->p->steps[x.step];
    for (int n = 0; n < s->write_count; n++) {
        const rcvi_port *port = &s->ports[s->writes[n]];
        for (int m = 0; m < MEMORIES && is_flagged(t->r->p, port); m++) {
            if (has_memory(t, x, number, m)) t->words[m][port->channel] = writer_of(t->r, x);
        }
    }
}

static void run_step(block_run *t, int block) {
    execution x = t->r->due[t->next[block]];
    int64_t counters[RCVI_MAX_PORTS];
    int count = find_signals(t->r, x, counters);
    read_values(t, x, block % FOLLOWED);
    read_words(t, x, block % FOLLOWED);
    write_words(t, x, block % FOLLOWED);
    for (int m = 0; m < MEMORIES; m++) {
        for (int n = 0; n < t->r->p->steps[x.step].member_count && has_memory(t, x, block % FOLLOWED, m); n++)
            write_member(t->r, x, n, &t->memory[m]);
    }
    for (int n = 0; n < count; n++) {
        if (counters[n] != RCVI_NONE) t->signaled[counters[n]]++;
    }
    advance(t, block);
}

/* All other blocks execute all steps that they can, the last task first; only then the slow one executes a step. */
static bool run_round(block_run *t, int slow) {
    bool moved = false;
    for (int b = t->blocks - 1; b >= 0; b--) {
        for (; b != slow && can_run(t, b); moved = true) run_step(t, b);
    }
    if (moved || !can_run(t, slow)) return moved;
    run_step(t, slow);
    return true;
}

/* Faults are blocks that never finish, and values that are not there yet, or no longer. */
static int run_blocks(const replay *r, int slow, int *const *elements) {
    block_run t = {.r = r, .blocks = r->p->task_count * FOLLOWED};
    assert_true(t.blocks <= MOST_BLOCKS);
    t.signaled = new_table((size_t)r->p->counters, sizeof *t.signaled);
    for (int m = 0; m < MEMORIES; m++) {
        t.memory[m] = (writer_memory){elements[m], slow + 1};
        t.words[m] = new_table((size_t)r->p->channel_count, sizeof **t.words);
    }
    for (int b = 0; b < t.blocks; b++) {
        t.next[b] = -1;
        advance(&t, b);
    }
    while (run_round(&t, slow)) continue;
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
    for (int slow = 0; slow < r->p->task_count * FOLLOWED; slow++) faults += run_blocks(r, slow, elements);
    for (int m = 0; m < MEMORIES; m++) free(elements[m]);
    return faults;
}

/* ---- residency ---- */

/* Chunks of a number of columns, of all parts: a chunk has 64 bfloat16. */
static int64_t chunks_of(const rcvi_persistent *p, int64_t columns) {
    int64_t each = (p->operand == RCVI_F32 ? 32 : 64) * p->depth_splits;
    return (columns + each - 1) / each * p->parts;
}

/* Paired products: those of pipe 0 come first, and no pass belongs to both pipes. */
static int count_pair_faults(const rcvi_persistent *p, const rcvi_task *task) {
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

/* A task executes steps in the order of the program; the groups of both pipes bring every chunk of every pass once, with all parts of a
 * number. */
static int count_task_faults(const replay *r, const rcvi_task *task) {
    enum { MOST = RCVI_MAX_GROUPS * 4 };
    const rcvi_persistent *p = r->p;
    int faults = count_pair_faults(p, task), brought[RCVI_MAX_PASSES][MOST] = {{0}},
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

/* Everything fits: columns in blocks, blocks on the chip, rows in tiles, weights, rings and sums in shared memory. */
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
        faults += task->variant < 0 || task->variant >= p->variant_count;
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
static inline void add_faults(const rcvi_engine *e, const rcvi_persistent *p, unsigned which, int *faults) {
    int64_t steps = e->program->sizes.steps;
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

static inline int count_faults(const rcvi_engine *e, const rcvi_persistent *p, int checker) {
    int faults[CHECKERS] = {0};
    add_faults(e, p, 1u << checker, faults);
    return faults[checker];
}

#endif
