/* The context, its allocator, and the log. */
#if defined(__linux__)
#define _GNU_SOURCE /* madvise, sched_getaffinity */
#else
#define _DEFAULT_SOURCE
#endif
#include "base/cache.h"

#if defined(__linux__)
#include <sched.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Large blocks hold matrices that are read many times. Huge pages, if the system has them, avoid TLB misses, and the hardware prefetcher
 * does not stop at 4 KB boundaries. */
static void *default_allocate(void *user, size_t bytes) {
    (void)user;
#if defined(MADV_HUGEPAGE)
    const size_t page = 2 << 20;
    if (bytes >= page / 2 && bytes <= SIZE_MAX - page) {
        bytes = (bytes + page - 1) / page * page;
        void *memory = aligned_alloc(page, bytes);
        if (memory) madvise(memory, bytes, MADV_HUGEPAGE); /* a hint: failure is harmless */
        return memory;
    }
#endif
    return malloc(bytes);
}

static void default_release(void *user, void *memory) {
    (void)user;
    free(memory);
}

int64_t rcvi_cores(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > RCVI_MAX_THREADS ? RCVI_MAX_THREADS : cores;
}

int64_t rcvi_available_cores(void) {
    int64_t all = rcvi_cores(), own = 0;
#if defined(__linux__)
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) own = CPU_COUNT(&set);
#endif
    return own < 1 || own > all ? all : own;
}

static rcv_status check_options(const rcv_context_options *options) {
    if (options->allocator && (!options->allocator->allocate || !options->allocator->release))
        return rcvi_fail(RCV_INVALID, "an allocator needs both allocate and release");
    if (options->threads < 0 || options->threads > RCVI_MAX_THREADS) {
        return rcvi_fail(RCV_INVALID, "%lld threads are not 1 to %d, or 0 for one a core", (long long)options->threads,
                         RCVI_MAX_THREADS);
    }
    return RCV_OK;
}

/* RECURVE_ONLY is for measurements: times are meaningless for other calls. */
static bool caches_wisdom(void) {
    const char *wisdom = getenv("RECURVE_WISDOM");
    return !(wisdom && !strcmp(wisdom, "off")) && !getenv("RECURVE_ONLY");
}

/* Copies the options other than the allocator. */
static rcv_status copy_options(rcv_context *context, const rcv_context_options *options) {
    context->log = options->log;
    context->log_user = options->log_user;
    context->threads = options->threads;
    RCVI_TRY(rcvi_cache_folder(context, options->cache, &context->cache));
    context->writes_wisdom = context->cache && caches_wisdom();
    context->reads_wisdom = context->writes_wisdom && !options->replan;
    if (!options->kernels) return RCV_OK;
    context->kernels = rcvi_copy_text(context, options->kernels, strlen(options->kernels));
    return context->kernels ? RCV_OK : RCV_NO_MEMORY;
}

rcv_status rcv_context_new(const rcv_context_options *options, rcv_context **context) {
    RCVI_NEED(context, "context");
    *context = NULL;
    RCVI_READ(rcv_context_options, options, "options");
    RCVI_TRY(check_options(options));
    rcv_allocator allocator = {default_allocate, default_release, NULL};
    if (options->allocator) allocator = *options->allocator;
    rcv_context *made = allocator.allocate(allocator.user, sizeof *made);
    if (!made) return rcvi_no_memory(sizeof *made);
    memset(made, 0, sizeof *made);
    made->allocator = allocator;
    if (copy_options(made, options) != RCV_OK) {
        rcvi_free(made, made->cache);
        allocator.release(allocator.user, made);
        return rcvi_fail(RCV_NO_MEMORY, "no memory for a context");
    }
    *context = made;
    return RCV_OK;
}

void rcv_context_free(rcv_context *context) {
    if (!context) return;
    if (context->wisdom) context->free_wisdom(context, context->wisdom);
    rcvi_free(context, context->kernels);
    rcvi_free(context, context->cache);
    rcv_allocator allocator = context->allocator;
    allocator.release(allocator.user, context);
}

int64_t rcv_context_threads(const rcv_context *context) { return context->threads ? context->threads : rcvi_cores(); }

void rcv_text_free(rcv_context *context, char *text) { rcvi_free(context, text); }

void *rcvi_allocate(rcv_context *context, size_t bytes) {
    void *memory = context->allocator.allocate(context->allocator.user, bytes ? bytes : 1);
    if (!memory) rcvi_no_memory(bytes);
    return memory;
}

void *rcvi_new(rcv_context *context, size_t count, size_t size) {
    if (size != 0 && count > SIZE_MAX / size) {
        rcvi_fail(RCV_NO_MEMORY, "no memory for %zu elements of %zu bytes", count, size);
        return NULL;
    }
    size_t bytes = count * size;
    void *memory = rcvi_allocate(context, bytes);
    return memory ? memset(memory, 0, bytes) : NULL;
}

void rcvi_free(rcv_context *context, void *memory) {
    if (memory) context->allocator.release(context->allocator.user, memory);
}

bool rcvi_grow(rcv_context *context, void *array_pointer, size_t *capacity, size_t needed, size_t size) {
    if (needed <= *capacity) return true;
    size_t wanted = *capacity > SIZE_MAX / 2 ? SIZE_MAX : *capacity * 2;
    if (wanted < 8) wanted = 8;
    if (wanted < needed) wanted = needed;
    void *bigger = rcvi_new(context, wanted, size);
    if (!bigger) return false;
    /* array_pointer is the address of a pointer of any type, so it is read and written as bytes. */
    void *old;
    memcpy(&old, array_pointer, sizeof old);
    if (old) memcpy(bigger, old, *capacity * size);
    memcpy(array_pointer, &bigger, sizeof bigger);
    *capacity = wanted;
    rcvi_free(context, old);
    return true;
}

char *rcvi_copy_text(rcv_context *context, const char *text, size_t length) {
    if (length == SIZE_MAX) {
        rcvi_no_memory(length);
        return NULL;
    }
    char *copy = rcvi_new(context, length + 1, 1);
    if (copy && length > 0) memcpy(copy, text, length);
    return copy;
}

void rcvi_log(rcv_context *context, const char *format, ...) {
    if (!context->log) return;
    char line[1024], escaped[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0) return;
    rcv_escape(line, strlen(line), "", escaped, sizeof escaped);
    context->log(context->log_user, escaped);
}
