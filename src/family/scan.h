/* scan.h - private to src/family: what the two halves of the scan family agree on. */
#ifndef KILN_SCAN_H
#define KILN_SCAN_H
#include "family/family.h"

/* kiln_plan.form of a scan.  Else the grid is the vector loop, one row to a lane. */
enum {
    KILN_SCAN_ALONE = 1, /* one row after the other */
    KILN_SCAN_BLOCKS = 2 /* rows are cut in blocks, one to a lane */
};

/* Elements of a block, which bits depend on: whole cache lines of every type but bytes, an odd number of them for most, so
 * that blocks do not all begin at the same places of a cache. */
enum { KILN_SCAN_BLOCK = 1040 };

kiln_status kiln_scan_lower(kiln_arena *arena, const kiln_plan *plan, kiln_lowered *out) KILN_MUST_CHECK;
#endif
