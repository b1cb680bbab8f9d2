/* Maps as CUDA source: map_element.cuh, then the function `apply` written from the map, then a kernel around it:
 * map.cuh, rows.cuh, or the texts of tiles where there are products. */
#include "device/cuda/codegen/source.h"

#include <math.h>
#include <string.h>

/* The texts of these files, embedded by the build. */
extern const char rcvi_map_element_text[], rcvi_map_text[], rcvi_rows_text[];
extern const char rcvi_tile_pipeline_text[], rcvi_tile_fma_text[], rcvi_tile_mma_text[], rcvi_tile_wgmma_text[],
    rcvi_tile_text[];

enum {
    MAX_ARGUMENT_BYTES = 32764,
    CHUNK_BYTES = 128,  /* of a row in a stage, here and below as tile_pipeline.cuh has it */
    BARRIER_BYTES = 16, /* of a stage */
    CONSUMERS = 8,      /* warps that multiply */
    PRODUCERS = 4,      /* warps that copy */
    MAX_SPAN = 128,     /* columns of all products of a tile */
    MIN_STAGES = 4,
    MAX_SUMS = RCVI_ROW_SUMS
};

const char *const rcvi_source_types[] = {
    [RCVI_F32] = "float",   [RCVI_F64] = "double",       [RCVI_BF16] = "BFloat16",
    [RCVI_F16] = "Float16", [RCVI_U8] = "unsigned char", [RCVI_I64] = "long long",
};

/* ---- what a map has ---- */

int rcvi_map_views(const rcvi_map *map, const rcvi_view **views) {
    int count = 0;
    for (int v = 0; v < map->operand_count; v++) views[count++] = &map->operands[v];
    for (int p = 0; p < map->product_count; p++) {
        const rcvi_product *product = &map->products[p];
        views[count++] = &product->start;
        for (int t = 0; t < product->term_count; t++) {
            views[count++] = &product->terms[t].a;
            views[count++] = &product->terms[t].b;
        }
    }
    return count;
}

int rcvi_map_start_view(const rcvi_map *map, int p) {
    int view = map->operand_count;
    for (int i = 0; i < p; i++) view += 1 + 2 * map->products[i].term_count;
    return view;
}

bool rcvi_map_has_sums(const rcvi_map *map) {
    for (int i = 0; i < map->instruction_count; i++) {
        if (map->instructions[i].operation == RCVI_SUM) return true;
    }
    return false;
}

static const rcvi_view *pass_operand(const rcvi_map *map, const rcvi_pass *pass) {
    const rcvi_view *views[RCVI_MAX_VIEWS];
    rcvi_map_views(map, views);
    return views[pass->a];
}

/* The pass that term t of a product joins: one of the passes first .. count - 1 along the same operand, or `count`. */
static int join_pass(const rcvi_map *map, const rcvi_product *product, int t, const rcvi_pass *passes, int first,
                     int count) {
    for (int i = first; i < count; i++) {
        if (passes[i].depth == product->terms[t].depth &&
            rcvi_view_equal(pass_operand(map, &passes[i]), &product->terms[t].a))
            return i;
    }
    return count;
}

int rcvi_map_passes(const rcvi_map *map, rcvi_pass *passes) {
    int count = 0;
    for (int p = 0; p < map->product_count; p++) {
        const rcvi_product *product = &map->products[p];
        int view = rcvi_map_start_view(map, p) + 1;
        for (int t = 0, first = 0; t < product->term_count; t++, view += 2) {
            int pass = join_pass(map, product, t, passes, first, count);
            if (pass == RCVI_MAX_PASSES) return -1;
            if (pass == count) { /* in front, so that the terms behind it may join those of other products */
                pass = first;
                memmove(&passes[pass + 1], &passes[pass], (size_t)(count - pass) * sizeof *passes);
                passes[pass] = (rcvi_pass){.a = view, .depth = product->terms[t].depth};
                for (int i = 0; i < RCVI_MAX_PRODUCTS; i++) passes[pass].b[i] = RCVI_NONE;
                count++;
            }
            passes[pass].b[p] = view + 1;
            first = pass + 1; /* the sum's order is that of the terms */
        }
    }
    return count;
}

static int count_rounded(const rcvi_map_shape *shape, int before) {
    int count = 0;
    for (int v = 0; v < before; v++) count += shape->has_rounded[v];
    return count;
}

int rcvi_map_words(const rcvi_map_shape *shape) {
    const rcvi_view *views[RCVI_MAX_VIEWS];
    rcvi_pass passes[RCVI_MAX_PASSES];
    int view_count = rcvi_map_views(shape->map, views), pass_count = rcvi_map_passes(shape->map, passes);
    int rounded = count_rounded(shape, shape->map->operand_count);
    return 1 + view_count + (pass_count > 0 ? pass_count : 0) + shape->members * (1 + view_count + rounded);
}

