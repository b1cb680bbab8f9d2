/* Tensors and lists of them, as operators receive and return them. A function that fails leaves what it was given to its caller. */
#ifndef RCVB_TENSORS_H
#define RCVB_TENSORS_H

#include "torch/shim.h"

/* Tensors that an operator owns. */
typedef struct {
    tensor *at;
    size_t count;
} tensors;

/* Takes the tensors of a list, which is deleted. */
rcv_status rcvb_take_list(value argument, tensors *out);
void rcvb_delete_tensors(tensors *t);
void rcvb_delete_tensor(tensor t); /* NULL does nothing */
/* A list of these tensors, which then own nothing any more. */
value rcvb_give_list(tensors *t);
/* Room for so many tensors, all NULL. */
rcv_status rcvb_room(size_t count, tensors *out);

typedef struct {
    int64_t dims;
    const int64_t *sizes; /* [dims]; valid as long as the tensor */
    int64_t elements;
    int32_t dtype, device, ordinal;
    void *data;
} about;

about rcvb_about(tensor t);
void *rcvb_data(tensor t);
rcv_status rcvb_new_tensor(const about *like, int32_t dtype, int64_t dims, const int64_t *sizes, tensor *out);
/* What is known of a tensor, which is replaced by a copy where the library cannot read it in place: it is not contiguous, or on a GPU does not begin
 * at a multiple of 16 bytes. */
rcv_status rcvb_read(tensor *t, about *a);
/* The library's array type of a tensor's dtype; false: it has none. */
bool rcvb_array_type(int32_t dtype, rcv_array_type *type);

/* Raises an exception of PyTorch with the thread's message where the status is a failure: the caller has freed everything. */
void rcvb_raise(rcv_status status);

#endif
