/* First calls of shapes that follow the first one at once, in the same process and with empty caches. */
#include "calls/calls.h"

enum { TEXT = 192 };

/* What differs from the first shape: the hidden size to three quarters, one layer more, both directions, a GRU, half the steps and sequences. */
typedef enum { HIDDEN, LAYERS, BOTH_DIRECTIONS, GRU, SMALLER, CHANGES } change;

static shape change_shape(shape s, change what) {
    if (what == HIDDEN) s.hidden = s.hidden / 4 * 3;
    if (what == LAYERS) s.layers++;
    if (what == BOTH_DIRECTIONS) s.bidirectional = true;
    if (what == GRU) s.cell = "gru";
    if (what == SMALLER) s.steps = (s.steps + 1) / 2;
    if (what == SMALLER) s.batch = (s.batch + 1) / 2;
    return s;
}

/* How many of the networks' searches have begun, or ended. */
static size_t count_begun(network *const *all, size_t count) {
    size_t begun = 0;
    for (size_t i = 0; i < count; i++) begun += atomic_load(&all[i]->search_began) != 0;
    return begun;
}

static size_t count_ended(network *const *all, size_t count) {
    size_t ended = 0;
    for (size_t i = 0; i < count; i++) ended += atomic_load(&all[i]->search_ended) != 0;
    return ended;
}

static const char *say(bool is_so) { return is_so ? "yes" : "no"; }

/* One search of a context runs at a time: of those before this shape one runs, and the others and this one's wait, unless they ended. */
static void report(job *j, const row *r, const shape *s, network *const *earlier, size_t count, network *n) {
    const size_t begun = count_begun(earlier, count), ended = count_ended(earlier, count);
    rcv_status status = network_open_and_step(j, s, n);
    if (!status) {
        double end = now(), began = atomic_load(&n->search_began);
        status = network_watch_search(n);
        detail_first_call(j, n);
        detail_text(j, "plan", n->first_plan);
        detail_text(j, "from_wisdom", say(n->from_wisdom));
        detail_number(j, "earlier_searches_ended", (double)ended);
        detail_number(j, "earlier_searches_running", (double)(begun - ended));
        detail_text(j, "own_search_began_before_the_step_ended", say(began != 0 && began < end));
        detail_number(j, "version", (double)rcv_run_version(n->run));
    }
    if (status)
        row_failed(j, r, status);
    else if (n->from_wisdom)
        row_missed(j, r, "the plan came from wisdom: the caches were not empty");
    else
        row_end(j, r, 1e3 * first_call_seconds(n));
}

void measure_next_shapes(job *j, const char *type) {
    static const char *const names[CHANGES] = {"hidden", "layers", "both", "gru", "smaller"};
    /* Their searches run on, as a program's would; the process ends without closing them. */
    static network opened[1 + CHANGES];
    network *earlier[1 + CHANGES];
    size_t count = 0;
    const kind *k = find_kind(type);
    if (bring_up(j, "next", k)) return;
    shape first = first_shape(j, k);
    rcv_status status = network_open_and_step(j, &first, &opened[count]);
    if (!status) status = network_watch_search(&opened[count]);
    if (status) {
        row r = name_row("next", k, "hidden", "first step of the next shape", "ms", 0);
        row_failed(j, &r, status);
        return;
    }
    earlier[count] = &opened[count];
    count++;
    for (change c = 0; c < CHANGES; c++) {
        if (c == GRU && !k->cell) continue;
        char what[TEXT];
        shape s = change_shape(first, c);
        snprintf(what, sizeof what,
                 "first step of the next shape, no caches, earlier searches under way: %s T %lld B %lld H %lld, %lld "
                 "layers%s",
                 s.cell ? s.cell : "own", (long long)s.steps, (long long)s.batch, (long long)s.hidden,
                 (long long)s.layers, s.bidirectional ? ", bidirectional" : "");
        row r = name_row("next", k, names[c], what, "ms", is_gpu(j) ? 200 : 0);
        if (!time_is_left(j)) {
            row_left_out(j, &r, "no time was left");
            continue;
        }
        report(j, &r, &s, earlier, count, &opened[count]);
        if (opened[count].plan) {
            earlier[count] = &opened[count];
            count++;
        }
    }
}
