/* Template of the reference product. Included once per float type, with REAL and GEMM defined; no include guard on purpose.
 *
 * Sums are small arrays of fixed size, which compilers keep in vector registers; their size is a compromise between machines of 16
 * and of 32 registers. */

enum { LANES = 16 / sizeof(REAL), TILE_ROWS = 2, TILE_COLUMNS = 4, PANEL = 8 * LANES };

/* A tile of dot products: rows of A with rows of B. Each sum has LANES partial sums, which are added in order at the end. */
static void compute_dot_tile(int64_t rows, int64_t columns, int64_t k, const REAL *a, int64_t lda, const REAL *b,
                             int64_t ldb, bool accumulate, REAL *c, int64_t ldc) {
    REAL sums[TILE_ROWS][TILE_COLUMNS][LANES] = {{{0}}};
    int64_t p = 0;
    if (rows == TILE_ROWS && columns == TILE_COLUMNS) {
        for (; p + LANES <= k; p += LANES) {
            for (int i = 0; i < TILE_ROWS; i++) {
                for (int j = 0; j < TILE_COLUMNS; j++) {
                    for (int l = 0; l < LANES; l++) sums[i][j][l] += a[i * lda + p + l] * b[j * ldb + p + l];
                }
            }
        }
    }
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) {
            REAL *lanes = sums[i][j];
            for (int64_t q = p; q + LANES <= k; q += LANES) {
                for (int l = 0; l < LANES; l++) lanes[l] += a[i * lda + q + l] * b[j * ldb + q + l];
            }
            REAL sum = 0;
            for (int l = 0; l < LANES; l++) sum += lanes[l];
            for (int64_t q = k / LANES * LANES; q < k; q++) sum += a[i * lda + q] * b[j * ldb + q];
            c[i * ldc + j] = accumulate ? c[i * ldc + j] + sum : sum;
        }
    }
}

/* Computes up to PANEL elements of a row of C: the sum over p, in order, of a[p * step] times row p of B. */
static void compute_panel(int64_t columns, int64_t k, const REAL *a, int64_t step, const REAL *b, int64_t ldb,
                          bool accumulate, REAL *c) {
    REAL sums[PANEL] = {0};
    if (columns == PANEL) {
        for (int64_t p = 0; p < k; p++) {
            REAL weight = a[p * step];
            for (int j = 0; j < PANEL; j++) sums[j] += weight * b[p * ldb + j];
        }
    } else {
        for (int64_t p = 0; p < k; p++) {
            REAL weight = a[p * step];
            for (int j = 0; j < columns; j++) sums[j] += weight * b[p * ldb + j];
        }
    }
    for (int j = 0; j < columns; j++) c[j] = accumulate ? c[j] + sums[j] : sums[j];
}

/* Computes a row of C with both operands transposed: rare, so not optimised. */
static void compute_row_strided(int64_t n, int64_t k, const REAL *a, int64_t step, const REAL *b, int64_t ldb,
                                bool accumulate, REAL *c) {
    for (int64_t j = 0; j < n; j++) {
        REAL sum = 0;
        for (int64_t p = 0; p < k; p++) sum += a[p * step] * b[j * ldb + p];
        c[j] = accumulate ? c[j] + sum : sum;
    }
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

void GEMM(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const REAL *a, int64_t lda,
          const REAL *b, int64_t ldb, bool accumulate, REAL *c, int64_t ldc) {
    if (transpose_b && !transpose_a) {
        for (int64_t i = 0; i < m; i += TILE_ROWS) {
            for (int64_t j = 0; j < n; j += TILE_COLUMNS) {
                compute_dot_tile(smaller(TILE_ROWS, m - i), smaller(TILE_COLUMNS, n - j), k, a + i * lda, lda,
                                 b + j * ldb, ldb, accumulate, c + i * ldc + j, ldc);
            }
        }
        return;
    }
    int64_t row = transpose_a ? 1 : lda, step = transpose_a ? lda : 1;
    for (int64_t i = 0; i < m; i++) {
        if (transpose_b) {
            compute_row_strided(n, k, a + i * row, step, b, ldb, accumulate, c + i * ldc);
            continue;
        }
        for (int64_t j = 0; j < n; j += PANEL) {
            compute_panel(smaller(PANEL, n - j), k, a + i * row, step, b + j, ldb, accumulate, c + i * ldc + j);
        }
    }
}
