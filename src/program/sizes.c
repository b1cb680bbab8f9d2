/* The numbers of a program, its sizing, and instances of it: see sizes.h. */
#include "program/sizes.h"

#include <string.h>

/* ---- numbers of a program ---- */

typedef void (*visitor)(void *user, int64_t *at);

static void view_numbers(rcvi_view *view, visitor number, void *user) {
    if (view->buffer == RCVI_NONE) return;
    int64_t *const all[] = {&view->offset, &view->stride, &view->outer, &view->row,
                            &view->column, &view->slot,   &view->phase};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) number(user, all[i]);
}

static void map_numbers(rcvi_map *map, visitor number, void *user) {
    for (int p = 0; p < map->product_count; p++) {
        view_numbers(&map->products[p].start, number, user);
        for (int t = 0; t < map->products[p].term_count; t++) {
            view_numbers(&map->products[p].terms[t].a, number, user);
            view_numbers(&map->products[p].terms[t].b, number, user);
        }
    }
    for (int i = 0; i < map->operand_count; i++) view_numbers(&map->operands[i], number, user);
}

void rcvi_step_numbers(rcvi_step *step, visitor number, void *user) {
    int64_t *const all[] = {&step->rows,       &step->columns,    &step->time.base,
                            &step->time.inner, &step->time.outer, &step->time.span};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) number(user, all[i]);
    view_numbers(&step->out, number, user);
    view_numbers(&step->a, number, user);
    view_numbers(&step->b, number, user);
    view_numbers(&step->mask, number, user);
    if (step->kind == RCVI_STEP_LOOP) number(user, &step->loop.count);
    if (step->kind == RCVI_STEP_GEMM) {
        number(user, &step->gemm.depth);
        number(user, &step->gemm.step_out);
        number(user, &step->gemm.step_a);
        number(user, &step->gemm.step_b);
    }
    if (step->kind == RCVI_STEP_DROPOUT) number(user, &step->dropout.period);
    if (step->kind == RCVI_STEP_MAP) map_numbers(step->map, number, user);
}

void rcvi_program_numbers(rcvi_program *program, visitor number, void *user) {
    for (size_t b = 0; b < program->buffer_count; b++) number(user, &program->buffers[b].count);
    for (size_t i = 0; i < program->step_count; i++) rcvi_step_numbers(&program->steps[i], number, user);
}

static size_t count_numbers(const rcvi_program *program) {
    rcvi_program own = *program; /* its numbers are only counted */
    rcvi_numbers numbers = {.values = NULL};
    rcvi_program_numbers(&own, rcvi_collect_number, &numbers);
    return numbers.count;
}

bool rcvi_program_packs_by_size(const rcvi_program *program, const rcvi_sizing *sizing) {
    size_t first = program->buffer_count,
           found = 0; /* numbers before the step, and those of them that depend on sizes */
    for (size_t i = 0; i < program->step_count; i++) {
        rcvi_step step = program->steps[i]; /* its numbers are only counted */
        rcvi_numbers numbers = {.values = NULL};
        rcvi_step_numbers(&step, rcvi_collect_number, &numbers);
        size_t end = first + numbers.count;
        while (found < sizing->count && sizing->numbers[found].index < first) found++;
        bool depends = found < sizing->count && sizing->numbers[found].index < end;
        if (depends && step.when == RCVI_WHEN_PARAMETERS_CHANGED) return true;
        first = end;
    }
    return false;
}

/* ---- instances ---- */

/* Memory that is counted where `base` is NULL, and handed out otherwise. */
typedef struct {
    char *base;
    size_t used;
} block;

static void *place(block *b, size_t bytes) {
    void *at = b->base ? b->base + b->used : NULL;
    b->used += (bytes + 15) / 16 * 16;
    return at;
}

/* A copy of `count` elements in the block. */
static void *copy_in(block *b, const void *from, size_t count, size_t size) {
    void *to = place(b, count * size);
    if (to && count) memcpy(to, from, count * size);
    return to;
}

static void copy_map(block *b, rcvi_step *step) {
    const rcvi_map *from = step->map;
    rcvi_map *map = copy_in(b, from, 1, sizeof *map);
    rcvi_product *products = copy_in(b, from->products, (size_t)from->product_count, sizeof *products);
    rcvi_view *operands = copy_in(b, from->operands, (size_t)from->operand_count, sizeof *operands);
    if (!map) return;
    map->products = products;
    map->operands = operands;
    step->map = map;
}

static void copy_steps(block *b, const rcvi_program *program, rcvi_step *steps) {
    for (size_t i = 0; i < program->step_count; i++) {
        rcvi_step step = program->steps[i];
        if (step.kind == RCVI_STEP_MAP) copy_map(b, &step);
        if (steps) steps[i] = step;
    }
}

