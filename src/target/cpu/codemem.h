/* codemem.h - memory for machine code, never writable and executable in one mapping.
 *
 * Pieces are packed into few mappings, process-wide.  Any thread; fork-safe.  Knows bytes only. */
#ifndef KILN_BUILD_CODEMEM_H
#define KILN_BUILD_CODEMEM_H
#include "base/base.h"

enum { KILN_CODEMEM_ALIGN = 64 };

typedef struct kiln_codemem {
    uint8_t *exec;                 /* where the code will run; readable */
    uint8_t *write;                /* where to write it until sealed */
    size_t n;                      /* bytes taken, at least what was asked for */
    struct kiln_code_arena *arena; /* NULL: a mapping of its own */
    uint64_t fork_count;           /* forks before it was handed out */
} kiln_codemem;

/* A piece of n bytes (1 to 64 MiB), aligned to `align` (a power of two up to 4096). */
kiln_status kiln_codemem_get(size_t n, size_t align, kiln_codemem *out) KILN_MUST_CHECK;
kiln_status kiln_codemem_seal(kiln_codemem *m) KILN_MUST_CHECK; /* ends writing; exec may now be called */
void kiln_codemem_put(kiln_codemem *m);                         /* sealed or not */

/* Tests only: which ways of getting memory are allowed. */
enum { KILN_CODEMEM_SHARED = 1, KILN_CODEMEM_PRIVATE = 2, KILN_CODEMEM_ANY = 3 };
void kiln_codemem_allow(int ways);
#endif
