/* Recognises files of other formats by their first bytes, for a message that says what to do. */
#include "model/foreign_files.h"

#include <stdio.h>
#include <string.h>

static bool begins(const unsigned char *bytes, size_t length, const char *with, size_t count) {
    return length >= count && memcmp(bytes, with, count) == 0;
}

static bool contains(const unsigned char *bytes, size_t length, const char *text) {
    size_t count = strlen(text);
    for (size_t i = 0; i + count <= length; i++)
        if (memcmp(bytes + i, text, count) == 0) return true;
    return false;
}

#define BEGINS(text) begins(bytes, length, text, sizeof(text) - 1)

static bool is_zip(const unsigned char *bytes, size_t length) { return BEGINS("PK\3\4"); }

/* torch.save: a zip archive whose first member is NAME/data.pkl or a file beside it; before version 1.6 a pickle of a magic number. */
static bool is_pytorch(const unsigned char *bytes, size_t length) {
    bool is_archive =
        is_zip(bytes, length) && (contains(bytes, length, "/data.pkl") || contains(bytes, length, "/version") ||
                                  contains(bytes, length, "/byteorder") || contains(bytes, length, "/.format_version"));
    return is_archive || BEGINS("\x80\2\x8a\nl\xfc\x9c"
                                "F\xf9 j\xa8P\x19");
}

static bool is_npz(const unsigned char *bytes, size_t length) {
    return is_zip(bytes, length) && contains(bytes, length, ".npy");
}

static bool is_keras(const unsigned char *bytes, size_t length) {
    return is_zip(bytes, length) && contains(bytes, length, "metadata.json");
}

static bool is_pickle(const unsigned char *bytes, size_t length) {
    return length > 2 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5;
}

static bool is_numpy(const unsigned char *bytes, size_t length) { return BEGINS("\x93NUMPY"); }
static bool is_hdf5(const unsigned char *bytes, size_t length) { return BEGINS("\x89HDF\r\n\x1a\n"); }
static bool is_gguf(const unsigned char *bytes, size_t length) { return BEGINS("GGUF"); }
static bool is_gzip(const unsigned char *bytes, size_t length) { return BEGINS("\x1f\x8b"); }
static bool is_tar(const unsigned char *bytes, size_t length) {
    return length > 262 && memcmp(bytes + 257, "ustar", 5) == 0;
}
static bool is_pointer(const unsigned char *bytes, size_t length) { return BEGINS("version https://git-lfs"); }

/* A ModelProto: field 1, the version, as a number below 32; then one of the fields 2 to 8, which are texts and messages. */
static bool is_onnx(const unsigned char *bytes, size_t length) {
    return length > 3 && bytes[0] == 0x08 && bytes[1] > 0 && bytes[1] < 32 && (bytes[2] & 7) == 2 && bytes[2] >= 0x12 &&
           bytes[2] <= 0x42;
}

static bool is_page(const unsigned char *bytes, size_t length) {
    static const char *const tags[] = {"<!doctype html", "<html", "<?xml"};
    size_t at = BEGINS("\xef\xbb\xbf") ? 3 : 0;
    while (at < length && (bytes[at] == ' ' || (bytes[at] >= 9 && bytes[at] <= 13))) at++;
    for (size_t t = 0; t < sizeof tags / sizeof *tags; t++) {
        size_t i = 0;
        for (; tags[t][i] && at + i < length; i++) {
            unsigned char c = bytes[at + i];
            if ((c >= 'A' && c <= 'Z' ? c + 32 : c) != tags[t][i]) break;
        }
        if (!tags[t][i]) return true;
    }
    return false;
}

/* UTF-8 without control characters. A character may be cut at the end of a long beginning. */
static bool is_text(const unsigned char *bytes, size_t length) {
    for (size_t at = 0, character; at < length; at += character) {
        uint32_t code;
        character = rcvi_utf8_character((const char *)bytes + at, length - at, &code);
        if (!character) return at + 4 > length && length == RCVI_FOREIGN_BYTES;
        if (code < ' ' && !(code >= 9 && code <= 13)) return false;
    }
    return length > 0;
}

/* %s: the file's name with the ending .safetensors */
#define FROM_ARRAYS "write its arrays in Python by safetensors.numpy.save_file({...}, \"%s\")"
#define FROM_MODULE "write it in Python by safetensors.torch.save_file(module.state_dict(), \"%s\")"

/* In this order: the first that applies. */
static const struct {
    bool (*applies)(const unsigned char *bytes, size_t length);
    const char *what, *advice;
} kinds[] = {
    {is_pytorch, "a PyTorch pickle", FROM_MODULE},
    {is_npz, "an archive of NumPy arrays", FROM_ARRAYS},
    {is_keras, "a Keras model", FROM_ARRAYS},
    {is_zip, "a zip archive", "unpack it, and give the file inside"},
    {is_pickle, "a Python pickle", FROM_MODULE},
    {is_numpy, "a NumPy array", FROM_ARRAYS},
    {is_hdf5, "an HDF5 file, as Keras writes", FROM_ARRAYS},
    {is_onnx, "an ONNX model", "write the weights from the program that made it, by safetensors.torch.save_file"},
    {is_gguf, "a GGUF file", "get the model as safetensors"},
    {is_gzip, "compressed by gzip", "unpack it with gunzip"},
    {is_tar, "a tar archive", "unpack it with tar -xf, and give the file inside"},
    {is_pointer, "a pointer of Git LFS", "get the file itself with git lfs pull"},
    {is_page, "an HTML page", "a download gave the page in place of the file: get the file itself"},
    {is_text, "a text", "give a model that recurve train or recurve init wrote, or tensors"},
};

/* The last part of the path, with the ending .safetensors in place of its own. */
static void name_safetensors(const char *file, char *name, size_t room) {
    const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file, *dot = strrchr(base, '.');
    int length = dot && dot > base ? (int)(dot - base) : (int)strlen(base);
    snprintf(name, room, "%.*s.safetensors", length < 100 ? length : 100, base);
}

rcv_status rcvi_refuse_foreign_file(const char *file, const unsigned char *bytes, size_t length) {
    if (length == 0) return rcvi_fail(RCV_FORMAT, "%s is empty, not safetensors: make it or copy it again", file);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!kinds[i].applies(bytes, length)) continue;
        char name[128], advice[256];
        name_safetensors(file, name, sizeof name);
        snprintf(advice, sizeof advice, kinds[i].advice, name);
        return rcvi_fail(RCV_FORMAT, "%s is %s, not safetensors: %s", file, kinds[i].what, advice);
    }
    return RCV_OK;
}
