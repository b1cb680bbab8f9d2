/* Waits between streams, without a GPU: the runtime's calls are replaced by ones that track which launches are over when. Every two launches
 * that conflict in memory must be ordered, whatever was launched in between. */
#include "cuda_streams.h"

#include "device/cuda/engine/streams.c" /* instead of the library's */

/* ---- launches ---- */

enum { MOST_LAUNCHES = 4000, MOST_TOUCHES = 500 };

typedef struct {
    int stream;
    int64_t number; /* among the launches of its stream, from 1 */
    rcvi_touch *touches;
    size_t count;
} launch;

typedef struct {
    rcvi_streams streams;
    void *stream; /* the caller's */
    launch launches[MOST_LAUNCHES];
    size_t count, begin; /* of all passes; where the last one begins */
    random_source random;
    size_t beside; /* pairs of launches on two streams of which neither waits for the other, */
    size_t apart;  /* of so many that touch nothing in common */
} track;

static void open_track(track *t, rcv_context *context, int streams, uint64_t seed) {
    memset(&fake, 0, sizeof fake);
    t->count = t->begin = t->beside = t->apart = 0;
    t->random = (random_source){seed};
    t->stream = fake_handle();
    check_ok(rcvi_streams_open(context, streams, &t->streams));
}

static void close_track(track *t, rcv_context *context) {
    rcvi_streams_close(context, &t->streams);
    assert_int_equal(fake.open, 1);
    for (size_t i = 0; i < t->count; i++) free(t->launches[i].touches);
}

static bool conflict(const launch *a, const launch *b) {
    for (size_t i = 0; i < a->count; i++) {
        for (size_t k = 0; k < b->count; k++) {
            const rcvi_touch *x = &a->touches[i], *y = &b->touches[k];
            if ((x->written || y->written) && x->low < y->high && y->low < x->high) return true;
        }
    }
    return false;
}

/* Launches, and checks that all launches that this one conflicts with are over. */
static void check_launch(track *t, int stream, const rcvi_touch *touches, size_t count) {
    assert_true(t->count < MOST_LAUNCHES);
    launch *own = &t->launches[t->count];
    *own = (launch){.stream = stream, .touches = malloc((count + 1) * sizeof *touches), .count = count};
    if (count) memcpy(own->touches, touches, count * sizeof *touches);
    check_ok(rcvi_streams_enter(&t->streams, stream, touches, count));
    history *now = history_of(stream ? t->streams.handles[stream] : t->stream);
    for (size_t i = 0; i < t->count; i++) {
        const launch *old = &t->launches[i];
        bool meets = i < t->begin || conflict(old, own), over = now->seen[old->stream] >= old->number;
        if (meets && !over)
            fail_msg("launch %zu on stream %d does not wait for %zu on %d", t->count, stream, i, old->stream);
        t->apart += !meets && old->stream != stream;
        t->beside += !meets && old->stream != stream && !over;
    }
    own->number = ++now->seen[stream];
    t->count++;
}

/* All earlier launches, on every stream, are over where a pass begins and after it has ended. */
static void begin_pass(track *t) {
    t->begin = t->count;
    check_launch(t, 0, NULL, 0);
    t->begin = t->count;
    check_ok(rcvi_streams_begin(&t->streams, t->stream));
}

static void end_pass(track *t) {
    check_ok(rcvi_streams_end(&t->streams));
    t->begin = t->count;
    check_launch(t, 0, NULL, 0);
}

/* Pieces of `bytes` bytes of memory, of `longest` at most, one of `writing` of them written. */
static void launch_random(track *t, int touches, int bytes, int longest, int writing) {
    rcvi_touch some[MOST_TOUCHES];
    int count = 1 + random_below(&t->random, touches);
    for (int i = 0; i < count; i++) {
        uintptr_t low = 4096 + (uintptr_t)random_below(&t->random, bytes);
        some[i] = (rcvi_touch){.low = low,
                               .high = low + 1 + (uintptr_t)random_below(&t->random, longest),
                               .written = random_below(&t->random, writing) == 0};
    }
    check_launch(t, random_below(&t->random, t->streams.count), some, (size_t)count);
}

/* ---- tests ---- */

/* Passes of random launches on two to six streams: conflicting ones are ordered, and many others run in parallel. */
static void test_random(void **state) {
    (void)state;
    enum { SEQUENCES = 4000 };
    static track t;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    size_t beside = 0, apart = 0;
    for (int n = 0; n < SEQUENCES; n++) {
        open_track(&t, context, 2 + n % 5, (uint64_t)n);
        int bytes = 16 << n / 5 % 8, longest = n % 3 ? 8 : 64, writing = 1 + n % 4;
        for (int pass = 0; pass < 1 + n % 2; pass++) {
            begin_pass(&t);
            for (int i = 0; i < 40; i++) launch_random(&t, 4, bytes, longest, writing);
            end_pass(&t);
        }
        beside += t.beside;
        apart += t.apart;
        close_track(&t, context);
    }
    print_message("of launches without conflict %.0f%% run in parallel\n", 100 * (double)beside / (double)apart);
    assert_true(4 * beside > apart);
    test_context_end(&allocator, context);
}

