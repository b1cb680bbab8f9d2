/* The page of recurve bench: the sections of the main comparison, the ladder, batch sizes, memory and the timeline. */
#include "report/report.h"

#include "report/drawing.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_BARS = 64 };

static void put_cards(FILE *out, const results *results) {
    const measurement *ours = &results->main.items[0];
    const speed_unit *unit = &results->unit;
    char value[128], meaning[128], room[32];
    fprintf(out, "<div class=\"cards\">\n");
    snprintf(value, sizeof value, "%s ms", short_number(ours->median * 1e3, room));
    put_card(out, value, "median of a call");
    snprintf(meaning, sizeof meaning, "%s in the matrix products", unit->name);
    put_card(out, short_number(ours->median > 0 ? ours->operations / ours->median * unit->scale : 0, room), meaning);
    if (results->peak_speed > 0 && ours->median > 0) {
        snprintf(value, sizeof value, "%.1f%%", 100 * ours->operations / ours->median / results->peak_speed);
        snprintf(meaning, sizeof meaning, "of the measured limit, %s %s",
                 short_number(results->peak_speed * unit->scale, room), unit->name);
        put_card(out, value, meaning);
    }
    const measurement *best = NULL;
    for (size_t i = 1; i < results->main.count; i++) {
        const measurement *item = &results->main.items[i];
        best = item->median > 0 && (best == NULL || item->median < best->median) ? item : best;
    }
    if (best != NULL) {
        snprintf(value, sizeof value, "%.2fx", best->ratio);
        snprintf(meaning, sizeof meaning, "speed-up over %s, the fastest other", best->name);
        put_card(out, value, meaning);
    }
    if (results->ladder.count > 0 && results->ladder.items[results->ladder.count - 1].ratio > 0) {
        snprintf(value, sizeof value, "%.2fx", 1 / results->ladder.items[results->ladder.count - 1].ratio);
        put_card(out, value, "speed-up over the naive plan");
    }
    snprintf(value, sizeof value, "%s", human_bytes(ours->bytes, room));
    put_card(out, value, "memory of a run");
    fprintf(out, "</div>\n");
}

/* ---- comparison ---- */

static void put_measurement(FILE *out, const results *results, const measurement *item, bool first) {
    const double peak = results->peak_speed;
    fprintf(out, "<tr%s><td>", first ? " class=\"best\"" : "");
    put_text(out, item->name);
    if (item->median <= 0) {
        fprintf(out, "</td><td class=\"wrap\" colspan=\"7\">");
        put_text(out, item->refusal != NULL ? item->refusal : "not measured");
        fprintf(out, "</td></tr>\n");
        return;
    }
    const double speed = item->operations / item->median;
    fprintf(out, "</td><td>%.3f</td><td>%.3f</td><td>%.*f</td>", item->median * 1e3, item->minimum * 1e3,
            results->unit.digits, speed * results->unit.scale);
    fprintf(out, peak > 0 ? "<td>%.1f%%</td>" : "<td></td>", peak > 0 ? 100 * speed / peak : 0);
    fprintf(out, "<td>%.2f</td>", item->ratio);
    if (isnan(item->difference)) {
        fprintf(out, "<td></td>");
    } else {
        fprintf(out, "<td>%.1e</td>", item->difference);
    }
    fprintf(out, "<td class=\"wrap\"><code>");
    put_plan(out, item->plan != NULL ? item->plan : item->note != NULL ? item->note : "");
    fprintf(out, "</code></td></tr>\n");
}

static void put_comparison(FILE *out, const results *results) {
    const measurements *all = &results->main;
    const speed_unit *unit = &results->unit;
    bar bars[MAXIMUM_IMPLEMENTATIONS];
    size_t count = 0;
    for (size_t i = 0; i < all->count; i++) {
        const measurement *item = family_best(all, i);
        if (item != NULL) {
            bars[count++] = (bar){.label = item->family != NULL ? item->family : item->name,
                                  .value = item->median > 0 ? item->operations / item->median * unit->scale : 0,
                                  .note = item->refusal != NULL  ? item->refusal
                                          : item->family != NULL ? item->name
                                                                 : NULL,
                                  .colour = i == 0 ? 0 : 1};
        }
    }
    put_section(out, "comparison", "Comparison",
                results->machine.device != NULL
                    ? "Implementations are timed in turns in one process. On the GPU many calls are enqueued before "
                      "one wait. Speed "
                      "counts matrix products only. The limit is the speed of large matrix products by cuBLASLt."
                    : "Implementations are timed in turns in one process. Speed counts matrix products only. The limit "
                      "is the speed "
                      "of multiply-adds on registers with the same threads, measured between the rounds.");
    const bar_style style = {.title = "Speed of the implementations",
                             .unit = unit->name,
                             .limit = results->peak_speed * unit->scale,
                             .limit_label = "measured limit"};
    draw_bars(out, bars, count, &style);
    fprintf(out,
            "<div class=\"table\"><table><thead><tr><th></th><th>median ms</th><th>least ms</th><th>%s</th>"
            "<th>of limit</th><th>speed-up of recurve</th><th>difference</th><th class=\"left\">plan or version</th>"
            "</tr></thead><tbody>\n",
            unit->name);
    for (size_t i = 0; i < all->count; i++) {
        put_measurement(out, results, &all->items[i], i == 0);
    }
    fprintf(out,
            "</tbody></table></div>\n<p class=\"soft\">%zu rounds. Difference: of the results from those of "
            "recurve, relative to the largest element.</p></section>\n",
            all->rounds);
}

