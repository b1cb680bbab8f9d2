/* Steps over k on 64-bit ARM, where one lane of a vector multiplies all of another: a is loaded by whole vectors, of
 * several k where a row is contiguous, of several rows where it is transposed. Included by kernels/product.h.
 *
 * The queues of the multiply-add units are short: a load right in front of its first use is waited for. So a register
 * is loaded again as soon as it was used. Assembly keeps that order, and keeps each sum in its register. */

#define FUSED_LANE_(sum, y, x, all, one)                                                                               \
    __asm__ volatile("fmla %0" all ", %1" all ", %2" one : "+w"(sum) : "w"(y), "w"(x))
#if UNIT_BYTES == 4
#define FUSED_LANE(sum, y, x, lane) FUSED_LANE_(sum, y, x, ".4s", ".s[" #lane "]")
#else
#define FUSED_LANE(sum, y, x, lane) FUSED_LANE_(sum, y, x, ".2d", ".d[" #lane "]")
#endif
#define BRING(to, type, from)                                                                                          \
    do {                                                                                                               \
        (to) = *(const type *)(from);                                                                                  \
        __asm__ volatile("" : "+w"(to));                                                                               \
    } while (0)
#define ADVANCE_ONE(pointer, count)                                                                                    \
    do {                                                                                                               \
        (pointer) += (count);                                                                                          \
        __asm__("" : "+r"(pointer));                                                                                   \
    } while (0)

/* A group of steps takes its vectors of b one after another, and the first ones of the next group: the n-th. */
#define BRING_COLUMNS(n)                                                                                               \
    BRING(y[(n) % ahead], NAME(loose_vector),                                                                          \
          b + (n) / vectors * b_step + (n) % vectors / STRIP * b_strip + (n) % vectors % STRIP * LANES)
/* All groups but the last, which brings nothing on; lines of the next panel are brought near in between. */
#define EACH_GROUP(STEPS, steps)                                                                                       \
    const char *next = job->next;                                                                                      \
    _Pragma("GCC unroll 8") for (int n = 0; n < ahead; n++) BRING_COLUMNS(n);                                          \
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

/* Of what `arrange` makes, where the last steps do not fill a group. */
#define ARRANGED_ROW LANES
#define ARRANGED_STEP(rows) 1
#define ARRANGED_FILL LANES

/* ---- rows of a contiguous: LANES steps a group ------------------------------------------------------------------- */

#define STEP_ALONG(k, more)                                                                                            \
    _Pragma("GCC unroll 8") for (int v = 0; v < vectors; v++) {                                                        \
        _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++) {                                                       \
            FUSED_LANE(sums[i][v], y[((k)*vectors + v) % ahead], x[i], k);                                             \
            if (!(more) || (k) < LANES - 1 || v < vectors - 1) continue;                                               \
            if (arranged) {                                                                                            \
                BRING(x[i], NAME(loose_vector), a[0] + (rows + i) * LANES);                                            \
                if (i == rows - 1) ADVANCE_ONE(a[0], rows *LANES);                                                     \
            } else {                                                                                                   \
                ADVANCE_ONE(a[i], LANES);                                                                              \
                BRING(x[i], NAME(loose_vector), a[i]);                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        const int n = (k)*vectors + v + ahead;                                                                         \
        if ((more) || n < LANES * vectors) BRING_COLUMNS(n);                                                           \
    }
#if UNIT_BYTES == 4
#define STEPS_ALONG(more) STEP_ALONG(0, more) STEP_ALONG(1, more) STEP_ALONG(2, more) STEP_ALONG(3, more)
#else
#define STEPS_ALONG(more) STEP_ALONG(0, more) STEP_ALONG(1, more)
#endif

/* At least LANES steps; gives the number of steps done. */
static inline __attribute__((always_inline)) int64_t NAME(along)(const NAME(job) * job, const int rows,
                                                                 const int vectors, const bool packed,
                                                                 const bool arranged,
                                                                 NAME(vector) (*sums)[STRIP * STRIPS]) {
    const int ahead = rows * vectors > 20 || LANES * vectors % 4 ? 2 : 4;
    const int64_t b_step = packed ? WIDTH : job->b_step, b_strip = job->b_strip;
    const NAME(operand) * a[ROWS], *b = job->b;
    NAME(vector) x[ROWS], y[4];
    _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++) {
        a[i] = arranged ? job->a + job->k * rows + i * LANES : job->a + i * job->a_stride;
        BRING(x[i], NAME(loose_vector), a[i]);
    }
    EACH_GROUP(STEPS_ALONG, LANES);
    return job->depth / LANES * LANES;
}

/* Rows of a as tiles of rows take them: [tile][depth / LANES][rows of the tile][LANES], filled up with zeros. */
static void NAME(arrange)(int64_t rows, int64_t depth, const void *a, int64_t a_row, void *to) {
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

/* The same of a transposed. Rows of a block lie side by side, and steps may be far apart: each is read once for all
 * tiles. */
static void NAME(arrange_transposed)(int64_t rows, int64_t depth, const void *a, int64_t a_step, void *to) {
    int64_t filled = (depth + LANES - 1) / LANES * LANES;
    for (int64_t k = 0; k < depth; k += LANES) {
        const SCALAR *from = (const SCALAR *)a + k * a_step;
        SCALAR *tile = to;
        int64_t lanes = depth - k < LANES ? depth - k : LANES;
        EACH_TILE(rows, ROWS, count) {
            SCALAR *out = tile + k * count;
            if (lanes == LANES && count >= LANES) {
                for (int64_t i = 0; i < count; i += LANES) {
                    int64_t row = i < count - LANES ? i : count - LANES; /* the last may lie over those before */
                    NAME(turn)((const void *)(from + row), a_step, (void *)(out + row * LANES), LANES);
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

/* Rows are whole vectors, and what is left: of floats up to three, of doubles one. */
#define BRING_ROWS(p)                                                                                                  \
    do {                                                                                                               \
        _Pragma("GCC unroll 8") for (int i = 0; i < rows / LANES; i++) {                                               \
            BRING(x[p][i], NAME(loose_vector), a + i * LANES);                                                         \
        }                                                                                                              \
        if (rows % LANES & 2) BRING(two[p], NAME(pair), (const void *)(a + rows / LANES * LANES));                     \
        if (rows & 1) BRING(one[p], SCALAR, a + rows - 1);                                                             \
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
        BRING_ROWS(1 - (k));                                                                                           \
    }                                                                                                                  \
    _Pragma("GCC unroll 8") for (int v = 0; v < vectors; v++) {                                                        \
        _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++) {                                                       \
            FUSED_ROW(sums[i][v], y[((k)*vectors + v) % ahead], k, i)                                                  \
        }                                                                                                              \
        const int n = (k)*vectors + v + ahead;                                                                         \
        if ((more) || n < 2 * vectors) BRING_COLUMNS(n);                                                               \
    }
#define STEPS_ACROSS(more) STEP_ACROSS(0, more) STEP_ACROSS(1, more)

/* At least two steps; gives the number of steps done. */
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
    BRING_ROWS(0);
    EACH_GROUP(STEPS_ACROSS, 2);
    return job->depth / 2 * 2;
}

#undef FUSED_LANE_
#undef FUSED_LANE
#undef BRING
#undef ADVANCE_ONE
#undef BRING_COLUMNS
#undef EACH_GROUP
#undef STEP_ALONG
#undef STEPS_ALONG
#undef BRING_ROWS
#undef FUSED_ROW
#undef STEP_ACROSS
#undef STEPS_ACROSS
