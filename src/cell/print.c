/* Prints an AST as text. Parentheses are printed only where the grammar needs them. */
#include "cell/ast.h"

enum { SUM, PRODUCT, UNARY, APPLICATION };

static int precedence(const rcvi_expr *expr) {
    switch (expr->kind) {
    case RCVI_EXPR_BINARY: return expr->operator== '+' || expr->operator== '-' ? SUM : PRODUCT;
    case RCVI_EXPR_NEGATE: return UNARY;
    default: return APPLICATION;
    }
}

static void print_expr(const rcvi_expr *expr, int least, rcvi_text *out) {
    bool parenthesis = precedence(expr) < least;
    if (parenthesis) rcvi_text_add(out, "(");
    switch (expr->kind) {
    case RCVI_EXPR_NUMBER: rcvi_text_add_number(out, expr->number); break;
    case RCVI_EXPR_NAME: rcvi_text_add(out, "%s", expr->name); break;
    case RCVI_EXPR_NEXT: rcvi_text_add(out, "%s'", expr->name); break;
    case RCVI_EXPR_LAG: rcvi_text_add(out, "%s[t-%d]", expr->name, expr->lag); break;
    case RCVI_EXPR_APPLY:
        rcvi_text_add(out, "%s ", expr->name);
        print_expr(expr->left, APPLICATION, out);
        break;
    case RCVI_EXPR_CALL:
        rcvi_text_add(out, "%s(", expr->name);
        print_expr(expr->left, SUM, out);
        if (expr->right) {
            rcvi_text_add(out, ", ");
            print_expr(expr->right, SUM, out);
        }
        rcvi_text_add(out, ")");
        break;
    case RCVI_EXPR_NEGATE:
        rcvi_text_add(out, "-");
        print_expr(expr->left, UNARY, out);
        break;
    case RCVI_EXPR_BINARY: {
        int own = precedence(expr);
        print_expr(expr->left, own, out);
        rcvi_text_add(out, " %c ", expr->operator);
        print_expr(expr->right, own + 1, out);
        break;
    }
    }
    if (parenthesis) rcvi_text_add(out, ")");
}

static void print_declaration(const rcvi_declaration *d, rcvi_text *out) {
    static const char *const words[] = {"state", "size", "matrix", "vector"};
    if (d->first) {
        rcvi_text_add(out, "\n    %s %s", words[d->kind], d->name);
    } else {
        rcvi_text_add(out, ", %s", d->name);
    }
    if (d->kind == RCVI_DECLARE_STATE && d->size) rcvi_text_add(out, "[%s]", d->size);
    if (d->kind == RCVI_DECLARE_MATRIX && d->size) rcvi_text_add(out, " blocks %s", d->size);
    if (d->stored) rcvi_text_add(out, " as %s", d->stored);
    if (d->has_number) {
        rcvi_text_add(out, " = ");
        rcvi_text_add_number(out, d->number);
    }
}

void rcvi_ast_print(const rcvi_ast *ast, rcvi_text *out) {
    rcvi_text_add(out, "cell %s(%s) {", ast->name, ast->input);
    for (size_t i = 0; i < ast->declaration_count; i++) print_declaration(&ast->declarations[i], out);
    for (size_t i = 0; i < ast->equation_count; i++) {
        const rcvi_equation *equation = &ast->equations[i];
        rcvi_text_add(out, "\n    %s", equation->name);
        if (equation->next) rcvi_text_add(out, "'");
        if (equation->size) rcvi_text_add(out, "[%s]", equation->size);
        rcvi_text_add(out, " = ");
        print_expr(equation->value, SUM, out);
    }
    rcvi_text_add(out, "\n    return ");
    print_expr(ast->output, SUM, out);
    rcvi_text_add(out, "\n}\n");
}
