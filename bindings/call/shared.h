/* What the files of this folder share: the lock, messages. */
#ifndef RCVB_SHARED_H
#define RCVB_SHARED_H

#include "call/call.h"

/* The lock of all tables; held over fork(). */
void rcvb_lock(void);
void rcvb_unlock(void);
/* Sets the thread's message and returns the status. */
__attribute__((format(printf, 2, 3))) rcv_status rcvb_fail(rcv_status status, const char *format, ...);
/* The same with the library's message; RCV_OK leaves it. */
rcv_status rcvb_pass(rcv_status status);

#endif
