/* Values are made in an order in which each uses only earlier ones of its step (and any of earlier steps), and written
 * as equations in another order. Every operand carries a learned vector or matrix that its equation names nowhere else,
 * so that nothing cancels; the argument of a function with a kink or a flat part carries one too, so that it lies on
 * both sides. */
#include "generator.h"

enum { MAX_VALUES = 12, MAX_TEXT = 1 << 16 };
enum { SIZE_HIDDEN, SIZE_PROJ };
enum { NONE = -1 };

/* What an equation may do with states: anything; element by element; weigh and add them; multiply them too; not see
 * them. */
enum { ANYTHING, ELEMENTWISE, AFFINE, PRODUCTS, STATE_STYLES, INPUTS = STATE_STYLES };

typedef struct {
    char name[8];
    bool state; /* this is the equation of name' */
    int size;
    bool reaches; /* something returned depends on it */
    char *text;
    bool spread; /* its equation is of size one, and names the size it is spread to */
} value;

typedef struct {
    random_source *source;
    value values[MAX_VALUES]; /* in the order of dependence */
    int count, now;           /* the one being written; count for the return */
    bool uses[MAX_VALUES + 1][MAX_VALUES];
    char *out; /* of the equation being written */
    size_t length;
    int cell_style, style;
    int vectors, matrices, blocks; /* named in this equation so far */
    int most_vectors, most_matrices, most_blocks;
    int inputs;          /* uses of W in this equation */
    bool bias, shortcut; /* b, S named in this equation */
    bool proj, heads;    /* sizes in use */
    bool wide;           /* values that are spread from one number, and matrices times learned vectors */
} generator;

static int below(generator *g, int bound) { return random_below(g->source, bound); }

static void emit(generator *g, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(g->out + g->length, MAX_TEXT - g->length, format, arguments);
    va_end(arguments);
    assert_true(written >= 0 && g->length + (size_t)written < MAX_TEXT);
    g->length += (size_t)written;
}

static void emit_vector(generator *g) {
    emit(g, "v%d", g->vectors++);
    if (g->vectors > g->most_vectors) g->most_vectors = g->vectors;
}

static void emit_fresh_matrix(generator *g) {
    if (g->matrices == 0) g->matrices = 1; /* U is for values */
    emit(g, "M%d ", g->matrices++);
    if (g->matrices > g->most_matrices) g->most_matrices = g->matrices;
}

/* Ends with the blank before the operand. */
static void emit_matrix(generator *g, int rows, int columns) {
    if (rows == SIZE_HIDDEN && columns == SIZE_HIDDEN && below(g, 3) == 0) {
        emit(g, "R%d ", g->blocks++);
        g->heads = true;
        if (g->blocks > g->most_blocks) g->most_blocks = g->blocks;
        return;
    }
    if (g->matrices > 0) {
        emit_fresh_matrix(g);
        return;
    }
    emit(g, "U ");
    g->matrices = 1;
}

/* Draws a state or a value of an earlier step, or (count and above) a value of this step. NONE where elements must meet
 * elements and nothing of this size was found. */
static int choose_reference(generator *g, int size) {
    for (int tries = 0; tries < 10; tries++) {
        int choice = below(g, g->count + g->now);
        if (g->style == ANYTHING || g->values[choice % g->count].size == size) return choice;
    }
    return NONE;
}

static void reference_text(generator *g, int choice, char text[static 24]) {
    const value *v = &g->values[choice % g->count];
    g->uses[g->now][choice % g->count] = true;
    if (choice >= g->count)
        snprintf(text, 24, v->state ? "%s'" : "%s", v->name);
    else if (v->state)
        snprintf(text, 24, "%s", v->name);
    else
        snprintf(text, 24, "%s[t-%d]", v->name, below(g, 4) ? 1 : 2);
}

static void emit_input(generator *g);

