/* Learners: text as it is drawn and written, evaluation, files. */
#include "scratch.h"
#include "train_fixture.h"

#include <math.h>
#include <unistd.h>

typedef struct {
    char text[4096];
    size_t length, calls, stop_at; /* of the calls; 0: never */
} collector;

static bool collect(void *user, const char *text, size_t length) {
    collector *c = user;
    if (c->stop_at && c->calls == c->stop_at) return false;
    c->calls++;
    assert_true(c->length + length < sizeof c->text);
    memcpy(c->text + c->length, text, length);
    c->length += length;
    return true;
}

static void generate(rcv_learner *l, rcv_generation o, collector *c) {
    *c = (collector){0};
    if (o.prompt) o.prompt_bytes = strlen(o.prompt);
    check_ok(rcv_learner_generate(l, &o, collect, c));
    c->text[c->length] = '\0';
}

/* A learner that has learnt the verse by heart, of words or of bytes. */
static rcv_trainer *learnt(train_fixture *s, const char *more) {
    train_fixture_open(s);
    const rcv_data *data =
        train_fixture_data(s, "train", RCV_DATA_STREAM, "the cat sat\non a big mat\nand saw it\n", NULL);
    rcv_trainer *t =
        train_fixture_trainer(s, "batch=1 length=11 learning-rate=0.03 hidden=20 steps=150", more, data, NULL);
    check_ok(rcv_trainer_run(t, NULL));
    return t;
}

static void end(train_fixture *s, rcv_trainer *t) {
    rcv_trainer_free(t);
    train_fixture_close(s);
}

static void test_words(void **unused) {
    (void)unused;
    static const char *const types[] = {"dtype=float32", "dtype=float64"};
    for (size_t i = 0; i < 2; i++) {
        train_fixture s;
        collector c, d;
        rcv_trainer *t = learnt(&s, types[i]);
        rcv_learner *l = t->learner;
        generate(l, RCV_INIT(rcv_generation, .prompt = "the cat", .count = 10), &c);
        assert_string_equal(c.text, " sat\non a big mat\nand saw it"); /* a space before a word that goes on a line */
        generate(l, RCV_INIT(rcv_generation, .prompt = "the cat sat\n", .count = 5), &c);
        assert_string_equal(c.text, "on a big mat\n");
        generate(l, RCV_INIT(rcv_generation, .prompt = "  the\tcat   sat\n", .count = 5), &d);
        assert_string_equal(c.text, d.text);
        generate(l, RCV_INIT(rcv_generation, .prompt = "the cat", .count = 0), &c);
        assert_int_equal(c.length, 0);
        generate(l, RCV_INIT(rcv_generation, .count = 3), &c); /* without a prompt a line begins */
        assert_true(c.length > 0 && c.text[0] != ' ');
        end(&s, t);
    }
}

static void test_choices(void **unused) {
    (void)unused;
    train_fixture s;
    collector likeliest, c, d;
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *t = train_fixture_trainer(&s, "batch=2 length=5 init=0.8", "", data, NULL);
    rcv_learner *l = t->learner;
    generate(l, RCV_INIT(rcv_generation, .prompt = "the", .count = 60), &likeliest);
    generate(l, RCV_INIT(rcv_generation, .prompt = "the", .count = 60, .seed = 7), &c);
    assert_string_equal(likeliest.text, c.text);
    generate(l, RCV_INIT(rcv_generation, .prompt = "the", .count = 60, .temperature = 1.5, .top_k = 1, .seed = 7), &c);
    assert_string_equal(likeliest.text, c.text);
    generate(l, RCV_INIT(rcv_generation, .prompt = "the", .count = 60, .temperature = 1.5, .top_p = 1e-9, .seed = 7),
             &c);
    assert_string_equal(likeliest.text, c.text);
    generate(l, RCV_INIT(rcv_generation, .prompt = "the", .count = 60, .temperature = 1, .seed = 7), &c);
    assert_true(strcmp(likeliest.text, c.text) != 0);
    generate(l, RCV_INIT(rcv_generation, .prompt = "the", .count = 60, .temperature = 1, .seed = 7), &d);
    assert_string_equal(c.text, d.text);
    generate(
        l,
        RCV_INIT(rcv_generation, .prompt = "the", .count = 60, .temperature = 1, .top_k = 1000, .top_p = 1, .seed = 8),
        &d);
    assert_true(strcmp(c.text, d.text) != 0);
    /* A word that it does not know is <unk>, and no line's end. */
    generate(l, RCV_INIT(rcv_generation, .prompt = "zebra", .count = 60, .temperature = 1), &c);
    generate(l, RCV_INIT(rcv_generation, .prompt = "<unk>", .count = 60, .temperature = 1), &d);
    assert_string_equal(c.text, d.text);
    generate(l, RCV_INIT(rcv_generation, .prompt = "<eos>", .count = 60, .temperature = 1), &d);
    assert_true(strcmp(c.text, d.text) != 0);
    c = (collector){.stop_at = 5};
    check_fails(rcv_learner_generate(l, &RCV_INIT(rcv_generation, .count = 60, .temperature = 1), collect, &c),
                RCV_STOPPED, "tokens");
    end(&s, t);
}

