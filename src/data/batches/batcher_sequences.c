/* Batches of sequences in buckets of similar lengths, padded to the bound of the bucket. The order of an epoch depends on the epoch number and the seed only: the
 * sequences of each bucket, in the order of the file, are shuffled and split into batches; then the batches are shuffled. Empty rows in the last
 * batch of a bucket are filled with sequences of shorter buckets. So the number of batches is minimal, and only the shortest bucket can
 * have a batch that is not full. */
#include "data/batches/batcher.h"

#include "base/random.h"

#include <math.h>
#include <string.h>

static size_t bucket_of(const rcvi_batcher *batcher, int64_t length) {
    size_t low = 0, high = batcher->bucket_count - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (length <= batcher->buckets[middle].bound)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static rcv_status check_bounds(const rcvi_batcher *batcher, const int64_t *bounds, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (bounds[i] < 1 || (i > 0 && bounds[i] <= bounds[i - 1]))
            return rcvi_fail(RCV_INVALID, "the lengths of buckets must be positive and increasing; %lld is not",
                             (long long)bounds[i]);
    }
    int64_t longest = batcher->data->totals.longest;
    if (bounds[count - 1] < longest)
        return rcvi_fail(RCV_INVALID,
                         "the longest sequence has %lld steps, and does not fit into the last bucket of %lld",
                         (long long)longest, (long long)bounds[count - 1]);
    return RCV_OK;
}

/* From the longest bucket to the shortest: each gets its remaining own sequences, and shorter ones that fill its last batch. */
static void distribute_rows(rcvi_batcher *batcher) {
    int64_t end = batcher->data->totals.sequences;
    for (size_t i = batcher->bucket_count; i > 0; i--) {
        rcvi_bucket *b = &batcher->buckets[i - 1];
        int64_t left = end > b->own ? end - b->own : 0;
        b->batches = rcvi_bucket_batches(left, b->batch);
        b->count = b->batches * b->batch < end ? b->batches * b->batch : end;
        b->first = end -= b->count;
    }
}

static void count_sequence(void *user, int64_t sequence, rcvi_span span) {
    rcvi_batcher *batcher = user;
    (void)sequence;
    batcher->buckets[bucket_of(batcher, span.length)].own_count++;
}

/* Counts the sequences of each bucket, and computes the offsets of its sequences and batches. */
static rcv_status size_buckets(rcvi_batcher *batcher) {
    int64_t own = 0;
    RCVI_TRY(rcvi_data_each_span(batcher->data, count_sequence, batcher));
    for (size_t i = 0; i < batcher->bucket_count; i++) {
        batcher->buckets[i].own = own;
        own += batcher->buckets[i].own_count;
    }
    distribute_rows(batcher);
    for (size_t i = 0; i < batcher->bucket_count; i++) {
        batcher->buckets[i].first_batch = batcher->batches;
        batcher->batches += batcher->buckets[i].batches;
    }
    return RCV_OK;
}

rcv_status rcvi_sequences_set_up(rcvi_batcher *batcher, const int64_t *bounds, size_t count) {
    const rcvi_batcher_options *options = &batcher->options;
    const rcvi_totals *totals = &batcher->data->totals;
    if (count == 0) {
        bounds = &totals->longest;
        count = 1;
    }
    RCVI_TRY(check_bounds(batcher, bounds, count));
    if (totals->sequences > UINT32_MAX)
        return rcvi_fail(RCV_UNSUPPORTED, "%lld sequences are more than the %u that can be put in order",
                         (long long)totals->sequences, UINT32_MAX);
    batcher->bucket_count = count;
    batcher->buckets = rcvi_new(batcher->context, count, sizeof *batcher->buckets);
    if (!batcher->buckets) return RCV_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        batcher->buckets[i].bound = bounds[i];
        batcher->buckets[i].batch = rcvi_bucket_batch(options->batch, options->tokens, bounds[i]);
    }
    RCVI_TRY(size_buckets(batcher));
    batcher->order = rcvi_new(batcher->context, (size_t)totals->sequences, sizeof *batcher->order);
    batcher->batch_order = rcvi_new(batcher->context, (size_t)batcher->batches, sizeof *batcher->batch_order);
    return batcher->order && batcher->batch_order ? RCV_OK : RCV_NO_MEMORY;
}

/* ---- order ---- */

