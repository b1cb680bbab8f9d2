#include "training/number_text.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

number_text count_text(int64_t count) {
    number_text result = {""};
    char digits[32];
    const int length = snprintf(digits, sizeof digits, "%lld", (long long)(count < 0 ? -count : count));
    char *at = result.text;
    if (count < 0) {
        *at++ = '-';
    }
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            *at++ = ',';
        }
        *at++ = digits[i];
    }
    *at = '\0';
    return result;
}

number_text short_text(double value) {
    static const char *const units[] = {"", "k", "M", "G", "T"};
    number_text result;
    size_t unit = 0;
    double scaled = fabs(value);
    while (scaled >= 999.5 && unit + 1 < sizeof units / sizeof *units) {
        scaled /= 1000;
        unit++;
    }
    const int decimals = scaled >= 99.95 || (unit == 0 && scaled >= 10) ? 0 : scaled >= 9.995 ? 1 : 2;
    snprintf(result.text, sizeof result.text, "%.*f%s", decimals, copysign(scaled, value), units[unit]);
    return result;
}

number_text clock_text(double seconds) {
    number_text result = {"?"};
    if (!(seconds >= 0) || seconds > 1e9) {
        return result;
    }
    const long whole = (long)seconds;
    if (whole >= 3600) {
        snprintf(result.text, sizeof result.text, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    } else {
        snprintf(result.text, sizeof result.text, "%ld:%02ld", whole / 60, whole % 60);
    }
    return result;
}

number_text duration_text(double seconds) {
    number_text result;
    if (seconds < 9.95) {
        snprintf(result.text, sizeof result.text, "%.2g s", seconds);
    } else if (seconds < 599.5) {
        snprintf(result.text, sizeof result.text, "%.0f s", seconds);
    } else if (seconds < 5400) {
        snprintf(result.text, sizeof result.text, "%.0f min", seconds / 60);
    } else {
        snprintf(result.text, sizeof result.text, "%.1f h", seconds / 3600);
    }
    return result;
}

number_text decimals_text(double value) {
    number_text result = {"-"};
    if (isfinite(value)) {
        const bool is_usual = value == 0 || (fabs(value) >= 0.01 && fabs(value) < 1e4);
        snprintf(result.text, sizeof result.text, is_usual ? "%.4f" : "%.5g", value);
    }
    return result;
}
