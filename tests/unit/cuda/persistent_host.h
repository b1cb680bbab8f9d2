/* Emulation of what a persistent kernel uses on a GPU, in C++: the kernel's text is compiled after this text for the host.
 *
 * Threads are fibers, those of all blocks in one thread of the host. A fiber runs until it must wait for another one. If none can continue, the
 * kernel hangs, and the run says so. Copies are done when a thread waits for them, products at once: so the emulation shows who waits for whom
 * and what is where, not what the order of memory or of wgmma would allow. Blocks of a cluster reach each other's shared memory: such addresses
 * have the block's number, counted from 1, above bit 24. */
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __forceinline__ inline
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define asm /* those that do something are replaced before */
#define volatile(...)

enum { HOST_THREADS = CLUSTER ? 256 : 512, HOST_STACK = 128 << 10, HOST_SHARED = 232448, HOST_BASE = 1024 };

struct uint2 {
    unsigned x, y;
};
struct uint4 {
    unsigned x, y, z, w;
};
struct float4 {
    float x, y, z, w;
};
static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    return bits;
}
static float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static float host_exp(float x) { return expf(x); }
#define __expf host_exp
static int min(int a, int b) { return a < b ? a : b; }
static int max(int a, int b) { return a > b ? a : b; }
static void __threadfence_system() {}

struct BFloat16;
struct Float16;
static float bits_as_float(unsigned bits) { return __uint_as_float(bits); }
static float infinity() { return INFINITY; }
static float reciprocal(float x) { return x < 0x1p126f ? 1 / x : 0; }
static float widen(Float16 x);
static void narrow(float x, Float16 &y);
static void narrow(float x, BFloat16 &y);

[[noreturn]] static void host_fail(const char *sentence) {
    printf("a persistent kernel on the host: %s\n", sentence);
    exit(1);
}

/* An array that grows. The headers of the standard library would take a sixth of the time that compiling a kernel takes. */
template <typename T> struct List {
    T *items = nullptr;
    size_t count = 0, room = 0;
    List() {}
    explicit List(size_t count) : items(new T[count]()), count(count), room(count) {}
    List(List &&other) : items(other.items), count(other.count), room(other.room) { other.items = nullptr; }
    List &operator=(List &&other) {
        delete[] items;
        items = other.items;
        count = other.count;
        room = other.room;
        other.items = nullptr;
        return *this;
    }
    ~List() { delete[] items; }
    void push_back(const T &item) {
        if (count == room) {
            room = room ? 2 * room : 16;
            T *more = new T[room]();
            for (size_t i = 0; i < count; i++) more[i] = items[i];
            delete[] items;
            items = more;
        }
        items[count++] = item;
    }
    size_t size() const { return count; }
    bool empty() const { return count == 0; }
    T &operator[](size_t i) { return items[i]; }
    T *begin() { return items; }
    T *end() { return items + count; }
};

/* ---- threads ---- */

struct HostBarrier { /* bar.sync, __syncwarp, barrier.cluster */
    int arrived = 0;
    long generation = 0;
};
struct Barrier { /* mbarrier */
    int count = 0, pending = 0;
    long bytes = 0;
    unsigned phase = 0;
};
struct Barriers { /* by address: mbarriers are contiguous */
    enum { MOST = 64 };
    Barrier at[MOST];
    unsigned address[MOST] = {};
    bool has(unsigned x) const { return address[x / 8 % MOST] == x; }
    Barrier &operator[](unsigned x) {
        unsigned n = x / 8 % MOST;
        if (!address[n]) address[n] = x;
        if (address[n] != x) host_fail("it has more barriers than the host knows");
        return at[n];
    }
};
struct Bulk { /* cp.async.bulk, which a barrier counts the bytes of */
    unsigned to;
    unsigned long long from;
    int bytes;
    unsigned barrier;
};
struct HostBlock {
    unsigned char *memory;
    List<Bulk> bulks; /* not awaited yet */
    HostBarrier barriers_by_number[16], warps[HOST_THREADS / 32];
    Barriers barriers;
    unsigned shuffled[HOST_THREADS];
    unsigned long long shown[HOST_THREADS];
    unsigned fragments[HOST_THREADS][4];
    int ended; /* threads */
};
struct Copy { /* cp.async */
    unsigned to;
    unsigned long long from;
    int bytes;
    bool committed;
};
#ifdef __clang__ /* has not the builtin functions on every machine */
typedef jmp_buf HostContext;
#define SAVE_CONTEXT _setjmp
#define RESTORE_CONTEXT _longjmp
#else /* which sanitizers do not look at */
typedef void *HostContext[5];
#define SAVE_CONTEXT __builtin_setjmp
#define RESTORE_CONTEXT __builtin_longjmp
#endif
struct Fiber {
    ucontext_t context; /* where it begins */
    HostContext saved;  /* where it continues */
    int thread, block;
    bool begun, done;
    List<Copy> copies; /* not awaited yet */
};
static List<Fiber> fibers;
static List<HostBlock> host_blocks;
static List<HostBarrier> host_clusters;
static HostContext scheduler;
static int current;
static long progress; /* grows when a wait may have ended */

