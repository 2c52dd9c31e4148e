/* op.h - operator rows: text -> frozen registry.
 *
 * A row says everything Kiln knows of an operator: family, schema, dtypes, bodies, checks (docs/OPS.md has
 * the grammar).  In-place and out forms are found by signature in PyTorch's schema list and share the
 * row of the functional form.  A registry never changes once built; loading rows builds a new one.
 * Knows no tensors: what a row means for actual arguments is infer's business. */
#ifndef KILN_OP_H
#define KILN_OP_H
#include <stdatomic.h>

#include "expr/expr.h"
#include "expr/routine_id.h"
#include "schema/schema.h"
#include "schema/schema_list.h"

/* What lowering handles a row.  ORDER FAMILY: values are part of class keys. */
typedef enum kiln_family {
#define F(NAME, name, served) KILN_FAMILY_##NAME,
#include "op/family.def"
#undef F
    KILN_FAMILY_COUNT
} kiln_family;

const char *kiln_family_name(kiln_family f);
bool kiln_family_served(kiln_family f); /* lowering exists */

/* Whether PyTorch has the operator "aten::add.Tensor"; overloads: or any overload of it. */
bool kiln_torch_has(const char *full, bool overloads);
/* Fails with KILN_E_UNSUP, saying that the operator of this full name, whose row is of this family, is not served. */
kiln_status kiln_unserved(const char *full, kiln_family family);
/* Fails with the message that PyTorch has the operator `full` and Kiln has no row for it. */
kiln_status kiln_without_row(const char *full);

typedef enum kiln_form { KILN_FORM_FUNCTIONAL, KILN_FORM_INPLACE, KILN_FORM_OUT } kiln_form;

/* What a call has room for; rows that need more are not loaded. */
enum {
    KILN_MAX_OPERANDS = 24, /* tensors, results among them */
    KILN_MAX_SCALARS = 64   /* numbers that a kernel is given; a complex one is two */
};

/* How the common dtype of a branch comes about. */
typedef enum kiln_promo {
    KILN_PROMO_PROMOTE, /* PyTorch's result_type over `args` */
    KILN_PROMO_FLOAT,   /* the same, then bool and integers become f32 */
    KILN_PROMO_DOUBLE,  /* f64, or c128 if one of `args` is complex, whatever else they are */
    KILN_PROMO_TO,      /* the same, unless the dtype argument `dtype_arg` says otherwise */
    KILN_PROMO_SUM /* of `args`; bool and integers become i64; a given tensor's dtype comes before that, the
                           dtype argument `dtype_arg` before both */
} kiln_promo;

enum { KILN_RET_COMMON = -1 };      /* result has the common dtype; >= 0: that kiln_dtype; else see below */
enum { KILN_RET_REAL = INT16_MIN }; /* result has the common dtype, of its parts if that is complex */
#define KILN_RET_ARG(a) (-2 - (a))  /* result has the dtype of tensor argument a */

/* How given tensors receive results: which dtypes they may have, and what they may share memory with. */
typedef enum kiln_out_rule {
    KILN_OUT_USUAL,    /* results of a promotion and truth values convert; no partial overlap */
    KILN_OUT_CONVERTS, /* to any dtype of as high a kind */
    KILN_OUT_EXACT,    /* the result's dtype and no other */
    KILN_OUT_COPIED,   /* exact, and written after all is computed: may overlap inputs */
    KILN_OUT_DECIDES   /* the common dtype is that of the first given tensor, where no dtype is given */
} kiln_out_rule;

/* How strides of new results come about. */
typedef enum kiln_strides {
    KILN_STRIDES_USUAL,   /* from all tensors, as PyTorch's iterator has it */
    KILN_STRIDES_WITHOUT, /* the same, but no number counts as a tensor of rank 0 */
    KILN_STRIDES_ROWS,    /* row-major */
    KILN_STRIDES_LIKE,    /* those of argument `like`, made dense where it has gaps */
    KILN_STRIDES_CHAIN,   /* from several iterators, of which `chain` says who walks what */
    KILN_STRIDES_CHANNELS_LAST,
    KILN_STRIDES_CHANNELS_LAST_3D,
    KILN_STRIDES_FORMAT /* folds: sizes of argument `like`, channels last where its strides are, else row-major */
} kiln_strides;

