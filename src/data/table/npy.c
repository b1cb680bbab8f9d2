/* The header of a .npy file: six bytes, a version, the length of a text, and that text, a Python dictionary:
 *
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (100, 50, 3), }                                                  */
#include "data/table/arrays.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_HEADER = 1 << 16 };

static rcv_status fail_header(const rcvi_arrays *arrays, const rcvi_array *a, const char *what) {
    return rcvi_fail(RCV_FORMAT, "%s: the array %s has a header %s", arrays->path, a->name, what);
}

/* The text after a key, without spaces; NULL: there is no such key. */
static const char *find_value(const char *header, const char *key) {
    const char *at = strstr(header, key);
    at = at ? strchr(at, ':') : NULL;
    while (at && (*++at == ' ')) {
    }
    return at;
}

/* '<f4', '|u1', '<U12' */
static rcv_status read_type(const rcvi_arrays *arrays, const char *at, rcvi_array *a) {
    static const struct {
        char letter;
        rcvi_array_type type;
    } types[] = {{'f', RCVI_ARRAY_FLOAT},
                 {'i', RCVI_ARRAY_SIGNED},
                 {'u', RCVI_ARRAY_UNSIGNED},
                 {'b', RCVI_ARRAY_UNSIGNED},
                 {'U', RCVI_ARRAY_TEXT}};
    if (*at != '\'' && *at != '"') return fail_header(arrays, a, "whose elements have several fields");
    const char order = at[1], letter = at[2];
    const long long size = strtoll(at + 3, NULL, 10);
    if (order == '>') return fail_header(arrays, a, "of a big-endian type; store it with x.astype('<f4')");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].letter != letter) continue;
        const bool power = size == 1 || size == 2 || size == 4 || size == 8;
        const bool good = letter == 'U' ? size >= 1 && size < 1 << 16 : letter == 'f' ? power && size > 1 : power;
        a->type = types[i].type;
        a->item = letter == 'U' ? 4 * size : size;
        if (good) return RCV_OK;
    }
    return fail_header(arrays, a, "of a type that is neither a number nor a text; store it with x.astype('float32')");
}

static rcv_status read_shape(const rcvi_arrays *arrays, const char *at, rcvi_array *a) {
    if (*at != '(') return fail_header(arrays, a, "without a shape");
    at++;
    for (a->dims = 0; *at != ')';) {
        char *end;
        const long long size = strtoll(at, &end, 10);
        if (end == at || size < 0) return fail_header(arrays, a, "whose shape is not a list of numbers");
        if (a->dims == RCVI_ARRAY_DIMS) return fail_header(arrays, a, "with more than 8 dimensions");
        a->shape[a->dims++] = size;
        for (at = end; *at == ' ' || *at == ',' || *at == 'L';) at++;
    }
    return RCV_OK;
}

static rcv_status read_header(const rcvi_arrays *arrays, const char *header, rcvi_array *a) {
    const char *type = find_value(header, "descr"), *order = find_value(header, "fortran_order"),
               *shape = find_value(header, "shape");
    if (!type || !order || !shape) return fail_header(arrays, a, "without descr, fortran_order or shape");
    if (strncmp(order, "True", 4) == 0)
        return fail_header(arrays, a, "in Fortran order; store it with numpy.ascontiguousarray(x)");
    RCVI_TRY(read_type(arrays, type, a));
    return read_shape(arrays, shape, a);
}

rcv_status rcvi_npy_read(rcvi_arrays *arrays, int file, int64_t at, int64_t end, rcvi_array *a) {
    unsigned char begin[12] = {0};
    char header[MOST_HEADER + 1];
    a->file = file;
    if (end - at < 12 || rcvi_read_at(file, arrays->path, at, begin, sizeof begin) ||
        memcmp(begin, "\x93NUMPY", 6) != 0)
        return fail_header(arrays, a, "that NumPy did not write");
    const bool wide = begin[6] >= 2;
    const int64_t length = begin[8] | begin[9] << 8 | (wide ? begin[10] << 16 | (int64_t)begin[11] << 24 : 0);
    const int64_t from = at + (wide ? 12 : 10);
    if (length > MOST_HEADER || length > end - from) return fail_header(arrays, a, "that is cut off");
    RCVI_TRY(rcvi_read_at(file, arrays->path, from, header, (size_t)length));
    header[length] = '\0';
    a->offset = from + length;
    RCVI_TRY(read_header(arrays, header, a));
    int64_t bytes = a->item;
    for (int d = 0; d < a->dims; d++)
        if (!rcvi_multiply(bytes, a->shape[d], &bytes)) return fail_header(arrays, a, "with a shape that is too large");
    return bytes <= end - a->offset ? RCV_OK : fail_header(arrays, a, "with more elements than the file has");
}
