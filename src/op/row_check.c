/* row_check.c - types a row for every dtype it takes, before any call exists.
 *
 * A body that is right for f32 and wrong for bool is found when the row is loaded, not when somebody
 * calls it.  Branches whose `when` cannot hold for a dtype are left out; a dtype without any branch is
 * an error.  Works in its own arena, freed before it returns. */
#include <string.h>

#include "op/row.h"

typedef struct checker {
    const kiln_row *row;
    kiln_dtype dtypes[KILN_MAX_ARGS]; /* of arguments outside promotion */
    kiln_dtype common;
    kiln_arena *arena;
    int ntyped;
} checker;

/* -- the host's view before a call: dtypes are known, values are not ------------------------------------- */

typedef struct check_env {
    kiln_henv env;
    const checker *c;
    const kiln_branch *branch;
} check_env;

static bool get(const kiln_henv *env, const char *name, kiln_hval *out) {
    const check_env *ce = (const check_env *)env;
    const kiln_row *row = ce->c->row;
    memset(out, 0, sizeof *out);
    out->dtype = KILN_DTYPE_COUNT;
    if (strcmp(name, "common") == 0) {
        out->kind = KILN_H_DTYPE;
        out->i = out->dtype = ce->c->common;
        return true;
    }
    if (strcmp(name, "n") == 0 && (row->family == KILN_FAMILY_FOLD || row->family == KILN_FAMILY_SCAN)) {
        out->dtype = KILN_I64; /* how many elements are folded */
        return true;
    }
    int arg = kiln_schema_arg(row->schema, name);
    if (arg < 0) return false;
    out->present_unknown = kiln_row_optional(row, arg);
    if (kiln_row_is_tensor(row, arg) && row->arg_takes[arg]) out->dtype = ce->c->dtypes[arg];
    return true;
}

static bool item(const kiln_henv *env, const char *name, int64_t k, kiln_hval *out) {
    const check_env *ce = (const check_env *)env;
    memset(out, 0, sizeof *out);
    out->dtype = KILN_I64;
    return k >= 0 && kiln_schema_arg(ce->c->row->schema, name) >= 0;
}

static const kiln_expr *expand(const kiln_henv *env, const char *name) {
    return kiln_row_host(((const check_env *)env)->c->row, name);
}

static kiln_status may_hold(const checker *c, const kiln_expr *cond, bool *out) {
    check_env ce = {{get, item, NULL, expand, c->row->source}, c, NULL};
    kiln_hval v;
    *out = true;
    if (!cond) return KILN_OK;
    KILN_TRY(kiln_expr_eval(&ce.env, cond, &v));
    *out = v.kind == KILN_H_UNKNOWN || v.i != 0 || (v.kind == KILN_H_FLOAT && v.f != 0);
    return KILN_OK;
}

/* -- bodies ------------------------------------------------------------------------------------------- */

static kiln_dtype ret_dtype(const checker *c, const kiln_branch *b, int k) {
    int16_t ret = b->typing.ret[k];
    if (ret == KILN_RET_COMMON) return c->common;
    return ret >= 0 ? (kiln_dtype)ret : c->dtypes[-2 - ret];
}

/* A result may widen, never lose its kind silently. */
static kiln_status check_kind(const char *source, const kiln_expr *e, kiln_dtype from, kiln_dtype to) {
    if (kiln_dtype_kind(from) == kiln_dtype_kind(to)) return KILN_OK;
    if (from != KILN_BOOL && kiln_dtype_kind(from) < kiln_dtype_kind(to)) return KILN_OK;
    return kiln_expr_fail(source, e, KILN_E_TYPE, "the expression is %s but the result is %s", kiln_dtype_name(from),
                          kiln_dtype_name(to));
}

static kiln_status type_to(const kiln_row_env *re, const kiln_expr *e, kiln_dtype to, const kiln_texpr **out) {
    const kiln_texpr *own;
    to = kiln_dtype_compute(to);
    KILN_TRY(kiln_expr_type(&re->env, e, KILN_DTYPE_COUNT, &own));
    if (!own->weak) KILN_TRY(check_kind(re->env.source, e, own->dtype, to));
    return kiln_expr_type(&re->env, e, to, out);
}

kiln_status kiln_row_type_body(const kiln_row_env *re, int k, kiln_dtype ret, const kiln_texpr **out) {
    return type_to(re, re->branch->body[k], ret, out);
}

