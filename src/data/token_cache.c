/* The token cache: a file with everything that was read from a text.
 *
 *   file = header { section }      each section begins at a multiple of 64 bytes
 *
 * The header has the key (hash and size of the text, level and kind, hash of the given vocabulary and classes), the totals, offset and hash of
 * every section, and a hash of itself. A file that differs in any of these is not used, and is written again. Numbers have the byte order of this
 * machine; on a machine with another byte order the signature differs. */
#include "data/token_cache_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t SIGNATURE = UINT64_C(0x3230766365526b74); /* changes with every version of the format */

static uint64_t header_hash(const rcvi_token_cache_header *h) {
    return rcvi_hash_chunk(0, h, offsetof(rcvi_token_cache_header, hash));
}

static rcvi_token_cache_header key_of(const rcvi_import *import) {
    return (rcvi_token_cache_header){.signature = SIGNATURE,
                                     .text_hash = import->text_hash,
                                     .names_hash = import->names_hash,
                                     .text_bytes = import->source.bytes,
                                     .level = import->level,
                                     .kind = import->kind};
}

/* ---- finding ---- */

/* Whether the sections are consecutive, aligned, and end at the end of the file. */
static bool has_valid_layout(const rcvi_token_cache_header *h, int64_t file_bytes) {
    int64_t at = sizeof *h;
    for (int i = 0; i < RCVI_SECTIONS; i++) {
        at = (at + RCVI_TOKEN_CACHE_ALIGNMENT - 1) / RCVI_TOKEN_CACHE_ALIGNMENT * RCVI_TOKEN_CACHE_ALIGNMENT;
        if (h->sections[i].offset != at || h->sections[i].bytes < 0 || h->sections[i].bytes > file_bytes - at)
            return false;
        at += h->sections[i].bytes;
    }
    return at == h->bytes && at == file_bytes;
}

/* Whether the file is the cache of this import. A cache of another text or of other options is skipped silently; a damaged one with a log
 * message. */
static rcv_status check_file(rcvi_import *import, int file, const char *path, rcvi_token_cache_header *h, bool *good) {
    struct stat info;
    rcvi_token_cache_header key = key_of(import);
    *good = false;
    if (fstat(file, &info) != 0 || info.st_size < (int64_t)sizeof *h || rcvi_read_at(file, path, 0, h, sizeof *h))
        return RCV_OK;
    if (memcmp(h, &key, offsetof(rcvi_token_cache_header, totals)) != 0) return RCV_OK;
    if (h->hash == header_hash(h) && has_valid_layout(h, info.st_size))
        RCVI_TRY(rcvi_token_cache_check(import, file, h, good));
    if (!*good) rcvi_log(import->context, "%s is not used: it is damaged; the text is read again", path);
    return RCV_OK;
}

/* ---- writing ---- */

static rcv_status flush_buffer(rcvi_import *import, rcvi_writer *writer) {
    writer->hash = rcvi_hash_chunk(writer->hash, writer->buffer, writer->used);
    for (size_t done = 0; done < writer->used;) {
        ssize_t part = pwrite(writer->file, writer->buffer + done, writer->used - done, writer->at);
        if (part < 0 && errno == EINTR) continue;
        if (part <= 0) {
            import->cannot_write = true;
            return rcvi_fail(RCV_IO, "cannot write the tokens of %s: %s", import->source.path,
                             strerror(part < 0 ? errno : ENOSPC));
        }
        done += (size_t)part;
        writer->at += part;
    }
    writer->used = 0;
    return RCV_OK;
}

static rcv_status fail_changed(const rcvi_import *import) {
    return rcvi_fail(RCV_IO, "%s changed while it was read; start again, and do not change the file during the run",
                     import->source.path);
}

