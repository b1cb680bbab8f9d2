/* The jobs of bench_calls, in the order in which they are done. */
#include "calls/calls.h"

const job_entry jobs[] = {
    {"first-float32", "first", measure_first, "float32", "float32", 35, false},
    {"again-float32", "first", measure_again, "float32", "float32", 3, false},
    {"first-bfloat16", "first", measure_first, "bfloat16", "bfloat16", 35, false},
    {"again-bfloat16", "first", measure_again, "bfloat16", "bfloat16", 3, false},
    {"first-own", "first", measure_first, "own", "own", 30, false},
    {"again-own", "first", measure_again, "own", "own", 3, false},
    {"planning-float32", "first", measure_planning, "float32", "planning-float32", 20, false},
    {"planning-bfloat16", "first", measure_planning, "bfloat16", "planning-bfloat16", 20, false},
    {"new-shapes", "first", measure_new_shapes, NULL, "new-shapes", 30, true},
    {"backward", "backward", check_backward, NULL, "bfloat16", 8, false},
    {"sizes", "sizes", measure_sizes, NULL, "bfloat16", 20, false},
    {"types", "types", measure_types, NULL, "bfloat16", 30, false},
    {"sentences", "sentences", measure_sentences, NULL, "bfloat16", 60, false},
};
const size_t job_count = sizeof jobs / sizeof *jobs;
