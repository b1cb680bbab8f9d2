/* Results class by class, from a confusion matrix. */
#ifndef TOOL_TRAINING_CLASS_TABLE_H
#define TOOL_TRAINING_CLASS_TABLE_H

#include <stdint.h>
#include <stdio.h>

/* Precision, recall and F1 of each class. confusion: [count, count], examples of class `row` that were taken for class `column`. Names are
 * escaped, and cut where they are long. */
void print_class_table(FILE *to, const char *const *names, size_t count, const int64_t *confusion);
/* The matrix itself, for a few classes. */
void print_confusion(FILE *to, const char *const *names, size_t count, const int64_t *confusion);

#endif
