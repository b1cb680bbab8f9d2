/* Shapes as cuBLASLt's descriptors, and its algorithms.
 *
 * The library's matrices are column-major: ours, read by it, are transposed. So it computes out^T = op(b)^T op(a)^T, our b
 * on its left; where `out` is stored transposed, that is out = op(a) op(b) again, each operand transposed once more.
 *
 * An algorithm may need operands that begin at multiples of 16 bytes. What a shape's strides promise is asked for, and a
 * second algorithm is kept that needs nothing, for operands that begin elsewhere.
 *
 * The fast algorithms also want rows of operands that are whole pieces of 16 bytes long, though they may lie further apart: 6000 x 700
 * x 1500 in bfloat16 took 98 microseconds on an H200, with a depth of 1,496 it takes 21. Where zeros follow the rows of both, depth
 * takes in some of these. Where the output is small and b's rows are longer than its columns, so many columns are computed aside.
 * Else the last few elements are a product of their own, which takes 10 to 20 more.
 *
 * They want the same of the output, whose rows are the caller's: where those begin anywhere, a product that is large enough is stored
 * in its workspace, which no other product of another stream has, and copied or added to its place: 2600 x 650 x 700 in bfloat16
 * took 26 microseconds straight to rows of 650 floats, 10 to rows of 656. */
#include "device/cuda/gemm/gemm.h"

#include "device/cuda/kernels/kernels.h"

#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

enum { MOST_RESULTS = 32, MOST_ALIGNMENT = 16 };
enum {
    LEAST_DEPTH = 256 /* of a product whose output is copied */,
    FEW_BYTES = 8 << 20 /* of an output that is copied for the sake of a few columns */,
    SOME_ROOM = 4 << 20 /* for an algorithm */
};
static const double least_cut = 1 << 28;    /* multiply-adds of a product that is cut, or whose output is copied */
static const double least_roomy = 1U << 31; /* of one whose algorithms may take more than some room */

#define FUNCTIONS(F)                                                                                                   \
    F(GetVersion)                                                                                                      \
    F(GetStatusName)                                                                                                   \
    F(Create)                                                                                                          \
    F(Destroy)                                                                                                         \
    F(MatmulDescCreate)                                                                                                \
    F(MatmulDescDestroy)                                                                                               \
    F(MatmulDescSetAttribute)                                                                                          \
    F(MatrixLayoutCreate)                                                                                              \
    F(MatrixLayoutDestroy)                                                                                             \
    F(MatrixLayoutSetAttribute)                                                                                        \
    F(MatmulPreferenceCreate)                                                                                          \
    F(MatmulPreferenceDestroy)                                                                                         \
    F(MatmulPreferenceSetAttribute)                                                                                    \
    F(MatmulAlgoGetHeuristic)                                                                                          \
    F(MatmulAlgoConfigGetAttribute)                                                                                    \
    F(Matmul)

/* ---- the library ---- */

#define FIELD(name) __typeof__ (&cublasLt##name)(name);
#define SYMBOL(name) "cublasLt" #name,

static struct {
    pthread_once_t once;
    pthread_mutex_t lock; /* of descriptors while they hold the row that a run's sums start from */
    bool found;
    struct {
        FUNCTIONS(FIELD)
    } call;
    char name[64], reason[256];
} library = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void open_library(void) {
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL};
    static const char *const symbols[] = {FUNCTIONS(SYMBOL)};
    void *places[sizeof symbols / sizeof *symbols] = {NULL};
    _Static_assert(sizeof places == sizeof library.call, "the table is function pointers and nothing else");
    library.found = rcvi_library_open(names, symbols, places, sizeof places / sizeof *places, library.reason,
                                      sizeof library.reason);
    if (!library.found) return;
    memcpy(&library.call, places, sizeof places);
    size_t version = library.call.GetVersion();
    snprintf(library.name, sizeof library.name, "cuBLASLt %zu.%zu.%zu", version / 10000, version / 100 % 100,
             version % 100);
}

