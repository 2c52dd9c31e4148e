/* expr_grad.h - derivatives of expressions, by the derivatives of primitives that prims.def has. */
#ifndef KILN_EXPR_GRAD_H
#define KILN_EXPR_GRAD_H
#include "expr/expr.h"

/* What an expression is differentiated by. */
typedef struct kiln_wrt {
    const char *name;                                                    /* an argument */
    const kiln_expr *(*let)(const struct kiln_wrt *w, const char *name); /* what a name stands for, or NULL */
    const void *user;                                                    /* of let's */
    const char *source;
    kiln_arena *arena;
    kiln_budget *budget; /* a step is one node */
} kiln_wrt;

/* The derivative of e, simplified; it shares parts of e.  KILN_E_UNSUP names the primitive that has none. */
kiln_status kiln_expr_derive(const kiln_wrt *w, const kiln_expr *e, const kiln_expr **out) KILN_MUST_CHECK;
/* p(a, b), simplified. */
kiln_status kiln_expr_build(const kiln_wrt *w, kiln_prim p, const kiln_expr *a, const kiln_expr *b,
                            const kiln_expr **out) KILN_MUST_CHECK;
bool kiln_expr_is_zero(const kiln_expr *e); /* the literal */
#endif
