/* nests.h - what is known of a kernel's nests besides their code: all that is left of an IR once it is compiled. */
#ifndef KILN_NESTS_H
#define KILN_NESTS_H
#include "ir/ir.h"

/* How one fold is shared out, by another kernel than the whole one (that of parts): its nest `nest` folds a part of the
 * slowest reduced axis and stores its states, the one after it merges parts, which lie along the kernel's last axis.  After the
 * whole kernel's buffers that kernel has one per state for the part it stores, then one per state for all parts.  Parts have a
 * power of two times `unit` positions of that axis each, so that bits are those of the whole.  unit 0: it is not. */
typedef struct kiln_partial {
    uint32_t unit;
    uint8_t nest;                               /* the first that is no guard */
    uint8_t nstates, bytes[KILN_IR_MAX_STATES]; /* of each state; of the kernel of parts */
} kiln_partial;

/* How a scan of few long rows goes by blocks of `length` elements: nest 0 leaves the states that each block comes to from the
 * initial ones, nest 1 merges them in order, nest 2 scans each block from the states before it.  After the buffers of
 * results and arguments the kernel has one per state along the grid, where blocks lie, one per state along its last axis, for the
 * same memory, and with `places` the index of each block's first element.  length 0: there are no blocks. */
typedef struct kiln_blocks {
    uint32_t length;
    uint8_t nstates, bytes[KILN_IR_MAX_STATES]; /* of each state */
    bool places;
} kiln_blocks;

typedef struct kiln_nests {
    uint16_t n, nguards, ntraps; /* nguards: leading nests that only look for traps */
    const kiln_ir_trap *traps;
    kiln_partial partial;
    kiln_blocks blocks;
    size_t
        work; /* bytes that a launch of the compiled kernel needs beside its buffers; known when there is one */
    size_t row_work; /* of a routine: so many more for each position of the last axis */
} kiln_nests;

/* Sets counts and traps, which are borrowed. */
void kiln_ir_nests(const kiln_ir *ir, kiln_nests *out);
#endif
