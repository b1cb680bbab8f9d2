/* Operands that the blocks of a cluster send each other. Follows kernel/base.cuh where CLUSTER, the number of blocks, is not 0.
 *
 * A cluster has all columns of a task and a slice of the batch. The operand of its products is in the shared memory of every block, in the
 * order of kernel/base.cuh; every tile has two slots, which alternate. The threads that have the numbers of a 16-byte segment put it together
 * by shuffles and share out the blocks that it is sent to. st.async stores the segment in another block and counts its bytes at the mbarrier
 * of the slot there. So there are no counters, and a block goes on when the last segment of a tile has arrived.
 *
 * A slot is not overwritten while it is read: a block that sends operand n + 1 has received all of operand n, and every block sent its part of
 * operand n after both of its pipes had multiplied with operand n - 1, whose slot is the one that operand n + 1 goes to. */

INLINE unsigned peer_address(unsigned at, int peer) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(peer));
    return there;
}
INLINE void send_segment(unsigned to, const unsigned (&x)[4], unsigned barrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
        "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(barrier)
        : "memory");
}
/* Barrier of all threads of all blocks of the cluster. */
INLINE void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
INLINE bool has_arrived(unsigned barrier, unsigned parity) {
    unsigned passed;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 p, [%1], %2;\n"
                 "selp.b32 %0, 1, 0, p;\n}"
                 : "=r"(passed)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return passed;
}

/* Makes arrived operands visible to threads and to wgmma. They are in shared memory, so these fences are no instructions; wider fences would
 * wait for the map's loads from memory and drop cached lines. */
INLINE void see_what_came() {
    asm volatile("fence.acquire.sync_restrict::shared::cluster.cluster;" ::: "memory");
#if !EXACT
    asm volatile("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;" ::: "memory");
#endif
}

/* Waits for operands of the other blocks. After some seconds it sets the fault word and returns. */
INLINE void wait_for_peers(const Words &c, unsigned barrier, unsigned parity) {
    const long long limit = 1ll << 33; /* cycles: about 5 s */
    long long began = 0;
    for (int spins = 1; !has_arrived(barrier, parity); spins++) {
        if (spins == 1) began = clock64();
        if (spins % 256) continue;
        if (*FAULT_OF(c)) return;
        if (clock64() - began < limit) continue;
        *FAULT_OF(c) = 1;
        __threadfence_system();
        return;
    }
    see_what_came();
}

/* Puts together the 16 bytes that neighbouring threads have; all of them get them. */
template <typename T> INLINE void gather_segment(const T (&y)[VECTOR], unsigned (&x)[4]) {
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
        const int second_product = have / FIRST * (OWN > 0 ? 1 : 2);
#pragma unroll
        for (int i = 0; i < have; i++) {
            const unsigned other = __shfl_xor_sync(0xffffffffu, x[i], second_product);
            x[(have + i) % 4] = thread & second_product ? x[i] : other;
            x[i] = thread & second_product ? other : x[i];
        }
    }
}

/* As in kernel/base.cuh, but to all blocks of the cluster. All threads of a warp call it together. The address of the argument is the offset
 * of the pass in a slot. */
template <typename T, int CHUNKS>
INLINE void publish(const Frame &c, int argument, int column, const REAL (&x)[VECTOR]) {
    constexpr int SEGMENTS = 16 / (int)sizeof(T), DEPTH = CHUNKS / PARTS, THREADS = SEGMENTS / VECTOR,
                  EACH = (CLUSTER + THREADS - 1) / THREADS;
    if (!c.to || !__any_sync(0xffffffffu, c.sent)) return;
    const int chunk = column / (8 * SEGMENTS) % DEPTH * PARTS, depth_splits = column / (8 * SEGMENTS * DEPTH),
              segment = column / SEGMENTS % 8, first = (int)threadIdx.x % THREADS;
    const unsigned at =
        c.to + (unsigned)c.address(argument) +
        (unsigned)(chunk * (TILE_N * 128) + (depth_splits * TILE_ROWS + c.n) * 128 + ((segment ^ (c.n & 7)) << 4));
    REAL rest[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; i++) rest[i] = c.there ? x[i] : (REAL)0;
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        T y[VECTOR];
        unsigned words[4];
#pragma unroll
        for (int i = 0; i < VECTOR; i++) y[i] = take_part<T>(rest[i]);
        gather_segment(y, words);
        if (!c.sent) continue;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int peer =
                (first + k * THREADS + (int)blockIdx.x) % CLUSTER; /* blocks begin with different receivers */
            if (first + k * THREADS < CLUSTER)
                send_segment(peer_address(at + (unsigned)(part * (TILE_N * 128)), peer), words,
                             peer_address(c.barrier, peer));
        }
    }
}
