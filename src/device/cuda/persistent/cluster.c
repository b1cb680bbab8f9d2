/* Thread block clusters: which loops can have them, and how columns, batch and depth are cut for one.
 *
 * A cluster has all columns of a task, in blocks with 128 rows of weights each, and a slice of the batch. Its blocks send each other the
 * operands of their products through shared memory (kernel/send.cuh). Every block must have columns: a block without columns would send
 * nothing, no block would wait for it, and the others could overwrite an operand that it has not read yet. */
#include "device/cuda/persistent/internal.h"
#include "device/cuda/persistent/tuning.h"

enum {
    MAX_BLOCKS = 16,               /* of a cluster on compute capability 9.0, which is not portable beyond 8 */
    MAX_TILES = RCVI_MAX_RING / 2, /* of a slice: each has two mbarriers */
    SEGMENT_BYTES = 16             /* sent by one st.async */
};

/* ---- which loops ---- */

/* The task's step that writes a channel, and its port. Answers how many ports write it. */
static int find_writers(const rcvi_persistent *p, const rcvi_task *task, int channel, int *step, int *port) {
    int count = 0;
    for (int k = 0; k < task->step_count; k++) {
        const rcvi_kernel_step *s = &p->steps[task->steps[k]];
        for (int n = 0; n < s->write_count; n++) {
            if (s->ports[s->writes[n]].channel != channel) continue;
            *step = k;
            *port = s->writes[n];
            count++;
        }
    }
    return count;
}

/* An operand of products must be written by one step of the same task, in the same iteration or the one before. Only the first one may come
 * from memory. */
static rcv_status check_pass(rcvi_persistent *p, int index, int pass) {
    rcvi_task *task = &p->tasks[index];
    rcvi_kernel_step *reader = &p->steps[task->product_step];
    int writer = RCVI_NONE, port = RCVI_NONE;
    const rcvi_port *read =
        reader->operand_ports[pass] == RCVI_NONE ? NULL : &reader->ports[reader->operand_ports[pass]];
    if (!read || read->channel == RCVI_NONE || p->channels[read->channel].task != index)
        return rcvi_persistent_refuse("a cluster multiplies only the output of its own layer at the step before: "
                                      "give combine steps=all, and leave wavefront out");
    if (find_writers(p, task, read->channel, &writer, &port) != 1 || reader->passes[pass].depth != task->columns)
        return rcvi_persistent_refuse("a cluster takes operands that one step writes");
    const rcvi_port *write = &p->steps[task->steps[writer]].ports[port];
    int64_t ahead =
        read->step ? (write->slot - read->slot) / read->step : -1; /* iterations between writing and reading */
    bool from_memory = read->low > reader->low;
    if (write->step != read->step || ahead < 0 || ahead > 1 || (write->slot - read->slot) % read->step ||
        read->low - reader->low != ahead || read->high != reader->high)
        return rcvi_persistent_refuse("a cluster takes operands of the step before");
    if (pass > 0 && (task->sender != writer || task->ahead != ahead))
        return rcvi_persistent_refuse("a cluster takes operands that one step writes");
    task->sender = writer;
    task->ahead = (int)ahead;
    task->from_memory = from_memory;
    return RCV_OK;
}

static rcv_status check_loop(rcvi_persistent *p) {
    if (p->by_rows || p->paired)
        return rcvi_persistent_refuse(
            "a cluster does not compute sums over features: its blocks have columns, not whole rows");
    for (int s = 0; s < p->task_count; s++) {
        const rcvi_task *task = &p->tasks[s];
        const rcvi_kernel_step *product_step = &p->steps[task->product_step];
        int multiply = 0;
        for (int k = 0; k < task->step_count; k++) {
            const rcvi_kernel_step *step = &p->steps[task->steps[k]];
            multiply += step->pass_count > 0;
            if (step->wait_count) return rcvi_persistent_refuse("a cluster does not wait for values of another one");
        }
        if (multiply != 1) return rcvi_persistent_refuse("a cluster multiplies once in a time step");
        for (int q = 0; q < product_step->pass_count; q++) RCVI_TRY(check_pass(p, s, q));
    }
    return RCV_OK;
}

/* ---- how columns, batch and depth are cut ---- */

/* Clusters of this size that run at once. A cluster lies within one GPC, and GPCs differ in their number of processors, so fewer fit than
 * processors / blocks. */
static int clusters_at_once(const rcvi_engine *e, int blocks) {
    int all = blocks > 8   ? RCVI_TUNED_CLUSTERS_OF_16
              : blocks > 4 ? RCVI_TUNED_CLUSTERS_OF_8
              : blocks > 2 ? RCVI_TUNED_CLUSTERS_OF_4
                           : RCVI_TUNED_PROCESSORS / blocks;
    int here = e->processors * all / RCVI_TUNED_PROCESSORS;
    return here > 0 ? here : 1;
}

