/* The abstract syntax tree (AST) of a cell. The AST's pool owns all nodes and strings. */
#ifndef RCVI_AST_H
#define RCVI_AST_H

#include "base/pool.h"
#include "cell/operation.h"

enum { RCVI_MAX_NAME = 64, RCVI_MAX_NESTING = 200, RCVI_MAX_LAG = 64, RCVI_MAX_EQUATIONS = 1024 };

typedef struct {
    int line, column; /* from 1 */
} rcvi_text_position;

typedef enum {
    RCVI_EXPR_NUMBER,
    RCVI_EXPR_NAME,   /* the input, a state's previous value, an intermediate value, a vector */
    RCVI_EXPR_NEXT,   /* name' */
    RCVI_EXPR_LAG,    /* name[t-lag] */
    RCVI_EXPR_APPLY,  /* name left: a matrix times a value */
    RCVI_EXPR_CALL,   /* name(left) or name(left, right) */
    RCVI_EXPR_NEGATE, /* -left */
    RCVI_EXPR_BINARY  /* left operator right */
} rcvi_expr_kind;

typedef struct rcvi_expr rcvi_expr;
struct rcvi_expr {
    rcvi_expr_kind kind;
    rcvi_text_position position;
    const char *name;
    double number;
    int lag;
    char operator; /* + - * / */
    int arguments; /* number of arguments of a call as written, not checked yet */
    int height;    /* of the subtree */
    rcvi_expr *left, *right;
};

typedef enum { RCVI_DECLARE_STATE, RCVI_DECLARE_SIZE, RCVI_DECLARE_MATRIX, RCVI_DECLARE_VECTOR } rcvi_declaration_kind;

typedef struct {
    rcvi_declaration_kind kind;
    rcvi_text_position position;
    const char *name;
    const char *size; /* state: its size, or NULL. matrix: how many blocks, or NULL */
    rcvi_text_position size_position;
    const char *stored; /* matrix, vector: name in files, or NULL */
    bool has_number;    /* size: always; vector: initial value given */
    double number;
    bool first; /* first of a declaration line; used by the printer */
} rcvi_declaration;

typedef struct {
    rcvi_text_position position;
    const char *name;
    bool next;        /* name' = */
    const char *size; /* name[size] =, or NULL */
    rcvi_text_position size_position;
    rcvi_expr *value;
} rcvi_equation;

typedef struct {
    rcvi_pool pool;
    const char *file, *text;
    size_t length;
    const char *name, *input;
    rcvi_declaration *declarations;
    size_t declaration_count, declaration_capacity;
    rcvi_equation *equations;
    size_t equation_count, equation_capacity;
    rcvi_expr *output;      /* of return */
    rcvi_text_position end; /* of the closing brace */
} rcvi_ast;

/* Parses `text` into `ast`. It initialises the pool; call rcvi_ast_free afterwards, also on failure. */
rcv_status rcvi_ast_parse(rcv_context *context, const char *text, size_t length, const char *file, rcvi_ast *ast);
void rcvi_ast_free(rcvi_ast *ast);
/* Prints the cell in canonical form; parsing that text gives the same AST. */
void rcvi_ast_print(const rcvi_ast *ast, rcvi_text *out);

/* Fails with "FILE:LINE:COLUMN: message", the source line, and a caret below the column. */
rcv_status rcvi_syntax_error(const rcvi_ast *ast, rcvi_text_position position, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
