/* Maps with sums over features: a block, or a group of threads, has a row.
 *
 * Every register is an array, since a sum stands between the elements before it and those after it. Instructions that are ready are
 * written first, then all sums that are ready, at once: so threads synchronise as seldom as possible. */
#include "device/cuda/codegen/map_writer.h"

static bool is_ready(const rcvi_map_writer *w, int k) {
    const rcvi_instruction *instruction = &w->map->instructions[k];
    for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
        if (instruction->from[a] == RCVI_FROM_REGISTER && !w->done[instruction->source[a]]) return false;
    }
    return !w->done[k];
}

static void add_row_elements(rcvi_map_writer *w) {
    for (int k = 0; k < w->map->instruction_count; k++) {
        const rcvi_instruction *instruction = &w->map->instructions[k];
        if (instruction->operation == RCVI_SUM || !is_ready(w, k)) continue;
        rcvi_text_add(&w->text, "    REAL r%d[%s];\n    for (int i = 0; i < %s; i++) r%d[i] = ", k,
                      rcvi_writer_width(w), rcvi_writer_width(w), k);
        rcvi_writer_add_operation(w, instruction);
        w->done[k] = w->same[k] = true;
        for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++)
            w->same[k] &= rcvi_writer_is_same(w, instruction, a);
    }
}

/* A result that no other block reads is stored as soon as it is known, which frees its registers before the next sums. */
static bool is_stored_now(const rcvi_map_writer *w, int view, int number) {
    if (view == RCVI_NONE || w->links->is_exported[view] || w->stored[view] || !w->done[number]) return false;
    for (int i = 0; i < w->links->write_count; i++) {
        if (w->links->writes[i].view == view) return false;
    }
    return true;
}

static void add_address_now(rcvi_map_writer *w, int view, const char *name, int number) {
    if (is_stored_now(w, view, number)) rcvi_writer_add_address(w, view, name, number);
}

static void add_store_now(rcvi_map_writer *w, int view, const char *name, int number) {
    if (!is_stored_now(w, view, number)) return;
    rcvi_writer_add_store(w, view, name, number);
    w->stored[view] = true;
}

/* Writes the sums that are ready. Returns how many there were. */
static int add_row_sums(rcvi_map_writer *w) {
    int sums[RCVI_ROW_SUMS], count = 0;
    for (int k = 0; k < w->map->instruction_count && count < RCVI_ROW_SUMS; k++) {
        if (w->map->instructions[k].operation == RCVI_SUM && is_ready(w, k)) sums[count++] = k;
    }
    if (!count) return 0;
    if (rcvi_writer_is_by_rows(w)) {
        rcvi_writer_add_all_stores(w, add_address_now);
        rcvi_writer_add_all_stores(w, add_store_now);
    }
    rcvi_text_add(&w->text, "    REAL s%d[%d] = {};\n", sums[0], count);
    for (int n = 0; n < count; n++) {
        rcvi_text_add(&w->text, "    for (int i = 0; i < %s; i++) s%d[%d] += %s ? ", rcvi_writer_width(w), sums[0], n,
                      rcvi_writer_is_by_rows(w) ? "Row::has(column, i / VECTOR)" : "active");
        rcvi_writer_add_operand(w, &w->map->instructions[sums[n]], 0);
        rcvi_text_add(&w->text, " : (REAL)0;\n");
    }
    rcvi_text_add(&w->text, "    %s<%d>(s%d, %d);\n", rcvi_writer_is_by_rows(w) ? "Row::template sum" : "block_sums",
                  count, sums[0], w->turn++ % 2);
    for (int n = 0; n < count; n++) {
        rcvi_text_add(&w->text, "    REAL r%d[%s];\n    for (int i = 0; i < %s; i++) r%d[i] = s%d[%d];\n", sums[n],
                      rcvi_writer_width(w), rcvi_writer_width(w), sums[n], sums[0], n);
        w->done[sums[n]] = w->same[sums[n]] = true;
    }
    return count;
}

/* A view that all rows share is loaded before the sums that precede its first use, so that the load overlaps with them. */
static void find_needs(rcvi_map_writer *w) {
    int level[RCVI_MAX_LONG_INSTRUCTIONS];
    for (int v = 0; v < w->map->operand_count; v++) w->need[v] = RCVI_MAX_LONG_INSTRUCTIONS;
    for (int k = 0; k < w->map->instruction_count; k++) {
        const rcvi_instruction *instruction = &w->map->instructions[k];
        level[k] = 0;
        for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
            if (instruction->from[a] == RCVI_FROM_REGISTER && level[instruction->source[a]] > level[k])
                level[k] = level[instruction->source[a]];
        }
        for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
            if (instruction->from[a] == RCVI_FROM_VIEW && level[k] < w->need[instruction->source[a]])
                w->need[instruction->source[a]] = level[k];
        }
        level[k] += instruction->operation == RCVI_SUM;
    }
}

static void add_shared_views(rcvi_map_writer *w, int from, int to) {
    for (int v = 0; v < w->map->operand_count; v++) {
        if (w->read[v] && w->need[v] >= from && w->need[v] < to && !rcvi_writer_is_fetched(&w->map->operands[v]))
            rcvi_writer_add_row_value(w, &w->map->operands[v], v, v, NAMED);
    }
}

void rcvi_writer_add_row_instructions(rcvi_map_writer *w) {
    int level = 0;
    if (rcvi_writer_is_by_rows(w)) find_needs(w);
    if (rcvi_writer_is_by_rows(w)) add_shared_views(w, 0, 1);
    do {
        add_row_elements(w);
        level++;
        if (rcvi_writer_is_by_rows(w)) add_shared_views(w, level, level + 1);
    } while (add_row_sums(w) && !w->text.failed);
}
