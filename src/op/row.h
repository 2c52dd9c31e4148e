/* row.h - private to src/op: reading one row, and the names in scope of its clauses. */
#ifndef KILN_ROW_H
#define KILN_ROW_H
#include "op/op.h"

/* Parses one row: text[0..n) starts at its family word, on line `line` of `source`. */
kiln_status kiln_row_parse(kiln_arena *arena, const char *source, const char *text, size_t n, int line,
                           kiln_row **out) KILN_MUST_CHECK;

/* The digest of a row's text; comments and how white space is laid out do not count. */
kiln_status kiln_row_digest(const char *text, size_t n, kiln_digest *out) KILN_MUST_CHECK;
/* Gives the row its rules for complex numbers.  What it computes depends on them, so its digest does. */
void kiln_row_set_rules(kiln_row *row, const kiln_crules *rules, kiln_digest digest);

/* Parses the clause that starts at the current token (a clause word). */
kiln_status kiln_row_clause(kiln_lex *lx, kiln_row *row) KILN_MUST_CHECK;
bool kiln_row_clause_word(const kiln_lex *lx);

/* Attributes up to `=`, a clause or the end of the row, into t (and row->takes). */
kiln_status kiln_row_attrs(kiln_lex *lx, kiln_row *row, kiln_typing *t) KILN_MUST_CHECK;
kiln_status kiln_row_strides(kiln_lex *lx, kiln_row *row,
                             kiln_typing *t) KILN_MUST_CHECK; /* after the word */
kiln_status kiln_row_bodies(kiln_lex *lx, kiln_row *row, kiln_branch *b) KILN_MUST_CHECK;
/* Where clauses that fold are put that stand here: those of the `when` before them, or the row's. */
kiln_reduce *kiln_row_reduce(kiln_row *row);
/* A new branch with the head's typing; fails when there are too many. */
kiln_status kiln_row_branch(kiln_lex *lx, kiln_row *row, kiln_branch **out) KILN_MUST_CHECK;
/* One more name in a list, which it is added to; fails with `most` when there are too many. */
kiln_status kiln_row_named(kiln_lex *lx, kiln_nameds *list, const char *most,
                           kiln_named **out) KILN_MUST_CHECK;
/* NAME = EXPR, ...: adds them to the list. */
kiln_status kiln_row_nameds(kiln_lex *lx, kiln_nameds *out) KILN_MUST_CHECK;
/* ARG, ARG, ...: adds their bits to set. */
kiln_status kiln_row_args(kiln_lex *lx, const kiln_row *row, uint64_t *set) KILN_MUST_CHECK;
kiln_status kiln_row_arg(kiln_lex *lx, const kiln_row *row,
                         int *out) KILN_MUST_CHECK; /* an argument's name; takes it */
/* The name of an operator, which may have dots and a namespace; "" if none stands here. */
kiln_status kiln_row_operator(kiln_lex *lx, const char **out) KILN_MUST_CHECK;

/* row_view.c: clauses by which a fold sees and writes arguments. */
kiln_status kiln_row_clause_view(kiln_lex *lx, kiln_row *row) KILN_MUST_CHECK;
kiln_status kiln_row_clause_kept(kiln_lex *lx, kiln_row *row) KILN_MUST_CHECK;
kiln_status kiln_row_clause_writes(kiln_lex *lx, kiln_row *row) KILN_MUST_CHECK;
kiln_status kiln_row_clause_gives(kiln_lex *lx, kiln_row *row) KILN_MUST_CHECK;
kiln_status kiln_row_clause_rest(kiln_lex *lx, kiln_row *row) KILN_MUST_CHECK;
/* Whether the operator of `rest` takes arguments of the row and gives the results that are left. */
kiln_status kiln_row_rest_fits(const kiln_registry *r, const kiln_row *row) KILN_MUST_CHECK;
/* Whether what they say is of tensors and results that the row has. */
kiln_status kiln_row_views_fit(const kiln_row *row) KILN_MUST_CHECK;

