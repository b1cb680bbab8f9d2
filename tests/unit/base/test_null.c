/* NULL for a required argument gives RCV_INVALID and a message with the name of the argument in its header. The table has every function of the
 * public headers that returns a status, and each of its pointers as required or optional; the test compares it with the headers. */
#include "public_headers.h"
#include "recurve_bench.h"
#include "recurve_distributed.h"
#include "scratch.h"
#include "train_fixture.h"

#include <ctype.h>
#include <unistd.h>

typedef struct {
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    rcv_plan *plan;
    rcv_run *run;
    rcv_scan *scan;
    rcv_gemm *gemm;
    rcv_tensors *tensors;
    rcv_model *model;
    rcv_stream *stream; /* the model's */
    rcv_vocabulary *vocabulary;
    const rcv_data *data; /* the fixture's */
    rcv_settings *settings;
    rcv_trainer *trainer;
    rcv_learner *learner; /* the trainer's */
    rcv_world *world;
    float numbers[256];
} objects;

static const rcv_net_options net_options = {.size = sizeof(rcv_net_options), .input = 2, .hidden = 2};
static const rcv_plan_options plan_options = {
    .size = sizeof(rcv_plan_options), .steps = 2, .batch = 1, .training = true, .schedule = "naive"};
static const rcv_scan_options scan_options = {.size = sizeof(rcv_scan_options), .steps = 2, .channels = 2};
static const rcv_gemm_options gemm_options = {.size = sizeof(rcv_gemm_options), .m = 2, .n = 2, .k = 2};
static const float ones[4] = {1, 1, 1, 1};
static const rcv_tensor tensor = {.name = "w", .dims = 1, .shape = {4}, .data = ones, .bytes = sizeof ones};
static const int64_t bounds[] = {64};
static const rcv_part_options part_options = {.size = sizeof part_options, .end = 1};
static const rcv_training_files training_files = {.size = sizeof training_files, .paths = {"x"}};

static bool ignore_text(void *user, const char *text, size_t length) {
    (void)user, (void)text, (void)length;
    return true;
}

/* A call with the argument called `null` NULL, and all others good. */
#define CALL(function, ...)                                                                                            \
    static rcv_status call_##function(objects *o, const char *null) {                                                  \
        (void)o;                                                                                                       \
        return function(__VA_ARGS__);                                                                                  \
    }
#define A(name, value) (strcmp(null, #name) == 0 ? NULL : (value))
#define OUT(type) (&(type *){NULL})

CALL(rcv_context_new, A(options, NULL), A(context, OUT(rcv_context)))
CALL(rcv_device_describe, A(context, o->context), "cpu", NULL)
CALL(rcv_libraries_set_folders, A(folders, NULL))
CALL(rcv_memory_new, A(context, o->context), "cpu", 4, A(memory, OUT(void)))
CALL(rcv_memory_write, "cpu", A(to, o->numbers), A(from, ones), 4)
CALL(rcv_memory_read, "cpu", A(to, o->numbers), A(from, ones), 4)
CALL(rcv_cell_parse, A(context, o->context), A(text, "cell"), 4, NULL, A(cell, OUT(rcv_cell)))
CALL(rcv_cell_open, A(context, o->context), A(name_or_path, "gru"), A(cell, OUT(rcv_cell)))
CALL(rcv_cell_print, A(cell, o->cell), A(text, OUT(char)))
CALL(rcv_cell_describe, A(cell, o->cell), 0, A(text, OUT(char)))
CALL(rcv_net_new, A(cell, o->cell), A(options, &net_options), A(net, OUT(rcv_net)))
CALL(rcv_net_initialize, A(net, o->net), 1, RCV_FLOAT32, A(parameters, o->numbers))
CALL(rcv_plan_new, A(net, o->net), A(options, &plan_options), A(plan, OUT(rcv_plan)))
CALL(rcv_plan_wait, A(plan, o->plan))
CALL(rcv_plan_stay, A(plan, o->plan))
CALL(rcv_plan_print, A(plan, o->plan), A(text, OUT(char)))
CALL(rcv_plan_explain, A(plan, o->plan), A(text, OUT(char)))
CALL(rcv_wisdom_load, A(context, o->context), A(path, "wisdom"))
CALL(rcv_wisdom_save, A(context, o->context), A(path, "wisdom"))
CALL(rcv_run_new, A(plan, o->plan), A(run, OUT(rcv_run)))
CALL(rcv_run_set_stream, A(run, o->run), NULL)
CALL(rcv_run_wait, A(run, o->run))
CALL(rcv_run_update, A(run, o->run))
CALL(rcv_run_forward, A(run, o->run), A(data, (&RCV_INIT(rcv_forward, .x = ones))))
CALL(rcv_run_backward, A(run, o->run), A(data, (&RCV_INIT(rcv_backward, .dy = ones))))
CALL(rcv_run_set_signals, A(run, o->run), (uint64_t[2]){0}, A(value, (&(uint64_t){1})))
CALL(rcv_run_trace, A(run, o->run), NULL, 0)
CALL(rcv_scan_new, A(context, o->context), A(options, &scan_options), A(scan, OUT(rcv_scan)))
CALL(rcv_scan_set_stream, A(scan, o->scan), NULL)
CALL(rcv_scan_wait, A(scan, o->scan))
CALL(rcv_scan_forward, A(scan, o->scan), A(data, (&RCV_INIT(rcv_scan_data, .a = ones))))
CALL(rcv_scan_backward, A(scan, o->scan), A(data, (&RCV_INIT(rcv_scan_data, .a = ones, .h = o->numbers))),
     A(gradients, (&RCV_INIT(rcv_scan_gradients, .dh = ones))))
