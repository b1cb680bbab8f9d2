/* Weights of PyTorch in a network: a state dict of a torch.nn.LSTM, torch.nn.GRU or torch.nn.RNN, as safetensors.
 * Layers, directions and sizes are those of the tensors.
 *
 *   cc load_torch.c $(pkg-config --cflags --libs recurve) -o load_torch
 *   ./load_torch weights.safetensors lstm
 *
 * In Python the file is written by
 *   safetensors.torch.save_file(torch.nn.LSTM(3, 16, num_layers=2).state_dict(), "weights.safetensors")
 */
#include <recurve.h>

#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 5, BATCH = 2 };

static void check(rcv_status status) {
    if (status != RCV_OK) {
        fprintf(stderr, "load_torch: %s (%s)\n", rcv_message(), rcv_status_name(status));
        exit(1);
    }
}

static float *new_numbers(size_t count) {
    float *numbers = calloc(count, sizeof *numbers);
    if (!numbers) exit(1);
    return numbers;
}

int main(int argc, char **argv) {
    rcv_context *context;
    rcv_model *model;
    rcv_plan *plan;
    rcv_run *run;

    if (argc != 3) {
        fprintf(stderr, "Usage: load_torch WEIGHTS.safetensors lstm|gru|rnn_tanh|rnn_relu\n");
        return 2;
    }
    check(rcv_context_new(NULL, &context));
    /* With a cell the file needs nothing but PyTorch's tensors: weight_ih_l0, weight_hh_l0, ... A prefix is found. */
    check(rcv_model_load(context, argv[1], &RCV_INIT(rcv_model_options, .cell = argv[2]), &model));
    const rcv_net *net = rcv_model_net(model);
    const rcv_net_options *sizes = rcv_net_get_options(net);
    printf("%s: %d features, %d layers of %d%s\n", argv[2], (int)sizes->input, (int)sizes->layers, (int)sizes->hidden,
           sizes->bidirectional ? ", bidirectional" : "");

    /* The plan that needs no search: for a few calls. RCV_MEASURE, or a plan string, is for many. */
    check(rcv_plan_new(net, &RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .effort = RCV_FIRST), &plan));
    check(rcv_run_new(plan, &run));

    size_t features = (size_t)sizes->input, outputs = (size_t)rcv_net_output(net);
    float *x = new_numbers(STEPS * BATCH * features); /* [STEPS, BATCH, input] */
    float *y = new_numbers(STEPS * BATCH * outputs);  /* [STEPS, BATCH, output] */
    for (size_t i = 0; i < STEPS * BATCH * features; i++) x[i] = (float)(i % 7) / 7.0f - 0.5f;
    check(rcv_run_forward(run, &RCV_INIT(rcv_forward, .parameters = rcv_model_parameters(model), .x = x, .y = y)));
    for (size_t row = 0; row < BATCH; row++) {
        const float *last = y + ((STEPS - 1) * BATCH + row) * outputs;
        printf("sequence %zu, last step:", row);
        for (size_t i = 0; i < outputs; i++) printf(" %.6f", (double)last[i]);
        printf("\n");
    }

    free(y);
    free(x);
    rcv_run_free(run);
    rcv_plan_free(plan);
    rcv_model_free(model);
    rcv_context_free(context);
    return 0;
}
