/* Rows of results as lines of JSON, and the numbers in them. */
#include "calls/calls.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool is_gpu(const job *j) { return strncmp(j->options->device, "cuda", 4) == 0; }
bool time_is_left(const job *j) { return now() < j->until; }
double spend(const job *j, double seconds) { return j->options->tiny ? seconds / 20 : seconds; }

void show(const job *j, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "bench_calls: %s: ", j->part);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

void *need(void *memory) {
    if (memory) return memory;
    fprintf(stderr, "bench_calls: no memory\n");
    exit(1);
}

/* ---- numbers ---- */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, size_t count) {
    if (count == 0) return 0;
    qsort(values, count, sizeof *values, ascending);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

double quantile(double *values, size_t count, double part) {
    if (count == 0) return 0;
    qsort(values, count, sizeof *values, ascending);
    return values[(size_t)(part * (double)(count - 1) + 0.5)];
}

double mean(const double *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += values[i];
    return count ? sum / (double)count : 0;
}

uint64_t draw(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* ---- JSON ---- */

void print_json_text(FILE *out, const char *text) {
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(out, "\\u%04x", *c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

static void print_json_number(FILE *out, double value) {
    if (isfinite(value))
        fprintf(out, "%.9g", value);
    else
        fputs("null", out);
}

/* The stream of the details, after the key of the next one. */
static FILE *detail(job *j, const char *key) {
    bool is_first = !j->details;
    if (is_first) j->details = need(open_memstream(&j->details_text, &j->details_length));
    if (!is_first) fputs(", ", j->details);
    print_json_text(j->details, key);
    fputs(": ", j->details);
    return j->details;
}

void detail_number(job *j, const char *key, double value) { print_json_number(detail(j, key), value); }
void detail_text(job *j, const char *key, const char *value) { print_json_text(detail(j, key), value); }

void detail_pairs(job *j, const char *key, const int64_t *pairs, size_t count) {
    FILE *out = detail(j, key);
    fputc('[', out);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "%s[%lld, %lld]", i ? ", " : "", (long long)pairs[2 * i], (long long)pairs[2 * i + 1]);
    fputc(']', out);
}

/* What became of a row: the target of a missed one is not reached, and one that failed makes the job fail. */
typedef enum { DONE, MISSED, FAILED } outcome;

/* A row on standard output: with a number, a verdict or a reason. */
static void print_row(job *j, const row *r, double measured, const char *verdict, const char *reason, outcome end) {
    printf("{\"id\": ");
    print_json_text(stdout, r->id);
    printf(", \"part\": ");
    print_json_text(stdout, j->part);
    printf(", \"what\": ");
    print_json_text(stdout, r->what);
    printf(", \"unit\": ");
    print_json_text(stdout, r->unit);
    printf(", \"target\": ");
    print_json_number(stdout, r->target != 0 ? r->target : NAN);
    printf(", \"measured\": ");
    print_json_number(stdout, measured);
    if (verdict) printf(", \"verdict\": \"%s\"", verdict);
    if (reason) {
        printf(", \"reason\": ");
        print_json_text(stdout, reason);
    }
    if (end == MISSED) printf(", \"missed\": true");
    printf(", \"failed\": %s, \"details\": {", end == FAILED ? "true" : "false");
    if (j->details) {
        fclose(j->details);
        fputs(j->details_text, stdout);
        free(j->details_text);
        j->details = NULL;
        j->details_text = NULL;
    }
    printf("}}\n");
    fflush(stdout);
    j->failed |= end == FAILED;
}

void row_end(job *j, const row *r, double measured) {
    show(j, "%s: %.4g %s", r->what, measured, r->unit);
    print_row(j, r, measured, NULL, NULL, DONE);
}

void row_check(job *j, const row *r, bool equal) {
    show(j, "%s: %s", r->what, equal ? "equal" : "differs");
    print_row(j, r, NAN, equal ? "equal" : "differs", NULL, equal ? DONE : FAILED);
}

void row_left_out(job *j, const row *r, const char *reason) {
    show(j, "%s: left out: %s", r->what, reason);
    print_row(j, r, NAN, NULL, reason, DONE);
}

void row_missed(job *j, const row *r, const char *reason) {
    show(j, "%s: missed: %s", r->what, reason);
    print_row(j, r, NAN, NULL, reason, MISSED);
}

void row_failed(job *j, const row *r, rcv_status status) {
    if (status == RCV_STOPPED && !time_is_left(j)) {
        row_left_out(j, r, "no time was left");
        return;
    }
    row_wrong(j, r, rcv_message());
}

void row_wrong(job *j, const row *r, const char *reason) {
    show(j, "%s: failed: %s", r->what, reason);
    print_row(j, r, NAN, NULL, reason, FAILED);
}
