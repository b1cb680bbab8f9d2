/* Plans by the kind and the sizes of calls, and runs by their streams. Everything here is guarded by the lock, except for calls of runs. */
#include "call/shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FEW_CALLS = 3,       /* of a kind, with plans that need no search */
    SAME_SIZES = 8,      /* so many calls of the same sizes in turn get a plan for these sizes */
    EXACT_PLANS = 3,     /* of a kind; later ones leave room for larger calls */
    KIND_PLANS = 6,      /* at most, of a kind */
    ALL_PLANS = 96,      /* at most */
    SPARE_CALLS = 64,    /* of a kind, after which a plan that was replaced is freed */
    MOST_STEPS_OVER = 8, /* a plan is used for calls of at least so small a part of its steps, */
    MOST_BATCH_OVER = 4, /* and of its sequences */
    NUMBERS = 2048,      /* of plans; a ticket is twice the number, and one more for version 2 */
    TICKETS = 2 * NUMBERS,
    ROOM_TO_ALIGN = 512 /* bytes with a reserve, so that it can begin where the library needs it to */
};

typedef struct item item;

/* A run, and what it is for. */
typedef struct use {
    struct use *next;
    rcv_run *run;
    void *stream;
    uint64_t frozen;
    bool captured; /* its calls are in a CUDA graph of the caller's */
    bool packed;   /* with `frozen`: a call has packed the parameters */
    bool busy;
} use;

typedef struct kind {
    struct kind *next; /* of the same bucket */
    const rcv_net *net;
    uint64_t key;
    rcvb_kind about;
    item *items;
    int64_t steps, batch; /* of the last call */
    int64_t calls, made, streak;
} kind;

/* A plan. */
struct item {
    item *next; /* of its kind */
    kind *kind;
    rcv_plan *plan;
    use *uses;
    int64_t steps, batch;
    uint64_t used;  /* when it was used last */
    int64_t spared; /* once replaced: calls of the kind until then */
    unsigned number;
    bool searches, replaced;
    size_t reserve[2]; /* bytes, by version; 0: not used yet */
};

enum { BUCKETS = 512 };
static kind *kinds[BUCKETS];
static item *numbered[NUMBERS];
static unsigned last_number;
static uint64_t now;
static int plan_count;

static uint64_t pack(const rcvb_kind *k) {
    uint64_t flags = (uint64_t)k->training | (uint64_t)k->lengths << 1 | (uint64_t)k->device_lengths << 2 |
                     (uint64_t)k->resets << 3 | (uint64_t)k->batch_major << 4;
    uint64_t types =
        (uint64_t)k->dtype | (uint64_t)k->data << 4 | (uint64_t)k->states << 8 | (uint64_t)k->parameters << 12;
    return flags | types << 5 | (uint64_t)k->effort << 21 | (uint64_t)(k->device + 1) << 24 |
           (uint64_t)k->threads << 40;
}

