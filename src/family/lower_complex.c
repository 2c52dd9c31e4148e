/* lower_complex.c - values of expressions as IR values: one, or two for a complex number.
 *
 * IR has no complex values, only buffers of them, so loads, constants and casts are split here.
 * What functions do to complex numbers is not known here: rules say it in real arithmetic. */
#include "family/lower.h"

static bool is_pair(kiln_pair v) { return v.im != KILN_NOREF; }

kiln_pair kiln_pair_load(kiln_ir *ir, int buf) {
    if (ir->failed || !kiln_dtype_is_complex(ir->bufs[buf].dtype))
        return (kiln_pair){kiln_ir_load(ir, buf), KILN_NOREF};
    const kiln_ir_place place = {.buf = buf};
    kiln_ref re = kiln_ir_load_part(ir, place, KILN_PART_RE, KILN_NOREF, KILN_NOREF);
    return (kiln_pair){re, kiln_ir_load_part(ir, place, KILN_PART_IM, KILN_NOREF, KILN_NOREF)};
}

kiln_pair kiln_pair_const(kiln_ir *ir, kiln_dtype t, int64_t i, double f) {
    kiln_dtype part = kiln_dtype_real(t);
    kiln_pair v = {kiln_dtype_is_float(part) ? kiln_ir_const_f(ir, part, f) : kiln_ir_const_i(ir, part, i),
                   KILN_NOREF};
    if (part != t) v.im = kiln_ir_const_f(ir, part, 0);
    return v;
}

kiln_pair kiln_pair_cast(kiln_ir *ir, kiln_dtype to, kiln_pair v) {
    kiln_dtype part = kiln_dtype_real(to);
    if (is_pair(v) && to == KILN_BOOL) {
        kiln_ref any[2] = {kiln_ir_cast(ir, KILN_BOOL, v.re), kiln_ir_cast(ir, KILN_BOOL, v.im)};
        return (kiln_pair){kiln_ir_prim(ir, KILN_P_OR, any, 2), KILN_NOREF};
    }
    kiln_pair r = {kiln_ir_cast(ir, part, v.re), KILN_NOREF};
    if (part != to) r.im = is_pair(v) ? kiln_ir_cast(ir, part, v.im) : kiln_ir_const_f(ir, part, 0);
    return r;
}
