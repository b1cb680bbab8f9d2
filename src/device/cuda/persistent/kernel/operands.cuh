/* Operands of a pipe: the right operand (B) of the MMA, a tile of rows of the batch, as it lies in shared memory. Follows kernel/sums.cuh.
 *
 * Without clusters a copy thread brings groups of chunks to the slots of a ring (kernel/copy.cuh); in a cluster the blocks send the whole
 * operand of a tile to one of two slots (kernel/send.cuh). */

template <class Task, int PIPE> struct Operands : SumReader<Task> {
    using Base = SumReader<Task>;
    using Base::block, Base::shared, Base::thread;
    static constexpr int GROUPS = Task::GROUPS(PIPE), RING = Task::RING(PIPE);
    static constexpr int FIRST_SPLIT = SPLITS > PIPE_SPLITS ? PIPE *PIPE_SPLITS : 0; /* of the pipe */
    const int warp;                                                                  /* of the warpgroup */
    Ring<Task, PIPE> ring;
#if CLUSTER
    Slots received = {0, 0};
#endif

    INLINE Operands(const Block &block) : Base(block), warp((int)threadIdx.x / 32 % 4) {}

    /* Parts need many addresses. Making the base opaque for every group has the compiler compute them again instead of keeping them in registers. */
    INLINE void recompute_addresses() {
        if (PARTS > 1) asm volatile("" : "+r"(shared.base));
    }

#if CLUSTER
    INLINE void release(int) {} /* nothing to release: see kernel/send.cuh */

    INLINE unsigned chunk_at(int g, int c) const {
        return shared.slot(received.slot()) +
               (unsigned)((Task::group_before(PIPE, g) + c) * CHUNK_BYTES + FIRST_SPLIT * (TILE_ROWS * 128));
    }

    /* Waits until the whole operand has arrived, and re-arms the mbarrier for the next operand of the slot. */
    INLINE void wait_for_group(int g) {
        if (g > 0) return;
        const unsigned full = shared.full(0, received.slot());
        wait_for_peers(block.c, full, received.parity());
        if (threadIdx.x == 0) barrier_expect(full, block.tile_rows(received.tile) * Task::ROW_BYTES);
        __syncwarp(); /* mma needs a converged warp */
    }
    INLINE void end_tile() { received.advance(block); }
#else
    INLINE void release(int n) {
        if (thread == 0) barrier_arrive(shared.empty(PIPE, n));
    }

    INLINE unsigned chunk_at(int g, int c) const { return shared.chunk(PIPE, ring.slot(g), c); }
    INLINE void wait_for_group(int g) const { barrier_wait(shared.full(PIPE, ring.slot(g)), ring.parity(g)); }
    INLINE void end_tile() { ring.advance(); }
#endif
};
