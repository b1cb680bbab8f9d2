/* Shared libraries that are opened at run time: where they are looked for, and their functions. */
#include "base/library.h"

#include "base/base.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NOT_FOUND " was not found: " /* rcvi_library_is_absent looks for it */

enum { FOLDERS_ROOM = 1 << 14, PATH_ROOM = 4096, HOW = RTLD_NOW | RTLD_LOCAL };

/* Separated by ':'. Guarded by the global lock. */
static char folders[FOLDERS_ROOM];

rcv_status rcv_libraries_set_folders(const char *list) {
    size_t length = list ? strlen(list) : 0;
    if (length >= sizeof folders)
        return rcvi_fail(RCV_INVALID, "the list of folders has %zu characters, at most %zu are possible", length,
                         sizeof folders - 1);
    rcvi_global_lock();
    if (list) memcpy(folders, list, length);
    folders[length] = '\0';
    rcvi_global_unlock();
    return RCV_OK;
}

static void *find_loaded(const char *const *names, size_t *at) {
    void *library = NULL;
    for (*at = 0; names[*at] && !library; *at += !library) library = dlopen(names[*at], HOW | RTLD_NOLOAD);
    return library;
}

/* A file that is there and cannot be loaded is a better reason than that the loader finds none. */
static void *open_in_folder(const char *folder, size_t length, const char *name, char *reason, size_t room) {
    char path[PATH_ROOM];
    int written = snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, name);
    if (length == 0 || (size_t)written >= sizeof path || access(path, R_OK) != 0) return NULL;
    void *library = dlopen(path, HOW);
    const char *why = library ? NULL : dlerror();
    if (why && !*reason) snprintf(reason, room, "%s cannot be loaded: %s", path, why);
    return library;
}

static void *open_in_folders(const char *const *names, size_t *at, char *reason, size_t room) {
    char list[FOLDERS_ROOM];
    rcvi_global_lock();
    memcpy(list, folders, sizeof list);
    rcvi_global_unlock();
    for (*at = 0; names[*at]; ++*at) {
        for (const char *folder = list; *folder;) {
            size_t length = strcspn(folder, ":");
            void *library = open_in_folder(folder, length, names[*at], reason, room);
            if (library) return library;
            folder += length + (folder[length] == ':');
        }
    }
    return NULL;
}

/* Does the loader say that there is no file of this name? It may also be another one, which the library needs. */
static bool is_missing(const char *why, const char *name) {
    const char *begin = strstr(why, name);
    return begin && strstr(begin, "o such file") && !strstr(why, "Library not loaded");
}

static void *open_by_loader(const char *const *names, size_t *at, char *reason, size_t room) {
    char missing[512] = "the loader does not say why";
    for (*at = 0; names[*at]; ++*at) {
        void *library = dlopen(names[*at], HOW);
        const char *why = library ? NULL : dlerror();
        if (library) return library;
        if (why && is_missing(why, names[*at]))
            snprintf(missing, sizeof missing, "%s", why);
        else if (why && !*reason)
            snprintf(reason, room, "%s cannot be loaded: %s", names[*at], why);
    }
    if (!*reason) snprintf(reason, room, "%s" NOT_FOUND "%s", names[0], missing);
    return NULL;
}

bool rcvi_library_open(const char *const *names, const char *const *symbols, void **functions, size_t count,
                       char *reason, size_t room) {
    size_t at;
    *reason = '\0';
    void *library = find_loaded(names, &at);
    if (!library) library = open_in_folders(names, &at, reason, room);
    if (!library) library = open_by_loader(names, &at, reason, room);
    if (!library) return false;
    for (size_t i = 0; i < count; i++) {
        functions[i] = dlsym(library, symbols[i]);
        if (functions[i]) continue;
        snprintf(reason, room, "%s has no %s: it is too old or too new", names[at], symbols[i]);
        memset(functions, 0, count * sizeof *functions);
        dlclose(library);
        return false;
    }
    return true;
}

bool rcvi_library_is_absent(const char *reason) {
    static const char *const signs[] = {NOT_FOUND, "this build has no ", "of the environment is off"};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (strstr(reason, signs[i])) return true;
    return false;
}
