/* Weights of a pipe: 64 rows, brought from memory once, before the loop. Follows kernel/operands.cuh.
 *
 * Weights are the left operand (A) of the MMA. Chunks of depth go to registers as far as there are registers, then to shared memory; the rest
 * is written to memory in the order of shared memory once and streamed from there in every time step.
 *
 * Row (q * UNIT_ROWS + p) * UNITS + u of the 64 rows is depth split q of unit u of product p. In a cluster without depth splits, row m of pipe
 * l is row l * 64 + m. */

template <class Task, int PIPE> struct Weights : Operands<Task, PIPE> {
    using Base = Operands<Task, PIPE>;
    using Base::block, Base::shared, Base::thread, Base::warp, Base::FIRST_SPLIT;
    static constexpr int CHUNKS = Task::CHUNKS(PIPE), IN_REGISTERS = Task::IN_REGISTERS(PIPE),
                         IN_SHARED = Task::IN_SHARED(PIPE), BEFORE = PIPE ? Task::IN_SHARED(0) : 0;
    /* Where no weights are streamed, shared memory has those of the first chunks: the operand that arrives last is multiplied from registers. */
    static constexpr int FIRST_IN_REGISTERS = IN_REGISTERS + IN_SHARED == CHUNKS ? IN_SHARED : 0,
                         FIRST_IN_SHARED = FIRST_IN_REGISTERS ? 0 : IN_REGISTERS;
    static INLINE constexpr bool is_in_registers(int c) {
        return c >= FIRST_IN_REGISTERS && c < FIRST_IN_REGISTERS + IN_REGISTERS;
    }
    static constexpr bool STARTED = Task::IS_STARTED && (CLUSTER || PIPE == (Task::CHUNKS(0) == 0));
    static constexpr int FIRST_ROW = CLUSTER && SPLITS == 1 ? PIPE * 64 : 0;
    static constexpr int ROWS = EXACT ? 4 : 2; /* rows of weights of a thread */
    unsigned a[IN_REGISTERS > 0 ? IN_REGISTERS * 4 : 1][4];
    float starts[ROWS];

    INLINE Weights(const Block &block) : Base(block) {}

    /* What row m of the pipe's 64 rows of weights is. */
    struct Weight {
        int m, unit, row,
            split; /* row among those of the unit; split of the pipe, or >= PIPE_SPLITS for a row that does not exist */
        INLINE Weight(int m)
            : m(m), unit((FIRST_ROW + m) % Task::UNITS), row((FIRST_ROW + m) / Task::UNITS % Task::UNIT_ROWS),
              split((FIRST_ROW + m) / (Task::UNITS * Task::UNIT_ROWS)) {}
        INLINE bool exists() const { return split < PIPE_SPLITS; }
    };

    INLINE int row_of(int r) const { return warp * 16 + (EXACT ? thread / 8 * 4 + r : thread / 4 + r * 8); }

    /* Copies one part of eight weights from memory to shared memory. */
    static INLINE void copy_weight_part(unsigned to, const float *from, bool there, int part) {
        const float4 none = make_float4(0, 0, 0, 0), low = there ? ((const float4 *)from)[0] : none,
                     high = there ? ((const float4 *)from)[1] : none;
        float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        unsigned y[4];
#pragma unroll 1
        for (int p = 0; p <= part; p++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                y[i] = bits_of(take_part<BFloat16>(x[2 * i]));
                y[i] |= bits_of(take_part<BFloat16>(x[2 * i + 1])) << 16;
            }
        }
        write_segment(to, y);
    }

    /* Copies chunk c of the weights to shared memory, as 64 rows of 128 bytes; complete when the thread's asynchronous copies are. */
    INLINE void copy_weight_chunk(int c, unsigned to) const {
        const int pass = Task::chunk_pass(PIPE, c), first = Task::chunk_first(PIPE, c), from = first / PARTS * CHUNK,
                  depth = (Task::depth(pass) + 7) / 8 * 8;
        constexpr int BYTES = PARTS > 1 ? 4 : SIZE; /* bytes of a weight in memory */
        const Argument *arguments = Shared::arguments() + Task::first_argument(Task::PRODUCT_STEP);
        const int segment = (int)threadIdx.x % 8;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const Weight w((int)threadIdx.x % 128 / 8 + r * 16);
            const int unit = block.column + w.unit,
                      k = (FIRST_SPLIT + w.split) * (Task::pass_chunks(pass) / PARTS) * CHUNK + from +
                          segment * SEGMENT;
            int argument = w.exists() ? Task::right(pass, w.row) : -1;
            bool there = argument >= 0 && unit < Task::COLUMNS && k < depth;
            unsigned long long at = arguments[argument >= 0 ? argument : 0].address;
            if (there) at += (unsigned long long)((unit * (long long)depth + k) * BYTES);
            if constexpr (PARTS > 1)
                copy_weight_part(to + swizzled(w.m, segment), (const float *)at, there, first % PARTS);
            else
                copy_async(to + swizzled(w.m, segment), there ? at : arguments[Task::right_any(pass)].address,
                           there ? 16 : 0);
        }
    }

    static INLINE unsigned as_operand(unsigned x) {
#if TILE_TF32
        x = bits_of(__uint_as_float(x));
#endif
        return x;
    }

    /* Writes streamed weights to memory in the order in which they are copied. */
    INLINE void write_streamed_weights(unsigned room) const {
        const int row = (int)threadIdx.x % 128 / 8, segment = (int)threadIdx.x % 8;
#pragma unroll 1
        for (int c = IN_REGISTERS + IN_SHARED; c < CHUNKS; c++) {
            copy_weight_chunk(c, room);
            copies_commit();
            copies_wait<0>();
#pragma unroll
            for (int r = 0; r < 4; r++) { /* a thread reads what it has copied itself */
                const unsigned at = swizzled(row + r * 16, segment);
                unsigned x[4];
                read_segment(room + at, x);
                *(uint4 *)(streamed_at<Task>(block.c, PIPE) +
                           (unsigned long long)(c - IN_REGISTERS - IN_SHARED) * WEIGHT_BYTES + at) =
                    make_uint4(as_operand(x[0]), as_operand(x[1]), as_operand(x[2]), as_operand(x[3]));
            }
        }
        if (IN_REGISTERS + IN_SHARED < CHUNKS) asm volatile("fence.proxy.async.global;" ::: "memory");
    }

    /* Loads chunk c, which is in shared memory at `from`, into registers. */
    INLINE void load_registers(int c, unsigned from) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
