/* typer.h - private to src/expr: what typing of plain and of complex expressions share. */
#ifndef KILN_TYPER_H
#define KILN_TYPER_H
#include "expr/expr.h"

/* A rule that is being applied, and where. */
typedef struct kiln_applied {
    const kiln_crule *rule;
    const kiln_expr *at;
    const char *source; /* of `at` */
    const struct kiln_applied *outer;
} kiln_applied;

typedef struct kiln_typer {
    const kiln_env *env;
    int height;               /* of the tree above, with names and rules expanded */
    int nodes;                /* typed so far: names and rules that use others twice grow without end */
    int lets;                 /* names being expanded, to stop a let that means itself */
    const kiln_applied *rule; /* the innermost rule being applied, or NULL */
} kiln_typer;

/* A comma, so that an analyser sees that it is a failure. */
#define TYPE_FAIL(ty, e, ...) (kiln_expr_fail((ty)->env->source, (e), KILN_E_TYPE, __VA_ARGS__), KILN_E_TYPE)

kiln_texpr *kiln_typer_node(kiln_typer *ty, kiln_tekind kind, kiln_dtype t, const kiln_expr *from, int nargs);
kiln_status kiln_typer_expr(kiln_typer *ty, const kiln_expr *e, kiln_texpr **out) KILN_MUST_CHECK;
/* v as type `to`: a weak leaf becomes that type, anything else gets a cast. */
kiln_status kiln_typer_coerce(kiln_typer *ty, const kiln_texpr *v, kiln_dtype to,
                              kiln_texpr **out) KILN_MUST_CHECK;

/* The type at which n operands meet.  *weak: all of them are weak. */
kiln_status kiln_typer_meet(kiln_typer *ty, const kiln_expr *e, kiln_texpr *const *args, int n,
                            kiln_dtype *out, bool *weak) KILN_MUST_CHECK;
static inline bool kiln_is_fractional(kiln_dtype t) {
    return kiln_dtype_is_float(t) || kiln_dtype_is_complex(t);
}
/* The limits of an integer type as bits: the highest u64 is -1. */
void kiln_int_limits(kiln_dtype t, int64_t *lowest, int64_t *highest);

/* The error for the first name or function in e that nobody knows; KILN_OK if all are known. (expr_unknown.c) */
kiln_status kiln_expr_unknown(const kiln_env *env, const kiln_expr *e) KILN_MUST_CHECK;
const char *kiln_expr_nearest_function(const char *name); /* or NULL */

/* A primitive whose operands meet at the complex type t; the first `first` operands are bool. */
kiln_status kiln_typer_complex_prim(kiln_typer *ty, const kiln_expr *e, kiln_texpr *const *args, int first,
                                    kiln_dtype t, kiln_texpr **out) KILN_MUST_CHECK;
/* re, im, complex, or a function that has a rule; *did: it was one. */
kiln_status kiln_typer_complex_call(kiln_typer *ty, const kiln_expr *e, bool *did,
                                    kiln_texpr **out) KILN_MUST_CHECK;
#endif
