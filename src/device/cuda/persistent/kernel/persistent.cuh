/* Skeleton of a kernel that goes through a whole time loop: stands behind kernel/base.cuh and the texts of the seats.
 *
 * A seat is the work that shares one set of weights, such as a layer: its columns are cut into blocks of UNITS, the batch
 * into slices, and every block keeps the weights of its columns, in registers first, then in shared memory. There are
 * enough processors for all blocks at once. In every iteration a block takes the steps of its seat that are due, tile of rows
 * after tile: products of its weights with what other blocks have written, then the map of every element.
 *
 * Weights are the left operand of wgmma, a tile of TILE_ROWS rows of the batch is the right one. Where there are few rows, depth
 * is folded: row (q * UNIT_ROWS + p) * UNITS + u of 64 is fold q of unit u of product p, and column q * TILE_ROWS + n of TILE_N
 * is fold q of row n. Sums of equal folds are added, others are not looked at: the instruction takes no longer for them, and
 * a block has fewer units, so that more blocks keep a matrix. Of a tile of 8 rows, warps multiply by themselves (mma.sync), each with
 * its own fold alone. A fold's depth is cut into chunks of 128 bytes, of numbers in
 * PARTS one chunk for each of these, and shared out to two lanes, each with one thread that waits for counters and copies
 * groups of chunks into a ring in shared memory, and a warpgroup that multiplies. Both lanes have half of what comes from elsewhere,
 * which they multiply first, and half of what this seat itself gave at the step before; where tiles have few rows, lane 0 has the one
 * and lane 1 the other. Sums of both lanes meet in shared memory, where both warpgroups take elements for the map, or, where THIRD, a
 * third one does while these go on. One more warp, the teller, raises the counters of what the block has written.
 * Where CLUSTER is not 0, blocks are cut otherwise and send each other operands: see kernel/cluster.cuh.
 *
 * A class of seats, struct Seat, has
 *   STEPS, PRODUCTS, UNITS, BLOCKS (of a slice), COLUMNS, TILED_STEP (the first with products)
 *   CHUNKS, HELD, KEPT(lane)    chunks of all parts, those in registers, those in shared memory; others are copied every time
 *   GROUPS(lane), RING(lane)    groups of chunks, and those that there is room for: some of a tile, evenly, or those of two
 *   group_pass, group_first, group_chunks, group_before(lane, group)   pass, first chunk of it, chunks, those of groups before
 *   depth(pass), pass_chunks(pass), chunk_pass(lane, chunk), chunk_first(lane, chunk)
 *   channel(step, pass)         place of the operand; the next one is its counter
 *   places(step), views(step), first_place(step)   of a step: places, those that are views or twins, those of steps before
 *   row_place(step), leaves(step)   place of how many rows go on, or -1; whether it rests where none does
 *   UNIT_ROWS                   of weights that a unit has in a lane: its products, or, where these are paired, those of a lane
 *   product_lane(product)       the lane that has it, or -1: both
 *   product_row(product)        of its unit
 *   right(pass, row)            place of the weights, or -1; right_any(pass): of some row
 *   IS_STARTED, start(product)  place of what all rows of a product begin with, or -1, where the steps leave it to the sums
 *   waits(step), wait_place(step, n)        counters of what the map reads of other seats
 *   raises(step), raise_place(step, n)      counters of what others read
 *   each(f)                     calls f.step<Step0>(0), f.step<Step1>(1), ...; Tiled: the first of these with products
 * and a step TILED, RAISES, WAITS, COUNTED (row_place), CARRIES (some of its Values stay from one iteration to the next; only Tiled's,
 * and where TILES is 1), Values, fetch(frame, row, column, values), fetch_late() of what comes from other seats, apply(frame, row,
 * column, sums, values, tell), which calls tell() when all that others read is written. A step that is taken by rows (BY_ROWS) has Row, of kernel/rows.cuh, and no sums of products: the rows of a tile are shared out between
 * the blocks of the seat, and every thread meets the others before it reads what these wrote. fetch_tagged() reads what comes
 * with tags, before. */

/* ---- maps ---- */

/* One of two variables of different types. */
template <bool FIRST, class A, class B> INLINE auto &choose(A &a, B &b) {
    if constexpr (FIRST)
        return a;
    else
        return b;
}

