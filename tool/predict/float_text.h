/* Numbers as text. */
#ifndef TOOL_FLOAT_TEXT_H
#define TOOL_FLOAT_TEXT_H

#include <stddef.h>

enum { FLOAT_TEXT = 32 }; /* bytes that a float needs, with the NUL */

/* The shortest decimal that reads back as this float; "nan", "inf" and "-inf" where it is not a number. Returns its length. */
size_t float_text(float value, char text[FLOAT_TEXT]);

#endif
