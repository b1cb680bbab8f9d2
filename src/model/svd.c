/* Singular values by one-sided Jacobi rotations.
 *
 * B is A, or A^T where A has more columns than rows: [m, n] with m >= n. Its columns are contiguous.
 *   1. B = Q R by Householder reflections.
 *   2. L = R^T [n, n]. Rotations make its columns orthogonal: L J = W. With the lengths S of the columns and W = X S, B = (Q J) S X^T.
 *   3. Singular values are sorted; columns of X for those that are zero are completed to an orthonormal basis.
 * A column of L and the column of J that belongs to it lie in one array, so that a rotation is one loop. */
#include "model/svd.h"

#include "base/base.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LANES = 8,   /* partial sums of a dot product: its order does not depend on the compiler */
    GROUP = 8,   /* columns to which a reflection is applied while they are in the cache */
    BLOCK = 32,  /* columns of a block; the pairs of two blocks are rotated while they are in the cache */
    SWEEPS = 60, /* over all pairs, at most; 6 to 12 are usual */
};

/* Columns with a smaller squared length are zero: products of their elements lose digits. The largest element of the matrix is 1 to 2. */
static const double NEGLIGIBLE = 1e-280;

typedef struct {
    int64_t m, n;
    double *b;    /* [n][m] columns of B; then the reflections, whose first k elements are not used */
    double *beta; /* [n] a reflection is I - beta v v^T */
    double *pair; /* [n][2 n] column of L, then of W and X; column of J */
    double **at;  /* [n] into `pair`: the order of the columns */
    double *square,
        *length;    /* [n] squared lengths while columns are rotated, then the singular values; by place in `at` */
    double *column; /* [GROUP][m] */
    double scale;   /* by which the matrix was divided: a power of two */
} decomposition;

static double dot(const double *a, const double *b, int64_t count) {
    double sums[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int k = 0; k < LANES; k++) sums[k] += a[i + k] * b[i + k];
    for (; i < count; i++) sum += a[i] * b[i];
    for (int k = 0; k < LANES; k++) sum += sums[k];
    return sum;
}

static void add_scaled(double *restrict to, const double *restrict from, double factor, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] += factor * from[i];
}

static void rotate(double *restrict a, double *restrict b, double cosine, double sine, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        double x = a[i], y = b[i];
        a[i] = cosine * x - sine * y;
        b[i] = sine * x + cosine * y;
    }
}

/* ---- 1. reflections ---- */

/* Applies reflection k to the elements k .. m - 1 of a column. */
static void reflect(const decomposition *d, int64_t k, double *column) {
    const double *v = d->b + k * d->m;
    double factor = -d->beta[k] * dot(v + k, column + k, d->m - k);
    if (factor != 0) add_scaled(column + k, v + k, factor, d->m - k);
}

/* Makes reflection k of column k; returns R[k, k]. */
static double make_reflection(decomposition *d, int64_t k) {
    double *v = d->b + k * d->m;
    double rest = dot(v + k + 1, v + k + 1, d->m - k - 1), head = v[k];
    if (rest == 0 || head * head + rest < NEGLIGIBLE) {
        d->beta[k] = 0;
        return head;
    }
    double length = sqrt(head * head + rest);
    double diagonal = head > 0 ? -length : length;
    v[k] = head - diagonal;
    d->beta[k] = 2 / (v[k] * v[k] + rest);
    return diagonal;
}

/* Column j of R is row j of L. Groups of columns: the reflections before a group are applied to all of its columns, one after the other. */
static void factor(decomposition *d) {
    for (int64_t first = 0; first < d->n; first += GROUP) {
        int64_t end = first + GROUP < d->n ? first + GROUP : d->n;
        for (int64_t k = 0; k < first; k++)
            for (int64_t j = first; j < end; j++) reflect(d, k, d->b + j * d->m);
        for (int64_t j = first; j < end; j++) {
            double *column = d->b + j * d->m;
            for (int64_t k = first; k < j; k++) reflect(d, k, column);
            for (int64_t i = 0; i < j; i++) d->at[i][j] = column[i];
            d->at[j][j] = make_reflection(d, j);
        }
    }
}

/* ---- 2. rotations ---- */

typedef struct {
    const decomposition *d;
    int64_t place;
} ordered;

static int compare_lengths(const void *a, const void *b) {
    const ordered *x = a, *y = b;
    double p = x->d->square[x->place], q = y->d->square[y->place];
    return p != q ? (p < q ? 1 : -1) : (x->place > y->place) - (x->place < y->place);
}

