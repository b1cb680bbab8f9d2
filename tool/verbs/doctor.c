/* recurve doctor: looks at the machine, the libraries, the Python packages and the cache. */
#include "verbs/doctor.h"

#include "child_process.h"
#include "recurve_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const char recurve_commit[]; /* generated; empty: not known */

/* The command that installs what is missing, or mends what is broken. A part in the build needs a new build as well. */
static const struct {
    const char *what, *command;
    bool is_of_gpu; /* missed only where there is a GPU */
} commands[] = {
    {"OpenBLAS", "sudo apt install libopenblas0", false},
    {"oneDNN", "sudo apt install libdnnl-dev g++, then build again", false},
    {"MPI", "sudo apt install libopenmpi-dev openmpi-bin, then build again", false},
    {"CUDA", "install the CUDA toolkit 12.8 or later (developer.nvidia.com/cuda-downloads), then build again", true},
    {"cuBLASLt", "install the CUDA toolkit 12.8 or later, or: pip install nvidia-cublas-cu12", true},
    {"NVRTC", "install the CUDA toolkit 12.8 or later, or: pip install nvidia-cuda-nvrtc-cu12", true},
    {"cuDNN", "sudo apt install cudnn9-cuda-12 (NVIDIA's repository), or: pip install nvidia-cudnn-cu12", true},
    {"NCCL", "sudo apt install libnccl2 libnccl-dev (NVIDIA's repository), then build again", true},
    {"python3", "sudo apt install python3", false},
    {"torch", "pip install torch", false},
    {"numpy", "pip install numpy", false},
    {"safetensors", "pip install safetensors", false},
    {"pyarrow", "pip install pyarrow", false},
};

static bool is_of_gpu(const char *what) {
    for (size_t i = 0; i < COUNT(commands); i++) {
        if (strcmp(commands[i].what, what) == 0) {
            return commands[i].is_of_gpu;
        }
    }
    return false;
}

static void add(json_t *list, const char *what, const char *reason, const char *command) {
    for (size_t i = 0; command == NULL && i < COUNT(commands); i++) {
        command = strcmp(commands[i].what, what) == 0 ? commands[i].command : NULL;
    }
    json_array_append_new(list,
                          json_pack("{s:s, s:o, s:o}", "what", what, "reason", text(reason), "command", text(command)));
}

/* ---- the machine ---- */

