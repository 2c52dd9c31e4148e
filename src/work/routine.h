/* routine.h - the table of the library's routines, which rows of the family extern name (src/expr/routine.def).
 *
 * Families find a routine here by its number; src/run defines the table.  A routine has a kernel's ABI and one nest: the last
 * axis of a launch is a row of elements, which results do not have, and the other axes count rows. */
#ifndef KILN_ROUTINE_H
#define KILN_ROUTINE_H
#include "base/base.h"
#include "expr/routine_id.h"
#include "kiln/kiln_abi.h"

typedef struct kiln_routine {
    kiln_kernel_fn fn[KILN_DTYPE_COUNT]; /* by the dtype of the first tensor; NULL: no function takes it */
    uint8_t copies; /* each launch needs memory (work) for this many copies of a row of the first tensor */
} kiln_routine;
extern const kiln_routine *const kiln_routines[KILN_ROUTINE_COUNT];
#endif
