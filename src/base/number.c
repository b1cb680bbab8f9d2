/* Conversion between numbers and text that does not depend on the locale; the C library's does. */
#include "base/base.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 64 };

static void replace(char *text, char from, char to) {
    for (; *text; text++) {
        if (*text == from) *text = to;
    }
}

static char locale_point(void) { return *localeconv()->decimal_point; }

bool rcvi_read_number(const char *text, double *number) {
    char digits[LONGEST];
    if (!*text || strlen(text) >= sizeof digits) return false;
    char point = locale_point();
    if (point != '.' && strchr(text, point)) return false; /* the locale's decimal separator is not accepted */
    strcpy(digits, text);
    replace(digits, '.', point);
    char *end = NULL;
    *number = strtod(digits, &end);
    return !*end;
}

void rcvi_text_add_number(rcvi_text *text, double number) {
    char digits[LONGEST];
    double back;
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, number);
        replace(digits, locale_point(), '.');
        if (rcvi_read_number(digits, &back) && back == number) break;
    }
    rcvi_text_add(text, "%s", digits);
}
