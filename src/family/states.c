/* states.c - the states of a row's fold or scan: their types, and the expressions that give them, typed and lowered.
 *
 * A state has the compute type unless the row says otherwise; one of complex type is two IR states.  What a state is
 * where it is read (in a step, a merge, at the end) is the family's to say.  Owns nothing. */
#include "family/states.h"

kiln_status kiln_states_begin(const kiln_lowering *lw, int more, kiln_states *out) {
    const kiln_nameds *states = &lw->branch->reduce->states;
    *out = (kiln_states){.reduce = lw->branch->reduce, .n = states->n};
    for (int k = 0; k < states->n; k++) {
        out->dtype[k] = kiln_state_dtype(&states->at[k], lw->plan->typed.common);
        out->at[k] = out->ncells;
        out->ncells += kiln_dtype_is_complex(out->dtype[k]) ? 2 : 1;
    }
    out->ncells += more;
    if (out->ncells <= KILN_IR_MAX_STATES) return KILN_OK;
    return KILN_FAIL(KILN_E_LIMIT, "%s: %d states, of which there can be %d", lw->row->name, out->ncells,
                     KILN_IR_MAX_STATES);
}

kiln_status kiln_states_type(kiln_lowering *lw, const kiln_states *s, const kiln_nameds *clause,
                             const kiln_texpr **out) {
    kiln_nameds before = {clause->at, 0};
    for (int k = 0; k < s->n && clause->n; k++) {
        const kiln_named *v = kiln_named_of(clause, s->reduce->states.at[k].name);
        if (!v) return KILN_BUG("a clause without state '%s'", s->reduce->states.at[k].name);
        before.n = (int)(v - clause->at); /* a block sees what it has named so far */
        if (lw->env.env.in_block) lw->env.scope = &before;
        KILN_TRY(kiln_expr_type(&lw->env.env, v->expr, s->dtype[k], &out[k]));
        lw->env.scope = NULL;
    }
    return KILN_OK;
}

/* A row in short form merges as it steps: the step with two accumulators for its arguments, whatever it was typed to
 * (`+` of bools is `or`, of complex numbers a rule). */
static kiln_status type_short_merge(kiln_lowering *lw, const kiln_states *s, const kiln_texpr *step,
                                    const kiln_texpr **out) {
    kiln_texpr *both = kiln_arena_alloc(lw->arena, 3 * sizeof *both);
    const kiln_texpr **args = kiln_arena_alloc(lw->arena, 2 * sizeof *args);
    if (!both || !args) return KILN_NOMEM();
    if (step->nargs != 2) return KILN_BUG("%s: a step that does not merge", lw->row->name);
    for (int k = 0; k < 2; k++) {
        both[k] = (kiln_texpr){.kind = k ? KILN_TE_RHS : KILN_TE_STATE, .dtype = s->dtype[0]};
        args[k] = &both[k];
    }
    both[2] = *step;
    both[2].args = args;
    *out = &both[2];
    return KILN_OK;
}

kiln_status kiln_states_type_merge(kiln_lowering *lw, const kiln_states *s, const kiln_texpr *const *step,
                                   const kiln_texpr **out) {
    if (s->reduce->from) return type_short_merge(lw, s, step[0], out);
    lw->env.merge = true;
    kiln_status st = kiln_states_type(lw, s, &s->reduce->merge, out);
    lw->env.merge = false;
    return st;
}

kiln_dtype kiln_states_cell_dtype(const kiln_states *s, int cell) {
    int k = s->n - 1;
    while (k > 0 && s->at[k] > cell) k--;
    return kiln_dtype_real(s->dtype[k]);
}

kiln_status kiln_states_type_finish(kiln_lowering *lw, const kiln_states *s, const kiln_texpr **out) {
    for (int k = 0; k < lw->plan->typed.nrets; k++) {
        kiln_dtype want = kiln_dtype_compute(lw->plan->typed.ret_dtype[k]);
        if (k < s->reduce->finish.n && s->reduce->finish.at[k].empty) continue;
        if (k >= kiln_row_nown(lw->row)) break; /* another operator's */
        if (k < s->reduce->finish.n) {
            KILN_TRY(kiln_expr_type(&lw->env.env, s->reduce->finish.at[k].expr, want, &out[k]));
            continue;
        }
        kiln_texpr *acc = kiln_arena_alloc(lw->arena, sizeof *acc);
        if (!acc) return KILN_NOMEM();
        *acc = (kiln_texpr){.kind = KILN_TE_STATE, .dtype = s->dtype[0]};
        KILN_TRY(kiln_expr_cast(&lw->env.env, acc, want, &out[k]));
    }
    return KILN_OK;
}

void kiln_states_lower(kiln_lowering *lw, const kiln_states *s, const kiln_texpr *const *of, kiln_ref *out) {
    for (int k = 0; k < s->n; k++) {
        kiln_pair v = kiln_lower_expr(lw, of[k]);
        out[s->at[k]] = v.re;
        if (kiln_dtype_is_complex(s->dtype[k])) out[s->at[k] + 1] = v.im;
    }
}
