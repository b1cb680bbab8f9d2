/* The table of functions of one type. Included after rows_real.h and update_real.h, with TABLE defined. */
const rcvi_learn_real TABLE = {.gather = gather,
                               .scatter = scatter,
                               .mask = mask,
                               .softmax = softmax,
                               .square = square,
                               .add_bias = add_bias,
                               .sum_bias = sum_bias,
                               .norm = norm,
                               .update = update};
