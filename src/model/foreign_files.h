/* Files of other formats, which someone may give in place of safetensors. */
#ifndef RCVI_FOREIGN_FILES_H
#define RCVI_FOREIGN_FILES_H

#include "base/base.h"

enum { RCVI_FOREIGN_BYTES = 512 }; /* of the beginning of a file that are looked at */

/* RCV_FORMAT with a sentence that says which format the file has and what to do; RCV_OK where none is recognised. `bytes`: the first
 * RCVI_FOREIGN_BYTES of the file, or all `length` of a shorter one. */
rcv_status rcvi_refuse_foreign_file(const char *file, const unsigned char *bytes, size_t length);

#endif
