/* fold_rules.c - what a row may say that folds dimensions: its clauses, what they must be, and what lowering asks of them.
 *
 * A branch with a condition may have bodies instead of clauses: it folds nothing and is a map.  Clauses by which a fold sees
 * arguments in other sizes, or writes to them, are view_rules.c's; gradients are fold_grad_rules.c's. */
#include <string.h>

#include "family/fold_rules.h"

/* -- clauses ------------------------------------------------------------------------------------------------- */

/* when COND ATTRIBUTES [= BODIES]; without bodies it has clauses after it. */
static kiln_status clause_when(kiln_lex *lx, kiln_row *row) {
    kiln_branch *b = NULL;
    bool body;
    KILN_TRY(kiln_row_when(lx, row, &b));
    KILN_TRY(kiln_lex_accept(lx, "=", &body));
    return body ? kiln_row_bodies(lx, row, b) : KILN_OK;
}

static kiln_status clause_lack(kiln_lex *lx, kiln_row *row) { return kiln_row_args(lx, row, &row->lacking); }

static kiln_status clause_finish(kiln_lex *lx, kiln_row *row) { return kiln_finish_clause(lx, row, true); }

static const kiln_clause when = {.word = "when", .parse = clause_when, .again = true, .opens = true};
static const kiln_clause lack = {.word = "lack", .parse = clause_lack, .again = true};
static const kiln_clause finish = {.word = "finish", .parse = clause_finish, .each = true};
static const kiln_clause *const clauses[] = {&when,
                                             &kiln_clause_grad,
                                             &lack,
                                             &kiln_clause_over,
                                             &kiln_clause_state,
                                             &kiln_clause_step,
                                             &finish,
                                             &kiln_clause_writes,
                                             &kiln_clause_view,
                                             &kiln_clause_kept,
                                             &kiln_clause_block,
                                             &kiln_clause_merge,
                                             &kiln_clause_gives,
                                             &kiln_clause_rest,
                                             NULL};

static kiln_family family_of(const kiln_branch *b) {
    return b->when && b->nbody ? KILN_FAMILY_MAP : KILN_FAMILY_FOLD;
}

/* -- rules --------------------------------------------------------------------------------------------------- */

static bool gives_bool(const kiln_row *row) {
    const kiln_reduce *r = row->reduce;
    return r->over_arg < 0 && !r->over_last && !r->over_dims.n;
}

static kiln_status access(const kiln_row *row, const kiln_expr *e) {
    const kiln_coord *c = e->coord;
    bool last = e->ncoord == 2 && c[0].rest && !c[1].rest && !c[1].dim, one = e->ncoord == 1 && !c[0].rest;
    bool number = !c[0].dim || (c[0].dim->kind == KILN_X_NUM && !c[0].dim->is_float);
    if (!(last || one) || !number)
        return kiln_expr_fail(row->source, e, KILN_E_PARSE,
                              "a fold reads %s[at], %s[.., at] or %s[NUMBER: at]", e->name, e->name, e->name);
    if (!e->other || e->skip)
        return kiln_expr_fail(row->source, e, KILN_E_PARSE,
                              "expected 'else' and a value for places out of range");
    return KILN_OK;
}

static kiln_status check_lacking(const kiln_row *row) {
    for (int a = 0; a < row->schema->nargs; a++)
        if ((row->lacking >> a & 1) && !kiln_row_is_tensor(row, a))
            return KILN_ROW_FAIL(row, "'%s' is no tensor: see 'lack'", row->schema->args[a].name);
    return KILN_OK;
}

static bool folds_something(const kiln_row *row) {
    for (int b = 0; b < row->nbranches; b++)
        if (row->branches[b].reduce->states.n || row->branches[b].reduce->finish.n) return true;
    return false;
}

static kiln_status rules(const kiln_row *row) {
    KILN_TRY(kiln_over_rules(row));
    if (row->reduce->over_diagonal && row->grads.n)
        return KILN_ROW_FAIL(row,
                             "elements beside the diagonal have another gradient: no 'grad' over a diagonal");
    KILN_TRY(check_lacking(row));
    KILN_TRY(kiln_view_rules(row));
    KILN_TRY(kiln_row_bodies_rules(row));
    if (folds_something(row)) return KILN_OK;
    return KILN_ROW_FAIL(row, "nothing is folded: a fold has a state, or a body with 'from', as "
                              "'fold my::total(Tensor x) -> Tensor : takes float = acc + x from 0'");
}

/* Folds with a block and a result for each element take all elements as one block, so there is nothing to merge. */
static bool is_one_block(const kiln_reduce *r) {
    bool each = false;
    for (int k = 0; k < r->finish.n; k++) each |= r->finish.at[k].each;
    return each && r->block.n;
}