const char *rcvi_cuda_blas_name(void) {
    pthread_once(&library.once, open_library);
    if (library.found) return library.name;
    rcvi_fail(RCV_UNSUPPORTED, "products on the GPU need cuBLASLt of CUDA 12 or 13: %s", library.reason);
    return NULL;
}

struct rcvi_cuda_blas {
    rcv_context *context;
    cublasLtHandle_t handle;
};

rcv_status rcvi_cuda_blas_new(rcv_context *context, rcvi_cuda_blas **blas) {
    *blas = NULL;
    if (!rcvi_cuda_blas_name()) return RCV_UNSUPPORTED;
    rcvi_cuda_blas *made = rcvi_new(context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->context = context;
    cublasStatus_t status = library.call.Create(&made->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        rcvi_free(context, made);
        return rcvi_fail(status == CUBLAS_STATUS_ALLOC_FAILED ? RCV_NO_MEMORY : RCV_UNSUPPORTED,
                         "%s does not start on this GPU: %s", library.name, library.call.GetStatusName(status));
    }
    *blas = made;
    return RCV_OK;
}

void rcvi_cuda_blas_free(rcvi_cuda_blas *blas) {
    if (!blas) return;
    library.call.Destroy(blas->handle);
    rcvi_free(blas->context, blas);
}

/* ---- one shape ---- */

typedef struct {
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
    uint32_t alignment[3]; /* bytes that it needs of left, right and out */
} method;

struct rcvi_cuda_gemm {
    const rcvi_cuda_blas *blas;
    rcvi_cuda_gemm_shape shape;
    bool empty; /* a depth of 0: sums of nothing */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t left, right, out; /* of the library's column-major product */
    method strict, loose;
    rcvi_cuda_gemm *rest; /* what this one leaves; from these elements on, and added where depth was cut */
    int64_t rest_a, rest_b, rest_out, rest_start;
    bool rest_adds;
    size_t room; /* bytes of workspace that its algorithms may take */
    /* Where not 0 the output is computed in so many bytes of the workspace, as `shape` says, and goes to its place from there. */
    size_t aside;
    int64_t rows, columns, row_out; /* of its place: the product may be cut */
};

static const char *const type_names[] = {
    [RCVI_F32] = "float32", [RCVI_F64] = "float64", [RCVI_BF16] = "bf16",
    [RCVI_F16] = "fp16",    [RCVI_U8] = "uint8",    [RCVI_I64] = "int64",
};

static rcv_status fail(const rcvi_cuda_gemm_shape *s, cublasStatus_t status, const char *what) {
    rcv_status kind = status == CUBLAS_STATUS_ALLOC_FAILED ? RCV_NO_MEMORY : RCV_UNSUPPORTED;
    return rcvi_fail(kind, "%s %s for the product of [%lld, %lld]%s and [%lld, %lld]%s, %lld times in %s: %s",
                     library.name, what, (long long)s->rows, (long long)s->depth, s->transpose_a ? " transposed" : "",
                     (long long)s->depth, (long long)s->columns, s->transpose_b ? " transposed" : "",
                     (long long)s->batch, type_names[s->a], library.call.GetStatusName(status));
}

static bool data_type(rcvi_cuda_type type, cudaDataType *data) {
    switch (type) {
    case RCVI_F32: *data = CUDA_R_32F; return true;
    case RCVI_F64: *data = CUDA_R_64F; return true;
    case RCVI_BF16: *data = CUDA_R_16BF; return true;
    case RCVI_F16: *data = CUDA_R_16F; return true;
    default: return false;
    }
}

/* [rows, columns] as we store it, `row` elements from row to row. */
typedef struct {
    rcvi_cuda_type type;
    int64_t rows, columns, row, step;
} stored;

static stored stored_a(const rcvi_cuda_gemm_shape *s) {
    return (stored){s->a, s->transpose_a ? s->depth : s->rows, s->transpose_a ? s->rows : s->depth, s->row_a,
                    s->step_a};
}
static stored stored_b(const rcvi_cuda_gemm_shape *s) {
    return (stored){s->b, s->transpose_b ? s->columns : s->depth, s->transpose_b ? s->depth : s->columns, s->row_b,
                    s->step_b};
}
static stored stored_out(const rcvi_cuda_gemm_shape *s) {
    return (stored){s->out, s->transpose_out ? s->columns : s->rows, s->transpose_out ? s->rows : s->columns,
                    s->row_out, s->step_out};
}

static rcv_status lay_out(const rcvi_cuda_gemm_shape *s, stored m, cublasLtMatrixLayout_t *layout) {
    cudaDataType type;
    if (m.rows == 1 && m.row < m.columns) m.row = m.columns; /* there is no next row */
    if (m.row < m.columns || !data_type(m.type, &type)) return fail(s, CUBLAS_STATUS_INVALID_VALUE, "has no layout");
    cublasStatus_t status = library.call.MatrixLayoutCreate(layout, type, (uint64_t)m.columns, (uint64_t)m.rows, m.row);
    if (status == CUBLAS_STATUS_SUCCESS && s->batch > 1) {
        int32_t batch = (int32_t)s->batch;
        status = batch == s->batch ? library.call.MatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                                           &batch, sizeof batch)
                                   : CUBLAS_STATUS_INVALID_VALUE;
        if (status == CUBLAS_STATUS_SUCCESS)
            status = library.call.MatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                           &m.step, sizeof m.step);
    }
    return status == CUBLAS_STATUS_SUCCESS ? RCV_OK : fail(s, status, "has no layout");
}

