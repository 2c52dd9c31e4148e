/* rounding.h - how a thread rounds and treats denormals, read and set.
 *
 * fegetenv and fesetenv do the same and save the exceptions seen so far as well, which takes as long as a short part of a loop.
 * Apart from the pool since it is about processors, not threads. */
#ifndef KILN_ROUNDING_H
#define KILN_ROUNDING_H
#include "base/base.h"

#if defined(__x86_64__)
typedef struct kiln_rounding {
    uint32_t sse; /* without the exceptions seen */
    uint16_t x87;
} kiln_rounding;

enum { KILN_SSE_SEEN = 0x3f };

static inline kiln_rounding kiln_rounding_get(void) {
    kiln_rounding m;
    __asm__ volatile("fnstcw %0" : "=m"(m.x87));
    m.sse = __builtin_ia32_stmxcsr() & ~(uint32_t)KILN_SSE_SEEN;
    return m;
}

/* Setting takes longer than looking, and is hardly ever needed. */
static inline void kiln_rounding_set(kiln_rounding m) {
    kiln_rounding now = kiln_rounding_get();
    if (now.sse != m.sse) __builtin_ia32_ldmxcsr(m.sse);
    if (now.x87 != m.x87) __asm__ volatile("fldcw %0" : : "m"(m.x87));
}
#else
#include <fenv.h>
typedef fenv_t kiln_rounding;

static inline kiln_rounding kiln_rounding_get(void) {
    kiln_rounding m;
    fegetenv(&m);
    return m;
}

static inline void kiln_rounding_set(kiln_rounding m) { fesetenv(&m); }
#endif
#endif