/* The value after "NAME :" in the first such line of a file of Linux, for free(); NULL where there is none. */
static char *value_in_file(const char *path, const char *name) {
    FILE *file = fopen(path, "r");
    char line[512], *value = NULL;
    while (file != NULL && value == NULL && fgets(line, sizeof line, file) != NULL) {
        char *colon = strchr(line, ':');
        if (colon != NULL && strncmp(line, name, strlen(name)) == 0) {
            colon += 1 + strspn(colon + 1, " \t");
            value = safe_text(colon, strcspn(colon, "\n"), NULL);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return value;
}

static json_t *examine_cpu(rcv_context *context) {
    char *model = value_in_file("/proc/cpuinfo", "model name");
    json_t *available = json_array();
    for (size_t i = 0; i < rcv_kernels_count(); i++) {
        json_array_append_new(available, json_string(rcv_kernels_name(i)));
    }
    json_t *cpu =
        json_pack("{s:o, s:I, s:I, s:o, s:o}", "model", text(model), "cores", (json_int_t)sysconf(_SC_NPROCESSORS_ONLN),
                  "threads", (json_int_t)rcv_context_threads(context), "kernels", text(rcv_context_kernels(context)),
                  "available", available);
    free(model);
    return cpu;
}

static json_t *examine_memory(void) {
    const double page = (double)sysconf(_SC_PAGE_SIZE), all = page * (double)sysconf(_SC_PHYS_PAGES);
    char *kilobytes = value_in_file("/proc/meminfo", "MemAvailable");
    const double available = kilobytes != NULL ? strtod(kilobytes, NULL) * 1024 : NAN;
    free(kilobytes);
    return json_pack("{s:o, s:o}", "bytes", positive(all), "available", positive(available));
}

/* Describes the GPUs; where there is none, why. */
static json_t *examine_gpus(rcv_context *context, json_t *found) {
    enum { MOST = 64 };
    json_t *gpus = json_array();
    for (int i = 0; i < MOST; i++) {
        char *name = text_of("cuda:%d", i), *description = NULL;
        const rcv_status status = rcv_device_describe(context, name, &description);
        if (status == RCV_OK) {
            json_array_append_new(gpus, json_pack("{s:s, s:s}", "name", name, "description", description));
            rcv_text_free(context, description);
        } else if (i == 0) {
            json_object_set_new(found, "gpu_absence", json_string(rcv_message()));
        }
        free(name);
        if (status != RCV_OK) {
            break;
        }
    }
    return gpus;
}

/* Has the machine an NVIDIA GPU, whether or not this build can use it? */
static bool has_driver(void) {
    return access("/proc/driver/nvidia/version", R_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0;
}

/* ---- libraries ---- */

static json_t *examine_library(size_t index, bool has_gpu, json_t *missing, json_t *broken) {
    rcv_library library = RCV_INIT(rcv_library);
    if (rcv_library_describe(index, &library) != RCV_OK) {
        return json_null();
    }
    const char *state = library.version != NULL ? "found" : library.absent ? "missing" : "broken";
    if (library.version == NULL && (!library.absent || has_gpu || !is_of_gpu(library.name))) {
        add(library.absent ? missing : broken, library.name, library.reason, NULL);
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:b}", "name", library.name, "use", library.use, "state", state,
                     "version", text(library.version), "reason", text(library.reason), "gpu", is_of_gpu(library.name));
}

/* ---- Python ---- */

static const char script[] = "import importlib.metadata as m, json, platform\n"
                             "def version(name):\n"
                             "    try: return m.version(name)\n"
                             "    except Exception: return None\n"
                             "print(json.dumps({'python3': platform.python_version(), **{n: version(n) for n in "
                             "('numpy', 'torch', 'safetensors', 'pyarrow')}}))\n";

/* Versions by name; null: the package is not installed. Without Python: null for all. */
static json_t *examine_python(json_t *missing) {
    const char *const arguments[] = {"python3", "-c", script, NULL};
    child child;
    char line[1024] = "";
    json_t *packages = NULL;
    if (child_start(&child, arguments)) {
        if (child_read(&child, line, sizeof line, 20)) {
            packages = json_loads(line, 0, NULL);
        }
        child_end(&child);
    }
    if (packages == NULL) {
        packages = json_pack("{s:n}", "python3");
    }
    const char *name;
    json_t *version;
    json_object_foreach(packages, name, version) {
        if (json_is_null(version)) {
            add(missing, name, strcmp(name, "python3") == 0 ? "python3 does not answer" : "python3 does not find it",
                NULL);
        }
    }
    return packages;
}

/* ---- the cache ---- */

static json_t *examine_cache(rcv_context *context, json_t *broken) {
    rcv_cache cache = RCV_INIT(rcv_cache);
    char *folder = NULL, *problem = NULL;
    if (rcv_cache_describe(context, &cache, &folder, &problem) != RCV_OK) {
        add(broken, "cache", rcv_message(), NULL);
        return json_null();
    }
    json_t *described =
        json_pack("{s:o, s:I, s:I, s:I, s:I, s:b, s:o}", "folder", text(folder), "files", (json_int_t)cache.files,
                  "bytes", (json_int_t)cache.bytes, "most_bytes", (json_int_t)cache.most_bytes, "untrusted",
                  (json_int_t)cache.untrusted, "writable", cache.writable, "problem", text(problem));
    if (problem != NULL) {
        char *command = cache.untrusted > 0 ? text_of("chmod -R go-w '%s', or remove the folder", folder)
                                            : text_of("export RECURVE_CACHE=FOLDER");
        add(broken, "cache", problem, command);
        free(command);
    }
    rcv_text_free(context, folder);
    rcv_text_free(context, problem);
    return described;
}

/* ---- all ---- */

json_t *doctor_examine(rcv_context *context, bool with_python) {
    json_t *found = json_pack("{s:s, s:o}", "version", rcv_version(), "commit",
                              text(recurve_commit[0] != '\0' ? recurve_commit : NULL));
    json_t *missing = json_array(), *broken = json_array(), *libraries = json_array();
    json_object_set_new(found, "cpu", examine_cpu(context));
    json_object_set_new(found, "memory", examine_memory());
    json_t *gpus = examine_gpus(context, found);
    const bool has_gpu = json_array_size(gpus) > 0 || has_driver();
    json_object_set_new(found, "gpus", gpus);
    if (has_gpu && json_array_size(gpus) == 0) {
        add(missing, "CUDA", json_string_value(json_object_get(found, "gpu_absence")), NULL);
    }
    for (size_t i = 0; i < rcv_library_count(); i++) {
        json_array_append_new(libraries, examine_library(i, json_array_size(gpus) > 0, missing, broken));
    }
    json_object_set_new(found, "libraries", libraries);
    json_object_set_new(found, "python", with_python ? examine_python(missing) : json_object());
    json_object_set_new(found, "cache", examine_cache(context, broken));
    if (rcv_context_kernels(context) == NULL) {
        add(broken, "kernels", rcv_message(), "unset RECURVE_KERNELS");
    }
    json_object_set_new(found, "missing", missing);
    json_object_set_new(found, "broken", broken);
    return found;
}

/* Names what is broken on standard error. */
static void say_broken(const json_t *broken) {
    char *names = text_of("%s", "");
    for (size_t i = 0; i < json_array_size(broken); i++) {
        const char *what = json_string_value(json_object_get(json_array_get(broken, i), "what"));
        char *longer = text_of("%s%s%s", names, i > 0 ? ", " : "", what != NULL ? what : "?");
        free(names);
        names = longer;
    }
    say("this is broken: %s; recurve doctor says how to mend it", names);
    free(names);
}

static int work(bool as_json, bool with_python) {
    rcv_context *context = NULL;
    const rcv_status status = rcv_context_new(NULL, &context);
    if (status != RCV_OK) {
        return fail(status);
    }
    json_t *found = doctor_examine(context, with_python);
    const json_t *broken = json_object_get(found, "broken");
    const bool is_broken = json_array_size(broken) > 0;
    if (as_json) {
        char *text = json_text(found, JSON_INDENT(2));
        printf("%s\n", text != NULL ? text : "null");
        free(text);
    } else {
        doctor_print(found);
    }
    if (is_broken) {
        fflush(stdout);
        say_broken(broken);
    }
    json_decref(found);
    rcv_context_free(context);
    return is_broken ? EXIT_FAILED : EXIT_DONE;
}

int verb_doctor(int argc, char **argv) {
    bool as_json = false, no_python = false;
    option options[] = {{"json", OPTION_FLAG, &as_json, .help = "print JSON"},
                        {"no-python", OPTION_FLAG, &no_python, .help = "leave out Python and its packages"}};
    const option_group groups[] = {{"Options", options, COUNT(options)}};
    const command command = {
        .verb = "doctor",
        .summary = "Shows what this machine has, what is missing, and the command that installs it",
        .details = "Processor and kernels, memory, GPUs, libraries that are opened at run time, Python\n"
                   "packages, and the cache. The exit status is 1 if something is broken: a library\n"
                   "that is there and cannot be opened, or a cache that other users can write.",
        .groups = groups,
        .group_count = COUNT(groups)};
    const parsed next = command_parse(&command, argc, argv);
    if (next != PARSED_GO) {
        return next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    return work(as_json, !no_python);
}