rcv_status rcvi_write_section(rcvi_import *import, int section, const void *bytes, size_t length) {
    rcvi_writer *writer = &import->writers[section];
    if ((int64_t)length > writer->end - writer->at - (int64_t)writer->used) return fail_changed(import);
    for (const char *from = bytes; length > 0;) {
        size_t room = RCVI_FILE_CHUNK - writer->used, part = length < room ? length : room;
        memcpy(writer->buffer + writer->used, from, part);
        writer->used += part;
        from += part;
        length -= part;
        if (writer->used == RCVI_FILE_CHUNK) RCVI_TRY(flush_buffer(import, writer));
    }
    return RCV_OK;
}

rcv_status rcvi_write_token(rcvi_import *import, int64_t token) {
    uint8_t narrow = (uint8_t)token;
    uint16_t middle = (uint16_t)token;
    int32_t wide = (int32_t)token;
    const void *forms[] = {NULL, &narrow, &middle, NULL, &wide};
    return rcvi_write_section(import, RCVI_TOKENS, forms[import->totals.token_bytes],
                              (size_t)import->totals.token_bytes);
}

rcv_status rcvi_write_span(rcvi_import *import, int64_t start, int64_t length) {
    return rcvi_write_section(import, RCVI_SPANS, &(rcvi_span){start, length}, sizeof(rcvi_span));
}

/* The names that are stored in the file; given names are not, because later imports are given them again. */
static rcv_status print_vocabulary(rcvi_import *import) {
    const bool found = import->vocabulary && rcvi_level_is_counted(import->level) && !import->given_vocabulary;
    rcvi_free(import->context, import->vocabulary_text);
    import->vocabulary_text = NULL;
    return found ? rcv_vocabulary_print(import->vocabulary, &import->vocabulary_text) : RCV_OK;
}

static rcv_status write_names(rcvi_import *import) {
    if (import->vocabulary_text)
        RCVI_TRY(rcvi_write_section(import, RCVI_WORDS, import->vocabulary_text, strlen(import->vocabulary_text)));
    for (int64_t i = 0; !import->given_classes && i < import->classes.size; i++) {
        size_t length;
        const char *name = rcvi_words_at(&import->classes, i, &length);
        RCVI_TRY(rcvi_write_section(import, RCVI_CLASSES, name, length + 1)); /* with its NUL */
    }
    return RCV_OK;
}

static int64_t class_bytes(const rcvi_import *import) {
    const rcvi_words *classes = &import->classes;
    return !import->given_classes && classes->size ? (int64_t)classes->starts[classes->size] : 0;
}

static rcv_status set_layout(rcvi_import *import, rcvi_token_cache_header *h) {
    int64_t *bytes = import->totals.bytes, at = sizeof *h;
    RCVI_TRY(print_vocabulary(import));
    bytes[RCVI_WORDS] = import->vocabulary_text ? (int64_t)strlen(import->vocabulary_text) : 0;
    bytes[RCVI_CLASSES] = class_bytes(import);
    h->totals = import->totals;
    for (int i = 0; i < RCVI_SECTIONS; i++) {
        at = (at + RCVI_TOKEN_CACHE_ALIGNMENT - 1) / RCVI_TOKEN_CACHE_ALIGNMENT * RCVI_TOKEN_CACHE_ALIGNMENT;
        h->sections[i].offset = at;
        h->sections[i].bytes = bytes[i];
        if (!rcvi_add(at, bytes[i], &at) || at > INT64_MAX - RCVI_TOKEN_CACHE_ALIGNMENT)
            return rcvi_fail(RCV_UNSUPPORTED, "%s has more tokens than a file can hold", import->source.path);
    }
    h->bytes = at;
    return RCV_OK;
}

