/* interp_nodes.c - preparing: registers, and lists of nodes that use them.
 *
 * A value is put into the list its rank names, which may be that of a loop further out than its own.  Values that
 * stay in their own region share registers by liveness; a value moved outwards keeps a register to itself,
 * since it runs before what is textually earlier.  Knows widths and sizes of values, not what computes them. */
#include "run/interp_prep.h"

void *kiln_prep_take(prep *q, size_t nbytes, void *otherwise) {
    void *p = kiln_arena_alloc(q->arena, nbytes);
    q->nomem |= !p;
    return p ? p : otherwise;
}

/* -- registers ---------------------------------------------------------------------------------------- */

static int size_class(int size) { return size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3; }

uint32_t kiln_prep_home(prep *q) {
    home *all = kiln_arena_grow(q->arena, q->g->homes, q->g->nhomes, sizeof *all);
    if (!all) {
        q->nomem = true;
        return 0;
    }
    q->g->homes = all;
    all[q->g->nhomes] = (home){.units = UINT32_MAX};
    return q->g->nhomes++;
}

uint32_t kiln_prep_register(prep *q, int w, int size) {
    uint32_t at = kiln_prep_home(q);
    if (q->nomem) return 0;
    bool wide = w == BLOCK;
    uint32_t *units = wide ? &q->g->wide_units : &q->g->narrow_units;
    q->g->homes[at] = (home){.units = *units, .next_free = NONE, .wide = wide, .size = (uint8_t)size};
    *units += (uint32_t)size;
    return at;
}

uint32_t kiln_prep_shared(prep *q, int w, int size) {
    uint32_t *head = &q->free_registers[w == BLOCK][size_class(size)];
    if (*head == NONE) return kiln_prep_register(q, w, size);
    uint32_t at = *head;
    *head = q->g->homes[at].next_free;
    return at;
}

static void give_back(prep *q, uint32_t at) {
    home *h = &q->g->homes[at];
    uint32_t *head = &q->free_registers[h->wide][size_class(h->size)];
    h->next_free = *head;
    *head = at;
}

/* Gives back what nobody reads after instruction i. */
void kiln_prep_bury(prep *q, uint32_t i) {
    for (uint32_t r = q->v[i].dying; r != NONE; r = q->v[r].next) {
        value *v = &q->v[r];
        if (v->owned_splat) give_back(q, v->splat);
        if (!v->owned) continue;
        if (!v->region) give_back(q, v->reg);
        for (int k = 0; v->region && k < v->region->nstates; k++) give_back(q, v->region->states[k].result);
    }
}

void kiln_prep_dies(prep *q, uint32_t r) {
    value *v = &q->v[r];
    v->next = q->v[v->last].dying;
    q->v[v->last].dying = r;
}

/* -- nodes -------------------------------------------------------------------------------------------- */

static list *list_of(prep *q, int rank) {
    if (rank == 0) return &q->g->pre;
    region *r = q->stack[(rank - 1) / 3];
    switch ((rank - 1) % 3 + 1) {
    case PART_ROW: return &r->row;
    case PART_BODY: return &r->body;
    default: return r->merging ? &r->merge : &r->lane;
    }
}

/* Whether what has this rank runs where the text stands. */
static bool stays(const prep *q, int rank) {
    return rank == rank_at(here(q), PART_BODY) || rank == rank_at(here(q), PART_LANE);
}

node *kiln_prep_node(prep *q, int rank, node_kind kind, int w) {
    node *n = kiln_prep_take(q, sizeof *n, &q->sink);
    if (n == &q->sink) return n;
    list *l = list_of(q, rank);
    if (l->tail)
        l->tail->next = n;
    else
        l->head = n;
    l->tail = n;
    n->kind = (uint8_t)kind;
    n->width = (uint8_t)w;
    return n;
}

/* A new state that may overwrite the old one at once: where that is.  NONE if it may not. */
static uint32_t state_register(prep *q, const value *v, int w, int rank) {
    region *r = q->stack[here(q)];
    if (!v->direct || !stays(q, rank) || w != (r->split ? LANE : r->width)) return NONE;
    r->direct = true;
    return r->states[v->direct - 1].next;
}

/* Makes the node that computes instruction i, with a register for its value. */
node *kiln_prep_make(prep *q, int i, node_kind kind, int w, int rank) {
    value *v = &q->v[i];
    int t = q->ir->ins[i].dtype;
    v->width = (uint8_t)w;
    v->rank = (uint8_t)rank;
    uint32_t at = state_register(q, v, w, rank);
    v->owned = at == NONE && stays(q, rank);
    v->ptr = v->reg = at != NONE ? at
                      : v->owned ? kiln_prep_shared(q, w, size_of(t))
                                 : kiln_prep_register(q, w, size_of(t));
    kiln_prep_dies(q, (uint32_t)i);
    node *n = kiln_prep_node(q, rank, kind, w);
    n->out = v->ptr;
    n->size = size_of(t);
    n->dtype = (uint8_t)t;
    return n;
}

/* The block form of value r: itself, or a splat made where r is. */
static uint32_t as_block(prep *q, kiln_ref r) {
    value *v = &q->v[r];
    if (v->width != UNIFORM) return v->ptr;
    if (v->splat != NONE && v->splat_for == q->vec) return v->splat;
    int t = q->ir->ins[r].dtype, rank = v->rank;
    bool own = stays(q, rank) && v->splat == NONE && v->last > 0;
    uint32_t at = own ? kiln_prep_shared(q, BLOCK, size_of(t)) : kiln_prep_register(q, BLOCK, size_of(t));
    if (own && !v->owned) own = false; /* not on the list of the dying by itself */
    node *n = kiln_prep_node(q, rank, NODE_SPLAT, BLOCK);
    n->out = at;
    n->a = v->ptr;
    n->size = size_of(t);
    n->u.splat = q->loops->splat[t];
    n->x.vec = (region *)(uintptr_t)q->vec;
    v->splat = at;
    v->splat_for = q->vec;
    v->owned_splat = own;
    return at;
}

uint32_t kiln_prep_as_width(prep *q, kiln_ref r, int w) {
    return w == UNIFORM ? q->v[r].ptr : as_block(q, r);
}
