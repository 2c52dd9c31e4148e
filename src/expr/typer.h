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

kiln_texpr *kiln_typer_node(kiln_typer *ty, kiln_tekind kind, kiln_dtype t, const kiln_expr *from, int nargs);
kiln_status kiln_typer_expr(kiln_typer *ty, const kiln_expr *e, kiln_texpr **out) KILN_MUST_CHECK;
/* v as type `to`: a weak leaf becomes that type, anything else gets a cast. */
kiln_status kiln_typer_coerce(kiln_typer *ty, const kiln_texpr *v, kiln_dtype to,
                              kiln_texpr **out) KILN_MUST_CHECK;

/* A primitive whose operands meet at the complex type t; the first `first` operands are bool. */
kiln_status kiln_typer_complex_prim(kiln_typer *ty, const kiln_expr *e, kiln_texpr *const *args, int first,
                                    kiln_dtype t, kiln_texpr **out) KILN_MUST_CHECK;
/* re, im, complex, or a function that has a rule; *did: it was one. */
kiln_status kiln_typer_complex_call(kiln_typer *ty, const kiln_expr *e, bool *did,
                                    kiln_texpr **out) KILN_MUST_CHECK;
#endif
