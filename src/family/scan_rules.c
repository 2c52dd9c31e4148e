/* scan_rules.c - what a row may say that scans along a dimension.
 *
 * Every result is for each element.  A scan may go by blocks where its states merge, and where nothing that it computes may
 * trap or asks for numbers of elements. */
#include "family/reduce_rules.h"

static const kiln_clause *const clauses[] = {&kiln_clause_when,
                                             &kiln_clause_over,
                                             &kiln_clause_state,
                                             &kiln_clause_step,
                                             &kiln_clause_merge,
                                             &kiln_clause_finish,
                                             NULL};

/* A scan runs along one dimension, which a number names and which its results keep. */
static kiln_status rules(const kiln_row *row) {
    const kiln_reduce *r = row->reduce;
    KILN_TRY(kiln_over_rules(row));
    if (r->over_last || r->over_dims.n || r->over_but || r->over_arg < 0 ||
        !kiln_row_is_kind(row, r->over_arg, KILN_T_INT, false) || kiln_row_optional(row, r->over_arg))
        return KILN_ROW_FAIL(row, "a scan is over one dimension, which an 'int' argument names: see 'over'");
    if (r->keep_arg >= 0 || r->keep)
        return KILN_ROW_FAIL(row, "results of a scan have its dimension: no 'keep'");
    for (int k = 0; k < r->finish.n; k++)
        if (r->finish.at[k].each)
            return KILN_FAIL_LINE(KILN_E_PARSE, row->source, r->finish.at[k].line, r->finish.at[k].col,
                                  "every result of a scan is for each element: no 'each'");
    if (!r->states.n) return KILN_ROW_FAIL(row, "a scan needs a state, or a body with 'from'");
    return kiln_row_bodies_rules(row);
}

static kiln_status complete(const kiln_row *row, const kiln_reduce *r) {
    return r->step.n || r->block.n ? KILN_OK : KILN_ROW_FAIL(row, "a scan needs a step");
}

static kiln_status types(kiln_row_env *re) {
    static const kiln_reduce_kind kind = {complete, true};
    return kiln_reduce_types(re, &kind);
}

/* -- what lowering asks -------------------------------------------------------------------------------------- */

/* Whether e divides, and the division may be of integers.  Lets that e names are not looked at. */
static bool divides(const kiln_expr *e) {
    if (e->kind == KILN_X_PRIM && kiln_prim_trait(e->prim) == KILN_TRAIT_DIVIDES) return true;
    for (int k = 0; k < e->nargs; k++)
        if (divides(e->args[k])) return true;
    return false;
}

static bool any_divides(const kiln_nameds *list) {
    for (int k = 0; k < list->n; k++)
        if (divides(list->at[k].expr)) return true;
    return false;
}

/* Whether the scan r of a row may go by blocks.  all: what its step, merge and finish use. */
static bool may_be_cut(const kiln_reduce *r, const kiln_usage *all) {
    bool merges = r->merge.n || r->from;
    if (!merges || all->count || any_divides(&r->step) || any_divides(&r->merge) || any_divides(&r->finish))
        return false;
    for (int k = 0; k < all->row->lets.n; k++)
        if ((all->lets >> k & 1) && divides(all->row->lets.at[k].expr)) return false;
    return true;
}

static kiln_status note(const kiln_row *row, kiln_branch *b) {
    kiln_reduce *r = b->reduce;
    kiln_usage all = {.row = row}, merge = {.row = row};
    KILN_TRY(kiln_row_use_all(&merge, &r->merge));
    r->counts = merge.count;
    KILN_TRY(kiln_row_use_all(&all, &r->step));
    KILN_TRY(kiln_row_use_all(&all, &r->merge));
    KILN_TRY(kiln_row_use_all(&all, &r->finish));
    r->places = all.place; /* a merge sees no place, so steps and finishes decide */
    r->cuts = may_be_cut(r, &all);
    return KILN_OK;
}

const kiln_family_rules kiln_rules_scan = {
    .clauses = clauses,
    .folding = &kiln_reduce_folding,
    .accumulate = kiln_reduce_accumulate,
    .counts = true,
    .rules = rules,
    .find = kiln_reduce_find,
    .names = kiln_over_names,
    .types = types,
    .note = note,
};
