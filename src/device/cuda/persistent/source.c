/* The text of a persistent kernel: macros, map_element.cuh, kernel/base.cuh, kernel/rows.cuh, the instruction that
 * multiplies (or kernel/fma.cuh), a namespace for every class of seats, kernel/load.cuh, kernel/multiply.cuh, persistent.cuh, and which class is which. Seats of
 * one class have the same text. Where blocks meet in clusters, kernel/send.cuh stands before the seats and kernel/cluster.cuh
 * behind persistent.cuh. */
#include "device/cuda/persistent/parts.h"

#include <string.h>

extern const char rcvi_map_element_text[], rcvi_persistent_base_text[], rcvi_persistent_rows_text[],
    rcvi_persistent_fma_text[], rcvi_persistent_load_text[], rcvi_persistent_multiply_text[], rcvi_persistent_text[],
    rcvi_persistent_send_text[], rcvi_persistent_cluster_text[];

typedef struct {
    const rcvi_engine *engine;
    const rcvi_persistent *p;
    rcvi_text text;
} writer;

static void add_macro(writer *w, const char *name, int64_t value) {
    rcvi_text_add(&w->text, "#define %s %lld\n", name, (long long)value);
}

static void add_macros(writer *w) {
    const rcvi_persistent *p = w->p;
    rcvi_text_add(&w->text, "#define REAL float\n");
    add_macro(w, "PERSISTENT", 1);
    add_macro(w, "REAL_IS_DOUBLE", 0);
    add_macro(w, "ROW_THREADS", 0);
    add_macro(w, "VECTOR", p->vector);
    add_macro(w, "WORDS", (int64_t)p->words);
    add_macro(w, "SEATS", p->seat_count);
    add_macro(w, "SLICE", p->slice);
    add_macro(w, "TILE_ROWS", p->tile);
    add_macro(w, "FOLD", p->fold);
    add_macro(w, "CLUSTER", p->cluster);
    add_macro(w, "TILE_N", rcvi_persistent_wide(p));
    add_macro(w, "TILES", p->tiles);
    add_macro(w, "HOLDS", p->holds);
    add_macro(w, "THIRD", p->third);
    add_macro(w, "MULTIPLIER_REGISTERS", rcvi_persistent_registers(p));
    add_macro(w, "PARTS", p->parts);
    add_macro(w, "EXACT", p->exact);
    add_macro(w, "EXACT_ROWS", rcvi_persistent_rows(w->engine, p));
    add_macro(w, "ROUNDED", w->engine->tensor || w->engine->narrow != w->engine->real);
    add_macro(w, "TILE_BYTES", (int64_t)rcvi_cuda_bytes(p->operand));
    add_macro(w, "TILE_TF32", w->engine->tensor);
    add_macro(w, "TILE_BF16", p->operand == RCVI_BF16);
    add_macro(w, "MOST_RING", RCVI_MOST_RING);
    add_macro(w, "GROUP", p->group);
    add_macro(w, "LANE_BYTES", (int64_t)p->lane_bytes);
    add_macro(w, "STAGE", (int64_t)p->stage);
    add_macro(w, "STAGE_BYTES", (int64_t)p->staged);
    add_macro(w, "WEIGHT_CHUNKS", p->weight_chunks);
    add_macro(w, "STREAM_CHUNKS", p->stream_chunks);
    add_macro(w, "SUM_BUFFERS", p->sum_buffers);
    add_macro(w, "MOST_PLACES", p->places);
    add_macro(w, "ROW_SUMS", p->by_rows ? RCVI_ROW_SUMS : 0);
    add_macro(w, "ROW_SUMS_AT",
              (int64_t)(RCVI_LANES * p->lane_bytes) + p->weight_chunks * RCVI_WEIGHT_ROWS * RCVI_DEPTH_CHUNK_BYTES +
                  p->sum_buffers * RCVI_LANES * rcvi_persistent_lane_wide(p) * RCVI_WEIGHT_ROWS * 4);
}

