/* The data of a training run, as settings say. */
#include "data/data.h"
#include "train/config/settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- shares ---- */

/* "10%": a share; 0 where the setting names no share. */
static rcv_status read_share(const rcv_settings *s, const char *name, double *share) {
    const char *text = rcvi_settings_text(s, name);
    const size_t length = text ? strlen(text) : 0;
    char digits[32];
    *share = 0;
    if (length < 2 || text[length - 1] != '%') return RCV_OK;
    snprintf(digits, sizeof digits, "%.*s", (int)(length - 1), text);
    if (length < sizeof digits && rcvi_read_number(digits, share) && *share > 0 && *share < 100) {
        *share /= 100;
        return RCV_OK;
    }
    return rcvi_fail(RCV_INVALID, "%s '%s' is no share of the data: it must be more than 0%% and less than 100%%", name,
                     text);
}

static rcv_part_by part_by(const rcv_settings *s, const rcv_data *data) {
    if (!rcvi_settings_is(s, "split-by", "auto")) return (rcv_part_by)rcvi_settings_choice(s, "split-by");
    const bool series = rcvi_kind_has_steps(rcv_data_get_kind(data)) && rcv_data_get_kind(data) != RCV_DATA_LINES;
    return series || rcv_data_get_kind(data) == RCV_DATA_STREAM ? RCV_PART_TIME : RCV_PART_SEQUENCES;
}

/* Replaces the data by its parts: training first, then validation, then the test. */
static rcv_status divide(const rcv_settings *s, const double shares[RCV_DATA_PARTS], rcv_data *data[RCV_DATA_PARTS]) {
    rcv_data *whole = data[RCV_TRAIN];
    const double ends[] = {1 - shares[RCV_VALID] - shares[RCV_TEST], 1 - shares[RCV_TEST], 1};
    rcv_part_options o =
        RCV_INIT(rcv_part_options, .by = part_by(s, whole), .seed = (uint64_t)rcvi_settings_integer(s, "seed"));
    rcv_status status = RCV_OK;
    data[RCV_TRAIN] = NULL;
    if (!(ends[0] > 0)) status = rcvi_fail(RCV_INVALID, "the shares of valid and test leave no data for training");
    for (int part = 0; part < RCV_DATA_PARTS && !status; part++) {
        o.begin = part ? ends[part - 1] : 0;
        o.end = ends[part];
        if (part == RCV_TRAIN || shares[part] > 0) status = rcv_data_part(whole, &o, &data[part]);
    }
    rcv_data_free(whole);
    return status;
}

/* ---- options ---- */

static rcv_data_options options_of(const rcv_settings *s, const rcv_training_files *files, int part) {
    const char *cache =
        rcv_settings_get(s, "cache"); /* a path that is written, which rcvi_settings_text does not give */
    return RCV_INIT(rcv_data_options, .level = (rcv_level)rcvi_settings_choice(s, "level"),
                    .kind = (rcv_data_kind)rcvi_settings_choice(s, "kind"),
                    .cache = cache && *cache          ? cache
                             : files->elsewhere[part] ? ""
                                                      : NULL,
                    .format = (rcv_file_format)rcvi_settings_choice(s, "format"),
                    .features = rcvi_settings_text(s, "features"), .target = rcvi_settings_text(s, "target"),
                    .sequence = rcvi_settings_text(s, "sequence"), .time = rcvi_settings_text(s, "time"),
                    .horizon = rcvi_settings_integer(s, "horizon"), .piece = rcvi_settings_integer(s, "length"),
                    .missing = (rcv_missing)rcvi_settings_choice(s, "missing"));
}

static const char *choice_at(const char *name, int index) {
    for (size_t i = 0; i < rcv_setting_count(); i++)
        if (strcmp(rcv_setting_at(i)->name, name) == 0) return rcv_setting_at(i)->choices[index];
    return NULL;
}

/* A kind that is open becomes a setting; *sentence says what was recognised. */
static rcv_status recognise(rcv_context *context, rcv_settings *s, const rcv_training_files *files, char **sentence) {
    rcv_data_options o = options_of(s, files, RCV_TRAIN);
    rcv_guess guess = RCV_INIT(rcv_guess);
    rcvi_text text;
    char *found = NULL;
    if (!rcvi_settings_is(s, "kind", "auto")) return RCV_OK;
    o.kind = RCV_DATA_STREAM; /* not looked at */
    RCVI_TRY(rcv_data_recognise(context, files->paths[RCV_TRAIN], &o, &guess, &found));
    const bool table = guess.format == RCV_FORMAT_CSV || guess.format == RCV_FORMAT_TSV;
    rcvi_text_init(&text, context);
    rcvi_text_add(&text, "%s is read as %s (%s change that)", files->paths[RCV_TRAIN], found,
                  table ? "--target, --features, --sequence, --time, --kind or --format" : "--kind or --format");
    rcv_text_free(context, found);
    RCVI_TRY(rcvi_text_take(&text, sentence));
    return rcv_settings_set(s, "kind", choice_at("kind", (int)guess.kind));
}