/* A thread that takes elements of the maps; it multiplies, too, or gets sums from those who do. */
template <class S, class Base> struct Mapper : Base {
    using Base::block, Base::shared, Base::thread, Base::buffer;
    static constexpr int VECTORS = TILE_ROWS * S::UNITS / VECTOR, EACH = (VECTORS + MAPPERS - 1) / MAPPERS;
    static constexpr int ACROSS = S::UNITS / VECTOR;
    const int mapper; /* of MAPPERS */
    Turn<2> told;
    int i;
    typename S::Tiled::Values kept[S::Tiled::CARRIES ? EACH : 1]; /* some of which stay from iteration to iteration */
#if CLUSTER
    Slots sent = {0, S::FROM_MEMORY};
#endif

    INLINE Mapper(const Block &block) : Base(block), mapper((int)threadIdx.x - FIRST_MAPPER), i(0) {}

#if CLUSTER
    /* Lets what the map publishes of a tile go to its slot in all blocks, if somebody reads it. */
    INLINE void send_to_slot(Frame &f) {
        const Place *places = Shared::places() + S::first_place(S::TILED_STEP);
        const bool read = places[S::channel(S::TILED_STEP, 0) + 1].is_fresh(i + S::AHEAD);
        f.to = read ? shared.slot(sent.slot()) : 0;
        f.barrier = shared.full(0, sent.slot());
        sent.move(block);
    }
#endif

    /* Addresses of a step's places at an iteration. */
    INLINE void find_addresses(const Due &due, int k, int i) const {
        const int first = S::first_place(k);
#pragma unroll 1
        for (int p = mapper; p < S::places(k); p += MAPPERS) {
            const Place &place = Shared::places()[first + p];
            unsigned long long at = p < S::views(k) ? place.view(i, due.time(i)) : place.slot(i);
#if ROW_SUMS
            if (p >= S::views(k) && (p - S::views(k)) % 2 == 0 && place.ring & 1) /* values with tags */
                at = (&place)[1].is_fresh(i) ? place.view(i, due.time(i)) : 0;
#endif
            Shared::addresses(i % 3)[first + p] = at;
        }
    }

    /* What this thread gives is written: the teller waits for all threads, and raises counters. That takes until all that the block
     * has written is there; so who has nothing else to do meanwhile (HOLDS) writes nothing more before. */
    INLINE void tell() {
        if (!HOLDS) barrier_wait(shared.telling(told.n) + 8, told.parity ^ 1);
        __syncwarp();
        if (thread == 0) barrier_arrive(shared.telling(told.n));
        if (HOLDS) barrier_wait(shared.telling(told.n) + 8, told.parity);
        told.move();
    }

    /* Addresses of an iteration are found in the one before, while those of the one before that may still be read: threads meet
     * at least once a step. */
    template <class T> INLINE void step(int k) {
        Due due(block.c, block.step_at(k));
        if (!due.is_due(i)) return;
        if (i == due.low) {
            find_addresses(due, k, i);
            meet_mappers();
        }
        find_addresses(due, k, i + 1);
        if (THIRD) meet_mappers();
        Frame f = {Shared::addresses(i % 3) + S::first_place(k), 0, 0, true, true, i == due.low};
        int going = BATCH_OF(block.c);
        if constexpr (T::COUNTED >= 0) going = rows_going(f.place(T::COUNTED));
        if constexpr (T::BY_ROWS)
            take_rows<T>(k, f, going);
        else
            take_columns<T>(k, f, going);
    }

    /* All rows of the block's columns. */
    template <class T> INLINE void take_columns(int k, Frame &f, int going) {
#pragma unroll 1
        for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0; tile++) {
            const int high = block.tile_rows(tile), row = block.tile_row(tile);
            const bool works = CLUSTER || !S::leaves(k) || row < going; /* else it rests */
            typename T::Values own[T::CARRIES ? 1 : EACH];
            auto &values = choose<T::CARRIES>(kept, own);
            auto fetch = [&](bool late) {
#pragma unroll
                for (int e = 0; e < EACH; e++) {
                    int v = mapper + e * MAPPERS, n = min(v / ACROSS, high - 1), u = v % ACROSS * VECTOR;
                    int column = min(block.column + u, S::COLUMNS - VECTOR);
                    if (late)
                        T::fetch_late(f, row + n, column, values[e]);
                    else
                        T::fetch(f, row + n, column, values[e]);
                }
            };
            fetch(false);
            const bool waits = (THIRD || !T::TILED) && T::WAITS > 0 && works; /* else whoever copies does */
            if (waits) wait_for_values(k, block.tile(tile));
            if (waits || !T::TILED || !works) meet_mappers();
            if (waits) fetch(true);
            if (T::TILED && works) this->bring_sums([&]() { fetch(true); });
            f.tile = block.tile(tile);
#if CLUSTER
            if (k == S::SENDER) send_to_slot(f);
#endif
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                int v = mapper + e * MAPPERS, u = v % ACROSS * VECTOR;
                f.n = v / ACROSS;
                f.there = f.n < high && block.column + u < S::COLUMNS;
#if CLUSTER
                f.sent = f.n < high && block.column + u / PIECE * PIECE < S::COLUMNS;
#endif
                f.goes_on = row + f.n < going;
                REAL sums[S::PRODUCTS][VECTOR] = {};
                if (T::TILED && works) {
#pragma unroll
                    for (int p = 0; p < S::PRODUCTS; p++) this->find_sums(p, min(f.n, TILE_ROWS - 1), u, sums[p]);
                    if (e == EACH - 1) this->leave_sums();
                }
                T::apply(f, row + f.n, block.column + u, sums, values[e], [&]() {
                    if (e == EACH - 1 && T::RAISES > 0) tell();
                });
            }
            if (T::TILED && works) buffer.move();
        }
    }

    /* Waits for what other blocks have written of a tile; all threads may read it when they have met. */
    INLINE void wait_for_values(int k, int tile) const {
        const Place *places = Shared::places() + S::first_place(k);
        if (mapper >= 32) return;
#pragma unroll 1
        for (int first = 0; first < S::waits(k); first += 32) {
            const int n = first + thread;
            const Place &counter = places[S::wait_place(k, n)];
            const bool fresh = n < S::waits(k) && counter.is_fresh(i);
            const unsigned same = __match_any_sync(0xffffffffu, fresh ? counter.address : 0ull);
            if (fresh && (same & (1u << thread) - 1) == 0) /* once for all that have one counter */
                wait_for_place(block, counter, i, tile);
            __syncwarp();
        }
    }

    /* The block's rows of every tile, all columns: PER of a tile, AT_ONCE side by side. */
    template <class T> INLINE void take_rows(int k, Frame &f, int going) {
        using Row = typename T::Row;
        constexpr int PER = (TILE_ROWS + S::BLOCKS - 1) / S::BLOCKS, AT_ONCE = MULTIPLIERS / Row::ACROSS;
        const int first = block.column / S::UNITS * PER, column = (int)threadIdx.x % Row::ACROSS * VECTOR;
#pragma unroll 1
        for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0; tile++) {
            const int end = min(block.tile_rows(tile), first + PER);
            const bool works = !S::leaves(k) || block.tile_row(tile) < going; /* else it rests */
            f.tile = block.tile(tile);
#pragma unroll 1
            for (int n = first; n < end; n += AT_ONCE) {
                typename T::Values values;
                f.n = n + (int)threadIdx.x / Row::ACROSS;
                f.there = f.n < end;
                const long long row = block.tile_row(tile) + min(f.n, end - 1);
                f.goes_on = row < going;
                T::fetch(f, row, column, values);
                if (n == first && works) wait_for_values(k, f.tile);
                T::fetch_tagged(block.c, f, row, column, values);
                meet_mappers(); /* nobody reads sums of rows before */
                if (works) T::fetch_late(f, row, column, values);
                T::apply(f, row, column, values, [&]() {
                    if (n + AT_ONCE >= end && T::RAISES > 0) tell();
                });
            }
            if (first >= end) { /* it has none, and says so */
                meet_mappers();
                if (T::RAISES > 0) tell();
            }
        }
    }

    INLINE void run() {
        this->begin_loop();
#pragma unroll 1
        for (i = 0; i < ITERATIONS_OF(block.c); i++) S::each(*this);
    }
};

