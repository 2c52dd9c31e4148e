/* row_check.c - types a row for every dtype it takes, before any call exists.
 *
 * A body that is right for f32 and wrong for bool is found when the row is loaded, not when somebody
 * calls it.  Branches whose `when` cannot hold for a dtype are left out; a dtype without any branch is
 * an error.  Works in its own arena, which is emptied between expressions so that it stays small.  The number of
 * combinations is a product, so the steps of all of them together are limited. */
#include <string.h>

#include "op/row.h"

typedef struct checker {
    const kiln_row *row;
    kiln_dtype dtypes[KILN_MAX_ARGS]; /* of arguments outside promotion */
    kiln_dtype common;
    kiln_arena *arena;
    kiln_budget *budget;
    int ntyped;
    const kiln_dtypes *arg_takes; /* of the row, or fewer */
    bool reach;                   /* bodies are not typed: only `taken` is asked for */
    uint32_t taken;               /* bit b: branch b was typed for some dtype */
} checker;

/* -- the host's view before a call: dtypes are known, values are not ------------------------------------- */

typedef struct check_env {
    kiln_henv env;
    const checker *c;
} check_env;

static void get(const kiln_henv *env, int arg, kiln_hval *out) {
    const check_env *ce = (const check_env *)env;
    const kiln_row *row = ce->c->row;
    *out = (kiln_hval){.dtype = KILN_DTYPE_COUNT, .present_unknown = kiln_row_optional(row, arg)};
    if (kiln_row_is_tensor(row, arg) && !out->present_unknown) out->kind = KILN_H_TENSOR;
    if (kiln_row_is_tensor(row, arg) && row->arg_takes[arg]) out->dtype = ce->c->dtypes[arg];
}

static bool item(const kiln_henv *env, int arg, int64_t k, kiln_hval *out) {
    const kiln_row *row = ((const check_env *)env)->c->row;
    bool optional;
    const kiln_type *list = kiln_type_strip(row->schema->args[arg].type, &optional);
    if (k < 0 || list->kind != KILN_T_LIST) return false;
    bool number = kiln_type_strip(list->elem, &optional)->kind != KILN_T_TENSOR;
    *out = (kiln_hval){.dtype = number ? KILN_I64 : KILN_DTYPE_COUNT, .present_unknown = optional};
    return true;
}

typedef enum holds { NEVER, MAYBE, ALWAYS } holds;

/* Evaluates every part of e: a misspelt name is found even where a call would not get to it. */
static kiln_status eval_before_call(const checker *c, const kiln_expr *e, kiln_hval *out) {
    check_env ce = {{.get = get,
                     .item = item,
                     .common = c->common,
                     .counted = kiln_rules(c->row)->counts,
                     .count = -1,
                     .source = c->row->source,
                     .budget = c->budget},
                    c};
    return kiln_expr_eval_every(&ce.env, e, out);
}

static kiln_status may_hold(const checker *c, const kiln_expr *cond, holds *out) {
    kiln_hval v;
    *out = ALWAYS;
    if (!cond) return KILN_OK;
    KILN_TRY(eval_before_call(c, cond, &v));
    if (v.kind == KILN_H_UNKNOWN)
        *out = MAYBE;
    else if (v.kind != KILN_H_BOOL && v.kind != KILN_H_INT && v.kind != KILN_H_FLOAT)
        return kiln_expr_fail(c->row->source, cond, KILN_E_TYPE, "expected a truth value");
    else if (v.kind == KILN_H_FLOAT ? v.f == 0 : v.i == 0)
        *out = NEVER;
    return KILN_OK;
}

/* -- bodies ------------------------------------------------------------------------------------------- */

kiln_dtype kiln_row_arg_dtype(const kiln_row_env *re, int arg) {
    return re->branch->typing.args >> arg & 1 ? re->common : re->dtypes[arg];
}

kiln_dtype kiln_row_ret_dtype(const kiln_row_env *re, int k) {
    int16_t ret = re->branch->typing.ret[k];
    if (ret == KILN_RET_COMMON) return re->common;
    if (ret == KILN_RET_REAL) return kiln_dtype_real(re->common);
    return ret >= 0 ? (kiln_dtype)ret : kiln_row_arg_dtype(re, -2 - ret);
}

/* A result may widen, never lose its kind silently. */
static kiln_status check_kind(const char *source, const kiln_expr *e, kiln_dtype from, kiln_dtype to) {
    if (kiln_dtype_kind(from) == kiln_dtype_kind(to)) return KILN_OK;
    if (from != KILN_BOOL && kiln_dtype_kind(from) < kiln_dtype_kind(to)) return KILN_OK;
    return kiln_expr_fail(source, e, KILN_E_TYPE, "the expression is %s but the result is %s%s",
                          kiln_dtype_name(from), kiln_dtype_name(to),
                          from == KILN_BOOL ? "; write '-> bool' before '=', or 'condition ? 1 : 0'" : "");
}

