/* Multiply-adds from registers, for one type. Included behind kernels/product.h with what that expects, and
 *
 *   SUMS      independent sums: as many as keep the units busy and stay in registers
 *   REGISTER  the letter by which inline assembly knows a vector register
 *   SMALL     an operand whose square is small beside 1
 *
 * An empty piece of assembly makes an operand look new each time, so that no product is computed ahead. Sums stop growing
 * long before they overflow. */
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
