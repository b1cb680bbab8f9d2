/* The program that comm.sh starts with several ranks. Every rank checks its results; the exit status is 0 when all checks held.
 *   comm_ranks all|speed|large|slow|fail|kill|stop|hang|stuck|collective|stop-first|hang-first|stuck-first */
#include "comm_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

rcv_context *context;
rcvi_comm *world;
int rank, size;

void fail_check(const char *what, int line) {
    fprintf(stderr, "comm_ranks: rank %d of %d, line %d: %s (%s)\n", rank, size, line, what, rcv_message());
    _exit(3);
}

/* ---- transfers that wait for a counter ---- */

static void sleep_for(double seconds) {
    for (double begun = rcvi_now(); rcvi_now() - begun < seconds;) rcvi_sleep(1000000);
}

/* More collectives than there are tags. Each starts only after its counter is reached and those before it have started, also the one
 * without a counter. A send that is started later does not wait for them. */
static void check_counters(void) {
    enum { MANY = 40, COUNT = 1000, FREE = 7 };
    static float data[MANY][COUNT];
    _Atomic uint64_t counter = 0;
    rcvi_transfer *transfers[MANY];
    rcvi_transfer_times times, last = {0};
    for (int i = 0; i < MANY; i++) {
        rcvi_transfer_options o = {.kind = RCVI_ALL_REDUCE_SUM,
                                   .type = RCVI_TRANSFER_FLOAT,
                                   .data = data[i],
                                   .count = COUNT,
                                   .counter = i == FREE ? NULL : &counter,
                                   .ready = (uint64_t)i + 1};
        expect_ok(rcvi_transfer_start(world, &o, &transfers[i]));
    }
    int token = rank, right = (rank + 1) % size, left = (rank + size - 1) % size, got = -1;
    rcvi_transfer_options receive = {.kind = RCVI_RECEIVE, .data = &got, .count = 4, .peer = left};
    rcvi_transfer_options send = {.kind = RCVI_SEND, .data = &token, .count = 4, .peer = right};
    rcvi_transfer *sent;
    expect_ok(rcvi_transfer_start(world, &send, &sent));
    expect_ok(rcvi_transfer_run(world, &receive));
    expect_ok(rcvi_transfer_wait(sent, NULL));
    expect(got == left);
    double raised = 0;
    for (int j = 0; j < COUNT; j++) data[FREE][j] = (float)(rank + FREE + j);
    for (int i = 0; i < MANY; i++) {
        for (int j = 0; i != FREE && j < COUNT; j++)
            data[i][j] = (float)(rank + i + j); /* not earlier: the transfer has not read it yet */
        if (i == rank) sleep_for(0.02);
        raised = rcvi_now();
        atomic_fetch_add_explicit(&counter, 1, memory_order_release);
    }
    for (int i = 0; i < MANY; i++) {
        expect_ok(rcvi_transfer_wait(transfers[i], &times));
        for (int j = 0; j < COUNT; j++) expect(data[i][j] == (float)(size * (size - 1) / 2 + size * (i + j)));
        expect(times.queued <= times.started && times.started <= times.completed && last.started <= times.started);
        last = times;
    }
    expect(last.started >= raised);
}