/* The draw follows softmax(logits / temperature) of what top_k and top_p leave: a model whose output layer is its bias alone. */
static void test_frequencies(void **unused) {
    (void)unused;
    const struct {
        double temperature, top_p, first, second; /* of what is left: the likeliest, the next */
        int64_t top_k;
    } cases[] = {
        {1, 0, 0.5, 0.3, 0},       {0.5, 0, 25. / 38, 9. / 38, 0}, {1, 0, 0.625, 0.375, 2},
        {1, 0.7, 0.625, 0.375, 0}, {1, 0.9, 0.5, 0.3, 0},
    };
    train_fixture s;
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, "p p p q q r\n", NULL);
    rcv_trainer *t = train_fixture_trainer(&s, "batch=1 length=3", "", data, NULL);
    rcv_learner *l = t->learner;
    float *values = l->parameters;
    for (int64_t i = l->weight_offset; i < l->elements; i++) values[i] = i < l->bias_offset ? 0 : -1000;
    static const char *const words[] = {"p", "q", "r"};
    const double probabilities[] = {0.5, 0.3, 0.2};
    for (int i = 0; i < 3; i++)
        values[l->bias_offset + rcv_vocabulary_find(l->vocabulary, words[i], 1)] = (float)log(probabilities[i]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double seen[3] = {0};
        for (uint64_t seed = 0; seed < 10; seed++) {
            collector c;
            generate(l,
                     RCV_INIT(rcv_generation, .count = 400, .temperature = cases[i].temperature,
                              .top_k = cases[i].top_k, .top_p = cases[i].top_p, .seed = seed),
                     &c);
            for (size_t k = 0; k < c.length; k++)
                if (c.text[k] != ' ') seen[c.text[k] - 'p']++;
        }
        assert_true(seen[0] + seen[1] + seen[2] == 4000);
        assert_true(fabs(seen[0] / 4000 - cases[i].first) < 0.03 && fabs(seen[1] / 4000 - cases[i].second) < 0.03);
        if (cases[i].first + cases[i].second == 1) assert_true(seen[2] == 0);
    }
    values[l->bias_offset] = NAN;
    collector c = {0};
    for (int64_t i = 0; i < l->shape.outputs; i++) values[l->bias_offset + i] = NAN;
    check_fails(rcv_learner_generate(l, &RCV_INIT(rcv_generation, .count = 5, .temperature = 1), collect, &c),
                RCV_INVALID, "finite");
    end(&s, t);
}

static void test_refusals(void **unused) {
    (void)unused;
    rcv_generation wrong[] = {{.count = 1, .temperature = -1},
                              {.count = 1, .temperature = NAN},
                              {.count = 1, .temperature = INFINITY},
                              {.count = -1},
                              {.count = 1, .top_k = -1},
                              {.count = 1, .top_p = 1.5},
                              {.count = 1, .top_p = NAN},
                              {.count = 1, .prompt_bytes = 3}};
    train_fixture s;
    collector c = {0};
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    const rcv_data *classes = train_fixture_data(&s, "classes", RCV_DATA_CLASSES, train_fixture_examples, NULL);
    rcv_trainer *t = train_fixture_trainer(&s, "batch=2 length=5", "", data, NULL);
    rcv_trainer *other = train_fixture_trainer(&s, "kind=classes batch=2", "", classes, NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wrong[i].size = sizeof wrong[i];
        check_fails(rcv_learner_generate(t->learner, &wrong[i], collect, &c), RCV_INVALID, "");
    }
    check_fails(rcv_learner_generate(other->learner, &RCV_INIT(rcv_generation, .count = 1), collect, &c), RCV_INVALID,
                "classes");
    assert_int_equal(c.calls, 0);
    rcv_evaluation result = RCV_INIT(rcv_evaluation);
    check_fails(rcv_learner_evaluate(t->learner, classes, NULL, &result), RCV_INVALID, "kind");
    rcv_trainer_free(other);
    end(&s, t);
}

