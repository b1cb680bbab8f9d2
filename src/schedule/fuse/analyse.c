/* The analysis of a fusion: chooses the method, phase and level of every value, and the affine forms. It writes no steps. */
#include "schedule/fuse/internal.h"

typedef struct {
    rcvi_fusion *fusion;
    const rcvi_graph *graph;
    int count;
    int *uses;         /* [values] */
    bool *stateful;    /* [values] depends on a state */
    bool *feeds_state; /* [values] a state depends on it */
} analysis;

static int argument_count(const rcvi_graph *graph, int v) {
    return rcvi_operations[graph->values[v].operation].arguments;
}

static int64_t features(const rcvi_graph *graph, int v) { return rcvi_features(graph, graph->values[v].size); }

static bool is_matrix(const rcvi_graph *graph, int v) {
    rcvi_operation operation = graph->values[v].operation;
    return operation == RCVI_MATRIX || operation == RCVI_MATRIX_TRANSPOSE;
}

static bool is_early(const analysis *w, int v) { return w->fusion->phase[v] == RCVI_BEFORE_LOOP; }

static void count_uses(analysis *w) {
    const rcvi_graph *graph = w->graph;
    for (int v = 0; v < w->count; v++) {
        for (int a = 0; w->fusion->emitter.live[v] && a < argument_count(graph, v); a++)
            w->uses[graph->values[v].arguments[a]]++;
    }
    for (int v = 0; v < w->count; v++) w->uses[v] += w->fusion->needed[v] || w->fusion->kept[v];
    for (size_t s = 0; s < graph->state_count; s++) w->uses[graph->states[s].next]++;
    for (size_t o = 0; o < graph->output_count; o++) w->uses[graph->outputs[o].value]++;
    for (size_t g = 0; g < graph->gradient_count; g++) {
        w->uses[graph->gradients[g].left]++;
        if (graph->gradients[g].right != RCVI_NONE) w->uses[graph->gradients[g].right]++;
    }
}

/* Must it be stored as a value of its own, whatever reads it here? */
static bool is_stored(const analysis *w, int v) {
    const rcvi_graph *graph = w->graph;
    bool stored = w->fusion->needed[v] || w->fusion->kept[v];
    for (size_t s = 0; s < graph->state_count; s++) stored |= graph->states[s].next == v;
    for (size_t o = 0; o < graph->output_count; o++) stored |= graph->outputs[o].value == v;
    for (size_t g = 0; g < graph->gradient_count; g++)
        stored |= graph->gradients[g].left == v || graph->gradients[g].right == v;
    return stored;
}

/* Is it the operand of a matrix product? Products read contiguous columns, not one column that is repeated. */
static bool is_multiplied(const analysis *w, int v) {
    bool found = false;
    for (int c = v + 1; c < w->count && !found; c++) {
        found = w->fusion->emitter.live[c] && !w->fusion->given[c] && is_matrix(w->graph, c) &&
                w->graph->values[c].arguments[0] == v;
    }
    return found;
}

static rcvi_method choose_method(const analysis *w, int v) {
    const rcvi_fusion *f = w->fusion;
    const rcvi_value *value = &w->graph->values[v];
    if (!f->emitter.live[v] || f->given[v] || argument_count(w->graph, v) == 0) return RCVI_GIVEN;
    if (is_matrix(w->graph, v)) {
        bool turns =
            f->rungs->transpose && !f->emitter.program->machine.gpu; /* on a GPU such products are steps of their own */
        bool forms = f->rungs->pack || turns || rcvi_fusion_has_library_only(f);
        return forms && f->emitter.params[value->index].blocks == 1 ? RCVI_AFFINE : RCVI_OWN_STEP;
    }
    if (value->operation == RCVI_SUM) return f->scalar_columns ? RCVI_MAPPED : RCVI_OWN_STEP;
    if (value->operation == RCVI_SPREAD) {
        bool lies = rcvi_graph_is_number(w->graph, value->arguments[0]) || is_stored(w, v) || is_multiplied(w, v);
        return lies ? RCVI_OWN_STEP : RCVI_ALIAS;
    }
    return f->rungs->fuse ? RCVI_MAPPED : RCVI_OWN_STEP;
}

