/* The page of recurve bench: the sections of optional experiments, and how the results were measured. */
#include "report/drawing.h"

#include <math.h>

static void put_gemm(FILE *out, const gemm_curve *gemm, int64_t hidden) {
    const int64_t gates = 4 * hidden;
    const char *const labels[] = {"recurve float32", "recurve bfloat16", "OpenBLAS float32"};
    const int colours[] = {0, 2, 1};
    char room[32], limits[2][64];
    fprintf(out,
            "<section id=\"gemm\"><h2>Matrix products over batch size</h2>\n<p class=\"soft\">The three matrix "
            "products of a "
            "layer with %lld features and %lld gates. Weights are packed before the timing.</p>\n",
            (long long)hidden, (long long)gates);
    put_legend(out, labels, colours, COUNT(labels));
    fprintf(out, "<div class=\"three\">\n");
    for (size_t variant = 0; variant < GEMM_VARIANTS; variant++) {
        curve curves[GEMM_IMPLEMENTATIONS];
        for (size_t who = 0; who < GEMM_IMPLEMENTATIONS; who++) {
            curves[who] = (curve){.label = labels[who], .colour = colours[who]};
            for (size_t i = 0; i < CPU_BATCH_SIZES; i++) {
                curves[who].values[i] = gemm->speed[variant][who][i] * 1e-9;
            }
        }
        curve_style style = {
            .title = gemm_meanings[variant], .unit = "GFLOP/s", .width = 340, .sizes = CPU_BATCH_SIZES};
        for (size_t i = 0; i < 2; i++) {
            const bool same = i == 1 && fabs(gemm->peak[1] / gemm->peak[0] - 1) < 0.05;
            style.limits[i] = same ? 0 : gemm->peak[i] * 1e-9;
            snprintf(limits[i], sizeof limits[i], "%s limit %s", i == 0 ? "float32" : "bfloat16",
                     short_number(gemm->peak[i] * 1e-9, room));
            style.limit_labels[i] = limits[i];
        }
        fprintf(out, "<div><h3>%s: ", gemm_variants[variant]);
        put_text(out, gemm_meanings[variant]);
        fprintf(out, "</h3>\n");
        draw_curves(out, curves, GEMM_IMPLEMENTATIONS, &style);
        fprintf(out, "</div>\n");
    }
    fprintf(out, "</div></section>\n");
}

static void put_ranks(FILE *out, const results *results) {
    fprintf(
        out,
        "<section id=\"ranks\"><h2>Low-rank weights</h2>\n<p class=\"soft\">Every matrix is replaced by its best "
        "approximation of a rank, and compared with the full matrices. Errors are those of y relative to its largest "
        "element: for initialised weights, and for weights whose singular values fall by e every hidden / 32.</p>\n"
        "<div class=\"table\"><table><thead><tr><th>rank</th><th>median ms</th><th>speedup</th><th>parameters</th>"
        "<th>error, initialised</th><th>error, decaying</th><th class=\"left\">plan</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < results->rank_count; i++) {
        const rank_point *point = &results->ranks[i];
        fprintf(out, "<tr><td>");
        fprintf(out, point->rank > 0 ? "%lld" : "full", (long long)point->rank);
        if (point->seconds <= 0) {
            fprintf(out, "</td><td class=\"wrap\" colspan=\"6\">");
            put_text(out, point->refusal != NULL ? point->refusal : "not measured");
            fprintf(out, "</td></tr>\n");
            continue;
        }
        fprintf(out, "</td><td>%.3f</td><td>%.2fx</td><td>%.0f</td>", point->seconds * 1e3, point->speedup,
                point->parameters);
        const double errors[] = {point->error_fresh, point->error_decaying};
        for (size_t j = 0; j < COUNT(errors); j++) {
            if (isnan(errors[j])) {
                fprintf(out, "<td></td>");
            } else {
                fprintf(out, "<td>%.1e</td>", errors[j]);
            }
        }
        fprintf(out, "<td class=\"wrap\"><code>");
        put_plan(out, point->plan != NULL ? point->plan : "");
        fprintf(out, "</code></td></tr>\n");
    }
    fprintf(out, "</tbody></table></div></section>\n");
}

static void step_row(FILE *out, const char *name, double seconds, double own, const char *plan) {
    if (seconds > 0) {
        fprintf(out, "<tr><td>%s</td><td>%.2f</td><td>%.2f</td><td class=\"wrap\"><code>", name, seconds * 1e6,
                own / seconds);
        put_plan(out, plan != NULL ? plan : "");
        fprintf(out, "</code></td></tr>\n");
    }
}

