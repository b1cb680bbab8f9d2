/* A recursive descent parser for the grammar in docs/CELLS.md; the comment of each function is its production. The nesting depth is
 * limited, so that no text can exhaust the stack. */
#include "cell/lexer.h"

#include <string.h>

/* A parenthesis that is open, and the one around it. */
typedef struct opening {
    rcvi_text_position position;
    const struct opening *outer;
} opening;

typedef struct {
    rcvi_lexer lexer;
    rcvi_ast *ast;
    rcvi_token token;         /* the current token (one token of lookahead) */
    int last_line;            /* line of the token before it */
    int depth;                /* of expressions */
    const opening *innermost; /* open parenthesis; NULL: none. Inside of them line ends are ignored */
} parser;

static rcv_status next(parser *p) {
    p->last_line = p->token.position.line;
    return rcvi_lexer_next(&p->lexer, &p->token);
}

static bool at_symbol(const parser *p, char symbol) {
    return p->token.kind == RCVI_TOKEN_SYMBOL && p->token.symbol == symbol;
}

static bool at_word(const parser *p, const char *word) {
    return p->token.kind == RCVI_TOKEN_NAME && p->token.length == strlen(word) &&
           !memcmp(p->token.text, word, p->token.length);
}

/* Reports the innermost open parenthesis: the token cannot stand inside of it. */
static rcv_status report_unclosed(parser *p) {
    const rcvi_text_position begin = p->innermost->position, at = p->token.position;
    if (p->token.kind == RCVI_TOKEN_END)
        return rcvi_syntax_error(p->ast, begin, "this '(' is not closed: ')' is expected before the end of the text");
    if (at.line > begin.line)
        return rcvi_syntax_error(p->ast, begin, "this '(' is not closed: ')' is expected before line %d", at.line);
    return rcvi_syntax_error(p->ast, begin, "this '(' is not closed: ')' is expected before '%.*s' in column %d",
                             (int)p->token.length, p->token.text, at.column);
}

/* Does the token begin or end something outside of an expression, so that an open parenthesis must be closed before it? */
static bool ends_expression(const parser *p) {
    return p->token.kind == RCVI_TOKEN_END || at_symbol(p, '=') || at_symbol(p, '{') || at_symbol(p, '}');
}

static rcv_status expected(parser *p, const char *what) {
    if (p->innermost && ends_expression(p)) return report_unclosed(p);
    if (at_symbol(p, ')') && !p->innermost)
        return rcvi_syntax_error(p->ast, p->token.position, "%s is expected here; this ')' has no '(' before it", what);
    if (p->token.kind == RCVI_TOKEN_END) {
        return rcvi_syntax_error(p->ast, p->token.position, "the text ends where %s is expected", what);
    }
    return rcvi_syntax_error(p->ast, p->token.position, "%s is expected here, not '%.*s'", what, (int)p->token.length,
                             p->token.text);
}

static rcv_status take_symbol(parser *p, char symbol) {
    if (at_symbol(p, symbol)) return next(p);
    return expected(p, (char[]){'\'', symbol, '\'', 0});
}

static rcv_status take_name(parser *p, const char *what, const char **name) {
    static const char *const reserved[] = {"cell", "state", "size", "matrix", "vector", "blocks", "as", "return"};
    if (p->token.kind != RCVI_TOKEN_NAME) return expected(p, what);
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        if (at_word(p, reserved[i])) {
            if (p->innermost && p->token.position.line > p->innermost->position.line) return report_unclosed(p);
            return rcvi_syntax_error(p->ast, p->token.position, "'%s' is a word of the language and cannot be %s",
                                     reserved[i], what);
        }
    }
    *name = rcvi_pool_text(&p->ast->pool, p->token.text, p->token.length);
    return *name ? next(p) : RCV_NO_MEMORY;
}

static rcvi_expr *new_expr(parser *p, rcvi_expr_kind kind, rcvi_text_position position) {
    rcvi_expr *expr = rcvi_pool_new(&p->ast->pool, 1, sizeof *expr);
    if (expr) {
        expr->kind = kind;
        expr->position = position;
    }
    return expr;
}

/* A chain of n terms is a tree of height n: the limit of nesting alone does not bound the recursion of later passes. */
enum { MAX_HEIGHT = 1000 };

static rcv_status close_expr(parser *p, rcvi_expr *expr) {
    int left = expr->left ? expr->left->height : 0, right = expr->right ? expr->right->height : 0;
    expr->height = 1 + (left > right ? left : right);
    if (expr->height <= MAX_HEIGHT) return RCV_OK;
    return rcvi_syntax_error(p->ast, expr->position,
                             "this expression is too large; name a part of it in an equation of its own");
}

static rcv_status parse_sum(parser *p, rcvi_expr **out);

