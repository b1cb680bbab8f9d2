/* recurve: the table of verbs. Each verb is a file in verbs/. */
#include "json.h"
#include "tool.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const verb verbs[] = {
    {"list", "list the built-in cells", verb_list},
    {"cell", "show a cell's equations, parameters, stages and derivative", verb_cell},
    {"init", "write a model with initial parameters", verb_init},
    {"run", "run tensors through a model, optionally with gradients", verb_run},
    {"train", "train a model on text, or on sequences with classes or values", verb_train},
    {"compare", "train several cells in the same way and compare them", verb_compare},
    {"report", "write an HTML page of one training log, or of several", verb_report},
    {"generate", "generate text with a trained language model", verb_generate},
    {"predict", "predict classes, values or a text's probability", verb_predict},
    {"eval", "compute the loss of a trained model on data", verb_eval},
    {"export", "write the model of a checkpoint, with PyTorch's names", verb_export},
    {"plan", "list the plans of a network with their times and memory", verb_plan},
    {"bench", "time a network, other libraries and the machine's limit", verb_bench},
    {"data", "show statistics of a training file", verb_data},
    {"doctor", "show what this machine has and what is missing", verb_doctor},
    {"completion", "print what completes the command in a shell", verb_completion},
};

const verb *verb_at(size_t index) { return index < COUNT(verbs) ? &verbs[index] : NULL; }

static const char *verb_name(const void *list, size_t index) { return ((const verb *)list)[index].name; }

static const verb *find_verb(const char *name) {
    for (size_t i = 0; i < COUNT(verbs); i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            return &verbs[i];
        }
    }
    const char *near = nearest_name(name, COUNT(verbs), verb_name, verbs);
    bool is_cell = false;
    for (size_t i = 0; i < rcv_builtin_count(); i++) {
        is_cell |= strcmp(rcv_builtin_name(i), name) == 0;
    }
    if (is_cell) {
        say("'%s' is a cell and no verb; recurve cell %s describes it", name, name);
    } else if (near != NULL) {
        say("there is no verb '%.60s'; did you mean %s?", name, near);
    } else if (access(name, F_OK) == 0) {
        say("'%.60s' is a file and no verb; a verb comes first, such as recurve train %.60s", name, name);
    } else {
        say("there is no verb '%.60s'; recurve --help lists them", name);
    }
    return NULL;
}

/* ---- the options before the verb ---- */

static bool version;

static option before_verb[] = {{"version", OPTION_FLAG, &version, .help = "print the version, and end"}};
static const option_group before_groups[] = {{"Options before the verb", before_verb, COUNT(before_verb)}};
static const command before = {.summary = "Recurrent networks from a cell's equations",
                               .groups = before_groups,
                               .group_count = COUNT(before_groups)};

const command *command_before_verb(void) { return &before; }

static void print_overview(void) {
    const bool is_bold = use_color(stdout);
    const char *begin = is_bold ? "\033[1m" : "", *end = is_bold ? "\033[0m" : "";
    printf("%sUsage:%s recurve VERB [ARGUMENTS]\n\nRecurrent networks from a cell's equations.\n\n", begin, end);
    for (size_t i = 0; i < COUNT(verbs); i++) {
        printf("  %s%-11s%s %s\n", begin, verbs[i].name, end, verbs[i].summary);
    }
    print_option_groups(&before);
    printf("\n%sExit status:%s 0 done, 1 failed, 2 wrong usage, 128 + N stopped by signal N.\n", begin, end);
    printf("\nrecurve VERB --help describes a verb; man recurve all of them.\n");
}

static int help(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_overview();
        return EXIT_DONE;
    }
    if (argc > 2) {
        say("help takes one verb; remove '%s'", argv[2]);
        return EXIT_USAGE;
    }
    const verb *verb = find_verb(argv[1]);
    if (verb == NULL) {
        return EXIT_USAGE;
    }
    char *arguments[] = {argv[1], (char[]){"--help"}, NULL};
    return verb->run(2, arguments);
}

static int dispatch(int argc, char **argv) {
    int first = argc;
    const parsed next = command_parse_options(&before, argc, argv, &first);
    if (next == PARSED_WRONG) {
        return EXIT_USAGE;
    }
    if (next == PARSED_HELP) {
        print_overview();
        return EXIT_DONE;
    }
    if (version) {
        printf("recurve %s\n", rcv_version());
        return EXIT_DONE;
    }
    if (first == argc) {
        dup2(STDERR_FILENO, STDOUT_FILENO); /* no result, but what is missing */
        print_overview();
        return EXIT_USAGE;
    }
    argc -= first;
    argv += first;
    if (strcmp(argv[0], "help") == 0) {
        return help(argc, argv);
    }
    const verb *verb = find_verb(argv[0]);
    return verb != NULL ? verb->run(argc, argv) : EXIT_USAGE;
}

/* Has the reader of our pipe closed it? That is not a failure. */
static bool reader_is_gone(void) {
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); /* a failed write is handled where it happens: a closed pipe, */
    signal(SIGXFSZ, SIG_IGN); /* and a file larger than the limit of the process */
    reserve_json_memory();
    const int result = dispatch(argc, argv);
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && result == EXIT_DONE && !reader_is_gone()) {
        say("cannot write to standard output%s%s", errno != 0 ? ": " : "", errno != 0 ? strerror(errno) : "");
        return EXIT_FAILED;
    }
    return result;
}
