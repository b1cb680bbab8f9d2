/* Roles of the warps of a block, and the kernel. Follows kernel/maps.cuh.
 *
 *     warpgroup 0    multiplies pipe 0's part of depth   } and both compute the maps,
 *     warpgroup 1    multiplies pipe 1's part of depth   } unless MAP_WARPGROUP
 *     warpgroup 2    computes the maps, if MAP_WARPGROUP; else it has the roles of warpgroup 3
 *     warpgroup 3    warps 0 and 1: one copy thread for each pipe; warp 2: signals
 *
 * All blocks of the grid run at once (cooperative launch), one on a processor. docs/PERSISTENT.md shows a block over time. */

/* ---- blocks ---- */

template <class Task> INLINE Block find_block(const Words &c, int task) {
    int n = (int)blockIdx.x - (int)c.w[task], across = Task::BLOCKS;
    int row = n / across * SLICE;
    return Block{c, task, n % across * Task::UNITS, row, min(SLICE, BATCH_OF(c) - row), n / across};
}

/* Index of the words of the block's task. */
INLINE int find_task(const Words &c) {
    int task = HEADER_WORDS;
#pragma unroll 1
    for (int s = 1; s < TASKS_OF(c); s++)
        if ((int)blockIdx.x >= (int)c.w[HEADER_WORDS + s * TASK_WORDS]) task = HEADER_WORDS + s * TASK_WORDS;
    return task;
}

INLINE void load_arguments(const Words &c, int task) {
    for (int k = 0, n = 0; k < TASK_WORDS - 2; k++) {
        int at = (int)c.w[task + 2 + k], count = (int)(c.w[task + 2 + k] >> 32);
        for (int w = (int)threadIdx.x; w < count * ARGUMENT_WORDS; w += THREADS)
            ((unsigned long long *)(Shared::arguments() + n))[w] = c.w[at + STEP_WORDS + w];
        n += count;
    }
}

#if !CLUSTER /* in clusters kernel/cluster.cuh has the rest */

/* ---- signalling ---- */

/* One warp increments the counters of what the block has written. The release waits for the writes; no other warp waits for it. */
template <class Task> INLINE void run_signal_warp(const Block &block) {
    const int thread = (int)threadIdx.x % 32;
    Shared shared;
    BufferIndex<2> signal_buffer;
#pragma unroll 1
    for (int i = 0; i < ITERATIONS_OF(block.c); i++) {
#pragma unroll 1
        for (int k = 0; k < Task::STEPS; k++) {
            Schedule due(block.c, block.step_at(k));
            if (Task::signals(k) == 0 || !due.is_due(i)) continue;
            const Argument &argument = Shared::arguments()[Task::first_argument(k) + Task::signal_argument(k, thread)];
            unsigned long long counter = thread < Task::signals(k) ? argument.slot(i) : 0;
#pragma unroll 1
            for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0; tile++) {
                barrier_wait(shared.stores_done(signal_buffer.n), signal_buffer.parity);
                if (counter) increment_counter(counter + (unsigned long long)(block.tile(tile) * 4));
                __syncwarp();
                if (thread == 0) barrier_arrive(shared.stores_done(signal_buffer.n) + 8);
                signal_buffer.advance();
            }
        }
    }
}

/* ---- roles ---- */

template <class Task> INLINE void copy_all(const Words &c, int task) {
    Block block = find_block<Task>(c, task);
    asm volatile("bar.sync 0;" ::: "memory");
    int warp = ((int)threadIdx.x - FIRST_COPY_THREAD) / 32;
    if (warp == 0 && threadIdx.x % 32 == 0) CopyThread<Task, 0>(block).run();
    if (warp == 1 && threadIdx.x % 32 == 0) CopyThread<Task, 1>(block).run();
    if (warp == 2) run_signal_warp<Task>(block);
}

template <class Task> INLINE void multiply_all(const Words &c, int task) {
    Block block = find_block<Task>(c, task);
    if constexpr (MAP_WARPGROUP) {
        if (threadIdx.x < 128)
            MmaThread<Task, 0>(block).run();
        else
            MmaThread<Task, 1>(block).run();
    } else {
        if (threadIdx.x < 128)
            MmaMapThread<Task, 0>(block).run();
        else
            MmaMapThread<Task, 1>(block).run();
    }
}

template <class Task> INLINE void map_all(const Words &c, int task) {
    Block block = find_block<Task>(c, task);
    MapThread<Task, ReceivedSums<Task>>(block).run();
}

/* Generated after this text: calls multiply_all, map_all or copy_all for the variant with this number. */
enum Role { MULTIPLIES, MAPS, COPIES };
template <Role ROLE> INLINE void run_variant(const Words &c, int task, int index);

extern "C" __global__ void __launch_bounds__(512, 1) persistent_kernel(const __grid_constant__ Words c) {
    const int task = find_task(c);
    load_arguments(c, task);
    if (threadIdx.x == 0) {
        Shared shared;
        for (int n = 0; n < 2 * MAX_RING; n++) {
            barrier_make(shared.full(0, n), 1);
            barrier_make(shared.empty(0, n), 4);
        }
        for (int n = 0; n < 2; n++) {
            barrier_make(shared.stores_done(n), MAP_THREADS / 32);
            barrier_make(shared.stores_done(n) + 8, 1);
            barrier_make(shared.sums_written(n), MMA_THREADS / 32);
            barrier_make(shared.sums_written(n) + 8, MAP_THREADS / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int index = (int)c.w[task + 1];
    if (threadIdx.x < MMA_THREADS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)MMA_REGISTERS));
        run_variant<MULTIPLIES>(c, task, index);
    } else if (MAP_WARPGROUP && threadIdx.x < FIRST_COPY_THREAD) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)MAP_REGISTERS));
        run_variant<MAPS>(c, task, index);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)COPY_REGISTERS));
        run_variant<COPIES>(c, task, index);
    }
}

#endif
