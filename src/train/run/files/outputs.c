/* Files of a run: to which run they belong, and which may be replaced. See outputs.h. */
#include "train/run/files/outputs.h"

#include "base/json.h"
#include "train/config/settings.h"
#include "train/run/trainer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RUN_KEY "recurve.run"
#define FORMAT_KEY "recurve.format"

/* ---- the id ---- */

static void draw_id(char id[RCVI_RUN_ID]) {
    uint64_t bits[2] = {0};
    int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    bool good = file >= 0 && read(file, bits, sizeof bits) == (ssize_t)sizeof bits;
    if (file >= 0) close(file);
    if (!good) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        bits[0] = (uint64_t)now.tv_sec << 30 | (uint64_t)now.tv_nsec;
        bits[1] = (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)id;
    }
    snprintf(id, RCVI_RUN_ID, "%016llx%016llx", (unsigned long long)bits[0], (unsigned long long)bits[1]);
}

rcv_status rcvi_run_id_to_tensors(const rcvi_outputs *o, int64_t step, rcv_tensors *tensors) {
    char text[96];
    snprintf(text, sizeof text, "{\"id\": \"%s\", \"step\": %lld}", o->run_id, (long long)step);
    return rcv_tensors_set_metadata(tensors, RUN_KEY, text);
}

/* Reads what rcvi_run_id_to_tensors writes; false where the text names no run. It allocates nothing: without memory a run would not
 * recognise its own files. */
static bool read_run(const char *text, char id[RCVI_RUN_ID], int64_t *step) {
    char name[RCVI_RUN_ID];
    long long number;
    int end = 0;
    _Static_assert(RCVI_RUN_ID == 33, "as many digits as are read");
    bool good = text && sscanf(text, "{\"id\": \"%32[0-9a-f]\", \"step\": %lld}%n", name, &number, &end) == 2 &&
                strlen(name) == RCVI_RUN_ID - 1 && end > 0 && text[end] == '\0';
    if (!good) return false;
    memcpy(id, name, RCVI_RUN_ID);
    *step = number;
    return true;
}

void rcvi_run_id_from_tensors(rcvi_outputs *o, const rcv_tensors *tensors) {
    int64_t step;
    o->adopts_unnamed = !read_run(rcv_tensors_metadata(tensors, RUN_KEY), o->run_id, &step);
}

void rcvi_outputs_init(rcvi_outputs *o, rcv_context *context) {
    *o = (rcvi_outputs){.context = context, .lock = {.file = -1}};
    draw_id(o->run_id);
}

void rcvi_outputs_free(rcvi_outputs *o) {
    rcvi_free(o->context, o->last_good);
    o->last_good = NULL;
}

rcv_status rcvi_outputs_set_last_good(rcvi_outputs *o, const char *path, int64_t step) {
    char *copy = rcvi_copy_text(o->context, path, strlen(path));
    if (!copy) return RCV_NO_MEMORY;
    rcvi_free(o->context, o->last_good);
    o->last_good = copy;
    o->last_good_step = step;
    return RCV_OK;
}

/* ---- to which run a file belongs ---- */

typedef enum { ABSENT, OF_RUN, OF_OTHER, NOT_A_MODEL } owner;

/* A run, at an update. */
typedef struct {
    char id[RCVI_RUN_ID];
    int64_t step;
    bool adopts_unnamed; /* models without an id belong to it: it was resumed from one, written before runs had ids */
} identity;

static identity identity_of(const rcvi_outputs *o, int64_t step) {
    identity run = {.step = step, .adopts_unnamed = o->adopts_unnamed};
    memcpy(run.id, o->run_id, sizeof run.id);
    return run;
}

static bool read_at(int file, void *bytes, size_t length, off_t at) {
    return pread(file, bytes, length, at) == (ssize_t)length;
}

static rcv_status parse_header(const char *text, size_t length, json_t **header) {
    json_error_t error;
    *header = rcvi_json_read(text, length, 0, &error);
    return !*header && json_error_code(&error) == json_error_out_of_memory ? rcvi_no_memory(length) : RCV_OK;
}

/* The metadata of a file's header; NULL: there are none. The data after the header is not read. */
static rcv_status read_metadata(rcv_context *context, int file, json_t **metadata) {
    enum { LIMIT = 100000000 };
    unsigned char length[8];
    uint64_t bytes = 0;
    struct stat info;
    *metadata = NULL;
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || !read_at(file, length, sizeof length, 0)) return RCV_OK;
    for (int i = (int)sizeof length - 1; i >= 0; i--) bytes = bytes << 8 | length[i];
    if (bytes > LIMIT || bytes > (uint64_t)info.st_size) return RCV_OK;
    char *text = rcvi_new(context, (size_t)bytes + 1, 1);
    if (!text) return RCV_NO_MEMORY;
    json_t *header = NULL;
    rcv_status status = RCV_OK;
    if (read_at(file, text, (size_t)bytes, sizeof length)) status = parse_header(text, (size_t)bytes, &header);
    *metadata = json_incref(json_object_get(header, "__metadata__"));
    json_decref(header);
    rcvi_free(context, text);
    return status;
}

