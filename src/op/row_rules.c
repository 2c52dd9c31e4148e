/* row_rules.c - what a row must keep beyond its grammar.
 *
 * Each rule refuses text that would be read as something else than it says: a tensor whose dtype nothing
 * decides, two things of one name, a result no part computes, an argument of a kind its clause cannot
 * use.  Types of expressions are row_check.c's business. */
#include <stdio.h>
#include <string.h>

#include "op/row.h"

#define ROW_FAIL(row, ...) row_fail((row), KILN_E_PARSE, (row)->line, (row)->col, __VA_ARGS__)
#define ROW_LIMIT(row, ...) row_fail((row), KILN_E_LIMIT, (row)->line, (row)->col, __VA_ARGS__)

__attribute__((format(printf, 5, 6))) static kiln_status row_fail(const kiln_row *row, kiln_status st,
                                                                  int line, int col, const char *fmt, ...) {
    kiln_expr at = {.line = line, .col = col};
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    text[0] = 0;
    if (!kiln_is_quiet()) vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return kiln_expr_fail(row->source, &at, st, "%s", text);
}

/* -- schema -------------------------------------------------------------------------------------------- */

static bool has_alias(const kiln_type *t) { return t && (t->alias || has_alias(t->elem)); }

/* A truth value is the one element of a fold's result. */
static kiln_status check_truth(const kiln_row *row, int k) {
    const kiln_reduce *r = &row->reduce;
    bool one = row->family == KILN_FAMILY_FOLD && r->over_arg < 0 && !r->over_last && !r->over_dims.n;
    if (one && row->typing.ret[k] == KILN_BOOL) return KILN_OK;
    return ROW_FAIL(row, "result %d is a bool: only a fold of all elements with '-> bool' gives one", k);
}

/* A row states the functional form; the others derive from it.  A compose row may be any form. */
static kiln_status check_schema(const kiln_row *row) {
    const kiln_schema *s = row->schema;
    for (int a = 0; a < s->nargs; a++)
        if (has_alias(s->args[a].type) && !(row->written >> a & 1))
            return ROW_FAIL(row, "argument '%s' is written to or viewed; a %s row states the functional form",
                            s->args[a].name, kiln_family_name(row->family));
    for (int k = 0; k < s->nrets; k++) {
        if (s->rets[k].type->kind == KILN_T_BOOL)
            KILN_TRY(check_truth(row, k));
        else if (s->rets[k].type->kind != KILN_T_TENSOR || has_alias(s->rets[k].type))
            return ROW_FAIL(row, "result %d is not a new tensor", k);
    }
    return s->nrets ? KILN_OK : ROW_FAIL(row, "a %s row needs a result", kiln_family_name(row->family));
}

/* -- defaults, limits and classes -------------------------------------------------------------------------------------------- */

static bool default_fits(const kiln_type *t, const kiln_default *d) {
    kiln_value ignored;
    bool optional;
    const kiln_type *list = kiln_type_strip(t, &optional);
    if (list->kind != KILN_T_LIST || d->kind == KILN_DEF_NONE) return kiln_default_value(t, d, &ignored);
    if (d->kind != KILN_DEF_LIST) return kiln_default_value(list->elem, d, &ignored);
    for (int k = 0; k < d->nitems; k++)
        if (!kiln_default_value(list->elem, &d->items[k], &ignored)) return false;
    return true;
}

/* A call without the argument binds its default, so it must be of the type, and lists of them must fit a call. */
static kiln_status check_defaults(const kiln_row *row) {
    const kiln_schema *s = row->declared;
    int64_t nitems = 0;
    for (int a = 0; a < s->nargs; a++) {
        const kiln_param *p = &s->args[a];
        bool optional;
        const kiln_type *t = kiln_type_strip(p->type, &optional);
        if (p->def.kind == KILN_DEF_ABSENT) continue;
        if (!default_fits(p->type, &p->def))
            return ROW_FAIL(row, "the default of '%s' is not of its type: %.60s", p->name, p->def.text);
        if (t->kind == KILN_T_LIST) nitems += kiln_default_items(t, &p->def);
    }
    if (nitems > KILN_MAX_ARGS)
        return ROW_LIMIT(row, "%.80s has %lld items in defaults: at most %d", row->name, (long long)nitems,
                         KILN_MAX_ARGS);
    return KILN_OK;
}

