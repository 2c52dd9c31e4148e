/* number.c - one element of a tensor's memory <-> a number.
 *
 * Converts as PyTorch converts elements: integers wrap, reals round to nearest, and an f64 becomes a half by way of f32,
 * rounded twice.  Elements need
 * not be aligned.  Must not know tensors. */
#include <math.h>
#include <string.h>

#include "base/base.h"

kiln_value kiln_element_get(kiln_dtype dtype, const void *at) {
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        int64_t i64;
        float f[2];
        double d[2];
    } v;
    if (!at || (unsigned)dtype >= KILN_DTYPE_COUNT) return kiln_v_none();
    memcpy(&v, at, kiln_dtype_size(dtype));
    switch (dtype) {
    case KILN_BOOL: return kiln_v_bool(v.u8 != 0);
    case KILN_U8: return kiln_v_int(v.u8);
    case KILN_I8: return kiln_v_int(v.i8);
    case KILN_U16: return kiln_v_int(v.u16);
    case KILN_I16: return kiln_v_int(v.i16);
    case KILN_U32: return kiln_v_int(v.u32);
    case KILN_I32: return kiln_v_int(v.i32);
    case KILN_I64: return kiln_v_int(v.i64);
    case KILN_U64: return kiln_v_uint((uint64_t)v.i64);
    case KILN_F16: return kiln_v_float((double)kiln_half_to_f32(v.u16));
    case KILN_BF16: return kiln_v_float((double)kiln_bf16_to_f32(v.u16));
    case KILN_F32: return kiln_v_float((double)v.f[0]);
    case KILN_F64: return kiln_v_float(v.d[0]);
    case KILN_C64: return kiln_v_complex((double)v.f[0], (double)v.f[1]);
    case KILN_C128: return kiln_v_complex(v.d[0], v.d[1]);
    case KILN_DTYPE_COUNT: break;
    }
    return kiln_v_none();
}

int64_t kiln_real_to_int(double f, kiln_dtype t) {
    if (t == KILN_U64 && f >= 0x1p63 && f < 0x1p64) return (int64_t)(uint64_t)f;
    if (isnan(f) || f >= 0x1p63 || f < -0x1p63) return INT64_MIN;
    return (int64_t)f;
}

/* A number of any kind.  f: the f32 nearest to it, which an integer reaches in one rounding. */
typedef struct number {
    bool whole;
    int64_t i;
    double d[2];
    float f[2];
} number;

static bool number_of(const kiln_value *v, number *n) {
    switch (v->kind) {
    case KILN_BOOL_V:
    case KILN_INT_V: *n = (number){true, v->u.i, {(double)v->u.i}, {(float)v->u.i}}; return true;
    case KILN_UINT_V:
        *n = (number){true, v->u.i, {(double)(uint64_t)v->u.i}, {(float)(uint64_t)v->u.i}};
        return true;
    case KILN_FLOAT_V: *n = (number){false, 0, {v->u.f}, {(float)v->u.f}}; return true;
    case KILN_COMPLEX_V:
        *n = (number){false, 0, {v->u.c.re, v->u.c.im}, {(float)v->u.c.re, (float)v->u.c.im}};
        return true;
    default: return false;
    }
}

int kiln_element_set(kiln_dtype dtype, const kiln_value *v, void *at) {
    number n;
    uint16_t half;
    if (!at || !v || (unsigned)dtype >= KILN_DTYPE_COUNT || !number_of(v, &n)) return 0;
    if (!n.whole) n.i = kiln_real_to_int(n.d[0], dtype);
    switch (dtype) {
    case KILN_BOOL: *(uint8_t *)at = n.whole ? n.i != 0 : n.d[0] != 0 || n.d[1] != 0; break;
    case KILN_F16: memcpy(at, (half = kiln_f32_to_half(n.f[0]), &half), sizeof half); break;
    case KILN_BF16: memcpy(at, (half = kiln_f32_to_bf16(n.f[0]), &half), sizeof half); break;
    case KILN_F32: memcpy(at, n.f, sizeof *n.f); break;
    case KILN_F64: memcpy(at, n.d, sizeof *n.d); break;
    case KILN_C64: memcpy(at, n.f, sizeof n.f); break;
    case KILN_C128: memcpy(at, n.d, sizeof n.d); break;
    default:
        memcpy(at, &n.i, kiln_dtype_size(dtype)); /* little-endian: the low bytes are the wrapped value */
    }
    return 1;
}
