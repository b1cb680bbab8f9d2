/* Numbers, types and operations of instructions as CUDA source. */
#include "device/cuda/codegen/source.h"

#include <math.h>
#include <string.h>

const char *const rcvi_source_types[] = {
    [RCVI_F32] = "float",   [RCVI_F64] = "double",       [RCVI_BF16] = "BFloat16",
    [RCVI_F16] = "Float16", [RCVI_U8] = "unsigned char", [RCVI_I64] = "long long",
};

/* Digits that read back as the same number, and not as an integer, which has no -0. */
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
