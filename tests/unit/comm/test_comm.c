/* A world of one rank: every kind of transfer, invalid options, counters, agreement and failure; and transports that are not available. tests/ranks/comm.sh
 * tests several ranks. */
#include "test.h"

#include "comm/comm.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    test_allocator counter;
    rcv_context *context;
    rcvi_comm *world;
} fixture;

static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE",  "PMI_RANK",
                                        "MV2_COMM_WORLD_SIZE",  "MV2_COMM_WORLD_RANK",  "PMIX_RANK", "RECURVE_MPI"};

static void unset_launchers(void) {
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
}

static void begin(fixture *f, const char *transport) {
    rcvi_comm_options options = {.transport = transport, .timeout = 1};
    unset_launchers();
    f->context = test_context(&f->counter);
    check_ok(rcvi_comm_open(f->context, &options, &f->world));
}

static void end(fixture *f) {
    rcvi_comm_close(f->world);
    test_context_end(&f->counter, f->context);
}

static void the_world_is_this_rank(void **state) {
    (void)state;
    fixture f;
    int rank = -1;
    for (int named = 0; named < 2; named++) {
        begin(&f, named ? "self" : NULL);
        assert_int_equal(rcvi_comm_rank(f.world), 0);
        assert_int_equal(rcvi_comm_size(f.world), 1);
        assert_int_equal(rcvi_comm_local_size(f.world), 1);
        assert_string_equal(rcvi_comm_name(f.world), "self");
        assert_int_equal(rcvi_comm_launched_size(&rank), 1);
        assert_int_equal(rank, 0);
        end(&f);
    }
    rcvi_comm_close(NULL);
}

/* ---- transfers ---- */

static void transfers_change_nothing(void **state) {
    (void)state;
    fixture f;
    begin(&f, NULL);
    static const rcvi_transfer_kind kinds[] = {RCVI_ALL_REDUCE_SUM, RCVI_ALL_REDUCE_MAX, RCVI_REDUCE_SCATTER,
                                               RCVI_ALL_GATHER, RCVI_BROADCAST};
    double data[3] = {1, -2.5, 3}, before[3];
    int64_t starts[2] = {0, 3};
    memcpy(before, data, sizeof data);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        rcvi_transfer_options o = {
            .kind = kinds[i], .type = RCVI_TRANSFER_DOUBLE, .data = data, .count = 3, .starts = starts};
        rcvi_transfer *transfer = NULL;
        rcvi_transfer_times times = {0};
        check_ok(rcvi_transfer_start(f.world, &o, &transfer));
        assert_non_null(transfer);
        check_ok(rcvi_transfer_wait(transfer, &times));
        assert_true(times.queued > 0 && times.queued <= times.started && times.started <= times.completed);
        assert_memory_equal(data, before, sizeof data);
    }
    check_ok(rcvi_transfer_wait(NULL, NULL));
    assert_int_equal(rcvi_comm_get_statistics(f.world).bytes, 0);
    end(&f);
}

static const struct {
    uint32_t from, to;
} roundings[] = {
    {0x3f800000, 0x3f800000}, {0x3f807fff, 0x3f800000}, {0x3f808000, 0x3f800000}, /* ties to even: down, */
    {0x3f808001, 0x3f810000}, {0x3f818000, 0x3f820000},                           /* up */
    {0xbf818000, 0xbf820000}, {0x7f7fffff, 0x7f800000}, {0x7f800000, 0x7f800000}, /* overflow to infinity */
    {0x00000001, 0x00000000}, {0x80000000, 0x80000000}, {0x7f800001, 0x7fc00000}, /* NaN stays NaN */
};
enum { ROUNDINGS = sizeof roundings / sizeof *roundings };

static rcv_status read_memory(int ordinal, void *to, const void *from, size_t bytes) {
    assert_int_equal(ordinal, 2);
    memcpy(to, from, bytes);
    return RCV_OK;
}

