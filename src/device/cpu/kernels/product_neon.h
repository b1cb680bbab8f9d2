/* Register tiles of 64-bit ARM, where a multiply-add takes one operand from a lane of a vector register: a is loaded by whole
 * vectors, of several k where a row is contiguous, of several rows where it is transposed. Included by kernels/product.h.
 *
 * The queues of the multiply-add units are short: a load just before its first use stalls. So a register is loaded again as soon
 * as its last use was issued. Inline assembly keeps that order, and keeps each sum in its register. */

#define FUSED_LANE_(sum, y, x, all, one)                                                                               \
    __asm__ volatile("fmla %0" all ", %1" all ", %2" one : "+w"(sum) : "w"(y), "w"(x))
#if UNIT_BYTES == 4
#define FUSED_LANE(sum, y, x, lane) FUSED_LANE_(sum, y, x, ".4s", ".s[" #lane "]")
#else
#define FUSED_LANE(sum, y, x, lane) FUSED_LANE_(sum, y, x, ".2d", ".d[" #lane "]")
#endif
#define LOAD(to, type, from)                                                                                           \
    do {                                                                                                               \
        (to) = *(const type *)(from);                                                                                  \
        __asm__ volatile("" : "+w"(to));                                                                               \
    } while (0)
#define ADVANCE_ONE(pointer, count)                                                                                    \
    do {                                                                                                               \
        (pointer) += (count);                                                                                          \
        __asm__("" : "+r"(pointer));                                                                                   \
    } while (0)

/* Loads the n-th vector of b of a group of steps; n past the end of the group is a vector of the next group. */
#define LOAD_B(n)                                                                                                      \
    LOAD(y[(n) % ahead], NAME(loose_vector),                                                                           \
         b + (n) / vectors * b_step + (n) % vectors / STRIP * b_strip + (n) % vectors % STRIP * LANES)
/* Runs all groups of steps. The last group loads nothing for a next one; the next panel is prefetched between groups. */
#define EACH_GROUP(STEPS, steps)                                                                                       \
    const char *next = job->next;                                                                                      \
    _Pragma("GCC unroll 8") for (int n = 0; n < ahead; n++) LOAD_B(n);                                                 \
    for (int64_t left = job->depth / (steps)-1, block; left > 0; left -= block) {                                      \
        block = left < 64 / (steps) ? left : 64 / (steps);                                                             \
        _Pragma("GCC unroll 1") for (int64_t group = block; group > 0; group--) {                                      \
            STEPS(true);                                                                                               \
            ADVANCE_ONE(b, (steps)*b_step);                                                                            \
        }                                                                                                              \
        if (!packed) continue;                                                                                         \
        const char *end = next + 64 * job->next_step;                                                                  \
        for (; next < end; next += 64) __builtin_prefetch(next, 0, 2);                                                 \
    }                                                                                                                  \
    STEPS(false)

/* Strides of packed a, for the last steps that do not fill a group. */
#define PACKED_A_ROW LANES
#define PACKED_A_STEP(rows) 1
#define PACKED_A_FILL LANES

/* ---- rows of a contiguous: LANES steps a group ------------------------------------------------------------------- */

#define STEP_ALONG(k, more)                                                                                            \
    _Pragma("GCC unroll 8") for (int v = 0; v < vectors; v++) {                                                        \
        _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++) {                                                       \
            FUSED_LANE(sums[i][v], y[((k)*vectors + v) % ahead], x[i], k);                                             \
            if (!(more) || (k) < LANES - 1 || v < vectors - 1) continue;                                               \
            if (a_packed) {                                                                                            \
                LOAD(x[i], NAME(loose_vector), a[0] + (rows + i) * LANES);                                             \
                if (i == rows - 1) ADVANCE_ONE(a[0], rows *LANES);                                                     \
            } else {                                                                                                   \
                ADVANCE_ONE(a[i], LANES);                                                                              \
                LOAD(x[i], NAME(loose_vector), a[i]);                                                                  \
            }                                                                                                          \
        }                                                                                                              \
        const int n = (k)*vectors + v + ahead;                                                                         \
        if ((more) || n < LANES * vectors) LOAD_B(n);                                                                  \
    }