static int count_tensors(const kiln_row *row) {
    int n = 0;
    for (int a = 0; a < row->schema->nargs; a++) n += kiln_row_is_tensor(row, a) && !(row->ignored >> a & 1);
    return n;
}

static kiln_status check_tensors(const kiln_row *row) {
    int n = row->schema->nrets + count_tensors(row);
    if (n > KILN_MAX_OPERANDS)
        return ROW_LIMIT(row, "%.80s has %d tensors, results among them: at most %d", row->name, n,
                         KILN_MAX_OPERANDS);
    return KILN_OK;
}

static bool holds_state(const kiln_type *t) {
    while (t->kind == KILN_T_OPTIONAL || t->kind == KILN_T_LIST) t = t->elem;
    return t->kind == KILN_T_TENSOR || (t->kind == KILN_T_OTHER && kiln_str_eq(t->name, "Generator"));
}

/* The value of a static argument is part of the class of a call, and no class is of one tensor's elements. */
static kiln_status check_statics(const kiln_row *row) {
    for (int a = 0; a < row->schema->nargs; a++)
        if ((row->statics >> a & 1) && holds_state(row->schema->args[a].type))
            return ROW_FAIL(
                row,
                "'%s' is a tensor or generator: only numbers, texts, dtypes and lists of them can be static",
                row->schema->args[a].name);
    return KILN_OK;
}

/* -- dtypes -------------------------------------------------------------------------------------------- */

static bool promotable(const kiln_row *row, int arg) {
    bool optional;
    kiln_tkind kind = kiln_type_strip(row->schema->args[arg].type, &optional)->kind;
    return kind == KILN_T_TENSOR || kind == KILN_T_SCALAR;
}

/* Every tensor is either promoted or has a list of its own, which a branch may do without. */
static kiln_status check_typing(const kiln_row *row, const kiln_typing *t) {
    for (int a = 0; a < row->schema->nargs; a++) {
        const char *name = row->schema->args[a].name;
        bool promoted = t->args >> a & 1, listed = row->arg_takes[a], tensor = kiln_row_is_tensor(row, a);
        if (promoted && !promotable(row, a))
            return ROW_FAIL(row, "'%s' is no tensor or Scalar to promote", name);
        if (listed && !tensor) return ROW_FAIL(row, "'takes %s:' but '%s' is no tensor", name, name);
        if (listed && promoted && t == &row->typing)
            return ROW_FAIL(row, "'%s' is promoted, so its dtypes are the row's: write 'takes'", name);
        if (tensor && !promoted && !listed && !(row->ignored >> a & 1))
            return ROW_FAIL(row, "tensor '%s' is outside promotion: write 'takes %s: ...'", name, name);
    }
    for (int k = 0; k < row->schema->nrets; k++) {
        int arg = t->ret[k] == KILN_RET_REAL ? -1 : -2 - t->ret[k];
        if (arg < 0) continue;
        const char *name = row->schema->args[arg].name;
        if (!kiln_row_is_tensor(row, arg)) return ROW_FAIL(row, "result %d follows '%s', no tensor", k, name);
        if (kiln_row_optional(row, arg))
            return ROW_FAIL(row, "result %d follows '%s', which may be absent", k, name);
    }
    return KILN_OK;
}

/* -- names --------------------------------------------------------------------------------------------- */

