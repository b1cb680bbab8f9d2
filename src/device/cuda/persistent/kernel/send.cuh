/* Operands that the blocks of a cluster send each other: stands behind kernel/base.cuh, before the texts of the seats, where
 * CLUSTER, their number, is not 0.
 *
 * A cluster has all columns of a seat and a slice of the batch. What its products read lies in the shared memory of every block,
 * in the order that kernel/base.cuh says, and every tile has two slots of it that take turns. A piece of 16 bytes is put
 * together by the threads that have its numbers, which share out the blocks that it is sent to; a store that arrives tells the
 * barrier of its slot, in the block that it comes to, how many bytes it was. So nobody raises or looks at a counter, and a block
 * goes on when the last piece of a tile has come.
 *
 * Nothing is overwritten that is still read. Who sends operand n + 1 has received all of operand n; every block sent its part of
 * that when both of its lanes had multiplied with operand n - 1, whose slot is the one that operand n + 1 goes to. */

INLINE unsigned peer_address(unsigned at, int peer) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(peer));
    return there;
}
INLINE void send_piece(unsigned to, const unsigned (&x)[4], unsigned barrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
        "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(barrier)
        : "memory");
}
/* All threads of all blocks of the cluster. */
INLINE void meet_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
INLINE bool has_come(unsigned barrier, unsigned parity) {
    unsigned passed;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 p, [%1], %2;\n"
                 "selp.b32 %0, 1, 0, p;\n}"
                 : "=r"(passed)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return passed;
}

/* What has come is read by threads, and by wgmma. It lies in shared memory, so these fences are no instructions; wider ones would wait
 * for what the map reads of memory, and drop what is cached of it. */
INLINE void see_what_came() {
    asm volatile("fence.acquire.sync_restrict::shared::cluster.cluster;" ::: "memory");
#if !EXACT
    asm volatile("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;" ::: "memory");
#endif
}

/* Waits for what blocks of the cluster send; what never comes is an error, not a hang. */
INLINE void wait_for_peers(const Words &c, unsigned barrier, unsigned parity) {
    const long long patience = 1ll << 33; /* cycles: some seconds */
    long long began = 0;
    for (int spins = 1; !has_come(barrier, parity); spins++) {
        if (spins == 1) began = clock64();
        if (spins % 256) continue;
        if (*FAULT_OF(c)) return;
        if (clock64() - began < patience) continue;
        *FAULT_OF(c) = 1;
        __threadfence_system();
        return;
    }
    see_what_came();
}

/* The 16 bytes that some threads side by side have, in all of them. */
template <typename T> INLINE void gather_piece(const T (&y)[VECTOR], unsigned (&x)[4]) {
    constexpr int SIZE = (int)sizeof(T), OWN = SIZE * VECTOR / 4, FIRST = OWN > 0 ? OWN : 1;
    const int thread = (int)threadIdx.x;
    if constexpr (OWN == 0) {
        const unsigned own = bits_of(y[0]), other = __shfl_xor_sync(0xffffffffu, own, 1);
        x[0] = thread & 1 ? other | own << 16 : own | other << 16;
    } else {
#pragma unroll
        for (int i = 0; i < OWN; i++)
            x[i] = SIZE == 4 ? bits_of(y[i % VECTOR])
                             : bits_of(y[2 * i % VECTOR]) | bits_of(y[(2 * i + 1) % VECTOR]) << 16;
    }
#pragma unroll
    for (int have = FIRST; have < 4; have *= 2) {
        const int apart = have / FIRST * (OWN > 0 ? 1 : 2);
#pragma unroll
        for (int i = 0; i < have; i++) {
            const unsigned other = __shfl_xor_sync(0xffffffffu, x[i], apart);
            x[(have + i) % 4] = thread & apart ? x[i] : other;
            x[i] = thread & apart ? other : x[i];
        }
    }
}

/* As that of kernel/base.cuh, to all blocks of the cluster: all threads of a warp come here together. The address of the place is
 * that of the pass in a slot. */
template <typename T, int CHUNKS> INLINE void publish(const Frame &c, int place, int column, const REAL (&x)[VECTOR]) {
    constexpr int PIECES = 16 / (int)sizeof(T), DEPTH = CHUNKS / PARTS, THREADS = PIECES / VECTOR,
                  EACH = (CLUSTER + THREADS - 1) / THREADS;
    if (!c.to || !__any_sync(0xffffffffu, c.sent)) return;
    const int chunk = column / (8 * PIECES) % DEPTH * PARTS, fold = column / (8 * PIECES * DEPTH),
              piece = column / PIECES % 8, first = (int)threadIdx.x % THREADS;
    const unsigned at =
        c.to + (unsigned)c.place(place) +
        (unsigned)(chunk * (TILE_N * 128) + (fold * TILE_ROWS + c.n) * 128 + ((piece ^ (c.n & 7)) << 4));
    REAL rest[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; i++) rest[i] = c.there ? x[i] : (REAL)0;
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        T y[VECTOR];
        unsigned words[4];
#pragma unroll
        for (int i = 0; i < VECTOR; i++) y[i] = take_part<T>(rest[i]);
        gather_piece(y, words);
        if (!c.sent) continue;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int peer = (first + k * THREADS + (int)blockIdx.x) % CLUSTER; /* not all to the same one first */
            if (first + k * THREADS < CLUSTER)
                send_piece(peer_address(at + (unsigned)(part * (TILE_N * 128)), peer), words,
                           peer_address(c.barrier, peer));
        }
    }
}
