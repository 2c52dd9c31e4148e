/* row_check.c - types a row for every dtype it takes, before any call exists.
 *
 * A body that is right for f32 and wrong for bool is found when the row is loaded, not when somebody
 * calls it.  Branches whose `when` cannot hold for a dtype are left out; a dtype without any branch is
 * an error.  Works in its own arena, which is emptied between expressions so that it stays small.  The number of
 * combinations is a product, so the steps of all of them together are limited. */
#include <stdio.h>
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
    bool folds = c->row->family == KILN_FAMILY_FOLD || c->row->family == KILN_FAMILY_SCAN ||
                 c->row->family == KILN_FAMILY_EXTERN;
    check_env ce = {{.get = get,
                     .item = item,
                     .common = c->common,
                     .counted = folds,
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

static kiln_dtype ret_dtype(const checker *c, const kiln_branch *b, int k) {
    int16_t ret = b->typing.ret[k];
    if (ret == KILN_RET_COMMON) return c->common;
    if (ret == KILN_RET_REAL) return kiln_dtype_real(c->common);
    if (ret >= 0) return (kiln_dtype)ret;
    return b->typing.args >> (-2 - ret) & 1 ? c->common : c->dtypes[-2 - ret];
}

/* A result may widen, never lose its kind silently. */
static kiln_status check_kind(const char *source, const kiln_expr *e, kiln_dtype from, kiln_dtype to) {
    if (kiln_dtype_kind(from) == kiln_dtype_kind(to)) return KILN_OK;
    if (from != KILN_BOOL && kiln_dtype_kind(from) < kiln_dtype_kind(to)) return KILN_OK;
    return kiln_expr_fail(source, e, KILN_E_TYPE, "the expression is %s but the result is %s",
                          kiln_dtype_name(from), kiln_dtype_name(to));
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

/* What an expression may not have in it, why, and the numbers that were met so far (NULL: they do not count). */
typedef struct inspection {
    unsigned refused; /* bit k: parts of the kind k */
    const char *why;
    numbers *numbers;
    uint64_t kept; /* arguments whose elements are not refused */
} inspection;

static kiln_status inspect(const char *source, const kiln_texpr *e, const inspection *in) {
    if (!e) return KILN_OK;
    bool kept = e->kind == KILN_TE_ELEM && (in->kept >> e->id & 1);
    if ((in->refused >> e->kind & 1) && !kept)
        return kiln_expr_fail(source, e->from, KILN_E_TYPE, "%s", in->why);
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

#define TE(KIND) (1u << KILN_TE_##KIND)
enum {
    ELEMENTS = TE(ELEM) | TE(ACCESS),
    STATES = TE(STATE) | TE(RHS) | TE(COUNT),
    PLACES = TE(POS) | TE(EXTENT) | TE(BLOCK),
    OTHER_PLACES = TE(ACCESS) | STATES | PLACES,
};
#undef TE

#define CHECK_FAIL(c, ...)                                                                       \
    kiln_expr_fail((c)->row->source, &(kiln_expr){.line = (c)->row->line, .col = (c)->row->col}, \
                   KILN_E_PARSE, __VA_ARGS__)

static const kiln_expr *finish_or_state(const kiln_reduce *r, int k) {
    return k < r->finish.n ? r->finish.at[k].expr : NULL;
}

static const kiln_named *state(const kiln_row_env *re, const char *name) {
    return kiln_named_of(&re->branch->reduce->states, name);
}

static kiln_status check_states(kiln_row_env *re, const kiln_nameds *list, const char *clause,
                                unsigned refused) {
    const kiln_nameds *states = &re->branch->reduce->states;
    for (int k = 0; k < list->n; k++) {
        const kiln_named *v = &list->at[k];
        const kiln_named *s = state(re, v->name);
        if (!s)
            return KILN_FAIL_LINE(KILN_E_PARSE, re->env.source, v->line, v->col, "'%s' in %s is not a state",
                                  v->name, clause);
        char why[64];
        snprintf(why, sizeof why, "a %s cannot see this", clause);
        KILN_TRY(
            check_expr(re, v->expr, kiln_state_dtype(s, re->common), (inspection){refused, why, NULL, 0}));
    }
    if (list->n && list->n != states->n)
        return KILN_FAIL_LINE(KILN_E_PARSE, re->env.source, list->at[0].line, list->at[0].col,
                              "%s gives %d of %d states", clause, list->n, states->n);
    return KILN_OK;
}

/* A block gives every state, and sees the names it has defined so far; `sum` is allowed there. */
static kiln_status check_block(kiln_row_env *re) {
    const kiln_nameds *block = &re->branch->reduce->block;
    kiln_nameds sofar = {.n = 0};
    int given = 0;
    re->env.in_block = true;
    re->scope = &sofar;
    for (int k = 0; k < block->n; k++) {
        const kiln_named *s = state(re, block->at[k].name);
        given += s != NULL;
        KILN_TRY(check_expr(re, block->at[k].expr, s ? kiln_state_dtype(s, re->common) : re->env.compute,
                            (inspection){0}));
        sofar = (kiln_nameds){block->at, k + 1};
    }
    if (block->n && given != re->branch->reduce->states.n)
        return KILN_FAIL_LINE(KILN_E_PARSE, re->env.source, block->at[0].line, block->at[0].col,
                              "block gives %d of %d states", given, re->branch->reduce->states.n);
    re->scope = NULL;
    re->env.in_block = false;
    return KILN_OK;
}

/* Rows with a block and a result for each element take all elements as one block, so there is nothing to merge. */
static bool is_one_block(const kiln_reduce *r) {
    bool each = false;
    for (int k = 0; k < r->finish.n; k++) each |= r->finish.at[k].each;
    return each && r->block.n;
}

static kiln_dtype written_dtype(const checker *c, const kiln_branch *b, int arg) {
    return b->typing.args >> arg & 1 ? c->common : c->dtypes[arg];
}

/* state, step or block, merge: each in its own scope. */
static kiln_status check_folding(const checker *c, kiln_row_env *re, const kiln_reduce *r) {
    KILN_TRY(check_states(re, &r->states, "state", ELEMENTS | STATES | PLACES));
    re->states = true;
    KILN_TRY(check_states(re, &r->step, "step", 0));
    KILN_TRY(check_block(re));
    if (r->states.n && !r->step.n && !r->block.n)
        return CHECK_FAIL(c, c->row->family == KILN_FAMILY_SCAN ? "a scan needs a step"
                                                                : "a fold needs a step or a block");
    if (r->states.n && !r->merge.n && !r->from && !is_one_block(r) && c->row->family == KILN_FAMILY_FOLD)
        return CHECK_FAIL(c, "a fold needs a merge");
    re->merge = true;
    KILN_TRY(check_states(re, &r->merge, "merge", ELEMENTS | PLACES));
    re->merge = false;
    return KILN_OK;
}

/* What is folded, if anything is, then finish. */
static kiln_status check_reduce(const checker *c, kiln_row_env *re, const kiln_branch *b) {
    const kiln_reduce *r = b->reduce;
    if (!r->states.n && !r->finish.n) return KILN_OK;
    if (r->states.n) KILN_TRY(check_folding(c, re, r));
    re->states = true;
    for (int k = 0; k < kiln_row_nown(c->row); k++) {
        const kiln_expr *e = finish_or_state(r, k);
        if (k < r->finish.n && r->finish.at[k].empty) continue;
        if (!e && (!r->from || k)) return CHECK_FAIL(c, "result %d has no finish", k);
        if (!e) continue;
        bool sees = r->finish.at[k].each || c->row->family == KILN_FAMILY_SCAN;
        inspection in = {sees ? 0 : ELEMENTS, "a finish sees elements only with 'each'", NULL, c->row->kept};
        KILN_TRY(check_expr(re, e, ret_dtype(c, b, k), in));
    }
    for (int k = 0; k < r->writes.n; k++) {
        const kiln_named *w = &r->writes.at[k];
        int arg = kiln_schema_arg(c->row->schema, w->name);
        if (re->absent >> arg & 1) continue; /* it is written where it is given */
        re->present |= UINT64_C(1) << arg;
        inspection in = {ELEMENTS, "what is written sees elements of kept arguments only", NULL,
                         c->row->kept};
        KILN_TRY(check_expr(re, w->expr, written_dtype(c, b, arg), in));
    }
    return KILN_OK;
}

/* Extents are host expressions: they must evaluate, to something not known yet. */
static kiln_status check_extents(const checker *c, const kiln_nameds *list) {
    for (int k = 0; k < list->n; k++) {
        kiln_hval ignored;
        KILN_TRY(eval_before_call(c, list->at[k].expr, &ignored));
    }
    return KILN_OK;
}

static kiln_status check_bodies(const checker *c, const kiln_branch *b, uint64_t absent) {
    kiln_row_env re;
    kiln_row_env_init(&re, c->row, b, c->common, c->dtypes, c->arena);
    re.absent = absent;
    re.env.budget = c->budget;
    numbers ns = {.n = 0};
    inspection in = {b->family == KILN_FAMILY_MAP ? OTHER_PLACES : 0,
                     "a map sees one element of each argument and no other place", &ns, 0};
    int64_t before = c->budget->taken;
    for (int k = 0; k < b->nbody; k++) KILN_TRY(check_expr(&re, b->body[k], ret_dtype(c, b, k), in));
    for (int k = 0; k < c->row->nchecks; k++)
        if (c->row->checks[k].each) KILN_TRY(check_expr(&re, c->row->checks[k].cond, KILN_BOOL, in));
    if (c->budget->taken - before > KILN_EXPR_MAX_NODES) /* they become one kernel */
        return kiln_expr_fail(c->row->source, b->body[0], KILN_E_LIMIT,
                              "the bodies have together more than %d nodes, with names and rules expanded",
                              KILN_EXPR_MAX_NODES);
    return check_reduce(c, &re, b);
}

/* With the optionals there, and without those the branch does not ask for: or_else has two sides. */
static kiln_status check_branch(checker *c, const kiln_branch *b) {
    uint64_t optionals = 0;
    for (int a = 0; a < c->row->schema->nargs; a++)
        if (kiln_row_optional(c->row, a)) optionals |= 1ull << a;
    KILN_TRY(check_bodies(c, b, 0));
    if (optionals & ~b->knows) KILN_TRY(check_bodies(c, b, optionals & ~b->knows));
    KILN_TRY(check_extents(c, &c->row->shape.dims));
    KILN_TRY(check_extents(c, &c->row->shape.window));
    KILN_TRY(check_extents(c, &c->row->hosts));
    KILN_TRY(check_extents(c, &c->row->gives));
    KILN_TRY(check_extents(c, &c->row->reduce.over_dims));
    for (int k = 0; k < c->row->nviews; k++) {
        kiln_hval ignored;
        KILN_TRY(check_extents(c, &c->row->views[k].sizes));
        if (c->row->views[k].when) KILN_TRY(eval_before_call(c, c->row->views[k].when, &ignored));
    }
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
        *refused = *refused || now == NEVER;
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

/* -- compose ---------------------------------------------------------------------------------------------- */

static kiln_status check_compose(const kiln_registry *r, const kiln_row *row, kiln_budget *budget) {
    checker c = {.row = row, .common = KILN_F32, .budget = budget};
    bool refused;
    holds now;
    KILN_TRY(kiln_compose_check(r, row));
    for (int w = 0; w < row->compose.nways; w++) {
        const kiln_way *way = &row->compose.ways[w];
        int ntyped;
        KILN_TRY(may_hold(&c, way->when, &now));
        if (way->map) KILN_TRY(kiln_row_check(r, way->map, budget, &ntyped));
    }
    return check_conditions(&c, &refused);
}

kiln_budget kiln_budget_for(size_t nbytes) {
    return (kiln_budget){KILN_BUDGET_FIRST + (int64_t)nbytes * KILN_BUDGET_PER_BYTE, 0};
}

kiln_status kiln_row_check(const kiln_registry *r, const kiln_row *row, kiln_budget *budget, int *ntyped) {
    if (row->family == KILN_FAMILY_COMPOSE) {
        KILN_TRY(check_compose(r, row, budget));
        *ntyped = 1;
        return KILN_OK;
    }
    if (row->rest) KILN_TRY(kiln_row_rest_fits(r, row));
    kiln_arena arena;
    kiln_arena_init(&arena);
    checker c = {.row = row, .arena = &arena, .budget = budget, .arg_takes = row->arg_takes};
    kiln_status st = KILN_OK;
    for (int t = 0; t < KILN_DTYPE_COUNT && st == KILN_OK; t++)
        if (row->takes & KILN_DT(t))
            st = kiln_note(check_dtypes(&c, 0, (kiln_dtype)t), "%s, typed for %s", row->name,
                           kiln_dtype_name((kiln_dtype)t));
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
