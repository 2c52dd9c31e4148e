/* row_family.h - what src/op asks of a row's family.
 *
 * Every family of family.def fills in kiln_family_rules in src/family/NAME_rules.c, and src/op finds the rules by
 * kiln_rules_of: src/op knows no family by name.  Rules see text, expressions and dtypes, and never a call or a tensor,
 * because tools/index_ops, which checks the rows of the library while the library is built, is linked with the rules alone. */
#ifndef KILN_ROW_FAMILY_H
#define KILN_ROW_FAMILY_H
#include "expr/expr_grad.h"
#include "op/op.h"

/* A clause of rows. */
typedef struct kiln_clause {
    const char *word;
    kiln_status (*parse)(kiln_lex *lx, kiln_row *row); /* reads what follows the word */
    bool again;                                        /* a row may have this clause several times */
    bool each;                                         /* a row may have this clause once for each `when` */
    bool untraced; /* calls of a row with this clause cannot be traced: see kiln_op_untraced */
    bool opens;    /* this clause begins a branch, to which the clauses after it belong: `when` */
} kiln_clause;

/* What an expression of a clause is for. */
typedef enum kiln_expr_use {
    KILN_USE_ONCE,      /* computed once for each call */
    KILN_USE_SHAPE,     /* computed once for each call; shapes follow from the value */
    KILN_USE_CONDITION, /* computed once for each call; the value decides which results the call gives */
    KILN_USE_BODY       /* computed for elements */
} kiln_expr_use;
typedef kiln_status (*kiln_visit_fn)(void *user, const kiln_expr *e, kiln_expr_use use);

enum { KILN_MAX_DEFINED = 2 };

typedef struct kiln_foreach kiln_foreach; /* row.h */
typedef struct kiln_grad kiln_grad;       /* a gradient that is being derived: row_grad.c */

typedef struct kiln_usage kiln_usage; /* row.h */

/* What families with clauses that fold or scan do with them.  src/op keeps a kiln_reduce for each row and branch, and does not
 * know what it says. */
typedef struct kiln_folding_rules {
    /* Makes room for the clauses of a row or of a branch. */
    kiln_status (*begin)(kiln_arena *arena, kiln_reduce **out);
    /* Gives a branch the clauses of its row, but for those that the branch has of its own. */
    void (*inherit)(const kiln_reduce *row, kiln_reduce *branch);
    /* Names that these clauses define. */
    const kiln_nameds *(*states)(const kiln_reduce *r);
    /* Refuses a branch in which neither bodies nor these clauses compute every result. */
    kiln_status (*bodies)(const kiln_row *row, const kiln_branch *b);
    /* Adds what these clauses use. */
    kiln_status (*use)(kiln_usage *u, const kiln_reduce *r);
    bool (*same)(const kiln_reduce *a, const kiln_reduce *b);
} kiln_folding_rules;

