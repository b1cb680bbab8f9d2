/* The GPU's kernels against plain C: every type, odd shapes and strides, absent operands, rounded copies, and nothing touched but
 * the outputs. */
#include "cuda_tensor.h"

#include "base/random.h"

static random_source source;
static cudaStream_t stream;

static int64_t pick(const int *from, int count) { return from[random_below(&source, count)]; }
#define PICK(...) pick((const int[]){__VA_ARGS__}, (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)))

static rcvi_cuda_type pick_type(void) { return (rcvi_cuda_type)random_below(&source, 4); }

typedef struct {
    int64_t rows, columns;
} shape;

static shape pick_shape(void) {
    return (shape){PICK(1, 2, 3, 7, 8, 33, 40), PICK(1, 2, 3, 4, 7, 8, 16, 31, 32, 64, 100, 130, 256, 1024, 1500)};
}

/* Rows one after another, or with gaps that keep or lose their alignment. */
static tensor make(rcvi_cuda_type type, shape s, bool random) {
    int64_t gap = PICK(0, 0, 0, 1, 3, 4, 8), first = PICK(0, 0, 0, 1, 4, 8);
    return tensor_new(type, s.rows, s.columns, s.columns + gap, 1, first, random ? &source : NULL);
}

/* An operand, which may repeat one element a row. */
static tensor make_operand(rcvi_cuda_type type, shape s) {
    if (random_below(&source, 6)) return make(type, s, true);
    return tensor_new(type, s.rows, s.columns, PICK(1, 5), 0, PICK(0, 3), &source);
}

/* Where a result goes: to `out` and its rounded copy, of the same strides. */
typedef struct {
    tensor out, rounded;
    bool has_rounded;
} target;

static target make_target(rcvi_cuda_type type, shape s, bool random) {
    target made = {.out = make(type, s, random), .has_rounded = random_below(&source, 3) == 0};
    if (made.has_rounded)
        made.rounded = tensor_new(pick_type(), s.rows, s.columns, made.out.row, 1, made.out.first, NULL);
    return made;
}

static rcvi_matrix target_matrix(const target *t) {
    return tensor_matrix(&t->out, t->has_rounded ? &t->rounded : NULL);
}

static void target_set(target *t, int64_t r, int64_t c, double x) {
    tensor_set(&t->out, r, c, x);
    if (t->has_rounded) tensor_set(&t->rounded, r, c, x);
}

static void target_check(target *t, const char *label) {
    check_cuda(cudaStreamSynchronize(stream));
    tensor_check(&t->out, label);
    if (t->has_rounded) tensor_check(&t->rounded, label);
    tensor_free(&t->out);
    if (t->has_rounded) tensor_free(&t->rounded);
}

/* The same with zeros after every row, up to the next one, in half of all cases. */
static rcvi_matrix widen(target *t) {
    rcvi_matrix m = target_matrix(t);
    if (random_below(&source, 2)) return m;
    m.wide = t->out.row;
    for (int64_t r = 0; r < t->out.rows; r++) {
        for (int64_t c = t->out.columns; c < m.wide; c++) target_set(t, r, c, 0);
    }
    return m;
}

/* What is computed in. */
static double real(const target *out, rcvi_cuda_type operand, double x) {
    bool is_double =
        out->out.type == RCVI_F64 || (out->has_rounded && out->rounded.type == RCVI_F64) || operand == RCVI_F64;
    return is_double ? x : (double)(float)x;
}

/* ---- copies ---- */

static void copy_one(shape s, rcvi_cuda_type from, rcvi_cuda_type to) {
    target out = make_target(to, s, false);
    tensor a = make_operand(from, s);
    check_cuda(rcvi_cuda_copy(stream, s.rows, s.columns, widen(&out), tensor_matrix(&a, NULL)));
    for (int64_t r = 0; r < s.rows; r++) {
        for (int64_t c = 0; c < s.columns; c++) target_set(&out, r, c, tensor_get(&a, r, c));
    }
    target_check(&out, "copy");
    tensor_free(&a);
}

