/* choose.c - an operator's short name and the arguments of a call -> the overload they mean.
 *
 * "add" beside a number means add.Scalar, beside a tensor add.Tensor: the overload whose arguments fit the kinds of
 * the values best, the default one where several do, and one that copies into its outputs only where no other fits.
 * The command, Python and running graphs all choose here.  Looks at kinds of values; must not know what an overload
 * computes. */
#include <stdio.h>
#include <string.h>

#include "infer/infer_parts.h"

/* -- how a value fits an argument ------------------------------------------------------------------------ */

enum { NO = -1, HARDLY = 0, FAIR = 1, WELL = 2 };

static bool is_number(const kiln_value *v) { return kiln_is_number(v) || v->kind == KILN_NUMBER_V; }

/* A tensor is taken for the number it holds, if it has no dimensions.  Where the tensor is NULL, n tells whether it
 * has. */
static int fit_tensor_for_number(const kiln_value *v) {
    return (v->u.tensor ? v->u.tensor->rank : (int)v->n) == 0 ? FAIR : NO;
}

/* An int or float argument.  exact: the kind that needs no conversion; whole: floats and ints from 2^63 up do not fit. */
static int fit_number(const kiln_value *v, kiln_kind exact, bool whole) {
    if (v->kind == KILN_TENSOR) return fit_tensor_for_number(v);
    if (v->kind == (uint32_t)exact) return WELL;
    if (!is_number(v) || v->kind == KILN_COMPLEX_V) return NO;
    return whole && (v->kind == KILN_FLOAT_V || v->kind == KILN_UINT_V) ? NO : FAIR;
}

/* A type that is known by name alone.  What an object is, the call finds out. */
static int fit_named(const kiln_type *t, uint32_t k) {
    bool generator = t->kind == KILN_T_OTHER && kiln_str_eq(t->name, "Generator");
    if (k == KILN_GENERATOR_V) return generator ? WELL : NO;
    if (k == KILN_TENSOR || k == KILN_LIST_V || (generator && k != KILN_OBJECT_V)) return NO;
    return HARDLY;
}

/* Numbers are no list of tensors, and tensors hardly one of numbers.  The first item tells, where it is known. */
static int fit_list(const kiln_type *t, const kiln_value *v) {
    if (v->kind != KILN_LIST_V) return v->kind == KILN_INT_V ? FAIR : NO;
    if (!v->n || !v->u.list || v->u.list->kind == KILN_NONE) return WELL;
    bool wanted = kiln_type_strip(t->elem, NULL)->kind == KILN_T_TENSOR;
    bool tensors = v->u.list->kind == KILN_TENSOR;
    return wanted == tensors ? WELL : wanted ? NO : HARDLY;
}

/* numbers: whether one may stand for a tensor. */
static int fit(const kiln_param *p, const kiln_value *v, bool numbers) {
    bool optional;
    const kiln_type *t = kiln_type_strip(p->type, &optional);
    uint32_t k = v->kind;
    if (k == KILN_NONE) return optional ? WELL : NO;
    switch (t->kind) {
    case KILN_T_TENSOR:
        if (k == KILN_TENSOR) return WELL;
        if (!numbers || !is_number(v) || kiln_param_writes(p)) return NO;
        return k == KILN_NUMBER_V ? WELL : FAIR;
    case KILN_T_SCALAR:
        if (k == KILN_TENSOR) return fit_tensor_for_number(v);
        return k == KILN_NUMBER_V ? HARDLY : is_number(v) ? WELL : NO;
    case KILN_T_INT:
    case KILN_T_SYMINT: return fit_number(v, KILN_INT_V, true);
    case KILN_T_FLOAT: return fit_number(v, KILN_FLOAT_V, false);
    case KILN_T_BOOL: return k == KILN_BOOL_V ? WELL : k == KILN_NUMBER_V ? FAIR : NO;
    case KILN_T_STR: return k == KILN_STR_V ? WELL : NO;
    case KILN_T_DTYPE: return k == KILN_DTYPE_V ? WELL : k == KILN_STR_V || k == KILN_OBJECT_V ? FAIR : NO;
    case KILN_T_LIST: return fit_list(t, v);
    default: return fit_named(t, k);
    }
}

/* How well all of them fit op: NO, or a sum that is comparable among overloads. */
static int fit_all(const kiln_op *op, const kiln_value *args, size_t nargs, bool numbers, kiln_misfit *why) {
    const kiln_value *given[KILN_MAX_ARGS];
    const kiln_schema *s = op->schema;
    int sum = 0;
    bool placed = kiln_place(s, args, nargs, given, why);
    /* A value of a wrong kind says more than that another is missing. */
    for (int a = 0; a < s->nargs && (placed || why->why == KILN_MISFIT_MISSING); a++) {
        int points = given[a] ? fit(&s->args[a], given[a], numbers) : 0;
        if (points == NO) return *why = (kiln_misfit){KILN_MISFIT_KIND, &s->args[a], given[a], -1}, NO;
        sum += points;
    }
    return placed ? sum : NO;
}

/* -- the choice ------------------------------------------------------------------------------------------ */

static bool requires(const kiln_schema *s, kiln_tkind kind) {
    for (int a = 0; a < s->nargs; a++)
        if (s->args[a].def.kind == KILN_DEF_ABSENT && s->args[a].type->kind == kind) return true;
    return false;
}