/* A function that is NULL has nothing to do or to refuse, unless its comment says something else. */
typedef struct kiln_family_rules {
    /* -- reading a row -- */
    /* The clauses that a row may have beside those of every family; NULL ends the list. */
    const kiln_clause *const *clauses;
    /* The family has clauses that fold or scan.  NULL: it has none. */
    const kiln_folding_rules *folding;
    /* Reads what follows a body `prim(acc, value) from`, and makes clauses of it.  NULL: no body may be one. */
    kiln_status (*accumulate)(kiln_lex *lx, kiln_row *row, const kiln_expr *body);
    /* A row has calls of other operators instead of branches.  `item NAME` may name a list of tensors, or a tensor that may
     * be absent. */
    bool composes;
    /* A row may have the clause `check each`. */
    bool checks_each;
    /* A row may have the attribute `strides format ARG`. */
    bool formats;
    /* The family of a branch.  NULL: every branch is of the row's family. */
    kiln_family (*branch)(const kiln_branch *b);
    /* Writes the row that a line `foreach NAME = OTHER` stands for.  NULL: such a line stands for a row of another family. */
    kiln_status (*foreach_text)(kiln_arena *arena, const kiln_foreach *f, const char **out);
    /* Ends the reading of a row whose names have been resolved. */
    kiln_status (*complete)(kiln_arena *arena, kiln_row *row);
    /* Gives the rules for complex numbers to the rows that `complete` has made, by kiln_row_set_rules. */
    void (*set_rules)(kiln_row *row, const kiln_crules *rules, kiln_digest digest);

    /* -- names and clauses -- */
    /* Refuses a row that breaks a rule of the family.  Must call kiln_row_bodies_rules if rows have bodies.  NULL:
     * kiln_row_bodies_rules is called instead.  If the family composes, only names, defaults and statics have been checked before. */
    kiln_status (*rules)(const kiln_row *row);
    /* Whether a result of the row is one truth value, which the schema may call a bool.  NULL: it never is. */
    bool (*gives_bool)(const kiln_row *row);
    /* Refuses an access `x[..]` that the family cannot read.  NULL: it reads no tensor at a computed place. */
    kiln_status (*access)(const kiln_row *row, const kiln_expr *e);
    /* A tensor may be read at its own place and at several computed ones.  `access` is not asked then. */
    bool accesses_all;
    /* Sets lists[] to the names that clauses define beside lets, host numbers and states; returns how many lists there are. */
    int (*defines)(const kiln_row *row, const kiln_nameds *lists[KILN_MAX_DEFINED]);
    /* Finds the meaning of a name that clauses of the family define: a state, a place.  rhs: the name stands behind `rhs.`. */
    bool (*find)(const kiln_row_env *re, const char *name, bool rhs, kiln_sym *out);
    /* Calls visit for every expression of the row's clauses, except those in kiln_reduce. */
    kiln_status (*visit)(const kiln_row *row, kiln_visit_fn visit, void *user);
    /* The arguments that clauses name outside expressions; if `shapes`, only those that decide shapes. */
    uint64_t (*names)(const kiln_row *row, bool shapes);
    /* Sets the flags of a branch's clauses that lowering asks for, and what the branch writes. */
    kiln_status (*note)(const kiln_row *row, kiln_branch *b);

    /* -- types -- */
    /* Checks the row for every dtype that it takes.  NULL: kiln_row_check_branches does. */
    kiln_status (*check)(const kiln_registry *r, const kiln_row *row, kiln_budget *budget, int *ntyped);
    /* Conditions may ask for `n`, how many elements are folded together. */
    bool counts;
    /* Types what the clauses of a branch compute. */
    kiln_status (*types)(kiln_row_env *re);
    /* The message for a body that reads another place than its own.  NULL: a body may read other places. */
    const char *one_place;

    /* -- gradients -- */
    /* Adds to *out the gradient of branch b, with respect to the argument by which w derives.  NULL: the family has none. */
    kiln_status (*derive)(kiln_grad *g, const kiln_row *row, const kiln_branch *b, const kiln_wrt *w,
                          const kiln_expr **out);
    /* Refuses a row of which no branch has a gradient that can be derived. */
    kiln_status (*derivable)(const kiln_row *row);
} kiln_family_rules;

extern const kiln_family_rules *const kiln_rules_of[KILN_FAMILY_COUNT];

static inline const kiln_family_rules *kiln_rules(const kiln_row *row) { return kiln_rules_of[row->family]; }

/* -- what families build their rules of ------------------------------------------------------------------- */

#define KILN_ROW_FAIL(row, ...) \
    KILN_FAIL_LINE(KILN_E_PARSE, (row)->source, (row)->line, (row)->col, __VA_ARGS__)

/* Clauses that several families have, and parts of clauses. */
extern const kiln_clause kiln_clause_when, kiln_clause_grad;
/* when COND ATTRIBUTES: a new branch. */
kiln_status kiln_row_when(kiln_lex *lx, kiln_row *row, kiln_branch **out) KILN_MUST_CHECK;
/* NAME SEPARATOR EXPR, ...: adds the named expressions to the list.  types: what `: TYPE` may stand behind NAME. */
typedef enum kiln_name_types { KILN_UNTYPED, KILN_TYPED_NUMBERS, KILN_TYPED_STATES } kiln_name_types;
kiln_status kiln_row_nameds(kiln_lex *lx, kiln_nameds *out, kiln_name_types types,
                            const char *separator) KILN_MUST_CHECK;
