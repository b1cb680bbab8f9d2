/* Recurrences as CUDA source: `struct Cell` of scan.cuh or of loop.cuh, written from a recurrence's map. */
#include "device/cuda/recurrence/recurrence.h"

extern const char rcvi_map_element_text[], rcvi_recurrence_text[], rcvi_loop_text[];

typedef struct {
    const rcvi_engine *e;
    const rcvi_cuda_recurrence *c;
    const rcvi_recurrence *r;
    const rcvi_map *map;
    rcvi_text text;
} writer;

/* Numbers that grow with the batch, for one sequence: the text serves every batch. */
static long long each_sequence(const writer *w, int64_t number) { return (long long)(number / w->r->rows); }
static bool is_scan(const writer *w) { return w->c->cut.form != RCVI_SCAN_CHANNELS; }
static bool is_newton(const writer *w) { return w->c->cut.form == RCVI_SCAN_NEWTON; }

/* ---- places ---- */

/* The first operand with the strides of this one: they share an offset in the text. */
static int element_of(const writer *w, int operand) {
    const rcvi_view *view = &w->map->operands[operand];
    int found = 0;
    while (w->map->operands[found].stride != view->stride || w->map->operands[found].row != view->row ||
           w->map->operands[found].column != view->column)
        found++;
    return found;
}

/* The offset of a row and a column at the first position. */
static void add_base(writer *w, int operand) {
    const rcvi_view *view = &w->map->operands[operand];
    rcvi_text_add(&w->text, "row * %lldll + column * %lldll", (long long)view->row, (long long)view->column);
}

/* The element of an operand at `position`. */
static void add_element(writer *w, int operand) {
    rcvi_text_add(&w->text, "base%d + position * (args.batch * %lldll)", element_of(w, operand),
                  each_sequence(w, w->map->operands[operand].stride));
}

/* The offset of a ring's slot at `position`; time advances by `each` a position. */
static void add_slot(writer *w, int operand, int64_t each) {
    const rcvi_view *view = &w->map->operands[operand];
    if (!view->wrap) return;
    rcvi_text_add(&w->text, " + (args.time + %lld", (long long)view->phase);
    if (each) rcvi_text_add(&w->text, " + position * %lldll", (long long)each);
    rcvi_text_add(&w->text, ") %% %d * (args.batch * %lldll)", view->wrap, each_sequence(w, view->slot));
}

/* ---- values ---- */

static bool is_single(const writer *w, int v) { return w->map->operands[v].column == 0; }
static const char *type_of(const writer *w, int v) { return rcvi_source_types[w->c->types[v]]; }

static void add_fields(writer *w, rcvi_read_time reading, const bool *only) {
    for (int v = 0; v < w->map->operand_count; v++) {
        if (w->c->readings[v] == reading && (!only || only[v]))
            rcvi_text_add(&w->text, "        %s<%s> v%d;\n", is_single(w, v) ? "Single" : "Group", type_of(w, v), v);
    }
}

static void add_loads(writer *w, rcvi_read_time reading, const bool *only, const char *to) {
    for (int v = 0; v < w->map->operand_count; v++) {
        if (w->c->readings[v] != reading || (only && !only[v])) continue;
        rcvi_text_add(&w->text, "        %s.v%d = %s<%s>(args.at[%d], ", to, v, is_single(w, v) ? "get_single" : "get",
                      type_of(w, v), v);
        add_element(w, v);
        rcvi_text_add(&w->text, ");\n");
    }
}

static int carried_by(const writer *w, int operand) {
    int c = 0;
    while (w->r->carried[c].read != operand) c++;
    return c;
}

/* Operand a of an instruction, of element i. */
static void add_operand(void *self, const rcvi_instruction *instruction, int a) {
    writer *w = self;
    int source = instruction->source[a];
    if (instruction->from[a] == RCVI_FROM_NUMBER)
        rcvi_source_add_number(&w->text, w->e->real, instruction->number[a]);
    else if (instruction->from[a] == RCVI_FROM_REGISTER)
        rcvi_text_add(&w->text, "r%d", source);
    else if (w->c->readings[source] == RCVI_READ_ONCE)
        rcvi_text_add(&w->text, "once%d[i]", source);
    else if (w->c->readings[source] != RCVI_READ_CARRIED)
        rcvi_text_add(&w->text, "v%d", source);
    else if (is_scan(w))
        rcvi_text_add(&w->text, "h[i]");
    else
        rcvi_text_add(&w->text, "state%d[i]", carried_by(w, source));
}

