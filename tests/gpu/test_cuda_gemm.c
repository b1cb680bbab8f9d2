/* Products on the GPU against plain C in double: every type, both layouts, odd sizes and strides, batches; the same bits
 * every time, and nothing touched but the output. */
#include "cuda_tensor.h"

#include "device/cuda/gemm/split_gemm.h"

static random_source source;
static cudaStream_t stream;
static test_allocator allocator;
static rcv_context *context;
static rcvi_cuda_blas *blas;
static void *workspace;

static const struct {
    rcvi_cuda_type operand, out;
    bool tensor;
    double error; /* relative to the sum of sizes */
} kinds[] = {
    {RCVI_F32, RCVI_F32, false, 0x1p-20}, {RCVI_F32, RCVI_F32, true, 0x1p-8},  {RCVI_F64, RCVI_F64, false, 0x1p-48},
    {RCVI_BF16, RCVI_F32, true, 0x1p-16}, {RCVI_F16, RCVI_F32, true, 0x1p-16},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const int64_t sizes[][3] = {/* rows, columns, depth */
                                   {1, 1, 1},    {5, 7, 3},    {64, 128, 96}, {33, 65, 129}, {1, 130, 257},
                                   {100, 1, 64}, {16, 48, 32}, {3, 200, 512}, {130, 70, 8},  {20, 24, 650}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Batches lie one below the other: product i at row i * height. */
typedef struct {
    rcvi_cuda_gemm_shape shape;
    tensor a, b, out, start;
    int64_t height_a, height_b, height_out;
} problem;

/* A gap up to the next multiple of 8, filled with NaN, up to the end of the last row too; and the same for operands only. */
enum { ROUNDED = -1, ROUNDED_OPERANDS = -2 };

static tensor make(rcvi_cuda_type type, int64_t height, int64_t columns, int64_t batch, int gap, bool random) {
    int64_t row = gap < 0 ? (columns + 7) / 8 * 8 : columns + gap;
    return tensor_new(type, height * batch, columns, row, 1, gap == 3 ? 1 : 0, random ? &source : NULL);
}

/* `variant` has a bit for each choice of layout. */
static problem make_problem(int kind, const int64_t *size, unsigned variant, int gap, int64_t batch) {
    problem p = {.shape = {.rows = size[0],
                           .columns = size[1],
                           .depth = size[2],
                           .transpose_a = variant & 1,
                           .transpose_b = variant >> 1 & 1,
                           .accumulate = variant >> 2 & 1,
                           .transpose_out = variant >> 3 & 1,
                           .starts = variant >> 4 & 1,
                           .a = kinds[kind].operand,
                           .b = kinds[kind].operand,
                           .out = kinds[kind].out,
                           .tensor = kinds[kind].tensor,
                           .batch = batch}};
    rcvi_cuda_gemm_shape *s = &p.shape;
    p.height_a = s->transpose_a ? s->depth : s->rows;
    p.height_b = s->transpose_b ? s->columns : s->depth;
    p.height_out = s->transpose_out ? s->columns : s->rows;
    p.a = make(s->a, p.height_a, s->transpose_a ? s->rows : s->depth, batch, gap, true);
    p.b = make(s->b, p.height_b, s->transpose_b ? s->depth : s->columns, batch, gap, true);
    int gap_out = gap == ROUNDED_OPERANDS ? 0 : gap;
    p.out = make(s->out, p.height_out, s->transpose_out ? s->rows : s->columns, batch, gap_out, s->accumulate);
    p.start = tensor_new(RCVI_F32, 1, s->columns, s->columns, 1, 0, &source);
    s->row_a = p.a.row;
    s->row_b = p.b.row;
    s->row_out = p.out.row;
    s->step_a = p.height_a * p.a.row;
    s->step_b = p.height_b * p.b.row;
    s->step_out = p.height_out * p.out.row;
    return p;
}

static void free_problem(problem *p) {
    tensor_free(&p->a);
    tensor_free(&p->b);
    tensor_free(&p->out);
    tensor_free(&p->start);
}

/* An operand in double, as [count, depth]: from this row of the tensor on. */
static double *along_depth(const tensor *t, int64_t first_row, int64_t count, int64_t depth, bool depth_is_row) {
    double *x = malloc((size_t)(count * depth + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t n = 0; n < count * depth; n++) {
        int64_t r = n / depth, k = n % depth;
        x[n] = tensor_get(t, first_row + (depth_is_row ? k : r), depth_is_row ? r : k);
    }
    return x;
}

/* Checks what the device has; from then on that is expected. */
static void accept_product(problem *p, double relative, const char *label) {
    const rcvi_cuda_gemm_shape *s = &p->shape;
    void *got = tensor_read(&p->out);
    for (int64_t i = 0; i < s->batch; i++) {
        double *a = along_depth(&p->a, i * p->height_a, s->rows, s->depth, s->transpose_a),
               *b = along_depth(&p->b, i * p->height_b, s->columns, s->depth, !s->transpose_b);
        for (int64_t n = 0; n < s->rows * s->columns; n++) {
            int64_t r = n / s->columns, c = n % s->columns;
            int64_t out_row = i * p->height_out + (s->transpose_out ? c : r), out_column = s->transpose_out ? r : c;
            double sum = s->accumulate ? tensor_get(&p->out, out_row, out_column) : 0;
            if (s->starts) sum = tensor_get(&p->start, 0, c);
            double size = fabs(sum);
            for (int64_t k = 0; k < s->depth; k++) {
                double product = a[r * s->depth + k] * b[c * s->depth + k];
                sum += product;
                size += fabs(product);
            }
            tensor_accept(&p->out, got, out_row, out_column, sum, size * relative, label);
        }
        free(a);
        free(b);
    }
    free(got);
}

static void run(const rcvi_cuda_gemm *gemm, const problem *p) {
    assert_true(rcvi_cuda_gemm_workspace(gemm) <= RCVI_GEMM_WORKSPACE);
    check_ok(rcvi_cuda_gemm_run(gemm, tensor_at(&p->a), tensor_at(&p->b), p->shape.starts ? tensor_at(&p->start) : NULL,
                                tensor_at(&p->out), workspace, stream));
    check_cuda(cudaStreamSynchronize(stream));
}

/* Runs twice, from the same output. */
static void check_product(const rcvi_cuda_gemm *gemm, problem *p, double relative, const char *label) {
    void *before = malloc(p->out.bytes);
    assert_non_null(before);
    memcpy(before, p->out.host, p->out.bytes);
    run(gemm, p);
    accept_product(p, relative, label);
    tensor_check(&p->out, label);
    send_bytes(p->out.device, before, p->out.bytes);
    run(gemm, p);
    tensor_check(&p->out, "the same product again");
    free(before);
}

static void check_one(int kind, const int64_t *size, unsigned variant, int gap, int64_t batch) {
    problem p = make_problem(kind, size, variant, gap, batch);
    char label[160];
    snprintf(label, sizeof label, "%s%s to %s, [%d, %d, %d]%s%s%s%s, gap %d, %d times", number_names[p.shape.a],
             p.shape.tensor ? " (tensor)" : "", number_names[p.shape.out], (int)size[0], (int)size[1], (int)size[2],
             variant & 1 ? " a^T" : "", variant & 2 ? " b^T" : "", variant & 4 ? " added" : "",
             variant & 8 ? " transposed" : "", gap, (int)batch);
    rcvi_cuda_gemm *gemm = NULL;
    check_ok(rcvi_cuda_gemm_new(blas, &p.shape, 0, &gemm));
    check_product(gemm, &p, kinds[kind].error, label);
    rcvi_cuda_gemm_free(gemm);
    free_problem(&p);
}

static void test_products(void **state) {
    (void)state;
    static const int gaps[] = {0, 3, 8};
    int turn = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        for (unsigned variant = 0; variant < 16; variant++) { /* sizes, gaps and batches alternate */
            for (int i = 0; i < 3; i++, turn++)
                check_one(kind, sizes[turn % SIZES], variant, gaps[turn / 3 % 3], turn % 4 == 3 ? 3 : 1);
        }
    }
}

/* Sums that start from a row, by two problems with one gemm: each has its own. Of odd sizes the library may have none. */
static void test_starts(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        for (unsigned variant = 16; variant < 20; variant++) {
            for (int i = 0; i < SIZES; i++) {
                problem p = make_problem(kind, sizes[i], variant, i % 2 ? 8 : 0, 1);
                problem other = make_problem(kind, sizes[i], variant, i % 2 ? 8 : 0, 1);
                rcvi_cuda_gemm *gemm = NULL;
                if (kinds[kind].operand == RCVI_F64) {
                    check_fails(rcvi_cuda_gemm_new(blas, &p.shape, 0, &gemm), RCV_UNSUPPORTED, "start from a row");
                } else if (rcvi_cuda_gemm_new(blas, &p.shape, 0, &gemm) == RCV_OK) {
                    check_product(gemm, &p, kinds[kind].error, "a product from a row");
                    check_product(gemm, &other, kinds[kind].error, "a product from another row");
                } else if (sizes[i][1] % 8 == 0) {
                    fail_msg("%s", rcv_message());
                }
                rcvi_cuda_gemm_free(gemm);
                free_problem(&p);
                free_problem(&other);
            }
        }
    }
}

/* Large products whose rows are no whole pieces of 16 bytes: of depth, rows, columns. */
static void test_cut(void **state) {
    (void)state;
    static const struct {
        int64_t size[3];
        unsigned variant;
    } cuts[] = {{{512, 1024, 516}, 2}, {{512, 1024, 516}, 16 | 2}, {{516, 1024, 512}, 4 | 1},
                {{512, 1028, 512}, 0}, {{512, 1028, 512}, 16},     {{516, 1024, 512}, 8 | 1}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        check_one(3 + (int)i % 2, cuts[i].size, cuts[i].variant, ROUNDED, 1);
}

/* Large products in tf32 whose operands' rows begin anywhere: these are computed from copies. Also with fewer rows, or less depth, than the
 * shape has. */
static void test_copied(void **state) {
    (void)state;
    static const int64_t size[] = {514, 1030, 518}, aligned[] = {516, 1032, 518};
    static const unsigned variants[] = {0, 1, 2, 3, 4 | 2, 4 | 1, 8 | 2, 8, 16 | 2, 16};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        check_one(1, i % 2 ? size : aligned, variants[i], 0, 1);
        problem p = make_problem(1, size, variants[i], i % 3 ? 0 : 3, 1);
        rcvi_cuda_gemm *gemm = NULL;
        int64_t *length = p.shape.transpose_a ? &p.shape.depth : &p.shape.rows;
        check_ok(rcvi_cuda_gemm_new(blas, &p.shape, 0, &gemm));
        assert_true(rcvi_cuda_gemm_workspace(gemm) > 1 << 20 && rcvi_cuda_gemm_workspace(gemm) <= RCVI_GEMM_WORKSPACE);
        bool shortens = !p.shape.transpose_out && !(p.shape.transpose_a && !p.shape.accumulate);
        if (shortens) *length -= 130;
        check_ok(rcvi_cuda_gemm_run_length(gemm, shortens ? *length : 0, tensor_at(&p.a), tensor_at(&p.b),
                                           p.shape.starts ? tensor_at(&p.start) : NULL, false, tensor_at(&p.out),
                                           workspace, stream));
        check_cuda(cudaStreamSynchronize(stream));
        accept_product(&p, kinds[1].error, "a product of copies");
        tensor_check(&p.out, "a product of copies");
        rcvi_cuda_gemm_free(gemm);
        free_problem(&p);
    }
}

/* Large products whose rows have zeros after their depth: the product includes them. */
static void test_padded(void **state) {
    (void)state;
    static const unsigned variants[] = {2, 4 | 2, 8 | 2, 16 | 2};
    for (int kind = 3; kind < KINDS; kind++) {
        for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
            problem p = make_problem(kind, (const int64_t[]){512, 1024, 520}, variants[i], 0, 1);
            rcvi_cuda_gemm *gemm = NULL;
            p.shape.depth = 516;
            p.shape.padded = true;
            check_ok(rcvi_cuda_gemm_new(blas, &p.shape, 0, &gemm));
            p.shape.depth = 520;
            check_product(gemm, &p, kinds[kind].error, "a product that is a little deeper");
            rcvi_cuda_gemm_free(gemm);
            free_problem(&p);
        }
    }
}

