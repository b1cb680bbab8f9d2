/* Compiles a map's instructions into kernel calls. Scratch slots are allocated like registers: a slot is free again after the
 * last instruction that reads it. */
#include "device/cpu/engine/engine.h"
#include "device/cpu/engine/tuning.h"

typedef struct {
    const rcvi_map *map;
    rcvi_compiled_map *out;
    int *last_use;      /* [instructions] index of the last instruction that reads the result */
    bool *taken;        /* [slots] the slot is in use */
    int *register_slot; /* [instructions] slot of the result */
} compiler;

static int allocate_slot(compiler *c) {
    for (int s = 0; s < c->out->slot_count; s++) {
        if (c->taken[s]) continue;
        c->taken[s] = true;
        return s;
    }
    c->taken[c->out->slot_count] = true;
    return c->out->slot_count++;
}

static int constant_slot(compiler *c, double number) {
    for (int i = 0; i < c->out->constant_count; i++) {
        if (c->out->constants[i].number == number) return c->out->constants[i].slot;
    }
    int slot = allocate_slot(c);
    c->out->constants[c->out->constant_count++] = (rcvi_constant){number, slot};
    return slot;
}

/* Views that are read and constants keep their slots to the end: both are filled before the instructions run. */
static void assign_fixed_slots(compiler *c) {
    for (int v = 0; v < c->map->operand_count; v++) c->out->view_slot[v] = RCVI_NONE;
    for (int k = 0; k < c->map->instruction_count; k++) {
        const rcvi_instruction *instruction = &c->map->instructions[k];
        for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
            int source = instruction->source[a];
            if (instruction->from[a] == RCVI_FROM_VIEW && c->out->view_slot[source] == RCVI_NONE)
                c->out->view_slot[source] = allocate_slot(c);
            if (instruction->from[a] == RCVI_FROM_NUMBER) constant_slot(c, instruction->number[a]);
            if (instruction->from[a] == RCVI_FROM_REGISTER) c->last_use[source] = k;
            if (instruction->from[a] == RCVI_FROM_PRODUCT) c->out->product_is_used[source] = true;
        }
    }
}

static rcvi_op_input input_of(compiler *c, const rcvi_instruction *instruction, int a) {
    int source = instruction->source[a];
    switch (instruction->from[a]) {
    case RCVI_FROM_REGISTER: return (rcvi_op_input){RCVI_IN_SLOT, c->register_slot[source]};
    case RCVI_FROM_PRODUCT: return (rcvi_op_input){RCVI_IN_PRODUCT, source};
    case RCVI_FROM_NUMBER: return (rcvi_op_input){RCVI_IN_SLOT, constant_slot(c, instruction->number[a])};
    default: return (rcvi_op_input){RCVI_IN_VIEW, source};
    }
}

static int add_stores(compiler *c, int count, bool product, int source, int out) {
    if (out != RCVI_NONE) c->out->stores[count++] = out;
    for (int i = 0; i < c->map->store_count; i++) {
        const rcvi_map_store *store = &c->map->stores[i];
        if (store->product == product && store->source == source) c->out->stores[count++] = store->out;
    }
    return count;
}

static void compile_instructions(compiler *c, const rcvi_map_kernel *kernels, int *stores) {
    for (int k = 0; k < c->map->instruction_count; k++) {
        const rcvi_instruction *instruction = &c->map->instructions[k];
        int arguments = rcvi_operations[instruction->operation].arguments;
        rcvi_compiled_op *op = &c->out->ops[c->out->op_count++];
        op->kernel = kernels[instruction->operation];
        op->a = input_of(c, instruction, 0);
        op->b = arguments > 1 ? input_of(c, instruction, 1) : op->a;
        for (int a = 0; a < arguments; a++) {
            int source = instruction->source[a];
            bool last = instruction->from[a] == RCVI_FROM_REGISTER && c->last_use[source] == k;
            if (last) c->taken[c->register_slot[source]] = false; /* a kernel may write to its input */
        }
        op->slot = c->register_slot[k] = allocate_slot(c);
        op->first_store = *stores;
        *stores = add_stores(c, *stores, false, k, instruction->out);
        op->store_count = *stores - op->first_store;
    }
}

static void collect_operands(const rcvi_engine *engine, const rcvi_map *map, rcvi_compiled_map *out) {
    int64_t group = engine->kernels->products[engine->type].group;
    for (int p = 0; p < map->product_count; p++) {
        for (int t = 0; t < map->products[p].term_count; t++) {
            const rcvi_view *a = &map->products[p].terms[t].a;
            int64_t depth = map->products[p].terms[t].depth;
            int found = RCVI_NONE;
            for (int i = 0; i < out->operand_a_count; i++) {
                if (rcvi_view_equal(&out->operands_a[i], a)) found = i;
            }
            out->depth += depth;
            if (found == RCVI_NONE) {
                found = out->operand_a_count++;
                out->operands_a[found] = *a;
                out->operand_a_depth += rcvi_narrow_row(depth, group);
            }
            out->operand_of[p * RCVI_MAX_TERMS + t] = found;
        }
    }
}

rcvi_compiled_map *rcvi_engine_compile(rcvi_engine *engine, const rcvi_step *step) {
    const rcvi_map *map = step->map;
    rcvi_pool *pool = &engine->pool;
    size_t instructions = (size_t)map->instruction_count, products = (size_t)map->product_count,
           views = (size_t)map->operand_count, slots = 3 * instructions + 1;
    rcvi_compiled_map *out = rcvi_pool_new(pool, 1, sizeof *out);
    compiler c = {.map = map,
                  .out = out,
                  .last_use = rcvi_pool_new(pool, instructions, sizeof(int)),
                  .taken = rcvi_pool_new(pool, slots, sizeof(bool)),
                  .register_slot = rcvi_pool_new(pool, instructions, sizeof(int))};
    if (!out) return NULL;
    out->ops = rcvi_pool_new(pool, instructions, sizeof *out->ops);
    out->stores = rcvi_pool_new(pool, instructions + products + (size_t)map->store_count, sizeof(int));
    out->product_stores = rcvi_pool_new(pool, products, sizeof(int));
    out->product_store_count = rcvi_pool_new(pool, products, sizeof(int));
    out->product_is_used = rcvi_pool_new(pool, products, sizeof(bool));
    out->view_slot = rcvi_pool_new(pool, views, sizeof(int));
    out->is_narrow = rcvi_pool_new(pool, views, sizeof(bool));
    out->constants = rcvi_pool_new(pool, 2 * instructions, sizeof *out->constants);
    out->operands_a = rcvi_pool_new(pool, products * RCVI_MAX_TERMS, sizeof *out->operands_a);
    out->operand_of = rcvi_pool_new(pool, products * RCVI_MAX_TERMS, sizeof(int));
    if (pool->failed) return NULL;
    for (size_t v = 0; v < views; v++) out->is_narrow[v] = rcvi_view_is_narrow(engine, &map->operands[v]);
    bool wide = engine->type == RCVI_KERNEL_DOUBLE;
    int stores = 0;
    assign_fixed_slots(&c);
    compile_instructions(&c, wide ? engine->kernels->map_double : engine->kernels->map_float, &stores);
    for (int p = 0; p < map->product_count; p++) {
        out->product_stores[p] = stores;
        stores = add_stores(&c, stores, true, p, map->products[p].out);
        out->product_store_count[p] = stores - out->product_stores[p];
    }
    collect_operands(engine, map, out);
    out->block = out->slot_count > MANY_SLOTS ? SLOT_ELEMENTS_MANY : SLOT_ELEMENTS;
    return out;
}
