/* Segments of the gradient that are reduced one by one: see gradient_segments.h. */
#include "train/parallel/gradient_segments.h"

#include "net/net.h"

enum { SHARE = 16 }; /* shares begin at multiples of so many elements */

rcvi_gradient_segment *rcvi_gradient_segments_new(const rcv_learner *l, bool sparse, size_t *count) {
    int layers = (int)l->slice->options.layers;
    int64_t matrix = l->shape.tied ? 0 : l->shape.outputs * l->width, table = l->shape.tokens * l->shape.embedding;
    rcvi_gradient_segment *segments = rcvi_new(l->context, (size_t)layers + 4, sizeof *segments), *at = segments;
    *count = 0;
    if (!segments) return NULL;
    if (l->has_head && matrix) *at++ = (rcvi_gradient_segment){l->weight_offset, matrix, layers + 1 + RCVI_AFTER_HEAD};
    if (l->has_head) *at++ = (rcvi_gradient_segment){l->bias_offset, l->shape.outputs, layers + 1 + RCVI_AFTER_HEAD};
    int64_t lead = rcvi_first_layer_split(l->slice);
    for (int i = layers - 1; i >= 0; i--) {
        int64_t start = i ? rcvi_layer_start(l->slice, i) : lead, end = rcvi_layer_start(l->slice, i + 1);
        if (i == 0 && lead) *at++ = (rcvi_gradient_segment){l->slice_offset, lead, layers};
        if (end > start) *at++ = (rcvi_gradient_segment){l->slice_offset + start, end - start, i};
    }
    if (l->has_embedding && table && !sparse && !l->shape.fixed)
        *at++ = (rcvi_gradient_segment){0, table, layers + 1 + RCVI_AFTER_INPUTS};
    *count = (size_t)(at - segments);
    return segments;
}

int64_t rcvi_share_start(int64_t count, int replica, int replicas) {
    return replica == replicas ? count : count / SHARE * replica / replicas * SHARE;
}
