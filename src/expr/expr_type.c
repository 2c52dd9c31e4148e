/* expr_type.c - tree -> typed tree: every node gets a compute dtype, with the casts between them.
 *
 * Literals and int or float arguments are weak: they take the type of what they meet, so `1 + x` works
 * for every dtype of x.  Strong operands of different dtypes meet at their promotion.  Names come from the
 * environment; nothing here knows rows. */
#include <math.h>
#include <string.h>

#include "expr/typer.h"

typedef kiln_typer typer;

/* A name or function that nobody knows: wrong whatever the types are. */
#define UNKNOWN(ty, e, ...) (kiln_expr_fail((ty)->env->source, (e), KILN_E_PARSE, __VA_ARGS__), KILN_E_PARSE)

/* -- primitives ------------------------------------------------------------------------------------------ */

static kiln_status check_types(typer *ty, const kiln_expr *e, kiln_prim p, kiln_dtype t) {
    if (kiln_prim_types(p) & KILN_DT(t)) return KILN_OK;
    const char *key = p == KILN_P_AND ? "x & y" : p == KILN_P_OR ? "x | y" : kiln_prim_name(p);
    const char *advice = kiln_expr_advice(key, strlen(key));
    return TYPE_FAIL(ty, e, "'%s' does not take %s%s%s", kiln_prim_name(p), kiln_dtype_name(t),
                     advice ? "; " : "", advice ? advice : "");
}

/* -1 is a literal, so that it is checked like one where it meets a type.  -x of a Scalar is a number as well: PyTorch
 * negates it before it looks whether it fits. */
static bool negate(kiln_texpr *arg, const kiln_expr *e) {
    if (arg->kind == KILN_TE_CONST && arg->weak) {
        arg->i = -arg->i;
        arg->f = kiln_dtype_is_float(arg->dtype) ? -arg->f : (double)arg->i;
    } else if (arg->kind == KILN_TE_SCALAR && !arg->weak && arg->dtype != KILN_BOOL) {
        arg->minus = !arg->minus;
    } else {
        return false;
    }
    arg->from = e;
    return true;
}

static kiln_status type_prim(typer *ty, const kiln_expr *e, kiln_texpr **out) {
    kiln_texpr *args[3];
    int first = kiln_prim_rule(e->prim) == KILN_RULE_SELECT ? 1 : 0;
    if (e->nargs <= first || e->nargs > 3)
        return KILN_BUG("'%s' of %d arguments", kiln_prim_name(e->prim), e->nargs);
    for (int k = 0; k < e->nargs; k++) KILN_TRY(kiln_typer_expr(ty, e->args[k], &args[k]));
    if (e->prim == KILN_P_NEG && negate(args[0], e)) {
        *out = args[0];
        return KILN_OK;
    }
    kiln_dtype t = KILN_DTYPE_COUNT;
    bool weak = false;
    KILN_TRY(kiln_typer_meet(ty, e, args + first, e->nargs - first, &t, &weak));
    if (kiln_dtype_is_complex(t)) return kiln_typer_complex_prim(ty, e, args, first, t, out);
    kiln_prim p = e->prim;
    if (weak && t == KILN_I64 && !(kiln_prim_types(p) & KILN_DT(KILN_I64))) t = KILN_F64;
    KILN_TRY(check_types(ty, e, p, t));
    kiln_texpr *n = kiln_typer_node(ty, KILN_TE_PRIM, kiln_prim_result(p, t), e, e->nargs);
    if (!n) return KILN_NOMEM();
    n->prim = p;
    n->weak = weak && n->dtype == t;
    for (int k = 0; k < e->nargs; k++) {
        kiln_texpr *arg;
        KILN_TRY(kiln_typer_coerce(ty, args[k], k < first ? KILN_BOOL : t, &arg));
        n->args[k] = arg;
    }
    *out = n;
    return KILN_OK;
}

static kiln_status type_logic(typer *ty, const kiln_expr *e, kiln_texpr **out) {
    kiln_texpr *n = kiln_typer_node(ty, KILN_TE_PRIM, KILN_BOOL, e, e->nargs);
    if (!n) return KILN_NOMEM();
    n->prim = e->prim;
    for (int k = 0; k < e->nargs; k++) {
        kiln_texpr *arg;
        KILN_TRY(kiln_typer_expr(ty, e->args[k], &arg));
        KILN_TRY(kiln_typer_coerce(ty, arg, KILN_BOOL, &arg));
        n->args[k] = arg;
    }
    *out = n;
    return KILN_OK;
}

/* -- names ------------------------------------------------------------------------------------------- */

