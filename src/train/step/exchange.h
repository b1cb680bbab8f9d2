/* What a rank exchanges in a batch: what layers hand on to the neighbours' and back, sums of gradients among replicas, the norm.
 *
 * Everything is asked for ahead: a transfer waits for a counter of the host, which the device raises to the number of the batch when what
 * is to be sent is there. So sums begin during the backward pass, and units leave, while the device is busy with the next. */
#ifndef RCVI_EXCHANGE_H
#define RCVI_EXCHANGE_H

#include "train/step/work.h"

rcv_status rcvi_exchange_new(rcvi_work *work, rcvi_exchange **exchange);
void rcvi_exchange_free(rcvi_exchange *exchange);
size_t rcvi_exchange_bytes(const rcvi_exchange *exchange); /* of the device's memory */

/* A batch begins: what neighbours send is asked for; with `sums`, the last batch of an update, so are sums of gradients. */
rcv_status rcvi_exchange_begin(rcvi_exchange *exchange, const rcvi_window *window, uint64_t number, bool sums);
/* Waits for what a unit needs of a neighbour, before it is enqueued; and behind it, lets another neighbour have what it needs of it. */
rcv_status rcvi_exchange_await(rcvi_exchange *exchange, const rcvi_unit *unit, bool backward);
rcv_status rcvi_exchange_pass(rcvi_exchange *exchange, const rcvi_window *window, const rcvi_unit *unit, bool backward);
/* The last backward unit of an update signals when gradients of layers are whole; and these of the output layer have been enqueued. */
rcv_status rcvi_exchange_watch(rcvi_exchange *exchange, const rcvi_unit *unit, bool last);
rcv_status rcvi_exchange_head(rcvi_exchange *exchange);
/* Where rows of the embedding's gradient go that replicas gather. */
void *rcvi_exchange_rows(const rcvi_exchange *exchange);
void *rcvi_exchange_merged(const rcvi_exchange *exchange); /* and where they end, summed by row */
/* The gradient of the embedding has been enqueued: the last that is summed. */
rcv_status rcvi_exchange_inputs(rcvi_exchange *exchange);
/* Waits for all that was asked for. Behind the last batch gradients are those of the whole batch. */
rcv_status rcvi_exchange_finish(rcvi_exchange *exchange);
/* The update with what all ranks know together. */
rcv_status rcvi_exchange_update(rcvi_exchange *exchange, const rcvi_update *update);

#endif