/* ---- ladder, batch sizes, memory ---- */

static void put_rungs(FILE *out, const results *results, size_t from, size_t to, const char *title, int colour) {
    bar bars[MAXIMUM_IMPLEMENTATIONS];
    size_t count = 0;
    for (size_t i = 0; i < to; i++) {
        const measurement *item = &results->ladder.items[i];
        if (i == 0 || i >= from) {
            bars[count++] = (bar){.label = item->name,
                                  .value = item->ratio > 0 ? 1 / item->ratio : 0,
                                  .note = item->median > 0 ? item->plan : item->refusal,
                                  .colour = i == 0 ? NEUTRAL : colour};
        }
    }
    fprintf(out, "<h3>%s</h3>\n", title);
    const bar_style style = {.title = title,
                             .unit = results->machine.device != NULL ? "speed-up over naive"
                                                                     : "speed-up over naive on one thread",
                             .long_notes = true};
    draw_bars(out, bars, count, &style);
}

static void put_ladder(FILE *out, const results *results) {
    put_section(
        out, "ladder", "Speed-up of each rung",
        results->machine.device != NULL
            ? "A rung is one optimization of a plan. Shown is the speed-up of each rung alone, and of rungs added one "
              "after "
              "the other. The baseline is naive: one product for each gate and operand, one pass over memory for each "
              "operation, one launch for each of them."
            : "A rung is one optimization of a plan. Shown is the speed-up of each rung alone, and of rungs added one "
              "after "
              "the other. The baseline is naive: one product for each gate and operand, one pass over memory for each "
              "operation, one thread, plain C. Kernels is the same with the CPU's vector kernels, which all other "
              "rungs "
              "use too.");
    put_rungs(out, results, 1, results->ladder_alone + 1, "Each rung alone", 5);
    put_rungs(out, results, results->ladder_alone + 1, results->ladder.count, "Rungs added one after the other", 0);
    fprintf(out, "</section>\n");
}

static void put_batches(FILE *out, const bench *bench, const results *results) {
    const char *const labels[] = {"recurve", vendor_name(&bench->problem)};
    const speed_unit *unit = &results->unit;
    curve curves[2] = {{.label = labels[0], .colour = 0}, {.label = labels[1], .colour = 1}};
    bool vendor = false;
    for (size_t i = 0; i < results->batch_count; i++) {
        curves[0].values[i] = results->batches[i].speed * unit->scale;
        curves[1].values[i] = results->batches[i].vendor_speed * unit->scale;
        vendor = vendor || results->batches[i].vendor_speed > 0;
    }
    put_section(out, "batches", "Throughput over batch size",
                "The same network, planned for each batch size. A small batch is limited by the memory traffic of the "
                "weights, a "
                "large one by arithmetic.");
    const int colours[] = {0, 1};
    put_legend(out, labels, colours, vendor ? 2 : 1);
    const curve_style style = {.title = "Throughput over batch size",
                               .unit = unit->name,
                               .width = 1000,
                               .sizes = problem_is_gpu(&bench->problem) ? BATCH_SIZES : CPU_BATCH_SIZES,
                               .limits = {results->peak_speed * unit->scale},
                               .limit_labels = {"measured limit"}};
    draw_curves(out, curves, vendor ? 2 : 1, &style);
    fprintf(out, "</section>\n");
}

static int by_time(const void *left, const void *right) {
    const considered_plan *a = *(const considered_plan *const *)left, *b = *(const considered_plan *const *)right;
    const double x = a->seconds > 0 ? a->seconds : 1e6 + a->estimate,
                 y = b->seconds > 0 ? b->seconds : 1e6 + b->estimate;
    return (x > y) - (x < y);
}

