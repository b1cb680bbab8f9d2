/* Tensor files: reading what was written, and messages for invalid files. */
#define _XOPEN_SOURCE 700

#include "scratch.h"
#include "test.h"

#include <dirent.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file of this header and `data_bytes` bytes 0, 1, 2, ... in memory; free it. */
static uint8_t *file_of(const char *header, size_t data_bytes, size_t *length) {
    size_t header_bytes = strlen(header);
    *length = 8 + header_bytes + data_bytes;
    uint8_t *file = malloc(*length);
    for (int i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)header_bytes >> 8 * i);
    for (size_t i = 0; i < header_bytes; i++) file[8 + i] = (uint8_t)header[i];
    for (size_t i = 0; i < data_bytes; i++) file[8 + header_bytes + i] = (uint8_t)i;
    return file;
}

static rcv_status parse(rcv_context *context, const char *header, size_t data_bytes, rcv_tensors **tensors) {
    size_t length;
    uint8_t *file = file_of(header, data_bytes, &length);
    rcv_status status = rcv_tensors_parse(context, file, length, "the-file", tensors);
    free(file);
    return status;
}

/* Tensors of every type, with values that show a wrong order or width. */
static rcv_tensors *sample(rcv_context *context) {
    static const uint8_t flags[3] = {1, 0, 1};
    static const float floats[6] = {1.5f, -2, 3, 4, 5, 6e30f};
    static const double doubles[2] = {1e300, -0.1};
    static const int64_t longs[2] = {INT64_MIN, INT64_C(1) << 40};
    static const int32_t ints[1] = {-5};
    static const uint16_t halves[2] = {0x3c00, 0x7bff};
    const rcv_tensor list[] = {
        {"flags", RCV_BOOL, 1, {3}, flags, 3},
        {"w.l0", RCV_FLOAT32, 2, {2, 3}, floats, 24},
        {"d", RCV_FLOAT64, 3, {1, 2, 1}, doubles, 16},
        {"lengths", RCV_INT64, 1, {2}, longs, 16},
        {"i", RCV_INT32, 0, {0}, ints, 4},
        {"half", RCV_FLOAT16, 1, {2}, halves, 4},
        {"brain", RCV_BFLOAT16, 1, {2}, halves, 4},
        {"bytes", RCV_UINT8, 1, {3}, flags, 3},
        {"empty", RCV_FLOAT64, 2, {0, 7}, NULL, 0},
        {"\"quoted\" \xc3\xa9\n", RCV_UINT8, 1, {1}, flags, 1},
    };
    rcv_tensors *tensors;
    check_ok(rcv_tensors_new(context, &tensors));
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) check_ok(rcv_tensors_add(tensors, &list[i]));
    check_ok(rcv_tensors_set_metadata(tensors, "text", "first"));
    check_ok(rcv_tensors_set_metadata(tensors, "cell", "line 1\nline \"2\"\t\xc3\xa9"));
    check_ok(rcv_tensors_set_metadata(tensors, "text", "second"));
    return tensors;
}

static void assert_same(const rcv_tensors *a, const rcv_tensors *b) {
    assert_int_equal(rcv_tensors_count(a), rcv_tensors_count(b));
    for (size_t i = 0; i < rcv_tensors_count(a); i++) {
        const rcv_tensor *left = rcv_tensors_at(a, i), *right = rcv_tensors_at(b, i);
        assert_string_equal(left->name, right->name);
        assert_int_equal(left->dtype, right->dtype);
        assert_int_equal(left->dims, right->dims);
        assert_memory_equal(left->shape, right->shape, sizeof left->shape);
        assert_int_equal(left->bytes, right->bytes);
        assert_memory_equal(left->data, right->data, left->bytes);
        assert_int_equal((uintptr_t)right->data % 8, 0);
        assert_ptr_equal(rcv_tensors_find(a, left->name), left);
    }
    assert_null(rcv_tensors_at(a, rcv_tensors_count(a)));
}

