/* An .npz file is a ZIP archive of .npy files. Members are stored, or compressed by deflate, for which zlib is opened at run time; these are
 * written to a temporary file. Sizes beyond 4 GiB are in extra fields (ZIP64). */
#include "base/library.h"
#include "data/table/arrays.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    char name[256];
    unsigned method;
    int64_t packed, bytes, header; /* sizes; offset of the local header */
} member;

static uint64_t number_at(const unsigned char *bytes, int count) {
    uint64_t number = 0;
    for (int i = count - 1; i >= 0; i--) number = number << 8 | bytes[i];
    return number;
}

static rcv_status fail_archive(const rcvi_arrays *arrays) {
    return rcvi_fail(RCV_FORMAT, "%s is a damaged .npz file: its list of arrays is not at its end", arrays->path);
}

/* Offsets and lengths are the file's: they may point anywhere. */
static rcv_status read_part(const rcvi_arrays *arrays, int file, int64_t bytes, int64_t at, void *to, size_t length) {
    if (at < 0 || at > bytes || (int64_t)length > bytes - at) return fail_archive(arrays);
    return rcvi_read_at(file, arrays->path, at, to, length);
}

/* ---- the list of members ---- */

/* Where the central directory begins, and how many members it has. */
static rcv_status find_directory(const rcvi_arrays *arrays, int file, int64_t bytes, int64_t *begin, int64_t *count) {
    enum { TAIL = 22 + 65535 };
    const int64_t tail = bytes < TAIL ? bytes : TAIL;
    if (tail < 22) return fail_archive(arrays);
    unsigned char *end = rcvi_new(arrays->context, (size_t)tail, 1);
    if (!end) return RCV_NO_MEMORY;
    rcv_status status = rcvi_read_at(file, arrays->path, bytes - tail, end, (size_t)tail);
    int64_t at = tail - 22;
    while (!status && at >= 0 && memcmp(end + at, "PK\5\6", 4) != 0) at--;
    if (!status && at < 0) status = fail_archive(arrays);
    if (!status) {
        *count = (int64_t)number_at(end + at + 10, 2);
        *begin = (int64_t)number_at(end + at + 16, 4);
        if ((*begin == 0xffffffff || *count == 0xffff) && at >= 20 && !memcmp(end + at - 20, "PK\6\7", 4)) {
            unsigned char wide[56];
            status = read_part(arrays, file, bytes, (int64_t)number_at(end + at - 12, 8), wide, sizeof wide);
            if (!status && memcmp(wide, "PK\6\6", 4) != 0) status = fail_archive(arrays);
            *count = (int64_t)number_at(wide + 32, 8);
            *begin = (int64_t)number_at(wide + 48, 8);
        }
    }
    rcvi_free(arrays->context, end);
    return status;
}

/* Sizes that do not fit into 32 bits are in an extra field, in this order. */
static void read_wide_sizes(const unsigned char *extra, size_t length, member *m) {
    int64_t *const places[] = {&m->bytes, &m->packed, &m->header};
    for (size_t at = 0; at + 4 <= length;) {
        const size_t size = (size_t)number_at(extra + at + 2, 2);
        if (size > length - at - 4) return;
        size_t from = at + 4;
        for (size_t i = 0; number_at(extra + at, 2) == 1 && i < 3; i++) {
            if (*places[i] != 0xffffffff) continue;
            if (from + 8 > at + 4 + size) return;
            *places[i] = (int64_t)number_at(extra + from, 8);
            from += 8;
        }
        at += 4 + size;
    }
}

/* Reads an entry of the directory at *at, and moves on to the next one. */
static rcv_status read_entry(const rcvi_arrays *arrays, int file, int64_t bytes, int64_t *at, member *m) {
    unsigned char entry[46], extra[1024];
    RCVI_TRY(read_part(arrays, file, bytes, *at, entry, sizeof entry));
    const size_t name = (size_t)number_at(entry + 28, 2), more = (size_t)number_at(entry + 30, 2);
    if (memcmp(entry, "PK\1\2", 4) != 0 || name >= sizeof m->name || more > sizeof extra) return fail_archive(arrays);
    *m = (member){.method = (unsigned)number_at(entry + 10, 2),
                  .packed = (int64_t)number_at(entry + 20, 4),
                  .bytes = (int64_t)number_at(entry + 24, 4),
                  .header = (int64_t)number_at(entry + 42, 4)};
    RCVI_TRY(read_part(arrays, file, bytes, *at + 46, m->name, name));
    RCVI_TRY(read_part(arrays, file, bytes, *at + 46 + (int64_t)name, extra, more));
    read_wide_sizes(extra, more, m);
    *at += 46 + (int64_t)(name + more + (size_t)number_at(entry + 32, 2));
    return RCV_OK;
}

/* ---- compressed members ---- */

/* The struct of zlib.h, whose interface has not changed since 1995. */
typedef struct {
    const unsigned char *next_in;
    unsigned avail_in;
    unsigned long total_in;
    unsigned char *next_out;
    unsigned avail_out;
    unsigned long total_out;
    const char *msg;
    void *state, *zalloc, *zfree, *opaque;
    int data_type;
    unsigned long adler, reserved;
} stream;

typedef struct {
    int (*begin)(stream *, int window_bits, const char *version, int size);
    int (*inflate)(stream *, int flush);
    int (*end)(stream *);
} library;

static rcv_status open_library(const rcvi_arrays *arrays, library *zlib) {
    static const char *const names[] = {"libz.so.1", "libz.so", NULL}, *const symbols[] = {"inflateInit2_", "inflate",
                                                                                           "inflateEnd"};
    char reason[256];
    void *functions[3] = {NULL};
    if (!rcvi_library_open(names, symbols, functions, 3, reason, sizeof reason))
        return rcvi_fail(RCV_UNSUPPORTED,
                         "%s is compressed, and zlib is not there to read it (%s); write it with numpy.savez",
                         arrays->path, reason);
    memcpy(zlib, functions, sizeof *zlib);
    return RCV_OK;
}

