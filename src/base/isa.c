/* isa.c - which ISA level this machine runs, from CPUID and XGETBV.
 *
 * The compiler's builtins test the operating system's support as well (saved vector state), which a
 * bare CPUID bit does not tell. */
#include <string.h>

#include "base/isa.h"

static const struct {
    const char *name, *march;
    int vector_bytes;
} levels[KILN_ISA_COUNT] = {
#define L(NAME, text, march, vector_bytes) [KILN_ISA_##NAME] = {text, march, vector_bytes},
#include "base/isa.def"
#undef L
};

const char *kiln_isa_name(kiln_isa isa) { return levels[isa].name; }
const char *kiln_isa_march(kiln_isa isa) { return levels[isa].march; }
int kiln_isa_vector_bytes(kiln_isa isa) { return levels[isa].vector_bytes; }

#if defined(__x86_64__)
bool kiln_isa_runs(kiln_isa isa) {
    __builtin_cpu_init();
    bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
    bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("bmi");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("avx512cd");
    switch (isa) {
    case KILN_ISA_GENERIC: return true;
    case KILN_ISA_V2: return v2;
    case KILN_ISA_V3: return v3;
    case KILN_ISA_V4: return v4;
    case KILN_ISA_A64:
    case KILN_ISA_COUNT: break;
    }
    return false;
}
#elif defined(__aarch64__)
bool kiln_isa_runs(kiln_isa isa) { return isa == KILN_ISA_GENERIC || isa == KILN_ISA_A64; }
#else
bool kiln_isa_runs(kiln_isa isa) { return isa == KILN_ISA_GENERIC; }
#endif

kiln_isa kiln_isa_detect(void) {
    kiln_isa best = KILN_ISA_GENERIC;
    for (int isa = 0; isa < KILN_ISA_COUNT; isa++)
        if (kiln_isa_runs((kiln_isa)isa)) best = (kiln_isa)isa;
    return best;
}

kiln_status kiln_isa_parse(const char *name, kiln_isa *out) {
    for (int isa = 0; isa < KILN_ISA_COUNT; isa++) {
        if (strcmp(name, levels[isa].name) != 0) continue;
        *out = (kiln_isa)isa;
        return KILN_OK;
    }
    return KILN_FAIL(KILN_E_ARG,
                     "unknown ISA level '%.40s': expected x86-64-v2, x86-64-v3, x86-64-v4, aarch64 "
                     "or generic",
                     name);
}
