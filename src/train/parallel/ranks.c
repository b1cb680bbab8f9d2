/* What the ranks of a run have in common, and what each of them has of it. */
#include "train/run/trainer.h"

#include "net/net.h"
#include "train/parallel/costs.h"
#include "train/parallel/gradient_segments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- agreement ---- */

/* Settings that may differ from rank to rank: where things lie, and how fast a rank does its work. */
static bool may_differ(const rcv_setting *setting) {
    static const char *const names[] = {"data",   "valid",   "test",   "cache", "vocabulary", "log",
                                        "device", "threads", "wisdom", "chunk", "timeout"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(setting->name, names[i])) return true;
    }
    return false;
}

/* NAME=VALUE, a line each. */
static rcv_status describe(const rcv_trainer *t, char **text) {
    rcvi_text out;
    rcvi_text_init(&out, t->context);
    rcvi_text_add(&out, "version of Recurve=%s\n", rcv_version());
    for (size_t i = 0; i < rcv_setting_count(); i++) {
        const rcv_setting *setting = rcv_setting_at(i);
        if (!may_differ(setting))
            rcvi_text_add(&out, "%s=%s\n", setting->name, rcv_settings_get(t->settings, setting->name));
    }
    rcvi_machine machine;
    rcv_status status = t->learner->device->describe(t->context, t->learner->ordinal, t->learner->dtype, 1, &machine);
    if (!status) rcvi_text_add(&out, "set of kernels=%s\n", machine.kernels); /* replicas round as they do */
    rcvi_text_add(&out, "training data=%016llx\n", (unsigned long long)t->state.data_hash);
    uint64_t identity = 0;
    if (!status && t->valid) status = rcvi_data_identity(t->valid, &identity);
    rcvi_text_add(&out, "validation data=%016llx\n", (unsigned long long)identity);
    if (!status) return rcvi_text_take(&out, text);
    rcvi_text_drop(&out);
    return status;
}

/* The first line in which the two differ. */
static rcv_status compare(int rank, const char *own, const char *other) {
    while (*own && *other) {
        size_t length = strcspn(own, "\n"), expected = strcspn(other, "\n");
        if (length != expected || strncmp(own, other, length) != 0) {
            int name = (int)strcspn(own, "="), other_name = (int)strcspn(other, "=");
            const char *value = own + name + 1, *wanted = other + other_name + 1;
            int count = (int)length - name - 1, wanted_count = (int)expected - other_name - 1;
            return rcvi_fail(RCV_INVALID, "rank %d differs from rank 0: its %.*s is '%.*s', not '%.*s'", rank, name,
                             own, count > 0 ? count : 0, value, wanted_count > 0 ? wanted_count : 0, wanted);
        }
        own += length + (own[length] != 0);
        other += expected + (other[expected] != 0);
    }
    return RCV_OK;
}

rcv_status rcvi_ranks_agree(const rcv_trainer *t) {
    rcvi_comm *world = t->topology.world;
    char *own = NULL;
    if (!world) return RCV_OK;
    RCVI_TRY(rcvi_comm_agree(world, describe(t, &own)));
    if (!own) return RCV_NO_MEMORY;
    int64_t bytes = (int64_t)strlen(own) + 1;
    rcv_status status = rcvi_comm_pass(world, RCVI_BROADCAST, 0, &bytes, sizeof bytes);
    char *leader = status ? NULL : rcvi_new(t->context, (size_t)bytes, 1);
    if (!status) status = rcvi_comm_agree(world, leader ? RCV_OK : RCV_NO_MEMORY);
    if (!status && leader) {
        if (rcvi_topology_is_leader(&t->topology)) memcpy(leader, own, (size_t)bytes);
        status = rcvi_comm_pass(world, RCVI_BROADCAST, 0, leader, (size_t)bytes);
        if (!status) status = rcvi_comm_agree(world, compare(rcvi_comm_rank(world), own, leader));
    }
    rcvi_free(t->context, leader);
    rcvi_free(t->context, own);
    return status;
}

int64_t rcvi_ranks_threads(const rcv_trainer *t) {
    int64_t asked = rcvi_settings_integer(t->settings, "threads");
    if (asked || !t->topology.world || rcvi_comm_here(t->topology.world) == 1) return asked;
    return rcvi_comm_cores(t->topology.world, rcv_context_threads(t->context));
}

/* ---- layers ---- */

