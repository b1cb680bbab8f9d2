/* Damaged loops of persistent kernels: the checkers of persistent_checks.h see every kind of damage. */
#include "persistent_checks.h"

/* Every way of damaging a loop is seen by the checker that `damage` answers. */
static void check_seen(subject *s, size_t loop, int ways, int (*damage)(rcvi_persistent *p, int way)) {
    for (int way = 0; way < ways; way++) {
        rcvi_persistent *p;
        check_ok(rcvi_persistent_new(&s->engine, loop, &p));
        int checker = damage(p, way);
        if (!count_faults(&s->engine, p, checker)) fail_msg("checker %d does not see damaged loop %d", checker, way);
        rcvi_persistent_free(s->context, p);
    }
}

/* Damages a loop in one of WAYS and answers which checker must see it. The loop goes backward through the layers of a wavefront; the operand
 * of its first step comes from before the loop at the first iteration, and a value from another layer. */
enum { WAYS = 18 };
static int damage(rcvi_persistent *p, int way) {
    rcvi_kernel_step *s = &p->steps[0];
    rcvi_task *task = &p->tasks[s->task];
    rcvi_port *read = &s->ports[s->operand_ports[0]], *value = &s->ports[s->waits[0]], *write = &s->ports[s->writes[0]];
    assert_true(read->low > s->low && read->low < read->high && value->low < value->high);
    switch (way) {
    case 0: read->slot++; return LINKS;
    case 1: write->slot++; return LINKS;
    case 2: read->low++; return LINKS; /* it does not wait the first time */
    case 3: read->low--; return LINKS; /* it waits for what is never written */
    case 4: read->low--; return PROGRESS;
    case 5: value->high = value->low; return LINKS;
    case 6: s->is_signaled[s->writes[0]] = false; return LINKS;
    case 7: s->is_signaled[s->writes[0]] = false; return PROGRESS;
    case 8: p->channels[read->channel].first++; return LINKS;
    case 9: p->channels[read->channel].top--; return LINKS; /* nothing is copied before the loop */
    case 10: s->low++; return LINKS;
    case 11: task->step_count--; return ROOM;
    case 12: task->groups[1][0].count--; return ROOM;
    case 13: task->ring[0]++; return ROOM;
    case 14: task->blocks--; return ROOM;
    case 15: p->channels[read->channel].chunks--; return ROOM; /* of a part */
    case 16: p->channels[read->channel].offset += 128; return ROOM;
    default: /* a number's parts in two groups */
        assert_true(task->group_count[0] > 1);
        task->groups[0][0].count--;
        task->groups[0][1].count++;
        task->groups[0][1].first--;
        return ROOM;
    }
}

static void test_damaged(void **state) {
    (void)state;
    const config c = {"lstm", {.input = 40, .hidden = 200, .layers = 3}, 7, 20, false, false, true};
    subject s;
    size_t backward = 0;
    open_subject(&s, &c, RCV_FLOAT32, true, by_wave);
    for (size_t loop = 0; next_loop(&s, &loop); loop++) backward = loop;
    check_seen(&s, backward, WAYS, damage);
    close_subject(&s);
}

/* The same for a loop with sequences that end and are reset: GRUs backward, where a map without products waits for the layer above. */
enum { RAGGED_WAYS = 6 };
static int damage_ragged(const rcvi_engine *e, rcvi_persistent *p, int way) {
    rcvi_kernel_step *s = &p->steps[0], *product_step = &p->steps[1], *above = &p->steps[3];
    rcvi_port *value = &s->ports[s->waits[0]];
    assert_true(!s->pass_count && s->skips_ended && product_step->pass_count && product_step->skips_ended &&
                value->low < value->high);
    switch (way) {
    case 0: e->is_short[product_step->members[0]] = false; return PROGRESS; /* it skips tiles, but needs its products */
    case 1:                                                                 /* or a value of the layer above */
        e->is_short[s->members[s->member_count - 1]] = e->is_short[above->members[0]] = above->skips_ended = false;
        return PROGRESS;
    case 2: value->high = value->low; return LINKS;
    case 3: value->high = value->low; return PROGRESS;
    case 4: s->is_signaled[s->writes[0]] = false; return PROGRESS;
    default: s->member_count--; return LINKS;
    }
}

static void test_damaged_ragged(void **state) {
    (void)state;
    const config c = {"gru", {.input = 40, .hidden = 40, .layers = 3}, 7, 20, true, true, true};
    for (int way = 0; way < RAGGED_WAYS; way++) {
        subject s;
        size_t backward = 0;
        rcvi_persistent *p;
        open_subject(&s, &c, RCV_BFLOAT16, true, by_wave);
        for (size_t loop = 0; next_loop(&s, &loop); loop++) backward = loop;
        check_ok(rcvi_persistent_new(&s.engine, backward, &p));
        assert_int_equal(count_faults(&s.engine, p, PROGRESS), 0);
        int checker = damage_ragged(&s.engine, p, way);
        if (!count_faults(&s.engine, p, checker)) fail_msg("checker %d does not see damaged loop %d", checker, way);
        rcvi_persistent_free(s.context, p);
        close_subject(&s);
    }
}

/* The same for a loop that sums over features: paired products, and a step by rows after them, which reads its values with flags. */
enum { ROW_WAYS = 11 };
static int damage_rows(rcvi_persistent *p, int way) {
    rcvi_kernel_step *s = &p->steps[0], *rows = &p->steps[1];
    rcvi_port *value = &rows->ports[rows->waits[0]], *write = &s->ports[s->writes[0]];
    assert_true(s->second_product && s->member_count == 2 && rows->by_rows && p->channels[value->channel].flagged);
    switch (way) {
    case 0: value->high = value->low; return LINKS;
    case 1: value->slot++; return LINKS;
    case 2: write->slot++; return LINKS;
    case 3: rows->is_flagged[0] = false; return LINKS;                 /* no step increments a counter */
    case 4: p->channels[value->channel].flagged = false; return LINKS; /* the same */
    case 5:
        for (int n = 0; n < rows->wait_count; n++) p->channels[rows->ports[rows->waits[n]].channel].flagged = false;
        return PROGRESS;
    case 6: rows->is_flagged_only[rows->write_views[0]] = true; return LINKS;
    case 7: s->write_flagged[0] = false; return LINKS;
    case 8: s->second_product--; return ROOM;
    case 9: s->member_count = 1; return ROOM;
    default: rows->by_rows = false; return ROOM;
    }
}

static void test_damaged_rows(void **state) {
    (void)state;
    const config normal = {"lstm_layernorm", {.input = 40, .hidden = 40, .layers = 3}, 7, 20, false, false, true};
    subject s;
    size_t loop = 0;
    open_subject(&s, &normal, RCV_BFLOAT16, false, by_wave);
    assert_true(next_loop(&s, &loop));
    check_seen(&s, loop, ROW_WAYS, damage_rows);
    close_subject(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damaged), cmocka_unit_test(test_damaged_ragged),
                                       cmocka_unit_test(test_damaged_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
