/* A loss together with the metric that fits the data, as text. */
#ifndef TOOL_TRAINING_LOSS_TEXT_H
#define TOOL_TRAINING_LOSS_TEXT_H

#include "recurve.h"
#include "training/number_text.h"

typedef enum { METRIC_PERPLEXITY, METRIC_BITS, METRIC_ACCURACY, METRIC_RMSE } metric_kind;

metric_kind metric_of_data(const rcv_data *data);
const char *metric_name(metric_kind kind); /* perplexity, bits/byte, accuracy, RMSE */
bool metric_grows(metric_kind kind);       /* is a larger one better? */
/* The metric of a loss in nats a token; else `measured`, NaN: not known. */
double metric_value(metric_kind kind, double loss, double measured);
number_text metric_text(metric_kind kind, double value); /* the number alone: 91.23, 1.7811, 93.1%, 0.1234 */
/* "loss 1.2345, bits/byte 1.7811", or that the loss is not a number. */
void describe_loss(metric_kind kind, double loss, double measured, char *text, size_t room);
/* What the data has many of: bytes, characters, words, pieces, sequences, steps. */
const char *token_name(const rcv_data *data);

#endif
