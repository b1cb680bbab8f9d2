/* The gradient as segments that replicas reduce one by one, each as soon as the backward pass has completed it, and the share that
 * a replica has of each. (Elsewhere such segments are called buckets; here buckets are padded sequence lengths.) */
#ifndef RCVI_GRADIENT_SEGMENTS_H
#define RCVI_GRADIENT_SEGMENTS_H

#include "train/learner/learner.h"

/* Events after which a segment is complete, beside those of layers. */
typedef enum { RCVI_AFTER_HEAD, RCVI_AFTER_INPUTS } rcvi_segment_event;

typedef struct {
    int64_t first, count; /* elements of the parameters */
    /* The event that completes it: the number of a layer among those that are here; the number of these layers: the lead of the first
     * layer (rcvi_first_layer_split); that number + 1 + rcvi_segment_event. */
    int event;
} rcvi_gradient_segment;

/* In the order of completion: output layer, layers from the last to the first (the first one as two segments), embedding where its
 * gradient is not `sparse`. NULL without memory, else for rcvi_free. */
rcvi_gradient_segment *rcvi_gradient_segments_new(const rcv_learner *learner, bool sparse, size_t *count);
/* First element of a replica's share of a segment of `count` elements; for replica = replicas: `count`. */
int64_t rcvi_share_start(int64_t count, int replica, int replicas);

#endif
