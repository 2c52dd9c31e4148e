/* expr_quick.c - an expression over numbers, sizes and dtypes -> its value, in few instructions.
 *
 * Most conditions of rows compare ranks, sizes and numbers.  What is known of arguments is looked up by kiln_henv.look, no value of
 * another kind is made, and nothing fails: whatever is anything else, or would be an error, is left to expr_host.c, which
 * has the whole language and its messages.  tests/unit/test_infer.c compares the two. */
#include "expr/expr.h"

enum { MOST_NODES = 64 }; /* names that use names twice could grow without end */

/* A number, as kiln_hval has it. */
typedef struct number {
    kiln_hkind kind; /* BOOL, INT, FLOAT */
    int64_t i;
    double f;
} number;

typedef struct quick {
    const kiln_henv *env;
    int nodes;
} quick;

static bool evaluate(quick *q, const kiln_expr *e, number *out);

static const kiln_expr *meant(const kiln_expr *e) {
    for (int n = 0; e->kind == KILN_X_NAME && e->means && n < MOST_NODES; n++) e = e->means;
    return e;
}

static bool set(number *out, kiln_hkind kind, int64_t i) {
    out->kind = kind;
    out->i = i;
    out->f = (double)i;
    return true;
}
static bool whole(number *out, int64_t i) { return set(out, KILN_H_INT, i); }
static bool truth(number *out, bool holds) { return set(out, KILN_H_BOOL, holds); }

static bool is_true(const number *v) { return v->kind == KILN_H_FLOAT ? v->f != 0 : v->i != 0; }

/* What argument e is.  False: e is no argument. */
static bool look(const quick *q, const kiln_expr *e, kiln_hseen *out) {
    e = meant(e);
    if (e->kind != KILN_X_NAME || e->means || e->arg < 0) return false;
    q->env->look(q->env, e->arg, out);
    return true;
}

static bool is_tensor(const quick *q, const kiln_expr *e, kiln_hseen *out) {
    return look(q, e, out) && out->kind == KILN_H_TENSOR;
}

static bool name(quick *q, const kiln_expr *e, number *out) {
    kiln_hseen seen;
    if (e->means) return evaluate(q, e->means, out);
    if (e->arg < 0) {
        if (e->word == KILN_WORD_true || e->word == KILN_WORD_false)
            return truth(out, e->word == KILN_WORD_true);
        return e->word == KILN_WORD_n && q->env->counted && q->env->count >= 0 && whole(out, q->env->count);
    }
    q->env->look(q->env, e->arg, &seen);
    if (seen.kind == KILN_H_BOOL || seen.kind == KILN_H_INT) return set(out, seen.kind, seen.i);
    *out = (number){.kind = KILN_H_FLOAT, .f = seen.f};
    return seen.kind == KILN_H_FLOAT;
}

static bool logic(quick *q, const kiln_expr *e, number *out) {
    bool stops_on = e->prim == KILN_P_OR;
    for (int k = 0; k < e->nargs; k++) {
        number v;
        if (!evaluate(q, e->args[k], &v)) return false;
        if (e->prim == KILN_P_NOT) return truth(out, !is_true(&v));
        if (is_true(&v) == stops_on) return truth(out, stops_on);
    }
    return truth(out, !stops_on);
}

/* The dtype of a tensor, or that e names; KILN_DTYPE_COUNT: it is neither, or not known. */
static kiln_dtype dtype_of(const quick *q, const kiln_expr *e) {
    kiln_hseen seen;
    e = meant(e);
    if (is_tensor(q, e, &seen)) return seen.dtype;
    if (e->kind != KILN_X_NAME || e->arg >= 0) return KILN_DTYPE_COUNT;
    if (e->word == KILN_WORD_DTYPE_NAME) return (kiln_dtype)e->i;
    return e->word == KILN_WORD_common ? q->env->common : KILN_DTYPE_COUNT;
}

/* The dtype that `dtype(x)`, `common` or the name of a dtype means, as in a comparison; KILN_DTYPE_COUNT: e is none of these. */
static kiln_dtype asked_dtype(const quick *q, const kiln_expr *e) {
    kiln_hseen seen;
    e = meant(e);
    if (e->kind == KILN_X_CALL && e->word == KILN_WORD_dtype && e->nargs == 1)
        return is_tensor(q, e->args[0], &seen) ? seen.dtype : KILN_DTYPE_COUNT;
    return e->kind == KILN_X_NAME && e->arg < 0 ? dtype_of(q, e) : KILN_DTYPE_COUNT;
}

static bool compare(quick *q, const kiln_expr *e, number *out) {
    number a, b;
    if (e->prim == KILN_P_EQ || e->prim == KILN_P_NE) {
        kiln_dtype s = asked_dtype(q, e->args[0]), t = asked_dtype(q, e->args[1]);
        if (s < KILN_DTYPE_COUNT && t < KILN_DTYPE_COUNT)
            return truth(out, (s == t) == (e->prim == KILN_P_EQ));
    }
    if (!evaluate(q, e->args[0], &a) || !evaluate(q, e->args[1], &b)) return false;
    bool exact = a.kind != KILN_H_FLOAT &&
                 b.kind != KILN_H_FLOAT; /* else comparisons with NaN are false, but != */
    switch (e->prim) {
    case KILN_P_EQ: return truth(out, exact ? a.i == b.i : a.f == b.f);
    case KILN_P_NE: return truth(out, exact ? a.i != b.i : a.f != b.f);
    case KILN_P_LT: return truth(out, exact ? a.i < b.i : a.f < b.f);
    case KILN_P_LE: return truth(out, exact ? a.i <= b.i : a.f <= b.f);
    case KILN_P_GT: return truth(out, exact ? a.i > b.i : a.f > b.f);
    case KILN_P_GE: return truth(out, exact ? a.i >= b.i : a.f >= b.f);
    default: return false;
    }
}

