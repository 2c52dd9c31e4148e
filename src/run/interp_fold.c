/* interp_fold.c - folds along the fixed trees of docs/IR.md, and scans.
 *
 * Element i of a run goes to lane i mod `lanes` of block i / `block`; a block's lanes are merged pairwise, blocks and
 * then runs by a binary counter.  A vec fold keeps the lanes side by side and works on rows of them.  Any other
 * fold has a whole state per element of an outer vector, so it takes one lane after the other, in the order in
 * which the tree needs them, and keeps only the tree's open branches.  Both give the same bits. */
#include <string.h>

#include "run/interp_impl.h"

static char *entry_of(const ctx *c, const region *r, size_t entry, const state *s) {
    size_t elems = r->width == BLOCK ? c->prog->block : LANES;
    return c->ptr[r->stack] + (entry * r->entry_units + s->at) * elems;
}

static size_t bits_of(int64_t n) {
    size_t bits = 0;
    for (; n > 0; n >>= 1) bits++;
    return bits;
}

/* Where states are: in an entry, of a scan by block these; initial ones; results. */
enum { START, TOTAL, SCAN_ENTRIES, INIT, RESULT };

size_t kiln_interp_entries(const region *r, const int64_t *n) {
    if (r->op == KILN_IR_SCAN) return SCAN_ENTRIES;
    size_t blocks = bits_of(n[r->dim] / r->tree.block + 1) +
                    1;                                  /* open branches of the counter, and the newest */
    size_t lanes = r->vec ? 1 : bits_of(r->tree.lanes); /* right halves, or open branches over lanes */
    size_t runs = 0;
    for (int k = 0; k < r->nslow; k++) runs += bits_of(n[r->slow[k]]);
    return runs + blocks + lanes;
}

static char *place_of(const ctx *c, const region *r, int place, const state *s) {
    if (place == INIT) return c->ptr[s->init];
    return place == RESULT ? c->ptr[s->result] : entry_of(c, r, (size_t)place, s);
}

/* Copies the states at one place to another, where steps go on. */
static void set_states(ctx *c, const region *r, int to, int from) {
    size_t n = r->width == BLOCK ? c->n : 1;
    for (int k = 0; k < r->nstates; k++) {
        const state *s = &r->states[k];
        char *at = c->ptr[s->now] = c->ptr[s->next] = place_of(c, r, to, s);
        memcpy(at, place_of(c, r, from, s), n * s->size);
    }
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

static void step(ctx *c, const region *r, int64_t i) {
    c->pos[r->dim] = i;
    kiln_interp_list(c, r->body.head);
}

/* Folds elements first, first + lanes, ... below end into an entry.  The first step reads the initial states where
 * they are. */
static void fold_lane(ctx *c, const region *r, size_t entry, int64_t first, int64_t end) {
    for (int k = 0; k < r->nstates; k++) {
        const state *s = &r->states[k];
        c->ptr[s->now] = c->ptr[s->init];
        c->ptr[s->next] = entry_of(c, r, entry, s);
    }
    step(c, r, first);
    for (int k = 0; k < r->nstates; k++) c->ptr[r->states[k].now] = c->ptr[r->states[k].next];
    for (int64_t i = first + r->tree.lanes; i < end; i += r->tree.lanes) step(c, r, i);
}

/* The merged state of the lanes that begin at items first, first + apart, first + 2 * apart, ... of a block that ends at `end`,
 * into an entry. */
static void fold_lanes(ctx *c, const region *r, size_t entry, int64_t first, int64_t end, uint32_t apart) {
    if (apart == r->tree.lanes) {
        fold_lane(c, r, entry, first, end);
        return;
    }
    fold_lanes(c, r, entry, first, end, 2 * apart);
    if (first + apart >= end) return;
    fold_lanes(c, r, entry + 1, first + apart, end, 2 * apart);
    merge_entries(c, r, entry, entry + 1);
}

/* A fold by block: its first region makes the states of the block by itself, and loops in it see nothing else. */
static void fold_whole(ctx *c, const region *r, size_t entry, int64_t begin, int64_t end) {
    int64_t from = c->from[r->dim], extent = c->extent[r->dim];
    for (int k = 0; k < r->nstates; k++) c->ptr[r->states[k].next] = entry_of(c, r, entry, &r->states[k]);
    c->from[r->dim] = begin;
    c->extent[r->dim] = end - begin;
    step(c, r, begin);
    c->from[r->dim] = from;
    c->extent[r->dim] = extent;
}

/* -- lanes side by side --------------------------------------------------------------------------------- */

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
    size_t lanes = r->tree.lanes;
    kiln_interp_list(c, r->body.head);
    if (!r->split) return;
    for (c->row = 0; c->row < c->n; c->row += lanes) {
        c->lanes = c->n - c->row < lanes ? c->n - c->row : lanes;
        if (c->lanes < lanes && r->direct)
            step_short_row(c, r, entry);
        else
            kiln_interp_list(c, r->lane.head);
    }
    c->row = 0;
}

