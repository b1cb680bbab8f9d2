/* The linear recurrence h[t] = a[t] h[t-1] + b[t], and its derivative, as cells of scan.cuh. Macros:
 *   DATA       type of a, b, h and their gradients
 *   BACKWARD   the derivative
 *   DOWN       positions go from the last step to the first
 *   REVERSE    the recurrence does (its derivative then goes up)
 *   LENGTHS, RESETS, STREAMED
 * Everything is [steps, batch, channels]; a thread's channels are of one sequence. */

struct LinearArgs {
    const DATA *a, *b, *h, *dh; /* b: forward; h, dh: backward */
    DATA *out, *da, *db;
    const REAL *initial, *from; /* the state that resets return to; the one before the first position: NULL, zeros */
    REAL *last, *sums;
    const long long *lengths;
    const unsigned char *resets;
    long long steps, batch, channels;
};

/* Arrays larger than the L2 cache are streamed past it. */
#if STREAMED && defined(__CUDACC__)
template <int BYTES> struct Bits;
template <> struct Bits<16> { typedef uint4 type; };
template <> struct Bits<8> { typedef uint2 type; };
template <> struct Bits<4> { typedef unsigned type; };
template <> struct Bits<2> { typedef unsigned short type; };
typedef Bits<sizeof(DATA) * VECTOR>::type DataBits;

INLINE void load_data(const DATA *from, REAL (&x)[VECTOR]) {
    DataBits bits = __ldcs((const DataBits *)from);
    const Group<DATA> &group = *(const Group<DATA> *)&bits;
#pragma unroll
    for (int v = 0; v < VECTOR; v++) x[v] = (REAL)widen(group.at[v]);
}
INLINE void store_data(DATA *to, const REAL (&x)[VECTOR]) {
    Group<DATA> group;
#pragma unroll
    for (int v = 0; v < VECTOR; v++) narrow(x[v], group.at[v]);
    __stcs((DataBits *)to, *(const DataBits *)&group);
}
#else
INLINE void load_data(const DATA *from, REAL (&x)[VECTOR]) { load<DATA>((unsigned long long)from, 0, x); }
INLINE void store_data(DATA *to, const REAL (&x)[VECTOR]) { store<DATA>((unsigned long long)to, 0, x); }
#endif

/* Waves: a piece is the part of an array that PIECE_WARPS warps read, [PIECE, CHANNELS], in shared memory. */
#if FORM_WAVES
enum {
    TILE_PIECES = THREADS / 32 / PIECE_WARPS,
    PIECE = PIECE_WARPS * (32 / LANES) * STEPS,
    ROW_BYTES = CHANNELS * sizeof(DATA),
    PIECE_BYTES = PIECE * ROW_BYTES
};

INLINE void load_row(unsigned row, REAL (&x)[VECTOR]) {
    static_assert(VECTOR == 4 && sizeof(DATA) == 4, "a thread has 16 bytes of a row");
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "r"(row));
}
#endif

struct Cell {
    typedef LinearArgs Args;
    enum { HAS_SUM = BACKWARD && RESETS };
    struct Raw {
        REAL a[VECTOR], b[VECTOR]; /* backwards b is dh */
    };
    typedef Raw Kept;
    struct Late {
#if BACKWARD
        REAL h[VECTOR];
#endif
    };
    const Args &p;
    long long place, row; /* the first channel, of all; its sequence */
    bool there;
    long long length;
    unsigned cuts; /* a bit for every position: the state before it is the initial one (a reset) */
    REAL restart[VECTOR], sum[VECTOR];
#if FORM_WAVES
    enum { LATE_SHIFT = REVERSE ? 1 : -1 }; /* h is read of the step before */
    unsigned rows, late_rows;               /* shared address of the row of position 0, modulo 2^32 */

