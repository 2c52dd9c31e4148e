/* fold_leaves.c - what the expressions of a fold end in -> IR: states, counts, places, and reads at computed places.
 *
 * Which value a state is depends on where the expression stands: in a step, in a merge, after the fold.  Must not know
 * nests or trees. */
#include "family/fold_lower.h"
#include "family/kept_folded.h"

/* -- leaves of expressions ------------------------------------------------------------------------------------ */

kiln_ref kiln_fold_cell(kiln_folding *f, int k, bool right) {
    kiln_ir *ir = f->base.ir;
    switch (f->now) {
    case IN_STEP: return kiln_ir_state(ir, k);
    case IN_MERGE: return right ? kiln_ir_right(ir, k) : kiln_ir_left(ir, k);
    case IN_FINISH: return f->one ? f->in_one[k] : kiln_ir_result(ir, f->folded, k);
    case IN_BEGINNING:
    case IN_BLOCK: break;
    }
    ir->failed = true; /* row_check.c refuses it */
    ir->why = "a state where there is none yet";
    return 0;
}

static kiln_pair state(kiln_lowering *lw, const kiln_texpr *e) {
    kiln_folding *f = (kiln_folding *)lw;
    int k = f->states.at[e->id];
    bool right = e->kind == KILN_TE_RHS;
    kiln_pair v = {kiln_fold_cell(f, k, right), KILN_NOREF};
    if (kiln_dtype_is_complex(f->states.dtype[e->id])) v.im = kiln_fold_cell(f, k + 1, right);
    if (f->first != KILN_NOREF && f->places >> e->id & 1) v.re = kiln_ir_cast(lw->ir, KILN_I64, v.re);
    return v;
}

kiln_ref kiln_fold_binary(kiln_ir *ir, kiln_prim prim, kiln_ref a, kiln_ref b) {
    kiln_ref both[2] = {a, b};
    return kiln_ir_prim(ir, prim, both, 2);
}

kiln_ref kiln_fold_count(kiln_folding *f, bool right) {
    kiln_ir *ir = f->base.ir;
    if (f->now == IN_MERGE) return kiln_fold_cell(f, f->count, right);
    kiln_ref n = kiln_ir_extent(ir, f->reduced[f->nreduced - 1]);
    if ((f->now != IN_BLOCK || f->one) && f->nreduced == 2)
        n = kiln_fold_binary(ir, KILN_P_MUL, kiln_ir_extent(ir, f->reduced[0]), n);
    return n;
}

kiln_ref kiln_fold_distance(kiln_folding *f) {
    kiln_ref at = kiln_ir_index(f->base.ir, f->reduced[f->nreduced - 1]);
    return kiln_ir_cast(f->base.ir, KILN_I32, kiln_fold_binary(f->base.ir, KILN_P_SUB, at, f->first));
}

kiln_ref kiln_fold_place(kiln_folding *f) {
    kiln_ir *ir = f->base.ir;
    if (f->first != KILN_NOREF)
        return kiln_ir_cast(ir, KILN_I64, kiln_fold_distance(f)); /* is only compared */
    kiln_ref at = kiln_ir_index(ir, f->reduced[f->nreduced - 1]);
    if (f->nreduced < 2) return at;
    kiln_ref before = kiln_fold_binary(ir, KILN_P_MUL, kiln_ir_index(ir, f->reduced[0]),
                                       kiln_ir_extent(ir, f->reduced[1]));
    return kiln_fold_binary(ir, KILN_P_ADD, before, at);
}

static kiln_pair position(kiln_lowering *lw, const kiln_texpr *e) {
    kiln_folding *f = (kiln_folding *)lw;
    kiln_ref v = e->kind == KILN_TE_COUNT ? kiln_fold_count(f, e->id) : kiln_fold_place(f);
    return (kiln_pair){v, KILN_NOREF};
}

/* -- computed places ------------------------------------------------------------------------------------------- */

static kiln_pair access(kiln_lowering *lw, const kiln_texpr *e) {
    kiln_folding *f = (kiln_folding *)lw;
    for (int k = 0; k < f->nread; k++)
        if (f->read[k].of == e->from) return f->read[k].v;
    return kiln_lower_access(lw, e, f->axis_of[lw->buf_of_arg[e->id]]);
}

bool kiln_fold_stands(const kiln_folding *f, int b) {
    return kiln_is_lacking(f->base.plan, b) || f->base.row->kept >> f->base.plan->buffer[b].which & 1;
}

bool kiln_fold_is_still(const kiln_folding *f, const kiln_texpr *e) {
    if (!e) return true;
    const kiln_plan *p = f->base.plan;
    bool element = e->kind == KILN_TE_ELEM && !kiln_fold_stands(f, f->base.buf_of_arg[e->id]);
    bool moves = e->kind == KILN_TE_ACCESS && !kiln_is_table(p, f->base.buf_of_arg[e->id]);
    if (element || moves || e->kind == KILN_TE_POS) return false;
    for (int k = 0; k < e->nargs; k++)
        if (!kiln_fold_is_still(f, e->args[k])) return false;
    return true;
}

void kiln_fold_read_ahead(kiln_folding *f, const kiln_texpr *e) {
    if (!e) return;
    for (int k = 0; k < e->nargs; k++) kiln_fold_read_ahead(f, e->args[k]);
    if (!kiln_fold_is_still(f, e)) return;
    if (e->kind == KILN_TE_ELEM) f->ahead |= 1ull << e->id;
    if (e->kind == KILN_TE_ELEM || e->kind == KILN_TE_ACCESS) {
        kiln_pair v = kiln_lower_expr(&f->base, e);
        if (e->kind == KILN_TE_ELEM || f->nread == KILN_ROW_MAX_NAMED) return;
        f->read[f->nread].of = e->from;
        f->read[f->nread++].v = v;
    }
}

void kiln_fold_forget_moving(kiln_folding *f) {
    for (int a = 0; a < KILN_MAX_ARGS; a++)
        if (!((f->ahead | f->base.kept) >> a & 1))
            f->base.loaded[a][0].re = f->base.loaded[a][1].re = KILN_NOREF;
}

void kiln_fold_leaves(kiln_folding *f) {
    f->base.state = state;
    f->base.position = position;
    f->base.access = access;
}
