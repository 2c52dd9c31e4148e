/* interp_prep.c - a nest of IR -> regions with lists of nodes.
 *
 * Every value goes to the outermost list in which its operands are known (its rank), so what does not
 * change in a loop is computed before it.  Nothing here runs code, and nothing here looks at sizes or strides. */
#include <string.h>

#include "run/interp_prep.h"

static int max_rank(const prep *q, int rank, kiln_ref r) { return q->v[r].rank > rank ? q->v[r].rank : rank; }
static int max_width(const prep *q, int w, kiln_ref r) { return q->v[r].width > w ? q->v[r].width : w; }

/* A primitive or a cast. */
static kiln_status prep_call(prep *q, int i) {
    const kiln_ir_ins *ins = &q->ir->ins[i];
    bool cast = ins->op == KILN_IR_CAST;
    int w = UNIFORM, rank = 0, n = ins->nargs;
    kiln_dtype t = (kiln_dtype)q->ir->ins[ins->arg[n - 1]].dtype;
    kiln_loop_fn fn = cast ? q->loops->cast[ins->dtype][t] : q->loops->prim[ins->prim][t];
    if (!fn && cast)
        return KILN_BUG("no loop to cast %s to %s", kiln_dtype_name(t),
                        kiln_dtype_name((kiln_dtype)ins->dtype));
    if (!fn)
        return KILN_BUG("no loop for %s of %s", kiln_prim_name((kiln_prim)ins->prim), kiln_dtype_name(t));
    for (int k = 0; k < n; k++) {
        w = max_width(q, w, ins->arg[k]);
        rank = max_rank(q, rank, ins->arg[k]);
    }
    uint32_t at[3] = {0, 0, 0};
    uint8_t shift = 0;
    for (int k = 0; k < n; k++) {
        at[k] = kiln_prep_as_width(q, ins->arg[k], w);
        if (w == LANE && q->v[ins->arg[k]].width == BLOCK) shift |= (uint8_t)(1 << k);
    }
    node *d = kiln_prep_make(q, i, NODE_CALL, w, rank);
    d->u.fn = fn;
    d->a = at[0];
    d->b = at[1];
    d->c = at[2];
    d->shift = shift;
    d->size = size_of(t);
    d->rest = (uint8_t)(VECTOR / (d->size > size_of(ins->dtype) ? d->size : size_of(ins->dtype)) - 1);
    d->which = !cast && kiln_prim_rule((kiln_prim)ins->prim) == KILN_RULE_SELECT;
    return KILN_OK;
}

static void prep_const(prep *q, int i) {
    const kiln_ir_ins *ins = &q->ir->ins[i];
    node *n = kiln_prep_make(q, i, NODE_CONST, UNIFORM, 0);
    float f = (float)ins->imm.f;
    if (ins->dtype == KILN_F32)
        memcpy(&n->u.bits, &f, sizeof f);
    else
        memcpy(&n->u.bits, &ins->imm, sizeof n->u.bits); /* little-endian: the low bytes are the value */
}

/* -- axes and memory --------------------------------------------------------------------------------- */

static bool runs_over(const region *r, int dim) {
    for (int k = 0; k < r->nslow; k++)
        if (r->slow[k] == dim) return true;
    return r->dim == dim;
}

/* The level of the innermost open loop over axis, and the part of its region that runs for each position. */
static int level_of(const prep *q, int axis, int *part) {
    int k = here(q), dim = q->dim_of[axis];
    while (k > 0 && (q->stack[k]->merging || !runs_over(q->stack[k], dim))) k--;
    *part = q->stack[k]->dim == dim ? PART_BODY : PART_ROW;
    return k;
}

static void prep_index(prep *q, int i) {
    int axis = q->ir->ins[i].which, part, level = level_of(q, axis, &part);
    bool varies = q->vec == q->stack[level] && part == PART_BODY;
    node *n = kiln_prep_make(q, i, NODE_INDEX, varies ? BLOCK : UNIFORM, rank_at(level, part));
    n->which = q->dim_of[axis];
}

