/* Name resolution, and topological order of the equations; rejects unknown and duplicate names, cycles within a step, and unused equations. */
#include "cell/checker.h"

#include <string.h>

/* ---- names ---- */

int rcvi_find_state(const rcvi_checker *c, const char *name) {
    int state = 0;
    for (size_t i = 0; i < c->ast->declaration_count; i++) {
        if (c->ast->declarations[i].kind != RCVI_DECLARE_STATE) continue;
        if (!strcmp(c->ast->declarations[i].name, name)) return state;
        state++;
    }
    return RCVI_NONE;
}

int rcvi_find_equation(const rcvi_checker *c, const char *name, bool next) {
    for (size_t i = 0; i < c->ast->equation_count; i++) {
        if (c->ast->equations[i].next == next && !strcmp(c->ast->equations[i].name, name)) return (int)i;
    }
    return RCVI_NONE;
}

rcvi_symbol *rcvi_find_symbol(const rcvi_checker *c, const char *name) {
    for (size_t i = 0; i < c->symbol_count; i++) {
        if (c->symbols[i].name && !strcmp(c->symbols[i].name, name)) return &c->symbols[i];
    }
    return NULL;
}

int rcvi_find_size(const rcvi_checker *c, const char *name) {
    for (size_t i = 0; i < c->graph->size_count; i++) {
        if (!strcmp(c->graph->sizes[i].name, name)) return (int)i;
    }
    return RCVI_NONE;
}

/* What a name is that is known, but not as what it stands for; NULL: it is not known. */
static const char *describe_name(const rcvi_checker *c, const char *name) {
    const rcvi_symbol *s = rcvi_find_symbol(c, name);
    if (!strcmp(name, c->ast->input)) return "is the input, which has no next value";
    if (rcvi_find_equation(c, name, false) != RCVI_NONE) return "is no state and has no next value; leave out the '";
    if (s)
        return s->vector ? "is a learned vector; write it without ' or a lag" : "is a matrix; write a value after it";
    if (rcvi_find_function(name) != RCVI_NONE || rcvi_is_composed(name))
        return "is a function; write its argument in parentheses";
    return rcvi_find_size(c, name) != RCVI_NONE ? "is a size, which has no value in an equation" : NULL;
}

/* A name that may have been meant; NULL: none is near. Borrowed. */
static rcv_status find_near(const rcvi_checker *c, const char *name, const char **near) {
    size_t composed = 0;
    while (rcvi_composed[composed]) composed++;
    size_t capacity =
        c->symbol_count + c->ast->declaration_count + c->ast->equation_count + RCVI_OPERATION_COUNT + composed + 1;
    const char **names = rcvi_new(c->graph->pool->context, capacity, sizeof *names);
    if (!names) return RCV_NO_MEMORY;
    size_t count = 0;
    names[count++] = c->ast->input;
    for (size_t i = 0; i < c->ast->declaration_count; i++) names[count++] = c->ast->declarations[i].name;
    for (size_t i = 0; i < c->ast->equation_count; i++) names[count++] = c->ast->equations[i].name;
    for (size_t i = 0; i < RCVI_OPERATION_COUNT; i++) {
        if (rcvi_operations[i].function) names[count++] = rcvi_operations[i].name;
    }
    for (size_t i = 0; i < composed; i++) names[count++] = rcvi_composed[i];
    for (size_t i = 0; i < c->symbol_count; i++) {
        if (c->symbols[i].name) names[count++] = c->symbols[i].name;
    }
    *near = rcvi_nearest_name(name, names, count);
    rcvi_free(c->graph->pool->context, names);
    return RCV_OK;
}

/* Where an unknown name stands: x, x[t-1], x', or before a factor. */
typedef enum { UNKNOWN_NAME, UNKNOWN_LAG, UNKNOWN_STATE, UNKNOWN_FACTOR } unknown_place;

