/* memo_calls.c - a composition that the general path has answered -> a memo of its calls; and such a memo -> the results.
 *
 * A composition has no kernel.  What its plan found is which operators are called with what: values of the call, tensors that
 * calls before have made, and numbers that follow from values and sizes, all of which the memo compares.  So the calls can be made again
 * without inferring anything; each is a call like any other, with a memo of its own.  Compositions that write to arguments are
 * not remembered: whether what is written shares memory with another argument is inferred, before any call is made. */
#include <string.h>

#include "api/memo.h"

/* -- making -------------------------------------------------------------------------------------------------- */

static bool writes(const kiln_op *op) { return op->form != KILN_FORM_FUNCTIONAL || op->row->written != 0; }

/* Value i of a step, as value `to` of all.  What is computed must not point to memory of the call. */
static bool keep_value(kiln_memo_calls *calls, const kiln_plan *p, const kiln_step *s, int i, int to) {
    const kiln_value *v = &s->u.call.args[i];
    int arg = s->u.call.from[i];
    calls->arg[to] = *v;
    calls->made[to] = s->u.call.made[i];
    calls->from[to] = arg >= 0 ? p->call->given[arg] : (int8_t)-1;
    return calls->made[to] || calls->from[to] >= 0 || (v->kind != KILN_TENSOR && v->kind != KILN_LIST_V);
}

bool kiln_memo_keep_calls(kiln_memo *m, const kiln_plan *p) {
    int nargs = 0, nmade = 0;
    kiln_memo_calls *calls = &m->calls;
    if (p->nsteps > KILN_MEMO_CALLS || p->typed.nrets > KILN_MEMO_RETS || writes(p->call->op)) return false;
    for (int k = 0; k < p->nsteps; k++) {
        const kiln_step *s = &p->step[k];
        const kiln_op *op = s->u.call.op;
        nmade += op->schema->nrets;
        if (s->kind != KILN_STEP_CALL || writes(op) || nmade > KILN_MEMO_MADE) return false;
        if (nargs + s->u.call.nargs > KILN_MEMO_CALL_ARGS) return false;
        calls->op[k] = op;
        calls->nargs[k] = s->u.call.nargs;
        for (int i = 0; i < s->u.call.nargs; i++)
            if (!keep_value(calls, p, s, i, nargs++)) return false;
    }
    for (int k = 0; k < p->typed.nrets; k++)
        calls->result[k] = p->typed.absent >> k & 1 ? 0 : p->result[k].made;
    m->ncalls = (uint8_t)p->nsteps;
    return true;
}

/* -- running ------------------------------------------------------------------------------------------------- */

/* What a run needs of the memo, which may be another call's as soon as one is made. */
typedef struct composed {
    kiln_ctx *ctx;
    int ncalls, nrets;
    kiln_memo_calls calls;
    kiln_tensor *made[KILN_MEMO_MADE];
    int nmade;
} composed;

/* Call k, whose values are those from *next on. */
static kiln_status make_call(composed *c, int k, int *next, const kiln_value *args) {
    kiln_value v[KILN_MEMO_CALL_ARGS];
    const kiln_memo_calls *calls = &c->calls;
    const kiln_op *op = calls->op[k];
    for (int i = 0; i < calls->nargs[k]; i++, ++*next) {
        int made = calls->made[*next], from = calls->from[*next];
        v[i] = made ? kiln_v_tensor(c->made[made - 1]) : from >= 0 ? args[from] : calls->arg[*next];
        v[i].name = calls->arg[*next].name;
    }
    size_t n = (size_t)op->schema->nrets;
    KILN_TRY(kiln_call(c->ctx, op, v, calls->nargs[k], c->made + c->nmade, n));
    c->nmade += (int)n;
    return KILN_OK;
}

kiln_status kiln_memo_run_calls(const kiln_memo *m, const kiln_value *args, kiln_tensor **outs) {
    composed c;
    const kiln_op *op = m->op;
    kiln_status st = KILN_OK;
    int next = 0;
    c.ctx = m->c->ctx;
    c.ncalls = m->ncalls;
    c.nrets = m->nrets;
    c.nmade = 0;
    memcpy(&c.calls, &m->calls, sizeof c.calls);
    for (int k = 0; k < c.ncalls && st == KILN_OK; k++) st = make_call(&c, k, &next, args);
    for (int k = 0; k < c.nrets && st == KILN_OK; k++)
        outs[k] = c.calls.result[k] ? kiln_tensor_retain(c.made[c.calls.result[k] - 1]) : NULL;
    while (c.nmade > 0) kiln_tensor_release(c.made[--c.nmade]);
    return kiln_note(st, "%s", op->name);
}
