/* row_scope.c - what a name means in each part of a row, and which arguments a row uses.
 *
 * Tensor arguments are elements, numbers are scalars known on the host, clauses add states, positions
 * and lets.  An argument that appears nowhere is an error: a forgotten argument is a wrong operator. */
#include <string.h>

#include "op/row.h"

bool kiln_row_is_tensor(const kiln_row *row, int arg) {
    bool optional;
    return kiln_type_strip(row->schema->args[arg].type, &optional)->kind == KILN_T_TENSOR;
}

bool kiln_row_optional(const kiln_row *row, int arg) {
    bool optional;
    (void)kiln_type_strip(row->schema->args[arg].type, &optional);
    return optional;
}

static const kiln_named *named(const kiln_nameds *list, const char *name) {
    for (int k = 0; list && k < list->n; k++)
        if (strcmp(list->at[k].name, name) == 0) return &list->at[k];
    return NULL;
}

const kiln_expr *kiln_row_host(const kiln_row *row, const char *name) {
    const kiln_named *v = named(&row->hosts, name);
    return v ? v->expr : NULL;
}

/* -- environment ------------------------------------------------------------------------------------------ */

static kiln_dtype tensor_dtype(const kiln_row_env *re, int arg) {
    bool promoted = re->branch->typing.args >> arg & 1;
    return kiln_dtype_compute(promoted ? re->common : re->dtypes[arg]);
}

static bool find_arg(const kiln_row_env *re, const char *name, kiln_sym *out) {
    int arg = kiln_schema_arg(re->row->schema, name);
    if (arg < 0) return false;
    bool optional;
    const kiln_type *type = kiln_type_strip(re->row->schema->args[arg].type, &optional);
    out->id = arg;
    out->absent = re->absent >> arg & 1;
    out->may_be_absent = optional && !out->absent && !((re->present | re->branch->knows) >> arg & 1);
    out->kind = KILN_SYM_SCALAR;
    out->dtype = kiln_dtype_compute(re->common);
    switch (type->kind) {
    case KILN_T_TENSOR:
        out->kind = KILN_SYM_ELEM;
        if (!out->absent) out->dtype = tensor_dtype(re, arg);
        return true;
    case KILN_T_SCALAR: return true;
    case KILN_T_INT:
    case KILN_T_SYMINT: out->dtype = KILN_I64; out->weak = true; return true;
    case KILN_T_FLOAT: out->dtype = KILN_F64; out->weak = true; return true;
    case KILN_T_BOOL: out->dtype = KILN_BOOL; return true;
    case KILN_T_LIST:
        out->kind = type->elem->kind == KILN_T_INT || type->elem->kind == KILN_T_SYMINT ? KILN_SYM_LIST : KILN_SYM_HOST;
        out->dtype = KILN_I64;
        return true;
    case KILN_T_STR:
    case KILN_T_DTYPE:
    case KILN_T_OTHER:
    case KILN_T_OPTIONAL:
    case KILN_T_TUPLE:
    case KILN_T_APPLY: break;
    }
    out->kind = KILN_SYM_HOST;
    return true;
}

/* A number the host computes: an integer unless it says f64. */
static bool find_host(const kiln_row_env *re, const char *name, kiln_sym *out) {
    const kiln_named *v = named(&re->row->hosts, name);
    if (!v) return false;
    out->kind = KILN_SYM_SCALAR;
    out->id = KILN_HOST_ID + (int)(v - re->row->hosts.at);
    out->dtype = v->dtype == KILN_DTYPE_COUNT ? KILN_I64 : v->dtype;
    out->weak = out->dtype == KILN_I64 || out->dtype == KILN_F64;
    return true;
}

static bool find_state(const kiln_row_env *re, const char *name, bool rhs, kiln_sym *out) {
    const kiln_nameds *states = &re->row->reduce.states;
    const kiln_named *v = named(states, name);
    if (v) {
        out->kind = rhs ? KILN_SYM_RHS : KILN_SYM_STATE;
        out->id = (int)(v - states->at);
        out->dtype = v->dtype == KILN_DTYPE_COUNT ? kiln_dtype_compute(re->common) : v->dtype;
        return true;
    }
    if (strcmp(name, "n") != 0) return false;
    out->kind = KILN_SYM_COUNT;
    out->id = rhs;
    out->dtype = KILN_I64;
    return true;
}

/* Positions: `i` along the folded dimensions, and the names an `out` or `window` clause gives. */
static bool find_position(const kiln_row_env *re, const char *name, kiln_sym *out) {
    const kiln_outshape *sh = &re->row->shape;
    const kiln_named *dim = named(&sh->dims, name), *win = named(&sh->window, name);
    bool index = re->states && strcmp(name, "i") == 0;
    if (!dim && !win && !index) return false;
    out->kind = KILN_SYM_POS;
    out->dtype = KILN_I64;
    out->id = dim ? (int)(dim - sh->dims.at) : win ? KILN_ROW_MAX_NAMED + (int)(win - sh->window.at) : -1;
    return true;
}

