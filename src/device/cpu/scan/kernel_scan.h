/* Template of the scan kernels of one type: adjacent columns in vectors, whose carries stay in registers for all steps of a segment.
 * Included once a type, without a guard on purpose. Expects
 *
 *   TYPE             the suffix of all names
 *   CARRY, ELEMENT   type of a carry, and of an element in memory
 *   BITS             signed integer type of the size of a carry
 *   LEAST_NORMAL     smallest normal number of CARRY
 *   WIDEN, NARROW    a vector of carries from one of elements, and back
 *   FUSED(sum, x, y) fused multiply-add of vectors of carries
 *   STREAM(to, x, y) non-temporal store of two adjacent vectors of elements
 *   SCAN_VECTORS     vectors of carries that fit the registers, a power of two
 *   REGISTER         as kernels/peak.h describes it
 *
 * Columns that do not fill a vector go through a padded copy, so that a value does not depend on its position. */

#define SCAN_JOIN_(a, b) a##_##b
#define SCAN_JOIN(a, b) SCAN_JOIN_(a, b)
#define NAME(word) SCAN_JOIN(word, TYPE)
#define LANES ((int)(VECTOR_BYTES / sizeof(CARRY)))
#define ELEMENT_BYTES ((int)(LANES * sizeof(ELEMENT)))
#define INLINE static inline __attribute__((always_inline))
#define EACH _Pragma("GCC unroll 16") for (int v = 0; v < vectors; v++)
/* Vectors in a cache line: at least two, at most four, for which there are registers. */
#define LINE_VECTORS (64 / ELEMENT_BYTES < 2 ? 2 : 64 / ELEMENT_BYTES > 4 ? 4 : 64 / ELEMENT_BYTES)
#define OF_LINE _Pragma("GCC unroll 4") for (int i = 0; i < line; i++)
/* Loops over pairs of adjacent vectors, which one instruction may load or store; `vectors` is 1 or even. */
#define EACH_PAIR _Pragma("GCC unroll 16") for (int v = 0; v < vectors; v += 2)
#define OF_PAIR(...)                                                                                                   \
    do {                                                                                                               \
        {                                                                                                              \
            const int i = v;                                                                                           \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
        if (vectors > 1) {                                                                                             \
            const int i = v + 1;                                                                                       \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
    } while (0)

typedef CARRY NAME(carries) __attribute__((vector_size(VECTOR_BYTES)));
typedef CARRY NAME(loose_carries) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(CARRY)), may_alias));
typedef BITS NAME(carry_bits) __attribute__((vector_size(VECTOR_BYTES)));
typedef ELEMENT NAME(elements) __attribute__((vector_size(ELEMENT_BYTES)));
typedef ELEMENT NAME(loose_elements) __attribute__((vector_size(ELEMENT_BYTES), aligned(sizeof(ELEMENT)), may_alias));

/* Here and below `part` is the number of columns of a vector that is not full, or 0. */
INLINE NAME(carries) NAME(load)(const ELEMENT *from, const int part) {
    NAME(elements) x = {0};
    if (part == 0)
        x = *(const NAME(loose_elements) *)from;
    else
        memcpy(&x, from, (size_t)part * sizeof(ELEMENT));
    return WIDEN(x);
}

INLINE void NAME(store)(ELEMENT *to, NAME(carries) value, const int part) {
    NAME(elements) x = NARROW(value);
    if (part == 0)
        *(NAME(loose_elements) *)to = x;
    else
        memcpy(to, &x, (size_t)part * sizeof(ELEMENT));
}

/* One vector, or two. */
INLINE void NAME(store_pair)(ELEMENT *to, const NAME(carries) * values, const int vectors, const int part,
                             const bool streamed) {
    if (vectors > 1 && streamed) {
        NAME(elements) x = NARROW(values[0]), y = NARROW(values[1]);
        STREAM(to, x, y);
        return;
    }
    NAME(store)(to, values[0], part);
    if (vectors > 1) NAME(store)(to + LANES, values[1], part);
}

/* Stores a cache line with consecutive instructions: if non-temporal stores of two lines alternate, a write-combining buffer is often
 * flushed when only half of its line is complete. */
