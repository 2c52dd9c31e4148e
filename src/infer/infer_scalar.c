/* infer_scalar.c - number arguments -> the 8-byte parameter slots of a launch, in their compute type.
 *
 * Two ways, as PyTorch has two: a number that is used as it is must fit its type; one that was promoted
 * among tensors went through a tensor and is converted like an element. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "infer/infer_parts.h"

/* A number of any kind, exact; im is 0 unless it is complex. */
typedef struct number {
    bool is_float, is_bool;
    int64_t i;
    double f, im;
} number;

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

/* False if v is no number. */
static bool number_of(const kiln_value *v, number *out) {
    switch ((kiln_kind)v->kind) {
    case KILN_BOOL_V:
    case KILN_INT_V: *out = (number){false, v->kind == KILN_BOOL_V, v->u.i, (double)v->u.i, 0}; return true;
    case KILN_FLOAT_V: *out = (number){true, false, 0, v->u.f, 0}; return true;
    case KILN_COMPLEX_V: *out = (number){true, false, 0, v->u.c.re, v->u.c.im}; return true;
    case KILN_NONE:
    case KILN_TENSOR:
    case KILN_STR_V:
    case KILN_DTYPE_V:
    case KILN_LIST_V: break;
    }
    return false;
}

/* As a Scalar of PyTorch's has it: the least integer is its own negative. */
static kiln_value negative(const kiln_value *v) {
    if (v->kind == KILN_FLOAT_V) return kiln_v_float(-v->u.f);
    if (v->kind == KILN_COMPLEX_V) return kiln_v_complex(-v->u.c.re, -v->u.c.im);
    bool whole = v->kind == KILN_INT_V || v->kind == KILN_BOOL_V;
    return whole ? kiln_v_int((int64_t)(0 - (uint64_t)v->u.i)) : *v;
}

static kiln_status read_number(const kiln_bound *call, int slot, int index, kiln_dtype common, bool minus,
                               number *out) {
    bool host = slot >= KILN_HOST_ID;
    const kiln_value *v = host ? NULL : &call->slot[slot];
    const char *op = call->op->name, *name = host ? NULL : kiln_slot_name(call, slot);
    kiln_value made;
    if (host) {
        KILN_TRY(host_number(call, slot - KILN_HOST_ID, common, &made));
        v = &made;
    } else if (v->kind == KILN_LIST_V) {
        if (index < 0 || (uint32_t)index >= v->n)
            return KILN_FAIL(KILN_E_INDEX, "%s: argument '%s' has no item %d: it has %u", op, name, index,
                             v->n);
        v = &v->u.list[index];
    }
    if (minus) {
        made = negative(v);
        v = &made;
    }
    if (number_of(v, out)) return KILN_OK;
    return KILN_FAIL(KILN_E_ARG, "%s: argument '%s' must be a number here, not %s", op, name,
                     kiln_value_kind_name(v));
}

/* -- conversion ---------------------------------------------------------------------------------------- */

static uint64_t store(const number *n, kiln_dtype t) {
    uint64_t slot = 0;
    double d = n->is_float ? n->f : (double)n->i;
    /* an i64 goes to f32 in one rounding, as converting an element does */
    float f = n->is_float ? (float)n->f : (float)n->i;
    uint16_t h;
    int64_t i = n->is_float ? kiln_real_to_int(n->f, t) : n->i;
    switch (t) {
    case KILN_BOOL: slot = n->is_float ? n->f != 0 : n->i != 0; break;
    case KILN_F16:
        h = kiln_f32_to_half(f);
        memcpy(&slot, &h, sizeof h);
        break;
    case KILN_BF16:
        h = kiln_f32_to_bf16(f);
        memcpy(&slot, &h, sizeof h);
        break;
    case KILN_F32: memcpy(&slot, &f, sizeof f); break;
    case KILN_F64: memcpy(&slot, &d, sizeof d); break;
    default:
        memcpy(&slot, &i, kiln_dtype_size(t));
        break; /* little-endian: the low bytes are the wrapped value */
    }
    return slot;
}

