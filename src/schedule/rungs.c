/* Plan strings: a table of rungs that is read and printed. */
#include "schedule/schedule.h"

#include <string.h>

enum { SHOWN = 40, MAX_DIGITS = 12 }; /* bytes of a wrong text in a sentence; digits of a number */

typedef struct {
    const char *at; /* what is left of the text */
    rcvi_rungs *rungs;
} reader;

typedef struct {
    const char *name;
    rcv_status (*read)(reader *r);                          /* what stands behind the name, up to '+' or the end */
    bool (*print)(const rcvi_rungs *rungs, rcvi_text *out); /* false where the rung is off */
} rung;

static size_t word_length(const char *text) { return strcspn(text, "+(),="); }
static int shown(size_t length) { return length < SHOWN ? (int)length : SHOWN; }

static bool take(reader *r, const char *text) {
    if (strncmp(r->at, text, strlen(text))) return false;
    r->at += strlen(text);
    return true;
}

/* number = a positive integer of at most MAX_DIGITS digits */
static rcv_status read_number(reader *r, const char *what, int64_t limit, int64_t *number) {
    size_t length = word_length(r->at), digits = strspn(r->at, "0123456789");
    int64_t value = 0;
    for (size_t i = 0; i < digits && i < MAX_DIGITS; i++) value = value * 10 + (r->at[i] - '0');
    if (digits != length || length == 0 || length > MAX_DIGITS || value < 1 || value > limit) {
        return rcvi_fail(RCV_INVALID, "%s '%.*s' of the plan string is not a whole number from 1 to %lld", what,
                         shown(length), r->at, (long long)limit);
    }
    r->at += length;
    *number = value;
    return RCV_OK;
}

static rcv_status expect(reader *r, const char *text, const char *form) {
    if (take(r, text)) return RCV_OK;
    size_t length = strcspn(r->at, "+");
    return rcvi_fail(RCV_INVALID, "the plan string has '%.*s' where '%s' is expected: %s", shown(length), r->at, text,
                     form);
}

/* ---- the rungs ---- */

#define LARGEST INT64_C(1000000000)
enum { MOST_STREAMS = 16, MOST_ALGORITHMS = 3, MOST_CHOICES = 15, MOST_PARTS = 3 };

static rcv_status read_naive(reader *r) {
    (void)r;
    return RCV_OK;
}

static bool print_naive(const rcvi_rungs *g, rcvi_text *out) {
    if (!rcvi_rungs_none(g)) return false;
    rcvi_text_add(out, "naive");
    return true;
}

/* combine [ "(steps=" ( number | "all" ) [ ",forward=" number ] ")" ] */
static rcv_status read_combine(reader *r) {
    static const char form[] = "combine(steps=8), combine(steps=all) or combine(steps=8,forward=1)";
    r->rungs->combine = true;
    if (*r->at != '(') return RCV_OK;
    RCVI_TRY(expect(r, "(steps=", form));
    r->rungs->steps = 0;
    if (word_length(r->at) != 3 || !take(r, "all"))
        RCVI_TRY(read_number(r, "steps of combine", LARGEST, &r->rungs->steps));
    if (take(r, ",forward=")) RCVI_TRY(read_number(r, "forward of combine", LARGEST, &r->rungs->forward));
    if (r->rungs->forward == r->rungs->steps) r->rungs->forward = 0;
    return expect(r, ")", form);
}

static bool print_combine(const rcvi_rungs *g, rcvi_text *out) {
    if (!g->combine) return false;
    rcvi_text_add(out, "combine");
    if (g->steps == 1 && !g->forward) return true;
    if (g->steps == 0)
        rcvi_text_add(out, "(steps=all");
    else
        rcvi_text_add(out, "(steps=%lld", (long long)g->steps);
    if (g->forward) rcvi_text_add(out, ",forward=%lld", (long long)g->forward);
    rcvi_text_add(out, ")");
    return true;
}

/* recompute "(every=" number ")" */
static rcv_status read_recompute(reader *r) {
    static const char form[] = "recompute(every=10)";
    RCVI_TRY(expect(r, "(every=", form));
    RCVI_TRY(read_number(r, "every of recompute", LARGEST, &r->rungs->recompute));
    return expect(r, ")", form);
}

static bool print_recompute(const rcvi_rungs *g, rcvi_text *out) {
    if (!g->recompute) return false;
    rcvi_text_add(out, "recompute(every=%lld)", (long long)g->recompute);
    return true;
}

/* vendor [ "(algorithm=" number ")" ] */
static rcv_status read_vendor(reader *r) {
    static const char form[] = "vendor or vendor(algorithm=1)";
    r->rungs->vendor = true;
    if (*r->at != '(') return RCV_OK;
    RCVI_TRY(expect(r, "(algorithm=", form));
    RCVI_TRY(read_number(r, "algorithm of vendor", MOST_ALGORITHMS, &r->rungs->algorithm));
    return expect(r, ")", form);
}