/* A link of a chain of iterators: puts a layout on a stack, or makes one of the n on top, as an iterator would. */
typedef enum kiln_link_kind {
    KILN_LINK_OWN,    /* of tensor argument n */
    KILN_LINK_TO,     /* of it, converted to a dtype: another one makes a copy, dense in its order */
    KILN_LINK_PART,   /* of a view of one part of its complex numbers */
    KILN_LINK_ROWS,   /* of a new tensor of its shape and the common dtype, row-major */
    KILN_LINK_NUMBER, /* of a tensor without dimensions */
    KILN_LINK_MEET    /* of the result that an iterator over n layouts makes */
} kiln_link_kind;

typedef struct kiln_link {
    uint8_t kind, n, dtype;
} kiln_link;

enum { KILN_MAX_LINKS = 16, KILN_MAX_LINKED = 4 }; /* of a chain; layouts on the stack */

typedef struct kiln_typing {
    kiln_promo promo;
    kiln_out_rule out;
    kiln_strides strides;
    int like; /* LIKE, FORMAT: a tensor argument */
    kiln_link chain[KILN_MAX_LINKS];
    int nchain;
    uint64_t args;    /* bit a: argument a takes part in promotion */
    uint64_t numbers; /* bit a: a Scalar among them that is no tensor of rank 0: it must fit */
    int norder;       /* above 0: strides do not count in the schema's order, but in that of `order` */
    int8_t order[KILN_MAX_OPERANDS]; /* tensors; those that are not here follow */
    int dtype_arg;                   /* TO, SUM: a ScalarType? argument, or -1 */
    int16_t ret[KILN_MAX_RETS];      /* KILN_RET_COMMON, KILN_RET_REAL, a kiln_dtype, or KILN_RET_ARG(a) */
} kiln_typing;

typedef struct kiln_check {
    const kiln_expr *cond;
    const char *text;
    kiln_status status;             /* KILN_E_ARG unless the row says index, value or type */
    bool counts;                    /* asks how many elements are folded, which is known when shapes are */
    bool each;                      /* asks elements: it must hold for every one of them */
    bool torch;                     /* counts only for operators that PyTorch's dispatcher calls */
    int8_t arg;                     /* it holds where this argument's dtype is one of arg_spares, */
    kiln_dtypes arg_spares, spares; /* and where the call's is one of spares; else cond tells */
} kiln_check;

/* What a number among the sizes of a view means. */
typedef enum kiln_span {
    KILN_SPAN_SIZE,   /* that size */
    KILN_SPAN_BEFORE, /* the argument's own sizes before that dimension */
    KILN_SPAN_FROM    /* and those from it on */
} kiln_span;

typedef struct kiln_named {
    const char *name;
    const kiln_expr *expr;
    kiln_dtype dtype; /* state: its type; KILN_DTYPE_COUNT: the compute type, */
    bool wide, real;  /* or one made of it (src/family/reduce_rules.h) */
    bool each;        /* finish: the result keeps the reduced dimensions */
    bool empty;       /* finish: the result has no elements, and the size [0] */
    kiln_span span;   /* view: whether it stands for several sizes of the argument */
    int line, col;    /* where it stands */
} kiln_named;

/* A scalar's id in typed bodies: an argument, or KILN_HOST_ID + k for the row's k-th host number. */
enum { KILN_HOST_ID = KILN_MAX_ARGS };