static bool has_storage(const rcvi_fusion *f, int v) { return f->storage[v].kind != RCVI_NOT_STORED; }

/* Can it become a term of a larger sum? A form that nothing else reads, or a learned vector. */
static bool can_absorb(const analysis *w, int sum, int v) {
    const rcvi_fusion *f = w->fusion;
    bool form = f->method[v] == RCVI_AFFINE && w->uses[v] == 1 && !has_storage(f, v);
    return (form || w->graph->values[v].operation == RCVI_VECTOR) && features(w->graph, v) == features(w->graph, sum);
}

static void absorb(analysis *w, rcvi_form *form, int v) {
    rcvi_fusion *f = w->fusion;
    if (f->method[v] != RCVI_AFFINE) {
        form->vectors[form->vector_count++] = v;
        return;
    }
    const rcvi_form *from = &f->forms[f->form_of[v]];
    for (int i = 0; i < from->matrix_count; i++) form->matrices[form->matrix_count++] = from->matrices[i];
    for (int i = 0; i < from->vector_count; i++) form->vectors[form->vector_count++] = from->vectors[i];
    f->method[v] = RCVI_ABSORBED;
    f->form_of[v] = RCVI_NONE;
}

static int form_size(const analysis *w, int v) {
    const rcvi_fusion *f = w->fusion;
    if (f->method[v] != RCVI_AFFINE) return 1;
    const rcvi_form *form = &f->forms[f->form_of[v]];
    return form->matrix_count > form->vector_count ? form->matrix_count : form->vector_count;
}

/* Sums of forms and vectors become forms. In topological order, so that each form grows to its largest sum. */
static void find_forms(analysis *w) {
    rcvi_fusion *f = w->fusion;
    for (int v = 0; v < w->count; v++) {
        f->form_of[v] = RCVI_NONE;
        const rcvi_value *value = &w->graph->values[v];
        if (f->method[v] == RCVI_AFFINE) {
            f->form_of[v] = f->form_count;
            f->forms[f->form_count++] = (rcvi_form){.value = v, .matrices = {v}, .matrix_count = 1};
            continue;
        }
        bool sum = f->rungs->combine && value->operation == RCVI_ADD && f->emitter.live[v] && !f->given[v];
        if (!sum) continue;
        int a = value->arguments[0], b = value->arguments[1];
        bool formed = f->method[a] == RCVI_AFFINE || f->method[b] == RCVI_AFFINE;
        if (!formed || a == b || !can_absorb(w, v, a) || !can_absorb(w, v, b)) continue;
        if (form_size(w, a) + form_size(w, b) > RCVI_MAX_TERMS) continue;
        rcvi_form form = {.value = v};
        absorb(w, &form, a);
        absorb(w, &form, b);
        f->method[v] = RCVI_AFFINE;
        f->form_of[v] = f->form_count;
        f->forms[f->form_count++] = form;
    }
}

/* ---- phases ---- */

static void find_dependences(analysis *w) {
    const rcvi_graph *graph = w->graph;
    for (int v = 0; v < w->count; v++) {
        w->stateful[v] = graph->values[v].operation == RCVI_STATE && !w->fusion->known[graph->values[v].index];
        for (int a = 0; !w->fusion->given[v] && a < argument_count(graph, v); a++)
            w->stateful[v] |= w->stateful[graph->values[v].arguments[a]];
    }
    for (size_t s = 0; s < graph->state_count; s++) w->feeds_state[graph->states[s].next] |= !w->fusion->known[s];
    for (int v = w->count; v-- > 0;) {
        for (int a = 0; w->feeds_state[v] && a < argument_count(graph, v); a++)
            w->feeds_state[graph->values[v].arguments[a]] = true;
    }
}

static bool is_computed(const rcvi_fusion *f, int v) { return f->method[v] != RCVI_GIVEN; }

/* Where a loop is one kernel (a scan): a product on which no state depends is better computed after the loop, if its operand is computed
 * here. The kernel then computes the operand from values that it reads anyway. */