static rcv_status write_memory(int ordinal, void *to, const void *from, size_t bytes) {
    return read_memory(ordinal, to, from, bytes);
}

static void bfloat16_rounds_to_even(void **state) {
    (void)state;
    static const rcvi_memory memory = {.read = read_memory, .write = write_memory};
    static const rcvi_device far = {.name = "far", .memory = &memory}, near = {.name = "near"};
    fixture f;
    begin(&f, NULL);
    for (int way = 0; way < 3; way++) { /* the host's memory; a device that shares it; a device with its own */
        uint32_t data[ROUNDINGS];
        for (int i = 0; i < ROUNDINGS; i++) data[i] = roundings[i].from;
        rcvi_transfer_options o = {.kind = RCVI_ALL_REDUCE_SUM,
                                   .type = RCVI_TRANSFER_FLOAT,
                                   .data = data,
                                   .count = ROUNDINGS,
                                   .as_bfloat16 = true,
                                   .on_device = way > 0};
        if (way > 0) check_ok(rcvi_comm_set_device(f.world, way == 1 ? &near : &far, 2));
        check_ok(rcvi_transfer_run(f.world, &o));
        for (int i = 0; i < ROUNDINGS; i++) assert_int_equal(data[i], roundings[i].to);
    }
    end(&f);
}

static void *raise_late(void *user) {
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    atomic_fetch_add((_Atomic uint64_t *)user, 2);
    return NULL;
}

/* The data is not touched before the counter is reached. */
static void a_counter_is_waited_for(void **state) {
    (void)state;
    fixture f;
    begin(&f, NULL);
    _Atomic uint64_t counter = 5;
    float x = 1.001f, rounded = 1;
    rcvi_transfer_options o = {.kind = RCVI_ALL_REDUCE_SUM,
                               .type = RCVI_TRANSFER_FLOAT,
                               .data = &x,
                               .count = 1,
                               .as_bfloat16 = true,
                               .counter = &counter,
                               .ready = 7};
    rcvi_transfer *transfer = NULL;
    rcvi_transfer_times times;
    check_ok(rcvi_transfer_start(f.world, &o, &transfer));
    assert_true(x == 1.001f);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, raise_late, &counter), 0);
    check_ok(rcvi_transfer_wait(transfer, &times));
    assert_true(x == rounded);
    assert_true(times.started - times.queued > 0.02);
    pthread_join(thread, NULL);
    end(&f);
}

static void invalid_options_are_refused(void **state) {
    (void)state;
    fixture f;
    begin(&f, NULL);
    float data[4] = {0};
    int64_t falling[2] = {1, 4}, starts[2] = {0, 4};
    const rcvi_transfer_options good = {
        .kind = RCVI_ALL_REDUCE_SUM, .type = RCVI_TRANSFER_FLOAT, .data = data, .count = 4, .starts = starts};
#define refused(fragment, ...)                                                                                         \
    do {                                                                                                               \
        rcvi_transfer_options o = good;                                                                                \
        rcvi_transfer *transfer = (rcvi_transfer *)data;                                                               \
        __VA_ARGS__;                                                                                                   \
        check_fails(rcvi_transfer_start(f.world, &o, &transfer), RCV_INVALID, fragment);                               \
        assert_null(transfer);                                                                                         \
    } while (0)
    refused("no transfer of kind 7", o.kind = (rcvi_transfer_kind)7);
    refused("and type 3", o.type = (rcvi_transfer_type)3);
    refused("an all-reduce of -1 elements", o.count = -1);
    refused("elements", o.count = INT64_MAX);
    refused("needs data", o.data = NULL);
    refused("not of bytes", o.type = RCVI_TRANSFER_BYTES);
    refused("only floats can be sent as bfloat16", o.type = RCVI_TRANSFER_DOUBLE; o.as_bfloat16 = true);
    refused("a broadcast with rank 1, in a communicator of 1", o.kind = RCVI_BROADCAST; o.peer = 1);
    refused("a send with rank -1", o.kind = RCVI_SEND; o.peer = -1);
    refused("rank 0 cannot send to itself", o.kind = RCVI_RECEIVE);
    refused("an all-gather needs the starts of its shares", o.kind = RCVI_ALL_GATHER; o.starts = NULL);
    refused("the starts of 1 shares do not rise from 0 to 4", o.kind = RCVI_REDUCE_SCATTER; o.starts = falling);
    refused("the starts of 1 shares do not rise from 0 to 3", o.kind = RCVI_REDUCE_SCATTER; o.count = 3);
    rcvi_comm *part = NULL;
    check_fails(rcvi_comm_split(f.world, -1, 0, &part), RCV_INVALID, "colour");
    end(&f);
}

