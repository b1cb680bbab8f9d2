/* Functions of libtorch's C interface, found at run time in the process's own PyTorch, 2.10 or later. */
#ifndef RCVB_SHIM_H
#define RCVB_SHIM_H

#include "call/call.h"

#include <stdint.h>

typedef struct tensor_object *tensor; /* owned by whoever holds it: deleted once */
typedef struct list_object *list;
typedef struct string_object *string;
typedef struct library_object *library;
typedef uint64_t value; /* an argument or result of an operator: an integer, a tensor, a list or a string */
typedef void (*operator_kernel)(value *stack, uint64_t inputs, uint64_t outputs);
typedef int32_t failure; /* 0: none */

/* X(result, name, arguments) */
#define SHIM_FUNCTIONS(X)                                                                                              \
    X(failure, aoti_torch_library_init_fragment, (const char *, const char *, uint32_t, library *))                    \
    X(failure, aoti_torch_library_init_impl, (const char *, const char *, const char *, uint32_t, library *))          \
    X(failure, aoti_torch_library_def, (library, const char *))                                                        \
    X(failure, torch_library_impl, (library, const char *, operator_kernel, uint64_t))                                 \
    X(void, aoti_torch_check, (bool, const char *, const char *, uint32_t, const char *))                              \
    X(failure, torch_list_size, (list, size_t *))                                                                      \
    X(failure, torch_list_get_item, (list, size_t, value *))                                                           \
    X(failure, torch_new_list_reserve_size, (size_t, list *))                                                          \
    X(failure, torch_list_push_back, (list, value))                                                                    \
    X(failure, torch_delete_list, (list))                                                                              \
    X(failure, torch_string_length, (string, size_t *))                                                                \
    X(failure, torch_string_c_str, (string, const char **))                                                            \
    X(failure, torch_delete_string, (string))                                                                          \
    X(failure, torch_get_num_threads, (uint32_t *))                                                                    \
    X(failure, aoti_torch_get_data_ptr, (tensor, void **))                                                             \
    X(failure, aoti_torch_get_dim, (tensor, int64_t *))                                                                \
    X(failure, aoti_torch_get_sizes, (tensor, int64_t **))                                                             \
    X(failure, aoti_torch_get_numel, (tensor, int64_t *))                                                              \
    X(failure, aoti_torch_get_dtype, (tensor, int32_t *))                                                              \
    X(failure, aoti_torch_get_device_type, (tensor, int32_t *))                                                        \
    X(failure, aoti_torch_get_device_index, (tensor, int32_t *))                                                       \
    X(failure, aoti_torch_is_contiguous, (tensor, bool *))                                                             \
    X(failure, aoti_torch_get_storage_size, (tensor, int64_t *))                                                       \
    X(failure, aoti_torch_empty_strided,                                                                               \
      (int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, tensor *))                                \
    X(failure, aoti_torch__reinterpret_tensor, (tensor, int64_t, const int64_t *, const int64_t *, int64_t, tensor *)) \
    X(failure, aoti_torch_copy_, (tensor, tensor, int32_t))                                                            \
    X(failure, aoti_torch_zero_, (tensor))                                                                             \
    X(failure, aoti_torch_delete_tensor_object, (tensor))                                                              \
    X(int32_t, aoti_torch_device_type_cpu, (void))                                                                     \
    X(int32_t, aoti_torch_device_type_cuda, (void))                                                                    \
    X(int32_t, aoti_torch_dtype_float32, (void))                                                                       \
    X(int32_t, aoti_torch_dtype_float64, (void))                                                                       \
    X(int32_t, aoti_torch_dtype_float16, (void))                                                                       \
    X(int32_t, aoti_torch_dtype_bfloat16, (void))                                                                      \
    X(int32_t, aoti_torch_dtype_int64, (void))                                                                         \
    X(int32_t, aoti_torch_dtype_uint8, (void))                                                                         \
    X(int32_t, aoti_torch_dtype_bool, (void))

/* Those functions by their names, and facts that do not change. */
typedef struct {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration */
#define MEMBER(result, name, arguments) result(*name) arguments;
    SHIM_FUNCTIONS(MEMBER)
#undef MEMBER
    failure (*aoti_torch_get_current_cuda_stream)(int32_t, void **); /* NULL: PyTorch was built without CUDA */
    int32_t cpu, cuda, float32, float64, float16, bfloat16, int64, uint8, boolean;
} rcvb_shim;

extern rcvb_shim torch;

/* Finds the functions; RCV_UNSUPPORTED where no PyTorch is loaded or it is too old. Once, before all else. */
rcv_status rcvb_find_torch(void);

#endif
