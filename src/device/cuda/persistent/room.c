/* Where the weights of a persistent kernel live, and what room is left for copies and sums. */
#include "device/cuda/persistent/parts.h"

enum {
    MOST_WIDE = 96,        /* columns of a multiplication where depth is folded */
    MOST_ROWS = 64,        /* of the batch in a tile */
    LEAST_TURN_ROWS = 32,  /* of tiles that take turns */
    FOLDED_TURN_ROWS = 16, /* the same where depth is folded */
    MOST_FEW_SLICE = 24,   /* rows of a block that are cut into tiles of eight */
    MORE_REGISTERS = 240,  /* of a thread in a cluster, where all multiply */
    MOST_REGISTERS = 255,  /* and by multiply-adds, where weights in shared memory take time */
    OTHER_REGISTERS = 44,  /* beside weights, sums and what maps read */
    GIVER_REGISTERS = 30,  /* the same where others take maps */
    EXACT_REGISTERS = 16,  /* more of these where threads multiply */
    EXACT_ROWS_OF_WEIGHTS = 4,
    FEW_ROWS = RCVI_FEW_ROWS,
    FEW_REGISTERS = 24,      /* for sums then, and what is loaded */
    FEW_PART_REGISTERS = 64, /* the same of numbers in three parts */
    MULTIPLIERS = RCVI_MAP_THREADS,
    CHUNK_REGISTERS = 16,                                 /* of weights */
    MUCH_ROOM = 48 << 10,                                 /* for copies of a lane */
    SOME_ROOM = 16 << 10,                                 /* less of it makes no difference */
    TURN_ROOM = 32 << 10,                                 /* the least of it for tiles that take turns */
    MOST_GROUP = 16 << 10,                                /* bytes of a group */
    STREAM_GROUP = 32 << 10,                              /* the same with weights */
    STREAM_ROOM = 34 << 10,                               /* for copies of a lane with weights */
    ROW_BYTES = 2 * RCVI_ROW_SUMS * MULTIPLIERS / 32 * 4, /* sums of warps, twice */
    MOST_SPAN = 16,                                       /* elements of a row that a thread takes */
    MOST_LOOKING = 64 /* blocks with tiles of few rows both of whose lanes look at the same counters */
};

typedef rcvi_persistent_step hosted_step;

/* Is the operand of this pass what the seat itself gives? */
static bool is_own(const rcvi_persistent *p, int seat, int pass) {
    const hosted_step *s = &p->steps[p->seats[seat].tiled];
    int channel = s->read_of[pass] == RCVI_NONE ? RCVI_NONE : s->uses[s->read_of[pass]].channel;
    return channel != RCVI_NONE && p->channels[channel].seat == seat;
}

/* Every pass to the lane that its products are of. */
static void share_apart(const rcvi_persistent *p, rcvi_seat *s, const hosted_step *tiled) {
    for (int q = 0; q < tiled->pass_count; q++) {
        int chunks = rcvi_persistent_chunks(p, tiled->passes[q].depth), lane = 1;
        for (int i = 0; i < tiled->apart; i++) {
            if (tiled->passes[q].b[i] != RCVI_NONE) lane = 0;
        }
        s->lane_of[q] = lane ? 0 : chunks;
        s->chunks[lane] += chunks;
    }
}

/* Half of all passes to each lane, so that both multiply what comes from elsewhere while the seat's own is on its way; where many
 * blocks look at a counter for little to multiply, what comes from elsewhere to lane 0 and the seat's own to lane 1, if neither has
 * far more; half of all chunks where there is only one of these. */
static void share_passes(rcvi_persistent *p, int seat, int held) {
    rcvi_seat *s = &p->seats[seat];
    const hosted_step *tiled = &p->steps[s->tiled];
    int total[RCVI_LANES] = {0, 0};
    for (int q = 0; q < tiled->pass_count; q++)
        total[is_own(p, seat, q)] += rcvi_persistent_chunks(p, tiled->passes[q].depth);
    int all = total[0] + total[1], most = total[0] > total[1] ? total[0] : total[1];
    bool both = total[0] && total[1], even = both && (p->tile > FEW_ROWS || s->blocks <= MOST_LOOKING),
         apart = both && (most <= held || all - most + 2 >= most);
    int room = apart ? total[0] : (int)rcvi_round_up((all + 1) / 2, p->parts); /* all parts of a number together */
    for (int own = 0; own < 2; own++) {
        for (int q = 0; q < tiled->pass_count; q++) {
            if (is_own(p, seat, q) != own) continue;
            int chunks = rcvi_persistent_chunks(p, tiled->passes[q].depth),
                half = (int)rcvi_round_up((chunks + 1) / 2, p->parts);
            s->lane_of[q] = even ? half : chunks < room ? chunks : room;
            s->chunks[0] += s->lane_of[q];
            s->chunks[1] += chunks - s->lane_of[q];
            room -= s->lane_of[q];
        }
    }
}

