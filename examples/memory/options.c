#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const initial_names[] = {"clocks", "chrono", "usual", NULL};
static const char *const dtype_names[] = {"float32", "float64", "bfloat16", "tfloat32", "float16", NULL};
static const rcv_dtype dtypes[] = {RCV_FLOAT32, RCV_FLOAT64, RCV_BFLOAT16, RCV_TFLOAT32, RCV_FLOAT16};

typedef enum { TEXT, INTEGER, REAL, SEED, CHOICE } kind;

typedef struct {
    const char *name, *value, *help;
    kind kind;
    void *destination; /* const char *, int64_t, double, uint64_t or int */
    double minimum, maximum;
    const char *const *choices;
} option;

/* strtod and strtoull accept spaces and signs before a number. */
static bool is_number(const char *text) { return text[0] != '\0' && strspn(text, "+-.0123456789eE") == strlen(text); }

static bool set_choice(const option *option, const char *text) {
    for (int i = 0; option->choices[i] != NULL; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            *(int *)option->destination = i;
            return true;
        }
    }
    return false;
}

static bool set_value(const option *option, const char *text) {
    char *end;
    errno = 0;
    if (option->kind == TEXT) {
        *(const char **)option->destination = text;
        return true;
    }
    if (option->kind == CHOICE) {
        return set_choice(option, text);
    }
    if (option->kind == SEED) {
        *(uint64_t *)option->destination = strtoull(text, &end, 10);
        return errno == 0 && *end == '\0' && strspn(text, "0123456789") == strlen(text) && text[0] != '\0';
    }
    const double real = strtod(text, &end);
    if (!is_number(text) || *end != '\0' || errno != 0 || !(real >= option->minimum && real <= option->maximum)) {
        return false;
    }
    if (option->kind == REAL) {
        *(double *)option->destination = real;
        return true;
    }
    *(int64_t *)option->destination = (int64_t)real;
    return (double)(int64_t)real == real;
}

static void print_help(const option *table, size_t count) {
    printf("Usage: memory_task [OPTIONS]\n\n"
           "Trains a recurrent network on the memory problem: read a sequence of random signs,\n"
           "and name the first one at the end. Ends with status 0 when five minibatches in a\n"
           "row (and at least 40 sequences in a row) are all classified correctly.\n\n");
    for (size_t i = 0; i < count; i++) {
        char name[40];
        snprintf(name, sizeof name, "--%s %s", table[i].name, table[i].value);
        printf("  %-24s%s\n", name, table[i].help);
    }
}

parsed parse_options(options *options, int argc, char **argv) {
    int dtype = 0;
    *options = (struct options){.cell = "gilr_lstm",
                                .device = "cpu",
                                .hidden = 64,
                                .layers = 2,
                                .length = 1024,
                                .batch = 8,
                                .iterations = 2000,
                                .learning_rate = 0.005,
                                .clip = 1};
    const double most = 1 << 24;
    const option table[] = {
        {"cell", "NAME|FILE", "a built-in cell or a .cell file (gilr_lstm)", TEXT, &options->cell, 0, 0, NULL},
        {"hidden", "N", "features of a state (64)", INTEGER, &options->hidden, 1, most, NULL},
        {"layers", "N", "layers (2)", INTEGER, &options->layers, 1, 4096, NULL},
        {"length", "N", "signs of a sequence (1024)", INTEGER, &options->length, 2, most, NULL},
        {"batch", "N", "sequences of a minibatch (8)", INTEGER, &options->batch, 1, most, NULL},
        {"iterations", "N", "at most; 0: no limit (2000)", INTEGER, &options->iterations, 0, 1e15, NULL},
        {"seconds", "S", "at most; 0: no limit (0)", REAL, &options->seconds, 0, 1e9, NULL},
        {"learning-rate", "X", "of Adam (0.005)", REAL, &options->learning_rate, 1e-12, 1e6, NULL},
        {"clip", "X", "largest norm of the gradient; 0: any (1)", REAL, &options->clip, 0, 1e30, NULL},
        {"seed", "N", "of the initial values and the sequences (0)", SEED, &options->seed, 0, 0, NULL},
        {"initial", "HOW", "initial values: clocks, chrono or usual (clocks)", CHOICE, &options->initial, 0, 0,
         initial_names},
        {"dtype", "TYPE", "float32, float64, bfloat16; GPU: tfloat32, float16", CHOICE, &dtype, 0, 0, dtype_names},
        {"device", "NAME", "cpu, cuda, cuda:1, ... (cpu)", TEXT, &options->device, 0, 0, NULL},
        {"threads", "N", "at most; 0: one for each core (0)", INTEGER, &options->threads, 0, 1024, NULL},
        {"schedule", "PLAN", "use this plan string", TEXT, &options->schedule, 0, 0, NULL},
        {"json", "FILE", "write every number", TEXT, &options->json, 0, 0, NULL},
    };
    const size_t count = sizeof table / sizeof *table;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(table, count);
            return PARSED_HELP;
        }
        size_t at = 0;
        while (at < count && (strncmp(argv[i], "--", 2) != 0 || strcmp(argv[i] + 2, table[at].name) != 0)) {
            at++;
        }
        if (at == count) {
            fprintf(stderr, "memory_task: there is no option '%s'; see memory_task --help\n", argv[i]);
            return PARSED_WRONG;
        }
        if (++i == argc) {
            fprintf(stderr, "memory_task: --%s needs a value: %s\n", table[at].name, table[at].value);
            return PARSED_WRONG;
        }
        if (!set_value(&table[at], argv[i])) {
            fprintf(stderr, "memory_task: --%s does not accept '%s'; it is %s\n", table[at].name, argv[i],
                    table[at].help);
            return PARSED_WRONG;
        }
    }
    options->dtype = dtypes[dtype];
    return PARSED;
}
