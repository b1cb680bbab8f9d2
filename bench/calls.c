/* What calls cost besides their computation: the first call of a process and of a shape, the search for a better plan beside the caller, calls of
 * other sizes, arrays in other types, streams; and that backward calls can be repeated and postponed.
 *   bench_calls [--device D] [--data FOLDER] [--parts NAMES] [--json FILE] [--seconds S]
 * `bench_calls --help` lists all options. Every job is a process of its own; see calls/calls.h. The results are printed as a table and, after
 * every row, written to the JSON file. */
#define _XOPEN_SOURCE 700
#include "calls/calls.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern const char recurve_commit[]; /* generated; empty: not known */

enum { MOST_ROWS = 256, TEXT = 512, LINE = 1 << 18 };
static const double grace = 10;   /* seconds that a job may take longer than it should */
static const double at_least = 2; /* seconds that a job is given, whatever the jobs before it took */

static volatile sig_atomic_t stop_signal;
static void note_signal(int number) { stop_signal = number; }

/* ---- options ---- */

typedef enum { TEXT_OPTION, SECONDS_OPTION, COUNT_OPTION, FLAG_OPTION } option_kind;

typedef struct {
    const char *name;
    option_kind kind;
    void *destination;
    const char *value, *help;
} option;

static options chosen = {.device = "cpu", .seconds = 300};
static const char *asked_job, *asked_until;
static bool asked_help;

/* The first ones are for users. */
static const option table[] = {
    {"device", TEXT_OPTION, &chosen.device, "NAME", "cpu, cuda, cuda:1, ... (default: cpu)"},
    {"data", TEXT_OPTION, &chosen.data, "FOLDER", "with ptb.train.txt, for the part `sentences`"},
    {"parts", TEXT_OPTION, &chosen.parts, "NAMES",
     "some of first,sizes,backward,types,sentences,stream (default: all)"},
    {"json", TEXT_OPTION, &chosen.json, "FILE",
     "write the results there; in a folder to calls-NAME-OF-THE-MACHINE.json"},
    {"seconds", SECONDS_OPTION, &chosen.seconds, "S", "of all parts together, at most (default: 300)"},
    {"limit", COUNT_OPTION, &chosen.limit, "N", "batches of the epoch of sentences, at most (default: all)"},
    {"tiny", FLAG_OPTION, &chosen.tiny, NULL, "small networks, to test this program"},
    {"help", FLAG_OPTION, &asked_help, NULL, "print this"},
    {"job", TEXT_OPTION, &asked_job, NULL, NULL}, /* of a process that this program started */
    {"until", TEXT_OPTION, &asked_until, NULL, NULL},
    {"files-read", FLAG_OPTION, &chosen.files_read, NULL, NULL},
};
enum { OPTIONS = sizeof table / sizeof *table };

static void print_help(void) {
    printf("bench_calls: what calls cost besides their computation\n\nOptions:\n");
    for (size_t i = 0; i < OPTIONS && table[i].help; i++) {
        char name[64];
        snprintf(name, sizeof name, "--%s %s", table[i].name, table[i].value ? table[i].value : "");
        printf("  %-18s %s\n", name, table[i].help);
    }
}

static bool read_value(const option *o, const char *text) {
    char *end = NULL;
    double number = o->kind == TEXT_OPTION ? 0 : strtod(text, &end);
    if (o->kind == TEXT_OPTION) {
        *(const char **)o->destination = text;
    } else if (end == text || *end || !(number > 0) || number > 1e9) {
        fprintf(stderr, "bench_calls: --%s is '%s', not a number above 0\n", o->name, text);
        return false;
    } else if (o->kind == SECONDS_OPTION) {
        *(double *)o->destination = number;
    } else {
        *(int64_t *)o->destination = (int64_t)ceil(number);
    }
    return true;
}

