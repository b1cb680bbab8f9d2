/* A map as a table for the interpreter (kernels/interpret.h): phases, loads, slots.
 *
 * Slots are assigned by liveness: a value's slot is free again after its last use. Loads come first, all at once, so that they overlap;
 * where a block of RCVI_INTERPRET_THREADS then lacks shared memory for the slots, each comes before its first use. A value is stored when
 * it is known, unless a load of the same buffer follows: then at the end. */
#include "device/cuda/codegen/map_table.h"

#include <math.h>
#include <string.h>

enum {
    MOST_VALUES = RCVI_MAX_LONG_INSTRUCTIONS + RCVI_MAX_OPERANDS, /* instructions, then views */
    MOST_NUMBERS = 3 * RCVI_MAX_LONG_INSTRUCTIONS,
    WARP = 32
};

typedef struct {
    const rcvi_map_shape *shape;
    const rcvi_map *map;
    rcv_context *context;
    rcvi_interpreted head;
    bool has_sums, loads_first, failed;
    rcvi_interpret_instruction *code, *row_views;
    rcvi_interpret_phase *phases;
    size_t code_count, code_capacity, phase_count, phase_capacity, row_view_capacity;
    double numbers[MOST_NUMBERS];
    int row_view_of[RCVI_MAX_OPERANDS];         /* [views] or RCVI_NONE */
    int sum_of[RCVI_MAX_LONG_INSTRUCTIONS];     /* [instructions] number of a sum that is computed, or RCVI_NONE */
    bool is_needed[RCVI_MAX_LONG_INSTRUCTIONS]; /* in the phase that is written */
    int uses[MOST_VALUES], slot[MOST_VALUES];   /* uses that are left in the phase; RCVI_NONE: none yet */
    bool is_loaded[RCVI_MAX_OPERANDS], is_raw[RCVI_MAX_OPERANDS]; /* in the phase; still to be widened */
    bool is_waiting;                                              /* copies were begun since the last wait */
    bool is_taken[MOST_VALUES];                                   /* [slots] */
} table_writer;

/* ---- the map ---- */

static int argument_count(const rcvi_instruction *i) { return rcvi_operations[i->operation].arguments; }

static bool is_sum(const table_writer *w, int k) { return w->map->instructions[k].operation == RCVI_SUM; }

/* The value that operand a is, or RCVI_NONE where it is a number, a sum or a row view. */
static int value_of(const table_writer *w, const rcvi_instruction *i, int a) {
    int source = i->source[a];
    if (i->from[a] == RCVI_FROM_REGISTER) return is_sum(w, source) ? RCVI_NONE : source;
    if (i->from[a] == RCVI_FROM_VIEW && w->row_view_of[source] == RCVI_NONE) return w->map->instruction_count + source;
    return RCVI_NONE;
}

/* The n-th view that instruction k is stored to, or RCVI_NONE. */
static int nth_store(const rcvi_map *map, int k, int n) {
    if (map->instructions[k].out != RCVI_NONE && n-- == 0) return map->instructions[k].out;
    for (int i = 0; i < map->store_count; i++) {
        if (!map->stores[i].product && map->stores[i].source == k && n-- == 0) return map->stores[i].out;
    }
    return RCVI_NONE;
}

static bool is_stored(const rcvi_map *map, int k) { return nth_store(map, k, 0) != RCVI_NONE; }

/* Marks what marked instructions read, down to sums, which are marked too. */
static void mark_needed(table_writer *w, bool past_sums) {
    for (int k = w->map->instruction_count; k-- > 0;) {
        const rcvi_instruction *i = &w->map->instructions[k];
        for (int a = 0; a < argument_count(i) && w->is_needed[k] && (past_sums || !is_sum(w, k)); a++) {
            if (i->from[a] == RCVI_FROM_REGISTER) w->is_needed[i->source[a]] = true;
        }
    }
}

static void clear_needed(table_writer *w) { memset(w->is_needed, 0, sizeof w->is_needed); }

/* ---- numbers that all threads share ---- */

static int find_number(const table_writer *w, double number) {
    for (int n = 0; n < w->head.constant_count; n++) {
        if (!memcmp(&w->numbers[n], &number, sizeof number)) return n;
    }
    return RCVI_NONE;
}

static bool is_row_view(const table_writer *w, int v) { return w->has_sums && w->map->operands[v].column == 0; }

