/* What the files of this folder share: the lock, messages. */
#ifndef RCVB_SHARED_H
#define RCVB_SHARED_H

#include "call/call.h"

/* The lock of all tables; held over fork(). */
void rcvb_lock(void);
void rcvb_unlock(void);
/* Sets the thread's message. */
__attribute__((format(printf, 1, 2))) void rcvb_set_message(const char *format, ...);
/* The same, and the status, as one expression: rcvb_fail(status, format, ...). A macro, so that readers and analysers see the status. */
#define rcvb_fail(status, ...) (rcvb_set_message(__VA_ARGS__), (status))
/* The same with the library's message; RCV_OK leaves it. */
rcv_status rcvb_pass(rcv_status status);

#endif
