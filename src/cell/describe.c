/* The description of a cell that `recurve cell` prints: built as a JSON object, printed as JSON or as text. */
#include "base/json.h"
#include "cell/cell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const rcv_cell *cell;
    rcvi_pool pool; /* owns the strings of the adjoint */
    rcvi_graph adjoint;
    bool *recomputed, *is_constant; /* [values] */
    bool failed;
} description;

/* Converts a text to a JSON string and frees it; NULL on failure. */
static json_t *finish_text(description *d, rcvi_text *text) {
    char *bytes = NULL;
    json_t *string = NULL;
    if (!rcvi_text_take(text, &bytes)) string = json_string(bytes);
    rcvi_free(d->cell->context, bytes);
    if (!string) d->failed = true;
    return string;
}

static json_t *value_text(description *d, const rcvi_graph *graph, int value) {
    rcvi_text text;
    rcvi_text_init(&text, d->cell->context);
    if (graph->values[value].name) {
        rcvi_text_add(&text, "%s", graph->values[value].name);
    } else {
        rcvi_graph_print_value(graph, value, &text);
    }
    return finish_text(d, &text);
}

static void set(description *d, json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value)) d->failed = true;
}

static void append(description *d, json_t *array, json_t *value) {
    if (json_array_append_new(array, value)) d->failed = true;
}

/* ---- parameters and states ---- */

static json_t *shape_of(description *d, const rcvi_graph *graph, const rcvi_param *param, size_t stacked) {
    rcvi_text text;
    rcvi_text_init(&text, d->cell->context);
    const char *rows = graph->sizes[param->rows].name, *columns = graph->sizes[param->columns].name;
    if (param->blocks != RCVI_SIZE_ONE) {
        const char *blocks = graph->sizes[param->blocks].name;
        rcvi_text_add(&text, "[%zu*%s, %s/%s, %s/%s]", stacked, blocks, rows, blocks, columns, blocks);
    } else {
        rcvi_text_add(&text, "[");
        if (stacked > 1) rcvi_text_add(&text, "%zu*", stacked);
        rcvi_text_add(&text, param->vector ? "%s]" : "%s, %s]", rows, columns);
    }
    return finish_text(d, &text);
}

/* Shape of a stack of matrices with different numbers of rows: [hidden + proj, input]. */
static json_t *mixed_shape(description *d, const rcvi_graph *graph, size_t first, size_t end) {
    rcvi_text text;
    rcvi_text_init(&text, d->cell->context);
    for (size_t i = first; i < end; i++) {
        rcvi_text_add(&text, "%s%s", i == first ? "[" : " + ", graph->sizes[graph->params[i].rows].name);
    }
    const rcvi_param *param = &graph->params[first];
    rcvi_text_add(&text, param->vector ? "]" : ", %s]", graph->sizes[param->columns].name);
    return finish_text(d, &text);
}

static json_t *parameters(description *d) {
    const rcvi_graph *graph = &d->cell->graph;
    json_t *list = json_array();
    for (size_t first = 0, end; first < graph->param_count; first = end) {
        const rcvi_param *param = &graph->params[first];
        json_t *entry = json_object(), *parts = json_array(), *rows = json_array();
        bool equal = true;
        for (end = first; end < graph->param_count && !strcmp(graph->params[end].stored, param->stored); end++) {
            const rcvi_param *part = &graph->params[end];
            equal &= part->rows == param->rows;
            append(d, parts, json_sprintf("%s.%s", part->equation, part->symbol));
            append(d, rows, json_string(graph->sizes[part->rows].name));
        }
        set(d, entry, "name", json_string(param->stored));
        set(d, entry, "shape", equal ? shape_of(d, graph, param, end - first) : mixed_shape(d, graph, first, end));
        set(d, entry, "stacks", parts);
        set(d, entry, "rows", rows);
        if (!param->vector) set(d, entry, "columns", json_string(graph->sizes[param->columns].name));
        if (param->blocks != RCVI_SIZE_ONE) set(d, entry, "blocks", json_string(graph->sizes[param->blocks].name));
        if (param->constant) set(d, entry, "initial", json_real(param->initial));
        if (param->shortcut) set(d, entry, "note", json_string("only where the two sizes differ"));
        append(d, list, entry);
    }
    return list;
}

static bool is_declared(const rcvi_ast *ast, const char *name) {
    for (size_t i = 0; i < ast->declaration_count; i++) {
        if (!strcmp(ast->declarations[i].name, name)) return true;
    }
    return false;
}

