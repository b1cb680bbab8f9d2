#include "training/class_table.h"

#include "tool.h"
#include "training/number_text.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_COLUMNS = 20, CELL_COLUMNS = 8 };

/* The name in at most so many bytes, without half a character of UTF-8; for free(). */
static char *short_name(const char *name, size_t most) {
    char *safe = safe_text(name, strlen(name), NULL);
    size_t length = strlen(safe);
    if (length > most) {
        length = most;
        while (length > 0 && ((unsigned char)safe[length] & 0xC0) == 0x80) {
            length--;
        }
        safe[length] = '\0';
    }
    return safe;
}

/* Columns of a UTF-8 text, each character counted as one. */
static size_t columns_of(const char *text) {
    size_t count = 0;
    for (; *text != '\0'; text++) {
        count += ((unsigned char)*text & 0xC0) != 0x80;
    }
    return count;
}

static void put_name(FILE *to, const char *name, size_t columns, bool is_right) {
    char *cut = short_name(name, columns);
    const int blank = (int)(columns - columns_of(cut));
    if (is_right) {
        fprintf(to, "%*s%s", blank, "", cut);
    } else {
        fprintf(to, "%s%*s", cut, blank, "");
    }
    free(cut);
}

static void put_ratio(FILE *to, double part, double whole) {
    if (whole > 0) {
        fprintf(to, "%11.3f", part / whole);
    } else {
        fprintf(to, "%11s", "-");
    }
}

void print_class_table(FILE *to, const char *const *names, size_t count, const int64_t *confusion) {
    fprintf(to, "%-*s%11s%11s%11s%11s\n", NAME_COLUMNS, "class", "precision", "recall", "F1", "count");
    for (size_t c = 0; c < count; c++) {
        double taken = 0, there = 0;
        const double right = (double)confusion[c * count + c];
        for (size_t i = 0; i < count; i++) {
            taken += (double)confusion[i * count + c];
            there += (double)confusion[c * count + i];
        }
        put_name(to, names[c], NAME_COLUMNS, false);
        put_ratio(to, right, taken);
        put_ratio(to, right, there);
        put_ratio(to, 2 * right, taken + there);
        fprintf(to, "%11s\n", count_text((int64_t)there).text);
    }
}

void print_confusion(FILE *to, const char *const *names, size_t count, const int64_t *confusion) {
    fprintf(to, "confusion: rows are the classes of the data, columns those that were predicted\n%*s", NAME_COLUMNS,
            "");
    for (size_t c = 0; c < count; c++) {
        fprintf(to, " ");
        put_name(to, names[c], CELL_COLUMNS - 1, true);
    }
    fprintf(to, "\n");
    for (size_t r = 0; r < count; r++) {
        put_name(to, names[r], NAME_COLUMNS, false);
        for (size_t c = 0; c < count; c++) {
            fprintf(to, "%*lld", CELL_COLUMNS, (long long)confusion[r * count + c]);
        }
        fprintf(to, "\n");
    }
}
