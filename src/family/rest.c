/* rest.c - results of a fold that another operator gives: what they are, and the step that calls it.
 *
 * A gradient of a norm has a fold along rows for its input, and one across them for weights: two kernels.  The row
 * computes its first results; the operator that it names with `rest` takes arguments of the same names and gives the
 * others.  It is inferred with the row, so that what it refuses is refused before anything is written.  Knows operators
 * by what rows say, none by name. */
#include "family/views.h"
#include "infer/infer_parts.h"

/* Result j of the other operator, whose plan is `other`, is result k. */
static kiln_status take_result(kiln_plan *p, const kiln_plan *other, int j, int k) {
    const kiln_shape *s = &other->shape[other->result[j].shape];
    bool absent = other->typed.absent >> j & 1;
    p->typed.unstored |= UINT32_C(1) << k;
    p->typed.absent |= (uint32_t)absent << k;
    p->typed.ret_dtype[k] = other->typed.ret_dtype[j];
    p->result[k] = (kiln_result){.shape = KILN_SHAPE_REST, .made = (uint8_t)(absent ? 0 : 1 + j)};
    if (absent && p->call->nout)
        return KILN_FAIL(KILN_E_ARG, "%s: there is no result %d to be written", p->call->op->name, k);
    if (absent) return KILN_OK;
    kiln_shape *to = &p->shape[KILN_SHAPE_REST]; /* all of them have the same */
    to->rank = s->rank;
    to->nelem = s->nelem;
    for (int d = 0; d < s->rank; d++) to->sizes[d] = s->sizes[d], to->strides[d] = s->strides[d];
    return KILN_OK;
}

/* Apart, since a plan is large. */
static __attribute__((noinline)) kiln_status infer_rest(kiln_plan *p, const kiln_op *op) {
    kiln_bound call;
    kiln_plan plan;
    int nown = kiln_row_nown(p->call->op->row), given = 0;
    KILN_TRY(kiln_bind(op, p->call_arg, (size_t)op->schema->nargs, &call));
    KILN_TRY(kiln_infer(&call, &plan));
    for (int j = 0; j < plan.typed.nrets; j++) {
        KILN_TRY(take_result(p, &plan, j, nown + j));
        given += !(plan.typed.absent >> j & 1);
    }
    p->rest = given ? op : NULL;
    return KILN_OK;
}

kiln_status kiln_rest_find(kiln_plan *p) {
    const kiln_row *row = p->call->op->row;
    const kiln_op *op;
    p->shape[KILN_SHAPE_REST].rank = 0;
    p->shape[KILN_SHAPE_REST].nelem = 1;
    KILN_TRY(kiln_row_rest(row, &op));
    for (int a = 0; a < op->schema->nargs; a++) {
        int from = kiln_schema_arg(row->schema, op->schema->args[a].name);
        p->call_arg[a] = p->call->arg[from];
        p->call_from[a] = (int8_t)from;
        p->call_arg[a].name = NULL;
    }
    return infer_rest(p, op);
}

void kiln_rest_call(kiln_plan *p) {
    static const uint8_t none[KILN_MAX_ARGS];
    if (!p->rest) return;
    kiln_step *s = &p->step[p->nsteps++];
    s->kind = KILN_STEP_CALL;
    s->u.call.op = p->rest;
    s->u.call.args = p->call_arg;
    s->u.call.made = none;
    s->u.call.from = p->call_from;
    s->u.call.nargs = (uint8_t)p->rest->schema->nargs;
    s->u.call.first = 0;
}