static int segment_elements(const rcvi_persistent *p) { return SEGMENT_BYTES / (int)rcvi_cuda_bytes(p->operand); }

/* Cuts the columns of every task into at most `most` blocks, whole segments of 16 bytes each, so that no block is without columns. */
static bool cut_columns(rcvi_persistent *p, int most) {
    int rows = RCVI_PIPES * RCVI_WEIGHT_ROWS / p->depth_splits;
    p->cluster = 1;
    p->vector = segment_elements(p);
    for (int i = 0; i < p->step_count; i++) {
        if (p->steps[i].shape.vector < p->vector) p->vector = p->steps[i].shape.vector;
    }
    for (int s = 0; s < p->task_count; s++) {
        rcvi_task *task = &p->tasks[s];
        task->units = (int)rcvi_round_up((task->columns + most - 1) / most, segment_elements(p));
        task->blocks = (int)((task->columns + task->units - 1) / task->units);
        if (task->units * task->products > rows) return false;
        if (s == 0) p->cluster = task->blocks;
        if (task->blocks != p->cluster) return false;
    }
    return true;
}

/* As many slices as clusters run at once: a block receives bytes for every row of its slice, while an MMA has 8 rows or more anyway. */
static bool cut_batch(const rcvi_engine *e, rcvi_persistent *p) {
    int64_t batch = e->program->options.batch, slices = clusters_at_once(e, p->cluster) / p->task_count;
    if (slices < 1) slices = 1;
    p->slice = (int)((batch + slices - 1) / slices);
    p->slices = (int)((batch + p->slice - 1) / p->slice);
    int rows = p->exact ? RCVI_MAX_EXACT_ROWS : RCVI_TUNED_CLUSTER_COLUMNS * p->tile / rcvi_persistent_pipe_columns(p);
    if (rows < 8) return false;
    p->tiles = (p->slice + rows - 1) / rows;
    p->tile = (int)rcvi_round_up((p->slice + p->tiles - 1) / p->tiles, 8);
    if (p->exact) p->tile = rcvi_persistent_rows(e, p); /* FMA needs no multiple of 8 rows */
    p->blocks = p->cluster * p->slices * p->task_count;
    rcvi_persistent_narrow_vector(p);
    return p->tiles <= MAX_TILES;
}

/* Both pipes have all chunks of depth, one group for every pass: each pipe has its own 64 rows of weights. */
static void share_chunks(const rcvi_engine *e, rcvi_persistent *p, rcvi_task *task) {
    const rcvi_kernel_step *product_step = &p->steps[task->product_step];
    int in_registers = rcvi_persistent_register_chunks(e, p, task);
    for (int pipe = 0; pipe < RCVI_PIPES; pipe++) {
        task->chunks[pipe] = 0;
        task->group_count[pipe] = product_step->pass_count;
        task->ring[pipe] = 1;
        for (int q = 0; q < product_step->pass_count; q++) {
            int chunks = rcvi_persistent_chunks(p, product_step->passes[q].depth);
            task->groups[pipe][q] = (rcvi_chunk_group){q, 0, chunks};
            task->chunks[pipe] += chunks;
        }
        task->in_registers[pipe] = task->chunks[pipe] < in_registers ? task->chunks[pipe] : in_registers;
        task->in_shared[pipe] = task->chunks[pipe] - task->in_registers[pipe];
    }
    if (task->chunks[0] > p->group) p->group = task->chunks[0];
    if (2 * task->in_shared[0] > p->shared_weight_chunks) p->shared_weight_chunks = 2 * task->in_shared[0];
}

static bool share_memory(const rcvi_engine *e, rcvi_persistent *p) {
    p->group = p->shared_weight_chunks = p->streamed_chunks = p->arguments = 0;
    for (int s = 0; s < p->task_count; s++) {
        int arguments = 0;
        share_chunks(e, p, &p->tasks[s]);
        for (int k = 0; k < p->tasks[s].step_count; k++)
            arguments += rcvi_kernel_step_arguments(&p->steps[p->tasks[s].steps[k]]);
        if (arguments > p->arguments) p->arguments = arguments;
    }
    p->pipe_bytes = (size_t)(p->tiles * p->group * rcvi_persistent_mma_columns(p)) * RCVI_DEPTH_CHUNK_BYTES;
    if (p->pipe_bytes < RCVI_WEIGHT_BYTES) p->pipe_bytes = RCVI_WEIGHT_BYTES; /* weights are staged through it */
    for (p->sum_buffers = 2; p->sum_buffers > 0; p->sum_buffers--) {
        p->shared_bytes =
            RCVI_PIPES * p->pipe_bytes + (size_t)p->shared_weight_chunks * RCVI_WEIGHT_BYTES +
            (size_t)(p->sum_buffers * RCVI_PIPES * rcvi_persistent_pipe_columns(p)) * RCVI_WEIGHT_ROWS * 4 +
            (size_t)RCVI_BARRIERS * RCVI_BARRIER_BYTES + (size_t)p->arguments * RCVI_ARGUMENT_BYTES;
        if (p->shared_bytes <= (size_t)e->shared) return true;
    }
    return false;
}

