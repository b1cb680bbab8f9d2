/* A warpgroup that multiplies: weights, operands and products of its pipe, tile after tile. Follows kernel/products_mma.cuh. */

template <class Task, int PIPE> struct Products : TileProducts<Task, PIPE> {
    using Base = TileProducts<Task, PIPE>;
    using Base::shared, Base::thread, Base::buffer, Base::CHUNKS, Base::STARTED;
    using typename Base::Sums;

    INLINE Products(const Block &block) : Base(block) {}

    INLINE void begin_loop() {
        this->load_weights();
        if (STARTED) this->load_starts();
    }

    /* Products of a tile: this pipe's part of depth, or, of paired products and in clusters, its rows of weights. */
    template <class F> INLINE void multiply_tile(Sums &sums, F fetch_remote) {
        this->wait_for_group(0);
        fetch_remote();
        this->begin(sums);
        this->template multiply_group<0>(sums);
        this->end(sums);
        this->end_tile();
    }

    /* With one sum buffer: waits until the sums of the tile before have been read. */
    static INLINE void wait_until_sums_are_read() {
        if (SUM_BUFFERS == 1) asm volatile("bar.sync 4, 256;" ::: "memory");
    }

    /* Computes the sums of both pipes into shared memory. Values of other tasks are loaded when the first chunk has arrived. */
    template <class F> INLINE void obtain_sums(F fetch_remote) {
        if constexpr (CHUNKS > 0) {
            Sums sums;
            multiply_tile(sums, fetch_remote);
            wait_until_sums_are_read();
            this->write_sums(shared.sums(buffer.n, PIPE), sums);
        } else {
            wait_until_sums_are_read();
        }
        sync_map_threads();
        if (CHUNKS == 0) fetch_remote(); /* the other pipe has waited for it */
    }
    INLINE void release_sums() {}

    /* Computes sums for the map warpgroup, which waits in ReceivedSums. */
    INLINE void hand_over_sums() {
        const unsigned given = shared.sums_written(buffer.n), taken = given + 8, before = buffer.parity ^ 1;
        if constexpr (CHUNKS > 0) {
            Sums sums;
            multiply_tile(sums, []() {});
            barrier_wait(taken, before);
            this->write_sums(shared.sums(buffer.n, PIPE), sums);
        } else {
            barrier_wait(taken, before);
        }
        __syncwarp();
        if (thread == 0) barrier_arrive(given);
        buffer.advance();
    }
};
