/* lower_access.c - elements at computed places -> guarded loads with a coordinate.
 *
 * A place that the buffer does not have is not touched: the row's other value stands for it.  Which axis measures the
 * buffer there, and which dimensions it has beside, is the family's to say.  Owns nothing; must not know sizes. */
#include "family/lower.h"

/* The one coordinate that is computed; others are where the loops are. */
static const kiln_texpr *coordinate(const kiln_texpr *e) {
    int k = 0;
    while (!e->args[k]) k++;
    return e->args[k];
}

static kiln_ref binary(kiln_ir *ir, kiln_prim prim, kiln_ref a, kiln_ref b) {
    kiln_ref both[2] = {a, b};
    return kiln_ir_prim(ir, prim, both, 2);
}

kiln_pair kiln_lower_access(kiln_lowering *lw, const kiln_texpr *e, int axis) {
    kiln_ir *ir = lw->ir;
    int buf = lw->buf_of_arg[e->id];
    kiln_dtype t = ir->bufs[buf].dtype;
    const kiln_ir_coord at = {(uint8_t)axis, kiln_lower_expr(lw, coordinate(e)).re};
    kiln_ref from = binary(ir, KILN_P_GE, at.at, kiln_ir_const_i(ir, KILN_I64, 0));
    kiln_ref there = binary(ir, KILN_P_AND, from, binary(ir, KILN_P_LT, at.at, kiln_ir_extent(ir, axis)));
    kiln_pair other = kiln_pair_cast(ir, t, kiln_lower_expr(lw, e->args[e->nargs - 1])), v = {0, KILN_NOREF};
    bool complex = kiln_dtype_is_complex(t);
    const kiln_ir_place place = {buf, &at, 1};
    v.re = kiln_ir_load_part(ir, place, complex ? KILN_PART_RE : KILN_PART_WHOLE, there, other.re);
    if (complex) v.im = kiln_ir_load_part(ir, place, KILN_PART_IM, there, other.im);
    return kiln_lower_loaded(lw, e->id, v, false);
}