static kiln_status check_names(const kiln_row *row, const kiln_nameds *states) {
    const kiln_nameds *lists[] = {&row->lets, &row->hosts, states, &row->shape.dims, &row->shape.window};
    enum { LISTS = sizeof lists / sizeof *lists };
    for (int l = 0; l < LISTS; l++) {
        for (int k = 0; k < lists[l]->n; k++) {
            const kiln_named *v = &lists[l]->at[k];
            if (kiln_schema_arg(row->schema, v->name) >= 0)
                return row_fail(row, KILN_E_PARSE, v->line, v->col, "'%s' is the name of an argument",
                                v->name);
            for (int m = 0; m <= l; m++)
                for (int j = 0; j < (m == l ? k : lists[m]->n); j++)
                    if (strcmp(lists[m]->at[j].name, v->name) == 0)
                        return row_fail(row, KILN_E_PARSE, v->line, v->col, "'%s' has a meaning already",
                                        v->name);
        }
    }
    return KILN_OK;
}

/* -- parts --------------------------------------------------------------------------------------------- */

static bool is_kind(const kiln_row *row, int arg, kiln_tkind kind, bool or_list) {
    bool optional;
    const kiln_type *t = kiln_type_strip(row->schema->args[arg].type, &optional);
    if (or_list && t->kind == KILN_T_LIST) t = kiln_type_strip(t->elem, &optional);
    return t->kind == kind || (kind == KILN_T_INT && t->kind == KILN_T_SYMINT);
}

static kiln_status expect_kind(const kiln_row *row, int arg, kiln_tkind kind, bool or_list,
                               const char *what) {
    if (arg < 0 || is_kind(row, arg, kind, or_list)) return KILN_OK;
    return ROW_FAIL(row, "'%s' is not %s", row->schema->args[arg].name, what);
}

static kiln_status check_clauses(const kiln_row *row) {
    const kiln_reduce *r = &row->reduce;
    const kiln_outshape *sh = &row->shape;
    KILN_TRY(expect_kind(row, r->over_arg, KILN_T_INT, true, "a dimension or a list of them: see 'over'"));
    KILN_TRY(expect_kind(row, r->keep_arg, KILN_T_BOOL, false, "a bool: see 'keep'"));
    KILN_TRY(expect_kind(row, row->typing.dtype_arg, KILN_T_DTYPE, false,
                         "a ScalarType: see 'to' and 'sum_dtype'"));
    KILN_TRY(expect_kind(row, sh->like_arg, KILN_T_TENSOR, false, "a tensor: see 'out like'"));
    KILN_TRY(expect_kind(row, sh->into_arg, KILN_T_TENSOR, false, "a tensor: see 'into'"));
    KILN_TRY(expect_kind(row, sh->at_arg, KILN_T_TENSOR, true, "a list of tensors: see 'into'"));
    if (r->over_diagonal && count_tensors(row) != 1)
        return ROW_FAIL(row, "a diagonal is that of one tensor: see 'over'");
    if (r->over_diagonal && row->grads.n)
        return ROW_FAIL(row, "elements beside the diagonal have another gradient: no 'grad' over a diagonal");
    for (int a = 0; a < row->schema->nargs; a++)
        if ((row->lacking >> a & 1) && !kiln_row_is_tensor(row, a))
            return ROW_FAIL(row, "'%s' is no tensor: see 'lack'", row->schema->args[a].name);
    int shapes = (sh->like_arg >= 0) + (sh->dims.n > 0) + (sh->into_arg >= 0);
    if (row->family == KILN_FAMILY_INDEX && shapes != 1)
        return ROW_FAIL(row, "an index row needs one 'out' or 'into'");
    return KILN_OK;
}

bool kiln_same_place(const kiln_expr *a, const kiln_expr *b) {
    const kiln_expr *x = a->coord[0].dim, *y = b->coord[0].dim;
    bool same_dim = x == y || (x && y && x->kind == KILN_X_NUM && y->kind == KILN_X_NUM && x->i == y->i);
    return a->ncoord == b->ncoord && a->coord[0].rest == b->coord[0].rest && same_dim;
}

