/* Public functions of cells: parse a text, open a built-in cell or a file, print. */
#include "cell/cell.h"
#include "cell/builtin.h"

#include <string.h>

static rcv_status parse(rcv_cell *cell, const char *text, size_t length, const char *file) {
    rcv_status status = rcvi_ast_parse(cell->context, text, length, file, &cell->ast);
    if (status) return status;
    rcvi_graph_init(&cell->graph, &cell->ast.pool);
    return rcvi_check(&cell->ast, &cell->graph);
}

rcv_status rcv_cell_parse(rcv_context *context, const char *text, size_t length, const char *file, rcv_cell **out) {
    RCVI_NEED(out, "cell");
    *out = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(text, "text");
    rcv_cell *cell = rcvi_new(context, 1, sizeof *cell);
    if (!cell) return RCV_NO_MEMORY;
    cell->context = context;
    rcv_status status = parse(cell, text, length, file ? file : "cell");
    if (status) {
        rcv_cell_free(cell);
        return status;
    }
    *out = cell;
    return RCV_OK;
}

void rcv_cell_free(rcv_cell *cell) {
    if (!cell) return;
    rcvi_graph_free(&cell->graph);
    rcvi_ast_free(&cell->ast);
    rcvi_free(cell->context, cell);
}

static bool is_path(const char *name) {
    size_t length = strlen(name);
    return strchr(name, '/') || (length > 5 && !strcmp(name + length - 5, ".cell"));
}

static rcv_status unknown_builtin(const char *name) {
    const char *names[64];
    size_t count = 0;
    while (count < 64 && rcv_builtin_name(count)) {
        names[count] = rcv_builtin_name(count);
        count++;
    }
    const char *near = rcvi_nearest_name(name, names, count);
    return near ? rcvi_fail(RCV_INVALID, "there is no cell '%s'; did you mean '%s'?", name, near)
                : rcvi_fail(RCV_INVALID,
                            "there is no cell '%s'; a cell of your own is named by its path, such as ./my.cell", name);
}

rcv_status rcv_cell_open(rcv_context *context, const char *name, rcv_cell **out) {
    RCVI_NEED(out, "cell");
    *out = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(name, "name_or_path");
    if (!is_path(name)) {
        for (size_t i = 0; i < rcvi_builtin_total; i++) {
            const rcvi_builtin *builtin = &rcvi_builtins[i];
            if (!strcmp(builtin->name, name)) return rcv_cell_parse(context, builtin->text, builtin->length, name, out);
        }
        return unknown_builtin(name);
    }
    char *text = NULL;
    size_t length = 0;
    rcv_status status = rcvi_read_file(context, name, RCVI_LIMIT_CELL, &text, &length);
    if (!status) status = rcv_cell_parse(context, text, length, name, out);
    rcvi_free(context, text);
    return status;
}

size_t rcv_builtin_count(void) { return rcvi_builtin_total; }
const char *rcv_builtin_name(size_t index) { return index < rcvi_builtin_total ? rcvi_builtins[index].name : NULL; }
const char *rcv_builtin_summary(size_t index) {
    return index < rcvi_builtin_total ? rcvi_builtins[index].summary : NULL;
}
const char *rcv_cell_name(const rcv_cell *cell) { return cell->ast.name; }
const char *rcv_cell_source(const rcv_cell *cell) { return cell->ast.text; }

rcv_status rcv_cell_print(const rcv_cell *cell, char **text) {
    RCVI_NEED(cell, "cell");
    RCVI_NEED(text, "text");
    rcvi_text out;
    rcvi_text_init(&out, cell->context);
    rcvi_ast_print(&cell->ast, &out);
    return rcvi_text_take(&out, text);
}