CALL(rcv_measure_peak, A(context, o->context), RCV_FLOAT32, 1, A(operations, (&(double){0})))
CALL(rcv_measure_device, A(context, o->context), "cpu", RCV_FLOAT32, A(operations, (&(double){0})))
CALL(rcv_measure_memory, A(context, o->context), "cpu", 1, 1, 4096, A(bandwidth, (&(double){0})))
CALL(rcv_measure_barrier, A(context, o->context), 1, A(seconds, (&(double){0})))
CALL(rcv_openblas_open, A(openblas, (&RCV_INIT(rcv_openblas))))
CALL(rcv_library_describe, 0, A(library, (&RCV_INIT(rcv_library))))
CALL(rcv_cache_describe, A(context, o->context), A(cache, (&RCV_INIT(rcv_cache))), A(folder, OUT(char)),
     A(problem, OUT(char)))
CALL(rcv_gemm_new, A(context, o->context), A(options, &gemm_options), A(gemm, OUT(rcv_gemm)))
CALL(rcv_gemm_run, A(gemm, o->gemm), A(a, ones), A(b, ones), A(c, o->numbers))
CALL(rcv_tensors_new, A(context, o->context), A(tensors, OUT(rcv_tensors)))
CALL(rcv_tensors_load, A(context, o->context), A(path, "x"), A(tensors, OUT(rcv_tensors)))
CALL(rcv_tensors_parse, A(context, o->context), A(bytes, "x"), 1, "x", A(tensors, OUT(rcv_tensors)))
CALL(rcv_tensors_save, A(tensors, o->tensors), A(path, "x"))
CALL(rcv_tensors_add, A(tensors, o->tensors), A(tensor, &tensor))
CALL(rcv_tensors_set_metadata, A(tensors, o->tensors), A(key, "k"), A(value, "v"))
CALL(rcv_tensor_convert, A(tensor, &tensor), RCV_FLOAT32, 4, A(out, o->numbers))
CALL(rcv_model_new, A(net, o->net), RCV_FLOAT32, 1, A(model, OUT(rcv_model)))
CALL(rcv_model_load, A(context, o->context), A(path, "x"), NULL, A(model, OUT(rcv_model)))
CALL(rcv_model_save, A(model, o->model), A(path, "x"))
CALL(rcv_model_low_rank, A(model, o->model), 1, A(approximation, OUT(rcv_model)))
CALL(rcv_model_run, A(model, o->model), A(in, o->tensors), NULL, A(out, OUT(rcv_tensors)))
CALL(rcv_stream_new_model, A(model, o->model), NULL, A(stream, OUT(rcv_stream)))
CALL(rcv_stream_new_learner, A(learner, o->learner), NULL, A(stream, OUT(rcv_stream)))
CALL(rcv_stream_step, A(stream, o->stream), A(frames, ones), 1, NULL)
CALL(rcv_stream_reset, A(stream, o->stream), NULL)
CALL(rcv_stream_get_states, A(stream, o->stream), 0, A(states, o->numbers))
CALL(rcv_stream_set_states, A(stream, o->stream), 0, A(states, ones))
CALL(rcv_stream_reload, A(stream, o->stream))
CALL(rcv_stream_wait, A(stream, o->stream))
CALL(rcv_vocabulary_bytes, A(context, o->context), A(vocabulary, OUT(rcv_vocabulary)))
CALL(rcv_vocabulary_parse, A(context, o->context), A(text, "a"), 1, A(name, "n"), A(vocabulary, OUT(rcv_vocabulary)))
CALL(rcv_vocabulary_load, A(context, o->context), A(path, "x"), A(vocabulary, OUT(rcv_vocabulary)))
CALL(rcv_vocabulary_print, A(vocabulary, o->vocabulary), A(text, OUT(char)))
CALL(rcv_data_open, A(context, o->context), A(path, "x"), NULL, A(data, OUT(rcv_data)))
CALL(rcv_data_read_tokens, A(data, o->data), 0, 1, A(tokens, (int64_t[1]){0}))
CALL(rcv_data_count_classes, A(data, o->data), A(counts, (int64_t *)NULL))
CALL(rcv_data_recognise, A(context, o->context), A(path, "x"), NULL, A(guess, (&RCV_INIT(rcv_guess))), NULL)
CALL(rcv_data_part, A(data, o->data), A(options, &part_options), A(part, OUT(rcv_data)))
CALL(rcv_data_read, A(data, o->data), 0, 1, A(lengths, (int64_t[1]){0}), NULL, NULL, 0)
CALL(rcv_data_example_name, A(data, o->data), 0, A(text, (char[8]){0}), 8)
CALL(rcv_training_data_open, A(context, o->context), A(settings, o->settings), A(files, &training_files),
     A(data, (rcv_data *[RCV_DATA_PARTS]){NULL}), NULL)
