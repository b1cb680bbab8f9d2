/* A scanner of plain progress and validation lines, some forty times as fast as a JSON library: a log has a hundred thousand of them. */
#include "report/training/log_values.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

const log_value_description log_values[LOG_VALUES] = {
    [VALUE_STEP] = {"step", "updates", "%.0f", true},
    [VALUE_EPOCH] = {"epoch", "epochs", "%.6g", true},
    [VALUE_SECONDS] = {"seconds", "seconds", "%.1f", false},
    [VALUE_LOSS] = {"loss", "loss", "%.4f", false},
    [VALUE_PERPLEXITY] = {"perplexity", "perplexity", "%.2f", false},
    [VALUE_BITS] = {"bits_per_byte", "bits a byte", "%.4f", false},
    [VALUE_RATE] = {"rate", "learning rate", "%.6g", true},
    [VALUE_NORM] = {"norm", "gradient norm", "%.4g", false},
    [VALUE_SPEED] = {"tokens_per_second", "tokens a second", "%.0f", true},
    [VALUE_ACCURACY] = {"accuracy", "accuracy", "%.4f", true},
    [VALUE_PRECISION] = {"precision", "precision", "%.4f", true},
    [VALUE_RECALL] = {"recall", "recall", "%.4f", true},
    [VALUE_F1] = {"f1", "F1", "%.4f", true},
    [VALUE_AUC] = {"auc", "AUC", "%.4f", true},
    [VALUE_MAE] = {"mae", "MAE", "%.4f", false},
    [VALUE_RMSE] = {"rmse", "RMSE", "%.4f", false},
    [VALUE_R2] = {"r2", "R2", "%.4f", true},
    [VALUE_NAIVE_MAE] = {"naive_mae", "MAE of the naive forecast", "%.4f", false},
    [VALUE_NAIVE_RMSE] = {"naive_rmse", "RMSE of the naive forecast", "%.4f", false},
};

log_row empty_row(void) {
    log_row row;
    for (size_t i = 0; i < LOG_VALUES; i++) {
        row.values[i] = NAN;
    }
    return row;
}

static const char *skip_blanks(const char *at) {
    while (*at == ' ' || *at == '\t' || *at == '\r') {
        at++;
    }
    return at;
}

/* '"' ... '"': returns the place after it, or NULL. The text is [*text, *text + *length). */
static const char *scan_text(const char *at, const char **text, size_t *length) {
    if (*at != '"') {
        return NULL;
    }
    *text = ++at;
    while (*at >= ' ' && *at <= '~' && *at != '"' && *at != '\\') {
        at++;
    }
    *length = (size_t)(at - *text);
    return *at == '"' ? at + 1 : NULL;
}

/* ---- numbers ---- */

/* The decimal digits of a number: value = mantissa * 10^exponent, if there are at most 19 digits. */
typedef struct {
    uint64_t mantissa;
    int digits, exponent;
    bool whole;
} decimal;

static bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
/* The digits at the beginning of the next eight bytes: returns how many, and sets their value. In the word that the bytes make, those that are no
 * digits have their highest bit set after one of the two sums; what a sum carries goes to later bytes, so the first is found. Digits are then
 * shifted to the end, behind zeros, and summed as neighbours, pairs and fours. */
static int leading_digits(const char *at, uint64_t *value) {
    const uint64_t zeros = 0x3030303030303030u, high_bits = 0x8080808080808080u;
    uint64_t word;
    memcpy(&word, at, sizeof word);
    const uint64_t others = ((word + 0x4646464646464646u) | (word - zeros)) & high_bits;
    const int count = others != 0 ? __builtin_ctzll(others) / 8 : 8;
    if (count == 0) {
        return 0;
    }
    const uint64_t digits = count == 8 ? word - zeros : (word - zeros) << (64 - 8 * count);
    const uint64_t pairs = digits * 10 + (digits >> 8);
    *value = (((pairs & 0x000000ff000000ffu) * 0x000f424000000064u) +
              (((pairs >> 16) & 0x000000ff000000ffu) * 0x0000271000000001u)) >>
             32;
    return count;
}
#else
static int leading_digits(const char *at, uint64_t *value) {
    int count = 0;
    *value = 0;
    while (count < 8 && is_digit(at[count])) {
        *value = 10 * *value + (uint64_t)(at[count++] - '0');
    }
    return count;
}
#endif

