/* Low-rank weights: speed-up and error, compared with the full matrices. */
#include "bench/experiments.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double DECAY = 32; /* singular values fall by e every hidden / 32 */

/* Fills w [rows, columns] with a random matrix whose singular values decay, scaled like initialised weights. */
static rcv_status make_decaying(rcv_context *context, rcv_dtype storage, void *w, int64_t rows, int64_t columns,
                                int64_t hidden, uint64_t seed) {
    const int64_t rank = rows < columns ? rows : columns;
    double *a = need((size_t)(rows * rank), sizeof(double)), *b = need((size_t)(rank * columns), sizeof(double)),
           *product = need((size_t)(rows * columns), sizeof(double)), square = 0;
    fill_random(RCV_FLOAT64, a, rows * rank, 1, seed);
    fill_random(RCV_FLOAT64, b, rank * columns, 1, seed + 1);
    for (int64_t i = 0; i < rank * columns; i++) {
        const int64_t row = i / columns;
        b[i] *= exp(-DECAY * (double)row / (double)hidden);
    }
    const rcv_gemm_options options =
        RCV_INIT(rcv_gemm_options, .dtype = RCV_FLOAT64, .m = rows, .n = columns, .k = rank);
    rcv_gemm *gemm = NULL;
    rcv_status status = rcv_gemm_new(context, &options, &gemm);
    if (status == RCV_OK) {
        status = rcv_gemm_run(gemm, a, b, product);
    }
    rcv_gemm_free(gemm);
    for (int64_t i = 0; i < rows * columns; i++) {
        square += product[i] * product[i];
    }
    const double scale = sqrt((double)(rows * columns) / (3. * (double)hidden) /
                              square); /* standard deviation of uniform +-1/sqrt(hidden) */
    for (int64_t i = 0; i < rows * columns && status == RCV_OK; i++) {
        if (storage == RCV_FLOAT64) {
            ((double *)w)[i] = scale * product[i];
        } else {
            ((float *)w)[i] = (float)(scale * product[i]);
        }
    }
    free(a);
    free(b);
    free(product);
    return status;
}

static rcv_status make_all_decaying(rcv_context *context, const rcv_net *net, rcv_dtype storage, void *parameters,
                                    uint64_t seed) {
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < rcv_net_parameter_count(net) && status == RCV_OK; i++) {
        const rcv_parameter *parameter = rcv_net_parameter(net, i);
        if (parameter->dims == 2) {
            status = make_decaying(
                context, storage, (char *)parameters + (size_t)parameter->offset * rcv_dtype_bytes(storage),
                parameter->shape[0], parameter->shape[1], rcv_net_get_options(net)->hidden, seed + 2 * i);
        }
    }
    return status;
}

/* Runs the full network and its approximations on the same inputs. With `decaying` weights results are compared and not timed. */
static rcv_status compare_ranks(const bench *bench, results *results, const rcv_net *full, bool decaying) {
    const problem *problem = &bench->problem;
    rcv_model *models[MAXIMUM_RANKS] = {NULL};
    comparison comparison = {.count = 0};
    call_tensors tensors;
    call_tensors_new(&tensors, problem, full, bench->seed);
    rcv_status status = rcv_model_new(full, tensors.storage, bench->seed, &models[0]);
    if (status == RCV_OK && decaying) {
        status =
            make_all_decaying(problem->context, full, tensors.storage, rcv_model_parameters(models[0]), bench->seed);
    }
    for (size_t i = 0; i < results->rank_count && status == RCV_OK && stop_signal() == 0; i++) {
        const int64_t rank = results->ranks[i].rank;
        show_progress("low rank: approximating and planning for rank %lld", (long long)rank);
        if (i > 0) {
            status = rcv_model_low_rank(models[0], rank, &models[i]);
        }
        if (status == RCV_OK) {
            char name[64];
            snprintf(name, sizeof name, "rank %lld", (long long)rank);
            const rcv_net *net = rcv_model_net(models[i]);
            results->ranks[i].parameters = (double)rcv_net_parameter_elements(net);
            comparison_add_plan(&comparison, i == 0 ? "full" : name, problem, net, &tensors,
                                rcv_model_parameters(models[i]), problem->schedule);
        }
    }
    if (status == RCV_OK) {
        comparison_measure(&comparison, problem, &tensors, NULL, "low rank", decaying ? 0 : bench->seconds,
                           decaying ? 0 : 5);
    }
    for (size_t i = 0; i < comparison.count && status == RCV_OK; i++) {
        rank_point *point = &results->ranks[i];
        const measurement *item = &comparison.items[i].measured;
        if (decaying) {
            point->error_decaying = item->difference;
            continue;
        }
        point->error_fresh = item->difference;
        point->seconds = item->median;
        point->speedup = item->ratio > 0 ? 1 / item->ratio : 0;
        point->plan = item->plan != NULL ? text_of("%s", item->plan) : NULL;
        point->refusal = item->refusal != NULL ? text_of("%s", item->refusal) : NULL;
    }
    comparison_free(&comparison);
    for (size_t i = results->rank_count; i > 0; i--) {
        rcv_model_free(models[i - 1]);
    }
    call_tensors_free(&tensors);
    return status;
}

/* list = number { "," number } | "auto"; it is valid. The full matrices are the first entry. */
static void read_ranks(const bench *bench, results *results) {
    const int64_t hidden = bench->problem.network.net.hidden, rank = bench->problem.network.net.rank;
    int64_t values[MAXIMUM_RANKS - 1];
    size_t count = 0;
    if (rank > 0) {
        values[count++] = rank;
    }
    if (bench->ranks != NULL && strcmp(bench->ranks, "auto") == 0) {
        for (int64_t part = 2; part <= 16 && hidden / part > 0; part *= 2) {
            values[count++] = hidden / part;
        }
    } else if (bench->ranks != NULL) {
        for (const char *at = bench->ranks; *at != '\0' && count < COUNT(values); at += *at == ',') {
            char *end;
            values[count++] = strtoll(at, &end, 10);
            at = end;
        }
    }
    results->ranks[0] = (rank_point){.rank = 0, .error_fresh = NAN, .error_decaying = NAN};
    for (size_t i = 0; i < count; i++) {
        results->ranks[i + 1] = (rank_point){.rank = values[i], .error_fresh = NAN, .error_decaying = NAN};
    }
    results->rank_count = count + 1;
}

rcv_status bench_ranks(const bench *bench, results *results) {
    rcv_net_options options = bench->problem.network.net;
    options.rank = 0;
    rcv_net *full = NULL;
    rcv_status status = rcv_net_new(bench->problem.cell, &options, &full);
    if (status == RCV_OK) {
        read_ranks(bench, results);
        status = compare_ranks(bench, results, full, false);
    }
    if (status == RCV_OK && stop_signal() == 0) {
        status = compare_ranks(bench, results, full, true);
    }
    rcv_net_free(full);
    return status;
}
