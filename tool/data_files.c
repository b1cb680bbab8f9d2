#include "data_files.h"

#include "tool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* File names of Penn Treebank, WikiText and others. */
static const char *const names[3][6] = {
    {"ptb.train.txt", "wiki.train.tokens", "train.txt", "train.jsonl", "train", NULL},
    {"ptb.valid.txt", "wiki.valid.tokens", "valid.txt", "valid.jsonl", "valid", NULL},
    {"ptb.test.txt", "wiki.test.tokens", "test.txt", "test.jsonl", "test", NULL},
};
static const char *const settings_names[3] = {"data", "valid", "test"};

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

char *data_files_part(const char *folder, int part) {
    for (int i = 0; names[part][i] != NULL; i++) {
        char *path = text_of("%s/%s", folder, names[part][i]);
        struct stat info;
        if (stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
            return path;
        }
        free(path);
    }
    return NULL;
}

void data_files_note_names(data_files *files, const rcv_settings *settings, const rcv_settings *given,
                           bool is_data_given) {
    for (int part = 0; part < 3; part++) {
        const bool has_own = part > 0 && rcv_settings_get(settings, settings_names[part])[0] != '\0';
        files->is_named_by_file[part] = has_own ? !rcv_settings_given(given, settings_names[part]) : !is_data_given;
    }
}

bool data_files_find(data_files *files, const rcv_settings *settings) {
    const char *data = rcv_settings_get(settings, "data");
    if (data == NULL || data[0] == '\0') {
        say("there is no training data: give a text file, or a folder with train, valid and test, as DATA");
        return false;
    }
    const bool folder = is_folder(data);
    for (int part = 0; part < 3; part++) {
        const char *given = rcv_settings_get(settings, settings_names[part]);
        if (part > 0 && given != NULL && given[0] != '\0') {
            files->paths[part] = strcmp(given, "none") == 0 ? NULL : text_of("%s", given);
        } else if (folder) {
            files->paths[part] = data_files_part(data, part);
        } else if (part == PART_TRAIN) {
            files->paths[part] = text_of("%s", data);
        }
    }
    if (files->paths[PART_TRAIN] == NULL) {
        say("%s is a directory without a training file: it contains none of %s, %s and %s", data, names[0][0],
            names[0][1], names[0][2]);
        return false;
    }
    return true;
}

static int choice_of(const rcv_settings *settings, const char *name, const char *const *choices) {
    const char *value = rcv_settings_get(settings, name);
    for (int i = 0; choices[i] != NULL; i++) {
        if (strcmp(choices[i], value) == 0) {
            return i;
        }
    }
    return 0;
}

static rcv_data_options options_of(const data_files *files, int part, const rcv_settings *settings) {
    static const char *const levels[] = {"word", "byte", "character", "piece", NULL};
    static const char *const kinds[] = {"stream", "lines", "classes", "values", NULL};
    const char *cache = rcv_settings_get(settings, "cache");
    return RCV_INIT(rcv_data_options, .level = (rcv_level)choice_of(settings, "level", levels),
                    .kind = (rcv_data_kind)choice_of(settings, "kind", kinds),
                    .cache = cache != NULL && cache[0] != '\0' ? cache
                             : files->is_named_by_file[part]   ? ""
                                                               : NULL);
}

/* Says so before a large file is read. */
static void announce(const char *path) {
    const double large = 64e6;
    struct stat info;
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode) && (double)info.st_size > large) {
        note("reading %s, %.0f MB; its tokens are cached for the next time", path, (double)info.st_size / 1e6);
    }
}

rcv_status data_files_open(data_files *files, rcv_context *context, const rcv_settings *settings,
                           const rcv_vocabulary *vocabulary) {
    rcv_data_options options = options_of(files, PART_TRAIN, settings);
    const char *file = rcv_settings_get(settings, "vocabulary");
    rcv_vocabulary *given = NULL;
    rcv_status status = RCV_OK;
    if (vocabulary == NULL && file != NULL && file[0] != '\0') {
        status = rcv_vocabulary_load(context, file, &given);
    }
    options.vocabulary = vocabulary != NULL ? vocabulary : given;
    if (options.vocabulary != NULL && rcv_vocabulary_level(options.vocabulary) == RCV_LEVEL_BYTE) {
        options.vocabulary = NULL;
    }
    if (options.vocabulary != NULL && !rcv_settings_given(settings, "level")) {
        options.level = rcv_vocabulary_level(options.vocabulary);
    }
    if (status == RCV_OK) {
        announce(files->paths[PART_TRAIN]);
        status = rcv_data_open(context, files->paths[PART_TRAIN], &options, &files->data[PART_TRAIN]);
    }
    rcv_vocabulary_free(given);
    options = options_of(files, PART_VALID, settings);
    options.like = files->data[PART_TRAIN];
    if (status == RCV_OK && files->paths[PART_VALID] != NULL) {
        status = rcv_data_open(context, files->paths[PART_VALID], &options, &files->data[PART_VALID]);
    }
    return status;
}

rcv_status data_files_open_test(data_files *files, rcv_context *context, const rcv_settings *settings) {
    rcv_data_options options = options_of(files, PART_TEST, settings);
    options.like = files->data[PART_TRAIN];
    return files->paths[PART_TEST] == NULL
               ? RCV_OK
               : rcv_data_open(context, files->paths[PART_TEST], &options, &files->data[PART_TEST]);
}

void data_files_close(data_files *files) {
    for (int part = 2; part >= 0; part--) {
        rcv_data_free(files->data[part]);
        free(files->paths[part]);
    }
    *files = (struct data_files){0};
}