static void put_streaming(FILE *out, const streaming *streaming) {
    fprintf(out,
            "<section id=\"streaming\"><h2>Streaming latency</h2>\n<p class=\"soft\">%lld step%s a call; the state is "
            "carried "
            "from call to call.</p>\n",
            (long long)streaming->chunk, streaming->chunk == 1 ? "" : "s");
    if (streaming->refusal != NULL) {
        fprintf(out, "<p>");
        put_text(out, streaming->refusal);
        fprintf(out, "</p></section>\n");
        return;
    }
    fprintf(out, "<p>Latency of a call: p50 %.2f us, p99 %.2f us, worst %.2f us, over %lld calls.</p>\n",
            streaming->p50 * 1e6, streaming->p99 * 1e6, streaming->worst * 1e6, (long long)streaming->calls);
    fprintf(out, "<div class=\"table\"><table><thead><tr><th>step</th><th>us</th><th>time of streamed over this</th>"
                 "<th class=\"left\">plan</th></tr></thead><tbody>\n");
    step_row(out, "streamed", streaming->step, streaming->step, streaming->plan);
    step_row(out, "streamed, by rcv_stream", streaming->object_step, streaming->step, streaming->object_plan);
    step_row(out, "whole sequence", streaming->whole_step, streaming->step, streaming->whole_plan);
    step_row(out, "whole sequence, input products step by step", streaming->unhoisted_step, streaming->step,
             streaming->unhoisted_plan);
    fprintf(out, "</tbody></table></div>\n");
    if (streaming->input_alone > 0) {
        fprintf(out,
                "<p class=\"soft\">The input products take %.2f us a step when computed for one call, %.2f us when "
                "computed for "
                "the whole sequence.</p>\n",
                streaming->input_alone * 1e6, streaming->input_hoisted * 1e6);
    }
    fprintf(out, "</section>\n");
}

static void put_choices(FILE *out, const results *results) {
    fprintf(
        out,
        "<section id=\"planner\"><h2>Planning effort</h2>\n<p class=\"soft\">The plan that each effort chooses without "
        "wisdom, "
        "the time to choose it, and the time of a call. Plans are timed in turns; efforts that chose the same plan "
        "share "
        "its time.</p>\n<div class=\"table\"><table><thead><tr><th>effort</th><th>chosen in s</th><th>median ms</th>"
        "<th>over the exhaustive choice</th><th class=\"left\">plan</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < results->choice_count; i++) {
        const choice *choice = &results->choices[i];
        fprintf(out, "<tr><td>%s</td><td>%.3f</td>", choice->effort, choice->choosing);
        if (choice->seconds > 0) {
            fprintf(out, "<td>%.3f</td><td>%.3f</td>", choice->seconds * 1e3, choice->ratio);
        } else {
            fprintf(out, "<td></td><td></td>");
        }
        fprintf(out, "<td class=\"wrap\"><code>");
        put_plan(out, choice->refusal != NULL ? choice->refusal : choice->plan);
        fprintf(out, "</code></td></tr>\n");
    }
    fprintf(out, "</tbody></table></div></section>\n");
}

static void fact(FILE *out, const char *name, const char *value, const char *more) {
    fprintf(out, "<dt>%s</dt><dd>", name);
    put_text(out, value);
    fprintf(out, " ");
    put_text(out, more);
    fprintf(out, "</dd>\n");
}

static void put_threads(FILE *out, const machine *machine) {
    char threads[64], barrier[64] = "not measured";
    snprintf(threads, sizeof threads, "%lld of %lld cores, kernels", (long long)machine->threads,
             (long long)machine->cores);
    if (machine->barrier > 0) {
        snprintf(barrier, sizeof barrier, "%.2f us for %lld threads", machine->barrier * 1e6,
                 (long long)machine->threads);
    }
    fact(out, "Threads", threads, machine->kernels);
    fact(out, "Barrier", barrier, "");
}

static void put_facts(FILE *out, const bench *bench, const results *results) {
    const machine *machine = &results->machine;
    const bool gpu = machine->device != NULL;
    char peak[128] = "not known", work[128];
    if (results->peak_speed > 0) {
        snprintf(peak, sizeof peak, "%.1f %s, %s", results->peak_speed * results->unit.scale, results->unit.name,
                 gpu                        ? "of large matrix products"
                 : results->peak.count == 1 ? "measured once"
                                            : "the best of several measurements");
    }
    snprintf(work, sizeof work, "%.3f GFLOP a call: 2 a matrix element, step and sequence%s",
             results->main.items[0].operations * 1e-9, bench->problem.training ? ", times 3" : "");
    fprintf(out, "<section id=\"facts\"><h2>Measurement</h2>\n<dl>\n<dt>Command</dt><dd><code>");
    put_text(out, bench->command);
    fprintf(out, "</code></dd>\n");
    fact(out, "Date", machine->date, "");
    fact(out, "Version", machine->version, machine->commit);
    fact(out, "Machine", machine->cpu, machine->system);
    if (gpu) {
        fact(out, "Device", machine->device, "");
    } else {
        put_threads(out, machine);
    }
    if (results->main.count > 0) {
        fact(out, "Limit", peak, "");
        fact(out, "Work", work, "");
    }
    for (size_t i = 1; i < results->main.count; i++) {
        if (results->main.items[i].note != NULL) {
            fact(out, results->main.items[i].name, results->main.items[i].note, "");
        }
    }
    fprintf(out, "</dl></section>\n");
}

void put_optional_sections(FILE *out, const bench *bench, const results *results) {
    if (results->gemm.done) {
        put_gemm(out, &results->gemm, bench->problem.network.net.hidden);
    }
    if (results->rank_count > 0) {
        put_ranks(out, results);
    }
    if (results->streaming.done) {
        put_streaming(out, &results->streaming);
    }
    if (results->choice_count > 0) {
        put_choices(out, results);
    }
    if (results->scans.done) {
        put_scan(out, results);
    }
    if (results->lengths.done) {
        put_lengths(out, results);
    }
    put_facts(out, bench, results);
}
