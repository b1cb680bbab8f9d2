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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),       cmocka_unit_test(test_choices),  cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_frequencies), cmocka_unit_test(test_refusals), cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_classes),     cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