CALL(rcv_learner_open_data, A(learner, o->learner), A(path, "x"), NULL, A(data, OUT(rcv_data)))
CALL(rcv_vocabulary_encode, A(vocabulary, o->vocabulary), A(text, "a"), 1, A(tokens, (int64_t[4]){0}), 4,
     A(count, (&(size_t){0})))
CALL(rcv_vocabulary_decode, A(vocabulary, o->vocabulary), -1, 0, A(text, (char[8]){0}), 8, A(length, (&(size_t){0})))
CALL(rcv_data_lengths, A(data, o->data), A(counts, (int64_t *)NULL))
CALL(rcv_data_buckets, A(data, o->data), 1, false, A(bounds, (int64_t[1]){0}), A(count, (&(size_t){0})))
CALL(rcv_data_padding, A(data, o->data), A(bounds, bounds), 1, A(ratio, (&(double){0})))
CALL(rcv_settings_new, A(context, o->context), A(settings, OUT(rcv_settings)))
CALL(rcv_settings_copy, A(settings, o->settings), A(copy, OUT(rcv_settings)))
CALL(rcv_settings_set, A(settings, o->settings), A(name, "hidden"), A(value, "3"))
CALL(rcv_settings_preset, A(settings, o->settings), A(preset, "x"))
CALL(rcv_settings_parse, A(settings, o->settings), A(json, "{}"), 2, A(file, "x"))
CALL(rcv_settings_load, A(settings, o->settings), A(path, "x"))
CALL(rcv_settings_print, A(settings, o->settings), A(json, OUT(char)))
CALL(rcv_learner_new, A(context, o->context), A(settings, o->settings), A(data, o->data), A(learner, OUT(rcv_learner)))
CALL(rcv_learner_load, A(context, o->context), A(path, "x"), NULL, RCV_FLOAT32, A(learner, OUT(rcv_learner)))
CALL(rcv_learner_save, A(learner, o->learner), A(path, "x"))
CALL(rcv_learner_evaluate, A(learner, o->learner), A(data, o->data), NULL, A(result, (&RCV_INIT(rcv_evaluation))))
CALL(rcv_evaluation_print, A(context, o->context), A(learner, o->learner), A(evaluation, (&RCV_INIT(rcv_evaluation))),
     NULL, A(json, OUT(char)))
