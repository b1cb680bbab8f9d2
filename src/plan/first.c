/* First plans: on a CPU a few plan strings that apply to nearly every cell, compared by the cost model; on a GPU the plan that schedules have
 * where nothing is compiled. */
#include "plan/first.h"
#include "plan/cost.h"
#include "plan/search.h"

/* Plans by the CPU's packed kernels, with one thread, with all of them by features, and by sequences. `combine(steps=8)` reads weights of inputs
 * once for eight steps and needs little memory. */
static const char *const on_cpu[] = {"combine(steps=8)+fuse+pack", "combine(steps=8)+fuse+pack+threads(2)",
                                     "combine(steps=8)+fuse+pack+threads(2,split=rows)", "kernels", "naive"};
enum { ON_CPU = sizeof on_cpu / sizeof *on_cpu, COMPARED = 3 };

static rcv_status write_plan(const rcvi_problem *problem, const rcvi_rungs *rungs, rcv_plan **plan) {
    RCVI_TRY(rcvi_plan_write(problem, rungs, plan));
    return rcvi_check_memory(*plan, problem->options->memory);
}

static rcv_status write_on_cpu(const rcvi_problem *problem, const char *string, rcv_plan **plan) {
    rcvi_rungs rungs;
    RCVI_TRY(rcvi_rungs_read(string, &rungs));
    if (rungs.threads > 1) rungs.threads = problem->machine.threads;
    return write_plan(problem, &rungs, plan);
}

/* What the device refuses leaves *plan NULL. */
static rcv_status find_on_gpu(const rcvi_problem *problem, rcv_plan **plan) {
    rcvi_rungs rungs;
    if (!rcvi_schedule_first_rungs(problem->net, problem->options, &problem->machine, &rungs)) return RCV_OK;
    rcv_status status = write_plan(problem, &rungs, plan);
    if (!status) status = rcvi_plan_load(*plan);
    if (!status) return RCV_OK;
    rcvi_log(problem->net->context, "there is no plan without compiled kernels: %s", rcv_message());
    rcv_plan_free(*plan);
    *plan = NULL;
    return status == RCV_NO_MEMORY ? status : RCV_OK;
}

rcv_status rcvi_plan_first(const rcvi_problem *problem, rcv_plan **plan) {
    double best = 0;
    *plan = NULL;
    if (problem->machine.gpu) return find_on_gpu(problem, plan);
    for (int i = 0; i < ON_CPU && !(i >= COMPARED && *plan); i++) {
        rcv_plan *other = NULL;
        if (problem->machine.threads == 1 && i > 0 && i < COMPARED) continue;
        rcv_status status = write_on_cpu(problem, on_cpu[i], &other);
        double estimate = status ? 0 : rcvi_estimate(&other->program);
        bool better = !status && (!*plan || estimate < best);
        if (better) best = estimate;
        rcv_plan_free(better ? *plan : other);
        if (better) *plan = other;
        if (status == RCV_NO_MEMORY) {
            rcv_plan_free(*plan);
            *plan = NULL;
            return status;
        }
    }
    return *plan ? rcvi_plan_load(*plan) : RCV_OK;
}
