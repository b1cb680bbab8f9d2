/* Elementwise operations of one type. Included once a type after kernels/product.h, without a guard on purpose. Expects
 *
 *   TYPE, NAME    the suffix of all names, and the macro that appends it
 *   SCALAR, BITS  type of an element, and the signed integer type of its size
 *   MAP_BYTES     bytes handled at a time: one vector, or several, whose instructions the compiler then interleaves
 *   MATH(f)       name of f on a vector, for exp, sigmoid, tanh, log, softplus and sqrt
 *   MANY_MATH(f)  optional: name of f on MANY_ELEMENTS numbers, for sigmoid and tanh
 *
 * Elements that do not fill a vector go through a padded copy, so that a value does not depend on its position. */

typedef SCALAR NAME(map_vector) __attribute__((vector_size(MAP_BYTES)));
typedef SCALAR NAME(loose_map_vector) __attribute__((vector_size(MAP_BYTES), aligned(sizeof(SCALAR)), may_alias));
typedef BITS NAME(map_bits) __attribute__((vector_size(MAP_BYTES)));

static inline NAME(map_vector) NAME(map_choose)(NAME(map_bits) mask, NAME(map_vector) yes, NAME(map_vector) no) {
    return (NAME(map_vector))((mask & (NAME(map_bits))yes) | (~mask & (NAME(map_bits))no));
}

/* Defines a kernel: VALUE is an expression of the vectors x and, where `binary`, y. */
#define MAP(name, binary, VALUE)                                                                                       \
    static void NAME(map_##name)(int64_t n, const void *a, const void *b, void *out) {                                 \
        const NAME(map_vector) zero = {0}, one = zero + 1;                                                             \
        const size_t lanes = MAP_BYTES / sizeof(SCALAR);                                                               \
        const SCALAR *p = a, *q = (binary) ? b : a;                                                                    \
        SCALAR *to = out;                                                                                              \
        size_t left = (size_t)n;                                                                                       \
        (void)zero, (void)one;                                                                                         \
        for (; left >= lanes; left -= lanes, p += lanes, q += lanes, to += lanes) {                                    \
            NAME(map_vector) x = *(const NAME(loose_map_vector) *)p, y = *(const NAME(loose_map_vector) *)q;           \
            (void)y;                                                                                                   \
            *(NAME(loose_map_vector) *)to = VALUE;                                                                     \
        }                                                                                                              \
        if (left == 0) return;                                                                                         \
        NAME(map_vector) x = zero, y = zero;                                                                           \
        memcpy(&x, p, left * sizeof(SCALAR));                                                                          \
        memcpy(&y, q, left * sizeof(SCALAR));                                                                          \
        x = VALUE;                                                                                                     \
        memcpy(to, &x, left * sizeof(SCALAR));                                                                         \
    }

#if defined(MANY_MATH)
#define MAP_MANY(name)                                                                                                 \
    static void NAME(map_##name)(int64_t n, const void *a, const void *b, void *out) {                                 \
        const SCALAR *from = a;                                                                                        \
        SCALAR *to = out, rest[MANY_ELEMENTS] = {0};                                                                   \
        size_t left = (size_t)n;                                                                                       \
        (void)b;                                                                                                       \
        for (; left >= MANY_ELEMENTS; left -= MANY_ELEMENTS, from += MANY_ELEMENTS, to += MANY_ELEMENTS) {             \
            MANY_MATH(name)(from, to);                                                                                 \
        }                                                                                                              \
        if (left == 0) return;                                                                                         \
        memcpy(rest, from, left * sizeof(SCALAR));                                                                     \
        MANY_MATH(name)(rest, rest);                                                                                   \
        memcpy(to, rest, left * sizeof(SCALAR));                                                                       \
    }
MAP_MANY(sigmoid)
MAP_MANY(tanh)
#undef MAP_MANY
#else
MAP(sigmoid, false, MATH(sigmoid)(x))
MAP(tanh, false, MATH(tanh)(x))
#endif
MAP(add, true, x + y)
MAP(subtract, true, x - y)
MAP(multiply, true, x *y)
MAP(divide, true, x / y)
MAP(negate, false, -x)
MAP(relu, false, NAME(map_choose)(x > zero, x, zero))
MAP(exp, false, MATH(exp)(x))
MAP(log, false, MATH(log)(x))
MAP(softplus, false, MATH(softplus)(x))
MAP(abs, false, (NAME(map_vector))((NAME(map_bits))x & ~(NAME(map_bits)) - zero))
MAP(sqrt, false, MATH(sqrt)(x))
MAP(min, true, NAME(map_choose)(x < y, x, y))
MAP(max, true, NAME(map_choose)(x > y, x, y))
MAP(step, false, NAME(map_choose)(x > zero, one, zero))
MAP(sign, false, NAME(map_choose)(x > zero, one, NAME(map_choose)(x < zero, -one, zero)))

#undef MAP
