#include "results.h"

#include "float_text.h"
#include "tool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts ---- */

static void put(results *r, const char *bytes, size_t length) { output_file_write(r->file, bytes, length); }

/* Quoted as RFC 4180 has it, where that is needed. */
static void put_csv(results *r, const char *text, size_t length) {
    bool plain = length == 0 || (text[0] != ' ' && text[length - 1] != ' ');
    for (size_t i = 0; i < length && plain; i++) {
        plain =
            text[i] != ',' && text[i] != ';' && text[i] != '\t' && text[i] != '"' && text[i] != '\n' && text[i] != '\r';
    }
    if (plain) {
        put(r, text, length);
        return;
    }
    put(r, "\"", 1);
    for (const char *end = text + length; text < end;) {
        const char *quote = memchr(text, '"', (size_t)(end - text));
        const char *stop = quote != NULL ? quote + 1 : end;
        put(r, text, (size_t)(stop - text));
        if (quote != NULL) {
            put(r, "\"", 1);
        }
        text = stop;
    }
    put(r, "\"", 1);
}

/* Bytes that are not UTF-8 become \xNN, as text. */
static void put_json(results *r, const char *text, size_t length) {
    char *safe = safe_text(text, length, "\n\t\r\"\\");
    put(r, "\"", 1);
    for (const char *at = safe; *at != '\0'; at++) {
        static const char *const escapes[] = {
            ['\n'] = "\\n", ['\t'] = "\\t", ['\r'] = "\\r", ['"'] = "\\\"", ['\\'] = "\\\\"};
        const unsigned char byte = (unsigned char)*at;
        if (byte < COUNT(escapes) && escapes[byte] != NULL) {
            put(r, escapes[byte], 2);
        } else {
            put(r, at, 1);
        }
    }
    put(r, "\"", 1);
    free(safe);
}

/* ---- arrays ---- */

enum { NPY_HEADER = 256 }; /* bytes, more than NumPy writes: so this tool recognises its own files */

static void make_npy_header(char header[NPY_HEADER], int64_t rows, int64_t columns) {
    static const unsigned char magic[] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (NPY_HEADER - 10) & 255, (NPY_HEADER - 10) >> 8};
    memset(header, ' ', NPY_HEADER);
    memcpy(header, magic, sizeof magic);
    char text[NPY_HEADER];
    const int length = snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }",
                                (long long)rows, (long long)columns);
    memcpy(header + sizeof magic, text, (size_t)length);
    header[NPY_HEADER - 1] = '\n';
}

void results_begin(results *r, results_format format, output_file *file, int64_t rows, int64_t columns) {
    *r = (results){.format = format, .file = file};
    if (format == RESULTS_NPY) {
        char header[NPY_HEADER];
        make_npy_header(header, rows < 0 ? 0 : rows, columns);
        put(r, header, sizeof header);
    }
}

void results_end(results *r, int64_t columns) {
    if (r->format == RESULTS_NPY && r->file->path != NULL) {
        char header[NPY_HEADER];
        make_npy_header(header, r->rows, columns);
        output_file_rewrite(r->file, header, sizeof header);
    }
}

/* ---- rows ---- */

void results_begin_row(results *r, bool is_header) {
    r->is_header = is_header;
    r->is_begun = false;
    if (r->format == RESULTS_JSON) {
        put(r, "{", 1);
    }
}

void results_end_row(results *r) {
    if (r->format == RESULTS_JSON) {
        put(r, "}", 1);
    }
    if (r->format != RESULTS_NPY) {
        put(r, "\n", 1);
    }
    r->rows += !r->is_header;
}

/* The comma and, in JSON, the name. False where the value is not to be written: of an array, or of a header, which is the name. */
static bool begin_field(results *r, const char *name) {
    if (r->format == RESULTS_NPY) {
        return false;
    }
    if (r->is_begun) {
        put(r, ",", 1);
    }
    r->is_begun = true;
    if (r->format == RESULTS_JSON) {
        put_json(r, name, strlen(name));
        put(r, ":", 1);
    } else if (r->is_header) {
        put_csv(r, name, strlen(name));
    }
    return !r->is_header;
}

void results_text(results *r, const char *name, const char *text, size_t length) {
    if (begin_field(r, name)) {
        r->format == RESULTS_JSON ? put_json(r, text, length) : put_csv(r, text, length);
    }
}

void results_name(results *r, const char *name, const char *text) {
    const size_t length = strlen(text), digits = strspn(text, "0123456789");
    const bool is_number = digits == length && length > 0 && length <= 15 && (text[0] != '0' || length == 1);
    if (!is_number) {
        results_text(r, name, text, length);
    } else if (begin_field(r, name)) {
        put(r, text, length);
    }
}

void results_integer(results *r, const char *name, int64_t value) {
    if (begin_field(r, name)) {
        char text[32];
        put(r, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)value));
    }
}

void results_nothing(results *r, const char *name) {
    if (begin_field(r, name) && r->format == RESULTS_JSON) {
        put(r, "null", 4);
    }
}

void results_number_beside(results *r, const char *name, const float *value) {
    char text[FLOAT_TEXT];
    if (value == NULL || (r->format == RESULTS_JSON && !isfinite(*value))) {
        results_nothing(r, name);
    } else if (begin_field(r, name)) {
        put(r, text, float_text(*value, text));
    }
}

void results_number(results *r, const char *name, const float *value) {
    const float none = NAN;
    if (r->format == RESULTS_NPY) {
        put(r, (const char *)(value != NULL ? value : &none), sizeof *value);
    } else {
        results_number_beside(r, name, value);
    }
}

void results_open(results *r, const char *name) {
    if (r->format == RESULTS_JSON) {
        begin_field(r, name);
        put(r, "{", 1);
        r->is_begun = false;
    }
}

void results_close(results *r) {
    if (r->format == RESULTS_JSON) {
        put(r, "}", 1);
        r->is_begun = true;
    }
}
