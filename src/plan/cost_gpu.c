/* The cost model of a GPU. A launch costs its latency and its work. A map with products goes along its depth chunk by chunk, and blocks
 * beyond the number of processors wait. A gemm of the library costs its arithmetic, or its bytes. The rates are those of a large GPU. */
#include "plan/cost.h"

static const double in_graph = 1.5e-6, without_graph = 3e-6; /* seconds from launch to launch */
static const double shortest = 2e-6;                         /* seconds of the smallest kernel */
static const double bandwidth = 3e12;                        /* bytes a second */
static const double overlap = 0.6;                           /* of the streams that pay */
static const double block = 64;                              /* rows and columns of a block of a product */
static const double processors = 132;
static const double chunk_bytes = 128;                                                  /* of depth */
static const double chunk_tensor = 0.3e-6, chunk_plain = 0.9e-6, chunk_double = 1.5e-6; /* seconds of one */
static const double library_least = 4e-6;     /* seconds of the smallest product of the library */
static const double vendor_step = 10e-6;      /* seconds of a step of a layer */
static const double persistent_step = 2.3e-6; /* seconds from block to block of a persistent kernel */
static const double cluster_step = 0.9e-6;    /* the same within a cluster */
static const double cluster_bandwidth = 28e9; /* bytes a second that come to a block of a cluster from the others */
static const double clusters = 7; /* of the largest size that are on the chip at once: 16 of 132 processors each */
static const double cache_bandwidth = 5.5e12; /* bytes a second from the cache that all processors share */

typedef struct {
    const rcvi_program *program;
    double rate;       /* operations a second in products */
    double launch;     /* seconds */
    double concurrent; /* steps of a loop that are launched or run at once */
    double count;      /* iterations of the loops around */
} model;

static double most(double a, double b) { return a > b ? a : b; }
static double least(double a, double b) { return a < b ? a : b; }

static double rate_of(rcv_dtype dtype) {
    switch (dtype) {
    case RCV_FLOAT64: return 30e12;
    case RCV_FLOAT32: return 45e12;
    case RCV_TFLOAT32: return 250e12;
    default: return 500e12;
    }
}

/* Around persistent kernels large products of float32 are several of bfloat16. */
static double product_rate(const model *m, double operations) {
    const rcvi_rungs *g = &m->program->rungs;
    bool parts = g->persistent && g->parts != 1 && m->program->options.dtype == RCV_FLOAT32 && m->count == 1;
    if (!parts || operations < 2 * (double)m->program->machine.min_library_product) return m->rate;
    return rate_of(RCV_BFLOAT16) / (g->parts == 2 ? 3 : 6);
}

/* A product that fills few processors runs at their share of the rate. */
static double product(const model *m, double rows, double columns, double depth, double batch) {
    double blocks = most(1, rows / block) * most(1, columns / block) * batch;
    double operations = 2 * rows * columns * depth * batch;
    return operations / (product_rate(m, operations) * least(1, blocks / processors));
}

static double view_bytes(const model *m, const rcvi_access *access) {
    const rcvi_buffer *buffer = &m->program->buffers[access->view->buffer];
    return (double)access->rows * (double)access->columns * (double)rcvi_element_bytes(m->program, buffer->element);
}

static double bytes_of(const model *m, const rcvi_step *step) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int count = rcvi_step_accesses(step, accesses);
    double bytes = 0;
    for (int i = 0; i < count; i++) bytes += view_bytes(m, &accesses[i]);
    return bytes;
}

/* A map with products, `concurrent` of which share a launch. */
static double tiles(const model *m, const rcvi_step *step, double concurrent) {
    rcv_dtype dtype = m->program->options.dtype;
    double depth = 0, element = (double)rcvi_element_bytes(m->program, RCVI_PACKED);
    double chunk = dtype == RCV_FLOAT64 ? chunk_double : dtype == RCV_FLOAT32 ? chunk_plain : chunk_tensor;
    const rcvi_product *first = &step->map->products[0];
    for (int t = 0; t < first->term_count; t++) depth += (double)first->terms[t].depth;
    double blocks = most(1, (double)step->rows / block) *
                    most(1, (double)step->columns * (double)step->map->product_count / block) * concurrent;
    double waves = most(1, blocks / processors);
    return (m->launch + shortest + depth * element / chunk_bytes * chunk * waves) / concurrent;
}

static double execution(const model *m, const rcvi_step *step, double concurrent) {
    double bytes = bytes_of(m, step) / bandwidth, latency = (m->launch + shortest) / concurrent;
    if (step->kind == RCVI_STEP_MAP && step->map->product_count) return most(tiles(m, step, concurrent), bytes);
    if (step->kind != RCVI_STEP_GEMM) return most(latency, bytes);
    double work =
        product(m, (double)step->rows, (double)step->columns, (double)step->gemm.depth, (double)step->gemm.batch);
    return m->launch / concurrent + most(most(work, bytes), library_least / concurrent);
}

static double vendor(const model *m, bool backward) {
    const rcv_plan_options *o = &m->program->options;
    double rows = (double)o->steps * (double)o->batch, parameters = (double)m->program->net->parameter_elements;
    double steps = (double)o->steps + (double)m->program->net->options.layers;
    return (backward ? 2 : 1) * (2 * parameters * rows / m->rate * 2 + steps * vendor_step);
}