static HostBlock &own_block() { return host_blocks[(size_t)fibers[(size_t)current].block]; }
static int own_thread() { return fibers[(size_t)current].thread; }
struct ThreadNumber {
    operator unsigned() const { return (unsigned)own_thread(); }
};
struct BlockNumber {
    operator unsigned() const { return (unsigned)fibers[(size_t)current].block; }
};
static struct { ThreadNumber x; } threadIdx;
static struct { BlockNumber x; } blockIdx;

/* swapcontext would ask the system for its signals each time, which takes longer than all else here. */
[[gnu::noinline]] static void jump_to(HostContext &saved) { RESTORE_CONTEXT(saved, 1); }
[[gnu::noinline]] static void yield_fiber() {
    if (!SAVE_CONTEXT(fibers[(size_t)current].saved)) jump_to(scheduler);
}
/* Until the fiber lets others. */
[[gnu::noinline]] static void go_on(Fiber &f) {
    if (SAVE_CONTEXT(scheduler)) return;
    if (f.begun) jump_to(f.saved);
    f.begun = true;
    setcontext(&f.context);
}

static void sync(HostBarrier &m, int count, bool counts = true) {
    long generation = m.generation;
    if (++m.arrived == count) {
        m.arrived = 0;
        m.generation++;
        progress += counts;
    }
    while (m.generation == generation) yield_fiber();
}
static void sync_at(int number, int count) { sync(own_block().barriers_by_number[number], count); }
static void __syncthreads() { sync_at(0, HOST_THREADS); }
static void __syncwarp() { sync(own_block().warps[own_thread() / 32], 32); }
static unsigned __shfl_xor_sync(unsigned, unsigned x, int second_product) {
    own_block().shuffled[own_thread()] = x;
    __syncwarp();
    unsigned y = own_block().shuffled[own_thread() ^ second_product];
    __syncwarp();
    return y;
}
static float __shfl_xor_sync(unsigned mask, float x, int second_product) {
    return __uint_as_float(__shfl_xor_sync(mask, __float_as_uint(x), second_product));
}

/* The lanes of the warp with the same number; whether any is true. Polling loops call this: it is no progress. */
static unsigned __match_any_sync(unsigned, unsigned long long x) {
    unsigned same = 0;
    own_block().shown[own_thread()] = x;
    sync(own_block().warps[own_thread() / 32], 32, false);
    for (int lane = 0; lane < 32; lane++) same |= (own_block().shown[own_thread() / 32 * 32 + lane] == x) << lane;
    sync(own_block().warps[own_thread() / 32], 32, false);
    return same;
}
static int __any_sync(unsigned mask, bool x) { return __match_any_sync(mask, x) != 0xffffffffu || x; }

/* ---- shared memory ---- */