/* Numbers, and in maps with sums views with one number a row, of all instructions that anything stored depends on. */
static void find_uniforms(table_writer *w) {
    const rcvi_map *map = w->map;
    for (int v = 0; v < map->operand_count; v++) w->row_view_of[v] = RCVI_NONE;
    for (int k = 0; k < map->instruction_count; k++) w->is_needed[k] = is_stored(map, k);
    mark_needed(w, true);
    for (int k = 0; k < map->instruction_count; k++) {
        const rcvi_instruction *i = &map->instructions[k];
        w->sum_of[k] = RCVI_NONE;
        for (int a = 0; a < argument_count(i) && w->is_needed[k]; a++) {
            int v = i->source[a];
            if (i->from[a] == RCVI_FROM_NUMBER && find_number(w, i->number[a]) == RCVI_NONE)
                w->numbers[w->head.constant_count++] = i->number[a];
            if (i->from[a] != RCVI_FROM_VIEW || !is_row_view(w, v) || w->row_view_of[v] != RCVI_NONE) continue;
            if (!rcvi_grow(w->context, &w->row_views, &w->row_view_capacity, (size_t)w->head.row_view_count + 1,
                           sizeof *w->row_views)) {
                w->failed = true;
                return;
            }
            w->row_views[w->head.row_view_count] = (rcvi_interpret_instruction){
                .operation = RCVI_INTERPRET_LOAD_REPEATED, .type = w->shape->types[v], .view = (uint16_t)v};
            w->row_view_of[v] = w->head.row_view_count++;
        }
    }
}

/* ---- slots ---- */

static int find_free_slot(table_writer *w) {
    int slot = 0;
    while (w->is_taken[slot]) slot++;
    w->is_taken[slot] = true;
    if (slot >= w->head.slot_count) w->head.slot_count = slot + 1;
    return slot;
}

static void drop_use(table_writer *w, int value) {
    if (value != RCVI_NONE && --w->uses[value] == 0) w->is_taken[w->slot[value]] = false;
}

/* Operand a of an instruction, whose value has a slot. */
static uint16_t operand_of(const table_writer *w, const rcvi_instruction *i, int a) {
    int value = value_of(w, i, a), uniform = 0;
    if (value != RCVI_NONE) return (uint16_t)w->slot[value];
    if (i->from[a] == RCVI_FROM_NUMBER) uniform = find_number(w, i->number[a]);
    if (i->from[a] == RCVI_FROM_VIEW) uniform = w->head.constant_count + w->row_view_of[i->source[a]];
    if (i->from[a] == RCVI_FROM_REGISTER)
        uniform = w->head.constant_count + w->head.row_view_count + w->sum_of[i->source[a]];
    return (uint16_t)(RCVI_INTERPRET_UNIFORM | uniform);
}

/* ---- code ---- */

static void add_code(table_writer *w, rcvi_interpret_instruction instruction) {
    w->failed |= !rcvi_grow(w->context, &w->code, &w->code_capacity, w->code_count + 1, sizeof *w->code);
    if (!w->failed) w->code[w->code_count++] = instruction;
}

static void wait_for_loads(table_writer *w) {
    if (w->is_waiting) add_code(w, (rcvi_interpret_instruction){.operation = RCVI_INTERPRET_WAIT});
    w->is_waiting = false;
}

/* How a view is loaded. Copies take the elements as they are stored: those of a narrower type are widened afterwards. */
static int load_operation(const table_writer *w, int v) {
    const rcvi_map_shape *s = w->shape;
    bool narrow = s->types[v] == RCVI_BF16 || s->types[v] == RCVI_F16;
    if (w->map->operands[v].column == 0) return RCVI_INTERPRET_LOAD_REPEATED;
    if (s->transposed && s->transposed[v]) return RCVI_INTERPRET_LOAD_TRANSPOSED;
    bool copied = s->types[v] == s->real || (narrow && w->head.wide && s->real == RCVI_F32);
    return copied ? RCVI_INTERPRET_BEGIN_LOAD : RCVI_INTERPRET_LOAD;
}

static void add_load(table_writer *w, int v) {
    int value = w->map->instruction_count + v, operation = load_operation(w, v);
    w->slot[value] = find_free_slot(w);
    w->is_loaded[v] = true;
    w->is_raw[v] = operation == RCVI_INTERPRET_BEGIN_LOAD && w->shape->types[v] != w->shape->real;
    w->is_waiting |= operation == RCVI_INTERPRET_BEGIN_LOAD;
    add_code(w, (rcvi_interpret_instruction){.operation = (uint16_t)operation,
                                             .type = w->shape->types[v],
                                             .out = (uint16_t)w->slot[value],
                                             .view = (uint16_t)v});
}

