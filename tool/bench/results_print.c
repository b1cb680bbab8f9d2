/* The results as text on standard output. */
#include "bench/experiments.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void print_limit(const bench *bench, const results *results) {
    const speed_unit *unit = &results->unit;
    const double speed = results->peak_speed * unit->scale;
    const char *dtype = rcv_dtype_name(bench->problem.dtype);
    if (results->peak_speed > 0 && results->machine.device != NULL) {
        printf("Limit:    %.1f %s of %s products of large matrices\n", speed, unit->name, dtype);
    } else if (results->peak_speed > 0 && results->peak.count == 1) {
        printf("Limit:    %.1f %s of %s multiply-adds, measured once\n", speed, unit->name, dtype);
    } else if (results->peak_speed > 0) {
        double low = results->peak_speed;
        for (size_t i = 0; i < results->peak.count; i++) {
            low = fmin(low, results->peak.samples[i]);
        }
        printf("Limit:    %.1f %s of %s multiply-adds, the best of %zu measurements (the least: %.1f)\n", speed,
               unit->name, dtype, results->peak.count, low * unit->scale);
    } else if (results->peak.refusal != NULL) {
        printf("Limit:    not known: %s\n", results->peak.refusal);
    }
}

void print_machine(const results *results) {
    const machine *machine = &results->machine;
    printf("%s\n", results->title);
    printf("Machine:  %s, %lld core%s", machine->cpu, (long long)machine->cores, machine->cores == 1 ? "" : "s");
    if (machine->device != NULL) {
        printf("\nDevice:   %s\n", machine->device);
    } else {
        printf("; %lld thread%s, kernels %s\n", (long long)machine->threads, machine->threads == 1 ? "" : "s",
               machine->kernels);
    }
    printf("Version:  recurve %s%s%s, %s\n", machine->version, machine->commit[0] != '\0' ? " " : "", machine->commit,
           machine->date);
}

void print_head(const bench *bench, const results *results) {
    const machine *machine = &results->machine;
    const measurement *ours = &results->main.items[0];
    char room[32];
    print_machine(results);
    print_limit(bench, results);
    if (machine->barrier > 0) {
        printf("Barrier:  %.2f us for %lld threads\n", machine->barrier * 1e6, (long long)machine->threads);
    }
    printf("Plan:     %s\n", ours->plan);
    printf("Planned:  in %.3f s, %s; %zu candidates\n", results->planning_seconds,
           bench->problem.schedule != NULL ? "pinned"
           : results->from_wisdom          ? "from wisdom"
                                           : problem_effort(&bench->problem),
           results->option_count);
    printf("Memory:   %s (%.0f bytes)\n", human_bytes(ours->bytes, room), ours->bytes);
    printf("Work:     %.3f GFLOP a call: 2 a matrix element, step and sequence%s\n", ours->operations * 1e-9,
           bench->problem.training ? ", times 3" : "");
}

static void print_error(double error) {
    if (isnan(error)) {
        printf("%13s", "-");
    } else {
        printf("%13.1e", error);
    }
}

/* A difference that rounding does not explain: bfloat16 rounds at 2^-8. */
static const char *warning(double difference) { return difference > 0.1 ? "  <- results differ" : ""; }

static const char *reason(const measurement *implementation) {
    return implementation->refusal != NULL ? implementation->refusal : "not measured";
}

static void print_measurement(const results *results, const measurement *item, bool first) {
    const char *name = item->family != NULL ? item->family : item->name;
    if (item->median <= 0) {
        printf("%-20s %s\n", name, reason(item));
        return;
    }
    const double speed = item->operations / item->median;
    printf("%-20s%12.3f%12.3f%11.*f", name, item->median * 1e3, item->minimum * 1e3, results->unit.digits,
           speed * results->unit.scale);
    if (results->peak_speed > 0) {
        printf("%8.1f%%", 100 * speed / results->peak_speed);
    } else {
        printf("%9s", "-");
    }
    if (first) {
        printf("%10s%13s\n", "1.00", "-");
    } else {
        printf("%10.2f", item->ratio);
        print_error(item->difference);
        printf("%s\n", warning(item->difference));
    }
}

