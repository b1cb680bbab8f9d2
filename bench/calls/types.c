/* Training with the caller's arrays in bfloat16 against float32. */
#include "calls/calls.h"

#include <string.h>

/* The plan by float32 arrays, the one by bfloat16 arrays, and the plan string of the former with bfloat16 arrays, which shows what the
 * conversions alone save or cost; they are timed in turns. */
static void compare(job *j, network *wide, const shape *narrow, const row *r) {
    static network own, same;
    double medians[3] = {0};
    const shape *s = &wide->shape;
    shape pinned = *narrow;
    pinned.schedule = rcv_plan_string(wide->plan);
    rcv_status status = network_open_and_step(j, narrow, &own);
    if (status) {
        row_failed(j, r, status);
        return;
    }
    bool differs = strcmp(rcv_plan_string(own.plan), pinned.schedule) != 0;
    bool has_same = differs && !network_open_and_step(j, &pinned, &same);
    timed each[] = {{wide, 0, 0}, {&own, 0, 0}, {&same, 0, 0}};
    status = time_in_turns(each, has_same ? 3 : 2, spend(j, 3), medians);
    if (status) {
        row_failed(j, r, status);
    } else {
        detail_number(j, "float32_ms", 1e3 * medians[0]);
        detail_number(j, "bfloat16_ms", 1e3 * medians[1]);
        if (has_same) detail_number(j, "float32_plan_with_bfloat16_ms", 1e3 * medians[2]);
        detail_text(j, "float32_plan", rcv_plan_string(wide->plan));
        detail_text(j, "bfloat16_plan", rcv_plan_string(own.plan));
        detail_pairs(j, "T_B_H_layers", (const int64_t[]){s->steps, s->batch, s->hidden, s->layers}, 2);
        row_end(j, r, medians[1] / medians[0]);
    }
    if (has_same) network_close(&same);
    network_close(&own);
}

void measure_types(job *j, const char *unused) {
    (void)unused;
    static network wide;
    char text[2][192];
    shape s = {.cell = "lstm",
               .steps = 100,
               .batch = 64,
               .input = 512,
               .hidden = 512,
               .layers = 4,
               .dtype = RCV_BFLOAT16,
               .training = true,
               .data = RCV_AS_FLOAT32};
    if (!is_gpu(j)) {
        s.steps = 50;
        s.batch = 32;
        s.input = s.hidden = 256;
        s.layers = 2;
    }
    s = sized(j, s);
    /* What the table of results asks for first: where time is short, it is the other one that is left out. */
    static const char *const whats[] = {"x, y, dx, dy, parameters and gradients", "x, y, dx and dy"},
                             *const ids[] = {"types.parameters", "types.data"};
    rcv_status status = network_open_and_step(j, &s, &wide);
    for (int i = 0; i < 2; i++) {
        shape narrow = s;
        narrow.data = RCV_AS_BFLOAT16;
        if (i == 0) narrow.parameters = RCV_AS_BFLOAT16;
        snprintf(text[i], sizeof text[i],
                 "a training step in bfloat16, T %lld B %lld H %lld, %lld layers, with %s in bfloat16, of one with "
                 "float32",
                 (long long)s.steps, (long long)s.batch, (long long)s.hidden, (long long)s.layers, whats[i]);
        row r = {ids[i], text[i], "x", 1};
        if (status)
            row_failed(j, &r, status);
        else if (!time_is_left(j))
            row_left_out(j, &r, "no time was left");
        else
            compare(j, &wide, &narrow, &r);
    }
    if (!status) network_close(&wide);
}
