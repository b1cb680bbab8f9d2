/* Arrays in a GPU's memory: a training step whose data stays there. Without a GPU the program says what is missing and ends with status 1.
 *
 *   cc gpu_memory.c $(pkg-config --cflags --libs recurve) -o gpu_memory
 *   ./gpu_memory            # or another device: ./gpu_memory cuda:1
 *
 * The program needs neither CUDA's headers nor its libraries. One that has memory from cudaMalloc passes those pointers in the same way.
 */
#include <recurve.h>

#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 50, BATCH = 16, INPUT = 32, HIDDEN = 64, LAYERS = 2 };

static const char *device = "cuda";
static rcv_context *context;

static void check(rcv_status status) {
    if (status != RCV_OK) {
        fprintf(stderr, "gpu_memory: %s (%s)\n", rcv_message(), rcv_status_name(status));
        exit(1);
    }
}

/* `count` numbers in the device's memory: copies of those in `from`, or where that is NULL not set. */
static float *new_on_device(size_t count, const float *from) {
    void *memory;
    check(rcv_memory_new(context, device, count * sizeof(float), &memory));
    if (from) check(rcv_memory_write(device, memory, from, count * sizeof(float)));
    return memory;
}

/* The sum of `count` numbers in the device's memory. */
static double sum_of(const float *numbers, size_t count) {
    float *host = malloc(count * sizeof *host);
    double sum = 0;
    if (!host) exit(1);
    check(rcv_memory_read(device, host, numbers, count * sizeof *host));
    for (size_t i = 0; i < count; i++) sum += (double)host[i];
    free(host);
    return sum;
}

int main(int argc, char **argv) {
    rcv_cell *cell;
    rcv_net *net;
    rcv_plan *plan;
    rcv_run *run;
    char *about;

    if (argc > 1) device = argv[1];
    check(rcv_context_new(NULL, &context));
    check(rcv_device_describe(context, device, &about));
    printf("%s\n", about);
    rcv_text_free(context, about);

    check(rcv_cell_open(context, "lstm", &cell));
    check(rcv_net_new(cell, &RCV_INIT(rcv_net_options, .input = INPUT, .hidden = HIDDEN, .layers = LAYERS), &net));
    rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .training = true,
                                        .device = device, .effort = RCV_BACKGROUND);
    check(rcv_plan_new(net, &options, &plan));
    check(rcv_run_new(plan, &run));

    size_t count = (size_t)rcv_net_parameter_elements(net), inputs = (size_t)STEPS * BATCH * INPUT;
    size_t outputs = (size_t)STEPS * BATCH * HIDDEN;
    float *host = calloc(count > inputs ? count : inputs, sizeof *host);
    if (!host) return 1;
    check(rcv_net_initialize(net, 1, RCV_FLOAT32, host));
    float *parameters = new_on_device(count, host), *gradient = new_on_device(count, NULL);
    for (size_t i = 0; i < inputs; i++) host[i] = (float)(i % 13) / 13.0f - 0.5f;
    float *x = new_on_device(inputs, host), *y = new_on_device(outputs, NULL);
    free(host);

    /* Calls are enqueued; rcv_run_wait waits. The loss is half the sum of squares of y, so its gradient is y. */
    check(rcv_run_forward(run, &RCV_INIT(rcv_forward, .parameters = parameters, .x = x, .y = y)));
    check(rcv_run_backward(run, &RCV_INIT(rcv_backward, .dy = y, .dparameters = gradient)));
    check(rcv_run_wait(run));
    printf("sum of outputs %.6f, of gradients %.6f\n", sum_of(y, outputs), sum_of(gradient, count));

    float *all[] = {parameters, gradient, x, y};
    rcv_run_free(run);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) rcv_memory_free(context, device, all[i]);
    rcv_plan_free(plan);
    rcv_net_free(net);
    rcv_cell_free(cell);
    rcv_context_free(context);
    return 0;
}