static cublasStatus_t set_start(cublasLtMatmulDesc_t product, const void *start) {
    return library.call.MatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &start, sizeof start);
}

/* A number for every column of ours is one for every row of the library's, which it calls a bias. */
static cublasStatus_t describe_start(cublasLtMatmulDesc_t product, rcvi_cuda_type out) {
    static const _Alignas(256) char somewhere[256]; /* until a run says where */
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    cudaDataType type = CUDA_R_32F;
    if (!data_type(out, &type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    cublasStatus_t status =
        library.call.MatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = library.call.MatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
    return status == CUBLAS_STATUS_SUCCESS ? set_start(product, somewhere) : status;
}

static rcv_status describe(rcvi_cuda_gemm *gemm) {
    const rcvi_cuda_gemm_shape *s = &gemm->shape;
    cudaDataType scale = s->a == RCVI_F64 ? CUDA_R_64F : CUDA_R_32F;
    cublasComputeType_t compute = s->a == RCVI_F64                ? CUBLAS_COMPUTE_64F
                                  : s->a == RCVI_F32 && s->tensor ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                  : CUBLAS_COMPUTE_32F;
    bool transpose_left = s->transpose_out ? !s->transpose_a : s->transpose_b;
    bool transpose_right = s->transpose_out ? !s->transpose_b : s->transpose_a;
    cublasOperation_t left = transpose_left ? CUBLAS_OP_T : CUBLAS_OP_N,
                      right = transpose_right ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t status = library.call.MatmulDescCreate(&gemm->product, compute, scale);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = library.call.MatmulDescSetAttribute(gemm->product, CUBLASLT_MATMUL_DESC_TRANSA, &left, sizeof left);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = library.call.MatmulDescSetAttribute(gemm->product, CUBLASLT_MATMUL_DESC_TRANSB, &right, sizeof right);
    if (status == CUBLAS_STATUS_SUCCESS && s->starts) status = describe_start(gemm->product, s->out);
    if (status != CUBLAS_STATUS_SUCCESS) return fail(s, status, "has no descriptor");
    RCVI_TRY(lay_out(s, s->transpose_out ? stored_a(s) : stored_b(s), &gemm->left));
    RCVI_TRY(lay_out(s, s->transpose_out ? stored_b(s) : stored_a(s), &gemm->right));
    return lay_out(s, stored_out(s), &gemm->out);
}

/* ---- algorithms ---- */

/* The largest power of 2 up to 16 at whose multiples every row and every product of the batch begins, if the first does. */
static uint32_t promised_alignment(stored m, int64_t batch) {
    size_t bytes = rcvi_cuda_bytes(m.type), alignment = MOST_ALIGNMENT;
    while (alignment > bytes &&
           ((m.rows > 1 && (size_t)m.row * bytes % alignment) || (batch > 1 && (size_t)m.step * bytes % alignment)))
        alignment /= 2;
    return (uint32_t)alignment;
}

static cublasStatus_t prefer(cublasLtMatmulPreference_t preference, const uint32_t alignment[3], uint32_t reductions,
                             uint64_t workspace) {
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } attributes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment[0], sizeof *alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment[1], sizeof *alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment[2], sizeof *alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment[2], sizeof *alignment},
    };
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes && status == CUBLAS_STATUS_SUCCESS; i++)
        status = library.call.MatmulPreferenceSetAttribute(preference, attributes[i].name, attributes[i].value,
                                                           attributes[i].bytes);
    return status;
}

