/* The public product (rcv_gemm): one shape, with its thread team and scratch, called many times. */
#include "device/cpu/engine/team.h"
#include "device/cpu/gemm/matmul.h"
#include "device/cpu/kernels/select.h"
#include "device/cpu/measure.h"
#include "recurve_bench.h"

struct rcv_gemm {
    rcv_context *context;
    const rcvi_kernels *kernels;
    rcvi_matmul matmul;
    rcvi_team *team;
    void *memory;
    char *scratch; /* [threads, scratch_bytes] */
    int64_t scratch_bytes;
    char *packed;      /* b packed; NULL unless options.packed_b */
    bool stale;        /* the next call packs b again */
    const void *a, *b; /* of the call in progress */
    void *c;
};

/* Checks that the leading dimension is at least the columns, and that the size in bytes does not overflow. */
static rcv_status check_matrix(const char *name, int64_t rows, int64_t columns, int64_t *stride) {
    if (*stride == 0) *stride = columns;
    if (*stride < columns)
        return rcvi_fail(RCV_INVALID, "ld%s is %lld, but a row of %s has %lld elements", name, (long long)*stride, name,
                         (long long)columns);
    int64_t elements, slack = 4096; /* more than the padding of packing, in rows or columns */
    if (!rcvi_multiply(rows, *stride, &elements) || !rcvi_multiply(rows + slack, columns + slack, &elements) ||
        elements > INT64_MAX / RCVI_MAX_THREADS / 64)
        return rcvi_fail(RCV_INVALID, "%s of %lld rows and %lld columns is too large to be counted in bytes", name,
                         (long long)rows, (long long)columns);
    return RCV_OK;
}

static rcv_status describe(const rcv_gemm_options *options, rcvi_matmul *matmul) {
    rcvi_matmul made = {.transpose_a = options->transpose_a,
                        .transpose_b = options->transpose_b,
                        .accumulate = options->accumulate,
                        .m = options->m,
                        .n = options->n,
                        .k = options->k,
                        .lda = options->lda,
                        .ldb = options->ldb,
                        .ldc = options->ldc};
    RCVI_TRY(rcvi_check_product_type(options->dtype, &made.type));
    const int64_t limit = INT64_MAX / 2;
    if (made.m < 1 || made.n < 1 || made.k < 1 || made.m > limit || made.n > limit || made.k > limit)
        return rcvi_fail(RCV_INVALID, "m, n and k must be at least 1 and countable, not %lld, %lld and %lld",
                         (long long)made.m, (long long)made.n, (long long)made.k);
    int64_t m = made.m, n = made.n, k = made.k;
    RCVI_TRY(check_matrix("a", made.transpose_a ? k : m, made.transpose_a ? m : k, &made.lda));
    RCVI_TRY(check_matrix("b", made.transpose_b ? n : k, made.transpose_b ? k : n, &made.ldb));
    RCVI_TRY(check_matrix("c", m, n, &made.ldc));
    *matmul = made;
    return RCV_OK;
}

