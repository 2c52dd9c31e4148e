/* interp.c - tier 0: runs prepared kernels over blocks.
 *
 * kiln_interp_run lays out scratch, walks a nest's loops and calls one compiled-in loop per node and
 * block.  Scratch is on the stack when small.  Folds are interp_fold.c's, element-wise addressing
 * is interp_mem.c's, and how a kernel becomes nodes is interp_prep.c's.  Knows no operators. */
#include <string.h>

#include "run/interp_impl.h"

static kiln_status new_interp(const kiln_ir *ir, kiln_isa isa, bool along, uint32_t block,
                              kiln_interp **out) {
    kiln_interp *p = kiln_calloc(1, sizeof *p);
    if (!p) return KILN_NOMEM();
    kiln_arena_init(&p->arena);
    p->loops = kiln_loops_for(isa);
    p->along = along;
    p->block = block;
    p->nnests = ir->nnests;
    p->nest = kiln_arena_alloc(&p->arena, sizeof *p->nest * (size_t)ir->nnests);
    kiln_status st = KILN_OK;
    if (!p->nest) st = KILN_NOMEM();
    if (st == KILN_OK && !p->loops) st = KILN_BUG("no loops for %s", kiln_isa_name(isa));
    for (int k = 0, at = 0; k < ir->nnests && st == KILN_OK; k++) {
        st = kiln_interp_prepare(p, ir, k, at);
        at = kiln_ir_region_end(ir, at) + 1;
    }
    if (st != KILN_OK) {
        kiln_interp_free(p);
        return st;
    }
    *out = p;
    return KILN_OK;
}

kiln_status kiln_interp_new(const kiln_ir *ir, kiln_isa isa, kiln_interp **out) {
    return new_interp(ir, isa, false, KILN_BLOCK, out);
}

kiln_status kiln_interp_new_along(const kiln_ir *ir, kiln_isa isa, kiln_interp **out) {
    return new_interp(ir, isa, true, KILN_BLOCK, out);
}

bool kiln_interp_can_turn(const kiln_ir *ir) {
    enum { GRID, ROW, PARTS, AXES };
    const kiln_ir_ins *top = &ir->ins[0];
    bool folds = false;
    if (ir->nnests != 1 || ir->naxes != AXES || top->which != GRID || top->vec) return false;
    for (int b = 0; b < ir->nbufs; b++)
        if (ir->bufs[b].role == KILN_BUF_INOUT || ir->bufs[b].role == KILN_BUF_TMP ||
            ir->bufs[b].axes >> PARTS & 1)
            return false;
    for (const kiln_ir_ins *ins = top + 1; ins < ir->ins + ir->nins; ins++) {
        if (ins->op == KILN_IR_SCAN || ins->ncoord || (kiln_ir_opens(ins) && ins->which != ROW)) return false;
        folds |= ins->op == KILN_IR_FOLD;
    }
    return folds;
}

kiln_status kiln_interp_new_across(const kiln_ir *ir, kiln_isa isa, kiln_interp **out) {
    enum { ROWS = 128 }; /* of a block: partial results of so many have room on the stack */
    kiln_ir turned = *ir;
    turned.ins = kiln_alloc(sizeof *ir->ins * (size_t)ir->nins);
    if (!turned.ins) return KILN_NOMEM();
    memcpy(turned.ins, ir->ins, sizeof *ir->ins * (size_t)ir->nins);
    for (int k = 0; k < ir->nins; k++) turned.ins[k].vec = k == 0;
    /* What is one element for a row may differ between rows: it is read along the grid. */
    kiln_status st = new_interp(&turned, isa, true, ROWS, out);
    kiln_free(turned.ins);
    return st;
}

void kiln_interp_free(kiln_interp *p) {
    if (!p) return;
    kiln_arena_free(&p->arena);
    kiln_free(p);
}

/* -- one node -------------------------------------------------------------------------------------- */

/* The elements of a block from `first` on, fewer than a vector has.  A loop computes whole vectors: the lanes that are no
 * elements are zeros, and not what happens to lie there, since that could send a primitive on its longest way. */
static void call_rest(const node *n, char *out, const char *const *from, const size_t *size, size_t first,
                      size_t len) {
    const uint32_t given[3] = {n->a, n->b, n->c};
    _Alignas(VECTOR) char pad[3][LANES * sizeof(int64_t) + VECTOR];
    for (int k = 0; k < 3; k++) {
        if (!given[k]) continue;
        memcpy(pad[k], from[k] + first * size[k], len * size[k]);
        memset(pad[k] + len * size[k], 0, VECTOR);
    }
    n->u.fn(out + first * kiln_dtype_size((kiln_dtype)n->dtype), pad[0], pad[1], pad[2], len);
}

