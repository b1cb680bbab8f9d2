/* An epoch of sentences: batches of any number of steps and sequences by one plan, which has another one for few sequences, against plans of
 * exactly their sizes.
 *
 * The epoch is a real first one: the run has seen no call before it, so that whatever a plan prepares for sizes it has not seen is part of its time.
 * The exact plans, of which there would be hundreds, are made for some of the sizes, and timed in steps that repeat, when everything is prepared. A
 * batch whose sizes have no exact plan counts with the time of the nearest sizes that have one, times the ratio of the steps. */
#include "calls/calls.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_STEPS = 82, /* of Penn Treebank's longest sentence, with <eos> */
    MOST_BATCH = 64,
    SMALL_BATCH = 16, /* up to so many sequences a batch counts as small */
    POOL = 1600,      /* sentences that are sorted together */
    PADDING = 2,      /* steps that a sentence of a batch may be shorter than its longest */
    SAMPLES = 48,     /* pairs of sizes that are planned exactly, at most */
    TINY_SAMPLES = 8,
    LEAST_SAMPLES = 8, /* fewer do not stand for the epoch */
    EPOCHS = 3,        /* first epochs, each by a new run; exact plans are made between them */
    WAIT = 64          /* a training loop looks at its loss now and then: after so many batches */
};

typedef struct {
    int64_t (*pairs)[2]; /* steps and sequences of each batch, in the order of training */
    size_t count;
} batches;

/* ---- batches ---- */

/* Words of each line and <eos>; NULL: the file cannot be read, and errno says why. A line longer than MOST_STEPS is cut. */
static int64_t *read_lengths(const char *folder, size_t *count) {
    char path[4096];
    snprintf(path, sizeof path, "%s/ptb.train.txt", folder);
    FILE *file = fopen(path, "r");
    if (!file) return NULL;
    size_t room = 1 << 16;
    int64_t *lengths = need(malloc(room * sizeof *lengths)), words = 0;
    bool in_word = false;
    *count = 0;
    for (int c; (c = getc(file)) != EOF;) {
        bool space = c == ' ' || c == '\t' || c == '\r' || c == '\n';
        if (!space && !in_word) words++;
        in_word = !space;
        if (c != '\n') continue;
        if (*count == room) lengths = need(realloc(lengths, (room *= 2) * sizeof *lengths));
        lengths[(*count)++] = words + 1 < MOST_STEPS ? words + 1 : MOST_STEPS;
        words = 0;
    }
    fclose(file);
    return lengths;
}