/* More touches than the table holds, in few or many touches a launch: streams join once, and go on. */
static void test_many(void **state) {
    (void)state;
    static track t;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (int n = 0; n < 30; n++) {
        open_track(&t, context, 2 + n % 5, (uint64_t)n);
        int touches = n % 3 == 0 ? 4 : n % 3 == 1 ? 40 : MOST_TOUCHES;
        begin_pass(&t);
        for (int i = 0; i < 6000 / touches; i++) launch_random(&t, touches, 1 << 22, 16, 2);
        assert_true(t.streams.touch_count <= RCVI_MAX_TOUCHES);
        end_pass(&t);
        assert_true(t.beside > 0);
        close_track(&t, context);
    }
    test_context_end(&allocator, context);
}

/* Launches that read shared bytes and write their own wait for nothing, until the table is full: then all streams join once. One stream
 * needs no events. */
static void test_apart(void **state) {
    (void)state;
    static track t;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (int streams = 1; streams <= 6; streams++) {
        open_track(&t, context, streams, 1);
        if (streams == 1) assert_int_equal(fake.created, 1);
        begin_pass(&t);
        assert_int_equal(fake.waits, streams - 1);
        for (int i = 0; i < RCVI_MAX_TOUCHES; i++) {
            uintptr_t own = 8192 + 16 * (uintptr_t)i;
            rcvi_touch touches[] = {{.low = 4096, .high = 8192}, {.low = own, .high = own + 16, .written = true}};
            check_launch(&t, i % streams, touches, 2);
            if (i < RCVI_MAX_TOUCHES / 2) assert_true(fake.waits == streams - 1 && t.beside == t.apart);
        }
        assert_int_equal(fake.waits, 3 * (streams - 1));
        end_pass(&t);
        close_track(&t, context);
    }
    test_context_end(&allocator, context);
}

/* A launch beside the last one on stream 0 waits for all that that one waited for, and not for that one itself, unless they conflict. */
static void test_beside(void **state) {
    (void)state;
    static track t;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    int both[2] = {0, 0}; /* launches that do not conflict with it, and that do */
    for (int n = 0; n < 2000; n++) {
        open_track(&t, context, 2 + n % 5, (uint64_t)n);
        cudaEvent_t event = fake_handle();
        begin_pass(&t);
        for (int i = 0; i < 12; i++) launch_random(&t, 3, 256, 16, 3);
        rcvi_touch wide = {.low = 4096, .high = 4096 + 64, .written = true};
        rcvi_touch narrow = {.low = 4096 + 56 + (uintptr_t)n % 16, .high = 4096 + 256, .written = n % 2};
        check_ok(rcvi_streams_enter(&t.streams, 0, &wide, 1));
        *history_of(event) = *history_of(t.stream);
        launch *loop = &t.launches[t.count++];
        *loop = (launch){.stream = 0, .touches = malloc(sizeof wide), .count = 1};
        loop->touches[0] = wide;
        loop->number = ++history_of(t.stream)->seen[0];
        int stream = 1 + n % (t.streams.count - 1);
        bool meets = conflict(loop, &(launch){.touches = &narrow, .count = 1});
        check_ok(rcvi_streams_beside(&t.streams, stream, event));
        check_launch(&t, stream, &narrow, 1);
        assert_int_equal(history_of(t.streams.handles[stream])->seen[0] >= loop->number, meets);
        both[meets]++;
        for (int i = 0; i < 12; i++) launch_random(&t, 3, 256, 16, 3);
        end_pass(&t);
        fake_close(event);
        close_track(&t, context);
    }
    assert_true(both[0] > 500 && both[1] > 500);
    test_context_end(&allocator, context);
}

/* A failure of any call is a status; all streams and events are destroyed. */
static void test_failing(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (int n = 1, failed = 1; failed; n++) {
        rcvi_streams streams;
        rcvi_touch touch = {.low = 4096, .high = 4100, .written = true};
        memset(&fake, 0, sizeof fake);
        fake.fail_at = n;
        void *stream = fake_handle();
        rcv_status status = rcvi_streams_open(context, 3, &streams);
        if (!status) status = rcvi_streams_begin(&streams, stream);
        for (int i = 0; i < 3 && !status; i++) status = rcvi_streams_enter(&streams, i, &touch, 1);
        if (!status) status = rcvi_streams_end(&streams);
        failed = fake.fail_at == 0;
        assert_int_equal(status, failed ? RCV_NO_MEMORY : RCV_OK);
        rcvi_streams_close(context, &streams);
        assert_int_equal(fake.open, 1);
        assert_true(failed || n > 16);
    }
    test_context_end(&allocator, context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_apart), cmocka_unit_test(test_beside),
                                       cmocka_unit_test(test_failing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