static __attribute__((noinline)) void call_in_parts(ctx *c, const node *n) {
    /* the condition of a select is bool, its other operands are not */
    const size_t size[3] = {n->which ? 1 : n->size, n->size, n->size};
    const char *from[3] = {c->ptr[n->a], c->ptr[n->b], c->ptr[n->c]};
    char *out = c->ptr[n->out];
    size_t len = elems_of(c, n), rest = len & n->rest;
    for (int k = 0; n->shift >> k; k++)
        if (n->shift >> k & 1) from[k] += c->row * size[k];
    if (len > rest) n->u.fn(out, from[0], from[1], from[2], len - rest);
    if (rest) call_rest(n, out, from, size, len - rest, rest);
}

static inline void run_call(ctx *c, const node *n) {
    size_t len = elems_of(c, n);
    if (n->shift || (len & n->rest))
        call_in_parts(c, n);
    else
        n->u.fn(c->ptr[n->out], c->ptr[n->a], c->ptr[n->b], c->ptr[n->c], len);
}

static void run_splat(ctx *c, const node *n) {
    int64_t extent = c->extent[n->x.vec->dim];
    size_t len = extent < (int64_t)c->prog->block ? (size_t)extent : c->prog->block;
    n->u.splat(c->ptr[n->out], c->ptr[n->a], len);
}

static void run_index(ctx *c, const node *n) {
    int64_t *out = (int64_t *)(void *)c->ptr[n->out];
    int64_t first = c->launch->origin[n->which] + c->pos[n->which];
    size_t len = elems_of(c, n);
    for (size_t i = 0; i < len; i++) out[i] = first + (int64_t)i;
}

static void run_load(ctx *c, const node *n) {
    const access *m = n->x.mem;
    char *src = kiln_interp_address(c, m);
    size_t len = elems_of(c, n);
    int64_t stride = m->vec_dim < 0 ? 0 : c->launch->stride[m->buf * c->prog->ndim + m->vec_dim];
    if (m->in_place) {
        bool usable = stride == m->size && len * m->size % VECTOR == 0 && (uintptr_t)src % VECTOR == 0;
        c->ptr[n->out] = usable ? src : c->ptr[n->b];
        if (usable) return;
    }
    n->u.gather(c->ptr[n->out], src, stride, len);
}

static void run_store(ctx *c, const node *n) {
    const access *m = n->x.mem;
    char *dst = kiln_interp_address(c, m);
    int64_t stride = m->vec_dim < 0 ? m->size : c->launch->stride[m->buf * c->prog->ndim + m->vec_dim];
    n->u.scatter(dst, stride, c->ptr[n->a], elems_of(c, n));
}

static void run_copy(const ctx *c, const node *n) {
    char *out = c->ptr[n->out];
    const char *from = c->ptr[n->a] + (n->shift ? c->row * n->size : 0);
    if (out != from) memcpy(out, from, elems_of(c, n) * n->size); /* a state that stays may be where it was */
}

static int32_t run_trap(const ctx *c, const node *n) {
    const char *cond = c->ptr[n->a];
    size_t len = elems_of(c, n);
    char any = 0;
    for (size_t i = 0; i < len; i++) any |= cond[i];
    return any ? KILN_TRAP_BASE + n->which : 0;
}

/* -- loops ------------------------------------------------------------------------------------------ */

static int32_t run_for(ctx *c, const region *r) {
    int64_t begin = c->from[r->dim], end = begin + c->extent[r->dim], block = r->vec ? c->prog->block : 1;
    int64_t rows = r->grid ? c->extent[r->dim + 1] : 1;
    int32_t trap = 0;
    if (begin == end) return 0;
    for (int64_t j = 0; j < rows && !trap; j++) {
        if (r->grid) c->pos[r->dim + 1] = j;
        c->pos[r->dim] = begin;
        trap = kiln_interp_list(c, r->row.head);
        for (int64_t i = begin; i < end && !trap; i += block) {
            c->pos[r->dim] = i;
            if (r->vec) c->n = (size_t)(end - i < block ? end - i : block);
            trap = kiln_interp_list(c, r->body.head);
        }
    }
    if (r->vec) c->n = 1;
    return trap;
}

/* What follows the loop in a block of its axis stands at the block's first element again. */
KILN_HOT static int32_t run_region(ctx *c, const region *r) {
    int32_t trap = r->op == KILN_IR_FOR    ? run_for(c, r)
                   : r->op == KILN_IR_FOLD ? kiln_interp_fold(c, r)
                                           : kiln_interp_scan(c, r);
    c->pos[r->dim] = c->from[r->dim];
    return trap;
}