static rcv_status write_sections(rcvi_import *import, int file, rcvi_token_cache_header *h) {
    char *buffers = rcvi_new(import->context, RCVI_SECTIONS, RCVI_FILE_CHUNK);
    if (!buffers) return RCV_NO_MEMORY;
    for (int i = 0; i < RCVI_SECTIONS; i++) {
        const rcvi_section *s = &h->sections[i];
        import->writers[i] = (rcvi_writer){
            .file = file, .at = s->offset, .end = s->offset + s->bytes, .buffer = buffers + i * RCVI_FILE_CHUNK};
    }
    rcv_status status = write_names(import);
    if (!status) status = import->reader->write(import);
    if (!status) status = rcvi_text_file_check(&import->source);
    for (int i = 0; i < RCVI_SECTIONS && !status; i++) {
        rcvi_writer *writer = &import->writers[i];
        if (writer->used > 0) status = flush_buffer(import, writer);
        if (!status && writer->at != writer->end) status = fail_changed(import);
        h->sections[i].hash = writer->hash;
    }
    rcvi_free(import->context, buffers);
    return status;
}

/* Writes the header last: a file whose writing was interrupted has none. */
static rcv_status write_cache(rcvi_import *import, int file, rcvi_token_cache_header *h) {
    *h = key_of(import);
    RCVI_TRY(set_layout(import, h));
    RCVI_TRY(write_sections(import, file, h));
    h->hash = header_hash(h);
    /* Empty sections at the end may need padding after the last bytes. */
    if (ftruncate(file, h->bytes) == 0 && pwrite(file, h, sizeof *h, 0) == (ssize_t)sizeof *h) return RCV_OK;
    import->cannot_write = true;
    return rcvi_fail(RCV_IO, "cannot write the tokens of %s: %s", import->source.path, strerror(errno));
}

/* ---- paths ---- */

enum { NEXT_TO_TEXT, USER_CACHE, LOCATIONS };

static const char SUFFIX[] = ".recurve-tokens";

/* FOLDER/NAME-HASH.recurve-tokens. The hash of the text's path distinguishes texts with the same name. */
static rcv_status path_in_folder(const rcvi_import *import, const char *folder, const char *below, char **path) {
    const char *text = import->source.path, *slash = strrchr(text, '/');
    char *full = rcvi_full_path(import->context, text);
    if (!full) return RCV_NO_MEMORY;
    uint64_t hash = rcvi_hash_chunk(0, full, strlen(full));
    rcvi_free(import->context, full);
    rcvi_text name;
    rcvi_text_init(&name, import->context);
    rcvi_text_add(&name, "%s%s/%s-%016llx%s", folder, below, slash ? slash + 1 : text, (unsigned long long)hash,
                  SUFFIX);
    return rcvi_text_take(&name, path);
}

static rcv_status path_next_to_text(const rcvi_import *import, char **path) {
    rcvi_text name;
    rcvi_text_init(&name, import->context);
    rcvi_text_add(&name, "%s%s", import->source.path, SUFFIX);
    return rcvi_text_take(&name, path);
}

/* The path of the cache at a location, or NULL if the location is not available. */
static rcv_status path_at(const rcvi_import *import, int location, char **path) {
    *path = NULL;
    const bool named = import->folder && import->folder[0] != '\0';
    if (location == NEXT_TO_TEXT)
        return named ? path_in_folder(import, import->folder, "", path) : path_next_to_text(import, path);
    if (named) return RCV_OK;
    const char *caches = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (caches && caches[0] == '/') return path_in_folder(import, caches, "/recurve", path);
    if (home && home[0] == '/') return path_in_folder(import, home, "/.cache/recurve", path);
    return RCV_OK;
}

/* Opens a valid cache; *file is -1 if there is none. */
static rcv_status find_file(rcvi_import *import, rcvi_token_cache_header *h, int *file) {
    *file = -1;
    for (int location = 0; location < LOCATIONS && *file < 0; location++) {
        char *path;
        RCVI_TRY(path_at(import, location, &path));
        if (!path) continue;
        if (rcvi_open_trusted(import->context, path, file)) rcvi_log(import->context, "%s", rcv_message());
        bool good = false;
        rcv_status status = *file >= 0 ? check_file(import, *file, path, h, &good) : RCV_OK;
        if (*file >= 0 && !good) {
            close(*file);
            *file = -1;
        }
        rcvi_free(import->context, path);
        RCVI_TRY(status);
    }
    return RCV_OK;
}

