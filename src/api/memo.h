/* memo.h - private to src/api: what a thread remembers of its calls, on two levels.
 *
 * A *recipe* holds for calls of an operator with the same kinds, dtypes and asked values, whatever their shapes: how
 * values bind, what types came to, which class each set of stride classes has.  A *memo* is a call ready to be run
 * again: it names a kernel and a launch that lacks only addresses, scalars and, if it is flat, the count.  A flat memo
 * holds for every shape, as sizes are compared among the tensors of the call: all row-major and of one shape, or of
 * rank 0.  Any other holds for one layout.  A recipe keeps a few memos; a *slot* per operator points at the one that
 * answered last, and finds it without the recipe.  A composition's memo names calls instead of a kernel.  Anything else, and everything that fails, is left to the general
 * path.  No lock, no allocation, no string; nothing here knows a family. */
#ifndef KILN_MEMO_H
#define KILN_MEMO_H
#include "api/ctx.h"
#include "tensor/tensor.h"

enum {
    KILN_MEMO_ARGS = 12,    /* values given */
    KILN_MEMO_BUFFERS = 10, /* of the kernel */
    KILN_MEMO_RETS = 4,
    KILN_MEMO_SHAPES = 2, /* of results that have one layout */
    KILN_MEMO_SCALARS = 4,
    KILN_MEMO_LEAD = 3,      /* tensors up to which there is a kiln_memo_hit of their number */
    KILN_MEMO_ROUNDED,       /* the kiln_memo_hit of a flat memo that is `rounded`, */
    KILN_MEMO_LAID_OUT,      /* of one layout, */
    KILN_MEMO_LAID_OUT_INTO, /* and of one whose results are given */
    KILN_MEMO_HITS,
    KILN_MEMO_SERIAL = 16384, /* elements from which on the driver decides how to run */
    KILN_MEMO_RANK = 8,       /* of a layout */
    KILN_MEMO_WORDS = 48,     /* of layouts: three tensors of that rank */
    KILN_MEMO_ITEMS = 8,      /* of lists */
    KILN_MEMO_CALLS = 8,      /* of a composition, */
    KILN_MEMO_CALL_ARGS = 24, /* values that all of them are given, */
    KILN_MEMO_MADE = 16,      /* and tensors that they make */
    KILN_SLOT_COUNT = 128,    /* of a thread; operators share them by hash */
    KILN_RECIPE_COUNT = 64,   /* of a thread and context; calls share them by hash */
    KILN_RECIPE_DEFAULTS = 4, /* arguments that are not given */
    KILN_RECIPE_CLASSES = 8,
    KILN_RECIPE_WAYS = 3,     /* memos of a recipe: a flat one, others */
    KILN_RECIPE_PATIENCE = 8, /* calls that a memo is of no use to before another takes its place */
    KILN_SLOT_PATIENCE = 8    /* calls that a flat memo in a slot misses before another takes its place */
};

#define KILN_MEMO_ANY_LIST UINT64_MAX /* `mask` of a list that may be any */

/* What one value of the call must be: its kind, its name, and a word of it under a mask: a tensor's signature, any
 * other's payload; of a list, `mask` items of kind `elem`, the first being item `want` of those kept. */
typedef struct kiln_memo_arg {
    uint64_t kind;
    const char *name; /* the schema's; NULL: given by position */
    uint64_t mask, want;
    char **data;   /* of a tensor: where the launch wants its address, */
    uint64_t elem; /* and the bytes of an element; of a list: the kind of its items */
} kiln_memo_arg;

/* What all values must be. */
typedef struct kiln_asked {
    kiln_memo_arg arg[KILN_MEMO_ARGS];
    char *unused; /* where the address of a tensor goes that the kernel does not read */
    bool has_text;
    char text[15]; /* the one text among the values, with its end */
    int nitems;
    int64_t items[KILN_MEMO_ITEMS]; /* of lists */
} kiln_asked;

