/* row_rules.c - what a row must keep beyond its grammar.
 *
 * Each rule refuses text that would be read as something else than it says: a tensor whose dtype nothing
 * decides, two things of one name, a result no part computes, an argument of a kind its clause cannot
 * use.  Types of expressions are row_check.c's business. */
#include <stdio.h>
#include <string.h>

#include "op/row.h"

#define ROW_FAIL KILN_ROW_FAIL
#define NAMED_FAIL(row, v, ...) KILN_FAIL_LINE(KILN_E_PARSE, (row)->source, (v)->line, (v)->col, __VA_ARGS__)
#define ROW_LIMIT(row, ...) KILN_FAIL_LINE(KILN_E_LIMIT, (row)->source, (row)->line, (row)->col, __VA_ARGS__)

/* -- schema -------------------------------------------------------------------------------------------- */

static bool has_alias(const kiln_type *t) { return t && (t->alias || has_alias(t->elem)); }

/* A truth value is the one element of a result. */
static kiln_status check_truth(const kiln_row *row, int k) {
    bool one = kiln_rules(row)->gives_bool && kiln_rules(row)->gives_bool(row);
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

int kiln_row_ntensors(const kiln_row *row) {
    int n = 0;
    for (int a = 0; a < row->schema->nargs; a++) n += kiln_row_is_tensor(row, a) && !(row->ignored >> a & 1);
    return n;
}

static kiln_status check_tensors(const kiln_row *row) {
    int n = row->schema->nrets + kiln_row_ntensors(row);
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

static kiln_status check_names(const kiln_row *row, const kiln_reduce *r) {
    const kiln_nameds *lists[3 + KILN_MAX_DEFINED] = {&row->lets, &row->hosts};
    int nlists = 2;
    if (r) lists[nlists++] = kiln_rules(row)->folding->states(r);
    if (kiln_rules(row)->defines) nlists += kiln_rules(row)->defines(row, &lists[nlists]);
    for (int l = 0; l < nlists; l++) {
        for (int k = 0; k < lists[l]->n; k++) {
            const kiln_named *v = &lists[l]->at[k];
            if (kiln_schema_arg(row->schema, v->name) >= 0)
                return NAMED_FAIL(row, v, "'%s' is the name of an argument", v->name);
            for (int m = 0; m <= l; m++)
                for (int j = 0; j < (m == l ? k : lists[m]->n); j++)
                    if (strcmp(lists[m]->at[j].name, v->name) == 0)
                        return NAMED_FAIL(row, v, "'%s' has a meaning already", v->name);
        }
    }
    return KILN_OK;
}

/* -- parts --------------------------------------------------------------------------------------------- */

bool kiln_row_is_kind(const kiln_row *row, int arg, kiln_tkind kind, bool or_list) {
    bool optional;
    const kiln_type *t = kiln_type_strip(row->schema->args[arg].type, &optional);
    if (or_list && t->kind == KILN_T_LIST) t = kiln_type_strip(t->elem, &optional);
    return t->kind == kind || (kind == KILN_T_INT && t->kind == KILN_T_SYMINT);
}

kiln_status kiln_row_expect_kind(const kiln_row *row, int arg, kiln_tkind kind, bool or_list,
                                 const char *what) {
    if (arg < 0 || kiln_row_is_kind(row, arg, kind, or_list)) return KILN_OK;
    return ROW_FAIL(row, "'%s' is not %s", row->schema->args[arg].name, what);
}

static kiln_status check_attributes(const kiln_row *row) {
    KILN_TRY(kiln_row_expect_kind(row, row->typing.dtype_arg, KILN_T_DTYPE, false,
                                  "a ScalarType: see 'to' and 'sum_dtype'"));
    if (row->typing.strides == KILN_STRIDES_FORMAT && !kiln_rules(row)->formats)
        return ROW_FAIL(row, "'strides format' names an argument that has a view");
    return KILN_OK;
}

bool kiln_same_place(const kiln_expr *a, const kiln_expr *b) {
    const kiln_expr *x = a->coord[0].dim, *y = b->coord[0].dim;
    bool same_dim = x == y || (x && y && x->kind == KILN_X_NUM && y->kind == KILN_X_NUM && x->i == y->i);
    return a->ncoord == b->ncoord && a->coord[0].rest == b->coord[0].rest && same_dim;
}

kiln_status kiln_row_bodies_rules(const kiln_row *row) {
    const kiln_folding_rules *folding = kiln_rules(row)->folding;
    for (int b = 0; b < row->nbranches; b++) {
        if (folding)
            KILN_TRY(folding->bodies(row, &row->branches[b]));
        else if (!row->branches[b].nbody)
            return ROW_FAIL(row, "no body computes the result");
    }
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
            return NAMED_FAIL(row, v, "'%s' is no tensor argument", v->name);
        if (kiln_named_of(&before, v->name)) return NAMED_FAIL(row, v, "a second gradient of '%s'", v->name);
        KILN_TRY(kiln_expr_names(v->expr, known_to_grad, (void *)row));
    }
    return KILN_OK;
}

/* A type of another language, whose values no argument has: at its place in the row's first line, if it stands there. */
static kiln_status check_type_name(const kiln_row *row, const kiln_type *t) {
    t = kiln_type_strip(t, NULL);
    if (t->kind == KILN_T_LIST) t = kiln_type_strip(t->elem, NULL);
    if (t->kind != KILN_T_OTHER) return KILN_OK;
    kiln_dtype dtype;
    const char *advice = kiln_dtype_named(t->name, &dtype)
                             ? "write 'Tensor' or 'Scalar', and dtypes behind 'takes'"
                             : kiln_expr_advice(t->name, strlen(t->name));
    if (!advice) return KILN_OK;
    const char *at = strstr(row->text, t->name);
    int col = at && (size_t)(at - row->text) < strcspn(row->text, "\n") ? (int)(at - row->text) + 1
                                                                        : row->col;
    return KILN_FAIL_LINE(KILN_E_PARSE, row->source, row->line, col, "unknown type '%s'; %s", t->name,
                          advice);
}

static kiln_status check_type_names(const kiln_schema *s, const kiln_row *row) {
    for (int a = 0; a < s->nargs; a++) KILN_TRY(check_type_name(row, s->args[a].type));
    for (int k = 0; k < s->nrets; k++) KILN_TRY(check_type_name(row, s->rets[k].type));
    return KILN_OK;
}

kiln_status kiln_row_rules(const kiln_row *row) {
    KILN_TRY(check_type_names(row->declared, row));
    KILN_TRY(check_names(row, row->reduce));
    for (int b = 0; b < row->nbranches; b++) KILN_TRY(check_names(row, row->branches[b].reduce));
    KILN_TRY(check_defaults(row));
    KILN_TRY(check_statics(row));
    if (kiln_rules(row)->composes) return kiln_rules(row)->rules(row);
    KILN_TRY(check_schema(row));
    KILN_TRY(check_tensors(row));
    KILN_TRY(check_typing(row, &row->typing));
    for (int b = 0; b < row->nbranches; b++) KILN_TRY(check_typing(row, &row->branches[b].typing));
    KILN_TRY(check_attributes(row));
    KILN_TRY(check_grads(row));
    return kiln_rules(row)->rules ? kiln_rules(row)->rules(row) : kiln_row_bodies_rules(row);
}