/* What one may not expect: a declared vector or matrix that several equations name is several parameters. Parameters of one symbol are together. */
static json_t *notes(description *d) {
    const rcvi_graph *graph = &d->cell->graph;
    json_t *list = json_array();
    for (size_t first = 0, end; first < graph->param_count; first = end) {
        const rcvi_param *param = &graph->params[first];
        for (end = first; end < graph->param_count && !strcmp(graph->params[end].symbol, param->symbol);) end++;
        if (end - first < 2 || !is_declared(&d->cell->ast, param->symbol)) continue;
        rcvi_text text;
        char *names = NULL;
        rcvi_text_init(&text, d->cell->context);
        for (size_t i = first; i < end; i++)
            rcvi_text_add(&text, "%s%s.%s", i > first ? ", " : "", graph->params[i].equation, param->symbol);
        if (rcvi_text_take(&text, &names) == RCV_OK)
            append(d, list,
                   json_sprintf("the %s %s is %zu parameters, one for each equation that names it: %s",
                                param->vector ? "vector" : "matrix", param->symbol, end - first, names));
        else
            d->failed = true;
        rcvi_free(d->cell->context, names);
    }
    return list;
}

static json_t *states(description *d) {
    const rcvi_graph *graph = &d->cell->graph;
    json_t *list = json_array();
    for (size_t i = 0; i < graph->state_count; i++) {
        append(
            d, list,
            json_pack("{s:s, s:s}", "name", graph->states[i].name, "size", graph->sizes[graph->states[i].size].name));
    }
    return list;
}

static json_t *sizes(description *d) {
    const rcvi_graph *graph = &d->cell->graph;
    json_t *object = json_object();
    for (size_t i = RCVI_SIZE_HIDDEN + 1; i < graph->size_count; i++) {
        set(d, object, graph->sizes[i].name, json_integer(graph->sizes[i].value));
    }
    return object;
}

/* ---- stages ---- */

/* Finds the values that another stage, a state, an output or a gradient uses. */
static void find_used_outside(const rcvi_graph *graph, const rcvi_analysis *analysis, bool *used) {
    for (size_t v = 0; v < graph->value_count; v++) {
        for (int a = 0; a < 2; a++) {
            int argument = graph->values[v].arguments[a];
            if (argument != RCVI_NONE && analysis->stage_of[v] != analysis->stage_of[argument]) used[argument] = true;
        }
    }
    for (size_t i = 0; i < graph->output_count; i++) used[graph->outputs[i].value] = true;
    for (size_t i = 0; i < graph->state_count; i++) used[graph->states[i].next] = true;
    for (size_t i = 0; i < graph->gradient_count; i++) used[graph->gradients[i].left] = true;
}

static json_t *stage(description *d, const rcvi_graph *graph, const rcvi_analysis *analysis, size_t s,
                     const bool *used) {
    json_t *values = json_array(), *members = json_array(), *object = json_object();
    for (size_t v = 0; v < graph->value_count; v++) {
        bool state = graph->values[v].operation == RCVI_STATE;
        if (analysis->stage_of[v] != (int)s || state || !(graph->values[v].name || used[v])) continue;
        append(d, values, value_text(d, graph, (int)v));
    }
    for (size_t i = 0; i < graph->state_count; i++) {
        if (analysis->stage_of[graph->states[i].value] == (int)s)
            append(d, members, json_string(graph->states[i].name));
    }
    rcvi_text reason;
    rcvi_text_init(&reason, d->cell->context);
    rcvi_stage_reason(graph, analysis, s, &reason);
    set(d, object, "class", json_string(rcvi_class_names[analysis->stages[s].class]));
    set(d, object, "values", values);
    set(d, object, "states", members);
    set(d, object, "reason", finish_text(d, &reason));
    return object;
}

static json_t *stages(description *d, const rcvi_graph *graph) {
    rcvi_analysis analysis;
    json_t *list = json_array();
    bool *used = rcvi_new(d->cell->context, graph->value_count, sizeof *used);
    if (!used || rcvi_analyse(d->cell->context, graph, &analysis)) {
        rcvi_free(d->cell->context, used);
        d->failed = true;
        return list;
    }
    find_used_outside(graph, &analysis, used);
    for (size_t s = 0; s < analysis.stage_count; s++) append(d, list, stage(d, graph, &analysis, s, used));
    rcvi_analysis_free(d->cell->context, &analysis);
    rcvi_free(d->cell->context, used);
    return list;
}

/* ---- forward values that the adjoint reads ---- */

static json_t *stored_values(description *d) {
    json_t *available = json_array(), *saved = json_array(), *again = json_array(), *object = json_object();
    for (size_t i = 0; i < d->adjoint.input_count; i++) {
        const rcvi_graph_input *input = &d->adjoint.inputs[i];
        if (input->source == RCVI_NONE) continue;
        bool is_kept = d->is_constant[input->source] || rcvi_graph_is_available(&d->cell->graph, input->source);
        append(d, is_kept ? available : saved, json_string(input->name));
    }
    for (size_t v = 0; v < d->cell->graph.value_count; v++) {
        if (d->recomputed[v] && !d->is_constant[v]) append(d, again, value_text(d, &d->cell->graph, (int)v));
    }
    set(d, object, "available", available);
    set(d, object, "saved", saved);
    set(d, object, "recomputed", again);
    return object;
}

static json_t *backward(description *d) {
    json_t *object = json_object();
    rcvi_text equations;
    rcvi_text_init(&equations, d->cell->context);
    rcvi_graph_print(&d->adjoint, &equations);
    set(d, object, "equations", finish_text(d, &equations));
    set(d, object, "stages", stages(d, &d->adjoint));
    return object;
}

