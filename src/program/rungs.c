/* The table of rungs, and the functions that read, print, compare and check plans by it. */
#include "program/rungs.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN = 40, MAX_DIGITS = 12 }; /* bytes of a wrong text in a sentence; digits of a number */

/* ---- the table ---- */

enum { MAX_ARGUMENTS = 2, MAX_NEEDS = 3, MAX_EXCLUDES = 3 };

typedef enum { ANY_DEVICE, CPU_ONLY, GPU_ONLY } devices;

typedef enum {
    NO_ARGUMENT,
    NUMBER,         /* int64_t, from 1 to most: NAME=8, or 8 where it has no name */
    NUMBER_OR_ALL,  /* the same, or NAME=all, which is 0 */
    WORD,           /* bool: NAME, alone in the parentheses */
    ROWS_OR_COLUMNS /* bool, rows: NAME=rows or NAME=columns */
} argument_kind;

typedef struct {
    argument_kind kind;
    const char *name; /* NULL: a number without a name */
    size_t field;     /* offset in rcvi_rungs */
    int64_t most;
    int64_t absent; /* the field's value where the plan string does not have the argument */
    int64_t usual;  /* this number means the same as 0, and is stored as 0; 0: there is none */
    devices devices;
} argument;

typedef struct {
    const char *name;
    size_t
        flag; /* offset in rcvi_rungs of its bool; NO_FLAG: its first argument, which it must have, says whether it is on */
    argument arguments[MAX_ARGUMENTS];
    const char *form; /* how it is written, for messages; of rungs with arguments */
    devices devices;
    bool runs_naive; /* changes how a program is run, not the program: naive may have it */
    const char *needs[MAX_NEEDS], *excludes[MAX_EXCLUDES]; /* names of rungs */
    const char *reason; /* the sentence where it lacks a rung, or has an excluded one */
} rung;

#define LARGEST INT64_C(1000000000)

#define NO_FLAG SIZE_MAX
#define FIELD(MEMBER) offsetof(rcvi_rungs, MEMBER)

/* A rung that a bool of its name turns on, and one that its first argument turns on. */
#define FLAG(NAME) .name = #NAME, .flag = FIELD(NAME)
#define BY_ARGUMENT(NAME) .name = #NAME, .flag = NO_FLAG
#define ARGUMENT(KIND, NAME, MEMBER) .kind = (KIND), .name = (NAME), .field = FIELD(MEMBER)