/* Numbers are copied as 8 bytes, whatever their size: every register has room for that, and nobody reads the rest. */
KILN_HOT int32_t kiln_interp_list(ctx *c, const node *n) {
    for (; n; n = n->next) {
        int32_t trap = 0;
        switch ((node_kind)n->kind) {
        case NODE_CALL: run_call(c, n); break;
        case NODE_CONST: memcpy(c->ptr[n->out], &n->u.bits, sizeof n->u.bits); break;
        case NODE_PAR: memcpy(c->ptr[n->out], &c->launch->par[n->which], sizeof *c->launch->par); break;
        case NODE_SPLAT: run_splat(c, n); break;
        case NODE_INDEX: run_index(c, n); break;
        case NODE_EXTENT: memcpy(c->ptr[n->out], &c->extent[n->which], sizeof *c->extent); break;
        case NODE_LOAD: run_load(c, n); break;
        case NODE_GATHER: kiln_interp_gather(c, n); break;
        case NODE_STORE:
            if (!c->silent) run_store(c, n);
            break;
        case NODE_SCATTER:
            if (!c->silent) kiln_interp_scatter(c, n);
            break;
        case NODE_COPY: run_copy(c, n); break;
        case NODE_TRAP: trap = c->silent ? 0 : run_trap(c, n); break;
        case NODE_LOOP: trap = run_region(c, n->u.loop); break;
        }
        if (trap) return trap;
    }
    return 0;
}

/* -- a whole nest ------------------------------------------------------------------------------------ */

/* Of the partial results that a fold keeps, in a launch with extents n. */
static size_t stack_bytes(const program *g, const region *f, const int64_t *n) {
    size_t elems = f->width == BLOCK ? g->block : LANES;
    return kiln_up64(kiln_interp_entries(f, n) * f->entry_units * elems);
}

static size_t scratch_bytes(const program *g, const int64_t *n) {
    size_t need = g->scratch;
    for (const region *f = g->folds; f; f = f->next_fold) need += stack_bytes(g, f, n);
    return need;
}

bool kiln_interp_fits(const kiln_interp *p, const int64_t *n) {
    for (int k = 0; k < p->nnests; k++)
        if (scratch_bytes(&p->nest[k], n) > STACK_SCRATCH) return false;
    return true;
}

static void lay_out(ctx *c, char *scratch) {
    const program *g = c->prog;
    c->ptr = (char **)(void *)scratch;
    for (uint32_t k = 0; k < g->nhomes; k++) c->ptr[k] = scratch + g->homes[k].at;
    char *stack = scratch + g->scratch;
    for (const region *f = g->folds; f; f = f->next_fold) {
        c->ptr[f->stack] = stack;
        stack += stack_bytes(g, f, c->launch->n);
    }
}

KILN_HOT static int32_t run_nest(ctx *c, char *scratch) {
    lay_out(c, scratch);
    int32_t trap = kiln_interp_list(c, c->prog->pre.head);
    return trap ? trap : run_region(c, c->prog->root);
}

KILN_HOT static int32_t run_on_stack(ctx *c) {
    _Alignas(64) char scratch[STACK_SCRATCH];
    int32_t trap = run_nest(c, scratch);
    c->ptr = NULL; /* it led into this frame */
    return trap;
}

/* Sets what a run reads; an initializer would clear all dimensions there can be, on every call. */
static void start(ctx *c, const kiln_interp *p, const kiln_launch *launch) {
    c->loops = p->loops;
    c->launch = launch;
    c->prog = &p->nest[launch->nest];
    c->ptr = NULL;
    c->n = c->lanes = 1;
    c->row = 0;
    c->silent = false;
    for (int d = 0; d < c->prog->ndim; d++) {
        c->pos[d] = c->from[d] = 0;
        c->extent[d] = launch->n[d];
    }
}

KILN_HOT kiln_status kiln_interp_run(const kiln_interp *p, const kiln_launch *launch, int32_t *trap) {
    if (launch->nest < 0 || launch->nest >= p->nnests)
        return KILN_BUG("nest %d of %d", (int)launch->nest, p->nnests);
    const program *g = &p->nest[launch->nest];
    if (launch->ndim != g->ndim)
        return KILN_BUG("a launch of %d dimensions, expected %d", (int)launch->ndim, g->ndim);
    ctx c;
    start(&c, p, launch);
    size_t need = scratch_bytes(g, launch->n);
    if (need <= STACK_SCRATCH) {
        *trap = run_on_stack(&c);
        return KILN_OK;
    }
    char *scratch = kiln_alloc_aligned(64, need);
    if (!scratch) return KILN_NOMEM();
    *trap = run_nest(&c, scratch);
    kiln_free(scratch);
    return KILN_OK;
}

int32_t kiln_interp_kernel(const kiln_launch *launch) {
    int32_t trap;
    const kiln_interp *p = (const kiln_interp *)(const void *)launch->work;
    return kiln_interp_run(p, launch, &trap) == KILN_OK ? trap : -1;
}