static void round_trip(void **state) {
    (void)state;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    rcv_tensors *tensors = sample(context), *loaded;
    const char *path = path_in("a.safetensors");
    int before = entries(scratch());
    check_ok(rcv_tensors_save(tensors, path));
    check_ok(rcv_tensors_load(context, path, &loaded));
    assert_same(tensors, loaded);
    assert_string_equal(rcv_tensors_metadata(loaded, "text"), "second");
    assert_string_equal(rcv_tensors_metadata(loaded, "cell"), "line 1\nline \"2\"\t\xc3\xa9");
    assert_null(rcv_tensors_metadata(loaded, "none"));
    assert_null(rcv_tensors_find(loaded, "none"));
    /* The same tensors give the same bytes; the data begins at a multiple of 8. */
    char again[512], first[4096], second[4096];
    snprintf(again, sizeof again, "%s", path_in("b.safetensors"));
    check_ok(rcv_tensors_save(loaded, again));
    FILE *one = fopen(path_in("a.safetensors"), "rb"), *two = fopen(again, "rb");
    size_t length = fread(first, 1, sizeof first, one);
    assert_int_equal(fread(second, 1, sizeof second, two), length);
    assert_memory_equal(first, second, length);
    assert_int_equal((uint8_t)first[0] % 8, 0);
    fclose(one);
    fclose(two);
    assert_int_equal(entries(scratch()), before + 2);
    unlink(path_in("a.safetensors"));
    unlink(again);
    rcv_tensors_free(loaded);
    rcv_tensors_free(tensors);
    test_context_end(&counting, context);
}

static void empty_file(void **state) {
    (void)state;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    rcv_tensors *tensors, *loaded;
    check_ok(rcv_tensors_new(context, &tensors));
    check_ok(rcv_tensors_save(tensors, path_in("empty")));
    check_ok(rcv_tensors_load(context, path_in("empty"), &loaded));
    assert_int_equal(rcv_tensors_count(loaded), 0);
    unlink(path_in("empty"));
    rcv_tensors_free(loaded);
    rcv_tensors_free(tensors);
    rcv_tensors_free(NULL);
    test_context_end(&counting, context);
}

static void well_formed(void **state) {
    (void)state;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    rcv_tensors *tensors;
    /* Offsets in another order than the names, an unaligned tensor, an empty one between, spaces at the end. */
    check_ok(parse(context,
                   "{\"b\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[1,5]},"
                   "\"e\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[1,1]},"
                   "\"a\":{\"data_offsets\":[0,1],\"shape\":[],\"dtype\":\"U8\"}}   ",
                   5, &tensors));
    assert_string_equal(rcv_tensors_at(tensors, 0)->name, "b");
    int32_t value;
    check_ok(rcv_tensor_convert(rcv_tensors_find(tensors, "b"), RCV_INT32, 1, &value));
    assert_int_equal(value, 0x04030201);
    assert_int_equal(rcv_tensors_find(tensors, "e")->bytes, 0);
    assert_int_equal(rcv_tensors_find(tensors, "a")->dims, 0);
    rcv_tensors_free(tensors);
    test_context_end(&counting, context);
}

typedef struct {
    const char *header;
    size_t data_bytes;
    const char *fragment;
} bad_header;

