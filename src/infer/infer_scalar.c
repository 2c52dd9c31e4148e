/* infer_scalar.c - number arguments -> the 8-byte parameters of a launch, in their compute type.
 *
 * Two ways, as PyTorch has two: a number that is used as it is must fit its type; one that was promoted
 * among tensors went through a tensor and is converted like an element. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "infer/infer_parts.h"

static kiln_status host_number(const kiln_bound *call, int k, kiln_dtype common, kiln_value *out) {
    const kiln_row *row = call->op->row;
    kiln_call_env env;
    kiln_hval v;
    if (k >= row->hosts.n) return KILN_BUG("%s: no host number %d", call->op->name, k);
    kiln_call_env_init(&env, call, common);
    KILN_TRY(kiln_note(kiln_expr_eval(&env.env, row->hosts.at[k].expr, &v), "%s: computing '%s'",
                       call->op->name, row->hosts.at[k].name));
    if (v.kind != KILN_H_BOOL && v.kind != KILN_H_INT && v.kind != KILN_H_FLOAT)
        return KILN_FAIL(KILN_E_ARG, "%s: '%s' is not a number for this call", call->op->name,
                         row->hosts.at[k].name);
    *out = v.kind == KILN_H_FLOAT  ? kiln_v_float(v.f)
           : v.kind == KILN_H_BOOL ? kiln_v_bool(v.i != 0)
                                   : kiln_v_int(v.i);
    return KILN_OK;
}

/* As a Scalar of PyTorch's has it: the least integer is its own negative. */
static kiln_value negative(const kiln_value *v) {
    if (v->kind == KILN_FLOAT_V) return kiln_v_float(-v->u.f);
    if (v->kind == KILN_COMPLEX_V) return kiln_v_complex(-v->u.c.re, -v->u.c.im);
    bool whole = v->kind == KILN_INT_V || v->kind == KILN_BOOL_V || v->kind == KILN_UINT_V;
    return whole ? kiln_v_int((int64_t)(0 - (uint64_t)v->u.i)) : *v;
}

static kiln_status read_number(const kiln_bound *call, int arg, int index, kiln_dtype common,
                               kiln_value *out) {
    if (arg >= KILN_HOST_ID) return host_number(call, arg - KILN_HOST_ID, common, out);
    const kiln_value *v = &call->arg[arg];
    const char *op = call->op->name, *name = kiln_arg_name(call, arg);
    if (v->kind == KILN_LIST_V) {
        if (index < 0 || (uint32_t)index >= v->n)
            return KILN_FAIL(KILN_E_INDEX, "%s: argument '%s' has no item %d: it has %u", op, name, index,
                             v->n);
        v = &v->u.list[index];
    }
    *out = *v;
    if (kiln_is_number(v)) return KILN_OK;
    return KILN_FAIL(KILN_E_ARG, "%s: argument '%s' must be a number here, not %s", op, name,
                     kiln_value_kind_name(v));
}

/* -- conversion ---------------------------------------------------------------------------------------- */

/* The part of a complex number that is asked for; a number that must be real is its own. */
static kiln_value part_of(const kiln_value *v, int part) {
    bool complex = v->kind == KILN_COMPLEX_V;
    if (part == 2) return kiln_v_float(complex ? v->u.c.im : 0);
    return complex ? kiln_v_float(v->u.c.re) : *v;
}

static bool fits(const kiln_value *v, kiln_dtype t) {
    if (v->kind == KILN_UINT_V) return kiln_dtype_fits_uint(t, (uint64_t)v->u.i);
    bool real = v->kind == KILN_FLOAT_V;
    return kiln_dtype_fits(t, real, v->kind == KILN_BOOL_V, real ? 0 : v->u.i, real ? v->u.f : 0);
}

/* The usual numbers, which fit wherever one looks: true if v is one. */
KILN_HOT static bool store_usual(const kiln_value *v, kiln_dtype t, uint64_t *out) {
    float f;
    if (t == KILN_F32 && v->kind == KILN_FLOAT_V && fabs(v->u.f) <= FLT_MAX)
        f = (float)v->u.f;
    else if (t == KILN_F32 && v->kind == KILN_INT_V)
        f = (float)v->u.i;
    else if ((t == KILN_F64 && v->kind == KILN_FLOAT_V) || (t == KILN_I64 && v->kind == KILN_INT_V)) {
        *out = (uint64_t)v->u.i; /* the bits of either */
        return true;
    } else {
        return false;
    }
    *out = 0;
    memcpy(out, &f, sizeof f);
    return true;
}

bool kiln_number_convert(const kiln_value *v, const kiln_scalar_source *s, bool checked, uint64_t *out) {
    if (s->part == 0 && s->via == s->dtype && store_usual(v, s->dtype, out)) return true;
    if (s->part & KILN_MINUS) {
        kiln_value minus = negative(v);
        kiln_scalar_source plain = {s->arg, s->index, s->via, s->dtype, s->part & ~KILN_MINUS};
        return kiln_number_convert(&minus, &plain, checked, out);
    }
    if (!kiln_is_number(v)) return false;
    *out = 1;
    if (s->part == 0 && v->kind == KILN_COMPLEX_V && v->u.c.im != 0) return s->via == KILN_BOOL;
    kiln_value one = part_of(v, s->part);
    if (checked && !fits(&one, s->via)) return false;
    *out = 0;
    (void)kiln_element_set(s->via, &one, out);
    if (s->via == s->dtype) return true;
    kiln_value half = kiln_element_get(s->via, out); /* only halves are computed in another type, f32 */
    (void)kiln_element_set(s->dtype, &half, out);
    return true;
}

bool kiln_plan_scalar_checked(const kiln_plan *plan, int arg) {
    return arg >= KILN_HOST_ID || !(kiln_args_wrapped(plan) >> arg & 1);
}

/* Apart, so that it costs the usual numbers nothing. */
static __attribute__((noinline)) kiln_status convert(const kiln_plan *plan, const kiln_scalar_source *s,
                                                     uint64_t *out) {
    const kiln_bound *call = plan->call;
    kiln_value v;
    KILN_TRY(read_number(call, s->arg, s->index, plan->typed.common, &v));
    if (kiln_number_convert(&v, s, kiln_plan_scalar_checked(plan, s->arg), out)) return KILN_OK;
    return KILN_FAIL(KILN_E_ARG, "%s: argument '%s': value cannot be converted to type %s without overflow",
                     call->op->name,
                     s->arg >= KILN_HOST_ID ? call->op->row->hosts.at[s->arg - KILN_HOST_ID].name
                                            : kiln_arg_name(call, s->arg),
                     kiln_dtype_name(s->via));
}

KILN_HOT kiln_status kiln_plan_scalar(const kiln_plan *plan, const kiln_scalar_source *s, uint64_t *out) {
    bool usual = s->part == 0 && s->via == s->dtype && s->arg < KILN_HOST_ID &&
                 store_usual(&plan->call->arg[s->arg], s->dtype, out);
    return usual ? KILN_OK : convert(plan, s, out);
}
