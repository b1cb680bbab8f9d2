/* The text of a task: its steps, written by the generator of maps (codegen/source.c), and struct Task with the task's sizes and tables.
 *
 * Tables are constexpr functions, so that the compiler knows their values where it knows their arguments. kernel/maps.cuh lists them. */
#include "device/cuda/persistent/internal.h"

typedef struct {
    const rcvi_engine *engine;
    const rcvi_persistent *p;
    rcvi_text text;
} writer;

/* ---- tables ---- */

typedef int (*table)(const writer *w, const rcvi_task *task, int x, int y);

static void add_table(writer *w, const rcvi_task *task, const char *name, int count_x, int count_y, table value) {
    rcvi_text_add(&w->text, "    static INLINE constexpr int %s(int x%s) {\n        return ", name,
                  count_y ? ", int y" : "");
    for (int x = 0; x < count_x; x++) {
        for (int y = 0; y < (count_y ? count_y : 1); y++) {
            if (count_y)
                rcvi_text_add(&w->text, "x == %d && y == %d ? %d : ", x, y, value(w, task, x, y));
            else
                rcvi_text_add(&w->text, "x == %d ? %d : ", x, value(w, task, x, y));
        }
    }
    rcvi_text_add(&w->text, "0;\n    }\n");
}

static int chunks_of(const writer *w, const rcvi_task *task, int pipe, int y) {
    (void)w, (void)y;
    return task->chunks[pipe];
}
static int in_registers_of(const writer *w, const rcvi_task *task, int pipe, int y) {
    (void)w, (void)y;
    return task->in_registers[pipe];
}
static int in_shared_of(const writer *w, const rcvi_task *task, int pipe, int y) {
    (void)w, (void)y;
    return task->in_shared[pipe];
}
static int groups_of(const writer *w, const rcvi_task *task, int pipe, int y) {
    (void)w, (void)y;
    return task->group_count[pipe];
}
static int ring_of(const writer *w, const rcvi_task *task, int pipe, int y) {
    (void)w, (void)y;
    return task->ring[pipe];
}
static int group_pass_of(const writer *w, const rcvi_task *task, int pipe, int n) {
    (void)w;
    return task->groups[pipe][n].pass;
}
static int group_first_of(const writer *w, const rcvi_task *task, int pipe, int n) {
    (void)w;
    return task->groups[pipe][n].first;
}
static int group_chunks_of(const writer *w, const rcvi_task *task, int pipe, int n) {
    (void)w;
    return task->groups[pipe][n].count;
}
/* Chunks of the pipe in the groups before this one. */
static int group_before_of(const writer *w, const rcvi_task *task, int pipe, int n) {
    return n ? group_before_of(w, task, pipe, n - 1) + group_chunks_of(w, task, pipe, n - 1) : 0;
}
static int depth_of(const writer *w, const rcvi_task *task, int pass, int y) {
    (void)y;
    return (int)w->p->steps[task->product_step].passes[pass].depth;
}
/* The argument of a port; the next one is its counter. */
static int argument_of(const rcvi_kernel_step *s, int port) { return s->view_count + s->rounded_count + 2 * port; }