size_t rcvi_tile_shared(const rcvi_map_shape *shape) {
    int rows = shape->tile_rows + shape->map->product_count * shape->tile_units;
    return (size_t)shape->stages * ((size_t)rows * CHUNK_BYTES + BARRIER_BYTES);
}

int rcvi_tile_threads(const rcvi_map_shape *shape) {
    (void)shape; /* all have as many */
    return (CONSUMERS + PRODUCERS) * 32;
}

/* ---- macros and tables ---- */

typedef struct {
    const rcvi_map_shape *shape;
    const rcvi_map *map;
    rcvi_text text;
    rcvi_pass passes[RCVI_MAX_PASSES];
    int pass_count;
    bool read[RCVI_MAX_OPERANDS];          /* views */
    bool kept[RCVI_MAX_LONG_INSTRUCTIONS]; /* registers that are stored */
    bool done[RCVI_MAX_LONG_INSTRUCTIONS]; /* instructions that are written, in a block of a row */
    bool same[RCVI_MAX_LONG_INSTRUCTIONS]; /* one number for the whole row, likewise */
    int turn;                              /* of the next sums */
    bool stored[RCVI_MAX_OPERANDS];        /* views, before the last sums of a step by rows */
    int need[RCVI_MAX_OPERANDS];           /* views: sums, one after the other, that are known when it is first read */
    const rcvi_map_links *links;           /* of a step of a persistent kernel, else NULL */
} writer;

static void add_macro(writer *w, const char *name, int value) {
    rcvi_text_add(&w->text, "#define %s %d\n", name, value);
}

static const char *tile_kind(const rcvi_map_shape *shape) {
    if (shape->real == RCVI_F64) return "TILE_F64";
    if (shape->narrow == RCVI_BF16) return "TILE_BF16";
    if (shape->narrow == RCVI_F16) return "TILE_F16";
    return shape->tensor ? "TILE_TF32" : "TILE_F32";
}

static void add_macros(writer *w) {
    const rcvi_map_shape *s = w->shape;
    const rcvi_view *views[RCVI_MAX_VIEWS];
    rcvi_text_add(&w->text, "#define REAL %s\n", rcvi_source_types[s->real]);
    add_macro(w, "REAL_IS_DOUBLE", s->real == RCVI_F64);
    add_macro(w, "VECTOR", s->vector);
    add_macro(w, "MEMBERS", s->members);
    add_macro(w, "COUNTED", s->counted);
    add_macro(w, "VIEWS", rcvi_map_views(w->map, views));
    add_macro(w, "ROUNDED_COPIES", count_rounded(s, w->map->operand_count));
    add_macro(w, "PASSES", w->pass_count);
    add_macro(w, "PRODUCTS", w->map->product_count);
    add_macro(w, "ROW_THREADS", s->row_threads);
    if (s->row_threads) add_macro(w, "SUMS", MAX_SUMS);
    add_macro(w, "WORDS", rcvi_map_words(s));
    if (!w->map->product_count) return;
    add_macro(w, tile_kind(s), 1);
    add_macro(w, "TILE_ROWS", s->tile_rows);
    add_macro(w, "TILE_UNITS", s->tile_units);
    add_macro(w, "STAGES", s->stages);
    add_macro(w, "CONSUMERS", CONSUMERS);
    add_macro(w, "PRODUCERS", PRODUCERS);
    add_macro(w, "ALIGNED", s->aligned);
}

/* Views of the passes' operands. */
static void add_tables(writer *w) {
    rcvi_text_add(&w->text, "__device__ constexpr int PASS_A[PASSES] = {");
    for (int i = 0; i < w->pass_count; i++) rcvi_text_add(&w->text, "%s%d", i ? ", " : "", w->passes[i].a);
    rcvi_text_add(&w->text, "};\n__device__ constexpr int PASS_B[PASSES][PRODUCTS] = {");
    for (int i = 0; i < w->pass_count; i++) {
        rcvi_text_add(&w->text, "%s{", i ? ", " : "");
        for (int p = 0; p < w->map->product_count; p++)
            rcvi_text_add(&w->text, "%s%d", p ? ", " : "", w->passes[i].b[p]);
        rcvi_text_add(&w->text, "}");
    }
    rcvi_text_add(&w->text, "};\n");
}

/* ---- the function `apply` ---- */

/* In a persistent kernel a thread may have several vectors of a row: SPAN elements. */
static bool is_by_rows(const writer *w) { return w->links && w->links->across; }
static const char *width(const writer *w) { return is_by_rows(w) ? "SPAN" : "VECTOR"; }

static bool is_transposed(const writer *w, int view) {
    return view < w->map->operand_count && w->shape->transposed && w->shape->transposed[view];
}