/* "[" "t" "-" INTEGER "]" */
static rcv_status parse_lag(parser *p, rcvi_expr *expr) {
    RCVI_TRY(take_symbol(p, '['));
    if (!at_word(p, "t")) return expected(p, "'t' of a lag such as x[t-1]");
    RCVI_TRY(next(p));
    RCVI_TRY(take_symbol(p, '-'));
    double lag = p->token.number;
    if (p->token.kind != RCVI_TOKEN_NUMBER) return expected(p, "a number of steps");
    if (lag < 1 || lag > RCVI_MAX_LAG || lag != (int)lag) {
        return rcvi_syntax_error(p->ast, p->token.position, "a lag is a whole number from 1 to %d", RCVI_MAX_LAG);
    }
    expr->kind = RCVI_EXPR_LAG;
    expr->lag = (int)lag;
    RCVI_TRY(next(p));
    return take_symbol(p, ']');
}

static rcv_status open_parenthesis(parser *p, opening *begin) {
    *begin = (opening){p->token.position, p->innermost};
    RCVI_TRY(take_symbol(p, '('));
    p->innermost = begin;
    return RCV_OK;
}

static rcv_status close_parenthesis(parser *p) {
    if (!at_symbol(p, ')')) return report_unclosed(p);
    p->innermost = p->innermost->outer;
    return next(p);
}

/* sum { "," sum } */
static rcv_status parse_list(parser *p, rcvi_expr *call) {
    for (;;) {
        rcvi_expr *argument = NULL;
        RCVI_TRY(parse_sum(p, &argument));
        if (call->arguments == 0) call->left = argument;
        if (call->arguments == 1) call->right = argument;
        call->arguments++;
        if (!at_symbol(p, ',')) return RCV_OK;
        RCVI_TRY(next(p));
    }
}

/* "(" list ")" */
static rcv_status parse_arguments(parser *p, rcvi_expr *call) {
    opening begin;
    rcv_status status = open_parenthesis(p, &begin);
    if (!status) status = parse_list(p, call);
    if (!status) status = close_parenthesis(p);
    p->innermost = begin.outer;
    return status ? status : close_expr(p, call);
}

/* "(" sum ")" */
static rcv_status parse_parenthesis(parser *p, rcvi_expr **out) {
    opening begin;
    rcv_status status = open_parenthesis(p, &begin);
    if (!status) status = parse_sum(p, out);
    if (!status) status = close_parenthesis(p);
    p->innermost = begin.outer;
    return status;
}

static bool operand_follows(const parser *p) {
    if (!p->innermost && p->token.position.line != p->last_line) return false;
    return p->token.kind == RCVI_TOKEN_NAME || p->token.kind == RCVI_TOKEN_NUMBER || at_symbol(p, '(');
}

/* application = MATRIX application | primary .
 * primary = NUMBER | NAME [ "'" | lag ] | FUNCTION "(" ... ")" | "(" sum ")" .
 * A name followed by an operand is parsed as a matrix product; the checker verifies that it is a matrix. */
static rcv_status parse_application(parser *p, rcvi_expr **out) {
    if (at_symbol(p, '(')) return parse_parenthesis(p, out);
    rcvi_expr *expr = new_expr(p, RCVI_EXPR_NUMBER, p->token.position);
    if (!expr) return RCV_NO_MEMORY;
    *out = expr;
    if (p->token.kind == RCVI_TOKEN_NUMBER) {
        expr->number = p->token.number;
        return next(p);
    }
    RCVI_TRY(take_name(p, "a value", &expr->name));
    expr->kind = RCVI_EXPR_NAME;
    if (at_symbol(p, '\'')) {
        expr->kind = RCVI_EXPR_NEXT;
        return next(p);
    }
    if (at_symbol(p, '[')) return parse_lag(p, expr);
    if (at_symbol(p, '(') && (rcvi_is_composed(expr->name) || rcvi_find_function(expr->name) >= 0)) {
        expr->kind = RCVI_EXPR_CALL;
        return parse_arguments(p, expr);
    }
    if (operand_follows(p)) {
        if (++p->depth > RCVI_MAX_NESTING) {
            return rcvi_syntax_error(p->ast, p->token.position, "expressions are nested deeper than %d",
                                     RCVI_MAX_NESTING);
        }
        expr->kind = RCVI_EXPR_APPLY;
        RCVI_TRY(parse_application(p, &expr->left));
        p->depth--;
    }
    return close_expr(p, expr);
}

/* unary = "-" unary | application . */
static rcv_status parse_unary(parser *p, rcvi_expr **out) {
    if (++p->depth > RCVI_MAX_NESTING) {
        return rcvi_syntax_error(p->ast, p->token.position, "expressions are nested deeper than %d", RCVI_MAX_NESTING);
    }
    rcv_status status;
    if (at_symbol(p, '-')) {
        rcvi_expr *expr = new_expr(p, RCVI_EXPR_NEGATE, p->token.position);
        if (!expr) return RCV_NO_MEMORY;
        *out = expr;
        RCVI_TRY(next(p));
        status = parse_unary(p, &expr->left);
        if (!status) status = close_expr(p, expr);
    } else {
        status = parse_application(p, out);
    }
    p->depth--;
    return status;
}