static double seconds_of(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* While the rank computes, a progress thread that waits for a counter or a message leaves the core to it. */
static void check_idleness(void) {
    static float data[1000];
    _Atomic uint64_t counter = 0;
    rcvi_transfer *waits, *receives;
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    rcvi_transfer_options o = {.kind = RCVI_ALL_REDUCE_SUM,
                               .type = RCVI_TRANSFER_FLOAT,
                               .data = data,
                               .count = 1000,
                               .counter = &counter,
                               .ready = 1};
    rcvi_transfer_options receive = {.kind = RCVI_RECEIVE, .data = &left, .count = 4, .peer = left};
    rcvi_transfer_options send = {.kind = RCVI_SEND, .data = &rank, .count = 4, .peer = right};
    expect_ok(rcvi_transfer_start(world, &o, &waits));
    expect_ok(rcvi_transfer_start(world, &receive, &receives));
    double own = seconds_of(CLOCK_THREAD_CPUTIME_ID), all = seconds_of(CLOCK_PROCESS_CPUTIME_ID), begun = rcvi_now();
    while (rcvi_now() - begun < 0.5) rcvi_comm_report_progress(world);
    double others = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - all - (seconds_of(CLOCK_THREAD_CPUTIME_ID) - own);
    if (getenv("COMM_RANKS_VERBOSE"))
        printf("the progress thread takes %.1f%% of a core\n", 100 * others / (rcvi_now() - begun));
    expect(others < 0.3 * (rcvi_now() - begun));
    expect_ok(rcvi_transfer_run(world, &send));
    atomic_fetch_add(&counter, 1);
    expect_ok(rcvi_transfer_wait(receives, NULL));
    expect_ok(rcvi_transfer_wait(waits, NULL));
}

/* An all-reduce pauses while rank 0 sends a message to rank 1, but not for ever: rank 1 posts its receive some time after it started the
 * all-reduce, or (`after`) when the all-reduce is complete. */
static void check_send_priority(bool after) {
    enum { MANY = 1 << 20 };
    static float sum[MANY], handed[MANY];
    rcvi_transfer *summed = NULL, *passed = NULL;
    rcvi_transfer_times of_sum, of_message;
    rcvi_transfer_options s = {.kind = RCVI_ALL_REDUCE_SUM, .type = RCVI_TRANSFER_FLOAT, .data = sum, .count = MANY};
    rcvi_transfer_options m = {
        .kind = rank ? RCVI_RECEIVE : RCVI_SEND, .type = RCVI_TRANSFER_FLOAT, .data = handed, .count = MANY};
    m.peer = rank ? 0 : 1;
    for (int i = 0; i < MANY; i++) sum[i] = 1, handed[i] = (float)(rank ? -1 : i);
    if (rank == 0) expect_ok(rcvi_transfer_start(world, &m, &passed));
    if (rank == 0) rcvi_sleep(5000000); /* the message is in flight */
    expect_ok(rcvi_transfer_start(world, &s, &summed));
    if (rank == 1 && !after) rcvi_sleep(20000000);
    if (rank == 1 && !after) expect_ok(rcvi_transfer_start(world, &m, &passed));
    expect_ok(rcvi_transfer_wait(summed, &of_sum));
    if (rank == 1 && after) expect_ok(rcvi_transfer_start(world, &m, &passed));
    if (rank < 2) expect_ok(rcvi_transfer_wait(passed, &of_message));
    if (rank == 0 && !after && of_message.completed - of_message.started < 0.09)
        expect(of_sum.completed > of_message.completed);
    for (int i = 0; i < MANY; i++) expect(sum[i] == (float)size && (rank != 1 || handed[i] == (float)i));
}

/* ---- communicators ---- */

static void check_group(rcvi_comm *comm, const int *members, int count) {
    expect(rcvi_comm_size(comm) == count);
    expect(members[rcvi_comm_rank(comm)] == rank);
    double sum = rank, wanted = 0;
    for (int i = 0; i < count; i++) wanted += members[i];
    rcvi_transfer_options o = {.kind = RCVI_ALL_REDUCE_SUM, .type = RCVI_TRANSFER_DOUBLE, .data = &sum, .count = 1};
    expect_ok(rcvi_transfer_run(comm, &o));
    expect(sum == wanted);
}

/* Two replicas of two stages: all-reduces among replicas and messages between stages, all in flight together, and waited for in another order. */
static void check_two_by_two(void) {
    enum { MANY = 8, COUNT = 200000 };
    static float sums[MANY][COUNT], handed[MANY][COUNT];
    if (size != 4) return;
    rcvi_comm *data, *pipe;
    expect_ok(rcvi_comm_split(world, rank % 2, rank / 2, &data));
    expect_ok(rcvi_comm_split(world, rank / 2, rank % 2, &pipe));
    check_group(data, (int[]){rank % 2, rank % 2 + 2}, 2);
    check_group(pipe, (int[]){rank / 2 * 2, rank / 2 * 2 + 1}, 2);
    rcvi_transfer *a[MANY], *b[MANY];
    for (int i = 0; i < MANY; i++) {
        for (int j = 0; j < COUNT; j++) sums[i][j] = (float)(rank + i), handed[i][j] = (float)(100 * rank + i);
        rcvi_transfer_options sum = {.kind = RCVI_ALL_REDUCE_SUM,
                                     .type = RCVI_TRANSFER_FLOAT,
                                     .data = sums[i],
                                     .count = COUNT,
                                     .as_bfloat16 = i % 2};
        rcvi_transfer_options hand = {.kind = (i + rank) % 2 ? RCVI_RECEIVE : RCVI_SEND,
                                      .type = RCVI_TRANSFER_FLOAT,
                                      .data = handed[i],
                                      .count = COUNT,
                                      .peer = 1 - rank % 2};
        rcvi_transfer_options most = hand; /* a collective of the same communicator, between its sends */
        most.kind = RCVI_ALL_REDUCE_MAX;
        if (rank % 3) expect_ok(rcvi_transfer_start(data, &sum, &a[i])); /* not the same order in all ranks */
        expect_ok(rcvi_transfer_start(pipe, i == 5 ? &most : &hand, &b[i]));
        if (rank % 3 == 0) expect_ok(rcvi_transfer_start(data, &sum, &a[i]));
    }
    for (int i = MANY - 1; i >= 0; i--) {
        expect_ok(rcvi_transfer_wait(a[i], NULL));
        expect_ok(rcvi_transfer_wait(b[i], NULL));
        int other = rank ^ 1, from = i == 5 ? rank | 1 : (i + rank) % 2 ? other : rank;
        for (int j = 0; j < COUNT; j++) {
            expect(sums[i][j] == (float)(rank % 2 * 2 + 2 + 2 * i));
            expect(handed[i][j] == (float)(100 * from + i));
        }
    }
    expect_same(data, sums, sizeof sums);
    rcvi_comm_free(data);
    rcvi_comm_free(pipe);
}

static void check_groups(void) {
    rcvi_comm *alone, *reversed, *part;
    int members[64];
    for (int i = 0; i < size; i++) members[i] = size - 1 - i;
    expect_ok(rcvi_comm_split(world, rank, 0, &alone));
    check_group(alone, &rank, 1);
    expect_ok(rcvi_comm_split(world, 7, -rank, &reversed));
    check_group(reversed, members, size);
    expect_ok(rcvi_comm_split(reversed, rank > 0, 0, &part)); /* split from a split communicator, in its order */
    if (rank > 0) check_group(part, members, size - 1);
    rcvi_comm_free(part);
    rcvi_comm_free(reversed);
    rcvi_comm_free(alone);
}

/* ---- statistics ---- */

static int64_t bytes_of(rcvi_transfer_kind kind, bool as_bfloat16, int64_t count) {
    static float data[1 << 20];
    int64_t starts[65] = {0}, before = rcvi_comm_get_statistics(world).bytes;
    for (int i = 0; i <= size; i++) starts[i] = count / size * i;
    rcvi_transfer_options o = {.kind = kind,
                               .type = RCVI_TRANSFER_FLOAT,
                               .data = data,
                               .count = count,
                               .starts = starts,
                               .as_bfloat16 = as_bfloat16};
    expect_ok(rcvi_transfer_run(world, &o));
    return rcvi_comm_get_statistics(world).bytes - before;
}

static void check_bytes(void) {
    int64_t n = (int64_t)size * 3 * 5 * 7 * 1000, share = 4 * n / size;
    int64_t before = rcvi_comm_get_statistics(world).transfers;
    expect(bytes_of(RCVI_ALL_REDUCE_SUM, false, n) == 2 * (size - 1) * share);
    expect(bytes_of(RCVI_ALL_REDUCE_SUM, true, n) == (size - 1) * share);
    expect(bytes_of(RCVI_REDUCE_SCATTER, false, n) == (size - 1) * share);
    expect(bytes_of(RCVI_ALL_GATHER, false, n) == (size - 1) * share);
    expect(bytes_of(RCVI_ALL_GATHER, true, n) == (size - 1) * share / 2);
    expect(rcvi_comm_get_statistics(world).transfers == before + 5);
}

/* ---- agreement ---- */

static void check_agreement(void) {
    expect_ok(rcvi_comm_agree(world, RCV_OK));
    for (int failing = 0; failing < size; failing++) {
        char sentence[64];
        snprintf(sentence, sizeof sentence, "rank %d: no disk in rank %d", failing, failing);
        bool fails = rank == failing || rank == size - 1; /* the lowest counts */
        rcv_status own = fails ? rcvi_fail(RCV_IO, "no disk in rank %d", rank) : RCV_OK;
        rcv_status agreed = rcvi_comm_agree(world, own);
        expect(agreed == (rank == failing ? RCV_IO : RCV_PEER));
        expect(!strcmp(rcv_message(), rank == failing ? sentence + 8 : sentence));
    }
    expect_ok(rcvi_comm_agree(world, RCV_OK));
}

/* ---- failures ---- */

static void check_all(void) {
    expect(strstr(rcvi_comm_name(world), "mpi (") == rcvi_comm_name(world));
    expect(rcvi_comm_local_size(world) == size);
    check_kinds(false);
    check_order();
    check_counters();
    check_idleness();
    check_send_priority(false);
    check_send_priority(true);
    check_groups();
    check_two_by_two();
    check_bytes();
    check_agreement();
    check_device();
}

/* One rank fails while all others wait for it: their transfers end with a reason that names it. */
static void expect_failure(const char *fragment) {
    static float data[100000];
    rcvi_transfer_options o = {.kind = RCVI_ALL_REDUCE_SUM, .type = RCVI_TRANSFER_FLOAT, .data = data, .count = 100000};
    rcv_status status = rcvi_transfer_run(world, &o);
    expect(status == RCV_PEER);
    expect(strstr(rcv_message(), fragment));
    expect(rcvi_transfer_run(world, &o) == RCV_PEER);
    expect(rcvi_comm_agree(world, RCV_OK) == RCV_PEER);
    if (rcvi_comm_reports_failure(world)) fprintf(stderr, "comm_ranks: %s\n", rcv_message());
}

/* The rank waits for a counter of its own that is never raised, as when a GPU hangs. */
static void wait_for_own_counter(void) {
    static float data[100000];
    _Atomic uint64_t counter = 0;
    rcvi_transfer_options o = {.kind = RCVI_ALL_REDUCE_SUM,
                               .type = RCVI_TRANSFER_FLOAT,
                               .data = data,
                               .count = 100000,
                               .counter = &counter,
                               .ready = 1};
    expect(rcvi_transfer_run(world, &o) == RCV_PEER);
}

static void fail_here(const char *how) {
    if (!strcmp(how, "fail")) {
        rcvi_comm_fail(world, "its disk is full");
        expect(rcvi_comm_reports_failure(world));
        fprintf(stderr, "comm_ranks: rank %d says: its disk is full\n", rank);
    }
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strncmp(how, "stop", 4)) kill(getpid(), SIGSTOP);
    if (!strncmp(how, "hang", 4)) sleep_for(60); /* its progress thread continues */
    if (!strncmp(how, "stuck", 5)) wait_for_own_counter();
}

