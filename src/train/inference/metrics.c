/* Metrics of predictions: see metrics.h. */
#include "train/inference/metrics.h"

#include <math.h>
#include <string.h>

/* ---- making and freeing ---- */

rcv_status rcvi_metrics_init(rcvi_metrics *m, rcv_context *context, rcv_data_kind kind, int64_t outputs,
                             int64_t *confusion, bool has_areas) {
    const bool classes = rcvi_kind_has_classes(kind);
    *m = (rcvi_metrics){.context = context, .kind = kind, .outputs = outputs, .has_areas = classes && has_areas};
    if (!classes) {
        m->values = rcvi_new(context, (size_t)outputs, sizeof *m->values);
        return m->values ? RCV_OK : RCV_NO_MEMORY;
    }
    m->confusion = confusion;
    if (confusion) memset(confusion, 0, (size_t)(outputs * outputs) * sizeof *confusion);
    rcvi_auc_init(&m->auc, context, outputs, 0);
    m->counts = rcvi_new(context, 3 * (size_t)outputs, sizeof *m->counts);
    return m->counts ? RCV_OK : RCV_NO_MEMORY;
}

void rcvi_metrics_free(rcvi_metrics *m) {
    if (!m->context) return;
    rcvi_free(m->context, m->counts);
    rcvi_free(m->context, m->values);
    if (rcvi_kind_has_classes(m->kind)) rcvi_auc_free(&m->auc);
    *m = (rcvi_metrics){0};
}

/* ---- adding rows ---- */

rcv_status rcvi_metrics_add_class(rcvi_metrics *m, const double *logits, int32_t target) {
    const int64_t n = m->outputs;
    int64_t best = 0;
    for (int64_t c = 1; c < n; c++)
        if (logits[c] > logits[best]) best = c;
    m->counts[target] += best == target;
    m->counts[n + target]++;
    m->counts[2 * n + best]++;
    if (m->confusion) m->confusion[target * n + best]++;
    return m->has_areas ? rcvi_auc_add(&m->auc, logits, target) : RCV_OK;
}

void rcvi_metrics_add_values(rcvi_metrics *m, const double *predicted, const double *wanted, const double *naive) {
    m->rows++;
    for (int64_t o = 0; o < m->outputs; o++) {
        rcvi_value_sums *sums = &m->values[o];
        const double error = predicted[o] - wanted[o], difference = wanted[o] - sums->mean;
        sums->mean += difference / m->rows;
        sums->squares += difference * (wanted[o] - sums->mean);
        sums->errors += error * error;
        m->absolute += fabs(error);
        m->squares += error * error;
        if (!naive || isnan(naive[o])) continue;
        m->naive_rows++;
        m->naive_absolute += fabs(naive[o] - wanted[o]);
        m->naive_squares += (naive[o] - wanted[o]) * (naive[o] - wanted[o]);
    }
}

/* ---- several ranks ---- */

static rcv_status add_up(rcvi_comm *world, double *numbers, int64_t count) {
    return rcvi_comm_all_reduce(world, RCVI_ALL_REDUCE_SUM, numbers, count);
}

/* Means are merged first; squares are then of the differences from the common mean. */
static rcv_status reduce_values(rcvi_metrics *m, rcvi_comm *world) {
    double sums[] = {m->rows, m->absolute, m->squares, m->naive_rows, m->naive_absolute, m->naive_squares};
    const double own = m->rows;
    RCVI_TRY(add_up(world, sums, sizeof sums / sizeof *sums));
    m->rows = sums[0];
    m->absolute = sums[1];
    m->squares = sums[2];
    m->naive_rows = sums[3];
    m->naive_absolute = sums[4];
    m->naive_squares = sums[5];
    for (int64_t o = 0; o < m->outputs; o++) {
        rcvi_value_sums *v = &m->values[o];
        const double own_mean = v->mean;
        double total = own * own_mean;
        RCVI_TRY(add_up(world, &total, 1));
        v->mean = m->rows > 0 ? total / m->rows : 0;
        double parts[] = {v->squares + own * (own_mean - v->mean) * (own_mean - v->mean), v->errors};
        RCVI_TRY(add_up(world, parts, 2));
        v->squares = parts[0];
        v->errors = parts[1];
    }
    return RCV_OK;
}

rcv_status rcvi_metrics_reduce(rcvi_metrics *m, rcvi_comm *world) {
    m->has_areas = false; /* a rank has some of the scores alone */
    return m->counts ? add_up(world, m->counts, 3 * m->outputs) : reduce_values(m, world);
}

/* ---- the results ---- */

void rcvi_metrics_clear(rcv_evaluation *r) {
    r->accuracy = 0;
    r->precision = r->recall = r->f1 = r->auc = r->mae = r->rmse = r->r2 = r->naive_mae = r->naive_rmse = NAN;
}

/* Precision of a class that was never predicted is 0; classes that no row has are in no mean. */
static void finish_classes(const rcvi_metrics *m, rcv_evaluation *r) {
    const int64_t n = m->outputs;
    double rows = 0, right = 0, classes = 0, precision = 0, recall = 0, f1 = 0;
    for (int64_t c = 0; c < n; c++) {
        const double hits = m->counts[c], own = m->counts[n + c], predicted = m->counts[2 * n + c];
        if (own == 0) continue;
        classes++;
        rows += own;
        right += hits;
        precision += predicted > 0 ? hits / predicted : 0;
        recall += hits / own;
        f1 += 2 * hits / (own + predicted);
    }
    if (rows == 0) return;
    r->accuracy = right / rows;
    r->precision = precision / classes;
    r->recall = recall / classes;
    r->f1 = f1 / classes;
}

/* Outputs that are constant have no variance to explain. */
static void finish_values(const rcvi_metrics *m, rcv_evaluation *r) {
    const double numbers = m->rows * (double)m->outputs;
    double explained = 0, found = 0;
    if (m->rows == 0) return;
    r->mae = m->absolute / numbers;
    r->rmse = sqrt(m->squares / numbers);
    for (int64_t o = 0; o < m->outputs; o++) {
        if (!(m->values[o].squares > 0)) continue;
        explained += 1 - m->values[o].errors / m->values[o].squares;
        found++;
    }
    if (found > 0) r->r2 = explained / found;
    if (m->naive_rows == 0) return;
    r->naive_mae = m->naive_absolute / m->naive_rows;
    r->naive_rmse = sqrt(m->naive_squares / m->naive_rows);
}

rcv_status rcvi_metrics_finish(const rcvi_metrics *m, rcv_evaluation *r) {
    rcvi_metrics_clear(r);
    if (m->counts)
        finish_classes(m, r);
    else
        finish_values(m, r);
    return m->has_areas ? rcvi_auc_find(&m->auc, &r->auc) : RCV_OK;
}
