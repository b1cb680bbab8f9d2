/* Training with the caller's arrays in bfloat16 against float32. */
#include "calls/calls.h"

/* Both are planned; then they are timed in turns. */
static void compare(job *j, const shape *wide, const shape *narrow, const row *r) {
    static network networks[2];
    double medians[2] = {0};
    rcv_status status = network_open_and_step(j, wide, &networks[0]);
    if (status) {
        row_failed(j, r, status);
        return;
    }
    status = network_open_and_step(j, narrow, &networks[1]);
    if (!status) {
        timed each[] = {{&networks[0], 0, 0}, {&networks[1], 0, 0}};
        status = time_in_turns(each, 2, spend(j, 3), 3, medians);
        if (!status) {
            detail_number(j, "float32_ms", 1e3 * medians[0]);
            detail_number(j, "bfloat16_ms", 1e3 * medians[1]);
            detail_text(j, "float32_plan", rcv_plan_string(networks[0].plan));
            detail_text(j, "bfloat16_plan", rcv_plan_string(networks[1].plan));
            detail_pairs(j, "T_B_H_layers", (const int64_t[]){wide->steps, wide->batch, wide->hidden, wide->layers}, 2);
        }
    }
    if (status)
        row_failed(j, r, status);
    else
        row_end(j, r, medians[1] / medians[0]);
    if (networks[1].plan) network_close(&networks[1]);
    network_close(&networks[0]);
}

void measure_types(job *j, const char *unused) {
    (void)unused;
    shape wide = {.cell = "lstm",
                  .steps = 100,
                  .batch = 64,
                  .input = 512,
                  .hidden = 512,
                  .layers = 4,
                  .dtype = RCV_BFLOAT16,
                  .training = true,
                  .data = RCV_AS_FLOAT32};
    if (!is_gpu(j)) {
        wide.steps = 50;
        wide.batch = 32;
        wide.input = wide.hidden = 256;
        wide.layers = 2;
    }
    wide = sized(j, wide);
    shape narrow = wide;
    narrow.data = RCV_AS_BFLOAT16;
    row data = {"types.data", "a training step in bfloat16 with x, y, dx and dy in bfloat16, of one with float32", "x",
                1};
    compare(j, &wide, &narrow, &data);
    narrow.parameters = RCV_AS_BFLOAT16;
    row all = {"types.parameters", "the same with parameters and their gradients in bfloat16, too", "x", 1};
    if (time_is_left(j))
        compare(j, &wide, &narrow, &all);
    else
        row_left_out(j, &all, "no time was left");
}
