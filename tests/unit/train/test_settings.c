/* Settings: the table holds together; values, files and presets are taken whole or refused with a sentence. */
#include "probe.h"
#include "scratch.h"
#include "train/config/settings.h"

#include <ctype.h>
#include <math.h>
#include <unistd.h>

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    rcv_settings *settings;
} fixture;

static void begin(fixture *self) {
    self->context = test_context(&self->allocator);
    check_ok(rcv_settings_new(self->context, &self->settings));
}

static void end(fixture *self) {
    rcv_settings_free(self->settings);
    test_context_end(&self->allocator, self->context);
}

static rcv_status parse(rcv_settings *settings, const char *json) {
    return rcv_settings_parse(settings, json, strlen(json), "run.json");
}

static char *print(const fixture *self, const rcv_settings *settings) {
    char *json;
    check_ok(rcv_settings_print(settings, &json));
    char *copy = strdup(json);
    assert_non_null(copy);
    rcv_text_free(self->context, json);
    return copy;
}

/* ---- the table ---- */

static void check_entry(rcv_settings *settings, const rcv_setting *setting) {
    const char *name = setting->name;
    assert_true(setting->help[0] && !strchr(setting->help, '\n') && strlen(setting->help) <= 60);
    assert_true((setting->value == NULL) == (setting->kind == RCV_SETTING_FLAG));
    assert_true((setting->choices != NULL) == (setting->kind == RCV_SETTING_CHOICE));
    for (const char *at = name; *at; at++) assert_true(islower(*at) || isdigit(*at) || *at == '-');
    assert_false(rcv_settings_given(settings, name));
    assert_string_equal(rcv_settings_get(settings, name), setting->default_value);
    check_ok(rcv_settings_set(settings, name, setting->default_value)); /* and it is written as the table has it */
    assert_string_equal(rcv_settings_get(settings, name), setting->default_value);
    assert_true(rcv_settings_given(settings, name));
}

static void table_holds(void **state) {
    (void)state;
    fixture self;
    begin(&self);
    assert_true(rcv_setting_count() > 60);
    assert_null(rcv_setting_at(rcv_setting_count()));
    for (size_t i = 0; i < rcv_setting_count(); i++) {
        const rcv_setting *setting = rcv_setting_at(i);
        assert_int_equal(rcvi_setting_find(setting->name), i); /* names are different */
        check_entry(self.settings, setting);
        for (size_t j = i + 2; j < rcv_setting_count(); j++) { /* settings of a group are adjacent */
            if (strcmp(rcv_setting_at(j)->group, setting->group) == 0)
                assert_string_equal(rcv_setting_at(j - 1)->group, setting->group);
        }
    }
    end(&self);
}

/* Places of choices are those of the public enumerations. */
static void choices_are_enumerations(void **state) {
    (void)state;
    fixture self;
    begin(&self);
    assert_int_equal(rcvi_settings_choice(self.settings, "level"), RCV_LEVEL_BYTE);
    check_ok(parse(self.settings, "{\"level\": \"word\", \"kind\": \"classes\", \"effort\": \"estimate\"}"));
    assert_int_equal(rcvi_settings_choice(self.settings, "level"), RCV_LEVEL_WORD);
    assert_int_equal(rcvi_settings_choice(self.settings, "kind"), RCV_DATA_CLASSES);
    assert_int_equal(rcvi_settings_choice(self.settings, "effort"), RCV_ESTIMATE);
    assert_true(rcvi_settings_is(self.settings, "optimiser", "adam"));
    assert_false(rcvi_settings_is(self.settings, "optimiser", "sgd"));
    const rcv_setting *dtype = rcv_setting_at(rcvi_setting_find("dtype"));
    for (size_t i = 0; dtype->choices[i]; i++) {
        check_ok(rcv_settings_set(self.settings, "dtype", dtype->choices[i]));
        assert_string_equal(rcv_dtype_name(rcvi_settings_dtype(self.settings)), dtype->choices[i]);
    }
    end(&self);
}

/* ---- values ---- */

