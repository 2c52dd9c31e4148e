/* lower.h - (row, inferred call) -> IR, one file per family.
 *
 * The kernel's buffers are the plan's operands in order.  Its scalars are listed beside it, so that a
 * later call of the same class can fill them.  Nothing here knows C, vectors or how code is run. */
#ifndef KILN_LOWER_H
#define KILN_LOWER_H
#include "infer/infer.h"
#include "ir/ir.h"

/* Where a kernel's scalar comes from: argument `arg` (item `index` of a list, or -1), converted to `via`
 * and from that to `dtype`, the type the kernel computes with.  A complex number is two scalars. */
typedef struct kiln_scalar_source {
    int16_t arg, index;
    kiln_dtype via, dtype;
    int part; /* a kiln_ir_part, with KILN_MINUS for the negative of the number */
} kiln_scalar_source;

typedef struct kiln_lowered {
    kiln_ir *ir;
    kiln_scalar_source scalars[KILN_MAX_SCALARS];
    int nscalars;
} kiln_lowered;

/* A value of an expression: of a complex type two IR values, of any other one and im is KILN_NOREF. */
typedef struct kiln_pair {
    kiln_ref re, im;
} kiln_pair;

kiln_pair kiln_pair_load(kiln_ir *ir, int buf);
void kiln_pair_store(kiln_ir *ir, int buf, kiln_pair v);
kiln_pair kiln_pair_const(kiln_ir *ir, kiln_dtype t, int64_t i, double f);
kiln_pair kiln_pair_cast(kiln_ir *ir, kiln_dtype to, kiln_pair v); /* to bool: whether either part is not 0 */

/* Lowers the class of `plan`.  Only what is in the class key may be read from the plan: dtypes, branch,
 * presence and iteration class, never sizes or values. */
kiln_status kiln_lower(kiln_arena *arena, const kiln_plan *plan, kiln_lowered *out) KILN_MUST_CHECK;
kiln_status kiln_lower_map(kiln_arena *arena, const kiln_plan *plan, kiln_lowered *out) KILN_MUST_CHECK;
#endif
