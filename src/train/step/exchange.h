/* What ranks exchange for a batch: activations and their gradients between neighbouring stages, all-reduces of gradients among replicas, the
 * norm of the gradient.
 *
 * Transfers are started ahead. A transfer waits for a signal, a counter in the host's memory, which the device sets to the number of the batch
 * when the data is ready. So all-reduces begin during the backward pass, and units are sent while the device computes the next one. */
#ifndef RCVI_EXCHANGE_H
#define RCVI_EXCHANGE_H

#include "train/step/work.h"

rcv_status rcvi_exchange_new(rcvi_work *work, rcvi_exchange **exchange);
void rcvi_exchange_free(rcvi_exchange *exchange);
size_t rcvi_exchange_bytes(const rcvi_exchange *exchange); /* of the device's memory */

/* Starts the receives of a batch, and with `sums`, for the last batch of an update, the all-reduces of gradients. */
rcv_status rcvi_exchange_begin(rcvi_exchange *exchange, const rcvi_window *window, uint64_t number, bool sums);
/* Before a unit is enqueued: waits for its input from a neighbouring stage. After it: sends its output to the other neighbour. */
rcv_status rcvi_exchange_wait_for_unit(rcvi_exchange *exchange, const rcvi_unit *unit, bool backward);
rcv_status rcvi_exchange_send_unit(rcvi_exchange *exchange, const rcvi_window *window, const rcvi_unit *unit,
                                   bool backward);
/* The last backward unit of an update signals when the gradients of its layers are complete. The second: those of the output layer are enqueued. */
rcv_status rcvi_exchange_signal_layers(rcvi_exchange *exchange, const rcvi_unit *unit, bool last);
rcv_status rcvi_exchange_signal_head(rcvi_exchange *exchange);
/* Where this replica puts its rows of a sparse gradient of the embedding, which replicas gather. */
void *rcvi_exchange_rows(const rcvi_exchange *exchange);
void *rcvi_exchange_merged(const rcvi_exchange *exchange); /* the gathered rows, summed by token */
/* The gradient of the embedding is enqueued: the last segment that is reduced. */
rcv_status rcvi_exchange_signal_inputs(rcvi_exchange *exchange);
/* Waits for all transfers. After the last batch of an update, gradients are those of the whole batch. */
rcv_status rcvi_exchange_finish(rcvi_exchange *exchange);
/* Enqueues the update, with the norm over all ranks. */
rcv_status rcvi_exchange_update(rcvi_exchange *exchange, const rcvi_update *update);

#endif
