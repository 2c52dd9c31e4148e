/* test_ulp2.c - accuracy and special values of the functions of elementary2_f32.inc and elementary2_f64.inc.
 *
 * Runs them through the interpreter's loops of every ISA level this machine has, on seeded samples, and
 * compares with libm in long double.  Levels with FMA must stay within 2 units in the last place and agree
 * bit for bit; those without within 4.  Special values must be libm's at every level, exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/isa.h"
#include "run/loops.h"
#include "sanitized.h"

typedef long double wide;

static const struct fn {
    const char *name;
    kiln_prim prim;
    wide (*ref)(wide), (*ref2)(wide, wide);
    double range; /* where the interesting part of the axis ends */
} fns[] = {
    {"exp2", KILN_P_EXP2, exp2l, NULL, 150},   {"expm1", KILN_P_EXPM1, expm1l, NULL, 40},
    {"log1p", KILN_P_LOG1P, log1pl, NULL, 4},  {"log2", KILN_P_LOG2, log2l, NULL, 4},
    {"log10", KILN_P_LOG10, log10l, NULL, 4},  {"tan", KILN_P_TAN, tanl, NULL, 200},
    {"asin", KILN_P_ASIN, asinl, NULL, 1},     {"acos", KILN_P_ACOS, acosl, NULL, 1},
    {"atan", KILN_P_ATAN, atanl, NULL, 6},     {"sinh", KILN_P_SINH, sinhl, NULL, 40},
    {"cosh", KILN_P_COSH, coshl, NULL, 40},    {"asinh", KILN_P_ASINH, asinhl, NULL, 8},
    {"acosh", KILN_P_ACOSH, acoshl, NULL, 8},  {"atanh", KILN_P_ATANH, atanhl, NULL, 1},
    {"erfc", KILN_P_ERFC, erfcl, NULL, 27},    {"atan2", KILN_P_ATAN2, NULL, atan2l, 10},
    {"hypot", KILN_P_HYPOT, NULL, hypotl, 10},
};
enum { NFNS = sizeof fns / sizeof *fns };

static const kiln_isa levels[] = {KILN_ISA_GENERIC, KILN_ISA_V2, KILN_ISA_V3, KILN_ISA_V4, KILN_ISA_A64};
enum { NLEVELS = sizeof levels / sizeof *levels };

static bool level_has_fma(kiln_isa isa) {
    return isa == KILN_ISA_V3 || isa == KILN_ISA_V4 || isa == KILN_ISA_A64;
}

/* -- blocks of either type, seen as double ---- */

typedef union block {
    _Alignas(64) float f32[KILN_BLOCK];
    double f64[KILN_BLOCK];
} block;

static block xs, ys, outs[NLEVELS];

static double at(const block *b, kiln_dtype t, int i) {
    return t == KILN_F32 ? (double)b->f32[i] : b->f64[i];
}

static void put(block *b, kiln_dtype t, int i, double v) {
    if (t == KILN_F32)
        b->f32[i] = (float)v;
    else
        b->f64[i] = v;
}

static bool identical(double a, double b) {
    return (isnan(a) && isnan(b)) || (a == b && !signbit(a) == !signbit(b));
}

