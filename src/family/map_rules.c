/* map_rules.c - what an element-wise row may say, and its gradient.
 *
 * Each body is a result and sees one element of each argument.  The gradient of a branch is the sum over its results of the
 * result's gradient times the derivative of the body. */
#include "op/row_family.h"

static const kiln_clause *const clauses[] = {&kiln_clause_when, &kiln_clause_grad, NULL};

static kiln_status derive(kiln_grad *g, const kiln_row *row, const kiln_branch *b, const kiln_wrt *w,
                          const kiln_expr **out) {
    (void)row;
    for (int k = 0; k < b->nbody; k++)
        if (kiln_grad_may_be(b, k)) KILN_TRY(kiln_grad_add(g, w, k, b->body[k], out));
    return KILN_OK;
}

const kiln_family_rules kiln_rules_map = {
    .clauses = clauses,
    .checks_each = true,
    .one_place = "a map sees one element of each argument and no other place",
    .derive = derive,
};
