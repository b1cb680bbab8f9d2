/* Files that verbs write: what they may replace, and writing them whole or not at all. */
#include "tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool output_is_writable(const char *path) {
    struct stat info;
    if (path[0] == '\0') {
        say("the path of the output is empty");
        return false;
    }
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        say("cannot write %s: it is %s", path, S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
        return false;
    }
    if (access(path, F_OK) == 0 && access(path, W_OK) != 0) {
        say("cannot write %s: %s", path, strerror(errno));
        return false;
    }
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? text_of(".") : text_of("%.*s", slash == path ? 1 : (int)(slash - path), path);
    bool good = false;
    if (stat(folder, &info) != 0 || access(folder, W_OK | X_OK) != 0) {
        say("cannot write %s: the folder %s: %s", path, folder, strerror(errno));
    } else if (!S_ISDIR(info.st_mode)) {
        say("cannot write %s: %s is not a folder", path, folder);
    } else if (slash != NULL && slash[1] == '\0') {
        say("cannot write %s: it names a folder, not a file", path);
    } else {
        good = true;
    }
    free(folder);
    return good;
}

/* ---- what may be replaced ---- */

enum { LOOK = 65536 }; /* bytes read to find out what a file is */

static bool begins(const char *bytes, size_t length, const char *with) {
    return length >= strlen(with) && memcmp(bytes, with, strlen(with)) == 0;
}

/* A model has recurve.format in its metadata; other tensor files do not. */
static bool is_tensors(const char *bytes, size_t length) {
    return length > 8 && bytes[8] == '{' && strstr(bytes + 8, "\"recurve.format\"") == NULL;
}

static bool is_page(const char *bytes, size_t length) {
    return begins(bytes, length, "<!DOCTYPE html>") && strstr(bytes, "<title>recurve ") != NULL;
}

static bool is_json(const char *bytes, size_t length) { return begins(bytes, length, "{\n"); }

static bool is_log(const char *bytes, size_t length) { return begins(bytes, length, "{\"event\":"); }

/* How predictions begin that no data of a user does: an array with a header longer than NumPy's, JSON lines, and tables of classes and texts. A table of values
 * may be anything. */
static bool is_predictions(const char *bytes, size_t length) {
    static const char npy[] = "\x93NUMPY\x01\0\xf6\0{'descr': '<f4', 'fortran_order': False, ";
    static const char *const beginnings[] = {"sequence,class,probability",          "sequence,step,class,probability",
                                             "line,tokens,log_probability,",        "tokens,log_probability,",
                                             "line,position,token,log_probability", "position,token,log_probability"};
    for (size_t i = 0; i < COUNT(beginnings); i++) {
        if (begins(bytes, length, beginnings[i])) {
            return true;
        }
    }
    if (begins(bytes, length, "{\"")) {
        static const char *const keys[] = {"\"values\":{", ",\"probability\":", "\"log_probability\":"};
        const size_t line = strcspn(bytes, "\n");
        for (size_t i = 0; i < COUNT(keys); i++) {
            const char *found = strstr(bytes, keys[i]);
            if (found != NULL && (size_t)(found - bytes) < line) {
                return begins(bytes, length, "{\"sequence\":") || begins(bytes, length, "{\"line\":") ||
                       begins(bytes, length, "{\"tokens\":") || begins(bytes, length, "{\"position\":");
            }
        }
    }
    return length >= sizeof npy - 1 && memcmp(bytes, npy, sizeof npy - 1) == 0;
}

static const struct {
    bool (*is_such)(const char *bytes, size_t length); /* a zero follows the bytes */
    const char *name;
} kinds[] = {
    [OUTPUT_TENSORS] = {is_tensors, "tensors that recurve run wrote"},
    [OUTPUT_PAGE] = {is_page, "a page that recurve wrote"},
    [OUTPUT_JSON] = {is_json, "numbers that recurve wrote"},
    [OUTPUT_LOG] = {is_log, "a log that recurve train wrote"},
    [OUTPUT_PREDICTIONS] = {is_predictions, "surely predictions that recurve wrote"},
};

bool output_is_free(const char *path, output_kind kind) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        if (errno != ENOENT) {
            say("cannot read %s, which would be replaced: %s", path, strerror(errno));
        }
        return errno == ENOENT;
    }
    char *bytes = need(LOOK + 1, 1);
    const size_t length = fread(bytes, 1, LOOK, file);
    const bool good = !ferror(file) && (length == 0 || kinds[kind].is_such(bytes, length));
    fclose(file);
    free(bytes);
    if (!good) {
        say("%s exists and is not %s: remove it, or choose another path%s", path, kinds[kind].name,
            kind == OUTPUT_PREDICTIONS ? ", or give --overwrite" : "");
    }
    return good;
}

bool model_is_free(const char *path, bool overwrite) {
    struct stat info;
    if (overwrite || stat(path, &info) != 0 || info.st_size == 0) {
        return true;
    }
    say("%s exists: choose another path, or replace it with --overwrite", path);
    return false;
}

/* ---- writing ---- */

bool save_file(const char *path, const char *bytes, size_t length) {
    rcv_context *context = NULL;
    rcv_status status = rcv_context_new(NULL, &context);
    if (status == RCV_OK) {
        status = rcv_file_save(context, path, bytes, length);
    }
    if (status != RCV_OK) {
        say("%s", rcv_message());
    }
    rcv_context_free(context);
    return status == RCV_OK;
}
