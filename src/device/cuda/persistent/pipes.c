/* Depth is shared out between the two pipes of a block: which chunks of which pass a pipe multiplies, and in which groups they are copied.
 *
 * A pass is one left operand of products with its weights; its depth is cut into chunks of 128 bytes. "Own" operands are those that the
 * task itself writes (h of the step before); others come from other tasks or from memory (x) and arrive earlier. */
#include "device/cuda/persistent/internal.h"
#include "device/cuda/persistent/tuning.h"

bool rcvi_persistent_is_own_operand(const rcvi_persistent *p, int task, int pass) {
    const rcvi_kernel_step *s = &p->steps[p->tasks[task].product_step];
    int channel = s->operand_ports[pass] == RCVI_NONE ? RCVI_NONE : s->ports[s->operand_ports[pass]].channel;
    return channel != RCVI_NONE && p->channels[channel].task == task;
}

bool rcvi_persistent_has_only_own_operands(const rcvi_persistent *p) {
    for (int s = 0; s < p->task_count; s++) {
        for (int q = 0; q < p->steps[p->tasks[s].product_step].pass_count; q++) {
            if (!rcvi_persistent_is_own_operand(p, s, q)) return false;
        }
    }
    return true;
}

/* Paired products: a pass belongs to the pipe of its products. */
static void assign_paired_passes(const rcvi_persistent *p, rcvi_task *task, const rcvi_kernel_step *product_step) {
    for (int q = 0; q < product_step->pass_count; q++) {
        int chunks = rcvi_persistent_chunks(p, product_step->passes[q].depth), pipe = 1;
        for (int i = 0; i < product_step->second_product; i++) {
            if (product_step->passes[q].b[i] != RCVI_NONE) pipe = 0;
        }
        task->pipe_split[q] = pipe ? 0 : chunks;
        task->chunks[pipe] += chunks;
    }
}

/* Where a task has own and other operands, each pipe gets half of every pass: both multiply the other operands while the own one is on its
 * way. With tiles of 8 rows and many blocks that would poll a counter, pipe 0 gets the other operands and pipe 1 the own ones, unless one
 * of them is far larger. Where there is only one kind, each pipe gets half of all chunks. */
static void assign_passes(rcvi_persistent *p, int index, int in_registers) {
    rcvi_task *task = &p->tasks[index];
    const rcvi_kernel_step *product_step = &p->steps[task->product_step];
    int total[2] = {0, 0}; /* chunks of other operands, of own ones */
    for (int q = 0; q < product_step->pass_count; q++)
        total[rcvi_persistent_is_own_operand(p, index, q)] += rcvi_persistent_chunks(p, product_step->passes[q].depth);
    int all = total[0] + total[1], most = total[0] > total[1] ? total[0] : total[1];
    bool both = total[0] && total[1],
         halves = both && (p->tile > RCVI_WARP_MMA_ROWS || task->blocks <= RCVI_TUNED_POLLING_BLOCKS),
         separate = both && (most <= in_registers || all - most + 2 >= most);
    /* what pipe 0 still takes; all parts of a number stay together */
    int left = separate ? total[0] : (int)rcvi_round_up((all + 1) / 2, p->parts);
    for (int own = 0; own < 2; own++) {
        for (int q = 0; q < product_step->pass_count; q++) {
            if (rcvi_persistent_is_own_operand(p, index, q) != own) continue;
            int chunks = rcvi_persistent_chunks(p, product_step->passes[q].depth),
                half = (int)rcvi_round_up((chunks + 1) / 2, p->parts);
            task->pipe_split[q] = halves ? half : chunks < left ? chunks : left;
            task->chunks[0] += task->pipe_split[q];
            task->chunks[1] += chunks - task->pipe_split[q];
            left -= task->pipe_split[q];
        }
    }
}

void rcvi_persistent_assign_chunks(rcvi_persistent *p, int index, int in_registers) {
    rcvi_task *task = &p->tasks[index];
    task->chunks[0] = task->chunks[1] = 0;
    if (p->steps[task->product_step].second_product)
        assign_paired_passes(p, task, &p->steps[task->product_step]);
    else
        assign_passes(p, index, in_registers);
    for (int pipe = 0; pipe < RCVI_PIPES; pipe++)
        task->in_registers[pipe] = task->chunks[pipe] < in_registers ? task->chunks[pipe] : in_registers;
}

bool rcvi_persistent_group_chunks(rcvi_persistent *p, int index, int pipe, int size) {
    rcvi_task *task = &p->tasks[index];
    const rcvi_kernel_step *product_step = &p->steps[task->product_step];
    task->group_count[pipe] = 0;
    for (int own = 0; own < 2; own++) {
        for (int q = 0; q < product_step->pass_count; q++) {
            int first = pipe ? task->pipe_split[q] : 0,
                end = pipe ? rcvi_persistent_chunks(p, product_step->passes[q].depth) : task->pipe_split[q];
            if (rcvi_persistent_is_own_operand(p, index, q) != own) continue;
            for (int c = first; c < end; c += size) {
                if (task->group_count[pipe] == RCVI_MAX_GROUPS) return false;
                task->groups[pipe][task->group_count[pipe]++] =
                    (rcvi_chunk_group){q, c, end - c < size ? end - c : size};
            }
        }
    }
    return true;
}
