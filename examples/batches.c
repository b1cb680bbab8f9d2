/* Batches of different lengths and sizes by one plan, which is there at once: a faster one replaces it while the program computes.
 * Parameters lie where the program has them, one array a tensor.
 *
 *   cc batches.c $(pkg-config --cflags --libs recurve) -o batches
 */
#include <recurve.h>

#include <stdio.h>
#include <stdlib.h>

enum { MOST_STEPS = 24, MOST_BATCH = 8, INPUT = 6, HIDDEN = 16, BATCHES = 12, MOST_TENSORS = 16 };

static void check(rcv_status status) {
    if (status != RCV_OK) {
        fprintf(stderr, "batches: %s (%s)\n", rcv_message(), rcv_status_name(status));
        exit(1);
    }
}

/* Random numbers between -range and range. */
static float *new_numbers(size_t count, float range) {
    float *numbers = malloc(count * sizeof *numbers);
    if (!numbers) exit(1);
    for (size_t i = 0; i < count; i++) numbers[i] = range * (2.0f * (float)rand() / (float)RAND_MAX - 1.0f);
    return numbers;
}

int main(void) {
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    rcv_plan *plan;
    rcv_run *run;
    check(rcv_context_new(NULL, &context));
    check(rcv_cell_open(context, "lstm", &cell));
    check(rcv_net_new(cell, &RCV_INIT(rcv_net_options, .input = INPUT, .hidden = HIDDEN, .layers = 2), &net));

    size_t count = rcv_net_parameter_count(net);
    const void *parameters[MOST_TENSORS] = {NULL};
    void *gradients[MOST_TENSORS] = {NULL};
    for (size_t i = 0; i < count && i < MOST_TENSORS; i++) {
        size_t elements = (size_t)rcv_net_parameter(net, i)->count;
        parameters[i] = new_numbers(elements, 0.25f);
        gradients[i] = new_numbers(elements, 0);
    }

    /* For the largest batch; smaller ones cost what they compute. */
    rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = MOST_STEPS, .batch = MOST_BATCH, .training = true,
                                        .separate_parameters = true, .effort = RCV_BACKGROUND);
    check(rcv_plan_new(net, &options, &plan));
    check(rcv_run_new(plan, &run));
    printf("first plan: %s\n", rcv_plan_string(plan));

    float *x = new_numbers((size_t)MOST_STEPS * MOST_BATCH * INPUT, 1);
    float *y = new_numbers((size_t)MOST_STEPS * MOST_BATCH * HIDDEN, 0);
    for (int i = 0; i < BATCHES; i++) {
        if (i == BATCHES / 2) check(rcv_plan_wait(plan)); /* only to show both plans: a program goes on */
        rcv_forward forward = RCV_INIT(rcv_forward, .tensors = parameters, .x = x, .y = y,
                                       .steps = 1 + (7 * i) % MOST_STEPS, .batch = 1 + (5 * i) % MOST_BATCH);
        check(rcv_run_forward(run, &forward));
        /* The loss is half the sum of squares of y, so its gradient is y. */
        check(rcv_run_backward(run, &RCV_INIT(rcv_backward, .dy = y, .dtensors = gradients)));
        printf("batch %2d: %2d steps of %d sequences, first gradient %9.6f\n", i, (int)forward.steps,
               (int)forward.batch, (double)((float *)gradients[0])[0]);
    }
    printf("last plan: %s\n", rcv_plan_string(plan));

    rcv_run_free(run);
    rcv_plan_free(plan);
    for (size_t i = 0; i < count && i < MOST_TENSORS; i++) {
        free((void *)parameters[i]);
        free(gradients[i]);
    }
    free(x);
    free(y);
    rcv_net_free(net);
    rcv_cell_free(cell);
    rcv_context_free(context);
    return 0;
}
