/* Loops whose blocks meet in clusters: which of them can, and how columns, the batch and depth are cut for one.
 *
 * A cluster has all columns of a seat, in blocks with 128 rows of weights each, and a slice of the batch: what its products read is
 * what its own blocks sent each other, see kernel/send.cuh. Every block has columns: one without any would send nothing, so
 * nobody would wait for it, and the others could overwrite what it still reads. */
#include "device/cuda/persistent/parts.h"

enum {
    MOST_BLOCKS = 16, /* of a cluster */
    MOST_FOLDS = 16,
    MOST_TILES = RCVI_MOST_RING / 2, /* of a slice: there are barriers for so many */
    MOST_WIDE = 64,                  /* columns of a lane's multiplication */
    PIECE_BYTES = 16                 /* that are sent at once */
};

typedef rcvi_persistent_step hosted_step;

/* ---- which loops ---- */

/* The use with which the seat writes a channel, and the step that has it. Answers how many there are. */
static int find_writers(const rcvi_persistent *p, const rcvi_seat *seat, int channel, int *step, int *use) {
    int count = 0;
    for (int k = 0; k < seat->hosted_count; k++) {
        const hosted_step *s = &p->steps[seat->hosted[k]];
        for (int n = 0; n < s->write_count; n++) {
            if (s->uses[s->writes[n]].channel != channel) continue;
            *step = k;
            *use = s->writes[n];
            count++;
        }
    }
    return count;
}

/* What a step with products reads is what one step of its seat gives, in the same iteration or the one before, but for the first
 * time, which may be in memory. */
static rcv_status check_pass(rcvi_persistent *p, int index, int pass) {
    rcvi_seat *seat = &p->seats[index];
    hosted_step *reader = &p->steps[seat->tiled];
    int writer = RCVI_NONE, use = RCVI_NONE;
    const rcvi_channel_use *read = reader->read_of[pass] == RCVI_NONE ? NULL : &reader->uses[reader->read_of[pass]];
    if (!read || read->channel == RCVI_NONE || p->channels[read->channel].seat != index)
        return rcvi_persistent_refuse("a cluster multiplies what its own layer gave at the step before and nothing "
                                      "else: give combine steps=all, and "
                                      "leave wavefront out");
    if (find_writers(p, seat, read->channel, &writer, &use) != 1 || reader->passes[pass].depth != seat->columns)
        return rcvi_persistent_refuse("a cluster takes operands that one step gives");
    const rcvi_channel_use *write = &p->steps[seat->hosted[writer]].uses[use];
    int64_t ahead = read->step ? (write->slot - read->slot) / read->step : -1; /* read so many iterations later */
    bool from_memory = read->low > reader->low;
    if (write->step != read->step || ahead < 0 || ahead > 1 || (write->slot - read->slot) % read->step ||
        read->low - reader->low != ahead || read->high != reader->high)
        return rcvi_persistent_refuse("a cluster takes operands of the step before");
    if (pass > 0 && (seat->sender != writer || seat->ahead != ahead))
        return rcvi_persistent_refuse("a cluster takes operands that one step gives");
    seat->sender = writer;
    seat->ahead = (int)ahead;
    seat->from_memory = from_memory;
    return RCV_OK;
}

static rcv_status check_loop(rcvi_persistent *p) {
    if (p->by_rows || p->paired)
        return rcvi_persistent_refuse("a cluster has no rows whole, as sums over features need them");
    for (int s = 0; s < p->seat_count; s++) {
        const rcvi_seat *seat = &p->seats[s];
        const hosted_step *tiled = &p->steps[seat->tiled];
        int multiply = 0;
        for (int k = 0; k < seat->hosted_count; k++) {
            const hosted_step *step = &p->steps[seat->hosted[k]];
            multiply += step->pass_count > 0;
            if (step->wait_count) return rcvi_persistent_refuse("a cluster does not wait for values of another one");
        }
        if (multiply != 1) return rcvi_persistent_refuse("a cluster multiplies once in a time step");
        for (int q = 0; q < tiled->pass_count; q++) RCVI_TRY(check_pass(p, s, q));
    }
    return RCV_OK;
}

/* ---- how they are cut ---- */

/* Clusters of so many blocks that are on the chip at once: they lie within the parts of a chip, which have not all the same number
 * of processors. As an H200 of 132 processors has them. */
static int clusters_at_once(const rcvi_engine *e, int blocks) {
    int all = blocks > 8 ? 7 : blocks > 4 ? 15 : blocks > 2 ? 30 : 132 / blocks;
    int here = e->processors * all / 132;
    return here > 0 ? here : 1;
}