/* A left-associative chain of operands. */
static rcv_status parse_chain(parser *p, const char *operators, rcv_status (*operand)(parser *, rcvi_expr **),
                              rcvi_expr **out) {
    RCVI_TRY(operand(p, out));
    while (p->token.kind == RCVI_TOKEN_SYMBOL && strchr(operators, p->token.symbol)) {
        rcvi_expr *expr = new_expr(p, RCVI_EXPR_BINARY, p->token.position);
        if (!expr) return RCV_NO_MEMORY;
        expr->operator= p->token.symbol;
        expr->left = *out;
        *out = expr;
        RCVI_TRY(next(p));
        RCVI_TRY(operand(p, &expr->right));
        RCVI_TRY(close_expr(p, expr));
    }
    return RCV_OK;
}

/* product = unary { ( "*" | "/" ) unary } . */
static rcv_status parse_product(parser *p, rcvi_expr **out) { return parse_chain(p, "*/", parse_unary, out); }

/* sum = product { ( "+" | "-" ) product } . */
static rcv_status parse_sum(parser *p, rcvi_expr **out) { return parse_chain(p, "+-", parse_product, out); }

static rcv_status add_declaration(parser *p, const rcvi_declaration *declaration) {
    rcvi_ast *ast = p->ast;
    if (!rcvi_grow(ast->pool.context, &ast->declarations, &ast->declaration_capacity, ast->declaration_count + 1,
                   sizeof *ast->declarations)) {
        return RCV_NO_MEMORY;
    }
    ast->declarations[ast->declaration_count++] = *declaration;
    return RCV_OK;
}

/* NAME [ "[" NAME "]" ] */
static rcv_status parse_state(parser *p, rcvi_declaration *d) {
    RCVI_TRY(take_name(p, "a state's name", &d->name));
    if (!at_symbol(p, '[')) return RCV_OK;
    RCVI_TRY(next(p));
    d->size_position = p->token.position;
    RCVI_TRY(take_name(p, "a size", &d->size));
    return take_symbol(p, ']');
}

/* NAME "=" INTEGER */
static rcv_status parse_size(parser *p, rcvi_declaration *d) {
    RCVI_TRY(take_name(p, "a size's name", &d->name));
    RCVI_TRY(take_symbol(p, '='));
    if (p->token.kind != RCVI_TOKEN_NUMBER) return expected(p, "a whole number");
    d->number = p->token.number;
    d->has_number = true;
    if (d->number < 1 || d->number > 1e9 || d->number != (int)d->number) {
        return rcvi_syntax_error(p->ast, p->token.position, "a size is a whole number from 1 to 1e9");
    }
    return next(p);
}

/* [ "as" NAME ] */
static rcv_status parse_stored(parser *p, rcvi_declaration *d) {
    if (!at_word(p, "as")) return RCV_OK;
    RCVI_TRY(next(p));
    return take_name(p, "a name in files", &d->stored);
}

/* NAME [ "blocks" NAME ] [ "as" NAME ] */
static rcv_status parse_matrix(parser *p, rcvi_declaration *d) {
    RCVI_TRY(take_name(p, "a matrix's name", &d->name));
    if (at_word(p, "blocks")) {
        RCVI_TRY(next(p));
        d->size_position = p->token.position;
        RCVI_TRY(take_name(p, "the size that counts the blocks", &d->size));
    }
    return parse_stored(p, d);
}

/* NAME [ "as" NAME ] [ "=" [ "-" ] NUMBER ] */
static rcv_status parse_vector(parser *p, rcvi_declaration *d) {
    RCVI_TRY(take_name(p, "a vector's name", &d->name));
    RCVI_TRY(parse_stored(p, d));
    if (!at_symbol(p, '=')) return RCV_OK;
    RCVI_TRY(next(p));
    double sign = 1;
    if (at_symbol(p, '-')) {
        sign = -1;
        RCVI_TRY(next(p));
    }
    if (p->token.kind != RCVI_TOKEN_NUMBER) return expected(p, "a number");
    d->has_number = true;
    d->number = sign * p->token.number;
    return next(p);
}

static const struct {
    const char *word;
    rcvi_declaration_kind kind;
    rcv_status (*parse)(parser *, rcvi_declaration *);
} declarations[] = {
    {"state", RCVI_DECLARE_STATE, parse_state},
    {"size", RCVI_DECLARE_SIZE, parse_size},
    {"matrix", RCVI_DECLARE_MATRIX, parse_matrix},
    {"vector", RCVI_DECLARE_VECTOR, parse_vector},
};