/* In the order in which they are printed. naive is the absence of all others that are not runs_naive. */
static const rung rungs[] = {
    {.name = "naive", .flag = NO_FLAG},
    {FLAG(kernels), .devices = CPU_ONLY},
    {FLAG(combine),
     .arguments = {{ARGUMENT(NUMBER_OR_ALL, "steps", steps), .most = LARGEST, .absent = 1},
                   {ARGUMENT(NUMBER, "forward", forward), .most = LARGEST}},
     .form = "combine(steps=8), combine(steps=all) or combine(steps=8,forward=1)"},
    {FLAG(fuse)},
    {FLAG(pack), .excludes = {"transpose"}, .reason = "pack and transpose are two layouts: choose one"},
    {FLAG(transpose)},
    {FLAG(wavefront), .arguments = {{ARGUMENT(WORD, "forward", forward_wave)}},
     .form = "wavefront or wavefront(forward)"},
    {FLAG(scan), .arguments = {{ARGUMENT(WORD, "newton", newton), .devices = GPU_ONLY}}, .form = "scan or scan(newton)",
     .excludes = {"wavefront"},
     .reason = "scan takes a layer through all steps of a chunk in parts, a wavefront all layers at once: choose one"},
    {FLAG(blas), .devices = CPU_ONLY},
    {BY_ARGUMENT(recompute), .arguments = {{ARGUMENT(NUMBER, "every", recompute), .most = LARGEST}},
     .form = "recompute(every=10)"},
    {FLAG(vendor), .arguments = {{ARGUMENT(NUMBER, "algorithm", algorithm), .most = 3}},
     .form = "vendor or vendor(algorithm=1)"},
    {FLAG(merge), .devices = GPU_ONLY, .runs_naive = true, .needs = {"fuse"}, .reason = "merge joins maps: add fuse"},
    {FLAG(persistent), .arguments = {{ARGUMENT(NUMBER, "parts", parts), .most = 3, .usual = RCVI_USUAL_PARTS}},
     .form = "persistent or persistent(parts=2)", .devices = GPU_ONLY, .runs_naive = true,
     .needs = {"combine", "fuse", "pack"},
     .reason = "a persistent kernel keeps packed weights and fused maps: add combine, fuse and pack"},
    {FLAG(cluster), .devices = GPU_ONLY, .runs_naive = true, .needs = {"persistent"},
     .reason = "clusters are of a persistent kernel: add persistent"},
    {FLAG(interpret), .devices = GPU_ONLY, .runs_naive = true, .excludes = {"pack", "scan", "persistent"},
     .reason = "interpret compiles no kernels, and pack, scan and persistent need some: leave these out, or interpret"},
    {BY_ARGUMENT(streams), .arguments = {{ARGUMENT(NUMBER, NULL, streams), .most = 16, .usual = 1}},
     .form = "streams(4)", .devices = GPU_ONLY, .runs_naive = true},
    {BY_ARGUMENT(gemm), .arguments = {{ARGUMENT(NUMBER, "choice", choice), .most = 15}}, .form = "gemm(choice=1)",
     .devices = GPU_ONLY, .runs_naive = true},
    {FLAG(graph), .devices = GPU_ONLY, .runs_naive = true},
    {BY_ARGUMENT(threads),
     .arguments = {{ARGUMENT(NUMBER, NULL, threads), .most = RCVI_MAX_THREADS, .absent = 1},
                   {ARGUMENT(ROWS_OR_COLUMNS, "split", split_rows)}},
     .form = "threads(2) or threads(2,split=rows)", .devices = CPU_ONLY, .runs_naive = true},
};
enum { RUNGS = sizeof rungs / sizeof *rungs };

/* ---- fields ---- */

static bool get_flag(const rcvi_rungs *g, size_t field) { return *(const bool *)((const char *)g + field); }
static void set_flag(rcvi_rungs *g, size_t field, bool value) { *(bool *)((char *)g + field) = value; }

static bool is_number(const argument *a) { return a->kind == NUMBER || a->kind == NUMBER_OR_ALL; }

static int64_t get(const rcvi_rungs *g, const argument *a) {
    return is_number(a) ? *(const int64_t *)(const void *)((const char *)g + a->field) : get_flag(g, a->field);
}

static void set(rcvi_rungs *g, const argument *a, int64_t value) {
    if (is_number(a))
        *(int64_t *)(void *)((char *)g + a->field) = value;
    else
        set_flag(g, a->field, value != 0);
}

static bool is_on(const rcvi_rungs *g, const rung *r) {
    const argument *first = &r->arguments[0];
    if (r->flag != NO_FLAG) return get_flag(g, r->flag);
    if (first->kind == NO_ARGUMENT) return rcvi_rungs_are_naive(g);
    return get(g, first) > (first->usual ? first->usual : first->absent);
}

/* Has a rung that is on this argument, so that it is printed? */
static bool is_given(const rcvi_rungs *g, const argument *a) { return a->kind && get(g, a) != a->absent; }

static const rung *find(const char *name, size_t length) {
    for (size_t i = 0; i < RUNGS; i++) {
        if (strlen(rungs[i].name) == length && !strncmp(name, rungs[i].name, length)) return &rungs[i];
    }
    return NULL;
}

static bool has(const rcvi_rungs *g, const char *name) { return is_on(g, find(name, strlen(name))); }

/* ---- comparing ---- */

bool rcvi_rungs_are_naive(const rcvi_rungs *g) {
    for (size_t i = 1; i < RUNGS; i++) {
        if (!rungs[i].runs_naive && is_on(g, &rungs[i])) return false;
    }
    return true;
}

