/* The verifier: checks a program before a device runs it. */
#include "program/program.h"

#include <string.h>

typedef struct {
    const rcvi_program *program;
    bool *written; /* [buffers] */
} verifier;

static rcv_status wrong(int step, const char *step_name, const char *buffer, const char *what) {
    return rcvi_fail(RCV_INVALID, "step %d (%s) of the program %s %s", step, step_name, what, buffer);
}

/* The loops around a step: iterations of the innermost and of the one around it. */
typedef struct {
    int64_t inner, outer;
} nest;

static int64_t least(int64_t a) { return a < 0 ? a : 0; }
static int64_t most(int64_t a) { return a > 0 ? a : 0; }

/* The lowest and highest element of a view at one pair of iterations, all slots counted. */
static void reach(const rcvi_access *access, const rcvi_step *step, int64_t start, int64_t rows, int64_t *low,
                  int64_t *high) {
    const rcvi_view *v = access->view;
    int64_t batch = 0;
    if (step->kind == RCVI_STEP_GEMM) {
        int64_t move = v == &step->out ? step->gemm.step_out : v == &step->a ? step->gemm.step_a : step->gemm.step_b;
        batch = (step->gemm.batch - 1) * move;
    }
    int64_t moves[] = {(rows - 1) * v->row, (access->columns - 1) * v->column, batch,
                       v->wrap ? (v->wrap - 1) * v->slot : 0};
    *low = *high = start;
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        *low += least(moves[i]);
        *high += most(moves[i]);
    }
}

/* Is the view inside its buffer at these iterations, if the step is due? */
static bool fits_at(const rcvi_program *program, const rcvi_access *access, const rcvi_step *step, int64_t inner,
                    int64_t outer) {
    int64_t time, span, low, high, rows = access->rows;
    if (!rcvi_step_is_due(program, step, inner, outer, &time, &span)) return true;
    if (access->spans && step->time.timed) rows = rows / step->time.span * span;
    rcvi_view bare = *access->view;
    bare.wrap = 0;
    reach(access, step, rcvi_view_start(&bare, inner, outer, time), rows, &low, &high);
    return low >= 0 && high < program->buffers[access->view->buffer].count;
}

/* The iterations of the innermost loop at which a step is due, given the outer one; false where there are none. */
static bool due_range(const rcvi_program *program, const rcvi_step *step, int64_t outer, int64_t count, int64_t *first,
                      int64_t *last) {
    int64_t time, span;
    *first = 0;
    *last = count - 1;
    if (!step->time.timed || step->time.inner == 0) return rcvi_step_is_due(program, step, 0, outer, &time, &span);
    int64_t start = step->time.base + outer * step->time.outer, steps = program->sizes.steps;
    int64_t move = step->time.inner > 0 ? step->time.inner : -step->time.inner;
    int64_t before = step->time.inner > 0 ? -start : start - steps + 1; /* steps until it is due, and while it is */
    int64_t until = step->time.inner > 0 ? steps - 1 - start : start;
    if (until < 0) return false;
    if (before > 0) *first = (before + move - 1) / move;
    if (until / move < *last) *last = until / move;
    return *first <= *last;
}

/* Is the view inside its buffer whenever the step is due? Addresses are linear in the iterations, so the extremes are at the ends of the due
 * range, in the first two and last two rounds of the outer loop. */
static bool fits(const rcvi_program *program, const rcvi_access *access, const rcvi_step *step, nest around) {
    int64_t low = 0, high = around.outer - 1, first, last;
    while (low <= high && !due_range(program, step, low, around.inner, &first, &last)) low++;
    while (high > low && !due_range(program, step, high, around.inner, &first, &last)) high--;
    int64_t rounds[] = {low, low + 1, high - 1, high};
    for (int i = 0; i < 4; i++) {
        if (rounds[i] < low || rounds[i] > high) continue;
        if (!due_range(program, step, rounds[i], around.inner, &first, &last)) continue;
        if (!fits_at(program, access, step, first, rounds[i]) || !fits_at(program, access, step, last, rounds[i]))
            return false;
    }
    return true;
}

/* In a wavefront a step may read what a later step of the loop writes one round before. Then it is not due in the first round of the
 * outermost loop, whose steps end at `end`. */