kiln_status kiln_row_access(const kiln_row *row, const kiln_expr *e) {
    const kiln_coord *c = e->coord;
    bool last = e->ncoord == 2 && c[0].rest && !c[1].rest && !c[1].dim, one = e->ncoord == 1 && !c[0].rest;
    bool number = !c[0].dim || (c[0].dim->kind == KILN_X_NUM && !c[0].dim->is_float);
    if (row->family != KILN_FAMILY_FOLD)
        return kiln_expr_fail(row->source, e, KILN_E_PARSE,
                              "only a fold or an index row reads at computed places");
    if (!(last || one) || !number)
        return kiln_expr_fail(row->source, e, KILN_E_PARSE,
                              "a fold reads %s[at], %s[.., at] or %s[NUMBER: at]", e->name, e->name, e->name);
    if (!e->other || e->skip)
        return kiln_expr_fail(row->source, e, KILN_E_PARSE,
                              "expected 'else' and a value for places out of range");
    return KILN_OK;
}

/* A scan runs along one dimension, which a number names and which its results keep. */
static kiln_status check_scan(const kiln_row *row) {
    const kiln_reduce *r = &row->reduce;
    if (row->family != KILN_FAMILY_SCAN) return KILN_OK;
    if (r->over_last || r->over_dims.n || r->over_but || r->over_arg < 0 ||
        !is_kind(row, r->over_arg, KILN_T_INT, false) || kiln_row_optional(row, r->over_arg))
        return ROW_FAIL(row, "a scan is over one dimension, which an 'int' argument names: see 'over'");
    if (r->keep_arg >= 0 || r->keep) return ROW_FAIL(row, "results of a scan have its dimension: no 'keep'");
    for (int k = 0; k < r->finish.n; k++)
        if (r->finish.at[k].each)
            return row_fail(row, KILN_E_PARSE, r->finish.at[k].line, r->finish.at[k].col,
                            "every result of a scan is for each element: no 'each'");
    return r->states.n ? KILN_OK : ROW_FAIL(row, "a scan needs a state, or a body with 'from'");
}

/* A routine reads elements as they are and writes results as they are: nothing is converted on either way. */
static kiln_status check_extern(const kiln_row *row) {
    const kiln_typing *t = &row->typing;
    const kiln_expr *first = row->routine.args.n ? row->routine.args.at[0].expr : NULL;
    int tensor = first && first->kind == KILN_X_NAME ? kiln_schema_arg(row->schema, first->name) : -1;
    if (row->routine.id == KILN_ROUTINE_COUNT) return ROW_FAIL(row, "an extern row needs a routine clause");
    if (row->branches[0].nbody) return ROW_FAIL(row, "an extern row has a routine clause and no body");
    if (tensor < 0 || !kiln_row_is_tensor(row, tensor) || kiln_row_optional(row, tensor))
        return ROW_FAIL(row, "a routine's first argument is a tensor");
    if (t->promo != KILN_PROMO_PROMOTE || t->args != 1ull << tensor)
        return ROW_FAIL(row, "a routine takes the elements of '%s' as they are: nothing else may be promoted",
                        row->schema->args[tensor].name);
    if (t->out != KILN_OUT_EXACT && t->out != KILN_OUT_COPIED)
        return ROW_FAIL(row, "a routine converts no results: write 'out exact' or 'out copied'");
    return kiln_routine_fits(row);
}

static bool has_fold_clauses(const kiln_reduce *r) {
    return r->step.n || r->block.n || r->merge.n || r->finish.n;
}

/* Whether every result has an element for each that is folded, so that nothing need be folded. */
static bool finishes_each(const kiln_row *row, const kiln_reduce *r) {
    int n = 0;
    for (int k = 0; k < r->finish.n; k++) n += r->finish.at[k].each;
    return row->family == KILN_FAMILY_FOLD && n == row->schema->nrets && !r->step.n && !r->block.n &&
           !r->merge.n;
}

