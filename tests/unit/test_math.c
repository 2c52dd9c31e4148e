/* test_math.c - the loops compiled into the interpreter.
 *
 * Every primitive, cast and copy, at every ISA level this machine runs, against scalar references on
 * special values and random bits; and the levels with FMA against each other. */
#include "math_cases.h"

/* What a level without FMA does for fma. */
static bool has_fma(kiln_isa isa) { return isa == KILN_ISA_V3 || isa == KILN_ISA_V4 || isa == KILN_ISA_A64; }

/* -- integer reference, in 64 bits; the caller keeps the low ones ---- */

static int64_t wrap_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static int64_t wrap_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static int64_t quotient(int64_t a, int64_t b) { return b == -1 ? wrap_sub(0, a) : a / b; }

static int64_t int_pow(int64_t a, int64_t e) {
    if (e < 0) return a == 1 ? 1 : a == -1 ? (e % 2 ? -1 : 1) : 0;
    uint64_t r = 1, x = (uint64_t)a;
    for (; e; e >>= 1, x *= x)
        if (e & 1) r *= x;
    return (int64_t)r;
}

static int64_t int_fma(int64_t a, int64_t b, int64_t c, bool is_bool) {
    return is_bool ? (a & b) | c : (int64_t)((uint64_t)wrap_mul(a, b) + (uint64_t)c);
}

static int64_t int_gcd(int64_t a, int64_t b, int bits, bool is_signed) {
    int64_t least = -(int64_t)((uint64_t)1 << (bits - 2)) * 2; /* its size wraps to itself */
    a = a < 0 && !(is_signed && a == least) ? -a : a;
    b = b < 0 && !(is_signed && b == least) ? -b : b;
    while (a != 0) {
        int64_t c = a;
        a = b % a;
        b = c;
    }
    return b;
}

/* *defined is cleared where prims.def promises nothing. */
static int64_t int_ref(kiln_prim p, int64_t a, int64_t b, int bits, bool is_signed, bool *defined) {
    int64_t q = 0, r = 0;
    if (p == KILN_P_IDIV || p == KILN_P_FLOORDIV || p == KILN_P_REM || p == KILN_P_MOD) {
        if (b == 0) return *defined = false;
        q = quotient(a, b);
        r = wrap_sub(a, wrap_mul(q, b));
    }
    switch (p) {
    case KILN_P_ADD: return bits == 1 ? a | b : (int64_t)((uint64_t)a + (uint64_t)b);
    case KILN_P_SUB: return wrap_sub(a, b);
    case KILN_P_MUL: return wrap_mul(a, b);
    case KILN_P_IDIV: return q;
    case KILN_P_FLOORDIV: return q - (r != 0 && (r < 0) != (b < 0));
    case KILN_P_REM: return r;
    case KILN_P_MOD: return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    case KILN_P_NEG: return wrap_sub(0, a);
    case KILN_P_ABS: return a < 0 ? wrap_sub(0, a) : a;
    case KILN_P_SIGN: return (a > 0) - (a < 0);
    case KILN_P_MAX: return a > b ? a : b;
    case KILN_P_MIN: return a < b ? a : b;
    case KILN_P_AND: return a & b;
    case KILN_P_OR: return a | b;
    case KILN_P_XOR: return a ^ b;
    case KILN_P_NOT: return ~a;
    case KILN_P_SHL: return b < 0 || b >= bits ? 0 : (int64_t)((uint64_t)a << b);
    case KILN_P_SHR: return b >= 0 && b < bits ? a >> b : is_signed && a < 0 ? -1 : 0;
    case KILN_P_EQ: return a == b;
    case KILN_P_NE: return a != b;
    case KILN_P_LT: return a < b;
    case KILN_P_LE: return a <= b;
    case KILN_P_GT: return a > b;
    case KILN_P_GE: return a >= b;
    case KILN_P_SIGNBIT: return a < 0;
    case KILN_P_POW: return int_pow(a, b);
    case KILN_P_GCD: return int_gcd(a, b, bits, is_signed);
    default: fail_msg("no integer reference for %s", kiln_prim_name(p));
    }
    return 0;
}

