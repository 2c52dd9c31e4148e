/* nests.h - what is known of a kernel's nests besides their code: all that is left of an IR once it is compiled. */
#ifndef KILN_NESTS_H
#define KILN_NESTS_H
#include "ir/ir.h"

/* How one fold is shared out, by another kernel than the whole one (that of parts): its nest 0 folds a part of the
 * slowest reduced axis and stores its states, nest 1 merges parts, which lie along the kernel's last axis.  After the
 * whole kernel's buffers that kernel has one per state for the part it stores, then one per state for all parts.  Parts have a
 * power of two times `unit` positions of that axis each, so that bits are those of the whole.  unit 0: it is not. */
typedef struct kiln_partial {
    uint32_t unit;
    uint8_t nstates, bytes[KILN_IR_MAX_STATES]; /* of each state; of the kernel of parts */
} kiln_partial;

typedef struct kiln_nests {
    uint16_t n, nguards, ntraps; /* nguards: leading nests that only look for traps */
    const kiln_ir_trap *traps;
    kiln_partial partial;
    size_t
        work; /* bytes that a launch of the compiled kernel needs beside its buffers; known when there is one */
    size_t row_work; /* of a routine: so many more for each position of the last axis */
} kiln_nests;

/* Sets counts and traps, which are borrowed. */
void kiln_ir_nests(const kiln_ir *ir, kiln_nests *out);
#endif