static void test_copy(void **state) {
    (void)state;
    for (int i = 0; i < 160; i++) copy_one(pick_shape(), (rcvi_cuda_type)(i % 4), (rcvi_cuda_type)(i / 4 % 4));
    copy_one((shape){600, 4096}, RCVI_F32, RCVI_BF16);
    copy_one((shape){2300, 1001}, RCVI_BF16, RCVI_F32);
    copy_one((shape){600, 4096}, RCVI_F32, RCVI_F32);
    copy_one((shape){2311, 1004}, RCVI_F32, RCVI_F32);
    copy_one((shape){700, 650}, RCVI_F32, RCVI_BF16);
}

/* An absent operand is zeros; an absent output is not written; rows that are their own operand stay. */
static void test_copy_absent(void **state) {
    (void)state;
    for (int i = 0; i < 24; i++) {
        shape s = pick_shape();
        target out = make_target((rcvi_cuda_type)(i % 4), s, false);
        check_cuda(rcvi_cuda_copy(stream, s.rows, s.columns, target_matrix(&out), tensor_matrix(NULL, NULL)));
        for (int64_t r = 0; r < s.rows; r++) {
            for (int64_t c = 0; c < s.columns; c++) target_set(&out, r, c, 0);
        }
        target_check(&out, "copy of nothing");

        target same = make_target((rcvi_cuda_type)(i % 4), s, true);
        rcvi_matrix view = target_matrix(&same), operand = view;
        operand.rounded = NULL;
        check_cuda(rcvi_cuda_copy(stream, s.rows, s.columns, view, operand));
        check_cuda(rcvi_cuda_copy(stream, s.rows, s.columns, tensor_matrix(NULL, NULL), operand));
        check_cuda(rcvi_cuda_copy(stream, 0, s.columns, view, operand));
        for (int64_t r = 0; r < s.rows; r++) {
            for (int64_t c = 0; c < s.columns; c++) target_set(&same, r, c, tensor_get(&same.out, r, c));
        }
        target_check(&same, "copy in place");
    }
}

/* Rows more than 2^31 elements apart. */
static void test_copy_far(void **state) {
    (void)state;
    int64_t row = (INT64_C(1) << 31) + 3;
    uint16_t numbers[] = {0x3f80, 0xc000, 0x4040}, got[6] = {0};
    void *far = NULL, *near = NULL;
    if (cudaMalloc(&far, (size_t)(row + 3) * 2) != cudaSuccess) {
        (void)cudaGetLastError();
        skip();
    }
    check_cuda(cudaMalloc(&near, sizeof got));
    check_cuda(cudaMemset(far, 0, 6));
    send_bytes((char *)far + (size_t)row * 2, numbers, sizeof numbers);
    rcvi_matrix a = {.at = far, .row = row, .column = 1, .type = RCVI_BF16},
                out = {.at = near, .row = 3, .column = 1, .type = RCVI_BF16};
    check_cuda(rcvi_cuda_copy(stream, 2, 3, out, a));
    check_cuda(cudaStreamSynchronize(stream));
    check_cuda(cudaMemcpy(got, near, sizeof got, cudaMemcpyDeviceToHost));
    assert_memory_equal(got + 3, numbers, sizeof numbers);
    check_cuda(cudaFree(far));
    check_cuda(cudaFree(near));
}

static void test_fill(void **state) {
    (void)state;
    for (int i = 0; i < 40; i++) {
        shape s = i == 39 ? (shape){1100, 2048} : pick_shape();
        double number = i % 3 ? random_between(&source, -3, 3) : 0;
        target out = make_target((rcvi_cuda_type)(i % 4), s, false);
        check_cuda(rcvi_cuda_fill(stream, s.rows, s.columns, target_matrix(&out), number));
        for (int64_t r = 0; r < s.rows; r++) {
            for (int64_t c = 0; c < s.columns; c++) target_set(&out, r, c, real(&out, RCVI_F32, number));
        }
        target_check(&out, "fill");
    }
}