/* Parts of a sum that are added where the result lies come in an order of their own; in 16 bits they lose digits. */
static bool is_wanted(const cublasLtMatmulHeuristicResult_t *result, uint32_t reductions, size_t room) {
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
    size_t written = 0;
    if (result->state != CUBLAS_STATUS_SUCCESS || result->workspaceSize > room) return false;
    if (library.call.MatmulAlgoConfigGetAttribute(&result->algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                                  sizeof scheme, &written) != CUBLAS_STATUS_SUCCESS)
        return false;
    return (scheme & ~reductions) == 0;
}

/* The choice-th of the algorithms that do with this alignment. */
static rcv_status propose(const rcvi_cuda_gemm *gemm, const uint32_t alignment[3], int choice, method *found) {
    const rcvi_cuda_gemm_shape *s = &gemm->shape;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    reductions |= CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE; /* float, as the sums */
    cublasLtMatmulHeuristicResult_t results[MOST_RESULTS];
    memset(results, 0, sizeof results);
    int count = 0;
    cublasLtMatmulPreference_t preference = NULL;
    cublasStatus_t status = library.call.MatmulPreferenceCreate(&preference);
    if (status == CUBLAS_STATUS_SUCCESS) status = prefer(preference, alignment, reductions, gemm->room);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = library.call.MatmulAlgoGetHeuristic(gemm->blas->handle, gemm->product, gemm->left, gemm->right,
                                                     gemm->out, gemm->out, preference, MOST_RESULTS, results, &count);
    if (preference) library.call.MatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS) return fail(s, status, "has no algorithm");
    for (int i = 0; i < count; i++) {
        if (!is_wanted(&results[i], reductions, gemm->room) || choice-- > 0) continue;
        found->algorithm = results[i].algo;
        found->workspace = results[i].workspaceSize;
        memcpy(found->alignment, alignment, sizeof found->alignment);
        return RCV_OK;
    }
    return fail(s, CUBLAS_STATUS_NOT_SUPPORTED, "has no further algorithm");
}

static rcv_status choose(rcvi_cuda_gemm *gemm, int choice) {
    const rcvi_cuda_gemm_shape *s = &gemm->shape;
    stored left = s->transpose_out ? stored_a(s) : stored_b(s), right = s->transpose_out ? stored_b(s) : stored_a(s);
    uint32_t strict[] = {promised_alignment(left, s->batch), promised_alignment(right, s->batch),
                         promised_alignment(stored_out(s), s->batch)};
    uint32_t loose[] = {(uint32_t)rcvi_cuda_bytes(left.type), (uint32_t)rcvi_cuda_bytes(right.type),
                        (uint32_t)rcvi_cuda_bytes(s->out)};
    RCVI_TRY(propose(gemm, strict, choice, &gemm->strict));
    if (memcmp(strict, loose, sizeof strict)) return propose(gemm, loose, 0, &gemm->loose);
    gemm->loose = gemm->strict;
    return RCV_OK;
}

/* ---- what is no multiple of 16 bytes ---- */

static rcv_status make(rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int choice, size_t room,
                       rcvi_cuda_gemm **gemm);

static bool is_aligned_throughout(stored m) { return promised_alignment(m, 1) == MOST_ALIGNMENT; }

static double multiply_adds(const rcvi_cuda_gemm_shape *s) {
    return (double)s->rows * (double)s->columns * (double)s->depth;
}

