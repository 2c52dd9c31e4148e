/* call_env.c - what the conditions of a row ask of its arguments -> values of a bound call.
 *
 * Conditions name arguments by their numbers, which the row found when it was loaded.  Owns nothing. */
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

static kiln_hval host_value(const kiln_value *v, int arg) {
    kiln_hval h = {.kind = KILN_H_NONE, .dtype = KILN_DTYPE_COUNT};
    switch ((kiln_kind)v->kind) {
    case KILN_BOOL_V: return number(KILN_H_BOOL, KILN_BOOL, v);
    case KILN_INT_V: return number(KILN_H_INT, KILN_I64, v);
    case KILN_FLOAT_V: return number(KILN_H_FLOAT, KILN_F64, v);
    case KILN_UINT_V: /* compared as a float; u64 tells that it is whole, and i which one */
        return (kiln_hval){
            .kind = KILN_H_FLOAT, .i = v->u.i, .f = (double)(uint64_t)v->u.i, .dtype = KILN_U64};
    case KILN_TENSOR:
        h.kind = KILN_H_TENSOR;
        h.i = arg;
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
    case KILN_GENERATOR_V: h.kind = KILN_H_OBJECT; break;
    case KILN_NONE: break;
    }
    return h;
}

static void get(const kiln_henv *env, int arg, kiln_hval *out) {
    *out = host_value(&((const kiln_call_env *)env)->call->arg[arg], arg);
}

static bool item(const kiln_henv *env, int arg, int64_t k, kiln_hval *out) {
    const kiln_value *v = &((const kiln_call_env *)env)->call->arg[arg];
    if (v->kind != KILN_LIST_V) return false;
    if (k < 0) k += v->n;
    if (k < 0 || k >= (int64_t)v->n) return false;
    *out = host_value(&v->u.list[k], arg);
    return true;
}

static bool size(const kiln_henv *env, int arg, int64_t dim, int64_t *out) {
    const kiln_call_env *ce = (const kiln_call_env *)env;
    const kiln_value *v = &ce->call->arg[arg];
    if (v->kind != KILN_TENSOR) return false;
    if (dim < 0) dim += v->u.tensor->rank;
    if (dim < 0 || dim >= v->u.tensor->rank) return false;
    *out = v->u.tensor->sizes[dim];
    return true;
}

static kiln_dtype dtype(const kiln_henv *env, int arg) {
    const kiln_value *v = &((const kiln_call_env *)env)->call->arg[arg];
    switch ((kiln_kind)v->kind) {
    case KILN_TENSOR: return (kiln_dtype)v->u.tensor->dtype;
    case KILN_BOOL_V: return KILN_BOOL;
    case KILN_INT_V: return KILN_I64;
    case KILN_UINT_V: return KILN_U64;
    case KILN_FLOAT_V: return KILN_F64;
    case KILN_COMPLEX_V: return KILN_C128;
    default: return KILN_DTYPE_COUNT;
    }
}

void kiln_call_env_init(kiln_call_env *ce, const kiln_bound *call, kiln_dtype common) {
    *ce = (kiln_call_env){{.get = get, .item = item, .size = size, .dtype = dtype, .common = common}, call};
    ce->env.source = call->op->row->source;
    ce->env.in_place = call->op->form == KILN_FORM_INPLACE ? 1 : -1;
}
