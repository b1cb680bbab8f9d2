/* Programs for calls of other sizes.
 *
 * A plan is made for at most so many time steps and sequences; a call says how many it has. Its program has the same steps and buffers;
 * only numbers differ: rows, counts, offsets, strides. Every number is
 *
 *     one + batch * B + steps * T + area * T * B + the sum over both passes of (chunks + chunk_area * B) * ceil(T / K)
 *
 * for T steps and B sequences, where loops of the pass go over chunks of K steps. The coefficients are found, not written: the schedule
 * writes the program at a few sizes, the equations are solved, and the numbers of the plan's own program must come out, or
 * the plan serves its own sizes only.
 *
 * An instance is a copy of a program whose numbers can be set to other sizes. It shares all else with the program: names, instructions,
 * the arena. A buffer of the arena begins where it begins in the program, and its rows are as close together as in a program
 * written for these sizes: so rows that are not there cost nothing. */
#ifndef RCVI_SIZES_H
#define RCVI_SIZES_H

#include "program/program.h"

enum { RCVI_SIZE_TERMS = 8 }; /* one, batch, steps, area, chunks and chunk_area of each pass */

/* A number that depends on the sizes. */
typedef struct {
    size_t index;  /* among the numbers of the program, in the order of rcvi_program_numbers */
    size_t offset; /* of a program's: bytes from the beginning of an instance */
    int64_t terms[RCVI_SIZE_TERMS];
} rcvi_sized_number;

/* The numbers of something (a program, a kernel's tables) that depend on the sizes. */
typedef struct {
    rcvi_sized_number *numbers; /* [count] */
    size_t count;
    int64_t chunks[2]; /* as the program has them */
} rcvi_sizing;

/* At most this many sizes are needed to find the coefficients. */
enum { RCVI_MAX_SIZE_SAMPLES = 8 };

/* Sizes at which a program like this one has the same steps and buffers: enough of them to find the coefficients. Returns how many. */
int rcvi_size_samples(const rcvi_program *program, rcvi_sizes samples[RCVI_MAX_SIZE_SAMPLES]);

/* Finds the coefficients of `total` numbers. values: [samples] arrays [total], in the order of rcvi_size_samples; planned: [total] at the
 * program's own sizes. RCV_UNSUPPORTED where a number is no such sum. The result is in `pool`. */
rcv_status rcvi_sizing_fit(rcvi_pool *pool, const rcvi_program *program, size_t total, int64_t *const *values,
                           const int64_t *planned, rcvi_sizing *sizing);
/* A number at these sizes. */
int64_t rcvi_sized_value(const rcvi_sized_number *number, const int64_t chunks[2], rcvi_sizes sizes);
/* Sets numbers to these sizes: *at[i] is number numbers[i].index. */
void rcvi_sizing_apply(const rcvi_sizing *sizing, rcvi_sizes sizes, int64_t *const *at);

/* The numbers of something, as a function that visits them hands them out one by one: collected (values NULL: counted), ... */
typedef struct {
    int64_t *values; /* [count] */
    size_t count;
} rcvi_numbers;
void rcvi_collect_number(void *numbers, int64_t *at);
/* ... or the places of those that depend on the sizes. at: [sizing->count] */
typedef struct {
    const rcvi_sizing *sizing;
    int64_t **at;
    size_t seen, found; /* both 0 at first */
} rcvi_sized_places;
void rcvi_find_sized_number(void *places, int64_t *at);

/* Calls `number` for every number of a program that may depend on the sizes, always in the same order. */
void rcvi_program_numbers(rcvi_program *program, void (*number)(void *user, int64_t *at), void *user);
/* The same of a step. */
void rcvi_step_numbers(rcvi_step *step, void (*number)(void *user, int64_t *at), void *user);

/* The sizing of a program that `write` wrote. */
rcv_status rcvi_program_sizing(rcvi_pool *pool, const rcvi_program *program, void (*write)(rcvi_program *program),
                               rcvi_sizing *sizing);

/* Does a step that runs when parameters have changed depend on the sizes? */
bool rcvi_program_packs_by_size(const rcvi_program *program, const rcvi_sizing *sizing);

/* A copy of the program at sizes of its own. */
typedef struct {
    rcvi_program program; /* steps and buffers are its own, all else is that of the program it was made from */
} rcvi_instance;

/* Bytes of an instance, and its construction in so many bytes, aligned as malloc aligns. */
size_t rcvi_instance_bytes(const rcvi_program *program);
rcvi_instance *rcvi_instance_make(const rcvi_program *program, void *memory);
void rcvi_instance_resize(rcvi_instance *instance, const rcvi_sizing *sizing, rcvi_sizes sizes);

#endif