static void run(int level, kiln_prim p, kiln_dtype t, int n) {
    kiln_loop_fn loop = kiln_loops_for(levels[level])->prim[p][t];
    assert_non_null(loop);
    loop(&outs[level], &xs, &ys, NULL, (size_t)n);
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

/* Any bits of the type, the interesting range, near 1, any magnitude around 1. */
static double point(const struct fn *f, kiln_dtype t, unsigned kind) {
    uint64_t bits = next();
    uint32_t low = (uint32_t)bits;
    double any;
    float any32;
    memcpy(&any, &bits, sizeof any);
    memcpy(&any32, &low, sizeof any32);
    switch (kind % 4) {
    case 0: return t == KILN_F32 ? (double)any32 : any;
    case 1: return (2 * unit() - 1) * f->range;
    case 2: return (bits & 1 ? 1 : -1) * (1 + (2 * unit() - 1) * 0x1p-6);
    default: return (bits & 1 ? 1 : -1) * ldexp(1 + unit(), (int)(next() % 80) - 50);
    }
}

/* -- measuring ---- */

/* Distance from `got` to `want` in last places of type t; infinity counts as the power of two past the
 * largest number.  Huge where kinds or signs differ. */
static double distance(double got, wide want, kiln_dtype t) {
    int bits = t == KILN_F32 ? 24 : 53, emin = t == KILN_F32 ? -125 : -1021;
    int e = emin, emax = t == KILN_F32 ? 128 : 1024;
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : HUGE_VAL;
    if (!signbit(got) != !signbit(want)) return HUGE_VAL;
    wide top = ldexpl(1, emax), a = fminl(fabsl((wide)got), top), b = fminl(fabsl(want), top);
    if (b > 0) frexpl(b, &e);
    e = e < emin ? emin : e > emax ? emax : e;
    return (double)(fabsl(a - b) / ldexpl(1, e - bits));
}

/* No NaN is the same. */
static bool same_number(double a, double b) { return a == b && !signbit(a) == !signbit(b); }

/* d: how far the result is from `want`. */
static void judge(const struct fn *f, kiln_dtype t, int level, int i, wide want, double d, double *worst) {
    double got = at(&outs[level], t, i);
    if (d > *worst) *worst = d;
    if (d <= (level_has_fma(levels[level]) ? 2 : 4)) return;
    fail_msg("%s_%s(%a, %a) at %s is %a, not %La: %g ulp", f->name, kiln_dtype_name(t), at(&xs, t, i),
             at(&ys, t, i), kiln_isa_name(levels[level]), got, want, d);
}

/* Levels with FMA agree on every bit. */
static void check_same(const struct fn *f, kiln_dtype t, int a, int b) {
    for (int i = 0; i < KILN_BLOCK; i++)
        if (!identical(at(&outs[a], t, i), at(&outs[b], t, i)))
            fail_msg("%s_%s(%a, %a) differs between %s and %s", f->name, kiln_dtype_name(t), at(&xs, t, i),
                     at(&ys, t, i), kiln_isa_name(levels[a]), kiln_isa_name(levels[b]));
}

static void check_block(const struct fn *f, kiln_dtype t, double *worst) {
    int last = -1; /* the level before, among those with FMA */
    for (int l = 0; l < NLEVELS; l++) {
        if (!kiln_isa_runs(levels[l])) continue;
        run(l, f->prim, t, KILN_BLOCK);
        if (!level_has_fma(levels[l])) continue;
        if (last >= 0) check_same(f, t, last, l);
        last = l;
    }
    for (int i = 0; i < KILN_BLOCK; i++) {
        wide x = at(&xs, t, i), want = f->ref ? f->ref(x) : f->ref2(x, at(&ys, t, i));
        double before = NAN, d = 0; /* of the last level: most give the same number */
        for (int l = 0; l < NLEVELS; l++) {
            if (!kiln_isa_runs(levels[l])) continue;
            double got = at(&outs[l], t, i);
            if (!same_number(got, before)) d = distance(got, want, t);
            before = got;
            judge(f, t, l, i, want, d, &worst[l]);
        }
    }
}

static void check_type(kiln_dtype t, unsigned blocks) {
    for (int k = 0; k < NFNS; k++) {
        double worst[NLEVELS] = {0};
        seed = (uint64_t)t;
        for (unsigned b = 0; b < blocks; b++) {
            for (int i = 0; i < KILN_BLOCK; i++) {
                put(&xs, t, i, point(&fns[k], t, b));
                put(&ys, t, i, point(&fns[k], t, b / 4));
            }
            check_block(&fns[k], t, worst);
        }
        for (int l = 0; l < NLEVELS; l++)
            if (kiln_isa_runs(levels[l]))
                print_message("%s_%s at %s: %.3f ulp\n", fns[k].name, kiln_dtype_name(t),
                              kiln_isa_name(levels[l]), worst[l]);
    }
}

static void f32_is_accurate(void **state) {
    (void)state;
    check_type(KILN_F32, SANITIZED ? 32 : 256); /* they look at accesses, of which a block makes all kinds */
}

static void f64_is_accurate(void **state) {
    (void)state;
    check_type(KILN_F64, SANITIZED ? 16 : 96);
}

/* -- special values ---- */

#define INF HUGE_VAL
static const double special[] = {
    0.0,
    -0.0,
    1,
    -1,
    INF,
    -INF,
    NAN,
    0.5,
    -0.5,
    2,
    -2,
    1.5,
    -3,
    10,
    100,
    1000,
    -1000,
    1e4,
    -1e4,
    8,
    0.125,
    0x1p-149,
    -0x1p-149,
    0x1p-126,
    -0x1p-126,
    0x1.fffffcp-127,
    0x1.fffffep+127,
    -0x1.fffffep+127,
    0x1p+127,
    0x1p-1074,
    -0x1p-1074,
    0x1p-1022,
    0x1.fffffffffffffp+1023,
    -0x1.fffffffffffffp+1023,
    0x1.000002p+0,
    0x1.fffffep-1,
    -0x1.fffffep-1,
    0x1.0000000000001p+0,
    0x1.fffffffffffffp-1,
    -0x1.fffffffffffffp-1,
};
enum { NSPECIAL = sizeof special / sizeof *special };

/* What a type makes of libm's answer: where that is a value of the type the result must be it, else near. */
static void check_special(const struct fn *f, kiln_dtype t, int level, int i) {
    double x = at(&xs, t, i), y = at(&ys, t, i), got = at(&outs[level], t, i), worst = 0;
    wide want = f->ref ? f->ref(x) : f->ref2(x, y);
    double rounded = t == KILN_F32 ? (double)(float)want : (double)want;
    if (!isnan(want) && (wide)rounded != want)
        judge(f, t, level, i, want, distance(got, want, t), &worst);
    else if (!identical(got, rounded))
        fail_msg("%s_%s(%a, %a) at %s is %a, not %a", f->name, kiln_dtype_name(t), x, y,
                 kiln_isa_name(levels[level]), got, rounded);
}

/* Every pair of special values, for functions of one argument too. */
static void special_values_are_exact(void **state) {
    (void)state;
    for (int k = 0; k < NFNS * 2 * NSPECIAL; k++) {
        const struct fn *f = &fns[k % NFNS];
        kiln_dtype t = k / NFNS % 2 ? KILN_F64 : KILN_F32;
        for (int i = 0; i < KILN_BLOCK; i++) {
            put(&xs, t, i, special[i % NSPECIAL]);
            put(&ys, t, i, special[k / NFNS / 2]);
        }
        for (int l = 0; l < NLEVELS; l++) {
            if (!kiln_isa_runs(levels[l])) continue;
            run(l, f->prim, t, KILN_BLOCK);
            for (int i = 0; i < NSPECIAL; i++) check_special(f, t, l, i);
        }
    }
}

/* -- places where a case begins or a digit is easily lost ---- */

/* x in f32 and f64 and what both must give, exactly. */
static void known_values(void **state) {
    static const struct {
        kiln_prim p;
        double x, y, want;
    } known[] = {
        {KILN_P_LOG10, 1000, 0, 3},
        {KILN_P_LOG10, 1e10, 0, 10},
        {KILN_P_LOG10, 10, 0, 1},
        {KILN_P_LOG2, 0x1p-126, 0, -126},
        {KILN_P_LOG2, 8, 0, 3},
        {KILN_P_EXP2, -126, 0, 0x1p-126},
        {KILN_P_EXP2, 10, 0, 1024},
        {KILN_P_HYPOT, 3, 4, 5},
        {KILN_P_HYPOT, -5, 12, 13},
        {KILN_P_HYPOT, 0x1.8p+126, -0x1p+127, 0x1.4p+127},
        {KILN_P_HYPOT, INF, NAN, INF},
        {KILN_P_HYPOT, NAN, -INF, INF},
        {KILN_P_ERFC, 0, 0, 1},
        {KILN_P_ERFC, -7, 0, 2},
        {KILN_P_ERFC, 30, 0, 0},
        {KILN_P_COSH, 0, 0, 1},
        {KILN_P_EXPM1, -200, 0, -1},
        {KILN_P_EXP_FLUSH, 0, 0, 1},
        {KILN_P_EXP_FLUSH, -0.0, 0, 1},
        {KILN_P_EXP_FLUSH, -710, 0, 0}, /* exp of it is not 0 in f64, but subnormal */
        {KILN_P_EXP_FLUSH, -INF, 0, 0},
        {KILN_P_EXP_FLUSH, NAN, 0, NAN},
        {KILN_P_ATANH, -1, 0, -INF},
        {KILN_P_ATANH, 1.5, 0, NAN},
        {KILN_P_ACOSH, 1, 0, 0},
        {KILN_P_ACOSH, 0.5, 0, NAN},
        {KILN_P_ACOS, 1, 0, 0},
        {KILN_P_ASIN, 1.25, 0, NAN},
        {KILN_P_LOG1P, -1, 0, -INF},
        {KILN_P_LOG1P, -1.5, 0, NAN},
        {KILN_P_TAN, INF, 0, NAN},
        {KILN_P_ATAN2, -0.0, 1, -0.0},
        {KILN_P_ATAN2, 0.0, 0.0, 0.0},
        {KILN_P_ATAN2, -0.0, 0.0, -0.0},
        {KILN_P_NEXTAFTER, 1, 1, 1},
        {KILN_P_NEXTAFTER, 0.0, -0.0, -0.0},
        {KILN_P_NEXTAFTER, NAN, 1, NAN},
        {KILN_P_NEXTAFTER, 1, NAN, NAN},
    };
    (void)state;
    for (size_t k = 0; k < sizeof known / sizeof *known * 2 * NLEVELS; k++) {
        size_t i = k / 2 / NLEVELS;
        int l = (int)(k / 2 % NLEVELS);
        kiln_dtype t = k % 2 ? KILN_F64 : KILN_F32;
        if (!kiln_isa_runs(levels[l])) continue;
        for (int lane = 0; lane < 64; lane++) put(&xs, t, lane, 0.5), put(&ys, t, lane, 0.5);
        put(&xs, t, 5, known[i].x); /* the neighbours are plain */
        put(&ys, t, 5, known[i].y);
        run(l, known[i].p, t, 64);
        double got = at(&outs[l], t, 5);
        if (!identical(got, known[i].want))
            fail_msg("%s_%s(%a, %a) at %s is %a, not %a", kiln_prim_name(known[i].p), kiln_dtype_name(t),
                     known[i].x, known[i].y, kiln_isa_name(levels[l]), got, known[i].want);
    }
}

static void nextafter_is_exact(void **state) {
    static const struct fn f = {"nextafter", KILN_P_NEXTAFTER, NULL, NULL, 4};
    (void)state;
    for (int round = 0; round < 32 * NLEVELS * 2; round++) {
        int l = round / 2 % NLEVELS;
        kiln_dtype t = round % 2 ? KILN_F64 : KILN_F32;
        if (!kiln_isa_runs(levels[l])) continue;
        seed = (uint64_t)round;
        for (int i = 0; i < KILN_BLOCK; i++) {
            put(&xs, t, i, i % 3 ? point(&f, t, (unsigned)i) : special[next() % NSPECIAL]);
            put(&ys, t, i, i % 5 ? point(&f, t, (unsigned)i / 4) : special[next() % NSPECIAL]);
        }
        run(l, KILN_P_NEXTAFTER, t, KILN_BLOCK);
        for (int i = 0; i < KILN_BLOCK; i++) {
            double x = at(&xs, t, i), y = at(&ys, t, i), got = at(&outs[l], t, i);
            double want = t == KILN_F32 ? (double)nextafterf((float)x, (float)y) : nextafter(x, y);
            if (!identical(got, want))
                fail_msg("nextafter_%s(%a, %a) is %a, not %a", kiln_dtype_name(t), x, y, got, want);
        }
    }
}

/* Arguments of tan that lie closest to a multiple of pi/2, and the largest ones. */
static void tan_of_huge_angles(void **state) {
    static const double x32[] = {0x1.fffffep+127, 16367173 * 0x1p+72, 0x1.47d0fep+34, 0x1.000002p+17,
                                 0x1p+17,         0x1.f5fcbp+60,      0x1.9a48dep+15, 0x1.eecd02p+8};
    static const double x64[] = {0x1.fffffffffffffp+1023, 6381956970095103 * 0x1p+797, 0x1.0000000000001p+25,
                                 0x1p+25, 1e22};
    const struct fn f = {"tan", KILN_P_TAN, tanl, NULL, 0};
    (void)state;
    for (int wide_type = 0; wide_type < 2; wide_type++) {
        kiln_dtype t = wide_type ? KILN_F64 : KILN_F32;
        int n = (int)(wide_type ? sizeof x64 / sizeof *x64 : sizeof x32 / sizeof *x32);
        double worst[NLEVELS] = {0};
        for (int i = 0; i < KILN_BLOCK; i++) {
            double x = wide_type ? x64[i / 2 % n] : x32[i / 2 % n];
            put(&xs, t, i, i % 2 ? -x : x);
        }
        check_block(&f, t, worst);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(special_values_are_exact), cmocka_unit_test(known_values),
        cmocka_unit_test(nextafter_is_exact),       cmocka_unit_test(tan_of_huge_angles),
        cmocka_unit_test(f32_is_accurate),          cmocka_unit_test(f64_is_accurate),
    };
    return cmocka_run_group_tests_name("ulp2", tests, NULL, NULL);
}
