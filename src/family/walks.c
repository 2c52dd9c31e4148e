/* walks.c - dimensions that are kept and folded -> shapes of results, and strides of every buffer along both.
 *
 * What folds and routines have alike: tensors are broadcast, results are row-major and have the kept dimensions, folded
 * ones as size 1 where the call asks for that, or all of the call's where they have an element for each.  Where folded dimensions do not merge into as few axes as a family has, an
 * argument is copied first.  Which axes there are, and in what order, is the family's to say. */
#include "family/walks.h"

#include <stdlib.h>

#include "family/views.h"
#include "infer/infer_parts.h"

static bool keeps(const kiln_plan *p) {
    const kiln_reduce *r = &p->call->op->row->reduce;
    if (r->keep_arg < 0) return r->keep;
    return p->call->arg[r->keep_arg].kind == KILN_BOOL_V && p->call->arg[r->keep_arg].u.i;
}

/* In place of a matrix its diagonal, whose places follow each other by a step in both dimensions. */
static kiln_status take_diagonal(kiln_plan *p) {
    kiln_shape *s = p->shape;
    if (s->rank != 2)
        return KILN_FAIL(KILN_E_ARG, "%s: expected a matrix, but got tensor with dim %d", p->call->op->name,
                         s->rank);
    if (s->sizes[1] < s->sizes[0]) s->sizes[0] = s->sizes[1];
    s->nelem = s->sizes[0];
    s->rank = 1;
    return KILN_OK;
}

/* Tensors that have one shape, or else nothing. */
static kiln_status take_alike(kiln_plan *p) {
    bool alike = true;
    for (int i = 1; i < p->typed.nin; i++)
        alike = alike && kiln_has_shape(p->in[i], p->in[0]->rank, p->in[0]->sizes);
    if (alike) return kiln_broadcast(p);
    p->uniform = false;
    p->shape->rank = 1;
    p->shape->sizes[0] = p->shape->nelem = 0;
    return KILN_OK;
}

/* The shape that is folded: of all tensors together, unless the row says otherwise. */
static kiln_status take_shape(kiln_plan *p) {
    const kiln_reduce *r = &p->call->op->row->reduce;
    if (r->over_alike) return take_alike(p);
    KILN_TRY(p->call->op->row->nviews ? kiln_views_find(p) : kiln_broadcast(p));
    return r->over_diagonal ? take_diagonal(p) : KILN_OK;
}

/* Kept arguments are read even where there is nothing to fold. */
static bool is_kept(const kiln_plan *p, int b) {
    return p->buffer[b].tensor && p->buffer[b].tensor->nelem > 0 &&
           (p->call->op->row->kept >> p->buffer[b].which & 1);
}

/* Strides of argument buffer b along the dimensions of the call's shape. */
static void find_input(const kiln_plan *p, int b, int64_t *out) {
    const kiln_tensor *t = p->buffer[b].tensor;
    if (p->call->op->row->reduce.over_diagonal)
        out[0] = t->strides[0] + t->strides[1];
    else if (p->shape->nelem == 0 && !is_kept(p, b))
        for (int d = 0; d < p->shape->rank; d++) out[d] = 0;
    else if (!kiln_view_of_input(p, b, out))
        kiln_strides_stretch(p->shape, t->rank, t->sizes, t->strides, out);
}

