/* expr_grad.c - expression tree -> tree of its derivative by one name.
 *
 * The chain rule over the derivatives that prims.def has for each primitive.  What it builds it simplifies on the way:
 * zeros and ones go, literals are folded, and the factor of a choice goes into its sides where one is 0, so that what is
 * not chosen makes no NaN (`c ? x : 0`, times g, is `c ? x * g : 0`).  Nothing but names is ever put into two sides, or
 * texts would double with each level.  Numbers are taken to be real.
 * Knows no rows: names that stand for expressions are asked for.  Reads trees, and shares their parts. */
#include <math.h>
#include <string.h>

#include "expr/expr_grad.h"

typedef const kiln_wrt wrt;

/* -- building ---------------------------------------------------------------------------------------------------- */

static bool is_prim(const kiln_expr *e, kiln_prim p) { return e->kind == KILN_X_PRIM && e->prim == p; }

static bool is_literal(const kiln_expr *e, double *out) {
    if (is_prim(e, KILN_P_NEG) && is_literal(e->args[0], out)) return *out = -*out, true;
    if (e->kind != KILN_X_NUM) return false;
    *out = e->is_float ? e->f : (double)e->i;
    return true;
}

static bool is_number(const kiln_expr *e, double value) {
    double v;
    return is_literal(e, &v) && v == value;
}

static kiln_expr *node(wrt *w, kiln_ekind kind, kiln_prim prim, int nargs) {
    kiln_expr *e = kiln_arena_alloc(w->arena, sizeof *e);
    const kiln_expr **args = kiln_arena_alloc(w->arena, (size_t)(nargs + 1) * sizeof *args);
    if (!e || !args) return NULL;
    *e = (kiln_expr){.kind = kind, .prim = prim, .args = args, .nargs = nargs, .height = 1, .arg = -1};
    return e;
}

static kiln_status number(wrt *w, double value, const kiln_expr **out) {
    kiln_expr *e = node(w, KILN_X_NUM, 0, 0);
    if (!e) return KILN_NOMEM();
    e->is_float = value != floor(value) || fabs(value) > 0x1p53;
    e->i = e->is_float ? 0 : (int64_t)value;
    e->f = value;
    *out = e;
    return KILN_OK;
}

static kiln_status plain(wrt *w, kiln_ekind kind, kiln_prim p, const kiln_expr *const *args, int n,
                         const kiln_expr **out) {
    kiln_expr *e = node(w, kind, p, n);
    if (!e) return KILN_NOMEM();
    memcpy(e->args, args, (size_t)n * sizeof *args);
    *out = e;
    return KILN_OK;
}

static kiln_status build(wrt *w, kiln_prim p, const kiln_expr *a, const kiln_expr *b, const kiln_expr **out);

static kiln_status choose(wrt *w, const kiln_expr *c, const kiln_expr *x, const kiln_expr *y,
                          const kiln_expr **out) {
    double known, v, u;
    if (is_literal(c, &known)) return *out = known != 0 ? x : y, KILN_OK;
    if (is_literal(x, &v) && is_literal(y, &u) && v == u) return *out = x, KILN_OK;
    return plain(w, KILN_X_PRIM, KILN_P_SELECT, (const kiln_expr *[]){c, x, y}, 3, out);
}

/* p of two literals, where that is one. */
static bool fold(kiln_prim p, double a, double b, double *out) {
    switch (p) {
    case KILN_P_ADD: return *out = a + b, true;
    case KILN_P_SUB: return *out = a - b, true;
    case KILN_P_MUL: return *out = a * b, true;
    case KILN_P_EQ: return *out = a == b, true;
    case KILN_P_LT: return *out = a < b, true;
    case KILN_P_GT: return *out = a > b, true;
    case KILN_P_GE: return *out = a >= b, true;
    default: return false;
    }
}

static bool has_literal_side(const kiln_expr *e) {
    double v;
    return is_prim(e, KILN_P_SELECT) && (is_literal(e->args[1], &v) || is_literal(e->args[2], &v) ||
                                         has_literal_side(e->args[1]) || has_literal_side(e->args[2]));
}

