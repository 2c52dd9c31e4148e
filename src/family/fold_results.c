/* fold_results.c - which results of a fold a call gives, by the row's `gives`, and which of them have elements.
 *
 * A result that is not given keeps its place among the buffers, and nothing is stored to it. */
#include "family/fold.h"
#include "family/reduce_rules.h"

kiln_status kiln_fold_results(kiln_plan *p) {
    const kiln_row *row = p->call->op->row;
    const kiln_nameds *finish = &p->branch->reduce->finish;
    kiln_call_env env;
    for (int k = 0; k < finish->n; k++) p->typed.unstored |= (uint32_t)finish->at[k].empty << k;
    if (!row->gives.n) return KILN_OK;
    kiln_call_env_init(&env, p->call, p->typed.common);
    for (int k = 0; k < row->gives.n; k++) {
        bool given;
        kiln_status st = kiln_expr_holds(&env.env, row->gives.at[k].expr, &given);
        if (st != KILN_OK) return kiln_note(st, "%s", p->call->op->name);
        if (!given && p->call->nout)
            return KILN_FAIL(KILN_E_ARG, "%s: there is no result %d to be written", p->call->op->name, k);
        p->typed.absent |= (uint32_t)!given << k;
    }
    p->typed.unstored |= p->typed.absent;
    return KILN_OK;
}