static bool prim(quick *q, const kiln_expr *e, number *out) {
    number a, b;
    if (e->prim == KILN_P_SELECT)
        return evaluate(q, e->args[0], &a) && evaluate(q, e->args[is_true(&a) ? 1 : 2], out);
    if (kiln_prim_rule(e->prim) == KILN_RULE_CMP && e->nargs == 2) return compare(q, e, out);
    if (e->prim != KILN_P_ADD && e->prim != KILN_P_SUB && e->prim != KILN_P_NEG) return false;
    if (!evaluate(q, e->args[0], &a) || a.kind == KILN_H_FLOAT) return false;
    if (e->prim == KILN_P_NEG) return whole(out, (int64_t)(0 - (uint64_t)a.i));
    if (!evaluate(q, e->args[1], &b) || b.kind == KILN_H_FLOAT) return false;
    uint64_t x = (uint64_t)a.i, y = (uint64_t)b.i; /* wraps as in expr_host.c */
    return whole(out, (int64_t)(e->prim == KILN_P_ADD ? x + y : x - y));
}

/* A dimension of a tensor by a constant number, from the end if that is negative. */
static bool size(const quick *q, const kiln_expr *e, number *out) {
    kiln_hseen t, k = {.kind = KILN_H_INT};
    const kiln_expr *by = meant(e->args[1]);
    if (!is_tensor(q, e->args[0], &t)) return false;
    bool negative = by->kind == KILN_X_PRIM && by->prim == KILN_P_NEG;
    if (negative) by = by->args[0];
    if (by->kind == KILN_X_NUM && !by->is_float)
        k.i = negative ? -by->i : by->i;
    else if (negative || !look(q, by, &k) || k.kind != KILN_H_INT)
        return false;
    int64_t dim = k.i < 0 ? k.i + t.rank : k.i;
    return dim >= 0 && dim < t.rank && whole(out, t.sizes[dim]);
}

static bool alike(const quick *q, const kiln_expr *e, number *out) {
    kiln_hseen a, b;
    if (!is_tensor(q, e->args[0], &a) || !is_tensor(q, e->args[1], &b)) return false;
    bool same = a.rank == b.rank;
    for (int d = 0; d < a.rank && same; d++) same = a.sizes[d] == b.sizes[d];
    return truth(out, same);
}

static bool function(const quick *q, const kiln_expr *e, number *out) {
    kiln_hseen seen;
    bool two = e->word == KILN_WORD_size || e->word == KILN_WORD_alike;
    if (e->nargs != (two ? 2 : 1)) return false;
    switch (e->word) {
    case KILN_WORD_present: return look(q, e->args[0], &seen) && truth(out, seen.kind != KILN_H_NONE);
    case KILN_WORD_absent: return look(q, e->args[0], &seen) && truth(out, seen.kind == KILN_H_NONE);
    case KILN_WORD_rank: return is_tensor(q, e->args[0], &seen) && whole(out, seen.rank);
    case KILN_WORD_size: return size(q, e, out);
    case KILN_WORD_alike: return alike(q, e, out);
    default: break;
    }
    kiln_dtype t = e->asks ? dtype_of(q, e->args[0]) : KILN_DTYPE_COUNT;
    return t < KILN_DTYPE_COUNT && truth(out, e->asks >> t & 1);
}

static bool evaluate(quick *q, const kiln_expr *e, number *out) {
    if (++q->nodes > MOST_NODES) return false;
    switch (e->kind) {
    case KILN_X_NUM:
        if (!e->is_float) return whole(out, e->i);
        *out = (number){.kind = KILN_H_FLOAT, .f = e->f};
        return true;
    case KILN_X_NAME: return name(q, e, out);
    case KILN_X_PRIM: return prim(q, e, out);
    case KILN_X_LOGIC: return logic(q, e, out);
    case KILN_X_CALL: return function(q, e, out);
    case KILN_X_STR:
    case KILN_X_FIELD:
    case KILN_X_ACCESS: break;
    }
    return false;
}

bool kiln_expr_quick(const kiln_henv *env, const kiln_expr *e, kiln_hval *out) {
    static const kiln_dtype dtypes[] = {
        [KILN_H_BOOL] = KILN_BOOL, [KILN_H_INT] = KILN_I64, [KILN_H_FLOAT] = KILN_F64};
    quick q = {env, 0};
    number v;
    if (!env->look || env->budget || !evaluate(&q, e, &v)) return false;
    *out = (kiln_hval){.kind = v.kind, .i = v.i, .f = v.f, .dtype = dtypes[v.kind]};
    return true;
}

bool kiln_expr_quick_holds(const kiln_henv *env, const kiln_expr *e, bool *out) {
    quick q = {env, 0};
    number v;
    if (!env->look || env->budget || !evaluate(&q, e, &v)) return false;
    *out = is_true(&v);
    return true;
}
