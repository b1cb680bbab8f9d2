/* The files of the libraries that a GPU's plans load at run time are read once, so that no first call that is timed later waits for the disk. */
#include "calls/calls.h"

#include <stdlib.h>
#include <string.h>

enum { PATH_ROOM = 4096, MOST_FILES = 256, BLOCK = 1 << 20 };

/* They load the compiler, the library of products and the vendor's library of networks. Searches find others like them; these take a moment. */
static const struct {
    const char *name, *plan; /* NULL: the planner's, by estimate */
    bool is_vendor;          /* there need not be such a library */
} loads[] = {
    {"by_estimate", NULL, false}, {"compiled", "combine+fuse+pack+graph", false}, {"vendor", "vendor+graph", true}};

/* Bytes of the file; 0: it cannot be read. */
static size_t read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    char *block = need(malloc(BLOCK));
    size_t bytes = 0;
    for (size_t got; (got = fread(block, 1, BLOCK, file)) > 0;) bytes += got;
    fclose(file);
    free(block);
    return bytes;
}

/* Reads every library that this process has mapped. */
static size_t read_mapped(size_t *files) {
    static char *seen[MOST_FILES], line[PATH_ROOM];
    FILE *maps = fopen("/proc/self/maps", "r");
    size_t bytes = 0;
    *files = 0;
    while (maps && fgets(line, sizeof line, maps) && *files < MOST_FILES) {
        char *path = strchr(line, '/');
        if (!path || !strstr(path, ".so")) continue;
        path[strcspn(path, "\n")] = '\0';
        size_t i = 0;
        while (i < *files && strcmp(seen[i], path) != 0) i++;
        if (i < *files) continue;
        seen[(*files)++] = need(strdup(path));
        bytes += read_file(path);
    }
    if (maps) fclose(maps);
    return bytes;
}

void read_libraries(job *j, const char *unused) {
    (void)unused;
    row r = {"libraries.read", "loading the libraries of plans and reading their files, once before all first steps",
             "s", 0};
    double begin = now();
    bool is_loaded = false;
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        static network n;
        shape s = {.cell = "lstm",
                   .steps = 4,
                   .batch = 16,
                   .input = 64,
                   .hidden = 64,
                   .layers = 1,
                   .dtype = RCV_BFLOAT16,
                   .training = true,
                   .effort = RCV_ESTIMATE,
                   .schedule = loads[i].plan};
        rcv_status status = network_open_and_step(j, &s, &n);
        detail_text(j, loads[i].name, status ? rcv_message() : "loaded");
        is_loaded |= !status && !loads[i].is_vendor;
        if (!status) network_close(&n);
    }
    size_t files = 0, bytes = read_mapped(&files);
    detail_number(j, "files", (double)files);
    detail_number(j, "megabytes", (double)bytes / 1e6);
    if (!is_loaded || bytes == 0)
        row_missed(j, &r, "the libraries could not be loaded and read: their files may lie on the disk alone");
    else
        row_end(j, &r, now() - begin);
}
