/* Ranks arranged in replicas and stages. */
#include "train/parallel/topology.h"

#include "train/config/settings.h"

#include <stdlib.h>
#include <string.h>

/* Reads NAME or NAME:N at *text and moves *text past it; *count is 0 where N is left out. */
static bool read_word(const char **text, const char *name, int *count) {
    size_t length = strlen(name);
    if (strncmp(*text, name, length) != 0) return false;
    const char *at = *text + length;
    *count = 0;
    if (*at == ':') {
        char *end;
        long value = strtol(at + 1, &end, 10);
        if (end == at + 1 || value < 1 || value > 1 << 20) return false;
        *count = (int)value;
        at = end;
    }
    if (*at && *at != ',') return false;
    *text = *at ? at + 1 : at;
    return true;
}

rcv_status rcvi_topology_parse(const char *text, int ranks, int *replicas, int *stages) {
    const char *at = text;
    int data = 1, pipeline = 1;
    bool known = *at != 0, has_data = false, has_pipeline = false;
    while (known && *at) {
        if (!has_data && read_word(&at, "data", &data))
            has_data = true;
        else if (!has_pipeline && read_word(&at, "pipeline", &pipeline))
            has_pipeline = true;
        else
            known = false;
    }
    if (!known || text[strlen(text) - 1] == ',' || (has_data && has_pipeline && !data && !pipeline))
        return rcvi_fail(RCV_INVALID, "parallel '%s' is none of: data, data:D, pipeline, pipeline:S, data:D,pipeline:S",
                         text);
    if (!data && pipeline) data = ranks / pipeline;
    if (!pipeline && data) pipeline = ranks / data;
    if (data < 1 || pipeline < 1 || (int64_t)data * pipeline != ranks)
        return rcvi_fail(RCV_INVALID, "--parallel %s needs %lld ranks, but %d were started", text,
                         (long long)(data ? data : 1) * pipeline, ranks);
    *replicas = data;
    *stages = pipeline;
    return RCV_OK;
}

rcv_status rcvi_topology_open(rcvi_comm *world, const rcv_settings *s, rcvi_topology *topology) {
    const char *text = rcvi_settings_text(s, "parallel");
    int rank = rcvi_comm_rank(world);
    *topology = (rcvi_topology){.world = world,
                                .replica_count = 1,
                                .stage_count = 1,
                                .bfloat16_gradients = rcvi_settings_is(s, "wire", "bfloat16"),
                                .shares_optimiser = rcvi_settings_flag(s, "share-optimiser")};
    rcv_status status = rcvi_topology_parse(text ? text : "data", rcvi_comm_size(world), &topology->replica_count,
                                            &topology->stage_count);
    RCVI_TRY(rcvi_comm_agree(world, status));
    topology->replica = rank / topology->stage_count;
    topology->stage = rank % topology->stage_count;
    if (topology->replica_count == 1) topology->shares_optimiser = false;
    topology->reduces_gradients = topology->replica_count > 1 || rcvi_settings_is(s, "transport", "nccl");
    RCVI_TRY(rcvi_comm_split(world, topology->stage, topology->replica, &topology->replicas));
    return rcvi_comm_split(world, topology->replica, topology->stage, &topology->stages);
}

void rcvi_topology_close(rcvi_topology *topology) {
    rcvi_comm_free(topology->stages);
    rcvi_comm_free(topology->replicas);
    *topology = (rcvi_topology){0};
}

int64_t rcvi_topology_threads(const rcvi_topology *topology, rcv_context *context, const rcv_settings *s) {
    int64_t asked = rcvi_settings_integer(s, "threads");
    if (asked || !topology || rcvi_comm_local_size(topology->world) == 1) return asked;
    return rcvi_comm_cores(topology->world, rcv_context_threads(context));
}
