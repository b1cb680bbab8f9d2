/* Wisdom in the cache on disk: what one process measured another one uses; what is damaged, of another problem or another user's is not used;
 * many processes write and read at once; where the disk cannot be used, planning goes on. */
#define _XOPEN_SOURCE 700 /* utimensat */

#include "base/cache.h"
#include "memory_faults.h"
#include "plan/wisdom.h"
#include "planned.h"
#include "scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

static const char key[] = "cell=lstm:00000000000000ff input=512 hidden=512 threads=2 version=1";
static const config small = {"gru", {.input = 6, .hidden = 8, .layers = 2}, 8, 4, false, false, false};

/* ---- a context with a cache, and its log ---- */

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    int not_used, not_cached, trimmed, lines; /* of the log */
} subject;

static void count_lines(void *user, const char *line) {
    subject *s = user;
    s->lines++;
    s->not_used += strstr(line, "cached wisdom is not used") != NULL;
    s->not_cached += strstr(line, "cached: ") != NULL;
    s->trimmed += strstr(line, "was trimmed") != NULL;
}

static void open_subject(subject *s, const char *cache, bool replan) {
    memset(s, 0, sizeof *s);
    test_allocator_init(&s->allocator);
    check_ok(rcv_context_new(&RCV_INIT(rcv_context_options, .allocator = &s->allocator.allocator, .log = count_lines,
                                       .log_user = s, .threads = 1, .cache = cache, .replan = replan),
                             &s->context));
}

static void close_subject(subject *s) { test_context_end(&s->allocator, s->context); }

static rcvi_lesson lesson_of(const char *plan, double seconds, bool exhaustive) {
    rcvi_lesson lesson = {.seconds = seconds, .exhaustive = exhaustive};
    check_ok(rcvi_rungs_read(plan, &lesson.rungs));
    return lesson;
}

/* In a context of its own, as another process would. */
static void learn(const char *folder, const char *problem_key, const char *plan, double seconds, bool exhaustive) {
    subject s;
    rcvi_lesson lesson = lesson_of(plan, seconds, exhaustive);
    open_subject(&s, folder, false);
    check_ok(rcvi_wisdom_learn(s.context, problem_key, &lesson));
    close_subject(&s);
}

/* The seconds that another process finds; 0: none. */
static double recall(const char *folder, const char *problem_key, bool exhaustive, int *not_used) {
    subject s;
    rcvi_lesson lesson;
    bool found = false;
    open_subject(&s, folder, false);
    check_ok(rcvi_wisdom_recall(s.context, problem_key, exhaustive, &lesson, &found));
    assert_int_equal(rcv_wisdom_count(s.context), found);
    if (not_used) *not_used = s.not_used;
    close_subject(&s);
    return found ? lesson.seconds : 0;
}

/* ---- files ---- */

static const char *folder_in(const char *name) {
    static char folder[400];
    snprintf(folder, sizeof folder, "%s", path_in(name));
    return folder;
}

/* The path of the one file in a folder. */
static void find_file(const char *folder, char path[600]) {
    DIR *open = opendir(folder);
    assert_non_null(open);
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(open));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, 600, "%s/%.100s", folder, entry->d_name);
        count++;
    }
    closedir(open);
    assert_int_equal(count, 1);
}

static void remove_folder(const char *folder) {
    DIR *open = opendir(folder);
    assert_non_null(open);
    for (const struct dirent *entry; (entry = readdir(open));)
        if (entry->d_name[0] != '.') assert_int_equal(unlinkat(dirfd(open), entry->d_name, 0), 0);
    closedir(open);
    assert_int_equal(rmdir(folder), 0);
}

static size_t read_whole(const char *path, char *bytes, size_t room) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t length = fread(bytes, 1, room, file);
    fclose(file);
    return length;
}

static void write_whole(const char *path, const char *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0600), 0);
}