/* An extent is known before all loops, but in a block of a fold it is the block's. */
static void prep_extent(prep *q, int i) {
    int dim = q->dim_of[q->ir->ins[i].which], level = here(q), rank = 0;
    for (; level > 0 && !rank; level--) {
        const region *r = q->stack[level];
        bool block = r->op == KILN_IR_FOLD && !r->tree.lanes && r->dim == dim && !r->merging;
        if (block) rank = rank_at(level, PART_BODY);
    }
    kiln_prep_make(q, i, NODE_EXTENT, UNIFORM, rank)->which = (uint16_t)dim;
}

/* Fills m's dimensions; returns the rank below which its address is not known. */
static int address_rank(prep *q, const kiln_ir_ins *ins, access *m) {
    const kiln_ir_buf *b = &q->ir->bufs[ins->which];
    uint32_t axes = b->axes;
    int rank = 0;
    m->buf = ins->which;
    m->size = size_of(kiln_dtype_real(b->dtype));
    m->offset = ins->op == KILN_IR_LOAD && ins->prim == KILN_PART_IM ? m->size : 0;
    m->vec_dim = -1;
    m->ncoord = ins->ncoord;
    for (int k = 0; k < ins->ncoord; k++) {
        kiln_ref at = ins->coord[k].at;
        axes &= ~(1u << ins->coord[k].axis);
        m->coord[k] = q->v[at].ptr;
        m->coord_dim[k] = q->dim_of[ins->coord[k].axis];
        m->coord_step[k] = q->v[at].width != UNIFORM;
        rank = max_rank(q, rank, at);
    }
    for (int a = 0; a < q->ir->naxes; a++) {
        if (!(axes >> a & 1)) continue;
        int part, level = level_of(q, a, &part);
        bool along = q->vec == q->stack[level] && part == PART_BODY;
        m->dim[m->ndim++] = q->dim_of[a];
        if (q->ir->axes[a].grid) m->dim[m->ndim++] = (uint8_t)(q->dim_of[a] + 1);
        if (along && !q->along && b->stride == KILN_STRIDE_BCAST && b->role == KILN_BUF_IN) part = PART_ROW;
        if (along && part == PART_BODY) m->vec_dim = (int8_t)q->dim_of[a];
        if (rank < rank_at(level, part)) rank = rank_at(level, part);
    }
    return rank;
}

static int guard_rank(prep *q, access *m, kiln_ref guard, int rank) {
    m->guarded = true;
    m->guard = q->v[guard].ptr;
    m->guard_step = q->v[guard].width != UNIFORM;
    return max_rank(q, rank, guard);
}

/* A run of elements may be used where it lies unless a store of the same block could come between. */
static bool may_stay(const prep *q, int i) {
    uint32_t part = q->v[i].part, stores = 0, uses = 0;
    if (q->ir->ins[i].dtype == KILN_BOOL) return false; /* any nonzero byte is true */
    for (uint32_t k = part + 1; k < q->v[part].end; k++) {
        const kiln_ir_ins *ins = &q->ir->ins[k];
        if (kiln_ir_opens(ins)) return false;
        if (ins->op == KILN_IR_MERGE) break;
        if (ins->op != KILN_IR_STORE) continue;
        if (!q->v[k].late) return false;
        stores++;
        for (int j = 0; j < ins->nargs; j++) uses += ins->arg[j] == (kiln_ref)i;
        if (kiln_ir_store_values(ins) > 1) stores++; /* one part after the other */
        for (int j = 0; j < ins->ncoord; j++) uses += ins->coord[j].at == (kiln_ref)i;
    }
    return stores <= 1 || uses == 0;
}

static void prep_load(prep *q, int i) {
    const kiln_ir_ins *ins = &q->ir->ins[i];
    access *m = kiln_prep_take(q, sizeof *m, &q->sink_access);
    int rank = address_rank(q, ins, m), w = m->vec_dim >= 0 ? BLOCK : UNIFORM;
    for (int k = 0; k < m->ncoord; k++) w = m->coord_step[k] ? BLOCK : w;
    if (ins->nargs) {
        rank = guard_rank(q, m, ins->arg[0], rank);
        m->other = q->v[ins->arg[1]].ptr;
        m->other_step = q->v[ins->arg[1]].width != UNIFORM;
        rank = max_rank(q, rank, ins->arg[1]);
        if (m->guard_step || m->other_step) w = BLOCK;
    }
    bool plain = !ins->nargs && !ins->ncoord;
    if (!plain || q->ir->bufs[ins->which].role != KILN_BUF_IN)
        rank = rank_at(here(q), PART_BODY); /* not moved */
    node *n = kiln_prep_make(q, i, plain ? NODE_LOAD : NODE_GATHER, w, rank);
    n->x.mem = m;
    n->u.gather = q->loops->gather[ins->dtype];
    if (!plain || w != BLOCK || !q->v[i].owned || !may_stay(q, i)) return;
    m->in_place = true;
    n->b = n->out;
    n->out = q->v[i].ptr = kiln_prep_home(q);
}

