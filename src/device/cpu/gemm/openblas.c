/* OpenBLAS, opened once. */
#include "device/cpu/gemm/openblas.h"

#include "base/base.h"
#include "base/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const symbols[] = {
    "cblas_sgemm",         "cblas_dgemm",          "openblas_set_num_threads", "openblas_get_num_threads",
    "openblas_get_config", "openblas_get_corename"};
enum { SYMBOLS = sizeof symbols / sizeof *symbols };

/* In the order of `symbols`. */
typedef struct {
    __typeof__(((rcv_openblas *)NULL)->sgemm) sgemm;
    __typeof__(((rcv_openblas *)NULL)->dgemm) dgemm;
    void (*set_threads)(int threads);
    int (*get_threads)(void);
    char *(*get_config)(void);
    char *(*get_core)(void);
} functions;
_Static_assert(sizeof(functions) == SYMBOLS * sizeof(void *), "one symbol a function");

/* Written once, before the first read. OpenBLAS writes its texts anew at every call, into memory that all threads share: they are copied. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    rcv_openblas table;
    bool found;
    char config[256], core[64];
    char reason[512]; /* where it was not found */
} library;

/* RECURVE_OPENBLAS instead of the usual names. False: it says "off". */
static bool choose_names(const char *names[]) {
    const char *given = getenv("RECURVE_OPENBLAS");
    if (!given || !*given) return true;
    names[0] = given;
    names[1] = NULL;
    return strcmp(given, "off") != 0;
}

static bool find_functions(functions *call, char *reason, size_t room) {
#ifdef __APPLE__
    const char *names[] = {"libopenblas.0.dylib", "libopenblas.dylib", NULL};
#else
    const char *names[] = {"libopenblas.so.0", "libopenblas.so", NULL};
#endif
    void *found[SYMBOLS];
    if (!choose_names(names)) {
        snprintf(reason, room, "RECURVE_OPENBLAS of the environment is off");
        return false;
    }
    if (!rcvi_library_open(names, symbols, found, SYMBOLS, reason, room)) return false;
    memcpy(call, found, sizeof found);
    if (!strstr(call->get_config(), "USE64BITINT")) return true;
    snprintf(reason, room, "%s has 64-bit integers, a build with 32-bit integers is needed", names[0]);
    return false;
}

static void open_library(void) {
    functions call;
    size_t length = (size_t)snprintf(library.reason, sizeof library.reason, "there is no OpenBLAS: ");
    library.found = find_functions(&call, library.reason + length, sizeof library.reason - length);
    if (!library.found) return;
    snprintf(library.config, sizeof library.config, "%s", call.get_config());
    snprintf(library.core, sizeof library.core, "%s", call.get_core());
    library.table = (rcv_openblas){.size = sizeof library.table,
                                   .config = library.config,
                                   .core = library.core,
                                   .set_threads = call.set_threads,
                                   .get_threads = call.get_threads,
                                   .sgemm = call.sgemm,
                                   .dgemm = call.dgemm};
}

const rcv_openblas *rcvi_openblas(void) {
    pthread_once(&once, open_library);
    return library.found ? &library.table : NULL;
}

const char *rcvi_openblas_absence(void) { return rcvi_openblas() ? NULL : library.reason; }

rcv_status rcv_openblas_open(rcv_openblas *openblas) {
    RCVI_NEED(openblas, "openblas");
    RCVI_TRY(rcvi_struct_check(__func__, "openblas", "rcv_openblas", openblas));
    if (!rcvi_openblas()) return rcvi_fail(RCV_UNSUPPORTED, "%s", rcvi_openblas_absence());
    rcvi_struct_write(openblas, &library.table, sizeof library.table);
    return RCV_OK;
}