static int piece_of(const rcvi_persistent *p) { return PIECE_BYTES / (int)rcvi_cuda_bytes(p->operand); }

/* Columns of every seat, for at most so many blocks; a piece of an operand is one block's. All blocks have some. */
static bool cut_columns(rcvi_persistent *p, int most) {
    int rows = RCVI_LANES * RCVI_WEIGHT_ROWS / p->fold;
    p->cluster = 1;
    p->vector = piece_of(p);
    for (int i = 0; i < p->step_count; i++) {
        if (p->steps[i].shape.vector < p->vector) p->vector = p->steps[i].shape.vector;
    }
    for (int s = 0; s < p->seat_count; s++) {
        rcvi_seat *seat = &p->seats[s];
        seat->units = (int)rcvi_round_up((seat->columns + most - 1) / most, piece_of(p));
        seat->blocks = (int)((seat->columns + seat->units - 1) / seat->units);
        if (seat->units * seat->products > rows) return false;
        if (s == 0) p->cluster = seat->blocks;
        if (seat->blocks != p->cluster) return false;
    }
    return true;
}

/* A slice for every cluster that there is room for: what a block receives is so much for every row, while instructions are for eight
 * rows or more anyway. */
static bool cut_batch(const rcvi_engine *e, rcvi_persistent *p) {
    int64_t batch = e->program->options.batch, slices = clusters_at_once(e, p->cluster) / p->seat_count;
    if (slices < 1) slices = 1;
    p->slice = (int)((batch + slices - 1) / slices);
    p->slices = (int)((batch + p->slice - 1) / p->slice);
    int rows = p->exact ? RCVI_MOST_EXACT_ROWS : MOST_WIDE * p->tile / rcvi_persistent_lane_wide(p);
    if (rows < 8) return false;
    p->tiles = (p->slice + rows - 1) / rows;
    p->tile = (int)rcvi_round_up((p->slice + p->tiles - 1) / p->tiles, 8);
    if (p->exact) p->tile = rcvi_persistent_rows(e, p); /* wgmma has eight at least, threads may have fewer */
    p->blocks = p->cluster * p->slices * p->seat_count;
    for (int s = 0; s < p->seat_count; s++) p->seats[s].first_block = p->cluster * p->slices * s;
    int elements = 0; /* of a block's tile: every thread should have some */
    for (int s = 0; s < p->seat_count; s++) {
        int own = p->tile * p->seats[s].units;
        if (own > elements) elements = own;
    }
    while (p->vector > 1 && elements / p->vector < RCVI_MAP_THREADS) p->vector /= 2;
    return p->tiles <= MOST_TILES;
}

/* Both lanes have all chunks of depth, a group for every pass. */
static void share_chunks(const rcvi_engine *e, rcvi_persistent *p, rcvi_seat *seat) {
    const hosted_step *tiled = &p->steps[seat->tiled];
    int held = rcvi_persistent_held_chunks(e, p, seat);
    for (int lane = 0; lane < RCVI_LANES; lane++) {
        seat->chunks[lane] = 0;
        seat->group_count[lane] = tiled->pass_count;
        seat->ring[lane] = 1;
        for (int q = 0; q < tiled->pass_count; q++) {
            int chunks = rcvi_persistent_chunks(p, tiled->passes[q].depth);
            seat->groups[lane][q] = (rcvi_group_of_chunks){q, 0, chunks};
            seat->chunks[lane] += chunks;
        }
        seat->held[lane] = seat->chunks[lane] < held ? seat->chunks[lane] : held;
        seat->kept[lane] = seat->chunks[lane] - seat->held[lane];
    }
    if (seat->chunks[0] > p->group) p->group = seat->chunks[0];
    if (2 * seat->kept[0] > p->weight_chunks) p->weight_chunks = 2 * seat->kept[0];
}

static bool share_memory(const rcvi_engine *e, rcvi_persistent *p) {
    p->group = p->weight_chunks = p->stream_chunks = p->places = 0;
    for (int s = 0; s < p->seat_count; s++) {
        int places = 0;
        share_chunks(e, p, &p->seats[s]);
        for (int k = 0; k < p->seats[s].hosted_count; k++)
            places += rcvi_persistent_places(&p->steps[p->seats[s].hosted[k]]);
        if (places > p->places) p->places = places;
    }
    p->lane_bytes = (size_t)(p->tiles * p->group * rcvi_persistent_wide(p)) * RCVI_DEPTH_CHUNK_BYTES;
    if (p->lane_bytes < RCVI_WEIGHT_BYTES) p->lane_bytes = RCVI_WEIGHT_BYTES; /* weights come through it */
    for (p->sum_buffers = 2; p->sum_buffers > 0; p->sum_buffers--) {
        p->shared = RCVI_LANES * p->lane_bytes + (size_t)p->weight_chunks * RCVI_WEIGHT_BYTES +
                    (size_t)(p->sum_buffers * RCVI_LANES * rcvi_persistent_lane_wide(p)) * RCVI_WEIGHT_ROWS * 4 +
                    (size_t)RCVI_BARRIERS * RCVI_BARRIER_BYTES + (size_t)p->places * RCVI_PLACE_BYTES;
        if (p->shared <= (size_t)e->shared) return true;
    }
    return false;
}