/* Value k of a store: the whole, or a part of a complex element. */
static void prep_store_value(prep *q, const kiln_ir_ins *ins, int k) {
    access *m = kiln_prep_take(q, sizeof *m, &q->sink_access);
    kiln_ref value = ins->arg[k], guard = kiln_ir_store_guard(ins);
    address_rank(q, ins, m);
    m->offset = (uint8_t)(k * m->size);
    if (guard != KILN_NOREF) guard_rank(q, m, guard, 0);
    bool plain = guard == KILN_NOREF && !ins->ncoord && (!q->vec || m->vec_dim >= 0);
    int w = q->vec ? BLOCK : UNIFORM;
    uint32_t from = plain ? kiln_prep_as_width(q, value, w) : q->v[value].ptr;
    m->value_step = q->v[value].width != UNIFORM;
    node *n = kiln_prep_node(q, rank_at(here(q), PART_BODY), plain ? NODE_STORE : NODE_SCATTER, w);
    n->a = from;
    n->x.mem = m;
    n->u.scatter = q->loops->scatter[kiln_dtype_real((kiln_dtype)ins->dtype)];
}

static void prep_store(prep *q, int i) {
    const kiln_ir_ins *ins = &q->ir->ins[i];
    for (int k = 0; k < kiln_ir_store_values(ins); k++) prep_store_value(q, ins, k);
}

static void prep_trap(prep *q, int i) {
    const kiln_ir_ins *ins = &q->ir->ins[i];
    kiln_ref cond = ins->arg[0];
    node *n = kiln_prep_node(q, rank_at(here(q), PART_BODY), NODE_TRAP, q->v[cond].width);
    n->a = q->v[cond].ptr;
    n->which = ins->which;
}

/* -- states -------------------------------------------------------------------------------------------- */

static void prep_state(prep *q, int i) {
    const kiln_ir_ins *ins = &q->ir->ins[i];
    int level = here(q);
    while (level > 0 && q->stack[level]->op == KILN_IR_FOR) level--;
    const region *r = q->stack[level];
    const state *s = &r->states[ins->which];
    value *v = &q->v[i];
    bool lanes = r->vec && (r->split || r->merging);
    v->ptr = ins->op == KILN_IR_STATE ? s->now : ins->op == KILN_IR_LEFT ? s->left : s->right;
    v->width = lanes ? LANE : r->vec ? BLOCK : r->width;
    v->rank = (uint8_t)rank_at(level, lanes || r->merging ? PART_LANE : PART_BODY);
}

static void prep_result(prep *q, int i) {
    const kiln_ir_ins *ins = &q->ir->ins[i];
    const value *f = &q->v[ins->arg[0]];
    q->v[i].ptr = f->region->states[ins->which].result;
    q->v[i].width = f->region->vec ? UNIFORM : f->region->width;
    q->v[i].rank = f->rank;
}

static node *copy_node(prep *q, int rank, int w, uint32_t out, uint32_t a, int size) {
    node *n = kiln_prep_node(q, rank, NODE_COPY, w);
    n->out = out;
    n->a = a;
    n->size = (uint8_t)size;
    return n;
}

/* New states replace the old ones; a state that moves to another place is first set aside. */
static void prep_yield(prep *q, int i) {
    const kiln_ir_ins *ins = &q->ir->ins[i];
    region *r = q->stack[here(q)];
    bool lanes = r->vec && (r->split || r->merging);
    int w = lanes ? LANE : r->vec ? BLOCK : r->width;
    int rank = rank_at(here(q), lanes || r->merging ? PART_LANE : PART_BODY);
    uint32_t from[KILN_IR_MAX_STATES];
    bool shift[KILN_IR_MAX_STATES];
    for (int k = 0; k < ins->nargs; k++) {
        kiln_ref v = ins->list[k];
        const kiln_ir_ins *d = &q->ir->ins[v];
        const state *s = &r->states[k];
        from[k] = kiln_prep_as_width(q, v, w);
        shift[k] = w == LANE && q->v[v].width == BLOCK;
        if ((d->op != KILN_IR_STATE && d->op != KILN_IR_LEFT) || d->which == k) continue;
        uint32_t aside = kiln_prep_register(q, w, s->size);
        (void)copy_node(q, rank, w, aside, from[k], s->size);
        from[k] = aside;
    }
    for (int k = 0; k < ins->nargs; k++) {
        uint32_t to = r->merging ? r->states[k].left : r->states[k].next;
        if (from[k] != to) copy_node(q, rank, w, to, from[k], r->states[k].size)->shift = shift[k];
    }
}

