/* Wisdom: the plans that planners of a context have chosen, one line for each problem.
 *
 *   file = "recurve-wisdom 1\n" { key " : " plan " : " seconds " " effort "\n" } "checksum " sixteen hexadecimal digits "\n"
 *
 * A key is what a plan's speed depends on, in words: see rcvi_problem_key. The checksum is over all bytes before its
 * line. Lines are sorted by key, no key comes twice. */
#ifndef RCVI_WISDOM_H
#define RCVI_WISDOM_H

#include "plan/plan.h"

typedef struct {
    rcvi_rungs rungs; /* of the fastest plan */
    double seconds;   /* as a candidate's */
    bool exhaustive;  /* whether every candidate was timed on the whole problem */
} rcvi_lesson;

/* Is the key known, with at least that effort? */
bool rcvi_wisdom_find(rcv_context *context, const char *key, bool exhaustive, rcvi_lesson *lesson);
/* Replaces the lesson of the key, unless that was found with more effort. */
rcv_status rcvi_wisdom_remember(rcv_context *context, const char *key, const rcvi_lesson *lesson);

/* The same with the cache on disk behind the table (wisdom_cache.c): a lesson that is found there is also remembered. RCV_NO_MEMORY is the only
 * failure. What is learnt is also written there, unless the file has a lesson of more effort. */
rcv_status rcvi_wisdom_recall(rcv_context *context, const char *key, bool exhaustive, rcvi_lesson *lesson, bool *found);
rcv_status rcvi_wisdom_learn(rcv_context *context, const char *key, const rcvi_lesson *lesson);

/* A file with one lesson: as text; and read again, RCV_FORMAT where it is not one of this key. `text` is overwritten. */
void rcvi_wisdom_print_lesson(const char *key, const rcvi_lesson *lesson, rcvi_text *out);
rcv_status rcvi_wisdom_read_lesson(rcv_context *context, char *text, size_t length, const char *name, const char *key,
                                   rcvi_lesson *lesson);

/* Adds the content of a file, all of it or nothing; `text` is overwritten, `name` is for messages. */
rcv_status rcvi_wisdom_read(rcv_context *context, char *text, size_t length, const char *name);

/* The problem in one line without " : ": cell, sizes, shape, type, device, its kernels and threads, processor, libraries, version. */
rcv_status rcvi_problem_key(const rcvi_problem *problem, char **key);

uint64_t rcvi_hash_bytes(const void *bytes, size_t length);

#endif
