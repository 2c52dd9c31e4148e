/* expr_host.c - evaluates an expression once, on the host, from argument values.
 *
 * For `when` and `check`, for extents and the like.  An input that is not known (a row checked before
 * any call exists) gives "unknown", unless the result does not depend on it.  Functions of arguments are
 * expr_host_ask.c's.  Knows no tensors: sizes and values come through the environment. */
#include <math.h>
#include <string.h>

#include "expr/host.h"

static kiln_status eval_logic(host *h, const kiln_expr *e, kiln_hval *out) {
    bool stops_on = e->prim == KILN_P_OR, any_unknown = false, stopped = false;
    for (int k = 0; k < e->nargs; k++) {
        kiln_hval v;
        KILN_TRY(kiln_host_eval(h, e->args[k], &v));
        if (v.kind == KILN_H_UNKNOWN) {
            any_unknown = true;
            continue;
        }
        if (!is_number(v)) return HOST_FAIL(h, e->args[k], "expected a truth value");
        if (e->prim == KILN_P_NOT) {
            *out = from_bool(!is_true(v));
            return KILN_OK;
        }
        stopped = stopped || is_true(v) == stops_on;
        if (stopped && !h->every) break;
    }
    *out = stopped ? from_bool(stops_on) : any_unknown ? unknown() : from_bool(!stops_on);
    return KILN_OK;
}

/* None and text compare equal or not; numbers compare as PyTorch's Scalars. */
static kiln_status eval_compare(host *h, const kiln_expr *e, kiln_hval a, kiln_hval b, kiln_hval *out) {
    bool equality = e->prim == KILN_P_EQ || e->prim == KILN_P_NE, same;
    if (is_number(a) && is_number(b)) {
        bool exact = a.kind != KILN_H_FLOAT && b.kind != KILN_H_FLOAT;
        int order = exact ? (a.i > b.i) - (a.i < b.i) : (a.f > b.f) - (a.f < b.f);
        bool nan = !exact && (isnan(a.f) || isnan(b.f));
        switch (e->prim) {
        case KILN_P_EQ: *out = from_bool(!nan && order == 0); return KILN_OK;
        case KILN_P_NE: *out = from_bool(nan || order != 0); return KILN_OK;
        case KILN_P_LT: *out = from_bool(!nan && order < 0); return KILN_OK;
        case KILN_P_LE: *out = from_bool(!nan && order <= 0); return KILN_OK;
        case KILN_P_GT: *out = from_bool(!nan && order > 0); return KILN_OK;
        default: *out = from_bool(!nan && order >= 0); return KILN_OK;
        }
    }
    if (!equality) return HOST_FAIL(h, e, "cannot order these values");
    if (is_many(a) || is_many(b)) return HOST_FAIL(h, e, "cannot compare a tensor or a list");
    if (a.kind == KILN_H_STR && b.kind == KILN_H_STR)
        same = strcmp(a.s, b.s) == 0;
    else if (a.kind == KILN_H_DTYPE && b.kind == KILN_H_DTYPE)
        same = a.i == b.i;
    else if (is_any_number(a) && is_any_number(b))
        same = a.f == b.f && a.im == b.im;
    else
        same = a.kind == KILN_H_NONE && b.kind == KILN_H_NONE;
    *out = from_bool(same == (e->prim == KILN_P_EQ));
    return KILN_OK;
}

