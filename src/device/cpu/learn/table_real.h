/* The work on elements in one type: included behind the other learn_*_real.h, with TABLE defined. */
const rcvi_learn_real TABLE = {.gather = gather,
                               .scatter = scatter,
                               .mask = mask,
                               .softmax = softmax,
                               .square = square,
                               .add_bias = add_bias,
                               .sum_bias = sum_bias,
                               .norm = norm,
                               .update = update};
