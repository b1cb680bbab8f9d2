/* The results of --lengths as text. */
#include "bench/experiments.h"

#include <stdio.h>
#include <string.h>

/* A number, or a dash if there is none; with `about` a tilde precedes it. */
static void print_value(int width, int digits, double value, bool about, const char *unit) {
    char room[64] = "-";
    if (value > 0) {
        snprintf(room, sizeof room, "%s%.*f%s", about ? "~" : "", digits, value, unit);
    }
    printf("%*s", width, room);
}

static void print_point(const char *cell, const length_point *point, bool is_lstm) {
    printf("%-14.14s%9lld", cell, (long long)point->steps);
    for (size_t pass = 0; pass < PASSES; pass++) {
        const length_pass *found = &point->passes[pass];
        const bool own = is_lstm && found->extrapolated;
        print_value(15, 4, found->seconds * 1e3, own, "");
        print_value(11, 3, length_rate(point, pass) * 1e-6, own, "");
        print_value(10, 2, length_speedup(found), found->extrapolated, "x");
    }
    printf("\n");
}

/* Lengths with the same plan, chosen in the same way, share a line. */
static bool same_plan(const length_point *a, const length_point *b, size_t pass) {
    const char *plan = a->passes[pass].plan, *other = b->passes[pass].plan;
    char rooms[2][64];
    return plan != NULL && other != NULL && strcmp(plan, other) == 0 &&
           strcmp(length_origin(a, pass, rooms[0]), length_origin(b, pass, rooms[1])) == 0;
}

static void print_plans(const char *cell, const length_point *points, size_t count) {
    for (size_t pass = 0; pass < PASSES; pass++) {
        for (size_t i = 0; i < count;) {
            const length_pass *found = &points[i].passes[pass];
            size_t last = i;
            while (last + 1 < count && same_plan(&points[i], &points[last + 1], pass)) {
                last++;
            }
            if (found->plan != NULL) {
                char steps[64], room[64];
                const char *origin = length_origin(&points[i], pass, room);
                snprintf(steps, sizeof steps, last > i ? "%lld to %lld" : "%lld", (long long)points[i].steps,
                         (long long)points[last].steps);
                printf("%-14.14s%-16s%-20s%s%s%s%s\n", cell, length_passes[pass], steps, found->plan,
                       origin[0] != '\0' ? "  (" : "", origin, origin[0] != '\0' ? ")" : "");
            }
            i = last + 1;
        }
    }
}

/* Why a pass was not measured. */
static void print_refusals(const char *cell, const length_point *points, size_t count) {
    for (size_t i = 0; i < count * PASSES; i++) {
        const length_point *point = &points[i / PASSES];
        const length_pass *pass = &point->passes[i % PASSES];
        const bool is_lstm = pass->lstm <= 0 && pass->extrapolated;
        if (pass->seconds <= 0 || is_lstm) {
            printf("%s, %lld steps, %s: %s%s\n", cell, (long long)point->steps, length_passes[i % PASSES],
                   is_lstm ? "extrapolated: " : "", pass->refusal != NULL ? pass->refusal : "not measured");
        }
    }
}

void print_lengths(const results *results) {
    const lengths *lengths = &results->lengths;
    print_machine(results);
    printf("\n%-14s%9s%15s%11s%10s%15s%11s%10s\n", "cell", "steps", "forward ms", "Msteps/s", "x LSTM", "training ms",
           "Msteps/s", "x LSTM");
    for (size_t i = 0; i < lengths->count; i++) {
        print_point("lstm", &lengths->lstm[i], true);
    }
    for (size_t i = 0; i < lengths->cell_count * lengths->count; i++) {
        print_point(lengths->cells[i / lengths->count], &lengths->points[i / lengths->count][i % lengths->count],
                    false);
    }
    printf("(x LSTM: speed-up over the LSTM of the same size, timed in turns; ~: the time of the LSTM is extrapolated\n"
           "from fewer steps)\n");
    if (lengths->left_out != NULL) {
        printf("Not built in: %s\n", lengths->left_out);
    }
    print_refusals("lstm", lengths->lstm, lengths->count);
    for (size_t row = 0; row < lengths->cell_count; row++) {
        print_refusals(lengths->cells[row], lengths->points[row], lengths->count);
    }
    printf("\nPlans\n");
    print_plans("lstm", lengths->lstm, lengths->count);
    for (size_t row = 0; row < lengths->cell_count; row++) {
        print_plans(lengths->cells[row], lengths->points[row], lengths->count);
    }
}