static void test_round_trip(void **state) {
    (void)state;
    char path[600];
    const char *folder = folder_in("a/b");
    struct stat info;
    assert_true(recall(folder, key, false, NULL) == 0);
    assert_int_not_equal(stat(path_in("a"), &info), 0); /* reading makes no folder */
    learn(folder, key, "combine+fuse", 0.25, false);
    assert_true(stat(folder, &info) == 0 && (info.st_mode & 0777) == 0700);
    find_file(folder, path);
    assert_true(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
    assert_true(recall(folder, key, false, NULL) == 0.25);
    assert_true(recall(folder, "cell=other", false, NULL) == 0);
    learn(folder, key, "naive", 0.125, false); /* the last one holds */
    assert_true(recall(folder, key, false, NULL) == 0.125);
    assert_int_equal(entries(folder), 1);
    /* It is a wisdom file. */
    rcv_context *context = NULL;
    check_ok(rcv_context_new(NULL, &context));
    check_ok(rcv_wisdom_load(context, path));
    assert_int_equal(rcv_wisdom_count(context), 1);
    rcv_context_free(context);
    remove_folder(folder);
    assert_int_equal(rmdir(path_in("a")), 0);
}

/* An exhaustive search takes only what was measured exhaustively, which a measurement does not replace. */
static void test_effort(void **state) {
    (void)state;
    const char *folder = folder_in("effort");
    learn(folder, key, "fuse", 1, false);
    assert_true(recall(folder, key, true, NULL) == 0);
    assert_true(recall(folder, key, false, NULL) == 1);
    learn(folder, key, "pack", 2, true);
    assert_true(recall(folder, key, true, NULL) == 2);
    learn(folder, key, "naive", 3, false);
    assert_true(recall(folder, key, true, NULL) == 2);
    assert_true(recall(folder, key, false, NULL) == 2);
    learn(folder, key, "naive", 4, true);
    assert_true(recall(folder, key, true, NULL) == 4);

    /* A context that knows a measured plan finds the exhaustive one on disk where it needs that. */
    subject s;
    rcvi_lesson lesson = lesson_of("fuse", 5, false);
    bool found = false;
    open_subject(&s, folder, false);
    check_ok(rcvi_wisdom_remember(s.context, key, &lesson));
    check_ok(rcvi_wisdom_recall(s.context, key, false, &lesson, &found));
    assert_true(found && lesson.seconds == 5);
    check_ok(rcvi_wisdom_recall(s.context, key, true, &lesson, &found));
    assert_true(found && lesson.seconds == 4);
    close_subject(&s);
    remove_folder(folder);
}

/* Every truncation and every flipped bit: not used, one line in the log, and replaced by what is learnt next. */
static void test_damage(void **state) {
    (void)state;
    const char *folder = folder_in("damage");
    char path[600], bytes[1024], changed[1024];
    learn(folder, key, "combine+fuse", 1, true);
    find_file(folder, path);
    size_t length = read_whole(path, bytes, sizeof bytes);
    assert_true(length > 100 && length < sizeof bytes);
    int not_used = 0;
    for (size_t cut = 0; cut < length; cut++) {
        write_whole(path, bytes, cut);
        assert_true(recall(folder, key, false, &not_used) == 0);
        assert_int_equal(not_used, 1);
    }
    for (size_t at = 0; at < length; at++) {
        memcpy(changed, bytes, length);
        changed[at] = (char)(bytes[at] ^ 1 << at % 8);
        write_whole(path, changed, length);
        assert_true(recall(folder, key, false, &not_used) == 0);
        assert_int_equal(not_used, 1);
    }
    learn(folder, key, "naive", 2, false); /* the damaged file says exhaustive */
    assert_true(recall(folder, key, false, &not_used) == 2);
    assert_int_equal(not_used, 0);
    remove_folder(folder);
}

/* A whole file with the right name and the key of another machine, driver or version; one with two lines. */
static void test_other_key(void **state) {
    (void)state;
    static const char *const others[] = {
        "cell=lstm:00000000000000ff input=512 hidden=512 threads=2 version=2",
        "cell=lstm:00000000000000ff input=512 hidden=512 threads=2 libraries=driver-13.1 version=1"};
    const char *folder = folder_in("other");
    char path[600];
    learn(folder, key, "fuse", 1, false);
    find_file(folder, path);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        rcvi_lesson lesson = lesson_of("naive", 3, true);
        rcvi_text text;
        int not_used = 0;
        rcv_context *context = NULL;
        check_ok(rcv_context_new(NULL, &context));
        rcvi_text_init(&text, context);
        rcvi_wisdom_print_lesson(others[i], &lesson, &text);
        write_whole(path, text.bytes, text.length);
        rcvi_text_drop(&text);
        check_ok(rcvi_wisdom_remember(context, key, &lesson));
        check_ok(rcvi_wisdom_remember(context, others[i], &lesson));
        assert_true(recall(folder, key, false, &not_used) == 0);
        assert_int_equal(not_used, 1);
        assert_true(recall(folder, others[i], false, &not_used) == 0); /* it has another name */
        assert_int_equal(not_used, 0);
        check_ok(rcv_wisdom_save(context, path));
        assert_true(recall(folder, key, false, &not_used) == 0);
        assert_int_equal(not_used, 1);
        rcv_context_free(context);
    }
    remove_folder(folder);
}

