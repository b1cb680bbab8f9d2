/* Tensors and lists of them. */
#include "torch/tensors.h"
#include "call/shared.h"

#include <stdlib.h>
#include <string.h>

enum { GPU_ALIGNMENT = 16, MOST_DIMS = 8 };

static tensor as_tensor(value v) {
    tensor t;
    memcpy(&t, &v, sizeof t);
    return t;
}

static value as_value(const void *pointer) {
    value v = 0;
    memcpy(&v, &pointer, sizeof pointer);
    return v;
}

rcv_status rcvb_room(size_t count, tensors *out) {
    *out = (tensors){0};
    if (!count) return RCV_OK;
    out->at = calloc(count, sizeof *out->at);
    if (!out->at) return rcvb_fail(RCV_NO_MEMORY, "there is no memory for a list of tensors");
    out->count = count;
    return RCV_OK;
}

rcv_status rcvb_take_list(value argument, tensors *out) {
    list l;
    size_t count = 0;
    memcpy(&l, &argument, sizeof l);
    torch.torch_list_size(l, &count);
    rcv_status status = rcvb_room(count, out);
    for (size_t i = 0; i < count; i++) {
        value v = 0;
        torch.torch_list_get_item(l, i, &v);
        if (status)
            rcvb_delete_tensor(as_tensor(v));
        else
            out->at[i] = as_tensor(v);
    }
    torch.torch_delete_list(l);
    return status;
}

void rcvb_delete_tensor(tensor t) {
    if (t) torch.aoti_torch_delete_tensor_object(t);
}

void rcvb_delete_tensors(tensors *t) {
    for (size_t i = 0; i < t->count; i++) rcvb_delete_tensor(t->at[i]);
    free(t->at);
    *t = (tensors){0};
}

value rcvb_give_list(tensors *t) {
    list l = NULL;
    torch.torch_new_list_reserve_size(t->count, &l);
    for (size_t i = 0; i < t->count; i++) torch.torch_list_push_back(l, as_value(t->at[i]));
    free(t->at);
    *t = (tensors){0};
    return as_value(l);
}

about rcvb_about(tensor t) {
    about a = {0};
    int64_t *sizes = NULL;
    torch.aoti_torch_get_dim(t, &a.dims);
    torch.aoti_torch_get_sizes(t, &sizes);
    torch.aoti_torch_get_numel(t, &a.elements);
    torch.aoti_torch_get_dtype(t, &a.dtype);
    torch.aoti_torch_get_device_type(t, &a.device);
    torch.aoti_torch_get_device_index(t, &a.ordinal);
    torch.aoti_torch_get_data_ptr(t, &a.data);
    a.sizes = sizes;
    return a;
}

void *rcvb_data(tensor t) {
    void *data = NULL;
    torch.aoti_torch_get_data_ptr(t, &data);
    return data;
}

rcv_status rcvb_new_tensor(const about *like, int32_t dtype, int64_t dims, const int64_t *sizes, tensor *out) {
    int64_t strides[MOST_DIMS], stride = 1;
    for (int64_t d = dims; d-- > 0;) {
        strides[d] = stride;
        stride *= sizes[d] > 1 ? sizes[d] : 1;
    }
    *out = NULL;
    if (!torch.aoti_torch_empty_strided(dims, sizes, strides, dtype, like->device, like->ordinal, out)) return RCV_OK;
    return rcvb_fail(RCV_NO_MEMORY, "PyTorch has no memory for a tensor of %lld elements", (long long)stride);
}

static rcv_status copy_tensor(tensor *t, about *a) {
    tensor copy = NULL;
    if (a->dims > MOST_DIMS) return rcvb_fail(RCV_INVALID, "a tensor has more than %d dimensions", MOST_DIMS);
    rcv_status status = rcvb_new_tensor(a, a->dtype, a->dims, a->sizes, &copy);
    if (status) return status;
    if (torch.aoti_torch_copy_(copy, *t, 0)) {
        rcvb_delete_tensor(copy);
        return rcvb_fail(RCV_INVALID, "PyTorch cannot make a tensor contiguous");
    }
    rcvb_delete_tensor(*t);
    *t = copy;
    *a = rcvb_about(copy);
    return RCV_OK;
}

rcv_status rcvb_read(tensor *t, about *a) {
    bool contiguous = false;
    *a = rcvb_about(*t);
    torch.aoti_torch_is_contiguous(*t, &contiguous);
    bool aligned = a->device != torch.cuda || (uintptr_t)a->data % GPU_ALIGNMENT == 0;
    return contiguous && aligned ? RCV_OK : copy_tensor(t, a);
}

bool rcvb_array_type(int32_t dtype, rcv_array_type *type) {
    if (dtype == torch.float32)
        *type = RCV_AS_FLOAT32;
    else if (dtype == torch.float64)
        *type = RCV_AS_FLOAT64;
    else if (dtype == torch.bfloat16)
        *type = RCV_AS_BFLOAT16;
    else if (dtype == torch.float16)
        *type = RCV_AS_FLOAT16;
    else
        return false;
    return true;
}

void rcvb_raise(rcv_status status) {
    if (status) torch.aoti_torch_check(false, "recurve", "recurve", 0, rcvb_message());
}