/* Is it one product by tensor cores that takes long enough to be worth a second launch, and do its operands suit them? */
static bool is_large(const rcvi_cuda_gemm_shape *s) {
    if (s->batch > 1 || s->a == RCVI_F64 || (s->a == RCVI_F32 && !s->tensor)) return false;
    if (multiply_adds(s) < least_cut) return false;
    return is_aligned_throughout(stored_a(s)) && is_aligned_throughout(stored_b(s));
}

static int64_t whole_row(const rcvi_cuda_gemm_shape *s) {
    int64_t piece = MOST_ALIGNMENT / (int64_t)rcvi_cuda_bytes(s->a);
    return (s->columns + piece - 1) / piece * piece;
}

/* Has it a few columns at the end that a copy of its output would cost less than? */
static bool has_odd_columns(const rcvi_cuda_gemm_shape *s) {
    int64_t row = whole_row(s);
    return s->columns != row && s->whole_b && !s->transpose_b && s->row_b >= row &&
           (size_t)(s->rows * row) * rcvi_cuda_bytes(s->out) <= FEW_BYTES;
}

/* Bytes of the output of a product whose output should be put aside; 0: it should not. */
static size_t aside_bytes(const rcvi_cuda_gemm_shape *s) {
    if (!is_large(s) || s->transpose_out || s->starts || s->depth < LEAST_DEPTH || s->out != RCVI_F32) return 0;
    if (is_aligned_throughout(stored_out(s)) && !has_odd_columns(s)) return 0;
    return ((size_t)(s->rows * whole_row(s)) * rcvi_cuda_bytes(s->out) + 255) / 256 * 256;
}

/* Every stream of a plan has a workspace that suits all of its products: those that do not take long get by with little. */
static size_t room_of(const rcvi_cuda_gemm_shape *s, size_t room) {
    size_t enough = aside_bytes(s) + SOME_ROOM;
    return multiply_adds(s) < least_roomy && room > enough ? enough : room;
}

/* Puts the output aside where its rows begin anywhere. Its rows become whole pieces, and b's with them where they are so in
 * memory: a column more takes nothing from the others, and is not copied. */
static void put_aside(rcvi_cuda_gemm *gemm) {
    rcvi_cuda_gemm_shape *s = &gemm->shape;
    int64_t row = whole_row(s);
    size_t bytes = aside_bytes(s);
    if (bytes == 0 || bytes + SOME_ROOM > gemm->room) return;
    gemm->aside = bytes;
    gemm->room -= bytes;
    gemm->rows = s->rows;
    gemm->columns = s->columns;
    gemm->row_out = s->row_out;
    if (s->whole_b && !s->transpose_b && s->row_b >= row) s->columns = row;
    s->row_out = row;
}

/* Where one of its lengths is cut, or NULL. */
static int64_t *find_cut(rcvi_cuda_gemm_shape *s) {
    int64_t piece = MOST_ALIGNMENT / (int64_t)rcvi_cuda_bytes(s->a);
    if (!is_large(s) || !is_aligned_throughout(stored_out(s))) return NULL;
    int64_t *lengths[] = {s->transpose_a ? &s->rows : &s->depth, s->transpose_b ? &s->depth : &s->columns};
    for (int i = 0; i < 2; i++) {
        if (*lengths[i] % piece && *lengths[i] > piece) return lengths[i];
    }
    return NULL;
}

/* Zeros may as well be summed. */
static void deepen(rcvi_cuda_gemm_shape *s) {
    int64_t piece = MOST_ALIGNMENT / (int64_t)rcvi_cuda_bytes(s->a), depth = (s->depth + piece - 1) / piece * piece;
    bool along = !s->transpose_a && s->transpose_b && depth <= s->row_a && depth <= s->row_b;
    if (s->padded && along && is_large(s)) s->depth = depth;
}

