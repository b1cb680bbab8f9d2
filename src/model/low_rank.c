/* Low-rank approximation of a model by singular value decomposition: each matrix M = U S V^T becomes A B with A = U_r sqrt(S_r), B = sqrt(S_r) V_r^T. */
#include "model/model.h"
#include "model/svd.h"

#include <math.h>
#include <string.h>

/* Shape of a factorization: matrix [rows, cols], a [rows, rank], b [rank, cols]. */
typedef struct {
    int64_t rows, cols, rank;
    const char *name;
} factorization;

/* matrix: [rows, cols]. */
static rcv_status factorize(rcv_context *context, const factorization *size, const double *matrix, double *a,
                            double *b) {
    int64_t rows = size->rows, cols = size->cols, rank = size->rank, least = rows < cols ? rows : cols;
    double *s = rcvi_new(context, (size_t)least, sizeof *s);
    double *u = rcvi_new(context, (size_t)(rows * least), sizeof *u);
    double *v = rcvi_new(context, (size_t)(least * cols), sizeof *v); /* transposed: [least, cols] */
    rcv_status status = s && u && v ? RCV_OK : RCV_NO_MEMORY;
    if (!status) status = rcvi_svd(context, size->name, rows, cols, matrix, s, u, v);
    for (int64_t k = 0; k < rank && !status; k++) {
        double root = sqrt(s[k]);
        for (int64_t i = 0; i < rows; i++) a[i * rank + k] = u[i * least + k] * root;
        for (int64_t j = 0; j < cols; j++) b[k * cols + j] = root * v[k * cols + j];
    }
    rcvi_free(context, v);
    rcvi_free(context, u);
    rcvi_free(context, s);
    return status;
}

/* Copy `count` parameters from `offset` to doubles, and back. */
static void read_doubles(const rcv_model *model, int64_t offset, int64_t count, double *out) {
    for (int64_t i = 0; i < count; i++)
        out[i] = model->dtype == RCV_FLOAT64 ? ((const double *)model->parameters)[offset + i]
                                             : (double)((const float *)model->parameters)[offset + i];
}

static void write_doubles(rcv_model *model, int64_t offset, int64_t count, const double *values) {
    for (int64_t i = 0; i < count; i++) {
        if (model->dtype == RCV_FLOAT64)
            ((double *)model->parameters)[offset + i] = values[i];
        else
            ((float *)model->parameters)[offset + i] = (float)values[i];
    }
}

/* full: [blocks,] rows, cols; a: [blocks,] rows, rank; b: [blocks,] rank, cols. */
static rcv_status approximate(const rcv_model *from, const rcv_parameter *full, rcv_model *to, const rcv_parameter *a,
                              const rcv_parameter *b) {
    int dims = full->dims;
    int64_t blocks = dims == 3 ? full->shape[0] : 1;
    factorization size = {.name = full->name};
    if (dims >= 2) {
        size.rows = full->shape[dims - 2];
        size.cols = full->shape[dims - 1];
        size.rank = a->shape[a->dims - 1];
    }
    int64_t least = size.rows < size.cols ? size.rows : size.cols;
    if (dims < 2 || a->dims != dims || b->dims != dims || size.rank > least ||
        a->count != blocks * size.rows * size.rank || b->count != blocks * size.rank * size.cols)
        return rcvi_fail(RCV_UNSUPPORTED, "the parameter %s has a shape that cannot be approximated", full->name);
    rcv_context *context = from->context;
    int64_t area = size.rows * size.cols, a_area = size.rows * size.rank, b_area = size.rank * size.cols;
    double *matrix = rcvi_new(context, (size_t)area, sizeof *matrix);
    double *a_values = rcvi_new(context, (size_t)a_area, sizeof *a_values);
    double *b_values = rcvi_new(context, (size_t)b_area, sizeof *b_values);
    rcv_status status = matrix && a_values && b_values ? RCV_OK : RCV_NO_MEMORY;
    for (int64_t block = 0; block < blocks && status == RCV_OK; block++) {
        read_doubles(from, full->offset + block * area, area, matrix);
        status = factorize(context, &size, matrix, a_values, b_values);
        if (status == RCV_OK) {
            write_doubles(to, a->offset + block * a_area, a_area, a_values);
            write_doubles(to, b->offset + block * b_area, b_area, b_values);
        }
    }
    rcvi_free(context, b_values);
    rcvi_free(context, a_values);
    rcvi_free(context, matrix);
    return status;
}