/* Sorts the columns by their lengths, the longest first. order: [n] */
static void sort_columns(decomposition *d, ordered *order) {
    double **before = (double **)(void *)d->column; /* [n] pointers: m >= n */
    for (int64_t j = 0; j < d->n; j++) order[j] = (ordered){d, j};
    qsort(order, (size_t)d->n, sizeof *order, compare_lengths);
    memcpy(before, d->at, (size_t)d->n * sizeof *before);
    for (int64_t j = 0; j < d->n; j++) {
        d->at[j] = before[order[j].place];
        d->length[j] = d->square[order[j].place];
    }
    memcpy(d->square, d->length, (size_t)d->n * sizeof *d->square);
}

/* Makes two columns orthogonal; false if they were. */
static bool rotate_pair(decomposition *d, int64_t p, int64_t q, double tolerance) {
    double a = d->square[p], b = d->square[q];
    if (a < NEGLIGIBLE || b < NEGLIGIBLE) return false;
    double product = dot(d->at[p], d->at[q], d->n);
    if (fabs(product) <= tolerance * sqrt(a) * sqrt(b)) return false;
    double zeta = (b - a) / (2 * product);
    double tangent = (zeta >= 0 ? 1 : -1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    if (fabs(zeta) > 1e150) tangent = 0.5 / zeta; /* its square would overflow */
    double cosine = 1 / sqrt(1 + tangent * tangent);
    rotate(d->at[p], d->at[q], cosine, cosine * tangent, 2 * d->n);
    d->square[p] = fmax(a - tangent * product, 0);
    d->square[q] = fmax(b + tangent * product, 0);
    return true;
}

/* All pairs, block by block. */
static bool sweep(decomposition *d, double tolerance) {
    bool rotated = false;
    for (int64_t i = 0; i < d->n; i += BLOCK) {
        for (int64_t j = i; j < d->n; j += BLOCK) {
            for (int64_t p = i; p < i + BLOCK && p < d->n; p++)
                for (int64_t q = j > p ? j : p + 1; q < j + BLOCK && q < d->n; q++)
                    rotated |= rotate_pair(d, p, q, tolerance);
        }
    }
    return rotated;
}

/* False if the columns are not orthogonal after SWEEPS sweeps. */
static bool rotate_all(decomposition *d, ordered *order) {
    double tolerance = DBL_EPSILON * sqrt((double)d->n);
    bool rotated = true;
    for (int i = 0; i < SWEEPS && rotated; i++) {
        for (int64_t j = 0; j < d->n; j++) d->square[j] = dot(d->at[j], d->at[j], d->n);
        sort_columns(d, order);
        rotated = sweep(d, tolerance);
    }
    for (int64_t j = 0; j < d->n; j++) d->square[j] = dot(d->at[j], d->at[j], d->n);
    sort_columns(d, order);
    return !rotated;
}

/* ---- 3. vectors ---- */

/* Makes column j of X orthogonal to the columns before it, from the unit vector that is furthest from them. */
static void complete(decomposition *d, int64_t j) {
    double *column = d->at[j],
           *left = d->column; /* [n] what the columns before leave of each unit vector's squared length */
    int64_t best = 0;
    for (int64_t i = 0; i < d->n; i++) left[i] = 1;
    for (int64_t k = 0; k < j; k++)
        for (int64_t i = 0; i < d->n; i++) left[i] -= d->at[k][i] * d->at[k][i];
    for (int64_t i = 1; i < d->n; i++)
        if (left[i] > left[best]) best = i;
    memset(column, 0, (size_t)d->n * sizeof *column);
    column[best] = 1;
    for (int twice = 0; twice < 2; twice++)
        for (int64_t k = 0; k < j; k++) add_scaled(column, d->at[k], -dot(d->at[k], column, d->n), d->n);
    double length = sqrt(dot(column, column, d->n));
    for (int64_t i = 0; i < d->n; i++) column[i] /= length;
}

/* W to X, and the singular values. */
static void normalize(decomposition *d) {
    for (int64_t j = 0; j < d->n; j++) {
        double length = d->square[j] < NEGLIGIBLE ? 0 : sqrt(d->square[j]);
        d->length[j] = length * d->scale;
        if (length == 0) {
            complete(d, j);
            continue;
        }
        for (int64_t i = 0; i < d->n; i++) d->at[j][i] /= length;
    }
}

/* to: [count][stride] or its transpose. Element i of column j is at to[i * down + j * across]. */
static void write_column(double *to, int64_t down, int64_t across, int64_t j, const double *column, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i * down + j * across] = column[i];
}