/* u64, where the order and division are not those of int64_t. */
static int64_t u64_ref(kiln_prim p, uint64_t a, uint64_t b, bool *defined) {
    uint64_t r = 1;
    switch (p) {
    case KILN_P_IDIV:
    case KILN_P_FLOORDIV: return b ? (int64_t)(a / b) : (*defined = false);
    case KILN_P_REM:
    case KILN_P_MOD: return b ? (int64_t)(a % b) : (*defined = false);
    case KILN_P_ABS: return (int64_t)a;
    case KILN_P_SIGN: return a > 0;
    case KILN_P_MAX: return (int64_t)(a > b ? a : b);
    case KILN_P_MIN: return (int64_t)(a < b ? a : b);
    case KILN_P_SHL: return b >= 64 ? 0 : (int64_t)(a << b);
    case KILN_P_SHR: return b >= 64 ? 0 : (int64_t)(a >> b);
    case KILN_P_LT: return a < b;
    case KILN_P_LE: return a <= b;
    case KILN_P_GT: return a > b;
    case KILN_P_GE: return a >= b;
    case KILN_P_SIGNBIT: return 0;
    case KILN_P_GCD:
        while (a) {
            r = b % a;
            b = a;
            a = r;
        }
        return (int64_t)b;
    case KILN_P_POW:
        for (; b; b >>= 1, a *= a)
            if (b & 1) r *= a;
        return (int64_t)r;
    default: return int_ref(p, (int64_t)a, (int64_t)b, 64, false, defined);
    }
}

/* -- float reference: F is the type, M(f) its libm spelling ---- */

#define F32(fn) fn##f
#define F64(fn) fn
#define FLOAT_REF(name, F, M)                                              \
    static F name##_floordiv(F a, F b) {                                   \
        if (b == 0) return a / b;                                          \
        F r = M(fmod)(a, b), q = (a - r) / b;                              \
        if (r != 0 && (b < 0) != (r < 0)) q -= 1;                          \
        if (q == 0) return M(copysign)(0, a / b);                          \
        F f = M(floor)(q);                                                 \
        return q - f > (F)0.5 ? f + 1 : f;                                 \
    }                                                                      \
    static F name##_mod(F a, F b) {                                        \
        F r = M(fmod)(a, b);                                               \
        return r != 0 && (b < 0) != (r < 0) ? r + b : r;                   \
    }                                                                      \
    static F name##_mantissa(F a) {                                        \
        int e;                                                             \
        return M(frexp)(a, &e);                                            \
    }                                                                      \
    static F name##_float(kiln_prim p, F a, F b, F c, bool fused) {        \
        volatile F product = a * b;                                        \
        switch (p) {                                                       \
        case KILN_P_ADD: return a + b;                                     \
        case KILN_P_SUB: return a - b;                                     \
        case KILN_P_MUL: return a * b;                                     \
        case KILN_P_DIV: return a / b;                                     \
        case KILN_P_FLOORDIV: return name##_floordiv(a, b);                \
        case KILN_P_REM: return M(fmod)(a, b);                             \
        case KILN_P_MOD: return name##_mod(a, b);                          \
        case KILN_P_NEG: return -a;                                        \
        case KILN_P_ABS: return M(fabs)(a);                                \
        case KILN_P_SIGN: return (F)((a > 0) - (a < 0));                   \
        case KILN_P_FMA: return fused ? M(fma)(a, b, c) : product + c;     \
        case KILN_P_MAX: return a > b || isnan(a) ? a : b;                 \
        case KILN_P_MIN: return a < b || isnan(a) ? a : b;                 \
        case KILN_P_COPYSIGN: return M(copysign)(a, b);                    \
        case KILN_P_NEXTAFTER: return M(nextafter)(a, b);                  \
        case KILN_P_FLOOR: return M(floor)(a);                             \
        case KILN_P_CEIL: return M(ceil)(a);                               \
        case KILN_P_TRUNC: return M(trunc)(a);                             \
        case KILN_P_ROUND: return M(nearbyint)(a);                         \
        case KILN_P_SQRT: return M(sqrt)(a);                               \
        case KILN_P_RSQRT: return 1 / M(sqrt)(a);                          \
        case KILN_P_MANTISSA: return name##_mantissa(a);                   \
        default: fail_msg("no float reference for %s", kiln_prim_name(p)); \
        }                                                                  \
        return 0;                                                          \
    }