static void values(void **state) {
    (void)state;
    static const struct {
        const char *name, *given, *kept;
    } cases[] = {
        {"hidden", "0650", "650"},
        {"hidden", "+7", "7"},
        {"hidden", "16777216", "16777216"},
        {"dropout", "0.50", "0.5"},
        {"dropout", "-0", "0"},
        {"dropout", ".25", "0.25"},
        {"epsilon", "0.00000001", "1e-08"},
        {"clip", "1E20", "1e+20"},
        {"learning-rate", "0.1", "0.1"},
        {"tied", "true", "true"},
        {"shuffle", "false", "false"},
        {"optimiser", "adamw", "adamw"},
        {"data", "", ""},
        {"data", "a \"b\"\\\xc3\xa4", "a \"b\"\\\xc3\xa4"},
        {"seed", "9000000000000000000", "9000000000000000000"},
    };
    fixture self;
    begin(&self);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_ok(rcv_settings_set(self.settings, cases[i].name, cases[i].given));
        assert_string_equal(rcv_settings_get(self.settings, cases[i].name), cases[i].kept);
    }
    assert_int_equal(rcvi_settings_integer(self.settings, "hidden"), 16777216);
    assert_int_equal(rcvi_settings_integer(self.settings, "seed"), 9000000000000000000);
    assert_true(rcvi_settings_real(self.settings, "learning-rate") == 0.1);
    assert_true(rcvi_settings_real(self.settings, "epsilon") == 1e-8);
    assert_true(rcvi_settings_flag(self.settings, "tied"));
    assert_false(rcvi_settings_flag(self.settings, "shuffle"));
    assert_null(rcvi_settings_text(self.settings, "valid"));
    assert_string_equal(rcvi_settings_text(self.settings, "cell"), "lstm");
    assert_null(rcv_settings_get(self.settings, "nothing"));
    assert_false(rcv_settings_given(self.settings, "nothing"));
    end(&self);
}

static void refused_values(void **state) {
    (void)state;
    static const struct {
        const char *name, *given, *fragment;
    } cases[] = {
        {"hiden", "1", "there is no setting 'hiden'; did you mean hidden?"},
        {"learningrate", "1", "did you mean learning-rate?"},
        {"xyzzyxyzzyxyzzy", "1", "there is no setting 'xyzzyxyzzyxyzzy'"},
        {"hidden", "0", "hidden must be a whole number from 1 to 16777216, not '0'"},
        {"hidden", "16777217", "not '16777217'"},
        {"hidden", "1.5", "a whole number"},
        {"hidden", "1 ", "a whole number"},
        {"hidden", " 1", "a whole number"},
        {"hidden", "", "not ''"},
        {"hidden", "99999999999999999999", "a whole number"},
        {"seed", "-1", "from 0"},
        {"dropout", "1", "dropout must be a number from 0 to 0.999, not '1'"},
        {"dropout", "nan", "a number"},
        {"dropout", "0,5", "a number"},
        {"dropout", "0x1p-2", "a number"},
        {"clip", "inf", "clip must be a number of at least 0, not 'inf'"},
        {"clip", "1e999", "a number"},
        {"clip", "-1", "at least 0"},
        {"clip", "", "a number"},
        {"tied", "yes", "tied must be true or false, not 'yes'"},
        {"optimiser", "adm", "optimiser must be sgd, momentum, adam, adamw or asgd, not 'adm'"},
        {"level", "", "level must be word, byte, character or piece, not ''"},
        {"data", "a\xff", "data must be a text in UTF-8"},
    };
    fixture self;
    begin(&self);
    char *before = print(&self, self.settings);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_fails(rcv_settings_set(self.settings, cases[i].name, cases[i].given), RCV_INVALID, cases[i].fragment);
        assert_false(rcv_settings_given(self.settings, cases[i].name));
    }
    check_fails(rcv_settings_set(self.settings, NULL, "1"), RCV_INVALID, "needs");
    check_fails(rcv_settings_set(self.settings, "hidden", NULL), RCV_INVALID, "needs");
    check_fails(rcv_settings_new(self.context, NULL), RCV_INVALID, "needs settings");
    check_fails(rcv_settings_print(self.settings, NULL), RCV_INVALID, "needs json");
    char *after = print(&self, self.settings);
    assert_string_equal(before, after);
    free(before);
    free(after);
    end(&self);
}

/* ---- files ---- */

