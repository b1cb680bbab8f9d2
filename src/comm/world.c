/* rcv_world of the public header. */
#include "comm/comm.h"

struct rcv_world {
    rcv_context *context;
    rcvi_comm *comm;
};

rcvi_comm *rcvi_world_comm(const rcv_world *world) { return world->comm; }

rcv_status rcv_world_open(rcv_context *context, const rcv_world_options *options, rcv_world **out) {
    if (out) *out = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(out, "world");
    RCVI_READ(rcv_world_options, options, "options");
    rcv_world *world = rcvi_new(context, 1, sizeof *world);
    if (!world) return RCV_NO_MEMORY;
    world->context = context;
    const rcvi_comm_options o = {.transport = options->transport, .timeout = options->timeout};
    rcv_status status = rcvi_comm_open(context, &o, &world->comm);
    if (status) {
        rcvi_free(context, world);
        return status;
    }
    *out = world;
    return RCV_OK;
}

void rcv_world_close(rcv_world *world) {
    if (!world) return;
    rcvi_comm_close(world->comm);
    rcvi_free(world->context, world);
}

int rcv_world_started(int *rank) {
    int ignored;
    return rcvi_comm_launched_size(rank ? rank : &ignored);
}

int rcv_world_rank(const rcv_world *world) { return rcvi_comm_rank(world->comm); }
int rcv_world_size(const rcv_world *world) { return rcvi_comm_size(world->comm); }
int rcv_world_local_size(const rcv_world *world) { return rcvi_comm_local_size(world->comm); }
const char *rcv_world_name(const rcv_world *world) { return rcvi_comm_name(world->comm); }
int64_t rcv_world_sent(const rcv_world *world) { return rcvi_comm_get_statistics(world->comm).bytes; }
rcv_status rcv_world_agree(rcv_world *world, rcv_status status) {
    RCVI_NEED(world, "world");
    return rcvi_comm_agree(world->comm, status);
}
void rcv_world_fail(rcv_world *world, const char *sentence) { rcvi_comm_fail(world->comm, sentence); }
bool rcv_world_reports_failure(const rcv_world *world) { return rcvi_comm_reports_failure(world->comm); }
void rcv_world_report_progress(rcv_world *world) { rcvi_comm_report_progress(world->comm); }
