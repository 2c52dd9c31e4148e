/* list_items.c - a call over lists -> how many items there are, and the values of each item's own call.
 *
 * All lists that are walked have as many items.  A value of an item's call is the item of a list, the number in such a
 * tensor, or the same for all.  Binds the call and chooses the row's way; knows nothing of how items are run. */
#include "api/list_call.h"

static kiln_status wrong_lengths(const kiln_listing *l, int a, uint32_t n, uint32_t other) {
    const kiln_type *t = kiln_type_strip(l->op->row->schema->args[a].type, NULL);
    bool tensors = kiln_type_strip(t->elem, NULL)->kind == KILN_T_TENSOR;
    if (tensors)
        return KILN_FAIL(KILN_E_ARG, "%s: Tensor lists must have the same number of tensors, got %u and %u",
                         l->op->name, n, other);
    return KILN_FAIL(KILN_E_ARG,
                     "%s: Tensor list must have same number of elements as scalar list, got %u and %u",
                     l->op->name, n, other);
}

/* A list that an item's call does not use, and that may be empty. */
static bool is_unused(const kiln_listing *l, int a) { return l->how.unused >> a & 1; }

/* All lists have as many items, and the first has one. */
static kiln_status count_items(kiln_listing *l) {
    uint64_t each = l->how.each;
    bool any = false;
    for (int a = 0; a < l->op->row->schema->nargs; a++) {
        const kiln_value *v = &l->call.arg[a];
        if (!(each >> a & 1) || v->kind != KILN_LIST_V) continue;
        if (!any) l->n = v->n;
        if (!any && v->n == 0)
            return KILN_FAIL(KILN_E_ARG, "%s: Tensor list must have at least one tensor.", l->op->name);
        if (any && v->n == 0 && is_unused(l, a)) continue;
        if (v->n != l->n) return wrong_lengths(l, a, l->n, v->n);
        any = true;
    }
    if (l->outs && l->call.arg[l->op->row->schema->nargs].n != l->n)
        return KILN_FAIL(KILN_E_ARG, "%s: %u tensors were given for %u results", l->op->name,
                         l->call.arg[l->op->row->schema->nargs].n, l->n);
    return KILN_OK;
}

/* Tensors of which the numbers in them are meant have one element each. */
static kiln_status check_numbers(const kiln_listing *l, int a) {
    for (uint32_t k = 0; k < l->n; k++)
        if (l->call.arg[a].u.list[k].u.tensor->nelem != 1)
            return KILN_FAIL(KILN_E_ARG, "%s: argument '%s': item %u has %lld elements, expected one",
                             l->op->name, l->op->row->schema->args[a].name, k,
                             (long long)l->call.arg[a].u.list[k].u.tensor->nelem);
    return KILN_OK;
}

/* What each value of an item's call is: an item of a list, or the same for all. */
static kiln_status set_values(kiln_listing *l, const kiln_call_env *env) {
    const kiln_listed *c = &l->how;
    l->items = 0;
    for (int i = 0; i < c->args->n; i++) {
        const kiln_named *v = &c->args->at[i];
        int a = v->expr->kind == KILN_X_NAME && !v->expr->means ? v->expr->arg : -1;
        bool walks = a >= 0 && c->each >> a & 1, item = walks && l->op->row->items >> a & 1;
        l->walked[i] = walks && !is_unused(l, a) ? l->call.arg[a].u.list : NULL;
        l->args[i] = kiln_v_none();
        if (item) KILN_TRY(check_numbers(l, a));
        if (item) l->items |= 1ull << i;
        if (a < 0)
            KILN_TRY(kiln_call_value(env, v->expr, &l->args[i]));
        else if (!walks)
            l->args[i] = l->call.arg[a];
        l->args[i].name = v->name[0] ? v->name : NULL;
    }
    l->nargs = c->args->n;
    if (!l->outs) return KILN_OK;
    l->walked[l->nargs] = l->outs;
    l->args[l->nargs].name = l->item->schema->args[kiln_op_out_arg(l->item, 0)].name;
    l->nargs++;
    return KILN_OK;
}

kiln_status kiln_list_begin(kiln_listing *l, const kiln_op *op, const kiln_value *args, size_t nargs) {
    const kiln_row *row = op->row;
    kiln_call_env env;
    l->op = op;
    l->n = 0;
    KILN_TRY(kiln_bind(op, args, nargs, &l->call));
    KILN_TRY(kiln_checks_hold(&l->call, KILN_F32));
    kiln_call_env_init(&env, &l->call, KILN_F32);
    KILN_TRY(kiln_listed_find(&env, &l->how));
    l->item = l->how.item;
    if (!l->item) return KILN_OK;
    l->outs = op->form == KILN_FORM_OUT ? l->call.arg[row->schema->nargs].u.list : NULL;
    KILN_TRY(count_items(l));
    return set_values(l, &env);
}

kiln_value kiln_list_number(const kiln_tensor *t) {
    if (t->dtype == KILN_F32)
        return kiln_v_float((double)*(const float *)t->data); /* as PyTorch's own have it */
    kiln_value v = kiln_element_get((kiln_dtype)t->dtype, t->data);
    return v.kind == KILN_FLOAT_V ? v : kiln_v_float((double)v.u.i);
}

void kiln_list_enter(kiln_listing *l, uint32_t k) {
    for (int i = 0; i < l->nargs; i++) {
        if (!l->walked[i]) continue;
        const char *name = l->args[i].name;
        l->args[i] = l->items >> i & 1 ? kiln_list_number(l->walked[i][k].u.tensor) : l->walked[i][k];
        l->args[i].name = name;
    }
}
