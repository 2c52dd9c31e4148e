/* reduce_rules.h - clauses that several families have: which dimensions are folded or scanned, and by what states.
 *
 * kiln_clause_finish gives results, each of them for every element or for all that are folded together. */
#ifndef KILN_REDUCE_RULES_H
#define KILN_REDUCE_RULES_H
#include "op/row.h"

extern const kiln_clause kiln_clause_over, kiln_clause_state, kiln_clause_step, kiln_clause_block,
    kiln_clause_merge, kiln_clause_finish;

/* `accumulate` of families with states. */
kiln_status kiln_reduce_accumulate(kiln_lex *lx, kiln_row *row, const kiln_expr *body) KILN_MUST_CHECK;
/* Reads a `finish` clause.  may_be_empty: `empty` may stand in the place of an expression. */
kiln_status kiln_finish_clause(kiln_lex *lx, kiln_row *row, bool may_be_empty) KILN_MUST_CHECK;
/* `find` of families with states: the states, `n`, and `i` along the dimensions that are folded or scanned. */
bool kiln_reduce_find(const kiln_row_env *re, const char *name, bool rhs, kiln_sym *out);
/* `names` of families with these clauses. */
uint64_t kiln_over_names(const kiln_row *row, bool shapes);
/* `visit` of what `over` says. */
kiln_status kiln_over_visit(const kiln_row *row, kiln_visit_fn visit, void *user) KILN_MUST_CHECK;
/* Whether `over` and `keep` name arguments of the right types. */
kiln_status kiln_over_rules(const kiln_row *row) KILN_MUST_CHECK;
/* Whether a row with `over dims(..) triangle` has what goes with that. */
kiln_status kiln_triangle_rules(const kiln_row *row) KILN_MUST_CHECK;
bool kiln_gives_each(const kiln_row *row); /* some result is for each element */

/* How families differ in what folds. */
typedef struct kiln_reduce_kind {
    kiln_status (*complete)(const kiln_row *row,
                            const kiln_reduce *r); /* fails if a branch with states lacks a clause */
    bool each;                                     /* every `finish` is for each element, and sees elements */
} kiln_reduce_kind;
/* Types states, steps, blocks, merges, results and what is written, each in its own scope. */
kiln_status kiln_reduce_types(kiln_row_env *re, const kiln_reduce_kind *kind) KILN_MUST_CHECK;
#endif
