/* test_ulp.c - accuracy and special values of exp, log, tanh, sigmoid, erf, sin, cos and pow.
 *
 * Runs them through the interpreter's loops of every ISA level this machine has, on seeded samples, and
 * compares with libm in the next wider type.  Levels with FMA must stay within 2 units in the last place
 * and agree bit for bit; those without within 4.  Special values must be right at every level.  tanh and erf of
 * f32, which are made of pieces, must be odd and must nowhere decrease: on every float of a whole run, at the best
 * level and from 2^-14 to 16 in a sampled one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/isa.h"
#include "run/loops.h"
#include "sanitized.h"
#include "whole.h"

/* Of KILN_BLOCK points.  Sanitizers look at accesses, of which a block makes all kinds. */
enum { F32_BLOCKS = SANITIZED ? 128 : 1024, F64_BLOCKS = SANITIZED ? 32 : 200 };

typedef long double wide;

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static wide sigmoidl(wide x) { return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x)); }

static const struct fn {
    const char *name;
    kiln_prim prim;
    double (*ref)(double), (*ref2)(double, double);
    wide (*wide_ref)(wide), (*wide_ref2)(wide, wide);
    double range; /* where the interesting part of the axis ends */
} fns[] = {
    {"exp", KILN_P_EXP, exp, NULL, expl, NULL, 100},
    {"log", KILN_P_LOG, log, NULL, logl, NULL, 4},
    {"tanh", KILN_P_TANH, tanh, NULL, tanhl, NULL, 10},
    {"erf", KILN_P_ERF, erf, NULL, erfl, NULL, 6},
    {"sin", KILN_P_SIN, sin, NULL, sinl, NULL, 200},
    {"cos", KILN_P_COS, cos, NULL, cosl, NULL, 200},
    {"pow", KILN_P_POW, NULL, pow, NULL, powl, 20},
    {"sigmoid", KILN_P_SIGMOID, sigmoid, NULL, sigmoidl, NULL, 100},
};
enum { NFNS = sizeof fns / sizeof *fns };

static const kiln_isa levels[] = {KILN_ISA_GENERIC, KILN_ISA_V2, KILN_ISA_V3, KILN_ISA_V4, KILN_ISA_A64};
enum { NLEVELS = sizeof levels / sizeof *levels };

static bool level_has_fma(kiln_isa isa) {
    return isa == KILN_ISA_V3 || isa == KILN_ISA_V4 || isa == KILN_ISA_A64;
}

/* -- samples ---- */

static uint64_t seed;

