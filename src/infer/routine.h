/* routine.h - routines of the library that rows of the family extern name (src/expr/routine.def).
 *
 * The family finds them here, as infer finds families; src/run has them.  A routine has a kernel's ABI and one nest: the
 * last axis of a launch is a row of elements, which results do not have, and the others are as many rows. */
#ifndef KILN_ROUTINE_H
#define KILN_ROUTINE_H
#include "kiln/kiln_abi.h"
#include "op/op.h"

typedef struct kiln_routine {
    kiln_kernel_fn fn[KILN_DTYPE_COUNT]; /* by the dtype of its first tensor; NULL: it does not take that */
    uint8_t copies; /* of a row of that tensor's elements, for which each launch needs memory (work) */
} kiln_routine;
extern const kiln_routine *const kiln_routines[KILN_ROUTINE_COUNT];
#endif
