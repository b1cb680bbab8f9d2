/* Options of a verb: one table that is parsed by, checked against, and printed as help. */
#ifndef TOOL_OPTIONS_H
#define TOOL_OPTIONS_H

#include "recurve.h"

typedef enum {
    OPTION_FLAG,    /* bool */
    OPTION_INTEGER, /* int64_t, in minimum..maximum */
    OPTION_REAL,    /* double, in minimum..maximum */
    OPTION_SEED,    /* uint64_t */
    OPTION_TEXT,    /* const char * */
    OPTION_DTYPE,   /* rcv_dtype: float32 or float64 */
    OPTION_PRODUCT, /* rcv_dtype of a plan: bfloat16, float16 and tfloat32 as well */
    OPTION_CHOICE,  /* int: the place in `choices` */
    OPTION_SIZES,   /* size_list; may be given again */
    OPTION_SETTING  /* rcv_settings: the setting of the option's name; one without `value` is a flag */
} option_type;

enum { MAXIMUM_SIZES = 32 };

typedef struct {
    rcv_size sizes[MAXIMUM_SIZES];
    size_t count;
} size_list;

/* The default is what the destination holds before. */
typedef struct {
    const char *name; /* without the dashes */
    option_type type;
    void *destination;
    double minimum, maximum;
    const char *value; /* placeholder in the help; NULL for a flag */
    const char *help;
    bool required;
    bool given;                 /* set by parsing */
    const char *const *choices; /* ends in NULL */
    const char *negated;        /* a setting that is a flag, and that this option turns off; else NULL */
} option;

typedef struct {
    const char *title;
    option *options;
    size_t count;
} option_group;

typedef struct {
    const char *name; /* in capitals, as the help shows it */
    const char *help;
    const char **destination;
} operand;

typedef struct {
    const char *verb;
    const char *summary; /* one sentence */
    const char *details; /* more lines, or NULL */
    const operand *operands;
    size_t operand_count;
    size_t optional_count; /* of them, the last ones: need not be given */
    size_t *last_count;    /* not NULL: the last one may be given again, and this counts it; its destination has room */
    const option_group *groups;
    size_t group_count;
} command;

/* What a verb does next. */
typedef enum { PARSED_GO, PARSED_HELP, PARSED_WRONG } parsed;

/* argv[0] is the verb. Prints the help, or the sentence of the mistake, itself. */
parsed command_parse(const command *command, int argc, char **argv);
/* The first option of the group that was given, or NULL. */
const option *group_given(const option_group *group);

/* The name nearest to `name` of the `count` that name_at gives, or NULL when none is near enough. */
const char *nearest_name(const char *name, size_t count, const char *(*name_at)(const void *list, size_t index),
                         const void *list);

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

#endif