/* A vocabulary that settings name sets the level, unless this was given. */
static rcv_status open_vocabulary(rcv_context *context, rcv_settings *s, const rcv_training_files *files,
                                  rcv_vocabulary **vocabulary) {
    const char *path = rcvi_settings_text(s, "vocabulary");
    *vocabulary = NULL;
    if (files->vocabulary || !path) return RCV_OK;
    RCVI_TRY(rcv_vocabulary_load(context, path, vocabulary));
    if (rcv_settings_given(s, "level")) return RCV_OK;
    return rcv_settings_set(s, "level", choice_at("level", (int)rcv_vocabulary_level(*vocabulary)));
}

/* ---- opening ---- */

static rcv_status check_classes(const rcv_data *data, const char *path) {
    if (!rcvi_kind_has_classes(rcv_data_get_kind(data)) || rcv_data_outputs(data) > 1) return RCV_OK;
    return rcvi_fail(
        RCV_FORMAT,
        "%s has one class alone, '%.60s': there is nothing to learn; is the target another column (--target), or "
        "a number (--kind values)?",
        path, rcv_data_class_name(data, 0, NULL));
}

static rcv_status open_parts(rcv_context *context, rcv_settings *s, const rcv_training_files *files,
                             const rcv_vocabulary *vocabulary, rcv_data *data[RCV_DATA_PARTS]) {
    double shares[RCV_DATA_PARTS] = {0};
    RCVI_TRY(read_share(s, "valid", &shares[RCV_VALID]));
    RCVI_TRY(read_share(s, "test", &shares[RCV_TEST]));
    for (int part = 0; part < RCV_DATA_PARTS; part++) {
        rcv_data_options o = options_of(s, files, part);
        if (!files->paths[part] || (part == RCV_TEST && files->without_test)) continue;
        if (part > 0 && shares[part] > 0)
            return rcvi_fail(RCV_INVALID, "there is a file for %s, and a share of the data, too",
                             part == RCV_VALID ? "valid" : "test");
        o.vocabulary = vocabulary && rcv_vocabulary_level(vocabulary) != RCV_LEVEL_BYTE ? vocabulary : NULL;
        if (part > 0) { /* read as the training data was */
            o.like = data[RCV_TRAIN];
            o.vocabulary = NULL;
            o.features = o.target = o.sequence = o.time = NULL;
        }
        RCVI_TRY(rcv_data_open(context, files->paths[part], &o, &data[part]));
        if (part == RCV_TRAIN) RCVI_TRY(check_classes(data[part], files->paths[part]));
    }
    return shares[RCV_VALID] + shares[RCV_TEST] > 0 ? divide(s, shares, data) : RCV_OK;
}

rcv_status rcv_training_data_open(rcv_context *context, rcv_settings *settings, const rcv_training_files *files,
                                  rcv_data **data, char **sentence) {
    if (sentence) *sentence = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(settings, "settings");
    RCVI_NEED(files, "files");
    RCVI_NEED(data, "data");
    RCVI_READ(rcv_training_files, files, "files");
    for (int part = 0; part < RCV_DATA_PARTS; part++) data[part] = NULL;
    if (!files->paths[RCV_TRAIN]) return rcvi_fail(RCV_INVALID, "there is no file of training data");
    rcv_vocabulary *vocabulary;
    char *found = NULL;
    rcv_status status = open_vocabulary(context, settings, files, &vocabulary);
    if (!status) status = recognise(context, settings, files, &found);
    if (!status) status = open_parts(context, settings, files, vocabulary ? vocabulary : files->vocabulary, data);
    rcv_vocabulary_free(vocabulary);
    for (int part = 0; part < RCV_DATA_PARTS && status; part++) {
        rcv_data_free(data[part]);
        data[part] = NULL;
    }
    if (status || !sentence)
        rcv_text_free(context, found);
    else
        *sentence = found;
    return status;
}