static bool print_vendor(const rcvi_rungs *g, rcvi_text *out) {
    if (!g->vendor) return false;
    rcvi_text_add(out, "vendor");
    if (g->algorithm) rcvi_text_add(out, "(algorithm=%lld)", (long long)g->algorithm);
    return true;
}

/* scan [ "(newton)" ] */
static rcv_status read_scan(reader *r) {
    r->rungs->scan = true;
    if (*r->at != '(') return RCV_OK;
    r->rungs->newton = true;
    return expect(r, "(newton)", "scan or scan(newton)");
}

static bool print_scan(const rcvi_rungs *g, rcvi_text *out) {
    if (!g->scan) return false;
    rcvi_text_add(out, "scan%s", g->newton ? "(newton)" : "");
    return true;
}

/* wavefront [ "(forward)" ] */
static rcv_status read_wavefront(reader *r) {
    r->rungs->wavefront = true;
    if (*r->at != '(') return RCV_OK;
    r->rungs->forward_wave = true;
    return expect(r, "(forward)", "wavefront or wavefront(forward)");
}

static bool print_wavefront(const rcvi_rungs *g, rcvi_text *out) {
    if (!g->wavefront) return false;
    rcvi_text_add(out, "wavefront%s", g->forward_wave ? "(forward)" : "");
    return true;
}

/* persistent [ "(parts=" number ")" ] */
static rcv_status read_persistent(reader *r) {
    static const char form[] = "persistent or persistent(parts=2)";
    r->rungs->persistent = true;
    if (*r->at != '(') return RCV_OK;
    RCVI_TRY(expect(r, "(parts=", form));
    RCVI_TRY(read_number(r, "parts of persistent", MOST_PARTS, &r->rungs->parts));
    if (r->rungs->parts == RCVI_USUAL_PARTS) r->rungs->parts = 0;
    return expect(r, ")", form);
}

static bool print_persistent(const rcvi_rungs *g, rcvi_text *out) {
    if (!g->persistent) return false;
    rcvi_text_add(out, "persistent");
    if (g->parts) rcvi_text_add(out, "(parts=%lld)", (long long)g->parts);
    return true;
}

/* gemm "(choice=" number ")" */
static rcv_status read_gemm(reader *r) {
    static const char form[] = "gemm(choice=1)";
    RCVI_TRY(expect(r, "(choice=", form));
    RCVI_TRY(read_number(r, "choice of gemm", MOST_CHOICES, &r->rungs->choice));
    return expect(r, ")", form);
}

static bool print_gemm(const rcvi_rungs *g, rcvi_text *out) {
    if (!g->choice) return false;
    rcvi_text_add(out, "gemm(choice=%lld)", (long long)g->choice);
    return true;
}

/* streams "(" number ")" */
static rcv_status read_streams(reader *r) {
    static const char form[] = "streams(4)";
    RCVI_TRY(expect(r, "(", form));
    RCVI_TRY(read_number(r, "number of streams", MOST_STREAMS, &r->rungs->streams));
    if (r->rungs->streams == 1) r->rungs->streams = 0;
    return expect(r, ")", form);
}

static bool print_streams(const rcvi_rungs *g, rcvi_text *out) {
    if (g->streams < 2) return false;
    rcvi_text_add(out, "streams(%lld)", (long long)g->streams);
    return true;
}

/* threads "(" number [ ",split=" ( "rows" | "columns" ) ] ")" */
static rcv_status read_threads(reader *r) {
    static const char form[] = "threads(2) or threads(2,split=rows)";
    RCVI_TRY(expect(r, "(", form));
    RCVI_TRY(read_number(r, "number of threads", RCVI_MAX_THREADS, &r->rungs->threads));
    if (*r->at == ')') return expect(r, ")", form);
    RCVI_TRY(expect(r, ",split=", form));
    size_t length = word_length(r->at);
    bool rows = length == 4 && !strncmp(r->at, "rows", 4), columns = length == 7 && !strncmp(r->at, "columns", 7);
    if (!rows && !columns) {
        return rcvi_fail(RCV_INVALID, "split '%.*s' of the plan string's threads is neither rows nor columns",
                         shown(length), r->at);
    }
    r->at += length;
    r->rungs->split_rows = rows && r->rungs->threads > 1;
    return expect(r, ")", form);
}

static bool print_threads(const rcvi_rungs *g, rcvi_text *out) {
    if (g->threads <= 1) return false;
    rcvi_text_add(out, "threads(%lld%s)", (long long)g->threads, g->split_rows ? ",split=rows" : "");
    return true;
}

#define PLAIN(NAME)                                                                                                    \
    static rcv_status read_##NAME(reader *r) {                                                                         \
        r->rungs->NAME = true;                                                                                         \
        return RCV_OK;                                                                                                 \
    }                                                                                                                  \
    static bool print_##NAME(const rcvi_rungs *g, rcvi_text *out) {                                                    \
        if (g->NAME) rcvi_text_add(out, #NAME);                                                                        \
        return g->NAME;                                                                                                \
    }