static void run_failure(const char *how) {
    char fragment[64];
    int failing = strstr(how, "-first") ? 0 : size - 1;
    bool reports = !strcmp(how, "fail");
    snprintf(fragment, sizeof fragment,
             reports ? "rank %d: its disk is full" : "rank %d has made no progress for 2 seconds", failing);
    sleep_for(0.2);
    if (!strcmp(how, "collective")) {
        fail_collective(failing);
    } else if (rank == failing) {
        fail_here(how);
    } else {
        expect_failure(fragment);
    }
    rcvi_comm_close(world);
    rcv_context_free(context);
    exit(4);
}

/* A rank takes longer than the timeout, but reports progress. */
static void wait_for_slow_rank(void) {
    double all = 1;
    rcvi_transfer_options o = {.kind = RCVI_ALL_REDUCE_SUM, .type = RCVI_TRANSFER_DOUBLE, .data = &all, .count = 1};
    for (int i = 0; rank == size - 1 && i < 40; i++) {
        sleep_for(0.1);
        rcvi_comm_report_progress(world);
    }
    expect_ok(rcvi_transfer_run(world, &o));
    expect(all == size);
}

/* ---- a child of fork() ---- */

/* A child is not a rank: transfers fail at once, and closing the world does not wait. 0: this holds. */
static int use_as_child(void) {
    double all = 1;
    rcvi_transfer_options o = {.kind = RCVI_ALL_REDUCE_SUM, .type = RCVI_TRANSFER_DOUBLE, .data = &all, .count = 1};
    alarm(20);
    if (rcvi_transfer_run(world, &o) != RCV_UNSUPPORTED) return 1;
    if (!strstr(rcv_message(), "a child of fork() is not a rank")) return 2;
    if (rcvi_comm_agree(world, RCV_OK) != RCV_UNSUPPORTED) return 3;
    rcvi_comm_fail(world, "the child's disk is full");
    rcvi_comm_close(world);
    rcv_context_free(context);
    return 0;
}

