/* What stands around a network while it learns (src/device/learn.h), on any device: every call against a plain loop in double.
 *
 * How to call them: open a context, fill in a subject and run all cases with each dtype that the device has:
 *
 *     learn_subject subject = {context, &rcvi_device_cuda, 0, RCV_FLOAT32, 0};
 *     learn_cases_run(&subject);
 *
 * They fail as cmocka's asserts do, with the case's name printed before. Arrays lie in memory of device->memory, or of malloc
 * where that is NULL, and are written and read by learns->send and learns->fetch alone. */
#ifndef RECURVE_LEARN_CASES_H
#define RECURVE_LEARN_CASES_H

#include "device/device.h"
#include "device/learn.h"
#include "test.h"

typedef struct {
    rcv_context *context;
    const rcvi_device *device;
    int ordinal;
    rcv_dtype dtype;
    int64_t threads; /* 0: as the context says */
    bool lean;       /* worlds are opened so */
    int64_t spare;   /* elements that a lean world is lent */
} learn_subject;

typedef struct {
    const char *name;
    void (*check)(const learn_subject *subject);
} learn_case;

extern const learn_case learn_cases[];
extern const size_t learn_case_count;

void learn_cases_run(const learn_subject *subject);

/* A hash of all bits that a head, sums over rows and updates of every kind leave, the same whenever they do. */
uint64_t learn_digest(const learn_subject *subject);

#endif