FLOAT_REF(ref32, float, F32)
FLOAT_REF(ref64, double, F64)

static int float_test(kiln_prim p, double a, double b) {
    switch (p) {
    case KILN_P_EQ: return a == b;
    case KILN_P_NE: return a != b;
    case KILN_P_LT: return a < b;
    case KILN_P_LE: return a <= b;
    case KILN_P_GT: return a > b;
    case KILN_P_GE: return a >= b;
    case KILN_P_ISNAN: return isnan(a) != 0;
    case KILN_P_ISINF: return isinf(a) != 0;
    case KILN_P_SIGNBIT: return signbit(a) != 0;
    default: fail_msg("no test reference for %s", kiln_prim_name(p));
    }
    return 0;
}

/* Functions without an exact reference: libm in the next wider type. */
static bool elementary(kiln_prim p, long double a, long double b, long double *out) {
    switch (p) {
    case KILN_P_EXP: *out = expl(a); return true;
    case KILN_P_EXP_FLUSH: *out = expl(a); return a >= -87 && a <= 88; /* test_ulp2.c has the rest */
    case KILN_P_SIGMOID: *out = a < 0 ? expl(a) / (1 + expl(a)) : 1 / (1 + expl(-a)); return true;
    case KILN_P_LOG: *out = logl(a); return true;
    case KILN_P_TANH: *out = tanhl(a); return true;
    case KILN_P_ERF: *out = erfl(a); return true;
    case KILN_P_SIN: *out = sinl(a); return true;
    case KILN_P_COS: *out = cosl(a); return true;
    case KILN_P_EXP2: *out = exp2l(a); return true;
    case KILN_P_EXPM1: *out = expm1l(a); return true;
    case KILN_P_LOG1P: *out = log1pl(a); return true;
    case KILN_P_LOG2: *out = log2l(a); return true;
    case KILN_P_LOG10: *out = log10l(a); return true;
    case KILN_P_TAN: *out = tanl(a); return true;
    case KILN_P_ASIN: *out = asinl(a); return true;
    case KILN_P_ACOS: *out = acosl(a); return true;
    case KILN_P_ATAN: *out = atanl(a); return true;
    case KILN_P_ATAN2: *out = atan2l(a, b); return true;
    case KILN_P_SINH: *out = sinhl(a); return true;
    case KILN_P_COSH: *out = coshl(a); return true;
    case KILN_P_ASINH: *out = asinhl(a); return true;
    case KILN_P_ACOSH: *out = acoshl(a); return true;
    case KILN_P_ATANH: *out = atanhl(a); return true;
    case KILN_P_HYPOT: *out = hypotl(a, b); return true;
    case KILN_P_ERFC: *out = erfcl(a); return true;
    case KILN_P_POW: *out = powl(a, b); return true;
    default: return false;
    }
}

/* Whether got is within 2 units in the last place of want, counted where want rounds to. */
static bool near(double got, long double want, kiln_dtype t) {
    long double rounded = t == KILN_F32 ? (long double)(float)want : (long double)(double)want;
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
    if ((long double)got == rounded) return got != 0 || !signbit(got) == !signbit(rounded);
    int e = ilogbl(want), digits = t == KILN_F32 ? 23 : 52, least = t == KILN_F32 ? -149 : -1074;
    long double ulp = ldexpl(1, e - digits > least ? e - digits : least);
    long double top = t == KILN_F32 ? 0x1p128L : 0x1p1024L; /* one step past the largest number */
    return fabsl((isinf(got) ? copysignl(top, got) : got) - want) <= 2 * ulp;
}

/* -- one primitive on one type at one level ---- */