#if UNIT_BYTES == 4
#define STEPS_ALONG(more) STEP_ALONG(0, more) STEP_ALONG(1, more) STEP_ALONG(2, more) STEP_ALONG(3, more)
#else
#define STEPS_ALONG(more) STEP_ALONG(0, more) STEP_ALONG(1, more)
#endif

/* Runs whole groups of LANES steps, at least one; returns the number of steps done. */
static inline __attribute__((always_inline)) int64_t NAME(along)(const NAME(job) * job, const int rows,
                                                                 const int vectors, const bool packed,
                                                                 const bool a_packed,
                                                                 NAME(vector) (*sums)[STRIP * STRIPS]) {
    const int ahead = rows * vectors > 20 || LANES * vectors % 4 ? 2 : 4;
    const int64_t b_step = packed ? WIDTH : job->b_step, b_strip = job->b_strip;
    const NAME(operand) * a[ROWS], *b = job->b;
    NAME(vector) x[ROWS], y[4];
    _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++) {
        a[i] = a_packed ? job->a + job->k * rows + i * LANES : job->a + i * job->a_stride;
        LOAD(x[i], NAME(loose_vector), a[i]);
    }
    EACH_GROUP(STEPS_ALONG, LANES);
    return job->depth / LANES * LANES;
}

/* Packs rows of a as the tiles read them: [tile][depth / LANES][rows of the tile][LANES], padded with zeros. */
static void NAME(pack_a)(int64_t rows, int64_t depth, const void *a, int64_t a_row, void *to) {
    const SCALAR *from = a;
    SCALAR *out = to;
    EACH_TILE(rows, ROWS, count) {
        for (int64_t k = 0; k < depth; k += LANES) {
            int64_t lanes = depth - k < LANES ? depth - k : LANES;
            for (int64_t i = 0; i < count; i++, out += LANES) {
                NAME(vector) x = {0};
                if (lanes == LANES) x = *(const NAME(loose_vector) *)(from + i * a_row + k);
                for (int64_t l = 0; l < lanes && lanes < LANES; l++) x[l] = from[i * a_row + k + l];
                *(NAME(loose_vector) *)out = x;
            }
        }
        from += count * a_row;
    }
}

/* As pack_a, with a transposed. Rows are adjacent in memory, and k is strided: each k is read once for all tiles. */
static void NAME(pack_a_transposed)(int64_t rows, int64_t depth, const void *a, int64_t a_step, void *to) {
    int64_t filled = (depth + LANES - 1) / LANES * LANES;
    for (int64_t k = 0; k < depth; k += LANES) {
        const SCALAR *from = (const SCALAR *)a + k * a_step;
        SCALAR *tile = to;
        int64_t lanes = depth - k < LANES ? depth - k : LANES;
        EACH_TILE(rows, ROWS, count) {
            SCALAR *out = tile + k * count;
            if (lanes == LANES && count >= LANES) {
                for (int64_t i = 0; i < count; i += LANES) {
                    int64_t row = i < count - LANES ? i : count - LANES; /* the last block may overlap the one before */
                    NAME(transpose)((const void *)(from + row), a_step, (void *)(out + row * LANES), LANES);
                }
            } else {
                for (int64_t i = 0; i < count * LANES; i++)
                    out[i] = i % LANES < lanes ? from[i % LANES * a_step + i / LANES] : 0;
            }
            tile += count * filled;
            from += count;
        }
    }
}

/* ---- a transposed: two steps a group, for each of which there are registers -------------------------------------- */

typedef double NAME(pair) __attribute__((aligned(sizeof(SCALAR)), may_alias));

