/* Steps by rows: a block has whole rows of a tile. Follows kernel/base.cuh.
 *
 * ROW_SIZE threads (a power of two, whole warps) have a row: VECTOR columns each, and those STRIDE further on, EACH times in all. A column
 * past the end of the row is read at the end, adds nothing to sums and is not stored. */

template <typename T> struct Single { T at; };

template <int ROW_SIZE_, int COLUMNS> struct RowOf {
    static constexpr int ROW_SIZE = ROW_SIZE_, STRIDE = ROW_SIZE * VECTOR, EACH = (COLUMNS + STRIDE - 1) / STRIDE,
                         SPAN = EACH * VECTOR;

    static INLINE bool has(int column, int e) { return column + e * STRIDE < COLUMNS; }
    /* Offset of vector e from the thread's first column. */
    static INLINE int offset(int column, int e) { return min(e * STRIDE, COLUMNS - VECTOR - column); }

    /* ---- reading ---- */

    template <typename T>
    static INLINE void fetch(unsigned long long address, long long element, int column, Group<T> (&x)[EACH]) {
#pragma unroll
        for (int e = 0; e < EACH; e++) fetch_group<T>(address, element + offset(column, e), x[e]);
    }
    template <typename T>
    static INLINE void fetch_once(unsigned long long address, long long element, int column, Single<T> &x) {
        x.at = ((const T *)address)[element];
    }
    template <typename T> static INLINE void widen(const Group<T> (&x)[EACH], REAL (&out)[SPAN]) {
#pragma unroll
        for (int i = 0; i < SPAN; i++) out[i] = (REAL)::widen(x[i / VECTOR].at[i % VECTOR]);
    }
    template <typename T> static INLINE void widen_once(const Single<T> &x, REAL (&out)[SPAN]) {
#pragma unroll
        for (int i = 0; i < SPAN; i++) out[i] = (REAL)::widen(x.at);
    }
    template <typename T>
    static INLINE void load(unsigned long long address, long long element, int column, REAL (&out)[SPAN]) {
        Group<T> x[EACH];
        fetch<T>(address, element, column, x);
        widen(x, out);
    }
    template <typename T>
    static INLINE void load_once(unsigned long long address, long long element, int column, REAL (&out)[SPAN]) {
        Single<T> x;
        fetch_once<T>(address, element, column, x);
        widen_once(x, out);
    }

    /* Loads words that may not be new yet: where `wanted`, from the address without its flag. */
    static INLINE void load_relaxed(unsigned long long flagged, long long element, int column, bool wanted,
                                    Group<float> (&x)[EACH]) {
#pragma unroll
        for (int e = 0; e < EACH; e++)
            ::load_relaxed((flagged & ~1ull) + (unsigned long long)((element + offset(column, e)) * 4), wanted, x[e]);
    }
    static INLINE bool are_current(unsigned long long flagged, const Group<float> (&x)[EACH]) {
        unsigned other = 0;
#pragma unroll
        for (int i = 0; i < SPAN; i++) other |= __float_as_uint(x[i / VECTOR].at[i % VECTOR]) ^ (unsigned)flagged;
        return (other & 1) == 0;
    }
    static INLINE void clear_flags(Group<float> (&x)[EACH]) {
#pragma unroll
        for (int i = 0; i < SPAN; i++) {
            float &y = x[i / VECTOR].at[i % VECTOR];
            y = __uint_as_float(__float_as_uint(y) & ~1u);
        }
    }

    /* ---- writing ---- */

    template <int E> static INLINE void part(const REAL (&x)[SPAN], REAL (&out)[VECTOR]) {
#pragma unroll
        for (int i = 0; i < VECTOR; i++) out[i] = x[E * VECTOR + i];
    }
    template <typename T, int E = 0>
    static INLINE void store(unsigned long long address, long long element, int column, const REAL (&x)[SPAN]) {
        if constexpr (E < EACH) {
            REAL y[VECTOR];
            part<E>(x, y);
            if (has(column, E)) ::store<T>(address, element + E * STRIDE, y);
            store<T, E + 1>(address, element, column, x);
        }
    }
    template <typename T>
    static INLINE void store_once(unsigned long long address, long long element, int column, const REAL (&x)[SPAN]) {
        T first;
        narrow(x[0], first);
        if (address) ((T *)address)[element] = first;
    }
    template <typename T, int CHUNKS, int E = 0>
    static INLINE void publish(const Frame &c, int argument, int column, const REAL (&x)[SPAN]) {
        if constexpr (E < EACH) {
            REAL y[VECTOR];
            part<E>(x, y);
            if (has(column, E)) ::publish<T, CHUNKS>(c, argument, column + E * STRIDE, y);
            publish<T, CHUNKS, E + 1>(c, argument, column, x);
        }
    }

    template <typename T, int CHUNKS>
    static INLINE void publish_active(const Frame &c, int argument, int column, const REAL (&x)[SPAN]) {
        REAL y[SPAN];
#pragma unroll
        for (int i = 0; i < SPAN; i++) y[i] = c.is_active ? x[i] : (REAL)0;
        publish<T, CHUNKS>(c, argument, column, y);
    }

    /* ---- sums ---- */

    /* COUNT sums over the threads of a row at once, each in a fixed order: over the lanes of a warp, then over the warps. Two buffers
     * alternate: a slow reader of one sum is waited for at the next one. */
    template <int COUNT> static INLINE void sum(REAL (&x)[COUNT], int turn) {
        constexpr int WARPS = ROW_SIZE / 32, ALL = 256 / 32;
        float *parts = (float *)(shared_memory + ROW_SUMS_AT) + turn * ROW_SUMS * ALL;
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
        const int which = warp_sums<COUNT>(x, lane, COUNT);
        if (which >= 0) parts[which * ALL + warp] = x[0];
        asm volatile("bar.sync 1, 256;" ::: "memory");
        parts += warp / WARPS * WARPS;
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
            x[n] = parts[n * ALL];
#pragma unroll
            for (int w = 1; w < WARPS; w++) x[n] += parts[n * ALL + w];
        }
    }
};
