/* prims.c - facts about primitives, read from prims.def.
 *
 * Turns a primitive into its name, arity, typing rule, operand types, trait and derivatives.  How one is computed is
 * src/math's business. */
#include <string.h>

#include "expr/prims.h"

enum {
    B = KILN_DT(KILN_BOOL),
    I = KILN_DT(KILN_U8) | KILN_DT(KILN_I8) | KILN_DT(KILN_I16) | KILN_DT(KILN_I32) | KILN_DT(KILN_I64) |
        KILN_DT(KILN_U16) | KILN_DT(KILN_U32) | KILN_DT(KILN_U64),
    F = KILN_DT(KILN_F32) | KILN_DT(KILN_F64),
    BI = B | I,
    IF = I | F,
    BIF = B | I | F,
};

static const struct {
    const char *name, *derivatives;
    uint8_t arity, rule, trait;
    kiln_dtypes types;
} facts[KILN_PRIM_COUNT] = {
#define P(NAME, name, arity, rule, types, trait, derivatives) \
    [KILN_P_##NAME] = {#name, derivatives, arity, KILN_RULE_##rule, KILN_TRAIT_##trait, types},
#include "expr/prims.def"
#undef P
};

const char *kiln_prim_name(kiln_prim p) { return facts[p].name; }
int kiln_prim_arity(kiln_prim p) { return facts[p].arity; }
kiln_rule kiln_prim_rule(kiln_prim p) { return (kiln_rule)facts[p].rule; }
kiln_trait kiln_prim_trait(kiln_prim p) { return (kiln_trait)facts[p].trait; }
const char *kiln_prim_derivatives(kiln_prim p) { return facts[p].derivatives; }
kiln_dtypes kiln_prim_types(kiln_prim p) { return facts[p].types; }

bool kiln_prim_find(const char *name, size_t n, kiln_prim *out) {
    for (int p = 0; p < KILN_PRIM_COUNT; p++) {
        if (strlen(facts[p].name) != n || memcmp(facts[p].name, name, n) != 0) continue;
        *out = (kiln_prim)p;
        return true;
    }
    return false;
}

kiln_dtype kiln_prim_result(kiln_prim p, kiln_dtype t) {
    switch (kiln_prim_rule(p)) {
    case KILN_RULE_SAME:
    case KILN_RULE_SELECT: return t;
    case KILN_RULE_CMP:
    case KILN_RULE_PRED: return KILN_BOOL;
    case KILN_RULE_TOINT: return KILN_I32;
    }
    return t;
}
