/* Numbers as people read them. */
#ifndef TOOL_TRAINING_NUMBER_TEXT_H
#define TOOL_TRAINING_NUMBER_TEXT_H

#include <stdint.h>

typedef struct {
    char text[40];
} number_text;

number_text count_text(int64_t count);     /* 1,234,567 */
number_text short_text(double value);      /* 0.52, 87, 412k, 1.23M, 45.6G */
number_text clock_text(double seconds);    /* 1:02, 12:34:56; ?: negative, not known */
number_text duration_text(double seconds); /* 0.8 s, 45 s, 12 min, 1.5 h */
number_text decimals_text(double value); /* four decimals, or five digits of large and small numbers; -: not a number */

#endif
