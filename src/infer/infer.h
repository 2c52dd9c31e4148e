/* infer.h - (operator, actual arguments) -> everything a call needs that is not code.
 *
 *   bind    values -> arguments of the schema: names, defaults, types
 *   infer   branch, dtypes, broadcast shape, output strides, overlap: exactly as PyTorch 2.13
 *           (kiln_infer_again: the same without branch and dtypes, where these are known)
 *   plan    dimensions permuted and coalesced, byte strides, iteration class
 *   key     the call's class as a zero-padded POD
 *
 * Everything lives in caller storage; nothing is allocated.  Knows no IR and no code. */
#ifndef KILN_INFER_H
#define KILN_INFER_H
#include "base/isa.h"
#include "base/stride.h"
#include "op/op.h"
#include "tensor/tensor.h"

enum { KILN_MAX_DIMS = KILN_MAX_RANK };

/* The arguments of the row's functional schema, by their place in it.
 * Values may point into `items`, so a kiln_bound must not be copied. */
typedef struct kiln_bound {
    const kiln_op *op;
    kiln_value arg[KILN_MAX_ARGS];   /* KILN_NONE where absent; defaults filled in */
    kiln_value items[KILN_MAX_ARGS]; /* storage for list defaults and single values widened to lists */
    int nitems;
    kiln_tensor *out[KILN_MAX_RETS]; /* INPLACE, OUT: where results go, borrowed */
    int nout;
    int8_t given[KILN_MAX_ARGS]; /* which value of the call an argument came from; -1: its default */
    int8_t given_out[KILN_MAX_RETS];
} kiln_bound;

/* KILN_E_TYPE: too many, too few, unknown or doubled arguments, or one of another type than the schema says.
 * An int is taken for a float, a bool for an int or float, one number for int[N]; nothing else converts. */
kiln_status kiln_bind(const kiln_op *op, const kiln_value *args, size_t nargs,
                      kiln_bound *out) KILN_MUST_CHECK;

/* The served overloads of a name without an overload part, the default one first: `out` takes n of *count. */
kiln_status kiln_served_overloads(const kiln_registry *r, const char *name, const kiln_op **out, size_t n,
                                  size_t *count) KILN_MUST_CHECK;

/* Which of n > 0 overloads of one name the arguments mean; only their kinds are read.  KILN_E_TYPE says of each why
 * it does not fit. */
kiln_status kiln_choose(const kiln_op *const *ops, size_t n, const kiln_value *args, size_t nargs,
                        size_t *out) KILN_MUST_CHECK;

/* As kiln_registry_find; where the name leaves the overload open, the one that these arguments mean. */
kiln_status kiln_registry_choose(const kiln_registry *r, const char *name, const kiln_value *args,
                                 size_t nargs, const kiln_op **out) KILN_MUST_CHECK;

/* The class key: equal bytes exactly when two calls can share a kernel. */
enum { KILN_KEY_MAX = 256 };
typedef struct kiln_key {
    uint32_t n; /* bytes in use; the rest is zero */
    uint8_t bytes[KILN_KEY_MAX];
} kiln_key;

/* One tensor the kernel touches. */
typedef struct kiln_operand {
    const kiln_tensor *tensor; /* NULL: an output still to be allocated */
    int arg;                   /* argument, or -1 - k for result k */
    kiln_dtype dtype;          /* of its memory: what the kernel loads or stores */
    kiln_dtype
        alloc_dtype; /* results: ret_dtype[k], which dtype may differ from where out= casts; inputs: dtype */
    uint8_t stride;  /* kiln_stride along the inner dimension */
} kiln_operand;

/* What a call's kinds of arguments, their dtypes and the values its row's conditions ask decide: all of inference
 * that sizes and strides have no part in. */
typedef struct kiln_typed {
    uint8_t branch, promoted, common, nrets, nin; /* as in the plan */
    bool number;
    uint64_t exact;
    uint8_t ret_dtype[KILN_MAX_RETS];
    int8_t in_arg[KILN_MAX_OPERANDS];
} kiln_typed;

/* An inferred map call.  Operands: results first, then the tensor arguments its branch uses, in the order of
 * `in`; an in-place self is both. */
