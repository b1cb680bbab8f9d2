/* Where the weights of a persistent kernel live, and what room is left for copies and sums. */
#include "device/cuda/persistent_parts.h"

enum {
    MOST_ROWS = 64,       /* of the batch in a tile */
    REGISTERS = 216,      /* of a thread that multiplies */
    OTHER_REGISTERS = 44, /* beside weights, sums and what maps read */
    MULTIPLIERS = RCVI_MAP_THREADS,
    CHUNK_REGISTERS = 16,                                    /* of weights */
    MUCH_ROOM = 48 << 10,                                    /* for copies of a lane */
    STREAM_ROOM = 34 << 10,                                  /* the same where weights are among them */
    BARRIER_BYTES = 16,                                      /* of one of these */
    PLACE_BYTES = 56,                                        /* words of a place, and its address at three iterations */
    ROW_BYTES = 2 * RCVI_ROW_SUMS * MULTIPLIERS / 32 * 4,    /* sums of warps, twice */
    MOST_SPAN = 16,                                          /* elements of a row that a thread takes */
    WEIGHT_BYTES = RCVI_WEIGHT_ROWS * RCVI_DEPTH_CHUNK_BYTES /* of a chunk */
};

typedef rcvi_persistent_step hosted_step;

/* Is the operand of this pass what the seat itself gives? */
static bool is_own(const rcvi_persistent *p, int seat, int pass) {
    const hosted_step *s = &p->steps[p->seats[seat].tiled];
    int channel = s->read_of[pass] == RCVI_NONE ? RCVI_NONE : s->uses[s->read_of[pass]].channel;
    return channel != RCVI_NONE && p->channels[channel].seat == seat;
}

/* Every pass to the lane that its products are of. */
static void share_apart(const rcvi_engine *e, rcvi_seat *s, const hosted_step *tiled) {
    for (int q = 0; q < tiled->pass_count; q++) {
        int chunks = rcvi_persistent_chunks(e, tiled->passes[q].depth), lane = 1;
        for (int i = 0; i < tiled->apart; i++) {
            if (tiled->passes[q].b[i] != RCVI_NONE) lane = 0;
        }
        s->lane_of[q] = lane ? 0 : chunks;
        s->chunks[lane] += chunks;
    }
}

/* Chunks of what comes from elsewhere to lane 0, of the seat's own to lane 1; where one has far more, half of all to each. */
static void share_passes(const rcvi_engine *e, rcvi_persistent *p, int seat, int held) {
    rcvi_seat *s = &p->seats[seat];
    const hosted_step *tiled = &p->steps[s->tiled];
    int total[RCVI_LANES] = {0, 0};
    for (int q = 0; q < tiled->pass_count; q++)
        total[is_own(p, seat, q)] += rcvi_persistent_chunks(e, tiled->passes[q].depth);
    int all = total[0] + total[1], most = total[0] > total[1] ? total[0] : total[1];
    bool apart = total[0] && total[1] && (most <= held || all - most + 2 >= most);
    int room = apart ? total[0] : (all + 1) / 2;
    for (int own = 0; own < 2; own++) {
        for (int q = 0; q < tiled->pass_count; q++) {
            if (is_own(p, seat, q) != own) continue;
            int chunks = rcvi_persistent_chunks(e, tiled->passes[q].depth);
            s->lane_of[q] = chunks < room ? chunks : room;
            s->chunks[0] += s->lane_of[q];
            s->chunks[1] += chunks - s->lane_of[q];
            room -= s->lane_of[q];
        }
    }
}

static void share_chunks(const rcvi_engine *e, rcvi_persistent *p, int seat, int held) {
    rcvi_seat *s = &p->seats[seat];
    if (p->steps[s->tiled].apart)
        share_apart(e, s, &p->steps[s->tiled]);
    else
        share_passes(e, p, seat, held);
    for (int lane = 0; lane < RCVI_LANES; lane++) s->held[lane] = s->chunks[lane] < held ? s->chunks[lane] : held;
}

