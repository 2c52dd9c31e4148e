/* call_env.c - what the conditions of a row ask of its arguments -> values of a bound call.
 *
 * Conditions name arguments by their numbers, which the row found when it was loaded.  Owns nothing. */
#include "infer/infer_parts.h"

/* Inlined, so that who wants its dtype alone has nothing else made. */
static inline __attribute__((always_inline)) kiln_hval host_value(const kiln_value *v, int arg) {
    switch ((kiln_kind)v->kind) {
    case KILN_BOOL_V:
        return (kiln_hval){.kind = KILN_H_BOOL, .i = v->u.i, .f = (double)v->u.i, .dtype = KILN_BOOL};
    case KILN_INT_V:
        return (kiln_hval){.kind = KILN_H_INT, .i = v->u.i, .f = (double)v->u.i, .dtype = KILN_I64};
    case KILN_FLOAT_V: return (kiln_hval){.kind = KILN_H_FLOAT, .f = v->u.f, .dtype = KILN_F64};
    case KILN_UINT_V: /* compared as a float; u64 tells that it is whole, and i which one */
        return (kiln_hval){
            .kind = KILN_H_FLOAT, .i = v->u.i, .f = (double)(uint64_t)v->u.i, .dtype = KILN_U64};
    case KILN_COMPLEX_V:
        return (kiln_hval){.kind = KILN_H_COMPLEX, .f = v->u.c.re, .im = v->u.c.im, .dtype = KILN_C128};
    case KILN_TENSOR:
        return (kiln_hval){.kind = KILN_H_TENSOR, .i = arg, .dtype = (kiln_dtype)v->u.tensor->dtype};
    case KILN_DTYPE_V: return (kiln_hval){.kind = KILN_H_DTYPE, .i = v->u.i, .dtype = (kiln_dtype)v->u.i};
    case KILN_STR_V: return (kiln_hval){.kind = KILN_H_STR, .s = v->u.s, .dtype = KILN_DTYPE_COUNT};
    case KILN_LIST_V: return (kiln_hval){.kind = KILN_H_LIST, .i = v->n, .dtype = KILN_DTYPE_COUNT};
    case KILN_GENERATOR_V: return (kiln_hval){.kind = KILN_H_OBJECT, .dtype = KILN_DTYPE_COUNT};
    case KILN_NONE: break;
    }
    return (kiln_hval){.kind = KILN_H_NONE, .dtype = KILN_DTYPE_COUNT};
}

static void get(const kiln_henv *env, int arg, kiln_hval *out) {
    const kiln_bound *call = ((const kiln_call_env *)env)->call;
    *out = host_value(&call->arg[arg], arg);
    if (out->kind == KILN_H_FLOAT && call->op->row->items >> arg & 1)
        out->dtype = (kiln_dtype)call->item_dtype[arg];
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

/* A number that stands for an item of a tensor has the dtype of that, which quick expressions do not know. */
static void look(const kiln_henv *env, int arg, kiln_hseen *out) {
    const kiln_bound *call = ((const kiln_call_env *)env)->call;
    const kiln_value *v = &call->arg[arg];
    if (v->kind == KILN_TENSOR) {
        out->kind = KILN_H_TENSOR;
        out->dtype = (kiln_dtype)v->u.tensor->dtype;
        out->rank = v->u.tensor->rank;
        out->sizes = v->u.tensor->sizes;
        return;
    }
    out->kind = KILN_H_OBJECT;
    if (v->kind == KILN_INT_V) out->kind = KILN_H_INT, out->i = v->u.i;
    if (v->kind == KILN_BOOL_V) out->kind = KILN_H_BOOL, out->i = v->u.i;
    if (v->kind == KILN_NONE) out->kind = KILN_H_NONE;
    if (v->kind == KILN_FLOAT_V && !(call->op->row->items >> arg & 1))
        out->kind = KILN_H_FLOAT, out->f = v->u.f;
}

static bool contiguous(const kiln_henv *env, int arg, bool channels_last) {
    const kiln_bound *call = ((const kiln_call_env *)env)->call;
    unsigned flag = channels_last ? KILN_TF_CHANNELS_LAST : KILN_TF_CONTIGUOUS, flags = flag;
    if (arg >= 0) return call->arg[arg].kind == KILN_TENSOR && call->arg[arg].u.tensor->flags & flag;
    for (int k = 0; k < call->nout; k++) flags &= call->out[k]->flags;
    return flags;
}

kiln_dtype kiln_arg_dtype(const kiln_bound *call, int arg) { return host_value(&call->arg[arg], arg).dtype; }

static kiln_dtype dtype(const kiln_henv *env, int arg) {
    return kiln_arg_dtype(((const kiln_call_env *)env)->call, arg);
}

void kiln_call_env_init(kiln_call_env *ce, const kiln_bound *call, kiln_dtype common) {
    *ce = (kiln_call_env){{.get = get,
                           .item = item,
                           .size = size,
                           .dtype = dtype,
                           .contiguous = contiguous,
                           .look = look,
                           .common = common,
                           .given = call->nout ? (kiln_dtype)call->out[0]->dtype : common},
                          call};
    ce->env.source = call->op->row->source;
    ce->env.in_place = call->op->form == KILN_FORM_INPLACE ? 1 : -1;
    ce->env.out_form = call->op->form == KILN_FORM_OUT ? 1 : -1;
}

/* -- calls within ---------------------------------------------------------------------------------------- */

kiln_status kiln_call_value(const kiln_call_env *ce, const kiln_expr *e, kiln_value *out) {
    const char *name = ce->call->op->name;
    kiln_hval v;
    KILN_TRY(kiln_note(kiln_expr_eval(&ce->env, e, &v), "%s", name));
    switch (v.kind) {
    case KILN_H_NONE: *out = kiln_v_none(); return KILN_OK;
    case KILN_H_BOOL: *out = kiln_v_bool(v.i != 0); return KILN_OK;
    case KILN_H_INT: *out = kiln_v_int(v.i); return KILN_OK;
    case KILN_H_FLOAT: *out = kiln_v_float(v.f); return KILN_OK;
    case KILN_H_COMPLEX: *out = kiln_v_complex(v.f, v.im); return KILN_OK;
    case KILN_H_STR: *out = kiln_v_str(v.s); return KILN_OK;
    case KILN_H_DTYPE: *out = kiln_v_dtype((kiln_dtype)v.i); return KILN_OK;
    case KILN_H_UNKNOWN:
    case KILN_H_LIST:
    case KILN_H_TENSOR:
    case KILN_H_OBJECT: break;
    }
    return KILN_FAIL(KILN_E_TYPE, "%s: what it gives to a call is no number", name);
}
