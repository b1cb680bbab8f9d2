/* The experiments of `recurve bench`. */
#ifndef TOOL_BENCH_H
#define TOOL_BENCH_H

#include "bench/results.h"
#include "recurve_bench.h"

/* Checks the lists of --ranks, --lengths and --cells. False after saying what is wrong. */
bool bench_lists_are_valid(const bench *bench);
/* Runs the experiments that `bench` asks for. Prints each one's results when it is done. A signal ends it early, with the results so far.
 * The problem is open. */
rcv_status bench_run(bench *bench, results *results);
/* Writes every number to bench->json, whole or not at all. False after saying what went wrong. */
bool bench_write_json(const bench *bench, const results *results);

/* On x86-64 an older OpenBLAS may not know a newer CPU and use its slowest code. Then starts the program again with the setting of
 * OpenBLAS that helps. Returns where that is not needed or fails. argv[0] is the verb. */
void bench_set_openblas_core(char **argv);

#endif
