/* Comes after the text of a persistent kernel on the host: see persistent_host.h. */

static float widen(Float16) { host_fail("float16 is not there"); }
static void narrow(float, Float16 &) { host_fail("float16 is not there"); }
static void narrow(float x, BFloat16 &y) {
    unsigned bits = __float_as_uint(x);
    y.bits = (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static const Words *host_words;

/* Not all blocks begin at once. */
static void run_thread() {
    for (int n = fibers[(size_t)current].block * 7 % 30 * 2; n > 0; n--) yield_fiber();
    persistent_kernel(*host_words);
    if (!fibers[(size_t)current].copies.empty()) host_fail("it ends with copies that no thread has waited for");
    fibers[(size_t)current].done = true;
    own_block().ended++;
    progress++;
    while (true) yield_fiber();
}

/* The threads that are left after all that can have gone on: 0, or the kernel hangs. */
extern "C" int run_persistent(const void *words, int blocks) {
    const int count = blocks * HOST_THREADS;
    unsigned char *stacks = (unsigned char *)malloc((size_t)count * HOST_STACK);
    host_words = (const Words *)words;
    fibers = List<Fiber>((size_t)count);
    host_blocks = List<HostBlock>((size_t)blocks);
    host_clusters = List<HostBarrier>((size_t)blocks);
    for (HostBlock &b : host_blocks) {
        b.memory = (unsigned char *)aligned_alloc(1024, HOST_SHARED);
        memset(b.memory, 0xff, HOST_SHARED); /* none of it is a number */
    }
    for (int n = 0; n < count; n++) {
        Fiber &f = fibers[(size_t)n];
        f.thread = n % HOST_THREADS;
        f.block = n / HOST_THREADS;
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = &stacks[(size_t)n * HOST_STACK];
        f.context.uc_stack.ss_size = HOST_STACK;
        makecontext(&f.context, run_thread, 0);
    }
    int left = count, first = 0, round = 0;
    for (int idle = 0; left > 0 && idle < 300; round++) {
        /* One block is paused while others run ahead: for 8 rounds, or for so many that they could do several time steps. */
        const bool for_long = round / 128 % 2;
        const int turn = round / 256, paused = for_long        ? (turn * 5 + blocks - 1) % blocks
                                               : round / 8 % 2 ? round / 16 % blocks
                                                               : -1;
        long before = progress;
        left = 0;
        first = (first * 5 + 7919) % count;
        for (int n = 0; n < count; n++) {
            current = (first + n) % count;
            if (fibers[(size_t)current].done) continue;
            if (fibers[(size_t)current].block == paused) {
                left++;
                continue;
            }
            go_on(fibers[(size_t)current]);
            left += !fibers[(size_t)current].done;
        }
        idle = progress == before ? idle + 1 : 0;
    }
    for (HostBlock &b : host_blocks) {
        if (!left && !b.bulks.empty()) host_fail("a block ends with copies that no thread has waited for");
        free(b.memory);
    }
    free(stacks);
    return left;
}