/* Files that another user may have written, and what is no file. All are replaced, and nothing is written through a link. */
static void test_foreign(void **state) {
    (void)state;
    const char *folder = folder_in("foreign");
    char path[600], elsewhere[600], bytes[1024], after[1024];
    enum { GROUP, WORLD, OWNER, LINK, PIPE, KINDS };
    learn(folder, key, "fuse", 1, false);
    find_file(folder, path);
    size_t length = read_whole(path, bytes, sizeof bytes);
    snprintf(elsewhere, sizeof elsewhere, "%s", path_in("elsewhere"));
    for (int kind = 0; kind < KINDS; kind++) {
        if (kind == OWNER && geteuid() != 0) continue; /* only root can give a file away */
        write_whole(path, bytes, length);
        if (kind == GROUP) assert_int_equal(chmod(path, 0620), 0);
        if (kind == WORLD) assert_int_equal(chmod(path, 0602), 0);
        if (kind == OWNER) assert_int_equal(chown(path, 4321, 4321), 0);
        if (kind == LINK) {
            write_whole(elsewhere, bytes, length);
            assert_int_equal(unlink(path), 0);
            assert_int_equal(symlink(elsewhere, path), 0);
        }
        if (kind == PIPE) {
            assert_int_equal(unlink(path), 0);
            assert_int_equal(mkfifo(path, 0600), 0);
        }
        assert_true(recall(folder, key, false, NULL) == 0);
        learn(folder, key, "naive", 2 + kind, false);
        struct stat info;
        assert_true(lstat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid());
        assert_true(recall(folder, key, false, NULL) == 2 + kind);
    }
    assert_int_equal(read_whole(elsewhere, after, sizeof after), length);
    assert_memory_equal(after, bytes, length);
    assert_int_equal(unlink(elsewhere), 0);
    remove_folder(folder);
}

/* ---- the planner ---- */

/* Plans in a new context; returns whether the plan came from wisdom. */
static bool plan(const char *cache, bool replan, rcv_effort effort, const char *schedule, char string[128],
                 subject *log) {
    subject s;
    rcv_cell *cell = NULL;
    rcv_net *net = NULL;
    rcv_plan *made = NULL;
    open_subject(&s, cache, replan);
    check_ok(rcv_cell_open(s.context, small.cell, &cell));
    check_ok(rcv_net_new(cell, &RCV_INIT(rcv_net_options, .input = 6, .hidden = 8, .layers = 2), &net));
    check_ok(rcv_plan_new(
        net,
        &RCV_INIT(rcv_plan_options, .steps = 8, .batch = 4, .training = true, .effort = effort, .schedule = schedule),
        &made));
    bool known = rcv_plan_from_wisdom(made);
    assert_int_equal(known, !schedule && rcv_plan_candidate_count(made) == 1);
    snprintf(string, 128, "%s", rcv_plan_string(made));
    rcv_plan_free(made);
    rcv_net_free(net);
    rcv_cell_free(cell);
    if (log) *log = s;
    close_subject(&s);
    return known;
}

