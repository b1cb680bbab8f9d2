/* The kernel of a map as CUDA source: macros, map_element.cuh, the function `apply` written from the map, and a kernel around it:
 * map.cuh, rows.cuh, or the texts of tiles where there are products. */
#include "device/cuda/codegen/map_writer.h"
#include "device/cuda/engine/tuning.h"

/* The texts of these files, embedded by the build. */
extern const char rcvi_map_element_text[], rcvi_map_text[], rcvi_rows_text[];
extern const char rcvi_tile_pipeline_text[], rcvi_tile_fma_text[], rcvi_tile_mma_text[], rcvi_tile_wgmma_text[],
    rcvi_tile_text[];

enum {
    MAX_ARGUMENT_BYTES = 32764,
    MAX_SPAN = 128, /* columns of all products of a tile, and below: as tile_pipeline.cuh has it */
    MIN_STAGES = 4
};

/* ---- macros and tables ---- */

static void add_macro(rcvi_map_writer *w, const char *name, int value) {
    rcvi_text_add(&w->text, "#define %s %d\n", name, value);
}

static const char *tile_kind(const rcvi_map_shape *shape) {
    if (shape->real == RCVI_F64) return "TILE_F64";
    if (shape->narrow == RCVI_BF16) return "TILE_BF16";
    if (shape->narrow == RCVI_F16) return "TILE_F16";
    return shape->tensor ? "TILE_TF32" : "TILE_F32";
}

static void add_macros(rcvi_map_writer *w) {
    const rcvi_map_shape *s = w->shape;
    const rcvi_view *views[RCVI_MAX_VIEWS];
    rcvi_text_add(&w->text, "#define REAL %s\n", rcvi_source_types[s->real]);
    add_macro(w, "REAL_IS_DOUBLE", s->real == RCVI_F64);
    add_macro(w, "VECTOR", s->vector);
    add_macro(w, "MEMBERS", s->members);
    add_macro(w, "COUNTED", s->counted);
    add_macro(w, "VIEWS", rcvi_map_views(w->map, views));
    add_macro(w, "ROUNDED_COPIES", rcvi_map_count_rounded(s, w->map->operand_count));
    add_macro(w, "PASSES", w->pass_count);
    add_macro(w, "PRODUCTS", w->map->product_count);
    add_macro(w, "ROW_THREADS", s->row_threads);
    if (s->row_threads) add_macro(w, "SUMS", RCVI_ROW_SUMS);
    add_macro(w, "WORDS", rcvi_map_words(s));
    if (!w->map->product_count) return;
    add_macro(w, tile_kind(s), 1);
    add_macro(w, "TILE_ROWS", s->tile_rows);
    add_macro(w, "TILE_UNITS", s->tile_units);
    add_macro(w, "STAGES", s->stages);
    add_macro(w, "CONSUMERS", RCVI_TUNED_CONSUMERS);
    add_macro(w, "PRODUCERS", RCVI_TUNED_PRODUCERS);
    add_macro(w, "ALIGNED", s->aligned);
}

/* Views of the passes' operands. */
static void add_tables(rcvi_map_writer *w) {
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

/* All loads come before all stores: a view may be both read and written. */
static void add_loads(rcvi_map_writer *w) {
    for (int v = 0; v < w->map->operand_count; v++) {
        if (w->read[v]) rcvi_writer_add_load(w, &w->map->operands[v], v, "v", v);
    }
    for (int p = 0; p < w->map->product_count; p++) {
        if (rcvi_writer_is_started(w, p))
            rcvi_writer_add_load(w, &w->map->products[p].start, rcvi_map_start_view(w->map, p), "s", p);
        rcvi_writer_add_product(w, p);
    }
}

static void add_apply(rcvi_map_writer *w) {
    rcvi_text_add(&w->text, "INLINE void apply(const Words &c, int member, long long row, int column%s%s) {\n",
                  w->map->product_count ? ", const REAL (&sums)[PRODUCTS][VECTOR]" : "",
                  w->shape->row_threads > 0 ? ", bool active" : "");
    add_loads(w);
    rcvi_writer_add_body(w);
    rcvi_text_add(&w->text, "}\n");
}

/* ---- the whole text ---- */

static rcv_status check_products(const rcvi_map_writer *w) {
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

static rcv_status check(const rcvi_map_writer *w) {
    int words = rcvi_map_words(w->shape);
    RCVI_TRY(check_products(w));
    if ((size_t)words * sizeof(uint64_t) > MAX_ARGUMENT_BYTES)
        return rcvi_fail(RCV_UNSUPPORTED,
                         "a map for %d members has %zu bytes of arguments, more than the %d of a kernel",
                         w->shape->members, (size_t)words * sizeof(uint64_t), MAX_ARGUMENT_BYTES);
    return RCV_OK;
}

static void add_kernel(rcvi_map_writer *w) {
    static const char *const tile[] = {rcvi_tile_pipeline_text, rcvi_tile_fma_text, rcvi_tile_mma_text,
                                       rcvi_tile_wgmma_text, rcvi_tile_text};
    if (!w->map->product_count)
        rcvi_text_add(&w->text, "%s", w->shape->row_threads > 0 ? rcvi_rows_text : rcvi_map_text);
    for (size_t i = 0; w->map->product_count && i < sizeof tile / sizeof *tile; i++)
        rcvi_text_add(&w->text, "%s", tile[i]);
}

rcv_status rcvi_map_source(rcv_context *context, const rcvi_map_shape *shape, char **text) {
    *text = NULL;
    rcvi_map_writer *w = rcvi_new(context, 1, sizeof *w);
    if (!w) return RCV_NO_MEMORY;
    w->shape = shape;
    w->map = shape->map;
    w->pass_count = rcvi_map_passes(w->map, w->passes);
    rcvi_text_init(&w->text, context);
    rcv_status status = check(w);
    if (status == RCV_OK) {
        rcvi_writer_find_uses(w);
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
