/* expr.h - the expressions of operator rows: text -> tree -> typed tree, and evaluation on the host.
 *
 * One grammar serves two uses.  Element expressions (bodies, steps) are computed for every element: they
 * are typed for given dtypes and lowered to IR.  Host expressions (when, check, extents) are computed
 * once per call from argument values.  Names are resolved through an environment, so nothing here knows
 * rows, schemas or tensors.  All memory comes from the caller's arena. */
#ifndef KILN_EXPR_H
#define KILN_EXPR_H
#include "expr/prims.h"

enum {
    KILN_EXPR_MAX_DEPTH = 64,    /* brackets and operators inside each other */
    KILN_EXPR_MAX_HEIGHT = 256,  /* levels of a tree, with names and rules expanded; a + b + c has three */
    KILN_EXPR_MAX_NODES = 16384, /* nodes of a tree, with names and rules expanded */
};

/* What looking at many expressions may cost: a step is one node typed or evaluated once. */
typedef struct kiln_budget {
    int64_t most, taken;
} kiln_budget;

/* -- trees --------------------------------------------------------------------------------------- */

typedef enum kiln_ekind {
    KILN_X_NUM,    /* literal: is_float, i, f */
    KILN_X_STR,    /* "text" in name */
    KILN_X_NAME,   /* name */
    KILN_X_FIELD,  /* rhs.name */
    KILN_X_PRIM,   /* prim(args) or an operator */
    KILN_X_LOGIC,  /* and, or, not: operands become bool first; prim says which */
    KILN_X_CALL,   /* any other function: name(args) */
    KILN_X_ACCESS, /* name[coords] [else other] */
} kiln_ekind;

/* Functions and constants of conditions; what reads an expression finds them once. */
typedef enum kiln_word {
    KILN_WORD_NONE,
#define W(name, is_function, untraced) KILN_WORD_##name,
#include "expr/words.def"
#undef W
    KILN_WORD_DTYPE_NAME /* f32 and the like; its kiln_dtype is in `i` */
} kiln_word;

/* One coordinate of an access: `..` (dims left as they are), `dim: at`, or just `at`. */
typedef struct kiln_coord {
    bool rest;
    const struct kiln_expr *dim; /* NULL: by position */
    const struct kiln_expr *at;
} kiln_coord;

typedef struct kiln_expr {
    kiln_ekind kind;
    int line, col; /* of its first character in the row's text, from 1 */
    int height;    /* levels below it and its own */
    kiln_prim prim;
    bool is_float;
    int64_t i;
    double f;
    const char *name;
    kiln_word word;                /* NAME, CALL: what it says in the language of conditions */
    kiln_dtypes asks;              /* CALL: is_bool(x) and the like: the dtypes for which it holds; else 0 */
    int arg;                       /* NAME, ACCESS: the argument it is, -1: none; see kiln_expr_resolve */
    const struct kiln_expr *means; /* NAME: the expression it is another name for, or NULL */
    const struct kiln_expr **args;
    int nargs;
    kiln_coord *coord; /* ACCESS */
    int ncoord;
    const struct kiln_expr *other; /* ACCESS: value out of range; NULL: trap */
    bool skip;                     /* ACCESS: `else skip` */
} kiln_expr;

/* -- tokens: shared with the row parser ----------------------------------------------------------- */

typedef enum kiln_tok { KILN_TOK_END, KILN_TOK_NAME, KILN_TOK_NUM, KILN_TOK_STR, KILN_TOK_PUNCT } kiln_tok;

/* Reads tokens off text.  `#` starts a comment.  Fill text, end, line, source, then kiln_lex_next. */
typedef struct kiln_lex {
    const char *p, *end;
    const char *line_start;
    const char *source; /* name used in messages: "ops" */
    int line;
    kiln_arena *arena;
    /* the current token */
    kiln_tok tok;
    const char *start; /* its text */
    size_t len;
    int tok_line, tok_col;
    bool first_on_line; /* nothing but white space stands before it on its line */
    bool is_float;
    int64_t i;
    double f;
    const char *str;      /* STR: the unescaped text; NAME: its text, NUL-terminated */
    const char *untraced; /* the first function read that words.def says is untraced; static, or NULL */
} kiln_lex;

