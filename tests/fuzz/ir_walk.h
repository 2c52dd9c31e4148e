/* ir_walk.h - a second, naive reading of docs/IR.md: one point after the other, one value after the other.
 *
 * No vectors, no registers, nothing moved: what the interpreter is compared with.  Primitives and casts are
 * the compiled-in loops on one element. */
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
    cell *v;                     /* per instruction */
    int64_t pos[16];             /* per launch dimension */
    int64_t first[16], many[16]; /* what loops run over: all positions, or those of a block */
    int dim[KILN_IR_MAX_AXES];
    bool silent; /* for the total of a scan's block: nothing is stored, no trap fires */
    int32_t trap;
} walk;

typedef struct states {
    cell s[KILN_IR_MAX_STATES];
} states;

static void walk_copy(states *to, const states *from, int n) {
    memmove(to->s, from->s, sizeof(cell) * (size_t)n);
}

static void walk_part(walk *w, int begin, const states *now, const states *right, states *out);

static int walk_part_end(const walk *w, int i) {
    for (;; i++) {
        int op = w->ir->ins[i].op;
        if (op == KILN_IR_END || op == KILN_IR_MERGE) return i;
        if (kiln_ir_opens(&w->ir->ins[i])) i = kiln_ir_region_end(w->ir, i);
    }
}

/* -- folds ------------------------------------------------------------------------------------------------ */

/* States of items, merged as a binary counter counts. */
typedef struct counter {
    states stack[48];
    int top, nstates;
    int64_t items;
} counter;

static void walk_top_two(walk *w, int merge, counter *c) {
    walk_part(w, merge, &c->stack[c->top - 2], &c->stack[c->top - 1], &c->stack[c->top - 2]);
    c->top--;
}

static void walk_push(walk *w, int merge, counter *c, const states *item) {
    walk_copy(&c->stack[c->top++], item, c->nstates);
    for (int64_t k = c->items++; k & 1; k >>= 1) walk_top_two(w, merge, c);
}

static const states *walk_close(walk *w, int merge, counter *c) {
    while (c->top > 1) walk_top_two(w, merge, c);
    return &c->stack[0];
}

/* What a fold in progress holds, by how deep it stands in others. */
typedef struct folding {
    states init, lane[64], item;
    counter blocks, runs;
} folding;

/* The block of elements b .. b + m of the last axis, into g->item. */
static void walk_block(walk *w, int open, folding *g, int64_t b, int64_t m) {
    const kiln_ir_ins *f = &w->ir->ins[open];
    int dim = w->dim[f->which], merge = walk_part_end(w, open + 1) + 1;
    int64_t lanes = f->imm.tree.lanes, used = m < lanes ? m : lanes;
    for (int64_t l = 0; l < used; l++) {
        walk_copy(&g->lane[l], &g->init, f->nargs);
        for (int64_t i = l; i < m; i += lanes) {
            w->pos[dim] = b + i;
            walk_part(w, open + 1, &g->lane[l], NULL, &g->lane[l]);
        }
    }
    for (int64_t apart = lanes / 2; apart; apart /= 2)
        for (int64_t l = 0; l < apart && l + apart < used; l++)
            walk_part(w, merge, &g->lane[l], &g->lane[l + apart], &g->lane[l]);
    walk_copy(&g->item, &g->lane[0], f->nargs);
}

/* The same of a fold by block: its first region alone makes the states. */
static void walk_whole_block(walk *w, int open, folding *g, int64_t b, int64_t m) {
    int dim = w->dim[w->ir->ins[open].which];
    int64_t first = w->first[dim], many = w->many[dim];
    w->first[dim] = w->pos[dim] = b;
    w->many[dim] = m;
    walk_part(w, open + 1, NULL, NULL, &g->item);
    w->first[dim] = first;
    w->many[dim] = many;
}

static void walk_run(walk *w, int open, folding *g) {
    const kiln_ir_ins *f = &w->ir->ins[open];
    int dim = w->dim[f->which], merge = walk_part_end(w, open + 1) + 1;
    int64_t n = w->many[dim], block = f->imm.tree.block;
    g->blocks.top = 0;
    g->blocks.items = 0;
    for (int64_t b = 0; b < n; b += block) {
        int64_t m = n - b < block ? n - b : block;
        if (f->imm.tree.lanes)
            walk_block(w, open, g, w->first[dim] + b, m);
        else
            walk_whole_block(w, open, g, w->first[dim] + b, m);
        walk_push(w, merge, &g->blocks, &g->item);
    }
    walk_push(w, merge, &g->runs, walk_close(w, merge, &g->blocks));
}

/* All runs in lexicographic order: axis k of those before the last one, and the ones after it. */
static void walk_runs(walk *w, int open, folding *g, int k) {
    const kiln_ir_ins *f = &w->ir->ins[open];
    if (k == f->ncoord) {
        walk_run(w, open, g);
        return;
    }
    int dim = w->dim[f->coord[k].axis];
    for (int64_t i = 0; i < w->many[dim]; i++) {
        w->pos[dim] = w->first[dim] + i;
        walk_runs(w, open, g, k + 1);
    }
    w->pos[dim] = w->first[dim];
}

