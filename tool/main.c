/* recurve: the table of verbs. Each verb is a file in verbs/. */
#include "json.h"
#include "tool.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} verb;

static const verb verbs[] = {
    {"list", "list the built-in cells", verb_list},
    {"cell", "show a cell's equations, parameters, stages and derivative", verb_cell},
    {"init", "write a model with initial parameters", verb_init},
    {"run", "run tensors through a model, optionally with gradients", verb_run},
    {"train", "train a model on text, or on sequences with classes or values", verb_train},
    {"report", "write an HTML page of one training log, or of several", verb_report},
    {"generate", "generate text with a trained language model", verb_generate},
    {"predict", "predict classes, values or a text's probability", verb_predict},
    {"eval", "compute the loss of a trained model on data", verb_eval},
    {"export", "write the model of a checkpoint, with PyTorch's names", verb_export},
    {"plan", "list the plans of a network with their times and memory", verb_plan},
    {"bench", "time a network, other libraries and the machine's limit", verb_bench},
    {"data", "show statistics of a training file", verb_data},
};

static const char *verb_name(const void *list, size_t index) { return ((const verb *)list)[index].name; }

static const verb *find_verb(const char *name) {
    for (size_t i = 0; i < COUNT(verbs); i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            return &verbs[i];
        }
    }
    const char *near = nearest_name(name, COUNT(verbs), verb_name, verbs);
    if (near != NULL) {
        say("there is no verb '%.60s'; did you mean %s?", name, near);
    } else {
        say("there is no verb '%.60s'; recurve --help lists them", name);
    }
    return NULL;
}

static void print_overview(FILE *to) {
    fprintf(to, "Usage: recurve VERB [ARGUMENTS]\n\nRecurrent networks from a cell's equations.\n\n");
    for (size_t i = 0; i < COUNT(verbs); i++) {
        fprintf(to, "  %-10s %s\n", verbs[i].name, verbs[i].summary);
    }
    fprintf(to, "\nrecurve VERB --help describes a verb; recurve --version prints the version.\n");
}

static int help(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_overview(stdout);
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
    if (argc < 2) {
        print_overview(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        return help(argc - 1, argv + 1);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("recurve %s\n", rcv_version());
        return EXIT_DONE;
    }
    if (argv[1][0] == '-') {
        say("there is no option '%.60s' before a verb; see recurve --help", argv[1]);
        return EXIT_USAGE;
    }
    const verb *verb = find_verb(argv[1]);
    return verb != NULL ? verb->run(argc - 1, argv + 1) : EXIT_USAGE;
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