static json_t *build_description(description *d, bool with_backward) {
    json_t *object = json_object();
    rcvi_text equations;
    rcvi_text_init(&equations, d->cell->context);
    rcvi_ast_print(&d->cell->ast, &equations);
    set(d, object, "name", json_string(d->cell->ast.name));
    set(d, object, "equations", finish_text(d, &equations));
    set(d, object, "sizes", sizes(d));
    set(d, object, "parameters", parameters(d));
    set(d, object, "notes", notes(d));
    set(d, object, "states", states(d));
    set(d, object, "stages", stages(d, &d->cell->graph));
    set(d, object, "derivative", stored_values(d));
    if (with_backward) set(d, object, "backward", backward(d));
    return object;
}

/* ---- as text ---- */

static const char *get(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static void print_list(const json_t *array, const char *separator, rcvi_text *out) {
    for (size_t i = 0; i < json_array_size(array); i++) {
        rcvi_text_add(out, "%s%s", i ? separator : "", json_string_value(json_array_get(array, i)));
    }
}

static void print_stages(const json_t *list, rcvi_text *out) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *s = json_array_get(list, i);
        rcvi_text_add(out, "  %zu %-9s", i + 1, get(s, "class"));
        print_list(json_object_get(s, "values"), ", ", out);
        rcvi_text_add(out, "\n              %s\n", get(s, "reason"));
    }
}

static void print_names(const char *title, const json_t *list, rcvi_text *out) {
    rcvi_text_add(out, "  %-11s", title);
    print_list(list, ", ", out);
    rcvi_text_add(out, json_array_size(list) ? "\n" : "nothing\n");
}

static void print_description(const json_t *object, rcvi_text *out) {
    const json_t *list = json_object_get(object, "parameters");
    rcvi_text_add(out, "%s\nparameters of a layer\n", get(object, "equations"));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *p = json_array_get(list, i);
        rcvi_text_add(out, "  %-16s %-22s ", get(p, "name"), get(p, "shape"));
        print_list(json_object_get(p, "stacks"), " ", out);
        if (get(p, "note")) rcvi_text_add(out, ", %s", get(p, "note"));
        rcvi_text_add(out, "\n");
    }
    list = json_object_get(object, "notes");
    for (size_t i = 0; i < json_array_size(list); i++) {
        rcvi_text_add(out, "  note: %s\n", json_string_value(json_array_get(list, i)));
    }
    list = json_object_get(object, "states");
    rcvi_text_add(out, "\nstates\n");
    for (size_t i = 0; i < json_array_size(list); i++) {
        rcvi_text_add(out, "  %-16s [%s]\n", get(json_array_get(list, i), "name"),
                      get(json_array_get(list, i), "size"));
    }
    rcvi_text_add(out, "\nstages over time\n");
    print_stages(json_object_get(object, "stages"), out);
    const json_t *derivative = json_object_get(object, "derivative");
    rcvi_text_add(out, "\nforward values that the backward pass reads\n");
    print_names("available", json_object_get(derivative, "available"), out);
    print_names("saved", json_object_get(derivative, "saved"), out);
    print_names("recomputed", json_object_get(derivative, "recomputed"), out);
    const json_t *back = json_object_get(object, "backward");
    if (!back) return;
    rcvi_text_add(out, "\nadjoint, over the steps taken backwards\n%s\nstages of the adjoint\n",
                  get(back, "equations"));
    print_stages(json_object_get(back, "stages"), out);
}

rcv_status rcv_cell_describe(const rcv_cell *cell, unsigned flags, char **text) {
    RCVI_NEED(text, "text");
    *text = NULL;
    RCVI_NEED(cell, "cell");
    description d = {.cell = cell};
    rcvi_pool_init(&d.pool, cell->context);
    rcvi_graph_init(&d.adjoint, &d.pool);
    d.recomputed = rcvi_new(cell->context, cell->graph.value_count, sizeof *d.recomputed);
    d.is_constant = rcvi_new(cell->context, cell->graph.value_count, sizeof *d.is_constant);
    rcv_status status =
        d.recomputed && d.is_constant ? rcvi_differentiate(&cell->graph, &d.adjoint, d.recomputed) : RCV_NO_MEMORY;
    if (!status) {
        rcvi_find_constants(&cell->graph, d.is_constant);
        json_t *object = build_description(&d, flags & RCV_DESCRIBE_BACKWARD);
        if (d.failed) {
            status = rcvi_no_memory(0);
        } else if (flags & RCV_DESCRIBE_JSON) {
            status = rcvi_json_print(cell->context, object, JSON_INDENT(2), text);
        } else {
            rcvi_text out;
            rcvi_text_init(&out, cell->context);
            print_description(object, &out);
            status = rcvi_text_take(&out, text);
        }
        json_decref(object);
    }
    rcvi_free(cell->context, d.recomputed);
    rcvi_free(cell->context, d.is_constant);
    rcvi_graph_free(&d.adjoint);
    rcvi_pool_free(&d.pool);
    return status;
}
