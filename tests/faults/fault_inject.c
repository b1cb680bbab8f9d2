/* A library for LD_PRELOAD that makes one call of the program fail, or kills the program there. It depends on nothing of the
 * project. Counting begins with main().
 *
 *   RECURVE_FAULT=count                          counts calls; at the end the log has a line `KIND PLACE COUNT` a place
 *   RECURVE_FAULT=KIND[@PLACE]:N:ACTION[:all]    the N-th call of that kind, at that place if one is given; `all`: and all after it
 *   RECURVE_FAULT_STACK=1                        the stack of the first of these calls goes to standard error, and that of a death
 *   RECURVE_FAULT_LOG=FILE                       gets the lines of a count, or `fired KIND N` for every call that was acted upon
 *
 * ACTION is the name of an error (ENOSPC, ...), `short` (half of a write is written and said to be written), or kill-before,
 * kill-after, kill-within (half of a write is written).
 * A PLACE is a hash of the return addresses on the stack, each relative to its library, so that it is the same in every run.
 * Calls from inside of oneDNN and OpenMP never fail: these end the process by themselves (test_vendor_memory fails what oneDNN reports).
 * A count has a line `foreign 0 COUNT` of them.
 *
 * Allocations and thread creation are interposed. System calls come by a filter of the kernel (seccomp) that sends SIGSYS, so
 * that those inside of the C library (stdio, malloc) are seen as well; those of this file pass the filter by their address. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef enum { ALLOC, MAP, MAPFILE, OPEN, WRITE, SYNC, RENAME, LINK, TRUNCATE, THREAD, KINDS } kind;
static const char *const kind_names[KINDS] = {"alloc", "map",    "mapfile", "open",     "write",
                                              "sync",  "rename", "link",    "truncate", "thread"};

typedef enum { FAIL, SHORT, KILL_BEFORE, KILL_AFTER, KILL_WITHIN } action;
static const char *const action_names[] = {"", "short", "kill-before", "kill-after", "kill-within"};

static const struct {
    const char *name;
    int value;
} errors[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO},       {"ENOMEM", ENOMEM}, {"EMFILE", EMFILE}, {"EACCES", EACCES},
              {"EPERM", EPERM},   {"EAGAIN", EAGAIN}, {"EINTR", EINTR},   {"EXDEV", EXDEV},   {"EFBIG", EFBIG}};

/* What is to happen. */
static struct {
    bool counts, active, all, prints;
    kind kind;
    uint64_t place; /* 0: any */
    long number;
    action action;
    int error;
} fault;
static atomic_long calls[KINDS], here;
static int log_file = -1;
static __thread bool inside; /* what this file calls does not count */

/* ---- system calls that pass the filter ---- */

long fault_raw(long number, long a, long b, long c, long d, long e, long f);
extern const char fault_raw_end[]; /* behind the instruction: where the kernel sees the call */
#if defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
__asm__(
    ".text\n.global fault_raw, fault_raw_end\n.hidden fault_raw, fault_raw_end\n.type fault_raw, %function\n"
    "fault_raw:\n mov x8, x0\n mov x0, x1\n mov x1, x2\n mov x2, x3\n mov x3, x4\n mov x4, x5\n mov x5, x6\n svc #0\n"
    "fault_raw_end:\n ret\n");
#define ARGUMENT(context, i) ((long)(context)->uc_mcontext.regs[i])
#define RESULT(context) ((context)->uc_mcontext.regs[0])
#elif defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
__asm__(
    ".text\n.global fault_raw, fault_raw_end\n.hidden fault_raw, fault_raw_end\n.type fault_raw, @function\n"
    "fault_raw:\n mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n mov %r8, %r10\n mov %r9, %r8\n"
    " mov 8(%rsp), %r9\n syscall\n"
    "fault_raw_end:\n ret\n");
static const int argument_registers[] = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};
#define ARGUMENT(context, i) ((long)(context)->uc_mcontext.gregs[argument_registers[i]])
#define RESULT(context) ((context)->uc_mcontext.gregs[REG_RAX])
#else
#error "fault_inject knows the system calls of aarch64 and x86_64 alone"
#endif

static void write_log(const char *text, size_t length) {
    if (log_file >= 0) fault_raw(SYS_write, log_file, (long)text, (long)length, 0, 0, 0);
}