/* ---- evaluation ---- */

/* The likeliest token after all tokens so far, of rcv_learner_predict: words of the prompt count, not the last one alone. */
static void test_prompt(void **unused) {
    (void)unused;
    enum { COUNT = 25 };
    train_fixture s;
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *t = train_fixture_trainer(&s, "batch=2 length=5 hidden=24 init=1 dtype=float64", "", data, NULL);
    const rcv_vocabulary *words = rcv_learner_vocabulary(t->learner);
    int64_t tokens[4 + COUNT];
    static const char *const begin[4] = {"<eos>", "the", "cat", "the"};
    double logits[64];
    char want[1024] = "";
    collector c;
    for (int i = 0; i < 4; i++) tokens[i] = rcv_vocabulary_find(words, begin[i], strlen(begin[i]));
    assert_true(rcv_vocabulary_size(words) <= 64);
    for (int i = 4; i < 4 + COUNT; i++) {
        check_ok(rcv_learner_predict(t->learner, &RCV_INIT(rcv_prediction, .steps = i, .batch = 1, .tokens = tokens,
                                                           .last = true, .out = logits)));
        tokens[i] = 0;
        for (int64_t w = 1; w < rcv_vocabulary_size(words); w++)
            tokens[i] = logits[w] > logits[tokens[i]] ? w : tokens[i];
        size_t length = 0;
        const char *word = rcv_vocabulary_token(words, tokens[i], &length);
        bool ends = tokens[i] == tokens[0];
        if (!ends && tokens[i - 1] != tokens[0]) strcat(want, " ");
        strncat(want, ends ? "\n" : word, ends ? 1 : length);
    }
    generate(t->learner, RCV_INIT(rcv_generation, .prompt = "the cat the", .count = COUNT), &c);
    assert_string_equal(c.text, want);
    generate(t->learner, RCV_INIT(rcv_generation, .prompt = "the", .count = COUNT), &c);
    assert_string_not_equal(c.text, want);
    end(&s, t);
}

/* However the text is cut into windows, and lines into batches. */
static void test_evaluation(void **unused) {
    (void)unused;
    train_fixture s;
    train_fixture_open(&s);
    char text[4000] = "";
    for (int i = 0; i < 6; i++) strcat(text, train_fixture_verse);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, text, NULL); /* more than one window */
    const rcv_data *lines = train_fixture_data(&s, "lines", RCV_DATA_LINES, text, data);
    const rcv_data *few = train_fixture_data(&s, "few", RCV_DATA_STREAM, "the\n", data);
    rcv_trainer *t = train_fixture_trainer(&s, "batch=2 length=5 dtype=float64", "", data, NULL);
    rcv_trainer *u = train_fixture_trainer(&s, "batch=2 length=5 dtype=float64 kind=lines", "", lines, NULL);
    rcv_evaluation one = RCV_INIT(rcv_evaluation), many = RCV_INIT(rcv_evaluation);
    check_ok(rcv_learner_evaluate(t->learner, data, NULL, &one));
    assert_int_equal(one.counted, rcv_data_tokens(data) - 1);
    assert_true(rcv_data_tokens(data) > 256);
    check_ok(rcv_learner_evaluate(t->learner, data, &RCV_INIT(rcv_evaluation_options, .batch = 7), &many));
    assert_int_equal(many.counted, one.counted);
    assert_true(many.loss != one.loss && fabs(many.loss - one.loss) < 0.05 * one.loss);
    check_ok(rcv_learner_evaluate(t->learner, few, NULL, &one));
    assert_int_equal(one.counted, 1);
    check_ok(rcv_learner_evaluate(u->learner, lines, NULL, &one));
    for (int64_t batch = 2; batch < 60; batch += 19) {
        check_ok(rcv_learner_evaluate(u->learner, lines, &RCV_INIT(rcv_evaluation_options, .batch = batch), &many));
        assert_true(many.counted == one.counted && fabs(many.loss - one.loss) < 1e-13);
    }
    assert_int_equal(one.counted, rcv_data_tokens(lines));
    rcv_trainer_free(u);
    end(&s, t);
}

static bool never(void *user) {
    (void)user;
    return false;
}