static int64_t floor_div(int64_t a, int64_t b) {
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

static kiln_status eval_int(host *h, const kiln_expr *e, int64_t a, int64_t b, kiln_hval *out) {
    uint64_t x = (uint64_t)a, y = (uint64_t)b; /* wrap like the kernels do */
    if (kiln_prim_trait(e->prim) == KILN_TRAIT_DIVIDES && b == 0)
        return kiln_expr_fail(h->env->source, e, KILN_E_DIVZERO, "division by zero");
    int64_t by = b ? b : 1; /* no division sees a zero: it was refused above */
    switch (e->prim) {
    case KILN_P_ADD: *out = from_int((int64_t)(x + y)); return KILN_OK;
    case KILN_P_SUB: *out = from_int((int64_t)(x - y)); return KILN_OK;
    case KILN_P_MUL: *out = from_int((int64_t)(x * y)); return KILN_OK;
    case KILN_P_DIV: *out = from_float((double)a / (double)b); return KILN_OK;
    case KILN_P_IDIV: *out = from_int(b == -1 ? (int64_t)(0 - x) : a / by); return KILN_OK;
    case KILN_P_FLOORDIV: *out = from_int(floor_div(a, by)); return KILN_OK;
    case KILN_P_MOD: *out = from_int((int64_t)(x - (uint64_t)floor_div(a, by) * y)); return KILN_OK;
    case KILN_P_NEG: *out = from_int((int64_t)(0 - x)); return KILN_OK;
    case KILN_P_ABS: *out = from_int(a < 0 ? (int64_t)(0 - x) : a); return KILN_OK;
    case KILN_P_MAX: *out = from_int(a > b ? a : b); return KILN_OK;
    case KILN_P_MIN: *out = from_int(a < b ? a : b); return KILN_OK;
    default: return HOST_FAIL(h, e, "'%s' cannot be computed before the call", kiln_prim_name(e->prim));
    }
}

static kiln_status eval_float(host *h, const kiln_expr *e, double a, double b, kiln_hval *out) {
    switch (e->prim) {
    case KILN_P_ADD: *out = from_float(a + b); return KILN_OK;
    case KILN_P_SUB: *out = from_float(a - b); return KILN_OK;
    case KILN_P_MUL: *out = from_float(a * b); return KILN_OK;
    case KILN_P_DIV: *out = from_float(a / b); return KILN_OK;
    case KILN_P_NEG: *out = from_float(-a); return KILN_OK;
    case KILN_P_ABS: *out = from_float(fabs(a)); return KILN_OK;
    case KILN_P_FLOOR: *out = from_float(floor(a)); return KILN_OK;
    case KILN_P_CEIL: *out = from_float(ceil(a)); return KILN_OK;
    case KILN_P_TRUNC: *out = from_float(trunc(a)); return KILN_OK;
    case KILN_P_ISNAN: *out = from_bool(isnan(a)); return KILN_OK;
    case KILN_P_ISINF: *out = from_bool(isinf(a)); return KILN_OK;
    case KILN_P_MAX: *out = from_float(isnan(a) || a > b ? a : b); return KILN_OK;
    case KILN_P_MIN: *out = from_float(isnan(a) || a < b ? a : b); return KILN_OK;
    case KILN_P_POW: *out = from_float(pow(a, b)); return KILN_OK;
    default: return HOST_FAIL(h, e, "'%s' cannot be computed before the call", kiln_prim_name(e->prim));
    }
}

static kiln_status eval_select(host *h, const kiln_expr *e, kiln_hval *out) {
    kiln_hval v[3];
    KILN_TRY(kiln_host_eval(h, e->args[0], &v[0]));
    bool known = v[0].kind != KILN_H_UNKNOWN, first = known && is_true(v[0]);
    if (known && !is_number(v[0])) return HOST_FAIL(h, e->args[0], "expected a truth value");
    v[1] = v[2] = unknown();
    if (first || h->every) KILN_TRY(kiln_host_eval(h, e->args[1], &v[1]));
    if ((known && !first) || h->every) KILN_TRY(kiln_host_eval(h, e->args[2], &v[2]));
    *out = known ? v[first ? 1 : 2] : unknown();
    return KILN_OK;
}

/* Those of eval_int, eval_float and eval_compare. */
static bool is_for_host(kiln_prim p) {
    switch (p) {
    case KILN_P_ADD:
    case KILN_P_SUB:
    case KILN_P_MUL:
    case KILN_P_DIV:
    case KILN_P_IDIV:
    case KILN_P_FLOORDIV:
    case KILN_P_MOD:
    case KILN_P_NEG:
    case KILN_P_ABS:
    case KILN_P_FLOOR:
    case KILN_P_CEIL:
    case KILN_P_TRUNC:
    case KILN_P_ISNAN:
    case KILN_P_ISINF:
    case KILN_P_MAX:
    case KILN_P_MIN:
    case KILN_P_POW: return true;
    default: return kiln_prim_rule(p) == KILN_RULE_CMP;
    }
}

/* A complex number without an imaginary part is as good as a real one, as where PyTorch's Scalar becomes a double. */
static kiln_status to_real(host *h, const kiln_expr *e, kiln_hval *v) {
    if (v->im != 0)
        return (kiln_expr_fail(h->env->source, e, KILN_E_ARG, "expected a real number, found a complex one"),
                KILN_E_ARG);
    *v = from_float(v->f);
    return KILN_OK;
}

static kiln_status eval_prim(host *h, const kiln_expr *e, kiln_hval *out) {
    kiln_hval v[3] = {{0}};
    bool any_unknown = false;
    if (e->prim == KILN_P_SELECT) return eval_select(h, e, out);
    if (!is_for_host(e->prim))
        return HOST_FAIL(h, e, "'%s' cannot be computed before the call", kiln_prim_name(e->prim));
    for (int k = 0; k < e->nargs; k++) {
        KILN_TRY(kiln_host_eval(h, e->args[k], &v[k]));
        any_unknown = any_unknown || v[k].kind == KILN_H_UNKNOWN;
        bool whole = e->prim == KILN_P_EQ || e->prim == KILN_P_NE;
        if (v[k].kind == KILN_H_COMPLEX && !whole) KILN_TRY(to_real(h, e->args[k], &v[k]));
    }
    if (any_unknown) {
        *out = unknown();
        return KILN_OK;
    }
    if (kiln_prim_rule(e->prim) == KILN_RULE_CMP) return eval_compare(h, e, v[0], v[1], out);
    for (int k = 0; k < e->nargs; k++)
        if (!is_number(v[k])) return HOST_FAIL(h, e->args[k], "expected a number");
    bool floating = v[0].kind == KILN_H_FLOAT || (e->nargs > 1 && v[1].kind == KILN_H_FLOAT) ||
                    !(kiln_prim_types(e->prim) & KILN_DT(KILN_I64));
    if (e->prim == KILN_P_DIV || e->prim == KILN_P_POW) floating = true;
    return floating ? eval_float(h, e, v[0].f, v[1].f, out) : eval_int(h, e, v[0].i, v[1].i, out);
}

/* A name that is none of the row's. */
static kiln_status eval_word(host *h, const kiln_expr *e, kiln_hval *out) {
    kiln_dtype t = e->word == KILN_WORD_DTYPE_NAME ? (kiln_dtype)e->i : h->env->common;
    switch (e->word) {
    case KILN_WORD_true: *out = from_bool(true); return KILN_OK;
    case KILN_WORD_false: *out = from_bool(false); return KILN_OK;
    case KILN_WORD_inf: *out = from_float(INFINITY); return KILN_OK;
    case KILN_WORD_common:
    case KILN_WORD_DTYPE_NAME:
        *out = unknown();
        if (t != KILN_DTYPE_COUNT) *out = (kiln_hval){.kind = KILN_H_DTYPE, .i = t, .dtype = t};
        return KILN_OK;
    case KILN_WORD_n:
        if (!h->env->counted) break;
        *out = unknown();
        if (h->env->count >= 0) *out = (kiln_hval){.kind = KILN_H_INT, .i = h->env->count};
        out->f = (double)out->i;
        out->dtype = KILN_I64;
        return KILN_OK;
    case KILN_WORD_in_place:
        *out = h->env->in_place ? from_bool(h->env->in_place > 0) : unknown();
        return KILN_OK;
    case KILN_WORD_out_form:
        *out = h->env->out_form ? from_bool(h->env->out_form > 0) : unknown();
        return KILN_OK;
    case KILN_WORD_given:
        *out = unknown();
        if (h->env->out_form)
            *out = (kiln_hval){.kind = KILN_H_DTYPE, .i = h->env->given, .dtype = h->env->given};
        return KILN_OK;
    default: break;
    }
    return UNKNOWN(h, e, "unknown name '%s'", e->name);
}

static kiln_status eval_name(host *h, const kiln_expr *e, kiln_hval *out) {
    if (e->means) return kiln_host_eval(h, e->means, out);
    if (e->arg < 0) return eval_word(h, e, out);
    h->env->get(h->env, e->arg, out);
    return KILN_OK;
}

static kiln_status eval_item(host *h, const kiln_expr *e, kiln_hval *out) {
    kiln_hval k = {0};
    if (e->ncoord != 1 || !e->coord[0].at || e->coord[0].dim || !h->env->item)
        return HOST_FAIL(h, e, "expected an item of a list argument");
    KILN_TRY(kiln_host_eval(h, e->coord[0].at, &k));
    if (k.kind != KILN_H_INT || e->arg < 0 || !h->env->item(h->env, e->arg, k.i, out))
        return kiln_expr_fail(h->env->source, e, KILN_E_INDEX, "'%s' has no such item", e->name);
    return KILN_OK;
}

static kiln_status eval_kind(host *h, const kiln_expr *e, kiln_hval *out) {
    switch (e->kind) {
    case KILN_X_NUM: *out = e->is_float ? from_float(e->f) : from_int(e->i); return KILN_OK;
    case KILN_X_STR:
        *out = (kiln_hval){.kind = KILN_H_STR, .s = e->name, .dtype = KILN_DTYPE_COUNT};
        return KILN_OK;
    case KILN_X_NAME: return eval_name(h, e, out);
    case KILN_X_FIELD: return HOST_FAIL(h, e, "rhs.%s is not known before the call", e->name);
    case KILN_X_PRIM: return eval_prim(h, e, out);
    case KILN_X_LOGIC: return eval_logic(h, e, out);
    case KILN_X_CALL: return kiln_host_call(h, e, out);
    case KILN_X_ACCESS: return eval_item(h, e, out);
    }
    return KILN_BUG("unknown expression kind %d", (int)e->kind);
}

kiln_status kiln_host_eval(host *h, const kiln_expr *e, kiln_hval *out) {
    bool high = ++h->height > KILN_EXPR_MAX_HEIGHT;
    if (high || ++h->nodes > KILN_EXPR_MAX_NODES) {
        (void)kiln_expr_fail(h->env->source, e, KILN_E_LIMIT,
                             "expression has more than %d %s with its names expanded",
                             high ? KILN_EXPR_MAX_HEIGHT : KILN_EXPR_MAX_NODES, high ? "levels" : "nodes");
        return KILN_E_LIMIT;
    }
    if (!kiln_budget_take(h->env->budget, h->env->source, e)) return KILN_E_LIMIT;
    kiln_status st = eval_kind(h, e, out);
    h->height--;
    return st;
}

/* -- conditions -------------------------------------------------------------------------------------------- */

/* Answers a question about the dtype of an argument or of the call; false if e is no such question. */
static inline bool dtype_answers(const kiln_henv *env, const kiln_expr *e, bool *out) {
    const kiln_expr *of = e->asks ? e->args[0] : NULL;
    if (!of || of->kind != KILN_X_NAME || of->means) return false;
    kiln_dtype t = KILN_DTYPE_COUNT;
    if (of->arg >= 0)
        t = env->dtype(env, of->arg);
    else if (of->word == KILN_WORD_common)
        t = env->common;
    *out = t < KILN_DTYPE_COUNT && (e->asks >> t & 1);
    return t < KILN_DTYPE_COUNT;
}

/* Apart, so that conditions on dtypes alone need no room for values. */
static __attribute__((noinline)) kiln_status value_holds(const kiln_henv *env, const kiln_expr *e,
                                                         bool *out) {
    host h = {.env = env};
    kiln_hval v;
    KILN_TRY(kiln_host_eval(&h, e, &v));
    if (!is_number(v)) return HOST_FAIL(&h, e, "expected a truth value");
    *out = is_true(v);
    return KILN_OK;
}

/* Most conditions are and, or, not over questions about dtypes: these need no values to be made, nor a call each. */
kiln_status kiln_expr_holds(const kiln_henv *env, const kiln_expr *e, bool *out) {
    bool joined = e->kind == KILN_X_LOGIC && e->prim != KILN_P_NOT, stops_on = e->prim == KILN_P_OR;
    for (int k = 0; k < (joined ? e->nargs : 1); k++) {
        const kiln_expr *part = joined ? e->args[k] : e;
        bool negated = false;
        for (; part->kind == KILN_X_LOGIC && part->prim == KILN_P_NOT; part = part->args[0])
            negated = !negated;
        if (!dtype_answers(env, part, out) && !kiln_expr_quick_holds(env, part, out))
            KILN_TRY(part->kind == KILN_X_LOGIC ? kiln_expr_holds(env, part, out)
                                                : value_holds(env, part, out));
        *out = *out != negated;
        if (joined && *out == stops_on) break;
    }
    return KILN_OK;
}

kiln_status kiln_expr_eval(const kiln_henv *env, const kiln_expr *e, kiln_hval *out) {
    host h = {.env = env};
    return kiln_expr_quick(env, e, out) ? KILN_OK : kiln_host_eval(&h, e, out);
}

kiln_status kiln_expr_eval_every(const kiln_henv *env, const kiln_expr *e, kiln_hval *out) {
    host h = {.env = env, .every = true};
    return kiln_host_eval(&h, e, out);
}
