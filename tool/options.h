/* The options of a verb as one table, which is used for parsing, checking and help. */
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
    OPTION_SIZES,   /* size_list; may be given repeatedly */
    OPTION_SETTING  /* rcv_settings: the setting with the option's name; without `value` it is a flag */
} option_type;

enum { MAXIMUM_SIZES = 32 };

typedef struct {
    rcv_size sizes[MAXIMUM_SIZES];
    size_t count;
} size_list;

/* The default is the value of the destination before parsing. */
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
    const char *negated;        /* name of the boolean setting that this option turns off; else NULL */
} option;

typedef struct {
    const char *title;
    option *options;
    size_t count;
} option_group;

typedef struct {
    const char *name; /* in capitals, as the help prints it */
    const char *help;
    const char **destination;
} operand;

typedef struct {
    const char *verb;
    const char *summary; /* one sentence */
    const char *details; /* paragraphs with an empty line between them, wrapped when printed; or NULL */
    const operand *operands;
    size_t operand_count;
    size_t optional_count; /* this many of the last ones may be missing */
    size_t *
        last_count; /* not NULL: the last operand may be repeated; set to how often it is given. Its destination has room */
    const option_group *groups;
    size_t group_count;
} command;

/* How parsing ended. */
typedef enum { PARSED_GO, PARSED_HELP, PARSED_WRONG } parsed;

/* argv[0] is the verb. Prints the help, or what is wrong. */
parsed command_parse(const command *command, int argc, char **argv);
/* The first option of the group that was given, or NULL. */
const option *group_given(const option_group *group);

/* The name most similar to `name` among the `count` names of name_at, or NULL if none is similar. */
const char *nearest_name(const char *name, size_t count, const char *(*name_at)(const void *list, size_t index),
                         const void *list);

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

#endif