/* Cuts a lane's chunks into groups of this many at most, none of two passes: lane 0's operands of other seats first. */
static bool group_chunks(const rcvi_engine *e, rcvi_persistent *p, int seat, int lane, int size) {
    rcvi_seat *s = &p->seats[seat];
    const hosted_step *tiled = &p->steps[s->tiled];
    s->group_count[lane] = 0;
    for (int own = 0; own < 2; own++) {
        for (int q = 0; q < tiled->pass_count; q++) {
            int first = lane ? s->lane_of[q] : 0,
                end = lane ? rcvi_persistent_chunks(e, tiled->passes[q].depth) : s->lane_of[q];
            if (is_own(p, seat, q) != own) continue;
            for (int c = first; c < end; c += size) {
                if (s->group_count[lane] == RCVI_MAX_GROUPS) return false;
                s->groups[lane][s->group_count[lane]++] = (rcvi_group_of_chunks){q, c, end - c < size ? end - c : size};
            }
        }
    }
    return true;
}

static int least_units(int products, int vector) {
    int units = RCVI_WEIGHT_ROWS / products;
    return units / vector * vector;
}

/* Slices of the batch, rows of a tile. */
static rcv_status cut_batch(const rcvi_engine *e, rcvi_persistent *p) {
    int64_t batch = e->program->options.batch, columns = 0;
    for (int s = 0; s < p->seat_count; s++) columns += p->seats[s].blocks;
    if (columns < 1) return rcvi_persistent_refuse("a persistent kernel needs a time loop with products");
    if (columns > e->processors)
        return rcvi_fail(RCV_UNSUPPORTED,
                         "a persistent kernel of this loop needs %lld processors at once; this GPU has %d: leave "
                         "wavefront out, so that a layer has them all",
                         (long long)columns, e->processors);
    int64_t slices = e->processors / columns, most = (batch + 7) / 8;
    if (slices > most) slices = most;
    p->slice = (int)rcvi_round_up((batch + slices - 1) / slices, 8);
    p->slices = (int)((batch + p->slice - 1) / p->slice);
    p->tiles = (p->slice + MOST_ROWS - 1) / MOST_ROWS;
    p->tile = (int)rcvi_round_up((p->slice + p->tiles - 1) / p->tiles, 8);
    int block = 0;
    for (int s = 0; s < p->seat_count; s++) {
        p->seats[s].first_block = block;
        block += p->seats[s].blocks * p->slices;
    }
    p->blocks = block;
    return RCV_OK;
}

static size_t other_bytes(const rcvi_persistent *p) {
    return (size_t)(RCVI_LANES * RCVI_MOST_RING + 2) * BARRIER_BYTES + (size_t)p->places * PLACE_BYTES +
           (size_t)p->weight_chunks * RCVI_WEIGHT_ROWS * RCVI_DEPTH_CHUNK_BYTES + (p->has_rows ? ROW_BYTES : 0) +
           (size_t)p->sum_buffers * RCVI_LANES * (size_t)p->tile * RCVI_WEIGHT_ROWS * 4;
}

/* The ring of every lane, in so many bytes; a ring goes evenly into the lane's groups. Answers the least of groups that a
 * lane with several has at once. */
static int find_rings(const rcvi_engine *e, rcvi_persistent *p, int size, size_t bytes) {
    size_t chunk = (size_t)p->tile * RCVI_DEPTH_CHUNK_BYTES + (p->stream_chunks ? WEIGHT_BYTES : 0);
    int room = (int)(bytes / ((size_t)size * chunk)), least = RCVI_MOST_RING, widest = 0;
    if (room > RCVI_MOST_RING) room = RCVI_MOST_RING;
    for (int s = 0; s < p->seat_count; s++) {
        for (int lane = 0; lane < RCVI_LANES; lane++) {
            rcvi_seat *seat = &p->seats[s];
            if (!group_chunks(e, p, s, lane, size)) return 0;
            int count = seat->group_count[lane], ring = count < room ? count : room;
            while (ring > 1 && count % ring) ring--;
            if (count && ring < 1) return 0;
            seat->ring[lane] = count ? ring : 1;
            if (count > 1 && ring < least) least = ring;
            if (ring > widest) widest = ring;
        }
    }
    p->group = size;
    p->lane_bytes = (size_t)(widest * size) * chunk;
    if (p->lane_bytes < WEIGHT_BYTES) p->lane_bytes = WEIGHT_BYTES; /* weights come through it */
    return p->lane_bytes <= bytes ? least : 0;
}