/* sums[64, tile] += a[64, 32 bytes] b[tile, 32 bytes]^T, from 0 where there are no more before; a in registers or shared. */
static void add_multiply(writer *w, bool held) {
    const rcvi_engine *e = w->engine;
    const char *type = e->tensor                    ? "k8.f32.tf32.tf32"
                       : w->p->operand == RCVI_BF16 ? "k16.f32.bf16.bf16"
                                                    : "k16.f32.f16.f16";
    int wide = rcvi_persistent_lane_wide(w->p), count = wide / 2, at = count;
    rcvi_text_add(&w->text, "INLINE void multiply(float (&sums)[%d], %s, unsigned long long b, int more) {\n", count,
                  held ? "const unsigned (&a)[4]" : "unsigned long long a");
    rcvi_text_add(&w->text, "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.b32 p, %%%d, 0;\\n",
                  count + (held ? 5 : 2));
    rcvi_text_add(&w->text, "wgmma.mma_async.sync.aligned.m64n%d%s {", wide, type);
    for (int i = 0; i < count; i++) rcvi_text_add(&w->text, "%s%%%d", i ? "," : "", i);
    if (held)
        rcvi_text_add(&w->text, "}, {%%%d,%%%d,%%%d,%%%d}, ", at, at + 1, at + 2, at + 3);
    else
        rcvi_text_add(&w->text, "}, %%%d, ", at);
    rcvi_text_add(&w->text, "%%%d, p, 1, 1%s;\\n}\"\n        : ", at + (held ? 4 : 1),
                  e->tensor ? ""
                  : held    ? ", 0"
                            : ", 0, 0");
    for (int i = 0; i < count; i++) rcvi_text_add(&w->text, "%s\"+f\"(sums[%d])", i ? ", " : "", i);
    rcvi_text_add(&w->text, "\n        : %s, \"l\"(b), \"r\"(more) : \"memory\");\n}\n",
                  held ? "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])" : "\"l\"(a)");
}

/* ---- tables, as functions whose results the compiler knows where it knows their arguments ---- */

typedef int (*table)(const writer *w, const rcvi_seat *seat, int x, int y);

static void add_table(writer *w, const rcvi_seat *seat, const char *name, int count_x, int count_y, table value) {
    rcvi_text_add(&w->text, "    static INLINE constexpr int %s(int x%s) {\n        return ", name,
                  count_y ? ", int y" : "");
    for (int x = 0; x < count_x; x++) {
        for (int y = 0; y < (count_y ? count_y : 1); y++) {
            if (count_y)
                rcvi_text_add(&w->text, "x == %d && y == %d ? %d : ", x, y, value(w, seat, x, y));
            else
                rcvi_text_add(&w->text, "x == %d ? %d : ", x, value(w, seat, x, y));
        }
    }
    rcvi_text_add(&w->text, "0;\n    }\n");
}

static int chunks_of(const writer *w, const rcvi_seat *seat, int lane, int y) {
    (void)w, (void)y;
    return seat->chunks[lane];
}
static int held_of(const writer *w, const rcvi_seat *seat, int lane, int y) {
    (void)w, (void)y;
    return seat->held[lane];
}
static int kept_of(const writer *w, const rcvi_seat *seat, int lane, int y) {
    (void)w, (void)y;
    return seat->kept[lane];
}
static int groups_of(const writer *w, const rcvi_seat *seat, int lane, int y) {
    (void)w, (void)y;
    return seat->group_count[lane];
}
static int ring_of(const writer *w, const rcvi_seat *seat, int lane, int y) {
    (void)w, (void)y;
    return seat->ring[lane];
}
static int group_pass_of(const writer *w, const rcvi_seat *seat, int lane, int n) {
    (void)w;
    return seat->groups[lane][n].pass;
}
static int group_first_of(const writer *w, const rcvi_seat *seat, int lane, int n) {
    (void)w;
    return seat->groups[lane][n].first;
}
static int group_chunks_of(const writer *w, const rcvi_seat *seat, int lane, int n) {
    (void)w;
    return seat->groups[lane][n].count;
}
/* Chunks of the lane before the group. */
static int group_before_of(const writer *w, const rcvi_seat *seat, int lane, int n) {
    return n ? group_before_of(w, seat, lane, n - 1) + group_chunks_of(w, seat, lane, n - 1) : 0;
}
static int depth_of(const writer *w, const rcvi_seat *seat, int pass, int y) {
    (void)y;
    return (int)w->p->steps[seat->tiled].passes[pass].depth;
}
/* The place of a use of a channel; that of its counter follows. */
static int place_of(const rcvi_persistent_step *s, int use) { return s->view_count + s->twin_count + 2 * use; }

