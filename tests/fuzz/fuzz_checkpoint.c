/* Mutated checkpoints. Three of four are written again from what can be read of them, so that lengths, offsets and a checksum fit: then what
 * is wrong is in the metadata (JSON), the names, the shapes or the numbers. Each is taken whole or refused with a sentence; a trainer that
 * refuses one stands where it stood; a model that was taken is saved and taken again. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "train/run/trainer.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const pieces[] = {"{",
                                     "}",
                                     "[",
                                     "]",
                                     "\\\"",
                                     "\"",
                                     ":",
                                     ",",
                                     "\\\"hidden\\\": 3",
                                     "\\\"layers\\\": 2",
                                     "null",
                                     "1e999",
                                     "-1",
                                     "\\\"tokens\\\": 5",
                                     "\\\"step\\\": 7",
                                     "stream",
                                     "lines",
                                     "classes",
                                     "\\\"kind\\\"",
                                     "\\u0000",
                                     "\xff",
                                     "recurve.format",
                                     "recurve.cell",
                                     "recurve.vocabulary",
                                     "recurve.classes",
                                     "\\\"level\\\":\\\"word\\\"",
                                     "[255,0]",
                                     "rnn.weight_ih_l0",
                                     "decoder.bias",
                                     "state.h",
                                     "F64",
                                     "U8",
                                     "I64",
                                     "adam",
                                     "naive",
                                     "optimiser.",
                                     "average.",
                                     "9223372036854775807",
                                     "\\\\n",
                                     "tanh(",
                                     "h'",
                                     NULL};

static struct {
    rcv_data *data, *examples;
    rcv_settings *settings;
    rcv_trainer *trainer;
} world;

/* ---- files to begin with: a few updates of two kinds of model ---- */

static const char verse[] = "the cat sat on the mat\na dog sat on a log\nthe cat saw the dog\na log lay on the mat\n";
static const char numbers[] = "{\"x\": [[0.5, -1], [0.25, 2]], \"y\": \"a\"}\n{\"x\": [[-0.5, 1]], \"y\": \"b\"}\n";

static rcv_data *open_data(const char *name, const char *text, rcv_data_kind kind) {
    rcv_data *data = NULL;
    const char *path = fuzz_path(name);
    fuzz_write(path, text, strlen(text));
    return rcv_data_open(fuzz_context(), path, &RCV_INIT(rcv_data_options, .kind = kind), &data) ? NULL : data;
}

static rcv_settings *make_settings(const char *const (*pairs)[2]) {
    rcv_settings *settings = NULL;
    if (rcv_settings_new(fuzz_context(), &settings)) exit(1);
    for (; (*pairs)[0]; pairs++) {
        if (rcv_settings_set(settings, (*pairs)[0], (*pairs)[1])) {
            fprintf(stderr, "%s\n", rcv_message());
            exit(1);
        }
    }
    return settings;
}

static rcv_settings *stream_settings(void) {
    static const char *const pairs[][2] = {{"level", "word"},  {"hidden", "2"},        {"batch", "2"},
                                           {"length", "3"},    {"steps", "3"},         {"threads", "1"},
                                           {"cell", "gru"},    {"effort", "estimate"}, {"seed", "3"},
                                           {"log-every", "1"}, {"embedding", "2"},     {NULL, NULL}};
    return make_settings(pairs);
}

static rcv_settings *class_settings(void) {
    static const char *const pairs[][2] = {{"kind", "classes"},  {"hidden", "2"},  {"batch", "2"},
                                           {"steps", "2"},       {"threads", "1"}, {"effort", "estimate"},
                                           {"optimiser", "sgd"}, {NULL, NULL}};
    return make_settings(pairs);
}

static bool save_run(rcv_settings *settings, const rcv_data *data, bool model_alone, fuzz_input *input) {
    rcv_trainer *trainer = NULL;
    const char *path = fuzz_path("made");
    rcv_status status = rcv_trainer_new(fuzz_context(), settings, data, NULL, &trainer);
    if (!status) status = rcv_trainer_run(trainer, NULL);
    if (!status)
        status = model_alone ? rcv_learner_save(rcv_trainer_learner(trainer), path) : rcv_trainer_save(trainer, path);
    if (status) fprintf(stderr, "%s\n", rcv_message());
    rcv_trainer_free(trainer);
    return !status && fuzz_read(path, input);
}

static bool seed(size_t index, fuzz_input *input) {
    if (index == 0) {
        world.data = open_data("text", verse, RCV_DATA_STREAM);
        world.examples = open_data("lines", numbers, RCV_DATA_CLASSES);
        world.settings = stream_settings();
        if (!world.data || !world.examples ||
            rcv_trainer_new(fuzz_context(), world.settings, world.data, NULL, &world.trainer))
            exit(1);
    }
    if (index > 2) return false;
    rcv_settings *settings = index == 2 ? class_settings() : stream_settings();
    bool good = save_run(settings, index == 2 ? world.examples : world.data, index == 1, input);
    rcv_settings_free(settings);
    if (!good) exit(1);
    return true;
}

