#include "float_text.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most numbers are between these, and need no exponent: 9 digits of them are a whole number below 10^9, times a power of ten that a double has
 * exactly. */
static const double LEAST = 1e-5, MOST = 1e9;
enum { DIGITS = 9 }; /* so many digits are enough for any float */

static const double powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14};

/* Reads `digits` / 10^`point` back as this float, with room for the rounding of the division. */
static bool reads_back(double digits, int point, float value) {
    const double read = digits / powers[point], error = read * 4e-16;
    return (float)(read - error) == value && (float)(read + error) == value;
}

/* value = *digits / 10^*point with as few digits as possible; false where no such number is found. */
static bool find_digits(float value, uint64_t *digits, int *point) {
    int whole = 1; /* digits before the point, counted down to 0, -1, ... for numbers below 1 */
    const double number = value;
    while (whole < DIGITS && number >= powers[whole]) {
        whole++;
    }
    for (double scaled = number; scaled < 1; scaled *= 10) {
        whole--;
    }
    for (int count = whole > 1 ? whole : 1; count <= DIGITS; count++) {
        *point = count - whole;
        const double rounded = nearbyint(number * powers[*point]);
        if (reads_back(rounded, *point, value)) {
            *digits = (uint64_t)rounded;
            return true;
        }
    }
    return false;
}

static size_t write_digits(uint64_t digits, int point, char *text) {
    char reversed[FLOAT_TEXT];
    int count = 0;
    while (digits > 0 || count <= point) {
        if (count == point && point > 0) {
            reversed[count] = '.';
        }
        reversed[count + (point > 0 && count >= point)] = (char)('0' + digits % 10);
        digits /= 10;
        count++;
    }
    const int length = count + (point > 0);
    for (int i = 0; i < length; i++) {
        text[i] = reversed[length - 1 - i];
    }
    text[length] = '\0';
    return (size_t)length;
}

size_t float_text(float value, char text[FLOAT_TEXT]) {
    if (isnan(value)) {
        return (size_t)snprintf(text, FLOAT_TEXT, "nan");
    }
    const float size = fabsf(value);
    uint64_t digits;
    int point;
    if (size >= LEAST && size < MOST && find_digits(size, &digits, &point)) {
        text[0] = '-';
        const size_t sign = value < 0;
        return sign + write_digits(digits, point, text + sign);
    }
    int length = 0;
    for (int count = 1; count <= DIGITS; count++) {
        length = snprintf(text, FLOAT_TEXT, "%.*g", count, (double)value);
        if (strtof(text, NULL) == value) {
            break;
        }
    }
    return (size_t)length;
}