static void test_planner(void **state) {
    (void)state;
    const char *folder = folder_in("planner");
    char first[128], second[128];
    struct stat info;
    assert_false(plan(folder, false, RCV_ESTIMATE, NULL, first, NULL));
    assert_false(plan(folder, false, RCV_MEASURE, "naive", first, NULL));
    assert_int_not_equal(stat(folder, &info), 0); /* neither an estimate nor a pinned plan is kept */
    assert_false(plan(folder, false, RCV_MEASURE, NULL, first, NULL));
    assert_int_equal(entries(folder), 1);
    assert_true(plan(folder, false, RCV_MEASURE, NULL, second, NULL));
    assert_string_equal(first, second);
    assert_true(plan(folder, false, RCV_ESTIMATE, NULL, second, NULL));
    assert_string_equal(first, second);
    assert_false(plan(folder, false, RCV_MEASURE, "naive", second, NULL));
    assert_string_equal(second, "naive");
    assert_false(plan(folder, true, RCV_MEASURE, NULL, second, NULL));
    assert_false(plan("off", false, RCV_MEASURE, NULL, second, NULL));
    assert_false(plan("", false, RCV_MEASURE, NULL, second, NULL));
    assert_false(plan(folder, false, RCV_EXHAUSTIVE, NULL, first, NULL));
    assert_true(plan(folder, false, RCV_EXHAUSTIVE, NULL, second, NULL));
    assert_string_equal(first, second);
    assert_true(plan(folder, false, RCV_MEASURE, NULL, second, NULL));
    assert_string_equal(first, second);
    assert_int_equal(entries(folder), 1);
    remove_folder(folder);
}

/* What `replan` measures replaces what is on disk. */
static void test_replan(void **state) {
    (void)state;
    const char *folder = folder_in("replan");
    char path[600], text[1024] = "", string[128];
    assert_false(plan(folder, false, RCV_MEASURE, NULL, string, NULL));
    find_file(folder, path);
    read_whole(path, text, sizeof text - 1);
    char *own = strchr(text, '\n') + 1; /* the key is the first thing of the second line */
    *strstr(own, " : ") = '\0';
    learn(folder, own, "naive", 1000, false);
    assert_true(plan(folder, false, RCV_MEASURE, NULL, string, NULL));
    assert_string_equal(string, "naive");
    assert_false(plan(folder, true, RCV_MEASURE, NULL, string, NULL));
    double seconds = recall(folder, own, false, NULL);
    assert_true(seconds > 0 && seconds < 1000);
    remove_folder(folder);
}