    /* For a piece that begins with position `first`. */
    static INLINE unsigned rows_of(unsigned piece, int first) {
        const unsigned in_row = threadIdx.x % LANES * VECTOR * (unsigned)sizeof(DATA);
        return piece + in_row + (DOWN ? (unsigned)(PIECE - 1 + first) * ROW_BYTES : 0u - (unsigned)first * ROW_BYTES);
    }
    static INLINE unsigned row_at(unsigned rows, long long position) {
        return DOWN ? rows - (unsigned)position * ROW_BYTES : rows + (unsigned)position * ROW_BYTES;
    }
    static INLINE bool has_both(const Args &args) { return !BACKWARD || args.dh; }
    static INLINE bool has_late(const Args &args) { return BACKWARD && args.da; }
#endif

    INLINE Cell(const Args &args, int chain, int lane) : p(args) {
        place = (long long)chain * CHANNELS + lane * VECTOR;
        there = place < p.batch * p.channels;
        row = there ? place / p.channels : 0;
        length = LENGTHS && there ? p.lengths[row] : p.steps;
        cuts = 0;
#pragma unroll
        for (int v = 0; v < VECTOR; v++) {
            restart[v] = (RESETS || BACKWARD) && there && p.initial ? p.initial[place + v] : (REAL)0;
        }
        begin_sum();
    }
    INLINE void begin_sum() {
#pragma unroll
        for (int v = 0; v < VECTOR; v++) sum[v] = 0;
    }
    /* Loads from the first or second array that is loaded early. */
    INLINE void load_early(const DATA *array, int which, long long position, REAL (&x)[VECTOR]) const {
#if FORM_WAVES
        load_row(row_at(rows, position) + which * PIECE_BYTES, x);
#else
        load_data(array + at(time_of(position)), x);
#endif
    }
    INLINE long long time_of(long long position) const { return DOWN ? p.steps - 1 - position : position; }
    INLINE long long at(long long t) const { return t * (p.batch * p.channels) + place; }
    INLINE bool is_live(long long t) const { return !LENGTHS || t < length; }
    /* Whether the recurrence restarts at step t. A reset at t is a boundary between t - 1 and t. */
    INLINE bool is_cut(long long t) const {
        if (!RESETS) return false;
        long long boundary = REVERSE ? t + 1 : t;
        return boundary < length && boundary < p.steps && p.resets[boundary * p.batch + row];
    }
    INLINE void load_none(int k, Raw &raw) {
#pragma unroll
        for (int v = 0; v < VECTOR; v++) raw.a[v] = 1, raw.b[v] = 0;
        cuts &= ~(1u << k);
    }
    INLINE void load(long long position, int k, Raw &raw) {
        long long t = time_of(position);
        if (!is_live(t)) {
            load_none(k, raw);
            return;
        }
        load_early(p.a, 0, position, raw.a);
#if BACKWARD
        if (p.dh)
            load_early(p.dh, 1, position, raw.b);
        else
#pragma unroll
            for (int v = 0; v < VECTOR; v++) raw.b[v] = 0;
#else
        load_early(p.b, 1, position, raw.b);
#endif
        if (RESETS) cuts = (cuts & ~(1u << k)) | (unsigned)is_cut(t) << k;
    }
    INLINE void copy_marks(const Cell &from) { cuts = from.cuts; }
    INLINE bool cut(int k) const { return RESETS && cuts >> k & 1; }
    /* After the last step of the sequence the state is the final one. */
    INLINE void store_last(long long position, const REAL (&h)[VECTOR]) const {
        if (!p.last || position != (DOWN ? p.steps : length) - 1) return;
#pragma unroll
        for (int v = 0; v < VECTOR; v++) p.last[place + v] = h[v];
    }

#if BACKWARD

