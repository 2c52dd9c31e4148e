/* compose_rules.h - what the files share that say what a row of calls may say, and what plans ask of the calls. */
#ifndef KILN_COMPOSE_RULES_H
#define KILN_COMPOSE_RULES_H
#include "op/row.h"

/* A call of another operator, or of the row's own map of each item. */
typedef struct kiln_called {
    const char *callee; /* "add_.Tensor" */
    int line, col;
    uint64_t each;     /* bit a: list argument a is walked in step with the others: a call for each item */
    kiln_nameds args;  /* name "" for positional */
    kiln_nameds names; /* of its results, for calls after it; without expressions */
    _Atomic(const struct kiln_op *) op[3]; /* by kiln_form; NULL: not looked for yet */
} kiln_called;

enum { KILN_MAX_CALLS = 16 };

/* One way to compute a row's results by calls, taken when `when` holds (NULL: always). */
typedef struct kiln_way {
    const kiln_expr *when;
    kiln_called *calls;
    int ncalls;
    kiln_nameds finish; /* names of the results; none: they are the first ones of the last call */
    kiln_nameds update; /* or, instead of calls: what items of lists become */
    bool updates;
    struct kiln_row *map; /* of an item, made of `update`; NULL: there is nothing to update */
} kiln_way;

typedef struct kiln_compose {
    kiln_way *ways;
    int nways;
    kiln_way before; /* calls before the first `when`, with which every way begins */
    uint64_t each;   /* `for`: bit a: list argument a is walked where ways update */
} kiln_compose;

/* Whether a name is that of a result of one of the first `before` calls: which call, and which of its results. */
bool kiln_way_result(const kiln_way *w, int before, const char *name, int *call, int *result);

/* What the clauses of a row say. */
const kiln_compose *kiln_compose_of(const kiln_row *row);
/* The operator that a call of the row means, in its functional, in-place or out form.  KILN_E_UNSUP: it has no such form. */
kiln_status kiln_called_op(const kiln_row *row, const kiln_called *c, kiln_form form,
                           const kiln_op **out) KILN_MUST_CHECK;
/* Whether a value of type `have` may be given to a call for an argument of type `want`. */
bool kiln_compose_fits(const kiln_type *have, const kiln_type *want);
/* The same while the row is read. */
kiln_status kiln_compose_keep(kiln_lex *lx, kiln_row *row, kiln_compose **out) KILN_MUST_CHECK;
/* The way to which clauses belong that stand here. */
kiln_status kiln_compose_this_way(kiln_lex *lx, kiln_row *row, kiln_way **out) KILN_MUST_CHECK;

/* update_rules.c: rows that update the items of lists. */
extern const kiln_clause kiln_clause_for, kiln_clause_update;
/* Makes the maps of items, when the row has been resolved. */
kiln_status kiln_update_make(kiln_arena *arena, kiln_row *row) KILN_MUST_CHECK;

/* foreach_rules.c: the function `foreach_text` of the family. */
kiln_status kiln_foreach_text(kiln_arena *arena, const kiln_foreach *f, const char **out) KILN_MUST_CHECK;
#endif
