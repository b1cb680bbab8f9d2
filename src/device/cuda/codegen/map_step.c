/* A map as a step of a persistent kernel: `struct StepN` (persistent.cuh). */
#include "device/cuda/codegen/map_writer.h"

/* ---- stores for other blocks ---- */

void rcvi_writer_add_link(rcvi_map_writer *w, int view, const char *name, int number) {
    for (int i = 0; w->links && view != RCVI_NONE && i < w->links->write_count; i++) {
        const rcvi_map_link *link = &w->links->writes[i];
        if (link->view != view) continue;
        if (!link->chunks) {
            rcvi_text_add(&w->text, "    if (c.there) store_flagged(c.address(%d), row * %lldll + column, %s%d);\n",
                          link->argument, (long long)w->links->columns, name, number);
            continue;
        }
        rcvi_text_add(&w->text, "    %s%s<%s, %d>(c, %d, column, %s%d);\n",
                      rcvi_writer_is_by_rows(w) ? "Row::template " : "",
                      w->links->is_short[view] ? "publish_active" : "publish", rcvi_source_types[w->links->operand],
                      link->chunks, link->argument, name, number);
    }
}

void rcvi_writer_add_exported_store(rcvi_map_writer *w, int view, const char *name, int number) {
    if (view != RCVI_NONE && w->links->is_exported[view]) rcvi_writer_add_store(w, view, name, number);
}

void rcvi_writer_add_other_store(rcvi_map_writer *w, int view, const char *name, int number) {
    if (view == RCVI_NONE || w->links->is_exported[view] || w->links->is_flagged_only[view] || w->stored[view]) return;
    rcvi_writer_add_store(w, view, name, number);
}

/* ---- values that are read ---- */

bool rcvi_writer_is_fetched(const rcvi_view *view) { return view->row != 0; }

void rcvi_writer_add_row_value(rcvi_map_writer *w, const rcvi_view *view, int index, int number, rcvi_map_loading how) {
    const char *type = rcvi_source_types[w->shape->types[index]], *once = view->column ? "" : "_once";
    bool fetched = rcvi_writer_is_fetched(view);
    if (how == DECLARED && fetched)
        rcvi_text_add(&w->text, "        %s<%s> v%d%s;\n", view->column ? "Group" : "Single", type, number,
                      view->column ? "[Row::EACH]" : "");
    if (how == NAMED) rcvi_text_add(&w->text, "    REAL v%d[SPAN];\n", number);
    if (how == NAMED && fetched) rcvi_text_add(&w->text, "    Row::widen%s(x.v%d, v%d);\n", once, number, number);
    bool loads = how == NAMED && !fetched;
    if (!loads && (!fetched || how != (w->links->flags[index] != RCVI_NONE ? LOADED_FLAGGED
                                       : w->links->is_remote[index]        ? LOADED_REMOTE
                                                                           : LOADED)))
        return;
    rcvi_text_add(&w->text, "    Row::template %s%s<%s>(ADDRESS_OF(c, 0, %d), ", loads ? "load" : "fetch", once, type,
                  index);
    rcvi_writer_add_element(w, view, index);
    rcvi_text_add(&w->text, ", column, %sv%d);\n", loads ? "" : "x.", number);
}

static void add_value(rcvi_map_writer *w, const rcvi_view *view, int index, const char *name, int number,
                      rcvi_map_loading how) {
    const char *type = rcvi_source_types[w->shape->types[index]];
    if (rcvi_writer_is_by_rows(w)) {
        if (rcvi_writer_is_fetched(view)) rcvi_writer_add_row_value(w, view, index, number, how);
        return;
    }
    if (!rcvi_writer_is_fetched(view)) {
        if (how == NAMED) rcvi_writer_add_load(w, view, index, name, number);
        return;
    }
    if (how == DECLARED) rcvi_text_add(&w->text, "        Group<%s> %s%d;\n", type, name, number);
    if (how == NAMED)
        rcvi_text_add(&w->text, "    REAL %s%d[VECTOR];\n    widen_group(x.%s%d, %s%d);\n", name, number, name, number,
                      name, number);
    if (how != (w->links->is_remote[index] ? LOADED_REMOTE : LOADED)) return;
    bool carried = index < w->map->operand_count && w->links->carried[index] != RCVI_NONE;
    rcvi_text_add(&w->text, "    %s%s<%s>(ADDRESS_OF(c, 0, %d), ", carried ? "if (c.begins) " : "",
                  view->column ? "fetch_group" : "fetch_repeated", type, index);
    rcvi_writer_add_element(w, view, index);
    rcvi_text_add(&w->text, ", x.%s%d);\n", name, number);
}

/* Keeps a result in registers for the thread's own read in the next iteration. */
static void add_carried(rcvi_map_writer *w, int view, const char *name, int number) {
    for (int v = 0; v < w->map->operand_count && view != RCVI_NONE; v++) {
        if (w->links->carried[v] == view) rcvi_text_add(&w->text, "    keep_group(%s%d, x.v%d);\n", name, number, v);
    }
}

/* Values with flags: all that have not come are loaded at once and checked, until all have come. A value of before the loop has no
 * flagged address; it is loaded from the program's buffer. */