static bool is_better_after(const analysis *w, int v) {
    return rcvi_fusion_is_scan(w->fusion) && !w->feeds_state[v] &&
           is_computed(w->fusion, w->graph->values[v].arguments[0]);
}

/* Products that depend on no state, and what their operands are computed from, go before the loop. */
static void find_early(analysis *w) {
    rcvi_fusion *f = w->fusion;
    for (int v = w->count; v-- > 0;) {
        if (!is_computed(f, v) || w->stateful[v]) continue;
        if (is_matrix(w->graph, v) && !is_better_after(w, v)) f->phase[v] = RCVI_BEFORE_LOOP;
        for (int a = 0; is_early(w, v) && a < argument_count(w->graph, v); a++) {
            int argument = w->graph->values[v].arguments[a];
            if (is_computed(f, argument)) f->phase[argument] = RCVI_BEFORE_LOOP;
        }
    }
}

/* Products on which no state depends, and what is computed from them, go after the loop. */
static void find_late(analysis *w) {
    rcvi_fusion *f = w->fusion;
    for (int v = 0; v < w->count; v++) {
        if (!is_computed(f, v) || w->feeds_state[v] || is_early(w, v)) continue;
        bool late = is_matrix(w->graph, v);
        for (int a = 0; a < argument_count(w->graph, v); a++)
            late |= f->phase[w->graph->values[v].arguments[a]] == RCVI_AFTER_LOOP;
        if (late) f->phase[v] = RCVI_AFTER_LOOP;
    }
}

/* Terms that depend on no state come first in a sum, also where chunks are single steps: so the sum's bits do not depend on the chunks. */
static void order_forms(analysis *w) {
    rcvi_fusion *f = w->fusion;
    for (int i = 0; i < f->form_count; i++) {
        rcvi_form *form = &f->forms[i];
        int ordered[RCVI_MAX_TERMS] = {0}, count = 0;
        for (int late = 0; late < 2; late++) {
            for (int m = 0; m < form->matrix_count; m++) {
                if (w->stateful[form->matrices[m]] == late) ordered[count++] = form->matrices[m];
            }
        }
        for (int m = 0; m < count; m++) form->matrices[m] = ordered[m];
    }
}

static void split_forms(analysis *w) {
    rcvi_fusion *f = w->fusion;
    for (int i = 0; i < f->form_count; i++) {
        rcvi_form *form = &f->forms[i];
        if (f->form_of[form->value] != i) continue; /* absorbed by another */
        int early = 0;
        bool is_after = rcvi_fusion_is_scan(f) && f->phase[form->value] == RCVI_AFTER_LOOP; /* then all terms are */
        for (int m = 0; m < form->matrix_count; m++) {
            if (is_after) f->phase[form->matrices[m]] = RCVI_AFTER_LOOP;
            early += form->early[m] = is_early(w, form->matrices[m]);
        }
        if (early == form->matrix_count) f->phase[form->value] = RCVI_BEFORE_LOOP;
        form->split = early > 0 && early < form->matrix_count;
    }
}

/* ---- levels ---- */

/* The first level that can read a value: from memory, or (with `registers`, in a map of the same size) from a register. */
static int level_after(const analysis *w, int v, rcvi_phase phase, int64_t size, bool registers) {
    const rcvi_fusion *f = w->fusion;
    if (f->method[v] == RCVI_ALIAS)
        return level_after(w, w->graph->values[v].arguments[0], phase, size, registers && f->scalar_columns);
    if (!is_computed(f, v) || f->phase[v] != (unsigned char)phase) return 0;
    bool in_map = !rcvi_fusion_has_library_only(f) && !rcvi_fusion_is_scan_product(f, v);
    bool mapped = f->method[v] == RCVI_MAPPED || (f->method[v] == RCVI_AFFINE && in_map);
    return f->level[v] + !(registers && mapped && rcvi_fusion_columns(f, v) == size);
}

static bool is_sum(const analysis *w, int v) {
    return w->graph->values[v].operation == RCVI_SUM && w->fusion->method[v] == RCVI_MAPPED;
}