static void share_chunks(rcvi_persistent *p, int seat, int held) {
    rcvi_seat *s = &p->seats[seat];
    s->chunks[0] = s->chunks[1] = 0;
    if (p->steps[s->tiled].apart)
        share_apart(p, s, &p->steps[s->tiled]);
    else
        share_passes(p, seat, held);
    for (int lane = 0; lane < RCVI_LANES; lane++) s->held[lane] = s->chunks[lane] < held ? s->chunks[lane] : held;
}

/* Cuts a lane's chunks into groups of this many at most, none of two passes, with all parts of a number: lane 0's operands of
 * other seats first. */
static bool group_chunks(rcvi_persistent *p, int seat, int lane, int size) {
    rcvi_seat *s = &p->seats[seat];
    const hosted_step *tiled = &p->steps[s->tiled];
    s->group_count[lane] = 0;
    for (int own = 0; own < 2; own++) {
        for (int q = 0; q < tiled->pass_count; q++) {
            int first = lane ? s->lane_of[q] : 0,
                end = lane ? rcvi_persistent_chunks(p, tiled->passes[q].depth) : s->lane_of[q];
            if (is_own(p, seat, q) != own) continue;
            for (int c = first; c < end; c += size) {
                if (s->group_count[lane] == RCVI_MAX_GROUPS) return false;
                s->groups[lane][s->group_count[lane]++] = (rcvi_group_of_chunks){q, c, end - c < size ? end - c : size};
            }
        }
    }
    return true;
}

/* Columns of a seat that a block has. */
static int find_units(const rcvi_persistent *p, const rcvi_seat *seat) {
    int units = RCVI_WEIGHT_ROWS / (seat->products * p->fold);
    return units / p->vector * p->vector;
}

/* Does every seat multiply but with what it gave itself? */
static bool is_all_own(const rcvi_persistent *p) {
    for (int s = 0; s < p->seat_count; s++) {
        for (int q = 0; q < p->steps[p->seats[s].tiled].pass_count; q++) {
            if (!is_own(p, s, q)) return false;
        }
    }
    return true;
}

/* Slices of the batch, rows of a tile: two tiles of so many rows at least take turns, or all of eight. */
static rcv_status cut_batch(const rcvi_engine *e, rcvi_persistent *p, int turn) {
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
    int rows = p->exact ? RCVI_MOST_EXACT_ROWS : MOST_ROWS;
    p->tiles = (p->slice + rows - 1) / rows;
    if (turn == FEW_ROWS) p->tiles = p->slice / FEW_ROWS;
    if (turn > FEW_ROWS && p->tiles < 2 && p->slice >= 2 * turn) p->tiles = 2;
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
    return (size_t)RCVI_BARRIERS * RCVI_BARRIER_BYTES + (size_t)p->places * RCVI_PLACE_BYTES +
           (size_t)p->weight_chunks * RCVI_WEIGHT_ROWS * RCVI_DEPTH_CHUNK_BYTES + (p->by_rows ? ROW_BYTES : 0) +
           (size_t)p->sum_buffers * RCVI_LANES * (size_t)rcvi_persistent_wide(p) * RCVI_WEIGHT_ROWS * 4;
}

/* Groups of so many chunks at most, and the ring of every lane, which goes evenly into the lane's groups, or has those of two tiles
 * that take turns: so many groups at least, if there are. Do they fit into so many bytes? */