static void put_refused(FILE *out, const results *results) {
    bool any = false;
    for (size_t i = 0; i < results->option_count; i++) {
        if (results->options[i].reason != NULL) {
            fprintf(out, "%s<tr><td><code>",
                    any ? "" : "<h3>Plans that do not apply</h3><div class=\"table\"><table><tbody>\n");
            put_plan(out, results->options[i].schedule);
            fprintf(out, "</code></td><td class=\"wrap\">");
            put_text(out, results->options[i].reason);
            fprintf(out, "</td></tr>\n");
            any = true;
        }
    }
    fprintf(out, "%s", any ? "</tbody></table></div>\n" : "");
}

/* The fastest plans; there may be hundreds. */
static void put_bytes(FILE *out, const results *results) {
    const considered_plan **sorted = need(results->option_count, sizeof *sorted);
    bar bars[MOST_BARS];
    char notes[MOST_BARS][64];
    size_t usable = 0, count;
    for (size_t i = 0; i < results->option_count; i++) {
        if (results->options[i].reason == NULL) {
            sorted[usable++] = &results->options[i];
        }
    }
    qsort(sorted, usable, sizeof *sorted, by_time);
    for (count = 0; count < usable && count < 24; count++) {
        char room[32];
        const considered_plan *option = sorted[count];
        const double seconds = option->seconds > 0 ? option->seconds : option->estimate;
        snprintf(notes[count], sizeof notes[count], "MiB, %s ms%s%s", short_number(seconds * 1e3, room),
                 option->seconds > 0 ? "" : " expected", option->chosen ? ", chosen" : "");
        bars[count] = (bar){.label = option->schedule,
                            .note = notes[count],
                            .value = option->bytes / 1048576,
                            .colour = option->chosen ? 0 : 5};
    }
    char about[256];
    snprintf(about, sizeof about,
             "Memory that a run of each plan allocates, fastest plan first%s. Planning took %.2f s.",
             count < usable ? "; slower plans are left out" : "", results->planning_seconds);
    put_section(out, "bytes", "Memory of each plan", about);
    const bar_style style = {.title = "Memory of each plan", .unit = "MiB", .wide_labels = true};
    draw_bars(out, bars, count, &style);
    put_refused(out, results);
    fprintf(out, "</section>\n");
    free(sorted);
}

static void put_timeline(FILE *out, const results *results) {
    const char *labels[COLOURS] = {"layer 0", "layer 1", "layer 2", "layer 3",
                                   "layer 4", "layer 5", "layer 6", "layer 7"};
    const int colours[COLOURS] = {0, 1, 2, 3, 4, 5, 6, 7};
    int layers = 1;
    for (size_t i = 0; i < results->chosen.count; i++) {
        layers = results->chosen.events[i].layer >= layers ? results->chosen.events[i].layer + 1 : layers;
    }
    put_section(
        out, "timeline", "Timeline of one call",
        "The steps of each worker, coloured by layer. Layers that overlap in time are a wavefront. Numbers are time "
        "steps.");
    put_legend(out, labels, colours, (size_t)(layers < COLOURS ? layers : COLOURS));
    draw_timeline(out, &results->chosen);
    if (results->wavefront.count > 0) {
        fprintf(out, "<p class=\"soft\">For comparison, the plan of the ladder with a wavefront:</p>\n");
        draw_timeline(out, &results->wavefront);
    }
    fprintf(out, "</section>\n");
}

static void put_frame(FILE *out, const bench *bench, const results *results) {
    begin_page(out, "recurve bench", results->title, NULL);
    if (results->machine.device != NULL) {
        put_text(out, results->machine.device);
    } else {
        put_text(out, results->machine.cpu);
        fprintf(out, ", %lld thread%s, kernels ", (long long)results->machine.threads,
                results->machine.threads == 1 ? "" : "s");
        put_text(out, results->machine.kernels);
    }
    if (results->main.count > 0) {
        fprintf(out, ". Plan <code>");
        put_plan(out, results->main.items[0].plan);
        fprintf(out, "</code>%s", bench->problem.schedule != NULL ? ", pinned" : "");
    }
    fprintf(out, "</p>\n");
}

bool write_bench_page(const bench *bench, const results *results) {
    page page;
    if (!page_open(&page, bench->report)) {
        return false;
    }
    FILE *out = page.file;
    put_frame(out, bench, results);
    if (results->main.count > 0) {
        put_cards(out, results);
        put_comparison(out, results);
    }
    if (results->ladder.count > 0) {
        put_ladder(out, results);
    }
    if (results->batch_count > 0) {
        put_batches(out, bench, results);
    }
    if (results->main.count > 0) {
        put_bytes(out, results);
    }
    if (results->chosen.count > 0) {
        put_timeline(out, results);
    }
    put_optional_sections(out, bench, results);
    return page_close(&page);
}