static void emit_operand(generator *g, int size) {
    if (g->wide && g->style == ANYTHING && below(g, 12) == 0) {
        emit_fresh_matrix(g);
        emit_vector(g);
        return;
    }
    int choice = g->style == INPUTS ? NONE : choose_reference(g, size);
    if (choice == NONE) {
        emit_input(g);
        return;
    }
    char reference[24];
    reference_text(g, choice, reference);
    int own = g->values[choice % g->count].size;
    int kind = g->style == ANYTHING ? below(g, 8) : 1;
    if (kind == 0) { /* a reduction over features */
        emit_vector(g);
        emit(g, below(g, 2) ? " * sum(" : " * mean(");
        emit_vector(g);
        emit(g, " * %s)", reference);
    } else if (own == size && kind < 6) {
        if (below(g, 2)) {
            emit_vector(g);
            emit(g, " * %s", reference);
        } else {
            emit(g, "%s * ", reference);
            emit_vector(g);
        }
    } else {
        emit_matrix(g, size, own);
        emit(g, "%s", reference);
    }
}

/* Something that sees the input alone. W is shared by its two uses, which differ, lest they cancel. */
static void emit_input(generator *g) {
    int kind = below(g, 6);
    if (kind == 0 && !g->shortcut) {
        g->shortcut = true;
        emit_vector(g);
        emit(g, " * shortcut(x)");
    } else if (kind == 1 && !g->bias) {
        g->bias = true;
        emit(g, "b");
    } else if (kind > 2 && g->inputs < 2) {
        emit(g, g->inputs++ ? "tanh(W x)" : "W x");
    } else {
        emit_fresh_matrix(g);
        if (below(g, 2))
            emit(g, "x");
        else
            emit(g, "x[t-%d]", 1 + below(g, 3));
    }
}

static void emit_expression(generator *g, int size, int depth);

/* Something that takes both signs whatever is inside: in [..] * vector. */
static void emit_signed(generator *g, int size, int depth) {
    emit_vector(g);
    emit(g, " * (");
    emit_expression(g, size, depth);
    emit(g, ")");
}

static void emit_function(generator *g, int size, int depth) {
    static const char *const plain[] = {"tanh(",     "sigmoid(",       "softplus(",
                                        "exp(tanh(", "exp(-softplus(", "log(2 + tanh("};
    static const char *const close[] = {")", ")", ")", "))", "))", "))"};
    int kind = below(g, g->style == ANYTHING ? 12 : 11);
    if (kind < 6) {
        emit(g, "%s", plain[kind]);
        emit_expression(g, size, depth - 1);
        emit(g, "%s", close[kind]);
    } else if (kind < 8) {
        emit(g, kind == 6 ? "relu(" : "abs(");
        emit_signed(g, size, depth - 1);
        emit(g, ")");
    } else if (kind < 10) {
        emit(g, kind == 8 ? "min(" : "max(");
        emit_signed(g, size, depth - 1);
        emit(g, ", ");
        emit_signed(g, size, depth - 1);
        emit(g, ")");
    } else if (kind == 10) {
        emit(g, "sqrt(0.5 + softplus(");
        emit_expression(g, size, depth - 1);
        emit(g, "))");
    } else {
        emit(g, "layernorm(");
        emit_operand(g, size);
        emit(g, " + ");
        emit_input(g);
        emit(g, ")");
    }
}

static void emit_matrix_product(generator *g, int size, int depth) {
    int inner = below(g, 3) ? SIZE_HIDDEN : size;
    emit_matrix(g, size, inner);
    if (below(g, 2)) {
        emit(g, "tanh(");
    } else {
        emit(g, "(");
    }
    emit_operand(g, inner); /* fixes the columns */
    emit(g, " + ");
    emit_expression(g, inner, depth - 1);
    emit(g, ")");
}

