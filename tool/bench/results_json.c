/* The results as JSON. Times are in seconds, speeds in operations a second; null: not known. */
#include "json.h"

#include "bench/bench.h"

static json_t *problem_json(const problem *problem) {
    const rcv_net_options *net = rcv_net_get_options(problem->net);
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:s, s:s, s:s, s:o}", "cell",
                     rcv_cell_name(problem->cell), "steps", (json_int_t)problem->steps, "batch",
                     (json_int_t)problem->batch, "input", (json_int_t)net->input, "hidden", (json_int_t)net->hidden,
                     "layers", (json_int_t)net->layers, "rank", (json_int_t)net->rank, "bidirectional",
                     (int)net->bidirectional, "bias", !net->no_bias, "dtype", rcv_dtype_name(problem->dtype), "device",
                     problem->device, "pass", problem->training ? "train" : "forward", "operations",
                     number(problem_operations(problem, problem->net)));
}

static json_t *machine_json(const machine *machine) {
    return json_pack("{s:o, s:s, s:s, s:I, s:I, s:s, s:o}", "device", text(machine->device), "cpu", machine->cpu,
                     "system", machine->system, "cores", (json_int_t)machine->cores, "threads",
                     (json_int_t)machine->threads, "kernels", machine->kernels, "barrier_seconds",
                     positive(machine->barrier));
}

static json_t *peak_json(const results *results) {
    json_t *samples = json_array();
    for (size_t i = 0; i < results->peak.count; i++) {
        json_array_append_new(samples, number(results->peak.samples[i]));
    }
    return json_pack("{s:o, s:o, s:o}", "best", positive(results->peak_speed), "samples", samples, "reason",
                     text(results->peak.refusal));
}

static json_t *measurement_json(const measurement *item, double peak) {
    json_t *samples = json_array();
    for (size_t i = 0; i < item->sample_count; i++) {
        json_array_append_new(samples, number(item->samples[i]));
    }
    const double speed = item->median > 0 ? item->operations / item->median : 0;
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", item->name, "family",
                     text(item->family), "plan", text(item->plan), "reason", text(item->refusal), "note",
                     text(item->note), "median", positive(item->median), "minimum", positive(item->minimum), "speed",
                     positive(speed), "of_peak", positive(peak > 0 ? speed / peak : 0), "ratio", positive(item->ratio),
                     "difference", number(item->difference), "bytes", positive(item->bytes), "samples", samples);
}

static json_t *measurements_json(const measurements *all, double peak) {
    json_t *list = json_array();
    for (size_t i = 0; i < all->count; i++) {
        json_array_append_new(list, measurement_json(&all->items[i], peak));
    }
    return list;
}

static json_t *planning_json(const results *results) {
    json_t *list = json_array();
    for (size_t i = 0; i < results->option_count; i++) {
        const considered_plan *option = &results->options[i];
        json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o, s:o, s:b}", "plan", option->schedule, "reason",
                                              text(option->reason), "estimate", positive(option->estimate), "seconds",
                                              positive(option->seconds), "bytes", positive(option->bytes), "chosen",
                                              (int)option->chosen));
    }
    return json_pack("{s:f, s:b, s:o}", "seconds", results->planning_seconds, "from_wisdom", (int)results->from_wisdom,
                     "candidates", list);
}

static json_t *ladder_json(const results *results) {
    json_t *list = measurements_json(&results->ladder, results->peak_speed);
    for (size_t i = 0; i < results->ladder.count; i++) {
        const double ratio = results->ladder.items[i].ratio;
        json_t *rung = json_array_get(list, i);
        json_object_set_new(rung, "group",
                            json_string(i == 0                       ? "naive"
                                        : i <= results->ladder_alone ? "alone"
                                                                     : "cumulative"));
        json_object_set_new(rung, "speedup", positive(ratio > 0 ? 1 / ratio : 0));
        json_object_del(rung, "ratio");
    }
    return list;
}

static json_t *batches_json(const bench *bench, const results *results) {
    const char *vendor = problem_is_gpu(&bench->problem) ? "cudnn_speed" : "onednn_speed";
    json_t *list = json_array();
    for (size_t i = 0; i < results->batch_count; i++) {
        const batch_point *point = &results->batches[i];
        json_array_append_new(list, json_pack("{s:I, s:s, s:o, s:o, s:o}", "batch", (json_int_t)point->batch, "plan",
                                              point->plan, "seconds", positive(point->seconds), "speed",
                                              positive(point->speed), vendor, positive(point->vendor_speed)));
    }
    return list;
}

