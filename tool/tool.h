/* Functions that the verbs share. The tool uses the public header recurve.h alone. */
#ifndef TOOL_H
#define TOOL_H

#include "options.h"

#include <math.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

typedef struct {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the name; the result is the exit status */
} verb;

/* The table of verbs, in main.c. NULL past the end. */
const verb *verb_at(size_t index);

/* The options before the verb, and no verb. */
const command *command_before_verb(void);

/* One function for each verb. */
int verb_list(int argc, char **argv);
int verb_cell(int argc, char **argv);
int verb_init(int argc, char **argv);
int verb_data(int argc, char **argv);
int verb_run(int argc, char **argv);
int verb_train(int argc, char **argv);
int verb_compare(int argc, char **argv);
int verb_generate(int argc, char **argv);
int verb_predict(int argc, char **argv);
int verb_eval(int argc, char **argv);
int verb_export(int argc, char **argv);
int verb_plan(int argc, char **argv);
int verb_bench(int argc, char **argv);
int verb_report(int argc, char **argv);
int verb_doctor(int argc, char **argv);
int verb_completion(int argc, char **argv);

/* From now on jansson allocates from a reserve when there is no memory. */
void reserve_json_memory(void);
/* Prints "recurve: MESSAGE" on standard error: what is wrong. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same for what is not wrong, such as which file was written; nothing with --quiet. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same for a result, such as the loss of a test: also with --quiet. */
void say_result(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* With `hold` messages are no longer printed, and the last one is kept: one of several ranks prints for all. */
void hold_messages(bool hold);
const char *held_message(void); /* the message kept; NULL: none */
/* Prints the library's message; an error in a cell's text is printed unchanged, with file, line and caret. Returns EXIT_FAILED, or the status
 * of the signal that stopped the work. */
int fail(rcv_status status);

/* Text with control characters escaped by rcv_escape, but for those in `keep`; for free(). say() escapes its text itself. */
char *safe_text(const char *bytes, size_t length, const char *keep);

/* Limits of what the tool itself reads; those of the library are in src/base/limits.h. */
#define LIMIT_TEXT ((int64_t)2 << 30)   /* bytes of a training log */
#define LIMIT_LINE ((size_t)64 << 20)   /* bytes of a line of it */
#define LIMIT_PROMPT ((size_t)64 << 20) /* bytes of a prompt from standard input */

/* Reads a regular file that is not empty and has at most LIMIT_TEXT bytes. For free(); NULL after saying what is wrong. */
char *read_text(const char *path, size_t *bytes);
/* exp(loss), loss in nats; at most exp(700). A loss that is not finite is returned unchanged. */
static inline double perplexity_of(double loss) { return isfinite(loss) ? exp(fmin(loss, 700)) : loss; }
/* "recurve VERB ...", quoted where a shell needs it; for free(). */
char *command_line(int argc, char **argv);
/* Can a file be created or replaced at this path? Says why not. */
bool output_is_writable(const char *path);
/* Results may replace a file of the same kind or an empty file, and nothing else. Says why not. */
typedef enum { OUTPUT_TENSORS, OUTPUT_PAGE, OUTPUT_JSON, OUTPUT_LOG, OUTPUT_PREDICTIONS } output_kind;
bool output_is_free(const char *path, output_kind kind);
/* A model may be replaced if `overwrite`. Says why not. */
bool model_is_free(const char *path, bool overwrite);
/* Writes a file whole or not at all. False after saying what went wrong. */
bool save_file(const char *path, const char *bytes, size_t length);

/* From now on the first SIGINT, SIGTERM or SIGHUP asks the verb to stop; a second SIGINT or SIGTERM ends the process. */
void stop_on_signals(void);
int stop_signal(void); /* the signal received, or 0 */
int stop_status(void); /* 128 and the signal, or EXIT_DONE */

/* Says that there is no memory for so many bytes, and ends the process. */
_Noreturn void give_up(size_t bytes);
/* Zeroed memory, or a formatted text; for free(). Without memory the tool says so and ends. */
void *need(size_t count, size_t size);
char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints words from `column` on. Lines end before column 80, and continue at `indent`. A newline in the text is a space. */
void print_wrapped(const char *text, int column, int indent);
double now(void); /* seconds of a monotonic clock */

/* The options that describe a network, as a group of a verb's table. */
enum { NETWORK_OPTIONS = 7 };

typedef struct network {
    const char *cell;
    rcv_net_options net;
    size_list sizes;
    option options[NETWORK_OPTIONS];
} network;

/* Sets the defaults and fills in the table. With `required`, cell and hidden have no default. */
option_group network_group(network *network, bool required);
/* After parsing: opens the cell, and completes `network->net`, which points into `network`. */
rcv_status network_open(network *network, rcv_context *context, rcv_cell **cell);

#endif
