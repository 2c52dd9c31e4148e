/* parts.h - one fold shared out among threads, with the bits it has in one. */
#ifndef KILN_PARTS_H
#define KILN_PARTS_H
#include "ir/nests.h"
#include "run/driver.h"

/* Whether the work is worth sharing and the grid has too few points for that. */
bool kiln_parts_wanted(const kiln_axes *axes, const kiln_runner *run, const kiln_partial *how);
/* Runs the fold: parts of the slowest reduced axis at once, then their states merged in order.  As kiln_drive. */
kiln_status kiln_parts_run(const kiln_axes *axes, const kiln_runner *run, const kiln_partial *how,
                           char *const *ptr, const uint64_t *par) KILN_MUST_CHECK;
#endif