/* Large products whose output's rows are not aligned, or have a few columns after the last multiple of 16 bytes: computed in the workspace, where
 * b's rows are whole with columns more, which must not be seen; stored there and added at the end, or cut there. */
static void test_aside(void **state) {
    (void)state;
    static const struct {
        int kind;
        int64_t size[3];
        unsigned variant;
        bool whole;
    } cases[] = {
        {3, {1024, 518, 520}, 1, true},     {3, {1024, 518, 520}, 4 | 1, true}, {4, {1024, 517, 520}, 4 | 1, false},
        {3, {1024, 518, 516}, 4 | 2, true}, {1, {1024, 518, 520}, 4 | 1, true}, {3, {1030, 518, 520}, 4 | 1, true},
        {4, {1026, 517, 520}, 1, false},    {3, {1024, 516, 512}, 0, true},     {4, {1024, 516, 520}, 4, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        problem p = make_problem(cases[i].kind, cases[i].size, cases[i].variant, ROUNDED_OPERANDS, 1);
        rcvi_cuda_gemm *gemm = NULL;
        p.shape.whole_b = cases[i].whole;
        check_ok(rcvi_cuda_gemm_new(blas, &p.shape, 0, &gemm));
        assert_true(rcvi_cuda_gemm_workspace(gemm) >= (size_t)(p.shape.rows * p.shape.columns) * sizeof(float));
        check_product(gemm, &p, kinds[cases[i].kind].error, "a product by way of its workspace");
        if (p.shape.accumulate) {
            check_ok(
                rcvi_cuda_gemm_store(gemm, tensor_at(&p.a), tensor_at(&p.b), tensor_at(&p.out), workspace, stream));
            check_cuda(cudaStreamSynchronize(stream));
            p.shape.accumulate = false;
            accept_product(&p, kinds[cases[i].kind].error, "the same, stored");
            tensor_check(&p.out, "the same, stored");
        }
        rcvi_cuda_gemm_free(gemm);
        free_problem(&p);
    }
}

/* A shape that accumulates, run without what is there, is as one that does not. */
static void test_store(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        problem p = make_problem(kind, sizes[kind % SIZES], 4 | 1, 8, 1);
        rcvi_cuda_gemm *gemm = NULL;
        check_ok(rcvi_cuda_gemm_new(blas, &p.shape, 0, &gemm));
        check_ok(rcvi_cuda_gemm_store(gemm, tensor_at(&p.a), tensor_at(&p.b), tensor_at(&p.out), workspace, stream));
        check_cuda(cudaStreamSynchronize(stream));
        p.shape.accumulate = false;
        accept_product(&p, kinds[kind].error, "a product that is stored");
        tensor_check(&p.out, "a product that is stored");
        rcvi_cuda_gemm_free(gemm);
        free_problem(&p);
    }
}

