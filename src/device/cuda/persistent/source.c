/* The text of a persistent kernel, which NVRTC compiles:
 *
 *     macros                                          sizes that the layout has found
 *     map_element.cuh, kernel/base.cuh                element types; arguments, channels, counters
 *     kernel/rows.cuh                                 where maps sum over features
 *     kernel/send.cuh                                 in clusters
 *     wgmma instructions, or kernel/fma.cuh           written here for the width of the MMA
 *     namespace variant0 { steps, struct Task } ...   task_text.c; similar tasks share one
 *     kernel/primitives.cuh, shared.cuh, copy.cuh     instructions; a block's layout; copy threads
 *     kernel/sums.cuh, operands.cuh, weights.cuh      what products read and write
 *     kernel/receive.cuh                              in clusters
 *     kernel/products_mma.cuh or products_fma.cuh, products.cuh
 *     kernel/maps.cuh, persistent.cuh                 map threads; roles of warps, the kernel
 *     kernel/cluster.cuh                              in clusters
 *     run_variant()                                   the variant of a block's task */
#include "device/cuda/persistent/internal.h"

#include <string.h>

extern const char rcvi_map_element_text[], rcvi_persistent_base_text[], rcvi_persistent_rows_text[],
    rcvi_persistent_fma_text[], rcvi_persistent_primitives_text[], rcvi_persistent_shared_text[],
    rcvi_persistent_copy_text[], rcvi_persistent_sums_text[], rcvi_persistent_weights_text[],
    rcvi_persistent_operands_text[], rcvi_persistent_products_fma_text[], rcvi_persistent_products_mma_text[],
    rcvi_persistent_products_text[], rcvi_persistent_maps_text[], rcvi_persistent_text[], rcvi_persistent_send_text[],
    rcvi_persistent_receive_text[], rcvi_persistent_cluster_text[];

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
    add_macro(w, "WORDS", (int64_t)rcvi_persistent_parameter_words(p));
    add_macro(w, "SLICE", p->slice);
    add_macro(w, "TILE_ROWS", p->tile);
    add_macro(w, "SPLITS", p->depth_splits);
    add_macro(w, "CLUSTER", p->cluster);
    add_macro(w, "TILE_N", rcvi_persistent_mma_columns(p));
    add_macro(w, "TILES", p->tiles);
    add_macro(w, "DEFER_STORES", p->defers_stores);
    add_macro(w, "MAP_WARPGROUP", p->has_map_warpgroup);
    add_macro(w, "MMA_REGISTERS", rcvi_persistent_mma_registers(p));
    add_macro(w, "PARTS", p->parts);
    add_macro(w, "EXACT", p->exact);
    add_macro(w, "EXACT_ROWS", rcvi_persistent_rows(w->engine, p));
    add_macro(w, "ROUNDED", w->engine->tensor || w->engine->narrow != w->engine->real);
    add_macro(w, "TILE_BYTES", (int64_t)rcvi_cuda_bytes(p->operand));
    add_macro(w, "TILE_TF32", w->engine->tensor);
    add_macro(w, "TILE_BF16", p->operand == RCVI_BF16);
    add_macro(w, "MAX_RING", RCVI_MAX_RING);
    add_macro(w, "GROUP", p->group);
    add_macro(w, "PIPE_BYTES", (int64_t)p->pipe_bytes);
    add_macro(w, "STAGING", (int64_t)p->staging_offset);
    add_macro(w, "STAGING_BYTES", (int64_t)p->staging_bytes);
    add_macro(w, "SHARED_WEIGHT_CHUNKS", p->shared_weight_chunks);
    add_macro(w, "STREAMED_CHUNKS", p->streamed_chunks);
    add_macro(w, "SUM_BUFFERS", p->sum_buffers);
    add_macro(w, "MAX_ARGUMENTS", p->arguments);
    add_macro(w, "ROW_SUMS", p->by_rows ? RCVI_ROW_SUMS : 0);
    add_macro(w, "ROW_SUMS_AT",
              (int64_t)(RCVI_PIPES * p->pipe_bytes) +
                  p->shared_weight_chunks * RCVI_WEIGHT_ROWS * RCVI_DEPTH_CHUNK_BYTES +
                  p->sum_buffers * RCVI_PIPES * rcvi_persistent_pipe_columns(p) * RCVI_WEIGHT_ROWS * 4);
}

/* Writes multiply(): sums[64, N] += a[64, 32 bytes] b[N, 32 bytes]^T by wgmma, with a in registers or in shared memory. Where `more` is 0,
 * sums begin at 0. */