static void shuffle(uint32_t *items, int64_t count, uint64_t key) {
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t other = (int64_t)(rcvi_hash_uniform(key, (uint64_t)i) * (double)(i + 1));
        uint32_t item = items[i];
        items[i] = items[other];
        items[other] = item;
    }
}

/* `full`: a bucket got more sequences than were counted before: the file changed. */
typedef struct {
    rcvi_batcher *batcher;
    int64_t *counts; /* [bucket_count] sequences so far */
    bool full;
} ordering;

static void add_to_order(void *user, int64_t sequence, rcvi_span span) {
    ordering *p = user;
    const size_t bucket = bucket_of(p->batcher, span.length);
    const rcvi_bucket *b = &p->batcher->buckets[bucket];
    if (p->counts[bucket] < b->own_count)
        p->batcher->order[b->own + p->counts[bucket]++] = (uint32_t)sequence;
    else
        p->full = true;
}

static rcv_status order_by_bucket(rcvi_batcher *batcher) {
    ordering p = {batcher, rcvi_new(batcher->context, batcher->bucket_count, sizeof *p.counts), false};
    if (!p.counts) return RCV_NO_MEMORY;
    rcv_status status = rcvi_data_each_span(batcher->data, add_to_order, &p);
    rcvi_free(batcher->context, p.counts);
    return !status && p.full ? rcvi_data_file_fail_changed(batcher->data->cache) : status;
}

rcv_status rcvi_sequences_order(rcvi_batcher *batcher, int64_t epoch) {
    if (batcher->ordered == epoch || (batcher->ordered >= 0 && !batcher->options.shuffle)) return RCV_OK;
    RCVI_TRY(order_by_bucket(batcher));
    for (int64_t i = 0; i < batcher->batches; i++) batcher->batch_order[i] = (uint32_t)i;
    batcher->ordered = epoch;
    if (!batcher->options.shuffle) return RCV_OK;
    for (size_t i = 0; i <= batcher->bucket_count; i++) {
        const uint64_t parts[] = {batcher->options.seed, (uint64_t)epoch, i};
        uint64_t key = rcvi_hash_chunk(0, parts, sizeof parts);
        if (i == batcher->bucket_count)
            shuffle(batcher->batch_order, batcher->batches, key);
        else
            shuffle(batcher->order + batcher->buckets[i].own, batcher->buckets[i].own_count, key);
    }
    return RCV_OK;
}

/* ---- rows ---- */

/* Writes the inputs of a row and, for lines, its targets; after the sequence's length 0 and -1. */
static rcv_status fill_tokens(rcvi_batcher *batcher, const rcvi_batch *batch, int64_t row, rcvi_span span) {
    const bool lines = batcher->data->kind == RCV_DATA_LINES;
    int32_t *tokens = batcher->tokens, eos = lines ? (int32_t)batcher->data->vocabulary->eos : 0;
    int64_t length = span.length;
    if (lines && length > 0) {
        tokens[0] = tokens[length] = eos;
        RCVI_TRY(rcvi_data_read_tokens(batcher->data, span.start, length - 1, tokens + 1));
    } else if (length > 0) {
        RCVI_TRY(rcvi_data_read_tokens(batcher->data, span.start, length, tokens));
    }
    for (int64_t t = 0; t < batch->steps; t++) {
        batcher->inputs[t * batch->batch + row] = t < length ? tokens[t] : 0;
        if (lines) batcher->targets[t * batch->batch + row] = t < length ? tokens[t + 1] : -1;
    }
    return RCV_OK;
}

/* The numbers of a row are as the network reads them. */
static rcv_status scale_numbers(rcvi_batcher *batcher, int64_t sequence, int64_t length) {
    const rcvi_scaling *scaling = batcher->options.scaling;
    const int64_t features = batcher->data->totals.features;
    const bool may_miss = batcher->data->schema.missing != RCV_MISSING_ERROR;
    const int64_t at = may_miss ? rcvi_scaling_find_missing(scaling, batcher->numbers, length * features) : -1;
    if (at >= 0)
        return rcvi_fail(RCV_INVALID,
                         "feature %lld at time step %lld of sequence %lld is missing, and the model was made for data "
                         "in which none is",
                         (long long)(at % features), (long long)(at / features), (long long)sequence);
    rcvi_scaling_apply(scaling, batcher->numbers, length, NULL);
    return RCV_OK;
}

