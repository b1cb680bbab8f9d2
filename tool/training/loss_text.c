#include "training/loss_text.h"

#include "tool.h"

#include <stdio.h>

static bool is_text(const rcv_data *data) {
    const rcv_data_kind kind = rcv_data_get_kind(data);
    return kind == RCV_DATA_STREAM || kind == RCV_DATA_LINES;
}

metric_kind metric_of_data(const rcv_data *data) {
    const rcv_data_kind kind = rcv_data_get_kind(data);
    if (is_text(data)) {
        return rcv_data_level(data) == RCV_LEVEL_BYTE ? METRIC_BITS : METRIC_PERPLEXITY;
    }
    return kind == RCV_DATA_CLASSES || kind == RCV_DATA_STEP_CLASSES ? METRIC_ACCURACY : METRIC_RMSE;
}

static const struct {
    const char *name;
    bool grows;
} metrics[] = {
    [METRIC_PERPLEXITY] = {"perplexity", false},
    [METRIC_BITS] = {"bits/byte", false},
    [METRIC_ACCURACY] = {"accuracy", true},
    [METRIC_RMSE] = {"RMSE", false},
};

const char *metric_name(metric_kind kind) { return metrics[kind].name; }

bool metric_grows(metric_kind kind) { return metrics[kind].grows; }

double metric_value(metric_kind kind, double loss, double measured) {
    return kind == METRIC_PERPLEXITY ? perplexity_of(loss) : kind == METRIC_BITS ? loss / log(2) : measured;
}

number_text metric_text(metric_kind kind, double value) {
    number_text result = {"-"};
    if (!isfinite(value)) {
        return result;
    }
    switch (kind) {
    case METRIC_PERPLEXITY:
        snprintf(result.text, sizeof result.text, value < 1e4 ? "%.2f" : value < 1e7 ? "%.0f" : "%.3g", value);
        return result;
    case METRIC_ACCURACY: snprintf(result.text, sizeof result.text, "%.1f%%", 100 * value); return result;
    default: return decimals_text(value);
    }
}

void describe_loss(metric_kind kind, double loss, double measured, char *text, size_t room) {
    const double value = metric_value(kind, loss, measured);
    if (!isfinite(loss)) {
        snprintf(text, room, "the loss is not a number");
    } else if (isfinite(value)) {
        snprintf(text, room, "loss %s, %s %s", decimals_text(loss).text, metric_name(kind),
                 metric_text(kind, value).text);
    } else {
        snprintf(text, room, "loss %s", decimals_text(loss).text);
    }
}

const char *token_name(const rcv_data *data) {
    static const char *const levels[] = {[RCV_LEVEL_WORD] = "words",
                                         [RCV_LEVEL_BYTE] = "bytes",
                                         [RCV_LEVEL_CHARACTER] = "characters",
                                         [RCV_LEVEL_PIECE] = "pieces"};
    const rcv_data_kind kind = rcv_data_get_kind(data);
    if (is_text(data)) {
        return levels[rcv_data_level(data)];
    }
    return kind == RCV_DATA_CLASSES || kind == RCV_DATA_VALUES ? "sequences" : "steps";
}
