/* Random problems, each by every plan, in child processes, so that a crash or a hang costs one plan:
 *   campaign [--device cpu|cuda] [--seed N] [--first N] [--problems N] [--minutes M] [--jobs N] [--plans N] [--limit S]
 *   campaign --device cpu --seed 7 --case 123 [--plan PLAN [--dtype TYPE]]     one case again; with --plan in this process, and in
 *     another type if one is named: what is wrong in float32, too, is not the rounding of a smaller type
 * A failure is one line that ends in the command that repeats it; the last lines are totals. Status 0: no failure; 1: some; 2: bad options; 77: no such device.
 * --break KIND=PLAN makes plans whose string has PLAN in it fail: result (a wrong number), crash, hang.
 *
 * A child is this program again, not a fork: a GPU's context does not survive one. It says what it is about to do; see campaign.h. When it
 * dies, or says nothing for --limit seconds, the plan that it named last has failed, and another child goes on behind that plan. */
#define _XOPEN_SOURCE 700

#include "campaign.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_JOBS = 64, LINE = 4096, CPU_CASES = 8 /* of a child */, BAD_OPTIONS = 2, SKIPPED = 77 };

typedef struct {
    const char *device;
    rcv_dtype dtype; /* where has_dtype; else as drawn */
    uint64_t seed;
    int64_t first, problems, jobs, single; /* single: the one case, or -1 */
    double minutes, limit;
    bool child, has_dtype;
    campaign_options of_case;
    const char *program;
} settings;

typedef struct {
    pid_t pid; /* 0: idle */
    int output;
    int64_t next, end; /* cases: the one it is at, or begins with, and the one behind its last */
    int from;          /* plans of the first case that are left out */
    int index;         /* of the plan that runs, or -1 */
    bool in_case, failed_case, killed;
    double heard; /* when it last said something */
    char description[LINE], plan[LINE], last[LINE], line[LINE];
    char before[LINE]; /* the whole line before this one */
    size_t length;
} job;

typedef struct {
    const settings *s;
    job jobs[MOST_JOBS];
    int64_t next; /* case that no child has yet */
    double began;
    int64_t problems, failed_problems, plans, conditioned, refused, uncompared, failures;
} campaign;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- children ---- */

static void exec_child(const settings *s, const job *j) {
    char seed[32], first[32], count[32], from[32], plans[32];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)s->seed);
    snprintf(first, sizeof first, "%lld", (long long)j->next);
    snprintf(count, sizeof count, "%lld", (long long)(j->end - j->next));
    snprintf(from, sizeof from, "%d", j->from);
    snprintf(plans, sizeof plans, "%lld", (long long)s->of_case.plans);
    const char *arguments[] = {s->program,
                               "--child",
                               "--device",
                               s->device,
                               "--seed",
                               seed,
                               "--first",
                               first,
                               "--problems",
                               count,
                               "--from",
                               from,
                               "--plans",
                               plans,
                               s->of_case.fault ? "--break" : NULL,
                               s->of_case.fault,
                               NULL};
    execv("/proc/self/exe", (char *const *)arguments);
    _exit(127);
}

static bool start_job(campaign *c, job *j) {
    int ends[2];
    if (pipe(ends)) return false;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        exec_child(c->s, j);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return false;
    }
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    j->pid = pid;
    j->output = ends[0];
    j->index = -1;
    j->in_case = j->killed = false;
    j->length = 0;
    j->heard = now();
    snprintf(j->last, sizeof j->last, "it said nothing");
    j->before[0] = '\0';
    return true;
}

static bool is_over(const campaign *c) {
    return c->next >= c->s->first + c->s->problems || (c->s->minutes > 0 && now() - c->began > 60 * c->s->minutes);
}

/* Gives an idle job cases of its own. */
static bool give_cases(campaign *c, job *j) {
    if (is_over(c)) return true;
    int64_t share = strcmp(c->s->device, "cpu") ? 1 : CPU_CASES, end = c->s->first + c->s->problems;
    j->next = c->next;
    j->end = c->next + share < end ? c->next + share : end;
    j->from = 0;
    j->failed_case = false;
    c->next = j->end;
    return start_job(c, j);
}

/* ---- what children say ---- */

static void report(campaign *c, job *j, const char *sentence) {
    const settings *s = c->s;
    c->failures++;
    j->failed_case = true;
    printf("FAILED: %s: %s; repeat with: %s --device %s --seed %llu --case %lld", j->description, sentence, s->program,
           s->device, (unsigned long long)s->seed, (long long)j->next);
    if (j->index >= 0) printf(" --plan '%s'", j->plan);
    if (s->of_case.fault) printf(" --break '%s'", s->of_case.fault);
    printf("\n");
    fflush(stdout);
}