static double step_cost(const model *m, const rcvi_step *step) {
    if (step->when == RCVI_WHEN_PARAMETERS_CHANGED && !m->program->options.training) return 0;
    if (step->kind == RCVI_STEP_VENDOR) return vendor(m, step->vendor.backward);
    if (step->kind == RCVI_STEP_COMMUNICATE) return m->launch;
    double count = m->count;
    if (step->time.timed) count = least(count, (double)m->program->options.steps / (double)step->time.span);
    double concurrent = m->count > 1 ? m->concurrent : 1;
    return count * execution(m, step, concurrent);
}

/* Bytes of an operand: a float32 is multiplied as several numbers of 16 bits, or as it is. */
static double operand_bytes(const rcvi_program *program) {
    if (rcvi_dtype_is_narrow(program->options.dtype)) return 2;
    if (program->options.dtype != RCV_FLOAT32 || program->rungs.parts == 1) return 4;
    return 2.0 * (double)(program->rungs.parts ? program->rungs.parts : RCVI_USUAL_PARTS);
}

/* A step of clusters, which have a slice of the batch each: all blocks of one receive all of an operand. */
static double cluster_seconds(const model *m, int loop, double operations) {
    const rcvi_step *steps = m->program->steps;
    double seconds = cluster_step, slices = least(clusters, (double)m->program->options.batch);
    for (int i = loop + 1; i <= loop + steps[loop].loop.body; i++) {
        if (steps[i].kind != RCVI_STEP_MAP || !steps[i].map->product_count) continue;
        const rcvi_product *product = &steps[i].map->products[0];
        for (int t = 0; t < product->term_count; t++)
            seconds += (double)steps[i].rows / slices * (double)product->terms[t].depth * operand_bytes(m->program) /
                       cluster_bandwidth;
    }
    return seconds + operations / m->rate * 8 / slices;
}

/* A step is as long as values take from block to block, or as what all blocks read: every block of 64 rows of weights reads
 * all of its operands; or, where float32 is multiplied as it is, as the operations. */
static double persistent_seconds(const model *m, int loop) {
    const rcvi_step *steps = m->program->steps;
    double bytes = 0, operations = 0, element = operand_bytes(m->program);
    for (int i = loop + 1; i <= loop + steps[loop].loop.body; i++) {
        if (steps[i].kind != RCVI_STEP_MAP || !steps[i].map->product_count) continue;
        const rcvi_map *map = steps[i].map;
        double depth = 0;
        for (int t = 0; t < map->products[0].term_count; t++) depth += (double)map->products[0].terms[t].depth;
        double blocks = (double)steps[i].columns * (double)map->product_count / 64;
        bytes += blocks * (double)steps[i].rows * depth * element;
        if (m->program->rungs.parts == 1)
            operations += 2 * (double)steps[i].rows * (double)steps[i].columns * (double)map->product_count * depth;
    }
    double step = most(persistent_step, most(bytes / cache_bandwidth, operations / m->rate));
    if (m->program->rungs.cluster) step = cluster_seconds(m, loop, operations);
    return m->launch * 3 + (double)steps[loop].loop.count * step;
}

/* Every view once over all steps, at the speed of memory. */
static double scan_seconds(const model *m, int loop) {
    const rcvi_step *steps = m->program->steps;
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    double bytes = 0;
    for (int i = loop + 1; i <= loop + steps[loop].loop.body; i++) {
        int count = rcvi_step_accesses(&steps[i], accesses);
        for (int k = 0; k < count; k++) {
            const rcvi_buffer *buffer = &m->program->buffers[accesses[k].view->buffer];
            if (!accesses[k].view->stride) continue;
            bytes += (double)accesses[k].rows * (double)accesses[k].columns *
                     (double)rcvi_element_bytes(m->program, buffer->element);
        }
    }
    return m->count * (2 * m->launch + (double)steps[loop].loop.count * bytes / bandwidth);
}

static double walk(const model *m, int first, int end) {
    const rcvi_step *steps = m->program->steps;
    double seconds = 0;
    for (int i = first; i < end; i++) {
        if (steps[i].kind != RCVI_STEP_LOOP) {
            seconds += step_cost(m, &steps[i]);
            continue;
        }
        if (rcvi_program_is_persistent(m->program, (size_t)i)) { /* whether it can be, the device knows */
            seconds += persistent_seconds(m, i);
            i += steps[i].loop.body;
            continue;
        }
        if (rcvi_program_is_scan(m->program, (size_t)i)) {
            seconds += scan_seconds(m, i);
            i += steps[i].loop.body;
            continue;
        }
        model inside = *m;
        inside.count *= (double)steps[i].loop.count;
        seconds += walk(&inside, i + 1, i + 1 + steps[i].loop.body);
        i += steps[i].loop.body;
    }
    return seconds;
}

/* Steps that run side by side in a pass. */
static double concurrent_steps(const rcvi_program *program, bool wavefront) {
    const rcvi_rungs *g = &program->rungs;
    double layers = wavefront ? (double)program->net->options.layers : 1;
    double tracks = layers * (double)program->net->directions;
    if (g->merge) return tracks;
    return g->streams > 1 ? most(1, overlap * least(tracks, (double)g->streams)) : 1;
}

double rcvi_estimate_gpu(const rcvi_program *program) {
    const rcvi_rungs *g = &program->rungs;
    int forward = (int)program->forward_count;
    model m = {.program = program,
               .rate = rate_of(program->options.dtype),
               .launch = g->graph ? in_graph : without_graph,
               .concurrent = concurrent_steps(program, g->wavefront),
               .count = 1};
    double seconds = walk(&m, 0, forward) + m.launch;
    m.concurrent = concurrent_steps(program, g->wavefront && !g->forward_wave);
    return seconds + walk(&m, forward, (int)program->step_count);
}