static void fork_children(void) {
    double all = 1;
    rcvi_transfer_options o = {.kind = RCVI_ALL_REDUCE_SUM, .type = RCVI_TRANSFER_DOUBLE, .data = &all, .count = 1};
    for (int i = 0; i < 3; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) _exit(use_as_child());
        expect(child > 0 && waitpid(child, &status, 0) == child);
        if (status) fprintf(stderr, "comm_ranks: the child ended with %#x\n", status);
        expect(status == 0);
        all = 1;
        expect_ok(rcvi_transfer_run(world, &o)); /* the world is unchanged */
        expect(all == size);
    }
}

/* ---- times ---- */

static void time_sums(int64_t count, bool as_bfloat16, int times) {
    float *data = allocate(count * 4);
    memset(data, 0, (size_t)count * 4);
    rcvi_transfer_options o = {.kind = RCVI_ALL_REDUCE_SUM,
                               .type = RCVI_TRANSFER_FLOAT,
                               .data = data,
                               .count = count,
                               .as_bfloat16 = as_bfloat16};
    double best = 1e9, first = rcvi_now();
    for (int i = 0; i < times; i++) {
        double begun = rcvi_now();
        expect_ok(rcvi_transfer_run(world, &o));
        double took = rcvi_now() - begun;
        if (took < best) best = took;
    }
    if (rank == 0)
        printf("%9lld floats%s: %.1f us at best, %.1f us on average, %.2f GB/s\n", (long long)count,
               as_bfloat16 ? ", as bfloat16" : "", best * 1e6, (rcvi_now() - first) / times * 1e6,
               (double)count * 4e-9 / best);
    free(data);
}

