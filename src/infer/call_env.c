/* call_env.c - names in a row's conditions -> values of a bound call.
 *
 * Arguments by name, the row's lets and host numbers as expressions, and `common`.  Owns nothing. */
#include "infer/infer_parts.h"

static kiln_hval number(kiln_hkind kind, kiln_dtype dtype, const kiln_value *v) {
    kiln_hval h = {.kind = kind, .dtype = dtype};
    if (kind == KILN_H_FLOAT) {
        h.f = v->u.f;
    } else {
        h.i = v->u.i;
        h.f = (double)v->u.i;
    }
    return h;
}

static kiln_hval host_value(const kiln_value *v, int slot) {
    kiln_hval h = {.kind = KILN_H_NONE, .dtype = KILN_DTYPE_COUNT};
    switch ((kiln_kind)v->kind) {
    case KILN_BOOL_V: return number(KILN_H_BOOL, KILN_BOOL, v);
    case KILN_INT_V: return number(KILN_H_INT, KILN_I64, v);
    case KILN_FLOAT_V: return number(KILN_H_FLOAT, KILN_F64, v);
    case KILN_TENSOR:
        h.kind = KILN_H_TENSOR;
        h.i = slot;
        h.dtype = (kiln_dtype)v->u.tensor->dtype;
        break;
    case KILN_STR_V:
        h.kind = KILN_H_STR;
        h.s = v->u.s;
        break;
    case KILN_DTYPE_V:
        h.kind = KILN_H_DTYPE;
        h.i = v->u.i;
        h.dtype = (kiln_dtype)v->u.i;
        break;
    case KILN_LIST_V:
        h.kind = KILN_H_LIST;
        h.i = v->n;
        break;
    case KILN_COMPLEX_V:
        h.kind = KILN_H_COMPLEX;
        h.f = v->u.c.re;
        h.im = v->u.c.im;
        h.dtype = KILN_C128;
        break;
    case KILN_NONE: break;
    }
    return h;
}

static bool get(const kiln_henv *env, const char *name, kiln_hval *out) {
    const kiln_call_env *ce = (const kiln_call_env *)env;
    const kiln_row *row = ce->call->op->row;
    int slot = kiln_schema_arg(row->schema, name);
    if (slot >= 0) {
        *out = host_value(&ce->call->slot[slot], slot);
        return true;
    }
    if (!kiln_str_eq(name, "common")) return false;
    bool known = ce->common != KILN_DTYPE_COUNT;
    *out = (kiln_hval){.kind = known ? KILN_H_DTYPE : KILN_H_UNKNOWN, .i = ce->common, .dtype = ce->common};
    return true;
}

static bool item(const kiln_henv *env, const char *name, int64_t k, kiln_hval *out) {
    const kiln_call_env *ce = (const kiln_call_env *)env;
    int slot = kiln_schema_arg(ce->call->op->row->schema, name);
    if (slot < 0 || ce->call->slot[slot].kind != KILN_LIST_V) return false;
    const kiln_value *v = &ce->call->slot[slot];
    if (k < 0) k += v->n;
    if (k < 0 || k >= (int64_t)v->n) return false;
    *out = host_value(&v->u.list[k], slot);
    return true;
}

static bool size(const kiln_henv *env, int arg, int64_t dim, int64_t *out) {
    const kiln_call_env *ce = (const kiln_call_env *)env;
    const kiln_value *v = &ce->call->slot[arg];
    if (v->kind != KILN_TENSOR) return false;
    if (dim < 0) dim += v->u.tensor->rank;
    if (dim < 0 || dim >= v->u.tensor->rank) return false;
    *out = v->u.tensor->sizes[dim];
    return true;
}

static const kiln_expr *expand(const kiln_henv *env, const char *name) {
    const kiln_row *row = ((const kiln_call_env *)env)->call->op->row;
    for (int k = 0; k < row->lets.n; k++)
        if (kiln_str_eq(row->lets.at[k].name, name)) return row->lets.at[k].expr;
    return kiln_row_host(row, name);
}

void kiln_call_env_init(kiln_call_env *ce, const kiln_bound *call, kiln_dtype common) {
    const kiln_row *row = call->op->row;
    *ce = (kiln_call_env){{get, item, size, expand, row->source ? row->source : "ops", NULL}, call, common};
}
