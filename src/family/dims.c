/* dims.c - the `over` of a row and the arguments of a call -> which dimensions are folded or scanned.
 *
 * An argument names one dimension or a list of them, from the end if negative; or the row says the last so many, or
 * numbers them.  A tensor without dimensions takes 0 and -1, as PyTorch has it.  Knows no strides. */
#include "family/dims.h"

#include "infer/infer_parts.h"

/* Notes `dim`. */
static kiln_status add_dim(kiln_plan *p, int64_t dim) {
    int rank = p->shape->rank, least = rank ? -rank : -1, most = rank ? rank - 1 : 0;
    if (dim < least || dim > most)
        return KILN_FAIL(KILN_E_INDEX,
                         "Dimension out of range (expected to be in range of [%d, %d], but got %lld)", least,
                         most, (long long)dim);
    if (dim < 0) dim += most + 1;
    if (kiln_is_over(p, (int)dim))
        return KILN_FAIL(KILN_E_ARG, "dim %lld appears multiple times in the list of dims", (long long)dim);
    p->reduced |= 1ull << dim;
    return KILN_OK;
}

/* Notes `dim`, which argument `arg` names. */
static kiln_status add_named(kiln_plan *p, int arg, int64_t dim) {
    return kiln_note(add_dim(p, dim), "%s: argument '%s'", p->call->op->name, kiln_arg_name(p->call, arg));
}

/* Dimensions that the row numbers. */
static kiln_status add_numbered(kiln_plan *p, const kiln_nameds *dims) {
    kiln_call_env env;
    kiln_call_env_init(&env, p->call, p->typed.common);
    for (int k = 0; k < dims->n; k++) {
        kiln_hval v;
        KILN_TRY(kiln_note(kiln_expr_eval(&env.env, dims->at[k].expr, &v), "%s", p->call->op->name));
        if (v.kind != KILN_H_INT)
            return KILN_FAIL(KILN_E_ARG, "%s: the number of a dimension is no integer", p->call->op->name);
        KILN_TRY(kiln_note(add_dim(p, v.i), "%s", p->call->op->name));
    }
    return KILN_OK;
}

/* The last so many dimensions, or the first. */
static kiln_status add_last(kiln_plan *p, const kiln_expr *count, bool first) {
    kiln_call_env env;
    kiln_hval v;
    kiln_call_env_init(&env, p->call, p->typed.common);
    KILN_TRY(kiln_note(kiln_expr_eval(&env.env, count, &v), "%s", p->call->op->name));
    if (v.kind != KILN_H_INT || v.i < 0 || v.i > p->shape->rank)
        return KILN_FAIL(KILN_E_ARG, "%s: the %s %lld dimensions of %d cannot be folded", p->call->op->name,
                         first ? "first" : "last", (long long)v.i, p->shape->rank);
    for (int64_t k = 1; k <= v.i; k++) p->reduced |= 1ull << (first ? k - 1 : p->shape->rank - k);
    return KILN_OK;
}

static uint64_t all_dims(const kiln_plan *p) {
    return p->shape->rank == 64 ? ~UINT64_C(0) : (UINT64_C(1) << p->shape->rank) - 1;
}

kiln_status kiln_over_find(kiln_plan *p) {
    const kiln_reduce *r = p->call->op->row->reduce;
    const kiln_value *dims = r->over_arg >= 0 ? &p->call->arg[r->over_arg] : NULL;
    p->reduced = 0;
    if (r->over_last) return add_last(p, r->over_last, r->over_first);
    if (r->over_dims.n) return add_numbered(p, &r->over_dims);
    if (dims && dims->kind == KILN_INT_V) {
        KILN_TRY(add_named(p, r->over_arg, dims->u.i));
        if (r->over_but) p->reduced ^= all_dims(p);
        return KILN_OK;
    }
    if (dims && dims->kind == KILN_LIST_V && (dims->n || r->over_only)) {
        for (uint32_t k = 0; k < dims->n; k++) KILN_TRY(add_named(p, r->over_arg, dims->u.list[k].u.i));
        return KILN_OK;
    }
    p->reduced = all_dims(p);
    return KILN_OK;
}

void kiln_axes_add_one(kiln_plan *p, kiln_role role) {
    int d = p->axes.ndim++;
    p->n[d] = 1;
    p->role[d] = role;
    for (int b = 0; b < p->axes.nbuffers; b++) p->stride[b][d] = 0;
}