static bool read_options(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const option *o = NULL;
        for (size_t k = 0; k < OPTIONS && !o; k++) {
            if (!strncmp(argv[i], "--", 2) && !strcmp(argv[i] + 2, table[k].name)) o = &table[k];
        }
        if (!o) {
            fprintf(stderr, "bench_calls: unknown option '%s'; see bench_calls --help\n", argv[i]);
            return false;
        }
        if (o->kind == FLAG_OPTION) {
            *(bool *)o->destination = true;
            continue;
        }
        if (i + 1 == argc) {
            fprintf(stderr, "bench_calls: --%s needs a value; see bench_calls --help\n", o->name);
            return false;
        }
        if (!read_value(o, argv[++i])) return false;
    }
    return true;
}

/* Is the part of this length among the comma-separated names? */
static bool lists(const char *names, const char *part, size_t length) {
    for (const char *at = names; *at;) {
        size_t word = strcspn(at, ",");
        if (word == length && !strncmp(at, part, word)) return true;
        at += word + (at[word] == ',');
    }
    return false;
}

static bool is_wanted(const job_entry *e) {
    if (e->place == ON_GPU && !strncmp(chosen.device, "cpu", 3)) return false;
    return !chosen.parts || lists(chosen.parts, e->part, strlen(e->part));
}

static bool check_parts(void) {
    for (const char *at = chosen.parts; at && *at;) {
        size_t word = strcspn(at, ","), i = 0;
        while (i < job_count && !lists(jobs[i].part, at, word)) i++;
        if (i == job_count) {
            fprintf(stderr,
                    "bench_calls: --parts names '%.*s', which is none of first, sizes, backward, types, sentences and "
                    "stream\n",
                    (int)word, at);
            return false;
        }
        at += word + (at[word] == ',');
    }
    return true;
}

/* ---- a job, in its own process ---- */

static void print_cpu(void) {
    char line[TEXT] = "";
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file) && strncmp(line, "model name", 10) != 0) line[0] = '\0';
    if (file) fclose(file);
    const char *colon = strchr(line, ':');
    struct utsname system;
    line[strcspn(line, "\n")] = '\0';
    print_json_text(stdout, colon ? colon + 1 + (colon[1] == ' ') : uname(&system) ? "unknown" : system.machine);
}

/* One line of JSON: the machine. */
static int describe_machine(rcv_context *context) {
    char *device = NULL;
    struct utsname system;
    bool known = uname(&system) == 0;
    char text[TEXT * 2];
    rcv_status status = rcv_device_describe(context, chosen.device, &device);
    if (status) {
        fprintf(stderr, "bench_calls: %s\n", rcv_message());
        return 1;
    }
    printf("{\"device\": ");
    if (strncmp(chosen.device, "cpu", 3) != 0)
        print_json_text(stdout, device);
    else
        printf("null");
    printf(", \"cpu\": ");
    print_cpu();
    snprintf(text, sizeof text, "%s %s %s", known ? system.sysname : "unknown", known ? system.release : "",
             known ? system.machine : "");
    printf(", \"system\": ");
    print_json_text(stdout, text);
    printf(", \"cores\": %ld, \"threads\": %lld, \"kernels\": \"%s\", \"architecture\": \"%s\"}\n",
           sysconf(_SC_NPROCESSORS_ONLN), (long long)rcv_context_threads(context), rcv_context_kernels(context),
           known ? system.machine : "unknown");
    fflush(stdout);
    rcv_text_free(context, device);
    return 0;
}

/* The process ends without freeing what the job still has, since a search may run on. */
static void do_job(void) {
    job j = {.options = &chosen, .until = strtod(asked_until ? asked_until : "inf", NULL), .part = "machine"};
    int status = 1;
    if (rcv_context_new(NULL, &j.context)) {
        fprintf(stderr, "bench_calls: %s\n", rcv_message());
        _exit(1);
    }
    if (!strcmp(asked_job, "machine")) status = describe_machine(j.context);
    for (size_t i = 0; i < job_count; i++) {
        if (strcmp(asked_job, jobs[i].name) != 0) continue;
        j.part = jobs[i].name;
        if (jobs[i].place == ON_CPU) chosen.device = "cpu";
        jobs[i].measure(&j, jobs[i].argument);
        status = j.failed;
    }
    fflush(NULL);
    _exit(status);
}

/* ---- the results ---- */