CALL(rcv_learner_predict, A(learner, o->learner), A(data, (&RCV_INIT(rcv_prediction, .steps = 1))))
CALL(rcv_learner_generate, A(learner, o->learner), A(options, (&RCV_INIT(rcv_generation, .count = 0))),
     A(emit, ignore_text), NULL)
CALL(rcv_world_open, A(context, o->context), NULL, A(world, OUT(rcv_world)))
CALL(rcv_world_agree, A(world, o->world), RCV_OK)
CALL(rcv_trainer_new, A(context, o->context), A(settings, o->settings), A(train, o->data), NULL,
     A(trainer, OUT(rcv_trainer)))
CALL(rcv_trainer_join, A(context, o->context), A(settings, o->settings), A(train, o->data), NULL, NULL,
     A(trainer, OUT(rcv_trainer)))
CALL(rcv_trainer_resume, A(trainer, o->trainer), A(path, "x"))
CALL(rcv_trainer_run, A(trainer, o->trainer), NULL)
CALL(rcv_trainer_forecast, A(trainer, o->trainer), NULL, A(forecast, (&RCV_INIT(rcv_forecast))))
CALL(rcv_trainer_save, A(trainer, o->trainer), A(path, "x"))
CALL(rcv_trainer_best_path, A(context, o->context), A(path, "x"), A(best, OUT(char)))
CALL(rcv_checkpoint_settings, A(context, o->context), A(path, "x"), A(settings, OUT(rcv_settings)))
CALL(rcv_checkpoint_vocabulary, A(context, o->context), A(path, "x"), A(vocabulary, OUT(rcv_vocabulary)))

CALL(rcv_file_save, A(context, o->context), A(path, "x"), A(bytes, "x"), 1)
CALL(rcv_settings_check, A(settings, o->settings))
CALL(rcv_trainer_best_model, A(trainer, o->trainer), A(output, "x"), A(path, OUT(char)))
CALL(rcv_trainer_check_output, A(context, o->context), A(settings, o->settings), NULL, A(output, "x"), false)

typedef struct {
    const char *function;
    rcv_status (*call)(objects *, const char *null);
    const char *required, *optional; /* pointers by name */
} entry;

