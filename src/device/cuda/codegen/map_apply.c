/* The body of `apply`: loads of a map's views, its instructions, and its stores. */
#include "device/cuda/codegen/map_writer.h"

bool rcvi_writer_is_by_rows(const rcvi_map_writer *w) { return w->links && w->links->row_threads; }
const char *rcvi_writer_width(const rcvi_map_writer *w) { return rcvi_writer_is_by_rows(w) ? "SPAN" : "VECTOR"; }

void rcvi_writer_find_uses(rcvi_map_writer *w) {
    for (int k = 0; k < w->map->instruction_count; k++) {
        const rcvi_instruction *instruction = &w->map->instructions[k];
        for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
            if (instruction->from[a] == RCVI_FROM_VIEW) w->read[instruction->source[a]] = true;
        }
        w->kept[k] = instruction->out != RCVI_NONE;
    }
    for (int i = 0; i < w->map->store_count; i++) {
        if (!w->map->stores[i].product) w->kept[w->map->stores[i].source] = true;
    }
}

/* ---- loads and stores ---- */

static bool is_transposed(const rcvi_map_writer *w, int view) {
    return view < w->map->operand_count && w->shape->transposed && w->shape->transposed[view];
}

/* The first view with this view's stride: so the compiler sees that both strides are one number. */
static int stride_view(const rcvi_map_writer *w, const rcvi_view *view, int index) {
    const rcvi_view *views[RCVI_MAX_VIEWS];
    rcvi_map_views(w->map, views);
    for (int v = 0; v < w->map->operand_count && v < index; v++) {
        if (views[v]->row == view->row && !is_transposed(w, v)) return v;
    }
    return index;
}

void rcvi_writer_add_element(rcvi_map_writer *w, const rcvi_view *view, int index) {
    bool ordered = w->links && index < w->map->operand_count && w->links->is_in_caller_order[index];
    if (view->row && w->links)
        rcvi_text_add(&w->text, "%s * %lldll", ordered ? "x.order" : "row", (long long)view->row);
    else if (view->row)
        rcvi_text_add(&w->text, "row * STRIDE_OF(c, %d)", stride_view(w, view, index));
    if (view->row && view->column) rcvi_text_add(&w->text, " + ");
    if (view->column || !view->row) rcvi_text_add(&w->text, view->column ? "column" : "0");
}

void rcvi_writer_add_load(rcvi_map_writer *w, const rcvi_view *view, int index, const char *name, int number) {
    if (is_transposed(w, index)) {
        rcvi_text_add(
            &w->text,
            "    REAL %s%d[VECTOR];\n    load_transposed<%s>(ADDRESS_OF(c, member, %d), row, column, STRIDE_OF(c, %d), "
            "%s%d);\n",
            name, number, rcvi_source_types[w->shape->types[index]], index, index, name, number);
        return;
    }
    rcvi_text_add(&w->text, "    REAL %s%d[VECTOR];\n    %s<%s>(ADDRESS_OF(c, member, %d), ", name, number,
                  view->column ? "load" : "load_repeated", rcvi_source_types[w->shape->types[index]], index);
    rcvi_writer_add_element(w, view, index);
    rcvi_text_add(&w->text, ", %s%d);\n", name, number);
}

/* A view with one number a row is stored by the thread of the first column. In a block of a row only threads that have columns store. */
void rcvi_writer_add_store(rcvi_map_writer *w, int view, const char *name, int number) {
    if (view == RCVI_NONE) return;
    bool once = w->map->operands[view].column == 0;
    const char *how = once ? "store_once" : "store", *when = once ? "if (column == 0) " : "";
    if (w->shape->row_threads) when = once ? "if (active && column == 0) " : "if (active) ";
    if (w->links) when = once ? "if (c.there && column == 0) " : "if (c.there) ";
    if (w->links && w->links->is_short[view])
        when = once ? "if (c.there && c.is_active && column == 0) " : "if (c.there && c.is_active) ";
    if (rcvi_writer_is_by_rows(w)) how = once ? "Row::template store_once" : "Row::template store";
    rcvi_text_add(&w->text, w->links ? "    %s%s<%s>(at%d, " : "    %s%s<%s>(ADDRESS_OF(c, member, %d), ", when, how,
                  rcvi_source_types[w->shape->types[view]], view);
    rcvi_writer_add_element(w, &w->map->operands[view], view);
    rcvi_text_add(&w->text, ", %s%s%d);\n", rcvi_writer_is_by_rows(w) ? "column, " : "", name, number);
    if (!w->shape->has_rounded[view]) return;
    if (w->links)
        rcvi_text_add(&w->text, "    %s%s<%s>(rounded%d, ", when, how, rcvi_source_types[w->shape->narrow], view);
    else
        rcvi_text_add(&w->text, "    %s%s<%s>(ROUNDED_OF(c, member, %d), ", when, how,
                      rcvi_source_types[w->shape->narrow], rcvi_map_count_rounded(w->shape, view));
    rcvi_writer_add_element(w, &w->map->operands[view], view);
    rcvi_text_add(&w->text, ", %s%s%d);\n", rcvi_writer_is_by_rows(w) ? "column, " : "", name, number);
}