static void emit_factor(generator *g, int size, int depth) {
    int kind = depth <= 0 ? below(g, 3) : below(g, 8);
    if (kind < 2) {
        emit_operand(g, size);
    } else if (kind == 2) {
        emit_input(g);
    } else if (kind < 6 || (kind == 6 && g->style != ANYTHING)) {
        emit_function(g, size, depth);
    } else if (kind == 6) {
        emit_matrix_product(g, size, depth);
    } else {
        emit(g, "(");
        emit_expression(g, size, depth - 1);
        emit(g, ")");
    }
}

/* Terms joined by operators; a divisor is kept above one, a sum keeps its first operand's vector. */
static void emit_expression(generator *g, int size, int depth) {
    if (below(g, 8) == 0) emit(g, "-");
    emit_factor(g, size, depth);
    for (int more = below(g, 3); more > 0; more--) {
        int kind = below(g, 8);
        if (kind < 3) {
            emit(g, below(g, 2) ? " + " : " - ");
            emit_factor(g, size, depth - 1);
        } else if (kind < 5) {
            emit(g, " * ");
            emit_function(g, size, depth - 1 > 0 ? depth - 1 : 0);
        } else if (kind < 6) {
            emit(g, " / (1.5 + softplus(");
            emit_expression(g, size, depth - 1);
            emit(g, "))");
        } else {
            emit(g, below(g, 2) ? " + " : " - ");
            emit(g, "%s * ", (const char *[]){"0.5", "1", "2e-1", "1.25"}[below(g, 4)]);
            emit_operand(g, size);
        }
    }
}

/* ---- whole cells ------------------------------------------------------------------------------------------------- */

static void begin_equation(generator *g) {
    g->out = calloc(1, MAX_TEXT);
    assert_non_null(g->out);
    g->length = 0;
    g->vectors = g->matrices = g->blocks = g->inputs = 0;
    g->bias = g->shortcut = false;
}

/* States times factors that do not see states, or with PRODUCTS times states. */
static void emit_affine(generator *g, int size, int style) {
    for (int more = below(g, 3); more > 0; more--) {
        emit(g, below(g, 2) ? " + " : " - ");
        if (style == PRODUCTS && below(g, 2)) {
            emit_operand(g, size);
        } else {
            g->style = INPUTS;
            emit_function(g, size, 1);
            g->style = style;
        }
        emit(g, " * ");
        emit_operand(g, size);
    }
    g->style = INPUTS;
    emit(g, " + ");
    emit_expression(g, size, 1);
}

/* A number of this step or the one before, which the equation spreads. */
static void write_spread(generator *g, value *v) {
    static const char *const functions[] = {"sigmoid(", "tanh(", "softplus("};
    char reference[24];
    begin_equation(g);
    reference_text(g, below(g, g->count + g->now), reference);
    emit(g, "%s", functions[below(g, 3)]); /* a draw a statement: compilers take those of one call in any order */
    emit(g, below(g, 2) ? "sum(" : "mean(");
    emit_vector(g);
    emit(g, " * %s))", reference);
    v->spread = true;
    v->text = g->out;
}

static void write_equation(generator *g) {
    value *v = &g->values[g->now];
    if (g->wide && !v->state && below(g, 4) == 0) {
        write_spread(g, v);
        return;
    }
    begin_equation(g);
    g->style = below(g, 6) == 0 ? INPUTS : g->cell_style == ANYTHING ? below(g, STATE_STYLES) : g->cell_style;
    emit_operand(g, v->size);
    if (g->style == AFFINE || g->style == PRODUCTS) {
        emit_affine(g, v->size, g->style);
    } else {
        emit(g, " + ");
        emit_expression(g, v->size, 2);
    }
    v->text = g->out;
}

static void mark_reaching(generator *g, int user) {
    for (int i = 0; i < g->count; i++) {
        if (!g->uses[user][i] || g->values[i].reaches) continue;
        g->values[i].reaches = true;
        mark_reaching(g, i);
    }
}

