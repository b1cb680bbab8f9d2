/* The command line. */
#ifndef MEMORY_OPTIONS_H
#define MEMORY_OPTIONS_H

#include <recurve.h>

#include <stdint.h>

typedef enum { INITIAL_CLOCKS, INITIAL_CHRONO, INITIAL_USUAL } initial_values; /* initial.h */

extern const char *const initial_names[]; /* ends in NULL */

typedef struct options {
    const char *cell, *device, *schedule, *json; /* schedule and json: NULL without */
    int64_t hidden, layers, length, batch, iterations, threads;
    double learning_rate, clip, seconds;
    uint64_t seed;
    rcv_dtype dtype;
    int initial; /* initial_values */
} options;

typedef enum { PARSED, PARSED_HELP, PARSED_WRONG } parsed;

/* Prints the help, or what is wrong. */
parsed parse_options(options *options, int argc, char **argv);

#endif
