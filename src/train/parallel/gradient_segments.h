/* The gradient in segments that replicas sum one by one, and the shares that they have of each. */
#ifndef RCVI_GRADIENT_SEGMENTS_H
#define RCVI_GRADIENT_SEGMENTS_H

#include "train/learner/learner.h"

/* Who says that a segment is whole: a layer, by its number among those that are here; the lead of the first, by the number of layers; or one
 * of these, behind both. */
typedef enum { RCVI_AFTER_HEAD, RCVI_AFTER_INPUTS } rcvi_segment_event;

typedef struct {
    int64_t first, count; /* elements of the parameters */
    int end;              /* a layer; layers; or layers + 1 + rcvi_segment_event */
} rcvi_gradient_segment;

/* In the order in which they become whole: the output layer, layers from the last to the first, that one in two, the embedding, where its
 * gradient is not `sparse`. NULL without memory, else for rcvi_free. */
rcvi_gradient_segment *rcvi_gradient_segments_new(const rcv_learner *learner, bool sparse, size_t *count);
/* Where the share of a replica begins within a segment of `count` elements; of the number of replicas: `count`. */
int64_t rcvi_share_start(int64_t count, int replica, int replicas);

#endif