/* Fails for an unknown name; suggests the nearest known one. A name that is known, but cannot stand here, is explained. */
static rcv_status unknown(const rcvi_checker *c, rcvi_text_position position, const char *name, unknown_place place) {
    static const char *const what[] = {"the name", "the value", "the state", "the matrix or function"};
    const char *known = describe_name(c, name), *near = NULL;
    if (known) return rcvi_syntax_error(c->ast, position, "'%s' %s", name, known);
    RCVI_TRY(find_near(c, name, &near));
    if (place == UNKNOWN_FACTOR && near)
        return rcvi_syntax_error(c->ast, position,
                                 "%s '%s' is not known; did you mean '%s', or declare it with 'matrix %s'?",
                                 what[place], name, near, name);
    if (place == UNKNOWN_FACTOR)
        return rcvi_syntax_error(c->ast, position, "the matrix '%s' is not known; declare it with 'matrix %s'", name,
                                 name);
    if (near)
        return rcvi_syntax_error(c->ast, position, "%s '%s' is not known; did you mean '%s'?", what[place], name, near);
    return rcvi_syntax_error(c->ast, position, "%s '%s' is not known; %s '%s%s'", what[place], name,
                             place == UNKNOWN_STATE ? "declare it with" : "define it in an equation",
                             place == UNKNOWN_STATE ? "state " : name, place == UNKNOWN_STATE ? name : " = ...");
}

rcv_status rcvi_unknown_size(const rcvi_checker *c, rcvi_text_position position, const char *name) {
    const char **names = rcvi_new(c->graph->pool->context, c->graph->size_count, sizeof *names);
    if (!names) return RCV_NO_MEMORY;
    for (size_t i = 0; i < c->graph->size_count; i++) names[i] = c->graph->sizes[i].name;
    const char *near = rcvi_nearest_name(name, names, c->graph->size_count);
    rcv_status status = rcvi_syntax_error(c->ast, position, "the size '%s' is not known; %s%s%s", name,
                                          near ? "did you mean '" : "declare it with 'size ", near ? near : name,
                                          near ? "'?" : " = ...'");
    rcvi_free(c->graph->pool->context, names);
    return status;
}

/* ---- declarations ---- */

static rcv_status check_new_name(const rcvi_checker *c, rcvi_text_position position, const char *name,
                                 size_t declarations_before) {
    bool taken = !strcmp(name, c->ast->input) || rcvi_find_function(name) != RCVI_NONE || rcvi_is_composed(name);
    for (size_t i = 0; i < declarations_before; i++) taken |= !strcmp(name, c->ast->declarations[i].name);
    return taken ? rcvi_syntax_error(c->ast, position, "the name '%s' is taken already", name) : RCV_OK;
}

static rcv_status add_symbol(rcvi_checker *c, const rcvi_declaration *d) {
    rcvi_symbol *s = rcvi_find_symbol(c, d->name); /* W, U and b may be redeclared */
    if (!s) s = &c->symbols[c->symbol_count++];
    *s = (rcvi_symbol){.name = d->name,
                       .stored = d->stored   ? d->stored
                                 : s->stored ? s->stored
                                             : d->name,
                       .vector = d->kind == RCVI_DECLARE_VECTOR,
                       .constant = d->has_number,
                       .initial = d->number,
                       .blocks = RCVI_SIZE_ONE};
    for (rcvi_symbol *other = c->symbols; other < c->symbols + c->symbol_count; other++) {
        if (other != s && other->stored && s->stored && !strcmp(other->stored, s->stored)) {
            return rcvi_syntax_error(c->ast, d->position, "'%s' and '%s' would both be stored as '%s'", d->name,
                                     other->name, s->stored);
        }
    }
    if (!d->size) return RCV_OK;
    s->blocks = rcvi_find_size(c, d->size);
    return s->blocks == RCVI_NONE ? rcvi_unknown_size(c, d->size_position, d->size) : RCV_OK;
}