static void add_wgmma(writer *w, bool in_registers) {
    const rcvi_engine *e = w->engine;
    const char *type = e->tensor                    ? "k8.f32.tf32.tf32"
                       : w->p->operand == RCVI_BF16 ? "k16.f32.bf16.bf16"
                                                    : "k16.f32.f16.f16";
    int wide = rcvi_persistent_pipe_columns(w->p), count = wide / 2, at = count;
    rcvi_text_add(&w->text, "INLINE void multiply(float (&sums)[%d], %s, unsigned long long b, int more) {\n", count,
                  in_registers ? "const unsigned (&a)[4]" : "unsigned long long a");
    rcvi_text_add(&w->text, "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.b32 p, %%%d, 0;\\n",
                  count + (in_registers ? 5 : 2));
    rcvi_text_add(&w->text, "wgmma.mma_async.sync.aligned.m64n%d%s {", wide, type);
    for (int i = 0; i < count; i++) rcvi_text_add(&w->text, "%s%%%d", i ? "," : "", i);
    if (in_registers)
        rcvi_text_add(&w->text, "}, {%%%d,%%%d,%%%d,%%%d}, ", at, at + 1, at + 2, at + 3);
    else
        rcvi_text_add(&w->text, "}, %%%d, ", at);
    rcvi_text_add(&w->text, "%%%d, p, 1, 1%s;\\n}\"\n        : ", at + (in_registers ? 4 : 1),
                  e->tensor      ? ""
                  : in_registers ? ", 0"
                                 : ", 0, 0");
    for (int i = 0; i < count; i++) rcvi_text_add(&w->text, "%s\"+f\"(sums[%d])", i ? ", " : "", i);
    rcvi_text_add(&w->text, "\n        : %s, \"l\"(b), \"r\"(more) : \"memory\");\n}\n",
                  in_registers ? "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])" : "\"l\"(a)");
}

static rcv_status find_variants(rcv_context *context, const rcvi_engine *engine, rcvi_persistent *p) {
    for (int s = 0; s < p->task_count; s++) {
        RCVI_TRY(rcvi_persistent_task_text(context, engine, p, &p->tasks[s]));
        int other = 0;
        while (strcmp(p->tasks[other].text, p->tasks[s].text)) other++;
        p->tasks[s].variant = other == s ? p->variant_count++ : p->tasks[other].variant;
    }
    return RCV_OK;
}

rcv_status rcvi_persistent_source(rcv_context *context, const rcvi_engine *engine, rcvi_persistent *p) {
    writer w = {.engine = engine, .p = p};
    RCVI_TRY(find_variants(context, engine, p));
    rcvi_text_init(&w.text, context);
    add_macros(&w);
    rcvi_text_add(&w.text, "%s%s%s%s", rcvi_map_element_text, rcvi_persistent_base_text,
                  p->by_rows ? rcvi_persistent_rows_text : "", p->cluster ? rcvi_persistent_send_text : "");
    if (p->exact) {
        rcvi_text_add(&w.text, "%s", rcvi_persistent_fma_text);
    } else {
        add_wgmma(&w, true);
        add_wgmma(&w, false);
    }
    for (int s = 0, variant = 0; s < p->task_count; s++) {
        if (p->tasks[s].variant != variant) continue;
        rcvi_text_add(&w.text, "namespace variant%d {\n%s}\n", variant, p->tasks[s].text);
        variant++;
    }
    rcvi_text_add(&w.text, "%s%s%s%s%s%s", rcvi_persistent_primitives_text, rcvi_persistent_shared_text,
                  p->cluster ? "" : rcvi_persistent_copy_text, rcvi_persistent_sums_text, rcvi_persistent_operands_text,
                  rcvi_persistent_weights_text);
    rcvi_text_add(&w.text, "%s%s%s%s%s%s", p->cluster ? rcvi_persistent_receive_text : "",
                  p->exact ? rcvi_persistent_products_fma_text : rcvi_persistent_products_mma_text,
                  rcvi_persistent_products_text, rcvi_persistent_maps_text, rcvi_persistent_text,
                  p->cluster ? rcvi_persistent_cluster_text : "");
    rcvi_text_add(&w.text, "%sINLINE void run_variant(const Words &c, int task, int index) {\n",
                  p->cluster ? "" : "template <Role ROLE> ");
    for (int variant = 0; variant < p->variant_count; variant++) {
        if (p->cluster)
            rcvi_text_add(&w.text, "    if (index == %d) multiply_all<variant%d::Task>(c, task);\n", variant, variant);
        else
            rcvi_text_add(&w.text,
                          "    if (index == %d) {\n"
                          "        if constexpr (ROLE == MULTIPLIES) multiply_all<variant%d::Task>(c, task);\n"
                          "        if constexpr (ROLE == MAPS && MAP_WARPGROUP) map_all<variant%d::Task>(c, task);\n"
                          "        if constexpr (ROLE == COPIES) copy_all<variant%d::Task>(c, task);\n    }\n",
                          variant, variant, variant, variant);
    }
    rcvi_text_add(&w.text, "}\n");
    return rcvi_text_take(&w.text, &p->source);
}