static kiln_status type_to(const kiln_row_env *re, const kiln_expr *e, kiln_dtype to,
                           const kiln_texpr **out) {
    const kiln_texpr *own;
    to = kiln_dtype_compute(to);
    KILN_TRY(kiln_expr_type(&re->env, e, KILN_DTYPE_COUNT, &own));
    if (!own->weak) KILN_TRY(check_kind(re->env.source, e, own->dtype, to));
    return kiln_expr_cast(&re->env, own, to, out);
}

kiln_status kiln_row_type_body(const kiln_row_env *re, int k, kiln_dtype ret, const kiln_texpr **out) {
    return type_to(re, re->branch->body[k], ret, out);
}

/* The numbers that the bodies of a branch read, each once in each type: a kernel is given so many. */
typedef struct numbers {
    struct {
        int id, index;
        kiln_dtype dtype;
        bool exact, minus;
    } at[KILN_MAX_SCALARS];
    int n, nparts; /* of a complex number there are two */
} numbers;

static kiln_status note_number(const char *source, const kiln_texpr *e, numbers *ns) {
    for (int k = 0; k < ns->n; k++)
        if (ns->at[k].id == e->id && ns->at[k].index == e->index && ns->at[k].dtype == e->dtype &&
            ns->at[k].exact == e->exact && ns->at[k].minus == e->minus)
            return KILN_OK;
    ns->nparts += kiln_dtype_is_complex(e->dtype) ? 2 : 1;
    if (ns->nparts > KILN_MAX_SCALARS)
        return kiln_expr_fail(
            source, e->from, KILN_E_LIMIT,
            "the bodies read more than %d numbers; a complex one counts twice, and one that is "
            "used in two types too",
            KILN_MAX_SCALARS);
    ns->at[ns->n].id = e->id;
    ns->at[ns->n].index = e->index;
    ns->at[ns->n].dtype = e->dtype;
    ns->at[ns->n].minus = e->minus;
    ns->at[ns->n++].exact = e->exact;
    return KILN_OK;
}

/* What an expression may not have in it, and the numbers that were met so far (NULL: they do not count). */
typedef struct inspection {
    kiln_refused refused;
    numbers *numbers;
} inspection;

static kiln_status inspect(const char *source, const kiln_texpr *e, const inspection *in) {
    if (!e) return KILN_OK;
    bool kept = e->kind == KILN_TE_ELEM && (in->refused.kept >> e->id & 1);
    if ((in->refused.parts >> e->kind & 1) && !kept)
        return kiln_expr_fail(source, e->from, KILN_E_TYPE, "%s", in->refused.why);
    if (in->numbers && e->kind == KILN_TE_SCALAR) KILN_TRY(note_number(source, e, in->numbers));
    for (int k = 0; k < e->nargs; k++) KILN_TRY(inspect(source, e->args[k], in));
    return KILN_OK;
}

/* e must be typed to `to` and pass inspection.  Nobody needs what it was typed to. */
static kiln_status check_expr(const kiln_row_env *re, const kiln_expr *e, kiln_dtype to, inspection in) {
    enum { KEPT = 1 << 20 }; /* bytes of the arena; a larger one is given back before the next expression */
    const kiln_texpr *typed;
    KILN_TRY(type_to(re, e, to, &typed));
    KILN_TRY(inspect(re->env.source, typed, &in));
    if (re->env.arena->nbytes > KEPT) kiln_arena_free(re->env.arena);
    return KILN_OK;
}

kiln_status kiln_row_check_expr(const kiln_row_env *re, const kiln_expr *e, kiln_dtype to,
                                kiln_refused refused) {
    return check_expr(re, e, to, (inspection){refused, NULL});
}

/* Expressions that are computed once for a call must have a valid type, although their values are not known before the call. */
static kiln_status check_once(void *user, const kiln_expr *e, kiln_expr_use why) {
    kiln_hval ignored;
    return e && why != KILN_USE_BODY ? eval_before_call(user, e, &ignored) : KILN_OK;
}