#define TENSOR(dtype, shape, offsets) "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const bad_header bad_headers[] = {
    {"", 0, "not a JSON object"},
    {"[]", 0, "not a JSON object"},
    {" {}", 0, "not a JSON object"},
    {"{", 0, "not valid JSON"},
    {"{}}", 0, "not valid JSON"},
    {"{\"a\":1,\"a\":2}", 0, "not valid JSON"},
    {"{\"a\xff\":1}", 0, "not valid JSON"},
    {"{\"a\\u0000b\":" TENSOR("\"U8\"", "[1]", "[0,1]") "}", 1, "not valid JSON"},
    {"{}", 3, "the last 3 bytes belong to no tensor"},
    {"{\"a\":3}", 0, "tensor a is not described by an object"},
    {"{\"a\":{}}", 0, "tensor a needs a text \"dtype\""},
    {"{\"a\":" TENSOR("5", "[1]", "[0,4]") "}", 4, "tensor a needs a text \"dtype\""},
    {"{\"a\":" TENSOR("\"F8_E4M3\"", "[1]", "[0,1]") "}", 1, "dtype F8_E4M3"},
    {"{\"a\":" TENSOR("\"I16\"", "[1]", "[0,2]") "}", 2, "dtype I16"},
    {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "needs a list \"shape\""},
    {"{\"a\":" TENSOR("\"U8\"", "1", "[0,1]") "}", 1, "needs a list \"shape\""},
    {"{\"a\":" TENSOR("\"U8\"", "[1.0]", "[0,1]") "}", 1, "not a list of integers"},
    {"{\"a\":" TENSOR("\"U8\"", "[-1]", "[0,1]") "}", 1, "not a list of integers"},
    {"{\"a\":" TENSOR("\"U8\"", "[-1,-1]", "[0,1]") "}", 1, "not a list of integers"},
    {"{\"a\":" TENSOR("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, "9 dimensions"},
    {"{\"a\":" TENSOR("\"U8\"", "[4294967296,4294967296]", "[0,0]") "}", 0, "too large"},
    {"{\"a\":" TENSOR("\"F64\"", "[2305843009213693952]", "[0,0]") "}", 0, "too large"},
    {"{\"a\":" TENSOR("\"U8\"", "[99999999999999999999]", "[0,1]") "}", 1, "not valid JSON"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "needs two integers \"data_offsets\""},
    {"{\"a\":" TENSOR("\"U8\"", "[1]", "[0]") "}", 1, "needs two integers"},
    {"{\"a\":" TENSOR("\"U8\"", "[1]", "[0,1,1]") "}", 1, "needs two integers"},
    {"{\"a\":" TENSOR("\"U8\"", "[1]", "[0,1.0]") "}", 1, "needs two integers"},
    {"{\"a\":" TENSOR("\"U8\"", "[1]", "{}") "}", 1, "needs two integers"},
    {"{\"a\":" TENSOR("\"U8\"", "[1]", "[-1,0]") "}", 1, "backwards or are negative"},
    {"{\"a\":" TENSOR("\"U8\"", "[1]", "[1,0]") "}", 1, "backwards or are negative"},
    {"{\"a\":" TENSOR("\"U8\"", "[2]", "[0,2]") "}", 1, "ends at byte 2 of the data, which has only 1"},
    {"{\"a\":" TENSOR("\"F32\"", "[2]", "[0,4]") "}", 4, "has 4 bytes of data, its shape [2] of float32 needs 8"},
    {"{\"a\":" TENSOR("\"U8\"", "[1]", "[1,2]") "}", 2, "1 bytes before tensor a belong to no tensor"},
    {"{\"a\":" TENSOR("\"U8\"", "[1]", "[0,1]") "}", 2, "the last 1 bytes belong to no tensor"},
    {"{\"a\":" TENSOR("\"U8\"", "[2]", "[0,2]") ",\"b\":" TENSOR("\"U8\"", "[2]", "[1,3]") "}", 3,
     "b overlaps tensor a"},
    {"{\"a\":" TENSOR("\"U8\"", "[2]", "[0,2]") ",\"b\":" TENSOR("\"U8\"", "[2]", "[0,2]") "}", 2, "overlaps tensor"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":1}}", 1, "has keys besides"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object of texts"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "the metadata k is not a text"},
    {"{\"__metadata__\":{\"k\":\"a\\u0000b\"}}", 0, "not valid JSON"},
};

static void malformed(void **state) {
    (void)state;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    for (size_t i = 0; i < sizeof bad_headers / sizeof *bad_headers; i++) {
        rcv_tensors *tensors = (rcv_tensors *)&counting;
        const bad_header *bad = &bad_headers[i];
        check_fails(parse(context, bad->header, bad->data_bytes, &tensors), RCV_FORMAT, bad->fragment);
        assert_int_equal(strncmp(rcv_message(), "the-file: ", 10), 0);
        assert_null(tensors);
        assert_null(strchr(rcv_message(), '\n'));
        assert_int_equal(counting.live, 1);
    }
    test_context_end(&counting, context);
}

static void lying_lengths(void **state) {
    (void)state;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    rcv_tensors *tensors;
    size_t length;
    uint8_t *file = file_of("{\"a\":" TENSOR("\"U8\"", "[4]", "[0,4]") "}", 4, &length);
    for (size_t cut = 0; cut < length; cut++) {
        assert_int_equal(rcv_tensors_parse(context, file, cut, "cut", &tensors), RCV_FORMAT);
        assert_null(tensors);
    }
    check_fails(rcv_tensors_parse(context, file, 7, "cut", &tensors), RCV_FORMAT, "too few");
    check_fails(rcv_tensors_parse(context, NULL, 0, "cut", &tensors), RCV_FORMAT, "cut is empty");
    check_fails(rcv_tensors_parse(context, file, 20, "cut", &tensors), RCV_FORMAT, "only 12 bytes follow");
    file[3] = 0x7f;
    check_fails(rcv_tensors_parse(context, file, length, "long", &tensors), RCV_FORMAT, "at most 100000000");
    memset(file, 0xff, 8);
    check_fails(rcv_tensors_parse(context, file, length, "long", &tensors), RCV_FORMAT, "at most 100000000");
    free(file);
    /* Deep nesting is refused, not followed. */
    char *deep = malloc(100002);
    memset(deep, '[', 100001);
    memcpy(deep, "{\"a\":", 5);
    deep[100001] = '\0';
    check_fails(parse(context, deep, 0, &tensors), RCV_FORMAT, "not valid JSON");
    free(deep);
    test_context_end(&counting, context);
}

static void bad_additions(void **state) {
    (void)state;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    rcv_tensors *tensors;
    float values[4] = {0};
    check_ok(rcv_tensors_new(context, &tensors));
    const rcv_tensor good = {"a", RCV_FLOAT32, 2, {2, 2}, values, sizeof values};
    rcv_tensor bad = good;
    check_ok(rcv_tensors_add(tensors, &good));
    check_fails(rcv_tensors_add(tensors, &good), RCV_INVALID, "already a tensor named a");
    bad.name = "";
    check_fails(rcv_tensors_add(tensors, &bad), RCV_INVALID, "a tensor with a name");
    bad.name = "__metadata__";
    check_fails(rcv_tensors_add(tensors, &bad), RCV_INVALID, "__metadata__");
    bad.name = "\xff";
    check_fails(rcv_tensors_add(tensors, &bad), RCV_INVALID, "UTF-8");
    bad.name = "b";
    bad.bytes = 15;
    check_fails(rcv_tensors_add(tensors, &bad), RCV_INVALID, "has 15 bytes, its shape [2, 2] of float32 needs 16");
    bad.bytes = 16;
    bad.shape[0] = -2;
    check_fails(rcv_tensors_add(tensors, &bad), RCV_INVALID, "negative or too large");
    bad.shape[0] = 2;
    bad.dims = 9;
    check_fails(rcv_tensors_add(tensors, &bad), RCV_INVALID, "9 dimensions");
    bad.dims = 2;
    bad.dtype = (rcv_dtype)77;
    check_fails(rcv_tensors_add(tensors, &bad), RCV_INVALID, "unknown dtype");
    bad.dtype = RCV_FLOAT32;
    bad.data = NULL;
    check_fails(rcv_tensors_add(tensors, &bad), RCV_INVALID, "no data");
    check_fails(rcv_tensors_set_metadata(tensors, "k", "\xc3"), RCV_INVALID, "UTF-8");
    assert_int_equal(rcv_tensors_count(tensors), 1);
    rcv_tensors_free(tensors);
    test_context_end(&counting, context);
}

static void conversions(void **state) {
    (void)state;
    static const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x8000, 0x7c00, 0x03ff, 0x7bff, 0x7e00};
    static const double half_values[] = {1, -2, 0x1p-24, -0.0, INFINITY, 1023 * 0x1p-24, 65504};
    static const uint16_t brains[] = {0x3f80, 0xc040, 0x0001};
    rcv_tensor tensor = {"t", RCV_FLOAT16, 1, {8}, halves, sizeof halves};
    double doubles[8];
    float floats[8];
    check_ok(rcv_tensor_convert(&tensor, RCV_FLOAT64, 8, doubles));
    check_ok(rcv_tensor_convert(&tensor, RCV_FLOAT32, 8, floats));
    for (int i = 0; i < 7; i++) {
        assert_true(doubles[i] == half_values[i] && (double)floats[i] == half_values[i]);
        assert_int_equal(signbit(doubles[i]) != 0, signbit(half_values[i]) != 0);
    }
    assert_true(isnan(doubles[7]) && isnan(floats[7]));
    tensor = (rcv_tensor){"t", RCV_BFLOAT16, 1, {3}, brains, sizeof brains};
    check_ok(rcv_tensor_convert(&tensor, RCV_FLOAT64, 3, doubles));
    assert_true(doubles[0] == 1 && doubles[1] == -3 && doubles[2] == 0x1p-133);
    check_fails(rcv_tensor_convert(&tensor, RCV_FLOAT64, 2, doubles), RCV_INVALID, "3 elements; 2 are expected");
    check_fails(rcv_tensor_convert(&tensor, RCV_INT64, 3, doubles), RCV_INVALID, "cannot be read as int64");
    check_fails(rcv_tensor_convert(&tensor, RCV_FLOAT16, 3, doubles), RCV_UNSUPPORTED, "narrowed");

    static const int64_t longs[] = {1, 0, 300};
    static const uint8_t flags[] = {7, 0, 1};
    int32_t ints[3];
    int64_t wide[3];
    uint8_t bytes[3] = {9, 9, 9};
    tensor = (rcv_tensor){"t", RCV_INT64, 1, {3}, longs, sizeof longs};
    check_ok(rcv_tensor_convert(&tensor, RCV_INT32, 3, ints));
    assert_int_equal(ints[2], 300);
    check_fails(rcv_tensor_convert(&tensor, RCV_UINT8, 3, bytes), RCV_INVALID, "300, which does not fit uint8");
    assert_int_equal(bytes[0], 9);
    tensor = (rcv_tensor){"t", RCV_BOOL, 1, {3}, flags, sizeof flags};
    check_ok(rcv_tensor_convert(&tensor, RCV_INT64, 3, wide));
    assert_true(wide[0] == 1 && wide[1] == 0 && wide[2] == 1);
    check_ok(rcv_tensor_convert(&tensor, RCV_BOOL, 3, bytes));
    assert_int_equal(bytes[0], 1);
    tensor.dtype = RCV_UINT8;
    check_ok(rcv_tensor_convert(&tensor, RCV_INT32, 3, ints));
    assert_int_equal(ints[0], 7);
}

static void unwritable(void **state) {
    (void)state;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    rcv_tensors *tensors = sample(context), *loaded;
    int before = entries(scratch());
    check_fails(rcv_tensors_save(tensors, path_in("none/file")), RCV_IO, "No such file");
    check_fails(rcv_tensors_save(tensors, scratch()), RCV_IO, "directory");
    check_fails(rcv_tensors_save(tensors, "/proc/recurve-cannot-write-here"), RCV_IO, "cannot write /proc");
    check_fails(rcv_tensors_save(tensors, "/dev/full"), RCV_IO, "No space");
    check_fails(rcv_tensors_load(context, path_in("none"), &loaded), RCV_IO, "No such file");
    assert_null(loaded);
    check_fails(rcv_tensors_load(context, scratch(), &loaded), RCV_IO, "is a directory");
    assert_int_equal(entries(scratch()), before);
    if (geteuid() != 0) {
        /* Root may write anywhere; others not in a directory that is read-only. */
        assert_int_equal(mkdir(path_in("locked"), 0500), 0);
        check_fails(rcv_tensors_save(tensors, path_in("locked/file")), RCV_IO, "Permission denied");
        assert_int_equal(entries(path_in("locked")), 0);
        rmdir(path_in("locked"));
    }
    rcv_tensors_free(tensors);
    test_context_end(&counting, context);
}

/* Every allocation fails once: a clean failure each time, and the old file stays. */
static void no_memory(void **state) {
    (void)state;
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    rcv_tensors *tensors = sample(context), *loaded;
    char path[512];
    snprintf(path, sizeof path, "%s", path_in("memory"));
    size_t live = counting.live, tries = 0;
    for (size_t n = 1;; n++, tries++) {
        counting.fail_at = n;
        rcv_status status = rcv_tensors_save(tensors, path);
        if (status == RCV_OK) break;
        assert_int_equal(status, RCV_NO_MEMORY);
        assert_int_equal(counting.live, live);
        assert_int_equal(access(path, F_OK), -1);
    }
    assert_true(tries >= 3);
    for (size_t n = 1;; n++, tries++) {
        counting.fail_at = n;
        rcv_status status = rcv_tensors_load(context, path, &loaded);
        if (status == RCV_OK) break;
        assert_int_equal(status, RCV_NO_MEMORY);
        assert_null(loaded);
        assert_int_equal(counting.live, live);
    }
    counting.fail_at = 0;
    assert_int_equal(counting.failed, tries);
    assert_true(tries > 30);
    assert_same(tensors, loaded);
    unlink(path);
    rcv_tensors_free(loaded);
    rcv_tensors_free(tensors);
    test_context_end(&counting, context);
}

#define BYTES(text) text, sizeof(text) - 1

/* Files of other formats: the message names the file, the format and what to do. Beginnings as the programs write them. */
static void foreign_files(void **state) {
    (void)state;
    static const struct {
        const char *name, *bytes;
        size_t length;
        const char *sentence;
    } files[] = {
        {"lstm.pt",
         BYTES(
             "PK\3\4\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0d\0\x12\0lstm/data.pklFB\x0e\0ZZZZ\x80\2}q\0X"),
         "lstm.pt is a PyTorch pickle, not safetensors: write it in Python by "
         "safetensors.torch.save_file(module.state_dict(), \"lstm.safetensors\")"},
        {"old.pth",
         BYTES("\x80\2\x8a\nl\xfc\x9c"
               "F\xf9 j\xa8P\x19.\x80\2M\xe9\3."),
         "old.pth is a PyTorch pickle"},
        {"a.b/model", BYTES("\x80\5\x95\x10\0\0\0\0\0\0\0}"), "\"model.safetensors\""},
        {"x.npz", BYTES("PK\3\4\x14\0\0\0\0\0\0\0!\0\0\0\0\0\0\0\0\0\0\0\0\0\5\0\x14\0x.npy"),
         "x.npz is an archive of NumPy arrays"},
        {"x.zip", BYTES("PK\3\4\x14\0\0\0\0\0\0\0!\0\0\0\0\0\0\0\0\0\0\0\0\0\5\0\x14\0x.txt"),
         "x.zip is a zip archive"},
        {"x.npy", BYTES("\x93NUMPY\1\0v\0{'descr': '<f4'"),
         "x.npy is a NumPy array, not safetensors: write its arrays"},
        {"m.h5", BYTES("\x89HDF\r\n\x1a\n\0\0\0\0"), "m.h5 is an HDF5 file"},
        {"m.onnx", BYTES("\x08\x08\x12\7pytorch\x1a\0052.1.0:"), "m.onnx is an ONNX model"},
        {"m.gguf", BYTES("GGUF\3\0\0\0\x23\1\0\0\0\0\0\0"), "m.gguf is a GGUF file"},
        {"m.gz", BYTES("\x1f\x8b\x08\0\0\0\0\0\0\3"), "m.gz is compressed by gzip"},
        {"m.safetensors", BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"),
         "git lfs pull"},
        {"page", BYTES("\xef\xbb\xbf\n <!DOCTYPE html>\n<html lang=\"en\">"), "page is an HTML page"},
        {"page", BYTES("<HTML><head><title>404</title>"), "page is an HTML page"},
        {"book.txt", BYTES("It was the best of times, it was the worst of times \xc3\xa9t\xc3\xa9\n"),
         "book.txt is a text, not safetensors: give a model"},
        {"none", BYTES(""), "none is empty"},
    };
    test_allocator counting;
    rcv_context *context = test_context(&counting);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        rcv_tensors *tensors = (rcv_tensors *)&counting;
        check_fails(rcv_tensors_parse(context, files[i].bytes, files[i].length, files[i].name, &tensors), RCV_FORMAT,
                    files[i].sentence);
        assert_null(tensors);
    }
    test_context_end(&counting, context);
}

int main(void) {
    if (!scratch_begin()) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),    cmocka_unit_test(empty_file),    cmocka_unit_test(well_formed),
        cmocka_unit_test(malformed),     cmocka_unit_test(lying_lengths), cmocka_unit_test(bad_additions),
        cmocka_unit_test(conversions),   cmocka_unit_test(unwritable),    cmocka_unit_test(no_memory),
        cmocka_unit_test(foreign_files),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return !scratch_end() || failed != 0;
}