static rcv_status check_declarations(rcvi_checker *c) {
    static const rcvi_symbol builtin[] = {{.name = "W", .stored = "weight_ih"},
                                          {.name = "U", .stored = "weight_hh"},
                                          {.name = "b", .stored = "bias_ih", .vector = true}};
    for (size_t i = 0; i < sizeof builtin / sizeof *builtin; i++) c->symbols[c->symbol_count++] = builtin[i];
    rcvi_graph_add_size(c->graph, "one", 1);
    rcvi_graph_add_size(c->graph, "input", 0);
    rcvi_graph_add_size(c->graph, "hidden", 0);
    for (size_t i = 0; i < c->ast->declaration_count; i++) {
        const rcvi_declaration *d = &c->ast->declarations[i];
        RCVI_TRY(check_new_name(c, d->position, d->name, i));
        if (d->kind != RCVI_DECLARE_SIZE) continue;
        if (rcvi_find_size(c, d->name) != RCVI_NONE) {
            return rcvi_syntax_error(c->ast, d->position, "the size '%s' is there already", d->name);
        }
        rcvi_graph_add_size(c->graph, d->name, (int64_t)d->number);
    }
    if (c->graph->failed) return RCV_NO_MEMORY;
    rcvi_graph_add_input(c->graph, c->ast->input, RCVI_SIZE_INPUT, RCVI_NONE);
    for (size_t i = 0; i < c->ast->declaration_count; i++) {
        const rcvi_declaration *d = &c->ast->declarations[i];
        if (d->kind == RCVI_DECLARE_STATE) {
            int size = d->size ? rcvi_find_size(c, d->size) : RCVI_SIZE_HIDDEN;
            if (size == RCVI_NONE) return rcvi_unknown_size(c, d->size_position, d->size);
            if (rcvi_find_symbol(c, d->name)) {
                return rcvi_syntax_error(c->ast, d->position, "'%s' is a parameter and cannot be a state", d->name);
            }
            rcvi_graph_add_state(c->graph, d->name, size);
        } else if (d->kind != RCVI_DECLARE_SIZE) {
            RCVI_TRY(add_symbol(c, d));
        }
    }
    return c->graph->failed ? RCV_NO_MEMORY : RCV_OK;
}

static rcv_status check_equation_names(rcvi_checker *c) {
    for (size_t i = 0; i < c->ast->equation_count; i++) {
        const rcvi_equation *e = &c->ast->equations[i];
        if (e->next && rcvi_find_state(c, e->name) == RCVI_NONE) {
            return rcvi_syntax_error(c->ast, e->position, "'%s' is not a state; declare it with 'state %s'", e->name,
                                     e->name);
        }
        if (!e->next) {
            if (rcvi_find_state(c, e->name) != RCVI_NONE) {
                return rcvi_syntax_error(c->ast, e->position, "'%s' is a state; write %s' = for its next value",
                                         e->name, e->name);
            }
            RCVI_TRY(check_new_name(c, e->position, e->name, c->ast->declaration_count));
            if (rcvi_find_symbol(c, e->name)) {
                return rcvi_syntax_error(c->ast, e->position, "'%s' is a parameter and cannot be defined", e->name);
            }
        }
        int first = rcvi_find_equation(c, e->name, e->next);
        if (first < (int)i) {
            return rcvi_syntax_error(c->ast, e->position, "'%s%s' is defined twice, first in line %d", e->name,
                                     e->next ? "'" : "", c->ast->equations[first].position.line);
        }
    }
    for (size_t i = 0; i < c->ast->declaration_count; i++) {
        const rcvi_declaration *d = &c->ast->declarations[i];
        if (d->kind == RCVI_DECLARE_STATE && rcvi_find_equation(c, d->name, true) == RCVI_NONE) {
            return rcvi_syntax_error(c->ast, d->position,
                                     "the state '%s' is never updated; it needs an equation %s' = ...", d->name,
                                     d->name);
        }
    }
    return RCV_OK;
}

/* ---- the order of equations ---- */