static kiln_status check_bodies(const checker *c, const kiln_branch *b, uint64_t absent) {
    kiln_row_env re;
    kiln_row_env_init(&re, c->row, b, c->common, c->dtypes, c->arena);
    re.absent = absent;
    re.env.budget = c->budget;
    numbers ns = {.n = 0};
    const char *one_place = kiln_rules_of[b->family]->one_place;
    inspection in = {{one_place ? KILN_OTHER_PLACES : 0, one_place, 0}, &ns};
    int64_t before = c->budget->taken;
    for (int k = 0; k < b->nbody; k++) KILN_TRY(check_expr(&re, b->body[k], kiln_row_ret_dtype(&re, k), in));
    for (int k = 0; k < c->row->nchecks; k++)
        if (c->row->checks[k].each) KILN_TRY(check_expr(&re, c->row->checks[k].cond, KILN_BOOL, in));
    if (c->budget->taken - before > KILN_EXPR_MAX_NODES) /* they become one kernel */
        return kiln_expr_fail(c->row->source, b->body[0], KILN_E_LIMIT,
                              "the bodies have together more than %d nodes, with names and rules expanded",
                              KILN_EXPR_MAX_NODES);
    return kiln_rules_of[b->family]->types ? kiln_rules_of[b->family]->types(&re) : KILN_OK;
}

/* With the optionals there, and without those the branch does not ask for: or_else has two sides. */
static kiln_status check_branch(checker *c, const kiln_branch *b) {
    uint64_t optionals = 0;
    for (int a = 0; a < c->row->schema->nargs; a++)
        if (kiln_row_optional(c->row, a)) optionals |= 1ull << a;
    KILN_TRY(check_bodies(c, b, 0));
    if (optionals & ~b->knows) KILN_TRY(check_bodies(c, b, optionals & ~b->knows));
    KILN_TRY(kiln_visit_all(&c->row->hosts, KILN_USE_ONCE, check_once, c));
    KILN_TRY(kiln_visit_clauses(c->row, check_once, c));
    c->ntyped++;
    return KILN_OK;
}

static kiln_dtype common_of(const kiln_typing *ty, kiln_dtype t) {
    bool integral = !kiln_dtype_is_float(t) && !kiln_dtype_is_complex(t);
    if (ty->promo == KILN_PROMO_FLOAT && integral) return KILN_F32;
    if (ty->promo == KILN_PROMO_DOUBLE) return kiln_dtype_is_complex(t) ? KILN_C128 : KILN_F64;
    if (ty->promo == KILN_PROMO_SUM && integral) return KILN_I64;
    return t;
}

/* *refused: a check lets no call of these dtypes pass. */
static kiln_status check_conditions(checker *c, bool *refused) {
    *refused = false;
    for (int k = 0; k < c->row->nchecks; k++) {
        holds now;
        if (c->row->checks[k].each) continue;
        KILN_TRY(may_hold(c, c->row->checks[k].cond, &now));
        *refused = *refused || (now == NEVER && !c->row->checks[k].torch);
    }
    return KILN_OK;
}

static kiln_status check_dtype(checker *c, kiln_dtype t) {
    bool any = false, refused = false;
    holds now = NEVER;
    c->common = common_of(&c->row->typing, t);
    KILN_TRY(check_conditions(c, &refused));
    if (refused) return KILN_OK;
    for (int b = 0; b < c->row->nbranches && now != ALWAYS;
         b++) { /* what always holds hides the ones after it */
        c->common = common_of(&c->row->branches[b].typing, t);
        KILN_TRY(may_hold(c, c->row->branches[b].when, &now));
        if (now == NEVER) continue;
        any = true;
        c->taken |= 1u << b;
        if (!c->reach) KILN_TRY(check_branch(c, &c->row->branches[b]));
    }
    if (c->reach) return KILN_OK;
    if (!any)
        return KILN_FAIL_LINE(KILN_E_TYPE, c->row->source, c->row->line, c->row->col,
                              "no branch covers %s; say what the row takes", kiln_dtype_name(t));
    return KILN_OK;
}

/* A branch no dtype gets to was never typed, and is not what its author meant. */
static kiln_status check_taken(const checker *c) {
    for (int b = 0; b < c->row->nbranches; b++)
        if (!(c->taken >> b & 1) && c->row->branches[b].when)
            return kiln_expr_fail(c->row->source, c->row->branches[b].when, KILN_E_TYPE,
                                  "this branch is never taken, whatever the dtypes");
    return KILN_OK;
}

/* All dtypes of the arguments outside promotion, one after the other from `arg`. */
static kiln_status check_dtypes(checker *c, int arg, kiln_dtype t) {
    while (arg < c->row->schema->nargs && !c->arg_takes[arg]) arg++;
    if (arg == c->row->schema->nargs) return check_dtype(c, t);
    for (int u = 0; u < KILN_DTYPE_COUNT; u++) {
        if (!(c->arg_takes[arg] & KILN_DT(u))) continue;
        c->dtypes[arg] = (kiln_dtype)u;
        KILN_TRY(check_dtypes(c, arg + 1, t));
    }
    return KILN_OK;
}