rcv_status rcv_gemm_new(rcv_context *context, const rcv_gemm_options *options, rcv_gemm **gemm) {
    if (gemm) *gemm = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(options, "options");
    RCVI_NEED(gemm, "gemm");
    RCVI_READ(rcv_gemm_options, options, "options");
    rcvi_matmul matmul;
    RCVI_TRY(describe(options, &matmul));
    int64_t threads = options->threads == 0 ? rcv_context_threads(context) : options->threads;
    RCVI_TRY(rcvi_check_threads(threads));
    const rcvi_kernels *kernels = rcvi_context_kernels(context);
    if (!kernels) return RCV_INVALID;
    rcv_gemm *made = rcvi_new(context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->context = context;
    made->kernels = kernels;
    made->matmul = matmul;
    made->scratch_bytes = rcvi_matmul_scratch(kernels, &matmul, (int)threads);
    int64_t packed = options->packed_b ? rcvi_matmul_packed_bytes(kernels, &matmul) : 0;
    int64_t shared = made->scratch_bytes * threads;
    made->memory = rcvi_new(context, (size_t)(shared + packed + RCVI_MATMUL_ALIGN), 1);
    rcv_status status = made->memory ? rcvi_team_new(context, (int)threads, &made->team) : RCV_NO_MEMORY;
    if (status) {
        rcv_gemm_free(made);
        return status;
    }
    made->scratch = (char *)made->memory + (-(uintptr_t)made->memory & (RCVI_MATMUL_ALIGN - 1));
    if (options->packed_b) made->packed = made->scratch + shared;
    made->stale = true;
    *gemm = made;
    return RCV_OK;
}

void rcv_gemm_free(rcv_gemm *gemm) {
    if (!gemm) return;
    rcvi_team_free(gemm->team);
    rcvi_free(gemm->context, gemm->memory);
    rcvi_free(gemm->context, gemm);
}

static void run_share(void *user, int member) {
    const rcv_gemm *gemm = user;
    const rcvi_kernels *kernels = gemm->kernels;
    int members = rcvi_team_threads(gemm->team);
    void *scratch = gemm->scratch + member * gemm->scratch_bytes;
    if (kernels->begin) kernels->begin();
    if (gemm->packed && gemm->stale) {
        rcvi_matmul_pack_share(kernels, &gemm->matmul, gemm->b, member, members, gemm->packed);
        rcvi_team_barrier(gemm->team, member);
    }
    if (gemm->packed) {
        rcvi_matmul_packed_share(kernels, &gemm->matmul, gemm->a, gemm->packed, gemm->c, member, members, scratch);
    } else {
        rcvi_matmul_share(kernels, &gemm->matmul, gemm->a, gemm->b, gemm->c, member, members, scratch);
    }
    if (kernels->end) kernels->end();
}

typedef struct {
    const char *name;
    uintptr_t begin;
    int64_t rows, columns, stride;
} extent;

/* True if two matrices have a byte in common. Two column ranges of one larger matrix do not. */
static bool do_overlap(const extent *a, const extent *b, int64_t size) {
    int64_t a_bytes = ((a->rows - 1) * a->stride + a->columns) * size;
    int64_t b_bytes = ((b->rows - 1) * b->stride + b->columns) * size;
    if (a->begin >= b->begin + (uintptr_t)b_bytes || b->begin >= a->begin + (uintptr_t)a_bytes) return false;
    if (a->stride != b->stride) return true;
    int64_t row = a->stride * size, offset = (int64_t)(b->begin - a->begin) % row;
    if (offset < 0) offset += row;
    return offset < a->columns * size || offset + b->columns * size > row;
}

static rcv_status check_overlap(const rcv_gemm *gemm, const void *a, const void *b, const void *c) {
    const rcvi_matmul *m = &gemm->matmul;
    int64_t size = m->type == RCVI_KERNEL_DOUBLE ? sizeof(double) : sizeof(float);
    const extent out = {"c", (uintptr_t)c, m->m, m->n, m->ldc};
    const extent in[] = {
        {"a", (uintptr_t)a, m->transpose_a ? m->k : m->m, m->transpose_a ? m->m : m->k, m->lda},
        {"b", (uintptr_t)b, m->transpose_b ? m->n : m->k, m->transpose_b ? m->k : m->n, m->ldb},
    };
    for (int i = 0; i < 2; i++) {
        if (in[i].begin && do_overlap(&in[i], &out, size))
            return rcvi_fail(RCV_INVALID, "rcv_gemm_run: c overlaps %s; give what is written memory of its own",
                             in[i].name);
    }
    return RCV_OK;
}

rcv_status rcv_gemm_run(rcv_gemm *gemm, const void *a, const void *b, void *c) {
    RCVI_NEED(gemm, "gemm");
    RCVI_NEED(a, "a");
    RCVI_NEED(c, "c");
    RCVI_NEED(b || (gemm->packed && !gemm->stale), "b");
    RCVI_TRY(check_overlap(gemm, a, gemm->packed && !gemm->stale ? NULL : b, c));
    gemm->a = a;
    gemm->b = b;
    gemm->c = c;
    RCVI_TRY(rcvi_team_call(gemm->team, run_share, gemm));
    gemm->stale = false;
    return RCV_OK;
}

void rcv_gemm_repack(rcv_gemm *gemm) {
    if (gemm) gemm->stale = true;
}