static void add_widening(table_writer *w, int v) {
    if (!w->is_raw[v]) return;
    w->is_raw[v] = false;
    add_code(w, (rcvi_interpret_instruction){.operation = RCVI_INTERPRET_WIDEN,
                                             .type = w->shape->types[v],
                                             .out = (uint16_t)w->slot[w->map->instruction_count + v]});
}

/* Loads the views that are used in the phase and not loaded yet: copies begin first. */
static void add_loads(table_writer *w, const bool *is_wanted) {
    const rcvi_map *map = w->map;
    for (int copies = 1; copies >= 0; copies--) {
        for (int v = 0; v < map->operand_count; v++) {
            bool copied = load_operation(w, v) == RCVI_INTERPRET_BEGIN_LOAD;
            bool wanted = is_wanted[v] && !w->is_loaded[v] && w->uses[map->instruction_count + v] > 0;
            if (wanted && copied == copies) add_load(w, v);
        }
    }
    wait_for_loads(w);
    for (int v = 0; v < map->operand_count; v++) {
        if (is_wanted[v]) add_widening(w, v);
    }
}

static void add_operand_loads(table_writer *w, const rcvi_instruction *i) {
    bool is_wanted[RCVI_MAX_OPERANDS] = {false};
    for (int a = 0; a < argument_count(i); a++) {
        if (i->from[a] == RCVI_FROM_VIEW) is_wanted[i->source[a]] = true;
    }
    add_loads(w, is_wanted);
}

/* Whether a view of the buffer is loaded later in this phase. */
static bool is_loaded_later(const table_writer *w, int buffer) {
    for (int v = 0; v < w->map->operand_count; v++) {
        bool later = w->uses[w->map->instruction_count + v] > 0 && !w->is_loaded[v];
        if (later && w->map->operands[v].buffer == buffer) return true;
    }
    return false;
}

/* A store of value k; sums are stored as the shared numbers that they are. */
static void add_store(table_writer *w, int k, int view) {
    const rcvi_map_shape *s = w->shape;
    bool once = w->map->operands[view].column == 0;
    int uniform = RCVI_INTERPRET_UNIFORM | (w->head.constant_count + w->head.row_view_count + w->sum_of[k]);
    rcvi_interpret_instruction store = {.operation = once ? RCVI_INTERPRET_STORE_ONCE : RCVI_INTERPRET_STORE,
                                        .type = s->types[view],
                                        .view = (uint16_t)view,
                                        .operands = {(uint16_t)(is_sum(w, k) ? uniform : w->slot[k])}};
    add_code(w, store);
    if (s->has_rounded[view]) {
        store.operation = once ? RCVI_INTERPRET_STORE_ROUNDED_ONCE : RCVI_INTERPRET_STORE_ROUNDED;
        store.type = (uint16_t)s->narrow;
        store.view = (uint16_t)rcvi_map_count_rounded(s, view);
        store.operands[1] = (uint16_t)view;
        add_code(w, store);
    }
    if (!is_sum(w, k)) drop_use(w, k);
}

static void add_operation(table_writer *w, int k) {
    const rcvi_instruction *i = &w->map->instructions[k];
    rcvi_interpret_instruction code = {.operation = (uint16_t)i->operation};
    add_operand_loads(w, i);
    for (int a = 0; a < argument_count(i); a++) code.operands[a] = operand_of(w, i, a);
    if (argument_count(i) == 1) code.operands[1] = code.operands[0];
    for (int a = 0; a < argument_count(i); a++) drop_use(w, value_of(w, i, a));
    w->slot[k] = find_free_slot(w);
    code.out = (uint16_t)w->slot[k];
    add_code(w, code);
}

/* ---- phases ---- */

static void count_uses(table_writer *w, const rcvi_instruction *i) {
    for (int a = 0; a < argument_count(i); a++) {
        int value = value_of(w, i, a);
        if (value != RCVI_NONE) w->uses[value]++;
    }
}

/* Adds the stores of instruction k, those that can be stored now or those that remained. */
static void add_stores(table_writer *w, int k, bool *remains, bool now) {
    for (int n = 0, view; (view = nth_store(w->map, k, n)) != RCVI_NONE; n++) {
        if (now) remains[view] = is_loaded_later(w, w->map->operands[view].buffer);
        if (now ? !remains[view] : remains[view]) add_store(w, k, view);
    }
}