/* The members of families; the table shows only the fastest of each. */
static void print_families(const measurements *all) {
    for (size_t i = 0; i < all->count; i++) {
        const measurement *item = &all->items[i];
        if (item->family != NULL && item->median > 0) {
            printf("%s: %.3f ms%s\n", item->name, item->median * 1e3, warning(item->difference));
        } else if (item->family != NULL) {
            printf("%s: %s\n", item->name, reason(item));
        }
    }
}

void print_comparison(const results *results) {
    const measurements *all = &results->main;
    printf("\n%-20s%12s%12s%11s%9s%10s%13s\n", "implementation", "median ms", "least ms", results->unit.name, "% peak",
           "recurve x", "difference");
    for (size_t i = 0; i < all->count; i++) {
        const measurement *item = family_best(all, i);
        if (item != NULL) {
            print_measurement(results, item, i == 0);
        }
    }
    printf(
        "(%zu rounds; recurve x: speed-up of recurve; difference: of the results, relative to the largest element)\n",
        all->rounds);
    print_families(all);
    for (size_t i = 1; i < all->count; i++) {
        if (all->items[i].note != NULL) {
            printf("%s: %s\n", all->items[i].name, all->items[i].note);
        }
    }
}

static void print_rung(const measurement *item) {
    if (item->median <= 0) {
        printf("  %-26s%24s  %s: %s\n", item->name, "", item->plan != NULL ? item->plan : "",
               item->refusal != NULL ? item->refusal : "not measured");
        return;
    }
    printf("  %-26s%12.3f%10.2fx  %s%s\n", item->name, item->median * 1e3, item->ratio > 0 ? 1 / item->ratio : 0,
           item->plan, warning(item->difference));
}

void print_ladder(const results *results) {
    const measurements *ladder = &results->ladder;
    printf("\nLadder\n  %-26s%12s%11s  %s\n", "", "median ms", "speedup", "plan");
    for (size_t i = 0; i < ladder->count; i++) {
        if (i == 1) {
            printf("  alone\n");
        } else if (i == results->ladder_alone + 1) {
            printf("  added one after the other\n");
        }
        print_rung(&ladder->items[i]);
    }
}

void print_batches(const bench *bench, const results *results) {
    const speed_unit *unit = &results->unit;
    bool vendor = false;
    for (size_t i = 0; i < results->batch_count; i++) {
        vendor = vendor || results->batches[i].vendor_speed > 0;
    }
    printf("\nBatch sizes\n%8s%12s%11s%9s%*s  %s\n", "batch", "median ms", unit->name, "% peak", vendor ? 11 : 0,
           vendor ? vendor_name(&bench->problem) : "", "plan");
    for (size_t i = 0; i < results->batch_count; i++) {
        const batch_point *point = &results->batches[i];
        printf("%8lld%12.3f%11.*f%8.1f%%", (long long)point->batch, point->seconds * 1e3, unit->digits,
               point->speed * unit->scale, results->peak_speed > 0 ? 100 * point->speed / results->peak_speed : 0);
        if (vendor) {
            printf("%11.*f", unit->digits, point->vendor_speed * unit->scale);
        }
        printf("  %s\n", point->plan);
    }
}

void print_gemm(const results *results) {
    const gemm_curve *curve = &results->gemm;
    printf("\nProducts, GFLOP/s by batch size\n%-36s%-18s", "", "");
    for (size_t i = 0; i < CPU_BATCH_SIZES; i++) {
        printf("%8lld", (long long)batch_sizes[i]);
    }
    printf("\n");
    for (size_t variant = 0; variant < GEMM_VARIANTS; variant++) {
        for (size_t who = 0; who < GEMM_IMPLEMENTATIONS; who++) {
            if (who == GEMM_OPENBLAS && isnan(curve->difference)) {
                continue;
            }
            char title[64] = "";
            if (who == 0) {
                snprintf(title, sizeof title, "%s (%s)", gemm_variants[variant], gemm_meanings[variant]);
            }
            printf("%-36s%-18s", title, gemm_implementations[who]);
            for (size_t i = 0; i < CPU_BATCH_SIZES; i++) {
                printf("%8.1f", curve->speed[variant][who][i] * 1e-9);
            }
            printf("\n");
        }
    }
    printf("(limits: float32 %.1f, bfloat16 %.1f", curve->peak[0] * 1e-9, curve->peak[1] * 1e-9);
    if (!isnan(curve->difference)) {
        printf("; float32 differs from OpenBLAS by %.1e at most", curve->difference);
    }
    printf(")\n");
    if (curve->refusal != NULL) {
        printf("Not measured: %s\n", curve->refusal);
    }
}