static bool make_room(const rcvi_engine *e, rcvi_persistent *p, int most_blocks, int fold) {
    p->fold = fold;
    p->tile = 8;
    return cut_columns(p, most_blocks) && cut_batch(e, p) && share_memory(e, p);
}

/* Cycles of an iteration that depend on how it is cut: instructions, those of both lanes one after the other, or, where threads
 * multiply, weights that they read from shared memory; and what a block receives. */
static double find_cost(const rcvi_engine *e, const rcvi_persistent *p) {
    const double network = 16, memory = 128; /* bytes a cycle that come to a block, and from its shared memory */
    int wide = rcvi_persistent_lane_wide(p);
    double product = rcvi_persistent_is_few(p) ? 8.7 : wide > 32 ? 0.53 * wide : 17; /* of a lane, when both multiply */
    double most = 0;
    for (int s = 0; s < p->seat_count; s++) {
        const rcvi_seat *seat = &p->seats[s];
        double chunks = seat->chunks[0], cost = 2 * chunks * 4 * product * (p->parts + 1) / 2;
        if (p->exact) {
            double multiply = 2 * chunks * 64 * 32 / 128 * rcvi_persistent_rows(e, p),
                   read = 2.0 * seat->kept[0] * RCVI_WEIGHT_BYTES / memory;
            cost = multiply > read ? multiply : read;
        }
        cost = p->tiles * cost + p->slice * (double)rcvi_cluster_row_bytes(p, seat) / network;
        if (cost > most) most = cost;
    }
    return most;
}

int64_t rcvi_cluster_row_bytes(const rcvi_persistent *p, const rcvi_seat *seat) {
    int64_t pieces = (seat->columns + piece_of(p) - 1) / piece_of(p);
    return pieces * PIECE_BYTES * p->parts * p->steps[seat->tiled].pass_count;
}

rcv_status rcvi_cluster_make_room(rcvi_engine *e, rcvi_persistent *p) {
    int best = 0, best_fold = 0;
    double least = 0;
    RCVI_TRY(check_loop(p));
    for (int blocks = 1; blocks <= MOST_BLOCKS; blocks *= 2) {
        for (int fold = 1; fold <= MOST_FOLDS; fold *= 2) {
            if (!make_room(e, p, blocks, fold)) continue;
            double cost = find_cost(e, p);
            if (best && cost >= least) continue;
            least = cost;
            best = blocks;
            best_fold = fold;
        }
    }
    if (best && make_room(e, p, best, best_fold)) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED,
                     "a cluster of %d processors keeps the weights of a layer in registers and shared memory: "
                     "those of this loop, and what they are multiplied with, have no room there",
                     MOST_BLOCKS);
}

/* ---- what passes ---- */

/* Operands pass without memory and counters; what the first ones lie in is all that is left of their channels. */
void rcvi_cluster_find_channels(rcvi_persistent *p) {
    for (int s = 0; s < p->seat_count; s++) {
        const rcvi_seat *seat = &p->seats[s];
        const hosted_step *tiled = &p->steps[seat->tiled];
        for (int q = 0; q < tiled->pass_count; q++) {
            const rcvi_channel_use *use = &tiled->uses[tiled->read_of[q]];
            rcvi_channel *channel = &p->channels[use->channel];
            channel->written = 0;
            channel->base = seat->from_memory ? use->slot + tiled->low * use->step : 0;
            channel->top = seat->from_memory ? channel->base : -1;
        }
    }
}

/* Where the operand that a channel holds begins in a slot of its cluster. */
int64_t rcvi_cluster_offset(const rcvi_persistent *p, const rcvi_channel *channel) {
    const rcvi_seat *seat = &p->seats[channel->seat];
    const hosted_step *tiled = &p->steps[seat->tiled];
    int64_t chunks = 0;
    for (int q = 0; q < tiled->pass_count && &p->channels[tiled->uses[tiled->read_of[q]].channel] != channel; q++)
        chunks += rcvi_persistent_chunks(p, tiled->passes[q].depth);
    return chunks * rcvi_persistent_wide(p) * RCVI_DEPTH_CHUNK_BYTES;
}
