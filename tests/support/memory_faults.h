/* Every allocation fails once, in time that grows with the number of allocations and not with its square. Where an allocation is
 * asked for, fork() makes a child. In the child it fails; the child goes on to its checks and ends. In the parent it succeeds, after the
 * child has ended with status 0.
 *
 *     memory_faults_begin(&allocator);
 *     status = the calls under test
 *     memory_faults_stop(&allocator);
 *     free everything, check `status` (RCV_NO_MEMORY where allocator.failed is 1), check allocator.live
 *     count = memory_faults_end(&allocator);   // only the parent returns
 *
 * The calls must not write files: a child would take back what its parent is about to do. For those see test_trainer_memory.c. */
#ifndef RECURVE_MEMORY_FAULTS_H
#define RECURVE_MEMORY_FAULTS_H

#include "sample.h"
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

enum {
    MEMORY_FAULT_SECONDS = 120, /* in which a child must have ended */
    MEMORY_FAULT_GROUP =
        32 /* allocations; where `sparse` is set and a part of a sweep is asked for, a quarter of such groups fail */
};

/* Waits for a child; its exit status. One that a signal ended fails the test. */
static inline int memory_fault_wait(pid_t child, size_t allocation) {
    int status = 0;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status)) fail_msg("signal %d after allocation %zu failed", WTERMSIG(status), allocation);
    return WEXITSTATUS(status);
}

/* fork() with nothing left to print twice. */
static inline pid_t memory_fault_fork(void) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) alarm(MEMORY_FAULT_SECONDS);
    return child;
}

static inline bool memory_fault_here(test_allocator *self) {
    size_t point = self->points++, group = point / MEMORY_FAULT_GROUP;
    if (!sample_takes(point)) return false;
    if (self->sparse && sample_is_partial() && group % 4 != group / 4 % 4) return false;
    pid_t child = memory_fault_fork();
    if (child == 0) {
        self->in_child = true;
        self->fails = NULL;
        return true;
    }
    int status = memory_fault_wait(child, self->points);
    if (status != 0) fail_msg("allocation %zu failed, and the child's checks too (status %d)", self->points, status);
    self->forked++;
    return false;
}

static inline void memory_faults_begin(test_allocator *self) {
    self->points = self->forked = 0;
    self->fails = memory_fault_here;
}

static inline void memory_faults_stop(test_allocator *self) { self->fails = NULL; }

/* Ends a child. In the parent: how many allocations failed in children. */
static inline size_t memory_faults_end(test_allocator *self) {
    if (self->in_child) {
        assert_int_equal(self->failed, 1);
        fflush(NULL);
        _exit(0);
    }
    return self->forked;
}

#endif
