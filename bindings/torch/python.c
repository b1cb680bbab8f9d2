/* Python's stable interface. */
#include "torch/python.h"
#include "call/shared.h"

#include <dlfcn.h>
#include <string.h>

rcvb_python python;

static object read_object(const char *name) {
    object *at = (object *)dlsym(RTLD_DEFAULT, name);
    return at ? *at : NULL;
}

rcv_status rcvb_find_python(void) {
    void *found = NULL;
#define FIND(result, name, arguments)                                                                                  \
    found = dlsym(RTLD_DEFAULT, #name);                                                                                \
    if (!found) return rcvb_fail(RCV_UNSUPPORTED, "this Python has no function %s", #name);                            \
    memcpy(&python.name, &found, sizeof found);
    PYTHON_FUNCTIONS(FIND)
#undef FIND
    python.none = (object)dlsym(RTLD_DEFAULT, "_Py_NoneStruct");
    python.runtime_error = read_object("PyExc_RuntimeError");
    python.memory_error = read_object("PyExc_MemoryError");
    bool complete = python.none && python.runtime_error && python.memory_error;
    return complete ? RCV_OK : rcvb_fail(RCV_UNSUPPORTED, "this Python lacks an object that recurve needs");
}