PLAIN(kernels)
PLAIN(fuse)
PLAIN(pack)
PLAIN(transpose)
PLAIN(blas)
PLAIN(merge)
PLAIN(cluster)
PLAIN(graph)

/* In the order in which they are printed. */
static const rung rungs[] = {
    {"naive", read_naive, print_naive},
    {"kernels", read_kernels, print_kernels},
    {"combine", read_combine, print_combine},
    {"fuse", read_fuse, print_fuse},
    {"pack", read_pack, print_pack},
    {"transpose", read_transpose, print_transpose},
    {"wavefront", read_wavefront, print_wavefront},
    {"scan", read_scan, print_scan},
    {"blas", read_blas, print_blas},
    {"recompute", read_recompute, print_recompute},
    {"vendor", read_vendor, print_vendor},
    {"merge", read_merge, print_merge},
    {"persistent", read_persistent, print_persistent},
    {"cluster", read_cluster, print_cluster},
    {"streams", read_streams, print_streams},
    {"gemm", read_gemm, print_gemm},
    {"graph", read_graph, print_graph},
    {"threads", read_threads, print_threads},
};
enum { RUNGS = sizeof rungs / sizeof *rungs };

/* ---- the whole ---- */

static rcv_status unknown(const char *name, size_t length) {
    const char *names[RUNGS];
    for (size_t i = 0; i < RUNGS; i++) names[i] = rungs[i].name;
    char copy[SHOWN + 1];
    size_t kept = (size_t)shown(length);
    memcpy(copy, name, kept);
    copy[kept] = '\0';
    if (length == 0)
        return rcvi_fail(RCV_INVALID, "a rung is missing in the plan string: write naive, or rungs joined by '+'");
    const char *near = rcvi_nearest(copy, names, RUNGS);
    if (near) return rcvi_fail(RCV_INVALID, "there is no rung '%s' for a plan; did you mean '%s'?", copy, near);
    return rcvi_fail(
        RCV_INVALID,
        "there is no rung '%s' for a plan; there are naive, kernels, combine, fuse, pack, transpose, wavefront, blas, "
        "recompute, vendor, merge, persistent, cluster, streams, gemm, graph and threads",
        copy);
}

static rcv_status read_rung(reader *r, bool *seen) {
    const char *name = r->at;
    size_t length = word_length(name), i = 0;
    while (i < RUNGS && (strlen(rungs[i].name) != length || strncmp(name, rungs[i].name, length))) i++;
    if (i == RUNGS) return unknown(name, length);
    if (seen[i]) return rcvi_fail(RCV_INVALID, "the plan string names %s twice", rungs[i].name);
    seen[i] = true;
    r->at += length;
    RCVI_TRY(rungs[i].read(r));
    if (*r->at == '\0' || *r->at == '+') return RCV_OK;
    return rcvi_fail(RCV_INVALID, "the plan string has '%.*s' behind %s, where '+' or its end is expected",
                     shown(strcspn(r->at, "+")), r->at, rungs[i].name);
}

rcv_status rcvi_rungs_fit(const rcvi_rungs *g, const rcvi_machine *machine) {
    const struct {
        const char *name;
        bool on, gpu;
    } own[] = {{"kernels", g->kernels, false},     {"blas", g->blas, false},
               {"threads", g->threads > 1, false}, {"merge", g->merge, true},
               {"streams", g->streams > 0, true},  {"gemm", g->choice > 0, true},
               {"graph", g->graph, true},          {"persistent", g->persistent, true},
               {"cluster", g->cluster, true},      {"newton of scan", g->newton, true}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (own[i].on && own[i].gpu != machine->gpu) {
            return rcvi_fail(RCV_UNSUPPORTED, "%s is for %s; this plan is for %s", own[i].name,
                             own[i].gpu ? "a GPU" : "the CPU", machine->gpu ? "a GPU" : "the CPU");
        }
    }
    return RCV_OK;
}

/* plan = rung { "+" rung } */
rcv_status rcvi_rungs_read(const char *text, rcvi_rungs *out) {
    rcvi_rungs read = {.steps = 1, .threads = 1};
    reader r = {text, &read};
    bool seen[RUNGS] = {false};
    do RCVI_TRY(read_rung(&r, seen));
    while (take(&r, "+"));
    rcvi_rungs others = read;
    others.kernels = false;
    if (!rcvi_rungs_none(&others)) read.kernels = false; /* implied */
    *out = read;
    return RCV_OK;
}

void rcvi_rungs_print(const rcvi_rungs *g, rcvi_text *out) {
    size_t start = out->length;
    for (size_t i = 0; i < RUNGS; i++) {
        size_t before = out->length;
        if (before > start) rcvi_text_add(out, "+");
        if (!rungs[i].print(g, out)) out->length = before; /* takes the '+' back */
    }
    rcvi_text_add(out, "%s", ""); /* the NUL, where the last '+' stood */
}