static int channel_of(const writer *w, const rcvi_seat *seat, int k, int pass) {
    const rcvi_persistent_step *s = &w->p->steps[seat->hosted[k]];
    return s->pass_count && s->read_of[pass] != RCVI_NONE ? place_of(s, s->read_of[pass]) : RCVI_NONE;
}
static int pass_chunks_of(const writer *w, const rcvi_seat *seat, int pass, int y) {
    (void)y;
    return rcvi_persistent_chunks(w->p, w->p->steps[seat->tiled].passes[pass].depth);
}
/* Waits for a counter: `found` gets the place of number n. Answers how many there are. */
static int find_wait(const writer *w, const rcvi_seat *seat, int k, int n, int *found) {
    const rcvi_persistent_step *s = &w->p->steps[seat->hosted[k]];
    int count = 0;
    *found = 0;
    for (int v = 0, late = 0; v < s->view_count; v++) {
        if (!s->is_late[v]) continue;
        if (!s->is_tagged[v] && count++ == n) *found = place_of(s, s->waits[late]) + 1;
        late++;
    }
    return count;
}
static int waits_of(const writer *w, const rcvi_seat *seat, int k, int y) {
    int place;
    (void)y;
    return find_wait(w, seat, k, 0, &place);
}
static int wait_place_of(const writer *w, const rcvi_seat *seat, int k, int n) {
    int place;
    find_wait(w, seat, k, n, &place);
    return place;
}
static int raises_of(const writer *w, const rcvi_seat *seat, int k, int y) {
    (void)y;
    return w->p->cluster ? 0 : w->p->steps[seat->hosted[k]].raise_count;
}
static int raise_place_of(const writer *w, const rcvi_seat *seat, int k, int n) {
    const rcvi_persistent_step *s = &w->p->steps[seat->hosted[k]];
    return n < s->raise_count ? place_of(s, s->raises[n]) + 1 : 0;
}
static int places_of(const writer *w, const rcvi_seat *seat, int k, int y) {
    (void)y;
    return rcvi_persistent_places(&w->p->steps[seat->hosted[k]]);
}
static int views_of(const writer *w, const rcvi_seat *seat, int k, int y) {
    const rcvi_persistent_step *s = &w->p->steps[seat->hosted[k]];
    (void)y;
    return s->view_count + s->twin_count;
}
static int first_place_of(const writer *w, const rcvi_seat *seat, int k, int y) {
    (void)y;
    return k ? first_place_of(w, seat, k - 1, 0) + places_of(w, seat, k - 1, 0) : 0;
}
static int row_place_of(const writer *w, const rcvi_seat *seat, int k, int y) {
    const rcvi_persistent_step *s = &w->p->steps[seat->hosted[k]];
    (void)y;
    return s->has_rows ? rcvi_persistent_row_place(s) : RCVI_NONE;
}
static int leaves_of(const writer *w, const rcvi_seat *seat, int k, int y) {
    (void)y;
    return w->p->steps[seat->hosted[k]].leaves;
}
/* Lane of a product whose sums are not of both, and its row among a unit's. */
static int product_lane_of(const writer *w, const rcvi_seat *seat, int product, int y) {
    int apart = w->p->steps[seat->tiled].apart;
    (void)y;
    return apart ? product >= apart : RCVI_NONE;
}
static int product_row_of(const writer *w, const rcvi_seat *seat, int product, int y) {
    int apart = w->p->steps[seat->tiled].apart;
    (void)y;
    return product < apart || !apart ? product : product - apart;
}