static json_t *gemm_json(const gemm_curve *curve) {
    json_t *list = json_array();
    for (size_t variant = 0; variant < GEMM_VARIANTS; variant++) {
        for (size_t i = 0; i < CPU_BATCH_SIZES; i++) {
            json_t *point =
                json_pack("{s:s, s:I}", "variant", gemm_variants[variant], "batch", (json_int_t)batch_sizes[i]);
            for (size_t who = 0; who < GEMM_IMPLEMENTATIONS; who++) {
                json_object_set_new(point, gemm_implementations[who], positive(curve->speed[variant][who][i]));
            }
            json_array_append_new(list, point);
        }
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "points", list, "peak_float32", positive(curve->peak[0]),
                     "peak_bfloat16", positive(curve->peak[1]), "difference", number(curve->difference), "reason",
                     text(curve->refusal));
}

static json_t *ranks_json(const results *results) {
    json_t *list = json_array();
    for (size_t i = 0; i < results->rank_count; i++) {
        const rank_point *point = &results->ranks[i];
        json_array_append_new(list,
                              json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "rank", (json_int_t)point->rank,
                                        "plan", text(point->plan), "reason", text(point->refusal), "seconds",
                                        positive(point->seconds), "speedup", positive(point->speedup), "parameters",
                                        positive(point->parameters), "error_fresh", number(point->error_fresh),
                                        "error_decaying", number(point->error_decaying)));
    }
    return list;
}

static json_t *streaming_json(const streaming *streaming) {
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "chunk", (json_int_t)streaming->chunk, "calls", (json_int_t)streaming->calls, "reason",
                     text(streaming->refusal), "p50", positive(streaming->p50), "p99", positive(streaming->p99),
                     "worst", positive(streaming->worst), "step", positive(streaming->step), "object_p50",
                     positive(streaming->object_p50), "object_ratio", positive(streaming->object_ratio), "object_step",
                     positive(streaming->object_step), "object_plan", text(streaming->object_plan), "whole_step",
                     positive(streaming->whole_step), "unhoisted_step", positive(streaming->unhoisted_step),
                     "input_alone", positive(streaming->input_alone), "input_hoisted",
                     positive(streaming->input_hoisted), "plan", text(streaming->plan), "whole_plan",
                     text(streaming->whole_plan), "unhoisted_plan", text(streaming->unhoisted_plan));
}

static json_t *choices_json(const results *results) {
    json_t *list = json_array();
    for (size_t i = 0; i < results->choice_count; i++) {
        const choice *choice = &results->choices[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:o}", "effort", choice->effort, "candidates",
                                        (json_int_t)choice->candidates, "plan", text(choice->plan), "reason",
                                        text(choice->refusal), "choosing_seconds", positive(choice->choosing),
                                        "seconds", positive(choice->seconds), "ratio", positive(choice->ratio)));
    }
    return list;
}

static json_t *pass_json(const scan_point *point, bool backward) {
    const scan_pass *pass = backward ? &point->backward : &point->forward;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "median", positive(pass->seconds), "minimum",
                     positive(pass->minimum), "bandwidth", positive(scan_bandwidth(point, backward)), "of_copy",
                     positive(scan_share(point, backward)), "serial", positive(pass->serial), "speedup",
                     positive(scan_speedup(pass)));
}

static json_t *scan_json(const bench *bench, const results *results) {
    const scans *scans = &results->scans;
    json_t *points = json_array(), *targets = json_array();
    for (size_t i = 0; i < scans->count; i++) {
        const scan_point *point = &scans->points[i];
        json_array_append_new(points, json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "steps",
                                                (json_int_t)point->steps, "batch", (json_int_t)point->batch, "channels",
                                                (json_int_t)point->channels, "form", text(point->form), "reason",
                                                text(point->refusal), "copy", positive(point->copy), "forward",
                                                pass_json(point, false), "backward", pass_json(point, true)));
    }
    for (size_t i = 0; i < scans->target_count; i++) {
        const scan_target *target = &scans->targets[i];
        json_array_append_new(targets,
                              json_pack("{s:I, s:I, s:I, s:s, s:s, s:s, s:f, s:o, s:b, s:o}", "steps",
                                        (json_int_t)target->point->steps, "batch", (json_int_t)target->point->batch,
                                        "channels", (json_int_t)target->point->channels, "what", target->what, "unit",
                                        target->unit, "relation", target->at_most ? "<=" : ">=", "target",
                                        target->target, "measured", positive(target->measured), "met",
                                        (int)target_is_met(target), "source", text(target->source)));
    }
    return json_pack("{s:s, s:s, s:I, s:o, s:o}", "dtype", rcv_dtype_name(bench->problem.dtype), "device",
                     bench->problem.device, "copy_reads", (json_int_t)scans->reads, "points", points, "targets",
                     targets);
}

