/* The cost model of the CPU. It walks the steps of a program. A step takes its arithmetic at the machine's rate or its bytes at the bandwidth,
 * the slower of the two, and a constant; threads share that, and a barrier follows. The rates are assumptions about one core, in the table
 * below. */
#include "plan/cost.h"

#include <string.h>

typedef struct {
    const char *kernels;
    double real, bfloat16; /* operations a second in products of float32 (float64: half of it) and of bfloat16 */
    double pointwise;      /* float32 elements a second through a simple operation in cache */
} rates;

static const rates known[] = {
    {"portable", 15e9, 10e9, 3e9}, {"neon", 60e9, 40e9, 8e9},     {"neon-bf16", 60e9, 180e9, 8e9},
    {"avx2", 75e9, 55e9, 10e9},    {"avx512", 130e9, 90e9, 15e9}, {"amx", 130e9, 700e9, 15e9},
};

static const double in_cache = 50e9, in_memory = 10e9; /* bytes a second of one thread */
static const double packing = 3e9;                     /* bytes a second */
static const double reference = 0.13;                  /* of the rate: products of naive, without packing */
static const double packed = 0.85, by_blas = 0.75, by_vendor = 0.7;
static const double step_seconds = 40e-9, instruction_seconds = 15e-9, barrier_seconds = 700e-9;
static const double transposed = 1.2;        /* times a product whose other operand is packed at every step */
static const double vendor_seconds = 1.5e-6; /* of a step of a layer, whatever its size */
static const double transcendental = 8;      /* simple operations that take as long */

typedef struct {
    const rcvi_program *program;
    rates rate;
    double element;       /* bytes of a real */
    double packed_bytes;  /* of a packed element */
    bool plain;           /* no rung but threads: the reference product */
    bool bfloat16;        /* products are */
    double passes;        /* that share a barrier: all layers and directions in a wavefront, else 1 */
    double loop_weights;  /* bytes a second of a thread for these */
    int64_t inner, outer; /* iterations of the loops around */
} model;

static double least(double a, double b) { return a < b ? a : b; }
static double most(double a, double b) { return a > b ? a : b; }

static double product_rate(const model *m) {
    if (m->bfloat16) return m->rate.bfloat16;
    return m->element == 8 ? m->rate.real / 2 : m->rate.real;
}

/* Threads that find work in a step of this many rows and columns. */
static double sharers(const model *m, double rows, double columns) {
    double threads = (double)m->program->rungs.threads;
    double grain = m->program->machine.grain > 0 ? (double)m->program->machine.grain : 1;
    double parts = m->program->rungs.split_rows ? rows : columns / grain;
    return most(1, least(threads, parts));
}

/* Short blocks of rows leave the multipliers waiting. */
static double row_efficiency(double rows) { return least(1, 0.3 + 0.7 * rows / 8); }

/* Bytes of an element of a view; of a real, where there is none. */
static double bytes_of(const model *m, const rcvi_view *view) {
    if (view->buffer == RCVI_NONE) return m->element;
    return (double)rcvi_element_bytes(m->program, m->program->buffers[view->buffer].element);
}

/* Seconds of one product with b[depth, columns], `bytes` an element of it; with `ready`, b is packed. */
static double product(const model *m, double rows, double columns, double depth, double bytes, bool ready) {
    double threads = sharers(m, rows, columns), operations = 2 * rows * columns * depth;
    double share = m->plain ? reference : m->program->rungs.blas && !ready ? by_blas : packed;
    double matrix = columns * depth * bytes;
    double bandwidth = m->inner > 1 ? m->loop_weights : in_memory;
    double seconds = most(operations / (product_rate(m) * share * row_efficiency(rows)), matrix / bandwidth) / threads;
    if (!ready && !m->plain && !m->program->rungs.blas) seconds += matrix / packing / threads;
    return seconds;
}

static double operation_cost(rcvi_operation operation) {
    switch (operation) {
    case RCVI_SIGMOID:
    case RCVI_TANH:
    case RCVI_EXP:
    case RCVI_LOG: return transcendental;
    case RCVI_SOFTPLUS: return 2 * transcendental;
    case RCVI_DIVIDE:
    case RCVI_SQRT: return 3;
    default: return 1;
    }
}

static double map(const model *m, const rcvi_step *step, double rows) {
    double columns = (double)step->columns, elements = rows * columns;
    double threads = sharers(m, rows, columns), operations = 0, seconds = 0, bytes = 0;
    for (int p = 0; p < step->map->product_count; p++) {
        const rcvi_product *one = &step->map->products[p];
        for (int i = 0; i < one->term_count; i++)
            seconds += product(m, rows, columns, (double)one->terms[i].depth, m->packed_bytes, true) *
                       (one->terms[i].plain ? transposed : 1);
    }
    for (int i = 0; i < step->map->instruction_count; i++)
        operations += operation_cost(step->map->instructions[i].operation);
    double arithmetic = operations * elements / m->rate.pointwise * m->element / 4;
    for (int i = 0; i < step->map->operand_count; i++) bytes += bytes_of(m, &step->map->operands[i]);
    return seconds + most(arithmetic, elements * bytes / in_cache) / threads +
           step->map->instruction_count * instruction_seconds;
}