/* Weights of a pass for a unit's row: of the product that has both. */
static int right_of(const writer *w, const rcvi_seat *seat, int pass, int row) {
    const rcvi_persistent_step *tiled = &w->p->steps[seat->tiled];
    for (int i = 0; i < tiled->shape.map->product_count; i++) {
        int view = tiled->passes[pass].b[i];
        if (product_row_of(w, seat, i, 0) == row && view != RCVI_NONE) return view;
    }
    return RCVI_NONE;
}

static int right_any_of(const writer *w, const rcvi_seat *seat, int pass, int y) {
    int product = 0;
    (void)y;
    while (right_of(w, seat, pass, product) == RCVI_NONE) product++;
    return right_of(w, seat, pass, product);
}

/* Do all steps with products of the seat start them with the same row for all? Then sums begin with it. */
static bool is_started(const writer *w, const rcvi_seat *seat) {
    const rcvi_persistent_step *tiled = &w->p->steps[seat->tiled];
    bool some = false;
    for (int k = 0; k < seat->hosted_count && !tiled->apart; k++) {
        const rcvi_persistent_step *s = &w->p->steps[seat->hosted[k]];
        for (int i = 0; s->pass_count && i < seat->products; i++) {
            const rcvi_view *a = &s->shape.map->products[i].start, *b = &tiled->shape.map->products[i].start;
            if (!rcvi_view_equal(a, b) ||
                (a->buffer != RCVI_NONE && (a->row || a->column != 1 || a->stride || a->wrap)))
                return false;
            some |= a->buffer != RCVI_NONE;
        }
    }
    return some;
}

static int start_of(const writer *w, const rcvi_seat *seat, int product, int y) {
    const rcvi_map *map = w->p->steps[seat->tiled].shape.map;
    (void)y;
    return map->products[product].start.buffer == RCVI_NONE ? RCVI_NONE : rcvi_map_start_view(map, product);
}

/* The pass and the first element's chunk of chunk y of a lane. */
static int find_chunk(const rcvi_seat *seat, int lane, int y, bool pass) {
    for (int n = 0; n < seat->group_count[lane]; n++) {
        const rcvi_group_of_chunks *g = &seat->groups[lane][n];
        if (y < g->count) return pass ? g->pass : g->first + y;
        y -= g->count;
    }
    return 0;
}
static int chunk_pass_of(const writer *w, const rcvi_seat *seat, int lane, int y) {
    (void)w;
    return find_chunk(seat, lane, y, true);
}
static int chunk_first_of(const writer *w, const rcvi_seat *seat, int lane, int y) {
    (void)w;
    return find_chunk(seat, lane, y, false);
}

