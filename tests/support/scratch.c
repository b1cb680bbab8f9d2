#define _XOPEN_SOURCE 700

#include "scratch.h"

#include "test.h"

#include <dirent.h>
#include <unistd.h>

static char directory[] = "/tmp/recurve-test-XXXXXX";

bool scratch_begin(void) { return mkdtemp(directory) != NULL; }
bool scratch_end(void) { return rmdir(directory) == 0; }
const char *scratch(void) { return directory; }

const char *path_in(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

int entries(const char *path) {
    DIR *open = opendir(path);
    assert_non_null(open);
    int count = 0;
    while (readdir(open)) count++;
    closedir(open);
    return count - 2;
}

int scratch_set_up(void **state) {
    (void)state;
    return scratch_begin() ? 0 : 1;
}

int scratch_tear_down(void **state) {
    (void)state;
    return scratch_end() ? 0 : 1;
}