/* How a kernel's scalar comes from a value. */
typedef enum kiln_memo_how {
    KILN_MEMO_COPY, /* int to i64, float to f64 */
    KILN_MEMO_F64_TO_F32,
    KILN_MEMO_INT_TO_F32,
    KILN_MEMO_INT_TO_I32,
    KILN_MEMO_ANY /* kiln_number_convert */
} kiln_memo_how;

typedef struct kiln_memo_scalar {
    uint32_t how, arg;
    uint64_t *par;                 /* of the launch */
    const kiln_scalar_source *src; /* the class's */
    bool checked;
} kiln_memo_scalar;

/* The calls that a composition is made of, in order; memo_calls.c. */
typedef struct kiln_memo_calls {
    const kiln_op *op[KILN_MEMO_CALLS];
    uint8_t nargs[KILN_MEMO_CALLS];
    kiln_value arg[KILN_MEMO_CALL_ARGS]; /* of all calls, one after the other */
    int8_t from[KILN_MEMO_CALL_ARGS];    /* of each: the value of the composition that it is, or -1 */
    uint8_t made[KILN_MEMO_CALL_ARGS];   /* 1 + the tensor, of those that calls have made, that it is, or 0 */
    uint8_t result[KILN_MEMO_RETS];      /* 1 + the made tensor that is the result; 0: it is absent */
} kiln_memo_calls;

typedef struct kiln_memo kiln_memo;

/* Answers a call of a memo's operator with as many values and room for one result.  The thread is inside the
 * epochs, and leaves them.  Parameters as kiln_call's where they are the same: they stay in their registers. */
typedef kiln_status kiln_memo_hit(kiln_thread *t, kiln_memo *m, const kiln_value *args, size_t nargs,
                                  kiln_tensor **outs);

struct kiln_memo {
    const kiln_op *op;   /* if it holds nothing its own address, which is no operator's */
    uint64_t generation; /* kiln_generation when the class was found */
    size_t simple_nargs; /* nargs if there is one result, one nest, no guard and no text; else SIZE_MAX */
    kiln_memo_hit *hit;  /* if simple_nargs */
    kiln_class *c;
    /* The last shape, and what follows from it. */
    uint64_t like_sig; /* 0: none */
    int64_t n[2];      /* n[0]: its elements */
    kiln_tensor_mold mold[KILN_MEMO_RETS];
    uint32_t nargs, nbuffers;
    uint8_t nrets, nsized, nnests, nguards;
    bool given_outs;                 /* results go into arguments */
    uint8_t like;                    /* the argument that has the shape of the call */
    uint8_t sized[KILN_MEMO_ARGS];   /* other arguments that must have that shape */
    uint8_t target[KILN_MEMO_RETS];  /* the argument of each result that is given; else `like` */
    uint8_t elem[KILN_MEMO_BUFFERS]; /* bytes */
    uint8_t dtype[KILN_MEMO_BUFFERS];
    kiln_asked asked;
    const kiln_memo_arg *arg_end;
    kiln_memo_scalar scalar[KILN_MEMO_SCALARS], *scalar_end; /* those that are not defaults */
    /* The launch of a flat memo, ready but for n[0], ptr and the scalars above. */
    kiln_kernel_fn fn;
    kiln_launch launch;
    char *ptr[KILN_MEMO_BUFFERS];
    int64_t stride[KILN_MEMO_BUFFERS * 2];
    uint64_t par[KILN_MEMO_SCALARS];
    bool rounded;    /* numbers of the launch were computed for the first call, */
    int rounding;    /* in this mode of the floating-point unit */
    uint32_t serial; /* of the recipe it was made for */
    bool used;       /* since it was made */
    uint8_t missed;  /* calls that came while a slot pointed at it */
    uint8_t ncalls;  /* of a composition; 0: a kernel answers */
    /* Of one that is not flat: launches or calls, what tensors must be like, and headers in the shapes of the results. */
    bool flat; /* then there is no memory for what follows */
    union {
        kiln_walk walk;
        kiln_memo_calls calls; /* if ncalls */
    };
    size_t work;
    uint32_t absent;     /* bit k: the kernel gives no result k */
    const kiln_op *rest; /* the operator that gives results from nown on, or NULL: */
    uint8_t nown, nrest, rest_arg[KILN_MEMO_ARGS]; /* it takes these values */
    uint8_t nwritten; /* arguments that are written to: their buffers stand behind the results, */
    uint8_t written[KILN_MEMO_RETS];  /* and these are the values */
    uint16_t same[KILN_MEMO_RETS];    /* of a given result, bit i: value i begins where it does */
    uint64_t reach[KILN_MEMO_ARGS];   /* bytes from where a tensor begins to its end */
    uint8_t shape_of[KILN_MEMO_RETS]; /* which of these a result has that is made */
    kiln_tensor shape[KILN_MEMO_SHAPES];
    int64_t shape_sizes[KILN_MEMO_SHAPES][KILN_MEMO_RANK], shape_strides[KILN_MEMO_SHAPES][KILN_MEMO_RANK];
    int64_t layout[KILN_MEMO_WORDS]; /* of each tensor given: its sizes, its strides */
};