/* The folder by the environment. */
static void test_environment(void **state) {
    (void)state;
    char folder[400], string[128], *home = getenv("HOME"), kept[400];
    snprintf(kept, sizeof kept, "%s", home ? home : "");
    static const struct {
        const char *cache, *caches, *home, *folder; /* folder NULL: none */
    } cases[] = {{"own", "xdg", "home", "own"},
                 {"off", "xdg", "home", NULL},
                 {"", "xdg", "home", NULL},
                 {NULL, "xdg", "home", "xdg/recurve"},
                 {NULL, NULL, "home", "home/.cache/recurve"},
                 {NULL, NULL, NULL, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *names[] = {"RECURVE_CACHE", "XDG_CACHE_HOME", "HOME"};
        const char *values[] = {cases[i].cache, cases[i].caches, cases[i].home};
        for (int n = 0; n < 3; n++) {
            const char *value = values[n] && *values[n] && strcmp(values[n], "off") ? path_in(values[n]) : values[n];
            assert_int_equal(value ? setenv(names[n], value, 1) : unsetenv(names[n]), 0);
        }
        subject log;
        assert_false(plan(NULL, false, RCV_MEASURE, NULL, string, &log));
        assert_int_equal(log.not_cached, !cases[i].home); /* one line: there is no home directory */
        assert_int_equal(plan(NULL, false, RCV_MEASURE, NULL, string, NULL), cases[i].folder != NULL);
        assert_int_equal(setenv("RECURVE_WISDOM", "off", 1), 0);
        assert_false(plan(NULL, false, RCV_MEASURE, NULL, string, NULL));
        assert_int_equal(unsetenv("RECURVE_WISDOM"), 0);
        if (!cases[i].folder) {
            assert_int_equal(entries(scratch()), 0);
            continue;
        }
        snprintf(folder, sizeof folder, "%s", path_in(cases[i].folder));
        for (bool first = true; strcmp(folder, scratch()) != 0; first = false) {
            assert_int_equal(entries(folder), first); /* nothing else was made */
            if (first)
                remove_folder(folder);
            else
                assert_int_equal(rmdir(folder), 0);
            *strrchr(folder, '/') = '\0';
            if (strcmp(folder, scratch()) != 0) assert_int_equal(entries(folder), 0);
        }
    }
    assert_int_equal(setenv("RECURVE_CACHE", "off", 1), 0);
    if (home) assert_int_equal(setenv("HOME", kept, 1), 0);
}

/* A folder that cannot be made, one that is a file, a disk that is full: planning works, and one line is logged. */
static void test_unwritable(void **state) {
    (void)state;
    char file[400], below[400], full[400], string[128];
    snprintf(file, sizeof file, "%s", path_in("file"));
    snprintf(below, sizeof below, "%s", path_in("file/below"));
    snprintf(full, sizeof full, "%s", path_in("full"));
    write_whole(file, "x", 1);
    const char *folders[] = {"/dev/null/nowhere", file, below, "/proc/recurve"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        subject log;
        for (int turn = 0; turn < 2; turn++) {
            assert_false(plan(folders[i], false, RCV_MEASURE, NULL, string, &log));
            assert_int_equal(log.not_cached, 1);
            assert_int_equal(log.not_used, 0);
        }
    }
    /* No file may grow: writing fails as on a full disk. */
    struct rlimit limit, none;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    fflush(NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    subject log;
    bool known = plan(full, false, RCV_MEASURE, NULL, string, &log);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, old);
    assert_false(known);
    assert_int_equal(log.not_cached, 1);
    assert_int_equal(entries(full), 0); /* no part of a file is left */
    assert_int_equal(rmdir(full), 0);
    assert_int_equal(unlink(file), 0);
}

/* Several failures of a context are one line. */
static void test_one_line(void **state) {
    (void)state;
    subject s;
    rcvi_lesson lesson = lesson_of("fuse", 1, false);
    open_subject(&s, "/dev/null/nowhere", false);
    for (int i = 0; i < 5; i++) check_ok(rcvi_wisdom_learn(s.context, key, &lesson));
    assert_int_equal(s.lines, 1);
    close_subject(&s);
}

/* ---- processes ---- */

enum { PROCESSES = 4, ROUNDS = 150 };

/* Writes and reads the same problem; each process writes lessons of its own number. Returns the number of what went wrong. */
static int work(const char *folder, int number) {
    static const char *const plans[PROCESSES] = {"naive", "fuse", "combine(steps=8)+fuse+pack",
                                                 "combine+fuse+pack+wavefront"};
    int wrong = 0;
    for (int i = 0; i < ROUNDS; i++) {
        subject s;
        rcvi_lesson lesson = lesson_of(plans[number], number + 1, false), read;
        bool found = false;
        open_subject(&s, folder, false);
        wrong += rcvi_wisdom_recall(s.context, key, false, &read, &found) != RCV_OK;
        wrong += i > 0 && !found; /* a file is replaced, and never missing */
        if (found) {
            int writer = (int)read.seconds - 1;
            rcvi_text text;
            rcvi_text_init(&text, s.context);
            rcvi_rungs_print(&read.rungs, &text);
            wrong += writer < 0 || writer >= PROCESSES || strcmp(text.bytes, plans[writer]) != 0;
            rcvi_text_drop(&text);
        }
        wrong += rcvi_wisdom_learn(s.context, key, &lesson) != RCV_OK;
        wrong += s.not_used + s.not_cached;
        close_subject(&s);
    }
    return wrong;
}

static void test_processes(void **state) {
    (void)state;
    const char *folder = folder_in("processes");
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = memory_fault_fork();
        if (children[i] == 0) _exit(work(folder, i) ? 1 : 0);
    }
    for (int i = 0; i < PROCESSES; i++) assert_int_equal(memory_fault_wait(children[i], 0), 0);
    assert_int_equal(entries(folder), 1); /* and no temporary file */
    remove_folder(folder);
}

/* ---- the bound ---- */

static void put(const char *folder, const char *name, size_t bytes, long long age) {
    char path[600], *zeros = calloc(bytes + 1, 1);
    assert_non_null(zeros);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    write_whole(path, zeros, bytes);
    free(zeros);
    const struct timespec then[2] = {{.tv_sec = time(NULL) - age}, {.tv_sec = time(NULL) - age}};
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
}

static bool has(const char *folder, int number) {
    char path[600];
    struct stat info;
    snprintf(path, sizeof path, "%s/%032x%s", folder, number, number % 2 ? ".wisdom" : "");
    return stat(path, &info) == 0;
}

