/* Values that follow from the results, the axes of the experiments, and the release of the results. */
#include "bench/results.h"

#include <stdio.h>
#include <stdlib.h>

const int64_t batch_sizes[BATCH_SIZES] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};

/* With a state of h features and g = 4 h gates, weights w [g, h], rows x [b, h] and gradients d [b, g]:
 * NT: x w^T, the forward pass; NN: d w, the backward pass; TN: d^T x, the weights' gradient. */
const char *const gemm_variants[GEMM_VARIANTS] = {"NT", "NN", "TN"};
const char *const gemm_meanings[GEMM_VARIANTS] = {"x W^T, forward", "d W, backward", "d^T x, gradient of the weights"};
const char *const gemm_implementations[GEMM_IMPLEMENTATIONS] = {"float32", "bfloat16", "OpenBLAS float32"};

const int64_t scan_steps[SCAN_STEPS] = {64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216};
const int64_t scan_channels[SCAN_CHANNELS] = {1, 8, 32, 64, 128, 512, 4096, 16384};
const char *const length_passes[PASSES] = {"forward", "training step"};

const char *vendor_name(const problem *problem) { return problem_is_gpu(problem) ? "cuDNN" : "oneDNN"; }

const measurement *family_best(const measurements *all, size_t index) {
    const measurement *best = &all->items[index];
    if (best->family == NULL) {
        return best;
    }
    for (size_t i = 0; i < all->count; i++) {
        const measurement *item = &all->items[i];
        if (item->family != best->family) {
            continue;
        }
        if (i < index) {
            return NULL;
        }
        best = item->median > 0 && (best->median <= 0 || item->median < best->median) ? item : best;
    }
    return best;
}

/* ---- linear recurrences ---- */

double scan_bandwidth(const scan_point *point, bool backward) {
    const double seconds = backward ? point->backward.seconds : point->forward.seconds;
    return seconds > 0 ? (backward ? BACKWARD_ARRAYS : FORWARD_ARRAYS) * point->bytes / seconds : 0;
}

double scan_share(const scan_point *point, bool backward) {
    return point->copy > 0 ? scan_bandwidth(point, backward) / point->copy : 0;
}

double scan_speedup(const scan_pass *pass) {
    return pass->serial > 0 && pass->seconds > 0 ? pass->serial / pass->seconds : 0;
}

bool target_is_met(const scan_target *target) {
    return target->measured > 0 &&
           (target->at_most ? target->measured <= target->target : target->measured >= target->target);
}

/* ---- cells over the number of steps ---- */

double length_rate(const length_point *point, size_t pass) {
    const double seconds = point->passes[pass].seconds;
    return seconds > 0 ? (double)point->steps / seconds : 0;
}

double length_speedup(const length_pass *pass) {
    return pass->seconds > 0 && pass->lstm > 0 ? pass->lstm / pass->seconds : 0;
}

const char *length_origin(const length_point *point, size_t pass, char room[64]) {
    const length_pass *found = &point->passes[pass];
    const char *how = found->estimated ? ", by the model alone" : "";
    if (found->planned == 0) {
        return "pinned";
    }
    if (found->planned == point->steps) {
        return found->estimated ? "chosen by the model alone" : "";
    }
    snprintf(room, 64, "chosen for %lld steps%s", (long long)found->planned, how);
    return room;
}

/* ---- release ---- */

void measurement_free(measurement *measurement) {
    free(measurement->name);
    free(measurement->plan);
    free(measurement->refusal);
    free(measurement->note);
    free(measurement->samples);
}

void measurements_free(measurements *all) {
    for (size_t i = 0; i < all->count; i++) {
        measurement_free(&all->items[i]);
    }
}

static void machine_free(machine *machine) {
    char *const texts[] = {machine->device, machine->cpu,     machine->system, machine->kernels,
                           machine->date,   machine->version, machine->commit};
    for (size_t i = 0; i < COUNT(texts); i++) {
        free(texts[i]);
    }
}

static void length_points_free(length_point *points) {
    for (size_t i = 0; i < (size_t)MAXIMUM_LENGTHS * PASSES; i++) {
        free(points[i / PASSES].passes[i % PASSES].plan);
        free(points[i / PASSES].passes[i % PASSES].refusal);
    }
}

static void lengths_free(lengths *lengths) {
    for (size_t row = 0; row < MAXIMUM_CELLS; row++) {
        free(lengths->cells[row]);
        length_points_free(lengths->points[row]);
    }
    length_points_free(lengths->lstm);
    free(lengths->left_out);
}

void results_free(results *results) {
    measurements_free(&results->main);
    measurements_free(&results->ladder);
    for (size_t i = 0; i < results->option_count; i++) {
        free(results->options[i].schedule);
        free(results->options[i].reason);
    }
    for (size_t i = 0; i < results->batch_count; i++) {
        free(results->batches[i].plan);
    }
    for (size_t i = 0; i < results->rank_count; i++) {
        free(results->ranks[i].plan);
        free(results->ranks[i].refusal);
    }
    for (size_t i = 0; i < results->choice_count; i++) {
        free(results->choices[i].plan);
        free(results->choices[i].refusal);
    }
    for (size_t i = 0; i < results->scans.count; i++) {
        free(results->scans.points[i].form);
        free(results->scans.points[i].refusal);
    }
    lengths_free(&results->lengths);
    machine_free(&results->machine);
    const streaming *streaming = &results->streaming;
    void *const blocks[] = {results->title,        results->options,          results->chosen.events,
                            results->chosen.plan,  results->wavefront.events, results->wavefront.plan,
                            results->peak.refusal, results->gemm.refusal,     streaming->refusal,
                            streaming->plan,       streaming->whole_plan,     streaming->unhoisted_plan,
                            streaming->object_plan};
    for (size_t i = 0; i < COUNT(blocks); i++) {
        free(blocks[i]);
    }
}
