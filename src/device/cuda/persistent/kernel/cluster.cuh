/* A persistent kernel whose blocks meet in clusters: stands behind persistent.cuh where CLUSTER is not 0; see kernel/send.cuh.
 *
 * A block has 128 rows of weights, 64 a lane, and both lanes read the operand that lies in its own shared memory. Where depth is
 * folded, a lane has half of the folds: row (q * UNIT_ROWS + p) * UNITS + u of its 64 is fold q of these. Else row l * 64 + m is row
 * m of lane l. Where warps multiply by themselves, each reads its own fold alone. There are neither loaders nor a teller: all 256
 * threads multiply, apply the map and send. Blocks of different clusters do not wait for each other, so it does not matter which of
 * them are on the chip at once.
 *
 * A class of seats has, moreover,
 *   SENDER, AHEAD   the step that sends, and how many iterations later what it sent is read
 *   FROM_MEMORY     the first operand lies in memory before the loop
 *   ROW_BYTES       that are sent of a row of the batch, to each block */

/* Slots are empty, but what no block has columns for is zero. */
INLINE void clear_slots(const Shared &shared) {
    const unsigned nothing[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (int n = (int)threadIdx.x; n < 2 * LANE_BYTES / 16; n += MULTIPLIERS)
        write_piece(shared.base + (unsigned)(n * 16), nothing);
    publish_shared();
    asm volatile("bar.sync 0;" ::: "memory");
}

/* One thread: what both slots of every tile wait for first. */
template <class S> INLINE void open_slots(const Block &block, const Shared &shared) {
    const Place *places = Shared::places() + S::first_place(S::TILED_STEP);
    const int low = Due(block.c, block.step_at(S::TILED_STEP)).low;
#pragma unroll 1
    for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0; tile++) {
        const unsigned full = shared.full(0, 2 * tile);
        barrier_expect(shared.full(0, 2 * tile + 1), block.tile_rows(tile) * S::ROW_BYTES);
        barrier_expect(full, S::FROM_MEMORY ? S::CHUNKS(0) * CHUNK_BYTES : block.tile_rows(tile) * S::ROW_BYTES);
#pragma unroll 1
        for (int g = 0; S::FROM_MEMORY && g < S::GROUPS(0); g++) {
            const int pass = S::group_pass(0, g), bytes = S::group_chunks(0, g) * CHUNK_BYTES;
            copy_bulk(shared.slot(2 * tile) + (unsigned)(S::group_before(0, g) * CHUNK_BYTES),
                      places[S::channel(S::TILED_STEP, pass)].slot(low) +
                          (unsigned long long)((long long)block.tile(tile) * bytes),
                      bytes, full);
        }
    }
}

template <class S, int LANE> INLINE void run_lane(const Block &block) {
    Multiplier<S, LANE> lane(block);
    lane.keep_weights();
    clear_slots(lane.shared);
    if (threadIdx.x == 0) open_slots<S>(block, lane.shared);
    if (lane.STARTED) lane.find_starts();
    meet_cluster(); /* nobody sends before all have come so far */
#pragma unroll 1
    for (lane.i = 0; lane.i < ITERATIONS_OF(block.c); lane.i++) S::each(lane);
    meet_cluster(); /* a block that others may still send to, since they have not given up, has not ended */
}

template <class S> INLINE void multiply_all(const Words &c, int seat) {
    Block block = find_block<S>(c, seat);
    if (threadIdx.x < 128)
        run_lane<S, 0>(block);
    else
        run_lane<S, 1>(block);
}

/* Written behind this text: calls multiply_all for the class of this number. */
INLINE void for_class(const Words &c, int seat, int index);

extern "C" __global__ void __launch_bounds__(THREADS, 1) persistent_kernel(const __grid_constant__ Words c) {
    const int seat = find_seat(c);
    bring_places(c, seat);
    if (threadIdx.x == 0) {
        Shared shared;
        for (int n = 0; n < 2 * TILES; n++) barrier_make(shared.full(0, n), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    for_class(c, seat, (int)c.w[seat + 1]);
}
