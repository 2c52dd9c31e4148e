/* lower.c - picks the lowering of a row's family.
 *
 * A family without one is valid to describe and to check, not yet to call. */
#include "lower/lower.h"

kiln_status kiln_lower(kiln_arena *arena, const kiln_plan *plan, kiln_lowered *out) {
    const kiln_op *op = plan->call->op;
    switch (op->row->family) {
    case KILN_FAMILY_MAP: return kiln_lower_map(arena, plan, out);
    case KILN_FAMILY_FOLD:
    case KILN_FAMILY_SCAN:
    case KILN_FAMILY_INDEX:
    case KILN_FAMILY_COMPOSE:
    case KILN_FAMILY_COUNT: break;
    }
    return KILN_FAIL(KILN_E_UNSUP, "%s: the family %s is not served yet", op->name,
                     kiln_family_name(op->row->family));
}