INLINE void NAME(store_line)(ELEMENT *to, const NAME(carries) * values, const int line, const int part,
                             const bool streamed) {
    _Pragma("GCC unroll 4") for (int v = 0; v < line; v += 2)
        NAME(store_pair)(to + v * LANES, values + v, line, part, streamed);
}

INLINE NAME(carries) NAME(load_carry)(const CARRY *from, const int part) {
    NAME(carries) x = {0};
    if (part == 0) return *(const NAME(loose_carries) *)from;
    memcpy(&x, from, (size_t)part * sizeof(CARRY));
    return x;
}

INLINE void NAME(store_carry)(CARRY *to, NAME(carries) value, const int part) {
    if (part == 0)
        *(NAME(loose_carries) *)to = value;
    else
        memcpy(to, &value, (size_t)part * sizeof(CARRY));
}

INLINE NAME(carries) NAME(magnitude)(NAME(carries) x) {
    const NAME(carries) zero = {0};
    return (NAME(carries))((NAME(carry_bits))x & ~(NAME(carry_bits)) - zero);
}

INLINE NAME(carries) NAME(flushed)(NAME(carries) x) {
    const NAME(carries) least = (NAME(carries)){0} + (CARRY)LEAST_NORMAL;
    return (NAME(carries))((NAME(carry_bits))x & ~(NAME(carry_bits))(NAME(magnitude)(x) < least));
}

INLINE NAME(carries) NAME(larger)(NAME(carries) x, NAME(carries) y) {
    NAME(carry_bits) mask = (NAME(carry_bits))(x > y);
    return (NAME(carries))((mask & (NAME(carry_bits))x) | (~mask & (NAME(carry_bits))y));
}

/* Prefetches the same columns of the next tile. */
INLINE void NAME(fetch)(const ELEMENT *from, int64_t ahead, const int vectors) {
    for (int i = 0; i < vectors * ELEMENT_BYTES; i += 64)
        __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)(ahead + i)), 0, 2);
}

/* A tile is steps done .. done + steps - 1 of a segment; `ahead` is the distance in bytes from a row to the same row of the next
 * tile, or 0. These are function arguments, in registers, not fields of a struct: a load of a value that was just stored may wait
 * for all stores before it, and those go to memory. */

/* ---- columns first .. first + vectors * LANES - 1 of a tile ----------------------------------------------------- */

INLINE void NAME(forward_block)(const rcvi_scan_segment *segment, int64_t done, int64_t steps, int64_t ahead,
                                int64_t first, const int vectors, const int part, const bool streamed, CARRY *carry) {
    const int64_t step = segment->step, b_step = segment->b_step;
    const ELEMENT *a = (const ELEMENT *)segment->a + done * step + first;
    const ELEMENT *b = (const ELEMENT *)segment->b + done * b_step + first;
    ELEMENT *to = (ELEMENT *)segment->h + done * step + first;
    NAME(carries) h[SCAN_VECTORS];
    EACH h[v] = NAME(load_carry)(carry + first + v * LANES, part);
    for (int64_t left = steps; left > 0; left--, a += step, b += b_step, to += step) {
        if (ahead != 0) {
            NAME(fetch)(a, ahead, vectors);
            NAME(fetch)(b, ahead, vectors);
        }
        EACH_PAIR {
            NAME(carries) x[2], y[2];
            OF_PAIR(x[i - v] = NAME(load)(a + i * LANES, part));
            OF_PAIR(y[i - v] = NAME(load)(b + i * LANES, part));
            OF_PAIR(h[i] = (NAME(carries))FUSED(y[i - v], x[i - v], h[i]));
            NAME(store_pair)(to + v * LANES, h + v, vectors, part, streamed);
        }
    }
    EACH NAME(store_carry)(carry + first + v * LANES, h[v], part);
}

/* One step; the state before it is in `states`, or in `before` where `edge`. a g is rounded before dh is added, as it is when one
 * segment passes it to the next. */
