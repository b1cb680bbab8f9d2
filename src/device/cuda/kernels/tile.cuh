/* The kernel with products. Follows tile_pipeline.cuh and a multiplier. */

namespace tile {

static_assert(Multiplier::SPLIT * TILE_ROWS * PITCH * sizeof(REAL) <= STAGES * STAGE, "room for the sums");

TILE_FUNCTION void consume(const Block &block, Pipeline pipeline, const unsigned char *memory, Multiplier &multiplier) {
    int chunks = block.chunks();
    unsigned before = 0; /* the barrier of the stage read in the last iteration */
#pragma unroll 1
    for (int i = multiplier.turn(); i < chunks; i += Multiplier::TURNS) {
        barrier_wait(pipeline.full(pipeline.stage), pipeline.parity);
        multiplier.multiply(memory + pipeline.stage * STAGE, block.groups(i));
        unsigned done = Multiplier::DEFERRED ? before : pipeline.free(pipeline.stage);
        before = pipeline.free(pipeline.stage);
        __syncwarp();
        if (threadIdx.x % 32 == 0 && (!Multiplier::DEFERRED || done)) barrier_arrive(done);
        pipeline.move(Multiplier::TURNS);
    }
    multiplier.end();
}

struct __align__(VECTOR * sizeof(REAL)) Run {
    REAL at[VECTOR];
};

/* The epilogue: adds the teams' sums and calls apply(); neighbouring threads have neighbouring columns. */
TILE_FUNCTION void finish(const Block &block, const REAL *from) {
    constexpr int RUNS = TILE_UNITS / VECTOR;
#pragma unroll 1
    for (int i = threadIdx.x; i < TILE_ROWS * RUNS; i += THREADS) {
        int row = i / RUNS, unit = i % RUNS * VECTOR;
        if (row >= block.high || unit >= block.wide) continue;
        REAL sums[PRODUCTS][VECTOR];
#pragma unroll
        for (int p = 0; p < PRODUCTS; ++p) {
            const REAL *at = from + row * PITCH + p * TILE_UNITS + unit;
            Run run = *(const Run *)at;
#pragma unroll
            for (int team = 1; team < Multiplier::SPLIT; ++team) {
                Run more = *(const Run *)(at + team * TILE_ROWS * PITCH);
#pragma unroll
                for (int v = 0; v < VECTOR; ++v) run.at[v] += more.at[v];
            }
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) sums[p][v] = run.at[v];
        }
        apply(block.words, (int)blockIdx.z, block.row + row, block.column + unit, sums);
    }
}

TILE_FUNCTION void run(const Words &c) {
    extern __shared__ __align__(1024) unsigned char memory[]; /* [STAGES][STAGE], at the end the sums; then barriers */
    Block block(c);
    if (block.high <= 0) return;
    unsigned stages = shared_address(memory);
    if (threadIdx.x >= CONSUMERS * 32) {
        Producer(block).run(block, Pipeline(stages, 0));
        block_barrier();
    } else {
        Multiplier multiplier;
        Pipeline pipeline(stages, multiplier.turn());
        if (threadIdx.x == 0) pipeline.make(CONSUMERS / Multiplier::TURNS);
        block_barrier();
        consume(block, pipeline, memory, multiplier);
        block_barrier(); /* all reads of stages are done */
        multiplier.store((REAL *)memory);
    }
    block_barrier();
    finish(block, (const REAL *)memory);
}

} /* namespace tile */

extern "C" __global__ void __launch_bounds__(tile::THREADS, RESIDENT) map_kernel(const __grid_constant__ Words c) {
    tile::run(c);
}