static void name_views(writer *w, rcvi_read_time reading, const char *from, const bool *only) {
    for (int v = 0; v < w->map->operand_count; v++) {
        if (w->c->readings[v] == reading && (!only || only[v]))
            rcvi_text_add(&w->text, "            const REAL v%d = value(%s.v%d, i);\n", v, from, v);
    }
}

static void add_instruction(writer *w, int k) {
    rcvi_text_add(&w->text, "            const REAL r%d = ", k);
    rcvi_source_add_operation(&w->text, &w->map->instructions[k], add_operand, w);
}

/* ---- stores ---- */

/* Whether the store is written here: sums of tiles are added up after the scan. */
static bool is_stored(const writer *w, const rcvi_map_store *store) {
    return w->c->sum == RCVI_NONE || store->source != w->r->carried[w->c->sum].source;
}

static bool is_stored_early(const writer *w, const rcvi_map_store *store) {
    return w->c->early_stores && w->c->early[store->source] && !rcvi_recurrence_reads_late(w->c, store->out);
}

/* Whether instruction k's results are kept in an array, to be stored after the loop over a thread's channels. */
static bool leaves(const writer *w, int k, bool early) {
    for (int i = 0; i < w->map->store_count; i++) {
        const rcvi_map_store *store = &w->map->stores[i];
        if (store->source == k && is_stored(w, store) && is_stored_early(w, store) == early) return true;
    }
    return false;
}

static void declare_stored(writer *w, bool early) {
    for (int k = 0; k < w->map->instruction_count; k++) {
        if (leaves(w, k, early)) rcvi_text_add(&w->text, "        REAL o%d[VECTOR];\n", k);
    }
}

static void add_stored(writer *w, bool early) {
    for (int k = 0; k < w->map->instruction_count; k++) {
        if (leaves(w, k, early)) rcvi_text_add(&w->text, "            o%d[i] = r%d;\n", k, k);
    }
}

static void add_store(writer *w, const rcvi_map_store *store) {
    int v = store->out, last = w->r->last[v];
    rcvi_text_add(&w->text, last ? "        if (position >= args.steps - %d) {\n" : "        {\n", last);
    rcvi_text_add(&w->text, "            const long long element = ");
    add_element(w, v);
    add_slot(w, v, w->r->time.inner);
    rcvi_text_add(&w->text, ";\n            store<%s>(args.at[%d], element, o%d);\n", type_of(w, v), v, store->source);
    if (w->c->has_rounded[v])
        rcvi_text_add(&w->text, "            store<%s>(args.rounded[%d], element, o%d);\n",
                      rcvi_source_types[w->e->narrow], v, store->source);
    rcvi_text_add(&w->text, "        }\n");
}

static void add_stores(writer *w, bool early) {
    for (int i = 0; i < w->map->store_count; i++) {
        const rcvi_map_store *store = &w->map->stores[i];
        if (is_stored(w, store) && is_stored_early(w, store) == early) add_store(w, store);
    }
}

/* ---- common to loops and scans ---- */

static const char each_channel[] = "#pragma unroll\n        for (int i = 0; i < VECTOR; i++) {\n";

static void add_members(writer *w) {
    rcvi_text_add(&w->text, "    const Args &args;\n    bool there;\n");
    for (int v = 0; v < w->map->operand_count; v++) {
        if (element_of(w, v) == v) rcvi_text_add(&w->text, "    long long base%d;\n", v);
        if (w->c->readings[v] == RCVI_READ_ONCE) rcvi_text_add(&w->text, "    REAL once%d[VECTOR];\n", v);
    }
}

