/* memo.h - private to src/api: what a thread remembers of its calls, on two levels.
 *
 * A *recipe* holds for calls of an operator with the same kinds, dtypes and asked values, whatever their shapes: how
 * values bind, what types came to, which class each set of stride classes has.  A *memo* is a call ready to be run
 * again: a guard, which says what the values must be, and work.  The guard of a flat memo holds for every shape, as sizes are
 * compared among the tensors of the call: all row-major and of one shape, or of rank 0.  Any other guard holds for one
 * layout.  The work is the launch of a kernel, or of the interpreter with its program, which lacks only addresses, scalars
 * and, if the memo is flat, the count.  A composition has a kiln_work instead, whose steps are run.
 *
 * A recipe keeps a few memos; a *slot* per operator points at the one that answered last, and finds it without the
 * recipe.  What no memo answers, and every call that fails, is left to the general path.  No lock, no allocation, no
 * string; nothing here knows a family. */
#ifndef KILN_MEMO_H
#define KILN_MEMO_H
#include "api/asked.h"
#include "api/ctx.h"

enum {
    KILN_MEMO_BUFFERS = 20, /* of the kernel */
    KILN_MEMO_RETS = 4,
    KILN_MEMO_SHAPES = 2, /* of results that have one layout */
    KILN_MEMO_SCALARS = 12,
    KILN_MEMO_WRITTEN = 2 * KILN_MEMO_RETS, /* values that are written to */
    KILN_MEMO_LEAD = 3,                   /* tensors up to which there is a kiln_memo_hit for their number */
    KILN_MEMO_SERIAL = KILN_DRIVE_SERIAL, /* elements from which on the driver decides how to run */
    KILN_MEMO_RANK = 8,                   /* of a layout */
    KILN_MEMO_WORDS = 160,                /* of layouts: sizes and strides of twenty tensors of rank 4 */
    KILN_MEMO_CALLS = 8,                  /* of a composition, */
    KILN_MEMO_WORK = 192,                 /* and words of its work */
    KILN_SLOT_COUNT = 256,                /* of a thread; operators have them by number */
    KILN_RECIPE_COUNT = 128,              /* recipes of a thread and context */
    KILN_RECIPE_NEAR = 4,     /* places that may hold the recipe of a call, the first by its hash */
    KILN_RECIPE_DEFAULTS = 4, /* arguments that are not given */
    KILN_RECIPE_CLASSES = 8,
    KILN_RECIPE_WAYS = 3,     /* memos of a recipe: a flat one, others */
    KILN_RECIPE_PATIENCE = 8, /* calls that a memo is of no use to before another takes its place */
    KILN_SLOT_PATIENCE = 8    /* calls that a flat memo in a slot misses before another takes its place */
};

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

/* The work of a composition, whose arguments are numbered by the values of the call, and the operators that it calls;
 * memo_calls.c. */
typedef struct kiln_memo_calls {
    const kiln_op *op[KILN_MEMO_CALLS];
    union {
        kiln_work work;
        int64_t words[KILN_MEMO_WORK];
    };
} kiln_memo_calls;

/* What a memo does for a call. */
typedef enum kiln_memo_work {
    KILN_MEMO_ONE,         /* one nest is launched, which gives one result */
    KILN_MEMO_LAUNCHES,    /* guards and other nests are launched */
    KILN_MEMO_REST,        /* the same after a call of another operator, which gives some of the results */
    KILN_MEMO_CALLS_OTHERS /* the steps of a composition's work are run, which call other operators */
} kiln_memo_work;

typedef struct kiln_memo kiln_memo;

/* Answers a call of the memo's operator that has as many values as the memo and room for its results.  The thread is inside
 * the epochs, and the function leaves them.  The parameters that kiln_call has too stand in the same places, so
 * that they stay in their registers. */
typedef kiln_status kiln_memo_hit(kiln_thread *t, kiln_memo *m, const kiln_value *args, size_t nargs,
                                  kiln_tensor **outs, size_t nouts);