/* Does the level have sums, or else products, among the values before this one? */
static bool level_has(const analysis *w, int before, unsigned char phase, int level, bool sums) {
    const rcvi_fusion *f = w->fusion;
    if (!sums && rcvi_fusion_has_library_only(f)) return false;
    for (int v = 0; f->scalar_columns && v < before; v++) {
        bool kind = sums ? is_sum(w, v) : f->method[v] == RCVI_AFFINE && features(w->graph, v) == f->scalar_columns;
        if (kind && f->phase[v] == phase && f->level[v] == level) return true;
    }
    return false;
}

static int largest(int a, int b) { return a > b ? a : b; }

/* The number of values before this one of the same method, phase, level and size. */
static int count_at(const analysis *w, int before, rcvi_method method, unsigned char phase, int level, int64_t size) {
    const rcvi_fusion *f = w->fusion;
    int count = 0;
    for (int v = 0; v < before; v++) {
        count +=
            f->method[v] == method && f->phase[v] == phase && f->level[v] == level && rcvi_fusion_columns(f, v) == size;
    }
    return count;
}

static int form_level(const analysis *w, const rcvi_form *form, bool early, rcvi_phase phase) {
    int level = 0;
    for (int m = 0; m < form->matrix_count; m++) {
        if (form->split && form->early[m] != early) continue;
        level = largest(level, level_after(w, w->graph->values[form->matrices[m]].arguments[0], phase, 0, false));
    }
    return level;
}

static void find_levels(analysis *w) {
    rcvi_fusion *f = w->fusion;
    for (int v = 0; v < w->count; v++) {
        rcvi_method method = f->method[v];
        if (method == RCVI_GIVEN || method == RCVI_ABSORBED || method == RCVI_ALIAS) continue;
        int64_t size = rcvi_fusion_columns(f, v);
        int level = 0, most = rcvi_most_instructions(&f->emitter.program->machine);
        int cleared = f->late_count ? (int)f->late_first : 0; /* states; each takes an instruction */
        int limit = method == RCVI_AFFINE ? RCVI_MAX_PRODUCTS : most - cleared;
        if (method == RCVI_AFFINE) {
            level = form_level(w, &f->forms[f->form_of[v]], false, f->phase[v]);
        } else {
            for (int a = 0; a < argument_count(w->graph, v); a++) {
                level = largest(
                    level, level_after(w, w->graph->values[v].arguments[a], f->phase[v], size, method == RCVI_MAPPED));
            }
        }
        bool apart = is_sum(w, v) || (method == RCVI_AFFINE && size == f->scalar_columns);
        while ((method != RCVI_OWN_STEP && count_at(w, v, method, f->phase[v], level, size) >= limit) ||
               (apart && level_has(w, v, f->phase[v], level, method == RCVI_AFFINE)))
            level++;
        f->level[v] = level;
    }
    for (int i = 0; i < f->form_count; i++) {
        rcvi_form *form = &f->forms[i];
        if (f->form_of[form->value] == i && form->split)
            form->early_level = form_level(w, form, true, RCVI_BEFORE_LOOP);
    }
}

/* Moves a form to the first level that reads it: then it stays in a register, and is not stored. */
static void delay_forms(analysis *w) {
    rcvi_fusion *f = w->fusion;
    for (int v = 0; v < w->count; v++) {
        if (f->method[v] != RCVI_AFFINE || has_storage(f, v) || rcvi_fusion_is_scan_product(f, v)) continue;
        int first = -1;
        int64_t size = features(w->graph, v);
        bool near = true;
        int uses = 0;
        for (int c = v + 1; c < w->count; c++) {
            for (int a = 0; f->emitter.live[c] && a < argument_count(w->graph, c); a++) {
                if (w->graph->values[c].arguments[a] != v) continue;
                uses++;
                near &= f->method[c] == RCVI_MAPPED && f->phase[c] == f->phase[v] && rcvi_fusion_columns(f, c) == size;
                if (first < 0 || f->level[c] < first) first = f->level[c];
            }
        }
        if (!near || uses < w->uses[v] || first <= f->level[v]) continue;
        if (level_has(w, w->count, f->phase[v], first, true)) continue;
        if (count_at(w, w->count, RCVI_AFFINE, f->phase[v], first, size) < RCVI_MAX_PRODUCTS) f->level[v] = first;
    }
}

