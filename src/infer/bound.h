/* bound.h - values of a call -> arguments of an operator's schema, and which of several overloads they mean.
 *
 * Everything lives in caller storage; nothing is allocated.  Knows schemas and values, no shapes. */
#ifndef KILN_BOUND_H
#define KILN_BOUND_H
#include "op/op.h"
#include "tensor/tensor.h"

/* The arguments of the row's functional schema, by their place in it.
 * Values may point into `items`, so a kiln_bound must not be copied. */
typedef struct kiln_bound {
    const kiln_op *op;
    kiln_value arg[KILN_MAX_ARGS];   /* KILN_NONE where absent; defaults filled in */
    kiln_value items[KILN_MAX_ARGS]; /* storage for list defaults and single values widened to lists */
    int nitems;
    uint8_t
        item_dtype[KILN_MAX_ARGS];   /* of a tensor whose number arg[a] is; set where the row says `item a` */
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
#endif