static unsigned shared_number(const void *at) {
    return (unsigned)((const unsigned char *)at - own_block().memory) + HOST_BASE;
}
static unsigned char *shared_at(unsigned at, unsigned bytes) {
    if (at < HOST_BASE || at + bytes > HOST_BASE + HOST_SHARED || at % (bytes < 16 ? bytes : 16))
        host_fail("it reads or writes outside of its shared memory");
    return own_block().memory + (at - HOST_BASE);
}
static void end_phase(Barrier &b) {
    if (b.pending < 0) host_fail("too many threads arrive at a barrier");
    if (b.pending || b.bytes) return;
    b.phase++;
    b.pending = b.count;
    progress++;
}
static void make_barrier(unsigned at, int count) { own_block().barriers[at] = {count, count, 0, 0}; }
static void arrive(unsigned at, int bytes) {
    Barrier &b = own_block().barriers[at];
    b.bytes += bytes;
    b.pending--;
    end_phase(b);
}
static void copy_chunks(unsigned to, unsigned long long from, int bytes, unsigned barrier) {
    if (bytes % 16 || from % 16) host_fail("a copy is not aligned");
    shared_at(to + (unsigned)bytes - 16, 16);
    own_block().bulks.push_back({to, from, bytes, barrier});
    progress++;
}
/* As remote as a GPU may do them: when a thread looks at the barrier. */
static void end_copies(unsigned barrier) {
    List<Bulk> left;
    for (const Bulk &bulk : own_block().bulks) {
        if (bulk.barrier != barrier) {
            left.push_back(bulk);
            continue;
        }
        memcpy(shared_at(bulk.to, 16), (const void *)bulk.from, (size_t)bulk.bytes);
        own_block().barriers[barrier].bytes -= bulk.bytes;
    }
    if (left.size() == own_block().bulks.size()) return;
    own_block().bulks = (List<Bulk> &&) left;
    end_phase(own_block().barriers[barrier]);
}
static bool has_passed(unsigned at, unsigned parity) {
    end_copies(at);
    return (own_block().barriers[at].phase & 1) != (parity & 1);
}
static void wait_phase(unsigned at, unsigned parity) {
    while (!has_passed(at, parity)) yield_fiber();
}
/* As remote as a GPU may do them: when the thread waits for the group that they are committed to. */
static void copy_piece(unsigned to, unsigned long long from, int bytes) {
    shared_at(to, 16);
    fibers[(size_t)current].copies.push_back({to, from, bytes, false});
}
static void commit_copies() {
    for (Copy &copy : fibers[(size_t)current].copies) copy.committed = true;
}
static void wait_for_copies(int pending) {
    List<Copy> &copies = fibers[(size_t)current].copies, left;
    if (pending) host_fail("it waits for some of its copies, which the host does not know");
    for (const Copy &copy : copies) {
        if (!copy.committed) {
            left.push_back(copy);
            continue;
        }
        memset(shared_at(copy.to, 16), 0, 16);
        memcpy(shared_at(copy.to, 16), (const void *)copy.from, (size_t)copy.bytes);
    }
    copies = (List<Copy> &&) left;
}
template <typename T, int N> static void get_shared(unsigned at, T (&x)[N]) {
    memcpy(x, shared_at(at, sizeof x), sizeof x);
}
static void get_shared(unsigned at, unsigned &x) { memcpy(&x, shared_at(at, 4), 4); }
template <typename T, int N> static void put_shared(unsigned at, const T (&x)[N]) {
    memcpy(shared_at(at, sizeof x), x, sizeof x);
}
static void put_shared(unsigned at, float x) { memcpy(shared_at(at, 4), &x, 4); }

/* ---- clusters ---- */

#if CLUSTER
static int own_cluster() { return fibers[(size_t)current].block / CLUSTER; }
static void sync_whole_cluster() { sync(host_clusters[(size_t)own_cluster()], CLUSTER * HOST_THREADS); }
static unsigned address_in(unsigned at, int peer) { return (unsigned)(peer + 1) << 24 | at; }
static HostBlock &block_of(unsigned address) {
    const int peer = (int)(address >> 24) - 1;
    if (peer < 0 || peer >= CLUSTER) host_fail("it sends to no block of its cluster");
    return host_blocks[(size_t)(own_cluster() * CLUSTER + peer)];
}
static void send_to(unsigned to, const unsigned (&x)[4], unsigned barrier) {
    HostBlock &peer = block_of(to);
    const unsigned at = to & 0xffffff;
    if (&block_of(barrier) != &peer || !peer.barriers.has(barrier & 0xffffff))
        host_fail("it tells another block, or one that is not ready");
    if (peer.ended == HOST_THREADS) host_fail("it sends to a block that has ended");
    if (at < HOST_BASE || at + 16 > HOST_BASE + HOST_SHARED || at % 16) host_fail("it sends outside of shared memory");
    memcpy(peer.memory + (at - HOST_BASE), x, 16);
    Barrier &b = peer.barriers[barrier & 0xffffff];
    if (b.pending) host_fail("it sends to a slot whose block does not expect anything yet");
    b.bytes -= 16;
    end_phase(b);
}
static long long clock64() { return 0; }
#endif

