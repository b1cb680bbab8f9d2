/* Functions of Python's stable interface, found at run time in the process's own interpreter. */
#ifndef RCVB_PYTHON_H
#define RCVB_PYTHON_H

#include "call/call.h"

typedef struct py_object *object;
typedef object (*fast_method)(object self, object const *arguments, intptr_t count);

/* A function's description, as Python lays it out. */
typedef struct {
    const char *name;
    fast_method method;
    int flags;
    const char *documentation;
} method_definition;

enum { METHOD_IS_FAST = 0x80 };

/* X(result, name, arguments) */
#define PYTHON_FUNCTIONS(X)                                                                                            \
    X(object, PyCFunction_NewEx, (method_definition *, object, object))                                                \
    X(long long, PyLong_AsLongLong, (object))                                                                          \
    X(object, PyTuple_New, (intptr_t))                                                                                 \
    X(int, PyTuple_SetItem, (object, intptr_t, object))                                                                \
    X(object, PyDict_GetItemWithError, (object, object))                                                               \
    X(intptr_t, PyTuple_Size, (object))                                                                                \
    X(object, PyTuple_GetItem, (object, intptr_t))                                                                     \
    X(intptr_t, PySequence_Size, (object))                                                                             \
    X(object, PySequence_GetItem, (object, intptr_t))                                                                  \
    X(object, PyObject_Type, (object))                                                                                 \
    X(object, PyObject_CallMethodObjArgs, (object, object, ...))                                                       \
    X(object, PyUnicode_InternFromString, (const char *))                                                              \
    X(object, PyErr_Occurred, (void))                                                                                  \
    X(void, PyErr_Clear, (void))                                                                                       \
    X(void *, PyEval_SaveThread, (void))                                                                               \
    X(void, PyEval_RestoreThread, (void *))                                                                            \
    X(void, Py_IncRef, (object))                                                                                       \
    X(void, Py_DecRef, (object))

typedef struct {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration */
#define MEMBER(result, name, arguments) result(*name) arguments;
    PYTHON_FUNCTIONS(MEMBER)
#undef MEMBER
    object none, no, tuple_class, list_class; /* None, False, tuple, list */
} rcvb_python;

extern rcvb_python python;

/* Finds the functions; RCV_UNSUPPORTED where the process has no Python that has them. */
rcv_status rcvb_find_python(void);

#endif