/* Floats by twos and by ones, stored or added. */
static void test_bring(void **state) {
    (void)state;
    static const shape shapes[] = {{1, 1}, {7, 650}, {33, 650}, {70, 651}, {2600, 66}, {5, 2}};
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes) * 4; i++) {
        shape s = shapes[i / 4];
        bool add = i % 2;
        tensor a = tensor_new(RCVI_F32, s.rows, s.columns, (s.columns + 7) / 8 * 8, 1, 0, &source);
        tensor out = tensor_new(RCVI_F32, s.rows, s.columns, s.columns, 1, i / 2 % 2, &source);
        check_cuda(
            rcvi_cuda_store_or_add(stream, s.rows, s.columns, add, tensor_at(&out), out.row, tensor_at(&a), a.row));
        check_cuda(cudaStreamSynchronize(stream));
        for (int64_t r = 0; r < s.rows; r++) {
            for (int64_t c = 0; c < s.columns; c++)
                tensor_set(&out, r, c, tensor_get(&a, r, c) + (add ? tensor_get(&out, r, c) : 0));
        }
        tensor_check(&out, "floats that are brought");
        tensor_free(&a);
        tensor_free(&out);
    }
}

/* Several matrices at once, of any types: copied or transposed, and widened. */
static void test_move(void **state) {
    (void)state;
    for (int i = 0; i < 40; i++) {
        rcvi_move moves[RCVI_MAX_MOVES];
        tensor a[RCVI_MAX_MOVES], out[RCVI_MAX_MOVES];
        int count = i % 4 ? 1 + (int)random_below(&source, RCVI_MAX_MOVES) : 1;
        for (int k = 0; k < count; k++) {
            shape s = k == 1 ? (shape){300, 200} : pick_shape(); /* [rows, columns] */
            bool transposed = (i + k) % 2, absent = (i + k) % 20 == 19, widened = k % 3 > 0;
            int64_t wide = widened ? (s.columns + 7) / 8 * 8 + PICK(0, 0, 8) : s.columns;
            a[k] = make_operand(pick_type(), transposed ? (shape){s.columns, s.rows} : s);
            out[k] = tensor_new((rcvi_cuda_type)((i + k) / 2 % 4), s.rows, wide, wide, 1, 0, NULL);
            moves[k] = (rcvi_move){s.rows,
                                   s.columns,
                                   wide,
                                   transposed,
                                   tensor_matrix(&out[k], NULL),
                                   tensor_matrix(absent ? NULL : &a[k], NULL)};
            for (int64_t r = 0; r < s.rows; r++) {
                for (int64_t c = 0; c < wide; c++)
                    tensor_set(&out[k], r, c,
                               c >= s.columns || absent ? 0
                               : transposed             ? tensor_get(&a[k], c, r)
                                                        : tensor_get(&a[k], r, c));
            }
        }
        check_cuda(rcvi_cuda_move(stream, moves, count));
        check_cuda(cudaStreamSynchronize(stream));
        for (int k = 0; k < count; k++) {
            tensor_check(&out[k], moves[k].transposed ? "transposed" : "moved");
            tensor_free(&out[k]);
            tensor_free(&a[k]);
        }
    }
}

/* Where row r of a matrix lies whose rows come in another order: `of` NULL: at r. */
static int64_t place(const int64_t *of, int64_t batch, int64_t r) { return of ? r / batch * batch + of[r % batch] : r; }