void print_ranks(const results *results) {
    printf("\nLow rank\n%8s%12s%10s%14s%13s%13s  %s\n", "rank", "median ms", "speedup", "parameters", "error fresh",
           "decaying", "plan");
    for (size_t i = 0; i < results->rank_count; i++) {
        const rank_point *point = &results->ranks[i];
        char name[32];
        snprintf(name, sizeof name, point->rank > 0 ? "%lld" : "full", (long long)point->rank);
        if (point->seconds <= 0) {
            printf("%8s  %s\n", name, point->refusal != NULL ? point->refusal : "not measured");
            continue;
        }
        printf("%8s%12.3f%9.2fx%14.0f", name, point->seconds * 1e3, point->speedup, point->parameters);
        print_error(point->error_fresh);
        print_error(point->error_decaying);
        printf("  %s\n", point->plan);
    }
    printf("(error: of y, relative to its largest element; fresh: initialised weights; decaying: singular values\n"
           "fall by e every hidden / 32)\n");
}

static void print_step(const char *name, double seconds, double own, const char *plan) {
    if (seconds > 0) {
        printf("  %-44s%10.2f us  %5.2fx  %s\n", name, seconds * 1e6, own / seconds, plan != NULL ? plan : "");
    }
}

void print_streaming(const results *results) {
    const streaming *streaming = &results->streaming;
    printf("\nStreaming, %lld step%s a call\n", (long long)streaming->chunk, streaming->chunk == 1 ? "" : "s");
    if (streaming->refusal != NULL) {
        printf("  %s\n", streaming->refusal);
        return;
    }
    printf("  latency of a call: p50 %.2f us, p99 %.2f us (%.2f of p50), worst %.2f us, over %lld calls\n",
           streaming->p50 * 1e6, streaming->p99 * 1e6, streaming->p99 / streaming->p50, streaming->worst * 1e6,
           (long long)streaming->calls);
    if (streaming->object_p50 > 0) {
        printf("  by rcv_stream: p50 %.2f us, %.3fx the p50 of calls by hand in turns with it\n",
               streaming->object_p50 * 1e6, streaming->object_ratio);
    }
    printf("  %-44s%10s     %6s\n", "a step", "", "stream");
    print_step("streamed", streaming->step, streaming->step, streaming->plan);
    print_step("streamed, by rcv_stream", streaming->object_step, streaming->step, streaming->object_plan);
    print_step("whole sequence", streaming->whole_step, streaming->step, streaming->whole_plan);
    print_step("whole sequence, input products step by step", streaming->unhoisted_step, streaming->step,
               streaming->unhoisted_plan);
    if (streaming->input_alone > 0) {
        const double apart = streaming->step - streaming->input_alone + streaming->input_hoisted;
        printf("  input products a step: %.2f us one call at a time, %.2f us over the whole sequence;\n"
               "  without that difference a streamed step takes %.2fx the time of a step of the whole sequence\n",
               streaming->input_alone * 1e6, streaming->input_hoisted * 1e6,
               streaming->whole_step > 0 ? apart / streaming->whole_step : 0);
    }
}

void print_planner(const results *results) {
    printf("\nPlanner\n  %-12s%12s%12s%17s  %s\n", "effort", "chosen in s", "median ms", "x exhaustive's", "plan");
    for (size_t i = 0; i < results->choice_count; i++) {
        const choice *choice = &results->choices[i];
        printf("  %-12s", choice->effort);
        if (choice->plan == NULL || choice->refusal != NULL) {
            printf("%s\n", choice->refusal);
            continue;
        }
        printf("%12.3f", choice->choosing);
        if (choice->seconds > 0) {
            printf("%12.3f%17.3f  %s\n", choice->seconds * 1e3, choice->ratio, choice->plan);
        } else {
            printf("%12s%17s  %s\n", "-", "-", choice->plan);
        }
    }
    printf("(without wisdom; the plans were timed in turns, and efforts that chose the same plan share its time)\n");
}