/* Something computes every result: bodies, or for what folds its clauses. */
static kiln_status check_bodies(const kiln_row *row) {
    bool any = false;
    for (int b = 0; b < row->nbranches; b++) {
        const kiln_reduce *r = row->branches[b].reduce;
        bool folds = row->family != KILN_FAMILY_MAP && (r->states.n || r->finish.n || finishes_each(row, r));
        if (r->from && r->states.n != 1) return ROW_FAIL(row, "a body with 'from' is the only state");
        if (!row->branches[b].nbody && !folds) return ROW_FAIL(row, "no body computes the result");
        if (row->branches[b].nbody && (folds || has_fold_clauses(r)))
            return ROW_FAIL(row, "both states and a body: 'finish' gives the results");
        any = any || folds;
    }
    if (row->family == KILN_FAMILY_FOLD && !any)
        return ROW_FAIL(row, "nothing is folded: a fold has a state, or a body with 'from'");
    return KILN_OK;
}

/* -- gradients ----------------------------------------------------------------------------------------- */

/* A gradient names arguments, lets, host numbers, gradients of results, and results. */
static kiln_status known_to_grad(void *user, const kiln_expr *e) {
    const kiln_row *row = user;
    char name[KILN_GRAD_NAME];
    for (int k = 0; k < 2 * row->schema->nrets; k++) {
        kiln_row_grad_name(row, k % 2 ? "result" : "grad", k / 2, name);
        if (strcmp(e->name, name) == 0) return KILN_OK;
    }
    bool known = kiln_schema_arg(row->schema, e->name) >= 0 || kiln_named_of(&row->lets, e->name) ||
                 kiln_named_of(&row->hosts, e->name);
    return known ? KILN_OK
                 : kiln_expr_fail(row->source, e, KILN_E_PARSE, "a gradient cannot see '%s'", e->name);
}

static kiln_status check_grads(const kiln_row *row) {
    char name[KILN_GRAD_NAME];
    for (int k = 0; k < 2 * row->schema->nrets && row->grads.n; k++) {
        kiln_row_grad_name(row, k % 2 ? "result" : "grad", k / 2, name);
        if (kiln_schema_arg(row->schema, name) >= 0 || kiln_named_of(&row->lets, name) ||
            kiln_named_of(&row->hosts, name))
            return ROW_FAIL(row, "'%s' means something else in a 'grad' clause: give it another name", name);
    }
    for (int k = 0; k < row->grads.n; k++) {
        const kiln_named *v = &row->grads.at[k];
        int arg = kiln_schema_arg(row->schema, v->name);
        kiln_nameds before = {row->grads.at, k};
        if (arg < 0 || !kiln_row_is_tensor(row, arg))
            return row_fail(row, KILN_E_PARSE, v->line, v->col, "'%s' is no tensor argument", v->name);
        if (kiln_named_of(&before, v->name))
            return row_fail(row, KILN_E_PARSE, v->line, v->col, "a second gradient of '%s'", v->name);
        KILN_TRY(kiln_expr_names(v->expr, known_to_grad, (void *)row));
    }
    return KILN_OK;
}

kiln_status kiln_row_rules(const kiln_row *row) {
    KILN_TRY(check_names(row, &row->reduce.states));
    for (int b = 0; b < row->nbranches; b++) KILN_TRY(check_names(row, &row->branches[b].reduce->states));
    KILN_TRY(check_defaults(row));
    KILN_TRY(check_statics(row));
    if (row->family == KILN_FAMILY_COMPOSE)
        return row->nbranches ? ROW_FAIL(row, "a compose row has a call clause and no body")
                              : kiln_compose_rules(row);
    KILN_TRY(check_schema(row));
    KILN_TRY(check_tensors(row));
    KILN_TRY(check_typing(row, &row->typing));
    for (int b = 0; b < row->nbranches; b++) KILN_TRY(check_typing(row, &row->branches[b].typing));
    KILN_TRY(check_clauses(row));
    KILN_TRY(check_scan(row));
    KILN_TRY(kiln_row_views_fit(row));
    KILN_TRY(check_grads(row));
    if (row->family == KILN_FAMILY_EXTERN) return check_extern(row);
    return check_bodies(row);
}