bool rcvi_rungs_equal(const rcvi_rungs *a, const rcvi_rungs *b) {
    for (size_t i = 0; i < RUNGS; i++) {
        if (rungs[i].flag != NO_FLAG && get_flag(a, rungs[i].flag) != get_flag(b, rungs[i].flag)) return false;
        for (int k = 0; k < MAX_ARGUMENTS; k++) {
            const argument *one = &rungs[i].arguments[k];
            if (one->kind && get(a, one) != get(b, one)) return false;
        }
    }
    return true;
}

/* ---- checking ---- */

/* What messages call an argument: "newton of scan", "split=rows". */
static void name_argument(const rung *r, const argument *a, char name[RCVI_RUNG_NAME]) {
    if (a->kind == ROWS_OR_COLUMNS)
        snprintf(name, RCVI_RUNG_NAME, "%s=rows", a->name);
    else
        snprintf(name, RCVI_RUNG_NAME, "%s of %s", a->name ? a->name : "number", r->name);
}

/* Finds the first rung, or argument of a rung, that is set in g and passes the filter. */
static bool find_set(const rcvi_rungs *g, bool (*passes)(const rung *r, const argument *a, const void *user),
                     const void *user, char name[RCVI_RUNG_NAME]) {
    for (size_t i = 1; i < RUNGS; i++) {
        if (!is_on(g, &rungs[i])) continue;
        snprintf(name, RCVI_RUNG_NAME, "%s", rungs[i].name);
        if (passes(&rungs[i], NULL, user)) return true;
        for (int k = 0; k < MAX_ARGUMENTS; k++) {
            const argument *a = &rungs[i].arguments[k];
            name_argument(&rungs[i], a, name);
            if (is_given(g, a) && passes(&rungs[i], a, user)) return true;
        }
    }
    return false;
}

static bool is_lacking(const rung *r, const argument *a, const void *gpu) {
    devices devices = a ? a->devices : r->devices;
    return devices == (*(const bool *)gpu ? CPU_ONLY : GPU_ONLY);
}

rcv_status rcvi_rungs_check_device(const rcvi_rungs *g, bool gpu) {
    char name[RCVI_RUNG_NAME];
    if (!find_set(g, is_lacking, &gpu, name)) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED, "%s is for %s; this plan is for %s", name, gpu ? "the CPU" : "a GPU",
                     gpu ? "a GPU" : "the CPU");
}

static bool is_not_in(const rung *r, const argument *a, const void *allowed) {
    return a ? !is_given(allowed, a) : !is_on(allowed, r);
}

bool rcvi_rungs_exceed(const rcvi_rungs *g, const rcvi_rungs *allowed, char name[RCVI_RUNG_NAME]) {
    return find_set(g, is_not_in, allowed, name);
}

rcv_status rcvi_rungs_check_combination(const rcvi_rungs *g) {
    for (size_t i = 1; i < RUNGS; i++) {
        const rung *r = &rungs[i];
        bool wrong = false;
        for (int k = 0; k < MAX_EXCLUDES && r->excludes[k]; k++) wrong |= has(g, r->excludes[k]);
        for (int k = 0; k < MAX_NEEDS && r->needs[k]; k++) wrong |= !has(g, r->needs[k]);
        if (wrong && is_on(g, r)) return rcvi_fail(RCV_UNSUPPORTED, "%s", r->reason);
    }
    return RCV_OK;
}

/* ---- reading ---- */

typedef struct {
    const char *at; /* what is left of the text */
    rcvi_rungs *rungs;
} reader;

static size_t word_length(const char *text) { return strcspn(text, "+(),="); }
static int shown(size_t length) { return length < SHOWN ? (int)length : SHOWN; }

static bool starts_with(const reader *r, const char *text) { return !strncmp(r->at, text, strlen(text)); }

static bool skip(reader *r, const char *text) {
    if (!starts_with(r, text)) return false;
    r->at += strlen(text);
    return true;
}