/* ---- written again ---- */

static void set_length(fuzz_input *input, uint64_t length) { memcpy(input->bytes, &length, sizeof length); }

static bool read_tensor(const fuzz_input *input, size_t data, const char *name, const json_t *entry,
                        rcv_tensor *tensor) {
    static const struct {
        const char *name;
        rcv_dtype dtype;
    } types[] = {{"F32", RCV_FLOAT32}, {"F64", RCV_FLOAT64}, {"F16", RCV_FLOAT16}, {"BF16", RCV_BFLOAT16},
                 {"I64", RCV_INT64},   {"I32", RCV_INT32},   {"U8", RCV_UINT8},    {"BOOL", RCV_BOOL}};
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
    size_t type = 0, room = input->length - data;
    while (type < 8 && (!dtype || strcmp(types[type].name, dtype) != 0)) type++;
    json_int_t begin = json_integer_value(json_array_get(offsets, 0)),
               end = json_integer_value(json_array_get(offsets, 1));
    if (type == 8 || json_array_size(shape) > RCV_MAX_DIMS || begin < 0 || end < begin || (size_t)end > room)
        return false;
    *tensor = (rcv_tensor){.name = name,
                           .dtype = types[type].dtype,
                           .dims = (int)json_array_size(shape),
                           .data = input->bytes + data + begin,
                           .bytes = (size_t)(end - begin)};
    for (int i = 0; i < tensor->dims; i++) tensor->shape[i] = json_integer_value(json_array_get(shape, (size_t)i));
    return true;
}

/* `length` with the spaces behind the JSON text: the data lie behind these. */
static json_t *read_header(const fuzz_input *input, size_t *length) {
    json_error_t error;
    json_t *header = input->length < 8 ? NULL
                                       : json_loadb((const char *)input->bytes + 8, input->length - 8,
                                                    JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &error);
    *length = header ? (size_t)error.position : 0;
    for (int i = 0; i < 7 && header && 8 + *length < input->length && input->bytes[8 + *length] == ' '; i++) ++*length;
    return header;
}

/* The writer puts in the checksum, whatever it is. */
static void repair(fuzz_input *input) {
    size_t length;
    json_t *header = read_header(input, &length);
    rcv_tensors *tensors = NULL;
    const char *key;
    json_t *value;
    if (!json_is_object(header) || rcv_tensors_new(fuzz_context(), &tensors)) {
        json_decref(header);
        return;
    }
    size_t data = 8 + length;
    set_length(input, length);
    json_object_foreach(json_object_get(header, "__metadata__"), key, value) {
        if (json_is_string(value)) (void)rcv_tensors_set_metadata(tensors, key, json_string_value(value));
    }
    json_object_foreach(header, key, value) {
        rcv_tensor tensor;
        if (read_tensor(input, data, key, value, &tensor)) (void)rcv_tensors_add(tensors, &tensor);
    }
    const char *path = fuzz_path("repaired");
    static fuzz_input written;
    if (rcv_tensors_save(tensors, path) == RCV_OK && fuzz_read(path, &written)) *input = written;
    rcv_tensors_free(tensors);
    json_decref(header);
}

/* ---- edited: a member of the header, or of a text in its metadata that is JSON itself ---- */

static json_t *any_value(const json_t *beside, uint64_t *random) {
    static const char *const texts[] = {
        "null", "true",  "-1",   "0",  "1",  "3",       "4611686018427387904", "9223372036854775807", "0.5",
        "-0.5", "1e300", "\"\"", "[]", "{}", "\"nan\"", "\"0123456789abcdef\""};
    size_t which = fuzz_below(random, sizeof texts / sizeof *texts + 4);
    if (which < sizeof texts / sizeof *texts) return json_loads(texts[which], JSON_DECODE_ANY, NULL);
    return json_deep_copy(beside);
}

static json_t *child_of(json_t *parent, size_t index, const char **key) {
    *key = NULL;
    if (!json_is_object(parent)) return json_array_get(parent, index);
    void *at = json_object_iter(parent);
    for (; index > 0; index--) at = json_object_iter_next(parent, at);
    *key = json_object_iter_key(at);
    return json_object_iter_value(at);
}

/* One member, at any depth, goes or becomes another. */
static void edit_json(json_t *parent, uint64_t *random) {
    const char *key, *other_key;
    size_t count = json_is_object(parent) ? json_object_size(parent) : json_array_size(parent);
    if (count == 0) return;
    size_t index = fuzz_below(random, count);
    const json_t *beside = child_of(parent, fuzz_below(random, count), &other_key);
    json_t *child = child_of(parent, index, &key), *inner = NULL;
    if (json_is_string(child) && (inner = json_loads(json_string_value(child), JSON_REJECT_DUPLICATES, NULL))) {
        edit_json(inner, random); /* a text that is JSON */
        char *text = json_dumps(inner, JSON_COMPACT);
        if (text) json_string_set(child, text);
        free(text);
        json_decref(inner);
    } else if ((json_is_object(child) || json_is_array(child)) && fuzz_below(random, 8)) {
        edit_json(child, random);
    } else if (fuzz_below(random, 3) == 0) {
        (void)(key ? json_object_del(parent, key) : json_array_remove(parent, index));
    } else {
        json_t *value = any_value(beside, random);
        (void)(key ? json_object_set_new(parent, key, value) : json_array_set_new(parent, index, value));
    }
}

