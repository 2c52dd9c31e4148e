/* math_cases.h - operands and comparison that the tests of src/math share.
 *
 * Fills blocks with every pair of a type's special values, then with seeded random bits, and compares
 * blocks bit for bit, where any NaN equals any NaN. */
#ifndef MATH_CASES_H
#define MATH_CASES_H
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <cmocka.h>

#include "base/isa.h"
#include "run/loops.h"

enum { N = 4096 };

typedef union block {
    _Alignas(64) unsigned char u8[N * 8];
    int8_t i8[N * 8];
    uint16_t u16[N * 4];
    int16_t i16[N * 4];
    int32_t i32[N * 2];
    int64_t i64[N];
    float f32[N * 2];
    double f64[N];
} block;

static inline uint64_t next_random(uint64_t *s) {
    uint64_t z = (*s += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static const double float_specials[] = {
    0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 2, -2, 3, -3, 0x1p-149, -0x1p-149, 0x1.8p-140, 0x1p-126,
    0x1.fffffcp-127, 127.5, 128, 255, 256, -129, 32767.5, 65504, 65520, 0x1p-24, 0x1p-25, 0x1.004p-14,
    8388607.5, 8388608, 2147483647, 2147483648.0, -2147483648.0, -2147483904.0, 4294967296.0, 0x1.fffffep127,
    0x1p63, -0x1p63, 0x1.8p63, 0x1p64, -0x1.000002p63, 1e10, -1e-10, INFINITY, -INFINITY, NAN,
};
static const int64_t int_specials[] = {
    0, 1, -1, 2, -2, 3, 5, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, -7, -64, 100, 127, -128, 128, 255, 32767,
    -32768, 65535, 2147483647, -2147483647 - 1, 4294967296, INT64_MAX, INT64_MAX - 1, INT64_MIN,
    INT64_MIN + 1, 0x20000000000001,
};
enum {
    N_FLOAT = sizeof float_specials / sizeof *float_specials,
    N_INT = sizeof int_specials / sizeof *int_specials,
};

static inline void put_special(block *b, kiln_dtype t, int i, int which) {
    double f = float_specials[which % N_FLOAT];
    int64_t v = int_specials[which % N_INT];
    switch (t) {
    case KILN_BOOL: b->u8[i] = (unsigned char)(which & 1); break;
    case KILN_U8: case KILN_I8: b->i8[i] = (int8_t)v; break;
    case KILN_I16: case KILN_U16: b->i16[i] = (int16_t)v; break;
    case KILN_I32: case KILN_U32: b->i32[i] = (int32_t)v; break;
    case KILN_I64: case KILN_U64: b->i64[i] = v; break;
    case KILN_F16: case KILN_BF16: b->u16[i] = (uint16_t)(v * 0x101); break;
    case KILN_F32: b->f32[i] = (float)f; break;
    case KILN_F64: b->f64[i] = f; break;
    case KILN_C64: case KILN_C128: /* in blocks only as parts */
    case KILN_DTYPE_COUNT: break;
    }
}

/* Random bits, of which half the floats are moderate and half the integers small. */
static inline void put_random(block *b, kiln_dtype t, int i, uint64_t *seed) {
    uint64_t r = next_random(seed);
    double moderate = (double)(int64_t)next_random(seed) * 0x1p-58;
    size_t size = kiln_dtype_size(t);
    if (t == KILN_BOOL) r &= 1;
    else if (kiln_dtype_is_int(t) && (r >> 63)) r = (uint64_t)((int64_t)(r % 41) - 20);
    memcpy(b->u8 + (size_t)i * size, &r, size);
    if (t == KILN_F32 && (r >> 63)) b->f32[i] = (float)moderate;
    if (t == KILN_F64 && (r >> 62 & 1)) b->f64[i] = moderate;
}

/* Operand number `which` of three: the first two run through all pairs of special values. */
static inline void fill(block *b, kiln_dtype t, int which) {
    int n = kiln_dtype_is_float(t) ? N_FLOAT : N_INT;
    uint64_t seed = (uint64_t)which * 1000 + (uint64_t)t;
    for (int i = 0; i < N; i++) {
        if (i < n * n) put_special(b, t, i, which == 0 ? i % n : which == 1 ? i / n : i % 7);
        else put_random(b, t, i, &seed);
    }
}

static inline bool is_nan_at(const block *b, kiln_dtype t, int i) {
    if (t == KILN_F16) return (b->u16[i] & 0x7fff) > 0x7c00;
    if (t == KILN_BF16) return (b->u16[i] & 0x7fff) > 0x7f80;
    return (t == KILN_F32 && isnan(b->f32[i])) || (t == KILN_F64 && isnan(b->f64[i]));
}

/* Index of the first element that differs, or -1. */
static inline int first_difference(const block *x, const block *y, kiln_dtype t, int n) {
    size_t size = kiln_dtype_size(t);
    for (int i = 0; i < n; i++) {
        if (memcmp(x->u8 + (size_t)i * size, y->u8 + (size_t)i * size, size) == 0) continue;
        if (!is_nan_at(x, t, i) || !is_nan_at(y, t, i)) return i;
    }
    return -1;
}

static inline uint64_t bits_at(const block *b, kiln_dtype t, int i) {
    uint64_t r = 0;
    memcpy(&r, b->u8 + (size_t)i * kiln_dtype_size(t), kiln_dtype_size(t));
    return r;
}
#endif
