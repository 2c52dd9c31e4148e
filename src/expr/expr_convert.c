/* expr_convert.c - which type operands meet at, and a typed expression as another type.
 *
 * Literals and int or float arguments are weak: they become the type that they meet, if it can hold them.  Anything else
 * gets a cast.  Owns nothing: nodes come from the environment's arena. */
#include "expr/typer.h"

typedef kiln_typer typer;

kiln_texpr *kiln_typer_node(typer *ty, kiln_tekind kind, kiln_dtype t, const kiln_expr *from, int nargs) {
    kiln_texpr *n = kiln_arena_alloc(ty->env->arena, sizeof *n);
    if (!n) return NULL;
    n->kind = kind;
    n->dtype = t;
    n->from = from;
    n->index = -1;
    n->nargs = nargs;
    n->args = nargs ? kiln_arena_alloc(ty->env->arena, (size_t)nargs * sizeof *n->args) : NULL;
    return nargs && !n->args ? NULL : n;
}

/* -- conversion ---------------------------------------------------------------------------------------- */

static bool is_whole(double f) { return f >= -0x1p63 && f < 0x1p63 && f == (double)(int64_t)f; }

void kiln_int_limits(kiln_dtype t, int64_t *lowest, int64_t *highest) {
    int bits = (int)kiln_dtype_size(t) * 8;
    *lowest = 0;
    *highest = 1;
    if (t == KILN_BOOL) return;
    *highest = kiln_dtype_is_signed(t) ? (int64_t)(UINT64_MAX >> (65 - bits))
                                       : (int64_t)(UINT64_MAX >> (64 - bits));
    if (kiln_dtype_is_signed(t)) *lowest = -*highest - 1;
}

/* A literal as type `to`; one that would change its value is refused. */
static kiln_status coerce_const(typer *ty, const kiln_texpr *v, kiln_dtype to, kiln_texpr **out) {
    bool fraction = kiln_is_fractional(v->dtype);
    int64_t i = !fraction ? v->i : is_whole(v->f) ? (int64_t)v->f : 0;
    if (!kiln_is_fractional(to)) {
        int64_t lowest, highest;
        kiln_int_limits(to, &lowest, &highest);
        if (fraction && !is_whole(v->f))
            return TYPE_FAIL(ty, v->from, "the fraction %g meets the type %s", v->f, kiln_dtype_name(to));
        bool fits = to == KILN_U64 ? i >= 0 || v->dtype == to : i >= lowest && i <= highest;
        if (!fits)
            return TYPE_FAIL(ty, v->from, "the number %lld does not fit the type %s", (long long)i,
                             kiln_dtype_name(to));
    }
    kiln_texpr *n = kiln_typer_node(ty, KILN_TE_CONST, to, v->from, 0);
    if (!n) return KILN_NOMEM();
    n->i = i;
    n->f = fraction ? v->f : (double)v->i;
    *out = n;
    return KILN_OK;
}

/* Whether v is a choice between two small integers, as `x > 0 ? 1 : -1`: every float type has them. */
static bool chooses_integers(const kiln_texpr *v) {
    enum { EXACT = 1 << 24 };
    if (v->kind != KILN_TE_PRIM || v->prim != KILN_P_SELECT || !v->weak) return false;
    for (int k = 1; k < 3; k++) {
        const kiln_texpr *arm = v->args[k];
        if (arm->kind != KILN_TE_CONST || arm->dtype != KILN_I64) return false;
        if (arm->i < -EXACT || arm->i > EXACT) return false;
    }
    return true;
}

/* Makes v, a choice between two constants, a choice between the same constants as numbers of type `to`. */
static kiln_status coerce_choice(typer *ty, const kiln_texpr *v, kiln_dtype to, kiln_texpr **out) {
    kiln_texpr *n = kiln_typer_node(ty, KILN_TE_PRIM, to, v->from, 3), *arm;
    if (!n) return KILN_NOMEM();
    n->prim = v->prim;
    n->args[0] = v->args[0];
    for (int k = 1; k < 3; k++) {
        KILN_TRY(coerce_const(ty, v->args[k], to, &arm));
        n->args[k] = arm;
    }
    *out = n;
    return KILN_OK;
}

/* v as type `to`.  Weak leaves, and choices between them, simply become that type; anything else gets a cast.  Of a complex
 * number only whether it is 0 is left in a bool; nothing else takes it. */
kiln_status kiln_typer_coerce(typer *ty, const kiln_texpr *v, kiln_dtype to, kiln_texpr **out) {
    if (v->kind == KILN_TE_CONST && (v->weak || v->dtype == to)) return coerce_const(ty, v, to, out);
    if ((to == KILN_F32 || to == KILN_F64) && chooses_integers(v)) return coerce_choice(ty, v, to, out);
    bool leaf = v->kind == KILN_TE_SCALAR && v->weak;
    if (kiln_dtype_is_complex(v->dtype) && !kiln_dtype_is_complex(to) && to != KILN_BOOL)
        return TYPE_FAIL(ty, v->from, "a complex number meets the type %s; write re(...)",
                         kiln_dtype_name(to));
    if (leaf && kiln_dtype_is_float(v->dtype) && !kiln_is_fractional(to))
        return TYPE_FAIL(ty, v->from, "a float argument meets the type %s", kiln_dtype_name(to));
    kiln_texpr *n = kiln_typer_node(ty, leaf ? KILN_TE_SCALAR : KILN_TE_CAST, to, v->from, leaf ? 0 : 1);
    if (!n) return KILN_NOMEM();
    if (leaf) {
        n->id = v->id;
        n->index = v->index;
    } else if (v->dtype == to) {
        *n = *v;
        n->weak = false;
    } else {
        n->args[0] = v;
    }
    *out = n;
    return KILN_OK;
}

/* The type operands meet at.  *weak: all of them were. */
kiln_status kiln_typer_meet(typer *ty, const kiln_expr *e, kiln_texpr *const *args, int n, kiln_dtype *out,
                            bool *weak) {
    kiln_dtype strong = KILN_DTYPE_COUNT, soft = KILN_I64;
    bool fraction = false;
    for (int k = 0; k < n; k++) {
        if (args[k]->weak) {
            if (!kiln_dtype_is_float(args[k]->dtype)) continue;
            soft = KILN_F64;
            fraction = fraction || args[k]->kind != KILN_TE_CONST || !is_whole(args[k]->f);
        } else {
            kiln_dtype t = args[k]->dtype,
                       both = strong == KILN_DTYPE_COUNT ? t : kiln_dtype_promote(strong, t);
            if (both == KILN_DTYPE_COUNT)
                return TYPE_FAIL(ty, e, "%s and %s do not promote", kiln_dtype_name(strong),
                                 kiln_dtype_name(t));
            strong = both;
        }
    }
    *weak = strong == KILN_DTYPE_COUNT;
    *out = *weak ? soft : strong;
    if (!*weak && fraction && !kiln_is_fractional(strong))
        return TYPE_FAIL(ty, e, "a floating number meets the type %s; does the row need to_float?",
                         kiln_dtype_name(strong));
    return KILN_OK;
}
