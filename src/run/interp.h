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
/* Like kiln_interp_new, with one difference.  The kernel assumes that some inputs have one element per row (stride zero); this interpreter
 * reads these inputs along the row, by the strides of the launch. */
kiln_status kiln_interp_new_along(const kiln_ir *ir, kiln_isa isa, kiln_interp **out) KILN_MUST_CHECK;
/* The same for a kernel whose folds are the vector loops: here its grid is the vector loop, and each element of a block folds a row by
 * itself, by the same tree and so with the same bits.  Only if kiln_interp_can_turn. */
kiln_status kiln_interp_new_across(const kiln_ir *ir, kiln_isa isa, kiln_interp **out) KILN_MUST_CHECK;
/* Whether ir is one grid of folds along one axis, which reads and writes each element at its own place. */
bool kiln_interp_can_turn(const kiln_ir *ir);
void kiln_interp_free(kiln_interp *p);

/* Runs nest launch->nest over the launch's box.  *trap is 0 or KILN_TRAP_BASE + the trap's ordinal, as a
 * kernel would return.  KILN_E_NOMEM if scratch cannot be had. */
kiln_status kiln_interp_run(const kiln_interp *p, const kiln_launch *launch, int32_t *trap) KILN_MUST_CHECK;
/* Whether a launch with these extents needs no scratch from the heap, in any nest: then kiln_interp_run cannot fail. */
bool kiln_interp_fits(const kiln_interp *p, const int64_t *n);
/* kiln_interp_run as a kernel_fn, for launches that it cannot fail for: launch->work points to the kiln_interp. */
int32_t kiln_interp_kernel(const kiln_launch *launch);
#endif