static int channel_of(const writer *w, const rcvi_task *task, int k, int pass) {
    const rcvi_kernel_step *s = &w->p->steps[task->steps[k]];
    return s->pass_count && s->operand_ports[pass] != RCVI_NONE ? argument_of(s, s->operand_ports[pass]) : RCVI_NONE;
}
static int pass_chunks_of(const writer *w, const rcvi_task *task, int pass, int y) {
    (void)y;
    return rcvi_persistent_chunks(w->p, w->p->steps[task->product_step].passes[pass].depth);
}
/* Finds the argument of the counter number n that the step's map waits for. Answers how many counters there are. */
static int find_wait(const writer *w, const rcvi_task *task, int k, int n, int *found) {
    const rcvi_kernel_step *s = &w->p->steps[task->steps[k]];
    int count = 0;
    *found = 0;
    for (int v = 0, remote = 0; v < s->view_count; v++) {
        if (!s->is_remote[v]) continue;
        if (!s->is_flagged[v] && count++ == n) *found = argument_of(s, s->waits[remote]) + 1;
        remote++;
    }
    return count;
}
static int waits_of(const writer *w, const rcvi_task *task, int k, int y) {
    int argument;
    (void)y;
    return find_wait(w, task, k, 0, &argument);
}
static int wait_argument_of(const writer *w, const rcvi_task *task, int k, int n) {
    int argument;
    find_wait(w, task, k, n, &argument);
    return argument;
}
static int signals_of(const writer *w, const rcvi_task *task, int k, int y) {
    (void)y;
    return w->p->cluster ? 0 : w->p->steps[task->steps[k]].signal_count;
}
static int signal_argument_of(const writer *w, const rcvi_task *task, int k, int n) {
    const rcvi_kernel_step *s = &w->p->steps[task->steps[k]];
    return n < s->signal_count ? argument_of(s, s->signals[n]) + 1 : 0;
}
static int arguments_of(const writer *w, const rcvi_task *task, int k, int y) {
    (void)y;
    return rcvi_kernel_step_arguments(&w->p->steps[task->steps[k]]);
}
static int views_of(const writer *w, const rcvi_task *task, int k, int y) {
    const rcvi_kernel_step *s = &w->p->steps[task->steps[k]];
    (void)y;
    return s->view_count + s->rounded_count;
}
static int first_argument_of(const writer *w, const rcvi_task *task, int k, int y) {
    (void)y;
    return k ? first_argument_of(w, task, k - 1, 0) + arguments_of(w, task, k - 1, 0) : 0;
}
static int row_argument_of(const writer *w, const rcvi_task *task, int k, int y) {
    const rcvi_kernel_step *s = &w->p->steps[task->steps[k]];
    (void)y;
    return s->has_row_arguments ? rcvi_kernel_step_row_argument(s) : RCVI_NONE;
}
static int leaves_of(const writer *w, const rcvi_task *task, int k, int y) {
    (void)y;
    return w->p->steps[task->steps[k]].skips_ended;
}
/* Pipe of a product: of paired products; RCVI_NONE: both pipes have a part of its depth. And its row among those of a unit. */
static int product_pipe_of(const writer *w, const rcvi_task *task, int product, int y) {
    int second_product = w->p->steps[task->product_step].second_product;
    (void)y;
    return second_product ? product >= second_product : RCVI_NONE;
}
static int product_row_of(const writer *w, const rcvi_task *task, int product, int y) {
    int second_product = w->p->steps[task->product_step].second_product;
    (void)y;
    return product < second_product || !second_product ? product : product - second_product;
}

/* View of the weights of a pass in a row of a unit, or RCVI_NONE. */
static int right_of(const writer *w, const rcvi_task *task, int pass, int row) {
    const rcvi_kernel_step *product_step = &w->p->steps[task->product_step];
    for (int i = 0; i < product_step->shape.map->product_count; i++) {
        int view = product_step->passes[pass].b[i];
        if (product_row_of(w, task, i, 0) == row && view != RCVI_NONE) return view;
    }
    return RCVI_NONE;
}

static int right_any_of(const writer *w, const rcvi_task *task, int pass, int y) {
    int product = 0;
    (void)y;
    while (right_of(w, task, pass, product) == RCVI_NONE) product++;
    return right_of(w, task, pass, product);
}

/* Do all products of the task start from the same bias row? Then sums begin with it, and maps do not add it. */
static bool is_started(const writer *w, const rcvi_task *task) {
    const rcvi_kernel_step *product_step = &w->p->steps[task->product_step];
    bool some = false;
    for (int k = 0; k < task->step_count && !product_step->second_product; k++) {
        const rcvi_kernel_step *s = &w->p->steps[task->steps[k]];
        for (int i = 0; s->pass_count && i < task->products; i++) {
            const rcvi_view *a = &s->shape.map->products[i].start, *b = &product_step->shape.map->products[i].start;
            if (!rcvi_view_equal(a, b) ||
                (a->buffer != RCVI_NONE && (a->row || a->column != 1 || a->stride || a->wrap)))
                return false;
            some |= a->buffer != RCVI_NONE;
        }
    }
    return some;
}