static json_t *length_pass_json(const length_point *point, size_t index) {
    const length_pass *pass = &point->passes[index];
    return json_pack("{s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:b, s:o}", "plan", text(pass->plan),
                     "planned_at", pass->plan != NULL && pass->planned > 0 ? json_integer(pass->planned) : json_null(),
                     "estimated", pass->plan != NULL && pass->estimated, "reason", text(pass->refusal), "bytes",
                     positive(pass->bytes), "median", positive(pass->seconds), "minimum", positive(pass->minimum),
                     "rounds", (json_int_t)pass->rounds, "steps_per_second", positive(length_rate(point, index)),
                     "lstm", positive(pass->lstm), "extrapolated", (int)pass->extrapolated, "speedup",
                     positive(length_speedup(pass)));
}

static json_t *length_json(const char *cell, const length_point *point) {
    return json_pack("{s:s, s:I, s:o, s:o}", "cell", cell, "steps", (json_int_t)point->steps, "forward",
                     length_pass_json(point, 0), "train", length_pass_json(point, 1));
}

/* `extrapolated` is about the LSTM's seconds: `lstm` of a cell, `median` of the LSTM itself. */
static json_t *lengths_json(const bench *bench, const results *results) {
    const lengths *lengths = &results->lengths;
    const rcv_net_options *net = &bench->problem.network.net;
    json_t *points = json_array(), *lstm = json_array();
    for (size_t i = 0; i < lengths->cell_count * lengths->count; i++) {
        const size_t cell = i / lengths->count;
        json_array_append_new(points, length_json(lengths->cells[cell], &lengths->points[cell][i % lengths->count]));
    }
    for (size_t i = 0; i < lengths->count; i++) {
        json_array_append_new(lstm, length_json("lstm", &lengths->lstm[i]));
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:s, s:s, s:f, s:o, s:o, s:o}", "batch",
                     (json_int_t)bench->problem.batch, "input", (json_int_t)net->input, "hidden",
                     (json_int_t)net->hidden, "layers", (json_int_t)net->layers, "rank", (json_int_t)net->rank,
                     "bidirectional", (int)net->bidirectional, "bias", !net->no_bias, "dtype",
                     rcv_dtype_name(bench->problem.dtype), "device", bench->problem.device, "longest", bench->longest,
                     "left_out", text(lengths->left_out), "points", points, "lstm", lstm);
}

/* The file of --scan or --lengths, which are experiments of their own. */
static json_t *alone_json(const bench *bench, const results *results, const char *name, json_t *experiment) {
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o}", "command", bench->command, "date", results->machine.date,
                     "version", results->machine.version, "commit", results->machine.commit, "title", results->title,
                     "machine", machine_json(&results->machine), name, experiment);
}

static json_t *results_json(const bench *bench, const results *results) {
    json_t *all = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:I}", "command", bench->command,
                            "date", results->machine.date, "version", results->machine.version, "commit",
                            results->machine.commit, "title", results->title, "problem", problem_json(&bench->problem),
                            "machine", machine_json(&results->machine), "peak", peak_json(results), "planning",
                            planning_json(results), "entries", measurements_json(&results->main, results->peak_speed),
                            "rounds", (json_int_t)results->main.rounds);
    if (results->ladder.count > 0) {
        json_object_set_new(all, "ladder", ladder_json(results));
    }
    if (results->batch_count > 0) {
        json_object_set_new(all, "batches", batches_json(bench, results));
    }
    if (results->gemm.done) {
        json_object_set_new(all, "gemm", gemm_json(&results->gemm));
    }
    if (results->rank_count > 0) {
        json_object_set_new(all, "ranks", ranks_json(results));
    }
    if (results->streaming.done) {
        json_object_set_new(all, "streaming", streaming_json(&results->streaming));
    }
    if (results->choice_count > 0) {
        json_object_set_new(all, "planner", choices_json(results));
    }
    return all;
}

bool bench_write_json(const bench *bench, const results *results) {
    return save_json(bench->json, bench->scan ? alone_json(bench, results, "scan", scan_json(bench, results))
                                  : bench->lengths != NULL
                                      ? alone_json(bench, results, "lengths", lengths_json(bench, results))
                                      : results_json(bench, results));
}