/* Removes write permission for others, whatever the umask is: a cache that others can write is not trusted later. */
static void remove_write_permissions(int file) {
    struct stat info;
    if (fstat(file, &info) == 0 && (info.st_mode & (S_IWGRP | S_IWOTH)))
        (void)fchmod(file, info.st_mode & 0777 & ~(mode_t)(S_IWGRP | S_IWOTH));
}

/* Writes a temporary file, syncs it and renames it to `path`. Sets import->cannot_write if the path cannot be written. */
static rcv_status write_at(rcvi_import *import, const char *path, rcvi_token_cache_header *h, int *file) {
    size_t bytes = strlen(path) + 64;
    char *name = rcvi_new(import->context, bytes, 1);
    if (!name) return RCV_NO_MEMORY;
    *file = rcvi_create_temporary(path, name, bytes);
    if (*file < 0 && errno == ENOENT && rcvi_make_parent_folders(import->context, path))
        *file = rcvi_create_temporary(path, name, bytes);
    import->cannot_write = *file < 0;
    if (*file >= 0) remove_write_permissions(*file);
    rcv_status status = *file < 0 ? RCV_IO : write_cache(import, *file, h);
    if (!status && (!rcvi_sync_file(*file) || rename(name, path) != 0)) {
        import->cannot_write = true;
        status = RCV_IO;
    }
    if (status && *file >= 0) {
        (void)unlink(name);
        close(*file);
        *file = -1;
    }
    rcvi_free(import->context, name);
    return status;
}

static rcv_status write_unlinked(rcvi_import *import, rcvi_token_cache_header *h, int *file) {
    const char *folder = getenv("TMPDIR");
    rcvi_text name;
    char *path;
    rcvi_text_init(&name, import->context);
    rcvi_text_add(&name, "%s/recurve-tokens-XXXXXX", folder && folder[0] == '/' ? folder : "/tmp");
    RCVI_TRY(rcvi_text_take(&name, &path));
    *file = mkstemp(path);
    rcv_status status = RCV_OK;
    if (*file < 0)
        status = rcvi_fail(RCV_IO, "cannot write the tokens of %s, not even to the temporary file %s: %s",
                           import->source.path, path, strerror(errno));
    else
        (void)unlink(path);
    rcvi_free(import->context, path);
    return status ? status : write_cache(import, *file, h);
}

static rcv_status create_file(rcvi_import *import, rcvi_token_cache_header *h, int *file) {
    const bool not_next_to_text = import->folder && import->folder[0] == '\0';
    RCVI_TRY(import->reader->count(import));
    for (int location = not_next_to_text ? USER_CACHE : NEXT_TO_TEXT; location < LOCATIONS; location++) {
        char *path;
        RCVI_TRY(path_at(import, location, &path));
        if (!path) continue;
        rcv_status status = write_at(import, path, h, file);
        rcvi_free(import->context, path);
        if (!status || !import->cannot_write) return status;
    }
    return write_unlinked(import, h, file);
}

/* ---- opening ---- */

static rcv_status open_file(rcvi_import *import, rcvi_token_cache_header *h, int *file) {
    RCVI_TRY(find_file(import, h, file));
    return *file >= 0 ? RCV_OK : create_file(import, h, file);
}

rcv_status rcvi_token_cache_open(rcvi_import *import, rcvi_data_file **out, int64_t offsets[RCVI_SECTIONS]) {
    rcvi_token_cache_header h;
    int file = -1;
    *out = NULL;
    rcv_status status = open_file(import, &h, &file);
    rcvi_free(import->context, import->vocabulary_text);
    import->vocabulary_text = NULL;
    if (!status) status = rcvi_data_file_new(import->context, file, import->source.path, NULL, out);
    if (file >= 0) close(file);
    if (status) return status;
    import->totals = h.totals;
    for (int i = 0; i < RCVI_SECTIONS; i++) offsets[i] = h.sections[i].offset;
    return RCV_OK;
}