static bool choose_layout(const rcvi_engine *e, rcvi_persistent *p, int most_blocks, int depth_splits) {
    p->depth_splits = depth_splits;
    p->tile = 8;
    return cut_columns(p, most_blocks) && cut_batch(e, p) && share_memory(e, p);
}

/* Cycles of an iteration, as far as they depend on the layout: MMA instructions of both pipes, which share the tensor cores, or, by FMA,
 * weights read from shared memory; and bytes that a block receives. */
static double estimate_cycles(const rcvi_engine *e, const rcvi_persistent *p) {
    int columns = rcvi_persistent_pipe_columns(p);
    double instruction = rcvi_persistent_uses_warp_mma(p) ? RCVI_TUNED_COST_WARP_MMA
                         : columns > 32                   ? RCVI_TUNED_COST_WGMMA_COLUMN * columns
                                                          : RCVI_TUNED_CLUSTER_LEAST_WGMMA;
    double most = 0;
    for (int s = 0; s < p->task_count; s++) {
        const rcvi_task *task = &p->tasks[s];
        double chunks = task->chunks[0], cost = 2 * chunks * 4 * instruction * (p->parts + 1) / 2;
        if (p->exact) {
            double multiply = 2 * chunks * 64 * 32 / 128 * rcvi_persistent_rows(e, p),
                   read = 2.0 * task->in_shared[0] * RCVI_WEIGHT_BYTES / RCVI_TUNED_CLUSTER_SHARED_BYTES;
            cost = multiply > read ? multiply : read;
        }
        cost = p->tiles * cost + p->slice * (double)rcvi_cluster_row_bytes(p, task) / RCVI_TUNED_CLUSTER_NETWORK_BYTES;
        if (cost > most) most = cost;
    }
    return most;
}

int64_t rcvi_cluster_row_bytes(const rcvi_persistent *p, const rcvi_task *task) {
    int64_t segments = (task->columns + segment_elements(p) - 1) / segment_elements(p);
    return segments * SEGMENT_BYTES * p->parts * p->steps[task->product_step].pass_count;
}

rcv_status rcvi_cluster_choose_layout(rcvi_engine *e, rcvi_persistent *p) {
    int best = 0, best_splits = 0;
    double least = 0;
    RCVI_TRY(check_loop(p));
    for (int blocks = 1; blocks <= MAX_BLOCKS; blocks *= 2) {
        for (int depth_splits = 1; depth_splits <= RCVI_TUNED_CLUSTER_SPLITS; depth_splits *= 2) {
            if (!choose_layout(e, p, blocks, depth_splits)) continue;
            double cost = estimate_cycles(e, p);
            if (best && cost >= least) continue;
            least = cost;
            best = blocks;
            best_splits = depth_splits;
        }
    }
    if (best && choose_layout(e, p, best, best_splits)) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED,
                     "a cluster of %d processors keeps the weights of a layer in registers and shared memory: "
                     "those of this loop, and what they are multiplied with, have no room there",
                     MAX_BLOCKS);
}

/* ---- channels ---- */

/* Operands go from block to block without memory and counters. Channels keep only the slot of the first operand, if it comes from memory. */
void rcvi_cluster_find_channels(rcvi_persistent *p) {
    for (int s = 0; s < p->task_count; s++) {
        const rcvi_task *task = &p->tasks[s];
        const rcvi_kernel_step *product_step = &p->steps[task->product_step];
        for (int q = 0; q < product_step->pass_count; q++) {
            const rcvi_port *port = &product_step->ports[product_step->operand_ports[q]];
            rcvi_channel *channel = &p->channels[port->channel];
            channel->written = 0;
            channel->base = task->from_memory ? port->slot + product_step->low * port->step : 0;
            channel->top = task->from_memory ? channel->base : -1;
        }
    }
}

int64_t rcvi_cluster_offset(const rcvi_persistent *p, const rcvi_channel *channel) {
    const rcvi_task *task = &p->tasks[channel->task];
    const rcvi_kernel_step *product_step = &p->steps[task->product_step];
    int64_t chunks = 0;
    for (int q = 0; q < product_step->pass_count &&
                    &p->channels[product_step->ports[product_step->operand_ports[q]].channel] != channel;
         q++)
        chunks += rcvi_persistent_chunks(p, product_step->passes[q].depth);
    return chunks * rcvi_persistent_mma_columns(p) * RCVI_DEPTH_CHUNK_BYTES;
}