static kiln_status negate(wrt *w, const kiln_expr *a, const kiln_expr **out) {
    double v;
    if (is_literal(a, &v)) return number(w, -v, out);
    if (is_prim(a, KILN_P_NEG)) return *out = a->args[0], KILN_OK;
    if (has_literal_side(a)) {
        const kiln_expr *x, *y;
        KILN_TRY(negate(w, a->args[1], &x));
        KILN_TRY(negate(w, a->args[2], &y));
        return choose(w, a->args[0], x, y, out);
    }
    return plain(w, KILN_X_PRIM, KILN_P_NEG, &a, 1, out);
}

static kiln_status add(wrt *w, const kiln_expr *a, const kiln_expr *b, const kiln_expr **out) {
    if (is_number(a, 0)) return *out = b, KILN_OK;
    if (is_number(b, 0)) return *out = a, KILN_OK;
    if (is_prim(b, KILN_P_NEG)) return build(w, KILN_P_SUB, a, b->args[0], out);
    if (is_prim(a, KILN_P_SELECT) && is_prim(b, KILN_P_SELECT) && a->args[0] == b->args[0]) {
        const kiln_expr *x, *y;
        KILN_TRY(add(w, a->args[1], b->args[1], &x));
        KILN_TRY(add(w, a->args[2], b->args[2], &y));
        return choose(w, a->args[0], x, y, out);
    }
    return plain(w, KILN_X_PRIM, KILN_P_ADD, (const kiln_expr *[]){a, b}, 2, out);
}

/* Whether a times the choice b becomes a choice of products. */
static bool goes_into(const kiln_expr *a, const kiln_expr *b) {
    if (!is_prim(b, KILN_P_SELECT)) return false;
    return is_number(b->args[1], 0) || is_number(b->args[2], 0) ||
           (a->kind == KILN_X_NAME && has_literal_side(b));
}

static kiln_status multiply(wrt *w, const kiln_expr *a, const kiln_expr *b, const kiln_expr **out) {
    if (is_number(a, 0) || is_number(b, 1)) return *out = a, KILN_OK;
    if (is_number(b, 0) || is_number(a, 1)) return *out = b, KILN_OK;
    if (is_number(a, -1)) return negate(w, b, out);
    if (is_number(b, -1)) return negate(w, a, out);
    if (goes_into(a, b)) {
        const kiln_expr *x, *y;
        KILN_TRY(build(w, KILN_P_MUL, a, b->args[1], &x));
        KILN_TRY(build(w, KILN_P_MUL, a, b->args[2], &y));
        return choose(w, b->args[0], x, y, out);
    }
    if (goes_into(b, a)) return multiply(w, b, a, out);
    for (int turn = 0; turn < 2; turn++) { /* signs go outside, and x * (1 / y) is x / y */
        const kiln_expr *x = turn ? b : a, *y = turn ? a : b;
        if (is_prim(y, KILN_P_DIV) && is_number(y->args[0], 1))
            return build(w, KILN_P_DIV, x, y->args[1], out);
        if (!is_prim(y, KILN_P_NEG)) continue;
        const kiln_expr *product;
        KILN_TRY(multiply(w, turn ? y->args[0] : x, turn ? x : y->args[0], &product));
        return negate(w, product, out);
    }
    return plain(w, KILN_X_PRIM, KILN_P_MUL, (const kiln_expr *[]){a, b}, 2, out);
}

static kiln_status build(wrt *w, kiln_prim p, const kiln_expr *a, const kiln_expr *b, const kiln_expr **out) {
    double v, u, known;
    if (is_literal(a, &v) && is_literal(b, &u) && fold(p, v, u, &known)) return number(w, known, out);
    if (p == KILN_P_ADD) return add(w, a, b, out);
    if (p == KILN_P_MUL) return multiply(w, a, b, out);
    if (p == KILN_P_SUB && is_number(b, 0)) return *out = a, KILN_OK;
    if (p == KILN_P_SUB && is_number(a, 0)) return negate(w, b, out);
    if (p == KILN_P_SUB && is_prim(b, KILN_P_NEG)) return add(w, a, b->args[0], out);
    if (p == KILN_P_DIV && is_prim(a, KILN_P_NEG)) {
        KILN_TRY(build(w, p, a->args[0], b, out));
        return negate(w, *out, out);
    }
    if ((p == KILN_P_DIV || p == KILN_P_POW) && is_number(b, 1)) return *out = a, KILN_OK;
    return plain(w, KILN_X_PRIM, p, (const kiln_expr *[]){a, b}, 2, out);
}

