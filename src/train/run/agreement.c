/* Do all ranks train the same run? Each compares its description with that of rank 0. */
#include "train/run/agreement.h"

#include "train/run/files/identity.h"
#include "train/run/trainer.h"

#include <string.h>

/* Settings that may differ from rank to rank: paths, and what changes a rank's speed alone. */
static bool may_differ(const rcv_setting *setting) {
    static const char *const names[] = {"data",   "valid",   "test",   "cache", "vocabulary", "log",
                                        "device", "threads", "wisdom", "chunk", "timeout"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(setting->name, names[i])) return true;
    }
    return false;
}

/* NAME=VALUE, one per line. */
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
    if (!status) rcvi_text_add(&out, "set of kernels=%s\n", machine.kernels); /* rounding depends on it */
    rcvi_text_add(&out, "training data=%016llx\n", (unsigned long long)t->state.data_hash);
    uint64_t identity = 0;
    if (!status && t->valid) status = rcvi_data_identity(t->valid, &identity);
    rcvi_text_add(&out, "validation data=%016llx\n", (unsigned long long)identity);
    if (!status) return rcvi_text_take(&out, text);
    rcvi_text_drop(&out);
    return status;
}

/* Fails with the first line in which the two texts differ. */
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

rcv_status rcvi_check_agreement(const rcv_trainer *t) {
    rcvi_comm *world = t->topology.world;
    char *own = NULL;
    if (!world) return RCV_OK;
    RCVI_TRY(rcvi_comm_agree(world, describe(t, &own)));
    if (!own) return RCV_NO_MEMORY;
    int64_t bytes = (int64_t)strlen(own) + 1;
    rcv_status status = rcvi_comm_transfer_bytes(world, RCVI_BROADCAST, 0, &bytes, sizeof bytes);
    char *leader = status ? NULL : rcvi_new(t->context, (size_t)bytes, 1);
    if (!status) status = rcvi_comm_agree(world, leader ? RCV_OK : RCV_NO_MEMORY);
    if (!status && leader) {
        if (rcvi_topology_is_leader(&t->topology)) memcpy(leader, own, (size_t)bytes);
        status = rcvi_comm_transfer_bytes(world, RCVI_BROADCAST, 0, leader, (size_t)bytes);
        if (!status) status = rcvi_comm_agree(world, compare(rcvi_comm_rank(world), own, leader));
    }
    rcvi_free(t->context, leader);
    rcvi_free(t->context, own);
    return status;
}
