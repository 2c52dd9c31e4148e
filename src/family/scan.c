/* scan.c - running results along one dimension: each element of a result comes from those before it and its own.
 *
 * Tensors are broadcast; an argument says which dimension is scanned; results have the shape of the call and are
 * row-major.  The strides of every buffer are found here, and the chooser of the target makes axes of them.  The order of
 * elements is the same in any case but by blocks, so bits depend on the elements, their number and the layout alone.
 * scan_lower.c makes the IR. */
#include "family/scan.h"

#include "family/kept_folded.h"
#include "infer/chooser.h"
#include "infer/infer_parts.h"

static kiln_status shape(kiln_plan *p) {
    KILN_TRY(kiln_broadcast(p));
    KILN_TRY(kiln_over_find(p));
    kiln_row_major(p->shape->rank, p->shape->sizes, p->shape->strides);
    int64_t n = p->shape->nelem
                    ? 1
                    : 0; /* elements along the dimension, of which there may be none in other ones */
    for (int d = 0; d < p->shape->rank; d++)
        if (kiln_is_over(p, d)) n *= p->shape->sizes[d];
    for (int k = 0; k < p->typed.nrets; k++) p->result[k] = (kiln_result){.shape = 0};
    KILN_TRY(kiln_count_check(p, n));
    return p->call->nout ? kiln_results_check(p) : KILN_OK;
}

/* -- axes --------------------------------------------------------------------------------------------------- */

static void find_strides(const kiln_plan *p, kiln_dim_strides *w) {
    for (int b = 0; b < p->axes.nbuffers; b++) {
        const kiln_tensor *t = kiln_plan_tensor(p, b);
        const kiln_access_dims call = {p->shape->rank, p->shape->sizes, 0, -1};
        bool own = b >= p->axes.nwritten || (t && !p->result[b].resized);
        kiln_access a;
        w->of[b] = own ? w->room[b] : p->shape->strides;
        if (!own) continue;
        kiln_access_begin(&a, t->rank, t->sizes, t->strides);
        (void)kiln_access_align(&a, &call); /* the shape of the call was made of such sizes */
        kiln_access_steps(&a, p->shape->rank, w->room[b]);
    }
}

static kiln_status axes(kiln_plan *p) {
    kiln_dim_strides w;
    find_strides(p, &w);
    return kiln_plan_chooser(p)->scan(p, &w);
}

const kiln_family_fns kiln_family_scan = {.shape = shape, .axes = axes, .lower = kiln_scan_lower};
