/* exp, sigmoid and tanh with instructions of AVX-512: 2^n a for any n (VSCALEFPS), an estimate of the reciprocal, and a lookup in a
 * table of 32 numbers (VPERMT2PS). Included by kernels/functions.h. */

static inline real_vector at_least(real_vector x, float least) {
    return (real_vector)_mm512_max_ps(_mm512_set1_ps(least), (__m512)x);
}
static inline real_vector at_most(real_vector x, float most) {
    return (real_vector)_mm512_min_ps(_mm512_set1_ps(most), (__m512)x);
}

/* x = whole ln 2 + r with |r| <= ln 2 / 2, for |x| < 2^20; returns e^r, or e^-r where `inverse`. */
static inline __m512 reduced_exp(__m512 x, const bool inverse, __m512 *whole) {
    const __m512 shift = _mm512_set1_ps(12582912.0f); /* 1.5 * 2^23: a number added to it is rounded to an integer */
    const __m512 high = _mm512_set1_ps(0.693359375f), low = _mm512_set1_ps(-2.12194440e-4f); /* ln 2; high of 10 bits */
    *whole = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(1.44269504f), shift), shift);
    __m512 r = inverse ? _mm512_fmadd_ps(*whole, low, _mm512_fmsub_ps(*whole, high, x))
                       : _mm512_fnmadd_ps(*whole, low, _mm512_fnmadd_ps(*whole, high, x));
    __m512 square = _mm512_mul_ps(r, r);
    __m512 upper = _mm512_fmadd_ps(r, _mm512_set1_ps(1.395062893e-03f), _mm512_set1_ps(8.368969895e-03f));
    __m512 lower = _mm512_fmadd_ps(r, _mm512_set1_ps(1.666651815e-01f), _mm512_set1_ps(0.5f));
    upper = _mm512_fmadd_ps(upper, r, _mm512_set1_ps(4.166620225e-02f));
    upper = _mm512_fmadd_ps(upper, square, lower);
    return _mm512_add_ps(_mm512_fmadd_ps(upper, square, r), _mm512_set1_ps(1));
}

static inline real_vector vector_exp(real_vector x) {
    __m512 whole, near_one = reduced_exp((__m512)at_most(at_least(x, LEAST_EXPONENT), MOST_EXPONENT), false, &whole);
    return (real_vector)_mm512_scalef_ps(near_one, whole);
}

/* 1 / (1 + 2^-n e^-r) as 2^n / (2^n + e^-r): where the result is small, the reciprocal is that of a number near 1. */
static inline real_vector vector_sigmoid(real_vector x) {
    const __m512 one = _mm512_set1_ps(1);
    __m512 whole, near_one = reduced_exp((__m512)at_most(at_least(x, LEAST_EXPONENT), 30.0f), true, &whole);
    __m512 sum = _mm512_add_ps(near_one, _mm512_scalef_ps(one, whole)), inverse = _mm512_rcp14_ps(sum);
    inverse = _mm512_fmadd_ps(_mm512_fnmadd_ps(sum, inverse, one), inverse, inverse);
    return (real_vector)_mm512_scalef_ps(inverse, whole);
}

/* Polynomials for tanh |x|, each over a quarter of a binade. Row 0: centres c near the middle of the interval, chosen so that
 * tanh c (row 1) is a float up to a thousandth of its last place. Rows 2 to 6: coefficients in |x| - c of least error. The index
 * is the last three bits of the exponent and two bits of the mantissa: 16 begins at 1/8, 0 at 2, 11 at 14; 15 is for all |x|
 * below 1/8. */