/* More than 19 digits may wrap the mantissa: then only their number counts. Zeros at the beginning do not count, but for those before the first
 * other digit of eight. */
static const char *scan_digits(const char *at, decimal *number) {
    static const uint64_t powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    for (int count = 8; count == 8;) {
        uint64_t value = 0;
        count = leading_digits(at, &value);
        number->mantissa = number->mantissa * powers[count] + value;
        number->digits += number->digits > 0 || value > 0 ? count : 0;
        at += count;
    }
    return at;
}

/* [eE] [+-]? digits: NULL if there are no digits, or more than four */
static const char *scan_exponent(const char *at, decimal *number) {
    const bool negative = *at == '-';
    at += *at == '-' || *at == '+';
    const char *first = at;
    int exponent = 0;
    while (is_digit(*at) && at - first < 5) {
        exponent = 10 * exponent + (*at - '0');
        at++;
    }
    number->exponent += negative ? -exponent : exponent;
    return at > first && at - first < 5 ? at : NULL;
}

/* Mantissas of at most 53 bits and powers up to 10^22 are exact in double, so their product or quotient is rounded once. */
static bool is_exact(const decimal *number) {
    return number->digits <= 19 && number->mantissa <= (uint64_t)1 << 53 && abs(number->exponent) <= 22;
}

/* -? (0 | [1-9] digits) (. digits)? exponent?: NULL if it is no number of JSON, or one that jansson refuses */
static const char *scan_number(const char *at, double *value) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *begin = at;
    decimal number = {.whole = true};
    at += *at == '-';
    const char *first = at;
    at = scan_digits(at, &number);
    if (at == first || (*first == '0' && at > first + 1)) {
        return NULL;
    }
    if (*at == '.') {
        const char *point = ++at;
        at = scan_digits(at, &number);
        number.exponent = -(int)(at - point);
        number.whole = false;
        if (at == point || at - point > 1000) {
            return NULL;
        }
    }
    if (*at == 'e' || *at == 'E') {
        number.whole = false;
        at = scan_exponent(at + 1, &number);
        if (at == NULL) {
            return NULL;
        }
    }
    if (number.whole && number.digits > 18) { /* it may be too large for jansson's integers */
        return NULL;
    }
    if (is_exact(&number)) {
        const double mantissa = (double)number.mantissa;
        const double size =
            number.exponent < 0 ? mantissa / powers[-number.exponent] : mantissa * powers[number.exponent];
        *value = *begin == '-' ? -size : size;
        return at;
    }
    *value = strtod(begin, NULL);
    return isfinite(*value) ? at : NULL;
}

/* ---- members ---- */

/* A number, or anything else, which is NaN: the place after it, or NULL. */
static const char *scan_value(const char *at, double *value) {
    static const struct {
        const char *word;
        size_t length;
    } words[] = {{"true", 4}, {"false", 5}, {"null", 4}};
    const char *text;
    size_t length;
    if (*at == '-' || is_digit(*at)) {
        return scan_number(at, value);
    }
    *value = NAN;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strncmp(at, words[i].word, words[i].length) == 0) {
            return at + words[i].length;
        }
    }
    return scan_text(at, &text, &length);
}

static bool is_word(const char *text, size_t length, const char *word) {
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

/* The value with this key in [from, to); LOG_VALUES: none. Lines have their members in one order, mostly that of `log_values`. */
static size_t find_value(const char *key, size_t length, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        if (key[0] == log_values[i].key[0] && is_word(key, length, log_values[i].key)) {
            return i;
        }
    }
    return LOG_VALUES;
}

/* '"' key '"' ':' : the place of the value, or NULL */
static const char *scan_key(const char *at, const char **key, size_t *length) {
    at = scan_text(skip_blanks(at), key, length);
    at = at != NULL ? skip_blanks(at) : NULL;
    return at != NULL && *at == ':' ? skip_blanks(at + 1) : NULL;
}

