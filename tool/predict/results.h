/* Rows of predictions: a table (CSV), a JSON object a line, or an array of NumPy.
 *
 * A row is written field by field. Texts and whole numbers say what the row is about; numbers are what was predicted, and of these alone consists the array,
 * [rows, columns] of float32. The header of a table is a row whose fields are written as their names. */
#ifndef TOOL_RESULTS_H
#define TOOL_RESULTS_H

#include "output_file.h"

typedef enum { RESULTS_CSV, RESULTS_JSON, RESULTS_NPY } results_format;

typedef struct {
    results_format format;
    output_file *file;
    bool is_header; /* the row is the header of a table */
    bool is_begun;  /* the row, or the object within it, has fields */
    int64_t rows;   /* written */
} results;

/* Of an array `columns` are written, and `rows` are promised; -1: not known, and the output is a file. */
void results_begin(results *results, results_format format, output_file *file, int64_t rows, int64_t columns);
/* Corrects the number of rows of an array. */
void results_end(results *results, int64_t columns);

void results_begin_row(results *results, bool is_header);
void results_end_row(results *results);
void results_text(results *results, const char *name, const char *text, size_t length);
/* A text that is a number where it looks like a whole one. */
void results_name(results *results, const char *name, const char *text);
void results_integer(results *results, const char *name, int64_t value);
/* NULL: there is none, which is an empty field, null in JSON, NaN in an array. Of an array, an element, unless it is `beside` what was predicted. */
void results_number(results *results, const char *name, const float *value);
void results_number_beside(results *results, const char *name, const float *value);
/* Fields between these are an object within the row's. */
void results_open(results *results, const char *name);
void results_close(results *results);
/* In place of a text or a whole number that is not there. */
void results_nothing(results *results, const char *name);

#endif
