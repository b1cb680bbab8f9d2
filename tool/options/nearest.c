/* The name that someone may have meant: by the edit distance. */
#include "options/parts.h"

#include <string.h>

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Edit distance: insertions, deletions, replacements, and swaps of neighbours. */
static size_t distance(const char *from, const char *to) {
    const size_t length = strlen(to);
    size_t rows[3][LONGEST_NAME + 1]; /* row i % 3: distances of the first i letters to every prefix of `to` */
    for (size_t j = 0; j <= length; j++) {
        rows[0][j] = j;
    }
    size_t i = 0;
    for (; from[i] != '\0'; i++) {
        const size_t *above = rows[i % 3], *two_above = rows[(i + 2) % 3];
        size_t *row = rows[(i + 1) % 3];
        row[0] = i + 1;
        for (size_t j = 1; j <= length; j++) {
            row[j] = smaller(above[j - 1] + (from[i] != to[j - 1]), smaller(row[j - 1], above[j]) + 1);
            if (i > 0 && j > 1 && from[i] == to[j - 2] && from[i - 1] == to[j - 1]) {
                row[j] = smaller(row[j], two_above[j - 2] + 1);
            }
        }
    }
    return rows[i % 3][length];
}

const char *nearest_name(const char *name, size_t count, const char *(*name_at)(const void *list, size_t index),
                         const void *list) {
    const char *best = NULL;
    size_t least = strlen(name) / 3 + 2;
    for (size_t i = 0; i < count; i++) {
        const char *candidate = name_at(list, i);
        if (strlen(name) > LONGEST_NAME || strlen(candidate) > LONGEST_NAME) {
            continue;
        }
        const size_t far =
            strncmp(candidate, name, strlen(name)) == 0 && name[0] != '\0' ? 0 : distance(name, candidate);
        if (far < least && far < strlen(candidate)) {
            least = far;
            best = candidate;
        }
    }
    return best;
}