static int start_of(const writer *w, const rcvi_task *task, int product, int y) {
    const rcvi_map *map = w->p->steps[task->product_step].shape.map;
    (void)y;
    return map->products[product].start.buffer == RCVI_NONE ? RCVI_NONE : rcvi_map_start_view(map, product);
}

/* The pass of chunk y of a pipe, or its number among the chunks of that pass. */
static int find_chunk(const rcvi_task *task, int pipe, int y, bool pass) {
    for (int n = 0; n < task->group_count[pipe]; n++) {
        const rcvi_chunk_group *g = &task->groups[pipe][n];
        if (y < g->count) return pass ? g->pass : g->first + y;
        y -= g->count;
    }
    return 0;
}
static int chunk_pass_of(const writer *w, const rcvi_task *task, int pipe, int y) {
    (void)w;
    return find_chunk(task, pipe, y, true);
}
static int chunk_first_of(const writer *w, const rcvi_task *task, int pipe, int y) {
    (void)w;
    return find_chunk(task, pipe, y, false);
}

static void add_task(writer *w, const rcvi_task *task) {
    const rcvi_kernel_step *product_step = &w->p->steps[task->product_step];
    int products = product_step->shape.map->product_count;
    int first = 0, most = task->chunks[0] > task->chunks[1] ? task->chunks[0] : task->chunks[1];
    int groups = task->group_count[0] < task->group_count[1] ? task->group_count[0] : task->group_count[1];
    while (task->steps[first] != task->product_step) first++;
    rcvi_text_add(
        &w->text,
        "struct Task {\n    enum { STEPS = %d, PRODUCTS = %d, UNIT_ROWS = %d, UNITS = %d, BLOCKS = %d, COLUMNS = %lld, "
        "PRODUCT_STEP = %d, IS_STARTED = %d };\n",
        task->step_count, products, task->products, task->units, task->blocks, (long long)task->columns, first,
        is_started(w, task));
    if (w->p->cluster)
        rcvi_text_add(&w->text, "    enum { SENDER = %d, AHEAD = %d, FROM_MEMORY = %d, ROW_BYTES = %lld };\n",
                      task->sender, task->ahead, task->from_memory, (long long)rcvi_cluster_row_bytes(w->p, task));
    add_table(w, task, "product_pipe", products, 0, product_pipe_of);
    add_table(w, task, "product_row", products, 0, product_row_of);
    add_table(w, task, "start", task->products, 0, start_of);
    add_table(w, task, "right_any", product_step->pass_count, 0, right_any_of);
    add_table(w, task, "CHUNKS", RCVI_PIPES, 0, chunks_of);
    add_table(w, task, "IN_REGISTERS", RCVI_PIPES, 0, in_registers_of);
    add_table(w, task, "IN_SHARED", RCVI_PIPES, 0, in_shared_of);
    add_table(w, task, "GROUPS", RCVI_PIPES, 0, groups_of);
    add_table(w, task, "RING", RCVI_PIPES, 0, ring_of);
    groups = task->group_count[0] + task->group_count[1] - groups;
    add_table(w, task, "group_pass", RCVI_PIPES, groups, group_pass_of);
    add_table(w, task, "group_first", RCVI_PIPES, groups, group_first_of);
    add_table(w, task, "group_chunks", RCVI_PIPES, groups, group_chunks_of);
    add_table(w, task, "group_before", RCVI_PIPES, groups, group_before_of);
    add_table(w, task, "depth", product_step->pass_count, 0, depth_of);
    add_table(w, task, "channel", task->step_count, product_step->pass_count, channel_of);
    add_table(w, task, "pass_chunks", product_step->pass_count, 0, pass_chunks_of);
    int waits = 1, signals = 1;
    for (int k = 0; k < task->step_count; k++) {
        const rcvi_kernel_step *s = &w->p->steps[task->steps[k]];
        if (s->wait_count > waits) waits = s->wait_count;
        if (s->signal_count > signals) signals = s->signal_count;
    }
    add_table(w, task, "waits", task->step_count, 0, waits_of);
    add_table(w, task, "wait_argument", task->step_count, waits, wait_argument_of);
    add_table(w, task, "signals", task->step_count, 0, signals_of);
    add_table(w, task, "signal_argument", task->step_count, signals, signal_argument_of);
    add_table(w, task, "arguments", task->step_count, 0, arguments_of);
    add_table(w, task, "views", task->step_count, 0, views_of);
    add_table(w, task, "first_argument", task->step_count, 0, first_argument_of);
    add_table(w, task, "row_argument", task->step_count, 0, row_argument_of);
    add_table(w, task, "skips_ended", task->step_count, 0, leaves_of);
    add_table(w, task, "right", product_step->pass_count, task->products, right_of);
    add_table(w, task, "chunk_pass", RCVI_PIPES, most, chunk_pass_of);
    add_table(w, task, "chunk_first", RCVI_PIPES, most, chunk_first_of);
    rcvi_text_add(&w->text, "    using ProductStep = Step%d;\n", first);
    rcvi_text_add(&w->text, "    template <class F> static INLINE void each(F &f) {\n");
    for (int k = 0; k < task->step_count; k++) rcvi_text_add(&w->text, "        f.template step<Step%d>(%d);\n", k, k);
    rcvi_text_add(&w->text, "    }\n};\n");
}

