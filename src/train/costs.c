/* What layers cost. */
#include "train/trainer.h"

#include "net/net.h"

/* By multiplications a token, until somebody measures. */
rcv_status rcvi_costs_of_layers(const rcv_trainer *t, double *layers, double *inputs, double *outputs) {
    const rcv_learner *l = t->learner;
    for (int64_t i = 0; i < l->net->options.layers; i++)
        layers[i] = (double)(rcvi_layer_start(l->net, i + 1) - rcvi_layer_start(l->net, i));
    *inputs = 0;
    *outputs = (double)(l->shape.outputs * l->width);
    return RCV_OK;
}
