/* The experiments: each measures one thing, leaves its numbers in the results, and has a function that prints them. */
#ifndef TOOL_BENCH_EXPERIMENTS_H
#define TOOL_BENCH_EXPERIMENTS_H

#include "bench/comparison.h"
#include "bench/results.h"

rcv_status bench_main(bench *bench, results *results); /* recurve, and with --anchors other libraries */
void bench_ladder(const bench *bench, results *results);
void bench_batches(const bench *bench, results *results);
void bench_gemm(const bench *bench, results *results);
rcv_status bench_ranks(const bench *bench, results *results);
void bench_streaming(const bench *bench, results *results);
rcv_status bench_planner(const bench *bench, results *results);
rcv_status bench_scan(const bench *bench, results *results);
rcv_status bench_lengths(const bench *bench, results *results);

/* Checks the lists of --lengths and --cells. False after saying what is wrong. */
bool lengths_are_valid(const bench *bench);

void machine_describe(machine *machine, const problem *problem);
/* Initialises the parameters of the tensors as those of the network. */
rcv_status initialize_parameters(const bench *bench, const rcv_net *net, call_tensors *tensors);
/* Runs an implementation of comparison_add_plan once more, and records the events of that call. */
void record_timeline(timeline *timeline, implementation *implementation);

/* The vendor's library as plans of recurve: oneDNN, or on a GPU each algorithm of cuDNN, as one family. */
void comparison_add_vendors(comparison *comparison, const problem *problem, call_tensors *tensors);
/* The vendor's library and others, as far as they exist for the device. */
void comparison_add_anchors(comparison *comparison, const bench *bench, call_tensors *tensors);

void print_head(const bench *bench, const results *results);
void print_machine(const results *results); /* title, machine, version */
void print_comparison(const results *results);
void print_ladder(const results *results);
void print_batches(const bench *bench, const results *results);
void print_gemm(const results *results);
void print_ranks(const results *results);
void print_streaming(const results *results);
void print_planner(const results *results);
void print_scan(const results *results);
void print_lengths(const results *results);

#endif