/* The beginning of the constructor, after `place`, the thread's first channel. */
static void add_beginning(writer *w) {
    rcvi_text_add(
        &w->text,
        "        there = place < args.batch * %lldll;\n        const long long row = there ? place / %lldll : "
        "0, column = there ? place %% %lldll : 0;\n",
        (long long)w->r->columns, (long long)w->r->columns, (long long)w->r->columns);
    for (int v = 0; v < w->map->operand_count; v++) {
        if (element_of(w, v) != v) continue;
        rcvi_text_add(&w->text, "        base%d = ", v);
        add_base(w, v);
        rcvi_text_add(&w->text, ";\n");
    }
    for (int v = 0; v < w->map->operand_count; v++) {
        if (w->c->readings[v] != RCVI_READ_ONCE) continue;
        rcvi_text_add(&w->text, "        ::%s<%s>(args.at[%d], base%d, once%d);\n",
                      is_single(w, v) ? "load_repeated" : "load", type_of(w, v), v, element_of(w, v), v);
    }
}

/* ---- a loop ---- */

static void add_loop_cell(writer *w) {
    const rcvi_recurrence *r = w->r;
    rcvi_text_add(&w->text, "struct Cell {\n    typedef RecurrenceArgs Args;\n    struct Raw {\n");
    add_fields(w, RCVI_READ_EARLY, NULL);
    rcvi_text_add(&w->text, "    };\n");
    add_members(w);
    for (int c = 0; c < r->carried_count; c++) rcvi_text_add(&w->text, "    REAL state%d[VECTOR];\n", c);
    rcvi_text_add(&w->text, "    INLINE Cell(const Args &args, long long number) : args(args) {\n"
                            "        const long long place = number * VECTOR;\n");
    add_beginning(w);
    for (int c = 0; c < r->carried_count; c++) {
        int v = r->carried[c].read;
        rcvi_text_add(&w->text, "        ::load<%s>(args.at[%d], base%d", type_of(w, v), v, element_of(w, v));
        add_slot(w, v, 0);
        rcvi_text_add(&w->text, ", state%d);\n", c);
    }
    rcvi_text_add(&w->text, "    }\n    INLINE void load(long long position, Raw &raw) const {\n");
    add_loads(w, RCVI_READ_EARLY, NULL, "raw");
    rcvi_text_add(&w->text, "    }\n    INLINE void step(long long position, const Raw &raw) {\n");
    declare_stored(w, false);
    rcvi_text_add(&w->text, "%s", each_channel);
    name_views(w, RCVI_READ_EARLY, "raw", NULL);
    for (int k = 0; k < w->map->instruction_count; k++) {
        if (w->c->late[k]) add_instruction(w, k);
    }
    add_stored(w, false);
    for (int c = 0; c < r->carried_count; c++)
        rcvi_text_add(&w->text, "            const REAL next%d = r%d;\n", c, r->carried[c].source);
    for (int c = 0; c < r->carried_count; c++) rcvi_text_add(&w->text, "            state%d[i] = next%d;\n", c, c);
    rcvi_text_add(&w->text, "        }\n");
    add_stores(w, false);
    rcvi_text_add(&w->text, "    }\n};\n");
}

/* ---- a scan ---- */

static int next_state(const writer *w) { return w->r->carried[w->r->state].source; }

static void add_scan_types(writer *w) {
    rcvi_text_add(&w->text, "    struct Kept {};\n    struct Raw {\n");
    add_fields(w, RCVI_READ_EARLY, NULL);
    rcvi_text_add(&w->text, "    };\n    struct Late {\n");
    add_fields(w, RCVI_READ_EARLY, w->c->read_again);
    add_fields(w, RCVI_READ_LATE, NULL);
    rcvi_text_add(&w->text, "    };\n");
}

static void add_early(writer *w) {
    rcvi_text_add(&w->text,
                  "    INLINE void early(long long position, int, bool due, const Raw &raw, REAL (&a)[VECTOR], "
                  "REAL (&b)[VECTOR], Kept &) const {\n");
    rcvi_text_add(&w->text,
                  "        if (!due) {\n    %s            a[i] = 1, b[i] = 0;\n        }\n            return;\n"
                  "        }\n",
                  each_channel);
    declare_stored(w, true);
    rcvi_text_add(&w->text, "%s", each_channel);
    name_views(w, RCVI_READ_EARLY, "raw", NULL);
    for (int k = 0; k < w->map->instruction_count; k++) {
        if (w->c->early[k]) add_instruction(w, k);
    }
    rcvi_text_add(&w->text, "            a[i] = r%d, b[i] = r%d;\n", w->r->scale, w->r->offset);
    add_stored(w, true);
    rcvi_text_add(&w->text, "        }\n");
    add_stores(w, true);
    rcvi_text_add(&w->text, "    }\n");
}