/* COUNT,COUNT,...: one a stage, all of the layers together. */
rcv_status rcvi_read_split(const char *text, int layers, int stages, int *counts) {
    int found = 0;
    long sum = 0;
    const char *at = text;
    bool good = true;
    while (good && *at) {
        char *end;
        long value = strtol(at, &end, 10);
        good = end != at && (!*end || (*end == ',' && end[1])) && value > 0 && value <= layers && found < stages;
        if (good) counts[found++] = (int)value;
        sum += value;
        at = *end ? end + 1 : end;
    }
    if (good && found == stages && sum == layers) return RCV_OK;
    return rcvi_fail(RCV_INVALID, "split '%s' does not share out %d layers among %d stages, such as 2,1,1", text,
                     layers, stages);
}

/* What was chosen is what the run has from here on, and its checkpoints: so it goes on bit for bit. */
static rcv_status keep_split(rcv_trainer *t, const int *counts, int stages) {
    rcvi_text text;
    char *split = NULL;
    rcvi_text_init(&text, t->context);
    for (int s = 0; s < stages; s++) rcvi_text_add(&text, "%s%d", s ? "," : "", counts[s]);
    RCVI_TRY(rcvi_text_take(&text, &split));
    rcv_status status = rcv_settings_set(t->settings, "split", split);
    rcvi_free(t->context, split);
    return status;
}

static rcv_status choose_split(rcv_trainer *t, int stages, int *counts) {
    RCVI_TRY(rcvi_costs_split(t, t->topology.replica_count, stages, counts));
    return keep_split(t, counts, stages);
}

rcv_status rcvi_check_stages(int layers, int stages) {
    if (stages <= layers) return RCV_OK;
    return rcvi_fail(RCV_INVALID, "%d layers cannot be shared out among %d stages: a stage has one at least", layers,
                     stages);
}

rcv_status rcvi_ranks_counts(const rcv_trainer *t, int *counts) {
    int layers = (int)rcv_net_get_options(t->learner->net)->layers,
        stages = t->topology.world ? t->topology.stage_count : 1;
    const char *split = rcvi_settings_text(t->settings, "split");
    counts[0] = layers;
    return stages > 1 && split ? rcvi_read_split(split, layers, stages, counts) : RCV_OK;
}

rcv_status rcvi_ranks_split(rcv_trainer *t, int64_t *first, int64_t *count) {
    const rcv_learner *l = t->learner;
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    int layers = (int)rcv_net_get_options(l->net)->layers, stages = topology ? topology->stage_count : 1;
    *first = 0;
    *count = layers;
    if (stages == 1) return RCV_OK;
    RCVI_TRY(rcvi_check_stages(layers, stages));
    const char *asked = rcvi_settings_text(t->settings, "split");
    int *counts = rcvi_new(l->context, (size_t)stages, sizeof *counts);
    rcv_status status = !counts ? RCV_NO_MEMORY
                        : asked ? rcvi_read_split(asked, layers, stages, counts)
                                : choose_split(t, stages, counts);
    for (int s = 0; !status && s < topology->stage; s++) *first += counts[s];
    if (!status) *count = counts[topology->stage];
    rcvi_free(l->context, counts);
    return status;
}

/* ---- arrays, from all ranks and to all ---- */

typedef struct {
    int64_t first, count; /* elements of the whole */
} segment;

/* What a rank has of an array: segments, and their elements one after the other in the host's memory. */
typedef struct {
    segment *segments;
    int64_t count, elements;
    void *data;
} holding;

static void drop_holding(const rcv_trainer *t, holding *h) {
    rcvi_free(t->context, h->segments);
    rcvi_free(t->context, h->data);
    *h = (holding){0};
}

static rcv_status make_holding(const rcv_trainer *t, int64_t segments, holding *h) {
    *h = (holding){0};
    h->segments = rcvi_new(t->context, (size_t)segments, sizeof *h->segments);
    return h->segments ? RCV_OK : RCV_NO_MEMORY;
}

static void add_segment(holding *h, int64_t first, int64_t count) {
    h->segments[h->count++] = (segment){first, count};
    h->elements += count;
}

/* Where the elements of an array of parameters, or of shares of moments, are in the whole. */
static rcv_status hold_array(const rcv_trainer *t, bool shares, holding *h) {
    const rcv_learner *l = t->learner;
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    size_t count = 0;
    if (!topology || !topology->shares_optimiser || !shares) {
        RCVI_TRY(make_holding(t, 1, h));
        add_segment(h, l->from, l->to - l->from);
        return RCV_OK;
    }
    rcvi_gradient_segment *gradient = rcvi_gradient_segments_new(l, false, &count);
    rcv_status status = gradient ? make_holding(t, (int64_t)count, h) : RCV_NO_MEMORY;
    for (size_t i = 0; i < count && !status; i++) {
        int64_t start = rcvi_share_start(gradient[i].count, topology->replica, topology->replica_count);
        int64_t end = rcvi_share_start(gradient[i].count, topology->replica + 1, topology->replica_count);
        add_segment(h, gradient[i].first + start, end - start);
    }
    rcvi_free(t->context, gradient);
    return status;
}