static void walk_fold(walk *w, int open, states *out) {
    static _Thread_local folding all[KILN_IR_MAX_NEST];
    static _Thread_local int depth;
    const kiln_ir_ins *f = &w->ir->ins[open];
    folding *g = &all[depth++];
    bool empty = w->many[w->dim[f->which]] == 0;
    for (int k = 0; k < f->ncoord; k++) empty |= w->many[w->dim[f->coord[k].axis]] == 0;
    for (int k = 0; k < f->nargs; k++) g->init.s[k] = w->v[f->list[k]];
    g->runs.top = 0;
    g->runs.items = 0;
    g->runs.nstates = g->blocks.nstates = f->nargs;
    if (!empty) walk_runs(w, open, g, 0);
    walk_copy(out, empty ? &g->init : walk_close(w, walk_part_end(w, open + 1) + 1, &g->runs), f->nargs);
    w->pos[w->dim[f->which]] = w->first[w->dim[f->which]];
    depth--;
}

/* -- other loops -------------------------------------------------------------------------------------------- */

static void walk_chain(walk *w, int open, int64_t begin, int64_t end, states *s) {
    int dim = w->dim[w->ir->ins[open].which];
    for (int64_t i = begin; i < end && !w->trap; i++) {
        w->pos[dim] = i;
        walk_part(w, open + 1, s, NULL, s);
    }
}

static void walk_scan(walk *w, int open, states *out) {
    const kiln_ir_ins *f = &w->ir->ins[open];
    int dim = w->dim[f->which], merge = walk_part_end(w, open + 1) + 1;
    int64_t begin = w->first[dim], end = begin + w->many[dim], block = f->imm.tree.block;
    states init, start, total, chain;
    for (int k = 0; k < f->nargs; k++) init.s[k] = w->v[f->list[k]];
    *out = start = init;
    if (!block || end - begin <= block) {
        walk_chain(w, open, begin, end, out);
    } else {
        for (int64_t b = begin; b < end; b += block) {
            int64_t stop = end - b < block ? end : b + block;
            bool was = w->silent;
            total = init;
            chain = start;
            w->silent = true;
            walk_chain(w, open, b, stop, &total);
            w->silent = was;
            walk_chain(w, open, b, stop, &chain);
            walk_part(w, merge, &start, &total, &start);
        }
        *out = start;
    }
    w->pos[dim] = begin;
}

static void walk_for(walk *w, int open, const states *now) {
    const kiln_ir_ins *f = &w->ir->ins[open];
    int dim = w->dim[f->which];
    bool grid = w->ir->axes[f->which].grid;
    for (int64_t j = 0; j < (grid ? w->many[dim + 1] : 1) && !w->trap; j++)
        for (int64_t i = 0; i < w->many[dim] && !w->trap; i++) {
            w->pos[dim] = w->first[dim] + i;
            if (grid) w->pos[dim + 1] = j;
            walk_part(w, open + 1, now, NULL, NULL);
        }
    w->pos[dim] = w->first[dim];
}

/* -- values ------------------------------------------------------------------------------------------------- */

static char *walk_address(const walk *w, const kiln_ir_ins *ins) {
    int buf = ins->which;
    int64_t off = 0;
    uint32_t looped = w->ir->bufs[buf].axes;
    for (int k = 0; k < ins->ncoord; k++) {
        int64_t at;
        memcpy(&at, w->v[ins->coord[k].at].byte, sizeof at);
        off += at * w->l->stride[buf * w->l->ndim + w->dim[ins->coord[k].axis]];
        looped &= ~(1u << ins->coord[k].axis);
    }
    for (int a = 0; a < w->ir->naxes; a++) {
        if (!(looped >> a & 1)) continue;
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
    case KILN_IR_EXTENT: memcpy(out, &w->many[w->dim[ins->which]], size); break;
    case KILN_IR_INDEX: {
        int64_t index = w->l->origin[w->dim[ins->which]] + w->pos[w->dim[ins->which]];
        memcpy(out, &index, size);
        break;
    }
    case KILN_IR_PRIM: w->loops->prim[ins->prim][t](out, arg[0], arg[1], arg[2], 1); break;
    case KILN_IR_CAST: w->loops->cast[ins->dtype][t](out, arg[0], NULL, NULL, 1); break;
    case KILN_IR_STATE:
    case KILN_IR_LEFT: *out = now->s[ins->which]; break;
    case KILN_IR_RIGHT: *out = right->s[ins->which]; break;
    case KILN_IR_LOAD:
        if (ins->nargs) memcpy(out, arg[1], size);
        if (!ins->nargs || arg[0][0])
            memcpy(out, walk_address(w, ins) + (ins->prim == KILN_PART_IM ? size : 0), size);
        if (ins->dtype == KILN_BOOL) out->byte[0] = out->byte[0] != 0;
        break;
    case KILN_IR_STORE:
        size = kiln_dtype_size(kiln_dtype_real((kiln_dtype)ins->dtype));
        for (int k = 0, n = kiln_ir_store_values(ins); k < n && !w->silent; k++)
            if (ins->nargs == n || arg[n][0]) memcpy(walk_address(w, ins) + (size_t)k * size, arg[k], size);
        break;
    case KILN_IR_TRAP:
        if (arg[0][0] && !w->silent) w->trap = KILN_TRAP_BASE + ins->which;
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
            for (int k = 0; k < ins->nargs; k++) out->s[k] = w->v[ins->list[k]];
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
    memcpy(w.many, l->n, sizeof *l->n * (size_t)l->ndim);
    walk_for(&w, kiln_ir_nest_begin(ir, l->nest), NULL);
    return w.trap;
}
#endif