/* -- regions ------------------------------------------------------------------------------------------- */

static kiln_status prep_region(prep *q, int open);

static kiln_status prep_ins(prep *q, int i) {
    const kiln_ir_ins *ins = &q->ir->ins[i];
    bool pure = ins->op != KILN_IR_STORE && ins->op != KILN_IR_TRAP && ins->op != KILN_IR_YIELD &&
                !kiln_ir_opens(ins);
    kiln_status st = KILN_OK;
    if (pure && q->v[i].last == 0) return KILN_OK; /* nobody reads it */
    switch ((kiln_ir_op)ins->op) {
    case KILN_IR_CONST: prep_const(q, i); break;
    case KILN_IR_PAR: kiln_prep_make(q, i, NODE_PAR, UNIFORM, 0)->which = ins->which; break;
    case KILN_IR_EXTENT: prep_extent(q, i); break;
    case KILN_IR_INDEX: prep_index(q, i); break;
    case KILN_IR_LOAD: prep_load(q, i); break;
    case KILN_IR_STORE: prep_store(q, i); break;
    case KILN_IR_PRIM:
    case KILN_IR_CAST: st = prep_call(q, i); break;
    case KILN_IR_TRAP: prep_trap(q, i); break;
    case KILN_IR_STATE:
    case KILN_IR_LEFT:
    case KILN_IR_RIGHT: prep_state(q, i); break;
    case KILN_IR_YIELD: prep_yield(q, i); break;
    case KILN_IR_RESULT: prep_result(q, i); break;
    case KILN_IR_FOR:
    case KILN_IR_FOLD:
    case KILN_IR_SCAN: return prep_region(q, i); /* buries its own */
    case KILN_IR_MERGE:
    case KILN_IR_END:
    case KILN_IR_OP_COUNT: break;
    }
    kiln_prep_bury(q, (uint32_t)i);
    return st;
}

/* Instructions first..end: those marked late come after the others. */
static kiln_status prep_part(prep *q, int first, int end) {
    for (int pass = 0; pass < 2; pass++)
        for (int i = first; i < end; i++) {
            if (q->v[i].late == (pass == 1)) KILN_TRY(prep_ins(q, i));
            if (kiln_ir_opens(&q->ir->ins[i])) i = (int)q->v[i].end;
        }
    return KILN_OK;
}

static void prep_states(prep *q, region *r, const kiln_ir_ins *ins) {
    r->states = kiln_prep_take(q, sizeof *r->states * ins->nargs, NULL);
    if (!r->states) return;
    r->nstates = ins->nargs;
    for (int k = 0; k < ins->nargs; k++) {
        state *s = &r->states[k];
        s->dtype = q->ir->ins[ins->list[k]].dtype;
        s->size = size_of(s->dtype);
        s->init = kiln_prep_as_width(q, ins->list[k], r->width);
        s->now = kiln_prep_home(q);
        s->next = kiln_prep_home(q);
        s->left = kiln_prep_home(q);
        s->right = kiln_prep_home(q);
        s->at = r->entry_units;
        r->entry_units += s->size;
        if (ins->op == KILN_IR_SCAN) s->result = kiln_prep_shared(q, r->width, s->size);
    }
    if (ins->op != KILN_IR_FOLD && !kiln_ir_by_block(ins)) return;
    r->stack = kiln_prep_home(q);
    r->next_fold = q->g->folds;
    q->g->folds = r;
}