void rcvi_writer_add_address(rcvi_map_writer *w, int view, const char *name, int number) {
    (void)name, (void)number;
    if (view == RCVI_NONE || w->stored[view]) return;
    rcvi_text_add(&w->text, "    const unsigned long long at%d = c.address(%d);\n", view, view);
    if (w->shape->has_rounded[view])
        rcvi_text_add(&w->text, "    const unsigned long long rounded%d = ROUNDED_OF(c, 0, %d);\n", view,
                      rcvi_map_count_rounded(w->shape, view));
}

void rcvi_writer_add_all_stores(rcvi_map_writer *w,
                                void (*add)(rcvi_map_writer *w, int view, const char *name, int number)) {
    const rcvi_map *map = w->map;
    const char *own = w->shape->row_threads > 0 ? "r" : "o";
    for (int p = 0; p < map->product_count; p++) add(w, map->products[p].out, "p", p);
    for (int k = 0; k < map->instruction_count; k++) add(w, map->instructions[k].out, own, k);
    for (int i = 0; i < map->store_count; i++)
        add(w, map->stores[i].out, map->stores[i].product ? "p" : own, map->stores[i].source);
}

bool rcvi_writer_is_started(const rcvi_map_writer *w, int p) {
    return w->map->products[p].start.buffer != RCVI_NONE && !(w->links && w->links->started);
}

void rcvi_writer_add_product(rcvi_map_writer *w, int p) {
    rcvi_text_add(&w->text, "    REAL p%d[VECTOR];\n#pragma unroll\n", p);
    rcvi_text_add(&w->text, "    for (int i = 0; i < VECTOR; i++) p%d[i] = sums[%d][i]", p, p);
    if (rcvi_writer_is_started(w, p)) rcvi_text_add(&w->text, " + s%d[i]", p);
    rcvi_text_add(&w->text, ";\n");
}

/* ---- instructions ---- */

void rcvi_writer_add_operand(void *self, const rcvi_instruction *instruction, int a) {
    rcvi_map_writer *w = self;
    static const char *const forms[] = {
        [RCVI_FROM_REGISTER] = "r%d", [RCVI_FROM_VIEW] = "v%d[i]", [RCVI_FROM_PRODUCT] = "p%d[i]"};
    if (instruction->from[a] == RCVI_FROM_NUMBER)
        rcvi_source_add_number(&w->text, w->shape->real, instruction->number[a]);
    else if (instruction->from[a] == RCVI_FROM_REGISTER && w->shape->row_threads)
        rcvi_text_add(&w->text, "r%d[i]", instruction->source[a]);
    else
        rcvi_text_add(&w->text, forms[instruction->from[a]], instruction->source[a]);
}

bool rcvi_writer_is_same(const rcvi_map_writer *w, const rcvi_instruction *instruction, int a) {
    switch (instruction->from[a]) {
    case RCVI_FROM_NUMBER: return true;
    case RCVI_FROM_VIEW: return w->map->operands[instruction->source[a]].column == 0;
    case RCVI_FROM_REGISTER: return w->same[instruction->source[a]];
    default: return false;
    }
}

/* A quotient whose divisor is one number for the whole row: multiplies by its reciprocal, which is computed once. */
static bool add_quotient(rcvi_map_writer *w, const rcvi_instruction *instruction) {
    if (instruction->operation != RCVI_DIVIDE || !w->shape->row_threads || w->shape->real == RCVI_F64 ||
        instruction->from[1] == RCVI_FROM_NUMBER || !rcvi_writer_is_same(w, instruction, 1))
        return false;
    rcvi_writer_add_operand(w, instruction, 0);
    rcvi_text_add(&w->text, " * reciprocal(");
    rcvi_writer_add_operand(w, instruction, 1);
    rcvi_text_add(&w->text, ");\n");
    return true;
}

void rcvi_writer_add_operation(rcvi_map_writer *w, const rcvi_instruction *instruction) {
    if (!add_quotient(w, instruction)) rcvi_source_add_operation(&w->text, instruction, rcvi_writer_add_operand, w);
}

static void add_instruction(rcvi_map_writer *w, int k) {
    rcvi_text_add(&w->text, "        const REAL r%d = ", k);
    rcvi_writer_add_operation(w, &w->map->instructions[k]);
    if (w->kept[k]) rcvi_text_add(&w->text, "        o%d[i] = r%d;\n", k, k);
}

/* ---- the body ---- */

void rcvi_writer_add_body(rcvi_map_writer *w) {
    const rcvi_map *map = w->map;
    bool rows = w->shape->row_threads > 0;
    if (rows) rcvi_writer_add_row_instructions(w);
    for (int k = 0; k < map->instruction_count && !rows; k++) {
        if (w->kept[k]) rcvi_text_add(&w->text, "    REAL o%d[VECTOR];\n", k);
    }
    if (map->instruction_count && !rows) {
        rcvi_text_add(&w->text, "#pragma unroll\n    for (int i = 0; i < VECTOR; i++) {\n");
        for (int k = 0; k < map->instruction_count; k++) add_instruction(w, k);
        rcvi_text_add(&w->text, "    }\n");
    }
    if (!w->links) {
        rcvi_writer_add_all_stores(w, rcvi_writer_add_store);
        return;
    }
    if (rows) rcvi_writer_add_all_stores(w, rcvi_writer_add_address);
    rcvi_writer_add_all_stores(w, rcvi_writer_add_link);
    rcvi_writer_add_all_stores(w, rcvi_writer_add_exported_store);
    rcvi_text_add(&w->text, "    signal();\n");
    rcvi_writer_add_all_stores(w, rcvi_writer_add_other_store);
}
