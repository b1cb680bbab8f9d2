/* Budget of a block's shared memory: weights first, then rings for copies of operands and buffers for sums.
 *
 *     | ring of pipe 0 | ring of pipe 1 | weights | sums of both pipes, once or twice | sums of rows | barriers | arguments |
 *
 * kernel/shared.cuh has the same layout as constants. */
#include "device/cuda/persistent/internal.h"
#include "device/cuda/persistent/tuning.h"

enum { ROW_SUM_BYTES = 2 * RCVI_ROW_SUMS * RCVI_MAP_THREADS / 32 * 4 }; /* a float32 for each warp and sum, twice */

/* Everything but the rings. */
static size_t count_other_bytes(const rcvi_persistent *p) {
    return (size_t)RCVI_BARRIERS * RCVI_BARRIER_BYTES + (size_t)p->arguments * RCVI_ARGUMENT_BYTES +
           (size_t)p->shared_weight_chunks * RCVI_WEIGHT_ROWS * RCVI_DEPTH_CHUNK_BYTES +
           (p->by_rows ? ROW_SUM_BYTES : 0) +
           (size_t)p->sum_buffers * RCVI_PIPES * (size_t)rcvi_persistent_mma_columns(p) * RCVI_WEIGHT_ROWS * 4;
}

/* Bytes of a chunk in a ring, with its weights where these are streamed. */
static size_t chunk_bytes(const rcvi_persistent *p) {
    return (size_t)rcvi_persistent_mma_columns(p) * RCVI_DEPTH_CHUNK_BYTES +
           (p->streamed_chunks ? RCVI_WEIGHT_BYTES : 0);
}

/* Cuts chunks into groups of `size` or fewer and finds the slots of every pipe's ring: a divisor of the number of groups, so that every
 * tile begins in slot 0, or twice their number, for two tiles that alternate. False where a ring has fewer than `least` slots (and groups),
 * or does not fit into `bytes`. */
static bool find_rings(rcvi_persistent *p, int size, int least, size_t bytes) {
    size_t chunk = chunk_bytes(p);
    int widest = 0;
    p->group = 1;
    for (int s = 0; s < p->task_count; s++) {
        for (int pipe = 0; pipe < RCVI_PIPES; pipe++) {
            if (!rcvi_persistent_group_chunks(p, s, pipe, size)) return false;
            for (int g = 0; g < p->tasks[s].group_count[pipe]; g++) {
                if (p->tasks[s].groups[pipe][g].count > p->group) p->group = p->tasks[s].groups[pipe][g].count;
            }
        }
    }
    int slots = (int)(bytes / ((size_t)p->group * chunk));
    if (slots > RCVI_MAX_RING) slots = RCVI_MAX_RING;
    for (int s = 0; s < p->task_count; s++) {
        for (int pipe = 0; pipe < RCVI_PIPES; pipe++) {
            int count = p->tasks[s].group_count[pipe], ring = count < slots ? count : slots;
            while (ring > 1 && count % ring) ring--;
            if (ring < (count < least ? count : least)) return false;
            if (p->tiles > 1 && 2 * count <= slots) ring = 2 * count;
            p->tasks[s].ring[pipe] = count ? ring : 1;
            if (ring > widest) widest = ring;
        }
    }
    p->pipe_bytes = (size_t)(widest * p->group) * chunk;
    if (p->pipe_bytes < RCVI_WEIGHT_BYTES) p->pipe_bytes = RCVI_WEIGHT_BYTES; /* weights are staged through it */
    size_t most = p->streamed_chunks ? RCVI_TUNED_STREAM_GROUP_BYTES : RCVI_TUNED_GROUP_BYTES;
    return p->pipe_bytes <= bytes && (size == p->parts || (size_t)p->group * chunk <= most);
}

static size_t ring_bytes(size_t all, size_t others) { return (all - others) / RCVI_PIPES / 1024 * 1024; }