INLINE void NAME(backward_step)(const ELEMENT *a, const ELEMENT *dh, const ELEMENT *states, const CARRY *before,
                                const bool edge, ELEMENT *da, ELEMENT *db, const int vectors, const int part,
                                const bool streamed, NAME(carries) * c) {
    const int line = vectors < LINE_VECTORS ? vectors : LINE_VECTORS;
    _Pragma("GCC unroll 16") for (int v = 0; v < vectors; v += line) {
        const int64_t at = (int64_t)v * LANES;
        NAME(carries) g[LINE_VECTORS], h[LINE_VECTORS];
        OF_LINE g[i] = NAME(load)(dh + at + i * LANES, part) + c[v + i];
        OF_LINE h[i] =
            g[i] * (edge ? NAME(load_carry)(before + at + i * LANES, part) : NAME(load)(states + at + i * LANES, part));
        OF_LINE c[v + i] = NAME(load)(a + at + i * LANES, part) * g[i];
        OF_LINE __asm__("" : "+" REGISTER(c[v + i]));
        NAME(store_line)(db + at, g, line, part, streamed);
        NAME(store_line)(da + at, h, line, part, streamed);
    }
}

/* The step visited last, where the state before it is given. It is a function of its own: a block that also handled this step had to
 * keep a flag on the stack, and loads of the flag waited for the non-temporal stores (depending on the address of the stack, in
 * about one process of four). */
INLINE void NAME(backward_edge)(const rcvi_scan_segment *segment, int64_t first, const int vectors, const int part,
                                CARRY *carry) {
    const int64_t done = segment->steps - 1;
    const ELEMENT *a = (const ELEMENT *)segment->a + done * segment->step + first;
    const ELEMENT *dh = (const ELEMENT *)segment->b + done * segment->b_step + first;
    const CARRY *before = (const CARRY *)segment->before + first;
    ELEMENT *da = (ELEMENT *)segment->da + done * segment->da_step + first;
    ELEMENT *db = (ELEMENT *)segment->db + done * segment->db_step + first;
    NAME(carries) c[SCAN_VECTORS];
    EACH c[v] = NAME(load_carry)(carry + first + v * LANES, part);
    NAME(backward_step)(a, dh, NULL, before, true, da, db, vectors, part, false, c);
    EACH NAME(store_carry)(carry + first + v * LANES, c[v], part);
}

INLINE void NAME(backward_block)(const rcvi_scan_segment *segment, int64_t done, int64_t steps, int64_t ahead,
                                 int64_t first, const int vectors, const int part, const bool streamed, CARRY *carry) {
    const int64_t step = segment->step, b_step = segment->b_step;
    const int64_t da_step = segment->da_step, db_step = segment->db_step;
    const ELEMENT *a = (const ELEMENT *)segment->a + done * step + first;
    const ELEMENT *dh = (const ELEMENT *)segment->b + done * b_step + first;
    const ELEMENT *states = (const ELEMENT *)segment->states + done * step + first;
    ELEMENT *da = (ELEMENT *)segment->da + done * da_step + first;
    ELEMENT *db = (ELEMENT *)segment->db + done * db_step + first;
    NAME(carries) c[SCAN_VECTORS];
    EACH c[v] = NAME(load_carry)(carry + first + v * LANES, part);
    for (int64_t left = steps; left > 0; left--) {
        states += step;
        if (ahead != 0) {
            NAME(fetch)(a, ahead, vectors);
            NAME(fetch)(dh, ahead, vectors);
            NAME(fetch)(states, ahead, vectors);
        }
        NAME(backward_step)(a, dh, states, NULL, false, da, db, vectors, part, streamed, c);
        a += step;
        dh += b_step;
        da += da_step;
        db += db_step;
    }
    EACH NAME(store_carry)(carry + first + v * LANES, c[v], part);
}

enum { NAME(FLUSH) = 8 }; /* steps between two flushes of the product */