static bool is_written_before(const rcvi_program *program, int index, int buffer, nest around, int end) {
    int64_t first, last;
    const rcvi_step *step = &program->steps[index];
    bool nested = around.outer > 1;
    if (!step->time.timed || end < index) return false;
    if (due_range(program, step, 0, nested ? around.inner : 1, &first, &last)) return false;
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    for (int i = index; i <= end; i++) {
        int count = rcvi_step_accesses(&program->steps[i], accesses);
        for (int k = 0; k < count; k++) {
            if (accesses[k].written && accesses[k].view->buffer == buffer) return true;
        }
    }
    return false;
}

/* Does a product read or write it? Then columns must be contiguous, and the leading dimension at least the number of columns. */
static bool is_multiplied(const rcvi_step *step, const rcvi_access *access) {
    bool of_map = step->kind == RCVI_STEP_MAP && access->use == RCVI_USE_OPERAND;
    return of_map || step->kind == RCVI_STEP_GEMM || step->kind == RCVI_STEP_PACK;
}

/* Does the step go through all rows of a batch-major array, in the order of steps? */
static bool takes_batch_major(const rcvi_program *program, const rcvi_step *step, const rcvi_view *view) {
    bool whole = (step->kind == RCVI_STEP_COPY || step->kind == RCVI_STEP_SELECT) && !step->time.timed &&
                 step->rows == program->sizes.steps * program->sizes.batch && view->column == 1;
    return (whole || (step->kind == RCVI_STEP_BOUNDARY && view == &step->a)) && !view->offset && !view->stride &&
           !view->outer && !view->wrap;
}

static rcv_status check_access(verifier *v, int index, const rcvi_access *access, nest around, int loop_end) {
    const rcvi_program *program = v->program;
    const rcvi_step *step = &program->steps[index];
    const char *name = rcvi_step_names[step->kind];
    if (access->view->buffer < 0 || access->view->buffer >= (int)program->buffer_count) {
        return wrong(index, name, "does not exist", "names a buffer that");
    }
    const rcvi_buffer *buffer = &program->buffers[access->view->buffer];
    const rcvi_role_info *role = &rcvi_roles[buffer->role];
    if (access->view->wrap < 0 || access->view->phase < 0)
        return wrong(index, name, buffer->name, "has no such slot of");
    if (access->rows < 1 || access->columns < 1) return wrong(index, name, buffer->name, "has an empty view of");
    bool repeats =
        step->kind == RCVI_STEP_MAP && program->machine.max_sum_columns > 0; /* one number for each row, stored once */
    bool multiplied = is_multiplied(step, access);
    bool unit =
        access->view->column == 1 || (access->view->column == 0 && !multiplied && (!access->written || repeats));
    if (!unit) return wrong(index, name, buffer->name, "needs contiguous columns of");
    if (!fits(program, access, step, around)) return wrong(index, name, buffer->name, "reaches outside");
    if (access->written && buffer->kept && (size_t)index >= program->forward_count)
        return wrong(index, name, buffer->name, "of the backward pass writes to the reserve:");
    if (access->written && !role->written) return wrong(index, name, buffer->name, "writes the caller's");
    if (access->written && (access->view->row == 0 && access->rows > 1))
        return wrong(index, name, buffer->name, "writes rows twice in");
    if (multiplied && access->rows > 1 && access->view->row < access->columns)
        return wrong(index, name, buffer->name, "needs rows that lie apart of");
    if (access->read && role->optional && step->kind != RCVI_STEP_COPY && buffer->role != RCVI_DPARAMETERS &&
        !(access->written && access->read)) {
        return wrong(index, name, buffer->name, "may copy only, but computes with");
    }
    if (access->use == RCVI_USE_OTHER && buffer->element == RCVI_ACTIVATION &&
        !rcvi_program_rounds_sum(program, step, access))
        return wrong(index, name, buffer->name, "needs more than activations hold in");
    if (buffer->is_batch_major && step->kind != RCVI_STEP_VENDOR && !takes_batch_major(program, step, access->view))
        return wrong(index, name, buffer->name, "goes through time in the batch-major");
    bool given = !role->written || (buffer->role == RCVI_DPARAMETERS);
    if (access->read && !given && !v->written[access->view->buffer] &&
        !is_written_before(program, index, access->view->buffer, around, loop_end))
        return wrong(index, name, buffer->name, "reads before it is written");
    return RCV_OK;
}

/* Activations pass here as reals; check_access refuses uses that need more. */
static bool holds(const rcvi_buffer *buffer, rcvi_element expected) {
    return buffer->element == expected || (expected == RCVI_REAL && buffer->element == RCVI_ACTIVATION);
}