void kiln_lex_init(kiln_lex *lx, kiln_arena *arena, const char *source, const char *text, size_t n, int line);
kiln_status kiln_lex_next(kiln_lex *lx) KILN_MUST_CHECK;
bool kiln_lex_is(const kiln_lex *lx, const char *punct_or_word);
kiln_status kiln_lex_accept(kiln_lex *lx, const char *punct_or_word, bool *did) KILN_MUST_CHECK;
kiln_status kiln_lex_expect(kiln_lex *lx, const char *punct_or_word) KILN_MUST_CHECK;
kiln_status kiln_lex_name(kiln_lex *lx, const char **out) KILN_MUST_CHECK; /* a NAME; takes it */
/* "ops:L:C: expected ..., found ...".  Inline, so that callers and analysers see that it is never KILN_OK. */
void kiln_lex_blame(const kiln_lex *lx, const char *expected);
/* What to write instead of a word of another language, n bytes long; NULL: nothing is known of it. (expr_unknown.c) */
const char *kiln_expr_advice(const char *word, size_t n);

static inline kiln_status kiln_lex_fail(const kiln_lex *lx, const char *expected) {
    kiln_lex_blame(lx, expected);
    return KILN_E_PARSE;
}

/* Parses one expression; stops before the first token that cannot continue it. */
kiln_status kiln_expr_parse(kiln_lex *lx, const kiln_expr **out) KILN_MUST_CHECK;
void kiln_expr_print(kiln_sb *out, const kiln_expr *e);       /* operators as calls: add(a, b) */
void kiln_expr_print_infix(kiln_sb *out, const kiln_expr *e); /* a + b, with the brackets it needs */