static void kill_self(void) {
    fault_raw(SYS_kill, fault_raw(SYS_getpid, 0, 0, 0, 0, 0, 0), SIGKILL, 0, 0, 0, 0);
    for (;;) fault_raw(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
}

/* ---- places ---- */

enum { MODULES = 256, DEPTH = 40, PLACES = 1 << 15 };
static struct {
    uintptr_t begin, end;
    bool foreign; /* of a library whose own calls are left alone */
} modules[MODULES];
static int module_count, own_module;
static atomic_long foreign_calls;

static int add_module(struct dl_phdr_info *info, size_t bytes, void *user) {
    (void)bytes, (void)user;
    for (int i = 0; i < info->dlpi_phnum && module_count < MODULES; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
        modules[module_count].begin = info->dlpi_addr + p->p_vaddr;
        modules[module_count].foreign = strstr(info->dlpi_name, "/libdnnl.") || strstr(info->dlpi_name, "/libgomp.");
        modules[module_count++].end = info->dlpi_addr + p->p_vaddr + p->p_memsz;
    }
    return 0;
}

/* 0: inside of a foreign library. */
static uint64_t find_place(void) {
    void *stack[DEPTH];
    const int depth = backtrace(stack, DEPTH);
    uint64_t hash = 1469598103934665603u;
    for (int i = 0; i < depth; i++) {
        const uintptr_t at = (uintptr_t)stack[i];
        int m = 0;
        while (m < module_count && (at < modules[m].begin || at >= modules[m].end)) m++;
        if (m == own_module) continue; /* how this file came here does not matter */
        if (m < module_count && modules[m].foreign) return 0;
        hash = (hash ^ (uint64_t)m) * 1099511628211u;
        if (m < module_count) hash = (hash ^ (at - modules[m].begin)) * 1099511628211u;
    }
    return hash ? hash : 1;
}

static struct {
    uint64_t place;
    kind kind;
    long count;
} places[PLACES];
static atomic_flag places_lock = ATOMIC_FLAG_INIT;

static void count_place(kind kind, uint64_t place) {
    while (atomic_flag_test_and_set(&places_lock)) {
    }
    size_t i = place % PLACES, tried = 0;
    for (; tried < PLACES && places[i].place && (places[i].place != place || places[i].kind != kind); tried++)
        i = (i + 1) % PLACES;
    if (tried < PLACES) {
        places[i].place = place;
        places[i].kind = kind;
        places[i].count++;
    }
    atomic_flag_clear(&places_lock);
}

__attribute__((destructor)) static void print_places(void) {
    if (!fault.counts || !fault.active) return;
    fault.active = false;
    char line[96];
    const int foreign = snprintf(line, sizeof line, "foreign 0 %ld\n", atomic_load(&foreign_calls));
    write_log(line, (size_t)foreign);
    for (size_t i = 0; i < PLACES; i++) {
        if (!places[i].place) continue;
        const int length = snprintf(line, sizeof line, "%s %016llx %ld\n", kind_names[places[i].kind],
                                    (unsigned long long)places[i].place, places[i].count);
        write_log(line, (size_t)length);
    }
}

static void print_stack(void) {
    void *stack[DEPTH];
    fault.prints = false;
    backtrace_symbols_fd(stack, backtrace(stack, DEPTH), STDERR_FILENO);
}

/* Whether this call is acted upon. */
static bool is_hit(kind kind) {
    if (!fault.active || inside) return false;
    const int before = errno;
    bool hit = false;
    inside = true;
    const long number = atomic_fetch_add(&calls[kind], 1) + 1;
    const uint64_t place = fault.counts || kind == fault.kind ? find_place() : 0;
    if (fault.counts && !place) {
        atomic_fetch_add(&foreign_calls, 1);
    } else if (fault.counts) {
        count_place(kind, place);
    } else if (kind == fault.kind && place) {
        const bool fits = !fault.place || place == fault.place;
        const long nth = fits ? atomic_fetch_add(&here, 1) + 1 : 0;
        /* `all` ends what is at any place, once the one has failed. */
        hit = (fits && nth == fault.number) || (fault.all && atomic_load(&here) >= fault.number);
        if (hit) {
            char line[64];
            const int length = snprintf(line, sizeof line, "fired %s %ld\n", kind_names[kind], number);
            write_log(line, (size_t)length);
            if (fault.prints) print_stack();
        }
    }
    inside = false;
    errno = before;
    return hit;
}

/* ---- system calls ---- */

static const long trapped[] = {
    SYS_write,     SYS_pwrite64, SYS_writev, SYS_pwritev,   SYS_fsync, SYS_fdatasync,
    SYS_renameat,  SYS_linkat,   SYS_openat, SYS_ftruncate, SYS_mmap,  SYS_mremap,
#if defined(SYS_renameat2)
    SYS_renameat2,
#endif
#if defined(SYS_open)
    SYS_open,      SYS_rename,   SYS_link,   SYS_creat,
#endif
};

/* KINDS: one that is let through. Standard error does not count: what is said there is what is looked at. */
static kind kind_of(long number, const ucontext_t *context) {
    switch (number) {
    case SYS_write:
    case SYS_pwrite64:
    case SYS_writev:
    case SYS_pwritev: return ARGUMENT(context, 0) == STDERR_FILENO ? KINDS : WRITE;
    case SYS_fsync:
    case SYS_fdatasync: return SYNC;
    case SYS_linkat: return LINK;
    case SYS_ftruncate: return TRUNCATE;
    case SYS_openat: return ARGUMENT(context, 2) & (O_WRONLY | O_RDWR | O_CREAT) ? OPEN : KINDS;
    case SYS_mmap: return (int)ARGUMENT(context, 4) < 0 ? MAP : MAPFILE;
    case SYS_mremap: return MAP;
#if defined(SYS_open)
    case SYS_open: return ARGUMENT(context, 1) & (O_WRONLY | O_RDWR | O_CREAT) ? OPEN : KINDS;
    case SYS_creat: return OPEN;
    case SYS_link: return LINK;
#endif
    default: return RENAME;
    }
}

static void trap(int signal, siginfo_t *info, void *user) {
    (void)signal;
    ucontext_t *context = user;
    const long number = info->si_syscall;
    const kind kind = kind_of(number, context);
    const bool hit = kind < KINDS && is_hit(kind);
    long a[6];
    for (int i = 0; i < 6; i++) a[i] = ARGUMENT(context, i);
    if (hit && fault.action == KILL_BEFORE) kill_self();
    if (hit && fault.action == FAIL) {
        RESULT(context) = -fault.error;
        return;
    }
    if (hit && (fault.action == SHORT || fault.action == KILL_WITHIN) &&
        (number == SYS_write || number == SYS_pwrite64))
        a[2] = a[2] > 1 ? a[2] / 2 : a[2];
    const long result = fault_raw(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (hit && fault.action >= KILL_AFTER) kill_self();
    RESULT(context) = result;
}

static bool install_filter(void) {
    struct sock_filter filter[16 + COUNT(trapped)];
    const uint64_t own = (uint64_t)(uintptr_t)fault_raw_end;
    unsigned short n = 0;
#define ADD(...) filter[n++] = (struct sock_filter)__VA_ARGS__
#define LOAD(field) ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field)))
#define ALLOW ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW))
    LOAD(arch);
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
    ALLOW;
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, instruction_pointer)));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)own, 0, 3));
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, instruction_pointer) + 4));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(own >> 32), 0, 1));
    ALLOW;
    LOAD(nr);
    for (size_t i = 0; i < COUNT(trapped); i++)
        ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)trapped[i], (unsigned char)(COUNT(trapped) - i), 0));
    ALLOW;
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
    struct sock_fprog program = {n, filter};
    struct sigaction handler = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO | SA_NODEFER};
    return sigaction(SIGSYS, &handler, NULL) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* SIGSYS stays deliverable: a trapped call in a thread that blocks it would end the process. */
EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *before) {
    static int (*real)(int, const sigset_t *, sigset_t *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_sigmask");
    sigset_t less;
    if (set && how != SIG_UNBLOCK) {
        less = *set;
        sigdelset(&less, SIGSYS);
        set = &less;
    }
    return real(how, set, before);
}

EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *before) {
    const int error = pthread_sigmask(how, set, before);
    if (error) errno = error;
    return error ? -1 : 0;
}

/* ---- allocations and threads ---- */

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static bool allocation_fails(void) {
    if (!is_hit(ALLOC)) return false;
    if (fault.action != FAIL) kill_self();
    errno = ENOMEM;
    return true;
}

EXPORT void *malloc(size_t bytes) { return allocation_fails() ? NULL : __libc_malloc(bytes); }
EXPORT void *calloc(size_t n, size_t bytes) { return allocation_fails() ? NULL : __libc_calloc(n, bytes); }
EXPORT void *realloc(void *old, size_t bytes) { return allocation_fails() ? NULL : __libc_realloc(old, bytes); }
EXPORT void *memalign(size_t alignment, size_t bytes) {
    return allocation_fails() ? NULL : __libc_memalign(alignment, bytes);
}
EXPORT void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
EXPORT int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    void *got = memalign(alignment, bytes);
    if (!got) return ENOMEM;
    *memory = got;
    return 0;
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    if (is_hit(THREAD)) return fault.error;
    return real(thread, attributes, run, user);
}

