/* row.h - private to src/op and to the rules of families: reading one row, and the names in scope of its clauses. */
#ifndef KILN_ROW_H
#define KILN_ROW_H
#include "op/row_family.h"

/* The text of a row, and where it stands: text[0..n) starts on line `line` of `source`. */
typedef struct kiln_written {
    const char *source, *text;
    size_t n;
    int line;
    bool made;    /* Kiln wrote it, for a short row or one that is like another */
    size_t taken; /* offset of the text that is taken over from another row of the source; 0: there is none */
    int taken_line; /* the line of the source on which that text starts */
} kiln_written;

/* Parses one row, whose text starts at its family word. */
kiln_status kiln_row_parse(kiln_arena *arena, const kiln_written *w, kiln_row **out) KILN_MUST_CHECK;

/* row_short.c: `alias NAME = OTHER` and `foreach NAME = OTHER`, which stand for whole rows. */
typedef struct kiln_row_short {
    bool foreach;                /* else an alias */
    bool stated;                 /* foreach: the schema of NAME stands on the line */
    const char *name;            /* as it is spelled */
    const char *other;           /* with its namespace */
    const char *head, *head_end; /* NAME in the text, and its schema if that is stated */
    const char *at, *at_end;     /* OTHER in the text */
    const char *clauses;         /* foreach: the lines after the first */
} kiln_row_short;

bool kiln_row_is_short(const char *text, size_t n);
/* Reads the short row that `within` holds. */
kiln_status kiln_row_short_parse(kiln_arena *arena, const kiln_source *within,
                                 kiln_row_short *out) KILN_MUST_CHECK;
/* The text of the row that the short one stands for.  list: PyTorch's schemas, or NULL.  other: the row of OTHER. */
kiln_status kiln_row_short_text(kiln_arena *arena, const kiln_source *within, const kiln_row_short *s,
                                const kiln_schema_list *list, const kiln_row *other,
                                const char **out) KILN_MUST_CHECK;
/* A line `foreach NAME = OTHER`, of which a family makes a row of its own. */
struct kiln_foreach {
    const kiln_source *within;
    const kiln_row_short *line;
    const kiln_schema_list *list; /* PyTorch's schemas, or NULL */
    const kiln_row *other;
};

enum { KILN_LIKE_MAX_WORDS = 64 }; /* more than all families have together */
/* row_like.c: a row whose first clause is `like OTHER`. */
typedef struct kiln_row_like {
    const char *other;                      /* with its namespace; NULL: the row is like no other */
    const char *at;                         /* where OTHER stands in the text */
    const char *schema_end, *head_end;      /* where the schema ends, and the last token before the clauses */
    const char *attrs, *bodies;             /* NULL: the row has none of its own */
    const char *like, *own_end;             /* the clause, and the end of those after it */
    const char *words[KILN_LIKE_MAX_WORDS]; /* of its clauses, each once */
    int nwords;
} kiln_row_like;

bool kiln_row_may_be_like(const char *text, size_t n); /* false: it is not */
kiln_status kiln_row_like_parse(kiln_arena *arena, const kiln_source *within,
                                kiln_row_like *out) KILN_MUST_CHECK;
/* *w: the row as it stands; becomes the whole row.  other: the row of OTHER. */
kiln_status kiln_row_like_text(kiln_arena *arena, const kiln_source *within, const kiln_row_like *s,
                               const kiln_row *other, kiln_written *w) KILN_MUST_CHECK;

/* The text in one line, without comments, with one blank wherever white space stands. */
void kiln_row_fold(kiln_sb *out, const char *text, size_t n);
/* The digest of a row's text; comments and how white space is laid out do not count. */
kiln_status kiln_row_digest(const char *text, size_t n, kiln_digest *out) KILN_MUST_CHECK;
/* Gives the row its rules for complex numbers.  What it computes depends on them, so its digest does. */
void kiln_row_set_rules(kiln_row *row, const kiln_crules *rules, kiln_digest digest);

/* Parses the clause that starts at the current token (a clause word). */
kiln_status kiln_row_clause(kiln_lex *lx, kiln_row *row) KILN_MUST_CHECK;
/* The clause word, of any family, that stands here first on its line; NULL: none does. */
const char *kiln_row_clause_word(const kiln_lex *lx);

