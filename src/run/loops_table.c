/* loops_table.c - one table of loops per ISA level, put together from the units compiled for it.
 *
 * loops.cmake builds exactly the levels listed here.  Tables are filled once, before their first use, but for levels
 * that this CPU cannot run: what fills them is compiled for them too. */
#include <pthread.h>

#include "run/loops.h"

#if defined(__x86_64__)
#define LEVELS(L) L(GENERIC) L(V2) L(V3) L(V4)
#elif defined(__aarch64__)
#define LEVELS(L) L(GENERIC) L(A64)
#else
#define LEVELS(L) L(GENERIC)
#endif

#define SIZES(S, ISA) S(ISA, 1) S(ISA, 2) S(ISA, 4) S(ISA, 8)
#define DECLARE_ONE(ISA, SIZE) void kiln_loops_fill_##ISA##_##SIZE(kiln_loops *t);
#define DECLARE(ISA) SIZES(DECLARE_ONE, ISA)
LEVELS(DECLARE)

static kiln_loops table[KILN_ISA_COUNT];
static bool built[KILN_ISA_COUNT];

#define FILL_ONE(ISA, SIZE) kiln_loops_fill_##ISA##_##SIZE(&table[KILN_ISA_##ISA]);
#define FILL(ISA)                        \
    if (kiln_isa_runs(KILN_ISA_##ISA)) { \
        SIZES(FILL_ONE, ISA)             \
        built[KILN_ISA_##ISA] = true;    \
    }
static void fill_all(void) { LEVELS(FILL) }

const kiln_loops *kiln_loops_for(kiln_isa isa) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_all);
    int i = isa; /* ORDER ISA: worse levels come first */
    while (i > KILN_ISA_GENERIC && !built[i]) i--;
    return &table[i];
}