enum {
    KILN_ROW_MAX_ACCESSED = 4
}; /* tensors that are read at computed places: each takes an axis of the kernel */
enum { KILN_ROW_MAX_NAMED = 16, KILN_ROW_MAX_BRANCHES = 16, KILN_ROW_MAX_CHECKS = 16 };

typedef struct kiln_nameds {
    kiln_named *at;
    int n;
} kiln_nameds;

const kiln_named *kiln_named_of(const kiln_nameds *list,
                                const char *name); /* NULL: none, or there is no list */
typedef struct kiln_reduce kiln_reduce;            /* clauses that fold or scan: src/family/reduce_rules.h */

/* One way to compute the row's results, taken when `when` holds (NULL: always). */
typedef struct kiln_branch {
    const kiln_expr *when;
    kiln_family family; /* the row's; of a fold's branch that has bodies, map: it folds nothing */
    kiln_typing typing;
    const kiln_expr **body; /* one per result; compose: NULL */
    int nbody;
    uint64_t uses;            /* bit a: argument a appears in the bodies */
    uint64_t accessed;        /* bit a: tensor a is read at computed places, as access[a] says */
    const kiln_expr **access; /* of each argument; NULL: no tensor is */
    uint64_t knows;           /* bit a: optional argument a is present when this branch is taken */
    int code;                 /* the first branch that generates the same code */
    uint64_t exact; /* bit a: argument a appears as compute(a): a 0-d tensor is then not rounded to a half */
    kiln_reduce *
        reduce; /* the row's, with the branch's own clauses instead of those; NULL: rows of the family have none */
    int8_t writes[KILN_MAX_RETS]; /* arguments that the branch writes to, in the order of their buffers */
    int nwrites;
    uint32_t early; /* bit k: result k may be there before arguments are read for another one */
} kiln_branch;

/* A tensor argument that a fold sees in other sizes. */
enum { KILN_ROW_MAX_VIEWS = 12, KILN_VIEW_SIZES = 6 };
typedef struct kiln_view {
    int arg;
    kiln_nameds sizes;     /* without names */
    const kiln_expr *when; /* where it does not hold, the argument is seen as it is; NULL: it always does */
} kiln_view;

/* extern: the routine of the library that computes the results, and what it gets: tensors, then numbers. */
kiln_routine_id kiln_routine_named(const char *name); /* KILN_ROUTINE_COUNT: there is none */

