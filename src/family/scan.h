/* scan.h - private to src/family: what the two halves of the scan family agree on. */
#ifndef KILN_SCAN_H
#define KILN_SCAN_H
#include "family/family.h"
#include "family/reduce_rules.h"

/* kiln_plan.form of a scan.  Else the grid is the vector loop, one row to a lane. */
enum {
    KILN_SCAN_ALONE = 1, /* one row after the other */
    KILN_SCAN_BLOCKS = 2 /* rows are cut in blocks, one to a lane */
};

kiln_status kiln_scan_lower(kiln_arena *arena, const kiln_plan *plan, kiln_lowered *out) KILN_MUST_CHECK;
#endif