/* The first view with the stride of this one: the compiler then sees that they are the same number. */
static int stride_view(const writer *w, const rcvi_view *view, int index) {
    const rcvi_view *views[RCVI_MAX_VIEWS];
    rcvi_map_views(w->map, views);
    for (int v = 0; v < w->map->operand_count && v < index; v++) {
        if (views[v]->row == view->row && !is_transposed(w, v)) return v;
    }
    return index;
}

/* The element of a view, from its address. */
static void add_element(writer *w, const rcvi_view *view, int index) {
    bool ordered = w->links && index < w->map->operand_count && w->links->is_ordered[index];
    if (view->row && w->links)
        rcvi_text_add(&w->text, "%s * %lldll", ordered ? "x.order" : "row", (long long)view->row);
    else if (view->row)
        rcvi_text_add(&w->text, "row * STRIDE_OF(c, %d)", stride_view(w, view, index));
    if (view->row && view->column) rcvi_text_add(&w->text, " + ");
    if (view->column || !view->row) rcvi_text_add(&w->text, view->column ? "column" : "0");
}

/* Declares NAME and loads a view into it. */
static void add_load(writer *w, const rcvi_view *view, int index, const char *name, int number) {
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
    add_element(w, view, index);
    rcvi_text_add(&w->text, ", %s%d);\n", name, number);
}

/* One number a row is stored by the thread of the first column; in a block of a row, by threads that have columns. */
static void add_store(writer *w, int view, const char *name, int number) {
    if (view == RCVI_NONE) return;
    bool once = w->map->operands[view].column == 0;
    const char *how = once ? "store_once" : "store", *when = once ? "if (column == 0) " : "";
    if (w->shape->row_threads) when = once ? "if (active && column == 0) " : "if (active) ";
    if (w->links) when = once ? "if (c.there && column == 0) " : "if (c.there) ";
    if (w->links && w->links->is_short[view])
        when = once ? "if (c.there && c.goes_on && column == 0) " : "if (c.there && c.goes_on) ";
    if (is_by_rows(w)) how = once ? "Row::template store_once" : "Row::template store";
    rcvi_text_add(&w->text, w->links ? "    %s%s<%s>(at%d, " : "    %s%s<%s>(ADDRESS_OF(c, member, %d), ", when, how,
                  rcvi_source_types[w->shape->types[view]], view);
    add_element(w, &w->map->operands[view], view);
    rcvi_text_add(&w->text, ", %s%s%d);\n", is_by_rows(w) ? "column, " : "", name, number);
    if (!w->shape->has_rounded[view]) return;
    if (w->links)
        rcvi_text_add(&w->text, "    %s%s<%s>(rounded%d, ", when, how, rcvi_source_types[w->shape->narrow], view);
    else
        rcvi_text_add(&w->text, "    %s%s<%s>(ROUNDED_OF(c, member, %d), ", when, how,
                      rcvi_source_types[w->shape->narrow], count_rounded(w->shape, view));
    add_element(w, &w->map->operands[view], view);
    rcvi_text_add(&w->text, ", %s%s%d);\n", is_by_rows(w) ? "column, " : "", name, number);
}

/* To other blocks of a persistent kernel. */
static void add_link(writer *w, int view, const char *name, int number) {
    for (int i = 0; w->links && view != RCVI_NONE && i < w->links->write_count; i++) {
        const rcvi_map_link *link = &w->links->writes[i];
        if (link->view != view) continue;
        if (!link->chunks) {
            rcvi_text_add(&w->text, "    if (c.there) store_tagged(c.place(%d), row * %lldll + column, %s%d);\n",
                          link->place, (long long)w->links->columns, name, number);
            continue;
        }
        rcvi_text_add(&w->text, "    %s%s<%s, %d>(c, %d, column, %s%d);\n", is_by_rows(w) ? "Row::template " : "",
                      w->links->is_short[view] ? "publish_short" : "publish", rcvi_source_types[w->links->operand],
                      link->chunks, link->place, name, number);
    }
}

static void add_early_store(writer *w, int view, const char *name, int number) {
    if (view != RCVI_NONE && w->links->is_early[view]) add_store(w, view, name, number);
}

static void add_other_store(writer *w, int view, const char *name, int number) {
    if (view == RCVI_NONE || w->links->is_early[view] || w->links->is_spare[view] || w->stored[view]) return;
    add_store(w, view, name, number);
}

/* Addresses of what is stored, before any of it is. */
static void add_address(writer *w, int view, const char *name, int number) {
    (void)name, (void)number;
    if (view == RCVI_NONE || w->stored[view]) return;
    rcvi_text_add(&w->text, "    const unsigned long long at%d = c.place(%d);\n", view, view);
    if (w->shape->has_rounded[view])
        rcvi_text_add(&w->text, "    const unsigned long long rounded%d = ROUNDED_OF(c, 0, %d);\n", view,
                      count_rounded(w->shape, view));
}