/* Does the step convert what it reads and writes? */
static bool converts(const rcvi_step *step) {
    return step->kind == RCVI_STEP_COPY || step->kind == RCVI_STEP_SELECT || step->kind == RCVI_STEP_FILL;
}

static rcv_status check_elements(const verifier *v, int index) {
    const rcvi_step *step = &v->program->steps[index];
    const rcvi_view *views[] = {&step->out, &step->a, &step->b, &step->mask};
    bool mask_step = step->kind == RCVI_STEP_LIVE || step->kind == RCVI_STEP_BOUNDARY;
    if (step->kind == RCVI_STEP_LOOP || step->kind == RCVI_STEP_MAP || step->kind == RCVI_STEP_VENDOR) return RCV_OK;
    for (int i = 0; i < 4; i++) {
        if (views[i]->buffer == RCVI_NONE) continue;
        const rcvi_buffer *buffer = &v->program->buffers[views[i]->buffer];
        bool expects_byte = i == 3 || (mask_step && i == 0) || (step->kind == RCVI_STEP_BOUNDARY && i == 1);
        bool expects_index = (step->kind == RCVI_STEP_LIVE && i == 1) || (step->kind == RCVI_STEP_BOUNDARY && i == 2);
        bool expects_packed = step->kind == RCVI_STEP_PACK && i == 0;
        rcvi_element expected = expects_byte     ? RCVI_BYTE
                                : expects_index  ? RCVI_INDEX
                                : expects_packed ? RCVI_PACKED
                                                 : RCVI_REAL;
        bool declared = expected == RCVI_REAL && buffer->element >= RCVI_AS_FLOAT32 && converts(step);
        if (!holds(buffer, expected) && !declared)
            return wrong(index, rcvi_step_names[step->kind], buffer->name, "expects another element type in");
    }
    return RCV_OK;
}

static bool is_element(const rcvi_program *program, const rcvi_view *view, rcvi_element element) {
    return view->buffer < 0 || view->buffer >= (int)program->buffer_count ||
           holds(&program->buffers[view->buffer], element);
}

static rcv_status check_products(const rcvi_program *program, int index, const rcvi_step *step) {
    const char *name = rcvi_step_names[step->kind];
    const rcvi_map *map = step->map;
    if (map->product_count > RCVI_MAX_PRODUCTS) return wrong(index, name, "products", "has too many");
    for (int p = 0; p < map->product_count; p++) {
        const rcvi_product *product = &map->products[p];
        if (product->term_count < 1 || product->term_count > RCVI_MAX_TERMS)
            return wrong(index, name, "too many or none", "sums products of terms");
        if (product->out != RCVI_NONE && (product->out < 0 || product->out >= map->operand_count))
            return wrong(index, name, "it does not have", "stores to a view");
        for (int i = 0; i < product->term_count; i++) {
            const rcvi_view *b = &product->terms[i].b;
            bool plain = product->terms[i].plain;
            if (b->buffer == RCVI_NONE || product->terms[i].a.buffer == RCVI_NONE)
                return wrong(index, name, "no buffer", "multiplies what lies in");
            if (!is_element(program, b, plain ? RCVI_REAL : RCVI_PACKED) ||
                !is_element(program, &product->terms[i].a, RCVI_REAL))
                return wrong(index, name, "a product", "expects another element type in");
            if (plain) continue;
            int64_t panel = program->machine.panel, group = program->machine.group;
            int64_t columns = (step->columns + panel - 1) / panel * panel;
            int64_t depth = (product->terms[i].depth + group - 1) / group * group;
            if (b->row != columns * depth) return wrong(index, name, "a packed matrix", "has the wrong extent of");
        }
    }
    return RCV_OK;
}

static rcv_status check_operand(int index, const char *name, const rcvi_map *map, const rcvi_instruction *instruction,
                                int a, int before) {
    int source = instruction->source[a];
    int count = instruction->from[a] == RCVI_FROM_REGISTER  ? before
                : instruction->from[a] == RCVI_FROM_VIEW    ? map->operand_count
                : instruction->from[a] == RCVI_FROM_PRODUCT ? map->product_count
                                                            : source + 1;
    if (instruction->from[a] != RCVI_FROM_NUMBER && (source < 0 || source >= count))
        return wrong(index, name, "it has not computed", "uses a value");
    return RCV_OK;
}

