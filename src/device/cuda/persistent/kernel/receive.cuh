/* Operands that the blocks of a cluster have sent (kernel/send.cuh): the whole operand of a tile is in one of two slots. Follows
 * kernel/weights.cuh where CLUSTER is not 0, and has the functions of kernel/operands.cuh for clusters. */

template <class Task, int PIPE> struct ReceivedOperands : Weights<Task, PIPE> {
    using Base = Weights<Task, PIPE>;
    using Base::block, Base::shared, Base::FIRST_SPLIT;
    Slots received = {0, 0};

    INLINE ReceivedOperands(const Block &block) : Base(block) {}

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
};

/* What products read: operands that have been received, and weights. */
template <class Task, int PIPE> using ProductInputs = ReceivedOperands<Task, PIPE>;
