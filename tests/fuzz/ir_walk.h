/* ir_walk.h - a second, naive reading of docs/IR.md: one point after the other, one value after the other.
 *
 * No blocks, no slots, nothing moved: what the interpreter is compared with.  Primitives and casts are
 * the compiled-in loops on one element.  Kernels with computed coordinates are not its business. */
#ifndef KILN_IR_WALK_H
#define KILN_IR_WALK_H
#include <string.h>

#include "run/interp.h"
#include "run/loops.h"

typedef struct cell {
    _Alignas(64) unsigned char byte[64 * 8]; /* the first element counts */
} cell;

typedef struct walk {
    const kiln_ir *ir;
    const kiln_loops *loops;
    const kiln_launch *l;
    cell *v;         /* per instruction */
    int64_t pos[16]; /* per launch dimension */
    int dim[KILN_IR_MAX_AXES];
    int32_t trap;
} walk;

typedef struct states {
    cell s[KILN_IR_MAX_STATES];
} states;

static void walk_part(walk *w, int begin, const states *now, const states *right, states *out);

static int walk_part_end(const walk *w, int i) {
    for (;; i++) {
        int op = w->ir->ins[i].op;
        if (op == KILN_IR_END || op == KILN_IR_MERGE) return i;
        if (op == KILN_IR_FOR || op == KILN_IR_FOLD || op == KILN_IR_SCAN) i = kiln_ir_region_end(w->ir, i);
    }
}

static void walk_fold(walk *w, int open, states *out) {
    const kiln_ir_ins *f = &w->ir->ins[open];
    int dim = w->dim[f->which], merge = walk_part_end(w, open + 1) + 1, top = 0;
    int64_t n = w->l->n[dim];
    static _Thread_local states init[8], lane[8][64], stack[8][8];
    static _Thread_local int depth;
    int d = depth++;
    for (int k = 0; k < f->nargs; k++) init[d].s[k] = w->v[f->list[k]];
    *out = init[d];
    for (int64_t b = 0; b * 4096 < n; b++) {
        int64_t m = n - b * 4096 < 4096 ? n - b * 4096 : 4096, lanes = m < 64 ? m : 64;
        for (int64_t l = 0; l < lanes; l++) {
            lane[d][l] = init[d];
            for (int64_t i = l; i < m; i += 64) {
                w->pos[dim] = b * 4096 + i;
                walk_part(w, open + 1, &lane[d][l], NULL, &lane[d][l]);
            }
        }
        for (int64_t apart = 32; apart; apart /= 2)
            for (int64_t l = 0; l < apart && l + apart < lanes; l++)
                walk_part(w, merge, &lane[d][l], &lane[d][l + apart], &lane[d][l]);
        stack[d][top++] = lane[d][0];
        for (int64_t k = b; k & 1; k >>= 1, top--)
            walk_part(w, merge, &stack[d][top - 2], &stack[d][top - 1], &stack[d][top - 2]);
    }
    for (; top > 1; top--) walk_part(w, merge, &stack[d][top - 2], &stack[d][top - 1], &stack[d][top - 2]);
    if (n > 0) *out = stack[d][0];
    depth--;
}

static void walk_scan(walk *w, int open, states *out) {
    const kiln_ir_ins *f = &w->ir->ins[open];
    for (int k = 0; k < f->nargs; k++) out->s[k] = w->v[f->list[k]];
    for (int64_t i = 0; i < w->l->n[w->dim[f->which]] && !w->trap; i++) {
        w->pos[w->dim[f->which]] = i;
        walk_part(w, open + 1, out, NULL, out);
    }
}

static void walk_for(walk *w, int open, const states *now) {
    const kiln_ir_ins *f = &w->ir->ins[open];
    int dim = w->dim[f->which];
    bool grid = w->ir->axes[f->which].grid;
    for (int64_t j = 0; j < (grid ? w->l->n[dim + 1] : 1) && !w->trap; j++)
        for (int64_t i = 0; i < w->l->n[dim] && !w->trap; i++) {
            w->pos[dim] = i;
            if (grid) w->pos[dim + 1] = j;
            walk_part(w, open + 1, now, NULL, NULL);
        }
}

static char *walk_address(const walk *w, int buf) {
    int64_t off = 0;
    for (int a = 0; a < w->ir->naxes; a++) {
        if (!(w->ir->bufs[buf].axes >> a & 1)) continue;
        const int64_t *stride = w->l->stride + buf * w->l->ndim + w->dim[a];
        off += w->pos[w->dim[a]] * stride[0];
        if (w->ir->axes[a].grid) off += w->pos[w->dim[a] + 1] * stride[1];
    }
    return w->l->ptr[buf] + off;
}

