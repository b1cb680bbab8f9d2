/* The key of a problem in wisdom. It contains everything on which the order of two plans may depend. */
#include "plan/wisdom.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { CPU_BYTES = 96, NAME_BYTES = 320 };

/* FNV-1a: another byte anywhere always gives another hash. */
uint64_t rcvi_hash_bytes(const void *bytes, size_t length) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < length; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Letters, digits and a few signs; a run of anything else becomes one '-'. */
static void add_plain(const char *from, size_t length, char *to, size_t room) {
    size_t at = strlen(to);
    for (size_t i = 0; i < length && at + 1 < room; i++) {
        unsigned char c = (unsigned char)from[i];
        if (isalnum(c) || c == '.' || c == '_')
            to[at++] = (char)c;
        else if (at > 0 && to[at - 1] != '-')
            to[at++] = '-';
    }
    to[at] = '\0';
}

/* Appends the value of a field of the first processor in the text of /proc/cpuinfo to `to`. */
static bool add_field(const char *text, const char *field, char *to, size_t room) {
    const char *found = strstr(text, field), *colon = found ? strchr(found, ':') : NULL;
    if (!colon) return false;
    if (*to) add_plain("-", 1, to, room);
    add_plain(colon + 1, strcspn(colon + 1, "\n"), to, room);
    return true;
}

/* The CPU's model by name, or by the numbers that ARM has in place of one. */
static void name_cpu(char *name) {
    char text[4096];
    name[0] = '\0';
    FILE *file = fopen("/proc/cpuinfo", "r");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[length] = '\0';
    if (!add_field(text, "model name", name, CPU_BYTES)) {
        add_field(text, "CPU implementer", name, CPU_BYTES);
        add_field(text, "CPU variant", name, CPU_BYTES);
        add_field(text, "CPU part", name, CPU_BYTES);
    }
    if (!*name) strcpy(name, "unknown");
}

static void add_net(const rcv_net *net, rcvi_text *out) {
    const rcv_net_options *n = &net->options;
    rcvi_text equations;
    rcvi_text_init(&equations, net->context);
    rcvi_ast_print(&net->cell->ast, &equations);
    out->failed |= equations.failed;
    rcvi_text_add(out, "cell=%s:%016llx input=%lld hidden=%lld layers=%lld", net->cell->ast.name,
                  (unsigned long long)rcvi_hash_bytes(equations.bytes, equations.length), (long long)n->input,
                  (long long)n->hidden, (long long)n->layers);
    rcvi_text_drop(&equations);
    for (size_t i = 0; i < n->size_count; i++)
        rcvi_text_add(out, " size.%s=%lld", n->sizes[i].name, (long long)n->sizes[i].value);
    if (n->rank) rcvi_text_add(out, " rank=%lld", (long long)n->rank);
    if (n->bidirectional) rcvi_text_add(out, " bidirectional");
    if (n->reverse) rcvi_text_add(out, " reverse");
    if (n->no_bias) rcvi_text_add(out, " no_bias");
    if (n->dropout != 0) {
        rcvi_text_add(out, " dropout=");
        rcvi_text_add_number(out, n->dropout);
        if (n->variational) rcvi_text_add(out, " variational");
    }
    if (n->zoneout != 0) {
        rcvi_text_add(out, net->options.expected_zoneout ? " zoneout.mean=" : " zoneout=");
        rcvi_text_add_number(out, n->zoneout);
    }
}

rcv_status rcvi_problem_key(const rcvi_problem *problem, char **key) {
    const rcv_plan_options *o = problem->options;
    const rcvi_machine *machine = &problem->machine;
    char cpu[CPU_BYTES] = "", processor[NAME_BYTES] = "", vendor[NAME_BYTES] = "", libraries[NAME_BYTES] = "";
    name_cpu(cpu); /* also where a GPU computes: the host launches */
    if (machine->processor) add_plain(machine->processor, strlen(machine->processor), processor, sizeof processor);
    if (machine->vendor) add_plain(machine->vendor, strlen(machine->vendor), vendor, sizeof vendor);
    if (machine->libraries) add_plain(machine->libraries, strlen(machine->libraries), libraries, sizeof libraries);
    rcvi_text out;
    rcvi_text_init(&out, problem->net->context);
    add_net(problem->net, &out);
    rcvi_text_add(&out, " steps=%lld batch=%lld dtype=%s%s%s%s%s%s", (long long)o->steps, (long long)o->batch,
                  rcv_dtype_name(o->dtype), o->training ? " training" : "", o->lengths ? " lengths" : "",
                  o->resets ? " resets" : "", o->signals ? " signals" : "",
                  o->separate_parameters ? " separate_parameters" : "");
    if (o->reserve) rcvi_text_add(&out, " reserve");
    if (o->data) rcvi_text_add(&out, " data=%s", rcv_dtype_name((rcv_dtype)(o->data - 1)));
    if (o->states) rcvi_text_add(&out, " states=%s", rcv_dtype_name((rcv_dtype)(o->states - 1)));
    if (o->parameters) rcvi_text_add(&out, " parameters=%s", rcv_dtype_name((rcv_dtype)(o->parameters - 1)));
    if (o->gradients) rcvi_text_add(&out, " gradients=%s", rcv_dtype_name((rcv_dtype)(o->gradients - 1)));
    if (o->device_lengths) rcvi_text_add(&out, " device_lengths");
    if (o->no_vendor) rcvi_text_add(&out, " no_vendor");
    if (o->batch_major) rcvi_text_add(&out, " batch_major");
    rcvi_text_add(&out, " device=%s kernels=%s threads=%lld vendor=%s", problem->device->name, machine->kernels,
                  (long long)machine->threads, *vendor ? vendor : "none");
    if (*processor) rcvi_text_add(&out, " processor=%s", processor);
    if (*libraries) rcvi_text_add(&out, " libraries=%s", libraries);
    rcvi_text_add(&out, " cpu=%s cores=%lld/%lld version=%s", cpu, (long long)rcvi_available_cores(),
                  (long long)rcvi_cores(), rcv_version());
    return rcvi_text_take(&out, key);
}
