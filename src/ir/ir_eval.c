/* ir_eval.c - what an instruction makes of constant operands: the bits a kernel would compute.
 *
 * Integers wrap.  Floating-point goes only through operations that IEEE 754 defines to the last bit and
 * C performs as such; everything else (elementary functions, fma, conversions out of range) is
 * left to the kernel. */
#include <math.h>

#include "ir/ir_eval.h"

static int64_t wrap(kiln_dtype t, uint64_t v) {
    switch (t) {
    case KILN_BOOL: return v != 0;
    case KILN_U8: return (uint8_t)v;
    case KILN_I8: return (int8_t)(uint8_t)v;
    case KILN_I16: return (int16_t)(uint16_t)v;
    case KILN_I32: return (int32_t)(uint32_t)v;
    case KILN_U16: return (uint16_t)v;
    case KILN_U32: return (uint32_t)v;
    default: return (int64_t)v;
    }
}

/* The order of u64 on its bits: with the top bit turned, the order of i64. */
static int64_t ordered(kiln_dtype t, int64_t v) { return t == KILN_U64 ? v ^ INT64_MIN : v; }

static bool compare_i(kiln_prim p, int64_t a, int64_t b, int64_t *out) {
    switch (p) {
    case KILN_P_EQ: *out = a == b; return true;
    case KILN_P_NE: *out = a != b; return true;
    case KILN_P_LT: *out = a < b; return true;
    case KILN_P_LE: *out = a <= b; return true;
    case KILN_P_GT: *out = a > b; return true;
    case KILN_P_GE: *out = a >= b; return true;
    default: return false;
    }
}

static bool compare_f(kiln_prim p, double a, double b, int64_t *out) {
    switch (p) {
    case KILN_P_EQ: *out = a == b; return true;
    case KILN_P_NE: *out = a != b; return true;
    case KILN_P_LT: *out = a < b; return true;
    case KILN_P_LE: *out = a <= b; return true;
    case KILN_P_GT: *out = a > b; return true;
    case KILN_P_GE: *out = a >= b; return true;
    default: return false;
    }
}

static bool arith_i(kiln_prim p, kiln_dtype t, int64_t a, int64_t b, int64_t *out) {
    uint64_t x = (uint64_t)a, y = (uint64_t)b, r;
    bool more = ordered(t, a) > ordered(t, b);
    switch (p) {
    case KILN_P_ADD: r = x + y; break;
    case KILN_P_SUB: r = x - y; break;
    case KILN_P_MUL: r = x * y; break;
    case KILN_P_NEG: r = 0 - x; break;
    case KILN_P_ABS: r = a < 0 && t != KILN_U64 ? 0 - x : x; break;
    case KILN_P_MAX: r = more ? x : y; break;
    case KILN_P_MIN: r = more ? y : x; break;
    case KILN_P_AND: r = x & y; break;
    case KILN_P_OR: r = x | y; break;
    case KILN_P_XOR: r = x ^ y; break;
    case KILN_P_NOT: r = t == KILN_BOOL ? !x : ~x; break;
    default: return false;
    }
    *out = wrap(t, r);
    return true;
}

static bool arith_f32(kiln_prim p, float a, float b, double *out) {
    float r;
    switch (p) {
    case KILN_P_ADD: r = a + b; break;
    case KILN_P_SUB: r = a - b; break;
    case KILN_P_MUL: r = a * b; break;
    case KILN_P_DIV: r = a / b; break;
    case KILN_P_NEG: r = -a; break;
    case KILN_P_ABS: r = fabsf(a); break;
    default: return false;
    }
    *out = (double)r;
    return true;
}

static bool arith_f64(kiln_prim p, double a, double b, double *out) {
    switch (p) {
    case KILN_P_ADD: *out = a + b; return true;
    case KILN_P_SUB: *out = a - b; return true;
    case KILN_P_MUL: *out = a * b; return true;
    case KILN_P_DIV: *out = a / b; return true;
    case KILN_P_NEG: *out = -a; return true;
    case KILN_P_ABS: *out = fabs(a); return true;
    default: return false;
    }
}

bool kiln_ir_eval_prim(kiln_prim p, kiln_dtype t, const kiln_ir_imm *a, const kiln_ir_imm *b,
                       kiln_ir_imm *out) {
    if (t == KILN_F32 || t == KILN_F64) {
        if (compare_f(p, a->f, b->f, &out->i)) return true;
        bool done = t == KILN_F32 ? arith_f32(p, (float)a->f, (float)b->f, &out->f)
                                  : arith_f64(p, a->f, b->f, &out->f);
        if (done && isnan(out->f)) out->f = (double)NAN;
        return done;
    }
    return compare_i(p, ordered(t, a->i), ordered(t, b->i), &out->i) || arith_i(p, t, a->i, b->i, &out->i);
}

/* The least and one past the greatest value of an integer type; both are exact doubles. */
static void int_range(kiln_dtype t, double *low, double *past) {
    int bits = (int)kiln_dtype_size(t) * 8 - kiln_dtype_is_signed(t);
    *past = ldexp(1, bits);
    *low = kiln_dtype_is_signed(t) ? -*past : 0;
}

bool kiln_ir_eval_cast(kiln_dtype to, kiln_dtype from, const kiln_ir_imm *v, kiln_ir_imm *out) {
    bool from_float = from == KILN_F32 || from == KILN_F64;
    switch (to) {
    case KILN_BOOL: out->i = from_float ? v->f != 0 : v->i != 0; return true;
    case KILN_F32:
        out->f = (double)(from_float ? (float)v->f : from == KILN_U64 ? (float)(uint64_t)v->i : (float)v->i);
        return true;
    case KILN_F64:
        out->f = from_float ? v->f : from == KILN_U64 ? (double)(uint64_t)v->i : (double)v->i;
        return true;
    case KILN_F16:
    case KILN_BF16:
    case KILN_C64:
    case KILN_C128: return false;
    default: break;
    }
    if (!from_float) {
        out->i = wrap(to, (uint64_t)v->i);
        return true;
    }
    double low, past, whole = trunc(v->f);
    int_range(to, &low, &past);
    if (!(whole >= low && whole < past)) return false;
    out->i = to == KILN_U64 ? (int64_t)(uint64_t)whole : (int64_t)whole;
    return true;
}
