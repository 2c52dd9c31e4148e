/* infer.h - (operator, actual arguments) -> everything a call needs that is not code.
 *
 *   bind    values -> arguments of the schema: names, defaults, types
 *   infer   branch, dtypes, broadcast shape, output strides, overlap: exactly as PyTorch 2.13
 *           (kiln_infer_again: the same without branch and dtypes, where these are known)
 *   plan    dimensions permuted and coalesced, byte strides, iteration class
 *   key     the call's class as bytes
 *
 * Everything lives in caller storage; nothing is allocated.  Knows no IR and no code. */
#ifndef KILN_INFER_H
#define KILN_INFER_H
#include "infer/plan.h"

/* The class key: equal bytes exactly when two calls can share a kernel. */
enum { KILN_KEY_MAX = 256 };
typedef struct kiln_key {
    _Alignas(8) uint8_t bytes[KILN_KEY_MAX];
    uint32_t n; /* bytes in use */
} kiln_key;

/* What a family (src/family) does to a call whose types are known.  `shape` sets the shapes and results of the plan, `axes`
 * its dimensions, strides, form and what comes before the launch, and its kind and steps if it is no kernel; both may
 * refuse the call.  `lower` makes the IR of its class, or names its routine.  A family of calls has a `shape` alone, which
 * sets the whole plan.  `results` is asked before all of these, once types are known: it sets which results the call does not
 * give or store.  NULL: a call gives and stores every result. */
typedef struct kiln_lowered kiln_lowered; /* lower.h */
typedef struct kiln_family_fns {
    kiln_status (*shape)(kiln_plan *p);
    kiln_status (*axes)(kiln_plan *p);
    kiln_status (*lower)(kiln_arena *arena, const kiln_plan *p, kiln_lowered *out);
    kiln_status (*results)(kiln_plan *p);
} kiln_family_fns;
extern const kiln_family_fns *const kiln_families[KILN_FAMILY_COUNT]; /* NULL: not served */
/* Whose the call is: its branch's, which may be a map where the row is a fold; rows that compose have no branches. */
static inline kiln_family kiln_plan_family(const kiln_plan *p) {
    return p->branch ? p->branch->family : p->call->op->row->family;
}

kiln_status kiln_infer(const kiln_bound *call, kiln_plan *out) KILN_MUST_CHECK;

/* Infers a call that another call makes, and shows its plan to the watcher that kiln_infer_show set. */
kiln_status kiln_infer_inner(const kiln_bound *call, kiln_plan *out) KILN_MUST_CHECK;
/* Who watches the inner calls of what this thread infers: each is shown to fn, as long as it is valid, in the order in which
 * they are made.  deep: the calls within them are shown, too, before them.  fn NULL: nobody watches. */
typedef struct kiln_infer_watch {
    kiln_status (*fn)(void *user, kiln_plan *inner);
    void *user;
    bool deep;
} kiln_infer_watch;
/* Sets who watches from now on; returns who did before. */
kiln_infer_watch kiln_infer_show(kiln_infer_watch watch);

/* What kiln_infer found of another call of the same operator with the same kinds, dtypes and asked values makes
 * inferring this one a matter of sizes and strides: the same plan, or the same failure, as kiln_infer's. */
kiln_status kiln_infer_again(const kiln_bound *call, const kiln_typed *typed, kiln_plan *out) KILN_MUST_CHECK;
void kiln_plan_key(const kiln_plan *plan, int level,
                   kiln_key *out); /* level: of the target that builds its kernels */

/* Where a kernel's scalar comes from: number argument `arg` (item `index` of a list, or -1; KILN_HOST_ID + k: the row's
 * k-th host number), converted to `via` (a half type, or dtype itself) and from that to `dtype`, the type the kernel
 * computes with.  A complex number is two scalars. */
enum { KILN_MINUS = 4 };
typedef struct kiln_scalar_source {
    int16_t arg, index;
    kiln_dtype via, dtype;
    int part; /* 1: the real, 2: the imaginary part, 0: it must be real; + KILN_MINUS: of the number negated */
} kiln_scalar_source;

/* The scalar of a call, as an 8-byte parameter.  PyTorch has two ways: a number that takes part in promotion and is not
 * optional becomes a tensor, which converts like an element (kiln_element_set); any other must fit, as in its
 * Scalar::to, and is KILN_E_ARG if it does not. */
kiln_status kiln_plan_scalar(const kiln_plan *plan, const kiln_scalar_source *s,
                             uint64_t *out) KILN_MUST_CHECK;
bool kiln_plan_scalar_checked(const kiln_plan *plan, int arg); /* whether it must fit */

/* The same for a number by itself; checked: it must fit.  False if it does not fit or is no number; no error is set. */
bool kiln_number_convert(const kiln_value *v, const kiln_scalar_source *s, bool checked, uint64_t *out);

/* The host environment that evaluates a row's when and check for a bound call. */
typedef struct kiln_call_env {
    kiln_henv env;
    const kiln_bound *call;
} kiln_call_env;
/* The dtype of a tensor, or that a number alone has; KILN_DTYPE_COUNT: the argument has none. */
kiln_dtype kiln_arg_dtype(const kiln_bound *call, int arg);
void kiln_call_env_init(kiln_call_env *ce, const kiln_bound *call, kiln_dtype common);
/* Computes expression e, an argument of an inner call, as a value. */
kiln_status kiln_call_value(const kiln_call_env *ce, const kiln_expr *e, kiln_value *out) KILN_MUST_CHECK;
/* Tests the row's checks for a call whose common dtype is `common`.  Checks of the number of folded elements are left to kiln_count_check. */
kiln_status kiln_checks_hold(const kiln_bound *call, kiln_dtype common) KILN_MUST_CHECK;

void kiln_bound_print(kiln_sb *out, const kiln_bound *call);
/* As the command line takes it: "aten::add.Tensor(self=f32[3], other=f32[3], alpha=2)".  Arguments at their defaults are left out.  schema: of the
 * operator that has the name of call->op; it differs where call->op is what an operator over lists does with an item. */
void kiln_call_print(kiln_sb *out, const kiln_bound *call, const kiln_schema *schema);
void kiln_plan_print(kiln_sb *out, const kiln_plan *plan);
/* Lines "field: value".  target: the name of what builds the kernel, and of its level. */
void kiln_key_print(kiln_sb *out, const kiln_plan *plan, const kiln_key *key, const char *target);
/* The same in one line without what all calls of the operator share: "self f32 contig, other f32 contig -> f32 contig; dim=1". */
void kiln_key_words(kiln_sb *out, const kiln_plan *plan, const kiln_key *key);
void kiln_row_name_print(kiln_sb *out, const kiln_row *row); /* "aten::add.Tensor" */
#endif