/* equation = NAME [ "'" | "[" NAME "]" ] "=" sum . */
static rcv_status parse_equation(parser *p) {
    rcvi_ast *ast = p->ast;
    if (ast->equation_count == RCVI_MAX_EQUATIONS) {
        return rcvi_syntax_error(ast, p->token.position, "a cell has at most %d equations", RCVI_MAX_EQUATIONS);
    }
    if (!rcvi_grow(ast->pool.context, &ast->equations, &ast->equation_capacity, ast->equation_count + 1,
                   sizeof *ast->equations)) {
        return RCV_NO_MEMORY;
    }
    rcvi_equation *equation = &ast->equations[ast->equation_count++];
    *equation = (rcvi_equation){.position = p->token.position};
    RCVI_TRY(take_name(p, "a declaration, an equation or 'return'", &equation->name));
    if (at_symbol(p, '\'')) {
        equation->next = true;
        RCVI_TRY(next(p));
    } else if (at_symbol(p, '[')) {
        RCVI_TRY(next(p));
        equation->size_position = p->token.position;
        RCVI_TRY(take_name(p, "a size", &equation->size));
        RCVI_TRY(take_symbol(p, ']'));
    }
    RCVI_TRY(take_symbol(p, '='));
    return parse_sum(p, &equation->value);
}

static rcv_status parse_line(parser *p) {
    for (size_t i = 0; i < sizeof declarations / sizeof *declarations; i++) {
        if (!at_word(p, declarations[i].word)) continue;
        rcvi_declaration d = {.kind = declarations[i].kind, .first = true};
        do {
            RCVI_TRY(next(p));
            d = (rcvi_declaration){.kind = d.kind, .first = d.first, .position = p->token.position};
            RCVI_TRY(declarations[i].parse(p, &d));
            RCVI_TRY(add_declaration(p, &d));
            d.first = false;
        } while (at_symbol(p, ',') && d.kind != RCVI_DECLARE_SIZE);
        return RCV_OK;
    }
    if (at_word(p, "return")) {
        if (p->ast->output) return rcvi_syntax_error(p->ast, p->token.position, "a cell returns once");
        RCVI_TRY(next(p));
        return parse_sum(p, &p->ast->output);
    }
    return parse_equation(p);
}

/* "(" NAME ")" */
static rcv_status parse_input(parser *p) {
    opening begin;
    rcv_status status = open_parenthesis(p, &begin);
    if (!status) status = take_name(p, "the input's name", &p->ast->input);
    if (!status) status = close_parenthesis(p);
    p->innermost = begin.outer;
    return status;
}

/* cell = "cell" NAME "(" NAME ")" "{" { line } "}" . */
static rcv_status parse_cell(parser *p) {
    if (!at_word(p, "cell")) return expected(p, "'cell'");
    RCVI_TRY(next(p));
    RCVI_TRY(take_name(p, "the cell's name", &p->ast->name));
    RCVI_TRY(parse_input(p));
    RCVI_TRY(take_symbol(p, '{'));
    bool first = true;
    while (!at_symbol(p, '}')) {
        if (!first && p->token.kind != RCVI_TOKEN_END && p->token.position.line == p->last_line) {
            return expected(p, "an operator or the end of the line");
        }
        first = false;
        RCVI_TRY(parse_line(p));
    }
    p->ast->end = p->token.position;
    if (!p->ast->output) return rcvi_syntax_error(p->ast, p->ast->end, "the cell ends without 'return'");
    RCVI_TRY(next(p));
    return p->token.kind == RCVI_TOKEN_END ? RCV_OK : expected(p, "the end of the text");
}

rcv_status rcvi_ast_parse(rcv_context *context, const char *text, size_t length, const char *file, rcvi_ast *ast) {
    *ast = (rcvi_ast){0};
    rcvi_pool_init(&ast->pool, context);
    if (length > RCVI_LIMIT_CELL) {
        return rcvi_fail(RCV_SYNTAX, "%s:1:1: the text has %zu bytes and a cell at most %d", file, length,
                         RCVI_LIMIT_CELL);
    }
    ast->file = rcvi_pool_text(&ast->pool, file, strlen(file));
    ast->text = rcvi_pool_text(&ast->pool, text, length);
    ast->length = length;
    if (ast->pool.failed) return RCV_NO_MEMORY;
    parser p = {.ast = ast};
    rcvi_lexer_init(&p.lexer, ast);
    RCVI_TRY(next(&p));
    return parse_cell(&p);
}

void rcvi_ast_free(rcvi_ast *ast) {
    rcvi_free(ast->pool.context, ast->declarations);
    rcvi_free(ast->pool.context, ast->equations);
    rcvi_pool_free(&ast->pool);
    *ast = (rcvi_ast){0};
}