static void add_all_stores(writer *w, void (*add)(writer *w, int view, const char *name, int number)) {
    const rcvi_map *map = w->map;
    const char *own = w->shape->row_threads > 0 ? "r" : "o";
    for (int p = 0; p < map->product_count; p++) add(w, map->products[p].out, "p", p);
    for (int k = 0; k < map->instruction_count; k++) add(w, map->instructions[k].out, own, k);
    for (int i = 0; i < map->store_count; i++)
        add(w, map->stores[i].out, map->stores[i].product ? "p" : own, map->stores[i].source);
}

static void find_uses(writer *w) {
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

static bool is_started(const writer *w, int p) {
    return w->map->products[p].start.buffer != RCVI_NONE && !(w->links && w->links->started);
}

static void add_product(writer *w, int p) {
    rcvi_text_add(&w->text, "    REAL p%d[VECTOR];\n#pragma unroll\n", p);
    rcvi_text_add(&w->text, "    for (int i = 0; i < VECTOR; i++) p%d[i] = sums[%d][i]", p, p);
    if (is_started(w, p)) rcvi_text_add(&w->text, " + s%d[i]", p);
    rcvi_text_add(&w->text, ";\n");
}

/* All loads come before all stores: a view may be read and stored to. */
static void add_loads(writer *w) {
    for (int v = 0; v < w->map->operand_count; v++) {
        if (w->read[v]) add_load(w, &w->map->operands[v], v, "v", v);
    }
    for (int p = 0; p < w->map->product_count; p++) {
        if (is_started(w, p)) add_load(w, &w->map->products[p].start, rcvi_map_start_view(w->map, p), "s", p);
        add_product(w, p);
    }
}

/* Digits that are read back as the same number, and never as an integer (-0 has none). */
void rcvi_source_add_number(rcvi_text *text, rcvi_cuda_type type, double number) {
    double real = type == RCVI_F64 ? number : (double)(float)number;
    if (isnan(real)) {
        rcvi_text_add(text, "(infinity() - infinity())");
    } else if (isinf(real)) {
        rcvi_text_add(text, "(%sinfinity())", real < 0 ? "-" : "");
    } else {
        rcvi_text_add(text, "(REAL)(");
        size_t before = text->length;
        rcvi_text_add_number(text, real);
        if (!text->failed && !strpbrk(text->bytes + before, ".e")) rcvi_text_add(text, ".0");
        rcvi_text_add(text, ")");
    }
}

void rcvi_source_add_operation(rcvi_text *text, const rcvi_instruction *instruction, rcvi_add_operand add, void *self) {
    const rcvi_operation_info *operation = &rcvi_operations[instruction->operation];
    bool call = operation->name[0] >= 'a' && operation->name[0] <= 'z';
    if (call) rcvi_text_add(text, "op_%s(", operation->name);
    if (!call && operation->arguments == 1) rcvi_text_add(text, "%s", operation->name);
    add(self, instruction, 0);
    for (int a = 1; a < operation->arguments; a++) {
        rcvi_text_add(text, "%s%s ", call ? "," : " ", call ? "" : operation->name);
        add(self, instruction, a);
    }
    rcvi_text_add(text, call ? ");\n" : ";\n");
}

static void add_operand(void *self, const rcvi_instruction *instruction, int a) {
    writer *w = self;
    static const char *const forms[] = {
        [RCVI_FROM_REGISTER] = "r%d", [RCVI_FROM_VIEW] = "v%d[i]", [RCVI_FROM_PRODUCT] = "p%d[i]"};
    if (instruction->from[a] == RCVI_FROM_NUMBER)
        rcvi_source_add_number(&w->text, w->shape->real, instruction->number[a]);
    else if (instruction->from[a] == RCVI_FROM_REGISTER && w->shape->row_threads)
        rcvi_text_add(&w->text, "r%d[i]", instruction->source[a]);
    else
        rcvi_text_add(&w->text, forms[instruction->from[a]], instruction->source[a]);
}

/* One number for the whole row? */
static bool is_same(const writer *w, const rcvi_instruction *instruction, int a) {
    switch (instruction->from[a]) {
    case RCVI_FROM_NUMBER: return true;
    case RCVI_FROM_VIEW: return w->map->operands[instruction->source[a]].column == 0;
    case RCVI_FROM_REGISTER: return w->same[instruction->source[a]];
    default: return false;
    }
}

/* Many numbers of a row are divided by one: its reciprocal is found once. */
static bool add_quotient(writer *w, const rcvi_instruction *instruction) {
    if (instruction->operation != RCVI_DIVIDE || !w->shape->row_threads || w->shape->real == RCVI_F64 ||
        instruction->from[1] == RCVI_FROM_NUMBER || !is_same(w, instruction, 1))
        return false;
    add_operand(w, instruction, 0);
    rcvi_text_add(&w->text, " * reciprocal(");
    add_operand(w, instruction, 1);
    rcvi_text_add(&w->text, ");\n");
    return true;
}

/* The operation of an instruction on element i. */
static void add_operation(writer *w, const rcvi_instruction *instruction) {
    if (!add_quotient(w, instruction)) rcvi_source_add_operation(&w->text, instruction, add_operand, w);
}

static void add_instruction(writer *w, int k) {
    rcvi_text_add(&w->text, "        const REAL r%d = ", k);
    add_operation(w, &w->map->instructions[k]);
    if (w->kept[k]) rcvi_text_add(&w->text, "        o%d[i] = r%d;\n", k, k);
}

/* ---- what a step of a persistent kernel reads ---- */

/* Every value that is read before the products are known: as a member of Values, as a name for it, or as a load of it. */
typedef enum { DECLARED, NAMED, LOADED, LOADED_LATE, LOADED_TAGGED } loading;

/* What all rows share is read when it is needed: it is near. */
static bool is_fetched(const rcvi_view *view) { return view->row != 0; }

/* The same of a step by rows. */
static void add_row_value(writer *w, const rcvi_view *view, int index, int number, loading how) {
    const char *type = rcvi_source_types[w->shape->types[index]], *once = view->column ? "" : "_once";
    bool fetched = is_fetched(view);
    if (how == DECLARED && fetched)
        rcvi_text_add(&w->text, "        %s<%s> v%d%s;\n", view->column ? "Group" : "Single", type, number,
                      view->column ? "[Row::EACH]" : "");
    if (how == NAMED) rcvi_text_add(&w->text, "    REAL v%d[SPAN];\n", number);
    if (how == NAMED && fetched) rcvi_text_add(&w->text, "    Row::widen%s(x.v%d, v%d);\n", once, number, number);
    bool loads = how == NAMED && !fetched;
    if (!loads && (!fetched || how != (w->links->tags[index] != RCVI_NONE ? LOADED_TAGGED
                                       : w->links->is_late[index]         ? LOADED_LATE
                                                                          : LOADED)))
        return;
    rcvi_text_add(&w->text, "    Row::template %s%s<%s>(ADDRESS_OF(c, 0, %d), ", loads ? "load" : "fetch", once, type,
                  index);
    add_element(w, view, index);
    rcvi_text_add(&w->text, ", column, %sv%d);\n", loads ? "" : "x.", number);
}

/* ---- a block of a row: every register is an array, since sums stand between the elements before and behind them. What is
 * ready is written first, then all sums that are ready, at once: threads meet as seldom as can be. ---- */

static bool is_ready(const writer *w, int k) {
    const rcvi_instruction *instruction = &w->map->instructions[k];
    for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
        if (instruction->from[a] == RCVI_FROM_REGISTER && !w->done[instruction->source[a]]) return false;
    }
    return !w->done[k];
}