static rcvi_instance *make(block *b, const rcvi_program *program) {
    rcvi_instance *instance = place(b, sizeof *instance);
    rcvi_buffer *buffers = copy_in(b, program->buffers, program->buffer_count, sizeof *buffers);
    rcvi_step *steps = place(b, program->step_count * sizeof *steps);
    copy_steps(b, program, steps);
    if (!instance) return NULL;
    *instance = (rcvi_instance){.program = *program};
    instance->program.buffers = buffers;
    instance->program.steps = steps;
    return instance;
}

size_t rcvi_instance_bytes(const rcvi_program *program) {
    block b = {.base = NULL};
    make(&b, program);
    return b.used;
}

rcvi_instance *rcvi_instance_make(const rcvi_program *program, void *memory) {
    block b = {.base = memory};
    return make(&b, program);
}

/* Finds where the numbers are in an instance; all instances of a program are alike. */
static rcv_status find_offsets(const rcvi_program *program, rcvi_sizing *sizing) {
    rcv_context *context = program->pool.context;
    char *memory = rcvi_new(context, rcvi_instance_bytes(program), 1);
    rcvi_sized_places places = {.sizing = sizing, .at = rcvi_new(context, sizing->count + 1, sizeof *places.at)};
    bool failed = !memory || !places.at;
    if (!failed) rcvi_program_numbers(&rcvi_instance_make(program, memory)->program, rcvi_find_sized_number, &places);
    for (size_t i = 0; !failed && i < sizing->count; i++)
        sizing->numbers[i].offset = (size_t)((char *)places.at[i] - memory);
    rcvi_free(context, places.at);
    rcvi_free(context, memory);
    return failed ? RCV_NO_MEMORY : RCV_OK;
}

void rcvi_instance_resize(rcvi_instance *instance, const rcvi_sizing *sizing, rcvi_sizes sizes) {
    rcvi_program *program = &instance->program;
    for (size_t i = 0; i < sizing->count; i++) {
        const rcvi_sized_number *number = &sizing->numbers[i];
        *(int64_t *)(void *)((char *)instance + number->offset) = rcvi_sized_value(number, sizing->chunks, sizes);
    }
    program->sizes = sizes;
}

/* ---- the sizing of a program ---- */

/* Writes the program at these sizes; false where it has other steps or buffers, or there is no memory. */
static bool write_sample(const rcvi_program *program, rcvi_sizes sizes, void (*write)(rcvi_program *program),
                         rcvi_program *sample) {
    rcvi_program_init(sample, program->net, &program->options, &program->rungs, &program->machine);
    sample->sizes = sizes;
    write(sample);
    rcvi_program_convert(sample);
    rcvi_program_communicate(sample);
    bool same = !sample->failed && sample->step_count == program->step_count &&
                sample->buffer_count == program->buffer_count && sample->forward_count == program->forward_count;
    for (size_t i = 0; same && i < program->step_count; i++)
        same = sample->steps[i].kind == program->steps[i].kind &&
               sample->steps[i].out.buffer == program->steps[i].out.buffer;
    return same;
}

rcv_status rcvi_program_sizing(rcvi_pool *pool, const rcvi_program *program, void (*write)(rcvi_program *program),
                               rcvi_sizing *sizing) {
    rcv_context *context = program->pool.context;
    rcvi_sizes samples[RCVI_MAX_SIZE_SAMPLES];
    int count = rcvi_size_samples(program, samples);
    rcvi_program own = *program; /* its numbers are only read */
    size_t total = count_numbers(program);
    int64_t *values[RCVI_MAX_SIZE_SAMPLES] = {NULL};
    int64_t *memory = rcvi_new(context, total * (size_t)(count + 1), sizeof *memory);
    if (!memory) return RCV_NO_MEMORY;
    rcvi_numbers planned = {.values = memory + (size_t)count * total};
    rcvi_program_numbers(&own, rcvi_collect_number, &planned);
    rcv_status status = RCV_OK;
    for (int s = 0; s < RCVI_MAX_SIZE_SAMPLES; s++) values[s] = memory + (size_t)(s < count ? s : 0) * total;
    for (int s = 0; s < count && !status; s++) {
        rcvi_program sample;
        rcvi_numbers numbers = {.values = values[s]};
        bool same = write_sample(program, samples[s], write, &sample);
        if (sample.failed)
            status = RCV_NO_MEMORY;
        else if (!same || count_numbers(&sample) != total)
            status = rcvi_fail(RCV_UNSUPPORTED, "this plan has other steps at other sizes");
        else
            rcvi_program_numbers(&sample, rcvi_collect_number, &numbers);
        rcvi_program_free(&sample);
    }
    if (!status) status = rcvi_sizing_fit(pool, program, total, values, planned.values, sizing);
    rcvi_free(context, memory);
    return status ? status : find_offsets(program, sizing);
}