static void set_limit(kiln_texpr *n, kiln_dtype t, bool highest) {
    n->weak = false;
    n->dtype = t;
    if (kiln_dtype_is_float(t)) {
        n->f = highest ? INFINITY : -INFINITY;
        return;
    }
    int64_t lo, hi;
    kiln_int_limits(t, &lo, &hi);
    n->i = highest ? hi : lo;
    n->f = t == KILN_U64 ? (double)(uint64_t)n->i : (double)n->i;
}

/* inf, nan and pi are weak; lowest, highest and largest have the compute type. */
static bool type_constant(typer *ty, const kiln_expr *e, kiln_texpr *n) {
    bool highest = strcmp(e->name, "highest") == 0;
    n->weak = true;
    n->dtype = KILN_F64;
    if (strcmp(e->name, "inf") == 0)
        n->f = INFINITY;
    else if (strcmp(e->name, "nan") == 0)
        n->f = NAN;
    else if (strcmp(e->name, "pi") == 0)
        n->f = 3.14159265358979323846;
    else if (strcmp(e->name, "true") == 0 || strcmp(e->name, "false") == 0) {
        n->weak = false;
        n->dtype = KILN_BOOL;
        n->i = e->name[0] == 't';
        n->f = (double)n->i;
    } else if ((highest || strcmp(e->name, "lowest") == 0) && !kiln_dtype_is_complex(ty->env->compute)) {
        set_limit(n, ty->env->compute, highest);
    } else if (strcmp(e->name, "largest") == 0 && kiln_is_fractional(ty->env->compute)) {
        n->weak = false;
        n->dtype = kiln_dtype_real(ty->env->compute);
        n->f = kiln_dtype_largest(ty->env->common);
    } else {
        return false;
    }
    return true;
}

static kiln_status find(typer *ty, const kiln_expr *e, kiln_sym *sym) {
    if (!ty->env->find(ty->env, e->name, e->kind == KILN_X_FIELD, sym)) {
        const char *advice = e->kind == KILN_X_FIELD ? NULL : kiln_expr_advice(e->name, strlen(e->name));
        return UNKNOWN(ty, e, "unknown name '%s%s'%s%s", e->kind == KILN_X_FIELD ? "rhs." : "", e->name,
                       advice ? "; " : "", advice ? advice : "");
    }
    if (sym->kind == KILN_SYM_HOST) return TYPE_FAIL(ty, e, "'%s' is not a number", e->name);
    return KILN_OK;
}

static kiln_status type_let(typer *ty, const kiln_expr *e, const kiln_expr *let, kiln_texpr **out) {
    if (ty->lets == KILN_EXPR_MAX_DEPTH) return TYPE_FAIL(ty, e, "'%s' is defined by itself", e->name);
    ty->lets++;
    kiln_status st = kiln_typer_expr(ty, let, out);
    ty->lets--;
    return st;
}

static kiln_tekind kind_of(kiln_symkind k) {
    switch (k) {
    case KILN_SYM_ELEM: return KILN_TE_ELEM;
    case KILN_SYM_STATE: return KILN_TE_STATE;
    case KILN_SYM_RHS: return KILN_TE_RHS;
    case KILN_SYM_POS: return KILN_TE_POS;
    case KILN_SYM_COUNT: return KILN_TE_COUNT;
    case KILN_SYM_LOCAL: return KILN_TE_LOCAL;
    case KILN_SYM_SCALAR:
    case KILN_SYM_LIST:
    case KILN_SYM_LET:
    case KILN_SYM_HOST: break;
    }
    return KILN_TE_SCALAR;
}

static kiln_status type_name(typer *ty, const kiln_expr *e, kiln_texpr **out) {
    kiln_texpr *n = kiln_typer_node(ty, KILN_TE_CONST, KILN_I64, e, 0);
    if (!n) return KILN_NOMEM();
    *out = n;
    kiln_sym sym = {0};
    bool known = ty->env->find(ty->env, e->name, e->kind == KILN_X_FIELD, &sym);
    if (!known && e->kind == KILN_X_NAME && type_constant(ty, e, n)) return KILN_OK;
    KILN_TRY(find(ty, e, &sym));
    if (sym.may_be_absent || sym.absent)
        return TYPE_FAIL(
            ty, e, "optional argument '%s' is used where it may be absent; use or_else or a when", e->name);
    if (sym.kind == KILN_SYM_LET) return type_let(ty, e, sym.let, out);
    if (sym.kind == KILN_SYM_LIST) return TYPE_FAIL(ty, e, "'%s' is a list: write %s[k]", e->name, e->name);
    n->kind = kind_of(sym.kind);
    n->dtype = sym.dtype;
    n->weak = sym.weak;
    n->id = sym.id;
    return KILN_OK;
}