INLINE void NAME(compose_block)(const rcvi_scan_segment *segment, int64_t done, int64_t steps, int64_t ahead,
                                int64_t first, const int vectors, const int part, const bool backward,
                                CARRY *const *sums) {
    const int64_t step = segment->step, b_step = segment->b_step;
    const ELEMENT *a = (const ELEMENT *)segment->a + done * step + first;
    const ELEMENT *b = (const ELEMENT *)segment->b + done * b_step + first;
    NAME(carries) product[SCAN_VECTORS], carried[SCAN_VECTORS], largest[SCAN_VECTORS];
    EACH product[v] = NAME(load_carry)(sums[0] + first + v * LANES, part);
    EACH carried[v] = NAME(load_carry)(sums[1] + first + v * LANES, part);
    EACH largest[v] = NAME(load_carry)(sums[2] + first + v * LANES, part);
    for (int64_t left = steps; left > 0; left -= NAME(FLUSH)) {
        int64_t count = left < NAME(FLUSH) ? left : NAME(FLUSH);
        for (int64_t t = 0; t < count; t++, a += step, b += b_step) {
            if (ahead != 0) {
                NAME(fetch)(a, ahead, vectors);
                NAME(fetch)(b, ahead, vectors);
            }
            EACH {
                NAME(carries) x = NAME(load)(a + v * LANES, part), y = NAME(load)(b + v * LANES, part);
                if (backward) {
                    carried[v] = x * (y + carried[v]);
                    __asm__("" : "+" REGISTER(carried[v]));
                } else {
                    carried[v] = (NAME(carries))FUSED(y, x, carried[v]);
                }
                product[v] *= x;
                largest[v] = NAME(larger)(NAME(magnitude)(x), largest[v]);
            }
        }
        EACH product[v] = NAME(flushed)(product[v]);
    }
    EACH NAME(store_carry)(sums[0] + first + v * LANES, product[v], part);
    EACH NAME(store_carry)(sums[1] + first + v * LANES, carried[v], part);
    EACH NAME(store_carry)(sums[2] + first + v * LANES, largest[v], part);
}

/* ---- all columns --------------------------------------------------------------------------------------------------- */

/* Calls BLOCK(first, vectors, part) for all columns: with as many vectors as fit the registers, then with fewer. */
#define ALL_COLUMNS(most, BLOCK)                                                                                       \
    do {                                                                                                               \
        int64_t first = 0, columns = segment->columns;                                                                 \
        for (; first + (most)*LANES <= columns; first += (most)*LANES) BLOCK(first, most, 0);                          \
        for (; first + 4 * LANES <= columns; first += 4 * LANES) BLOCK(first, 4, 0);                                   \
        for (; first + 2 * LANES <= columns; first += 2 * LANES) BLOCK(first, 2, 0);                                   \
        for (; first + LANES <= columns; first += LANES) BLOCK(first, 1, 0);                                           \
        if (first < columns) BLOCK(first, 1, (int)(columns - first));                                                  \
    } while (0)

static void NAME(forward_tile)(const rcvi_scan_segment *segment, int64_t done, int64_t steps, int64_t ahead,
                               CARRY *const *carries) {
    CARRY *carry = carries[0];
#define STREAMED(first, vectors, part)                                                                                 \
    NAME(forward_block)(segment, done, steps, ahead, first, vectors, part, true, carry)
#define PLAIN(first, vectors, part) NAME(forward_block)(segment, done, steps, ahead, first, vectors, part, false, carry)
    if (segment->streamed)
        ALL_COLUMNS(SCAN_VECTORS, STREAMED);
    else
        ALL_COLUMNS(SCAN_VECTORS, PLAIN);
#undef STREAMED
#undef PLAIN
}

static void NAME(backward_tile)(const rcvi_scan_segment *segment, int64_t done, int64_t steps, int64_t ahead,
                                CARRY *const *carries) {
    CARRY *carry = carries[0];
#define STREAMED(first, vectors, part)                                                                                 \
    NAME(backward_block)(segment, done, steps, ahead, first, vectors, part, true, carry)
#define PLAIN(first, vectors, part)                                                                                    \
    NAME(backward_block)(segment, done, steps, ahead, first, vectors, part, false, carry)
    if (segment->streamed)
        ALL_COLUMNS(SCAN_VECTORS, STREAMED);
    else
        ALL_COLUMNS(SCAN_VECTORS, PLAIN);
#undef STREAMED
#undef PLAIN
}

