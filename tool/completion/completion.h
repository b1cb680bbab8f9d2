/* Scripts that complete the command in a shell. All of them are made from the tables of options. */
#ifndef TOOL_COMPLETION_H
#define TOOL_COMPLETION_H

#include "tool.h"

/* What a value may be: words, files, or both; neither: anything, which cannot be completed. */
typedef struct {
    char *words;         /* with a space between them, or NULL; for free() */
    const char *pattern; /* files of this pattern and folders; "*": all files; "/": folders alone; NULL: no files */
} candidates;

candidates option_candidates(const option *option); /* of an option that takes a value */
candidates operand_candidates(const command *command, size_t index);

/* The text with `before` in front of every character of `which`; for free(). */
char *escaped(const char *text, const char *which, const char *before);

/* Print the script of a shell. */
void print_bash_completion(void);
void print_zsh_completion(void);
void print_fish_completion(void);

#endif
