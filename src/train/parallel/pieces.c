#include "train/parallel/pieces.h"

#include "net/net.h"

enum { SHARE = 16 /* elements, of which shares are multiples */ };

rcvi_piece_of *rcvi_pieces_new(const rcv_learner *l, bool sparse, size_t *count) {
    int layers = (int)l->part->options.layers;
    int64_t matrix = l->shape.tied ? 0 : l->shape.outputs * l->width, table = l->shape.tokens * l->shape.embedding;
    rcvi_piece_of *pieces = rcvi_new(l->context, (size_t)layers + 4, sizeof *pieces), *at = pieces;
    *count = 0;
    if (!pieces) return NULL;
    if (l->ends && matrix) *at++ = (rcvi_piece_of){l->at_weight, matrix, layers + 1 + RCVI_BY_HEAD};
    if (l->ends) *at++ = (rcvi_piece_of){l->at_bias, l->shape.outputs, layers + 1 + RCVI_BY_HEAD};
    int64_t lead = rcvi_lead_end(l->part);
    for (int i = layers - 1; i >= 0; i--) {
        int64_t start = i ? rcvi_layer_start(l->part, i) : lead, end = rcvi_layer_start(l->part, i + 1);
        if (i == 0 && lead) *at++ = (rcvi_piece_of){l->at_part, lead, layers};
        if (end > start) *at++ = (rcvi_piece_of){l->at_part + start, end - start, i};
    }
    if (l->begins && table && !sparse && !l->shape.fixed)
        *at++ = (rcvi_piece_of){0, table, layers + 1 + RCVI_BY_INPUTS};
    *count = (size_t)(at - pieces);
    return pieces;
}

int64_t rcvi_share_start(int64_t count, int replica, int replicas) {
    return replica == replicas ? count : count / SHARE * replica / replicas * SHARE;
}