typedef struct kiln_plan {
    const kiln_bound *call;
    int branch;          /* of the row */
    kiln_dtype promoted; /* the result_type of the promoted arguments */
    kiln_dtype common;   /* the same after the branch made it float or wider: what bodies compute with */
    uint64_t exact;      /* bit a: tensor argument a is 0-d and not rounded to the common half type first */
    kiln_dtype dtypes[KILN_MAX_ARGS]; /* of each tensor argument that is present and not ignored */
    /* The tensors that decide shape and layout: every one given, whether the bodies use it or not, in the order
     * in which their strides count. */
    const kiln_tensor *in[KILN_MAX_OPERANDS];
    int8_t in_arg[KILN_MAX_OPERANDS]; /* which argument it is */
    int nin;
    bool number;  /* a number stands beside the tensors as one of rank 0 */
    bool uniform; /* every tensor of `in` has the broadcast shape */
    int nrets;
    kiln_dtype ret_dtype[KILN_MAX_RETS]; /* what the row computes for each result */
    int rank;
    int64_t sizes[KILN_MAX_RANK]; /* the broadcast shape */
    int64_t nelem;
    int64_t ret_strides[KILN_MAX_RANK]; /* of results to be allocated, in elements: one layout for all */
    bool resize_out[KILN_MAX_RETS];     /* an out= tensor of another shape: kiln_tensor_resize it to sizes and
                                           ret_strides before its data is used (infer checked that it may be) */
    bool copy_out; /* results are computed aside, then copied into the given tensors: these overlap inputs */
    kiln_operand operand[KILN_MAX_OPERANDS];
    int noperands;
    int ndim;                 /* after coalescing; at least 1; a call without elements has n[0] = 0 alone */
    int64_t n[KILN_MAX_DIMS]; /* innermost first */
    int64_t stride[KILN_MAX_OPERANDS][KILN_MAX_DIMS]; /* bytes */
    bool strided;                                     /* the whole call is in the strided class */
    uint64_t stride_bits; /* what sizes and strides add to the class: two bits of each operand's stride */
} kiln_plan;

kiln_status kiln_infer(const kiln_bound *call, kiln_plan *out) KILN_MUST_CHECK;

/* What kiln_infer found of another call of the same operator with the same kinds, dtypes and asked values, as
 * kiln_typed_of gave it, makes inferring this one a matter of sizes and strides: the same plan, or the same
 * failure, as kiln_infer's. */
void kiln_typed_of(const kiln_plan *plan, kiln_typed *out);
kiln_status kiln_infer_again(const kiln_bound *call, const kiln_typed *typed, kiln_plan *out) KILN_MUST_CHECK;
void kiln_plan_key(const kiln_plan *plan, kiln_isa isa, kiln_key *out);

/* Number argument `arg` (item `index` of a list, or -1; KILN_HOST_ID + k: the row's k-th host number) converted to
 * dtype t, into an 8-byte parameter.  PyTorch has two ways: a number that takes part in promotion and is not
 * optional becomes a tensor, which converts like an element (kiln_element_set); any other must fit, as in its
 * Scalar::to, and is KILN_E_ARG if it does not.  kiln_scalar_to always takes the second.
 * The number is converted to `via` (a half type, or t itself) and that to t.  part: 1 for the real, 2 for the imaginary
 * part, 0 for a number that must be real; + KILN_MINUS: of the number negated. */
enum { KILN_MINUS = 4 };
kiln_status kiln_scalar_to(const kiln_bound *call, int arg, int index, kiln_dtype t,
                           uint64_t *out) KILN_MUST_CHECK;
kiln_status kiln_plan_scalar(const kiln_plan *plan, int arg, int index, int part, kiln_dtype via,
                             kiln_dtype t, uint64_t *out) KILN_MUST_CHECK;

/* The same for a number by itself; checked: it must fit.  False if it does not fit or is no number; no error is set. */
bool kiln_number_convert(const kiln_value *v, int part, kiln_dtype via, kiln_dtype t, bool checked,
                         uint64_t *out);

bool kiln_plan_scalar_checked(const kiln_plan *plan,
                              int arg); /* whether kiln_plan_scalar refuses what does not fit */

/* The host environment that evaluates a row's when and check for a bound call. */
typedef struct kiln_call_env {
    kiln_henv env;
    const kiln_bound *call;
} kiln_call_env;
void kiln_call_env_init(kiln_call_env *ce, const kiln_bound *call, kiln_dtype common);

void kiln_bound_print(kiln_sb *out, const kiln_bound *call);
void kiln_plan_print(kiln_sb *out, const kiln_plan *plan);
void kiln_key_print(kiln_sb *out, const kiln_plan *plan, const kiln_key *key); /* lines "field: value" */
#endif