static void a_split_has_the_same_rank(void **state) {
    (void)state;
    fixture f;
    begin(&f, NULL);
    rcvi_comm *part = NULL;
    float x = 3;
    rcvi_transfer_options o = {.kind = RCVI_ALL_REDUCE_SUM, .type = RCVI_TRANSFER_FLOAT, .data = &x, .count = 1};
    check_ok(rcvi_comm_split(f.world, 4, -1, &part));
    assert_int_equal(rcvi_comm_size(part), 1);
    assert_int_equal(rcvi_comm_rank(part), 0);
    check_ok(rcvi_transfer_run(part, &o));
    assert_true(x == 3);
    rcvi_comm_free(part);
    rcvi_comm_free(NULL);
    end(&f);
}

/* ---- failure ---- */

static void agreement_keeps_the_message(void **state) {
    (void)state;
    fixture f;
    begin(&f, NULL);
    check_ok(rcvi_comm_agree(f.world, RCV_OK));
    check_fails(rcvi_comm_agree(f.world, rcvi_fail(RCV_IO, "no disk")), RCV_IO, "no disk");
    check_ok(rcvi_comm_agree(f.world, RCV_OK));
    assert_false(rcvi_comm_reports_failure(f.world));
    end(&f);
}

static void nothing_follows_a_failure(void **state) {
    (void)state;
    fixture f;
    begin(&f, NULL);
    float x = 1;
    _Atomic uint64_t counter = 0;
    rcvi_transfer_options o = {.kind = RCVI_ALL_REDUCE_SUM,
                               .type = RCVI_TRANSFER_FLOAT,
                               .data = &x,
                               .count = 1,
                               .counter = &counter,
                               .ready = 1};
    rcvi_transfer *early = NULL, *late = NULL;
    check_ok(rcvi_transfer_start(f.world, &o, &early));
    rcvi_comm_report_progress(f.world);
    rcvi_comm_fail(f.world, "the disk is full");
    rcvi_comm_fail(f.world, "and so on"); /* only the first reason counts */
    assert_true(rcvi_comm_reports_failure(f.world));
    check_fails(rcvi_transfer_wait(early, NULL), RCV_PEER, "rank 0: the disk is full");
    check_fails(rcvi_transfer_start(f.world, &o, &late), RCV_PEER, "rank 0: the disk is full");
    assert_null(late);
    check_fails(rcvi_comm_agree(f.world, RCV_OK), RCV_PEER, "the disk is full");
    check_fails(rcvi_comm_agree(f.world, rcvi_fail(RCV_IO, "mine")), RCV_IO, "mine");
    end(&f);
}