/* ---- the beginning ---- */

static void print_death(int signal) {
    fault.prints = true;
    print_stack();
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigaction(signal, &usual, NULL);
    raise(signal);
}

static _Noreturn void refuse(const char *why) {
    fprintf(stderr, "fault_inject: %s\n", why);
    _exit(125);
}

static void read_action(const char *name) {
    for (size_t i = 1; i < COUNT(action_names); i++) {
        if (strcmp(name, action_names[i]) == 0) {
            fault.action = (action)i;
            return;
        }
    }
    for (size_t i = 0; i < COUNT(errors); i++)
        if (strcmp(name, errors[i].name) == 0) fault.error = errors[i].value;
    if (!fault.error) refuse("RECURVE_FAULT names no action");
}

static void read_fault(const char *text) {
    if (strcmp(text, "count") == 0) {
        fault.counts = true;
        return;
    }
    char name[16], place[20] = "", action[16], all[8] = "";
    const bool placed = strchr(text, '@') != NULL;
    if ((placed &&
         sscanf(text, "%15[a-z]@%19[0-9a-f]:%ld:%15[A-Za-z-]:%7s", name, place, &fault.number, action, all) < 4) ||
        (!placed && sscanf(text, "%15[a-z]:%ld:%15[A-Za-z-]:%7s", name, &fault.number, action, all) < 3))
        refuse("RECURVE_FAULT is not KIND[@PLACE]:N:ACTION[:all]");
    fault.place = strtoull(place, NULL, 16);
    fault.all = strcmp(all, "all") == 0;
    while (fault.kind < KINDS && strcmp(kind_names[fault.kind], name) != 0) fault.kind++;
    if (fault.kind == KINDS) refuse("RECURVE_FAULT names no kind of call");
    read_action(action);
}

static int (*real_main)(int, char **, char **);

static int main_with_faults(int argc, char **argv, char **environment) {
    const char *text = getenv("RECURVE_FAULT"), *log = getenv("RECURVE_FAULT_LOG");
    if (!text) return real_main(argc, argv, environment);
    read_fault(text);
    fault.prints = getenv("RECURVE_FAULT_STACK") != NULL;
    for (int i = 0; i < 2 && fault.prints; i++) {
        struct sigaction handler = {.sa_handler = print_death};
        sigaction((const int[]){SIGSEGV, SIGABRT}[i], &handler, NULL);
    }
    if (log) {
        log_file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (log_file < 0) refuse("cannot write RECURVE_FAULT_LOG");
        log_file = fcntl(log_file, F_DUPFD_CLOEXEC, 900); /* out of the way of the program's own numbers */
    }
    dl_iterate_phdr(add_module, NULL);
    const uintptr_t own = (uintptr_t)fault_raw_end;
    while (own_module < module_count && (own < modules[own_module].begin || own >= modules[own_module].end))
        own_module++;
    (void)find_place(); /* its first call allocates */
    if (!install_filter()) refuse("this system has no filter of system calls (seccomp)");
    fault.active = true;
    return real_main(argc, argv, environment);
}

EXPORT int __libc_start_main(int (*program)(int, char **, char **), int argc, char **argv, void (*init)(void),
                             void (*fini)(void), void (*rtld_fini)(void), void *stack_end) {
    int (*real)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
    *(void **)&real = dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = program;
    return real(main_with_faults, argc, argv, init, fini, rtld_fini, stack_end);
}
