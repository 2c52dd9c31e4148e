/* test_bounds.c - every primitive on every type comes to an end, at extreme numbers and in every rounding mode.
 *
 * A loop that waits for a result to overflow, or for a term to vanish, may wait for ever where rounding does not let
 * it: then this program does not return, and the runner ends it.  What comes out is not judged here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/isa.h"
#include "float_env.h"
#include "run/loops.h"
#include "sanitized.h"

static const double floats[] = {
    0.0,    -0.0,  1,       2,     5,         0.5,      -0.3,  -2.5,     7.75,     63,      64,
    170,    171,   512,     513,   2000.5,    65536,    65537, 1e6,      1e9,      0x1p+53, 0x1p+62,
    9.2e18, 1e300, DBL_MAX, -1e17, 0.9999999, 1.000001, NAN,   INFINITY, 0x1p-149, 1e-310,  -0x1p-60};
static const int64_t ints[] = {
    0,         1,     2,     3,      5,      7,      63,     64,     127,       -128,      255,
    377,       610,   -1,    -2,     -7,     10946,  17711,  -32768, INT32_MAX, INT32_MIN, INT64_MAX,
    INT64_MIN, 46368, 75025, 121393, 196418, 317811, 514229, 832040, 1346269,   2178309,   433494437};
enum { SIDE = sizeof floats / sizeof *floats };
_Static_assert(SIDE == sizeof ints / sizeof *ints, "as many integers as floats");

enum { N = SIDE * SIDE, ROOM = (N + 63) / 64 * 64 }; /* loops work on whole vectors */
static _Alignas(64) char in[3][ROOM * 8], out[ROOM * 8];

static void put(kiln_dtype t, int k, char *at) {
    double d = floats[k];
    float f = (float)d;
    int64_t i = ints[k];
    if (t == KILN_BOOL) i = k & 1;
    const void *from = t == KILN_F64 ? (const void *)&d : t == KILN_F32 ? (const void *)&f : &i;
    memcpy(at, from, kiln_dtype_size(t)); /* little endian: the low bytes */
}

/* All pairs, and for a third operand the second again; the condition of a select is bool. */
static void fill(kiln_prim p, kiln_dtype t) {
    bool select = kiln_prim_rule(p) == KILN_RULE_SELECT;
    for (int i = 0; i < N; i++) {
        kiln_dtype first = select ? KILN_BOOL : t;
        put(first, i / SIDE, in[0] + (size_t)i * kiln_dtype_size(first));
        put(t, i % SIDE, in[1] + (size_t)i * kiln_dtype_size(t));
        put(t, i % SIDE, in[2] + (size_t)i * kiln_dtype_size(t));
    }
}

static int run_everything(const kiln_loops *l) {
    int ran = 0;
    for (int p = 0; p < KILN_PRIM_COUNT; p++)
        for (int t = 0; t < KILN_DTYPE_COUNT; t++) {
            if (!l->prim[p][t]) continue;
            fill((kiln_prim)p, (kiln_dtype)t);
            l->prim[p][t](out, in[0], in[1], in[2], N);
            ran++;
        }
    return ran;
}

static void every_primitive_ends_in_every_rounding_mode(void **state) {
    (void)state;
    const kiln_loops *loops = kiln_loops_for(kiln_isa_detect()); /* the source is the same at every level */
    for (int e = -1; e < FLOAT_ENVS; e += SANITIZED ? FLOAT_ENVS : 1) { /* the default and the last */
        fenv_t before;
        enter_env(e < 0 ? NULL : &float_envs[e], &before);
        int ran = run_everything(loops);
        fesetenv(&before);
        assert_true(ran > KILN_PRIM_COUNT);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_primitive_ends_in_every_rounding_mode)};
    return cmocka_run_group_tests_name("bounds", tests, NULL, NULL);
}
