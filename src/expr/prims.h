/* prims.h - the closed set of scalar primitives that bodies, IR, interpreter and generated code share.
 *
 * prims.def lists them.  A primitive P on compute type T is the C function (or macro) `P_T` of
 * src/math; nothing else in the project knows how one is computed. */
#ifndef KILN_PRIMS_H
#define KILN_PRIMS_H
#include "base/base.h"

/* How a primitive is typed.  T is the operands' common compute type. */
typedef enum kiln_rule {
    KILN_RULE_SAME,   /* (T, ...) -> T */
    KILN_RULE_CMP,    /* (T, T) -> bool */
    KILN_RULE_PRED,   /* (T) -> bool */
    KILN_RULE_SELECT, /* (bool, T, T) -> T */
    KILN_RULE_TOINT   /* (T) -> i32, T floating */
} kiln_rule;

/* What else is known of its result; prims.def explains them. */
typedef enum kiln_trait {
    KILN_TRAIT_EXACT,
    KILN_TRAIT_JOINS,
    KILN_TRAIT_DIVIDES,
    KILN_TRAIT_NEAR,
    KILN_TRAIT_SPECIAL
} kiln_trait;

typedef enum kiln_prim {
#define P(NAME, name, arity, rule, types, trait, derivatives) KILN_P_##NAME,
#include "expr/prims.def"
#undef P
    KILN_PRIM_COUNT
} kiln_prim;

const char *kiln_prim_name(kiln_prim p);
int kiln_prim_arity(kiln_prim p);
kiln_rule kiln_prim_rule(kiln_prim p);
kiln_trait kiln_prim_trait(kiln_prim p);
const char *kiln_prim_derivatives(kiln_prim p); /* "b, a": by each operand; a `?` where none is known */
kiln_dtypes kiln_prim_types(kiln_prim p);       /* the T it exists for: a set of compute types */
bool kiln_prim_find(const char *name, size_t n, kiln_prim *out);
kiln_dtype kiln_prim_result(kiln_prim p, kiln_dtype t); /* result type for operand type T */
#endif