static void round_trip(void **state) {
    (void)state;
    fixture self;
    begin(&self);
    check_ok(rcv_settings_preset(self.settings, "zaremba-large"));
    check_ok(rcv_settings_set(self.settings, "data", "a \"b\"\\\xc3\xa4"));
    check_ok(rcv_settings_set(self.settings, "weight-decay", "1.2345678901234567e-17"));
    check_ok(rcv_settings_set(self.settings, "seed", "8999999999999999999"));
    check_ok(rcv_settings_set(self.settings, "clip", "1e+25"));
    check_ok(rcv_settings_set(self.settings, "shuffle", "false"));
    char *once = print(&self, self.settings);
    rcv_settings *other, *copy;
    check_ok(rcv_settings_new(self.context, &other));
    check_ok(parse(other, once));
    for (size_t i = 0; i < rcv_setting_count(); i++) {
        const char *name = rcv_setting_at(i)->name;
        assert_string_equal(rcv_settings_get(other, name), rcv_settings_get(self.settings, name));
        assert_true(rcv_settings_given(other, name));
    }
    check_ok(rcv_settings_copy(other, &copy));
    check_ok(rcv_settings_set(other, "hidden", "3")); /* the copy is its own */
    char *twice = print(&self, copy);
    assert_string_equal(once, twice);
    assert_true(rcv_settings_given(copy, "threads"));
    assert_non_null(strstr(once, "    \"hidden\": 1500,\n"));
    assert_non_null(strstr(once, "    \"shuffle\": false,\n"));
    assert_non_null(strstr(once, ",\n\n    \"cell\": \"lstm\",\n")); /* a line between groups */
    free(once);
    free(twice);
    rcv_settings_free(copy);
    rcv_settings_free(other);
    end(&self);
}

static void files(void **state) {
    (void)state;
    fixture self;
    begin(&self);
    FILE *file = fopen(path_in("run.json"), "w");
    assert_non_null(file);
    fputs("{\"hidden\": 77, \"preset\": \"char-lstm\", \"decay-factor\": 1}",
          file); /* the preset is first all the same */
    fclose(file);
    check_ok(rcv_settings_load(self.settings, path_in("run.json")));
    assert_int_equal(rcvi_settings_integer(self.settings, "hidden"), 77);
    assert_int_equal(rcvi_settings_integer(self.settings, "length"), 128);
    assert_true(rcvi_settings_real(self.settings, "decay-factor") == 1);
    assert_false(rcv_settings_given(self.settings, "seed"));
    check_fails(rcv_settings_load(self.settings, path_in("none.json")), RCV_IO, "none.json");
    unlink(path_in("run.json"));
    end(&self);
}

static void refused_files(void **state) {
    (void)state;
    static const struct {
        const char *json, *fragment;
    } cases[] = {
        {"", "run.json:1: not valid JSON"},
        {"{\"hidden\": 5,\n\"layers\": }", "run.json:2: not valid JSON"},
        {"{\"hidden\": 5} x", "not valid JSON"},
        {"{\"hidden\": 5, \"hidden\": 6}", "duplicate"},
        {"{\"data\": \"a\\u0000b\"}", "not valid JSON"},
        {"[]", "run.json: settings are one JSON object"},
        {"{\"hidden\": 5, \"layer\": 6}", "run.json: there is no setting 'layer'; did you mean layers?"},
        {"{\"layer\": {}}", "did you mean layers?"},
        {"{\"hidden\": 5, \"layers\": 0}", "run.json: layers must be a whole number from 1 to 4096, not '0'"},
        {"{\"hidden\": 5, \"layers\": \"2\"}", "layers must be a whole number from 1 to 4096, not \"2\""},
        {"{\"hidden\": 5, \"layers\": 2.0}", "not 2.0"},
        {"{\"hidden\": 5, \"clip\": true}", "not true"},
        {"{\"hidden\": 5, \"clip\": 1e400}", "not valid JSON"},
        {"{\"hidden\": 5, \"tied\": 1}", "tied must be true or false, not 1"},
        {"{\"hidden\": 5, \"tied\": \"true\"}", "not \"true\""},
        {"{\"hidden\": 5, \"data\": null}", "data must be a text in UTF-8 without control characters, not null"},
        {"{\"hidden\": 5, \"log\": \"a\\u001b\"}",
         "log must be a text in UTF-8 without control characters, not 'a\\x1b'"},
        {"{\"hidden\": 5, \"data\": \"a\\u009b\"}", "not 'a\\u{9b}'"},
        {"{\"hidden\": 5, \"level\": [\"word\"]}", "level must be word, byte, character or piece, not [\"word\"]"},
        {"{\"hidden\": 5, \"preset\": 3}", "run.json: preset must be the name of a preset"},
        {"{\"hidden\": 5, \"preset\": \"zaremba-smal\"}", "run.json: there is no preset 'zaremba-smal'; did you mean"},
    };
    fixture self;
    begin(&self);
    char *before = print(&self, self.settings);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_fails(parse(self.settings, cases[i].json), RCV_FORMAT, cases[i].fragment);
        assert_false(rcv_settings_given(self.settings, "hidden"));
    }
    char *after = print(&self, self.settings);
    assert_string_equal(before, after);
    free(before);
    free(after);
    end(&self);
}

