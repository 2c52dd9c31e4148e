/* values.c - results as values of every kind, and what results a call would have.
 *
 * kiln_call gives tensors and is the way that must be short; kiln_call_values gives the same results as values, so
 * that lists and numbers have a place among them.  A list that a call gives is one block of kiln_alloc's with a
 * reference to each of its tensors; kiln_values_release frees both.  kiln_infer_results stops where a call would look
 * for its class: nothing is allocated, written or remembered.  Knows no family. */
#include <string.h>

#include "api/lists.h"

/* The one element of t, which is released. */
static kiln_value truth(kiln_tensor *t) {
    kiln_value v = kiln_v_bool(*(const uint8_t *)t->data != 0);
    kiln_tensor_release(t);
    return v;
}

/* The one result is a list. */
static kiln_status call_for_list(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                                 kiln_value *outs, size_t nouts) {
    KILN_NEED_ITEMS(args, nargs);
    if (!outs || !nouts) return KILN_FAIL(KILN_E_ARG, "%s: room for 0 results, expected 1", op->name);
    kiln_thread *t = kiln_thread_of(&ctx->epochs);
    if (!t) return KILN_NOMEM();
    kiln_thread_enter(&ctx->epochs, t);
    kiln_status st = kiln_lists_call(ctx, op, args, nargs, outs);
    kiln_thread_leave(t);
    return st;
}

kiln_status kiln_call_values(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                             kiln_value *outs, size_t nouts) {
    kiln_tensor *made[KILN_MAX_RETS];
    KILN_NEED(ctx, op);
    if (kiln_op_is_listed(op) && op->schema->nrets) return call_for_list(ctx, op, args, nargs, outs, nouts);
    KILN_TRY(kiln_call(ctx, op, args, nargs, outs ? made : NULL, nouts));
    for (int k = 0; k < op->schema->nrets; k++)
        outs[k] = !made[k]                                         ? kiln_v_none()
                  : kiln_op_ret_kind(op, (size_t)k) == KILN_BOOL_V ? truth(made[k])
                                                                   : kiln_v_tensor(made[k]);
    return KILN_OK;
}

void kiln_values_release(kiln_value *values, size_t n) {
    for (size_t k = 0; values && k < n; k++) {
        kiln_value *v = &values[k];
        if (v->kind == KILN_TENSOR) kiln_tensor_release(v->u.tensor);
        if (v->kind == KILN_LIST_V) {
            kiln_value *items = (kiln_value *)v->u.list; /* the value's own, as kiln_call_values gave it */
            kiln_values_release(items, v->n);
            kiln_free(items);
        }
        *v = kiln_v_none();
    }
}

static void describe(const kiln_plan *p, int k, kiln_result_info *out) {
    const kiln_op *op = p->call->op;
    const kiln_shape *shape = &p->shape[p->result[k].shape];
    const kiln_tensor *given = k < p->call->nout && !p->result[k].resized ? p->call->out[k] : NULL;
    out->result = (uint32_t)k;
    out->arg = k < p->call->nout ? kiln_op_out_arg(op, k) : -1;
    out->resized = p->result[k].resized;
    out->dtype = k < p->call->nout ? (kiln_dtype)p->call->out[k]->dtype : p->typed.ret_dtype[k];
    out->rank = p->typed.absent >> k & 1 ? -1 : given ? given->rank : shape->rank;
    if (out->rank < 0) return;
    size_t nbytes = (size_t)out->rank * sizeof(int64_t);
    if (!nbytes) return;
    memcpy(out->sizes, given ? given->sizes : shape->sizes, nbytes);
    memcpy(out->strides, given ? given->strides : shape->strides, nbytes);
}

kiln_status kiln_infer_results(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                               kiln_result_info *out, size_t nouts, size_t *count) {
    kiln_bound call;
    kiln_plan plan;
    KILN_NEED(ctx, op, count);
    KILN_NEED_ITEMS(args, nargs);
    KILN_NEED_ITEMS(out, nouts);
    KILN_TRY(kiln_bind(op, args, nargs, &call));
    KILN_TRY(kiln_infer(&call, &plan));
    *count = plan.typed.nrets;
    for (size_t k = 0; k < nouts && k < *count; k++) describe(&plan, (int)k, &out[k]);
    return KILN_OK;
}
