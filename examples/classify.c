/* A trained classifier in a program: the model from a file, predictions from arrays.
 *
 *   cc classify.c $(pkg-config --cflags --libs recurve) -lm -o classify
 *   ./classify waves.safetensors
 *
 * The model is one of `recurve train waves.csv --target label` (waves.py makes the table): a feature a time step, a class a sequence.
 */
#include <recurve.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 3, STEPS = 40, FEATURES = 1 };

static const double pi = 3.14159265358979323846;

static void check(rcv_status status) {
    if (status != RCV_OK) {
        fprintf(stderr, "classify: %s (%s)\n", rcv_message(), rcv_status_name(status));
        exit(1);
    }
}

/* A sine, a square wave and a saw tooth of two periods; the last sequence has 30 steps. x: [STEPS, BATCH, FEATURES] */
static void make_sequences(float *x, int64_t *lengths) {
    for (int t = 0; t < STEPS; t++) {
        double turns = 2.0 * t / STEPS, phase = turns - floor(turns);
        x[t * BATCH + 0] = (float)sin(2 * pi * phase);
        x[t * BATCH + 1] = phase < 0.5 ? 1.0f : -1.0f;
        x[t * BATCH + 2] = (float)(2 * phase - 1);
    }
    for (int row = 0; row < BATCH; row++) lengths[row] = row == BATCH - 1 ? 30 : STEPS;
}

/* The class with the largest of `count` probabilities. */
static size_t find_likeliest(const float *probabilities, size_t count) {
    size_t likeliest = 0;
    for (size_t i = 1; i < count; i++) {
        if (probabilities[i] > probabilities[likeliest]) likeliest = i;
    }
    return likeliest;
}

int main(int argc, char **argv) {
    rcv_context *context;
    rcv_learner *learner;
    size_t classes;
    float x[STEPS * BATCH * FEATURES];
    int64_t lengths[BATCH];

    if (argc != 2) {
        fprintf(stderr, "Usage: classify MODEL.safetensors\n");
        return 2;
    }
    check(rcv_context_new(NULL, &context));
    check(rcv_learner_load(context, argv[1], "cpu", RCV_FLOAT32, &learner));
    const char *const *names = rcv_learner_classes(learner, &classes);
    if (!names || rcv_learner_kind(learner) != RCV_DATA_CLASSES) {
        fprintf(stderr, "classify: %s does not predict a class a sequence\n", argv[1]);
        return 1;
    }

    float *probabilities = calloc(BATCH * classes, sizeof *probabilities); /* [BATCH, classes] */
    if (!probabilities) return 1;
    make_sequences(x, lengths);
    /* Numbers are given as the training data had them: the learner normalises. */
    check(rcv_learner_predict(learner, &RCV_INIT(rcv_prediction, .steps = STEPS, .batch = BATCH, .x = x,
                                                 .features = FEATURES, .lengths = lengths, .out = probabilities)));
    for (int row = 0; row < BATCH; row++) {
        const float *of_row = probabilities + (size_t)row * classes;
        printf("sequence %d: %s\n", row, names[find_likeliest(of_row, classes)]);
        for (size_t i = 0; i < classes; i++) printf("    %-10s %.4f\n", names[i], (double)of_row[i]);
    }

    free(probabilities);
    rcv_learner_free(learner);
    rcv_context_free(context);
    return 0;
}