static bool find(const kiln_env *env, const char *name, bool rhs, kiln_sym *out) {
    const kiln_row_env *re = (const kiln_row_env *)env;
    memset(out, 0, sizeof *out);
    if (rhs) return re->merge && find_state(re, name, true, out);
    const kiln_named *let = named(re->scope, name);
    if (!let) let = named(&re->row->lets, name);
    if (let) {
        out->kind = KILN_SYM_LET;
        out->let = let->expr;
        return true;
    }
    if (re->states && find_state(re, name, false, out)) return true;
    if (re->row->shape.into_arg >= 0 && strcmp(name, "acc") == 0) { /* what the scattered-to element holds */
        out->kind = KILN_SYM_STATE;
        out->dtype = kiln_dtype_compute(re->common);
        return true;
    }
    return find_position(re, name, out) || find_host(re, name, out) || find_arg(re, name, out);
}

void kiln_row_env_init(kiln_row_env *re, const kiln_row *row, const kiln_branch *branch, kiln_dtype common,
                       const kiln_dtype *dtypes, kiln_arena *arena) {
    memset(re, 0, sizeof *re);
    re->env.find = find;
    re->env.compute = kiln_dtype_compute(common);
    re->env.source = row->source;
    re->env.arena = arena;
    re->row = row;
    re->branch = branch;
    re->common = common;
    re->dtypes = dtypes;
}

/* -- which arguments a row uses ------------------------------------------------------------------------- */

typedef struct usage {
    const kiln_row *row;
    uint64_t set;
    int depth;
} usage;

static kiln_status note_use(void *user, const kiln_expr *e) {
    usage *u = user;
    const kiln_named *let = named(&u->row->lets, e->name);
    if (!let) let = named(&u->row->hosts, e->name);
    if (let && u->depth < KILN_EXPR_MAX_DEPTH) {
        u->depth++;
        KILN_TRY(kiln_expr_names(let->expr, note_use, u));
        u->depth--;
        return KILN_OK;
    }
    int arg = kiln_schema_arg(u->row->schema, e->name);
    if (arg >= 0) u->set |= 1ull << arg;
    return KILN_OK;
}

static kiln_status use(const kiln_row *row, const kiln_expr *e, uint64_t *set) {
    usage u = {row, *set, 0};
    if (e) KILN_TRY(kiln_expr_names(e, note_use, &u));
    *set = u.set;
    return KILN_OK;
}

static kiln_status use_all(const kiln_row *row, const kiln_nameds *list, uint64_t *set) {
    for (int k = 0; k < list->n; k++) KILN_TRY(use(row, list->at[k].expr, set));
    return KILN_OK;
}

/* Optionals that must be present for `when` to hold: present(x), or x compared with a text. */
static uint64_t knows(const kiln_row *row, const kiln_expr *when) {
    if (!when) return 0;
    if (when->kind == KILN_X_LOGIC && when->prim == KILN_P_AND)
        return knows(row, when->args[0]) | knows(row, when->args[1]);
    bool present = when->kind == KILN_X_CALL && strcmp(when->name, "present") == 0;
    bool equals = when->kind == KILN_X_PRIM && when->prim == KILN_P_EQ && when->args[1]->kind == KILN_X_STR;
    if ((!present && !equals) || when->nargs < 1 || when->args[0]->kind != KILN_X_NAME) return 0;
    int arg = kiln_schema_arg(row->schema, when->args[0]->name);
    return arg < 0 ? 0 : 1ull << arg;
}

static uint64_t bit(int arg) { return arg < 0 ? 0 : 1ull << arg; }

static kiln_status use_clauses(const kiln_row *row, uint64_t *set) {
    const kiln_reduce *r = &row->reduce;
    const kiln_nameds *lists[] = {&row->hosts, &r->states, &r->step, &r->block, &r->merge, &r->finish, &row->shape.dims,
                                  &row->shape.window};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) KILN_TRY(use_all(row, lists[k], set));
    KILN_TRY(use(row, r->over_last, set));
    for (int k = 0; k < row->nchecks; k++) KILN_TRY(use(row, row->checks[k].cond, set));
    for (int k = 0; k < row->compose.nargs; k++) KILN_TRY(use(row, row->compose.args[k].expr, set));
    *set |= bit(r->over_arg) | bit(r->keep_arg) | bit(row->shape.like_arg) | bit(row->shape.into_arg) |
            bit(row->shape.at_arg) | bit(row->typing.dtype_arg) | row->ignored | row->statics | row->compose.each;
    return KILN_OK;
}

kiln_status kiln_row_resolve(kiln_row *row) {
    uint64_t all = 0;
    for (int b = 0; b < row->nbranches; b++) {
        kiln_branch *br = &row->branches[b];
        br->knows = knows(row, br->when);
        for (int k = 0; k < br->nbody; k++) KILN_TRY(use(row, br->body[k], &br->uses));
        all |= br->uses;
        KILN_TRY(use(row, br->when, &all));
    }
    KILN_TRY(use_clauses(row, &all));
    for (int a = 0; a < row->schema->nargs; a++)
        if (!(all >> a & 1))
            return KILN_FAIL(KILN_E_PARSE, "%s:%d: %s: argument '%s' is not used; write 'ignore %s' if that is meant",
                             row->source, row->line, row->schema->name, row->schema->args[a].name,
                             row->schema->args[a].name);
    return KILN_OK;
}
