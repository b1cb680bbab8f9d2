/* What the verbs share. A verb lives on recurve.h alone. */
#ifndef TOOL_H
#define TOOL_H

#include "options.h"

#include <math.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* One function a verb; argv[0] is its name; the result is the exit status. */
int verb_list(int argc, char **argv);
int verb_cell(int argc, char **argv);
int verb_init(int argc, char **argv);
int verb_data(int argc, char **argv);
int verb_run(int argc, char **argv);
int verb_train(int argc, char **argv);
int verb_generate(int argc, char **argv);
int verb_eval(int argc, char **argv);
int verb_export(int argc, char **argv);
int verb_plan(int argc, char **argv);
int verb_bench(int argc, char **argv);
int verb_report(int argc, char **argv);

/* What jansson allocates comes from a reserve where there is no memory. */
void reserve_json_memory(void);
/* "recurve: sentence" on standard error. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* From now on nothing is printed, and what was said last is kept: of several ranks one prints for all. */
void hold_messages(bool hold);
const char *held_message(void); /* NULL: nothing was said */
/* Says the library's sentence; a mistake in a cell's text is shown as it is, with its place in the file. EXIT_FAILED, or
 * what a signal makes of it that asked to stop. */
int fail(rcv_status status);

/* Text of a file made fit for a terminal, as rcv_escape has it; frees with free(). What say() prints went through it. */
char *safe_text(const char *bytes, size_t length, const char *keep);

/* What the tool itself takes in at most; the library's limits are in src/base/limits.h. */
#define LIMIT_TEXT ((int64_t)2 << 30)   /* of a log that is drawn */
#define LIMIT_LINE ((size_t)64 << 20)   /* of a line of it */
#define LIMIT_PROMPT ((size_t)64 << 20) /* of a prompt from standard input */

/* A whole text: a regular file, not empty, of at most 2 GiB. Frees with free(); NULL after saying what was wrong. */
char *read_text(const char *path, size_t *bytes);
/* Of a loss in nats; at most exp(700). A loss that is not finite comes back as it is. */
static inline double perplexity_of(double loss) { return isfinite(loss) ? exp(fmin(loss, 700)) : loss; }
/* "recurve VERB ...", quoted where a shell needs it. Frees with free(). */
char *command_line(int argc, char **argv);
/* Can a file be made or replaced at this path? Says what is in the way. */
bool output_is_writable(const char *path);
/* Results replace results of their kind, empty files and nothing else. Says what is in the way. */
typedef enum { OUTPUT_TENSORS, OUTPUT_PAGE, OUTPUT_JSON, OUTPUT_LOG } output_kind;
bool output_is_free(const char *path, output_kind kind);
/* A model is replaced where that is asked for. */
bool model_is_free(const char *path, bool overwrite);
/* Whole or not at all; says what went wrong. */
bool save_file(const char *path, const char *bytes, size_t length);

/* From now on the first SIGINT, SIGTERM or SIGHUP asks to stop; a second SIGINT or SIGTERM kills. */
void stop_on_signals(void);
int stop_signal(void); /* the one that asked, or 0 */
int stop_status(void); /* the exit status then, or EXIT_DONE */

/* Says that there is no memory, and ends. */
_Noreturn void give_up(size_t bytes);
/* Zeroed memory, or a formatted text, for free(). Where there is none the tool says so and ends. */
void *need(size_t count, size_t size);
char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
double now(void); /* seconds of a clock that never goes back */

/* Options that describe a network: a group for a verb's table. */
enum { NETWORK_OPTIONS = 7 };

typedef struct network {
    const char *cell;
    rcv_net_options net;
    size_list sizes;
    option options[NETWORK_OPTIONS];
} network;

/* Fills in defaults and the table. With `required`, cell and hidden have no default. */
option_group network_group(network *network, bool required);
/* After parsing: opens the cell and completes `network->net`, which points into `network`. */
rcv_status network_open(network *network, rcv_context *context, rcv_cell **cell);

#endif
