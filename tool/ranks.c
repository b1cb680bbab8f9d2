#include "ranks.h"

#include "tool.h"

#include <stdlib.h>
#include <string.h>

int ranks_fail(const ranks *ranks, rcv_status status) {
    if (ranks->world == NULL) {
        return fail(status);
    }
    char *sentence = text_of("%s", status != RCV_PEER && held_message() != NULL ? held_message() : rcv_message());
    hold_messages(false);
    if (status != RCV_PEER) {
        rcv_world_fail(ranks->world, sentence);
    }
    if (rcv_world_reports_failure(ranks->world) && status == RCV_PEER) {
        say("%s", sentence);
    } else if (rcv_world_reports_failure(ranks->world)) {
        say("rank %d: %s", rcv_world_rank(ranks->world), sentence);
    }
    free(sentence);
    return EXIT_FAILED;
}

int ranks_agree(const ranks *ranks, int result) {
    if (ranks->world == NULL) {
        return result;
    }
    const rcv_status status = rcv_world_agree(ranks->world, result == EXIT_DONE ? RCV_OK : RCV_INVALID);
    return status == RCV_OK ? EXIT_DONE : ranks_fail(ranks, status);
}

static bool is_parallel(const rcv_settings *settings) {
    const char *parallel = rcv_settings_get(settings, "parallel");
    return parallel != NULL && parallel[0] != '\0';
}

/* Is this the first rank on this machine? The variables are those of MPI launchers. */
static bool is_first_on_machine(int rank) {
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK"};
    for (size_t i = 0; i < COUNT(names); i++) {
        if (getenv(names[i]) != NULL) {
            return strcmp(getenv(names[i]), "0") == 0;
        }
    }
    return rank == 0;
}

static int open_world(ranks *ranks, rcv_context *context, const rcv_settings *given, const char *verb) {
    const char *transport = rcv_settings_get(given, "transport"), *timeout = rcv_settings_get(given, "timeout");
    const bool is_automatic = transport == NULL || strcmp(transport, "auto") == 0;
    const rcv_world_options options = RCV_INIT(rcv_world_options, .transport = is_automatic ? NULL : transport,
                                               .timeout = timeout != NULL ? strtod(timeout, NULL) : 0);
    int rank;
    const int started = rcv_world_started(&rank);
    if (!is_parallel(given) && started == 1) {
        return EXIT_DONE;
    }
    hold_messages(!is_first_on_machine(
        rank)); /* an error is the same on all ranks of this machine, and they are not connected yet */
    if (!is_parallel(given)) {
        say("%d processes were started together: add --parallel data or --parallel pipeline", started);
        return EXIT_USAGE;
    }
    const rcv_status status = rcv_world_open(context, &options, &ranks->world);
    if (status != RCV_OK) {
        return fail(status);
    }
    ranks->leads = rcv_world_rank(ranks->world) == 0;
    if (strncmp(rcv_world_name(ranks->world), "self", 4) == 0) {
        say("--parallel %s needs several processes: start them with mpirun -n N recurve %s ...",
            rcv_settings_get(given, "parallel"), verb);
        return EXIT_USAGE;
    }
    hold_messages(true);
    return EXIT_DONE;
}

/* Uses the settings as far as they can be read. Errors in them are reported later, when the ranks are connected. */
int ranks_open(ranks *ranks, rcv_context *context, const settings_arguments *arguments, const char *verb) {
    settings_arguments quiet = *arguments;
    rcv_settings *settings = NULL;
    *ranks = (struct ranks_of_verb){.leads = true};
    quiet.print = false;
    hold_messages(true);
    settings_from_arguments(&quiet, NULL, context, &settings);
    hold_messages(false);
    const int result = open_world(ranks, context, settings != NULL ? settings : arguments->given, verb);
    rcv_settings_free(settings);
    return result;
}

void ranks_close(ranks *ranks) {
    rcv_world_close(ranks->world);
    hold_messages(false);
}