typedef struct kiln_row {
    kiln_family family;
    const kiln_schema *schema;   /* of the functional form; ns filled in; items are Scalars */
    const kiln_schema *declared; /* the same as PyTorch has it */
    const char *name;            /* "aten::add.Tensor" */
    uint64_t items;              /* bit a: a Tensor without dimensions, bound as the number in it */
    const char *text;            /* the row as written, comments and all */
    int line, col;               /* of its schema in its source */
    const char *source;          /* "logic.ops" */
    kiln_digest digest;          /* of the text with white space folded */
    kiln_dtypes takes;           /* dtypes the promoted arguments may have */
    kiln_dtypes *arg_takes;      /* dtypes of each tensor argument outside promotion; 0: not one */
    kiln_typing typing;          /* of the head; every branch starts from it */
    kiln_branch *branches;
    int nbranches;
    kiln_check *checks;
    int nchecks;
    kiln_nameds lets;  /* names for expressions, expanded where they are used */
    kiln_nameds hosts; /* numbers computed once per call; in bodies they are scalars */
    kiln_nameds grads; /* gradients of arguments, where the row states them */
    uint64_t ignored;  /* arguments the row declares unused */
    uint64_t kept;     /* tensors with one element for all that are folded together */
    uint64_t written;  /* arguments that some branch writes to */
    uint64_t hosted;   /* arguments that host numbers are computed from */
    bool sized;        /* conditions or host numbers ask the size of a tensor, or how one lies */
    bool asks_given;   /* conditions ask how the tensors lie that results are written to */
    uint64_t lacking;  /* fold: tensors that have the dimensions which it keeps, and lack the others */
    kiln_view *views;
    int nviews;
    bool makes_calls;                 /* calls of the row make calls of other operators */
    bool listed;                      /* one for each item of lists, so the row's own calls have no plan */
    const char *rest;                 /* the operator whose results follow the row's own, or NULL */
    const struct kiln_registry *home; /* where it is found; NULL: among those that ship */
    kiln_nameds gives;       /* conditions of results, in order, without names; none: there are all results */
    uint64_t optionals;      /* arguments that may be None, and count */
    uint64_t optional_items; /* lists of what may be None, and count */
    uint64_t scalars;        /* arguments of type Scalar */
    uint64_t own_takes;      /* those with an entry in arg_takes */
    uint64_t statics;        /* arguments whose value is part of the class */
    uint64_t asked;          /* arguments whose value (of tensors: sizes) conditions or statics depend on */
    uint64_t shaped;         /* arguments, no tensors, whose values decide the shape of results */
    uint64_t asked_single;   /* tensors of which conditions ask whether they have one element */
    kiln_reduce *reduce;     /* clauses that fold or scan; NULL: rows of the family have none */
    void *
        own; /* clauses that only the family knows: as kiln_handed of extern rows, kiln_compose of rows made of calls */
    double domain_lo, domain_hi; /* of random test inputs */
    double rtol, atol;           /* 0: the defaults */
    const char *doc;
    const kiln_crules *rules; /* the registry's, for complex numbers */
    uint64_t clauses; /* bit k: the row has the k-th of the clauses that rows of its family may have */
    struct {
        const char *function, *clause; /* the first of the row's text, or NULL */
    } untraced;                        /* what keeps calls from being traced: kiln_op_untraced */
    bool shipped;                      /* part of the library, not a user's */
    bool made;                         /* its text is Kiln's, for a short row or one that is like another */
    int8_t goes_to
        [KILN_MAX_RETS]; /* in place: the argument that each result goes to; 0 but where items are updated */
} kiln_row;

struct kiln_op {
    const char *name;        /* "aten::add.Tensor" */
    const char *schema_text; /* printed form of schema */
    const kiln_schema *schema;
    const kiln_row *row;
    kiln_form form;
    int nout; /* results written into arguments; 0 for FUNCTIONAL */
    const struct kiln_op
        *torch;             /* this operator as PyTorch's dispatcher calls it: of its row, every `check torch`
                                    counts as well.  NULL where the row has no such check. */
    bool for_torch;         /* this is such an operator */
    _Atomic uint8_t number; /* see kiln_op_number; 0: this operator has not asked */
    /* Of an operator that may be freed before its context: a number that no other operator of this process ever has, so that what is
     * remembered of it is not taken for another one's that lies at the same address.  Else 0. */
    uint64_t serial;
};

/* Gives the operator a number if it has none: 1 to the first that asks, 255 to the 255th, then 1 again.  Only operators
 * that are called ask, so few programs have two of one number. */
void kiln_op_number(const kiln_op *op);

/* The operator to use for `op` in a call that PyTorch's dispatcher makes, and in the calls that such a call makes. */
static inline const kiln_op *kiln_op_torch(const kiln_op *op) { return op->torch ? op->torch : op; }
/* The operator to use for `op` in a call that an operator `outer` makes. */
static inline const kiln_op *kiln_op_within(const kiln_op *op, const kiln_op *outer) {
    return outer->for_torch ? kiln_op_torch(op) : op;
}

/* Argument a of the operator's schema is this argument of the row's, or -1: an output. */
static inline int kiln_op_arg(const kiln_op *op, int a) { return a < op->row->schema->nargs ? a : -1; }
/* INPLACE, OUT: the argument of the operator's schema that receives result k. */
static inline int kiln_op_out_arg(const kiln_op *op, int k) {
    return op->form == KILN_FORM_INPLACE ? op->row->goes_to[k] : op->row->schema->nargs + k;
}
/* An out form that computes aside and copies. */
static inline bool kiln_op_is_aside(const kiln_op *op) {
    return op->form == KILN_FORM_OUT && op->row->typing.out == KILN_OUT_COPIED;
}