static void add_row_elements(writer *w) {
    for (int k = 0; k < w->map->instruction_count; k++) {
        const rcvi_instruction *instruction = &w->map->instructions[k];
        if (instruction->operation == RCVI_SUM || !is_ready(w, k)) continue;
        rcvi_text_add(&w->text, "    REAL r%d[%s];\n    for (int i = 0; i < %s; i++) r%d[i] = ", k, width(w), width(w),
                      k);
        add_operation(w, instruction);
        w->done[k] = w->same[k] = true;
        for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++)
            w->same[k] &= is_same(w, instruction, a);
    }
}

/* What only this block reads is stored as soon as it is known: so registers are free for what comes behind the next sums. */
static bool is_stored_now(const writer *w, int view, int number) {
    if (view == RCVI_NONE || w->links->is_early[view] || w->stored[view] || !w->done[number]) return false;
    for (int i = 0; i < w->links->write_count; i++) {
        if (w->links->writes[i].view == view) return false;
    }
    return true;
}

static void add_address_now(writer *w, int view, const char *name, int number) {
    if (is_stored_now(w, view, number)) add_address(w, view, name, number);
}

static void add_store_now(writer *w, int view, const char *name, int number) {
    if (!is_stored_now(w, view, number)) return;
    add_store(w, view, name, number);
    w->stored[view] = true;
}