static void walk_value(walk *w, int i, const states *now, const states *right) {
    const kiln_ir_ins *ins = &w->ir->ins[i];
    cell *out = &w->v[i];
    size_t size = kiln_dtype_size((kiln_dtype)ins->dtype);
    const unsigned char *arg[3] = {0};
    float f = (float)ins->imm.f;
    for (int k = 0; k < ins->nargs && k < 3 && !ins->list; k++)
        if (ins->op != KILN_IR_RESULT) arg[k] = w->v[ins->arg[k]].byte;
    int t = ins->nargs && !ins->list ? w->ir->ins[ins->arg[ins->nargs - 1]].dtype : 0;
    switch (ins->op) {
    case KILN_IR_CONST: memcpy(out, ins->dtype == KILN_F32 ? (void *)&f : (void *)&ins->imm, size); break;
    case KILN_IR_PAR: memcpy(out, &w->l->par[ins->which], size); break;
    case KILN_IR_EXTENT: memcpy(out, &w->l->n[w->dim[ins->which]], size); break;
    case KILN_IR_INDEX: memcpy(out, &w->pos[w->dim[ins->which]], size); break;
    case KILN_IR_PRIM: w->loops->prim[ins->prim][t](out, arg[0], arg[1], arg[2], 1); break;
    case KILN_IR_CAST: w->loops->cast[ins->dtype][t](out, arg[0], NULL, NULL, 1); break;
    case KILN_IR_STATE:
    case KILN_IR_LEFT: *out = now->s[ins->which]; break;
    case KILN_IR_RIGHT: *out = right->s[ins->which]; break;
    case KILN_IR_LOAD:
        if (ins->nargs) memcpy(out, arg[1], size);
        if (!ins->nargs || arg[0][0])
            memcpy(out, walk_address(w, ins->which) + (ins->prim == KILN_PART_IM ? size : 0), size);
        if (ins->dtype == KILN_BOOL) out->byte[0] = out->byte[0] != 0;
        break;
    case KILN_IR_STORE:
        size = kiln_dtype_size(kiln_dtype_real((kiln_dtype)ins->dtype));
        for (int k = 0, n = kiln_ir_store_values(ins); k < n; k++)
            if (ins->nargs == n || arg[n][0])
                memcpy(walk_address(w, ins->which) + (size_t)k * size, arg[k], size);
        break;
    case KILN_IR_TRAP:
        if (arg[0][0]) w->trap = KILN_TRAP_BASE + ins->which;
        break;
    default: break;
    }
}

/* Runs instructions from begin to the end of their region part. */
static void walk_part(walk *w, int begin, const states *now, const states *right, states *out) {
    for (int i = begin; !w->trap; i++) {
        const kiln_ir_ins *ins = &w->ir->ins[i];
        if (ins->op == KILN_IR_END || ins->op == KILN_IR_MERGE) return;
        if (ins->op == KILN_IR_YIELD) {
            states made;
            for (int k = 0; k < ins->nargs; k++) made.s[k] = w->v[ins->list[k]];
            *out = made;
        } else if (ins->op == KILN_IR_FOR) {
            walk_for(w, i, now);
            i = kiln_ir_region_end(w->ir, i);
        } else if (ins->op == KILN_IR_FOLD || ins->op == KILN_IR_SCAN) {
            states made;
            if (ins->op == KILN_IR_FOLD)
                walk_fold(w, i, &made);
            else
                walk_scan(w, i, &made);
            int end = kiln_ir_region_end(w->ir, i);
            for (int j = end + 1; j < w->ir->nins; j++) /* results may stand deeper */
                if (w->ir->ins[j].op == KILN_IR_RESULT && w->ir->ins[j].arg[0] == (kiln_ref)i)
                    w->v[j] = made.s[w->ir->ins[j].which];
            i = end;
        } else {
            walk_value(w, i, now, right);
        }
    }
}

/* Runs one nest; v: one cell per instruction.  Returns 0 or a trap. */
static int32_t walk_nest(const kiln_ir *ir, kiln_isa isa, const kiln_launch *l, cell *v) {
    walk w = {.ir = ir, .loops = kiln_loops_for(isa), .l = l, .v = v};
    for (int a = 0, d = 0; a < ir->naxes; d += ir->axes[a++].grid ? 2 : 1) w.dim[a] = d;
    walk_for(&w, kiln_ir_nest_begin(ir, l->nest), NULL);
    return w.trap;
}
#endif