static bool find_rings(rcvi_persistent *p, int size, int least, size_t bytes) {
    size_t chunk =
        (size_t)rcvi_persistent_wide(p) * RCVI_DEPTH_CHUNK_BYTES + (p->stream_chunks ? RCVI_WEIGHT_BYTES : 0);
    int widest = 0;
    p->group = 1;
    for (int s = 0; s < p->seat_count; s++) {
        for (int lane = 0; lane < RCVI_LANES; lane++) {
            if (!group_chunks(p, s, lane, size)) return false;
            for (int g = 0; g < p->seats[s].group_count[lane]; g++) {
                if (p->seats[s].groups[lane][g].count > p->group) p->group = p->seats[s].groups[lane][g].count;
            }
        }
    }
    int room = (int)(bytes / ((size_t)p->group * chunk));
    if (room > RCVI_MOST_RING) room = RCVI_MOST_RING;
    for (int s = 0; s < p->seat_count; s++) {
        for (int lane = 0; lane < RCVI_LANES; lane++) {
            int count = p->seats[s].group_count[lane], ring = count < room ? count : room;
            while (ring > 1 && count % ring) ring--;
            if (ring < (count < least ? count : least)) return false;
            if (p->tiles > 1 && 2 * count <= room) ring = 2 * count;
            p->seats[s].ring[lane] = count ? ring : 1;
            if (ring > widest) widest = ring;
        }
    }
    p->lane_bytes = (size_t)(widest * p->group) * chunk;
    if (p->lane_bytes < RCVI_WEIGHT_BYTES) p->lane_bytes = RCVI_WEIGHT_BYTES; /* weights come through it */
    return p->lane_bytes <= bytes &&
           (size == p->parts || (size_t)p->group * chunk <= (p->stream_chunks ? STREAM_GROUP : MOST_GROUP));
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

/* Is there room for all groups of so many tiles? */
static bool has_all(const rcvi_persistent *p, int tiles) {
    for (int s = 0; s < p->seat_count; s++) {
        for (int lane = 0; lane < RCVI_LANES; lane++) {
            if (p->seats[s].ring[lane] < tiles * p->seats[s].group_count[lane]) return false;
        }
    }
    return true;
}

/* Copies and buffers of sums in what shared memory weights leave: much room for copies hides their way, the more so where they are
 * for the tile whose turn is next, few of them save time, and two buffers for sums save a meeting of threads. A lane has so many
 * groups at once, or more. */
static bool share_rest(const rcvi_engine *e, rcvi_persistent *p, int ring) {
    static const int sizes[] = {16, 12, 8, 6, 4, 3, 2, 1};
    size_t room = (size_t)e->shared, best = 0;
    int best_buffers = 0, best_size = 0;
    for (p->sum_buffers = 2; p->sum_buffers > 0; p->sum_buffers--) {
        size_t others = other_bytes(p);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes && others < room; i++) {
            if (sizes[i] % p->parts || !find_rings(p, sizes[i], ring, lane_room(room, others))) continue;
            size_t copies = p->lane_bytes < MUCH_ROOM && !has_all(p, 1) ? p->lane_bytes : MUCH_ROOM;
            if (has_all(p, 2)) copies += SOME_ROOM;
            size_t value = 1 + copies / SOME_ROOM * SOME_ROOM + (p->sum_buffers == 2 ? SOME_ROOM / 2 : 0);
            if (value <= best) continue;
            best = value;
            best_buffers = p->sum_buffers;
            best_size = sizes[i];
        }
    }
    p->sum_buffers = best ? best_buffers : 1;
    if (!best) return false;
    find_rings(p, best_size, ring, lane_room(room, other_bytes(p)));
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
    for (int ring = 2; ring > 0; ring--) {
        int first = RCVI_NONE; /* what is copied every time needs some room on its way */
        for (int kept = most; kept >= 0; kept--) {
            keep_chunks(p, kept);
            if (!share_rest(e, p, ring)) continue;
            if (first == RCVI_NONE) first = kept;
            if (!p->stream_chunks || p->lane_bytes >= STREAM_ROOM) return RCV_OK;
        }
        if (first == RCVI_NONE) continue;
        keep_chunks(p, first);
        share_rest(e, p, ring);
        return RCV_OK;
    }
    return rcvi_fail(
        RCV_UNSUPPORTED,
        "a persistent kernel of this loop needs more than %zu bytes of shared memory a processor, even with its "
        "weights elsewhere; this GPU has %d",
        other_bytes(p), e->shared);
}

/* Threads that take elements of maps. */
static int mappers(const rcvi_persistent *p) { return p->third ? MULTIPLIERS / 2 : MULTIPLIERS; }

/* Elements that a thread takes at once, in units of a vector. */
static int vectors_of(const rcvi_persistent *p, const hosted_step *s) {
    const rcvi_seat *seat = &p->seats[s->seat];
    if (!s->by_rows) return (p->tile * seat->units / p->vector + mappers(p) - 1) / mappers(p);
    int64_t at_once = (int64_t)rcvi_persistent_across(p, seat->columns) * p->vector;
    return (int)((seat->columns + at_once - 1) / at_once);
}