/* The first level of those that read the value, where all of them are computed in maps of this phase and size; else false. */
static bool find_first_reader(const analysis *w, int v, unsigned char phase, int64_t size, int *first) {
    const rcvi_fusion *f = w->fusion;
    int uses = 0;
    for (int c = v + 1; c < w->count; c++) {
        for (int a = 0; f->emitter.live[c] && a < argument_count(w->graph, c); a++) {
            if (w->graph->values[c].arguments[a] != v) continue;
            uses++;
            if (f->method[c] == RCVI_ALIAS && f->scalar_columns) {
                if (!find_first_reader(w, c, phase, size, first)) return false;
                continue;
            }
            if (f->method[c] != RCVI_MAPPED || f->phase[c] != phase || rcvi_fusion_columns(f, c) != size) return false;
            if (*first < 0 || f->level[c] < *first) *first = f->level[c];
        }
    }
    return uses + (f->kept[v] && !f->needed[v]) >= w->uses[v];
}

/* Moves values of the loop that depend on no state to the first level that reads them: then they share a map with it. What they read does not
 * change in a time step. */
static void delay_maps(analysis *w) {
    rcvi_fusion *f = w->fusion;
    int most = rcvi_most_instructions(&f->emitter.program->machine);
    for (int v = w->count; v-- > 0;) {
        int first = -1;
        if (f->method[v] != RCVI_MAPPED || f->phase[v] != RCVI_IN_LOOP || w->stateful[v] || !f->emitter.live[v])
            continue;
        int64_t size = rcvi_fusion_columns(f, v);
        if (!find_first_reader(w, v, RCVI_IN_LOOP, size, &first) || first <= f->level[v]) continue;
        if (count_at(w, w->count, RCVI_MAPPED, RCVI_IN_LOOP, first, size) < most) f->level[v] = first;
    }
}

/* The common size of the operands of all sums, where maps may sum over so many columns; else 0. */
static int64_t find_scalar_columns(const analysis *w) {
    const rcvi_fusion *f = w->fusion;
    int64_t size = 0, most = f->emitter.program->machine.max_sum_columns;
    if (!most || !f->rungs->fuse) return 0;
    for (int v = 0; v < w->count; v++) {
        const rcvi_value *value = &w->graph->values[v];
        if (!f->emitter.live[v] || f->given[v] || value->operation != RCVI_SUM) continue;
        int64_t own = features(w->graph, value->arguments[0]);
        if (own == 1 || own > most || (size && own != size)) return 0;
        size = own;
    }
    return size;
}

void rcvi_fusion_analyse(rcvi_fusion *f) {
    rcvi_program *program = f->emitter.program;
    rcv_context *context = program->pool.context;
    size_t count = f->emitter.graph->value_count;
    analysis w = {.fusion = f,
                  .graph = f->emitter.graph,
                  .count = (int)count,
                  .uses = rcvi_new(context, count, sizeof(int)),
                  .stateful = rcvi_new(context, count, sizeof(bool)),
                  .feeds_state = rcvi_new(context, count, sizeof(bool))};
    if (w.uses && w.stateful && w.feeds_state) {
        count_uses(&w);
        f->scalar_columns = find_scalar_columns(&w);
        for (int v = 0; v < w.count; v++) {
            f->method[v] = choose_method(&w, v);
            f->phase[v] = RCVI_IN_LOOP;
        }
        find_forms(&w);
        find_dependences(&w);
        order_forms(&w);
        if (f->time_map.chunk > 1) {
            find_early(&w);
            find_late(&w);
            split_forms(&w);
        }
        find_levels(&w);
        if (rcvi_fusion_has_library_only(f))
            delay_maps(&w);
        else
            delay_forms(&w);
    } else {
        program->failed = true;
    }
    rcvi_free(context, w.uses);
    rcvi_free(context, w.stateful);
    rcvi_free(context, w.feeds_state);
}