struct kiln_memo {
    const kiln_op *op;   /* if it holds nothing its own address, which is no operator's */
    uint64_t generation; /* kiln_generation when the class was found */
    size_t nargs, nrets;
    kiln_memo_hit *hit;
    kiln_ctx *ctx;
    kiln_class *c; /* NULL: a composition */
    /* The last shape of a flat memo, and what follows from it. */
    uint64_t last_sig, like_sig; /* of its tensors, 0: none; the same unless the memo is `rounded`, then 0 */
    int64_t n[2];                /* n[0]: its elements */
    kiln_tensor_mold mold[KILN_MEMO_RETS];
    /* If the memo writes to arguments: for each tensor the bytes from its beginning to its end. */
    uint64_t reach[KILN_MEMO_ARGS];
    uint32_t nbuffers;
    uint8_t nsized, nnests, nguards;
    bool given_outs;                 /* results go into arguments */
    uint8_t like;                    /* the argument that has the shape of the call */
    uint8_t sized[KILN_MEMO_ARGS];   /* other arguments that must have that shape */
    uint8_t elem[KILN_MEMO_BUFFERS]; /* bytes */
    uint8_t dtype[KILN_MEMO_BUFFERS];
    /* The values that are written to, by their buffers: results that are given, and behind all results other arguments.  Bit i of
     * `same`: value i lies in the same place, element by element; or may do so if the memo is flat. */
    uint8_t first_written, end_written, written[KILN_MEMO_WRITTEN];
    uint32_t same[KILN_MEMO_WRITTEN];
    bool is_checked; /* something must hold that the guard does not see: memo.c, checks_hold */
    kiln_asked asked;
    const kiln_memo_arg *arg_end;
    kiln_memo_scalar scalar[KILN_MEMO_SCALARS], *scalar_end; /* those that are not defaults */
    /* The launch, ready but for ptr, the scalars above and, of a flat memo, n[0]. */
    bool direct; /* one call of fn runs a nest */
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
    uint8_t work_is; /* kiln_memo_work */
    /* The program that the interpreter runs, or NULL: then fn is a kernel.  Publishing the kernel of the class retires the
     * program and with that raises the epoch, so that this memo's generation is over before the program is freed. */
    const kiln_interp *interp;
    int64_t nelem;   /* of an interpreted memo that is not flat: its elements; */
    int64_t rows;    /* of any: how often the interpreter goes through its instructions */
    uint32_t absent; /* bit k: the kernel gives no result k */
    /* Of one that is not flat: launches or calls, what tensors must be like, and headers in the shapes of the results. */
    bool flat; /* then there is no memory for what follows */
    union {
        kiln_walk walk;
        kiln_memo_calls calls; /* KILN_MEMO_CALLS_OTHERS */
    };
    size_t work; /* bytes that a launch needs beside its buffers */
    kiln_tensor shape[KILN_MEMO_SHAPES];
    const kiln_tensor *shape_of[KILN_MEMO_RETS]; /* which of these a result has that is made */
    int64_t shape_sizes[KILN_MEMO_SHAPES][KILN_MEMO_RANK], shape_strides[KILN_MEMO_SHAPES][KILN_MEMO_RANK];
    int64_t layout[KILN_MEMO_WORDS]; /* of each tensor given: its sizes, its strides */
    const kiln_op *rest;             /* the operator that gives results from nown on, or NULL: */
    uint8_t nown, nrest, rest_arg[KILN_MEMO_ARGS]; /* it takes these values */
};

_Static_assert(KILN_MEMO_ARGS <= 32, "bits of kiln_memo.same");

/* A value of a recipe's calls, and where it goes. */
typedef struct kiln_recipe_place {
    int8_t to, out; /* argument of the row, result; -1: none */
} kiln_recipe_place;

typedef struct kiln_recipe {
    const kiln_op *op;  /* NULL: empty */
    uint64_t op_serial; /* the operator's, if it has one: its address may be another's by now */
    uint32_t serial;    /* raised when another recipe takes the place */
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
        passed; /* oldest: of the ways that are not flat, the one to replace next; passed: calls since one was kept
                 * or the memo in that way was used */
    kiln_memo *way[KILN_RECIPE_WAYS]; /* [0]: a flat one; each made when first needed */
} kiln_recipe;

/* What a thread remembers of a context's calls.  Until a slot is set it points at the memo that holds nothing.
 * Slot 0 is for operators without a number and is never set: setting a slot numbers the operator. */