/* '{' (key ':' value (',' key ':' value)*)? '}', values are plain */
static const char *scan_metrics(const char *at, log_row *row) {
    if (*at != '{') {
        return NULL;
    }
    at = skip_blanks(at + 1);
    if (*at == '}') {
        return at + 1;
    }
    for (;;) {
        const char *key;
        size_t length;
        double value;
        at = scan_key(at, &key, &length);
        at = at != NULL ? scan_value(at, &value) : NULL;
        if (at == NULL) {
            return NULL;
        }
        const size_t place = find_value(key, length, FIRST_METRIC, LOG_VALUES);
        if (place < LOG_VALUES) {
            row->values[place] = value;
        }
        at = skip_blanks(at);
        if (*at != ',') {
            return *at == '}' ? at + 1 : NULL;
        }
        at++;
    }
}

/* What a key stands for: a value, or one of these. */
enum { PLACE_OTHER = LOG_VALUES, PLACE_EVENT, PLACE_METRICS };

static size_t find_place(const char *key, size_t length) {
    return is_word(key, length, "event")     ? PLACE_EVENT
           : is_word(key, length, "metrics") ? PLACE_METRICS
                                             : find_value(key, length, 0, FIRST_METRIC);
}

static void remember_key(line_shape *shape, size_t index, const char *key, size_t length, size_t place) {
    const size_t whole = length + 3; /* with quotes and colon */
    if (index < SHAPE_MEMBERS) {
        const bool plain = whole <= SHAPE_KEY && key[length + 1] == ':';
        shape->members[index].length = plain ? (unsigned char)whole : 0;
        shape->members[index].place = (unsigned char)place;
        memcpy(shape->members[index].text, key - 1, plain ? whole : 0);
    }
}

/* The key of the member of this index: the place of its value in the line, or NULL. */
static const char *scan_place(const char *at, size_t index, line_shape *shape, size_t *place) {
    if (index < SHAPE_MEMBERS && shape->members[index].length > 0 &&
        strncmp(at, shape->members[index].text, shape->members[index].length) == 0) {
        *place = shape->members[index].place;
        return skip_blanks(at + shape->members[index].length);
    }
    const char *key;
    size_t length;
    at = scan_key(at, &key, &length);
    if (at != NULL) {
        *place = find_place(key, length);
        remember_key(shape, index, key, length, *place);
    }
    return at;
}

static const char *scan_event(const char *at, scanned *event) {
    const char *text;
    size_t length;
    at = scan_text(at, &text, &length);
    *event = at == NULL                            ? SCANNED_NOTHING
             : is_word(text, length, "progress")   ? SCANNED_PROGRESS
             : is_word(text, length, "validation") ? SCANNED_VALIDATION
                                                   : SCANNED_NOTHING;
    return *event != SCANNED_NOTHING ? at : NULL;
}

/* What has been found in a line so far. */
typedef struct {
    scanned event;
    bool metrics;
} found;

/* The value of a member, put into its place. NULL: it is not plain. */
static const char *scan_member(const char *at, size_t place, log_row *row, found *found) {
    if (place == PLACE_EVENT) {
        return scan_event(at, &found->event);
    }
    if (place == PLACE_METRICS) {
        const bool again = found->metrics; /* of two members with one name the last counts as a whole */
        found->metrics = true;
        return again ? NULL : scan_metrics(at, row);
    }
    double value;
    at = scan_value(at, &value);
    if (at != NULL && place < LOG_VALUES) {
        row->values[place] = value;
    }
    return at;
}

scanned scan_line(const char *line, const char *end, log_row *row, line_shape *shape) {
    found found = {0};
    size_t index = 0;
    const char *at = skip_blanks(line);
    *row = empty_row();
    if (*at != '{') {
        return SCANNED_NOTHING;
    }
    do {
        size_t place;
        at = scan_place(skip_blanks(at + 1), index++, shape, &place);
        at = at != NULL ? scan_member(at, place, row, &found) : NULL;
        if (at == NULL) {
            return SCANNED_NOTHING;
        }
        at = skip_blanks(at);
    } while (*at == ',');
    return *at == '}' && skip_blanks(at + 1) == end ? found.event : SCANNED_NOTHING;
}