template <class S, int LANE> using Multiplier = Mapper<S, Products<S, LANE>>;

/* A thread that only multiplies, for those of a third warpgroup. */
template <class S, int LANE> struct Giver : Products<S, LANE> {
    using Base = Products<S, LANE>;
    using Base::block;
    int i;
    INLINE Giver(const Block &block) : Base(block) {}

    template <class T> INLINE void step(int k) {
        if (!T::TILED || !Due(block.c, block.step_at(k)).is_due(i)) return;
        const int going = S::leaves(k) ? find_going<S>(k, i) : BATCH_OF(block.c);
#pragma unroll 1
        for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0 && block.tile_row(tile) < going; tile++)
            this->give_sums();
    }

    INLINE void run() {
        this->begin_loop();
#pragma unroll 1
        for (i = 0; i < ITERATIONS_OF(block.c); i++) S::each(*this);
    }
};

/* ---- blocks ---- */

template <class S> INLINE Block find_block(const Words &c, int seat) {
    int n = (int)blockIdx.x - (int)c.w[seat], across = S::BLOCKS;
    int row = n / across * SLICE;
    return Block{c, seat, n % across * S::UNITS, row, min(SLICE, BATCH_OF(c) - row), n / across};
}

/* Where the words of the block's seat begin. */
INLINE int find_seat(const Words &c) {
    int seat = HEADER_WORDS;
    for (int s = 1; s < SEATS; s++)
        if ((int)blockIdx.x >= (int)c.w[HEADER_WORDS + s * SEAT_WORDS]) seat = HEADER_WORDS + s * SEAT_WORDS;
    return seat;
}

