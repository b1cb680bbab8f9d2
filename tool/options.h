/* The options of a verb as one table, which is used for parsing, checking and help. */
#ifndef TOOL_OPTIONS_H
#define TOOL_OPTIONS_H

#include "recurve.h"

#include <stdio.h>

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

/* The default is the value of the destination before parsing. Short names (-o) and other names (--lr) are the same for all verbs and stand in
 * options/common.c, by the option's name. */
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
    const char *verb;    /* NULL: the options before the verb */
    const char *summary; /* one sentence */
    const char *details; /* paragraphs with an empty line between them, wrapped when printed; or NULL */
    const operand *operands;
    size_t operand_count;
    size_t optional_count; /* this many of the last ones may be missing */
    size_t *
        last_count; /* not NULL: the last operand may be repeated; set to how often it is given. Its destination has room */
    const option_group *groups;
    size_t group_count;
    const char *const *choices; /* the words that the first operand may be, ends in NULL; NULL: anything */
    size_t unlisted;            /* this many of the last groups are not in the help; `more` says where they are */
    const char *more;           /* the last sentence of the help; or NULL */
    const char *verbose;        /* help of --verbose: what it adds; NULL: the verb has no such option */
} command;

/* How parsing ended. */
typedef enum { PARSED_GO, PARSED_HELP, PARSED_WRONG } parsed;

/* argv[0] is the verb. Prints the help, or what is wrong. The common options (--quiet, --color, ...) are read too. */
parsed command_parse(const command *command, int argc, char **argv);
/* Reads the options before the verb. The place of the first operand in argv is stored; argc: there is none. Does not print the help. */
parsed command_parse_options(const command *command, int argc, char **argv, int *first);

/* Calls `run`, a verb's function, and gives the table that it would parse to `read`. Nothing else of the verb is run. */
void command_read_table(int (*run)(int argc, char **argv), const char *verb,
                        void (*read)(const command *command, void *user), void *user);
/* All groups of a command with the common one, which is the last. */
size_t group_count(const command *command);
option_group group_at(const command *command, size_t index);
char option_letter(const option *option);       /* of -o; 0: none */
const char *option_alias(const option *option); /* another long name; NULL: none */
/* The words that a value may be, with a space between them, for free(); NULL: other values are possible. */
char *option_words(const option *option);
void print_option_groups(const command *command); /* as in the help */

/* The common options. */
bool is_quiet(void);          /* --quiet: results and errors alone */
bool is_verbose(void);        /* --verbose, without --quiet */
bool use_color(FILE *stream); /* --color; auto: a terminal, without NO_COLOR in the environment */

/* The first option of the group that was given, or NULL. */
const option *group_given(const option_group *group);

/* The name most similar to `name` among the `count` names of name_at, or NULL if none is similar. */
const char *nearest_name(const char *name, size_t count, const char *(*name_at)(const void *list, size_t index),
                         const void *list);

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

#endif