_Static_assert(KILN_MEMO_ARGS <= 16, "bits of kiln_memo.same");

/* A value of a recipe's calls, and where it goes. */
typedef struct kiln_recipe_place {
    int8_t to, out; /* argument of the row, result; -1: none */
} kiln_recipe_place;

typedef struct kiln_recipe {
    const kiln_op *op; /* NULL: empty */
    uint32_t serial;   /* raised when another recipe takes the place */
    uint8_t nargs, ndefaults, nfound;
    bool sized; /* conditions ask sizes: it holds for no call but those of its memos */
    kiln_asked asked;
    kiln_recipe_place place[KILN_MEMO_ARGS];
    uint64_t generation; /* kiln_generation when the classes were found */
    struct {
        uint64_t stride_bits; /* of the plan */
        kiln_class *c;
    } found[KILN_RECIPE_CLASSES];
    kiln_typed typed;
    int8_t default_arg[KILN_RECIPE_DEFAULTS];
    kiln_value defaults[KILN_RECIPE_DEFAULTS];
    uint8_t oldest,
        passed; /* of the ways that are not flat; calls that were not kept since the last that was */
    kiln_memo *way[KILN_RECIPE_WAYS]; /* [0]: a flat one; each made when first needed */
} kiln_recipe;

/* What a thread remembers of a context's calls.  Until a slot is set it points at the memo that holds nothing. */
typedef struct kiln_slots {
    kiln_memo *at[KILN_SLOT_COUNT];
    kiln_recipe *recipes; /* KILN_RECIPE_COUNT of them; NULL before the first */
} kiln_slots;

extern kiln_slots kiln_slots_none; /* of a thread that has none; never written */

static inline kiln_memo **kiln_slot_of(kiln_slots *slots, const kiln_op *op) {
    _Static_assert(KILN_SLOT_COUNT == 128, "seven bits of the product");
    return &slots->at[(uint64_t)(uintptr_t)op * UINT64_C(0x9e3779b97f4a7c15) >> 57];
}

/* recipe.c: lets the operator's slot point at m, which has just answered.  A flat memo, which holds for more calls,
 * gives way to another only now and then. */
void kiln_slot_set(kiln_slots *slots, kiln_memo *m);
/* The thread's own, made on first use; NULL without memory. */
kiln_slots *kiln_slots_of(kiln_thread *t);
void kiln_slots_free(void *slots); /* kiln_slots_none is fine */

