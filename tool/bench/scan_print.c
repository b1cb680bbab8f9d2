/* The results of --scan as text. */
#include "bench/experiments.h"

#include <math.h>
#include <stdio.h>

static const char *shape_of(const scan_point *point, char room[64]) {
    if (point->batch > 1) {
        snprintf(room, 64, "[%lld, %lld*%lld]", (long long)point->steps, (long long)point->batch,
                 (long long)point->channels);
    } else {
        snprintf(room, 64, "[%lld, %lld]", (long long)point->steps, (long long)point->channels);
    }
    return room;
}

static void print_copy(const results *results) {
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < results->scans.count; i++) {
        const double copy = results->scans.points[i].copy;
        low = copy > 0 ? fmin(low, copy) : low;
        high = fmax(high, copy);
    }
    if (high <= 0) {
        printf("Copy:     not known\n");
    } else if (results->scans.reads == 1) {
        printf("Copy:     %.1f GB/s of c[i] = a[i], arrays of 256 MiB\n", high * 1e-9);
    } else {
        printf("Copy:     %.1f to %.1f GB/s of c[i] = a[i] + b[i], arrays as large as those of each row\n", low * 1e-9,
               high * 1e-9);
    }
}

/* A number, or a dash if there is none. */
static void print_cell(int width, int digits, double value, const char *unit) {
    if (value > 0) {
        printf("%*.*f%s", width, digits, value, unit);
    } else {
        printf("%*s%*s", width, "-", unit[0] != '\0' ? 1 : 0, "");
    }
}

static void print_pass(const scan_point *point, bool backward) {
    const scan_pass *pass = backward ? &point->backward : &point->forward;
    print_cell(12, 4, pass->seconds * 1e3, "");
    print_cell(9, 1, scan_bandwidth(point, backward) * 1e-9, "");
    print_cell(8, 1, 100 * scan_share(point, backward), "%");
    print_cell(9, 1, scan_speedup(pass), "x");
}

static void print_targets(const scans *scans) {
    printf("\nTargets\n%-20s%-22s%12s%12s\n", "", "", "target", "measured");
    for (size_t i = 0; i < scans->target_count; i++) {
        const scan_target *target = &scans->targets[i];
        const int digits = target->unit[0] == 'm' ? 4 : 1;
        char room[64];
        printf("%-20s%-22s%3s%6.*f %-2s", shape_of(target->point, room), target->what,
               target->at_most ? "<=" : ">=", digits, target->target, target->unit);
        print_cell(9, digits, target->measured, "");
        printf(" %-2s  %s", target->unit, target_is_met(target) ? "met" : "not met");
        printf("%s%s\n", target->source != NULL ? "; target: " : "", target->source != NULL ? target->source : "");
    }
}

void print_scan(const results *results) {
    const scans *scans = &results->scans;
    print_machine(results);
    print_copy(results);
    printf("\n%-18s%-10s%12s%9s%9s%10s%12s%9s%9s%10s\n", "[steps, channels]", "form", "forward ms", "GB/s", "of copy",
           "x serial", "backward ms", "GB/s", "of copy", "x serial");
    for (size_t i = 0; i < scans->count; i++) {
        const scan_point *point = &scans->points[i];
        char room[64];
        printf("%-18s", shape_of(point, room));
        if (point->forward.seconds <= 0) {
            printf("%s\n", point->refusal != NULL ? point->refusal : "not measured");
            continue;
        }
        printf("%-10s", point->form);
        print_pass(point, false);
        print_pass(point, true);
        printf("\n");
    }
    printf("(bytes: forward reads a and b and writes h, backward reads a, h and dh and writes da and db; x serial:\n"
           "speed-up over the serial form, where that takes less than a second)\n");
    if (scans->target_count > 0) {
        print_targets(scans);
    }
}