static rcv_status check_map(const rcvi_program *program, int index, const rcvi_step *step) {
    const char *name = rcvi_step_names[step->kind];
    const rcvi_map *map = step->map;
    int count = map->instruction_count;
    if (map->operand_count > RCVI_MAX_OPERANDS || count + map->product_count < 1 ||
        count > rcvi_most_instructions(&program->machine)) {
        return wrong(index, name, "operands or instructions", "has too many");
    }
    if (count && map->instructions[count - 1].out == RCVI_NONE)
        return wrong(index, name, "its last value", "does not store");
    RCVI_TRY(check_products(program, index, step));
    for (int i = 0; i < map->store_count; i++) {
        const rcvi_map_store *store = &map->stores[i];
        if (store->out < 0 || store->out >= map->operand_count || store->source < 0 ||
            store->source >= (store->product ? map->product_count : count))
            return wrong(index, name, "it does not have", "stores a value or to a view");
    }
    for (int i = 0; i < map->operand_count; i++) {
        if (map->operands[i].buffer == RCVI_NONE) return wrong(index, name, "no buffer", "has an operand in");
        if (!is_element(program, &map->operands[i], RCVI_REAL))
            return wrong(index, name, "an operand", "expects another element type in");
    }
    for (int k = 0; k < count; k++) {
        const rcvi_instruction *instruction = &map->instructions[k];
        bool sums = instruction->operation == RCVI_SUM && step->columns <= program->machine.max_sum_columns &&
                    !map->product_count;
        if (!rcvi_operations[instruction->operation].elementwise && !sums)
            return wrong(index, name, "element by element", "holds an operation that is not");
        if (instruction->out != RCVI_NONE && (instruction->out < 0 || instruction->out >= map->operand_count))
            return wrong(index, name, "it does not have", "stores to a view");
        for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++)
            RCVI_TRY(check_operand(index, name, map, instruction, a, k));
    }
    return RCV_OK;
}

/* A loop must end inside its pass and, if it is in another loop, inside that one. */
static rcv_status check_loop(const rcvi_program *program, int index, const int *ends, int depth) {
    const rcvi_step *step = &program->steps[index];
    int end = index + step->loop.body;
    bool crosses = end >= (int)program->step_count || (depth == 1 && end > ends[0]) ||
                   ((size_t)index < program->forward_count && (size_t)end >= program->forward_count);
    if (depth > 1) return wrong(index, "loop", "two others", "lies inside");
    if (step->loop.body < 1 || step->loop.count < 1 || crosses)
        return wrong(index, "loop", "of the program", "has a body outside");
    return RCV_OK;
}

static rcv_status check_steps(verifier *v) {
    const rcvi_program *program = v->program;
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int ends[2] = {-1, -1};
    int64_t counts[2] = {1, 1};
    for (int i = 0; i < (int)program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        int depth = (i <= ends[0]) + (i <= ends[1]);
        if (step->kind == RCVI_STEP_LOOP) {
            RCVI_TRY(check_loop(program, i, ends, depth));
            ends[depth] = i + step->loop.body;
            counts[depth] = step->loop.count;
            continue;
        }
        /* in the outer loop but not in the inner one, `stride` goes with the outer loop's iterations */
        nest around = {depth ? counts[depth - 1] : 1, depth == 2 ? counts[0] : 1};
        if (step->kind == RCVI_STEP_MAP) RCVI_TRY(check_map(program, i, step));
        if (step->kind == RCVI_STEP_GEMM && step->gemm.start && (step->accumulate || step->gemm.batch > 1))
            return wrong(i, rcvi_step_names[step->kind], "what is there, or are several",
                         "starts sums that go on from");
        int64_t period = step->kind == RCVI_STEP_DROPOUT ? step->dropout.period : 0;
        if (period < 0 || (period > 0 && step->rows % period))
            return wrong(i, rcvi_step_names[step->kind], "of its rows", "repeats its mask after what is no part");
        rcv_status status = check_elements(v, i);
        int count = rcvi_step_accesses(step, accesses);
        for (int k = 0; !status && k < count; k++) status = check_access(v, i, &accesses[k], around, ends[0]);
        if (status) return status;
        for (int k = 0; k < count; k++) {
            if (accesses[k].written) v->written[accesses[k].view->buffer] = true;
        }
    }
    return RCV_OK;
}

rcv_status rcvi_program_verify(const rcvi_program *program) {
    verifier v = {program, rcvi_new(program->pool.context, program->buffer_count, sizeof(bool))};
    if (!v.written) return RCV_NO_MEMORY;
    rcv_status status = check_steps(&v);
    if (!status) status = rcvi_program_check_arena(program);
    rcvi_free(program->pool.context, v.written);
    return status;
}