static int by_length(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void shuffle(void *items, size_t count, size_t bytes, uint64_t *state) {
    char kept[64], *at = items;
    for (size_t i = count; i > 1; i--) {
        size_t other = (size_t)(draw(state) % i);
        memcpy(kept, at + other * bytes, bytes);
        memcpy(at + other * bytes, at + (i - 1) * bytes, bytes);
        memcpy(at + (i - 1) * bytes, kept, bytes);
    }
}

/* As a training loop draws them: the sentences in random order, sorted by length within pools, cut into batches of similar lengths, and the
 * batches in random order. */
static batches draw_batches(int64_t *lengths, size_t count) {
    batches b = {need(malloc((count + 1) * sizeof *b.pairs)), 0};
    uint64_t state = 11;
    shuffle(lengths, count, sizeof *lengths, &state);
    for (size_t begin = 0; begin < count; begin += POOL) {
        size_t end = begin + POOL < count ? begin + POOL : count;
        qsort(lengths + begin, end - begin, sizeof *lengths, by_length);
        for (size_t i = begin, first = begin; i < end; i++) {
            bool is_last = i + 1 == end || i + 1 - first == MOST_BATCH || lengths[i + 1] - lengths[first] > PADDING;
            if (!is_last) continue;
            b.pairs[b.count][0] = lengths[i];
            b.pairs[b.count++][1] = (int64_t)(i + 1 - first);
            first = i + 1;
        }
    }
    shuffle(b.pairs, b.count, sizeof *b.pairs, &state);
    return b;
}

/* ---- the epoch by one plan ---- */

/* The first `count` batches; *done: so many of them were done before the time was over. */
static rcv_status time_epoch(network *one, const batches *b, size_t count, double most, size_t *done, double *seconds) {
    rcv_status status = RCV_OK;
    double begin = now();
    for (*done = 0; *done < count && !status && now() - begin < most; ++*done) {
        status = network_enqueue(one, b->pairs[*done][0], b->pairs[*done][1]);
        if (!status && *done % WAIT == WAIT - 1) status = rcv_run_wait(one->run);
    }
    if (!status) status = rcv_run_wait(one->run);
    *seconds = now() - begin;
    return status;
}

/* First epochs, of new runs, and the second ones of the same runs. */
typedef struct {
    size_t batches; /* of an epoch, as many as there was time for */
    size_t count;
    double first[EPOCHS], second[EPOCHS]; /* seconds; second 0: not timed */
    double exact;                         /* the same batches by exact plans; 0: not timed */
} epochs;

static rcv_status time_epochs(job *j, network *one, const batches *b, epochs *e) {
    size_t wanted = b->count, done = 0;
    double seconds = 0, part = j->until - now();
    if (e->count == EPOCHS) return RCV_OK;
    if (j->options->limit > 0 && (size_t)j->options->limit < wanted) wanted = (size_t)j->options->limit;
    if (e->count > 0) wanted = e->batches;
    /* Later ones only where the first was short beside the time that is left, and never a part of one. */
    if (e->count > 0 && 2.5 * e->first[0] > part) return RCV_OK;
    rcv_status status = e->count > 0 ? network_renew_run(one) : RCV_OK;
    if (!status) status = time_epoch(one, b, wanted, e->count == 0 ? part / 4 : part, &done, &seconds);
    if (status) return status;
    if (e->count > 0 && done < wanted) return RCV_OK;
    e->batches = done;
    e->first[e->count] = seconds;
    e->second[e->count] = 0;
    if (done == wanted && 8 * seconds < j->until - now()) {
        status = time_epoch(one, b, wanted, part, &done, &e->second[e->count]);
        if (done < wanted) e->second[e->count] = 0;
    }
    e->count++;
    return status;
}

static void report_epoch(job *j, const network *one, const batches *b, const epochs *e) {
    double computed = 0, all = 0;
    char what[192], part[64] = "";
    for (size_t i = 0; i < b->count; i++) {
        double work = (double)(b->pairs[i][0] * b->pairs[i][1]);
        all += work;
        if (i < e->batches) computed += work;
    }
    if (e->batches < b->count) snprintf(part, sizeof part, "%zu of the %zu batches of ", e->batches, b->count);
    snprintf(what, sizeof what, "the network's steps of %sthe first epoch of sentences by one plan for T %d B %d", part,
             MOST_STEPS, MOST_BATCH);
    row r = {"sentences.epoch", what, "s", 0};
    detail_number(j, "batches", (double)e->batches);
    detail_number(j, "batches_of_the_epoch", (double)b->count);
    detail_number(j, "estimate_s", e->first[0] * all / computed); /* by steps times sequences */
    if (e->second[0] > 0) detail_number(j, "second_epoch_s", e->second[0]);
    detail_number(j, "plan_s", one->plan_seconds);
    detail_text(j, "plan", rcv_plan_string(one->plan));
    detail_number(j, "small_batch", (double)one->shape.small_batch);
    detail_text(j, "small_plan", rcv_plan_string(rcv_plan_small(one->plan)));
    detail_pairs(j, "sizes", b->pairs[0], b->count);
    row_end(j, &r, e->first[0]);
}

/* ---- plans of exactly the sizes ---- */

typedef struct {
    int64_t pair[2];
    double one, exact; /* median seconds of a repeated step, by the one plan and by the exact one, timed in turns */
} sample;

static int by_sizes(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return x[0] != y[0] ? (x[0] > y[0]) - (x[0] < y[0]) : (x[1] > y[1]) - (x[1] < y[1]);
}

/* The sizes of the epoch's batches in the order in which they are planned: any number of the first ones covers the batches from the shortest to
 * the longest evenly (the bits of the index are reversed). Returns how many there are, all different. */
static size_t choose_sizes(const batches *b, size_t batch_count, size_t most, int64_t (*chosen)[2]) {
    enum { BITS = 10 };
    int64_t(*sorted)[2] = need(malloc((batch_count + 1) * sizeof *sorted));
    size_t count = 0;
    memcpy(sorted, b->pairs, batch_count * sizeof *sorted);
    qsort(sorted, batch_count, sizeof *sorted, by_sizes);
    for (size_t i = 0; i < 1 << BITS && count < most; i++) {
        size_t reversed = 0;
        for (int bit = 0; bit < BITS; bit++) reversed |= (i >> bit & 1) << (BITS - 1 - bit);
        const int64_t *pair = sorted[((2 * reversed + 1) * batch_count) >> (BITS + 1)];
        bool is_new = true;
        for (size_t k = 0; k < count; k++) is_new &= by_sizes(chosen[k], pair) != 0;
        if (is_new) memcpy(chosen[count++], pair, sizeof *chosen);
    }
    free(sorted);
    return count;
}

static rcv_status time_sample(job *j, network *one, const int64_t pair[2], sample *out) {
    static network exact;
    shape own = one->shape;
    double medians[2];
    own.steps = pair[0];
    own.batch = pair[1];
    own.small_batch = 0;
    rcv_status status = network_open_and_step(j, &own, &exact);
    if (status) return status;
    timed each[] = {{one, pair[0], pair[1]}, {&exact, 0, 0}};
    status = time_in_turns(each, 2, spend(j, 0.3), medians);
    if (!status)
        show(j, "T %lld B %lld: planned in %.2f s: %s: %.3g ms, by the one plan %.3g ms", (long long)pair[0],
             (long long)pair[1], exact.plan_seconds, rcv_plan_string(exact.plan), 1e3 * medians[1], 1e3 * medians[0]);
    network_close(&exact);
    if (status) return status;
    memcpy(out->pair, pair, sizeof out->pair);
    out->one = medians[0];
    out->exact = medians[1];
    return RCV_OK;
}

static double square(double x) { return x * x; }

/* Seconds of the epoch's batches by exact plans, and by the one plan when calls are repeated. */
static void sum_batches(const batches *b, size_t batch_count, const sample *samples, size_t count, double *exact,
                        double *one) {
    *exact = *one = 0;
    for (size_t i = 0; i < batch_count; i++) {
        const int64_t *pair = b->pairs[i];
        const sample *nearest = samples;
        double least = INFINITY;
        for (size_t k = 0; k < count; k++) {
            double distance = square((double)(samples[k].pair[0] - pair[0]) / MOST_STEPS) +
                              square((double)(samples[k].pair[1] - pair[1]) / MOST_BATCH);
            if (distance >= least) continue;
            nearest = &samples[k];
            least = distance;
        }
        double scale = (double)pair[0] / (double)nearest->pair[0];
        *exact += scale * nearest->exact;
        *one += scale * nearest->one;
    }
}

static void report_ratio(job *j, const row *r, const batches *b, epochs *e, const sample *samples, size_t count) {
    static double ratios[SAMPLES];
    static int64_t pairs[SAMPLES][2];
    double exact = 0, one = 0;
    sum_batches(b, e->batches, samples, count, &exact, &one);
    e->exact = exact;
    for (size_t i = 0; i < count; i++) {
        ratios[i] = samples[i].one / samples[i].exact;
        memcpy(pairs[i], samples[i].pair, sizeof pairs[i]);
    }
    detail_number(j, "batches", (double)e->batches);
    detail_number(j, "first_epoch_s", e->first[0]);
    if (e->second[0] > 0) detail_number(j, "second_epoch_s", e->second[0]);
    detail_number(j, "exact_plans_s", exact);
    if (e->second[0] > 0) detail_number(j, "second_epoch_ratio", e->second[0] / exact);
    for (size_t i = 1; i < e->count; i++) {
        char key[64];
        snprintf(key, sizeof key, "first_epoch_ratio_of_run_%zu", i + 1);
        detail_number(j, key, e->first[i] / exact);
    }
    detail_number(j, "repeated_sizes_ratio", one / exact);
    detail_number(j, "samples", (double)count);
    detail_number(j, "ratio_of_a_sample_median", median(ratios, count));
    detail_number(j, "ratio_of_a_sample_least", quantile(ratios, count, 0));
    detail_number(j, "ratio_of_a_sample_most", quantile(ratios, count, 1));
    detail_pairs(j, "sampled", pairs[0], count);
    row_end(j, r, e->first[0] / exact);
}

/* Exact plans until the time is over, with the other epochs after the first few and at the end. */
static void measure_ratio(job *j, const row *r, network *one, const batches *b, epochs *e) {
    static sample samples[SAMPLES];
    static int64_t chosen[SAMPLES][2];
    size_t count = choose_sizes(b, e->batches, j->options->tiny ? TINY_SAMPLES : SAMPLES, chosen), done = 0;
    size_t least = count < LEAST_SAMPLES ? count : LEAST_SAMPLES;
    rcv_status status = RCV_OK;
    double longest = 0;                             /* of a sample; the next one may take half as long again */
    double kept = 2 * (e->first[0] + e->second[0]); /* seconds for the last epochs */
    if (8 * e->first[0] > j->until - now()) kept = 0;
    while (done < count && !status && now() + 1.5 * longest + kept < j->until) {
        const double begin = now();
        status = time_sample(j, one, chosen[done], &samples[done]);
        done += !status;
        if (now() - begin > longest) longest = now() - begin;
        if (!status && done == least && kept > 0) status = time_epochs(j, one, b, e);
    }
    if (!status && kept > 0) status = time_epochs(j, one, b, e);
    if (status && !(status == RCV_STOPPED && !time_is_left(j))) {
        row_failed(j, r, status);
    } else if (done < least) {
        char reason[128];
        snprintf(reason, sizeof reason,
                 "too little time: %zu sizes were planned, and fewer than %zu do not stand for the epoch", done, least);
        row_left_out(j, r, reason);
    } else {
        report_ratio(j, r, b, e, samples, done);
    }
}

/* The same epoch without a plan for few sequences. */
static void measure_without_small(job *j, const shape *s, const batches *b, const epochs *e) {
    static network one;
    shape own = *s;
    const row r = {"sentences.without_small",
                   "the same without a plan of its own for calls of few sequences, of tuned plans", "x", 0};
    double seconds = 0;
    size_t done = 0;
    own.small_batch = 0;
    if (e->exact <= 0 || !time_is_left(j)) {
        row_left_out(j, &r, "no time was left");
        return;
    }
    rcv_status status = network_open(j, &own, &one);
    if (!status) status = time_epoch(&one, b, e->batches, j->until - now(), &done, &seconds);
    if (status) {
        row_failed(j, &r, status);
    } else if (done < e->batches) {
        row_left_out(j, &r, "too little time was left");
    } else {
        detail_text(j, "plan", rcv_plan_string(one.plan));
        row_end(j, &r, seconds / e->exact);
    }
    network_close(&one);
}

void measure_sentences(job *j, const char *unused) {
    (void)unused;
    static network one;
    char what[256];
    row r = {"sentences.ratio",
             "the first epoch of sentences by one plan, of the same batches by tuned plans of exactly their sizes", "x",
             1.15};
    if (!j->options->data) {
        row_left_out(j, &r, "--data names no folder with ptb.train.txt");
        return;
    }
    size_t count = 0;
    int64_t *lengths = read_lengths(j->options->data, &count);
    if (!lengths || count == 0) {
        char reason[256];
        snprintf(reason, sizeof reason, "ptb.train.txt in the folder of --data: %s",
                 lengths ? "no lines" : strerror(errno));
        row_wrong(j, &r, reason);
        free(lengths);
        return;
    }
    batches b = draw_batches(lengths, count);
    free(lengths);
    shape s = {.cell = "lstm",
               .steps = MOST_STEPS,
               .batch = MOST_BATCH,
               .input = 650,
               .hidden = 650,
               .layers = 2,
               .dtype = RCV_BFLOAT16,
               .training = true,
               .lengths = true,
               .small_batch = SMALL_BATCH};
    if (j->options->tiny) s.input = s.hidden = 16; /* the sizes of batches stay */
    epochs e = {0};
    rcv_status status = network_open(j, &s, &one); /* no step: the epoch has the first calls */
    if (status) {
        row_failed(j, &r, status);
        free(b.pairs);
        return;
    }
    show(j, "one plan for T %d B %d: %s, planned in %.2f s", MOST_STEPS, MOST_BATCH, rcv_plan_string(one.plan),
         one.plan_seconds);
    status = time_epochs(j, &one, &b, &e);
    if (status) {
        row_failed(j, &r, status);
    } else if (e.batches == 0) {
        row_left_out(j, &r, "no time was left");
    } else {
        report_epoch(j, &one, &b, &e);
        if (e.batches < b.count) {
            snprintf(what, sizeof what, "%zu of the %zu batches of %s", e.batches, b.count, r.what);
            r.what = what;
        }
        measure_ratio(j, &r, &one, &b, &e);
    }
    network_close(&one);
    if (!status) measure_without_small(j, &s, &b, &e);
    free(b.pairs);
}