static bool write_all(int file, const unsigned char *bytes, size_t count) {
    while (count > 0) {
        const ssize_t part = write(file, bytes, count);
        if (part < 0 && errno == EINTR) continue;
        if (part <= 0) return false;
        bytes += part;
        count -= (size_t)part;
    }
    return true;
}

enum { BLOCK = 1 << 16, STREAM_END = 1, BUFFER_ERROR = -5 };

static rcv_status inflate_blocks(const rcvi_arrays *arrays, const library *zlib, stream *s, int from, int64_t at,
                                 const member *m, int to, unsigned char *in) {
    unsigned char *out = in + BLOCK;
    int64_t left = m->packed, made = 0;
    for (int result = 0; result != STREAM_END;) {
        if (s->avail_in == 0 && left > 0) {
            const size_t part = left < BLOCK ? (size_t)left : BLOCK;
            RCVI_TRY(rcvi_read_at(from, arrays->path, at, in, part));
            at += (int64_t)part;
            left -= (int64_t)part;
            s->next_in = in;
            s->avail_in = (unsigned)part;
        }
        s->next_out = out;
        s->avail_out = BLOCK;
        result = zlib->inflate(s, 0);
        const size_t count = BLOCK - s->avail_out;
        made += (int64_t)count;
        if ((result != 0 && result != STREAM_END) || (count == 0 && result != STREAM_END && left == 0) ||
            made > m->bytes)
            return rcvi_fail(RCV_FORMAT, "%s: the compressed array %.60s is damaged", arrays->path, m->name);
        if (!write_all(to, out, count))
            return rcvi_fail(RCV_IO, "cannot write %s, uncompressed, to a temporary file: %s", m->name,
                             strerror(errno));
    }
    if (made == m->bytes) return RCV_OK;
    return rcvi_fail(RCV_FORMAT, "%s: the compressed array %.60s is damaged", arrays->path, m->name);
}

static rcv_status uncompress(const rcvi_arrays *arrays, int from, int64_t at, const member *m, int *to) {
    library zlib = {0};
    RCVI_TRY(open_library(arrays, &zlib));
    const char *folder = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/recurve-array-XXXXXX", folder && folder[0] == '/' ? folder : "/tmp");
    *to = mkstemp(path);
    if (*to < 0) return rcvi_fail(RCV_IO, "cannot create the temporary file %s: %s", path, strerror(errno));
    (void)unlink(path);
    stream s = {0};
    unsigned char *blocks = rcvi_new(arrays->context, 2, BLOCK);
    rcv_status status = blocks ? RCV_OK : RCV_NO_MEMORY;
    const bool begun = !status && zlib.begin && zlib.end && zlib.begin(&s, -15, "1", (int)sizeof s) == 0;
    if (!status && !begun) {
        status = rcvi_fail(RCV_NO_MEMORY, "zlib cannot begin to read %s", arrays->path);
    } else if (!status) {
        status = inflate_blocks(arrays, &zlib, &s, from, at, m, *to, blocks);
        zlib.end(&s);
    }
    rcvi_free(arrays->context, blocks);
    if (status) close(*to);
    return status;
}

/* ---- arrays ---- */

/* NAME.npy is the array NAME. */
static rcv_status add_member(rcvi_arrays *arrays, int file, int64_t bytes, const member *m) {
    const size_t length = strlen(m->name), ending = strlen(".npy");
    rcvi_array *a = &arrays->arrays[arrays->count];
    unsigned char local[30] = {0};
    if (length <= ending || strcmp(m->name + length - ending, ".npy") != 0 || length - ending >= sizeof a->name)
        return RCV_OK;
    if (arrays->count == RCVI_MOST_ARRAYS)
        return rcvi_fail(RCV_FORMAT, "%s has more than %d arrays; data has x, y and lengths", arrays->path,
                         RCVI_MOST_ARRAYS);
    *a = (rcvi_array){0};
    memcpy(a->name, m->name, length - ending);
    RCVI_TRY(read_part(arrays, file, bytes, m->header, local, sizeof local));
    const int64_t at = m->header + 30 + (int64_t)number_at(local + 26, 2) + (int64_t)number_at(local + 28, 2);
    if (memcmp(local, "PK\3\4", 4) != 0 || m->packed < 0 || m->bytes < 0 || at > bytes || m->packed > bytes - at)
        return fail_archive(arrays);
    if (m->method != 0 && m->method != 8)
        return rcvi_fail(RCV_UNSUPPORTED, "%s: the array %s is compressed by another method than deflate", arrays->path,
                         a->name);
    int from = file;
    if (m->method == 8) RCVI_TRY(uncompress(arrays, file, at, m, &from));
    const int64_t begin = m->method == 8 ? 0 : at;
    const rcv_status status = rcvi_npy_read(arrays, from, begin, begin + m->bytes, a);
    a->owns_file = from != file;
    if (status && a->owns_file) close(from);
    if (!status) arrays->count++;
    return status;
}

rcv_status rcvi_npz_read(rcvi_arrays *arrays, int file, int64_t bytes) {
    int64_t at = 0, count = 0;
    RCVI_TRY(find_directory(arrays, file, bytes, &at, &count));
    for (int64_t i = 0; i < count; i++) {
        member m = {0};
        RCVI_TRY(read_entry(arrays, file, bytes, &at, &m));
        RCVI_TRY(add_member(arrays, file, bytes, &m));
    }
    return RCV_OK;
}