/* Computes again what was computed early and is needed, then the next state. */
static void add_next(writer *w, const char *from) {
    name_views(w, RCVI_READ_EARLY, from, w->c->read_again);
    for (int k = 0; k < w->map->instruction_count; k++) {
        if (w->c->again[k]) add_instruction(w, k);
    }
    rcvi_text_add(&w->text, "            const REAL next = next_of(r%d, r%d, h[i]);\n", w->r->scale, w->r->offset);
}

/* The state after a position from the values in `raw`; multiplies `slope` by its derivative. */
static void add_follow(writer *w) {
    rcvi_text_add(&w->text,
                  "    INLINE void follow(const Raw &raw, REAL (&h)[VECTOR], REAL (&slope)[VECTOR]) const {\n%s",
                  each_channel);
    name_views(w, RCVI_READ_EARLY, "raw", NULL);
    for (int k = 0; k < w->map->instruction_count; k++) {
        if (w->c->early[k]) add_instruction(w, k);
    }
    rcvi_text_add(&w->text, "            slope[i] *= r%d;\n            h[i] = r%d;\n        }\n    }\n", w->r->slope,
                  next_state(w));
    rcvi_text_add(&w->text,
                  "    INLINE void advance(long long position, int k, const Kept &, REAL (&h)[VECTOR]) const {\n"
                  "        Raw raw;\n        REAL slope[VECTOR] = {};\n        load(position, k, raw);\n"
                  "        follow(raw, h, slope);\n    }\n");
}

static void add_advance(writer *w) {
    rcvi_text_add(&w->text,
                  "    INLINE void advance(long long position, int k, const Kept &, REAL (&h)[VECTOR]) const {\n"
                  "        Raw raw;\n        load(position, k, raw);\n%s",
                  each_channel);
    add_next(w, "raw");
    rcvi_text_add(&w->text, "            h[i] = next;\n        }\n    }\n");
}

static void add_late(writer *w) {
    int next = next_state(w);
    rcvi_text_add(&w->text, "    INLINE void late(long long position, int, const Kept &, const Late &late, REAL "
                            "(&h)[VECTOR]) {\n");
    declare_stored(w, false);
    rcvi_text_add(&w->text, "%s", each_channel);
    if (is_newton(w))
        name_views(w, RCVI_READ_EARLY, "late", w->c->read_again);
    else
        add_next(w, "late");
    if (!is_newton(w) && !w->c->again[next]) rcvi_text_add(&w->text, "            const REAL r%d = next;\n", next);
    name_views(w, RCVI_READ_LATE, "late", NULL);
    for (int k = 0; k < w->map->instruction_count; k++) {
        if (w->c->late[k]) add_instruction(w, k);
    }
    add_stored(w, false);
    if (w->c->sum != RCVI_NONE) rcvi_text_add(&w->text, "            sum[i] += r%d;\n", w->r->carried[w->c->sum].term);
    if (is_newton(w)) rcvi_text_add(&w->text, "            const REAL next = r%d;\n", next);
    rcvi_text_add(&w->text, "            h[i] = next;\n        }\n");
    add_stores(w, false);
    rcvi_text_add(&w->text, "    }\n");
}

static void add_initial(writer *w) {
    int v = w->r->carried[w->r->state].read;
    rcvi_text_add(
        &w->text,
        "    static INLINE REAL initial_of(const Args &args, int chain, int c) {\n"
        "        const long long place = (long long)chain * CHANNELS + c, row = place / %lldll, column = place "
        "%% %lldll;\n        if (place >= args.batch * %lldll) return 0;\n        return (REAL)widen(((const %s "
        "*)args.at[%d])[",
        (long long)w->r->columns, (long long)w->r->columns, (long long)w->r->columns, type_of(w, v), v);
    add_base(w, v);
    add_slot(w, v, 0);
    rcvi_text_add(&w->text,
                  "]);\n    }\n    INLINE void initial(REAL (&h)[VECTOR]) const { ::load<%s>(args.at[%d], base%d",
                  type_of(w, v), v, element_of(w, v));
    add_slot(w, v, 0);
    rcvi_text_add(&w->text, ", h); }\n");
}

