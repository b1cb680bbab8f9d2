/* Python's stable interface. */
#include "torch/python.h"
#include "call/shared.h"

#include <dlfcn.h>
#include <string.h>

rcvb_python python;

rcv_status rcvb_find_python(void) {
    void *found = NULL;
#define FIND(result, name, arguments)                                                                                  \
    found = dlsym(RTLD_DEFAULT, #name);                                                                                \
    if (!found) return rcvb_fail(RCV_UNSUPPORTED, "this Python has no function %s", #name);                            \
    memcpy(&python.name, &found, sizeof found);
    PYTHON_FUNCTIONS(FIND)
#undef FIND
    python.none = (object)dlsym(RTLD_DEFAULT, "_Py_NoneStruct");
    python.no = (object)dlsym(RTLD_DEFAULT, "_Py_FalseStruct");
    python.tuple_class = (object)dlsym(RTLD_DEFAULT, "PyTuple_Type");
    python.list_class = (object)dlsym(RTLD_DEFAULT, "PyList_Type");
    bool complete = python.none && python.no && python.tuple_class && python.list_class;
    return complete ? RCV_OK : rcvb_fail(RCV_UNSUPPORTED, "this Python lacks an object that recurve needs");
}
