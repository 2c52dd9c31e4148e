/* map.c - element-wise rows: each element of a result comes from the elements at its place.
 *
 * Tensors are broadcast; results have the strides PyTorch's iterator gives; all dimensions are the grid's.  The kernel
 * is one nest over all points: loads, the bodies, stores.  Integer division and checks of elements get a nest of their
 * own before, which traps on a zero divisor, or an element that breaks a check, while nothing has been written. */
#include "family/family.h"
#include "infer/infer_parts.h"
#include "family/lower.h"

/* -- shape and axes ---------------------------------------------------------------------------------------- */

/* channels_last is for tensors of rank 4, channels_last_3d for those of rank 5. */
static kiln_status check_rank(const kiln_plan *p, kiln_strides s) {
    int rank = s == KILN_STRIDES_CHANNELS_LAST ? 4 : 5;
    if (p->shape->rank == rank) return KILN_OK;
    return KILN_FAIL(KILN_E_ARG, "%s: required rank %d tensor to use %s format, but its rank is %d",
                     p->call->op->name, rank, rank == 4 ? "channels_last" : "channels_last_3d",
                     p->shape->rank);
}

KILN_HOT static kiln_status shape(kiln_plan *p) {
    kiln_strides s = p->branch->typing.strides;
    KILN_TRY(kiln_broadcast(p));
    if (s >= KILN_STRIDES_CHANNELS_LAST) KILN_TRY(check_rank(p, s));
    for (int k = 0; k < p->typed.nrets; k++) p->result[k] = (kiln_result){.shape = 0};
    return p->call->nout ? kiln_results_check(p) : KILN_OK;
}

KILN_HOT static kiln_status axes(kiln_plan *p) {
    kiln_layout_infer(p);
    p->axes.ngrid = p->axes.ndim;
    p->axes.npoints = p->axes.nelem = p->shape->nelem;
    kiln_plan_classify(p, 0, 0, 0);
    return KILN_OK;
}

/* -- lowering ---------------------------------------------------------------------------------------------- */

static void begin_nest(kiln_lowering *lw) {
    kiln_lower_forget(lw);
    kiln_ir_for(lw->ir, 0, true);
}

static void guard_nest(kiln_lowering *lw, const kiln_texpr *const *body) {
    int n = lw->plan->typed.nrets;
    bool any = kiln_lower_has_musts(lw);
    for (int k = 0; k < n; k++) any = any || kiln_lower_divides(body[k]);
    if (!any) return;
    begin_nest(lw);
    kiln_lower_musts(lw);
    for (int k = 0; k < n; k++) kiln_lower_traps(lw, body[k]);
    kiln_ir_end(lw->ir);
}

static kiln_status lower(kiln_arena *arena, const kiln_plan *plan, kiln_lowered *out) {
    kiln_lowering lw;
    const kiln_texpr *body[KILN_MAX_RETS];
    KILN_TRY(kiln_lowering_begin(&lw, arena, plan, out));
    for (int k = 0; k < plan->typed.nrets; k++)
        KILN_TRY(kiln_row_type_body(&lw.env, k, plan->typed.ret_dtype[k], &body[k]));
    uint32_t points = 1u << kiln_ir_axis_add(lw.ir, "p", true);
    kiln_lower_buffers(&lw, points, points);
    guard_nest(&lw, body);
    begin_nest(&lw);
    kiln_lower_results(&lw, body, KILN_ALL_RESULTS);
    kiln_ir_end(lw.ir);
    return KILN_OK;
}

const kiln_family_fns kiln_family_map = {.shape = shape, .axes = axes, .lower = lower};