static struct {
    char *rows[MOST_ROWS]; /* lines of JSON */
    size_t count;
    char *machine; /* the same */
    char command[TEXT * 2], path[TEXT * 2], date[64];
    double began;
    bool complete; /* every job that was asked for has ended */
    bool failed;   /* a job did, or the file could not be written */
} results;

static void print_results(FILE *out) {
    fprintf(out, "{\n\"command\": ");
    print_json_text(out, results.command);
    fprintf(out,
            ",\n\"date\": \"%s\",\n\"version\": \"%s\",\n\"commit\": \"%s\",\n\"seconds\": %.1f,\n\"stopped\": %s,\n",
            results.date, rcv_version(), recurve_commit, now() - results.began, stop_signal ? "true" : "false");
    fprintf(out, "\"complete\": %s,\n", results.complete ? "true" : "false");
    fprintf(out, "\"tiny\": %s,\n\"machine\": %s,\n\"rows\": [", chosen.tiny ? "true" : "false",
            results.machine ? results.machine : "null");
    for (size_t i = 0; i < results.count; i++) fprintf(out, "%s\n%s", i ? "," : "", results.rows[i]);
    fprintf(out, "\n]\n}\n");
}

/* The whole file, beside its path, and renamed. */
static void write_results(void) {
    char beside[sizeof results.path + 8];
    if (!chosen.json || !results.path[0]) return;
    snprintf(beside, sizeof beside, "%s.new", results.path);
    FILE *file = fopen(beside, "w");
    bool good = file != NULL;
    if (file) {
        print_results(file);
        good = !ferror(file);
        good &= fclose(file) == 0;
    }
    if (good && !rename(beside, results.path)) return;
    fprintf(stderr, "bench_calls: %s cannot be written: %s\n", results.path, strerror(errno));
    results.failed = true;
}

/* FILE, or FOLDER/calls-NAME-OF-THE-MACHINE.json: the GPU's name, or the architecture. */
static void find_path(void) {
    struct stat about;
    if (!chosen.json) return;
    snprintf(results.path, sizeof results.path, "%s", chosen.json);
    if (stat(chosen.json, &about) || !S_ISDIR(about.st_mode)) return;
    char name[TEXT] = "machine";
    static const char *const keys[] = {"\"device\": \"", "\"architecture\": \""};
    for (int i = 0; i < 2; i++) {
        const char *at = results.machine ? strstr(results.machine, keys[i]) : NULL;
        if (!at) continue;
        at += strlen(keys[i]);
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ",\""), at);
        break;
    }
    for (char *c = name; *c; c++) {
        if (*c == ' ' || *c == '/') *c = '-';
    }
    snprintf(results.path, sizeof results.path, "%s/calls-%s.json", chosen.json, name);
}

static void keep_line(const char *job_name, const char *line) {
    if (!strcmp(job_name, "machine")) {
        if (!results.machine) results.machine = need(strdup(line));
        return;
    }
    if (strstr(line, "\"id\": \"libraries.read\"") && !strstr(line, "\"measured\": null")) chosen.files_read = true;
    if (results.count < MOST_ROWS) results.rows[results.count++] = need(strdup(line));
    write_results();
}

/* A row of a job that did not end by itself. */
static void note_ending(const job_entry *e, const char *reason) {
    char line[TEXT * 2];
    fprintf(stderr, "bench_calls: %s: %s\n", e->name, reason);
    snprintf(line, sizeof line,
             "{\"id\": \"%s\", \"part\": \"%s\", \"what\": \"%s ended early\", \"unit\": \"\", \"target\": null, "
             "\"measured\": null, "
             "\"reason\": \"%s\", \"failed\": true, \"details\": {}}",
             e->name, e->name, e->name, reason);
    keep_line(e->name, line);
}

/* ---- the processes of jobs ---- */

