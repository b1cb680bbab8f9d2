/* Prints a program as text: buffers, then steps. */
#include "program/program.h"

static void print_view(const rcvi_program *program, const rcvi_view *view, rcvi_text *out) {
    if (view->buffer == RCVI_NONE) {
        rcvi_text_add(out, "0");
        return;
    }
    rcvi_text_add(out, "%s[%lld", program->buffers[view->buffer].name, (long long)view->offset);
    if (view->stride) rcvi_text_add(out, "%+lld*i", (long long)view->stride);
    if (view->outer) rcvi_text_add(out, "%+lld*o", (long long)view->outer);
    if (view->wrap)
        rcvi_text_add(out, "%+lld*((t+%lld)%%%d)", (long long)view->slot, (long long)view->phase, view->wrap);
    rcvi_text_add(out, "; %lld,%lld]", (long long)view->row, (long long)view->column);
}

static void print_product(const rcvi_program *program, const rcvi_map *map, int index, rcvi_text *out) {
    const rcvi_product *product = &map->products[index];
    rcvi_text_add(out, "%sp%d = ", index ? "; " : "", index);
    if (product->start.buffer != RCVI_NONE) print_view(program, &product->start, out);
    for (int i = 0; i < product->term_count; i++) {
        rcvi_text_add(out, i || product->start.buffer != RCVI_NONE ? " + " : "");
        print_view(program, &product->terms[i].a, out);
        rcvi_text_add(out, " ");
        print_view(program, &product->terms[i].b, out);
        rcvi_text_add(out, " depth %lld", (long long)product->terms[i].depth);
    }
    if (product->out != RCVI_NONE) {
        rcvi_text_add(out, " -> ");
        print_view(program, &map->operands[product->out], out);
    }
}

static void print_map(const rcvi_program *program, const rcvi_step *step, rcvi_text *out) {
    for (int p = 0; p < step->map->product_count; p++) print_product(program, step->map, p, out);
    for (int k = 0; k < step->map->instruction_count; k++) {
        const rcvi_instruction *instruction = &step->map->instructions[k];
        if (k || step->map->product_count) rcvi_text_add(out, "; ");
        rcvi_text_add(out, "r%d", k);
        if (instruction->out != RCVI_NONE) {
            rcvi_text_add(out, " = ");
            print_view(program, &step->map->operands[instruction->out], out);
        }
        rcvi_text_add(out, " = %s(", rcvi_operations[instruction->operation].name);
        for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
            if (a) rcvi_text_add(out, ", ");
            if (instruction->from[a] == RCVI_FROM_NUMBER) {
                rcvi_text_add(out, "%.9g", instruction->number[a]);
            } else if (instruction->from[a] != RCVI_FROM_VIEW) {
                const char *kind = instruction->from[a] == RCVI_FROM_REGISTER ? "r" : "p";
                rcvi_text_add(out, "%s%d", kind, instruction->source[a]);
            } else {
                print_view(program, &step->map->operands[instruction->source[a]], out);
            }
        }
        rcvi_text_add(out, ")");
    }
    for (int i = 0; i < step->map->store_count; i++) {
        const rcvi_map_store *store = &step->map->stores[i];
        rcvi_text_add(out, "; ");
        print_view(program, &step->map->operands[store->out], out);
        rcvi_text_add(out, " = %s%d", store->product ? "p" : "r", store->source);
    }
}

static void print_operands(const rcvi_program *program, const rcvi_step *step, rcvi_text *out) {
    print_view(program, &step->out, out);
    rcvi_text_add(out, step->accumulate ? " += " : " = ");
    switch (step->kind) {
    case RCVI_STEP_FILL: rcvi_text_add(out, "%g", step->fill.number); break;
    case RCVI_STEP_SELECT:
        print_view(program, &step->mask, out);
        rcvi_text_add(out, " ? ");
        print_view(program, &step->a, out);
        rcvi_text_add(out, " : ");
        print_view(program, &step->b, out);
        break;
    case RCVI_STEP_GEMM:
        if (step->gemm.start) {
            print_view(program, step->gemm.start, out);
            rcvi_text_add(out, " + ");
        }
        print_view(program, &step->a, out);
        rcvi_text_add(out, "%s ", step->gemm.transpose_a ? "^T" : "");
        print_view(program, &step->b, out);
        rcvi_text_add(out, "%s depth %lld", step->gemm.transpose_b ? "^T" : "", (long long)step->gemm.depth);
        if (step->gemm.batch > 1) rcvi_text_add(out, " x %lld blocks", (long long)step->gemm.batch);
        break;
    case RCVI_STEP_REDUCE:
        rcvi_text_add(out, "sum over %s of ", step->reduce.over_rows ? "rows" : "columns");
        print_view(program, &step->a, out);
        break;
    case RCVI_STEP_DROPOUT:
        if (step->a.buffer == RCVI_NONE)
            rcvi_text_add(out, "1, or 0");
        else
            print_view(program, &step->a, out);
        rcvi_text_add(out, " with probability %g", step->dropout.probability);
        if (step->dropout.period) rcvi_text_add(out, ", the same every %lld rows", (long long)step->dropout.period);
        break;
    default:
        print_view(program, &step->a, out);
        if (step->b.buffer != RCVI_NONE) {
            rcvi_text_add(out, ", ");
            print_view(program, &step->b, out);
        }
    }
}

void rcvi_program_print(const rcvi_program *program, rcvi_text *out) {
    static const char *const elements[] = {"real",    "byte",    "index",   "packed",  "activation",
                                           "float32", "float64", "float16", "bfloat16"};
    rcvi_text_add(out, "schedule %s, %s, arena %zu bytes\n", program->options.schedule,
                  rcv_dtype_name(program->options.dtype), program->arena_bytes);
    for (size_t b = 0; b < program->buffer_count; b++) {
        const rcvi_buffer *buffer = &program->buffers[b];
        rcvi_text_add(out, "buffer %-24s %s x %lld", buffer->name, elements[buffer->element], (long long)buffer->count);
        if (buffer->first > buffer->last) {
            rcvi_text_add(out, ", unused\n");
        } else if (buffer->role == RCVI_ARENA) {
            rcvi_text_add(out, " at %zu, steps %d to %d\n", buffer->arena_offset, buffer->first, buffer->last);
        } else {
            rcvi_text_add(out, ", the caller's%s\n", buffer->is_batch_major ? ", batch-major" : "");
        }
    }
    int ends[2] = {-1, -1};
    for (int i = 0; i < (int)program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        if ((size_t)i == program->forward_count) rcvi_text_add(out, "backward\n");
        int depth = (i <= ends[0]) + (i <= ends[1]);
        rcvi_text_add(out, "%5d %*s%-8s ", i, 2 * depth, "", rcvi_step_names[step->kind]);
        if (step->kind == RCVI_STEP_LOOP) {
            ends[depth > 0] = i + step->loop.body;
            rcvi_text_add(out, "%lld times\n", (long long)step->loop.count);
            continue;
        }
        rcvi_text_add(out, "[%lld,%lld] ", (long long)step->rows, (long long)step->columns);
        if (step->time.timed) {
            rcvi_text_add(out, "t=%lld%+lld*i%+lld*o", (long long)step->time.base, (long long)step->time.inner,
                          (long long)step->time.outer);
            if (step->time.span > 1) rcvi_text_add(out, "..+%lld", (long long)step->time.span);
            rcvi_text_add(out, " ");
        }
        if (step->kind == RCVI_STEP_MAP) {
            print_map(program, step, out);
        } else {
            print_operands(program, step, out);
        }
        rcvi_text_add(out, "\n");
    }
}