static rcv_status check_name(rcvi_checker *c, const rcvi_expr *e, int *needs) {
    if (e->kind == RCVI_EXPR_NEXT) {
        *needs = rcvi_find_equation(c, e->name, true);
        return *needs == RCVI_NONE ? unknown(c, e->position, e->name, UNKNOWN_STATE) : RCV_OK;
    }
    int target = !strcmp(e->name, c->ast->input) ? rcvi_input_index(c) : rcvi_find_equation(c, e->name, false);
    rcvi_symbol *s = rcvi_find_symbol(c, e->name);
    if (e->kind == RCVI_EXPR_LAG) {
        if (target == RCVI_NONE && (rcvi_find_state(c, e->name) != RCVI_NONE || s)) {
            return rcvi_syntax_error(c->ast, e->position,
                                     "a lag is of the input or of an intermediate value; '%s' is a %s", e->name,
                                     s ? "parameter" : "state and already means the step before");
        }
        if (target == RCVI_NONE) return unknown(c, e->position, e->name, UNKNOWN_LAG);
        rcvi_equation_info *info = &c->info[target];
        if (!info->lags) info->lag_position = e->position;
        if (e->lag > info->lags) info->lags = e->lag;
        info->used = true;
        return RCV_OK;
    }
    if (target != RCVI_NONE) {
        if (target != rcvi_input_index(c)) *needs = target;
        return RCV_OK;
    }
    if (rcvi_find_state(c, e->name) != RCVI_NONE) return RCV_OK;
    if (!s) return unknown(c, e->position, e->name, UNKNOWN_NAME);
    if (s->vector) return RCV_OK;
    return rcvi_syntax_error(c->ast, e->position, "the matrix '%s' needs a value after it to multiply", e->name);
}

static rcv_status check_call(const rcvi_checker *c, const rcvi_expr *e) {
    int function = rcvi_find_function(e->name);
    int wanted = function == RCVI_NONE ? 1 : rcvi_operations[function].arguments;
    if (e->arguments == wanted) return RCV_OK;
    return rcvi_syntax_error(c->ast, e->position, "'%s' takes %d argument%s, not %d", e->name, wanted,
                             wanted == 1 ? "" : "s", e->arguments);
}

static rcv_status check_apply(const rcvi_checker *c, const rcvi_expr *e) {
    rcvi_symbol *s = rcvi_find_symbol(c, e->name);
    if (s && !s->vector) return RCV_OK;
    bool known = s || !strcmp(e->name, c->ast->input) || rcvi_find_state(c, e->name) != RCVI_NONE ||
                 rcvi_find_equation(c, e->name, false) != RCVI_NONE;
    if (known) {
        return rcvi_syntax_error(c->ast, e->position, "'%s' is not a matrix; an operator is missing after it", e->name);
    }
    return unknown(c, e->position, e->name, UNKNOWN_FACTOR);
}

/* Dependences within the step: equation e needs the equations needs[start[e]] .. needs[start[e + 1] - 1]. */
typedef struct {
    int *needs;
    size_t count, capacity;
    size_t *start;
} dependences;

static rcv_status walk(rcvi_checker *c, const rcvi_expr *e, dependences *d) {
    if (e->kind == RCVI_EXPR_NAME || e->kind == RCVI_EXPR_NEXT || e->kind == RCVI_EXPR_LAG) {
        int needed = RCVI_NONE;
        RCVI_TRY(check_name(c, e, &needed));
        if (needed == RCVI_NONE) return RCV_OK;
        if (!rcvi_grow(c->graph->pool->context, &d->needs, &d->capacity, d->count + 1, sizeof *d->needs))
            return RCV_NO_MEMORY;
        d->needs[d->count++] = needed;
        c->info[needed].used = true;
        return RCV_OK;
    }
    if (e->kind == RCVI_EXPR_CALL) RCVI_TRY(check_call(c, e));
    if (e->kind == RCVI_EXPR_APPLY) RCVI_TRY(check_apply(c, e));
    if (e->left) RCVI_TRY(walk(c, e->left, d));
    return e->right ? walk(c, e->right, d) : RCV_OK;
}

typedef struct {
    int equation;
    size_t next; /* need to look at */
} frame;

/* The open equations from `equation` round to itself. */
static rcv_status cycle_error(rcvi_checker *c, const frame *frames, size_t depth, int equation) {
    rcvi_text path;
    rcvi_text_init(&path, c->graph->pool->context);
    size_t first = depth - 1;
    while (frames[first].equation != equation) first--;
    for (size_t i = first; i <= depth; i++) {
        const rcvi_equation *e = &c->ast->equations[i < depth ? frames[i].equation : equation];
        if (i - first == 8 && i < depth - 1) {
            rcvi_text_add(&path, " -> ...");
            i = depth - 1;
        }
        rcvi_text_add(&path, "%s%s%s", i == first ? "" : " -> ", e->name, e->next ? "'" : "");
    }
    const rcvi_equation *e = &c->ast->equations[equation];
    char *text = NULL;
    rcv_status status = rcvi_text_take(&path, &text);
    if (!status) {
        status = rcvi_syntax_error(c->ast, e->position, "'%s%s' depends on itself within a step: %s", e->name,
                                   e->next ? "'" : "", text);
    }
    rcvi_free(c->graph->pool->context, text);
    return status;
}