static void test_classes(void **unused) {
    (void)unused;
    train_fixture s;
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_CLASSES, train_fixture_examples, NULL);
    rcv_trainer *t =
        train_fixture_trainer(&s, "kind=classes batch=3 learning-rate=0.05 hidden=8 steps=150", "", data, NULL);
    rcv_evaluation before = RCV_INIT(rcv_evaluation), after = RCV_INIT(rcv_evaluation);
    check_ok(rcv_learner_evaluate(t->learner, data, &RCV_INIT(rcv_evaluation_options, .batch = 4), &before));
    check_ok(rcv_trainer_run(t, NULL));
    check_ok(rcv_learner_evaluate(t->learner, data, &RCV_INIT(rcv_evaluation_options, .batch = 4), &after));
    assert_true(before.counted == 6 && before.accuracy < 1 && before.loss > 0.9);
    assert_true(after.counted == 6 && after.accuracy == 1 && after.loss < 0.1);
    check_fails(rcv_learner_evaluate(t->learner, data, &RCV_INIT(rcv_evaluation_options, .go_on = never), &after),
                RCV_STOPPED, "");
    end(&s, t);
}

/* ---- files ---- */

static void test_files(void **unused) {
    (void)unused;
    for (rcv_data_kind kind = RCV_DATA_STREAM; kind <= RCV_DATA_STEP_VALUES; kind++) {
        train_fixture s;
        train_fixture_open(&s);
        const rcv_data *data = train_fixture_data(&s, "train", kind, train_fixture_text(kind), NULL);
        rcv_trainer *t =
            train_fixture_trainer(&s, train_fixture_kind(kind), "batch=2 length=5 layers=2 steps=2", data, NULL);
        check_ok(rcv_trainer_run(t, NULL));
        rcv_learner *l = t->learner, *loaded;
        check_ok(rcv_learner_save(l, path_in("model")));
        check_ok(rcv_learner_load(s.context, path_in("model"), NULL, RCV_FLOAT32, &loaded));
        assert_int_equal(rcv_learner_kind(loaded), kind);
        assert_int_equal(rcv_learner_parameter_elements(loaded), rcv_learner_parameter_elements(l));
        assert_memory_equal(loaded->parameters, l->parameters, (size_t)l->elements * sizeof(float));
        size_t count, same;
        const char *const *names = rcv_learner_classes(loaded, &count), *const *own = rcv_learner_classes(l, &same);
        assert_true(count == same && (names != NULL) == rcvi_kind_has_classes(kind));
        for (size_t i = 0; i < count; i++) assert_string_equal(names[i], own[i]);
        rcv_evaluation a = RCV_INIT(rcv_evaluation), b = RCV_INIT(rcv_evaluation);
        check_ok(rcv_learner_evaluate(l, data, NULL, &a));
        check_ok(rcv_learner_evaluate(loaded, data, NULL, &b));
        assert_true(a.loss == b.loss);
        rcv_settings *settings;
        check_fails(rcv_checkpoint_settings(s.context, path_in("model"), &settings), RCV_FORMAT, "no settings");
        rcv_learner_free(loaded);
        unlink(path_in("model"));
        end(&s, t);
    }
}

/* Copies a file's tensors and metadata, without recurve.vocabulary and recurve.classes. */
static rcv_tensors *copy_without_names(const train_fixture *s, const rcv_tensors *from) {
    static const char *const keys[] = {"recurve.format", "recurve.cell", "recurve.network", "recurve.learner"};
    rcv_tensors *copy;
    check_ok(rcv_tensors_new(s->context, &copy));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        check_ok(rcv_tensors_set_metadata(copy, keys[i], rcv_tensors_metadata(from, keys[i])));
    for (size_t i = 0; i < rcv_tensors_count(from); i++) check_ok(rcv_tensors_add(copy, rcv_tensors_at(from, i)));
    return copy;
}

static void add_bytes(rcv_tensors *tensors, const char *name, const char *text) {
    const rcv_tensor tensor = {name, RCV_UINT8, 1, {(int64_t)strlen(text)}, text, strlen(text)};
    check_ok(rcv_tensors_add(tensors, &tensor));
}

static void check_same_words(const rcv_vocabulary *a, const rcv_vocabulary *b) {
    assert_int_equal(rcv_vocabulary_size(a), rcv_vocabulary_size(b));
    for (int64_t i = 0; i < rcv_vocabulary_size(a); i++) {
        size_t length, same;
        const char *word = rcv_vocabulary_token(a, i, &length), *other = rcv_vocabulary_token(b, i, &same);
        assert_int_equal(length, same);
        assert_memory_equal(word, other, length);
    }
}

/* The file has the tensors of the module and no others, whatever bytes the words have; a file of an earlier version, with the words as a tensor,
 * is the same model. */
