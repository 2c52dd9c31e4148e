/* rest.c - results of a fold that another operator gives: what they are, and the step that calls it.
 *
 * A gradient of a norm has a fold along rows for its input, and one across them for weights: two kernels.  The row
 * computes its first results; the operator that it names with `rest` takes arguments of the same names and gives the
 * others.  It is inferred with the row, so that what it refuses is refused before anything is written.  Knows operators
 * by what rows say, none by name. */
#include "family/reduce_rules.h"
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
    kiln_plan_shape(p, to, s->rank);
    to->nelem = s->nelem;
    for (int d = 0; d < s->rank; d++) to->sizes[d] = s->sizes[d], to->strides[d] = s->strides[d];
    return KILN_OK;
}

/* Apart, since a plan is large. */
static __attribute__((noinline)) kiln_status infer_rest(kiln_plan *p, const kiln_op *op,
                                                        const kiln_value *args) {
    kiln_bound call;
    kiln_plan plan;
    int nown = kiln_row_nown(p->call->op->row), given = 0;
    KILN_TRY(kiln_bind(op, args, (size_t)op->schema->nargs, &call));
    KILN_TRY(kiln_infer_inner(&call, &plan));
    for (int j = 0; j < plan.typed.nrets; j++) {
        KILN_TRY(take_result(p, &plan, j, nown + j));
        given += !(plan.typed.absent >> j & 1);
    }
    p->op[0] = given ? op : NULL;
    return KILN_OK;
}

/* The argument of the call that argument a of the other operator is: they have one name. */
static int same_arg(const kiln_plan *p, const kiln_op *rest, int a) {
    return kiln_schema_arg(p->call->op->row->schema, rest->schema->args[a].name);
}

kiln_status kiln_rest_find(kiln_plan *p) {
    const kiln_op *op;
    kiln_value args[KILN_MAX_ARGS];
    p->shape[KILN_SHAPE_REST].rank = 0;
    p->shape[KILN_SHAPE_REST].nelem = 1;
    KILN_TRY(kiln_row_rest(p->call->op->row, &op));
    for (int a = 0; a < op->schema->nargs; a++) {
        args[a] = p->call->arg[same_arg(p, op, a)];
        args[a].name = NULL;
    }
    return infer_rest(p, op, args);
}

void kiln_rest_call(kiln_plan *p) {
    const kiln_op *rest = p->op[0];
    if (!rest) return;
    kiln_step *s = kiln_plan_step(p, KILN_STEP_CALL);
    unsigned n = (unsigned)rest->schema->nargs;
    kiln_call_arg *args = kiln_work_take(&p->work, kiln_work_words_of(n, sizeof(kiln_call_arg)),
                                         &s->u.call.args);
    p->work.ncalls = 1;
    s->u.call.op = s->u.call.first = 0;
    s->u.call.nargs = (uint8_t)n;
    s->u.call.nrets = (uint8_t)rest->schema->nrets;
    for (unsigned a = 0; a < n; a++) args[a] = (kiln_call_arg){.from = (int8_t)same_arg(p, rest, (int)a)};
}
