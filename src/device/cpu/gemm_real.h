/* Included once per float type, with REAL and GEMM defined. No include guard on purpose. */

enum { LANES = 16 / sizeof(REAL), TILE_ROWS = 4, TILE_COLUMNS = 4, PANEL = 4 * LANES };

/* Dot products: rows of A with rows of B. Each sum has LANES partial sums, added up in order at the end. */
static void dot_tile(int64_t rows, int64_t columns, int64_t k, const REAL *a, int64_t lda, const REAL *b, int64_t ldb,
                     bool accumulate, REAL *c, int64_t ldc) {
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

/* Rows of B weighted by elements of A; element (i, p) of A is a[i * row + p * column]. Sums run over p in order. */
static void panel_tile(int64_t rows, int64_t columns, int64_t k, const REAL *a, int64_t row, int64_t column,
                       const REAL *b, int64_t ldb, bool accumulate, REAL *c, int64_t ldc) {
    REAL sums[TILE_ROWS][PANEL] = {{0}};
    if (rows == TILE_ROWS && columns == PANEL) {
        for (int64_t p = 0; p < k; p++) {
            for (int i = 0; i < TILE_ROWS; i++) {
                REAL weight = a[i * row + p * column];
                for (int j = 0; j < PANEL; j++) sums[i][j] += weight * b[p * ldb + j];
            }
        }
    } else {
        for (int64_t p = 0; p < k; p++) {
            for (int i = 0; i < rows; i++) {
                REAL weight = a[i * row + p * column];
                for (int j = 0; j < columns; j++) sums[i][j] += weight * b[p * ldb + j];
            }
        }
    }
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) c[i * ldc + j] = accumulate ? c[i * ldc + j] + sums[i][j] : sums[i][j];
    }
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

void GEMM(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const REAL *a, int64_t lda,
          const REAL *b, int64_t ldb, bool accumulate, REAL *c, int64_t ldc) {
    int64_t row = transpose_a ? 1 : lda, column = transpose_a ? lda : 1;
    for (int64_t i = 0; i < m; i += TILE_ROWS) {
        int64_t rows = smaller(TILE_ROWS, m - i);
        if (transpose_b && !transpose_a) {
            for (int64_t j = 0; j < n; j += TILE_COLUMNS) {
                dot_tile(rows, smaller(TILE_COLUMNS, n - j), k, a + i * lda, lda, b + j * ldb, ldb, accumulate,
                         c + i * ldc + j, ldc);
            }
        } else if (!transpose_b) {
            for (int64_t j = 0; j < n; j += PANEL) {
                panel_tile(rows, smaller(PANEL, n - j), k, a + i * row, row, column, b + j, ldb, accumulate,
                           c + i * ldc + j, ldc);
            }
        } else {
            for (int64_t r = i; r < i + rows; r++) {
                for (int64_t j = 0; j < n; j++) {
                    REAL sum = 0;
                    for (int64_t p = 0; p < k; p++) sum += a[r * row + p * column] * b[j * ldb + p];
                    c[r * ldc + j] = accumulate ? c[r * ldc + j] + sum : sum;
                }
            }
        }
    }
}
