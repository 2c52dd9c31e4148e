/* test_special.c - special functions against exact results, at every ISA level this machine runs.
 *
 * special_cases.txt (made by tests/ops/special_oracle.py) holds for each function arguments, the exact result
 * and a limit for f64 in units of the last place.  f32 computes in double and rounds, so it must be within
 * 0.51 units.  Levels with FMA must give the same bits as each other, and those without too, on wide random
 * arguments as well. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/isa.h"
#include "run/loops.h"

enum { MAX_CASES = 128 };

#define EACH_SPECIAL(p)                       \
    for (int p = 0; p < KILN_PRIM_COUNT; p++) \
        if (kiln_prim_trait((kiln_prim)p) == KILN_TRAIT_SPECIAL)

typedef struct point {
    double x, y, want, size; /* size: beside which an error counts; 0: the result's own */
} point;

typedef struct function {
    double limit; /* for f64 */
    int n;
    point at[MAX_CASES];
} function;

static function functions[KILN_PRIM_COUNT];

/* -- reading the cases ---- */

static function *read_head(const char *line, int *arity) {
    char name[64];
    int limit;
    kiln_prim p;
    assert_int_equal(sscanf(line, "@ %63s %d %d", name, arity, &limit), 3);
    if (!kiln_prim_find(name, strlen(name), &p)) fail_msg("no primitive '%s'", name);
    assert_int_equal(kiln_prim_arity(p), *arity);
    functions[p].limit = limit;
    return &functions[p];
}

static point read_point(const char *line, int arity) {
    double v[4] = {0};
    char *end = (char *)line;
    int n = 0;
    for (const char *s = line; n < 4; n++, s = end) {
        v[n] = strtod(s, &end);
        if (end == s) break;
    }
    if (n < arity + 1) fail_msg("too few numbers: %s", line);
    return (point){v[0], arity == 2 ? v[1] : 0, v[arity], n > arity + 1 ? v[arity + 1] : 0};
}

static int read_cases(void **state) {
    char line[256];
    function *f = NULL;
    int arity = 0;
    FILE *file = fopen(KILN_SOURCE_DIR "/tests/unit/special_cases.txt", "r");
    (void)state;
    if (!file) return -1;
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '@') {
            f = read_head(line, &arity);
            continue;
        }
        assert_true(f && f->n < MAX_CASES);
        f->at[f->n++] = read_point(line, arity);
    }
    return fclose(file);
}

static void every_special_function_has_cases(void **state) {
    (void)state;
    EACH_SPECIAL(p)
    if (functions[p].n < 30) fail_msg("%s has %d cases", kiln_prim_name((kiln_prim)p), functions[p].n);
}

/* -- measuring ---- */

/* From got to want in last places of a type with `digits` of them and exponents from `least`; infinity
 * where kinds differ or a zero has the wrong sign. */
static double distance(double got, double want, double size, int digits, int least) {
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : INFINITY;
    if (got == want) return want == 0 && !signbit(got) != !signbit(want) ? INFINITY : 0;
    if (isinf(got) || isinf(want)) return INFINITY;
    int e;
    frexp(fmax(fabs(want), size), &e);
    if (e < least) e = least;
    return fabs(got - want) / ldexp(1, e - digits);
}

static double judge_f64(const point *c, double got, double limit) {
    double d = distance(got, c->want, c->size, 53, -1021);
    return d <= limit ? d : INFINITY;
}

/* The exact result is known to a double, which is enough for f32. */
static double judge_f32(const point *c, double got) {
    if (isinf(got) && fabs(c->want) >= 0x1.ffffffp+127)
        return signbit(got) == signbit(c->want) ? 0 : INFINITY;
    return distance(got, c->want, c->size, 24, -125);
}

static _Alignas(64) double x64[KILN_BLOCK], y64[KILN_BLOCK], r64[KILN_BLOCK], first64[KILN_BLOCK];
static _Alignas(64) float x32[KILN_BLOCK], y32[KILN_BLOCK], r32[KILN_BLOCK], first32[KILN_BLOCK];

static void run(kiln_isa isa, kiln_prim p) {
    const kiln_loops *l = kiln_loops_for(isa);
    assert_non_null(l->prim[p][KILN_F64]);
    assert_non_null(l->prim[p][KILN_F32]);
    l->prim[p][KILN_F64](r64, x64, y64, NULL, KILN_BLOCK);
    l->prim[p][KILN_F32](r32, x32, y32, NULL, KILN_BLOCK);
}