/* Whether a number may stand for a tensor: where an overload takes one, or there is a default and no other takes a
 * dimension.  The 1 of max(x, 1) is the dimension of max.dim, and must not become a tensor for max.other. */
static bool takes_numbers(const kiln_op *const *ops, size_t n) {
    bool scalar = false, dimension = false, without_name = false;
    for (size_t k = 0; k < n; k++) {
        const kiln_schema *s = ops[k]->schema;
        scalar = scalar || requires(s, KILN_T_SCALAR);
        bool named = *s->overload && ops[k]->form == KILN_FORM_FUNCTIONAL;
        dimension = dimension || (named && requires(s, KILN_T_INT));
        without_name = without_name || !*s->overload;
    }
    return scalar || (without_name && !dimension);
}

/* Whether a reader expects op among those a call was compared with: forms with outputs where one is given, the
 * others where none is. */
static bool is_meant(const kiln_op *op, const kiln_value *args, size_t nargs) {
    for (size_t k = 0; k < nargs; k++) {
        int a = args[k].name ? kiln_schema_arg(op->schema, args[k].name) : -1;
        bool output = a >= 0 ? kiln_param_writes(&op->schema->args[a])
                             : args[k].name && strcmp(args[k].name, "out") == 0;
        if (output) return op->form == KILN_FORM_OUT;
    }
    return op->form != KILN_FORM_OUT;
}

/* One line per overload that could be meant; where that is a single one, it is chosen: its own complaint says more. */
static kiln_status none_fits(const kiln_op *const *ops, size_t n, const kiln_value *args, size_t nargs,
                             bool numbers, size_t *out) {
    size_t nmeant = 0;
    kiln_sb lines;
    for (size_t k = 0; k < n; k++)
        if (is_meant(ops[k], args, nargs)) *out = k, nmeant++;
    if (nmeant == 1 && numbers) return KILN_OK;
    kiln_sb_init_message(&lines);
    kiln_sb_printf(&lines, "%.*s: no overload fits these arguments", (int)strcspn(ops[0]->name, "."),
                   ops[0]->name);
    for (size_t k = 0; k < n && !lines.failed; k++) {
        kiln_misfit why;
        if (nmeant && !is_meant(ops[k], args, nargs)) continue;
        (void)fit_all(ops[k], args, nargs, numbers, &why);
        kiln_sb_printf(&lines, "\n  %s: ", ops[k]->name);
        kiln_misfit_print(&lines, ops[k]->schema, &why);
    }
    return KILN_FAIL_TEXT(KILN_E_TYPE, &lines);
}

kiln_status kiln_choose(const kiln_op *const *ops, size_t n, const kiln_value *args, size_t nargs,
                        size_t *out) {
    bool numbers = takes_numbers(ops, n), named = nargs && args[nargs - 1].name;
    int most = NO;
    for (size_t k = 0; k < n; k++) {
        kiln_misfit why;
        if (!named && ops[k]->form == KILN_FORM_OUT) continue; /* outputs are given by name */
        int points = fit_all(ops[k], args, nargs, numbers, &why);
        if (points == NO) continue;
        /* An out form that copies is the last resort; among equals the first one counts, which is the default. */
        int aside = kiln_op_is_aside(ops[k]), best_aside = most == NO || kiln_op_is_aside(ops[*out]);
        if (most != NO && (aside != best_aside ? aside : points <= most)) continue;
        *out = k;
        most = points;
    }
    return most == NO ? none_fits(ops, n, args, nargs, numbers, out) : KILN_OK;
}

/* -- by name --------------------------------------------------------------------------------------------- */

enum { NAME_MAX_LEN = 256 };

kiln_status kiln_served_overloads(const kiln_registry *r, const char *name, const kiln_op **out, size_t n,
                                  size_t *count) {
    char full[NAME_MAX_LEN];
    size_t first, all = 0;
    *count = 0;
    if (strchr(name, '.') || strlen(name) + 7 > sizeof full) return KILN_OK;
    snprintf(full, sizeof full, "%s%s", strstr(name, "::") ? "" : "aten::", name);
    all = kiln_registry_overloads(r, full, &first);
    for (size_t k = first; k < first + all; k++) {
        const kiln_op *op;
        KILN_TRY(kiln_registry_get(r, k, &op));
        if (!kiln_row_served(op->row)) continue;
        if (*count < n) out[*count] = op;
        ++*count;
    }
    return KILN_OK;
}

kiln_status kiln_registry_choose(const kiln_registry *r, const char *name, const kiln_value *args,
                                 size_t nargs, const kiln_op **out) {
    size_t n, which;
    KILN_TRY(kiln_served_overloads(r, name, NULL, 0, &n));
    if (n == 0) return kiln_registry_find(r, name, out);
    const kiln_op **ops = kiln_alloc(n * sizeof(*ops));
    if (!ops) return KILN_NOMEM();
    kiln_status st = kiln_served_overloads(r, name, ops, n, &n);
    if (st == KILN_OK && strcmp(ops[0]->name, name) == 0) /* the full name of the default overload */
        *out = ops[0];
    else if (st == KILN_OK && (st = kiln_choose(ops, n, args, nargs, &which)) == KILN_OK)
        *out = ops[which];
    kiln_free(ops);
    return st;
}
