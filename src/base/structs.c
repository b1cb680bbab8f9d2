/* Reading and writing of public structs that begin with their size, for callers compiled with an older or newer header. */
#include "base/base.h"

#include <string.h>

static size_t size_of(const void *given) {
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

static rcv_status fail_size(const char *function, const char *name, const char *type) {
    return rcvi_fail(RCV_INVALID, "%s: %s has size 0; set it to sizeof(%s), as RCV_INIT does", function, name, type);
}

rcv_status rcvi_struct_read(const char *function, const char *name, const char *type, const void *given, void *to,
                            size_t known) {
    memset(to, 0, known);
    if (given) {
        size_t size = size_of(given);
        if (size < sizeof size) return fail_size(function, name, type);
        for (size_t i = known; i < size; i++) {
            if (((const char *)given)[i])
                return rcvi_fail(RCV_UNSUPPORTED,
                                 "%s: %s has members that are set and that this library does not know; it is version "
                                 "%s, older than the header of the program",
                                 function, name, rcv_version());
        }
        memcpy(to, given, size < known ? size : known);
    }
    memcpy(to, &known, sizeof known);
    return RCV_OK;
}

rcv_status rcvi_struct_check(const char *function, const char *name, const char *type, const void *given) {
    return size_of(given) < sizeof(size_t) ? fail_size(function, name, type) : RCV_OK;
}

void rcvi_struct_write(void *given, const void *from, size_t known) {
    size_t size = size_of(given);
    if (size <= sizeof size) return;
    memset(given, 0, size);
    memcpy(given, from, size < known ? size : known);
    memcpy(given, &size, sizeof size);
}
