/* Two paths name the same file if they have the same device and inode, or, if the file does not exist yet, the same name in the same folder. */
#define _XOPEN_SOURCE 700 /* realpath */

#include "paths.h"

#include "tool.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char TOKENS[] = ".recurve-tokens"; /* extension of the library's token caches */
enum { NUMBERED = 64 };                         /* numbered checkpoints that are checked here; the library checks all */

/* ---- the table ---- */

void paths_add(paths *paths, path_role role, const char *label, const char *path) {
    if (path == NULL || path[0] == '\0') {
        return;
    }
    path_entry *longer = need(paths->count + 1, sizeof *longer);
    if (paths->count > 0) {
        memcpy(longer, paths->entries, paths->count * sizeof *longer);
    }
    free(paths->entries);
    paths->entries = longer;
    paths->entries[paths->count++] = (path_entry){role, text_of("%s", label), text_of("%s", path)};
}

void paths_add_cell(paths *paths, const char *label, const char *cell) {
    if (cell != NULL && strpbrk(cell, "./") != NULL) {
        paths_add(paths, PATH_READ, label, cell);
    }
}

void paths_add_cells(paths *paths, const char *label, const char *cells) {
    for (const char *at = cells; at != NULL && at[0] != '\0';) {
        const size_t length = strcspn(at, ",");
        char *cell = text_of("%.*s", (int)length, at);
        paths_add_cell(paths, label, cell);
        free(cell);
        at += length + (at[length] == ',');
    }
}

void paths_add_problem(paths *paths, const problem *problem) {
    paths_add_cell(paths, "--cell", problem->network.cell);
    paths_add(paths, PATH_WRITTEN, "--wisdom", problem->wisdom);
}

void paths_add_data_files(paths *paths, const data_files *files, const rcv_settings *settings) {
    paths_add(paths, PATH_READ, "the data", files->paths[PART_TRAIN]);
    paths_add(paths, PATH_READ, "the validation data", files->paths[PART_VALID]);
    paths_add(paths, PATH_READ, "the test data", files->paths[PART_TEST]);
    paths_add(paths, PATH_READ, "--vocabulary", rcv_settings_get(settings, "vocabulary"));
    paths_add_cell(paths, "--cell", rcv_settings_get(settings, "cell"));
    paths_add(paths, PATH_FOLDER, "--cache", rcv_settings_get(settings, "cache"));
}

size_t path_stem(const char *path) {
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    return dot != NULL && dot > (slash != NULL ? slash + 1 : path) ? (size_t)(dot - path) : strlen(path);
}

void paths_add_model(paths *paths, const char *output, int64_t keep) {
    const int stem = (int)path_stem(output);
    char *best = text_of("%.*s.best%s", stem, output, output + stem), *lock = text_of("%s.lock", output);
    paths_add(paths, PATH_CHECKPOINT, "--output", output);
    paths_add(paths, PATH_CHECKPOINT, "the best model", best);
    paths_add(paths, PATH_WRITTEN, "the lock", lock);
    for (long long n = 1; n < keep && n < NUMBERED; n++) {
        char *name = text_of("%.*s.%lld%s", stem, output, n, output + stem);
        paths_add(paths, PATH_CHECKPOINT, "the checkpoint", name);
        free(name);
    }
    free(best);
    free(lock);
}

/* ---- resolving paths ---- */

static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? text_of(".") : text_of("%.*s", slash == path ? 1 : (int)(slash - path), path);
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* The absolute path without links and dots; the file need not exist. `links`: how many links may still be followed. */
static char *resolve_path(const char *path, int links) {
    char *full = realpath(path, NULL), target[PATH_MAX];
    if (full != NULL) {
        return full;
    }
    char *folder = folder_of(path), *place;
    const ssize_t length = links > 0 ? readlink(path, target, sizeof target - 1) : -1;
    if (length > 0) { /* a link to a file that does not exist */
        target[length] = '\0';
        char *next = target[0] == '/' ? text_of("%s", target) : text_of("%s/%s", folder, target);
        place = resolve_path(next, links - 1);
        free(next);
    } else if (strcmp(folder, path) == 0 || strcmp(path, ".") == 0) {
        place = text_of("%s", path);
    } else {
        char *above = resolve_path(folder, links);
        place = text_of("%s%s%s", above, strcmp(above, "/") == 0 ? "" : "/", name_of(path));
        free(above);
    }
    free(folder);
    return place;
}

