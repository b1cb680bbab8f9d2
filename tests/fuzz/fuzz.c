#define _GNU_SOURCE /* memfd_create */
#include "fuzz.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    SEEDS = 32,
    MEMORY_LIMIT = 64 << 20, /* bytes that an input may take at once */
    SECONDS_LIMIT = 20,      /* that it may take, on a loaded machine under sanitizers */
    HEADER = 16              /* bytes before a block, for its size */
};

static struct {
    const fuzz_target *target;
    fuzz_input seeds[SEEDS];
    size_t seed_count;
    fuzz_input input; /* the one at hand */
    uint64_t index, first_seed;
    bool is_counted; /* standalone: index and seed repeat the run */
    size_t live, peak, blocks;
    bool refused; /* memory over the limit */
    rcv_context *context;
    size_t blocks_before;
    char folder[64];
    int file;
} fuzz;

/* ---- what is checked ---- */

void fuzz_fail(const char *condition, const char *file, int line) {
    char path[128];
    snprintf(path, sizeof path, "fuzz_%s.failed", fuzz.target->name);
    FILE *out = fopen(path, "wb");
    if (out) {
        fwrite(fuzz.input.bytes, 1, fuzz.input.length, out);
        fclose(out);
    }
    fprintf(stderr, "%s:%d: %s does not hold for input %" PRIu64 " (%zu bytes, in %s); the library said: %s\n", file,
            line, condition, fuzz.index, fuzz.input.length, path, rcv_message());
    if (fuzz.is_counted)
        fprintf(stderr, "repeat with: fuzz_%s %" PRIu64 " %" PRIu64 "\n", fuzz.target->name, fuzz.index + 1,
                fuzz.first_seed);
    abort();
}

void fuzz_check_refusal(rcv_status status, const void *output) {
    fuzz_check(status != RCV_OK && status != RCV_NO_MEMORY && status != RCV_IO);
    fuzz_check(output == NULL);
    fuzz_check(rcv_message()[0] != '\0');
}

static void *allocate(void *user, size_t bytes) {
    (void)user;
    fuzz.refused |= bytes > MEMORY_LIMIT || fuzz.live + bytes > MEMORY_LIMIT;
    char *block = fuzz.refused ? NULL : malloc(bytes + HEADER);
    if (!block) return NULL;
    memcpy(block, &bytes, sizeof bytes);
    fuzz.live += bytes;
    fuzz.blocks++;
    if (fuzz.live > fuzz.peak) fuzz.peak = fuzz.live;
    return block + HEADER;
}

static void release(void *user, void *memory) {
    (void)user;
    size_t bytes;
    char *block = (char *)memory - HEADER;
    memcpy(&bytes, block, sizeof bytes);
    fuzz.live -= bytes;
    fuzz.blocks--;
    free(block);
}

rcv_context *fuzz_context(void) {
    const rcv_allocator allocator = {allocate, release, NULL};
    if (!fuzz.context &&
        rcv_context_new(&RCV_INIT(rcv_context_options, .allocator = &allocator, .threads = 1), &fuzz.context))
        exit(1);
    return fuzz.context;
}

/* ---- files ---- */

static void remove_folder(void);

const char *fuzz_path(const char *name) {
    static char paths[4][384];
    static int next;
    if (!fuzz.folder[0]) {
        snprintf(fuzz.folder, sizeof fuzz.folder, "%s/recurve-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
        if (!mkdtemp(fuzz.folder) || atexit(remove_folder)) exit(1);
    }
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", fuzz.folder, name);
    return path;
}

static void remove_folder(void) {
    DIR *folder = fuzz.folder[0] ? opendir(fuzz.folder) : NULL;
    if (!folder) return;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) unlink(fuzz_path(entry->d_name));
    }
    closedir(folder);
    rmdir(fuzz.folder);
}

void fuzz_write(const char *path, const void *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, length, file) != length || fclose(file)) exit(1);
}