/* float32 in parts: memory for the parts holds no numbers before, and `a` is split once for two runs. */
static void check_parts(const int64_t *size, unsigned variant, int gap, int count, bool blocks) {
    problem p = make_problem(0, size, variant, gap, 1);
    rcvi_split_gemm *parts = NULL;
    void *a = NULL, *b = NULL, *before = malloc(p.out.bytes);
    char label[200];
    snprintf(label, sizeof label, "[%d, %d, %d] in %d parts, variant %u, gap %d%s", (int)size[0], (int)size[1],
             (int)size[2], count, variant, gap, blocks ? ", in blocks" : "");
    assert_non_null(before);
    memcpy(before, p.out.host, p.out.bytes);
    check_ok(rcvi_split_gemm_new(context, blas, &p.shape, count, blocks, 0, &parts));
    assert_true(rcvi_split_gemm_workspace(parts) <= RCVI_GEMM_WORKSPACE);
    check_cuda(cudaMalloc(&a, rcvi_split_gemm_bytes_a(parts)));
    check_cuda(cudaMalloc(&b, rcvi_split_gemm_bytes_b(parts)));
    check_cuda(cudaMemset(a, 0xff, rcvi_split_gemm_bytes_a(parts)));
    check_cuda(cudaMemset(b, 0xff, rcvi_split_gemm_bytes_b(parts)));
    check_cuda(cudaDeviceSynchronize());
    check_ok(rcvi_split_gemm_split_a(parts, 0, tensor_at(&p.a), a, stream));
    for (int i = 0; i < 2; i++) {
        check_ok(rcvi_split_gemm_split_b(parts, 0, tensor_at(&p.b), b, stream));
        check_ok(rcvi_split_gemm_run(parts, 0, a, b, p.shape.starts ? tensor_at(&p.start) : NULL, false,
                                     tensor_at(&p.out), workspace, stream));
        check_cuda(cudaStreamSynchronize(stream));
        if (i == 0) accept_product(&p, count == 3 ? 0x1p-20 : 0x1p-14, label);
        tensor_check(&p.out, label);
        send_bytes(p.out.device, before, p.out.bytes);
    }
    rcvi_split_gemm_free(parts);
    cudaFree(a);
    cudaFree(b);
    free(before);
    free_problem(&p);
}

