#define _XOPEN_SOURCE 700 /* realpath */

#include "columnar.h"

#include "child_process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern const char columnar_script[]; /* columnar.py */

static const char *const endings[] = {"csv", "jsonl"}; /* of what it is converted into */

/* ---- which files ---- */

/* A Parquet or Arrow file, by its first bytes; a stream of Arrow, by its name. */
static bool is_columnar(const char *path) {
    char begin[6] = "";
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
        return false;
    }
    FILE *file = fopen(path, "rb");
    const size_t length = file != NULL ? fread(begin, 1, sizeof begin, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    const char *dot = strrchr(path, '.');
    const bool is_stream = dot != NULL && (strcmp(dot, ".arrow") == 0 || strcmp(dot, ".arrows") == 0) &&
                           length == sizeof begin && memcmp(begin, "\xff\xff\xff\xff", 4) == 0;
    return is_stream || (length == sizeof begin && (memcmp(begin, "PAR1", 4) == 0 || memcmp(begin, "ARROW1", 6) == 0 ||
                                                    memcmp(begin, "FEA1", 4) == 0));
}

/* ---- the place of the result ---- */

/* Creates the folder and those above it. */
static bool make_folders(char *folder) {
    for (char *slash = strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(folder, 0777);
        *slash = '/';
    }
    struct stat info;
    (void)mkdir(folder, 0700);
    return stat(folder, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

static uint64_t hash_byte(uint64_t hash, unsigned char byte) { return (hash ^ byte) * 1099511628211u; }

static uint64_t hash_number(uint64_t hash, int64_t number) {
    for (int i = 0; i < 8; i++) {
        hash = hash_byte(hash, (unsigned char)((uint64_t)number >> 8 * i));
    }
    return hash;
}

/* Of the path, the size and the time of modification. */
static uint64_t hash_file(const char *path, const struct stat *info) {
    uint64_t hash = 14695981039346656037u;
    for (const char *at = path; *at != '\0'; at++) {
        hash = hash_byte(hash, (unsigned char)*at);
    }
    hash = hash_number(hash_number(hash, info->st_size), (int64_t)info->st_ino);
    return hash_number(hash_number(hash, info->st_mtim.tv_sec), info->st_mtim.tv_nsec);
}

/* The path of the result without its ending, by the file's path, size and time of modification; for free(). NULL after saying what is wrong. */
static char *place_of(const char *path) {
    const char *caches = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    struct stat info;
    char *full = realpath(path, NULL), *folder = NULL, *place = NULL;
    if (caches != NULL && caches[0] == '/') {
        folder = text_of("%s/recurve/tables", caches);
    } else if (home != NULL && home[0] == '/') {
        folder = text_of("%s/.cache/recurve/tables", home);
    }
    if (folder == NULL || !make_folders(folder)) {
        say("cannot convert %s: there is no folder for the result; set XDG_CACHE_HOME or HOME", path);
    } else if (full == NULL || stat(full, &info) != 0) {
        say("cannot read %s: %s", path, strerror(errno));
    } else {
        place = text_of("%s/%016llx", folder, (unsigned long long)hash_file(full, &info));
    }
    free(full);
    free(folder);
    return place;
}

/* The result that is there, for free(); NULL: there is none. */
static char *find_result(const char *place) {
    for (size_t i = 0; i < COUNT(endings); i++) {
        char *path = text_of("%s.%s", place, endings[i]);
        struct stat info;
        if (lstat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid()) {
            return path;
        }
        free(path);
    }
    return NULL;
}

/* ---- conversion ---- */

typedef enum { CONVERSION_DONE, CONVERSION_MISSING, CONVERSION_WRONG } conversion;

static conversion convert(const char *path, const char *place) {
    const char *const arguments[] = {"python3", "-c", columnar_script, path, place, NULL};
    char line[1024] = "";
    child child;
    if (!child_start(&child, arguments)) {
        return CONVERSION_MISSING;
    }
    const bool answered = child_read(&child, line, sizeof line, 1e9);
    child_end(&child);
    if (answered && strncmp(line, "wrong ", 6) == 0) {
        say("cannot convert %s: %s", path, line + 6);
        return CONVERSION_WRONG;
    }
    return answered && strncmp(line, "done ", 5) == 0 ? CONVERSION_DONE : CONVERSION_MISSING;
}

bool columnar_convert(char **path) {
    if (!is_columnar(*path)) {
        return true;
    }
    char *place = place_of(*path), *result = place != NULL ? find_result(place) : NULL;
    if (place != NULL && result == NULL) {
        note("converting %s into a table with pyarrow; the result is kept in the user's cache", *path);
        const conversion outcome = convert(*path, place);
        result = outcome == CONVERSION_DONE ? find_result(place) : NULL;
        if (stop_signal() != 0) {
            note("stopped");
        } else if (outcome != CONVERSION_WRONG && result == NULL) {
            say("%s is read with pyarrow, which python3 does not have: pip install pyarrow, or write the table as CSV",
                *path);
        }
    }
    free(place);
    if (result == NULL) {
        return false;
    }
    free(*path);
    *path = result;
    return true;
}
