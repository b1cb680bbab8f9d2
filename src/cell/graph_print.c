/* Prints graphs as equations. A value that is used twice gets a name, so that the length of the text is linear in the
 * size of the graph. */
#include "cell/graph.h"

#include <stdio.h>
#include <string.h>

enum { SUM, PRODUCT, UNARY, APPLICATION };
enum { DEEPEST = 24 };

typedef struct {
    const rcvi_graph *graph;
    rcvi_text *out;
    const int *uses; /* [values] number of uses, or NULL: values used twice are printed inline */
} printer;

static int precedence(rcvi_operation operation) {
    switch (operation) {
    case RCVI_ADD:
    case RCVI_SUBTRACT: return SUM;
    case RCVI_MULTIPLY:
    case RCVI_DIVIDE: return PRODUCT;
    case RCVI_NEGATE: return UNARY;
    default: return APPLICATION;
    }
}

static bool has_label(const printer *p, int v) {
    const rcvi_value *value = &p->graph->values[v];
    return value->name || (p->uses && p->uses[v] > 1 && rcvi_operations[value->operation].arguments > 0);
}

static void print_label(const printer *p, int v) {
    if (p->graph->values[v].name) {
        rcvi_text_add(p->out, "%s", p->graph->values[v].name);
    } else {
        rcvi_text_add(p->out, "v%d", v);
    }
}

static void print_param(const printer *p, int index, bool transpose) {
    const rcvi_param *param = &p->graph->params[index];
    if (param->equation) rcvi_text_add(p->out, "%s.", param->equation);
    rcvi_text_add(p->out, "%s%s%s", param->symbol, param->suffix, transpose ? "^T" : "");
}

static void print_body(const printer *p, int v, int least, int depth);

static void print_operand(const printer *p, int v, int least, int depth) {
    if (has_label(p, v)) {
        print_label(p, v);
    } else if (depth > DEEPEST) {
        rcvi_text_add(p->out, "...");
    } else {
        print_body(p, v, least, depth + 1);
    }
}

static void print_body(const printer *p, int v, int least, int depth) {
    const rcvi_value *value = &p->graph->values[v];
    const char *name = rcvi_operations[value->operation].name;
    int own = precedence(value->operation);
    if (own < least) rcvi_text_add(p->out, "(");
    switch (value->operation) {
    case RCVI_NUMBER: rcvi_text_add(p->out, "%.6g", value->number); break;
    case RCVI_SIZE: rcvi_text_add(p->out, "%s", p->graph->sizes[value->index].name); break;
    case RCVI_VECTOR: print_param(p, value->index, false); break;
    case RCVI_MATRIX:
    case RCVI_MATRIX_TRANSPOSE:
        print_param(p, value->index, value->operation == RCVI_MATRIX_TRANSPOSE);
        rcvi_text_add(p->out, " ");
        print_operand(p, value->arguments[0], APPLICATION, depth);
        break;
    case RCVI_SPREAD: print_operand(p, value->arguments[0], least, depth); break;
    case RCVI_NEGATE:
        rcvi_text_add(p->out, "-");
        print_operand(p, value->arguments[0], UNARY, depth);
        break;
    case RCVI_ADD:
    case RCVI_SUBTRACT:
    case RCVI_MULTIPLY:
    case RCVI_DIVIDE:
        print_operand(p, value->arguments[0], own, depth);
        rcvi_text_add(p->out, " %s ", name);
        print_operand(p, value->arguments[1], own + 1, depth);
        break;
    default:
        if (value->name && rcvi_operations[value->operation].arguments == 0) {
            rcvi_text_add(p->out, "%s", value->name);
            break;
        }
        rcvi_text_add(p->out, "%s(", name);
        print_operand(p, value->arguments[0], SUM, depth);
        if (value->arguments[1] != RCVI_NONE) {
            rcvi_text_add(p->out, ", ");
            print_operand(p, value->arguments[1], SUM, depth);
        }
        rcvi_text_add(p->out, ")");
    }
    if (own < least) rcvi_text_add(p->out, ")");
}

void rcvi_graph_print_value(const rcvi_graph *graph, int value, rcvi_text *out) {
    printer p = {graph, out, NULL};
    print_body(&p, value, SUM, DEEPEST - 4);
}

static void print_definition(const printer *p, const char *left, int value) {
    rcvi_text_add(p->out, "    %s = ", left);
    print_operand(p, value, SUM, 0);
    rcvi_text_add(p->out, "\n");
}

static void print_results(const printer *p) {
    const rcvi_graph *graph = p->graph;
    char left[128];
    for (size_t s = 0; s < graph->state_count; s++) {
        const rcvi_value *next = &graph->values[graph->states[s].next];
        snprintf(left, sizeof left, "%s'", graph->states[s].name);
        if (!next->name || strcmp(next->name, left)) print_definition(p, left, graph->states[s].next);
    }
    for (size_t i = 0; i < graph->output_count; i++) {
        const rcvi_value *value = &graph->values[graph->outputs[i].value];
        if (!value->name || strcmp(value->name, graph->outputs[i].name)) {
            print_definition(p, graph->outputs[i].name, graph->outputs[i].value);
        }
    }
    for (size_t i = 0; i < graph->gradient_count; i++) {
        const rcvi_gradient *gradient = &graph->gradients[i];
        rcvi_text_add(p->out, "    d.");
        print_param(p, gradient->param, false);
        rcvi_text_add(p->out, " += ");
        print_operand(p, gradient->left, APPLICATION, 0);
        if (gradient->right != RCVI_NONE) {
            rcvi_text_add(p->out, " (");
            print_operand(p, gradient->right, SUM, 0);
            rcvi_text_add(p->out, ")^T");
        }
        rcvi_text_add(p->out, "\n");
    }
}

void rcvi_graph_print(const rcvi_graph *graph, rcvi_text *out) {
    rcv_context *context = graph->pool->context;
    bool *live = rcvi_new(context, graph->value_count, sizeof *live);
    int *uses = rcvi_new(context, graph->value_count, sizeof *uses);
    int *height = rcvi_new(context, graph->value_count, sizeof *height);
    if (live && uses && height) {
        rcvi_graph_find_live(graph, live);
        for (size_t v = 0; v < graph->value_count; v++) {
            for (int a = 0; a < 2 && live[v]; a++) {
                if (graph->values[v].arguments[a] != RCVI_NONE) uses[graph->values[v].arguments[a]]++;
            }
        }
        printer p = {graph, out, uses};
        for (size_t v = 0; v < graph->value_count; v++) {
            /* a part of a deep expression gets a name: this bounds the recursion, and no text is elided */
            for (int a = 0; a < 2; a++) {
                int argument = graph->values[v].arguments[a];
                if (argument == RCVI_NONE || has_label(&p, argument)) continue;
                if (height[argument] >= DEEPEST - 4) uses[argument] = 2;
                if (!has_label(&p, argument) && height[argument] + 1 > height[v]) height[v] = height[argument] + 1;
            }
        }
        for (size_t v = 0; v < graph->value_count; v++) {
            if (!live[v] || !has_label(&p, (int)v) || rcvi_operations[graph->values[v].operation].arguments == 0)
                continue;
            rcvi_text_add(out, "    ");
            print_label(&p, (int)v);
            rcvi_text_add(out, " = ");
            print_body(&p, (int)v, SUM, 0);
            rcvi_text_add(out, "\n");
        }
        print_results(&p);
    } else {
        out->failed = true;
    }
    rcvi_free(context, live);
    rcvi_free(context, uses);
    rcvi_free(context, height);
}