bool fuzz_read(const char *path, fuzz_input *input) {
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    input->length = fread(input->bytes, 1, FUZZ_LIMIT, file);
    bool whole = feof(file) || getc(file) == EOF;
    fclose(file);
    return whole;
}

const char *fuzz_file(const void *bytes, size_t length) {
    static char path[64];
    if (!fuzz.file) {
        fuzz.file = memfd_create("fuzz", MFD_CLOEXEC);
        if (fuzz.file < 0) exit(1);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fuzz.file);
    }
    if (ftruncate(fuzz.file, 0) || pwrite(fuzz.file, bytes, length, 0) != (ssize_t)length) exit(1);
    return path;
}

bool fuzz_text(const char *text, fuzz_input *input) {
    input->length = strlen(text);
    if (input->length > FUZZ_LIMIT) input->length = FUZZ_LIMIT;
    memcpy(input->bytes, text, input->length);
    return true;
}

/* ---- mutation ---- */

static uint64_t next(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

size_t fuzz_below(uint64_t *random, size_t bound) { return bound ? (size_t)(next(random) % bound) : 0; }

void fuzz_splice(fuzz_input *to, size_t at, size_t removed, const void *added, size_t count) {
    if (removed > to->length - at) removed = to->length - at;
    if (to->length - removed + count > FUZZ_LIMIT) return;
    memmove(to->bytes + at + count, to->bytes + at + removed, to->length - at - removed);
    memcpy(to->bytes + at, added, count);
    to->length += count - removed;
}

static void flip_bits(fuzz_input *to, uint64_t *random) {
    for (size_t n = 1 + fuzz_below(random, 4); n > 0 && to->length > 0; n--)
        to->bytes[fuzz_below(random, to->length)] ^= (uint8_t)(1u << fuzz_below(random, 8));
}

static void set_byte(fuzz_input *to, uint64_t *random) {
    static const char often[] = "0123456789.,+-()[]{}:=\"\\ \n\t\r\x7f\xff";
    if (to->length > 0)
        to->bytes[fuzz_below(random, to->length)] =
            fuzz_below(random, 3) ? (uint8_t)often[fuzz_below(random, sizeof often)] : (uint8_t)next(random);
}

/* An integer of 1, 2, 4 or 8 bytes, often at a multiple of its size. */
static void set_integer(fuzz_input *to, uint64_t *random) {
    static const uint64_t values[] = {0,
                                      1,
                                      2,
                                      7,
                                      8,
                                      255,
                                      256,
                                      65535,
                                      INT32_MAX,
                                      UINT32_MAX,
                                      INT64_MAX,
                                      UINT64_MAX,
                                      UINT64_C(1) << 32,
                                      UINT64_C(1) << 62};
    size_t bytes = (size_t)1 << fuzz_below(random, 4), value = fuzz_below(random, sizeof values / sizeof *values + 2);
    if (to->length < bytes) return;
    size_t at = fuzz_below(random, to->length - bytes + 1);
    if (fuzz_below(random, 4)) at -= at % bytes;
    uint64_t old = 0, new;
    memcpy(&old, to->bytes + at, bytes);
    new = value < sizeof values / sizeof *values ? values[value] : old + fuzz_below(random, 17) - 8;
    memcpy(to->bytes + at, &new, bytes);
}

static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

/* One number of a text becomes another. */
static void edit_number(fuzz_input *to, uint64_t *random) {
    static const char *const numbers[] = {"0",    "1",     "-1",    "2",          "3.5",  "1e9",
                                          "1e-9", "1e999", "-0",    "4294967296", "nan",  "9223372036854775807",
                                          "null", "[]",    "\"4\"", "true",       "1e1",  "9223372036854775808",
                                          "inf",  "255",   "65536", "0x10",       "1000", "00000000000000000000001"};
    if (to->length == 0) return;
    size_t at = fuzz_below(random, to->length), looked = 0;
    while (looked < to->length && !is_digit(to->bytes[at])) at = (at + 1) % to->length, looked++;
    if (looked == to->length) return;
    size_t length = 0;
    while (at > 0 && is_digit(to->bytes[at - 1])) at--;
    while (at + length < to->length && is_digit(to->bytes[at + length])) length++;
    const char *number = numbers[fuzz_below(random, sizeof numbers / sizeof *numbers)];
    fuzz_splice(to, at, length, number, strlen(number));
}

static void insert_piece(fuzz_input *to, uint64_t *random) {
    const char *const *pieces = fuzz.target->pieces;
    size_t count = 0;
    while (pieces && pieces[count]) count++;
    if (count == 0) return;
    const char *piece = pieces[fuzz_below(random, count)];
    size_t removed = fuzz_below(random, 3) ? 0 : fuzz_below(random, 12);
    fuzz_splice(to, fuzz_below(random, to->length + 1), removed, piece, strlen(piece));
}

static void copy_range(fuzz_input *to, uint64_t *random) {
    uint8_t copy[256];
    size_t from = fuzz_below(random, to->length), count = 1 + fuzz_below(random, sizeof copy);
    if (count > to->length - from) count = to->length - from;
    memcpy(copy, to->bytes + from, count);
    fuzz_splice(to, fuzz_below(random, to->length + 1), fuzz_below(random, 2) ? 0 : count, copy, count);
}

static void remove_range(fuzz_input *to, uint64_t *random) {
    fuzz_splice(to, fuzz_below(random, to->length), 1 + fuzz_below(random, fuzz_below(random, 4) ? 12 : 200), "", 0);
}

static void truncate_input(fuzz_input *to, uint64_t *random) { to->length = fuzz_below(random, to->length + 1); }

/* A range of another file to begin with. */
static void cross(fuzz_input *to, uint64_t *random) {
    const fuzz_input *other = &fuzz.seeds[fuzz_below(random, fuzz.seed_count)];
    size_t from = fuzz_below(random, other->length), count = 1 + fuzz_below(random, 512);
    if (count > other->length - from) count = other->length - from;
    fuzz_splice(to, fuzz_below(random, to->length + 1), fuzz_below(random, 2) ? 0 : count, other->bytes + from, count);
}

static void change_bytes(fuzz_input *to, uint64_t *random) {
    static void (*const kinds[])(fuzz_input *, uint64_t *) = {flip_bits,    set_byte,     set_integer,    edit_number,
                                                              edit_number,  insert_piece, insert_piece,   copy_range,
                                                              remove_range, remove_range, truncate_input, cross};
    for (size_t n = 1 + fuzz_below(random, 4); n > 0; n--) {
        size_t kind = fuzz_below(random, sizeof kinds / sizeof *kinds);
        if (kinds[kind] == truncate_input && fuzz_below(random, 4)) continue;
        kinds[kind](to, random);
    }
}

static void mutate(fuzz_input *to, uint64_t *random) {
    void (*change)(fuzz_input *, uint64_t *) =
        fuzz.target->edit && fuzz_below(random, 2) ? fuzz.target->edit : change_bytes;
    change(to, random);
    if (fuzz.target->repair && fuzz_below(random, 4)) fuzz.target->repair(to);
}

size_t fuzz_mutate(const fuzz_target *target, uint8_t *bytes, size_t length, size_t most, unsigned seed) {
    static fuzz_input input;
    uint64_t random = seed;
    fuzz_initialize(target);
    input.length = length < FUZZ_LIMIT ? length : FUZZ_LIMIT;
    memcpy(input.bytes, bytes, input.length);
    if (fuzz_below(&random, 32) == 0) input = fuzz.seeds[fuzz_below(&random, fuzz.seed_count)];
    mutate(&input, &random);
    if (input.length > most) input.length = most;
    memcpy(bytes, input.bytes, input.length);
    return input.length;
}

/* ---- running ---- */

int fuzz_initialize(const fuzz_target *target) {
    if (fuzz.target) return 0;
    fuzz.target = target;
    fuzz_context();
    while (fuzz.seed_count < SEEDS && target->seed(fuzz.seed_count, &fuzz.seeds[fuzz.seed_count])) fuzz.seed_count++;
    if (fuzz.seed_count == 0) exit(1);
    fuzz.blocks_before = fuzz.blocks;
    return 0;
}

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static bool take(const uint8_t *bytes, size_t length) {
    /* A block of exactly this size, so that a step past its end is seen. */
    uint8_t *copy = malloc(length ? length : 1);
    if (!copy) exit(1);
    if (length) memcpy(copy, bytes, length);
    double begin = seconds();
    fuzz.refused = false;
    bool accepted = fuzz.target->read(copy, length);
    free(copy);
    fuzz_check(!fuzz.refused /* memory over the limit */);
    fuzz_check(fuzz.blocks == fuzz.blocks_before /* nothing is left behind */);
    fuzz_check(seconds() - begin < SECONDS_LIMIT);
    return accepted;
}

int fuzz_one(const fuzz_target *target, const uint8_t *bytes, size_t length) {
    fuzz_initialize(target);
    if (length > FUZZ_LIMIT) return -1;
    fuzz.input.length = length;
    if (length) memcpy(fuzz.input.bytes, bytes, length);
    take(bytes, length);
    fuzz.index++;
    return 0;
}

static int write_seeds(const char *folder) {
    for (size_t i = 0; i < fuzz.seed_count; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed-%zu", folder, i);
        fuzz_write(path, fuzz.seeds[i].bytes, fuzz.seeds[i].length);
    }
    return 0;
}

static void end(void) {
    if (fuzz.target->end) fuzz.target->end();
    rcv_context_free(fuzz.context);
    fuzz.context = NULL;
    remove_folder();
    if (fuzz.blocks != 0) {
        fprintf(stderr, "%zu blocks of memory are left at the end\n", fuzz.blocks);
        exit(1);
    }
}

static int run(uint64_t count, uint64_t seed) {
    uint64_t random = seed, accepted = 0;
    double slowest = 0, begin = seconds();
    fuzz.is_counted = true;
    fuzz.first_seed = seed;
    for (size_t i = 0; i < fuzz.seed_count; i++) { /* as they are, they are good */
        fuzz.input = fuzz.seeds[i];
        fuzz_check(take(fuzz.input.bytes, fuzz.input.length));
    }
    for (fuzz.index = 0; fuzz.index < count; fuzz.index++) {
        fuzz.input = fuzz.seeds[fuzz_below(&random, fuzz.seed_count)];
        mutate(&fuzz.input, &random);
        double before = seconds();
        accepted += take(fuzz.input.bytes, fuzz.input.length);
        double took = seconds() - before;
        if (took > slowest) slowest = took;
    }
    printf("fuzz_%s: %" PRIu64 " inputs of seed %" PRIu64 ": %" PRIu64 " accepted, %" PRIu64
           " refused, 0 failures; %.1f s, the slowest %.0f ms; at most %.1f MB\n",
           fuzz.target->name, count, seed, accepted, count - accepted, seconds() - begin, slowest * 1e3,
           (double)fuzz.peak * 1e-6);
    return count >= 1000 && (accepted == 0 || accepted == count);
}

int fuzz_main(const fuzz_target *target, int argc, char **argv) {
    static fuzz_input file;
    fuzz_initialize(target);
    int status;
    if (argc == 3 && !strcmp(argv[1], "--seeds")) {
        status = write_seeds(argv[2]);
    } else if (argc == 2 && strspn(argv[1], "0123456789") != strlen(argv[1])) {
        if (!fuzz_read(argv[1], &file)) {
            fprintf(stderr, "cannot read %s\n", argv[1]);
            return 1;
        }
        fuzz.input = file;
        printf("%s\n", take(file.bytes, file.length) ? "accepted" : rcv_message());
        status = 0;
    } else {
        status =
            run(argc > 1 ? strtoull(argv[1], NULL, 10) : target->count, argc > 2 ? strtoull(argv[2], NULL, 10) : 1);
    }
    end();
    return status;
}