/* ---- presets ---- */

static void check_values(const rcv_settings *settings, const char *const (*pairs)[2]) {
    for (; (*pairs)[0]; pairs++) {
        assert_string_equal(rcv_settings_get(settings, (*pairs)[0]), (*pairs)[1]);
        assert_true(rcv_settings_given(settings, (*pairs)[0]));
    }
}

static void presets(void **state) {
    (void)state;
    static const char *const large[][2] = {{"hidden", "1500"},  {"embedding", "1500"},      {"length", "35"},
                                           {"dropout", "0.65"}, {"dropout-output", "0.65"}, {"init", "0.04"},
                                           {"clip", "10"},      {"decay-after", "14"},      {"loss", "sequence"},
                                           {"epochs", "55"},    {"optimiser", "sgd"},       {NULL, NULL}};
    static const char *const awd[][2] = {{"hidden", "1150"},
                                         {"layers", "3"},
                                         {"optimiser", "asgd"},
                                         {"variational", "true"},
                                         {"weight-drop", "0.5"},
                                         {"weight-decay", "1.2e-06"},
                                         {NULL, NULL}};
    fixture self;
    begin(&self);
    assert_int_equal(rcv_preset_count(), 5);
    assert_null(rcv_preset_name(5));
    assert_null(rcv_preset_summary(5));
    for (size_t i = 0; i < rcv_preset_count(); i++) {
        check_ok(rcv_settings_preset(self.settings, rcv_preset_name(i)));
        assert_true(strlen(rcv_preset_summary(i)) > 10);
    }
    check_ok(rcv_settings_set(self.settings, "seed", "5"));
    check_ok(rcv_settings_preset(self.settings, "zaremba-large"));
    check_values(self.settings, large);
    assert_true(rcvi_settings_real(self.settings, "decay-factor") == 1 / 1.15);
    assert_string_equal(rcv_settings_get(self.settings, "seed"), "5"); /* the preset does not set it */
    check_ok(rcv_settings_preset(self.settings, "awd-lstm"));
    check_values(self.settings, awd);
    check_fails(rcv_settings_preset(self.settings, "awdlstm"), RCV_INVALID, "did you mean awd-lstm?");
    check_fails(rcv_settings_preset(self.settings, "q"), RCV_INVALID, "zaremba-small, zaremba-medium, zaremba-large");
    check_fails(rcv_settings_preset(self.settings, NULL), RCV_INVALID, "needs");
    check_values(self.settings, awd);
    end(&self);
}

/* ---- failures ---- */