typedef struct kiln_registry kiln_registry;

typedef struct kiln_row_text {
    const char *source, *text;
    size_t n;
    bool served; /* rows of families that are not served are refused */
} kiln_row_text;

/* The operators that ship with Kiln.  Costs nothing: each is parsed when it is asked for. */
const kiln_registry *kiln_registry_shipped(void);
void kiln_shipped_lock(bool on); /* around a fork: nobody parses meanwhile */

/* Parses and checks rows of several texts and adds their in-place and out forms.
 * base: an older registry whose operators the new one has too (it must outlive the new one), or NULL.
 * list: schemas that rows of aten:: must carry, and in which forms are found, or NULL.
 * A row that the base has to the letter is passed over; another of a name that is taken is refused, unless
 * `replace` is set and the name is not one of Kiln's own.  *out is NULL if the base has all of it. */
kiln_status kiln_registry_new(const kiln_registry *base, const kiln_row_text *texts, int ntexts,
                              const kiln_schema_list *list, bool replace,
                              kiln_registry **out) KILN_MUST_CHECK;
void kiln_registry_free(kiln_registry *r);
/* A pointer of the caller's that the registry keeps, NULL at first.  For an operator's, ask the `home` of its row. */
void kiln_registry_set_owner(kiln_registry *r, void *owner);
void *kiln_registry_owner(const kiln_registry *r);
/* The operators of the one row of a text, as kiln_registry_new reads and checks it, in a registry of its own that nobody else
 * sees.  form: NULL, or for the form that writes its results to arguments: `out`, or `out0` and so on for several.  KILN_E_ARG
 * if the text has not one row.  Both live until the registry is freed, which is the `home` of the row and newer than base. */
kiln_status kiln_registry_alone(const kiln_registry *base, const kiln_row_text *text, const kiln_op **op,
                                const kiln_op **form, kiln_registry **out) KILN_MUST_CHECK;
/* Reads and checks a text as kiln_registry_new does with `replace`, calls visit for the operator of each of the text's
 * rows, in order, and frees everything again.  Stops at the first status of visit that is not KILN_OK. */
typedef kiln_status (*kiln_draft_fn)(void *user, const kiln_op *op);
kiln_status kiln_registry_draft(const kiln_registry *base, const kiln_row_text *text,
                                const kiln_schema_list *list, kiln_draft_fn visit,
                                void *user) KILN_MUST_CHECK;

/* The base's operators without those of the users' rows that are named.  *out is NULL if base has none of the names. */
kiln_status kiln_registry_without(const kiln_registry *base, const char *const *names, size_t n,
                                  kiln_registry **out) KILN_MUST_CHECK;

/* Calls take for each row and rule of the text, in order. */
typedef kiln_status (*kiln_row_fn)(void *user, const char *source, const char *text, size_t n, int line);
kiln_status kiln_rows_split(const kiln_row_text *t, kiln_row_fn take, void *user) KILN_MUST_CHECK;

kiln_digest kiln_registry_rules_digest(const kiln_registry *r); /* of its rules for complex numbers */

/* Operators in order of their names. */
size_t kiln_registry_count(const kiln_registry *r);
const char *kiln_registry_name(const kiln_registry *r, size_t k);
kiln_op_entry kiln_op_entry_of(const kiln_op *op);
/* The entry of the k-th operator.  Its row is parsed only where the index does not say enough. */
kiln_status kiln_registry_entry(const kiln_registry *r, size_t k, kiln_op_entry *out) KILN_MUST_CHECK;
kiln_status kiln_registry_get(const kiln_registry *r, size_t k,
                              const kiln_op **out) KILN_MUST_CHECK;    /* parses it if need be */