INLINE void bring_places(const Words &c, int seat) {
    for (int k = 0, n = 0; k < SEAT_WORDS - 2; k++) {
        int at = (int)c.w[seat + 2 + k], count = (int)(c.w[seat + 2 + k] >> 32);
        for (int w = (int)threadIdx.x; w < count * PLACE_WORDS; w += THREADS)
            ((unsigned long long *)(Shared::places() + n))[w] = c.w[at + STEP_WORDS + w];
        n += count;
    }
}

#if !CLUSTER /* else kernel/cluster.cuh has the rest */

/* ---- telling ---- */

/* One warp raises the counters of what the block has written: that takes as long as the writing, and nobody else waits for it. */
template <class S> INLINE void tell_all(const Block &block) {
    const int thread = (int)threadIdx.x % 32;
    Shared shared;
    Turn<2> told;
#pragma unroll 1
    for (int i = 0; i < ITERATIONS_OF(block.c); i++) {
#pragma unroll 1
        for (int k = 0; k < S::STEPS; k++) {
            Due due(block.c, block.step_at(k));
            if (S::raises(k) == 0 || !due.is_due(i)) continue;
            const Place &place = Shared::places()[S::first_place(k) + S::raise_place(k, thread)];
            unsigned long long counter = thread < S::raises(k) ? place.slot(i) : 0;
#pragma unroll 1
            for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0; tile++) {
                barrier_wait(shared.telling(told.n), told.parity);
                if (counter) raise(counter + (unsigned long long)(block.tile(tile) * 4));
                __syncwarp();
                if (thread == 0) barrier_arrive(shared.telling(told.n) + 8);
                told.move();
            }
        }
    }
}

/* ---- roles ---- */

template <class S> INLINE void load_all(const Words &c, int seat) {
    Block block = find_block<S>(c, seat);
    asm volatile("bar.sync 0;" ::: "memory");
    int warp = ((int)threadIdx.x - FIRST_LOADER) / 32;
    if (warp == 0 && threadIdx.x % 32 == 0) Loader<S, 0>(block).run();
    if (warp == 1 && threadIdx.x % 32 == 0) Loader<S, 1>(block).run();
    if (warp == 2) tell_all<S>(block);
}

template <class S> INLINE void multiply_all(const Words &c, int seat) {
    Block block = find_block<S>(c, seat);
    if constexpr (THIRD) {
        if (threadIdx.x < 128)
            Giver<S, 0>(block).run();
        else
            Giver<S, 1>(block).run();
    } else {
        if (threadIdx.x < 128)
            Multiplier<S, 0>(block).run();
        else
            Multiplier<S, 1>(block).run();
    }
}

template <class S> INLINE void map_all(const Words &c, int seat) {
    Block block = find_block<S>(c, seat);
    Mapper<S, GivenSums<S>>(block).run();
}

/* Written behind this text: calls multiply_all, map_all or load_all for the class of this number. */
enum Role { MULTIPLIES, MAPS, LOADS };
template <Role ROLE> INLINE void for_class(const Words &c, int seat, int index);

extern "C" __global__ void __launch_bounds__(512, 1) persistent_kernel(const __grid_constant__ Words c) {
    const int seat = find_seat(c);
    bring_places(c, seat);
    if (threadIdx.x == 0) {
        Shared shared;
        for (int n = 0; n < 2 * MOST_RING; n++) {
            barrier_make(shared.full(0, n), 1);
            barrier_make(shared.empty(0, n), 4);
        }
        for (int n = 0; n < 2; n++) {
            barrier_make(shared.telling(n), MAPPERS / 32);
            barrier_make(shared.telling(n) + 8, 1);
            barrier_make(shared.giving(n), MULTIPLIERS / 32);
            barrier_make(shared.giving(n) + 8, MAPPERS / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int index = (int)c.w[seat + 1];
    if (threadIdx.x < MULTIPLIERS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)MULTIPLIER_REGISTERS));
        for_class<MULTIPLIES>(c, seat, index);
    } else if (THIRD && threadIdx.x < FIRST_LOADER) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)MAPPER_REGISTERS));
        for_class<MAPS>(c, seat, index);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)LOADER_REGISTERS));
        for_class<LOADS>(c, seat, index);
    }
}

#endif
