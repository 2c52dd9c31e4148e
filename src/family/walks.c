/* walks.c - dimensions that are kept and folded -> shapes of results, and strides of every buffer along both.
 *
 * What folds and routines have alike: tensors are broadcast, results are row-major and have the kept dimensions, folded
 * ones as size 1 where the call asks for that, or all of the call's where they have an element for each.  Where folded dimensions do not merge into as few axes as a family has, an
 * argument is copied first.  Which axes there are, and in what order, is the family's to say. */
#include "family/walks.h"

#include <stdlib.h>

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
    KILN_TRY(kiln_broadcast(p));
    return r->over_diagonal ? take_diagonal(p) : KILN_OK;
}

/* Strides of an input along the dimensions of the call's shape. */
static void find_input(const kiln_plan *p, const kiln_tensor *t, int64_t *out) {
    if (p->call->op->row->reduce.over_diagonal)
        out[0] = t->strides[0] + t->strides[1];
    else if (p->shape->nelem == 0)
        for (int d = 0; d < p->shape->rank; d++) out[d] = 0;
    else
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
    kiln_row_major(out->rank, out->sizes, out->strides);
    kiln_row_major(p->shape->rank, p->shape->sizes, p->shape->strides);
    for (int k = 0; k < p->typed.nrets; k++) p->result[k] = (kiln_result){.shape = !kiln_is_each(p, k)};
    KILN_TRY(kiln_count_check(p, folded));
    return p->call->nout ? kiln_results_check(p) : KILN_OK;
}

void kiln_walks_find(const kiln_plan *p, kiln_walks *w) {
    bool keep = keeps(p);
    for (int b = 0; b < p->axes.nbuffers; b++) {
        const kiln_tensor *t = p->buffer[b].tensor;
        int64_t *out = w->room[b];
        w->of[b] = out;
        if (b >= p->axes.nwritten) {
            find_input(p, t, out);
            continue;
        }
        bool each = kiln_is_each(p, b);
        const int64_t *next = t && !p->result[b].resized ? t->strides : p->shape[!each].strides;
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
