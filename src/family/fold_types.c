/* fold_types.c - the expressions of a fold row -> typed ones, and what follows from them before anything is lowered.
 *
 * Divisions of integers are refused.  States that hold places are found: within a block such a place is kept as the
 * distance from the block's first element, in 32 bits.  Must not know IR. */
#include "family/fold_lower.h"

/* -- types ---------------------------------------------------------------------------------------------------- */

/* What is written to arguments, in the order of their buffers. */
static kiln_status type_writes(kiln_folding *f) {
    const kiln_plan *p = f->base.plan;
    const kiln_schema *schema = f->base.row->schema;
    for (int k = p->typed.nrets; k < p->axes.nwritten; k++) {
        const kiln_named *w = kiln_named_of(&f->reduce->writes, schema->args[p->buffer[k].which].name);
        kiln_dtype to = kiln_dtype_compute(p->buffer[k].dtype);
        KILN_TRY(kiln_expr_type(&f->base.env.env, w->expr, to, &f->finish[k]));
    }
    return KILN_OK;
}

static kiln_status type_all(kiln_folding *f) {
    kiln_row_env *re = &f->base.env;
    const kiln_reduce *r = f->reduce;
    KILN_TRY(kiln_states_type(&f->base, &f->states, &r->states, f->init));
    re->states = true;
    KILN_TRY(kiln_states_type(&f->base, &f->states, &r->step, f->step));
    re->env.in_block = true;
    KILN_TRY(kiln_states_type(&f->base, &f->states, &r->block, f->block));
    re->env.in_block = false;
    KILN_TRY(kiln_states_type_merge(&f->base, &f->states, f->step, f->merge));
    KILN_TRY(kiln_states_type_finish(&f->base, &f->states, f->finish));
    return type_writes(f);
}

static bool any_divides(const kiln_texpr *const *of, int n) {
    for (int k = 0; k < n; k++)
        if (of[k] && kiln_lower_divides(of[k])) return true;
    return false;
}

/* A zero would have to be found before anything is written, and what is divided by may be known after the fold only. */
static kiln_status refuse_divisions(const kiln_folding *f) {
    bool any = any_divides(f->step, f->states.n) || any_divides(f->block, f->states.n) ||
               any_divides(f->merge, f->states.n) || any_divides(f->finish, f->base.plan->axes.nwritten);
    return any ? KILN_FAIL(KILN_E_UNSUP, "%s: a fold that divides integers is not served", f->base.row->name)
               : KILN_OK;
}

/* -- places --------------------------------------------------------------------------------------------------- */

static bool is_place(const kiln_folding *f, const kiln_texpr *e) {
    bool state = e->kind == KILN_TE_STATE || e->kind == KILN_TE_RHS;
    return e->kind == KILN_TE_POS || (state && f->places >> e->id & 1);
}

static bool compares(const kiln_texpr *e) {
    return e->kind == KILN_TE_PRIM && e->nargs == 2 && e->prim >= KILN_P_EQ && e->prim <= KILN_P_GE;
}

/* Whether e asks no more of places than how they compare with each other. */
static bool compares_places(const kiln_folding *f, const kiln_texpr *e) {
    if (!e) return true;
    if (is_place(f, e)) return false;
    if (compares(e) && is_place(f, e->args[0]) && is_place(f, e->args[1])) return true;
    for (int k = 0; k < e->nargs; k++)
        if (!compares_places(f, e->args[k])) return false;
    return true;
}

static bool chooses_place(const kiln_folding *f, const kiln_texpr *e) {
    if (is_place(f, e)) return true;
    return e->kind == KILN_TE_PRIM && e->prim == KILN_P_SELECT && compares_places(f, e->args[0]) &&
           chooses_place(f, e->args[1]) && chooses_place(f, e->args[2]);
}

/* States that are places: chosen among the elements' and, before there is one, a number that comes before all of them, as its
 * distance does.  None, unless the row can do without more. */
static void find_places(kiln_folding *f) {
    if (!f->reduce->places || f->reduce->block.n || f->count >= 0 || f->reduce->from) return;
    for (int k = 0; k < f->states.n; k++)
        if (f->states.dtype[k] == KILN_I64 && f->init[k]->kind == KILN_TE_CONST && f->init[k]->i <= 0)
            f->places |= 1u << k;
    for (int k = 0; k < f->states.n; k++) {
        bool (*fits)(const kiln_folding *, const kiln_texpr *) = f->places >> k & 1 ? chooses_place
                                                                                    : compares_places;
        if (fits(f, f->step[k]) && fits(f, f->merge[k])) continue;
        f->places = 0;
        return;
    }
}

kiln_status kiln_fold_type(kiln_folding *f) {
    KILN_TRY(type_all(f));
    KILN_TRY(refuse_divisions(f));
    find_places(f);
    return KILN_OK;
}