static void add_scan_cell(writer *w) {
    rcvi_text_add(&w->text, "struct Cell {\n    typedef RecurrenceArgs Args;\n    enum { HAS_SUM = %d };\n",
                  w->c->sum != RCVI_NONE);
    add_scan_types(w);
    add_members(w);
    rcvi_text_add(&w->text, "    long long first;\n    REAL sum[VECTOR];\n"
                            "    INLINE Cell(const Args &args, int chain, int lane) : args(args) {\n"
                            "        const long long place = (long long)chain * CHANNELS + lane * VECTOR;\n"
                            "        first = (long long)chain * CHANNELS;\n");
    add_beginning(w);
    rcvi_text_add(&w->text, "%s            sum[i] = 0;\n        }\n    }\n", each_channel);
    rcvi_text_add(&w->text,
                  "    INLINE void load_none(int, Raw &) const {}\n    INLINE void copy_marks(const Cell &) const {}\n"
                  "    INLINE void load(long long position, int, Raw &raw) const {\n");
    add_loads(w, RCVI_READ_EARLY, NULL, "raw");
    rcvi_text_add(&w->text, "    }\n    INLINE void load_late(long long position, Late &late) const {\n");
    add_loads(w, RCVI_READ_EARLY, w->c->read_again, "late");
    add_loads(w, RCVI_READ_LATE, NULL, "late");
    rcvi_text_add(&w->text, "    }\n");
    if (is_newton(w)) {
        add_follow(w);
    } else {
        add_advance(w);
        add_early(w);
    }
    add_late(w);
    add_initial(w);
    rcvi_text_add(&w->text,
                  "    INLINE void store_sum(long long tile, int c, REAL x) const {\n"
                  "        const long long all = args.batch * %lldll;\n"
                  "        if (first + c < all) args.sums[tile * all + first + c] = x;\n    }\n};\n",
                  (long long)w->r->columns);
}

/* ---- the whole text ---- */

static void add_macros(writer *w) {
    const rcvi_scan_cut *cut = &w->c->cut;
    bool is_double = w->e->real == RCVI_F64, rounded = w->e->narrow != w->e->real;
    rcvi_text_add(&w->text,
                  "#define RECURRENCE 1\n#define ROUNDED %d\n#define TILE_BF16 %d\n#define REAL %s\n"
                  "#define REAL_IS_DOUBLE %d\n#define WORDS 1\n#define VECTOR %d\n#define STEPS %d\n"
                  "#define THREADS %d\n#define VIEWS %d\n",
                  rounded, w->e->narrow == RCVI_BF16, is_double ? "double" : "float", is_double, cut->vector,
                  cut->steps, cut->threads, w->map->operand_count);
    if (is_scan(w))
        rcvi_text_add(&w->text,
                      "#define LANES %d\n#define CHANNELS (VECTOR * LANES)\n#define WINDOW %d\n#define MANY %d\n"
                      "#define BLOCKS %d\n#define FETCH %d\n#define BATCH %d\n#define FORM_%s 1\n#define FORM_SUM %d\n",
                      cut->lanes, cut->window, cut->many, cut->blocks, w->c->fetch, w->c->batch,
                      is_newton(w)                   ? "NEWTON"
                      : cut->form == RCVI_SCAN_THREE ? "THREE"
                                                     : "CHAINED",
                      w->c->sum != RCVI_NONE);
    else
        rcvi_text_add(&w->text, "#define CARRIES %d\n", w->r->carried_count > 0);
}

rcv_status rcvi_recurrence_source(rcv_context *context, const rcvi_engine *e, rcvi_cuda_recurrence *c) {
    writer w = {.e = e, .c = c, .r = c->r, .map = &c->r->map};
    rcvi_text_init(&w.text, context);
    add_macros(&w);
    rcvi_text_add(&w.text, "%s%s", rcvi_map_element_text, rcvi_recurrence_text);
    if (is_scan(&w))
        add_scan_cell(&w);
    else
        add_loop_cell(&w);
    if (is_scan(&w))
        rcvi_scan_add_kernels(&w.text);
    else
        rcvi_text_add(&w.text, "%s", rcvi_loop_text);
    return rcvi_text_take(&w.text, &c->source);
}
