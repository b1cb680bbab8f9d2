/* Tokens that are checked; softmax of logits on the host. Sums are in double, in the order of the classes. */
#include "train/inference/output.h"

#include <math.h>

rcv_status rcvi_output_form(const rcv_learner *l, rcv_output output, rcv_output *form) {
    if ((unsigned)output > RCV_OUTPUT_LOG_PROBABILITIES)
        return rcvi_fail(RCV_INVALID, "%d is none of the outputs that rcv_output has", (int)output);
    if (rcvi_kind_has_values(l->shape.kind) && output != RCV_OUTPUT_DEFAULT)
        return rcvi_fail(RCV_INVALID, "this model predicts values, which have no logits or probabilities: ask for "
                                      "RCV_OUTPUT_DEFAULT");
    *form = output ? output : rcvi_kind_has_classes(l->shape.kind) ? RCV_OUTPUT_PROBABILITIES : RCV_OUTPUT_LOGITS;
    return RCV_OK;
}

static double element(const rcv_learner *l, const void *row, int64_t at) {
    return l->real == RCV_FLOAT64 ? ((const double *)row)[at] : (double)((const float *)row)[at];
}

static void set_element(const rcv_learner *l, void *row, int64_t at, double value) {
    if (l->real == RCV_FLOAT64)
        ((double *)row)[at] = value;
    else
        ((float *)row)[at] = (float)value;
}

static void convert_row(const rcv_learner *l, rcv_output form, void *row) {
    int64_t count = l->shape.outputs;
    double largest = element(l, row, 0), sum = 0;
    for (int64_t i = 1; i < count; i++) largest = element(l, row, i) > largest ? element(l, row, i) : largest;
    for (int64_t i = 0; i < count; i++) sum += exp(element(l, row, i) - largest);
    double logarithm = log(sum);
    for (int64_t i = 0; i < count; i++) {
        double shifted = element(l, row, i) - largest;
        set_element(l, row, i, form == RCV_OUTPUT_PROBABILITIES ? exp(shifted) / sum : shifted - logarithm);
    }
}

void rcvi_output_convert(const rcv_learner *l, rcv_output form, int64_t rows, void *out) {
    if (rcvi_kind_has_values(l->shape.kind)) rcvi_scaling_restore(l->scaling, l->real, out, rows);
    for (int64_t r = 0; r < rows && form != RCV_OUTPUT_LOGITS; r++)
        convert_row(l, form, rcvi_element_at(l, out, r * l->shape.outputs));
}

rcv_status rcvi_check_token(const rcv_learner *l, int64_t token, int64_t step, int64_t row) {
    if (token >= 0 && token < l->shape.tokens) return RCV_OK;
    return rcvi_fail(RCV_INVALID, "token %lld at step %lld of row %lld is not in 0 to %lld, the model's vocabulary",
                     (long long)token, (long long)step, (long long)row, (long long)l->shape.tokens - 1);
}

rcv_status rcvi_check_numbers(const rcv_learner *l, const float *x, int64_t step, int64_t row) {
    const int64_t at = rcvi_scaling_find_missing(l->scaling, x, l->shape.features);
    if (at < 0) return RCV_OK;
    return rcvi_fail(
        RCV_INVALID,
        "feature %lld at step %lld of row %lld is missing (NaN), and the model was trained on data in which "
        "none is",
        (long long)at, (long long)step, (long long)row);
}

rcvi_head rcvi_output_head(const rcv_learner *l, int64_t rows, const void *y) {
    return (rcvi_head){.rows = rows,
                       .y = y,
                       .weight = rcvi_local_element_at(l, l->parameters, l->weight_offset),
                       .bias = rcvi_local_element_at(l, l->parameters, l->bias_offset)};
}