static kiln_status complete(const kiln_row *row, const kiln_reduce *r) {
    if (!r->step.n && !r->block.n) return KILN_ROW_FAIL(row, "a fold needs a step or a block");
    if (!r->merge.n && !r->from && !is_one_block(r)) return KILN_ROW_FAIL(row, "a fold needs a merge");
    return KILN_OK;
}

static kiln_status types(kiln_row_env *re) {
    static const kiln_reduce_kind kind = {complete, false};
    return kiln_reduce_types(re, &kind);
}

static kiln_status check(const kiln_registry *r, const kiln_row *row, kiln_budget *budget, int *ntyped) {
    if (row->rest) KILN_TRY(kiln_rest_rules(r, row));
    return kiln_row_check_branches(row, budget, ntyped);
}

static kiln_status visit(const kiln_row *row, kiln_visit_fn each, void *user) {
    KILN_TRY(kiln_over_visit(row, each, user));
    KILN_TRY(kiln_visit_all(&row->gives, KILN_USE_CONDITION, each, user));
    for (int k = 0; k < row->nviews; k++) {
        KILN_TRY(kiln_visit_all(&row->views[k].sizes, KILN_USE_SHAPE, each, user));
        if (row->views[k].when) KILN_TRY(each(user, row->views[k].when, KILN_USE_SHAPE));
    }
    return KILN_OK;
}

/* -- what lowering asks -------------------------------------------------------------------------------------- */

static const kiln_expr *let_of(const kiln_row *row, const kiln_expr *e) {
    const kiln_named *let = e->kind == KILN_X_NAME ? kiln_named_of(&row->lets, e->name) : NULL;
    return let ? let->expr : e;
}

/* Whether fold r of a row has the flag `spots`: its one result is `i == PLACE ? VALUE : NUMBER`. */
static bool sets_spots(const kiln_row *row, const kiln_reduce *r) {
    if (r->states.n || r->finish.n != 1 || !r->finish.at[0].each || !r->finish.at[0].expr) return false;
    const kiln_expr *e = let_of(row, r->finish.at[0].expr);
    if (e->kind != KILN_X_PRIM || e->prim != KILN_P_SELECT || e->args[2]->kind != KILN_X_NUM) return false;
    const kiln_expr *test = let_of(row, e->args[0]);
    return test->kind == KILN_X_PRIM && test->prim == KILN_P_EQ && test->args[0]->kind == KILN_X_NAME &&
           strcmp(test->args[0]->name, "i") == 0;
}

/* Sets r->loose: the fold has no states, blocks or writes, and each of its results is for each element, or empty. */
static kiln_status find_loose(const kiln_row *row, kiln_reduce *r) {
    kiln_usage finish = {.row = row};
    KILN_TRY(kiln_row_use_all(&finish, &r->finish));
    r->loose = !r->states.n && !r->block.n && !r->writes.n && !finish.place && !finish.count;
    for (int k = 0; k < r->finish.n; k++)
        r->loose = r->loose && (r->finish.at[k].each || r->finish.at[k].empty);
    return KILN_OK;
}

/* What is written to, and results of whole folds: they are there before one for each element is computed from the arguments again. */
static void note_results(const kiln_row *row, kiln_branch *b) {
    const kiln_reduce *r = b->reduce;
    uint32_t each = 0;
    for (int k = 0; k < r->finish.n; k++) each |= (uint32_t)r->finish.at[k].each << k;
    for (int k = 0; k < row->schema->nrets; k++) b->early |= (uint32_t)((each & ~(1u << k)) != 0) << k;
    b->nwrites = r->writes.n;
    for (int k = 0; k < r->writes.n; k++)
        b->writes[k] = (int8_t)kiln_schema_arg(row->schema, r->writes.at[k].name);
}

static kiln_status note(const kiln_row *row, kiln_branch *b) {
    kiln_reduce *r = b->reduce;
    note_results(row, b);
    kiln_usage step = {.row = row}, merge = {.row = row};
    KILN_TRY(kiln_row_use_all(&step, &r->step));
    KILN_TRY(kiln_row_use_all(&merge, &r->merge));
    r->places = step.place;
    r->counts = merge.count;
    r->spots = sets_spots(row, r);
    return find_loose(row, r);
}

const kiln_family_rules kiln_rules_fold = {
    .clauses = clauses,
    .folding = &kiln_reduce_folding,
    .accumulate = kiln_reduce_accumulate,
    .checks_each = true,
    .formats = true,
    .counts = true,
    .branch = family_of,
    .rules = rules,
    .gives_bool = gives_bool,
    .find = kiln_reduce_find,
    .visit = visit,
    .names = kiln_over_names,
    .access = access,
    .note = note,
    .check = check,
    .types = types,
    .derive = kiln_fold_derive,
    .derivable = kiln_fold_derivable,
};