static int64_t int_at(const block *b, kiln_dtype t, int i) {
    switch (t) {
    case KILN_I8: return b->i8[i];
    case KILN_I16: return b->i16[i];
    case KILN_I32: return b->i32[i];
    case KILN_I64:
    case KILN_U64: return b->i64[i];
    case KILN_U16: return b->u16[i];
    case KILN_U32: return (uint32_t)b->i32[i];
    default: return b->u8[i];
    }
}

static void int_put(block *b, kiln_dtype t, int i, int64_t v) {
    memcpy(b->u8 + (size_t)i * kiln_dtype_size(t), &v, kiln_dtype_size(t));
}

static block in[3], got, want, first;

/* Writes the expected element i of out; false where any result will do. */
static bool expect(kiln_prim p, kiln_dtype t, kiln_isa isa, int i, block *out) {
    kiln_rule rule = kiln_prim_rule(p);
    bool defined = true, is_test = rule == KILN_RULE_CMP || rule == KILN_RULE_PRED;
    if (rule == KILN_RULE_SELECT) {
        size_t size = kiln_dtype_size(t);
        const block *from = in[0].u8[i] ? &in[1] : &in[2];
        memcpy(out->u8 + (size_t)i * size, from->u8 + (size_t)i * size, size);
    } else if (!kiln_dtype_is_float(t)) {
        int bits = t == KILN_BOOL ? 1 : 8 * (int)kiln_dtype_size(t);
        int64_t a = int_at(&in[0], t, i), b = int_at(&in[1], t, i), c = int_at(&in[2], t, i);
        int64_t r = p == KILN_P_FMA ? int_fma(a, b, c, t == KILN_BOOL)
                    : t == KILN_U64 ? u64_ref(p, (uint64_t)a, (uint64_t)b, &defined)
                                    : int_ref(p, a, b, bits, kiln_dtype_is_signed(t), &defined);
        int_put(out, is_test ? KILN_BOOL : t, i, t == KILN_BOOL ? r & 1 : r);
    } else if (is_test) {
        bool wide = t == KILN_F64;
        double a = wide ? in[0].f64[i] : in[0].f32[i], b = wide ? in[1].f64[i] : in[1].f32[i];
        out->u8[i] = (unsigned char)float_test(p, a, b);
    } else if (p == KILN_P_EXPONENT) {
        double a = t == KILN_F64 ? in[0].f64[i] : in[0].f32[i];
        int e = 0;
        if (isfinite(a)) frexp(a, &e);
        out->i32[i] = e;
    } else if (t == KILN_F32) {
        out->f32[i] = ref32_float(p, in[0].f32[i], in[1].f32[i], in[2].f32[i], has_fma(isa));
    } else {
        out->f64[i] = ref64_float(p, in[0].f64[i], in[1].f64[i], in[2].f64[i], has_fma(isa));
    }
    return defined;
}

static void complain(kiln_prim p, kiln_dtype t, kiln_dtype rt, kiln_isa isa, int i, const block *w) {
    fail_msg("%s_%s at %s, element %d: (%llx, %llx, %llx) -> %llx, expected %llx", kiln_prim_name(p),
             kiln_dtype_name(t), kiln_isa_name(isa), i, (unsigned long long)bits_at(&in[0], t, i),
             (unsigned long long)bits_at(&in[1], t, i), (unsigned long long)bits_at(&in[2], t, i),
             (unsigned long long)bits_at(&got, rt, i), (unsigned long long)bits_at(w, rt, i));
}

static void check_elementary(kiln_prim p, kiln_dtype t, kiln_isa isa) {
    for (int i = 0; i < N; i++) {
        double a = t == KILN_F64 ? in[0].f64[i] : in[0].f32[i];
        double b = t == KILN_F64 ? in[1].f64[i] : in[1].f32[i];
        double r = t == KILN_F64 ? got.f64[i] : got.f32[i];
        long double w = 0;
        if (!elementary(p, a, b, &w) || near(r, w, t)) continue;
        fail_msg("%s_%s(%a, %a) at %s: %a, expected %La", kiln_prim_name(p), kiln_dtype_name(t), a, b,
                 kiln_isa_name(isa), r, w);
    }
}

