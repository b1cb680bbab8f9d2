/* What the fuzz programs share. A program has one target: a format, files to begin with, and a function that reads one input and checks what
 * must hold. It is built in two ways:
 *
 *   fuzz_NAME [COUNT [SEED]]     COUNT mutated inputs from the seed; the same ones every time
 *   fuzz_NAME FILE               this one input
 *   fuzz_NAME --seeds FOLDER     writes the files to begin with
 *   libfuzz_NAME CORPUS ...      the same function under libFuzzer (RCV_FUZZ, with clang) */
#ifndef RECURVE_FUZZ_H
#define RECURVE_FUZZ_H

#include "recurve.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FUZZ_LIMIT = 1 << 16 }; /* bytes of an input */

typedef struct {
    uint8_t bytes[FUZZ_LIMIT];
    size_t length;
} fuzz_input;

typedef struct {
    const char *name;
    uint64_t count; /* of a run without arguments */
    /* The file to begin with of this number; false past the last. Called first, in order. */
    bool (*seed)(size_t index, fuzz_input *input);
    const char *const *pieces; /* of the format, to be put in; ends in NULL */
    /* Changes an element of the format, such as a member of a JSON text. Half of the inputs get it in place of changed bytes. Any input may come;
     * may be NULL. */
    void (*edit)(fuzz_input *input, uint64_t *random);
    /* Makes what was mutated fit again where one change needs another, such as a length or a checksum; may be NULL. */
    void (*repair)(fuzz_input *input);
    /* True: the input was accepted. The bytes lie in a block of exactly their size. */
    bool (*read)(const uint8_t *bytes, size_t length);
    void (*end)(void); /* frees what the others keep; may be NULL */
} fuzz_target;

/* Ends the program where it does not hold, with the input in a file and the line that repeats it. */
#define fuzz_check(condition) ((condition) ? (void)0 : fuzz_fail(#condition, __FILE__, __LINE__))
_Noreturn void fuzz_fail(const char *condition, const char *file, int line);

/* A context whose memory is counted: an input may take so many bytes at once, and leaves none behind. */
rcv_context *fuzz_context(void);
/* A file in memory with these bytes, and its path, which is the same in every call. */
const char *fuzz_file(const void *bytes, size_t length);
/* A folder of the program's own; it is removed in the end, with the files in it. */
const char *fuzz_path(const char *name);
void fuzz_write(const char *path, const void *bytes, size_t length);
bool fuzz_read(const char *path, fuzz_input *input);
size_t fuzz_below(uint64_t *random, size_t bound); /* a random number below the bound; 0 if that is 0 */
/* Replaces `removed` bytes at `at` by others; the input stays as it is where there is no room. */
void fuzz_splice(fuzz_input *to, size_t at, size_t removed, const void *added, size_t count);
/* The status of a refused input: there is a sentence, and it is one of the reader's, not a lack of memory. */
void fuzz_check_refusal(rcv_status status, const void *output);
bool fuzz_text(const char *text, fuzz_input *input); /* as a seed; true */

int fuzz_main(const fuzz_target *target, int argc, char **argv);
int fuzz_initialize(const fuzz_target *target);
int fuzz_one(const fuzz_target *target, const uint8_t *bytes, size_t length);
size_t fuzz_mutate(const fuzz_target *target, uint8_t *bytes, size_t length, size_t most, unsigned seed);

#ifdef RCV_LIBFUZZER
#define FUZZ_PROGRAM(target)                                                                                           \
    int LLVMFuzzerInitialize(int *argc, char ***argv);                                                                 \
    int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);                                                   \
    size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t length, size_t most, unsigned seed);                         \
    int LLVMFuzzerInitialize(int *argc, char ***argv) { return (void)argc, (void)argv, fuzz_initialize(&(target)); }   \
    int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) { return fuzz_one(&(target), bytes, length); }     \
    size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t length, size_t most, unsigned seed) {                        \
        return fuzz_mutate(&(target), bytes, length, most, seed);                                                      \
    }
#else
#define FUZZ_PROGRAM(target)                                                                                           \
    int main(int argc, char **argv) { return fuzz_main(&(target), argc, argv); }
#endif

#endif
