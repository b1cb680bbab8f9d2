#include "data_files.h"

#include "columnar/columnar.h"
#include "tool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The names of files in a folder, in the order in which they are looked for: those of Penn Treebank and WikiText, then every stem with every
 * ending. */
static const char *const whole_names[3][2] = {{"ptb.train.txt", "wiki.train.tokens"},
                                              {"ptb.valid.txt", "wiki.valid.tokens"},
                                              {"ptb.test.txt", "wiki.test.tokens"}};
static const char *const stems[3][4] = {
    {"train", "training", NULL}, {"valid", "validation", "val", "dev"}, {"test", NULL}};
static const char *const endings[] = {".txt", ".jsonl",       "",         ".csv",   ".tsv",    ".npz",
                                      ".npy", ".safetensors", ".parquet", ".arrow", ".feather"};
static const char *const settings_names[3] = {"data", "valid", "test"};

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* A regular file with this name in the folder, for free(); NULL: there is none. */
static char *find_file(const char *folder, const char *stem, const char *ending) {
    char *path = text_of("%s/%s%s", folder, stem, ending);
    struct stat info;
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
        return path;
    }
    free(path);
    return NULL;
}

char *data_files_part(const char *folder, int part) {
    char *found = NULL;
    for (size_t i = 0; i < COUNT(whole_names[part]) && found == NULL; i++) {
        found = find_file(folder, whole_names[part][i], "");
    }
    for (size_t i = 0; i < COUNT(stems[part]) && found == NULL && stems[part][i] != NULL; i++) {
        for (size_t k = 0; k < COUNT(endings) && found == NULL; k++) {
            found = find_file(folder, stems[part][i], endings[k]);
        }
    }
    return found;
}

void data_files_note_names(data_files *files, const rcv_settings *settings, const rcv_settings *given,
                           bool is_data_given) {
    for (int part = 0; part < 3; part++) {
        const bool has_own = part > 0 && rcv_settings_get(settings, settings_names[part])[0] != '\0';
        files->is_named_by_file[part] = has_own ? !rcv_settings_given(given, settings_names[part]) : !is_data_given;
    }
}

/* A table of another program is read as the file that it was converted into. */
static bool convert_files(data_files *files) {
    for (int part = 0; part < 3; part++) {
        if (files->paths[part] != NULL && !columnar_convert(&files->paths[part])) {
            return false;
        }
    }
    return true;
}

/* "10%": a share of the training data. */
static bool is_share(const char *value) {
    const size_t length = strlen(value);
    return length > 1 && value[length - 1] == '%' && strspn(value, "0123456789.") == length - 1;
}

bool data_files_find(data_files *files, const rcv_settings *settings) {
    const char *data = rcv_settings_get(settings, "data");
    if (data == NULL || data[0] == '\0') {
        say("there is no training data: give a file, or a folder with train, valid and test, as DATA");
        return false;
    }
    const bool folder = is_folder(data);
    for (int part = 0; part < 3; part++) {
        const char *given = rcv_settings_get(settings, settings_names[part]);
        if (part > 0 && given != NULL && given[0] != '\0') {
            files->paths[part] = strcmp(given, "none") == 0 || is_share(given) ? NULL : text_of("%s", given);
        } else if (folder) {
            files->paths[part] = data_files_part(data, part);
        } else if (part == PART_TRAIN) {
            files->paths[part] = text_of("%s", data);
        }
    }
    if (files->paths[PART_TRAIN] == NULL) {
        say("%s is a directory without a training file: it contains none of %s, %s and train with .txt, .jsonl, .csv, "
            ".tsv, "
            ".npz, .npy, .safetensors or .parquet",
            data, whole_names[0][0], whole_names[0][1]);
        return false;
    }
    return convert_files(files);
}

/* Says so before a large file is read. */
static void announce(const char *path) {
    const double large = 64e6;
    struct stat info;
    if (path != NULL && stat(path, &info) == 0 && S_ISREG(info.st_mode) && (double)info.st_size > large) {
        note("reading %s, %.0f MB; what is read is cached for the next time", path, (double)info.st_size / 1e6);
    }
}

rcv_status data_files_open(data_files *files, rcv_context *context, rcv_settings *settings,
                           const rcv_vocabulary *vocabulary) {
    rcv_training_files given = RCV_INIT(rcv_training_files, .vocabulary = vocabulary, .without_test = true);
    char *sentence = NULL;
    for (int part = 0; part < 3; part++) {
        given.paths[part] = files->paths[part];
        given.elsewhere[part] = files->is_named_by_file[part];
    }
    announce(files->paths[PART_TRAIN]);
    const rcv_status status = rcv_training_data_open(context, settings, &given, files->data, &sentence);
    files->recognised = sentence != NULL ? text_of("%s", sentence) : NULL;
    rcv_text_free(context, sentence);
    return status;
}

rcv_status data_files_open_test(data_files *files, rcv_context *context, const rcv_settings *settings) {
    if (files->paths[PART_TEST] == NULL || files->data[PART_TEST] != NULL) {
        return RCV_OK; /* a share of the training data is open */
    }
    const rcv_data *train = files->data[PART_TRAIN];
    const char *cache = rcv_settings_get(settings, "cache");
    const rcv_data_options options =
        RCV_INIT(rcv_data_options, .level = rcv_data_level(train), .kind = rcv_data_get_kind(train), .like = train,
                 .cache = cache != NULL && cache[0] != '\0'    ? cache
                          : files->is_named_by_file[PART_TEST] ? ""
                                                               : NULL);
    announce(files->paths[PART_TEST]);
    return rcv_data_open(context, files->paths[PART_TEST], &options, &files->data[PART_TEST]);
}

bool data_files_has_test(const data_files *files) {
    return files->paths[PART_TEST] != NULL || files->data[PART_TEST] != NULL;
}

void data_files_close(data_files *files) {
    for (int part = 2; part >= 0; part--) {
        rcv_data_free(files->data[part]);
        free(files->paths[part]);
    }
    free(files->recognised);
    *files = (struct data_files){0};
}