static void add_flagged(rcvi_map_writer *w) {
    int views[RCVI_MAX_OPERANDS], count = 0;
    const int *flags = w->links->flags;
    for (int v = 0; v < w->map->operand_count; v++) {
        if (w->read[v] && flags[v] != RCVI_NONE) views[count++] = v;
    }
    rcvi_text_add(&w->text, "    static INLINE void fetch_flagged(const Words &words, const Frame &c, long long row, "
                            "int column, Values &x) {\n");
    for (int n = 0, v; n < count; n++) {
        v = views[n];
        rcvi_text_add(&w->text, "    bool left%d = c.address(%d) != 0;\n    if (!left%d) {\n", v, flags[v], v);
        rcvi_writer_add_row_value(w, &w->map->operands[v], v, v, LOADED_FLAGGED);
        rcvi_text_add(&w->text, "    }\n");
    }
    if (count)
        rcvi_text_add(&w->text,
                      "    const long long element = row * %lldll + column;\n    Timeout timeout(words);\n    do {\n",
                      (long long)w->links->columns);
    for (int n = 0, v; n < count; n++) {
        v = views[n];
        rcvi_text_add(&w->text, "        Row::load_relaxed(c.address(%d), element, column, left%d, x.v%d);\n", flags[v],
                      v, v);
    }
    for (int n = 0, v; n < count; n++) {
        v = views[n];
        rcvi_text_add(&w->text, "        left%d = left%d && !Row::are_current(c.address(%d), x.v%d);\n", v, v, flags[v],
                      v);
    }
    if (count) rcvi_text_add(&w->text, "    } while (timeout.keep_waiting(");
    for (int n = 0; n < count; n++) rcvi_text_add(&w->text, "%sleft%d", n ? " || " : "", views[n]);
    if (count) rcvi_text_add(&w->text, "));\n");
    for (int n = 0, v; n < count; n++) {
        v = views[n];
        rcvi_text_add(&w->text, "    if (c.address(%d)) Row::clear_flags(x.v%d);\n", flags[v], v);
    }
    rcvi_text_add(&w->text, "    }\n");
}

static void add_values(rcvi_map_writer *w, rcvi_map_loading how) {
    for (int v = 0; v < w->map->operand_count; v++) {
        if (w->read[v]) add_value(w, &w->map->operands[v], v, "v", v, how);
    }
    for (int p = 0; p < w->map->product_count; p++) {
        if (rcvi_writer_is_started(w, p))
            add_value(w, &w->map->products[p].start, rcvi_map_start_view(w->map, p), "s", p, how);
    }
}

/* ---- the step ---- */

rcv_status rcvi_map_step_text(rcv_context *context, const rcvi_map_shape *shape, const rcvi_map_links *links,
                              int number, char **text) {
    const rcvi_view *views[RCVI_MAX_VIEWS];
    *text = NULL;
    rcvi_map_writer *w = rcvi_new(context, 1, sizeof *w);
    if (!w) return RCV_NO_MEMORY;
    w->shape = shape;
    w->map = shape->map;
    w->links = links;
    rcvi_text_init(&w->text, context);
    bool ordered = false, carries = false;
    for (int v = 0; v < w->map->operand_count; v++) {
        ordered |= links->is_in_caller_order[v];
        carries |= links->carried[v] != RCVI_NONE;
    }
    rcvi_writer_find_uses(w);
    rcvi_text_add(&w->text, "#undef VIEWS\n#define VIEWS %d\n", rcvi_map_views(w->map, views));
    rcvi_text_add(&w->text,
                  "struct Step%d {\n    static constexpr bool HAS_PRODUCTS = %s, BY_ROWS = %s, CARRIES = %s;\n"
                  "    static constexpr int SIGNALS = %d, WAITS = %d, COUNTED = %d;\n",
                  number, w->map->product_count ? "true" : "false", rcvi_writer_is_by_rows(w) ? "true" : "false",
                  carries ? "true" : "false", links->signal_count, links->wait_count, links->row_argument);
    if (rcvi_writer_is_by_rows(w))
        rcvi_text_add(&w->text, "    using Row = RowOf<%d, %lld>;\n    enum { SPAN = Row::SPAN };\n",
                      links->row_threads, (long long)links->columns);
    rcvi_text_add(&w->text, "    struct Values {\n");
    add_values(w, DECLARED);
    if (ordered) rcvi_text_add(&w->text, "        int order;\n");
    rcvi_text_add(&w->text,
                  "    };\n    static INLINE void fetch(const Frame &c, long long row, int column, Values &x) {\n");
    add_values(w, LOADED);
    if (ordered) rcvi_text_add(&w->text, "    x.order = ordered(c.address(COUNTED + 1), row);\n");
    rcvi_text_add(
        &w->text,
        "    }\n    static INLINE void fetch_remote(const Frame &c, long long row, int column, Values &x) {\n");
    add_values(w, LOADED_REMOTE);
    rcvi_text_add(&w->text, "    }\n");
    if (rcvi_writer_is_by_rows(w)) add_flagged(w);
    rcvi_text_add(&w->text,
                  "    template <%sclass F> static INLINE void apply(const Frame &c, long long row, int column, "
                  "%sValues &x, F signal) {\n",
                  rcvi_writer_is_by_rows(w) ? "" : "int PRODUCTS, ",
                  rcvi_writer_is_by_rows(w) ? "" : "const REAL (&sums)[PRODUCTS][VECTOR], ");
    if (!rcvi_writer_is_by_rows(w)) rcvi_writer_add_all_stores(w, rcvi_writer_add_address);
    add_values(w, NAMED);
    for (int p = 0; p < w->map->product_count; p++) rcvi_writer_add_product(w, p);
    rcvi_writer_add_body(w);
    rcvi_writer_add_all_stores(w, add_carried);
    rcvi_text_add(&w->text, "    }\n};\n");
    rcv_status status = rcvi_text_take(&w->text, text);
    rcvi_free(context, w);
    return status;
}
