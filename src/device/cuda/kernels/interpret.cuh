/* The interpreter of maps for one type REAL: included once for each by interpret.cu, in a namespace of its own. Follows the macros
 * REAL and REAL_IS_DOUBLE. */

#define VECTOR (RCVI_INTERPRET_BYTES / (int)sizeof(REAL)) /* elements of a slot */
#define WORDS RCVI_INTERPRET_WORDS

#include "device/cuda/codegen/map_element.cuh" /* types, loads, stores, operations: the same as of generated kernels */

template <int COUNT> struct Arguments { unsigned long long w[COUNT]; };

typedef Group<REAL> Slot;

/* What a block has in shared memory, and where it reads instructions. */
struct Machine {
    REAL *uniform;
    const rcvi_interpret_instruction *code;
    const rcvi_interpret_phase *phases;
    const rcvi_interpret_instruction *row_views;
    Slot *slots; /* of this thread: slot s at slots[s * threads] */
    REAL *parts; /* of this thread: sum s at parts[s * threads] */
    int thread, threads;
};

INLINE Machine open_machine(const rcvi_interpreted &m, unsigned char *shared, int thread, int threads) {
    Machine x;
    const rcvi_interpret_instruction *code = (const rcvi_interpret_instruction *)m.table;
    x.phases = (const rcvi_interpret_phase *)(code + m.instruction_count);
    x.row_views = (const rcvi_interpret_instruction *)(x.phases + m.phase_count);
    const double *constants = (const double *)(x.row_views + m.row_view_count);
    const int uniform = m.constant_count + m.row_view_count + m.sum_count;
    x.uniform = (REAL *)shared;
    shared += (uniform * (int)sizeof(REAL) + 15) / 16 * 16;
    x.code = code;
    if (m.instruction_count <= RCVI_INTERPRET_COPIED) {
        x.code = (rcvi_interpret_instruction *)shared;
        for (int i = thread; i < m.instruction_count; i += threads)
            ((uint4 *)shared)[i] = ((const uint4 *)(const void *)code)[i];
        shared += m.instruction_count * 16;
    }
    for (int i = thread; i < m.constant_count; i += threads) x.uniform[i] = (REAL)constants[i];
    x.slots = (Slot *)shared + thread;
    x.parts = (REAL *)((Slot *)shared + m.slot_count * threads) + thread;
    x.thread = thread;
    x.threads = threads;
    return x;
}

/* ---- operands ---- */

INLINE void get(const Machine &x, int operand, REAL (&out)[VECTOR]) {
    if (operand & RCVI_INTERPRET_UNIFORM) {
        const REAL one = x.uniform[operand & ~RCVI_INTERPRET_UNIFORM];
#pragma unroll
        for (int i = 0; i < VECTOR; i++) out[i] = one;
        return;
    }
    const Slot slot = x.slots[operand * x.threads];
#pragma unroll
    for (int i = 0; i < VECTOR; i++) out[i] = slot.at[i];
}

INLINE void put(const Machine &x, int slot, const REAL (&value)[VECTOR]) {
    Slot group;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) group.at[i] = value[i];
    x.slots[slot * x.threads] = group;
}

/* ---- loads and stores of the first `count` elements of a slot ---- */

template <typename T>
INLINE void load_some(unsigned long long address, long long element, long long step, int count, REAL (&out)[VECTOR]) {
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
        out[i] = i < count ? (REAL)widen(((const T *)address)[element + i * step]) : (REAL)0;
}

/* An access of all of them where the table is wide, else one for each. */
template <typename T>
INLINE void load_as(const rcvi_interpret_instruction &o, unsigned long long address, long long row, long long column,
                    long long stride, int count, bool wide, REAL (&out)[VECTOR]) {
    switch (o.operation) {
    case RCVI_INTERPRET_LOAD_REPEATED: load_repeated<T>(address, row * stride, out); break;
    case RCVI_INTERPRET_LOAD_TRANSPOSED: load_some<T>(address, column * stride + row, stride, count, out); break;
    default:
        if (wide)
            load<T>(address, row * stride + column, out);
        else
            load_some<T>(address, row * stride + column, 1, count, out);
    }
}

INLINE void load_any(const rcvi_interpret_instruction &o, unsigned long long address, long long row, long long column,
                     long long stride, int count, bool wide, REAL (&out)[VECTOR]) {
    switch (o.type) {
    case RCVI_F32: load_as<float>(o, address, row, column, stride, count, wide, out); break;
    case RCVI_F64: load_as<double>(o, address, row, column, stride, count, wide, out); break;
    case RCVI_BF16: load_as<BFloat16>(o, address, row, column, stride, count, wide, out); break;
    case RCVI_F16: load_as<Float16>(o, address, row, column, stride, count, wide, out); break;
    case RCVI_U8: load_as<unsigned char>(o, address, row, column, stride, count, wide, out); break;
    default: load_as<long long>(o, address, row, column, stride, count, wide, out); break;
    }
}