/* -- calls and accesses ----------------------------------------------------------------------------- */

static kiln_status type_or_else(typer *ty, const kiln_expr *e, kiln_texpr **out) {
    kiln_sym sym = {0};
    if (e->nargs != 2 || e->args[0]->kind != KILN_X_NAME)
        return TYPE_FAIL(ty, e, "or_else takes the name of an optional argument and a value");
    KILN_TRY(find(ty, e->args[0], &sym));
    if (!sym.optional || (sym.kind != KILN_SYM_ELEM && sym.kind != KILN_SYM_SCALAR))
        return TYPE_FAIL(ty, e->args[0], "'%s' is not an optional tensor or number", e->args[0]->name);
    kiln_texpr *dflt;
    KILN_TRY(kiln_typer_expr(ty, e->args[1], &dflt));
    if (sym.absent) {
        *out = dflt;
        return KILN_OK;
    }
    kiln_texpr *n = kiln_typer_node(ty, kind_of(sym.kind), sym.dtype, e, 0);
    if (!n) return KILN_NOMEM();
    n->id = sym.id;
    n->weak = sym.weak;
    *out = n;
    return KILN_OK;
}

static kiln_status type_size(typer *ty, const kiln_expr *e, kiln_texpr **out) {
    kiln_sym sym = {0};
    if (e->nargs != 2 || e->args[0]->kind != KILN_X_NAME)
        return TYPE_FAIL(ty, e, "size takes a tensor argument and a dimension");
    KILN_TRY(find(ty, e->args[0], &sym));
    if (sym.kind != KILN_SYM_ELEM) return TYPE_FAIL(ty, e, "size takes a tensor argument and a dimension");
    kiln_texpr *dim, *n;
    KILN_TRY(kiln_typer_expr(ty, e->args[1], &dim));
    KILN_TRY(kiln_typer_coerce(ty, dim, KILN_I64, &dim));
    if (!(n = kiln_typer_node(ty, KILN_TE_EXTENT, KILN_I64, e, 1))) return KILN_NOMEM();
    n->id = sym.id;
    n->args[0] = dim;
    *out = n;
    return KILN_OK;
}

/* common(x): x as a result of the common dtype would hold it. */
static kiln_status type_round(typer *ty, const kiln_expr *e, kiln_dtype to, kiln_texpr **out) {
    kiln_texpr *arg, *n;
    kiln_dtype compute = kiln_dtype_compute(to);
    if (e->nargs != 1) return TYPE_FAIL(ty, e, "'%s' takes 1 argument, found %d", e->name, e->nargs);
    KILN_TRY(kiln_typer_expr(ty, e->args[0], &arg));
    KILN_TRY(kiln_typer_coerce(ty, arg, compute, &arg));
    if (!(n = kiln_typer_node(ty, KILN_TE_ROUND, compute, e, 1))) return KILN_NOMEM();
    n->args[0] = arg;
    n->id = (int)to;
    *out = to == compute ? arg : n;
    return KILN_OK;
}

/* compute(x): an argument is taken as it is, not rounded to the common dtype first. */
static void mark_exact(const kiln_expr *e, kiln_texpr *arg) {
    bool leaf = arg->kind == KILN_TE_ELEM || arg->kind == KILN_TE_SCALAR;
    if (leaf && strcmp(e->name, "compute") == 0) arg->exact = true;
}

/* sum(x), max(x), min(x): over the elements of a block. */
static bool folds_block(const kiln_expr *e, kiln_prim *by) {
    static const kiln_prim prims[] = {KILN_P_ADD, KILN_P_MAX, KILN_P_MIN};
    static const char *const names[] = {"sum", "max", "min"};
    for (int k = 0; k < 3; k++)
        if (strcmp(e->name, names[k]) == 0) return *by = prims[k], true;
    return false;
}

static kiln_status type_block(typer *ty, const kiln_expr *e, kiln_prim by, kiln_texpr **out) {
    kiln_texpr *arg, *n;
    if (!ty->env->in_block && by == KILN_P_ADD)
        return TYPE_FAIL(ty, e, "sum(...) may stand only in a block clause; %s", kiln_expr_advice("sum", 3));
    if (!ty->env->in_block)
        return TYPE_FAIL(ty, e, "'%s' takes 2 arguments, found 1; of a block, 1 in a block clause", e->name);
    KILN_TRY(kiln_typer_expr(ty, e->args[0], &arg));
    KILN_TRY(kiln_typer_coerce(ty, arg, arg->weak ? ty->env->compute : arg->dtype, &arg));
    if (by != KILN_P_ADD && kiln_dtype_is_complex(arg->dtype))
        return TYPE_FAIL(ty, e, "'%s' does not take complex numbers", e->name);
    if (!(n = kiln_typer_node(ty, KILN_TE_BLOCK, arg->dtype, e, 1))) return KILN_NOMEM();
    n->args[0] = arg;
    n->prim = by;
    if (by != KILN_P_ADD) set_limit(n, arg->dtype, by == KILN_P_MIN);
    *out = n;
    return KILN_OK;
}

