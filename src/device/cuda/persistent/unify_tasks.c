/* Similar tasks, such as the layers of a network, get the same arguments in the same order, so that their generated texts are equal and the
 * kernel has one instantiation for all of them. A task that does not have what a similar one has gets an argument with address 0. */
#include "device/cuda/persistent/internal.h"

bool rcvi_persistent_are_similar(const rcvi_persistent *p, const rcvi_task *a, const rcvi_task *b) {
    if (a->step_count != b->step_count || a->columns != b->columns) return false;
    for (int k = 0; k < a->step_count; k++) {
        const rcvi_kernel_step *x = &p->steps[a->steps[k]], *y = &p->steps[b->steps[k]];
        if (x->view_count != y->view_count || x->rounded_count != y->rounded_count || x->pass_count != y->pass_count ||
            x->by_rows != y->by_rows || x->second_product != y->second_product)
            return false;
        for (int q = 0; q < x->pass_count; q++) {
            if (x->passes[q].depth != y->passes[q].depth || x->passes[q].a != y->passes[q].a) return false;
        }
    }
    return true;
}

static const rcvi_port no_channel = {.channel = RCVI_NONE};

/* The step's port of a value, or one without a channel. */
static rcvi_port wait_of(const rcvi_kernel_step *s, int v) {
    for (int n = 0, remote = 0; n <= v; n++) {
        if (s->is_remote[n] && n == v) return s->ports[s->waits[remote]];
        remote += s->is_remote[n];
    }
    return no_channel;
}

static int find_write(const rcvi_persistent *p, const rcvi_kernel_step *s, int view, bool operand) {
    for (int i = 0; i < s->write_count; i++) {
        int channel = s->ports[s->writes[i]].channel;
        bool same = channel == RCVI_NONE || p->channels[channel].operand == operand;
        if (s->write_views[i] == view && same) return i;
    }
    return RCVI_NONE;
}

/* Finds which views of step k are remote or exported in any similar task, or written in the caller's order. A task without such an order
 * has an argument for it, too, with address 0. */
static void join_flags(const rcvi_persistent *p, const rcvi_task *task, int k, rcvi_kernel_step *to) {
    for (int s = 0; s < p->task_count; s++) {
        if (!rcvi_persistent_are_similar(p, task, &p->tasks[s])) continue;
        const rcvi_kernel_step *similar = &p->steps[p->tasks[s].steps[k]], *own = &p->steps[task->steps[k]];
        for (int v = 0; v < own->view_count; v++) {
            to->is_remote[v] |= similar->is_remote[v];
            to->is_exported[v] |= similar->is_exported[v];
        }
        for (int v = 0; v < own->shape.map->operand_count; v++)
            to->is_in_caller_order[v] |=
                own->has_row_order ? own->is_in_caller_order[v] : similar->is_in_caller_order[v];
        to->has_row_arguments |= similar->has_row_arguments;
    }
}

/* Gives `to` the ports that step k has in any similar task, in one order; those that it does not have itself have no channel. */
static rcv_status order_ports(const rcvi_persistent *p, const rcvi_task *task, int k, rcvi_kernel_step *to) {
    const rcvi_kernel_step *own = &p->steps[task->steps[k]];
    const bool *is_remote = to->is_remote;
    to->port_count = to->write_count = to->wait_count = 0;
    for (int q = 0; q < own->pass_count; q++) {
        bool read = false;
        for (int s = 0; s < p->task_count; s++)
            read |= rcvi_persistent_are_similar(p, task, &p->tasks[s]) &&
                    p->steps[p->tasks[s].steps[k]].operand_ports[q] != RCVI_NONE;
        to->operand_ports[q] = RCVI_NONE;
        if (read)
            RCVI_TRY(rcvi_persistent_add_port(
                to, own->operand_ports[q] == RCVI_NONE ? no_channel : own->ports[own->operand_ports[q]],
                &to->operand_ports[q]));
    }
    for (int v = 0; v < own->view_count; v++) {
        if (is_remote[v]) RCVI_TRY(rcvi_persistent_add_port(to, wait_of(own, v), &to->waits[to->wait_count++]));
    }
    for (int v = 0; v < own->view_count; v++) {
        for (int operand = 0; operand < 2; operand++) {
            bool written = false;
            for (int s = 0; s < p->task_count; s++)
                written |= rcvi_persistent_are_similar(p, task, &p->tasks[s]) &&
                           find_write(p, &p->steps[p->tasks[s].steps[k]], v, operand) != RCVI_NONE;
            if (!written) continue;
            int mine = find_write(p, own, v, operand);
            RCVI_TRY(rcvi_persistent_add_port(to, mine == RCVI_NONE ? no_channel : own->ports[own->writes[mine]],
                                              &to->writes[to->write_count]));
            to->write_operand[to->write_count] = operand;
            to->write_views[to->write_count++] = v;
        }
    }
    return RCV_OK;
}

rcv_status rcvi_persistent_unify_tasks(rcvi_engine *e, rcvi_persistent *p) {
    rcvi_kernel_step *matched = rcvi_pool_new(&e->pool, (size_t)p->step_count, sizeof *matched);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (int s = 0; s < p->task_count; s++) {
        for (int k = 0; k < p->tasks[s].step_count; k++) {
            rcvi_kernel_step *to = &matched[p->tasks[s].steps[k]];
            size_t views = (size_t)p->steps[p->tasks[s].steps[k]].view_count;
            bool *flags = rcvi_pool_new(&e->pool, 3 * views, sizeof *flags);
            if (e->pool.failed) return RCV_NO_MEMORY;
            *to = p->steps[p->tasks[s].steps[k]];
            to->is_remote = flags;
            to->is_exported = flags + views;
            to->is_in_caller_order = flags + 2 * views;
            join_flags(p, &p->tasks[s], k, to);
            RCVI_TRY(order_ports(p, &p->tasks[s], k, to));
        }
    }
    p->steps = matched;
    return RCV_OK;
}