static rcv_status expect(reader *r, const char *text, const char *form) {
    if (skip(r, text)) return RCV_OK;
    size_t length = strcspn(r->at, "+");
    return rcvi_fail(RCV_INVALID, "the plan string has '%.*s' where '%s' is expected: %s", shown(length), r->at, text,
                     form);
}

/* number = a positive integer of at most MAX_DIGITS digits */
static rcv_status read_number(reader *r, const rung *of, const argument *a) {
    size_t length = word_length(r->at), digits = strspn(r->at, "0123456789");
    int64_t value = 0;
    for (size_t i = 0; i < digits && i < MAX_DIGITS; i++) value = value * 10 + (r->at[i] - '0');
    if (digits != length || length == 0 || length > MAX_DIGITS || value < 1 || value > a->most) {
        char name[RCVI_RUNG_NAME];
        name_argument(of, a, name);
        return rcvi_fail(RCV_INVALID, "%s '%.*s' of the plan string is not a whole number from 1 to %lld", name,
                         shown(length), r->at, (long long)a->most);
    }
    r->at += length;
    set(r->rungs, a, value == a->usual ? 0 : value);
    return RCV_OK;
}

static rcv_status read_split(reader *r, const rung *of, const argument *a) {
    size_t length = word_length(r->at);
    bool rows = length == 4 && starts_with(r, "rows"), columns = length == 7 && starts_with(r, "columns");
    if (!rows && !columns) {
        return rcvi_fail(RCV_INVALID, "%s '%.*s' of the plan string's %s is neither rows nor columns", a->name,
                         shown(length), r->at, of->name);
    }
    r->at += length;
    set(r->rungs, a, rows);
    return RCV_OK;
}

static rcv_status read_value(reader *r, const rung *of, const argument *a) {
    if (a->kind == ROWS_OR_COLUMNS) return read_split(r, of, a);
    if (a->kind == NUMBER_OR_ALL && word_length(r->at) == 3 && skip(r, "all")) {
        set(r->rungs, a, 0);
        return RCV_OK;
    }
    return read_number(r, of, a);
}

/* The text in front of an argument's value, or all of a word's. */
static void print_opening(const argument *a, char mark, char *out, size_t room) {
    const char *end = a->kind == WORD ? ")" : a->name ? "=" : "";
    snprintf(out, room, "%c%s%s", mark, a->name ? a->name : "", end);
}

/* [ "(" argument [ "," argument ] ")" ], without the brackets where the rung has no flag */
static rcv_status read_arguments(reader *r, const rung *of) {
    const argument *first = &of->arguments[0], *second = &of->arguments[1];
    char opening[RCVI_RUNG_NAME];
    if (!first->kind || (of->flag != NO_FLAG && *r->at != '(')) return RCV_OK;
    print_opening(first, '(', opening, sizeof opening);
    RCVI_TRY(expect(r, opening, of->form));
    if (first->kind == WORD) {
        set(r->rungs, first, true);
        return RCV_OK;
    }
    RCVI_TRY(read_value(r, of, first));
    print_opening(second, ',', opening, sizeof opening);
    bool follows = second->kind == ROWS_OR_COLUMNS ? *r->at != ')' : second->kind && starts_with(r, opening);
    if (follows) {
        RCVI_TRY(expect(r, opening, of->form));
        RCVI_TRY(read_value(r, of, second));
    }
    return expect(r, ")", of->form);
}

/* "naive, kernels, ... and threads" */
static void list_names(char *out, size_t room) {
    size_t at = 0;
    for (size_t i = 0; i < RUNGS && at < room; i++) {
        const char *joint = i == 0 ? "" : i + 1 < RUNGS ? ", " : " and ";
        at += (size_t)snprintf(out + at, room - at, "%s%s", joint, rungs[i].name);
    }
}

