/* fold_rules.h - what the files share that say what a fold's row may say. */
#ifndef KILN_FOLD_RULES_H
#define KILN_FOLD_RULES_H
#include "family/reduce_rules.h"

/* view_rules.c */
extern const kiln_clause kiln_clause_view, kiln_clause_kept, kiln_clause_writes, kiln_clause_gives,
    kiln_clause_rest;
/* Whether these clauses are of tensors and results that the row has. */
kiln_status kiln_view_rules(const kiln_row *row) KILN_MUST_CHECK;
/* Whether the operator of `rest` takes arguments of the row and gives the results that are left. */
kiln_status kiln_rest_rules(const kiln_registry *r, const kiln_row *row) KILN_MUST_CHECK;

/* fold_grad_rules.c: the functions `derive` and `derivable` of the family. */
kiln_status kiln_fold_derive(kiln_grad *g, const kiln_row *row, const kiln_branch *b, const kiln_wrt *w,
                             const kiln_expr **out) KILN_MUST_CHECK;
kiln_status kiln_fold_derivable(const kiln_row *row) KILN_MUST_CHECK;
#endif