static void test_parts(void **state) {
    (void)state;
    static const int gaps[] = {0, 3, 8};
    static const int64_t large[] = {132, 260, 516}, cut[] = {260, 516, 1028}, deep[] = {64, 72, 6400};
    for (unsigned i = 0; i < 2 * 2 * 8 * SIZES; i++) {
        const int64_t *size = sizes[i / 32];
        check_parts(size, i % 8, gaps[i % 3], i & 16 ? 3 : 2, i & 8);
    }
    for (unsigned variant = 0; variant < 8; variant++) {
        check_parts(large, variant, ROUNDED, 3, variant % 2);
        check_parts(deep, variant, 0, 3, variant / 2 % 2);
    }
    for (unsigned variant = 16; variant < 20; variant++) check_parts(deep, variant, 0, 3, false);
    check_parts(cut, 1, ROUNDED, 3, false);
    check_parts(cut, 2, ROUNDED, 3, true);
}

/* What a sum is off by, relative to its size: the root of the mean of squares. */
static double error_of(const problem *p) {
    const rcvi_cuda_gemm_shape *s = &p->shape;
    float *got = tensor_read(&p->out);
    double errors = 0, sums = 0;
    for (int64_t n = 0; n < s->rows * s->columns; n++) {
        int64_t r = n / s->columns, c = n % s->columns;
        double sum = 0;
        for (int64_t k = 0; k < s->depth; k++) sum += tensor_get(&p->a, k, r) * tensor_get(&p->b, k, c);
        double error = (double)got[p->out.first + r * p->out.row + c] - sum;
        errors += error * error;
        sums += sum * sum;
    }
    free(got);
    return sqrt(errors / sums);
}