/* Merges lanes w.. into lanes 0.. for w = half the lanes, a quarter, ... 1; lanes from m on saw nothing. */
static void merge_lanes(ctx *c, const region *r, size_t entry, size_t m) {
    for (size_t w = r->tree.lanes / 2; w; w /= 2) {
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
        c->ptr[s->now] = c->ptr[s->next] = entry_of(c, r, entry, s);
        c->loops->splat[s->dtype](c->ptr[s->now], c->ptr[s->init], LANES);
    }
    int64_t lanes = r->tree.lanes, chunk = r->split ? c->prog->block : lanes;
    for (int64_t i = begin; i < end; i += chunk) {
        c->pos[r->dim] = i;
        c->n = (size_t)(end - i < chunk ? end - i : chunk);
        step_rows(c, r, entry);
    }
    merge_lanes(c, r, entry, (size_t)(end - begin < lanes ? end - begin : lanes));
    c->n = 1;
}

/* -- blocks and runs ------------------------------------------------------------------------------------ */

/* The binary counter: the states of one more item stand in entry top.  As many merges as its number has
 * trailing ones.  Returns the entries in use. */
static size_t carry(ctx *c, const region *r, size_t top, int64_t item) {
    for (; item & 1; item >>= 1, top--) merge_entries(c, r, top - 1, top);
    return top + 1;
}

/* Merges what is open at the end, latest first: all goes to entry `base`. */
static void close_counter(ctx *c, const region *r, size_t base, size_t top) {
    for (; top > base + 1; top--) merge_entries(c, r, top - 2, top - 1);
}

/* The tree over one run, into entry `base`. */
static void fold_run(ctx *c, const region *r, size_t base) {
    int64_t end = c->from[r->dim] + c->extent[r->dim], block = r->tree.block, item = 0;
    size_t top = base;
    c->pos[r->dim] = c->from[r->dim];
    kiln_interp_list(c, r->row.head);
    for (int64_t i = c->from[r->dim]; i < end; i += block) {
        int64_t stop = end - i < block ? end : i + block;
        if (!r->tree.lanes)
            fold_whole(c, r, top, i, stop);
        else if (r->vec)
            fold_rows(c, r, top, i, stop);
        else
            fold_lanes(c, r, top, i, stop, 1);
        top = carry(c, r, top, item++);
    }
    close_counter(c, r, base, top);
}

/* Goes to the next run of a fold over several axes; false after the last one, with the first one's positions. */
static bool next_run(ctx *c, const region *r) {
    for (int k = r->nslow - 1; k >= 0; k--) {
        int d = r->slow[k];
        if (++c->pos[d] < c->from[d] + c->extent[d]) return true;
        c->pos[d] = c->from[d];
    }
    return false;
}

int32_t kiln_interp_fold(ctx *c, const region *r) {
    bool empty = c->extent[r->dim] == 0;
    for (int k = 0; k < r->nslow; k++) {
        c->pos[r->slow[k]] = c->from[r->slow[k]];
        empty |= c->extent[r->slow[k]] == 0;
    }
    size_t top = 0;
    int64_t item = 0;
    if (!empty) {
        do {
            fold_run(c, r, top);
            top = carry(c, r, top, item++);
        } while (next_run(c, r));
        close_counter(c, r, 0, top);
    }
    set_states(c, r, RESULT, empty ? INIT : 0);
    return 0;
}

/* -- scans ------------------------------------------------------------------------------------------------ */

/* The step's chain over elements begin .. end: the states at `now` become those after it. */
static int32_t run_chain(ctx *c, const region *r, int64_t begin, int64_t end) {
    int32_t trap = 0;
    for (int64_t i = begin; i < end && !trap; i++) {
        c->pos[r->dim] = i;
        trap = kiln_interp_list(c, r->body.head);
    }
    return trap;
}

/* What a block comes to from the initial states.  Only the first block stores, since the others run again. */
static int32_t total_of(ctx *c, const region *r, int64_t begin, int64_t end, bool first) {
    bool was = c->silent;
    set_states(c, r, TOTAL, INIT);
    c->silent |= !first;
    int32_t trap = run_chain(c, r, begin, end);
    c->silent = was;
    return trap;
}

/* Several blocks.  START: the states before the block at hand, in the end those after the last one. */
static int32_t scan_blocks(ctx *c, const region *r, int64_t begin, int64_t end) {
    int32_t trap = 0;
    set_states(c, r, START, INIT);
    for (int64_t i = begin; i < end && !trap; i += r->tree.block) {
        int64_t stop = end - i < r->tree.block ? end : i + r->tree.block;
        trap = total_of(c, r, i, stop, i == begin);
        set_states(c, r, RESULT, START);
        if (i > begin) trap = run_chain(c, r, i, stop);
        merge_entries(c, r, START, TOTAL);
    }
    set_states(c, r, RESULT, START);
    return trap;
}

int32_t kiln_interp_scan(ctx *c, const region *r) {
    int64_t begin = c->from[r->dim], end = begin + c->extent[r->dim], block = r->tree.block;
    if (block && end - begin > block) return scan_blocks(c, r, begin, end);
    set_states(c, r, RESULT, INIT);
    return run_chain(c, r, begin, end);
}
