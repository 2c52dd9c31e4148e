/* memo_calls.c - a composition that the general path has answered -> a memo of its work; and such a memo -> the results.
 *
 * A composition has no kernel.  Its work says which operators are called with what: values of the call, tensors that calls before
 * have made, and numbers that follow from values and sizes, all of which the memo compares.  So the work can be run again
 * without inferring anything; each call is one like any other, with a memo of its own.  Compositions that write to arguments are
 * not remembered: whether what is written shares memory with another argument is inferred, before any call is made. */
#include <string.h>

#include "api/memo.h"
#include "api/within.h"

/* -- making -------------------------------------------------------------------------------------------------- */

static bool writes(const kiln_op *op) { return op->form != KILN_FORM_FUNCTIONAL || op->row->written != 0; }

/* An argument of the composition becomes the number of the value that was given for it; a default becomes its own value. */
static bool number_by_value(kiln_call_arg *a, const kiln_bound *call) {
    if (a->from < 0) return true;
    const kiln_value *v = &call->arg[a->from];
    a->from = call->given[a->from];
    if (a->from >= 0) return true;
    a->kind = (uint8_t)v->kind;
    a->u.i = v->u.i;
    return v->kind == KILN_NONE || v->kind == KILN_BOOL_V || v->kind == KILN_INT_V ||
           v->kind == KILN_FLOAT_V || v->kind == KILN_DTYPE_V;
}

bool kiln_memo_keep_calls(kiln_memo *m, kiln_ctx *ctx, const kiln_plan *p) {
    const kiln_work *w = &p->work;
    kiln_memo_calls *calls = &m->calls;
    if (w->nsteps > KILN_MEMO_CALLS || w->nresults > KILN_MEMO_RETS || writes(p->call->op)) return false;
    if (w->nwords > KILN_MEMO_WORK) return false;
    calls->ctx = ctx;
    memcpy(&calls->work, w, kiln_work_size(w));
    for (int k = 0; k < w->nsteps; k++) {
        const kiln_step *s = &kiln_work_steps(&calls->work)[k];
        kiln_call_arg *args = (kiln_call_arg *)(void *)(calls->words + s->u.call.args);
        calls->op[k] = p->op[k];
        if (writes(p->op[k])) return false;
        for (int i = 0; i < s->u.call.nargs; i++)
            if (!number_by_value(&args[i], p->call)) return false;
    }
    m->ncalls = w->nsteps;
    return true;
}

/* -- running ------------------------------------------------------------------------------------------------- */

kiln_status kiln_memo_run_calls(const kiln_memo *m, const kiln_value *args, kiln_tensor **outs) {
    kiln_memo_calls calls; /* the memo may be another call's as soon as a call is made */
    kiln_tensor *made[KILN_MEMO_RETS];
    int nrets = m->nrets;
    memcpy(&calls, &m->calls, offsetof(kiln_memo_calls, words) + kiln_work_size(&m->calls.work));
    kiln_within in;
    kiln_runner run = {.memory = calls.ctx->memory};
    const kiln_given given = {m->op->name, args, NULL, NULL};
    in.ctx = calls.ctx;
    in.op = calls.op;
    in.n = 0;
    in.t = kiln_thread_of(&calls.ctx->epochs); /* the calling thread, which is inside an epoch */
    KILN_TRY(kiln_within_run(&in, &calls.work, NULL, &run, &given, made));
    for (int k = 0; k < nrets; k++) outs[k] = made[k];
    return KILN_OK;
}