#define ENTRY(function, required, optional)                                                                            \
    { #function, call_##function, required, optional }
static const entry table[] = {
    ENTRY(rcv_context_new, "context", "options"),
    ENTRY(rcv_device_describe, "context", "device text"),
    ENTRY(rcv_libraries_set_folders, "", "folders"),
    ENTRY(rcv_memory_new, "context memory", "device"),
    ENTRY(rcv_memory_write, "to from", "device"),
    ENTRY(rcv_memory_read, "to from", "device"),
    ENTRY(rcv_cell_parse, "context text cell", "file"),
    ENTRY(rcv_cell_open, "context name_or_path cell", ""),
    ENTRY(rcv_cell_print, "cell text", ""),
    ENTRY(rcv_cell_describe, "cell text", ""),
    ENTRY(rcv_net_new, "cell options net", ""),
    ENTRY(rcv_net_initialize, "net parameters", ""),
    ENTRY(rcv_plan_new, "net options plan", ""),
    ENTRY(rcv_plan_wait, "plan", ""),
    ENTRY(rcv_plan_stay, "plan", ""),
    ENTRY(rcv_plan_print, "plan text", ""),
    ENTRY(rcv_plan_explain, "plan text", ""),
    ENTRY(rcv_wisdom_load, "context path", ""),
    ENTRY(rcv_wisdom_save, "context path", ""),
    ENTRY(rcv_run_new, "plan run", ""),
    ENTRY(rcv_run_set_stream, "run", "stream"),
    ENTRY(rcv_run_wait, "run", ""),
    ENTRY(rcv_run_update, "run", ""),
    ENTRY(rcv_run_forward, "run data", ""),
    ENTRY(rcv_run_backward, "run data", ""),
    ENTRY(rcv_run_set_signals, "run value", "signals"),
    ENTRY(rcv_run_trace, "run", "events"),
    ENTRY(rcv_scan_new, "context options scan", ""),
    ENTRY(rcv_scan_set_stream, "scan", "stream"),
    ENTRY(rcv_scan_wait, "scan", ""),
    ENTRY(rcv_scan_forward, "scan data", ""),
    ENTRY(rcv_scan_backward, "scan data gradients", ""),
    ENTRY(rcv_measure_peak, "context operations", ""),
    ENTRY(rcv_measure_device, "context operations", "device"),
    ENTRY(rcv_measure_memory, "context bandwidth", "device"),
    ENTRY(rcv_measure_barrier, "context seconds", ""),
    ENTRY(rcv_openblas_open, "openblas", ""),
    ENTRY(rcv_library_describe, "library", ""),
    ENTRY(rcv_cache_describe, "context cache folder problem", ""),
    ENTRY(rcv_gemm_new, "context options gemm", ""),
    ENTRY(rcv_gemm_run, "gemm a b c", ""),
    ENTRY(rcv_tensors_new, "context tensors", ""),
    ENTRY(rcv_tensors_load, "context path tensors", ""),
    ENTRY(rcv_tensors_parse, "context bytes tensors", "name"),
    ENTRY(rcv_tensors_save, "tensors path", ""),
    ENTRY(rcv_tensors_add, "tensors tensor", ""),
    ENTRY(rcv_tensors_set_metadata, "tensors key value", ""),
    ENTRY(rcv_tensor_convert, "tensor out", ""),
    ENTRY(rcv_model_new, "net model", ""),
    ENTRY(rcv_model_load, "context path model", "options"),
    ENTRY(rcv_model_save, "model path", ""),
    ENTRY(rcv_model_low_rank, "model approximation", ""),
    ENTRY(rcv_model_run, "model in out", "options"),
    ENTRY(rcv_stream_new_model, "model stream", "options"),
    ENTRY(rcv_stream_new_learner, "learner stream", "options"),
    ENTRY(rcv_stream_step, "stream frames", "out"),
    ENTRY(rcv_stream_reset, "stream", "rows"),
    ENTRY(rcv_stream_get_states, "stream states", ""),
    ENTRY(rcv_stream_set_states, "stream states", ""),
    ENTRY(rcv_stream_reload, "stream", ""),
    ENTRY(rcv_stream_wait, "stream", ""),
    ENTRY(rcv_vocabulary_bytes, "context vocabulary", ""),
    ENTRY(rcv_vocabulary_parse, "context text name vocabulary", ""),
    ENTRY(rcv_vocabulary_load, "context path vocabulary", ""),
    ENTRY(rcv_vocabulary_print, "vocabulary text", ""),
    ENTRY(rcv_data_open, "context path data", "options"),
    ENTRY(rcv_data_read_tokens, "data tokens", ""),
    ENTRY(rcv_data_count_classes, "data counts", ""),
    ENTRY(rcv_data_recognise, "context path guess", "options sentence"),
    ENTRY(rcv_data_part, "data options part", ""),
    ENTRY(rcv_data_read, "data lengths", "x tokens"),
    ENTRY(rcv_data_example_name, "data text", ""),
    ENTRY(rcv_training_data_open, "context settings files data", "sentence"),
    ENTRY(rcv_learner_open_data, "learner path data", "options"),
    ENTRY(rcv_vocabulary_encode, "vocabulary text tokens count", ""),
    ENTRY(rcv_vocabulary_decode, "vocabulary text length", ""),
    ENTRY(rcv_data_lengths, "data counts", ""),
    ENTRY(rcv_data_buckets, "data bounds count", ""),
    ENTRY(rcv_data_padding, "data bounds ratio", ""),
    ENTRY(rcv_settings_new, "context settings", ""),
    ENTRY(rcv_settings_copy, "settings copy", ""),
    ENTRY(rcv_settings_set, "settings name value", ""),
    ENTRY(rcv_settings_preset, "settings preset", ""),
    ENTRY(rcv_settings_parse, "settings json file", ""),
    ENTRY(rcv_settings_load, "settings path", ""),
    ENTRY(rcv_settings_print, "settings json", ""),
    ENTRY(rcv_learner_new, "context settings data learner", ""),
    ENTRY(rcv_learner_load, "context path learner", "device"),
    ENTRY(rcv_learner_save, "learner path", ""),
    ENTRY(rcv_learner_evaluate, "learner data result", "options"),
    ENTRY(rcv_evaluation_print, "context learner evaluation json", "confusion"),
    ENTRY(rcv_learner_predict, "learner data", ""),
    ENTRY(rcv_learner_generate, "learner options emit", "user"),
    ENTRY(rcv_world_open, "context world", "options"),
    ENTRY(rcv_world_agree, "world", ""),
    ENTRY(rcv_trainer_new, "context settings train trainer", "valid"),
    ENTRY(rcv_trainer_join, "context settings train trainer", "valid world"),
    ENTRY(rcv_trainer_resume, "trainer path", ""),
    ENTRY(rcv_trainer_run, "trainer", "options"),
    ENTRY(rcv_trainer_forecast, "trainer forecast", "options"),
    ENTRY(rcv_trainer_save, "trainer path", ""),
    ENTRY(rcv_trainer_best_path, "context path best", ""),
    ENTRY(rcv_checkpoint_settings, "context path settings", ""),
    ENTRY(rcv_file_save, "context path bytes", ""),
    ENTRY(rcv_settings_check, "settings", ""),
    ENTRY(rcv_trainer_best_model, "trainer output path", ""),
    ENTRY(rcv_trainer_check_output, "context settings output", "resume"),
    ENTRY(rcv_checkpoint_vocabulary, "context path vocabulary", ""),
};
enum { ENTRIES = sizeof table / sizeof *table };

/* The next word of a list into `word`; false at its end. */
static bool next_word(const char **list, char *word, size_t bytes) {
    size_t length = strcspn(*list, " ");
    if (length == 0) return false;
    assert_true(length < bytes);
    snprintf(word, bytes, "%.*s", (int)length, *list);
    *list += length + ((*list)[length] == ' ');
    return true;
}

static bool has_word(const char *list, const char *sought) {
    char word[64];
    while (next_word(&list, word, sizeof word)) {
        if (!strcmp(word, sought)) return true;
    }
    return false;
}

static void open_objects(objects *o, train_fixture *s) {
    train_fixture_open(s);
    *o = (objects){.context = s->context};
    o->data = train_fixture_data(s, "lines", RCV_DATA_LINES, train_fixture_verse, NULL);
    check_ok(rcv_cell_open(o->context, "gru", &o->cell));
    check_ok(rcv_net_new(o->cell, &net_options, &o->net));
    check_ok(rcv_plan_new(o->net, &plan_options, &o->plan));
    check_ok(rcv_run_new(o->plan, &o->run));
    check_ok(rcv_scan_new(o->context, &scan_options, &o->scan));
    check_ok(rcv_gemm_new(o->context, &gemm_options, &o->gemm));
    check_ok(rcv_tensors_new(o->context, &o->tensors));
    check_ok(rcv_model_new(o->net, RCV_FLOAT32, 1, &o->model));
    check_ok(rcv_stream_new_model(o->model, &RCV_INIT(rcv_stream_options, .schedule = "naive"), &o->stream));
    check_ok(rcv_vocabulary_parse(o->context, "a\nb\n", 4, "words", &o->vocabulary));
    o->settings = train_fixture_settings(s, "hidden=2 kind=lines");
    check_ok(rcv_trainer_new(o->context, o->settings, o->data, NULL, &o->trainer));
    o->learner = rcv_trainer_learner(o->trainer);
    check_ok(rcv_world_open(o->context, &RCV_INIT(rcv_world_options, .transport = "self"), &o->world));
}

static void close_objects(objects *o, train_fixture *s) {
    rcv_world_close(o->world);
    rcv_trainer_free(o->trainer);
    rcv_settings_free(o->settings);
    rcv_vocabulary_free(o->vocabulary);
    rcv_stream_free(o->stream);
    rcv_model_free(o->model);
    rcv_tensors_free(o->tensors);
    rcv_gemm_free(o->gemm);
    rcv_scan_free(o->scan);
    rcv_run_free(o->run);
    rcv_plan_free(o->plan);
    rcv_net_free(o->net);
    rcv_cell_free(o->cell);
    train_fixture_close(s);
}

static void test_null(void **state) {
    (void)state;
    train_fixture s;
    objects o;
    int checked = 0;
    open_objects(&o, &s);
    for (size_t i = 0; i < ENTRIES; i++) {
        const char *list = table[i].required;
        char argument[64], sentence[160];
        while (next_word(&list, argument, sizeof argument)) {
            snprintf(sentence, sizeof sentence, "%s needs %s, not NULL", table[i].function, argument);
            rcv_status status = table[i].call(&o, argument);
            if (status != RCV_INVALID || strcmp(rcv_message(), sentence) != 0)
                fail_msg("%s with %s NULL gave %s: %s", table[i].function, argument, rcv_status_name(status),
                         status ? rcv_message() : "");
            checked++;
        }
    }
    printf("%d NULL arguments of %d functions\n", checked, ENTRIES);
    close_objects(&o, &s);
}

/* ---- the table is complete: comparison with the headers ---- */

static const entry *find_entry(const char *function) {
    for (size_t i = 0; i < ENTRIES; i++) {
        if (!strcmp(table[i].function, function)) return &table[i];
    }
    fail_msg("%s returns a status and is not in the table of this test", function);
    return NULL;
}

static bool is_part_of_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* The name of the parameter whose text ends before `end`: its last word, or `NAME` of (*NAME). True where it is a pointer. */
static bool read_parameter(const char *begin, const char *end, char name[64]) {
    const char *star = memchr(begin, '*', (size_t)(end - begin)), *function = strstr(begin, "(*");
    if (function && function < end) {
        end = function + 2;
        while (is_part_of_name(*end)) end++;
    }
    while (end > begin && !is_part_of_name(end[-1])) end--;
    const char *first = end;
    while (first > begin && is_part_of_name(first[-1])) first--;
    snprintf(name, 64, "%.*s", (int)(end - first), first);
    return star != NULL;
}

/* Checks the parameters from `at`, after the opening parenthesis; returns how many are pointers. */
static int check_parameters(const entry *e, const char *at) {
    int pointers = 0;
    for (int depth = 1; depth > 0;) {
        const char *begin = at;
        for (; !(depth == 1 && (*at == ',' || *at == ')')); at++) depth += (*at == '(') - (*at == ')');
        char name[64];
        if (read_parameter(begin, at, name)) {
            pointers++;
            if (has_word(e->required, name) == has_word(e->optional, name))
                fail_msg("%s: is %s required or optional? The table of this test does not say", e->function, name);
        }
        if (*at++ == ')') depth--;
    }
    return pointers;
}

static int count_words(const char *list) {
    char word[64];
    int count = 0;
    while (next_word(&list, word, sizeof word)) count++;
    return count;
}

static void blank_comments(char *text) {
    for (char *at = text; (at = strstr(at, "/*"));) {
        char *end = strstr(at, "*/");
        assert_non_null(end);
        memset(at, ' ', (size_t)(end + 2 - at));
    }
}

static size_t check_header(const char *name) {
    static const char mark[] = "RCV_API rcv_status ";
    char *text = read_public_header(name);
    size_t found = 0;
    blank_comments(text);
    for (const char *at = text; (at = strstr(at, mark));) {
        at += sizeof mark - 1;
        size_t length = strcspn(at, "(");
        char function[64];
        snprintf(function, sizeof function, "%.*s", (int)length, at);
        const entry *e = find_entry(function);
        assert_int_equal(check_parameters(e, at + length + 1), count_words(e->required) + count_words(e->optional));
        found++;
    }
    free(text);
    return found;
}

static void test_table_is_whole(void **state) {
    (void)state;
    size_t found = 0;
    for (size_t h = 0; h < PUBLIC_HEADERS; h++) found += check_header(public_headers[h]);
    assert_int_equal(found, ENTRIES);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_null), cmocka_unit_test(test_table_is_whole)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