static void complain(kiln_prim p, kiln_dtype t, kiln_isa isa, const point *c, double got) {
    fail_msg("%s_%s(%.17g, %.17g) at %s is %.17g, not %.17g", kiln_prim_name(p), kiln_dtype_name(t), c->x,
             c->y, kiln_isa_name(isa), got, c->want);
}

static bool fits_f32(double v) { return isnan(v) || (double)(float)v == v; }

static void check(kiln_prim p, kiln_isa isa) {
    const function *f = &functions[p];
    double worst = 0;
    for (int i = 0; i < KILN_BLOCK; i++) {
        const point *c = &f->at[i % f->n];
        x64[i] = c->x, y64[i] = c->y, x32[i] = (float)c->x, y32[i] = (float)c->y;
    }
    run(isa, p);
    for (int i = 0; i < KILN_BLOCK; i++) {
        const point *c = &f->at[i % f->n];
        double d = judge_f64(c, r64[i], f->limit);
        if (isinf(d)) complain(p, KILN_F64, isa, c, r64[i]);
        worst = fmax(worst, d);
        if (!fits_f32(c->x) || !fits_f32(c->y)) continue;
        if (judge_f32(c, r32[i]) > 0.51) complain(p, KILN_F32, isa, c, r32[i]);
    }
    if (isa == kiln_isa_detect())
        print_message("%s_f64: %.2f of %g ulp\n", kiln_prim_name(p), worst, f->limit);
}

static void results_are_exact_within_their_limits(void **state) {
    (void)state;
    EACH_SPECIAL(p)
    for (kiln_isa isa = 0; isa < KILN_ISA_COUNT; isa++)
        if (kiln_isa_runs(isa)) check((kiln_prim)p, isa);
}

/* -- the same bits at every level ---- */

static uint64_t seed;

static uint64_t next(void) {
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Moderate, of any magnitude, a whole number, or any bits. */
static double sample(int kind) {
    double u = (double)(int64_t)next() * 0x1p-63;
    uint64_t bits = next();
    double any;
    memcpy(&any, &bits, sizeof any);
    switch (kind) {
    case 0: return 20 * u;
    case 1: return u * ldexp(1, (int)(bits % 80) - 40);
    case 2: return (double)(bits % 60);
    default: return any;
    }
}

static void expect_same(kiln_prim p, kiln_isa isa) {
    for (int i = 0; i < KILN_BLOCK; i++) {
        bool same64 = memcmp(&r64[i], &first64[i], sizeof *r64) == 0 || (isnan(r64[i]) && isnan(first64[i]));
        bool same32 = memcmp(&r32[i], &first32[i], sizeof *r32) == 0 || (isnan(r32[i]) && isnan(first32[i]));
        if (!same64) complain(p, KILN_F64, isa, &(point){x64[i], y64[i], first64[i], 0}, r64[i]);
        if (!same32) complain(p, KILN_F32, isa, &(point){x32[i], y32[i], first32[i], 0}, r32[i]);
    }
}

static bool has_fma(kiln_isa isa) { return isa == KILN_ISA_V3 || isa == KILN_ISA_V4 || isa == KILN_ISA_A64; }

/* Levels with FMA, or without it, against the first of them. */
static void agree(bool fma) {
    EACH_SPECIAL(p) {
        bool any = false;
        seed = (uint64_t)p;
        for (int i = 0; i < KILN_BLOCK; i++) {
            x64[i] = sample(i % 4), y64[i] = sample(i / 4 % 4);
            x32[i] = (float)x64[i], y32[i] = (float)y64[i];
        }
        for (kiln_isa isa = 0; isa < KILN_ISA_COUNT; isa++) {
            if (!kiln_isa_runs(isa) || has_fma(isa) != fma) continue;
            run(isa, (kiln_prim)p);
            if (!any) {
                memcpy(first64, r64, sizeof r64);
                memcpy(first32, r32, sizeof r32);
            }
            any = true;
            expect_same((kiln_prim)p, isa);
        }
    }
}

static void levels_agree_on_every_bit(void **state) {
    (void)state;
    agree(false);
    agree(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_special_function_has_cases),
        cmocka_unit_test(results_are_exact_within_their_limits),
        cmocka_unit_test(levels_agree_on_every_bit),
    };
    return cmocka_run_group_tests_name("special", tests, read_cases, NULL);
}
