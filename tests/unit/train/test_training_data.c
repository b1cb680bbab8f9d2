/* The data of a run as its settings say: what is recognised, parts of a file, and validation data that is read as the training data was. */
#define _XOPEN_SOURCE 700

#include "test.h"

#include "data/data.h"
#include "scratch.h"

#include <unistd.h>

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    rcv_settings *settings;
    rcv_data *data[RCV_DATA_PARTS];
    char *sentence;
    char train[512], valid[512];
} fixture;

static void begin(fixture *f) {
    *f = (fixture){0};
    f->context = test_context(&f->allocator);
    check_ok(rcv_settings_new(f->context, &f->settings));
    snprintf(f->train, sizeof f->train, "%s", path_in("train.csv"));
    snprintf(f->valid, sizeof f->valid, "%s", path_in("valid.csv"));
}

static void close_data(fixture *f) {
    for (int part = 0; part < RCV_DATA_PARTS; part++) rcv_data_free(f->data[part]);
    memset(f->data, 0, sizeof f->data);
    rcv_text_free(f->context, f->sentence);
    f->sentence = NULL;
}

static void end(fixture *f) {
    const char *const paths[] = {f->train, f->valid};
    close_data(f);
    for (int i = 0; i < 2; i++) {
        char cache[560];
        snprintf(cache, sizeof cache, "%s.recurve-tokens", paths[i]);
        unlink(paths[i]);
        unlink(cache);
    }
    rcv_settings_free(f->settings);
    test_context_end(&f->allocator, f->context);
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void set(fixture *f, const char *name, const char *value) {
    check_ok(rcv_settings_set(f->settings, name, value));
}

static rcv_status open_files(fixture *f, const char *valid) {
    const rcv_training_files files = RCV_INIT(rcv_training_files, .paths = {f->train, valid, NULL});
    close_data(f);
    return rcv_training_data_open(f->context, f->settings, &files, f->data, &f->sentence);
}

/* A column that is text in the training data is no feature of validation data where it has numbers, whatever names settings give. */
static void test_like_training(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    write_text(f.train, "note,a,label\nred,1,x\nblue,2,y\n");
    write_text(f.valid, "label,note,a\ny,7,3\n");
    for (int given = 0; given < 2; given++) {
        if (given) set(&f, "target", "label");
        set(&f, "kind", "auto");
        check_ok(open_files(&f, f.valid));
        assert_string_equal(rcv_settings_get(f.settings, "kind"), "classes");
        assert_non_null(strstr(f.sentence, "train.csv is read as a table"));
        assert_non_null(strstr(f.sentence, "'note'"));
        int64_t length;
        float x;
        check_ok(rcv_data_read(f.data[RCV_VALID], 0, 1, &length, &x, NULL, 1));
        assert_int_equal(length, 1);
        assert_true(x == 3);
        assert_string_equal(rcv_data_target_names(f.data[RCV_VALID]), "label");
    }
    end(&f);
}

static void test_shares(void **state) {
    (void)state;
    char text[2000] = "a,label\n";
    fixture f;
    begin(&f);
    for (int i = 0; i < 40; i++) sprintf(text + strlen(text), "%d,%s\n", i, i % 2 ? "x" : "y");
    write_text(f.train, text);
    set(&f, "valid", "10%");
    set(&f, "test", "25%");
    check_ok(open_files(&f, NULL));
    assert_int_equal(rcv_data_sequences(f.data[RCV_TRAIN]), 26);
    assert_int_equal(rcv_data_sequences(f.data[RCV_VALID]), 4);
    assert_int_equal(rcv_data_sequences(f.data[RCV_TEST]), 10);
    set(&f, "split-by", "time");
    check_ok(open_files(&f, NULL));
    int64_t lengths[10];
    float x[10];
    check_ok(rcv_data_read(f.data[RCV_TEST], 0, 10, lengths, x, NULL, 10));
    for (int i = 0; i < 10; i++) assert_true(x[i] == (float)(30 + i));
    set(&f, "valid", "80%");
    check_fails(open_files(&f, NULL), RCV_INVALID, "leave no data for training");
    set(&f, "valid", "100%");
    check_fails(open_files(&f, NULL), RCV_INVALID, "valid '100%' is no share of the data");
    assert_null(f.data[RCV_TRAIN]);
    end(&f);
}

static void test_one_class(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    write_text(f.train, "a,label\n1,x\n2,x\n");
    check_fails(open_files(&f, NULL), RCV_FORMAT, "has one class alone, 'x'");
    set(&f, "kind", "values");
    check_fails(open_files(&f, NULL), RCV_FORMAT, "column 'label' has the target 'x', which is not a number");
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_like_training),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_one_class),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
