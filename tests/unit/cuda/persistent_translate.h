/* The text of a persistent kernel, translated and compiled for the host: instructions of the GPU are replaced by calls of the emulation in
 * persistent_host.h. */
#ifndef PERSISTENT_TRANSLATE_H
#define PERSISTENT_TRANSLATE_H

#include "scratch.h"
#include "test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the text has, and what replaces or follows it on the host. */
static const struct {
    const char *from, *to;
    bool optional;
} replaced[] = {
    {"INLINE void barrier_make(unsigned at, int count) {", "make_barrier(at, count); return;", false},
    {"INLINE void barrier_arrive(unsigned at) {", "arrive(at, 0); return;", false},
    {"INLINE void barrier_wait(unsigned at, unsigned parity) {", "wait_phase(at, parity); return;", false},
    {"INLINE void copy_async(unsigned to, unsigned long long from, int bytes) {",
     "copy_piece(to, from, bytes); return;", false},
    {"INLINE void copies_commit() {", "commit_copies(); return;", false},
    {"template <int PENDING> INLINE void copies_wait() {", "wait_for_copies(PENDING); return;", false},
    {"INLINE void read_segment(unsigned at, unsigned (&x)[4]) {", "get_shared(at, x); return;", false},
    {"INLINE void write_segment(unsigned at, const unsigned (&x)[4]) {", "put_shared(at, x); return;", false},
    {"INLINE void copy_bulk(unsigned to, unsigned long long from, int bytes, unsigned barrier) {",
     "copy_chunks(to, from, bytes, barrier); return;", false},
    {"INLINE void increment_counter(unsigned long long counter) {", "increment_on_host(counter); return;", false},
    {"INLINE void store_words(unsigned long long at, const unsigned (&words)[VECTOR]) {",
     "put_words(at, words); return;", false},
    {"INLINE void load_relaxed(unsigned long long at, int wanted, Group<float> &x) {",
     "get_words(at, wanted, x.at, sizeof x.at); return;", false},
    {"const unsigned (&a)[4], unsigned long long b, int more) {", "multiply_on_host(sums, a, 0, b, more); return;",
     true},
    {"unsigned long long a, unsigned long long b, int more) {", "multiply_on_host(sums, nullptr, a, b, more); return;",
     true},
    {"INLINE void write_sum(unsigned at, float x, bool there) {", "if (there) put_shared(at, x); return;", false},
    {"INLINE void load_matrices(unsigned at, unsigned (&x)[4]) {", "load_on_host(at, x); return;", false},
    {"INLINE void multiply_rows(float *sums, const unsigned (&a)[4], unsigned low, unsigned high) {",
     "multiply_rows_on_host(sums, a, low, high); return;", false},
    {"INLINE bool barrier_passed(unsigned at, unsigned parity) {", "return has_passed(at, parity);", false},
    {"INLINE void barrier_expect(unsigned at, int bytes) {", "arrive(at, bytes); return;", false},
    {"INLINE void send_segment(unsigned to, const unsigned (&x)[4], unsigned barrier) {",
     "send_to(to, x, barrier); return;", true},
    {"INLINE void sync_cluster() {", "sync_whole_cluster(); return;", true},
    {"INLINE void wait_for_peers(const Words &c, unsigned barrier, unsigned parity) {",
     "wait_phase(barrier, parity); return;", true},
    /* from here on instead of it, before after it */
    {"asm(\"mapa.shared::cluster.u32 %0, %1, %2;\" : \"=r\"(there) : \"r\"(at), \"r\"(peer));",
     "there = address_in(at, peer);", true},
    {"(unsigned)__cvta_generic_to_shared(at)", "shared_number(at)", false},
    {"extern __shared__ __align__(1024) unsigned char shared_memory[];", "#define shared_memory (own_block().memory)",
     false},
    {"asm(\"cvt.rna.tf32.f32 %0, %1;\" : \"=r\"(y) : \"f\"(x));", "y = (__float_as_uint(x) + 0x1000) & 0xffffe000;",
     false},
    {"asm(\"tanh.approx.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));", "y = tanhf(x);", false},
    {"asm volatile(\"ld.acquire.gpu.global.u32 %0, [%1];\" : \"=r\"(x) : \"l\"(counter) : \"memory\");",
     "x = look_at(counter);", false},
    {"asm volatile(\"bar.sync 0;\" ::: \"memory\");", "sync_at(0, HOST_THREADS);", false},
    {"asm volatile(\"bar.sync 1, %0;\" ::\"n\"((int)MAP_THREADS) : \"memory\");", "sync_at(1, MAP_THREADS);", false},
    {"asm volatile(\"bar.sync 1, 256;\" ::: \"memory\");", "sync_at(1, 256);", true},
    {"asm volatile(\"bar.sync 4, 256;\" ::: \"memory\");", "sync_at(4, 256);", false},
    {"asm volatile(\"bar.sync %0, 128;\" ::\"n\"(2 + PIPE) : \"memory\");", "sync_at(2 + PIPE, 128);", false},
    {"asm volatile(\"ld.shared.b32 %0, [%1];\" : \"=r\"(a[c * 4 + j][r]) : \"r\"(at) : \"memory\");",
     "get_shared(at, a[c * 4 + j][r]);", false},
    {"asm volatile(\"st.shared.f32 [%0], %1;\" ::\"r\"(at), \"f\"(STARTED ? sums[i] + start : sums[i]) : \"memory\");",
     "put_shared(at, STARTED ? sums[i] + start : sums[i]);", true},
};
enum { REPLACED = sizeof replaced / sizeof *replaced, BEHIND = 22 };