/* Arithmetic of a whole pass, from the number of parameters. */
static double vendor(const model *m, bool backward) {
    const rcv_plan_options *o = &m->program->options;
    double operations = 2.0 * (double)m->program->net->parameter_elements * (double)o->steps * (double)o->batch;
    double threads = (double)m->program->rungs.threads;
    double weights = (double)m->program->net->parameter_elements * m->packed_bytes * (double)o->steps;
    double seconds =
        most(operations / (product_rate(m) * by_vendor * row_efficiency((double)o->batch)), weights / in_memory / 4);
    double calls = (double)(m->program->net->options.layers * m->program->net->directions) * (double)o->steps;
    return (backward ? 2 : 1) * (seconds / threads + calls * vendor_seconds);
}

static double execution(const model *m, const rcvi_step *step) {
    double rows = (double)step->rows, columns = (double)step->columns, moved = rows * columns * m->element;
    double both = rows * columns * (bytes_of(m, &step->a) + bytes_of(m, &step->out)); /* read and written */
    switch (step->kind) {
    case RCVI_STEP_GEMM:
        return (double)step->gemm.batch *
               product(m, rows, columns, (double)step->gemm.depth, bytes_of(m, &step->b), false);
    case RCVI_STEP_MAP: return map(m, step, rows);
    case RCVI_STEP_PACK: return moved / packing / (double)m->program->rungs.threads;
    case RCVI_STEP_VENDOR: return vendor(m, step->vendor.backward);
    case RCVI_STEP_COMMUNICATE: return 0;
    case RCVI_STEP_DROPOUT: return 2 * both / in_cache / sharers(m, rows, columns);
    default: return both / in_cache / sharers(m, rows, columns);
    }
}

/* All executions of a step in the loops around it. */
static double step_cost(const model *m, const rcvi_step *step) {
    bool skipped = step->when == RCVI_WHEN_PARAMETERS_CHANGED && !m->program->options.training;
    if (skipped) return 0;
    double count = (double)m->inner * (double)m->outer;
    if (step->time.timed) count = least(count, (double)m->program->options.steps / (double)step->time.span);
    double barrier = 0;
    if (m->program->rungs.threads > 1 && step->kind != RCVI_STEP_VENDOR) {
        bool no_barrier =
            m->program->rungs.split_rows && m->inner > 1; /* each thread takes its rows through the loop */
        barrier = no_barrier ? 0 : barrier_seconds / m->passes;
    }
    return count * (execution(m, step) + step_seconds + barrier);
}

/* Matrices that the body of an innermost loop multiplies with, and where they come from. */
static void find_weights(model *m, const rcvi_step *body, int count) {
    double bytes = 0;
    for (const rcvi_step *step = body; step < body + count; step++) {
        if (step->kind == RCVI_STEP_GEMM && !step->gemm.transpose_a)
            bytes += (double)step->columns * (double)step->gemm.depth * m->element * (double)step->gemm.batch;
        if (step->kind != RCVI_STEP_MAP) continue;
        for (int p = 0; p < step->map->product_count; p++) {
            const rcvi_product *one = &step->map->products[p];
            for (int i = 0; i < one->term_count; i++)
                bytes += (double)step->columns * (double)one->terms[i].depth * m->packed_bytes;
        }
    }
    double threads = (double)m->program->rungs.threads;
    double own = m->program->rungs.split_rows ? bytes : bytes / threads;
    m->loop_weights = own <= 0.8 * (double)m->program->machine.cache ? in_cache : in_memory;
}

/* Steps first .. end - 1, at most two loops deep. */
static double walk(model *m, int first, int end) {
    const rcvi_step *steps = m->program->steps;
    double seconds = 0;
    for (int i = first; i < end; i++) {
        if (steps[i].kind != RCVI_STEP_LOOP) {
            seconds += step_cost(m, &steps[i]);
            continue;
        }
        model inside = *m;
        inside.outer *= inside.inner;
        inside.inner = steps[i].loop.count;
        find_weights(&inside, &steps[i + 1], steps[i].loop.body);
        seconds += walk(&inside, i + 1, i + 1 + steps[i].loop.body);
        i += steps[i].loop.body;
    }
    return seconds;
}

double rcvi_estimate(const rcvi_program *program) {
    if (program->machine.gpu) return rcvi_estimate_gpu(program);
    const rcvi_rungs *g = &program->rungs;
    model m = {.program = program, .rate = known[0], .inner = 1, .outer = 1, .passes = 1, .loop_weights = in_memory};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (program->machine.kernels && !strcmp(known[i].kernels, program->machine.kernels)) m.rate = known[i];
    }
    m.element = (double)rcvi_element_bytes(program, RCVI_REAL);
    m.packed_bytes = (double)rcvi_element_bytes(program, RCVI_PACKED);
    m.bfloat16 = program->options.dtype == RCV_BFLOAT16;
    m.plain = rcvi_rungs_are_naive(g);
    if (g->wavefront) m.passes = (double)(program->net->options.layers * program->net->directions);
    double seconds = walk(&m, 0, (int)program->forward_count) + step_seconds;
    if (g->forward_wave) m.passes = 1;
    return seconds + walk(&m, (int)program->forward_count, (int)program->step_count);
}