/* -- rows without branches ------------------------------------------------------------------------------------ */

kiln_status kiln_row_check_cond(const kiln_row *row, kiln_budget *budget, const kiln_expr *cond) {
    const checker c = {.row = row, .common = KILN_F32, .budget = budget};
    holds now;
    return may_hold(&c, cond, &now);
}

kiln_status kiln_row_check_checks(const kiln_row *row, kiln_budget *budget) {
    checker c = {.row = row, .common = KILN_F32, .budget = budget};
    bool refused;
    return check_conditions(&c, &refused);
}

/* -- the row -------------------------------------------------------------------------------------------------- */

kiln_budget kiln_budget_for(size_t nbytes) {
    return (kiln_budget){KILN_BUDGET_FIRST + (int64_t)nbytes * KILN_BUDGET_PER_BYTE, 0};
}

/* Dtypes that a row without `takes` has and its body often does not fit, as the words of `takes` name them. */
enum {
    FLOATING = KILN_DT(KILN_F16) | KILN_DT(KILN_BF16) | KILN_DT(KILN_F32) | KILN_DT(KILN_F64),
    INTEGRAL = KILN_DT(KILN_U8) | KILN_DT(KILN_I8) | KILN_DT(KILN_I16) | KILN_DT(KILN_I32) |
               KILN_DT(KILN_I64),
};

static bool is_right_for(const checker *c, kiln_dtypes set) {
    checker again = {.row = c->row, .arena = c->arena, .budget = c->budget, .arg_takes = c->arg_takes};
    kiln_status st = KILN_OK;
    int quiet = kiln_quiet(1);
    for (int t = 0; t < KILN_DTYPE_COUNT && st == KILN_OK; t++)
        if (c->row->takes & set & KILN_DT(t)) st = check_dtypes(&again, 0, (kiln_dtype)t);
    kiln_quiet(quiet);
    return st == KILN_OK && again.ntyped > 0;
}

/* What the author of a row that is wrong for some dtypes may write; "": nothing is known to help. */
static const char *way_out(const checker *c) {
    if (!is_right_for(c, FLOATING)) return "";
    if (is_right_for(c, INTEGRAL)) return "; write ': takes real' behind the schema, or ': takes float'";
    return "; write ': takes float' behind the schema, or ': to_float' to convert integers";
}

/* Checks the row for the dtype t.  A message says what the author may do about it. */
static kiln_status check_type(checker *c, kiln_dtype t) {
    bool wide = (c->row->takes & FLOATING) && (c->row->takes & ~FLOATING) && !(FLOATING & KILN_DT(t));
    kiln_status st = check_dtypes(c, 0, t);
    if (st == KILN_E_PARSE) return kiln_note(st, "%s", c->row->name); /* wrong for every dtype */
    if (st == KILN_E_TYPE && wide && !kiln_is_quiet()) {
        const char *text = way_out(c);
        st = kiln_note_after(check_dtypes(c, 0, t), "%s", text); /* once more, for its message */
    }
    return kiln_note(st, "%s, typed for %s", c->row->name, kiln_dtype_name(t));
}

kiln_status kiln_row_check(const kiln_registry *r, const kiln_row *row, kiln_budget *budget, int *ntyped) {
    const kiln_family_rules *rules = kiln_rules(row);
    return rules->check ? rules->check(r, row, budget, ntyped) : kiln_row_check_branches(row, budget, ntyped);
}

kiln_status kiln_row_check_branches(const kiln_row *row, kiln_budget *budget, int *ntyped) {
    kiln_arena arena;
    kiln_arena_init(&arena);
    checker c = {.row = row, .arena = &arena, .budget = budget, .arg_takes = row->arg_takes};
    kiln_status st = KILN_OK;
    for (int t = 0; t < KILN_DTYPE_COUNT && st == KILN_OK; t++)
        if (row->takes & KILN_DT(t)) st = check_type(&c, (kiln_dtype)t);
    if (st == KILN_OK) st = kiln_note(check_taken(&c), "%s", row->name);
    kiln_arena_free(&arena);
    *ntyped = c.ntyped;
    return st;
}

kiln_status kiln_row_reach(const kiln_row *row, kiln_dtypes takes, const kiln_dtypes *arg_takes,
                           kiln_budget *budget, uint32_t *out) {
    checker c = {.row = row, .budget = budget, .arg_takes = arg_takes, .reach = true};
    for (int t = 0; t < KILN_DTYPE_COUNT; t++)
        if (takes & KILN_DT(t)) KILN_TRY(check_dtypes(&c, 0, (kiln_dtype)t));
    *out = c.taken;
    return KILN_OK;
}