/* left: Q J [m, n]; element [i, j] at left[i * down + j * across]. */
static void write_left(decomposition *d, double *left, int64_t down, int64_t across) {
    for (int64_t first = 0; first < d->n; first += GROUP) {
        int64_t count = d->n - first < GROUP ? d->n - first : GROUP;
        memset(d->column, 0, (size_t)(GROUP * d->m) * sizeof *d->column);
        for (int64_t c = 0; c < count; c++)
            memcpy(d->column + c * d->m, d->at[first + c] + d->n, (size_t)d->n * sizeof *d->column);
        for (int64_t k = d->n - 1; k >= 0; k--)
            for (int64_t c = 0; c < count; c++) reflect(d, k, d->column + c * d->m);
        for (int64_t c = 0; c < count; c++) write_column(left, down, across, first + c, d->column + c * d->m, d->m);
    }
}

/* ---- the whole ---- */

/* Copies the matrix, divided by the power of two of its largest element. False if an element is not finite. */
static bool copy_scaled(decomposition *d, const double *matrix, int64_t rows, int64_t cols) {
    double largest = 0;
    int exponent = 0;
    for (int64_t i = 0; i < rows * cols; i++) {
        if (!isfinite(matrix[i])) return false;
        largest = fmax(largest, fabs(matrix[i]));
    }
    frexp(largest, &exponent);
    d->scale = ldexp(1, exponent - 1);
    if (d->scale == 0) d->scale = DBL_TRUE_MIN;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            d->b[rows < cols ? i * cols + j : j * rows + i] = matrix[i * cols + j] / d->scale;
    return true;
}

static rcv_status decompose(decomposition *d, ordered *order, const char *name) {
    for (int64_t j = 0; j < d->n; j++) {
        d->at[j] = d->pair + j * 2 * d->n;
        d->at[j][d->n + j] = 1;
    }
    factor(d);
    if (!rotate_all(d, order))
        return rcvi_fail(RCV_UNSUPPORTED, "the singular values of the matrix %s were not found in %d sweeps", name,
                         (int)SWEEPS);
    return RCV_OK;
}

static void drop(rcv_context *context, decomposition *d, ordered *order) {
    void *const blocks[] = {order, d->column, d->length, d->square, (void *)d->at, d->pair, d->beta, d->b};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) rcvi_free(context, blocks[i]);
}

rcv_status rcvi_svd(rcv_context *context, const char *name, int64_t rows, int64_t cols, const double *matrix, double *s,
                    double *u, double *v) {
    bool wide = rows < cols;
    decomposition d = {.m = wide ? cols : rows, .n = wide ? rows : cols};
    size_t m = (size_t)d.m, n = (size_t)d.n;
    d.b = rcvi_new(context, m * n, sizeof *d.b);
    d.beta = rcvi_new(context, n, sizeof *d.beta);
    d.pair = rcvi_new(context, 2 * n * n, sizeof *d.pair);
    d.at = rcvi_new(context, n, sizeof *d.at);
    d.square = rcvi_new(context, n, sizeof *d.square);
    d.length = rcvi_new(context, n, sizeof *d.length);
    d.column = rcvi_new(context, GROUP * m, sizeof *d.column);
    ordered *order = rcvi_new(context, n, sizeof *order);
    rcv_status status =
        d.b && d.beta && d.pair && d.at && d.square && d.length && d.column && order ? RCV_OK : RCV_NO_MEMORY;
    if (!status && !copy_scaled(&d, matrix, rows, cols))
        status =
            rcvi_fail(RCV_INVALID, "the matrix %s cannot be approximated, it has values that are not finite", name);
    if (!status) status = decompose(&d, order, name);
    if (!status) {
        normalize(&d);
        memcpy(s, d.length, n * sizeof *s);
        /* tall: U = Q J and V = X; wide, where B = A^T: U = X and V = Q J */
        write_left(&d, wide ? v : u, wide ? 1 : d.n, wide ? d.m : 1);
        for (int64_t j = 0; j < d.n; j++) write_column(wide ? u : v, wide ? d.n : 1, wide ? 1 : d.n, j, d.at[j], d.n);
    }
    drop(context, &d, order);
    return status;
}