/* Registers for the sums of products. */
static int sum_registers(const rcvi_engine *e, const rcvi_persistent *p) {
    int wide = rcvi_persistent_lane_wide(p);
    if (p->exact) return 4 * rcvi_persistent_rows(e, p) + EXACT_REGISTERS;
    if (p->cluster ? rcvi_persistent_is_few(p) : p->tile == FEW_ROWS)
        return p->parts > 2 ? FEW_PART_REGISTERS : FEW_REGISTERS;
    return p->parts > 2 ? wide : wide / 2;
}

/* Registers for what a map reads: beside the sums of products, which it is fetched before, or, by rows, beside what all rows
 * share. */
static int map_registers(const rcvi_engine *e, const rcvi_persistent *p, const hosted_step *s) {
    int words = s->has_rows && !s->by_rows; /* the order of rows */
    for (int v = 0; v < s->view_count; v++) {
        if (s->views[v]->buffer == RCVI_NONE || !rcvi_persistent_is_value(s, v)) continue;
        if (s->views[v]->row)
            words += ((int)rcvi_cuda_bytes((rcvi_cuda_type)s->shape.types[v]) * p->vector + 3) / 4;
        else if (s->by_rows)
            words += p->vector;
    }
    return vectors_of(p, s) * words + (s->by_rows ? 0 : sum_registers(e, p));
}

int rcvi_persistent_held_chunks(const rcvi_engine *e, const rcvi_persistent *p, const rcvi_seat *seat) {
    int most = sum_registers(e, p);
    if (p->third) return (rcvi_persistent_registers(p) - GIVER_REGISTERS - most) / CHUNK_REGISTERS;
    for (int k = 0; k < seat->hosted_count; k++) {
        int own = map_registers(e, p, &p->steps[seat->hosted[k]]);
        if (own > most) most = own;
    }
    int held = ((!p->cluster ? rcvi_persistent_registers(p)
                 : p->exact  ? MOST_REGISTERS
                             : MORE_REGISTERS) -
                OTHER_REGISTERS - most) /
               CHUNK_REGISTERS;
    return held > 0 ? held : 0;
}

/* The vector of all maps, and the blocks of every seat. */
static rcv_status cut_columns(rcvi_persistent *p) {
    int least = RCVI_WEIGHT_ROWS;
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_map_shape *shape = &p->steps[i].shape;
        int vector = p->steps[i].by_rows ? shape->widest : shape->vector;
        if (i == 0 || vector < p->vector) p->vector = vector;
    }
    for (int s = 0; s < p->seat_count; s++) {
        int units = RCVI_WEIGHT_ROWS / (p->seats[s].products * p->fold);
        if (units < least) least = units;
    }
    if (least < 1) return rcvi_persistent_refuse("a persistent kernel takes 64 products of a map at most");
    while (p->vector > least) p->vector /= 2;
    for (int s = 0; s < p->seat_count; s++) {
        rcvi_seat *seat = &p->seats[s];
        seat->units = find_units(p, seat);
        seat->blocks = (int)((seat->columns + seat->units - 1) / seat->units);
    }
    return RCV_OK;
}

/* Everything, with depth folded so, and tiles of so many rows that take turns. */
static rcv_status share_out(const rcvi_engine *e, rcvi_persistent *p, int fold, int turn) {
    p->fold = fold;
    p->third = turn > 0 && fold > 1 && !p->exact; /* sums of folds make maps longer than a turn's products */
    RCVI_TRY(cut_columns(p));
    RCVI_TRY(cut_batch(e, p, turn));
    if (fold > 1 && rcvi_persistent_wide(p) > MOST_WIDE)
        return rcvi_persistent_refuse("depth is not folded where a tile has many rows");
    for (int s = 0; s < p->seat_count; s++) {
        if (fold > 1 && p->exact && p->seats[s].units * p->seats[s].products % EXACT_ROWS_OF_WEIGHTS)
            return rcvi_persistent_refuse("depth is not folded where a thread would have weights of several folds");
    }
    int elements = 0; /* of a block's tile: every thread should have some */
    for (int s = 0; s < p->seat_count; s++) {
        int own = p->tile * p->seats[s].units;
        if (own > elements) elements = own;
    }
    while (!p->by_rows && p->vector > 1 && elements / p->vector < mappers(p)) p->vector /= 2;
    for (int i = 0; i < p->step_count; i++) {
        if (p->steps[i].by_rows && vectors_of(p, &p->steps[i]) * p->vector > MOST_SPAN)
            return rcvi_persistent_refuse("a persistent kernel does not sum over so many features");
    }
    for (int s = 0; s < p->seat_count; s++) share_chunks(p, s, rcvi_persistent_held_chunks(e, p, &p->seats[s]));
    return share_memory(e, p);
}

