/* Conversion of tensor elements between types. */
#include "model/tensors.h"

#include <string.h>

static float widen_float16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    uint32_t bits;
    float value;
    if (exponent == 0) {
        /* Zero or subnormal: fraction * 2^-24, exact in float. */
        value = (float)fraction * 0x1p-24f;
        memcpy(&bits, &value, sizeof bits);
        bits |= sign;
    } else if (exponent == 0x1f) {
        bits = sign | UINT32_C(0x7f800000) | fraction << 13;
    } else {
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float widen_bfloat16(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Uses memcpy, because data of a caller may be unaligned. */
static double float_at(const rcv_tensor *tensor, size_t index) {
    const char *data = tensor->data;
    uint16_t half;
    float single;
    double value;
    switch (tensor->dtype) {
    case RCV_FLOAT64: memcpy(&value, data + index * sizeof value, sizeof value); return value;
    case RCV_FLOAT32: memcpy(&single, data + index * sizeof single, sizeof single); return (double)single;
    default:
        memcpy(&half, data + index * sizeof half, sizeof half);
        return (double)(tensor->dtype == RCV_FLOAT16 ? widen_float16(half) : widen_bfloat16(half));
    }
}

static int64_t integer_at(const rcv_tensor *tensor, size_t index) {
    const char *data = tensor->data;
    int64_t value;
    int32_t narrow;
    switch (tensor->dtype) {
    case RCV_INT64: memcpy(&value, data + index * sizeof value, sizeof value); return value;
    case RCV_INT32: memcpy(&narrow, data + index * sizeof narrow, sizeof narrow); return narrow;
    case RCV_BOOL: return ((const uint8_t *)data)[index] != 0;
    default: return ((const uint8_t *)data)[index];
    }
}

static void convert_floats(const rcv_tensor *tensor, rcv_dtype dtype, size_t count, void *out) {
    for (size_t i = 0; i < count; i++) {
        double value = float_at(tensor, i);
        if (dtype == RCV_FLOAT64)
            ((double *)out)[i] = value;
        else
            ((float *)out)[i] = (float)value;
    }
}

/* Checks that all values fit before it writes the first. */
static rcv_status convert_integers(const rcv_tensor *tensor, rcv_dtype dtype, size_t count, void *out) {
    int64_t low = dtype == RCV_INT64 ? INT64_MIN : dtype == RCV_INT32 ? INT32_MIN : 0;
    int64_t high = dtype == RCV_INT64 ? INT64_MAX : dtype == RCV_INT32 ? INT32_MAX : dtype == RCV_UINT8 ? UINT8_MAX : 1;
    char shown[RCVI_ESCAPED_NAME];
    for (size_t i = 0; i < count; i++) {
        int64_t value = integer_at(tensor, i);
        if (value < low || value > high)
            return rcvi_fail(RCV_INVALID, "tensor %s has the value %lld, which does not fit %s",
                             rcvi_escape_name(tensor->name, shown), (long long)value, rcv_dtype_name(dtype));
    }
    for (size_t i = 0; i < count; i++) {
        int64_t value = integer_at(tensor, i);
        if (dtype == RCV_INT64)
            ((int64_t *)out)[i] = value;
        else if (dtype == RCV_INT32)
            ((int32_t *)out)[i] = (int32_t)value;
        else
            ((uint8_t *)out)[i] = (uint8_t)value;
    }
    return RCV_OK;
}

static bool is_float(rcv_dtype dtype) {
    return dtype == RCV_FLOAT32 || dtype == RCV_FLOAT64 || dtype == RCV_FLOAT16 || dtype == RCV_BFLOAT16;
}

rcv_status rcv_tensor_convert(const rcv_tensor *tensor, rcv_dtype dtype, size_t count, void *out) {
    RCVI_NEED(tensor, "tensor");
    RCVI_NEED(out || count == 0, "out");
    if (!tensor->name) return rcvi_fail(RCV_INVALID, "rcv_tensor_convert needs a tensor with a name");
    size_t from = rcv_dtype_bytes(tensor->dtype), to = rcv_dtype_bytes(dtype);
    char shown[RCVI_ESCAPED_NAME];
    rcvi_escape_name(tensor->name, shown);
    if (from == 0 || to == 0)
        return rcvi_fail(RCV_INVALID, "tensor %s cannot be converted from or to an unknown dtype", shown);
    if (count > SIZE_MAX / from || tensor->bytes != count * from)
        return rcvi_fail(RCV_INVALID, "tensor %s has %zu elements; %zu are expected", shown, tensor->bytes / from,
                         count);
    if (count == 0) return RCV_OK;
    if (!tensor->data) return rcvi_fail(RCV_INVALID, "tensor %s has no data", shown);
    const rcvi_range ranges[] = {{out, count * to, "out", true}, {tensor->data, tensor->bytes, "tensor->data", false}};
    RCVI_TRY(rcvi_check_overlap("rcv_tensor_convert", ranges, 2));
    if (tensor->dtype == dtype && dtype != RCV_BOOL) {
        memcpy(out, tensor->data, tensor->bytes);
        return RCV_OK;
    }
    if (is_float(tensor->dtype) != is_float(dtype))
        return rcvi_fail(RCV_INVALID, "tensor %s is %s and cannot be read as %s", shown, rcv_dtype_name(tensor->dtype),
                         rcv_dtype_name(dtype));
    if (dtype == RCV_FLOAT16 || dtype == RCV_BFLOAT16)
        return rcvi_fail(RCV_UNSUPPORTED, "tensor %s is %s and cannot be narrowed to %s", shown,
                         rcv_dtype_name(tensor->dtype), rcv_dtype_name(dtype));
    if (!is_float(dtype)) return convert_integers(tensor, dtype, count, out);
    convert_floats(tensor, dtype, count, out);
    return RCV_OK;
}