static void edit(fuzz_input *input, uint64_t *random) {
    size_t length;
    json_t *header = read_header(input, &length), *metadata = json_object_get(header, "__metadata__");
    if (json_is_object(header)) {
        edit_json(metadata && fuzz_below(random, 4) ? metadata : header, random);
        char *text = json_dumps(header, JSON_COMPACT);
        if (!text) exit(1);
        fuzz_splice(input, 8, length, text, strlen(text));
        set_length(input, strlen(text));
        free(text);
    }
    json_decref(header);
}

/* ---- reading ---- */

static bool check_learner(const char *path) {
    static unsigned taken;
    rcv_learner *learner = NULL, *again = NULL;
    rcv_status status = rcv_learner_load(fuzz_context(), path, NULL, RCV_FLOAT32, &learner);
    if (status) {
        fuzz_check_refusal(status, learner);
        return false;
    }
    if (taken++ % 8 == 0) {
        const char *copy = fuzz_path("copy");
        fuzz_check(rcv_learner_save(learner, copy) == RCV_OK);
        fuzz_check(rcv_learner_load(fuzz_context(), copy, NULL, RCV_FLOAT32, &again) == RCV_OK);
        fuzz_check(rcv_learner_parameter_elements(again) == rcv_learner_parameter_elements(learner));
        fuzz_check(rcv_learner_kind(again) == rcv_learner_kind(learner));
        rcv_learner_free(again);
    }
    rcv_learner_free(learner);
    return true;
}

static void check_state(const rcvi_run_state *s) {
    const int64_t whole[] = {s->step,
                             s->position.epoch,
                             s->position.batch,
                             s->tokens,
                             s->best_step,
                             s->bad_validations,
                             s->clean_updates,
                             s->validations,
                             s->averaged_updates,
                             s->skipped_updates,
                             s->bad_since_decay};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) fuzz_check(whole[i] >= 0 && whole[i] < INT64_MAX / 4);
    fuzz_check(s->plateau_factor >= 0 && s->plateau_factor <= 1 && s->loss_scale > 0 && isfinite(s->loss_scale));
    fuzz_check(s->seconds >= 0 && isfinite(s->seconds));
}

static rcv_trainer *new_trainer(void) {
    rcv_trainer *trainer = NULL;
    fuzz_check(rcv_trainer_new(fuzz_context(), world.settings, world.data, NULL, &trainer) == RCV_OK);
    return trainer;
}

static bool check_resume(const char *path) {
    static unsigned taken;
    const rcvi_run_state before = world.trainer->state;
    rcv_status status = rcv_trainer_resume(world.trainer, path);
    const rcvi_run_state *after = &world.trainer->state;
    if (status) {
        fuzz_check_refusal(status, NULL);
        fuzz_check(memcmp(&before, after, sizeof before) == 0);
        return false;
    }
    check_state(after);
    rcv_trainer *again = new_trainer(); /* the next input meets one that has not begun */
    if (taken++ % 8 == 0) {
        const char *copy = fuzz_path("resumed");
        fuzz_check(rcv_trainer_save(world.trainer, copy) == RCV_OK);
        fuzz_check(rcv_trainer_resume(again, copy) == RCV_OK && again->state.step == after->step);
        rcv_trainer_free(again);
        again = new_trainer();
    }
    rcv_trainer_free(world.trainer);
    world.trainer = again;
    return true;
}

static bool read_checkpoint(const uint8_t *bytes, size_t length) {
    const char *path = fuzz_file(bytes, length);
    rcv_settings *settings = NULL;
    rcv_vocabulary *vocabulary = NULL;
    rcv_status status = rcv_checkpoint_settings(fuzz_context(), path, &settings);
    if (status) fuzz_check_refusal(status, settings);
    rcv_settings_free(settings);
    status = rcv_checkpoint_vocabulary(fuzz_context(), path, &vocabulary);
    if (status) fuzz_check_refusal(status, vocabulary);
    rcv_vocabulary_free(vocabulary);
    bool taken = check_learner(path);
    return check_resume(path) || taken;
}

static void end(void) {
    rcv_trainer_free(world.trainer);
    rcv_settings_free(world.settings);
    rcv_data_free(world.examples);
    rcv_data_free(world.data);
}

static const fuzz_target target = {.name = "checkpoint",
                                   .count = 3000,
                                   .seed = seed,
                                   .pieces = pieces,
                                   .edit = edit,
                                   .repair = repair,
                                   .read = read_checkpoint,
                                   .end = end};
FUZZ_PROGRAM(target)