/* recipe.c: the recipe of calls like this one; NULL if there is none. */
kiln_recipe *kiln_recipe_find(const kiln_thread *t, const kiln_op *op, const kiln_value *args, size_t nargs);
/* Binds a call for which r was found; not where sizes are asked. */
void kiln_recipe_bind(const kiln_recipe *r, const kiln_value *args, kiln_bound *out);
/* The class of a call that r has bound, if it was found in this generation; else NULL. */
kiln_class *kiln_recipe_class(const kiln_recipe *r, uint64_t generation, const kiln_plan *plan);
/* Makes a recipe of an inferred call; NULL if none can hold it. */
kiln_recipe *kiln_recipe_make(kiln_thread *t, const kiln_value *args, size_t nargs, const kiln_plan *plan);
/* Notes that c is the class of an inferred call. */
void kiln_recipe_learn(kiln_recipe *r, const kiln_plan *plan, uint64_t generation, kiln_class *c);
/* The memo in which a call of r is to be kept now; NULL: none, as calls seem to come once each, or there is no memory. */
kiln_memo *kiln_recipe_way(kiln_recipe *r, bool flat);

/* memo_make.c: sets what is asked of value i, which is v and was bound to argument a of the row (-1: it only receives a
 * result): all but its name that bind, the row's conditions and promotion looked at, and nothing else.  sig: bits of a
 * signature that the caller asks; values: arguments whose payload is asked, a tensor's being its sizes, for which *sized
 * is set.  False: no word can tell. */
bool kiln_memo_ask(kiln_asked *asked, const kiln_plan *plan, const kiln_value *v, unsigned i, int a,
                   uint64_t sig, uint64_t values, bool *sized);
/* memo_make.c: whether an inferred call is flat, as the items of a list may be; its memo is, if no size decides more. */
bool kiln_memo_is_flat(const kiln_plan *plan, const kiln_value *args, size_t nargs);
/* memo_make.c: makes m, which the recipe gave for such a call, answer calls like this one of recipe r, which the kernel of `run` has just answered with `made`.
 * False: no memo can. */
bool kiln_memo_make(kiln_memo *m, bool flat, const kiln_recipe *r, const kiln_value *args,
                    const kiln_plan *plan, kiln_class *c, const kiln_runner *run, kiln_tensor *const *made);
/* memo.c: for calls whose first values, this many, are all their tensors and each in the shape of the call; [0] is for
 * any that are flat. */
extern kiln_memo_hit *const kiln_memo_hits[KILN_MEMO_HITS];
/* memo.c: whether kinds, names, masked words, texts and lists are those of n values; sets addresses of tensors. */
bool kiln_memo_match(const kiln_asked *asked, size_t n, const kiln_value *args);
/* memo.c: the same for a memo that is not flat, whose tensors have the sizes and strides kept. */
bool kiln_memo_laid_out_alike(const kiln_memo *m, const kiln_value *args);
/* memo.c: the call by a memo of its operator and as many values; false: nothing has happened.  alike: a recipe of the
 * memo's has found the values to be of its kinds.  *st, KILN_OK before: an error of an operator that was called. */
bool kiln_memo_run(kiln_memo *m, const kiln_value *args, kiln_tensor **outs, bool alike, kiln_status *st);

/* memo_calls.c: keeps the calls of a composition.  False: no memo can. */
bool kiln_memo_keep_calls(kiln_memo *m, const kiln_plan *plan);
/* Makes them, for values that match.  The memo may be another call's after that. */
kiln_status kiln_memo_run_calls(const kiln_memo *m, const kiln_value *args,
                                kiln_tensor **outs) KILN_MUST_CHECK;

/* call.c: the call as if there were no slots.  The caller is inside the context's epochs. */
kiln_status kiln_call_general(kiln_ctx *ctx, kiln_thread *t, const kiln_op *op, const kiln_value *args,
                              size_t nargs, kiln_tensor **outs, size_t nouts) KILN_MUST_CHECK;

extern KILN_TLS_FAST const char *kiln_tier_here; /* what kiln_last_tier says */
extern const char kiln_tier_compiled[];
#endif
