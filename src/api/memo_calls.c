/* memo_calls.c - a composition that the general path has answered -> a memo of its work; and such a memo -> the results.
 *
 * A composition has no kernel.  Its work says which operators are called with what: values of the call, tensors that calls before
 * have made, and numbers that follow from values and sizes, all of which the memo compares.  So the work can be run again
 * without inferring anything; each call is one like any other, with a memo of its own.  Compositions that write to arguments are
 * not remembered: whether what is written shares memory with another argument is inferred, before any call is made. */
#include <string.h>

#include "api/memo.h"
#include "api/within.h"

static bool writes(const kiln_op *op) { return op->form != KILN_FORM_FUNCTIONAL || op->row->written != 0; }

bool kiln_memo_keep_calls(kiln_memo *m, const kiln_plan *p) {
    const kiln_work *w = &p->work;
    if (w->nsteps > KILN_MEMO_CALLS || w->nresults > KILN_MEMO_RETS || writes(p->call->op)) return false;
    if (w->nwords > KILN_MEMO_WORK) return false;
    for (int k = 0; k < w->nsteps; k++) {
        m->calls.op[k] = p->op[k];
        if (writes(p->op[k])) return false;
    }
    return kiln_work_keep(&m->calls.work, w, p->call);
}

kiln_status kiln_memo_run_calls(const kiln_memo *m, const kiln_value *args, kiln_tensor **outs) {
    kiln_memo_calls calls; /* the memo may be another call's as soon as a call is made */
    kiln_tensor *made[KILN_MEMO_RETS];
    size_t nrets = m->nrets;
    memcpy(&calls, &m->calls, offsetof(kiln_memo_calls, words) + kiln_work_size(&m->calls.work));
    kiln_within in;
    kiln_runner run = {.memory = m->ctx->memory};
    const kiln_given given = {m->op->name, args, NULL, NULL};
    in.ctx = m->ctx;
    in.op = calls.op;
    in.n = 0;
    in.t = kiln_thread_of(&m->ctx->epochs); /* the calling thread, which is inside an epoch */
    KILN_TRY(kiln_within_run(&in, &calls.work, NULL, &run, &given, made));
    memcpy(outs, made, nrets * sizeof *made);
    return KILN_OK;
}