static bool is_same_path(const char *a, const char *b) {
    char *first = resolve_path(a, 40), *second = resolve_path(b, 40);
    const bool same = strcmp(first, second) == 0;
    free(first);
    free(second);
    return same;
}

static bool is_same_file(const char *a, const char *b) {
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* Would the path of the file become a folder when this folder is created? */
static bool is_below(const char *folder, const char *file) {
    char *inner = resolve_path(folder, 40), *outer = resolve_path(file, 40);
    const size_t length = strlen(outer);
    const bool inside = strncmp(inner, outer, length) == 0 && inner[length] == '/';
    free(inner);
    free(outer);
    return inside;
}

/* ---- the check ---- */

static bool is_read(const path_entry *entry) { return entry->role == PATH_READ || entry->role == PATH_RESUMED; }

static bool is_conflict(const path_entry *a, const path_entry *b) {
    if (is_read(a) && is_read(b)) {
        return false;
    }
    const bool run = a->role == PATH_CHECKPOINT || a->role == PATH_RESUMED;
    if (run && (b->role == PATH_CHECKPOINT || b->role == PATH_RESUMED)) {
        return a->role == b->role && is_same_path(a->path, b->path);
    }
    if (a->role == PATH_FOLDER && !is_read(b) && is_below(a->path, b->path)) {
        return true;
    }
    if (b->role == PATH_FOLDER && !is_read(a) && is_below(b->path, a->path)) {
        return true;
    }
    return is_same_file(a->path, b->path) || is_same_path(a->path, b->path);
}

static bool check_pair(const path_entry *a, const path_entry *b) {
    const path_entry *written = is_read(a) ? b : a, *other = is_read(a) ? a : b;
    if (!is_conflict(a, b)) {
        return true;
    }
    say("%s %s is the same file as %s %s, which is %s: choose another path", written->label, written->path,
        other->label, other->path, is_read(other) ? "read" : "written too");
    return false;
}

static bool check_extension(const path_entry *entry) {
    char *place = resolve_path(entry->path, 40);
    const size_t length = strlen(place), ending = strlen(TOKENS);
    const bool kept = entry->role != PATH_FOLDER && length >= ending && strcmp(place + length - ending, TOKENS) == 0;
    if (kept) {
        say("%s %s has the extension of token caches, %s: choose another path", entry->label, entry->path, TOKENS);
    }
    free(place);
    return !kept;
}

static bool check_writable(const path_entry *entry) {
    struct stat info;
    if (entry->role == PATH_FOLDER && stat(entry->path, &info) == 0 && !S_ISDIR(info.st_mode)) {
        say("%s %s is not a folder", entry->label, entry->path);
        return false;
    }
    return is_read(entry) || entry->role == PATH_FOLDER || output_is_writable(entry->path);
}

bool paths_are_apart(paths *paths) {
    bool good = true;
    for (size_t i = 0; i < paths->count && good; i++) {
        good = check_extension(&paths->entries[i]);
        for (size_t j = 0; j < i && good; j++) {
            good = check_pair(&paths->entries[i], &paths->entries[j]);
        }
    }
    for (size_t i = 0; i < paths->count && good; i++) {
        good = check_writable(&paths->entries[i]);
    }
    for (size_t i = 0; i < paths->count; i++) {
        free(paths->entries[i].label);
        free(paths->entries[i].path);
    }
    free(paths->entries);
    *paths = (struct path_table){0};
    return good;
}