/* In the child: starts this program again for the job. */
static void start_job(const char *self, const char *name, double until, const char *cache, int output, char **argv,
                      int argc) {
    static char files_read[] = "--files-read";
    char text[64];
    char **again = need(calloc((size_t)argc + 6, sizeof *again));
    snprintf(text, sizeof text, "%.3f", until);
    memcpy(again, argv, (size_t)argc * sizeof *again);
    char *const more[] = {(char[]){"--job"}, need(strdup(name)), (char[]){"--until"}, text};
    memcpy(again + argc, more, sizeof more);
    if (chosen.files_read) again[argc + 4] = files_read;
    dup2(output, STDOUT_FILENO);
    setenv("RECURVE_CACHE", cache, 1);
    setenv("CUDA_CACHE_PATH", cache, 1); /* the driver's own cache of compiled kernels */
    unsetenv("RECURVE_WISDOM");
    execv(self, again);
    fprintf(stderr, "bench_calls: %s cannot be started: %s\n", self, strerror(errno));
    _exit(127);
}

/* Whole lines of the job's output, until it closes it, the time is over, or a signal came. False: it did not close it. */
static bool read_lines(const char *name, int input, double until) {
    static char line[LINE];
    size_t length = 0;
    while (!stop_signal) {
        double left = until - now();
        struct pollfd waiting = {.fd = input, .events = POLLIN};
        int ready = left > 0 ? poll(&waiting, 1, (int)(left * 1e3) + 1) : 0;
        if (ready == 0 && now() >= until) return false;
        if (ready <= 0) continue;
        ssize_t got = read(input, line + length, sizeof line - 1 - length);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return true;
        length += (size_t)got;
        for (char *end; (end = memchr(line, '\n', length));) {
            *end = '\0';
            keep_line(name, line);
            length -= (size_t)(end + 1 - line);
            memmove(line, end + 1, length);
        }
        if (length == sizeof line - 1) length = 0; /* no line of ours is that long */
    }
    return false;
}