/* clang-format off */
static const float tanh_table[7][32] __attribute__((aligned(64))) = {
    {2.24957728f, 2.74952292f, 3.24937725f, 3.75070643f, 4.50029421f, 5.49858046f, 6.49897194f, 7.50143051f,
     8.99713898f, 11.002861f, 13.0028601f, 15.00278f, 0, 0, 0, 0, 0.140598401f, 0.171887636f, 0.203169137f,
     0.234419286f, 0.281213075f, 0.34375155f, 0.406187683f, 0.468835801f, 0.562405646f, 0.687473178f, 0.812374413f,
     0.937449276f, 1.12532592f, 1.37474239f, 1.62527895f, 1.87465668f},
    {0.978007734f, 0.991851985f, 0.996993899f, 0.998896003f, 0.999753356f, 0.999966502f, 0.99999547f, 0.999999404f,
     0.99999994f, 1.0f, 1.0f, 1.0f, 0, 0, 0, 0, 0.139679223f, 0.170214578f, 0.200419083f, 0.230217651f, 0.274027437f,
     0.330822498f, 0.385230899f, 0.437258184f, 0.509760141f, 0.596356273f, 0.67089802f, 0.734048128f, 0.809413493f,
     0.879768491f, 0.92538631f, 0.95401442f},
    {0.0435008667f, 0.0162296426f, 0.00600316655f, 0.00220677676f, 0.000493241765f, 6.69962246e-05f, 9.06012883e-06f,
     1.22011272e-06f, 6.12694393e-08f, 1.10941944e-09f, 2.0319765e-11f, 3.72229103e-13f, 0, 0, 0, 1.0f, 0.980489731f,
     0.971027017f, 0.959832191f, 0.946999848f, 0.924908936f, 0.890556455f, 0.85159713f, 0.808805287f, 0.74014461f,
     0.644359171f, 0.549895823f, 0.461173356f, 0.344849795f, 0.226007402f, 0.143660173f, 0.089856483f},
    {-0.0425429754f, -0.0160964802f, -0.0059847096f, -0.00220417906f, -0.000492503692f, -6.69100264e-05f,
     -9.04871467e-06f, -1.66182031e-06f, 1.6948573e-07f, -5.47130963e-09f, -1.00210722e-10f, -1.83571344e-12f, 0, 0, 0,
     3.11378614e-07f, -0.136954069f, -0.16528295f, -0.192368656f, -0.218016088f, -0.253450394f, -0.294616073f,
     -0.328061521f, -0.353656709f, -0.377295971f, -0.384267569f, -0.368924081f, -0.338523537f, -0.279128015f,
     -0.198835343f, -0.132941589f, -0.0857244507f},
    {0.027108809f, 0.0105560077f, 0.00396586442f, 0.00146618055f, 0.000328141672f, 4.46062768e-05f, 6.03253375e-06f,
     8.07796141e-07f, 3.91310202e-08f, 7.06476544e-10f, 1.293975e-11f, 2.37276805e-13f, 0, 0, 0, -0.333355606f,
     -0.307700276f, -0.295542091f, -0.281389713f, -0.265475482f, -0.238850594f, -0.199386522f, -0.157486275f,
     -0.114962511f, -0.0543847233f, 0.0143736042f, 0.0642114952f, 0.0947679207f, 0.110979676f, 0.0995932519f,
     0.0751360655f, 0.0518304296f},
    {-0.0123938555f, -0.00515203644f, -0.00198025722f, -0.000738195784f, -0.000171849373f, -2.3382343e-05f,
     -3.16282558e-06f, 1.34235461e-06f, -2.53590002e-07f, 3.92922006e-09f, 7.19663079e-11f, 1.31831048e-12f, 0, 0, 0,
     0.000472135173f, 0.0887187421f, 0.105380729f, 0.120397188f, 0.133849114f, 0.149839222f, 0.164062306f,
     0.169935018f, 0.168082088f, 0.153284356f, 0.119454704f, 0.0799355209f, 0.0433700644f, 0.00361720379f,
     -0.0211013537f, -0.0251262598f, -0.0208578538f},
    {0.00397561677f, 0.00191598665f, 0.000771183753f, 0.000292939629f, 6.8589703e-05f, 9.31894647e-06f,
     1.26184955e-06f, 2.09339234e-07f, 1.20039774e-08f, 2.21131558e-10f, 4.04986461e-12f, 7.37121884e-14f, 0, 0, 0,
     0.129989058f, 0.111910924f, 0.102140441f, 0.0908991545f, 0.0787995756f, 0.0590545721f, 0.0319560952f,
     0.00593100162f, -0.0171557106f, -0.043455489f, -0.061550945f, -0.0626558512f, -0.0530552082f, -0.0320455544f,
     -0.00952719338f, 0.00138690078f, 0.00459761964f}};
/* clang-format on */

static inline __m512 look_up(__m512i index, int row) {
    return _mm512_permutex2var_ps(_mm512_load_ps(tanh_table[row]), index, _mm512_load_ps(tanh_table[row] + 16));
}

static inline real_vector vector_tanh(real_vector x) {
    __m512 y = (__m512)at_most(magnitude(x), 10.0f);
    __m512i below = _mm512_castps_si512(_mm512_set1_ps(0.109375f)); /* of index 15 */
    __m512i index = _mm512_srli_epi32(_mm512_max_epi32((__m512i)y, below), 21);
    __m512 t = _mm512_sub_ps(y, look_up(index, 0)), sum = look_up(index, 6);
    for (int row = 5; row > 0; row--) sum = _mm512_fmadd_ps(sum, t, look_up(index, row));
    return (real_vector)((bits_vector)sum | ((bits_vector)x & INT32_MIN));
}