/* What a map can compute: its own element, numbers and primitives of them. */
static kiln_status check_pointwise(const char *source, const kiln_texpr *e) {
    switch (e->kind) {
    case KILN_TE_CONST:
    case KILN_TE_ELEM:
    case KILN_TE_SCALAR:
    case KILN_TE_PRIM:
    case KILN_TE_CAST: break;
    case KILN_TE_STATE:
    case KILN_TE_RHS:
    case KILN_TE_POS:
    case KILN_TE_COUNT:
    case KILN_TE_SUM:
    case KILN_TE_EXTENT:
    case KILN_TE_ACCESS:
        return kiln_expr_fail(source, e->from, KILN_E_TYPE, "a map sees one element of each argument and no other place");
    }
    for (int k = 0; k < e->nargs; k++) KILN_TRY(check_pointwise(source, e->args[k]));
    return KILN_OK;
}

static const kiln_expr *finish_or_state(const kiln_reduce *r, int k) {
    return k < r->finish.n ? r->finish.at[k].expr : NULL;
}

static kiln_status check_states(kiln_row_env *re, const kiln_nameds *list, const char *clause) {
    const kiln_nameds *states = &re->row->reduce.states;
    for (int k = 0; k < list->n; k++) {
        const kiln_named *v = &list->at[k];
        int s = 0;
        while (s < states->n && strcmp(states->at[s].name, v->name) != 0) s++;
        if (s == states->n)
            return kiln_expr_fail(re->env.source, v->expr, KILN_E_PARSE, "'%s' in %s is not a state", v->name, clause);
        kiln_dtype t = states->at[s].dtype == KILN_DTYPE_COUNT ? re->env.compute : states->at[s].dtype;
        const kiln_texpr *typed;
        KILN_TRY(type_to(re, v->expr, t, &typed));
    }
    if (list->n && list->n != states->n)
        return kiln_expr_fail(re->env.source, list->at[0].expr, KILN_E_PARSE, "%s gives %d of %d states", clause, list->n,
                              states->n);
    return KILN_OK;
}

/* A block sees the names it has defined so far; `sum` is allowed there. */
static kiln_status check_block(kiln_row_env *re) {
    const kiln_nameds *block = &re->row->reduce.block;
    kiln_nameds sofar = {.n = 0};
    re->env.in_block = true;
    re->scope = &sofar;
    for (int k = 0; k < block->n; k++) {
        const kiln_texpr *typed;
        KILN_TRY(kiln_expr_type(&re->env, block->at[k].expr, re->env.compute, &typed));
        sofar.at[sofar.n++] = block->at[k];
    }
    re->scope = NULL;
    re->env.in_block = false;
    return KILN_OK;
}

/* state, step or block, merge, finish: each in its own scope. */
static kiln_status check_reduce(const checker *c, kiln_row_env *re, const kiln_branch *b) {
    const kiln_reduce *r = &c->row->reduce;
    if (!r->states.n) return KILN_OK;
    KILN_TRY(check_states(re, &r->states, "state"));
    re->states = true;
    KILN_TRY(check_states(re, &r->step, "step"));
    KILN_TRY(check_block(re));
    if (!r->step.n && !r->block.n)
        return KILN_FAIL(KILN_E_PARSE, "%s:%d: a fold needs a step or a block", c->row->source, c->row->line);
    if (!r->merge.n && !r->from && c->row->family == KILN_FAMILY_FOLD)
        return KILN_FAIL(KILN_E_PARSE, "%s:%d: a fold needs a merge", c->row->source, c->row->line);
    re->merge = true;
    KILN_TRY(check_states(re, &r->merge, "merge"));
    re->merge = false;
    for (int k = 0; k < c->row->schema->nrets; k++) {
        const kiln_expr *e = finish_or_state(r, k);
        const kiln_texpr *typed;
        if (!e && (!r->from || k))
            return KILN_FAIL(KILN_E_PARSE, "%s:%d: result %d has no finish", c->row->source, c->row->line, k);
        if (e) KILN_TRY(type_to(re, e, ret_dtype(c, b, k), &typed));
    }
    return KILN_OK;
}

/* Extents are host expressions: they must evaluate, to something not known yet. */
static kiln_status check_extents(const checker *c, const kiln_nameds *list) {
    for (int k = 0; k < list->n; k++) {
        bool ignored;
        KILN_TRY(may_hold(c, list->at[k].expr, &ignored));
    }
    return KILN_OK;
}

static kiln_status check_branch(checker *c, const kiln_branch *b) {
    kiln_row_env re;
    kiln_row_env_init(&re, c->row, b, c->common, c->dtypes, c->arena);
    for (int k = 0; k < b->nbody; k++) {
        const kiln_texpr *typed;
        KILN_TRY(kiln_row_type_body(&re, k, ret_dtype(c, b, k), &typed));
        if (c->row->family == KILN_FAMILY_MAP) KILN_TRY(check_pointwise(c->row->source, typed));
    }
    KILN_TRY(check_reduce(c, &re, b));
    KILN_TRY(check_extents(c, &c->row->shape.dims));
    KILN_TRY(check_extents(c, &c->row->shape.window));
    KILN_TRY(check_extents(c, &c->row->hosts));
    c->ntyped++;
    return KILN_OK;
}