/* Rows that go by twos, by ones, and by fours on one side only; with a rounded copy; in another order on either side. All in one launch. */
static void test_move_odd(void **state) {
    (void)state;
    enum { BATCH = 13, ORDERED_A = 1, ORDERED_OUT = 2, ROUNDED = 4 };
    static const int64_t of[BATCH] = {5, 3, 12, 0, 7, 1, 9, 11, 2, 4, 10, 6, 8};
    static const struct {
        int64_t rows, columns, wide;
        rcvi_cuda_type from, to;
        bool transposed;
        int how;
    } cases[] = {
        {650, 650, 656, RCVI_F32, RCVI_BF16, false, 0},
        {650, 650, 656, RCVI_F32, RCVI_BF16, true, 0},
        {130, 650, 650, RCVI_F32, RCVI_F32, false, ROUNDED},
        {90, 651, 656, RCVI_F32, RCVI_BF16, false, 0},
        {651, 90, 96, RCVI_F32, RCVI_F16, true, ROUNDED},
        {70, 66, 66, RCVI_F32, RCVI_BF16, true, 0},
        {129, 64, 64, RCVI_BF16, RCVI_F32, true, 0},
        {65, 258, 264, RCVI_F16, RCVI_F16, false, 0},
        {3 * BATCH, 70, 70, RCVI_F32, RCVI_F32, false, ORDERED_A},
        {2 * BATCH, 64, 64, RCVI_F32, RCVI_F32, false, ORDERED_OUT | ROUNDED},
        {6 * BATCH, 3 * BATCH, 40, RCVI_F32, RCVI_BF16, true, ORDERED_A | ORDERED_OUT},
        {66, 30, 30, RCVI_F64, RCVI_F32, false, 0},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    for (int last = 0; last < 2; last++) { /* with the last one all is computed in double */
        int count = CASES - 1 + last;
        rcvi_move moves[CASES];
        tensor a[CASES], out[CASES], rounded[CASES];
        int64_t *order = NULL;
        check_cuda(cudaMalloc((void **)&order, sizeof of));
        send_bytes(order, of, sizeof of);
        for (int k = 0; k < count; k++) {
            int64_t rows = cases[k].rows, columns = cases[k].columns, wide = cases[k].wide;
            bool transposed = cases[k].transposed, has_rounded = cases[k].how & ROUNDED;
            const int64_t *from = cases[k].how & ORDERED_A ? of : NULL, *to = cases[k].how & ORDERED_OUT ? of : NULL;
            int64_t length = transposed ? rows : columns;
            a[k] = tensor_new(cases[k].from, transposed ? columns : rows, length, length, 1, 0, &source);
            out[k] = tensor_new(cases[k].to, rows, wide, wide, 1, 0, NULL);
            rounded[k] = tensor_new(RCVI_BF16, rows, wide, wide, 1, 0, NULL);
            moves[k] = (rcvi_move){rows,
                                   columns,
                                   wide,
                                   transposed,
                                   tensor_matrix(&out[k], has_rounded ? &rounded[k] : NULL),
                                   tensor_matrix(&a[k], NULL)};
            moves[k].a.order = (rcvi_order){from ? order : NULL, BATCH, 0};
            moves[k].out.order = (rcvi_order){to ? order : NULL, BATCH, 0};
            for (int64_t r = 0; r < rows; r++) {
                for (int64_t c = 0; c < wide; c++) {
                    double x = c >= columns ? 0
                               : transposed ? tensor_get(&a[k], place(from, BATCH, c), r)
                                            : tensor_get(&a[k], place(from, BATCH, r), c);
                    tensor_set(&out[k], place(to, BATCH, r), c, x);
                    if (has_rounded) tensor_set(&rounded[k], place(to, BATCH, r), c, x);
                }
            }
        }
        check_cuda(rcvi_cuda_move(stream, moves, count));
        check_cuda(cudaStreamSynchronize(stream));
        for (int k = 0; k < count; k++) {
            tensor_check(&out[k], "moved by other widths");
            tensor_check(&rounded[k], "a rounded copy that is moved");
            tensor_free(&out[k]);
            tensor_free(&rounded[k]);
            tensor_free(&a[k]);
        }
        moves[0].a.order = (rcvi_order){order, BATCH, 0};
        moves[1].a.order = (rcvi_order){order, BATCH + 1, 0};
        assert_int_equal(rcvi_cuda_move(stream, moves, 2), cudaErrorInvalidValue);
        check_cuda(cudaFree(order));
    }
}

/* ---- choices ---- */

static void *send(const void *values, size_t bytes) {
    void *device = NULL;
    check_cuda(cudaMalloc(&device, bytes ? bytes : 1));
    send_bytes(device, values, bytes);
    return device;
}

static void test_select(void **state) {
    (void)state;
    for (int i = 0; i < 120; i++) {
        shape s = pick_shape();
        uint8_t mask[80];
        int64_t mask_row = 1 + i % 2;
        for (int64_t r = 0; r < 80; r++)
            mask[r] = (uint8_t)(random_below(&source, 2) * (1 + random_below(&source, 255)));
        uint8_t *on_device = send(mask, sizeof mask);
        target out = make_target((rcvi_cuda_type)(i % 4), s, true);
        tensor a = make_operand(pick_type(), s), b = make_operand(pick_type(), s);
        /* each of the operands: given, absent, or where the result goes */
        rcvi_matrix view = widen(&out), in_place = view;
        in_place.rounded = NULL;
        int first = i / 4 % 3, second = i / 12 % 3;
        rcvi_matrix from_a = first == 1 ? tensor_matrix(NULL, NULL) : first ? in_place : tensor_matrix(&a, NULL);
        rcvi_matrix from_b = second == 1 ? tensor_matrix(NULL, NULL) : second ? in_place : tensor_matrix(&b, NULL);
        check_cuda(rcvi_cuda_select(stream, s.rows, s.columns, on_device, mask_row, view, from_a, from_b));
        for (int64_t r = 0; r < s.rows; r++) {
            int kind = mask[r * mask_row] ? first : second;
            const tensor *from = kind == 2 ? &out.out : mask[r * mask_row] ? &a : &b;
            for (int64_t c = 0; c < s.columns; c++) target_set(&out, r, c, kind == 1 ? 0 : tensor_get(from, r, c));
        }
        target_check(&out, "select");
        tensor_free(&a);
        tensor_free(&b);
        check_cuda(cudaFree(on_device));
    }
}

static void test_dropout(void **state) {
    (void)state;
    for (int i = 0; i < 60; i++) {
        shape s = i == 59 ? (shape){1030, 2048} : pick_shape();
        double probability = i % 7 ? random_between(&source, 0, 1) : 0.5;
        uint64_t seed = random_bits(&source), salt = random_bits(&source) >> (i % 2 ? 0 : 60);
        uint64_t *on_device = send(&seed, sizeof seed);
        target out = make_target((rcvi_cuda_type)(i % 4), s, false);
        tensor a = make(i % 3 ? out.out.type : pick_type(), s, true);
        bool mask = i % 5 == 4; /* alone */
        int64_t batch = 1 + random_below(&source, (int)s.rows), period = i % 4 == 3 ? batch : 0;
        rcvi_shard shard = {0}; /* a part of something larger every second time */
        if (i % 2) shard = (rcvi_shard){random_below(&source, 9), random_below(&source, 9), batch + 8 + i};
        check_cuda(rcvi_cuda_dropout(stream, s.rows, s.columns, probability, salt, period, batch, &shard, on_device,
                                     (rcvi_order){NULL, 1, 0}, widen(&out), tensor_matrix(mask ? NULL : &a, NULL)));
        double keep = 1 - probability;
        for (int64_t r = 0; r < s.rows; r++) {
            for (int64_t c = 0; c < s.columns; c++) {
                int64_t row = period ? shard.first + r % period : rcvi_shard_row(&shard, batch, r);
                uint64_t element = (uint64_t)(row * s.columns + c);
                bool kept = rcvi_hash_uniform(seed + salt * UINT64_C(0x9e3779b97f4a7c15), element) < keep;
                double value = mask ? 1 : real(&out, a.type, tensor_get(&a, r, c) / keep);
                target_set(&out, r, c, kept ? value : 0);
            }
        }
        target_check(&out, "dropout");
        tensor_free(&a);
        check_cuda(cudaFree(on_device));
    }
}

static void test_masks(void **state) {
    (void)state;
    for (int i = 0; i < 12; i++) {
        enum { MOST = 40 * 130 };
        int64_t steps = PICK(1, 3, 40), batch = PICK(1, 5, 130), lengths[130];
        uint8_t resets[MOST], got[MOST + 130 + 8], want[MOST + 130 + 8];
        for (int64_t b = 0; b < batch; b++) lengths[b] = random_below(&source, (int)steps + 1);
        for (int k = 0; k < MOST; k++) resets[k] = (uint8_t)(random_below(&source, 3) ? 0 : 7);
        memset(want, 0xa5, sizeof want);
        int64_t *device_lengths = send(lengths, sizeof lengths);
        uint8_t *device_resets = send(resets, sizeof resets), *out = send(want, sizeof want);
        bool boundary = i % 3, ragged = i % 3 != 1;
        if (boundary)
            check_cuda(rcvi_cuda_mark_boundaries(stream, steps, batch, device_resets, (rcvi_order){NULL, batch, 0},
                                                 ragged ? device_lengths : NULL, out));
        else
            check_cuda(rcvi_cuda_mark_live(stream, steps, batch, device_lengths, out));
        for (int64_t t = 0; t < steps + boundary; t++) {
            for (int64_t b = 0; b < batch; b++)
                want[t * batch + b] = t < steps && (!ragged || t < lengths[b]) && (!boundary || resets[t * batch + b]);
        }
        check_cuda(cudaStreamSynchronize(stream));
        check_cuda(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
        assert_memory_equal(got, want, sizeof got);
        check_cuda(cudaFree(device_lengths));
        check_cuda(cudaFree(device_resets));
        check_cuda(cudaFree(out));
    }
}

static void test_put(void **state) {
    (void)state;
    enum { MOST = 1100 };
    static const int64_t counts[] = {0, 1, 447, 448, 449, 1097};
    int64_t values[MOST], got[MOST], want[MOST];
    for (int i = 0; i < MOST; i++) values[i] = (int64_t)random_bits(&source);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        memset(want, 0x5a, sizeof want);
        int64_t *out = send(want, sizeof want);
        memcpy(want, values, (size_t)counts[k] * sizeof *want);
        check_cuda(rcvi_cuda_send_values(stream, values, counts[k], out));
        check_cuda(cudaStreamSynchronize(stream));
        check_cuda(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
        assert_memory_equal(got, want, sizeof got);
        check_cuda(cudaFree(out));
    }
}

/* ---- sums ---- */

/* Sums of a's rows (or columns) into a tensor of one row (or column), checked; then again, from memory that is aligned
 * otherwise: the same bits. Sums over rows are made of two matrices at once, and of one for two places; those over columns once
 * more of the rows that are counted alone. */
static void reduce_one(shape s, bool over_rows, bool accumulate, rcvi_cuda_type type, rcvi_cuda_type to, bool absent) {
    tensor a = make(type, s, true), shifted = tensor_new(type, s.rows, s.columns, s.columns + 1, 1, 1, NULL);
    int64_t count = over_rows ? s.columns : s.rows, need = 2 * rcvi_cuda_reduce_rows_scratch(s.rows, s.columns);
    tensor out = over_rows ? tensor_new(to, 1, count, count, 1, PICK(0, 1), accumulate ? &source : NULL)
                           : tensor_new(to, count, 1, PICK(1, 3), 1, PICK(0, 1), accumulate ? &source : NULL);
    tensor rounded = tensor_new(RCVI_BF16, out.rows, out.columns, out.row, 1, out.first, NULL), again = out,
           other = out, second = out;
    size_t unit = type == RCVI_F64 ? 8 : 4;
    char *scratch = NULL, zone[64], found[64];
    int64_t half = s.rows / 2, *counted = send(&half, sizeof half);
    memset(zone, 0x77, sizeof zone);
    for (int64_t r = 0; r < s.rows; r++) {
        for (int64_t c = 0; c < s.columns; c++) tensor_set(&shifted, r, c, tensor_get(&a, r, c));
    }
    send_bytes(shifted.device, shifted.host, shifted.bytes);
    check_cuda(cudaMalloc((void **)&scratch, (size_t)need * unit + sizeof zone));
    send_bytes(scratch + (size_t)need * unit, zone, sizeof zone);
    again.device = send(out.host, out.bytes);
    other.device = send(out.host, out.bytes);
    second.device = send(out.host, out.bytes);
    other.host = malloc(out.bytes);
    memcpy(other.host, out.host, out.bytes);
    for (int turn = 0; turn < 2; turn++) {
        rcvi_matrix to_view = turn ? tensor_matrix(&again, NULL) : tensor_matrix(&out, &rounded);
        rcvi_matrix from = tensor_matrix(absent ? NULL : turn ? &shifted : &a, NULL);
        rcvi_sum sums[] = {
            {to_view, from},
            {tensor_matrix(turn && over_rows ? &second : &other, NULL), tensor_matrix(absent ? NULL : &shifted, NULL)}};
        if (over_rows)
            check_cuda(rcvi_cuda_reduce_rows(stream, s.rows, s.columns, accumulate, sums, 2, scratch));
        else
            check_cuda(rcvi_cuda_reduce_columns(stream, s.rows, NULL, s.columns, accumulate, to_view, from));
        if (!over_rows && turn)
            check_cuda(rcvi_cuda_reduce_columns(stream, s.rows, counted, s.columns, accumulate, sums[1].out, from));
    }
    check_cuda(cudaStreamSynchronize(stream));
    void *got = tensor_read(&out), *got_rounded = tensor_read(&rounded);
    for (int64_t i = 0; i < count; i++) {
        int64_t r = over_rows ? 0 : i, c = over_rows ? i : 0;
        double sum = 0, size = 0, old = accumulate ? tensor_get(&out, r, c) : 0;
        for (int64_t k = 0; k < (over_rows ? s.rows : s.columns) && !absent; k++) {
            double x = over_rows ? tensor_get(&a, k, i) : tensor_get(&a, i, k);
            sum += x;
            size += fabs(x);
        }
        double error = (size + fabs(old)) * (type == RCVI_F64 && to == RCVI_F64 ? 0x1p-47 : 0x1p-18);
        tensor_accept(&out, got, r, c, old + sum, error, over_rows ? "sum over rows" : "sum over columns");
        tensor_accept(&rounded, got_rounded, r, c, old + sum, error, "rounded copy of a sum");
        if (over_rows || i < half) tensor_set(&other, r, c, tensor_get(&out, r, c));
    }
    again.host = second.host = out.host;
    tensor_check(&out, "sum");
    if (over_rows) tensor_check(&second, "sum for a second place");
    tensor_check(&rounded, "rounded copy of a sum");
    tensor_check(&again, "sum of what is aligned otherwise");
    tensor_check(&other, over_rows ? "sum of a second matrix" : "sum of the rows that are counted");
    check_cuda(cudaMemcpy(found, scratch + (size_t)need * unit, sizeof found, cudaMemcpyDeviceToHost));
    assert_memory_equal(found, zone, sizeof zone);
    check_cuda(cudaFree(scratch));
    check_cuda(cudaFree(again.device));
    check_cuda(cudaFree(second.device));
    check_cuda(cudaFree(counted));
    tensor_free(&other);
    free(got);
    free(got_rounded);
    tensor_free(&a);
    tensor_free(&shifted);
    tensor_free(&out);
    tensor_free(&rounded);
}

static void test_reduce(void **state) {
    (void)state;
    for (int i = 0; i < 128; i++) {
        shape s = pick_shape();
        if (i % 4 == 0) s.rows = PICK(127, 128, 129, 500, 1200);
        reduce_one(s, i % 2, i / 2 % 2, (rcvi_cuda_type)(i / 4 % 4), (rcvi_cuda_type)(i / 16 % 4), i % 32 == 31);
    }
    reduce_one((shape){6400, 512}, true, true, RCVI_BF16, RCVI_F32, false);
    reduce_one((shape){3000, 300}, true, false, RCVI_F32, RCVI_F32, false);
    reduce_one((shape){100, 2048}, true, true, RCVI_BF16, RCVI_F32, false);
    reduce_one((shape){700, 2600}, true, false, RCVI_BF16, RCVI_F32, false);
    reduce_one((shape){700, 2602}, true, true, RCVI_F16, RCVI_F32, false);
    reduce_one((shape){12, 40000}, false, false, RCVI_F16, RCVI_F32, false);
    reduce_one((shape){20000, 3}, true, false, RCVI_F64, RCVI_F64, false);
}

static int set_up(void **state) {
    (void)state;
    source.state = 20240607;
    return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess;
}

static int tear_down(void **state) {
    (void)state;
    return cudaStreamDestroy(stream) != cudaSuccess;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy),    cmocka_unit_test(test_copy_absent), cmocka_unit_test(test_copy_far),
        cmocka_unit_test(test_fill),    cmocka_unit_test(test_move),        cmocka_unit_test(test_select),
        cmocka_unit_test(test_dropout), cmocka_unit_test(test_masks),       cmocka_unit_test(test_put),
        cmocka_unit_test(test_reduce),  cmocka_unit_test(test_move_odd),    cmocka_unit_test(test_bring),
    };
    if (!has_gpu()) {
        printf("skipped: no GPU\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
