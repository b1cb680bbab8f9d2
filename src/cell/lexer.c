/* The lexer of the cell language, and syntax errors that show the source line. */
#include "cell/lexer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Not isalpha() and isdigit(): those depend on the locale. */
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

rcv_status rcvi_syntax_error(const rcvi_ast *ast, rcvi_text_position position, const char *format, ...) {
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);

    const char *line = ast->text, *end = ast->text + ast->length;
    for (int i = 1; i < position.line; i++) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        if (!newline) break;
        line = newline + 1;
    }
    enum { WIDTH = 100 };
    int start = position.column > WIDTH - 20 ? position.column - WIDTH / 2 : 1; /* a window on a long line */
    char shown[WIDTH + 1];
    int length = 0;
    for (const char *c = line + (start - 1); c < end && *c != '\n' && length < WIDTH; c++) {
        shown[length++] = *c >= ' ' && *c < 127 ? *c : *c == '\t' ? ' ' : '?';
    }
    shown[length] = 0;
    return rcvi_fail(RCV_SYNTAX, "%s:%d:%d: %s\n  %s\n  %*s^", ast->file, position.line, position.column, message,
                     shown, position.column - start, "");
}

void rcvi_lexer_init(rcvi_lexer *lexer, const rcvi_ast *ast) {
    *lexer = (rcvi_lexer){.ast = ast, .next = ast->text, .end = ast->text + ast->length, .position = {1, 1}};
}

static void advance(rcvi_lexer *lexer) {
    if (*lexer->next == '\n') {
        lexer->position.line++;
        lexer->position.column = 0;
    }
    lexer->position.column++;
    lexer->next++;
}

static void skip_blanks(rcvi_lexer *lexer) {
    while (lexer->next < lexer->end) {
        char c = *lexer->next;
        if (c == '#') {
            while (lexer->next < lexer->end && *lexer->next && *lexer->next != '\n') advance(lexer);
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            advance(lexer);
        } else {
            return;
        }
    }
}

static rcv_status scan_number(rcvi_lexer *lexer, rcvi_token *token) {
    char digits[64];
    size_t length = 0;
    const char *c = lexer->next;
    while (c < lexer->end && (is_digit(*c) || *c == '.')) c++;
    if (c < lexer->end && (*c == 'e' || *c == 'E')) {
        const char *exponent = c + 1;
        if (exponent < lexer->end && (*exponent == '+' || *exponent == '-')) exponent++;
        if (exponent < lexer->end && is_digit(*exponent)) {
            c = exponent;
            while (c < lexer->end && is_digit(*c)) c++;
        }
    }
    length = (size_t)(c - lexer->next);
    if (length >= sizeof digits)
        return rcvi_syntax_error(lexer->ast, token->position, "this number has too many digits");
    memcpy(digits, lexer->next, length);
    digits[length] = 0;
    if (!rcvi_read_number(digits, &token->number) || (c < lexer->end && is_letter(*c))) {
        return rcvi_syntax_error(lexer->ast, token->position, "'%s%.*s' is not a number", digits,
                                 c < lexer->end && is_letter(*c), c);
    }
    if (!isfinite(token->number)) {
        return rcvi_syntax_error(lexer->ast, token->position, "the number %s is too large", digits);
    }
    token->kind = RCVI_TOKEN_NUMBER;
    token->length = length;
    while (lexer->next < c) advance(lexer);
    return RCV_OK;
}

static rcv_status scan_name(rcvi_lexer *lexer, rcvi_token *token) {
    while (lexer->next < lexer->end && (is_letter(*lexer->next) || is_digit(*lexer->next))) advance(lexer);
    token->kind = RCVI_TOKEN_NAME;
    token->length = (size_t)(lexer->next - token->text);
    if (token->length > RCVI_MAX_NAME) {
        return rcvi_syntax_error(lexer->ast, token->position, "this name has %zu characters; at most %d are allowed",
                                 token->length, RCVI_MAX_NAME);
    }
    if (token->text[0] == '_') return rcvi_syntax_error(lexer->ast, token->position, "a name begins with a letter");
    return RCV_OK;
}

rcv_status rcvi_lexer_next(rcvi_lexer *lexer, rcvi_token *token) {
    skip_blanks(lexer);
    *token = (rcvi_token){.kind = RCVI_TOKEN_END, .position = lexer->position, .text = lexer->next};
    if (lexer->next == lexer->end) return RCV_OK;
    char c = *lexer->next;
    if (is_letter(c)) return scan_name(lexer, token);
    if (is_digit(c) || (c == '.' && lexer->next + 1 < lexer->end && is_digit(lexer->next[1]))) {
        return scan_number(lexer, token);
    }
    if (c && strchr("{}()[],='+-*/", c)) {
        token->kind = RCVI_TOKEN_SYMBOL;
        token->symbol = c;
        token->length = 1;
        advance(lexer);
        return RCV_OK;
    }
    if (c > ' ' && c < 127) return rcvi_syntax_error(lexer->ast, token->position, "'%c' has no meaning here", c);
    return rcvi_syntax_error(lexer->ast, token->position, "the byte 0x%02x has no meaning in a cell", (unsigned char)c);
}