static void check_prim(kiln_prim p, kiln_dtype t, kiln_isa isa) {
    kiln_loop_fn loop = kiln_loops_for(isa)->prim[p][t];
    kiln_dtype rt = kiln_prim_result(p, t);
    long double unused;
    assert_non_null(loop);
    if (kiln_prim_trait(p) == KILN_TRAIT_SPECIAL) return; /* test_special.c has their references */
    for (int k = 0; k < 3; k++) fill(&in[k], t, k);
    if (kiln_prim_rule(p) == KILN_RULE_SELECT) fill(&in[0], KILN_BOOL, 0);
    memset(&got, 0xa5, sizeof got);
    loop(&got, &in[0], &in[1], &in[2], N);
    if (kiln_dtype_is_float(t) && elementary(p, 0, 0, &unused)) {
        check_elementary(p, t, isa);
        return;
    }
    for (int i = 0; i < N; i++)
        if (!expect(p, t, isa, i, &want)) int_put(&want, rt, i, (int64_t)bits_at(&got, rt, i));
    int at = first_difference(&got, &want, rt, N);
    if (at >= 0) complain(p, t, rt, isa, at, &want);
}

#define EACH_ISA(isa)                                   \
    for (kiln_isa isa = 0; isa < KILN_ISA_COUNT; isa++) \
        if (kiln_isa_runs(isa))
#define EACH_CAST(to, from)                              \
    for (kiln_dtype to = 0; to < KILN_DTYPE_COUNT; to++) \
        for (kiln_dtype from = 0; from < KILN_DTYPE_COUNT; from++)
#define EACH_PRIM(p, t)                             \
    for (kiln_prim p = 0; p < KILN_PRIM_COUNT; p++) \
        for (kiln_dtype t = 0; t < KILN_DTYPE_COUNT; t++)

static void prims_match_their_reference(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_PRIM(p, t) if (kiln_prim_types(p) & KILN_DT(t)) check_prim(p, t, isa);
}

static void tables_hold_exactly_what_prims_def_lists(void **state) {
    (void)state;
    EACH_ISA(isa) {
        const kiln_loops *l = kiln_loops_for(isa);
        EACH_PRIM(p, t) assert_int_equal(l->prim[p][t] != NULL, (kiln_prim_types(p) & KILN_DT(t)) != 0);
        for (int t = 0; t < KILN_DTYPE_COUNT; t++)
            assert_int_equal(l->gather[t] && l->scatter[t] && l->splat[t],
                             !kiln_dtype_is_complex((kiln_dtype)t));
        EACH_CAST(to, from) {
            if (kiln_dtype_is_complex(to) || kiln_dtype_is_complex(from)) continue;
            bool half = to == KILN_F16 || to == KILN_BF16 || from == KILN_F16 || from == KILN_BF16;
            bool exists = !half || to == from || to == KILN_F32 || from == KILN_F32;
            assert_int_equal(l->cast[to][from] != NULL, exists);
        }
    }
}

static void levels_with_fma_agree_on_every_bit(void **state) {
    (void)state;
    if (!kiln_isa_runs(KILN_ISA_V4)) skip();
    const kiln_loops *v3 = kiln_loops_for(KILN_ISA_V3), *v4 = kiln_loops_for(KILN_ISA_V4);
    EACH_PRIM(p, t) {
        kiln_dtype rt = kiln_prim_result(p, t);
        if (!v4->prim[p][t]) continue;
        for (int k = 0; k < 3; k++) fill(&in[k], t, k + 3);
        if (kiln_prim_rule(p) == KILN_RULE_SELECT) fill(&in[0], KILN_BOOL, 0);
        v3->prim[p][t](&got, &in[0], &in[1], &in[2], N);
        v4->prim[p][t](&want, &in[0], &in[1], &in[2], N);
        int at = first_difference(&got, &want, rt, N);
        if (at >= 0) complain(p, t, rt, KILN_ISA_V3, at, &want);
    }
}

/* -- casts ---- */