static kiln_status unknown_function(typer *ty, const kiln_expr *e) {
    const char *advice = kiln_expr_advice(e->name, strlen(e->name)),
               *near = kiln_expr_nearest_function(e->name);
    if (advice) return UNKNOWN(ty, e, "unknown function '%s'; %s", e->name, advice);
    if (near) return UNKNOWN(ty, e, "unknown function '%s'; did you mean '%s'?", e->name, near);
    return UNKNOWN(ty, e, "unknown function '%s'", e->name);
}

static kiln_status type_call(typer *ty, const kiln_expr *e, kiln_texpr **out) {
    if (strcmp(e->name, "or_else") == 0) return type_or_else(ty, e, out);
    if (strcmp(e->name, "size") == 0) return type_size(ty, e, out);
    if (strcmp(e->name, "common") == 0) return type_round(ty, e, ty->env->common, out);
    bool did;
    KILN_TRY(kiln_typer_complex_call(ty, e, &did, out));
    if (did) return KILN_OK;
    kiln_prim by = KILN_P_ADD;
    bool block = folds_block(e, &by);
    kiln_dtype to = KILN_DTYPE_COUNT;
    for (int t = 0; t < KILN_DTYPE_COUNT; t++)
        if (strcmp(e->name, kiln_dtype_name((kiln_dtype)t)) == 0) to = (kiln_dtype)t;
    if (strcmp(e->name, "compute") == 0) to = ty->env->compute;
    if (to != KILN_DTYPE_COUNT && to != kiln_dtype_compute(to)) return type_round(ty, e, to, out);
    if (!block && to == KILN_DTYPE_COUNT) return unknown_function(ty, e);
    if (e->nargs != 1) return TYPE_FAIL(ty, e, "'%s' takes 1 argument, found %d", e->name, e->nargs);
    if (block) return type_block(ty, e, by, out);
    kiln_texpr *arg;
    KILN_TRY(kiln_typer_expr(ty, e->args[0], &arg));
    /* a float argument may be truncated where the row says so */
    if (arg->kind == KILN_TE_SCALAR && arg->weak && kiln_dtype_is_float(arg->dtype) &&
        !kiln_dtype_is_float(to))
        KILN_TRY(kiln_typer_coerce(ty, arg, KILN_F64, &arg));
    KILN_TRY(kiln_typer_coerce(ty, arg, to, &arg));
    mark_exact(e, arg);
    *out = arg;
    return KILN_OK;
}

static kiln_status type_list_item(typer *ty, const kiln_expr *e, const kiln_sym *sym, kiln_texpr **out) {
    const kiln_expr *at = e->coord[0].at;
    if (e->ncoord != 1 || !at || e->coord[0].dim || at->kind != KILN_X_NUM || at->is_float ||
        at->i > INT16_MAX)
        return TYPE_FAIL(ty, e, "an item of the list '%s' is written %s[k] with a whole number k", e->name,
                         e->name);
    kiln_texpr *n = kiln_typer_node(ty, KILN_TE_SCALAR, sym->dtype, e, 0);
    if (!n) return KILN_NOMEM();
    n->id = sym->id;
    n->index = (int)at->i;
    n->weak = true;
    *out = n;
    return KILN_OK;
}