size_t kiln_registry_search(const kiln_registry *r, const char *name); /* the first not before name */
/* The overloads of "aten::add", with its in-place and out forms of that name: how many, from the *first on. */
size_t kiln_registry_overloads(const kiln_registry *r, const char *base, size_t *first);
/* KILN_E_UNSUP: it is not served, or only PyTorch has it.  KILN_E_NOTFOUND: nobody has it, or several overloads fit. */
kiln_status kiln_registry_find(const kiln_registry *r, const char *name, const kiln_op **out) KILN_MUST_CHECK;
/* The same among all rows, those of families that are not served too. */
kiln_status kiln_registry_find_row(const kiln_registry *r, const char *name,
                                   const kiln_op **out) KILN_MUST_CHECK;

/* Types a row's every branch for every dtype it takes, which takes of the budget.  *ntyped: combinations typed. */
kiln_status kiln_row_check(const kiln_registry *r, const kiln_row *row, kiln_budget *budget,
                           int *ntyped) KILN_MUST_CHECK;
/* What checking the rows of a text may take: dtypes of several arguments multiply, and loading must end. */
enum { KILN_BUDGET_FIRST = 1 << 20, KILN_BUDGET_PER_BYTE = 64 };
kiln_budget kiln_budget_for(size_t nbytes);

/* Prints the row that computes the gradient of argument `arg` from those of the results: a map, with the arguments
 * that it needs under their names.  Nothing, if the gradient is zero.  KILN_E_UNSUP: it cannot be derived, as the
 * text says. */
kiln_status kiln_row_grad(const kiln_row *row, int arg, kiln_sb *out) KILN_MUST_CHECK;

/* -- what infer and lower ask of a row ------------------------------------------------------------- */

bool kiln_row_is_tensor(const kiln_row *row, int arg); /* Tensor or Tensor? */
bool kiln_row_optional(const kiln_row *row, int arg);
bool kiln_row_served(const kiln_row *row); /* its calls can be run */
/* The operator of `rest`. */
kiln_status kiln_row_rest(const kiln_row *row, const struct kiln_op **out) KILN_MUST_CHECK;
const kiln_view *kiln_row_view(const kiln_row *row, int arg); /* NULL: it is seen as it is */
/* The argument whose sizes results for each element have, where a fold sees some in others; -1: none is named. */
int kiln_typing_sizes_of(const kiln_typing *t);
const kiln_expr *kiln_row_host(const kiln_row *row,
                               const char *name); /* the expression of a host number, or NULL */

/* The value of a default of type t, which is no list; false, and any value, if it is not of that type. */
bool kiln_default_value(const kiln_type *t, const kiln_default *d, kiln_value *out);
/* How many items the default of an argument of type `list` has: one number for int[N] means N of it. */
int kiln_default_items(const kiln_type *list, const kiln_default *d);

/* The environment that types branch b's bodies: common dtype `common`, and dtypes[a] for each tensor
 * argument outside promotion.  Lives as long as its arguments. */
typedef struct kiln_row_env {
    kiln_env env;
    const kiln_row *row;
    const kiln_branch *branch;
    kiln_dtype common;
    const kiln_dtype *dtypes;
    uint64_t present;         /* bit a: argument a is known to be present */
    uint64_t absent;          /* bit a: argument a is known to be absent */
    const kiln_nameds *scope; /* names a clause has defined so far (a block's), or NULL */
    bool states, merge;       /* states are in scope; so are the right ones */
} kiln_row_env;
void kiln_row_env_init(kiln_row_env *re, const kiln_row *row, const kiln_branch *branch, kiln_dtype common,
                       const kiln_dtype *dtypes, kiln_arena *arena);

/* Body k of a branch, typed and cast to the compute type of ret (bool stays bool). */
kiln_status kiln_row_type_body(const kiln_row_env *re, int k, kiln_dtype ret,
                               const kiln_texpr **out) KILN_MUST_CHECK;
#endif