/* x86's answer for what does not fit. */
static int64_t to_int(double v, bool wide) {
    double limit = wide ? 0x1p63 : 0x1p31;
    bool fits = wide ? v >= -limit && v < limit : v > -limit - 1 && v < limit;
    return fits ? (int64_t)v : wide ? INT64_MIN : INT32_MIN;
}

static void cast_ref(kiln_dtype to, kiln_dtype from, const block *a, int i, block *out) {
    bool is_float = kiln_dtype_is_float(from);
    double f = from == KILN_F32 ? a->f32[i] : from == KILN_F64 ? a->f64[i] : 0;
    if (from == KILN_F16) f = kiln_half_to_f32(a->u16[i]);
    if (from == KILN_BF16) f = kiln_bf16_to_f32(a->u16[i]);
    bool wide = to == KILN_I64 || to == KILN_U32 || to == KILN_U64;
    int64_t v = is_float ? to_int(f, wide) : int_at(a, from, i);
    if (is_float && to == KILN_U64 && f >= 0x1p63)
        v = (int64_t)((uint64_t)to_int(f - 0x1p63, true) ^ (1ull << 63));
    bool big = from == KILN_U64;
    switch (to) {
    case KILN_BOOL: out->u8[i] = is_float ? f != 0 : v != 0; break;
    case KILN_F16: out->u16[i] = kiln_f32_to_half(a->f32[i]); break;
    case KILN_BF16: out->u16[i] = kiln_f32_to_bf16(a->f32[i]); break;
    case KILN_F32: out->f32[i] = is_float ? (float)f : big ? (float)(uint64_t)v : (float)v; break;
    case KILN_F64: out->f64[i] = is_float ? f : big ? (double)(uint64_t)v : (double)v; break;
    default: int_put(out, to, i, v);
    }
}

static void check_cast(kiln_dtype to, kiln_dtype from, kiln_isa isa, const char *what) {
    kiln_loops_for(isa)->cast[to][from](&got, &in[0], NULL, NULL, N);
    for (int i = 0; i < N; i++) {
        if (to == from)
            int_put(&want, to, i, (int64_t)bits_at(&in[0], from, i));
        else
            cast_ref(to, from, &in[0], i, &want);
    }
    int at = first_difference(&got, &want, to, N);
    if (at >= 0)
        fail_msg("cast_%s_%s at %s, %s element %d: %llx -> %llx, expected %llx", kiln_dtype_name(to),
                 kiln_dtype_name(from), kiln_isa_name(isa), what, at,
                 (unsigned long long)bits_at(&in[0], from, at), (unsigned long long)bits_at(&got, to, at),
                 (unsigned long long)bits_at(&want, to, at));
}

static void casts_match_their_reference(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_CAST(to, from) {
        if (!kiln_loops_for(isa)->cast[to][from]) continue;
        fill(&in[0], from, 0);
        check_cast(to, from, isa, "mixed");
    }
}

/* Every half to f32 and back, to the bit, NaN payloads included; and the floats half way between. */
static void halves_convert_exactly(void **state) {
    (void)state;
    EACH_ISA(isa) for (int base = 0; base < 65536; base += N) {
        const kiln_loops *l = kiln_loops_for(isa);
        for (int i = 0; i < N; i++) in[0].u16[i] = (uint16_t)(base + i);
        l->cast[KILN_F32][KILN_BF16](&got, &in[0], NULL, NULL, N);
        for (int i = 0; i < N; i++) assert_int_equal(bits_at(&got, KILN_F32, i), (uint64_t)(base + i) << 16);
        l->cast[KILN_F32][KILN_F16](&got, &in[0], NULL, NULL, N);
        l->cast[KILN_F16][KILN_F32](&want, &got, NULL, NULL, N);
        for (int i = 0; i < N; i++) {
            unsigned h = in[0].u16[i], quiet = (h & 0x7fff) > 0x7c00 ? 0x200 : 0;
            float f = kiln_half_to_f32((uint16_t)h);
            assert_memory_equal(&got.f32[i], &f, 4);
            assert_int_equal(want.u16[i], h | quiet);
        }
        for (int i = 0; i < N; i++) in[0].i32[i] = (int32_t)bits_at(&got, KILN_F32, i) + 0xfff + i % 3;
        check_cast(KILN_F16, KILN_F32, isa, "half way");
        for (unsigned i = 0; i < N; i++)
            in[0].i32[i] = (int32_t)((((unsigned)base + i) << 16) + 0x7fff + i % 3);
        check_cast(KILN_BF16, KILN_F32, isa, "half way");
    }
}