/* Gradients' sums are deep; tensor cores are taken to cut sums off, and not to round them. */
static void test_depth(void **state) {
    (void)state;
    static const int64_t depths[] = {512, 2048, 6400};
    for (int i = 0; i < 3; i++) {
        problem p = make_problem(0, (const int64_t[]){64, 64, depths[i]}, 1, 0, 1);
        rcvi_cuda_gemm *gemm = NULL;
        void *a = NULL, *b = NULL;
        double errors[RCVI_MAX_SPLIT + 1];
        check_ok(rcvi_cuda_gemm_new(blas, &p.shape, 0, &gemm));
        run(gemm, &p);
        errors[1] = error_of(&p);
        rcvi_cuda_gemm_free(gemm);
        for (int count = 2; count <= RCVI_MAX_SPLIT; count++) {
            rcvi_split_gemm *parts = NULL;
            check_ok(rcvi_split_gemm_new(context, blas, &p.shape, count, false, 0, &parts));
            check_cuda(cudaMalloc(&a, rcvi_split_gemm_bytes_a(parts)));
            check_cuda(cudaMalloc(&b, rcvi_split_gemm_bytes_b(parts)));
            check_ok(rcvi_split_gemm_split_a(parts, 0, tensor_at(&p.a), a, stream));
            check_ok(rcvi_split_gemm_split_b(parts, 0, tensor_at(&p.b), b, stream));
            check_ok(rcvi_split_gemm_run(parts, 0, a, b, NULL, false, tensor_at(&p.out), workspace, stream));
            check_cuda(cudaStreamSynchronize(stream));
            errors[count] = error_of(&p);
            rcvi_split_gemm_free(parts);
            cudaFree(a);
            cudaFree(b);
        }
        print_message("depth %d: sums of float32 are off by %.1e, in two parts %.1e, in three %.1e\n", (int)depths[i],
                      errors[1], errors[2], errors[3]);
        assert_true(errors[3] <= 1e-5 && errors[2] <= 2e-5);
        free_problem(&p);
    }
}

