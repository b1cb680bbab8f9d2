/* The lock of the tables, the process's context, messages. */
#include "call/shared.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static rcv_context *shared;
static _Thread_local char message[1024];

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }
static void watch_fork(void) { pthread_atfork(lock, unlock, unlock); }

void rcvb_lock(void) {
    pthread_once(&once, watch_fork);
    lock();
}
void rcvb_unlock(void) { unlock(); }

void rcvb_set_message(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
}

rcv_status rcvb_pass(rcv_status status) { return status ? rcvb_fail(status, "%s", rcv_message()) : RCV_OK; }

const char *rcvb_message(void) { return message; }

static void print_line(void *user, const char *line) {
    (void)user;
    fprintf(stderr, "recurve: %s\n", line);
}

/* With RECURVE_LOG in the environment the log goes to standard error. */
static rcv_status make_context(rcv_context **context) {
    const char *log = getenv("RECURVE_LOG");
    rcv_context_options options = RCV_INIT(rcv_context_options, .log = log && *log ? print_line : NULL);
    return rcvb_pass(rcv_context_new(&options, context));
}

rcv_status rcvb_context(rcv_context **context) {
    rcv_status status = RCV_OK;
    rcvb_lock();
    if (!shared) status = make_context(&shared);
    *context = shared;
    rcvb_unlock();
    return status;
}