static rcv_status refuse_name(const char *name, size_t length) {
    const char *names[RUNGS];
    char copy[SHOWN + 1], list[16 * RUNGS];
    size_t kept = (size_t)shown(length);
    for (size_t i = 0; i < RUNGS; i++) names[i] = rungs[i].name;
    memcpy(copy, name, kept);
    copy[kept] = '\0';
    if (length == 0)
        return rcvi_fail(RCV_INVALID, "a rung is missing in the plan string: write naive, or rungs joined by '+'");
    const char *near = rcvi_nearest_name(copy, names, RUNGS);
    if (near) return rcvi_fail(RCV_INVALID, "there is no rung '%s' for a plan; did you mean '%s'?", copy, near);
    list_names(list, sizeof list);
    return rcvi_fail(RCV_INVALID, "there is no rung '%s' for a plan; there are %s", copy, list);
}

static rcv_status read_rung(reader *r, bool *seen) {
    const char *name = r->at;
    size_t length = word_length(name);
    const rung *found = find(name, length);
    if (!found) return refuse_name(name, length);
    if (seen[found - rungs]) return rcvi_fail(RCV_INVALID, "the plan string names %s twice", found->name);
    seen[found - rungs] = true;
    r->at += length;
    if (found->flag != NO_FLAG) set_flag(r->rungs, found->flag, true);
    RCVI_TRY(read_arguments(r, found));
    if (*r->at == '\0' || *r->at == '+') return RCV_OK;
    return rcvi_fail(RCV_INVALID, "the plan string has '%.*s' behind %s, where '+' or its end is expected",
                     shown(strcspn(r->at, "+")), r->at, found->name);
}

/* Two texts of one plan give the same rungs. */
static void normalize(rcvi_rungs *g) {
    rcvi_rungs others = *g;
    others.kernels = false;
    if (!rcvi_rungs_are_naive(&others)) g->kernels = false; /* implied */
    if (g->forward == g->steps) g->forward = 0;
    if (g->threads == 1) g->split_rows = false;
}

/* plan = rung { "+" rung } */
rcv_status rcvi_rungs_read(const char *text, rcvi_rungs *out) {
    rcvi_rungs read = {0};
    reader r = {text, &read};
    bool seen[RUNGS] = {false};
    for (size_t i = 0; i < RUNGS * MAX_ARGUMENTS; i++) {
        const argument *a = &rungs[i / MAX_ARGUMENTS].arguments[i % MAX_ARGUMENTS];
        if (a->kind) set(&read, a, a->absent);
    }
    do RCVI_TRY(read_rung(&r, seen));
    while (skip(&r, "+"));
    normalize(&read);
    *out = read;
    return RCV_OK;
}

/* ---- printing ---- */

static void print_argument(const rcvi_rungs *g, const argument *a, char mark, rcvi_text *out) {
    char opening[RCVI_RUNG_NAME];
    print_opening(a, mark, opening, sizeof opening);
    rcvi_text_add(out, "%s", opening);
    if (a->kind == ROWS_OR_COLUMNS)
        rcvi_text_add(out, "%s", get(g, a) ? "rows" : "columns");
    else if (a->kind == NUMBER_OR_ALL && get(g, a) == 0)
        rcvi_text_add(out, "all");
    else if (is_number(a))
        rcvi_text_add(out, "%lld", (long long)get(g, a));
}

static void print_rung(const rcvi_rungs *g, const rung *r, rcvi_text *out) {
    const argument *first = &r->arguments[0], *second = &r->arguments[1];
    rcvi_text_add(out, "%s", r->name);
    if (!is_given(g, first) && !is_given(g, second)) return;
    print_argument(g, first, '(', out);
    if (is_given(g, second)) print_argument(g, second, ',', out);
    if (first->kind != WORD) rcvi_text_add(out, ")");
}

void rcvi_rungs_print(const rcvi_rungs *g, rcvi_text *out) {
    const char *joint = "";
    for (size_t i = 0; i < RUNGS; i++) {
        if (!is_on(g, &rungs[i])) continue;
        rcvi_text_add(out, "%s", joint);
        print_rung(g, &rungs[i], out);
        joint = "+";
    }
}
