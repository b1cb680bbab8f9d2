/* The part of XLA's foreign function interface that is used here, as XLA documents its binary layout: versions 0.1 to 0.3, and later ones, which
 * add members at the end of structs. Every struct begins with its size; what an older XLA does not have lies beyond that size. */
#ifndef RCVB_XLA_H
#define RCVB_XLA_H

#include <stddef.h>
#include <stdint.h>

enum { XLA_MAJOR = 0, XLA_MINOR = 3, XLA_OLDEST_MINOR = 1 }; /* the versions that are known */

typedef struct xla_error xla_error;
typedef struct xla_context xla_context;

/* Lists of these hang on many structs. */
typedef struct xla_extension {
    size_t size;
    int type;
    struct xla_extension *next;
} xla_extension;

enum { XLA_METADATA = 1 }; /* the type of an extension that asks for the metadata of a handler */

typedef struct {
    size_t size;
    xla_extension *extensions;
    int major, minor;
} xla_version;

typedef struct {
    size_t size;
    xla_version version; /* written by the handler */
    uint32_t traits;     /* 0: not to be recorded in a CUDA graph of XLA's */
} xla_metadata;

typedef struct {
    xla_extension extension;
    xla_metadata *metadata;
} xla_metadata_request;

/* ---- values ---- */

typedef enum {
    XLA_BOOL = 1,
    XLA_INT32 = 4,
    XLA_INT64 = 5,
    XLA_UINT8 = 6,
    XLA_UINT32 = 8,
    XLA_FLOAT16 = 10,
    XLA_FLOAT32 = 11,
    XLA_FLOAT64 = 12,
    XLA_BFLOAT16 = 16
} xla_type;

typedef struct {
    size_t size;
    xla_extension *extensions;
    int type; /* xla_type */
    void *data;
    int64_t dims;
    int64_t *sizes; /* [dims] */
} xla_buffer;

enum { XLA_IS_BUFFER = 1 }; /* the type of arguments and results */
enum { XLA_IS_SCALAR = 3, XLA_IS_STRING = 4 };

typedef struct {
    const char *at;
    size_t length;
} xla_string;

typedef struct {
    int type; /* xla_type */
    void *at;
} xla_scalar;

/* Arguments, and results. */
typedef struct {
    size_t size;
    xla_extension *extensions;
    int64_t count;
    int *types;         /* [count] */
    xla_buffer **items; /* [count], where the type is XLA_IS_BUFFER */
} xla_buffers;

typedef struct {
    size_t size;
    xla_extension *extensions;
    int64_t count;
    int *types;         /* [count] */
    xla_string **names; /* [count] */
    void **items;       /* [count] xla_string or xla_scalar, as the type says */
} xla_attributes;

/* ---- functions ---- */

typedef enum {
    XLA_INVALID_ARGUMENT = 3,
    XLA_RESOURCE_EXHAUSTED = 8,
    XLA_UNIMPLEMENTED = 12,
    XLA_INTERNAL = 13
} xla_error_code;

typedef struct {
    size_t size;
    xla_extension *extensions;
    const char *message; /* copied */
    int code;            /* xla_error_code */
} xla_new_error;

typedef struct {
    size_t size;
    xla_extension *extensions;
    xla_error *error;
} xla_free_error;

typedef struct {
    size_t size;
    xla_extension *extensions;
    xla_context *context;
    void *stream; /* result: a CUstream */
} xla_get_stream;

typedef struct {
    size_t size;
    xla_extension *extensions;
    xla_context *context;
    int32_t ordinal; /* result: of the GPU */
} xla_get_ordinal;

typedef struct {
    size_t size;
    xla_extension *extensions;
    xla_version version;
    const void *internal;
    xla_error *(*new_error)(xla_new_error *);
    void *error_message;
    void (*free_error)(xla_free_error *);
    void *register_handler;
    xla_error *(*get_stream)(xla_get_stream *);
    void *between[12]; /* types, states, memory, threads, futures, runs: not used here */
    xla_error *(*get_ordinal)(xla_get_ordinal *);
} xla_api;

typedef struct {
    size_t size;
    xla_extension *extensions;
    const xla_api *api;
    xla_context *context;
    int stage;
    xla_buffers arguments, results;
    xla_attributes attributes;
} xla_frame;

/* Does XLA's struct have this member? */
#define XLA_HAS(pointer, type, member)                                                                                 \
    ((pointer)->size >= offsetof(type, member) + sizeof(((const type *)(pointer))->member))

#endif