static bool is_same_text(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

static bool is_of(const kind *k, const rcvb_kind *about, uint64_t key) {
    return k->net == about->net && k->key == key && is_same_text(k->about.schedule, about->schedule);
}

static kind *make_kind(const rcvb_kind *about, uint64_t key) {
    kind *k = calloc(1, sizeof *k);
    char *schedule = about->schedule ? strdup(about->schedule) : NULL;
    if (!k || (about->schedule && !schedule)) {
        free(k);
        free(schedule);
        return NULL;
    }
    *k = (kind){.net = about->net, .key = key, .about = *about};
    k->about.schedule = schedule;
    return k;
}

static kind *find_kind(const rcvb_kind *about) {
    uint64_t key = pack(about), hash = ((uint64_t)(uintptr_t)about->net >> 4 ^ key) * UINT64_C(0x9e3779b97f4a7c15);
    kind **bucket = &kinds[(hash >> 32) % BUCKETS], *k = *bucket;
    while (k && !is_of(k, about, key)) k = k->next;
    if (k) return k;
    k = make_kind(about, key);
    if (!k) return NULL;
    k->next = *bucket;
    return *bucket = k;
}

/* ---- freeing ---- */

static bool is_busy(const item *i) {
    const use *u = i->uses;
    while (u && !u->busy && !u->captured) u = u->next;
    return u != NULL;
}

static void free_item(kind *k, item *i) {
    item **at = &k->items;
    while (*at != i) at = &(*at)->next;
    *at = i->next;
    for (use *u = i->uses, *next = NULL; u; u = next) {
        next = u->next;
        rcv_run_free(u->run);
        free(u);
    }
    rcv_plan_free(i->plan);
    numbered[i->number] = NULL;
    plan_count--;
    free(i);
}

/* Of a kind, or of all: the idle plan that was used least recently. */
static item *find_oldest(const kind *k) {
    item *oldest = NULL;
    for (item *i = k->items; i; i = i->next) {
        if (!is_busy(i) && (!oldest || i->used < oldest->used)) oldest = i;
    }
    return oldest;
}

static item *find_oldest_of_all(void) {
    item *oldest = NULL;
    for (int b = 0; b < BUCKETS; b++) {
        for (const kind *k = kinds[b]; k; k = k->next) {
            item *i = find_oldest(k);
            if (i && (!oldest || i->used < oldest->used)) oldest = i;
        }
    }
    return oldest;
}

static void make_room(const kind *k) {
    int count = 0;
    for (const item *i = k->items; i; i = i->next) count++;
    bool is_full = count >= KIND_PLANS && !k->about.schedule; /* plans by their strings serve one size each */
    item *oldest = is_full ? find_oldest(k) : plan_count >= ALL_PLANS ? find_oldest_of_all() : NULL;
    if (oldest) free_item(oldest->kind, oldest);
}

static void free_replaced(kind *k) {
    for (item *i = k->items, *next = NULL; i; i = next) {
        next = i->next;
        if (i->replaced && !is_busy(i) && k->calls - i->spared > SPARE_CALLS) free_item(k, i);
    }
}

/* ---- making ---- */

static rcv_status plan_for(const rcvb_kind *about, int64_t steps, int64_t batch, rcv_effort effort, rcv_plan **plan) {
    char device[24] = "cpu";
    if (about->device != RCVB_CPU) snprintf(device, sizeof device, "cuda:%d", about->device);
    rcv_plan_options options = RCV_INIT(
        rcv_plan_options, .steps = steps, .batch = batch, .dtype = about->dtype, .training = about->training,
        .reserve = about->training, .lengths = about->lengths, .device_lengths = about->device_lengths,
        .resets = about->resets, .batch_major = about->batch_major, .data = about->data, .states = about->states,
        .parameters = about->parameters, .gradients = about->parameters, .separate_parameters = true,
        .threads = about->threads, .device = device, .effort = effort, .schedule = about->schedule,
        .no_vendor = true); /* the frameworks' own threads call oneDNN and cuDNN */
    return rcvb_pass(rcv_plan_new(about->net, &options, plan));
}

static unsigned next_number(void) {
    do {
        last_number = (last_number + 1) % NUMBERS;
    } while (!last_number || numbered[last_number]); /* there are fewer plans than numbers */
    return last_number;
}

static rcv_status make_item(kind *k, int64_t steps, int64_t batch, item **made) {
    make_room(k);
    bool searches = k->calls >= FEW_CALLS || k->about.effort != RCV_BACKGROUND || k->about.schedule;
    item *i = calloc(1, sizeof *i);
    if (!i) return rcvb_fail(RCV_NO_MEMORY, "there is no memory for a plan");
    rcv_status status = plan_for(&k->about, steps, batch, searches ? k->about.effort : RCV_FIRST, &i->plan);
    if (status) {
        free(i);
        return status;
    }
    i->next = k->items;
    i->kind = k;
    i->steps = steps;
    i->batch = batch;
    i->searches = searches;
    i->number = next_number();
    numbered[i->number] = i;
    k->items = i;
    k->made++;
    plan_count++;
    *made = i;
    return RCV_OK;
}

/* ---- choosing ---- */

static bool serves(const item *i, int64_t steps, int64_t batch) {
    if (i->kind->about.schedule) return steps == i->steps && batch == i->batch;
    return !i->replaced && steps <= i->steps && batch <= i->batch && i->steps / MOST_STEPS_OVER <= steps &&
           i->batch / MOST_BATCH_OVER <= batch;
}

static item *find_item(const kind *k, int64_t steps, int64_t batch) {
    item *best = NULL;
    for (item *i = k->items; i; i = i->next) {
        if (serves(i, steps, batch) && (!best || i->steps * i->batch < best->steps * best->batch)) best = i;
    }
    return best;
}

/* Half as much again as the plans that are too small, but not much more than is asked for. */
static int64_t grow(const kind *k, int64_t size, int64_t over, bool of_steps) {
    int64_t grown = size;
    for (const item *i = k->items; i && k->made >= EXACT_PLANS; i = i->next) {
        int64_t has = of_steps ? i->steps : i->batch, more = has + has / 2;
        if (has < size && more > grown && more / over <= size) grown = more;
    }
    return grown;
}

/* The plan of a call, which is made where there is none yet, or where there is a better reason for one now. */
static rcv_status choose_item(kind *k, int64_t steps, int64_t batch, item **chosen) {
    bool same = steps == k->steps && batch == k->batch;
    k->streak = same ? k->streak + 1 : 1;
    k->steps = steps;
    k->batch = batch;
    item *i = find_item(k, steps, batch);
    bool exact = i && i->steps == steps && i->batch == batch;
    bool wants_exact = k->streak == SAME_SIZES && !exact;
    bool wants_search = i && !i->searches && k->calls >= FEW_CALLS;
    if (!i || wants_exact) {
        bool grows = !i && !wants_exact && !k->about.schedule;
        int64_t room = grows ? grow(k, steps, MOST_STEPS_OVER, true) : steps;
        rcv_status status = make_item(k, room, grows ? grow(k, batch, MOST_BATCH_OVER, false) : batch, &i);
        if (status) return status;
    } else if (wants_search) {
        item *before = i;
        unsigned number = before->number;
        before->replaced = true;
        before->spared = k->calls;
        rcv_status status = make_item(k, before->steps, before->batch, &i);
        if (status) {
            if (numbered[number] == before) before->replaced = false; /* make_item may have freed it to make room */
            return status;
        }
    }
    *chosen = i;
    return RCV_OK;
}

/* ---- runs ---- */

static use *find_use(item *i, void *stream, uint64_t frozen, bool captured) {
    use *spare = NULL;
    for (use *u = i->uses; u; u = u->next) {
        if (u->busy || u->frozen != frozen) continue;
        if (u->stream == stream && u->captured == captured) return u;
        if (captured && !u->captured)
            spare = u; /* a run's first call cannot be captured: one that has made calls is used */
    }
    return spare;
}

static rcv_status make_use(item *i, void *stream, uint64_t frozen, use **made) {
    use *u = calloc(1, sizeof *u);
    if (!u) return rcvb_fail(RCV_NO_MEMORY, "there is no memory for a run");
    rcv_status status = rcvb_pass(rcv_run_new(i->plan, &u->run));
    if (status) {
        free(u);
        return status;
    }
    u->frozen = frozen;
    u->next = i->uses;
    i->uses = u;
    *made = u;
    return stream ? rcvb_pass(rcv_run_set_stream(u->run, stream)) : RCV_OK;
}

static bool is_captured(const kind *k, void *stream) {
    char device[24];
    if (k->about.device == RCVB_CPU) return false;
    snprintf(device, sizeof device, "cuda:%d", k->about.device);
    return rcv_device_is_capturing(device, stream);
}

static rcv_status refuse_capture(void) {
    return rcvb_fail(RCV_INVALID,
                     "the first call of a module with these sizes cannot be captured: call it before the capture");
}

static rcv_status take_use(item *i, void *stream, uint64_t frozen, bool captured, use **taken) {
    use *u = find_use(i, stream, frozen, captured);
    if (!u && captured) return refuse_capture();
    rcv_status status = u ? RCV_OK : make_use(i, stream, frozen, &u);
    if (!status && u->stream != stream) status = rcvb_pass(rcv_run_set_stream(u->run, stream));
    if (status) return status;
    u->stream = stream;
    u->captured = captured;
    u->busy = true;
    *taken = u;
    return RCV_OK;
}

/* A plan with a run for a call that is captured: nothing is made or freed then. */
static rcv_status choose_captured(const kind *k, int64_t steps, int64_t batch, void *stream, uint64_t frozen,
                                  item **chosen) {
    *chosen = NULL;
    for (item *i = k->items; i; i = i->next) {
        bool fits = steps <= i->steps && batch <= i->batch && find_use(i, stream, frozen, true);
        if (fits && (!*chosen || i->used > (*chosen)->used)) *chosen = i;
    }
    return *chosen ? RCV_OK : refuse_capture();
}

/* ---- leases ---- */

static void fill_lease(item *i, use *u, rcvb_lease *lease) {
    *lease = (rcvb_lease){.run = u->run, .same = u->frozen && u->packed, .plan = i, .use = u};
    if (!i->kind->about.training) return;
    lease->version = rcv_run_version(u->run);
    lease->reserve = i->reserve[lease->version - 1] = rcv_run_reserve_bytes(u->run);
    lease->ticket = 2 * i->number + (lease->version == 2);
}

static rcv_status acquire(const rcvb_kind *about, int64_t steps, int64_t batch, void *stream, uint64_t frozen,
                          rcvb_lease *lease) {
    item *i = NULL;
    use *u = NULL;
    kind *k = find_kind(about);
    if (!k) return rcvb_fail(RCV_NO_MEMORY, "there is no memory for a plan");
    bool captured = is_captured(k, stream);
    if (!captured) free_replaced(k);
    rcv_status status =
        captured ? choose_captured(k, steps, batch, stream, frozen, &i) : choose_item(k, steps, batch, &i);
    if (status) return status;
    k->calls++;
    i->used = ++now;
    status = take_use(i, stream, frozen, captured, &u);
    if (status) return status;
    if (about->training && !captured) (void)rcv_run_update(u->run); /* where memory is short version 1 stays */
    fill_lease(i, u, lease);
    return RCV_OK;
}

rcv_status rcvb_acquire(const rcvb_kind *about, int64_t steps, int64_t batch, void *stream, uint64_t frozen,
                        rcvb_lease *lease) {
    *lease = (rcvb_lease){0};
    rcvb_lock();
    rcv_status status = acquire(about, steps, batch, stream, frozen, lease);
    rcvb_unlock();
    return status;
}

size_t rcvb_reserve_bytes(const rcvb_lease *lease) {
    return (lease->reserve + ROOM_TO_ALIGN + TICKETS - 1) / TICKETS * TICKETS + lease->ticket;
}

static rcv_status acquire_again(const rcvb_kind *about, size_t bytes, void *stream, rcvb_lease *lease) {
    unsigned ticket = (unsigned)(bytes % TICKETS);
    item *i = numbered[ticket / 2];
    int64_t version = 1 + ticket % 2;
    use *u = NULL;
    if (!i || !is_of(i->kind, about, pack(about))) return RCV_OK;
    rcvb_lease found = {.plan = i, .version = version, .reserve = i->reserve[version - 1], .ticket = ticket};
    if (!found.reserve || rcvb_reserve_bytes(&found) != bytes) return RCV_OK;
    i->used = ++now;
    bool captured = is_captured(i->kind, stream);
    rcv_status status = take_use(i, stream, 0, captured, &u);
    if (!status && version == 2 && !captured) status = rcvb_pass(rcv_run_update(u->run));
    found.use = u;
    found.run = u ? u->run : NULL;
    if (status && u) u->busy = false;
    if (!status) *lease = found;
    return status;
}

rcv_status rcvb_acquire_again(const rcvb_kind *about, size_t bytes, void *stream, rcvb_lease *lease) {
    *lease = (rcvb_lease){0};
    rcvb_lock();
    rcv_status status = acquire_again(about, bytes, stream, lease);
    rcvb_unlock();
    return status;
}

void rcvb_release(rcvb_lease *lease, bool packed) {
    use *u = lease->use;
    if (!u) return;
    rcvb_lock();
    u->packed = packed;
    u->busy = false;
    rcvb_unlock();
    *lease = (rcvb_lease){0};
}

void rcvb_wait_for_searches(void) {
    rcvb_lock();
    for (int b = 0; b < BUCKETS; b++) {
        for (const kind *k = kinds[b]; k; k = k->next) {
            for (const item *i = k->items; i; i = i->next)
                (void)rcv_plan_wait(i->plan); /* a failed search leaves a plan, too */
        }
    }
    rcvb_unlock();
}

void rcvb_stop_searches(void) {
    rcvb_lock();
    for (int b = 0; b < BUCKETS; b++) {
        for (kind *k = kinds[b]; k; k = k->next) {
            k->about.effort = RCV_FIRST; /* of plans that are made from now on */
            for (item *i = k->items; i; i = i->next) (void)rcv_plan_stay(i->plan);
        }
    }
    rcvb_unlock();
}

/* ---- frozen parameters ---- */

static void forget_uses(item *i, uint64_t frozen) {
    for (use **at = &i->uses; *at;) {
        use *u = *at;
        if (u->frozen != frozen || u->busy || u->captured) {
            at = &u->next;
            continue;
        }
        *at = u->next;
        rcv_run_free(u->run);
        free(u);
    }
}

void rcvb_forget(uint64_t frozen) {
    rcvb_lock();
    for (int b = 0; frozen && b < BUCKETS; b++) {
        for (kind *k = kinds[b]; k; k = k->next) {
            for (item *i = k->items; i; i = i->next) forget_uses(i, frozen);
        }
    }
    rcvb_unlock();
}

/* ---- reports ---- */

rcv_status rcvb_plan(const rcvb_kind *about, int64_t steps, int64_t batch, rcv_plan **plan) {
    *plan = NULL;
    return plan_for(about, steps, batch, about->effort, plan);
}