/* Aligned strides, but operands that begin off their alignment. */
static void test_offset(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        problem p = make_problem(kind, (const int64_t[]){64, 64, 64}, 2, 0, 1);
        tensor shifted = tensor_new(p.a.type, 64, 64, 64, 1, 1, NULL);
        for (int64_t r = 0; r < 64; r++) {
            for (int64_t c = 0; c < 64; c++) tensor_set(&shifted, r, c, tensor_get(&p.a, r, c));
        }
        send_bytes(shifted.device, shifted.host, shifted.bytes);
        tensor_free(&p.a);
        p.a = shifted;
        rcvi_cuda_gemm *gemm = NULL;
        check_ok(rcvi_cuda_gemm_new(blas, &p.shape, 0, &gemm));
        check_product(gemm, &p, kinds[kind].error, "a product of what is not aligned");
        rcvi_cuda_gemm_free(gemm);
        free_problem(&p);
    }
}

/* Every algorithm that is offered is right, and there is an end to them. */
static void test_choices(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        int choice = 0;
        for (;; choice++) {
            problem p = make_problem(kind, (const int64_t[]){64, 96, 520}, 2, 0, 1);
            rcvi_cuda_gemm *gemm = NULL;
            rcv_status status = rcvi_cuda_gemm_new(blas, &p.shape, choice, &gemm);
            if (status == RCV_OK) check_product(gemm, &p, kinds[kind].error, "a choice");
            rcvi_cuda_gemm_free(gemm);
            free_problem(&p);
            if (status == RCV_OK) continue;
            assert_int_equal(status, RCV_UNSUPPORTED);
            assert_non_null(strstr(rcv_message(), "[64, 520] and [520, 96] transposed"));
            break;
        }
        assert_true(choice > 0);
    }
}

static void test_tune(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        problem p = make_problem(kind, (const int64_t[]){64, 256, 128}, kind % 2 ? 2 : 4, 8, 1 + kind % 2);
        rcvi_cuda_gemm *gemm = NULL;
        check_ok(rcvi_cuda_gemm_tune(blas, &p.shape, 6, 0.2, &gemm));
        check_product(gemm, &p, kinds[kind].error, "a tuned product");
        rcvi_cuda_gemm_free(gemm);
        free_problem(&p);
    }
}

/* Without depth there is nothing to add. */
static void test_empty(void **state) {
    (void)state;
    for (unsigned variant = 0; variant < 16; variant += 4) {
        problem p = make_problem(3, (const int64_t[]){5, 7, 1}, variant, 3, 2);
        p.shape.depth = 0;
        rcvi_cuda_gemm *gemm = NULL;
        check_ok(rcvi_cuda_gemm_new(blas, &p.shape, 0, &gemm));
        check_product(gemm, &p, 0, "a product of depth 0");
        rcvi_cuda_gemm_free(gemm);
        free_problem(&p);
    }
}

static void test_refusals(void **state) {
    (void)state;
    problem p = make_problem(0, (const int64_t[]){5, 7, 9}, 0, 0, 1);
    rcvi_cuda_gemm *gemm = NULL;
    p.shape.row_a = 8; /* rows of 9 elements */
    check_fails(rcvi_cuda_gemm_new(blas, &p.shape, 0, &gemm), RCV_UNSUPPORTED, "[5, 9] and [9, 7]");
    assert_null(gemm);
    free_problem(&p);
}

static int set_up(void **state) {
    (void)state;
    source.state = 977;
    context = test_context(&allocator);
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check_cuda(cudaMalloc(&workspace, RCVI_GEMM_WORKSPACE));
    check_ok(rcvi_cuda_blas_new(context, &blas));
    print_message("%s\n", rcvi_cuda_blas_name());
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    rcvi_cuda_blas_free(blas);
    cudaFree(workspace);
    cudaStreamDestroy(stream);
    test_context_end(&allocator, context);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products), cmocka_unit_test(test_offset), cmocka_unit_test(test_choices),
        cmocka_unit_test(test_tune),     cmocka_unit_test(test_empty),  cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_starts),   cmocka_unit_test(test_cut),    cmocka_unit_test(test_store),
        cmocka_unit_test(test_parts),    cmocka_unit_test(test_depth),  cmocka_unit_test(test_padded),
        cmocka_unit_test(test_aside),    cmocka_unit_test(test_copied),
    };
    if (!has_gpu()) {
        printf("skipped: no GPU\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
