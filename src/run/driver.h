/* driver.h - walks a plan's dimensions and runs one nest of a kernel over them, compiled or interpreted. */
#ifndef KILN_DRIVER_H
#define KILN_DRIVER_H
#include "infer/infer.h"
#include "run/interp.h"
#include "run/pool.h"

/* What runs: fn if not NULL, else interp. */
typedef struct kiln_runner {
    kiln_kernel_fn fn;
    const kiln_interp *interp;
    const kiln_parallel *parallel; /* NULL: one thread */
    kiln_isa isa;                  /* the level of the library's loops that may be used beside the kernel */
    uint32_t cost_ps;              /* estimate of the work for one element, in picoseconds */
} kiln_runner;

/* Runs nest `nest` over the whole domain of plan.  ptr: one address per operand.  *trap: 0, or what the
 * kernel returned. */
kiln_status kiln_drive(const kiln_plan *plan, const kiln_runner *run, int nest, char *const *ptr,
                       const uint64_t *par, int32_t *trap) KILN_MUST_CHECK;
#endif