bool rcvi_persistent_rings_hold(const rcvi_persistent *p, int tiles) {
    for (int s = 0; s < p->task_count; s++) {
        for (int pipe = 0; pipe < RCVI_PIPES; pipe++) {
            if (p->tasks[s].ring[pipe] < tiles * p->tasks[s].group_count[pipe]) return false;
        }
    }
    return true;
}

/* How good a choice of rings and sum buffers is, in bytes of ring. Large rings hide the latency of copies, more so if they hold the next
 * tile, too; a second sum buffer saves a barrier. */
static size_t rate_rings(const rcvi_persistent *p) {
    const size_t step = RCVI_TUNED_RING_STEP_BYTES;
    bool small = p->pipe_bytes < RCVI_TUNED_RING_BYTES && !rcvi_persistent_rings_hold(p, 1);
    size_t ring = small ? p->pipe_bytes : RCVI_TUNED_RING_BYTES;
    if (rcvi_persistent_rings_hold(p, 2)) ring += step;
    return 1 + ring / step * step + (p->sum_buffers == 2 ? step / 2 : 0);
}

/* Rings and sum buffers in what the weights leave of shared memory. `ring`: least slots. */
static bool choose_rings(const rcvi_engine *e, rcvi_persistent *p, int ring) {
    static const int sizes[] = {16, 12, 8, 6, 4, 3, 2, 1};
    size_t all = (size_t)e->shared, best = 0;
    int best_buffers = 0, best_size = 0;
    for (p->sum_buffers = 2; p->sum_buffers > 0; p->sum_buffers--) {
        size_t others = count_other_bytes(p);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes && others < all; i++) {
            if (sizes[i] % p->parts || !find_rings(p, sizes[i], ring, ring_bytes(all, others))) continue;
            size_t value = rate_rings(p);
            if (value <= best) continue;
            best = value;
            best_buffers = p->sum_buffers;
            best_size = sizes[i];
        }
    }
    p->sum_buffers = best ? best_buffers : 1;
    if (!best) return false;
    find_rings(p, best_size, ring, ring_bytes(all, count_other_bytes(p)));
    p->shared_bytes = count_other_bytes(p) + RCVI_PIPES * p->pipe_bytes;
    return true;
}

/* As many weights in shared memory as fit besides rings of two slots, else of one. Where some are streamed all the same, fewer stay, so
 * that the rings get RCVI_TUNED_STREAM_RING_BYTES. */
rcv_status rcvi_persistent_share_memory(const rcvi_engine *e, rcvi_persistent *p) {
    int most = 0;
    for (int s = 0; s < p->task_count; s++) {
        int left = 0, arguments = 0;
        for (int k = 0; k < p->tasks[s].step_count; k++)
            arguments += rcvi_kernel_step_arguments(&p->steps[p->tasks[s].steps[k]]);
        if (arguments > p->arguments) p->arguments = arguments;
        for (int pipe = 0; pipe < RCVI_PIPES; pipe++) left += p->tasks[s].chunks[pipe] - p->tasks[s].in_registers[pipe];
        if (left > most) most = left;
    }
    for (int ring = 2; ring > 0; ring--) {
        int first = RCVI_NONE;
        for (int chunks = most; chunks >= 0; chunks--) {
            rcvi_persistent_place_in_shared(p, chunks);
            if (!choose_rings(e, p, ring)) continue;
            if (first == RCVI_NONE) first = chunks;
            if (!p->streamed_chunks || p->pipe_bytes >= RCVI_TUNED_STREAM_RING_BYTES) return RCV_OK;
        }
        if (first == RCVI_NONE) continue;
        rcvi_persistent_place_in_shared(p, first);
        choose_rings(e, p, ring);
        return RCV_OK;
    }
    return rcvi_fail(
        RCV_UNSUPPORTED,
        "a persistent kernel of this loop needs more than %zu bytes of shared memory a processor, even with its "
        "weights elsewhere; this GPU has %d",
        count_other_bytes(p), e->shared);
}
