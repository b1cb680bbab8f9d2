/* Instructions that C++ has no words for: mbarriers, asynchronous copies, vector accesses of shared memory, MMA of a warp, barriers and
 * fences. Follows kernel/base.cuh. */

INLINE unsigned shared_address(const void *at) { return (unsigned)__cvta_generic_to_shared(at); }
INLINE unsigned swizzled(int row, int segment) { return (unsigned)(row * 128 + ((segment ^ (row & 7)) << 4)); }

INLINE void barrier_make(unsigned at, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
INLINE void barrier_arrive(unsigned at) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(at) : "memory");
}
/* Arrives, and expects so many bytes of copies. */
INLINE void barrier_expect(unsigned at, int bytes) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n}" ::"r"(at), "r"(bytes)
                 : "memory");
}
INLINE bool barrier_passed(unsigned at, unsigned parity) {
    unsigned passed;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                 : "=r"(passed)
                 : "r"(at), "r"(parity)
                 : "memory");
    return passed;
}
INLINE void barrier_wait(unsigned at, unsigned parity) {
    unsigned passed;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                     : "=r"(passed)
                     : "r"(at), "r"(parity)
                     : "memory");
    } while (!passed);
}
INLINE void copy_async(unsigned to, unsigned long long from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
INLINE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> INLINE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }
/* A bulk copy from memory, whose bytes the mbarrier counts. */
INLINE void copy_bulk(unsigned to, unsigned long long from, int bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}
INLINE void read_segment(unsigned at, unsigned (&x)[4]) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}
INLINE void write_segment(unsigned at, const unsigned (&x)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}
/* Predicated, without a branch: a branch would make the compiler put sums into local memory. */
INLINE void write_sum(unsigned at, float x, bool there) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p st.shared.f32 [%0], %1;\n}" ::"r"(at), "f"(x),
                 "r"((int)there)
                 : "memory");
}
/* ldmatrix: four matrices of 8 rows of 16 bytes. Thread n gives the address of row n % 8 of matrix n / 8 and gets word n % 4 of row n / 4 of
 * each. */
INLINE void load_matrices(unsigned at, unsigned (&x)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}
/* mma.sync: sums[16, 8] += a[16, 32 bytes] b[8, 32 bytes]^T of a warp; registers are assigned as in wgmma. */
INLINE void multiply_rows(float *sums, const unsigned (&a)[4], unsigned low, unsigned high) {
#if TILE_TF32
#define MMA_INSTRUCTION "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
#elif TILE_BF16
#define MMA_INSTRUCTION "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#else
#define MMA_INSTRUCTION "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#endif
    asm volatile(MMA_INSTRUCTION " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));
}
INLINE void fence_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

INLINE void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> INLINE void warpgroup_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
