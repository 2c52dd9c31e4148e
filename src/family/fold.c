/* fold.c - reductions: the elements along some dimensions become one element of each result, or one for each of them.
 *
 * Tensors are broadcast; which dimensions are folded, an argument or the row says; results are row-major.  The strides of
 * every buffer along the dimensions of the call are found here, and the chooser of the target makes axes of them.
 * fold_lower.c makes the IR. */
#include "family/fold.h"

#include "family/kept_folded.h"
#include "family/views.h"
#include "infer/chooser.h"
#include "infer/infer_parts.h"

/* Arguments that the row keeps, or writes to, must not go along folded dimensions. */
static kiln_status check_kept(const kiln_plan *p, const kiln_dim_strides *w) {
    for (int b = p->typed.nrets; b < p->axes.nbuffers; b++) {
        if (!(p->call->op->row->kept >> p->buffer[b].which & 1)) continue;
        for (int d = 0; d < p->shape->rank; d++)
            if (kiln_is_over(p, d) && w->of[b][d] != 0 && p->shape->sizes[d] > 1)
                return KILN_FAIL(
                    KILN_E_ARG,
                    "%s: argument '%s' has %lld elements along a dimension that is folded: expected 1",
                    p->call->op->name, kiln_arg_name(p->call, p->buffer[b].which),
                    (long long)p->shape->sizes[d]);
    }
    return KILN_OK;
}

static kiln_status axes(kiln_plan *p) {
    kiln_dim_strides w;
    const kiln_row *row = p->call->op->row;
    if (row->rest) kiln_rest_call(p);
    if (row->nviews) KILN_TRY(kiln_views_copy(p));
    kiln_dim_strides_find(p, &w);
    if (row->kept) KILN_TRY(check_kept(p, &w));
    KILN_TRY(kiln_plan_chooser(p)->fold(p, &w));
    bool all_absent = p->typed.unstored == (UINT32_C(1) << p->typed.nrets) - 1;
    if (all_absent && p->axes.nwritten == p->typed.nrets) { /* nothing is computed */
        p->kind = p->work.ncalls ? KILN_CLASS_COMPOSITION : KILN_CLASS_VIEW;
        p->work.nsteps = p->kind == KILN_CLASS_COMPOSITION;
    }
    return KILN_OK;
}

const kiln_family_fns kiln_family_fold = {
    .shape = kiln_kept_shape, .axes = axes, .lower = kiln_fold_lower, .results = kiln_fold_results};
