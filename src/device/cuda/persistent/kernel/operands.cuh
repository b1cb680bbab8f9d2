/* Operands of a pipe: the right operand (B) of the MMA, a tile of rows of the batch, as it lies in shared memory. Follows kernel/sums.cuh.
 *
 * A copy thread brings groups of chunks to the slots of a ring (kernel/copy.cuh). In clusters the blocks send operands instead, and
 * kernel/receive.cuh has the functions that wait for them. */

template <class Task, int PIPE> struct Operands : SumReader<Task> {
    using Base = SumReader<Task>;
    using Base::block, Base::shared, Base::thread;
    static constexpr int GROUPS = Task::GROUPS(PIPE), RING = Task::RING(PIPE);
    static constexpr int FIRST_SPLIT = SPLITS > PIPE_SPLITS ? PIPE *PIPE_SPLITS : 0; /* of the pipe */
    const int warp;                                                                  /* of the warpgroup */
    Ring<Task, PIPE> ring;

    INLINE Operands(const Block &block) : Base(block), warp((int)threadIdx.x / 32 % 4) {}

    /* Parts need many addresses. Making the base opaque for every group has the compiler compute them again instead of keeping them in registers. */
    INLINE void recompute_addresses() {
        if (PARTS > 1) asm volatile("" : "+r"(shared.base));
    }

#if !CLUSTER /* in clusters kernel/receive.cuh has these */
    INLINE void release(int n) {
        if (thread == 0) barrier_arrive(shared.empty(PIPE, n));
    }

    INLINE unsigned chunk_at(int g, int c) const { return shared.chunk(PIPE, ring.slot(g), c); }
    INLINE void wait_for_group(int g) const { barrier_wait(shared.full(PIPE, ring.slot(g)), ring.parity(g)); }
    INLINE void end_tile() { ring.advance(); }
#endif
};
