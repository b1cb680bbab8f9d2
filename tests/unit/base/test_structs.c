/* Structs of the public headers that have a size: size 0 is refused by every function that takes one; a program compiled with an older or a newer
 * header works, unless it sets what this library does not know; results are written as far as the caller's size goes. And the headers
 * keep their conventions: a size first in every struct that callers fill, one version, words about threads in every section. */
#include "public_headers.h"
#include "recurve_bench.h"
#include "recurve_distributed.h"
#include "scratch.h"
#include "train_fixture.h"

#include <stddef.h>

/* ---- reading ---- */

typedef struct {
    rcv_plan_options known;
    int64_t added; /* by a later version */
} later_plan_options;

static void open_net(rcv_context *context, rcv_cell **cell, rcv_net **net) {
    check_ok(rcv_cell_open(context, "lstm", cell));
    check_ok(rcv_net_new(*cell, &RCV_INIT(rcv_net_options, .input = 3, .hidden = 2), net));
}

static bool never(void *user) {
    (void)user;
    return false;
}

static void test_versions(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_cell *cell = NULL;
    rcv_net *net = NULL;
    rcv_plan *plan = NULL;
    open_net(context, &cell, &net);
    later_plan_options options = {.known = {.steps = 4, .batch = 2, .go_on = never}};
    check_fails(rcv_plan_new(net, &options.known, &plan), RCV_INVALID,
                "rcv_plan_new: options has size 0; set it to sizeof(rcv_plan_options), as RCV_INIT does");
    /* With the full size the callback stops planning; with a size that ends before it, it is not called. */
    options.known.size = sizeof options.known;
    check_fails(rcv_plan_new(net, &options.known, &plan), RCV_STOPPED, "");
    options.known.size = offsetof(rcv_plan_options, go_on);
    check_ok(rcv_plan_new(net, &options.known, &plan));
    rcv_plan_free(plan);
    /* A newer header: members that are not set do not matter. */
    options.known.size = sizeof options;
    options.known.go_on = NULL;
    check_ok(rcv_plan_new(net, &options.known, &plan));
    rcv_plan_free(plan);
    options.added = 1;
    check_fails(rcv_plan_new(net, &options.known, &plan), RCV_UNSUPPORTED,
                "members that are set and that this library");
    assert_null(plan);
    assert_int_equal(rcv_net_get_options(net)->size, sizeof(rcv_net_options));
    rcv_net_free(net);
    rcv_cell_free(cell);
    test_context_end(&allocator, context);
}

