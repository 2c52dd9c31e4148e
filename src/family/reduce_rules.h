/* reduce_rules.h - clauses that several families have: which dimensions are folded or scanned, and by what states.
 *
 * kiln_clause_finish gives results, each of them for every element or for all that are folded together. */
#ifndef KILN_REDUCE_RULES_H
#define KILN_REDUCE_RULES_H
#include "op/row.h"

/* The type of a state.  A wide one is what PyTorch adds up in on CPUs: f64 for f32, c128 for c64, f32 for halves.  A real one
 * is that of the parts. */
static inline kiln_dtype kiln_state_dtype(const kiln_named *state, kiln_dtype common) {
    if (state->dtype != KILN_DTYPE_COUNT) return state->dtype;
    if (state->wide && common == KILN_F32) return KILN_F64;
    if (state->wide && common == KILN_C64) return KILN_C128;
    return state->real ? kiln_dtype_real(kiln_dtype_compute(common)) : kiln_dtype_compute(common);
}

/* The parts of a row or branch beyond bodies. */
struct kiln_reduce {
    int over_arg;               /* argument naming the reduced dims, or -1 */
    const kiln_expr *over_last; /* or: how many trailing dims, */
    bool over_first;            /* leading ones */
    kiln_nameds over_dims;      /* or: numbers of dimensions, from the end if negative, */
    bool flat;                  /* and results have the others as one, */
    bool triangle;              /* or of two others the places right of the diagonal, as one */
    bool over_but;              /* all dimensions but that of over_arg */
    bool over_only;             /* an empty list of them means none, not all */
    bool over_diagonal;         /* or: the elements of a matrix whose two places are the same */
    bool over_alike;            /* or: all elements of tensors of the same sizes, none of others */
    int keep_arg;               /* bool argument that keeps them as size 1, or -1 */
    bool keep;                  /* they are kept in any case */
    kiln_nameds states, step, block, merge, finish;
    kiln_nameds writes;    /* arguments that are written to, and what to */
    const kiln_expr *from; /* shorthand: the initial value of `acc`; states and step are filled from it */
    bool places;           /* the step (of a scan: or finish) asks for an element's place, `i` */
    bool counts;           /* the merge asks for numbers of elements, `n` */
    bool spots;            /* nothing is folded, and the one result is `i == place ? value : number` */
    bool loose;            /* nothing is folded, counted or written, and no element asks for its place */
    bool cuts; /* scan: it may go by blocks, since it merges, asks for no `n` and divides no integers */
};

/* What src/op does with these clauses, for families that have them. */
extern const kiln_folding_rules kiln_reduce_folding;
/* The kiln_reduce that takes the next clause: that of the last branch if the branch has a `when`, else the row's. */
kiln_reduce *kiln_row_reduce(kiln_row *row);
/* How many results the row computes itself; a call of another operator gives the others (`rest`). */
int kiln_row_nown(const kiln_row *row);

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
