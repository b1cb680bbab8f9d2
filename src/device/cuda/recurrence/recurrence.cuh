/* What the written cells of recurrences use: recurrence_source.c. Follows map_element.cuh. */

/* One element, the same for all channels of a thread. */
template <typename T> struct Single { T at; };

template <typename T> INLINE Group<T> get(unsigned long long address, long long element) {
    return *(const Group<T> *)((const T *)address + element);
}
template <typename T> INLINE Single<T> get_single(unsigned long long address, long long element) {
    return {((const T *)address)[element]};
}
template <typename T> INLINE REAL value(const Group<T> &group, int i) { return (REAL)widen(group.at[i]); }
template <typename T> INLINE REAL value(const Single<T> &single, int) { return (REAL)widen(single.at); }

/* VIEWS addresses; those of rounded copies of what is written; the time of the first position; the number of positions. */
struct RecurrenceArgs {
    unsigned long long at[VIEWS], rounded[VIEWS];
    long long time, steps, batch;
    REAL *sums;
};

/* The next state. Where the scale is zero, as after a reset, the old state does not matter, even if it is NaN. */
INLINE REAL next_of(REAL a, REAL b, REAL h) { return a != 0 ? a * h + b : b; }