typedef struct kiln_slots {
    kiln_memo *at[KILN_SLOT_COUNT];
    kiln_recipe **recipes; /* KILN_RECIPE_COUNT, each made when first needed; NULL before the first */
} kiln_slots;

extern kiln_slots kiln_slots_none; /* of a thread without slots of its own; never written */

static inline kiln_memo **kiln_slot_of(kiln_slots *slots, const kiln_op *op) {
    return &slots->at[atomic_load_explicit(&op->number, memory_order_relaxed)];
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

/* memo_make.c: whether an inferred call is flat, as the items of a list may be; its memo is, if no size decides more. */
bool kiln_memo_is_flat(const kiln_plan *plan, const kiln_value *args, size_t nargs);
/* memo_make.c: the bytes from one element of buffer b of a flat call to the next: 0 where it is one element for all.  sized:
 * some tensor of the call has dimensions.  False: the kernel was not made for that. */
bool kiln_memo_flat_stride(const kiln_plan *plan, int b, bool sized, int64_t *stride);
/* A call that has been answered. */
typedef struct kiln_answered {
    kiln_ctx *ctx;
    const kiln_value *args;
    const kiln_plan *plan;
    kiln_class *c;            /* NULL: a composition */
    const kiln_runner *run;   /* what answered it */
    kiln_tensor *const *made; /* its results */
} kiln_answered;
/* memo_make.c: makes m, which the recipe gave for a call like this one, answer calls like this one of recipe r.  False: no memo
 * can. */
bool kiln_memo_make(kiln_memo *m, bool flat, const kiln_recipe *r, const kiln_answered *call);
/* memo.c: [0] is for every memo.  The others are for flat ones of one result, one nest and nothing to be checked, whose first
 * values, this many, are all their tensors and each in the shape of the call. */
extern kiln_memo_hit *const kiln_memo_hits[KILN_MEMO_LEAD + 1];
/* memo.c: whether values are as a memo asks that is not flat: its tensors have the sizes and strides kept, too. */
bool kiln_memo_laid_out_alike(const kiln_memo *m, const kiln_value *args);
/* memo.c: the call by a memo whose recipe has found the values to be of its kinds.  *st, KILN_OK before: an error of an operator
 * that was called. */
typedef enum kiln_memo_ran {
    KILN_MEMO_NOT,   /* nothing has happened */
    KILN_MEMO_RAN,   /* the kernel or the interpreter has answered */
    KILN_MEMO_CALLED /* calls of other operators have answered, and have said what answered them */
} kiln_memo_ran;
kiln_memo_ran kiln_memo_run(kiln_memo *m, const kiln_value *args, kiln_tensor **outs, kiln_status *st);

/* memo_calls.c: keeps the calls of a composition.  False: no memo can. */
bool kiln_memo_keep_calls(kiln_memo *m, const kiln_plan *plan);
/* memo_calls.c: makes the calls that m keeps, for values that match.  Once one is made, m may be the memo of another
 * call. */
kiln_status kiln_memo_run_calls(const kiln_memo *m, const kiln_value *args,
                                kiln_tensor **outs) KILN_MUST_CHECK;

/* memo.c: raises the counters and the heat, and sets the tier, after the interpreter has answered a call by m.
 * Empties m if the next call has to build the class.  May call the host's log, which may make another call with m. */
void kiln_memo_interpreted(kiln_thread *t, kiln_memo *m);

/* call.c: how often the interpreter goes through its instructions in a call over these axes.  Element-wise: once, as
 * the driver takes rows together.  Folds and scans: once for each row. */
int64_t kiln_rows_walked(const kiln_axes *x);
/* call.c: answers a call without looking at slots.  The caller is inside the context's epochs. */
kiln_status kiln_call_general(kiln_ctx *ctx, const kiln_op *op, const kiln_value *args, size_t nargs,
                              kiln_tensor **outs, size_t nouts) KILN_MUST_CHECK;

extern KILN_TLS_FAST const char *kiln_tier_here; /* what kiln_last_tier says */
extern const char kiln_tier_compiled[], kiln_tier_interp[];
#endif
