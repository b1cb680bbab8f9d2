/* Packed sequences, as torch.nn.utils.rnn.PackedSequence has them: rows of all sequences that have step 0, then of those that have step 1, and so
 * on; sequences are sorted by length, the longest first. */
#ifndef RCVB_TORCH_PACKED_H
#define RCVB_TORCH_PACKED_H

#include <recurve.h>

/* Where the rows of a packed sequence lie in a padded tensor [steps, batch].
 *   sizes    [steps] sequences that have this step; batch at step 0, and never more than at the step before
 *   source   [steps * batch] the packed row of each padded row; 0 past a sequence's length
 *   places   [steps * batch] the padded row of each packed row
 *   lengths  [batch]
 * Answers the number of packed rows; -1 where sizes are no such numbers. */
RCV_API int64_t rcvb_unpack(int64_t steps, int64_t batch, const int64_t *sizes, int64_t *source, int64_t *places,
                            int64_t *lengths);

/* Cuts a packed sequence into calls of fewer and fewer sequences, so that padded rows and `overhead` rows a call are fewest in all. ends: [steps]
 * the end of each call in steps. Answers the number of calls; 0 where there is no memory. */
RCV_API int64_t rcvb_cut(int64_t steps, const int64_t *sizes, int64_t overhead, int64_t *ends);

#endif