/* Answers how many sums there were. */
static int add_row_sums(writer *w) {
    int sums[MAX_SUMS], count = 0;
    for (int k = 0; k < w->map->instruction_count && count < MAX_SUMS; k++) {
        if (w->map->instructions[k].operation == RCVI_SUM && is_ready(w, k)) sums[count++] = k;
    }
    if (!count) return 0;
    if (is_by_rows(w)) {
        add_all_stores(w, add_address_now);
        add_all_stores(w, add_store_now);
    }
    rcvi_text_add(&w->text, "    REAL s%d[%d] = {};\n", sums[0], count);
    for (int n = 0; n < count; n++) {
        rcvi_text_add(&w->text, "    for (int i = 0; i < %s; i++) s%d[%d] += %s ? ", width(w), sums[0], n,
                      is_by_rows(w) ? "Row::has(column, i / VECTOR)" : "active");
        add_operand(w, &w->map->instructions[sums[n]], 0);
        rcvi_text_add(&w->text, " : (REAL)0;\n");
    }
    rcvi_text_add(&w->text, "    %s<%d>(s%d, %d);\n", is_by_rows(w) ? "Row::template sum" : "block_sums", count,
                  sums[0], w->turn++ % 2);
    for (int n = 0; n < count; n++) {
        rcvi_text_add(&w->text, "    REAL r%d[%s];\n    for (int i = 0; i < %s; i++) r%d[i] = s%d[%d];\n", sums[n],
                      width(w), width(w), sums[n], sums[0], n);
        w->done[sums[n]] = w->same[sums[n]] = true;
    }
    return count;
}