static kiln_status type_access(typer *ty, const kiln_expr *e, kiln_texpr **out) {
    kiln_sym sym = {0};
    if (e->ncoord < 1) return KILN_BUG("an access without coordinates");
    KILN_TRY(find(ty, e, &sym));
    if (sym.kind == KILN_SYM_LIST) return type_list_item(ty, e, &sym, out);
    if (sym.kind != KILN_SYM_ELEM) return TYPE_FAIL(ty, e, "'%s' is not a tensor", e->name);
    if (sym.may_be_absent || sym.absent)
        return TYPE_FAIL(ty, e, "optional argument '%s' is used where it may be absent; use a when", e->name);
    kiln_texpr *n = kiln_typer_node(ty, KILN_TE_ACCESS, sym.dtype, e, e->ncoord + 1);
    if (!n) return KILN_NOMEM();
    n->id = sym.id;
    for (int k = 0; k < e->ncoord; k++) {
        if (!e->coord[k].at) continue;
        kiln_texpr *at;
        KILN_TRY(kiln_typer_expr(ty, e->coord[k].at, &at));
        if (kiln_dtype_is_float(at->dtype))
            return TYPE_FAIL(ty, e->coord[k].at, "a coordinate must be an integer");
        KILN_TRY(kiln_typer_coerce(ty, at, KILN_I64, &at));
        n->args[k] = at;
    }
    if (e->other) {
        kiln_texpr *other;
        KILN_TRY(kiln_typer_expr(ty, e->other, &other));
        KILN_TRY(kiln_typer_coerce(ty, other, sym.dtype, &other));
        n->args[e->ncoord] = other;
    }
    *out = n;
    return KILN_OK;
}

static kiln_status type_number(typer *ty, const kiln_expr *e, kiln_texpr **out) {
    kiln_texpr *n = kiln_typer_node(ty, KILN_TE_CONST, e->is_float ? KILN_F64 : KILN_I64, e, 0);
    if (!n) return KILN_NOMEM();
    n->weak = true;
    n->i = e->i;
    n->f = e->is_float ? e->f : (double)e->i;
    *out = n;
    return KILN_OK;
}

static kiln_status type_kind(typer *ty, const kiln_expr *e, kiln_texpr **out) {
    switch (e->kind) {
    case KILN_X_NUM: return type_number(ty, e, out);
    case KILN_X_STR: return TYPE_FAIL(ty, e, "a string is not a number");
    case KILN_X_NAME:
    case KILN_X_FIELD: return type_name(ty, e, out);
    case KILN_X_PRIM: return type_prim(ty, e, out);
    case KILN_X_LOGIC: return type_logic(ty, e, out);
    case KILN_X_CALL: return type_call(ty, e, out);
    case KILN_X_ACCESS: return type_access(ty, e, out);
    }
    return KILN_BUG("unknown expression kind %d", (int)e->kind);
}

/* Inside a rule, the place is where the row's own text asks for one. */
static void blame_size(const typer *ty, const kiln_expr *e) {
    bool high = ty->height > KILN_EXPR_MAX_HEIGHT;
    int most = high ? KILN_EXPR_MAX_HEIGHT : KILN_EXPR_MAX_NODES;
    const char *what = high ? "levels" : "nodes";
    const kiln_applied *outermost = ty->rule;
    while (outermost && outermost->outer) outermost = outermost->outer;
    if (outermost)
        kiln_expr_fail(outermost->source, outermost->at, KILN_E_LIMIT,
                       "the rule for '%.60s' brings the expression to more than %d %s", outermost->rule->name,
                       most, what);
    else
        kiln_expr_fail(ty->env->source, e, KILN_E_LIMIT,
                       "expression has more than %d %s with its names expanded", most, what);
}

kiln_status kiln_typer_expr(typer *ty, const kiln_expr *e, kiln_texpr **out) {
    if (++ty->height > KILN_EXPR_MAX_HEIGHT || ++ty->nodes > KILN_EXPR_MAX_NODES)
        return blame_size(ty, e), KILN_E_LIMIT;
    if (!kiln_budget_take(ty->env->budget, ty->env->source, e)) return KILN_E_LIMIT;
    kiln_status st = type_kind(ty, e, out);
    ty->height--;
    return st;
}

kiln_status kiln_expr_cast(const kiln_env *env, const kiln_texpr *v, kiln_dtype want,
                           const kiln_texpr **out) {
    typer ty = {.env = env};
    kiln_texpr *cast;
    *out = v;
    if (want == KILN_DTYPE_COUNT || (!v->weak && v->dtype == want)) return KILN_OK;
    KILN_TRY(kiln_typer_coerce(&ty, v, want, &cast));
    *out = cast;
    return KILN_OK;
}

kiln_status kiln_expr_type(const kiln_env *env, const kiln_expr *e, kiln_dtype want, const kiln_texpr **out) {
    typer ty = {.env = env};
    kiln_texpr *v;
    kiln_status st = kiln_typer_expr(&ty, e, &v);
    if (st == KILN_OK) return kiln_expr_cast(env, v, want, out);
    if (st != KILN_E_TYPE || kiln_is_quiet()) return st;
    KILN_TRY(kiln_expr_unknown(env, e));
    ty = (typer){.env = env};
    return kiln_typer_expr(&ty, e, &v); /* for its message, which the search has put another in place of */
}
