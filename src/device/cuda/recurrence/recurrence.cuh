/* What cells of recurrences are written with: recurrence_source.c. Stands behind map_element.cuh. */

/* One element for all channels of a thread. */
template <typename T> struct Single { T at; };

template <typename T> INLINE Group<T> get(unsigned long long address, long long element) {
    return *(const Group<T> *)((const T *)address + element);
}
template <typename T> INLINE Single<T> get_single(unsigned long long address, long long element) {
    return {((const T *)address)[element]};
}
template <typename T> INLINE REAL value(const Group<T> &group, int i) { return (REAL)widen(group.at[i]); }
template <typename T> INLINE REAL value(const Single<T> &single, int) { return (REAL)widen(single.at); }

/* VIEWS addresses, and of what is written those of rounded copies; the time of the first position; how many there are. */
struct RecurrenceArgs {
    unsigned long long at[VIEWS], rounded[VIEWS];
    long long time, steps;
    REAL *sums;
};

/* The next state. Where nothing of the state is left, as behind a reset, it does not matter what it was. */
INLINE REAL next_of(REAL a, REAL b, REAL h) { return a != 0 ? a * h + b : b; }