static void add_seat(writer *w, const rcvi_seat *seat) {
    const rcvi_persistent_step *tiled = &w->p->steps[seat->tiled];
    int products = tiled->shape.map->product_count;
    int first = 0, most = seat->chunks[0] > seat->chunks[1] ? seat->chunks[0] : seat->chunks[1];
    int groups = seat->group_count[0] < seat->group_count[1] ? seat->group_count[0] : seat->group_count[1];
    while (seat->hosted[first] != seat->tiled) first++;
    rcvi_text_add(
        &w->text,
        "struct Seat {\n    enum { STEPS = %d, PRODUCTS = %d, UNIT_ROWS = %d, UNITS = %d, BLOCKS = %d, COLUMNS = %lld, "
        "TILED_STEP = %d, IS_STARTED = %d };\n",
        seat->hosted_count, products, seat->products, seat->units, seat->blocks, (long long)seat->columns, first,
        is_started(w, seat));
    if (w->p->cluster)
        rcvi_text_add(&w->text, "    enum { SENDER = %d, AHEAD = %d, FROM_MEMORY = %d, ROW_BYTES = %lld };\n",
                      seat->sender, seat->ahead, seat->from_memory, (long long)rcvi_cluster_row_bytes(w->p, seat));
    add_table(w, seat, "product_lane", products, 0, product_lane_of);
    add_table(w, seat, "product_row", products, 0, product_row_of);
    add_table(w, seat, "start", seat->products, 0, start_of);
    add_table(w, seat, "right_any", tiled->pass_count, 0, right_any_of);
    add_table(w, seat, "CHUNKS", RCVI_LANES, 0, chunks_of);
    add_table(w, seat, "HELD", RCVI_LANES, 0, held_of);
    add_table(w, seat, "KEPT", RCVI_LANES, 0, kept_of);
    add_table(w, seat, "GROUPS", RCVI_LANES, 0, groups_of);
    add_table(w, seat, "RING", RCVI_LANES, 0, ring_of);
    groups = seat->group_count[0] + seat->group_count[1] - groups;
    add_table(w, seat, "group_pass", RCVI_LANES, groups, group_pass_of);
    add_table(w, seat, "group_first", RCVI_LANES, groups, group_first_of);
    add_table(w, seat, "group_chunks", RCVI_LANES, groups, group_chunks_of);
    add_table(w, seat, "group_before", RCVI_LANES, groups, group_before_of);
    add_table(w, seat, "depth", tiled->pass_count, 0, depth_of);
    add_table(w, seat, "channel", seat->hosted_count, tiled->pass_count, channel_of);
    add_table(w, seat, "pass_chunks", tiled->pass_count, 0, pass_chunks_of);
    int waits = 1, raises = 1;
    for (int k = 0; k < seat->hosted_count; k++) {
        const rcvi_persistent_step *s = &w->p->steps[seat->hosted[k]];
        if (s->wait_count > waits) waits = s->wait_count;
        if (s->raise_count > raises) raises = s->raise_count;
    }
    add_table(w, seat, "waits", seat->hosted_count, 0, waits_of);
    add_table(w, seat, "wait_place", seat->hosted_count, waits, wait_place_of);
    add_table(w, seat, "raises", seat->hosted_count, 0, raises_of);
    add_table(w, seat, "raise_place", seat->hosted_count, raises, raise_place_of);
    add_table(w, seat, "places", seat->hosted_count, 0, places_of);
    add_table(w, seat, "views", seat->hosted_count, 0, views_of);
    add_table(w, seat, "first_place", seat->hosted_count, 0, first_place_of);
    add_table(w, seat, "row_place", seat->hosted_count, 0, row_place_of);
    add_table(w, seat, "leaves", seat->hosted_count, 0, leaves_of);
    add_table(w, seat, "right", tiled->pass_count, seat->products, right_of);
    add_table(w, seat, "chunk_pass", RCVI_LANES, most, chunk_pass_of);
    add_table(w, seat, "chunk_first", RCVI_LANES, most, chunk_first_of);
    rcvi_text_add(&w->text, "    using Tiled = Step%d;\n", first);
    rcvi_text_add(&w->text, "    template <class F> static INLINE void each(F &f) {\n");
    for (int k = 0; k < seat->hosted_count; k++)
        rcvi_text_add(&w->text, "        f.template step<Step%d>(%d);\n", k, k);
    rcvi_text_add(&w->text, "    }\n};\n");
}