/* Attributes up to `=`, a clause or the end of the row, into t (and row->takes). */
kiln_status kiln_row_attrs(kiln_lex *lx, kiln_row *row, kiln_typing *t) KILN_MUST_CHECK;
kiln_status kiln_row_strides(kiln_lex *lx, kiln_row *row,
                             kiln_typing *t) KILN_MUST_CHECK; /* after the word */
kiln_status kiln_row_bodies(kiln_lex *lx, kiln_row *row, kiln_branch *b) KILN_MUST_CHECK;
/* A new branch with the head's typing; fails when there are too many. */
kiln_status kiln_row_branch(kiln_lex *lx, kiln_row *row, kiln_branch **out) KILN_MUST_CHECK;
/* One more name in a list, which it is added to; fails with `most` when there are too many. */
kiln_status kiln_row_named(kiln_lex *lx, kiln_nameds *list, const char *most,
                           kiln_named **out) KILN_MUST_CHECK;
/* ARG, ARG, ...: adds their bits to set. */
kiln_status kiln_row_args(kiln_lex *lx, const kiln_row *row, uint64_t *set) KILN_MUST_CHECK;
kiln_status kiln_row_arg(kiln_lex *lx, const kiln_row *row,
                         int *out) KILN_MUST_CHECK; /* an argument's name; takes it */
/* The name of an operator, which may have dots and a namespace; "" if none stands here. */
kiln_status kiln_row_operator(kiln_lex *lx, const char **out) KILN_MUST_CHECK;

/* What a row must keep beyond its grammar: see row_rules.c.  After default promotion, before resolve. */
kiln_status kiln_row_rules(const kiln_row *row) KILN_MUST_CHECK;

/* Where nothing says otherwise, every tensor argument without a `takes` of its own is promoted. */
void kiln_row_default_promotion(kiln_row *row);

/* Whether two accesses compute the place along the same dimension. */
bool kiln_same_place(const kiln_expr *a, const kiln_expr *b);

/* Sets row->asked and row->asked_single. */
kiln_status kiln_row_find_asked(kiln_row *row) KILN_MUST_CHECK;
/* Whether two lists say the same. */
bool kiln_row_same_list(const kiln_nameds *a, const kiln_nameds *b);
/* Sets branch->code; after resolve. */
void kiln_row_find_twins(kiln_row *row);

/* What of a row expressions use, themselves and by the names they use. */
struct kiln_usage {
    const kiln_row *row;
    uint64_t set;         /* arguments */
    uint32_t lets, hosts; /* names met: each is walked once, however often and deep it is used */
    bool place, count;    /* `i`, `n`, where no argument is called so */
    bool hosting;         /* within a host number, which asks for sizes and no elements */
    uint64_t elements, accessed,
        hosted; /* arguments whose element at each place is used; at computed places; in host numbers */
    const kiln_expr *access[KILN_MAX_ARGS];
};
kiln_status kiln_row_use(kiln_usage *u, const kiln_expr *e)
    KILN_MUST_CHECK; /* adds e, if it is not NULL; what its host numbers ask for is in `set`, too */

kiln_status kiln_row_use_all(kiln_usage *u,
                             const kiln_nameds *list) KILN_MUST_CHECK; /* every expression of it */

/* The branches that calls may take whose arguments have these dtypes only: bit b for branch b. */
kiln_status kiln_row_reach(const kiln_row *row, kiln_dtypes takes, const kiln_dtypes *arg_takes,
                           kiln_budget *budget, uint32_t *out) KILN_MUST_CHECK;

/* The results' gradients, and the results, in a gradient's row: "grad", or "grad_1" of several; "result". */
enum { KILN_GRAD_NAME = 48 };
void kiln_row_grad_name(const kiln_row *row, const char *word, int result, char out[KILN_GRAD_NAME]);

/* Fails if an argument or a name is used nowhere; fills branch->uses and branch->knows. */
kiln_status kiln_row_resolve(kiln_row *row) KILN_MUST_CHECK;
#endif