int64_t rcvi_ranks_share(const rcv_trainer *t) {
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    if (!topology || !topology->shares_optimiser) return t->learner->to - t->learner->from;
    holding h = {0};
    int64_t elements = hold_array(t, true, &h) ? -1 : h.elements;
    drop_holding(t, &h);
    return elements;
}

static rcv_status send_holding(const rcv_trainer *t, holding *h) {
    int64_t sizes[2] = {h->count, h->elements};
    RCVI_TRY(rcvi_comm_pass(t->topology.world, RCVI_SEND, 0, sizes, sizeof sizes));
    RCVI_TRY(rcvi_comm_pass(t->topology.world, RCVI_SEND, 0, h->segments, (size_t)h->count * sizeof *h->segments));
    return rcvi_comm_pass(t->topology.world, RCVI_SEND, 0, h->data, (size_t)h->elements * rcvi_real_bytes(t->learner));
}

static rcv_status receive_holding(const rcv_trainer *t, int rank, holding *h) {
    int64_t sizes[2];
    size_t real = rcvi_real_bytes(t->learner);
    RCVI_TRY(rcvi_comm_pass(t->topology.world, RCVI_RECEIVE, rank, sizes, sizeof sizes));
    RCVI_TRY(make_holding(t, sizes[0], h));
    h->count = sizes[0];
    h->elements = sizes[1];
    h->data = rcvi_new(t->context, (size_t)h->elements, real);
    if (!h->data) return RCV_NO_MEMORY;
    RCVI_TRY(
        rcvi_comm_pass(t->topology.world, RCVI_RECEIVE, rank, h->segments, (size_t)h->count * sizeof *h->segments));
    return rcvi_comm_pass(t->topology.world, RCVI_RECEIVE, rank, h->data, (size_t)h->elements * real);
}

/* To or from the whole, in the host's memory. */
static void move_segments(const rcv_learner *l, const holding *h, void *whole, bool out) {
    int64_t at = 0;
    for (int64_t i = 0; i < h->count; at += h->segments[i++].count) {
        void *there = rcvi_element_at(l, whole, h->segments[i].first), *here = rcvi_element_at(l, h->data, at);
        size_t bytes = (size_t)h->segments[i].count * rcvi_real_bytes(l);
        if (bytes) memcpy(out ? there : here, out ? here : there, bytes);
    }
}

/* Rank 0 puts together what it has itself and what the first `senders` ranks have. */
static rcv_status assemble(const rcv_trainer *t, holding *h, int senders, int64_t elements, void **host) {
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    int rank = topology ? rcvi_comm_rank(topology->world) : 0;
    if (rank > 0) return rank < senders ? send_holding(t, h) : RCV_OK;
    *host = rcvi_new(t->context, (size_t)elements, rcvi_real_bytes(t->learner));
    rcv_status status = *host ? RCV_OK : RCV_NO_MEMORY;
    if (*host) move_segments(t->learner, h, *host, true);
    for (int r = 1; r < senders && !status; r++) {
        holding other = {0};
        status = receive_holding(t, r, &other);
        if (!status) move_segments(t->learner, &other, *host, true);
        drop_holding(t, &other);
    }
    if (!status) return RCV_OK;
    rcvi_free(t->context, *host);
    *host = NULL;
    return status;
}

static int world_size(const rcv_trainer *t) { return t->topology.world ? rcvi_comm_size(t->topology.world) : 1; }

rcv_status rcvi_ranks_collect(const rcv_trainer *t, const void *array, bool shares, void **host) {
    const rcv_learner *l = t->learner;
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    size_t real = rcvi_real_bytes(l);
    holding h = {0};
    *host = NULL;
    rcv_status status = hold_array(t, shares, &h);
    if (!status) h.data = rcvi_new(t->context, (size_t)h.elements, real);
    if (!status && !h.data) status = RCV_NO_MEMORY;
    if (!status) status = rcvi_device_read(l, h.data, array, (size_t)h.elements * real);
    int senders = !topology ? 1 : shares && topology->shares_optimiser ? world_size(t) : topology->stage_count;
    if (!status) status = assemble(t, &h, senders, l->elements, host);
    drop_holding(t, &h);
    return status;
}

rcv_status rcvi_ranks_take(const rcv_trainer *t, const void *host, bool shares, void *array) {
    const rcv_learner *l = t->learner;
    size_t real = rcvi_real_bytes(l);
    holding h = {0};
    rcv_status status = hold_array(t, shares, &h);
    if (!status) h.data = rcvi_new(t->context, (size_t)h.elements, real);
    if (!status && !h.data) status = RCV_NO_MEMORY;
    if (!status) {
        move_segments(l, &h, (void *)(uintptr_t)host, false);
        status = rcvi_device_write(l, array, h.data, (size_t)h.elements * real);
    }
    drop_holding(t, &h);
    return status;
}