static void read_four(unsigned at, float (&x)[4]) { get_shared(at, x); }

static unsigned look_at(unsigned long long counter) {
    yield_fiber();
    return *(const unsigned *)counter;
}
/* Flagged words, which others poll. */
template <int N> static void put_words(unsigned long long at, const unsigned (&words)[N]) {
    memcpy((void *)at, words, sizeof words);
    progress++;
}
static void get_words(unsigned long long at, int wanted, void *x, size_t bytes) {
    if (wanted) memcpy(x, (const void *)at, bytes);
}
static void increment_on_host(unsigned long long counter) {
    ++*(unsigned *)counter;
    progress++;
}

/* ---- wgmma: sums[64, tile] += a[64, 32 bytes] b[tile, 32 bytes]^T ---- */

/* Four bytes of a row of a matrix in the swizzle of 128 bytes. */
static unsigned word_of(unsigned long long descriptor, int row, int word) {
    unsigned at = (unsigned)((descriptor & 0x3fff) << 4) + (unsigned)(row * 128 + word * 4), x;
    get_shared(at ^ (at >> 7 & 7) << 4, x);
    return x;
}
static double product_of(unsigned x, unsigned y) {
#if TILE_TF32
    return (double)__uint_as_float(x & 0xffffe000) * (double)__uint_as_float(y & 0xffffe000);
#else
    return (double)__uint_as_float(x << 16) * (double)__uint_as_float(y << 16) +
           (double)__uint_as_float(x & 0xffff0000) * (double)__uint_as_float(y & 0xffff0000);
#endif
}
template <int N>
static void multiply_on_host(float (&sums)[N], const unsigned *in_registers, unsigned long long a, unsigned long long b,
                             int more) {
    const int lane = own_thread() % 32, warp = own_thread() / 32;
    HostBlock &block = own_block();
    for (int i = 0; in_registers && i < 4; i++) block.fragments[own_thread()][i] = in_registers[i];
    __syncwarp();
    for (int s = 0; s < N; s++) {
        const int row = lane / 4 + s % 4 / 2 * 8, column = s / 4 * 8 + lane % 4 * 2 + s % 2;
        double sum = more ? (double)sums[s] : 0;
        for (int k = 0; k < 8; k++) {
            unsigned x = in_registers ? block.fragments[warp * 32 + row % 8 * 4 + k % 4][row / 8 + k / 4 * 2]
                                      : word_of(a, warp % 4 * 16 + row, k);
            sum += product_of(x, word_of(b, column, k));
        }
        sums[s] = (float)sum;
    }
    __syncwarp();
}

/* The same by a warp alone, with matrices that it has loaded. */
static void load_on_host(unsigned at, unsigned (&x)[4]) {
    const int thread = own_thread(), warp = thread / 32 * 32;
    own_block().shown[thread] = at;
    __syncwarp();
    for (int n = 0; n < 4; n++)
        get_shared((unsigned)own_block().shown[warp + n * 8 + thread % 32 / 4] + (unsigned)(thread % 4 * 4), x[n]);
    __syncwarp();
}
static void multiply_rows_on_host(float *sums, const unsigned (&a)[4], unsigned low, unsigned high) {
    const int thread = own_thread(), warp = thread / 32 * 32, lane = thread % 32;
    HostBlock &block = own_block();
    for (int i = 0; i < 4; i++) block.fragments[thread][i] = a[i];
    block.shown[thread] = (unsigned long long)high << 32 | low;
    __syncwarp();
    for (int s = 0; s < 4; s++) {
        const int row = lane / 4 + s / 2 * 8, column = lane % 4 * 2 + s % 2;
        double sum = (double)sums[s];
        for (int k = 0; k < 8; k++)
            sum += product_of(block.fragments[warp + row % 8 * 4 + k % 4][row / 8 + k / 4 * 2],
                              (unsigned)(block.shown[warp + column * 4 + k % 4] >> k / 4 * 32));
        sums[s] = (float)sum;
    }
    __syncwarp();
}