    /* Backwards the state s is the adjoint from the next step (in the recurrence's order): g = dh + s, db = g, da = g times the state before
     * the step; a g is the next s, or at a reset adds to the gradient of the initial state. */
    INLINE void early(long long, int k, bool, const Raw &raw, REAL (&a)[VECTOR], REAL (&b)[VECTOR], Kept &kept) const {
        kept = raw;
#pragma unroll
        for (int v = 0; v < VECTOR; v++)
            a[v] = cut(k) ? (REAL)0 : raw.a[v], b[v] = cut(k) ? (REAL)0 : raw.a[v] * raw.b[v];
    }
    INLINE void advance(long long, int k, const Kept &kept, REAL (&s)[VECTOR]) const {
#pragma unroll
        for (int v = 0; v < VECTOR; v++) s[v] = cut(k) ? (REAL)0 : kept.a[v] * (kept.b[v] + s[v]);
    }
    INLINE void load_late(long long position, Late &late) const {
        long long t = time_of(position), before = REVERSE ? t + 1 : t - 1;
        bool inside = before >= 0 && before < (REVERSE ? length : p.steps);
        if (inside && p.da) {
#if FORM_WAVES
            load_row(row_at(late_rows, position), late.h);
#else
            load_data(p.h + at(before), late.h);
#endif
        } else
#pragma unroll
            for (int v = 0; v < VECTOR; v++) late.h[v] = restart[v];
    }
    INLINE void late(long long position, int k, const Kept &kept, const Late &late, REAL (&s)[VECTOR]) {
        long long t = time_of(position);
        REAL g[VECTOR], da[VECTOR];
        bool live = is_live(t);
#pragma unroll
        for (int v = 0; v < VECTOR; v++) {
            g[v] = live ? kept.b[v] + s[v] : (REAL)0;
            da[v] = live ? g[v] * (cut(k) ? restart[v] : late.h[v]) : (REAL)0;
            REAL on = kept.a[v] * (kept.b[v] + s[v]);
            if (cut(k)) sum[v] += on;
            s[v] = cut(k) ? (REAL)0 : on;
        }
        if (p.db) store_data(p.db + at(t), g);
        if (p.da) store_data(p.da + at(t), da);
        store_last(position, s);
    }

#else

    INLINE void early(long long, int k, bool, const Raw &raw, REAL (&a)[VECTOR], REAL (&b)[VECTOR], Kept &kept) const {
        kept = raw;
#pragma unroll
        for (int v = 0; v < VECTOR; v++) {
            a[v] = cut(k) ? (REAL)0 : raw.a[v];
            b[v] = cut(k) ? raw.a[v] * restart[v] + raw.b[v] : raw.b[v];
        }
    }
    INLINE void advance(long long, int k, const Kept &kept, REAL (&h)[VECTOR]) const {
#pragma unroll
        for (int v = 0; v < VECTOR; v++) h[v] = kept.a[v] * (cut(k) ? restart[v] : h[v]) + kept.b[v];
    }
    INLINE void load_late(long long, Late &) const {}
    INLINE void late(long long position, int k, const Kept &kept, const Late &, REAL (&h)[VECTOR]) const {
        long long t = time_of(position);
        REAL out[VECTOR];
        advance(position, k, kept, h);
#pragma unroll
        for (int v = 0; v < VECTOR; v++) out[v] = is_live(t) ? h[v] : (REAL)0;
        store_data(p.out + at(t), out);
        store_last(position, h);
    }

#endif

    static INLINE REAL initial_of(const Args &args, int chain, int c) {
        long long at = (long long)chain * CHANNELS + c;
        return args.from && at < args.batch * args.channels ? args.from[at] : (REAL)0;
    }
    INLINE void initial(REAL (&h)[VECTOR]) const {
#pragma unroll
        for (int v = 0; v < VECTOR; v++) h[v] = p.from ? p.from[place + v] : (REAL)0;
    }
    INLINE void store_sum(long long tile, int c, REAL x) const {
        long long all = p.batch * p.channels, chain = place / CHANNELS;
        if (chain * CHANNELS + c < all) p.sums[tile * all + chain * CHANNELS + c] = x;
    }
};