/* Leaves what is behind the last whole piece to a product of its own. */
static rcv_status cut(rcvi_cuda_blas *blas, rcvi_cuda_gemm *gemm) {
    rcvi_cuda_gemm_shape *s = &gemm->shape, rest = *s;
    int64_t *length = find_cut(s);
    if (!length) return RCV_OK;
    int64_t piece = MOST_ALIGNMENT / (int64_t)rcvi_cuda_bytes(s->a), most = *length / piece * piece;
    bool rows = length == &s->rows, columns = length == &s->columns;
    gemm->rest_adds = !rows && !columns;
    gemm->rest_a = columns ? 0 : s->transpose_a == rows ? most : most * s->row_a;
    gemm->rest_b = rows ? 0 : s->transpose_b == columns ? most * s->row_b : most;
    gemm->rest_out = gemm->rest_adds ? 0 : rows == s->transpose_out ? most : most * s->row_out;
    gemm->rest_start = columns ? most : 0;
    rest.rows = rows ? s->rows - most : s->rows;
    rest.columns = columns ? s->columns - most : s->columns;
    rest.depth = gemm->rest_adds ? s->depth - most : s->depth;
    rest.starts &= !gemm->rest_adds;
    *length = most;
    return make(blas, &rest, 0, gemm->room, &gemm->rest);
}

