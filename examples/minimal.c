/* A cell of one's own, trained for a few steps: everything a program needs is in recurve.h.
 *
 *   cc minimal.c $(pkg-config --cflags --libs recurve) -o minimal
 */
#include <recurve.h>

#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 12, BATCH = 4, INPUT = 3, HIDDEN = 8, UPDATES = 20 };

/* A gated unit that keeps z of its past: change the equations, and everything below follows. */
static const char cell_text[] = "cell keeper(x) {\n"
                                "    state h\n"
                                "    z = sigmoid(W x + U h + b)\n"
                                "    n = tanh(W x + U (z * h) + b)\n"
                                "    h' = z * h + (1 - z) * n\n"
                                "    return h'\n"
                                "}\n";

static void check(rcv_status status) {
    if (status != RCV_OK) {
        fprintf(stderr, "minimal: %s (%s)\n", rcv_message(), rcv_status_name(status));
        exit(1);
    }
}

static void fill(float *values, size_t count) {
    for (size_t i = 0; i < count; i++) values[i] = 2.0f * (float)rand() / (float)RAND_MAX - 1.0f;
}

/* Half the mean square of y - target over `count` elements; dy is its gradient. */
static double square_loss(const float *y, const float *target, float *dy, size_t count) {
    double loss = 0;
    for (size_t i = 0; i < count; i++) {
        float difference = y[i] - target[i];
        loss += 0.5 * difference * difference / (double)count;
        dy[i] = difference / (float)count;
    }
    return loss;
}

static float *floats(size_t count) {
    float *values = calloc(count, sizeof *values);
    if (!values) {
        fprintf(stderr, "minimal: no memory for %zu numbers\n", count);
        exit(1);
    }
    return values;
}

/* Gradient descent on random data; true when the loss fell. */
static bool train(const rcv_net *net, const rcv_plan *plan, rcv_run *run) {
    size_t outputs = (size_t)STEPS * BATCH * (size_t)rcv_net_output(net);
    size_t count = (size_t)rcv_net_parameter_elements(net);
    float *x = floats((size_t)STEPS * BATCH * INPUT);                             /* [steps, batch, input] */
    float *y = floats(outputs), *dy = floats(outputs), *target = floats(outputs); /* [steps, batch, output] */
    float *parameters = floats(count), *gradient = floats(count);
    double first = 0, last = 0;

    srand(1);
    fill(x, (size_t)STEPS * BATCH * INPUT);
    fill(target, outputs);
    check(rcv_net_initialize(net, 1, RCV_FLOAT32, parameters));
    printf("%s, plan %s, y is [%d, %d, %d]\n", rcv_cell_name(rcv_net_cell(net)), rcv_plan_string(plan), STEPS, BATCH,
           (int)rcv_net_output(net));

    for (int update = 0; update <= UPDATES; update++) {
        check(rcv_run_forward(run, &RCV_INIT(rcv_forward, .parameters = parameters, .x = x, .y = y)));
        last = square_loss(y, target, dy, outputs);
        if (update == 0) first = last;
        check(rcv_run_backward(run, &RCV_INIT(rcv_backward, .dy = dy, .dparameters = gradient)));
        for (size_t i = 0; i < count; i++) parameters[i] -= 0.5f * gradient[i];
    }
    printf("loss %.6f before, %.6f after %d updates\n", first, last, UPDATES);

    free(gradient);
    free(parameters);
    free(target);
    free(dy);
    free(y);
    free(x);
    return last < first;
}

int main(void) {
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    rcv_plan *plan;
    rcv_run *run;

    check(rcv_context_new(NULL, &context));
    check(rcv_cell_parse(context, cell_text, sizeof cell_text - 1, "keeper", &cell));
    check(rcv_net_new(cell, &RCV_INIT(rcv_net_options, .input = INPUT, .hidden = HIDDEN), &net));
    check(rcv_plan_new(net, &RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .training = true), &plan));
    check(rcv_run_new(plan, &run));

    bool fell = train(net, plan, run);

    rcv_run_free(run);
    rcv_plan_free(plan);
    rcv_net_free(net);
    rcv_cell_free(cell);
    rcv_context_free(context);
    return fell ? 0 : 1;
}
