/* The jobs of bench_calls, in the order in which they are done. */
#include "calls/calls.h"

const job_entry jobs[] = {
    {"libraries", "first", read_libraries, NULL, "libraries", 10, ON_GPU},
    {"first-float32", "first", measure_first, "float32", "float32", 24, ON_DEVICE},
    {"again-float32", "first", measure_again, "float32", "float32", 4, ON_DEVICE},
    {"next-float32", "first", measure_next_shapes, "float32", "next-float32", 9, ON_DEVICE},
    {"first-bfloat16", "first", measure_first, "bfloat16", "bfloat16", 24, ON_DEVICE},
    {"again-bfloat16", "first", measure_again, "bfloat16", "bfloat16", 4, ON_DEVICE},
    {"next-bfloat16", "first", measure_next_shapes, "bfloat16", "next-bfloat16", 9, ON_DEVICE},
    {"first-own", "first", measure_first, "own", "own", 24, ON_DEVICE},
    {"again-own", "first", measure_again, "own", "own", 4, ON_DEVICE},
    {"next-own", "first", measure_next_shapes, "own", "next-own", 9, ON_DEVICE},
    {"sizes", "sizes", measure_sizes, NULL, "bfloat16", 24, ON_DEVICE},
    {"backward", "backward", check_backward, NULL, "bfloat16", 14, ON_DEVICE},
    {"types", "types", measure_types, NULL, "bfloat16", 50, ON_DEVICE},
    {"sentences", "sentences", measure_sentences, NULL, "bfloat16", 80, ON_DEVICE},
    {"new-shapes", "first", measure_new_shapes, NULL, "new-shapes", 24, ON_CPU},
    {"stream", "stream", measure_stream, NULL, "stream", 8, ON_CPU},
    {"planning-float32", "first", measure_planning, "float32", "planning-float32", 16, ON_DEVICE},
    {"planning-bfloat16", "first", measure_planning, "bfloat16", "planning-bfloat16", 16, ON_DEVICE},
};
const size_t job_count = sizeof jobs / sizeof *jobs;