static rcv_status write_steps(rcv_context *context, writer *w, const rcvi_task *task) {
    rcv_status status = RCV_OK;
    for (int k = 0; k < task->step_count && !status; k++) {
        const rcvi_kernel_step *s = &w->p->steps[task->steps[k]];
        rcvi_map_shape shape = s->shape;
        rcvi_map_link writes[RCVI_MAX_PORTS];
        int flags[RCVI_MAX_VIEWS], carried[RCVI_MAX_VIEWS];
        rcvi_map_links links = {.is_remote = s->is_remote,
                                .is_flagged_only = s->is_flagged_only,
                                .flags = flags,
                                .carried = carried,
                                .is_exported = s->is_exported,
                                .is_short = s->is_short,
                                .is_in_caller_order = s->is_in_caller_order,
                                .writes = writes,
                                .signal_count = w->p->cluster ? 0 : s->signal_count,
                                .wait_count = s->wait_count,
                                .row_argument = s->has_row_arguments ? rcvi_kernel_step_row_argument(s) : RCVI_NONE,
                                .operand = w->p->operand,
                                .started = is_started(w, task),
                                .row_threads = s->by_rows ? rcvi_persistent_row_threads(w->p, task->columns) : 0,
                                .columns = task->columns};
        char *text = NULL;
        for (int n = 0; n < s->write_count; n++) {
            if (!s->write_operand[n] && !s->write_flagged[n]) continue;
            int chunks = s->write_operand[n] ? rcvi_persistent_chunks(w->p, task->columns) : 0;
            writes[links.write_count++] = (rcvi_map_link){s->write_views[n], argument_of(s, s->writes[n]), chunks};
        }
        for (int v = 0, remote = 0; v < s->view_count; v++) {
            flags[v] = s->is_flagged[v] ? argument_of(s, s->waits[remote]) : RCVI_NONE;
            remote += s->is_remote[v];
        }
        for (int v = 0; v < shape.map->operand_count; v++)
            carried[v] = rcvi_persistent_carried(w->engine, w->p, task->steps[k], v);
        shape.vector = w->p->vector;
        shape.row_threads = links.row_threads;
        status = rcvi_map_step_text(context, &shape, &links, k, &text);
        if (!status) rcvi_text_add(&w->text, "%s", text);
        rcvi_free(context, text);
    }
    return status;
}

rcv_status rcvi_persistent_task_text(rcv_context *context, const rcvi_engine *engine, const rcvi_persistent *p,
                                     rcvi_task *task) {
    writer w = {.engine = engine, .p = p};
    rcvi_text_init(&w.text, context);
    rcv_status status = write_steps(context, &w, task);
    if (!status) add_task(&w, task);
    rcv_status taken = rcvi_text_take(&w.text, &task->text);
    return status ? status : taken;
}
