/* float_env.h - what the host's floating-point control may say: rounding modes, and subnormal numbers as zeros.
 *
 * Both tiers work in whatever environment the caller set, so tests put calls into each of these. */
#ifndef KILN_TEST_FLOAT_ENV_H
#define KILN_TEST_FLOAT_ENV_H
#include <fenv.h>
#include <stdbool.h>

typedef struct float_env {
    const char *name;
    int rounding;
    bool flush; /* subnormal operands and results are zeros */
} float_env;

/* All but the default. */
static const float_env float_envs[] = {
    {"rounding upward", FE_UPWARD, false},
    {"rounding downward", FE_DOWNWARD, false},
    {"rounding towards zero", FE_TOWARDZERO, false},
#if defined(__x86_64__)
    {"flushing subnormals", FE_TONEAREST, true},
    {"flushing subnormals, rounding downward", FE_DOWNWARD, true},
#endif
};
enum { FLOAT_ENVS = sizeof float_envs / sizeof *float_envs };

/* NULL: stays as it is.  fesetenv(before) leaves. */
static inline void enter_env(const float_env *e, fenv_t *before) {
    fegetenv(before);
    if (!e) return;
    fesetround(e->rounding);
#if defined(__x86_64__)
    if (e->flush) __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); /* FTZ and DAZ */
#endif
}
#endif
