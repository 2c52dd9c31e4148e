/* fold_grad_rules.c - the gradient of a fold that adds up: that of its result times the derivative of what it adds.
 *
 * Any other fold needs a `grad` clause. */
#include <string.h>

#include "family/fold_rules.h"

static bool is_name(const kiln_expr *e, const char *name) {
    return e->kind == KILN_X_NAME && strcmp(e->name, name) == 0;
}

/* What a fold adds up: E of `state + E`, or NULL. */
static const kiln_expr *added(const kiln_reduce *r) {
    if (r->states.n != 1 || r->step.n != 1 || r->finish.n > 1) return NULL;
    const kiln_expr *step = r->step.at[0].expr;
    const char *state = r->states.at[0].name;
    if (r->finish.n && (r->finish.at[0].each || !is_name(r->finish.at[0].expr, state))) return NULL;
    if (step->kind != KILN_X_PRIM || step->prim != KILN_P_ADD) return NULL;
    if (r->merge.n) {
        const kiln_expr *m = r->merge.at[0].expr;
        bool joins = m->kind == KILN_X_PRIM && m->prim == KILN_P_ADD && is_name(m->args[0], state) &&
                     m->args[1]->kind == KILN_X_FIELD;
        if (!joins) return NULL;
    }
    return is_name(step->args[0], state)   ? step->args[1]
           : is_name(step->args[1], state) ? step->args[0]
                                           : NULL;
}

typedef struct sought {
    const char *name;
    bool found;
} sought;

static kiln_status seek(void *user, const kiln_expr *e) {
    sought *s = user;
    s->found = s->found || strcmp(s->name, e->name) == 0;
    return KILN_OK;
}

static kiln_status adds_nothing(const kiln_row *row) {
    return KILN_GRAD_FAIL(
        row, "only of a fold that adds up (acc + value from 0) can it be derived: write a 'grad' clause");
}

kiln_status kiln_fold_derivable(const kiln_row *row) {
    for (int b = 0; b < row->nbranches; b++)
        if (row->branches[b].family != KILN_FAMILY_FOLD || added(row->branches[b].reduce)) return KILN_OK;
    return adds_nothing(row);
}

kiln_status kiln_fold_derive(kiln_grad *g, const kiln_row *row, const kiln_branch *b, const kiln_wrt *w,
                             const kiln_expr **out) {
    const kiln_reduce *r = b->reduce;
    const kiln_expr *e = added(r);
    kiln_usage u = {.row = row};
    if (!kiln_grad_may_be(b, 0)) return KILN_OK;
    if (r->over_diagonal)
        return KILN_GRAD_FAIL(
            row, "only some elements are on the diagonal: the gradient of others cannot be derived");
    if (r->triangle)
        return KILN_GRAD_FAIL(
            row, "only some elements are in the triangle: the gradient of others cannot be derived");
    if (!e) return adds_nothing(row);
    sought self = {r->states.at[0].name, false};
    KILN_TRY(kiln_expr_names(e, seek, &self));
    KILN_TRY(kiln_row_use(&u, e));
    if (u.place || u.count || self.found)
        return KILN_GRAD_FAIL(
            row, "what the fold adds depends on the sum so far, on places or counts: write a 'grad' clause");
    return kiln_grad_add(g, w, 0, e, out);
}
