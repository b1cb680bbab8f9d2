/* Functions on rows and elements, in double. */
#define REAL double
#define MAP map_double
#define EXP_SUM exp_sum_double
#define TABLE rcvi_learn_double
#include "device/cpu/learn/rows_real.h"

#include "device/cpu/learn/update_real.h"

#include "device/cpu/learn/table_real.h"
