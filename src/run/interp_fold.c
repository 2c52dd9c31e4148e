/* interp_fold.c - folds along the fixed tree of docs/IR.md.
 *
 * Element i goes to lane i mod 64 of block i / 4096; a block's lanes are merged pairwise, blocks by a
 * binary counter.  A vec fold keeps the 64 lanes side by side and works on rows of them.  Any other
 * fold has a whole state per element of an outer vector, so it takes one lane after the other, in the
 * order in which the tree needs them, and keeps only the tree's open branches.  Both give the same bits. */
#include <string.h>

#include "run/interp_impl.h"

static char *entry_of(const ctx *c, const region *r, size_t entry, const state *s) {
    size_t elems = r->width == BLOCK ? c->prog->block : LANES;
    return c->ptr[r->stack] + (entry * r->entry_units + s->at) * elems;
}

static int bits_of(int64_t n) {
    int bits = 0;
    for (; n > 0; n >>= 1) bits++;
    return bits;
}

size_t kiln_interp_fold_entries(const region *r, int64_t n) {
    size_t blocks = (size_t)bits_of(n / FOLD_BLOCK + 1) +
                    1;                /* open branches of the counter, and the newest */
    return blocks + (r->vec ? 1 : 6); /* right halves, or open branches over the lanes */
}

/* Merges entry `right` into entry `left`, all in index order. */
static void merge_entries(ctx *c, const region *r, size_t left, size_t right) {
    for (int k = 0; k < r->nstates; k++) {
        const state *s = &r->states[k];
        c->ptr[s->left] = entry_of(c, r, left, s);
        c->ptr[s->right] = entry_of(c, r, right, s);
    }
    kiln_interp_list(c, r->merge.head);
}

/* -- a state per element of the outer block, or one ------------------------------------------------ */

/* Folds elements first, first + 64, ... below end into an entry. */
static void fold_lane(ctx *c, const region *r, size_t entry, int64_t first, int64_t end) {
    size_t len = r->width == BLOCK ? c->n : 1;
    for (int k = 0; k < r->nstates; k++) {
        const state *s = &r->states[k];
        c->ptr[s->now] = entry_of(c, r, entry, s);
        memcpy(c->ptr[s->now], c->ptr[s->init], len * s->size);
    }
    for (int64_t i = first; i < end; i += LANES) {
        c->pos[r->dim] = i;
        kiln_interp_list(c, r->body.head);
    }
}

/* The merged state of lanes lane, lane + apart, lane + 2 * apart, ... of a block, into an entry. */
static void fold_lanes(ctx *c, const region *r, size_t entry, int64_t begin, int64_t end, int lane,
                       int apart) {
    if (apart == LANES) {
        fold_lane(c, r, entry, begin + lane, end);
        return;
    }
    fold_lanes(c, r, entry, begin, end, lane, 2 * apart);
    if (begin + lane + apart >= end) return;
    fold_lanes(c, r, entry + 1, begin, end, lane + apart, 2 * apart);
    merge_entries(c, r, entry, entry + 1);
}

/* -- 64 lanes side by side --------------------------------------------------------------------------- */

/* The last row of a fold may be short: lanes without an element keep their states, which a node that
 * writes whole vectors would spoil. */
static void step_short_row(ctx *c, const region *r, size_t entry) {
    for (int k = 0; k < r->nstates; k++) {
        const state *s = &r->states[k];
        memcpy(entry_of(c, r, entry + 1, s), entry_of(c, r, entry, s), (size_t)LANES * s->size);
    }
    kiln_interp_list(c, r->lane.head);
    for (int k = 0; k < r->nstates; k++) {
        const state *s = &r->states[k];
        size_t done = c->lanes * s->size;
        memcpy(entry_of(c, r, entry, s) + done, entry_of(c, r, entry + 1, s) + done,
               (size_t)LANES * s->size - done);
    }
}

static void step_rows(ctx *c, const region *r, size_t entry) {
    kiln_interp_list(c, r->body.head);
    if (!r->split) return;
    for (c->row = 0; c->row < c->n; c->row += LANES) {
        c->lanes = c->n - c->row < LANES ? c->n - c->row : LANES;
        if (c->lanes < LANES && r->direct)
            step_short_row(c, r, entry);
        else
            kiln_interp_list(c, r->lane.head);
    }
    c->row = 0;
}

/* Merges lanes w.. into lanes 0.. for w = 32, 16, ... 1; lanes from m on saw nothing. */
static void merge_lanes(ctx *c, const region *r, size_t entry, size_t m) {
    for (size_t w = LANES / 2; w; w /= 2) {
        if (m <= w) continue;
        c->lanes = m - w;
        for (int k = 0; k < r->nstates; k++) {
            const state *s = &r->states[k];
            memcpy(entry_of(c, r, entry + 1, s), entry_of(c, r, entry, s) + w * s->size, c->lanes * s->size);
        }
        merge_entries(c, r, entry, entry + 1);
        m = w;
    }
    c->lanes = 1;
}

static void fold_rows(ctx *c, const region *r, size_t entry, int64_t begin, int64_t end) {
    for (int k = 0; k < r->nstates; k++) {
        const state *s = &r->states[k];
        c->ptr[s->now] = entry_of(c, r, entry, s);
        c->loops->splat[s->dtype](c->ptr[s->now], c->ptr[s->init], LANES);
    }
    int64_t chunk = r->split ? c->prog->block : LANES;
    for (int64_t i = begin; i < end; i += chunk) {
        c->pos[r->dim] = i;
        c->n = (size_t)(end - i < chunk ? end - i : chunk);
        step_rows(c, r, entry);
    }
    merge_lanes(c, r, entry, end - begin < LANES ? (size_t)(end - begin) : LANES);
    c->n = 1;
}

/* -- blocks ------------------------------------------------------------------------------------------ */

/* The tree over blocks: after block b, as many merges as b has trailing ones; the rest at the end,
 * latest first.  Leaves the whole in entry 0. */
static void fold_blocks(ctx *c, const region *r, int64_t n) {
    size_t top = 0; /* entries in use */
    int64_t block = 0;
    for (int64_t begin = 0; begin < n; begin += FOLD_BLOCK, block++) {
        int64_t end = n - begin < FOLD_BLOCK ? n : begin + FOLD_BLOCK;
        if (r->vec)
            fold_rows(c, r, top, begin, end);
        else
            fold_lanes(c, r, top, begin, end, 0, 1);
        for (int64_t b = block; b & 1; b >>= 1, top--) merge_entries(c, r, top - 1, top);
        top++;
    }
    for (; top > 1; top--) merge_entries(c, r, top - 2, top - 1);
}

int32_t kiln_interp_fold(ctx *c, const region *r) {
    int64_t n = c->launch->n[r->dim];
    size_t len = r->width == BLOCK ? c->n : 1;
    if (n > 0) {
        c->pos[r->dim] = 0;
        kiln_interp_list(c, r->row.head);
        fold_blocks(c, r, n);
    }
    for (int k = 0; k < r->nstates; k++) {
        const state *s = &r->states[k];
        memcpy(c->ptr[s->result], n > 0 ? entry_of(c, r, 0, s) : c->ptr[s->init], len * s->size);
    }
    return 0;
}