/* What all rows share is loaded while the sums before its first use are waited for. */
static void find_needs(writer *w) {
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

static void add_near(writer *w, int from, int to) {
    for (int v = 0; v < w->map->operand_count; v++) {
        if (w->read[v] && w->need[v] >= from && w->need[v] < to && !is_fetched(&w->map->operands[v]))
            add_row_value(w, &w->map->operands[v], v, v, NAMED);
    }
}

static void add_row_instructions(writer *w) {
    int level = 0;
    if (is_by_rows(w)) find_needs(w);
    if (is_by_rows(w)) add_near(w, 0, 1);
    do {
        add_row_elements(w);
        level++;
        if (is_by_rows(w)) add_near(w, level, level + 1);
    } while (add_row_sums(w) && !w->text.failed);
}

/* What products and instructions give, and where it is stored. */
static void add_body(writer *w) {
    const rcvi_map *map = w->map;
    bool rows = w->shape->row_threads > 0;
    if (rows) add_row_instructions(w);
    for (int k = 0; k < map->instruction_count && !rows; k++) {
        if (w->kept[k]) rcvi_text_add(&w->text, "    REAL o%d[VECTOR];\n", k);
    }
    if (map->instruction_count && !rows) {
        rcvi_text_add(&w->text, "#pragma unroll\n    for (int i = 0; i < VECTOR; i++) {\n");
        for (int k = 0; k < map->instruction_count; k++) add_instruction(w, k);
        rcvi_text_add(&w->text, "    }\n");
    }
    if (!w->links) {
        add_all_stores(w, add_store);
        return;
    }
    if (rows) add_all_stores(w, add_address);
    add_all_stores(w, add_link);
    add_all_stores(w, add_early_store);
    rcvi_text_add(&w->text, "    tell();\n");
    add_all_stores(w, add_other_store);
}

static void add_apply(writer *w) {
    rcvi_text_add(&w->text, "INLINE void apply(const Words &c, int member, long long row, int column%s%s) {\n",
                  w->map->product_count ? ", const REAL (&sums)[PRODUCTS][VECTOR]" : "",
                  w->shape->row_threads > 0 ? ", bool active" : "");
    add_loads(w);
    add_body(w);
    rcvi_text_add(&w->text, "}\n");
}

/* ---- a step of a persistent kernel ---- */

static void add_value(writer *w, const rcvi_view *view, int index, const char *name, int number, loading how) {
    const char *type = rcvi_source_types[w->shape->types[index]];
    if (is_by_rows(w)) {
        if (is_fetched(view)) add_row_value(w, view, index, number, how);
        return;
    }
    if (!is_fetched(view)) {
        if (how == NAMED) add_load(w, view, index, name, number);
        return;
    }
    if (how == DECLARED) rcvi_text_add(&w->text, "        Group<%s> %s%d;\n", type, name, number);
    if (how == NAMED)
        rcvi_text_add(&w->text, "    REAL %s%d[VECTOR];\n    widen_group(x.%s%d, %s%d);\n", name, number, name, number,
                      name, number);
    if (how != (w->links->is_late[index] ? LOADED_LATE : LOADED)) return;
    bool carried = index < w->map->operand_count && w->links->carried[index] != RCVI_NONE;
    rcvi_text_add(&w->text, "    %s%s<%s>(ADDRESS_OF(c, 0, %d), ", carried ? "if (c.begins) " : "",
                  view->column ? "fetch_group" : "fetch_repeated", type, index);
    add_element(w, view, index);
    rcvi_text_add(&w->text, ", x.%s%d);\n", name, number);
}

/* What the thread itself reads of it in the next iteration. */
static void add_carried(writer *w, int view, const char *name, int number) {
    for (int v = 0; v < w->map->operand_count && view != RCVI_NONE; v++) {
        if (w->links->carried[v] == view) rcvi_text_add(&w->text, "    keep_group(%s%d, x.v%d);\n", name, number, v);
    }
}

/* What comes with tags: all that is left is loaded at once, and looked at, until nothing is left. Before it has been written in
 * the loop, it lies where the program has it, and has no address here. */
static void add_tagged(writer *w) {
    int views[RCVI_MAX_OPERANDS], count = 0;
    const int *tags = w->links->tags;
    for (int v = 0; v < w->map->operand_count; v++) {
        if (w->read[v] && tags[v] != RCVI_NONE) views[count++] = v;
    }
    rcvi_text_add(&w->text, "    static INLINE void fetch_tagged(const Words &words, const Frame &c, long long row, "
                            "int column, Values &x) {\n");
    for (int n = 0, v; n < count; n++) {
        v = views[n];
        rcvi_text_add(&w->text, "    bool left%d = c.place(%d) != 0;\n    if (!left%d) {\n", v, tags[v], v);
        add_row_value(w, &w->map->operands[v], v, v, LOADED_TAGGED);
        rcvi_text_add(&w->text, "    }\n");
    }
    if (count)
        rcvi_text_add(&w->text,
                      "    const long long element = row * %lldll + column;\n    Patience patience(words);\n    do {\n",
                      (long long)w->links->columns);
    for (int n = 0, v; n < count; n++) {
        v = views[n];
        rcvi_text_add(&w->text, "        Row::peek(c.place(%d), element, column, left%d, x.v%d);\n", tags[v], v, v);
    }
    for (int n = 0, v; n < count; n++) {
        v = views[n];
        rcvi_text_add(&w->text, "        left%d = left%d && !Row::has_come(c.place(%d), x.v%d);\n", v, v, tags[v], v);
    }
    if (count) rcvi_text_add(&w->text, "    } while (patience.goes_on(");
    for (int n = 0; n < count; n++) rcvi_text_add(&w->text, "%sleft%d", n ? " || " : "", views[n]);
    if (count) rcvi_text_add(&w->text, "));\n");
    for (int n = 0, v; n < count; n++) {
        v = views[n];
        rcvi_text_add(&w->text, "    if (c.place(%d)) Row::drop_tags(x.v%d);\n", tags[v], v);
    }
    rcvi_text_add(&w->text, "    }\n");
}

static void add_values(writer *w, loading how) {
    for (int v = 0; v < w->map->operand_count; v++) {
        if (w->read[v]) add_value(w, &w->map->operands[v], v, "v", v, how);
    }
    for (int p = 0; p < w->map->product_count; p++) {
        if (is_started(w, p)) add_value(w, &w->map->products[p].start, rcvi_map_start_view(w->map, p), "s", p, how);
    }
}

rcv_status rcvi_map_step_text(rcv_context *context, const rcvi_map_shape *shape, const rcvi_map_links *links,
                              int number, char **text) {
    const rcvi_view *views[RCVI_MAX_VIEWS];
    *text = NULL;
    writer *w = rcvi_new(context, 1, sizeof *w);
    if (!w) return RCV_NO_MEMORY;
    w->shape = shape;
    w->map = shape->map;
    w->links = links;
    rcvi_text_init(&w->text, context);
    bool ordered = false, carries = false;
    for (int v = 0; v < w->map->operand_count; v++) {
        ordered |= links->is_ordered[v];
        carries |= links->carried[v] != RCVI_NONE;
    }
    find_uses(w);
    rcvi_text_add(&w->text, "#undef VIEWS\n#define VIEWS %d\n", rcvi_map_views(w->map, views));
    rcvi_text_add(&w->text,
                  "struct Step%d {\n    static constexpr bool TILED = %s, BY_ROWS = %s, CARRIES = %s;\n"
                  "    static constexpr int RAISES = %d, WAITS = %d, COUNTED = %d;\n",
                  number, w->map->product_count ? "true" : "false", is_by_rows(w) ? "true" : "false",
                  carries ? "true" : "false", links->raise_count, links->wait_count, links->row_place);
    if (is_by_rows(w))
        rcvi_text_add(&w->text, "    using Row = RowOf<%d, %lld>;\n    enum { SPAN = Row::SPAN };\n", links->across,
                      (long long)links->columns);
    rcvi_text_add(&w->text, "    struct Values {\n");
    add_values(w, DECLARED);
    if (ordered) rcvi_text_add(&w->text, "        int order;\n");
    rcvi_text_add(&w->text,
                  "    };\n    static INLINE void fetch(const Frame &c, long long row, int column, Values &x) {\n");
    add_values(w, LOADED);
    if (ordered) rcvi_text_add(&w->text, "    x.order = ordered(c.place(COUNTED + 1), row);\n");
    rcvi_text_add(&w->text,
                  "    }\n    static INLINE void fetch_late(const Frame &c, long long row, int column, Values &x) {\n");
    add_values(w, LOADED_LATE);
    rcvi_text_add(&w->text, "    }\n");
    if (is_by_rows(w)) add_tagged(w);
    rcvi_text_add(&w->text,
                  "    template <%sclass F> static INLINE void apply(const Frame &c, long long row, int column, "
                  "%sValues &x, F tell) {\n",
                  is_by_rows(w) ? "" : "int PRODUCTS, ", is_by_rows(w) ? "" : "const REAL (&sums)[PRODUCTS][VECTOR], ");
    if (!is_by_rows(w)) add_all_stores(w, add_address);
    add_values(w, NAMED);
    for (int p = 0; p < w->map->product_count; p++) add_product(w, p);
    add_body(w);
    add_all_stores(w, add_carried);
    rcvi_text_add(&w->text, "    }\n};\n");
    rcv_status status = rcvi_text_take(&w->text, text);
    rcvi_free(context, w);
    return status;
}

/* ---- the whole text ---- */

static rcv_status check_products(const writer *w) {
    const rcvi_map_shape *s = w->shape;
    if (w->pass_count < 0)
        return rcvi_fail(RCV_UNSUPPORTED, "the products of a map have more than %d left operands", RCVI_MAX_PASSES);
    if (w->map->product_count && (w->map->product_count * s->tile_units > MAX_SPAN || s->stages < MIN_STAGES))
        return rcvi_fail(RCV_UNSUPPORTED,
                         "a tile of %d products is %d columns in %d stages, not %d at most in %d or more",
                         w->map->product_count, w->map->product_count * s->tile_units, s->stages, MAX_SPAN, MIN_STAGES);
    for (int p = 0; p < w->map->product_count; p++) {
        const rcvi_product *product = &w->map->products[p];
        for (int t = 0, view = rcvi_map_start_view(w->map, p) + 1; t < product->term_count; t++, view += 2) {
            if (product->terms[t].plain && product->terms[t].transposed)
                return rcvi_fail(RCV_UNSUPPORTED, "a product with the transpose of weights needs them packed");
            if (s->types[view] != s->narrow || s->types[view + 1] != s->narrow)
                return rcvi_fail(RCV_UNSUPPORTED, "the operands of a product are %s and %s where both must be %s",
                                 rcvi_source_types[s->types[view]], rcvi_source_types[s->types[view + 1]],
                                 rcvi_source_types[s->narrow]);
        }
    }
    return RCV_OK;
}

static rcv_status check(const writer *w) {
    int words = rcvi_map_words(w->shape);
    RCVI_TRY(check_products(w));
    if ((size_t)words * sizeof(uint64_t) > MAX_ARGUMENT_BYTES)
        return rcvi_fail(RCV_UNSUPPORTED,
                         "a map for %d members has %zu bytes of arguments, more than the %d of a kernel",
                         w->shape->members, (size_t)words * sizeof(uint64_t), MAX_ARGUMENT_BYTES);
    return RCV_OK;
}

static void add_kernel(writer *w) {
    static const char *const tile[] = {rcvi_tile_pipeline_text, rcvi_tile_fma_text, rcvi_tile_mma_text,
                                       rcvi_tile_wgmma_text, rcvi_tile_text};
    if (!w->map->product_count)
        rcvi_text_add(&w->text, "%s", w->shape->row_threads > 0 ? rcvi_rows_text : rcvi_map_text);
    for (size_t i = 0; w->map->product_count && i < sizeof tile / sizeof *tile; i++)
        rcvi_text_add(&w->text, "%s", tile[i]);
}

rcv_status rcvi_map_source(rcv_context *context, const rcvi_map_shape *shape, char **text) {
    *text = NULL;
    writer *w = rcvi_new(context, 1, sizeof *w);
    if (!w) return RCV_NO_MEMORY;
    w->shape = shape;
    w->map = shape->map;
    w->pass_count = rcvi_map_passes(w->map, w->passes);
    rcvi_text_init(&w->text, context);
    rcv_status status = check(w);
    if (status == RCV_OK) {
        find_uses(w);
        add_macros(w);
        if (w->pass_count) add_tables(w);
        rcvi_text_add(&w->text, "%s", rcvi_map_element_text);
        add_apply(w);
        add_kernel(w);
        status = rcvi_text_take(&w->text, text);
    }
    rcvi_free(context, w);
    return status;
}
