/* Functions on rows and elements, in float. */
#define REAL float
#define MAP map_float
#define EXP_SUM exp_sum_float
#define TABLE rcvi_learn_float
#include "device/cpu/learn/rows_real.h"

#include "device/cpu/learn/update_real.h"

#include "device/cpu/learn/table_real.h"
