/* The peak rate of multiply-adds on registers, for one type. Included after kernels/product.h with what that expects, and
 *
 *   SUMS      number of independent accumulators: enough to keep the units busy, few enough to stay in registers
 *   REGISTER  inline assembly's constraint of a vector register
 *   SMALL     an operand whose square is small compared with 1
 *
 * An empty assembly statement makes the operand appear modified in each iteration, so that the compiler does not hoist products out
 * of the loop. Sums stop growing long before they overflow. */
static double NAME(peak)(int64_t repeats) {
    NAME(vector) sums[SUMS];
    OPERAND x = SMALL;
    NAME(operands) y = (NAME(operands)){0} + SMALL;
    _Pragma("GCC unroll 32") for (int i = 0; i < SUMS; i++) sums[i] = (NAME(vector)){0};
    for (int64_t repeat = 0; repeat < repeats; repeat++) {
        _Pragma("GCC unroll 32") for (int i = 0; i < SUMS; i++) {
            __asm__ volatile("" : "+" REGISTER(y));
            sums[i] = MULTIPLY_ADD(sums[i], x, y);
        }
    }
    _Pragma("GCC unroll 32") for (int i = 0; i < SUMS; i++) __asm__ volatile("" : : REGISTER(sums[i]));
    return 2.0 * GROUP * SUMS * LANES * (double)repeats;
}
