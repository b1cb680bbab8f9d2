/* Sums of products in shared memory: the MMA warpgroups write them, map threads read them. Follows kernel/shared.cuh.
 *
 * A buffer has the sums of both pipes, [columns of the MMA, 64 rows of weights] float32 each. A value of a product is the sum over both
 * pipes (each has a part of depth) and over the depth splits. */

/* What a map thread reads. */
template <class Task> struct SumReader {
    const Block &block;
    const int thread; /* lane of its warp */
    Shared shared;
    BufferIndex<SUM_BUFFERS> buffer;

    INLINE SumReader(const Block &block) : block(block), thread((int)threadIdx.x % 32) {}

    /* The sum of row n of the tile and row m of the weights is at n * 64 + (m ^ bank_shift(n)), so that neither writers nor readers have bank
     * conflicts. */
    static INLINE int bank_shift(int n) { return (n & 1) << 4 ^ (n >> 1 & 3) << 3; }

    INLINE void add_sums(int pipe, int n, int m, REAL (&x)[VECTOR], bool more) const {
        if (Task::CHUNKS(pipe) == 0) return;
        const float *from = (const float *)(shared_memory + (shared.sums(buffer.n, pipe) - shared.base));
#pragma unroll
        for (int q = 0; q < SPLITS; q++) {
            const int row = q * TILE_ROWS + n,
                      at = row * 64 + ((q * Task::UNIT_ROWS * Task::UNITS + m) ^ bank_shift(row));
#pragma unroll
            for (int v = 0; v < VECTOR; v++) x[v] = (more || q > 0 ? x[v] : 0) + from[at + v];
        }
    }

#if CLUSTER
    /* The value of a product: the sum over all depth splits; a split is in one of the pipes. */
    INLINE void read_sums(int p, int n, int unit, REAL (&x)[VECTOR]) const {
        const int m = Task::product_row(p) * Task::UNITS + unit;
#pragma unroll
        for (int q = 0; q < SPLITS; q++) {
            const int pipe = SPLITS > 1 ? q / PIPE_SPLITS : m / 64, depth_splits = q % PIPE_SPLITS,
                      row = depth_splits * TILE_ROWS + n,
                      at = row * 64 +
                           ((SPLITS > 1 ? depth_splits * Task::UNIT_ROWS * Task::UNITS + m : m % 64) ^ bank_shift(row));
            const float *from = (const float *)(shared_memory + (shared.sums(buffer.n, pipe) - shared.base));
#pragma unroll
            for (int v = 0; v < VECTOR; v++) x[v] = (q > 0 ? x[v] : 0) + from[at + v];
        }
    }
#else
    /* The value of a product: the sum over both pipes, or of the pipe that has it. */
    INLINE void read_sums(int p, int n, int unit, REAL (&x)[VECTOR]) const {
        const int m = Task::product_row(p) * Task::UNITS + unit, pipe = Task::product_pipe(p);
        if (pipe != 1) add_sums(0, n, m, x, false);
        if (pipe != 0) add_sums(1, n, m, x, pipe < 0 && Task::CHUNKS(0) > 0);
    }
#endif
};

/* Sums for a map warpgroup: other warpgroups compute them. */
template <class Task> struct ReceivedSums : SumReader<Task> {
    using Base = SumReader<Task>;
    using Base::shared, Base::thread, Base::buffer;
    INLINE ReceivedSums(const Block &block) : Base(block) {}
    INLINE void begin_loop() { asm volatile("bar.sync 0;" ::: "memory"); }
    template <class F> INLINE void obtain_sums(F) { barrier_wait(shared.sums_written(buffer.n), buffer.parity); }
    INLINE void release_sums() {
        __syncwarp();
        if (thread == 0) barrier_arrive(shared.sums_written(buffer.n) + 8);
    }
};