#if EXACT
            read_segment(from + swizzled(row_of(j), thread % 8), a[c * 4 + j]);
#else
#pragma unroll
            for (int r = 0; r < 4; r++) {
                unsigned at = from + swizzled(row_of(r % 2), j * 2 + r / 2) + (unsigned)(thread % 4 * 4);
                asm volatile("ld.shared.b32 %0, [%1];" : "=r"(a[c * 4 + j][r]) : "r"(at) : "memory");
                a[c * 4 + j][r] = as_operand(a[c * 4 + j][r]);
            }
#endif
        }
    }

    /* Brings all weights to their places. Copy threads wait at its last barrier, since weights may be staged in the rings. */
    INLINE void load_weights() {
        constexpr int BATCH = STAGING_BYTES / WEIGHT_BYTES;
        static_assert(BATCH > 0, "room for a chunk of each pipe");
        const unsigned room = shared.staging_offset(PIPE);
#pragma unroll 1
        for (int c = 0; c < IN_SHARED; c++) copy_weight_chunk(FIRST_IN_SHARED + c, shared.weights(BEFORE + c));
#pragma unroll
        for (int first = 0; first < IN_REGISTERS; first += BATCH) {
#pragma unroll 1
            for (int c = first; c < IN_REGISTERS && c < first + BATCH; c++)
                copy_weight_chunk(FIRST_IN_REGISTERS + c, room + (c - first) * WEIGHT_BYTES);
            copies_commit();
            copies_wait<0>();
            asm volatile("bar.sync %0, 128;" ::"n"(2 + PIPE) : "memory");
#pragma unroll
            for (int c = first; c < IN_REGISTERS && c < first + BATCH; c++)
                load_registers(c, room + (unsigned)((c - first) * WEIGHT_BYTES));
            asm volatile("bar.sync %0, 128;" ::"n"(2 + PIPE) : "memory");
        }
        copies_commit(); /* where no weights are in registers nothing was committed yet */
        copies_wait<0>();
#if TILE_TF32
#pragma unroll 1
        for (int c = 0; c < IN_SHARED; c++) {
#pragma unroll
            for (int r = 0; r < 4; r++) {
                unsigned x[4], at = shared.weights(BEFORE + c) +
                                    swizzled((int)threadIdx.x % 128 / 8 + r * 16, (int)threadIdx.x % 8);
                read_segment(at, x);
                for (int w = 0; w < 4; w++) x[w] = as_operand(x[w]);
                write_segment(at, x);
            }
        }
#endif
        write_streamed_weights(room);
        fence_shared();
        asm volatile("bar.sync 0;" ::: "memory"); /* copy threads may begin */
    }

    /* Bias of the thread's rows of weights: sums begin with it. */
    INLINE void load_starts() {
        const Argument *arguments = Shared::arguments() + Task::first_argument(Task::PRODUCT_STEP);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const Weight w(row_of(r));
            const int unit = block.column + w.unit, argument = FIRST_SPLIT + w.split == 0 ? Task::start(w.row) : -1;
            starts[r] = argument >= 0 && unit < Task::COLUMNS ? ((const float *)arguments[argument].address)[unit] : 0;
        }
    }

    /* The depth split that all rows of weights of the thread's warp belong to (warp MMA, FMA). Rows after the last split count to the last one. */
    INLINE int own_split() const {
        constexpr bool FULL = Task::UNITS * Task::UNIT_ROWS * PIPE_SPLITS >= 64;
        const int split = PIPE_SPLITS > 1 ? Weight(EXACT ? row_of(0) : warp * 16).split : 0;
        return FULL ? split : min(split, PIPE_SPLITS - 1);
    }
};

#if !CLUSTER
/* What products read: operands of the ring, and weights. */
template <class Task, int PIPE> using ProductInputs = Weights<Task, PIPE>;
#endif