/* A file about which anything is in doubt is not a model, and so is not replaced. `step` is that of the run that it names, else -1. */
static rcv_status find_owner(rcv_context *context, const char *path, const identity *run, owner *who, int64_t *step) {
    char found[RCVI_RUN_ID];
    json_t *metadata = NULL;
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    *who = file < 0 && errno == ENOENT ? ABSENT : NOT_A_MODEL;
    *step = -1;
    if (file < 0) return RCV_OK;
    rcv_status status = read_metadata(context, file, &metadata);
    close(file);
    if (json_object_get(metadata, FORMAT_KEY)) *who = OF_OTHER;
    bool named = read_run(json_string_value(json_object_get(metadata, RUN_KEY)), found, step);
    if (*who == OF_OTHER && (named ? !strcmp(found, run->id) : run->adopts_unnamed)) *who = OF_RUN;
    json_decref(metadata);
    return status;
}

/* ---- paths ---- */

char *rcvi_sibling(rcv_context *context, const char *path, const char *word) {
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    size_t stem = dot && dot > (slash ? slash + 1 : path) ? (size_t)(dot - path) : strlen(path);
    rcvi_text text;
    char *out = NULL;
    rcvi_text_init(&text, context);
    rcvi_text_add_bytes(&text, path, stem);
    rcvi_text_add(&text, ".%s%s", word, path + stem);
    return rcvi_text_take(&text, &out) ? NULL : out;
}

rcv_status rcv_trainer_best_path(rcv_context *context, const char *path, char **best) {
    if (best) *best = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(path, "path");
    RCVI_NEED(best, "best");
    *best = rcvi_sibling(context, path, "best");
    return *best ? RCV_OK : RCV_NO_MEMORY;
}

static char *numbered(rcv_context *context, const char *path, int64_t number) {
    char word[32];
    snprintf(word, sizeof word, "%lld", (long long)number);
    return number ? rcvi_sibling(context, path, word) : rcvi_copy_text(context, path, strlen(path));
}

/* ---- may a run write to a path? ---- */

/* The output path itself, without leave to overwrite. */
static rcv_status check_main(rcv_context *context, const identity *run, const char *path) {
    int64_t step;
    owner who;
    RCVI_TRY(find_owner(context, path, run, &who, &step));
    switch (who) {
    case ABSENT: return RCV_OK;
    case OF_RUN:
        if (step <= run->step) return RCV_OK;
        return rcvi_fail(RCV_IO,
                         "%s is of the same run, but further on, at update %lld: resume from it, or allow that it is "
                         "replaced (--overwrite)",
                         path, (long long)step);
    case OF_OTHER:
        return rcvi_fail(
            RCV_IO,
            "%s is there already: resume from it, choose another path, or allow that it is replaced (--overwrite)",
            path);
    case NOT_A_MODEL: break;
    }
    return rcvi_fail(RCV_IO,
                     "%s is there already and is no model: choose another path, or allow that it is replaced "
                     "(--overwrite)",
                     path);
}

/* A path that the run derives from its output path. */
static rcv_status check_beside(rcv_context *context, const identity *run, const char *path, bool overwrite) {
    int64_t step;
    owner who;
    RCVI_TRY(find_owner(context, path, run, &who, &step));
    if (who == ABSENT || who == OF_RUN || (who == OF_OTHER && overwrite)) return RCV_OK;
    if (who == OF_OTHER)
        return rcvi_fail(RCV_IO,
                         "%s is of another run, and this one would replace it: choose another output, or allow it "
                         "(--overwrite)",
                         path);
    return rcvi_fail(RCV_IO, "%s is no model, and this run would replace it: move it, or choose another output", path);
}

static rcv_status check_path(rcv_context *context, const identity *run, char *path, bool overwrite) {
    rcv_status status = path ? check_beside(context, run, path, overwrite) : RCV_NO_MEMORY;
    rcvi_free(context, path);
    return status;
}