static kiln_status convert(const kiln_bound *call, int slot, const number *n, kiln_dtype t, bool checked,
                           uint64_t *out) {
    if (checked && !kiln_dtype_fits(t, n->is_float, n->is_bool, n->i, n->f))
        return KILN_FAIL(KILN_E_ARG,
                         "%s: argument '%s': value cannot be converted to type %s without overflow",
                         call->op->name,
                         slot < KILN_HOST_ID ? kiln_slot_name(call, slot)
                                             : call->op->row->hosts.at[slot - KILN_HOST_ID].name,
                         kiln_dtype_name(t));
    *out = store(n, t);
    return KILN_OK;
}

/* One part of n as a number of its own. */
static number part_of(const number *n, int part) {
    number im = {true, false, 0, n->im, 0}, re = *n;
    re.im = 0;
    return part == 2 ? im : re;
}

static kiln_status convert_part(const kiln_bound *call, int slot, const number *n, int part, kiln_dtype t,
                                bool checked, uint64_t *out) {
    if (part == 0 && n->im != 0) {
        if (t != KILN_BOOL)
            return KILN_FAIL(
                KILN_E_ARG, "%s: argument '%s': value cannot be converted to type %s without overflow",
                call->op->name, slot < KILN_HOST_ID ? kiln_slot_name(call, slot) : "?", kiln_dtype_name(t));
        *out = 1;
        return KILN_OK;
    }
    number one = part_of(n, part);
    return convert(call, slot, &one, t, checked, out);
}

kiln_status kiln_scalar_to(const kiln_bound *call, int slot, int index, kiln_dtype t, uint64_t *out) {
    number n;
    KILN_TRY(read_number(call, slot, index, KILN_DTYPE_COUNT, false, &n));
    return convert_part(call, slot, &n, 0, t, true, out);
}

kiln_status kiln_scalar_cast(const kiln_bound *call, int slot, int index, kiln_dtype t, uint64_t *out) {
    number n;
    KILN_TRY(read_number(call, slot, index, KILN_DTYPE_COUNT, false, &n));
    return convert_part(call, slot, &n, 0, t, false, out);
}

/* The f32 that a half in a slot stands for, as a slot. */
static uint64_t widen_half(kiln_dtype half, uint64_t slot) {
    float f = half == KILN_F16 ? kiln_half_to_f32((uint16_t)slot) : kiln_bf16_to_f32((uint16_t)slot);
    uint64_t out = 0;
    memcpy(&out, &f, sizeof f);
    return out;
}

/* The usual numbers, which fit wherever one looks: true if v is one. */
static bool store_usual(const kiln_value *v, kiln_dtype t, uint64_t *out) {
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

bool kiln_number_convert(const kiln_value *v, int part, kiln_dtype via, kiln_dtype t, bool checked,
                         uint64_t *out) {
    number n;
    if (part == 0 && via == t && store_usual(v, t, out)) return true;
    if (part & KILN_MINUS) {
        kiln_value minus = negative(v);
        return kiln_number_convert(&minus, part & ~KILN_MINUS, via, t, checked, out);
    }
    if (!number_of(v, &n)) return false;
    if (part == 0 && n.im != 0) return false; /* rare: the caller finds out what to say */
    number one = part_of(&n, part);
    if (checked && !kiln_dtype_fits(via, one.is_float, one.is_bool, one.i, one.f)) return false;
    *out = store(&one, via);
    if (via != t) *out = widen_half(via, *out);
    return true;
}

bool kiln_plan_scalar_checked(const kiln_plan *plan, int slot) {
    return slot >= KILN_HOST_ID || !kiln_slot_wrapped(plan, slot);
}

kiln_status kiln_plan_scalar(const kiln_plan *plan, int slot, int index, int part, kiln_dtype via,
                             kiln_dtype t, uint64_t *out) {
    number n;
    if (part == 0 && via == t && slot < KILN_HOST_ID && store_usual(&plan->call->slot[slot], t, out))
        return KILN_OK;
    KILN_TRY(read_number(plan->call, slot, index, plan->common, part & KILN_MINUS, &n));
    KILN_TRY(convert_part(plan->call, slot, &n, part & ~KILN_MINUS, via, kiln_plan_scalar_checked(plan, slot),
                          out));
    if (via != t) *out = widen_half(via, *out); /* only halves are computed in another type */
    return KILN_OK;
}