/* Finds the parameter whose name is the first `length` characters of `name` followed by `ending`. */
static const rcv_parameter *find_parameter(const rcv_net *net, const char *name, size_t length, const char *ending) {
    size_t count = rcv_net_parameter_count(net);
    for (size_t i = 0; i < count; i++) {
        const rcv_parameter *parameter = rcv_net_parameter(net, i);
        if (strncmp(parameter->name, name, length) == 0 && strcmp(parameter->name + length, ending) == 0)
            return parameter;
    }
    return NULL;
}

static rcv_status approximate_all(const rcv_model *from, rcv_model *to) {
    size_t count = rcv_net_parameter_count(to->net), bytes = rcv_dtype_bytes(to->dtype);
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < count && status == RCV_OK; i++) {
        const rcv_parameter *wanted = rcv_net_parameter(to->net, i);
        size_t length = strlen(wanted->name);
        const rcv_parameter *same = find_parameter(from->net, wanted->name, length, "");
        if (same && same->count == wanted->count) {
            memcpy((char *)to->parameters + (size_t)wanted->offset * bytes,
                   (const char *)from->parameters + (size_t)same->offset * bytes, (size_t)same->count * bytes);
            continue;
        }
        const char *ending = length > 2 ? wanted->name + length - 2 : "";
        if (strcmp(ending, ".B") == 0) continue; /* computed with its A */
        const rcv_parameter *full =
            strcmp(ending, ".A") == 0 ? find_parameter(from->net, wanted->name, length - 2, "") : NULL;
        const rcv_parameter *other = full ? find_parameter(to->net, wanted->name, length - 2, ".B") : NULL;
        if (!other)
            return rcvi_fail(RCV_UNSUPPORTED, "the model has no matrix from which the parameter %s can be computed",
                             wanted->name);
        status = approximate(from, full, to, wanted, other);
    }
    return status;
}

/* Makes a model of zeros that owns a copy of the cell and a network, so that it may outlive `model`. */
static rcv_status new_like(const rcv_model *model, const rcv_net_options *options, rcv_model **made) {
    const rcv_cell *cell = rcv_net_cell(model->net);
    const char *source = rcv_cell_source(cell);
    rcv_cell *own_cell = NULL;
    rcv_net *own_net = NULL;
    rcv_status status = rcv_cell_parse(model->context, source, strlen(source), rcv_cell_name(cell), &own_cell);
    if (!status) status = rcv_net_new(own_cell, options, &own_net);
    if (!status) status = rcvi_model_new_zeros(own_net, model->dtype, own_net, own_cell, made);
    if (status) {
        rcv_net_free(own_net);
        rcv_cell_free(own_cell);
    }
    return status;
}

rcv_status rcv_model_low_rank(const rcv_model *model, int64_t rank, rcv_model **approximation) {
    RCVI_NEED(approximation, "approximation");
    *approximation = NULL;
    RCVI_NEED(model, "model");
    if (rank <= 0) return rcvi_fail(RCV_INVALID, "the rank is %lld, it must be at least 1", (long long)rank);
    rcv_net_options options = *rcv_net_get_options(model->net);
    if (options.rank != 0)
        return rcvi_fail(RCV_UNSUPPORTED, "the model has rank %lld already, only a full model can be approximated",
                         (long long)options.rank);
    options.rank = rank;
    rcv_model *made = NULL;
    rcv_status status = new_like(model, &options, &made);
    if (!status) status = approximate_all(model, made);
    if (status) {
        rcv_model_free(made);
        return status;
    }
    *approximation = made;
    return RCV_OK;
}
