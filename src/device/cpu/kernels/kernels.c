/* The list of kernel sets that this machine can run. Each set overrides parts of the set below it; the list is built once. */
#define _DEFAULT_SOURCE /* syscall */
#include "device/cpu/kernels/kernels.h"

#include "recurve.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

extern const rcvi_kernels rcvi_kernels_portable;
extern const rcvi_kernels rcvi_kernels_neon, rcvi_kernels_neon_bf16;
extern const rcvi_kernels rcvi_kernels_avx2, rcvi_kernels_avx512, rcvi_kernels_avx512_bf16, rcvi_kernels_amx;

typedef struct {
    const rcvi_kernels *kernels;
    bool (*available)(void); /* called only if the set below is available */
} layer;

static bool always(void) { return true; }

#if defined(__aarch64__)
static bool has_arm_bfloat16(void) {
#if defined(__linux__)
    return getauxval(AT_HWCAP2) >> 14 & 1; /* HWCAP2_BF16 */
#else
    return false;
#endif
}
#endif

#if defined(__x86_64__)
static bool has_float16(void) { /* F16C; older compilers have no __builtin_cpu_supports for it */
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}
static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_float16(); }
static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
static bool has_avx512_bfloat16(void) { return __builtin_cpu_supports("avx512bf16"); }

/* The CPU has AMX-TILE and AMX-BF16, and the operating system saves the tiles (state components 17 and 18) for this process,
 * which must request that. */
static bool has_amx(void) {
#if defined(__linux__)
    const long request_permission = 0x1023, tile_data = 18; /* of arch_prctl */
    unsigned a, b, c, d, enabled, high;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1)) return false;
    __asm__("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
    return (enabled >> 17 & 3) == 3 && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    return false;
#endif
}
#endif

static const layer layers[] = {
    {&rcvi_kernels_portable, always},
#if defined(__aarch64__)
    {&rcvi_kernels_neon, always},
    {&rcvi_kernels_neon_bf16, has_arm_bfloat16},
#elif defined(__x86_64__)
    {&rcvi_kernels_avx2, has_avx2},
    {&rcvi_kernels_avx512, has_avx512},
    {&rcvi_kernels_avx512_bf16, has_avx512_bfloat16},
    {&rcvi_kernels_amx, has_amx},
#endif
};
enum { LAYERS = sizeof layers / sizeof *layers };

/* Written once, under `once`, then only read. */
static rcvi_kernels sets[LAYERS];
static size_t available;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void override(rcvi_kernels *set, const rcvi_kernels *above) {
    set->name = above->name;
    set->what = above->what;
    for (int type = 0; type < RCVI_KERNEL_TYPES; type++) {
        if (above->products[type].product) set->products[type] = above->products[type];
        if (above->peak[type]) set->peak[type] = above->peak[type];
    }
    for (int operation = 0; operation < RCVI_OPERATION_COUNT; operation++) {
        if (above->map_float[operation]) set->map_float[operation] = above->map_float[operation];
        if (above->map_double[operation]) set->map_double[operation] = above->map_double[operation];
    }
    if (above->exp_sum_float) set->exp_sum_float = above->exp_sum_float;
    if (above->exp_sum_double) set->exp_sum_double = above->exp_sum_double;
    for (int type = 0; type < RCVI_SCAN_TYPES; type++) {
        if (above->scans[type].forward) set->scans[type] = above->scans[type];
    }
    if (above->stream_sum) set->stream_sum = above->stream_sum;
    if (above->narrow) set->narrow = above->narrow;
    if (above->narrow_transposed) set->narrow_transposed = above->narrow_transposed;
    if (above->transpose_narrow) set->transpose_narrow = above->transpose_narrow;
    if (above->widen) set->widen = above->widen;
    if (above->begin) set->begin = above->begin;
    if (above->end) set->end = above->end;
}

static void find_sets(void) {
    available = 0;
    for (size_t i = 0; i < LAYERS && layers[i].available(); i++, available++) {
        if (i > 0) memcpy(&sets[i], &sets[i - 1], sizeof *sets);
        override(&sets[i], layers[i].kernels);
    }
}

size_t rcvi_kernels_count(void) {
    pthread_once(&once, find_sets);
    return available;
}

const rcvi_kernels *rcvi_kernels_at(size_t index) { return index < rcvi_kernels_count() ? &sets[index] : NULL; }

const rcvi_kernels *rcvi_kernels_find(const char *name) {
    for (size_t i = 0; i < rcvi_kernels_count(); i++) {
        if (!strcmp(sets[i].name, name)) return &sets[i];
    }
    return NULL;
}

int64_t rcvi_packed_elements(const rcvi_product_kernels *kernels, int64_t columns, int64_t depth) {
    int64_t panels = (columns + kernels->panel - 1) / kernels->panel;
    int64_t groups = (depth + kernels->group - 1) / kernels->group;
    return panels * kernels->panel * groups * kernels->group;
}

size_t rcv_kernels_count(void) { return rcvi_kernels_count(); }

const char *rcv_kernels_name(size_t index) {
    const rcvi_kernels *kernels = rcvi_kernels_at(index);
    return kernels ? kernels->name : NULL;
}
