/* The lexer: splits the text of a cell into tokens. */
#ifndef RCVI_LEXER_H
#define RCVI_LEXER_H

#include "cell/ast.h"

typedef enum { RCVI_TOKEN_END, RCVI_TOKEN_NAME, RCVI_TOKEN_NUMBER, RCVI_TOKEN_SYMBOL } rcvi_token_kind;

typedef struct {
    rcvi_token_kind kind;
    rcvi_text_position position;
    const char *text; /* points into the text of the cell */
    size_t length;
    double number;
    char symbol; /* one of { } ( ) [ ] , = ' + - * / */
} rcvi_token;

typedef struct {
    const rcvi_ast *ast; /* for messages */
    const char *next, *end;
    rcvi_text_position position;
} rcvi_lexer;

void rcvi_lexer_init(rcvi_lexer *lexer, const rcvi_ast *ast);
rcv_status rcvi_lexer_next(rcvi_lexer *lexer, rcvi_token *token);

#endif