static void end_case(campaign *c, job *j) {
    c->problems++;
    c->failed_problems += j->failed_case;
    j->in_case = j->failed_case = false;
    j->next++;
    j->from = 0;
}

static bool starts(const char *line, const char *word, const char **rest) {
    size_t length = strlen(word);
    if (strncmp(line, word, length) || (line[length] && line[length] != ' ')) return false;
    *rest = line + length + (line[length] == ' ');
    return true;
}

static void take_line(campaign *c, job *j, const char *line) {
    const char *rest, *plan;
    if (starts(line, "case", &rest)) {
        j->in_case = true;
        snprintf(j->description, sizeof j->description, "case %s", rest);
    } else if (starts(line, "plan", &rest)) {
        j->index = atoi(rest);
        plan = strchr(rest, ' ');
        snprintf(j->plan, sizeof j->plan, "%s", plan ? plan + 1 : "");
        snprintf(j->last, sizeof j->last, "it said nothing");
    } else if (starts(line, "passed", &rest) || starts(line, "conditioned", &rest) || starts(line, "refused", &rest) ||
               starts(line, "uncompared", &rest) || starts(line, "failed", &rest)) {
        c->plans += line[0] == 'p' || line[0] == 'c' || line[0] == 'f';
        c->conditioned += line[0] == 'c';
        c->refused += line[0] == 'r';
        c->uncompared += line[0] == 'u';
        if (line[0] == 'f') report(c, j, rest);
        if (j->index >= j->from) j->from = j->index + 1;
        j->index = -1;
    } else if (starts(line, "done", &rest)) {
        end_case(c, j);
    } else if (*line) {
        snprintf(j->last, sizeof j->last, "%s", line);
    }
}

static bool take_bytes(campaign *c, job *j) {
    char bytes[LINE];
    ssize_t count = read(j->output, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) return true;
    for (ssize_t i = 0; i < count; i++) {
        if (bytes[i] != '\n') {
            if (j->length + 1 < sizeof j->line) j->line[j->length++] = bytes[i];
            continue;
        }
        j->line[j->length] = '\0';
        j->length = 0;
        take_line(c, j, j->line);
        snprintf(j->before, sizeof j->before, "%s", j->line);
    }
    j->heard = now();
    return count > 0;
}

/* A child has ended: what it was at has failed, and what it has left goes on in another. */
static bool end_job(campaign *c, job *j) {
    int status = 0;
    close(j->output);
    while (waitpid(j->pid, &status, 0) < 0 && errno == EINTR) {
    }
    j->pid = 0;
    bool well = WIFEXITED(status) && WEXITSTATUS(status) <= 1;
    bool said = WIFEXITED(status) && WEXITSTATUS(status) == CAMPAIGN_FAILED && j->index < 0 && j->failed_case;
    if (j->next < j->end && !said) {
        char sentence[2 * LINE];
        int before = j->from, index = j->index;
        if (j->killed)
            snprintf(sentence, sizeof sentence, "it said nothing for %g s after '%.60s'", c->s->limit, j->before);
        else if (WIFSIGNALED(status))
            snprintf(sentence, sizeof sentence, "it ended by signal %d: %s", WTERMSIG(status), j->last);
        else
            snprintf(sentence, sizeof sentence, "it ended with status %d%s: %s", WEXITSTATUS(status),
                     well ? " too early" : "", j->last);
        if (!j->in_case) snprintf(j->description, sizeof j->description, "case %lld", (long long)j->next);
        if (index >= 0) c->plans++;
        report(c, j, sentence);
        j->from = index >= before ? index + 1 : 0;
        if (index < before) end_case(c, j); /* no plan of it can be left out so that it goes on */
    }
    return j->next < j->end ? start_job(c, j) : give_cases(c, j);
}

static void kill_late(campaign *c) {
    for (int64_t i = 0; i < c->s->jobs; i++) {
        job *j = &c->jobs[i];
        if (!j->pid || j->killed || now() - j->heard < c->s->limit) continue;
        j->killed = true;
        kill(j->pid, SIGKILL);
    }
}

static int work(campaign *c) {
    for (int64_t i = 0; i < c->s->jobs; i++) {
        if (!give_cases(c, &c->jobs[i])) return 1;
    }
    for (;;) {
        struct pollfd polls[MOST_JOBS];
        job *of[MOST_JOBS];
        nfds_t count = 0;
        for (int64_t i = 0; i < c->s->jobs; i++) {
            if (!c->jobs[i].pid) continue;
            of[count] = &c->jobs[i];
            polls[count++] = (struct pollfd){.fd = c->jobs[i].output, .events = POLLIN};
        }
        if (!count) break;
        if (poll(polls, count, 500) < 0 && errno != EINTR) return 1;
        for (nfds_t i = 0; i < count; i++) {
            if (polls[i].revents && !take_bytes(c, of[i]) && !end_job(c, of[i])) return 1;
        }
        kill_late(c);
    }
    printf("campaign: %lld problems, %lld plans, %lld refused, %lld failures; %lld plans ill-conditioned, %lld "
           "problems not "
           "compared; %s, seed %llu, %.0f s\n",
           (long long)c->problems, (long long)c->plans, (long long)c->refused, (long long)c->failures,
           (long long)c->conditioned, (long long)c->uncompared, c->s->device, (unsigned long long)c->s->seed,
           now() - c->began);
    printf("%lld passed, %lld failed\n", (long long)(c->problems - c->failed_problems), (long long)c->failed_problems);
    return c->failures > 0 || c->problems == 0;
}