/* ---- texts ---- */

static rcv_status receive_text(const rcv_trainer *t, int rank, rcvi_text *all) {
    int64_t bytes;
    RCVI_TRY(rcvi_comm_pass(t->topology.world, RCVI_RECEIVE, rank, &bytes, sizeof bytes));
    char *text = rcvi_new(t->context, (size_t)bytes, 1);
    if (!text) return RCV_NO_MEMORY;
    rcv_status status = rcvi_comm_pass(t->topology.world, RCVI_RECEIVE, rank, text, (size_t)bytes);
    if (!status) rcvi_text_add_bytes(all, text, (size_t)bytes);
    rcvi_free(t->context, text);
    return status;
}

rcv_status rcvi_ranks_collect_text(const rcv_trainer *t, const char *text, char **all) {
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    int rank = topology ? rcvi_comm_rank(topology->world) : 0, senders = topology ? topology->stage_count : 1;
    int64_t bytes = (int64_t)strlen(text);
    *all = NULL;
    if (rank >= senders) return RCV_OK;
    if (rank > 0) {
        RCVI_TRY(rcvi_comm_pass(t->topology.world, RCVI_SEND, 0, &bytes, sizeof bytes));
        return rcvi_comm_pass(t->topology.world, RCVI_SEND, 0, (void *)(uintptr_t)text, (size_t)bytes);
    }
    rcvi_text out;
    rcvi_text_init(&out, t->context);
    rcvi_text_add_bytes(&out, text, (size_t)bytes);
    rcv_status status = RCV_OK;
    for (int r = 1; r < senders && !status; r++) status = receive_text(t, r, &out);
    if (!status) return rcvi_text_take(&out, all);
    rcvi_text_drop(&out);
    return status;
}

/* ---- carried states ---- */

/* Blocks of layers and directions, of each the sequences of each micro-batch: as they lie in the states of one micro-batch after the other. */
static rcv_status hold_state(const rcv_trainer *t, const rcvi_window *v, size_t state, holding *h) {
    const rcv_net *net = t->learner->net, *part = t->learner->part;
    RCVI_TRY(make_holding(t, v->micro * part->options.layers * part->directions, h));
    for (int64_t m = 0; m < v->micro; m++) {
        for (int64_t l = 0; l < part->options.layers; l++) {
            for (int64_t d = 0; d < part->directions; d++) {
                int64_t size = rcv_net_state_size(part, state, l, d > 0);
                int64_t block = rcvi_state_offset(net, state, part->first + l, d) * v->whole;
                add_segment(h, block + (v->first + m * v->batch) * size, v->batch * size);
            }
        }
    }
    h->data = rcvi_new(t->context, (size_t)h->elements, rcvi_real_bytes(t->learner));
    return h->data ? RCV_OK : RCV_NO_MEMORY;
}

static const rcvi_window *carrier(const rcv_trainer *t) { return &t->work->windows[t->windows[0]]; }

/* Between the window, micro-batch after micro-batch, and a holding. */
static rcv_status move_state(const rcv_trainer *t, const rcvi_window *v, size_t state, const holding *h, bool fetches) {
    const rcvi_work *w = t->work;
    size_t count = rcv_net_state_count(t->learner->part), bytes = rcvi_window_state_bytes(w, v, state);
    for (int64_t m = 0; m < v->micro; m++) {
        void *there = rcvi_window_states(v, count, m, 0)[state], *here = (char *)h->data + (size_t)m * bytes;
        RCVI_TRY(fetches ? w->ops->fetch(w->learn, here, there, bytes) : w->ops->send(w->learn, there, here, bytes));
    }
    return RCV_OK;
}

rcv_status rcvi_ranks_collect_state(const rcv_trainer *t, size_t state, void **host) {
    const rcvi_window *v = carrier(t);
    holding h = {0};
    *host = NULL;
    rcv_status status = hold_state(t, v, state, &h);
    if (!status) status = move_state(t, v, state, &h, true);
    if (!status) status = assemble(t, &h, world_size(t), rcv_net_state(t->learner->net, state)->total * v->whole, host);
    drop_holding(t, &h);
    return status;
}

rcv_status rcvi_ranks_take_state(const rcv_trainer *t, size_t state, const void *host) {
    const rcvi_window *v = carrier(t);
    holding h = {0};
    rcv_status status = hold_state(t, v, state, &h);
    if (!status) {
        move_segments(t->learner, &h, (void *)(uintptr_t)host, false);
        status = move_state(t, v, state, &h, false);
    }
    drop_holding(t, &h);
    return status;
}