/* Bytes for copies of a lane. */
static size_t lane_room(size_t room, size_t others) { return (room - others) / RCVI_LANES / 1024 * 1024; }

/* Lets so many chunks of weights live in shared memory; what is more than that is copied every time. */
static void keep_chunks(rcvi_persistent *p, int most) {
    p->weight_chunks = p->stream_chunks = 0;
    for (int s = 0; s < p->seat_count; s++) {
        rcvi_seat *seat = &p->seats[s];
        int left[RCVI_LANES], streamed = 0;
        for (int lane = 0; lane < RCVI_LANES; lane++) left[lane] = seat->chunks[lane] - seat->held[lane];
        seat->kept[0] = left[0] < most / 2 ? left[0] : most / 2;
        seat->kept[1] = left[1] < most - seat->kept[0] ? left[1] : most - seat->kept[0];
        if (left[0] < most - seat->kept[1])
            seat->kept[0] = left[0];
        else
            seat->kept[0] = most - seat->kept[1];
        for (int lane = 0; lane < RCVI_LANES; lane++) streamed += left[lane] - seat->kept[lane];
        if (seat->kept[0] + seat->kept[1] > p->weight_chunks) p->weight_chunks = seat->kept[0] + seat->kept[1];
        if (streamed > p->stream_chunks) p->stream_chunks = streamed;
    }
}

/* Copies and buffers of sums in what shared memory weights leave: much room for copies hides their way, and two buffers for
 * sums save a meeting of threads. */
static bool share_rest(const rcvi_engine *e, rcvi_persistent *p) {
    static const int sizes[] = {4, 3, 2, 1};
    size_t room = (size_t)e->shared, best = 0;
    int best_buffers = 0, best_size = 0;
    for (p->sum_buffers = 2; p->sum_buffers > 0; p->sum_buffers--) {
        size_t others = other_bytes(p);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes && others < room; i++) {
            int least = find_rings(e, p, sizes[i], lane_room(room, others));
            size_t value = (least > 1 ? (size_t)1 << 20 : 0) + (p->lane_bytes < MUCH_ROOM ? p->lane_bytes : MUCH_ROOM) +
                           (p->sum_buffers == 2 ? MUCH_ROOM / 8 : 0);
            if (least < 1 || (p->stream_chunks && least < 2) || value <= best) continue;
            best = value;
            best_buffers = p->sum_buffers;
            best_size = sizes[i];
        }
    }
    p->sum_buffers = best ? best_buffers : 1;
    if (!best) return false;
    find_rings(e, p, best_size, lane_room(room, other_bytes(p)));
    p->shared = other_bytes(p) + RCVI_LANES * p->lane_bytes;
    return true;
}