/* -- derivatives of primitives ------------------------------------------------------------------------------------- */

static kiln_status logic(wrt *w, const kiln_expr *e, const kiln_expr *const *args, const kiln_expr **out) {
    double v;
    for (int k = 0; k < 2 && e->nargs == 2; k++) {
        if (!is_literal(args[k], &v)) continue;
        bool decides = (e->prim == KILN_P_AND) == (v == 0);
        return *out = decides ? args[k] : args[1 - k], KILN_OK;
    }
    return plain(w, KILN_X_LOGIC, e->prim, args, e->nargs, out);
}

/* e with the operands `of` in the places of a, b and c. */
static kiln_status put(wrt *w, const kiln_expr *e, const kiln_expr *const *of, const kiln_expr **out) {
    const kiln_expr *args[3];
    if (e->kind == KILN_X_NAME && e->name[1] == 0 && e->name[0] >= 'a' && e->name[0] <= 'c')
        return *out = of[e->name[0] - 'a'], KILN_OK;
    if (e->kind != KILN_X_PRIM && e->kind != KILN_X_LOGIC) return *out = e, KILN_OK;
    for (int k = 0; k < e->nargs; k++) KILN_TRY(put(w, e->args[k], of, &args[k]));
    if (e->kind == KILN_X_LOGIC) return logic(w, e, args, out);
    if (e->prim == KILN_P_SELECT) return choose(w, args[0], args[1], args[2], out);
    if (e->prim == KILN_P_NEG) return negate(w, args[0], out);
    if (e->nargs == 2) return build(w, e->prim, args[0], args[1], out);
    return plain(w, KILN_X_PRIM, e->prim, args, e->nargs, out);
}

/* The derivative of a primitive by operand k, in a, b and c; NULL: none is known. */
static kiln_status partial(wrt *w, kiln_prim p, int k, const kiln_expr **out) {
    const char *text = kiln_prim_derivatives(p);
    kiln_lex lx;
    kiln_lex_init(&lx, w->arena, "prims.def", text, strlen(text), 1);
    KILN_TRY(kiln_lex_next(&lx));
    for (int at = 0;; at++) {
        bool unknown, more;
        *out = NULL;
        KILN_TRY(kiln_lex_accept(&lx, "?", &unknown));
        if (!unknown) KILN_TRY(kiln_expr_parse(&lx, out));
        if (at == k) return KILN_OK;
        KILN_TRY(kiln_lex_accept(&lx, ",", &more));
        if (!more) return KILN_BUG("'%s' lacks the derivative by operand %d", kiln_prim_name(p), k);
    }
}

static kiln_status derive(wrt *w, const kiln_expr *e, const kiln_expr **out);

static kiln_status derive_prim(wrt *w, const kiln_expr *e, const kiln_expr **out) {
    KILN_TRY(number(w, 0, out));
    for (int k = 0; k < e->nargs; k++) {
        const kiln_expr *inner, *outer, *term;
        KILN_TRY(partial(w, e->prim, k, &outer));
        if (outer && is_number(outer, 0)) continue;
        KILN_TRY(derive(w, e->args[k], &inner));
        if (is_number(inner, 0)) continue;
        if (!outer)
            return kiln_expr_fail(w->source, e, KILN_E_UNSUP,
                                  "no derivative of '%s' by its operand %d is known, which '%s' needs",
                                  kiln_prim_name(e->prim), k + 1, w->name);
        KILN_TRY(put(w, outer, e->args, &outer));
        KILN_TRY(build(w, KILN_P_MUL, outer, inner, &term));
        KILN_TRY(build(w, KILN_P_ADD, *out, term, out));
    }
    return KILN_OK;
}

/* -- the rest ------------------------------------------------------------------------------------------------------- */