/* Starts to copy elements of this many bytes each into the slot; later elements of the slot are left as they are. */
INLINE void begin_load(const Machine &x, const rcvi_interpret_instruction &o, unsigned long long address,
                       long long element, int count, bool wide) {
    Slot *slot = &x.slots[o.out * x.threads];
    if (o.type == RCVI_BF16 || o.type == RCVI_F16) { /* only where the table is wide */
        copy_async<VECTOR * 2>(slot, address + element * 2);
    } else if (wide) {
        copy_async<RCVI_INTERPRET_BYTES>(slot, address + element * (int)sizeof(REAL));
    } else {
        for (int i = 0; i < count; i++)
            copy_async<(int)sizeof(REAL)>(&slot->at[i], address + (element + i) * (int)sizeof(REAL));
    }
}

INLINE void widen_slot(const Machine &x, const rcvi_interpret_instruction &o) {
    Slot *slot = &x.slots[o.out * x.threads];
    REAL value[VECTOR];
    if (o.type == RCVI_BF16)
        load<BFloat16>((unsigned long long)slot, 0, value);
    else
        load<Float16>((unsigned long long)slot, 0, value);
    put(x, o.out, value);
}

template <typename T>
INLINE void store_as(bool once, unsigned long long address, long long element, long long column, int count, bool wide,
                     const REAL (&value)[VECTOR]) {
    if (once) {
        if (column == 0) store_once<T>(address, element, value);
    } else if (wide) {
        store<T>(address, element + column, value);
    } else {
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            T one;
            narrow(value[i], one);
            if (address && i < count) ((T *)address)[element + column + i] = one;
        }
    }
}

INLINE void store_any(const rcvi_interpret_instruction &o, bool once, unsigned long long address, long long element,
                      long long column, int count, bool wide, const REAL (&value)[VECTOR]) {
    switch (o.type) {
    case RCVI_F32: store_as<float>(once, address, element, column, count, wide, value); break;
    case RCVI_F64: store_as<double>(once, address, element, column, count, wide, value); break;
    case RCVI_BF16: store_as<BFloat16>(once, address, element, column, count, wide, value); break;
    case RCVI_F16: store_as<Float16>(once, address, element, column, count, wide, value); break;
    case RCVI_U8: store_as<unsigned char>(once, address, element, column, count, wide, value); break;
    default: store_as<long long>(once, address, element, column, count, wide, value); break;
    }
}

/* ---- instructions ---- */

/* An operation on elements; `b` is `a` where it takes one operand. */
INLINE void compute(const Machine &x, const rcvi_interpret_instruction &o) {
    REAL a[VECTOR], b[VECTOR], r[VECTOR];
    get(x, o.operands[0], a);
    get(x, o.operands[1], b);
#define EACH(VALUE)                                                                                                    \
    _Pragma("unroll") for (int i = 0; i < VECTOR; i++) r[i] = VALUE;                                                   \
    break
    switch (o.operation) {
    case RCVI_ADD: EACH(a[i] + b[i]);
    case RCVI_SUBTRACT: EACH(a[i] - b[i]);
    case RCVI_MULTIPLY: EACH(a[i] * b[i]);
    case RCVI_DIVIDE: EACH(a[i] / b[i]);
    case RCVI_NEGATE: EACH(-a[i]);
    case RCVI_SIGMOID: EACH(op_sigmoid(a[i]));
    case RCVI_TANH: EACH(op_tanh(a[i]));
    case RCVI_RELU: EACH(op_relu(a[i]));
    case RCVI_EXP: EACH(op_exp(a[i]));
    case RCVI_LOG: EACH(op_log(a[i]));
    case RCVI_SOFTPLUS: EACH(op_softplus(a[i]));
    case RCVI_ABS: EACH(op_abs(a[i]));
    case RCVI_SQRT: EACH(op_sqrt(a[i]));
    case RCVI_MIN: EACH(op_min(a[i], b[i]));
    case RCVI_MAX: EACH(op_max(a[i], b[i]));
    case RCVI_STEP: EACH(op_step(a[i]));
    case RCVI_SIGN: EACH(op_sign(a[i]));
    default: { /* RCVI_SELECT */
        REAL c[VECTOR];
        get(x, o.operands[2], c);
        EACH(op_select(a[i], b[i], c[i]));
    }
    }
#undef EACH
    put(x, o.out, r);
}