/* -- memory ---- */

static void check_copies(const kiln_loops *l, kiln_dtype t, int64_t step, size_t n) {
    size_t size = kiln_dtype_size(t);
    int64_t stride = step * (int64_t)size;
    static unsigned char memory[N * 8 + 1], after[N * 8 + 1];
    for (size_t i = 0; i < sizeof memory; i++) memory[i] = (unsigned char)(i * 37 + i / 251);
    memcpy(after, memory, sizeof after);
    char *base = (char *)memory + sizeof memory / 2 + 1; /* odd, so unaligned */
    memset(&got, 0xa5, sizeof got);
    l->gather[t](&got, base, stride, n);
    for (size_t i = 0; i < n; i++) {
        unsigned char one = base[(int64_t)i * stride] != 0;
        const void *from = t == KILN_BOOL ? (void *)&one : (void *)(base + (int64_t)i * stride);
        assert_memory_equal(got.u8 + i * size, from, size);
    }
    fill(&want, t, 5);
    l->scatter[t](base, stride, &want, n);
    char *mirror = (char *)after + (base - (char *)memory);
    for (size_t i = 0; i < n; i++) memcpy(mirror + (int64_t)i * stride, want.u8 + i * size, size);
    assert_memory_equal(memory, after, sizeof memory);
    l->splat[t](&got, &want, n);
    for (size_t i = 0; i < n; i++) assert_memory_equal(got.u8 + i * size, &want, size);
}

static void copies_touch_exactly_their_elements(void **state) {
    (void)state;
    static const int64_t steps[] = {1, 0, -1, 2, 3, -5};
    EACH_ISA(isa) {
        for (kiln_dtype t = 0; t < KILN_C64; t++) {
            for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
                for (size_t n = 0; n < 200; n += n < 70 ? 1 : 43)
                    check_copies(kiln_loops_for(isa), t, steps[s], n);
        }
    }
}

/* A loop may run to the next multiple of 64 elements and no further. */
static void loops_stay_inside_their_block(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_PRIM(p, t) {
        kiln_loop_fn loop = kiln_loops_for(isa)->prim[p][t];
        size_t size = kiln_dtype_size(kiln_prim_result(p, t));
        if (!loop) continue;
        memset(in, 0, sizeof in);
        for (size_t n = 0; n <= 130; n += 13) {
            memset(&got, 0xa5, sizeof got);
            memset(&first, 0xa5, sizeof first);
            loop(&got, &in[0], &in[1], &in[2], n);
            size_t end = (n + 63) / 64 * 64 * size;
            assert_memory_equal(got.u8 + end, first.u8 + end, 512);
        }
    }
}

static void a_level_that_does_not_run_falls_back(void **state) {
    (void)state;
    const kiln_loops *best = kiln_loops_for(kiln_isa_detect());
    for (kiln_isa isa = 0; isa < KILN_ISA_COUNT; isa++) {
        assert_non_null(kiln_loops_for(isa)->prim[KILN_P_ADD][KILN_F32]);
        if (isa > kiln_isa_detect()) assert_ptr_equal(kiln_loops_for(isa), best);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_hold_exactly_what_prims_def_lists),
        cmocka_unit_test(prims_match_their_reference),
        cmocka_unit_test(levels_with_fma_agree_on_every_bit),
        cmocka_unit_test(casts_match_their_reference),
        cmocka_unit_test(halves_convert_exactly),
        cmocka_unit_test(copies_touch_exactly_their_elements),
        cmocka_unit_test(loops_stay_inside_their_block),
        cmocka_unit_test(a_level_that_does_not_run_falls_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