/* Two tiles take turns where a seat would otherwise only wait for what it gave itself: while that of one is on its way, the other is
 * multiplied; where operands come from other seats, these fill that time. So do tiles of eight rows where depth is folded: a warp
 * multiplies but its own fold. Not where weights are copied for every tile, or operands have little room. */
static rcv_status make_room(const rcvi_engine *e, rcvi_persistent *p, int fold) {
    const bool turns = is_all_own(p) && !p->by_rows;
    const int least = fold > 1 ? FEW_ROWS : LEAST_TURN_ROWS, most = fold > 1 ? FOLDED_TURN_ROWS : LEAST_TURN_ROWS;
    for (int rows = least; turns && rows <= most; rows += FEW_ROWS) {
        rcv_status status = share_out(e, p, fold, rows);
        bool is_cut = p->tiles > 1 && (rows > FEW_ROWS || p->slice <= MOST_FEW_SLICE);
        if (!status && is_cut && !p->stream_chunks && (has_all(p, 1) || p->lane_bytes >= TURN_ROOM)) return RCV_OK;
    }
    return share_out(e, p, fold, 0);
}

/* Cycles of an iteration that depend on how depth is folded: instructions, what all blocks copy through the cache, and the
 * counters that they raise. Weights that are copied come in small groups, each with its own way to go. */
static double find_cost(const rcvi_persistent *p) {
    int wide = rcvi_persistent_wide(p), most = 0, blocks = 0;
    bool few = rcvi_persistent_is_few(p);
    double bytes = 0;
    for (int s = 0; s < p->seat_count; s++) {
        const rcvi_seat *seat = &p->seats[s];
        int chunks = seat->chunks[0] + seat->chunks[1],
            streamed = chunks - seat->held[0] - seat->held[1] - seat->kept[0] - seat->kept[1];
        if (chunks > most) most = chunks;
        if (seat->blocks > blocks) blocks = seat->blocks;
        bytes += (double)(seat->blocks * p->slices * p->tiles) *
                 ((double)chunks * wide * RCVI_DEPTH_CHUNK_BYTES + (double)streamed * RCVI_WEIGHT_BYTES);
    }
    double chip =
        few && !p->stream_chunks ? 9000 : 2600; /* bytes a cycle from the cache; few of them are not waited for */
    double product = few ? 8.7 : wide > 16 ? 0.53 * wide : 13; /* of one of the two lanes, when both multiply */
    return p->tiles * (4.0 * most * product + 150.0 * p->stream_chunks) + bytes / chip + 4.0 * blocks;
}

/* Depth is folded as far as it pays. */
rcv_status rcvi_persistent_make_room(rcvi_engine *e, rcvi_persistent *p) {
    int best = 1;
    double least = 0;
    for (int fold = 1; fold <= 8; fold *= 2) {
        if (make_room(e, p, fold)) continue;
        double cost = find_cost(p);
        if (least > 0 && cost >= least) continue;
        least = cost;
        best = fold;
    }
    RCVI_TRY(make_room(e, p, best));
    p->holds = is_all_own(p) && p->tiles == 1 && !p->by_rows;
    return RCV_OK;
}

/* They come through what copies have room in, or, if there is more, through what is left of shared memory. */
void rcvi_persistent_find_stage(const rcvi_engine *e, rcvi_persistent *p) {
    int held = 0;
    for (int s = 0; s < p->seat_count; s++) {
        for (int lane = 0; lane < RCVI_LANES; lane++) {
            if (p->seats[s].held[lane] > held) held = p->seats[s].held[lane];
        }
    }
    size_t at = (size_t)rcvi_round_up((int64_t)p->shared, RCVI_DEPTH_CHUNK_BYTES);
    size_t left = at < (size_t)e->shared ? ((size_t)e->shared - at) / RCVI_LANES / RCVI_WEIGHT_BYTES : 0;
    size_t chunks = left < (size_t)held ? left : (size_t)held, own = p->lane_bytes / RCVI_WEIGHT_BYTES;
    p->stage = 0;
    p->staged = p->lane_bytes;
    if (chunks <= own) return;
    p->stage = at;
    p->staged = chunks * RCVI_WEIGHT_BYTES;
    p->shared = at + RCVI_LANES * p->staged;
}