/* Writes a phase: the sums [count], numbered from first_sum on; or, where there are none, all that is stored. */
static void add_phase(table_writer *w, const int *sums, int count, int first_sum) {
    const rcvi_map *map = w->map;
    bool all[RCVI_MAX_OPERANDS] = {false}, remains[RCVI_MAX_OPERANDS] = {false};
    rcvi_interpret_phase phase = {.first = (int32_t)w->code_count, .first_sum = first_sum, .sum_count = count};
    memset(w->uses, 0, sizeof w->uses);
    memset(w->is_taken, 0, sizeof w->is_taken);
    memset(w->is_loaded, 0, sizeof w->is_loaded);
    clear_needed(w);
    for (int v = 0; v < map->operand_count; v++) all[v] = true;
    for (int k = 0; k < map->instruction_count && !count; k++) w->is_needed[k] = is_stored(map, k);
    for (int n = 0; n < count; n++) {
        const rcvi_instruction *i = &map->instructions[sums[n]];
        count_uses(w, i);
        if (i->from[0] == RCVI_FROM_REGISTER) w->is_needed[i->source[0]] = true;
    }
    mark_needed(w, false);
    for (int k = 0; k < map->instruction_count; k++) {
        if (!w->is_needed[k] || is_sum(w, k)) continue;
        count_uses(w, &map->instructions[k]);
        for (int n = 0; !count && nth_store(map, k, n) != RCVI_NONE; n++) w->uses[k]++;
    }
    if (w->loads_first) add_loads(w, all);
    for (int k = 0; k < map->instruction_count; k++) {
        if (w->is_needed[k] && !is_sum(w, k)) add_operation(w, k);
        if (w->is_needed[k] && !count) add_stores(w, k, remains, true);
        for (int n = 0; n < count; n++) {
            const rcvi_instruction *i = &map->instructions[k];
            if (sums[n] != k) continue;
            add_operand_loads(w, i);
            add_code(w, (rcvi_interpret_instruction){
                            .operation = RCVI_INTERPRET_ADD_UP, .out = (uint16_t)n, .operands = {operand_of(w, i, 0)}});
            drop_use(w, value_of(w, i, 0));
        }
    }
    for (int k = 0; k < map->instruction_count && !count; k++) add_stores(w, k, remains, false);
    phase.end = (int32_t)w->code_count;
    if (count > w->head.part_count) w->head.part_count = count;
    w->failed |= !rcvi_grow(w->context, &w->phases, &w->phase_capacity, w->phase_count + 1, sizeof *w->phases);
    if (!w->failed) w->phases[w->phase_count++] = phase;
}

/* Whether all sums that a sum depends on are computed. */
static bool is_ready(table_writer *w, int sum) {
    const rcvi_instruction *i = &w->map->instructions[sum];
    clear_needed(w);
    if (i->from[0] == RCVI_FROM_REGISTER) w->is_needed[i->source[0]] = true;
    mark_needed(w, false);
    for (int k = 0; k < sum; k++) {
        if (w->is_needed[k] && is_sum(w, k) && w->sum_of[k] == RCVI_NONE) return false;
    }
    return true;
}

/* Phases of sums: in each all that are ready, RCVI_ROW_SUMS at most; then the phase of what is stored. */
static void add_phases(table_writer *w) {
    bool is_used[RCVI_MAX_LONG_INSTRUCTIONS];
    memcpy(is_used, w->is_needed, sizeof is_used); /* what find_uniforms marked */
    for (int count = 1; count && !w->failed;) {
        int sums[RCVI_ROW_SUMS];
        count = 0;
        for (int k = 0; k < w->map->instruction_count && count < RCVI_ROW_SUMS; k++) {
            if (is_used[k] && is_sum(w, k) && w->sum_of[k] == RCVI_NONE && is_ready(w, k)) sums[count++] = k;
        }
        int first = w->head.sum_count;
        if (count) add_phase(w, sums, count, first);
        for (int n = 0; n < count; n++) w->sum_of[sums[n]] = first + n;
        w->head.sum_count += count;
    }
    if (!w->failed) add_phase(w, NULL, 0, 0);
}

/* ---- the table ---- */

/* instructions, phases, row views, constants */
static rcv_status write_table(table_writer *w, rcvi_map_table *table) {
    size_t code = w->code_count * sizeof *w->code, phases = w->phase_count * sizeof *w->phases,
           views = (size_t)w->head.row_view_count * sizeof *w->row_views,
           numbers = (size_t)w->head.constant_count * sizeof *w->numbers;
    char *to = w->failed ? NULL : rcvi_new(w->context, code + phases + views + numbers + 1, 1);
    if (!to) return RCV_NO_MEMORY;
    w->head.instruction_count = (int32_t)w->code_count;
    w->head.phase_count = (int32_t)w->phase_count;
    table->head = w->head;
    table->has_sums = w->has_sums;
    table->table = to;
    table->bytes = code + phases + views + numbers;
    if (code) memcpy(to, w->code, code);
    memcpy(to + code, w->phases, phases);
    if (views) memcpy(to + code + phases, w->row_views, views);
    memcpy(to + code + phases + views, w->numbers, numbers);
    return RCV_OK;
}