/* What a function does to a derivative. */
typedef enum effect { KEEPS, CASTS, STOPS, UNKNOWN } effect;

static effect effect_of(const char *name) {
    static const char *const keeps[] = {"common", "re", "conj"}, *const stops[] = {"im", "size"};
    kiln_dtype t;
    for (size_t k = 0; k < sizeof keeps / sizeof *keeps; k++)
        if (strcmp(name, keeps[k]) == 0) return KEEPS;
    for (size_t k = 0; k < sizeof stops / sizeof *stops; k++)
        if (strcmp(name, stops[k]) == 0) return STOPS;
    if (strcmp(name, "compute") == 0) return CASTS;
    if (!kiln_dtype_named(name, &t) || kiln_dtype_is_complex(t)) return UNKNOWN;
    return !kiln_dtype_is_float(t) ? STOPS : kiln_dtype_compute(t) == t ? CASTS : KEEPS;
}

/* or_else(x, value): the value counts only where x is absent, and nobody asks for x's derivative there. */
static kiln_status derive_or_else(wrt *w, const kiln_expr *e, const kiln_expr **out) {
    KILN_TRY(derive(w, e->args[0], out));
    if (is_number(*out, 1)) return KILN_OK;
    KILN_TRY(derive(w, e->args[1], out));
    if (is_number(*out, 0)) return KILN_OK;
    return kiln_expr_fail(w->source, e, KILN_E_UNSUP,
                          "no derivative of or_else by '%s', which its other value depends on", w->name);
}

static kiln_status derive_call(wrt *w, const kiln_expr *e, const kiln_expr **out) {
    double v;
    effect does = effect_of(e->name);
    if (strcmp(e->name, "or_else") == 0 && e->nargs == 2) return derive_or_else(w, e, out);
    KILN_TRY(number(w, 0, out));
    if (does == STOPS) return KILN_OK;
    for (int k = 0; k < e->nargs; k++) {
        KILN_TRY(derive(w, e->args[k], out));
        if (does == UNKNOWN && !is_number(*out, 0))
            return kiln_expr_fail(w->source, e, KILN_E_UNSUP,
                                  "no derivative of '%s' is known, which '%s' needs", e->name, w->name);
    }
    if (does != CASTS || is_literal(*out, &v)) return KILN_OK;
    kiln_expr *cast = node(w, KILN_X_CALL, 0, 1);
    if (!cast) return KILN_NOMEM();
    cast->name = e->name;
    cast->args[0] = *out;
    *out = cast;
    return KILN_OK;
}

static kiln_status derive_name(wrt *w, const kiln_expr *e, const kiln_expr **out) {
    const kiln_expr *means = strcmp(e->name, w->name) == 0 ? NULL : w->let(w, e->name);
    return means ? derive(w, means, out) : number(w, strcmp(e->name, w->name) == 0, out);
}

static kiln_status derive(wrt *w, const kiln_expr *e, const kiln_expr **out) {
    if (!kiln_budget_take(w->budget, w->source, e)) return KILN_E_LIMIT;
    switch (e->kind) {
    case KILN_X_PRIM: return derive_prim(w, e, out);
    case KILN_X_CALL: return derive_call(w, e, out);
    case KILN_X_NAME: return derive_name(w, e, out);
    case KILN_X_NUM:
    case KILN_X_STR:
    case KILN_X_LOGIC: return number(w, 0, out);
    case KILN_X_FIELD:
    case KILN_X_ACCESS: break;
    }
    bool item = e->kind == KILN_X_ACCESS && strcmp(e->name, w->name) != 0; /* of a list of numbers */
    return item ? number(w, 0, out)
                : kiln_expr_fail(w->source, e, KILN_E_UNSUP, "no derivative of '%s' at a place is known",
                                 e->name);
}

kiln_status kiln_expr_derive(wrt *w, const kiln_expr *e, const kiln_expr **out) { return derive(w, e, out); }

kiln_status kiln_expr_build(wrt *w, kiln_prim p, const kiln_expr *a, const kiln_expr *b,
                            const kiln_expr **out) {
    return build(w, p, a, b, out);
}

bool kiln_expr_is_zero(const kiln_expr *e) { return is_number(e, 0); }