/* The return reads whatever nothing else would. */
static char *write_return(generator *g) {
    g->now = g->count;
    g->style = ANYTHING;
    begin_equation(g);
    emit_operand(g, SIZE_HIDDEN);
    mark_reaching(g, g->count);
    for (int i = 0; i < g->count; i++) {
        const value *v = &g->values[i];
        if (v->reaches) continue;
        emit(g, " + ");
        if (v->size == SIZE_HIDDEN) {
            emit_vector(g);
            emit(g, " * ");
        } else {
            emit_matrix(g, SIZE_HIDDEN, v->size);
        }
        emit(g, v->state ? "%s'" : "%s", v->name);
        g->uses[g->count][i] = true;
        mark_reaching(g, g->count);
    }
    return g->out;
}

static void choose_values(generator *g) {
    int states = 1 + below(g, 3), others = below(g, 5);
    g->count = states + others;
    for (int i = 0; i < g->count; i++) {
        value *v = &g->values[i];
        v->state = i < states;
        snprintf(v->name, sizeof v->name, v->state ? "s%d" : "e%d", i);
        v->size = below(g, 4) == 0 ? SIZE_PROJ : SIZE_HIDDEN;
        if (v->size == SIZE_PROJ) g->proj = true;
    }
    for (int i = g->count - 1; i > 0; i--) { /* the order of dependence is any */
        int j = below(g, i + 1);
        value swapped = g->values[i];
        g->values[i] = g->values[j];
        g->values[j] = swapped;
    }
}

static void emit_declarations(generator *g) {
    emit(g, "# A random cell\ncell random(x) {\n");
    if (g->proj) emit(g, "    size proj = 3\n");
    if (g->heads) emit(g, "    size heads = 2\n");
    for (int i = 0, first = 1; i < g->count; i++) {
        const value *v = &g->values[i];
        if (!v->state) continue;
        bool together = !first && below(g, 2); /* on the line of the state before */
        emit(g, "%s%s%s",
             together ? ", "
             : first  ? "    state "
                      : "\n    state ",
             v->name, v->size == SIZE_PROJ ? "[proj]" : "");
        first = 0;
    }
    emit(g, "\n");
    for (int i = 0; i < g->most_vectors; i++) {
        emit(g, "    vector v%d%s\n", i, (const char *[]){"", " = 1", " = -0.5", ""}[below(g, 4)]);
    }
    for (int i = 1; i < g->most_matrices; i++) emit(g, "    matrix M%d%s\n", i, i == 1 ? " as other" : "");
    for (int i = 0; i < g->most_blocks; i++) emit(g, "    matrix R%d blocks heads\n", i);
}

static char *generate(random_source *source, bool wide) {
    generator *g = calloc(1, sizeof *g);
    assert_non_null(g);
    g->source = source;
    g->wide = wide;
    g->cell_style = below(g, STATE_STYLES);
    choose_values(g);
    for (g->now = 0; g->now < g->count; g->now++) write_equation(g);
    char *returned = write_return(g);

    begin_equation(g);
    emit_declarations(g);
    int start = below(g, g->count), stride = below(g, 2) ? 1 : g->count - 1; /* written in another order */
    if (stride < 1) stride = 1;
    for (int k = 0; k < g->count; k++) {
        value *v = &g->values[(start + k * stride) % g->count];
        const char *mark = v->state ? "'" : v->size == SIZE_PROJ ? "[proj]" : v->spread ? "[hidden]" : "";
        emit(g, "    %s%s = %s\n", v->name, mark, v->text);
        free(v->text);
    }
    emit(g, "    return %s\n}\n", returned);
    free(returned);
    char *text = g->out;
    free(g);
    return text;
}

char *generate_cell(random_source *source) { return generate(source, false); }
char *generate_wide_cell(random_source *source) { return generate(source, true); }

void generate_cell_file(uint64_t seed, const char *path) {
    random_source source = {seed};
    char *text = generate_cell(&source);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    free(text);
}
