/* kept_folded.c - dimensions that are kept and folded -> shapes of results, and strides of every buffer along both.
 *
 * What folds and routines have alike: tensors are broadcast, results are row-major and have the kept dimensions, folded
 * ones as size 1 where the call asks for that, or all of the call's where they have an element for each.  Where folded dimensions do not merge into as few axes as a family has, an
 * argument is copied first.  Which axes there are, and in what order, is the family's to say. */
#include "family/kept_folded.h"

#include <stdlib.h>

#include "family/views.h"
#include "infer/infer_parts.h"

static bool keeps(const kiln_plan *p) {
    const kiln_reduce *r = p->call->op->row->reduce;
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
    for (int i = 1; i < p->typed.nshaped; i++)
        alike = alike && kiln_has_shape(p->in[i], p->in[0]->rank, p->in[0]->sizes);
    if (alike) return kiln_broadcast(p);
    p->uniform = false;
    kiln_plan_shape(p, p->shape, 1);
    p->shape->sizes[0] = p->shape->nelem = 0;
    return KILN_OK;
}

/* The shape that is folded: of all tensors together, unless the row says otherwise. */
static kiln_status take_shape(kiln_plan *p) {
    const kiln_reduce *r = p->call->op->row->reduce;
    if (r->over_alike) return take_alike(p);
    KILN_TRY(p->call->op->row->nviews ? kiln_views_find(p) : kiln_broadcast(p));
    return r->over_diagonal ? take_diagonal(p) : KILN_OK;
}

/* -- tensors that are not broadcast to the call's shape ----------------------------------------------------- */

static const kiln_expr *access_of(const kiln_plan *p, int arg) {
    const kiln_branch *br = p->branch;
    return br->accessed >> arg & 1 ? br->access[arg] : NULL;
}

bool kiln_is_accessed(const kiln_plan *p, int b) {
    return p->buffer[b].kind != KILN_BUFFER_RESULT && b >= p->axes.nwritten &&
           access_of(p, p->buffer[b].which);
}

bool kiln_is_table(const kiln_plan *p, int b) {
    const kiln_expr *e = kiln_is_accessed(p, b) ? access_of(p, p->buffer[b].which) : NULL;
    return e && e->ncoord == 1 && !e->coord[0].dim;
}

bool kiln_is_lacking(const kiln_plan *p, int b) {
    return b >= p->axes.nwritten && p->call->op->row->lacking >> p->buffer[b].which & 1;
}

/* The dimension of t along which places are computed; -1: t has none. */
static int accessed_dim(const kiln_expr *e, const kiln_tensor *t) {
    int64_t d = e->coord[0].dim ? e->coord[0].dim->i : -1;
    if (d < 0) d += t->rank;
    return d >= 0 && d < t->rank ? (int)d : -1;
}

/* How argument `arg`, which has no part in the call's shape, is reached.  False: its shape does not fit those of the others. */
static bool reach_apart(const kiln_plan *p, int arg, const kiln_tensor *t, kiln_access *out) {
    const kiln_expr *e = access_of(p, arg);
    kiln_access_dims call = {p->shape->rank, p->shape->sizes, e ? 0 : p->reduced,
                             e ? accessed_dim(e, t) : -1};
    bool table = e && e->ncoord == 1 && !e->coord[0].dim;
    if (e && (call.at < 0 || (table && t->rank != 1))) return false;
    kiln_access_begin(out, t->rank, t->sizes, t->strides);
    return kiln_access_align(out, &call);
}

static kiln_status check_apart(const kiln_plan *p) {
    kiln_access a;
    for (int i = p->typed.nshaped; i < p->typed.nin; i++) {
        int arg = p->typed.in_arg[i];
        if (!reach_apart(p, arg, p->in[i], &a))
            return KILN_FAIL(KILN_E_ARG, "%s: the shape of argument '%s' does not fit those of the others",
                             p->call->op->name, kiln_arg_name(p->call, arg));
    }
    return KILN_OK;
}

void kiln_axes_add_accessed(kiln_plan *p, const kiln_dim_strides *w, int b) {
    int at = p->axes.ndim;
    kiln_axes_add_one(p, KILN_ROLE_COMPUTED);
    p->n[at] = w->extent[b];
    p->stride[b][at] = w->along[b] * p->bytes[b];
}

/* -- strides --------------------------------------------------------------------------------------------------- */

/* Kept arguments are read even where there is nothing to fold. */
static bool is_kept(const kiln_plan *p, int b) {
    return kiln_plan_tensor(p, b) && kiln_plan_tensor(p, b)->nelem > 0 &&
           (p->call->op->row->kept >> p->buffer[b].which & 1);
}

/* Aligns a memory with the dimensions of the call, or with the kept ones alone. */
static void align(const kiln_plan *p, kiln_access *a, bool kept_alone) {
    kiln_access_dims call = {p->shape->rank, p->shape->sizes, kept_alone ? p->reduced : 0, -1};
    (void)kiln_access_align(a, &call); /* the shape of the call was made of such sizes */
}

/* How argument buffer b is reached. */
static void reach_input(const kiln_plan *p, int b, kiln_access *out) {
    const kiln_tensor *t = kiln_plan_tensor(p, b);
    if (kiln_is_accessed(p, b) || kiln_is_lacking(p, b)) {
        (void)reach_apart(p, p->buffer[b].which, t, out); /* check_apart has seen that it fits */
    } else if (p->call->op->row->reduce->over_diagonal) {
        kiln_access_begin(out, t->rank, t->sizes, t->strides);
        out->along[0] = out->along[1] = 0;
    } else if (p->shape->nelem == 0 && !is_kept(p, b)) {
        kiln_access_begin(out, 0, NULL, NULL);
    } else {
        if (!kiln_view_of_input(p, b, out)) kiln_access_begin(out, t->rank, t->sizes, t->strides);
        align(p, out, false);
    }
}