/* The least recently used go first, by number and by bytes; what is not an entry stays. */
static void test_bound(void **state) {
    (void)state;
    enum { FILES = 20, HOUR = 3600 };
    const char *folder = folder_in("bound");
    subject s;
    open_subject(&s, folder, false);
    assert_int_equal(mkdir(folder, 0700), 0);
    for (int i = 0; i < FILES; i++) {
        char name[64];
        snprintf(name, sizeof name, "%032x%s", i, i % 2 ? ".wisdom" : "");
        put(folder, name, 100, (long long)(i * 7 % FILES) * HOUR); /* file i was used so many hours ago */
    }
    put(folder, "README", 1000, 100 * HOUR);
    put(folder, "00000000000000000000000000000001.wisdom.tmp-1-0", 10, 100 * HOUR); /* of a process that was killed */
    put(folder, "00000000000000000000000000000002.tmp-1-0", 10, HOUR);              /* may be being written */
    rcvi_cache_trim(s.context, folder, FILES, 100 * FILES);
    assert_int_equal(s.trimmed, 0);
    assert_int_equal(entries(folder), FILES + 2);
    rcvi_cache_trim(s.context, folder, 16, 100 * FILES);
    assert_int_equal(s.trimmed, 1);
    for (int i = 0; i < FILES; i++) assert_int_equal(has(folder, i), i * 7 % FILES < 12);
    rcvi_cache_trim(s.context, folder, 16, 1000);
    assert_int_equal(s.trimmed, 2);
    for (int i = 0; i < FILES; i++) assert_int_equal(has(folder, i), i * 7 % FILES < 7);
    assert_int_equal(entries(folder), 7 + 2);
    close_subject(&s);
    remove_folder(folder);
}

/* Reading is use: the time of an old file is renewed, so that it is not the first to go. */
static void test_use(void **state) {
    (void)state;
    const char *folder = folder_in("use");
    char path[600];
    struct stat info;
    learn(folder, key, "fuse", 1, false);
    find_file(folder, path);
    const struct timespec then[2] = {{.tv_sec = time(NULL) - 1000000}, {.tv_sec = time(NULL) - 1000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
    assert_true(recall(folder, "cell=other", false, NULL) == 0);
    assert_true(stat(path, &info) == 0 && info.st_mtime == then[0].tv_sec);
    assert_true(recall(folder, key, false, NULL) == 1);
    assert_true(stat(path, &info) == 0 && info.st_mtime > time(NULL) - 1000);
    remove_folder(folder);
}

/* ---- memory ---- */

/* Every allocation fails once while a lesson is written and read. */
static void test_allocations(void **state) {
    (void)state;
    const char *folder = folder_in("memory");
    size_t fired = 0;
    for (size_t nth = 1, done = 0; !done; nth++) {
        subject s;
        rcvi_lesson lesson = lesson_of("fuse", 1, false);
        bool found = false;
        learn(folder, key, "naive", 2, false);
        open_subject(&s, folder, false);
        s.allocator.fail_at = nth;
        rcv_status status = rcvi_wisdom_recall(s.context, key, false, &lesson, &found);
        if (!status) {
            assert_true(found && lesson.seconds == 2);
            lesson.seconds = 3;
            status = rcvi_wisdom_learn(s.context, key, &lesson);
        }
        done = s.allocator.failed == 0;
        s.allocator.fail_at = 0;
        fired += s.allocator.failed;
        assert_true(status == RCV_OK || (status == RCV_NO_MEMORY && !done));
        double kept = recall(folder, key, false, NULL);
        assert_true(kept == 3 || (kept == 2 && !done)); /* a whole file in any case */
        close_subject(&s);
    }
    assert_true(fired > 8);
    remove_folder(folder);
}

int main(void) {
    unsetenv("RECURVE_WISDOM"); /* which is off in other tests */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_effort),      cmocka_unit_test(test_damage),
        cmocka_unit_test(test_other_key),  cmocka_unit_test(test_foreign),     cmocka_unit_test(test_planner),
        cmocka_unit_test(test_replan),     cmocka_unit_test(test_environment), cmocka_unit_test(test_unwritable),
        cmocka_unit_test(test_one_line),   cmocka_unit_test(test_processes),   cmocka_unit_test(test_bound),
        cmocka_unit_test(test_use),        cmocka_unit_test(test_allocations)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