static kiln_dtype branch_common(const kiln_branch *b, kiln_dtype t) {
    bool integral = !kiln_dtype_is_float(t);
    if (b->typing.promo == KILN_PROMO_FLOAT && integral) return KILN_F32;
    if (b->typing.promo == KILN_PROMO_SUM && integral) return KILN_I64;
    return t;
}

static kiln_status check_dtype(checker *c, kiln_dtype t) {
    bool any = false;
    for (int b = 0; b < c->row->nbranches; b++) {
        bool holds;
        c->common = branch_common(&c->row->branches[b], t);
        KILN_TRY(may_hold(c, c->row->branches[b].when, &holds));
        if (!holds) continue;
        any = true;
        KILN_TRY(check_branch(c, &c->row->branches[b]));
    }
    for (int k = 0; k < c->row->nchecks; k++) {
        bool ignored;
        KILN_TRY(may_hold(c, c->row->checks[k].cond, &ignored));
    }
    if (!any)
        return KILN_FAIL(KILN_E_TYPE, "%s:%d: no branch covers %s; say what the row takes", c->row->source, c->row->line,
                         kiln_dtype_name(t));
    return KILN_OK;
}

/* All dtypes of the arguments outside promotion, one after the other from `arg`. */
static kiln_status check_dtypes(checker *c, int arg, kiln_dtype t) {
    while (arg < c->row->schema->nargs && !c->row->arg_takes[arg]) arg++;
    if (arg == c->row->schema->nargs) return check_dtype(c, t);
    for (int u = 0; u < KILN_DTYPE_COUNT; u++) {
        if (!(c->row->arg_takes[arg] & KILN_DT(u))) continue;
        c->dtypes[arg] = (kiln_dtype)u;
        KILN_TRY(check_dtypes(c, arg + 1, t));
    }
    return KILN_OK;
}

/* -- compose ---------------------------------------------------------------------------------------------- */

static kiln_status check_compose_arg(const kiln_row *row, const kiln_op *callee, int k) {
    const kiln_named *v = &row->compose.args[k];
    int to = v->name[0] ? kiln_schema_arg(callee->schema, v->name) : k;
    if (to < 0 || to >= callee->schema->nargs)
        return kiln_expr_fail(row->source, v->expr, KILN_E_TYPE, "%s has no such argument", callee->name);
    int from = v->expr->kind == KILN_X_NAME ? kiln_schema_arg(row->schema, v->expr->name) : -1;
    if (from < 0) return kiln_expr_fail(row->source, v->expr, KILN_E_TYPE, "expected the name of an argument");
    const kiln_type *have = row->schema->args[from].type, *want = callee->schema->args[to].type;
    if (row->compose.each >> from & 1) {
        if (have->kind != KILN_T_LIST)
            return kiln_expr_fail(row->source, v->expr, KILN_E_TYPE, "'%s' is not a list", v->expr->name);
        have = have->elem;
    }
    if (!kiln_type_eq(have, want))
        return kiln_expr_fail(row->source, v->expr, KILN_E_TYPE, "'%s' does not have the type that %s takes for '%s'",
                              v->expr->name, callee->name, callee->schema->args[to].name);
    return KILN_OK;
}

static kiln_status check_compose(const kiln_registry *r, const kiln_row *row) {
    const kiln_op *callee;
    if (!row->compose.callee)
        return KILN_FAIL(KILN_E_PARSE, "%s:%d: a compose row needs a call clause", row->source, row->line);
    KILN_TRY(kiln_note(kiln_registry_find(r, row->compose.callee, &callee), "%s:%d:%d", row->source, row->compose.line,
                       row->compose.col));
    for (int k = 0; k < row->compose.nargs; k++) KILN_TRY(check_compose_arg(row, callee, k));
    return KILN_OK;
}

kiln_status kiln_row_check(const kiln_registry *r, const kiln_row *row, int *ntyped) {
    if (row->family == KILN_FAMILY_COMPOSE) {
        KILN_TRY(check_compose(r, row));
        *ntyped = 1;
        return KILN_OK;
    }
    kiln_arena arena;
    kiln_arena_init(&arena);
    checker c = {.row = row, .arena = &arena};
    kiln_status st = KILN_OK;
    for (int t = 0; t < KILN_DTYPE_COUNT && st == KILN_OK; t++)
        if (row->takes & KILN_DT(t))
            st = kiln_note(check_dtypes(&c, 0, (kiln_dtype)t), "%s, typed for %s", row->schema->name,
                           kiln_dtype_name((kiln_dtype)t));
    kiln_arena_free(&arena);
    *ntyped = c.ntyped;
    return st;
}