static void time_all(void) {
    static const int64_t sizes[] = {16, 1000, 100000, 1 << 20, 4 << 20};
    for (int i = 0; i < 5; i++) {
        time_sums(sizes[i], false, i < 2 ? 2000 : 30);
        time_sums(sizes[i], true, i < 2 ? 2000 : 30);
    }
}

/* More bytes than an int counts. Not part of `all`, since it takes 2.7 GB per rank. */
static void check_large(void) {
    int64_t count = (5LL << 29) + 3;
    unsigned char *data = allocate(count);
    rcvi_transfer_options o = {.kind = RCVI_BROADCAST, .data = data, .count = count};
    memset(data, rank ? 0 : 9, (size_t)count);
    expect_ok(rcvi_transfer_run(world, &o));
    for (int64_t i = 0; i < count; i++) expect(data[i] == 9);
    if (rank < 2) {
        o.kind = rank ? RCVI_SEND : RCVI_RECEIVE;
        o.peer = !rank;
        memset(data, rank ? 7 : 0, (size_t)count);
        expect_ok(rcvi_transfer_run(world, &o));
        for (int64_t i = 0; i < count; i++) expect(data[i] == 7);
    }
    free(data);
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "all";
    bool all = !strcmp(what, "all") || !strcmp(what, "speed") || !strcmp(what, "large") || !strcmp(what, "fork");
    rcvi_comm_options options = {
        .transport = (all || !strcmp(what, "collective")) && getenv("OMPI_COMM_WORLD_SIZE") ? NULL : "mpi",
        .timeout = all ? 60 : 2};
    expect_ok(rcv_context_new(NULL, &context));
    if (rcvi_comm_open(context, &options, &world)) {
        fprintf(stderr, "comm_ranks: %s\n", rcv_message());
        return 2;
    }
    rank = rcvi_comm_rank(world);
    size = rcvi_comm_size(world);
    int started;
    expect(rcvi_comm_launched_size(&started) == size && started == rank);
    if (!strcmp(what, "all")) {
        check_all();
    } else if (!strcmp(what, "speed")) {
        time_all();
    } else if (!strcmp(what, "large")) {
        check_large();
    } else if (!strcmp(what, "slow")) {
        wait_for_slow_rank();
    } else if (!strcmp(what, "fork")) {
        fork_children();
    } else {
        run_failure(what);
    }
    rcvi_comm_close(world);
    rcv_context_free(context);
    if (rank == 0) printf("comm_ranks: %s: ok, %d ranks\n", what, size);
    return 0;
}
