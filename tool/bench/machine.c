/* The description of the machine, and the core type of OpenBLAS. */
#include "bench/bench.h"
#include "bench/experiments.h"
#include "bench/openblas/openblas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

extern const char recurve_commit[]; /* generated; empty: not known */

/* The value of the first "name : value" line of /proc/cpuinfo, or an empty text. */
static void cpu_field(const char *name, char *value, size_t room) {
    value[0] = '\0';
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[4096];
    while (file != NULL && value[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (colon != NULL && strncmp(line, name, strlen(name)) == 0 && strchr("\t :", line[strlen(name)]) != NULL) {
            snprintf(value, room, "%.*s", (int)strcspn(colon + 1, "\n"), colon + 1 + (colon[1] == ' '));
            value[strcspn(value, "\n")] = '\0';
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

static char *cpu_name(void) {
    static const struct {
        const char *part, *name;
    } arm[] = {{"0xd08", "Cortex-A72"},  {"0xd0b", "Cortex-A76"},  {"0xd0c", "Neoverse N1"}, {"0xd40", "Neoverse V1"},
               {"0xd49", "Neoverse N2"}, {"0xd4f", "Neoverse V2"}, {"0xd84", "Neoverse V3"}, {"0xd8e", "Neoverse N3"}};
    char model[256], implementer[64], part[64];
    cpu_field("model name", model, sizeof model);
    if (model[0] != '\0') {
        return text_of("%s", model);
    }
    cpu_field("CPU implementer", implementer, sizeof implementer);
    cpu_field("CPU part", part, sizeof part);
    for (size_t i = 0; i < COUNT(arm) && strcmp(implementer, "0x41") == 0; i++) {
        if (strcmp(part, arm[i].part) == 0) {
            return text_of("Arm %s", arm[i].name);
        }
    }
    return part[0] != '\0' ? text_of("implementer %s, part %s", implementer, part) : text_of("unknown CPU");
}

void machine_describe(machine *machine, const problem *problem) {
    struct utsname system;
    char date[64];
    const time_t seconds = time(NULL);
    struct tm parts;
    gmtime_r(&seconds, &parts);
    strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &parts);
    const bool known = uname(&system) == 0;
    machine->cpu = cpu_name();
    char *device = NULL;
    if (problem_is_gpu(problem) && rcv_device_describe(problem->context, problem->device, &device) == RCV_OK) {
        machine->device = text_of("%s", device);
        rcv_text_free(problem->context, device);
    }
    machine->system = text_of("%s %s %s", known ? system.sysname : "unknown", known ? system.release : "",
                              known ? system.machine : "");
    machine->kernels = text_of("%s", rcv_context_kernels(problem->context));
    machine->date = text_of("%s", date);
    machine->version = text_of("%s", rcv_version());
    machine->commit = text_of("%s", recurve_commit);
    machine->cores = sysconf(_SC_NPROCESSORS_ONLN);
    machine->threads = problem_threads(problem);
    if (machine->device == NULL && machine->threads > 1 &&
        rcv_measure_barrier(problem->context, machine->threads, &machine->barrier) != RCV_OK) {
        machine->barrier = 0;
    }
}

/* ---- an OpenBLAS that does not know the CPU ---- */

void bench_set_openblas_core(char **argv) {
    static const char *const slow[] = {"Prescott", "Core2",  "Penryn",  "Dunnington", "Nehalem",
                                       "Atom",     "Katmai", "Generic", "generic",    "GENERIC"};
    char flags[4096];
    cpu_field("flags", flags, sizeof flags);
    const char *better = strstr(flags, " avx512f") != NULL ? "SKYLAKEX"
                         : strstr(flags, " avx2") != NULL  ? "HASWELL"
                                                           : NULL;
    bool is_slow = false;
    for (size_t i = 0; i < COUNT(slow); i++) {
        is_slow = is_slow || (openblas() != NULL && strcmp(openblas()->core, slow[i]) == 0);
    }
    if (!is_slow || better == NULL || getenv("OPENBLAS_CORETYPE") != NULL ||
        setenv("OPENBLAS_CORETYPE", better, 1) != 0) {
        return;
    }
    size_t count = 0;
    while (argv[count] != NULL) {
        count++;
    }
    char **again = need(count + 2, sizeof *again);
    again[0] = (char[]){"recurve"};
    memcpy(again + 1, argv, count * sizeof *again);
    execv("/proc/self/exe", again);
    free(again); /* exec failed: measure with this core type */
}