static rcv_status share_memory(const rcvi_engine *e, rcvi_persistent *p) {
    int most = 0;
    for (int s = 0; s < p->seat_count; s++) {
        int left = 0, places = 0;
        for (int k = 0; k < p->seats[s].hosted_count; k++)
            places += rcvi_persistent_places(&p->steps[p->seats[s].hosted[k]]);
        if (places > p->places) p->places = places;
        for (int lane = 0; lane < RCVI_LANES; lane++) left += p->seats[s].chunks[lane] - p->seats[s].held[lane];
        if (left > most) most = left;
    }
    int first = RCVI_NONE; /* what is copied every time needs some room on its way */
    for (int kept = most; kept >= 0; kept--) {
        keep_chunks(p, kept);
        if (!share_rest(e, p)) continue;
        if (first == RCVI_NONE) first = kept;
        if (!p->stream_chunks || p->lane_bytes >= STREAM_ROOM) return RCV_OK;
    }
    if (first != RCVI_NONE) {
        keep_chunks(p, first);
        share_rest(e, p);
        return RCV_OK;
    }
    return rcvi_fail(
        RCV_UNSUPPORTED,
        "a persistent kernel of this loop needs more than %zu bytes of shared memory a processor, even with its "
        "weights elsewhere; this GPU has %d",
        other_bytes(p), e->shared);
}

/* Elements that a thread takes at once, in units of a vector. */
static int vectors_of(const rcvi_persistent *p, const hosted_step *s) {
    const rcvi_seat *seat = &p->seats[s->seat];
    if (!s->by_rows) return (p->tile * seat->units / p->vector + MULTIPLIERS - 1) / MULTIPLIERS;
    int64_t at_once = (int64_t)rcvi_persistent_across(p, seat->columns) * p->vector;
    return (int)((seat->columns + at_once - 1) / at_once);
}

/* Registers for what a map reads: beside the sums of products, which it is fetched before, or, by rows, beside what all rows
 * share. */
static int map_registers(const rcvi_persistent *p, const hosted_step *s) {
    int words = 0;
    for (int v = 0; v < s->view_count; v++) {
        if (s->views[v]->buffer == RCVI_NONE || !rcvi_persistent_is_value(s, v)) continue;
        if (s->views[v]->row)
            words += ((int)rcvi_cuda_bytes((rcvi_cuda_type)s->shape.types[v]) * p->vector + 3) / 4;
        else if (s->by_rows)
            words += p->vector;
    }
    return vectors_of(p, s) * words + (s->by_rows ? 0 : p->tile / 2);
}

/* Chunks of weights that a seat's threads have registers for, in each lane. */
static int held_chunks(const rcvi_persistent *p, const rcvi_seat *seat) {
    int most = p->tile / 2;
    for (int k = 0; k < seat->hosted_count; k++) {
        int own = map_registers(p, &p->steps[seat->hosted[k]]);
        if (own > most) most = own;
    }
    int held = (REGISTERS - OTHER_REGISTERS - most) / CHUNK_REGISTERS;
    return held > 0 ? held : 0;
}

rcv_status rcvi_persistent_make_room(rcvi_engine *e, rcvi_persistent *p) {
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_map_shape *shape = &p->steps[i].shape;
        int vector = p->steps[i].by_rows ? shape->widest : shape->vector;
        if (i == 0 || vector < p->vector) p->vector = vector;
    }
    for (int s = 0; s < p->seat_count; s++) {
        rcvi_seat *seat = &p->seats[s];
        seat->units = least_units(seat->products, p->vector);
        if (seat->units < 1) return rcvi_persistent_refuse("a persistent kernel takes 64 products of a map at most");
        seat->blocks = (int)((seat->columns + seat->units - 1) / seat->units);
    }
    RCVI_TRY(cut_batch(e, p));
    int elements = 0; /* of a block's tile: every thread should have some */
    for (int s = 0; s < p->seat_count; s++) {
        int own = p->tile * p->seats[s].units;
        if (own > elements) elements = own;
    }
    while (!p->has_rows && p->vector > 1 && elements / p->vector < MULTIPLIERS) p->vector /= 2;
    for (int i = 0; i < p->step_count; i++) {
        if (p->steps[i].by_rows && vectors_of(p, &p->steps[i]) * p->vector > MOST_SPAN)
            return rcvi_persistent_refuse("a persistent kernel does not sum over so many features");
    }
    for (int s = 0; s < p->seat_count; s++) share_chunks(e, p, s, held_chunks(p, &p->seats[s]));
    return share_memory(e, p);
}