static region *new_region(prep *q, int open) {
    const kiln_ir_ins *ins = &q->ir->ins[open];
    region *r = kiln_prep_take(q, sizeof *r, NULL);
    if (!r) return NULL;
    r->op = ins->op;
    r->vec = ins->vec;
    r->grid = q->ir->axes[ins->which].grid;
    r->dim = q->dim_of[ins->which];
    r->width = q->vec ? BLOCK : UNIFORM;
    if (!ins->list) return r;
    for (int k = 0; k < ins->ncoord; k++) r->slow[r->nslow++] = q->dim_of[ins->coord[k].axis];
    r->tree = ins->imm.tree;
    prep_states(q, r, ins);
    return r;
}

/* After the region: where its results are, and the node that runs it. */
static void close_region(prep *q, int open, region *r) {
    const kiln_ir_ins *ins = &q->ir->ins[open];
    value *v = &q->v[open];
    if (q->depth == 0) {
        q->g->root = r;
        return;
    }
    if (ins->op == KILN_IR_FOLD)
        for (int k = 0; k < r->nstates; k++)
            r->states[k].result = kiln_prep_shared(q, r->width, r->states[k].size);
    int rank = rank_at(here(q), PART_BODY);
    kiln_prep_node(q, rank, NODE_LOOP, UNIFORM)->u.loop = r;
    if (ins->op == KILN_IR_FOR) return;
    v->region = r;
    v->rank = (uint8_t)rank;
    v->owned = true;
    if (v->last < v->end) v->last = v->end;
    kiln_prep_dies(q, (uint32_t)open);
}

static kiln_status prep_region(prep *q, int open) {
    const kiln_ir_ins *ins = &q->ir->ins[open];
    const region *outer_vec = q->vec;
    bool flat;
    region *r = new_region(q, open);
    if (q->nomem) return KILN_NOMEM();
    int stop = kiln_interp_part_end(q, open, &flat), end = (int)q->v[open].end;
    r->split = ins->op == KILN_IR_FOLD && ins->vec && flat && q->v[stop - 1].late;
    q->stack[q->depth++] = r;
    if (ins->vec) q->vec = r;
    KILN_TRY(prep_part(q, open + 1, stop));
    if (stop != end) {
        r->merging = true;
        KILN_TRY(prep_part(q, stop + 1, end));
    }
    q->vec = outer_vec;
    q->depth--;
    close_region(q, open, r);
    kiln_prep_bury(q, (uint32_t)end);
    return q->nomem ? KILN_NOMEM() : KILN_OK;
}

/* Blocks as long as their registers stay in the first-level cache. */
static void choose_block(program *g, uint32_t most) {
    size_t units = g->wide_units;
    for (const region *f = g->folds; f; f = f->next_fold)
        if (f->width == BLOCK) units += 8 * f->entry_units;
    g->block = most;
    while (g->block > 256 && units * g->block > 40 * 1024) g->block /= 2;
}

/* Scratch memory begins with the pointer table; narrow registers follow, then those of blocks. */
static void place_registers(program *g) {
    uint32_t narrow = (uint32_t)kiln_up64(g->nhomes * sizeof(char *)),
             wide = narrow + g->narrow_units * LANES;
    for (uint32_t k = 0; k < g->nhomes; k++) {
        home *h = &g->homes[k];
        if (h->units != UINT32_MAX) h->at = h->wide ? wide + h->units * g->block : narrow + h->units * LANES;
    }
    g->scratch = wide + (size_t)g->wide_units * g->block;
}

kiln_status kiln_interp_prepare(kiln_interp *p, const kiln_ir *ir, int nest, int begin) {
    prep q = {.arena = &p->arena, .loops = p->loops, .ir = ir, .along = p->along, .g = &p->nest[nest]};
    memset(q.free_registers, 0xff, sizeof q.free_registers);
    for (int a = 0; a < ir->naxes; a++) {
        q.dim_of[a] = (uint8_t)q.g->ndim;
        q.g->ndim += ir->axes[a].grid ? 2 : 1;
    }
    q.v = kiln_calloc((size_t)ir->nins, sizeof *q.v);
    if (!q.v) return KILN_NOMEM();
    kiln_interp_live(&q, begin);
    kiln_prep_home(&q); /* index 0: what an absent operand points at */
    kiln_status st = prep_region(&q, begin);
    if (st == KILN_OK && q.nomem) st = KILN_NOMEM();
    choose_block(q.g, p->block);
    place_registers(q.g);
    kiln_free(q.v);
    return st;
}