/* In place of a square its places right of the diagonal, row after row. */
static kiln_status take_triangle(const kiln_plan *p, kiln_shape *s) {
    int64_t n = s->rank == 2 ? s->sizes[0] : -1;
    if (n < 0 || s->sizes[1] != n)
        return KILN_FAIL(KILN_E_ARG, "%s: expected two dimensions of one size beside those that are folded",
                         p->call->op->name);
    s->rank = 1;
    s->sizes[0] = s->nelem = n * (n - 1) / 2;
    return KILN_OK;
}

kiln_status kiln_kept_shape(kiln_plan *p) {
    kiln_shape *out = &p->shape[1];
    int64_t folded = 1;
    KILN_TRY(take_shape(p));
    KILN_TRY(kiln_over_find(p));
    KILN_TRY(check_apart(p));
    bool keep = keeps(p);
    kiln_plan_shape(p, out, p->shape->rank ? p->shape->rank : 1);
    out->rank = 0;
    out->nelem = 1;
    for (int d = 0; d < p->shape->rank; d++) {
        int64_t n = p->shape->sizes[d];
        if (kiln_is_over(p, d)) folded *= n;
        if (kiln_is_over(p, d) && !keep) continue;
        out->sizes[out->rank++] = kiln_is_over(p, d) ? 1 : n;
        out->nelem *= kiln_is_over(p, d) ? 1 : n;
    }
    if (p->call->op->row->reduce->flat) {
        out->rank = 1;
        out->sizes[0] = out->nelem;
    }
    if (p->call->op->row->reduce->triangle) KILN_TRY(take_triangle(p, out));
    kiln_row_major(out->rank, out->sizes, out->strides);
    kiln_row_major(p->shape->rank, p->shape->sizes, p->shape->strides);
    kiln_shape *none = &p->shape[KILN_SHAPE_EMPTY];
    kiln_plan_shape(p, none, 1);
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

/* How a result is reached whose one dimension, of stride `next`, is all those that are kept. */
static void reach_flat(const kiln_plan *p, int64_t next, kiln_access *out) {
    kiln_access_begin(out, p->shape->rank, p->shape->sizes, out->room);
    for (int d = out->rank - 1; d >= 0; d--) {
        out->along[d] = kiln_is_over(p, d) ? KILN_ACCESS_NONE : (int8_t)d;
        out->room[d] = next;
        if (!kiln_is_over(p, d)) next *= out->sizes[d];
    }
}

/* How result b is reached. */
static void reach_result(const kiln_plan *p, int b, kiln_access *out) {
    const kiln_row *row = p->call->op->row;
    const kiln_tensor *t = kiln_plan_tensor(p, b);
    bool each = kiln_is_each(p, b),
         aside = p->aside && row->nviews; /* it is written row by row, and then copied */
    const kiln_shape *s = &p->shape[!each];
    if (p->typed.unstored >> b & 1) {
        kiln_access_begin(out, 0, NULL, NULL);
        return;
    }
    if (each && row->nviews)
        kiln_view_of_result(p, b, out);
    else
        kiln_access_begin(out, s->rank, s->sizes, t && !p->result[b].resized ? t->strides : s->strides);
    if (aside && !each) {
        kiln_row_major(s->rank, s->sizes, out->room);
        out->strides = out->room;
    }
    if ((row->reduce->flat || row->reduce->triangle) && !each)
        reach_flat(p, *out->strides, out);
    else
        align(p, out, !each && !keeps(p));
}

void kiln_dim_strides_find(const kiln_plan *p, kiln_dim_strides *w) {
    for (int b = 0; b < p->axes.nbuffers; b++) {
        kiln_access a;
        (b < p->typed.nrets ? reach_result : reach_input)(p, b, &a);
        kiln_access_steps(&a, p->shape->rank, w->room[b]);
        w->of[b] = w->room[b];
        w->along[b] = w->extent[b] = 0;
        for (int k = 0; k < a.rank && p->branch->accessed; k++)
            if (a.along[k] == KILN_ACCESS_AT) w->along[b] = a.strides[k], w->extent[b] = a.sizes[k];
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

void kiln_dim_strides_copy(kiln_plan *p, kiln_dim_strides *w, int b, const uint8_t *order, int ndims) {
    int own = kiln_plan_stand_in(p, b), n = 0;
    int64_t next = 1;
    if (!p->copy_n) p->copy_n = kiln_plan_extents(p, p->shape->rank + 1);
    for (; n < ndims; n++) {
        int d = order[n];
        p->copy_n[n] = p->shape->sizes[d];
        p->stride[own][n] = w->of[b][d] * p->bytes[b];
        w->room[b][d] = next;
        next *= p->shape->sizes[d];
    }
    if (kiln_is_accessed(p, b)) {
        p->copy_n[n] = w->extent[b];
        p->stride[own][n++] = w->along[b] * p->bytes[b];
        w->along[b] = next;
    }
    kiln_plan_copy(p, b, own, n, p->copy_n, true);
}

void kiln_dim_strides_copy_first(kiln_plan *p, kiln_dim_strides *w, int b) {
    uint8_t order[KILN_MAX_RANK];
    int n = kiln_dims_collect(p, true, NULL, false, order);
    n += kiln_dims_collect(p, false, NULL, false, order + n);
    kiln_dim_strides_copy(p, w, b, order, n);
}
