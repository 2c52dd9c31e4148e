/* interp.h - tier 0: runs a kernel's IR over blocks, with loops compiled into the library.
 *
 * Takes exactly what a compiled kernel takes, so the driver, the self-test and the tests treat the two
 * alike.  Executes every construct of docs/IR.md. */
#ifndef KILN_INTERP_H
#define KILN_INTERP_H
#include "base/isa.h"
#include "ir/ir.h"
#include "kiln/kiln_abi.h"

typedef struct kiln_interp kiln_interp;

/* Prepares ir (verified) for running at isa.  Borrows ir.  Any number of threads may run one at once. */
kiln_status kiln_interp_new(const kiln_ir *ir, kiln_isa isa, kiln_interp **out) KILN_MUST_CHECK;
/* The same, but inputs that the kernel takes to have one element for a row are read along it, as a launch's strides say. */
kiln_status kiln_interp_new_along(const kiln_ir *ir, kiln_isa isa, kiln_interp **out) KILN_MUST_CHECK;
void kiln_interp_free(kiln_interp *p);

/* Runs nest launch->nest over the launch's box.  *trap is 0 or KILN_TRAP_BASE + the trap's ordinal, as a
 * kernel would return.  KILN_E_NOMEM if scratch cannot be had. */
kiln_status kiln_interp_run(const kiln_interp *p, const kiln_launch *launch, int32_t *trap) KILN_MUST_CHECK;
#endif
