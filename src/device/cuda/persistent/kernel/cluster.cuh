/* A persistent kernel with thread block clusters: the kernel's entry where CLUSTER is not 0. Follows kernel/persistent.cuh; see kernel/send.cuh.
 *
 * A block has 128 rows of weights, 64 for each pipe, and both pipes read the operand in the block's shared memory. Where depth is split, a
 * pipe has half of the splits. There are neither copy threads nor a signal warp: all 256 threads multiply, compute the map and send. Blocks of
 * different clusters do not wait for each other, so it does not matter which clusters run at once.
 *
 * struct Task also has
 *   SENDER, AHEAD   the step that sends, and how many iterations later its operand is read
 *   FROM_MEMORY     the first operand is in memory before the loop
 *   ROW_BYTES       bytes that are sent of a row of the batch, to each block */

/* Clears all slots: columns that no block has stay zero. */
INLINE void clear_slots(const Shared &shared) {
    const unsigned nothing[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (int n = (int)threadIdx.x; n < 2 * PIPE_BYTES / 16; n += MMA_THREADS)
        write_segment(shared.base + (unsigned)(n * 16), nothing);
    fence_shared();
    asm volatile("bar.sync 0;" ::: "memory");
}

/* One thread sets what both slots of every tile wait for first, and copies the first operand if it comes from memory. */
template <class Task> INLINE void expect_first_operands(const Block &block, const Shared &shared) {
    const Argument *arguments = Shared::arguments() + Task::first_argument(Task::PRODUCT_STEP);
    const int low = Schedule(block.c, block.step_at(Task::PRODUCT_STEP)).low;
#pragma unroll 1
    for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0; tile++) {
        const unsigned full = shared.full(0, 2 * tile);
        barrier_expect(shared.full(0, 2 * tile + 1), block.tile_rows(tile) * Task::ROW_BYTES);
        barrier_expect(full,
                       Task::FROM_MEMORY ? Task::CHUNKS(0) * CHUNK_BYTES : block.tile_rows(tile) * Task::ROW_BYTES);
#pragma unroll 1
        for (int g = 0; Task::FROM_MEMORY && g < Task::GROUPS(0); g++) {
            const int pass = Task::group_pass(0, g), bytes = Task::group_chunks(0, g) * CHUNK_BYTES;
            copy_bulk(shared.slot(2 * tile) + (unsigned)(Task::group_before(0, g) * CHUNK_BYTES),
                      arguments[Task::channel(Task::PRODUCT_STEP, pass)].slot(low) +
                          (unsigned long long)((long long)block.tile(tile) * bytes),
                      bytes, full);
        }
    }
}

template <class Task, int PIPE> INLINE void run_lane(const Block &block) {
    MmaMapThread<Task, PIPE> pipe(block);
    pipe.load_weights();
    clear_slots(pipe.shared);
    if (threadIdx.x == 0) expect_first_operands<Task>(block, pipe.shared);
    if (pipe.STARTED) pipe.load_starts();
    sync_cluster(); /* no block sends before all are ready */
#pragma unroll 1
    for (pipe.i = 0; pipe.i < ITERATIONS_OF(block.c); pipe.i++) Task::each(pipe);
    sync_cluster(); /* a block must not end while others may send to it */
}

template <class Task> INLINE void multiply_all(const Words &c, int task) {
    Block block = find_block<Task>(c, task);
    if (threadIdx.x < 128)
        run_lane<Task, 0>(block);
    else
        run_lane<Task, 1>(block);
}

/* Generated after this text: calls multiply_all for the variant with this number. */
INLINE void run_variant(const Words &c, int task, int index);

extern "C" __global__ void __launch_bounds__(THREADS, 1) persistent_kernel(const __grid_constant__ Words c) {
    const int task = find_task(c);
    load_arguments(c, task);
    if (threadIdx.x == 0) {
        Shared shared;
        for (int n = 0; n < 2 * TILES; n++) barrier_make(shared.full(0, n), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    run_variant(c, task, (int)c.w[task + 1]);
}