/* Instructions first .. end - 1 on elements column .. column + count - 1 of a row of a member. */
template <int COUNT>
INLINE void run_code(const Machine &x, const Arguments<COUNT> &c, const rcvi_interpreted &m, int first, int end,
                     int member, long long row, long long column, int count) {
    const int words = 1 + m.view_count + member * (1 + m.view_count + m.rounded_count) + 1; /* of its addresses */
    const bool wide = m.wide;
    for (int k = first; k < end; k++) {
        const rcvi_interpret_instruction o = x.code[k];
        if (o.operation < RCVI_OPERATION_COUNT) {
            compute(x, o);
            continue;
        }
        REAL value[VECTOR];
        switch (o.operation) {
        case RCVI_INTERPRET_BEGIN_LOAD: {
            const long long stride = (long long)c.w[1 + o.view];
            begin_load(x, o, c.w[words + o.view], row * stride + column, count, wide);
            break;
        }
        case RCVI_INTERPRET_WAIT: wait_for_copies(); break;
        case RCVI_INTERPRET_WIDEN: widen_slot(x, o); break;
        case RCVI_INTERPRET_STORE:
        case RCVI_INTERPRET_STORE_ONCE:
            get(x, o.operands[0], value);
            store_any(o, o.operation == RCVI_INTERPRET_STORE_ONCE, c.w[words + o.view],
                      row * (long long)c.w[1 + o.view], column, count, wide, value);
            break;
        case RCVI_INTERPRET_STORE_ROUNDED: /* operand 1 is the view of which it is a copy */
        case RCVI_INTERPRET_STORE_ROUNDED_ONCE:
            get(x, o.operands[0], value);
            store_any(o, o.operation == RCVI_INTERPRET_STORE_ROUNDED_ONCE, c.w[words + m.view_count + o.view],
                      row * (long long)c.w[1 + o.operands[1]], column, count, wide, value);
            break;
        case RCVI_INTERPRET_ADD_UP: {
            get(x, o.operands[0], value);
            REAL sum = x.parts[o.out * x.threads];
            for (int i = 0; i < VECTOR; i++) sum += i < count ? value[i] : (REAL)0;
            x.parts[o.out * x.threads] = sum;
            break;
        }
        default: /* loads */
            load_any(o, c.w[words + o.view], row, column, (long long)c.w[1 + o.view], count, wide, value);
            put(x, o.out, value);
        }
    }
}

/* ---- kernels ---- */

template <int COUNT> INLINE long long rows_of(const Arguments<COUNT> &c, const rcvi_interpreted &m, int member) {
    const unsigned long long word = c.w[1 + m.view_count + member * (1 + m.view_count + m.rounded_count)];
    return m.counted ? *(const long long *)word : (long long)word;
}

INLINE int elements_from(long long column, long long columns) {
    return columns - column < VECTOR ? (int)(columns - column) : VECTOR;
}

/* A thread takes a slot of elements of a row; a block some rows of some columns. */
template <int COUNT> INLINE void run_map(const Arguments<COUNT> &c, const rcvi_interpreted &m, unsigned char *shared) {
    const int member = (int)blockIdx.z;
    const long long columns = (long long)c.w[0], rows = rows_of(c, m, member);
    const long long column = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
    const Machine x =
        open_machine(m, shared, (int)(threadIdx.y * blockDim.x + threadIdx.x), (int)(blockDim.x * blockDim.y));
    __syncthreads();
    if (column >= columns) return;
    for (long long row = (long long)blockIdx.y * blockDim.y + threadIdx.y; row < rows;
         row += (long long)gridDim.y * blockDim.y)
        run_code(x, c, m, 0, m.instruction_count, member, row, column, elements_from(column, columns));
}

/* Adds up the parts of all threads, each sum in a fixed order, for all of them to read. */
INLINE void add_parts(const Machine &x, const rcvi_interpret_phase &phase, REAL *sums) {
    __syncthreads();
    for (int half = x.threads / 2; half > 0; half /= 2) {
        for (int s = 0; s < phase.sum_count && x.thread < half; s++)
            x.parts[s * x.threads] += x.parts[s * x.threads + half];
        __syncthreads();
    }
    for (int s = 0; s < phase.sum_count && x.thread == 0; s++) sums[phase.first_sum + s] = x.parts[s * x.threads];
    __syncthreads();
}

/* A block takes a row. */
template <int COUNT> INLINE void run_rows(const Arguments<COUNT> &c, const rcvi_interpreted &m, unsigned char *shared) {
    const int member = (int)blockIdx.z;
    const int words = 1 + m.view_count + member * (1 + m.view_count + m.rounded_count) + 1;
    const long long columns = (long long)c.w[0], rows = rows_of(c, m, member);
    const Machine x = open_machine(m, shared, (int)threadIdx.x, (int)blockDim.x);
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        for (int v = x.thread; v < m.row_view_count; v += x.threads) {
            const rcvi_interpret_instruction o = x.row_views[v];
            REAL value[VECTOR];
            load_any(o, c.w[words + o.view], row, 0, (long long)c.w[1 + o.view], 1, false, value);
            x.uniform[m.constant_count + v] = value[0];
        }
        __syncthreads();
        for (int p = 0; p < m.phase_count; p++) {
            const rcvi_interpret_phase phase = x.phases[p];
            for (int s = 0; s < phase.sum_count; s++) x.parts[s * x.threads] = 0;
            for (long long column = (long long)x.thread * VECTOR; column < columns; column += x.threads * VECTOR)
                run_code(x, c, m, phase.first, phase.end, member, row, column, elements_from(column, columns));
            if (phase.sum_count) add_parts(x, phase, x.uniform + m.constant_count + m.row_view_count);
        }
        __syncthreads(); /* before the next row's numbers overwrite this one's */
    }
}

#undef VECTOR
#undef WORDS