/* ---- in this process ---- */

/* Says what is missing where it is not. */
static bool is_there(const char *device) {
    rcv_context *context = NULL;
    if (rcv_context_new(NULL, &context)) return false;
    rcv_status status = rcv_device_describe(context, device, NULL);
    if (status) fprintf(stderr, "campaign: SKIPPED: %s\n", rcv_message());
    rcv_context_free(context);
    return !status;
}

static int work_here(const settings *s) {
    int failed = 0;
    if (!is_there(s->device)) return SKIPPED;
    for (int64_t i = 0; i < s->problems; i++) {
        campaign_case k;
        draw_case(&k, s->device, s->seed, s->first + i);
        if (s->has_dtype) k.dtype = s->dtype;
        if (!s->child && k.text) printf("%s", k.text);
        campaign_options of_case = s->of_case;
        if (i > 0) of_case.from = 0;
        failed += run_case(&k, &of_case);
        drop_case(&k);
    }
    return failed > 0;
}

/* A child that does nothing but look for the device, which this process must not open. */
static bool finds_device(const settings *s) {
    const job none = {.next = 0};
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) exec_child(s, &none);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- options ---- */

/* A type of plans. */
static bool read_dtype(const char *name, rcv_dtype *out) {
    return rcv_dtype_find(name, out) && (*out <= RCV_BFLOAT16 || *out == RCV_TFLOAT32);
}

static bool read_options(int argc, char **argv, settings *s) {
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (!strcmp(name, "--child")) {
            s->child = true;
            continue;
        }
        if (i + 1 == argc) return false;
        char *value = argv[++i], *end = value;
        double number = strtod(value, &end);
        bool whole = end > value && !*end && number >= 0 && number < 1e15;
        int64_t integer = whole ? (int64_t)number : 0;
        if (!strcmp(name, "--device") && (!strcmp(value, "cpu") || !strncmp(value, "cuda", 4)))
            s->device = value;
        else if (!strcmp(name, "--plan"))
            s->of_case.plan = value;
        else if (!strcmp(name, "--break"))
            s->of_case.fault = value;
        else if (!strcmp(name, "--dtype") && read_dtype(value, &s->dtype))
            s->has_dtype = true;
        else if (!whole)
            return false;
        else if (!strcmp(name, "--seed"))
            s->seed = (uint64_t)integer;
        else if (!strcmp(name, "--case"))
            s->single = integer;
        else if (!strcmp(name, "--first"))
            s->first = integer;
        else if (!strcmp(name, "--problems"))
            s->problems = integer;
        else if (!strcmp(name, "--minutes"))
            s->minutes = number;
        else if (!strcmp(name, "--jobs") && integer >= 1 && integer <= MOST_JOBS)
            s->jobs = integer;
        else if (!strcmp(name, "--limit") && number > 0)
            s->limit = number;
        else if (!strcmp(name, "--plans"))
            s->of_case.plans = integer;
        else if (!strcmp(name, "--from"))
            s->of_case.from = (int)integer;
        else
            return false;
    }
    if (s->single >= 0) {
        s->first = s->single;
        s->problems = 1;
    }
    return (!s->of_case.plan || s->single >= 0) && (!s->has_dtype || s->of_case.plan);
}

int main(int argc, char **argv) {
    settings s = {
        .device = "cpu", .seed = 1, .problems = 100, .jobs = 1, .single = -1, .limit = 300, .program = argv[0]};
    if (!read_options(argc, argv, &s)) {
        fprintf(stderr,
                "usage: %s [--device cpu|cuda] [--seed N] [--first N] [--problems N] [--minutes M] [--jobs N] "
                "[--plans N] [--limit S] [--case N [--plan PLAN [--dtype TYPE]]]\n",
                argv[0]);
        return BAD_OPTIONS;
    }
    if (s.child || s.of_case.plan) return work_here(&s);
    if (!finds_device(&s)) return SKIPPED;
    campaign *c = calloc(1, sizeof *c);
    if (!c) return 1;
    c->s = &s;
    c->next = s.first;
    c->began = now();
    int status = work(c);
    free(c);
    return status;
}