static void NAME(backward_last)(const rcvi_scan_segment *segment, CARRY *carry) {
#define BLOCK(first, vectors, part) NAME(backward_edge)(segment, first, vectors, part, carry)
    ALL_COLUMNS(4, BLOCK);
#undef BLOCK
}

#define BLOCK(first, vectors, part)                                                                                    \
    NAME(compose_block)(segment, done, steps, ahead, first, vectors, part, BACKWARD, carries)
#define BACKWARD false
static void NAME(compose_forward_tile)(const rcvi_scan_segment *segment, int64_t done, int64_t steps, int64_t ahead,
                                       CARRY *const *carries) {
    ALL_COLUMNS(SCAN_VECTORS / 2, BLOCK);
}
#undef BACKWARD
#define BACKWARD true
static void NAME(compose_backward_tile)(const rcvi_scan_segment *segment, int64_t done, int64_t steps, int64_t ahead,
                                        CARRY *const *carries) {
    ALL_COLUMNS(SCAN_VECTORS / 2, BLOCK);
}
#undef BACKWARD
#undef BLOCK
#undef ALL_COLUMNS

/* ---- all steps ----------------------------------------------------------------------------------------------------- */

/* True if all addresses are aligned as non-temporal stores require. */
static inline bool NAME(may_stream)(const void *to, int64_t step) {
    return ((uintptr_t)to | (uintptr_t)(step * (int64_t)sizeof(ELEMENT))) % ELEMENT_BYTES == 0;
}

/* Runs all steps at once where the registers hold the carries of all columns; else in tiles of steps, so that all blocks of columns
 * read data that is in a cache. */
INLINE void NAME(in_tiles)(const rcvi_scan_segment *segment, const int vectors,
                           void (*run_tile)(const rcvi_scan_segment *, int64_t, int64_t, int64_t, CARRY *const *),
                           CARRY *const *carries) {
    const int64_t columns = segment->columns;
    const bool whole =
        columns <= LANES || columns == 2 * LANES || columns == 4 * LANES || columns == (int64_t)vectors * LANES;
    const bool cut = !whole && segment->steps > segment->tile;
    const int64_t steps = segment->steps, tile = cut ? segment->tile : steps;
    const int64_t ahead = cut ? tile * segment->step * (int64_t)sizeof(ELEMENT) : 0;
    for (int64_t done = 0; done < steps; done += tile)
        run_tile(segment, done, steps - done < tile ? steps - done : tile, ahead, carries);
    if (segment->streamed) end_stream();
}

static void NAME(scan_forward)(const rcvi_scan_segment *segment, void *carry) {
    rcvi_scan_segment whole = *segment;
    whole.streamed = segment->streamed && NAME(may_stream)(segment->h, segment->step);
    NAME(in_tiles)(&whole, SCAN_VECTORS, NAME(forward_tile), (CARRY *const[]){carry});
}

static void NAME(scan_backward)(const rcvi_scan_segment *segment, void *carry) {
    rcvi_scan_segment whole = *segment;
    whole.streamed = segment->streamed && NAME(may_stream)(segment->da, segment->da_step) &&
                     NAME(may_stream)(segment->db, segment->db_step);
    if (segment->before) whole.steps--;
    NAME(in_tiles)(&whole, SCAN_VECTORS, NAME(backward_tile), (CARRY *const[]){carry});
    if (segment->before) NAME(backward_last)(segment, carry);
}

static void NAME(compose_forward)(const rcvi_scan_segment *segment, void *product, void *carried, void *largest) {
    NAME(in_tiles)(segment, SCAN_VECTORS / 2, NAME(compose_forward_tile), (CARRY *const[]){product, carried, largest});
}

static void NAME(compose_backward)(const rcvi_scan_segment *segment, void *product, void *carried, void *largest) {
    NAME(in_tiles)(segment, SCAN_VECTORS / 2, NAME(compose_backward_tile), (CARRY *const[]){product, carried, largest});
}

#undef SCAN_JOIN_
#undef SCAN_JOIN
#undef NAME
#undef LANES
#undef ELEMENT_BYTES
#undef INLINE
#undef EACH
#undef LINE_VECTORS
#undef OF_LINE
#undef EACH_PAIR
#undef OF_PAIR