static void test_words_in_file(void **unused) {
    (void)unused;
    static const char *const wanted[] = {"embedding.weight", "rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_ih_l0",
                                         "rnn.bias_hh_l0",   "decoder.weight",   "decoder.bias"};
    train_fixture s;
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(
        &s, "train", RCV_DATA_STREAM,
        "\"quoted\" back\\slash \xc3\xbcmlaut a\x01z a [1,2] {\"x\":1}\nthe end of it is \\u0041 \x7f\n", NULL);
    rcv_trainer *t = train_fixture_trainer(&s, "batch=1 length=5 layers=1 steps=2 cell=lstm", "", data, NULL);
    check_ok(rcv_trainer_run(t, NULL));
    rcv_learner *l = t->learner, *loaded;
    check_ok(rcv_learner_save(l, path_in("model")));
    rcv_tensors *file;
    check_ok(rcv_tensors_load(s.context, path_in("model"), &file));
    assert_int_equal(rcv_tensors_count(file), sizeof wanted / sizeof *wanted);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) assert_non_null(rcv_tensors_find(file, wanted[i]));
    const char *metadata = rcv_tensors_metadata(file, "recurve.vocabulary");
    static const char *const parts[] = {"{\"level\":\"word\",\"tokens\":[", "\"\\\"quoted\\\"\"", "\"back\\\\slash\"",
                                        "\"\xc3\xbcmlaut\"", "\"a\\u0001z\""};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!strstr(metadata, parts[i])) fail_msg("no %s in %s", parts[i], metadata);
    }
    check_ok(rcv_learner_load(s.context, path_in("model"), NULL, RCV_FLOAT32, &loaded));
    check_same_words(rcv_learner_vocabulary(loaded), rcv_learner_vocabulary(l));
    rcv_learner_free(loaded);
    rcv_tensors *earlier = copy_without_names(&s, file);
    char *words;
    check_ok(rcv_vocabulary_print(rcv_learner_vocabulary(l), &words));
    add_bytes(earlier, "vocabulary", words);
    check_ok(rcv_tensors_save(earlier, path_in("model")));
    check_ok(rcv_learner_load(s.context, path_in("model"), NULL, RCV_FLOAT32, &loaded));
    check_same_words(rcv_learner_vocabulary(loaded), rcv_learner_vocabulary(l));
    check_ok(rcvi_learner_check_same(l, earlier, "earlier"));
    rcv_text_free(s.context, words);
    rcv_learner_free(loaded);
    rcv_tensors_free(earlier);
    rcv_tensors_free(file);
    unlink(path_in("model"));
    end(&s, t);
}

