/* cuDNN, opened once. */
#include "device/cuda/cudnn/api.h"
#include "base/library.h"
#include "device/cuda/cudnn/vendor.h"

#include <stdio.h>
#include <string.h>

#define SYMBOL(TYPE, NAME, ARGUMENTS) "cudnn" #NAME,
static const char *const symbols[] = {RCVI_CUDNN_FUNCTIONS(SYMBOL)};
enum { SYMBOLS = sizeof symbols / sizeof *symbols };

/* Written once, before the first read. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    rcvi_cudnn_api api;
    bool found;
    char name[32];    /* with the version */
    char reason[512]; /* where it was not found */
} library;

static void open_library(void) {
    static const char *const names[] = {"libcudnn.so.9", "libcudnn.so", NULL};
    void *functions[SYMBOLS] = {NULL};
    _Static_assert(sizeof functions == sizeof library.api, "the table is function pointers and nothing else");
    if (!rcvi_library_open(names, symbols, functions, SYMBOLS, library.reason, sizeof library.reason)) return;
    memcpy(&library.api, functions, sizeof library.api);
    size_t version = library.api.GetVersion();
    if (version / 10000 != RCVI_CUDNN_MAJOR) { /* before 9 the factor was 1000 */
        size_t factor = version < 10000 ? 1000 : 10000;
        snprintf(library.reason, sizeof library.reason,
                 "the cuDNN that was found has version %zu.%zu.%zu, but version %d is needed", version / factor,
                 version % factor / 100, version % 100, (int)RCVI_CUDNN_MAJOR);
        return;
    }
    snprintf(library.name, sizeof library.name, "cuDNN %zu.%zu.%zu", version / 10000, version % 10000 / 100,
             version % 100);
    library.found = true;
}

const rcvi_cudnn_api *rcvi_cudnn_open(void) {
    pthread_once(&once, open_library);
    if (library.found) return &library.api;
    rcvi_fail(RCV_UNSUPPORTED, "%s", library.reason);
    return NULL;
}

const char *rcvi_cudnn_absence(void) {
    pthread_once(&once, open_library);
    return library.found ? NULL : library.reason;
}

const char *rcvi_cudnn_name(void) { return rcvi_cudnn_open() ? library.name : NULL; }