/* Depth first from `root`, on a stack of our own: a chain of equations may be longer than the real one can take. */
static rcv_status visit(rcvi_checker *c, const dependences *d, int root, frame *frames) {
    size_t depth = 0;
    frames[depth++] = (frame){root, d->start[root]};
    c->info[root].mark = RCVI_OPENED;
    while (depth) {
        frame *top = &frames[depth - 1];
        if (top->next == d->start[top->equation + 1]) {
            c->info[top->equation].mark = RCVI_DONE;
            c->order[c->order_count++] = top->equation;
            depth--;
            continue;
        }
        int needed = d->needs[top->next++]; /* NOLINT(clang-analyzer-core.NullDereference): there is one more */
        if (c->info[needed].mark == RCVI_OPENED) return cycle_error(c, frames, depth, needed);
        if (c->info[needed].mark == RCVI_DONE) continue;
        c->info[needed].mark = RCVI_OPENED;
        frames[depth++] = (frame){needed, d->start[needed]};
    }
    return RCV_OK;
}

static rcv_status order_equations(rcvi_checker *c) {
    rcv_context *context = c->graph->pool->context;
    size_t total = c->ast->equation_count + 1;
    dependences d = {.start = rcvi_new(context, total + 1, sizeof *d.start)};
    frame *frames = rcvi_new(context, total, sizeof *frames);
    rcv_status status = d.start && frames ? RCV_OK : RCV_NO_MEMORY;
    for (size_t e = 0; !status && e < total; e++) {
        status = walk(c, rcvi_equation_value(c, (int)e), &d);
        d.start[e + 1] = d.count;
    }
    for (size_t e = 0; !status && e < total; e++) {
        if (c->info[e].mark == RCVI_UNSEEN) status = visit(c, &d, (int)e, frames);
    }
    rcvi_free(context, frames);
    rcvi_free(context, d.start);
    rcvi_free(context, d.needs);
    return status;
}

/* ---- unused names: usually a typing mistake elsewhere ---- */

static rcv_status check_all_used(const rcvi_checker *c) {
    for (size_t i = 0; i < c->ast->equation_count; i++) {
        const rcvi_equation *e = &c->ast->equations[i];
        if (!e->next && !c->info[i].used) {
            return rcvi_syntax_error(c->ast, e->position, "nothing uses '%s'", e->name);
        }
    }
    for (size_t i = 0; i < c->ast->declaration_count; i++) {
        const rcvi_declaration *d = &c->ast->declarations[i];
        const rcvi_symbol *s = rcvi_find_symbol(c, d->name);
        if (s && !s->used) return rcvi_syntax_error(c->ast, d->position, "no equation names '%s'", d->name);
    }
    return RCV_OK;
}

static rcv_status run_checks(rcvi_checker *c) {
    RCVI_TRY(check_declarations(c));
    RCVI_TRY(check_equation_names(c));
    RCVI_TRY(order_equations(c));
    RCVI_TRY(rcvi_elaborate(c));
    return check_all_used(c);
}

rcv_status rcvi_check(const rcvi_ast *ast, rcvi_graph *graph) {
    rcv_context *context = graph->pool->context;
    rcvi_checker c = {.ast = ast, .graph = graph};
    c.symbols = rcvi_new(context, ast->declaration_count + 4, sizeof *c.symbols);
    c.info = rcvi_new(context, ast->equation_count + 2, sizeof *c.info);
    c.order = rcvi_new(context, ast->equation_count + 1, sizeof *c.order);
    rcv_status status = c.symbols && c.info && c.order ? run_checks(&c) : RCV_NO_MEMORY;
    rcvi_free(context, c.symbols);
    rcvi_free(context, c.info);
    rcvi_free(context, c.order);
    return status;
}