/* Everything once; a failure in the middle leaves the settings as they were. */
static rcv_status everything(rcv_context *context) {
    rcv_settings *settings = NULL, *copy = NULL;
    char *json = NULL;
    rcv_status status = rcv_settings_new(context, &settings);
    if (status == RCV_OK) {
        status = parse(settings, "{\"preset\": \"awd-lstm\", \"clip\": 0.75, \"layers\": 4, \"data\": \"x\"}");
        if (status != RCV_OK) {
            assert_string_equal(rcv_settings_get(settings, "clip"), "1");
            assert_string_equal(rcv_settings_get(settings, "layers"), "1");
            assert_false(rcv_settings_given(settings, "optimiser"));
        }
    }
    if (status == RCV_OK) {
        status = rcv_settings_preset(settings, "char-lstm");
        if (status != RCV_OK) assert_string_equal(rcv_settings_get(settings, "level"), "word");
    }
    if (status == RCV_OK) {
        status = rcv_settings_set(settings, "hidden", "3");
        assert_string_equal(rcv_settings_get(settings, "hidden"), status == RCV_OK ? "3" : "512");
    }
    if (status == RCV_OK) status = rcv_settings_copy(settings, &copy);
    if (status == RCV_OK) status = rcv_settings_print(copy, &json);
    rcv_text_free(context, json);
    rcv_settings_free(copy);
    rcv_settings_free(settings);
    return status;
}

static void memory_fails(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    const size_t before = allocator.calls;
    check_ok(everything(context));
    const size_t calls = allocator.calls - before;
    assert_true(calls > 50);
    for (size_t i = 1; i <= calls; i++) {
        allocator.fail_at = i;
        check_fails(everything(context), RCV_NO_MEMORY, "no memory");
        assert_int_equal(allocator.failed, i);
        assert_int_equal(allocator.live, 1); /* the context */
    }
    test_context_end(&allocator, context);
}

/* ---- damaged files ---- */

/* One to three bytes changed, dropped, or copied from elsewhere in the text. */
static size_t damage(random_source *source, char *text, size_t length) {
    for (int n = 1 + random_below(source, 3); n > 0 && length > 1; n--) {
        const size_t at = (size_t)random_below(source, (int)length), from = (size_t)random_below(source, (int)length);
        switch (random_below(source, 4)) {
        case 0: text[at] = (char)random_bits(source); break;
        case 1: text[at] = "{}[]\",:0123456789.-eE\\ tfn"[random_below(source, 26)]; break;
        case 2:
            memmove(text + at, text + at + 1, length - at - 1);
            length--;
            break;
        default: text[at] = text[from];
        }
    }
    return length;
}

/* Each is taken whole, and printed and read again the same, or refused whole. */
static void damaged_files(void **state) {
    (void)state;
    static const char seed[] =
        "{\"preset\": \"awd-lstm\", \"data\": \"a\\\\\\u00e4\", \"hidden\": 650, \"tied\": true,\n"
        " \"clip\": 2.5e-1, \"level\": \"word\", \"seed\": 12345678901234, \"dropout\": 0.5}";
    fixture self;
    begin(&self);
    char *before = print(&self, self.settings);
    random_source source = {11};
    size_t taken = 0, refused = 0;
    for (int i = 0; i < 4000; i++) {
        char text[sizeof seed], *exact;
        memcpy(text, seed, sizeof seed);
        const size_t length = damage(&source, text, sizeof seed - 1);
        assert_non_null(exact = malloc(length)); /* a read past its end is an error of the sanitizer */
        memcpy(exact, text, length);
        rcv_settings *draft, *again;
        check_ok(rcv_settings_new(self.context, &draft));
        const rcv_status status = rcv_settings_parse(draft, exact, length, "run.json");
        char *once = print(&self, draft);
        if (status == RCV_OK) {
            check_ok(rcv_settings_new(self.context, &again));
            check_ok(parse(again, once));
            char *twice = print(&self, again);
            assert_string_equal(once, twice);
            free(twice);
            rcv_settings_free(again);
            taken++;
        } else {
            assert_int_equal(status, RCV_FORMAT);
            assert_string_equal(once, before);
            assert_non_null(strstr(rcv_message(), "run.json"));
            refused++;
        }
        free(once);
        free(exact);
        rcv_settings_free(draft);
    }
    assert_true(taken > 100 && refused > 100);
    free(before);
    end(&self);
}

int main(void) {
    if (!scratch_begin()) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_holds),   cmocka_unit_test(choices_are_enumerations),
        cmocka_unit_test(values),        cmocka_unit_test(refused_values),
        cmocka_unit_test(round_trip),    cmocka_unit_test(files),
        cmocka_unit_test(refused_files), cmocka_unit_test(presets),
        cmocka_unit_test(memory_fails),  cmocka_unit_test(damaged_files),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return !scratch_end() || failed != 0;
}