/* Fails with "SOURCE:LINE:COL: text" for the place e stands at. */
kiln_status kiln_expr_fail(const char *source, const kiln_expr *e, kiln_status st, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Takes one step at e; false where none is left, with the error set for KILN_E_LIMIT.  s NULL: nothing is counted. */
bool kiln_budget_take(kiln_budget *s, const char *source, const kiln_expr *e) KILN_MUST_CHECK;

/* Settles what the names in e mean on the host: find(user, name, &means) gives the argument, or -1 and perhaps the
 * expression that it names.  Names it does not know stay what their spelling says: true, f32, common. */
void kiln_expr_resolve(const kiln_expr *e, int (*find)(void *user, const char *name, const kiln_expr **means),
                       void *user);

/* Calls visit(user, name, expr) for every NAME, FIELD and ACCESS in e; stops at the first failure. */
kiln_status kiln_expr_names(const kiln_expr *e, kiln_status (*visit)(void *user, const kiln_expr *e),
                            void *user) KILN_MUST_CHECK;

/* -- typing ----------------------------------------------------------------------------------------- */

typedef enum kiln_symkind {
    KILN_SYM_ELEM,   /* element of tensor argument `id` at the current point */
    KILN_SYM_SCALAR, /* a number known on the host: argument `id` */
    KILN_SYM_LIST,   /* a list of integers: argument `id`; only name[k] */
    KILN_SYM_STATE,  /* fold state `id` (in a merge: the left one) */
    KILN_SYM_RHS,    /* in a merge: the right state */
    KILN_SYM_POS,    /* a position along axis `id`: i64 */
    KILN_SYM_COUNT,  /* elements folded (in a merge: on the left); id 1: on the right */
    KILN_SYM_LET,    /* another name for an expression */
    KILN_SYM_LOCAL,  /* in a rule: argument or let `id` */
    KILN_SYM_HOST    /* known on the host, not a number (a string, a dtype): not for bodies */
} kiln_symkind;

typedef struct kiln_sym {
    kiln_symkind kind;
    int id;
    kiln_dtype dtype;
    bool weak;          /* takes the type of what it meets (an int or float argument) */
    bool optional;      /* an argument that may be None */
    bool may_be_absent; /* an optional the branch does not know to be present */
    bool absent;        /* an optional known to be absent: only or_else(name, ...) may use it */
    const kiln_expr *let;
} kiln_sym;

typedef struct kiln_env {
    bool (*find)(const struct kiln_env *env, const char *name, bool rhs, kiln_sym *out);
    kiln_dtype compute; /* the type of lowest, highest and compute(...) */
    kiln_dtype common;  /* what common(...) rounds to: compute, or the half type it computes for */
    bool in_block;      /* sum(...), max(x) and min(x) allowed */
    const char *source; /* "ops" */
    kiln_arena *arena;
    const struct kiln_crules *complex; /* what functions do to complex numbers, or NULL: nothing */
    kiln_budget *budget;               /* each node takes one; NULL: an expression's own limits alone */
} kiln_env;

typedef enum kiln_tekind {
    KILN_TE_CONST,  /* i or f */
    KILN_TE_ELEM,   /* sym */
    KILN_TE_SCALAR, /* sym, already of type dtype; index >= 0: item of a list argument */
    KILN_TE_STATE,
    KILN_TE_RHS,
    KILN_TE_POS,
    KILN_TE_COUNT,
    KILN_TE_PRIM,
    KILN_TE_CAST,
    KILN_TE_ROUND,   /* args[0] rounded to the dtype `id`, a half; its own is what that is computed in */
    KILN_TE_BLOCK,   /* args[0] folded over the block by prim (add, max or min), from the number i or f */
    KILN_TE_EXTENT,  /* size of tensor argument id along dimension args[0] (a host number) */
    KILN_TE_PART,    /* id 0: the real, 1: the imaginary part of args[0] */
    KILN_TE_COMPLEX, /* of the parts args[0] and args[1] */
    KILN_TE_RULE,    /* rule, applied to args */
    KILN_TE_LOCAL,   /* in a rule: argument or let `id` */
    KILN_TE_ACCESS /* tensor argument id at coord (typed positions in args); other in args[ncoord] or none */
} kiln_tekind;

typedef struct kiln_texpr {
    kiln_tekind kind;
    kiln_dtype dtype;
    bool weak;
    kiln_prim prim;
    int id;     /* argument, state or axis */
    int index;  /* SCALAR: item of a list, or -1 */
    bool exact; /* ELEM, SCALAR: compute(x), not rounded to the common dtype first */
    bool minus; /* SCALAR: the negative of the number, which is converted when it is negated */
    int64_t i;
    double f;
    const struct kiln_texpr **args;
    int nargs;
    const kiln_expr *from; /* where it came from; ACCESS: its coordinates */
    const struct kiln_trule *rule;
} kiln_texpr;

/* -- complex numbers -------------------------------------------------------------------------------------

 * What a primitive or another function does to complex numbers is a rule: an expression in its arguments,
 * simpler functions, re(x), im(x) and complex(a, b).  Rules are text beside the rows:
 *     complex mul(a, b) = complex(re(a) * re(b) - im(a) * im(b), re(a) * im(b) + im(a) * re(b)) */

enum {
    KILN_RULE_MAX_ARGS = 3,
    KILN_RULE_MAX_LETS = 16,
    KILN_RULE_MAX_LOCALS = KILN_RULE_MAX_ARGS + KILN_RULE_MAX_LETS,
    KILN_MAX_RULES = 1024, /* of a registry: what finding one costs must not grow with a text */
    KILN_RULE_BUCKETS = 64
};

typedef struct kiln_crule {
    const char *name, *source;
    kiln_digest digest; /* of its text; whoever keeps rules sets it */
    bool shipped;       /* part of the library */
    const void *owner;  /* who added it; whoever keeps rules sets it */
    int line, col;
    const char *local[KILN_RULE_MAX_LOCALS]; /* names: arguments, then lets */
    int nargs, nlets;
    const kiln_expr *let[KILN_RULE_MAX_LETS]; /* computed once each, in order */
    const kiln_expr *body;
    const struct kiln_crule *next; /* in its bucket */
} kiln_crule;

typedef struct kiln_crules {
    const kiln_crule *bucket[KILN_RULE_BUCKETS]; /* by the hash of their names, the newest first */
    int n;
    kiln_digest digest; /* of all their texts */
    /* Rules beyond those of the list, or NULL: *out is the rule of that name, NULL if there is none. */
    kiln_status (*more)(const char *name, const kiln_crule **out);
} kiln_crules;

/* A rule typed for its arguments' dtypes. */
typedef struct kiln_trule {
    int nargs, nlets;
    const kiln_texpr *let[KILN_RULE_MAX_LETS];
    const kiln_texpr *body;
} kiln_trule;

/* The rule in text[0..n), which starts at the word `complex` on line `line` of source. */
kiln_status kiln_crule_parse(kiln_arena *arena, const char *source, const char *text, size_t n, int line,
                             kiln_crule **out) KILN_MUST_CHECK;
/* Adds a rule; it comes before older ones of its name. */
kiln_status kiln_crules_put(kiln_crules *rules, kiln_crule *r) KILN_MUST_CHECK;
/* The rule of that name, or NULL. */
kiln_status kiln_crules_find(const kiln_crules *rules, const char *name,
                             const kiln_crule **out) KILN_MUST_CHECK;

/* Types e, with the casts it needs.  want: the type the result is cast to, or KILN_DTYPE_COUNT for its own
 * (weak results stay marked weak).  Errors point at line and column. */
kiln_status kiln_expr_type(const kiln_env *env, const kiln_expr *e, kiln_dtype want,
                           const kiln_texpr **out) KILN_MUST_CHECK;
/* v, typed before in the same environment, cast as kiln_expr_type casts to `want`. */
kiln_status kiln_expr_cast(const kiln_env *env, const kiln_texpr *v, kiln_dtype want,
                           const kiln_texpr **out) KILN_MUST_CHECK;

/* -- evaluation on the host --------------------------------------------------------------------------- */

typedef enum kiln_hkind {
    KILN_H_UNKNOWN,
    KILN_H_NONE,
    KILN_H_BOOL,
    KILN_H_INT,
    KILN_H_FLOAT,
    KILN_H_COMPLEX,
    KILN_H_STR,
    KILN_H_DTYPE,
    KILN_H_LIST,
    KILN_H_TENSOR,
    KILN_H_OBJECT /* a value of which only that it is given can be asked */
} kiln_hkind;

typedef struct kiln_hval {
    kiln_hkind kind;
    int64_t i;    /* BOOL, INT, DTYPE; LIST: its length; TENSOR: the argument */
    double f, im; /* numbers; im: 0 unless COMPLEX */
    const char *s;
    bool present_unknown; /* UNKNOWN that may be None as well */
    kiln_dtype dtype;     /* TENSOR and numbers: for is_int() and the like */
} kiln_hval;

/* What an argument is, as far as quick conditions ask. */
typedef struct kiln_hseen {
    kiln_hkind kind;      /* NONE, BOOL, INT, FLOAT, TENSOR; OBJECT: anything else */
    kiln_dtype dtype;     /* TENSOR */
    int rank;             /* TENSOR */
    int64_t i;            /* BOOL, INT */
    double f;             /* FLOAT */
    const int64_t *sizes; /* TENSOR */
} kiln_hseen;

/* What arguments are on the host, by their numbers.  item: argument[k].  size: extent of a tensor along a dimension;
 * NULL: unknown. */
typedef struct kiln_henv {
    void (*get)(const struct kiln_henv *env, int arg, kiln_hval *out);
    bool (*item)(const struct kiln_henv *env, int arg, int64_t k, kiln_hval *out);
    bool (*size)(const struct kiln_henv *env, int arg, int64_t dim, int64_t *out);
    kiln_dtype (*dtype)(const struct kiln_henv *env,
                        int arg); /* of a tensor or number; KILN_DTYPE_COUNT: neither */
    /* Whether a tensor is contiguous, in row-major order or as channels_last.  arg -1: whether all tensors are that
     * results are written to.  NULL: unknown. */
    bool (*contiguous)(const struct kiln_henv *env, int arg, bool channels_last);
    void (*look)(const struct kiln_henv *env, int arg, kiln_hseen *out); /* NULL: arguments are not known */
    kiln_dtype common; /* the dtype that `common` means; KILN_DTYPE_COUNT: not known */
    bool counted;      /* `n` is the number of elements folded, */
    int64_t count;     /* which is this; below 0: not known yet */
    kiln_dtype given;  /* the dtype that `given` means, where the form is known */
    int in_place;      /* above 0: the in-place form was called; below: another; 0: not known */
    int out_form;      /* the same for the out form */
    const char *source;
    kiln_budget *budget; /* as in kiln_env */
} kiln_henv;

/* Evaluates e.  Unknown inputs give KILN_H_UNKNOWN unless the result does not depend on them
 * (`false and x` is false), so a row can be checked before any call exists. */
kiln_status kiln_expr_eval(const kiln_henv *env, const kiln_expr *e, kiln_hval *out) KILN_MUST_CHECK;
/* Whether condition e holds.  As kiln_expr_eval, but quicker where e asks for dtypes, and KILN_E_TYPE if e is not
 * known to be true or false. */
kiln_status kiln_expr_holds(const kiln_henv *env, const kiln_expr *e, bool *out) KILN_MUST_CHECK;
/* expr_quick.c: as kiln_expr_eval, for most expressions.  False: e has something in it that only kiln_expr_eval can tell. */
bool kiln_expr_quick(const kiln_henv *env, const kiln_expr *e, kiln_hval *out);
bool kiln_expr_quick_holds(const kiln_henv *env, const kiln_expr *e, bool *out); /* whether it is not 0 */
/* The same, but evaluates even what the result does not depend on, so that a misspelt name is found. */
kiln_status kiln_expr_eval_every(const kiln_henv *env, const kiln_expr *e, kiln_hval *out) KILN_MUST_CHECK;
#endif