static void test_wrong_names(void **unused) {
    (void)unused;
    static const struct {
        const char *key, *value, *fragment;
    } wrong[] = {
        {"recurve.classes", "", "recurve.classes is not JSON"},
        {"recurve.classes", "{}", "must be a list of names"},
        {"recurve.classes", "[\"a\", \"b\"]", "2 names of classes for 3"},
        {"recurve.classes", "[\"a\", \"b\", 3]", "name 2 of recurve.classes"},
        {"recurve.classes", "[\"a\", \"\", \"c\"]", "name 1 of recurve.classes"},
        {"recurve.classes", "[\"a\\nb\", \"c\"]", "name 0 of recurve.classes"},
        {"recurve.classes", "[\"a\", [98, 256], \"c\"]", "name 1 of recurve.classes"},
        {"recurve.classes", "[\"a\", [98, 10], \"c\"]", "name 1 of recurve.classes"},
        {"recurve.classes", "[\"a\", [], \"c\"]", "name 1 of recurve.classes"},
        {"recurve.classes", "[[97, 0, 98], \"b\", \"c\"]", "name 0 of recurve.classes"},
        {"recurve.vocabulary", "[\"a\"]", "an object with level"},
        {"recurve.vocabulary", "{\"level\": \"word\"}", "an object with level"},
        {"recurve.vocabulary", "{\"level\": \"words\", \"tokens\": [\"a\"]}", "an object with level"},
        {"recurve.vocabulary", "{\"level\": \"word\", \"text\": \"a\"}", "an object with level"},
        {"recurve.vocabulary", "{\"level\": \"piece\", \"tokens\": [\"a\"]}", "an object with level"},
        {"recurve.vocabulary", "{\"level\": \"byte\", \"tokens\": [\"a\"]}", "an object with level"},
        {"recurve.vocabulary", "{\"level\": \"word\", \"tokens\": [\"a\"]}", "the vocabulary has 1 tokens"},
        {"recurve.vocabulary", "{\"level\": \"word\", \"tokens\": [\"a b\"]}", "several words"},
    };
    train_fixture s;
    train_fixture_open(&s);
    const char *const texts[] = {
        "{\"text\": \"a b\", \"y\": \"x\"}\n{\"text\": \"b c\", \"y\": \"y\"}\n{\"text\": \"c\", \"y\": \"z\"}\n"};
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_CLASSES, texts[0], NULL);
    rcv_trainer *t = train_fixture_trainer(&s, "kind=classes batch=2 hidden=4 steps=1", "", data, NULL);
    check_ok(rcv_trainer_run(t, NULL));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        rcv_learner *loaded = t->learner;
        rcv_tensors *file;
        check_ok(rcv_learner_save(t->learner, path_in("model")));
        check_ok(rcv_tensors_load(s.context, path_in("model"), &file));
        check_ok(rcv_tensors_set_metadata(file, wrong[i].key, wrong[i].value));
        check_ok(rcv_tensors_save(file, path_in("model")));
        check_fails(rcv_learner_load(s.context, path_in("model"), NULL, RCV_FLOAT32, &loaded), RCV_FORMAT,
                    wrong[i].fragment);
        assert_null(loaded);
        rcv_tensors_free(file);
    }
    /* A name that is not UTF-8 is a list of bytes. */
    rcv_tensors *file;
    rcv_learner *loaded;
    size_t count;
    check_ok(rcv_learner_save(t->learner, path_in("model")));
    check_ok(rcv_tensors_load(s.context, path_in("model"), &file));
    check_ok(rcv_tensors_set_metadata(file, "recurve.classes", "[[97, 255], \"b\", \"c\"]"));
    check_ok(rcv_tensors_save(file, path_in("model")));
    check_ok(rcv_learner_load(s.context, path_in("model"), NULL, RCV_FLOAT32, &loaded));
    assert_string_equal(rcv_learner_classes(loaded, &count)[0], "a\xff");
    rcv_tensors_free(file);
    check_ok(rcv_learner_save(loaded, path_in("model")));
    check_ok(rcv_tensors_load(s.context, path_in("model"), &file));
    assert_string_equal(rcv_tensors_metadata(file, "recurve.classes"), "[[97,255],\"b\",\"c\"]");
    rcv_tensors_free(file);
    rcv_learner_free(loaded);
    unlink(path_in("model"));
    end(&s, t);
}

/* Words that the header of a file could not hold are a tensor. */
static void test_many_words(void **unused) {
    (void)unused;
    enum { WORDS = 70000, LENGTH = 180 };
    char *text = malloc((size_t)WORDS * (LENGTH + 1) + 1), *at = text;
    assert_non_null(text);
    for (int i = 0; i < WORDS; i++) {
        for (int k = 0; k < LENGTH; k += 3) memcpy(at + k, "\xe4\xb8\x80", 3);
        for (int k = 0, rest = i; k < 6; k++, rest /= 10) at[k] = (char)('0' + rest % 10);
        at = text + (size_t)(i + 1) * (LENGTH + 1);
        at[-1] = i % 100 ? ' ' : '\n';
    }
    *at = '\0';
    train_fixture s;
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, text, NULL);
    rcv_trainer *t = train_fixture_trainer(&s, "batch=1 length=5 hidden=1 embedding=1 steps=0", "", data, NULL);
    rcv_tensors *file;
    rcv_learner *loaded;
    check_ok(rcv_learner_save(t->learner, path_in("model")));
    check_ok(rcv_tensors_load(s.context, path_in("model"), &file));
    assert_non_null(rcv_tensors_find(file, "vocabulary"));
    assert_null(rcv_tensors_metadata(file, "recurve.vocabulary"));
    check_ok(rcv_learner_load(s.context, path_in("model"), NULL, RCV_FLOAT32, &loaded));
    check_same_words(rcv_learner_vocabulary(loaded), rcv_learner_vocabulary(t->learner));
    rcv_learner_free(loaded);
    rcv_tensors_free(file);
    unlink(path_in("model"));
    free(text);
    end(&s, t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),       cmocka_unit_test(test_choices),    cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_frequencies), cmocka_unit_test(test_refusals),   cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_classes),     cmocka_unit_test(test_files),      cmocka_unit_test(test_words_in_file),
        cmocka_unit_test(test_wrong_names), cmocka_unit_test(test_many_words),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
