/* An epoch of sentences: batches of any number of steps and sequences by one plan, against plans of exactly their sizes. */
#include "calls/calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_STEPS = 82, /* of Penn Treebank's longest sentence, with <eos> */
    MOST_BATCH = 64,
    POOL = 1600,  /* sentences that are sorted together */
    PADDING = 2,  /* steps that a sentence of a batch may be shorter than its longest */
    SAMPLES = 12, /* pairs of sizes that are planned exactly */
    WARM_BATCHES = 3
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

static void report_epoch(job *j, network *one, const batches *b) {
    row r = {"sentences.epoch", "the network's steps of an epoch of sentences by one plan for T 82 B 64", "s", 0};
    size_t wanted = b->count, done = 0;
    if (j->options->limit > 0 && (size_t)j->options->limit < wanted) wanted = (size_t)j->options->limit;
    double most = (j->until - now()) / 4, computed = 0, all = 0;
    for (size_t i = 0; i < b->count; i++) all += (double)(b->pairs[i][0] * b->pairs[i][1]);
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < WARM_BATCHES && i < b->count && !status; i++)
        status = network_step(one, b->pairs[i][0], b->pairs[i][1]);
    double begin = now();
    for (; done < wanted && !status && now() - begin < most; done++) {
        status = network_enqueue(one, b->pairs[done][0], b->pairs[done][1]);
        /* A training loop looks at its loss now and then; without that the host is an epoch ahead of the limit of time. */
        if (!status && done % 64 == 63) status = rcv_run_wait(one->run);
        computed += (double)(b->pairs[done][0] * b->pairs[done][1]);
    }
    if (!status) status = rcv_run_wait(one->run);
    double seconds = now() - begin;
    if (status) {
        row_failed(j, &r, status);
        return;
    }
    detail_number(j, "batches", (double)done);
    detail_number(j, "batches_of_the_epoch", (double)b->count);
    detail_number(j, "estimate_s", seconds * all / computed); /* by steps times sequences */
    detail_text(j, "plan", rcv_plan_string(one->plan));
    detail_pairs(j, "sizes", b->pairs[0], b->count);
    if (done < b->count) r.what = "the network's steps of a part of an epoch of sentences by one plan for T 82 B 64";
    row_end(j, &r, seconds);
}

/* ---- one plan against plans of exactly the sizes ---- */

static int by_sizes(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return x[0] != y[0] ? (x[0] > y[0]) - (x[0] < y[0]) : (x[1] > y[1]) - (x[1] < y[1]);
}

/* Middle first, so that any number of the first ones covers the batches from the shortest to the longest. */
static const size_t order[SAMPLES] = {6, 2, 9, 4, 11, 0, 7, 3, 10, 1, 5, 8};

typedef struct {
    bool done;
    double one, exact; /* median seconds of a step */
} sample;

static rcv_status time_sample(job *j, network *one, const shape *s, const int64_t pair[2], sample *out) {
    static network exact;
    shape own = *s;
    double medians[2];
    own.steps = pair[0];
    own.batch = pair[1];
    rcv_status status = network_open_and_step(j, &own, &exact);
    if (status) return status;
    show(j, "T %lld B %lld: planned in %.2f s: %s", (long long)pair[0], (long long)pair[1], exact.plan_seconds,
         rcv_plan_string(exact.plan));
    timed each[] = {{one, pair[0], pair[1]}, {&exact, 0, 0}};
    status = time_in_turns(each, 2, spend(j, 0.4), 3, medians);
    network_close(&exact);
    if (status) return status;
    *out = (sample){true, medians[0], medians[1]};
    return RCV_OK;
}

static size_t distance(size_t a, size_t b) { return a > b ? a - b : b - a; }

/* Each twelfth of the batches, sorted by size, counts as the nearest twelfth whose middle batch was timed. */
static void report_ratio(job *j, network *one, const shape *s, batches *b) {
    row r = {"sentences.ratio", "an epoch of sentences by one plan, of tuned plans of exactly each batch's sizes", "x",
             1.15};
    static sample samples[SAMPLES];
    static char keys[SAMPLES][32];
    rcv_status status = RCV_OK;
    size_t timed_ones = 0;
    qsort(b->pairs, b->count, sizeof *b->pairs, by_sizes);
    double longest = 0; /* of a sample; the next one may take half as long again */
    for (size_t i = 0; i < SAMPLES && !status && now() + 1.5 * longest < j->until; i++) {
        const size_t at = order[i];
        const double begin = now();
        status = time_sample(j, one, s, b->pairs[(2 * at + 1) * b->count / (2 * SAMPLES)], &samples[at]);
        timed_ones += samples[at].done;
        if (now() - begin > longest) longest = now() - begin;
    }
    if (status && !(status == RCV_STOPPED && !time_is_left(j))) {
        row_failed(j, &r, status);
        return;
    }
    if (timed_ones == 0) {
        row_left_out(j, &r, "no time was left");
        return;
    }
    double sums[2] = {0};
    int64_t shapes[SAMPLES][2];
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t nearest = SAMPLES;
        for (size_t k = 0; k < SAMPLES; k++) {
            if (samples[k].done && (nearest == SAMPLES || distance(k, i) < distance(nearest, i))) nearest = k;
        }
        size_t begin = i * b->count / SAMPLES, end = (i + 1) * b->count / SAMPLES;
        double weight = (double)(end - begin);
        sums[0] += weight * samples[nearest].one;
        sums[1] += weight * samples[nearest].exact;
        memcpy(shapes[i], b->pairs[(2 * i + 1) * b->count / (2 * SAMPLES)], sizeof shapes[i]);
        if (!samples[i].done) continue;
        snprintf(keys[i], sizeof keys[i], "T%lld_B%lld", (long long)shapes[i][0], (long long)shapes[i][1]);
        detail_number(j, keys[i], samples[i].one / samples[i].exact);
    }
    detail_number(j, "samples", (double)timed_ones);
    detail_number(j, "one_plan_s", sums[0]);
    detail_number(j, "exact_plans_s", sums[1]);
    detail_pairs(j, "sampled", shapes[0], SAMPLES);
    row_end(j, &r, sums[0] / sums[1]);
}

void measure_sentences(job *j, const char *unused) {
    (void)unused;
    static network one;
    row r = {"sentences.ratio", "an epoch of sentences by one plan, of tuned plans of exactly each batch's sizes", "x",
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
               .lengths = true};
    if (j->options->tiny) s.input = s.hidden = 16; /* the sizes of batches stay */
    rcv_status status = network_open_and_step(j, &s, &one);
    if (status) {
        row_failed(j, &r, status);
    } else {
        show(j, "one plan for T 82 B 64: %s, planned in %.2f s", rcv_plan_string(one.plan), one.plan_seconds);
        report_epoch(j, &one, &b);
        report_ratio(j, &one, &s, &b);
        network_close(&one);
    }
    free(b.pairs);
}