kiln_status kiln_kept_shape(kiln_plan *p) {
    kiln_shape *out = &p->shape[1];
    int64_t folded = 1;
    KILN_TRY(take_shape(p));
    KILN_TRY(kiln_over_find(p));
    bool keep = keeps(p);
    out->rank = 0;
    out->nelem = 1;
    for (int d = 0; d < p->shape->rank; d++) {
        int64_t n = p->shape->sizes[d];
        if (kiln_is_over(p, d)) folded *= n;
        if (kiln_is_over(p, d) && !keep) continue;
        out->sizes[out->rank++] = kiln_is_over(p, d) ? 1 : n;
        out->nelem *= kiln_is_over(p, d) ? 1 : n;
    }
    if (p->call->op->row->reduce.flat) {
        out->rank = 1;
        out->sizes[0] = out->nelem;
    }
    kiln_row_major(out->rank, out->sizes, out->strides);
    kiln_row_major(p->shape->rank, p->shape->sizes, p->shape->strides);
    kiln_shape *none = &p->shape[KILN_SHAPE_EMPTY];
    none->rank = 1;
    none->nelem = none->sizes[0] = 0;
    none->strides[0] = 1;
    for (int k = 0; k < p->typed.nrets; k++) {
        bool empty = (p->typed.unstored & ~p->typed.absent) >> k & 1;
        int each = p->call->op->row->nviews ? KILN_SHAPE_OWN : 0;
        p->result[k] = (kiln_result){.shape = (uint8_t)(empty                ? KILN_SHAPE_EMPTY
                                                        : kiln_is_each(p, k) ? each
                                                                             : 1)};
    }
    KILN_TRY(kiln_count_check(p, folded));
    if (p->call->op->row->rest) KILN_TRY(kiln_rest_find(p));
    if (p->call->nout) KILN_TRY(kiln_results_check(p));
    return p->call->op->row->nviews ? kiln_views_of_results(p) : KILN_OK;
}

/* Strides of a result whose one dimension, of stride `next`, is all those that are kept. */
static void find_flat(const kiln_plan *p, int64_t next, int64_t *out) {
    for (int d = p->shape->rank - 1; d >= 0; d--) {
        out[d] = kiln_is_over(p, d) ? 0 : next;
        if (!kiln_is_over(p, d)) next *= p->shape->sizes[d];
    }
}

void kiln_walks_find(const kiln_plan *p, kiln_walks *w) {
    bool keep = keeps(p);
    for (int b = 0; b < p->axes.nbuffers; b++) {
        const kiln_tensor *t = p->buffer[b].tensor;
        int64_t *out = w->room[b];
        w->of[b] = out;
        if (b >= p->typed.nrets) {
            find_input(p, b, out);
            continue;
        }
        if (p->typed.unstored >> b & 1) {
            for (int d = 0; d < p->shape->rank; d++) out[d] = 0;
            continue;
        }
        bool each = kiln_is_each(p, b);
        if (each && p->call->op->row->nviews) {
            kiln_view_of_result(p, b, out);
            continue;
        }
        bool aside = p->aside && p->call->op->row->nviews; /* it is written row by row, and then copied */
        const int64_t *next = t && !aside && !p->result[b].resized ? t->strides : p->shape[!each].strides;
        if (p->call->op->row->reduce.flat && !each) {
            find_flat(p, *next, out);
            continue;
        }
        for (int d = 0; d < p->shape->rank; d++) {
            out[d] = kiln_is_over(p, d) && !each ? 0 : *next;
            next += each || keep || !kiln_is_over(p, d);
        }
    }
}

int kiln_dims_collect(const kiln_plan *p, bool folded, const int64_t *by, bool sorted, uint8_t *out) {
    int n = 0;
    for (int d = p->shape->rank - 1; d >= 0; d--) {
        if (kiln_is_over(p, d) != folded) continue;
        int at = n++;
        for (; sorted && at > 0 && llabs(by[out[at - 1]]) > llabs(by[d]); at--) out[at] = out[at - 1];
        out[at] = (uint8_t)d;
    }
    return n;
}

void kiln_walks_copy_first(kiln_plan *p, kiln_walks *w, int b) {
    int own = kiln_plan_stand_in(p, b), n = 0;
    int64_t next = 1;
    for (int pass = 0; pass < 2; pass++)
        for (int d = p->shape->rank - 1; d >= 0; d--) {
            if (kiln_is_over(p, d) != (pass == 0)) continue;
            p->copy_n[n] = p->shape->sizes[d];
            p->stride[own][n++] = w->of[b][d] * p->bytes[b];
            w->room[b][d] = next;
            next *= p->shape->sizes[d];
        }
    p->buffer[b].nbytes = next * p->bytes[b];
    p->step[p->nsteps++] = (kiln_step){
        .kind = KILN_STEP_COPY,
        .u.copy = {(uint8_t)own, (uint8_t)b, (uint8_t)n, p->copy_n, p->stride[own], NULL}};
}