static rcv_status check_outputs(rcv_context *context, const identity *run, const char *path, int64_t keep,
                                bool overwrite) {
    if (!overwrite) RCVI_TRY(check_main(context, run, path));
    RCVI_TRY(check_path(context, run, rcvi_sibling(context, path, "best"), overwrite));
    for (int64_t n = 1; n < keep; n++) {
        char *name = numbered(context, path, n);
        bool last = name && access(name, F_OK) != 0; /* the numbering has no gaps */
        RCVI_TRY(check_path(context, run, name, overwrite));
        if (last) break;
    }
    return RCV_OK;
}

rcv_status rcv_trainer_check_output(rcv_context *context, const rcv_settings *settings, const char *resume,
                                    const char *output, bool overwrite) {
    RCVI_NEED(context, "context");
    RCVI_NEED(settings, "settings");
    RCVI_NEED(output, "output");
    identity run = {.step = -1};
    int file = resume ? open(resume, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    json_t *metadata = NULL;
    rcv_status status = file >= 0 ? read_metadata(context, file, &metadata) : RCV_OK;
    if (file >= 0) close(file);
    RCVI_TRY(status);
    bool named = read_run(json_string_value(json_object_get(metadata, RUN_KEY)), run.id, &run.step);
    run.adopts_unnamed = metadata && !named;
    json_decref(metadata);
    return check_outputs(context, &run, output, rcvi_settings_integer(settings, "keep"), overwrite);
}

/* ---- of a call ---- */

rcv_status rcvi_outputs_claim(rcvi_outputs *o, int64_t step) {
    o->lock = (rcvi_file_lock){.file = -1};
    if (!o->path) return RCV_OK;
    const identity run = identity_of(o, step);
    rcv_status status = rcvi_lock_path(o->context, o->path, &o->lock);
    if (status == RCV_UNSUPPORTED) {
        rcvi_log(o->context, "checkpoint: %s", rcv_message());
        status = RCV_OK;
    }
    if (!status) status = check_outputs(o->context, &run, o->path, o->keep, o->overwrite);
    if (status) rcvi_outputs_release(o);
    return status;
}

void rcvi_outputs_release(rcvi_outputs *o) { rcvi_unlock_path(o->context, &o->lock); }

/* Gives the file at `from` the second name `to`. Without a model there, nothing happens. */
static rcv_status keep_as(const rcvi_outputs *o, const identity *run, const char *from, const char *to) {
    int64_t step;
    owner who;
    RCVI_TRY(find_owner(o->context, from, run, &who, &step));
    if (who == ABSENT || who == NOT_A_MODEL) return RCV_OK;
    RCVI_TRY(check_beside(o->context, run, to, o->overwrite));
    return rcvi_link_file(o->context, from, to);
}

rcv_status rcvi_outputs_rotate(const rcvi_outputs *o, int64_t step) {
    const identity run = identity_of(o, step);
    rcv_status status = RCV_OK;
    int64_t last = 0; /* the first number without a file: files before it move up by one */
    for (bool there = true; there && last + 1 < o->keep; last++) {
        char *name = numbered(o->context, o->path, last + 1);
        if (!name) return RCV_NO_MEMORY;
        there = access(name, F_OK) == 0;
        rcvi_free(o->context, name);
    }
    for (int64_t n = last; n > 0 && !status; n--) {
        char *from = numbered(o->context, o->path, n - 1), *to = numbered(o->context, o->path, n);
        status = from && to ? keep_as(o, &run, from, to) : RCV_NO_MEMORY;
        rcvi_free(o->context, from);
        rcvi_free(o->context, to);
    }
    return status;
}

rcv_status rcvi_outputs_best(const rcvi_outputs *o, int64_t step, char **path) {
    const identity run = identity_of(o, step);
    *path = rcvi_sibling(o->context, o->path, "best");
    if (!*path) return RCV_NO_MEMORY;
    rcv_status status = check_beside(o->context, &run, *path, o->overwrite);
    if (!status) return RCV_OK;
    rcvi_free(o->context, *path);
    *path = NULL;
    return status;
}

rcv_status rcv_trainer_best_model(const rcv_trainer *t, const char *output, char **path) {
    if (path) *path = NULL;
    RCVI_NEED(t, "trainer");
    RCVI_NEED(output, "output");
    RCVI_NEED(path, "path");
    const identity run = identity_of(&t->outputs, t->state.step);
    int64_t step;
    owner who = ABSENT;
    char *best = rcvi_sibling(t->context, output, "best");
    rcv_status status = best ? find_owner(t->context, best, &run, &who, &step) : RCV_NO_MEMORY;
    if (!status && t->state.validations > 0 && who == OF_RUN && step == t->state.best_step)
        *path = best;
    else
        rcvi_free(t->context, best);
    return status;
}