/* The status of a child; one that does not end is killed, and left alone if even that does not end it. -1: it was. */
static int end_child(pid_t child, bool is_ending) {
    int status = 0;
    for (int i = 0; i < 600; i++) {
        if (waitpid(child, &status, WNOHANG) == child) return status;
        if (!is_ending && i == 0) kill(child, SIGTERM);
        if (i == (is_ending ? 300 : 100)) kill(child, SIGKILL);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return -1;
}

/* Does the job until then; false: it failed. */
static bool run_job(const job_entry *e, double until, const char *folder, char **argv, int argc) {
    char cache[TEXT * 2], reason[TEXT];
    int ends[2];
    snprintf(cache, sizeof cache, "%s/%s", folder, e->cache);
    if ((mkdir(cache, 0700) && errno != EEXIST) || pipe(ends)) {
        note_ending(e, "the system refused a folder or a pipe");
        return false;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        start_job("/proc/self/exe", e->name, until, cache, ends[1], argv, argc);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        note_ending(e, "the system refused a process");
        return false;
    }
    bool is_closed = read_lines(e->name, ends[0], until + grace);
    close(ends[0]);
    int status = end_child(child, is_closed);
    if (stop_signal) return true;
    if (!is_closed)
        snprintf(reason, sizeof reason, "the job did not end %.0f s after its time was over, and was killed", grace);
    else if (status == -1 || !WIFEXITED(status))
        snprintf(reason, sizeof reason, "the job was ended by signal %d", status == -1 ? SIGKILL : WTERMSIG(status));
    else if (WEXITSTATUS(status) > 1)
        snprintf(reason, sizeof reason, "the job ended with status %d", WEXITSTATUS(status));
    else
        return WEXITSTATUS(status) == 0;
    note_ending(e, reason);
    return false;
}

static int remove_entry(const char *path, const struct stat *about, int type, struct FTW *place) {
    (void)about;
    (void)type;
    (void)place;
    return remove(path);
}

/* Every job in turn; each may take its share of the time that is left. */
static void run_jobs(const char *folder, char **argv, int argc) {
    double end = results.began + chosen.seconds, left = 0;
    for (size_t i = 0; i < job_count; i++) left += is_wanted(&jobs[i]) ? jobs[i].weight : 0;
    for (size_t i = 0; i < job_count && !stop_signal; i++) {
        const job_entry *e = &jobs[i];
        if (!is_wanted(e)) continue;
        double seconds = (end - now()) * e->weight / left;
        if (seconds < at_least) seconds = at_least;
        left -= e->weight;
        fprintf(stderr, "bench_calls: %s: at most %.0f s, after %.0f s\n", e->name, seconds, now() - results.began);
        results.failed |= !run_job(e, now() + seconds, folder, argv, argc);
    }
    results.complete = !stop_signal;
}

/* ---- the table ---- */

/* The value after a key of a row, without quotes. */
static void find_value(const char *line, const char *key, char *value, size_t room) {
    const char *at = strstr(line, key);
    value[0] = '\0';
    if (!at) return;
    at += strlen(key);
    at += *at == '"';
    snprintf(value, room, "%.*s", (int)strcspn(at, at[-1] == '"' ? "\"" : ",}"), at);
}

/* The details of a row on a line of their own, without the elements of lists, since those of sizes are many. */
static void print_details(const char *line) {
    static const char key[] = "\"details\": {";
    const char *at = strstr(line, key);
    bool is_text = false;
    int depth = 0;
    if (!at || at[sizeof key - 1] == '}') return;
    printf("    ");
    for (at += sizeof key - 1; *at && (*at != '}' || is_text); at++) {
        if (*at == '"' && at[-1] != '\\') is_text = !is_text;
        if (*at == '[' && !is_text && depth++ == 0) fputs("(list)", stdout);
        if (depth == 0 && *at != '"') putchar(*at);
        if (*at == ']' && !is_text) depth--;
    }
    putchar('\n');
}

static void print_table(void) {
    char what[TEXT], measured[TEXT], unit[TEXT], target[TEXT], other[TEXT];
    printf("%-92s %12s %-4s %8s\n", "what", "measured", "", "target");
    for (size_t i = 0; i < results.count; i++) {
        find_value(results.rows[i], "\"what\": ", what, sizeof what);
        find_value(results.rows[i], "\"measured\": ", measured, sizeof measured);
        find_value(results.rows[i], "\"unit\": ", unit, sizeof unit);
        find_value(results.rows[i], "\"target\": ", target, sizeof target);
        find_value(results.rows[i], "\"verdict\": ", other, sizeof other);
        if (!other[0]) find_value(results.rows[i], "\"reason\": ", other, sizeof other);
        if (strcmp(measured, "null") != 0)
            printf("%-92s %12.4g %-4s %8s\n", what, strtod(measured, NULL), unit,
                   strcmp(target, "null") != 0 ? target : "");
        else
            printf("%-92s %12s\n", what, other);
        print_details(results.rows[i]);
    }
}

/* ---- main ---- */

static void describe_run(int argc, char **argv) {
    time_t seconds = time(NULL);
    struct tm parts;
    size_t length = (size_t)snprintf(results.command, sizeof results.command, "bench_calls");
    for (int i = 1; i < argc && length < sizeof results.command; i++) { /* no path of this machine */
        const char *word = !strcmp(argv[i - 1], "--data") ? "DATA" : !strcmp(argv[i - 1], "--json") ? "FILE" : argv[i];
        length += (size_t)snprintf(results.command + length, sizeof results.command - length, " %s", word);
    }
    gmtime_r(&seconds, &parts);
    strftime(results.date, sizeof results.date, "%Y-%m-%d %H:%M UTC", &parts);
    results.began = now();
}

int main(int argc, char **argv) {
    if (!read_options(argc, argv) || !check_parts()) return 2;
    if (asked_help) {
        print_help();
        return 0;
    }
    if (asked_job) do_job();
    const char *temporary = getenv("TMPDIR");
    char folder[TEXT];
    snprintf(folder, sizeof folder, "%s/bench-calls-XXXXXX", temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(folder)) {
        fprintf(stderr, "bench_calls: %s cannot be made: %s\n", folder, strerror(errno));
        return 1;
    }
    struct sigaction action = {.sa_handler = note_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    describe_run(argc, argv);
    static const job_entry machine = {"machine", "machine", NULL, NULL, "machine", 0, ON_DEVICE};
    bool is_usable = run_job(&machine, now() + 60, folder, argv, argc) && results.machine;
    find_path();
    if (is_usable) {
        write_results();
        run_jobs(folder, argv, argc);
        print_table();
    }
    write_results();
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    if (stop_signal) return 128 + stop_signal;
    return is_usable && !results.failed ? 0 : 1;
}