/* EXPR, ...: adds the expressions to the list, without names.  most: the message if the list is full. */
kiln_status kiln_row_exprs(kiln_lex *lx, kiln_nameds *out, const char *most) KILN_MUST_CHECK;

/* Calls the `visit` of the row's family. */
kiln_status kiln_visit_clauses(const kiln_row *row, kiln_visit_fn visit, void *user) KILN_MUST_CHECK;
/* Calls visit for every expression of the list. */
kiln_status kiln_visit_all(const kiln_nameds *list, kiln_expr_use use, kiln_visit_fn visit,
                           void *user) KILN_MUST_CHECK;
static inline uint64_t kiln_arg_bit(int arg) { return arg < 0 ? 0 : UINT64_C(1) << arg; }

/* Fails with `what` if argument arg is not of this kind (or_list: nor a list of this kind).  arg -1: never fails. */
kiln_status kiln_row_expect_kind(const kiln_row *row, int arg, kiln_tkind kind, bool or_list,
                                 const char *what) KILN_MUST_CHECK;
bool kiln_row_is_kind(const kiln_row *row, int arg, kiln_tkind kind, bool or_list);
int kiln_row_ntensors(const kiln_row *row); /* tensor arguments that are not ignored */
/* Refuses a row in which neither bodies nor clauses that fold compute every result. */
kiln_status kiln_row_bodies_rules(const kiln_row *row) KILN_MUST_CHECK;

/* Parts that a typed expression may not have. */
#define KILN_TE_BIT(KIND) (1u << KILN_TE_##KIND)
enum {
    KILN_ELEMENTS = KILN_TE_BIT(ELEM) | KILN_TE_BIT(ACCESS),
    KILN_STATES = KILN_TE_BIT(STATE) | KILN_TE_BIT(RHS) | KILN_TE_BIT(COUNT),
    KILN_PLACES = KILN_TE_BIT(POS) | KILN_TE_BIT(EXTENT) | KILN_TE_BIT(BLOCK),
    KILN_OTHER_PLACES = KILN_TE_BIT(ACCESS) | KILN_STATES | KILN_PLACES
};
typedef struct kiln_refused {
    unsigned parts;  /* KILN_TE_BIT of each part that is refused */
    const char *why; /* the message if e has a refused part */
    uint64_t kept;   /* arguments whose elements are not refused */
} kiln_refused;
/* e must be typed to `to`, and have no part that is refused. */
kiln_status kiln_row_check_expr(const kiln_row_env *re, const kiln_expr *e, kiln_dtype to,
                                kiln_refused refused) KILN_MUST_CHECK;
kiln_dtype kiln_row_arg_dtype(const kiln_row_env *re, int arg); /* of a tensor */
kiln_dtype kiln_row_ret_dtype(const kiln_row_env *re, int k);   /* of a result */

/* Types every branch of the row for every dtype that the row takes. */
kiln_status kiln_row_check_branches(const kiln_row *row, kiln_budget *budget, int *ntyped) KILN_MUST_CHECK;
/* Refuse a condition, and conditions of the row's checks, that are not truth values; for rows without branches. */
kiln_status kiln_row_check_cond(const kiln_row *row, kiln_budget *budget,
                                const kiln_expr *cond) KILN_MUST_CHECK;
kiln_status kiln_row_check_checks(const kiln_row *row, kiln_budget *budget) KILN_MUST_CHECK;

/* Adds to *sum the gradient of the result times the derivative of e.  e is the result, or a term of the result. */
kiln_status kiln_grad_add(kiln_grad *g, const kiln_wrt *w, int result, const kiln_expr *e,
                          const kiln_expr **sum) KILN_MUST_CHECK;
bool kiln_grad_may_be(const kiln_branch *b, int result); /* false: the result is of no floating dtype */
#define KILN_GRAD_FAIL(row, ...) \
    KILN_FAIL_LINE(KILN_E_UNSUP, (row)->source, (row)->line, (row)->col, __VA_ARGS__)
#endif