static uint64_t next(void) {
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double unit(void) { return (double)(next() >> 11) * 0x1p-53; } /* in [0, 1) */

static float any_f32(void) {
    uint32_t bits = (uint32_t)next();
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double any_f64(void) {
    uint64_t bits = next();
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* One point of kind 0-3: any bits, the interesting range, near 1, any magnitude near 1. */
static double point(const struct fn *f, int kind, double any) {
    switch (kind) {
    case 0: return any;
    case 1: return (2 * unit() - 1) * f->range;
    case 2: return 1 + (2 * unit() - 1) * 0x1p-8;
    default: return ldexp(1 + unit(), (int)(next() % 80) - 50);
    }
}

/* An exponent for x.  Kinds as above, then: whole numbers, and results at the ends of the range. */
static double exponent(const struct fn *f, int kind, double x, double any, double max_log2) {
    switch (kind) {
    case 0: return any;
    case 1: return (2 * unit() - 1) * f->range;
    case 2: return (double)((int)(next() % 60) - 20);
    default: return (2 * unit() - 1) * max_log2 / log2(fabs(x));
    }
}

/* -- measuring ---- */

/* Distance from `got` to `want` in last places of a type with `bits` of fraction and exponents from `emin`
 * below 2^emax; infinity counts as 2^emax.  Huge where kinds or signs differ. */
static double distance(double got, wide want, int bits, int emin, int emax) {
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : HUGE_VAL;
    if (!signbit(got) != !signbit(want)) return HUGE_VAL;
    wide top = ldexpl(1, emax), a = fminl(fabsl((wide)got), top), b = fminl(fabsl(want), top);
    int e = emin;
    if (b > 0) {
        frexpl(b, &e);
        if (e < emin) e = emin;
        if (e > emax) e = emax;
    }
    return (double)(fabsl(a - b) / ldexpl(1, e - bits));
}

/* No NaN is the same. */
static bool same_number(double a, double b) { return a == b && !signbit(a) == !signbit(b); }

static void run(kiln_isa isa, const struct fn *f, kiln_dtype t, void *out, const void *a, const void *b) {
    kiln_loop_fn loop = kiln_loops_for(isa)->prim[f->prim][t];
    assert_non_null(loop);
    loop(out, a, b, NULL, KILN_BLOCK);
}

/* The worst of a block at one level is kept in *worst; fails naming the point if it is beyond the limit. */
static void judge(const struct fn *f, kiln_isa isa, double x, double y, double got, wide want, double d,
                  double *worst) {
    if (d > *worst) *worst = d;
    if (d <= (level_has_fma(isa) ? 2 : 4)) return;
    print_error("%s(%a, %a) at %s is %a, not %La: %g ulp\n", f->name, x, y, kiln_isa_name(isa), got, want, d);
    fail();
}

static void report(const struct fn *f, const char *type, const double *worst) {
    for (int l = 0; l < NLEVELS; l++) {
        if (!kiln_isa_runs(levels[l])) continue;
        print_message("%s_%s at %s: %.3f ulp\n", f->name, type, kiln_isa_name(levels[l]), worst[l]);
    }
}

/* -- f32 against double ---- */

static _Alignas(64) float xs[KILN_BLOCK], ys[KILN_BLOCK], out32[NLEVELS][KILN_BLOCK];

static void sample_f32(const struct fn *f, int block) {
    for (int i = 0; i < KILN_BLOCK; i++) {
        xs[i] = (float)point(f, block % 4, any_f32());
        ys[i] = (float)exponent(f, (block / 4) % 4, xs[i], any_f32(), 151);
    }
}

static bool same_f32(const float *a, const float *b) {
    for (int i = 0; i < KILN_BLOCK; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

static void check_f32(const struct fn *f) {
    double worst[NLEVELS] = {0};
    seed = 1;
    for (int block = 0; block < F32_BLOCKS; block++) {
        int last = -1; /* the level before, among those with FMA */
        sample_f32(f, block);
        for (int l = 0; l < NLEVELS; l++) {
            if (!kiln_isa_runs(levels[l])) continue;
            run(levels[l], f, KILN_F32, out32[l], xs, ys);
            if (!level_has_fma(levels[l])) continue;
            if (last >= 0) assert_true(same_f32(out32[last], out32[l]));
            last = l;
        }
        for (int i = 0; i < KILN_BLOCK; i++) {
            wide want = f->ref ? f->ref(xs[i]) : f->ref2(xs[i], ys[i]);
            double before = NAN, d = 0; /* of the last level: most give the same number */
            for (int l = 0; l < NLEVELS; l++) {
                if (!kiln_isa_runs(levels[l])) continue;
                double got = out32[l][i];
                if (!same_number(got, before)) d = distance(got, want, 24, -125, 128);
                before = got;
                judge(f, levels[l], xs[i], ys[i], got, want, d, &worst[l]);
            }
        }
    }
    report(f, "f32", worst);
}

static void test_f32(void **state) {
    (void)state;
    for (int i = 0; i < NFNS; i++) check_f32(&fns[i]);
}

/* -- f64 against long double ---- */

static _Alignas(64) double xd[KILN_BLOCK], yd[KILN_BLOCK], out64[NLEVELS][KILN_BLOCK];

static void sample_f64(const struct fn *f, int block) {
    for (int i = 0; i < KILN_BLOCK; i++) {
        xd[i] = point(f, block % 4, any_f64());
        yd[i] = exponent(f, (block / 4) % 4, xd[i], any_f64(), 1080);
    }
}

static bool same_f64(const double *a, const double *b) {
    for (int i = 0; i < KILN_BLOCK; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

static void check_f64(const struct fn *f) {
    double worst[NLEVELS] = {0};
    seed = 2;
    for (int block = 0; block < F64_BLOCKS; block++) {
        int last = -1;
        sample_f64(f, block);
        for (int l = 0; l < NLEVELS; l++) {
            if (!kiln_isa_runs(levels[l])) continue;
            run(levels[l], f, KILN_F64, out64[l], xd, yd);
            if (!level_has_fma(levels[l])) continue;
            if (last >= 0) assert_true(same_f64(out64[last], out64[l]));
            last = l;
        }
        for (int i = 0; i < KILN_BLOCK; i++) {
            wide want = f->wide_ref ? f->wide_ref(xd[i]) : f->wide_ref2(xd[i], yd[i]);
            double before = NAN, d = 0; /* of the last level: most give the same number */
            for (int l = 0; l < NLEVELS; l++) {
                if (!kiln_isa_runs(levels[l])) continue;
                double got = out64[l][i];
                if (!same_number(got, before)) d = distance(got, want, 53, -1021, 1024);
                before = got;
                judge(f, levels[l], xd[i], yd[i], got, want, d, &worst[l]);
            }
        }
    }
    report(f, "f64", worst);
}

static void test_f64(void **state) {
    (void)state;
    for (int i = 0; i < NFNS; i++) check_f64(&fns[i]);
}

/* -- special values, the same in both types unless a table says otherwise ---- */

typedef struct special {
    kiln_prim prim;
    double x, y, want;
} special;

#define INF HUGE_VAL
#define BIG32 0x1.fffffep+127
#define BIG64 0x1.fffffffffffffp+1023
#define TINY32 0x1p-149
#define TINY64 0x1p-1074

static const special both[] = {
    {KILN_P_EXP, 0.0, 0, 1},
    {KILN_P_EXP, -0.0, 0, 1},
    {KILN_P_EXP, INF, 0, INF},
    {KILN_P_EXP, -INF, 0, 0.0},
    {KILN_P_EXP, NAN, 0, NAN},
    {KILN_P_EXP, 1e4, 0, INF},
    {KILN_P_EXP, -1e4, 0, 0.0},
    {KILN_P_EXP, TINY32, 0, 1},
    {KILN_P_EXP, -BIG32, 0, 0.0},
    {KILN_P_LOG, 1, 0, 0.0},
    {KILN_P_LOG, 0.0, 0, -INF},
    {KILN_P_LOG, -0.0, 0, -INF},
    {KILN_P_LOG, INF, 0, INF},
    {KILN_P_LOG, -INF, 0, NAN},
    {KILN_P_LOG, -1, 0, NAN},
    {KILN_P_LOG, NAN, 0, NAN},
    {KILN_P_LOG, -TINY32, 0, NAN},
    {KILN_P_LOG, -BIG32, 0, NAN},
    {KILN_P_TANH, 0.0, 0, 0.0},
    {KILN_P_TANH, -0.0, 0, -0.0},
    {KILN_P_TANH, INF, 0, 1},
    {KILN_P_TANH, -INF, 0, -1},
    {KILN_P_TANH, NAN, 0, NAN},
    {KILN_P_TANH, 25, 0, 1},
    {KILN_P_TANH, -BIG32, 0, -1},
    {KILN_P_TANH, TINY32, 0, TINY32},
    {KILN_P_TANH, -0x1p-126, 0, -0x1p-126},
    {KILN_P_SIGMOID, 0.0, 0, 0.5},
    {KILN_P_SIGMOID, INF, 0, 1},
    {KILN_P_SIGMOID, -INF, 0, 0.0},
    {KILN_P_SIGMOID, NAN, 0, NAN},
    {KILN_P_SIGMOID, BIG32, 0, 1},
    {KILN_P_SIGMOID, -BIG32, 0, 0.0},
    {KILN_P_SIGMOID, -TINY32, 0, 0.5},
    {KILN_P_ERF, 0.0, 0, 0.0},
    {KILN_P_ERF, -0.0, 0, -0.0},
    {KILN_P_ERF, INF, 0, 1},
    {KILN_P_ERF, -INF, 0, -1},
    {KILN_P_ERF, NAN, 0, NAN},
    {KILN_P_ERF, 7, 0, 1},
    {KILN_P_ERF, -BIG32, 0, -1},
    {KILN_P_SIN, 0.0, 0, 0.0},
    {KILN_P_SIN, -0.0, 0, -0.0},
    {KILN_P_SIN, INF, 0, NAN},
    {KILN_P_SIN, -INF, 0, NAN},
    {KILN_P_SIN, NAN, 0, NAN},
    {KILN_P_SIN, TINY32, 0, TINY32},
    {KILN_P_SIN, -0x1p-126, 0, -0x1p-126},
    {KILN_P_COS, 0.0, 0, 1},
    {KILN_P_COS, -0.0, 0, 1},
    {KILN_P_COS, INF, 0, NAN},
    {KILN_P_COS, -INF, 0, NAN},
    {KILN_P_COS, NAN, 0, NAN},
    {KILN_P_COS, TINY32, 0, 1},
    {KILN_P_COS, -0x1p-126, 0, 1},
};

static const special only_f32[] = {
    {KILN_P_ERF, TINY32, 0, TINY32}, {KILN_P_ERF, -TINY32, 0, -TINY32}, {KILN_P_TANH, 0x1p-14, 0, 0x1p-14},
    {KILN_P_EXP, 89, 0, INF},        {KILN_P_EXP, -104, 0, 0.0},        {KILN_P_EXP, -103.5, 0, TINY32},
    {KILN_P_POW, 2, -149, TINY32},   {KILN_P_POW, 2, -150.5, 0.0},      {KILN_P_POW, 2, 128, INF},
    {KILN_P_POW, TINY32, -1, INF},   {KILN_P_POW, TINY32, 1, TINY32},   {KILN_P_POW, -TINY32, 1, -TINY32},
    {KILN_P_POW, BIG32, 1, BIG32},   {KILN_P_POW, -2, 16777216, INF},   {KILN_P_POW, -2, -16777215, -0.0},
};

static const special only_f64[] = {
    {KILN_P_EXP, 710, 0, INF},
    {KILN_P_EXP, -746, 0, 0.0},
    {KILN_P_EXP, -745, 0, TINY64},
    {KILN_P_TANH, TINY64, 0, TINY64},
    {KILN_P_SIN, -TINY64, 0, -TINY64},
    {KILN_P_COS, TINY64, 0, 1},
    {KILN_P_LOG, -TINY64, 0, NAN},
    {KILN_P_POW, 2, -1074, TINY64},
    {KILN_P_POW, 2, -1075.5, 0.0},
    {KILN_P_POW, 2, 1024, INF},
    {KILN_P_POW, TINY64, -1, INF},
    {KILN_P_POW, -TINY64, 1, -TINY64},
    {KILN_P_POW, BIG64, 1, BIG64},
    {KILN_P_POW, -2, 0x1p+53, INF},
    {KILN_P_POW, -2, -0x1.fffffffffffffp+52, -0.0},
    {KILN_P_POW, 3, 33, 5559060566555523.0},
    {KILN_P_POW, 10, 22, 1e22},
    {KILN_P_POW, -7, 17, -232630513987207.0},
};

static bool identical(double a, double b) {
    return (isnan(a) && isnan(b)) || (a == b && !signbit(a) == !signbit(b));
}

static double eval(kiln_isa isa, const struct fn *f, kiln_dtype t, double x, double y) {
    static _Alignas(64) float a32[KILN_BLOCK], b32[KILN_BLOCK], r32[KILN_BLOCK];
    static _Alignas(64) double a64[KILN_BLOCK], b64[KILN_BLOCK], r64[KILN_BLOCK];
    const int lane = 5;
    kiln_loop_fn loop = kiln_loops_for(isa)->prim[f->prim][t];
    for (int i = 0; i < 64; i++) a32[i] = b32[i] = 0.5f, a64[i] = b64[i] = 0.5; /* the neighbours are plain */
    a32[lane] = (float)x, b32[lane] = (float)y, a64[lane] = x, b64[lane] = y;
    if (t == KILN_F32) {
        loop(r32, a32, b32, NULL, 64);
        return r32[lane];
    }
    loop(r64, a64, b64, NULL, 64);
    return r64[lane];
}

static const struct fn *fn_of(kiln_prim p) {
    for (int i = 0; i < NFNS; i++)
        if (fns[i].prim == p) return &fns[i];
    return NULL;
}

static void check_special(const special *s, size_t n, kiln_dtype t) {
    for (size_t i = 0; i < n; i++) {
        const struct fn *f = fn_of(s[i].prim);
        for (int l = 0; l < NLEVELS; l++) {
            if (!kiln_isa_runs(levels[l])) continue;
            double got = eval(levels[l], f, t, s[i].x, s[i].y);
            if (identical(got, s[i].want)) continue;
            print_error("%s_%s(%a, %a) at %s is %a, not %a\n", f->name, kiln_dtype_name(t), s[i].x, s[i].y,
                        kiln_isa_name(levels[l]), got, s[i].want);
            fail();
        }
    }
}

static void test_special(void **state) {
    (void)state;
    check_special(both, sizeof both / sizeof *both, KILN_F32);
    check_special(both, sizeof both / sizeof *both, KILN_F64);
    check_special(only_f32, sizeof only_f32 / sizeof *only_f32, KILN_F32);
    check_special(only_f64, sizeof only_f64 / sizeof *only_f64, KILN_F64);
}

/* Every pair of these, whose results libm defines exactly: zeros, infinities, NaN, signs, small powers. */
static void test_pow_pairs(void **state) {
    static const double v[] = {0.0, -0.0, 1, -1, INF, -INF, NAN,  2,     -2,     0.5,    -0.5,
                               4,   -4,   3, -3, 2.5, -2.5, 1e30, -1e30, TINY32, -TINY32};
    enum { N = sizeof v / sizeof *v };
    (void)state;
    for (int i = 0; i < N * N * NLEVELS; i++) {
        double x = v[i % N], y = v[i / N % N];
        kiln_isa isa = levels[i / (N * N)];
        if (!kiln_isa_runs(isa)) continue;
        for (int wide_type = 0; wide_type < 2; wide_type++) {
            kiln_dtype t = wide_type ? KILN_F64 : KILN_F32;
            double want = t == KILN_F64 ? pow(x, y) : (double)(float)pow((float)x, (float)y);
            double got = eval(isa, fn_of(KILN_P_POW), t, x, y);
            double d = t == KILN_F64 ? distance(got, want, 53, -1021, 1024)
                                     : distance(got, want, 24, -125, 128);
            bool exact = isnan(want) || isinf(want) || want == 0 || rint(want) == want;
            if (exact && fabs(want) < 1000 ? identical(got, want) : d <= 1) continue;
            print_error("pow_%s(%a, %a) at %s is %a, not %a\n", kiln_dtype_name(t), x, y, kiln_isa_name(isa),
                        got, want);
            fail();
        }
    }
}

/* Arguments of sin and cos that lie closest to a multiple of pi/2, and the largest ones. */
static void test_huge_angles(void **state) {
    static const double x32[] = {BIG32,          0x1p+127, 16367173 * 0x1p+72, 0x1.47d0fep+34,
                                 0x1.000002p+17, 0x1p+17,  0x1.f5fcbp+60};
    static const double x64[] = {BIG64,   0x1p+1023, 6381956970095103 * 0x1p+797, 0x1.0000000000001p+25,
                                 0x1p+25, 1e22};
    const struct fn *both_fns[] = {fn_of(KILN_P_SIN), fn_of(KILN_P_COS)};
    (void)state;
    for (int l = 0; l < NLEVELS; l++) {
        if (!kiln_isa_runs(levels[l])) continue;
        for (int k = 0; k < 2; k++) {
            const struct fn *f = both_fns[k];
            double worst = 0;
            for (size_t i = 0; i < sizeof x32 / sizeof *x32; i++) {
                double got = eval(levels[l], f, KILN_F32, x32[i], 0), want = f->ref(x32[i]);
                judge(f, levels[l], x32[i], 0, got, want, distance(got, want, 24, -125, 128), &worst);
            }
            for (size_t i = 0; i < sizeof x64 / sizeof *x64; i++) {
                double got = eval(levels[l], f, KILN_F64, -x64[i], 0);
                wide want = f->wide_ref(-x64[i]);
                judge(f, levels[l], -x64[i], 0, got, want, distance(got, want, 53, -1021, 1024), &worst);
            }
        }
    }
}

/* -- floats in order ---- */

/* Whether loop(-x) is -loop(x) and no result is below the one before it, for the floats x whose bits are from `bits`
 * on, one block.  *last: bits of the result before; floats that are not negative are in the order of their bits. */
static bool block_rises(kiln_loop_fn loop, uint32_t bits, uint32_t *last) {
    static _Alignas(64) uint32_t in[KILN_BLOCK], out[KILN_BLOCK], below[KILN_BLOCK];
    uint32_t wrong = 0, before = *last;
    for (uint32_t i = 0; i < KILN_BLOCK; i++) in[i] = bits + i;
    loop(out, in, NULL, NULL, KILN_BLOCK);
    for (uint32_t i = 0; i < KILN_BLOCK; i++) in[i] |= 0x80000000u;
    loop(below, in, NULL, NULL, KILN_BLOCK);
    for (uint32_t i = 0; i < KILN_BLOCK; before = out[i++])
        wrong |= (out[i] < before) | (below[i] ^ out[i] ^ 0x80000000u);
    *last = before;
    return wrong == 0;
}

static void check_rises(kiln_isa isa, const struct fn *f) {
    kiln_loop_fn loop = kiln_loops_for(isa)->prim[f->prim][KILN_F32];
    uint32_t first = whole_run() ? 0 : 0x38800000, end = whole_run() ? 0x7f800000 : 0x41800000, last = 0;
    for (uint32_t bits = first; bits < end; bits += KILN_BLOCK) {
        if (block_rises(loop, bits, &last)) continue;
        print_error("%s_f32 at %s is not odd or decreases in the %d floats from %08x on\n", f->name,
                    kiln_isa_name(isa), KILN_BLOCK, (unsigned)bits);
        fail();
    }
    assert_int_equal(last, 0x3f800000); /* 1 */
}

static void test_rising(void **state) {
    (void)state;
    for (int l = 0; l < NLEVELS; l++) {
        if (!kiln_isa_runs(levels[l]) || (!whole_run() && levels[l] != kiln_isa_detect())) continue;
        check_rises(levels[l], fn_of(KILN_P_TANH));
        check_rises(levels[l], fn_of(KILN_P_ERF));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_special), cmocka_unit_test(test_pow_pairs), cmocka_unit_test(test_huge_angles),
        cmocka_unit_test(test_rising),  cmocka_unit_test(test_f32),       cmocka_unit_test(test_f64),
    };
    return cmocka_run_group_tests_name("ulp", tests, NULL, NULL);
}