/* What a row must keep beyond its grammar: see row_rules.c.  After default promotion, before resolve. */
kiln_status kiln_row_rules(const kiln_row *row) KILN_MUST_CHECK;

/* row_compose.c: the clauses of compose rows, after their words; and what calls must be given. */
kiln_status kiln_compose_when(kiln_lex *lx, kiln_row *row) KILN_MUST_CHECK;
kiln_status kiln_compose_call(kiln_lex *lx, kiln_row *row) KILN_MUST_CHECK;
kiln_status kiln_compose_finish(kiln_lex *lx, kiln_row *row) KILN_MUST_CHECK;
kiln_status kiln_compose_this_way(kiln_lex *lx, kiln_row *row,
                                  kiln_way **out) KILN_MUST_CHECK; /* that of clauses which stand here */
kiln_status kiln_compose_rules(const kiln_row *row) KILN_MUST_CHECK;
kiln_status kiln_compose_check(const kiln_registry *r, const kiln_row *row) KILN_MUST_CHECK;

/* row_update.c: clauses, after their words; and the maps of items, when the row has been resolved. */
kiln_status kiln_update_for(kiln_lex *lx, kiln_row *row) KILN_MUST_CHECK;
kiln_status kiln_update_clause(kiln_lex *lx, kiln_row *row) KILN_MUST_CHECK;
kiln_status kiln_update_make(kiln_arena *arena, kiln_row *row) KILN_MUST_CHECK;

/* Where nothing says otherwise, every tensor argument without a `takes` of its own is promoted. */
void kiln_row_default_promotion(kiln_row *row);

/* Whether what an extern row gives to its routine, and takes from it, is what the routine has. */
kiln_status kiln_routine_fits(const kiln_row *row) KILN_MUST_CHECK;

/* Whether a fold can read a tensor so: x[at] of one dimension, x[.., at] or x[dim: at], with an `else`. */
kiln_status kiln_row_access(const kiln_row *row, const kiln_expr *e) KILN_MUST_CHECK;
/* Whether two accesses compute the place along the same dimension. */
bool kiln_same_place(const kiln_expr *a, const kiln_expr *b);

/* Sets row->asked and row->asked_single. */
void kiln_row_find_asked(kiln_row *row);
/* Sets branch->code; after resolve. */
void kiln_row_find_twins(kiln_row *row);

/* What of a row expressions use, themselves and by the names they use. */
typedef struct kiln_usage {
    const kiln_row *row;
    uint64_t set;         /* arguments */
    uint32_t lets, hosts; /* names met: each is walked once, however often and deep it is used */
    bool place, count;    /* `i`, `n`, where no argument is called so */
    bool hosting;         /* within a host number, which asks for sizes and no elements */
    uint64_t elements, accessed,
        hosted; /* arguments whose element at each place is used; at computed places; in host numbers */
    const kiln_expr *access[KILN_MAX_ARGS];
} kiln_usage;
kiln_status kiln_row_use(kiln_usage *u, const kiln_expr *e)
    KILN_MUST_CHECK; /* adds e, if it is not NULL; what its host numbers ask for is in `set`, too */

/* The branches that calls may take whose arguments have these dtypes only: bit b for branch b. */
kiln_status kiln_row_reach(const kiln_row *row, kiln_dtypes takes, const kiln_dtypes *arg_takes,
                           kiln_budget *budget, uint32_t *out) KILN_MUST_CHECK;

/* The results' gradients, and the results, in a gradient's row: "grad", or "grad_1" of several; "result". */
enum { KILN_GRAD_NAME = 48 };
void kiln_row_grad_name(const kiln_row *row, const char *word, int result, char out[KILN_GRAD_NAME]);

/* Fails if an argument or a name is used nowhere; fills branch->uses and branch->knows. */
kiln_status kiln_row_resolve(kiln_row *row) KILN_MUST_CHECK;
#endif