static void memory_may_run_out(void **state) {
    (void)state;
    size_t failed = 0;
    for (size_t at = 1; at < 40; at++) {
        test_allocator counter;
        rcv_context *context = test_context(&counter);
        rcvi_comm *world = NULL, *part = NULL;
        rcvi_comm_options options = {.transport = "self"};
        float x = 1;
        rcvi_transfer_options o = {.kind = RCVI_ALL_REDUCE_SUM, .type = RCVI_TRANSFER_FLOAT, .data = &x, .count = 1};
        counter.fail_at = at;
        rcv_status status = rcvi_comm_open(context, &options, &world);
        assert_int_equal(status == RCV_OK, world != NULL);
        if (!status) status = rcvi_comm_split(world, 0, 0, &part);
        if (!status) status = rcvi_transfer_run(part, &o);
        assert_int_equal(status, counter.failed ? RCV_NO_MEMORY : RCV_OK);
        failed += counter.failed;
        counter.fail_at = 0;
        rcvi_comm_free(part);
        rcvi_comm_close(world);
        test_context_end(&counter, context);
    }
    assert_true(failed >= 8);
}

/* ---- transports ---- */

static void check_refused(const char *transport, rcv_status status, const char *fragment) {
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    rcvi_comm_options options = {.transport = transport};
    rcvi_comm *world = (rcvi_comm *)context;
    check_fails(rcvi_comm_open(context, &options, &world), status, fragment);
    assert_null(world);
    test_context_end(&counter, context);
}

static void a_transport_may_not_be_available(void **state) {
    (void)state;
    int rank = -1;
    unset_launchers();
    check_refused("pigeons", RCV_INVALID, "there is no transport pigeons");
    check_refused("mpi", RCV_INVALID, "this process was not started by mpirun");
    check_refused("nccl", RCV_INVALID, "this process was not started by mpirun");
    setenv("PMI_SIZE", "3", 1);
    assert_int_equal(rcvi_comm_launched_size(&rank), 1); /* not a launcher's: the rank is missing */
    setenv("PMI_RANK", "3", 1);
    assert_int_equal(rcvi_comm_launched_size(&rank), 1);
    setenv("PMI_RANK", "2x", 1);
    assert_int_equal(rcvi_comm_launched_size(&rank), 1);
    setenv("PMI_RANK", "2", 1);
    assert_int_equal(rcvi_comm_launched_size(&rank), 3);
    assert_int_equal(rank, 2);
    check_refused("self", RCV_INVALID, "is for one rank, but 3 were started");
    setenv("RECURVE_MPI", "/nowhere/librecurve-mpi.so", 1);
    check_refused(NULL, RCV_UNSUPPORTED, "MPI is not available: /nowhere/librecurve-mpi.so");
    check_refused("mpi", RCV_UNSUPPORTED, "MPI is not available: /nowhere/librecurve-mpi.so");
    setenv("RECURVE_MPI", "libm.so.6", 1);
    check_refused("mpi", RCV_UNSUPPORTED, "MPI is not available");
    unset_launchers();
    setenv("PMI_SIZE", "1", 1); /* one rank that a launcher has started uses the launcher's transport too */
    setenv("PMI_RANK", "0", 1);
    setenv("RECURVE_MPI", "/nowhere/librecurve-mpi.so", 1);
    check_refused(NULL, RCV_UNSUPPORTED, "MPI is not available: /nowhere/librecurve-mpi.so");
    unset_launchers();
    setenv("RECURVE_MPI", "/nowhere/librecurve-mpi.so", 1); /* without a launcher no transport is opened */
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    rcvi_comm *world = NULL;
    check_ok(rcvi_comm_open(context, &(rcvi_comm_options){.timeout = 1}, &world));
    assert_string_equal(rcvi_comm_name(world), "self");
    rcvi_comm_close(world);
    test_context_end(&counter, context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_world_is_this_rank),      cmocka_unit_test(transfers_change_nothing),
        cmocka_unit_test(bfloat16_rounds_to_even),     cmocka_unit_test(a_counter_is_waited_for),
        cmocka_unit_test(invalid_options_are_refused), cmocka_unit_test(a_split_has_the_same_rank),
        cmocka_unit_test(agreement_keeps_the_message), cmocka_unit_test(nothing_follows_a_failure),
        cmocka_unit_test(memory_may_run_out),          cmocka_unit_test(a_transport_may_not_be_available),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
