/* A linear recurrence of one type, columns side by side in vectors whose carries stay in registers for all steps of a
 * stretch. Included once a type, without a guard on purpose. Expects
 *
 *   TYPE             the word that ends every name
 *   CARRY, ELEMENT   what is carried, and what lies in memory
 *   BITS             the signed integer of a carry's size
 *   LEAST_NORMAL     of the carries
 *   WIDEN, NARROW    a vector of carries from one of elements, and back
 *   FUSED(sum, x, y) of vectors of carries
 *   SCAN_VECTORS     of carries that there are registers for, a power of two
 *   REGISTER         as kernel_peak.h describes it
 *
 * Columns that do not fill a vector go through a padded copy, so that a value does not depend on its position. */

#define SCAN_JOIN_(a, b) a##_##b
#define SCAN_JOIN(a, b) SCAN_JOIN_(a, b)
#define NAME(word) SCAN_JOIN(word, TYPE)
#define LANES ((int)(VECTOR_BYTES / sizeof(CARRY)))
#define ELEMENT_BYTES ((int)(LANES * sizeof(ELEMENT)))
#define INLINE static inline __attribute__((always_inline))
#define EACH _Pragma("GCC unroll 16") for (int v = 0; v < vectors; v++)

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

INLINE void NAME(store)(ELEMENT *to, NAME(carries) value, const int part, const bool streamed) {
    NAME(elements) x = NARROW(value);
    if (part != 0)
        memcpy(to, &x, (size_t)part * sizeof(ELEMENT));
    else if (streamed)
        stream_vector(to, &x, ELEMENT_BYTES);
    else
        *(NAME(loose_elements) *)to = x;
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

/* ---- columns first .. first + vectors * LANES - 1 of a stretch ----------------------------------------------------- */

INLINE void NAME(forward_block)(const rcvi_scan_stretch *stretch, int64_t first, const int vectors, const int part,
                                const bool streamed, CARRY *carry) {
    const ELEMENT *a = (const ELEMENT *)stretch->a + first, *b = (const ELEMENT *)stretch->b + first;
    ELEMENT *to = (ELEMENT *)stretch->h + first;
    const int64_t step = stretch->step, b_step = stretch->b_step;
    NAME(carries) h[SCAN_VECTORS];
    EACH h[v] = NAME(load_carry)(carry + first + v * LANES, part);
    for (int64_t t = 0; t < stretch->steps; t++, a += step, b += b_step, to += step) {
        EACH {
            NAME(carries) x = NAME(load)(a + v * LANES, part), y = NAME(load)(b + v * LANES, part);
            h[v] = (NAME(carries))FUSED(y, x, h[v]);
            NAME(store)(to + v * LANES, h[v], part, streamed);
        }
    }
    EACH NAME(store_carry)(carry + first + v * LANES, h[v], part);
}

/* a g is rounded before dh is added: it is what one stretch hands to the next. */
INLINE void NAME(backward_block)(const rcvi_scan_stretch *stretch, int64_t first, const int vectors, const int part,
                                 const bool streamed, CARRY *carry) {
    const ELEMENT *a = (const ELEMENT *)stretch->a + first, *dh = (const ELEMENT *)stretch->b + first;
    const ELEMENT *states = (const ELEMENT *)stretch->states + first;
    const CARRY *before = stretch->before ? (const CARRY *)stretch->before + first : NULL;
    ELEMENT *da = (ELEMENT *)stretch->da + first, *db = (ELEMENT *)stretch->db + first;
    const int64_t step = stretch->step;
    NAME(carries) c[SCAN_VECTORS];
    EACH c[v] = NAME(load_carry)(carry + first + v * LANES, part);
    for (int64_t left = stretch->steps; left > 0; left--) {
        states += step;
        const bool edge = left == 1 && before;
        EACH {
            NAME(carries) x = NAME(load)(a + v * LANES, part), g = NAME(load)(dh + v * LANES, part) + c[v];
            NAME(carries) h = edge ? NAME(load_carry)(before + v * LANES, part) : NAME(load)(states + v * LANES, part);
            NAME(store)(db + v * LANES, g, part, streamed);
            NAME(store)(da + v * LANES, g * h, part, streamed);
            c[v] = x * g;
            __asm__("" : "+" REGISTER(c[v]));
        }
        a += step;
        dh += stretch->b_step;
        da += stretch->da_step;
        db += stretch->db_step;
    }
    EACH NAME(store_carry)(carry + first + v * LANES, c[v], part);
}

enum { NAME(FLUSH) = 8 }; /* steps from one flush of the product to the next */

INLINE void NAME(compose_block)(const rcvi_scan_stretch *stretch, int64_t first, const int vectors, const int part,
                                const bool backward, CARRY *const *sums) {
    const ELEMENT *a = (const ELEMENT *)stretch->a + first, *b = (const ELEMENT *)stretch->b + first;
    const int64_t step = stretch->step, b_step = stretch->b_step;
    NAME(carries) product[SCAN_VECTORS], carried[SCAN_VECTORS], largest[SCAN_VECTORS];
    EACH product[v] = NAME(load_carry)(sums[0] + first + v * LANES, part);
    EACH carried[v] = NAME(load_carry)(sums[1] + first + v * LANES, part);
    EACH largest[v] = NAME(load_carry)(sums[2] + first + v * LANES, part);
    for (int64_t left = stretch->steps; left > 0; left -= NAME(FLUSH)) {
        int64_t count = left < NAME(FLUSH) ? left : NAME(FLUSH);
        for (int64_t t = 0; t < count; t++, a += step, b += b_step) {
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

/* BLOCK(first, vectors, part), of as many vectors as there are registers for, then of fewer. */
#define ALL_COLUMNS(most, BLOCK)                                                                                       \
    do {                                                                                                               \
        int64_t first = 0, columns = stretch->columns;                                                                 \
        for (; first + (most)*LANES <= columns; first += (most)*LANES) BLOCK(first, most, 0);                          \
        for (; first + 4 * LANES <= columns; first += 4 * LANES) BLOCK(first, 4, 0);                                   \
        for (; first + 2 * LANES <= columns; first += 2 * LANES) BLOCK(first, 2, 0);                                   \
        for (; first + LANES <= columns; first += LANES) BLOCK(first, 1, 0);                                           \
        if (first < columns) BLOCK(first, 1, (int)(columns - first));                                                  \
    } while (0)

/* Streamed stores need their addresses at multiples of their size. */
INLINE bool NAME(may_stream)(const void *to, int64_t step) {
    return ((uintptr_t)to | (uintptr_t)(step * (int64_t)sizeof(ELEMENT))) % ELEMENT_BYTES == 0;
}

static void NAME(scan_forward)(const rcvi_scan_stretch *stretch, void *carry) {
    if (stretch->streamed && NAME(may_stream)(stretch->h, stretch->step)) {
#define BLOCK(first, vectors, part) NAME(forward_block)(stretch, first, vectors, part, true, carry)
        ALL_COLUMNS(SCAN_VECTORS, BLOCK);
#undef BLOCK
        end_stream();
        return;
    }
#define BLOCK(first, vectors, part) NAME(forward_block)(stretch, first, vectors, part, false, carry)
    ALL_COLUMNS(SCAN_VECTORS, BLOCK);
#undef BLOCK
}

static void NAME(scan_backward)(const rcvi_scan_stretch *stretch, void *carry) {
    if (stretch->streamed && NAME(may_stream)(stretch->da, stretch->da_step) &&
        NAME(may_stream)(stretch->db, stretch->db_step)) {
#define BLOCK(first, vectors, part) NAME(backward_block)(stretch, first, vectors, part, true, carry)
        ALL_COLUMNS(SCAN_VECTORS, BLOCK);
#undef BLOCK
        end_stream();
        return;
    }
#define BLOCK(first, vectors, part) NAME(backward_block)(stretch, first, vectors, part, false, carry)
    ALL_COLUMNS(SCAN_VECTORS, BLOCK);
#undef BLOCK
}

#define BLOCK(first, vectors, part) NAME(compose_block)(stretch, first, vectors, part, BACKWARD, sums)
#define BACKWARD false
static void NAME(compose_forward)(const rcvi_scan_stretch *stretch, void *product, void *carried, void *largest) {
    CARRY *const sums[] = {product, carried, largest};
    ALL_COLUMNS(4, BLOCK);
}
#undef BACKWARD
#define BACKWARD true
static void NAME(compose_backward)(const rcvi_scan_stretch *stretch, void *product, void *carried, void *largest) {
    CARRY *const sums[] = {product, carried, largest};
    ALL_COLUMNS(4, BLOCK);
}
#undef BACKWARD
#undef BLOCK

#undef ALL_COLUMNS
#undef SCAN_JOIN_
#undef SCAN_JOIN
#undef NAME
#undef LANES
#undef ELEMENT_BYTES
#undef INLINE
#undef EACH