/* What stands inside of the class's namespace. */
static rcv_status write_class(rcv_context *context, writer *w, rcvi_seat *seat) {
    rcvi_text_init(&w->text, context);
    rcv_status status = RCV_OK;
    for (int k = 0; k < seat->hosted_count && !status; k++) {
        const rcvi_persistent_step *s = &w->p->steps[seat->hosted[k]];
        rcvi_map_shape shape = s->shape;
        rcvi_map_link writes[RCVI_MAX_USES];
        int tags[RCVI_MAX_VIEWS], carried[RCVI_MAX_VIEWS];
        rcvi_map_links links = {.is_late = s->is_late,
                                .is_spare = s->is_spare,
                                .tags = tags,
                                .carried = carried,
                                .is_early = s->is_early,
                                .is_short = s->is_short,
                                .is_ordered = s->is_ordered,
                                .writes = writes,
                                .raise_count = w->p->cluster ? 0 : s->raise_count,
                                .wait_count = s->wait_count,
                                .row_place = s->has_rows ? rcvi_persistent_row_place(s) : RCVI_NONE,
                                .operand = w->p->operand,
                                .started = is_started(w, seat),
                                .across = s->by_rows ? rcvi_persistent_across(w->p, seat->columns) : 0,
                                .columns = seat->columns};
        char *text = NULL;
        for (int n = 0; n < s->write_count; n++) {
            if (!s->write_operand[n] && !s->write_tagged[n]) continue;
            int chunks = s->write_operand[n] ? rcvi_persistent_chunks(w->p, seat->columns) : 0;
            writes[links.write_count++] = (rcvi_map_link){s->write_views[n], place_of(s, s->writes[n]), chunks};
        }
        for (int v = 0, late = 0; v < s->view_count; v++) {
            tags[v] = s->is_tagged[v] ? place_of(s, s->waits[late]) : RCVI_NONE;
            late += s->is_late[v];
        }
        for (int v = 0; v < shape.map->operand_count; v++)
            carried[v] = rcvi_persistent_carried(w->engine, w->p, seat->hosted[k], v);
        shape.vector = w->p->vector;
        shape.row_threads = links.across;
        status = rcvi_map_step_text(context, &shape, &links, k, &text);
        if (!status) rcvi_text_add(&w->text, "%s", text);
        rcvi_free(context, text);
    }
    if (!status) add_seat(w, seat);
    rcv_status taken = rcvi_text_take(&w->text, &seat->text);
    return status ? status : taken;
}

static rcv_status find_classes(rcv_context *context, const rcvi_engine *engine, rcvi_persistent *p) {
    writer w = {.engine = engine, .p = p};
    for (int s = 0; s < p->seat_count; s++) {
        RCVI_TRY(write_class(context, &w, &p->seats[s]));
        int other = 0;
        while (strcmp(p->seats[other].text, p->seats[s].text)) other++;
        p->seats[s].class = other == s ? p->class_count++ : p->seats[other].class;
    }
    return RCV_OK;
}

rcv_status rcvi_persistent_source(rcv_context *context, const rcvi_engine *engine, rcvi_persistent *p) {
    writer w = {.engine = engine, .p = p};
    RCVI_TRY(find_classes(context, engine, p));
    rcvi_text_init(&w.text, context);
    add_macros(&w);
    rcvi_text_add(&w.text, "%s%s%s%s", rcvi_map_element_text, rcvi_persistent_base_text,
                  p->by_rows ? rcvi_persistent_rows_text : "", p->cluster ? rcvi_persistent_send_text : "");
    if (p->exact) {
        rcvi_text_add(&w.text, "%s", rcvi_persistent_fma_text);
    } else {
        add_multiply(&w, true);
        add_multiply(&w, false);
    }
    for (int s = 0, class = 0; s < p->seat_count; s++) {
        if (p->seats[s].class != class) continue;
        rcvi_text_add(&w.text, "namespace class%d {\n%s}\n", class, p->seats[s].text);
        class ++;
    }
    rcvi_text_add(&w.text, "%s%s%s%s", rcvi_persistent_load_text, rcvi_persistent_multiply_text, rcvi_persistent_text,
                  p->cluster ? rcvi_persistent_cluster_text : "");
    rcvi_text_add(&w.text, "%sINLINE void for_class(const Words &c, int seat, int index) {\n",
                  p->cluster ? "" : "template <Role ROLE> ");
    for (int class = 0; class < p->class_count; class ++) {
        if (p->cluster)
            rcvi_text_add(&w.text, "    if (index == %d) multiply_all<class%d::Seat>(c, seat);\n", class, class);
        else
            rcvi_text_add(&w.text,
                          "    if (index == %d) {\n"
                          "        if constexpr (ROLE == MULTIPLIES) multiply_all<class%d::Seat>(c, seat);\n"
                          "        if constexpr (ROLE == MAPS && THIRD) map_all<class%d::Seat>(c, seat);\n"
                          "        if constexpr (ROLE == LOADS) load_all<class%d::Seat>(c, seat);\n    }\n",
                          class, class, class, class);
    }
    rcvi_text_add(&w.text, "}\n");
    return rcvi_text_take(&w.text, &p->source);
}