/* Every function that takes such a struct refuses one of size 0, by its own name. */
static void test_size_zero(void **state) {
    (void)state;
    train_fixture f;
    train_fixture_open(&f);
    rcv_context *context = f.context, *other = NULL;
    rcv_cell *cell = NULL;
    rcv_net *net = NULL;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    rcv_scan *scan = NULL;
    rcv_gemm *gemm = NULL;
    rcv_model *model = NULL;
    rcv_data *data = NULL;
    rcv_world *world = NULL;
    open_net(context, &cell, &net);
    check_ok(rcv_plan_new(net, &RCV_INIT(rcv_plan_options, .steps = 2, .batch = 1, .training = true), &plan));
    check_ok(rcv_run_new(plan, &run));
    check_ok(rcv_scan_new(context, &RCV_INIT(rcv_scan_options, .steps = 2, .channels = 1), &scan));
    const rcv_data *text = train_fixture_data(&f, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *trainer = train_fixture_trainer(&f, "batch=2 length=5", "", text, NULL);
    rcv_learner *learner = rcv_trainer_learner(trainer);
    check_fails(rcv_context_new(&(rcv_context_options){.size = 0}, &other), RCV_INVALID,
                "rcv_context_new: options has size 0");
    check_fails(rcv_net_new(cell, &(rcv_net_options){.size = 0}, &(rcv_net *){0}), RCV_INVALID,
                "rcv_net_new: options has size 0");
    check_fails(rcv_run_forward(run, &(rcv_forward){.size = 0}), RCV_INVALID, "rcv_run_forward: data has size 0");
    check_fails(rcv_run_backward(run, &(rcv_backward){.size = 0}), RCV_INVALID, "rcv_run_backward: data has size 0");
    check_fails(rcv_scan_new(context, &(rcv_scan_options){.size = 0}, &(rcv_scan *){0}), RCV_INVALID,
                "rcv_scan_new: options has");
    check_fails(rcv_scan_forward(scan, &(rcv_scan_data){.size = 0}), RCV_INVALID, "rcv_scan_forward: data has size 0");
    check_fails(rcv_scan_backward(scan, &(rcv_scan_data){.size = 0}, &RCV_INIT(rcv_scan_gradients)), RCV_INVALID,
                "rcv_scan_backward: data has size 0");
    check_fails(rcv_scan_backward(scan, &RCV_INIT(rcv_scan_data), &(rcv_scan_gradients){.size = 0}), RCV_INVALID,
                "rcv_scan_backward: gradients has size 0");
    char *folder, *problem;
    check_fails(rcv_library_describe(0, &(rcv_library){.size = 0}), RCV_INVALID,
                "rcv_library_describe: library has size 0");
    check_fails(rcv_library_describe(99, &RCV_INIT(rcv_library)), RCV_INVALID, "no library 99");
    check_fails(rcv_cache_describe(context, &(rcv_cache){.size = 0}, &folder, &problem), RCV_INVALID,
                "rcv_cache_describe: cache has size 0");
    check_fails(rcv_gemm_new(context, &(rcv_gemm_options){.size = 0}, &gemm), RCV_INVALID,
                "rcv_gemm_new: options has size 0");
    check_fails(rcv_model_load(context, "none", &(rcv_model_options){.size = 0}, &model), RCV_INVALID,
                "rcv_model_load: options");
    rcv_stream *stream = NULL;
    rcv_tensors *out = NULL, *in = NULL;
    check_ok(rcv_model_new(net, RCV_FLOAT32, 1, &model));
    check_ok(rcv_tensors_new(context, &in));
    check_fails(rcv_model_run(model, in, &(rcv_model_run_options){.size = 0}, &out), RCV_INVALID,
                "rcv_model_run: options has size 0");
    check_fails(rcv_stream_new_model(model, &(rcv_stream_options){.size = 0}, &stream), RCV_INVALID,
                "rcv_stream_new_model: options has size 0");
    check_fails(rcv_stream_new_learner(learner, &(rcv_stream_options){.size = 0}, &stream), RCV_INVALID,
                "rcv_stream_new_learner: options has size 0");
    check_fails(rcv_learner_predict(learner, &(rcv_prediction){.size = 0}), RCV_INVALID,
                "rcv_learner_predict: data has size 0");
    rcv_tensors_free(in);
    rcv_model_free(model);
    check_fails(rcv_data_open(context, "none", &(rcv_data_options){.size = 0}, &data), RCV_INVALID,
                "rcv_data_open: options has");
    check_fails(rcv_world_open(context, &(rcv_world_options){.size = 0}, &world), RCV_INVALID,
                "rcv_world_open: options has size 0");
    rcv_evaluation result = {.size = 0, .loss = 7};
    check_fails(rcv_learner_evaluate(learner, text, &(rcv_evaluation_options){.size = 0}, &RCV_INIT(rcv_evaluation)),
                RCV_INVALID, "rcv_learner_evaluate: options has size 0");
    check_fails(rcv_learner_evaluate(learner, text, NULL, &result), RCV_INVALID,
                "rcv_learner_evaluate: result has size 0");
    assert_true(result.loss == 7);
    check_fails(rcv_learner_generate(learner, &(rcv_generation){.size = 0}, NULL, NULL), RCV_INVALID, "");
    check_fails(rcv_trainer_run(trainer, &(rcv_trainer_options){.size = 0}), RCV_INVALID,
                "rcv_trainer_run: options has size 0");
    check_fails(rcv_trainer_forecast(trainer, &(rcv_forecast_options){.size = 0}, &RCV_INIT(rcv_forecast)), RCV_INVALID,
                "rcv_trainer_forecast: options has size 0");
    check_fails(rcv_trainer_forecast(trainer, NULL, &(rcv_forecast){.size = 0}), RCV_INVALID,
                "rcv_trainer_forecast: forecast has size 0");

    /* A result that is shorter in an older header: bytes after it do not change. */
    struct {
        rcv_evaluation known;
        char behind[8];
    } older = {.known = {.size = offsetof(rcv_evaluation, accuracy), .accuracy = 3}, .behind = "after"};
    check_ok(rcv_learner_evaluate(learner, text, NULL, &older.known));
    assert_true(older.known.loss > 0 && older.known.counted > 0 && older.known.accuracy == 3);
    assert_int_equal(older.known.size, offsetof(rcv_evaluation, accuracy));
    /* A result that is longer in a newer header: unknown members are zero. */
    struct {
        rcv_evaluation known;
        double added;
    } newer = {.known = {.size = sizeof newer}, .added = 5};
    check_ok(rcv_learner_evaluate(learner, text, NULL, &newer.known));
    assert_true(newer.known.loss == older.known.loss && newer.added == 0);
    rcv_trainer_free(trainer);
    rcv_scan_free(scan);
    rcv_run_free(run);
    rcv_plan_free(plan);
    rcv_net_free(net);
    rcv_cell_free(cell);
    train_fixture_close(&f);
}

/* ---- the headers ---- */

static void test_version_macros(void **state) {
    (void)state;
    char text[64];
    snprintf(text, sizeof text, "%d.%d.%d", RCV_VERSION_MAJOR, RCV_VERSION_MINOR, RCV_VERSION_PATCH);
    assert_string_equal(text, RCV_VERSION);
    assert_string_equal(text, rcv_version());
}

/* Structs that functions take or fill have their size first. Structs that the library owns have none: callers never make them. */
static void test_sizes_are_first(void **state) {
    (void)state;
    static const char owned[] =
        " rcv_allocator rcv_size rcv_parameter rcv_state rcv_candidate rcv_tensor rcv_setting rcv_progress rcv_event ";
    size_t checked = 0;
    for (size_t h = 0; h < PUBLIC_HEADERS; h++) {
        char *text = read_public_header(public_headers[h]);
        for (char *at = text; (at = strstr(at, "typedef struct {"));) {
            at += strlen("typedef struct {");
            char *end = strstr(at, "\n} rcv_"), name[70] = " ";
            assert_non_null(end);
            snprintf(name + 1, sizeof name - 1, "%.*s ", (int)strcspn(end + 3, ";"), end + 3);
            bool sized = !strncmp(at, "\n    size_t size;\n", 18);
            if (sized == (strstr(owned, name) != NULL))
                fail_msg("%s:%s%s", public_headers[h], name,
                         sized ? "has a size and is in the list of those without" : "does not begin with size_t size");
            checked += sized;
        }
        free(text);
    }
    assert_int_equal(checked, 27);
}

/* Every section says which threads may call its functions. */
static void test_sections_speak_of_threads(void **state) {
    (void)state;
    size_t sections = 0;
    for (size_t h = 0; h < PUBLIC_HEADERS; h++) {
        char *text = read_public_header(public_headers[h]);
        for (char *at = strstr(text, "\n/* ---- "); at;) {
            char *next = strstr(at + 1, "\n/* ---- ");
            if (next) *next = '\0';
            bool says = strstr(at, "hread-safe") || strstr(at, "ne thread") || strstr(at, "shared between threads");
            if (strstr(at, "RCV_API") && !says) fail_msg("%s: no word about threads in:%.80s", public_headers[h], at);
            sections++;
            at = next;
            if (at) *at = '\n';
        }
        free(text);
    }
    assert_true(sections >= 19);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_size_zero),
        cmocka_unit_test(test_version_macros),
        cmocka_unit_test(test_sizes_are_first),
        cmocka_unit_test(test_sections_speak_of_threads),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
