/* OpenBLAS, opened when first needed. */
#ifndef RCVI_OPENBLAS_H
#define RCVI_OPENBLAS_H

#include "recurve_bench.h"

const rcv_openblas *rcvi_openblas(void); /* NULL where there is none */
const char *rcvi_openblas_absence(void); /* a sentence that says why there is none; NULL: there is */

#endif