/* Instructions that need nothing on the host, or that follow what is done instead. */
static const char *const known[] = {"\"",           "cp.async.",   "fence.",    "wgmma.fence",   "wgmma.commit",
                                    "wgmma.wait",   "setmaxnreg.", "{\\n.reg",  "mbarrier.init", "ld.shared.v4",
                                    "st.shared.v4", "red.release", "ldmatrix.", "st.relaxed",    "barrier.cluster"};

static char *replace(char *text, size_t n) {
    const char *from = replaced[n].from, *to = replaced[n].to;
    size_t length = strlen(from), keep = n < BEHIND ? length : 0, count = 0;
    for (char *at = strstr(text, from); at; at = strstr(at + length, from)) count++;
    if (!count && !replaced[n].optional) fail_msg("the kernel's text has no '%s'", from);
    char *out = malloc(strlen(text) + count * (strlen(to) + length) + 1), *end = out;
    assert_non_null(out);
    for (char *at = text;;) {
        char *next = strstr(at, from);
        size_t before = next ? (size_t)(next - at) + keep : strlen(at);
        memcpy(end, at, before);
        end += before;
        if (!next) break;
        end += sprintf(end, "%s", to);
        at = next + length;
    }
    *end = '\0';
    free(text);
    return out;
}

static void check_known(const char *text) {
    static const char mark[] = "asm volatile(\"";
    for (const char *at = strstr(text, mark); at; at = strstr(at + 1, mark)) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found |= !strncmp(at + strlen(mark), known[i], strlen(known[i]));
        if (!found) fail_msg("the host does not know %.60s", at);
    }
}

typedef int runner(const void *words, int blocks);
static runner *run_kernel;

/* A file of this kind for kernel `number`: a name is expected once. */
static const char *file_of(int number, const char *kind) {
    char name[40];
    snprintf(name, sizeof name, "host%d.%s", number, kind);
    return path_in(name);
}

static void write_for_host(const char *source, int number) {
    char *text = strdup(source);
    assert_non_null(text);
    for (size_t n = 0; n < REPLACED; n++) text = replace(text, n);
    check_known(text);
    const char *types = strstr(text, "/* Elements of views");
    assert_non_null(types);
    FILE *file = fopen(file_of(number, "cpp"), "w");
    assert_non_null(file);
    fwrite(text, 1, (size_t)(types - text), file); /* macros */
    fprintf(file, "#include \"%s/tests/unit/cuda/persistent_host.h\"\n%s\n", RCV_SOURCE_DIR, types);
    fprintf(file, "#include \"%s/tests/unit/cuda/persistent_host_run.h\"\n", RCV_SOURCE_DIR);
    assert_int_equal(fclose(file), 0);
    free(text);
}

/* All at once. */
static void compile_for_host(int first, int end) {
    char command[4000];
    int at = 0;
    for (int n = first; n < end; n++) {
        at += snprintf(command + at, sizeof command - (size_t)at,
                       "${CXX:-c++} -std=c++17 -D__device__= -O0 -w -fno-strict-aliasing -shared -fPIC -o %s",
                       file_of(n, "so"));
        at += snprintf(command + at, sizeof command - (size_t)at, " %s & ", file_of(n, "cpp"));
        assert_true((size_t)at < sizeof command - 10);
    }
    strcpy(command + at, "wait");
    assert_int_equal(system(command), 0);
}

static void *open_for_host(int number) {
    void *open = dlopen(file_of(number, "so"), RTLD_NOW | RTLD_LOCAL);
    if (!open) fail_msg("the host's compiler refuses the text: %s", dlerror());
    unlink(file_of(number, "cpp"));
    unlink(file_of(number, "so"));
    return open;
}

#endif