static rcv_status make(rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int choice, size_t room,
                       rcvi_cuda_gemm **gemm) {
    *gemm = NULL;
    rcvi_cuda_gemm *made = rcvi_new(blas->context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->blas = blas;
    made->shape = *shape;
    made->room = room;
    if (made->shape.batch < 1) made->shape.batch = 1;
    made->empty = shape->rows <= 0 || shape->columns <= 0 || shape->depth <= 0;
    rcv_status status =
        made->empty && choice > 0 ? fail(shape, CUBLAS_STATUS_NOT_SUPPORTED, "has no further algorithm") : RCV_OK;
    bool starts = !made->empty && !shape->accumulate && !shape->transpose_out && shape->a != RCVI_F64;
    if (shape->starts && !starts) status = fail(shape, CUBLAS_STATUS_NOT_SUPPORTED, "does not start from a row");
    if (!made->empty) deepen(&made->shape);
    if (!made->empty) put_aside(made);
    if (!made->empty && status == RCV_OK) status = cut(blas, made);
    if (!made->empty && status == RCV_OK) status = describe(made);
    if (!made->empty && status == RCV_OK) status = choose(made, choice);
    if (status != RCV_OK) {
        rcvi_cuda_gemm_free(made);
        return status;
    }
    *gemm = made;
    return RCV_OK;
}

rcv_status rcvi_cuda_gemm_new(rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int choice,
                              rcvi_cuda_gemm **gemm) {
    return make(blas, shape, choice, room_of(shape, RCVI_GEMM_WORKSPACE), gemm);
}

rcv_status rcvi_cuda_gemm_new_within(rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int choice, size_t room,
                                     rcvi_cuda_gemm **gemm) {
    return make(blas, shape, choice, room_of(shape, room < RCVI_GEMM_WORKSPACE ? room : RCVI_GEMM_WORKSPACE), gemm);
}

void rcvi_cuda_gemm_free(rcvi_cuda_gemm *gemm) {
    if (!gemm) return;
    cublasLtMatrixLayout_t layouts[] = {gemm->left, gemm->right, gemm->out};
    for (int i = 0; i < 3; i++) {
        if (layouts[i]) library.call.MatrixLayoutDestroy(layouts[i]);
    }
    if (gemm->product) library.call.MatmulDescDestroy(gemm->product);
    rcvi_cuda_gemm_free(gemm->rest);
    rcvi_free(gemm->blas->context, gemm);
}

size_t rcvi_cuda_gemm_workspace(const rcvi_cuda_gemm *gemm) {
    size_t own = gemm->strict.workspace > gemm->loose.workspace ? gemm->strict.workspace : gemm->loose.workspace;
    size_t rest = gemm->rest ? rcvi_cuda_gemm_workspace(gemm->rest) : 0;
    return gemm->aside + (own > rest ? own : rest);
}

/* ---- a run ---- */

/* A sum over nothing: zeros, or what was there. */
static rcv_status run_empty(const rcvi_cuda_gemm_shape *s, bool add, void *out, cudaStream_t stream) {
    stored m = stored_out(s);
    size_t bytes = rcvi_cuda_bytes(m.type);
    if (add || m.rows <= 0 || m.columns <= 0) return RCV_OK;
    size_t pitch = (size_t)(m.row > m.columns ? m.row : m.columns) * bytes;
    for (int64_t i = 0; i < s->batch; i++)
        RCVI_CUDA_TRY(cudaMemset2DAsync((char *)out + (size_t)(i * m.step) * bytes, pitch, 0, (size_t)m.columns * bytes,
                                        (size_t)m.rows, stream),
                      "a product of depth 0");
    return RCV_OK;
}

static bool is_aligned(const void *at, uint32_t alignment) { return (uintptr_t)at % alignment == 0; }

static rcv_status multiply(const rcvi_cuda_gemm *gemm, const void *a, const void *b, const void *start, bool add,
                           void *out, void *workspace, cudaStream_t stream) {
    static const float float_zero = 0, float_one = 1;
    static const double double_zero = 0, double_one = 1;
    const rcvi_cuda_gemm_shape *s = &gemm->shape;
    if (gemm->empty) return run_empty(s, add, out, stream);
    bool is_double = s->a == RCVI_F64;
    const void *one = is_double ? (const void *)&double_one : &float_one;
    const void *zero = is_double ? (const void *)&double_zero : &float_zero;
    const void *left = s->transpose_out ? a : b, *right = s->transpose_out ? b : a;
    const uint32_t *needed = gemm->strict.alignment;
    bool strict = is_aligned(left, needed[0]) && is_aligned(right, needed[1]) && is_aligned(out, needed[2]);
    const method *method = strict ? &gemm->strict : &gemm->loose;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (s->starts) {
        pthread_mutex_lock(&library.lock);
        status = set_start(gemm->product, start);
    }
    if (status == CUBLAS_STATUS_SUCCESS)
        status = library.call.Matmul(gemm->blas->handle, gemm->product, one, left, gemm->left, right, gemm->right,
                                     add ? one : zero, out, gemm->out, out, gemm->out, &method->algorithm, workspace,
                                     method->workspace, stream);
    if (s->starts) pthread_mutex_unlock(&library.lock);
    if (status != CUBLAS_STATUS_SUCCESS) return fail(s, status, "fails");
    if (!gemm->rest) return RCV_OK;
    int64_t size = (int64_t)rcvi_cuda_bytes(s->a), size_out = (int64_t)rcvi_cuda_bytes(s->out);
    return multiply(gemm->rest, (const char *)a + gemm->rest_a * size, (const char *)b + gemm->rest_b * size,
                    start ? (const char *)start + gemm->rest_start * size_out : NULL, add || gemm->rest_adds,
                    (char *)out + gemm->rest_out * size_out, workspace, stream);
}

static rcv_status run(const rcvi_cuda_gemm *gemm, const void *a, const void *b, const void *start, bool add, void *out,
                      void *workspace, cudaStream_t stream) {
    const rcvi_cuda_gemm_shape *s = &gemm->shape;
    if (!gemm->aside) return multiply(gemm, a, b, start, add, out, workspace, stream);
    RCVI_TRY(multiply(gemm, a, b, NULL, false, workspace, (char *)workspace + gemm->aside, stream));
    return rcvi_cuda_check(
        rcvi_cuda_bring(stream, gemm->rows, gemm->columns, add, out, gemm->row_out, workspace, s->row_out),
        "bringing a product to its place");
}

rcv_status rcvi_cuda_gemm_run(const rcvi_cuda_gemm *gemm, const void *a, const void *b, const void *start, void *out,
                              void *workspace, cudaStream_t stream) {
    return run(gemm, a, b, start, gemm->shape.accumulate, out, workspace, stream);
}

rcv_status rcvi_cuda_gemm_store(const rcvi_cuda_gemm *gemm, const void *a, const void *b, void *out, void *workspace,
                                cudaStream_t stream) {
    return run(gemm, a, b, NULL, false, out, workspace, stream);
}