static rcv_status fill_numbers(rcvi_batcher *batcher, const rcvi_batch *batch, int64_t row, int64_t sequence,
                               rcvi_span span) {
    const int64_t features = batcher->data->totals.features;
    const size_t bytes = (size_t)features * sizeof(float);
    if (span.length > 0) RCVI_TRY(rcvi_data_read_numbers(batcher->data, span, batcher->numbers));
    if (span.length > 0) RCVI_TRY(scale_numbers(batcher, sequence, span.length));
    for (int64_t t = 0; t < batch->steps; t++) {
        float *to = batcher->x + (t * batch->batch + row) * features;
        if (t < span.length)
            memcpy(to, batcher->numbers + t * features, bytes);
        else
            memset(to, 0, bytes);
    }
    return RCV_OK;
}

/* Row `to` of the batch's targets or values becomes row `from` of the labels; `from` of -1: missing. Counts it if it is there. */
static void put_target(rcvi_batcher *batcher, rcvi_batch *batch, int64_t to, int64_t from, const void *labels) {
    const int64_t outputs = batcher->data->totals.outputs;
    if (batcher->targets) {
        batcher->targets[to] = from < 0 ? -1 : ((const int32_t *)labels)[from];
        batch->counted += batcher->targets[to] >= 0;
        return;
    }
    float *values = batcher->values + to * outputs;
    for (int64_t i = 0; i < outputs; i++) values[i] = from < 0 ? NAN : ((const float *)labels)[from * outputs + i];
    rcvi_scaling_apply_targets(batcher->options.scaling, values, 1);
    batch->counted += !isnan(values[0]);
}

/* One target of the sequence. */
static rcv_status fill_label(rcvi_batcher *batcher, rcvi_batch *batch, int64_t row, int64_t sequence) {
    if (sequence < 0) {
        put_target(batcher, batch, row, -1, NULL);
    } else if (batcher->targets) {
        RCVI_TRY(rcvi_data_read_label(batcher->data, sequence, &batcher->targets[row]));
        batch->counted += batcher->targets[row] >= 0;
    } else if (batcher->values) {
        float *values = &batcher->values[row * batcher->data->totals.outputs];
        RCVI_TRY(rcvi_data_read_label(batcher->data, sequence, values));
        rcvi_scaling_apply_targets(batcher->options.scaling, values, 1);
        batch->counted += !isnan(values[0]);
    }
    return RCV_OK;
}

/* A target of every time step. */
static rcv_status fill_labels(rcvi_batcher *batcher, rcvi_batch *batch, int64_t row, rcvi_span span) {
    if (span.length > 0) RCVI_TRY(rcvi_data_read_labels(batcher->data, span, batcher->labels));
    for (int64_t t = 0; t < batch->steps; t++)
        put_target(batcher, batch, t * batch->batch + row, t < span.length ? t : -1, batcher->labels);
    return RCV_OK;
}

/* `sequence` of -1: an empty row. */
static rcv_status fill_row(rcvi_batcher *batcher, rcvi_batch *batch, int64_t row, int64_t sequence) {
    rcvi_span span = {0};
    if (sequence >= 0) RCVI_TRY(rcvi_data_read_spans(batcher->data, sequence, 1, &span));
    if (span.length > batch->steps) return rcvi_data_file_fail_changed(batcher->data->cache);
    RCVI_TRY(batcher->inputs ? fill_tokens(batcher, batch, row, span)
                             : fill_numbers(batcher, batch, row, sequence, span));
    batcher->lengths[row] = sequence < 0 ? 1 : span.length;
    if (batcher->labels) return fill_labels(batcher, batch, row, span);
    if (!rcvi_kind_is_text(batcher->data->kind)) return fill_label(batcher, batch, row, sequence);
    batch->counted += span.length;
    return RCV_OK;
}

rcv_status rcvi_sequences_fill(rcvi_batcher *batcher, rcvi_batch *batch) {
    int64_t number = batcher->batch_order[batcher->position.batch];
    while (number >= batcher->buckets[batch->bucket].first_batch + batcher->buckets[batch->bucket].batches)
        batch->bucket++;
    const rcvi_bucket *b = &batcher->buckets[batch->bucket];
    int64_t from = (number - b->first_batch) * b->batch;
    batch->steps = b->bound;
    batch->batch = b->batch;
    for (int64_t row = 0; row < b->batch; row++)
        RCVI_TRY(
            fill_row(batcher, batch, row, from + row < b->count ? (int64_t)batcher->order[b->first + from + row] : -1));
    return RCV_OK;
}