/* Loads the rows of one k: whole vectors, and the rest, up to three floats or one double. */
#define LOAD_A(p)                                                                                                      \
    do {                                                                                                               \
        _Pragma("GCC unroll 8") for (int i = 0; i < rows / LANES; i++) {                                               \
            LOAD(x[p][i], NAME(loose_vector), a + i * LANES);                                                          \
        }                                                                                                              \
        if (rows % LANES & 2) LOAD(two[p], NAME(pair), (const void *)(a + rows / LANES * LANES));                      \
        if (rows & 1) LOAD(one[p], SCALAR, a + rows - 1);                                                              \
    } while (0)
#if UNIT_BYTES == 4
#define FUSED_ROW(sum, y, p, i)                                                                                        \
    switch ((i) < rows / 4 * 4 ? (i) % 4 : (i) % 4 < (rows & 2) ? (i) % 4 + 4 : 6) {                                   \
    case 0: FUSED_LANE(sum, y, x[p][(i) / 4], 0); break;                                                               \
    case 1: FUSED_LANE(sum, y, x[p][(i) / 4], 1); break;                                                               \
    case 2: FUSED_LANE(sum, y, x[p][(i) / 4], 2); break;                                                               \
    case 3: FUSED_LANE(sum, y, x[p][(i) / 4], 3); break;                                                               \
    case 4: FUSED_LANE(sum, y, two[p], 0); break;                                                                      \
    case 5: FUSED_LANE(sum, y, two[p], 1); break;                                                                      \
    default: FUSED_LANE(sum, y, one[p], 0);                                                                            \
    }
#else
#define FUSED_ROW(sum, y, p, i)                                                                                        \
    switch ((i) < rows / 2 * 2 ? (i) % 2 : 2) {                                                                        \
    case 0: FUSED_LANE(sum, y, x[p][(i) / 2], 0); break;                                                               \
    case 1: FUSED_LANE(sum, y, x[p][(i) / 2], 1); break;                                                               \
    default: FUSED_LANE(sum, y, one[p], 0);                                                                            \
    }
#endif
#define STEP_ACROSS(k, more)                                                                                           \
    if ((k) == 0 || (more)) {                                                                                          \
        ADVANCE_ONE(a, job->a_stride);                                                                                 \
        LOAD_A(1 - (k));                                                                                               \
    }                                                                                                                  \
    _Pragma("GCC unroll 8") for (int v = 0; v < vectors; v++) {                                                        \
        _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++) {                                                       \
            FUSED_ROW(sums[i][v], y[((k)*vectors + v) % ahead], k, i)                                                  \
        }                                                                                                              \
        const int n = (k)*vectors + v + ahead;                                                                         \
        if ((more) || n < 2 * vectors) LOAD_B(n);                                                                      \
    }
#define STEPS_ACROSS(more) STEP_ACROSS(0, more) STEP_ACROSS(1, more)

/* Runs pairs of steps, at least one pair; returns the number of steps done. */
static inline __attribute__((always_inline)) int64_t NAME(across)(const NAME(job) * job, const int rows,
                                                                  const int vectors, const bool packed,
                                                                  NAME(vector) (*sums)[STRIP * STRIPS]) {
    const int ahead = rows * vectors > 20 || vectors % 2 ? 2 : 4;
    const int64_t b_step = packed ? WIDTH : job->b_step, b_strip = job->b_strip;
    const NAME(operand) *a = job->a, *b = job->b;
    NAME(vector) x[2][(ROWS + LANES - 1) / LANES], y[4];
    NAME(pair) two[2];
    SCALAR one[2];
    (void)two, (void)one;
    LOAD_A(0);
    EACH_GROUP(STEPS_ACROSS, 2);
    return job->depth / 2 * 2;
}

#undef FUSED_LANE_
#undef FUSED_LANE
#undef LOAD
#undef ADVANCE_ONE
#undef LOAD_B
#undef EACH_GROUP
#undef STEP_ALONG
#undef STEPS_ALONG
#undef LOAD_A
#undef FUSED_ROW
#undef STEP_ACROSS
#undef STEPS_ACROSS