/* Threads of a block, at most: as many for every table with these slots and numbers, however many instructions it has. */
static int most_threads(const rcvi_interpreted *head, bool has_sums) {
    int threads = has_sums ? RCVI_INTERPRET_ROW_THREADS : RCVI_INTERPRET_THREADS;
    int room = RCVI_INTERPRET_SHARED - RCVI_INTERPRET_COPIED * (int)sizeof(rcvi_interpret_instruction) -
               rcvi_interpret_uniform_bytes(head);
    while (threads > 1 && threads * rcvi_interpret_thread_bytes(head) > room) threads /= 2;
    return threads;
}

static rcv_status make(rcv_context *context, const rcvi_map_shape *shape, bool loads_first, rcvi_map_table *table) {
    const rcvi_view *views[RCVI_MAX_VIEWS];
    table_writer *w = rcvi_new(context, 1, sizeof *w);
    if (!w) return RCV_NO_MEMORY;
    w->shape = shape;
    w->map = shape->map;
    w->context = context;
    w->has_sums = rcvi_map_has_sums(shape->map);
    w->loads_first = loads_first;
    w->head.view_count = rcvi_map_views(shape->map, views);
    w->head.rounded_count = rcvi_map_count_rounded(shape, shape->map->operand_count);
    w->head.counted = shape->counted;
    w->head.is_double = shape->real == RCVI_F64;
    w->head.wide = shape->widest >= RCVI_INTERPRET_BYTES / (w->head.is_double ? 8 : 4);
    find_uniforms(w);
    add_phases(w);
    rcv_status status = write_table(w, table);
    rcvi_free(context, w->code);
    rcvi_free(context, w->row_views);
    rcvi_free(context, w->phases);
    rcvi_free(context, w);
    return status;
}

rcv_status rcvi_map_table_new(rcv_context *context, const rcvi_map_shape *shape, rcvi_map_table *table) {
    rcvi_map_table late = {.table = NULL};
    *table = late;
    if (shape->map->product_count)
        return rcvi_fail(RCV_UNSUPPORTED, "the interpreter of maps has no products: leave pack out");
    if (shape->map->operand_count > RCVI_MAX_OPERANDS)
        return rcvi_fail(RCV_UNSUPPORTED, "a map of this cell has more operands than a kernel takes");
    RCVI_TRY(make(context, shape, true, table));
    int most = most_threads(&table->head, table->has_sums), least = RCVI_INTERPRET_THREADS;
    if (most >= least) return RCV_OK;
    rcv_status status = make(context, shape, false, &late);
    rcvi_map_table *worse = &late;
    if (!status && most_threads(&late.head, late.has_sums) > most) {
        rcvi_map_table first = *table;
        *table = late;
        late = first;
    }
    rcvi_free(context, worse->table);
    if (status) rcvi_free(context, table->table);
    if (status) *table = (rcvi_map_table){.table = NULL};
    return status;
}

bool rcvi_map_tables_equal(const rcvi_map_table *a, const rcvi_map_table *b) {
    return a->has_sums == b->has_sums && a->bytes == b->bytes && !memcmp(&a->head, &b->head, sizeof a->head) &&
           !memcmp(a->table, b->table, a->bytes);
}

rcvi_interpret_launch rcvi_map_table_launch(const rcvi_map_table *table, int64_t columns, int64_t rows,
                                            int64_t blocks) {
    const rcvi_interpreted *head = &table->head;
    int64_t each = RCVI_INTERPRET_BYTES / (head->is_double ? 8 : 4), slots = (columns + each - 1) / each;
    int threads = most_threads(head, table->has_sums);
    rcvi_interpret_launch launch = {.lanes = 1};
    if (table->has_sums) {
        while (threads > WARP && threads / 2 >= slots) threads /= 2;
        launch.lanes = threads;
    } else {
        while (launch.lanes < slots && launch.lanes < RCVI_INTERPRET_LANES && launch.lanes < threads) launch.lanes *= 2;
        while (threads > WARP && (slots + launch.lanes - 1) / launch.lanes * rows * launch.lanes < blocks * threads)
            threads /= 2;
    }
    launch.threads = threads;
    launch.shared = rcvi_interpret_uniform_bytes(head) + rcvi_interpret_code_bytes(head) +
                    threads * rcvi_interpret_thread_bytes(head);
    return launch;
}
